//! What a gate allows: how many, how close to each other, and what is left of it when some have gone.

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
}

impl Bucket {
    pub(super) const FREE: Bucket = Bucket { floor_us: 0, until_us: 0, cost_us: 0 };

    pub(super) fn new(now: Timestamp, cost_us: i64, burst: u32) -> Bucket {
        let floor_us = now.as_millis() * 1_000;
        let ahead = cost_us.saturating_mul(i64::from(burst.saturating_sub(1)));
        Bucket { floor_us, until_us: floor_us.saturating_add(ahead), cost_us }
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
        Timestamp::from_millis((self.floor_us + wait_us + 999) / 1_000)
    }
}

impl Grant {
    /// How many may go, and how many of them may be retries.
    pub(crate) fn room(&self, counts: &Counts) -> (u32, u32) {
        let calls = self.most.min(self.calls.room(counts.next_us));
        (calls, calls.min(self.retries.room(counts.retry_us)))
    }

    /// When something may go that may not go now.
    pub(crate) fn next_at(&self, counts: &Counts, retries_wait: bool) -> Timestamp {
        let calls = self.next_at.max(self.calls.next_at(counts.next_us));
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
