//! The API as a caller meets it, on a whole server with a SQLite file: every path, what it answers, and what it refuses.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "api/bad_input.rs"]
mod bad_input;
#[path = "support/client.rs"]
mod client;
#[path = "api/commands.rs"]
mod commands;
#[path = "api/events.rs"]
mod events;
#[path = "api/explain.rs"]
mod explain;
#[path = "support/ground.rs"]
mod ground;
#[path = "api/jobs.rs"]
mod jobs;
#[path = "api/lists.rs"]
mod lists;
#[path = "api/operations.rs"]
mod operations;
#[path = "support/process.rs"]
mod process;
#[path = "api/retry.rs"]
mod retry;
#[path = "support/served.rs"]
mod served;
#[expect(dead_code, reason = "its bad manners are in http_executor.rs")]
#[expect(clippy::disallowed_methods, reason = "it notes when it was asked in real time")]
#[path = "support/target.rs"]
mod target;
