//! Measures apalis-postgres; see ../../../README.md.
//!
//! Tried on two cores that others used too (compare within a line only; the
//! best is the default here):
//!   drain_1, 30,000 jobs, batches of 100, 500, 2,000: 1 worker 1,700, 4,500,
//!            9,700; 2 workers 4,300, 8,800, 13,100; 4 workers 5,000, 10,800,
//!            11,000. Again: 2 workers of 5,000 12,700; 8 of 1,000 12,400
//!   retry_path  2 workers of 2,000 9,500; of 5,000 22,900; 4 of 1,000 8,900
//!   latency  notified 9.0 ms; polling every 5 ms 9.7, every 1 ms 4.5
//!   persist_results(false) leaves no trace of a finished job: not used

use std::task::{Context, Poll};
use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use peers_postgres::{Call, Payload, Peer, Tally};
use sqlx::postgres::PgPoolOptions;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    peers_postgres::main::<Apalis>();
}

const QUEUE: &str = "bench";

async fn noop(payload: Payload, attempt: Attempt, tally: Data<Tally>) -> Result<(), BoxDynError> {
    tally.run(&payload, attempt.current() as i64).map_err(BoxDynError::from)
}

#[derive(Clone)]
struct Apalis {
    pool: PgPool,
    storage: PostgresStorage<Payload>,
}

/// apalis' own interval, armed again at once when it has fired. apalis leaves
/// that to the next poll, which nothing may cause: a fetch that took longer
/// than the interval and found nothing is followed by none until the
/// heartbeat, 30 seconds later.
#[derive(Clone)]
struct Rearmed(IntervalStrategy);

impl PollStrategy for Rearmed {
    fn poll_drive(&mut self, context: &mut Context<'_>, seen: &PollSnapshot) -> Poll<Option<()>> {
        let fired = self.0.poll_drive(context, seen);
        if fired.is_ready() {
            let _armed = self.0.poll_drive(context, seen);
        }
        fired
    }
}

struct Workers {
    storage: PostgresStorage<Payload>,
    tally: Tally,
    count: usize,
    interval: Duration,
    notified: bool,
}

impl Peer for Apalis {
    const NAME: &'static str = "apalis-postgres";
    const UNFINISHED: &'static str = "apalis.jobs WHERE status <> 'Done'";
    const ATTEMPTS: Option<&'static str> = Some("SELECT sum(attempts) FROM apalis.jobs");
    // A job's `run_at` is in whole seconds.
    const DUE_STEP_US: i64 = 1_000_000;
    const CALLERS: usize = 64;
    type Worker = Workers;

    async fn connect(call: &Call) -> Self {
        let connections = call.setting("pool", if call.measure == "enqueue_64" { 64 } else { 20 });
        let pool = PgPoolOptions::new()
            .min_connections(connections)
            .max_connections(connections)
            .connect(&call.store)
            .await
            .expect("connect");
        let batch = call.setting("batch", if call.throughput() { 5_000 } else { 20 });
        let config = Config::default().queue(QUEUE).batch_size(batch).lock_tasks(call.setting("lock", false));
        Self { storage: PostgresStorage::new(&pool).with_config(config), pool }
    }

    async fn set_up(&self) {
        PostgresStorage::setup(&self.pool).await.expect("make the tables");
    }

    async fn add(&self, payload: Payload) {
        self.storage.clone().push(payload).await.expect("push a job");
    }

    async fn add_all(&self, payloads: Vec<Payload>) {
        self.storage.clone().push_bulk(payloads).await.expect("push jobs");
    }

    async fn add_due(&self, payloads: Vec<Payload>) {
        let tasks = payloads.into_iter().map(|payload| {
            let at = payload.at / Self::DUE_STEP_US;
            TaskBuilder::new(payload).run_at_timestamp(at as u64).build()
        });
        let mut tasks = futures::stream::iter(tasks.collect::<Vec<_>>());
        self.storage.clone().push_all(&mut tasks).await.expect("push jobs");
    }

    async fn prepare(&self, call: &Call, tally: Tally) -> Workers {
        Workers {
            storage: self.storage.clone(),
            tally,
            count: call.setting("workers", if call.throughput() { 2 } else { 1 }),
            interval: Duration::from_millis(call.setting("poll", if call.throughput() { 5 } else { 1 })),
            notified: call.setting("notified", false),
        }
    }

    async fn work(workers: Workers) {
        let mut running = tokio::task::JoinSet::new();
        for n in 0..workers.count {
            let builder = WorkerBuilder::new(format!("worker-{}-{n}", std::process::id()));
            let (storage, tally) = (workers.storage.clone(), workers.tally.clone());
            if workers.notified {
                let worker = builder.backend(storage.with_pubsub()).data(tally).build(noop);
                running.spawn(async move { worker.run().await });
            } else {
                let backend = storage.poll_with_strategy(Rearmed(IntervalStrategy::new(workers.interval)));
                let worker = builder.backend(backend).data(tally).build(noop);
                running.spawn(async move { worker.run().await });
            }
        }
        while let Some(ended) = running.join_next().await {
            eprintln!("apalis worker stopped: {ended:?}");
        }
    }
}
