//! The process that is killed: an engine whose handler writes down, on a connection of its own, what it does.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use redrive::{Attempt, Engine, Happening, JobId, Payload, PostgresStore, Queue};
use redrive_testbed::tokio_postgres::Client;
use serde::{Deserialize, Serialize};

/// Which database; without it the child is none.
pub(crate) const URL: &str = "REDRIVE_FAULTS_URL";
/// What the ledger calls this process. A process id may come again.
pub(crate) const NAME: &str = "REDRIVE_FAULTS_NAME";
/// Short, so that much can be lost and found in little time.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// A job that takes a moment.
#[derive(Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) number: u64,
    pub(crate) millis: u64,
}

impl Payload for Work {
    const KIND: &'static str = "work";
}

pub(crate) fn queue() -> Queue {
    Queue::new("default").concurrency(32)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn main() {
    // The parent holds the other end: without it there is nothing left to do.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let url = std::env::var(URL).expect("the parent says where");
    let ledger = Ledger::open(&url).await;
    let notes = ledger.clone();
    let work = move |attempt: Attempt<Work>| {
        let notes = notes.clone();
        async move {
            notes.note("start", attempt.id, attempt.number).await;
            tokio::time::sleep(Duration::from_millis(attempt.payload.millis)).await;
            notes.note("end", attempt.id, attempt.number).await;
        }
    };
    let store = PostgresStore::connect(&url).await.unwrap();
    let engine = Engine::builder(store).queue(queue()).lease(LEASE).handle(work).build().unwrap();
    let mut events = engine.events();
    tokio::spawn(async move {
        while let Ok(event) = events.recv().await {
            match event.what {
                Happening::Succeeded { attempt, .. } => ledger.note("accepted", event.job, attempt).await,
                Happening::LeaseLost { attempt } => ledger.note("lost", event.job, attempt).await,
                _ => {}
            }
        }
    });
    std::io::stdout().write_all(b"working\n").unwrap();
    engine.run(std::future::pending()).await.unwrap();
}

/// The ledger beside the engine's tables: each line is committed by itself.
#[derive(Clone)]
struct Ledger(Arc<Client>, Arc<str>);

impl Ledger {
    async fn open(url: &str) -> Ledger {
        let client = redrive_testbed::connect(url).await.unwrap();
        // The server is not killed here, so nothing is lost by not waiting for its disk.
        client.batch_execute("SET synchronous_commit = off").await.unwrap();
        Ledger(Arc::new(client), std::env::var(NAME).expect("the parent says who").into())
    }

    async fn note(&self, what: &str, job: JobId, attempt: u32) {
        let (job, attempt) = (job.to_string(), i32::try_from(attempt).unwrap());
        let line = "INSERT INTO ledger (what, job, attempt, who) VALUES ($1, $2, $3, $4)";
        self.0.execute(line, &[&what, &job, &attempt, &&*self.1]).await.unwrap();
    }
}
