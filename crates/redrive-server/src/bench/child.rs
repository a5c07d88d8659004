//! What needs a process of its own: a million jobs made without leaving their memory behind, and an engine of which
//! nothing but itself is measured.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redrive::{NewJob, days};
use serde_json::{Value, json};

use super::report::rounded;
use super::usage;
use super::workload::{self, Parcel, fails};
use crate::cli::{BenchChild, ChildTask};
use crate::out;
use crate::stopwatch;

/// Jobs of one call of those that wait for next month.
const SEED: u64 = 10_000;
/// Until an engine that was just opened has nothing left to do.
const SETTLE: Duration = Duration::from_secs(2);
/// How long an idle engine is watched. Linux counts hundredths of a second, so this tells a tenth of a percent.
const WATCH: Duration = Duration::from_secs(10);

/// Starts this program again for a part of the benchmark, and reads its answer.
pub(crate) fn ask(task: ChildTask, path: &Path, count: u64) -> Result<Value> {
    use clap::ValueEnum as _;
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let task = task.to_possible_value().context("a task has a name")?;
    let output = Command::new(program)
        .args(["bench-child", task.get_name()])
        .arg(path)
        .arg(count.to_string())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start this program again")?;
    if !output.status.success() {
        bail!("the part of the benchmark that runs in its own process failed ({})", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// In the child: does it, and answers with one JSON object.
pub(crate) async fn run(child: &BenchChild) -> Result<()> {
    let BenchChild { task, path, count } = child;
    let answer = match task {
        ChildTask::Seed => seed(path, *count as u64).await?,
        ChildTask::Idle => idle(path, *count).await?,
        ChildTask::Drain => drain(path, *count).await?,
    };
    out::answer(&answer.to_string());
    Ok(())
}

async fn seed(path: &Path, jobs: u64) -> Result<Value> {
    let engine = workload::engine(path, 1, fails(0)).await?;
    let mut next = 0;
    while next < jobs {
        let end = (next + SEED).min(jobs);
        engine.enqueue_all((next..end).map(|n| NewJob::from(Parcel::new(n)).after(days(30)))).await?;
        next = end;
    }
    workload::close(engine, path).await?;
    Ok(json!({}))
}

async fn idle(path: &Path, places: usize) -> Result<Value> {
    let engine = workload::engine(path, places, fails(0)).await?;
    let mut used = None;
    engine
        .run(async {
            tokio::time::sleep(SETTLE).await;
            let (began, before) = (stopwatch::now(), usage::processor_time());
            tokio::time::sleep(WATCH).await;
            let passed = stopwatch::now() - began;
            used = usage::processor_time().zip(before).map(|(after, before)| {
                100.0 * after.saturating_sub(before).as_secs_f64() / passed.as_secs_f64()
            });
        })
        .await?;
    Ok(json!({
        "cpu_percent": used.map(|percent| rounded(percent, 3)),
        "rss_mb": usage::resident_mb().map(|mb| rounded(mb, 1)),
        "rss_peak_mb": usage::resident_peak_mb().map(|mb| rounded(mb, 1)),
    }))
}

async fn drain(path: &Path, places: usize) -> Result<Value> {
    let engine = workload::engine(path, places, fails(0)).await?;
    engine.drain().await?;
    workload::close(engine, path).await?;
    Ok(json!({ "rss_peak_mb": usage::resident_peak_mb().map(|mb| rounded(mb, 1)) }))
}
