//! When things start, and how many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redrive::{
    Attempt, Failure, GiveUp, JitterKind, NewJob, OnRetry, Policy, Queue, State, StateName, Timestamp, days,
    hours, millis, mins, secs,
};

use super::kit::{Diary, Task, detail, is_success, paused, start, task, wait_for};

#[tokio::test(start_paused = true)]
async fn a_job_due_in_90_days_starts_at_exactly_its_due_millisecond() {
    let (builder, clock) = paused();
    let starts = Diary::new();
    let (notes, watch) = (starts.clone(), clock.clone());
    let handler = move |_: Attempt<Task>| {
        notes.note(watch.now());
        async {}
    };
    let engine = builder.handle(handler).build().unwrap();
    let due = clock.now() + days(90) + millis(1);
    engine.enqueue(NewJob::from(task("far")).run_at(due)).await.unwrap();
    engine.drain().await.unwrap();
    assert_eq!(starts.entries(), [due]);
}

#[tokio::test(start_paused = true)]
async fn a_job_enqueued_later_and_due_earlier_wakes_the_loop() {
    let (builder, clock) = paused();
    let starts = Diary::new();
    let (notes, watch) = (starts.clone(), clock.clone());
    let handler = move |attempt: Attempt<Task>| {
        notes.note((attempt.payload.name, watch.now()));
        async {}
    };
    let engine = builder.handle(handler).build().unwrap();
    let mut events = engine.events();
    let begin = clock.now();
    let running = start(&engine);
    engine.enqueue(NewJob::from(task("late")).after(hours(1))).await.unwrap();
    // By then the loop sleeps until the first job is due.
    tokio::time::sleep(secs(10)).await;
    engine.enqueue(NewJob::from(task("early")).after(mins(1))).await.unwrap();
    engine.enqueue(task("now")).await.unwrap();
    for _ in 0..3 {
        wait_for(&mut events, is_success).await;
    }
    running.stop().await.unwrap();
    let expected = [
        ("now".to_owned(), begin + secs(10)),
        ("early".to_owned(), begin + secs(70)),
        ("late".to_owned(), begin + hours(1)),
    ];
    assert_eq!(starts.entries(), expected);
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a clock in whole milliseconds cannot see what is looked for")]
async fn a_wait_that_is_counted_from_within_a_millisecond_is_not_short() {
    let (builder, _) = paused();
    let times = Diary::new();
    let notes = times.clone();
    let handler = move |_: Attempt<Task>| {
        let notes = notes.clone();
        async move {
            notes.note(tokio::time::Instant::now());
            tokio::time::advance(Duration::from_micros(500)).await;
            notes.note(tokio::time::Instant::now());
            Err::<(), _>(Failure::retry("not yet"))
        }
    };
    let policy = Policy::fixed(millis(10)).attempts(3);
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let enqueued = tokio::time::Instant::now();
    engine.enqueue(NewJob::from(task("soon")).after(millis(10))).await.unwrap();
    engine.drain().await.unwrap();
    let [first, ended, second, ended_again, third, _] = times.entries().try_into().unwrap();
    for wait in [first - enqueued, second - ended, third - ended_again] {
        assert!((millis(10)..=millis(12)).contains(&wait), "{wait:?}");
    }
}

/// Runs a job that always fails, and says when its attempts started and what became of it.
async fn starts_of(policy: Policy, jobs: usize) -> Vec<Vec<Timestamp>> {
    let (builder, clock) = paused();
    let starts = Diary::new();
    let (notes, watch) = (starts.clone(), clock.clone());
    let handler = move |attempt: Attempt<Task>| {
        notes.note((attempt.id, watch.now()));
        async move { Failure::from_status(503, format!("failed in run {}", attempt.number)) }
    };
    let engine = builder.queue(Queue::new("default").policy(policy)).handle(handler).build().unwrap();
    let enqueued = engine.enqueue_all((0..jobs).map(|n| task(format!("{n}")))).await.unwrap();
    engine.drain().await.unwrap();
    let starts = starts.entries();
    let mut times = Vec::new();
    for job in enqueued {
        let job = detail(&engine, job.id).await;
        assert!(matches!(job.job.state, State::Dead { why: GiveUp::Exhausted, .. }), "{:?}", job.job.state);
        let last =
            job.attempts.last().and_then(|record| record.failure.clone()).expect("the last error is kept");
        assert_eq!(last.message, format!("failed in run {}", job.job.ledger.attempt));
        assert_eq!(job.attempts.len(), job.job.ledger.attempt as usize);
        times.push(starts.iter().filter(|(id, _)| *id == job.job.id).map(|(_, at)| *at).collect());
    }
    times
}

#[tokio::test(start_paused = true)]
async fn every_preset_without_jitter_fires_at_the_millisecond_and_keeps_its_last_error() {
    for name in Policy::PRESETS {
        let policy = Policy::preset(name).unwrap().no_jitter();
        let waits = policy.preview(99);
        let starts = starts_of(policy, 1).await.remove(0);
        let waited: Vec<Duration> = starts.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert_eq!(waited, waits, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_preset_with_its_jitter_stays_within_its_bounds() {
    for name in Policy::PRESETS {
        let policy = Policy::preset(name).unwrap();
        let waits = policy.preview(99);
        let jitter = policy.jitter.clone();
        for starts in starts_of(policy, 20).await {
            assert_eq!(starts.len(), waits.len() + 1, "{name}");
            for (nth, pair) in starts.windows(2).enumerate() {
                let (waited, base) = (pair[1].since(pair[0]), waits[nth]);
                let (least, most) = match jitter.kind {
                    _ if nth == 0 && jitter.skip_first => (base, base),
                    JitterKind::None => (base, base),
                    JitterKind::Ratio { ratio } => (base.mul_f64(1.0 - ratio), base.mul_f64(1.0 + ratio)),
                    JitterKind::Additive { max } => (base, base + max),
                    kind => panic!("no preset has {kind:?}"),
                };
                assert!(least <= waited && waited <= most + millis(1), "{name}: {waited:?} for {base:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn never_more_run_at_once_than_the_queue_has_places() {
    let (builder, _) = paused();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (now.clone(), most.clone());
    let handler = move |_: Attempt<Task>| {
        let (running, peak) = (running.clone(), peak.clone());
        async move {
            peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(secs(1)).await;
            running.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let engine = builder.queue(Queue::new("default").concurrency(3)).handle(handler).build().unwrap();
    engine.enqueue_all((0..50).map(|n| task(format!("{n}")))).await.unwrap();
    engine.drain().await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 3, "all places are used, and no more");
    assert_eq!(engine.counts().await.unwrap()[0].totals.succeeded, 50);
}

#[tokio::test(start_paused = true)]
async fn one_failing_job_does_not_stop_the_others() {
    let (builder, clock) = paused();
    let policy = Policy::fixed(mins(10)).retries(2);
    let handler = |attempt: Attempt<Task>| async move {
        if attempt.payload.name == "bad" { Err(Failure::retry("always")) } else { Ok(()) }
    };
    let engine =
        builder.queue(Queue::new("default").concurrency(1).policy(policy)).handle(handler).build().unwrap();
    let begin = clock.now();
    let bad = engine.enqueue(task("bad")).await.unwrap();
    let good = engine.enqueue_all((0..5).map(|n| task(format!("{n}")))).await.unwrap();
    engine.drain_due().await.unwrap();
    for job in good {
        assert_eq!(detail(&engine, job.id).await.job.state, State::Succeeded { at: begin });
    }
    engine.drain().await.unwrap();
    let bad = detail(&engine, bad.id).await.job;
    assert_eq!((bad.ledger.failures, clock.now()), (3, begin + mins(20)));
}

/// The order in which a FIFO queue runs three operations of which the first fails once.
async fn order_with(on_retry: OnRetry) -> Vec<(String, u64)> {
    let (builder, clock) = paused();
    let runs = Diary::new();
    let (notes, watch, begin) = (runs.clone(), clock.clone(), clock.now());
    let handler = move |attempt: Attempt<Task>| {
        let name = attempt.payload.name;
        notes.note((name.clone(), watch.now().since(begin).as_secs()));
        async move { if name == "1" && attempt.number == 1 { Err(Failure::retry("offline")) } else { Ok(()) } }
    };
    let queue = Queue::new("default").fifo().on_retry(on_retry).policy(Policy::preset("offline").unwrap());
    let engine = builder.queue(queue).handle(handler).build().unwrap();
    engine.enqueue_all(["1", "2", "3"].map(task)).await.unwrap();
    engine.drain().await.unwrap();
    runs.entries()
}

#[tokio::test(start_paused = true)]
async fn a_failing_operation_holds_its_followers_back_and_returns_by_itself() {
    let expected = [("1", 0), ("1", 2), ("2", 2), ("3", 2)].map(|(name, at)| (name.to_owned(), at));
    assert_eq!(order_with(OnRetry::Block).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_failing_operation_lets_its_followers_pass_where_the_queue_says_so() {
    let expected = [("1", 0), ("2", 0), ("3", 0), ("1", 2)].map(|(name, at)| (name.to_owned(), at));
    assert_eq!(order_with(OnRetry::LetPass).await, expected);
}

/// The order in which one place runs a job that fails this often, always due again at once, and one behind it.
async fn order_beside_one_that_fails(failures: u32) -> Vec<(&'static str, u32)> {
    let (builder, _) = paused();
    let runs = Diary::new();
    let notes = runs.clone();
    let handler = move |attempt: Attempt<Task>| {
        let fails = attempt.payload.name == "eager" && attempt.number <= failures;
        notes.note((if attempt.payload.name == "eager" { "eager" } else { "behind" }, attempt.number));
        async move {
            tokio::time::sleep(millis(1)).await;
            if fails { Err(Failure::retry("not yet")) } else { Ok(()) }
        }
    };
    let policy = Policy::immediate().attempts(20);
    let queue = Queue::new("default").concurrency(1).policy(policy);
    let engine = builder.queue(queue).handle(handler).build().unwrap();
    let jobs = engine.enqueue_all(["eager", "behind"].map(task)).await.unwrap();
    engine.drain().await.unwrap();
    let eager = detail(&engine, jobs[0].id).await;
    assert_eq!(eager.job.state.name(), StateName::Succeeded);
    assert_eq!((eager.job.ledger.failures, eager.attempts.len()), (failures, failures as usize));
    runs.entries()
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_due_at_once_does_not_wait_behind_others() {
    let runs = order_beside_one_that_fails(2).await;
    assert_eq!(runs, [("eager", 1), ("eager", 2), ("eager", 3), ("behind", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_goes_on_failing_at_once_lets_others_have_their_turn() {
    let runs = order_beside_one_that_fails(9).await;
    assert_eq!(runs.iter().position(|run| *run == ("behind", 1)), Some(4), "after three retries in a row");
}
