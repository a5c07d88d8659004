//! The operators' side, in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use super::world::World;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::gate::Change;
use crate::job::{Job, JobId, Json, State};
use crate::machine::Command;
use crate::operate::{
    AUDIT_MAX, Audit, AuditFilter, EDITS_MAX, Edit, EditRecord, MINUTE, NOTICES_MAX, Notice, Point, Setting,
    Steps, Turn, is_retry,
};
use crate::stats::Tally;
use crate::store::Filter;
use crate::store::operations::{Operations, not_there};

/// What is kept for operators.
#[derive(Debug, Default)]
pub(super) struct Books {
    minutes: BTreeMap<Timestamp, Point>,
    audit: Vec<(i64, Audit)>,
    notices: Vec<(i64, Notice)>,
    pub(super) held: bool,
    last: i64,
}

impl Books {
    /// Counts what happened at this time.
    pub(super) fn count(&mut self, at: Timestamp, news: &Tally) {
        let minute = Steps::before(at, MINUTE, MINUTE).from;
        let point = self.minutes.entry(minute).or_insert(Point { at: minute, ..Point::default() });
        add(point, news);
    }

    fn next(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    fn enter(&mut self, entry: &Audit) {
        match self.audit.iter_mut().find(|(_, there)| there.id == entry.id) {
            Some((_, there)) => *there = entry.clone(),
            None => {
                let place = self.next();
                self.audit.push((place, entry.clone()));
                keep_last(&mut self.audit, AUDIT_MAX);
            }
        }
    }
}

fn add(point: &mut Point, news: &Tally) {
    point.enqueued += news.enqueued;
    point.succeeded += news.succeeded;
    point.failed += news.failures;
    point.dead += news.dead;
}

fn keep_last<T>(list: &mut Vec<T>, most: i64) {
    let excess = list.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
    list.drain(..excess);
}

impl World {
    pub(super) fn keep(&mut self, shelf: &str, name: &str, value: Option<Json>) {
        let place = (shelf.to_owned(), name.to_owned());
        match value {
            Some(value) => self.records.insert(place, value),
            None => self.records.remove(&place),
        };
    }

    pub(super) fn pause(&mut self, queue: &str, paused: bool) {
        if paused {
            self.paused.insert(queue.into());
        } else {
            self.paused.remove(queue);
        }
        self.totals.entry(queue.into()).or_default();
    }

    fn corrected(&mut self, id: JobId, edit: &Edit, now: Timestamp) -> Result<Job> {
        let row = self.by_id.get(&id).and_then(|seq| self.rows.get_mut(seq)).ok_or_else(|| not_there(id))?;
        let (next, before) = edit.apply(&row.job, now)?;
        (row.job, row.in_line) = (next.clone(), false);
        row.edits.push(before);
        keep_last(&mut row.edits, EDITS_MAX);
        let note = crate::stats::Activity::edited(&next, &edit.by, now);
        self.activity.push(note);
        self.bound_activity();
        Ok(next)
    }
}

#[async_trait]
impl Operations for MemoryStore {
    async fn series(&self, steps: Steps) -> Result<Vec<Point>> {
        let mut points: BTreeMap<Timestamp, Point> = BTreeMap::new();
        for minute in self.world().books.minutes.values() {
            let Some(at) = steps.start_of(minute.at) else { continue };
            let Point { enqueued, succeeded, failed, dead, .. } = *minute;
            let point = points.entry(at).or_insert(Point { at, ..Point::default() });
            add(point, &Tally { enqueued, succeeded, failures: failed, dead, ..Tally::default() });
        }
        Ok(points.into_values().collect())
    }

    async fn retries_due(&self, steps: Steps, _most: usize) -> Result<Vec<(Timestamp, u64)>> {
        let mut due: BTreeMap<Timestamp, u64> = BTreeMap::new();
        for row in self.world().rows.values().filter(|row| row.claim.is_none() && is_retry(&row.job)) {
            let State::Waiting { due_at, .. } = row.job.state else { continue };
            if let Some(at) = steps.start_of(due_at) {
                *due.entry(at).or_default() += 1;
            }
        }
        Ok(due.into_iter().collect())
    }

    async fn retries(&self, after: Option<Turn>, limit: usize) -> Result<Vec<(Turn, JobId)>> {
        let world = self.world();
        let waiting = world.rows.values().filter(|row| row.claim.is_none());
        let turns = waiting.filter_map(|row| Some((Turn::of_retry(&row.job)?, row.job.id)));
        let mut turns: Vec<_> = turns.filter(|(turn, _)| after.is_none_or(|after| *turn > after)).collect();
        turns.sort_unstable();
        turns.truncate(limit);
        Ok(turns)
    }

    async fn audit(&self, entry: &Audit) -> Result<()> {
        self.world().books.enter(entry);
        Ok(())
    }

    async fn apply_audited(
        &self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
        entry: &Audit,
    ) -> Result<Vec<JobId>> {
        let mut world = self.world();
        let done = world.apply(command, to, limit, now);
        if !done.is_empty() {
            world.books.enter(entry);
        }
        drop(world);
        self.changed();
        Ok(done)
    }

    async fn set_audited(&self, setting: &Setting, now: Timestamp, entry: &Audit) -> Result<Option<Change>> {
        let mut world = self.world();
        let mut change = None;
        match setting {
            Setting::Queue { name, paused } => world.pause(name, *paused),
            Setting::Held(held) => world.books.held = *held,
            Setting::Destination { name, word } => change = world.tell(name, *word, now),
            Setting::Record { shelf, name, value } => world.keep(shelf, name, value.clone()),
        }
        world.books.enter(entry);
        drop(world);
        self.changed();
        Ok(change)
    }

    async fn audited(&self, filter: &AuditFilter) -> Result<Vec<(i64, Audit)>> {
        let world = self.world();
        let matching = world.books.audit.iter().rev().filter(|(place, entry)| {
            filter.before.is_none_or(|before| *place < before)
                && filter.job.is_none_or(|job| entry.job == Some(job))
        });
        Ok(matching.take(filter.limit).cloned().collect())
    }

    async fn notice(&self, notice: &Notice) -> Result<Option<i64>> {
        let mut world = self.world();
        let books = &mut world.books;
        if books.notices.iter().any(|(_, there)| there.key == notice.key) {
            return Ok(None);
        }
        let place = books.next();
        books.notices.push((place, notice.clone()));
        keep_last(&mut books.notices, NOTICES_MAX);
        Ok(Some(place))
    }

    async fn notices(&self, after: i64, limit: usize) -> Result<Vec<(i64, Notice)>> {
        let world = self.world();
        let newer: Vec<_> = world.books.notices.iter().filter(|(place, _)| *place > after).collect();
        Ok(newer.into_iter().rev().take(limit).rev().cloned().collect())
    }

    async fn edit(&self, id: JobId, edit: &Edit, now: Timestamp, entry: Option<&Audit>) -> Result<Job> {
        let mut world = self.world();
        let job = world.corrected(id, edit, now)?;
        if let Some(entry) = entry {
            world.books.enter(entry);
        }
        drop(world);
        self.changed();
        Ok(job)
    }

    async fn edits(&self, id: JobId) -> Result<Vec<EditRecord>> {
        let world = self.world();
        let row = world.by_id.get(&id).and_then(|seq| world.rows.get(seq));
        Ok(row.map(|row| row.edits.clone()).unwrap_or_default())
    }

    async fn hold(&self, held: bool) -> Result<()> {
        self.world().books.held = held;
        self.changed();
        Ok(())
    }

    async fn is_held(&self) -> Result<bool> {
        Ok(self.world().books.held)
    }
}
