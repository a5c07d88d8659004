//! Whatever happens to it: never more than the limit, never stuck, never early.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Rng;
use crate::span::{mins, secs};

const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

fn report(job: u16, seen: Seen, now: Timestamp) -> Report {
    let id = JobId::new(NOW, job, &mut Rng::seeded(u64::from(job)));
    let (began, ended) = (now, now);
    Report { destination: "door".into(), job: id, holds: 0, seen, began, ended, status: None, pace: 50.0 }
}

fn shut(at: Timestamp) -> Gate {
    let mut gate = Gate::default();
    for job in 0..10 {
        gate.observe(&report(job, Seen::Failure, at), &Limits::default(), at);
    }
    assert!(matches!(gate.phase, Phase::Shut { why: Why::Failing, .. }));
    gate
}

/// Lets one first attempt go, if it may.
fn go(gate: &mut Gate, limits: &Limits, now: Timestamp) -> bool {
    let grant = gate.grant(limits, now);
    let goes = grant.room(&gate.counts).0 > 0;
    if goes {
        *gate = grant.spend(1, 0);
    }
    goes
}

#[test]
fn one_job_that_fails_again_and_again_is_not_its_destinations_fault() {
    let mut gate = Gate::default();
    for _ in 0..100 {
        let blame = gate.observe(&report(1, Seen::Failure, NOW), &Limits::default(), NOW);
        assert_eq!((blame, &gate.phase), (Blame::Job, &Phase::Open));
    }
}

#[test]
fn a_success_in_between_begins_the_count_anew() {
    let mut gate = Gate::default();
    for round in 0..20 {
        for job in 0..9 {
            gate.observe(&report(job, Seen::Failure, NOW), &Limits::default(), NOW);
        }
        gate.observe(&report(round, Seen::Well, NOW), &Limits::default(), NOW);
    }
    assert_eq!(gate.phase, Phase::Open);
}

#[test]
fn a_destination_that_stays_down_is_asked_ever_more_rarely_and_never_less_than_every_ten_minutes() {
    let limits = Limits::default();
    let (mut gate, mut now) = (shut(NOW), NOW);
    let mut asked = Vec::new();
    while now < NOW + crate::span::days(2) {
        now = gate.grant(&limits, now).next_at(&gate.counts, false).max(now);
        assert!(go(&mut gate, &limits, now), "when it says that one may go, one may go");
        assert!(!go(&mut gate, &limits, now), "and no second one");
        asked.push(now);
        assert_eq!(gate.observe(&report(1, Seen::Failure, now), &limits, now), Blame::Destination);
    }
    let gaps: Vec<Duration> = asked.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert_eq!(asked[0].since(NOW), secs(1));
    assert_eq!(gaps[..4], [secs(2), secs(4), secs(8), secs(16)]);
    assert!(gaps.windows(2).all(|pair| pair[1] >= pair[0]), "{gaps:?}");
    assert_eq!(gaps.last(), Some(&mins(10)));
    let in_half_an_hour = asked.iter().filter(|at| at.since(NOW) <= mins(30)).count();
    assert!((30..=38).contains(&in_half_an_hour), "{in_half_an_hour}");
}

#[test]
fn what_began_before_the_ramp_says_nothing_about_it() {
    let limits = Limits::default();
    let mut gate = shut(NOW);
    let later = NOW + secs(2);
    assert!(go(&mut gate, &limits, later));
    gate.observe(&report(1, Seen::Well, later), &limits, later);
    let level = gate.phase.clone();
    let mut old = report(2, Seen::Failure, later + secs(1));
    old.began = NOW;
    assert_eq!(gate.observe(&old, &limits, later + secs(1)), Blame::Destination);
    assert_eq!(gate.phase, level);
}

#[test]
fn a_job_that_was_turned_away_a_hundred_times_is_at_fault_itself() {
    let mut gate = shut(NOW);
    let turned_away = Report { holds: HOLDS_MAX, ..report(1, Seen::Failure, NOW) };
    assert_eq!(gate.observe(&turned_away, &Limits::default(), NOW), Blame::Job);
}

#[test]
fn a_job_that_fails_where_others_succeed_is_at_fault_sooner() {
    let limits = Limits::default();
    let mut gate = shut(NOW);
    let later = NOW + secs(2);
    assert!(go(&mut gate, &limits, later));
    gate.observe(&report(1, Seen::Well, later), &limits, later);
    for (holds, blame) in [(2, Blame::Destination), (RAMP_HOLDS_MAX, Blame::Job)] {
        let failed = Report { holds, ..report(2, Seen::Failure, later) };
        assert_eq!(gate.observe(&failed, &limits, later), blame, "{holds}");
    }
}

#[test]
fn a_pause_that_was_asked_for_is_obeyed_up_to_the_limit_and_the_longest_holds() {
    let limits = Limits { retry_after_max: mins(1), ..Limits::default() };
    let mut gate = Gate::default();
    for (asked, until) in [(secs(5), secs(5)), (secs(2), secs(5)), (mins(5), mins(1))] {
        gate.observe(&report(1, Seen::Pause(asked), NOW), &limits, NOW);
        assert!(matches!(gate.phase, Phase::Shut { until: found, .. } if found == NOW + until), "{gate:?}");
    }
    assert!(gate.is_shut(NOW + mins(1) - Duration::from_millis(1)) && !gate.is_shut(NOW + mins(1)));
}

/// On the ramp since long ago, at this level, and with as much to do as ever.
fn on_ramp(level: f64, good: Option<f64>) -> Gate {
    let since = NOW - mins(1);
    Gate {
        pace: 300.0,
        before: 200.0,
        sent_from: Timestamp::MAX,
        phase: Phase::Ramp { level, since },
        good,
        trouble_at: since,
        took_ms: 50.0,
        ..Gate::default()
    }
}

fn level(gate: &Gate) -> f64 {
    let Phase::Ramp { level, .. } = gate.phase else { panic!("{gate:?} is not on the ramp") };
    level
}

/// What calls came to, each at its time.
fn sees(gate: &mut Gate, seen: Seen, jobs: std::ops::Range<u16>, at: Timestamp) {
    for job in jobs {
        gate.observe(&report(job, seen, at), &Limits::default(), at);
    }
}

#[test]
fn a_sign_of_overload_takes_a_little_away_and_no_more_for_a_second() {
    let mut gate = Gate { trouble_at: NOW, ..on_ramp(300.0, Some(200.0)) };
    sees(&mut gate, Seen::Failure, 0..1, NOW);
    assert_eq!(level(&gate), 300.0 * 0.97);
    for after in [1, 500, 999] {
        let at = NOW + Duration::from_millis(after);
        sees(&mut gate, Seen::Well, 0..20, at);
        sees(&mut gate, Seen::Failure, 1..3, at);
        assert_eq!(level(&gate), 300.0 * 0.97, "neither less nor more, {after} ms later");
    }
    sees(&mut gate, Seen::Well, 0..100, NOW + secs(2));
    assert!(level(&gate) > 300.0 * 0.97, "and then it feels its way again");
}

#[test]
fn a_sign_takes_away_what_was_added_lately() {
    let mut gate = on_ramp(300.0, Some(200.0));
    sees(&mut gate, Seen::Failure, 0..1, NOW);
    assert_eq!(level(&gate), 300.0 * (1.0 - 0.03 - FEEL_GAIN_MAX));
}

#[test]
fn what_fails_below_a_step_back_too_leads_to_a_trial_and_to_where_it_was_if_it_is_not_the_load() {
    for (fails_still, ends_at) in [(true, 300.0), (false, 300.0 * 0.97 * 0.94)] {
        let mut gate = Gate { trouble_at: NOW, ..on_ramp(300.0, Some(200.0)) };
        let sees_some = |gate: &mut Gate, failed: u16, at: Timestamp| {
            sees(gate, Seen::Failure, 0..failed, at);
            sees(gate, Seen::Well, 0..100 - failed, at);
        };
        sees_some(&mut gate, 2, NOW);
        sees_some(&mut gate, 2, NOW + secs(1));
        let trial = level(&gate);
        assert!(trial < 300.0 * 0.95, "{trial}: so low that an overload would be over");
        for after in 2..5 {
            sees_some(&mut gate, if fails_still { 2 } else { 0 }, NOW + secs(after));
        }
        let ends = level(&gate);
        assert!((ends_at..ends_at * 1.02).contains(&ends), "{ends} instead of {ends_at}");
    }
}

#[test]
fn a_sign_is_forgotten_where_hardly_anything_is_called() {
    let mut gate = on_ramp(300.0, Some(200.0));
    sees(&mut gate, Seen::Failure, 0..1, NOW);
    let stepped = level(&gate);
    for minute in 1..4 {
        sees(&mut gate, Seen::Well, 0..1, NOW + mins(minute));
    }
    assert!(gate.phase == Phase::Open || level(&gate) > stepped, "{gate:?}");
}

/// Brings a ramp up against a destination that fails this share whatever the load, and whatever is above its capacity.
/// Returns when the level was as before the trouble, and the most calls of a second.
fn recovers(share: f64, capacity: f64, seed: u64) -> (Option<u32>, usize) {
    let mut rng = Rng::seeded(seed);
    let mut happens = |share: f64| (rng.up_to(999_999) as f64) < share * 1e6;
    let mut gate = Gate { trouble_at: NOW, ..on_ramp(1.0, Some(200.0)) };
    gate.phase = Phase::Ramp { level: 1.0, since: NOW };
    let (mut due, mut recent, mut most) = (0.0, std::collections::VecDeque::new(), 0);
    let mut is_back = None;
    for step in 0..20 * 300u32 {
        let at = NOW + Duration::from_millis(u64::from(step) * 50);
        due += level(&gate) / 20.0;
        while recent.front().is_some_and(|sent| at.since(*sent) >= secs(1)) {
            recent.pop_front();
        }
        for call in 0..due as u16 {
            due -= 1.0;
            recent.push_back(at);
            most = most.max(recent.len());
            let load = recent.len() as f64;
            let fails = happens(((load - capacity) / load).max(0.0)) || happens(share);
            let seen = if fails { Seen::Failure } else { Seen::Well };
            gate.observe(&report(call, seen, at), &Limits { breaker: 0, ..Limits::default() }, at);
        }
        if gate.phase == Phase::Open || level(&gate) >= 200.0 {
            is_back.get_or_insert(step / 20);
            if capacity > 1e6 {
                break;
            }
        }
    }
    (is_back, most)
}

#[test]
fn a_share_that_fails_whatever_the_load_does_not_keep_the_ramp_down() {
    for share in [0.0, 0.01, 0.05, 0.2] {
        for seed in 1..=8 {
            let (is_back, _) = recovers(share, f64::INFINITY, seed);
            assert!(is_back.is_some(), "with {share} failing it is not back after five minutes, seed {seed}");
        }
    }
}

#[test]
fn where_some_fail_anyway_more_than_that_is_a_sign() {
    for share in [0.0, 0.01, 0.05] {
        for seed in 1..=8 {
            let (_, most) = recovers(share, 250.0, seed);
            assert!(most < 375, "{most} calls in a second where 250 are borne and {share} fail, seed {seed}");
        }
    }
}

#[test]
fn who_was_doubling_goes_back_far_and_whoever_is_turned_away_much_by_as_much() {
    let mut doubling = on_ramp(150.0, Some(200.0));
    sees(&mut doubling, Seen::Failure, 0..1, NOW);
    assert_eq!(level(&doubling), 150.0 * 0.6);

    let mut gate = on_ramp(300.0, Some(200.0));
    for round in 0..10 {
        sees(&mut gate, Seen::Well, 0..2, NOW);
        sees(&mut gate, Seen::Failure, round..round + 1, NOW);
    }
    let left = level(&gate) / 300.0;
    assert!((0.6..0.72).contains(&left), "a third was turned away, and {left} of the level is left");
}

#[test]
fn a_destination_that_comes_back_slower_is_not_asked_once_a_second_for_ever() {
    let mut gate = on_ramp(1.0, Some(200.0));
    for second in 0..60 {
        let at = NOW + secs(second);
        if level(&gate) >= 200.0 {
            break;
        }
        for _ in 0..level(&gate) as u32 {
            let slow = Report { began: at - secs(1), ..report(1, Seen::Well, at) };
            gate.observe(&slow, &Limits::default(), at);
        }
    }
    assert!(level(&gate) >= 200.0, "{}", level(&gate));
}

#[test]
fn of_a_thousand_calls_a_second_ten_failures_in_a_row_are_chance() {
    let mut gate = Gate::default();
    for job in 0..20 {
        assert_eq!(gate.phase, Phase::Open, "{job} failures");
        let one = Report { pace: 1_000.0, ..report(job, Seen::Failure, NOW) };
        gate.observe(&one, &Limits::default(), NOW);
    }
    assert!(matches!(gate.phase, Phase::Shut { .. }));
}

#[test]
fn a_gate_is_read_as_it_was_written() {
    let mut dipped = on_ramp(300.0, Some(200.0));
    sees(&mut dipped, Seen::Failure, 0..1, NOW);
    for gate in [Gate::default(), shut(NOW), dipped] {
        let text = serde_json::to_string(&gate).unwrap();
        assert_eq!(serde_json::from_str::<Gate>(&text).unwrap(), gate, "{text}");
    }
}

#[test]
fn a_gate_without_trouble_has_nothing_to_say_after_a_minute() {
    let mut gate = Gate::default();
    gate.observe(&report(1, Seen::Failure, NOW), &Limits::default(), NOW);
    gate.observe(&report(1, Seen::Well, NOW), &Limits::default(), NOW);
    assert!(gate.is_active(&Limits::default(), NOW + secs(59)));
    assert!(!gate.is_active(&Limits::default(), NOW + secs(60)));
}

#[test]
fn retries_that_wait_for_the_budget_keep_to_it_when_the_trouble_is_long_over() {
    let (mut gates, door, mut went) = (Gates::default(), Arc::from("door"), 0);
    gates.observe(&report(1, Seen::Failure, NOW), NOW);
    gates.observe(&report(1, Seen::Well, NOW), NOW);
    for second in 0..300 {
        let now = NOW + secs(second);
        while gates.pass(&door, true, now) {
            went += 1;
            assert!(went <= 10 + 10 * second, "{went} retries after {second} s");
        }
    }
    assert!(gates.is_gated(&door, NOW + mins(5)));
    assert!(!gates.is_gated(&door, NOW + mins(6)), "nothing waits any more");
}

/// What may happen to a gate, some time after the last thing.
#[derive(Clone, Debug)]
enum Happens {
    Seen(u16, Seen),
    Told(Word),
    Calls(u8),
}

fn anything() -> impl Strategy<Value = (u32, Happens)> {
    let seen = prop_oneof![
        4 => Just(Seen::Well),
        4 => Just(Seen::Failure),
        1 => (0..90_000u64).prop_map(|ms| Seen::Pause(Duration::from_millis(ms))),
        1 => Just(Seen::Refusal),
    ];
    let word = prop_oneof![Just(Word::Up), Just(Word::Down), Just(Word::Pause), Just(Word::Resume)];
    let happens = prop_oneof![
        8 => (0..30u16, seen).prop_map(|(job, seen)| Happens::Seen(job, seen)),
        1 => word.prop_map(Happens::Told),
        8 => (1..20u8).prop_map(Happens::Calls),
    ];
    (0..3_000u32, happens)
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![
        Just(Limits::default()),
        (1..200u32, prop::option::of(1..20u32)).prop_map(|(rate, burst)| Limits {
            rate: Some(Rate::per_second(rate)),
            burst,
            ..Limits::default()
        }),
        (1..10_000u64)
            .prop_map(|ms| Limits { min_gap: Some(Duration::from_millis(ms)), ..Limits::default() }),
    ]
}

proptest! {
    #[test]
    fn never_more_than_the_limit_never_early_and_never_stuck(
        limits in limits(),
        steps in prop::collection::vec(anything(), 1..200),
    ) {
        let rules = Arc::new(limits);
        let (mut gate, mut now) = (Gate::default(), NOW);
        let mut calls: Vec<Timestamp> = Vec::new();
        for (wait, happens) in steps {
            now = now + Duration::from_millis(u64::from(wait));
            match happens {
                Happens::Seen(job, seen) => drop(gate.observe(&report(job, seen, now), &rules, now)),
                Happens::Told(word) => gate.told(word, now),
                Happens::Calls(count) => {
                    for _ in 0..count {
                        let shut = gate.is_shut(now);
                        let goes = go(&mut gate, &rules, now);
                        prop_assert!(!(shut && goes), "early");
                        calls.extend(goes.then_some(now));
                    }
                }
            }
        }
        if let Some((cost, burst)) = rules.spacing() {
            for (index, from) in calls.iter().enumerate() {
                let within = calls[index..].iter().take_while(|at| at.since(*from) < secs(1)).count() as i64;
                prop_assert!(within <= i64::from(burst) + SECOND_US / cost + 1, "{} in a second", within);
            }
        }
        // Whatever it came to: said to be up and not paused, and with everything going well, it lets jobs go.
        gate.told(Word::Resume, now);
        gate.told(Word::Up, now);
        let mut went = 0;
        for _ in 0..400 {
            now = gate.grant(&rules, now).next_at(&gate.counts, false).max(now);
            prop_assert!(now < Timestamp::MAX, "stuck");
            if go(&mut gate, &rules, now) {
                went += 1;
                gate.observe(&report(1, Seen::Well, now), &rules, now);
            }
        }
        prop_assert!(went >= 390, "{} of 400", went);
    }

    #[test]
    fn retries_are_never_more_than_their_share_and_ten_a_second(
        steps in prop::collection::vec((0..400u32, 0..30u32), 1..200),
    ) {
        let limits = Limits::default();
        let (mut gate, mut now) = (Gate::default(), NOW);
        let (mut firsts, mut retries) = (0u64, 0u64);
        for (wait, count) in steps {
            now = now + Duration::from_millis(u64::from(wait));
            let grant = gate.grant(&limits, now);
            let allowed = grant.room(&gate.counts).1.min(1_000);
            gate = grant.spend(count, allowed);
            firsts += u64::from(count);
            retries += u64::from(allowed);
            let most = firsts / 5 + now.since(NOW).as_millis() as u64 / 100 + 12;
            prop_assert!(retries <= most, "{} retries for {} first attempts", retries, firsts);
        }
    }
}

#[cfg(feature = "postgres")]
proptest! {
    /// Whoever claims ahead, however late and however much at a time: turns are as far from each other as the rate says.
    #[test]
    fn turns_that_are_taken_ahead_keep_the_rate(
        asked in prop::collection::vec((0..120i64, 1..15u32, 0..60u64), 1..80), burst in 1..12u32,
    ) {
        let limits = Limits { rate: Some(Rate::per_second(100)), burst: Some(burst), ..Limits::default() };
        let ahead = span::millis(100);
        let (mut gate, mut now, mut turns) = (Gate::default(), NOW, Vec::new());
        for (later, most, lead) in asked {
            now = now + span::millis(later.unsigned_abs());
            let grant = gate.grant(&limits, now).ahead(ahead, span::millis(lead));
            let count = grant.room(&gate.counts).0.min(most);
            gate = grant.spend(count, 0);
            let taken: Vec<Timestamp> = grant.turns(gate.counts.next_us, count).collect();
            prop_assert!(taken.iter().all(|turn| *turn >= now && *turn <= now + ahead * 2 + span::millis(1)));
            prop_assert_eq!(taken.len(), count as usize);
            turns.extend(taken);
            if count > 0 && grant.room(&gate.counts).0 == 0 {
                let next = grant.next_at(&gate.counts, false);
                prop_assert!(next > now && next <= now + ahead, "and it is asked again in time");
            }
        }
        turns.sort();
        for (n, first) in turns.iter().enumerate() {
            let second = turns[n..].iter().take_while(|turn| turn.since(*first) < secs(1)).count();
            prop_assert!(second <= 100 + burst as usize, "{second} in a second, from {n} on");
        }
    }
}
