//! Queues: our own capacity. How many at once, in which order, how many may wait, and what is kept how long.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::policy::Policy;

/// A configured stream of jobs.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(crate) name: Arc<str>,
    pub(crate) concurrency: usize,
    pub(crate) order: Order,
    pub(crate) on_retry: OnRetry,
    pub(crate) capacity: Option<u64>,
    pub(crate) policy: Arc<Policy>,
}

/// How many jobs of a queue run at once unless told otherwise.
pub const CONCURRENCY_DEFAULT: usize = 16;
/// More than this in one process is a mistake in the unit.
pub const CONCURRENCY_MAX: usize = 100_000;

/// Which of the waiting jobs goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// By priority, then by due time.
    #[default]
    Due,
    /// One at a time for each ordering key, in the order of enqueueing. Jobs without a key share one.
    Fifo,
}

/// What a job that waits for its retry means for those behind it with the same ordering key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRetry {
    /// They wait until it is final: strict order.
    #[default]
    Block,
    /// They go on, and it joins in again when it is due.
    LetPass,
}

impl Queue {
    /// A queue with sixteen places, by due time, without a limit on what may wait.
    pub fn new(name: &str) -> Queue {
        Queue {
            name: name.into(),
            concurrency: CONCURRENCY_DEFAULT,
            order: Order::Due,
            on_retry: OnRetry::Block,
            capacity: None,
            policy: Arc::new(Policy::default()),
        }
    }

    /// How many of its jobs this process runs at once.
    pub fn concurrency(mut self, places: usize) -> Queue {
        self.concurrency = places;
        self
    }

    /// First in, first out: see [`Order::Fifo`].
    pub fn fifo(mut self) -> Queue {
        self.order = Order::Fifo;
        self
    }

    /// What a waiting retry means for those behind it.
    pub fn on_retry(mut self, on_retry: OnRetry) -> Queue {
        self.on_retry = on_retry;
        self
    }

    /// How many jobs may be waiting or running; beyond that, enqueueing is refused.
    pub fn capacity(mut self, jobs: u64) -> Queue {
        self.capacity = Some(jobs);
        self
    }

    /// The policy of jobs that bring none.
    pub fn policy(mut self, policy: Policy) -> Queue {
        self.policy = Arc::new(policy);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many of its jobs this process runs at once.
    pub fn places(&self) -> usize {
        self.concurrency
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let name = &self.name;
        if name.is_empty() || name.len() > crate::machine::NAME_BYTES_MAX {
            problems.push(format!(
                "queue {name:?}: give it a name of 1 to {} bytes",
                crate::machine::NAME_BYTES_MAX
            ));
        }
        if self.concurrency == 0 || self.concurrency > CONCURRENCY_MAX {
            problems.push(format!(
                "queue {name:?}: concurrency is {}; write a number from 1 to {CONCURRENCY_MAX}",
                self.concurrency
            ));
        }
        if self.capacity == Some(0) {
            problems.push(format!(
                "queue {name:?}: capacity 0 would refuse everything; write 1 or more, or leave it out"
            ));
        }
        if let Err(policy) = self.policy.validate() {
            problems.extend(policy.into_iter().map(|problem| format!("queue {name:?}: {problem}")));
        }
        problems
    }
}

/// How long finished jobs are kept. Dead jobs stay until someone acts, unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Succeeded jobs. Default one day.
    pub succeeded: Duration,
    /// Cancelled jobs. Default one day.
    pub cancelled: Duration,
    /// Dead jobs. Default: kept.
    pub dead: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Retention {
        let day = Duration::from_secs(24 * 3600);
        Retention { succeeded: day, cancelled: day, dead: None }
    }
}

impl Retention {
    /// Whether a job in this state need not be kept any longer.
    pub(crate) fn is_over(&self, state: &crate::job::State, now: Timestamp) -> bool {
        use crate::job::State;
        match state {
            State::Succeeded { at } => now.since(*at) >= self.succeeded,
            State::Cancelled { at } => now.since(*at) >= self.cancelled,
            State::Dead { at, .. } => self.dead.is_some_and(|kept| now.since(*at) >= kept),
            State::Waiting { .. } | State::Running { .. } => false,
        }
    }
}
