//! The limit: the tightest SQL loops, written by hand, that leave the same rows behind as durably as the engine does.
//!
//! One thread, prepared statements, the engine's own schema and settings; what runs and what is claimed next share a
//! transaction. No dispatch, no timers, no leases to renew: what an engine costs is what it adds to this.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::Receiver;

use anyhow::{Result, ensure};
use redrive::{ACTIVITY_MAX, Clock, DEFAULT_QUEUE, Failure, JobId, Payload as _, Rng, Timestamp};
use rusqlite::{Connection, Statement, params};
use tokio::sync::oneshot;

use super::workload::{FAILURE, Parcel, policy};

/// Those of the store's migrations that make what is used here.
const SCHEMA: [&str; 2] = [
    include_str!("../../../redrive/migrations/sqlite/0001_jobs.sql"),
    include_str!("../../../redrive/migrations/sqlite/0005_kind.sql"),
];
/// As the store sets them.
const SETTINGS: &str =
    "PRAGMA journal_mode = wal; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;
                        PRAGMA cache_size = -16384;";

const INSERT_JOB: &str =
    "INSERT INTO redrive_jobs (id, kind, queue, priority, policy, created_at, checksum, payload)
                          VALUES (?1, ?2, 1, 0, 1, ?3, ?4, ?5)";
const INSERT_LIVE: &str =
    "INSERT INTO redrive_live (seq, queue, priority, due_at, kind) VALUES (?1, 1, 0, ?2, ?3)";
const ADD: &str = "INSERT INTO redrive_stats (queue, name, value) VALUES (1, ?1, ?2)
                   ON CONFLICT (queue, name) DO UPDATE SET value = value + excluded.value";
const DUE: &str =
    "SELECT live.seq, live.attempt, jobs.id, jobs.kind, jobs.created_at, jobs.checksum, jobs.payload
                   FROM redrive_live AS live INDEXED BY redrive_live_due
                   CROSS JOIN redrive_jobs AS jobs ON jobs.seq = live.seq
                   WHERE live.queue = 1 AND live.priority = 0 AND live.held = 0 AND live.due_at <= ?1
                   ORDER BY live.due_at, live.seq LIMIT ?2";
const CLAIM: &str = "INSERT INTO redrive_claims (id, holder, claimed_at, jobs) VALUES (?1, ?2, ?3, ?4)";
const UNCLAIM: &str = "DELETE FROM redrive_claims WHERE id = ?1";
const FINISH: &str = "DELETE FROM redrive_live WHERE seq = ?1 AND attempt = ?2";
const DONE: &str =
    "INSERT INTO redrive_done (seq, state, started_at, finished_at, attempt, failures, crashes, snoozes,
                                              holds, interruptions, generation)
                    VALUES (?1, 'succeeded', ?2, ?2, ?3, ?4, 0, 0, 0, 0, 0)";
const WAIT: &str =
    "UPDATE redrive_live SET due_at = ?3, attempt = ?2 + 1, failures = ?2 + 1, reason = 'backoff',
                                            last_delay_ms = 0
                    WHERE seq = ?1 AND attempt = ?2";
const ATTEMPT: &str =
    "INSERT INTO redrive_attempts (seq, attempt, started_at, ended_at, ending, failure, fingerprint,
                                                     rule, next_at)
                       VALUES (?1, ?2, ?3, ?3, 'failed', ?4, ?5, 'the handler''s word', ?3)";
const NOTE: &str = "INSERT INTO redrive_activity (at, what, job, kind, queue, message)
                    VALUES (?1, 'recovered', ?2, ?3, ?4, ?5)";
const TRIM: &str = "DELETE FROM redrive_activity WHERE n <= (SELECT max(n) FROM redrive_activity) - ?1";

/// A connection to a fresh file.
pub(crate) struct Limit {
    conn: Connection,
}

/// A job as it is written.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) payload: String,
    pub(crate) created_at: i64,
    pub(crate) checksum: u32,
}

/// Makes rows. Each caller has one.
pub(crate) struct Maker {
    clock: Clock,
    rng: Rng,
    last: Timestamp,
    count: u16,
}

impl Maker {
    pub(crate) fn new() -> Maker {
        Maker { clock: Clock::system(), rng: Rng::from_os(), last: Timestamp::EPOCH, count: 0 }
    }

    pub(crate) fn row(&mut self, parcel: &Parcel) -> Result<Row> {
        let now = self.clock.now();
        self.count = if now > self.last { 0 } else { self.count.wrapping_add(1) };
        self.last = now;
        let id = JobId::new(now, self.count, &mut self.rng);
        let payload = serde_json::to_string(parcel)?;
        let checksum = checksum(id, Parcel::KIND, &payload, now.as_millis());
        Ok(Row { id: id.to_string(), payload, created_at: now.as_millis(), checksum })
    }
}

/// As the store computes it.
pub(crate) fn checksum(id: JobId, kind: &str, payload: &str, created_at: i64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.as_u128().to_be_bytes());
    hasher.update(kind.as_bytes());
    hasher.update(&[0]);
    hasher.update(payload.as_bytes());
    hasher.update(&created_at.to_be_bytes());
    hasher.finalize()
}

/// Whoever claims.
const HOLDER: &str = "00000000000000000000000000000001";

impl Limit {
    pub(crate) fn open(path: &Path) -> Result<Limit> {
        let conn = Connection::open(path)?;
        conn.execute_batch(SETTINGS)?;
        SCHEMA.iter().try_for_each(|migration| conn.execute_batch(migration))?;
        conn.execute("INSERT INTO redrive_queues (id, name) VALUES (1, ?1)", [DEFAULT_QUEUE])?;
        let body = serde_json::to_string(&policy())?;
        conn.execute("INSERT INTO redrive_policies (id, version, body) VALUES (1, 1, ?1)", [body])?;
        conn.execute("INSERT INTO redrive_holders (id, name, until) VALUES (?1, 'by hand', 0)", [HOLDER])?;
        Ok(Limit { conn })
    }

    /// `count` jobs, `together` in each transaction.
    pub(crate) fn enqueue(&self, count: u64, together: u64) -> Result<()> {
        let mut inserts = Inserts::prepare(&self.conn)?;
        let mut maker = Maker::new();
        let mut next = 0;
        while next < count {
            let end = (next + together).min(count);
            inserts.begin.execute([])?;
            for number in next..end {
                inserts.insert(&maker.row(&Parcel::new(number))?)?;
            }
            inserts.commit(end - next)?;
            next = end;
        }
        Ok(())
    }

    /// Group commit: what has collected while the last transaction was on its way to the disk goes together.
    pub(crate) fn serve(&self, incoming: &Receiver<(Row, oneshot::Sender<()>)>) -> Result<()> {
        let mut inserts = Inserts::prepare(&self.conn)?;
        while let Ok(first) = incoming.recv() {
            let mut waiting = Vec::new();
            inserts.begin.execute([])?;
            for (row, answer) in std::iter::once(first).chain(incoming.try_iter()) {
                inserts.insert(&row)?;
                waiting.push(answer);
            }
            inserts.commit(waiting.len() as u64)?;
            for answer in waiting {
                ensure!(answer.send(()).is_ok(), "a caller went away without its answer");
            }
        }
        Ok(())
    }

    /// Runs everything that is due, `batch` at a time, each job failing `failures` times first; says how many attempts
    /// that took.
    pub(crate) fn drain(&self, batch: usize, failures: u32) -> Result<u64> {
        let mut run = Run::prepare(&self.conn, failures)?;
        let mut attempts = 0;
        let mut held = Vec::new();
        loop {
            run.begin.execute([])?;
            let now = run.clock.now().as_millis();
            run.settle(&mut held, now)?;
            run.claim(&mut held, batch, now)?;
            run.count()?;
            run.commit.execute([])?;
            if held.is_empty() {
                return Ok(attempts);
            }
            attempts += held.len() as u64;
        }
    }

    /// How many jobs have succeeded.
    pub(crate) fn done(&self) -> Result<u64> {
        let count: i64 = self.conn.query_row("SELECT count(*) FROM redrive_done", [], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }
}

/// The statements that enqueue.
struct Inserts<'c> {
    conn: &'c Connection,
    begin: Statement<'c>,
    commit: Statement<'c>,
    job: Statement<'c>,
    live: Statement<'c>,
    add: Statement<'c>,
}

impl<'c> Inserts<'c> {
    fn prepare(conn: &'c Connection) -> Result<Inserts<'c>> {
        Ok(Inserts {
            conn,
            begin: conn.prepare("BEGIN IMMEDIATE")?,
            commit: conn.prepare("COMMIT")?,
            job: conn.prepare(INSERT_JOB)?,
            live: conn.prepare(INSERT_LIVE)?,
            add: conn.prepare(ADD)?,
        })
    }

    fn insert(&mut self, row: &Row) -> Result<()> {
        let Row { id, payload, created_at, checksum } = row;
        self.job.execute(params![id, Parcel::KIND, created_at, checksum, payload])?;
        self.live.execute(params![self.conn.last_insert_rowid(), created_at, Parcel::KIND])?;
        Ok(())
    }

    fn commit(&mut self, count: u64) -> Result<()> {
        self.add.execute(params!["enqueued", i64::try_from(count)?])?;
        self.commit.execute([])?;
        Ok(())
    }
}

/// What was claimed.
struct Held {
    seq: i64,
    attempt: u32,
    id: JobId,
}

/// The statements that claim and settle.
struct Run<'c> {
    clock: Clock,
    rng: Rng,
    failures: u32,
    /// Of every failure, since all say the same.
    fingerprint: String,
    /// What was claimed last.
    claim: String,
    news: BTreeMap<&'static str, i64>,
    begin: Statement<'c>,
    commit: Statement<'c>,
    due: Statement<'c>,
    claim_batch: Statement<'c>,
    unclaim: Statement<'c>,
    finish: Statement<'c>,
    done: Statement<'c>,
    wait: Statement<'c>,
    attempt: Statement<'c>,
    note: Statement<'c>,
    trim: Statement<'c>,
    add: Statement<'c>,
}

impl<'c> Run<'c> {
    fn prepare(conn: &'c Connection, failures: u32) -> Result<Run<'c>> {
        Ok(Run {
            clock: Clock::system(),
            rng: Rng::from_os(),
            failures,
            fingerprint: Failure::retry(FAILURE).fingerprint(Parcel::KIND),
            claim: String::new(),
            news: BTreeMap::new(),
            begin: conn.prepare("BEGIN IMMEDIATE")?,
            commit: conn.prepare("COMMIT")?,
            due: conn.prepare(DUE)?,
            claim_batch: conn.prepare(CLAIM)?,
            unclaim: conn.prepare(UNCLAIM)?,
            finish: conn.prepare(FINISH)?,
            done: conn.prepare(DONE)?,
            wait: conn.prepare(WAIT)?,
            attempt: conn.prepare(ATTEMPT)?,
            note: conn.prepare(NOTE)?,
            trim: conn.prepare(TRIM)?,
            add: conn.prepare(ADD)?,
        })
    }

    /// Takes what is due: verified, decoded, and listed in one row.
    fn claim(&mut self, held: &mut Vec<Held>, batch: usize, now: i64) -> Result<()> {
        let mut listed = String::from("[");
        let mut rows = self.due.query(params![now, i64::try_from(batch)?])?;
        while let Some(row) = rows.next()? {
            let (seq, attempt) = (row.get(0)?, row.get(1)?);
            let id: JobId = row.get_ref(2)?.as_str()?.parse().map_err(anyhow::Error::msg)?;
            let payload = row.get_ref(6)?.as_str()?;
            let intact = checksum(id, row.get_ref(3)?.as_str()?, payload, row.get(4)?);
            ensure!(intact == row.get::<_, u32>(5)?, "row {seq} is not what was written");
            // The handler, which does nothing with it.
            std::hint::black_box(serde_json::from_str::<Parcel>(payload)?);
            let comma = if listed.len() > 1 { "," } else { "" };
            write!(listed, "{comma}[{seq},{attempt}]")?;
            held.push(Held { seq, attempt, id });
        }
        drop(rows);
        listed.push(']');
        if !held.is_empty() {
            self.claim = format!("{:032x}", self.rng.next_u128());
            self.claim_batch.execute(params![self.claim, HOLDER, now, listed])?;
        }
        Ok(())
    }

    /// Writes what the attempts came to.
    fn settle(&mut self, held: &mut Vec<Held>, now: i64) -> Result<()> {
        if held.is_empty() {
            return Ok(());
        }
        self.unclaim.execute([&self.claim])?;
        let (mut failed, mut succeeded) = (0, 0);
        for Held { seq, attempt, id } in held.drain(..) {
            let number = attempt + 1;
            if attempt < self.failures {
                failed += 1;
                ensure!(self.wait.execute(params![seq, attempt, now])? == 1, "row {seq} has moved");
                let failure = serde_json::to_string(&Failure::retry(FAILURE))?;
                self.attempt.execute(params![seq, number, now, failure, self.fingerprint])?;
            } else {
                succeeded += 1;
                ensure!(self.finish.execute(params![seq, attempt])? == 1, "row {seq} has moved");
                self.done.execute(params![seq, now, number, attempt])?;
                if attempt > 0 {
                    let message = format!("finished at run {number}, after {attempt} failures");
                    self.note.execute(params![now, id.to_string(), Parcel::KIND, DEFAULT_QUEUE, message])?;
                }
            }
        }
        if self.failures > 0 && succeeded > 0 {
            self.trim.execute([ACTIVITY_MAX])?;
            self.news.insert("recovered", succeeded);
        }
        for name in ["failures", "retries", "retries_immediate"] {
            self.news.insert(name, failed);
        }
        self.news.insert("succeeded", succeeded);
        Ok(())
    }

    /// The counters of this transaction.
    fn count(&mut self) -> Result<()> {
        for (name, value) in std::mem::take(&mut self.news) {
            if value > 0 {
                self.add.execute(params![name, value])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload;
    use super::*;

    /// What both must leave behind: every column of every table, but for ids and times, which differ in each run.
    const TABLES: [&str; 7] = [
        "SELECT seq, kind, queue, priority, policy, external, unique_key, ordering_key, destination, parent, labels,
                deadline, start_by, timeout_ms, revived_at, payload, length(id) FROM redrive_jobs ORDER BY seq",
        "SELECT seq, queue, priority, held, attempt, failures, crashes, snoozes, holds, interruptions, generation,
                reason, last_delay_ms, expires_at, ordering_key, kind FROM redrive_live ORDER BY seq",
        "SELECT seq, state, why, attempt, failures, crashes, snoozes, holds, interruptions, generation, fingerprint,
                output, started_at IS NULL FROM redrive_done ORDER BY seq",
        "SELECT seq, attempt, ending, failure, fingerprint, rule, next_at IS NULL FROM redrive_attempts
         ORDER BY seq, attempt",
        "SELECT count(*) FROM redrive_claims",
        "SELECT queue, name, value FROM redrive_stats ORDER BY queue, name",
        "SELECT what, kind, queue, message, length(job) FROM redrive_activity ORDER BY n",
    ];

    fn rows(conn: &Connection, sql: &str) -> Vec<String> {
        let mut statement = conn.prepare(sql).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            (0..columns)
                .map(|column| row.get(column))
                .collect::<rusqlite::Result<Vec<rusqlite::types::Value>>>()
        };
        statement.query_map([], row).unwrap().map(|row| format!("{:?}", row.unwrap())).collect()
    }

    #[tokio::test]
    async fn the_hand_written_loop_leaves_the_same_rows_as_the_engine() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, by_hand] = ["ours.db", "by_hand.db"].map(|name| folder.path().join(name));
        let store = crate::cli::StoreUrl::Sqlite(ours.clone());
        let engine = workload::engine(&store, 8, workload::fails(2)).await.unwrap();
        workload::enqueue_bulk(&engine, 3).await.unwrap();
        let limit = Limit::open(&by_hand).unwrap();
        limit.enqueue(3, workload::BULK).unwrap();
        let opened = Connection::open(&ours).unwrap();
        for sql in TABLES {
            assert_eq!(rows(&opened, sql), rows(&limit.conn, sql), "after enqueueing: {sql}");
        }

        engine.drain().await.unwrap();
        assert_eq!(limit.drain(8, 2).unwrap(), 9);

        for sql in TABLES {
            assert_eq!(rows(&opened, sql), rows(&limit.conn, sql), "after draining: {sql}");
        }
        assert_eq!(limit.done().unwrap(), 3);
    }

    #[test]
    fn the_hand_written_loop_is_as_durable_as_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let limit = Limit::open(&folder.path().join("by_hand.db")).unwrap();
        let setting = |name: &str| -> String {
            let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
            format!("{:?}", limit.conn.query_row(&format!("PRAGMA {name}"), [], value).unwrap())
        };
        assert_eq!(setting("journal_mode"), "Text(\"wal\")");
        assert_eq!(setting("synchronous"), "Integer(2)");
        assert_eq!(setting("wal_autocheckpoint"), "Integer(4000)");
    }
}
