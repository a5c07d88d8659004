//! What keeps a shift going besides its loop: leases renewed, leases that are over ended, finished jobs forgotten.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::attempt;
use super::shift::{Desk, Holding};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::job::State;
use crate::outcome::Outcome;
use crate::store::{Expired, Renewal, Settlement};

/// How often finished jobs are looked through.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// How many finished jobs are forgotten in one transaction, so that others get their turn.
const PRUNE_CHUNK: usize = 500;

pub(super) async fn run(desk: Arc<Desk>) {
    let inner = desk.inner.clone();
    let mut watch = Watch::since(inner.clock.now());
    let mut prune_at = inner.clock.now();
    loop {
        let now = inner.clock.now();
        let next_expiry = match watch.look(&desk, now).await {
            Ok(next) => next,
            Err(error) => {
                tracing::error!(%error, "Cannot look after leases; trying again");
                watch.answering_since = inner.clock.now();
                None
            }
        };
        if now >= prune_at {
            prune(&desk).await;
            prune_at = inner.clock.now() + PRUNE_EVERY;
        }
        // Whoever registers after this look has a lease of its own, so the next look comes before that is over.
        let look_at = next_expiry.filter(|at| *at > now).unwrap_or(Timestamp::MAX).min(now + inner.lease);
        loop {
            // Whatever begins was claimed with a lease that is fresh: it need not be renewed because of that.
            let look_at = if desk.is_busy() { look_at.min(watch.renew_at(&desk)) } else { look_at };
            tokio::select! { biased;
                () = desk.asked_to_look() => break,
                () = desk.became_busy() => {}
                () = inner.clock.sleep_until(look_at) => break,
            }
        }
    }
}

/// Looks after leases, one's own and others'.
struct Watch {
    /// Since when the store has answered without a break. Others may have been unable to renew while it did not.
    answering_since: Timestamp,
    /// When it was last tried to renew one's own.
    tried_at: Timestamp,
}

impl Watch {
    fn since(now: Timestamp) -> Watch {
        Watch { answering_since: now, tried_at: Timestamp::EPOCH }
    }

    /// When one's own lease is to be renewed next, if something runs then.
    fn renew_at(&self, desk: &Desk) -> Timestamp {
        desk.renewed_at().max(self.tried_at) + desk.inner.lease / 3
    }

    /// Answers when the next lease will be over if nobody renews it.
    async fn look(&mut self, desk: &Desk, now: Timestamp) -> Result<Option<Timestamp>> {
        if desk.is_busy() && self.renew_at(desk) <= now {
            self.tried_at = now;
            renew(desk).await;
        }
        let expiry = desk.inner.store.expired(now).await?;
        let own = desk.holder.lock().unwrap_or_else(PoisonError::into_inner).id;
        let patient = now.since(self.answering_since) >= desk.inner.lease;
        // A slow answer may name what was claimed after the question: nothing ends before it began.
        let now = desk.inner.clock.now();
        for expired in expiry.over {
            let known_gone = expired.until == Timestamp::EPOCH;
            // While nothing runs here, one's own lease is let lapse on purpose.
            if expired.holder != own && (patient || known_gone) {
                end(desk, expired, now).await?;
            }
        }
        Ok(expiry.next)
    }
}

/// Ends the holders that are known to be gone and need not be waited for.
pub(super) async fn end_the_gone(desk: &Desk) -> Result<()> {
    let now = desk.inner.clock.now();
    Watch::since(now).look(desk, now).await.map(drop)
}

/// Ends a holder: a crash for each job it still held.
async fn end(desk: &Desk, expired: Expired, now: Timestamp) -> Result<()> {
    let lost = expired.jobs.len();
    let settlements: Vec<Settlement> = expired
        .jobs
        .into_iter()
        .map(|(lease, job)| {
            let since = match job.state {
                State::Running { since } => since,
                _ => now,
            };
            attempt::settlement(lease, Arc::new(job), Outcome::Lost, since, now)
        })
        .collect();
    let answers = desk.inner.store.expire(expired.holder, settlements.clone(), now).await?;
    desk.inner.settled(&settlements, &answers);
    if lost > 0 {
        tracing::warn!(jobs = lost, "A process died or lost its lease; its jobs come back");
    }
    Ok(())
}

/// Keeps what is held. What was taken away is stopped.
pub(super) async fn renew(desk: &Desk) {
    let id = desk.holder.lock().unwrap_or_else(PoisonError::into_inner).id;
    let now = desk.inner.clock.now();
    match desk.inner.store.renew(id, now + desk.inner.lease).await {
        Ok(Renewal::Kept { lost }) => {
            let mut holding = desk.holder.lock().unwrap_or_else(PoisonError::into_inner);
            if holding.id == id {
                *holding = Holding { id, renewed_at: now };
            }
            drop(holding);
            lost.iter().for_each(|lease| desk.stop(lease));
        }
        Ok(Renewal::Gone) => desk.begin_again(id).await,
        // The lease goes on until somebody records that it is over, so there is time to try again.
        Err(error) => tracing::error!(%error, "Cannot renew the lease; trying again"),
    }
}

async fn prune(desk: &Desk) {
    loop {
        let now = desk.inner.clock.now();
        match desk.inner.store.prune(&desk.inner.retention, now, PRUNE_CHUNK).await {
            Ok(pruned) if pruned as usize >= PRUNE_CHUNK => tokio::task::yield_now().await,
            Ok(_) => return,
            Err(error) => {
                tracing::error!(%error, "Cannot forget finished jobs; trying again later");
                return;
            }
        }
    }
}
