//! Measures underway; see ../../../README.md.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::{Span, ToSpan};
use peers_postgres::{Call, Payload, Peer, Tally, now_us};
use sqlx_08::postgres::PgPoolOptions;
use sqlx_08::{PgPool, Postgres, Transaction};
use underway::task::{Error, RetryPolicy};
use underway::{Queue, Task, Worker};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    peers_postgres::main::<Underway>();
}

/// A handler is not told which attempt it is, so the process counts them; the
/// runner compares that with the attempts on record.
#[derive(Clone, Default)]
struct Noop {
    tally: Option<Tally>,
    attempts: Arc<Mutex<HashMap<usize, i64>>>,
}

impl Task for Noop {
    type Input = Payload;
    type Output = ();

    async fn execute(&self, _: Transaction<'_, Postgres>, payload: Payload) -> Result<(), Error> {
        let attempt = {
            let mut attempts = self.attempts.lock().expect("no handler panics");
            let attempt = attempts.entry(payload.n).or_insert(0);
            *attempt += 1;
            *attempt
        };
        let tally = self.tally.as_ref().expect("the worker was given the tally");
        tally.run(&payload, attempt).map_err(Error::Retryable)
    }

    fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy::builder().max_attempts(5).initial_interval_ms(0).build()
    }
}

#[derive(Clone)]
struct Underway {
    pool: PgPool,
    queue: Arc<Queue<Noop>>,
    task: Noop,
}

impl Peer for Underway {
    const NAME: &'static str = "underway";
    const UNFINISHED: &'static str = "underway.task WHERE state <> 'succeeded'";
    const ATTEMPTS: Option<&'static str> = Some("SELECT count(*) FROM underway.task_attempt");
    const DUE_STEP_US: i64 = 1;
    const CALLERS: usize = 64;
    type Worker = (Worker<Noop>, Span);

    async fn connect(call: &Call) -> Self {
        let connections = call.setting("pool", if call.measure == "enqueue_64" { 64 } else { 40 });
        let pool = PgPoolOptions::new()
            .min_connections(connections)
            .max_connections(connections)
            .connect(&call.store)
            .await
            .expect("connect");
        // The queue is a row, which needs the tables.
        if call.measure == "setup" {
            underway::run_migrations(&pool).await.expect("make the tables");
        }
        let queue = Queue::builder().name("bench").pool(pool.clone()).build().await;
        Self { pool, queue: Arc::new(queue.expect("make the queue")), task: Noop::default() }
    }

    async fn set_up(&self) {}

    async fn add(&self, payload: Payload) {
        self.queue.enqueue(&self.pool, &self.task, &payload).await.expect("enqueue a job");
    }

    async fn add_all(&self, payloads: Vec<Payload>) {
        self.queue.enqueue_multi(&self.pool, &self.task, &payloads).await.expect("enqueue jobs");
    }

    async fn add_due(&self, payloads: Vec<Payload>) {
        for payload in payloads {
            let delay = (payload.at - now_us()).microseconds();
            self.queue.enqueue_after(&self.pool, &self.task, &payload, delay).await.expect("enqueue a job");
        }
    }

    async fn prepare(&self, call: &Call, tally: Tally) -> Self::Worker {
        let task = Noop { tally: Some(tally), ..Noop::default() };
        let mut worker = Worker::new(self.queue.clone(), task);
        worker.set_concurrency_limit(call.setting("concurrency", 16));
        (worker, call.setting("poll", 5i64).milliseconds())
    }

    async fn work((worker, period): Self::Worker) {
        worker.run_every(period).await.expect("work");
    }
}
