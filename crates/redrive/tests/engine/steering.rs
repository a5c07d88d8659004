//! What a person may do to a job, and what its handler sees of it.

use std::sync::{Arc, Mutex};

use redrive::{
    Attempt, Command, Ending, ErrorKind, Failure, Filter, GiveUp, Happening, NewJob, Policy, Queue, Reason,
    State, StateName, days, hours, mins, secs,
};

use super::kit::{Diary, OnDrop, Task, detail, is_success, paused, start, task, wait_for};

#[tokio::test(start_paused = true)]
async fn cancelling_a_running_job_stops_its_handler_at_once() {
    let (builder, clock) = paused();
    let (guard, dropped) = OnDrop::new();
    let guard = Arc::new(Mutex::new(Some(guard)));
    let told = Diary::new();
    let (notes, watch) = (told.clone(), clock.clone());
    let handler = move |attempt: Attempt<Task>| {
        let (guard, notes, watch) = (guard.lock().unwrap().take(), notes.clone(), watch.clone());
        async move {
            let _guard = guard;
            // What runs elsewhere is not dropped with the handler, but it is told.
            let elsewhere = tokio::spawn(async move {
                attempt.cancelled().await;
                notes.note(watch.now());
            });
            drop(elsewhere.await);
            std::future::pending::<()>().await;
        }
    };
    let engine = builder.handle(handler).build().unwrap();
    let mut events = engine.events();
    let begin = clock.now();
    let job = engine.enqueue(task("endless")).await.unwrap();
    let running = start(&engine);
    wait_for(&mut events, |what| matches!(what, Happening::Started { .. })).await;
    tokio::time::sleep(secs(3)).await;
    engine.cancel(job.id).await.unwrap();
    dropped.await.unwrap();
    wait_for(&mut events, |what| matches!(what, Happening::LeaseLost { attempt: 1 })).await;
    assert_eq!(clock.now(), begin + secs(3));
    running.stop().await.unwrap();
    assert_eq!(told.entries(), [begin + secs(3)]);
    let job = detail(&engine, job.id).await;
    assert_eq!(job.job.state, State::Cancelled { at: begin + secs(3) });
    assert_eq!(job.attempts.iter().map(|record| record.ending).collect::<Vec<_>>(), [Ending::Cancelled]);
    assert_eq!(engine.counts().await.unwrap()[0].running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_does_not_run_and_its_neighbour_does() {
    let (builder, _) = paused();
    let runs = Diary::new();
    let notes = runs.clone();
    let handler = move |attempt: Attempt<Task>| {
        notes.note(attempt.payload.name);
        async {}
    };
    let engine = builder.handle(handler).build().unwrap();
    let jobs = engine.enqueue_all(["taken back", "kept"].map(|name| NewJob::from(task(name)).after(mins(1))));
    let jobs = jobs.await.unwrap();
    engine.cancel(jobs[0].id).await.unwrap();
    engine.drain().await.unwrap();
    assert_eq!(runs.entries(), ["kept"]);
    let again = engine.cancel(jobs[1].id).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict);
    assert!(again.to_string().contains("it is finished"), "{again}");
    assert_eq!(again.hint(), Some("it is succeeded, after run 1"));
    let again = engine.cancel(jobs[0].id).await.unwrap_err();
    assert_eq!(again.hint(), Some("it is cancelled, and has not run"));
}

#[tokio::test(start_paused = true)]
async fn retry_now_runs_a_waiting_job_at_once_and_wakes_the_loop() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.number == 1 { Err(Failure::retry("not yet")) } else { Ok(()) }
    };
    let policy = Policy::fixed(days(3)).attempts(2);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let mut events = engine.events();
    let begin = clock.now();
    let job = engine.enqueue(task("waits")).await.unwrap();
    let running = start(&engine);
    wait_for(&mut events, |what| matches!(what, Happening::RetryScheduled { .. })).await;
    tokio::time::sleep(hours(1)).await;
    engine.retry_now(job.id).await.unwrap();
    wait_for(&mut events, is_success).await;
    running.stop().await.unwrap();
    let succeeded = detail(&engine, job.id).await.job;
    assert_eq!(succeeded.state, State::Succeeded { at: begin + hours(1) });
    let refused = engine.retry_now(job.id).await.unwrap_err();
    assert!(refused.to_string().contains("it has succeeded"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_redriven_job_has_all_its_retries_again_and_keeps_its_history() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.number < 4 { Err(Failure::retry("not yet")) } else { Ok(()) }
    };
    let policy = Policy::fixed(mins(1)).attempts(2).deadline(hours(1));
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let job = engine.enqueue(task("stubborn")).await.unwrap();
    engine.drain().await.unwrap();
    assert!(matches!(detail(&engine, job.id).await.job.state, State::Dead { why: GiveUp::Exhausted, .. }));
    // Long after its deadline: what is measured from its beginning is measured from now again.
    tokio::time::sleep(days(1)).await;
    let now = clock.now();
    engine.redrive(job.id).await.unwrap();
    let back = detail(&engine, job.id).await.job;
    assert_eq!(back.state, State::Waiting { due_at: now, reason: Reason::ByHand });
    assert_eq!((back.ledger.failures, back.ledger.attempt, back.ledger.generation), (0, 2, 1));
    engine.drain().await.unwrap();
    let done = detail(&engine, job.id).await;
    assert_eq!(done.job.state, State::Succeeded { at: now + mins(1) });
    assert_eq!(done.attempts.iter().map(|record| record.attempt).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_command_reaches_every_job_that_matches_and_no_other() {
    let (builder, _) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.payload.name == "bad" && attempt.job().ledger.generation == 0 {
            Err(Failure::permanent("no"))
        } else {
            Ok(())
        }
    };
    let engine = builder.handle(handler).build().unwrap();
    // More than one transaction's worth.
    engine.enqueue_all((0..1_201).map(|_| task("bad"))).await.unwrap();
    engine.enqueue(task("good")).await.unwrap();
    engine.drain().await.unwrap();
    let dead = Filter::state(StateName::Dead);
    assert_eq!(engine.apply(Command::Redrive, &dead).await.unwrap(), 1_201);
    engine.drain().await.unwrap();
    let totals = engine.counts().await.unwrap()[0].totals;
    assert_eq!((totals.dead, totals.redriven, totals.succeeded), (1_201, 1_201, 1_202));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_not_there_is_named_so() {
    let (builder, _) = paused();
    let engine = builder.handle(|_: Attempt<Task>| async {}).build().unwrap();
    let job = engine.enqueue(task("short")).await.unwrap();
    engine.drain().await.unwrap();
    engine.delete(job.id).await.unwrap();
    for refused in [engine.cancel(job.id).await, engine.retry_now(job.id).await, engine.delete(job.id).await]
    {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
