//! Looking: one job, lists, the activity log. Works on any connection, and never writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::PoisonError;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::Fault;
use super::codec::{CONTENT, Names, STANDING, Standing, final_state};
use super::core::{Core, SharedRunning};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::job::{AttemptRecord, Ending, Job, JobId, Json, State, StateName};
use crate::stats::{Activity, Trend, What};
use crate::store::{Ended, Filter, Group, JobDetail, Page, Paged};

/// How those of these jobs ended that are final.
pub(super) fn ended(conn: &Connection, ids: &[JobId]) -> Result<Vec<Ended>, Fault> {
    let listed = serde_json::to_string(ids).expect("ids can be written");
    let mut statement = conn.prepare_cached(include_str!("ended.sql"))?;
    let mut rows = statement.query([listed])?;
    let mut ended = Vec::new();
    while let Some(row) = rows.next()? {
        let id = usize::try_from(row.get::<_, i64>(0)?).ok().and_then(|at| ids.get(at));
        if let (Some(id), Some(state)) = (id, final_state(row, 1)?) {
            let output = row.get_ref(4)?.as_str_or_null().ok().flatten().map(Json::trusted);
            ended.push(Ended { id: *id, state: state.name(), output });
        }
    }
    Ok(ended)
}

/// Jobs that match, newest first.
pub(super) fn list(
    conn: &Connection,
    names: &mut Names,
    running: &SharedRunning,
    filter: &Filter,
    page: Page,
) -> Result<Paged, Fault> {
    let (sql, arguments) = select(filter, page.before);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(arguments))?;
    let mut paged = Paged::default();
    while paged.jobs.len() < page.limit
        && let Some(row) = rows.next()?
    {
        let Some(mut job) = names.job(conn, row, 13, Standing::read(row)?)? else { continue };
        let run = running.read().unwrap_or_else(PoisonError::into_inner).0.get(&job.seq).copied();
        job.state = match (final_state(row, 31)?, run) {
            (Some(state), _) => state,
            (None, Some(run)) if run.attempt == job.ledger.attempt => State::Running { since: run.since },
            (None, _) => job.state,
        };
        // Whether it runs is in memory, and labels are in one column: the rest of the filter is checked here.
        if filter.matches(&job) {
            paged.jobs.push(job);
        }
    }
    if paged.jobs.len() == page.limit {
        paged.next = paged.jobs.last().map(|job| job.seq);
    }
    Ok(paged)
}

/// The statement for a filter. Values are always bound; the table that holds the fewest candidates drives.
fn select(filter: &Filter, before: Option<i64>) -> (String, Vec<Value>) {
    let standing = STANDING.replace("live.seq", "jobs.seq");
    // A final job's counters are in its last row.
    let standing = ["attempt", "failures", "crashes", "snoozes", "holds", "interruptions", "generation"]
        .iter()
        .fold(standing, |text, name| {
            text.replace(&format!("live.{name},"), &format!("coalesce(live.{name}, done.{name}),"))
        });
    let standing = standing
        .replace("live.due_at", "coalesce(live.due_at, 0)")
        .replace("live.held", "coalesce(live.held, 0)");
    // By their ids, jobs are found at once wherever they stand.
    let by_state = filter.ids.is_empty() && !filter.states.is_empty();
    let only = |names: &[StateName]| by_state && filter.states.iter().all(|s| names.contains(s));
    // Newest first by the place in the table that drives: by another's, all of it would be read and sorted.
    let (seq, from) = if only(&[StateName::Dead]) {
        (
            "done.seq",
            "redrive_done AS done INDEXED BY redrive_done_dead CROSS JOIN redrive_jobs AS jobs ON jobs.seq = done.seq \
         LEFT JOIN redrive_live AS live ON live.seq = jobs.seq WHERE done.state = 'dead'",
        )
    } else if only(&[StateName::Succeeded, StateName::Dead, StateName::Cancelled]) {
        (
            "done.seq",
            "redrive_done AS done CROSS JOIN redrive_jobs AS jobs ON jobs.seq = done.seq \
         LEFT JOIN redrive_live AS live ON live.seq = jobs.seq WHERE 1",
        )
    } else if only(&[StateName::Waiting, StateName::Running]) {
        (
            "live.seq",
            "redrive_live AS live CROSS JOIN redrive_jobs AS jobs ON jobs.seq = live.seq \
         LEFT JOIN redrive_done AS done ON done.seq = jobs.seq WHERE 1",
        )
    } else {
        (
            "jobs.seq",
            "redrive_jobs AS jobs LEFT JOIN redrive_live AS live ON live.seq = jobs.seq \
         LEFT JOIN redrive_done AS done ON done.seq = jobs.seq WHERE 1",
        )
    };
    let mut sql = format!("SELECT {standing}, {CONTENT}, done.state, done.why, done.finished_at FROM {from}");
    let mut arguments = Vec::new();
    let mut condition = |text: &str, value: Value| {
        arguments.push(value);
        write!(sql, " AND {}", text.replace('?', &format!("?{}", arguments.len())))
            .expect("writing to a string");
    };
    if let Some(before) = before {
        condition(&format!("{seq} < ?"), before.into());
    }
    if !filter.ids.is_empty() {
        let ids: Vec<String> = filter.ids.iter().map(JobId::to_string).collect();
        let ids = serde_json::to_string(&ids).expect("a list of strings can be written");
        condition("jobs.id IN (SELECT value FROM json_each(?))", ids.into());
    }
    if let Some(kind) = &filter.kind {
        condition("jobs.kind = ?", kind.clone().into());
    }
    if let Some(queue) = &filter.queue {
        condition("jobs.queue = (SELECT id FROM redrive_queues WHERE name = ?)", queue.clone().into());
    }
    if let Some(key) = &filter.key {
        condition("jobs.unique_key = ?", key.clone().into());
    }
    if let Some(parent) = &filter.parent {
        condition("jobs.parent = ?", parent.to_string().into());
    }
    if let Some(destination) = &filter.destination {
        condition("jobs.destination = ?", destination.clone().into());
    }
    for written in filter.labels_written() {
        condition("instr(jobs.labels, ?) > 0", written.into());
    }
    if let Some(from) = filter.created_from {
        condition("jobs.created_at >= ?", from.as_millis().into());
    }
    if let Some(until) = filter.created_until {
        condition("jobs.created_at < ?", until.as_millis().into());
    }
    if let Some(fingerprint) = &filter.fingerprint {
        condition(
            "(SELECT fingerprint FROM redrive_attempts AS a WHERE a.seq = jobs.seq AND a.failure IS NOT NULL \
             ORDER BY attempt DESC LIMIT 1) = ?",
            fingerprint.clone().into(),
        );
    }
    write!(sql, " ORDER BY {seq} DESC").expect("writing to a string");
    (sql, arguments)
}

/// One job with its history.
pub(super) fn get(
    conn: &Connection,
    names: &mut Names,
    running: &SharedRunning,
    id: JobId,
) -> Result<Option<JobDetail>, Fault> {
    let paged = list(conn, names, running, &Filter::id(id), Page { before: None, limit: 1 })?;
    let Some(job) = paged.jobs.into_iter().next() else { return Ok(None) };
    let mut statement = conn.prepare_cached(include_str!("attempts.sql"))?;
    let mut rows = statement.query([job.seq])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        attempts.push(attempt(row)?);
    }
    let output: Option<Option<String>> = conn
        .prepare_cached("SELECT output FROM redrive_done WHERE seq = ?1")?
        .query_row([job.seq], |row| row.get(0))
        .optional()?;
    let output = output.flatten().map(|text| Json::trusted(&text));
    let author: Option<Option<String>> =
        conn.prepare_cached(include_str!("author.sql"))?.query_row([job.seq], |row| row.get(0)).optional()?;
    // Forgotten meanwhile.
    let Some(author) = author else { return Ok(None) };
    Ok(Some(JobDetail { job, attempts, output, author: author.map(Into::into) }))
}

fn attempt(row: &rusqlite::Row<'_>) -> rusqlite::Result<AttemptRecord> {
    let failure: Option<String> = row.get(4)?;
    Ok(AttemptRecord {
        attempt: row.get(0)?,
        started_at: Timestamp::from_millis(row.get(1)?),
        ended_at: Timestamp::from_millis(row.get(2)?),
        ending: Ending::parse(&row.get::<_, String>(3)?).unwrap_or(Ending::Failed),
        failure: failure.and_then(|json| serde_json::from_str(&json).ok()),
        fingerprint: row.get(7)?,
        rule: row.get(5)?,
        next_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
    })
}

/// The last failed attempt of each of these.
pub(super) fn last_failed(
    conn: &Connection,
    jobs: &[(i64, JobId)],
) -> Result<BTreeMap<JobId, AttemptRecord>, Fault> {
    let mut statement = conn.prepare_cached(include_str!("last_failed.sql"))?;
    let mut failed = BTreeMap::new();
    for (seq, id) in jobs {
        let last = statement.query_row([seq], attempt).optional()?;
        failed.extend(last.map(|attempt| (*id, attempt)));
    }
    Ok(failed)
}

/// The records of a shelf.
pub(super) fn records(conn: &Connection, shelf: &str) -> Result<Vec<(String, Json)>, Fault> {
    let mut statement = conn.prepare_cached(include_str!("records.sql"))?;
    let rows =
        statement.query_map([shelf], |row| Ok((row.get(0)?, Json::trusted(row.get_ref(1)?.as_str()?))))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Dead jobs by what they died of.
pub(super) fn groups(conn: &Connection, limit: usize, now: Timestamp) -> Result<Vec<Group>, Fault> {
    let mut statement = conn.prepare_cached(include_str!("groups.sql"))?;
    let mut rows = statement.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut groups = Vec::new();
    while let Some(row) = rows.next()? {
        let Ok(newest) = row.get::<_, String>(3)?.parse() else { continue };
        groups.push(Group {
            fingerprint: row.get(0)?,
            count: row.get::<_, i64>(1)?.unsigned_abs(),
            newest,
            first_at: Timestamp::from_millis(row.get(4)?),
            last_at: Timestamp::from_millis(row.get(5)?),
            trend: Trend::default(),
        });
    }
    let Some(from) = groups.iter().map(|group| group.first_at).min() else { return Ok(groups) };
    let listed: Vec<Option<&str>> = groups.iter().map(|group| group.fingerprint.as_deref()).collect();
    let listed = serde_json::to_string(&listed).expect("a list of strings can be written");
    let mut statement = conn.prepare_cached(include_str!("deaths.sql"))?;
    let mut rows = statement.query(rusqlite::params![from.as_millis(), Trend::step_ms(from, now), listed])?;
    while let Some(row) = rows.next()? {
        let group = usize::try_from(row.get::<_, i64>(0)?).ok().and_then(|at| groups.get_mut(at));
        if let Some(group) = group {
            group.trend.count(row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs());
        }
    }
    Ok(groups)
}

/// The newest lines of the activity log.
pub(super) fn activity(conn: &Connection, limit: usize) -> Result<Vec<Activity>, Fault> {
    let mut statement = conn.prepare_cached(include_str!("activity.sql"))?;
    let mut rows = statement.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        let what = What::parse(&row.get::<_, String>(1)?);
        let job = row.get::<_, String>(2)?.parse().ok();
        let (Some(what), Some(job)) = (what, job) else { continue };
        lines.push(Activity {
            at: Timestamp::from_millis(row.get(0)?),
            what,
            job,
            kind: row.get::<_, String>(3)?.into(),
            queue: row.get::<_, String>(4)?.into(),
            message: row.get(5)?,
        });
    }
    Ok(lines)
}

impl Core {
    /// A job that is there, by its place.
    pub(super) fn load(&mut self, seq: i64) -> Result<Job, Fault> {
        let page = Page { before: Some(seq + 1), limit: 1 };
        let found = self.list(&Filter::default(), page)?.jobs.into_iter().next().filter(|job| job.seq == seq);
        found.ok_or_else(|| {
            let message = format!("job number {seq} cannot be read back: its row is not what was written");
            Error::new(ErrorKind::Corrupt, message).into()
        })
    }

    pub(super) fn list(&mut self, filter: &Filter, page: Page) -> Result<Paged, Fault> {
        list(&self.conn, &mut self.names, &self.running, filter, page)
    }
}
