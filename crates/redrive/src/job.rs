//! The nouns: a job, its payload, its ledger, its state, and the ways to ask for one. Nothing in here acts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::{Rng, Timestamp};
use crate::outcome::Failure;
use crate::policy::{GiveUp, Origin, Policy};

/// A job's name for life: a UUIDv7, so that ids sort by the time they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(Uuid);

impl JobId {
    /// A new id. `count` orders ids made in the same millisecond.
    pub fn new(now: Timestamp, count: u16, rng: &mut Rng) -> JobId {
        let mut bytes = [0u8; 10];
        bytes[..2].copy_from_slice(&(count & 0x0fff).to_be_bytes());
        bytes[2..].copy_from_slice(&rng.next_u64().to_be_bytes());
        let ms = u64::try_from(now.as_millis()).unwrap_or(0);
        JobId(uuid::Builder::from_unix_timestamp_millis(ms, &bytes).into_uuid())
    }

    /// The id as 128 bits.
    pub fn as_u128(self) -> u128 {
        self.0.as_u128()
    }

    /// Chance that belongs to one attempt of one job: the same job and attempt always draw the same jitter.
    pub fn rng(self, attempt: u32) -> Rng {
        let bits = self.0.as_u128();
        let folded =
            u64::try_from(bits >> 64).unwrap_or(0) ^ u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
        Rng::seeded(folded ^ u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Writes the id as text into `buffer`, without allocating.
    pub(crate) fn encode(self, buffer: &mut [u8; 36]) -> &str {
        self.0.hyphenated().encode_lower(buffer)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = String;
    fn from_str(text: &str) -> Result<JobId, String> {
        Uuid::try_parse(text).map(JobId).map_err(|_| {
            format!("{text:?} is not a job id; ids look like 019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e")
        })
    }
}

/// JSON text that was checked when it came in, and is carried as it was written from then on.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    /// Serialises a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Json, serde_json::Error> {
        serde_json::to_string(value).map(|text| Json(text.into()))
    }

    /// Checks that `text` is one JSON value.
    pub fn parse(text: &str) -> Result<Json, serde_json::Error> {
        serde_json::from_str::<&serde_json::value::RawValue>(text).map(|raw| Json(raw.get().into()))
    }

    /// What a store wrote after checking it, and verified by its checksum.
    pub(crate) fn trusted(text: &str) -> Json {
        Json(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads it as a typed value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// The typed data inside a job. The kind is its name in the store and must not change while jobs of it exist.
pub trait Payload: Serialize + DeserializeOwned + Send + 'static {
    /// The name under which jobs of this type are stored and their handler is found.
    const KIND: &'static str;
    /// The queue they go to unless told otherwise.
    const QUEUE: &'static str = DEFAULT_QUEUE;

    /// Whose health decides whether this may run: a host, an endpoint, a tenant.
    fn destination(&self) -> Option<String> {
        None
    }
}

/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// Separate counters, never one: what counts toward one limit must not be used up by another event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Attempts that have ended. The one that runs is the next number. Only ever grows: it is the fence.
    pub attempt: u32,
    /// Attempts that failed: what the policy counts.
    pub failures: u32,
    /// Attempts whose process died or lost its lease.
    pub crashes: u32,
    /// Times a handler asked to be called again later.
    pub snoozes: u32,
    /// Times it was put back because nothing here could run it.
    pub holds: u32,
    /// Attempts given back by a shutdown, at no cost.
    pub interruptions: u32,
    /// Times it was brought back from the dead.
    pub generation: u32,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Will be tried when it is due.
    Waiting {
        /// Not before this.
        due_at: Timestamp,
        /// Why it waits.
        reason: Reason,
    },
    /// An attempt is under way.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// Finished.
    Succeeded {
        /// When.
        at: Timestamp,
    },
    /// Needs a person.
    Dead {
        /// When.
        at: Timestamp,
        /// What ended it.
        why: GiveUp,
    },
    /// Taken back by a person.
    Cancelled {
        /// When.
        at: Timestamp,
    },
}

impl State {
    /// The state without its particulars.
    pub fn name(&self) -> StateName {
        match self {
            State::Waiting { .. } => StateName::Waiting,
            State::Running { .. } => StateName::Running,
            State::Succeeded { .. } => StateName::Succeeded,
            State::Dead { .. } => StateName::Dead,
            State::Cancelled { .. } => StateName::Cancelled,
        }
    }

    /// Whether nothing will happen to the job by itself any more.
    pub fn is_final(&self) -> bool {
        self.name().is_final()
    }
}

/// A [`State`] by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// See [`State::Waiting`].
    Waiting,
    /// See [`State::Running`].
    Running,
    /// See [`State::Succeeded`].
    Succeeded,
    /// See [`State::Dead`].
    Dead,
    /// See [`State::Cancelled`].
    Cancelled,
}

impl StateName {
    /// Whether a job in this state is finished with.
    pub fn is_final(self) -> bool {
        matches!(self, StateName::Succeeded | StateName::Dead | StateName::Cancelled)
    }

    /// The word, as it is written everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            StateName::Waiting => "waiting",
            StateName::Running => "running",
            StateName::Succeeded => "succeeded",
            StateName::Dead => "dead",
            StateName::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a job waits. Nothing waits without a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// For its first run.
    Scheduled,
    /// It failed, and the policy says when to try again.
    Backoff,
    /// The other side said when to come back.
    RetryAfter,
    /// Its handler asked to be called again later.
    Snoozed,
    /// Its process died; it waits as after a failure.
    Crashed,
    /// A shutdown gave it back.
    Interrupted,
    /// No handler for its kind where it was claimed.
    Unhandled,
    /// A person asked for it to run now.
    ByHand,
    /// Another job of its ordering key is before it.
    Order,
}

impl Reason {
    const ALL: [Reason; 9] = [
        Reason::Scheduled,
        Reason::Backoff,
        Reason::RetryAfter,
        Reason::Snoozed,
        Reason::Crashed,
        Reason::Interrupted,
        Reason::Unhandled,
        Reason::ByHand,
        Reason::Order,
    ];

    /// The word, as stores write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Scheduled => "scheduled",
            Reason::Backoff => "backoff",
            Reason::RetryAfter => "retry_after",
            Reason::Snoozed => "snoozed",
            Reason::Crashed => "crashed",
            Reason::Interrupted => "interrupted",
            Reason::Unhandled => "unhandled",
            Reason::ByHand => "by_hand",
            Reason::Order => "order",
        }
    }

    /// Reads what [`Reason::as_str`] wrote.
    pub fn parse(word: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// The durable record of something to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// Its place in the order of enqueueing, given by the store.
    pub seq: i64,
    /// Which handler runs it.
    pub kind: Arc<str>,
    /// Whose capacity it uses.
    pub queue: Arc<str>,
    /// Higher goes first.
    pub priority: i16,
    /// Its data.
    pub payload: Json,
    /// When to try again and when to stop.
    pub policy: Arc<Policy>,
    /// Whether its first failure happened outside the engine.
    pub origin: Origin,
    /// Counters.
    pub ledger: Ledger,
    /// Where it stands.
    pub state: State,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// What is rarely set.
    pub extras: Option<Box<Extras>>,
}

/// What most jobs do not have, kept apart so that they do not pay for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// Unique among jobs that are not final.
    pub key: Option<Arc<str>>,
    /// Jobs with the same ordering key run one at a time, in the order they were enqueued.
    pub ordering_key: Option<Arc<str>>,
    /// Whose health decides whether it may start.
    pub destination: Option<Arc<str>>,
    /// The job it belongs to.
    pub parent: Option<JobId>,
    /// For people and filters.
    pub labels: BTreeMap<String, String>,
    /// Dead if not finished by then.
    pub deadline: Option<Timestamp>,
    /// Dead if not begun by then.
    pub start_by: Option<Timestamp>,
    /// How long one attempt may take; replaces the policy's.
    pub timeout: Option<Duration>,
    /// The last delay, which decorrelated jitter starts from.
    pub last_delay: Option<Duration>,
    /// When it was last brought back from the dead: its age is measured from then.
    pub revived_at: Option<Timestamp>,
}

static NO_EXTRAS: Extras = Extras {
    key: None,
    ordering_key: None,
    destination: None,
    parent: None,
    labels: BTreeMap::new(),
    deadline: None,
    start_by: None,
    timeout: None,
    last_delay: None,
    revived_at: None,
};

impl Job {
    /// What is rarely set, or the lack of it.
    pub fn extras(&self) -> &Extras {
        self.extras.as_deref().unwrap_or(&NO_EXTRAS)
    }

    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// When it is or was due; its creation if it does not wait.
    pub fn due_at(&self) -> Timestamp {
        match self.state {
            State::Waiting { due_at, .. } => due_at,
            _ => self.created_at,
        }
    }

    /// The number of the attempt that runs, or would run next.
    pub fn attempt(&self) -> u32 {
        self.ledger.attempt.saturating_add(1)
    }

    /// How long one attempt may take.
    pub fn timeout(&self) -> Option<Duration> {
        self.extras().timeout.or(self.policy.timeout)
    }

    /// When its time is over: before the first attempt both limits hold, afterwards only the deadline.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let Extras { deadline, start_by, .. } = self.extras();
        match (deadline, start_by) {
            (deadline, Some(start_by)) if self.ledger.attempt == 0 => {
                Some(deadline.unwrap_or(Timestamp::MAX).min(*start_by))
            }
            (deadline, _) => *deadline,
        }
    }

    /// How old it is for limits that are measured from its beginning.
    pub fn age(&self, now: Timestamp) -> Duration {
        now.since(self.extras().revived_at.unwrap_or(self.created_at))
    }

    /// Whether a process died while it ran, so that it must not run beside others that are under the same suspicion.
    pub fn is_suspect(&self) -> bool {
        self.ledger.crashes > 0
    }

    /// What must not change at rest: verified before every attempt.
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.id.as_u128().to_be_bytes());
        hasher.update(self.kind.as_bytes());
        hasher.update(&[0]);
        hasher.update(self.payload.as_str().as_bytes());
        hasher.update(&self.created_at.as_millis().to_be_bytes());
        hasher.finalize()
    }
}

/// What one attempt came to, as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    /// Its number.
    pub attempt: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub ending: Ending,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Which rule said what kind of failure this is.
    pub rule: Option<String>,
    /// When the next one was planned.
    pub next_at: Option<Timestamp>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The work is done.
    Succeeded,
    /// It failed.
    Failed,
    /// It asked to be called again later.
    Snoozed,
    /// Its process died or lost its lease.
    Crashed,
    /// A shutdown stopped it.
    Interrupted,
    /// Nobody there knew its kind.
    Unhandled,
    /// Its time was over before it began.
    Expired,
    /// A person took the job back while it ran.
    Cancelled,
}

impl Ending {
    const ALL: [Ending; 8] = [
        Ending::Succeeded,
        Ending::Failed,
        Ending::Snoozed,
        Ending::Crashed,
        Ending::Interrupted,
        Ending::Unhandled,
        Ending::Expired,
        Ending::Cancelled,
    ];

    /// The word, as stores write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Succeeded => "succeeded",
            Ending::Failed => "failed",
            Ending::Snoozed => "snoozed",
            Ending::Crashed => "crashed",
            Ending::Interrupted => "interrupted",
            Ending::Unhandled => "unhandled",
            Ending::Expired => "expired",
            Ending::Cancelled => "cancelled",
        }
    }

    /// Reads what [`Ending::as_str`] wrote.
    pub fn parse(word: &str) -> Option<Ending> {
        Ending::ALL.into_iter().find(|ending| ending.as_str() == word)
    }
}

/// What to do when a job with the same key is already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// Keep the one that is there, and say so.
    #[default]
    Ignore,
    /// Put the new content into the one that waits. Refused while it runs.
    Replace,
    /// Refuse the new one.
    Reject,
}

/// A job to be made. `NewJob::from(payload)`, then what differs from the defaults.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub(crate) kind: Arc<str>,
    pub(crate) queue: Arc<str>,
    /// A payload that cannot be written as JSON is reported when the job is enqueued.
    pub(crate) payload: Result<Json, String>,
    pub(crate) priority: i16,
    pub(crate) on_conflict: OnConflict,
    pub(crate) policy: Option<Policy>,
    pub(crate) origin: Origin,
    pub(crate) when: When,
    pub(crate) extras: Extras,
    /// What was tried before the job was handed over.
    pub(crate) history: Vec<AttemptRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    Now,
    After(Duration),
    At(Timestamp),
}

impl<P: Payload> From<P> for NewJob {
    fn from(payload: P) -> NewJob {
        let json = Json::of(&payload).map_err(|error| error.to_string());
        let mut new = NewJob::raw(P::KIND, json).queue(P::QUEUE);
        new.extras.destination = payload.destination().map(Into::into);
        new
    }
}

impl NewJob {
    /// A job of a kind known by name, with a payload that is JSON already.
    pub fn of_kind(kind: &str, payload: Json) -> NewJob {
        NewJob::raw(kind, Ok(payload))
    }

    fn raw(kind: &str, payload: Result<Json, String>) -> NewJob {
        NewJob {
            kind: kind.into(),
            queue: DEFAULT_QUEUE.into(),
            payload,
            priority: 0,
            on_conflict: OnConflict::default(),
            policy: None,
            origin: Origin::Engine,
            when: When::Now,
            extras: Extras::default(),
            history: Vec::new(),
        }
    }

    /// Into this queue.
    pub fn queue(mut self, queue: &str) -> NewJob {
        self.queue = queue.into();
        self
    }

    /// Not before this much time has passed.
    pub fn after(mut self, delay: Duration) -> NewJob {
        self.when = When::After(delay);
        self
    }

    /// Not before this instant.
    pub fn run_at(mut self, at: Timestamp) -> NewJob {
        self.when = When::At(at);
        self
    }

    /// At most one job with this key that is not final.
    pub fn key(mut self, key: impl Into<Arc<str>>) -> NewJob {
        self.extras.key = Some(key.into());
        self
    }

    /// What to do when the key is taken.
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> NewJob {
        self.on_conflict = on_conflict;
        self
    }

    /// One at a time and in order with the others that have this key in the same queue.
    pub fn ordering_key(mut self, key: impl Into<Arc<str>>) -> NewJob {
        self.extras.ordering_key = Some(key.into());
        self
    }

    /// Higher goes first. Default 0.
    pub fn priority(mut self, priority: i16) -> NewJob {
        self.priority = priority;
        self
    }

    /// Its own policy instead of its queue's.
    pub fn policy(mut self, policy: Policy) -> NewJob {
        self.policy = Some(policy);
        self
    }

    /// Dead if not finished by then.
    pub fn deadline(mut self, at: Timestamp) -> NewJob {
        self.extras.deadline = Some(at);
        self
    }

    /// Dead if not begun by then.
    pub fn start_by(mut self, at: Timestamp) -> NewJob {
        self.extras.start_by = Some(at);
        self
    }

    /// How long one attempt may take.
    pub fn timeout(mut self, timeout: Duration) -> NewJob {
        self.extras.timeout = Some(timeout);
        self
    }

    /// Whose health decides whether it may start.
    pub fn destination(mut self, destination: impl Into<Arc<str>>) -> NewJob {
        self.extras.destination = Some(destination.into());
        self
    }

    /// A label for people and filters.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> NewJob {
        self.extras.labels.insert(name.into(), value.into());
        self
    }

    /// The job this one belongs to.
    pub fn parent(mut self, parent: JobId) -> NewJob {
        self.extras.parent = Some(parent);
        self
    }

    /// The first failure happened outside the engine: the first run comes after the policy's first delay, and every
    /// run counts as a retry.
    pub fn failed_outside(mut self, failure: Failure) -> NewJob {
        self.origin = Origin::External;
        self.history = vec![AttemptRecord {
            attempt: 0,
            started_at: Timestamp::EPOCH,
            ended_at: Timestamp::EPOCH,
            ending: Ending::Failed,
            failure: Some(failure),
            rule: None,
            next_at: None,
        }];
        self
    }
}
