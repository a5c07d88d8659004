//! What an attempt came to, as it crosses from the engine to a store, and whether it counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{ClaimId, HolderId, Kinds, Lease};
use crate::clock::Timestamp;
use crate::job::{AttemptRecord, Ending, Extras, Job, Ledger, State};
use crate::machine::Transition;
use crate::span::mins;

/// What runs out of time later than this is nobody else's to claim meanwhile.
const LONG: Duration = mins(1);

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
    /// How its holder would go on in its place: with the job itself if it is due again at once, with one that waited for
    /// nothing but its success otherwise.
    pub again: Option<Again>,
}

/// What follows an attempt at once need not go back to its queue: the one is settled and the other claimed in one
/// transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// For whom, which has kept a place for it.
    pub holder: HolderId,
    /// Under which claim: a new one, which other settlements of the same call share if they go on in the same way.
    pub claim: ClaimId,
    /// Only with jobs of these kinds; of all kinds if not given.
    pub kinds: Option<Kinds>,
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

    /// Whether it succeeded and others may have waited for that.
    pub(crate) fn lets_others_go(&self) -> bool {
        matches!(self.transition.state, State::Succeeded { .. }) && self.job.extras().parent.is_some()
    }

    /// The destination at which it failed.
    pub(crate) fn failed_at(&self) -> Option<Arc<str>> {
        let failed = self.transition.ending == Ending::Failed;
        self.job.extras().destination.clone().filter(|_| failed)
    }

    /// Whether something hangs on its being written soon: another job, or what is known of its destination.
    pub(crate) fn is_waited_for(&self) -> bool {
        let succeeded = matches!(self.transition.state, State::Succeeded { .. });
        let Extras { key, ordering_key, parent, .. } = self.job.extras();
        let holds_others = key.is_some() || ordering_key.is_some() || parent.is_some();
        !succeeded || holds_others || self.job.is_suspect()
    }

    /// How to go on with it, if that is wanted and possible.
    pub(crate) fn wanted_again(&self) -> Option<&Again> {
        self.again.as_ref().filter(|_| self.is_due_again())
    }

    /// How to go on with another, if that is wanted and possible.
    pub(crate) fn wanted_next(&self) -> Option<&Again> {
        self.again.as_ref().filter(|_| self.lets_others_go())
    }

    /// By what right the next attempt is settled, if the store lets its holder go on with it.
    pub fn next_lease(&self) -> Option<Lease> {
        let claim = self.wanted_again()?.claim;
        Some(Lease { claim, attempt: self.lease.attempt + 1, ..self.lease })
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
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It did.
    Applied,
    /// It did, and the job was claimed again with it, as was wanted: its next attempt may begin.
    Again,
    /// It did, and a job that waited for nothing else was claimed in its place: its attempt may begin.
    Next(Box<(Lease, Job)>),
    /// The lease was lost before: nothing was changed.
    Refused,
}

/// The places that were kept for what endings let go: of which queue and priority, and how many.
pub(super) struct Kept<'a> {
    again: &'a Again,
    places: BTreeMap<(Arc<str>, i16), usize>,
}

impl<'a> Kept<'a> {
    /// Those of the settlements that counted. They share one claim.
    pub(super) fn of(settlements: &'a [Settlement], answers: &[Settled]) -> Option<Kept<'a>> {
        let again = settlements.iter().find_map(Settlement::wanted_next)?;
        let mut places = BTreeMap::new();
        for (settlement, answer) in settlements.iter().zip(answers) {
            if *answer == Settled::Applied && settlement.wanted_next() == Some(again) {
                *places.entry((settlement.job.queue.clone(), settlement.job.priority)).or_default() += 1;
            }
        }
        Some(Kept { again, places })
    }

    /// Whether this job, which was let go then, begins in one of them. What needs more than a place is left to a claim: a
    /// gate's word, a look at the time, a suspicion.
    pub(super) fn take(&mut self, next: &Job, let_go_at: Timestamp) -> bool {
        let kinds = self.again.kinds.as_ref();
        let may_begin = matches!(next.state, State::Waiting { .. })
            && next.ledger == Ledger::default()
            && next.extras().destination.is_none()
            && next.buried_at().is_none_or(|over| over > let_go_at + LONG)
            && kinds.is_none_or(|kinds| kinds.contains(&next.kind));
        let place =
            self.places.get_mut(&(next.queue.clone(), next.priority)).filter(|left| may_begin && **left > 0);
        place.map(|left| *left -= 1).is_some()
    }
}

/// Tells those whose places were kept what has begun in them: those that counted first, then those that were told before
/// and did not hear it.
pub(super) fn hand_on(settlements: &[Settlement], answers: &mut [Settled], mut begun: Vec<(Lease, Job)>) {
    begun.sort_by_key(|(lease, job)| std::cmp::Reverse((job.priority, lease.seq)));
    let mut by_queue: BTreeMap<Arc<str>, Vec<(Lease, Job)>> = BTreeMap::new();
    for next in begun {
        by_queue.entry(next.1.queue.clone()).or_default().push(next);
    }
    for told in [Settled::Applied, Settled::Refused] {
        for (settlement, answer) in settlements.iter().zip(answers.iter_mut()) {
            if *answer == told
                && settlement.wanted_next().is_some()
                && let Some(next) = by_queue.get_mut(&settlement.job.queue).and_then(Vec::pop)
            {
                *answer = Settled::Next(Box::new(next));
            }
        }
    }
}
