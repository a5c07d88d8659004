//! The rules, written down as directly as they can be said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::edges::Edge;
use super::operations::Books;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Gates;
use crate::job::{AttemptRecord, Job, JobId, Json, OnConflict, State};
use crate::machine::{self, Admission, Command, Steer, Transition};
use crate::operate::EditRecord;
use crate::queue::OnRetry;
use crate::stats::{ACTIVITY_MAX, Activity, Tally, Trend};
use crate::store::{
    self, Call, Claim, ClaimId, Claimed, Enqueued, Filter, Group, HISTORY_FIRST, HISTORY_LAST, HolderId, How,
    Kinds, Lease, QueueCounts, Want,
};

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) last_seq: i64,
    pub(super) rows: BTreeMap<i64, Row>,
    pub(super) by_id: BTreeMap<JobId, i64>,
    pub(super) holders: BTreeMap<HolderId, Timestamp>,
    pub(super) claims: BTreeMap<ClaimId, ClaimRow>,
    pub(super) paused: BTreeSet<Arc<str>>,
    pub(super) totals: BTreeMap<Arc<str>, Tally>,
    pub(super) activity: Vec<Activity>,
    /// By key: what was asked for, what was answered, and when.
    pub(super) calls: BTreeMap<String, (String, Vec<Enqueued>, Timestamp)>,
    pub(super) records: BTreeMap<(String, String), Json>,
    pub(super) books: Books,
    pub(super) gates: Gates,
    pub(super) edges: BTreeSet<Edge>,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) job: Job,
    pub(super) attempts: Vec<AttemptRecord>,
    pub(super) output: Option<Json>,
    pub(super) author: Option<Arc<str>>,
    /// What it was before it was corrected.
    pub(super) edits: Vec<EditRecord>,
    /// The claim that lists it at its current attempt.
    pub(super) claim: Option<ClaimId>,
    /// Whether it stands in the line of its destination.
    pub(super) in_line: bool,
}

#[derive(Debug)]
pub(super) struct ClaimRow {
    pub(super) holder: HolderId,
    /// Listed and not yet settled.
    pub(super) held: BTreeMap<i64, Lease>,
    /// Taken away, and its holder has not yet tried to settle it.
    pub(super) lost: BTreeMap<i64, Lease>,
}

impl World {
    pub(super) fn enqueue(&mut self, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.refuse_beyond_capacity(&jobs)?;
        self.refuse_conflicts(&jobs)?;
        let ties: Vec<_> = jobs.iter().map(|admission| admission.after.clone()).collect();
        let answers: Vec<_> = jobs.into_iter().map(|admission| self.enqueue_one(admission, now)).collect();
        self.tie(&answers, &ties);
        Ok(answers)
    }

    pub(super) fn enqueue_once(
        &mut self,
        call: Call,
        jobs: Vec<Admission>,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>> {
        match self.calls.get(&call.key) {
            Some((digest, ..)) if *digest != call.digest => return Err(store::call_differs(&call.key)),
            Some((_, answers, _)) => return Ok(answers.clone()),
            None => {}
        }
        let answers = self.enqueue(jobs, now)?;
        self.calls.insert(call.key, (call.digest, answers.clone(), now));
        Ok(answers)
    }

    fn refuse_beyond_capacity(&self, jobs: &[Admission]) -> Result<()> {
        for (queue, (capacity, _)) in store::coming(jobs) {
            let live =
                self.rows.values().filter(|row| row.job.queue == *queue && !row.job.state.is_final()).count();
            let new = |job: &Job| job.queue == *queue && !self.by_id.contains_key(&job.id);
            let coming = jobs.iter().filter(|other| new(&other.job)).count();
            if coming > 0 && (live + coming) as u64 > capacity {
                return Err(store::queue_full(queue, capacity));
            }
        }
        Ok(())
    }

    fn refuse_conflicts(&self, jobs: &[Admission]) -> Result<()> {
        let mut seen = BTreeSet::new();
        for admission in jobs {
            let Some(key) = &admission.job.extras().key else { continue };
            if self.by_id.contains_key(&admission.job.id) {
                continue;
            }
            let there = self.live_with_key(key);
            let twice = !seen.insert(key.clone());
            let running = there.is_some_and(|row| row.claim.is_some());
            match admission.on_conflict {
                OnConflict::Reject if there.is_some() || twice => return Err(store::key_taken(key)),
                OnConflict::Replace if running => return Err(store::key_running(key)),
                _ => {}
            }
        }
        Ok(())
    }

    fn live_with_key(&self, key: &str) -> Option<&Row> {
        self.rows
            .values()
            .find(|row| row.job.extras().key.as_deref() == Some(key) && !row.job.state.is_final())
    }

    fn enqueue_one(&mut self, admission: Admission, now: Timestamp) -> Enqueued {
        let Admission { mut job, on_conflict, history, author, .. } = admission;
        if self.by_id.contains_key(&job.id) {
            return Enqueued { id: job.id, how: How::Existing };
        }
        let there =
            job.extras().key.as_deref().and_then(|key| self.live_with_key(key)).map(|row| row.job.seq);
        if let Some(row) = there.and_then(|seq| self.rows.get_mut(&seq)) {
            let id = row.job.id;
            if on_conflict != OnConflict::Replace {
                return Enqueued { id, how: How::Existing };
            }
            row.job = store::replaced(&row.job, job);
            row.author = author;
            self.totals.entry(row.job.queue.clone()).or_default();
            return Enqueued { id, how: How::Replaced };
        }
        self.last_seq += 1;
        job.seq = self.last_seq;
        let id = job.id;
        let news = Tally { enqueued: 1, ..Tally::default() };
        *self.totals.entry(job.queue.clone()).or_default() += news;
        self.books.count(now, &news);
        self.by_id.insert(id, job.seq);
        let (output, edits, claim, in_line) = (None, Vec::new(), None, false);
        self.rows.insert(job.seq, Row { job, attempts: history, output, author, edits, claim, in_line });
        Enqueued { id, how: How::Created }
    }

    pub(super) fn claim(&mut self, claim: Claim, now: Timestamp) -> Result<Claimed> {
        if !self.holders.contains_key(&claim.holder) {
            return Err(Error::new(ErrorKind::LeaseLost, "this holder has expired and may claim nothing")
                .with_hint("register again under a new id"));
        }
        if claim.ids.iter().any(|id| self.claims.contains_key(id)) {
            return Ok(self.claimed_before(&claim, now));
        }
        if self.books.held {
            return Ok(Claimed::default());
        }
        let [batch, alone] = claim.ids;
        let mut claimed = Claimed::default();
        let mut suspect = claim.suspect;
        for want in &claim.wants {
            let mut taken = 0;
            for seq in self.candidates(want, &claim.kinds, now) {
                if taken == want.limit {
                    break;
                }
                let Some(row) = self.rows.get(&seq) else { continue };
                if (row.job.is_suspect() && !suspect) || !self.may_start(&row.job, want.on_retry, now) {
                    continue;
                }
                let is_suspect = row.job.is_suspect();
                if !self.passes(seq, now) {
                    continue;
                }
                let id = if is_suspect { alone } else { batch };
                suspect &= !is_suspect;
                claimed.jobs.push(self.take(seq, id, claim.holder, now));
                taken += 1;
            }
        }
        let next = |want| self.next_due(want, &claim.kinds, suspect, now);
        claimed.next_due = store::by_itself(claim.wants.iter().filter_map(next).min());
        Ok(claimed)
    }

    fn claimed_before(&self, claim: &Claim, now: Timestamp) -> Claimed {
        let mut jobs = self.held_by(claim.holder);
        jobs.retain(|(lease, _)| claim.ids.contains(&lease.claim));
        Claimed { jobs, next_due: Some(now), ..Claimed::default() }
    }

    /// What is due in the order it goes: what has run out of time first, then by priority, due time and sequence.
    fn candidates(&self, want: &Want, kinds: &Option<Kinds>, now: Timestamp) -> Vec<i64> {
        let mut found: Vec<_> = self
            .rows
            .values()
            .filter(|row| row.claim.is_none() && row.job.queue == want.queue)
            .filter_map(|row| {
                let State::Waiting { due_at, .. } = row.job.state else { return None };
                let over = row.job.buried_at().is_some_and(|at| at <= now);
                let due = due_at <= now && !self.paused.contains(&want.queue) && is_among(kinds, &row.job);
                // First attempts go before retries of the same destination.
                let behind = self.is_gated(&row.job, now) && row.job.ledger.failures > 0;
                (over || due).then_some((!over, behind, -i32::from(row.job.priority), due_at, row.job.seq))
            })
            .collect();
        found.sort();
        found.into_iter().map(|(.., seq)| seq).collect()
    }

    /// Whether its ordering key lets it go. What has run out of time will not run and needs no turn.
    fn may_start(&self, job: &Job, on_retry: OnRetry, now: Timestamp) -> bool {
        let over = job.buried_at().is_some_and(|at| at <= now);
        let Some(key) = job.extras().ordering_key.as_deref().filter(|_| !over) else { return true };
        let siblings = self.rows.values().filter(|row| {
            row.job.seq != job.seq
                && row.job.queue == job.queue
                && row.job.extras().ordering_key.as_deref() == Some(key)
        });
        !siblings.into_iter().any(|row| match row.job.state {
            State::Running { .. } => true,
            State::Waiting { due_at, .. } if row.job.seq < job.seq => match on_retry {
                OnRetry::Block => true,
                OnRetry::LetPass => due_at <= now,
            },
            _ => false,
        })
    }

    pub(super) fn take(&mut self, seq: i64, id: ClaimId, holder: HolderId, now: Timestamp) -> (Lease, Job) {
        let row = self.rows.get_mut(&seq).expect("a candidate is a row");
        let lease = Lease { claim: id, job: row.job.id, seq, attempt: row.job.ledger.attempt };
        row.claim = Some(id);
        if std::mem::take(&mut row.in_line) {
            row.job.leave_line(now);
        }
        let job = row.job.clone();
        row.job.state = State::Running { since: now };
        let claim = self.claims.entry(id).or_insert_with(|| ClaimRow {
            holder,
            held: BTreeMap::new(),
            lost: BTreeMap::new(),
        });
        claim.held.insert(seq, lease);
        (lease, job)
    }

    /// The earliest time at which something not yet claimed may be claimable. A job that waits for its turn or for
    /// its suspicion to be the only one is let go by an ending, which wakes whoever waits.
    fn next_due(
        &self,
        want: &Want,
        kinds: &Option<Kinds>,
        suspect: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let waiting = self.rows.values().filter(|row| row.claim.is_none() && row.job.queue == want.queue);
        waiting
            .filter_map(|row| {
                let State::Waiting { due_at, .. } = row.job.state else { return None };
                if row.job.is_suspect() && !suspect {
                    return None;
                }
                let free = is_among(kinds, &row.job)
                    && !self.paused.contains(&want.queue)
                    && (due_at > now || self.may_start(&row.job, want.on_retry, now));
                let due_at = free.then(|| self.passes_at(&row.job, due_at, now)).flatten();
                match (due_at, row.job.buried_at()) {
                    (Some(due_at), Some(over)) => Some(due_at.min(over)),
                    (due_at, over) => due_at.or(over),
                }
            })
            .min()
    }

    pub(super) fn held_by(&self, holder: HolderId) -> Vec<(Lease, Job)> {
        let claims = self.claims.values().filter(|claim| claim.holder == holder);
        let leases = claims.flat_map(|claim| claim.held.values());
        let mut held: Vec<_> =
            leases.filter_map(|lease| Some((*lease, self.rows.get(&lease.seq)?.job.clone()))).collect();
        held.sort_by_key(|(lease, _)| lease.seq);
        held
    }

    pub(super) fn apply(
        &mut self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
    ) -> Vec<JobId> {
        let matching: Vec<i64> =
            self.rows.iter().rev().filter(|(_, row)| row.matches(to)).map(|(s, _)| *s).collect();
        let mut done = Vec::new();
        for seq in matching {
            if done.len() == limit {
                break;
            }
            let job = self.rows[&seq].job.clone();
            match machine::steer(&job, command, now) {
                Steer::Refuse(_) => continue,
                Steer::Forget => self.forget(seq),
                Steer::To(_) if job.state.is_final() && self.key_is_taken(&job) => continue,
                Steer::To(next) => self.steer(seq, *next, now),
            }
            self.totals.entry(job.queue.clone()).or_default().steered(command);
            self.activity.extend(Activity::steered(&job, command, now));
            self.bound_activity();
            done.push(job.id);
        }
        done
    }

    /// A dead job does not hold its key, so another may have it by now.
    fn key_is_taken(&self, job: &Job) -> bool {
        job.extras().key.as_deref().is_some_and(|key| self.live_with_key(key).is_some())
    }

    fn steer(&mut self, seq: i64, next: Job, now: Timestamp) {
        let row = self.rows.get_mut(&seq).expect("what matched is a row");
        let State::Running { since } = row.job.state else {
            (row.output, row.in_line) = (None, false);
            let brought_back = row.job.state.is_final();
            row.job = next;
            self.let_go(seq, now);
            if brought_back {
                self.hold_behind(seq);
            }
            return;
        };
        row.remember(store::taken_away(&next).record(since, now));
        row.job = next;
        if let Some(claim) = row.claim.take().and_then(|id| self.claims.get_mut(&id))
            && let Some(lease) = claim.held.remove(&seq)
        {
            claim.lost.insert(seq, lease);
        }
        self.let_go(seq, now);
    }

    pub(super) fn drop_claim(&mut self, id: ClaimId) {
        self.claims.remove(&id);
    }

    pub(super) fn forget(&mut self, seq: i64) {
        if let Some(row) = self.rows.remove(&seq) {
            self.by_id.remove(&row.job.id);
        }
        self.edges.retain(|edge| edge.before != seq && edge.after != seq);
    }

    pub(super) fn bound_activity(&mut self) {
        let excess = self.activity.len().saturating_sub(ACTIVITY_MAX as usize);
        self.activity.drain(..excess);
    }

    pub(super) fn groups(&self, limit: usize, now: Timestamp) -> Vec<Group> {
        let mut groups: BTreeMap<Option<&str>, Group> = BTreeMap::new();
        for row in self.rows.values() {
            let State::Dead { at, .. } = row.job.state else { continue };
            let fingerprint = row.attempts.last().and_then(|attempt| attempt.fingerprint.as_deref());
            let group = groups.entry(fingerprint).or_insert_with(|| Group {
                fingerprint: fingerprint.map(Into::into),
                count: 0,
                newest: row.job.id,
                first_at: at,
                last_at: at,
                trend: Trend::default(),
            });
            group.count += 1;
            group.newest = row.job.id;
            group.first_at = group.first_at.min(at);
            group.last_at = group.last_at.max(at);
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.fingerprint.cmp(&b.fingerprint)));
        groups.truncate(limit);
        let Some(from) = groups.iter().map(|group| group.first_at).min() else { return groups };
        let step = Trend::step_ms(from, now);
        for row in self.rows.values() {
            let State::Dead { at, .. } = row.job.state else { continue };
            let fingerprint = row.attempts.last().and_then(|attempt| attempt.fingerprint.as_deref());
            if let Some(group) = groups.iter_mut().find(|group| group.fingerprint.as_deref() == fingerprint) {
                group.trend.count((at.as_millis() - from.as_millis()) / step, 1);
            }
        }
        groups
    }

    pub(super) fn counts(&self) -> Vec<QueueCounts> {
        let mut queues: BTreeMap<Arc<str>, QueueCounts> = BTreeMap::new();
        for queue in self.totals.keys() {
            queues.entry(queue.clone()).or_insert_with(|| QueueCounts {
                queue: queue.clone(),
                waiting: 0,
                running: 0,
                dead: 0,
                paused: self.paused.contains(queue),
                totals: self.totals.get(queue).copied().unwrap_or_default(),
            });
        }
        for row in self.rows.values() {
            let Some(counts) = queues.get_mut(&row.job.queue) else { continue };
            match row.job.state {
                State::Waiting { .. } => counts.waiting += 1,
                State::Running { .. } => counts.running += 1,
                State::Dead { .. } => counts.dead += 1,
                State::Succeeded { .. } | State::Cancelled { .. } => {}
            }
        }
        queues.into_values().collect()
    }
}

fn is_among(kinds: &Option<Kinds>, job: &Job) -> bool {
    kinds.as_ref().is_none_or(|kinds| kinds.contains(&job.kind))
}

impl Row {
    pub(super) fn apply(&mut self, transition: &Transition) {
        transition.apply_to(&mut self.job);
        self.output = transition.output.clone();
    }

    pub(super) fn remember(&mut self, record: AttemptRecord) {
        let number = record.attempt;
        self.attempts.push(record);
        self.attempts.retain(|kept| kept.attempt <= HISTORY_FIRST || kept.attempt + HISTORY_LAST > number);
    }

    pub(super) fn matches(&self, filter: &Filter) -> bool {
        let last = || self.attempts.iter().rev().find_map(|record| record.fingerprint.as_ref());
        filter.matches(&self.job) && filter.fingerprint.as_ref().is_none_or(|wanted| last() == Some(wanted))
    }
}
