//! Destinations: what a gate does not let go is passed over, and says why it waits.

use super::world::{Row, World};
use crate::clock::Timestamp;
use crate::gate::{Blame, Change, Report, Word};
use crate::job::{Job, JobId, Reason, State};
use crate::stats::Activity;

impl World {
    /// Whether its destination has to be asked. What has run out of time will not call it.
    pub(super) fn is_gated(&self, job: &Job, now: Timestamp) -> bool {
        let over = job.buried_at().is_some_and(|at| at <= now);
        !over && job.extras().destination.as_ref().is_some_and(|to| self.gates.is_gated(to, now))
    }

    /// Whether its destination takes it now. If not, it is held.
    pub(super) fn passes(&mut self, seq: i64, now: Timestamp) -> bool {
        let job = &self.rows[&seq].job;
        if !self.is_gated(job, now) {
            return true;
        }
        let (to, is_retry) = (job.extras().destination.clone().unwrap_or_default(), job.ledger.failures > 0);
        let passes = self.has_place(&to) && self.gates.pass(&to, is_retry, now);
        if !passes
            && let Some(row) = self.rows.get_mut(&seq)
            && let State::Waiting { reason, .. } = &mut row.job.state
        {
            *reason = Reason::Held;
            row.in_line = true;
        }
        passes
    }

    fn has_place(&self, to: &str) -> bool {
        self.gates.places(to).is_none_or(|places| {
            let there = self.rows.values().filter(|row| row.claim.is_some());
            let calls = there.filter(|row| row.job.extras().destination.as_deref() == Some(to)).count();
            calls < places as usize
        })
    }

    /// When its destination may take it; nothing if that depends on an ending.
    pub(super) fn passes_at(&self, job: &Job, due_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        match &job.extras().destination {
            Some(to) if due_at <= now && self.is_gated(job, now) => {
                self.has_place(to).then(|| self.gates.next_at(to, job.ledger.failures > 0, now).max(due_at))
            }
            _ => Some(due_at),
        }
    }

    pub(super) fn observe(&mut self, report: &Report, now: Timestamp) -> (Blame, Option<Change>) {
        let (blame, change) = self.gates.observe(report, now);
        self.note_change(report.job, change.as_ref());
        (blame, change)
    }

    pub(super) fn tell(&mut self, to: &str, word: Word, now: Timestamp) -> Option<Change> {
        let change = self.gates.tell(&to.into(), word, now);
        self.note_change(JobId::default(), change.as_ref());
        change
    }

    fn note_change(&mut self, job: JobId, change: Option<&Change>) {
        let news = change.filter(|change| change.is_news());
        self.activity.extend(news.map(|change| Activity::changed(job, change)));
        self.bound_activity();
    }

    /// How many due jobs wait for a destination.
    pub(super) fn held_for(&self, to: &str) -> u64 {
        let waits = |row: &&Row| matches!(row.job.state, State::Waiting { reason: Reason::Held, .. });
        let held = self.rows.values().filter(waits);
        held.filter(|row| row.job.extras().destination.as_deref() == Some(to)).count() as u64
    }
}
