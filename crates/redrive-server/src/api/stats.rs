//! Figures, and the activity log.

use axum::extract::State;
use redrive::{ACTIVITY_MAX, Tally};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::answer::{Answer, Envelope, Query, Refused, invalid, ok};
use super::views::ActivityView;
use crate::door::{Refusal, Scope, Who};
use crate::notices;

/// The three figures everybody asks for. What the server calls to tell somebody of something is not counted.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    /// Jobs that wait or run.
    pub(super) total_pending: u64,
    /// Jobs that have finished, ever.
    pub(super) total_succeeded: u64,
    /// Jobs that were given up, ever.
    pub(super) total_failed: u64,
}

/// How everything stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatsView {
    #[serde(flatten)]
    totals: Totals,
    /// Whether nothing is handed out until somebody lets it go on.
    held: bool,
    waiting: u64,
    running: u64,
    /// Dead now: what a person has to look at.
    dead: u64,
    enqueued: u64,
    /// Finished after having failed.
    recovered: u64,
    retries: u64,
    failures: u64,
    crashes: u64,
    cancelled: u64,
    redriven: u64,
    /// Of the jobs that came to an end by themselves, how many finished: 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    success_rate: Option<f64>,
    /// Between a failure and its retry, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    average_delay_ms: Option<u64>,
}

#[derive(Default)]
struct Sum {
    waiting: u64,
    running: u64,
    dead: u64,
    tally: Tally,
    totals: Totals,
}

async fn sum(api: &Api) -> Result<Sum, Refusal> {
    let mut sum = Sum::default();
    for counts in api.engine().counts().await? {
        // Nobody has put in our own calls.
        if *counts.queue != *notices::QUEUE {
            sum.totals.total_pending += counts.waiting + counts.running;
            sum.totals.total_succeeded += counts.totals.succeeded;
            sum.totals.total_failed += counts.totals.dead;
        }
        sum.waiting += counts.waiting;
        sum.running += counts.running;
        sum.dead += counts.dead;
        sum.tally += counts.totals;
    }
    Ok(sum)
}

pub(super) async fn totals(api: &Api) -> Result<Totals, Refusal> {
    Ok(sum(api).await?.totals)
}

/// How everything stands, and what has happened so far.
#[utoipa::path(get, path = "/api/v1/stats", operation_id = "getStats", tag = "operations", responses(
    (status = 200, body = Envelope<StatsView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn stats(state: State<Api>, who: Who) -> Answer<StatsView> {
    who.need(Scope::Read)?;
    let sum = sum(&state).await?;
    let tally = sum.tally;
    ok(StatsView {
        totals: sum.totals,
        held: state.engine().is_held().await?,
        waiting: sum.waiting,
        running: sum.running,
        dead: sum.dead,
        enqueued: tally.enqueued,
        recovered: tally.recovered,
        retries: tally.retries,
        failures: tally.failures,
        crashes: tally.crashes,
        cancelled: tally.cancelled,
        redriven: tally.redriven,
        success_rate: tally.success_rate(),
        average_delay_ms: tally.delay_ms.checked_div(tally.retries),
    })
}

/// How many.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ActivityForm {
    /// At most this many: 1 to 10,000, 100 if not given.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<i64>,
}

/// What a person would want to have been told, newest first.
#[utoipa::path(get, path = "/api/v1/activity", operation_id = "listActivity", tag = "operations", params(ActivityForm), responses(
    (status = 200, body = Envelope<Vec<ActivityView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn activity(
    state: State<Api>,
    who: Who,
    query: Query<ActivityForm>,
) -> Answer<Vec<ActivityView>> {
    who.need(Scope::Read)?;
    let limit = query.0.limit.unwrap_or(100);
    if !(1..=ACTIVITY_MAX).contains(&limit) {
        return Err(invalid(format!("limit is {limit}"), format!("write a number from 1 to {ACTIVITY_MAX}")));
    }
    let lines = state.engine().activity(usize::try_from(limit).unwrap_or(100)).await?;
    ok(lines.into_iter().map(ActivityView::from).collect())
}
