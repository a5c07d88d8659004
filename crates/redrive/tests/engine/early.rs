//! Jobs that are claimed before a place is free for them, where attempts are short.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive::{
    Attempt, Builder, Ending, Engine, Failure, Happening, Limits, MemoryStore, NewJob, Page, Queue,
    StateName, millis, secs,
};
use tokio::sync::Notify;

use super::kit::{Diary, Task, is_success, paused, paused_on, start, task, wait_for};

fn four_places(builder: Builder) -> Builder {
    builder.queue(Queue::new("default").concurrency(4))
}

fn jobs(count: usize) -> Vec<NewJob> {
    (0..count).map(|n| NewJob::from(task(format!("{n}")))).collect()
}

async fn running(engine: &Engine) -> u64 {
    engine.counts().await.unwrap()[0].running
}

#[tokio::test(start_paused = true)]
async fn places_are_never_empty_and_never_more_while_others_wait_for_one() {
    let (builder, clock) = paused();
    let (order, at_once) = (Diary::new(), Arc::new(AtomicUsize::new(0)));
    let notes = order.clone();
    let handler = move |attempt: Attempt<Task>| {
        let (notes, at_once) = (notes.clone(), at_once.clone());
        async move {
            assert!(at_once.fetch_add(1, Ordering::SeqCst) < 4, "there are four places");
            notes.note(attempt.payload.name);
            tokio::time::sleep(millis(1)).await;
            at_once.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let engine = four_places(builder).handle(handler).build().unwrap();
    engine.enqueue_all(jobs(800)).await.unwrap();
    let began = clock.now();
    let running_engine = start(&engine);
    tokio::time::sleep(millis(100)).await;
    assert!(running(&engine).await > 4, "some are claimed early");
    let mut events = engine.events();
    while engine.counts().await.unwrap()[0].totals.succeeded < 800 {
        wait_for(&mut events, is_success).await;
    }
    running_engine.stop().await.unwrap();
    let expected: Vec<String> = (0..800).map(|n| format!("{n}")).collect();
    assert_eq!(order.entries(), expected);
    assert!(clock.now().since(began) < millis(250), "four places, a millisecond each, and hardly a gap");
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_attempts_that_hang_is_left_to_others() {
    let store = Arc::new(MemoryStore::new());
    let (builder, clock) = paused_on(store.clone());
    let hangs = |attempt: Attempt<Task>| async move {
        tokio::time::sleep(millis(1)).await;
        if matches!(&*attempt.payload.name, "400" | "401" | "402" | "403") {
            std::future::pending::<()>().await;
        }
    };
    let stuck = four_places(builder).handle(hangs).build().unwrap();
    stuck.enqueue_all(jobs(460)).await.unwrap();
    let sticking = start(&stuck);
    tokio::time::sleep(millis(150)).await;
    assert!(running(&stuck).await > 4, "it has claimed some early");

    let other =
        four_places(Engine::on(store).clock(clock.clone())).handle(|_: Attempt<Task>| async {}).build();
    let other = other.unwrap();
    let mut events = other.events();
    let helping = start(&other);
    let all_but_four = async {
        while other.counts().await.unwrap()[0].totals.succeeded < 456 {
            wait_for(&mut events, is_success).await;
        }
    };
    tokio::time::timeout(secs(1), all_but_four).await.expect("nothing waits behind what hangs");
    assert_eq!(running(&other).await, 4);
    helping.stop().await.unwrap();
    drop(sticking);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_place_at_a_shutdown_goes_back_and_costs_nothing() {
    let (builder, _) = paused();
    let asked = Arc::new(Notify::new());
    let tells = asked.clone();
    let handler = move |attempt: Attempt<Task>| {
        let tells = tells.clone();
        async move {
            tokio::time::sleep(millis(1)).await;
            if attempt.payload.name == "100" {
                tells.notify_one();
            }
        }
    };
    let engine = four_places(builder).handle(handler).build().unwrap();
    engine.enqueue_all(jobs(300)).await.unwrap();
    let running_engine = start(&engine);
    asked.notified().await;
    running_engine.stop().await.unwrap();

    let counts = engine.counts().await.unwrap().remove(0);
    assert_eq!((counts.running, counts.waiting + counts.totals.succeeded), (0, 300));
    let page = engine.list(&Default::default(), Page { before: None, limit: 300 }).await.unwrap();
    let back: Vec<_> = page.jobs.iter().filter(|job| job.ledger.interruptions > 0).collect();
    assert!(!back.is_empty(), "some were claimed early");
    assert!(back.iter().all(|job| job.state.name() == StateName::Waiting));
    assert!(page.jobs.iter().all(|job| job.ledger.failures + job.ledger.crashes == 0));

    let mut events = engine.events();
    let running_engine = start(&engine);
    while engine.counts().await.unwrap()[0].totals.succeeded < 300 {
        wait_for(&mut events, is_success).await;
    }
    running_engine.stop().await.unwrap();
    let again = engine.get(back[0].id).await.unwrap().unwrap();
    assert_eq!(
        again.attempts.iter().map(|attempt| attempt.ending).collect::<Vec<_>>(),
        [Ending::Interrupted]
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_cancelled_while_it_waits_for_a_place_does_not_run() {
    let (builder, _) = paused();
    let ran = Diary::new();
    let notes = ran.clone();
    let handler = move |attempt: Attempt<Task>| {
        let notes = notes.clone();
        async move {
            notes.note(attempt.payload.name);
            tokio::time::sleep(millis(1)).await;
        }
    };
    let engine = four_places(builder).handle(handler).build().unwrap();
    let jobs = engine.enqueue_all(jobs(400)).await.unwrap();
    let mut events = engine.events();
    let running_engine = start(&engine);
    tokio::time::sleep(millis(50)).await;
    let begun = ran.entries().len();
    // The third that would begin now is claimed already.
    let next = jobs[begun + 2].id;
    assert_eq!(engine.get(next).await.unwrap().unwrap().job.state.name(), StateName::Running);
    engine.cancel(next).await.unwrap();
    wait_for(&mut events, |what| matches!(what, Happening::Cancelled)).await;
    while engine.counts().await.unwrap()[0].totals.succeeded < 399 {
        wait_for(&mut events, is_success).await;
    }
    running_engine.stop().await.unwrap();
    assert!(!ran.entries().contains(&format!("{}", begun + 2)));
    assert_eq!(ran.entries().len(), 399);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_place_does_not_go_unasked_where_another_has_failed() {
    let (builder, _) = paused();
    let (ran, failed) = (Diary::new(), Arc::new(Notify::new()));
    let (notes, tells) = (ran.clone(), failed.clone());
    let handler = move |attempt: Attempt<Task>| {
        let (notes, tells) = (notes.clone(), tells.clone());
        async move {
            notes.note(attempt.number);
            tokio::time::sleep(millis(1)).await;
            if attempt.payload.name == "200" && attempt.number == 1 {
                tells.notify_one();
                return Err(Failure::retry("not now"));
            }
            Ok(())
        }
    };
    let engine = four_places(builder).handle(handler).build().unwrap();
    let to_one = jobs(400).into_iter().map(|job| job.destination("api.example"));
    engine.enqueue_all(to_one).await.unwrap();
    let mut events = engine.events();
    let running_engine = start(&engine);
    failed.notified().await;
    while engine.counts().await.unwrap()[0].totals.succeeded < 400 {
        wait_for(&mut events, is_success).await;
    }
    running_engine.stop().await.unwrap();
    let page = engine.list(&Default::default(), Page { before: None, limit: 400 }).await.unwrap();
    let sent_away = page.jobs.iter().filter(|job| job.ledger.interruptions > 0).count();
    assert!(sent_away > 0, "some waited for a place when it failed");
    assert_eq!(page.jobs.iter().map(|job| job.ledger.failures).sum::<u32>(), 1);
    let again = ran.entries().into_iter().filter(|number| *number == 2).count();
    assert_eq!(
        again,
        sent_away + 1,
        "and began later, for the first time, as the one that failed did for the second"
    );
    assert_eq!(ran.entries().len(), 401);
}

#[tokio::test(start_paused = true)]
async fn where_calls_are_limited_none_is_granted_before_it_can_be_made() {
    let (builder, _) = paused();
    let limits = Limits { rate: Some("100000/s".parse().unwrap()), ..Limits::default() };
    let handler = |_: Attempt<Task>| async { tokio::time::sleep(millis(1)).await };
    let engine = four_places(builder).destination("api.example", limits).handle(handler).build().unwrap();
    engine.enqueue_all(jobs(400)).await.unwrap();
    let mut events = engine.events();
    let running_engine = start(&engine);
    while engine.counts().await.unwrap()[0].totals.succeeded < 400 {
        wait_for(&mut events, |_| true).await;
        assert!(running(&engine).await <= 4 + 4, "four run, and four more may be about to be settled");
    }
    running_engine.stop().await.unwrap();
}
