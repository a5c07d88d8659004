//! A media library: reads the names of files, asks three sources for what they are about, and comes back to those that
//! could not be asked until they can. README.md beside this file says how to run it.

pub mod file_name;
mod shelf;
mod sources;
mod story;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use redrive::{
    Attempt, Engine, Failure, Fallback, Happening, NewJob, Output, Payload, Policy, Queue, StateName,
};
use redrive_server::serve::Server;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::Stage;
use file_name::Title;
pub use shelf::{Shelf, Status};
pub use sources::{Metadata, Mood, NAMES, Sources};
pub use story::tell;

/// Metadata that could not be had at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FetchMetadata {
    file: String,
    title: Title,
}

impl Payload for FetchMetadata {
    const KIND: &'static str = "metadata_fetch";
    const QUEUE: &'static str = "metadata";
}

/// The library. Cheap to clone: all clones are the same.
#[derive(Clone)]
pub struct Library {
    engine: Engine,
    fallback: Fallback<Title, Metadata>,
    policy: Policy,
    shelf: Arc<Shelf>,
}

/// The program: the library with its dashboard, ready to run.
pub struct Program {
    /// The library.
    pub library: Library,
    /// Where dashboard and API are.
    pub dashboard: SocketAddr,
    /// Where the library itself is asked: `/files`.
    pub address: SocketAddr,
    server: Server,
    listener: TcpListener,
}

impl Program {
    /// Opens the library of this folder, with these sources.
    ///
    /// # Errors
    ///
    /// What is wrong with the folder, or the address.
    pub async fn open(stage: &Stage, sources: &Sources) -> Result<Program> {
        let shelf = Arc::new(Shelf::open(&stage.folder.join("library.json"))?);
        let (policy, fallback) = (stage.pace.policy("media")?, sources.fallback(stage.pace)?);
        let (asked, applied) = (fallback.clone(), shelf.clone());
        let fetch = move |attempt: Attempt<FetchMetadata>| {
            let (asked, applied) = (asked.clone(), applied.clone());
            async move {
                let FetchMetadata { file, title } = attempt.payload;
                let found = asked.run(title).await?;
                // Applied before the job is done: if the process dies in between, it is applied again, to the same.
                applied.put(&file, Status::Ready(found.value.clone())).map_err(Failure::retry)?;
                Ok::<_, Failure>(Output(found.value))
            }
        };
        let queue = Queue::new(FetchMetadata::QUEUE).policy(policy.clone());
        let server =
            Server::open_with(stage.config()?, None, |engine| engine.queue(queue).handle(fetch)).await?;
        let library = Library { engine: server.engine().clone(), fallback, policy, shelf };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (dashboard, address) = (server.address()?, listener.local_addr()?);
        Ok(Program { library, dashboard, address, server, listener })
    }

    /// Runs it until `shutdown` resolves.
    ///
    /// # Errors
    ///
    /// Those of the server, and of the folder.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let Program { library, server, listener, .. } = self;
        let routes = Router::new()
            .route("/files", get(async |library: State<Library>| Json(library.shelf.files())))
            .route("/files/{file}", post(add))
            .with_state(library.clone());
        tokio::select! {
            served = server.run(shutdown) => served,
            watched = library.watch() => watched,
            listened = axum::serve(listener, routes).into_future() => Ok(listened?),
        }
    }
}

async fn add(library: State<Library>, file: Path<String>) -> Result<Json<Status>, (StatusCode, String)> {
    let added = library.add(&file.0).await;
    added.map(Json).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

impl Library {
    /// Takes a file: reads its name, asks for its metadata, and puts a retry in where that may help.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn add(&self, file: &str) -> Result<Status> {
        let failed = match file_name::parse(file) {
            Ok(title) => match self.fallback.run(title.clone()).await {
                Ok(found) => {
                    self.shelf.put(file, Status::Ready(found.value))?;
                    return self.status(file);
                }
                Err(failure) if self.is_temporary(&failure) => return self.retry(file, title, failure).await,
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        self.shelf.put(file, Status::NeedsPerson { error: failed.in_full().into_owned() })?;
        self.status(file)
    }

    /// Whether asking again may help: what no source has, and what no source is asked for, stays so.
    fn is_temporary(&self, failure: &Failure) -> bool {
        self.policy.classify(failure).class.is_retryable()
    }

    async fn retry(&self, file: &str, title: Title, failure: Failure) -> Result<Status> {
        // First, because the retry may be over before the next line.
        self.shelf.put(file, Status::Retrying { error: failure.in_full().into_owned() })?;
        let fetch = FetchMetadata { file: file.to_owned(), title };
        // The file is the key: however often it is added, there is one retry of it.
        let job = NewJob::from(fetch).key(file).failed_outside(failure);
        self.engine.enqueue(job).await?;
        self.status(file)
    }

    /// What is known of a file.
    ///
    /// # Errors
    ///
    /// If it is not there.
    pub fn status(&self, file: &str) -> Result<Status> {
        self.shelf.files().remove(file).ok_or_else(|| anyhow::anyhow!("there is no file {file:?}"))
    }

    /// What happens to the files from now on.
    pub fn changes(&self) -> watch::Receiver<BTreeMap<String, Status>> {
        self.shelf.changes()
    }

    /// The engine that retries.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Keeps the files' statuses in step with their retries.
    async fn watch(&self) -> Result<()> {
        let mut events = self.engine.events();
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                // Whoever fell behind hears of what comes next.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return Ok(()),
            };
            let said =
                |failure: Option<Failure>| failure.map(|it| it.in_full().into_owned()).unwrap_or_default();
            let status = match event.what {
                Happening::RetryScheduled { failure, .. } => Status::Retrying { error: said(failure) },
                Happening::Dead { failure, .. } => Status::NeedsPerson { error: said(failure) },
                Happening::Cancelled => Status::Cancelled,
                _ => continue,
            };
            let Some(detail) = self.engine.get(event.job).await? else { continue };
            // By now it may be further than the event says; then another event is on its way.
            let is_over = matches!(detail.job.state.name(), StateName::Succeeded);
            if let (Some(file), false) = (detail.job.extras().key.as_deref(), is_over) {
                self.shelf.put(file, status)?;
            }
        }
    }
}
