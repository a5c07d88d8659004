//! A store for a virtual clock: whoever asks it waits on the spot, so that no time passes meanwhile and everything happens
//! in the same order in every run; and it is claimed from once in a step, so that a simulated hour does not take one.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use async_trait::async_trait;
use redrive::{
    Activity, Admission, Call, Change, Claim, Claimed, Clock, Command, Destination, Destinations, Enqueued,
    Expiry, Filter, Group, HolderId, JobDetail, JobId, Json, Observed, Operations, Page, Paged, QueueCounts,
    Renewal, Report, Result, Retention, Rules, Settled, Settlement, SqliteStore, Store, Timestamp, Word,
};
use tokio::sync::watch;

/// How far apart claims are.
pub(super) const STEP: Duration = Duration::from_millis(50);
/// How long after the beginning of a step they are: what arrives and ends with the step is seen.
const AFTER: u64 = 1;

/// See the head of this file.
pub(super) struct Stepwise {
    inner: SqliteStore,
    clock: Clock,
    claimed: AtomicU64,
    changes: watch::Sender<u64>,
}

impl Stepwise {
    pub(super) fn over(inner: SqliteStore, clock: Clock) -> Stepwise {
        Stepwise { inner, clock, claimed: AtomicU64::new(0), changes: watch::Sender::new(0) }
    }

    fn changed<T>(&self, answer: T) -> T {
        self.changes.send_modify(|version| *version += 1);
        answer
    }

    /// Returns a moment after a step has begun in which nothing was claimed yet.
    async fn next_step(&self) {
        let step = STEP.as_millis() as u64;
        let now = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        let this = (now - AFTER.min(now)) / step * step + AFTER;
        let due = if this < now { this + step } else { this };
        let due = due.max(self.claimed.load(Ordering::Relaxed) + step);
        self.claimed.store(due, Ordering::Relaxed);
        self.clock.sleep_until(Timestamp::from_millis(i64::try_from(due).unwrap_or(i64::MAX))).await;
    }
}

/// Waits for an answer without letting the runtime go on. Whoever answers has a thread of its own.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    // The runtime's turn is not over while it waits here, so that nothing may ask it to yield.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[async_trait]
impl Store for Stepwise {
    async fn enqueue(&self, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.changed(at_once(self.inner.enqueue(jobs, now)))
    }
    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.changed(at_once(self.inner.enqueue_once(call, jobs, now)))
    }
    async fn register(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        at_once(self.inner.register(holder, name, until))
    }
    async fn claim(&self, claim: Claim, _now: Timestamp) -> Result<Claimed> {
        self.next_step().await;
        at_once(self.inner.claim(claim, self.clock.now()))
    }
    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>> {
        self.changed(at_once(self.inner.settle(settlements)))
    }
    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal> {
        at_once(self.inner.renew(holder, until))
    }
    async fn expired(&self, now: Timestamp) -> Result<Expiry> {
        at_once(self.inner.expired(now))
    }
    async fn expire(
        &self,
        holder: HolderId,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>> {
        at_once(self.inner.expire(holder, settlements, now))
    }
    fn operations(&self) -> &dyn Operations {
        self.inner.operations()
    }
    fn destinations(&self) -> &dyn Destinations {
        self
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64> {
        at_once(self.inner.prune(retention, now, limit))
    }
    async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        at_once(self.inner.get(id))
    }
    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        at_once(Store::list(&self.inner, filter, page))
    }
    async fn counts(&self) -> Result<Vec<QueueCounts>> {
        at_once(self.inner.counts())
    }
    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>> {
        at_once(self.inner.groups(limit, now))
    }
    async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        at_once(self.inner.activity(limit))
    }
    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        at_once(self.inner.records(shelf))
    }
    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        at_once(self.inner.keep(shelf, name, value))
    }
    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>> {
        self.changed(at_once(self.inner.apply(command, to, limit, now)))
    }
    async fn pause(&self, queue: &str, paused: bool) -> Result<()> {
        self.changed(at_once(self.inner.pause(queue, paused)))
    }
}

#[async_trait]
impl Destinations for Stepwise {
    fn limit(&self, rules: Arc<Rules>) {
        self.inner.limit(rules);
    }
    fn rules(&self) -> Arc<Rules> {
        self.inner.rules()
    }
    async fn observe(&self, reports: &[Report], now: Timestamp) -> Result<Observed> {
        self.changed(at_once(self.inner.observe(reports, now)))
    }
    async fn tell(&self, destination: &str, word: Word, now: Timestamp) -> Result<Option<Change>> {
        self.changed(at_once(Destinations::tell(&self.inner, destination, word, now)))
    }
    async fn list(&self, now: Timestamp) -> Result<Vec<Destination>> {
        at_once(Destinations::list(&self.inner, now))
    }
}
