//! Simulated worlds: 500 seeds by default, each run twice, and bugs planted on purpose that they must find.
//!
//! `REDRIVE_SIM_SEEDS=100000` runs more of them, `REDRIVE_SIM_SEED=7` replays one and shows all of it, and
//! `REDRIVE_PLANTED=all` plants every bug that is known instead of the few that CI plants.

#![expect(clippy::disallowed_methods, reason = "which worlds are run comes from the environment")]
#![expect(
    clippy::print_stdout,
    reason = "a replay shows its trace, and a planted bug the world that found it"
)]

use std::collections::BTreeSet;

use redrive::sim::{self, Bug, Report, TRACE_LINES};

/// What happens in some world or other. Where one of these no longer happens, the worlds have gone blind to it.
const SOMETIMES: &[&str] = &[
    // faults
    "delay",
    "error before",
    "error after",
    "lost reply",
    "freeze",
    "kill",
    "poison",
    "restart",
    "stop",
    // endings
    "succeeded",
    "failed",
    "snoozed",
    "crashed",
    "interrupted",
    "unhandled",
    "held",
    "expired",
    "timeout",
    "cancelled while running",
    // why a job is dead
    "exhausted",
    "permanent",
    "crash_loop",
    // what is refused, and what comes too late
    "queue full",
    "key refused",
    "key ignored",
    "key replaced",
    "enqueued again",
    "claim refused",
    "claimed again",
    "claimed again at once",
    "told again to go on",
    "begun in the place of another",
    "told again what has begun",
    "late settlement",
    "began too late",
    "holder gone",
    "lease expired",
    "expiry refused",
    "steering refused",
    "steered nothing",
    // by hand
    "cancelled by hand",
    "retried by hand",
    "redriven",
    "deleted",
    "paused",
    // after others
    "let go",
    "let go by a bad ending",
    "brought back behind others",
    // destinations
    "asked for a pause",
    "said to be down",
    "hurried",
    // by itself
    "suspect",
    "forgotten",
];

/// Tests run beside each other, so that all cores have work.
const PARTS: u64 = 4;
/// With fewer worlds than this, something rare may not have happened.
const SEEDS_FOR_SOMETIMES: u64 = 2_000;
/// A planted bug is found within so many worlds.
const SEEDS_FOR_A_BUG: u64 = 1_000;

/// What CI plants: the mistakes that job queues are known to have made.
const WELL_KNOWN: &[Bug] = &[
    Bug::NoFence,
    Bug::AckBeforeCommit,
    Bug::LostWakeUp,
    Bug::CrashNotCounted,
    Bug::HandedOutTwice,
    Bug::LimitsIgnored,
];

#[test]
fn every_promise_holds_in_the_first_quarter_of_worlds() {
    run_part(0);
}

#[test]
fn every_promise_holds_in_the_second_quarter_of_worlds() {
    run_part(1);
}

#[test]
fn every_promise_holds_in_the_third_quarter_of_worlds() {
    run_part(2);
}

#[test]
fn every_promise_holds_in_the_fourth_quarter_of_worlds() {
    run_part(3);
}

#[test]
fn everything_that_can_go_wrong_sometimes_does() {
    if number("REDRIVE_SIM_SEED").is_some() {
        return;
    }
    let mut missing: BTreeSet<&str> = SOMETIMES.iter().copied().collect();
    for seed in 0..seeds().max(SEEDS_FOR_SOMETIMES) {
        sim::run(seed, None, TRACE_LINES).seen.iter().for_each(|seen| {
            missing.remove(seen);
        });
        if missing.is_empty() {
            return;
        }
    }
    panic!("no world has seen {missing:?}");
}

#[test]
fn each_planted_bug_is_found() {
    if number("REDRIVE_SIM_SEED").is_some() {
        return;
    }
    let all = std::env::var("REDRIVE_PLANTED").is_ok_and(|which| which == "all");
    let missed: Vec<&str> = if all { Bug::ALL } else { WELL_KNOWN }
        .iter()
        .filter(|bug| !is_found(**bug))
        .map(|bug| bug.name())
        .collect();
    assert!(missed.is_empty(), "planted and not found in {SEEDS_FOR_A_BUG} worlds: {missed:?}");
}

fn is_found(bug: Bug) -> bool {
    let found =
        (0..SEEDS_FOR_A_BUG).find_map(|seed| Some((seed, sim::run(seed, Some(bug), TRACE_LINES).broken?)));
    match &found {
        Some((seed, broken)) => println!("{:<24} seed {seed:>3}: {:.120}", bug.name(), broken),
        None => println!("{:<24} not found", bug.name()),
    }
    found.is_some()
}

fn run_part(part: u64) {
    if let Some(seed) = number("REDRIVE_SIM_SEED") {
        if seed % PARTS == part {
            replay(seed);
        }
        return;
    }
    (0..seeds()).filter(|seed| seed % PARTS == part).for_each(|seed| run_twice(seed, TRACE_LINES));
}

fn replay(seed: u64) {
    println!("{}", sim::run(seed, None, usize::MAX));
    run_twice(seed, TRACE_LINES);
}

fn run_twice(seed: u64, trace_max: usize) {
    let first = sim::run(seed, None, trace_max);
    assert!(first.broken.is_none(), "\n{first}");
    let Report { hash, lines, .. } = sim::run(seed, None, 1);
    assert_eq!(
        (first.hash, first.lines),
        (hash, lines),
        "seed {seed} does not run twice in the same way: look for what depends on time, chance or an address"
    );
}

fn seeds() -> u64 {
    number("REDRIVE_SIM_SEEDS").unwrap_or(500)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; write a number")))
}
