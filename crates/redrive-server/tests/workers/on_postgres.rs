//! The same cases on PostgreSQL: see `support/served.rs`.

#[path = "cases.rs"]
mod cases;
#[path = "kills.rs"]
mod kills;

#[tokio::test]
async fn the_cases_of_this_module_run_on_postgres() {
    assert!(crate::served::is_on_postgres());
}
