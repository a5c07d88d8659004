//! What is measured of the engine, and of the hand-written loop beside it.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use redrive::{Attempt, Clock, Engine, NewJob, Rng, millis};
use tokio::sync::{mpsc as queue, oneshot};
use tokio::task::JoinSet;

use super::by_hand::{self, ByHand};
use super::limit::{Limit, Maker};
use super::workload::{self, BULK, Parcel, fails};
use crate::cli::StoreUrl;
use crate::stopwatch;

/// How many callers enqueue at once.
pub(crate) const CALLERS: u64 = 64;
/// Jobs that run at once and take long.
pub(crate) const RUNNING: u64 = 10_000;
/// Places of an engine of which speed is not asked.
pub(crate) const PLACES: usize = 1_024;

pub(crate) fn per_second(count: u64, began: Instant) -> f64 {
    count as f64 / (stopwatch::now() - began).as_secs_f64()
}

/// How jobs come in.
#[derive(Clone, Copy)]
pub(crate) enum Callers {
    /// One, one job at a time.
    One,
    /// Many at once, each one job at a time.
    Many,
    /// One, many jobs at a time.
    Bulk,
}

/// Jobs per second that the engine takes.
pub(crate) async fn enqueue(store: &StoreUrl, callers: Callers, jobs: u64) -> Result<f64> {
    let engine = workload::engine(store, PLACES, fails(0)).await?;
    let began = stopwatch::now();
    match callers {
        Callers::One => {
            for number in 0..jobs {
                engine.enqueue(Parcel::new(number)).await?;
            }
        }
        Callers::Many => {
            let mut tasks = JoinSet::new();
            for caller in 0..CALLERS {
                let engine = engine.clone();
                tasks.spawn(async move {
                    for number in (caller..jobs).step_by(CALLERS as usize) {
                        engine.enqueue(Parcel::new(number)).await?;
                    }
                    redrive::Result::<()>::Ok(())
                });
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
        }
        Callers::Bulk => workload::enqueue_bulk(&engine, jobs).await?,
    }
    let rate = per_second(jobs, began);
    ensure!(workload::totals(&engine).await?.enqueued == jobs, "not all jobs were enqueued");
    workload::close(engine, store).await?;
    Ok(rate)
}

/// Jobs per second that the hand-written loop takes.
pub(crate) async fn enqueue_by_hand(store: &StoreUrl, callers: Callers, jobs: u64) -> Result<f64> {
    let path = match store {
        StoreUrl::Sqlite(path) => path,
        StoreUrl::Postgres(url) => return by_hand::enqueue(url, callers, jobs).await,
    };
    let limit = Limit::open(path)?;
    let began = stopwatch::now();
    match callers {
        Callers::One => limit.enqueue(jobs, 1)?,
        Callers::Bulk => limit.enqueue(jobs, BULK)?,
        Callers::Many => {
            let (calls, incoming) = mpsc::channel();
            let writer = tokio::task::spawn_blocking(move || limit.serve(&incoming));
            let mut tasks = JoinSet::new();
            for caller in 0..CALLERS {
                let calls = calls.clone();
                tasks.spawn(async move {
                    let mut maker = Maker::new();
                    for number in (caller..jobs).step_by(CALLERS as usize) {
                        let (reply, answer) = oneshot::channel();
                        calls.send((maker.row(&Parcel::new(number))?, reply))?;
                        answer.await?;
                    }
                    anyhow::Ok(())
                });
            }
            drop(calls);
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            writer.await??;
        }
    }
    Ok(per_second(jobs, began))
}

/// What one drain does.
#[derive(Clone, Copy)]
pub(crate) struct Drain {
    pub(crate) jobs: u64,
    /// How often each job fails before it succeeds.
    pub(crate) failures: u32,
    /// How many run at once: the engine's places, or the hand-written loop's batch.
    pub(crate) places: usize,
}

impl Drain {
    fn attempts(&self) -> u64 {
        self.jobs * u64::from(self.failures + 1)
    }
}

/// Attempts per second of the engine.
pub(crate) async fn drain(store: &StoreUrl, drain: Drain) -> Result<f64> {
    let engine = workload::engine(store, drain.places, fails(drain.failures)).await?;
    workload::enqueue_bulk(&engine, drain.jobs).await?;
    let began = stopwatch::now();
    engine.drain().await?;
    let rate = per_second(drain.attempts(), began);
    ensure!(workload::totals(&engine).await?.succeeded == drain.jobs, "not all jobs have succeeded");
    workload::close(engine, store).await?;
    Ok(rate)
}

/// Attempts per second of the hand-written loop.
pub(crate) async fn drain_by_hand(store: &StoreUrl, drain: Drain) -> Result<f64> {
    let (rate, attempts, done) = match store {
        StoreUrl::Sqlite(path) => {
            let limit = Limit::open(path)?;
            limit.enqueue(drain.jobs, BULK)?;
            let began = stopwatch::now();
            let attempts = limit.drain(drain.places, drain.failures)?;
            (per_second(drain.attempts(), began), attempts, limit.done()?)
        }
        StoreUrl::Postgres(url) => {
            let limit = ByHand::open(url).await?;
            limit.enqueue(drain.jobs, BULK).await?;
            let began = stopwatch::now();
            let attempts = limit.drain(drain.places, drain.failures).await?;
            (per_second(drain.attempts(), began), attempts, limit.done().await?)
        }
    };
    ensure!(attempts == drain.attempts() && done == drain.jobs, "not all jobs were done by hand");
    Ok(rate)
}

/// Jobs per second of an engine that stays, over those that are due now and not those of next month.
pub(crate) async fn drain_due(engine: &Engine, jobs: u64) -> Result<f64> {
    let before = workload::totals(engine).await?.succeeded;
    workload::enqueue_bulk(engine, jobs).await?;
    let began = stopwatch::now();
    engine.drain_due().await?;
    let rate = per_second(jobs, began);
    ensure!(workload::totals(engine).await?.succeeded - before == jobs, "not all jobs have succeeded");
    Ok(rate)
}

/// Jobs that are held while others are drained.
const HELD: u64 = 100_000;
/// How many destinations have work at once.
pub(crate) const DESTINATIONS: u64 = 10_000;

fn bound_for(number: u64, destinations: u64) -> NewJob {
    NewJob::from(Parcel::new(number)).destination(format!("host-{}.example.org", number % destinations))
}

async fn enqueue_to(engine: &Engine, jobs: u64, destinations: u64) -> Result<()> {
    for from in (0..jobs).step_by(BULK as usize) {
        let until = (from + BULK).min(jobs);
        engine.enqueue_all((from..until).map(|number| bound_for(number, destinations))).await?;
    }
    Ok(())
}

/// Fills a store with jobs for a destination that is down, until all of them are out of the way.
pub(crate) async fn hold(store: &StoreUrl) -> Result<()> {
    let engine = workload::engine(store, PLACES, fails(0)).await?;
    engine.say("host-0.example.org", redrive::Word::Down).await?;
    enqueue_to(&engine, HELD, 1).await?;
    engine.drain_due().await?;
    let held: u64 = engine.destinations().await?.iter().map(|destination| destination.held).sum();
    ensure!(held == HELD, "{held} of {HELD} jobs are held");
    workload::close(engine, store).await
}

/// Runs so many jobs, and keeps what is kept of them.
pub(crate) async fn come_and_go(store: &StoreUrl, jobs: u64, places: usize) -> Result<()> {
    /// At once, so that the store does not grow by more than their history.
    const WAVE: u64 = 100_000;
    let engine = workload::engine(store, places, fails(0)).await?;
    let mut gone = 0;
    while gone < jobs {
        let wave = WAVE.min(jobs - gone);
        workload::enqueue_bulk(&engine, wave).await?;
        engine.drain_due().await?;
        gone += wave;
    }
    ensure!(workload::totals(&engine).await?.succeeded == jobs, "not all jobs have succeeded");
    workload::close(engine, store).await
}

/// Jobs per second of an engine whose jobs are for so many destinations.
pub(crate) async fn drain_to(store: &StoreUrl, jobs: u64, destinations: u64) -> Result<f64> {
    let engine = workload::engine(store, PLACES, fails(0)).await?;
    enqueue_to(&engine, jobs, destinations).await?;
    let began = stopwatch::now();
    engine.drain_due().await?;
    let rate = per_second(jobs, began);
    ensure!(workload::totals(&engine).await?.succeeded == jobs, "not all jobs have succeeded");
    workload::close(engine, store).await?;
    Ok(rate)
}

/// An engine that runs, and says which job it starts when.
struct Watched {
    engine: Engine,
    starts: queue::UnboundedReceiver<Start>,
    stop: oneshot::Sender<()>,
    run: tokio::task::JoinHandle<redrive::Result<()>>,
}

struct Start {
    number: u64,
    at: Instant,
    wall_ms: f64,
}

impl Watched {
    async fn begin(store: &StoreUrl) -> Result<Watched> {
        let (seen, starts) = queue::unbounded_channel();
        let handler = move |attempt: Attempt<Parcel>| {
            let start =
                Start { number: attempt.payload.number, at: stopwatch::now(), wall_ms: stopwatch::wall_ms() };
            // Whoever measures has given up if nobody listens.
            drop(seen.send(start));
            async {}
        };
        let engine = workload::engine(store, PLACES, handler).await?;
        let (stop, stopped) = oneshot::channel::<()>();
        let runner = engine.clone();
        let run = tokio::spawn(async move { runner.run(async { drop(stopped.await) }).await });
        Ok(Watched { engine, starts, stop, run })
    }

    async fn next(&mut self) -> Result<Start> {
        self.starts.recv().await.context("the engine has ended")
    }

    async fn end(self, store: &StoreUrl) -> Result<()> {
        drop(self.stop);
        self.run.await??;
        workload::close(self.engine, store).await
    }
}

/// Milliseconds from the call that enqueues a job to its start, one job after another on an idle engine.
pub(crate) async fn latency(store: &StoreUrl, jobs: u64) -> Result<Vec<f64>> {
    let mut watched = Watched::begin(store).await?;
    let mut measured = Vec::new();
    for number in 0..jobs {
        let began = stopwatch::now();
        watched.engine.enqueue(Parcel::new(number)).await?;
        measured.push((watched.next().await?.at - began).as_secs_f64() * 1_000.0);
    }
    watched.end(store).await?;
    Ok(measured)
}

/// Milliseconds from a job's due time to its start by the system's clock, of jobs due at random times. Negative would
/// be early.
pub(crate) async fn lateness(store: &StoreUrl, jobs: u64) -> Result<Vec<f64>> {
    /// Time to enqueue them all before the first is due.
    const LEAD: Duration = millis(500);
    /// Due on average one after this: 500 jobs within five seconds.
    const APART_MS: u64 = 10;
    let mut watched = Watched::begin(store).await?;
    let first = Clock::system().now() + LEAD;
    let mut rng = Rng::from_os();
    let due: Vec<_> = (0..jobs).map(|_| first + millis(rng.up_to(jobs * APART_MS))).collect();
    let parcels = due.iter().zip(0..).map(|(due, number)| NewJob::from(Parcel::new(number)).run_at(*due));
    watched.engine.enqueue_all(parcels).await?;
    let mut measured = Vec::new();
    for _ in 0..jobs {
        let start = watched.next().await?;
        let due = due.get(usize::try_from(start.number)?).context("only these were enqueued")?;
        measured.push(start.wall_ms - due.as_millis() as f64);
    }
    watched.end(store).await?;
    Ok(measured)
}
