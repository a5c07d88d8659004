//! Where jobs live: the trait, and the values that cross it. No SQL, no decisions, no clock.
//!
//! Built on one idea: **a claim is one row, and nobody owns jobs.** Claiming writes no job; a job runs if and only if
//! a claim lists it at its current attempt. Every ending moves the attempt, so a settlement that comes late finds
//! that its claim is gone or the attempt has moved, and changes nothing.

mod destinations;
mod filter;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod finding;
mod memory;
mod operations;
#[cfg(feature = "postgres")]
mod postgres;
mod settlement;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::clock::{Clock, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{AttemptRecord, Ending, Job, JobId, Json, StateName};
use crate::machine::{Admission, Command, Transition};
use crate::queue::{OnRetry, Retention};
use crate::stats::{Activity, Tally, Trend};

pub use destinations::{Destination, Destinations, Observed};
pub use filter::{Filter, PAGE_MAX, Page, Paged};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use finding::{Finding, Severity};
pub use memory::MemoryStore;
pub use operations::{Operations, Schema};
#[cfg(any(feature = "tx-tokio-postgres", feature = "tx-sqlx", feature = "tx-diesel"))]
pub(crate) use postgres::transaction as postgres_transaction;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
pub use settlement::{Again, Settled, Settlement};
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::enqueue_outside as sqlite_enqueue_outside;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore};

/// A place where jobs live. Every method is one transaction: it happens as a whole or not at all, and what it
/// acknowledges is durable.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    // produce and consume

    /// Takes all of these jobs, or none.
    async fn enqueue(&self, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>>;
    /// The same, but a second call under the same key enqueues nothing and is given the first one's answer, for
    /// [`CALLS_KEPT`]. Refused if it asks for something else.
    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>>;
    /// Makes a holder known, with a lease until then.
    async fn register(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()>;
    /// Makes a worker known that is no part of this process, and outlives it.
    async fn register_worker(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        self.register(holder, name, until).await
    }
    /// Hands out jobs that are due. A claim that is repeated under the same ids hands out nothing more and names again
    /// what it still holds: whoever did not hear the answer can ask for it.
    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Claimed>;
    /// Writes what attempts came to. Answers for each whether it still counted. Asks no clock: what finished while the
    /// store was away still counts. A call that is repeated names again what it has claimed again.
    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>>;
    /// Whether this lease was ever given. Asked of one that comes from outside, whose parts may be another's; a store that
    /// looks at that in [`Store::settle`] need not answer.
    async fn was_given(&self, _lease: &Lease) -> Result<bool> {
        Ok(true)
    }
    /// How many such calls at once are worth having.
    fn settlers(&self) -> usize {
        1
    }

    // leases

    /// Keeps everything a holder claimed, however much it is.
    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal>;
    /// Holders whose lease is over, with what they still hold.
    async fn expired(&self, now: Timestamp) -> Result<Expiry>;
    /// Ends a holder whose lease is over, settling what it held. Refuses everything if it was renewed meanwhile, or
    /// holds something that is not among the settlements: that job would be held by nobody and claimed by nobody.
    async fn expire(
        &self,
        holder: HolderId,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>>;

    // wake and keep

    /// What it keeps for the people who operate it.
    fn operations(&self) -> &dyn Operations;
    /// What it keeps of destinations.
    fn destinations(&self) -> &dyn Destinations;
    /// What time it is where the jobs are: all engines of a store go by the same clock.
    fn clock(&self) -> Clock {
        Clock::system()
    }
    /// Changes when something may have become claimable earlier than the last answer of `claim` said.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Looks now for what others may have written.
    async fn wake(&self) -> Result<()> {
        // Whatever is asked of a store that looks at all makes it look first.
        self.counts().await.map(drop)
    }
    /// Forgets finished jobs whose time is over, at most about `limit` of them, and says how many.
    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64>;

    // look

    /// One job with its history.
    async fn get(&self, id: JobId) -> Result<Option<JobDetail>>;
    /// How those of these jobs ended that are final.
    async fn ended(&self, ids: &[JobId]) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for id in ids {
            if let Some(JobDetail { job, output, .. }) = self.get(*id).await?
                && job.state.is_final()
            {
                ended.push(Ended { id: *id, state: job.state.name(), output });
            }
        }
        Ok(ended)
    }
    /// Jobs that match, newest first.
    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged>;
    /// The last attempt of each of these jobs that ended in a failure, of those that have one.
    async fn last_failed(&self, jobs: &[Job]) -> Result<BTreeMap<JobId, AttemptRecord>> {
        let mut failed = BTreeMap::new();
        for job in jobs {
            let attempts = self.get(job.id).await?.map(|detail| detail.attempts).unwrap_or_default();
            let last = attempts.into_iter().rev().find(|attempt| attempt.failure.is_some());
            failed.extend(last.map(|attempt| (job.id, attempt)));
        }
        Ok(failed)
    }
    /// How many jobs are where, and how much of what has happened.
    async fn counts(&self) -> Result<Vec<QueueCounts>>;
    /// Dead jobs by the fingerprint of what they died of, the most frequent first, with their trend until `now`.
    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>>;
    /// The newest lines of the activity log.
    async fn activity(&self, limit: usize) -> Result<Vec<Activity>>;

    // keep beside the jobs

    /// Small records under a name, such as tokens: all of one shelf, by name.
    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>>;
    /// Writes a record, or removes it.
    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()>;

    // steer

    /// Does what a person asked to at most `limit` jobs that match and to which it can be done.
    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>>;
    /// Stops or resumes handing out jobs of a queue.
    async fn pause(&self, queue: &str, paused: bool) -> Result<()>;
}

/// An instance or a remote worker that may hold jobs. Random, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u128);

/// One claimed batch. Random, so that a database restored from yesterday cannot issue it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub u128);

/// What was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    /// The job: the new one, or the one that was there already.
    pub id: JobId,
    /// Which of the two.
    pub how: How,
}

/// An enqueueing that its caller may send again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Under this key, which the caller chose.
    pub key: String,
    /// What it asks for, in short: the same key for something else is a mistake.
    pub digest: String,
}

/// How long the answer to a [`Call`] is kept.
pub const CALLS_KEPT: Duration = crate::span::days(30);

/// What became of a job that was to be enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It is new.
    Created,
    /// One with its key was there and stays as it is.
    Existing,
    /// One with its key was waiting and has the new content now.
    Replaced,
}

/// What a holder wants.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who asks.
    pub holder: HolderId,
    /// The claims to be made are named by these: one for the batch, one for a suspect, which is claimed alone.
    pub ids: [ClaimId; 2],
    /// From which queues, how many.
    pub wants: Vec<Want>,
    /// Whether one job that has crashed before may be among them.
    pub suspect: bool,
    /// Only jobs of these kinds, sorted; of all kinds if not given. What is out of time is handed out whatever its kind:
    /// it will not run.
    pub kinds: Option<Kinds>,
    /// How long before its turn a job of a limited destination may be handed out, so that the answer is there in time. A
    /// store that only this process uses need not care.
    pub ahead: Duration,
}

/// Names of kinds, each once and in order.
pub type Kinds = Arc<[Arc<str>]>;

/// A part of a [`Claim`].
#[derive(Clone, Debug)]
pub struct Want {
    /// From this queue.
    pub queue: Arc<str>,
    /// As many as can start now.
    pub limit: usize,
    /// What a waiting retry means for those behind it.
    pub on_retry: OnRetry,
}

/// The answer to a [`Claim`].
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// What may start now.
    pub jobs: Vec<(Lease, Job)>,
    /// When the next job of the wanted queues will be due. In the past if more could be had now.
    pub next_due: Option<Timestamp>,
    /// Of those jobs, by their place, the ones that have their turn a moment later, and when.
    pub turns: BTreeMap<i64, Timestamp>,
}

/// The right to settle one attempt of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The claim that lists it.
    pub claim: ClaimId,
    /// The job.
    pub job: JobId,
    /// Its place in the store.
    pub seq: i64,
    /// The attempt, as it must still be.
    pub attempt: u32,
}

impl Lease {
    /// Whether this is the job it was given for.
    pub(crate) fn is_for(&self, job: &Job) -> bool {
        self.job == job.id && self.seq == job.seq
    }
}

/// The answer to a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease goes on, but for these.
    Kept {
        /// Taken away since; each is named until its holder tries to settle it.
        lost: Vec<Lease>,
    },
    /// The holder has expired and everything it held is lost.
    Gone,
}

/// How the leases stand.
#[derive(Clone, Debug, Default)]
pub struct Expiry {
    /// Those that are over.
    pub over: Vec<Expired>,
    /// When the next one will be, if it is not renewed.
    pub next: Option<Timestamp>,
}

/// A holder whose lease is over.
#[derive(Clone, Debug)]
pub struct Expired {
    /// Until when it was. At the epoch if the holder is known to be gone, and need not be waited for.
    pub until: Timestamp,
    /// Who.
    pub holder: HolderId,
    /// What it still holds.
    pub jobs: Vec<(Lease, Job)>,
}

/// A job and its history.
#[derive(Clone, Debug, PartialEq)]
pub struct JobDetail {
    /// The job.
    pub job: Job,
    /// Its attempts, oldest first. When there are very many, the first ten and the last ninety.
    pub attempts: Vec<AttemptRecord>,
    /// What it left behind.
    pub output: Option<Json>,
    /// Who asked for it, or for what it was replaced with, where that was said.
    pub author: Option<Arc<str>>,
}

/// How a job ended, in short.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The job.
    pub id: JobId,
    /// Where it stands.
    pub state: StateName,
    /// What it left behind.
    pub output: Option<Json>,
}

/// Dead jobs that died of the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Of what, as far as it is known: see [`Failure::fingerprint`](crate::Failure::fingerprint).
    pub fingerprint: Option<String>,
    /// How many.
    pub count: u64,
    /// The one that was enqueued last.
    pub newest: JobId,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the last of them died.
    pub last_at: Timestamp,
    /// How they are spread over the time from the first death of all groups in the answer until now.
    pub trend: Trend,
}

/// How one queue stands.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueCounts {
    /// The queue.
    pub queue: Arc<str>,
    /// Jobs waiting.
    pub waiting: u64,
    /// Jobs running.
    pub running: u64,
    /// Jobs that need a person now.
    pub dead: u64,
    /// Whether it is stopped.
    pub paused: bool,
    /// What has happened, ever.
    pub totals: Tally,
}

/// How many attempts of one job are kept: the first few, and the last.
pub(crate) const HISTORY_FIRST: u32 = 10;
/// See [`HISTORY_FIRST`].
pub(crate) const HISTORY_LAST: u32 = 90;

/// Of the queues that have a capacity: what it is, and how many of these jobs want in.
pub(crate) fn coming(jobs: &[Admission]) -> BTreeMap<&Arc<str>, (u64, u64)> {
    let limited = jobs.iter().filter_map(|admission| Some((&admission.job.queue, (admission.capacity?, 0))));
    let mut coming: BTreeMap<_, (u64, u64)> = limited.collect();
    if !coming.is_empty() {
        for admission in jobs {
            if let Some((_, count)) = coming.get_mut(&admission.job.queue) {
                *count += 1;
            }
        }
    }
    coming
}

/// Put into an existing job's place: new content, restarted counters, the same id and fence.
pub(crate) fn replaced(old: &Job, mut new: Job) -> Job {
    new.extras_mut().revived_at = Some(new.created_at);
    new.id = old.id;
    new.seq = old.seq;
    new.created_at = old.created_at;
    new.ledger = crate::job::Ledger { failures: 0, crashes: 0, snoozes: 0, ..old.ledger };
    new
}

/// When something will be due by itself: what waits for other jobs never is.
pub(crate) fn by_itself(due: Option<Timestamp>) -> Option<Timestamp> {
    due.filter(|due| *due < Timestamp::MAX)
}

/// What becomes of a running job that a person takes away from its holder.
pub(crate) fn taken_away(next: &Job) -> Transition {
    let is_over = next.state.is_final();
    Transition::steered(next, if is_over { Ending::Cancelled } else { Ending::Interrupted })
}

/// What comes in alone has nobody to wait for.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn refuse_tied(admission: &Admission) -> Result<()> {
    if admission.after.is_empty() {
        return Ok(());
    }
    let message = format!("the {:?} job waits for others that do not come with it", admission.job.kind);
    Err(Error::invalid(message, "start workflows with the engine, outside of your own transaction"))
}

pub(crate) fn queue_full(queue: &str, capacity: u64) -> Error {
    Error::new(ErrorKind::Full, format!("queue {queue:?} is full: it may hold {capacity} jobs"))
        .with_hint("try again when some have finished, or give the queue a larger capacity")
}

pub(crate) fn call_differs(key: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("the idempotency key {key:?} was used for another request"))
        .with_hint("send a new key with a new request, and the old request with the old key")
}

pub(crate) fn key_taken(key: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("a job with the key {key:?} is already there"))
        .with_hint("wait until it is finished, or say ignore or replace for what to do on a conflict")
}

pub(crate) fn key_running(key: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("the job with the key {key:?} is running and cannot be replaced"))
        .with_hint("enqueue again when its attempt has ended, or say ignore for what to do on a conflict")
}
