//! The places of a queue in this process, and the jobs that were claimed for the next of them to be free.
//!
//! A claim goes to the disk and back, which takes longer than a short attempt. So where attempts are short a few jobs are
//! claimed early: as many as begin within [`EARLY`] at the pace of the last moments. None are where attempts take long, a
//! destination fails, or calls have to be made when they are granted. Not here: what is done with a job that has its place.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::queue::{OnRetry, Queue};
use crate::store::Want;

/// What begins within this time at the present pace is claimed early: a few times what a claim takes.
pub(super) const EARLY: Duration = Duration::from_millis(16);
/// And for each place no more than this: when the process is killed they are under suspicion, as those are that ran.
const EARLY_PER_PLACE: usize = 16;
/// The pace is that of the last time as long as this.
const WINDOW: Duration = Duration::from_millis(20);
/// What has waited for a place for this long is given back: it does not come, and somebody else may have one.
const PATIENCE: Duration = Duration::from_millis(250);
/// A claim asks for this many at least, if there is room for so many.
const CLAIM_MIN: usize = 256;
/// However few places there are, so many endings are worth a transaction.
const BATCH_MIN: usize = 256;
/// And so many may be unsettled before nothing more is claimed.
const UNSETTLED_MIN: usize = 128;

pub(super) struct Places<J> {
    pub(super) name: Arc<str>,
    total: usize,
    on_retry: OnRetry,
    inside: Mutex<Inside<J>>,
}

struct Inside<J> {
    taken: usize,
    early: Early<J>,
    pace: Pace,
}

/// Who is claimed and has no place yet, and since when; only while every place is taken.
type Early<J> = VecDeque<(Timestamp, J)>;

impl<J> Places<J> {
    pub(super) fn of(queue: &Queue) -> Places<J> {
        let (name, total, on_retry) = (queue.name.clone(), queue.concurrency, queue.on_retry);
        let inside = Inside { taken: 0, early: VecDeque::new(), pace: Pace::default() };
        Places { name, total, on_retry, inside: Mutex::new(inside) }
    }

    fn inside(&self) -> MutexGuard<'_, Inside<J>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many endings are worth a transaction of their own.
    pub(super) fn batch(&self) -> usize {
        self.total.saturating_mul(2).max(BATCH_MIN)
    }

    /// What may be claimed now, so much too early. Nothing while settlements are behind: work that cannot be recorded is not
    /// begun.
    pub(super) fn want(&self, early: Duration, unsettled: usize, now: Timestamp) -> Option<Want> {
        let (room, ending) = {
            let inside = self.inside();
            (inside.room(self.total, early, now), inside.pace.within(early, now))
        };
        // What two claims are made of: the endings of one are written while the next come in.
        let unsettled_max = self.total.saturating_mul(2).max(ending).saturating_mul(2).max(UNSETTLED_MIN);
        if room == 0 || unsettled > unsettled_max {
            return None;
        }
        // Not everything at once: while one half of the places works, the other is being claimed.
        let limit = room.min((self.total / 2).max(CLAIM_MIN));
        Some(Want { queue: self.name.clone(), limit, on_retry: self.on_retry })
    }

    /// Gives a place to a claimed job, which is handed back to begin; or lets it wait for one.
    pub(super) fn enter(&self, job: J, now: Timestamp) -> Option<J> {
        self.inside().enter(self.total, job, |early, job| early.push_back((now, job)))
    }

    /// The same for one that has the next place.
    pub(super) fn enter_first(&self, job: J, now: Timestamp) -> Option<J> {
        self.inside().enter(self.total, job, |early, job| early.push_front((now, job)))
    }

    /// A place is free again. Who waits for one has it, and begins.
    pub(super) fn leave(&self, now: Timestamp) -> Left<J> {
        let mut inside = self.inside();
        inside.pace.count(now);
        let next = inside.early.pop_front().map(|(_, job)| job);
        if next.is_none() {
            inside.taken -= 1;
        }
        Left { next, has_room: inside.room(self.total, EARLY, now) > 0 }
    }

    /// Those whose patience is over.
    pub(super) fn impatient(&self, now: Timestamp) -> Vec<J> {
        self.inside().part(|(since, _)| now.since(*since) >= PATIENCE)
    }

    /// Those that are not to begin now; and none is claimed early until it has gone well for a while.
    pub(super) fn send_away(&self, is_meant: impl Fn(&J) -> bool) -> Vec<J> {
        let mut inside = self.inside();
        inside.pace = Pace::default();
        inside.part(|(_, job)| is_meant(job))
    }

    /// Whether somebody waits for a place.
    pub(super) fn has_early(&self) -> bool {
        !self.inside().early.is_empty()
    }

    /// When the first patience is over.
    pub(super) fn patient_until(&self) -> Option<Timestamp> {
        self.inside().early.iter().map(|(since, _)| *since + PATIENCE).min()
    }
}

/// What follows when an attempt leaves its place.
pub(super) struct Left<J> {
    pub(super) next: Option<J>,
    /// Whether more should be claimed.
    pub(super) has_room: bool,
}

impl<J> Inside<J> {
    fn enter(&mut self, total: usize, job: J, stand: impl FnOnce(&mut Early<J>, J)) -> Option<J> {
        if self.taken < total {
            self.taken += 1;
            return Some(job);
        }
        stand(&mut self.early, job);
        None
    }

    /// Takes some out of those that wait.
    fn part(&mut self, leaves: impl Fn(&(Timestamp, J)) -> bool) -> Vec<J> {
        // Most often it is nobody, and all of them are asked before each claim.
        if !self.early.iter().any(&leaves) {
            return Vec::new();
        }
        let (leave, stay): (Early<J>, Early<J>) = self.early.drain(..).partition(leaves);
        self.early = stay;
        leave.into_iter().map(|(_, job)| job).collect()
    }

    /// For how many jobs there is room. If more than half of those wait that may, they are enough.
    fn room(&self, total: usize, early: Duration, now: Timestamp) -> usize {
        let most = self.pace.within(early, now).min(total.saturating_mul(EARLY_PER_PLACE));
        let more = if self.early.len() * 2 > most { 0 } else { most - self.early.len() };
        total.saturating_sub(self.taken) + more
    }
}

/// How many attempts end in a while.
#[derive(Default)]
struct Pace {
    since: Timestamp,
    count: u64,
    /// So many ended in the last window, which was so many milliseconds long.
    last: (u64, u64),
}

impl Pace {
    fn count(&mut self, now: Timestamp) {
        if now.since(self.since) >= WINDOW {
            self.last = if self.is_fresh(now) { (self.count, millis(now.since(self.since))) } else { (0, 1) };
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
    }

    /// How many end within this time, if it goes on like that.
    fn within(&self, time: Duration, now: Timestamp) -> usize {
        let (count, of) = self.last;
        if of == 0 || !self.is_fresh(now) {
            return 0;
        }
        usize::try_from(count * millis(time) / of).unwrap_or(usize::MAX)
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        now.since(self.since) < WINDOW * 2
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    /// Ten places that are taken, where an attempt has ended each millisecond, and another has begun.
    fn busy() -> Places<&'static str> {
        busy_with(10, 1)
    }

    /// So many, where so many have ended each millisecond.
    fn busy_with(total: usize, ended: usize) -> Places<&'static str> {
        let places = Places::of(&Queue::new("q").concurrency(total));
        for _ in 0..total {
            assert!(places.enter("one", at(0)).is_some());
        }
        for now in (0..60).flat_map(|now| std::iter::repeat_n(now, ended)) {
            assert!(places.leave(at(now)).next.is_none());
            assert!(places.enter("another", at(now)).is_some());
        }
        places
    }

    fn limit(places: &Places<&'static str>, now: Timestamp) -> Option<usize> {
        places.want(EARLY, 0, now).map(|want| want.limit)
    }

    #[test]
    fn no_more_is_claimed_than_can_start_where_nothing_is_known_of_the_pace() {
        let places = Places::of(&Queue::new("q").concurrency(3));
        assert_eq!(limit(&places, at(0)), Some(3));
        for _ in 0..3 {
            assert!(places.enter("job", at(0)).is_some());
        }
        assert_eq!(limit(&places, at(0)), None);
        assert!(places.leave(at(5_000)).has_room);
        assert_eq!(limit(&places, at(5_000)), Some(1));
    }

    #[test]
    fn what_begins_within_a_moment_is_claimed_early() {
        let places = busy();
        assert_eq!(limit(&places, at(59)), Some(16), "one ends each millisecond");
        for job in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
            assert!(places.enter(job, at(59)).is_none(), "every place is taken");
        }
        assert_eq!(limit(&places, at(59)), None, "more than half of them wait");
        assert_eq!(places.leave(at(59)).next, Some("a"), "in the order in which they were claimed");
        assert_eq!(limit(&places, at(59)), Some(8), "when half of them have begun, more are claimed");
    }

    #[test]
    fn however_quick_they_are_sixteen_are_claimed_early_for_each_place() {
        assert_eq!(limit(&busy_with(1, 2), at(59)), Some(16));
        assert_eq!(limit(&busy_with(3, 2), at(59)), Some(32), "two end each millisecond");
    }

    #[test]
    fn nothing_is_claimed_early_when_the_pace_is_over() {
        let places = busy();
        assert_eq!(limit(&places, at(79)), Some(16));
        assert_eq!(limit(&places, at(100)), None);
        assert!(places.leave(at(100)).next.is_none());
        assert_eq!(limit(&places, at(100)), Some(1), "of what ended long ago nothing is concluded");
    }

    #[test]
    fn who_is_to_have_the_next_place_has_it() {
        let places = busy();
        assert!(places.enter("early", at(59)).is_none() && places.enter_first("late", at(60)).is_none());
        assert_eq!(places.patient_until(), Some(at(309)));
        assert_eq!(places.leave(at(60)).next, Some("late"));
    }

    #[test]
    fn who_has_waited_too_long_for_a_place_is_given_back() {
        let places = busy();
        assert!(places.enter("early", at(60)).is_none() && places.enter("late", at(200)).is_none());
        assert_eq!(places.patient_until(), Some(at(310)));
        assert!(places.impatient(at(309)).is_empty());
        assert_eq!(places.impatient(at(310)), ["early"]);
        assert_eq!(places.patient_until(), Some(at(450)));
    }

    #[test]
    fn those_for_whom_it_would_go_wrong_are_sent_away_and_nothing_more_is_claimed_early() {
        let places = busy();
        for job in ["to a", "to b", "to a"] {
            assert!(places.enter(job, at(60)).is_none());
        }
        assert_eq!(places.send_away(|job| *job == "to a"), ["to a", "to a"]);
        assert_eq!(limit(&places, at(60)), None);
        assert_eq!(places.leave(at(61)).next, Some("to b"));
    }

    #[test]
    fn nothing_is_begun_faster_than_it_is_recorded() {
        let places = busy();
        assert!(places.want(EARLY, 128, at(59)).is_some());
        assert!(places.want(EARLY, 129, at(59)).is_none());
        let quick = busy_with(10, 10);
        assert!(quick.want(EARLY, 320, at(59)).is_some(), "ten end each millisecond");
        assert!(quick.want(EARLY, 321, at(59)).is_none());
    }
}
