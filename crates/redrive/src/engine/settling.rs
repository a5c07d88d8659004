//! What attempts came to is written down; and what follows at once goes on where they were: a retry that is due, or what
//! waited for nothing but their success.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::attempt::Why;
use super::shift::{Desk, RETRY_FIRST, RETRY_MAX, Start, Step};
use crate::store::{Again, Lease, Settled, Settlement};

/// Settlements of one transaction.
const SETTLE_MAX: usize = 4_096;
/// How long a few endings wait for a transaction to go with.
const GATHER: Duration = Duration::from_millis(8);
/// How often in a row a place is kept for what follows at once. Then others that wait have their turn.
const AGAIN_MAX: u32 = 3;

/// Writes settlements. While one batch is on its way the next collects; what the store could not take is kept and
/// tried again until it can.
pub(super) async fn run(desk: Arc<Desk>, tray: usize) {
    let tray = &desk.trays[tray];
    loop {
        if tray.ended().all.is_empty() {
            tray.filled.notified().await;
            continue;
        }
        desk.gather(tray).await;
        let ended = tray.take(&desk.settling);
        let (mut batch, seats) = desk.batch(ended);
        let mut pause = RETRY_FIRST;
        while let Err(error) = desk.inner.learn(&mut batch).await {
            tracing::error!(%error, "Cannot write what was learned of destinations; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
        let batch = Arc::new(batch);
        let answers = loop {
            match desk.inner.store.settle(batch.clone()).await {
                Ok(answers) => break answers,
                Err(error) => {
                    tracing::error!(%error, "Cannot write what attempts came to; keeping it and trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
            }
        };
        tray.load.fetch_sub(batch.len(), Ordering::AcqRel);
        if desk.inner.dies(Step::Settled) {
            desk.die();
            return;
        }
        desk.inner.settled(&batch, &answers);
        if batch.iter().any(|settlement| settlement.job.is_suspect()) {
            // Not before it is written that this one was not the culprit.
            desk.suspect.store(false, Ordering::Release);
        }
        // Before it looks as if nothing were left to do.
        desk.go_on(&batch, &seats, &answers);
        desk.settling.fetch_sub(batch.len(), Ordering::AcqRel);
        desk.ended.notify_one();
    }
}

/// What waits to be settled.
pub(super) struct Tray {
    ended: Mutex<Pile>,
    filled: Notify,
    /// How many are worth a transaction of their own.
    batch: usize,
    /// How many run or wait that are settled from here.
    pub(super) load: AtomicUsize,
}

#[derive(Default)]
struct Pile {
    all: Vec<Ended>,
    /// Whether one of them is waited for.
    urgent: bool,
}

impl Tray {
    pub(super) fn new(batch: usize) -> Tray {
        Tray { ended: Mutex::default(), filled: Notify::new(), batch, load: AtomicUsize::new(0) }
    }

    fn is_full(&self) -> bool {
        self.is_full_with(&self.ended())
    }

    fn is_full_with(&self, pile: &Pile) -> bool {
        pile.urgent || pile.all.len() >= self.batch
    }

    fn ended(&self) -> MutexGuard<'_, Pile> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, ended: Ended) {
        let mut pile = self.ended();
        pile.urgent |= ended.settlement.is_waited_for();
        pile.all.push(ended);
        // Whoever waits for the first, or for enough, need not hear of those in between.
        if pile.all.len() == 1 || self.is_full_with(&pile) {
            self.filled.notify_one();
        }
    }

    /// Takes what one transaction settles. At no moment does it look as if nothing were left to do.
    fn take(&self, settling: &AtomicUsize) -> Vec<Ended> {
        let mut pile = self.ended();
        let take = pile.all.len().min(SETTLE_MAX);
        settling.fetch_add(take, Ordering::AcqRel);
        pile.urgent &= take < pile.all.len();
        pile.all.drain(..take).collect()
    }
}

/// Where a job runs, where it is settled, and how often in a row it has kept its place.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub(super) place: Option<usize>,
    pub(super) tray: usize,
    pub(super) kept: u32,
}

/// An attempt that is over and to be settled. One that would go on has kept its seat.
pub(super) struct Ended {
    settlement: Settlement,
    kept: Option<Seat>,
}

impl Desk {
    /// What has ended and is not yet written down.
    pub(super) fn unsettled(&self) -> usize {
        // In this order: what is taken from a tray meanwhile is counted twice, and not never.
        let waiting: usize = self.trays.iter().map(|tray| tray.ended().all.len()).sum();
        waiting + self.settling.load(Ordering::Acquire)
    }

    /// An attempt is over. Says who begins in its place.
    #[must_use]
    pub(super) fn finished(
        self: &Arc<Desk>,
        lease: Lease,
        seat: Seat,
        settlement: Option<Settlement>,
    ) -> Option<Start> {
        let goes_on = seat.kept < AGAIN_MAX && !self.closing.load(Ordering::Acquire);
        let kept = settlement
            .as_ref()
            .filter(|settlement| goes_on && (settlement.is_due_again() || settlement.lets_others_go()))
            .map(|_| seat);
        let failed = settlement.as_ref().and_then(Settlement::failed_at);
        // In this order: at no moment does it look as if nothing were left to do.
        if let Some(settlement) = settlement {
            self.trays[seat.tray].put(Ended { settlement, kept });
        }
        self.running().remove(&(lease.seq, lease.claim));
        if let Some(destination) = failed {
            // Whether it still takes calls is asked before the next one, when this failure is written.
            self.send_away(|job| job.extras().destination.as_ref() == Some(&destination));
        }
        if kept.is_some() { None } else { self.stand_up(seat) }
    }

    /// While others wait for a place a claim is not far, and one transaction does for both: what has ended well
    /// and is waited for by nobody goes with it.
    async fn gather(&self, tray: &Tray) {
        // Where several settle at once, claims are written beside them.
        if self.trays.len() > 1 {
            return;
        }
        let clock = &self.inner.clock;
        let over = clock.now() + GATHER;
        while !tray.is_full() && self.has_early() {
            tokio::select! { biased;
                () = self.claiming.notified() => return,
                () = tray.filled.notified() => {}
                () = clock.sleep_until(over) => return,
            }
        }
    }

    /// What to settle in one call, with the seats that were kept. All that go on share one new claim, and all that others
    /// follow share another.
    fn batch(&self, ended: Vec<Ended>) -> (Vec<Settlement>, Vec<Option<Seat>>) {
        let again = ended.iter().any(|ended| ended.kept.is_some()).then(|| {
            let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner).id;
            self.inner.new_claims().map(|claim| Again { holder, claim, kinds: self.inner.kinds.clone() })
        });
        let split = |Ended { mut settlement, kept }| {
            let way = usize::from(settlement.lets_others_go());
            settlement.again = again.as_ref().filter(|_| kept.is_some()).map(|ways| ways[way].clone());
            (settlement, kept)
        };
        ended.into_iter().map(split).unzip()
    }

    /// Where to settle what one claim lists: all of it in one place, for each settlement writes to the claim's row, and
    /// where there is the least to do.
    pub(super) fn freest_tray(&self) -> usize {
        let load = |tray: &usize| self.trays[*tray].load.load(Ordering::Acquire);
        (0..self.trays.len()).min_by_key(load).unwrap_or(0)
    }

    /// What the store has claimed with a settlement goes on where that one was.
    fn go_on(self: &Arc<Desk>, batch: &[Settlement], seats: &[Option<Seat>], answers: &[Settled]) {
        let mut ready = Vec::new();
        let tray = self.freest_tray();
        for ((settlement, seat), answer) in batch.iter().zip(seats).zip(answers) {
            let Some(seat) = *seat else { continue };
            let next = match answer {
                Settled::Again => settlement.next_lease().map(|lease| (lease, settlement.next_job())),
                Settled::Next(next) => Some(Clone::clone(&**next)),
                Settled::Applied | Settled::Refused => None,
            };
            match next {
                Some((lease, job)) => {
                    ready.push(self.sit_down(lease, job, Seat { kept: seat.kept + 1, tray, ..seat }));
                }
                None => ready.extend(self.stand_up(seat)),
            }
        }
        let stop = if self.is_dead() {
            Some(Why::Died)
        } else {
            self.closing.load(Ordering::Acquire).then_some(Why::Shutdown)
        };
        if let Some(why) = stop {
            ready.iter().for_each(|start| start.stop.ask(why));
        }
        self.start_all(ready);
    }
}
