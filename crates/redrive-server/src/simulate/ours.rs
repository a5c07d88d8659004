//! The real engine, on a SQLite file and the virtual clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use redrive::{Attempt, Clock, Engine, Failure, NewJob, Payload, Queue, SqliteOptions, Tally, Timestamp};
use serde::{Deserialize, Serialize};

use super::course::{Count, Course};
use super::scenario::Scenario;
use super::service::{Answer, Says, Service, Try};
use super::stepwise::{STEP, Stepwise};

/// What it is called in the comparison.
pub(super) const NAME: &str = "redrive";
/// On 1 January 2026.
const BEGIN: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Jobs that are enqueued at once.
const BATCH: u64 = 10_000;
/// How often the totals are asked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A job whose work is one call.
#[derive(Serialize, Deserialize)]
struct OneCall {}

impl Payload for OneCall {
    const KIND: &'static str = "call";
}

pub(super) fn run(scenario: &Scenario, progress: &dyn Fn(f64)) -> Result<Course> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.context("cannot start the runtime")?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let course = runtime.block_on(simulate(scenario, folder.path().join("jobs.db"), progress));
    drop(runtime);
    course
}

async fn simulate(scenario: &Scenario, path: std::path::PathBuf, progress: &dyn Fn(f64)) -> Result<Course> {
    let store = SqliteOptions::default().relaxed_durability().open(path).await?;
    let clock = Clock::starting_at(BEGIN);
    let far = Far { service: Arc::new(Mutex::new(Service::new(scenario.clone()))), clock: clock.clone() };
    let handler = far.clone();
    let policy = scenario.policy().map_err(|problem| anyhow!(problem))?;
    let engine = Engine::builder(Stepwise::over(store, clock.clone()))
        .clock(clock.clone())
        .seed(scenario.seed)
        .queue(Queue::new("default").policy(policy).concurrency(scenario.concurrency))
        .handle(move |attempt: Attempt<OneCall>| handler.clone().call(attempt))
        .build()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let runner = engine.clone();
    let running = tokio::spawn(async move { runner.run(async { drop(stopped.await) }).await });
    let count = arrive(&engine, scenario, &clock, progress).await?;
    drop(stop);
    running.await.context("the engine did not end")??;
    let service = far.service();
    Ok(Course::of(NAME, scenario, &service.seen, &count))
}

/// Lets jobs come in until none is left and none will come.
async fn arrive(
    engine: &Engine,
    scenario: &Scenario,
    clock: &Clock,
    progress: &dyn Fn(f64),
) -> Result<Count> {
    let mut count = Count::default();
    let mut looked_at = Duration::ZERO;
    let mut now = Duration::ZERO;
    loop {
        while count.arrived < scenario.jobs + scenario.arrived(now) {
            let more = (scenario.jobs + scenario.arrived(now) - count.arrived).min(BATCH);
            engine.enqueue_all((0..more).map(|_| NewJob::from(OneCall {}).destination("service"))).await?;
            count.arrived += more;
        }
        if now >= looked_at + LOOK_EVERY {
            looked_at = now;
            let totals: Tally = engine.counts().await?.first().map(|queue| queue.totals).unwrap_or_default();
            (count.done, count.dead, count.failures) = (totals.succeeded, totals.dead, totals.failures);
            count.look(scenario, now);
            if count.is_over(scenario, now) {
                return Ok(count);
            }
            if now.subsec_millis() == 0 {
                progress(now.as_secs_f64() / scenario.arrivals_until().as_secs_f64());
            }
        }
        now += STEP;
        clock.sleep_until(BEGIN + now).await;
    }
}

/// The destination, as handlers see it.
#[derive(Clone)]
struct Far {
    service: Arc<Mutex<Service>>,
    clock: Clock,
}

impl Far {
    fn service(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(self, attempt: Attempt<OneCall>) -> Result<(), Failure> {
        let now = self.clock.now().since(BEGIN);
        let job = attempt.job();
        let is_retry = job.ledger.failures > 0;
        let which = if is_retry { Try::Retry } else { Try::First(job.created_at.since(BEGIN)) };
        let Answer { takes, says } = self.service().call(which, now);
        self.clock.sleep_until(BEGIN + stepped(now + takes)).await;
        match says {
            Says::Done => Ok(()),
            Says::Down => Err(Failure::from_code("ECONNREFUSED", "nothing is there").status(503)),
            Says::Overloaded => Err(Failure::from_status(503, "too much")),
            Says::Error => Err(Failure::from_status(502, "something went wrong")),
            Says::Wait(wait) => Err(Failure::from_status(429, "slow down").after(wait)),
        }
    }
}

/// To the nearest step: what ends together is settled together.
fn stepped(at: Duration) -> Duration {
    let step = STEP.as_millis();
    let steps = (at.as_millis() + step / 2) / step;
    STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
}
