//! A store that is slow, or away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive::{Attempt, ErrorKind, Failure, Happening, Policy, Queue, StateName, hours, mins, secs};

use super::kit::{Diary, Moody, Task, detail, is_success, paused_on, start, task, wait_for};

#[tokio::test(start_paused = true)]
async fn nothing_new_begins_while_what_is_done_cannot_be_written_down() {
    let store = Moody::new();
    let (builder, _) = paused_on(store.clone());
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let handler = move |_: Attempt<Task>| {
        count.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    let places = 4;
    let engine = builder.queue(Queue::new("default").concurrency(places)).handle(handler).build().unwrap();
    let mut events = engine.events();
    engine.enqueue_all((0..2_000).map(|n| task(format!("{n}")))).await.unwrap();
    store.keep_settlements_waiting(true);
    let running = start(&engine);
    tokio::time::sleep(hours(1)).await;
    let begun = runs.load(Ordering::SeqCst);
    // Two batches of 64 may wait, and what had a place when the last of them came in.
    assert!((128..=128 + 2 * places).contains(&begun), "{begun} were begun");
    store.keep_settlements_waiting(false);
    let mut succeeded = 0;
    while succeeded < 2_000 {
        wait_for(&mut events, is_success).await;
        succeeded += 1;
    }
    running.stop().await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2_000, "each exactly once");
}

#[tokio::test(start_paused = true)]
async fn what_finished_while_the_store_was_away_counts_when_it_is_back() {
    let store = Moody::new();
    let (builder, _) = paused_on(store.clone());
    let runs = Diary::new();
    let notes = runs.clone();
    let handler = move |attempt: Attempt<Task>| {
        notes.note((attempt.payload.name, attempt.number));
        async { tokio::time::sleep(secs(1)).await }
    };
    let engine = builder.handle(handler).build().unwrap();
    let mut events = engine.events();
    let job = engine.enqueue(task("patient")).await.unwrap();
    let running = start(&engine);
    wait_for(&mut events, |what| matches!(what, Happening::Started { .. })).await;
    store.away(true);
    // Much longer than its lease: nobody else was there to record its end.
    tokio::time::sleep(mins(10)).await;
    let refused = engine.enqueue(task("refused")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(store.refused() > 10, "it was asked again and again");
    store.away(false);
    wait_for(&mut events, is_success).await;
    engine.enqueue(task("next")).await.unwrap();
    wait_for(&mut events, is_success).await;
    running.stop().await.unwrap();
    assert_eq!(runs.entries(), [("patient".to_owned(), 1), ("next".to_owned(), 1)]);
    let ledger = detail(&engine, job.id).await.job.ledger;
    assert_eq!((ledger.attempt, ledger.failures, ledger.crashes), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_engine_can_be_stopped_while_the_store_is_away() {
    let store = Moody::new();
    let (builder, clock) = paused_on(store.clone());
    let engine = builder.handle(|_: Attempt<Task>| async {}).build().unwrap();
    let begin = clock.now();
    let running = start(&engine);
    tokio::time::sleep(secs(1)).await;
    store.away(true);
    // Something changed, so that it asks for jobs, and gets no answer.
    let waker = store.clone();
    waker.away(false);
    engine.enqueue(task("unreachable")).await.unwrap();
    waker.away(true);
    tokio::time::sleep(secs(60)).await;
    let stopped = tokio::time::timeout(secs(60), running.ask()).await.expect("it stops").unwrap();
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(clock.now().since(begin) < secs(70));
    store.away(false);
    engine.drain().await.unwrap();
    assert_eq!(engine.counts().await.unwrap()[0].totals.succeeded, 1);
}

#[tokio::test(start_paused = true)]
async fn draining_does_not_end_between_a_claim_and_a_retry_that_was_settled_meanwhile() {
    let store = Moody::new();
    let (builder, _) = paused_on(store.clone());
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.number < 3 { Err(Failure::retry("not yet")) } else { Ok(()) }
    };
    let policy = Policy::fixed(secs(5)).attempts(3);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    store.answer_claims_late(true);
    let job = engine.enqueue(task("late")).await.unwrap();
    engine.drain().await.unwrap();
    assert_eq!(detail(&engine, job.id).await.job.state.name(), StateName::Succeeded);
}
