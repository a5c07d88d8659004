//! `redrive doctor` as a user runs it: the real binary, on servers and files with the real trouble.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};
use std::time::Duration;

use redrive::{
    Claim, ClaimId, HolderId, JobId, Json, NewJob, OnRetry, PostgresOptions, PostgresStore, Queue, Rng,
    Severity, SqliteStore, Store, Timestamp, Want, admit, hours, mins, secs,
};
use redrive_testbed::{Cluster, Database, PgBouncer};
use serde_json::Value;

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_redrive"))
        .arg("doctor")
        .args(arguments)
        .output()
        .expect("the binary starts")
}

/// What was found, and the exit code.
struct Report {
    findings: Vec<Value>,
    code: Option<i32>,
}

impl Report {
    fn of(store: &str) -> Report {
        let output = doctor(&["--store", store, "--json"]);
        let findings = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|why| panic!("{why}: {}", String::from_utf8_lossy(&output.stderr)));
        Report { findings, code: output.status.code() }
    }

    /// The findings that are at least this bad, as `check: found`.
    fn worse(&self, severities: &[&str]) -> Vec<String> {
        let is_worse = |finding: &&Value| severities.contains(&finding["severity"].as_str().unwrap());
        let text = |finding: &Value| format!("{}: {}", finding["check"], finding["found"]);
        self.findings.iter().filter(is_worse).map(text).collect()
    }

    /// That this check says this, this bad, and advises that.
    fn assert_says(&self, check: &str, severity: &str, found: &str, advice: &str) {
        let has = |value: &Value, text: &str| value.as_str().is_some_and(|said| said.contains(text));
        let is_it = |finding: &Value| {
            finding["check"] == check
                && finding["severity"] == severity
                && has(&finding["found"], found)
                && (advice.is_empty() || has(&finding["advice"], advice))
        };
        assert!(
            self.findings.iter().any(is_it),
            "no {severity} of {check:?} with {found:?} and {advice:?} in {:#?}",
            self.findings
        );
    }
}

async fn database() -> (PostgresStore, Database) {
    let database = redrive_testbed::database().await;
    (PostgresStore::connect(database.url()).await.unwrap(), database)
}

/// A job of this queue that is or was due then.
async fn put(store: &impl Store, number: u16, queue: &str, due: Timestamp) {
    // What is late was enqueued before it was due.
    let (mut rng, now) = (Rng::seeded(u64::from(number)), store.clock().now().min(due));
    let new = NewJob::of_kind("mail", Json::of(&number).unwrap()).queue(queue).run_at(due);
    let id = JobId::new(now, number, &mut rng);
    let admission = admit(new, &Queue::new(queue), id, now, &mut rng).unwrap();
    store.enqueue(vec![admission], now).await.unwrap();
}

async fn claim(store: &impl Store, holder: HolderId, queue: &str, id: u128) -> usize {
    let wants = vec![Want { queue: queue.into(), limit: 1, on_retry: OnRetry::Block }];
    let claim = Claim {
        holder,
        ids: [ClaimId(id), ClaimId(id + 1)],
        wants,
        suspect: true,
        kinds: None,
        ahead: Duration::ZERO,
    };
    store.claim(claim, store.clock().now()).await.unwrap().jobs.len()
}

// ---- PostgreSQL ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_healthy_database_has_no_warning_and_nothing_that_cannot_be_seen() {
    let (store, database) = database().await;
    let now = store.clock().now();
    store.register(HolderId(1), "alive", now + mins(5)).await.unwrap();
    put(&store, 1, "default", now).await;
    put(&store, 2, "default", now + hours(1)).await;
    assert_eq!(claim(&store, HolderId(1), "default", 10).await, 1);
    let report = Report::of(database.url());
    assert_eq!(report.worse(&["notice", "warning", "danger"]), Vec::<String>::new());
    assert_eq!(report.code, Some(0));
    let checks: Vec<&str> =
        report.findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert_eq!(
        checks,
        [
            "server",
            "connections",
            "durability",
            "standbys",
            "clock",
            "pooler",
            "oldest transaction",
            "schema",
            "rights",
            "dead rows",
            "size",
            "indexes",
            "days",
            "leftovers",
            "counters",
            "leases",
            "workers",
            "hold",
            "overdue jobs"
        ]
    );
}

#[tokio::test]
async fn an_open_store_can_be_examined_too() {
    let (store, _database) = database().await;
    let findings = store.examine().await.unwrap();
    assert!(findings.iter().all(|finding| finding.severity <= Severity::Notice), "{findings:#?}");
}

#[tokio::test]
async fn text_has_a_line_for_each_check_with_its_advice_below_and_no_colour_in_a_pipe() {
    let database = redrive_testbed::database().await;
    let output = doctor(&["--store", database.url()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("ok  server: PostgreSQL"), "{text}");
    assert!(text.contains("\n!   schema: This database has no schema `redrive`"), "{text}");
    assert!(text.contains("\n    see whether the URL names the right database"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn an_examination_changes_nothing() {
    let database = redrive_testbed::database().await;
    Report::of(database.url()).assert_says("schema", "warning", "has no schema", "right database");
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let row = client.query_one("SELECT to_regnamespace('redrive') IS NULL", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
}

#[tokio::test]
async fn a_server_that_forgets_is_a_danger_though_no_engine_would_open_it() {
    let cluster = Cluster::start_with(&[("fsync", "off"), ("autovacuum", "off")]);
    let url = cluster.url("postgres");
    let report = Report::of(&url);
    report.assert_says("durability", "danger", "fsync switched off", "ALTER SYSTEM SET fsync = on");
    report.assert_says("autovacuum", "warning", "dead rows are never cleared", "autovacuum = on");
    assert_eq!(report.code, Some(2));

    let relaxed = PostgresOptions::default().relaxed_durability().connect(&url).await.unwrap();
    let findings = relaxed.examine().await.unwrap();
    let durability = findings.iter().find(|finding| finding.check == "durability").unwrap();
    assert_eq!(durability.severity, Severity::Warning, "whoever relaxed it knows");
}

#[tokio::test]
async fn commits_that_wait_for_a_standby_that_is_not_there_are_a_danger() {
    let cluster = Cluster::start_with(&[("synchronous_standby_names", "*")]);
    let report = Report::of(&cluster.url("postgres"));
    report.assert_says("standbys", "danger", "every write hangs", "synchronous_standby_names");
    assert_eq!(report.code, Some(2));
}

#[tokio::test]
async fn a_standby_is_a_danger_and_a_connected_one_is_good() {
    let primary = Cluster::start();
    let standby = primary.synchronous_standby();
    Report::of(&standby.url("postgres")).assert_says("server", "danger", "is a standby", "read-write");
    Report::of(&primary.url("postgres")).assert_says("standbys", "good", "in step", "");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_a_danger() {
    let report = Report::of("postgres://nobody@127.0.0.1:1/nothing");
    report.assert_says("server", "danger", "did not answer", "see whether the server runs");
    assert_eq!((report.findings.len(), report.code), (1, Some(2)));
}

#[tokio::test]
async fn a_newer_schema_is_a_danger_unless_it_still_allows_this_version() {
    let (_store, database) = database().await;
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    client.batch_execute("UPDATE redrive.meta SET value = '999' WHERE name = 'schema'").await.unwrap();
    let report = Report::of(database.url());
    report.assert_says("schema", "notice", "can still work on it", "replace the programs");
    client.batch_execute("UPDATE redrive.meta SET value = '998' WHERE name = 'oldest'").await.unwrap();
    let report = Report::of(database.url());
    report.assert_says("schema", "danger", "it is refused", "newer version of Redrive");
    assert_eq!(report.code, Some(2));
}

#[tokio::test]
async fn a_transaction_that_keeps_dead_rows_is_named_with_its_process() {
    let (_store, database) = database().await;
    let pinning =
        redrive_testbed::connect(&format!("{}?application_name=report", database.url())).await.unwrap();
    pinning.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM redrive.live").await.unwrap();
    let row = pinning.query_one("SELECT pg_backend_pid()", &[]).await.unwrap();
    let pid: i32 = row.get(0);
    Report::of(database.url()).assert_says(
        "oldest transaction",
        "good",
        &format!("Process {pid} (report"),
        "",
    );

    let busy = redrive_testbed::connect(database.url()).await.unwrap();
    busy.batch_execute("SET synchronous_commit = off").await.unwrap();
    let burn = "DO $$ BEGIN FOR i IN 1 .. 100000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$";
    busy.batch_execute(burn).await.unwrap();
    let report = Report::of(database.url());
    let who = format!("Process {pid} (report, user postgres, idle in transaction)");
    report.assert_says("oldest transaction", "warning", &who, &format!("pg_terminate_backend({pid})"));
    assert_eq!(report.code, Some(1));
}

#[tokio::test]
async fn a_holder_that_nobody_ended_is_named_with_what_it_holds() {
    let (store, database) = database().await;
    let now = store.clock().now();
    store.register(HolderId(1), "the dead one", now - mins(10)).await.unwrap();
    store.register(HolderId(2), "the living one", now + mins(10)).await.unwrap();
    for (number, holder) in [(1, 1), (2, 2)] {
        put(&store, number, "default", now).await;
        assert_eq!(claim(&store, HolderId(holder), "default", u128::from(number) * 10).await, 1);
    }
    let report = Report::of(database.url());
    report.assert_says("leases", "warning", "\"the dead one\" has been over for 10 min", "start one");
    assert_eq!(report.worse(&["warning", "danger"]).len(), 1, "{:#?}", report.findings);
}

#[tokio::test]
async fn a_due_job_that_nobody_claims_is_found_by_queue() {
    let (store, database) = database().await;
    let now = store.clock().now();
    for (number, queue) in [(1, "mail"), (2, "paused"), (3, "later")] {
        put(&store, number, queue, if queue == "later" { now + hours(1) } else { now - secs(7_300) }).await;
    }
    store.pause("paused", true).await.unwrap();
    let report = Report::of(database.url());
    report.assert_says(
        "overdue jobs",
        "warning",
        "queue \"mail\" has been waiting for 2 h",
        "queue \"mail\"",
    );
    report.assert_says("overdue jobs", "notice", "The queue is paused", "Engine::resume(\"paused\")");
    report.assert_says("overdue jobs", "notice", "The queue is paused", "`redrive queues resume paused`");
    report.assert_says("workers", "notice", "No engine holds a lease, and jobs wait", "Engine::run");
    assert!(!format!("{:?}", report.findings).contains("\"later\""));
    assert_eq!(report.code, Some(1));
    store.operations().hold(true).await.unwrap();
    Report::of(database.url()).assert_says("hold", "warning", "nothing runs", "`redrive resume`");
}

#[tokio::test]
async fn an_index_whose_building_failed_is_named() {
    let (store, database) = database().await;
    let now = store.clock().now();
    for number in [1, 2] {
        put(&store, number, "default", now).await;
    }
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let index = "CREATE UNIQUE INDEX CONCURRENTLY mine ON redrive.live (queue)";
    client.batch_execute(index).await.unwrap_err();
    let report = Report::of(database.url());
    report.assert_says("indexes", "warning", "redrive.mine on redrive.live", "DROP INDEX CONCURRENTLY");
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_recognised_and_a_store_that_listens_through_it_is_warned() {
    let (_store, database) = database().await;
    let bouncer = PgBouncer::start(database.url());
    let url = bouncer.url(database.name());
    for _ in 0..3 {
        Report::of(&url).assert_says("pooler", "notice", "in transaction mode", "PostgresOptions::pooled()");
    }
    for (options, severity) in [
        (PostgresOptions::default(), Severity::Warning),
        (PostgresOptions::default().pooled(), Severity::Good),
        (PostgresOptions::default().listen_on(database.url()), Severity::Good),
    ] {
        let store = options.connect(&url).await.unwrap();
        let findings = store.examine().await.unwrap();
        let pooler = findings.iter().find(|finding| finding.check == "pooler").unwrap();
        assert_eq!(pooler.severity, severity, "{pooler:?}");
    }
}

#[tokio::test]
async fn tables_of_a_day_that_are_missing_are_named() {
    let (_store, database) = database().await;
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let names = "SELECT to_char((now() AT TIME ZONE 'UTC')::date, 'YYYYMMDD')";
    let today: String = client.query_one(names, &[]).await.unwrap().get(0);
    client.batch_execute(&format!("DROP TABLE redrive.done_{today}")).await.unwrap();
    let report = Report::of(database.url());
    report.assert_says("days", "warning", &format!("redrive.done_{today}"), "nothing is lost");
}

#[tokio::test]
async fn a_role_that_does_not_own_the_tables_is_told_so() {
    let cluster = Cluster::start();
    let url = cluster.url("postgres");
    drop(PostgresStore::connect(&url).await.unwrap());
    let grant = "CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA redrive TO guest; \
                 GRANT SELECT ON ALL TABLES IN SCHEMA redrive TO guest";
    redrive_testbed::connect(&url).await.unwrap().batch_execute(grant).await.unwrap();
    let report = Report::of(&url.replace("postgres@", "guest@"));
    report.assert_says("rights", "warning", "belong to postgres, not to guest", "GRANT postgres TO guest");
    report.assert_says("oldest transaction", "notice", "sees its own sessions only", "pg_monitor");
}

// ---- SQLite -------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_healthy_file_has_no_warning_and_says_who_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let url = format!("sqlite:{}", path.display());
    let store = SqliteStore::open(&path).await.unwrap();
    let report = Report::of(&url);
    assert_eq!(report.worse(&["notice", "warning", "danger"]), Vec::<String>::new());
    report.assert_says("engine", "good", &format!("in use by process {}", std::process::id()), "");
    assert_eq!(report.code, Some(0));

    store.close().await.unwrap();
    Report::of(&url).assert_says("engine", "notice", "No engine has the file open", "start one");
    SqliteStore::open(&path).await.expect("the examination keeps nobody out");
}

#[tokio::test]
async fn a_due_job_in_a_file_that_nobody_claims_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let now = store.clock().now();
    store.register(HolderId(1), "alive", now + mins(5)).await.unwrap();
    put(&store, 1, "running", now - hours(3)).await;
    put(&store, 2, "mail", now - hours(3)).await;
    assert_eq!(claim(&store, HolderId(1), "running", 10).await, 1);
    let report = Report::of(&format!("sqlite:{}", path.display()));
    report.assert_says("overdue jobs", "warning", "queue \"mail\" has been waiting for 3 h", "mail");
    assert!(!format!("{:?}", report.findings).contains("\"running\""), "{:#?}", report.findings);
    assert_eq!(report.code, Some(1));
    let findings = store.examine().await.unwrap();
    assert!(findings.iter().any(|finding| finding.found == "This process has the file."), "{findings:#?}");
}

#[tokio::test]
async fn a_file_that_is_held_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let report = || Report::of(&format!("sqlite:{}", path.display()));
    report().assert_says("hold", "good", "The store is not held.", "");
    store.operations().hold(true).await.unwrap();
    report().assert_says("hold", "warning", "nothing runs", "`redrive resume`");
    assert_eq!(report().code, Some(1));
}

#[test]
fn without_a_name_the_configured_store_is_examined() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("redrive.toml");
    std::fs::write(&config, "store = \"sqlite:nowhere.db\"\n").unwrap();
    let output = doctor(&["--config", config.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("There is no file nowhere.db"), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_a_danger_and_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere.db");
    let report = Report::of(&format!("sqlite:{}", path.display()));
    report.assert_says("file", "danger", "There is no file", "see whether the path is right");
    assert_eq!((report.code, path.exists()), (Some(2), false));
}

#[test]
fn a_file_of_something_else_is_a_danger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    std::fs::write(&path, "Dear Sir or Madam, ".repeat(1_000)).unwrap();
    let report = Report::of(&format!("sqlite:{}", path.display()));
    report.assert_says("file", "danger", "cannot be read", "restore a backup");
    assert_eq!(report.code, Some(2));
}

// ---- the command line ---------------------------------------------------------------------------------------

#[test]
fn the_exit_codes_are_documented_and_a_wrong_store_is_explained() {
    let help = String::from_utf8(doctor(&["--help"]).stdout).unwrap();
    assert!(help.contains("Exit code: 0 if nothing is worse than a notice"), "{help}");
    let wrong = doctor(&["--store", "mysql://localhost/jobs"]);
    assert_eq!(wrong.status.code(), Some(2));
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(error.contains("or a URL like postgres://user@host/database"), "{error}");
    let wrong = doctor(&["--store", "postgres://user@host:port/database"]);
    assert_eq!(wrong.status.code(), Some(2));
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(error.contains("not a PostgreSQL URL") && error.contains("hint:"), "{error}");
}
