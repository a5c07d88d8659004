//! Opening a PostgreSQL database: what is refused, with which hint, and what many processes do to it at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::{Error, ErrorKind, PostgresOptions, PostgresStore, Store as _};
use redrive_testbed::Cluster;
use tokio::task::JoinSet;

async fn refused(url: &str) -> Error {
    match PostgresStore::connect(url).await {
        Err(error) => error,
        Ok(_) => panic!("{url} was opened"),
    }
}

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Refused as it is, with the setting and the way out; opened when relaxed, and that is logged.
async fn assert_needs_relaxing(cluster: &Cluster, setting: &str) {
    let url = cluster.url("postgres");
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains(setting) && text.contains("would lose acknowledged jobs"), "{text}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("switch it on") && hint.contains("relaxed"), "{hint}");
    let client = redrive_testbed::connect(&url).await.unwrap();
    let row = client.query_one("SELECT to_regnamespace('redrive') IS NULL", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0), "a server that is refused is left as it was");

    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    PostgresOptions::default().relaxed_durability().connect(&url).await.unwrap();
    let said = log.text();
    assert!(said.contains("WARN") && said.contains("Durability is relaxed"), "{said}");
    assert!(said.contains(setting), "{said}");
}

#[tokio::test]
async fn a_server_without_fsync_is_refused_unless_durability_is_relaxed() {
    assert_needs_relaxing(&Cluster::start_with(&[("fsync", "off")]), "fsync").await;
}

#[tokio::test]
async fn a_server_that_commits_asynchronously_is_refused_unless_durability_is_relaxed() {
    let settings = [("synchronous_commit", "off"), ("full_page_writes", "off")];
    let cluster = Cluster::start_with(&settings);
    assert_needs_relaxing(&cluster, "synchronous_commit").await;
    assert!(PostgresOptions::default().connect(&cluster.url("postgres")).await.is_err(), "still");
}

#[tokio::test]
async fn synchronous_commit_that_is_off_for_this_role_alone_is_noticed() {
    let database = redrive_testbed::database().await;
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let set = format!("ALTER DATABASE {} SET synchronous_commit = off", database.name());
    client.batch_execute(&set).await.unwrap();
    let error = refused(database.url()).await;
    assert!(error.to_string().contains("synchronous_commit"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_relaxed_about_is_opened_without_a_word() {
    let database = redrive_testbed::database().await;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    PostgresOptions::default().relaxed_durability().connect(database.url()).await.unwrap();
    assert!(!log.text().contains("Durability"), "{}", log.text());
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_invalid_and_says_how_to_write_one() {
    for url in ["jobs.db", "postgres://user@host:port/jobs", "mysql://localhost/jobs"] {
        let error = refused(url).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.hint().unwrap().contains("postgres://user:password@host"), "{error}");
    }
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_invalid_and_no_matter_of_waiting() {
    let database = redrive_testbed::database().await;
    let error = refused(&database.url().replace(database.name(), "there_is_no_such_database")).await;
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Invalid, false), "{error}");
    assert!(error.to_string().contains("there_is_no_such_database"), "{error}");
    assert!(error.hint().unwrap().contains("user, password and database"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_away_is_unavailable_and_worth_another_try() {
    let error = refused("postgres://nobody@127.0.0.1:1/nothing").await;
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.hint().unwrap().contains("see whether the server runs"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_processes_that_open_an_empty_database_at_once_all_succeed_and_migrate_once() {
    let database = redrive_testbed::database().await;
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let mut opening = JoinSet::new();
    for _ in 0..16 {
        let url = database.url().to_owned();
        opening.spawn(async move { PostgresOptions::default().connections(2).connect(&url).await });
    }
    let stores = opening.join_all().await;
    for store in &stores {
        let store = store.as_ref().unwrap_or_else(|error| panic!("{error}"));
        assert!(store.counts().await.unwrap().is_empty());
    }
    // Whoever came later found it and changed nothing: a second writer would have left another transaction's number.
    let meta =
        "SELECT count(*), count(DISTINCT xmin::text) FROM redrive.meta WHERE name IN ('schema', 'oldest')";
    let row = client.query_one(meta, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (2, 1));
    let made = "SELECT count(DISTINCT xmin::text) FROM pg_class \
                WHERE relnamespace = 'redrive'::regnamespace AND relname IN ('jobs', 'live', 'meta', 'tallies')";
    assert_eq!(client.query_one(made, &[]).await.unwrap().get::<_, i64>(0), 1, "by one transaction");
}

/// Takes the last migration back.
const AS_BEFORE: &str = "
    ALTER TABLE redrive.jobs DROP COLUMN author;
    DROP FUNCTION redrive.put;
    CREATE FUNCTION redrive.put(uuid[], integer[], integer[], bigint[], bigint[], bigint[], smallint[], text[], text[],
                                integer[], jsonb[], text[]) RETURNS void LANGUAGE sql AS '';
    UPDATE redrive.meta SET value = '13' WHERE name = 'schema';";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_to_change_the_schema_holds_nobody_up_for_long() {
    let database = redrive_testbed::database().await;
    PostgresStore::connect(database.url()).await.unwrap();
    let connect = async || redrive_testbed::connect(database.url()).await.unwrap();
    let (held, others) = (connect().await, connect().await);
    held.batch_execute(AS_BEFORE).await.unwrap();
    held.batch_execute("BEGIN; LOCK TABLE redrive.jobs IN ROW EXCLUSIVE MODE").await.unwrap();

    let url = database.url().to_owned();
    let opening = tokio::spawn(async move { PostgresStore::connect(&url).await });
    let waits =
        "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'redrive.jobs'::regclass AND NOT granted)";
    while !others.query_one(waits, &[]).await.unwrap().get::<_, bool>(0) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let read = others.query_one("SELECT count(*) FROM redrive.jobs", &[]);
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("it is behind whoever waits").unwrap();
    assert!(!opening.is_finished(), "the transaction is still open");
    held.batch_execute("COMMIT").await.unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_refused_unless_it_says_that_this_version_may_go_on() {
    let database = redrive_testbed::database().await;
    PostgresStore::connect(database.url()).await.unwrap();
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let newer = "UPDATE redrive.meta SET value = (value::int + 1)::text WHERE name = 'schema'";
    client.batch_execute(newer).await.unwrap();
    PostgresStore::connect(database.url()).await.expect("the last version goes on beside the next");

    let later = "UPDATE redrive.meta SET value = (SELECT value FROM redrive.meta WHERE name = 'schema') \
                 WHERE name = 'oldest'";
    client.batch_execute(later).await.unwrap();
    let error = refused(database.url()).await;
    assert_eq!((error.kind(), error.kind().code()), (ErrorKind::Newer, "RETRY_STORE_NEWER"), "{error}");
    assert!(error.hint().unwrap().contains("newer version"), "{error}");
    let row =
        client.query_one("SELECT value::int FROM redrive.meta WHERE name = 'schema'", &[]).await.unwrap();
    let schema: i32 = row.get(0);
    assert!(error.to_string().contains(&format!("schema {schema}")), "{error}");
}
