//! What is remembered of what happened: counters that never count rows, and the notes a person would read.

use std::ops::AddAssign;
use std::sync::Arc;

use serde::Serialize;

use crate::clock::Timestamp;
use crate::gate::Change;
use crate::job::{Ending, Job, JobId, Ledger, State};
use crate::machine::{Command, Transition};
use crate::policy::{Backoff, Origin};

/// How often what has happened in one queue, ever. Kept with the jobs, in the same transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Jobs accepted.
    pub enqueued: u64,
    /// Jobs that finished.
    pub succeeded: u64,
    /// Jobs that finished after at least one failure or crash, here or outside.
    pub recovered: u64,
    /// Jobs that came to need a person.
    pub dead: u64,
    /// Jobs taken back.
    pub cancelled: u64,
    /// Jobs brought back from the dead.
    pub redriven: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Attempts whose process died.
    pub crashes: u64,
    /// Times a handler asked to be called again later.
    pub snoozes: u64,
    /// Attempts given back by a shutdown.
    pub interruptions: u64,
    /// Retries planned.
    pub retries: u64,
    /// The sum of their delays, in milliseconds.
    pub delay_ms: u64,
    /// Retries planned by kind of back-off, in the order of [`Tally::BACKOFFS`].
    pub retries_by_backoff: [u64; 6],
}

impl Tally {
    /// The kinds of back-off, as they are counted.
    pub const BACKOFFS: [&'static str; 6] =
        ["immediate", "fixed", "linear", "exponential", "fibonacci", "schedule"];

    /// The counters with the names under which they are stored.
    pub fn fields(&mut self) -> [(&'static str, &mut u64); 18] {
        let [immediate, fixed, linear, exponential, fibonacci, schedule] = &mut self.retries_by_backoff;
        [
            ("enqueued", &mut self.enqueued),
            ("succeeded", &mut self.succeeded),
            ("recovered", &mut self.recovered),
            ("dead", &mut self.dead),
            ("cancelled", &mut self.cancelled),
            ("redriven", &mut self.redriven),
            ("failures", &mut self.failures),
            ("crashes", &mut self.crashes),
            ("snoozes", &mut self.snoozes),
            ("interruptions", &mut self.interruptions),
            ("retries", &mut self.retries),
            ("delay_ms", &mut self.delay_ms),
            ("retries_immediate", immediate),
            ("retries_fixed", fixed),
            ("retries_linear", linear),
            ("retries_exponential", exponential),
            ("retries_fibonacci", fibonacci),
            ("retries_schedule", schedule),
        ]
    }

    /// Counts the ending of an attempt.
    pub fn count(&mut self, job: &Job, transition: &Transition) {
        match transition.ending {
            Ending::Failed => self.failures += 1,
            Ending::Crashed => self.crashes += 1,
            Ending::Snoozed => self.snoozes += 1,
            Ending::Interrupted => self.interruptions += 1,
            Ending::Succeeded | Ending::Unhandled | Ending::Expired | Ending::Cancelled | Ending::Held => {}
        }
        match transition.state {
            State::Succeeded { .. } => self.succeeded(job, &transition.ledger),
            State::Dead { .. } => self.dead += 1,
            State::Waiting { .. } if matches!(transition.ending, Ending::Failed | Ending::Crashed) => {
                self.retries += 1;
                let delay = transition.delay.unwrap_or_default().as_millis();
                self.delay_ms = self.delay_ms.saturating_add(u64::try_from(delay).unwrap_or(u64::MAX));
                self.retries_by_backoff[backoff_index(&job.policy.backoff)] += 1;
            }
            _ => {}
        }
    }

    pub(crate) fn succeeded(&mut self, job: &Job, ledger: &Ledger) {
        self.succeeded += 1;
        self.recovered += u64::from(came_through(job, ledger));
    }

    /// Counts what a person did.
    pub fn steered(&mut self, command: Command) {
        match command {
            Command::Cancel => self.cancelled += 1,
            Command::Redrive => self.redriven += 1,
            Command::RetryNow | Command::Reschedule(_) | Command::Hurry | Command::Delete => {}
        }
    }

    /// Of the jobs that came to an end by themselves, how many finished: 0.0 to 1.0.
    pub fn success_rate(&self) -> Option<f64> {
        let ended = self.succeeded + self.dead;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
        (ended > 0).then(|| self.succeeded as f64 / ended as f64)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, mut other: Tally) {
        for ((_, mine), (_, theirs)) in self.fields().into_iter().zip(other.fields()) {
            *mine = mine.saturating_add(*theirs);
        }
    }
}

fn backoff_index(backoff: &Backoff) -> usize {
    match backoff {
        Backoff::Immediate => 0,
        Backoff::Fixed { .. } => 1,
        Backoff::Linear { .. } => 2,
        Backoff::Exponential { .. } => 3,
        Backoff::Fibonacci { .. } => 4,
        Backoff::Schedule { .. } => 5,
    }
}

/// A line of the activity log: what a person would want to have been told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub what: What,
    /// To which job.
    pub job: JobId,
    /// Of which kind.
    pub kind: Arc<str>,
    /// In which queue.
    pub queue: Arc<str>,
    /// In a sentence.
    pub message: String,
}

/// How many lines the activity log keeps.
pub const ACTIVITY_MAX: i64 = 10_000;

/// What an [`Activity`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A job that had failed finished.
    Recovered,
    /// A job needs a person.
    Dead,
    /// A process died while it ran a job.
    Crashed,
    /// A person took a job back.
    Cancelled,
    /// A person asked for a job to run now.
    Retried,
    /// A person chose another time for a job.
    Rescheduled,
    /// A person brought a job back from the dead.
    Redriven,
    /// A person corrected a job.
    Edited,
    /// A destination was shut, or goes again.
    Destination,
}

impl What {
    const ALL: [What; 9] = [
        What::Recovered,
        What::Dead,
        What::Crashed,
        What::Cancelled,
        What::Retried,
        What::Rescheduled,
        What::Redriven,
        What::Edited,
        What::Destination,
    ];

    /// The word, as stores write it.
    pub fn as_str(self) -> &'static str {
        match self {
            What::Recovered => "recovered",
            What::Dead => "dead",
            What::Crashed => "crashed",
            What::Cancelled => "cancelled",
            What::Retried => "retried",
            What::Rescheduled => "rescheduled",
            What::Redriven => "redriven",
            What::Edited => "edited",
            What::Destination => "destination",
        }
    }

    /// Reads what [`What::as_str`] wrote.
    pub fn parse(word: &str) -> Option<What> {
        What::ALL.into_iter().find(|what| what.as_str() == word)
    }
}

/// Whether a job that succeeds with this ledger had been in trouble before: here, or outside, which is why it came here.
pub(crate) fn came_through(job: &Job, ledger: &Ledger) -> bool {
    ledger.failures + ledger.crashes + outside(job) > 0
}

/// The failure outside, if there was one.
pub(crate) fn outside(job: &Job) -> u32 {
    u32::from(job.origin == Origin::External)
}

impl Activity {
    /// What the ending of an attempt has to tell, if anything. A first success and a planned retry are no news.
    pub fn of(job: &Job, transition: &Transition, now: Timestamp) -> Option<Activity> {
        let Ledger { attempt, failures, .. } = transition.ledger;
        let error = transition.failure.as_ref().map_or("", |failure| failure.message.as_str());
        let (what, message) = match (&transition.state, transition.ending) {
            (State::Succeeded { .. }, _) if came_through(job, &transition.ledger) => {
                let failures = failures + outside(job);
                let plural = if failures == 1 { "" } else { "s" };
                (What::Recovered, format!("finished at run {attempt}, after {failures} failure{plural}"))
            }
            (State::Dead { why, .. }, _) => {
                (What::Dead, format!("needs a person ({}) after run {attempt}: {error}", why.as_str()))
            }
            (_, Ending::Crashed) => (What::Crashed, format!("its process died in run {attempt}")),
            _ => return None,
        };
        Some(Activity::new(job, what, message, now))
    }

    /// What a person's command has to tell.
    pub fn steered(job: &Job, command: Command, now: Timestamp) -> Option<Activity> {
        let what = match command {
            Command::Cancel => What::Cancelled,
            Command::RetryNow => What::Retried,
            Command::Reschedule(_) => What::Rescheduled,
            Command::Redrive => What::Redriven,
            Command::Hurry | Command::Delete => return None,
        };
        Some(Activity::new(job, what, format!("by hand, while it was {}", job.state.name()), now))
    }

    /// What a correction has to tell.
    pub fn edited(job: &Job, by: &str, now: Timestamp) -> Activity {
        Activity::new(job, What::Edited, format!("by {by}, while it was {}", job.state.name()), now)
    }

    /// What a gate has to tell; with the job that showed it, if one did.
    pub(crate) fn changed(job: JobId, change: &Change) -> Activity {
        let (kind, queue): (Arc<str>, Arc<str>) = ("".into(), "".into());
        Activity { at: change.at, what: What::Destination, job, kind, queue, message: change.to_string() }
    }

    fn new(job: &Job, what: What, mut message: String, now: Timestamp) -> Activity {
        if let Some((end, _)) = message.char_indices().nth(500) {
            message.truncate(end);
            message.push('…');
        }
        Activity { at: now, what, job: job.id, kind: job.kind.clone(), queue: job.queue.clone(), message }
    }
}

/// Into how many equal parts of time a [`Trend`] is cut: as many as can be told apart in a picture the size of a word.
pub const TREND_PARTS: usize = 24;

/// How often something happened in each part of a time that ends now, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trend(pub [u64; TREND_PARTS]);

impl Trend {
    /// How long a part is, in milliseconds.
    pub(crate) fn step_ms(from: Timestamp, now: Timestamp) -> i64 {
        let parts = i64::try_from(TREND_PARTS).expect("it is small");
        // Rounded up: what happens right now has its place in the last part.
        ((now.as_millis() - from.as_millis()) / parts + 1).max(1)
    }

    /// Counts what happened in a part. What a clock that runs ahead has dated after now is in the last one.
    pub(crate) fn count(&mut self, part: i64, times: u64) {
        self.0[usize::try_from(part).unwrap_or(0).min(TREND_PARTS - 1)] += times;
    }
}
