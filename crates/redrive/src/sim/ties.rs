//! Who waits for whom, as the book sees it.

use super::book::{Book, Entry, Verdict, demand};
use crate::clock::Timestamp;
use crate::job::{JobId, Reason, State};
use crate::machine::{self, Admission};
use crate::store::{Enqueued, How};

impl Book {
    /// What is new waits for what it names.
    pub(super) fn tied(&mut self, jobs: &[Admission], answers: &[Enqueued]) {
        let new = jobs.iter().zip(answers).filter(|(_, answer)| answer.how == How::Created);
        for (Admission { job, after, .. }, _) in new {
            self.ties.extend(after.iter().map(|before| (*before, job.id)));
        }
    }

    /// After an ending: a success lets those go that wait for nothing else, a bad ending the parent alone.
    pub(super) fn let_go(&mut self, id: JobId, at: Timestamp) {
        let Some(entry) = self.jobs.get(&id) else { return };
        let parent = entry.job.extras().parent;
        match entry.job.state {
            State::Succeeded { .. } => {
                let mine: Vec<JobId> =
                    self.ties.iter().filter(|(before, _)| *before == id).map(|(_, after)| *after).collect();
                self.ties.retain(|(before, _)| *before != id);
                for after in mine {
                    if !self.is_tied(after) {
                        self.is_due(after, at, |_| true);
                        self.seen.insert("let go");
                    }
                }
            }
            State::Dead { .. } | State::Cancelled { .. } => {
                let has_dependants = self.ties.iter().any(|(before, _)| *before == id);
                if let Some(parent) = parent.filter(|_| has_dependants) {
                    self.is_due(parent, at, |reason| matches!(reason, Reason::Dependency | Reason::Snoozed));
                    self.seen.insert("let go by a bad ending");
                }
            }
            State::Waiting { .. } | State::Running { .. } => {}
        }
    }

    fn is_due(&mut self, id: JobId, at: Timestamp, which: impl Fn(Reason) -> bool) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if let State::Waiting { due_at, reason } = &mut entry.job.state
            && which(*reason)
        {
            (*due_at, *reason) = ((*due_at).min(at), Reason::Scheduled);
        }
    }

    fn is_tied(&self, id: JobId) -> bool {
        self.ties.iter().any(|(_, after)| *after == id)
    }

    /// What was brought back waits for what it waited for.
    pub(super) fn hold_behind(&mut self, id: JobId) {
        let tied = self.is_tied(id);
        if let Some(entry) = self.jobs.get_mut(&id)
            && tied
            && entry.job.extras().parent.is_some()
        {
            entry.job.state = machine::held();
            self.seen.insert("brought back behind others");
        }
    }

    pub(super) fn forget_ties(&mut self, id: JobId) {
        self.ties.retain(|(before, after)| *before != id && *after != id);
    }

    /// What an unfinished parent may ask for is kept.
    pub(super) fn nobody_needs(&self, id: JobId) -> Verdict {
        let parent = self.jobs.get(&id).and_then(|entry| entry.job.extras().parent);
        let needed = parent.and_then(|id| self.jobs.get(&id)).is_some_and(|parent| {
            !matches!(parent.job.state, State::Succeeded { .. } | State::Cancelled { .. })
        });
        demand!(!needed, "job {id} was forgotten, and its parent is not finished");
        Ok(())
    }
}

impl Entry {
    /// Whether it waits for nothing but others.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.job.state, State::Waiting { reason: Reason::Dependency, .. })
    }
}
