//! The views for readers: each query of the documents they come from, as it is written there, on both databases.
//!
//! On PostgreSQL with the schema on the search path; on SQLite with the prefix and its own date arithmetic. Only
//! `articles`, which is its writer's own table, is read from `failed_jobs`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::{
    Attempt, Engine, Event, Failure, Happening, Job, JobId, NewJob, Payload, Policy, PostgresStore, Queue,
    Result, SqliteStore, Store, days, mins,
};
use redrive_testbed::tokio_postgres::{Client, SimpleQueryMessage};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

/// What its handler is to do.
#[derive(Serialize, Deserialize)]
struct Parse {
    file: String,
    ending: String,
}

impl Payload for Parse {
    const KIND: &'static str = "parse";
}

fn parse(file: &str, ending: &str) -> NewJob {
    Parse { file: file.to_owned(), ending: ending.to_owned() }.into()
}

async fn handle(attempt: Attempt<Parse>) -> Result<(), Failure> {
    match attempt.payload.ending.as_str() {
        "done" => Ok(()),
        "timeout" => Err(Failure::retry("TMDb API timeout")),
        "gone" => Err(Failure::permanent("HTTP 404: Not Found")),
        _ => std::future::pending().await,
    }
}

enum Database {
    Postgres(Box<Client>, redrive_testbed::Database),
    Sqlite(TempDir),
}

type Row = BTreeMap<String, Option<String>>;

/// One job in each state, and an engine beside the test that holds one of them.
struct World {
    database: Database,
    engine: Engine,
    events: broadcast::Receiver<Event>,
    running: Option<(oneshot::Sender<()>, JoinHandle<Result<()>>)>,
    ids: BTreeMap<&'static str, JobId>,
}

async fn postgres() -> World {
    let database = redrive_testbed::database().await;
    let store = Arc::new(PostgresStore::connect(database.url()).await.unwrap());
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    client.batch_execute("SET search_path = redrive").await.unwrap();
    World::on(store, Database::Postgres(Box::new(client), database)).await
}

async fn sqlite() -> World {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(file(&folder)).await.unwrap());
    World::on(store, Database::Sqlite(folder)).await
}

impl World {
    async fn on(store: Arc<dyn Store>, database: Database) -> World {
        let engine = Engine::on(store)
            .name("worker-1")
            .queue(Queue::new("default").policy(Policy::fixed(mins(10)).retries(2)))
            .queue(Queue::new("closed").policy(Policy::preset("feed").unwrap()))
            .handle(handle)
            .build()
            .unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (worker, events) = (engine.clone(), engine.events());
        let task = tokio::spawn(async move { worker.run(async { drop(stopped.await) }).await });
        let mut world = World { database, engine, events, running: Some((stop, task)), ids: BTreeMap::new() };
        world.fill().await;
        world
    }

    /// Each name says how its job stands when this returns.
    async fn fill(&mut self) {
        self.put("succeeded", parse("a.mkv", "done")).await;
        self.until(|what| matches!(what, Happening::Succeeded { .. })).await;
        self.put("refused", parse("b.mkv", "gone")).await;
        self.until(|what| matches!(what, Happening::Dead { .. })).await;
        let policy = Policy::immediate().retries(2);
        self.put("exhausted", parse("c.mkv", "timeout").policy(policy).key("parse-456")).await;
        self.until(|what| matches!(what, Happening::Dead { .. })).await;
        let deadline = self.engine.now() + days(30);
        self.put("retry soon", parse("d.mkv", "timeout").deadline(deadline)).await;
        self.until(|what| matches!(what, Happening::RetryScheduled { .. })).await;
        let parent = self.ids["succeeded"];
        let long = Policy::preset("workflow-long").unwrap();
        let far =
            parse("e.mkv", "done").policy(long).after(days(7)).parent(parent).label("node_id", "api-call-1");
        self.put("far", far).await;
        self.put("cancelled", parse("f.mkv", "done").after(days(1))).await;
        self.engine.cancel(self.ids["cancelled"]).await.unwrap();
        let outside = Failure::retry("Network timeout");
        let ready = parse("g.mkv", "done").queue("closed").failed_outside(outside);
        self.put("ready", ready).await;
        self.engine.pause("closed").await.unwrap();
        self.engine.retry_now(self.ids["ready"]).await.unwrap();
        self.put("running", parse("h.mkv", "endless")).await;
        self.until(|what| matches!(what, Happening::Started { .. })).await;
    }

    async fn put(&mut self, name: &'static str, job: NewJob) {
        // Events of jobs before are of no interest.
        self.events = self.engine.events();
        self.ids.insert(name, self.engine.enqueue(job).await.unwrap().id);
    }

    async fn until(&mut self, wanted: impl Fn(&Happening) -> bool) {
        while !wanted(&self.events.recv().await.unwrap().what) {}
    }

    /// Runs a query as it is written for PostgreSQL.
    async fn query(&self, sql: &str) -> Vec<Row> {
        let sql = sql.replace("articles", "failed_jobs");
        match &self.database {
            Database::Postgres(client, _) => answer(client.simple_query(&sql).await.unwrap()),
            Database::Sqlite(folder) => ask_sqlite(&file(folder), &translated(&sql)),
        }
    }

    /// The names of the jobs it finds, in its order.
    async fn find(&self, sql: &str) -> Vec<&'static str> {
        let rows = self.query(sql).await;
        rows.iter().map(|row| self.name(row["id"].as_deref().unwrap())).collect()
    }

    fn name(&self, id: &str) -> &'static str {
        self.ids.iter().find(|(_, known)| known.to_string() == id).unwrap().0
    }

    async fn one(&self, view: &str, name: &str) -> Row {
        let sql = format!("SELECT * FROM {view} WHERE id = '{}'", self.ids[name]);
        let mut rows = self.query(&sql).await;
        assert_eq!(rows.len(), 1, "{view} has {name} once");
        rows.remove(0)
    }

    async fn job(&self, name: &str) -> Job {
        self.engine.get(self.ids[name]).await.unwrap().unwrap().job
    }

    async fn end(mut self) {
        // The one that runs would hold up the end for the grace period.
        self.engine.cancel(self.ids["running"]).await.unwrap();
        let (stop, task) = self.running.take().unwrap();
        drop(stop);
        task.await.unwrap().unwrap();
    }
}

fn answer(messages: Vec<SimpleQueryMessage>) -> Vec<Row> {
    let mut rows = Vec::new();
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            let value = |(at, column): (usize, &redrive_testbed::tokio_postgres::SimpleColumn)| {
                (column.name().to_owned(), row.get(at).map(str::to_owned))
            };
            rows.push(row.columns().iter().enumerate().map(value).collect());
        }
    }
    rows
}

fn translated(sql: &str) -> String {
    let mut sql = sql
        .replace("NOW() + INTERVAL '24 hours'", "datetime('now', '+24 hours')")
        .replace("NOW() - INTERVAL '10 minutes'", "datetime('now', '-10 minutes')")
        .replace("NOW()", "datetime('now', 'subsec')");
    for view in ["retry_schedules", "retry_queue", "queued_operations", "failed_jobs", "dead_letters"] {
        sql = sql.replace(view, &format!("redrive_{view}"));
    }
    sql
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("jobs.db")
}

fn ask_sqlite(path: &Path, sql: &str) -> Vec<Row> {
    use rusqlite::types::ValueRef;
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let name = |at| statement.column_name(at).unwrap().to_owned();
    let names: Vec<String> = (0..statement.column_count()).map(name).collect();
    let text = |value: ValueRef<'_>| match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(text) | ValueRef::Blob(text) => Some(String::from_utf8_lossy(text).into_owned()),
    };
    let rows = statement
        .query_map([], |row| {
            names.iter().enumerate().map(|(at, name)| Ok((name.clone(), text(row.get_ref(at)?)))).collect()
        })
        .unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

fn value<'a>(row: &'a Row, column: &str) -> &'a str {
    row[column].as_deref().unwrap_or("NULL")
}

fn json(row: &Row, column: &str) -> serde_json::Value {
    serde_json::from_str(value(row, column)).unwrap()
}

fn sorted(mut names: Vec<&'static str>) -> Vec<&'static str> {
    names.sort_unstable();
    names
}

macro_rules! on_both {
    ($($(#[$doc:meta])* async fn $name:ident($world:ident: &World) $body:block)+) => {
        $(async fn $name($world: &World) $body)+
        mod on_postgres {
            $(#[tokio::test]
            async fn $name() {
                let world = super::postgres().await;
                super::$name(&world).await;
                world.end().await;
            })+
        }
        mod on_sqlite {
            $(#[tokio::test]
            async fn $name() {
                let world = super::sqlite().await;
                super::$name(&world).await;
                world.end().await;
            })+
        }
    };
}

on_both! {
async fn s2_44_all_scheduled_retries_come_in_the_order_they_are_due(world: &World) {
    let sql = "SELECT * FROM retry_schedules
WHERE status = 'scheduled' 
ORDER BY scheduled_at;";
    assert_eq!(world.find(sql).await, ["ready", "retry soon", "far"]);
}

async fn s2_45_what_is_due_in_the_next_24_hours_leaves_out_next_week(world: &World) {
    let sql = "SELECT * FROM retry_schedules
WHERE status = 'scheduled' 
  AND scheduled_at <= NOW() + INTERVAL '24 hours'
ORDER BY scheduled_at;";
    assert_eq!(world.find(sql).await, ["ready", "retry soon"]);
}

/// "Average retry delay" and "Retries by strategy" of the document's metrics.
async fn s2_41_and_s2_42_delays_are_averaged_and_retries_counted_by_strategy(world: &World) {
    let sql = "SELECT retry_strategy, COUNT(*) AS n, AVG(COALESCE(delay_seconds, initial_delay_seconds)) AS delay
             FROM retry_schedules GROUP BY retry_strategy ORDER BY retry_strategy";
    let rows = world.query(sql).await;
    let counts: Vec<_> = rows.iter().map(|row| (value(row, "retry_strategy"), value(row, "n"))).collect();
    let expected = [("custom", "1"), ("exponential_backoff", "1"), ("fixed_delay", "5"), ("immediate", "1")];
    assert_eq!(counts, expected);
    let delay = |at: usize| value(&rows[at], "delay").parse::<f64>().unwrap();
    assert_eq!((delay(1), delay(2), delay(3)), (60.0, 600.0, 0.0));
}

async fn s2_46_failed_retries_come_newest_first(world: &World) {
    let sql = "SELECT * FROM retry_schedules
WHERE status = 'failed'
ORDER BY updated_at DESC;";
    assert_eq!(world.find(sql).await, ["exhausted", "refused"]);
}

async fn s2_47_the_success_rate_has_two_decimals_and_counts_every_retained_job(world: &World) {
    let sql = "SELECT
  COUNT(*) FILTER (WHERE status = 'completed') as successful,
  COUNT(*) FILTER (WHERE status = 'failed') as failed,
  COUNT(*) as total,
  ROUND(100.0 * COUNT(*) FILTER (WHERE status = 'completed') / COUNT(*), 2) as success_rate
FROM retry_schedules;";
    let rows = world.query(sql).await;
    let row = &rows[0];
    assert_eq!((value(row, "successful"), value(row, "failed"), value(row, "total")), ("1", "2", "8"));
    assert!(value(row, "success_rate").starts_with("12.5"), "{row:?}");
}

/// `findByStatusAndScheduledAtLessThanEqual`, `findByStatusAndLockedAtLessThan`.
async fn s2_25_and_s2_32_the_scheduler_finds_what_is_due_and_what_is_locked_too_long(world: &World) {
    let due = "SELECT * FROM retry_schedules WHERE status = 'scheduled' AND scheduled_at <= NOW()";
    assert_eq!(world.find(due).await, ["ready"]);
    let locked = "SELECT * FROM retry_schedules WHERE status = 'retrying'";
    assert_eq!(world.find(locked).await, ["running"]);
    let stale = format!("{locked} AND locked_at < NOW() - INTERVAL '10 minutes'");
    assert!(world.find(&stale).await.is_empty());
}

async fn s2_07_to_s2_15_a_retry_schedule_has_every_column_of_the_document(world: &World) {
    let far = world.one("retry_schedules", "far").await;
    assert_eq!(value(&far, "retry_type"), "node_execution");
    assert_eq!(value(&far, "target_id"), world.ids["far"].to_string());
    assert_eq!(value(&far, "execution_id"), world.ids["succeeded"].to_string());
    assert_eq!(value(&far, "node_id"), "api-call-1");
    assert_eq!((value(&far, "retry_strategy"), value(&far, "max_attempts")), ("custom", "2"));
    let week = 7 * 86_400;
    let schedule = serde_json::json!({"attempts": [
        {"attempt": 1, "delay_seconds": week}, {"attempt": 2, "delay_seconds": 2 * week}]});
    assert_eq!(json(&far, "custom_schedule"), schedule);
    assert_eq!(json(&far, "retry_context"), serde_json::json!({"file": "e.mkv", "ending": "done"}));
    for column in ["last_retried_at", "expires_at", "locked_by", "locked_at", "error_history", "delay_seconds"] {
        assert_eq!(far[column], None, "{column}");
    }
    assert_eq!((value(&far, "version"), value(&far, "current_attempt")), ("1", "0"));

    let soon = world.one("retry_schedules", "retry soon").await;
    let times = ["created_at", "last_retried_at", "scheduled_at", "expires_at"].map(|column| value(&soon, column));
    assert!(times.is_sorted() && times[1] < times[2] && times[3] != "NULL", "{soon:?}");
    assert_eq!(value(&soon, "updated_at"), times[1]);

    let running = world.one("retry_schedules", "running").await;
    assert_eq!((value(&running, "status"), value(&running, "locked_by")), ("retrying", "worker-1"));
    assert_ne!(running["locked_at"], None);
    assert_eq!((value(&running, "retry_strategy"), value(&running, "delay_seconds")), ("fixed_delay", "600"));

    let ready = world.one("retry_schedules", "ready").await;
    assert_eq!((value(&ready, "retry_strategy"), value(&ready, "max_attempts")), ("exponential_backoff", "3"));
    assert_eq!((value(&ready, "initial_delay_seconds"), value(&ready, "max_delay_seconds")), ("60", "NULL"));
    assert!(["2", "2.0"].contains(&value(&ready, "multiplier")), "{ready:?}");

    let exhausted = world.one("retry_schedules", "exhausted").await;
    assert_eq!((value(&exhausted, "target_id"), value(&exhausted, "retry_strategy")), ("parse-456", "immediate"));
    assert_eq!((value(&exhausted, "current_attempt"), value(&exhausted, "version")), ("2", "4"));
    assert_eq!(world.one("retry_schedules", "cancelled").await["status"].as_deref(), Some("cancelled"));
}

async fn s2_14_and_s2_31_the_history_of_errors_keeps_the_last_one_too(world: &World) {
    let history = json(&world.one("retry_schedules", "exhausted").await, "error_history");
    let entries: Vec<_> =
        history.as_array().unwrap().iter().map(|entry| (&entry["attempt"], &entry["error"])).collect();
    let error = serde_json::json!("TMDb API timeout");
    assert_eq!(entries, [(&1.into(), &error), (&2.into(), &error), (&3.into(), &error)]);
    assert!(history[0]["timestamp"].is_string());
}

async fn s3_01_pending_operations_come_first_in_first_out(world: &World) {
    let sql = "SELECT * FROM queued_operations
             WHERE status = 'pending'
             ORDER BY created_at ASC";
    assert_eq!(world.find(sql).await, ["retry soon", "far", "ready"]);
    assert_eq!(world.find(&sql.replace("created_at ASC", "place LIMIT 2")).await, ["retry soon", "far"]);
}

async fn s3_09_an_operation_tells_its_status_its_count_and_when_it_was_processed(world: &World) {
    let exhausted = world.one("queued_operations", "exhausted").await;
    assert_eq!((value(&exhausted, "operation_type"), value(&exhausted, "status")), ("parse", "failed"));
    assert_eq!((value(&exhausted, "retry_count"), value(&exhausted, "max_retries")), ("3", "3"));
    assert_eq!((value(&exhausted, "last_error"), value(&exhausted, "processed_at")), ("TMDb API timeout", "NULL"));
    let succeeded = world.one("queued_operations", "succeeded").await;
    assert_eq!(value(&succeeded, "status"), "completed");
    assert_ne!(succeeded["processed_at"], None);
    assert_eq!(value(&world.one("queued_operations", "running").await, "status"), "processing");
}

async fn s4_16_an_article_that_was_not_tried_yet_is_pending_with_nothing_counted(world: &World) {
    let fresh = world.one("queued_operations", "far").await;
    assert_eq!((value(&fresh, "status"), value(&fresh, "retry_count")), ("pending", "0"));
    assert_eq!(fresh["last_error"], None);
    // Of those that failed it is none, and so there is no time for its next retry.
    assert_eq!(world.find(&format!("SELECT * FROM articles WHERE id = '{}'", world.ids["far"])).await, [""; 0]);
}

async fn s4_17_articles_ready_for_retry_have_failed_and_are_due(world: &World) {
    let sql = "SELECT * FROM articles
WHERE status = 'failed'
  AND next_retry_at IS NOT NULL
  AND next_retry_at <= NOW()
ORDER BY next_retry_at ASC;";
    assert_eq!(world.find(sql).await, ["ready"]);
}

async fn s4_18_permanently_failed_articles_have_no_next_time(world: &World) {
    let sql = "SELECT * FROM articles
WHERE status = 'failed'
  AND next_retry_at IS NULL;";
    assert_eq!(sorted(world.find(sql).await), ["exhausted", "refused"]);
    let dead = sql.replace("articles", "dead_letters");
    assert_eq!(sorted(world.find(&dead).await), ["exhausted", "refused"]);
}

async fn s4_19_failed_articles_are_counted_by_their_retries(world: &World) {
    let sql = "SELECT retry_count, COUNT(*) as count
FROM articles
WHERE status = 'failed'
GROUP BY retry_count;";
    let rows = world.query(sql).await;
    let mut counts: Vec<_> = rows.iter().map(|row| (value(row, "retry_count"), value(row, "count"))).collect();
    counts.sort_unstable();
    // Failed outside and not yet here; once here; once and for good; three times.
    assert_eq!(counts, [("0", "1"), ("1", "2"), ("3", "1")]);
}

async fn s4_26_articles_that_do_not_retry_show_when_and_why(world: &World) {
    let sql = "SELECT id, retry_count, next_retry_at, last_error
FROM articles
WHERE status = 'failed'
  AND next_retry_at IS NOT NULL;";
    assert_eq!(sorted(world.find(sql).await), ["ready", "retry soon"]);
    let errors: Vec<_> = world.query(sql).await.iter().map(|row| value(row, "last_error").to_owned()).collect();
    assert!(errors.contains(&"Network timeout".to_owned()) && errors.contains(&"TMDb API timeout".to_owned()));
}

async fn s4_26_permanent_failures_are_grouped_by_their_error(world: &World) {
    let sql = "
    SELECT last_error, COUNT(*) as count
    FROM articles
    WHERE status = 'failed' AND next_retry_at IS NULL
    GROUP BY last_error
    ORDER BY count DESC
";
    for sql in [sql.to_owned(), sql.replace("articles", "dead_letters")] {
        let rows = world.query(&sql).await;
        let mut errors: Vec<_> = rows.iter().map(|row| (value(row, "last_error"), value(row, "count"))).collect();
        errors.sort_unstable();
        assert_eq!(errors, [("HTTP 404: Not Found", "1"), ("TMDb API timeout", "1")]);
    }
}

async fn s4_29_a_dead_letter_says_why_it_died_and_after_how_many_attempts(world: &World) {
    let refused = world.one("dead_letters", "refused").await;
    assert_eq!((value(&refused, "reason"), value(&refused, "attempts")), ("permanent", "1"));
    assert_eq!(value(&refused, "last_error"), "HTTP 404: Not Found");
    assert!(refused["fingerprint"].is_some() && refused["failed_at"].is_some());
    let exhausted = world.one("dead_letters", "exhausted").await;
    assert_eq!((value(&exhausted, "reason"), value(&exhausted, "attempts")), ("exhausted", "3"));
}

/// `GetPending(now)`: "items ready for retry (next_attempt_at <= now)"; `FindByID`; `FindByTaskID`.
async fn s0_29_and_s0_40_the_retry_queue_finds_what_is_due_and_a_task_by_its_id(world: &World) {
    let due = "SELECT * FROM retry_queue WHERE next_attempt_at <= NOW() ORDER BY next_attempt_at";
    assert_eq!(world.find(due).await, ["ready"], "neither what runs nor what is over");
    let task = "SELECT * FROM retry_queue WHERE task_id = 'parse-456'";
    assert_eq!(world.find(task).await, ["exhausted"]);
}

async fn s0_14_a_retry_queue_item_has_every_column_of_the_document(world: &World) {
    let ready = world.one("retry_queue", "ready").await;
    assert_eq!((value(&ready, "task_id"), value(&ready, "task_type")), (value(&ready, "id"), "parse"));
    assert_eq!(value(&ready, "payload"), r#"{"file":"g.mkv","ending":"done"}"#);
    assert_eq!((value(&ready, "attempt_count"), value(&ready, "max_attempts")), ("0", "3"));
    assert_eq!((value(&ready, "last_error"), value(&ready, "status")), ("Network timeout", "scheduled"));
    assert!(ready["next_attempt_at"].is_some() && ready["created_at"].is_some() && ready["updated_at"].is_some());
    let exhausted = world.one("retry_queue", "exhausted").await;
    assert_eq!((value(&exhausted, "attempt_count"), value(&exhausted, "max_attempts")), ("2", "2"));
    let states: Vec<_> = world.query("SELECT status, COUNT(*) AS n FROM retry_queue GROUP BY status ORDER BY status").await;
    let states: Vec<_> = states.iter().map(|row| (value(row, "status"), value(row, "n"))).collect();
    assert_eq!(
        states,
        [("cancelled", "1"), ("completed", "1"), ("failed", "2"), ("retrying", "1"), ("scheduled", "3")]
    );
}

async fn every_view_says_when_to_the_millisecond_of_the_job(world: &World) {
    let due = world.job("far").await.due_at().as_millis();
    let sql = match world.database {
        Database::Postgres(..) => "SELECT round(extract(epoch FROM scheduled_at) * 1000) AS ms",
        Database::Sqlite(..) => "SELECT round(unixepoch(scheduled_at, 'subsec') * 1000) AS ms",
    };
    let rows = world.query(&format!("{sql} FROM retry_schedules WHERE id = '{}'", world.ids["far"])).await;
    assert_eq!(value(&rows[0], "ms").trim_end_matches(".0"), due.to_string());
}
}

#[tokio::test]
async fn zero_bytes_that_postgres_cannot_show_do_not_hide_the_other_rows() {
    let mut world = postgres().await;
    let zero = parse("zero\0byte", "done").after(days(1)).label("node_id", "zero\0byte");
    world.put("zero", zero).await;
    assert_eq!(world.query("SELECT * FROM retry_schedules").await.len(), 9);
    let row = world.one("retry_schedules", "zero").await;
    assert_eq!(json(&row, "retry_context")["file"], "zero\0byte");
    assert_eq!(value(&row, "node_id"), "zero\u{fffd}byte");
    world.end().await;
}

#[tokio::test]
async fn whoever_may_only_read_the_views_can_read_all_of_them() {
    let world = postgres().await;
    let Database::Postgres(client, database) = &world.database else { unreachable!() };
    let role = format!("reader_{}", database.name());
    let views = "redrive.retry_schedules, redrive.retry_queue, redrive.queued_operations, redrive.failed_jobs, \
                 redrive.dead_letters";
    client
        .batch_execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE ON SCHEMA redrive TO {role}; GRANT SELECT ON {views} TO {role}; SET ROLE {role}"
        ))
        .await
        .unwrap();
    for view in views.split(", ") {
        let rows = world.query(&format!("SELECT * FROM {}", view.trim())).await;
        assert!(!rows.is_empty(), "{view}");
    }
    assert!(client.batch_execute("SELECT * FROM redrive.jobs").await.is_err());
    client.batch_execute(&format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn who_reads_what_waits_does_not_read_history() {
    let world = postgres().await;
    let Database::Postgres(client, _) = &world.database else { unreachable!() };
    client
        .batch_execute(
            "INSERT INTO live (seq, id, due_at, queue, priority)
             SELECT n + 1000000, gen_random_uuid(), 1900000000000 + n * 1000, 1, 0 FROM generate_series(1, 50000) AS n;
             INSERT INTO jobs (id, seq, queue, policy, created_at, run_at, priority, kind, payload)
             SELECT l.id, l.seq, 1, 1, 0, 0, 0, 'many', '{}' FROM live AS l WHERE l.seq > 1000000;
             INSERT INTO done (seq, id, finished_at, queue)
             SELECT n + 2000000, gen_random_uuid(), 1700000000000 + n, 1 FROM generate_series(1, 50000) AS n;
             ANALYZE live; ANALYZE jobs; ANALYZE done;",
        )
        .await
        .unwrap();
    let first_waiting = [
        "SELECT * FROM retry_schedules WHERE status = 'scheduled' ORDER BY scheduled_at LIMIT 10",
        "SELECT * FROM retry_schedules WHERE status = 'scheduled' AND scheduled_at <= NOW() ORDER BY scheduled_at LIMIT 10",
        "SELECT * FROM retry_queue WHERE next_attempt_at <= NOW() ORDER BY next_attempt_at LIMIT 10",
        "SELECT * FROM failed_jobs WHERE status = 'failed' AND next_retry_at <= NOW() ORDER BY next_retry_at LIMIT 10",
    ];
    for sql in first_waiting {
        let plan = explain(client, sql).await;
        assert!(!plan.contains("done_"), "{sql}\n{plan}");
    }
    let sql = "SELECT * FROM queued_operations WHERE status = 'pending' ORDER BY place LIMIT 10";
    let plan = explain(client, sql).await;
    assert!(plan.contains("live_pkey") && !plan.contains("Seq Scan on live"), "{plan}");
    for sql in
        ["SELECT * FROM dead_letters", "SELECT * FROM retry_schedules WHERE status IN ('failed', 'retrying')"]
    {
        let plan = explain(client, sql).await;
        assert!(!plan.contains("done_other") && !plan.contains("Seq Scan on live"), "{sql}\n{plan}");
    }
    world.end().await;
}

async fn explain(client: &Client, sql: &str) -> String {
    let rows = answer(client.simple_query(&format!("EXPLAIN {sql}")).await.unwrap());
    rows.iter().map(|row| format!("{}\n", value(row, "QUERY PLAN"))).collect()
}
