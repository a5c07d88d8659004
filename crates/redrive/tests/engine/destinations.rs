//! Destinations: held while they are down, asked by one job, let go along a ramp; limited as they are said to be.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::{
    Attempt, Builder, Clock, Ending, Engine, Failure, Limits, NewJob, Phase, Policy, Queue, Rate, Reason,
    State, StateName, Timestamp, Why, Word, hours, millis, mins, secs,
};

use super::kit::{Diary, Task, detail, paused, start, task};

const DOOR: &str = "api.example.org";

/// A destination: what it does with a call, and when it was called.
#[derive(Clone)]
struct Door {
    clock: Clock,
    calls: Diary<(String, Timestamp)>,
    answer: Arc<Mutex<Result<(), Failure>>>,
    takes: Duration,
    at_once: Arc<AtomicUsize>,
    most_at_once: Arc<AtomicUsize>,
}

impl Door {
    fn new(clock: &Clock, takes: Duration) -> Door {
        Door {
            clock: clock.clone(),
            calls: Diary::new(),
            answer: Arc::new(Mutex::new(Ok(()))),
            takes,
            at_once: Arc::default(),
            most_at_once: Arc::default(),
        }
    }

    fn answers(&self, with: Result<(), Failure>) {
        *self.answer.lock().unwrap() = with;
    }

    async fn call(self, attempt: Attempt<Task>) -> Result<(), Failure> {
        self.calls.note((attempt.payload.name.clone(), self.clock.now()));
        let there = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(there, Ordering::SeqCst);
        tokio::time::sleep(self.takes).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        self.answer.lock().unwrap().clone()
    }

    fn times(&self) -> Vec<Timestamp> {
        self.calls.entries().into_iter().map(|(_, at)| at).collect()
    }
}

fn with_door(takes: Duration) -> (Builder, Clock, Door) {
    let (builder, clock) = paused();
    let door = Door::new(&clock, takes);
    let handler = door.clone();
    (builder.handle(move |attempt: Attempt<Task>| handler.clone().call(attempt)), clock, door)
}

fn call(name: impl Into<String>) -> NewJob {
    NewJob::from(task(name)).destination(DOOR)
}

fn is_down() -> Result<(), Failure> {
    Err(Failure::from_status(503, "down"))
}

async fn phase(engine: &Engine) -> Option<Phase> {
    let found = engine.destinations().await.unwrap();
    found.into_iter().find(|one| &*one.name == DOOR).map(|one| one.gate.phase)
}

async fn states(engine: &Engine) -> [usize; 3] {
    let mut counts = [0; 3];
    for (count, state) in counts.iter_mut().zip([StateName::Waiting, StateName::Succeeded, StateName::Dead]) {
        *count = engine.count(&redrive::Filter::state(state), 10_000).await.unwrap();
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_down_costs_its_jobs_nothing_whatever_their_policy() {
    for policy in [
        Policy::preset("feed").unwrap(),
        Policy::preset("download").unwrap(),
        Policy::fixed(secs(1)).retries(3),
    ] {
        let (builder, _, door) = with_door(millis(20));
        let engine = builder.queue(Queue::new("default").policy(policy).concurrency(8)).build().unwrap();
        door.answers(is_down());
        let running = start(&engine);
        let jobs = engine.enqueue_all((0..150).map(|n| call(format!("{n}")))).await.unwrap();
        tokio::time::sleep(secs(1)).await;
        let before = door.calls.entries().len();
        assert!(before <= 10 + 8, "{before} calls until it was found to be down");
        tokio::time::sleep(mins(30)).await;
        let asked = door.calls.entries().len() - before;
        assert!((10..=40).contains(&asked), "{asked} calls to a destination that is down");
        let [waiting, done, dead] = states(&engine).await;
        assert_eq!((waiting + done, dead), (150, 0));
        let mut failures = 0;
        for job in &jobs {
            let found = detail(&engine, job.id).await;
            failures += found.job.ledger.failures;
            assert!(found.attempts.iter().all(|record| record.failure.is_some()));
        }
        assert!(failures < 10, "{failures} failures were counted before it was found to be down");
        door.answers(Ok(()));
        tokio::time::sleep(mins(10)).await;
        assert_eq!(states(&engine).await, [0, 150, 0]);
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_says_so_and_why() {
    let (builder, _, door) = with_door(millis(20));
    let engine = builder.build().unwrap();
    door.answers(is_down());
    let running = start(&engine);
    engine.enqueue_all((0..30).map(|n| call(format!("{n}")))).await.unwrap();
    tokio::time::sleep(secs(10)).await;
    let later = engine.enqueue(call("later")).await.unwrap();
    tokio::time::sleep(millis(100)).await;
    let found = detail(&engine, later.id).await;
    assert!(matches!(found.job.state, State::Waiting { reason: Reason::Held, .. }), "{:?}", found.job.state);
    assert_eq!(found.job.ledger.attempt, 0);
    assert!(matches!(phase(&engine).await, Some(Phase::Shut { why: Why::Failing, .. })));
    let held = engine.destinations().await.unwrap()[0].held;
    assert!((20..=31).contains(&held), "{held}");
    let lines = engine.activity(100).await.unwrap();
    assert!(lines.iter().any(|line| line.message.contains("api.example.org is down")), "{lines:?}");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_ramp_doubles_and_a_relapse_shuts_it_again() {
    let (builder, clock, door) = with_door(millis(10));
    let engine = builder.queue(Queue::new("default").concurrency(500)).build().unwrap();
    door.answers(is_down());
    let running = start(&engine);
    engine.enqueue_all((0..600).map(|n| call(format!("{n}")))).await.unwrap();
    tokio::time::sleep(mins(1)).await;
    door.answers(Ok(()));
    let before = door.calls.entries().len();
    let mut back = clock.now();
    while !matches!(phase(&engine).await, Some(Phase::Ramp { .. })) {
        tokio::time::sleep(millis(50)).await;
        back = clock.now();
    }
    tokio::time::sleep(secs(5)).await;
    let times: Vec<Timestamp> = door.times().split_off(before);
    let within = |from: u64| {
        let (from, until) = (back + secs(from), back + secs(from + 1));
        times.iter().filter(|at| (from..until).contains(at)).count()
    };
    assert!(within(0) <= 4, "a few at first: {}", within(0));
    assert!((1..5).all(|second| within(second) <= 3 * within(second - 1).max(1)), "it doubles, more or less");
    assert!(within(4) >= 8, "and goes on: {}", within(4));
    door.answers(is_down());
    tokio::time::sleep(secs(5)).await;
    assert!(matches!(phase(&engine).await, Some(Phase::Shut { .. })), "{:?}", phase(&engine).await);
    door.answers(Ok(()));
    tokio::time::sleep(mins(5)).await;
    assert_eq!(states(&engine).await, [0, 600, 0]);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_holds_everything_for_that_destination_and_nothing_else() {
    let (builder, clock, door) = with_door(millis(10));
    let engine = builder.queue(Queue::new("default").concurrency(1)).build().unwrap();
    door.answers(Err(Failure::retry_after(secs(5), "429")));
    let running = start(&engine);
    let first = engine.enqueue(call("first")).await.unwrap();
    tokio::time::sleep(millis(100)).await;
    let shut_at = door.times()[0] + millis(10);
    door.answers(Ok(()));
    engine.enqueue(call("second")).await.unwrap();
    engine.enqueue(NewJob::from(task("elsewhere")).destination("other.example.org")).await.unwrap();
    tokio::time::sleep(secs(4)).await;
    let names: Vec<_> = door.calls.entries().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["first", "elsewhere"]);
    tokio::time::sleep(secs(5)).await;
    let late: Vec<Timestamp> = door.times().split_off(2);
    assert_eq!(late.len(), 2);
    assert!(late.iter().all(|at| *at >= shut_at + secs(5)), "{late:?} {shut_at:?}");
    let found = detail(&engine, first.id).await;
    assert_eq!((found.job.ledger.failures, found.job.ledger.holds), (0, 1), "it costs nothing");
    assert_eq!(found.attempts[0].ending, Ending::Held);
    assert!(clock.now() > shut_at);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_used_and_never_exceeded_by_more_than_its_burst() {
    let (builder, _, door) = with_door(millis(5));
    let limits = Limits { rate: Some(Rate::per_second(50)), ..Limits::default() };
    let engine = builder.destination("*.example.org", limits).build().unwrap();
    engine.enqueue_all((0..500).map(|n| call(format!("{n}")))).await.unwrap();
    engine.drain().await.unwrap();
    let times = door.times();
    let (begin, end) = (times[0], *times.last().unwrap());
    for from in &times {
        let there = times.iter().filter(|at| (*from..*from + secs(1)).contains(*at)).count();
        assert!(there <= 55, "{there} in one second");
    }
    let took = end.since(begin).as_secs_f64();
    assert!((9.5..10.5).contains(&took), "500 at 50/s took {took} s");
}

#[tokio::test(start_paused = true)]
async fn a_minimum_gap_is_kept_between_any_two() {
    let (builder, _, door) = with_door(millis(5));
    let limits = Limits { min_gap: Some(secs(5)), ..Limits::default() };
    let engine = builder.destination(DOOR, limits).build().unwrap();
    engine.enqueue_all((0..12).map(|n| call(format!("{n}")))).await.unwrap();
    engine.drain().await.unwrap();
    let times = door.times();
    assert_eq!(times.len(), 12);
    for pair in times.windows(2) {
        let gap = pair[1].since(pair[0]);
        assert!((secs(5)..secs(6)).contains(&gap), "{gap:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_so_many_calls_are_under_way() {
    let (builder, _, door) = with_door(millis(100));
    let limits = Limits { concurrency: Some(3), ..Limits::default() };
    let engine = builder.destination(DOOR, limits).build().unwrap();
    engine.enqueue_all((0..30).map(|n| call(format!("{n}")))).await.unwrap();
    engine.drain().await.unwrap();
    assert_eq!(door.most_at_once.load(Ordering::SeqCst), 3);
    assert_eq!(states(&engine).await, [0, 30, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_to_be_down_waits_until_it_is_said_to_be_up_and_goes_in_order() {
    let (builder, clock, door) = with_door(millis(5));
    let queue = Queue::new("default").fifo().policy(Policy::fixed(mins(10)).retries(3));
    let engine = builder.queue(queue).build().unwrap();
    door.answers(is_down());
    let running = start(&engine);
    engine.enqueue(call("0")).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    engine.say(DOOR, Word::Down).await.unwrap();
    engine.enqueue_all((1..40).map(|n| call(format!("{n}")))).await.unwrap();
    door.answers(Ok(()));
    tokio::time::sleep(mins(5)).await;
    assert_eq!(door.calls.entries().len(), 1, "held, and nobody asks");
    let up = clock.now();
    engine.say(DOOR, Word::Up).await.unwrap();
    tokio::time::sleep(mins(1)).await;
    let after: Vec<_> = door.calls.entries().split_off(1);
    assert!(after[0].1.since(up) <= millis(100), "{:?}", after[0].1.since(up));
    let names: Vec<_> = after.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paused_destination_lets_nothing_go_until_it_is_resumed() {
    let (builder, _, door) = with_door(millis(5));
    let engine = builder.build().unwrap();
    let running = start(&engine);
    engine.say(DOOR, Word::Pause).await.unwrap();
    engine.enqueue(call("one")).await.unwrap();
    tokio::time::sleep(mins(20)).await;
    assert!(door.times().is_empty());
    engine.say(DOOR, Word::Resume).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(door.times().len(), 1);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn retries_stay_within_their_budget_and_first_attempts_are_unhurt() {
    let (builder, clock) = paused();
    let diary: Diary<(bool, Timestamp)> = Diary::new();
    let (notes, watch) = (diary.clone(), clock.clone());
    let count = Arc::new(AtomicUsize::new(0));
    let handler = move |attempt: Attempt<Task>| {
        let is_retry = attempt.job().ledger.failures > 0;
        notes.note((is_retry, watch.now()));
        // Every other one fails, so that the destination is never found to be down.
        let fails = is_retry || count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        async move { if fails { Err(Failure::from_status(500, "overloaded")) } else { Ok(()) } }
    };
    let policy = Policy::fixed(millis(500)).retries(1_000);
    let limits = Limits { breaker: 0, ..Limits::default() };
    let engine = builder
        .queue(Queue::new("default").policy(policy).concurrency(1_000))
        .destination(DOOR, limits)
        .handle(handler)
        .build()
        .unwrap();
    let running = start(&engine);
    for second in 0..20 {
        engine.enqueue_all((0..20).map(|n| call(format!("{second}.{n}")))).await.unwrap();
        tokio::time::sleep(secs(1)).await;
    }
    let calls = diary.entries();
    let begin = calls[0].1;
    let retries = calls.iter().filter(|(is_retry, _)| *is_retry).count();
    let firsts = calls.iter().filter(|(is_retry, _)| !*is_retry).count();
    assert_eq!(firsts, 400, "first attempts are unhurt");
    let allowed = firsts / 5 + 10 * 20 + 20;
    assert!(retries <= allowed, "{retries} retries where {allowed} are allowed");
    assert!(retries >= allowed / 2, "{retries} retries: they are postponed, not given up");
    let slow = calls.iter().filter(|(is_retry, at)| !is_retry && at.since(begin).as_millis() % 1_000 > 50);
    assert_eq!(slow.count(), 0, "a first attempt goes at once");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_is_not_accepted_parks_its_own_jobs_until_it_is_renewed() {
    let (builder, _) = paused();
    let good = Arc::new(AtomicBool::new(false));
    let known = good.clone();
    let handler = move |_: Attempt<Task>| {
        let good = known.load(Ordering::SeqCst);
        async move { if good { Ok(()) } else { Err(Failure::needs_auth("401")) } }
    };
    let engine = builder.handle(handler).build().unwrap();
    let running = start(&engine);
    let to = |name: &str, to: &str| NewJob::from(task(name)).destination(to);
    let parked = engine.enqueue(to("a", "api.example.org#crm")).await.unwrap();
    let alone = engine.enqueue(to("b", "api.example.org")).await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert!(matches!(
        detail(&engine, parked.id).await.job.state,
        State::Waiting { reason: Reason::Held, .. }
    ));
    assert_eq!(
        detail(&engine, alone.id).await.job.state.name(),
        StateName::Dead,
        "it has no credential to renew"
    );
    good.store(true, Ordering::SeqCst);
    assert_eq!(engine.renewed("crm").await.unwrap(), 1);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(detail(&engine, parked.id).await.job.state.name(), StateName::Succeeded);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn limits_can_be_set_while_it_runs_and_bad_ones_are_refused() {
    let (builder, _, door) = with_door(millis(5));
    let engine = builder.build().unwrap();
    let running = start(&engine);
    let slow = Limits { min_gap: Some(secs(5)), ..Limits::default() };
    engine.limit("*.example.org", Some(slow.clone())).await.unwrap();
    engine.enqueue_all((0..3).map(|n| call(format!("{n}")))).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(door.times().len(), 1);
    engine.limit("*.example.org", None).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(door.times().len(), 3, "at once, when the limit is gone");
    let both = Limits { rate: Some(Rate::per_second(1)), ..slow };
    let error = engine.limit("a.*.b", Some(both)).await.unwrap_err().to_string();
    assert!(error.contains("not a pattern") && error.contains("min_gap"), "{error}");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_destination_is_left_alone_no_longer_than_the_policy_heeds_what_it_asks_for() {
    let (builder, _, door) = with_door(millis(10));
    let engine = builder.queue(Queue::new("default").concurrency(1)).build().unwrap();
    door.answers(Err(Failure::retry_after(hours(1), "429")));
    let mut policy = Policy::fixed(secs(1)).retries(9);
    policy.retry_after.max = secs(5);
    let running = start(&engine);
    let job = engine.enqueue(call("first").policy(policy)).await.unwrap();
    tokio::time::sleep(millis(100)).await;
    door.answers(Ok(()));
    tokio::time::sleep(secs(10)).await;
    let times = door.times();
    assert_eq!(times.len(), 2, "{times:?}");
    assert!(times[1].since(times[0]) >= secs(5), "{times:?}");
    assert_eq!(detail(&engine, job.id).await.job.state.name(), StateName::Succeeded);
    running.stop().await.unwrap();
}
