//! Destinations: a due job that its gate does not let go stands in its destination's line, outside the due scan, until a
//! claim takes it from there.
//!
//! `held` says where a job that waits stands: 0 in the due scan, 1 behind another of its ordering key, 2 in the line as a
//! first attempt, 3 in the line as a retry. The line goes by that, so first attempts come first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::claim::{Found, Taking};
use super::core::Core;
use super::{Fault, SqliteStore};
use crate::clock::Timestamp;
use crate::error::Result as Answer;
use crate::gate::{Change, Gate, Gates, Report, Rules, Seen, Word};
use crate::job::JobId;
use crate::queue::OnRetry;
use crate::stats::Activity;
use crate::store::{Destination, Destinations, Kinds, Observed};

/// Shared with whoever reports that all is well, which is no work for the writer.
pub(super) type SharedGates = Arc<Mutex<Gates>>;

/// A line that may not be empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// When its gate may let the next one go; none if that depends on an ending.
    next_at: Option<Timestamp>,
}

/// By queue and destination.
pub(super) type Lines = BTreeMap<(i64, Arc<str>), Line>;

pub(super) fn lock(gates: &SharedGates) -> MutexGuard<'_, Gates> {
    gates.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Reads what was written of gates, and where lines are.
    pub(super) fn load_gates(&mut self) -> Result<(), Fault> {
        let mut known = BTreeMap::new();
        let mut statement = self.conn.prepare_cached(include_str!("load_gates.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (name, gate) = read_gate(row)?;
            known.insert(name, gate);
        }
        lock(&self.gates).load(known);
        self.lines.clear();
        let mut statement = self.conn.prepare_cached(include_str!("load_lines.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.lines.insert((row.get(0)?, row.get::<_, String>(1)?.into()), Line::default());
        }
        Ok(())
    }

    /// Once for a whole transaction.
    pub(super) fn write_gates(&mut self) -> Result<(), Fault> {
        let changed = lock(&self.gates).take_changed();
        for (name, gate) in changed {
            let Some(gate) = gate else {
                self.conn.prepare_cached("DELETE FROM redrive_gates WHERE name = ?1")?.execute([&*name])?;
                continue;
            };
            let state = serde_json::to_string(&gate).expect("a gate can be written");
            let mut put = self.conn.prepare_cached(include_str!("gate_put.sql"))?;
            put.execute(params![&*name, state, gate.counts.next_us, gate.counts.retry_us, gate.counts.sent])?;
        }
        Ok(())
    }

    pub(super) fn is_gated(&self, destination: Option<&Arc<str>>, now: Timestamp) -> bool {
        destination.is_some_and(|to| lock(&self.gates).is_gated(to, now))
    }

    /// Whether its gate lets it go at once. If others stand in line before it, or the gate does not, it joins them.
    pub(super) fn passes(&mut self, queue: i64, found: &Found, now: Timestamp) -> Result<bool, Fault> {
        let Some(to) = found.destination.clone().filter(|to| lock(&self.gates).is_gated(to, now)) else {
            return Ok(true);
        };
        let is_retry = found.standing.ledger.failures > 0;
        let goes = !self.lines.contains_key(&(queue, to.clone()))
            && self.has_place(&to)?
            && lock(&self.gates).pass(&to, is_retry, now);
        if !goes {
            let mut statement =
                self.conn.prepare_cached("UPDATE redrive_live SET held = ?2 WHERE seq = ?1")?;
            statement.execute(params![found.seq(), 2 + i64::from(is_retry)])?;
            self.lines.insert((queue, to), Line { next_at: Some(now) });
        }
        Ok(goes)
    }

    /// Whether one more call may be under way.
    fn has_place(&self, to: &str) -> Result<bool, Fault> {
        let Some(places) = lock(&self.gates).places(to) else { return Ok(true) };
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let mut statement =
            self.conn.prepare_cached("SELECT destination FROM redrive_live WHERE seq = ?1")?;
        let mut calls = 0;
        for seq in running.0.keys() {
            let is_there =
                statement.query_row([seq], |row| Ok(row.get_ref(0)?.as_str_or_null()? == Some(to)));
            calls += u32::from(is_there?);
            if calls >= places {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets go what gates allow, line after line, `room` at most.
    pub(super) fn take_from_lines(
        &mut self,
        queue: i64,
        on_retry: OnRetry,
        room: &mut usize,
        taking: &mut Taking,
    ) -> Result<(), Fault> {
        let ready = |line: &Line| line.next_at.is_none_or(|at| at <= taking.now);
        let lines = self.lines.range((queue, "".into())..(queue + 1, "".into()));
        let mut names: Vec<Arc<str>> =
            lines.filter(|(_, line)| ready(line)).map(|((_, name), _)| name.clone()).collect();
        let count = names.len();
        // In turns: with whoever comes after the last that went.
        let last = self.line_turns.get(&queue);
        let behind = names.partition_point(|name| last.is_some_and(|last| name <= last));
        names.rotate_left(behind);
        for (index, name) in names.into_iter().enumerate() {
            if *room == 0 {
                break;
            }
            // Each gets its share, and what the ones before it left.
            let most = (*room / (count - index)).max(1);
            let mut share = most;
            self.take_from_line(queue, &name, on_retry, &mut share, taking)?;
            *room -= most - share;
            if share < most {
                self.line_turns.insert(queue, name);
            }
        }
        Ok(())
    }

    fn take_from_line(
        &mut self,
        queue: i64,
        to: &Arc<str>,
        on_retry: OnRetry,
        room: &mut usize,
        taking: &mut Taking,
    ) -> Result<(), Fault> {
        let key = (queue, to.clone());
        // One more than may go, to know whether there is one.
        let most = lock(&self.gates).room(to, taking.now).saturating_add(1).min(*room);
        let found = self.first_in_line(queue, to, most, &taking.kinds)?;
        let is_all = found.len() < most;
        let before = *room;
        let mut blocked = None;
        let mut left = false;
        for mut found in found {
            if (found.is_suspect() && !taking.suspect) || !found.is_asked_for {
                left = true;
                continue;
            }
            if !self.is_its_turn(queue, &found, on_retry, taking.now)? {
                self.conn.prepare_cached(include_str!("hold.sql"))?.execute([found.seq()])?;
                continue;
            }
            let is_retry = found.standing.ledger.failures > 0;
            let has_place = self.has_place(to)?;
            if !has_place || !lock(&self.gates).pass(to, is_retry, taking.now) {
                blocked = has_place.then(|| lock(&self.gates).next_at(to, is_retry, taking.now));
                left = true;
                break;
            }
            self.leave_line(&mut found, taking.now)?;
            *room -= 1;
            taking.suspect &= !found.is_suspect();
            self.take(queue, &found, taking);
        }
        if is_all && !left {
            self.lines.remove(&key);
        } else {
            // What was passed over waits for an ending, or for somebody else; behind it there may be more.
            let more = (!is_all && *room < before).then_some(taking.now);
            self.lines.insert(key, Line { next_at: blocked.or(more) });
        }
        Ok(())
    }

    /// What runs stands in no line.
    pub(super) fn leave_line(&self, found: &mut Found, now: Timestamp) -> Result<(), Fault> {
        if found.destination.is_some() {
            let mut statement = self.conn.prepare_cached(include_str!("line_leave.sql"))?;
            if statement.execute([found.seq(), now.as_millis()])? == 1 {
                found.standing.leave_line(now);
            }
        }
        Ok(())
    }

    fn first_in_line(
        &self,
        queue: i64,
        to: &str,
        limit: usize,
        kinds: &Option<Kinds>,
    ) -> Result<Vec<Found>, Fault> {
        let mut statement = self.conn.prepare_cached(include_str!("line.sql"))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = statement.query_map(params![to, queue, limit], |row| Found::read(row, kinds))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// When a gate will let something go that waits in a line of this queue.
    pub(super) fn next_from_lines(&self, queue: i64) -> Option<Timestamp> {
        let lines = self.lines.range((queue, "".into())..(queue + 1, "".into()));
        lines.filter_map(|(_, line)| line.next_at).min()
    }

    fn observe(&mut self, reports: &[Report], now: Timestamp) -> Result<Observed, Fault> {
        let mut observed = Observed::default();
        for report in reports {
            let (blame, change) = lock(&self.gates).observe(report, now);
            self.gate_changed(&report.destination, report.job, change.as_ref())?;
            observed.blames.push(blame);
            observed.changes.extend(change);
        }
        Ok(observed)
    }

    pub(super) fn tell(
        &mut self,
        to: &Arc<str>,
        word: Word,
        now: Timestamp,
    ) -> Result<Option<Change>, Fault> {
        let change = lock(&self.gates).tell(to, word, now);
        self.gate_changed(to, JobId::default(), change.as_ref())?;
        Ok(change)
    }

    fn gate_changed(&mut self, to: &Arc<str>, job: JobId, change: Option<&Change>) -> Result<(), Fault> {
        // Whatever was said about when to look again is no longer so.
        for ((_, name), line) in &mut self.lines {
            if name == to {
                *line = Line { next_at: Some(Timestamp::EPOCH) };
                self.woke = true;
            }
        }
        let news = change.filter(|change| change.is_news());
        self.note(news.map(|change| Activity::changed(job, change)))
    }

    /// Limits are others from now on.
    fn look_at_lines(&mut self) {
        self.lines.values_mut().for_each(|line| line.next_at = Some(Timestamp::EPOCH));
        self.woke = true;
    }
}

fn read_gate(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Arc<str>, Gate)> {
    let state: String = row.get(1)?;
    // One that cannot be read is as one that was never there: it learns anew.
    let mut gate: Gate = serde_json::from_str(&state).unwrap_or_default();
    gate.counts.next_us = row.get(2)?;
    gate.counts.retry_us = row.get(3)?;
    gate.counts.sent = row.get(4)?;
    Ok((row.get::<_, String>(0)?.into(), gate))
}

fn held(conn: &Connection, name: &str) -> Result<u64, Fault> {
    let mut statement = conn.prepare_cached(include_str!("line_count.sql"))?;
    Ok(u64::try_from(statement.query_row([name], |row| row.get::<_, i64>(0))?).unwrap_or(0))
}

#[async_trait]
impl Destinations for SqliteStore {
    fn limit(&self, rules: Arc<Rules>) {
        lock(&self.gates).limit(rules);
        self.writer.send(|core| {
            core.look_at_lines();
            Ok(())
        });
    }

    fn rules(&self) -> Arc<Rules> {
        lock(&self.gates).rules()
    }

    async fn observe(&self, reports: &[Report], now: Timestamp) -> Answer<Observed> {
        let is_no_news = {
            let gates = lock(&self.gates);
            reports.iter().all(|report| report.seen == Seen::Well && gates.get(&report.destination).is_none())
        };
        if is_no_news {
            return Ok(Observed {
                blames: vec![crate::gate::Blame::Job; reports.len()],
                changes: Vec::new(),
            });
        }
        let reports = reports.to_vec();
        self.writer.call(move |core| core.observe(&reports, now)).await
    }

    async fn tell(&self, destination: &str, word: Word, now: Timestamp) -> Answer<Option<Change>> {
        let to: Arc<str> = destination.into();
        self.writer.call(move |core| core.tell(&to, word, now)).await
    }

    async fn list(&self, _now: Timestamp) -> Answer<Vec<Destination>> {
        let (known, rules) = {
            let gates = lock(&self.gates);
            let known: Vec<_> = gates.iter().map(|(name, gate)| (name.clone(), gate.clone())).collect();
            (known, gates.rules())
        };
        self.look(move |conn, _, _| {
            let mut found = Vec::with_capacity(known.len());
            for (name, gate) in &known {
                let (limits, held) = (rules.of(name), held(conn, name)?);
                found.push(Destination { name: name.clone(), gate: gate.clone(), limits, held });
            }
            Ok(found)
        })
        .await
    }
}
