//! What an attempt came to, as it crosses from the engine to a store, and whether it counted.

use std::sync::Arc;

use super::{ClaimId, HolderId, Lease};
use crate::clock::Timestamp;
use crate::job::{AttemptRecord, Ending, Job, State};
use crate::machine::Transition;

/// What an attempt came to.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// By what right.
    pub lease: Lease,
    /// The job as it was claimed.
    pub job: Arc<Job>,
    /// What to write.
    pub transition: Transition,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How its holder would go on with it, if it is due again at once.
    pub again: Option<Again>,
}

/// A job that is due again at once need not go back to its queue: it is settled and claimed in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// For whom, which has kept a place for it.
    pub holder: HolderId,
    /// Under which claim: a new one, which other settlements of the same call may share.
    pub claim: ClaimId,
}

impl Settlement {
    /// Whether the job is due again at once and nothing else decides about its turn.
    pub(crate) fn is_due_again(&self) -> bool {
        let Transition { ledger, state, ending, .. } = &self.transition;
        matches!(state, State::Waiting { due_at, .. } if *due_at <= self.ended_at)
            && *ending == Ending::Failed
            && ledger.crashes == 0
            && self.job.extras().ordering_key.is_none()
            && self.job.extras().destination.is_none()
            && self.job.expires_with(ledger).is_none_or(|over| over > self.ended_at)
    }

    /// How to go on with it, if that is wanted and possible.
    pub(crate) fn wanted_again(&self) -> Option<Again> {
        self.again.filter(|_| self.is_due_again())
    }

    /// By what right the next attempt is settled, if the store lets its holder go on with it.
    pub fn next_lease(&self) -> Option<Lease> {
        self.again.map(|again| Lease { claim: again.claim, attempt: self.lease.attempt + 1, ..self.lease })
    }

    /// The job as the next attempt finds it.
    pub fn next_job(&self) -> Job {
        let mut job = Job::clone(&self.job);
        self.transition.apply_to(&mut job);
        job
    }

    /// The attempt as it is kept.
    pub fn record(&self) -> AttemptRecord {
        self.transition.record(self.started_at, self.ended_at)
    }
}

/// Whether a settlement counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// It did.
    Applied,
    /// It did, and the job was claimed again with it, as was wanted: its next attempt may begin.
    Again,
    /// The lease was lost before: nothing was changed.
    Refused,
}
