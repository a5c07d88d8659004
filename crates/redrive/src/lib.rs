#![doc = include_str!("../README.md")]

pub mod classify;
mod clock;
mod fallback;
mod fingerprint;
mod outcome;
mod policy;
pub mod span;

pub use classify::{By, On, Rule, Verdict};
pub use clock::{Clock, Rng, Timestamp};
pub use fallback::{Fallback, Found};
pub use outcome::{Class, Failure, IntoOutcome, Outcome, Output};
pub use policy::{
    Ask, Backoff, Decision, Delay, GiveUp, Jitter, JitterKind, Limit, Origin, OverCap, Policy, RetryAfter,
    Then,
};
pub use span::{days, hours, millis, mins, secs};
