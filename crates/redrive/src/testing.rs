//! For your tests: a clock that you move, a process that dies where you say, and for a store of your own the suite
//! that every store must pass ([`conformance!`](crate::conformance)).
//!
//! With `#[tokio::test(start_paused = true)]` and [`clock`], `engine.drain().await` runs a schedule of fourteen days
//! in milliseconds, and every attempt still sees its exact time.

#[doc(hidden)]
pub mod conformance;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::clock::{Clock, Timestamp};
use crate::engine::Step;

/// A clock on tokio's paused time, starting on 1 January 2026.
pub fn clock() -> Clock {
    Clock::starting_at(Timestamp::from_millis(1_767_225_600_000))
}

/// Lets the engine die at a point, as if its process had been killed there: nothing more is written, its lease runs
/// out, and another engine on the same store takes over.
#[derive(Clone, Debug, Default)]
pub struct CrashPlan {
    at: Option<CrashPoint>,
    left: Arc<AtomicUsize>,
}

/// Where an engine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashPoint {
    /// Jobs are claimed and none has been started.
    AfterClaim,
    /// A handler has returned and nothing is written yet.
    AfterHandler,
    /// The outcome is written, and nobody was told.
    AfterSettle,
}

impl CrashPlan {
    /// Dies when the point is reached for the `nth` time, counted from 1.
    pub fn at(point: CrashPoint, nth: usize) -> CrashPlan {
        CrashPlan { at: Some(point), left: Arc::new(AtomicUsize::new(nth)) }
    }

    pub(crate) fn strikes(&self, step: Step) -> bool {
        let point = match step {
            Step::Claimed => CrashPoint::AfterClaim,
            Step::Ran => CrashPoint::AfterHandler,
            Step::Settled => CrashPoint::AfterSettle,
        };
        self.at == Some(point)
            && self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1))
                == Ok(1)
    }
}
