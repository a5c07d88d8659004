//! Settlements, as the book sees them: which of them count, and what goes on with them at once.

use std::collections::BTreeSet;

use super::book::{Book, Verdict, demand};
use crate::job::{Job, State};
use crate::store::{Lease, Settled, Settlement};

impl Book {
    pub(super) fn settled(&mut self, settlements: &[Settlement], answers: &[Settled]) -> Verdict {
        demand!(answers.len() == settlements.len(), "{} settlements, other answers", settlements.len());
        let mut counted = Vec::new();
        for (settlement, answer) in settlements.iter().zip(answers) {
            let Lease { job, seq, attempt, .. } = settlement.lease;
            let entry = self.jobs.get(&job);
            let current = entry.and_then(|entry| entry.running).map(|(_, lease, _)| lease);
            let counts = current == Some(settlement.lease);
            let repeated = current.is_some() && current == settlement.next_lease();
            let told = matches!(answer, Settled::Next(next) if self.runs_by(&next.0));
            demand!(
                (*answer != Settled::Refused) == (counts || repeated || told),
                "a settlement of job {job} at attempt {} was {answer:?}; current is {current:?}",
                attempt + 1
            );
            if repeated {
                demand!(*answer == Settled::Again, "job {job} goes on, and its holder is not told");
                self.seen.insert("told again to go on");
            } else if counts {
                self.apply_settlement(settlement)?;
                counted.push((settlement, answer));
            } else if told {
                self.seen.insert("told again what has begun");
            } else {
                self.seen.insert("late settlement");
                self.holders.values_mut().for_each(|holder| {
                    holder.lost.remove(&(seq, attempt));
                });
                demand!(
                    !self.quiet || self.gone_or_cancelled(job),
                    "a lease was lost without a fault: {job}"
                );
            }
        }
        // When all are applied: what begins in the place of the first may have waited for the last as well.
        for (settlement, answer) in counted {
            match answer {
                Settled::Again => self.goes_on(settlement)?,
                Settled::Next(next) => self.begins(settlement, next.0, &next.1)?,
                Settled::Applied | Settled::Refused => {}
            }
        }
        self.all_are_told(settlements, answers)
    }

    /// Nobody else goes on with what was claimed with a settlement.
    fn all_are_told(&self, settlements: &[Settlement], answers: &[Settled]) -> Verdict {
        let Some(next) = settlements.iter().find_map(Settlement::wanted_next) else { return Ok(()) };
        let running = self.live().filter_map(|entry| Some(entry.running?.1));
        let running: BTreeSet<i64> =
            running.filter(|lease| lease.claim == next.claim).map(|lease| lease.seq).collect();
        let told = answers.iter().filter_map(|answer| match answer {
            Settled::Next(next) => Some(next.0.seq),
            _ => None,
        });
        let told: BTreeSet<i64> = told.collect();
        demand!(
            running == told,
            "{running:?} have begun with settlements, and their holder was told {told:?}"
        );
        Ok(())
    }

    fn runs_by(&self, lease: &Lease) -> bool {
        let entry = self.jobs.get(&lease.job);
        entry.and_then(|entry| entry.running).is_some_and(|(_, current, _)| current == *lease)
    }

    /// A job was claimed in the place of one that was settled: it must be one that could have been claimed.
    fn begins(&mut self, settlement: &Settlement, lease: Lease, job: &Job) -> Verdict {
        let (id, now) = (job.id, settlement.ended_at);
        let Some(again) = settlement.wanted_next().filter(|again| again.claim == lease.claim) else {
            return Err(format!("job {id} was claimed with another, and nobody had asked for it"));
        };
        demand!(self.holders.contains_key(&again.holder), "job {id} was claimed for a holder that is gone");
        let entry = self.jobs.get_mut(&id).ok_or("what began is not there")?;
        let State::Waiting { due_at, .. } = entry.job.state else {
            return Err(format!("job {id} was claimed with another while it was {}", entry.job.state.name()));
        };
        demand!(*job == entry.job, "job {id} was claimed as {job:?} and is {:?}", entry.job);
        demand!(due_at <= now, "job {id} was claimed with another at {now}, before it is due at {due_at}");
        demand!(!self.paused.contains(&job.queue), "job {id} of a paused queue was claimed with another");
        demand!(job.queue == settlement.job.queue, "job {id} was claimed in a place of another queue");
        entry.running = Some((again.holder, lease, due_at));
        entry.job.state = State::Running { since: now };
        self.seen.insert("begun in the place of another");
        Ok(())
    }

    /// A job was settled and claimed in one: it must be one that could have been claimed.
    fn goes_on(&mut self, settlement: &Settlement) -> Verdict {
        let (id, now) = (settlement.lease.job, settlement.ended_at);
        let (Some(again), Some(lease)) = (&settlement.again, settlement.next_lease()) else {
            return Err(format!("job {id} was claimed again, and nobody had asked for it"));
        };
        demand!(self.holders.contains_key(&again.holder), "job {id} was claimed for a holder that is gone");
        let entry = self.jobs.get_mut(&id).ok_or("it was there")?;
        let State::Waiting { due_at, .. } = entry.job.state else {
            return Err(format!("job {id} was claimed again while it was {}", entry.job.state.name()));
        };
        demand!(due_at <= now, "job {id} was claimed again at {now}, before it is due at {due_at}");
        demand!(!self.paused.contains(&entry.job.queue), "job {id} of a paused queue was claimed again");
        demand!(entry.job.extras().ordering_key.is_none(), "job {id} was claimed again out of its turn");
        entry.running = Some((again.holder, lease, due_at));
        entry.job.state = State::Running { since: now };
        self.seen.insert("claimed again at once");
        Ok(())
    }
}
