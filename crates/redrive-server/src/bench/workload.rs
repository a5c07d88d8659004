//! What the jobs of the benchmark are, and the engine that runs them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use redrive::{
    Attempt, Engine, Failure, Handler, Payload, Policy, PostgresStore, Queue, SqliteStore, Store, Workflow,
};
use serde::{Deserialize, Serialize};

use crate::cli::StoreUrl;

/// Jobs of one call in bulk.
pub(crate) const BULK: u64 = 1_000;
/// How long what still runs may take at the end.
const GRACE: Duration = Duration::from_secs(30);
/// What an attempt that fails says.
pub(crate) const FAILURE: &str = "nobody answers";

/// About a hundred bytes of JSON, with strings to decode.
#[derive(Serialize, Deserialize)]
pub(crate) struct Parcel {
    pub(crate) number: u64,
    pub(crate) to: String,
    pub(crate) subject: String,
}

impl Parcel {
    pub(crate) fn new(number: u64) -> Parcel {
        Parcel {
            number,
            to: "someone@example.com".into(),
            subject: "Your parcel is on its way and will arrive tomorrow".into(),
        }
    }
}

impl Payload for Parcel {
    const KIND: &'static str = "parcel";
}

/// Fails so many times, then succeeds; does nothing else.
pub(crate) fn fails(times: u32) -> impl Handler<Parcel> {
    move |attempt: Attempt<Parcel>| async move {
        if attempt.number <= times { Err(Failure::retry(FAILURE)) } else { Ok(()) }
    }
}

/// When each job comes back, in the engine and in the hand-written loop.
pub(crate) fn policy() -> Policy {
    Policy::immediate().attempts(5)
}

/// Opens a store, which is made if it is not there.
pub(crate) async fn open(store: &StoreUrl) -> Result<Arc<dyn Store>> {
    Ok(match store {
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(path).await?),
        StoreUrl::Postgres(url) => Arc::new(PostgresStore::connect(url).await?),
    })
}

/// An engine on a store.
pub(crate) async fn engine(store: &StoreUrl, places: usize, handler: impl Handler<Parcel>) -> Result<Engine> {
    engine_with_grace(store, places, handler, GRACE).await
}

/// An engine on a store that gives what still runs at its end so much time.
pub(crate) async fn engine_with_grace(
    store: &StoreUrl,
    places: usize,
    handler: impl Handler<Parcel>,
    grace: Duration,
) -> Result<Engine> {
    let queue = Queue::new(redrive::DEFAULT_QUEUE).concurrency(places).policy(policy());
    Ok(Engine::on(open(store).await?).queue(queue).grace(grace).handle(handler).build()?)
}

/// Enqueues in bulk.
pub(crate) async fn enqueue_bulk(engine: &Engine, jobs: u64) -> Result<()> {
    let mut next = 0;
    while next < jobs {
        let end = (next + BULK).min(jobs);
        engine.enqueue_all((next..end).map(Parcel::new)).await?;
        next = end;
    }
    Ok(())
}

/// Nodes of an execution.
pub(crate) const NODES: u64 = 5;
/// Executions that are started at once.
const STARTS: usize = 64;
/// How often somebody looks whether nothing is left.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts executions: three nodes come after the first, and the last after these.
pub(crate) async fn start_executions(engine: &Engine, executions: u64) -> Result<()> {
    let next = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let start = || {
        let (engine, next) = (engine.clone(), next.clone());
        async move {
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number >= executions {
                    return anyhow::Ok(());
                }
                let parcel = |n: u64| Parcel::new(number * NODES + n);
                let mut workflow = Workflow::new().node("a", parcel(0));
                for (n, name) in ["b", "c", "d"].into_iter().enumerate() {
                    workflow = workflow.node(name, parcel(n as u64 + 1)).after(["a"]);
                }
                engine.start(workflow.node("e", parcel(4)).after(["b", "c", "d"])).await?;
            }
        }
    };
    futures_util::future::try_join_all((0..STARTS).map(|_| start())).await?;
    Ok(())
}

/// Resolves when nothing waits and nothing runs. How many there are is not asked: to count them costs what is measured.
pub(crate) async fn until_empty(engine: Engine, store: StoreUrl) -> Result<()> {
    let StoreUrl::Postgres(url) = store else {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let counts = engine.counts().await?;
            if counts.iter().all(|queue| queue.waiting + queue.running == 0) {
                return Ok(());
            }
        }
    };
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let left = client.query_one("SELECT EXISTS (SELECT 1 FROM redrive.live)", &[]).await?;
        if !left.get::<_, bool>(0) {
            return Ok(());
        }
    }
}

/// What has happened to jobs in this file, ever.
pub(crate) async fn totals(engine: &Engine) -> Result<redrive::Tally> {
    let counts = engine.counts().await?;
    // A queue is known to its file from its first job on.
    Ok(counts.first().map(|queue| queue.totals).unwrap_or_default())
}

/// Lets an engine go and waits until its file is closed: copying the log into it must not disturb what is measured
/// next.
pub(crate) async fn close(engine: Engine, store: &StoreUrl) -> Result<()> {
    const LOOKS_MAX: usize = 10_000;
    drop(engine);
    let StoreUrl::Sqlite(path) = store else { return Ok(()) };
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = PathBuf::from(log);
    for _ in 0..LOOKS_MAX {
        if !log.exists() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bail!("{} is still open after its engine was let go", path.display())
}
