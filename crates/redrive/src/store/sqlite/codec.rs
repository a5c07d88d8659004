//! Rows to jobs and back: names, policies and columns. No decisions, and no statements that change a job.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::Fault;
use crate::clock::Timestamp;
use crate::job::{Extras, Job, JobId, Json, Ledger, Reason, State, StateName};
use crate::policy::{GiveUp, Origin, Policy};

/// The form in which policies are written. A reader refuses what it does not know.
const POLICY_VERSION: i64 = 1;
/// Names and policies are few; whoever makes up thousands pays for looking them up.
const CACHE_MAX: usize = 4_096;

/// The columns every statement that reads whole jobs selects, in this order.
pub(super) const COLUMNS: &str = "live.seq, live.due_at, live.attempt, live.failures, live.crashes, live.snoozes, \
    live.holds, live.interruptions, live.generation, live.reason, live.last_delay_ms, live.held, \
    jobs.id, jobs.kind, jobs.queue, jobs.priority, jobs.policy, jobs.created_at, jobs.checksum, jobs.external, \
    jobs.unique_key, jobs.ordering_key, jobs.destination, jobs.parent, jobs.labels, jobs.deadline, jobs.start_by, \
    jobs.timeout_ms, jobs.revived_at, jobs.payload";

/// Names and policies that were met before, so that a row costs no allocation for them.
#[derive(Default)]
pub(super) struct Names {
    kinds: HashMap<Box<str>, Arc<str>>,
    queues: HashMap<i64, Arc<str>>,
    policies: HashMap<i64, Arc<Policy>>,
    /// By address, which is safe to compare because the policy is kept alive here.
    policy_ids: HashMap<usize, (Arc<Policy>, i64)>,
}

impl Names {
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

    fn queue(&mut self, conn: &Connection, id: i64) -> Result<Arc<str>, Fault> {
        if let Some(known) = self.queues.get(&id) {
            return Ok(known.clone());
        }
        let name: String = conn
            .prepare_cached("SELECT name FROM redrive_queues WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        let name: Arc<str> = name.into();
        self.queues.insert(id, name.clone());
        Ok(name)
    }

    fn policy(&mut self, conn: &Connection, id: i64) -> Result<Option<Arc<Policy>>, Fault> {
        if let Some(known) = self.policies.get(&id) {
            return Ok(Some(known.clone()));
        }
        let found: Option<(i64, String)> = conn
            .prepare_cached(include_str!("policy_body.sql"))?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let readable = found.filter(|(version, _)| *version == POLICY_VERSION);
        let Some(policy) = readable.and_then(|(_, body)| serde_json::from_str::<Policy>(&body).ok()) else {
            return Ok(None);
        };
        if self.policies.len() >= CACHE_MAX {
            self.policies.clear();
        }
        let policy = Arc::new(policy);
        self.policies.insert(id, policy.clone());
        Ok(Some(policy))
    }

    /// The id under which a policy is stored, storing it if it is new.
    pub(super) fn policy_id(&mut self, conn: &Connection, policy: &Arc<Policy>) -> Result<i64, Fault> {
        let address = Arc::as_ptr(policy) as usize;
        if let Some((_, id)) = self.policy_ids.get(&address) {
            return Ok(*id);
        }
        let body = serde_json::to_string(&**policy).expect("a validated policy can be written");
        conn.prepare_cached(include_str!("policy_insert.sql"))?.execute(params![POLICY_VERSION, body])?;
        let id = conn.prepare_cached(include_str!("policy_id.sql"))?.query_row([&body], |row| row.get(0))?;
        if self.policy_ids.len() >= CACHE_MAX {
            self.policy_ids.clear();
        }
        self.policy_ids.insert(address, (policy.clone(), id));
        Ok(id)
    }

    /// Reads a job, or says that the row is not what was written.
    pub(super) fn job(&mut self, conn: &Connection, row: &Row<'_>) -> Result<Option<Job>, Fault> {
        let Some(policy) = self.policy(conn, row.get(16)?)? else { return Ok(None) };
        let Ok(id) = row.get_ref(12)?.as_str().unwrap_or_default().parse::<JobId>() else { return Ok(None) };
        let Ok(payload) = row.get_ref(29)?.as_str() else { return Ok(None) };
        let Ok(kind) = row.get_ref(13)?.as_str() else { return Ok(None) };
        let Some(extras) = extras(row)? else { return Ok(None) };
        let job = Job {
            id,
            seq: row.get(0)?,
            kind: self.kind(kind),
            queue: self.queue(conn, row.get(14)?)?,
            priority: row.get(15)?,
            payload: Json::trusted(payload),
            policy,
            origin: if row.get(19)? { Origin::External } else { Origin::Engine },
            ledger: ledger(row, 2)?,
            state: State::Waiting { due_at: Timestamp::from_millis(row.get(1)?), reason: reason(row)? },
            created_at: Timestamp::from_millis(row.get(17)?),
            extras: extras.map(Box::new),
        };
        let intact = i64::from(job.checksum()) == row.get::<_, i64>(18)?;
        Ok(intact.then_some(job))
    }
}

/// Seven counters from the column on.
pub(super) fn ledger(row: &Row<'_>, from: usize) -> rusqlite::Result<Ledger> {
    Ok(Ledger {
        attempt: row.get(from)?,
        failures: row.get(from + 1)?,
        crashes: row.get(from + 2)?,
        snoozes: row.get(from + 3)?,
        holds: row.get(from + 4)?,
        interruptions: row.get(from + 5)?,
        generation: row.get(from + 6)?,
    })
}

fn reason(row: &Row<'_>) -> rusqlite::Result<Reason> {
    if row.get::<_, i64>(11)? != 0 {
        return Ok(Reason::Order);
    }
    let word = row.get_ref(9)?;
    Ok(word.as_str_or_null().ok().flatten().and_then(Reason::parse).unwrap_or(Reason::Scheduled))
}

/// `None` if the row cannot be what was written; `Some(None)` for the many jobs that have nothing special.
fn extras(row: &Row<'_>) -> Result<Option<Option<Extras>>, Fault> {
    let text = |index| -> rusqlite::Result<Option<Arc<str>>> {
        Ok(row.get_ref(index)?.as_str_or_null().ok().flatten().map(Into::into))
    };
    let time = |index| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_millis))
    };
    let parent = text(23)?.map(|id| id.parse::<JobId>()).transpose();
    let labels = text(24)?.map(|json| serde_json::from_str::<BTreeMap<String, String>>(&json)).transpose();
    let (Ok(parent), Ok(labels)) = (parent, labels) else { return Ok(None) };
    let extras = Extras {
        key: text(20)?,
        ordering_key: text(21)?,
        destination: text(22)?,
        parent,
        labels: labels.unwrap_or_default(),
        deadline: time(25)?,
        start_by: time(26)?,
        timeout: row.get::<_, Option<i64>>(27)?.map(millis),
        last_delay: row.get::<_, Option<i64>>(10)?.map(millis),
        revived_at: time(28)?,
    };
    Ok(Some((extras != Extras::default()).then_some(extras)))
}

/// The state of a job that is final, from `state, why, finished_at` at the column on.
pub(super) fn final_state(row: &Row<'_>, from: usize) -> rusqlite::Result<Option<State>> {
    let Some(word) = row.get_ref(from)?.as_str_or_null().ok().flatten() else { return Ok(None) };
    let at = Timestamp::from_millis(row.get(from + 2)?);
    Ok(match word {
        "succeeded" => Some(State::Succeeded { at }),
        "cancelled" => Some(State::Cancelled { at }),
        _ => {
            let why = row.get_ref(from + 1)?.as_str_or_null().ok().flatten().and_then(GiveUp::parse);
            Some(State::Dead { at, why: why.unwrap_or(GiveUp::Corrupt) })
        }
    })
}

/// `state, why, finished_at` of a final state.
pub(super) fn final_columns(state: &State) -> Option<(&'static str, Option<&'static str>, i64)> {
    let (why, at) = match state {
        State::Succeeded { at } | State::Cancelled { at } => (None, at),
        State::Dead { at, why } => (Some(why.as_str()), at),
        State::Waiting { .. } | State::Running { .. } => return None,
    };
    Some((StateName::as_str(state.name()), why, at.as_millis()))
}

pub(super) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

pub(super) fn as_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Ids of claims and holders are written as 32 hexadecimal digits.
pub(super) fn hex(id: u128) -> String {
    format!("{id:032x}")
}

pub(super) fn unhex(text: &str) -> u128 {
    u128::from_str_radix(text, 16).unwrap_or(0)
}
