//! Why a job waits, until when, and what comes next.

use axum::extract::State;
use redrive::{
    ExecutionDetail, Forecast, Job, JobId, NODE_LABEL, Reason, State as Standing, StateName, Timestamp,
    forecast, secs, span,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Envelope, Path, Refused, ok};
use super::destinations::DestinationView;
use super::held::{Held, coarse};
use super::jobs::find;
use super::views::last_error;
use crate::door::{Refusal, Scope, Who};

/// Steps that are told.
const STEPS: usize = 5;
/// Nodes that are named.
const SHOWN_MAX: usize = 10;

/// Why a job is where it is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainView {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    #[schema(value_type = super::schemas::State)]
    state: StateName,
    /// In a sentence.
    summary: String,
    /// Until when it waits.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// Its destination, while that is what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<DestinationView>,
    /// How many jobs of its destination go before it, counted up to 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<usize>,
    /// When it is likely to start, where that can be foretold.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    starts_at: Option<Timestamp>,
    /// «retry 2 of 4».
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// What comes next if it goes on failing: the very times. Empty while it waits for others or for its destination.
    next: Vec<StepView>,
}

/// A step of what is to come.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepView {
    /// `attempt` or `dead`.
    step: &'static str,
    /// Which run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<u32>,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// From now.
    r#in: String,
    /// What ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

/// Why a job waits, until when, and what comes next.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/explain", operation_id = "explainJob", tag = "jobs", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<ExplainView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn explain(state: State<Api>, who: Who, id: Path<JobId>) -> Answer<ExplainView> {
    who.need(Scope::Read)?;
    let detail = find(&state, id.0).await?;
    let job = &detail.job;
    let now = state.engine().now();
    let halt = match waits_for(&state, job).await? {
        Some(others) => Some(others),
        None => halt(&state, job).await?,
    };
    let held = match (&job.state, &halt) {
        (Standing::Waiting { .. }, None) => Held::of(&state, job, now).await?,
        _ => None,
    };
    let until = match (&job.state, &held) {
        (Standing::Waiting { .. }, Some(held)) => held.until(),
        (Standing::Waiting { due_at, .. }, None) if halt.is_none() => Some(*due_at),
        _ => None,
    };
    let retry = (job.ledger.failures > 0).then(|| match job.policy.retries_allowed(job.origin) {
        // The last failure of a job that is given up is one more than it has retries.
        Some(allowed) => format!("retry {} of {allowed}", job.ledger.failures.min(allowed)),
        None => format!("retry {}", job.ledger.failures),
    });
    let is_run_here = state.engine().runs(&job.kind);
    // Nobody knows when a job runs again that waits for others.
    let foretold = match halt.is_none() && held.is_none() {
        true => foretold(job, now),
        false => Vec::new(),
    };
    ok(ExplainView {
        id: job.id,
        state: job.state.name(),
        summary: match &held {
            Some(held) => held.say(job, now),
            None => summary(job, halt.as_deref(), is_run_here, now),
        },
        until,
        ahead: held.as_ref().map(|held| held.ahead),
        starts_at: held.as_ref().and_then(|held| held.starts_at(now)),
        destination: held.map(|held| held.destination),
        retry,
        last_error: last_error(&detail.attempts, &who),
        next: foretold.into_iter().map(|step| step_view(step, now)).collect(),
    })
}

/// What comes next of a job that waits for nothing but its time. What is due begins now at the earliest.
fn foretold(job: &Job, now: Timestamp) -> Vec<Forecast> {
    match job.state {
        Standing::Waiting { due_at, reason } => {
            let state = Standing::Waiting { due_at: due_at.max(now), reason };
            forecast(&Job { state, ..job.clone() }, STEPS)
        }
        Standing::Running { .. } => forecast(job, STEPS),
        Standing::Succeeded { .. } | Standing::Dead { .. } | Standing::Cancelled { .. } => Vec::new(),
    }
}

fn is_held(job: &Job) -> bool {
    matches!(job.state, Standing::Waiting { reason: Reason::Dependency, .. })
}

/// Which nodes a job waits for, with where they stand.
async fn waits_for(api: &Api, job: &Job) -> Result<Option<String>, Refusal> {
    let execution = job.extras().parent.unwrap_or(job.id);
    let known = if is_held(job) { api.engine().execution(execution).await? } else { None };
    let Some(ExecutionDetail { execution, nodes, .. }) = known else { return Ok(None) };
    let own = job.extras().labels.get(NODE_LABEL).and_then(|name| execution.place_of(name));
    let is_before = |name: &String| own.is_none_or(|at| execution.nodes[at].after.contains(name));
    let before = execution.nodes.iter().zip(&nodes).filter(|(node, _)| is_before(&node.node_id));
    let open: Vec<String> = before
        .filter_map(|(node, job)| match job.as_ref().map(|job| job.state.name()) {
            Some(StateName::Succeeded) => None,
            Some(state) => Some(format!("{} ({state})", node.node_id)),
            None => Some(format!("{} (forgotten)", node.node_id)),
        })
        .collect();
    let more = open.len().saturating_sub(SHOWN_MAX);
    let mut shown = open[..open.len() - more].join(", ");
    if more > 0 {
        shown.push_str(&format!(" and {more} more"));
    }
    Ok(Some(format!("for nodes that come before it: {shown}")))
}

/// What keeps jobs of its queue from starting, whatever is due.
async fn halt(api: &Api, job: &Job) -> Result<Option<String>, Refusal> {
    if api.engine().is_held().await? {
        return Ok(Some("everything is held; it goes on with `redrive resume`".into()));
    }
    let is_paused = |counts: &redrive::QueueCounts| counts.queue == job.queue && counts.paused;
    let is_paused = api.engine().counts().await?.iter().any(is_paused);
    Ok(is_paused.then(|| format!("its queue {:?} is paused; it goes on when that is resumed", job.queue)))
}

fn step_view(step: Forecast, now: Timestamp) -> StepView {
    let wait = |at: Timestamp| span::format(at.since(now));
    match step {
        Forecast::Attempt { attempt, at } => {
            StepView { step: "attempt", run: Some(attempt), at, r#in: wait(at), why: None }
        }
        Forecast::Dead { at, why } => {
            StepView { step: "dead", run: None, at, r#in: wait(at), why: Some(why.as_str()) }
        }
    }
}

fn summary(job: &Job, halt: Option<&str>, is_run_here: bool, now: Timestamp) -> String {
    let since = |at: Timestamp| span::format(coarse(now.since(at)));
    match (&job.state, halt) {
        (Standing::Waiting { .. }, Some(halt)) => format!("waiting: {halt}"),
        (Standing::Waiting { due_at, reason }, _) if *due_at <= now => {
            let starts = match is_run_here {
                true => "it starts when a place is free".to_owned(),
                false => format!("it starts when a worker leases jobs of the kind {:?}", job.kind),
            };
            format!("due since {}: {}; {starts}", since(*due_at), why(*reason))
        }
        (Standing::Waiting { due_at, reason }, _) => {
            let left = match due_at.since(now) {
                left if left < secs(1) => "less than 1s".to_owned(),
                left => span::format(coarse(left)),
            };
            format!("waiting for {left} more: {}", why(*reason))
        }
        (Standing::Running { since: at }, _) => format!("running for {}", since(*at)),
        (Standing::Succeeded { at }, _) => format!("finished {} ago", since(*at)),
        (Standing::Cancelled { at }, _) => format!("cancelled {} ago", since(*at)),
        (Standing::Dead { at, why }, _) => {
            format!("dead for {} ({}): it needs a person", since(*at), why.as_str())
        }
    }
}

fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Scheduled => "for its first run",
        Reason::Backoff => "it failed, and its policy says when to try again",
        Reason::ByHand => "somebody chose the time",
        Reason::Order => "another job of its ordering key goes first",
        Reason::Held => "its destination takes nothing now",
        Reason::Dependency => "other jobs come before it",
        Reason::Snoozed => "it asked to be called later",
        _ => "it was given back",
    }
}
