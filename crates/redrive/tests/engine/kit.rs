//! What these tests share: a payload, a diary of attempts, an engine that runs beside the test, and a store that can
//! be made to stop answering.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use redrive::{
    Activity, Admission, Builder, Call, Claim, Claimed, Clock, Command, Destinations, Engine, Enqueued,
    Error, ErrorKind, Event, Expiry, Filter, Group, Happening, HolderId, JobDetail, JobId, Json, MemoryStore,
    Operations, Page, Paged, Payload, QueueCounts, Renewal, Result, Retention, Settled, Settlement, Store,
    Timestamp, testing,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) name: String,
}

impl Payload for Task {
    const KIND: &'static str = "task";
}

pub(super) fn task(name: impl Into<String>) -> Task {
    Task { name: name.into() }
}

/// An engine in memory on the paused clock.
pub(super) fn paused() -> (Builder, Clock) {
    paused_on(Arc::new(MemoryStore::new()))
}

/// An engine on this store and the paused clock.
pub(super) fn paused_on(store: Arc<dyn Store>) -> (Builder, Clock) {
    let clock = testing::clock();
    (Engine::on(store).clock(clock.clone()), clock)
}

pub(super) async fn detail(engine: &Engine, id: JobId) -> JobDetail {
    engine.get(id).await.unwrap().expect("the job is there")
}

/// What handlers noted down, in the order they did.
#[derive(Clone)]
pub(super) struct Diary<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Diary<T> {
    pub(super) fn new() -> Diary<T> {
        Diary(Arc::default())
    }

    pub(super) fn note(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    pub(super) fn entries(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// An engine that runs beside the test until it is stopped.
pub(super) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

pub(super) fn start(engine: &Engine) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let engine = engine.clone();
    let task = tokio::spawn(async move { engine.run(async { drop(stopped.await) }).await });
    Running { stop, task }
}

impl Running {
    /// Asks it to stop and waits until it has.
    pub(super) async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.task.await.expect("the loop does not panic")
    }

    /// Waits until it has ended by itself.
    pub(super) async fn ended(self) -> Result<()> {
        self.task.await.expect("the loop does not panic")
    }

    /// Asks it to stop and does not wait.
    pub(super) fn ask(self) -> JoinHandle<Result<()>> {
        drop(self.stop);
        self.task
    }
}

/// Waits for an event, and returns it.
pub(super) async fn wait_for(
    events: &mut broadcast::Receiver<Event>,
    wanted: impl Fn(&Happening) -> bool,
) -> Event {
    loop {
        let event = events.recv().await.expect("it happens before the engine ends");
        if wanted(&event.what) {
            return event;
        }
    }
}

pub(super) fn is_success(what: &Happening) -> bool {
    matches!(what, Happening::Succeeded { .. })
}

/// Says when it is dropped: the proof that a handler's future is gone.
pub(super) struct OnDrop(Option<oneshot::Sender<()>>);

impl OnDrop {
    pub(super) fn new() -> (OnDrop, oneshot::Receiver<()>) {
        let (said, hears) = oneshot::channel();
        (OnDrop(Some(said)), hears)
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(said) = self.0.take() {
            let _ = said.send(());
        }
    }
}

/// A store that can be away, keep settlements waiting, or lose renewals; and that counts what was asked of it.
pub(super) struct Moody {
    inner: Arc<dyn Store>,
    away: AtomicBool,
    cannot_renew: AtomicBool,
    late_claims: AtomicBool,
    settled: watch::Sender<usize>,
    settles: watch::Sender<bool>,
    refused: AtomicUsize,
    renewed: AtomicUsize,
}

impl Moody {
    pub(super) fn new() -> Arc<Moody> {
        Moody::over(Arc::new(MemoryStore::new()))
    }

    pub(super) fn over(inner: Arc<dyn Store>) -> Arc<Moody> {
        Arc::new(Moody {
            inner,
            away: AtomicBool::new(false),
            cannot_renew: AtomicBool::new(false),
            late_claims: AtomicBool::new(false),
            settled: watch::Sender::new(0),
            settles: watch::Sender::new(true),
            refused: AtomicUsize::new(0),
            renewed: AtomicUsize::new(0),
        })
    }

    pub(super) fn away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    pub(super) fn cannot_renew(&self, cannot: bool) {
        self.cannot_renew.store(cannot, Ordering::SeqCst);
    }

    pub(super) fn keep_settlements_waiting(&self, waiting: bool) {
        self.settles.send_replace(!waiting);
    }

    /// The answer to a claim arrives only when everything that was under way has been settled, and is old by then.
    pub(super) fn answer_claims_late(&self, late: bool) {
        self.late_claims.store(late, Ordering::SeqCst);
    }

    /// How often it did not answer.
    pub(super) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// How often it was asked to renew a lease.
    pub(super) fn renewed(&self) -> usize {
        self.renewed.load(Ordering::SeqCst)
    }

    fn there(&self) -> Result<&dyn Store> {
        if self.away.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::Unavailable, "the store is away"));
        }
        Ok(&*self.inner)
    }
}

#[async_trait]
impl Store for Moody {
    async fn enqueue(&self, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.there()?.enqueue(jobs, now).await
    }
    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.there()?.enqueue_once(call, jobs, now).await
    }

    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        self.there()?.records(shelf).await
    }

    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        self.there()?.keep(shelf, name, value).await
    }

    async fn register(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        self.there()?.register(holder, name, until).await
    }
    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Claimed> {
        let claimed = self.there()?.claim(claim, now).await?;
        let running: u64 = self.inner.counts().await?.iter().map(|counts| counts.running).sum();
        if self.late_claims.load(Ordering::SeqCst) && claimed.jobs.is_empty() && running > 0 {
            self.settled.subscribe().changed().await.expect("the sender is here");
            // Whoever waits for the settlement goes first.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        Ok(claimed)
    }
    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>> {
        self.settles.subscribe().wait_for(|settles| *settles).await.expect("the sender is here");
        if self.late_claims.load(Ordering::SeqCst) {
            // Long enough for a claim to be asked for and to look before this is written.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        let settled = self.there()?.settle(settlements).await?;
        self.settled.send_modify(|count| *count += 1);
        Ok(settled)
    }
    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal> {
        self.renewed.fetch_add(1, Ordering::SeqCst);
        if self.cannot_renew.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the renewal is lost on its way"));
        }
        self.there()?.renew(holder, until).await
    }
    async fn expired(&self, now: Timestamp) -> Result<Expiry> {
        self.there()?.expired(now).await
    }
    async fn expire(
        &self,
        holder: HolderId,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>> {
        self.there()?.expire(holder, settlements, now).await
    }
    fn operations(&self) -> &dyn Operations {
        self.inner.operations()
    }
    fn destinations(&self) -> &dyn Destinations {
        self.inner.destinations()
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }
    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64> {
        self.there()?.prune(retention, now, limit).await
    }
    async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        self.there()?.get(id).await
    }
    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        self.there()?.list(filter, page).await
    }
    async fn counts(&self) -> Result<Vec<QueueCounts>> {
        self.there()?.counts().await
    }
    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>> {
        self.there()?.groups(limit, now).await
    }
    async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        self.there()?.activity(limit).await
    }
    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>> {
        self.there()?.apply(command, to, limit, now).await
    }
    async fn pause(&self, queue: &str, paused: bool) -> Result<()> {
        self.there()?.pause(queue, paused).await
    }
}
