//! Everything dies, on a real PostgreSQL and in real processes: instances, sessions, connections, the server, its
//! standby. Nothing acknowledged is lost, nothing is completed twice, and work goes on by itself.
//!
//! The counts are small here and large in `scripts/soak.sh`, by variables that each test names. The child is this same
//! program; see `postgres_faults/child.rs`.

#![expect(clippy::disallowed_methods, reason = "real processes are killed at real times")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "times are reported and not asserted")]

#[path = "postgres_faults/books.rs"]
mod books;
#[path = "postgres_faults/child.rs"]
mod child;
#[path = "postgres_faults/failover.rs"]
mod failover;
#[path = "postgres_faults/fleet.rs"]
mod fleet;
#[path = "postgres_faults/graph.rs"]
mod graph;
#[path = "postgres_faults/killing.rs"]
mod killing;
#[expect(dead_code, reason = "most of it is for postgres_races.rs")]
#[path = "support/postgres.rs"]
mod kit;
#[path = "postgres_faults/pressure.rs"]
mod pressure;
#[path = "postgres_faults/sessions.rs"]
mod sessions;
#[path = "postgres_faults/wire.rs"]
mod wire;

#[test]
#[ignore = "the process that the others start and kill"]
fn the_child() {
    if std::env::var(child::URL).is_ok() {
        child::main();
    }
}

/// How often, unless a variable says otherwise.
fn times(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}
