//! One policy, two tiers: tried here while the waits are short, handed over to the store when they get long.

use std::future::Future;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::job::{AttemptRecord, JobId, NewJob, Payload, State};
use crate::machine;
use crate::outcome::{Failure, IntoOutcome, Outcome};

/// The longest wait between two tries in the caller's own time.
pub const INLINE_WAIT_MAX: Duration = Duration::from_secs(2);
/// Tries in the caller's own time.
pub const INLINE_TRIES_MAX: u32 = 3;

/// What came of [`Engine::attempt`].
#[derive(Debug)]
pub enum Attempted {
    /// It is done.
    Done {
        /// What it returned.
        output: Option<serde_json::Value>,
        /// At which try.
        attempt: u32,
    },
    /// It goes on durably, with its number, its counters and its history.
    HandedOver {
        /// As this job.
        job: JobId,
        /// And will be tried again then.
        due_at: Timestamp,
    },
    /// It failed in a way that no retry mends. The caller has it; nothing was stored.
    Failed(Failure),
}

impl Engine {
    /// Tries at once, in the caller's own time, with the policy of the job's queue. When the next wait would be long,
    /// the job is stored with its attempt number, failures and history, and goes on as if it had been there from the
    /// start: same policy, same classifier, same counters.
    ///
    /// `work` must be what the registered handler of the kind does, because that is what goes on.
    pub async fn attempt<P, F, Fut>(&self, payload: P, work: F) -> Result<Attempted>
    where
        P: Payload,
        F: Fn(&P) -> Fut,
        Fut: Future<Output: IntoOutcome>,
    {
        let inner = self.inner();
        let new = NewJob::from(payload);
        let typed: P = match new.payload.as_ref().map(|json| json.decode()) {
            Ok(Ok(typed)) => typed,
            _ => return Err(inner.admit(new).err().unwrap_or_else(|| unreadable(P::KIND))),
        };
        // As it would be stored, so that the policy and the limits are those of the stored job.
        let mut job = inner.admit(new.clone())?.job;
        let mut history = Vec::new();
        loop {
            let started_at = inner.clock.now();
            let outcome = work(&typed).await.into_outcome();
            let now = inner.clock.now();
            if let Outcome::Done(output) = outcome {
                return Ok(Attempted::Done { output, attempt: job.attempt() });
            }
            let transition = machine::settle(&job, outcome, now, &mut job.id.rng(job.attempt()));
            let State::Waiting { due_at, .. } = transition.state else {
                return Ok(Attempted::Failed(
                    transition.failure.unwrap_or_else(|| Failure::permanent("gave up")),
                ));
            };
            history.push(transition.record(started_at, now));
            job.ledger = transition.ledger;
            if transition.delay.unwrap_or_default() > INLINE_WAIT_MAX
                || job.ledger.attempt >= INLINE_TRIES_MAX
            {
                return self.hand_over(new, history, due_at).await;
            }
            inner.clock.sleep_until(due_at).await;
        }
    }

    async fn hand_over(
        &self,
        mut new: NewJob,
        history: Vec<AttemptRecord>,
        due_at: Timestamp,
    ) -> Result<Attempted> {
        new.history = history;
        let job = self.enqueue(new.run_at(due_at)).await?.id;
        Ok(Attempted::HandedOver { job, due_at })
    }
}

fn unreadable(kind: &str) -> Error {
    Error::invalid(
        format!("the payload of a {kind:?} job cannot be read back as it was written"),
        "make its Serialize and Deserialize agree",
    )
}
