//! What is promised of a recovery, on the virtual clock and in small. `make soak` runs it as large as docs/concepts has it,
//! with `REDRIVE_SIMULATE=full`.

#![expect(clippy::disallowed_methods, reason = "how large the tests are is said by whoever starts them")]

use std::time::Duration;

use redrive::{Policy, mins, secs};

use super::*;

fn is_full() -> bool {
    std::env::var("REDRIVE_SIMULATE").is_ok_and(|size| size == "full")
}

/// A scenario with one outage. Where it is not to be large, a fifth of everything.
fn scenario(arrivals: f64, capacity: f64, outage: Duration) -> Scenario {
    let share = if is_full() { 1.0 } else { 0.2 };
    let outage = if is_full() { outage } else { outage / 10 };
    Scenario {
        arrivals: PerSecond(arrivals * share),
        capacity: PerSecond(capacity * share),
        outage: vec![Spell { begin: Some(secs(if is_full() { 60 } else { 15 })), length: outage }],
        ..Scenario::default()
    }
}

#[test]
fn half_an_hour_of_nothing_costs_no_failure_no_job_and_forty_calls_whatever_the_preset() {
    let presets = if is_full() { Policy::PRESETS } else { &["feed", "download", "workflow-default"] };
    for preset in presets {
        let scenario = Scenario {
            preset: (*preset).to_owned(),
            jobs: if is_full() { 50_000 } else { 1_000 },
            arrivals: PerSecond(0.0),
            capacity: PerSecond(300.0),
            outage: vec![Spell { begin: None, length: mins(30) }],
            concurrency: 16,
            ..Scenario::default()
        };
        let course = simulate_ours(&scenario).unwrap();
        assert!(course.calls_during_outage <= 16 + 40, "{preset}: {} calls", course.calls_during_outage);
        assert!(
            course.failures < 10,
            "{preset}: {} failures before it was found to be down",
            course.failures
        );
        assert_eq!(course.dead, 0, "{preset}");
        // What failed before it was found to be down waits as its policy says, and there that is a week.
        let waits = if *preset == "workflow-long" { course.failures } else { 0 };
        assert!(course.done + waits >= scenario.jobs, "{preset}: {} were done in the end", course.done);
    }
}

#[test]
fn a_recovery_stays_within_what_is_borne_and_is_nearly_as_fast_as_it_could_be() {
    // What it bears after the outage is more than before, less than before, and far more.
    for (capacity, after) in [(300.0, None), (250.0, None), (1_000.0, None), (400.0, Some(250.0))] {
        let mut scenario = scenario(200.0, capacity, mins(10));
        let share = scenario.capacity.0 / capacity;
        scenario.capacity_after = after.map(|after| PerSecond(after * share));
        let course = simulate_ours(&scenario).unwrap();
        let bears = after.unwrap_or(capacity) * share;
        // In small a burst is a large part of a second.
        let burst = if is_full() { 0.0 } else { (bears / 25.0).ceil() };
        let peak = course.peak_per_s as f64 / bears;
        let after_signal = (course.peak_after_signal as f64 - burst) / bears;
        assert!(peak < 1.5, "{capacity}: {peak} times what it bears");
        assert!(after_signal <= 1.2, "{capacity}: {after_signal} times what it bears, after it said so");
        let (took, ideal) = (course.drain_s.unwrap(), course.ideal_drain_s.unwrap());
        // In small the time until it is asked, and the ramp, are a large part of it.
        let slack = if is_full() { 0.0 } else { 25.0 };
        assert!(took <= ideal * 1.25 + slack, "{capacity}: drained in {took} s where {ideal} s are ideal");
        assert_eq!(course.dead, 0, "{capacity}");
    }
}

#[test]
fn nobody_else_wastes_less_stays_lower_drains_sooner_or_keeps_more_jobs() {
    for (capacity, seed) in [(300.0, 1), (250.0, 2), (1_000.0, 3)] {
        let scenario = Scenario { seed, ..scenario(200.0, capacity, mins(10)) };
        let courses = simulate(&scenario, &|_, _| ()).unwrap();
        let (ours, others) = courses.split_first().unwrap();
        assert_eq!(ours.name, "redrive");
        let over = |course: &Course| (course.peak_per_s as f64 - scenario.capacity.0).max(0.0);
        let drain = |course: &Course| course.drain_s.unwrap_or(f64::INFINITY);
        for other in others {
            let name = &other.name;
            assert!(ours.wasted() < other.wasted(), "{name}: {} {}", ours.wasted(), other.wasted());
            // Whoever is so slow that it never reaches what is borne has no peak beyond it; we have to feel where it is.
            let felt = scenario.capacity.0 * 0.2;
            assert!(over(ours) <= over(other).max(felt), "{name}: {} {}", ours.peak_per_s, other.peak_per_s);
            assert!(drain(ours) < drain(other), "{name}: {:?} {:?}", ours.drain_s, other.drain_s);
            assert!(ours.dead <= other.dead, "{name}");
        }
    }
}

#[test]
fn a_share_that_fails_whatever_the_load_does_not_keep_what_is_back_from_being_used() {
    for share in [0.01, 0.05, 0.2] {
        let mut scenario = scenario(200.0, 1_000.0, mins(10));
        let length = scenario.recovery() + scenario.ideal().unwrap() * 3 + mins(1);
        scenario.errors = vec![Errors { begin: Duration::ZERO, length, share }];
        scenario.preset = "media".to_owned();
        let course = simulate_ours(&scenario).unwrap();
        let peak = course.peak_per_s as f64 / scenario.capacity.0;
        assert!(peak < 1.5, "with {share} failing: {peak} times what it bears");
        // Where nothing else fails it takes a fifth more than the ideal time.
        let (took, ideal) = (course.drain_s.unwrap_or(f64::INFINITY), course.ideal_drain_s.unwrap());
        let slack = if is_full() { 0.0 } else { 60.0 };
        assert!(took <= ideal * 3.0 + slack, "with {share} failing: drained in {took} s, ideal {ideal} s");
    }
}

#[test]
fn in_a_storm_of_failures_retries_keep_to_their_budget_and_first_attempts_do_not_wait() {
    let (rate, length) = if is_full() { (1_000.0, mins(10)) } else { (100.0, mins(1)) };
    let scenario = Scenario {
        preset: "media".to_owned(),
        arrivals: PerSecond(rate),
        capacity: PerSecond(rate * 3.0),
        errors: vec![Errors { begin: secs(10), length, share: 0.2 }],
        ..Scenario::default()
    };
    let course = simulate_ours(&scenario).unwrap();
    let budget = rate * 0.2 + 10.0;
    // A burst of ten, and what falls into a second because of where it begins.
    let most = budget * 1.05 + 12.0;
    let worst = course.retries.iter().max().copied().unwrap();
    assert!(f64::from(worst) <= most, "{worst} retries in a second");
    assert!(f64::from(worst) >= budget * 0.8, "{worst} retries in a second: the budget is used");
    assert!(course.first_wait <= Duration::from_millis(100), "{:?}", course.first_wait);
}

#[test]
fn a_retry_after_is_obeyed_and_what_is_allowed_is_used() {
    let scenario = Scenario {
        jobs: 600,
        arrivals: PerSecond(0.0),
        capacity: PerSecond(1_000.0),
        rate_limit: Some(RateLimit { rate: PerSecond(20.0), retry_after: secs(2) }),
        ..Scenario::default()
    };
    let course = simulate_ours(&scenario).unwrap();
    assert_eq!((course.dead, course.failures < 25), (0, true), "{}", course.failures);
    assert!(course.wasted() < 600, "{} calls were turned away", course.wasted());
    assert!(course.drain_s.is_some_and(|took| took < 120.0), "{:?}", course.drain_s);
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused_with_what_to_write() {
    let bad = Scenario { preset: "fed".to_owned(), capacity: PerSecond(0.0), ..Scenario::default() };
    let error = simulate_ours(&bad).unwrap_err().to_string();
    assert!(error.contains("there is no preset \"fed\"") && error.contains("1/s or more"), "{error}");
    assert!(Scenario::read("arrivals = \"20\"").unwrap_err().contains("is not a rate"));
    assert!(Scenario::read("arival = \"20/s\"").is_err());
    let read = Scenario::read(
        "preset = \"media\"\narrivals = \"600/m\"\n[[outage]]\nbegin = \"30s\"\nlength = \"5m\"\n",
    );
    assert_eq!(read.unwrap().outage[0], Spell { begin: Some(secs(30)), length: mins(5) });
}
