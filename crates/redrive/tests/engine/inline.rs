//! The in-process tier: short waits in the caller's own time, long ones in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redrive::{
    Attempt, Attempted, Class, Ending, Engine, ErrorKind, Failure, GiveUp, NewJob, Outcome, Policy, Queue,
    Reason, State, mins, secs,
};

use super::kit::{Diary, Moody, Task, detail, paused, paused_on, task};

/// An engine whose handler always fails, on this policy.
fn failing(policy: Policy) -> (Engine, redrive::Clock, Diary<u32>) {
    let (builder, clock) = paused();
    let numbers = Diary::new();
    let notes = numbers.clone();
    let handler = move |attempt: Attempt<Task>| {
        notes.note(attempt.number);
        async { Failure::retry("durably") }
    };
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    (engine, clock, numbers)
}

#[tokio::test(start_paused = true)]
async fn what_works_at_once_is_never_stored() {
    let (engine, clock, _) = failing(Policy::fixed(secs(1)).attempts(5));
    let begin = clock.now();
    let tries = Arc::new(AtomicU32::new(0));
    let done = engine
        .attempt(task("quick"), |_| {
            let this = tries.fetch_add(1, Ordering::SeqCst) + 1;
            async move { if this < 3 { Err(Failure::retry("busy")) } else { Ok(()) } }
        })
        .await
        .unwrap();
    assert!(matches!(done, Attempted::Done { attempt: 3, .. }));
    assert_eq!(clock.now(), begin + secs(2));
    assert!(engine.counts().await.unwrap().iter().all(|counts| counts.totals.enqueued == 0));
}

#[tokio::test(start_paused = true)]
async fn a_handed_over_job_keeps_its_number_its_failures_and_its_history() {
    let (engine, clock, numbers) = failing(Policy::fixed(secs(1)).attempts(5));
    let begin = clock.now();
    let handed = engine.attempt(task("slow"), |_| async { Failure::retry("in process") }).await.unwrap();
    let Attempted::HandedOver { job, due_at } = handed else { panic!("{handed:?}") };
    assert_eq!(due_at, begin + secs(3));
    let stored = detail(&engine, job).await;
    assert_eq!(stored.job.state, State::Waiting { due_at, reason: Reason::Backoff });
    assert_eq!((stored.job.ledger.attempt, stored.job.ledger.failures), (3, 3));
    engine.drain().await.unwrap();
    // Five attempts are allowed in both tiers together: three there, two here.
    assert_eq!(numbers.entries(), [4, 5]);
    let dead = detail(&engine, job).await;
    assert_eq!(dead.job.state, State::Dead { at: begin + secs(4), why: GiveUp::Exhausted });
    let messages: Vec<_> =
        dead.attempts.iter().map(|record| record.failure.as_ref().unwrap().message.as_str()).collect();
    assert_eq!(messages, ["in process", "in process", "in process", "durably", "durably"]);
    assert!(dead.attempts.iter().all(|record| record.ending == Ending::Failed && record.rule.is_some()));
    assert_eq!(dead.attempts[1].started_at, begin + secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_handed_over_after_the_first_try() {
    let (engine, clock, _) = failing(Policy::fixed(mins(5)).attempts(5));
    let begin = clock.now();
    let handed = engine.attempt(task("later"), |_| async { Failure::retry("down") }).await.unwrap();
    assert!(matches!(handed, Attempted::HandedOver { due_at, .. } if due_at == begin + mins(5)));
    assert_eq!(clock.now(), begin, "the caller did not wait");
}

#[tokio::test(start_paused = true)]
async fn what_no_retry_mends_goes_back_to_the_caller_and_is_not_stored() {
    let (engine, _, _) = failing(Policy::fixed(secs(1)).attempts(2));
    let permanent = engine.attempt(task("no"), |_| async { Failure::permanent("no") }).await.unwrap();
    assert!(matches!(permanent, Attempted::Failed(failure) if failure.class == Class::Permanent));
    let exhausted = engine.attempt(task("twice"), |_| async { Failure::retry("busy") }).await.unwrap();
    assert!(matches!(exhausted, Attempted::Failed(failure) if failure.message == "busy"));
    assert!(engine.counts().await.unwrap().iter().all(|counts| counts.totals.enqueued == 0));
}

#[tokio::test(start_paused = true)]
async fn a_snooze_is_handed_over_as_one() {
    let (engine, clock, _) = failing(Policy::fixed(secs(1)).attempts(5));
    let begin = clock.now();
    let handed = engine.attempt(task("later"), |_| async { Outcome::Snooze(mins(3)) }).await.unwrap();
    let Attempted::HandedOver { job, due_at } = handed else { panic!("{handed:?}") };
    assert_eq!(due_at, begin + mins(3));
    let ledger = detail(&engine, job).await.job.ledger;
    assert_eq!((ledger.attempt, ledger.failures, ledger.snoozes), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn time_spent_in_process_counts_toward_the_limits_of_the_stored_job() {
    let policy = Policy::fixed(secs(2)).attempts(99).within(secs(9));
    let (engine, clock, numbers) = failing(policy);
    let begin = clock.now();
    let handed = engine.attempt(task("aging"), |_| async { Failure::retry("busy") }).await.unwrap();
    let Attempted::HandedOver { job, .. } = handed else { panic!("{handed:?}") };
    engine.drain().await.unwrap();
    // Tries at 0, 2, 4 in process and at 6, 8 durably; one at 10 would be too late.
    assert_eq!(numbers.entries(), [4, 5]);
    let dead = detail(&engine, job).await.job;
    assert_eq!(dead.state, State::Dead { at: begin + secs(8), why: GiveUp::Expired });
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_to_a_store_that_is_away_is_told_to_the_caller() {
    let store = Moody::new();
    let (builder, _) = paused_on(store.clone());
    let engine = builder.handle(|_: Attempt<Task>| async {}).build().unwrap();
    store.away(true);
    let told = engine
        .attempt(task("homeless"), |_| async { Failure::retry_after(mins(1), "busy") })
        .await
        .unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    store.away(false);
    engine.enqueue(NewJob::from(task("by hand"))).await.unwrap();
    engine.drain().await.unwrap();
}
