//! What follows a sign of overload on the ramp: a step back, and if too much is turned away even then, a larger one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// What was under way at the sign, and what the destination still has before it, is over after this. Meanwhile the level
/// does not rise, and what else fails is no new sign.
const LASTS: Duration = Duration::from_secs(1);
/// What is left of the level at a sign: little is lost where a little was too much,
const STEP: f64 = 0.97;
/// but who has been doubling is far beyond when the sign comes.
const STEP_FROM_DOUBLING: f64 = 0.6;
/// More than this share turned away, of enough calls, says how much was too much.
const SHARE_MIN: f64 = 0.15;
/// So many must have been turned away for that.
const FAILED_MIN: u32 = 8;
/// A sign at less than this share of the last level that gave one is a fall.
const FALL: f64 = 0.95;
/// After so many falls the next one is no sign: it may not be the load.
const FALLS_MAX: u32 = 3;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Dip {
    since: Timestamp,
    /// The level that was too much.
    from: f64,
    well: u32,
    failed: u32,
    /// The first of those levels, if each was lower than the one before,
    top: f64,
    /// and how many there were since.
    falls: u32,
}

impl Dip {
    /// At a sign of overload: the dip that begins, if it is a new one and the load is to blame.
    pub(super) fn begin(before: Option<&Dip>, level: f64, now: Timestamp) -> Option<Dip> {
        let (top, falls) = match before {
            Some(dip) if level < dip.top => (dip.top, dip.falls + u32::from(level < dip.from * FALL)),
            _ => (level, 0),
        };
        (falls <= FALLS_MAX).then_some(Dip { since: now, from: level, well: 0, failed: 1, top, falls })
    }

    pub(super) fn lasts(&self, now: Timestamp) -> bool {
        now.since(self.since) < LASTS
    }

    pub(super) fn went_well(&mut self) {
        self.well = self.well.saturating_add(1);
    }

    pub(super) fn failed(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// The level to go on with, if it was this.
    pub(super) fn level(&self, level: f64, was_doubling: bool) -> f64 {
        if self.failed <= 1 {
            return self.from * if was_doubling { STEP_FROM_DOUBLING } else { STEP };
        }
        let share = f64::from(self.failed) / f64::from(self.failed.saturating_add(self.well));
        let is_much = self.failed >= FAILED_MIN && share > SHARE_MIN;
        if is_much { level.min(self.from * (1.0 - share)) } else { level }
    }
}
