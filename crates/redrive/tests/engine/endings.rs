//! The ways in which an attempt ends by itself.

use redrive::{
    Attempt, Class, Ending, Engine, Failure, GiveUp, Happening, JobDetail, Json, MemoryStore, NewJob,
    Outcome, Output, Payload, Policy, Queue, Reason, SNOOZES_MAX, State, StateName, Timestamp,
    UNHANDLED_DELAY, mins, secs,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::kit::{Diary, OnDrop, Task, detail, is_success, paused, paused_on, start, task, wait_for};

fn failures_of(job: &JobDetail) -> Vec<(Option<&str>, &str)> {
    let failures = job.attempts.iter().filter_map(|record| record.failure.as_ref());
    failures.map(|failure| (failure.code.as_deref(), failure.message.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_that_job_alone() {
    let (builder, _) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        assert!(attempt.payload.name != "bad" || attempt.number > 1, "the bottom fell out");
    };
    let policy = Policy::fixed(secs(1)).attempts(3);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let bad = engine.enqueue(task("bad")).await.unwrap();
    let good = engine.enqueue(task("good")).await.unwrap();
    engine.drain().await.unwrap();
    let bad = detail(&engine, bad.id).await;
    assert_eq!(failures_of(&bad), [(Some("PANIC"), "the handler panicked: the bottom fell out")]);
    assert_eq!((bad.job.state.name(), bad.job.ledger.attempt), (StateName::Succeeded, 2));
    assert_eq!(detail(&engine, good.id).await.job.ledger.attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_decoded_is_a_failure_of_that_job_alone() {
    let (builder, _) = paused();
    let policy = Policy::fixed(secs(1)).attempts(2);
    let engine = builder
        .queue(Queue::new("default").policy(policy))
        .handle(|_: Attempt<Task>| async {})
        .build()
        .unwrap();
    let strange = NewJob::of_kind("task", Json::parse("[42]").unwrap());
    let bad = engine.enqueue(strange).await.unwrap();
    let good = engine.enqueue(task("good")).await.unwrap();
    engine.drain().await.unwrap();
    let bad = detail(&engine, bad.id).await;
    assert!(matches!(bad.job.state, State::Dead { why: GiveUp::Exhausted, .. }));
    assert_eq!(failures_of(&bad).iter().map(|(code, _)| *code).collect::<Vec<_>>(), [Some("UNDECODABLE"); 2]);
    assert_eq!(detail(&engine, good.id).await.job.state.name(), StateName::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_dropped_and_fails() {
    let (builder, clock) = paused();
    let (guard, dropped) = OnDrop::new();
    let guard = Arc::new(std::sync::Mutex::new(Some(guard)));
    let handler = move |attempt: Attempt<Task>| {
        let guard = guard.lock().unwrap().take();
        async move {
            let _guard = guard;
            if attempt.number == 1 {
                std::future::pending::<()>().await;
            }
        }
    };
    let policy = Policy::fixed(secs(1)).attempts(2).timeout(mins(5));
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let begin = clock.now();
    let job = engine.enqueue(task("slow")).await.unwrap();
    let quick = engine.enqueue(NewJob::from(task("own limit")).timeout(secs(7))).await.unwrap();
    engine.drain().await.unwrap();
    dropped.await.unwrap();
    let job = detail(&engine, job.id).await;
    assert_eq!(failures_of(&job), [(Some("TIMEOUT"), "the attempt took longer than 5m")]);
    assert_eq!(job.attempts[0].ended_at, begin + mins(5));
    assert_eq!(job.job.state.name(), StateName::Succeeded);
    assert_eq!(detail(&engine, quick.id).await.attempts[0].ended_at, begin + secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_snooze_waits_as_asked_and_counts_as_an_attempt_but_not_as_a_failure() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.number <= 2 { Outcome::Snooze(mins(3)) } else { Outcome::Done(None) }
    };
    let policy = Policy::fixed(secs(1)).attempts(1);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let begin = clock.now();
    let job = engine.enqueue(task("waits")).await.unwrap();
    engine.drain().await.unwrap();
    let job = detail(&engine, job.id).await;
    assert_eq!(job.job.state, State::Succeeded { at: begin + mins(6) });
    let ledger = job.job.ledger;
    assert_eq!((ledger.attempt, ledger.failures, ledger.snoozes), (3, 0, 2));
    assert!(job.attempts.iter().all(|record| record.ending == Ending::Snoozed && record.failure.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_snoozes_without_end_is_dead_at_last() {
    let (builder, _) = paused();
    let engine = builder.handle(|_: Attempt<Task>| async { Outcome::Snooze(secs(1)) }).build().unwrap();
    let job = engine.enqueue(task("forever")).await.unwrap();
    engine.drain().await.unwrap();
    let job = detail(&engine, job.id).await;
    assert!(matches!(job.job.state, State::Dead { why: GiveUp::Permanent, .. }));
    assert_eq!((job.job.ledger.snoozes, job.job.ledger.failures), (SNOOZES_MAX, 1));
    let last = job.attempts.last().and_then(|record| record.failure.as_ref()).unwrap();
    assert_eq!(last.message, "asked to be called again 1000 times");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_not_tried_again() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        let status = attempt.payload.name.parse().unwrap();
        Failure::from_status(status, "no")
    };
    let engine = builder.handle(handler).build().unwrap();
    let begin = clock.now();
    let jobs = engine.enqueue_all(["404", "401"].map(task)).await.unwrap();
    engine.drain().await.unwrap();
    for (job, class) in jobs.iter().zip([Class::Permanent, Class::NeedsAuth]) {
        let job = detail(&engine, job.id).await;
        assert_eq!(job.job.state, State::Dead { at: begin, why: GiveUp::Permanent });
        assert_eq!(job.attempts.len(), 1);
        assert_eq!(job.attempts[0].failure.as_ref().unwrap().class, class);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_far_side_asks_for_goes_before_the_back_off() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.number == 1 { Err(Failure::retry_after(mins(7), "429")) } else { Ok(()) }
    };
    let policy = Policy::fixed(secs(1)).attempts(3);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let begin = clock.now();
    let job = engine.enqueue(task("limited")).await.unwrap();
    engine.drain_due().await.unwrap();
    let wait = State::Waiting { due_at: begin + mins(7), reason: Reason::RetryAfter };
    assert_eq!(detail(&engine, job.id).await.job.state, wait);
    engine.drain().await.unwrap();
    assert_eq!(detail(&engine, job.id).await.job.state, State::Succeeded { at: begin + mins(7) });
}

#[tokio::test(start_paused = true)]
async fn the_id_stays_and_the_number_grows_over_all_attempts() {
    let (builder, _) = paused();
    let seen = Diary::new();
    let notes = seen.clone();
    let handler = move |attempt: Attempt<Task>| {
        notes.note((attempt.idempotency_key(), attempt.number));
        async move { if attempt.number < 4 { Err(Failure::retry("not yet")) } else { Ok(Output("ready")) } }
    };
    let engine = builder.handle(handler).build().unwrap();
    let job = engine.enqueue(task("steady")).await.unwrap();
    engine.drain().await.unwrap();
    let key = job.id.to_string();
    assert_eq!(seen.entries(), [1, 2, 3, 4].map(|number| (key.clone(), number)));
    let output: String = detail(&engine, job.id).await.output.unwrap().decode().unwrap();
    assert_eq!(output, "ready");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_deadline_passes_is_dead_at_that_moment_and_tried_no_more() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.payload.name == "snoozes" {
            Ok(Outcome::Snooze(mins(1)))
        } else {
            Err(Failure::retry("not yet"))
        }
    };
    let policy = Policy::fixed(mins(2)).attempts(100);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let begin = clock.now();
    let deadline = begin + secs(150);
    let fails = engine.enqueue(NewJob::from(task("fails")).deadline(deadline)).await.unwrap();
    let snoozes = engine.enqueue(NewJob::from(task("snoozes")).deadline(deadline)).await.unwrap();
    engine.drain().await.unwrap();
    let fails = detail(&engine, fails.id).await;
    // At two minutes it failed again, and the next try would come too late: there is nothing to wait for.
    assert_eq!(fails.job.state, State::Dead { at: begin + mins(2), why: GiveUp::Expired });
    assert_eq!(fails.job.ledger.failures, 2);
    let snoozes = detail(&engine, snoozes.id).await;
    assert_eq!(snoozes.job.state, State::Dead { at: begin + mins(2), why: GiveUp::Expired });
}

#[tokio::test(start_paused = true)]
async fn a_job_not_begun_in_time_is_dead_without_a_run_even_in_a_paused_queue() {
    let (builder, clock) = paused();
    let runs = Diary::new();
    let notes = runs.clone();
    let handler = move |attempt: Attempt<Task>| {
        notes.note(attempt.payload.name);
        async { Failure::retry("not yet") }
    };
    let policy = Policy::fixed(mins(2)).attempts(3);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let begin = clock.now();
    let begun = engine.enqueue(NewJob::from(task("begun")).start_by(begin + mins(1))).await.unwrap();
    engine.drain_due().await.unwrap();
    engine.pause("default").await.unwrap();
    let late = engine.enqueue(NewJob::from(task("late")).start_by(begin + mins(1))).await.unwrap();
    engine.drain().await.unwrap();
    let late = detail(&engine, late.id).await;
    assert_eq!(late.job.state, State::Dead { at: begin + mins(1), why: GiveUp::Expired });
    assert_eq!(late.attempts[0].ending, Ending::Expired);
    engine.resume("default").await.unwrap();
    engine.drain().await.unwrap();
    // What has begun is no longer bound by it, and uses up its attempts.
    let begun = detail(&engine, begun.id).await.job;
    assert!(matches!(begun.state, State::Dead { why: GiveUp::Exhausted, .. }));
    assert_eq!(runs.entries(), ["begun"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_job_nobody_here_can_run_waits_without_cost_until_somebody_can() {
    let store = Arc::new(MemoryStore::new());
    let (builder, clock) = paused_on(store.clone());
    let producer = builder.produce::<Task>().build().unwrap();
    let mut events = producer.events();
    let begin = clock.now();
    let job = producer.enqueue(task("foreign")).await.unwrap();
    let running = start(&producer);
    wait_for(&mut events, |what| matches!(what, Happening::PutBack { ending: Ending::Unhandled, .. })).await;
    running.stop().await.unwrap();
    let waits = detail(&producer, job.id).await.job;
    let due_at = begin + UNHANDLED_DELAY;
    assert_eq!(waits.state, State::Waiting { due_at, reason: Reason::Unhandled });
    let ledger = waits.ledger;
    assert_eq!((ledger.holds, ledger.failures, ledger.crashes), (1, 0, 0));

    let worker = Engine::on(store).clock(clock).handle(|_: Attempt<Task>| async {}).build().unwrap();
    worker.drain().await.unwrap();
    assert_eq!(detail(&worker, job.id).await.job.state, State::Succeeded { at: due_at });
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_outside_waits_first_and_keeps_that_error() {
    let (builder, clock) = paused();
    let policy = Policy::preset("media").unwrap().no_jitter();
    let handler = |_: Attempt<Task>| async { Failure::from_code("TIMEOUT", "again") };
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let begin = clock.now();
    let outside = Failure::from_code("TIMEOUT", "outside");
    let job = engine.enqueue(NewJob::from(task("known")).failed_outside(outside)).await.unwrap();
    let wait = State::Waiting { due_at: begin + secs(1), reason: Reason::Backoff };
    assert_eq!(detail(&engine, job.id).await.job.state, wait);
    engine.drain().await.unwrap();
    let job = detail(&engine, job.id).await;
    // 1, 2, 4 and 8 s: four retries, all of them runs of ours.
    assert_eq!(job.job.state, State::Dead { at: begin + secs(15), why: GiveUp::Exhausted });
    assert_eq!(job.job.ledger.failures, 4);
    assert_eq!(failures_of(&job)[0], (Some("TIMEOUT"), "outside"));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_outside_waits_as_long_as_the_far_side_has_asked_for() {
    let (builder, clock) = paused();
    let policy = Policy::preset("media").unwrap().no_jitter();
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(|_: Attempt<Task>| async {});
    let (engine, begin) = (engine.build().unwrap(), clock.now());
    let outside = Failure::retry_after(mins(7), "slow down");
    let job = engine.enqueue(NewJob::from(task("told")).failed_outside(outside)).await.unwrap();
    let wait = State::Waiting { due_at: begin + mins(7), reason: Reason::RetryAfter };
    assert_eq!(detail(&engine, job.id).await.job.state, wait);
}

#[derive(Serialize, Deserialize)]
struct Unheard;

impl Payload for Unheard {
    const KIND: &'static str = "unheard";
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_and_an_unknown_queue_are_refused_with_what_to_do() {
    let (builder, _) = paused();
    let engine = builder.handle(|_: Attempt<Task>| async {}).build().unwrap();
    let kind = engine.enqueue(Unheard).await.unwrap_err();
    assert!(kind.hint().unwrap().contains(".handle(…)"), "{kind}");
    let queue = engine.enqueue(NewJob::from(task("lost")).queue("nowhere")).await.unwrap_err();
    assert!(queue.hint().unwrap().contains("Queue::new(\"nowhere\")"), "{queue}");
    assert!(engine.counts().await.unwrap().iter().all(|counts| counts.totals.enqueued == 0));
}

#[tokio::test(start_paused = true)]
async fn finished_jobs_are_forgotten_when_their_time_is_over_and_dead_ones_are_kept() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.payload.name == "bad" { Err(Failure::permanent("no")) } else { Ok(()) }
    };
    let engine = builder.handle(handler).build().unwrap();
    let mut events = engine.events();
    let good = engine.enqueue(task("good")).await.unwrap();
    let bad = engine.enqueue(task("bad")).await.unwrap();
    let later: Timestamp = clock.now() + redrive::days(2);
    engine.enqueue(NewJob::from(task("later")).run_at(later)).await.unwrap();
    let running = start(&engine);
    wait_for(&mut events, is_success).await;
    wait_for(&mut events, is_success).await;
    running.stop().await.unwrap();
    assert!(engine.get(good.id).await.unwrap().is_none());
    assert_eq!(detail(&engine, bad.id).await.job.state.name(), StateName::Dead);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_when_the_time_of_its_job_is_over() {
    let (builder, clock) = paused();
    let handler = |attempt: Attempt<Task>| async move {
        tokio::time::sleep(if attempt.payload.name == "long" { mins(5) } else { secs(5) }).await;
    };
    let engine = builder.handle(handler).build().unwrap();
    let over = clock.now() + secs(30);
    let long = engine.enqueue(NewJob::from(task("long")).deadline(over).timeout(mins(1))).await.unwrap();
    let short = engine.enqueue(NewJob::from(task("short")).deadline(over)).await.unwrap();
    engine.drain().await.unwrap();
    let found = detail(&engine, long.id).await;
    assert_eq!(found.job.state, State::Dead { at: over, why: GiveUp::Expired });
    assert_eq!(found.attempts[0].ending, Ending::Expired);
    assert_eq!(detail(&engine, short.id).await.job.state.name(), StateName::Succeeded);
}
