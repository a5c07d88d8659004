//! Whose jobs a rule is about.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::QUEUE;
use crate::config::Notice as Rule;

/// One queue, one kind, both, or everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Scope {
    queue: Option<String>,
    kind: Option<String>,
}

impl Scope {
    pub(super) fn of(rule: &Rule) -> Scope {
        Scope { queue: rule.queue.clone(), kind: rule.kind.clone() }
    }

    /// The calls by which notices are delivered.
    pub(super) fn of_calls() -> Scope {
        Scope { queue: Some(QUEUE.to_owned()), kind: None }
    }

    pub(super) fn is_everything(&self) -> bool {
        self.queue.is_none() && self.kind.is_none()
    }

    /// Whether it is about such jobs.
    pub(super) fn holds(&self, queue: &str, kind: &str) -> bool {
        self.queue.as_deref().is_none_or(|own| own == queue)
            && self.kind.as_deref().is_none_or(|own| own == kind)
    }

    /// Whether attempts of such jobs count for a rate. Our own calls do only where they are asked for by their queue: as
    /// many as there is trouble to tell of, they would make it look smaller.
    pub(super) fn counts(&self, queue: &str, kind: &str) -> bool {
        self.holds(queue, kind) && (queue != QUEUE || self.queue.is_some())
    }
}

/// As it stands behind "attempts" or "operations".
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = &self.kind {
            write!(f, " of kind {kind}")?;
        }
        match &self.queue {
            Some(queue) => write!(f, " in queue {queue}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_calls_count_only_for_who_asks_for_them() {
        let scope = |queue: Option<&str>, kind: Option<&str>| Scope {
            queue: queue.map(str::to_owned),
            kind: kind.map(str::to_owned),
        };
        for (scope, counts) in [
            (Scope::default(), false),
            (scope(None, Some("http")), false),
            (scope(Some("default"), None), false),
            (Scope::of_calls(), true),
            (scope(Some(QUEUE), Some("http")), true),
        ] {
            assert_eq!(scope.counts(QUEUE, "http"), counts, "{scope:?}");
        }
        assert!(
            Scope::default().counts("default", "http") && scope(None, Some("http")).counts("mail", "http")
        );
        assert!(Scope::default().holds(QUEUE, "http"), "and are told of like others");
    }
}
