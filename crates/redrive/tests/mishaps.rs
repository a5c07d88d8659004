//! Bad input and bad files: each gets a named error with a hint, and nothing is changed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use redrive::{
    Attempt, Engine, Error, ErrorKind, Json, NewJob, PAYLOAD_BYTES_MAX, Payload, Policy, Queue, SqliteStore,
    millis,
};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Task {
    text: String,
}

impl Payload for Task {
    const KIND: &'static str = "task";
}

fn task() -> Task {
    Task { text: "hello".into() }
}

async fn refused(path: &Path) -> Error {
    let Err(error) = SqliteStore::open(path).await else { panic!("{} was opened", path.display()) };
    assert!(error.hint().is_some(), "{error}");
    error
}

/// A file with jobs in it, closed.
async fn file_with_jobs(path: &Path) {
    let engine = Engine::builder(SqliteStore::open(path).await.unwrap()).produce::<Task>().build().unwrap();
    let jobs = (0..200).map(|_| Task { text: "x".repeat(400) });
    engine.enqueue_all(jobs).await.unwrap();
}

// One file, one engine.

#[tokio::test]
async fn a_second_store_on_the_file_is_told_which_process_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let error = refused(&path).await;
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    store.close().await.unwrap();
    SqliteStore::open(&path).await.expect("it is free again");
}

const HELD: &str = "REDRIVE_MISHAPS_FILE";

#[test]
#[ignore = "the other process of the next test"]
fn the_other_process() {
    #[expect(clippy::disallowed_methods, reason = "a process of its own is told its file")]
    let Ok(path) = std::env::var(HELD) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _store = runtime.block_on(SqliteStore::open(path)).unwrap();
    std::io::stdout().write_all(b"held\n").unwrap();
    // Until the parent lets go of it.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[tokio::test]
async fn a_file_that_another_process_holds_is_refused_until_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["the_other_process", "--exact", "--ignored", "--nocapture"])
        .env(HELD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("held")));
    let error = refused(&path).await;
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains(&format!("process {}", other.id())), "{error}");
    other.kill().unwrap();
    other.wait().unwrap();
    SqliteStore::open(&path).await.expect("a lock goes with its process");
}

#[tokio::test]
async fn a_file_is_one_file_by_whatever_link_somebody_comes() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = SqliteStore::open(at("jobs.db")).await.unwrap();
    symlink(at("jobs.db"), at("link.db")).unwrap();
    assert_eq!(refused(&at("link.db")).await.kind(), ErrorKind::InUse);
    let schema = SqliteStore::schema_at(at("link.db")).await.unwrap();
    assert!(schema.found.is_some(), "it is still in the log, which is beside the file");
    let me = format!("process {}", std::process::id());
    assert_eq!(SqliteStore::holder_at(at("link.db")).await.unwrap(), Some(me));
    store.close().await.unwrap();
    assert_eq!(SqliteStore::holder_at(at("link.db")).await.unwrap(), None);
    SqliteStore::open(at("link.db")).await.expect("it is free again").close().await.unwrap();
    assert!(!at("link.db.lock").exists() && !at("link.db-wal").exists());

    // Under a second name it would have a second log.
    std::fs::hard_link(at("jobs.db"), at("other.db")).unwrap();
    for name in ["jobs.db", "other.db"] {
        let two = refused(&at(name)).await;
        assert!(two.to_string().contains("has 2 names"), "{two}");
    }
    std::fs::remove_file(at("other.db")).unwrap();
    SqliteStore::open(at("jobs.db")).await.expect("it has one name again").close().await.unwrap();

    symlink(at("nowhere.db"), at("nothing.db")).unwrap();
    let nothing = refused(&at("nothing.db")).await;
    assert!(nothing.to_string().contains("leads nowhere") && !at("nowhere.db").exists(), "{nothing}");
    std::fs::write(at("letter"), "dear reader").unwrap();
    symlink(at("letter"), at("new.db.lock")).unwrap();
    assert_eq!(refused(&at("new.db")).await.kind(), ErrorKind::ReadOnly);
    std::fs::remove_file(at("new.db.lock")).unwrap();
    std::fs::hard_link(at("letter"), at("new.db.lock")).unwrap();
    assert_eq!(refused(&at("new.db")).await.kind(), ErrorKind::ReadOnly);
    assert_eq!(std::fs::read_to_string(at("letter")).unwrap(), "dear reader");
}

#[tokio::test]
async fn whoever_asks_for_the_schema_of_a_file_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs #1?.db");
    file_with_jobs(&path).await;
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    assert!(SqliteStore::schema_at(&path).await.unwrap().found.is_some());
    assert_eq!(names(), before);
    let _open = SqliteStore::open(&path).await.unwrap();
    assert!(SqliteStore::schema_at(&path).await.unwrap().found.is_some(), "also while it is in use");
}

// Files.

#[tokio::test]
async fn a_place_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = refused(&folder.path().join("missing").join("jobs.db")).await;
    assert_eq!(missing.kind(), ErrorKind::ReadOnly);

    std::fs::create_dir(folder.path().join("a folder")).unwrap();
    let a_folder = refused(&folder.path().join("a folder")).await;
    assert_eq!(a_folder.kind(), ErrorKind::ReadOnly, "{a_folder}");

    let under_a_file = folder.path().join("file");
    std::fs::write(&under_a_file, "text").unwrap();
    assert_eq!(refused(&under_a_file.join("jobs.db")).await.kind(), ErrorKind::ReadOnly);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    let letter = "Dear reader, this is no database.\n".repeat(100);
    std::fs::write(&path, &letter).unwrap();
    let error = refused(&path).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), letter);
}

#[tokio::test]
async fn an_empty_file_is_a_new_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    std::fs::write(&path, "").unwrap();
    SqliteStore::open(&path).await.unwrap();
}

#[tokio::test]
async fn a_truncated_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    file_with_jobs(&path).await;
    let whole = std::fs::read(&path).unwrap();
    for part in [whole.len() / 100 * 99, whole.len() / 2, whole.len() / 10, 4_096, 1_000] {
        std::fs::write(&path, &whole[..part]).unwrap();
        let error = refused(&path).await;
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{part} bytes: {error}");
        assert_eq!(std::fs::read(&path).unwrap(), &whole[..part], "{part} bytes");
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    file_with_jobs(&path).await;
    let db = Connection::open(&path).unwrap();
    db.execute("UPDATE redrive_meta SET value = '999' WHERE name = 'schema'", []).unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    let error = refused(&path).await;
    assert_eq!(error.kind(), ErrorKind::Newer);
    assert!(error.to_string().contains("999"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

// Input.

async fn an_engine() -> (Engine, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("jobs.db")).await.unwrap();
    (Engine::builder(store).handle(|_: Attempt<Task>| async {}).build().unwrap(), folder)
}

#[tokio::test]
async fn a_job_that_cannot_be_accepted_is_refused_by_name_and_leaves_no_trace() {
    let (engine, _folder) = an_engine().await;
    let json = |text: &str| Json::parse(text).unwrap();
    let oversized = Task { text: "x".repeat(PAYLOAD_BYTES_MAX) };
    let cases: [(NewJob, &str); 8] = [
        (NewJob::of_kind("unknown", json("{}")), "nothing here knows jobs of the kind \"unknown\""),
        (NewJob::from(task()).queue("elsewhere"), "there is no queue \"elsewhere\""),
        (NewJob::from(oversized), "262144 are allowed"),
        (NewJob::from(task()).key("k".repeat(257)), "its key has 257 bytes"),
        (NewJob::from(task()).key(""), "its key has 0 bytes"),
        (NewJob::from(task()).ordering_key("k".repeat(257)), "its ordering key has 257 bytes"),
        (NewJob::from(task()).policy(Policy::fixed(millis(1)).attempts(0)), "was not accepted"),
        (NewJob::from(task()).deadline(redrive::Timestamp::EPOCH), "after its time is over"),
    ];
    for (job, expected) in cases {
        let error = engine.enqueue(job.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(
            error.hint().is_some() && error.to_string().contains(expected),
            "{expected:?} is not in {error}"
        );
        // One that is refused takes the others of its call with it.
        engine.enqueue_all([NewJob::from(task()), job]).await.unwrap_err();
    }
    let counts = engine.counts().await.unwrap();
    assert!(counts.iter().all(|queue| queue.waiting == 0 && queue.totals.enqueued == 0), "{counts:?}");
}

#[tokio::test]
async fn text_that_is_no_json_does_not_become_a_payload() {
    for text in ["", "{", "{\"a\":1} {\"b\":2}", "nonsense", "{'a':1}"] {
        assert!(Json::parse(text).is_err(), "{text:?}");
    }
}

#[tokio::test]
async fn an_engine_with_an_invalid_policy_is_not_built() {
    let (_engine, folder) = an_engine().await;
    let store = SqliteStore::open(folder.path().join("other.db")).await.unwrap();
    let queue = Queue::new("broken").concurrency(0).policy(Policy::fixed(millis(1)).attempts(0));
    let Err(error) = Engine::builder(store).queue(queue).build() else { panic!("it was built") };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let hint = error.hint().unwrap();
    assert!(hint.contains("concurrency is 0") && hint.matches("queue \"broken\"").count() >= 2, "{hint}");
}
