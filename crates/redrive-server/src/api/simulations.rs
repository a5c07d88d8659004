//! What an outage would cost under a policy: `redrive simulate` in a small size, for the page of policies.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use redrive::{mins, secs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Refused, invalid, ok};
use super::forms::{Span, policy_of};
use crate::door::{Refusal, Scope, Who};
use crate::simulate::{self, Course, PerSecond, Scenario, Spell};

/// A second of one processor does about two thousand: what a page asks for is to be done in a few.
const JOBS_MAX: f64 = 20_000.0;
/// Time that passes in a simulation; each second of it costs something even if nothing happens.
const TIME_MAX: Duration = mins(20);
/// Points of a curve.
const POINTS: usize = 240;
/// Simulations that are remembered: as many as there are presets, and some more.
const REMEMBERED: usize = 32;
/// What a page waits for at most.
const PATIENCE: Duration = mins(2);

/// One at a time, so that work is not kept waiting by play; and what came of those that were asked for.
pub(super) struct Simulations {
    turn: Arc<Semaphore>,
    known: Mutex<BTreeMap<String, Arc<SimulationView>>>,
}

impl Default for Simulations {
    fn default() -> Simulations {
        Simulations { turn: Arc::new(Semaphore::new(1)), known: Mutex::default() }
    }
}

/// An outage to be tried.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "policy": "feed", "arrivalsPerSecond": 20, "capacityPerSecond": 40, "outage": "1m" }))]
pub(super) struct SimulateForm {
    /// The name of a policy, or a policy.
    #[schema(value_type = super::schemas::PolicyForm)]
    policy: Value,
    /// Jobs that come in: 1 to 100, 20 if not given.
    #[schema(minimum = 1, maximum = 100)]
    arrivals_per_second: Option<u32>,
    /// What the destination bears: more than comes in, and up to 1,000; 40 if not given.
    #[schema(minimum = 1, maximum = 1000)]
    capacity_per_second: Option<u32>,
    /// How long it is down: 1 s to 5 min, 1 min if not given.
    outage: Option<Span>,
    /// The same seed gives the same numbers.
    #[serde(default = "one")]
    #[schema(default = 1, format = "int64", maximum = 4_294_967_295_u32)]
    seed: u32,
}

fn one() -> u32 {
    1
}

/// What an outage would cost.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SimulationView {
    /// How long the curves are.
    seconds: usize,
    /// From when to when nothing was there.
    down_from: f64,
    down_until: f64,
    arrivals_per_second: f64,
    /// What the destination bears; above one and a half of it everything fails.
    capacity_per_second: f64,
    collapse_per_second: f64,
    /// Ours first, then what others do.
    courses: Vec<CourseView>,
}

/// How one did.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CourseView {
    name: String,
    /// Calls that were made.
    calls: u64,
    /// Calls that finished no job.
    wasted: u64,
    /// Failures that were counted against jobs.
    failures: u64,
    calls_while_down: u64,
    /// Jobs that were given up.
    dead: u64,
    /// Most calls in a second since it was back.
    peak_per_second: u64,
    /// Until no more than a second's arrivals were left, since it was back; missing if that never came.
    #[serde(skip_serializing_if = "Option::is_none")]
    drained_after: Option<f64>,
    /// The least it could have taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    ideal: Option<f64>,
    /// Calls per second: the most in each of up to 240 equal parts of the time.
    calls_per_second: Vec<u32>,
}

impl SimulationView {
    fn of(scenario: &Scenario, courses: Vec<Course>) -> SimulationView {
        let seconds = simulate::span_of(scenario, &courses);
        let (from, until) = scenario.down().next().unwrap_or_default();
        let view = |course: Course| CourseView {
            wasted: course.wasted(),
            calls: course.attempts,
            failures: course.failures,
            calls_while_down: course.calls_during_outage,
            dead: course.dead,
            peak_per_second: course.peak_per_s,
            drained_after: course.drain_s,
            ideal: course.ideal_drain_s,
            calls_per_second: simulate::columns_of(&course.loads, seconds, POINTS.min(seconds)),
            name: course.name,
        };
        SimulationView {
            seconds,
            down_from: from.as_secs_f64(),
            down_until: until.as_secs_f64(),
            arrivals_per_second: scenario.arrivals.0,
            capacity_per_second: scenario.capacity.0,
            collapse_per_second: simulate::top_of(scenario),
            courses: courses.into_iter().map(view).collect(),
        }
    }
}

impl SimulateForm {
    fn scenario(self, api: &Api) -> Result<Scenario, Refusal> {
        let arrivals = self.arrivals_per_second.unwrap_or(20);
        let capacity = self.capacity_per_second.unwrap_or(40);
        let outage = self.outage.map_or(mins(1), |span| span.0);
        if !(1..=100).contains(&arrivals) || !(1..=1_000).contains(&capacity) {
            return Err(invalid(
                format!("arrivalsPerSecond is {arrivals} and capacityPerSecond is {capacity}"),
                "write numbers from 1 to 100 and from 1 to 1000",
            ));
        }
        if capacity <= arrivals {
            return Err(invalid(
                "more comes in than the destination bears: it would never be done",
                "write a capacityPerSecond that is larger than arrivalsPerSecond",
            ));
        }
        if !(secs(1)..=mins(5)).contains(&outage) {
            return Err(invalid("the outage is too short or too long", "write a time from 1s to 5m"));
        }
        let scenario = Scenario {
            policy: Some(policy_of(api, self.policy)?),
            arrivals: PerSecond(f64::from(arrivals)),
            capacity: PerSecond(f64::from(capacity)),
            outage: vec![Spell { begin: None, length: outage }],
            seed: u64::from(self.seed),
            ..Scenario::default()
        };
        if scenario.jobs_in_all() > JOBS_MAX || scenario.arrivals_until() > TIME_MAX {
            return Err(invalid(
                "this is more than a server should do beside its work",
                "let less come in, give the destination more room, or run `redrive simulate`",
            ));
        }
        Ok(scenario)
    }
}

/// What an outage would cost under a policy, beside what others do. The real engine on a virtual clock, in a small size.
#[utoipa::path(post, path = "/api/v1/policies/simulate", operation_id = "simulateOutage", tag = "policies", request_body = SimulateForm, responses(
    (status = 200, body = Envelope<SimulationView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn simulate(
    state: State<Api>,
    who: Who,
    body: Body<SimulateForm>,
) -> Answer<Arc<SimulationView>> {
    who.need(Scope::Read)?;
    let scenario = body.value.scenario(&state)?;
    let key = format!("{scenario:?}");
    let simulations = &state.inner.simulations;
    let known = || simulations.known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(view) = known().get(&key) {
        return ok(view.clone());
    }
    let busy = || {
        Refusal::new(503, "RETRY_BUSY", "another simulation is at work")
            .hint("come back in a few seconds, or run `redrive simulate`")
            .retry_after(secs(5))
    };
    let turn = tokio::time::timeout(PATIENCE, simulations.turn.clone().acquire_owned());
    let turn = turn.await.ok().and_then(Result::ok).ok_or_else(busy)?;
    // Whoever had the turn before may have asked the same.
    if let Some(view) = known().get(&key) {
        return ok(view.clone());
    }
    let running = tokio::task::spawn_blocking(move || {
        let courses = simulate::simulate(&scenario, &|_, _| ());
        // A caller who has gone does not give the turn to the next before this has ended.
        drop(turn);
        courses.map(|courses| SimulationView::of(&scenario, courses))
    });
    let view = tokio::time::timeout(PATIENCE, running).await.map_err(|_| busy())?;
    let view =
        view.map_err(|error| error.to_string()).and_then(|view| view.map_err(|error| error.to_string()));
    let view = view.map_err(|error| {
        tracing::error!(error, "A simulation failed");
        Refusal::new(500, "RETRY_INTERNAL", "the simulation failed").hint("the server's log says why")
    })?;
    let (view, mut known) = (Arc::new(view), known());
    if known.len() >= REMEMBERED {
        known.clear();
    }
    known.insert(key, view.clone());
    ok(view)
}
