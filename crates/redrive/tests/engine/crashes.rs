//! Processes that die between two steps, and the engines that take over.

use std::sync::Arc;

use redrive::testing::{CrashPlan, CrashPoint};
use redrive::{
    Attempt, Engine, ErrorKind, GiveUp, Happening, MemoryStore, NewJob, Policy, Queue, State, StateName,
    mins, secs,
};

use super::kit::{Diary, Task, detail, is_success, paused_on, start, task, wait_for};

/// Lets an engine die at a point and another finish; says the numbers of the runs and the job's crashes.
async fn die_at(point: CrashPoint) -> (Vec<u32>, u32) {
    let store = Arc::new(MemoryStore::new());
    let (builder, clock) = paused_on(store.clone());
    let runs = Diary::new();
    let handler = |notes: Diary<u32>| {
        move |attempt: Attempt<Task>| {
            notes.note(attempt.number);
            async {}
        }
    };
    let doomed = builder.crash(CrashPlan::at(point, 1)).handle(handler(runs.clone())).build().unwrap();
    let mut told = doomed.events();
    let job = doomed.enqueue(task("survivor")).await.unwrap();
    let died = start(&doomed).ended().await.unwrap_err();
    assert_eq!(died.kind(), ErrorKind::Unavailable);
    while let Ok(event) = told.try_recv() {
        assert!(!is_success(&event.what), "a process that died has told nobody");
    }

    let heir = Engine::on(store).clock(clock).handle(handler(runs.clone())).build().unwrap();
    let mut events = heir.events();
    let running = start(&heir);
    if detail(&heir, job.id).await.job.state.name() != StateName::Succeeded {
        wait_for(&mut events, is_success).await;
    }
    running.stop().await.unwrap();
    heir.drain().await.unwrap();
    let job = detail(&heir, job.id).await.job;
    assert_eq!(job.state.name(), StateName::Succeeded);
    assert_eq!(heir.counts().await.unwrap()[0].totals.succeeded, 1);
    (runs.entries(), job.ledger.crashes)
}

#[tokio::test(start_paused = true)]
async fn a_job_claimed_by_a_process_that_dies_before_its_handler_runs_once() {
    assert_eq!(die_at(CrashPoint::AfterClaim).await, (vec![2], 1));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_process_dies_before_it_is_settled_runs_twice_under_two_numbers() {
    assert_eq!(die_at(CrashPoint::AfterHandler).await, (vec![1, 2], 1));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_process_dies_after_it_is_settled_ran_exactly_once() {
    assert_eq!(die_at(CrashPoint::AfterSettle).await, (vec![1], 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handler_is_begun_after_the_death_that_follows_a_claim() {
    // On several threads a task that was spawned in vain would have the time to run.
    for _ in 0..50 {
        let runs = Diary::new();
        let notes = runs.clone();
        let engine = Engine::builder(MemoryStore::new())
            .crash(CrashPlan::at(CrashPoint::AfterClaim, 1))
            .handle(move |attempt: Attempt<Task>| {
                notes.note(attempt.number);
                async {}
            })
            .build()
            .unwrap();
        engine.enqueue_all((0..16).map(|n| task(format!("{n}")))).await.unwrap();
        engine.drain().await.unwrap_err();
        assert_eq!(runs.entries(), Vec::<u32>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_process_again_and_again_is_set_aside_and_its_neighbour_is_not_blamed() {
    let store: Arc<MemoryStore> = Arc::new(MemoryStore::new());
    let (builder, clock) = paused_on(store.clone());
    drop(builder);
    let engine = |plan: CrashPlan| {
        let policy = Policy::fixed(secs(1)).attempts(2);
        Engine::on(store.clone())
            .clock(clock.clone())
            .crash(plan)
            .queue(Queue::new("default").policy(policy))
            .handle(|_: Attempt<Task>| async {})
            .build()
            .unwrap()
    };
    let first = engine(CrashPlan::default());
    let killer = first.enqueue(task("killer")).await.unwrap();
    for crash in 1..=3 {
        // Alone in the store, it is what is claimed when the process dies.
        let doomed = engine(CrashPlan::at(CrashPoint::AfterHandler, 1));
        start(&doomed).ended().await.unwrap_err();
        let mut events = first.events();
        first.pause("default").await.unwrap();
        let running = start(&first);
        wait_for(&mut events, |what| {
            matches!(what, Happening::RetryScheduled { .. } | Happening::Dead { .. })
        })
        .await;
        running.stop().await.unwrap();
        first.resume("default").await.unwrap();
        assert_eq!(detail(&first, killer.id).await.job.ledger.crashes, crash);
        assert_eq!(detail(&first, killer.id).await.job.ledger.failures, 0);
    }
    let state = detail(&first, killer.id).await.job.state;
    assert!(matches!(state, State::Dead { why: GiveUp::CrashLoop, .. }), "{state:?}");
    let neighbour = first.enqueue(NewJob::from(task("neighbour")).after(mins(1))).await.unwrap();
    first.drain().await.unwrap();
    assert_eq!(detail(&first, neighbour.id).await.job.state.name(), StateName::Succeeded);
}
