//! Points at which a test may let the process die.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::shift::Step;

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

    pub(super) fn strikes(&self, step: Step) -> bool {
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
