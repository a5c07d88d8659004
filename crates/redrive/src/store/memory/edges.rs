//! Which jobs wait for which others, and what lets them go.

use super::world::World;
use crate::clock::Timestamp;
use crate::job::{Job, JobId, Reason, State};
use crate::machine;
use crate::store::{Enqueued, How};

/// One job waits for another to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) before: i64,
    pub(super) after: i64,
    /// The job they belong to, which is let go if the first one ends badly.
    execution: i64,
}

impl World {
    /// What is new waits for what it names.
    pub(super) fn tie(&mut self, answers: &[Enqueued], ties: &[Vec<JobId>]) {
        for (Enqueued { id, how }, tie) in answers.iter().zip(ties) {
            let Some(after) = self.by_id.get(id).copied().filter(|_| *how == How::Created) else { continue };
            for id in tie {
                let Some(before) = self.by_id.get(id).copied() else { continue };
                let parent = self.rows[&before].job.extras().parent;
                let execution = parent.and_then(|id| self.by_id.get(&id)).copied().unwrap_or(0);
                self.edges.insert(Edge { before, after, execution });
            }
        }
    }

    /// After an ending. A success lets those go that wait for nothing else, and answers which. What ends badly keeps them
    /// waiting, and lets the job go that it belongs to.
    pub(super) fn let_go(&mut self, seq: i64, at: Timestamp) -> Vec<i64> {
        let mine: Vec<Edge> = self.edges.iter().filter(|edge| edge.before == seq).copied().collect();
        let mut gone = Vec::new();
        match self.rows[&seq].job.state {
            State::Succeeded { .. } => {
                self.edges.retain(|edge| edge.before != seq);
                gone.extend(
                    mine.iter().map(|edge| edge.after).filter(|after| !self.waits_for_others(*after)),
                );
                gone.iter().for_each(|after| self.is_due(*after, at, |_| true));
            }
            State::Dead { .. } | State::Cancelled { .. } => {
                let on_others = |reason| matches!(reason, Reason::Dependency | Reason::Snoozed);
                mine.iter().for_each(|edge| self.is_due(edge.execution, at, on_others));
            }
            State::Waiting { .. } | State::Running { .. } => {}
        }
        gone
    }

    fn is_due(&mut self, seq: i64, at: Timestamp, which: impl Fn(Reason) -> bool) {
        let Some(row) = self.rows.get_mut(&seq) else { return };
        if let State::Waiting { due_at, reason } = &mut row.job.state
            && which(*reason)
        {
            (*due_at, *reason) = ((*due_at).min(at), Reason::Scheduled);
        }
    }

    fn waits_for_others(&self, seq: i64) -> bool {
        self.edges.iter().any(|edge| edge.after == seq)
    }

    /// What was brought back waits for what it waited for; but for the job they all belong to, which sees for itself.
    pub(super) fn hold_behind(&mut self, seq: i64) {
        if self.waits_for_others(seq)
            && let Some(row) = self.rows.get_mut(&seq).filter(|row| row.job.extras().parent.is_some())
        {
            row.job.state = machine::held();
        }
    }

    /// Whether the job it belongs to may still ask for it.
    pub(super) fn is_needed(&self, job: &Job) -> bool {
        let parent =
            job.extras().parent.and_then(|id| self.by_id.get(&id)).and_then(|seq| self.rows.get(seq));
        parent.is_some_and(|row| !matches!(row.job.state, State::Succeeded { .. } | State::Cancelled { .. }))
    }
}
