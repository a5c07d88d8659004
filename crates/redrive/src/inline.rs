//! One policy, two tiers: tried here while the waits are short, handed over to the store when they get long.

use std::future::Future;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::job::{JobId, Json, NewJob, Payload, State};
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
        output: Option<Json>,
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
        // As it will be stored: its policy, its limits, its age and the chance in its delays are those of now.
        let mut admission = inner.admit(NewJob::from(payload))?;
        let typed = P::read(&admission.job.payload).map_err(|_| unreadable(P::KIND))?;
        loop {
            let started_at = inner.clock.now();
            let outcome = work(&typed).await.into_outcome();
            let now = inner.clock.now_rounded_up();
            let job = &mut admission.job;
            if let Outcome::Done(output) = outcome {
                return Ok(Attempted::Done { output, attempt: job.attempt() });
            }
            let transition = machine::settle(job, outcome, now, &mut job.id.rng(job.attempt()));
            let State::Waiting { due_at, .. } = transition.state else {
                return Ok(Attempted::Failed(
                    transition.failure.unwrap_or_else(|| Failure::permanent("gave up")),
                ));
            };
            admission.history.push(transition.record(started_at, now));
            (job.ledger, job.state) = (transition.ledger, transition.state);
            job.extras_mut().last_delay = transition.delay;
            if transition.delay.unwrap_or_default() > INLINE_WAIT_MAX
                || job.ledger.attempt >= INLINE_TRIES_MAX
            {
                let job = job.id;
                inner.enqueue(vec![admission]).await?;
                return Ok(Attempted::HandedOver { job, due_at });
            }
            inner.clock.sleep_until(due_at).await;
        }
    }
}

fn unreadable(kind: &str) -> Error {
    Error::invalid(
        format!("the payload of a {kind:?} job cannot be read back as it was written"),
        "make its Serialize and Deserialize agree",
    )
}
