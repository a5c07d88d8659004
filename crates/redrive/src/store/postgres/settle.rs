//! Attempts end, and leases with them: one call of `redrive.settle` for a whole batch.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Inner;
use super::codec::{as_i32, as_millis, only, tally_json};
use super::database::Argument;
use super::fault::Fault;
use crate::clock::Timestamp;
use crate::job::{Ending, Ledger, State};
use crate::machine::Transition;
use crate::stats::{Activity, Tally};
use crate::store::{
    Expired, Expiry, HISTORY_FIRST, HISTORY_LAST, HolderId, Lease, Renewal, Settled, Settlement,
};

/// How often a batch is tried without the leases that were found to be lost. Each time at least one fewer is in it, so
/// this is only reached if leases are lost as fast as they are looked for.
const TRIES_MAX: usize = 10;

/// A holder to be ended with what it held.
struct End<'a> {
    holder: HolderId,
    now: Timestamp,
    known: &'a [i64],
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
        for _ in 0..TRIES_MAX {
            let batch = Batch::of(self, settlements, &open, &missed).await?;
            let (written, again) = batch.write(self, end.as_ref()).await;
            sent_again |= again;
            match written {
                Ok(()) | Err(Fault::HolderLives) => {
                    if written.is_ok() {
                        open.iter().for_each(|n| answers[*n] = Settled::Applied);
                    } else {
                        missed.extend(open.iter().map(|n| settlements[*n].lease));
                    }
                    if sent_again {
                        self.recognise(settlements, &missed, &mut answers).await?;
                    }
                    return Ok(answers);
                }
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
            let held = self.database.query(include_str!("held.sql"), &[(&id, Type::UUID)]).await?;
            let mut held = self.running(held).await?;
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
        let known: Vec<i64> = settlements.iter().map(|settlement| settlement.lease.seq).collect();
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
    let tally = Tally { dead: 1, failures: 1, ..Tally::default() };
    batch.tallies.insert(queue, tally);
    match batch.write(inner, None).await.0 {
        Ok(()) => {
            let forget = "DELETE FROM redrive.keys WHERE id = $1";
            inner.database.query(forget, &[(&lease.job.as_uuid(), Type::UUID)]).await?;
            Ok(())
        }
        // Someone else has set it aside.
        Err(Fault::LeaseLost) => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// The columns of a batch, as the function takes them.
#[derive(Default)]
struct Batch {
    lanes: BTreeSet<i32>,
    claims: BTreeMap<Uuid, i32>,
    plain: Plain,
    waits: Waits,
    finals: Finals,
    attempts: Attempts,
    turns: BTreeSet<(i32, Arc<str>)>,
    trims: (Vec<i64>, Vec<i32>),
    missed: (Vec<Uuid>, Vec<i64>),
    tallies: BTreeMap<i32, Tally>,
    notes: Notes,
}

/// Succeeded at the first attempt, with nothing special.
#[derive(Default)]
struct Plain {
    seq: Vec<i64>,
    started: Vec<i64>,
    ended: Vec<i64>,
}

/// Those that wait again.
#[derive(Default)]
struct Waits {
    seq: Vec<i64>,
    fence: Vec<i32>,
    at: Vec<i64>,
    counters: Counters,
    reason: Vec<&'static str>,
    delay: Vec<Option<i64>>,
    expires: Vec<Option<i64>>,
}

/// Those that are final.
#[derive(Default)]
struct Finals {
    seq: Vec<i64>,
    fence: Vec<i32>,
    id: Vec<Uuid>,
    queue: Vec<i32>,
    started: Vec<i64>,
    at: Vec<i64>,
    counters: Counters,
    cancelled: Vec<bool>,
    output: Vec<Option<String>>,
    why: Vec<Option<&'static str>>,
    fingerprint: Vec<Option<String>>,
    key: Vec<Option<String>>,
}

/// Failures, crashes, snoozes, holds, interruptions, generation.
type Counters = [Vec<i32>; 6];

/// The attempts that did not succeed.
#[derive(Default)]
struct Attempts {
    seq: Vec<i64>,
    attempt: Vec<i32>,
    started: Vec<i64>,
    ended: Vec<i64>,
    ending: Vec<&'static str>,
    failure: Vec<Option<String>>,
    fingerprint: Vec<Option<String>>,
    rule: Vec<Option<String>>,
    next: Vec<Option<i64>>,
}

#[derive(Default)]
pub(super) struct Notes {
    at: Vec<i64>,
    job: Vec<Uuid>,
    what: Vec<&'static str>,
    kind: Vec<String>,
    queue: Vec<String>,
    message: Vec<String>,
}

impl Batch {
    async fn of(
        inner: &Inner,
        settlements: &[Settlement],
        open: &[usize],
        missed: &[Lease],
    ) -> Result<Batch, Fault> {
        let mut batch = Batch::default();
        for n in open {
            let settlement = &settlements[*n];
            let queue = inner.names.queue_id(&inner.database, &settlement.job.queue).await?;
            batch.add(settlement, queue);
        }
        for lease in missed {
            batch.missed.0.push(Uuid::from_u128(lease.claim.0));
            batch.missed.1.push(lease.seq);
        }
        Ok(batch)
    }

    fn add(&mut self, settlement: &Settlement, queue: i32) {
        let Settlement { lease, job, transition, started_at, ended_at } = settlement;
        self.count_claim(*lease);
        self.tallies.entry(queue).or_default().count(job, transition);
        if is_plain(settlement) {
            self.plain.seq.push(lease.seq);
            self.plain.started.push(started_at.as_millis());
            self.plain.ended.push(ended_at.as_millis());
            return;
        }
        self.notes.extend(Activity::of(job, transition, *ended_at));
        let extras = job.extras();
        let expires = job.expires_with(&transition.ledger);
        self.write_down(*lease, queue, transition, (*started_at, *ended_at), expires, extras.key.as_deref());
        if let Some(key) = &extras.ordering_key {
            self.lanes.insert(queue);
            self.turns.insert((queue, key.clone()));
        }
        let newest = transition.ledger.attempt;
        if newest > HISTORY_FIRST + HISTORY_LAST && transition.ending != Ending::Succeeded {
            self.trims.0.push(lease.seq);
            self.trims.1.push(as_i32(newest - HISTORY_LAST));
        }
    }

    fn count_claim(&mut self, lease: Lease) {
        *self.claims.entry(Uuid::from_u128(lease.claim.0)).or_default() += 1;
    }

    /// Writes it, and says whether it was sent more than once, be it in vain.
    async fn write(&self, inner: &Inner, end: Option<&End<'_>>) -> (Result<(), Fault>, bool) {
        let (claims, counts): (Vec<Uuid>, Vec<i32>) = self.claims.iter().map(|(id, n)| (*id, *n)).unzip();
        let lanes: Vec<i32> = self.lanes.iter().copied().collect();
        let (turn_queue, turn_key): (Vec<i32>, Vec<&str>) =
            self.turns.iter().map(|(queue, key)| (*queue, &**key)).unzip();
        let (tally_queue, tally): (Vec<i32>, Vec<String>) =
            self.tallies.iter().map(|(queue, tally)| (*queue, tally_json(*tally))).unzip();
        let holder = end.map(|end| Uuid::from_u128(end.holder.0));
        let now = end.map(|end| end.now.as_millis());
        let known = end.map(|end| end.known).unwrap_or_default();
        let first = as_i32(HISTORY_FIRST);
        let Batch { waits, finals, attempts, .. } = self;
        let arguments: [Argument<'_>; 61] = [
            (&lanes, Type::INT4_ARRAY),
            (&claims, Type::UUID_ARRAY),
            (&counts, Type::INT4_ARRAY),
            (&self.plain.seq, Type::INT8_ARRAY),
            (&self.plain.started, Type::INT8_ARRAY),
            (&self.plain.ended, Type::INT8_ARRAY),
            (&waits.seq, Type::INT8_ARRAY),
            (&waits.fence, Type::INT4_ARRAY),
            (&waits.at, Type::INT8_ARRAY),
            (&waits.counters[0], Type::INT4_ARRAY),
            (&waits.counters[1], Type::INT4_ARRAY),
            (&waits.counters[2], Type::INT4_ARRAY),
            (&waits.counters[3], Type::INT4_ARRAY),
            (&waits.counters[4], Type::INT4_ARRAY),
            (&waits.reason, Type::TEXT_ARRAY),
            (&waits.delay, Type::INT8_ARRAY),
            (&waits.expires, Type::INT8_ARRAY),
            (&finals.seq, Type::INT8_ARRAY),
            (&finals.fence, Type::INT4_ARRAY),
            (&finals.id, Type::UUID_ARRAY),
            (&finals.queue, Type::INT4_ARRAY),
            (&finals.started, Type::INT8_ARRAY),
            (&finals.at, Type::INT8_ARRAY),
            (&finals.counters[0], Type::INT4_ARRAY),
            (&finals.counters[1], Type::INT4_ARRAY),
            (&finals.counters[2], Type::INT4_ARRAY),
            (&finals.counters[3], Type::INT4_ARRAY),
            (&finals.counters[4], Type::INT4_ARRAY),
            (&finals.counters[5], Type::INT4_ARRAY),
            (&finals.cancelled, Type::BOOL_ARRAY),
            (&finals.output, Type::TEXT_ARRAY),
            (&finals.why, Type::TEXT_ARRAY),
            (&finals.fingerprint, Type::TEXT_ARRAY),
            (&finals.key, Type::TEXT_ARRAY),
            (&attempts.seq, Type::INT8_ARRAY),
            (&attempts.attempt, Type::INT4_ARRAY),
            (&attempts.started, Type::INT8_ARRAY),
            (&attempts.ended, Type::INT8_ARRAY),
            (&attempts.ending, Type::TEXT_ARRAY),
            (&attempts.failure, Type::TEXT_ARRAY),
            (&attempts.fingerprint, Type::TEXT_ARRAY),
            (&attempts.rule, Type::TEXT_ARRAY),
            (&attempts.next, Type::INT8_ARRAY),
            (&turn_queue, Type::INT4_ARRAY),
            (&turn_key, Type::TEXT_ARRAY),
            (&self.trims.0, Type::INT8_ARRAY),
            (&first, Type::INT4),
            (&self.trims.1, Type::INT4_ARRAY),
            (&self.missed.0, Type::UUID_ARRAY),
            (&self.missed.1, Type::INT8_ARRAY),
            (&tally_queue, Type::INT4_ARRAY),
            (&tally, Type::TEXT_ARRAY),
            (&self.notes.at, Type::INT8_ARRAY),
            (&self.notes.job, Type::UUID_ARRAY),
            (&self.notes.what, Type::TEXT_ARRAY),
            (&self.notes.kind, Type::TEXT_ARRAY),
            (&self.notes.queue, Type::TEXT_ARRAY),
            (&self.notes.message, Type::TEXT_ARRAY),
            (&holder, Type::UUID),
            (&now, Type::INT8),
            (&known, Type::INT8_ARRAY),
        ];
        let (rows, again) = inner.database.query_again(include_str!("settle.sql"), &arguments).await;
        (rows.map(drop), again)
    }
}

impl Batch {
    fn write_down(
        &mut self,
        lease: Lease,
        queue: i32,
        transition: &Transition,
        (started_at, ended_at): (Timestamp, Timestamp),
        expires: Option<Timestamp>,
        key: Option<&str>,
    ) {
        let next = self.write_state(lease, queue, transition, started_at, expires, key);
        if transition.ending == Ending::Succeeded {
            return;
        }
        let attempts = &mut self.attempts;
        attempts.seq.push(lease.seq);
        attempts.attempt.push(as_i32(lease.attempt) + 1);
        attempts.started.push(started_at.as_millis());
        attempts.ended.push(ended_at.as_millis());
        attempts.ending.push(transition.ending.as_str());
        let failure = transition.failure.as_ref();
        attempts.failure.push(failure.map(|f| serde_json::to_string(f).expect("a failure can be written")));
        attempts.fingerprint.push(transition.fingerprint.as_deref().map(|text| clean(text).into_owned()));
        attempts.rule.push(transition.rule.as_deref().map(|text| clean(text).into_owned()));
        attempts.next.push(next);
    }

    /// Where the job stands now; says when it is due again, if it is.
    fn write_state(
        &mut self,
        lease: Lease,
        queue: i32,
        transition: &Transition,
        started_at: Timestamp,
        expires: Option<Timestamp>,
        key: Option<&str>,
    ) -> Option<i64> {
        let fence = as_i32(lease.attempt);
        let (at, why) = match &transition.state {
            State::Waiting { due_at, reason } => {
                let waits = &mut self.waits;
                waits.seq.push(lease.seq);
                waits.fence.push(fence);
                waits.at.push(due_at.as_millis());
                count(&mut waits.counters, transition.ledger);
                waits.reason.push(reason.as_str());
                waits.delay.push(transition.delay.map(as_millis));
                waits.expires.push(expires.map(Timestamp::as_millis));
                return Some(due_at.as_millis());
            }
            State::Dead { at, why } => (*at, Some(why.as_str())),
            State::Succeeded { at } | State::Cancelled { at } | State::Running { since: at } => (*at, None),
        };
        let finals = &mut self.finals;
        finals.seq.push(lease.seq);
        finals.fence.push(fence);
        finals.id.push(lease.job.as_uuid());
        finals.queue.push(queue);
        finals.started.push(started_at.as_millis());
        finals.at.push(at.as_millis());
        count(&mut finals.counters, transition.ledger);
        finals.cancelled.push(matches!(transition.state, State::Cancelled { .. }));
        finals.output.push(transition.output.as_ref().map(|output| output.as_str().to_owned()));
        finals.why.push(why);
        finals.fingerprint.push(transition.fingerprint.as_deref().map(|text| clean(text).into_owned()));
        finals.key.push(key.map(ToOwned::to_owned));
        None
    }
}

fn count(columns: &mut Counters, ledger: Ledger) {
    let Ledger { failures, crashes, snoozes, holds, interruptions, generation, .. } = ledger;
    for (column, count) in
        columns.iter_mut().zip([failures, crashes, snoozes, holds, interruptions, generation])
    {
        column.push(as_i32(count));
    }
}

impl Extend<Activity> for Notes {
    fn extend<I: IntoIterator<Item = Activity>>(&mut self, notes: I) {
        for note in notes {
            self.at.push(note.at.as_millis());
            self.job.push(note.job.as_uuid());
            self.what.push(note.what.as_str());
            self.kind.push(note.kind.to_string());
            self.queue.push(note.queue.to_string());
            self.message.push(clean(&note.message).into_owned());
        }
    }
}

/// It succeeded at its first attempt, and nothing else hangs on it.
fn is_plain(settlement: &Settlement) -> bool {
    let Settlement { lease, job, transition, ended_at, .. } = settlement;
    let first = Ledger { attempt: 1, ..Ledger::default() };
    lease.attempt == 0
        && transition.ending == Ending::Succeeded
        && transition.ledger == first
        && transition.state == State::Succeeded { at: *ended_at }
        && transition.output.is_none()
        && job.extras.is_none()
}

/// The one character that PostgreSQL's text cannot hold must not keep an ending from being written.
fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}
