//! What a gate has found out by itself, for people to look at.

use super::Gate;

/// What was learned of a destination from the calls made to it. Nothing here was set by anybody.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Learned {
    /// Calls per second that it is known to bear: those before the trouble, or before the last sign of overload.
    pub bears: Option<f64>,
    /// Calls per second, lately.
    pub pace: Option<f64>,
    /// How long a call takes when it is well, in milliseconds.
    pub took_ms: Option<f64>,
}

impl Gate {
    /// The HTTP status with which it was shut, if one was.
    pub fn shut_by(&self) -> Option<u16> {
        self.shut_by
    }

    /// What it has found out by itself.
    pub fn learned(&self) -> Learned {
        let known = |value: f64| (value > 0.0).then_some(value);
        Learned { bears: self.good, pace: known(self.pace), took_ms: known(self.took_ms) }
    }
}
