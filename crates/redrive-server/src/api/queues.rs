//! Queues: how they are set, how they stand, and whether they are stopped.

use axum::extract::State;
use redrive::{Engine, Tally};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Envelope, Path, Refused, ok};
use super::audit::{By, On};
use crate::door::{Refusal, Scope, Who};

/// A queue.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueView {
    name: String,
    /// Whether this server serves it, and with how many places.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<usize>,
    paused: bool,
    waiting: u64,
    running: u64,
    dead: u64,
    /// Ever.
    succeeded: u64,
    /// Ever.
    retries: u64,
}

/// All queues, with how many jobs are where.
#[utoipa::path(get, path = "/api/v1/queues", operation_id = "listQueues", tag = "queues", responses(
    (status = 200, body = Envelope<Vec<QueueView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn list(state: State<Api>, who: Who) -> Answer<Vec<QueueView>> {
    who.need(Scope::Read)?;
    ok(views(&state).await?)
}

async fn views(api: &Api) -> Result<Vec<QueueView>, Refusal> {
    let counts = api.engine().counts().await?;
    let places =
        |name: &str| api.engine().queues().find(|queue| queue.name() == name).map(|queue| queue.places());
    let mut views: Vec<QueueView> = counts
        .into_iter()
        .map(|counts| QueueView {
            concurrency: places(&counts.queue),
            name: counts.queue.to_string(),
            paused: counts.paused,
            waiting: counts.waiting,
            running: counts.running,
            dead: counts.dead,
            succeeded: counts.totals.succeeded,
            retries: counts.totals.retries,
        })
        .collect();
    // Those that nobody has used yet.
    for queue in api.engine().queues() {
        if !views.iter().any(|view| view.name == queue.name()) {
            let Tally { succeeded, retries, .. } = Tally::default();
            views.push(QueueView {
                name: queue.name().to_owned(),
                concurrency: Some(queue.places()),
                paused: false,
                waiting: 0,
                running: 0,
                dead: 0,
                succeeded,
                retries,
            });
        }
    }
    views.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(views)
}

async fn set(api: &Api, by: &By, name: &str, paused: bool) -> Answer<QueueView> {
    by.who.need(Scope::Operate)?;
    let known = views(api).await?;
    if !known.iter().any(|view| view.name == name) {
        let names: Vec<&str> = known.iter().map(|view| view.name.as_str()).collect();
        return Err(Refusal::new(404, "RETRY_NOT_FOUND", format!("there is no queue {name:?}"))
            .hint(format!("the queues are {}", names.join(", "))));
    }
    let change = |engine: Engine| async move {
        match paused {
            true => engine.pause(name).await?,
            false => engine.resume(name).await?,
        }
        Ok(())
    };
    let what = if paused { "queues.pause" } else { "queues.resume" };
    by.steered(api, what, On::named(name), change).await?;
    let view = views(api).await?.into_iter().find(|view| view.name == name);
    ok(view.ok_or_else(|| Refusal::new(404, "RETRY_NOT_FOUND", format!("there is no queue {name:?}")))?)
}

/// Stops handing out jobs of a queue, on every server of the store.
#[utoipa::path(post, path = "/api/v1/queues/{name}/pause", operation_id = "pauseQueue", tag = "queues", params(("name" = String, Path)), responses(
    (status = 200, body = Envelope<QueueView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn pause(state: State<Api>, by: By, name: Path<String>) -> Answer<QueueView> {
    set(&state, &by, &name.0, true).await
}

/// Goes on handing out jobs of a queue.
#[utoipa::path(post, path = "/api/v1/queues/{name}/resume", operation_id = "resumeQueue", tag = "queues", params(("name" = String, Path)), responses(
    (status = 200, body = Envelope<QueueView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn resume(state: State<Api>, by: By, name: Path<String>) -> Answer<QueueView> {
    set(&state, &by, &name.0, false).await
}
