//! Looking: one job, lists, counts, the activity log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::Inner;
use super::codec::{column, give_up, only};
use super::database::Argument;
use super::fault::Fault;
use super::operations::always;
use crate::clock::Timestamp;
use crate::job::{AttemptRecord, Ending, Job, JobId, Json, State, StateName};
use crate::operate::Audit;
use crate::stats::{ACTIVITY_MAX, Activity, Tally, Trend, What};
use crate::store::{Filter, Group, JobDetail, Page, Paged, QueueCounts};

impl Inner {
    /// Jobs that match, newest first.
    pub(super) async fn list(&self, filter: &Filter, page: Page) -> Result<Paged, Fault> {
        let mut paged = Paged::default();
        let mut before = page.before;
        loop {
            let wanted = page.limit - paged.jobs.len();
            let (sql, values) = select(filter, before, wanted);
            let arguments: Vec<Argument<'_>> =
                values.iter().map(|(value, kind)| (&**value as _, kind.clone())).collect();
            let rows = self.database.read(&sql, &arguments).await?;
            self.names.learn(&self.database, &rows).await?;
            for row in &rows {
                let Some(mut job) = self.names.job(row)? else { continue };
                job.state = state(row, &job)?;
                // Labels are in one column: the rest of the filter is checked here.
                if filter.matches(&job) {
                    paged.jobs.push(job);
                }
            }
            before = rows.last().map(|row| row.get(column::SEQ));
            if rows.len() < wanted || paged.jobs.len() == page.limit {
                break;
            }
        }
        if paged.jobs.len() == page.limit {
            paged.next = paged.jobs.last().map(|job| job.seq);
        }
        Ok(paged)
    }

    /// One job with its history.
    pub(super) async fn get(&self, id: JobId) -> Result<Option<JobDetail>, Fault> {
        let paged = self.list(&Filter::id(id), Page { before: None, limit: 1 }).await?;
        let Some(job) = paged.jobs.into_iter().next() else { return Ok(None) };
        let rows = self.database.query(include_str!("attempts.sql"), &[(&job.seq, Type::INT8)]).await?;
        let attempts = rows.iter().map(attempt).collect::<Result<_, _>>()?;
        let id = job.id.as_uuid();
        let arguments: [Argument<'_>; 2] = [(&id, Type::UUID), (&job.seq, Type::INT8)];
        let rows = self.database.query(include_str!("author_and_output.sql"), &arguments).await?;
        // It may have been forgotten meanwhile.
        let Some(row) = rows.first() else { return Ok(None) };
        let author = row.try_get::<_, Option<&str>>(0)?.map(Into::into);
        let output = row.try_get::<_, Option<&str>>(1)?.map(Json::trusted);
        Ok(Some(JobDetail { job, attempts, output, author }))
    }

    /// The last failed attempt of each of these.
    pub(super) async fn last_failed(&self, jobs: &[Job]) -> Result<BTreeMap<JobId, AttemptRecord>, Fault> {
        let ids: BTreeMap<i64, JobId> = jobs.iter().map(|job| (job.seq, job.id)).collect();
        let seqs: Vec<i64> = ids.keys().copied().collect();
        let sql = include_str!("last_failed.sql");
        let rows = self.database.query(sql, &[(&seqs, Type::INT8_ARRAY)]).await?;
        let mut failed = BTreeMap::new();
        for row in &rows {
            let id = ids.get(&row.try_get(8)?).copied();
            failed.extend(id.map(|id| Ok::<_, Fault>((id, attempt(row)?))).transpose()?);
        }
        Ok(failed)
    }

    pub(super) async fn counts(&self) -> Result<Vec<QueueCounts>, Fault> {
        let rows = self.database.read(include_str!("counts.sql"), &[]).await?;
        let mut queues: BTreeMap<Arc<str>, QueueCounts> = BTreeMap::new();
        for row in &rows {
            let count = |index: usize| -> Result<u64, Fault> {
                Ok(u64::try_from(row.try_get::<_, i64>(index)?).unwrap_or(0))
            };
            let (live, running, dead) = (count(2)?, count(3)?, count(4)?);
            let mut totals = Tally::default();
            let counted: Option<&str> = row.try_get(5)?;
            let counted: BTreeMap<String, u64> =
                counted.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
            for (name, field) in totals.fields() {
                *field = counted.get(name).copied().unwrap_or(0);
            }
            let queue: Arc<str> = row.try_get::<_, &str>(0)?.into();
            let counts = QueueCounts {
                queue: queue.clone(),
                waiting: live.saturating_sub(running),
                running,
                dead,
                paused: row.try_get(1)?,
                totals,
            };
            queues.insert(queue, counts);
        }
        Ok(queues.into_values().collect())
    }

    /// The newest lines of the activity log.
    pub(super) async fn activity(&self, limit: usize) -> Result<Vec<Activity>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX).min(ACTIVITY_MAX);
        let rows = self.database.read(include_str!("activity.sql"), &[(&limit, Type::INT8)]).await?;
        let mut lines = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(what) = What::parse(row.try_get(1)?) else { continue };
            lines.push(Activity {
                at: Timestamp::from_millis(row.try_get(0)?),
                what,
                job: super::codec::job_id(row.try_get(2)?),
                kind: row.try_get::<_, &str>(3)?.into(),
                queue: row.try_get::<_, &str>(4)?.into(),
                message: row.try_get(5)?,
            });
        }
        Ok(lines)
    }

    /// Dead jobs by what they died of.
    pub(super) async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.database.read(include_str!("groups.sql"), &[(&limit, Type::INT8)]).await?;
        let group = |row: &Row| -> Result<Group, Fault> {
            Ok(Group {
                fingerprint: row.try_get(0)?,
                count: u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0),
                newest: super::codec::job_id(row.try_get(2)?),
                first_at: Timestamp::from_millis(row.try_get(3)?),
                last_at: Timestamp::from_millis(row.try_get(4)?),
                trend: Trend::default(),
            })
        };
        let mut groups: Vec<Group> = rows.iter().map(group).collect::<Result<_, _>>()?;
        let Some(from) = groups.iter().map(|group| group.first_at).min() else { return Ok(groups) };
        // No fingerprint is empty: the empty one stands for those who have none.
        let listed: Vec<String> =
            groups.iter().map(|group| group.fingerprint.clone().unwrap_or_default()).collect();
        let (from, step) = (from.as_millis(), Trend::step_ms(from, now));
        let arguments: [Argument<'_>; 3] =
            [(&from, Type::INT8), (&step, Type::INT8), (&listed, Type::TEXT_ARRAY)];
        for row in &self.database.read(include_str!("deaths.sql"), &arguments).await? {
            let place = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            if let Some(group) = place.checked_sub(1).and_then(|place| groups.get_mut(place)) {
                group.trend.count(row.try_get(1)?, u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0));
            }
        }
        Ok(groups)
    }

    /// The records of a shelf.
    pub(super) async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>, Fault> {
        let rows = self.database.query(include_str!("records.sql"), &[(&shelf, Type::TEXT)]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, Json::trusted(row.try_get(1)?)))).collect()
    }

    /// Writes a record, or removes it.
    pub(super) async fn keep(
        &self,
        shelf: &str,
        name: &str,
        value: Option<&Json>,
        entry: Option<&Audit>,
    ) -> Result<(), Fault> {
        let mut arguments: Vec<Argument<'_>> = vec![(&shelf, Type::TEXT), (&name, Type::TEXT)];
        let text = value.map(Json::as_str);
        let sql = match &text {
            Some(text) => {
                arguments.push((text, Type::TEXT));
                include_str!("record_put.sql")
            }
            None => include_str!("record_delete.sql"),
        };
        self.written_down(entry, sql, &arguments, always).await.map(drop)
    }

    /// One number.
    pub(super) async fn number(&self, sql: &str, arguments: &[Argument<'_>]) -> Result<i64, Fault> {
        Ok(only(&self.database.query(sql, arguments).await?)?.try_get(0)?)
    }
}

/// Columns behind those of [`column`]: since when it runs, and the final state, if it has one.
const SINCE: usize = column::COUNT;
const FINAL: usize = SINCE + 1;

fn state(row: &Row, job: &Job) -> Result<State, Fault> {
    let at: Option<i64> = row.try_get(FINAL)?;
    let since: Option<i64> = row.try_get(SINCE)?;
    let Some(at) = at.map(Timestamp::from_millis) else {
        return Ok(match since {
            Some(since) => State::Running { since: Timestamp::from_millis(since) },
            None => job.state.clone(),
        });
    };
    Ok(match row.try_get(FINAL + 1)? {
        "succeeded" => State::Succeeded { at },
        "cancelled" => State::Cancelled { at },
        _ => State::Dead { at, why: give_up(row.try_get(FINAL + 2)?) },
    })
}

fn attempt(row: &Row) -> Result<AttemptRecord, Fault> {
    let failure: Option<&str> = row.try_get(4)?;
    Ok(AttemptRecord {
        attempt: u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or(0),
        started_at: Timestamp::from_millis(row.try_get(1)?),
        ended_at: Timestamp::from_millis(row.try_get(2)?),
        ending: Ending::parse(row.try_get(3)?).unwrap_or(Ending::Failed),
        failure: failure.and_then(|json| serde_json::from_str(json).ok()),
        rule: row.try_get(5)?,
        next_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
        fingerprint: row.try_get(7)?,
    })
}

type Values = Vec<(Box<dyn ToSql + Sync + Send>, Type)>;

/// The statement for a filter. Values are always bound; only the tables that can hold a wanted state are read, each in
/// the order of its own index.
fn select(filter: &Filter, before: Option<i64>, limit: usize) -> (String, Values) {
    let mut values: Values = Vec::new();
    let mut condition = String::new();
    let mut bind = |text: &str, value: Box<dyn ToSql + Sync + Send>, kind: Type| {
        values.push((value, kind));
        write!(condition, " AND {}", text.replace('?', &format!("${}", values.len())))
            .expect("writing to a string");
    };
    if let Some(before) = before {
        bind("s.seq < ?", Box::new(before), Type::INT8);
    }
    if !filter.ids.is_empty() {
        let ids: Vec<Uuid> = filter.ids.iter().map(|id| id.as_uuid()).collect();
        bind("s.id = ANY (?)", Box::new(ids.clone()), Type::UUID_ARRAY);
        bind("j.id = ANY (?)", Box::new(ids), Type::UUID_ARRAY);
    }
    if let Some(kind) = &filter.kind {
        bind("j.kind = ?", Box::new(kind.clone()), Type::TEXT);
    }
    if let Some(queue) = &filter.queue {
        bind("s.queue = (SELECT id FROM redrive.queues WHERE name = ?)", Box::new(queue.clone()), Type::TEXT);
    }
    if let Some(key) = &filter.key {
        bind("j.unique_key = ?", Box::new(key.clone()), Type::TEXT);
    }
    if let Some(parent) = &filter.parent {
        bind("j.parent = ?", Box::new(parent.as_uuid()), Type::UUID);
    }
    if let Some(destination) = &filter.destination {
        bind("j.destination = ?", Box::new(destination.clone()), Type::TEXT);
    }
    for written in filter.labels_written() {
        bind("strpos(j.labels, ?) > 0", Box::new(written), Type::TEXT);
    }
    if let Some(from) = filter.created_from {
        bind("j.created_at >= ?", Box::new(from.as_millis()), Type::INT8);
    }
    if let Some(until) = filter.created_until {
        bind("j.created_at < ?", Box::new(until.as_millis()), Type::INT8);
    }
    if let Some(fingerprint) = &filter.fingerprint {
        bind(
            "(SELECT a.fingerprint FROM redrive.attempts AS a WHERE a.seq = s.seq AND a.failure IS NOT NULL \
             ORDER BY a.attempt DESC LIMIT 1) = ?",
            Box::new(fingerprint.clone()),
            Type::TEXT,
        );
    }
    let wanted = |state: StateName| filter.states.is_empty() || filter.states.contains(&state);
    let mut parts = Vec::new();
    let (waiting, running) = (wanted(StateName::Waiting), wanted(StateName::Running));
    if waiting || running {
        let only = match (waiting, running) {
            (true, true) => "",
            (true, false) => {
                " AND (s.seq, s.attempt) NOT IN (SELECT r.seq, r.attempt FROM redrive.running AS r)"
            }
            (false, _) => " AND (s.seq, s.attempt) IN (SELECT r.seq, r.attempt FROM redrive.running AS r)",
        };
        parts.push(LIVE.select(&format!("{condition}{only}"), limit));
    }
    let (succeeded, cancelled) = (wanted(StateName::Succeeded), wanted(StateName::Cancelled));
    if succeeded || cancelled {
        let only = match (succeeded, cancelled) {
            (true, true) => "",
            (true, false) => " AND NOT s.cancelled",
            (false, _) => " AND s.cancelled",
        };
        parts.push(DONE.select(&format!("{condition}{only}"), limit));
    }
    if wanted(StateName::Dead) {
        parts.push(DEAD.select(&condition, limit));
    }
    let sql =
        format!("SELECT * FROM ({}) AS found ORDER BY seq DESC LIMIT {limit}", parts.join(" UNION ALL "));
    (sql, values)
}

/// One table's part of a list.
struct Part {
    table: &'static str,
    /// Since when it runs, and when it is due.
    when: [&'static str; 2],
    /// Why it waits, and the last delay.
    waits: &'static str,
    /// How it ended.
    end: &'static str,
}

const LIVE: Part = Part {
    table: "live",
    when: [
        "(SELECT r.claimed_at FROM redrive.running AS r \
         WHERE s.seq BETWEEN r.lowest AND r.highest AND r.seq = s.seq AND r.attempt = s.attempt LIMIT 1)",
        "s.due_at",
    ],
    waits: "CASE WHEN s.line IS NOT NULL THEN 'held' WHEN s.held THEN 'order' ELSE s.reason END, s.last_delay_ms, \
         s.in_line_ms",
    end: "NULL::bigint, NULL::text, NULL::text",
};
const DONE: Part = Part {
    table: "done",
    when: ["NULL::bigint", "0::bigint"],
    waits: "NULL::text, NULL::bigint, NULL::bigint",
    end: "s.finished_at, CASE WHEN s.cancelled THEN 'cancelled' ELSE 'succeeded' END, NULL::text",
};
const DEAD: Part = Part {
    table: "dead",
    when: ["NULL::bigint", "0::bigint"],
    waits: "NULL::text, NULL::bigint, NULL::bigint",
    end: "s.finished_at, 'dead', s.why",
};

impl Part {
    fn select(&self, condition: &str, limit: usize) -> String {
        let Part { table, when: [since, due], waits, end } = self;
        format!(
            "(SELECT s.seq, {due}, s.attempt, s.id, s.queue, j.priority, j.policy, \
             j.created_at, j.checksum, j.kind, j.payload, redrive.rest(j), \
             ARRAY[s.failures, s.crashes, s.snoozes, s.holds, s.interruptions, s.generation], {waits}, {since}, {end} \
             FROM redrive.{table} AS s JOIN redrive.jobs AS j ON j.id = s.id \
             WHERE true{condition} ORDER BY s.seq DESC LIMIT {limit})"
        )
    }
}
