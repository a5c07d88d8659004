//! What destinations may be asked to bear: by pattern, changed while everything runs, obeyed by every server of the store
//! within a second.

use axum::extract::State;
use redrive::{Engine, Limits, Rate, Rules, days, pattern_problem, span};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Path, Refused, invalid, ok};
use super::audit::{By, On};
use super::forms::Span;
use crate::door::{Refusal, Scope, Who};

/// Where an engine keeps what was set while it ran.
const SHELF: &str = "destinations";

/// What a destination may be asked to bear.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitsView {
    /// Calls per time, all servers together.
    #[schema(example = "10/s")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<String>,
    /// How many may start at once before the rate is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    /// At least this long between the starts of two calls.
    #[schema(example = "5s")]
    #[serde(skip_serializing_if = "Option::is_none")]
    min_gap: Option<String>,
    /// Calls under way at once, all servers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    /// After this many different jobs failed in a row it is taken to be down; 0 never.
    breaker: u32,
    /// Retries for a hundred first attempts, beside ten a second; 0 leaves retries alone.
    retry_budget: u32,
    /// The longest Retry-After that is obeyed.
    #[schema(example = "1d")]
    retry_after_max: String,
}

impl From<&Limits> for LimitsView {
    fn from(limits: &Limits) -> LimitsView {
        LimitsView {
            rate: limits.rate.map(|rate| rate.to_string()),
            burst: limits.burst,
            min_gap: limits.min_gap.map(span::format),
            concurrency: limits.concurrency,
            breaker: limits.breaker,
            retry_budget: limits.retry_budget,
            retry_after_max: span::format(limits.retry_after_max),
        }
    }
}

/// Limits with what they hold for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RuleView {
    /// A destination, or all that begin or end so: `*.example.org`. The longest that matches decides, by itself.
    pattern: String,
    /// `config`, or `set` while the servers ran, which wins.
    #[schema(example = "set")]
    from: &'static str,
    limits: LimitsView,
}

/// Limits as they are sent. What is left out is not limited, or is as usual.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "rate": "10/s", "concurrency": 4 }))]
pub(super) struct LimitsForm {
    /// Calls per time: `10/s`, `600/m`, `5000/h`.
    #[schema(example = "10/s")]
    rate: Option<String>,
    /// How many may start at once before the rate is kept.
    #[schema(minimum = 1, maximum = 1_000_000)]
    burst: Option<u32>,
    /// At least this long between the starts of two calls; instead of a rate.
    min_gap: Option<Span>,
    /// Calls under way at once.
    #[schema(minimum = 1, maximum = 1_000_000)]
    concurrency: Option<u32>,
    /// 10 if not given.
    #[schema(maximum = 1_000_000)]
    breaker: Option<u32>,
    /// 20 if not given.
    #[schema(maximum = 1000)]
    retry_budget: Option<u32>,
    /// One day if not given, 400 days at most.
    retry_after_max: Option<Span>,
}

impl LimitsForm {
    /// The limits, or everything that is wrong with them.
    fn read(self, pattern: &str) -> Result<Limits, Refusal> {
        let usual = Limits::default();
        let mut problems: Vec<String> = pattern_problem(pattern).into_iter().collect();
        if pattern.chars().any(char::is_control) {
            problems.push("the pattern has control characters: write it without".into());
        }
        let rate = self.rate.map(|rate| rate.parse::<Rate>()).transpose();
        let limits = Limits {
            rate: rate.as_ref().ok().copied().flatten(),
            burst: self.burst.filter(|_| rate.is_ok()),
            min_gap: self.min_gap.map(|Span(gap)| gap),
            concurrency: self.concurrency,
            breaker: self.breaker.unwrap_or(usual.breaker),
            retry_budget: self.retry_budget.unwrap_or(usual.retry_budget),
            retry_after_max: self.retry_after_max.map_or(usual.retry_after_max, |Span(max)| max),
        };
        problems.extend(rate.err());
        problems.extend(limits.problems());
        if limits.retry_after_max > days(400) {
            problems.push("retryAfterMax is longer than 400d: write less".into());
        }
        match problems.is_empty() {
            true => Ok(limits),
            false => Err(invalid(
                format!("the limits were not set: {}", problems.join("; ")),
                "correct it and send it again; docs/concepts/destinations.md has all fields",
            )),
        }
    }
}

/// What holds, and which patterns were set. An engine that does not run has not looked what others have set.
pub(super) async fn in_force(api: &Api) -> Result<(Rules, Vec<String>), Refusal> {
    let mut rules = (*api.engine().limits()).clone();
    let mut set = Vec::new();
    for (pattern, value) in api.engine().records(SHELF).await? {
        if let Ok(limits) = value.decode::<Limits>() {
            rules.set(&*pattern, Some(limits));
        }
        set.push(pattern);
    }
    Ok((rules, set))
}

async fn rules(api: &Api) -> Result<Vec<RuleView>, Refusal> {
    let (rules, set) = in_force(api).await?;
    let view = |(pattern, limits): (&str, &Limits)| RuleView {
        from: if set.iter().any(|set| set == pattern) { "set" } else { "config" },
        pattern: pattern.to_owned(),
        limits: LimitsView::from(limits),
    };
    Ok(rules.iter().map(view).collect())
}

/// All limits, by pattern.
#[utoipa::path(get, path = "/api/v1/destinations/limits", operation_id = "listLimits", tag = "destinations", responses(
    (status = 200, body = Envelope<Vec<RuleView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn list(state: State<Api>, who: Who) -> Answer<Vec<RuleView>> {
    who.need(Scope::Read)?;
    ok(rules(&state).await?)
}

/// Limits the destinations that match, on every server of the store within a second. Replaces what was set for the pattern.
#[utoipa::path(put, path = "/api/v1/destinations/limits/{pattern}", operation_id = "setLimits", tag = "destinations", params(("pattern" = String, Path)), request_body = LimitsForm, responses(
    (status = 200, body = Envelope<RuleView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn set(
    state: State<Api>,
    by: By,
    pattern: Path<String>,
    body: Body<LimitsForm>,
) -> Answer<RuleView> {
    by.who.need(Scope::Operate)?;
    let limits = body.value.read(&pattern.0)?;
    let view = RuleView { pattern: pattern.0, from: "set", limits: LimitsView::from(&limits) };
    let pattern = view.pattern.clone();
    let change = |engine: Engine| async move { Ok(engine.limit(&pattern, Some(limits)).await?) };
    by.steered(&state, "destinations.limit", On::named(&view.pattern), change).await?;
    ok(view)
}

/// What holds again.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UnsetView {
    pattern: String,
    /// What the configuration says for this pattern, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<LimitsView>,
}

/// Takes back what was set for a pattern. What the configuration says for it holds again.
#[utoipa::path(delete, path = "/api/v1/destinations/limits/{pattern}", operation_id = "unsetLimits", tag = "destinations", params(("pattern" = String, Path)), responses(
    (status = 200, body = Envelope<UnsetView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn unset(state: State<Api>, by: By, pattern: Path<String>) -> Answer<UnsetView> {
    by.who.need(Scope::Operate)?;
    let known = rules(&state).await?;
    if !known.iter().any(|rule| rule.pattern == pattern.0 && rule.from == "set") {
        let set: Vec<&str> =
            known.iter().filter(|rule| rule.from == "set").map(|rule| rule.pattern.as_str()).collect();
        let hint = match (known.iter().any(|rule| rule.pattern == pattern.0), set.is_empty()) {
            (true, _) => "its limits stand in the configuration: change them there, or set others".to_owned(),
            (false, true) => "none are set; the configuration has the others".to_owned(),
            (false, false) => format!("limits are set for {}", set.join(", ")),
        };
        let message = format!("no limits were set for {:?}", pattern.0);
        return Err(Refusal::new(404, "RETRY_NOT_FOUND", message).hint(hint));
    }
    let name = pattern.0.clone();
    let change = |engine: Engine| async move { Ok(engine.limit(&name, None).await?) };
    by.steered(&state, "destinations.unlimit", On::named(&pattern.0), change).await?;
    let left = rules(&state).await?.into_iter().find(|rule| rule.pattern == pattern.0);
    ok(UnsetView { pattern: pattern.0, limits: left.map(|rule| rule.limits) })
}
