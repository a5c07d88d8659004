//! The schemas as the migrations make them are committed, so that a migration's effect shows in its diff.
//!
//! `make schema` writes them anew.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use redrive::{PostgresStore, SqliteStore};

#[tokio::test]
async fn the_committed_sqlite_schema_is_what_the_migrations_make() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    SqliteStore::open(&path).await.unwrap().close().await.unwrap();

    let connection = rusqlite::Connection::open(&path).unwrap();
    let mut statement = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE name LIKE 'redrive%' AND sql IS NOT NULL ORDER BY type DESC, name")
        .unwrap();
    let statements: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    compare("migrations/sqlite/schema.sql", &format!("{};\n", statements.join(";\n\n")));
}

#[tokio::test]
async fn the_committed_postgres_schema_is_what_the_migrations_make() {
    let database = redrive_testbed::database().await;
    PostgresStore::connect(database.url()).await.unwrap();
    compare("migrations/postgres/schema.sql", &database.schema("redrive"));
}

/// Compares, or writes what is to be committed if `REDRIVE_WRITE_SCHEMA` is set.
#[expect(clippy::disallowed_methods, reason = "the one setting of this test")]
fn compare(committed: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(committed);
    if std::env::var_os("REDRIVE_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == made,
        "{committed} is not what the migrations make: run `make schema` and look at its diff"
    );
}
