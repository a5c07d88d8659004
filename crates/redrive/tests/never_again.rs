//! What sank others, each as a test: transactions that were not joined, completions that came too late, locks that
//! reached callers, retries that nobody fired.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::testing::{CrashPlan, CrashPoint};
use redrive::{
    Attempt, Claim, ClaimId, Engine, ErrorKind, Failure, Happening, HolderId, Job, JobId, Json, Lease,
    MemoryStore, NewJob, OnRetry, Outcome, Payload, Policy, Queue, Renewal, Rng, Settled, Settlement,
    SqliteStore, State, StateName, Store, Timestamp, Want, millis, secs,
};
use rusqlite::{Connection, TransactionBehavior};
use serde::{Deserialize, Serialize};

#[path = "support/gate.rs"]
mod gate;

use gate::Gate;

#[derive(Serialize, Deserialize)]
struct Task {
    n: u32,
}

impl Payload for Task {
    const KIND: &'static str = "task";
}

const BEGINNING: Timestamp = Timestamp::from_millis(1_767_225_600_000);

struct File {
    store: Arc<SqliteStore>,
    folder: tempfile::TempDir,
}

impl File {
    async fn new() -> File {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(folder.path().join("jobs.db")).await.unwrap());
        File { store, folder }
    }

    /// A connection of the user's own.
    fn outside(&self) -> Connection {
        let connection = Connection::open(self.folder.path().join("jobs.db")).unwrap();
        connection.busy_timeout(secs(10)).unwrap();
        connection
    }
}

// Enqueueing in the caller's transaction.

#[tokio::test]
async fn a_job_in_the_callers_transaction_is_there_if_and_only_if_that_commits() {
    let file = File::new().await;
    let engine = Engine::on(file.store.clone()).produce::<Task>().build().unwrap();
    let mut connection = file.outside();
    connection.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)").unwrap();

    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    tx.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    let kept = redrive::tx::rusqlite::enqueue(&tx, &engine.admit(Task { n: 1 }).unwrap()).unwrap().id;
    assert!(engine.get(kept).await.unwrap().is_none(), "invisible before the commit");
    tx.commit().unwrap();
    assert!(engine.get(kept).await.unwrap().is_some());

    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    tx.execute("INSERT INTO orders VALUES (2)", []).unwrap();
    let gone = redrive::tx::rusqlite::enqueue(&tx, &engine.admit(Task { n: 2 }).unwrap()).unwrap().id;
    tx.rollback().unwrap();
    assert!(engine.get(gone).await.unwrap().is_none(), "gone with the rollback");

    let orders: i64 = connection.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(orders, 1);
    assert_eq!(engine.counts().await.unwrap()[0].waiting, 1);
}

#[tokio::test]
async fn a_running_engine_picks_up_a_job_of_the_callers_transaction_within_two_seconds() {
    let file = File::new().await;
    let engine = Engine::on(file.store.clone()).handle(|_: Attempt<Task>| async {}).build().unwrap();
    let mut events = engine.events();
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(std::future::pending()).await }
    });
    // It is up, and idle, when the job comes from outside.
    engine.enqueue(Task { n: 0 }).await.unwrap();
    while !matches!(events.recv().await.unwrap().what, Happening::Succeeded { .. }) {}

    let mut connection = file.outside();
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let job = redrive::tx::rusqlite::enqueue(&tx, &engine.admit(Task { n: 1 }).unwrap()).unwrap().id;
    tx.commit().unwrap();
    let picked_up = async {
        loop {
            let event = events.recv().await.unwrap();
            if event.job == job && matches!(event.what, Happening::Succeeded { .. }) {
                return;
            }
        }
    };
    tokio::time::timeout(secs(2), picked_up).await.expect("within two seconds");
    running.abort();
}

// Late reports. Each on both stores, by the store's own methods, at times of our choosing.

/// Two jobs of which a holder has claimed the first.
struct Claimed<S> {
    store: Arc<S>,
    rng: Rng,
    holder: HolderId,
    lease: Lease,
    job: Job,
    other: JobId,
}

const LEASE: Duration = secs(30);

impl<S: Store> Claimed<S> {
    async fn on(store: Arc<S>) -> Claimed<S> {
        let mut rng = Rng::seeded(1);
        let holder = HolderId(rng.next_u128());
        let ids = [new_job(&*store, &mut rng, BEGINNING).await, new_job(&*store, &mut rng, BEGINNING).await];
        store.register(holder, "first", BEGINNING + LEASE).await.unwrap();
        let mut claimed = store.claim(claim(holder, 1, &mut rng), BEGINNING).await.unwrap().jobs;
        let (lease, job) = claimed.remove(0);
        assert_eq!(job.id, ids[0]);
        Claimed { store, rng, holder, lease, job, other: ids[1] }
    }

    fn report(&mut self, outcome: Outcome, at: Timestamp) -> Settlement {
        settlement(self.lease, self.job.clone(), outcome, at, &mut self.rng)
    }

    /// Its lease is over and somebody writes that down.
    async fn expire(&mut self) -> Timestamp {
        let now = BEGINNING + LEASE;
        let crash = self.report(Outcome::Lost, now);
        let answer = self.store.expire(self.holder, vec![crash], now).await.unwrap();
        assert_eq!(answer, [Settled::Applied]);
        now
    }

    /// The late report of the first holder.
    async fn report_late(&mut self, now: Timestamp) -> Settled {
        let done = self.report(Outcome::Done(None), now);
        self.store.settle(Arc::new(vec![done])).await.unwrap().remove(0)
    }

    async fn job_now(&self) -> Job {
        self.store.get(self.job.id).await.unwrap().unwrap().job
    }
}

async fn new_job(store: &dyn Store, rng: &mut Rng, due_at: Timestamp) -> JobId {
    let new = NewJob::of_kind("task", Json::parse(r#"{"n":1}"#).unwrap()).run_at(due_at);
    let queue = Queue::new("default").policy(Policy::fixed(secs(1)).no_jitter());
    let id = JobId::new(BEGINNING, 0, rng);
    let admission = redrive::admit(new, &queue, id, BEGINNING, rng).unwrap();
    store.enqueue(vec![admission], BEGINNING).await.unwrap()[0].id
}

fn claim(holder: HolderId, limit: usize, rng: &mut Rng) -> Claim {
    let wants = vec![Want { queue: "default".into(), limit, on_retry: OnRetry::Block }];
    Claim {
        holder,
        ids: [ClaimId(rng.next_u128()), ClaimId(rng.next_u128())],
        wants,
        suspect: true,
        kinds: None,
        ahead: Duration::ZERO,
    }
}

fn settlement(lease: Lease, job: Job, outcome: Outcome, at: Timestamp, rng: &mut Rng) -> Settlement {
    let transition = redrive::settle(&job, outcome, at, rng);
    Settlement { lease, job: Arc::new(job), transition, started_at: at, ended_at: at, again: None }
}

async fn a_stale_completion_is_refused<S: Store>(store: Arc<S>) {
    let mut first = Claimed::on(store.clone()).await;
    let now = first.expire().await;
    let waits = first.job_now().await;
    assert_eq!(first.report_late(now).await, Settled::Refused, "while it waits for its next run");
    assert_eq!(first.job_now().await, waits, "nothing changed");

    let later = now + secs(60);
    let second = HolderId(first.rng.next_u128());
    store.register(second, "second", later + LEASE).await.unwrap();
    let claimed = store.claim(claim(second, 2, &mut first.rng), later).await.unwrap().jobs;
    let (lease, job) = claimed.into_iter().find(|(_, job)| job.id == first.job.id).unwrap();
    assert_eq!(first.report_late(later).await, Settled::Refused, "while another runs it");
    assert_eq!(first.job_now().await.state.name(), StateName::Running);

    let failed = Outcome::Failed(Failure::permanent("no"));
    let end = settlement(lease, job, failed, later, &mut first.rng);
    assert_eq!(store.settle(Arc::new(vec![end])).await.unwrap(), [Settled::Applied]);
    assert_eq!(first.report_late(later).await, Settled::Refused, "when it is final");
    assert_eq!(first.job_now().await.state.name(), StateName::Dead);
}

#[tokio::test]
async fn a_stale_completion_is_refused_and_changes_nothing() {
    a_stale_completion_is_refused(Arc::new(MemoryStore::new())).await;
    a_stale_completion_is_refused(File::new().await.store).await;
}

async fn once_an_expiry_is_recorded<S: Store>(store: Arc<S>) {
    let mut first = Claimed::on(store.clone()).await;
    let now = first.expire().await;
    assert_eq!(store.renew(first.holder, now + LEASE).await.unwrap(), Renewal::Gone);
    assert_eq!(first.report_late(now).await, Settled::Refused);
    let error = store.claim(claim(first.holder, 1, &mut first.rng), now).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    let other = store.get(first.other).await.unwrap().unwrap().job;
    assert_eq!(
        (other.state.name(), other.ledger.crashes),
        (StateName::Waiting, 0),
        "its neighbour is untouched"
    );
    let job = first.job_now().await;
    assert_eq!((job.state.name(), job.ledger.crashes), (StateName::Waiting, 1));
}

#[tokio::test]
async fn there_is_no_completion_and_no_renewal_once_an_expiry_is_recorded() {
    once_an_expiry_is_recorded(Arc::new(MemoryStore::new())).await;
    once_an_expiry_is_recorded(File::new().await.store).await;
}

async fn before_an_expiry_is_recorded<S: Store>(store: Arc<S>) {
    let mut first = Claimed::on(store.clone()).await;
    let late = BEGINNING + LEASE + LEASE;
    assert_eq!(first.report_late(late).await, Settled::Applied, "what finished still counts");
    let nothing = store.expire(first.holder, vec![first.report(Outcome::Lost, late)], late).await.unwrap();
    assert_eq!(nothing, [Settled::Refused], "and no crash is counted for it");
    assert_eq!(first.job_now().await.state.name(), StateName::Succeeded);
}

#[tokio::test]
async fn a_completion_before_the_expiry_is_recorded_counts_however_late() {
    before_an_expiry_is_recorded(Arc::new(MemoryStore::new())).await;
    before_an_expiry_is_recorded(File::new().await.store).await;
}

#[tokio::test]
async fn an_expired_holder_registers_once_and_under_a_new_id() {
    let store = Arc::new(MemoryStore::new());
    let gate = Gate::before(store.clone());
    let started = Arc::new(tokio::sync::Notify::new());
    let starts = started.clone();
    let hang = move |_: Attempt<Task>| {
        let starts = starts.clone();
        async move {
            starts.notify_one();
            std::future::pending::<()>().await;
        }
    };
    let engine = Engine::on(gate.clone()).lease(secs(1)).handle(hang).build().unwrap();
    let mut events = engine.events();
    engine.enqueue(Task { n: 1 }).await.unwrap();
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(std::future::pending()).await }
    });
    started.notified().await;
    gate.shut();
    // Somebody records, a year later by its clock, that the lease is over.
    let expired = {
        let far = Timestamp::MAX;
        let over = store.expired(far).await.unwrap().over.remove(0);
        let lost = over.jobs.into_iter().map(|(lease, job)| {
            let transition = redrive::settle(&job, Outcome::Lost, job.created_at, &mut Rng::seeded(1));
            let (started_at, ended_at) = (job.created_at, job.created_at);
            Settlement { lease, job: Arc::new(job), transition, started_at, ended_at, again: None }
        });
        let answers = store.expire(over.holder, lost.collect(), far).await.unwrap();
        assert_eq!(answers, [Settled::Applied]);
        over.holder
    };
    gate.open();
    while !matches!(events.recv().await.unwrap().what, Happening::LeaseLost { .. }) {}
    let holders = gate.holders.lock().unwrap().clone();
    assert_eq!(holders[0], expired);
    assert_eq!(holders.len(), 2, "once: {holders:?}");
    assert_ne!(holders[1], expired);
    running.abort();
}

// Locks.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_busy_database_reaches_callers_while_an_outside_connection_holds_write_transactions() {
    let file = File::new().await;
    let engine = Engine::on(file.store.clone()).produce::<Task>().build().unwrap();
    let outside = file.outside();
    outside.execute_batch("CREATE TABLE mine (n INTEGER)").unwrap();
    let holding = tokio::task::spawn_blocking(move || {
        for n in 0..20 {
            outside.execute_batch("BEGIN IMMEDIATE").unwrap();
            outside.execute("INSERT INTO mine VALUES (?1)", [n]).unwrap();
            hold(Duration::from_millis(50));
            outside.execute_batch("COMMIT").unwrap();
            // A gap that a waiting writer can find.
            hold(Duration::from_millis(5));
        }
    });
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..64 {
        let engine = engine.clone();
        callers.spawn(async move {
            for _ in 0..5 {
                engine.enqueue(Task { n }).await.unwrap();
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    holding.await.unwrap();
    assert_eq!(engine.counts().await.unwrap()[0].waiting, 64 * 5);
}

#[expect(clippy::disallowed_methods, reason = "holding a lock for a time is what is tested")]
fn hold(time: Duration) {
    std::thread::sleep(time);
}

// Retries.

#[tokio::test]
async fn a_retry_fires_after_its_engine_was_killed_between_settling_and_the_next_claim() {
    let file = File::new().await;
    let queue = Queue::new("default").policy(Policy::fixed(millis(20)).no_jitter());
    let fails_once = |attempt: Attempt<Task>| async move {
        if attempt.number == 1 { Err(Failure::retry("not yet")) } else { Ok(()) }
    };
    let killed = Engine::on(file.store.clone())
        .queue(queue.clone())
        .handle(fails_once)
        .crash(CrashPlan::at(CrashPoint::AfterSettle, 1))
        .build()
        .unwrap();
    let job = killed.enqueue(Task { n: 1 }).await.unwrap().id;
    killed.run(std::future::pending()).await.expect_err("it is made to die");
    let waiting = killed.get(job).await.unwrap().unwrap().job;
    assert!(matches!(waiting.state, State::Waiting { .. }) && waiting.ledger.failures == 1, "{waiting:?}");
    drop(killed);
    Arc::into_inner(file.store).expect("nobody else has it").close().await.unwrap();

    let store = SqliteStore::open(file.folder.path().join("jobs.db")).await.unwrap();
    let restarted = Engine::builder(store).queue(queue).handle(fails_once).build().unwrap();
    restarted.drain().await.unwrap();
    let detail = restarted.get(job).await.unwrap().unwrap();
    assert_eq!(detail.job.state.name(), StateName::Succeeded);
    assert_eq!((detail.job.ledger.attempt, detail.job.ledger.crashes), (2, 0));
}

#[tokio::test]
async fn a_retry_is_not_lost_when_its_wake_up_is() {
    let file = File::new().await;
    let gate = Gate::silent(file.store.clone());
    let queue = Queue::new("default").policy(Policy::fixed(millis(20)).no_jitter());
    let fails_twice = |attempt: Attempt<Task>| async move {
        if attempt.number < 3 { Err(Failure::retry("not yet")) } else { Ok(()) }
    };
    let engine = Engine::on(gate).queue(queue).handle(fails_twice).build().unwrap();
    let mut events = engine.events();
    engine.enqueue(Task { n: 1 }).await.unwrap();
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(std::future::pending()).await }
    });
    let finished =
        async { while !matches!(events.recv().await.unwrap().what, Happening::Succeeded { .. }) {} };
    tokio::time::timeout(secs(5), finished).await.expect("the loop knows its next due time by itself");
    running.abort();
}

async fn a_retry_keeps_its_place<S: Store>(store: Arc<S>) {
    let mut rng = Rng::seeded(1);
    let first = new_job(&*store, &mut rng, BEGINNING).await;
    let holder = HolderId(rng.next_u128());
    store.register(holder, "only", BEGINNING + LEASE).await.unwrap();
    let (lease, job) = store.claim(claim(holder, 1, &mut rng), BEGINNING).await.unwrap().jobs.remove(0);
    // Due in a second, before one that came earlier than its failure and one that came after it.
    let between = new_job(&*store, &mut rng, BEGINNING + millis(500)).await;
    let failed = Outcome::Failed(Failure::retry("not yet"));
    let end = settlement(lease, job, failed, BEGINNING, &mut rng);
    store.settle(Arc::new(vec![end])).await.unwrap();
    let newer = new_job(&*store, &mut rng, BEGINNING + millis(1_500)).await;

    let mut order = Vec::new();
    for _ in 0..3 {
        let now = BEGINNING + secs(2);
        order.extend(
            store.claim(claim(holder, 1, &mut rng), now).await.unwrap().jobs.iter().map(|(_, job)| job.id),
        );
    }
    assert_eq!(order, [between, first, newer], "by due time, and a retry is no newcomer");
}

#[tokio::test]
async fn a_retry_does_not_go_behind_newer_jobs_that_are_due_later() {
    a_retry_keeps_its_place(Arc::new(MemoryStore::new())).await;
    a_retry_keeps_its_place(File::new().await.store).await;
}

#[tokio::test]
async fn a_retried_job_runs_before_what_was_enqueued_while_it_waited() {
    let store = Arc::new(MemoryStore::new());
    let order = Arc::new(Mutex::new(Vec::new()));
    let runs = order.clone();
    let work = move |attempt: Attempt<Task>| {
        let runs = runs.clone();
        async move {
            runs.lock().unwrap().push((attempt.payload.n, attempt.number));
            let fails = attempt.payload.n == 0 && attempt.number == 1;
            if fails { Err(Failure::retry("not yet")) } else { Ok(()) }
        }
    };
    let queue = Queue::new("default").concurrency(1).policy(Policy::fixed(millis(10)).no_jitter());
    let engine = Engine::on(store).queue(queue).handle(work).build().unwrap();
    engine.enqueue(Task { n: 0 }).await.unwrap();
    for n in 1..4 {
        engine.enqueue(NewJob::from(Task { n }).after(millis(200))).await.unwrap();
    }
    engine.drain().await.unwrap();
    assert_eq!(*order.lock().unwrap(), [(0, 1), (0, 2), (1, 1), (2, 1), (3, 1)]);
}
