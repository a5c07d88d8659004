//! Which jobs wait for which others, and what lets them go.

use rusqlite::params;

use super::Fault;
use super::core::Core;
use crate::clock::Timestamp;
use crate::job::{Job, State};
use crate::machine::{self, Admission};
use crate::store::{Enqueued, How};

impl Core {
    /// What is new waits for what it names.
    pub(super) fn tie(&mut self, jobs: &[Admission], answers: &[Enqueued]) -> Result<(), Fault> {
        let new = jobs.iter().zip(answers).filter(|(_, answer)| answer.how == How::Created);
        for (Admission { job, after, .. }, _) in new {
            for before in after {
                let mut insert = self.conn.prepare_cached(include_str!("edge_insert.sql"))?;
                insert.execute(params![before.encode(&mut [0; 36]), job.id.encode(&mut [0; 36])])?;
            }
        }
        Ok(())
    }

    /// After an ending. A success lets those go that wait for nothing else, and answers which. What ends badly keeps them
    /// waiting, and lets the job go that it belongs to. Only what belongs to another job can have others behind it.
    pub(super) fn let_dependants_go(
        &mut self,
        job: &Job,
        to: &State,
        at: Timestamp,
    ) -> Result<Vec<i64>, Fault> {
        let mut gone = Vec::new();
        if job.extras().parent.is_none() {
            return Ok(gone);
        }
        match to {
            State::Succeeded { .. } => {
                let after: Vec<i64> = {
                    let mut delete = self.conn.prepare_cached(include_str!("edges_delete.sql"))?;
                    let rows = delete.query_map([job.seq], |row| row.get(0))?;
                    rows.collect::<Result<_, _>>()?
                };
                for seq in after {
                    gone.extend(self.is_due(include_str!("let_dependant_go.sql"), seq, at)?);
                }
            }
            State::Dead { .. } | State::Cancelled { .. } => self.let_execution_go(job.seq, at)?,
            State::Waiting { .. } | State::Running { .. } => {}
        }
        Ok(gone)
    }

    pub(super) fn let_execution_go(&mut self, seq: i64, at: Timestamp) -> Result<(), Fault> {
        self.is_due(include_str!("let_execution_go.sql"), seq, at).map(drop)
    }

    /// Lets those go that the statement finds, and answers which.
    fn is_due(&mut self, sql: &str, seq: i64, at: Timestamp) -> Result<Vec<i64>, Fault> {
        let due: Vec<(i64, i64, i16, i64)> = {
            let mut update = self.conn.prepare_cached(sql)?;
            let rows = update.query_map(params![seq, at.as_millis()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
            rows.collect::<Result<_, _>>()?
        };
        for (seq, queue, priority, due_at) in &due {
            self.in_scan(*queue, *priority, *due_at, *seq);
        }
        Ok(due.into_iter().map(|(seq, ..)| seq).collect())
    }

    /// What is brought back waits for what it waited for; but for the job they all belong to, which sees for itself.
    pub(super) fn held_behind(&self, job: &Job) -> Result<Job, Fault> {
        let mut job = job.clone();
        if job.extras().parent.is_some()
            && self.conn.prepare_cached(include_str!("edges_left.sql"))?.exists([job.seq])?
        {
            job.state = machine::held();
        }
        Ok(job)
    }

    /// Whether the job it belongs to may still ask for it.
    pub(super) fn is_needed(&self, seq: i64) -> Result<bool, Fault> {
        Ok(self.conn.prepare_cached(include_str!("needed_by_execution.sql"))?.exists([seq])?)
    }
}
