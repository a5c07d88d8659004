//! Figures over time, for charts: what has happened, and which retries are to come.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use redrive::{MINUTE, Point, Steps, Timestamp, days, hours, mins, span};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::answer::{Answer, Envelope, Query, Refused, invalid, ok};
use super::forms::span_in_query;
use crate::door::{Refusal, Scope, Who};

/// The longest window.
const WINDOW_MAX: Duration = days(30);
/// The most points: more than a screen shows.
const POINTS_MAX: u128 = 240;
/// Steps to choose from where none is asked for.
const STEPS: [Duration; 9] =
    [MINUTE, mins(5), mins(10), mins(15), mins(30), hours(1), hours(3), hours(6), hours(12)];
/// Where a step is chosen, there are at most so many points.
const POINTS_CHOSEN: u128 = 120;
/// Jobs that are looked at for the forecast, of each queue and priority, those due first: a chart needs no more.
const FORECAST_MAX: usize = 20_000;

/// Which time.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SeriesForm {
    /// How far back, and as far ahead for the forecast: up to `30d`, `1h` if not given.
    #[serde(default, deserialize_with = "span_in_query")]
    #[param(value_type = Option<String>, example = "1h")]
    window: Option<Duration>,
    /// How long each step is, in whole minutes; chosen to fit if not given. At most 240 steps.
    #[serde(default, deserialize_with = "span_in_query")]
    #[param(value_type = Option<String>, example = "1m")]
    step: Option<Duration>,
}

impl SeriesForm {
    fn read(&self) -> Result<(Duration, Duration), Refusal> {
        let window = self.window.unwrap_or(hours(1));
        if !(MINUTE..=WINDOW_MAX).contains(&window) {
            return Err(invalid(format!("window is {}", span::format(window)), "write 1m to 30d"));
        }
        let points = |step: Duration| window.as_millis().div_ceil(step.as_millis().max(1));
        let fits = |step: &Duration| points(*step) <= POINTS_CHOSEN;
        let step = self.step.unwrap_or_else(|| STEPS.into_iter().find(fits).unwrap_or(hours(12)));
        if step < MINUTE || step > window || !step.as_millis().is_multiple_of(MINUTE.as_millis()) {
            let message = format!("step is {}", span::format(step));
            return Err(invalid(message, "write whole minutes, at most the window"));
        }
        if points(step) > POINTS_MAX {
            let message = format!("{} steps are too many", points(step));
            return Err(invalid(message, format!("choose a longer step: at most {POINTS_MAX} are given")));
        }
        Ok((window, step))
    }
}

/// Figures over time.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeriesView {
    /// When the first step began.
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    /// When the last one, which is under way, will be over.
    #[schema(value_type = String, format = DateTime)]
    until: Timestamp,
    step_ms: u64,
    /// Every step, oldest first.
    points: Vec<PointView>,
    /// Every step from now on, for as long again.
    forecast: Vec<DueView>,
}

/// What happened within a step, on all servers of the store.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PointView {
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Jobs that finished.
    succeeded: u64,
    /// Attempts that failed.
    failed: u64,
    /// Jobs that were given up.
    dead: u64,
    /// Jobs that came in.
    enqueued: u64,
}

/// Retries to come within a step.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DueView {
    /// When it begins.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// How many will be due.
    due: u64,
}

/// What has happened over time, and which retries are to come.
#[utoipa::path(get, path = "/api/v1/stats/series", operation_id = "getSeries", tag = "operations", params(SeriesForm), responses(
    (status = 200, body = Envelope<SeriesView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn series(state: State<Api>, who: Who, query: Query<SeriesForm>) -> Answer<SeriesView> {
    who.need(Scope::Read)?;
    let (window, step) = query.0.read()?;
    let now = state.engine().now();
    let (back, ahead) = (Steps::before(now, window, step), Steps::after(now, window, step));
    let happened: BTreeMap<Timestamp, Point> =
        state.engine().series(back).await?.into_iter().map(|point| (point.at, point)).collect();
    let due: BTreeMap<Timestamp, u64> =
        state.engine().retries_due(ahead, FORECAST_MAX).await?.into_iter().collect();
    let point = |at: Timestamp| {
        let Point { enqueued, succeeded, failed, dead, .. } = happened.get(&at).copied().unwrap_or_default();
        PointView { at, succeeded, failed, dead, enqueued }
    };
    ok(SeriesView {
        from: back.from,
        until: back.until,
        step_ms: u64::try_from(back.step.as_millis()).unwrap_or(u64::MAX),
        points: back.starts().map(point).collect(),
        forecast: ahead.starts().map(|at| DueView { at, due: due.get(&at).copied().unwrap_or(0) }).collect(),
    })
}
