//! What the callers of one world share: chance, the trace, the book, and the first broken promise.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::book::{Book, Verdict};
use super::plan::Rates;
use crate::clock::{Clock, Rng, Timestamp};
use crate::job::Job;
use crate::span::millis;
use crate::store::QueueCounts;

/// Sees everything that happens in one world.
pub(super) struct Witness {
    pub(super) clock: Clock,
    state: Mutex<State>,
    /// A promise was broken.
    failed: Notify,
    /// One for each caller: several who wait for the same channel are woken in no particular order.
    wakes: Vec<watch::Sender<u64>>,
}

struct State {
    rng: Rng,
    rates: Rates,
    /// Until when each caller's calls hang.
    frozen: Vec<Timestamp>,
    book: Book,
    trace: VecDeque<String>,
    trace_max: usize,
    hash: u64,
    lines: u64,
    broken: Option<String>,
}

/// What is to go wrong with one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) before: Duration,
    pub(super) refused: bool,
    pub(super) after: Duration,
    /// It is done, and reported as failed.
    pub(super) unknown: bool,
}

/// A world that makes more calls than this goes round in circles.
const LINES_MAX: u64 = 400_000;

impl Witness {
    pub(super) fn new(clock: Clock, seed: u64, rates: Rates, callers: usize, trace_max: usize) -> Witness {
        let state = State {
            rng: Rng::seeded(seed ^ 0xfa17),
            rates,
            frozen: vec![Timestamp::EPOCH; callers],
            book: Book { moved_at: clock.now(), ..Book::default() },
            trace: VecDeque::new(),
            trace_max,
            hash: 0xcbf2_9ce4_8422_2325,
            lines: 0,
            broken: None,
        };
        let wakes = (0..callers).map(|_| watch::Sender::new(0)).collect();
        Witness { clock, state: Mutex::new(state), failed: Notify::new(), wakes }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into the book.
    pub(super) fn book<T>(&self, look: impl FnOnce(&mut Book) -> T) -> T {
        look(&mut self.state().book)
    }

    /// Draws what happens to a call.
    pub(super) fn fate(&self, caller: usize) -> Fate {
        let mut state = self.state();
        let State { rng, rates, book, .. } = &mut *state;
        let Rates { refused, unknown, lost, late } = *rates;
        let mut fate = Fate::default();
        if rng.up_to(999) < late {
            book.seen.insert("delay");
            let longest = [20, 2_000, 40_000][rng.up_to(2) as usize];
            let time = millis(rng.up_to(longest));
            if rng.up_to(1) == 0 { fate.before = time } else { fate.after = time }
        }
        let dice = rng.up_to(999);
        let what = if dice < refused {
            fate.refused = true;
            "error before"
        } else if dice < refused + unknown {
            fate.unknown = true;
            "error after"
        } else if dice < refused + unknown + lost {
            fate.unknown = true;
            fate.after = millis(5_000 + rng.up_to(60_000));
            "lost reply"
        } else {
            return fate;
        };
        book.seen.insert(what);
        drop(state);
        self.say(format!("n{caller} {what}"));
        fate
    }

    /// What wakes this caller.
    pub(super) fn changes(&self, caller: usize) -> watch::Receiver<u64> {
        self.wakes[caller].subscribe()
    }

    /// The store has said so often that something may be claimable: wakes everybody, beginning with anybody.
    pub(super) fn wake(&self, version: u64) {
        if self.wakes.iter().all(|wake| *wake.borrow() == version) {
            return;
        }
        let first = self.state().rng.up_to(self.wakes.len() as u64 - 1) as usize;
        for at in 0..self.wakes.len() {
            self.wakes[(first + at) % self.wakes.len()].send_replace(version);
        }
    }

    /// Lets a caller's calls hang until then.
    pub(super) fn freeze(&self, caller: usize, until: Timestamp) {
        let mut state = self.state();
        state.frozen[caller] = until;
        state.book.seen.insert("freeze");
    }

    /// Returns when the caller does not hang; never if a promise was broken.
    pub(super) async fn thawed(&self, caller: usize) {
        if self.state().broken.is_some() {
            std::future::pending::<()>().await;
        }
        loop {
            let until = self.state().frozen[caller];
            if until <= self.clock.now() {
                return;
            }
            self.clock.sleep_until(until).await;
        }
    }

    /// From now on nothing goes wrong.
    pub(super) fn be_quiet(&self) {
        let mut state = self.state();
        state.rates = Rates::default();
        state.frozen.fill(Timestamp::EPOCH);
        state.book.calm = true;
    }

    /// Enters a call with its answer, and checks it.
    pub(super) fn note(
        &self,
        caller: usize,
        line: String,
        stored: Option<(Vec<Job>, Vec<QueueCounts>)>,
        check: impl FnOnce(&mut Book) -> Verdict,
    ) {
        self.say(format!("n{caller} {line}"));
        self.check(|book| {
            check(book)?;
            stored.map_or(Ok(()), |(rows, counts)| book.compare(&rows, &counts))
        });
    }

    /// Checks something; the first broken promise stays.
    pub(super) fn check(&self, check: impl FnOnce(&mut Book) -> Verdict) {
        let mut state = self.state();
        if state.broken.is_some() {
            return;
        }
        if let Err(broken) = check(&mut state.book) {
            state.broken = Some(broken);
            drop(state);
            self.failed.notify_waiters();
            self.failed.notify_one();
        }
    }

    /// Adds a line to the trace.
    pub(super) fn say(&self, line: String) {
        let mut state = self.state();
        let now = self.clock.now().as_millis();
        for byte in now.to_le_bytes().iter().chain(line.as_bytes()) {
            state.hash = (state.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        state.lines += 1;
        if state.trace.len() == state.trace_max {
            state.trace.pop_front();
        }
        state.trace.push_back(line);
        let last = state.trace.len() - 1;
        state.trace[last].insert_str(0, &format!("{now} "));
        let endless = state.lines > LINES_MAX;
        drop(state);
        if endless {
            self.check(|_| Err(format!("more than {LINES_MAX} calls: it goes round in circles")));
        }
    }

    /// Returns when a promise was broken.
    pub(super) async fn broken(&self) {
        if self.state().broken.is_none() {
            self.failed.notified().await;
        }
    }

    /// The hash of the trace, its length, its last lines, and what was broken.
    pub(super) fn report(&self) -> (u64, u64, Vec<String>, Option<String>) {
        let state = self.state();
        (state.hash, state.lines, state.trace.iter().cloned().collect(), state.broken.clone())
    }
}
