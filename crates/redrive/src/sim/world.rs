//! One world from its beginning to its end: first anything may go wrong, then nothing does, and everything must finish.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::book::Verdict;
use super::faulty::Faulty;
use super::node::{self, Node, Site};
use super::plan::{self, JobPlan, NodePlan, Plan, Step};
use super::planted::{Bug, Planted, Side};
use super::witness::Witness;
use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::gate::Word;
use crate::job::{JobId, StateName};
use crate::machine::{Admission, Command};
use crate::queue::OnRetry;
use crate::span::{days, mins, secs};
use crate::store::{Filter, MemoryStore, Page, Store};

/// Without faults, something that is due or runs moves within this.
const STUCK_AFTER: Duration = mins(15);
/// Where nothing is due for this long, the processes are stopped meanwhile, so that a month costs no more than a minute.
const FAR_AHEAD: Duration = mins(10);
/// Longer than anything that a policy can plan.
const WORLD_MAX: Duration = days(20 * 365);
/// Longer than any lease, delay or attempt that is drawn: afterwards no trace of a fault is left.
const AFTERMATH: Duration = mins(6);
/// Jobs that come when all is quiet, one after the other.
const LATE_JOBS: u64 = 3;

pub(super) struct World {
    plan: Plan,
    site: Site,
    /// The store itself, for the last look.
    inner: Arc<dyn Store>,
    bug: Option<Bug>,
    nodes: Vec<Option<Node>>,
    lives: Vec<u64>,
    /// Whoever enqueues and gives commands from outside.
    client: Engine,
    store: Arc<dyn Store>,
    known: Vec<JobId>,
    began_at: Timestamp,
}

impl World {
    pub(super) fn new(plan: Plan, bug: Option<Bug>, witness: Arc<Witness>) -> Result<World> {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let inner = match bug {
            Some(bug) if bug.side() == Side::Store => Arc::new(Planted::new(memory, bug)),
            _ => memory,
        };
        let began_at = witness.clock.now();
        witness.book(|book| book.owes(&plan.doors));
        let (queues, doors) = (plan.queues.clone(), plan.doors.clone());
        let site = Site { seed: plan.seed, witness: witness.clone(), queues, doors, began_at };
        let outside = plan.nodes.len();
        let store: Arc<dyn Store> = Arc::new(Faulty::new(inner.clone(), witness.clone(), outside));
        let usual = NodePlan { knows_all: true, crash: None, ..plan.nodes[0].clone() };
        let client = node::engine(&site, store.clone(), &usual, outside, 0, &Arc::new(Notify::new()))?;
        let nodes = plan.nodes.iter().map(|_| None).collect();
        let lives = vec![0; plan.nodes.len()];
        Ok(World { plan, site, inner, bug, nodes, lives, client, store, known: Vec::new(), began_at })
    }

    /// Returns early when a promise is broken.
    pub(super) async fn run(mut self) -> Result<()> {
        let witness = self.site.witness.clone();
        tokio::select! { biased;
            () = witness.broken() => Ok(()),
            ended = self.live() => ended,
        }
    }

    async fn live(&mut self) -> Result<()> {
        (0..self.nodes.len()).try_for_each(|index| self.start(index))?;
        for (at, step) in std::mem::take(&mut self.plan.script) {
            self.site.witness.clock.sleep_until(self.began_at + at).await;
            self.take(step).await?;
        }
        self.calm_down().await?;
        self.finish().await?;
        tokio::time::sleep(AFTERMATH).await;
        self.restart_dead()?;
        self.site.witness.book(|book| book.quiet = true);
        for late in 0..LATE_JOBS {
            let job = self.plan.late_job(1_000_000 + late);
            self.enqueue(&[job]).await;
            self.finish().await?;
        }
        for node in self.nodes.iter_mut().filter_map(Option::take) {
            node.stop().await;
        }
        self.last_look().await
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let calm = self.site.witness.book(|book| book.calm);
        let mut plan = self.plan.nodes[index].clone();
        plan.knows_all |= calm;
        plan.crash = plan.crash.filter(|_| !calm);
        let faulty = Faulty::new(self.inner.clone(), self.site.witness.clone(), index);
        let store: Arc<dyn Store> = match self.bug {
            Some(bug) if bug.side() == Side::Engine => Arc::new(Planted::new(Arc::new(faulty), bug)),
            _ => Arc::new(faulty),
        };
        self.site.witness.say(format!("start n{index}"));
        self.nodes[index] = Some(Node::start(&self.site, store, &plan, index, self.lives[index])?);
        self.lives[index] += 1;
        Ok(())
    }

    fn restart_dead(&mut self) -> Result<()> {
        let dead = |node: &Option<Node>| node.as_ref().is_none_or(|node| !node.is_running());
        let dead: Vec<usize> = (0..self.nodes.len()).filter(|index| dead(&self.nodes[*index])).collect();
        dead.into_iter().try_for_each(|index| self.start(index))
    }

    async fn take(&mut self, step: Step) -> Result<()> {
        let witness = self.site.witness.clone();
        let seen = |what: &'static str| witness.book(|book| book.seen.insert(what));
        match step {
            Step::Enqueue(jobs) => {
                // Whoever looks after the processes starts those that died, sooner or later.
                if jobs.len() == 1 {
                    self.restart_dead()?;
                }
                self.enqueue(&jobs).await;
            }
            Step::Graph(jobs, ties) => self.enqueue_tied(&jobs, ties).await,
            Step::Steer(command, pick) => self.steer(command, pick).await,
            Step::SteerAll(command, queue) => {
                let filter = Filter::default().in_queue(&plan::names(&self.plan.queues)[queue]);
                // A command that was not answered is not given again: either way is allowed.
                drop(self.client.apply(command, &filter).await);
            }
            Step::Pause(queue) => drop(self.client.pause(&plan::names(&self.plan.queues)[queue]).await),
            Step::Resume(queue) => drop(self.client.resume(&plan::names(&self.plan.queues)[queue]).await),
            Step::Say(at, word) => drop(self.client.say(&self.plan.doors[at].name, word).await),
            Step::Kill(index) => {
                if let Some(node) = self.nodes[index].take() {
                    witness.say(format!("kill n{index}"));
                    seen("kill");
                    node.kill().await;
                }
            }
            Step::Stop(index) => {
                if let Some(node) = self.nodes[index].take() {
                    witness.say(format!("stop n{index}"));
                    seen("stop");
                    node.stop().await;
                }
            }
            Step::Start(index) => {
                if self.nodes[index].is_none() {
                    seen("restart");
                    self.start(index)?;
                }
            }
            Step::Freeze(index, time) => {
                witness.say(format!("freeze n{index} for {time:?}"));
                witness.freeze(index, witness.clock.now() + time);
            }
        }
        Ok(())
    }

    /// Enqueues all or none; what was not answered is sent again as it was, and must not be there twice.
    async fn enqueue(&mut self, jobs: &[JobPlan]) {
        let now = self.site.witness.clock.now();
        let made: Result<Vec<Admission>> =
            jobs.iter().map(|job| self.client.admit(job.to_job(&self.plan.queues, now))).collect();
        // What would be due after its deadline is not accepted, and the others of its batch with it.
        let Ok(admissions) = made else { return };
        self.send(admissions, jobs[0].number).await;
    }

    /// Jobs that come after each other; none where one of their queues has an order of its own.
    async fn enqueue_tied(&mut self, jobs: &[JobPlan], ties: u64) {
        let now = self.site.witness.clock.now();
        let made: Result<Vec<Admission>> =
            jobs.iter().map(|job| self.client.admit(job.to_job(&self.plan.queues, now))).collect();
        let Ok(mut admissions) = made else { return };
        let ids: Vec<JobId> = admissions.iter().map(|new| new.job.id).collect();
        let mut last: Vec<JobId> = ids[1..].to_vec();
        let mut bits = (0..u64::BITS).cycle().map(|bit| ties >> bit & 1 == 1);
        for at in (0..admissions.len()).rev() {
            let mut new = admissions[at].clone();
            let behind = if at == 0 {
                last.clone()
            } else {
                new.job.extras_mut().parent = Some(ids[0]);
                ids[1..at].iter().filter(|_| bits.next().unwrap_or(false)).copied().collect()
            };
            last.retain(|id| !behind.contains(id));
            let Ok(tied) = new.held_behind(behind) else { return };
            admissions[at] = tied;
        }
        self.send(admissions, jobs[0].number).await;
    }

    async fn send(&mut self, admissions: Vec<Admission>, number: u64) {
        self.known.extend(admissions.iter().map(|admission| admission.job.id));
        let tries = 1 + number % 3;
        for _ in 0..tries {
            match self.store.enqueue(admissions.clone(), self.site.witness.clock.now()).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                _ => return,
            }
        }
    }

    async fn steer(&mut self, command: Command, pick: u64) {
        let Some(id) =
            usize::try_from(pick % self.known.len().max(1) as u64).ok().and_then(|at| self.known.get(at))
        else {
            return;
        };
        let index = usize::try_from(pick >> 32).unwrap_or(0) % self.nodes.len();
        let near = self.nodes[index].as_ref().filter(|node| node.is_running() && pick & (1 << 20) != 0);
        let engine = near.map_or(&self.client, |node| &node.engine);
        let answer = match command {
            Command::Cancel => engine.cancel(*id).await,
            Command::RetryNow => engine.retry_now(*id).await,
            Command::Reschedule(at) => engine.reschedule(*id, at).await,
            Command::Hurry => engine.say("", Word::Up).await,
            Command::Redrive => engine.redrive(*id).await,
            Command::Delete => engine.delete(*id).await,
        };
        let what = match answer.map_err(|error| error.kind()) {
            Err(ErrorKind::NotFound) => "steered nothing",
            Err(ErrorKind::Conflict) => "steering refused",
            _ => return,
        };
        self.site.witness.book(|book| book.seen.insert(what));
    }

    /// The faults end: everybody is there, knows every kind, and every queue is open.
    async fn calm_down(&mut self) -> Result<()> {
        self.site.witness.say("calm".into());
        self.site.witness.be_quiet();
        for queue in plan::names(&self.plan.queues) {
            self.client.resume(&queue).await?;
        }
        for door in &self.plan.doors {
            self.client.say(&door.name, Word::Resume).await?;
            self.client.say(&door.name, Word::Up).await?;
        }
        for index in 0..self.nodes.len() {
            let NodePlan { knows_all, crash, .. } = &self.plan.nodes[index];
            if (!knows_all || crash.is_some())
                && let Some(node) = self.nodes[index].take()
            {
                node.stop().await;
            }
        }
        self.restart_dead()
    }

    /// Waits until nothing is left to do. Something that is due and does not move is a broken promise.
    async fn finish(&mut self) -> Result<()> {
        let witness = self.site.witness.clone();
        loop {
            let now = witness.clock.now();
            let blocks = |name: &str| {
                let queue = self.plan.queues.iter().find(|queue| *queue.name == *name);
                queue.is_some_and(|queue| queue.on_retry == OnRetry::Block)
            };
            let (live, held, busy, soonest, moved_at) = witness.book(|book| {
                let busy = book.live().any(|entry| entry.running.is_some());
                let soonest = book.soonest(blocks);
                let held = book.live().filter(|entry| entry.is_held()).count();
                (book.live().count(), held, busy, soonest, book.moved_at)
            });
            if live == 0 {
                return Ok(());
            }
            if live == held {
                // They come after something that has ended badly: a person takes them back.
                self.client.apply(Command::Cancel, &Filter::state(StateName::Waiting)).await?;
            }
            let waiting_since = if busy { moved_at } else { moved_at.max(soonest.unwrap_or(now)) };
            let stuck = now.since(waiting_since) > STUCK_AFTER || now.since(self.began_at) > WORLD_MAX;
            witness.check(|book| if stuck { Err(stuck_at(book, now)) } else { Ok(()) });
            let far = soonest.filter(|at| !busy && now + FAR_AHEAD < *at);
            match far {
                Some(at) => self.skip_to(at).await?,
                None => tokio::time::sleep(secs(5)).await,
            }
            self.restart_dead()?;
        }
    }

    async fn skip_to(&mut self, at: Timestamp) -> Result<()> {
        let witness = self.site.witness.clone();
        for node in self.nodes.iter_mut().filter_map(Option::take) {
            node.stop().await;
        }
        let now = witness.clock.now();
        tokio::time::sleep(at.since(now).saturating_sub(secs(30))).await;
        self.restart_dead()
    }

    /// When everything is over: nothing is held, nothing is lost, and every history is what happened.
    async fn last_look(&self) -> Result<()> {
        let witness = &self.site.witness;
        let held = self.inner.expired(Timestamp::MAX).await?;
        let left: usize = held.over.iter().map(|expired| expired.jobs.len()).sum();
        let page = Page { before: None, limit: crate::store::PAGE_MAX };
        let mut details = Vec::new();
        for job in self.inner.list(&Filter::default(), page).await?.jobs {
            details.extend(self.inner.get(job.id).await?);
        }
        witness.check(|book| -> Verdict {
            if left > 0 {
                return Err(format!("{left} jobs are still held at the end"));
            }
            book.conserved()?;
            details.iter().try_for_each(|detail| book.history(detail))
        });
        Ok(())
    }
}

fn stuck_at(book: &super::book::Book, now: Timestamp) -> String {
    let jobs: Vec<String> = book.live().take(5).map(|entry| format!("{:?}", entry.job)).collect();
    format!("nothing has moved since {} and it is {now}; not final: {}", book.moved_at, jobs.join("; "))
}
