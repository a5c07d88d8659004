//! Leases that are lost, and processes that stop.

use std::sync::{Arc, Mutex};

use redrive::{
    Attempt, Ending, Engine, Failure, Happening, JobDetail, Lending, MemoryStore, NewJob, Policy, Queue,
    Reason, State, StateName, mins, secs,
};
use tokio::sync::Notify;

use super::kit::{Diary, Moody, OnDrop, Task, detail, is_success, paused, paused_on, start, task, wait_for};

fn endings_of(job: &JobDetail) -> Vec<Ending> {
    job.attempts.iter().map(|record| record.ending).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_cancels_the_handler_and_its_late_report_changes_nothing() {
    let store = Arc::new(MemoryStore::new());
    let cut_off = Moody::over(store.clone());
    let (builder, clock) = paused_on(cut_off.clone());
    let (guard, dropped) = OnDrop::new();
    let guard = Arc::new(Mutex::new(Some(guard)));
    let told = Arc::new(Notify::new());
    let tells = told.clone();
    let hangs = move |attempt: Attempt<Task>| {
        let (guard, tells) = (guard.lock().unwrap().take(), tells.clone());
        async move {
            let _guard = guard;
            tokio::spawn(async move {
                attempt.cancelled().await;
                tells.notify_one();
            });
            std::future::pending::<()>().await;
        }
    };
    let loser = builder.lease(secs(30)).handle(hangs).build().unwrap();
    let mut lost = loser.events();
    let numbers = Diary::new();
    let notes = numbers.clone();
    let finishes = move |attempt: Attempt<Task>| {
        notes.note(attempt.number);
        async {}
    };
    let job = loser.enqueue(task("contested")).await.unwrap();
    let losing = start(&loser);
    wait_for(&mut lost, |what| matches!(what, Happening::Started { .. })).await;
    cut_off.away(true);

    let winner = Engine::on(store).clock(clock.clone()).handle(finishes).build().unwrap();
    let mut won = winner.events();
    let winning = start(&winner);
    wait_for(&mut won, is_success).await;
    assert_eq!(numbers.entries(), [2], "the other engine runs it once, under a higher number");

    // Only now does the first engine learn that it had lost.
    cut_off.away(false);
    told.notified().await;
    dropped.await.unwrap();
    wait_for(&mut lost, |what| matches!(what, Happening::LeaseLost { attempt: 1 })).await;
    losing.stop().await.unwrap();
    winning.stop().await.unwrap();
    let job = detail(&winner, job.id).await;
    assert_eq!((job.job.state.name(), job.job.ledger.crashes), (StateName::Succeeded, 1));
    assert_eq!(endings_of(&job), [Ending::Crashed]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lost_its_lease_goes_on_under_a_new_one() {
    let store = Arc::new(MemoryStore::new());
    let cut_off = Moody::over(store.clone());
    let (builder, clock) = paused_on(cut_off.clone());
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.payload.name == "first" && attempt.number == 1 {
            std::future::pending::<()>().await;
        }
    };
    let loser = builder.handle(handler).build().unwrap();
    let mut events = loser.events();
    loser.enqueue(task("first")).await.unwrap();
    let losing = start(&loser);
    wait_for(&mut events, |what| matches!(what, Happening::Started { .. })).await;
    cut_off.cannot_renew(true);
    // It handles nothing: it only ends the other's lease.
    let watcher =
        Engine::on(store).clock(clock).queue(Queue::new("default")).produce::<Task>().build().unwrap();
    watcher.pause("default").await.unwrap();
    let mut seen = watcher.events();
    let watching = start(&watcher);
    wait_for(&mut seen, |what| matches!(what, Happening::RetryScheduled { .. })).await;
    watching.stop().await.unwrap();
    cut_off.cannot_renew(false);
    watcher.resume("default").await.unwrap();
    wait_for(&mut events, is_success).await;
    loser.enqueue(task("second")).await.unwrap();
    wait_for(&mut events, is_success).await;
    losing.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_as_time_passes_and_not_with_every_job() {
    let store = Moody::new();
    let (builder, _) = paused_on(store.clone());
    let engine = builder.lease(secs(30)).handle(|_: Attempt<Task>| async {}).build().unwrap();
    let mut events = engine.events();
    let running = start(&engine);
    for n in 0..100 {
        engine.enqueue(task(format!("number {n}"))).await.unwrap();
        wait_for(&mut events, is_success).await;
        tokio::time::sleep(secs(1)).await;
    }
    let renewed = store.renewed();
    running.stop().await.unwrap();
    assert!((5..=12).contains(&renewed), "{renewed} renewals of half a minute each in 100 seconds");
}

#[tokio::test(start_paused = true)]
async fn a_long_attempt_keeps_its_lease_as_long_as_its_process_lives() {
    let store = Arc::new(MemoryStore::new());
    let (builder, clock) = paused_on(store.clone());
    let slow = |_: Attempt<Task>| async { tokio::time::sleep(mins(30)).await };
    let first = builder.lease(secs(5)).handle(slow).build().unwrap();
    let second = Engine::on(store).clock(clock).lease(secs(5)).handle(slow).build().unwrap();
    let mut events = first.events();
    let job = first.enqueue(task("slow")).await.unwrap();
    let (one, two) = (start(&first), start(&second));
    let mut others = second.events();
    tokio::select! {
        _ = wait_for(&mut events, is_success) => {}
        _ = wait_for(&mut others, is_success) => {}
    }
    one.stop().await.unwrap();
    two.stop().await.unwrap();
    let ledger = detail(&first, job.id).await.job.ledger;
    assert_eq!((ledger.attempt, ledger.crashes), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_what_runs_finish_and_begins_nothing_new() {
    let (builder, clock) = paused();
    let slow = |_: Attempt<Task>| async { tokio::time::sleep(secs(20)).await };
    let engine =
        builder.queue(Queue::new("default").concurrency(1)).grace(secs(30)).handle(slow).build().unwrap();
    let mut events = engine.events();
    let begin = clock.now();
    let first = engine.enqueue(task("first")).await.unwrap();
    let second = engine.enqueue(task("second")).await.unwrap();
    let running = start(&engine);
    wait_for(&mut events, |what| matches!(what, Happening::Started { .. })).await;
    running.stop().await.unwrap();
    assert_eq!(detail(&engine, first.id).await.job.state, State::Succeeded { at: begin + secs(20) });
    let second = detail(&engine, second.id).await.job;
    assert_eq!((second.state.name(), second.ledger.attempt), (StateName::Waiting, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_job_that_fails_and_is_due_at_once_again_and_again() {
    let (builder, _) = paused();
    let failing = |_: Attempt<Task>| async { Err::<(), _>(Failure::retry("never")) };
    let policy = Policy::immediate().attempts(1_000_000);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(failing).build().unwrap();
    let mut events = engine.events();
    let job = engine.enqueue(task("restless")).await.unwrap();
    let running = start(&engine);
    wait_for(&mut events, |what| matches!(what, Happening::RetryScheduled { attempt: 2, .. })).await;
    running.stop().await.unwrap();
    let left = detail(&engine, job.id).await.job;
    assert_eq!((left.state.name(), left.ledger.crashes), (StateName::Waiting, 0), "nobody holds it any more");
}

#[tokio::test(start_paused = true)]
async fn what_outlasts_the_grace_period_is_given_back_and_costs_no_retry() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.number == 1 {
            std::future::pending::<()>().await;
        }
    };
    let policy = Policy::fixed(mins(5)).attempts(1);
    let engine =
        builder.queue(Queue::new("default").policy(policy)).grace(secs(10)).handle(handler).build().unwrap();
    let mut events = engine.events();
    let begin = clock.now();
    let job = engine.enqueue(task("endless")).await.unwrap();
    let running = start(&engine);
    wait_for(&mut events, |what| matches!(what, Happening::Started { .. })).await;
    running.stop().await.unwrap();
    let given_back = detail(&engine, job.id).await;
    let due_at = begin + secs(10);
    assert_eq!(given_back.job.state, State::Waiting { due_at, reason: Reason::Interrupted });
    let ledger = given_back.job.ledger;
    assert_eq!((ledger.failures, ledger.crashes, ledger.interruptions), (0, 0, 1));
    assert_eq!(endings_of(&given_back), [Ending::Interrupted]);
    // The one attempt it is allowed is still to come, and at once.
    engine.drain().await.unwrap();
    assert_eq!(detail(&engine, job.id).await.job.state, State::Succeeded { at: due_at });
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_worker_that_falls_silent_come_back_when_its_own_lease_is_over() {
    let (builder, clock) = paused();
    let engine = builder.lease(mins(5)).produce_any().build().unwrap();
    let running = start(&engine);
    // Nobody is ended by an engine that has not been there for a whole lease.
    clock.sleep_until(clock.now() + mins(11)).await;
    let payload = redrive::Json::of("x").unwrap();
    let job = engine.enqueue(NewJob::of_kind("resize", payload)).await.unwrap().id;
    let worker = engine.join("silent", secs(2)).await.unwrap();
    let kinds: redrive::Kinds = [Arc::from("resize")].into();
    let asked = Lending { worker, kinds, queues: Vec::new(), limit: 1, wait: secs(0) };
    assert_eq!(engine.lease(&asked).await.unwrap().len(), 1);
    let since = clock.now();
    let mut events = engine.events();
    wait_for(&mut events, |what| {
        matches!(what, Happening::RetryScheduled { .. } | Happening::PutBack { .. })
    })
    .await;
    assert!(clock.now().since(since) <= secs(3), "after {:?}", clock.now().since(since));
    assert_eq!(endings_of(&detail(&engine, job).await), [Ending::Crashed]);
    running.stop().await.unwrap();
}
