//! Real processes on one PostgreSQL while the destination of their jobs is gone, and when it is back. `REDRIVE_OUTAGE=full`
//! makes it as large as it is promised: 50,000 jobs and half a minute, 1,000 operations in order.

#![expect(clippy::disallowed_methods, reason = "what real processes do is measured with the real clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redrive_testbed::Database;
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::client::{Client, PATIENCE, within};
use crate::fleet::{FLEET, call, calls, fleet, is_full, patience};
use crate::process::Process;
use crate::target::{Target, answer};

/// Places of a queue, where nothing else is said.
const PLACES: usize = 16;

/// Waits until so many jobs are done, and says how many calls failed at their cost, how many are dead, and what the
/// activity log tells of destinations.
async fn tally(database: &Database, count: usize, patience: Duration) -> (i64, i64, Vec<String>) {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let done = "SELECT count(*), coalesce(sum(failures), 0)::bigint FROM redrive.done";
    let failures = tokio::time::timeout(patience, async {
        loop {
            let row = client.query_one(done, &[]).await.unwrap();
            if row.get::<_, i64>(0) == i64::try_from(count).unwrap() {
                return row.get(1);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let failures = failures.await.expect("it takes too long");
    let dead = client.query_one("SELECT count(*) FROM redrive.dead_letters", &[]).await.unwrap().get(0);
    let told = "SELECT l.message FROM redrive.activity AS a
                CROSS JOIN LATERAL unnest(a.at, a.what, a.message) AS l (at, what, message)
                WHERE l.what = 'destination' ORDER BY l.at";
    let told = client.query(told, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    (failures, dead, told)
}

fn of(process: &Process) -> Client {
    Client { address: process.address, token: None }
}

/// Asks how the destination stands until it is so.
async fn until(process: &Process, target: &Target, is_so: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/api/v1/destinations/{}", target.address);
    within(async {
        loop {
            let seen = of(process).get(&path).await;
            if seen.status == 200 && is_so(&seen.data()) {
                return seen.data();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_destination_that_is_gone_costs_a_few_calls_no_failure_and_no_job() {
    const WELL: usize = 200;
    let (jobs, lasts) = if is_full() { (50_000, 30) } else { (1_500, 8) };
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = gone.clone();
    let target =
        Target::start(move |_, _| answer(if is_gone.load(Ordering::SeqCst) { 503 } else { 204 }, "", ""));
    let target = target.await;
    let (database, folder) = (redrive_testbed::database().await, tempfile::tempdir().unwrap());
    let processes = fleet(&database, folder.path(), "").await;
    call(&processes[0], &target, WELL).await;
    tally(&database, WELL, PATIENCE).await;

    gone.store(true, Ordering::SeqCst);
    for part in 0..jobs / 500 {
        call(&processes[part % FLEET], &target, 500).await;
    }
    let shut = until(&processes[1], &target, |seen| seen["state"] == "shut").await;
    assert_eq!(shut["reason"], "failing", "{shut}");
    let shut_at = Instant::now();
    let metrics = String::from_utf8(of(&processes[2]).get("/metrics").await.body.to_vec()).unwrap();
    let gauge = format!("redrive_destination_state{{destination=\"{}\"}} ", target.address);
    let state = metrics.lines().find_map(|line| line.strip_prefix(&gauge));
    assert!(matches!(state, Some("2" | "3")), "{state:?}");
    let held = format!("redrive_destination_held{{destination=\"{}\"}} ", target.address);
    assert!(metrics.lines().any(|line| line.starts_with(&held)), "{metrics}");
    tokio::time::sleep_until((shut_at + Duration::from_secs(lasts)).into()).await;
    let while_gone = target.asked().len() - WELL;
    gone.store(false, Ordering::SeqCst);

    let (failures, dead, told) = tally(&database, WELL + jobs, patience()).await;
    println!("{while_gone} calls in {lasts} s, {failures} failures, {dead} dead, {told:?}");
    assert!(while_gone <= FLEET * PLACES + 40, "{while_gone} calls while it was gone");
    assert!(failures < 10, "{failures} failures, where ten say that it is gone");
    assert_eq!(dead, 0);
    let downs = told.iter().filter(|line| line.contains("is down")).count();
    assert_eq!(downs, 1, "one line, however often it is asked: {told:?}");
}

#[tokio::test]
async fn what_was_queued_offline_goes_in_order_and_at_once_when_it_is_said_to_be_up() {
    let jobs = if is_full() { 1_000 } else { 150 };
    let target = Target::start(|_, _| answer(204, "", "")).await;
    let (database, folder) = (redrive_testbed::database().await, tempfile::tempdir().unwrap());
    let processes = fleet(&database, folder.path(), "").await;
    let say = |word: &str| format!("/api/v1/destinations/{}/{word}", target.address);
    of(&processes[0]).post(&say("down"), &json!({})).await.data();
    let job = |n: usize| json!({ "kind": "http", "payload": { "url": target.url(&format!("/{n}")) }, "orderingKey": "device" });
    let all: Vec<Value> = (0..jobs).map(job).collect();
    of(&processes[1]).post("/api/v1/jobs/bulk", &json!(all)).await.data();
    until(&processes[2], &target, |seen| seen["held"].as_u64().is_some_and(|held| held > 0)).await;
    assert_eq!(target.asked().len(), 0, "nothing goes while it is down");

    let said = Instant::now();
    of(&processes[3]).post(&say("up"), &json!({})).await.data();
    let came = calls(&target, |came| came.len() == jobs).await;
    let first = came[0].duration_since(said);
    println!("the first began {first:?} after it was said to be up");
    // How long that may take depends on who else needs the machine. That nobody has to look for it is shown in
    // crates/redrive/tests/postgres_races.rs.
    let order: Vec<String> =
        target.asked().iter().map(|asked| asked.line.split(' ').nth(1).unwrap().to_owned()).collect();
    let expected: Vec<String> = (0..jobs).map(|n| format!("/{n}")).collect();
    assert_eq!(order, expected);
}
