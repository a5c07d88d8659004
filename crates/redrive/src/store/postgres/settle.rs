//! Attempts end, and leases with them: one call of `redrive.settle` for a whole batch.

mod again;
mod attempts;
mod batch;

use std::collections::BTreeSet;

use tokio_postgres::types::Type;
use uuid::Uuid;

use self::batch::Batch;
use super::Inner;
use super::codec::{as_i32, only};
use super::database::Argument;
use super::fault::Fault;
use crate::clock::Timestamp;
use crate::machine::Transition;
use crate::stats::Tally;
use crate::store::settlement::hand_on;
use crate::store::{Expired, Expiry, HolderId, Lease, Renewal, Settled, Settlement};

/// How often a batch is tried without the leases that were found to be lost. Each time at least one fewer is in it, so
/// this is only reached if leases are lost as fast as they are looked for.
const TRIES_MAX: usize = 10;

/// A holder to be ended with what it held.
struct End<'a> {
    holder: HolderId,
    now: Timestamp,
    known: &'a [Lease],
}

impl Inner {
    pub(super) async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, Fault> {
        self.settle_or_end(settlements, None).await
    }

    async fn settle_or_end(
        &self,
        settlements: &[Settlement],
        end: Option<End<'_>>,
    ) -> Result<Vec<Settled>, Fault> {
        let mut answers = vec![Settled::Refused; settlements.len()];
        let mut seen = BTreeSet::new();
        // The same lease a second time is lost to the first.
        let mut open: Vec<usize> = (0..settlements.len())
            .filter(|n| {
                let Settlement { lease, job, .. } = &settlements[*n];
                lease.is_for(job) && seen.insert((lease.claim, lease.seq, lease.attempt))
            })
            .collect();
        let mut missed: Vec<Lease> = Vec::new();
        let mut sent_again = false;
        // One claim of each kind for a call.
        let mut again = settlements.iter().find_map(Settlement::wanted_again).filter(|_| !self.held.is_on());
        let next = settlements.iter().find_map(Settlement::wanted_next).filter(|_| !self.held.is_on());
        let mut paused = BTreeSet::new();
        for _ in 0..TRIES_MAX {
            let batch = Batch::of(self, settlements, &open, &missed, [again, next], &paused).await?;
            let (written, sent_twice) = batch.write(self, end.as_ref()).await;
            sent_again |= sent_twice;
            match written {
                Ok(_) | Err(Fault::HolderLives) => {
                    if written.is_ok() {
                        for n in open {
                            let goes_on = batch.goes_on(settlements[n].lease.seq);
                            answers[n] = if goes_on { Settled::Again } else { Settled::Applied };
                        }
                    } else {
                        missed.extend(open.iter().map(|n| settlements[*n].lease));
                    }
                    if sent_again {
                        self.recognise(settlements, &missed, &mut answers).await?;
                    }
                    self.tell_again(settlements, &missed, &mut answers).await?;
                    if let Some(next) = next
                        && (!missed.is_empty() || written.is_ok_and(|begun| begun > 0))
                    {
                        hand_on(settlements, &mut answers, self.begun(next).await?);
                    }
                    self.endings.remember(settlements, &answers);
                    return Ok(answers);
                }
                Err(Fault::NotAgain(queues)) if queues.is_empty() => again = None,
                Err(Fault::NotAgain(queues)) => paused.extend(queues),
                Err(Fault::LeaseLost) => {
                    let lost = self.lost(settlements, &open).await?;
                    missed.extend(lost.iter().map(|n| settlements[*n].lease));
                    open.retain(|n| !lost.contains(n));
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::Changed)
    }

    /// Whether a claim lists this job at this attempt. What a claim lists never changes; that it is still there is seen
    /// when the lease is settled.
    pub(super) async fn was_given(&self, lease: &Lease) -> Result<bool, Fault> {
        let (claim, attempt) = (Uuid::from_u128(lease.claim.0), as_i32(lease.attempt));
        let arguments: [Argument<'_>; 3] =
            [(&claim, Type::UUID), (&lease.seq, Type::INT8), (&attempt, Type::INT4)];
        let rows = self.database.query(include_str!("was_given.sql"), &arguments).await?;
        Ok(only(&rows)?.try_get(0)?)
    }

    /// Which of these leases are lost.
    async fn lost(&self, settlements: &[Settlement], open: &[usize]) -> Result<Vec<usize>, Fault> {
        let leases: Vec<&Lease> = open.iter().map(|n| &settlements[*n].lease).collect();
        let claims: Vec<Uuid> = leases.iter().map(|lease| Uuid::from_u128(lease.claim.0)).collect();
        let seqs: Vec<i64> = leases.iter().map(|lease| lease.seq).collect();
        let attempts: Vec<i32> = leases.iter().map(|lease| as_i32(lease.attempt)).collect();
        let rows = self
            .database
            .query(
                include_str!("lost.sql"),
                &[(&claims, Type::UUID_ARRAY), (&seqs, Type::INT8_ARRAY), (&attempts, Type::INT4_ARRAY)],
            )
            .await?;
        let numbers: Vec<i32> = only(&rows)?.try_get(0)?;
        Ok(numbers.into_iter().filter_map(|n| open.get(usize::try_from(n).ok()? - 1).copied()).collect())
    }

    /// The answer to the first try did not come, and the second found leases lost: those that were lost to the first
    /// try itself did count.
    async fn recognise(
        &self,
        settlements: &[Settlement],
        missed: &[Lease],
        answers: &mut [Settled],
    ) -> Result<(), Fault> {
        if missed.is_empty() {
            return Ok(());
        }
        let mine: Vec<usize> =
            (0..settlements.len()).filter(|n| missed.contains(&settlements[*n].lease)).collect();
        let of = |read: fn(&Settlement) -> i64| -> Vec<i64> {
            mine.iter().map(|n| read(&settlements[*n])).collect()
        };
        let (seqs, started, ended) = (
            of(|settlement| settlement.lease.seq),
            of(|settlement| settlement.started_at.as_millis()),
            of(|settlement| settlement.ended_at.as_millis()),
        );
        let attempts: Vec<i32> =
            mine.iter().map(|n| as_i32(settlements[*n].transition.ledger.attempt)).collect();
        let rows = self
            .database
            .query(
                include_str!("recognise.sql"),
                &[
                    (&seqs, Type::INT8_ARRAY),
                    (&attempts, Type::INT4_ARRAY),
                    (&started, Type::INT8_ARRAY),
                    (&ended, Type::INT8_ARRAY),
                ],
            )
            .await?;
        for row in rows {
            let n = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            if let Some(n) = n.checked_sub(1).and_then(|n| mine.get(n)) {
                answers[*n] = Settled::Applied;
            }
        }
        Ok(())
    }

    /// Whoever sends a settlement again, because no answer came, learns what was claimed again with it: nobody else will
    /// go on with it.
    async fn tell_again(
        &self,
        settlements: &[Settlement],
        missed: &[Lease],
        answers: &mut [Settled],
    ) -> Result<(), Fault> {
        let next =
            |settlement: &Settlement| settlement.next_lease().filter(|_| missed.contains(&settlement.lease));
        let mine: BTreeSet<u128> = settlements.iter().filter_map(next).map(|lease| lease.claim.0).collect();
        if mine.is_empty() {
            return Ok(());
        }
        let claims: Vec<Uuid> = mine.into_iter().map(Uuid::from_u128).collect();
        let rows = self.database.query(include_str!("again.sql"), &[(&claims, Type::UUID_ARRAY)]).await?;
        let mut held = BTreeSet::new();
        for row in rows {
            held.insert((
                row.try_get::<_, Uuid>(0)?.as_u128(),
                row.try_get::<_, i64>(1)?,
                row.try_get::<_, i32>(2)?,
            ));
        }
        for (settlement, answer) in settlements.iter().zip(answers) {
            if let Some(lease) = next(settlement)
                && held.contains(&(lease.claim.0, lease.seq, as_i32(lease.attempt)))
            {
                *answer = Settled::Again;
            }
        }
        Ok(())
    }

    pub(super) async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal, Fault> {
        let arguments: [Argument<'_>; 2] =
            [(&Uuid::from_u128(holder.0), Type::UUID), (&until.as_millis(), Type::INT8)];
        let rows = self.database.query(include_str!("renew.sql"), &arguments).await?;
        if rows.is_empty() {
            return Ok(Renewal::Gone);
        }
        let mut lost = Vec::new();
        for row in &rows {
            // A holder that has lost nothing is one row without a claim.
            let Some(claim) = row.try_get::<_, Option<Uuid>>(0)? else { continue };
            lost.push(Lease {
                claim: crate::store::ClaimId(claim.as_u128()),
                seq: row.try_get(1)?,
                attempt: u32::try_from(row.try_get::<_, i32>(2)?).unwrap_or(0),
                job: super::codec::job_id(row.try_get(3)?),
            });
        }
        Ok(Renewal::Kept { lost })
    }

    pub(super) async fn expired(&self, now: Timestamp) -> Result<Expiry, Fault> {
        let rows = self.database.query("SELECT id, until FROM redrive.holders ORDER BY id", &[]).await?;
        let mut expiry = Expiry::default();
        for row in rows {
            let until = Timestamp::from_millis(row.try_get(1)?);
            if until > now {
                expiry.next = expiry.next.into_iter().chain([until]).min();
                continue;
            }
            let id: Uuid = row.try_get(0)?;
            let mut held = self.held_by(id).await?;
            // One damaged row must not keep what was held beside it from coming back.
            self.bury(&held.corrupt, now).await?;
            held.jobs.sort_by_key(|(lease, _)| lease.seq);
            expiry.over.push(Expired { until, holder: HolderId(id.as_u128()), jobs: held.jobs });
        }
        Ok(expiry)
    }

    pub(super) async fn expire(
        &self,
        holder: HolderId,
        settlements: &[Settlement],
        now: Timestamp,
    ) -> Result<Vec<Settled>, Fault> {
        let known: Vec<Lease> = settlements.iter().map(|settlement| settlement.lease).collect();
        self.settle_or_end(settlements, Some(End { holder, now, known: &known })).await
    }
}

/// A job whose row is not what was written becomes dead.
pub(super) async fn bury(
    inner: &Inner,
    lease: Lease,
    queue: i32,
    transition: &Transition,
    now: Timestamp,
) -> Result<(), Fault> {
    let mut batch = Batch::default();
    batch.count_claim(lease);
    batch.write_down(lease, queue, transition, (now, now), None, None);
    batch.belonged_to_another(lease, transition, now);
    let tally = Tally { dead: 1, failures: 1, ..Tally::default() };
    batch.tallies.insert(queue, tally);
    match batch.write(inner, None).await.0 {
        Ok(_) => {
            let forget = "DELETE FROM redrive.keys WHERE id = $1";
            inner.database.query(forget, &[(&lease.job.as_uuid(), Type::UUID)]).await?;
            Ok(())
        }
        // Someone else has set it aside.
        Err(Fault::LeaseLost) => Ok(()),
        Err(fault) => Err(fault),
    }
}
