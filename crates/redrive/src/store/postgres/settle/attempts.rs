//! The attempts of a batch that did not succeed.

use std::collections::HashMap;

use super::super::codec::as_i32;
use super::batch::clean;
use crate::clock::Timestamp;
use crate::job::State;
use crate::machine::Transition;
use crate::store::Lease;

#[derive(Default)]
pub(super) struct Attempts {
    pub(super) seq: Vec<i64>,
    pub(super) attempt: Vec<i32>,
    pub(super) started: Vec<i64>,
    pub(super) ended: Vec<i64>,
    pub(super) next: Vec<Option<i64>>,
    /// Which of what there is to say.
    pub(super) number: Vec<i32>,
    said: HashMap<Said, i32>,
}

/// What there is to say of an attempt. Where many fail at once it is mostly the same, so it is sent once.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Said {
    pub(super) ending: &'static str,
    pub(super) failure: Option<String>,
    pub(super) fingerprint: Option<String>,
    pub(super) rule: Option<String>,
}

impl Attempts {
    pub(super) fn add(
        &mut self,
        lease: Lease,
        transition: &Transition,
        (started_at, ended_at): (Timestamp, Timestamp),
    ) {
        self.seq.push(lease.seq);
        self.attempt.push(as_i32(lease.attempt) + 1);
        self.started.push(started_at.as_millis());
        self.ended.push(ended_at.as_millis());
        self.next.push(match transition.state {
            State::Waiting { due_at, .. } => Some(due_at.as_millis()),
            _ => None,
        });
        let failure = transition.failure.as_ref();
        let said = Said {
            ending: transition.ending.as_str(),
            failure: failure.map(|failure| serde_json::to_string(failure).expect("a failure can be written")),
            fingerprint: transition.fingerprint.as_deref().map(|text| clean(text).into_owned()),
            rule: transition.rule.as_deref().map(|text| clean(text).into_owned()),
        };
        let next = i32::try_from(self.said.len() + 1).unwrap_or(i32::MAX);
        self.number.push(*self.said.entry(said).or_insert(next));
    }

    /// What there is to say, in the order of its numbers.
    pub(super) fn said(&self) -> Vec<&Said> {
        let mut said: Vec<(&Said, &i32)> = self.said.iter().collect();
        said.sort_by_key(|(_, number)| **number);
        said.into_iter().map(|(said, _)| said).collect()
    }
}
