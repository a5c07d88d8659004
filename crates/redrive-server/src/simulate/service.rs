//! The modelled destination: what it answers, and what is seen of it.
//!
//! It counts the calls of the last second. Up to its capacity all go well. Above it the share that is too much is turned
//! away and the rest takes longer, and above one and a half of it nothing succeeds any more.

use std::collections::VecDeque;
use std::time::Duration;

use redrive::Rng;

use super::scenario::Scenario;

/// At this many times its capacity everything fails.
const COLLAPSE: f64 = 1.5;
/// How many times as long a call takes just before that.
const SLOWEST: f64 = 5.0;
const SECOND: Duration = Duration::from_secs(1);

/// What a call comes to, and how long it takes.
pub(super) struct Answer {
    pub(super) takes: Duration,
    pub(super) says: Says,
}

/// See [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Says {
    Done,
    Down,
    Overloaded,
    Error,
    Wait(Duration),
}

/// The destination.
pub(super) struct Service {
    scenario: Scenario,
    rng: Rng,
    recent: VecDeque<Duration>,
    /// Calls of the last second that its rate limit let through.
    allowed: VecDeque<Duration>,
    pub(super) seen: Seen,
}

/// What is seen of it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: u64,
    pub(super) calls_during_outage: u64,
    /// Most calls in a second since it is back,
    pub(super) peak: usize,
    /// and since the first sign of overload after that.
    pub(super) peak_after_signal: usize,
    signal_at: Option<Duration>,
    /// Calls in each second,
    pub(super) loads: Vec<u32>,
    /// and how many of them were retries.
    pub(super) retries: Vec<u32>,
    /// How long a first attempt has waited at most.
    pub(super) first_wait: Duration,
}

/// Which call of its job it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Try {
    /// The first one, of a job that came in then.
    First(Duration),
    Retry,
}

impl Service {
    pub(super) fn new(scenario: Scenario) -> Service {
        let rng = Rng::seeded(scenario.seed ^ 0x5e71_11ce);
        let (recent, allowed) = (VecDeque::new(), VecDeque::new());
        Service { scenario, rng, recent, allowed, seen: Seen::default() }
    }

    /// A call begins.
    pub(super) fn call(&mut self, which: Try, now: Duration) -> Answer {
        slide(&mut self.recent, now);
        self.recent.push_back(now);
        let load = self.recent.len();
        let answer = self.answer(load as f64, now);
        self.note(load, now, &answer);
        match which {
            Try::First(from) => self.seen.first_wait = self.seen.first_wait.max(now.saturating_sub(from)),
            Try::Retry => add_one(&mut self.seen.retries, now),
        }
        answer
    }

    fn answer(&mut self, load: f64, now: Duration) -> Answer {
        let capacity = self.scenario.capacity_at(now);
        let over = ((load - capacity) / (capacity * (COLLAPSE - 1.0))).clamp(0.0, 1.0);
        let takes = self.scenario.latency.mul_f64(1.0 + over * (SLOWEST - 1.0));
        let is_down = |at| self.scenario.down().any(|(begin, end)| (begin..end).contains(&at));
        if is_down(now) || is_down(now + takes) {
            return Answer { takes: self.scenario.latency, says: Says::Down };
        }
        if let Some(limit) = self.scenario.rate_limit {
            slide(&mut self.allowed, now);
            if self.allowed.len() as f64 >= limit.rate.0 {
                return Answer { takes: self.scenario.latency, says: Says::Wait(limit.retry_after) };
            }
            self.allowed.push_back(now);
        }
        let too_much = if over >= 1.0 { 1.0 } else { ((load - capacity) / load).max(0.0) };
        let errors = self.scenario.errors.iter();
        let share: f64 = errors
            .filter(|errors| (errors.begin..errors.begin + errors.length).contains(&now))
            .map(|errors| errors.share)
            .sum();
        if self.happens(too_much) {
            Answer { takes: self.scenario.latency, says: Says::Overloaded }
        } else if self.happens(share) {
            Answer { takes, says: Says::Error }
        } else {
            Answer { takes, says: Says::Done }
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && (self.rng.up_to(999_999) as f64) < share * 1e6
    }

    fn note(&mut self, load: usize, now: Duration, answer: &Answer) {
        let seen = &mut self.seen;
        seen.calls += 1;
        add_one(&mut seen.loads, now);
        if self.scenario.down().any(|(begin, end)| (begin..end).contains(&now)) {
            seen.calls_during_outage += 1;
        }
        if now < self.scenario.recovery() {
            return;
        }
        seen.peak = seen.peak.max(load);
        if seen.signal_at.is_some_and(|at| now > at) {
            seen.peak_after_signal = seen.peak_after_signal.max(load);
        }
        if answer.says == Says::Overloaded {
            seen.signal_at.get_or_insert(now + answer.takes);
        }
    }
}

fn add_one(seconds: &mut Vec<u32>, now: Duration) {
    let second = usize::try_from(now.as_secs()).unwrap_or(usize::MAX);
    if seconds.len() <= second {
        seconds.resize(second + 1, 0);
    }
    seconds[second] += 1;
}

/// Forgets what is a second old.
fn slide(times: &mut VecDeque<Duration>, now: Duration) {
    while times.front().is_some_and(|at| *at + SECOND <= now) {
        times.pop_front();
    }
}
