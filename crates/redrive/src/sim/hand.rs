//! What people do and what handlers do, as the book sees it.

use std::collections::BTreeSet;

use super::act::Doing;
use super::book::{Book, Entry, Verdict, demand};
use crate::clock::Timestamp;
use crate::job::{Job, JobId};
use crate::machine::{self, Command, Steer};
use crate::store::{Filter, HolderId};

impl Book {
    pub(super) fn applied(
        &mut self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
        done: &[JobId],
    ) -> Verdict {
        let mut able = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for entry in self.jobs.values().filter(|entry| to.matches(&entry.job)) {
            if matches!(machine::steer(&entry.job, command, now), Steer::Refuse(_)) {
                continue;
            }
            let key = entry.job.extras().key.as_deref().filter(|_| command == Command::Redrive);
            // Of several that had one key, one can come back.
            if key.is_none_or(|key| self.key_holder(Some(key)).is_none() && keys.insert(key.to_owned())) {
                able.insert(entry.job.id);
            }
        }
        demand!(
            done.len() == able.len().min(limit),
            "{command:?} was done to {} of {}",
            done.len(),
            able.len()
        );
        for id in done {
            self.steer(command, *id, now)?;
        }
        Ok(())
    }

    fn steer(&mut self, command: Command, id: JobId, now: Timestamp) -> Verdict {
        let job = &self.jobs.get(&id).ok_or_else(|| format!("{command:?} was done to no job"))?.job;
        let key = job.extras().key.clone().filter(|_| command == Command::Redrive);
        self.moved_at = self.moved_at.max(now);
        let other = self.key_holder(key.as_deref());
        demand!(other.is_none(), "job {id} was brought back and {other:?} has its key");
        let entry = self.jobs.get_mut(&id).ok_or("it was there")?;
        self.totals.entry(entry.job.queue.clone()).or_default().steered(command);
        match machine::steer(&entry.job, command, now) {
            Steer::Refuse(why) => return Err(format!("{command:?} was done to job {id}, but {why}")),
            Steer::Forget => {
                self.jobs.remove(&id);
                self.gone.insert(id);
                self.forget_ties(id);
                self.seen.insert("deleted");
            }
            Steer::To(next) => {
                demand!(next.ledger.attempt >= entry.job.ledger.attempt, "attempts of {id} went back");
                if let Some((holder, lease, _)) = entry.running.take() {
                    entry.recorded += 1;
                    self.seen.insert("cancelled while running");
                    let holder = self.holders.get_mut(&holder).ok_or("nobody held it")?;
                    holder.lost.insert((lease.seq, lease.attempt));
                }
                let brought_back = entry.job.state.is_final();
                entry.job = *next;
                self.let_go(id, now);
                if brought_back {
                    self.hold_behind(id);
                }
                self.seen.insert(match command {
                    Command::Cancel => "cancelled by hand",
                    Command::RetryNow => "retried by hand",
                    Command::Hurry => "hurried",
                    _ => "redriven",
                });
            }
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, queue: &str, paused: bool) -> Verdict {
        if paused {
            self.seen.insert("paused");
            self.paused.insert(queue.into());
        } else {
            self.paused.remove(queue);
        }
        Ok(())
    }

    /// A handler begins.
    pub(super) fn begin(&mut self, job: &Job, number: u32, doing: Doing, now: Timestamp) -> Verdict {
        let id = job.id;
        let again = self.begun.insert((id, number), doing).is_some();
        demand!(!again, "attempt {number} of job {id} ran twice");
        self.active.insert((id, number));
        let Some(entry) = self.jobs.get(&id) else {
            demand!(self.gone.contains(&id), "job {id} runs and was never enqueued");
            return Ok(());
        };
        let Some((holder, _, due_at)) = entry.running.filter(|(_, lease, _)| lease.attempt + 1 == number)
        else {
            self.seen.insert("began too late");
            demand!(!self.quiet, "job {id} began without a lease, and there was no fault");
            return Ok(());
        };
        demand!(now >= due_at, "job {id} began at {now}, before it was due at {due_at}");
        let over = entry.job.expires_at().filter(|at| *at <= now);
        demand!(over.is_none(), "job {id} began at {now}, and its time was over at {over:?}");
        self.runs_beside(entry, holder)?;
        if entry.job.is_suspect() {
            self.seen.insert("suspect");
        }
        Ok(())
    }

    /// Beside what is at work by right: no other of its ordering key, and no other suspect in the same process.
    fn runs_beside(&self, entry: &Entry, holder: HolderId) -> Verdict {
        let Job { id, queue, .. } = &entry.job;
        let key = entry.job.extras().ordering_key.as_ref();
        for (other, attempt) in self.active.iter().filter(|(other, _)| other != id) {
            let Some(other) = self.jobs.get(other) else { continue };
            let Some((by, lease, _)) = other.running.filter(|(_, lease, _)| lease.attempt + 1 == *attempt)
            else {
                continue;
            };
            let sibling =
                other.job.queue == *queue && key.is_some() && other.job.extras().ordering_key.as_ref() == key;
            demand!(!sibling, "jobs {id} and {} of {key:?} run together", lease.job);
            let suspects = by == holder && entry.job.is_suspect() && other.job.is_suspect();
            demand!(!suspects, "suspects {id} and {} run in one process", lease.job);
        }
        Ok(())
    }
}
