//! One attempt: what a handler sees of it, and how it is run and comes to its end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

use super::Inner;
use super::handler::Attempting;
use super::shift::Step;
use crate::clock::Timestamp;
use crate::job::{Job, JobId};
use crate::machine;
use crate::outcome::{Failure, Outcome};
use crate::span;
use crate::store::{Lease, Settlement};
use crate::workflow::Inputs;

/// One try of a job, as its handler sees it.
pub struct Attempt<P> {
    /// What is to be done.
    pub payload: P,
    /// Which job this is.
    pub id: JobId,
    /// Which attempt: 1 for the first. Grows with every claim and is a fence: a receiver may refuse a lower number.
    pub number: u32,
    context: Context,
}

/// What is shared between an attempt and the engine.
#[derive(Clone)]
pub(super) struct Context {
    job: Arc<Job>,
    stop: Arc<Stop>,
    inner: Arc<Inner>,
}

impl<P> Attempt<P> {
    pub(super) fn new(payload: P, context: Context) -> Attempt<P> {
        Attempt { payload, id: context.job.id, number: context.job.attempt(), context }
    }

    /// The job as it was claimed: its ledger, labels, policy and times.
    pub fn job(&self) -> &Job {
        &self.context.job
    }

    /// The same for every attempt of this job: hand it to the other side, so that it can recognise a repetition.
    pub fn idempotency_key(&self) -> String {
        self.id.to_string()
    }

    /// What a node of a workflow is given beside its payload: the execution's input, and the outputs of the nodes that it
    /// comes after. Read when it is asked for.
    ///
    /// # Errors
    ///
    /// For good if this job is no node; else as the store answers.
    pub async fn inputs(&self) -> Result<Inputs, Failure> {
        match self.context.inner.inputs(&self.context.job).await {
            Ok(Some(inputs)) => Ok(inputs),
            Ok(None) => Err(Failure::permanent("this job is no node of a workflow, and has no inputs")),
            Err(error) => Err(Failure::retry(format!("the inputs cannot be read: {error}"))),
        }
    }

    /// Resolves when the attempt is to stop: its lease is lost, the job was cancelled, or the process shuts down.
    /// An async handler need not ask, it is dropped then; what runs on another thread should.
    pub async fn cancelled(&self) {
        self.context.stop.asked().await;
    }
}

impl Context {
    pub(super) fn new(inner: Arc<Inner>, job: Arc<Job>, stop: Arc<Stop>) -> Context {
        Context { job, stop, inner }
    }

    /// What an execution's own job needs, which is the engine itself.
    pub(super) fn into_parts(self) -> (Arc<Inner>, Arc<Job>) {
        (self.inner, self.job)
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }
}

/// Why an attempt is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is no longer ours.
    LeaseLost,
    /// The process shuts down.
    Shutdown,
    /// The process is dead, as far as a test is concerned: nothing more is written.
    Died,
}

/// Asks an attempt to stop. The first reason stays.
#[derive(Default)]
pub(super) struct Stop {
    why: AtomicU8,
    notify: Notify,
}

impl Stop {
    pub(super) fn ask(&self, why: Why) {
        let code = match why {
            Why::LeaseLost => 1,
            Why::Shutdown => 2,
            Why::Died => 3,
        };
        // A death is not undone by a shutdown that comes after it, but it overrides one that came before.
        self.why.fetch_max(code, Ordering::AcqRel);
        self.notify.notify_waiters();
    }

    pub(super) fn why(&self) -> Option<Why> {
        match self.why.load(Ordering::Acquire) {
            1 => Some(Why::LeaseLost),
            2 => Some(Why::Shutdown),
            3 => Some(Why::Died),
            _ => None,
        }
    }

    pub(super) async fn asked(&self) -> Why {
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            // Registered before looking: an ask between the look and the wait is not missed.
            notified.as_mut().enable();
            if let Some(why) = self.why() {
                return why;
            }
            notified.await;
        }
    }
}

/// Runs one attempt to its end, when it has its turn, and says what is to be written; `None` if the process died meanwhile.
pub(super) async fn run(
    inner: &Arc<Inner>,
    lease: Lease,
    job: Arc<Job>,
    stop: Arc<Stop>,
    turn: Option<Timestamp>,
) -> Option<Settlement> {
    if let Some(turn) = turn {
        tokio::select! { biased;
            _ = stop.asked() => {}
            () = inner.clock.sleep_until(turn) => {}
        }
    }
    let started_at = inner.clock.now();
    // It may have waited for its place until now.
    let outcome = if stop.why().is_some() {
        Outcome::Interrupted
    } else if job.expires_at().is_some_and(|over| over <= started_at) {
        Outcome::Expired
    } else if let Some(held) = inner.held_back(&job).await {
        held
    } else {
        match inner.handlers.get(&job.kind) {
            None => Outcome::Unhandled,
            Some(known) => {
                inner.started(&job, &known.meters, started_at);
                let attempting = (known.run)(Context::new(inner.clone(), job.clone(), stop.clone()));
                tokio::select! { biased;
                    why = stop.asked() => match why {
                        Why::LeaseLost | Why::Shutdown => Outcome::Interrupted,
                        Why::Died => return None,
                    },
                    outcome = guarded(attempting, &job, started_at) => outcome,
                }
            }
        }
    };
    if stop.why() == Some(Why::Died) || inner.dies(Step::Ran) {
        return None;
    }
    Some(settlement(lease, job, outcome, started_at, inner.clock.now_rounded_up()))
}

/// What the ending of an attempt asks the store to write.
pub(super) fn settlement(
    lease: Lease,
    job: Arc<Job>,
    outcome: Outcome,
    started_at: Timestamp,
    ended_at: Timestamp,
) -> Settlement {
    let transition = machine::settle(&job, outcome, ended_at, &mut job.id.rng(job.attempt()));
    Settlement { lease, job, transition, started_at, ended_at, again: None }
}

/// A panic and an overrun are failures of this job alone; and when its time is over, so is the attempt.
async fn guarded(mut attempting: Attempting, job: &Job, now: Timestamp) -> Outcome {
    let caught = std::future::poll_fn(|cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| attempting.as_mut().poll(cx))) {
            Ok(polled) => polled,
            Err(panic) => std::task::Poll::Ready(Outcome::Failed(panicked(&*panic))),
        }
    });
    let (limit, left) = (job.timeout(), job.deadline().map(|deadline| deadline.since(now)));
    let Some(shorter) = limit.into_iter().chain(left).min() else { return caught.await };
    tokio::time::timeout(shorter, caught).await.unwrap_or_else(|_| {
        if left == Some(shorter) {
            return Outcome::Expired;
        }
        let message = format!("the attempt took longer than {}", span::format(shorter));
        Outcome::Failed(Failure::retry(message).code("TIMEOUT"))
    })
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::retry(format!("the handler panicked: {}", text.unwrap_or("without a message"))).code("PANIC")
}
