//! What will become of a job if it goes on failing: asked of the same function that decides it.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::job::{Job, State};
use crate::machine;
use crate::outcome::{Failure, Outcome};
use crate::policy::GiveUp;

/// A step of what is to come.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Forecast {
    /// It runs.
    Attempt {
        /// Which run that is.
        attempt: u32,
        /// The earliest time for it.
        at: Timestamp,
    },
    /// It is given up.
    Dead {
        /// When.
        at: Timestamp,
        /// What ends it.
        why: GiveUp,
    },
}

/// The next `count` steps of a job that waits, if each attempt fails at once with a failure that may be retried. Chance
/// is drawn as the engine will draw it, so these are the very times.
pub fn forecast(job: &Job, count: usize) -> Vec<Forecast> {
    let mut steps = Vec::new();
    let mut job = job.clone();
    while steps.len() < count {
        match job.state.clone() {
            State::Waiting { due_at, .. } => {
                // If its time is over before it has its turn, it does not run.
                let over = job.expires_at().filter(|over| *over <= due_at);
                if over.is_none() {
                    steps.push(Forecast::Attempt { attempt: job.attempt(), at: due_at });
                }
                fail(&mut job, over.unwrap_or(due_at));
            }
            // Its own end is not known, but what comes after a failure now is.
            State::Running { since } => fail(&mut job, since),
            State::Dead { at, why } => {
                steps.push(Forecast::Dead { at, why });
                break;
            }
            State::Succeeded { .. } | State::Cancelled { .. } => break,
        }
    }
    steps
}

fn fail(job: &mut Job, at: Timestamp) {
    let outcome = match job.expires_at() {
        Some(over) if over <= at => Outcome::Expired,
        _ => Outcome::Failed(Failure::retry("if it fails")),
    };
    let transition = machine::settle(job, outcome, at, &mut job.id.rng(job.attempt()));
    transition.apply_to(job);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Rng;
    use crate::job::{JobId, Json, NewJob, Reason};
    use crate::policy::Policy;
    use crate::queue::Queue;

    const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    fn job(policy: Policy) -> Job {
        let new = NewJob::of_kind("task", Json::of("x").unwrap()).policy(policy);
        let id = JobId::new(NOW, 0, &mut Rng::seeded(7));
        machine::admit(new, &Queue::new("default"), id, NOW, &mut id.rng(0)).unwrap().job
    }

    #[test]
    fn it_tells_every_attempt_to_the_end_and_what_ends_it() {
        let job = job(Policy::preset("offline").unwrap());
        let at = |seconds: u64| NOW + crate::secs(seconds);
        assert_eq!(
            forecast(&job, 9),
            [
                Forecast::Attempt { attempt: 1, at: at(0) },
                Forecast::Attempt { attempt: 2, at: at(2) },
                Forecast::Attempt { attempt: 3, at: at(6) },
                Forecast::Dead { at: at(6), why: GiveUp::Exhausted },
            ]
        );
    }

    #[test]
    fn a_job_whose_time_is_over_before_its_turn_is_told_to_die_then() {
        let mut job = job(Policy::fixed(crate::secs(5)).retries(9));
        job.extras_mut().deadline = Some(NOW + crate::secs(2));
        job.state = State::Waiting { due_at: NOW + crate::secs(4), reason: Reason::ByHand };
        let over = Forecast::Dead { at: NOW + crate::secs(2), why: GiveUp::Expired };
        assert_eq!(forecast(&job, 5), [over]);
    }

    #[test]
    fn a_running_job_is_told_as_if_it_failed_now() {
        let mut job = job(Policy::fixed(crate::secs(5)).retries(9));
        job.state = State::Running { since: NOW };
        assert_eq!(forecast(&job, 1), [Forecast::Attempt { attempt: 2, at: NOW + crate::secs(5) }]);
    }
}
