//! Destinations: how they stand, what is said of them, and what they may be asked to bear.

use axum::extract::State;
use redrive::{Destination, Engine, Filter, Gate, NAME_BYTES_MAX, Phase, Rules, Timestamp, Why, Word};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Envelope, Path, Refused, invalid, ok};
use super::audit::{By, On};
use super::limits::{LimitsView, in_force};
use crate::door::{Refusal, Scope, Who};

/// A destination: whose health decides whether its jobs can run.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DestinationView {
    pub(super) name: String,
    /// `open`, `shut`, `probing`, `ramp` or `paused`.
    #[schema(value_type = String, example = "shut")]
    pub(super) state: Standing,
    /// Why it is shut: `retry_after`, `failing`, `said` or `credential`.
    #[schema(value_type = Option<String>, example = "failing")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Why>,
    /// Since when it stands so.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Until when it asked for a pause.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// When one job asks again whether it is back.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) probe_at: Option<Timestamp>,
    /// On the ramp: how many calls a second go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) level_per_second: Option<f64>,
    /// Due jobs that wait for it.
    pub(super) held: u64,
    /// What it may be asked to bear.
    pub(super) limits: LimitsView,
    pub(super) learned: LearnedView,
}

/// What was found out from the calls made to it.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LearnedView {
    /// Calls per second that it is known to bear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bears_per_second: Option<f64>,
    /// Calls per second, lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pace_per_second: Option<f64>,
    /// How long a call takes when it is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<f64>,
}

/// How a destination stands, in one word. In the order of what a person minds least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    Open = 0,
    Ramp = 1,
    Probing = 2,
    Shut = 3,
    Paused = 4,
}

impl Standing {
    /// A pause that is over is obeyed no longer, whether or not a job has come by since.
    pub(super) fn of(phase: &Phase, paused: bool, now: Timestamp) -> Standing {
        match phase {
            _ if paused => Standing::Paused,
            Phase::Open => Standing::Open,
            Phase::Shut { why: Why::RetryAfter, until, .. } if *until <= now => Standing::Ramp,
            Phase::Shut { .. } => Standing::Shut,
            Phase::Probing { .. } => Standing::Probing,
            Phase::Ramp { .. } => Standing::Ramp,
        }
    }
}

/// Short enough to read, and never nothing where there is something.
fn rounded(value: f64) -> f64 {
    let scale = if value < 1.0 { 1_000.0 } else { 10.0 };
    (value * scale).round() / scale
}

impl DestinationView {
    pub(super) fn of(destination: &Destination, rules: &Rules, now: Timestamp) -> DestinationView {
        let Destination { name, gate, held, .. } = destination;
        let state = Standing::of(&gate.phase, gate.paused, now);
        let (mut reason, mut since, mut until, mut probe_at, mut level) = (None, None, None, None, None);
        match gate.phase {
            Phase::Open => {}
            Phase::Shut { why: Why::RetryAfter, until: over, .. } if over <= now => {}
            Phase::Shut { since: from, until: to, why } => {
                (reason, since) = (Some(why), Some(from));
                match why {
                    Why::RetryAfter => until = Some(to),
                    Why::Failing => probe_at = Some(to),
                    Why::Said | Why::Credential => {}
                }
            }
            Phase::Probing { since: from, .. } => (reason, since) = (Some(Why::Failing), Some(from)),
            Phase::Ramp { level: at, since: from } => (level, since) = (Some(rounded(at)), Some(from)),
        }
        let learned = gate.learned();
        DestinationView {
            name: name.to_string(),
            state,
            reason,
            since,
            until,
            probe_at,
            level_per_second: level,
            held: *held,
            limits: LimitsView::from(&rules.of(name)),
            learned: LearnedView {
                bears_per_second: learned.bears.map(rounded),
                pace_per_second: learned.pace.map(rounded),
                took_ms: learned.took_ms.map(rounded),
            },
        }
    }
}

/// How a destination stands; as open if it has nothing to say.
pub(super) async fn standing(api: &Api, name: &str) -> Result<DestinationView, Refusal> {
    let now = api.engine().now();
    let (rules, _) = in_force(api).await?;
    let known = api.engine().destinations().await?;
    if let Some(known) = known.iter().find(|known| &*known.name == name) {
        return Ok(DestinationView::of(known, &rules, now));
    }
    let open = Destination { name: name.into(), gate: Gate::default(), limits: rules.of(name), held: 0 };
    Ok(DestinationView::of(&open, &rules, now))
}

/// A destination's name as jobs can have it.
fn checked(name: &str) -> Result<(), Refusal> {
    match !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(invalid(
            "this is no name of a destination",
            format!("write 1 to {NAME_BYTES_MAX} bytes without control characters, such as api.example.org"),
        )),
    }
}

/// All destinations that have something to say, by name. One that is well and not limited has nothing to say.
#[utoipa::path(get, path = "/api/v1/destinations", operation_id = "listDestinations", tag = "destinations", responses(
    (status = 200, body = Envelope<Vec<DestinationView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn list(state: State<Api>, who: Who) -> Answer<Vec<DestinationView>> {
    who.need(Scope::Read)?;
    let now = state.engine().now();
    let (rules, _) = in_force(&state).await?;
    let known = state.engine().destinations().await?;
    ok(known.iter().map(|known| DestinationView::of(known, &rules, now)).collect())
}

/// One destination: how it stands, as long as it has jobs, limits or something to say.
#[utoipa::path(get, path = "/api/v1/destinations/{name}", operation_id = "getDestination", tag = "destinations", params(("name" = String, Path)), responses(
    (status = 200, body = Envelope<DestinationView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn get(state: State<Api>, who: Who, name: Path<String>) -> Answer<DestinationView> {
    who.need(Scope::Read)?;
    checked(&name.0)?;
    let known = state.engine().destinations().await?;
    let is_told_of = known.iter().any(|known| *known.name == *name.0);
    let is_limited = in_force(&state).await?.0.iter().any(|(pattern, _)| pattern == name.0);
    let of_jobs = Filter { destination: Some(name.0.clone()), ..Filter::default() };
    if !is_told_of && !is_limited && state.engine().count(&of_jobs, 1).await? == 0 {
        let message = format!("there is no destination {:?}", name.0);
        return Err(Refusal::new(404, "RETRY_NOT_FOUND", message).hint(
            "a destination is there when a job names it: the host of its URL, with the port if it is not the usual \
             one; those that have something to say are at GET /api/v1/destinations",
        ));
    }
    ok(standing(&state, &name.0).await?)
}

async fn say(api: &Api, by: &By, name: &str, what: &str, word: Word) -> Answer<DestinationView> {
    by.who.need(Scope::Operate)?;
    checked(name)?;
    let change = |engine: Engine| async move { Ok(engine.say(name, word).await?) };
    by.steered(api, what, On::named(name), change).await?;
    ok(standing(api, name).await?)
}

/// Holds the jobs of a destination until it is resumed, on every server of the store. What runs may finish.
#[utoipa::path(post, path = "/api/v1/destinations/{name}/pause", operation_id = "pauseDestination", tag = "destinations", params(("name" = String, Path)), responses(
    (status = 200, body = Envelope<DestinationView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn pause(state: State<Api>, by: By, name: Path<String>) -> Answer<DestinationView> {
    say(&state, &by, &name.0, "destinations.pause", Word::Pause).await
}

/// Ends a pause.
#[utoipa::path(post, path = "/api/v1/destinations/{name}/resume", operation_id = "resumeDestination", tag = "destinations", params(("name" = String, Path)), responses(
    (status = 200, body = Envelope<DestinationView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn resume(state: State<Api>, by: By, name: Path<String>) -> Answer<DestinationView> {
    say(&state, &by, &name.0, "destinations.resume", Word::Resume).await
}

/// Says that a destination is there: what waits for it goes at once, in order, a few at first.
#[utoipa::path(post, path = "/api/v1/destinations/{name}/up", operation_id = "sayDestinationIsUp", tag = "destinations", params(("name" = String, Path)), responses(
    (status = 200, body = Envelope<DestinationView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn up(state: State<Api>, by: By, name: Path<String>) -> Answer<DestinationView> {
    say(&state, &by, &name.0, "destinations.up", Word::Up).await
}

/// Says that a destination is gone: its jobs are held, at no cost, until it is said to be there.
#[utoipa::path(post, path = "/api/v1/destinations/{name}/down", operation_id = "sayDestinationIsDown", tag = "destinations", params(("name" = String, Path)), responses(
    (status = 200, body = Envelope<DestinationView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn down(state: State<Api>, by: By, name: Path<String>) -> Answer<DestinationView> {
    say(&state, &by, &name.0, "destinations.down", Word::Down).await
}

/// What came of a credential that was renewed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RenewedView {
    /// Destinations that had not accepted it, whose jobs go again.
    released: usize,
}

/// Says that a credential was renewed: jobs that were held because it was not accepted go again.
#[utoipa::path(post, path = "/api/v1/credentials/{name}/renewed", operation_id = "renewCredential", tag = "destinations", params(("name" = String, Path)), responses(
    (status = 200, body = Envelope<RenewedView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn renewed(state: State<Api>, by: By, name: Path<String>) -> Answer<RenewedView> {
    by.who.need(Scope::Operate)?;
    let credential = name.0.clone();
    let change = |engine: Engine| async move { Ok(engine.renewed(&credential).await?) };
    let released = by.steered(&state, "credentials.renewed", On::named(&name.0), change).await?;
    ok(RenewedView { released })
}
