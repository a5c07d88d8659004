//! Four real processes on one PostgreSQL, and one destination that sees all their calls: what one of them learns all obey,
//! and a rate is kept by all together.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Client, within};
use crate::process::Process;
use crate::target::{Target, answer};

const FLEET: usize = 4;

/// Processes that call this target under these limits.
async fn fleet(database: &redrive_testbed::Database, folder: &Path, limits: &str) -> Vec<Process> {
    let settings = format!("[egress]\nallow = [\"127.0.0.0/8\"]\n[destination.\"127.0.0.1*\"]\n{limits}\n");
    std::fs::write(folder.join("redrive.toml"), settings).unwrap();
    let mut processes = Vec::new();
    for _ in 0..FLEET {
        processes.push(Process::on(database.url(), folder).await);
    }
    processes
}

/// Puts so many calls in, in one go.
async fn call(process: &Process, target: &Target, count: usize) {
    let job = json!({ "kind": "http", "payload": { "url": target.url("/") } });
    let client = Client { address: process.address, token: None };
    let put = client.post("/api/v1/jobs/bulk", &json!(vec![job; count])).await.data();
    assert_eq!(put.as_array().unwrap().len(), count);
}

/// When each call came, once `is_enough` says so.
async fn calls(target: &Target, is_enough: impl Fn(&[Instant]) -> bool) -> Vec<Instant> {
    within(async {
        loop {
            let came: Vec<Instant> = target.asked().iter().map(|asked| asked.at).collect();
            if is_enough(&came) {
                return came;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_pause_that_one_of_four_processes_was_asked_for_is_obeyed_by_all() {
    const LAST: usize = 60;
    let pause = Duration::from_secs(2);
    let target = Target::start(|n, _| match n {
        LAST => answer(429, "retry-after: 2\r\n", ""),
        _ => answer(204, "", ""),
    })
    .await;
    let (database, folder) = (redrive_testbed::database().await, tempfile::tempdir().unwrap());
    let processes = fleet(&database, folder.path(), "rate = \"100/s\"").await;
    call(&processes[0], &target, 400).await;
    let came = calls(&target, |came| came.get(LAST).is_some_and(|at| at.elapsed() > pause * 2)).await;
    let asked_for = came[LAST];
    let within_pause: Vec<Duration> = came
        .iter()
        .map(|at| at.saturating_duration_since(asked_for))
        .filter(|after| *after > Duration::from_millis(250) && *after < pause)
        .collect();
    assert_eq!(within_pause, [], "calls that began in the pause, after it was told");
    assert!(came.iter().any(|at| at.duration_since(asked_for) >= pause), "it goes on afterwards");
}

/// When each attempt began, by the database's clock, once so many are over.
async fn starts(database: &redrive_testbed::Database, count: usize) -> Vec<i64> {
    let (client, connection) = tokio_postgres::connect(database.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    within(async {
        loop {
            let rows = client.query("SELECT started_at FROM redrive.done ORDER BY 1", &[]).await.unwrap();
            if rows.len() == count {
                return rows.iter().map(|row| row.get(0)).collect();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

/// How much of the rate is used depends on what else the machine does: all of it if nothing, and some of it here.
#[tokio::test]
async fn a_rate_is_used_and_kept_by_four_processes_together() {
    const RATE: usize = 100;
    const BURST: usize = 10;
    const JOBS: usize = 400;
    let target = Target::start(|_, _| answer(204, "", "")).await;
    let (database, folder) = (redrive_testbed::database().await, tempfile::tempdir().unwrap());
    let processes = fleet(&database, folder.path(), "rate = \"100/s\"").await;
    call(&processes[0], &target, JOBS).await;
    let began = starts(&database, JOBS).await;
    for (n, first) in began.iter().enumerate() {
        let second = began[n..].iter().take_while(|at| **at - first < 1_000).count();
        // The burst once more: between being let go and beginning, a busy machine lets a moment pass.
        assert!(second <= RATE + 2 * BURST, "{second} calls in a second, from call {n} on");
    }
    let took = (began[JOBS - 1] - began[0]) as f64 / 1_000.0;
    let used = (JOBS - BURST) as f64 / took / RATE as f64;
    assert!(used >= 0.3, "{:.0} % of the rate were used", used * 100.0);
}
