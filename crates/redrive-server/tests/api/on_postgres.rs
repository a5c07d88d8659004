//! The same cases on PostgreSQL: see `support/served.rs`.

#[path = "commands.rs"]
mod commands;
#[path = "destinations.rs"]
mod destinations;
#[path = "edit.rs"]
mod edit;
#[path = "explain.rs"]
mod explain;
#[path = "jobs.rs"]
mod jobs;
#[path = "lists.rs"]
mod lists;
#[path = "notices.rs"]
mod notices;
#[path = "operate.rs"]
mod operate;
#[path = "retry.rs"]
mod retry;

#[tokio::test]
async fn the_cases_of_this_module_run_on_postgres() {
    assert!(crate::served::is_on_postgres());
}
