//! What needs a process of its own: a million jobs made without leaving their memory behind, and an engine of which
//! nothing but itself is measured.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redrive::{Attempt, NewJob, days, mins};
use serde_json::{Value, json};

use super::by_hand::ByHand;
use super::database::Database;
use super::report::rounded;
use super::usage;
use super::workload::{self, Parcel, fails};
use crate::cli::{BenchChild, ChildTask, StoreUrl};
use crate::out;
use crate::stopwatch;

/// Jobs of one call of those that wait for next month.
const SEED: u64 = 10_000;
/// Until an engine that was just opened has nothing left to do.
const SETTLE: Duration = Duration::from_secs(2);
/// How long an idle engine is watched. Linux counts hundredths of a second, so this tells a tenth of a percent.
const WATCH: Duration = Duration::from_secs(10);

/// How long jobs are kept that run: their lease is renewed three times meanwhile.
const KEEP: Duration = Duration::from_secs(30);
/// How often it is looked whether all of them have begun.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts this program again for a part of the benchmark, and reads its answer.
pub(crate) fn ask(task: ChildTask, store: &StoreUrl, count: u64) -> Result<Value> {
    let output = command(task, store, count)?.output().context("cannot start this program again")?;
    if !output.status.success() {
        bail!("the part of the benchmark that runs in its own process failed ({})", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn command(task: ChildTask, store: &StoreUrl, count: u64) -> Result<Command> {
    use clap::ValueEnum as _;
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let task = task.to_possible_value().context("a task has a name")?;
    let mut command = Command::new(program);
    command.args(["bench-child", task.get_name(), &store.to_string(), &count.to_string()]);
    command.stderr(Stdio::inherit());
    Ok(command)
}

/// Several at once, begun together when all are ready; answers when the last has ended, in seconds.
pub(crate) fn race(task: ChildTask, processes: usize, store: &StoreUrl, count: u64) -> Result<f64> {
    let mut runners = Vec::new();
    for _ in 0..processes {
        let mut command = command(task, store, count)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stdout.take().context("its output is piped")?);
        said.read_line(&mut String::new())?;
        runners.push((child, said));
    }
    let began = stopwatch::now();
    for (child, _) in &mut runners {
        // Closing its input is the signal.
        drop(child.stdin.take());
    }
    for (child, said) in &mut runners {
        said.read_line(&mut String::new())?;
        if !child.wait()?.success() {
            bail!("a process that drains failed");
        }
    }
    Ok((stopwatch::now() - began).as_secs_f64())
}

/// In the child: does it, and answers with one JSON object.
pub(crate) async fn run(child: &BenchChild) -> Result<()> {
    let BenchChild { task, store, count } = child;
    let answer = match task {
        ChildTask::Seed => seed(store, *count as u64).await?,
        ChildTask::Fill => {
            let engine = workload::engine(store, 1, fails(0)).await?;
            workload::enqueue_bulk(&engine, *count as u64).await?;
            json!({})
        }
        ChildTask::FillExecutions => {
            let engine = workload::engine(store, 1, fails(0)).await?;
            workload::start_executions(&engine, *count as u64).await?;
            json!({})
        }
        ChildTask::RunOut => {
            let engine = workload::engine(store, *count, fails(0)).await?;
            ready()?;
            let mut left = Ok(());
            let watched = workload::until_empty(engine.clone(), store.clone());
            engine.run(async { left = watched.await }).await?;
            left?;
            json!({})
        }
        ChildTask::Idle => idle(store, *count).await?,
        ChildTask::Keep => keep(store, *count).await?,
        ChildTask::Drain => drain(store, *count).await?,
        ChildTask::DrainTogether => {
            let engine = workload::engine(store, *count, fails(0)).await?;
            ready()?;
            engine.drain_due().await?;
            json!({})
        }
        ChildTask::DrainByHand => {
            let StoreUrl::Postgres(url) = store else { bail!("only PostgreSQL is shared by processes") };
            let limit = ByHand::open(url).await?;
            ready()?;
            limit.drain(*count, 0).await?;
            json!({})
        }
    };
    out::answer(&answer.to_string());
    Ok(())
}

/// Says that it is ready, and waits until its input ends.
fn ready() -> Result<()> {
    out::answer("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

async fn seed(path: &StoreUrl, jobs: u64) -> Result<Value> {
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

async fn idle(path: &StoreUrl, places: usize) -> Result<Value> {
    let engine = workload::engine(path, places, fails(0)).await?;
    let mut cost = None;
    engine
        .run(async {
            tokio::time::sleep(SETTLE).await;
            cost = Some(watch(path, WATCH).await);
        })
        .await?;
    cost.context("it was watched")?
}

/// Runs jobs that take an hour.
async fn keep(path: &StoreUrl, jobs: usize) -> Result<Value> {
    let started = Arc::new(AtomicUsize::new(0));
    let starts = started.clone();
    let takes_an_hour = move |_: Attempt<Parcel>| {
        starts.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(mins(60))
    };
    let engine = workload::engine_with_grace(path, jobs, takes_an_hour, Duration::ZERO).await?;
    workload::enqueue_bulk(&engine, jobs as u64).await?;
    let mut cost = None;
    engine
        .run(async {
            while started.load(Ordering::Relaxed) < jobs {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            tokio::time::sleep(SETTLE).await;
            cost = Some(watch(path, KEEP).await);
        })
        .await?;
    cost.context("it was watched")?
}

/// What this process and its database use in a while.
async fn watch(path: &StoreUrl, during: Duration) -> Result<Value> {
    let database = Database::behind(path).await?;
    let database = database.as_ref();
    let (began, before) = (stopwatch::now(), usage::processor_time());
    let database_before = database.and_then(Database::processor_time);
    let written_before = written(database).await?;
    tokio::time::sleep(during).await;
    let passed = (stopwatch::now() - began).as_secs_f64();
    let percent = |before: Option<Duration>, after: Option<Duration>| {
        let used = after?.saturating_sub(before?).as_secs_f64();
        Some(rounded(100.0 * used / passed, 3))
    };
    let (after, database_after) = (usage::processor_time(), database.and_then(Database::processor_time));
    let written = written(database).await?.zip(written_before).map(|(after, before)| after - before);
    Ok(json!({
        "cpu_percent": percent(before, after),
        "database_cpu_percent": percent(database_before, database_after),
        "wal_bytes": written,
        "rss_mb": usage::resident_mb().map(|mb| rounded(mb, 1)),
        "rss_peak_mb": usage::resident_peak_mb().map(|mb| rounded(mb, 1)),
    }))
}

async fn written(database: Option<&Database>) -> Result<Option<i64>> {
    match database {
        Some(database) => Ok(Some(database.written().await?)),
        None => Ok(None),
    }
}

async fn drain(path: &StoreUrl, places: usize) -> Result<Value> {
    let engine = workload::engine(path, places, fails(0)).await?;
    engine.drain().await?;
    workload::close(engine, path).await?;
    Ok(json!({ "rss_peak_mb": usage::resident_peak_mb().map(|mb| rounded(mb, 1)) }))
}
