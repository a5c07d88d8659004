//! The columns of a batch of settlements, as `redrive.settle` takes them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::super::Inner;
use super::super::codec::{as_i32, as_millis, only, tally_json};
use super::super::database::Argument;
use super::super::fault::Fault;
use super::End;
use super::again::GoesOn;
use super::attempts::Attempts;
use crate::clock::Timestamp;
use crate::job::{Ending, Ledger, State};
use crate::machine::Transition;
use crate::stats::{Activity, Tally};
use crate::store::{Again, HISTORY_FIRST, HISTORY_LAST, Lease, Settlement};

/// The columns of a batch, as the function takes them.
#[derive(Default)]
pub(super) struct Batch {
    lanes: BTreeSet<i32>,
    claims: BTreeMap<Uuid, i32>,
    plain: Plain,
    waits: Waits,
    finals: Finals,
    attempts: Attempts,
    turns: BTreeSet<(i32, Arc<str>)>,
    trims: (Vec<i64>, Vec<i32>),
    missed: (Vec<Uuid>, Vec<i64>),
    pub(super) tallies: BTreeMap<i32, Tally>,
    notes: Notes,
    again: Option<Again>,
    goes_on: GoesOn,
    members: Members,
    next: Option<Again>,
    /// By queue and priority: how many places were kept for what members let go.
    kept: BTreeMap<(i32, i16), i32>,
}

/// Those that belong to another job and have ended, well or badly: others may wait for them.
#[derive(Default)]
struct Members {
    well: (Vec<i64>, Vec<i64>),
    badly: (Vec<i64>, Vec<i64>),
}

/// Succeeded with nothing special.
#[derive(Default)]
struct Plain {
    seq: Vec<i64>,
    fence: Vec<i32>,
    started: Vec<i64>,
    ended: Vec<i64>,
    id: Vec<Uuid>,
    queue: Vec<i32>,
    failures: Vec<i32>,
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

#[derive(Default)]
struct Notes {
    at: Vec<i64>,
    job: Vec<Uuid>,
    what: Vec<&'static str>,
    kind: Vec<String>,
    queue: Vec<String>,
    message: Vec<String>,
}

impl Batch {
    pub(super) async fn of(
        inner: &Inner,
        settlements: &[Settlement],
        open: &[usize],
        missed: &[Lease],
        [again, next]: [Option<&Again>; 2],
        paused: &BTreeSet<i32>,
    ) -> Result<Batch, Fault> {
        let mut batch = Batch { again: again.cloned(), next: next.cloned(), ..Batch::default() };
        for n in open {
            let settlement = &settlements[*n];
            let queue = inner.names.queue_id(&inner.database, &settlement.job.queue).await?;
            let goes_on = again.is_some() && settlement.wanted_again() == again && !paused.contains(&queue);
            batch.add(settlement, queue, goes_on);
            if next.is_some() && settlement.wanted_next() == next {
                *batch.kept.entry((queue, settlement.job.priority)).or_default() += 1;
            }
        }
        for lease in missed {
            batch.missed.0.push(Uuid::from_u128(lease.claim.0));
            batch.missed.1.push(lease.seq);
        }
        Ok(batch)
    }

    fn add(&mut self, settlement: &Settlement, queue: i32, goes_on: bool) {
        let Settlement { lease, job, transition, started_at, ended_at, .. } = settlement;
        self.count_claim(*lease);
        self.tallies.entry(queue).or_default().count(job, transition);
        self.notes.extend(Activity::of(job, transition, *ended_at));
        if job.extras().parent.is_some() {
            self.members.end(lease.seq, &transition.state, *ended_at);
        }
        if is_plain(settlement) {
            self.plain.seq.push(lease.seq);
            self.plain.fence.push(as_i32(lease.attempt));
            self.plain.started.push(started_at.as_millis());
            self.plain.ended.push(ended_at.as_millis());
            self.plain.id.push(lease.job.as_uuid());
            self.plain.queue.push(queue);
            self.plain.failures.push(as_i32(transition.ledger.failures));
            return;
        }
        let extras = job.extras();
        let expires = job.buried_with(&transition.ledger);
        if goes_on {
            self.goes_on.add(*lease, queue, transition, *ended_at, expires);
            self.attempts.add(*lease, transition, (*started_at, *ended_at));
        } else {
            self.write_down(
                *lease,
                queue,
                transition,
                (*started_at, *ended_at),
                expires,
                extras.key.as_deref(),
            );
        }
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

    /// Others may have waited for a job of which nothing more is known.
    pub(super) fn belonged_to_another(&mut self, lease: Lease, transition: &Transition, at: Timestamp) {
        self.members.end(lease.seq, &transition.state, at);
    }

    /// Whether the job in this place is claimed again.
    pub(super) fn goes_on(&self, seq: i64) -> bool {
        self.goes_on.contains(seq)
    }

    pub(super) fn count_claim(&mut self, lease: Lease) {
        *self.claims.entry(Uuid::from_u128(lease.claim.0)).or_default() += 1;
    }

    /// Writes it, and says how many others have begun with it, and whether it was sent more than once, be it in vain.
    pub(super) async fn write(&self, inner: &Inner, end: Option<&End<'_>>) -> (Result<i32, Fault>, bool) {
        let (claims, counts): (Vec<Uuid>, Vec<i32>) = self.claims.iter().map(|(id, n)| (*id, *n)).unzip();
        let lanes: Vec<i32> = self.lanes.iter().copied().collect();
        let (turn_queue, turn_key): (Vec<i32>, Vec<&str>) =
            self.turns.iter().map(|(queue, key)| (*queue, &**key)).unzip();
        let (tally_queue, tally): (Vec<i32>, Vec<String>) =
            self.tallies.iter().map(|(queue, tally)| (*queue, tally_json(*tally))).unzip();
        let holder = end.map(|end| Uuid::from_u128(end.holder.0));
        let now = end.map(|end| end.now.as_millis());
        let known = end.map(|end| end.known).unwrap_or_default();
        let (known, known_attempts): (Vec<i64>, Vec<i32>) =
            known.iter().map(|lease| (lease.seq, as_i32(lease.attempt))).unzip();
        let first = as_i32(HISTORY_FIRST);
        let Batch { waits, finals, attempts, goes_on, .. } = self;
        let said = attempts.said();
        let said_ending: Vec<&str> = said.iter().map(|said| said.ending).collect();
        let said_failure: Vec<Option<&str>> = said.iter().map(|said| said.failure.as_deref()).collect();
        let said_fingerprint: Vec<Option<&str>> =
            said.iter().map(|said| said.fingerprint.as_deref()).collect();
        let said_rule: Vec<Option<&str>> = said.iter().map(|said| said.rule.as_deref()).collect();
        let again = self.again.as_ref().filter(|_| !goes_on.is_empty());
        let again_holder = again.map(|again| Uuid::from_u128(again.holder.0));
        let again = again.map(|again| Uuid::from_u128(again.claim.0));
        let again_queues: Vec<i32> = goes_on.queues.iter().copied().collect();
        let (again_seqs, again_attempts, upto) = goes_on.in_a_row();
        let fences: Vec<i32> = goes_on.stands().map(|stand| stand.fence).collect();
        let failures: Vec<i32> = goes_on.stands().map(|stand| stand.failures).collect();
        let delays: Vec<Option<i64>> = goes_on.stands().map(|stand| stand.delay).collect();
        let expiries: Vec<Option<i64>> = goes_on.stands().map(|stand| stand.expires).collect();
        let mut arguments: Vec<Argument<'_>> = vec![
            (&lanes, Type::INT4_ARRAY),
            (&claims, Type::UUID_ARRAY),
            (&counts, Type::INT4_ARRAY),
            (&self.plain.seq, Type::INT8_ARRAY),
            (&self.plain.fence, Type::INT4_ARRAY),
            (&self.plain.started, Type::INT8_ARRAY),
            (&self.plain.ended, Type::INT8_ARRAY),
            (&self.plain.id, Type::UUID_ARRAY),
            (&self.plain.queue, Type::INT4_ARRAY),
            (&self.plain.failures, Type::INT4_ARRAY),
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
            (&attempts.next, Type::INT8_ARRAY),
            (&attempts.number, Type::INT4_ARRAY),
            (&said_ending, Type::TEXT_ARRAY),
            (&said_failure, Type::TEXT_ARRAY),
            (&said_fingerprint, Type::TEXT_ARRAY),
            (&said_rule, Type::TEXT_ARRAY),
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
            (&known_attempts, Type::INT4_ARRAY),
            (&again_holder, Type::UUID),
            (&again, Type::UUID),
            (&goes_on.at, Type::INT8),
            (&again_queues, Type::INT4_ARRAY),
            (&again_seqs, Type::INT8_ARRAY),
            (&again_attempts, Type::INT4_ARRAY),
            (&upto, Type::INT4_ARRAY),
            (&fences, Type::INT4_ARRAY),
            (&failures, Type::INT4_ARRAY),
            (&delays, Type::INT8_ARRAY),
            (&expiries, Type::INT8_ARRAY),
        ];
        let Members { well, badly } = &self.members;
        if well.0.is_empty() && badly.0.is_empty() {
            let (rows, again) = inner.database.call(include_str!("../settle.sql"), &arguments).await;
            return (rows.map(|_| 0), again);
        }
        let next = self.next.as_ref().filter(|_| !self.kept.is_empty());
        let next_holder = next.map(|next| Uuid::from_u128(next.holder.0));
        let next_claim = next.map(|next| Uuid::from_u128(next.claim.0));
        let kinds = next.and_then(|next| next.kinds.as_ref());
        let kinds: Option<Vec<&str>> = kinds.map(|kinds| kinds.iter().map(|kind| &**kind).collect());
        let (bands, places): (Vec<(i32, i16)>, Vec<i32>) =
            self.kept.iter().map(|(band, n)| (*band, *n)).unzip();
        let (queues, bands): (Vec<i32>, Vec<i16>) = bands.into_iter().unzip();
        arguments.extend(
            [&well.0, &well.1, &badly.0, &badly.1]
                .map(|column| -> Argument<'_> { (column, Type::INT8_ARRAY) }),
        );
        let kept: [Argument<'_>; 6] = [
            (&next_holder, Type::UUID),
            (&next_claim, Type::UUID),
            (&kinds, Type::TEXT_ARRAY),
            (&queues, Type::INT4_ARRAY),
            (&bands, Type::INT2_ARRAY),
            (&places, Type::INT4_ARRAY),
        ];
        arguments.extend(kept);
        let (rows, again) = inner.database.call(include_str!("../settle_members.sql"), &arguments).await;
        (rows.and_then(|rows| Ok(only(&rows)?.try_get(0)?)), again)
    }
}

impl Members {
    fn end(&mut self, seq: i64, to: &State, at: Timestamp) {
        let (seqs, times) = match to {
            State::Succeeded { .. } => &mut self.well,
            State::Dead { .. } | State::Cancelled { .. } => &mut self.badly,
            State::Waiting { .. } | State::Running { .. } => return,
        };
        seqs.push(seq);
        times.push(at.as_millis());
    }
}

impl Batch {
    pub(super) fn write_down(
        &mut self,
        lease: Lease,
        queue: i32,
        transition: &Transition,
        (started_at, ended_at): (Timestamp, Timestamp),
        expires: Option<Timestamp>,
        key: Option<&str>,
    ) {
        self.write_state(lease, queue, transition, started_at, expires, key);
        if transition.ending != Ending::Succeeded {
            self.attempts.add(lease, transition, (started_at, ended_at));
        }
    }

    /// Where the job stands now.
    fn write_state(
        &mut self,
        lease: Lease,
        queue: i32,
        transition: &Transition,
        started_at: Timestamp,
        expires: Option<Timestamp>,
        key: Option<&str>,
    ) {
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
                return;
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

/// It succeeded, and nothing else hangs on it: what is to be written is in the row that is there.
fn is_plain(settlement: &Settlement) -> bool {
    let Settlement { lease, job, transition, ended_at, .. } = settlement;
    let Ledger { attempt, failures, .. } = transition.ledger;
    transition.ledger == Ledger { attempt, failures, ..Ledger::default() }
        && (attempt, failures) == (lease.attempt + 1, job.ledger.failures)
        && transition.ending == Ending::Succeeded
        && transition.state == State::Succeeded { at: *ended_at }
        && transition.output.is_none()
        && job.extras().key.is_none()
        && job.extras().ordering_key.is_none()
}

/// The one character that PostgreSQL's text cannot hold must not keep an ending from being written.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}
