//! What a gate allows: how many, how close to each other, and what is left of it when some have gone.

#[cfg(feature = "postgres")]
use std::time::Duration;

#[cfg(feature = "postgres")]
use super::Phase;
use super::{Counts, Gate};
use crate::clock::Timestamp;

/// What may go now.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// The gate as it is from the first call on.
    pub(crate) gate: Gate,
    /// At most so many.
    pub(crate) most: u32,
    /// As close to each other as this says.
    pub(crate) calls: Bucket,
    /// And of them so many retries.
    pub(crate) retries: Bucket,
    /// How much earlier the next retry may go for each first attempt, in microseconds.
    pub(crate) credit_us: i64,
    /// When to ask again, if nothing may go now.
    pub(crate) next_at: Timestamp,
    /// How much of the calls' room is for later.
    ahead_us: i64,
}

/// How many of something may go at a time: each moves a mark by its cost, and the mark may be ahead of now by the burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bucket {
    /// The mark is not before this.
    pub(crate) floor_us: i64,
    /// It may be here at most for one more to go.
    pub(crate) until_us: i64,
    /// Zero if nothing is limited.
    pub(crate) cost_us: i64,
    now_us: i64,
}

impl Bucket {
    pub(super) const FREE: Bucket = Bucket { floor_us: 0, until_us: 0, cost_us: 0, now_us: 0 };

    pub(super) fn new(now: Timestamp, cost_us: i64, burst: u32) -> Bucket {
        let floor_us = now.as_millis() * 1_000;
        let ahead = cost_us.saturating_mul(i64::from(burst.saturating_sub(1)));
        Bucket { floor_us, until_us: floor_us.saturating_add(ahead), cost_us, now_us: floor_us }
    }

    pub(crate) fn room(&self, mark: i64) -> u32 {
        if self.cost_us == 0 {
            return u32::MAX;
        }
        let base = mark.max(self.floor_us);
        let room = if base > self.until_us { 0 } else { (self.until_us - base) / self.cost_us + 1 };
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    fn spend(&self, mark: i64, count: u32) -> i64 {
        if count == 0 || self.cost_us == 0 {
            mark
        } else {
            mark.max(self.floor_us) + i64::from(count) * self.cost_us
        }
    }

    /// When the next one may go.
    fn next_at(&self, mark: i64) -> Timestamp {
        if self.cost_us == 0 {
            return Timestamp::EPOCH;
        }
        let wait_us = (mark - self.until_us).max(0);
        Timestamp::from_millis((self.now_us + wait_us + 999) / 1_000)
    }
}

impl Grant {
    pub(super) fn new(gate: Gate, most: u32, calls: Bucket, next_at: Timestamp) -> Grant {
        Grant { gate, most, calls, retries: Bucket::FREE, credit_us: 0, next_at, ahead_us: 0 }
    }

    /// The same, but calls whose turn comes within `ahead` may be taken too, and none has it before `lead` has passed. Only
    /// where the rate was set by somebody: a destination that is recovering may have something to say meanwhile.
    #[cfg(feature = "postgres")]
    pub(crate) fn ahead(mut self, ahead: Duration, lead: Duration) -> Grant {
        if self.calls.cost_us > 0 && self.gate.phase == Phase::Open {
            let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(0);
            self.ahead_us = micros(ahead);
            self.calls.floor_us = self.calls.floor_us.saturating_add(micros(lead.min(ahead)));
            self.calls.until_us = self.calls.until_us.saturating_add(micros(lead.min(ahead)) + self.ahead_us);
        }
        self
    }

    /// When each of those that have gone has its turn, if they were taken ahead: `mark` is what they moved it to.
    #[cfg(feature = "postgres")]
    pub(crate) fn turns(&self, mark: i64, count: u32) -> impl Iterator<Item = Timestamp> + use<> {
        let Bucket { floor_us, until_us, cost_us, .. } = self.calls;
        let burst_us = until_us - self.ahead_us - floor_us;
        let first = mark - i64::from(count) * cost_us - burst_us;
        let turn = move |n| (first + i64::from(n) * cost_us).max(floor_us);
        let is_ahead = self.ahead_us > 0;
        let later = (0..count).filter(move |_| is_ahead).map(turn);
        later.map(|turn| Timestamp::from_millis((turn + 999) / 1_000))
    }

    /// How many may go, and how many of them may be retries.
    pub(crate) fn room(&self, counts: &Counts) -> (u32, u32) {
        let calls = self.most.min(self.calls.room(counts.next_us));
        (calls, calls.min(self.retries.room(counts.retry_us)))
    }

    /// When something may go that may not go now.
    pub(crate) fn next_at(&self, counts: &Counts, retries_wait: bool) -> Timestamp {
        // Half of what may be taken ahead at a time, and not one by one.
        let calls = self.next_at.max(self.calls.next_at(counts.next_us.saturating_add(self.ahead_us / 2)));
        if retries_wait { calls.max(self.retries.next_at(counts.retry_us)) } else { calls }
    }

    /// The gate after so many have gone.
    pub(crate) fn spend(&self, firsts: u32, retries: u32) -> Gate {
        let mut gate = self.gate.clone();
        let Counts { next_us, retry_us, sent } = &mut gate.counts;
        *next_us = self.calls.spend(*next_us, firsts + retries);
        *retry_us = self.retries.spend(*retry_us, retries) - i64::from(firsts) * self.credit_us;
        *sent += i64::from(firsts + retries);
        gate
    }
}
