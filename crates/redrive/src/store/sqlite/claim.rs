//! Jobs are handed out. The write transaction is the lock; one row is written for a whole batch, and no job row.

use std::fmt::Write as _;
use std::sync::PoisonError;

use rusqlite::params;

use super::Fault;
use super::codec::{hex, ledger};
use super::core::{ClaimState, Core, Run};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::job::Job;
use crate::machine;
use crate::queue::OnRetry;
use crate::store::{Claim, ClaimId, Claimed, HolderId, Lease, Want};

/// A claim that only meets jobs which must wait for their turn stops here, so that it stays short.
const HELD_PER_CLAIM_MAX: usize = 1_000;

/// What a claim is taking.
struct Taking {
    holder: HolderId,
    now: Timestamp,
    batch: ClaimId,
    alone: ClaimId,
    /// Whether a job that crashed before may still be taken.
    suspect: bool,
    jobs: Vec<(Lease, Job)>,
    held: usize,
}

impl Core {
    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Claimed, Fault> {
        if !self.holders.contains_key(&claim.holder) {
            return Err(Error::new(ErrorKind::LeaseLost, "this holder has expired and may claim nothing")
                .with_hint("register again under a new id")
                .into());
        }
        if claim.ids.iter().any(|id| self.claims.contains_key(id)) {
            return self.claimed_before(claim, now);
        }
        let [batch, alone] = claim.ids;
        let jobs = Vec::with_capacity(claim.wants.iter().map(|want| want.limit).sum::<usize>().min(4_096));
        let mut taking =
            Taking { holder: claim.holder, now, batch, alone, suspect: claim.suspect, jobs, held: 0 };
        for want in &claim.wants {
            self.take_for(want, &mut taking)?;
        }
        let mut next_due = None;
        for want in &claim.wants {
            let next = self.next_due(want, taking.suspect)?;
            next_due = next_due.into_iter().chain(next).min();
        }
        self.write_claims(&taking)?;
        Ok(Claimed { jobs: taking.jobs, next_due })
    }

    fn claimed_before(&mut self, claim: &Claim, now: Timestamp) -> Result<Claimed, Fault> {
        let known = claim.ids.iter().filter_map(|id| self.claims.get(id));
        let held: Vec<i64> = known
            .filter(|known| known.holder == claim.holder)
            .flat_map(|known| known.held.iter().copied())
            .collect();
        let mut jobs = Vec::new();
        for seq in held {
            let Some(Run { lease, .. }) = self.run_of(seq) else { continue };
            jobs.push((lease, self.load(seq)?));
        }
        jobs.sort_by_key(|(lease, _)| lease.seq);
        Ok(Claimed { jobs, next_due: Some(now) })
    }

    fn take_for(&mut self, want: &Want, taking: &mut Taking) -> Result<(), Fault> {
        let Some(&queue) = self.queue_ids.get(&want.queue) else { return Ok(()) };
        let mut room = want.limit;
        self.take_expired(queue, &mut room, taking)?;
        if self.queue(queue).paused {
            return Ok(());
        }
        let priorities: Vec<i16> =
            self.queue(queue).bands.iter().rev().filter(|(_, b)| b.live > 0).map(|(p, _)| *p).collect();
        for priority in priorities {
            if room == 0 {
                break;
            }
            self.take_due(queue, priority, want.on_retry, &mut room, taking)?;
        }
        Ok(())
    }

    fn take_expired(&mut self, queue: i64, room: &mut usize, taking: &mut Taking) -> Result<(), Fault> {
        let now = taking.now.as_millis();
        let found = self.read_jobs(include_str!("claim_expired.sql"), &[&queue, &now], *room, taking)?;
        for job in found {
            *room -= 1;
            taking.suspect &= !job.is_suspect();
            self.take(queue, job, taking);
        }
        Ok(())
    }

    /// Reads jobs that do not run, and sets aside those that are not what was written.
    fn read_jobs(
        &mut self,
        sql: &str,
        arguments: &[&dyn rusqlite::ToSql],
        limit: usize,
        taking: &Taking,
    ) -> Result<Vec<Job>, Fault> {
        let mut suspect = taking.suspect;
        let mut jobs = Vec::new();
        let mut corrupt = Vec::new();
        {
            let Core { conn, names, running, .. } = self;
            let running = running.read().unwrap_or_else(PoisonError::into_inner);
            let mut statement = conn.prepare_cached(sql)?;
            let mut rows = statement.query(arguments)?;
            while jobs.len() < limit
                && let Some(row) = rows.next()?
            {
                let seq: i64 = row.get(0)?;
                if running.0.contains_key(&seq) || (row.get::<_, u32>(4)? > 0 && !suspect) {
                    continue;
                }
                match names.job(conn, row)? {
                    Some(job) => {
                        suspect &= !job.is_suspect();
                        jobs.push(job);
                    }
                    None => corrupt.push((seq, ledger(row, 2)?)),
                }
            }
        }
        for (seq, ledger) in corrupt {
            self.bury_corrupt(seq, machine::corrupt(ledger, taking.now), taking.now)?;
        }
        Ok(jobs)
    }

    fn take_due(
        &mut self,
        queue: i64,
        priority: i16,
        on_retry: OnRetry,
        room: &mut usize,
        taking: &mut Taking,
    ) -> Result<(), Fault> {
        let mut cursor = self.queue(queue).bands.entry(priority).or_default().cursor;
        // The cursor goes on only over what runs or is held: what was left for later is met again.
        let mut everything = true;
        let mut corrupt = Vec::new();
        let mut turns = Vec::new();
        // Of those, the ones that need no turn.
        let mut certain = 0;
        {
            let Core { conn, names, running, claims, queues, .. } = self;
            let mut running = running.write().unwrap_or_else(PoisonError::into_inner);
            let mut statement = conn.prepare_cached(include_str!("claim_due.sql"))?;
            let now = taking.now.as_millis();
            let mut rows = statement.query(params![queue, priority, now, cursor.0, cursor.1])?;
            while certain < *room
                && turns.len() - certain < HELD_PER_CLAIM_MAX
                && let Some(row) = rows.next()?
            {
                let place: (i64, i64) = (row.get(1)?, row.get(0)?);
                let suspect = row.get::<_, u32>(4)? > 0;
                if suspect && !taking.suspect && !running.0.contains_key(&place.1) {
                    everything = false;
                    continue;
                }
                if !running.0.contains_key(&place.1) {
                    match names.job(conn, row)? {
                        None => corrupt.push((place.1, ledger(row, 2)?)),
                        Some(job) if job.extras().ordering_key.is_some() || !turns.is_empty() => {
                            // Whether it is its turn is asked when the scan is done, because asking may write. What
                            // comes after it is taken after it, or it would lose its place to them for ever.
                            everything = false;
                            certain += usize::from(job.extras().ordering_key.is_none() && !suspect);
                            turns.push(job);
                            continue;
                        }
                        Some(job) => {
                            *room -= 1;
                            taking.suspect &= !suspect;
                            let id = if suspect { taking.alone } else { taking.batch };
                            let lease =
                                Lease { claim: id, job: job.id, seq: job.seq, attempt: job.ledger.attempt };
                            running.0.insert(job.seq, Run { lease, since: taking.now });
                            let holder = taking.holder;
                            claims.entry(id).or_insert_with(|| ClaimState::of(holder)).held.insert(job.seq);
                            if let Some(queue) = queues.get_mut(&queue) {
                                queue.running += 1;
                            }
                            taking.jobs.push((lease, job));
                        }
                    }
                }
                if everything {
                    cursor = place;
                }
            }
        }
        self.queue(queue).bands.entry(priority).or_default().cursor = cursor;
        for (seq, ledger) in corrupt {
            self.bury_corrupt(seq, machine::corrupt(ledger, taking.now), taking.now)?;
        }
        self.take_turns(queue, turns, on_retry, room, taking)
    }

    fn take_turns(
        &mut self,
        queue: i64,
        turns: Vec<Job>,
        on_retry: OnRetry,
        room: &mut usize,
        taking: &mut Taking,
    ) -> Result<(), Fault> {
        for job in turns {
            if *room == 0 || (job.is_suspect() && !taking.suspect) {
                continue;
            }
            if self.is_its_turn(queue, &job, on_retry, taking.now)? {
                *room -= 1;
                taking.suspect &= !job.is_suspect();
                self.take(queue, job, taking);
            } else {
                self.conn.prepare_cached(include_str!("hold.sql"))?.execute([job.seq])?;
                taking.held += 1;
            }
        }
        Ok(())
    }

    /// Whether its ordering key lets it go.
    fn is_its_turn(
        &mut self,
        queue: i64,
        job: &Job,
        on_retry: OnRetry,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let Some(key) = job.extras().ordering_key.clone() else { return Ok(true) };
        let before = {
            let mut statement = self.conn.prepare_cached(include_str!("before_in_order.sql"))?;
            let mut rows = statement.query(params![queue, &*key, job.seq])?;
            let mut before = None;
            while before.is_none()
                && let Some(row) = rows.next()?
            {
                let blocks = on_retry == OnRetry::Block || row.get::<_, i64>(1)? <= now.as_millis();
                before = blocks.then_some((row.get::<_, i64>(0)?, row.get::<_, i64>(2)? != 0));
            }
            before
        };
        if self.keys_running.contains_key(&(queue, key)) {
            return Ok(false);
        }
        // Nothing of this key runs, so nothing's ending would let the one before go.
        if let Some((seq, true)) = before {
            self.let_go(queue, seq)?;
        }
        Ok(before.is_none())
    }

    fn take(&mut self, queue: i64, job: Job, taking: &mut Taking) {
        let id = if job.is_suspect() { taking.alone } else { taking.batch };
        let lease = Lease { claim: id, job: job.id, seq: job.seq, attempt: job.ledger.attempt };
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        running.0.insert(job.seq, Run { lease, since: taking.now });
        drop(running);
        self.claims.entry(id).or_insert_with(|| ClaimState::of(taking.holder)).held.insert(job.seq);
        if let Some(key) = job.extras().ordering_key.clone() {
            *self.keys_running.entry((queue, key)).or_default() += 1;
        }
        self.queue(queue).running += 1;
        taking.jobs.push((lease, job));
    }

    fn write_claims(&mut self, taking: &Taking) -> Result<(), Fault> {
        for id in [taking.batch, taking.alone] {
            let mut listed = String::from("[");
            for (lease, _) in taking.jobs.iter().filter(|(lease, _)| lease.claim == id) {
                let comma = if listed.len() > 1 { "," } else { "" };
                write!(listed, "{comma}[{},{}]", lease.seq, lease.attempt).expect("writing to a string");
            }
            listed.push(']');
            if listed.len() > 2 {
                let mut statement = self.conn.prepare_cached(include_str!("claim_insert.sql"))?;
                statement.execute(params![
                    hex(id.0),
                    hex(taking.holder.0),
                    taking.now.as_millis(),
                    listed
                ])?;
            }
        }
        Ok(())
    }

    /// When the next job that does not run will be due or out of time.
    fn next_due(&mut self, want: &Want, suspect: bool) -> Result<Option<Timestamp>, Fault> {
        let Some(&id) = self.queue_ids.get(&want.queue) else { return Ok(None) };
        let Some(queue) = self.queues.get(&id) else { return Ok(None) };
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let mut next = None;
        if !queue.paused {
            let mut statement = self.conn.prepare_cached(include_str!("next_due.sql"))?;
            for (priority, band) in queue.bands.iter().filter(|(_, band)| band.live > 0) {
                let mut rows = statement.query(params![id, priority, band.cursor.0, band.cursor.1])?;
                while let Some(row) = rows.next()? {
                    let free = suspect || row.get::<_, u32>(2)? == 0;
                    if free && !running.0.contains_key(&row.get(1)?) {
                        next = next.into_iter().chain([row.get::<_, i64>(0)?]).min();
                        break;
                    }
                }
            }
        }
        let mut statement = self.conn.prepare_cached(include_str!("next_expiry.sql"))?;
        let mut rows = statement.query([id])?;
        while let Some(row) = rows.next()? {
            let free = suspect || row.get::<_, u32>(2)? == 0;
            if free && !running.0.contains_key(&row.get(1)?) {
                next = next.into_iter().chain([row.get::<_, i64>(0)?]).min();
                break;
            }
        }
        Ok(next.map(Timestamp::from_millis))
    }
}

impl ClaimState {
    fn of(holder: HolderId) -> ClaimState {
        ClaimState { holder, held: Default::default(), lost: Vec::new() }
    }
}
