//! Jobs are handed out: one statement that locks lanes, reads what is due and writes one row; another, sent behind it
//! without waiting, that reads what the jobs are when no lane is locked any more.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::codec::{as_i32, column, job_id, ledger, only};
use super::database::Argument;
use super::fault::Fault;
use super::gating::{Offers, Turns};
use super::{Inner, settle};
use crate::clock::Timestamp;
use crate::job::{Job, Ledger, Reason, State};
use crate::machine;
use crate::queue::OnRetry;
use crate::store::{Again, Claim, ClaimId, Claimed, Lease, by_itself};

/// How often a claim is decided anew because gates are others than they were.
const DECISIONS_MAX: u32 = 4;
/// What the jobs are that claims list.
const CLAIMED: &str = include_str!("claimed.sql");
/// Which jobs claims list.
const LISTS: &str = include_str!("lists.sql");

impl Inner {
    pub(super) async fn claim(&self, claim: &Claim, now: Timestamp) -> Result<Claimed, Fault> {
        for want in &claim.wants {
            self.names.announce(&self.database, &want.queue).await?;
        }
        let ids = claim.ids.map(|id| Uuid::from_u128(id.0));
        let holder = Uuid::from_u128(claim.holder.0);
        let queues: Vec<&str> = claim.wants.iter().map(|want| &*want.queue).collect();
        let limits: Vec<i32> =
            claim.wants.iter().map(|want| i32::try_from(want.limit).unwrap_or(i32::MAX)).collect();
        let let_pass: Vec<bool> = claim.wants.iter().map(|want| want.on_retry == OnRetry::LetPass).collect();
        let kinds: Option<Vec<&str>> =
            claim.kinds.as_ref().map(|kinds| kinds.iter().map(|kind| &**kind).collect());
        let mut tries = 0;
        let (answer, rows, mut turns) = loop {
            let Offers { limited, text: gates, grants } = self.gating.offers(now, claim.ahead);
            let (answer, rows) = self
                .claims
                .two(
                    (
                        include_str!("claim.sql"),
                        &[
                            (&holder, Type::UUID),
                            (&ids[0], Type::UUID),
                            (&ids[1], Type::UUID),
                            (&queues, Type::TEXT_ARRAY),
                            (&limits, Type::INT4_ARRAY),
                            (&let_pass, Type::BOOL_ARRAY),
                            (&claim.suspect, Type::BOOL),
                            (&now.as_millis(), Type::INT8),
                            (&kinds, Type::TEXT_ARRAY),
                            (&limited, Type::TEXT_ARRAY),
                            (&gates, Type::TEXT),
                        ],
                    ),
                    (CLAIMED, &[(&&ids[..], Type::UUID_ARRAY)]),
                )
                .await?;
            let (unknown, turns) = {
                let answer = only(&answer)?;
                let moved: Option<Vec<&str>> = answer.try_get(4)?;
                let gates: Option<&str> = answer.try_get(3)?;
                let turns = Turns::of(&grants, gates);
                (self.gating.after_claim(gates, &moved.unwrap_or_default()), turns)
            };
            if !unknown.is_empty() {
                self.look_at_gates(i64::MAX, &unknown).await?;
            }
            tries += 1;
            // Where a gate was another than the one that was decided from, or was not known, it is decided again: nothing
            // has been handed out under these ids.
            let is_ready = self.gating.next_at(now, claim.ahead).is_some_and(|at| at <= now);
            if tries == DECISIONS_MAX || !is_ready || !rows.is_empty() {
                break (answer, rows, turns);
            }
        };
        let answer = only(&answer)?;
        let word: &str = answer.try_get(0)?;
        let lists = match List::of_answer(answer, ids, now)? {
            Some(lists) if word == "new" => lists,
            _ => self.lists(&ids).await?,
        };
        let mut found = self.listed(lists, &rows).await?;
        self.bury(&found.corrupt, now).await?;
        if word == "again" {
            // The answer to the same claim was lost: it is given again, but for what is no longer its holder's.
            found.jobs.sort_by_key(|(lease, _)| lease.seq);
            return Ok(Claimed { jobs: found.jobs, next_due: Some(now), ..Claimed::default() });
        }
        let (mut jobs, alone): (Vec<_>, Vec<_>) =
            found.jobs.into_iter().partition(|(lease, _)| lease.claim == claim.ids[0]);
        // In the order in which they were taken. If one before it was set aside, it is a place too far behind.
        let alone_at: Option<i32> = answer.try_get(2)?;
        let alone_at = usize::try_from(alone_at.unwrap_or(0)).unwrap_or(0).min(jobs.len());
        jobs.splice(alone_at..alone_at, alone);
        let next_due: Option<i64> = answer.try_get(1)?;
        let next_due = next_due
            .map(Timestamp::from_millis)
            .into_iter()
            .chain(self.gating.next_at(now, claim.ahead))
            .min();
        let turns = jobs.iter().filter_map(|(lease, job)| Some((lease.seq, turns.next(job, now)?))).collect();
        self.gating.took(self.clock.now().since(now));
        Ok(Claimed { jobs, next_due: by_itself(next_due), turns })
    }

    /// What is written of these claims.
    async fn lists(&self, claims: &[Uuid]) -> Result<Vec<List>, Fault> {
        List::read(&self.database.query(LISTS, &[(&claims, Type::UUID_ARRAY)]).await?)
    }

    /// What claims list, in their order. The jobs wait, as far as their state says.
    async fn listed(&self, lists: Vec<List>, rows: &[Row]) -> Result<Listed, Fault> {
        self.names.learn(&self.database, rows).await?;
        let rows: HashMap<i64, &Row> = rows.iter().map(|row| (row.get(column::SEQ), row)).collect();
        let mut listed = Listed { jobs: Vec::with_capacity(rows.len()), corrupt: Vec::new() };
        for List { claim, seqs, attempts, dues, .. } in lists {
            let claim = ClaimId(claim.as_u128());
            for (place, (seq, attempt)) in seqs.into_iter().zip(attempts).enumerate() {
                // One that is not there, or is at another attempt, was taken away.
                let Some(row) = rows.get(&seq) else { continue };
                let ledger = ledger(row)?;
                if as_i32(ledger.attempt) != attempt {
                    continue;
                }
                let job = job_id(row.try_get(column::ID)?);
                let lease = Lease { claim, job, seq, attempt: ledger.attempt };
                match self.names.job(row)? {
                    Some(mut job) => {
                        if let Some(due_at) = dues.get(place).copied().map(Timestamp::from_millis) {
                            job.state = State::Waiting { due_at, reason: Reason::Scheduled };
                        }
                        listed.jobs.push((lease, job));
                    }
                    None => listed.corrupt.push((lease, ledger, row.try_get(column::QUEUE)?)),
                }
            }
        }
        Ok(listed)
    }

    /// What was claimed with a settlement, and by which right.
    pub(super) async fn begun(&self, under: &Again) -> Result<Vec<(Lease, Job)>, Fault> {
        let claim = [Uuid::from_u128(under.claim.0)];
        let arguments: [Argument<'_>; 1] = [(&&claim[..], Type::UUID_ARRAY)];
        let (lists, rows) = self.database.two((LISTS, &arguments), (CLAIMED, &arguments)).await?;
        let found = self.listed(List::read(&lists)?, &rows).await?;
        self.bury(&found.corrupt, self.clock.now()).await?;
        Ok(found.jobs)
    }

    /// What a holder holds, as it runs since it was claimed.
    pub(super) async fn held_by(&self, holder: Uuid) -> Result<Listed, Fault> {
        let claims = self.database.query(include_str!("held.sql"), &[(&holder, Type::UUID)]).await?;
        let claims: Vec<Uuid> = claims.iter().map(|row| row.get(0)).collect();
        let lists = self.lists(&claims).await?;
        let since: HashMap<u128, Timestamp> =
            lists.iter().map(|list| (list.claim.as_u128(), list.since)).collect();
        let rows = self.database.query(CLAIMED, &[(&claims, Type::UUID_ARRAY)]).await?;
        let mut listed = self.listed(lists, &rows).await?;
        for (lease, job) in &mut listed.jobs {
            let since = since.get(&lease.claim.0).copied().unwrap_or(Timestamp::EPOCH);
            job.state = State::Running { since };
        }
        Ok(listed)
    }

    /// Rows that are not what was written are set aside for a person, and never run.
    pub(super) async fn bury(&self, corrupt: &[(Lease, Ledger, i32)], now: Timestamp) -> Result<(), Fault> {
        for (lease, ledger, queue) in corrupt {
            tracing::error!(job = %lease.job, "Job set aside: its row is not what was written");
            let transition = machine::corrupt(*ledger, now);
            settle::bury(self, *lease, *queue, &transition, now).await?;
        }
        Ok(())
    }
}

/// Which jobs a claim lists, and since when. If nothing has happened yet to any of them, that is when each was due.
struct List {
    claim: Uuid,
    since: Timestamp,
    seqs: Vec<i64>,
    attempts: Vec<i32>,
    dues: Vec<i64>,
}

impl List {
    /// As they are written.
    fn read(rows: &[Row]) -> Result<Vec<List>, Fault> {
        let read = |row: &Row| {
            Ok(List {
                claim: row.try_get(0)?,
                since: Timestamp::from_millis(row.try_get(1)?),
                seqs: row.try_get(2)?,
                attempts: row.try_get(3)?,
                dues: row.try_get::<_, Option<_>>(4)?.unwrap_or_default(),
            })
        };
        rows.iter().map(read).collect()
    }

    /// The batch, and the one that was claimed alone, as `redrive.claim` answers if they are few.
    fn of_answer(
        answer: &Row,
        [batch, alone]: [Uuid; 2],
        since: Timestamp,
    ) -> Result<Option<Vec<List>>, Fault> {
        let (Some(seqs), Some(attempts)) = (answer.try_get(5)?, answer.try_get(6)?) else { return Ok(None) };
        let dues: Option<Vec<i64>> = answer.try_get(7)?;
        let mut lists = vec![List { claim: batch, since, seqs, attempts, dues: dues.unwrap_or_default() }];
        if let Some(seq) = answer.try_get::<_, Option<i64>>(8)? {
            let (seqs, attempts) = (vec![seq], vec![answer.try_get(9)?]);
            lists.push(List { claim: alone, since, seqs, attempts, dues: Vec::new() });
        }
        Ok(Some(lists))
    }
}

/// What claims list.
pub(super) struct Listed {
    pub(super) jobs: Vec<(Lease, Job)>,
    /// What turned out not to be what was written, with the queue it is in.
    pub(super) corrupt: Vec<(Lease, Ledger, i32)>,
}
