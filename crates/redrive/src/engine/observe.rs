//! Telling what happens: events for listeners, lines for the log, numbers for metrics. All from one place, when it is
//! durable.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};
use serde::{Serialize, Serializer};

use super::Inner;
use crate::clock::Timestamp;
use crate::job::{Ending, Job, JobId, State};
use crate::machine::{Admission, Command};
use crate::outcome::Failure;
use crate::policy::{GiveUp, Origin};
use crate::stats;
use crate::store::{Enqueued, How, Settled, Settlement};

/// Something that happened to a job.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// To which job.
    pub job: JobId,
    /// Of which kind; empty where a command named only ids.
    pub kind: Arc<str>,
    /// In which queue; empty where a command named only ids.
    pub queue: Arc<str>,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Happening {
    /// It was accepted.
    Enqueued,
    /// An attempt began.
    Started {
        /// Its number.
        attempt: u32,
    },
    /// It finished.
    Succeeded {
        /// At which attempt.
        attempt: u32,
        /// After how many failures, one outside included.
        failures: u32,
    },
    /// It failed and will be tried again.
    RetryScheduled {
        /// The attempt that failed.
        attempt: u32,
        /// When it will be tried again.
        due_at: Timestamp,
        /// Failures that count against it by now. Where its destination was at fault, there is none more.
        failures: u32,
        /// Why it failed. Written without its detail: not everybody who is told may read that.
        #[serde(serialize_with = "without_detail")]
        failure: Option<Failure>,
    },
    /// It needs a person.
    Dead {
        /// After which attempt.
        attempt: u32,
        /// What ended it.
        why: GiveUp,
        /// The last failure, written likewise.
        #[serde(serialize_with = "without_detail")]
        failure: Option<Failure>,
    },
    /// It waits for a reason that is not a failure of its own.
    PutBack {
        /// The attempt that ended.
        attempt: u32,
        /// How.
        ending: Ending,
        /// When it will be tried again.
        due_at: Timestamp,
    },
    /// An attempt reported too late: another has the job by now. Nothing was changed.
    LeaseLost {
        /// Which attempt.
        attempt: u32,
    },
    /// A person took it back.
    Cancelled,
    /// A person let it run now.
    Retried,
    /// A person chose another time for it.
    Rescheduled {
        /// When it will run.
        due_at: Timestamp,
    },
    /// A person brought it back from the dead.
    Redriven,
    /// A person let it be forgotten.
    Deleted,
    /// A person corrected it.
    Edited,
}

fn without_detail<S: Serializer>(failure: &Option<Failure>, serializer: S) -> Result<S::Ok, S::Error> {
    let failure = failure.clone().map(|failure| Failure { detail: None, ..failure });
    failure.serialize(serializer)
}

/// Counters of one kind, looked up once. The recorder must be installed before the engine is built.
pub(super) struct Meters {
    succeeded: Counter,
    failed: Counter,
    other: Counter,
    retries: Counter,
    dead: Counter,
    duration: Histogram,
    lag: Histogram,
}

impl Meters {
    pub(super) fn of(kind: &'static str) -> Meters {
        Meters {
            succeeded: counter!("redrive_attempts_total", "kind" => kind, "outcome" => "succeeded"),
            failed: counter!("redrive_attempts_total", "kind" => kind, "outcome" => "failed"),
            other: counter!("redrive_attempts_total", "kind" => kind, "outcome" => "other"),
            retries: counter!("redrive_retries_total", "kind" => kind),
            dead: counter!("redrive_dead_total", "kind" => kind),
            duration: histogram!("redrive_attempt_duration_seconds", "kind" => kind),
            lag: histogram!("redrive_schedule_lag_seconds", "kind" => kind),
        }
    }

    /// A job begins, so long after it was due.
    fn late(&self, job: &Job, now: Timestamp) {
        if let State::Waiting { due_at, .. } = job.state {
            self.lag.record(now.since(due_at));
        }
    }

    /// A report that came too late was an attempt, and no more than that: what it would have been is not counted.
    fn refused(&self, settlement: &Settlement) {
        self.other.increment(1);
        self.duration.record(settlement.ended_at.since(settlement.started_at));
    }

    fn settled(&self, settlement: &Settlement) {
        match settlement.transition.ending {
            Ending::Succeeded => self.succeeded.increment(1),
            Ending::Failed => self.failed.increment(1),
            _ => self.other.increment(1),
        }
        match settlement.transition.state {
            State::Dead { .. } => self.dead.increment(1),
            State::Waiting { .. } if settlement.transition.ending == Ending::Failed => {
                self.retries.increment(1)
            }
            _ => {}
        }
        self.duration.record(settlement.ended_at.since(settlement.started_at));
    }
}

/// A job as an event needs it, while the job itself is with the store.
pub(super) struct News {
    kind: Arc<str>,
    queue: Arc<str>,
    due_at: Timestamp,
    origin: Origin,
}

impl Inner {
    /// What to tell of jobs once they are durable; nothing if nobody listens.
    pub(super) fn news_of(&self, jobs: &[Admission]) -> Vec<News> {
        if self.events.receiver_count() == 0 && !tracing::enabled!(tracing::Level::INFO) {
            return Vec::new();
        }
        jobs.iter()
            .map(|Admission { job, .. }| News {
                kind: job.kind.clone(),
                queue: job.queue.clone(),
                due_at: job.due_at(),
                origin: job.origin,
            })
            .collect()
    }

    pub(super) fn enqueued(&self, news: Vec<News>, answers: &[Enqueued]) {
        for (News { kind, queue, due_at, origin }, answer) in news.into_iter().zip(answers) {
            // Where a key was taken, the job is the one that was there already.
            let job = answer.id;
            if answer.how == How::Existing {
                tracing::debug!(job_id = %job, %kind, %queue, "Job already queued");
                continue;
            }
            match origin {
                Origin::External => {
                    tracing::info!(job_id = %job, %kind, %queue, next_attempt = %due_at, "Retry queued")
                }
                // As its success at the first try: of what goes well there is too much to be told.
                Origin::Engine => {
                    tracing::debug!(job_id = %job, %kind, %queue, next_attempt = %due_at, "Job queued")
                }
            }
            self.send(self.clock.now(), job, &kind, &queue, Happening::Enqueued);
        }
    }

    pub(super) fn started(&self, job: &Job, meters: &Meters, now: Timestamp) {
        meters.late(job, now);
        tracing::debug!(job_id = %job.id, kind = %job.kind, attempt = job.attempt(), "Attempt started");
        self.send_of(now, job, || Happening::Started { attempt: job.attempt() });
    }

    /// A worker elsewhere begins.
    pub(super) fn leased(&self, job: &Job, now: Timestamp) {
        self.handlers.meters(&job.kind).late(job, now);
        tracing::debug!(job_id = %job.id, kind = %job.kind, attempt = job.attempt(), "Leased to a worker");
        self.send_of(now, job, || Happening::Started { attempt: job.attempt() });
    }

    pub(super) fn settled(&self, settlements: &[Settlement], answers: &[Settled]) {
        let told = self.events.receiver_count() > 0;
        for (settlement, answer) in settlements.iter().zip(answers) {
            let meters = self.handlers.meters(&settlement.job.kind);
            if *answer == Settled::Refused {
                meters.refused(settlement);
                let Settlement { job, lease, .. } = settlement;
                tracing::debug!(
                    job_id = %job.id, attempt = lease.attempt + 1,
                    "Report came too late: the lease was lost and another has the job; nothing was changed"
                );
                self.send_of(settlement.ended_at, job, || Happening::LeaseLost {
                    attempt: lease.attempt + 1,
                });
                continue;
            }
            meters.settled(settlement);
            log(settlement);
            if told {
                self.send_of(settlement.ended_at, &settlement.job, || happening(settlement));
            }
        }
    }

    pub(super) fn tell_steered(&self, command: Command, jobs: &[JobId], now: Timestamp) {
        let nothing: Arc<str> = "".into();
        for job in jobs {
            tracing::info!(job_id = %job, ?command, "Done by hand");
            let what = match command {
                Command::Cancel => Happening::Cancelled,
                Command::RetryNow => Happening::Retried,
                Command::Reschedule(due_at) => Happening::Rescheduled { due_at },
                Command::Redrive => Happening::Redriven,
                Command::Hurry => Happening::Retried,
                Command::Delete => Happening::Deleted,
            };
            self.send(now, *job, &nothing, &nothing, what);
        }
    }

    /// A job was corrected.
    pub(super) fn edited(&self, job: &Job, by: &str, now: Timestamp) {
        tracing::info!(job_id = %job.id, kind = %job.kind, by, "Job corrected");
        self.send_of(now, job, || Happening::Edited);
    }

    fn send_of(&self, at: Timestamp, job: &Job, what: impl FnOnce() -> Happening) {
        if self.events.receiver_count() > 0 {
            self.send(at, job.id, &job.kind, &job.queue, what());
        }
    }

    fn send(&self, at: Timestamp, job: JobId, kind: &Arc<str>, queue: &Arc<str>, what: Happening) {
        // Nobody listening is no error.
        drop(self.events.send(Event { at, job, kind: kind.clone(), queue: queue.clone(), what }));
    }
}

fn happening(settlement: &Settlement) -> Happening {
    let transition = &settlement.transition;
    let attempt = transition.ledger.attempt;
    let again = |due_at| {
        let (failures, failure) = (transition.ledger.failures, transition.failure.clone());
        Happening::RetryScheduled { attempt, due_at, failures, failure }
    };
    match transition.state {
        State::Succeeded { .. } => {
            let failures = transition.ledger.failures + stats::outside(&settlement.job);
            Happening::Succeeded { attempt, failures }
        }
        State::Dead { why, .. } => Happening::Dead { attempt, why, failure: transition.failure.clone() },
        State::Waiting { due_at, .. } if matches!(transition.ending, Ending::Failed | Ending::Crashed) => {
            again(due_at)
        }
        // Its destination failed, or asked for a pause.
        State::Waiting { due_at, .. } if transition.ending == Ending::Held => {
            let wait = transition.failure.as_ref().and_then(|failure| failure.retry_after);
            again(due_at + wait.unwrap_or_default())
        }
        State::Waiting { due_at, .. } => Happening::PutBack { attempt, ending: transition.ending, due_at },
        State::Running { .. } | State::Cancelled { .. } => Happening::Cancelled,
    }
}

/// One wording for every product that is built on this: what happened, to which job, at which try, and what comes next.
fn log(settlement: &Settlement) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let Settlement { job, transition, .. } = settlement;
    let (job_id, kind, attempt) = (job.id, &*job.kind, transition.ledger.attempt);
    if matches!(transition.state, State::Succeeded { .. }) {
        if stats::came_through(job, &transition.ledger) {
            tracing::info!(%job_id, kind, attempts = attempt, "Retry succeeded");
        } else {
            tracing::debug!(%job_id, kind, attempt, "Job succeeded");
        }
        return;
    }
    let retries = job.policy.retries_allowed(job.origin);
    let (retry, of) =
        (transition.ledger.failures, retries.map_or_else(|| "unlimited".into(), |n| n.to_string()));
    let failure = transition.failure.as_ref();
    let error = failure.map_or("", |failure| failure.message.as_str());
    let class = failure.map_or("", |failure| job.policy.classify(failure).class.name());
    let rule = transition.rule.as_deref().unwrap_or_default();
    match &transition.state {
        State::Waiting { due_at, .. } if matches!(transition.ending, Ending::Failed | Ending::Crashed) => {
            let delay_ms = millis(transition.delay);
            tracing::info!(
                %job_id, kind, attempt, retry, of, delay_ms, next_attempt = %due_at, class, rule, error,
                "Retry scheduled (retry {retry} of {of})"
            );
            tracing::debug!(%job_id, "Waiting {} before retry", crate::span::format(transition.delay.unwrap_or_default()));
        }
        State::Waiting { due_at, .. } => {
            tracing::debug!(%job_id, kind, attempt, ending = transition.ending.as_str(), next_attempt = %due_at, "Put back");
        }
        State::Dead { why, .. } => {
            let reason = why.as_str();
            tracing::warn!(%job_id, kind, attempts = attempt, reason, class, rule, error, "Job dead: it needs a person");
            tracing::debug!(%job_id, reason, "Not retrying");
        }
        State::Running { .. } | State::Succeeded { .. } | State::Cancelled { .. } => {}
    }
}

fn millis(delay: Option<Duration>) -> u64 {
    u64::try_from(delay.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
