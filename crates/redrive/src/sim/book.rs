//! What must be true, kept outside the store: every call and its answer is entered here, and every answer that the
//! entries so far do not allow is a broken promise. The whole store is compared with the book after each change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::act::Doing;
use super::doors::Owed;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Ending, Job, JobId, OnConflict, State};
use crate::machine::{self, Admission};
use crate::queue::{OnRetry, Retention};
use crate::span::millis;
use crate::span::secs;
use crate::stats::Tally;
use crate::store::{
    self, Claim, ClaimId, Claimed, Enqueued, Expiry, HolderId, How, Lease, Renewal, Settled, Settlement, Want,
};

/// What a check finds: nothing, or a sentence that says which promise is broken.
pub(super) type Verdict = std::result::Result<(), String>;

/// The promises so far.
#[derive(Default)]
pub(super) struct Book {
    pub(super) jobs: BTreeMap<JobId, Entry>,
    /// Deleted by hand or forgotten when their time was over.
    pub(super) gone: BTreeSet<JobId>,
    pub(super) holders: BTreeMap<HolderId, Holder>,
    pub(super) paused: BTreeSet<Arc<str>>,
    pub(super) totals: BTreeMap<Arc<str>, Tally>,
    /// Destinations, and what claims owe them.
    pub(super) doors: BTreeMap<Arc<str>, Owed>,
    /// Under which jobs were handed out.
    pub(super) claims: BTreeSet<ClaimId>,
    /// Created since the last comparison, in the order they were given.
    pub(super) fresh: Vec<JobId>,
    pub(super) last_seq: i64,
    /// Who waits for whom: the first for nobody, the second for the first.
    pub(super) ties: BTreeSet<(JobId, JobId)>,
    /// Forgetting is under way: jobs whose time is over by this may be missing, this many.
    pub(super) pruned: Option<(Retention, Timestamp, u64)>,
    /// Attempts that have begun.
    pub(super) begun: BTreeMap<(JobId, u32), Doing>,
    /// Attempts whose handler is at work.
    pub(super) active: BTreeSet<(JobId, u32)>,
    /// No fault happens any more.
    pub(super) calm: bool,
    /// No fault happens any more, and those that happened have no consequences left.
    pub(super) quiet: bool,
    /// When something last changed.
    pub(super) moved_at: Timestamp,
    /// What was seen to happen, for the assertion that it sometimes does.
    pub(super) seen: BTreeSet<&'static str>,
}

/// One job as it must be.
pub(super) struct Entry {
    pub(super) job: Job,
    /// By whom and by what right it runs, and when it was due.
    pub(super) running: Option<(HolderId, Lease, Timestamp)>,
    /// Attempts that must be in its history.
    pub(super) recorded: u32,
    pub(super) completions: u32,
}

/// A lease holder as the store must know it.
#[derive(Default)]
pub(super) struct Holder {
    until: Timestamp,
    /// Taken away, and not yet tried to be settled.
    pub(super) lost: BTreeSet<(i64, u32)>,
}

macro_rules! demand {
    ($holds:expr, $($sentence:tt)+) => {
        if !$holds {
            return Err(format!($($sentence)+));
        }
    };
}
pub(super) use demand;

impl Book {
    /// Something moved: this is what a world that is stuck lacks.
    fn moved(&mut self, now: Timestamp) {
        self.moved_at = self.moved_at.max(now);
    }

    pub(super) fn enqueued(&mut self, jobs: &[Admission], answer: &Result<Vec<Enqueued>>) -> Verdict {
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => return self.refused_for_a_reason(jobs, error),
        };
        demand!(answers.len() == jobs.len(), "{} jobs were answered by {}", jobs.len(), answers.len());
        for (admission, Enqueued { id, how }) in jobs.iter().zip(answers) {
            let Admission { job, capacity, .. } = admission;
            let holder = self.key_holder(job.extras().key.as_deref());
            match how {
                How::Created => {
                    demand!(*id == job.id, "a new job was given another id");
                    demand!(!self.jobs.contains_key(id), "job {id} was created twice");
                    demand!(holder.is_none(), "key {:?} was given out twice", job.extras().key);
                    let live = self.live_in(&job.queue);
                    demand!(
                        capacity.is_none_or(|most| live < most),
                        "queue {} took a job beyond its capacity: {live} of {capacity:?}",
                        job.queue
                    );
                    self.create(admission);
                }
                How::Existing => {
                    let same = self.jobs.contains_key(&job.id) && *id == job.id;
                    demand!(same || holder == Some(*id), "job {id} does not hold the key it was found by");
                    demand!(same || admission.on_conflict == OnConflict::Ignore, "a taken key was ignored");
                    self.seen.insert(if same { "enqueued again" } else { "key ignored" });
                }
                How::Replaced => {
                    demand!(holder == Some(*id), "job {id} was replaced and does not hold the key");
                    let entry = self.jobs.get_mut(id).ok_or("a job that is not there was replaced")?;
                    demand!(entry.running.is_none(), "job {id} was replaced while it ran");
                    entry.job = store::replaced(&entry.job, job.clone());
                    self.seen.insert("key replaced");
                }
            }
        }
        self.tied(jobs, answers);
        Ok(())
    }

    fn create(&mut self, admission: &Admission) {
        let job = admission.job.clone();
        self.totals.entry(job.queue.clone()).or_default().enqueued += 1;
        self.gone.remove(&job.id);
        self.fresh.push(job.id);
        self.moved(job.created_at);
        let recorded = u32::try_from(admission.history.len()).unwrap_or(0);
        self.jobs.insert(job.id, Entry { job, running: None, recorded, completions: 0 });
    }

    fn refused_for_a_reason(&mut self, jobs: &[Admission], error: &Error) -> Verdict {
        let justified = match error.kind() {
            ErrorKind::Full => jobs.iter().any(|admission| {
                let queue = &admission.job.queue;
                let coming = jobs.iter().filter(|other| other.job.queue == *queue).count() as u64;
                admission.capacity.is_some_and(|most| self.live_in(queue) + coming > most)
            }),
            ErrorKind::Conflict => jobs.iter().any(|admission| {
                let key = admission.job.extras().key.as_deref();
                key.is_some()
                    && (self.key_holder(key).is_some()
                        || jobs.iter().filter(|other| other.job.extras().key.as_deref() == key).count() > 1)
            }),
            _ => false,
        };
        demand!(justified, "jobs were refused without a reason: {error}");
        self.seen.insert(if error.kind() == ErrorKind::Full { "queue full" } else { "key refused" });
        Ok(())
    }

    fn live_in(&self, queue: &str) -> u64 {
        self.live().filter(|entry| *entry.job.queue == *queue).count() as u64
    }

    pub(super) fn key_holder(&self, key: Option<&str>) -> Option<JobId> {
        self.live().find(|entry| key.is_some() && entry.job.extras().key.as_deref() == key).map(|e| e.job.id)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Entry> {
        self.jobs.values().filter(|entry| !entry.job.state.is_final())
    }

    /// The soonest time at which something may happen to a job that waits. One that waits for another of its ordering
    /// key has no time of its own but that at which its time is over.
    pub(super) fn soonest(&self, blocks: impl Fn(&str) -> bool) -> Option<Timestamp> {
        let times = self.live().filter_map(|entry| {
            let Job { seq, queue, .. } = &entry.job;
            let State::Waiting { due_at, .. } = entry.job.state else { return None };
            let key = entry.job.extras().ordering_key.as_ref().filter(|_| blocks(queue));
            let behind = key.is_some()
                && self.live().any(|other| {
                    other.job.seq < *seq
                        && other.job.queue == *queue
                        && other.job.extras().ordering_key.as_ref() == key
                });
            let by_itself = !behind && !entry.is_held();
            [Some(due_at).filter(|_| by_itself), entry.job.expires_at()].into_iter().flatten().min()
        });
        times.min()
    }

    pub(super) fn registered(&mut self, holder: HolderId, until: Timestamp) -> Verdict {
        self.holders.entry(holder).or_default().until = until;
        Ok(())
    }

    pub(super) fn claimed(&mut self, claim: &Claim, now: Timestamp, answer: &Result<Claimed>) -> Verdict {
        let known = self.holders.contains_key(&claim.holder);
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(error) => {
                demand!(error.kind() == ErrorKind::LeaseLost && !known, "a claim was refused: {error}");
                self.seen.insert("claim refused");
                return Ok(());
            }
        };
        demand!(known, "a holder that has expired was given jobs");
        if claim.ids.iter().any(|id| self.claims.contains(id)) {
            return self.claimed_before(claim, claimed);
        }
        self.claims.extend(claimed.jobs.iter().map(|(lease, _)| lease.claim));
        for want in &claim.wants {
            let count = claimed.jobs.iter().filter(|(_, job)| job.queue == want.queue).count();
            demand!(count <= want.limit, "{count} jobs of {} were given for {}", want.queue, want.limit);
        }
        for (lease, job) in &claimed.jobs {
            let want = claim.wants.iter().find(|want| want.queue == job.queue);
            let want = want.ok_or_else(|| format!("job {} was not asked for", job.id))?;
            self.hand_out(claim, want, *lease, job, now)?;
        }
        self.next_is_not_late(claim, now, claimed.next_due)
    }

    /// Whoever asks again is told the same again, and given nothing more.
    fn claimed_before(&mut self, claim: &Claim, claimed: &Claimed) -> Verdict {
        self.seen.insert("claimed again");
        let held = self.live().filter_map(|entry| entry.running);
        let held = held.filter(|(by, lease, _)| *by == claim.holder && claim.ids.contains(&lease.claim));
        let expected: BTreeSet<(i64, u32)> = held.map(|(_, lease, _)| (lease.seq, lease.attempt)).collect();
        let told: BTreeSet<(i64, u32)> =
            claimed.jobs.iter().map(|(lease, _)| (lease.seq, lease.attempt)).collect();
        demand!(told == expected, "a repeated claim was answered with {told:?} and holds {expected:?}");
        Ok(())
    }

    fn hand_out(&mut self, claim: &Claim, want: &Want, lease: Lease, job: &Job, now: Timestamp) -> Verdict {
        let id = job.id;
        let entry =
            self.jobs.get_mut(&id).ok_or_else(|| format!("job {id} was handed out and is not there"))?;
        entry.stands_in_line(job);
        entry.leaves_line(job, now);
        let State::Waiting { due_at, .. } = entry.job.state else {
            return Err(format!("job {id} was handed out while it was {}", entry.job.state.name()));
        };
        demand!(lease.attempt == entry.job.ledger.attempt, "job {id} was handed out at another attempt");
        demand!(*job == entry.job, "job {id} was handed out as {job:?} and is {:?}", entry.job);
        demand!(claim.ids.contains(&lease.claim), "job {id} was handed out under another claim");
        let over = job.expires_at().is_some_and(|at| at <= now);
        demand!(over || due_at <= now, "job {id} was handed out at {now}, before it is due at {due_at}");
        demand!(over || !self.paused.contains(&job.queue), "job {id} of a paused queue was handed out");
        let late = self.quiet && self.live().count() == 1 && now.since(due_at) > secs(1);
        demand!(!late, "job {id} was due at {due_at} and was handed out at {now} with nothing else to do");
        if !over {
            self.it_is_its_turn(job, want.on_retry, now)?;
            self.goes_to(job, now)?;
        }
        let entry = self.jobs.get_mut(&id).ok_or("it was there")?;
        entry.running = Some((claim.holder, lease, due_at));
        entry.job.state = State::Running { since: now };
        self.moved(now);
        Ok(())
    }

    fn it_is_its_turn(&self, job: &Job, on_retry: OnRetry, now: Timestamp) -> Verdict {
        let Some(key) = &job.extras().ordering_key else { return Ok(()) };
        let siblings = self.live().filter(|other| {
            other.job.id != job.id
                && other.job.queue == job.queue
                && other.job.extras().ordering_key.as_ref() == Some(key)
        });
        for other in siblings {
            let sibling = other.job.id;
            demand!(other.running.is_none(), "jobs {} and {sibling} of key {key:?} run together", job.id);
            let State::Waiting { due_at, .. } = other.job.state else { continue };
            let before = other.job.seq < job.seq && (on_retry == OnRetry::Block || due_at <= now);
            demand!(!before, "job {} of key {key:?} went before {sibling}", job.id);
        }
        Ok(())
    }

    /// Whoever is told a time sleeps until then.
    fn next_is_not_late(&self, claim: &Claim, now: Timestamp, next: Option<Timestamp>) -> Verdict {
        let wanted = |queue: &Arc<str>| claim.wants.iter().any(|want| want.queue == *queue);
        let coming = self.live().filter(|entry| {
            wanted(&entry.job.queue) && !self.paused.contains(&entry.job.queue) && !entry.job.is_suspect()
        });
        let due = coming.filter_map(|entry| match entry.job.state {
            State::Waiting { due_at, .. } if due_at > now && !entry.is_held() => Some(due_at),
            _ => None,
        });
        let Some(due) = due.min() else { return Ok(()) };
        demand!(next.is_some_and(|next| next <= due), "a job is due at {due}, and the claim said {next:?}");
        Ok(())
    }

    pub(super) fn gone_or_cancelled(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_none_or(|entry| matches!(entry.job.state, State::Cancelled { .. }))
    }

    pub(super) fn apply_settlement(&mut self, settlement: &Settlement) -> Verdict {
        let Settlement { lease, transition, ended_at, started_at, .. } = settlement;
        let doing = self.begun.get(&(lease.job, lease.attempt + 1)).copied();
        let entry = self.jobs.get_mut(&lease.job).ok_or("it was there")?;
        let job = &entry.job;
        let id = job.id;
        demand!(started_at <= ended_at, "job {id} ended before it began");
        let outcome = super::check::outcome_of(transition, doing).map_err(|why| format!("job {id} {why}"))?;
        let (took, is_unbegun) = (ended_at.since(*started_at), doing.is_none());
        demand!(
            transition.ending != Ending::Interrupted || !is_unbegun || took <= millis(1),
            "job {id} was interrupted after {took:?}, and had not begun"
        );
        let is_over = job.deadline().is_some_and(|deadline| deadline <= *ended_at);
        demand!(
            transition.ending != Ending::Expired || is_unbegun || is_over,
            "job {id} was given up while it ran, and its time was not over"
        );
        let expected = machine::settle(job, outcome, *ended_at, &mut id.rng(job.attempt()));
        demand!(expected == *transition, "job {id} should go on as {expected:?}, not as {transition:?}");
        super::check::counters(job, transition)?;
        self.seen.insert(transition.ending.as_str());
        if let State::Dead { why, .. } = transition.state {
            self.seen.insert(why.as_str());
        }
        if matches!(&transition.failure, Some(failure) if failure.code.as_deref() == Some("TIMEOUT")) {
            self.seen.insert("timeout");
        }
        if transition.ending == Ending::Succeeded {
            entry.completions += 1;
            demand!(entry.completions == 1, "job {id} was completed {} times", entry.completions);
        } else {
            entry.recorded += 1;
        }
        self.totals.entry(entry.job.queue.clone()).or_default().count(&entry.job, transition);
        entry.running = None;
        transition.apply_to(&mut entry.job);
        self.let_go(id, *ended_at);
        self.moved(*ended_at);
        Ok(())
    }

    pub(super) fn renewed(&mut self, id: HolderId, until: Timestamp, answer: &Renewal) -> Verdict {
        match (self.holders.get_mut(&id), answer) {
            (None, Renewal::Gone) => {
                self.seen.insert("holder gone");
                Ok(())
            }
            (None, Renewal::Kept { .. }) => Err("a holder that has expired was renewed".into()),
            (Some(_), Renewal::Gone) => Err("a holder that has not expired was refused".into()),
            (Some(holder), Renewal::Kept { lost }) => {
                holder.until = until;
                let told: BTreeSet<(i64, u32)> =
                    lost.iter().map(|lease| (lease.seq, lease.attempt)).collect();
                demand!(told == holder.lost, "a holder was told {told:?} and lost {:?}", holder.lost);
                Ok(())
            }
        }
    }

    pub(super) fn looked(&mut self, now: Timestamp, answer: &Expiry) -> Verdict {
        let over = self.holders.iter().filter(|(_, holder)| holder.until <= now).map(|(id, _)| *id);
        let told: BTreeSet<HolderId> = answer.over.iter().map(|expired| expired.holder).collect();
        demand!(told == over.collect(), "the holders whose lease is over are not those that were named");
        for expired in &answer.over {
            let held: BTreeSet<(i64, u32)> =
                expired.jobs.iter().map(|(lease, _)| (lease.seq, lease.attempt)).collect();
            let expected = self.held_by(expired.holder);
            demand!(held == expected, "a holder was said to hold {held:?} and holds {expected:?}");
        }
        Ok(())
    }

    pub(super) fn held_by(&self, holder: HolderId) -> BTreeSet<(i64, u32)> {
        let running = self.live().filter_map(|entry| entry.running);
        running.filter(|(by, ..)| *by == holder).map(|(_, lease, _)| (lease.seq, lease.attempt)).collect()
    }

    pub(super) fn ended(
        &mut self,
        holder: HolderId,
        settlements: &[Settlement],
        now: Timestamp,
        answers: &[Settled],
    ) -> Verdict {
        let over = self.holders.get(&holder).is_some_and(|holder| holder.until <= now);
        let named: BTreeSet<(i64, u32)> =
            settlements.iter().map(|settlement| (settlement.lease.seq, settlement.lease.attempt)).collect();
        if !over || !self.held_by(holder).is_subset(&named) {
            let none = answers.iter().all(|answer| *answer == Settled::Refused);
            demand!(none, "a holder was ended that was renewed or holds more than was named");
            self.seen.insert("expiry refused");
            return Ok(());
        }
        if !settlements.is_empty() {
            self.seen.insert("lease expired");
            demand!(!self.quiet, "a lease ran out without a fault");
        }
        self.settled(settlements, answers)?;
        self.holders.remove(&holder);
        Ok(())
    }
}
