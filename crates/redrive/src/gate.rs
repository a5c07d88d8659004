//! What protects a destination: whether its jobs may go, how many, and when it is asked again.
//!
//! Pure: a [`Gate`] is fed with time and with what attempts came to, and answers with a [`Grant`]. Stores keep one for
//! each destination that has something to say, and let nothing go that it does not grant; so one process and a fleet
//! behave alike, and a simulator runs the real thing.
//!
//! Open → (different jobs fail in a row) → shut → one job asks → ramp, doubling while it succeeds → open. A Retry-After
//! shuts it until then. What fails while it is shut, or on the ramp, costs its job nothing.

mod change;
mod gates;
mod grant;
mod learned;
mod limits;
mod strain;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::job::JobId;
use crate::span;

pub(crate) use self::grant::{Bucket, Grant};
use self::strain::{At, Strain, Turn};
pub use change::Change;
pub(crate) use gates::Gates;
#[cfg(feature = "postgres")]
pub(crate) use gates::observed;
pub use learned::Learned;
pub use limits::{Limits, Rate, Rules, pattern_matches, pattern_problem};

/// A probe that has not come back after this is not waited for any longer.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(60);
/// How often a job may be turned away at no cost. What is turned away more often is at fault itself.
pub const HOLDS_MAX: u32 = 100;
/// On the ramp, where others succeed, it is at fault sooner.
const RAMP_HOLDS_MAX: u32 = 3;

/// The first pause before a destination that is down is asked again; then twice as long each time,
const PROBE_FIRST: Duration = Duration::from_secs(1);
/// up to this;
const PROBE_SOON: Duration = Duration::from_secs(30);
/// when it has been down for longer than this,
const DOWN_LONG: Duration = Duration::from_secs(600);
/// as rarely as this,
const PROBE_LATER: Duration = Duration::from_secs(100);
/// or after a sixteenth of the time,
const PROBE_SHARE: u32 = 16;
/// but this at most.
const PROBE_MAX: Duration = Duration::from_secs(600);
/// A destination without trouble for this long has nothing to say any more.
const CALM: Duration = Duration::from_secs(60);
/// On the ramp, one success a second raises the level by this: it doubles every second.
const RAMP_GAIN: f64 = std::f64::consts::LN_2;
/// Beyond what is known to be borne it rises by a hundredth a second, and that faster with every second without trouble,
const FEEL_GAIN: f64 = 0.01;
/// up to this;
const FEEL_GAIN_MAX: f64 = 0.12;
/// three times as fast where it has borne as much before the trouble,
const FEEL_AGAIN: f64 = 3.0;
/// and by this many a second at least.
const FEEL_LEAST: f64 = 0.5;
/// What doubling has added within the time until a sign of overload is there.
const DOUBLED: f64 = 0.37;
/// Failures in a row within this part of a second's calls are chance: of a thousand a second, twenty must fail.
const CHANCE: f64 = 0.02;
/// On the ramp, calls may come in so many bursts a second, and go one by one up to six a second.
const RAMP_BURSTS: f64 = 25.0;
/// How soon the usual duration of a call is another one.
const TOOK_GAIN: f64 = 0.05;
/// Retries that are allowed whatever the number of first attempts, per second.
const RETRIES_FLOOR: i64 = 10;
const SECOND_US: i64 = 1_000_000;

/// The state of one destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// Where it stands.
    pub phase: Phase,
    /// Whether a person has stopped it.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Different jobs that failed since the last success, in short.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failing: Vec<u32>,
    /// The last sign of trouble.
    trouble_at: Timestamp,
    /// When a retry last had to wait for the budget.
    postponed_at: Timestamp,
    /// Calls per second before the trouble.
    #[serde(skip_serializing_if = "is_zero")]
    before: f64,
    /// Calls per second that it is known to bear: those before the trouble, or before the last sign of overload.
    #[serde(skip_serializing_if = "Option::is_none")]
    good: Option<f64>,
    /// What failures on the ramp have told.
    #[serde(skip_serializing_if = "is_default")]
    strain: Strain,
    /// How long a call takes when it is well, in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    took_ms: f64,
    /// Calls per second, lately.
    #[serde(skip_serializing_if = "is_zero")]
    pace: f64,
    /// What it answered when it was shut, if that was HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    shut_by: Option<u16>,
    /// Since when `sent` is counted.
    sent_from: Timestamp,
    /// What calls add to: written apart from the rest, by whoever lets jobs go.
    #[serde(skip)]
    pub(crate) counts: Counts,
}

/// What changes with every call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// When the next call has its turn, in microseconds.
    pub(crate) next_us: i64,
    /// The same for retries.
    pub(crate) retry_us: i64,
    /// Calls since `sent_from`.
    pub(crate) sent: i64,
}

/// Where a gate stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// Jobs go.
    #[default]
    Open,
    /// None goes.
    Shut {
        /// Since when it has been so.
        since: Timestamp,
        /// Until when, at least.
        until: Timestamp,
        /// Why.
        why: Why,
    },
    /// One job is asking whether it is back.
    Probing {
        /// Since when it is down.
        since: Timestamp,
        /// Until when its answer is waited for.
        until: Timestamp,
    },
    /// Jobs go, more and more of them.
    Ramp {
        /// How many a second.
        level: f64,
        /// Since when.
        since: Timestamp,
    },
}

/// Why a gate is shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It asked for a pause.
    RetryAfter,
    /// Different jobs failed in a row.
    Failing,
    /// Somebody said that it is down.
    Said,
    /// Its credential is not accepted.
    Credential,
}

/// What an attempt showed of its destination.
#[derive(Clone, Debug)]
pub struct Report {
    /// Of which one.
    pub destination: Arc<str>,
    /// By which job.
    pub job: JobId,
    /// How often that was turned away before.
    pub holds: u32,
    /// What was seen.
    pub seen: Seen,
    /// When the attempt began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// The HTTP status that it was answered with, if there was one.
    pub status: Option<u16>,
    /// Calls per second that whoever reports has made lately.
    pub pace: f64,
}

/// See [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It answered: with success, or with something that is wrong with the job alone.
    Well,
    /// It did not, or said that it cannot now.
    Failure,
    /// It asked for a pause.
    Pause(Duration),
    /// It did not accept the credential.
    Refusal,
}

/// Whose failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The job's: it counts toward its limits.
    Job,
    /// The destination's: the job is held, at no cost.
    Destination,
}

/// What a person, a health check or the operating system says of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// It is there: what waits for it goes at once, along the ramp.
    Up,
    /// It is gone: what is for it is held.
    Down,
    /// Nothing may go until it is resumed.
    Pause,
    /// The end of a pause.
    Resume,
}

impl Gate {
    /// Whether calls have to go through it.
    pub fn is_active(&self, limits: &Limits, now: Timestamp) -> bool {
        let is_calm = self.failing.is_empty() && now.since(self.trouble_at.max(self.postponed_at)) >= CALM;
        limits.count_calls() || self.paused || self.phase != Phase::Open || !is_calm
    }

    /// Whether one more success says nothing new: whoever would have to write it for others leaves it, but for one a
    /// second.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_well_known(&self, now: Timestamp) -> bool {
        self.phase == Phase::Open && self.failing.is_empty() && now.since(self.sent_from) < span::secs(1)
    }

    /// What may go now.
    pub(crate) fn grant(&self, limits: &Limits, now: Timestamp) -> Grant {
        let mut gate = self.clone();
        let (mut most, mut next_at) = (u32::MAX, now);
        match self.phase {
            _ if self.paused => (most, next_at) = (0, Timestamp::MAX),
            Phase::Open | Phase::Ramp { .. } => {}
            Phase::Shut { until, .. } | Phase::Probing { until, .. } if now < until => {
                (most, next_at) = (0, until);
            }
            Phase::Shut { why: Why::RetryAfter, .. } => gate.phase = gate.ramp_after_pause(now),
            Phase::Shut { since, .. } | Phase::Probing { since, .. } => {
                most = 1;
                gate.phase = Phase::Probing { since, until: now + PROBE_PATIENCE };
            }
        }
        let calls = gate.spacing(limits).map_or(Bucket::FREE, |(cost, burst)| Bucket::new(now, cost, burst));
        let mut grant = Grant::new(gate, most, calls, next_at);
        if limits.retry_budget > 0 && most != 1 {
            let cost = SECOND_US / RETRIES_FLOOR;
            grant.retries = Bucket::new(now, cost, 10);
            grant.credit_us = cost * i64::from(limits.retry_budget) / 100;
        }
        grant
    }

    fn spacing(&self, limits: &Limits) -> Option<(i64, u32)> {
        let ramp = match self.phase {
            Phase::Ramp { level, .. } => {
                let cost = (SECOND_US as f64 / level.max(0.01)) as i64;
                Some((cost.max(1), (level / RAMP_BURSTS + 0.75).ceil().min(1e6) as u32))
            }
            _ => None,
        };
        [ramp, limits.spacing()].into_iter().flatten().max_by_key(|(cost, _)| *cost)
    }

    fn ramp_after_pause(&self, now: Timestamp) -> Phase {
        Phase::Ramp { level: self.good.map_or(1.0, |good| (good * 0.5).max(1.0)), since: now }
    }

    /// Takes in what an attempt showed, and says whose failure it was.
    pub fn observe(&mut self, report: &Report, limits: &Limits, now: Timestamp) -> Blame {
        self.measure_pace(report, now);
        match report.seen {
            Seen::Well => self.went_well(report, now),
            Seen::Failure => self.failed(report, limits, now),
            Seen::Pause(wait) => self.asked_for_a_pause(wait.min(limits.retry_after_max), report, now),
            Seen::Refusal => self.shut(Why::Credential, Timestamp::MAX, now),
        }
        if report.seen != Seen::Well && matches!(self.phase, Phase::Shut { .. }) {
            self.shut_by = report.status.or(self.shut_by);
        }
        let free = match self.phase {
            Phase::Open => 0,
            Phase::Ramp { .. } => RAMP_HOLDS_MAX,
            Phase::Shut { .. } | Phase::Probing { .. } => HOLDS_MAX,
        };
        let is_held = report.seen != Seen::Well && report.holds < free;
        if is_held { Blame::Destination } else { Blame::Job }
    }

    fn measure_pace(&mut self, report: &Report, now: Timestamp) {
        let passed = now.since(self.sent_from);
        if passed >= span::secs(1) {
            let lately = self.counts.sent as f64 / passed.as_secs_f64();
            self.pace = if passed < span::secs(10) { (self.pace + lately) / 2.0 } else { lately };
            (self.counts.sent, self.sent_from) = (0, now);
        }
        if self.phase == Phase::Open {
            self.pace = self.pace.max(report.pace);
        }
    }

    fn went_well(&mut self, report: &Report, now: Timestamp) {
        let took = report.ended.since(report.began).as_secs_f64() * 1e3;
        let is_slow = self.took_ms > 0.0 && took > 2.0 * self.took_ms + 50.0;
        let mut slowness = 1.0;
        match self.phase {
            Phase::Probing { .. } => {
                self.failing.clear();
                self.phase = Phase::Ramp { level: 1.0, since: now };
            }
            Phase::Ramp { level, since } if report.began >= since => {
                slowness = level.max(1.0);
                self.rises(report.began, is_slow, now);
            }
            Phase::Open => self.failing.clear(),
            Phase::Ramp { .. } | Phase::Shut { .. } => {}
        }
        // It may have become slower for good. That is believed as slowly as time passes, however many calls there are.
        let gain = if is_slow { TOOK_GAIN / slowness } else { TOOK_GAIN };
        self.took_ms = if self.took_ms == 0.0 { took } else { self.took_ms + (took - self.took_ms) * gain };
    }

    /// A success on the ramp.
    fn rises(&mut self, began: Timestamp, is_slow: bool, now: Timestamp) {
        let Phase::Ramp { level, since } = self.phase else { return };
        self.failing.clear();
        let turn = self.strain.went_well(began, level, now);
        self.take(turn, now);
        // Trouble lasts until it is known what it was.
        if self.strain.is_unclear() {
            self.trouble_at = now;
        } else if turn == Turn::On && !is_slow {
            let gain = match self.good {
                Some(good) if level >= good => self.feel_gain(level, since, now).max(FEEL_LEAST / level),
                _ => RAMP_GAIN,
            };
            self.phase = Phase::Ramp { level: level + gain, since };
        }
        let is_calm = now.since(self.trouble_at.max(since)) >= span::secs(10);
        if is_calm && level > 4.0 * self.pace + 20.0 {
            self.phase = Phase::Open;
        }
    }

    /// By how much of the level one success raises it where it feels its way.
    fn feel_gain(&self, level: f64, since: Timestamp, now: Timestamp) -> f64 {
        let calm = now.since(self.trouble_at.max(since));
        let gain = (FEEL_GAIN * calm.as_secs_f64()).min(FEEL_GAIN_MAX);
        if level < self.before { FEEL_AGAIN * gain } else { gain }
    }

    fn take(&mut self, turn: Turn, now: Timestamp) {
        let Phase::Ramp { level, .. } = &mut self.phase else { return };
        match turn {
            Turn::On => {}
            Turn::Back(to) => (*level, self.good, self.trouble_at) = (to, Some(to), now),
            Turn::Forth(to, good) => (*level, self.good) = (to, good),
        }
    }

    fn failed(&mut self, report: &Report, limits: &Limits, now: Timestamp) {
        match self.phase {
            Phase::Probing { since, .. } => {
                let down = now.since(since);
                let soon = (down + PROBE_FIRST).min(PROBE_SOON);
                let later = PROBE_LATER.max(down / PROBE_SHARE).min(PROBE_MAX);
                let pause = if down < DOWN_LONG { soon } else { later };
                self.phase = Phase::Shut { since, until: now + pause, why: Why::Failing };
                self.trouble_at = now;
            }
            // What began before the ramp says nothing about it.
            Phase::Ramp { since, .. } if report.began < since => {}
            Phase::Shut { .. } => {}
            Phase::Open | Phase::Ramp { .. } => {
                let job = short(report.job);
                if !self.failing.contains(&job) {
                    self.failing.push(job);
                }
                let in_a_row = limits.breaker.max((self.pace * CHANCE) as u32) as usize;
                if limits.breaker > 0 && self.failing.len() >= in_a_row {
                    self.shut(Why::Failing, now + PROBE_FIRST, now);
                    self.trouble_at = now;
                } else {
                    self.cut(report.began, now);
                }
            }
        }
    }

    fn asked_for_a_pause(&mut self, wait: Duration, report: &Report, now: Timestamp) {
        let until = report.ended + wait;
        match &mut self.phase {
            // Whatever it is shut for: nobody asks before then.
            Phase::Shut { until: before, .. } => *before = until.max(*before),
            _ if until > now => self.shut(Why::RetryAfter, until, now),
            _ => return self.cut(report.began, now),
        }
        self.trouble_at = now;
    }

    fn shut(&mut self, why: Why, until: Timestamp, now: Timestamp) {
        self.shut_by = None;
        let since = match self.phase {
            Phase::Shut { since, .. } | Phase::Probing { since, .. } => since,
            Phase::Open => {
                self.before = self.pace;
                self.good = (self.pace > 0.0).then_some(self.pace);
                now
            }
            // A relapse: what was reached so far is more than it bears, by a little if it could still say so.
            Phase::Ramp { level, .. } => {
                let left = if why == Why::RetryAfter { 0.9 } else { 0.5 };
                self.good = Some((level * left).max(1.0));
                now
            }
        };
        self.failing.clear();
        self.strain = Strain::default();
        self.phase = Phase::Shut { since, until, why };
    }

    /// A failure; on the ramp, perhaps a sign of overload.
    fn cut(&mut self, began: Timestamp, now: Timestamp) {
        let Phase::Ramp { level, since } = self.phase else {
            self.trouble_at = now;
            return;
        };
        let added = match self.good {
            Some(good) if level >= good => self.feel_gain(level, since, now),
            _ => DOUBLED,
        };
        let turn = self.strain.failed(began, At { level, good: self.good, added }, now);
        self.take(turn, now);
    }

    /// Does what was said of it.
    pub fn told(&mut self, word: Word, now: Timestamp) {
        match word {
            Word::Pause => self.paused = true,
            Word::Resume => self.paused = false,
            Word::Down => self.shut(Why::Said, Timestamp::MAX, now),
            Word::Up => {
                self.failing.clear();
                if self.phase != Phase::Open {
                    self.phase = Phase::Ramp { level: 1.0, since: now };
                }
            }
        }
        self.trouble_at = now;
    }

    /// Whether nothing may go now, because of the destination or a person.
    pub fn is_shut(&self, now: Timestamp) -> bool {
        self.paused
            || match self.phase {
                Phase::Shut { until, .. } | Phase::Probing { until, .. } => now < until,
                Phase::Open | Phase::Ramp { .. } => false,
            }
    }
}

fn short(job: JobId) -> u32 {
    let bits = job.as_u128();
    u32::try_from((bits ^ (bits >> 32)) & u128::from(u32::MAX)).unwrap_or(0)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_false(value: &bool) -> bool {
    !value
}

fn is_default(strain: &Strain) -> bool {
    *strain == Strain::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
