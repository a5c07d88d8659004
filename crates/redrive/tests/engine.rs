//! The loop, for real: most of it on the paused clock, where every time is exact, and a little on SQLite and the
//! system's clock. One file for each thing that can happen to an attempt.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had is the failure")]

mod engine {
    mod crashes;
    mod destinations;
    mod early;
    mod endings;
    mod firing;
    mod inline;
    mod kit;
    mod leases;
    mod sqlite;
    mod steering;
    mod stores;
    mod workflows;
}
