//! The operators' side: figures by the minute, the audit log, notices, corrections, and the switch that holds everything.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use super::core::{Core, SharedRunning};
use super::{Fault, SqliteStore, enqueue};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Change;
use crate::job::{Job, JobId, State};
use crate::machine::Command;
use crate::operate::{
    AUDIT_MAX, Audit, AuditFilter, EDITS_MAX, Edit, EditRecord, MINUTE, NOTICES_MAX, Notice, Point, Setting,
    Steps, Turn,
};
use crate::stats::Activity;
use crate::store::operations::{Operations, not_there};
use crate::store::{Filter, Page};

#[async_trait]
impl Operations for SqliteStore {
    async fn series(&self, steps: Steps) -> Result<Vec<Point>> {
        self.look(move |conn, _, _| series(conn, steps)).await
    }

    async fn retries_due(&self, steps: Steps, most: usize) -> Result<Vec<(Timestamp, u64)>> {
        self.look(move |conn, _, running| retries_due(conn, running, steps, most)).await
    }

    async fn retries(&self, after: Option<Turn>, limit: usize) -> Result<Vec<(Turn, JobId)>> {
        self.look(move |conn, _, _| retries(conn, after, limit)).await
    }

    async fn audit(&self, entry: &Audit) -> Result<()> {
        let entry = entry.clone();
        self.writer.call(move |core| core.audit(&entry)).await
    }

    async fn apply_audited(
        &self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
        entry: &Audit,
    ) -> Result<Vec<JobId>> {
        let (to, entry) = (to.clone(), entry.clone());
        let change = move |core: &mut Core| {
            let done = core.apply(command, &to, limit, now)?;
            if !done.is_empty() {
                core.audit(&entry)?;
            }
            Ok(done)
        };
        self.writer.call(change).await
    }

    async fn set_audited(&self, setting: &Setting, now: Timestamp, entry: &Audit) -> Result<Option<Change>> {
        let (setting, entry) = (setting.clone(), entry.clone());
        let change = move |core: &mut Core| {
            let changed = core.set(&setting, now)?;
            core.audit(&entry)?;
            Ok(changed)
        };
        self.writer.call(change).await
    }

    async fn audited(&self, filter: &AuditFilter) -> Result<Vec<(i64, Audit)>> {
        let filter = filter.clone();
        self.look(move |conn, _, _| audited(conn, &filter)).await
    }

    async fn notice(&self, notice: &Notice) -> Result<Option<i64>> {
        let notice = notice.clone();
        self.writer.call(move |core| core.notice(&notice)).await
    }

    async fn notices(&self, after: i64, limit: usize) -> Result<Vec<(i64, Notice)>> {
        self.look(move |conn, _, _| notices(conn, after, limit)).await
    }

    async fn edit(&self, id: JobId, edit: &Edit, now: Timestamp, entry: Option<&Audit>) -> Result<Job> {
        let (edit, entry) = (edit.clone(), entry.cloned());
        let change = move |core: &mut Core| {
            let job = core.edit(id, &edit, now)?;
            entry.iter().try_for_each(|entry| core.audit(entry))?;
            Ok(job)
        };
        self.writer.call(change).await
    }

    async fn edits(&self, id: JobId) -> Result<Vec<EditRecord>> {
        self.find(move |conn, _, _| edits(conn, id)).await
    }

    async fn hold(&self, held: bool) -> Result<()> {
        self.writer.call(move |core| core.hold(held)).await
    }

    async fn is_held(&self) -> Result<bool> {
        self.find(|conn, _, _| is_held(conn)).await
    }
}

fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn series(conn: &Connection, steps: Steps) -> Result<Vec<Point>, Fault> {
    let mut statement = conn.prepare_cached(include_str!("series.sql"))?;
    let rows = statement.query_map(
        params![steps.from.as_millis(), steps.until.as_millis(), steps.step_ms()],
        |row| {
            let count = |n: usize| Ok::<_, rusqlite::Error>(row.get::<_, i64>(n)?.unsigned_abs());
            Ok(Point {
                at: Timestamp::from_millis(row.get(0)?),
                enqueued: count(1)?,
                succeeded: count(2)?,
                failed: count(3)?,
                dead: count(4)?,
            })
        },
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn retries_due(
    conn: &Connection,
    running: &SharedRunning,
    steps: Steps,
    most: usize,
) -> Result<Vec<(Timestamp, u64)>, Fault> {
    let mut bands = conn.prepare_cached(include_str!("bands.sql"))?;
    let bands = bands.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let bands: Vec<(i64, i64)> = bands.collect::<Result<_, _>>()?;
    let mut due: BTreeMap<Timestamp, u64> = BTreeMap::new();
    let mut statement = conn.prepare_cached(include_str!("retries_due_in_band.sql"))?;
    for (queue, priority) in bands {
        let mut rows = statement.query(params![
            queue,
            priority,
            steps.from.as_millis(),
            steps.until.as_millis(),
            limit(most)
        ])?;
        while let Some(row) = rows.next()? {
            let (seq, attempt): (i64, u32) = (row.get(0)?, row.get(1)?);
            let running = running.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            let runs = running.0.get(&seq).is_some_and(|run| run.attempt == attempt);
            let at = steps.start_of(Timestamp::from_millis(row.get(2)?));
            if let (Some(at), true) = (at, row.get(3)? && !runs) {
                *due.entry(at).or_default() += 1;
            }
        }
    }
    Ok(due.into_iter().collect())
}

fn retries(conn: &Connection, after: Option<Turn>, most: usize) -> Result<Vec<(Turn, JobId)>, Fault> {
    let (due_at, seq) = after.map_or((i64::MIN, 0), |turn| (turn.due_at.as_millis(), turn.seq));
    let mut statement = conn.prepare_cached(include_str!("retries.sql"))?;
    let mut rows = statement.query(params![due_at, seq, limit(most)])?;
    let mut turns = Vec::new();
    while let Some(row) = rows.next()? {
        let Ok(id) = row.get::<_, String>(2)?.parse() else { continue };
        turns.push((Turn { due_at: Timestamp::from_millis(row.get(0)?), seq: row.get(1)? }, id));
    }
    Ok(turns)
}

fn audited(conn: &Connection, filter: &AuditFilter) -> Result<Vec<(i64, Audit)>, Fault> {
    let read = |row: &Row<'_>| {
        let entry = Audit {
            id: row.get(1)?,
            at: Timestamp::from_millis(row.get(2)?),
            who: row.get(3)?,
            token: row.get(4)?,
            what: row.get(5)?,
            on: row.get(6)?,
            job: row.get::<_, Option<String>>(7)?.and_then(|job| job.parse().ok()),
            result: row.get(8)?,
            detail: row.get(9)?,
        };
        Ok((row.get(0)?, entry))
    };
    let (before, most) = (filter.before.unwrap_or(i64::MAX), limit(filter.limit));
    let found: rusqlite::Result<Vec<_>> = match filter.job {
        Some(job) => {
            let mut statement = conn.prepare_cached(include_str!("audited_of_job.sql"))?;
            statement.query_map(params![before, most, job.to_string()], read)?.collect()
        }
        None => {
            let mut statement = conn.prepare_cached(include_str!("audited.sql"))?;
            statement.query_map(params![before, most], read)?.collect()
        }
    };
    Ok(found?)
}

fn notices(conn: &Connection, after: i64, most: usize) -> Result<Vec<(i64, Notice)>, Fault> {
    let mut statement = conn.prepare_cached(include_str!("notices.sql"))?;
    let rows = statement.query_map(params![after, limit(most)], |row| {
        let notice = Notice {
            key: row.get(1)?,
            at: Timestamp::from_millis(row.get(2)?),
            rule: row.get(3)?,
            what: row.get(4)?,
            job: row.get::<_, Option<String>>(5)?.and_then(|job| job.parse().ok()),
            message: row.get(6)?,
        };
        Ok((row.get(0)?, notice))
    })?;
    let mut notices: Vec<_> = rows.collect::<Result<_, _>>()?;
    notices.reverse();
    Ok(notices)
}

fn edits(conn: &Connection, id: JobId) -> Result<Vec<EditRecord>, Fault> {
    let mut statement = conn.prepare_cached(include_str!("edits.sql"))?;
    let rows = statement.query_map([id.to_string()], |row| row.get::<_, String>(0))?;
    let mut edits = Vec::new();
    for before in rows {
        edits.push(serde_json::from_str(&before?).map_err(|_| {
            let message = format!("a correction of job {id} is not what was written");
            Error::new(ErrorKind::Corrupt, message)
        })?);
    }
    Ok(edits)
}

pub(super) fn is_held(conn: &Connection) -> Result<bool, Fault> {
    Ok(conn.prepare_cached(include_str!("held.sql"))?.query_row([], |row| row.get::<_, i64>(0))? > 0)
}

/// Counts what happened, in the minute of this time.
pub(super) fn count_minute(conn: &Connection, at: Timestamp, counts: [u64; 4]) -> Result<(), Fault> {
    let minute = at.as_millis().div_euclid(i64::try_from(MINUTE.as_millis()).unwrap_or(60_000));
    let [enqueued, succeeded, failed, dead] = counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    let mut add = conn.prepare_cached(include_str!("minute_add.sql"))?;
    add.execute(params![minute, enqueued, succeeded, failed, dead])?;
    Ok(())
}

impl Core {
    fn audit(&mut self, entry: &Audit) -> Result<(), Fault> {
        self.conn.prepare_cached(include_str!("audit_put.sql"))?.execute(params![
            entry.id,
            entry.at.as_millis(),
            entry.who,
            entry.token,
            entry.what,
            entry.on,
            entry.job.map(|job| job.to_string()),
            entry.result,
            entry.detail,
        ])?;
        self.conn.prepare_cached(include_str!("audit_trim.sql"))?.execute([AUDIT_MAX])?;
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) -> Result<Option<i64>, Fault> {
        let changed = self.conn.prepare_cached(include_str!("notice_insert.sql"))?.execute(params![
            notice.key,
            notice.at.as_millis(),
            notice.rule,
            notice.what,
            notice.job.map(|job| job.to_string()),
            notice.message,
        ])?;
        if changed == 0 {
            return Ok(None);
        }
        let place = self.conn.last_insert_rowid();
        self.conn.prepare_cached(include_str!("notices_trim.sql"))?.execute([NOTICES_MAX])?;
        Ok(Some(place))
    }

    fn edit(&mut self, id: JobId, edit: &Edit, now: Timestamp) -> Result<Job, Fault> {
        let found = self.list(&Filter::id(id), Page { before: None, limit: 1 })?.jobs.into_iter().next();
        let job = found.ok_or_else(|| not_there(id))?;
        let (next, before) = edit.apply(&job, now)?;
        let queue = self.queue_id(&job.queue)?;
        let policy = self.names.policy_id(&self.conn, &next.policy)?;
        enqueue::write_job(&self.conn, include_str!("replace_job.sql"), &next, queue, policy)?;
        if let State::Waiting { due_at, .. } = job.state {
            self.conn.prepare_cached(include_str!("edit_live.sql"))?.execute(params![
                job.seq,
                next.priority,
                next.extras().destination.as_deref(),
                next.buried_at().map(Timestamp::as_millis),
            ])?;
            let bands = &mut self.queue(queue).bands;
            let old = bands.entry(job.priority).or_default();
            old.live = old.live.saturating_sub(1);
            self.queue(queue).admit(next.priority, due_at.as_millis(), job.seq);
            self.woke = true;
        }
        let before = serde_json::to_string(&before).expect("what a job was can be written");
        self.conn.prepare_cached(include_str!("edit_insert.sql"))?.execute(params![job.seq, before])?;
        self.conn.prepare_cached(include_str!("edits_trim.sql"))?.execute(params![job.seq, EDITS_MAX])?;
        self.note(Some(Activity::edited(&next, &edit.by, now)))?;
        Ok(next)
    }

    fn set(&mut self, setting: &Setting, now: Timestamp) -> Result<Option<Change>, Fault> {
        match setting {
            Setting::Queue { name, paused } => self.pause(name, *paused)?,
            Setting::Held(held) => self.hold(*held)?,
            Setting::Destination { name, word } => return self.tell(name, *word, now),
            Setting::Record { shelf, name, value } => self.keep(shelf, name, value.as_ref())?,
        }
        Ok(None)
    }

    fn hold(&mut self, held: bool) -> Result<(), Fault> {
        let sql = if held { include_str!("hold_all.sql") } else { include_str!("resume_all.sql") };
        self.conn.prepare_cached(sql)?.execute([])?;
        self.held = held;
        self.woke = true;
        Ok(())
    }
}
