//! The nouns: a job, its payload, its ledger, its state, and the ways to ask for one. Nothing in here acts.

mod new;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::{Rng, Timestamp};
use crate::policy::{Origin, Policy};

pub(crate) use new::When;
pub use new::{NewJob, OnConflict};
pub use state::{AttemptRecord, Ending, Reason, State, StateName};

/// A job's name for life: a UUIDv7, so that ids sort by the time they were made.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

    /// The id of a part of something that has an id: of the same time, and always the same for the same place.
    pub(crate) fn within(whole: JobId, place: u32) -> JobId {
        // Its own attempts draw from numbers that grow from 0 on: these are far from them.
        let mut rng = whole.rng(u32::MAX - place);
        let count = u16::try_from(place & 0x0fff).unwrap_or(0);
        JobId::new(whole.made_at(), count, &mut rng)
    }

    /// When it was made.
    pub(crate) fn made_at(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.as_u128() >> 80).unwrap_or(0))
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn from_uuid(id: Uuid) -> JobId {
        JobId(id)
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn as_uuid(self) -> Uuid {
        self.0
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

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Json {
        Json(value.to_string().into())
    }
}

/// It is known to be one JSON value.
impl From<&serde_json::value::RawValue> for Json {
    fn from(raw: &serde_json::value::RawValue) -> Json {
        Json(raw.get().into())
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

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        Box::<serde_json::value::RawValue>::deserialize(deserializer).map(|raw| Json::from(&*raw))
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

    /// What was stored, as it is handed to the handler.
    ///
    /// # Errors
    ///
    /// What keeps it from being read.
    fn read(stored: &Json) -> Result<Self, serde_json::Error> {
        stored.decode()
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
    /// How long it was due and stood in the line of its destination, before attempts that have begun.
    pub in_line: Duration,
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
    in_line: Duration::ZERO,
};

impl Job {
    /// What is rarely set, or the lack of it.
    pub fn extras(&self) -> &Extras {
        self.extras.as_deref().unwrap_or(&NO_EXTRAS)
    }

    /// Whether nothing else is set of what is rarely set.
    #[cfg(feature = "postgres")]
    pub(crate) fn has_at_most_a_destination(&self) -> bool {
        let Some(extras) = &self.extras else { return true };
        extras.destination.is_some() && Extras { destination: None, ..(**extras).clone() } == NO_EXTRAS
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

    /// Dead if not finished by then: later than it was written down, where the time it was held does not count.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.extras().deadline.map(|at| at + self.uncounted())
    }

    /// Dead if not begun by then, in the same way.
    pub fn start_by(&self) -> Option<Timestamp> {
        self.extras().start_by.map(|at| at + self.uncounted())
    }

    fn uncounted(&self) -> Duration {
        if self.policy.held_counts { Duration::ZERO } else { self.extras().in_line }
    }

    /// When its time is over: before the first attempt both limits hold, afterwards only the deadline.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_with(&self.ledger)
    }

    pub(crate) fn expires_with(&self, ledger: &Ledger) -> Option<Timestamp> {
        match (self.deadline(), self.start_by()) {
            // Where nobody knew its kind, it has not begun.
            (deadline, Some(start_by)) if ledger.attempt == ledger.holds => {
                Some(deadline.unwrap_or(Timestamp::MAX).min(start_by))
            }
            (deadline, _) => deadline,
        }
    }

    /// When it is to be buried without having had its turn. How long it will be held is not known before it is let go; so
    /// where that does not count, whether its time is over is asked when it has its turn, and not before.
    pub(crate) fn buried_at(&self) -> Option<Timestamp> {
        self.buried_with(&self.ledger)
    }

    pub(crate) fn buried_with(&self, ledger: &Ledger) -> Option<Timestamp> {
        let may_wait = !self.policy.held_counts && self.extras().destination.is_some();
        self.expires_with(ledger).filter(|_| !may_wait)
    }

    /// How old it is for limits that are measured from its beginning.
    pub fn age(&self, now: Timestamp) -> Duration {
        now.since(self.extras().revived_at.unwrap_or(self.created_at)).saturating_sub(self.uncounted())
    }

    /// Notes that it leaves the line of its destination, in which it stood since it was due.
    pub(crate) fn leave_line(&mut self, now: Timestamp) {
        let stood = now.since(self.due_at());
        if !stood.is_zero() {
            self.extras_mut().in_line += stood;
        }
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
