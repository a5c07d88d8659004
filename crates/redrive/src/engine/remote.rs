//! Workers elsewhere: they lease jobs through an engine, and report to any engine of the same store. Nothing of a worker
//! is kept in the process, so it may be gone and come back between a lease and its report.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Engine, attempt};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::job::{Job, State};
use crate::outcome::Outcome;
use crate::queue::OnRetry;
use crate::store::{Claim, Claimed, HolderId, Kinds, Lease, Renewal, Settled, Want};

/// Jobs that one call may lease.
pub const LEASE_MAX: usize = 1_000;

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct Lending {
    /// Who asks.
    pub worker: HolderId,
    /// Jobs of these kinds, each once and in order.
    pub kinds: Kinds,
    /// From these queues; from all that this engine has if none is named.
    pub queues: Vec<Arc<str>>,
    /// At most this many.
    pub limit: usize,
    /// How long to wait for the first one.
    pub wait: Duration,
}

impl Engine {
    /// Makes a worker known that is no part of this process. What it leases is lost to it if nothing is heard of it for
    /// as long as `lease` says.
    pub async fn join(&self, name: &str, lease: Duration) -> Result<HolderId> {
        let id = self.inner.new_holder();
        self.inner.store.register_worker(id, name, self.inner.clock.now() + lease).await?;
        self.inner.look_after_leases();
        Ok(id)
    }

    /// Leases jobs to a worker, as soon as there are some.
    pub async fn lease(&self, asked: &Lending) -> Result<Vec<(Lease, Job)>> {
        self.lease_unless(asked, std::future::pending()).await
    }

    /// The same, but waits no longer when `enough` resolves. To drop a lease instead would leave its jobs with a worker that
    /// does not know of them.
    pub async fn lease_unless(
        &self,
        asked: &Lending,
        enough: impl Future<Output = ()>,
    ) -> Result<Vec<(Lease, Job)>> {
        let mut enough = pin!(enough);
        let wants = self.wants(asked)?;
        let until = self.inner.clock.now() + asked.wait;
        let mut changes = self.inner.store.changes();
        loop {
            changes.borrow_and_update();
            let Claimed { jobs, next_due, .. } = self.lease_now(asked, wants.clone()).await?;
            let now = self.inner.clock.now();
            if !jobs.is_empty() || now >= until {
                return Ok(jobs);
            }
            // What could be had now but was not, waits for something to end: that is a change.
            let due = next_due.filter(|due| *due > now).unwrap_or(Timestamp::MAX);
            tokio::select! { biased;
                // First, or a busy store would have something else to say each time.
                () = &mut enough => return Ok(Vec::new()),
                Ok(()) = changes.changed() => {}
                () = self.inner.clock.sleep_until(due.min(until)) => {}
            }
        }
    }

    fn wants(&self, asked: &Lending) -> Result<Vec<Want>> {
        let known = &self.inner.queues;
        if let Some(unknown) = asked.queues.iter().find(|name| !known.contains_key(*name)) {
            return Err(Error::invalid(
                format!("there is no queue {unknown:?}"),
                format!("the queues are {:?}", known.keys().collect::<Vec<_>>()),
            ));
        }
        let named = |name: &Arc<str>| asked.queues.is_empty() || asked.queues.contains(name);
        let limit = asked.limit.clamp(1, LEASE_MAX);
        let want = |(name, on_retry): (&Arc<str>, OnRetry)| Want { queue: name.clone(), limit, on_retry };
        let queues = known.iter().filter(|(name, _)| named(name));
        Ok(queues.map(|(name, queue)| want((name, queue.on_retry))).collect())
    }

    /// One claim, filled queue by queue: `limit` counts for all of them together.
    async fn lease_now(&self, asked: &Lending, wants: Vec<Want>) -> Result<Claimed> {
        let mut leased = Claimed::default();
        for mut want in wants {
            want.limit = want.limit.saturating_sub(leased.jobs.len());
            if want.limit == 0 {
                break;
            }
            let ids = self.inner.new_claims();
            let kinds = Some(asked.kinds.clone());
            let claim = Claim {
                holder: asked.worker,
                ids,
                wants: vec![want],
                suspect: true,
                kinds,
                ahead: Duration::ZERO,
            };
            let now = self.inner.clock.now();
            let claimed = self.inner.store.claim(claim, now).await?;
            for (lease, job) in claimed.jobs {
                if job.expires_at().is_some_and(|over| over <= now) {
                    self.settle_lease(lease, job, Outcome::Expired, now).await?;
                } else {
                    self.inner.leased(&job, now);
                    // As whoever asks for it now sees it: it was read as it stood before it was claimed.
                    leased.jobs.push((lease, Job { state: State::Running { since: now }, ..job }));
                }
            }
            leased.next_due = leased.next_due.into_iter().chain(claimed.next_due).min();
        }
        Ok(leased)
    }

    /// A worker is still there, and goes on holding what it leased, but for what has been taken away from it.
    pub async fn keep(&self, worker: HolderId, lease: Duration) -> Result<Renewal> {
        let renewal = self.inner.store.renew(worker, self.inner.clock.now() + lease).await?;
        if lease < self.inner.lease {
            self.inner.look_after_leases();
        }
        Ok(renewal)
    }

    /// What a leased attempt came to. Refused if the lease was lost: nothing is changed then.
    pub async fn report(&self, lease: Lease, outcome: Outcome) -> Result<Settled> {
        let Some(detail) = self.inner.store.get(lease.job).await? else { return Ok(Settled::Refused) };
        let job = detail.job;
        let State::Running { since } = job.state else { return Ok(Settled::Refused) };
        if !lease.is_for(&job)
            || lease.attempt != job.ledger.attempt
            || !self.inner.store.was_given(&lease).await?
        {
            return Ok(Settled::Refused);
        }
        self.settle_lease(lease, job, outcome, since).await
    }

    async fn settle_lease(
        &self,
        lease: Lease,
        job: Job,
        outcome: Outcome,
        since: Timestamp,
    ) -> Result<Settled> {
        let ended_at = self.inner.clock.now_rounded_up();
        let mut settlements = vec![attempt::settlement(lease, Arc::new(job), outcome, since, ended_at)];
        self.inner.learn(&mut settlements).await?;
        let settlements = Arc::new(settlements);
        let answers = self.inner.store.settle(settlements.clone()).await?;
        self.inner.settled(&settlements, &answers);
        Ok(answers.into_iter().next().unwrap_or(Settled::Refused))
    }
}
