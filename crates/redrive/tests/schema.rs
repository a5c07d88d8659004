//! The schema as the migrations make it is committed, so that a migration's effect shows in its diff.

use redrive::SqliteStore;

#[tokio::test]
async fn the_committed_schema_is_what_the_migrations_make() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    SqliteStore::open(&path).await.unwrap().close().await.unwrap();

    let connection = rusqlite::Connection::open(&path).unwrap();
    let mut statement = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE name LIKE 'redrive%' AND sql IS NOT NULL ORDER BY type DESC, name")
        .unwrap();
    let statements: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let made = format!("{};\n", statements.join(";\n\n"));

    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite/schema.sql");
    let known = std::fs::read_to_string(committed).unwrap_or_default();
    let fresh = folder.keep().join("schema.sql");
    std::fs::write(&fresh, &made).unwrap();
    assert!(
        known == made,
        "migrations/sqlite/schema.sql is not what the migrations make; copy {} there",
        fresh.display()
    );
}
