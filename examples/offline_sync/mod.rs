//! An application that goes offline: what its user does waits for the connection, goes out in order when that is back, and
//! is told of. README.md beside this file says how to run it.

mod cloud;
mod operations;
mod story;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use http::{HeaderValue, Method};
use redrive::{
    Attempt, Clock, Engine, Failure, Filter, Handler, Happening, IntoOutcome, JobDetail, JobId, NewJob,
    OnRetry, Outcome, Page, Queue, State, StateName, Timestamp, Word, secs,
};
use redrive_server::egress::{Egress, Request};
use redrive_server::executor;
use redrive_server::serve::Server;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::Stage;
use crate::stage::egress;
pub use cloud::Cloud;
use operations::{CLOUD, QUEUE};
pub use operations::{CreateNote, DeleteNote, Operation, UpdateNote};
pub use story::tell;

/// How the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The far side can be reached.
    Up,
    /// It cannot.
    Down,
}

/// An operation as its user sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Queued {
    /// Its name.
    pub id: JobId,
    /// What it does.
    pub operation_type: String,
    /// `pending`, `processing`, `completed` or `failed`.
    pub status: &'static str,
    /// How often it has failed.
    pub retry_count: u32,
    /// The failure that is its last.
    pub max_retries: u32,
    /// What was wrong the last time.
    pub last_error: Option<String>,
    /// When it was put in.
    pub created_at: Timestamp,
    /// When it was done.
    pub processed_at: Option<Timestamp>,
}

/// What the user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The words.
    pub message: String,
    /// Where the log of the operation is, under the dashboard's address.
    pub log: String,
}

/// The queue of operations. Cheap to clone: all clones are the same.
#[derive(Clone)]
pub struct Sync {
    engine: Engine,
    connection: watch::Sender<Connection>,
    told: watch::Sender<Vec<Told>>,
}

/// The program: the queue with its dashboard, ready to run.
pub struct Program {
    /// The queue.
    pub sync: Sync,
    /// Where dashboard and API are.
    pub dashboard: SocketAddr,
    server: Server,
    cloud: SocketAddr,
    look_every: Duration,
}

impl Program {
    /// Opens the queue of this folder, for a far side at this address.
    ///
    /// # Errors
    ///
    /// What is wrong with the folder, or the address.
    pub async fn open(stage: &Stage, cloud: SocketAddr, on_retry: OnRetry) -> Result<Program> {
        let queue = Queue::new(QUEUE).fifo().on_retry(on_retry).policy(stage.pace.policy("offline")?);
        let look_every = stage.pace.of(secs(1));
        let connection = watch::Sender::new(Connection::Up);
        let line = Line { egress: egress()?, clock: Clock::system(), cloud, connection: connection.clone() };
        let server = Server::open_with(stage.config()?, None, |engine| {
            engine
                .queue(queue)
                .handle::<CreateNote>(line.clone())
                .handle::<UpdateNote>(line.clone())
                .handle::<DeleteNote>(line)
        })
        .await?;
        let sync = Sync { engine: server.engine().clone(), connection, told: watch::Sender::default() };
        Ok(Program { sync, dashboard: server.address()?, server, cloud, look_every })
    }

    /// Runs it until `shutdown` resolves.
    ///
    /// # Errors
    ///
    /// Those of the server, and of the store.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let Program { sync, server, cloud, look_every, .. } = self;
        tokio::select! {
            served = server.run(shutdown) => served,
            said = sync.say_how_it_is() => said,
            told = sync.tell() => told,
            () = look(cloud, look_every, &sync.connection) => Ok(()),
        }
    }
}

/// The way to the far side.
#[derive(Clone)]
struct Line {
    egress: Egress,
    clock: Clock,
    cloud: SocketAddr,
    connection: watch::Sender<Connection>,
}

impl<O: Operation> Handler<O> for Line {
    async fn run(&self, attempt: Attempt<O>) -> Outcome {
        let url = format!("http://{}/{}/{}", self.cloud, O::KIND, attempt.payload.note());
        // The same for every try: sent again, it is the same operation.
        let key = attempt.idempotency_key();
        match self.send(&url, &key).await {
            // Nobody could be reached: that is the connection's failure and costs the operation nothing.
            Err(failure) if failure.code.as_deref() == Some("NETWORK_ERROR") => {
                self.connection.send_replace(Connection::Down);
                Outcome::Held(failure)
            }
            sent => sent.into_outcome(),
        }
    }
}

impl Line {
    async fn send(&self, url: &str, key: &str) -> Result<(), Failure> {
        let mut request = Request::new(Method::POST, url)?;
        request.headers.insert("idempotency-key", HeaderValue::from_str(key)?);
        executor::ask(&self.egress, request, &self.clock).await.map(drop)
    }
}

/// Looks whether the far side can be reached, again and again.
async fn look(cloud: SocketAddr, every: Duration, connection: &watch::Sender<Connection>) {
    loop {
        tokio::time::sleep(every).await;
        let now = match TcpStream::connect(cloud).await {
            Ok(_) => Connection::Up,
            Err(_) => Connection::Down,
        };
        connection.send_if_modified(|known| std::mem::replace(known, now) != now);
    }
}

impl Sync {
    /// Puts an operation in. It is kept when this returns, with or without a connection.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn add(&self, operation: impl Into<NewJob>) -> Result<JobId> {
        Ok(self.engine.enqueue(operation).await?.id)
    }

    /// How the connection is, from now on.
    pub fn connection(&self) -> watch::Receiver<Connection> {
        self.connection.subscribe()
    }

    /// What the user has been told, from now on.
    pub fn told(&self) -> watch::Receiver<Vec<Told>> {
        self.told.subscribe()
    }

    /// The engine that sends.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// All operations, in the order they were put in.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn operations(&self) -> Result<Vec<Queued>> {
        let page = self.engine.list(&Filter::default(), Page::default()).await?;
        let mut operations = Vec::new();
        for job in page.jobs.into_iter().rev() {
            if let Some(detail) = self.engine.get(job.id).await? {
                operations.push(queued(&detail));
            }
        }
        Ok(operations)
    }

    /// Nothing is tried while the connection is down; when it is back, everything goes out in order, more and more of it.
    /// What was said is kept: an application that is started without a connection tries nothing either.
    async fn say_how_it_is(&self) -> Result<()> {
        let mut connection = self.connection.subscribe();
        loop {
            let now = *connection.borrow_and_update();
            let word = match now {
                Connection::Down => Word::Down,
                Connection::Up => Word::Up,
            };
            self.engine.say(CLOUD, word).await?;
            connection.changed().await?;
        }
    }

    /// Tells the user of every operation that was completed, or failed for good.
    async fn tell(&self) -> Result<()> {
        let mut events = self.engine.events();
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return Ok(()),
            };
            let (kind, log) = (&event.kind, format!("/jobs/{}", event.job));
            let message = match event.what {
                Happening::Succeeded { .. } => format!("Operation '{kind}' completed."),
                Happening::Dead { .. } => {
                    let Some(detail) = self.engine.get(event.job).await? else { continue };
                    let retries = queued(&detail).retry_count;
                    format!("Operation '{kind}' failed after {retries} retries. See logs.")
                }
                _ => continue,
            };
            self.told.send_modify(|told| told.push(Told { message, log }));
        }
    }
}

fn queued(detail: &JobDetail) -> Queued {
    let job = &detail.job;
    let failure = |attempt: &redrive::AttemptRecord| {
        attempt.failure.as_ref().map(|it: &Failure| it.in_full().into_owned())
    };
    Queued {
        id: job.id,
        operation_type: job.kind.to_string(),
        status: match job.state.name() {
            StateName::Waiting => "pending",
            StateName::Running => "processing",
            StateName::Succeeded => "completed",
            StateName::Dead | StateName::Cancelled => "failed",
        },
        retry_count: job.ledger.failures,
        // The document counts the first try as one of them.
        max_retries: job.policy.retries_allowed(job.origin).map_or(0, |retries| retries + 1),
        last_error: detail.attempts.iter().rev().find_map(failure),
        created_at: job.created_at,
        processed_at: match job.state {
            State::Succeeded { at } => Some(at),
            _ => None,
        },
    }
}
