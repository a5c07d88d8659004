//! Executions of workflows: started, run, started anew, and steered as a whole. There is no second engine: an execution
//! is a job that comes after all of its nodes, which are jobs too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Engine, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Ending, Job, JobId, Json, NewJob, State, StateName};
use crate::machine::{self, Admission, Command, OUTPUT_BYTES_MAX, Steer};
use crate::operate::Edit;
use crate::outcome::{Failure, Outcome};
use crate::span::{hours, millis, secs};
use crate::store::{Call, Ended, Filter, JobDetail, PAGE_MAX, Page};
use crate::workflow::{EXECUTION, Execution, Inputs, NODE_LABEL, Order, RETRIED_LABEL, Workflow, refused};

/// What a node may be given of the outputs before it.
const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// How long an execution that was let go too early waits before it looks again. The end of a node wakes it before.
const LOOK_AGAIN_MAX: Duration = hours(1);
/// How often, and how long apart, somebody looks whether an execution that runs has come to its end.
const LOOKS: u32 = 40;
const LOOK_EVERY: Duration = millis(50);
/// The code of an execution of which a node is dead.
const NODE_FAILED: &str = "NODE_FAILED";
/// The name under which an execution's output says which one was started instead.
const RETRIED_BY: &str = "retriedBy";

/// An execution as it stands.
#[derive(Clone, Debug)]
pub struct ExecutionDetail {
    /// Its own job, which is the last to run.
    pub detail: JobDetail,
    /// What it is made of.
    pub execution: Execution,
    /// The jobs of its nodes by their places; `None` where one is no longer kept.
    pub nodes: Vec<Option<Job>>,
    /// The execution that was started instead, if this one was started anew.
    pub retried_by: Option<JobId>,
}

impl Engine {
    /// Starts an execution. When this returns, all of its jobs are durable; if it is refused, none is there.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, each with its place and what to write.
    pub async fn start(&self, workflow: Workflow) -> Result<JobId> {
        let jobs = self.inner.admit_workflow(workflow)?;
        first(&self.inner.enqueue(jobs).await?)
    }

    /// The same, but a second call under the same key starts nothing and is given the first one's answer, for thirty
    /// days.
    ///
    /// # Errors
    ///
    /// As [`Engine::start`]; and a conflict if the key was used for something else.
    pub async fn start_once(&self, call: Call, workflow: Workflow) -> Result<JobId> {
        let jobs = self.inner.admit_workflow(workflow)?;
        first(&self.inner.enqueue_tied(call, jobs).await?)
    }

    /// An execution with its nodes; `None` if there is none with this id.
    pub async fn execution(&self, id: JobId) -> Result<Option<ExecutionDetail>> {
        let Some(detail) = self.inner.store.get(id).await? else { return Ok(None) };
        let Ok(execution) = read(&detail.job) else { return Ok(None) };
        let mut found: BTreeMap<JobId, Job> = BTreeMap::new();
        let (filter, mut before) = (members(id), None);
        loop {
            let paged = self.inner.store.list(&filter, Page { before, limit: PAGE_MAX }).await?;
            found.extend(paged.jobs.into_iter().map(|job| (job.id, job)));
            before = paged.next;
            if before.is_none() {
                break;
            }
        }
        let nodes = execution.node_jobs(id).iter().map(|id| found.remove(id)).collect();
        let retried_by = retried_by(&detail);
        Ok(Some(ExecutionDetail { detail, execution, nodes, retried_by }))
    }

    /// Starts a failed execution anew, with what it was started with. One that waits to be retried is retried now. The
    /// same again is answered with the same execution.
    ///
    /// # Errors
    ///
    /// A conflict if it has not failed.
    pub async fn retry_execution(&self, id: JobId) -> Result<JobId> {
        let Some(ExecutionDetail { detail, execution, retried_by, .. }) = self.execution(id).await? else {
            return Err(not_there(id));
        };
        if let Some(new) = retried_by {
            return Ok(new);
        }
        let refuse = |why: &str, hint: &str| {
            Err(Error::new(ErrorKind::Conflict, format!("execution {id} stays as it is: {why}"))
                .with_hint(hint))
        };
        match detail.job.state {
            State::Dead { .. } | State::Cancelled { .. } => {}
            State::Succeeded { .. } => {
                return refuse("it has succeeded", "start a new one with its workflow");
            }
            State::Waiting { .. } if detail.job.ledger.failures > base(&detail.job, &execution) => {
                self.retry_now(id).await?;
                return self.retried(id).await;
            }
            _ => return refuse("it is under way", "wait for its end, or cancel it first"),
        }
        let new = self.inner.start_again(&detail, &execution, &[]).await?;
        let mut labels = detail.job.extras().labels.clone();
        labels.insert(RETRIED_LABEL.into(), new.to_string());
        let edit = Edit { labels: Some(labels), by: "a retry by hand".into(), ..Edit::default() };
        self.edit(id, edit).await?;
        Ok(new)
    }

    /// Waits for the execution that takes the place of this one.
    async fn retried(&self, id: JobId) -> Result<JobId> {
        for _ in 0..LOOKS {
            let detail = self.inner.store.get(id).await?.ok_or_else(|| not_there(id))?;
            if let Some(new) = retried_by(&detail) {
                return Ok(new);
            }
            self.look_later().await;
        }
        Err(Error::unavailable(format!("execution {id} is due, and nobody has retried it yet"))
            .with_hint("see whether an engine runs and serves its queue, and ask again"))
    }

    async fn look_later(&self) {
        self.inner.clock.sleep_until(self.inner.clock.now() + LOOK_EVERY).await;
    }

    /// Runs a node again: one that waits for its retry now, a dead or cancelled one from the beginning. The execution goes
    /// on where it stopped.
    ///
    /// # Errors
    ///
    /// Not found if there is no such node; a conflict if it runs, has succeeded, or waits for others.
    pub async fn retry_node(&self, execution: JobId, node: &str) -> Result<JobId> {
        let Some(known) = self.execution(execution).await? else { return Err(not_there(execution)) };
        let Some(place) = known.execution.place_of(node) else {
            let names: Vec<&str> = known.execution.nodes.iter().map(|node| node.node_id.as_str()).collect();
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("execution {execution} has no node {node:?}"),
            )
            .with_hint(format!("its nodes are {}", names.join(", "))));
        };
        if let Some(new) = known.retried_by {
            let message = format!("execution {execution} was started anew as {new}");
            return Err(Error::new(ErrorKind::Conflict, message).with_hint("retry the node of that one"));
        }
        let id = Execution::node_job(execution, place);
        match known.nodes[place].as_ref().map(|job| job.state.name()) {
            Some(StateName::Waiting) => self.retry_now(id).await?,
            _ => self.redrive(id).await?,
        }
        Ok(id)
    }

    /// What a node is given beside its own data; `None` if this job is no node.
    pub async fn inputs(&self, job: &Job) -> Result<Option<Inputs>> {
        self.inner.inputs(job).await
    }

    /// What has to be done before a command is carried out on executions: their nodes come first.
    pub(super) async fn before_executions(&self, command: Command, jobs: &[Job]) -> Result<()> {
        let now = self.inner.clock.now();
        let able = |job: &&Job| {
            *job.kind == *EXECUTION && !matches!(machine::steer(job, command, now), Steer::Refuse(_))
        };
        for job in jobs.iter().filter(able) {
            match command {
                Command::Delete => {
                    self.to_members(Command::Cancel, members(job.id)).await?;
                    self.to_members(Command::Delete, members(job.id)).await?;
                }
                Command::Redrive => {
                    let states = vec![StateName::Dead, StateName::Cancelled];
                    self.to_members(Command::Redrive, Filter { states, ..members(job.id) }).await?;
                }
                Command::Cancel | Command::RetryNow | Command::Reschedule(_) | Command::Hurry => {}
            }
        }
        Ok(())
    }

    /// What follows from a command on these jobs for those that belong to them, or to which they belong.
    pub(super) async fn after_members(&self, command: Command, jobs: &[Job]) -> Result<()> {
        match command {
            Command::Cancel => {
                for job in jobs.iter().filter(|job| *job.kind == *EXECUTION) {
                    self.to_members(Command::Cancel, members(job.id)).await?;
                }
            }
            Command::Redrive => {
                let parents: BTreeSet<JobId> = jobs.iter().filter_map(|job| job.extras().parent).collect();
                for parent in parents {
                    self.bring_back(parent).await?;
                }
            }
            Command::Delete | Command::RetryNow | Command::Reschedule(_) | Command::Hurry => {}
        }
        Ok(())
    }

    async fn to_members(&self, command: Command, filter: Filter) -> Result<()> {
        loop {
            let now = self.inner.clock.now();
            let done = self.inner.store.apply(command, &filter, PAGE_MAX, now).await?;
            self.inner.steered(command, &done, now);
            if done.len() < PAGE_MAX {
                return Ok(());
            }
        }
    }

    /// An execution that has given up waits for its node again. One that is just about to is told to look again: what it
    /// has seen of its nodes, it has seen before. One that waits will see for itself.
    async fn bring_back(&self, execution: JobId) -> Result<()> {
        let (redrive, now) = (Command::Redrive, self.inner.clock.now());
        let only = Filter { kind: Some(EXECUTION.to_owned()), ..Filter::id(execution) };
        let done = self.inner.store.apply(redrive, &only, 1, now).await?;
        self.inner.steered(redrive, &done, now);
        Ok(())
    }
}

impl Inner {
    fn admit_workflow(&self, workflow: Workflow) -> Result<Vec<Admission>> {
        let (execution, job, order) = workflow.checked()?;
        let unknown = execution.nodes.iter().enumerate().filter(|(_, node)| !self.handlers.knows(&node.kind));
        let unknown: Vec<String> = unknown
            .map(|(at, node)| {
                format!(
                    "nodes[{at}] ({:?}): nothing here knows jobs of the kind {:?}; register its handler with \
                     .handle(…), or name it with .produce::<T>() if another process runs it",
                    node.node_id, node.kind
                )
            })
            .collect();
        if !unknown.is_empty() {
            return Err(refused(unknown));
        }
        self.admit_execution(&execution, job, &order)
    }

    /// The execution first, then its nodes in the order in which they can begin.
    fn admit_execution(&self, execution: &Execution, job: NewJob, order: &Order) -> Result<Vec<Admission>> {
        let id = self.new_id(self.clock.now());
        let mut problems = Vec::new();
        let mut jobs = Vec::with_capacity(1 + execution.nodes.len());
        let behind = |places: &[usize]| places.iter().map(|place| Execution::node_job(id, *place)).collect();
        let mut add = |place: Option<usize>, new: NewJob, after: Vec<JobId>| {
            let id = place.map_or(id, |place| Execution::node_job(id, place));
            match self.admit_as(new, id).and_then(|admission| admission.held_behind(after)) {
                Ok(admission) => jobs.push(admission),
                Err(error) => {
                    let place = place.map_or("workflow".into(), |place| {
                        format!("nodes[{place}] ({:?})", execution.nodes[place].node_id)
                    });
                    problems.push(format!("{place}: {}", error.hint().unwrap_or_default()));
                }
            }
        };
        add(None, job, behind(&order.last));
        for place in &order.places {
            add(Some(*place), execution.nodes[*place].job(id), behind(&order.before[*place]));
        }
        if problems.is_empty() { Ok(jobs) } else { Err(refused(problems)) }
    }

    async fn enqueue_tied(&self, call: Call, jobs: Vec<Admission>) -> Result<Vec<crate::store::Enqueued>> {
        let (news, made) = (self.news_of(&jobs), jobs.first().map(|new| new.job.id));
        let answers = self.store.enqueue_once(call, jobs, self.clock.now()).await?;
        if answers.first().map(|answer| answer.id) == made {
            self.enqueued(news, &answers);
        }
        Ok(answers)
    }

    /// Makes the execution that takes the place of this one: once, whoever asks how often.
    async fn start_again(
        &self,
        failed: &JobDetail,
        execution: &Execution,
        carried: &[crate::job::AttemptRecord],
    ) -> Result<JobId> {
        let (old, next) = (&failed.job, execution.again(failed.job.id, carried));
        let order = Order::of(&next.nodes).map_err(refused)?;
        let mut job = next.job(&old.queue).policy((*old.policy).clone()).priority(old.priority);
        job.extras.labels = old.extras().labels.clone();
        (job.history, job.author) = (carried.to_vec(), failed.author.clone());
        let jobs = self.admit_execution(&next, job, &order)?;
        let key = format!("redrive: retry {} of execution {}", next.retry, old.id);
        let call = Call { key, digest: "an execution retry".into() };
        first(&self.enqueue_tied(call, jobs).await?)
    }

    pub(super) async fn inputs(&self, job: &Job) -> Result<Option<Inputs>> {
        let extras = job.extras();
        let (Some(parent), Some(name)) = (extras.parent, extras.labels.get(NODE_LABEL)) else {
            return Ok(None);
        };
        let Some(detail) = self.store.get(parent).await? else { return Err(not_there(parent)) };
        let Ok(execution) = read(&detail.job) else { return Ok(None) };
        let before = execution.before(name);
        let ids: Vec<JobId> = before.iter().map(|(_, place)| Execution::node_job(parent, *place)).collect();
        let ended = if ids.is_empty() { Vec::new() } else { self.store.ended(&ids).await? };
        let mut outputs = BTreeMap::new();
        for Ended { id, output, .. } in ended {
            let name = ids.iter().position(|known| *known == id).and_then(|at| before.get(at));
            if let (Some((name, _)), Some(output)) = (name, output) {
                outputs.insert((*name).to_owned(), output);
            }
        }
        let bytes: usize = outputs.values().map(|output| output.as_str().len()).sum();
        if bytes > INPUT_BYTES_MAX {
            return Err(Error::invalid(
                format!("the outputs of the nodes before {name:?} have {bytes} bytes"),
                format!("{INPUT_BYTES_MAX} are allowed: let nodes leave references behind instead of data"),
            ));
        }
        Ok(Some(Inputs { input: execution.input, outputs }))
    }
}

/// One attempt of an execution's own job: sees how its nodes have ended.
pub(super) async fn run(inner: Arc<Inner>, job: Arc<Job>) -> Outcome {
    let execution = match read(&job) {
        Ok(execution) => execution,
        Err(error) => return Outcome::Failed(error),
    };
    match conclude(&inner, &job, &execution).await {
        Ok(outcome) => outcome,
        Err(error) if error.kind() == ErrorKind::Unavailable => Outcome::Snooze(secs(1)),
        Err(error) => {
            Outcome::Failed(Failure::retry(format!("the execution could not be concluded: {error}")))
        }
    }
}

async fn conclude(inner: &Inner, job: &Job, execution: &Execution) -> Result<Outcome> {
    let ids = execution.node_jobs(job.id);
    let ended = inner.store.ended(&ids).await?;
    let badly =
        |id: &JobId| ended.iter().find(|ended| ended.id == *id && ended.state != StateName::Succeeded);
    let bad = ids.iter().enumerate().find_map(|(place, id)| badly(id).map(|ended| (place, ended)));
    match bad {
        Some((place, ended)) if job.ledger.failures <= base(job, execution) => {
            let node = &execution.nodes[place].node_id;
            Ok(Outcome::Failed(failure_of(inner, node, ended).await?))
        }
        Some(_) => retry(inner, job, execution).await,
        None if ended.len() == ids.len() => Ok(Outcome::Done(output(execution, &ids, ended))),
        None => unfinished(inner, job, &ids).await,
    }
}

/// Failures that were there before this execution failed itself.
fn base(job: &Job, execution: &Execution) -> u32 {
    if job.ledger.generation == 0 { execution.carried } else { 0 }
}

/// What the execution fails of: its node's last failure. Whether to try again is for its own policy to say.
async fn failure_of(inner: &Inner, node: &str, ended: &Ended) -> Result<Failure> {
    if ended.state == StateName::Cancelled {
        return Ok(Failure::permanent(format!("node {node:?} was cancelled")).code(NODE_FAILED));
    }
    let detail = inner.store.get(ended.id).await?;
    let attempts = detail.map(|detail| detail.attempts).unwrap_or_default();
    let last = attempts.into_iter().rev().find_map(|attempt| attempt.failure);
    let why = last.as_ref().map_or("it ran out of time", |failure| failure.message.as_str());
    let mut failure = Failure::retry(format!("node {node:?} is dead: {why}"));
    failure.status = last.as_ref().and_then(|failure| failure.status);
    failure.detail = last.as_ref().and_then(|failure| failure.detail.clone());
    Ok(failure.code(last.and_then(|failure| failure.code).unwrap_or_else(|| NODE_FAILED.into())))
}

/// It has failed, and its policy has let it wait: what is left of it is taken back, and a new one takes its place.
async fn retry(inner: &Inner, job: &Job, execution: &Execution) -> Result<Outcome> {
    let left = Filter { states: vec![StateName::Waiting, StateName::Running], ..members(job.id) };
    loop {
        let now = inner.clock.now();
        let done = inner.store.apply(Command::Cancel, &left, PAGE_MAX, now).await?;
        inner.steered(Command::Cancel, &done, now);
        if done.len() < PAGE_MAX {
            break;
        }
    }
    let Some(detail) = inner.store.get(job.id).await? else { return Err(not_there(job.id)) };
    let failed = detail.attempts.iter().filter(|attempt| attempt.ending == Ending::Failed);
    let carried: Vec<_> = failed.cloned().collect();
    let new = inner.start_again(&detail, execution, &carried).await?;
    tracing::info!(execution = %job.id, retry = %new, "Execution started anew");
    Ok(Outcome::Done(Some(serde_json::json!({ RETRIED_BY: new }).into())))
}

/// Somebody brought it back while its nodes are at work; or one of them is no longer there.
async fn unfinished(inner: &Inner, job: &Job, ids: &[JobId]) -> Result<Outcome> {
    let live = Filter { states: vec![StateName::Waiting, StateName::Running], ..members(job.id) };
    let page = Page { before: None, limit: 1 };
    if inner.store.list(&live, page).await?.jobs.is_empty() {
        let ended = inner.store.ended(ids).await?;
        if let Some(missing) = ids.iter().find(|id| !ended.iter().any(|ended| ended.id == **id)) {
            let failure = Failure::permanent(format!("Node execution not found: {missing}"));
            return Ok(Outcome::Failed(failure.code("NOT_FOUND")));
        }
    }
    let wait = secs(1).saturating_mul(1 << job.ledger.snoozes.min(12));
    Ok(Outcome::Snooze(wait.min(LOOK_AGAIN_MAX)))
}

/// What the nodes left behind, by their names; if that is too much, of those that nobody comes after.
fn output(execution: &Execution, ids: &[JobId], ended: Vec<Ended>) -> Option<Json> {
    let outputs: BTreeMap<JobId, Json> =
        ended.into_iter().filter_map(|ended| Some((ended.id, ended.output?))).collect();
    let waited_for: BTreeSet<&str> =
        execution.nodes.iter().flat_map(|node| node.after.iter().map(String::as_str)).collect();
    let of = |only_last: bool| {
        let wanted = |name: &str| !only_last || !waited_for.contains(name);
        let all = execution.nodes.iter().zip(ids);
        let map: BTreeMap<&str, &Json> = all
            .filter(|(node, _)| wanted(&node.node_id))
            .filter_map(|(node, id)| Some((node.node_id.as_str(), outputs.get(id)?)))
            .collect();
        Json::of(&map).ok().filter(|map| map.as_str().len() <= OUTPUT_BYTES_MAX)
    };
    of(false).or_else(|| of(true)).or_else(|| Json::of(&()).ok())
}

fn read(job: &Job) -> std::result::Result<Execution, Failure> {
    if *job.kind != *EXECUTION {
        return Err(Failure::permanent(format!("job {} is no execution", job.id)));
    }
    job.payload.decode().map_err(|error| {
        Failure::retry(format!("the payload is not what an execution carries: {error}")).code("UNDECODABLE")
    })
}

fn retried_by(detail: &JobDetail) -> Option<JobId> {
    let label = detail.job.extras().labels.get(RETRIED_LABEL).and_then(|id| id.parse().ok());
    let output = || detail.output.as_ref()?.decode::<BTreeMap<String, JobId>>().ok()?.remove(RETRIED_BY);
    label.or_else(output)
}

fn members(execution: JobId) -> Filter {
    Filter { parent: Some(execution), ..Filter::default() }
}

fn first(answers: &[crate::store::Enqueued]) -> Result<JobId> {
    answers.first().map(|answer| answer.id).ok_or_else(|| Error::unavailable("the store gave no answer"))
}

fn not_there(id: JobId) -> Error {
    Error::new(ErrorKind::NotFound, format!("execution {id} is not there"))
        .with_hint("it may have been finished and forgotten; look at its id again")
}
