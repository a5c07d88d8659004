//! What a gate's change has to tell.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{Gate, Phase, Why};
use crate::clock::Timestamp;

/// A gate was shut or opened, or goes on otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// Whose.
    pub destination: Arc<str>,
    /// As it was.
    pub before: Phase,
    /// As it is.
    pub after: Phase,
    /// Whether a person has stopped it.
    pub paused: bool,
}

impl Change {
    /// Whether a person is to be told. That it was asked and is still down is none: one line for each closing, however long
    /// it lasts.
    pub fn is_news(&self) -> bool {
        let is_still_down = matches!(self.after, Phase::Shut { why: Why::Failing, .. });
        !(is_still_down && matches!(self.before, Phase::Probing { .. }))
    }

    pub(crate) fn between(name: &Arc<str>, before: &Gate, after: &Gate, at: Timestamp) -> Option<Change> {
        use std::mem::discriminant;
        let same = discriminant(&before.phase) == discriminant(&after.phase) && before.paused == after.paused;
        (!same).then(|| Change {
            at,
            destination: name.clone(),
            before: before.phase.clone(),
            after: after.phase.clone(),
            paused: after.paused,
        })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.destination;
        match &self.after {
            _ if self.paused => write!(f, "{name} is paused: its jobs are held"),
            Phase::Open => write!(f, "{name} is open again"),
            Phase::Ramp { .. } => write!(f, "{name} is back: its jobs go again, a few at first"),
            Phase::Probing { .. } => write!(f, "{name} is being asked whether it is back"),
            Phase::Shut { until, why, .. } => match why {
                Why::RetryAfter => write!(f, "{name} asked for a pause until {until}: its jobs are held"),
                Why::Failing => write!(f, "{name} is down: its jobs are held, and one asks again at {until}"),
                Why::Said => {
                    write!(f, "{name} was said to be down: its jobs are held until it is said to be up")
                }
                Why::Credential => write!(
                    f,
                    "{name} does not accept its credential: its jobs are held until that is renewed"
                ),
            },
        }
    }
}
