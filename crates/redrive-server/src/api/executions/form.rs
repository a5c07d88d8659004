//! A workflow as callers write it. Every mistake is found before anything is created, and told with its place.

use std::collections::BTreeMap;

use redrive::{Json, NewJob, Policy, Workflow};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::Api;
use super::super::answer::invalid;
use super::super::forms::{Span, priority};
use crate::door::Refusal;

/// An execution to be started.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "workflow": { "nodes": [
    { "nodeId": "charge", "type": "action", "subType": "api-call", "config": { "method": "POST", "url": "https://pay.example.com/charges", "retry": { "enabled": true, "strategy": "exponential_backoff", "maxAttempts": 5, "initialDelaySeconds": 60 } } },
    { "nodeId": "ship", "type": "action", "subType": "api-call", "after": ["charge"], "config": { "method": "POST", "url": "https://ship.example.com/parcels" } }
] }, "input": { "order": 17 } }))]
pub(crate) struct ExecutionForm {
    /// Its steps.
    workflow: WorkflowForm,
    /// What it is started with: any JSON, which every node can read.
    #[serde(default)]
    #[schema(value_type = Value)]
    input: Option<Box<RawValue>>,
    /// For people and filters.
    #[serde(default, deserialize_with = "crate::reading::fields")]
    #[schema(value_type = super::super::schemas::Labels)]
    labels: BTreeMap<String, String>,
}

/// Steps and what each comes after.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct WorkflowForm {
    nodes: Vec<NodeForm>,
    /// Whether and when a failed execution is started anew, as in a node's `config.retry`; not at all if not given.
    #[schema(value_type = Option<super::super::schemas::RetryBlock>)]
    retry: Option<Value>,
    /// The queue of the execution's own job; `default` if not given.
    queue: Option<String>,
}

/// A step.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct NodeForm {
    /// Its name within the workflow.
    node_id: String,
    /// What sort of step it is, for people: `action`.
    #[expect(dead_code, reason = "it is accepted as workflows write it, and says nothing that decides")]
    r#type: Option<String>,
    /// What runs it: `api-call` for an HTTP request, or a kind that your workers know.
    sub_type: Option<String>,
    /// The kind of its job, instead of `subType`.
    kind: Option<String>,
    /// The names of the nodes it comes after: it begins when all of them have succeeded.
    #[serde(default)]
    after: Vec<String>,
    /// Its data; `retry` in it says whether and when it is tried again, and is not part of what its worker gets.
    #[schema(value_type = Option<Value>)]
    config: Option<Value>,
    /// The name of a preset or of a configured policy, or a policy, instead of `config.retry`.
    #[schema(value_type = Option<super::super::schemas::PolicyForm>)]
    policy: Option<Value>,
    /// Into this queue; `default` if not given.
    queue: Option<String>,
    /// Higher goes first.
    #[serde(default, deserialize_with = "priority")]
    #[schema(minimum = -32768, maximum = 32767)]
    priority: Option<i16>,
    /// How long one attempt may take.
    timeout: Option<Span>,
    /// For people and filters.
    #[serde(default, deserialize_with = "crate::reading::fields")]
    #[schema(value_type = super::super::schemas::Labels)]
    labels: BTreeMap<String, String>,
}

impl ExecutionForm {
    /// The workflow, or everything that is wrong with it.
    pub(super) fn into_workflow(self, api: &Api) -> Result<Workflow, Refusal> {
        let ExecutionForm { workflow: WorkflowForm { nodes, retry, queue }, input, labels } = self;
        let mut problems = Vec::new();
        let mut workflow = Workflow::new();
        for (at, node) in nodes.into_iter().enumerate() {
            let (id, after) = (node.node_id.clone(), node.after.clone());
            let job = node.into_job(api, &format!("workflow.nodes[{at}]"), &mut problems);
            workflow = workflow.node(id, job).after(after);
        }
        if let Some(retry) = retry {
            match Policy::from_json(serde_json::json!({ "retry": retry })) {
                Ok(policy) => workflow = workflow.retry(policy),
                Err(wrong) => problems.extend(wrong.into_iter().map(|wrong| format!("workflow.{wrong}"))),
            }
        }
        if let Some(input) = input {
            let bytes = input.get().len();
            if bytes > api.inner.payload_bytes {
                problems.push(format!(
                    "input has {bytes} bytes and {} are allowed: store the data elsewhere and put a reference into it",
                    api.inner.payload_bytes
                ));
            }
            workflow = workflow.input(input);
        }
        if let Some(queue) = &queue {
            workflow = workflow.queue(queue);
        }
        if !problems.is_empty() {
            return Err(invalid("the workflow was not accepted; nothing was created", problems.join("; ")));
        }
        Ok(labels.into_iter().fold(workflow, |workflow, (name, value)| workflow.label(name, value)))
    }
}

impl NodeForm {
    fn into_job(self, api: &Api, place: &str, problems: &mut Vec<String>) -> NewJob {
        let kind = match (self.kind, self.sub_type.as_deref()) {
            (Some(kind), _) => kind,
            (None, Some("api-call")) => "http".into(),
            (None, Some(kind)) => kind.to_owned(),
            (None, None) => {
                problems.push(format!(
                    "{place}.subType is missing; write \"api-call\", or a kind of your workers"
                ));
                "http".into()
            }
        };
        let mut config = self.config.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let retry = config.as_object_mut().and_then(|config| config.remove("retry"));
        let policy = match (self.policy, retry) {
            (Some(_), Some(_)) => {
                problems.push(format!("{place} has both policy and config.retry; write one of them"));
                None
            }
            (Some(policy), None) => super::super::forms::policy_of(api, policy)
                .map_err(|wrong| problems.push(format!("{place}.policy: {}", wrong.message)))
                .ok(),
            (None, Some(retry)) => Policy::from_json(serde_json::json!({ "retry": retry }))
                .map_err(|wrong| {
                    problems.extend(wrong.into_iter().map(|wrong| format!("{place}.config.{wrong}")));
                })
                .ok(),
            // As workflows mean it: what does not say that it is retried is not.
            (None, None) => Some(Policy::immediate().retries(0)),
        };
        let text = config.to_string();
        let destination = api.check_payload(&kind, &text).unwrap_or_else(|problem| {
            problems.push(format!("{place}.config: {problem}"));
            None
        });
        if text.len() > api.inner.payload_bytes {
            problems.push(format!(
                "{place}.config has {} bytes and {} are allowed: store the data elsewhere and put a reference into it",
                text.len(),
                api.inner.payload_bytes
            ));
        }
        let mut job = NewJob::of_kind(&kind, Json::of(&config).unwrap_or_else(|_| null()));
        if let Some(policy) = policy {
            job = job.policy(policy);
        }
        if let Some(queue) = &self.queue {
            job = job.queue(queue);
        }
        if let Some(destination) = destination {
            job = job.destination(destination);
        }
        match self.timeout {
            Some(Span(timeout)) if timeout.is_zero() => {
                problems.push(format!("{place}.timeout is nothing; leave it out, or give it some time"));
            }
            Some(Span(timeout)) => job = job.timeout(timeout),
            None => {}
        }
        job = job.priority(self.priority.unwrap_or_default());
        self.labels.into_iter().fold(job, |job, (name, value)| job.label(name, value))
    }
}

fn null() -> Json {
    Json::of(&()).expect("nothing can be written")
}
