//! Jobs are handed out. The write transaction is the lock; one row is written for a whole batch, and no job row. What
//! the jobs are is read afterwards and elsewhere, so that the writer is free for the next batch.

use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};

use rusqlite::{Connection, Row, params};

use super::Fault;
use super::codec::{Names, Standing, hex};
use super::core::{ClaimState, Core, Run, SharedRunning};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::job::Job;
use crate::machine;
use crate::queue::OnRetry;
use crate::store::{Claim, ClaimId, HolderId, Kinds, Lease, Want};

/// A claim that only meets jobs which must wait for their turn stops here, so that it stays short.
const HELD_PER_CLAIM_MAX: usize = 1_000;

/// What the writer has handed out.
pub(super) struct Taken {
    pub(super) jobs: Vec<Place>,
    pub(super) next_due: Option<Timestamp>,
}

/// One of them: where it stands, and by which claim.
#[derive(Clone, Copy)]
pub(super) struct Place {
    claim: ClaimId,
    standing: Standing,
}

/// What a claim is taking.
pub(super) struct Taking {
    holder: HolderId,
    pub(super) now: Timestamp,
    batch: ClaimId,
    alone: ClaimId,
    /// Whether a job that crashed before may still be taken.
    pub(super) suspect: bool,
    pub(super) kinds: Option<Kinds>,
    jobs: Vec<Place>,
}

/// What the scan has found.
pub(super) struct Found {
    pub(super) standing: Standing,
    ordering_key: Option<Arc<str>>,
    pub(super) destination: Option<Arc<str>>,
    /// Whether it is of a kind that is asked for.
    pub(super) is_asked_for: bool,
}

impl Found {
    pub(super) fn read(row: &Row<'_>, kinds: &Option<Kinds>) -> rusqlite::Result<Found> {
        let name = |column| -> rusqlite::Result<Option<Arc<str>>> {
            Ok(row.get_ref(column)?.as_str_or_null().ok().flatten().map(Into::into))
        };
        let (ordering_key, destination) = (name(13)?, name(14)?);
        let is_asked_for = is_asked_for(kinds, row, 15)?;
        Ok(Found { standing: Standing::read(row)?, ordering_key, destination, is_asked_for })
    }

    pub(super) fn seq(&self) -> i64 {
        self.standing.seq
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.standing.ledger.crashes > 0
    }
}

/// Whether what stands in this column is one of the kinds that are asked for.
fn is_asked_for(kinds: &Option<Kinds>, row: &Row<'_>, column: usize) -> rusqlite::Result<bool> {
    let Some(kinds) = kinds else { return Ok(true) };
    let kind = row.get_ref(column)?.as_str()?;
    Ok(kinds.iter().any(|known| **known == *kind))
}

impl Core {
    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Taken, Fault> {
        if !self.holders.contains_key(&claim.holder) {
            return Err(Error::new(ErrorKind::LeaseLost, "this holder has expired and may claim nothing")
                .with_hint("register again under a new id")
                .into());
        }
        self.asks_for(&claim.kinds);
        if claim.ids.iter().any(|id| self.claims.contains_key(id)) {
            return self.claimed_before(claim, now);
        }
        if self.held {
            return Ok(Taken { jobs: Vec::new(), next_due: None });
        }
        let [batch, alone] = claim.ids;
        let (holder, suspect, kinds) = (claim.holder, claim.suspect, claim.kinds.clone());
        let mut taking = Taking { holder, now, batch, alone, suspect, kinds, jobs: Vec::new() };
        for want in &claim.wants {
            self.take_for(want, &mut taking)?;
        }
        let mut next_due = None;
        for want in &claim.wants {
            let next = self.next_due(want, &taking.kinds, taking.suspect)?;
            next_due = next_due.into_iter().chain(next).min();
        }
        self.write_claims(&taking)?;
        Ok(Taken { jobs: taking.jobs, next_due })
    }

    /// The answer to the same claim was lost: it is given again.
    fn claimed_before(&mut self, claim: &Claim, now: Timestamp) -> Result<Taken, Fault> {
        let mut held: Vec<(i64, ClaimId)> = Vec::new();
        for id in claim.ids {
            if let Some(known) = self.claims.get(&id).filter(|known| known.holder == claim.holder) {
                held.extend(known.held.iter().map(|seq| (*seq, id)));
            }
        }
        held.sort_unstable();
        let mut statement = self.conn.prepare_cached(include_str!("claimed_before.sql"))?;
        let places = held
            .into_iter()
            .map(|(seq, claim)| Ok(Place { claim, standing: statement.query_row([seq], Standing::read)? }));
        Ok(Taken { jobs: places.collect::<Result<_, Fault>>()?, next_due: Some(now) })
    }

    fn take_for(&mut self, want: &Want, taking: &mut Taking) -> Result<(), Fault> {
        let Some(&queue) = self.queue_ids.get(&want.queue) else { return Ok(()) };
        let mut room = want.limit;
        self.take_expired(queue, &mut room, taking)?;
        let state = self.queue(queue);
        if state.paused {
            return Ok(());
        }
        // The lines first, but not alone: neither they nor the others are to starve.
        let mut share = room.div_ceil(2);
        room -= share;
        self.take_from_lines(queue, want.on_retry, &mut share, taking)?;
        room += share;
        let state = self.queue(queue);
        let priorities: Vec<i16> = state
            .bands
            .iter()
            .rev()
            .filter(|(_, band)| band.live > 0)
            .map(|(priority, _)| *priority)
            .collect();
        for priority in priorities {
            if room == 0 {
                break;
            }
            self.take_due(queue, priority, want.on_retry, &mut room, taking)?;
        }
        // What has just come into a line may go as well.
        self.take_from_lines(queue, want.on_retry, &mut room, taking)
    }

    fn take_expired(&mut self, queue: i64, room: &mut usize, taking: &mut Taking) -> Result<(), Fault> {
        let mut over = Vec::new();
        {
            let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
            let mut statement = self.conn.prepare_cached(include_str!("claim_expired.sql"))?;
            let mut rows = statement.query(params![queue, taking.now.as_millis()])?;
            while over.len() < *room
                && let Some(row) = rows.next()?
            {
                let found = Found::read(row, &taking.kinds)?;
                if !running.0.contains_key(&found.seq()) && (!found.is_suspect() || taking.suspect) {
                    taking.suspect &= !found.is_suspect();
                    over.push(found);
                }
            }
        }
        *room -= over.len();
        for mut found in over {
            self.leave_line(&mut found, taking.now)?;
            self.take(queue, &found, taking);
        }
        Ok(())
    }

    fn take_due(
        &mut self,
        queue: i64,
        priority: i16,
        on_retry: OnRetry,
        room: &mut usize,
        taking: &mut Taking,
    ) -> Result<(), Fault> {
        let mut cursor = self.queue(queue).bands.entry(priority).or_default().cursor(&taking.kinds);
        let (mut due, mut turns) = (Vec::new(), Vec::new());
        {
            let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
            let mut statement = self.conn.prepare_cached(include_str!("claim_due.sql"))?;
            let mut rows =
                statement.query(params![queue, priority, taking.now.as_millis(), cursor.0, cursor.1])?;
            // The cursor goes on only over what runs: what was left for later is met again.
            let mut everything = true;
            // Of those whose turn is asked for, the ones that need none.
            let mut certain = 0;
            while due.len() + certain < *room
                && turns.len() - certain < HELD_PER_CLAIM_MAX
                && let Some(row) = rows.next()?
            {
                let found = Found::read(row, &taking.kinds)?;
                let place = (found.standing.due_at, found.seq());
                if running.0.contains_key(&found.seq()) || !found.is_asked_for {
                    // It is being taken care of, or somebody else's.
                } else if found.ordering_key.is_some()
                    || !turns.is_empty()
                    || self.is_gated(found.destination.as_ref(), taking.now)
                {
                    // Whether it is its turn is asked when the scan is done, because asking may write. What comes
                    // after it is taken after it, or it would lose its place to them for ever.
                    everything = false;
                    let is_gated = self.is_gated(found.destination.as_ref(), taking.now);
                    certain += usize::from(found.ordering_key.is_none() && !is_gated && !found.is_suspect());
                    turns.push(found);
                } else if found.is_suspect() && !taking.suspect {
                    everything = false;
                } else {
                    taking.suspect &= !found.is_suspect();
                    due.push(found);
                }
                if everything {
                    cursor = place;
                }
            }
        }
        self.queue(queue).bands.entry(priority).or_default().set_cursor(&taking.kinds, cursor);
        *room -= due.len();
        due.iter().for_each(|found| self.take(queue, found, taking));
        self.take_turns(queue, turns, on_retry, room, taking)
    }

    fn take_turns(
        &mut self,
        queue: i64,
        turns: Vec<Found>,
        on_retry: OnRetry,
        room: &mut usize,
        taking: &mut Taking,
    ) -> Result<(), Fault> {
        for found in turns {
            if *room == 0 || (found.is_suspect() && !taking.suspect) {
                continue;
            }
            if self.is_its_turn(queue, &found, on_retry, taking.now)? {
                if !self.passes(queue, &found, taking.now)? {
                    continue;
                }
                *room -= 1;
                taking.suspect &= !found.is_suspect();
                self.take(queue, &found, taking);
            } else {
                self.conn.prepare_cached(include_str!("hold.sql"))?.execute([found.seq()])?;
            }
        }
        Ok(())
    }

    /// Whether its ordering key lets it go.
    pub(super) fn is_its_turn(
        &mut self,
        queue: i64,
        found: &Found,
        on_retry: OnRetry,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let Some(key) = found.ordering_key.clone() else { return Ok(true) };
        let before = {
            let mut statement = self.conn.prepare_cached(include_str!("before_in_order.sql"))?;
            let mut rows = statement.query(params![queue, &*key, found.seq()])?;
            let mut before = None;
            while before.is_none()
                && let Some(row) = rows.next()?
            {
                let blocks = on_retry == OnRetry::Block || row.get::<_, i64>(1)? <= now.as_millis();
                before =
                    if blocks { Some((row.get::<_, i64>(0)?, row.get::<_, i64>(2)? != 0)) } else { None };
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

    pub(super) fn take(&mut self, queue: i64, found: &Found, taking: &mut Taking) {
        let seq = found.seq();
        let claim = if found.is_suspect() { taking.alone } else { taking.batch };
        let run = Run { claim, attempt: found.standing.ledger.attempt, since: taking.now };
        self.runs(queue, seq, taking.holder, run);
        if let Some(key) = found.ordering_key.clone() {
            *self.keys_running.entry((queue, key)).or_default() += 1;
        }
        taking.jobs.push(Place { claim, standing: found.standing });
    }

    /// Notes that a job runs. Its claim is still to be written.
    pub(super) fn runs(&mut self, queue: i64, seq: i64, holder: HolderId, run: Run) {
        self.claims.entry(run.claim).or_insert_with(|| ClaimState::of(holder)).held.insert(seq);
        self.running.write().unwrap_or_else(PoisonError::into_inner).0.insert(seq, run);
        self.queue(queue).running += 1;
    }

    fn write_claims(&mut self, taking: &Taking) -> Result<(), Fault> {
        for id in [taking.batch, taking.alone] {
            let places = taking.jobs.iter().filter(|place| place.claim == id);
            let jobs = places.map(|place| (place.standing.seq, place.standing.ledger.attempt)).collect();
            self.write_claim(id, taking.holder, taking.now, jobs)?;
        }
        Ok(())
    }

    /// One row for a whole batch; none for nothing.
    pub(super) fn write_claim(
        &mut self,
        id: ClaimId,
        holder: HolderId,
        at: Timestamp,
        jobs: Vec<(i64, u32)>,
    ) -> Result<(), Fault> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut listed = String::from("[");
        for (seq, attempt) in jobs {
            let comma = if listed.len() > 1 { "," } else { "" };
            write!(listed, "{comma}[{seq},{attempt}]").expect("writing to a string");
        }
        listed.push(']');
        let mut statement = self.conn.prepare_cached(include_str!("claim_insert.sql"))?;
        statement.execute(params![hex(id.0), hex(holder.0), at.as_millis(), listed])?;
        Ok(())
    }

    /// When the next job that does not run will be due or out of time.
    fn next_due(
        &self,
        want: &Want,
        kinds: &Option<Kinds>,
        suspect: bool,
    ) -> Result<Option<Timestamp>, Fault> {
        let Some(&id) = self.queue_ids.get(&want.queue) else { return Ok(None) };
        let Some(queue) = self.queues.get(&id) else { return Ok(None) };
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let mut next = None;
        if !queue.paused {
            next = self.next_from_lines(id).map(Timestamp::as_millis);
            let mut statement = self.conn.prepare_cached(include_str!("next_due.sql"))?;
            for (priority, band) in queue.bands.iter().filter(|(_, band)| band.live > 0) {
                let cursor = band.cursor(kinds);
                let mut rows = statement.query(params![id, priority, cursor.0, cursor.1])?;
                while let Some(row) = rows.next()? {
                    let free = suspect || row.get::<_, u32>(2)? == 0;
                    if free && !running.0.contains_key(&row.get(1)?) && is_asked_for(kinds, row, 3)? {
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

    /// Claimed jobs turned out not to be what was written: they are set aside for a person, and never run.
    pub(super) fn set_aside(&mut self, corrupt: &[Place], now: Timestamp) -> Result<(), Fault> {
        for Place { claim, standing } in corrupt {
            if self.strike_off(*claim, standing.seq, standing.ledger.attempt)? {
                self.bury_corrupt(standing.seq, machine::corrupt(standing.ledger, now), now)?;
            }
        }
        Ok(())
    }
}

/// What was claimed, and what turned out not to be what was written.
pub(super) struct Read {
    pub(super) jobs: Vec<(Lease, Job)>,
    pub(super) corrupt: Vec<Place>,
}

/// Reads what the claimed jobs are. One that was taken away meanwhile is left out.
pub(super) fn read(
    conn: &Connection,
    names: &mut Names,
    running: &SharedRunning,
    places: &[Place],
) -> Result<Read, Fault> {
    let seqs: Vec<i64> = places.iter().map(|place| place.standing.seq).collect();
    let listed = serde_json::to_string(&seqs).expect("numbers can be written");
    let mut read = Read { jobs: Vec::with_capacity(places.len()), corrupt: Vec::new() };
    let mut statement = conn.prepare_cached(include_str!("claimed_jobs.sql"))?;
    let mut rows = statement.query([listed])?;
    let mut next = rows.next()?;
    for place in places {
        let Place { claim, standing } = *place;
        let found = next.filter(|row| row.get::<_, i64>(0) == Ok(standing.seq));
        match found.map(|row| names.job(conn, row, 1, standing)).transpose()?.flatten() {
            Some(job) => {
                let attempt = standing.ledger.attempt;
                read.jobs.push((Lease { claim, job: job.id, seq: standing.seq, attempt }, job));
            }
            None => read.corrupt.push(*place),
        }
        if found.is_some() {
            next = rows.next()?;
        }
    }
    let running = running.read().unwrap_or_else(PoisonError::into_inner);
    read.jobs
        .retain(|(lease, _)| running.0.get(&lease.seq).is_some_and(|run| run.is(lease.claim, lease.attempt)));
    Ok(read)
}

impl ClaimState {
    fn of(holder: HolderId) -> ClaimState {
        ClaimState { holder, held: Default::default(), lost: Vec::new() }
    }
}
