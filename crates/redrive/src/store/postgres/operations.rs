//! The operators' side: figures by the minute, the audit log, notices, corrections, the switch that holds everything, and
//! what servers tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::codec::{job_id, note_json, only};
use super::database::{Argument, Database};
use super::fault::Fault;
use super::{Inner, PostgresStore, migrate};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::gate::Change;
use crate::job::{Job, JobId, StateName};
use crate::machine::Command;
use crate::operate::{
    AUDIT_MAX, Audit, AuditFilter, EDITS_MAX, Edit, EditRecord, NOTICES_MAX, Notice, Point, Setting, Steps,
    Turn,
};
use crate::stats::Activity;
use crate::store::operations::{Operations, Schema, not_there};
use crate::store::{Filter, Page};

/// How often what was decided from a job that has changed meanwhile is decided again.
const TRIES_MAX: usize = 10;
/// How much of what servers told each other is remembered.
const NEWS_MAX: i64 = 2_000;
/// How often to look whether somebody has held everything.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether nothing is handed out, as far as this process knows.
#[derive(Default)]
pub(super) struct Held(AtomicBool);

impl Held {
    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Looks once a second whether everything is held, for as long as the store is there.
pub(super) async fn look(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(fault) = inner.look_whether_held().await {
            tracing::debug!(%fault, "Cannot see whether everything is held; what was last known holds");
        }
    }
}

/// An entry of the audit log, in the order of its columns.
pub(super) fn written<'a>(entry: &'a Audit, at: &'a i64, job: &'a Option<Uuid>) -> [Argument<'a>; 9] {
    [
        (&entry.id, Type::TEXT),
        (at, Type::INT8),
        (&entry.who, Type::TEXT),
        (&entry.token, Type::TEXT),
        (&entry.what, Type::TEXT),
        (&entry.on, Type::TEXT),
        (job, Type::UUID),
        (&entry.result, Type::TEXT),
        (&entry.detail, Type::TEXT),
    ]
}

impl Inner {
    pub(super) async fn look_whether_held(&self) -> Result<bool, Fault> {
        let rows = self.database.query(include_str!("is_held.sql"), &[]).await?;
        let held: bool = only(&rows)?.try_get(0)?;
        if self.held.0.swap(held, Ordering::AcqRel) != held {
            self.woke();
        }
        Ok(held)
    }

    async fn series(&self, steps: Steps) -> Result<Vec<Point>, Fault> {
        let (from, until, step) = (steps.from.as_millis(), steps.until.as_millis(), steps.step_ms());
        let arguments = [(&from as _, Type::INT8), (&until as _, Type::INT8), (&step as _, Type::INT8)];
        let rows = self.database.read(include_str!("series.sql"), &arguments).await?;
        rows.iter()
            .map(|row| {
                let count = |n: usize| Ok::<_, Fault>(row.try_get::<_, i64>(n)?.unsigned_abs());
                Ok(Point {
                    at: Timestamp::from_millis(row.try_get(0)?),
                    enqueued: count(1)?,
                    succeeded: count(2)?,
                    failed: count(3)?,
                    dead: count(4)?,
                })
            })
            .collect()
    }

    async fn retries_due(&self, steps: Steps, most: usize) -> Result<Vec<(Timestamp, u64)>, Fault> {
        let (from, until, step) = (steps.from.as_millis(), steps.until.as_millis(), steps.step_ms());
        let most = limit(most);
        let arguments = [
            (&from as _, Type::INT8),
            (&until as _, Type::INT8),
            (&step as _, Type::INT8),
            (&most as _, Type::INT8),
        ];
        let rows = self.database.read(include_str!("retries_due.sql"), &arguments).await?;
        let read = |row: &Row| {
            Ok((Timestamp::from_millis(row.try_get(0)?), row.try_get::<_, i64>(1)?.unsigned_abs()))
        };
        rows.iter().map(read).collect()
    }

    async fn retries(&self, after: Option<Turn>, most: usize) -> Result<Vec<(Turn, JobId)>, Fault> {
        let (due_at, seq) = after.map_or((i64::MIN, 0), |turn| (turn.due_at.as_millis(), turn.seq));
        let most = limit(most);
        let arguments = [(&due_at as _, Type::INT8), (&seq as _, Type::INT8), (&most as _, Type::INT8)];
        let rows = self.database.read(include_str!("retries.sql"), &arguments).await?;
        let read = |row: &Row| {
            let turn = Turn { due_at: Timestamp::from_millis(row.try_get(0)?), seq: row.try_get(1)? };
            Ok((turn, job_id(row.try_get(2)?)))
        };
        rows.iter().map(read).collect()
    }

    async fn audit(&self, entry: &Audit) -> Result<(), Fault> {
        let (at, job) = (entry.at.as_millis(), entry.job.map(uuid_of));
        let mut arguments = written(entry, &at, &job).to_vec();
        arguments.push((&AUDIT_MAX, Type::INT8));
        self.database.query(include_str!("audit_put.sql"), &arguments).await.map(drop)
    }

    /// One statement, and with it this entry of the audit log, if there is one and it came to something.
    pub(super) async fn written_down(
        &self,
        entry: Option<&Audit>,
        sql: &str,
        arguments: &[Argument<'_>],
        came_to_something: impl Fn(&[Row]) -> Result<bool, Fault>,
    ) -> Result<Vec<Row>, Fault> {
        let Some(entry) = entry else { return self.database.query(sql, arguments).await };
        let (at, job) = (entry.at.as_millis(), entry.job.map(uuid_of));
        let mut then = written(entry, &at, &job).to_vec();
        then.push((&AUDIT_MAX, Type::INT8));
        self.database.both((sql, arguments), came_to_something, (include_str!("audit_put.sql"), &then)).await
    }

    async fn set(&self, setting: &Setting, now: Timestamp, entry: &Audit) -> Result<Option<Change>, Fault> {
        let entry = Some(entry);
        match setting {
            Setting::Queue { name, paused } => self.pause(name, *paused, entry).await?,
            Setting::Held(held) => self.hold(*held, entry).await?,
            Setting::Destination { name, word } => return self.told_of(name, *word, now, entry).await,
            Setting::Record { shelf, name, value } => self.keep(shelf, name, value.as_ref(), entry).await?,
        }
        Ok(None)
    }

    async fn audited(&self, filter: &AuditFilter) -> Result<Vec<(i64, Audit)>, Fault> {
        let (before, most) = (filter.before.unwrap_or(i64::MAX), limit(filter.limit));
        let job = filter.job.map(uuid_of);
        let arguments = [(&before as _, Type::INT8), (&most as _, Type::INT8), (&job as _, Type::UUID)];
        let rows = self.database.read(include_str!("audited.sql"), &arguments).await?;
        let read = |row: &Row| {
            let entry = Audit {
                id: row.try_get(1)?,
                at: Timestamp::from_millis(row.try_get(2)?),
                who: row.try_get(3)?,
                token: row.try_get(4)?,
                what: row.try_get(5)?,
                on: row.try_get(6)?,
                job: row.try_get::<_, Option<Uuid>>(7)?.map(job_id),
                result: row.try_get(8)?,
                detail: row.try_get(9)?,
            };
            Ok((row.try_get(0)?, entry))
        };
        rows.iter().map(read).collect()
    }

    async fn notice(&self, notice: &Notice) -> Result<Option<i64>, Fault> {
        let (at, job) = (notice.at.as_millis(), notice.job.map(uuid_of));
        let arguments = [
            (&notice.key as _, Type::TEXT),
            (&at as _, Type::INT8),
            (&notice.rule as _, Type::TEXT),
            (&notice.what as _, Type::TEXT),
            (&job as _, Type::UUID),
            (&notice.message as _, Type::TEXT),
            (&NOTICES_MAX as _, Type::INT8),
        ];
        let sql = "SELECT redrive.notice($1, $2, $3, $4, $5, $6, $7)";
        Ok(only(&self.database.query(sql, &arguments).await?)?.try_get(0)?)
    }

    async fn notices(&self, after: i64, most: usize) -> Result<Vec<(i64, Notice)>, Fault> {
        let most = limit(most);
        let arguments = [(&after as _, Type::INT8), (&most as _, Type::INT8)];
        let rows = self.database.read(include_str!("notices.sql"), &arguments).await?;
        let read = |row: &Row| {
            let notice = Notice {
                key: row.try_get(1)?,
                at: Timestamp::from_millis(row.try_get(2)?),
                rule: row.try_get(3)?,
                what: row.try_get(4)?,
                job: row.try_get::<_, Option<Uuid>>(5)?.map(job_id),
                message: row.try_get(6)?,
            };
            Ok((row.try_get(0)?, notice))
        };
        rows.iter().map(read).collect()
    }

    async fn edit(
        &self,
        id: JobId,
        edit: &Edit,
        now: Timestamp,
        entry: Option<&Audit>,
    ) -> Result<Job, Fault> {
        for _ in 0..TRIES_MAX {
            let found = self.list(&Filter::id(id), Page { before: None, limit: 1 }).await?.jobs;
            let job = found.into_iter().next().ok_or_else(|| not_there(id))?;
            let (next, before) = edit.apply(&job, now)?;
            let note = Activity::edited(&next, &edit.by, now);
            if self.correct(&job, &next, &before, &note, entry).await? {
                self.tell_others();
                return Ok(next);
            }
        }
        Err(Fault::Broken(format!("job {id} changes faster than it can be corrected")))
    }

    /// Writes what a job is from now on; whether it was still as it was read.
    async fn correct(
        &self,
        job: &Job,
        next: &Job,
        before: &EditRecord,
        note: &Activity,
        entry: Option<&Audit>,
    ) -> Result<bool, Fault> {
        let queue = self.names.queue_id(&self.database, &job.queue).await?;
        let policy = self.names.policy_id(&self.database, &next.policy).await?;
        let (lanes, attempt) = (vec![queue], i32::try_from(job.ledger.attempt).unwrap_or(i32::MAX));
        let (state, checksum) = (StateName::as_str(job.state.name()), i64::from(next.checksum()));
        let extras = next.extras();
        let labels = (!extras.labels.is_empty())
            .then(|| serde_json::to_string(&extras.labels).expect("a map of strings can be written"));
        let (destination, payload) = (extras.destination.as_deref(), next.payload.as_str());
        let before = serde_json::to_string(before).expect("what a job was can be written");
        let (note, id) = (note_json(note).to_string(), uuid_of(job.id));
        let expires = next.buried_at().map(Timestamp::as_millis);
        let arguments = [
            (&lanes as _, Type::INT4_ARRAY),
            (&job.seq as _, Type::INT8),
            (&id as _, Type::UUID),
            (&state as _, Type::TEXT),
            (&attempt as _, Type::INT4),
            (&policy as _, Type::INT4),
            (&checksum as _, Type::INT8),
            (&next.priority as _, Type::INT2),
            (&labels as _, Type::TEXT),
            (&destination as _, Type::TEXT),
            (&payload as _, Type::TEXT),
            (&before as _, Type::TEXT),
            (&EDITS_MAX as _, Type::INT8),
            (&note as _, Type::TEXT),
            (&expires as _, Type::INT8),
        ];
        let was_so = |rows: &[Row]| Ok(only(rows)?.try_get(0)?);
        was_so(&self.written_down(entry, include_str!("edit.sql"), &arguments, was_so).await?)
    }

    async fn edits(&self, id: JobId) -> Result<Vec<EditRecord>, Fault> {
        let id = uuid_of(id);
        let sql = "SELECT before FROM redrive.edits WHERE job = $1 ORDER BY n";
        let rows = self.database.query(sql, &[(&id, Type::UUID)]).await?;
        let foreign = |_| Fault::Foreign("a correction of a job that cannot be read".into());
        rows.iter().map(|row| serde_json::from_str(row.try_get(0)?).map_err(foreign)).collect()
    }

    async fn hold(&self, held: bool, entry: Option<&Audit>) -> Result<(), Fault> {
        let sql = if held { include_str!("hold_all.sql") } else { include_str!("resume_all.sql") };
        self.written_down(entry, sql, &[], always).await?;
        self.look_whether_held().await?;
        self.tell_others();
        Ok(())
    }

    async fn tell(&self, news: &str) -> Result<i64, Fault> {
        self.number("SELECT redrive.tell_all($1, $2)", &[(&news, Type::TEXT), (&NEWS_MAX, Type::INT8)]).await
    }

    async fn told(&self, after: i64, most: usize) -> Result<Vec<(i64, String)>, Fault> {
        let sql = "SELECT n, body FROM redrive.news WHERE n > $1 ORDER BY n LIMIT $2";
        let rows = self.database.query(sql, &[(&after, Type::INT8), (&limit(most), Type::INT8)]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    async fn told_range(&self) -> Result<(i64, i64), Fault> {
        let sql = "SELECT coalesce(min(n), 0), coalesce(max(n), 0) FROM redrive.news";
        let rows = self.database.query(sql, &[]).await?;
        let row = only(&rows)?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}

/// Setting something always comes to something.
pub(super) fn always(_: &[Row]) -> Result<bool, Fault> {
    Ok(true)
}

fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn uuid_of(id: JobId) -> Uuid {
    Uuid::from_u128(id.as_u128())
}

impl PostgresStore {
    /// Which schema the database has, without changing it.
    pub async fn schema_at(url: &str) -> Result<Schema> {
        let database = Database::new(super::parse(url)?, 2, Arc::default()).map_err(Fault::into_error)?;
        match migrate::standing(&database).await.map_err(Fault::into_error)? {
            migrate::Standing::Missing => Ok(Schema { found: None, known: migrate::KNOWN }),
            migrate::Standing::Older { schema, .. }
            | migrate::Standing::Current { schema }
            | migrate::Standing::Newer { schema, .. }
            | migrate::Standing::TooNew { schema, .. } => {
                Ok(Schema { found: Some(schema), known: migrate::KNOWN })
            }
        }
    }
}

#[async_trait]
impl Operations for PostgresStore {
    async fn series(&self, steps: Steps) -> Result<Vec<Point>> {
        self.inner.series(steps).await.map_err(Fault::into_error)
    }

    async fn retries_due(&self, steps: Steps, most: usize) -> Result<Vec<(Timestamp, u64)>> {
        self.inner.retries_due(steps, most).await.map_err(Fault::into_error)
    }

    async fn retries(&self, after: Option<Turn>, limit: usize) -> Result<Vec<(Turn, JobId)>> {
        self.inner.retries(after, limit).await.map_err(Fault::into_error)
    }

    async fn audit(&self, entry: &Audit) -> Result<()> {
        self.inner.audit(entry).await.map_err(Fault::into_error)
    }

    async fn apply_audited(
        &self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
        entry: &Audit,
    ) -> Result<Vec<JobId>> {
        let done = self.inner.apply(command, to, limit, now, Some(entry)).await.map_err(Fault::into_error)?;
        self.inner.tell_others();
        Ok(done)
    }

    async fn set_audited(&self, setting: &Setting, now: Timestamp, entry: &Audit) -> Result<Option<Change>> {
        let change = self.inner.set(setting, now, entry).await.map_err(Fault::into_error)?;
        match setting {
            Setting::Destination { .. } => self.inner.tell_others_of_gates(),
            _ => self.inner.tell_others(),
        }
        Ok(change)
    }

    async fn audited(&self, filter: &AuditFilter) -> Result<Vec<(i64, Audit)>> {
        self.inner.audited(filter).await.map_err(Fault::into_error)
    }

    async fn notice(&self, notice: &Notice) -> Result<Option<i64>> {
        self.inner.notice(notice).await.map_err(Fault::into_error)
    }

    async fn notices(&self, after: i64, limit: usize) -> Result<Vec<(i64, Notice)>> {
        self.inner.notices(after, limit).await.map_err(Fault::into_error)
    }

    async fn edit(&self, id: JobId, edit: &Edit, now: Timestamp, entry: Option<&Audit>) -> Result<Job> {
        self.inner.edit(id, edit, now, entry).await.map_err(Fault::into_error)
    }

    async fn edits(&self, id: JobId) -> Result<Vec<EditRecord>> {
        self.inner.edits(id).await.map_err(Fault::into_error)
    }

    async fn hold(&self, held: bool) -> Result<()> {
        self.inner.hold(held, None).await.map_err(Fault::into_error)
    }

    async fn is_held(&self) -> Result<bool> {
        self.inner.look_whether_held().await.map_err(Fault::into_error)
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn tell(&self, news: &str) -> Result<i64> {
        self.inner.tell(news).await.map_err(Fault::into_error)
    }

    async fn told(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        self.inner.told(after, limit).await.map_err(Fault::into_error)
    }

    async fn told_range(&self) -> Result<(i64, i64)> {
        self.inner.told_range().await.map_err(Fault::into_error)
    }
}
