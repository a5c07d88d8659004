//! The API as a caller meets it, on a whole server: every path, what it answers, and what it refuses. On a SQLite file,
//! and what depends on the store on PostgreSQL too.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::duplicate_mod, reason = "the same cases on another store")]

#[path = "api/bad_input.rs"]
mod bad_input;
#[path = "support/client.rs"]
mod client;
#[path = "api/commands.rs"]
mod commands;
#[path = "api/destinations.rs"]
mod destinations;
#[path = "api/edit.rs"]
mod edit;
#[path = "api/events.rs"]
mod events;
#[path = "api/executions.rs"]
mod executions;
#[path = "api/explain.rs"]
mod explain;
#[path = "api/fleet.rs"]
mod fleet;
#[path = "support/ground.rs"]
mod ground;
#[path = "api/jobs.rs"]
mod jobs;
#[path = "api/lists.rs"]
mod lists;
#[path = "api/notices.rs"]
mod notices;
#[path = "api/on_postgres.rs"]
mod on_postgres;
#[path = "api/operate.rs"]
mod operate;
#[path = "api/operations.rs"]
mod operations;
#[path = "api/outage.rs"]
mod outage;
#[path = "support/process.rs"]
mod process;
#[path = "api/retry.rs"]
mod retry;
#[path = "support/served.rs"]
mod served;
#[path = "support/stream.rs"]
mod stream;
#[expect(
    dead_code,
    clippy::disallowed_methods,
    reason = "http_executor.rs asks for its bad manners, and when it was asked"
)]
#[path = "support/target.rs"]
mod target;
#[path = "api/two_servers.rs"]
mod two_servers;
