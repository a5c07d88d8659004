//! What handlers do in a simulated world: drawn from the seed, the job and the attempt, and from nothing else.

use std::time::Duration;

use crate::clock::Rng;
use crate::span::secs;

/// What one attempt does, and how long it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Doing {
    pub(super) act: Act,
    pub(super) takes: Duration,
}

/// How an attempt ends, if it is let.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Act {
    Succeed,
    Output,
    Transient,
    Permanent,
    RetryAfter(Duration),
    Snooze(Duration),
    Panic,
    /// It takes its process with it.
    Kill,
}

/// The same job and attempt do the same in every run of a seed.
pub(super) fn draw(seed: u64, number: u64, attempt: u32) -> Doing {
    let mut temper = Rng::seeded(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut rng = Rng::seeded(temper.next_u64() ^ u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let act = match temper.up_to(99) {
        0..35 => mostly_fine(&mut rng),
        35..75 => anything(&mut rng),
        75..85 => Act::Transient,
        85..93 if u64::from(attempt) <= 1 + temper.up_to(3) => Act::Kill,
        _ => Act::Succeed,
    };
    Doing { act, takes: duration(&mut rng, temper.up_to(9) == 0) }
}

fn mostly_fine(rng: &mut Rng) -> Act {
    match rng.up_to(9) {
        0 => Act::Transient,
        1 | 2 => Act::Output,
        _ => Act::Succeed,
    }
}

fn anything(rng: &mut Rng) -> Act {
    match rng.up_to(19) {
        0..=6 => Act::Transient,
        7 => Act::Permanent,
        8 | 9 => Act::RetryAfter(Duration::from_millis(1 + rng.up_to(90_000))),
        10 | 11 => Act::Snooze(Duration::from_millis(rng.up_to(60_000))),
        12 | 13 => Act::Panic,
        14 => Act::Output,
        _ => Act::Succeed,
    }
}

/// Slow ones outlast every lease that is drawn.
fn duration(rng: &mut Rng, slow: bool) -> Duration {
    match rng.up_to(9) {
        _ if slow => secs(5) + Duration::from_millis(rng.up_to(150_000)),
        0..=3 => Duration::ZERO,
        4..=6 => Duration::from_millis(1 + rng.up_to(50)),
        7 | 8 => Duration::from_millis(500 + rng.up_to(5_000)),
        _ => Duration::from_millis(rng.up_to(30_000)),
    }
}
