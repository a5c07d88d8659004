//! Jobs come in.

use rusqlite::{Connection, OptionalExtension, params};

use super::codec::{Names, as_millis};
use super::core::Core;
use super::{Fault, operations, settle};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::job::{Job, JobId, Ledger, OnConflict, Reason, State};
use crate::machine::Admission;
use crate::policy::Origin;
use crate::store::{
    Call, Enqueued, How, call_differs, coming, key_running, key_taken, queue_full, refuse_tied, replaced,
};

impl Core {
    pub(super) fn enqueue(&mut self, jobs: &[Admission]) -> Result<Vec<Enqueued>, Fault> {
        // Whatever can be refused is refused before the first write, so that a refusal leaves no trace.
        self.refuse_beyond_capacity(jobs)?;
        self.refuse_conflicts(jobs)?;
        self.at = jobs.iter().map(|admission| admission.job.created_at).fold(self.at, Timestamp::max);
        let mut answers = Vec::with_capacity(jobs.len());
        for run in jobs.chunk_by(|a, b| is_plain(a) == is_plain(b)) {
            if is_plain(&run[0]) {
                self.enqueue_plain(run, &mut answers)?;
            } else {
                for admission in run {
                    answers.push(self.enqueue_one(admission)?);
                }
            }
        }
        self.tie(jobs, &answers)?;
        Ok(answers)
    }

    /// The second time under the same key, what was answered the first time.
    pub(super) fn enqueue_once(
        &mut self,
        call: &Call,
        jobs: &[Admission],
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, Fault> {
        let before: Option<(String, String)> = self
            .conn
            .prepare_cached(include_str!("call.sql"))?
            .query_row([&call.key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((digest, answer)) = before {
            if digest != call.digest {
                return Err(call_differs(&call.key).into());
            }
            return serde_json::from_str(&answer).map_err(|_| {
                let message = format!("the answer to the call {:?} is not what was written", call.key);
                Error::new(ErrorKind::Corrupt, message).into()
            });
        }
        let answers = self.enqueue(jobs)?;
        let answer = serde_json::to_string(&answers).expect("an answer can be written");
        let mut insert = self.conn.prepare_cached(include_str!("call_insert.sql"))?;
        insert.execute(params![call.key, call.digest, answer, now.as_millis()])?;
        Ok(answers)
    }

    /// The same as [`Core::enqueue_one`] for jobs without anything special, with the statements looked up once.
    fn enqueue_plain(&mut self, jobs: &[Admission], answers: &mut Vec<Enqueued>) -> Result<(), Fault> {
        let ids: Vec<(i64, i64)> = jobs
            .iter()
            .map(|Admission { job, .. }| {
                Ok((self.queue_id(&job.queue)?, self.names.policy_id(&self.conn, &job.policy)?))
            })
            .collect::<Result<_, Fault>>()?;
        let Core { conn, queues, .. } = self;
        let mut insert_job = conn.prepare_cached(include_str!("enqueue_plain_job.sql"))?;
        let mut insert_live = conn.prepare_cached(include_str!("enqueue_plain_live.sql"))?;
        for (Admission { job, author, .. }, (queue, policy)) in jobs.iter().zip(ids) {
            let changed = insert_job.execute(params![
                job.id.encode(&mut [0; 36]),
                &*job.kind,
                queue,
                job.priority,
                policy,
                job.created_at.as_millis(),
                job.checksum(),
                job.payload.as_str(),
                author.as_deref(),
            ])?;
            if changed == 0 {
                answers.push(Enqueued { id: job.id, how: How::Existing });
                continue;
            }
            let (seq, due_at) = (conn.last_insert_rowid(), job.due_at().as_millis());
            insert_live.execute(params![seq, queue, job.priority, due_at, &*job.kind])?;
            let state = queues.entry(queue).or_default();
            state.news.enqueued += 1;
            state.admit(job.priority, due_at, seq);
            answers.push(Enqueued { id: job.id, how: How::Created });
        }
        drop((insert_job, insert_live));
        for run in jobs.chunk_by(|a, b| a.job.kind == b.job.kind) {
            self.wake_for(&run[0].job.kind);
        }
        Ok(())
    }

    fn refuse_beyond_capacity(&self, jobs: &[Admission]) -> Result<(), Fault> {
        for (queue, (capacity, coming)) in coming(jobs) {
            let live =
                self.queue_ids.get(queue).and_then(|id| self.queues.get(id)).map_or(0, |queue| queue.live());
            if live + coming <= capacity {
                continue;
            }
            // What is there already takes no place twice.
            let new = jobs.iter().filter(|other| other.job.queue == *queue);
            let new =
                new.map(|other| Ok(u64::from(!self.is_known(other.job.id)?))).sum::<Result<u64, Fault>>()?;
            if new > 0 && live + new > capacity {
                return Err(queue_full(queue, capacity).into());
            }
        }
        Ok(())
    }

    fn refuse_conflicts(&mut self, jobs: &[Admission]) -> Result<(), Fault> {
        let mut seen = std::collections::HashSet::new();
        for admission in jobs {
            let Some(key) = admission.job.extras().key.as_deref() else { continue };
            let twice = !seen.insert(key);
            let refusal = match admission.on_conflict {
                OnConflict::Reject if twice || key_holder(&self.conn, key)?.is_some() => key_taken(key),
                OnConflict::Replace if self.runs_with_key(key)? => key_running(key),
                _ => continue,
            };
            if !self.is_known(admission.job.id)? {
                return Err(refusal.into());
            }
        }
        Ok(())
    }

    /// Whether a job with this id was taken before: the same one is sent again because the first answer was lost.
    fn is_known(&self, id: JobId) -> Result<bool, Fault> {
        let mut statement = self.conn.prepare_cached(include_str!("job_known.sql"))?;
        Ok(statement.exists([id.encode(&mut [0; 36])])?)
    }

    fn runs_with_key(&self, key: &str) -> Result<bool, Fault> {
        let holder = key_holder(&self.conn, key)?;
        Ok(holder.is_some_and(|(seq, _)| self.run_of(seq).is_some()))
    }

    fn enqueue_one(&mut self, admission: &Admission) -> Result<Enqueued, Fault> {
        let Admission { job, on_conflict, history, author, .. } = admission;
        if let Some(key) = job.extras().key.as_deref()
            && let Some((seq, id)) = key_holder(&self.conn, key)?
        {
            if self.is_known(job.id)? {
                return Ok(Enqueued { id: job.id, how: How::Existing });
            }
            if *on_conflict == OnConflict::Replace {
                self.replace(seq, job)?;
                put_author(&self.conn, seq, author.as_deref())?;
                return Ok(Enqueued { id, how: How::Replaced });
            }
            return Ok(Enqueued { id, how: How::Existing });
        }
        let queue = self.queue_id(&job.queue)?;
        let policy = self.names.policy_id(&self.conn, &job.policy)?;
        let Some(seq) = insert_job(&self.conn, job, queue, policy)? else {
            return Ok(Enqueued { id: job.id, how: How::Existing });
        };
        let due_at = insert_live(&self.conn, job, queue, seq)?;
        if let Some(key) = job.extras().key.as_deref() {
            self.conn.prepare_cached(include_str!("enqueue_key.sql"))?.execute(params![key, seq])?;
        }
        if author.is_some() {
            put_author(&self.conn, seq, author.as_deref())?;
        }
        for record in history {
            settle::insert_attempt(&self.conn, seq, record)?;
        }
        let state = self.queue(queue);
        state.news.enqueued += 1;
        state.admit(job.priority, due_at, seq);
        self.woke = true;
        Ok(Enqueued { id: job.id, how: How::Created })
    }

    /// New content in the place of a job that waits.
    fn replace(&mut self, seq: i64, new: &Job) -> Result<(), Fault> {
        let old = self.load(seq)?;
        let new = replaced(&old, new.clone());
        let (old_queue, queue) = (self.queue_id(&old.queue)?, self.queue_id(&new.queue)?);
        let policy = self.names.policy_id(&self.conn, &new.policy)?;
        write_job(&self.conn, include_str!("replace_job.sql"), &new, queue, policy)?;
        self.conn
            .prepare_cached(include_str!("settle_delete.sql"))?
            .execute(params![seq, old.ledger.attempt])?;
        self.queue(old_queue).bands.entry(old.priority).or_default().live -= 1;
        self.let_next_go(old_queue, old.extras().ordering_key.as_deref())?;
        self.insert_live_again(&new, queue)
    }

    /// Puts a job that is known already among the live ones.
    pub(super) fn insert_live_again(&mut self, job: &Job, queue: i64) -> Result<(), Fault> {
        let due_at = insert_live(&self.conn, job, queue, job.seq)?;
        self.queue(queue).admit(job.priority, due_at, job.seq);
        self.woke = true;
        Ok(())
    }
}

/// Nothing special about it: its rows are the shortest ones.
fn is_plain(admission: &Admission) -> bool {
    let job = &admission.job;
    job.extras.is_none()
        && admission.history.is_empty()
        && job.origin == Origin::Engine
        && job.ledger == Ledger::default()
        && matches!(job.state, State::Waiting { reason: Reason::Scheduled, .. })
}

/// Who has this key.
pub(super) fn key_holder(conn: &Connection, key: &str) -> Result<Option<(i64, JobId)>, Fault> {
    let mut statement = conn.prepare_cached(include_str!("key_holder.sql"))?;
    let found = statement.query_row([key], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).optional()?;
    Ok(found.and_then(|(seq, id)| Some((seq, id.parse().ok()?))))
}

/// The row of what a job is; `None` if it is there already.
fn insert_job(conn: &Connection, job: &Job, queue: i64, policy: i64) -> Result<Option<i64>, Fault> {
    let changed = write_job(conn, include_str!("enqueue_job.sql"), job, queue, policy)?;
    Ok((changed == 1).then(|| conn.last_insert_rowid()))
}

fn put_author(conn: &Connection, seq: i64, author: Option<&str>) -> Result<(), Fault> {
    conn.prepare_cached(include_str!("author_put.sql"))?.execute(params![seq, author])?;
    Ok(())
}

pub(super) fn write_job(
    conn: &Connection,
    sql: &str,
    job: &Job,
    queue: i64,
    policy: i64,
) -> Result<usize, Fault> {
    let extras = job.extras();
    let labels = (!extras.labels.is_empty())
        .then(|| serde_json::to_string(&extras.labels).expect("a map of strings can be written"));
    let changed = conn.prepare_cached(sql)?.execute(params![
        job.id.encode(&mut [0; 36]),
        &*job.kind,
        queue,
        job.priority,
        policy,
        job.created_at.as_millis(),
        job.checksum(),
        job.origin == Origin::External,
        extras.key.as_deref(),
        extras.ordering_key.as_deref(),
        extras.destination.as_deref(),
        extras.parent.map(|parent| parent.to_string()),
        labels,
        extras.deadline.map(Timestamp::as_millis),
        extras.start_by.map(Timestamp::as_millis),
        extras.timeout.map(as_millis),
        extras.revived_at.map(Timestamp::as_millis),
        job.payload.as_str(),
    ])?;
    Ok(changed)
}

/// The row of where a job stands; answers when it is due.
fn insert_live(conn: &Connection, job: &Job, queue: i64, seq: i64) -> Result<i64, Fault> {
    let State::Waiting { due_at, reason } = job.state else {
        unreachable!("what is admitted or brought back waits");
    };
    let (ledger, extras) = (&job.ledger, job.extras());
    conn.prepare_cached(include_str!("enqueue_live.sql"))?.execute(params![
        seq,
        queue,
        job.priority,
        due_at.as_millis(),
        ledger.attempt,
        ledger.failures,
        ledger.crashes,
        ledger.snoozes,
        ledger.holds,
        ledger.interruptions,
        ledger.generation,
        // The most common reason is the absence of one: a shorter row.
        (reason != Reason::Scheduled).then(|| reason.as_str()),
        extras.last_delay.map(as_millis),
        job.buried_at().map(Timestamp::as_millis),
        extras.ordering_key.as_deref(),
        extras.destination.as_deref(),
        &*job.kind,
    ])?;
    Ok(due_at.as_millis())
}

/// Enqueues inside a transaction of someone else's connection: the rows are written, and nothing is kept in memory.
pub(crate) fn enqueue_outside(conn: &Connection, admission: &Admission) -> Result<Enqueued, Error> {
    try_enqueue_outside(conn, admission).map_err(Fault::into_error)
}

fn try_enqueue_outside(conn: &Connection, admission: &Admission) -> Result<Enqueued, Fault> {
    let Admission { job, on_conflict, capacity, history, author, .. } = admission;
    refuse_tied(admission)?;
    let name: &str = &job.queue;
    conn.prepare_cached(include_str!("queue_insert.sql"))?.execute([name])?;
    let queue: i64 =
        conn.prepare_cached(include_str!("queue_id.sql"))?.query_row([name], |row| row.get(0))?;
    if let Some(capacity) = capacity {
        let live: i64 = conn
            .prepare_cached("SELECT count(*) FROM redrive_live WHERE queue = ?1")?
            .query_row([queue], |row| row.get(0))?;
        if u64::try_from(live).unwrap_or(0) >= *capacity {
            return Err(queue_full(name, *capacity).into());
        }
    }
    if let Some(key) = job.extras().key.as_deref()
        && let Some((_, id)) = key_holder(conn, key)?
    {
        return match on_conflict {
            OnConflict::Ignore => Ok(Enqueued { id, how: How::Existing }),
            // Whether it runs is known to the engine alone.
            OnConflict::Reject | OnConflict::Replace => Err(key_taken(key).into()),
        };
    }
    let policy = Names::default().policy_id(conn, &job.policy)?;
    let Some(seq) = insert_job(conn, job, queue, policy)? else {
        return Ok(Enqueued { id: job.id, how: How::Existing });
    };
    insert_live(conn, job, queue, seq)?;
    if let Some(key) = job.extras().key.as_deref() {
        conn.prepare_cached(include_str!("enqueue_key.sql"))?.execute(params![key, seq])?;
    }
    if author.is_some() {
        put_author(conn, seq, author.as_deref())?;
    }
    for record in history {
        settle::insert_attempt(conn, seq, record)?;
    }
    conn.prepare_cached(include_str!("stats_add.sql"))?.execute(params![queue, "enqueued", 1])?;
    operations::count_minute(conn, job.created_at, [1, 0, 0, 0])?;
    Ok(Enqueued { id: job.id, how: How::Created })
}
