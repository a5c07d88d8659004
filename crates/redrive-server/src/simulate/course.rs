//! How a run went.

use std::time::Duration;

use serde::Serialize;

use super::scenario::Scenario;
use super::service::Seen;

/// How one policy did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Course {
    /// Whose.
    pub name: String,
    /// Jobs that were finished.
    #[serde(skip)]
    pub done: u64,
    /// Calls that were made.
    pub attempts: u64,
    /// Failures that were counted against jobs.
    pub failures: u64,
    /// Calls made while nothing was there.
    pub calls_during_outage: u64,
    /// Jobs that were given up.
    pub dead: u64,
    /// Most calls in a second since it was back,
    pub peak_per_s: u64,
    /// and since the first sign of overload.
    #[serde(skip)]
    pub peak_after_signal: u64,
    /// Until no more than a second's arrivals were left, from the end of the outage; nothing if that never came.
    pub drain_s: Option<f64>,
    /// The least it could have taken; nothing if it could not be.
    pub ideal_drain_s: Option<f64>,
    /// Calls in each second,
    #[serde(skip)]
    pub loads: Vec<u32>,
    /// and how many of them were retries.
    #[serde(skip)]
    pub retries: Vec<u32>,
    /// How long a first attempt has waited at most.
    #[serde(skip)]
    pub first_wait: Duration,
}

impl Course {
    pub(super) fn of(name: &str, scenario: &Scenario, seen: &Seen, count: &Count) -> Course {
        let seconds = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
        Course {
            name: name.to_owned(),
            done: count.done,
            attempts: seen.calls,
            failures: count.failures,
            calls_during_outage: seen.calls_during_outage,
            dead: count.dead,
            peak_per_s: seen.peak as u64,
            peak_after_signal: seen.peak_after_signal as u64,
            drain_s: count.drained_at.map(|at| seconds(at.saturating_sub(scenario.recovery()))),
            ideal_drain_s: scenario.ideal().map(seconds),
            loads: seen.loads.clone(),
            retries: seen.retries.clone(),
            first_wait: seen.first_wait,
        }
    }

    /// Calls that finished no job.
    pub fn wasted(&self) -> u64 {
        self.attempts.saturating_sub(self.done)
    }
}

/// What is counted on our side of the calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    pub(super) arrived: u64,
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) failures: u64,
    drained_at: Option<Duration>,
}

impl Count {
    pub(super) fn unfinished(&self) -> u64 {
        self.arrived - self.done - self.dead
    }

    /// Whether everything is drained for the first time is looked at after every change.
    pub(super) fn look(&mut self, scenario: &Scenario, now: Duration) {
        let is_little = self.unfinished() as f64 <= scenario.arrivals.0;
        if self.drained_at.is_none() && is_little && now >= scenario.recovery() {
            self.drained_at = Some(now);
        }
    }

    /// Whether nothing is left and nothing will come.
    pub(super) fn is_over(&self, scenario: &Scenario, now: Duration) -> bool {
        now >= scenario.end() || (self.unfinished() == 0 && now >= scenario.arrivals_until())
    }
}
