//! What can be seen from outside: events, log lines, metrics, totals and the activity log.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had is the failure")]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redrive::{
    ACTIVITY_MAX, Attempt, Builder, Call, Clock, Command, Engine, Event, Failure, Filter, GiveUp, Happening,
    How, Job, Json, Lending, MemoryStore, NewJob, OnConflict, Outcome, Payload, Policy, Queue, Retention,
    SqliteStore, State, StateName, Store, Tally, What, days, mins, secs, testing,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::Level;

#[derive(Serialize, Deserialize)]
struct Fetch {
    /// The runs that fail.
    failing: u32,
}

impl Payload for Fetch {
    const KIND: &'static str = "fetch";
}

async fn fetch(attempt: Attempt<Fetch>) -> Result<(), Failure> {
    if attempt.number <= attempt.payload.failing {
        return Err(Failure::from_status(503, format!("run {} met a closed door", attempt.number)));
    }
    Ok(())
}

/// An engine in memory on the paused clock, with delays of 10, 20, 30 … s and three retries.
fn builder() -> (Builder, Clock) {
    let clock = testing::clock();
    let policy = Policy::linear(secs(10), secs(10)).no_jitter().retries(3);
    let builder = Engine::builder(MemoryStore::new())
        .clock(clock.clone())
        .queue(Queue::new("default").policy(policy))
        .handle(fetch);
    (builder, clock)
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_twice_and_succeeds_tells_its_story_in_order() {
    let (builder, clock) = builder();
    let engine = builder.build().unwrap();
    let mut events = engine.events();
    let begin = clock.now();
    let job = engine.enqueue(Fetch { failing: 2 }).await.unwrap();
    engine.drain().await.unwrap();
    let mut story = Vec::new();
    while let Ok(Event { at, job: id, kind, queue, what }) = events.try_recv() {
        assert_eq!((id, &*kind, &*queue), (job.id, "fetch", "default"));
        story.push((at.since(begin).as_secs(), told(&what)));
    }
    let expected = [
        (0, "enqueued".to_owned()),
        (0, "started 1".to_owned()),
        (0, "retry after 1, 1 failed: run 1 met a closed door".to_owned()),
        (10, "started 2".to_owned()),
        (10, "retry after 2, 2 failed: run 2 met a closed door".to_owned()),
        (30, "started 3".to_owned()),
        (30, "succeeded at 3 after 2".to_owned()),
    ];
    assert_eq!(story, expected);
}

fn told(what: &Happening) -> String {
    match what {
        Happening::Enqueued => "enqueued".into(),
        Happening::Started { attempt } => format!("started {attempt}"),
        Happening::RetryScheduled { attempt, failures, failure, .. } => {
            let error = failure.as_ref().map_or("", |failure| &failure.message);
            format!("retry after {attempt}, {failures} failed: {error}")
        }
        Happening::Succeeded { attempt, failures } => format!("succeeded at {attempt} after {failures}"),
        other => format!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_job_is_told_of_under_the_id_it_has() {
    let (builder, _) = builder();
    let engine = builder.build().unwrap();
    let mut events = engine.events();
    let new = || NewJob::from(Fetch { failing: 0 }).after(mins(1)).key("one");
    let first = engine.enqueue(new()).await.unwrap();
    let second = engine.enqueue(new().on_conflict(OnConflict::Replace)).await.unwrap();
    let third = engine.enqueue(new()).await.unwrap();
    assert_eq!([second.how, third.how], [How::Replaced, How::Existing]);
    for _ in 0..2 {
        assert_eq!(events.try_recv().unwrap().job, first.id);
    }
    assert!(events.try_recv().is_err(), "a job that was there already is no news");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_sent_again_is_told_of_once() {
    let (builder, _) = builder();
    let engine = builder.build().unwrap();
    let mut events = engine.events();
    let call = || Call { key: "order 7".into(), digest: "the same".into() };
    let new = || [NewJob::from(Fetch { failing: 0 })];
    let first = engine.enqueue_once(call(), new()).await.unwrap();
    assert_eq!(engine.enqueue_once(call(), new()).await.unwrap(), first);
    assert_eq!(events.try_recv().unwrap().job, first[0].id);
    assert!(events.try_recv().is_err(), "the same answer is no news");
}

#[tokio::test(start_paused = true)]
async fn events_of_commands_name_the_job() {
    let (builder, _) = builder();
    let engine = builder.build().unwrap();
    let job = engine.enqueue(NewJob::from(Fetch { failing: 0 }).after(days(1))).await.unwrap();
    let mut events = engine.events();
    engine.retry_now(job.id).await.unwrap();
    engine.cancel(job.id).await.unwrap();
    engine.redrive(job.id).await.unwrap();
    engine.cancel(job.id).await.unwrap();
    engine.delete(job.id).await.unwrap();
    let mut story = Vec::new();
    while let Ok(event) = events.try_recv() {
        assert_eq!(event.job, job.id);
        story.push(format!("{:?}", event.what));
    }
    assert_eq!(story, ["Retried", "Cancelled", "Redriven", "Cancelled", "Deleted"]);
}

// ---- the log ----------------------------------------------------------------------------------------------------

/// What was logged, as JSON lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Captures what this thread logs while the guard lives.
    fn capture(level: Level) -> (Lines, tracing::subscriber::DefaultGuard) {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// Level, message and fields of each line.
    fn read(&self) -> Vec<(String, String, Value)> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|line| {
                let word = |value: &Value| value.as_str().unwrap().to_owned();
                (word(&line["level"]), word(&line["fields"]["message"]), line["fields"].clone())
            })
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_of_queueing_retries_and_the_success_that_follows() {
    let (lines, _guard) = Lines::capture(Level::DEBUG);
    let (builder, clock) = builder();
    let engine = builder.build().unwrap();
    let begin = clock.now();
    let job = engine.enqueue(Fetch { failing: 2 }).await.unwrap();
    engine.drain().await.unwrap();
    let mut lines = lines.read();
    lines.retain(|(level, message, _)| level == "INFO" || message == "Job queued");
    let said: Vec<(&str, &str)> =
        lines.iter().map(|(level, message, _)| (level.as_str(), message.as_str())).collect();
    let expected = [
        ("DEBUG", "Job queued"),
        ("INFO", "Retry scheduled (retry 1 of 3)"),
        ("INFO", "Retry scheduled (retry 2 of 3)"),
        ("INFO", "Retry succeeded"),
    ];
    assert_eq!(said, expected);
    for (_, _, fields) in &lines {
        assert_eq!((&fields["job_id"], &fields["kind"]), (&job.id.to_string().into(), &"fetch".into()));
    }
    assert_eq!(lines[0].2["next_attempt"], begin.to_string());
    let retry = &lines[2].2;
    assert_eq!((&retry["attempt"], &retry["delay_ms"]), (&2.into(), &20_000.into()));
    assert_eq!(retry["next_attempt"], (begin + secs(30)).to_string());
    assert_eq!(retry["error"], "run 2 met a closed door");
    assert_eq!((&retry["class"], &retry["rule"]), (&"transient".into(), &"status 503".into()));
    assert_eq!(lines[3].2["attempts"], 3);
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_of_a_retry_that_is_queued_because_something_failed_outside() {
    let (lines, _guard) = Lines::capture(Level::INFO);
    let (builder, clock) = builder();
    let engine = builder.build().unwrap();
    let first_run = clock.now() + secs(10);
    let outside = Failure::retry("it met a closed door elsewhere");
    let job = engine.enqueue(NewJob::from(Fetch { failing: 0 }).failed_outside(outside)).await.unwrap();
    let (level, message, fields) = lines.read().remove(0);
    assert_eq!((level.as_str(), message.as_str()), ("INFO", "Retry queued"));
    assert_eq!((&fields["job_id"], &fields["kind"]), (&job.id.to_string().into(), &"fetch".into()));
    assert_eq!(fields["next_attempt"], first_run.to_string());
}

#[tokio::test(start_paused = true)]
async fn the_log_warns_once_of_a_job_that_needs_a_person_and_says_why() {
    let (lines, _guard) = Lines::capture(Level::INFO);
    let (builder, _) = builder();
    let engine = builder.build().unwrap();
    engine.enqueue(Fetch { failing: 99 }).await.unwrap();
    engine.drain().await.unwrap();
    let warnings: Vec<_> = lines.read().into_iter().filter(|(level, ..)| level == "WARN").collect();
    assert_eq!(warnings.len(), 1);
    let (_, message, fields) = &warnings[0];
    assert_eq!(message, "Job dead: it needs a person");
    assert_eq!((&fields["attempts"], &fields["reason"]), (&4.into(), &"exhausted".into()));
    assert_eq!(fields["error"], "run 4 met a closed door");
}

#[tokio::test(start_paused = true)]
async fn the_detailed_log_has_the_attempts_and_the_waits() {
    let (lines, _guard) = Lines::capture(Level::DEBUG);
    let (builder, _) = builder();
    let engine = builder.build().unwrap();
    engine.enqueue(Fetch { failing: 99 }).await.unwrap();
    engine.drain().await.unwrap();
    let said: Vec<String> = lines.read().into_iter().map(|(_, message, _)| message).collect();
    for line in ["Attempt started", "Waiting 20s before retry", "Not retrying"] {
        assert!(said.iter().any(|message| message == line), "{line:?} is not in {said:#?}");
    }
}

// ---- numbers ----------------------------------------------------------------------------------------------------

/// Builds an engine whose numbers this test alone can read.
fn measured(builder: impl FnOnce() -> Builder) -> (Engine, Snapshotter) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // Counters are looked up when handlers are registered, so the recorder has to be there by then.
    let engine = metrics::with_local_recorder(&recorder, || builder().build().unwrap());
    (engine, snapshotter)
}

fn numbers(snapshotter: &Snapshotter) -> BTreeMap<String, Vec<f64>> {
    let snapshot = snapshotter.snapshot().into_vec().into_iter();
    snapshot
        .map(|(key, _, _, value)| {
            let key = key.key();
            let labels: Vec<String> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let values = match value {
                DebugValue::Counter(count) => vec![count as f64],
                DebugValue::Gauge(gauge) => vec![gauge.into_inner()],
                DebugValue::Histogram(values) => values.into_iter().map(|value| value.into_inner()).collect(),
            };
            (format!("{}{{{}}}", key.name(), labels.join(",")), values)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn metrics_count_attempts_retries_and_deaths_by_kind() {
    let (engine, snapshotter) = measured(|| builder().0);
    engine.enqueue(Fetch { failing: 2 }).await.unwrap();
    engine.enqueue(Fetch { failing: 99 }).await.unwrap();
    engine.drain().await.unwrap();
    let numbers = numbers(&snapshotter);
    let count = |name: &str| numbers[name][0];
    assert_eq!(count("redrive_attempts_total{kind=fetch,outcome=succeeded}"), 1.0);
    assert_eq!(count("redrive_attempts_total{kind=fetch,outcome=failed}"), 6.0);
    assert_eq!(count("redrive_retries_total{kind=fetch}"), 5.0);
    assert_eq!(count("redrive_dead_total{kind=fetch}"), 1.0);
    assert_eq!(numbers["redrive_attempt_duration_seconds{kind=fetch}"].len(), 7);
    assert_eq!(numbers["redrive_schedule_lag_seconds{kind=fetch}"], [0.0; 7], "never late on this clock");
}

#[tokio::test(start_paused = true)]
async fn a_report_that_came_too_late_is_not_counted_as_what_it_would_have_been() {
    let (engine, snapshotter) = measured(|| {
        Engine::builder(MemoryStore::new())
            .clock(testing::clock())
            .handle(|_: Attempt<Fetch>| std::future::pending::<()>())
    });
    let mut events = engine.events();
    let job = engine.enqueue(Fetch { failing: 0 }).await.unwrap();
    let (runner, id) = (engine.clone(), job.id);
    let canceller = async {
        while !matches!(events.recv().await.unwrap().what, Happening::Started { .. }) {}
        engine.cancel(id).await.unwrap();
        while !matches!(events.recv().await.unwrap().what, Happening::LeaseLost { .. }) {}
    };
    runner.run(canceller).await.unwrap();
    let numbers = numbers(&snapshotter);
    assert_eq!(numbers["redrive_attempts_total{kind=fetch,outcome=other}"], [1.0]);
    for name in
        ["attempts_total{kind=fetch,outcome=failed}", "retries_total{kind=fetch}", "dead_total{kind=fetch}"]
    {
        assert_eq!(numbers[&format!("redrive_{name}")], [0.0], "{name}");
    }
}

/// A success after two retries, a death after three, a first success, on this store; then all that can be is pruned.
async fn totals_on(store: Arc<dyn Store>) -> (Tally, Tally) {
    let clock = testing::clock();
    let policy = Policy::linear(secs(10), secs(10)).no_jitter().retries(3);
    let engine = Engine::on(store.clone())
        .clock(clock.clone())
        .queue(Queue::new("default").policy(policy))
        .handle(fetch)
        .build()
        .unwrap();
    engine.enqueue_all([2, 99, 0].map(|failing| Fetch { failing })).await.unwrap();
    let fixed = NewJob::from(Fetch { failing: 1 }).policy(Policy::fixed(secs(1)).attempts(2));
    engine.enqueue(fixed).await.unwrap();
    engine.drain().await.unwrap();
    let before = engine.counts().await.unwrap()[0].totals;
    let gone = Retention { dead: Some(days(1)), ..Retention::default() };
    while store.prune(&gone, clock.now() + days(400), 100).await.unwrap() > 0 {}
    let left = engine.list(&Filter::default(), redrive::Page::default()).await.unwrap();
    assert!(left.jobs.is_empty(), "every row is gone");
    (before, engine.counts().await.unwrap()[0].totals)
}

fn assert_totals(totals: &Tally) {
    assert_eq!((totals.enqueued, totals.succeeded, totals.recovered, totals.dead), (4, 3, 2, 1));
    assert_eq!((totals.failures, totals.retries), (2 + 4 + 1, 2 + 3 + 1));
    assert_eq!(totals.delay_ms, 1_000 * (10 + 20 + 10 + 20 + 30 + 1));
    assert_eq!(totals.success_rate(), Some(0.75));
    let by_backoff: BTreeMap<_, _> = Tally::BACKOFFS.into_iter().zip(totals.retries_by_backoff).collect();
    assert_eq!((by_backoff["linear"], by_backoff["fixed"], by_backoff["exponential"]), (5, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn totals_add_up_and_outlive_the_jobs_they_count() {
    let (before, after) = totals_on(Arc::new(MemoryStore::new())).await;
    assert_totals(&before);
    assert_eq!(before, after);
}

#[tokio::test]
async fn totals_on_sqlite_are_the_same_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    // The work of a minute, at once: `sleep` on a paused clock would run ahead of the file's own thread.
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).await.unwrap());
    let engine = Engine::on(store)
        .queue(Queue::new("default").policy(Policy::immediate().retries(3)))
        .handle(fetch)
        .build()
        .unwrap();
    engine.enqueue_all([2, 99, 0].map(|failing| Fetch { failing })).await.unwrap();
    engine.drain().await.unwrap();
    let before = engine.counts().await.unwrap()[0].totals;
    assert_eq!((before.succeeded, before.recovered, before.dead, before.retries), (2, 1, 1, 5));
    let left = engine.apply(Command::Delete, &Filter::default()).await.unwrap();
    assert_eq!(left, 3);
    drop(engine);
    let engine = Engine::builder(SqliteStore::open(&path).await.unwrap()).handle(fetch).build().unwrap();
    let after = engine.counts().await.unwrap();
    assert_eq!((after[0].totals, after[0].dead), (before, 0));
}

// ---- the activity log -------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn the_activity_log_has_what_a_person_wants_to_know_newest_first() {
    let (builder, clock) = builder();
    let engine = builder.build().unwrap();
    let begin = clock.now();
    engine.enqueue(Fetch { failing: 0 }).await.unwrap();
    engine.enqueue(Fetch { failing: 1 }).await.unwrap();
    let dead = engine.enqueue(Fetch { failing: 99 }).await.unwrap();
    engine.drain().await.unwrap();
    engine.redrive(dead.id).await.unwrap();
    engine.cancel(dead.id).await.unwrap();
    let lines = engine.activity(10).await.unwrap();
    let told: Vec<(What, &str)> = lines.iter().map(|line| (line.what, line.message.as_str())).collect();
    let expected = [
        (What::Cancelled, "by hand, while it was waiting"),
        (What::Redriven, "by hand, while it was dead"),
        (What::Dead, "needs a person (exhausted) after run 4: run 4 met a closed door"),
        (What::Recovered, "finished at run 2, after 1 failure"),
    ];
    assert_eq!(told, expected, "a first success and a planned retry are no news");
    assert_eq!((lines[2].job, lines[2].at), (dead.id, begin + secs(60)));
    assert_eq!(engine.activity(1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_job_that_failed_outside_and_finishes_at_its_first_run_has_come_through() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("jobs.db")).await.unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(sqlite)];
    for store in stores {
        let engine = Engine::on(store).handle(fetch).build().unwrap();
        let mut events = engine.events();
        let outside = Failure::retry("no answer");
        let policy = Policy::immediate().retries(4);
        let late = NewJob::from(Fetch { failing: 0 }).policy(policy).failed_outside(outside);
        // Beside others, so that they are settled together.
        engine.enqueue_all([late, Fetch { failing: 0 }.into(), Fetch { failing: 0 }.into()]).await.unwrap();
        engine.drain().await.unwrap();
        let lines = engine.activity(10).await.unwrap();
        let told: Vec<(What, &str)> = lines.iter().map(|line| (line.what, line.message.as_str())).collect();
        assert_eq!(told, [(What::Recovered, "finished at run 1, after 1 failure")]);
        let totals = engine.counts().await.unwrap()[0].totals;
        assert_eq!((totals.succeeded, totals.recovered, totals.failures), (3, 1, 0));
        let mut after = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let Happening::Succeeded { failures, .. } = event.what {
                after.push(failures);
            }
        }
        after.sort_unstable();
        assert_eq!(after, [0, 0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_activity_log_is_bounded() {
    let (builder, _) = builder();
    let engine = builder.build().unwrap();
    let job = engine.enqueue(NewJob::from(Fetch { failing: 0 }).after(days(1))).await.unwrap();
    for _ in 0..ACTIVITY_MAX / 2 + 10 {
        engine.cancel(job.id).await.unwrap();
        engine.redrive(job.id).await.unwrap();
    }
    let most = usize::try_from(ACTIVITY_MAX).unwrap();
    assert_eq!(engine.activity(usize::MAX).await.unwrap().len(), most);
}

#[tokio::test(start_paused = true)]
async fn queues_are_counted_by_state() {
    let (builder, _) = builder();
    let engine = builder.queue(Queue::new("other")).build().unwrap();
    engine.enqueue(Fetch { failing: 99 }).await.unwrap();
    engine.enqueue(NewJob::from(Fetch { failing: 0 }).queue("other").after(days(1))).await.unwrap();
    engine.drain_due().await.unwrap();
    engine.pause("other").await.unwrap();
    let seen = |name: &str, counts: &[redrive::QueueCounts]| {
        let counts = counts.iter().find(|counts| &*counts.queue == name).expect("it is known").clone();
        (counts.waiting, counts.running, counts.dead, counts.paused)
    };
    let counts = engine.counts().await.unwrap();
    assert_eq!(seen("default", &counts), (1, 0, 0, false));
    assert_eq!(seen("other", &counts), (1, 0, 0, true));
    engine.drain().await.unwrap();
    assert_eq!(seen("default", &engine.counts().await.unwrap()), (0, 0, 1, false));
    let dead: Vec<Job> =
        engine.list(&Filter::state(StateName::Dead), redrive::Page::default()).await.unwrap().jobs;
    assert!(matches!(dead[0].state, State::Dead { why: GiveUp::Exhausted, .. }));
}

#[tokio::test(start_paused = true)]
async fn what_workers_elsewhere_do_is_counted_under_one_name() {
    let (engine, snapshotter) = measured(|| builder().0.produce_any());
    let worker = engine.join("worker", secs(60)).await.unwrap();
    let kinds: redrive::Kinds = ["mail".into(), "sms".into()].into();
    let asked = Lending { worker, kinds, queues: Vec::new(), limit: 1, wait: Duration::ZERO };
    for (kind, outcome) in [
        ("mail", Outcome::Done(None)),
        ("sms", Outcome::Failed(Failure::permanent("no such number"))),
        ("sms", Outcome::Failed(Failure::retry("busy"))),
    ] {
        engine.enqueue(NewJob::of_kind(kind, Json::of("x").unwrap())).await.unwrap();
        let leased = engine.lease(&asked).await.unwrap();
        engine.report(leased[0].0, outcome).await.unwrap();
    }
    let numbers = numbers(&snapshotter);
    let count = |name: &str| numbers[name][0];
    assert_eq!(count("redrive_attempts_total{kind=(workers),outcome=succeeded}"), 1.0);
    assert_eq!(count("redrive_attempts_total{kind=(workers),outcome=failed}"), 2.0);
    assert_eq!(count("redrive_dead_total{kind=(workers)}"), 1.0);
    assert_eq!(count("redrive_retries_total{kind=(workers)}"), 1.0);
    assert_eq!(numbers["redrive_schedule_lag_seconds{kind=(workers)}"].len(), 3);
}
