//! Where a job stands and why, and how its attempts ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::outcome::Failure;
use crate::policy::GiveUp;

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Will be tried when it is due.
    Waiting {
        /// Not before this.
        due_at: Timestamp,
        /// Why it waits.
        reason: Reason,
    },
    /// An attempt is under way.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// Finished.
    Succeeded {
        /// When.
        at: Timestamp,
    },
    /// Needs a person.
    Dead {
        /// When.
        at: Timestamp,
        /// What ended it.
        why: GiveUp,
    },
    /// Taken back by a person.
    Cancelled {
        /// When.
        at: Timestamp,
    },
}

impl State {
    /// The state without its particulars.
    pub fn name(&self) -> StateName {
        match self {
            State::Waiting { .. } => StateName::Waiting,
            State::Running { .. } => StateName::Running,
            State::Succeeded { .. } => StateName::Succeeded,
            State::Dead { .. } => StateName::Dead,
            State::Cancelled { .. } => StateName::Cancelled,
        }
    }

    /// Whether nothing will happen to the job by itself any more.
    pub fn is_final(&self) -> bool {
        self.name().is_final()
    }
}

/// A [`State`] by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// See [`State::Waiting`].
    Waiting,
    /// See [`State::Running`].
    Running,
    /// See [`State::Succeeded`].
    Succeeded,
    /// See [`State::Dead`].
    Dead,
    /// See [`State::Cancelled`].
    Cancelled,
}

impl StateName {
    /// All of them.
    pub const ALL: [StateName; 5] =
        [StateName::Waiting, StateName::Running, StateName::Succeeded, StateName::Dead, StateName::Cancelled];

    /// Whether a job in this state is finished with.
    pub fn is_final(self) -> bool {
        matches!(self, StateName::Succeeded | StateName::Dead | StateName::Cancelled)
    }

    /// The word, as it is written everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            StateName::Waiting => "waiting",
            StateName::Running => "running",
            StateName::Succeeded => "succeeded",
            StateName::Dead => "dead",
            StateName::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a job waits. Nothing waits without a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// For its first run.
    Scheduled,
    /// It failed, and the policy says when to try again.
    Backoff,
    /// The other side said when to come back.
    RetryAfter,
    /// Its handler asked to be called again later.
    Snoozed,
    /// Its process died; it waits as after a failure.
    Crashed,
    /// A shutdown gave it back.
    Interrupted,
    /// No handler for its kind where it was claimed.
    Unhandled,
    /// A person asked for it to run now.
    ByHand,
    /// Another job of its ordering key is before it.
    Order,
    /// Its destination takes nothing now, or no more than it gets.
    Held,
    /// Jobs that it comes after have not succeeded yet.
    Dependency,
}

impl Reason {
    const ALL: [Reason; 11] = [
        Reason::Scheduled,
        Reason::Backoff,
        Reason::RetryAfter,
        Reason::Snoozed,
        Reason::Crashed,
        Reason::Interrupted,
        Reason::Unhandled,
        Reason::ByHand,
        Reason::Order,
        Reason::Held,
        Reason::Dependency,
    ];

    /// The word, as stores write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Scheduled => "scheduled",
            Reason::Backoff => "backoff",
            Reason::RetryAfter => "retry_after",
            Reason::Snoozed => "snoozed",
            Reason::Crashed => "crashed",
            Reason::Interrupted => "interrupted",
            Reason::Unhandled => "unhandled",
            Reason::ByHand => "by_hand",
            Reason::Order => "order",
            Reason::Held => "held",
            Reason::Dependency => "dependency",
        }
    }

    /// Reads what [`Reason::as_str`] wrote.
    pub fn parse(word: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// What one attempt came to, as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    /// Its number.
    pub attempt: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub ending: Ending,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// What it has in common with other failures of the same cause.
    pub fingerprint: Option<String>,
    /// Which rule said what kind of failure this is.
    pub rule: Option<String>,
    /// When the next one was planned.
    pub next_at: Option<Timestamp>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The work is done.
    Succeeded,
    /// It failed.
    Failed,
    /// It asked to be called again later.
    Snoozed,
    /// Its process died or lost its lease.
    Crashed,
    /// A shutdown stopped it.
    Interrupted,
    /// Nobody there knew its kind.
    Unhandled,
    /// Its time was over before it began.
    Expired,
    /// A person took the job back while it ran.
    Cancelled,
    /// Its destination is down or asked for less: it is held, and nothing was counted.
    Held,
}

impl Ending {
    /// Every way.
    pub const ALL: [Ending; 9] = [
        Ending::Succeeded,
        Ending::Failed,
        Ending::Snoozed,
        Ending::Crashed,
        Ending::Interrupted,
        Ending::Unhandled,
        Ending::Expired,
        Ending::Cancelled,
        Ending::Held,
    ];

    /// The word, as stores write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Succeeded => "succeeded",
            Ending::Failed => "failed",
            Ending::Snoozed => "snoozed",
            Ending::Crashed => "crashed",
            Ending::Interrupted => "interrupted",
            Ending::Unhandled => "unhandled",
            Ending::Expired => "expired",
            Ending::Cancelled => "cancelled",
            Ending::Held => "held",
        }
    }

    /// Reads what [`Ending::as_str`] wrote.
    pub fn parse(word: &str) -> Option<Ending> {
        Ending::ALL.into_iter().find(|ending| ending.as_str() == word)
    }
}
