//! What these tests share: an engine on a database of its own, a payload, and waiting for what happens.

use std::time::Duration;

use redrive::{Attempt, Engine, Event, Happening, JobId, Payload, PostgresStore, Queue, Result, secs};
use redrive_testbed::tokio_postgres::Client;
use redrive_testbed::{Database, connect};
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

/// Far more than anything here takes; whoever waits longer waits for something that does not come.
pub(super) const PATIENCE: Duration = secs(20);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Confirm {
    pub(super) order: i64,
}

impl Payload for Confirm {
    const KIND: &'static str = "confirm";
}

/// A database with a table of the user's, and an engine that knows [`Confirm`].
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) database: Database,
}

impl World {
    pub(super) async fn new() -> World {
        let database = redrive_testbed::database().await;
        let engine = engine_on(database.url()).await;
        let client = connect(database.url()).await.unwrap();
        client.batch_execute("CREATE TABLE orders (id bigint PRIMARY KEY)").await.unwrap();
        World { engine, database }
    }

    /// A connection of the user's.
    pub(super) async fn client(&self) -> Client {
        connect(self.database.url()).await.unwrap()
    }

    /// How many orders and how many jobs there are.
    pub(super) async fn traces(&self) -> (i64, i64) {
        let count = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM redrive.jobs)";
        let row = self.client().await.query_one(count, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

pub(super) async fn engine_on(url: &str) -> Engine {
    let store = PostgresStore::connect(url).await.unwrap();
    let confirm = |_: Attempt<Confirm>| async {};
    let small = Queue::new("small").capacity(1);
    Engine::builder(store).queue(Queue::new("default")).queue(small).handle(confirm).build().unwrap()
}

/// An engine that runs beside the test until it is stopped.
pub(super) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

pub(super) fn start(engine: &Engine) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let engine = engine.clone();
    let task = tokio::spawn(async move { engine.run(async { drop(stopped.await) }).await });
    Running { stop, task }
}

impl Running {
    pub(super) async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap().unwrap();
    }
}

/// Waits until this job has succeeded; any other that does so before is a mistake.
pub(super) async fn succeeds(events: &mut broadcast::Receiver<Event>, job: JobId) {
    let wait = async {
        loop {
            let event = events.recv().await.unwrap();
            if let Happening::Succeeded { .. } = event.what {
                assert_eq!(event.job, job, "another job ran first");
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the job runs");
}
