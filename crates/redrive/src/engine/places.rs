//! The places of a queue: how many run at once, and how many are claimed so that none stands empty meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::attempt::Stop;
use crate::clock::Clock;
use crate::queue::{OnRetry, Queue};

/// What is claimed before a place is free for it is at most this much,
const EARLY_MAX: usize = 256;
/// and is given back if none is free after this: another process may have one.
const EARLY_WAIT: Duration = Duration::from_secs(1);

pub(super) struct Place {
    pub(super) name: Arc<str>,
    pub(super) total: usize,
    pub(super) on_retry: OnRetry,
    /// Claimed, and not yet at its end.
    pub(super) taken: AtomicUsize,
    /// One for each that may run.
    free: Semaphore,
    /// How long one runs, in microseconds: the last ones count most.
    runs_us: AtomicU64,
    /// How many more are claimed than there are places. What is there already need not wait for a claim. Where jobs take
    /// longer than claims by far, this is nothing.
    early: AtomicUsize,
}

impl Place {
    pub(super) fn new(queue: &Queue) -> Place {
        Place {
            name: queue.name.clone(),
            total: queue.concurrency,
            on_retry: queue.on_retry,
            taken: AtomicUsize::new(0),
            free: Semaphore::new(queue.concurrency.min(Semaphore::MAX_PERMITS)),
            runs_us: AtomicU64::new(0),
            early: AtomicUsize::new(0),
        }
    }

    /// How many may be claimed.
    pub(super) fn room(&self) -> usize {
        let places = self.total.saturating_add(self.early.load(Ordering::Acquire));
        places.saturating_sub(self.taken.load(Ordering::Acquire))
    }

    pub(super) fn free_now(&self) -> Option<SemaphorePermit<'_>> {
        self.free.try_acquire().ok()
    }

    /// The next one that becomes free, unless that takes too long or somebody asks to stop.
    pub(super) async fn free_soon(&self, clock: &Clock, stop: &Stop) -> Option<SemaphorePermit<'_>> {
        let patience = clock.now() + EARLY_WAIT;
        tokio::select! { biased;
            free = self.free.acquire() => free.ok(),
            _ = stop.asked() => None,
            () = clock.sleep_until(patience) => {
                // They take longer than it looked.
                self.runs_us.store(EARLY_WAIT.as_micros() as u64, Ordering::Relaxed);
                self.early.store(0, Ordering::Release);
                None
            }
        }
    }

    /// One has run for so long.
    pub(super) fn ran(&self, time: Duration) {
        let (before, time) = (self.runs_us.load(Ordering::Relaxed), time.as_micros() as u64);
        // One that is lost because two write at once matters little.
        self.runs_us.store(before - before / 8 + time / 8, Ordering::Relaxed);
    }

    /// A claim took so long. What ends meanwhile has to be there when it is asked for, and as much is asked for.
    pub(super) fn claimed_in(&self, time: Duration) {
        // Whoever takes less than can be told takes a millisecond.
        let runs_us = self.runs_us.load(Ordering::Relaxed).max(1_000);
        let ends = (self.total as u64).saturating_mul(time.as_micros() as u64) / runs_us;
        let ends = usize::try_from(ends).unwrap_or(usize::MAX);
        let early = ends.saturating_add(ends.saturating_sub(self.total));
        self.early.store(early.min(EARLY_MAX), Ordering::Release);
    }
}
