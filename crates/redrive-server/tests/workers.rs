//! Workers in other processes: they lease, hold, report; and what they say too late, twice or by guess changes nothing. On
//! a SQLite file, and on PostgreSQL too.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::duplicate_mod, reason = "the same cases on another store")]

#[path = "workers/cases.rs"]
mod cases;
#[path = "support/client.rs"]
mod client;
#[expect(dead_code, reason = "what only other tests ask for")]
#[path = "support/ground.rs"]
mod ground;
#[path = "workers/kills.rs"]
mod kills;
#[path = "workers/on_postgres.rs"]
mod on_postgres;
#[expect(dead_code, reason = "what only other tests ask for")]
#[path = "support/process.rs"]
mod process;
#[path = "support/served.rs"]
mod served;
