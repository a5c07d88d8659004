//! Kinds and what runs them: typed functions outside, one boxed form inside.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::attempt::{Attempt, Context};
use super::observe::Meters;
use super::workflow;
use crate::job::Payload;
use crate::outcome::{Failure, IntoOutcome, Outcome};
use crate::store::Kinds;
use crate::workflow::EXECUTION;

/// Runs jobs of one kind. Async functions and closures of an [`Attempt`] are handlers; implement it for a type that
/// needs more than a closure can capture.
pub trait Handler<P: Payload>: Send + Sync + 'static {
    /// Makes one attempt.
    fn run(&self, attempt: Attempt<P>) -> impl Future<Output = Outcome> + Send;
}

impl<P, F, Fut> Handler<P> for F
where
    P: Payload,
    F: Fn(Attempt<P>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send,
{
    async fn run(&self, attempt: Attempt<P>) -> Outcome {
        self(attempt).await.into_outcome()
    }
}

pub(super) type Attempting = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Runner = Box<dyn Fn(Context) -> Attempting + Send + Sync>;

/// Under which kind everything is counted that is run elsewhere: such kinds are as many as somebody makes up.
const ELSEWHERE: &str = "(workers)";

/// Which kinds are known, and what runs them.
pub(super) struct Registry {
    runners: BTreeMap<&'static str, Known>,
    elsewhere: Meters,
    produced: BTreeSet<&'static str>,
    produces_any: bool,
}

pub(super) struct Known {
    pub(super) run: Runner,
    pub(super) meters: Meters,
}

impl Registry {
    pub(super) fn new() -> Registry {
        let (runners, produced) = (BTreeMap::new(), BTreeSet::new());
        Registry { runners, elsewhere: Meters::of(ELSEWHERE), produced, produces_any: false }
    }

    /// Whether the kind was free.
    pub(super) fn add<P: Payload>(&mut self, handler: impl Handler<P>) -> bool {
        let handler = Arc::new(handler);
        let run: Runner = Box::new(move |context| {
            let handler = handler.clone();
            Box::pin(async move {
                match P::read(&context.job().payload) {
                    Ok(payload) => handler.run(Attempt::new(payload, context)).await,
                    Err(error) => Outcome::Failed(undecodable(P::KIND, &error)),
                }
            })
        });
        self.runners.insert(P::KIND, Known { run, meters: Meters::of(P::KIND) }).is_none()
    }

    /// What runs the jobs that are executions of workflows: every engine does.
    pub(super) fn add_executions(&mut self) -> bool {
        let run: Runner = Box::new(|context| {
            let (inner, job) = context.into_parts();
            Box::pin(workflow::run(inner, job))
        });
        self.runners.insert(EXECUTION, Known { run, meters: Meters::of(EXECUTION) }).is_none()
    }

    pub(super) fn produce(&mut self, kind: &'static str) {
        self.produced.insert(kind);
    }

    pub(super) fn produce_any(&mut self) {
        self.produces_any = true;
    }

    pub(super) fn knows(&self, kind: &str) -> bool {
        self.produces_any || self.runners.contains_key(kind) || self.produced.contains(kind)
    }

    /// What an engine claims beside which others run what it only enqueues.
    pub(super) fn claimed_kinds(&self) -> Option<Kinds> {
        self.produces_any.then(|| self.runners.keys().map(|kind| Arc::from(*kind)).collect())
    }

    pub(super) fn get(&self, kind: &str) -> Option<&Known> {
        self.runners.get(kind)
    }

    /// Where attempts of a kind are counted.
    pub(super) fn meters(&self, kind: &str) -> &Meters {
        self.runners.get(kind).map_or(&self.elsewhere, |known| &known.meters)
    }
}

/// A deployment that can read it may be on its way, so it backs off as any failure does, and dies in the end.
fn undecodable(kind: &str, error: &serde_json::Error) -> Failure {
    Failure::retry(format!("the payload is not what the handler of {kind:?} expects: {error}"))
        .code("UNDECODABLE")
}
