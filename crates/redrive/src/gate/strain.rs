//! What failures on the ramp mean: that the load is too much, or nothing new.
//!
//! A sign of overload leads to a step back. If calls fail even then, it may not be the load: for a moment so few are made
//! that an overload would be over. What fails still, fails whatever the load: the level is what it was, and from then on
//! only more than that share is a sign.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// What was under way at the sign, and what the destination still has before it, is over after this. What else fails until
/// then is no new sign.
const SETTLES: Duration = Duration::from_secs(1);
/// More than this share turned away meanwhile, of enough calls, says how much was too much.
const SHARE_MIN: f64 = 0.15;
/// So many must have been turned away for that.
const FAILED_MIN: f64 = 8.0;
/// What a step back takes away at least.
pub(super) const STEP: f64 = 0.03;
/// So many calls a second are no overload.
const LEAST: f64 = 5.0;
/// A trial goes no further down than to this share of the level.
const TRIAL_MIN: f64 = 0.3;
/// It is over when so many failures would be expected of what is not the load;
const EXPECTED: f64 = 4.0;
/// whether there is to be one, when so many would be.
const EXPECTED_FIRST: f64 = 2.0;
/// What would take longer than this is not found out, unless it is so few calls;
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_CALLS: f64 = 100.0;
/// and what takes longer than this, because hardly anything is called, neither.
const PATIENCE_LONGEST: Duration = Duration::from_secs(30);
/// How far chance goes, in standard deviations, where some calls fail anyway; and so many failures beside.
const CHANCE: f64 = 3.0;
const CHANCE_LEAST: f64 = 2.0;
/// Of how many calls what is known of the share that fails anyway is remembered.
const KNOWN_MAX: f64 = 1_000.0;

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Strain {
    /// The share of calls that fails whatever the load.
    #[serde(skip_serializing_if = "super::is_zero")]
    usual: f64,
    /// Of so many calls.
    #[serde(skip_serializing_if = "super::is_zero")]
    known: f64,
    /// What the calls of this second came to.
    second: Tally,
    #[serde(skip_serializing_if = "Option::is_none")]
    back: Option<Back>,
}

/// A step back, until it is known what it was for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Back {
    at: Timestamp,
    /// The level that seemed to be too much, and what was known to be borne then.
    top: f64,
    good: Option<f64>,
    /// What the first step has left of it.
    left: f64,
    /// What the calls of the second after the first step came to.
    first: Option<Tally>,
    /// What calls came to that began when it had taken effect.
    since: Tally,
}

/// What calls came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Tally {
    /// Since when, where that matters.
    from: Timestamp,
    well: u32,
    failed: u32,
}

/// What a call on the ramp leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turn {
    /// To nothing: it went well, or failed as some do.
    On,
    /// No more than this from now on.
    Back(f64),
    /// Again this level, and what was known to be borne.
    Forth(f64, Option<f64>),
}

/// Where the ramp stands when a call fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) level: f64,
    /// What is known to be borne.
    pub(super) good: Option<f64>,
    /// What the level has risen by lately, as a share of it.
    pub(super) added: f64,
}

impl Strain {
    /// Whether it is not yet known what the last step back was for. The level does not rise meanwhile.
    pub(super) fn is_unclear(&self) -> bool {
        self.back.is_some()
    }

    pub(super) fn went_well(&mut self, began: Timestamp, level: f64, now: Timestamp) -> Turn {
        self.count(began, true, now);
        self.judge(level, now)
    }

    pub(super) fn failed(&mut self, began: Timestamp, at: At, now: Timestamp) -> Turn {
        let At { level, good, added } = at;
        self.count(began, false, now);
        if let Some(back) = &self.back {
            return if now < back.settled_at() { self.turned_away(level) } else { self.judge(level, now) };
        }
        if level <= LEAST || !self.is_more(self.second) {
            return Turn::On;
        }
        // Where some fail anyway it takes more of them to be a sign, and it comes later.
        let late = self.more(self.second, -1.0).max(0.0) / self.second.calls().max(level);
        let left = (level * (1.0 - STEP - added - late)).max(LEAST);
        self.step_back(Back { at: now, top: level, good, left, first: None, since: Tally::default() });
        Turn::Back(left)
    }

    /// From now on, what comes to light is of this step.
    fn step_back(&mut self, back: Back) {
        self.second = Tally { from: back.at, well: 0, failed: 1 };
        self.back = Some(back);
    }

    fn count(&mut self, began: Timestamp, went_well: bool, now: Timestamp) {
        if now.since(self.second.from) >= SETTLES {
            if let Some(back) = &mut self.back {
                back.first.get_or_insert(self.second);
            }
            self.second = Tally { from: now, ..Tally::default() };
        }
        self.second.count(went_well);
        if let Some(back) = self.back.as_mut().filter(|back| began >= back.settled_at()) {
            back.since.count(went_well);
        }
    }

    /// How many failed beyond the usual, and so many more.
    fn more(&self, tally: Tally, and: f64) -> f64 {
        f64::from(tally.failed) + and - self.usual * tally.calls()
    }

    /// Whether more failed than usual, and than chance would have it.
    fn is_more(&self, tally: Tally) -> bool {
        let spread = (self.usual * (1.0 - self.usual) * tally.calls()).sqrt();
        let chance = if self.usual > 0.0 { CHANCE * spread + CHANCE_LEAST } else { 0.0 };
        self.more(tally, 0.0) > chance
    }

    /// Another failure, before the step back has taken effect.
    fn turned_away(&self, level: f64) -> Turn {
        let more = self.more(self.second, 0.0);
        let share = more / self.second.calls();
        let top = self.back.as_ref().map_or(level, |back| back.top);
        let is_much = more >= FAILED_MIN && share > SHARE_MIN;
        Turn::Back(if is_much { level.min(top * (1.0 - share)).max(1.0) } else { level })
    }

    /// What the step back was for, once enough calls have been made since.
    fn judge(&mut self, level: f64, now: Timestamp) -> Turn {
        let Some(Back { at, top, good, left, first: Some(first), since }) = self.back else {
            return Turn::On;
        };
        let share = self.more(first, 0.0).max(0.0) / first.calls();
        // It may have been more that was too much than was seen.
        let most = self.more(first, 2.0 * f64::from(first.failed).sqrt()).max(0.0) / first.calls();
        let low = (top * (1.0 - 2.0 * most - STEP).max(TRIAL_MIN)).max(LEAST);
        let is_low = level <= low;
        if !is_low && self.is_more(since) {
            self.step_back(Back { at: now, top, good, left, first: Some(first), since: Tally::default() });
            return Turn::Back(low);
        }
        let enough = if is_low { EXPECTED } else { EXPECTED_FIRST } / share;
        let is_enough = since.calls() >= enough;
        let is_worth_it = enough <= (level * PATIENCE.as_secs_f64()).max(PATIENCE_CALLS);
        if !is_enough && is_worth_it && now.since(at) < PATIENCE_LONGEST {
            return Turn::On;
        }
        self.back = None;
        // One failure is chance.
        if is_low && is_enough && self.is_more(since.but_one()) {
            (self.usual, self.known) = (since.share().min(first.share()), since.calls());
            return Turn::Forth(top, good);
        }
        if self.usual > 0.0 && is_low {
            self.usual += (since.share() - self.usual) * since.calls() / (self.known + since.calls());
            self.known = (self.known + since.calls()).min(KNOWN_MAX);
        }
        // It was the load. A trial went further down than is needed for that.
        let borne = left * (1.0 - 2.0 * STEP);
        if level < borne { Turn::Forth(borne, Some(borne)) } else { Turn::On }
    }
}

impl Back {
    fn settled_at(&self) -> Timestamp {
        self.at + SETTLES
    }
}

impl Tally {
    fn count(&mut self, went_well: bool) {
        let which = if went_well { &mut self.well } else { &mut self.failed };
        *which = which.saturating_add(1);
    }

    fn calls(&self) -> f64 {
        f64::from(self.well) + f64::from(self.failed)
    }

    fn but_one(self) -> Tally {
        Tally { failed: self.failed.saturating_sub(1), ..self }
    }

    fn share(&self) -> f64 {
        f64::from(self.failed) / self.calls().max(1.0)
    }
}
