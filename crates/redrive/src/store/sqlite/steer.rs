//! What a person asked for, and the sweep that forgets what is over.

use rusqlite::params;

use super::Fault;
use super::codec::final_state;
use super::core::Core;
use super::enqueue::key_holder;
use super::settle::{insert_attempt, trim_attempts};
use crate::clock::Timestamp;
use crate::job::{Job, JobId, State, StateName};
use crate::machine::{self, Command, Steer, Transition};
use crate::operate::SERIES_KEPT;
use crate::queue::Retention;
use crate::stats::Activity;
use crate::store::{CALLS_KEPT, Filter, Lease, Page, taken_away};

/// How many finished jobs one sweep looks at for each one it may forget.
const SWEEP_FACTOR: usize = 20;

impl Core {
    pub(super) fn apply(
        &mut self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<JobId>, Fault> {
        let mut done = Vec::new();
        let mut before = None;
        while done.len() < limit {
            let page = self.list(to, Page { before, limit: (limit - done.len()).min(1_000) })?;
            for job in &page.jobs {
                if self.steer(job, command, now)? {
                    done.push(job.id);
                }
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        Ok(done)
    }

    fn steer(&mut self, job: &Job, command: Command, now: Timestamp) -> Result<bool, Fault> {
        let queue = self.queue_id(&job.queue)?;
        match machine::steer(job, command, now) {
            Steer::Refuse(_) => return Ok(false),
            Steer::Forget => {
                self.forget(job.seq, job.state.name() == StateName::Dead)?;
            }
            Steer::To(next) => match next.state {
                State::Cancelled { .. } => self.cancel(queue, job, &next, now)?,
                State::Waiting { due_at, reason } if job.state.name() == StateName::Waiting => {
                    let mut statement = self.conn.prepare_cached(include_str!("steer_wait.sql"))?;
                    statement.execute(params![job.seq, due_at.as_millis(), reason.as_str()])?;
                    drop(statement);
                    self.in_scan(queue, job.priority, due_at.as_millis(), job.seq);
                }
                State::Waiting { due_at, reason } if job.state.name() == StateName::Running => {
                    let transition = taken_away(&next);
                    self.wait(queue, job, &transition, due_at, reason.as_str())?;
                    self.end_here(job, &transition, now)?;
                }
                _ => return self.bring_back(queue, job, &next, now),
            },
        }
        self.remember(queue, job, command, now)?;
        Ok(true)
    }

    fn remember(&mut self, queue: i64, job: &Job, command: Command, now: Timestamp) -> Result<(), Fault> {
        self.queue(queue).news.steered(command);
        self.note(Activity::steered(job, command, now))
    }

    /// Cancelling a running job takes its lease away: its holder learns of it at its next renewal.
    fn cancel(&mut self, queue: i64, job: &Job, next: &Job, now: Timestamp) -> Result<(), Fault> {
        let transition = taken_away(next);
        let since = if let State::Running { since } = job.state { Some(since) } else { None };
        self.finish(queue, job, job.ledger.attempt, &transition, since)?;
        self.end_here(job, &transition, now)?;
        self.let_dependants_go(job, &next.state, now)?;
        self.let_next_go(queue, job.extras().ordering_key.as_deref())
    }

    /// The attempt of a running job ends without its holder.
    fn end_here(&mut self, job: &Job, transition: &Transition, now: Timestamp) -> Result<(), Fault> {
        let State::Running { since } = job.state else { return Ok(()) };
        insert_attempt(&self.conn, job.seq, &transition.record(since, now))?;
        trim_attempts(&self.conn, job.seq, transition.ledger.attempt)?;
        self.take_away(job);
        Ok(())
    }

    fn take_away(&mut self, job: &Job) {
        let mut running = self.running.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(run) = running.0.remove(&job.seq) else { return };
        if let Some(claim) = self.claims.get_mut(&run.claim) {
            claim.held.remove(&job.seq);
            claim.lost.push(Lease { claim: run.claim, job: job.id, seq: job.seq, attempt: run.attempt });
        }
    }

    fn bring_back(&mut self, queue: i64, job: &Job, next: &Job, now: Timestamp) -> Result<bool, Fault> {
        if let Some(key) = next.extras().key.as_deref() {
            // A dead job does not hold its key, so another may have it by now.
            if key_holder(&self.conn, key)?.is_some() {
                return Ok(false);
            }
            self.conn.prepare_cached(include_str!("enqueue_key.sql"))?.execute(params![key, job.seq])?;
        }
        self.conn.prepare_cached(include_str!("redrive_done.sql"))?.execute([job.seq])?;
        self.conn.prepare_cached(include_str!("redrive_job.sql"))?.execute(params![
            job.seq,
            next.extras().deadline.map(Timestamp::as_millis),
            next.extras().start_by.map(Timestamp::as_millis),
            next.extras().revived_at.map(Timestamp::as_millis),
        ])?;
        let dead = u64::from(job.state.name() == StateName::Dead);
        let state = self.queue(queue);
        state.dead = state.dead.saturating_sub(dead);
        let next = self.held_behind(next)?;
        self.insert_live_again(&next, queue)?;
        self.remember(queue, job, Command::Redrive, now)?;
        Ok(true)
    }

    fn forget(&mut self, seq: i64, dead: bool) -> Result<(), Fault> {
        if dead {
            let queue: i64 = self
                .conn
                .prepare_cached("SELECT queue FROM redrive_jobs WHERE seq = ?1")?
                .query_row([seq], |row| row.get(0))?;
            let state = self.queue(queue);
            state.dead = state.dead.saturating_sub(1);
        }
        self.conn.prepare_cached(include_str!("redrive_done.sql"))?.execute([seq])?;
        self.conn.prepare_cached(include_str!("forget_attempts.sql"))?.execute([seq])?;
        self.conn.prepare_cached(include_str!("forget_edits.sql"))?.execute([seq])?;
        self.conn.prepare_cached(include_str!("forget_edges.sql"))?.execute([seq])?;
        self.conn.prepare_cached(include_str!("forget_job.sql"))?.execute([seq])?;
        Ok(())
    }

    /// Goes through the finished jobs in the order of their sequence, a part at a time, and starts over at the end.
    pub(super) fn prune(
        &mut self,
        retention: &Retention,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, Fault> {
        let before = (now - CALLS_KEPT).as_millis();
        self.conn.prepare_cached(include_str!("calls_forget.sql"))?.execute([before])?;
        let before = (now - SERIES_KEPT).as_millis() / 60_000;
        self.conn.prepare_cached(include_str!("minutes_forget.sql"))?.execute([before])?;
        let mut pruned = 0;
        let mut looked_at = 0;
        let mut wrapped = false;
        while pruned < limit && looked_at < limit.saturating_mul(SWEEP_FACTOR) {
            let over = self.sweep(retention, now, limit - pruned)?;
            looked_at += over.looked_at;
            pruned += over.forgotten;
            if over.at_the_end {
                self.swept = 0;
                if std::mem::replace(&mut wrapped, true) {
                    break;
                }
            }
        }
        Ok(pruned as u64)
    }

    fn sweep(&mut self, retention: &Retention, now: Timestamp, limit: usize) -> Result<Sweep, Fault> {
        let mut rows_seen = 0;
        let mut over = Vec::new();
        {
            let mut statement = self.conn.prepare_cached(include_str!("prune_scan.sql"))?;
            let part = i64::try_from(limit.max(100)).unwrap_or(i64::MAX);
            let mut rows = statement.query(params![self.swept, part])?;
            while let Some(row) = rows.next()? {
                rows_seen += 1;
                self.swept = row.get(0)?;
                let Some(state) = final_state(row, 1)? else { continue };
                if retention.is_over(&state, now) && !self.is_needed(self.swept)? {
                    over.push((self.swept, matches!(state, State::Dead { .. })));
                    if over.len() == limit {
                        break;
                    }
                }
            }
        }
        for (seq, dead) in &over {
            self.forget(*seq, *dead)?;
        }
        let at_the_end = over.len() < limit && rows_seen < limit.max(100);
        Ok(Sweep { looked_at: rows_seen, forgotten: over.len(), at_the_end })
    }
}

struct Sweep {
    looked_at: usize,
    forgotten: usize,
    at_the_end: bool,
}
