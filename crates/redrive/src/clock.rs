//! Time and chance: the only file that reads a clock or draws a random number.
//!
//! Everything else is given `now` and `rng` as arguments, which is why a schedule of fourteen days can be tested in
//! a millisecond and why a simulated world runs twice with the same trace.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one file that looks at a clock and draws random numbers"
)]

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant in whole milliseconds since 1970 (UTC). Due times are rounded up to it, so nothing fires early.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The first millisecond of 1970.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// Later than anything that will be scheduled (year 9999), and still printable.
    pub const MAX: Timestamp = Timestamp(253_402_207_200_000);

    /// From milliseconds since 1970.
    pub const fn from_millis(ms: i64) -> Timestamp {
        Timestamp(ms)
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    /// Rounds up to the next whole millisecond and stops at [`Timestamp::MAX`].
    fn add(self, d: Duration) -> Timestamp {
        let ms = i64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(ms)).min(Timestamp::MAX)
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, d: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// RFC 3339 in UTC with milliseconds: `2026-11-15T21:18:51.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = String;
    fn from_str(text: &str) -> Result<Timestamp, String> {
        let parsed: jiff::Timestamp = text.parse().map_err(|_| unreadable(text))?;
        Ok(Timestamp(parsed.as_millisecond()))
    }
}

/// What is written like a time and cannot be counted is told apart from what is none.
fn unreadable(text: &str) -> String {
    let pieces = jiff::fmt::temporal::Pieces::parse(text);
    if pieces.is_ok_and(|pieces| pieces.offset().is_some()) {
        return format!("{text:?} is too far away; write a time of the next years");
    }
    format!("{text:?} is not a time; write it as 2026-11-15T21:18:51Z")
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Where an engine gets its time from: the system, or tokio's clock, which a test can pause.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Wall time that never goes back: a step backwards must not make a due job early again.
    System(Arc<AtomicI64>),
    /// Wall time hung on tokio's clock.
    Tokio { epoch: Timestamp, start: tokio::time::Instant },
    /// Another machine's wall time.
    Followed(Arc<Followed>),
}

/// The clock of a database, as well as it is known here: its last reading, and the time that has passed since. The
/// host's own wall clock plays no part in it, so it may be wrong, or be set.
#[derive(Debug)]
pub(crate) struct Followed {
    reading: Mutex<Reading>,
    last: AtomicI64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    micros: i64,
    at: std::time::Instant,
}

/// When a question was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked(std::time::Instant);

impl Asked {
    pub(crate) fn now() -> Asked {
        Asked(std::time::Instant::now())
    }

    /// How long ago.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock that is set back by more than this was wrong before; by less, it stands still until it is right.
const SET_BACK_MAX: i64 = 5_000;

impl Followed {
    /// A reading was taken somewhere between the question and its answer, which is now. It is taken as if it were from
    /// now, and so is never ahead: nothing starts early.
    pub(crate) fn set(&self, micros: i64) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) =
            Reading { micros, at: std::time::Instant::now() };
        let now = micros / 1_000;
        if self.last.load(Ordering::Relaxed) > now + SET_BACK_MAX {
            self.last.store(now, Ordering::Relaxed);
        }
    }

    fn now(&self) -> Timestamp {
        let Reading { micros, at } = *self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = (micros + i64::try_from(at.elapsed().as_micros()).unwrap_or(i64::MAX)) / 1_000;
        Timestamp(ms.max(self.last.fetch_max(ms, Ordering::Relaxed)))
    }
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Clock {
        Clock(Source::System(Arc::new(AtomicI64::new(i64::MIN))))
    }

    /// A clock that starts at `epoch` and advances with tokio's: under `tokio::time::pause` it moves only when every
    /// task waits, and then straight to the next timer.
    pub fn starting_at(epoch: Timestamp) -> Clock {
        Clock(Source::Tokio { epoch, start: tokio::time::Instant::now() })
    }

    /// A clock that follows another one, and knows nothing of it yet.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "only a database has a clock to follow")
    )]
    pub(crate) fn followed() -> (Clock, Arc<Followed>) {
        let reading = Mutex::new(Reading { micros: 0, at: std::time::Instant::now() });
        let followed = Arc::new(Followed { reading, last: AtomicI64::new(i64::MIN) });
        (Clock(Source::Followed(followed.clone())), followed)
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Followed(followed) => followed.now(),
            Source::System(last) => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let ms = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
                Timestamp(ms.max(last.fetch_max(ms, Ordering::Relaxed)))
            }
            Source::Tokio { epoch, start } => {
                // Rounded down, as the system's clock is: `now` never claims an instant that has not come.
                Timestamp(epoch.0 + i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX))
            }
        }
    }

    /// What time it is, rounded up: a wait that is counted from here is never short.
    pub fn now_rounded_up(&self) -> Timestamp {
        match &self.0 {
            Source::Followed(_) | Source::System(_) => self.now() + Duration::from_millis(1),
            Source::Tokio { epoch, start } => *epoch + start.elapsed(),
        }
    }

    /// Returns when it is `at`, or a little before after a long wait: callers look at `now` again.
    pub async fn sleep_until(&self, at: Timestamp) {
        // An hour at most, so that a step of the wall clock is noticed.
        tokio::time::sleep(at.since(self.now()).min(Duration::from_secs(3600))).await;
    }
}

/// Seeded randomness (SplitMix64): small, repeatable, and not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers.
    pub const fn seeded(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Seeded by the operating system.
    pub fn from_os() -> Rng {
        // `RandomState` is the standard library's only source of operating-system randomness.
        use std::hash::{BuildHasher, Hasher};
        Rng(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number in `0..=max`, evenly.
    pub fn up_to(&mut self, max: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * (u128::from(max) + 1);
        u64::try_from(wide >> 64).unwrap_or(max)
    }

    /// 128 random bits, for ids of claims and holders.
    pub fn next_u128(&mut self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }
}
