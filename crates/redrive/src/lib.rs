#![doc = include_str!("../README.md")]

mod clock;
pub mod span;

pub use clock::{Clock, Rng, Timestamp};
pub use span::{days, hours, millis, mins, secs};
