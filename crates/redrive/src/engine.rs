//! The thing you run: a store, handlers and queues. [`Engine::run`] is the main loop, and the only one.

mod attempt;
mod builder;
mod connectivity;
#[cfg(feature = "testing")]
mod crash;
mod destinations;
mod handler;
mod observe;
mod operate;
mod places;
mod remote;
mod settling;
mod shift;
mod upkeep;
mod workflow;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::broadcast;

use self::handler::Registry;
use self::shift::{Desk, Shift, Step};
use crate::clock::{Clock, Rng, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, JobId, Json, NewJob, StateName};
use crate::machine::{self, Admission, Command, Steer};
use crate::operate::{Audit, Setting};
use crate::queue::{Queue, Retention};
use crate::store::{
    Call, ClaimId, Enqueued, Filter, Group, HolderId, How, JobDetail, Kinds, PAGE_MAX, Page, Paged,
    QueueCounts, Store,
};

pub use self::attempt::Attempt;
pub use self::builder::Builder;
pub use self::connectivity::Connectivity;
#[cfg(feature = "testing")]
pub use self::crash::{CrashPlan, CrashPoint};
pub use self::handler::Handler;
pub use self::observe::{Event, Happening};
pub use self::remote::{LEASE_MAX, Lending};
pub use self::workflow::ExecutionDetail;

/// A durable retry engine. Cheap to clone: all clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    /// On whose behalf it changes something, if that is to be written down.
    asked: Option<Arc<Audit>>,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) queues: BTreeMap<Arc<str>, Queue>,
    handlers: Registry,
    /// What this engine claims; everything if not given.
    kinds: Option<Kinds>,
    known: destinations::Known,
    events: broadcast::Sender<Event>,
    ids: Mutex<Ids>,
    /// The runs under way, so that a cancelled job's attempt is stopped at once.
    desks: Mutex<Vec<Weak<Desk>>>,
    lease: Duration,
    grace: Duration,
    retention: Retention,
    name: String,
    #[cfg(feature = "testing")]
    pub(crate) crash: CrashPlan,
}

/// How many events a slow listener may fall behind before it misses some.
const EVENTS_MAX: usize = 4_096;
/// Jobs that one call may enqueue.
const ENQUEUE_MAX: usize = 10_000;
/// Jobs that one transaction of a bulk command touches, so that others get their turn.
const APPLY_CHUNK: usize = 500;

/// What came of a part of a command to many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Jobs that matched.
    pub seen: u64,
    /// Those of them to which it could be done.
    pub done: u64,
    /// Where the next part begins; nothing if this was the last.
    pub next: Option<i64>,
}

impl Engine {
    /// An engine on this store.
    pub fn builder(store: impl Store) -> Builder {
        Engine::on(Arc::new(store))
    }

    /// An engine on a store that others use too.
    pub fn on(store: Arc<dyn Store>) -> Builder {
        Builder::new(store)
    }

    /// Claims, runs and settles until `shutdown` resolves; then lets what runs finish within the grace period and
    /// gives the rest back at no cost.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<()> {
        self.work(shutdown, Until::Shutdown).await
    }

    /// The main loop.
    async fn work(&self, shutdown: impl Future<Output = ()>, until: Until) -> Result<()> {
        let mut shift = Shift::begin(self.inner.clone()).await?;
        // Subscribed before the first claim: whatever is enqueued after a claim has looked wakes the loop.
        let mut changes = self.inner.store.changes();
        tokio::pin!(shutdown);
        loop {
            changes.borrow_and_update();
            let next = shift.claim().await;
            if until.is_reached(&next, self.inner.clock.now()) {
                break;
            }
            tokio::select! { biased;
                () = &mut shutdown => break,
                () = shift.died() => {
                    shift.leave().await;
                    return Err(shift::died());
                }
                () = shift.something_ended() => {}                        // a place may be free
                Ok(()) = changes.changed() => {}                          // something may be due earlier
                () = self.inner.clock.sleep_until(next.look_at) => {}     // something is due
            }
        }
        shift.end().await
    }

    /// Runs everything that waits, due now or later, until nothing is left to do. With a paused clock, weeks pass in
    /// milliseconds.
    pub async fn drain(&self) -> Result<()> {
        self.work(std::future::pending(), Until::Empty).await
    }

    /// Runs everything that is due now, and what becomes due meanwhile, but does not wait for the rest.
    pub async fn drain_due(&self) -> Result<()> {
        self.work(std::future::pending(), Until::NothingDue).await
    }

    /// Takes a job. When this returns, it is durable.
    pub async fn enqueue(&self, job: impl Into<NewJob>) -> Result<Enqueued> {
        let admission = self.inner.admit(job.into())?;
        let answers = self.inner.enqueue(vec![admission]).await?;
        answers.first().copied().ok_or_else(|| Error::unavailable("the store gave no answer"))
    }

    /// Takes many jobs at once: all or none.
    pub async fn enqueue_all<J: Into<NewJob>>(
        &self,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<Vec<Enqueued>> {
        let jobs: Vec<Admission> =
            jobs.into_iter().map(|job| self.inner.admit(job.into())).collect::<Result<_>>()?;
        if jobs.len() > ENQUEUE_MAX {
            return Err(Error::invalid(
                format!("{} jobs are too many for one call", jobs.len()),
                format!("enqueue at most {ENQUEUE_MAX} at once"),
            ));
        }
        self.inner.enqueue(jobs).await
    }

    /// Takes jobs, all or none. A second call under the same key takes nothing and is given the first one's answer, for
    /// thirty days; refused if it asks for something else.
    pub async fn enqueue_once<J: Into<NewJob>>(
        &self,
        call: Call,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<Vec<Enqueued>> {
        let admissions: Vec<Admission> =
            jobs.into_iter().map(|job| self.inner.admit(job.into())).collect::<Result<_>>()?;
        let ids: Vec<JobId> = admissions.iter().map(|admission| admission.job.id).collect();
        let news = self.inner.news_of(&admissions);
        let answers = self.inner.store.enqueue_once(call, admissions, self.inner.clock.now()).await?;
        // The answer to an earlier call names other jobs, of which everybody has been told.
        let before = |(answer, id): (&Enqueued, &JobId)| answer.how == How::Created && answer.id != *id;
        if !answers.iter().zip(&ids).any(before) {
            self.inner.enqueued(news, &answers);
        }
        Ok(answers)
    }

    /// Small records that are kept beside the jobs, such as tokens: all of one shelf, by name.
    pub async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        self.inner.store.records(shelf).await
    }

    /// Writes a record, or removes it.
    pub async fn keep_record(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        self.set(Setting::Record { shelf: shelf.into(), name: name.into(), value }).await.map(drop)
    }

    /// One job with its history.
    pub async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        self.inner.store.get(id).await
    }

    /// Jobs that match, newest first.
    pub async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        self.inner.store.list(filter, page).await
    }

    /// How many jobs are where, and how much of what has happened.
    pub async fn counts(&self) -> Result<Vec<QueueCounts>> {
        self.inner.store.counts().await
    }

    /// How many jobs match, counted up to `most`.
    pub async fn count(&self, filter: &Filter, most: usize) -> Result<usize> {
        let (mut count, mut before) = (0, None);
        loop {
            let page = Page { before, limit: (most - count).min(PAGE_MAX) };
            let Paged { jobs, next } = self.inner.store.list(filter, page).await?;
            count += jobs.len();
            before = next;
            if before.is_none() || count >= most {
                return Ok(count);
            }
        }
    }

    /// Dead jobs by what they died of, the most frequent first.
    pub async fn groups(&self, limit: usize) -> Result<Vec<Group>> {
        self.inner.store.groups(limit.clamp(1, PAGE_MAX), self.now()).await
    }

    /// The queues this engine serves, with how they are set.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.inner.queues.values()
    }

    /// What time it is for this engine.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Where this engine has its time from.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Takes a job back, waiting or running.
    pub async fn cancel(&self, id: JobId) -> Result<()> {
        self.steer(Command::Cancel, id).await
    }

    /// Lets a waiting job run now.
    pub async fn retry_now(&self, id: JobId) -> Result<()> {
        self.steer(Command::RetryNow, id).await
    }

    /// Lets a waiting job run at another time.
    pub async fn reschedule(&self, id: JobId, at: Timestamp) -> Result<()> {
        self.steer(Command::Reschedule(at), id).await
    }

    /// Brings a dead or cancelled job back: its counters restart, its history stays.
    pub async fn redrive(&self, id: JobId) -> Result<()> {
        self.steer(Command::Redrive, id).await
    }

    /// Forgets a finished job.
    pub async fn delete(&self, id: JobId) -> Result<()> {
        self.steer(Command::Delete, id).await
    }

    /// Does something to every job that matches and to which it can be done; says how many those were.
    pub async fn apply(&self, command: Command, to: &Filter) -> Result<u64> {
        let (mut count, mut before) = (0, None);
        loop {
            let part = self.apply_part(command, to, before).await?;
            count += part.done;
            before = part.next;
            if before.is_none() {
                return Ok(count);
            }
        }
    }

    /// Does it to the next part of them, the newest first: for whoever wants to say how far it is, or to stop in between.
    /// `before` is nothing at first, and then [`Applied::next`] of the part before.
    pub async fn apply_part(&self, command: Command, to: &Filter, before: Option<i64>) -> Result<Applied> {
        let Paged { jobs, next } = self.inner.store.list(to, Page { before, limit: APPLY_CHUNK }).await?;
        let seen = jobs.len() as u64;
        if jobs.is_empty() {
            return Ok(Applied { seen, done: 0, next });
        }
        self.before_executions(command, &jobs).await?;
        let now = self.inner.clock.now();
        // By their ids: what it was done to may still match.
        let these = Filter { ids: jobs.iter().map(|job| job.id).collect(), ..to.clone() };
        let done = self.change(command, &these, APPLY_CHUNK, now).await?;
        self.inner.steered(command, &done, now);
        let members: Vec<Job> = jobs.into_iter().filter(|job| done.contains(&job.id)).collect();
        self.after_members(command, &members).await?;
        Ok(Applied { seen, done: done.len() as u64, next })
    }

    async fn steer(&self, command: Command, id: JobId) -> Result<()> {
        let named = match command {
            Command::Cancel | Command::Redrive | Command::Delete => {
                let page = Page { before: None, limit: 1 };
                self.inner.store.list(&Filter::id(id), page).await?.jobs
            }
            Command::RetryNow | Command::Reschedule(_) | Command::Hurry => Vec::new(),
        };
        self.before_executions(command, &named).await?;
        let now = self.inner.clock.now();
        let done = self.change(command, &Filter::id(id), 1, now).await?;
        if !done.is_empty() {
            self.inner.steered(command, &done, now);
            return self.after_members(command, &named).await;
        }
        let Some(JobDetail { job, .. }) = self.inner.store.get(id).await? else {
            return Err(Error::new(ErrorKind::NotFound, format!("job {id} is not there"))
                .with_hint("it may have been finished and forgotten; look at its id again"));
        };
        let reason = match machine::steer(&job, command, now) {
            Steer::Refuse(reason) => reason,
            // In its own state it could be done, so its key must be what stood in the way.
            _ => "another job has its key",
        };
        let stands = match (job.state.name(), job.ledger.attempt) {
            (StateName::Running, _) => format!("it is running, in run {}", job.attempt()),
            (state, 0) => format!("it is {state}, and has not run"),
            (state, runs) => format!("it is {state}, after run {runs}"),
        };
        Err(Error::new(ErrorKind::Conflict, format!("job {id} stays as it is: {reason}")).with_hint(stands))
    }

    /// Looks now for jobs that were enqueued in a transaction of your own, instead of within a second.
    pub async fn wake(&self) -> Result<()> {
        self.inner.store.wake().await
    }

    /// Stops handing out jobs of a queue, on every engine of the store.
    pub async fn pause(&self, queue: &str) -> Result<()> {
        self.set(Setting::Queue { name: queue.into(), paused: true }).await.map(drop)
    }

    /// Goes on handing out jobs of a queue.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        self.set(Setting::Queue { name: queue.into(), paused: false }).await.map(drop)
    }

    /// What happens from now on. A listener that falls far behind misses some and is told so.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// Makes a job without storing it: for enqueueing in a transaction of your own.
    pub fn admit(&self, job: impl Into<NewJob>) -> Result<Admission> {
        self.inner.admit(job.into())
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

/// When a run is over.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    Shutdown,
    NothingDue,
    Empty,
}

impl Until {
    fn is_reached(self, next: &shift::Next, now: Timestamp) -> bool {
        match self {
            Until::Shutdown => false,
            Until::NothingDue => next.quiet && next.due.is_none_or(|due| due > now),
            Until::Empty => next.quiet && next.due.is_none(),
        }
    }
}

impl Inner {
    pub(crate) fn admit(&self, new: NewJob) -> Result<Admission> {
        if !self.handlers.knows(&new.kind) {
            return Err(Error::invalid(
                format!("nothing here knows jobs of the kind {:?}", new.kind),
                "register its handler with .handle(…), or name it with .produce::<T>() if another process runs it",
            ));
        }
        let id = self.new_id(self.clock.now());
        self.admit_as(new, id)
    }

    /// The same under an id that is there already, of a kind that somebody knows.
    fn admit_as(&self, new: NewJob, id: JobId) -> Result<Admission> {
        let queue = self.queue(&new.queue)?;
        let now = if new.is_to_wait() { self.clock.now_rounded_up() } else { self.clock.now() };
        machine::admit(new, queue, id, now, &mut id.rng(0))
    }

    fn queue(&self, name: &str) -> Result<&Queue> {
        let Some(queue) = self.queues.get(name) else {
            return Err(Error::invalid(
                format!("there is no queue {name:?}"),
                format!("add .queue(Queue::new({name:?})) to the engine, or choose another"),
            ));
        };
        Ok(queue)
    }

    pub(crate) async fn enqueue(&self, jobs: Vec<Admission>) -> Result<Vec<Enqueued>> {
        let news = self.news_of(&jobs);
        let answers = self.store.enqueue(jobs, self.clock.now()).await?;
        self.enqueued(news, &answers);
        Ok(answers)
    }

    pub(crate) fn new_id(&self, now: Timestamp) -> JobId {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).job(now)
    }

    /// A run begins.
    fn on_duty(&self, desk: &Arc<Desk>) {
        let mut desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        desks.retain(|desk| desk.strong_count() > 0);
        desks.push(Arc::downgrade(desk));
    }

    /// Somebody has a lease that may be over before upkeep looks again.
    fn look_after_leases(&self) {
        let desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        desks.iter().filter_map(Weak::upgrade).for_each(|desk| desk.look_after_leases());
    }

    /// A person's command has been carried out.
    fn steered(&self, command: Command, jobs: &[JobId], now: Timestamp) {
        if command == Command::Cancel {
            let desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
            for desk in desks.iter().filter_map(Weak::upgrade) {
                jobs.iter().for_each(|id| desk.stop_job(*id));
            }
        }
        self.tell_steered(command, jobs, now);
    }

    /// Whether a test lets the process die here.
    fn dies(&self, step: Step) -> bool {
        #[cfg(feature = "testing")]
        return self.crash.strikes(step);
        #[cfg(not(feature = "testing"))]
        return {
            let _ = step;
            false
        };
    }

    fn random<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner).rng)
    }

    fn new_holder(&self) -> HolderId {
        self.random(|rng| HolderId(rng.next_u128()))
    }

    fn new_claims(&self) -> [ClaimId; 2] {
        self.random(|rng| [ClaimId(rng.next_u128()), ClaimId(rng.next_u128())])
    }
}

/// Makes ids that sort in the order they were made.
struct Ids {
    rng: Rng,
    last: Timestamp,
    count: u16,
}

impl Ids {
    fn job(&mut self, now: Timestamp) -> JobId {
        if now > self.last {
            (self.last, self.count) = (now, 0);
        } else if self.count == 0x0fff {
            // More than 4,096 in a millisecond: the next ones are dated a millisecond ahead.
            (self.last, self.count) = (self.last + Duration::from_millis(1), 0);
        } else {
            self.count += 1;
        }
        JobId::new(self.last, self.count, &mut self.rng)
    }
}
