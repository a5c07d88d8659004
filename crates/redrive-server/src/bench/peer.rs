//! Redrive's part in a comparison with other queues: the protocol is in bench/peers/postgres/README.md.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redrive::{Attempt, Engine, Failure, NewJob, Payload, Policy, Queue, Timestamp, millis};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use super::measures::CALLERS;
use super::workload::{self, BULK};
use crate::cli::BenchPeer;
use crate::stopwatch;

/// How often a worker reports.
const REPORT_EVERY: Duration = millis(5);
/// The first of the jobs that are due later, and the last after it.
const LEAD: f64 = 2_000.0;
const SPREAD: f64 = 10_000.0;

/// As the protocol wants it.
#[derive(Serialize, Deserialize)]
struct Task {
    n: u64,
    at: f64,
}

impl Payload for Task {
    const KIND: &'static str = "task";
}

/// What a worker has done.
#[derive(Default)]
struct Score {
    handled: AtomicU64,
    attempts: AtomicU64,
    late: std::sync::Mutex<Vec<f64>>,
}

pub(crate) async fn run(part: &BenchPeer) -> Result<()> {
    let name = part.measure.as_str();
    let score = Arc::new(Score::default());
    let failures = if name == "retry_path" { 2 } else { 0 };
    let timed = name == "latency" || name == "lateness";
    let engine = engine(part, &score, failures, timed).await?;
    let tasks = |range: std::ops::Range<u64>| range.map(|n| Task { n, at: 0.0 });
    match name {
        "setup" => say(&json!({
            "peer": "redrive",
            "unfinished": "redrive.live WHERE true",
            "attempts": "SELECT (SELECT count(*) FROM redrive.attempts) + (SELECT count(*) FROM redrive.done)",
        })),
        "fill" => bulk(&engine, part.jobs, tasks).await,
        "bulk_1000" => {
            let _lines = ready().await?;
            let began = stopwatch::now();
            bulk(&engine, part.jobs, tasks).await?;
            say(&json!({ "seconds": (stopwatch::now() - began).as_secs_f64() }))
        }
        "enqueue_64" => {
            let _lines = ready().await?;
            let began = stopwatch::now();
            callers(&engine, part.jobs).await?;
            say(&json!({ "seconds": (stopwatch::now() - began).as_secs_f64() }))
        }
        "latency_producer" => {
            let mut lines = ready().await?;
            for n in 0.. {
                engine.enqueue(Task { n, at: stopwatch::wall_ms() }).await?;
                lines.recv().await.context("the input ends the process")?;
            }
            Ok(())
        }
        "drain_1" | "drain_2" | "retry_path" | "latency" | "lateness" => {
            let _lines = ready().await?;
            if name == "lateness" {
                schedule(&engine, part.jobs).await?;
            }
            let report = report(&score);
            tokio::select! {
                ended = engine.run(std::future::pending()) => Ok(ended?),
                ended = report => ended,
            }
        }
        other => bail!("there is no measure {other:?}; see bench/peers/postgres/README.md"),
    }
}

async fn engine(part: &BenchPeer, score: &Arc<Score>, failures: u32, timed: bool) -> Result<Engine> {
    let score = score.clone();
    let handler = move |attempt: Attempt<Task>| {
        score.attempts.fetch_add(1, Ordering::Relaxed);
        if timed {
            let late = stopwatch::wall_ms() - attempt.payload.at;
            score.late.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(late);
        }
        let fails = attempt.number <= failures;
        if !fails {
            score.handled.fetch_add(1, Ordering::Relaxed);
        }
        async move { if fails { Err(Failure::retry("asked to fail")) } else { Ok(()) } }
    };
    let policy = Policy::immediate().attempts(3);
    let queue = Queue::new(redrive::DEFAULT_QUEUE).concurrency(part.places).policy(policy);
    Ok(Engine::on(workload::open(&part.store).await?).queue(queue).handle(handler).build()?)
}

async fn bulk<I: Iterator<Item = Task>>(
    engine: &Engine,
    jobs: u64,
    tasks: impl Fn(std::ops::Range<u64>) -> I,
) -> Result<()> {
    let mut next = 0;
    while next < jobs {
        let end = (next + BULK).min(jobs);
        engine.enqueue_all(tasks(next..end)).await?;
        next = end;
    }
    Ok(())
}

async fn callers(engine: &Engine, jobs: u64) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let engine = engine.clone();
        tasks.spawn(async move {
            for n in (caller..jobs).step_by(CALLERS as usize) {
                engine.enqueue(Task { n, at: 0.0 }).await?;
            }
            redrive::Result::<()>::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Enqueues jobs that are due one after the other, evenly spread.
async fn schedule(engine: &Engine, jobs: u64) -> Result<()> {
    let first = stopwatch::wall_ms() + LEAD;
    let tasks = (0..jobs).map(|n| {
        // Due times are whole milliseconds.
        let at = (first + SPREAD * n as f64 / jobs as f64).ceil();
        NewJob::from(Task { n, at }).run_at(Timestamp::from_millis(at as i64))
    });
    engine.enqueue_all(tasks).await?;
    Ok(())
}

/// Says what has happened since the last time, for as long as the process lives.
async fn report(score: &Score) -> Result<()> {
    let mut said = 0;
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        let late = std::mem::take(&mut *score.late.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let attempts = score.attempts.load(Ordering::Relaxed);
        if attempts != said {
            said = attempts;
            say(
                &json!({ "handled": score.handled.load(Ordering::Relaxed), "attempts": attempts, "late_ms": late }),
            )?;
        }
    }
}

/// Says that it is ready and waits for the signal to begin. The end of the input ends the process.
async fn ready() -> Result<mpsc::UnboundedReceiver<String>> {
    let (send, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    lines.recv().await.context("the input ended before the signal")?;
    Ok(lines)
}

fn say(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
