//! `redrive run -- COMMAND`: a command with a policy, kept in a store until it has succeeded or was given up.

mod child;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use redrive::{
    Attempt, Engine, Event, Failure, Filter, GiveUp, Handler, Happening, Job, JobId, NewJob, OnConflict,
    Outcome, Page, Payload, Policy, Queue, State, StateName, Store, Timestamp, span,
};
use redrive_server::printable;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::policy::policy_from;
use super::state;
use crate::out;
use crate::times::{self, When};
use crate::trouble::{Done, Exit, Trouble};
use child::{Ended, Leftover};

/// However often `redrive` itself is killed, the command is not to blame.
const CRASHES_MAX: u32 = 1_000_000;
/// What a try has come to of which nothing more is heard, because it took too long: as timeout(1) has it.
const TIMED_OUT: u8 = 124;
/// The one job of the store.
const KEY: &str = "run";
/// A little longer than a child is given to end.
const GRACE: Duration = Duration::from_secs(child::GRACE.as_secs() + 5);

/// What to run, and how often.
#[derive(Args)]
pub(crate) struct Run {
    /// When to try again and when to stop: a name (see `redrive policy presets`), JSON, or @FILE
    /// [default: after 1s, doubling to 1h, for 3 days]
    #[arg(long, visible_alias = "policy", value_name = "NAME|JSON|@FILE", conflicts_with = "every")]
    preset: Option<String>,
    /// Try again so long after each failure, without end unless --until names one
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    every: Option<Duration>,
    /// Give up then: a time, or how long from now
    #[arg(long, value_name = "TIME|DURATION")]
    until: Option<When>,
    /// End a try that takes longer, and count it as a failure
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    timeout: Option<Duration>,
    /// Begin anew, whatever an earlier run has left
    #[arg(long)]
    anew: bool,
    /// Where it is remembered [default: $XDG_STATE_HOME/redrive]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The program and its arguments, as they are: no shell reads them
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The payload, for people who look into the store: the words themselves come from the command line, which is the same.
#[derive(Serialize, Deserialize)]
struct Words {
    command: Vec<String>,
}

impl Payload for Words {
    const KIND: &'static str = "run";
    const QUEUE: &'static str = "run";
}

pub(crate) fn run(given: Run) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return out::trouble(&Trouble::new(Exit::Failed, format!("cannot start: {error}"))),
    };
    let done = runtime.block_on(given.run());
    runtime.shutdown_background();
    match done {
        Ok(code) => ExitCode::from(code),
        Err(trouble) => out::trouble(&trouble),
    }
}

impl Run {
    async fn run(self) -> Done<u8> {
        let folder = std::env::current_dir().map_err(|error| {
            Trouble::new(Exit::Failed, format!("the folder here cannot be found: {error}"))
        })?;
        let mut parts = vec![folder.as_os_str().as_bytes()];
        parts.extend(self.command.iter().map(|word| word.as_bytes()));
        let place = state::place(self.state.as_deref(), "run", &parts, &folder)?;
        let store: Arc<dyn Store> =
            Arc::new(state::store(self.state.as_deref(), "run", &parts, &folder).await?);
        // What a killed process had in hand waits again.
        Engine::on(store.clone()).build().map_err(anyhow::Error::from)?.drain_due().await.map_err(lost)?;
        let (stop, stopping) = watch::channel(None);
        let runner = Runner {
            command: Arc::new(self.command.clone()),
            leftover: Arc::new(Leftover::beside(&place)),
            stopping: stopping.clone(),
            last: Arc::default(),
        };
        let engine = Engine::on(store).queue(Queue::new(Words::QUEUE)).handle(runner.clone()).grace(GRACE);
        let engine = engine.build().map_err(anyhow::Error::from)?;
        let job = self.join(&engine).await?;
        listen(stop)?;
        let mut events = engine.events();
        let over = async {
            while let Ok(event) = events.recv().await {
                if event.job == job && is_over(&event) {
                    return;
                }
            }
        };
        let mut told = stopping.clone();
        let until = async {
            tokio::select! { biased;
                _ = told.wait_for(Option::is_some) => {}
                () = over => {}
            }
        };
        engine.run(until).await.map_err(lost)?;
        let signal = *stopping.borrow();
        runner.code(&engine, job, signal).await
    }

    /// The job that an earlier run has left, if it was asked for in the same way; else a new one.
    async fn join(&self, engine: &Engine) -> Done<JobId> {
        let now = engine.now();
        let policy = self.policy()?;
        let filter =
            Filter { key: Some(KEY.to_owned()), states: vec![StateName::Waiting], ..Filter::default() };
        let left = engine.list(&filter, Page { before: None, limit: 1 }).await.map_err(lost)?;
        if let Some(left) = left.jobs.first().filter(|left| !self.anew && *left.policy == policy) {
            out::note(&format!("redrive: goes on with what was left: {}", standing(left, now)));
            return Ok(left.id);
        }
        let command = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut job =
            NewJob::from(Words { command }).key(KEY).on_conflict(OnConflict::Replace).policy(policy);
        if let Some(until) = self.until.map(|until| until.ahead(now)) {
            if until <= now {
                let message = format!("the time of --until is over: {}", times::local(until));
                return Err(Trouble::usage(
                    message,
                    "write a time to come, or how long from now, such as 2h",
                ));
            }
            job = job.deadline(until);
        }
        Ok(engine.enqueue(job).await.map_err(lost)?.id)
    }

    /// Without the end that `--until` names: that belongs to the job, so that it stays when it is gone on with.
    fn policy(&self) -> Done<Policy> {
        let mut policy = match (&self.preset, self.every) {
            (Some(given), _) => {
                let value = serde_json::from_str(policy_from(given)?.get()).map_err(anyhow::Error::from)?;
                Policy::from_json(value).map_err(|mistakes| {
                    Trouble::usage(mistakes.join("; "), "redrive policy presets lists the names")
                })?
            }
            (None, Some(every)) if every.is_zero() => {
                let hint = "write a duration such as 1s; --preset workflow-immediate tries again at once";
                return Err(Trouble::usage("--every is to leave time between two tries", hint));
            }
            (None, Some(every)) => Policy::fixed(every).within(span::MAX),
            (None, None) => Policy::default(),
        };
        if self.until.is_some() && self.preset.is_none() {
            policy.give_up_after = Some(span::MAX);
        }
        policy.timeout = self.timeout.or(policy.timeout);
        Ok(Policy { max_crashes: CRASHES_MAX, ..policy })
    }
}

fn lost(error: redrive::Error) -> Trouble {
    Trouble::store(&error)
}

/// Where a job stands that was left.
fn standing(job: &Job, now: Timestamp) -> String {
    let due = match job.state {
        State::Waiting { due_at, .. } if due_at > now => {
            format!("the next try is {}", times::relative(due_at, now))
        }
        _ => "the next try is now".to_owned(),
    };
    let until = job.extras().deadline.map_or_else(String::new, |at| format!(", until {}", times::local(at)));
    format!("run {}, {due}{until}", job.attempt())
}

/// From now on signals are for the command.
fn listen(stop: watch::Sender<Option<Signal>>) -> Done {
    let kinds = [
        (SignalKind::interrupt(), Signal::INT),
        (SignalKind::terminate(), Signal::TERM),
        (SignalKind::hangup(), Signal::HUP),
    ];
    for (kind, meaning) in kinds {
        let mut heard = signal(kind).map_err(anyhow::Error::from)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            while heard.recv().await.is_some() {
                stop.send_replace(Some(meaning));
            }
        });
    }
    Ok(())
}

/// Says what happened, and whether that was the end.
fn is_over(event: &Event) -> bool {
    match &event.what {
        Happening::RetryScheduled { due_at, failure, attempt, .. } => {
            let why = failure.as_ref().map_or("it failed", |failure| failure.message.as_str());
            let at = times::relative(*due_at, event.at);
            out::note(&format!("redrive: {why}; run {} {at}", attempt + 1));
            false
        }
        Happening::Dead { why, failure, .. } => {
            let said = failure.as_ref().map_or("it was not run", |failure| failure.message.as_str());
            out::note(&format!("redrive: {said}; given up: {}", because(*why)));
            true
        }
        Happening::Succeeded { .. } | Happening::Cancelled => true,
        _ => false,
    }
}

fn because(why: GiveUp) -> &'static str {
    match why {
        GiveUp::Exhausted => "no tries are left",
        GiveUp::Expired => "its time is over",
        GiveUp::Permanent => "another try would end in the same way",
        _ => why.as_str(),
    }
}

/// Runs the command, once for each attempt.
#[derive(Clone)]
struct Runner {
    command: Arc<Vec<OsString>>,
    leftover: Arc<Leftover>,
    stopping: watch::Receiver<Option<Signal>>,
    /// The exit code of the last try.
    last: Arc<Mutex<Option<u8>>>,
}

impl Handler<Words> for Runner {
    async fn run(&self, attempt: Attempt<Words>) -> Outcome {
        let variables =
            [("REDRIVE_JOB_ID", attempt.idempotency_key()), ("REDRIVE_ATTEMPT", attempt.number.to_string())];
        self.ended_with(TIMED_OUT);
        let ended = child::run(&self.command, &variables, &self.leftover, self.stopping.clone()).await;
        if let Some(code) = ended.code() {
            self.ended_with(code);
        }
        match ended {
            Ended::Code(0) => Outcome::Done(None),
            _ if self.stopping.borrow().is_some() => Outcome::Interrupted,
            Ended::Code(code) => {
                Outcome::Failed(Failure::retry(format!("it ended with {code}")).code(format!("EXIT_{code}")))
            }
            Ended::Signal(number) => {
                Outcome::Failed(Failure::retry(format!("signal {number} ended it")).code("KILLED"))
            }
            Ended::NotStarted(error) => {
                let name = self.command[0].to_string_lossy();
                let message = format!("{} cannot be started: {error}", printable(&name));
                Outcome::Failed(Failure::permanent(message))
            }
        }
    }
}

impl Runner {
    fn ended_with(&self, code: u8) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
    }

    /// What `redrive` itself ends with.
    async fn code(&self, engine: &Engine, job: JobId, signal: Option<Signal>) -> Done<u8> {
        let state = engine.get(job).await.map_err(lost)?.map(|detail| detail.job.state);
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match (state, signal) {
            (Some(State::Succeeded { .. }), _) => 0,
            (Some(State::Waiting { .. } | State::Running { .. }), Some(signal)) => {
                out::note("redrive: told to stop; the same command goes on from here");
                u8::try_from(128 + signal.as_raw()).unwrap_or(Exit::Interrupted as u8)
            }
            _ => last.unwrap_or(Exit::Failed as u8),
        })
    }
}
