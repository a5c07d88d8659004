//! Real time, for measuring: the server's only file that reads a clock for it.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures the time that really passes")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// This moment, to be subtracted from another.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970 by the system's clock, with their fractions.
pub(crate) fn wall_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64() * 1_000.0
}
