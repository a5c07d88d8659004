//! Jobs that are claimed again with their settlement.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::super::codec::{as_i32, as_millis};
use crate::clock::Timestamp;
use crate::machine::Transition;
use crate::store::Lease;

#[derive(Default)]
pub(super) struct GoesOn {
    pub(super) at: i64,
    pub(super) queues: BTreeSet<i32>,
    seqs: HashSet<i64>,
    /// By what is written of them: mostly it is the same.
    groups: BTreeMap<Stand, Vec<i64>>,
}

/// Where a job stands that is claimed again.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stand {
    pub(super) fence: i32,
    pub(super) failures: i32,
    pub(super) delay: Option<i64>,
    pub(super) expires: Option<i64>,
}

impl GoesOn {
    pub(super) fn add(
        &mut self,
        lease: Lease,
        queue: i32,
        transition: &Transition,
        ended_at: Timestamp,
        expires: Option<Timestamp>,
    ) {
        self.at = self.at.max(ended_at.as_millis());
        self.queues.insert(queue);
        self.seqs.insert(lease.seq);
        let stand = Stand {
            fence: as_i32(lease.attempt),
            failures: as_i32(transition.ledger.failures),
            delay: transition.delay.map(as_millis),
            expires: expires.map(Timestamp::as_millis),
        };
        self.groups.entry(stand).or_default().push(lease.seq);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    pub(super) fn contains(&self, seq: i64) -> bool {
        self.seqs.contains(&seq)
    }

    pub(super) fn stands(&self) -> impl Iterator<Item = &Stand> {
        self.groups.keys()
    }

    /// All of them, with the attempts they go on with, and where each group ends.
    pub(super) fn in_a_row(&self) -> (Vec<i64>, Vec<i32>, Vec<i32>) {
        let (mut seqs, mut attempts, mut upto) = (Vec::new(), Vec::new(), Vec::new());
        for (stand, group) in &self.groups {
            seqs.extend(group);
            attempts.resize(seqs.len(), stand.fence + 1);
            upto.push(i32::try_from(seqs.len()).unwrap_or(i32::MAX));
        }
        (seqs, attempts, upto)
    }
}
