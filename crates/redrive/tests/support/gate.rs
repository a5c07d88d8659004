//! A store behind a gate: while it is shut, no call gets through, as when the process is stopped or the disk hangs.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use redrive::{
    Activity, Admission, Call, Claim, Claimed, Command, Enqueued, Expiry, Filter, Group, HolderId, JobDetail,
    JobId, Json, Page, Paged, QueueCounts, Renewal, Result, Retention, Settled, Settlement, Store, Timestamp,
};
use tokio::sync::watch;

pub(crate) struct Gate<S> {
    store: Arc<S>,
    open: watch::Sender<bool>,
    /// Who registered, in order.
    pub(crate) holders: Mutex<Vec<HolderId>>,
    /// Never sends, if wake-ups are to be lost.
    silence: Option<watch::Sender<u64>>,
}

impl<S: Store> Gate<S> {
    pub(crate) fn before(store: Arc<S>) -> Arc<Gate<S>> {
        Arc::new(Gate { store, open: watch::Sender::new(true), holders: Mutex::default(), silence: None })
    }

    /// One whose wake-ups are all lost.
    pub(crate) fn silent(store: Arc<S>) -> Arc<Gate<S>> {
        let silence = Some(watch::Sender::new(0));
        Arc::new(Gate { store, open: watch::Sender::new(true), holders: Mutex::default(), silence })
    }

    pub(crate) fn shut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    async fn through(&self) -> &S {
        self.open.subscribe().wait_for(|open| *open).await.expect("the gate stands");
        &self.store
    }
}

#[async_trait]
impl<S: Store> Store for Gate<S> {
    async fn enqueue(&self, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.through().await.enqueue(jobs, now).await
    }
    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.through().await.enqueue_once(call, jobs, now).await
    }

    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        self.through().await.records(shelf).await
    }

    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        self.through().await.keep(shelf, name, value).await
    }

    async fn register(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        self.holders.lock().unwrap().push(holder);
        self.through().await.register(holder, name, until).await
    }
    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Claimed> {
        self.through().await.claim(claim, now).await
    }
    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>> {
        self.through().await.settle(settlements).await
    }
    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal> {
        self.through().await.renew(holder, until).await
    }
    async fn expired(&self, now: Timestamp) -> Result<Expiry> {
        self.through().await.expired(now).await
    }
    async fn expire(
        &self,
        holder: HolderId,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>> {
        self.through().await.expire(holder, settlements, now).await
    }
    fn operations(&self) -> &dyn redrive::Operations {
        self.store.operations()
    }
    fn destinations(&self) -> &dyn redrive::Destinations {
        self.store.destinations()
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.silence.as_ref().map_or_else(|| self.store.changes(), watch::Sender::subscribe)
    }
    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64> {
        self.through().await.prune(retention, now, limit).await
    }
    async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        self.through().await.get(id).await
    }
    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        self.through().await.list(filter, page).await
    }
    async fn counts(&self) -> Result<Vec<QueueCounts>> {
        self.through().await.counts().await
    }
    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>> {
        self.through().await.groups(limit, now).await
    }
    async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        self.through().await.activity(limit).await
    }
    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>> {
        self.through().await.apply(command, to, limit, now).await
    }
    async fn pause(&self, queue: &str, paused: bool) -> Result<()> {
        self.through().await.pause(queue, paused).await
    }
}
