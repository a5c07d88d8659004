//! What callers see.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive::{
    Activity, AttemptRecord, Failure, Job, JobDetail, JobId, Json, Origin, Policy, Reason, State, StateName,
    Timestamp, span,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::edit::EditView;
use crate::door::{Scope, Who};

/// A job.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobView {
    #[schema(value_type = String, format = "uuid")]
    pub(super) id: JobId,
    pub(super) kind: String,
    pub(super) queue: String,
    /// `waiting`, `running`, `succeeded`, `dead` or `cancelled`.
    #[schema(value_type = super::schemas::State)]
    pub(super) state: StateName,
    /// Why it waits.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Reason>,
    /// Until when it waits.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) due_at: Option<Timestamp>,
    /// Since when it runs.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) running_since: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finished_at: Option<Timestamp>,
    /// Why it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<&'static str>,
    /// Its data; left out for whoever may not read it.
    #[schema(value_type = Option<serde_json::Value>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload: Option<Json>,
    pub(super) priority: i16,
    #[schema(value_type = super::schemas::Policy)]
    pub(super) policy: Arc<Policy>,
    /// Runs that have ended. Only ever grows.
    pub(super) attempt: u32,
    /// Runs that failed: what the policy counts.
    pub(super) failures: u32,
    /// How many retries the policy allows; not given if they are only limited by time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retries_allowed: Option<u32>,
    pub(super) crashes: u32,
    pub(super) snoozes: u32,
    pub(super) holds: u32,
    pub(super) interruptions: u32,
    /// Times it was brought back from the dead.
    pub(super) generation: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ordering_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) destination: Option<String>,
    #[schema(value_type = Option<String>, format = "uuid")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<JobId>,
    pub(super) labels: BTreeMap<String, String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_by: Option<Timestamp>,
    /// How long one attempt may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub(super) created_at: Timestamp,
    /// Where it failed first: `engine` if it is tried here from the start, `external` if it came because it had failed.
    #[schema(value_type = super::schemas::Origin)]
    pub(super) origin: Origin,
    /// What it failed of last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_error: Option<LastErrorView>,
}

impl JobView {
    /// With what it failed of last, as this caller may see it.
    pub(super) fn failed(mut self, last: Option<&AttemptRecord>, who: &Who) -> JobView {
        self.last_error = last.and_then(|attempt| {
            Some(LastErrorView {
                failure: FailureView::of(attempt, &self.policy, who)?,
                at: attempt.ended_at,
            })
        });
        self
    }

    /// As this caller may see it.
    pub(super) fn of(job: Job, who: &Who) -> JobView {
        let state = job.state.name();
        let (mut reason, mut due_at, mut running_since, mut finished_at, mut why) =
            (None, None, None, None, None);
        match &job.state {
            State::Waiting { due_at: due, reason: because } => {
                // What waits for other jobs has no time of its own.
                (reason, due_at) = (Some(*because), Some(*due).filter(|_| *because != Reason::Dependency));
            }
            State::Running { since } => running_since = Some(*since),
            State::Succeeded { at } | State::Cancelled { at } => finished_at = Some(*at),
            State::Dead { at, why: because } => (finished_at, why) = (Some(*at), Some(because.as_str())),
        }
        let retries_allowed = job.policy.retries_allowed(job.origin);
        let timeout = job.timeout().map(span::format);
        let (deadline, start_by) = (job.deadline(), job.start_by());
        let extras = job.extras().clone();
        JobView {
            id: job.id,
            kind: job.kind.to_string(),
            queue: job.queue.to_string(),
            state,
            reason,
            due_at,
            running_since,
            finished_at,
            why,
            payload: who.may(&Scope::ReadPayload).then_some(job.payload),
            priority: job.priority,
            policy: job.policy,
            attempt: job.ledger.attempt,
            failures: job.ledger.failures,
            retries_allowed,
            crashes: job.ledger.crashes,
            snoozes: job.ledger.snoozes,
            holds: job.ledger.holds,
            interruptions: job.ledger.interruptions,
            generation: job.ledger.generation,
            key: extras.key.map(|key| key.to_string()),
            ordering_key: extras.ordering_key.map(|key| key.to_string()),
            destination: extras.destination.map(|destination| destination.to_string()),
            parent: extras.parent,
            labels: extras.labels,
            deadline,
            start_by,
            timeout,
            created_at: job.created_at,
            origin: job.origin,
            last_error: None,
        }
    }
}

/// A job with its history.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DetailView {
    #[serde(flatten)]
    pub(super) job: JobView,
    /// Oldest first; a success is not among them.
    pub(super) attempts: Vec<AttemptView>,
    /// What it left behind; left out for whoever may not read it.
    #[schema(value_type = Option<serde_json::Value>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Json>,
    /// What it was before it was corrected, oldest first.
    pub(super) edits: Vec<EditView>,
    /// The token with which it was put in, or replaced: its name, and its key id in brackets.
    #[schema(example = "importer (k3x9q2f7m4ab)")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_by: Option<String>,
}

impl DetailView {
    pub(super) fn of(detail: JobDetail, who: &Who) -> DetailView {
        let last = detail.attempts.iter().rev().find(|attempt| attempt.failure.is_some());
        let job = JobView::of(detail.job, who).failed(last, who);
        let attempts = detail.attempts.iter().map(|record| AttemptView::of(record, &job.policy, who));
        DetailView {
            attempts: attempts.collect(),
            job,
            output: detail.output.filter(|_| who.may(&Scope::ReadPayload)),
            edits: Vec::new(),
            created_by: detail.author.map(|author| author.to_string()),
        }
    }
}

/// What a job failed of last, as this caller may see it.
pub(super) fn last_error(attempts: &[AttemptRecord], who: &Who) -> Option<String> {
    let last = attempts.iter().rev().find_map(|attempt| attempt.failure.as_ref());
    last.map(|failure| said(failure, who))
}

/// What happened; and what the far side wrote of it, which is as secret as the answer it stood in.
pub(super) fn said(failure: &Failure, who: &Who) -> String {
    match who.may(&Scope::ReadPayload) {
        true => failure.in_full().into_owned(),
        false => failure.message.clone(),
    }
}

/// One attempt that did not succeed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AttemptView {
    /// Its number; 0 if it was made outside.
    attempt: u32,
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    ended_at: Timestamp,
    #[schema(value_type = super::schemas::Ending)]
    ending: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureView>,
    /// The group of failures it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// The rule that classified it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// When it was to be tried again.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<Timestamp>,
}

impl AttemptView {
    fn of(record: &AttemptRecord, policy: &Policy, who: &Who) -> AttemptView {
        AttemptView {
            attempt: record.attempt,
            started_at: record.started_at,
            ended_at: record.ended_at,
            ending: record.ending.as_str(),
            failure: FailureView::of(record, policy, who),
            group: record.fingerprint.clone(),
            rule: record.rule.clone(),
            next_at: record.next_at,
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FailureView {
    /// `transient`, `rate_limited`, `permanent`, `needs_auth` or `unknown_outcome`.
    #[schema(value_type = super::schemas::Class)]
    class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    message: String,
}

impl FailureView {
    /// A rule of the policy that has spoken says what class it was; the policy may have been changed since.
    fn of(record: &AttemptRecord, policy: &Policy, who: &Who) -> Option<FailureView> {
        let failure = record.failure.as_ref()?;
        let verdict = policy.classify(failure);
        let class = if record.rule.as_ref() == Some(&verdict.rule) { verdict.class } else { failure.class };
        Some(FailureView {
            class: class.name(),
            code: failure.code.clone(),
            status: failure.status,
            message: said(failure, who),
        })
    }
}

/// What a job failed of last.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LastErrorView {
    #[serde(flatten)]
    failure: FailureView,
    /// When that attempt ended.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// A part of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageView<T> {
    pub(super) items: Vec<T>,
    /// Send it as `cursor` for what comes next; missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}

/// A line of the activity log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ActivityView {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    #[schema(value_type = String, example = "dead")]
    what: redrive::What,
    /// Missing in a line about a destination that no job has shown.
    #[schema(value_type = Option<String>, format = "uuid")]
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
    /// Empty in a line about a destination.
    kind: String,
    /// Likewise.
    queue: String,
    message: String,
}

impl From<Activity> for ActivityView {
    fn from(line: Activity) -> ActivityView {
        let Activity { at, what, job, kind, queue, message } = line;
        let job = (job != JobId::default()).then_some(job);
        ActivityView { at, what, job, kind: kind.to_string(), queue: queue.to_string(), message }
    }
}
