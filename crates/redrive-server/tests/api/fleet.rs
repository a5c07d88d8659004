//! Four real processes on one PostgreSQL, and one destination that sees all their calls: what one of them learns all obey,
//! and a rate is kept by all together.

#![expect(clippy::disallowed_methods, reason = "how large the tests are is said by whoever starts them")]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Client, PATIENCE};
use crate::process::Process;
use crate::target::{Target, answer};

pub(crate) const FLEET: usize = 4;

/// Whether it is to be as large as was promised, which `make soak` asks for with `REDRIVE_OUTAGE=full`.
pub(crate) fn is_full() -> bool {
    std::env::var("REDRIVE_OUTAGE").is_ok_and(|size| size == "full")
}

/// How long all that may take.
pub(crate) fn patience() -> Duration {
    PATIENCE * if is_full() { 20 } else { 2 }
}

/// Processes that call this target under these limits.
pub(crate) async fn fleet(database: &redrive_testbed::Database, folder: &Path, limits: &str) -> Vec<Process> {
    let settings = format!("[egress]\nallow = [\"127.0.0.0/8\"]\n[destination.\"127.0.0.1*\"]\n{limits}\n");
    std::fs::write(folder.join("redrive.toml"), settings).unwrap();
    let mut processes = Vec::new();
    for _ in 0..FLEET {
        processes.push(Process::on(database.url(), folder).await);
    }
    processes
}

/// Puts so many calls in, up to a thousand in one go.
pub(crate) async fn call(process: &Process, target: &Target, count: usize) {
    let job = json!({ "kind": "http", "payload": { "url": target.url("/") } });
    let client = Client { address: process.address, token: None };
    for part in vec![job; count].chunks(1_000) {
        let put = client.post("/api/v1/jobs/bulk", &json!(part)).await.data();
        assert_eq!(put.as_array().unwrap().len(), part.len());
    }
}

/// When each call came, once `is_enough` says so.
pub(crate) async fn calls(target: &Target, is_enough: impl Fn(&[Instant]) -> bool) -> Vec<Instant> {
    let came = async {
        loop {
            let came: Vec<Instant> = target.asked().iter().map(|asked| asked.at).collect();
            if is_enough(&came) {
                return came;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(patience(), came).await.expect("it takes too long")
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

/// Claims are made ahead, and each call starts when it has its turn: what is measured is when the target sees it. Where the
/// machine lets everybody stand still, what was to start meanwhile starts afterwards; nothing else may be on top.
#[tokio::test]
async fn a_rate_is_used_and_kept_by_four_processes_together() {
    const RATE: usize = 100;
    const BURST: usize = 10;
    let jobs = if is_full() { 10_000 } else { 1_000 };
    let second = Duration::from_secs(1);
    let target = Target::start(|_, _| answer(204, "", "")).await;
    let (database, folder) = (redrive_testbed::database().await, tempfile::tempdir().unwrap());
    let processes = fleet(&database, folder.path(), "rate = \"100/s\"").await;
    call(&processes[0], &target, jobs).await;
    let came = calls(&target, |came| came.len() == jobs).await;
    let stall = |from: usize, to: usize| {
        let gaps = came[from..to].windows(2).map(|pair| pair[1].duration_since(pair[0]));
        gaps.max().filter(|gap| *gap > Duration::from_millis(20)).unwrap_or_default()
    };
    for n in RATE..jobs {
        let end = n + came[n..].iter().take_while(|at| at.duration_since(came[n]) < second).count();
        let late = (stall(n - RATE, end).as_secs_f64() * RATE as f64).ceil() as usize;
        assert!(end - n <= RATE + BURST + late, "{} calls in a second, from call {n} on", end - n);
    }
    // From the second second on; each tenth of the run, so that one stall is not the whole.
    let mut used: Vec<f64> = came[RATE..]
        .chunks(RATE)
        .map(|part| (part.len() - 1) as f64 / (part[part.len() - 1] - part[0]).as_secs_f64())
        .collect();
    used.sort_by(f64::total_cmp);
    let used = used[used.len() / 2] / RATE as f64;
    println!("{:.1} % of the rate were used", used * 100.0);
    assert!((0.95..1.02).contains(&used), "{:.1} % of the rate were used", used * 100.0);
}
