//! The checks that look at a whole: an ending beside what its handler did, the store beside the book, the end of a world.

use std::collections::BTreeMap;

use super::act::{Act, Doing};
use super::book::{Book, Verdict, demand};
use crate::job::{Ending, Job, Json, State};
use crate::machine::Transition;
use crate::outcome::{Failure, Outcome};
use crate::stats::Tally;
use crate::store::{HISTORY_FIRST, HISTORY_LAST, JobDetail, QueueCounts};

/// The outcome that led to a transition, if what the handler did can have led to it.
pub(super) fn outcome_of(transition: &Transition, doing: Option<Doing>) -> Result<Outcome, String> {
    let act = doing.map(|doing| doing.act);
    let failure = transition.failure.clone();
    let code = failure.as_ref().and_then(|failure| failure.code.clone()).unwrap_or_default();
    match (transition.ending, act) {
        (Ending::Succeeded, Some(Act::Succeed)) => Ok(Outcome::Done(None)),
        (Ending::Succeeded, Some(Act::Output)) => Ok(Outcome::Done(Some(output()))),
        (ending @ (Ending::Failed | Ending::Held), Some(act)) => match failure {
            Some(failure) if code == "TIMEOUT" || same(&failure, act) => match ending {
                Ending::Held => Ok(Outcome::Held(failure)),
                _ => Ok(Outcome::Failed(failure)),
            },
            other => Err(format!("did {act:?} and failed with {other:?}")),
        },
        (Ending::Snoozed, Some(Act::Snooze(delay))) => Ok(Outcome::Snooze(delay)),
        (Ending::Crashed, _) => Ok(Outcome::Lost),
        // While it ran, or given back before it began.
        (Ending::Interrupted, _) => Ok(Outcome::Interrupted),
        (Ending::Unhandled, None) => Ok(Outcome::Unhandled),
        // Before it began, or while it ran.
        (Ending::Expired, _) => Ok(Outcome::Expired),
        (ending, act) => Err(format!("did {act:?} and is said to have {}", ending.as_str())),
    }
}

/// What a handler leaves behind when it leaves something.
pub(super) fn output() -> Json {
    serde_json::Value::from(42).into()
}

fn same(failure: &Failure, act: Act) -> bool {
    match act {
        Act::Panic => failure.code.as_deref() == Some("PANIC"),
        _ => super::node::failure_of(act).is_some_and(|expected| expected == *failure),
    }
}

/// Each counter moves by its own event alone, and stays within its limit.
pub(super) fn counters(job: &Job, transition: &Transition) -> Verdict {
    let (before, after, id) = (job.ledger, transition.ledger, job.id);
    let ending = transition.ending;
    demand!(
        after.attempt == before.attempt + 1,
        "job {id} went from attempt {} to {}",
        before.attempt,
        after.attempt
    );
    let moved = |by: u32, from: u32, to: u32| to == from + by;
    let held = moved(u32::from(ending == Ending::Failed), before.failures, after.failures)
        && moved(u32::from(ending == Ending::Crashed), before.crashes, after.crashes)
        && moved(u32::from(ending == Ending::Snoozed), before.snoozes, after.snoozes)
        && moved(u32::from(ending == Ending::Interrupted), before.interruptions, after.interruptions)
        && moved(u32::from(matches!(ending, Ending::Unhandled | Ending::Held)), before.holds, after.holds)
        && after.generation == before.generation;
    demand!(held, "job {id} {} and its counters went from {before:?} to {after:?}", ending.as_str());
    let is_for_one = job.extras().destination.is_some();
    demand!(ending != Ending::Held || is_for_one, "job {id} was held, and has no destination");
    if let State::Waiting { due_at, .. } = transition.state {
        let most = job.policy.retries_allowed(job.origin).unwrap_or(u32::MAX);
        demand!(
            ending != Ending::Failed || after.failures <= most,
            "job {id} failed {} times and may {most} times",
            after.failures
        );
        demand!(
            ending != Ending::Crashed || after.crashes < job.policy.max_crashes,
            "job {id} crashed {} times and goes on",
            after.crashes
        );
        let over = job.extras().deadline.is_some_and(|deadline| due_at > deadline);
        demand!(
            !over || matches!(ending, Ending::Interrupted | Ending::Held),
            "job {id} waits until {due_at}, past its deadline"
        );
    }
    Ok(())
}

impl Book {
    /// Everything that is stored, beside everything that was promised.
    pub(super) fn compare(&mut self, rows: &[Job], counts: &[QueueCounts]) -> Verdict {
        let stored: BTreeMap<_, _> = rows.iter().map(|row| (row.id, row)).collect();
        demand!(stored.len() == rows.len(), "a job is stored twice");
        self.number_fresh(&stored)?;
        self.forget_pruned(&stored)?;
        for (id, entry) in &mut self.jobs {
            let row = stored.get(id).ok_or_else(|| {
                format!("job {id} was acknowledged, is {}, and is not there", entry.job.state.name())
            })?;
            entry.stands_in_line(row);
            demand!(**row == entry.job, "job {id} is stored as {row:?} and must be {:?}", entry.job);
        }
        demand!(stored.len() == self.jobs.len(), "{} jobs are stored, not {}", stored.len(), self.jobs.len());
        self.compare_counts(counts)
    }

    /// Places are given in the order of enqueueing.
    fn number_fresh(&mut self, stored: &BTreeMap<crate::job::JobId, &Job>) -> Verdict {
        for id in std::mem::take(&mut self.fresh) {
            let row = stored.get(&id).ok_or_else(|| format!("job {id} was acknowledged and is not there"))?;
            demand!(row.seq > self.last_seq, "job {id} was given a place before an earlier one");
            self.last_seq = row.seq;
            if let Some(entry) = self.jobs.get_mut(&id) {
                entry.job.seq = row.seq;
            }
        }
        Ok(())
    }

    fn forget_pruned(&mut self, stored: &BTreeMap<crate::job::JobId, &Job>) -> Verdict {
        let Some((retention, now, count)) = self.pruned.take() else { return Ok(()) };
        let missing: Vec<_> = self.jobs.keys().filter(|id| !stored.contains_key(id)).copied().collect();
        demand!(
            missing.len() as u64 == count,
            "{count} jobs were forgotten, and {} are missing",
            missing.len()
        );
        let mut forgotten = Vec::new();
        for id in missing {
            let over = self.jobs.get(&id).is_some_and(|entry| retention.is_over(&entry.job.state, now));
            demand!(over, "job {id} was forgotten before its time was over");
            self.nobody_needs(id)?;
            forgotten.push(id);
        }
        for id in forgotten {
            self.jobs.remove(&id);
            self.forget_ties(id);
            self.gone.insert(id);
            self.seen.insert("forgotten");
        }
        Ok(())
    }

    fn compare_counts(&self, counts: &[QueueCounts]) -> Verdict {
        for (queue, totals) in &self.totals {
            let count = |name: &str| {
                let jobs = self.jobs.values().filter(|entry| entry.job.queue == *queue);
                jobs.filter(|entry| entry.job.state.name().as_str() == name).count() as u64
            };
            let told = counts.iter().find(|counts| counts.queue == *queue);
            let told = told.ok_or_else(|| format!("queue {queue} is not counted"))?;
            let expected = [count("waiting"), count("running"), count("dead")];
            demand!(
                [told.waiting, told.running, told.dead] == expected,
                "queue {queue} is counted as {told:?}; a recount gives {expected:?}"
            );
            demand!(told.totals == *totals, "totals of {queue} are {:?}, not {totals:?}", told.totals);
            demand!(told.paused == self.paused.contains(queue), "queue {queue} is wrongly paused or resumed");
        }
        Ok(())
    }

    /// Nothing is left to do: what was enqueued is final or deleted, and the totals say the same.
    pub(super) fn conserved(&self) -> Verdict {
        let live = self.live().count();
        demand!(live == 0, "{live} jobs are not final");
        let enqueued: u64 = self.totals.values().map(|totals| totals.enqueued).sum();
        let kept = self.jobs.len() + self.gone.len();
        demand!(enqueued == kept as u64, "{enqueued} jobs were enqueued, and {kept} are accounted for");
        let sum = |of: fn(&Tally) -> u64| self.totals.values().map(of).sum::<u64>();
        let endings = sum(|t| t.succeeded) + sum(|t| t.dead) + sum(|t| t.cancelled);
        demand!(endings == enqueued + sum(|t| t.redriven), "{endings} endings for {enqueued} jobs");
        Ok(())
    }

    /// A job's history beside what happened to it.
    pub(super) fn history(&self, detail: &JobDetail) -> Verdict {
        let JobDetail { job, attempts, output, .. } = detail;
        let entry = self.jobs.get(&job.id).ok_or("a job appeared at the end")?;
        let expected = entry.recorded.min(HISTORY_FIRST + HISTORY_LAST);
        let kept = attempts.len();
        demand!(
            kept == expected as usize || entry.recorded > HISTORY_LAST,
            "job {} has {kept} attempts in its history, not {expected}",
            job.id
        );
        let ordered = attempts.windows(2).all(|pair| pair[0].attempt < pair[1].attempt);
        demand!(ordered, "the history of job {} is not in order", job.id);
        let done = matches!(job.state, State::Succeeded { .. });
        let last = self.begun.get(&(job.id, job.ledger.attempt)).map(|doing| doing.act);
        let left = done && last == Some(Act::Output);
        demand!(output.is_some() == left, "job {} did {last:?} and left {output:?}", job.id);
        Ok(())
    }
}
