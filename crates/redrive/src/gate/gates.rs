//! All gates of a store that is one process: who may pass, who has something to say, and what is to be written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Blame, Change, Gate, Grant, Limits, Report, Rules, Seen, Word};
use crate::clock::Timestamp;

/// How often it is noted that retries wait for the budget: once for many.
const POSTPONED_EVERY: Duration = Duration::from_secs(1);

/// The gates that have something to say, and what holds for all.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    rules: Arc<Rules>,
    known: BTreeMap<Arc<str>, Gate>,
    /// Changed since they were last written.
    changed: BTreeSet<Arc<str>>,
}

impl Gates {
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.clone()
    }

    pub(crate) fn limit(&mut self, rules: Arc<Rules>) {
        self.rules = rules;
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Gate> {
        self.known.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Gate)> {
        self.known.iter()
    }

    /// Puts back what was written.
    #[cfg(feature = "sqlite")]
    pub(crate) fn load(&mut self, known: BTreeMap<Arc<str>, Gate>) {
        (self.known, self.changed) = (known, BTreeSet::new());
    }

    /// What is to be written: a gate, or that there is none any more.
    #[cfg(feature = "sqlite")]
    pub(crate) fn take_changed(&mut self) -> Vec<(Arc<str>, Option<Gate>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|name| (name.clone(), self.known.get(&name).cloned())).collect()
    }

    /// Whether jobs for this destination have to ask.
    pub(crate) fn is_gated(&self, name: &str, now: Timestamp) -> bool {
        match self.known.get(name) {
            Some(gate) => gate.is_active(&self.rules.of(name), now),
            None => self.rules.count_calls_of(name),
        }
    }

    /// How many calls may be under way at once.
    pub(crate) fn places(&self, name: &str) -> Option<u32> {
        self.rules.of(name).concurrency
    }

    /// Lets one job pass, if it may.
    pub(crate) fn pass(&mut self, name: &Arc<str>, is_retry: bool, now: Timestamp) -> bool {
        if !self.is_gated(name, now) {
            return true;
        }
        let (gate, grant) = self.grant(name, now);
        let (calls, retries) = grant.room(&gate.counts);
        let passes = if is_retry { retries > 0 } else { calls > 0 };
        if passes {
            self.set(name, grant.spend(u32::from(!is_retry), u32::from(is_retry)));
        } else if is_retry && calls > 0 && now.since(gate.postponed_at) >= POSTPONED_EVERY {
            self.set(name, Gate { postponed_at: now, ..gate });
        }
        passes
    }

    /// How many may pass now, at most.
    #[cfg(feature = "sqlite")]
    pub(crate) fn room(&self, name: &str, now: Timestamp) -> usize {
        if !self.is_gated(name, now) {
            return usize::MAX;
        }
        let (gate, grant) = self.grant(name, now);
        grant.room(&gate.counts).0 as usize
    }

    /// When to ask again for one that may not pass now.
    pub(crate) fn next_at(&self, name: &str, is_retry: bool, now: Timestamp) -> Timestamp {
        let (gate, grant) = self.grant(name, now);
        grant.next_at(&gate.counts, is_retry)
    }

    fn grant(&self, name: &str, now: Timestamp) -> (Gate, Grant) {
        let gate = self.known.get(name).cloned().unwrap_or_default();
        let grant = gate.grant(&self.rules.of(name), now);
        (gate, grant)
    }

    pub(crate) fn observe(&mut self, report: &Report, now: Timestamp) -> (Blame, Option<Change>) {
        let name = &report.destination;
        let limits = self.rules.of(name);
        let Some((gate, blame)) = observed(self.known.get(&**name), report, &limits, now) else {
            return (Blame::Job, None);
        };
        (blame, self.change(name, gate, &limits, now))
    }

    pub(crate) fn tell(&mut self, name: &Arc<str>, word: Word, now: Timestamp) -> Option<Change> {
        let mut gate = self.known.get(name).cloned().unwrap_or_default();
        gate.told(word, now);
        let limits = self.rules.of(name);
        self.change(name, gate, &limits, now)
    }

    fn change(&mut self, name: &Arc<str>, gate: Gate, limits: &Limits, now: Timestamp) -> Option<Change> {
        let before = self.known.get(name).cloned().unwrap_or_default();
        let change = Change::between(name, &before, &gate, now);
        if gate.is_active(limits, now) {
            self.set(name, gate);
        } else {
            self.known.remove(name);
            self.changed.insert(name.clone());
        }
        change
    }

    fn set(&mut self, name: &Arc<str>, gate: Gate) {
        self.known.insert(name.clone(), gate);
        self.changed.insert(name.clone());
    }
}

/// The gate after a report; nothing if there is nothing to remember.
pub(crate) fn observed(
    known: Option<&Gate>,
    report: &Report,
    limits: &Limits,
    now: Timestamp,
) -> Option<(Gate, Blame)> {
    if known.is_none() && report.seen == Seen::Well {
        return None;
    }
    let mut gate = known.cloned().unwrap_or_default();
    let blame = gate.observe(report, limits, now);
    Some((gate, blame))
}
