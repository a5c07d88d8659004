//! Work made of steps that come after each other: what somebody asks for, and what of it is kept in the job of an
//! execution. Values and checks; how it is started and run is the engine's business.

mod graph;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::{AttemptRecord, DEFAULT_QUEUE, Extras, JobId, Json, NewJob, When};
use crate::policy::{Origin, Policy};
use crate::span;

pub(crate) use self::graph::Order;

/// The kind of the job that is an execution.
pub const EXECUTION: &str = "execution";
/// The label of a node with its name.
pub const NODE_LABEL: &str = "node_id";
/// The label of an execution that was started anew by hand, with the new one.
pub const RETRIED_LABEL: &str = "retried_by";
/// Nodes of one workflow.
pub const NODES_MAX: usize = 5_000;

/// Steps and what each comes after: a graph without circles. [`Engine::start`](crate::Engine::start) makes an execution
/// of it.
///
/// ```
/// use redrive::{Json, NewJob, Workflow};
///
/// let task = |kind| NewJob::of_kind(kind, Json::parse("{}").unwrap());
/// let workflow = Workflow::new()
///     .node("charge", task("charge"))
///     .node("ship", task("ship")).after(["charge"])
///     .node("invoice", task("mail")).after(["charge"])
///     .node("thank", task("mail")).after(["ship", "invoice"]);
/// ```
#[derive(Clone, Debug)]
pub struct Workflow {
    nodes: Vec<Node>,
    input: Result<Json, String>,
    queue: Arc<str>,
    policy: Policy,
    labels: BTreeMap<String, String>,
    author: Option<Arc<str>>,
    /// What cannot be a part of a node.
    problems: Vec<String>,
}

/// A step, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name within the workflow.
    pub node_id: String,
    /// Which handler runs it.
    pub kind: Arc<str>,
    /// In which queue.
    #[serde(default = "default_queue", skip_serializing_if = "is_default_queue")]
    pub queue: Arc<str>,
    /// Its own data.
    pub payload: Json,
    /// The names of the nodes it comes after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Its own policy, if it has one. Written once for all nodes that have the same.
    #[serde(skip)]
    pub policy: Option<Policy>,
    /// The place of its policy among all, where it is written.
    #[serde(default, rename = "policy", skip_serializing_if = "Option::is_none")]
    policy_place: Option<usize>,
    /// Higher goes first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i16,
    /// Whose health decides whether it may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Arc<str>>,
    /// How long one attempt may take.
    #[serde(default, with = "span::option", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// For people and filters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

fn default_queue() -> Arc<str> {
    DEFAULT_QUEUE.into()
}

fn is_default_queue(queue: &Arc<str>) -> bool {
    **queue == *DEFAULT_QUEUE
}

fn is_zero<T: PartialEq + Default>(number: &T) -> bool {
    *number == T::default()
}

/// What the job of an execution carries: everything that is needed to start it anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Execution {
    /// Its steps. The place of one in this list decides the id of its job: [`Execution::node_job`].
    pub nodes: Vec<Node>,
    /// What it was started with.
    pub input: Json,
    /// Which retry this is; 0 for the first execution.
    pub retry: u32,
    /// The execution that this one was started for anew.
    pub retry_of: Option<JobId>,
    /// How many failures of those before it count toward its own policy.
    pub carried: u32,
}

/// An execution as it is written: a thousand nodes seldom have more than a few policies.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    nodes: Vec<Node>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    policies: Vec<Policy>,
    input: Json,
    #[serde(default, skip_serializing_if = "is_zero")]
    retry: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_of: Option<JobId>,
    #[serde(default, skip_serializing_if = "is_zero")]
    carried: u32,
}

impl From<Execution> for Written {
    fn from(execution: Execution) -> Written {
        let Execution { nodes, input, retry, retry_of, carried } = execution;
        let mut policies: Vec<Policy> = Vec::new();
        let mut place_of = |policy: &Policy| {
            policies.iter().position(|known| known == policy).unwrap_or_else(|| {
                policies.push(policy.clone());
                policies.len() - 1
            })
        };
        let write = |node: Node| Node { policy_place: node.policy.as_ref().map(&mut place_of), ..node };
        let nodes = nodes.into_iter().map(write).collect();
        Written { nodes, policies, input, retry, retry_of, carried }
    }
}

impl From<Written> for Execution {
    fn from(written: Written) -> Execution {
        let Written { nodes, policies, input, retry, retry_of, carried } = written;
        let read = |node: Node| {
            let policy = node.policy_place.and_then(|place| policies.get(place)).cloned();
            Node { policy, policy_place: None, ..node }
        };
        Execution { nodes: nodes.into_iter().map(read).collect(), input, retry, retry_of, carried }
    }
}

/// What a node is given beside its own data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// What the execution was started with.
    pub input: Json,
    /// What the nodes that it comes after left behind, by their names. One that left nothing is not among them.
    pub outputs: BTreeMap<String, Json>,
}

impl Default for Workflow {
    fn default() -> Workflow {
        Workflow::new()
    }
}

impl Workflow {
    /// No steps yet.
    pub fn new() -> Workflow {
        Workflow {
            nodes: Vec::new(),
            input: Ok(Json::trusted("null")),
            queue: default_queue(),
            policy: Policy::immediate().retries(0),
            labels: BTreeMap::new(),
            author: None,
            problems: Vec::new(),
        }
    }

    /// One more step: its name, and the job that does it.
    #[must_use]
    pub fn node(mut self, id: impl Into<String>, job: impl Into<NewJob>) -> Workflow {
        let (node_id, job) = (id.into(), job.into());
        let place = format!("nodes[{}] ({node_id:?})", self.nodes.len());
        let NewJob { kind, queue, payload, priority, policy, origin, when, extras, history, .. } = job;
        let Extras { key, ordering_key, destination, parent, labels, deadline, start_by, timeout, .. } =
            extras;
        let has = [
            (key.is_some(), "a key: the execution is what is unique, leave it out"),
            (ordering_key.is_some(), "an ordering key: say what it comes after instead"),
            (parent.is_some(), "a parent: that is the execution, leave it out"),
            (deadline.is_some() || start_by.is_some(), "a time limit: give its policy a deadline instead"),
            (when != When::Now, "a delay: it begins when those before it are done, leave it out"),
            (origin != Origin::Engine || !history.is_empty(), "a failure already: start with fresh jobs"),
        ];
        let wrong = has.into_iter().filter(|(wrong, _)| *wrong);
        self.problems.extend(wrong.map(|(_, what)| format!("{place} has {what}")));
        let payload = payload.unwrap_or_else(|error| {
            self.problems.push(format!("{place} has a payload that is not JSON: {error}"));
            Json::trusted("null")
        });
        let (after, policy_place) = (Vec::new(), None);
        let node = Node {
            node_id,
            kind,
            queue,
            payload,
            after,
            policy,
            policy_place,
            priority,
            destination,
            timeout,
            labels,
        };
        self.nodes.push(node);
        self
    }

    /// The step that was named last comes after these: it begins when all of them have succeeded.
    #[must_use]
    pub fn after<I: Into<String>>(mut self, ids: impl IntoIterator<Item = I>) -> Workflow {
        match self.nodes.last_mut() {
            Some(node) => node.after.extend(ids.into_iter().map(Into::into)),
            None => self.problems.push("after(…) comes before the first node(…)".into()),
        }
        self
    }

    /// What the execution is started with: every step can read it.
    #[must_use]
    pub fn input(mut self, input: impl Serialize) -> Workflow {
        self.input = Json::of(&input).map_err(|error| error.to_string());
        self
    }

    /// Starts a failed execution anew, as this policy says. Without it, one that fails waits for a person.
    #[must_use]
    pub fn retry(mut self, policy: Policy) -> Workflow {
        self.policy = policy;
        self
    }

    /// Where the job of the execution itself is kept. Default: `default`.
    #[must_use]
    pub fn queue(mut self, queue: &str) -> Workflow {
        self.queue = queue.into();
        self
    }

    /// A label of the execution, for people and filters.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Workflow {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Who asks for the execution, to be shown to people.
    #[must_use]
    pub fn author(mut self, author: impl Into<Arc<str>>) -> Workflow {
        self.author = Some(author.into());
        self
    }

    /// What is to be kept, the job that keeps it, and the order in which steps can begin; or everything that is wrong.
    pub(crate) fn checked(self) -> Result<(Execution, NewJob, Order)> {
        let Workflow { nodes, input, queue, policy, labels, author, mut problems } = self;
        let input = input.unwrap_or_else(|error| {
            problems.push(format!("input cannot be written as JSON: {error}"));
            Json::trusted("null")
        });
        let execution = Execution { nodes, input, retry: 0, retry_of: None, carried: 0 };
        let order = Order::of(&execution.nodes);
        problems.extend(order.as_ref().err().into_iter().flatten().cloned());
        match order {
            Ok(order) if problems.is_empty() => {
                let job = execution.job(&queue).policy(policy);
                let job = labels.into_iter().fold(job, |job, (name, value)| job.label(name, value));
                Ok((execution, author.into_iter().fold(job, NewJob::author), order))
            }
            _ => Err(refused(problems)),
        }
    }
}

/// All mistakes at once, each with its place.
pub(crate) fn refused(problems: Vec<String>) -> Error {
    Error::invalid("the workflow was not accepted; nothing was created", problems.join("; "))
}

impl Execution {
    /// The job that keeps it.
    pub(crate) fn job(&self, queue: &str) -> NewJob {
        let payload = Json::of(self).expect("names, JSON and policies can be written");
        NewJob::of_kind(EXECUTION, payload).queue(queue)
    }

    /// The same once more, for one that failed.
    pub(crate) fn again(&self, failed: JobId, carried: &[AttemptRecord]) -> Execution {
        let carried = u32::try_from(carried.len()).unwrap_or(u32::MAX);
        Execution { retry: self.retry + 1, retry_of: Some(failed), carried, ..self.clone() }
    }

    /// The id of the job that is the node in this place.
    pub fn node_job(execution: JobId, place: usize) -> JobId {
        JobId::within(execution, u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// The ids of the jobs of all nodes, in their order.
    pub fn node_jobs(&self, execution: JobId) -> Vec<JobId> {
        (0..self.nodes.len()).map(|place| Execution::node_job(execution, place)).collect()
    }

    /// Where the node with this name is.
    pub fn place_of(&self, node_id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.node_id == node_id)
    }

    /// The names and places of those that a node comes after.
    pub(crate) fn before(&self, node_id: &str) -> Vec<(&str, usize)> {
        let node = self.nodes.iter().find(|node| node.node_id == node_id);
        let after = node.into_iter().flat_map(|node| &node.after);
        after.filter_map(|name| Some((name.as_str(), self.place_of(name)?))).collect()
    }
}

impl Node {
    /// Its job, but for its id.
    pub(crate) fn job(&self, execution: JobId) -> NewJob {
        let mut job = NewJob::of_kind(&self.kind, self.payload.clone())
            .queue(&self.queue)
            .priority(self.priority)
            .parent(execution);
        job.policy = self.policy.clone();
        job.extras.destination = self.destination.clone();
        job.extras.timeout = self.timeout;
        job.extras.labels = self.labels.clone();
        job.label(NODE_LABEL, &self.node_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::secs;

    #[test]
    fn an_execution_is_read_as_it_was_written_with_each_policy_once() {
        let task = |policy| NewJob::of_kind("task", Json::parse(r#"{"a":1.0}"#).unwrap()).policy(policy);
        let patient = Policy::fixed(secs(9)).retries(4);
        let workflow = Workflow::new()
            .node("a", task(patient.clone()).priority(3).label("x", "y").timeout(secs(5)))
            .node("b", task(patient.clone()).queue("other").destination("d"))
            .after(["a"])
            .node("c", NewJob::of_kind("task", Json::parse("null").unwrap()));
        let (execution, job, _) = workflow.input([1, 2]).checked().unwrap();
        let text = job.payload.unwrap();
        assert_eq!(text.as_str().matches("backoff").count(), 1);
        assert_eq!(text.decode::<Execution>().unwrap(), execution);
        assert_eq!(
            (execution.nodes[1].policy.as_ref(), execution.nodes[2].policy.as_ref()),
            (Some(&patient), None)
        );
    }
}
