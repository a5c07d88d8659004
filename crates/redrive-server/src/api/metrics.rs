//! What machines watch: is it there, can it work, how much has happened.

use axum::extract::State;
use http::{StatusCode, header};
use redrive::StateName;

use super::Api;
use super::answer::Refused;
use super::destinations::Standing;
use crate::door::{Refusal, Scope, Who};

/// The process answers.
#[utoipa::path(get, path = "/healthz", operation_id = "getHealth", tag = "operations", responses(
    (status = 200, body = str, content_type = "text/plain"), (status = "4XX", body = Refused),
))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// The store answers too: requests may be sent here.
#[utoipa::path(get, path = "/readyz", operation_id = "getReadiness", tag = "operations", responses(
    (status = 200, body = str, content_type = "text/plain"),
    (status = "4XX", body = Refused),
    (status = 503, body = str, content_type = "text/plain", description = "The store does not answer"),
))]
pub(super) async fn readyz(state: State<Api>) -> (StatusCode, &'static str) {
    match state.engine().counts().await {
        Ok(_) => (StatusCode::OK, "ok\n"),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n"),
    }
}

/// Figures for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "getMetrics", tag = "operations", responses(
    (status = 200, body = str, content_type = "text/plain"), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn metrics(
    state: State<Api>,
    who: Who,
) -> Result<([(header::HeaderName, &'static str); 1], String), Refusal> {
    who.need(Scope::Read)?;
    for counts in state.engine().counts().await? {
        let set = |state: StateName, count: u64| {
            let (queue, name) = (counts.queue.to_string(), StateName::as_str(state));
            #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
            metrics::gauge!("redrive_jobs", "queue" => queue, "state" => name).set(count as f64);
        };
        set(StateName::Waiting, counts.waiting);
        set(StateName::Running, counts.running);
        set(StateName::Dead, counts.dead);
    }
    gauge_destinations(&state).await?;
    let text = state.inner.metrics.as_ref().map(|metrics| metrics.render()).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// Destinations whose figures are shown. What more there are is only counted.
const DESTINATIONS_MAX: usize = 1_000;

/// A destination that has nothing to say any more is open and holds nothing: its last figures must not stay.
async fn gauge_destinations(api: &Api) -> Result<(), Refusal> {
    let now = api.engine().now();
    let known = api.engine().destinations().await?;
    let mut shown = api.inner.gauged.lock().await;
    let mut gone = std::mem::take(&mut *shown);
    for destination in known.iter().take(DESTINATIONS_MAX) {
        let standing = Standing::of(&destination.gate.phase, destination.gate.paused, now);
        set_destination(&destination.name, standing, destination.held);
        gone.remove(&destination.name);
        shown.insert(destination.name.clone());
    }
    gone.iter().for_each(|name| set_destination(name, Standing::Open, 0));
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    metrics::gauge!("redrive_destinations").set(known.len() as f64);
    Ok(())
}

fn set_destination(name: &str, standing: Standing, held: u64) {
    let state = f64::from(standing as u8);
    metrics::gauge!("redrive_destination_state", "destination" => name.to_owned()).set(state);
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    metrics::gauge!("redrive_destination_held", "destination" => name.to_owned()).set(held as f64);
}
