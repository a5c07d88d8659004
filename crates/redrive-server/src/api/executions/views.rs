//! Executions as callers see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive::{ExecutionDetail, Job, JobId, Json, Node, Policy, Reason, State, StateName, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::views::last_error;
use crate::door::{Scope, Who};

/// How many nodes are where.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeCounts {
    total: usize,
    waiting: usize,
    running: usize,
    succeeded: usize,
    dead: usize,
    cancelled: usize,
}

/// An execution in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecutionPageView {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    /// `waiting`, `running`, `retrying` (it failed and waits to be started anew), `retried` (another took its place),
    /// `succeeded`, `dead` or `cancelled`.
    #[schema(value_type = String, example = "running")]
    state: &'static str,
    queue: String,
    labels: BTreeMap<String, String>,
    /// How many nodes are where.
    counts: NodeCounts,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    /// When it is started anew.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<Timestamp>,
    /// Which retry this is; 0 for the first execution.
    retry: u32,
    /// The execution that this one was started for anew.
    #[schema(value_type = Option<String>, format = "uuid")]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<JobId>,
    /// The execution that took its place.
    #[schema(value_type = Option<String>, format = "uuid")]
    #[serde(skip_serializing_if = "Option::is_none")]
    retried_by: Option<JobId>,
    /// What it failed of last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// An execution with its nodes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecutionView {
    #[serde(flatten)]
    execution: ExecutionPageView,
    /// Whether and when it is started anew.
    #[schema(value_type = serde_json::Value)]
    policy: Arc<Policy>,
    /// How often it may be; not given if only time limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    retries_allowed: Option<u32>,
    /// What it was started with; left out for whoever may not read it.
    #[schema(value_type = Option<serde_json::Value>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Json>,
    /// What its nodes left behind, by their names; left out for whoever may not read it.
    #[schema(value_type = Option<serde_json::Value>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Json>,
    /// Its steps, as they were written.
    nodes: Vec<NodeView>,
}

/// A step as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeView {
    node_id: String,
    /// Its job.
    #[schema(value_type = String, format = "uuid")]
    job_id: JobId,
    kind: String,
    /// The names of those it comes after.
    after: Vec<String>,
    /// Where its job stands; `forgotten` if that is no longer kept.
    state: &'static str,
    /// Why it waits: `dependency` if for others.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// When it is due, unless it waits for others.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    running_since: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    /// Runs that have ended.
    attempt: u32,
    /// Runs that failed.
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    retries_allowed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl NodeCounts {
    fn of(nodes: &[Option<Job>]) -> NodeCounts {
        let mut counts = NodeCounts { total: nodes.len(), ..NodeCounts::default() };
        for job in nodes.iter().flatten() {
            match job.state.name() {
                StateName::Waiting => counts.waiting += 1,
                StateName::Running => counts.running += 1,
                StateName::Succeeded => counts.succeeded += 1,
                StateName::Dead => counts.dead += 1,
                StateName::Cancelled => counts.cancelled += 1,
            }
        }
        counts
    }
}

impl ExecutionPageView {
    pub(super) fn of(known: &ExecutionDetail, who: &Who) -> ExecutionPageView {
        let ExecutionDetail { detail, execution, nodes, retried_by } = known;
        let (job, counts) = (&detail.job, NodeCounts::of(nodes));
        let begun =
            nodes.iter().flatten().any(|node| node.attempt() > 1 || node.state.name() != StateName::Waiting);
        let (state, retry_at, finished_at) = match job.state {
            State::Waiting { due_at, reason: Reason::Backoff } => ("retrying", Some(due_at), None),
            State::Waiting { .. } if !begun => ("waiting", None, None),
            State::Waiting { .. } | State::Running { .. } => ("running", None, None),
            State::Succeeded { at } if retried_by.is_some() => ("retried", None, Some(at)),
            State::Succeeded { at } | State::Dead { at, .. } | State::Cancelled { at } => {
                (StateName::as_str(job.state.name()), None, Some(at))
            }
        };
        ExecutionPageView {
            id: job.id,
            state,
            queue: job.queue.to_string(),
            labels: job.extras().labels.clone(),
            counts,
            created_at: job.created_at,
            finished_at,
            retry_at,
            retry: execution.retry,
            retry_of: execution.retry_of,
            retried_by: *retried_by,
            last_error: last_error(&detail.attempts, who),
        }
    }
}

impl ExecutionView {
    pub(super) fn of(known: ExecutionDetail, errors: &BTreeMap<JobId, String>, who: &Who) -> ExecutionView {
        let execution = ExecutionPageView::of(&known, who);
        let ExecutionDetail { detail, execution: made_of, nodes, .. } = known;
        let shown = who.may(&Scope::ReadPayload);
        let ids = made_of.node_jobs(detail.job.id);
        let places = made_of.nodes.iter().zip(ids).zip(&nodes);
        let nodes = places.map(|((node, id), job)| NodeView::of(node, id, job.as_ref(), errors)).collect();
        ExecutionView {
            execution,
            retries_allowed: detail.job.policy.retries_allowed(detail.job.origin),
            policy: detail.job.policy,
            input: shown.then_some(made_of.input),
            output: detail.output.filter(|_| shown),
            nodes,
        }
    }
}

impl NodeView {
    fn of(node: &Node, id: JobId, job: Option<&Job>, errors: &BTreeMap<JobId, String>) -> NodeView {
        let mut view = NodeView {
            node_id: node.node_id.clone(),
            job_id: id,
            kind: node.kind.to_string(),
            after: node.after.clone(),
            state: job.map_or("forgotten", |job| StateName::as_str(job.state.name())),
            reason: None,
            due_at: None,
            running_since: None,
            finished_at: None,
            attempt: job.map_or(0, |job| job.ledger.attempt),
            failures: job.map_or(0, |job| job.ledger.failures),
            retries_allowed: job.and_then(|job| job.policy.retries_allowed(job.origin)),
            last_error: errors.get(&id).cloned(),
        };
        match job.map(|job| &job.state) {
            Some(State::Waiting { due_at, reason }) => {
                view.reason = Some(*reason);
                view.due_at = (*reason != Reason::Dependency).then_some(*due_at);
            }
            Some(State::Running { since }) => view.running_since = Some(*since),
            Some(State::Succeeded { at } | State::Dead { at, .. } | State::Cancelled { at }) => {
                view.finished_at = Some(*at);
            }
            None => {}
        }
        view
    }
}
