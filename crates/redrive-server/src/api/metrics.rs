//! What machines watch: is it there, can it work, how much has happened.

use axum::extract::State;
use http::{StatusCode, header};
use redrive::StateName;

use super::Api;
use super::answer::Refused;
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
    let text = state.inner.metrics.as_ref().map(|metrics| metrics.render()).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
