//! For your tests: a clock that you move, a process that dies where you say, and for a store of your own the suite
//! that every store must pass ([`conformance!`](crate::conformance)).
//!
//! With `#[tokio::test(start_paused = true)]` and [`clock`], `engine.drain().await` runs a schedule of fourteen days
//! in milliseconds, and every attempt still sees its exact time.

#[doc(hidden)]
pub mod conformance;

use crate::clock::{Clock, Timestamp};

pub use crate::engine::{CrashPlan, CrashPoint};

/// A clock on tokio's paused time, starting on 1 January 2026.
pub fn clock() -> Clock {
    Clock::starting_at(Timestamp::from_millis(1_767_225_600_000))
}
