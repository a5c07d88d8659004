//! What protects the other side: how many downloads a host serves at once, when it may be asked again after it said
//! "later", and how fast everything together may be. Holds within one process.
//!
//! Places, and not calls a second as the gates of the store have them: a download lasts, and how many are under way is
//! what a host feels of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redrive::{Clock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::places::{Place, Places, Turn};

/// The hosts that downloads go to.
pub(super) struct Hosts {
    clock: Clock,
    per_host: usize,
    /// Places for all hosts together.
    places: Arc<Semaphore>,
    known: Mutex<BTreeMap<String, Host>>,
    pace: Pace,
}

/// Whatever brought something so lately is being served.
const SERVED_LATELY: Duration = Duration::from_secs(1);

struct Host {
    places: Arc<Places>,
    /// How often it said "later" since it last brought a file.
    refusals: u32,
    shut_until: Timestamp,
    /// The transfers that are under way, and when each last brought something.
    flows: BTreeMap<u64, Timestamp>,
    flows_begun: u64,
}

/// A transfer that is under way: in it shows whether its host is well. Dropped, it has ended.
pub(super) struct Flow {
    hosts: Arc<Hosts>,
    host: String,
    number: u64,
}

/// Whom a host means that says "later".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Later {
    /// All that come from here: there is a limit for them together.
    Everybody,
    /// The one that asked, as far as it says. If it serves others at this moment it is not down.
    Asker,
}

/// The right to ask a host now. Dropped, it goes to the next.
pub(super) struct Permit {
    host: Place,
    _place: OwnedSemaphorePermit,
}

impl Hosts {
    pub(super) fn new(parallel: usize, per_host: usize, bytes_per_second: Option<u64>) -> Hosts {
        let (clock, pace) = (Clock::system(), Pace::new(bytes_per_second));
        let (places, known) = (Arc::new(Semaphore::new(parallel)), Mutex::default());
        Hosts { clock, per_host, places, known, pace }
    }

    /// Returns when this host may be asked: it is not shut and not asked by this one too early, it has a place free, and
    /// so have we. In this order, so that whoever waits for one host takes no place from another's.
    pub(super) async fn enter(&self, host: &str, turn: Turn, not_before: Timestamp) -> Permit {
        loop {
            let until = self.shut_until(host).max(not_before);
            if until > self.clock.now() {
                self.clock.sleep_until(until).await;
            }
            let host_place = self.places_of(host).take(turn).await;
            let closed = "semaphores here are never closed";
            let _place = self.places.clone().acquire_owned().await.expect(closed);
            // It may have been shut while others were waited for.
            if self.shut_until(host) <= self.clock.now() {
                return Permit { host: host_place, _place };
            }
        }
    }

    /// It said "later". Unless it serves others at this moment, nobody asks it before then; if it does, it is asked by one
    /// fewer until then. If it says so again and again, by one fewer each time until it brings files: it may be that we
    /// are too many.
    pub(super) fn said_later(&self, host: &str, until: Timestamp, whom: Later, permit: Permit) {
        let now = self.clock.now();
        let Permit { host: place, _place: ours } = permit;
        drop(ours);
        let (serves, again) = self.of(&mut self.known(), host, |host| {
            let flows = host.flows.values().any(|came| now.since(*came) < SERVED_LATELY);
            let serves = whom == Later::Asker && flows;
            if !serves {
                host.shut_until = host.shut_until.max(until);
            }
            host.refusals = host.refusals.saturating_add(1);
            (serves, host.refusals > 1)
        });
        if again {
            place.withdraw(self.per_host);
        } else if serves {
            let clock = self.clock.clone();
            tokio::spawn(async move {
                clock.sleep_until(until).await;
                drop(place);
            });
        }
    }

    /// A transfer begins.
    pub(super) fn flow(self: &Arc<Hosts>, host: &str) -> Flow {
        let now = self.clock.now();
        let number = self.of(&mut self.known(), host, |host| {
            host.flows_begun += 1;
            host.flows.insert(host.flows_begun, now);
            host.flows_begun
        });
        Flow { hosts: self.clone(), host: host.to_owned(), number }
    }

    /// It has brought a file: a place that was withdrawn is given back.
    pub(super) fn bore(&self, host: &str) {
        let places = self.of(&mut self.known(), host, |host| {
            host.refusals = 0;
            host.places.clone()
        });
        places.restore();
    }

    /// Until when a host is shut; in the past if it is not.
    pub(super) fn shut_until(&self, host: &str) -> Timestamp {
        self.of(&mut self.known(), host, |host| host.shut_until)
    }

    /// Waits until so many bytes more are within the limit.
    pub(super) async fn spend(&self, bytes: usize) {
        if let Some(until) = self.pace.spend(bytes, self.clock.now()) {
            self.clock.sleep_until(until).await;
        }
    }

    fn places_of(&self, host: &str) -> Arc<Places> {
        self.of(&mut self.known(), host, |host| host.places.clone())
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Host>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of<T>(
        &self,
        known: &mut BTreeMap<String, Host>,
        host: &str,
        use_it: impl FnOnce(&mut Host) -> T,
    ) -> T {
        let unknown = || Host {
            places: Places::new(self.per_host),
            refusals: 0,
            shut_until: Timestamp::EPOCH,
            flows: BTreeMap::new(),
            flows_begun: 0,
        };
        use_it(known.entry(host.to_owned()).or_insert_with(unknown))
    }
}

impl Flow {
    /// Something came.
    pub(super) fn came(&self) {
        let now = self.hosts.clock.now();
        self.hosts.of(&mut self.hosts.known(), &self.host, |host| host.flows.insert(self.number, now));
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.hosts.of(&mut self.hosts.known(), &self.host, |host| host.flows.remove(&self.number));
    }
}

/// At most so many bytes a second, over all.
struct Pace {
    bytes_per_second: Option<u64>,
    /// When what was spent so far will have been within the limit, in microseconds.
    free_at: Mutex<i64>,
}

/// What was not used is not saved up for longer than this.
const BURST: Duration = Duration::from_millis(250);

impl Pace {
    fn new(bytes_per_second: Option<u64>) -> Pace {
        Pace { bytes_per_second, free_at: Mutex::new(0) }
    }

    /// Until when to wait after having taken so many bytes.
    fn spend(&self, bytes: usize, now: Timestamp) -> Option<Timestamp> {
        let rate = self.bytes_per_second?.max(1);
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let now_us = now.as_millis().saturating_mul(1_000);
        let cost = i64::try_from(u128::from(bytes as u64) * 1_000_000 / u128::from(rate)).unwrap_or(i64::MAX);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(now_us - micros(BURST)).saturating_add(cost);
        let wait = Duration::from_micros(u64::try_from(*free_at - now_us).unwrap_or(0));
        (!wait.is_zero()).then(|| now + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use redrive::{millis, secs};

    #[test]
    fn what_is_spent_beyond_the_limit_is_waited_for() {
        let pace = Pace::new(Some(1_000));
        let now = Timestamp::from_millis(1_000_000);
        assert_eq!(pace.spend(250, now), None);
        assert_eq!(pace.spend(500, now), Some(now + millis(500)));
        assert_eq!(pace.spend(500, now), Some(now + millis(1_000)));
        let later = now + secs(60);
        assert_eq!(pace.spend(1_250, later), Some(later + secs(1)));
        assert_eq!(Pace::new(None).spend(usize::MAX, now), None);
    }

    const ANY: Timestamp = Timestamp::EPOCH;

    #[tokio::test]
    async fn whoever_waits_for_one_host_takes_no_place_from_another() {
        let hosts = Hosts::new(2, 1, None);
        let first = hosts.enter("a", Turn::Begins, ANY).await;
        let waiting = hosts.enter("a", Turn::Begins, ANY);
        tokio::pin!(waiting);
        tokio::select! { biased;
            _ = &mut waiting => panic!("a has one place"),
            _ = hosts.enter("b", Turn::Begins, ANY) => {}
        }
        drop(first);
        waiting.await;
    }

    #[tokio::test]
    async fn a_host_that_said_later_is_not_asked_before() {
        let hosts = Hosts::new(9, 9, None);
        let until = hosts.clock.now() + millis(60);
        let (first, second) =
            (hosts.enter("a", Turn::Begins, ANY).await, hosts.enter("a", Turn::Begins, ANY).await);
        hosts.said_later("a", until, Later::Asker, first);
        hosts.said_later("a", until - millis(50), Later::Asker, second);
        let asked = hosts.enter("a", Turn::Begins, ANY);
        tokio::pin!(asked);
        assert!((&mut asked).now_or_never().is_none());
        drop(hosts.enter("b", Turn::Begins, ANY).await);
        drop(asked.await);
        assert!(hosts.clock.now() >= until);
    }

    #[tokio::test]
    async fn a_host_that_serves_others_is_asked_by_one_fewer_until_then_and_not_shut() {
        let hosts = Arc::new(Hosts::new(9, 3, None));
        let at_once = || hosts.enter("a", Turn::Begins, ANY).now_or_never();
        let flow = hosts.flow("a");
        flow.came();
        let (served, refused) = (at_once().expect("it is free"), at_once().expect("it is free"));
        let until = hosts.clock.now() + millis(200);
        hosts.said_later("a", until, Later::Asker, refused);
        let third = at_once().expect("it is not down");
        assert!(at_once().is_none(), "one fewer");
        // The place that was left comes back by itself.
        let fourth = hosts.enter("a", Turn::Begins, ANY).await;
        assert!(hosts.clock.now() >= until);
        drop((served, third, fourth));
    }

    #[tokio::test]
    async fn a_limit_for_all_of_us_and_a_host_that_serves_nobody_shut_it() {
        for (whom, is_flowing) in [(Later::Everybody, true), (Later::Asker, false)] {
            let hosts = Arc::new(Hosts::new(9, 3, None));
            let flow = hosts.flow("a");
            if !is_flowing {
                drop(flow);
            }
            let permit = hosts.enter("a", Turn::Begins, ANY).await;
            hosts.said_later("a", hosts.clock.now() + secs(60), whom, permit);
            assert!(hosts.enter("a", Turn::Begins, ANY).now_or_never().is_none(), "{whom:?}");
        }
    }

    #[tokio::test]
    async fn whoever_was_told_later_waits_though_others_may_go() {
        let hosts = Hosts::new(9, 3, None);
        let until = hosts.clock.now() + millis(50);
        let told = hosts.enter("a", Turn::GoesOn, until);
        tokio::pin!(told);
        assert!((&mut told).now_or_never().is_none());
        assert!(hosts.enter("a", Turn::Begins, ANY).now_or_never().is_some());
        told.await;
        assert!(hosts.clock.now() >= until);
    }

    #[tokio::test]
    async fn a_host_that_keeps_saying_later_is_asked_by_fewer_until_it_brings_files_again() {
        let hosts = Hosts::new(9, 3, None);
        let refuse = async || {
            let permit = hosts.enter("a", Turn::Begins, ANY).await;
            hosts.said_later("a", ANY, Later::Asker, permit);
        };
        let at_once = || hosts.enter("a", Turn::Begins, ANY).now_or_never();
        refuse().await;
        let all = [at_once(), at_once(), at_once()];
        assert!(all.iter().all(Option::is_some), "once is chance");
        drop(all);
        refuse().await;
        let two = [at_once(), at_once(), at_once()];
        assert_eq!(two.iter().flatten().count(), 2);
        hosts.bore("a");
        assert!(at_once().is_some());
    }
}
