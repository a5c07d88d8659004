//! A store that misbehaves on purpose, and a witness of everything it is asked and answers.
//!
//! Each caller has its own handle, so that one node can hang while the others go on. The store inside must answer
//! without waiting, as the memory store does: between a call and its entry in the book nothing else may happen.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::book::{Book, Verdict};
use super::witness::{Fate, Witness};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::job::{JobId, Json};
use crate::machine::{Admission, Command};
use crate::queue::Retention;
use crate::stats::Activity;
use crate::store::{
    Call, Claim, Claimed, Destinations, Enqueued, Expiry, Filter, Group, HolderId, JobDetail, Operations,
    PAGE_MAX, Page, Paged, QueueCounts, Renewal, Settled, Settlement, Store,
};

/// One caller's way to a store: calls are delayed, refused, or carried out and reported as failed; each is written
/// into the trace and checked.
pub struct Faulty<S: Store + ?Sized> {
    pub(super) inner: Arc<S>,
    /// How often the store has said that something may be claimable.
    changes: watch::Receiver<u64>,
    witness: Arc<Witness>,
    /// Which node; one past the last for whoever is outside.
    caller: usize,
}

impl<S: Store + ?Sized> Faulty<S> {
    pub(super) fn new(inner: Arc<S>, witness: Arc<Witness>, caller: usize) -> Faulty<S> {
        Faulty { changes: inner.changes(), inner, witness, caller }
    }

    /// What happens to this call before it reaches the store.
    pub(super) async fn enter(&self) -> Result<Fate> {
        self.witness.thawed(self.caller).await;
        let fate = self.witness.fate(self.caller);
        pause(fate.before).await;
        if fate.refused {
            return Err(Error::unavailable("the store was not reached"));
        }
        self.witness.thawed(self.caller).await;
        Ok(fate)
    }

    /// What happens to the answer on its way back.
    pub(super) async fn leave<T>(&self, fate: Fate, answer: Result<T>) -> Result<T> {
        self.witness.thawed(self.caller).await;
        pause(fate.after).await;
        if fate.unknown {
            return Err(Error::unavailable("the store did not say whether it was done"));
        }
        answer
    }

    /// Writes down what happened. `changed` if anything stored may be different now: then everything is compared.
    pub(super) async fn note(&self, line: String, changed: bool, check: impl FnOnce(&mut Book) -> Verdict) {
        let stored = if changed {
            let page = Page { before: None, limit: PAGE_MAX };
            let rows = self.inner.list(&Filter::default(), page).await.map(|page| page.jobs);
            rows.ok().zip(self.inner.counts().await.ok())
        } else {
            None
        };
        self.witness.note(self.caller, line, stored, check);
        self.witness.wake(*self.changes.borrow());
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

fn applied(answers: &[Settled]) -> String {
    answers.iter().map(|answer| if *answer == Settled::Refused { '-' } else { '+' }).collect()
}

#[async_trait]
impl<S: Store + ?Sized> Store for Faulty<S> {
    async fn enqueue(&self, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        let fate = self.enter().await?;
        let answer = self.inner.enqueue(jobs.clone(), now).await;
        let line = match &answer {
            Ok(answers) => {
                let parts = answers.iter().map(|answer| format!(" {} {:?}", answer.id, answer.how));
                format!("enqueue{}", parts.collect::<String>())
            }
            Err(error) => format!("enqueue {} jobs: {}", jobs.len(), error.kind().code()),
        };
        self.note(line, true, |book| book.enqueued(&jobs, &answer)).await;
        self.leave(fate, answer).await
    }

    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        let fate = self.enter().await?;
        let answer = self.inner.enqueue_once(call, jobs, now).await;
        self.leave(fate, answer).await
    }

    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        let fate = self.enter().await?;
        let answer = self.inner.records(shelf).await;
        self.leave(fate, answer).await
    }

    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        let fate = self.enter().await?;
        let answer = self.inner.keep(shelf, name, value).await;
        self.leave(fate, answer).await
    }

    async fn register(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        let fate = self.enter().await?;
        let answer = self.inner.register(holder, name, until).await;
        let line = format!("register {:x} until {}", holder.0 >> 96, until.as_millis());
        self.note(line, false, |book| book.registered(holder, until)).await;
        self.leave(fate, answer).await
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Claimed> {
        let fate = self.enter().await?;
        let gates = self.inner.destinations().list(now).await?;
        let answer = self.inner.claim(claim.clone(), now).await;
        let mut line = format!("claim {:x} at {}", claim.holder.0 >> 96, now.as_millis());
        match &answer {
            Ok(claimed) => {
                for (lease, _) in &claimed.jobs {
                    line.push_str(&format!(" {}/{}", lease.job, lease.attempt + 1));
                }
                line.push_str(&format!("; next {:?}", claimed.next_due.map(Timestamp::as_millis)));
            }
            Err(error) => line.push_str(error.kind().code()),
        }
        // What is not let go may stand in its destination's line from now on.
        let changed = !gates.is_empty() || answer.as_ref().is_ok_and(|claimed| !claimed.jobs.is_empty());
        self.note(line, changed, |book| {
            if !claim.ids.iter().any(|id| book.claims.contains(id)) {
                let jobs = answer.iter().flat_map(|claimed| claimed.jobs.iter().map(|(_, job)| job));
                book.obeyed(&gates, &jobs.collect::<Vec<_>>(), now)?;
            }
            book.claimed(&claim, now, &answer)
        })
        .await;
        self.leave(fate, answer).await
    }

    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>> {
        let fate = self.enter().await?;
        let answer = self.inner.settle(settlements.clone()).await?;
        let parts = settlements.iter().map(|settlement| {
            let transition = &settlement.transition;
            let attempt = settlement.lease.attempt + 1;
            format!(
                " {}/{attempt} {} {:?}",
                settlement.lease.job,
                transition.ending.as_str(),
                transition.state
            )
        });
        let line = format!("settle{} {}", parts.collect::<String>(), applied(&answer));
        self.note(line, true, |book| book.settled(&settlements, &answer)).await;
        self.leave(fate, Ok(answer)).await
    }

    fn settlers(&self) -> usize {
        2
    }

    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal> {
        let fate = self.enter().await?;
        let answer = self.inner.renew(holder, until).await?;
        let line = match &answer {
            Renewal::Kept { lost } => format!("renew {:x} lost {}", holder.0 >> 96, lost.len()),
            Renewal::Gone => format!("renew {:x} gone", holder.0 >> 96),
        };
        self.note(line, false, |book| book.renewed(holder, until, &answer)).await;
        self.leave(fate, Ok(answer)).await
    }

    async fn expired(&self, now: Timestamp) -> Result<Expiry> {
        let fate = self.enter().await?;
        let answer = self.inner.expired(now).await?;
        let line = format!("expired {} next {:?}", answer.over.len(), answer.next.map(Timestamp::as_millis));
        self.note(line, false, |book| book.looked(now, &answer)).await;
        self.leave(fate, Ok(answer)).await
    }

    async fn expire(
        &self,
        holder: HolderId,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>> {
        let fate = self.enter().await?;
        let answer = self.inner.expire(holder, settlements.clone(), now).await?;
        let parts = settlements.iter().map(|settlement| {
            format!(
                " {}/{} {:?}",
                settlement.lease.job,
                settlement.lease.attempt + 1,
                settlement.transition.state
            )
        });
        let line = format!("expire {:x}{} {}", holder.0 >> 96, parts.collect::<String>(), applied(&answer));
        self.note(line, true, |book| book.ended(holder, &settlements, now, &answer)).await;
        self.leave(fate, Ok(answer)).await
    }

    fn operations(&self) -> &dyn Operations {
        self.inner.operations()
    }

    fn destinations(&self) -> &dyn Destinations {
        self
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.witness.changes(self.caller)
    }

    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64> {
        let fate = self.enter().await?;
        let count = self.inner.prune(retention, now, limit).await?;
        let retention = *retention;
        self.note(format!("prune {count}"), count > 0, |book| {
            book.pruned = (count > 0).then_some((retention, now, count));
            Ok(())
        })
        .await;
        self.leave(fate, Ok(count)).await
    }

    async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        let fate = self.enter().await?;
        let answer = self.inner.get(id).await;
        self.leave(fate, answer).await
    }

    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        let fate = self.enter().await?;
        let answer = self.inner.list(filter, page).await;
        self.leave(fate, answer).await
    }

    async fn counts(&self) -> Result<Vec<QueueCounts>> {
        let fate = self.enter().await?;
        let answer = self.inner.counts().await;
        self.leave(fate, answer).await
    }

    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>> {
        let fate = self.enter().await?;
        let answer = self.inner.groups(limit, now).await;
        self.leave(fate, answer).await
    }

    async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        let fate = self.enter().await?;
        let answer = self.inner.activity(limit).await;
        self.leave(fate, answer).await
    }

    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>> {
        let fate = self.enter().await?;
        let done = self.inner.apply(command, to, limit, now).await?;
        self.note(format!("{command:?} {done:?}"), true, |book| book.applied(command, to, limit, now, &done))
            .await;
        self.leave(fate, Ok(done)).await
    }

    async fn pause(&self, queue: &str, paused: bool) -> Result<()> {
        let fate = self.enter().await?;
        let answer = self.inner.pause(queue, paused).await;
        self.note(format!("pause {queue} {paused}"), true, |book| book.pause(queue, paused)).await;
        self.leave(fate, answer).await
    }
}
