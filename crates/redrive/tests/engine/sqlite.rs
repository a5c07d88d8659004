//! The same loop on a SQLite file and the system's clock.

use std::sync::Arc;

use redrive::testing::{CrashPlan, CrashPoint};
use redrive::{
    Attempt, Engine, Failure, Happening, Json, Lending, NewJob, Policy, Queue, SqliteStore, StateName, Store,
    millis, mins, secs, tx,
};
use tokio::sync::Barrier;

use super::kit::{Diary, Task, detail, is_success, start, task, wait_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_fails_twice_comes_back_on_time_and_finishes() {
    let folder = tempfile::tempdir().unwrap();
    let policy = Policy::fixed(millis(40)).attempts(3);
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.number < 3 { Err(Failure::retry("not yet")) } else { Ok(()) }
    };
    let engine = Engine::builder(SqliteStore::open(folder.path().join("jobs.db")).await.unwrap())
        .queue(Queue::new("default").policy(policy))
        .handle(handler)
        .build()
        .unwrap();
    let mut events = engine.events();
    let running = start(&engine);
    let job = engine.enqueue(task("twice")).await.unwrap();
    wait_for(&mut events, is_success).await;
    running.stop().await.unwrap();
    let job = detail(&engine, job.id).await;
    assert_eq!((job.job.state.name(), job.job.ledger.failures), (StateName::Succeeded, 2));
    for (before, after) in job.attempts.iter().zip(job.attempts.iter().skip(1)) {
        assert!(after.started_at >= before.next_at.unwrap(), "never early");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_places_of_a_queue_are_used_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody passes before all five are there: with fewer places this would never end.
    let barrier = Arc::new(Barrier::new(5));
    let handler = move |_: Attempt<Task>| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
        }
    };
    let engine = Engine::builder(SqliteStore::open(folder.path().join("jobs.db")).await.unwrap())
        .queue(Queue::new("default").concurrency(5))
        .handle(handler)
        .build()
        .unwrap();
    engine.enqueue_all((0..100).map(|n| task(format!("{n}")))).await.unwrap();
    engine.drain().await.unwrap();
    assert_eq!(engine.counts().await.unwrap()[0].totals.succeeded, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_ends_only_when_nothing_waits_whatever_settles_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let policy = Policy::immediate().attempts(4);
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.number < 4 { Err(Failure::retry("not yet")) } else { Ok(()) }
    };
    let engine = Engine::builder(SqliteStore::open(folder.path().join("jobs.db")).await.unwrap())
        .queue(Queue::new("default").policy(policy))
        .handle(handler)
        .build()
        .unwrap();
    for round in 1..=50 {
        engine.enqueue(task("again")).await.unwrap();
        engine.drain().await.unwrap();
        assert_eq!(engine.counts().await.unwrap()[0].totals.succeeded, round);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_left_by_a_dead_process_is_taken_over_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let runs = Diary::new();
    let engine = async |plan: CrashPlan| {
        let notes = runs.clone();
        Engine::builder(SqliteStore::open(&path).await.unwrap())
            .crash(plan)
            .queue(Queue::new("default").policy(Policy::immediate().attempts(3)))
            .handle(move |attempt: Attempt<Task>| {
                notes.note(attempt.number);
                async {}
            })
            .build()
            .unwrap()
    };
    let doomed = engine(CrashPlan::at(CrashPoint::AfterHandler, 1)).await;
    let job = doomed.enqueue(task("survivor")).await.unwrap();
    start(&doomed).ended().await.unwrap_err();
    drop(doomed);

    // Only one process can have the file, so whoever opens it knows that the other is gone: no lease is waited for.
    let heir = engine(CrashPlan::default()).await;
    let mut events = heir.events();
    let running = start(&heir);
    wait_for(&mut events, is_success).await;
    running.stop().await.unwrap();
    assert_eq!(runs.entries(), [1, 2]);
    assert_eq!(detail(&heir, job.id).await.job.ledger.crashes, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_job_is_cancelled_and_its_late_report_refused() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder(SqliteStore::open(folder.path().join("jobs.db")).await.unwrap())
        .handle(|_: Attempt<Task>| std::future::pending::<()>())
        .build()
        .unwrap();
    let mut events = engine.events();
    let job = engine.enqueue(task("endless")).await.unwrap();
    let other = engine.enqueue(NewJob::from(task("later")).after(redrive::days(1))).await.unwrap();
    let running = start(&engine);
    wait_for(&mut events, |what| matches!(what, Happening::Started { .. })).await;
    engine.cancel(job.id).await.unwrap();
    wait_for(&mut events, |what| matches!(what, Happening::LeaseLost { attempt: 1 })).await;
    running.stop().await.unwrap();
    assert_eq!(detail(&engine, job.id).await.job.state.name(), StateName::Cancelled);
    assert_eq!(detail(&engine, other.id).await.job.state.name(), StateName::Waiting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_from_a_transaction_of_ones_own_keeps_the_failure_it_came_with_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let engine = Engine::builder(SqliteStore::open(&path).await.unwrap())
        .queue(Queue::new("default").policy(Policy::immediate().retries(1)))
        .handle(|_: Attempt<Task>| async {})
        .build()
        .unwrap();
    let mut events = engine.events();
    let running = start(&engine);
    let mut connection = rusqlite::Connection::open(&path).unwrap();
    let transaction = connection.transaction().unwrap();
    let outside = NewJob::from(task("outside")).failed_outside(Failure::retry("before it came here"));
    let job = tx::rusqlite::enqueue(&transaction, &engine.admit(outside).unwrap()).unwrap();
    transaction.commit().unwrap();
    wait_for(&mut events, is_success).await;
    running.stop().await.unwrap();
    let job = detail(&engine, job.id).await;
    let messages: Vec<_> =
        job.attempts.iter().map(|record| record.failure.clone().unwrap().message).collect();
    assert_eq!(messages, ["before it came here"]);
}

/// A job of a kind that nobody asks for wakes nobody: a server that takes jobs for workers elsewhere would look for its own
/// each time. Whoever waits for it has it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_asks_for_a_kind_is_woken_by_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path().join("jobs.db")).await.unwrap());
    let engine = Engine::on(store.clone()).handle(|_: Attempt<Task>| async {}).produce_any().build().unwrap();
    let mail = || NewJob::of_kind("mail", Json::parse("{}").unwrap());
    let mut events = engine.events();
    let running = start(&engine);
    engine.enqueue(task("own")).await.unwrap();
    wait_for(&mut events, is_success).await;
    let mut changes = store.changes();
    changes.borrow_and_update();
    // Whoever is woken by the first is so before the second is taken.
    engine.enqueue(mail()).await.unwrap();
    engine.enqueue(mail()).await.unwrap();
    assert!(!changes.has_changed().unwrap(), "nobody has asked for it");
    engine.enqueue(mail().deadline(engine.now() + mins(1))).await.unwrap();
    let woken = tokio::time::timeout(secs(10), changes.changed()).await;
    woken.expect("somebody has to see that its time is over").unwrap();
    let worker = engine.join("worker", secs(60)).await.unwrap();
    let asked =
        |limit| Lending { worker, kinds: ["mail".into()].into(), queues: Vec::new(), limit, wait: secs(30) };
    assert_eq!(engine.lease(&asked(10)).await.unwrap().len(), 3);
    // In this order: it has found nothing when the job comes.
    let asked = asked(1);
    let both = async { tokio::join!(biased; engine.lease(&asked), engine.enqueue(mail())) };
    let (leased, put) = tokio::time::timeout(secs(10), both).await.expect("it was woken");
    put.unwrap();
    assert_eq!(leased.unwrap().len(), 1);
    engine.enqueue(task("own")).await.unwrap();
    wait_for(&mut events, is_success).await;
    running.stop().await.unwrap();
}
