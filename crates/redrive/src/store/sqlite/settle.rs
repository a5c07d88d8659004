//! Attempts end, and leases with them. Every write names its fence.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use rusqlite::{Connection, params};

use super::Fault;
use super::codec::{as_millis, final_columns, hex};
use super::core::{Core, Run};
use crate::clock::Timestamp;
use crate::error::ErrorKind;
use crate::job::{AttemptRecord, Ending, Job, Ledger, State};
use crate::machine::{self, Transition};
use crate::stats::{self, Activity};
use crate::store::settlement::{Kept, hand_on};
use crate::store::{
    Again, ClaimId, Expired, Expiry, HISTORY_FIRST, HISTORY_LAST, HolderId, Lease, Renewal, Settled,
    Settlement,
};

impl Core {
    pub(super) fn settle(&mut self, settlements: &[Settlement]) -> Result<Vec<Settled>, Fault> {
        let again = settlements.iter().filter_map(|settlement| Some(settlement.again.as_ref()?.claim));
        let repeated: BTreeSet<ClaimId> = again.filter(|id| self.claims.contains_key(id)).collect();
        let mut gone = BTreeMap::new();
        let mut answers = self.settle_plain(settlements)?;
        for (answer, settlement) in answers.iter_mut().zip(settlements) {
            if answer.is_none() {
                *answer = Some(self.settle_one(settlement, &mut gone)?);
            }
        }
        let mut answers: Vec<_> =
            answers.into_iter().map(|answer| answer.unwrap_or(Settled::Refused)).collect();
        self.write_claims_again(settlements, &answers, &repeated)?;
        if let Some(again) = settlements.iter().find_map(Settlement::wanted_next) {
            let begun = match repeated.contains(&again.claim) {
                true => self.held_under(again.claim)?,
                false => self.begin(again, Kept::of(settlements, &answers), gone)?,
            };
            hand_on(settlements, &mut answers, begun);
        }
        Ok(answers)
    }

    /// Claims those that were let go, in their order, as far as places were kept for them.
    fn begin(
        &mut self,
        again: &Again,
        kept: Option<Kept<'_>>,
        gone: BTreeMap<i64, Timestamp>,
    ) -> Result<Vec<(Lease, Job)>, Fault> {
        let is_there = !self.held && self.holders.contains_key(&again.holder);
        let Some(mut kept) = kept.filter(|_| is_there) else { return Ok(Vec::new()) };
        let mut begun = Vec::new();
        let mut since = Timestamp::EPOCH;
        for (seq, at) in gone {
            let Some(next) = self.readable(seq)? else { continue };
            let queue = self.queue_id(&next.queue)?;
            if !self.queue(queue).paused && kept.take(&next, at) {
                begun.push((queue, next));
                since = since.max(at);
            }
        }
        for (queue, job) in &begun {
            let run = Run { claim: again.claim, attempt: job.ledger.attempt, since };
            self.runs(*queue, job.seq, again.holder, run);
        }
        let listed = begun.iter().map(|(_, job)| (job.seq, job.ledger.attempt)).collect();
        self.write_claim(again.claim, again.holder, since, listed)?;
        Ok(begun.into_iter().map(|(_, job)| under(again.claim, job)).collect())
    }

    /// What a claim still holds.
    fn held_under(&mut self, claim: ClaimId) -> Result<Vec<(Lease, Job)>, Fault> {
        let held = self.claims.get(&claim).map(|claim| claim.held.iter().copied().collect());
        let held: Vec<i64> = held.unwrap_or_default();
        let held = held.into_iter().filter_map(|seq| self.readable(seq).transpose());
        held.map(|job| Ok(under(claim, job?))).collect()
    }

    /// A job, unless its row is not what was written: that must not keep the endings of others from being written. Whoever
    /// claims it, or ends its holder, sets it aside.
    fn readable(&mut self, seq: i64) -> Result<Option<Job>, Fault> {
        match self.load(seq) {
            Ok(job) => Ok(Some(job)),
            Err(Fault::Refused(error)) if error.kind() == ErrorKind::Corrupt => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// One row for all that were claimed again together.
    fn write_claims_again(
        &mut self,
        settlements: &[Settlement],
        answers: &[Settled],
        repeated: &BTreeSet<ClaimId>,
    ) -> Result<(), Fault> {
        let mut claims: BTreeMap<ClaimId, Vec<&Settlement>> = BTreeMap::new();
        for (settlement, answer) in settlements.iter().zip(answers) {
            if let (Settled::Again, Some(Again { claim, .. })) = (answer, &settlement.again)
                && !repeated.contains(claim)
            {
                claims.entry(*claim).or_default().push(settlement);
            }
        }
        for (id, listed) in claims {
            let Some(Settlement { again: Some(again), ended_at, .. }) = listed.first() else { continue };
            let jobs = listed.iter().map(|it| (it.lease.seq, it.lease.attempt + 1)).collect();
            self.write_claim(id, again.holder, *ended_at, jobs)?;
        }
        Ok(())
    }

    /// The same as [`Core::settle_one`] for jobs that succeeded at once and have nothing special, with the statements
    /// looked up once. The others are left open.
    fn settle_plain(&mut self, settlements: &[Settlement]) -> Result<Vec<Option<Settled>>, Fault> {
        self.at = settlements.iter().map(|settlement| settlement.ended_at).fold(self.at, Timestamp::max);
        let Core { conn, queues, queue_ids, claims, running, .. } = self;
        let mut running = running.write().unwrap_or_else(PoisonError::into_inner);
        let mut delete = conn.prepare_cached(include_str!("settle_delete.sql"))?;
        let mut insert = conn.prepare_cached(include_str!("settle_plain_done.sql"))?;
        let mut answers = Vec::with_capacity(settlements.len());
        for Settlement { lease, job, transition, started_at, ended_at, .. } in settlements {
            let queue = queue_ids.get(&job.queue).and_then(|id| queues.get_mut(id));
            let (true, Some(queue)) = (lease.is_for(job) && is_plain(job, transition), queue) else {
                answers.push(None);
                continue;
            };
            let held = running.0.get(&lease.seq).is_some_and(|run| run.is(lease.claim, lease.attempt));
            let Some(claim) = claims.get_mut(&lease.claim).filter(|claim| held && claim.held.len() > 1)
            else {
                // Refused, or the last of its claim: the way with all the checks.
                answers.push(None);
                continue;
            };
            running.0.remove(&lease.seq);
            claim.held.remove(&lease.seq);
            let fenced = delete.execute(params![lease.seq, lease.attempt])? == 1;
            debug_assert!(fenced, "what is in memory is what is in the database");
            insert.execute(params![
                lease.seq,
                started_at.as_millis(),
                ended_at.as_millis(),
                transition.ledger.attempt,
                transition.output.as_ref().map(|output| output.as_str()),
            ])?;
            queue.running = queue.running.saturating_sub(1);
            let band = queue.bands.entry(job.priority).or_default();
            band.live = band.live.saturating_sub(1);
            queue.news.succeeded(job, &transition.ledger);
            answers.push(Some(Settled::Applied));
        }
        Ok(answers)
    }

    /// Writes one; what it lets go is noted, with when.
    fn settle_one(
        &mut self,
        settlement: &Settlement,
        gone: &mut BTreeMap<i64, Timestamp>,
    ) -> Result<Settled, Fault> {
        let Settlement { lease, job, transition, started_at, ended_at, .. } = settlement;
        if self.goes_on(settlement) {
            return Ok(Settled::Again);
        }
        if !lease.is_for(job) || !self.strike_off(lease.claim, lease.seq, lease.attempt)? {
            return Ok(Settled::Refused);
        }
        let queue = self.queue_id(&job.queue)?;
        let applied = match &transition.state {
            State::Waiting { due_at, reason } => {
                self.wait(queue, job, transition, *due_at, reason.as_str())?
            }
            _ => self.finish(queue, job, lease.attempt, transition, Some(*started_at))?,
        };
        if !applied {
            return Ok(Settled::Refused);
        }
        if transition.ending != Ending::Succeeded {
            let record = settlement.record();
            insert_attempt(&self.conn, lease.seq, &record)?;
            trim_attempts(&self.conn, lease.seq, record.attempt)?;
        }
        self.queue(queue).news.count(job, transition);
        self.note(Activity::of(job, transition, *ended_at))?;
        self.let_next_go(queue, job.extras().ordering_key.as_deref())?;
        for seq in self.let_dependants_go(job, &transition.state, *ended_at)? {
            let at = gone.entry(seq).or_insert(*ended_at);
            *at = (*at).max(*ended_at);
        }
        match settlement.wanted_again() {
            Some(again)
                if !self.held && !self.queue(queue).paused && self.holders.contains_key(&again.holder) =>
            {
                let run = Run { claim: again.claim, attempt: lease.attempt + 1, since: *ended_at };
                self.runs(queue, lease.seq, again.holder, run);
                Ok(Settled::Again)
            }
            _ => Ok(Settled::Applied),
        }
    }

    /// Whether the same settlement came before, and the job was claimed again with it.
    fn goes_on(&self, settlement: &Settlement) -> bool {
        let Some(Lease { seq, claim, attempt, .. }) = settlement.next_lease() else { return false };
        self.run_of(seq).is_some_and(|run| run.is(claim, attempt))
    }

    /// Takes a job off its claim; whether it was still there. The last one takes the claim with it.
    pub(super) fn strike_off(&mut self, id: ClaimId, seq: i64, attempt: u32) -> Result<bool, Fault> {
        let Some(claim) = self.claims.get_mut(&id) else { return Ok(false) };
        claim.lost.retain(|lost| lost.seq != seq);
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        let held = running.0.get(&seq).is_some_and(|run| run.is(id, attempt));
        if held {
            running.0.remove(&seq);
            claim.held.remove(&seq);
        }
        drop(running);
        if claim.held.is_empty() && claim.lost.is_empty() {
            self.claims.remove(&id);
            self.conn.prepare_cached(include_str!("claim_delete.sql"))?.execute([hex(id.0)])?;
        }
        Ok(held)
    }

    pub(super) fn wait(
        &mut self,
        queue: i64,
        job: &Job,
        transition: &Transition,
        due_at: Timestamp,
        reason: &str,
    ) -> Result<bool, Fault> {
        let Ledger { attempt, failures, crashes, snoozes, holds, interruptions, .. } = transition.ledger;
        let changed = self.conn.prepare_cached(include_str!("settle_wait.sql"))?.execute(params![
            job.seq,
            job.ledger.attempt,
            due_at.as_millis(),
            attempt,
            failures,
            crashes,
            snoozes,
            holds,
            interruptions,
            reason,
            transition.delay.map(as_millis),
            job.buried_with(&transition.ledger).map(Timestamp::as_millis),
        ])?;
        self.no_longer_running(queue, job);
        self.in_scan(queue, job.priority, due_at.as_millis(), job.seq);
        Ok(changed == 1)
    }

    /// A job becomes final.
    pub(super) fn finish(
        &mut self,
        queue: i64,
        job: &Job,
        attempt: u32,
        transition: &Transition,
        started_at: Option<Timestamp>,
    ) -> Result<bool, Fault> {
        let changed = self
            .conn
            .prepare_cached(include_str!("settle_delete.sql"))?
            .execute(params![job.seq, attempt])?;
        if changed != 1 {
            return Ok(false);
        }
        let dead = matches!(transition.state, State::Dead { .. });
        insert_done(&self.conn, job.seq, transition, started_at)?;
        if let Some(key) = job.extras().key.as_deref() {
            self.conn.prepare_cached(include_str!("key_delete.sql"))?.execute([key])?;
        }
        if started_at.is_some() {
            self.no_longer_running(queue, job);
        }
        let queue = self.queue(queue);
        queue.dead += u64::from(dead);
        let band = queue.bands.entry(job.priority).or_default();
        band.live = band.live.saturating_sub(1);
        Ok(true)
    }

    pub(super) fn no_longer_running(&mut self, queue: i64, job: &Job) {
        let state = self.queue(queue);
        state.running = state.running.saturating_sub(1);
        if let Some(key) = job.extras().ordering_key.clone()
            && let Entry::Occupied(mut jobs) = self.keys_running.entry((queue, key))
        {
            *jobs.get_mut() -= 1;
            if *jobs.get() == 0 {
                jobs.remove();
            }
        }
    }

    /// After an ending: the first of those that waited for their turn may try again.
    pub(super) fn let_next_go(&mut self, queue: i64, ordering_key: Option<&str>) -> Result<(), Fault> {
        let Some(key) = ordering_key else { return Ok(()) };
        let next: Option<i64> = {
            let mut statement = self.conn.prepare_cached(include_str!("next_held.sql"))?;
            let mut rows = statement.query(params![queue, key])?;
            rows.next()?.map(|row| row.get(0)).transpose()?
        };
        next.map_or(Ok(()), |seq| self.let_go(queue, seq))
    }

    pub(super) fn let_go(&mut self, queue: i64, seq: i64) -> Result<(), Fault> {
        let (priority, due_at) = {
            let mut statement = self.conn.prepare_cached(include_str!("let_go.sql"))?;
            statement.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?)))?
        };
        self.in_scan(queue, priority, due_at, seq);
        Ok(())
    }

    /// A row that is not what was written is set aside for a person, and never run.
    pub(super) fn bury_corrupt(
        &mut self,
        seq: i64,
        transition: Transition,
        now: Timestamp,
    ) -> Result<(), Fault> {
        self.at = self.at.max(now);
        let attempt = transition.ledger.attempt - 1;
        self.conn.prepare_cached(include_str!("settle_delete.sql"))?.execute(params![seq, attempt])?;
        self.conn.prepare_cached(include_str!("key_forget.sql"))?.execute([seq])?;
        insert_done(&self.conn, seq, &transition, None)?;
        insert_attempt(&self.conn, seq, &transition.record(now, now))?;
        self.let_execution_go(seq, now)?;
        // What it counted toward cannot be read from the row, so everything is counted again.
        tracing::error!(seq, "Job set aside: its row is not what was written");
        self.damaged = true;
        Ok(())
    }

    pub(super) fn renew(&mut self, holder: HolderId, until: Timestamp) -> Result<Renewal, Fault> {
        if !self.holders.contains_key(&holder) {
            return Ok(Renewal::Gone);
        }
        let mut statement = self.conn.prepare_cached(include_str!("holder_renew.sql"))?;
        statement.execute(params![hex(holder.0), until.as_millis()])?;
        self.holders.insert(holder, until);
        let claims = self.claims.values().filter(|claim| claim.holder == holder);
        Ok(Renewal::Kept { lost: claims.flat_map(|claim| claim.lost.iter().copied()).collect() })
    }

    pub(super) fn expired(&mut self, now: Timestamp) -> Result<Expiry, Fault> {
        let next = self.holders.values().filter(|until| **until > now).min().copied();
        let over: Vec<_> =
            self.holders.iter().filter(|(_, until)| **until <= now).map(|(h, u)| (*h, *u)).collect();
        let mut expired = Vec::new();
        for (holder, until) in over {
            let seqs: Vec<i64> = self
                .claims
                .values()
                .filter(|claim| claim.holder == holder)
                .flat_map(|claim| claim.held.iter().copied())
                .collect();
            let mut jobs = Vec::new();
            for seq in seqs {
                let Some(Run { claim, attempt, .. }) = self.run_of(seq) else { continue };
                match self.load(seq) {
                    Ok(job) => jobs.push((Lease { claim, job: job.id, seq, attempt }, job)),
                    // One damaged row must not keep what was held beside it from coming back.
                    Err(Fault::Refused(error)) if error.kind() == ErrorKind::Corrupt => {
                        let ledger = Ledger { attempt, ..Ledger::default() };
                        self.bury_corrupt(seq, machine::corrupt(ledger, now), now)?;
                    }
                    Err(fault) => return Err(fault),
                }
            }
            jobs.sort_by_key(|(lease, _)| lease.seq);
            expired.push(Expired { until, holder, jobs });
        }
        Ok(Expiry { over: expired, next })
    }

    pub(super) fn expire(
        &mut self,
        holder: HolderId,
        settlements: &[Settlement],
        now: Timestamp,
    ) -> Result<Vec<Settled>, Fault> {
        let known: BTreeMap<i64, u32> =
            settlements.iter().map(|settlement| (settlement.lease.seq, settlement.lease.attempt)).collect();
        let claims = self.claims.values().filter(|claim| claim.holder == holder);
        let mut held = claims.flat_map(|claim| claim.held.iter());
        // The same job may have been settled and claimed again since it was read.
        let more = held.any(|seq| known.get(seq).copied() != self.run_of(*seq).map(|run| run.attempt));
        if more || self.holders.get(&holder).is_none_or(|until| *until > now) {
            return Ok(vec![Settled::Refused; settlements.len()]);
        }
        let answer = self.settle(settlements)?;
        let orphans: Vec<_> =
            self.claims.iter().filter(|(_, c)| c.holder == holder).map(|(id, _)| *id).collect();
        for id in orphans {
            self.claims.remove(&id);
            self.conn.prepare_cached(include_str!("claim_delete.sql"))?.execute([hex(id.0)])?;
        }
        self.conn.prepare_cached(include_str!("holder_delete.sql"))?.execute([hex(holder.0)])?;
        self.holders.remove(&holder);
        // A holder that held nothing is no news to anyone.
        self.woke |= !settlements.is_empty();
        Ok(answer)
    }

    pub(super) fn run_of(&self, seq: i64) -> Option<Run> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).0.get(&seq).copied()
    }
}

/// It succeeded at its first attempt, which is no news, and nothing else hangs on it.
fn is_plain(job: &Job, transition: &Transition) -> bool {
    let first = Ledger { attempt: 1, ..Ledger::default() };
    let is_first = transition.ending == Ending::Succeeded && transition.ledger == first;
    let extras = job.extras();
    let stands_alone = extras.key.is_none() && extras.ordering_key.is_none() && extras.parent.is_none();
    is_first && stands_alone && !stats::came_through(job, &transition.ledger)
}

fn insert_done(
    conn: &Connection,
    seq: i64,
    transition: &Transition,
    started_at: Option<Timestamp>,
) -> Result<(), Fault> {
    let (state, why, finished_at) =
        final_columns(&transition.state).expect("only a final state is written here");
    let Ledger { attempt, failures, crashes, snoozes, holds, interruptions, generation } = transition.ledger;
    conn.prepare_cached(include_str!("settle_done.sql"))?.execute(params![
        seq,
        state,
        why,
        started_at.map(Timestamp::as_millis),
        finished_at,
        attempt,
        failures,
        crashes,
        snoozes,
        holds,
        interruptions,
        generation,
        transition.fingerprint,
        transition.output.as_ref().map(|output| output.as_str()),
    ])?;
    Ok(())
}

pub(super) fn insert_attempt(conn: &Connection, seq: i64, record: &AttemptRecord) -> Result<(), Fault> {
    let failure = record.failure.as_ref();
    conn.prepare_cached(include_str!("settle_attempt.sql"))?.execute(params![
        seq,
        record.attempt,
        record.started_at.as_millis(),
        record.ended_at.as_millis(),
        record.ending.as_str(),
        failure.map(|failure| serde_json::to_string(failure).expect("a failure can be written")),
        record.fingerprint,
        record.rule,
        record.next_at.map(Timestamp::as_millis),
    ])?;
    Ok(())
}

/// Keeps the first few attempts and the last.
pub(super) fn trim_attempts(conn: &Connection, seq: i64, newest: u32) -> Result<(), Fault> {
    if newest > HISTORY_FIRST + HISTORY_LAST {
        let mut statement = conn.prepare_cached(include_str!("trim_attempts.sql"))?;
        statement.execute(params![seq, HISTORY_FIRST, newest - HISTORY_LAST])?;
    }
    Ok(())
}

/// By which right a job is run that was claimed with a settlement.
fn under(claim: ClaimId, job: Job) -> (Lease, Job) {
    (Lease { claim, job: job.id, seq: job.seq, attempt: job.ledger.attempt }, job)
}
