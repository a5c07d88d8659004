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

/// The columns that say where a job stands, as [`Standing::read`] expects them.
pub(super) const STANDING: &str = "live.seq, live.due_at, live.attempt, live.failures, live.crashes, live.snoozes, \
    live.holds, live.interruptions, live.generation, live.reason, live.last_delay_ms, live.held, live.in_line_ms";
/// The columns that say what a job is, as [`Names::job`] expects them.
pub(super) const CONTENT: &str = "jobs.id, jobs.kind, jobs.queue, jobs.priority, jobs.policy, jobs.created_at, \
    jobs.checksum, jobs.external, jobs.unique_key, jobs.ordering_key, jobs.destination, jobs.parent, jobs.labels, \
    jobs.deadline, jobs.start_by, jobs.timeout_ms, jobs.revived_at, jobs.payload";

/// Where a job stands that is not final.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    pub(super) seq: i64,
    pub(super) due_at: i64,
    pub(super) ledger: Ledger,
    reason: Reason,
    last_delay: Option<Duration>,
    in_line_ms: i64,
}

impl Standing {
    /// From the first thirteen columns.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Standing> {
        let reason = match row.get::<_, i64>(11)? {
            0 => {
                let word = row.get_ref(9)?.as_str_or_null().ok().flatten();
                word.and_then(Reason::parse).unwrap_or(Reason::Scheduled)
            }
            1 => Reason::Order,
            _ => Reason::Held,
        };
        Ok(Standing {
            seq: row.get(0)?,
            due_at: row.get(1)?,
            ledger: Ledger {
                attempt: row.get(2)?,
                failures: row.get(3)?,
                crashes: row.get(4)?,
                snoozes: row.get(5)?,
                holds: row.get(6)?,
                interruptions: row.get(7)?,
                generation: row.get(8)?,
            },
            reason,
            last_delay: row.get::<_, Option<i64>>(10)?.map(millis),
            in_line_ms: row.get::<_, Option<i64>>(12)?.unwrap_or(0),
        })
    }

    /// It has left the line of its destination.
    pub(super) fn leave_line(&mut self, now: Timestamp) {
        self.in_line_ms += (now.as_millis() - self.due_at).max(0);
    }
}

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

    /// Reads what a job is from the columns at `from`; `None` if the row is not what was written.
    pub(super) fn job(
        &mut self,
        conn: &Connection,
        row: &Row<'_>,
        from: usize,
        standing: Standing,
    ) -> Result<Option<Job>, Fault> {
        let Some(policy) = self.policy(conn, row.get(from + 4)?)? else { return Ok(None) };
        let Ok(id) = row.get_ref(from)?.as_str().unwrap_or_default().parse::<JobId>() else {
            return Ok(None);
        };
        let Ok(kind) = row.get_ref(from + 1)?.as_str() else { return Ok(None) };
        let Ok(payload) = row.get_ref(from + 17)?.as_str() else { return Ok(None) };
        let Some(mut extras) = extras(row, from + 8)? else { return Ok(None) };
        (extras.last_delay, extras.in_line) = (standing.last_delay, millis(standing.in_line_ms));
        let job = Job {
            id,
            seq: standing.seq,
            kind: self.kind(kind),
            queue: self.queue(conn, row.get(from + 2)?)?,
            priority: row.get(from + 3)?,
            payload: Json::trusted(payload),
            policy,
            origin: if row.get(from + 7)? { Origin::External } else { Origin::Engine },
            ledger: standing.ledger,
            state: State::Waiting {
                due_at: Timestamp::from_millis(standing.due_at),
                reason: standing.reason,
            },
            created_at: Timestamp::from_millis(row.get(from + 5)?),
            extras: (extras != Extras::default()).then(|| Box::new(extras)),
        };
        let intact = i64::from(job.checksum()) == row.get::<_, i64>(from + 6)?;
        Ok(intact.then_some(job))
    }
}

/// What is rarely set, from nine columns; `None` if the row cannot be what was written.
fn extras(row: &Row<'_>, from: usize) -> Result<Option<Extras>, Fault> {
    let text = |index| -> rusqlite::Result<Option<Arc<str>>> {
        Ok(row.get_ref(index)?.as_str_or_null().ok().flatten().map(Into::into))
    };
    let number = |index| row.get::<_, Option<i64>>(index);
    let parent = text(from + 3)?.map(|id| id.parse::<JobId>()).transpose();
    let labels =
        text(from + 4)?.map(|json| serde_json::from_str::<BTreeMap<String, String>>(&json)).transpose();
    let (Ok(parent), Ok(labels)) = (parent, labels) else { return Ok(None) };
    Ok(Some(Extras {
        key: text(from)?,
        ordering_key: text(from + 1)?,
        destination: text(from + 2)?,
        parent,
        labels: labels.unwrap_or_default(),
        deadline: number(from + 5)?.map(Timestamp::from_millis),
        start_by: number(from + 6)?.map(Timestamp::from_millis),
        timeout: number(from + 7)?.map(millis),
        revived_at: number(from + 8)?.map(Timestamp::from_millis),
        last_delay: None,
        in_line: Duration::ZERO,
    }))
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
