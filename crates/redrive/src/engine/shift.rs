//! One run of the main loop: a holder with its lease, the places that are taken, and what waits to be settled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::attempt::{self, Stop, Why};
use super::places::{self, Left, Places};
use super::settling::{self, Seat, Tray};
use super::{Inner, destinations, upkeep};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, JobId};
use crate::outcome::Outcome;
use crate::store::{Claim, ClaimId, HolderId, Lease, Want};

/// A store that does not answer is asked again after this, and then more and more rarely.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(50);
/// The longest pause between two tries of our own bookkeeping.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(5);
/// Jobs of a limited destination are claimed this long before their turn: then it matters little how long a claim takes,
/// and what a destination says meanwhile is still obeyed soon.
const AHEAD: Duration = Duration::from_millis(100);

/// The points at which a test may let the process die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Claimed,
    Ran,
    Settled,
}

pub(super) struct Shift {
    desk: Arc<Desk>,
    tasks: JoinSet<()>,
    /// How long to wait when the store does not answer a claim.
    pause: Duration,
    /// The claim whose answer did not come.
    unanswered: Option<(HolderId, [ClaimId; 2])>,
}

/// What runs in this process, and how to stop it.
type RunningHere = BTreeMap<(i64, ClaimId), (Lease, Arc<Stop>)>;

/// What the loop, the attempts and upkeep share.
pub(super) struct Desk {
    pub(super) inner: Arc<Inner>,
    pub(super) holder: Mutex<Holding>,
    queues: Vec<Places<Start>>,
    /// By place and claim: a job whose lease was lost may be claimed again here while its old attempt still ends. In
    /// order, so that what is stopped together is stopped in the same order in every run of a simulated world.
    running: Mutex<RunningHere>,
    pub(super) suspect: AtomicBool,
    pub(super) trays: Vec<Tray>,
    /// Settlements that are with the store.
    pub(super) settling: AtomicUsize,
    /// A claim goes to the store.
    pub(super) claiming: Notify,
    /// Something ended: a place is free, or a settlement is written.
    pub(super) ended: Notify,
    /// Something runs after nothing did: from now on the lease must be renewed in time.
    busy: Notify,
    /// Upkeep is to look now.
    look: Notify,
    dead: Stop,
    /// No more is begun.
    pub(super) closing: AtomicBool,
    /// Held while a new holder is registered: several calls may learn at once that the old one is gone.
    registering: tokio::sync::Mutex<()>,
}

/// The lease this process has now.
#[derive(Clone, Copy)]
pub(super) struct Holding {
    pub(super) id: HolderId,
    pub(super) renewed_at: Timestamp,
}

/// A claimed job that has its place.
pub(super) struct Start {
    lease: Lease,
    job: Arc<Job>,
    pub(super) stop: Arc<Stop>,
    seat: Seat,
    /// When it has its turn, if that is not now.
    turn: Option<Timestamp>,
}

/// What the loop waits for next.
pub(super) struct Next {
    /// When something will be due. Now, if something may be that could not be asked for: an ending comes first.
    pub(super) due: Option<Timestamp>,
    /// When to look again without being woken: not at all while no place is free.
    pub(super) look_at: Timestamp,
    /// Nothing ran and nothing was to be settled when the store was asked, and nothing was begun: only then does the
    /// lack of a due time mean that nothing is left. An answer from before a settlement knows nothing of its retry.
    pub(super) quiet: bool,
}

impl Shift {
    pub(super) async fn begin(inner: Arc<Inner>) -> Result<Shift> {
        let queues: Vec<Places<Start>> = inner.queues.values().map(Places::of).collect();
        let batch = queues.iter().map(Places::batch).min().unwrap_or(1);
        let trays: Vec<Tray> = (0..inner.store.settlers().max(1)).map(|_| Tray::new(batch)).collect();
        let id = inner.new_holder();
        let now = inner.clock.now();
        inner.store.register(id, &inner.name, now + inner.lease).await?;
        let desk = Arc::new(Desk {
            inner,
            holder: Mutex::new(Holding { id, renewed_at: now }),
            queues,
            running: Mutex::default(),
            suspect: AtomicBool::new(false),
            trays,
            settling: AtomicUsize::new(0),
            claiming: Notify::new(),
            ended: Notify::new(),
            busy: Notify::new(),
            look: Notify::new(),
            dead: Stop::default(),
            closing: AtomicBool::new(false),
            registering: tokio::sync::Mutex::default(),
        });
        desk.inner.on_duty(&desk);
        // Before the first claim: what dead processes left is work to be done, and must not look like work in hand.
        upkeep::end_the_gone(&desk).await?;
        desk.inner.look_up_limits().await?;
        let mut tasks = JoinSet::new();
        for tray in 0..desk.trays.len() {
            tasks.spawn(settling::run(desk.clone(), tray));
        }
        tasks.spawn(upkeep::run(desk.clone()));
        tasks.spawn(destinations::follow_limits(desk.clone()));
        Ok(Shift { desk, tasks, pause: RETRY_FIRST, unanswered: None })
    }

    /// Claims what can start now, and starts it. While one claim is on its way, what the last one brought is started. A
    /// store that does not answer is not waited for here, so that a shutdown is heard meanwhile.
    pub(super) async fn claim(&mut self) -> Next {
        let mut quiet = self.is_idle();
        let desk = &self.desk;
        desk.give_back(desk.queues.iter().flat_map(|places| places.impatient(desk.inner.clock.now())));
        let mut ready = Vec::new();
        loop {
            let wants = desk.wants();
            if wants.is_empty() {
                desk.start_all(ready);
                let look_at = desk.patient_until();
                return Next { due: Some(desk.inner.clock.now()), look_at, quiet: false };
            }
            let holder = desk.lease().await;
            let suspect = !desk.suspect.load(Ordering::Acquire);
            // Full queues are not asked for, nor a second suspect: the answer says nothing of those.
            let asked_for_all = suspect && wants.len() == desk.queues.len();
            // Asked again under the same ids, the store names what it may have handed out without our knowing.
            let ids = match self.unanswered {
                Some((by, ids)) if by == holder => ids,
                _ => desk.inner.new_claims(),
            };
            self.unanswered = Some((holder, ids));
            let kinds = desk.inner.kinds.clone();
            let claim = Claim { holder, ids, wants, suspect, kinds, ahead: AHEAD };
            desk.claiming.notify_waiters();
            let claiming = desk.inner.store.claim(claim, desk.inner.clock.now());
            let starting = async { desk.start_all(std::mem::take(&mut ready)) };
            match tokio::join!(biased; claiming, starting).0 {
                Ok(claimed) => {
                    (self.pause, self.unanswered) = (RETRY_FIRST, None);
                    if !claimed.jobs.is_empty() && desk.inner.dies(Step::Claimed) {
                        desk.die();
                        return Next { due: None, look_at: Timestamp::MAX, quiet: false };
                    }
                    quiet &= claimed.jobs.is_empty();
                    let now = desk.inner.clock.now();
                    let more = !claimed.jobs.is_empty() && claimed.next_due.is_some_and(|due| due <= now);
                    let complete = asked_for_all && claimed.jobs.iter().all(|(_, job)| !job.is_suspect());
                    let tray = desk.freest_tray();
                    let start = |(lease, job): (Lease, Job)| {
                        let turn = claimed.turns.get(&lease.seq).copied();
                        desk.take_place(lease, job, tray, turn)
                    };
                    ready = claimed.jobs.into_iter().filter_map(start).collect();
                    if !more || desk.is_dead() {
                        desk.start_all(ready);
                        let look_at = claimed.next_due.unwrap_or(Timestamp::MAX).min(desk.patient_until());
                        let due = if complete { claimed.next_due } else { Some(now) };
                        return Next { due, look_at, quiet };
                    }
                }
                Err(error) if error.kind() == ErrorKind::LeaseLost => desk.begin_again(holder).await,
                Err(error) => {
                    tracing::error!(%error, "Cannot claim jobs; trying again");
                    let look_at = desk.inner.clock.now() + self.pause;
                    self.pause = (self.pause * 2).min(RETRY_MAX);
                    return Next { due: Some(look_at), look_at, quiet: false };
                }
            }
        }
    }

    pub(super) async fn something_ended(&self) {
        self.desk.ended.notified().await;
    }

    pub(super) async fn died(&self) {
        self.desk.dead.asked().await;
    }

    /// Nothing runs, and nothing waits to be settled.
    pub(super) fn is_idle(&self) -> bool {
        self.desk.running().is_empty() && self.desk.unsettled() == 0
    }

    /// Lets what runs finish, gives the rest back, and writes everything down.
    pub(super) async fn end(self) -> Result<()> {
        let desk = self.desk.clone();
        desk.closing.store(true, Ordering::Release);
        desk.send_away(|_| true);
        let finished = async {
            while !desk.running().is_empty() {
                desk.ended.notified().await;
            }
        };
        if tokio::time::timeout(desk.inner.grace, finished).await.is_err() {
            desk.stop_all(Why::Shutdown);
        }
        while !self.is_idle() {
            if desk.is_dead() {
                // What it has not written by now, it never will.
                drop(desk);
                self.leave().await;
                return Err(died());
            }
            self.desk.ended.notified().await;
        }
        let released = desk.release().await;
        drop(desk);
        self.leave().await;
        released
    }

    /// Waits until nothing holds the store any more, so that whoever opens its file next finds it free.
    pub(super) async fn leave(mut self) {
        self.tasks.shutdown().await;
        self.desk.die();
        while Arc::strong_count(&self.desk) > 1 {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Shift {
    /// Whoever drops a run without ending it gets what a killed process leaves: nothing more is written.
    fn drop(&mut self) {
        self.desk.die();
    }
}

impl Desk {
    pub(super) fn running(&self) -> MutexGuard<'_, RunningHere> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.running().is_empty()
    }

    /// Makes upkeep look now, and find out when to look next.
    pub(super) fn look_after_leases(&self) {
        self.look.notify_one();
    }

    pub(super) async fn asked_to_look(&self) {
        self.look.notified().await;
    }

    pub(super) fn renewed_at(&self) -> Timestamp {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner).renewed_at
    }

    pub(super) async fn became_busy(&self) {
        self.busy.notified().await;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.why().is_some()
    }

    /// What may be claimed now.
    fn wants(&self) -> Vec<Want> {
        // A call that is granted now is to be made now: its rate would not be kept by one that waits for a place.
        let is_limited = self.inner.store.destinations().rules().count_calls();
        let early = if is_limited { Duration::ZERO } else { places::EARLY };
        let (unsettled, now) = (self.unsettled(), self.inner.clock.now());
        self.queues.iter().filter_map(|places| places.want(early, unsettled, now)).collect()
    }

    /// The place is taken before anything else is claimed. Who has to wait for it begins later.
    fn take_place(&self, lease: Lease, job: Job, tray: usize, turn: Option<Timestamp>) -> Option<Start> {
        let place = self.queues.iter().position(|places| places.name == job.queue);
        let is_suspect = job.is_suspect();
        let start = Start { turn, ..self.sit_down(lease, job, Seat { place, tray, kept: 0 }) };
        let now = self.inner.clock.now();
        if is_suspect {
            self.suspect.store(true, Ordering::Release);
        }
        match place.map(|place| &self.queues[place]) {
            // All other suspects wait for this one.
            Some(places) if is_suspect => places.enter_first(start, now),
            Some(places) => places.enter(start, now),
            None => Some(start),
        }
    }

    /// Whether somebody waits for a place.
    pub(super) fn has_early(&self) -> bool {
        self.queues.iter().any(Places::has_early)
    }

    /// When the first that waits for a place has to be looked after.
    fn patient_until(&self) -> Timestamp {
        self.queues.iter().filter_map(Places::patient_until).min().unwrap_or(Timestamp::MAX)
    }

    /// Of those that wait for a place, these go back to their queues.
    pub(super) fn send_away(self: &Arc<Desk>, is_meant: impl Fn(&Job) -> bool) {
        self.give_back(self.queues.iter().flat_map(|places| places.send_away(|start| is_meant(&start.job))));
    }

    /// What has not begun goes back to its queue, at no cost.
    fn give_back(self: &Arc<Desk>, unbegun: impl Iterator<Item = Start>) {
        for Start { lease, job, seat, .. } in unbegun {
            let now = self.inner.clock.now();
            let settlement = attempt::settlement(lease, job, Outcome::Interrupted, now, now);
            self.start_all(self.finished(lease, Seat { place: None, ..seat }, Some(settlement)));
        }
    }

    pub(super) fn sit_down(&self, lease: Lease, job: Job, seat: Seat) -> Start {
        let stop = Arc::new(Stop::default());
        self.trays[seat.tray].load.fetch_add(1, Ordering::AcqRel);
        let mut running = self.running();
        if running.is_empty() {
            self.busy.notify_one();
        }
        running.insert((lease.seq, lease.claim), (lease, stop.clone()));
        Start { lease, job: Arc::new(job), stop, seat, turn: None }
    }

    /// A place is free. Who waits for it is to begin; else somebody may be wanted for it.
    #[must_use]
    pub(super) fn stand_up(&self, seat: Seat) -> Option<Start> {
        let left = seat.place.map(|place| self.queues[place].leave(self.inner.clock.now()));
        let Left { next, has_room } = left.unwrap_or(Left { next: None, has_room: true });
        // While enough wait for one, nobody need look for more.
        if next.is_none() || has_room {
            self.ended.notify_one();
        }
        next
    }

    /// Each in a task of its own, which goes on with whoever waits for the place.
    pub(super) fn start_all(self: &Arc<Desk>, ready: impl IntoIterator<Item = Start>) {
        for start in ready {
            let desk = self.clone();
            // Boxed: on its way into the runtime it would be copied six times.
            tokio::spawn(Box::pin(async move {
                let mut next = Some(start);
                while let Some(Start { lease, job, stop, seat, turn }) = next {
                    let settlement = attempt::run(&desk.inner, lease, job, stop, turn).await;
                    if settlement.is_none() {
                        desk.die();
                    }
                    next = desk.finished(lease, seat, settlement);
                    // Attempts that wait for nothing would keep a thread to themselves.
                    tokio::task::coop::consume_budget().await;
                }
            }));
        }
    }

    /// The holder to claim for. While nothing runs its lease is not renewed, so it is looked after here.
    async fn lease(&self) -> HolderId {
        let holding = *self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        if self.inner.clock.now().since(holding.renewed_at) >= self.inner.lease / 3 {
            upkeep::renew(self).await;
            return self.holder.lock().unwrap_or_else(PoisonError::into_inner).id;
        }
        holding.id
    }

    /// The holder has expired: everything it held is lost, and its id is never used again.
    pub(super) async fn begin_again(&self, gone: HolderId) {
        let _one_at_a_time = self.registering.lock().await;
        if self.holder.lock().unwrap_or_else(PoisonError::into_inner).id != gone {
            // Done already. Once more would stop what was claimed since, and leave a holder that nobody renews.
            return;
        }
        self.stop_all(Why::LeaseLost);
        let id = self.inner.new_holder();
        let mut pause = RETRY_FIRST;
        loop {
            let now = self.inner.clock.now();
            match self.inner.store.register(id, &self.inner.name, now + self.inner.lease).await {
                Ok(()) => {
                    *self.holder.lock().unwrap_or_else(PoisonError::into_inner) =
                        Holding { id, renewed_at: now };
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "Cannot register with the store; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
            }
        }
    }

    pub(super) fn stop(&self, lost: &Lease) {
        if let Some((_, stop)) = self.running().get(&(lost.seq, lost.claim)) {
            stop.ask(Why::LeaseLost);
        }
    }

    fn stop_all(&self, why: Why) {
        for (_, stop) in self.running().values() {
            stop.ask(why);
        }
    }

    pub(super) fn stop_job(&self, id: JobId) {
        for (lease, stop) in self.running().values() {
            if lease.job == id {
                stop.ask(Why::LeaseLost);
            }
        }
    }

    pub(super) fn die(&self) {
        self.dead.ask(Why::Died);
        self.stop_all(Why::Died);
        self.ended.notify_one();
    }

    async fn release(&self) -> Result<()> {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner).id;
        let now = self.inner.clock.now();
        self.inner.store.renew(holder, now).await?;
        self.inner.store.expire(holder, Vec::new(), now).await?;
        Ok(())
    }
}

/// A test let the process die.
pub(super) fn died() -> Error {
    Error::unavailable("the process was made to crash here")
}
