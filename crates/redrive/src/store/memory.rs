//! The reference: everything in one map behind one lock, each rule written down as directly as it can be said.
//! What the other stores do fast, this one does plainly, and they are compared with it.

mod edges;
mod gating;
mod operations;
mod settle;
mod world;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use self::world::World;
use super::operations::Operations;
use super::{
    CALLS_KEPT, Call, Claim, ClaimId, Claimed, Destination, Destinations, Enqueued, Expired, Expiry, Filter,
    Group, HolderId, JobDetail, Observed, PAGE_MAX, Page, Paged, QueueCounts, Renewal, Settled, Settlement,
    Store,
};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::gate::{Change, Gate, Report, Rules, Word};
use crate::job::{Job, JobId, Json};
use crate::machine::{Admission, Command};
use crate::queue::Retention;
use crate::stats::Activity;

/// Jobs in memory: for tests and simulations. Nothing survives the process.
#[derive(Debug)]
pub struct MemoryStore {
    world: Mutex<World>,
    changes: watch::Sender<u64>,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore { world: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn enqueue(&self, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        let answer = self.world().enqueue(jobs, now);
        self.changed();
        answer
    }

    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        let answer = self.world().enqueue_once(call, jobs, now);
        self.changed();
        answer
    }

    async fn register(&self, holder: HolderId, _name: &str, until: Timestamp) -> Result<()> {
        self.world().holders.insert(holder, until);
        Ok(())
    }

    fn operations(&self) -> &dyn Operations {
        self
    }

    fn destinations(&self) -> &dyn Destinations {
        self
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Claimed> {
        self.world().claim(claim, now)
    }

    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>> {
        let answer = self.world().settle_all(&settlements);
        self.changed();
        Ok(answer)
    }

    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal> {
        let mut world = self.world();
        let Some(lease) = world.holders.get_mut(&holder) else { return Ok(Renewal::Gone) };
        *lease = until;
        let claims = world.claims.values().filter(|claim| claim.holder == holder);
        Ok(Renewal::Kept { lost: claims.flat_map(|claim| claim.lost.values().copied()).collect() })
    }

    async fn expired(&self, now: Timestamp) -> Result<Expiry> {
        let world = self.world();
        let over = world.holders.iter().filter(|(_, until)| **until <= now);
        let over = over.map(|(id, until)| Expired { until: *until, holder: *id, jobs: world.held_by(*id) });
        let next = world.holders.values().filter(|until| **until > now).min().copied();
        Ok(Expiry { over: over.collect(), next })
    }

    async fn expire(
        &self,
        holder: HolderId,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>> {
        let mut world = self.world();
        let known: BTreeSet<(i64, u32)> =
            settlements.iter().map(|settlement| (settlement.lease.seq, settlement.lease.attempt)).collect();
        let more =
            world.held_by(holder).iter().any(|(lease, _)| !known.contains(&(lease.seq, lease.attempt)));
        if more || world.holders.get(&holder).is_none_or(|until| *until > now) {
            return Ok(vec![Settled::Refused; settlements.len()]);
        }
        let answer = world.settle_all(&settlements);
        world.holders.remove(&holder);
        let orphans: Vec<ClaimId> =
            world.claims.iter().filter(|(_, claim)| claim.holder == holder).map(|(id, _)| *id).collect();
        for id in orphans {
            world.drop_claim(id);
        }
        drop(world);
        // A holder that held nothing is no news to anyone.
        if !settlements.is_empty() {
            self.changed();
        }
        Ok(answer)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64> {
        let mut world = self.world();
        let over: Vec<i64> = world
            .rows
            .values()
            .filter(|row| retention.is_over(&row.job.state, now) && !world.is_needed(&row.job))
            .map(|row| row.job.seq)
            .take(limit)
            .collect();
        for seq in &over {
            world.forget(*seq);
        }
        world.calls.retain(|_, (_, _, at)| now.since(*at) < CALLS_KEPT);
        Ok(over.len() as u64)
    }

    async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        let world = self.world();
        let row = world.by_id.get(&id).and_then(|seq| world.rows.get(seq));
        Ok(row.map(|row| JobDetail {
            job: row.job.clone(),
            attempts: row.attempts.clone(),
            output: row.output.clone(),
            author: row.author.clone(),
        }))
    }

    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        let world = self.world();
        let limit = page.limit.clamp(1, PAGE_MAX);
        let before = page.before.unwrap_or(i64::MAX);
        let jobs: Vec<Job> = world
            .rows
            .range(..before)
            .rev()
            .filter(|(_, row)| row.matches(filter))
            .map(|(_, row)| row.job.clone())
            .take(limit)
            .collect();
        Ok(Paged { next: (jobs.len() == limit).then(|| jobs.last().map(|job| job.seq)).flatten(), jobs })
    }

    async fn counts(&self) -> Result<Vec<QueueCounts>> {
        Ok(self.world().counts())
    }

    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>> {
        Ok(self.world().groups(limit, now))
    }

    async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        Ok(self.world().activity.iter().rev().take(limit).cloned().collect())
    }

    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        let world = self.world();
        let mine = world.records.iter().filter(|((on, _), _)| on == shelf);
        Ok(mine.map(|((_, name), value)| (name.clone(), value.clone())).collect())
    }

    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        self.world().keep(shelf, name, value);
        Ok(())
    }

    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>> {
        let answer = self.world().apply(command, to, limit, now);
        self.changed();
        Ok(answer)
    }

    async fn pause(&self, queue: &str, paused: bool) -> Result<()> {
        self.world().pause(queue, paused);
        self.changed();
        Ok(())
    }
}

#[async_trait]
impl Destinations for MemoryStore {
    fn limit(&self, rules: Arc<Rules>) {
        self.world().gates.limit(rules);
        self.changed();
    }

    fn rules(&self) -> Arc<Rules> {
        self.world().gates.rules()
    }

    async fn observe(&self, reports: &[Report], now: Timestamp) -> Result<Observed> {
        let mut world = self.world();
        let mut observed = Observed::default();
        for report in reports {
            let (blame, change) = world.observe(report, now);
            observed.blames.push(blame);
            observed.changes.extend(change);
        }
        Ok(observed)
    }

    async fn tell(&self, destination: &str, word: Word, now: Timestamp) -> Result<Option<Change>> {
        let change = self.world().tell(destination, word, now);
        self.changed();
        Ok(change)
    }

    async fn list(&self, _now: Timestamp) -> Result<Vec<Destination>> {
        let world = self.world();
        let rules = world.gates.rules();
        let of = |(name, gate): (&Arc<str>, &Gate)| Destination {
            name: name.clone(),
            gate: gate.clone(),
            limits: rules.of(name),
            held: world.held_for(name),
        };
        Ok(world.gates.iter().map(of).collect())
    }
}
