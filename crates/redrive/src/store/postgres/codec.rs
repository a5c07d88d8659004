//! Rows to jobs and back: names, policies and columns. No decisions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::database::Database;
use super::fault::Fault;
use crate::clock::Timestamp;
use crate::job::{AttemptRecord, Extras, Job, JobId, Json, Ledger, Reason, State};
use crate::policy::{GiveUp, Origin, Policy};
use crate::stats::{Activity, Tally};

/// The form in which policies are written. A reader refuses what it does not know.
pub(super) const POLICY_VERSION: i32 = 1;
/// Names and policies are few; whoever makes up thousands pays for looking them up.
const CACHE_MAX: usize = 4_096;

/// Names, policies and bands that were met before: none of them ever changes.
#[derive(Default)]
pub(super) struct Names(Mutex<Known>);

#[derive(Default)]
struct Known {
    kinds: HashMap<Box<str>, Arc<str>>,
    queues: HashMap<i32, Arc<str>>,
    queue_ids: HashMap<Arc<str>, i32>,
    announced: BTreeSet<Arc<str>>,
    bands: BTreeMap<(i32, i16), ()>,
    policies: HashMap<i32, Arc<Policy>>,
    /// By address, which is safe to compare because the policy is kept alive here.
    policy_ids: HashMap<usize, (Arc<Policy>, i32)>,
    /// The same by what they say: a job that brings its own policy brings another address each time.
    policy_bodies: HashMap<String, i32>,
}

impl Names {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a queue, which is made known if it is new.
    pub(super) async fn queue_id(&self, database: &Database, name: &Arc<str>) -> Result<i32, Fault> {
        if let Some(id) = self.known().queue_ids.get(name) {
            return Ok(*id);
        }
        let rows = database.query("SELECT redrive.queue_id($1)", &[(&&**name, Type::TEXT)]).await?;
        let id: i32 = only(&rows)?.try_get(0)?;
        let mut known = self.known();
        known.queue_ids.insert(name.clone(), id);
        known.queues.insert(id, name.clone());
        Ok(id)
    }

    /// Makes a queue known that this process serves, once and without waiting for anyone: so that nobody who enqueues
    /// there has to wait for another whose open transaction was the first to name it.
    pub(super) async fn announce(&self, database: &Database, name: &Arc<str>) -> Result<(), Fault> {
        if self.known().announced.contains(name) {
            return Ok(());
        }
        database.query("SELECT redrive.know_queue($1)", &[(&&**name, Type::TEXT)]).await?;
        self.known().announced.insert(name.clone());
        Ok(())
    }

    /// Makes a priority of a queue known, so that claims look there.
    pub(super) async fn band(&self, database: &Database, queue: i32, priority: i16) -> Result<(), Fault> {
        if self.known().bands.contains_key(&(queue, priority)) {
            return Ok(());
        }
        let know = "SELECT redrive.know_band($1, $2)";
        database.query(know, &[(&queue, Type::INT4), (&priority, Type::INT2)]).await?;
        self.known().bands.insert((queue, priority), ());
        Ok(())
    }

    /// The number under which a policy is stored, storing it if it is new.
    pub(super) async fn policy_id(&self, database: &Database, policy: &Arc<Policy>) -> Result<i32, Fault> {
        let address = Arc::as_ptr(policy) as usize;
        if let Some((_, id)) = self.known().policy_ids.get(&address) {
            return Ok(*id);
        }
        let body = serde_json::to_string(&**policy).expect("a validated policy can be written");
        if let Some(id) = self.known().policy_bodies.get(&body) {
            return Ok(*id);
        }
        let rows = database
            .query("SELECT redrive.policy_id($1, $2)", &[(&POLICY_VERSION, Type::INT4), (&body, Type::TEXT)])
            .await?;
        let id: i32 = only(&rows)?.try_get(0)?;
        let mut known = self.known();
        if known.policy_ids.len() >= CACHE_MAX {
            known.policy_ids.clear();
            known.policy_bodies.clear();
        }
        known.policy_ids.insert(address, (policy.clone(), id));
        known.policy_bodies.insert(body, id);
        Ok(id)
    }

    /// Learns what rows refer to and is not known yet.
    pub(super) async fn learn(&self, database: &Database, rows: &[Row]) -> Result<(), Fault> {
        let (mut queues, mut policies) = (Vec::new(), Vec::new());
        {
            let known = self.known();
            for row in rows {
                let queue: i32 = row.try_get(column::QUEUE)?;
                if !known.queues.contains_key(&queue) {
                    queues.push(queue);
                }
                let policy: Option<i32> = row.try_get(column::POLICY)?;
                policies.extend(policy.filter(|policy| !known.policies.contains_key(policy)));
            }
        }
        if !queues.is_empty() {
            let find = "SELECT id, name FROM redrive.queues WHERE id = ANY ($1)";
            for row in database.query(find, &[(&queues, Type::INT4_ARRAY)]).await? {
                let name: Arc<str> = row.try_get::<_, &str>(1)?.into();
                self.known().queue_ids.insert(name.clone(), row.try_get(0)?);
                self.known().queues.insert(row.try_get(0)?, name);
            }
        }
        if !policies.is_empty() {
            let find = "SELECT id, version, body FROM redrive.policies WHERE id = ANY ($1)";
            for row in database.query(find, &[(&policies, Type::INT4_ARRAY)]).await? {
                let readable = row.try_get::<_, i32>(1)? == POLICY_VERSION;
                let policy = serde_json::from_str::<Policy>(row.try_get(2)?).ok().filter(|_| readable);
                let mut known = self.known();
                if known.policies.len() >= CACHE_MAX {
                    known.policies.clear();
                }
                if let Some(policy) = policy {
                    known.policies.insert(row.try_get(0)?, Arc::new(policy));
                }
            }
        }
        Ok(())
    }

    /// Reads a job that waits from a row with the columns of [`column`]; `None` if it is not what was written.
    pub(super) fn job(&self, row: &Row) -> Result<Option<Job>, Fault> {
        let mut known = self.known();
        let (Some(kind), Some(policy), Some(payload)) = (
            row.try_get::<_, Option<&str>>(column::KIND)?,
            row.try_get::<_, Option<i32>>(column::POLICY)?.and_then(|id| known.policies.get(&id).cloned()),
            row.try_get::<_, Option<&str>>(column::PAYLOAD)?,
        ) else {
            return Ok(None);
        };
        let Some(queue) = known.queues.get(&row.try_get::<_, i32>(column::QUEUE)?).cloned() else {
            return Ok(None);
        };
        let rest =
            row.try_get::<_, Option<&str>>(column::REST)?.map(serde_json::from_str::<Rest>).transpose();
        let Ok(rest) = rest else { return Ok(None) };
        let external = rest.as_ref().is_some_and(|rest| rest.external);
        let mut extras = rest.map(Extras::from).unwrap_or_default();
        extras.last_delay = row.try_get::<_, Option<i64>>(column::LAST_DELAY)?.map(millis);
        extras.in_line = row.try_get::<_, Option<i64>>(column::IN_LINE)?.map(millis).unwrap_or_default();
        let word: Option<&str> = row.try_get(column::REASON)?;
        let job = Job {
            id: job_id(row.try_get(column::ID)?),
            seq: row.try_get(column::SEQ)?,
            kind: known.kind(kind),
            queue,
            priority: row.try_get(column::PRIORITY)?,
            payload: Json::trusted(payload),
            policy,
            origin: if external { Origin::External } else { Origin::Engine },
            ledger: ledger(row)?,
            state: State::Waiting {
                due_at: Timestamp::from_millis(row.try_get(column::DUE_AT)?),
                reason: word.and_then(Reason::parse).unwrap_or(Reason::Scheduled),
            },
            created_at: Timestamp::from_millis(row.try_get(column::CREATED_AT)?),
            extras: (extras != Extras::default()).then(|| Box::new(extras)),
        };
        // A job that came in by plain SQL has no checksum: nobody there could have made one.
        let checksum: Option<i64> = row.try_get(column::CHECKSUM)?;
        let intact = checksum.is_none_or(|checksum| checksum == i64::from(job.checksum()));
        Ok(intact.then_some(job))
    }
}

impl Known {
    fn kind(&mut self, kind: &str) -> Arc<str> {
        if let Some(known) = self.kinds.get(kind) {
            return known.clone();
        }
        if self.kinds.len() >= CACHE_MAX {
            self.kinds.clear();
        }
        let new: Arc<str> = kind.into();
        self.kinds.insert(kind.into(), new.clone());
        new
    }
}

/// Where the columns of a job are in every row that has one: as `redrive.claimed` gives them.
pub(super) mod column {
    pub(in super::super) const SEQ: usize = 0;
    pub(super) const DUE_AT: usize = 1;
    pub(super) const ATTEMPT: usize = 2;
    pub(in super::super) const ID: usize = 3;
    pub(in super::super) const QUEUE: usize = 4;
    pub(super) const PRIORITY: usize = 5;
    pub(super) const POLICY: usize = 6;
    pub(super) const CREATED_AT: usize = 7;
    pub(super) const CHECKSUM: usize = 8;
    pub(super) const KIND: usize = 9;
    pub(super) const PAYLOAD: usize = 10;
    pub(super) const REST: usize = 11;
    pub(super) const COUNTERS: usize = 12;
    pub(super) const REASON: usize = 13;
    pub(super) const LAST_DELAY: usize = 14;
    pub(super) const IN_LINE: usize = 15;
    /// How many there are; a list has behind them since when it runs, and the final state.
    pub(in super::super) const COUNT: usize = 16;
}

/// Counters. All but the first are zero if they are not there.
pub(super) fn ledger(row: &Row) -> Result<Ledger, Fault> {
    let number = |count: i32| u32::try_from(count).unwrap_or(0);
    let attempt = number(row.try_get(column::ATTEMPT)?);
    let Some(counters) = row.try_get::<_, Option<Vec<i32>>>(column::COUNTERS)? else {
        return Ok(Ledger { attempt, ..Ledger::default() });
    };
    let [failures, crashes, snoozes, holds, interruptions, generation] = counters[..] else {
        return Err(Fault::Foreign("a job without its counters".into()));
    };
    Ok(Ledger {
        attempt,
        failures: number(failures),
        crashes: number(crashes),
        snoozes: number(snoozes),
        holds: number(holds),
        interruptions: number(interruptions),
        generation: number(generation),
    })
}

/// What most jobs do not have, as `redrive.contents` writes it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Rest {
    key: Option<Arc<str>>,
    ordering_key: Option<Arc<str>>,
    destination: Option<Arc<str>>,
    parent: Option<JobId>,
    labels: Option<BTreeMap<String, String>>,
    deadline: Option<i64>,
    start_by: Option<i64>,
    timeout: Option<i64>,
    revived_at: Option<i64>,
    external: bool,
}

impl From<Rest> for Extras {
    fn from(rest: Rest) -> Extras {
        Extras {
            key: rest.key,
            ordering_key: rest.ordering_key,
            destination: rest.destination,
            parent: rest.parent,
            labels: rest.labels.unwrap_or_default(),
            deadline: rest.deadline.map(Timestamp::from_millis),
            start_by: rest.start_by.map(Timestamp::from_millis),
            timeout: rest.timeout.map(millis),
            revived_at: rest.revived_at.map(Timestamp::from_millis),
            last_delay: None,
            in_line: Duration::ZERO,
        }
    }
}

/// A job as `redrive.admit` and `redrive.stand` read it, with the numbers of its queue and policy; or as
/// `redrive.admit_in_transaction` does, with what they stand for.
pub(super) fn job_json(job: &Job, queue: Value, policy: Value) -> Value {
    let State::Waiting { due_at, reason } = job.state else {
        unreachable!("what is admitted or brought back waits");
    };
    let (ledger, extras) = (&job.ledger, job.extras());
    let labels = (!extras.labels.is_empty())
        .then(|| serde_json::to_string(&extras.labels).expect("a map of strings can be written"));
    let time = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
    json!({
        "id": job.id, "seq": job.seq, "queue": queue, "policy": policy, "priority": job.priority, "kind": &*job.kind,
        "created_at": job.created_at.as_millis(), "due_at": due_at.as_millis(), "checksum": job.checksum(),
        "external": job.origin == Origin::External, "payload": job.payload.as_str(), "labels": labels,
        "unique_key": extras.key.as_deref(), "ordering_key": extras.ordering_key.as_deref(),
        "destination": extras.destination.as_deref(), "parent": extras.parent,
        "deadline": time(extras.deadline), "start_by": time(extras.start_by),
        "revived_at": time(extras.revived_at), "expires_at": time(job.buried_at()),
        "timeout_ms": extras.timeout.map(as_millis), "last_delay_ms": extras.last_delay.map(as_millis),
        // The most common reason is the absence of one: a shorter row.
        "reason": (reason != Reason::Scheduled).then(|| reason.as_str()),
        "attempt": ledger.attempt, "failures": ledger.failures, "crashes": ledger.crashes,
        "snoozes": ledger.snoozes, "holds": ledger.holds, "interruptions": ledger.interruptions,
        "generation": ledger.generation,
    })
}

/// An attempt as `redrive.write_jobs` reads it.
pub(super) fn attempt_json(record: &AttemptRecord) -> Value {
    json!({
        "attempt": record.attempt, "started_at": record.started_at.as_millis(),
        "ended_at": record.ended_at.as_millis(), "next_at": record.next_at.map(Timestamp::as_millis),
        "ending": record.ending.as_str(), "rule": record.rule, "fingerprint": record.fingerprint,
        "failure": record.failure.as_ref().map(|failure| serde_json::to_string(failure).expect("a failure can be written")),
    })
}

/// A line of the activity log as `redrive.steer` reads it.
pub(super) fn note_json(note: &Activity) -> Value {
    json!({
        "at": note.at.as_millis(), "job": note.job, "what": note.what.as_str(), "kind": &*note.kind,
        "queue": &*note.queue, "message": note.message,
    })
}

/// The counters that are not zero, by name.
pub(super) fn tally_json(mut tally: Tally) -> String {
    let counts: serde_json::Map<String, Value> = tally
        .fields()
        .into_iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| (name.to_owned(), Value::from(*count)))
        .collect();
    Value::Object(counts).to_string()
}

/// How a job died, from the word.
pub(super) fn give_up(word: Option<&str>) -> GiveUp {
    word.and_then(GiveUp::parse).unwrap_or(GiveUp::Corrupt)
}

pub(super) fn job_id(id: Uuid) -> JobId {
    JobId::from_uuid(id)
}

/// The one row of an answer.
pub(super) fn only(rows: &[Row]) -> Result<&Row, Fault> {
    rows.first().ok_or_else(|| Fault::Foreign("an answer without a row".into()))
}

pub(super) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

pub(super) fn as_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn as_i32(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
