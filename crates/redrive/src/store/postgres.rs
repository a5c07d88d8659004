//! Jobs in PostgreSQL: any number of processes, one queue, no other service.
//!
//! Everything is one round trip and one transaction, and no connection has a state of its own, so that a pooler in
//! transaction mode may sit in between. The functions that are called are part of the schema (`migrations/postgres`).

mod claim;
mod codec;
mod database;
mod doctor;
mod endings;
mod enqueue;
mod fault;
mod gating;
mod listen;
mod migrate;
mod operations;
mod read;
mod settle;
mod steer;
mod time;
#[cfg(any(feature = "tx-tokio-postgres", feature = "tx-sqlx", feature = "tx-diesel"))]
pub(crate) mod transaction;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::Config;
use tokio_postgres::types::Type;
use uuid::Uuid;

use self::codec::Names;
use self::database::{Database, Direct};
use self::fault::Fault;
use super::{
    Call, Claim, Claimed, Destinations, Ended, Enqueued, Expiry, Filter, Finding, Group, HolderId, JobDetail,
    Lease, Operations, PAGE_MAX, Page, Paged, QueueCounts, Renewal, Settled, Settlement, Store,
};
use crate::clock::{Clock, Followed, Rng, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{AttemptRecord, Job, JobId, Json, State};
use crate::machine::{Admission, Command};
use crate::queue::Retention;
use crate::stats::Activity;

/// Settlements are written by so many at once: one keeps one core of the database busy, and claims keep another half.
const SETTLERS: usize = 2;

/// A PostgreSQL database.
pub struct PostgresStore {
    inner: Arc<Inner>,
    config: Config,
    listen: Listen,
    /// Ended with the store.
    _tasks: JoinSet<()>,
}

struct Inner {
    database: Database,
    /// Claims have connections of their own. What a connection has been asked for once it answers far more quickly the
    /// second time, and this way only these learn how to claim, and only the others how to settle.
    claims: Database,
    names: Names,
    gate: enqueue::Gate,
    endings: endings::Endings,
    changes: watch::Sender<u64>,
    held: operations::Held,
    gating: gating::Gating,
    news: listen::News,
    direct: Arc<Direct>,
    /// Tells one's own notifications from others'.
    name: String,
    clock: Clock,
    followed: Arc<Followed>,
    relaxed: bool,
}

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    connections: usize,
    relaxed: bool,
    listen: Listen,
    look_every: Duration,
}

#[derive(Clone, Debug)]
enum Listen {
    /// On the same URL.
    Here,
    /// On this one, because the other goes through a pooler.
    On(String),
    Nowhere,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions {
            connections: 8,
            relaxed: false,
            listen: Listen::Here,
            look_every: gating::LOOK_EVERY,
        }
    }
}

impl PostgresOptions {
    /// How many connections this process may use at most. Default 8, and one more for wake-ups.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> PostgresOptions {
        self.connections = connections.max(2);
        self
    }

    /// Works with a server that acknowledges before it has written (`fsync` or `synchronous_commit` off), which is
    /// refused otherwise: a crash there may take back jobs that were acknowledged.
    #[must_use]
    pub fn relaxed_durability(mut self) -> PostgresOptions {
        self.relaxed = true;
        self
    }

    /// The URL goes through a pooler in transaction mode, through which nobody can be woken: jobs of other processes are
    /// found within a second.
    #[must_use]
    pub fn pooled(mut self) -> PostgresOptions {
        self.listen = Listen::Nowhere;
        self
    }

    /// Is woken on this URL, which must lead to the same database without a pooler.
    #[must_use]
    pub fn listen_on(mut self, url: &str) -> PostgresOptions {
        self.listen = Listen::On(url.into());
        self
    }

    /// Looks this often what others have learned of destinations, without having been told: for tests of being told.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn look_every(mut self, pause: Duration) -> PostgresOptions {
        self.look_every = pause;
        self
    }

    /// Connects, and makes or updates the schema `redrive`.
    pub async fn connect(self, url: &str) -> Result<PostgresStore> {
        PostgresStore::connect_with(url, self).await
    }
}

impl PostgresStore {
    /// Connects, and makes or updates the schema `redrive`. The URL is like `postgres://user@host/database`; several
    /// hosts with `target_session_attrs=read-write` find the primary by themselves.
    pub async fn connect(url: &str) -> Result<PostgresStore> {
        PostgresOptions::default().connect(url).await
    }

    async fn connect_with(url: &str, options: PostgresOptions) -> Result<PostgresStore> {
        let listen = match &options.listen {
            Listen::Here => Some(parse(url)?),
            Listen::On(direct) => Some(parse(direct)?),
            Listen::Nowhere => None,
        };
        let config = parse(url)?;
        let direct = Arc::new(Direct::default());
        if !matches!(options.listen, Listen::Here) {
            direct.refute();
        }
        let pool = |connections| {
            Database::new(config.clone(), connections, direct.clone()).map_err(Fault::into_error)
        };
        let claiming = (options.connections / 4).max(1);
        let (claims, database) = (pool(claiming)?, pool(options.connections - claiming)?);
        let (clock, followed) = Clock::followed();
        let inner = Arc::new(Inner {
            database,
            claims,
            names: Names::default(),
            gate: enqueue::Gate::default(),
            endings: endings::Endings::default(),
            changes: watch::Sender::new(0),
            held: operations::Held::default(),
            gating: gating::Gating::default(),
            news: listen::News::default(),
            direct,
            name: format!("{:016x}", Rng::from_os().next_u64()),
            clock,
            followed,
            relaxed: options.relaxed,
        });
        inner.open().await.map_err(Fault::into_error)?;
        let mut tasks = JoinSet::new();
        // Two, so that while one batch is on its way to the disk the next is being written.
        tasks.spawn(enqueue::gather(inner.clone()));
        tasks.spawn(enqueue::gather(inner.clone()));
        tasks.spawn(time::follow(inner.clone()));
        tasks.spawn(listen::look(inner.clone()));
        tasks.spawn(operations::look(inner.clone()));
        tasks.spawn(gating::look(inner.clone(), options.look_every));
        if let Some(config) = listen {
            tasks.spawn(listen::listen(inner.clone(), config));
            tasks.spawn(listen::notify(inner.clone()));
        }
        Ok(PostgresStore { inner, config, listen: options.listen, _tasks: tasks })
    }

    /// Looks for whatever keeps an engine from its promises there, and says what to do about it. Refuses nothing and
    /// changes nothing: a server that would be refused, or cannot be reached, is a finding.
    pub async fn examine_at(url: &str) -> Result<Vec<Finding>> {
        doctor::examine(parse(url)?, doctor::Opened::Not).await
    }

    /// Looks for whatever keeps this store from its promises, and says what to do about it. Changes nothing, and uses
    /// connections of its own.
    pub async fn examine(&self) -> Result<Vec<Finding>> {
        let opened = doctor::Opened::With { listen: self.listen.clone(), relaxed: self.inner.relaxed };
        doctor::examine(self.config.clone(), opened).await
    }
}

fn parse(url: &str) -> Result<Config> {
    let mut config: Config = url.parse().map_err(|error| {
        Error::invalid(
            format!("this is not a PostgreSQL URL: {error}"),
            "write it as postgres://user:password@host:5432/database",
        )
    })?;
    if config.get_application_name().is_none() {
        config.application_name("redrive");
    }
    let patience = Duration::from_secs(10);
    config.connect_timeout(Duration::from_secs(5));
    config.keepalives_idle(patience).tcp_user_timeout(patience);
    Ok(config)
}

impl Inner {
    async fn open(&self) -> std::result::Result<(), Fault> {
        self.refuse_forgetful_server().await?;
        migrate::migrate(&self.database).await?;
        // All of them now: later, whoever makes a table keeps everybody else waiting, and lets them plan anew.
        self.make_days().await?;
        self.look_whether_held().await?;
        time::set(self).await?;
        tokio::try_join!(self.claims.connect(1), self.database.connect(SETTLERS))?;
        Ok(())
    }

    /// A server that acknowledges what it has not written would make us promise what we cannot keep.
    async fn refuse_forgetful_server(&self) -> std::result::Result<(), Fault> {
        let settings = "SELECT name FROM pg_settings \
                        WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') AND setting = 'off'";
        let off = self.database.query(settings, &[]).await?;
        let off: Vec<&str> = off.iter().map(|row| row.get(0)).collect();
        if off.is_empty() {
            return Ok(());
        }
        let off = off.join(" and ");
        if self.relaxed {
            tracing::warn!(
                off,
                "Durability is relaxed: a crash of the database may take back acknowledged jobs"
            );
            return Ok(());
        }
        let message =
            format!("the server has {off} switched off: a crash there would lose acknowledged jobs");
        Err(Error::new(ErrorKind::Invalid, message)
            .with_hint("switch it on, or accept the loss with durability = \"relaxed\"")
            .into())
    }

    /// Something may be claimable earlier than was last said, here.
    fn woke(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    /// Something may be claimable, here and in other processes.
    fn tell_others(&self) {
        self.woke();
        self.news.arrived();
    }

    /// The same, where it is gates that have changed.
    fn tell_others_of_gates(&self) {
        self.woke();
        self.news.gates_changed();
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn enqueue(&self, jobs: Vec<Admission>, _now: Timestamp) -> Result<Vec<Enqueued>> {
        self.inner.enqueue(jobs).await
    }

    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.inner.enqueue_once(&call, &jobs, now).await.map_err(Fault::into_error)
    }

    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        self.inner.records(shelf).await.map_err(Fault::into_error)
    }

    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        self.inner.keep(shelf, name, value.as_ref(), None).await.map_err(Fault::into_error)
    }

    async fn register(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        let register = include_str!("postgres/register.sql");
        let id = Uuid::from_u128(holder.0);
        let arguments =
            [(&id as _, Type::UUID), (&name as _, Type::TEXT), (&until.as_millis() as _, Type::INT8)];
        self.inner.database.query(register, &arguments).await.map_err(Fault::into_error)?;
        Ok(())
    }

    fn operations(&self) -> &dyn Operations {
        self
    }

    fn destinations(&self) -> &dyn Destinations {
        self
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Claimed> {
        if self.inner.held.is_on() {
            return Ok(Claimed::default());
        }
        self.inner.claim(&claim, now).await.map_err(Fault::into_error)
    }

    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>> {
        let answers = self.inner.settle(&settlements).await.map_err(Fault::into_error)?;
        let claimable = |(settlement, answer): (&Settlement, &Settled)| {
            let waits = matches!(settlement.transition.state, State::Waiting { .. });
            *answer == Settled::Applied && waits || settlement.job.extras().ordering_key.is_some()
        };
        // What belongs to another job may have let somebody go, whom any process may run.
        if settlements.iter().any(|settlement| settlement.job.extras().parent.is_some()) {
            self.inner.tell_others();
        } else if settlements.iter().zip(&answers).any(claimable) {
            self.inner.woke();
        }
        Ok(answers)
    }

    async fn was_given(&self, lease: &Lease) -> Result<bool> {
        self.inner.was_given(lease).await.map_err(Fault::into_error)
    }

    fn settlers(&self) -> usize {
        SETTLERS
    }

    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal> {
        self.inner.renew(holder, until).await.map_err(Fault::into_error)
    }

    async fn expired(&self, now: Timestamp) -> Result<Expiry> {
        self.inner.expired(now).await.map_err(Fault::into_error)
    }

    async fn expire(
        &self,
        holder: HolderId,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>> {
        let answers = self.inner.expire(holder, &settlements, now).await.map_err(Fault::into_error)?;
        // A holder that held nothing is no news to anyone.
        if !settlements.is_empty() {
            self.inner.tell_others();
        }
        Ok(answers)
    }

    fn clock(&self) -> Clock {
        self.inner.clock.clone()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    async fn wake(&self) -> Result<()> {
        self.inner.woke();
        Ok(())
    }

    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64> {
        self.inner.prune(retention, now, limit).await.map_err(Fault::into_error)
    }

    async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        self.inner.get(id).await.map_err(Fault::into_error)
    }

    async fn ended(&self, ids: &[JobId]) -> Result<Vec<Ended>> {
        self.inner.ended(ids).await.map_err(Fault::into_error)
    }

    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        let page = Page { limit: page.limit.clamp(1, PAGE_MAX), ..page };
        self.inner.list(filter, page).await.map_err(Fault::into_error)
    }

    async fn last_failed(&self, jobs: &[Job]) -> Result<BTreeMap<JobId, AttemptRecord>> {
        self.inner.last_failed(jobs).await.map_err(Fault::into_error)
    }

    async fn counts(&self) -> Result<Vec<QueueCounts>> {
        self.inner.counts().await.map_err(Fault::into_error)
    }

    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>> {
        self.inner.groups(limit, now).await.map_err(Fault::into_error)
    }

    async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        self.inner.activity(limit).await.map_err(Fault::into_error)
    }

    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>> {
        let done = self.inner.apply(command, to, limit, now, None).await.map_err(Fault::into_error)?;
        self.inner.tell_others();
        Ok(done)
    }

    async fn pause(&self, queue: &str, paused: bool) -> Result<()> {
        self.inner.pause(queue, paused, None).await.map_err(Fault::into_error)?;
        self.inner.tell_others();
        Ok(())
    }
}
