//! Measures graphile_worker, the crate; see ../../../README.md.
//!
//! Tried on two cores that others used too (the best is the default here):
//!   drain_1, 100,000 jobs  local queue of 2,000 25,700; 5,000 24,900 and
//!            35,800; 10,000 23,200; two of 2,500 24,200; 100 jobs at once
//!            instead of 500 24,100; completions after 1 ms instead of 5 14,400
//!   enqueue_64  64 callers, 64 connections 1,170; 20 connections 1,040
//!   latency  8 jobs at once 4.1 ms; 1 3.1 ms

use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, JobSpecBuilder, LocalQueueConfig, RawJobSpec, TaskHandler, Worker,
    WorkerContext, WorkerOptions, WorkerUtils,
};
use peers_postgres::{Call, Payload, Peer, Tally};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    peers_postgres::main::<Graphile>();
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Noop(Payload);

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let tally = context.get_ext::<Tally>().expect("the worker was given the tally");
        tally.run(&self.0, i64::from(*context.job().attempts()))
    }
}

#[derive(Clone)]
struct Graphile {
    pool: PgPool,
    utils: WorkerUtils,
}

impl Peer for Graphile {
    const NAME: &'static str = "graphile_worker";
    const UNFINISHED: &'static str = "graphile_worker._private_jobs WHERE true";
    // A finished job is deleted, and its attempts with it.
    const ATTEMPTS: Option<&'static str> = None;
    const DUE_STEP_US: i64 = 1;
    const CALLERS: usize = 64;
    type Worker = Worker;

    async fn connect(call: &Call) -> Self {
        let connections = call.setting("pool", if call.measure == "enqueue_64" { 64 } else { 20 });
        let pool = PgPoolOptions::new()
            .min_connections(connections)
            .max_connections(connections)
            .connect(&call.store)
            .await
            .expect("connect");
        Self { utils: WorkerUtils::new(pool.clone(), "graphile_worker"), pool }
    }

    async fn set_up(&self) {
        self.utils.migrate().await.expect("make the tables");
    }

    async fn add(&self, payload: Payload) {
        self.utils.add_job(Noop(payload), JobSpec::default()).await.expect("add a job");
    }

    async fn add_all(&self, payloads: Vec<Payload>) {
        let spec = JobSpec::default();
        let jobs: Vec<(Noop, &JobSpec)> = payloads.into_iter().map(|p| (Noop(p), &spec)).collect();
        self.utils.add_jobs(&jobs).await.expect("add jobs");
    }

    async fn add_due(&self, payloads: Vec<Payload>) {
        let jobs: Vec<RawJobSpec> = payloads
            .into_iter()
            .map(|payload| RawJobSpec {
                identifier: Noop::IDENTIFIER.into(),
                spec: JobSpecBuilder::new()
                    .run_at(chrono::DateTime::from_timestamp_micros(payload.at).expect("a date"))
                    .build(),
                payload: serde_json::to_value(payload).expect("a payload is JSON"),
            })
            .collect();
        self.utils.add_raw_jobs(&jobs).await.expect("add jobs");
    }

    /// Its own benchmark's settings (`benches/perf_test.rs`) where throughput
    /// counts. Where latency does, no local queue, which trades it away.
    async fn prepare(&self, call: &Call, tally: Tally) -> Worker {
        let mut options = WorkerOptions::default()
            .pg_pool(self.pool.clone())
            .schema("graphile_worker")
            .poll_interval(Duration::from_millis(call.setting("poll", 5)))
            .add_extension(tally)
            .define_job::<Noop>();
        if call.throughput() {
            options = options
                .concurrency(call.setting("concurrency", 500))
                .complete_job_batch_delay(Duration::from_millis(call.setting("delay", 5)))
                .fail_job_batch_delay(Duration::from_millis(call.setting("delay", 5)))
                .local_queue(
                    LocalQueueConfig::default()
                        .with_size(call.setting("local", 5_000))
                        .with_queue_count(call.setting("queues", 1)),
                );
        } else {
            let jobs = if call.measure == "latency" { 1 } else { 8 };
            options = options.concurrency(call.setting("concurrency", jobs));
        }
        options.init().await.expect("make the worker")
    }

    async fn work(worker: Worker) {
        worker.run().await.expect("work");
    }
}
