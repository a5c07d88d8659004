//! One process of a simulated world: an engine on its own way to the store, that can be killed, stopped and started.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::act::{self, Act, Doing};
use super::doors::Door;
use super::plan::{COMMON, NodePlan, RARE};
use super::witness::Witness;
use crate::clock::Timestamp;
use crate::engine::{Attempt, Engine};
use crate::error::Result;
use crate::job::{JobId, Payload};
use crate::outcome::{Failure, Outcome};
use crate::queue::Queue;
use crate::store::Store;
use crate::testing::CrashPlan;

/// The number of the plan's job.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Common(u64);

impl Payload for Common {
    const KIND: &'static str = COMMON;
}

/// The same, of a kind that not everybody knows.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Rare(u64);

impl Payload for Rare {
    const KIND: &'static str = RARE;
}

/// What every process of a world is made of.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) seed: u64,
    pub(super) witness: Arc<Witness>,
    pub(super) queues: Vec<Queue>,
    pub(super) doors: Vec<Door>,
    pub(super) began_at: Timestamp,
}

/// A process that runs.
pub(super) struct Node {
    pub(super) engine: Engine,
    kill: Arc<Notify>,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Node {
    /// Starts it for the `life`th time.
    pub(super) fn start(
        site: &Site,
        store: Arc<dyn Store>,
        plan: &NodePlan,
        index: usize,
        life: u64,
    ) -> Result<Node> {
        let kill = Arc::new(Notify::new());
        let stop = Arc::new(Notify::new());
        let engine = engine(site, store, plan, index, life, &kill)?;
        let (killed, stopped, running) = (kill.clone(), stop.clone(), engine.clone());
        let task = tokio::spawn(async move {
            tokio::select! { biased;
                () = killed.notified() => {}
                // A store that fails while it registers or releases, and a death on purpose, end a run alike.
                _ended = running.run(stopped.notified()) => {}
            }
        });
        Ok(Node { engine, kill, stop, task })
    }

    pub(super) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Nothing more is written by it.
    pub(super) async fn kill(self) {
        self.kill.notify_one();
        self.ended().await;
    }

    /// Lets it finish what it does.
    pub(super) async fn stop(self) {
        self.stop.notify_one();
        self.ended().await;
    }

    async fn ended(self) {
        // It cannot have been cancelled or have panicked: handlers are guarded, and nobody else has the handle.
        drop(self.task.await);
    }
}

/// An engine that can also be used from outside without running.
pub(super) fn engine(
    site: &Site,
    store: Arc<dyn Store>,
    plan: &NodePlan,
    index: usize,
    life: u64,
    kill: &Arc<Notify>,
) -> Result<Engine> {
    let mut builder = Engine::on(store)
        .clock(site.witness.clock.clone())
        .seed(site.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9) ^ (life << 40))
        .lease(plan.lease)
        .grace(plan.grace)
        .name(format!("n{index}"));
    for door in &site.doors {
        builder = builder.destination(&*door.name, door.limits.clone());
    }
    for queue in &site.queues {
        builder = builder.queue(queue.clone().concurrency(plan.concurrency));
    }
    if let Some((point, nth)) = plan.crash.filter(|_| life == 0) {
        builder = builder.crash(CrashPlan::at(point, nth));
    }
    let (run, dies) = (site.clone(), kill.clone());
    builder = builder.handle(move |attempt: Attempt<Common>| {
        let (site, dies) = (run.clone(), dies.clone());
        async move { perform(&site, &attempt, attempt.payload.0, &dies).await }
    });
    if plan.knows_all {
        let (run, dies) = (site.clone(), kill.clone());
        builder = builder.handle(move |attempt: Attempt<Rare>| {
            let (site, dies) = (run.clone(), dies.clone());
            async move { perform(&site, &attempt, attempt.payload.0, &dies).await }
        });
    } else {
        builder = builder.produce::<Rare>();
    }
    builder.build()
}

/// Takes its handler off the list of those at work, however it ends.
struct AtWork<'a>(&'a Witness, JobId, u32);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.book(|book| book.active.remove(&(self.1, self.2)));
    }
}

async fn perform<P: Payload>(site: &Site, attempt: &Attempt<P>, number: u64, dies: &Notify) -> Outcome {
    let Doing { mut act, takes } = act::draw(site.seed, number, attempt.number);
    if act == Act::Kill && site.witness.book(|book| book.calm) {
        act = Act::Transient;
    }
    let now = site.witness.clock.now();
    if act != Act::Kill && !site.witness.book(|book| book.calm) {
        let to = attempt.job().extras().destination.as_ref();
        let door = site.doors.iter().find(|door| Some(&door.name) == to);
        act = door.and_then(|door| door.fails(now.since(site.began_at))).unwrap_or(act);
    }
    site.witness.say(format!("begin {}/{} {act:?} for {takes:?}", attempt.id, attempt.number));
    site.witness.check(|book| book.begin(attempt.job(), attempt.number, Doing { act, takes }, now));
    let _at_work = AtWork(&site.witness, attempt.id, attempt.number);
    tokio::time::sleep(takes).await;
    match act {
        Act::Succeed => Outcome::Done(None),
        Act::Output => Outcome::Done(Some(super::check::output())),
        Act::Snooze(delay) => Outcome::Snooze(delay),
        // Without the hook that prints: these panics are part of the world.
        Act::Panic => std::panic::resume_unwind(Box::new("as it was told")),
        Act::Kill => {
            site.witness.book(|book| book.seen.insert("poison"));
            dies.notify_one();
            std::future::pending().await
        }
        other => failure_of(other).map_or(Outcome::Done(None), Outcome::Failed),
    }
}

/// How an act fails, if it does.
pub(super) fn failure_of(act: Act) -> Option<Failure> {
    match act {
        Act::Transient => Some(Failure::retry("not this time")),
        Act::Permanent => Some(Failure::permanent("never")),
        Act::RetryAfter(delay) => Some(Failure::retry_after(delay, "come back later")),
        _ => None,
    }
}
