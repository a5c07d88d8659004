//! Commands to many that take their time: done by the server part by part, with how far it is for whoever asks, and a way
//! to stop in between. Kept in the store, so that any server of it can be asked.

use std::time::Duration;

use axum::extract::State;
use redrive::{Engine, Filter, JobId, Json, Rng, Timestamp, secs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Envelope, Path, Refused, ok};
use super::audit::{By, On};
use super::commands::{BulkCommand, Deed};
use super::forms::FilterForm;
use crate::door::{Refusal, Scope, Who};

/// Where operations are kept.
const SHELF: &str = "operations";
/// Which are to stop: on a shelf of its own, so that saying how far one is never undoes that.
const STOPS: &str = "operation_stops";
/// Operations that are remembered; the oldest that has ended is forgotten first.
const KEPT: usize = 100;
/// More at once would only wait for each other.
const RUNNING_MAX: usize = 8;
/// A part takes far less: one of which nothing was heard for so long was on a server that is no more.
const LOST_AFTER: Duration = secs(60);

/// A command to many, and how far it is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OperationView {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    command: BulkCommand,
    /// Which jobs; empty if all are meant.
    filter: FilterForm,
    state: OperationState,
    /// How many matched when it began. Counted up to 10,000.
    matching: usize,
    /// Whether there were more than were counted.
    more: bool,
    /// Jobs that it has come to.
    seen: u64,
    /// Those of them to which it could be done.
    done: u64,
    /// What it failed of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Who asked for it.
    by: String,
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// When it was last heard of.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum OperationState {
    Running,
    /// It came to the end.
    Done,
    /// Somebody stopped it. What was done stays done.
    Stopped,
    /// Something was in its way.
    Failed,
    /// Its server died or was stopped in between. What was done stays done.
    Lost,
}

/// What is about to be done.
pub(super) struct Begun {
    pub(super) command: BulkCommand,
    pub(super) deed: Deed,
    pub(super) asked: FilterForm,
    pub(super) filter: Filter,
    pub(super) matching: usize,
    pub(super) more: bool,
    /// As the audit log calls it.
    pub(super) what: String,
    /// As the audit log says of which jobs.
    pub(super) on: String,
}

impl Begun {
    /// Begins, and goes on when the caller has gone.
    pub(super) async fn start(self, api: &Api, by: By) -> Result<OperationView, Refusal> {
        make_room(api).await?;
        let now = api.engine().now();
        let begun = OperationView {
            id: JobId::new(now, 0, &mut Rng::from_os()),
            command: self.command,
            filter: self.asked.clone(),
            state: OperationState::Running,
            matching: self.matching,
            more: self.more,
            seen: 0,
            done: 0,
            error: None,
            by: by.who.name.clone(),
            started_at: now,
            updated_at: now,
        };
        keep(api, &begun).await?;
        tokio::spawn(self.carry_out(api.clone(), by, begun.clone()));
        Ok(begun)
    }

    async fn carry_out(self, api: Api, by: By, mut view: OperationView) {
        let on = On::named(&self.on);
        let steered = by.steered(&api, &self.what, on, |engine| self.work(&api, &by.who, engine, &mut view));
        let result = steered.await;
        if let Err(refusal) = result {
            (view.state, view.error) = (OperationState::Failed, Some(refusal.message.clone()));
        }
        view.updated_at = api.engine().now();
        if let Err(error) = keep(&api, &view).await {
            tracing::error!(error = error.message, operation = %view.id, "How an operation ended could not be kept");
        }
    }

    async fn work(
        &self,
        api: &Api,
        who: &Who,
        engine: Engine,
        view: &mut OperationView,
    ) -> Result<(), Refusal> {
        let mut before = None;
        while view.state == OperationState::Running {
            if is_stopped(api, view.id).await? {
                view.state = OperationState::Stopped;
                break;
            }
            let part = self.deed.part(api, who, &engine, &self.filter, before).await?;
            (view.seen, view.done) = (view.seen + part.seen, view.done + part.done);
            before = part.next;
            if before.is_none() {
                view.state = OperationState::Done;
                break;
            }
            view.updated_at = api.engine().now();
            keep(api, view).await?;
        }
        Ok(())
    }
}

async fn keep(api: &Api, view: &OperationView) -> Result<(), Refusal> {
    Ok(api.engine().keep_record(SHELF, &view.id.to_string(), Some(written(view)?)).await?)
}

fn written(value: &impl Serialize) -> Result<Json, Refusal> {
    Json::of(value).map_err(|_| Refusal::new(500, "RETRY_INTERNAL", "an operation cannot be written"))
}

async fn is_stopped(api: &Api, id: JobId) -> Result<bool, Refusal> {
    let id = id.to_string();
    Ok(api.engine().records(STOPS).await?.iter().any(|(name, _)| *name == id))
}

/// All that are remembered, the newest first.
async fn all(api: &Api) -> Result<Vec<OperationView>, Refusal> {
    let now = api.engine().now();
    let records = api.engine().records(SHELF).await?;
    let mut views: Vec<OperationView> = records.iter().filter_map(|(_, json)| json.decode().ok()).collect();
    for view in &mut views {
        if view.state == OperationState::Running && now.since(view.updated_at) > LOST_AFTER {
            view.state = OperationState::Lost;
        }
    }
    views.sort_by_key(|view| std::cmp::Reverse((view.started_at, view.id)));
    Ok(views)
}

/// Forgets what has ended long ago, and refuses what would be too much at once.
async fn make_room(api: &Api) -> Result<(), Refusal> {
    let known = all(api).await?;
    let is_running = |view: &&OperationView| view.state == OperationState::Running;
    if known.iter().filter(is_running).count() >= RUNNING_MAX {
        let message = format!("{RUNNING_MAX} operations are at work already");
        return Err(Refusal::new(409, "RETRY_CONFLICT", message)
            .hint("wait for one to end, or stop it: they are at GET /api/v1/operations"));
    }
    for old in known.iter().filter(|view| !is_running(view)).skip(KEPT - 1) {
        api.engine().keep_record(STOPS, &old.id.to_string(), None).await?;
        api.engine().keep_record(SHELF, &old.id.to_string(), None).await?;
    }
    Ok(())
}

async fn find(api: &Api, id: JobId) -> Result<OperationView, Refusal> {
    all(api).await?.into_iter().find(|view| view.id == id).ok_or_else(|| {
        Refusal::new(404, "RETRY_NOT_FOUND", format!("operation {id} is not there"))
            .hint("those that are remembered are at GET /api/v1/operations")
    })
}

/// Commands to many that were given to the background, newest first.
#[utoipa::path(get, path = "/api/v1/operations", operation_id = "listOperations", tag = "operations", responses(
    (status = 200, body = Envelope<Vec<OperationView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn list(state: State<Api>, who: Who) -> Answer<Vec<OperationView>> {
    who.need(Scope::Read)?;
    ok(all(&state).await?)
}

/// How far one is.
#[utoipa::path(get, path = "/api/v1/operations/{id}", operation_id = "getOperation", tag = "operations", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<OperationView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn get(state: State<Api>, who: Who, id: Path<JobId>) -> Answer<OperationView> {
    who.need(Scope::Read)?;
    ok(find(&state, id.0).await?)
}

/// Stops one after the part that it is at. What was done stays done.
#[utoipa::path(post, path = "/api/v1/operations/{id}/cancel", operation_id = "cancelOperation", tag = "operations", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<OperationView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn cancel(state: State<Api>, by: By, id: Path<JobId>) -> Answer<OperationView> {
    by.who.need(Scope::Operate)?;
    let found = find(&state, id.0).await?;
    if found.state != OperationState::Running {
        let message = format!("operation {} has ended", found.id);
        return Err(Refusal::new(409, "RETRY_CONFLICT", message).hint("what it did is in its done"));
    }
    let name = found.id.to_string();
    let (key, stopper) = (name.clone(), written(&by.who.name)?);
    let stop = |engine: Engine| async move { Ok(engine.keep_record(STOPS, &key, Some(stopper)).await?) };
    by.steered(&state, "operations.cancel", On::named(&name), stop).await?;
    ok(find(&state, id.0).await?)
}
