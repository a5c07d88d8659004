//! The switch that holds everything: nothing begins anywhere until somebody lets it go on.

use axum::extract::State;
use redrive::Engine;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Envelope, Refused, ok};
use super::audit::{By, On};
use crate::door::Scope;

/// Whether everything is held.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HeldView {
    held: bool,
}

async fn set(api: &Api, by: &By, held: bool) -> Answer<HeldView> {
    by.who.need(Scope::Admin)?;
    let change = |engine: Engine| async move {
        match held {
            true => engine.hold().await?,
            false => engine.unhold().await?,
        }
        Ok(())
    };
    by.steered(api, if held { "store.hold" } else { "store.resume" }, On::named("all queues"), change)
        .await?;
    ok(HeldView { held })
}

/// Hands out nothing from now on, on every server of the store within a second. What runs may finish.
#[utoipa::path(post, path = "/api/v1/hold", operation_id = "holdAll", tag = "operations", responses(
    (status = 200, body = Envelope<HeldView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn hold(state: State<Api>, by: By) -> Answer<HeldView> {
    set(&state, &by, true).await
}

/// Goes on after a hold, and after a restore.
#[utoipa::path(post, path = "/api/v1/resume", operation_id = "resumeAll", tag = "operations", responses(
    (status = 200, body = Envelope<HeldView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn resume(state: State<Api>, by: By) -> Answer<HeldView> {
    set(&state, &by, false).await
}
