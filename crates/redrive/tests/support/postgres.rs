//! A database with what a test needs to get between two transactions: several stores, plain sessions that hold locks,
//! and a look at who waits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive::{
    Admission, Claim, ClaimId, Claimed, HolderId, Job, JobId, Json, Lease, NewJob, OnRetry, Outcome, Policy,
    PostgresStore, Queue, Result, Rng, Settled, Settlement, Store, Timestamp, Want, admit, millis, secs,
    settle,
};
use redrive_testbed::Database;
use redrive_testbed::tokio_postgres::Client;
use tokio::task::JoinHandle;

/// Longer than anything here takes on a busy machine.
const PATIENCE: std::time::Duration = secs(20);

pub(crate) struct Bench {
    pub(crate) database: Database,
    watcher: Client,
}

impl Bench {
    pub(crate) async fn new() -> Bench {
        let database = redrive_testbed::database().await;
        let watcher = redrive_testbed::connect(database.url()).await.unwrap();
        Bench { database, watcher }
    }

    /// One more process, as far as the database can tell.
    pub(crate) async fn store(&self) -> Arc<PostgresStore> {
        Arc::new(PostgresStore::connect(self.database.url()).await.unwrap())
    }

    /// A session that has nothing to do with the engine.
    pub(crate) async fn session(&self) -> Client {
        redrive_testbed::connect(self.database.url()).await.unwrap()
    }

    /// A session in whose open transaction this was done.
    pub(crate) async fn holding(&self, statement: &str) -> Client {
        let session = self.session().await;
        session.batch_execute(&format!("BEGIN; {statement}")).await.unwrap();
        session
    }

    /// Returns when so many sessions wait for locks of others.
    pub(crate) async fn until_waiting(&self, sessions: i64) {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let waits = async {
            while self.number(sql).await < sessions {
                tokio::time::sleep(millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waits).await.expect("nobody waits: there is nothing to wait for");
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.watcher.query_one(sql, &[]).await.unwrap().get(0)
    }
}

/// Begins something that is about to wait, and does not wait for it.
pub(crate) fn begin<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(work)
}

/// What was begun, when it is through.
pub(crate) async fn end<T>(begun: JoinHandle<T>) -> T {
    tokio::time::timeout(PATIENCE, begun).await.expect("it never ends").unwrap()
}

/// What must come without waiting for anybody.
pub(crate) async fn at_once<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it is stuck")
}

/// A job as an engine would make it, due at once if nothing else is said.
pub(crate) fn job(number: u16, queue: &str, now: Timestamp, new: impl Fn(NewJob) -> NewJob) -> Admission {
    job_as(|queue| queue, number, queue, now, new)
}

/// The same for a queue that is not like others.
pub(crate) fn job_as(
    is: impl Fn(Queue) -> Queue,
    number: u16,
    queue: &str,
    now: Timestamp,
    new: impl Fn(NewJob) -> NewJob,
) -> Admission {
    let mut rng = Rng::seeded(u64::from(number));
    let id = JobId::new(now, number, &mut rng);
    let job = NewJob::of_kind("mail", Json::of(&number).unwrap()).queue(queue);
    let queue = is(Queue::new(queue).policy(Policy::fixed(secs(10)).no_jitter()));
    admit(new(job), &queue, id, now, &mut rng).unwrap()
}

/// Puts jobs with these numbers into a queue; they are due at once.
pub(crate) async fn put(
    store: &PostgresStore,
    queue: &str,
    numbers: impl IntoIterator<Item = u16>,
) -> Vec<JobId> {
    let now = store.clock().now();
    let jobs = numbers.into_iter().map(|number| job(number, queue, now, |new| new)).collect();
    store.enqueue(jobs, now).await.unwrap().iter().map(|job| job.id).collect()
}

/// What a holder wants of these queues. A claim's number stands for its two ids.
pub(crate) fn wanted(holder: HolderId, number: u128, queues: &[&str], limit: usize) -> Claim {
    let want = |queue: &&str| Want { queue: (*queue).into(), limit, on_retry: OnRetry::Block };
    let ids = [ClaimId(number * 2), ClaimId(number * 2 + 1)];
    Claim {
        holder,
        ids,
        wants: queues.iter().map(want).collect(),
        suspect: true,
        kinds: None,
        ahead: Duration::ZERO,
    }
}

pub(crate) async fn claim(
    store: &PostgresStore,
    holder: HolderId,
    number: u128,
    queues: &[&str],
    limit: usize,
) -> Result<Claimed> {
    store.claim(wanted(holder, number, queues, limit), store.clock().now()).await
}

/// Makes a holder known whose lease lasts for the test.
pub(crate) async fn register(store: &PostgresStore, holder: HolderId) {
    store.register(holder, "test", store.clock().now() + secs(60)).await.unwrap();
}

pub(crate) fn ended((lease, job): &(Lease, Job), outcome: Outcome, now: Timestamp) -> Settlement {
    let transition = settle(job, outcome, now, &mut Rng::seeded(0));
    Settlement {
        lease: *lease,
        job: Arc::new(job.clone()),
        transition,
        started_at: now,
        ended_at: now,
        again: None,
    }
}

pub(crate) async fn finish(store: &PostgresStore, held: &(Lease, Job), outcome: Outcome) -> Settled {
    let settlement = ended(held, outcome, store.clock().now());
    store.settle(Arc::new(vec![settlement])).await.unwrap().remove(0)
}

/// The jobs of an answer.
pub(crate) fn ids(claimed: &Claimed) -> Vec<JobId> {
    claimed.jobs.iter().map(|(lease, _)| lease.job).collect()
}
