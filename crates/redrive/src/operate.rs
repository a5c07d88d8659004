//! What the people who operate an engine need: figures over time, who did what, notices, and correcting a job. Values
//! and pure functions; where they are kept is the store's business.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Word;
use crate::job::{Job, JobId, Json, Ledger, Reason, State};
use crate::machine::content_problems;
use crate::policy::{Origin, Policy};

/// Figures are kept by the minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// How long they are kept: a month and a day.
pub const SERIES_KEPT: Duration = crate::span::days(32);
/// How many entries the audit log keeps.
pub const AUDIT_MAX: i64 = 100_000;
/// How many notices are kept.
pub const NOTICES_MAX: i64 = 10_000;
/// How many corrections of one job are kept, the newest.
pub(crate) const EDITS_MAX: i64 = 100;

/// What happened within a step of time, everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Point {
    /// When the step began.
    pub at: Timestamp,
    /// Jobs accepted.
    pub enqueued: u64,
    /// Jobs that finished.
    pub succeeded: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Jobs that came to need a person.
    pub dead: u64,
}

/// Which steps of time are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// When the first begins: at a whole minute.
    pub from: Timestamp,
    /// When the last is over.
    pub until: Timestamp,
    /// How long each is: whole minutes.
    pub step: Duration,
}

impl Steps {
    /// The last `window` up to and with the step that `now` is in, in whole steps.
    pub fn before(now: Timestamp, window: Duration, step: Duration) -> Steps {
        let step = whole_minutes(step);
        let until = floor(now, step) + step;
        let count = u32::try_from(window.as_millis().div_ceil(step.as_millis())).unwrap_or(u32::MAX).max(1);
        Steps { from: until - step.saturating_mul(count), until, step }
    }

    /// As long a time from the step on that `now` is in.
    pub fn after(now: Timestamp, window: Duration, step: Duration) -> Steps {
        let Steps { from, until, step } = Steps::before(now, window, step);
        let next = until - step;
        Steps { from: next, until: next + until.since(from), step }
    }

    /// When each begins.
    pub fn starts(&self) -> impl Iterator<Item = Timestamp> {
        let Steps { from, until, step } = *self;
        std::iter::successors(Some(from), move |at| Some(*at + step)).take_while(move |at| *at < until)
    }

    pub(crate) fn step_ms(&self) -> i64 {
        i64::try_from(self.step.as_millis()).unwrap_or(i64::MAX).max(1)
    }

    /// When the step begins that this falls into, if it is one of these.
    pub(crate) fn start_of(&self, at: Timestamp) -> Option<Timestamp> {
        let within = self.from <= at && at < self.until;
        within.then(|| {
            at - Duration::from_millis(at.since(self.from).as_millis() as u64 % self.step_ms() as u64)
        })
    }
}

fn whole_minutes(step: Duration) -> Duration {
    MINUTE * u32::try_from(step.as_secs().div_ceil(MINUTE.as_secs())).unwrap_or(u32::MAX).max(1)
}

fn floor(at: Timestamp, step: Duration) -> Timestamp {
    let step = i64::try_from(step.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.as_millis().div_euclid(step) * step)
}

/// Where a job stands among all that wait, by when they are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// When it is due.
    pub due_at: Timestamp,
    /// Its place in the store: of those that are due together, the first to come is the first.
    pub seq: i64,
}

impl Turn {
    /// Of a job that waits for another try, here or after it failed elsewhere.
    pub(crate) fn of_retry(job: &Job) -> Option<Turn> {
        let State::Waiting { due_at, reason } = job.state else { return None };
        let Ledger { failures, crashes, holds, .. } = job.ledger;
        // What its destination was to blame for is no failure of the job's, and is tried again all the same.
        let was_tried = job.origin == Origin::External || failures > 0 || crashes > 0 || holds > 0;
        (was_tried && reason != Reason::Dependency).then_some(Turn { due_at, seq: job.seq })
    }
}

/// Whether what a job waits for is another try.
pub(crate) fn is_retry(job: &Job) -> bool {
    let after_failure = matches!(
        job.state,
        State::Waiting { reason: Reason::Backoff | Reason::RetryAfter | Reason::Crashed, .. }
    );
    after_failure || job.ledger.failures + job.ledger.crashes > 0
}

/// An entry of the audit log: a change that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// Names this entry: the request it came with.
    pub id: String,
    /// When it was asked for.
    pub at: Timestamp,
    /// Who asked, by name.
    pub who: String,
    /// With which token, if with any.
    pub token: Option<String>,
    /// What was asked, such as `jobs.cancel`.
    pub what: String,
    /// Of what: a job, a queue, a token, a filter.
    pub on: String,
    /// Of which job, if of one.
    pub job: Option<JobId>,
    /// What came of it: `begun` until that is known, `done`, or the code of the refusal.
    pub result: String,
    /// In a few words, how it was before and after.
    pub detail: String,
}

/// Something that is set beside the jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Whether jobs of a queue are handed out.
    Queue {
        /// The queue.
        name: String,
        /// Whether it is stopped.
        paused: bool,
    },
    /// Whether nothing at all is handed out.
    Held(bool),
    /// What is said of a destination.
    Destination {
        /// The destination.
        name: Arc<str>,
        /// What is said.
        word: Word,
    },
    /// A small record such as a token or a limit; none removes it.
    Record {
        /// On which shelf.
        shelf: String,
        /// Under which name.
        name: String,
        /// What.
        value: Option<Json>,
    },
}

/// Which entries of the audit log. Everything given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// About this job.
    pub job: Option<JobId>,
    /// Only entries before this place.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

/// Something that somebody wants to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// The same for all who noticed the same thing: it is told once.
    pub key: String,
    /// When it was noticed.
    pub at: Timestamp,
    /// By which rule.
    pub rule: String,
    /// What is told: `dead`, `recovered`, `failure_rate` or `failure_rate_recovered`.
    pub what: String,
    /// About which job, if about one.
    pub job: Option<JobId>,
    /// In a sentence.
    pub message: String,
}

/// A correction of a job: what is given is changed, the rest stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// Another payload.
    pub payload: Option<Json>,
    /// Another policy. Times that were measured from the old one stay as they are.
    pub policy: Option<Arc<Policy>>,
    /// Another priority.
    pub priority: Option<i16>,
    /// Other labels, instead of all that it has.
    pub labels: Option<BTreeMap<String, String>>,
    /// Another destination.
    pub destination: Option<Arc<str>>,
    /// Who asked for it.
    pub by: String,
}

/// What a job was before it was corrected: only what was changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EditRecord {
    /// When it was changed.
    pub at: Timestamp,
    /// Who asked for it.
    pub by: String,
    /// The payload before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// The policy before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<Policy>>,
    /// The priority before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// The labels before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

impl Edit {
    /// The job as it is afterwards, and what it was before.
    ///
    /// # Errors
    ///
    /// A conflict while it runs and after it has finished: what ran is what is kept. Invalid where what is given cannot
    /// be in a job, or nothing is given.
    pub fn apply(&self, job: &Job, now: Timestamp) -> Result<(Job, EditRecord)> {
        let Edit { payload, policy, priority, labels, destination, by } = self;
        match job.state {
            State::Waiting { .. } | State::Dead { .. } | State::Cancelled { .. } => {}
            State::Running { .. } => {
                return Err(refused(job, "it is running", "wait for the attempt to end, or cancel it first"));
            }
            State::Succeeded { .. } => {
                return Err(refused(job, "it has succeeded", "enqueue a new job with what you want done"));
            }
        }
        if payload.is_none() && policy.is_none() && priority.is_none() && labels.is_none() {
            let hint = "give a payload, a policy, a priority or labels";
            return Err(Error::invalid(format!("nothing is to be changed in job {}", job.id), hint));
        }
        let mut next = job.clone();
        let record = EditRecord {
            at: now,
            by: by.clone(),
            payload: payload.as_ref().map(|new| std::mem::replace(&mut next.payload, new.clone())),
            policy: policy.as_ref().map(|new| std::mem::replace(&mut next.policy, new.clone())),
            priority: priority.map(|new| std::mem::replace(&mut next.priority, new)),
            labels: labels.as_ref().map(|new| std::mem::replace(&mut next.extras_mut().labels, new.clone())),
        };
        if let Some(destination) = destination {
            next.extras_mut().destination = Some(destination.clone());
        }
        let problems = content_problems(&next.payload, &next.extras().labels, policy.as_deref());
        if !problems.is_empty() {
            return Err(Error::invalid(format!("job {} stays as it is", job.id), problems.join("; ")));
        }
        Ok((next, record))
    }
}

fn refused(job: &Job, why: &str, hint: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("job {} stays as it is: {why}", job.id)).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{hours, mins, secs};

    const NOON: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    #[test]
    fn steps_are_whole_and_the_last_is_the_one_that_is_under_way() {
        let steps = Steps::before(NOON + secs(90), hours(1), mins(1));
        assert_eq!((steps.from, steps.until), (NOON - mins(58), NOON + mins(2)));
        assert_eq!(steps.starts().count(), 60);
        let ahead = Steps::after(NOON + secs(90), hours(1), mins(1));
        assert_eq!((ahead.from, ahead.until), (NOON + mins(1), NOON + mins(61)));
    }

    #[test]
    fn a_time_falls_into_the_step_that_began_last() {
        let steps = Steps::before(NOON, mins(30), mins(7));
        let start = steps.start_of(steps.from + mins(8)).unwrap();
        assert_eq!(start, steps.from + mins(7));
        assert_eq!((steps.start_of(steps.until), steps.start_of(steps.from - secs(1))), (None, None));
    }
}
