//! Asking for a job: what differs from the defaults.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AttemptRecord, DEFAULT_QUEUE, Ending, Extras, JobId, Json, Payload};
use crate::clock::Timestamp;
use crate::outcome::Failure;
use crate::policy::{Origin, Policy};

/// What to do when a job with the same key is already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// Keep the one that is there, and say so.
    #[default]
    Ignore,
    /// Put the new content into the one that waits. Refused while it runs.
    Replace,
    /// Refuse the new one.
    Reject,
}

/// A job to be made. `NewJob::from(payload)`, then what differs from the defaults.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub(crate) kind: Arc<str>,
    pub(crate) queue: Arc<str>,
    /// A payload that cannot be written as JSON is reported when the job is enqueued.
    pub(crate) payload: Result<Json, String>,
    pub(crate) priority: i16,
    pub(crate) on_conflict: OnConflict,
    pub(crate) policy: Option<Policy>,
    pub(crate) origin: Origin,
    pub(crate) when: When,
    pub(crate) extras: Extras,
    /// What was tried before the job was handed over.
    pub(crate) history: Vec<AttemptRecord>,
    pub(crate) author: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    Now,
    After(Duration),
    At(Timestamp),
}

impl<P: Payload> From<P> for NewJob {
    fn from(payload: P) -> NewJob {
        let json = Json::of(&payload).map_err(|error| error.to_string());
        let mut new = NewJob::raw(P::KIND, json).queue(P::QUEUE);
        new.extras.destination = payload.destination().map(Into::into);
        new
    }
}

impl NewJob {
    /// A job of a kind known by name, with a payload that is JSON already.
    pub fn of_kind(kind: &str, payload: Json) -> NewJob {
        NewJob::raw(kind, Ok(payload))
    }

    fn raw(kind: &str, payload: Result<Json, String>) -> NewJob {
        NewJob {
            kind: kind.into(),
            queue: DEFAULT_QUEUE.into(),
            payload,
            priority: 0,
            on_conflict: OnConflict::default(),
            policy: None,
            origin: Origin::Engine,
            when: When::Now,
            extras: Extras::default(),
            history: Vec::new(),
            author: None,
        }
    }

    /// Whether some time is to pass from now on before it runs first.
    pub(crate) fn is_to_wait(&self) -> bool {
        matches!(self.when, When::After(_)) || self.origin == Origin::External
    }

    /// Into this queue.
    pub fn queue(mut self, queue: &str) -> NewJob {
        self.queue = queue.into();
        self
    }

    /// Not before this much time has passed.
    pub fn after(mut self, delay: Duration) -> NewJob {
        self.when = When::After(delay);
        self
    }

    /// Not before this instant.
    pub fn run_at(mut self, at: Timestamp) -> NewJob {
        self.when = When::At(at);
        self
    }

    /// At most one job with this key that is not final.
    pub fn key(mut self, key: impl Into<Arc<str>>) -> NewJob {
        self.extras.key = Some(key.into());
        self
    }

    /// What to do when the key is taken.
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> NewJob {
        self.on_conflict = on_conflict;
        self
    }

    /// One at a time and in order with the others that have this key in the same queue.
    pub fn ordering_key(mut self, key: impl Into<Arc<str>>) -> NewJob {
        self.extras.ordering_key = Some(key.into());
        self
    }

    /// Higher goes first. Default 0.
    pub fn priority(mut self, priority: i16) -> NewJob {
        self.priority = priority;
        self
    }

    /// Its own policy instead of its queue's.
    pub fn policy(mut self, policy: Policy) -> NewJob {
        self.policy = Some(policy);
        self
    }

    /// Dead if not finished by then.
    pub fn deadline(mut self, at: Timestamp) -> NewJob {
        self.extras.deadline = Some(at);
        self
    }

    /// Dead if not begun by then.
    pub fn start_by(mut self, at: Timestamp) -> NewJob {
        self.extras.start_by = Some(at);
        self
    }

    /// How long one attempt may take.
    pub fn timeout(mut self, timeout: Duration) -> NewJob {
        self.extras.timeout = Some(timeout);
        self
    }

    /// Whose health decides whether it may start.
    pub fn destination(mut self, destination: impl Into<Arc<str>>) -> NewJob {
        self.extras.destination = Some(destination.into());
        self
    }

    /// A label for people and filters.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> NewJob {
        self.extras.labels.insert(name.into(), value.into());
        self
    }

    /// The job this one belongs to.
    pub fn parent(mut self, parent: JobId) -> NewJob {
        self.extras.parent = Some(parent);
        self
    }

    /// Who asks for it, to be shown to people: see [`JobDetail::author`](crate::JobDetail::author).
    pub fn author(mut self, author: impl Into<Arc<str>>) -> NewJob {
        self.author = Some(author.into());
        self
    }

    /// The first failure happened outside the engine: the first run comes after the policy's first delay, and every
    /// run counts as a retry.
    pub fn failed_outside(mut self, failure: Failure) -> NewJob {
        self.origin = Origin::External;
        self.history = vec![AttemptRecord {
            attempt: 0,
            started_at: Timestamp::EPOCH,
            ended_at: Timestamp::EPOCH,
            ending: Ending::Failed,
            fingerprint: Some(failure.fingerprint(&self.kind)),
            failure: Some(failure),
            rule: None,
            next_at: None,
        }];
        self
    }
}
