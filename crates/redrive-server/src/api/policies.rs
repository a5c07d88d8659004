//! Policies: what there is, what one would do, and what a failure is taken for.

use axum::extract::State;
use redrive::{Origin, Policy, span};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Refused, invalid, ok};
use super::forms::policy_of;
use super::schemas::{self, PolicyForm};
use crate::door::{Refusal, Scope, Who};

/// Retries that a preview shows at most.
const PREVIEW_MAX: usize = 1_000;

/// A policy with its name.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PresetView {
    name: String,
    #[schema(value_type = schemas::Policy)]
    policy: Policy,
    /// The delays before chance is added.
    delays: Vec<String>,
}

/// The policies that have a name: those that are built in, and those of the configuration.
#[utoipa::path(get, path = "/api/v1/policies/presets", operation_id = "listPolicyPresets", tag = "policies", responses(
    (status = 200, body = Envelope<Vec<PresetView>>), (status = "4XX", body = Refused),
))]
pub(super) async fn presets(state: State<Api>, who: Who) -> Answer<Vec<PresetView>> {
    who.need(Scope::Read)?;
    let named = state.inner.policies.iter().map(|(name, policy)| (name.clone(), policy.clone()));
    let built_in =
        Policy::PRESETS.iter().filter_map(|name| Some(((*name).to_owned(), Policy::preset(name).ok()?)));
    let view = |(name, policy): (String, Policy)| PresetView {
        name,
        delays: policy.preview(10).into_iter().map(span::format).collect(),
        policy,
    };
    ok(built_in.chain(named).map(view).collect())
}

/// A policy to be tried.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PreviewForm {
    /// The name of a policy, or a policy.
    #[schema(value_type = PolicyForm)]
    policy: Value,
    /// How many delays to show: 1 to 1,000, 20 if not given.
    #[schema(minimum = 1, maximum = 1000)]
    count: Option<usize>,
}

/// What a policy does.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreviewView {
    #[schema(value_type = schemas::Policy)]
    policy: Policy,
    /// The delays before chance is added, one for each retry.
    delays: Vec<DelayView>,
    /// Retries allowed of a job that the engine runs first; not given if they are only limited by time.
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u32>,
    /// From the first failure to the last try; not given if it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<String>,
}

/// One delay.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DelayView {
    retry: usize,
    delay: String,
    delay_ms: u64,
    /// Since the first failure.
    after: String,
}

/// What a policy would do, to the millisecond.
#[utoipa::path(post, path = "/api/v1/policies/preview", operation_id = "previewPolicy", tag = "policies", request_body = PreviewForm, responses(
    (status = 200, body = Envelope<PreviewView>), (status = "4XX", body = Refused),
))]
pub(super) async fn preview(state: State<Api>, who: Who, body: Body<PreviewForm>) -> Answer<PreviewView> {
    who.need(Scope::Read)?;
    let count = body.value.count.unwrap_or(20);
    if !(1..=PREVIEW_MAX).contains(&count) {
        return Err(invalid(format!("count is {count}"), format!("write a number from 1 to {PREVIEW_MAX}")));
    }
    let policy = policy_of(&state, body.value.policy)?;
    let mut after = std::time::Duration::ZERO;
    let delays = policy.preview(count).into_iter().enumerate().map(|(n, delay)| {
        after = after.saturating_add(delay);
        DelayView {
            retry: n + 1,
            delay: span::format(delay),
            delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            after: span::format(after),
        }
    });
    let delays = delays.collect();
    let (retries, lifetime) = (policy.retries_allowed(Origin::Engine), policy.lifetime().map(span::format));
    ok(PreviewView { delays, retries, lifetime, policy })
}

/// A failure to be classified.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClassifyForm {
    /// What it says.
    message: String,
    #[schema(value_type = Option<schemas::Code>)]
    code: Option<String>,
    #[schema(maximum = 65535)]
    status: Option<u16>,
    /// The name of a policy, or a policy, whose rules count; the usual ones if not given.
    #[schema(value_type = Option<PolicyForm>)]
    policy: Option<Value>,
}

/// What a failure is taken for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClassView {
    #[schema(value_type = schemas::Class)]
    class: &'static str,
    retryable: bool,
    /// The rule that spoke.
    rule: String,
    /// What it has in common with others of its kind.
    group: String,
}

/// What a failure is taken for, and which rule says so.
#[utoipa::path(post, path = "/api/v1/classify", operation_id = "classifyFailure", tag = "policies", request_body = ClassifyForm, responses(
    (status = 200, body = Envelope<ClassView>), (status = "4XX", body = Refused),
))]
pub(super) async fn classify(state: State<Api>, who: Who, body: Body<ClassifyForm>) -> Answer<ClassView> {
    who.need(Scope::Read)?;
    let ClassifyForm { message, code, status, policy } = body.value;
    let policy =
        policy.map_or_else(|| Ok::<_, Refusal>(Policy::default()), |policy| policy_of(&state, policy))?;
    let failure = super::workers::failure_of(message, code, status)?;
    let verdict = redrive::explain(&failure, &policy);
    ok(ClassView {
        class: verdict.class.name(),
        retryable: verdict.class.is_retryable(),
        rule: verdict.rule.to_string(),
        group: failure.fingerprint("any"),
    })
}
