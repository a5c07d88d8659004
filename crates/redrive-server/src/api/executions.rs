//! Executions of workflows: started, looked at, started anew, taken back and forgotten. What callers send is read in
//! `form.rs`.

mod form;
mod views;

use axum::extract::State;
use redrive::{EXECUTION, Engine, ExecutionDetail, Filter, JobId, StateName, Workflow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use self::form::ExecutionForm;
use self::views::{ExecutionPageView, ExecutionView};
use super::Api;
use super::answer::{Answer, Body, Envelope, Path, Query, Refused, created, invalid, ok};
use super::audit::{By, On};
use super::forms::FilterForm;
use super::jobs::{IdempotencyForm, cursor, not_enqueued, page};
use super::views::{PageView, last_error};
use crate::door::{Refusal, Scope, Who};

/// Each of a page is looked at with its nodes.
const PAGE_MAX: usize = 100;
/// Of how many nodes the last error is read, the first that have one.
const ERRORS_MAX: usize = 100;

/// What was started.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StartedView {
    /// The execution.
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    #[schema(value_type = super::schemas::State)]
    state: StateName,
}

/// Starts an execution. When this answers, all of its nodes are durable; if it is refused, nothing was created.
#[utoipa::path(post, path = "/api/v1/executions", operation_id = "startExecution", tag = "executions", params(IdempotencyForm), request_body = ExecutionForm, responses(
    (status = 201, body = Envelope<StartedView>),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn start(state: State<Api>, who: Who, body: Body<ExecutionForm>) -> Answer<StartedView> {
    who.need(Scope::Enqueue)?;
    let call = body.call(&who);
    let workflow = who.signature().into_iter().fold(body.value.into_workflow(&state)?, Workflow::author);
    let started = match call {
        None => state.engine().start(workflow).await,
        Some(call) => state.engine().start_once(call, workflow).await,
    };
    let id = started.map_err(|error| not_enqueued(&state, error))?;
    created(StartedView { id, state: StateName::Waiting })
}

/// Which part of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionsForm {
    /// Whose own job is in one of these states, separated by commas: waiting, running, succeeded, dead, cancelled.
    #[param(example = "waiting,dead")]
    state: Option<String>,
    /// With these labels, as `name:value`, separated by commas.
    label: Option<String>,
    /// At most this many: 1 to 100, 50 if not given.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// The last answer's `nextCursor`.
    cursor: Option<String>,
}

/// Executions, newest first.
#[utoipa::path(get, path = "/api/v1/executions", operation_id = "listExecutions", tag = "executions", params(ExecutionsForm), responses(
    (status = 200, body = Envelope<PageView<ExecutionPageView>>),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn list(
    state: State<Api>,
    who: Who,
    query: Query<ExecutionsForm>,
) -> Answer<PageView<ExecutionPageView>> {
    who.need(Scope::Read)?;
    let ExecutionsForm { state: states, label, limit, cursor: from } = query.0;
    let limit = limit.unwrap_or(50);
    if limit > PAGE_MAX {
        return Err(invalid(format!("limit is {limit}"), format!("write a number from 1 to {PAGE_MAX}")));
    }
    let page = page(Some(limit), from.as_deref())?;
    let filter = FilterForm { state: states, label, ..FilterForm::default() }.into_filter()?;
    let filter = Filter { kind: Some(EXECUTION.into()), ..filter };
    let paged = state.engine().list(&filter, page).await?;
    let mut items = Vec::with_capacity(paged.jobs.len());
    for job in paged.jobs {
        if let Some(known) = state.engine().execution(job.id).await? {
            items.push(ExecutionPageView::of(&known, &who));
        }
    }
    ok(PageView { items, next_cursor: paged.next.map(cursor) })
}

async fn find(api: &Api, id: JobId) -> Result<ExecutionDetail, Refusal> {
    api.engine().execution(id).await?.ok_or_else(|| {
        Refusal::new(404, "RETRY_NOT_FOUND", format!("there is no execution {id}"))
            .hint("it may have been finished and forgotten; look at its id again")
    })
}

async fn view(api: &Api, who: &Who, id: JobId) -> Answer<ExecutionView> {
    let known = find(api, id).await?;
    let failed = known.nodes.iter().flatten().filter(|node| node.ledger.failures > 0 || is_dead(node));
    let mut errors = std::collections::BTreeMap::new();
    for node in failed.take(ERRORS_MAX) {
        let detail = api.engine().get(node.id).await?;
        let error = detail.and_then(|detail| last_error(&detail.attempts, who));
        errors.extend(error.map(|error| (node.id, error)));
    }
    ok(ExecutionView::of(known, &errors, who))
}

fn is_dead(job: &redrive::Job) -> bool {
    job.state.name() == StateName::Dead
}

/// One execution with its nodes.
#[utoipa::path(get, path = "/api/v1/executions/{id}", operation_id = "getExecution", tag = "executions", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<ExecutionView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn get(state: State<Api>, who: Who, id: Path<JobId>) -> Answer<ExecutionView> {
    who.need(Scope::Read)?;
    view(&state, &who, id.0).await
}

/// Starts a failed execution anew, with what it was started with. Answers with the new one; the same again with the same
/// one.
#[utoipa::path(post, path = "/api/v1/executions/{id}/retry", operation_id = "retryExecution", tag = "executions", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<ExecutionView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn retry(state: State<Api>, by: By, id: Path<JobId>) -> Answer<ExecutionView> {
    by.who.need(Scope::Operate)?;
    find(&state, id.0).await?;
    let change = |engine: Engine| async move { Ok(engine.retry_execution(id.0).await?) };
    let new = by.steered(&state, "executions.retry", On::job(id.0), change).await?;
    view(&state, &by.who, new).await
}

/// Takes an execution back, with all of its nodes.
#[utoipa::path(post, path = "/api/v1/executions/{id}/cancel", operation_id = "cancelExecution", tag = "executions", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<ExecutionView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn cancel(state: State<Api>, by: By, id: Path<JobId>) -> Answer<ExecutionView> {
    by.who.need(Scope::Operate)?;
    find(&state, id.0).await?;
    let change = |engine: Engine| async move { Ok(engine.cancel(id.0).await?) };
    by.steered(&state, "executions.cancel", On::job(id.0), change).await?;
    view(&state, &by.who, id.0).await
}

/// Runs a node again, with its own data and what those before it left behind. The execution goes on where it stopped.
#[utoipa::path(post, path = "/api/v1/executions/{id}/nodes/{node}/retry", operation_id = "retryNode", tag = "executions", params(("id" = String, Path, format = "uuid"), ("node" = String, Path, description = "Its nodeId")), responses(
    (status = 200, body = Envelope<ExecutionView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn retry_node(
    state: State<Api>,
    by: By,
    path: Path<(JobId, String)>,
) -> Answer<ExecutionView> {
    by.who.need(Scope::Operate)?;
    let (id, node) = path.0;
    find(&state, id).await?;
    let change = |engine: Engine| async move { Ok(engine.retry_node(id, &node).await?) };
    by.steered(&state, "executions.retry_node", On::job(id), change).await?;
    view(&state, &by.who, id).await
}

/// What was forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ForgottenView {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
}

/// Forgets a finished execution, with all of its nodes.
#[utoipa::path(delete, path = "/api/v1/executions/{id}", operation_id = "deleteExecution", tag = "executions", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<ForgottenView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn delete(state: State<Api>, by: By, id: Path<JobId>) -> Answer<ForgottenView> {
    by.who.need(Scope::Operate)?;
    find(&state, id.0).await?;
    let change = |engine: Engine| async move { Ok(engine.delete(id.0).await?) };
    by.steered(&state, "executions.delete", On::job(id.0), change).await?;
    ok(ForgottenView { id: id.0 })
}
