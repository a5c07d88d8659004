//! The only place where a job's next state is decided.
//!
//! [`admit`] makes a job, [`settle`] answers the ending of an attempt, [`steer`] answers a person. All three are pure:
//! stores apply what they return and decide nothing, so every store behaves alike, a simulator runs the real thing,
//! and a page can print a job's next attempts by asking the same function.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Rng, Timestamp};
use crate::error::{Error, Result};
use crate::job::{AttemptRecord, Ending, Job, JobId, Json, Ledger, NewJob, OnConflict, Reason, State, When};
use crate::outcome::{Class, Failure, Outcome};
use crate::policy::{Ask, Decision, GiveUp, Origin, Policy};
use crate::queue::{Order, Queue};
use crate::span;
use crate::workflow::EXECUTION;

/// A job that asks to be called again this often does not know what it waits for.
pub const SNOOZES_MAX: u32 = 1_000;
/// How long a job rests that was claimed where nobody knows its kind.
pub const UNHANDLED_DELAY: Duration = Duration::from_secs(30);
/// Payloads and outputs are data to act on, not files to carry.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// The longest that somebody may put a job off: beyond are times that mean something else.
pub(crate) const WAIT_MAX: Duration = span::days(36_500);
/// What a job may leave behind.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Kinds, queues, keys and destinations are names.
pub const NAME_BYTES_MAX: usize = 256;
/// Labels of one job.
pub const LABELS_MAX: usize = 32;

/// A job about to be stored.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The job, complete but for its sequence number.
    pub job: Job,
    /// What to do when its key is taken.
    pub on_conflict: OnConflict,
    /// How many jobs its queue may hold.
    pub capacity: Option<u64>,
    /// What was tried before it came here.
    pub history: Vec<AttemptRecord>,
    /// The jobs of the same call that must have succeeded before it may begin.
    pub after: Vec<JobId>,
    /// Who asked for it.
    pub author: Option<Arc<str>>,
}

impl Admission {
    /// Lets it wait for other jobs of the same call. Their successes let it go, and nothing else does: it has no time of
    /// its own. Those others must have a parent, which this may be: if one of them ends badly, the parent is let go.
    ///
    /// # Errors
    ///
    /// If it has a key or an ordering key: it would wait for two things at once.
    pub fn held_behind(mut self, after: Vec<JobId>) -> Result<Admission> {
        let extras = self.job.extras();
        if extras.key.is_some() || extras.ordering_key.is_some() {
            return Err(Error::invalid(
                format!("the {:?} job waits for others and has a key or an order of its own", self.job.kind),
                "leave out its key and its ordering key, and choose a queue that is not first in, first out",
            ));
        }
        if !after.is_empty() {
            self.job.state = held();
        }
        self.after = after;
        Ok(self)
    }
}

/// How a job waits for others: it is due when they let it go.
pub(crate) fn held() -> State {
    waiting(Timestamp::MAX, Reason::Dependency)
}

/// Makes a job of what was asked for.
pub fn admit(new: NewJob, queue: &Queue, id: JobId, now: Timestamp, rng: &mut Rng) -> Result<Admission> {
    let payload = new.payload.clone().map_err(|error| {
        Error::invalid(
            format!("the payload of a {:?} job cannot be written as JSON: {error}", new.kind),
            "give every map string keys, and every field a type that serialises",
        )
    })?;
    let problems = problems(&new, &payload);
    if !problems.is_empty() {
        return Err(Error::invalid(format!("the {:?} job was not accepted", new.kind), problems.join("; ")));
    }
    let policy = new.policy.map_or_else(|| queue.policy.clone(), Arc::new);
    let mut extras = new.extras;
    extras.deadline = extras.deadline.or(policy.deadline.map(|d| now + d));
    extras.start_by = extras.start_by.or(policy.start_by.map(|d| now + d));
    if queue.order == Order::Fifo && extras.ordering_key.is_none() {
        extras.ordering_key = Some("".into());
    }
    let (due_at, reason) = match (new.when, new.origin) {
        (When::At(at), _) => (at.max(now), Reason::Scheduled),
        (When::After(delay), _) => (now + delay, Reason::Scheduled),
        (When::Now, Origin::Engine) => (now, Reason::Scheduled),
        (When::Now, Origin::External) => {
            let outside = new.history.last().and_then(|record| record.failure.as_ref());
            let delay = policy.first_delay_asked(outside.and_then(|failure| failure.retry_after), rng);
            (now + delay.wait, if delay.asked { Reason::RetryAfter } else { Reason::Backoff })
        }
    };
    if due_at.since(now) > WAIT_MAX {
        return Err(Error::invalid(
            format!("the {:?} job would be due at {due_at}, which is too far away", new.kind),
            "let it run within a hundred years",
        ));
    }
    let (history, ledger) = carried_over(new.history, now);
    let reason = if ledger.failures > 0 && reason == Reason::Scheduled { Reason::Backoff } else { reason };
    let job = Job {
        id,
        seq: 0,
        kind: new.kind,
        queue: new.queue,
        priority: new.priority,
        payload,
        policy,
        origin: new.origin,
        ledger,
        state: State::Waiting { due_at, reason },
        created_at: now,
        extras: (extras != Default::default()).then(|| Box::new(extras)),
    };
    if let Some(expires_at) = job.expires_at()
        && due_at >= expires_at
    {
        return Err(Error::invalid(
            format!(
                "the {:?} job would be due at {due_at}, after its time is over at {expires_at}",
                job.kind
            ),
            "let it run earlier, or give it a later deadline and a later time to start by",
        ));
    }
    let (on_conflict, capacity, author) = (new.on_conflict, queue.capacity, new.author);
    Ok(Admission { job, on_conflict, capacity, history, after: Vec::new(), author })
}

/// What was tried in-process keeps its numbers; a failure outside is remembered but is no attempt of ours.
fn carried_over(mut history: Vec<AttemptRecord>, now: Timestamp) -> (Vec<AttemptRecord>, Ledger) {
    let mut ledger = Ledger::default();
    for record in &mut history {
        if record.attempt == 0 {
            (record.started_at, record.ended_at) = (now, now);
        }
        ledger.attempt = ledger.attempt.max(record.attempt);
        ledger.failures += u32::from(record.attempt > 0 && record.ending == Ending::Failed);
        ledger.snoozes += u32::from(record.ending == Ending::Snoozed);
    }
    (history, ledger)
}

fn problems(new: &NewJob, payload: &Json) -> Vec<String> {
    let mut problems = content_problems(payload, &new.extras.labels, new.policy.as_ref());
    let names = [
        ("kind", Some(&new.kind)),
        ("queue", Some(&new.queue)),
        ("key", new.extras.key.as_ref()),
        ("ordering key", new.extras.ordering_key.as_ref()),
        ("destination", new.extras.destination.as_ref()),
        ("author", new.author.as_ref()),
    ];
    for (what, name) in names {
        if let Some(name) = name
            && (name.is_empty() || name.len() > NAME_BYTES_MAX)
        {
            problems.push(format!("its {what} has {} bytes: write 1 to {NAME_BYTES_MAX}", name.len()));
        }
    }
    if let Some(destination) = &new.extras.destination
        && destination.chars().any(char::is_control)
    {
        problems.push(format!("its destination {destination:?} has control characters: leave them out"));
    }
    problems
}

/// What is wrong with what a job carries.
pub(crate) fn content_problems(
    payload: &Json,
    labels: &BTreeMap<String, String>,
    policy: Option<&Policy>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let bytes = payload.as_str().len();
    if bytes > PAYLOAD_BYTES_MAX {
        problems.push(format!(
            "its payload has {bytes} bytes and {PAYLOAD_BYTES_MAX} are allowed: store the data elsewhere and put a reference into the job"
        ));
    }
    if labels.len() > LABELS_MAX || labels.iter().any(|(k, v)| k.len() + v.len() > NAME_BYTES_MAX) {
        problems.push(format!(
            "its labels are too many or too long: at most {LABELS_MAX} of {NAME_BYTES_MAX} bytes"
        ));
    }
    if labels.keys().any(String::is_empty) {
        problems.push("one of its labels has no name: give it one".to_owned());
    }
    if let Some(Err(found)) = policy.map(Policy::validate) {
        problems.extend(found);
    }
    problems
}

/// What a store must write when an attempt has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// The counters afterwards.
    pub ledger: Ledger,
    /// Where the job goes. Never `Running`.
    pub state: State,
    /// How the attempt ended.
    pub ending: Ending,
    /// Why, if it failed.
    pub failure: Option<Failure>,
    /// What it has in common with other failures of the same cause.
    pub fingerprint: Option<String>,
    /// Which rule judged the failure.
    pub rule: Option<String>,
    /// How long it will wait.
    pub delay: Option<Duration>,
    /// What it leaves behind.
    pub output: Option<Json>,
}

/// Answers the ending of an attempt.
pub fn settle(job: &Job, outcome: Outcome, now: Timestamp, rng: &mut Rng) -> Transition {
    let mut ledger = job.ledger;
    ledger.attempt = ledger.attempt.saturating_add(1);
    match outcome {
        Outcome::Done(output) => done(job, ledger, output, now, rng),
        Outcome::Snooze(_) if ledger.snoozes >= SNOOZES_MAX => {
            let failure = Failure::permanent(format!("asked to be called again {SNOOZES_MAX} times"));
            failed(job, ledger, failure, now, rng)
        }
        Outcome::Snooze(delay) => {
            ledger.snoozes += 1;
            let delay = delay.min(span::MAX);
            let wait = Transition::new(ledger, Ending::Snoozed, waiting(now + delay, Reason::Snoozed));
            wait.within_its_time(job, now).after(delay)
        }
        Outcome::Failed(failure) => failed(job, ledger, failure, now, rng),
        Outcome::Lost => crashed(job, ledger, now, rng),
        Outcome::Interrupted => {
            ledger.interruptions = ledger.interruptions.saturating_add(1);
            Transition::new(ledger, Ending::Interrupted, waiting(now, Reason::Interrupted))
        }
        Outcome::Unhandled => {
            ledger.holds = ledger.holds.saturating_add(1);
            let wait = waiting(now + UNHANDLED_DELAY, Reason::Unhandled);
            Transition::new(ledger, Ending::Unhandled, wait).within_its_time(job, now).after(UNHANDLED_DELAY)
        }
        Outcome::Expired => {
            Transition::new(ledger, Ending::Expired, State::Dead { at: now, why: GiveUp::Expired })
        }
        Outcome::Held(failure) => {
            ledger.holds = ledger.holds.saturating_add(1);
            Transition::new(ledger, Ending::Held, waiting(now, Reason::Held)).because(failure, job)
        }
    }
}

fn done(job: &Job, ledger: Ledger, output: Option<Json>, now: Timestamp, rng: &mut Rng) -> Transition {
    let mut transition = Transition::new(ledger, Ending::Succeeded, State::Succeeded { at: now });
    if output.as_ref().is_some_and(|json| json.as_str().len() > OUTPUT_BYTES_MAX) {
        let message = format!("its output is not JSON of at most {OUTPUT_BYTES_MAX} bytes");
        return failed(job, ledger, Failure::permanent(message), now, rng);
    }
    transition.output = output;
    transition
}

fn failed(job: &Job, mut ledger: Ledger, failure: Failure, now: Timestamp, rng: &mut Rng) -> Transition {
    ledger.failures = ledger.failures.saturating_add(1);
    let verdict = job.policy.classify(&failure);
    let mut transition = match verdict.class {
        Class::Permanent | Class::NeedsAuth => {
            Transition::new(ledger, Ending::Failed, State::Dead { at: now, why: GiveUp::Permanent })
        }
        Class::Transient | Class::RateLimited | Class::UnknownOutcome => {
            by_policy(job, ledger, Ending::Failed, failure.retry_after, now, rng)
        }
    };
    transition.rule = Some(verdict.rule);
    transition.because(failure, job)
}

fn crashed(job: &Job, mut ledger: Ledger, now: Timestamp, rng: &mut Rng) -> Transition {
    ledger.crashes = ledger.crashes.saturating_add(1);
    let mut transition = by_policy(job, ledger, Ending::Crashed, None, now, rng);
    transition.failure =
        Some(Failure::retry("the process that ran it died or lost its lease").code("CRASHED"));
    transition
}

fn by_policy(
    job: &Job,
    ledger: Ledger,
    ending: Ending,
    retry_after: Option<Duration>,
    now: Timestamp,
    rng: &mut Rng,
) -> Transition {
    let ask = Ask {
        failures: ledger.failures,
        crashes: ledger.crashes,
        origin: job.origin,
        age: job.age(now),
        retry_after,
        previous: job.extras().last_delay,
    };
    match job.policy.decide(&ask, rng) {
        Decision::GiveUp(why) => Transition::new(ledger, ending, State::Dead { at: now, why }),
        Decision::RetryIn(delay) => {
            let reason = match (ending, delay.asked) {
                (Ending::Crashed, _) => Reason::Crashed,
                (_, true) => Reason::RetryAfter,
                (_, false) => Reason::Backoff,
            };
            let wait = Transition::new(ledger, ending, waiting(now + delay.wait, reason));
            wait.within_its_time(job, now).after(delay.wait)
        }
    }
}

fn waiting(due_at: Timestamp, reason: Reason) -> State {
    State::Waiting { due_at, reason }
}

impl Transition {
    /// Makes the job what it is afterwards.
    pub(crate) fn apply_to(&self, job: &mut Job) {
        job.ledger = self.ledger;
        job.state = self.state.clone();
        if let Some(delay) = self.delay {
            job.extras_mut().last_delay = Some(delay);
        }
    }

    fn new(ledger: Ledger, ending: Ending, state: State) -> Transition {
        let (failure, fingerprint, rule) = (None, None, None);
        Transition { ledger, state, ending, failure, fingerprint, rule, delay: None, output: None }
    }

    /// A wait that ends after the job's time is over is no wait.
    fn within_its_time(mut self, job: &Job, now: Timestamp) -> Transition {
        if let State::Waiting { due_at, .. } = self.state
            && job.deadline().is_some_and(|deadline| due_at >= deadline)
        {
            self.state = State::Dead { at: now, why: GiveUp::Expired };
        }
        self
    }

    fn because(mut self, failure: Failure, job: &Job) -> Transition {
        self.fingerprint = Some(failure.fingerprint(&job.kind));
        self.failure = Some(failure);
        self
    }

    fn after(mut self, delay: Duration) -> Transition {
        self.delay = matches!(self.state, State::Waiting { .. }).then_some(delay);
        self
    }

    /// What a person's command makes of a job, in the form in which endings are written.
    pub(crate) fn steered(next: &Job, ending: Ending) -> Transition {
        Transition::new(next.ledger, ending, next.state.clone())
    }

    /// The attempt as it is kept.
    pub fn record(&self, started_at: Timestamp, ended_at: Timestamp) -> AttemptRecord {
        AttemptRecord {
            attempt: self.ledger.attempt,
            started_at,
            ended_at,
            ending: self.ending,
            failure: self.failure.clone(),
            fingerprint: self.fingerprint.clone(),
            rule: self.rule.clone(),
            next_at: match self.state {
                State::Waiting { due_at, .. } => Some(due_at),
                _ => None,
            },
        }
    }
}

/// Answers a row that is not what was written: it is never run.
pub(crate) fn corrupt(mut ledger: Ledger, now: Timestamp) -> Transition {
    ledger.attempt = ledger.attempt.saturating_add(1);
    let mut transition =
        Transition::new(ledger, Ending::Failed, State::Dead { at: now, why: GiveUp::Corrupt });
    let message = "the stored job is not what was written: its checksum does not match";
    transition.failure = Some(Failure::permanent(message).code("CORRUPT"));
    transition
}

/// What a person may ask of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Take it back, waiting or running.
    Cancel,
    /// Do not wait any longer.
    RetryNow,
    /// Wait until then instead.
    Reschedule(Timestamp),
    /// What it waits for after a failure is over: its destination is back.
    Hurry,
    /// Bring it back from the dead: counters restart, history stays, relative limits are measured from now. An execution
    /// that runs looks at its nodes again.
    Redrive,
    /// Forget a finished job.
    Delete,
}

/// The answer to a [`Command`].
#[derive(Clone, Debug, PartialEq)]
pub enum Steer {
    /// The job goes on like this.
    To(Box<Job>),
    /// The job is forgotten.
    Forget,
    /// Not in its present state, because of this.
    Refuse(&'static str),
}

/// Answers a person.
pub fn steer(job: &Job, command: Command, now: Timestamp) -> Steer {
    let mut next = job.clone();
    match (command, &job.state) {
        (Command::Cancel, State::Waiting { .. }) => next.state = State::Cancelled { at: now },
        (Command::Cancel, State::Running { .. }) => {
            // Ending the attempt here takes the lease away: what its handler reports later matches nothing.
            next.ledger.attempt = next.ledger.attempt.saturating_add(1);
            next.state = State::Cancelled { at: now };
        }
        (Command::RetryNow | Command::Reschedule(_), State::Waiting { reason: Reason::Dependency, .. }) => {
            return Steer::Refuse("it waits for the jobs that it comes after");
        }
        (Command::RetryNow, State::Waiting { .. }) => next.state = waiting(now, Reason::ByHand),
        (Command::Reschedule(at), State::Waiting { .. }) if at.since(now) > WAIT_MAX => {
            return Steer::Refuse("that is more than a hundred years away");
        }
        (Command::Reschedule(at), State::Waiting { .. })
            if job.expires_at().is_some_and(|over| over <= at && now < over) =>
        {
            return Steer::Refuse("its time is over by then; choose an earlier time");
        }
        (Command::Reschedule(at), State::Waiting { .. }) => next.state = waiting(at, Reason::ByHand),
        (Command::Hurry, State::Waiting { due_at, reason: Reason::Backoff | Reason::RetryAfter })
            if *due_at > now =>
        {
            next.state = waiting(now, Reason::Held);
        }
        (Command::Hurry, _) => return Steer::Refuse("it does not wait because of a failure"),
        (Command::Redrive, State::Dead { .. } | State::Cancelled { .. }) => redriven(&mut next, now),
        (Command::Redrive, State::Running { .. }) if *job.kind == *EXECUTION => {
            // It is concluding from nodes that may have come back meanwhile. As above, what it reports matches nothing.
            next.ledger.attempt = next.ledger.attempt.saturating_add(1);
            next.ledger.interruptions = next.ledger.interruptions.saturating_add(1);
            next.state = waiting(now, Reason::ByHand);
        }
        (Command::Delete, state) if state.is_final() => return Steer::Forget,
        (Command::Cancel, _) => return Steer::Refuse("it is finished"),
        (Command::RetryNow | Command::Reschedule(_), State::Running { .. }) => {
            return Steer::Refuse("it is running");
        }
        (Command::RetryNow | Command::Reschedule(_), State::Succeeded { .. }) => {
            return Steer::Refuse("it has succeeded; enqueue another to have it done again");
        }
        (Command::RetryNow | Command::Reschedule(_), _) => {
            return Steer::Refuse("it is finished; redrive it to bring it back");
        }
        (Command::Redrive, _) => return Steer::Refuse("only a dead or cancelled job can be redriven"),
        (Command::Delete, _) => return Steer::Refuse("it is not finished; cancel it first"),
    }
    Steer::To(Box::new(next))
}

fn redriven(job: &mut Job, now: Timestamp) {
    let Ledger { attempt, holds, interruptions, generation, .. } = job.ledger;
    job.ledger = Ledger { attempt, holds, interruptions, generation: generation + 1, ..Ledger::default() };
    job.state = waiting(now, Reason::ByHand);
    // The old limits would kill it again at once; an absolute one cannot be kept by bringing it back later.
    let deadline = job.policy.deadline.map(|d| now + d);
    let extras = job.extras_mut();
    extras.deadline = deadline;
    extras.start_by = None;
    extras.last_delay = None;
    extras.revived_at = Some(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Rng;
    use crate::span::{days, mins, secs};
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    /// A job that has waited for a minute, with one second between tries and three retries.
    fn job(ledger: Ledger) -> Job {
        Job {
            id: JobId::new(NOW, 0, &mut Rng::seeded(1)),
            seq: 1,
            kind: "task".into(),
            queue: "default".into(),
            priority: 0,
            payload: Json::of("payload").unwrap(),
            policy: Arc::new(Policy::fixed(secs(1)).retries(3)),
            origin: Origin::Engine,
            ledger,
            state: State::Running { since: NOW - secs(1) },
            created_at: NOW - mins(1),
            extras: None,
        }
    }

    fn with_deadline(mut job: Job, deadline: Timestamp) -> Job {
        job.extras_mut().deadline = Some(deadline);
        job
    }

    fn settled(job: &Job, outcome: Outcome) -> Transition {
        settle(job, outcome, NOW, &mut job.id.rng(job.attempt()))
    }

    fn retry() -> Outcome {
        Outcome::Failed(Failure::retry("busy"))
    }

    fn wait(delay: Duration, reason: Reason) -> State {
        waiting(NOW + delay, reason)
    }

    fn dead(why: GiveUp) -> State {
        State::Dead { at: NOW, why }
    }

    #[test]
    fn a_name_that_is_given_has_letters() {
        let mail = || NewJob::of_kind("mail", Json::of("payload").unwrap());
        let refused = |new: NewJob| {
            let id = JobId::new(NOW, 0, &mut Rng::seeded(1));
            admit(new, &Queue::new("default"), id, NOW, &mut Rng::seeded(1))
                .err()
                .map(|error| error.to_string())
        };
        for (new, said) in [
            (mail().key(""), "its key has 0 bytes: write 1 to 256"),
            (mail().ordering_key(""), "its ordering key has 0 bytes: write 1 to 256"),
            (mail().destination(""), "its destination has 0 bytes: write 1 to 256"),
            (mail().destination("a\nb"), r#"its destination "a\nb" has control characters: leave them out"#),
            (mail().label("", "x"), "one of its labels has no name: give it one"),
        ] {
            let error = refused(new).expect(said);
            assert!(error.contains(said), "{error}");
        }
        let good = mail().key("k").ordering_key("o").destination("höst:443#a b").label("a", "");
        assert_eq!(refused(good), None);
    }

    #[test]
    fn every_outcome_leads_where_the_ledger_and_the_limits_say() {
        let fresh = Ledger::default();
        let tried = Ledger { attempt: 9, failures: 1, crashes: 1, snoozes: 4, holds: 1, ..fresh };
        let last_retry = Ledger { attempt: 3, failures: 3, ..fresh };
        let last_crash = Ledger { attempt: 2, crashes: 2, ..fresh };
        let last_snooze = Ledger { attempt: SNOOZES_MAX, snoozes: SNOOZES_MAX, ..fresh };
        let plus = |ledger: Ledger| Ledger { attempt: ledger.attempt + 1, ..ledger };
        let failed = |ledger: Ledger| Ledger { failures: ledger.failures + 1, ..plus(ledger) };
        let crashed = |ledger: Ledger| Ledger { crashes: ledger.crashes + 1, ..plus(ledger) };
        let snoozed = |ledger: Ledger| Ledger { snoozes: ledger.snoozes + 1, ..plus(ledger) };
        let held = |ledger: Ledger| Ledger { holds: ledger.holds + 1, ..plus(ledger) };
        let interrupted = |ledger: Ledger| Ledger { interruptions: ledger.interruptions + 1, ..plus(ledger) };
        let snooze = || Outcome::Snooze(mins(5));
        let asked = || Outcome::Failed(Failure::retry_after(mins(2), "429"));
        let never = || Outcome::Failed(Failure::permanent("no"));
        let credential = || Outcome::Failed(Failure::needs_auth("401"));
        let unknown = || Outcome::Failed(Failure::unknown_outcome("no answer"));
        let done = State::Succeeded { at: NOW };
        let table: Vec<(Ledger, Outcome, Ledger, Ending, State)> = vec![
            (fresh, Outcome::Done(None), plus(fresh), Ending::Succeeded, done.clone()),
            (last_retry, Outcome::Done(None), plus(last_retry), Ending::Succeeded, done),
            (fresh, retry(), failed(fresh), Ending::Failed, wait(secs(1), Reason::Backoff)),
            (tried, retry(), failed(tried), Ending::Failed, wait(secs(1), Reason::Backoff)),
            (fresh, unknown(), failed(fresh), Ending::Failed, wait(secs(1), Reason::Backoff)),
            (fresh, asked(), failed(fresh), Ending::Failed, wait(mins(2), Reason::RetryAfter)),
            (last_retry, retry(), failed(last_retry), Ending::Failed, dead(GiveUp::Exhausted)),
            (last_retry, asked(), failed(last_retry), Ending::Failed, dead(GiveUp::Exhausted)),
            (fresh, never(), failed(fresh), Ending::Failed, dead(GiveUp::Permanent)),
            (fresh, credential(), failed(fresh), Ending::Failed, dead(GiveUp::Permanent)),
            (fresh, Outcome::Lost, crashed(fresh), Ending::Crashed, wait(secs(1), Reason::Crashed)),
            (last_retry, Outcome::Lost, crashed(last_retry), Ending::Crashed, wait(secs(1), Reason::Crashed)),
            (last_crash, Outcome::Lost, crashed(last_crash), Ending::Crashed, dead(GiveUp::CrashLoop)),
            (last_crash, retry(), failed(last_crash), Ending::Failed, wait(secs(1), Reason::Backoff)),
            (fresh, snooze(), snoozed(fresh), Ending::Snoozed, wait(mins(5), Reason::Snoozed)),
            (last_retry, snooze(), snoozed(last_retry), Ending::Snoozed, wait(mins(5), Reason::Snoozed)),
            (last_snooze, snooze(), failed(last_snooze), Ending::Failed, dead(GiveUp::Permanent)),
            (
                last_retry,
                Outcome::Interrupted,
                interrupted(last_retry),
                Ending::Interrupted,
                wait(secs(0), Reason::Interrupted),
            ),
            (
                last_retry,
                Outcome::Unhandled,
                held(last_retry),
                Ending::Unhandled,
                wait(UNHANDLED_DELAY, Reason::Unhandled),
            ),
            (fresh, Outcome::Expired, plus(fresh), Ending::Expired, dead(GiveUp::Expired)),
        ];
        for (ledger, outcome, after, ending, state) in table {
            let what = format!("{outcome:?} with {ledger:?}");
            let transition = settled(&job(ledger), outcome);
            assert_eq!(transition.ledger, after, "{what}");
            assert_eq!((transition.ending, transition.state), (ending, state), "{what}");
        }
    }

    #[test]
    fn a_failure_is_kept_whatever_follows_from_it() {
        let exhausted = Ledger { attempt: 3, failures: 3, ..Ledger::default() };
        for ledger in [Ledger::default(), exhausted] {
            let transition = settled(&job(ledger), retry());
            assert_eq!(transition.failure.as_ref().map(|failure| failure.message.as_str()), Some("busy"));
            let record = transition.record(NOW - secs(1), NOW);
            assert_eq!((record.attempt, record.failure.is_some()), (ledger.attempt + 1, true));
            assert_eq!(record.next_at.is_some(), matches!(transition.state, State::Waiting { .. }));
        }
        let crash = settled(&job(Ledger::default()), Outcome::Lost);
        assert_eq!(crash.failure.and_then(|failure| failure.code).as_deref(), Some("CRASHED"));
    }

    #[test]
    fn a_wait_that_would_end_with_the_deadline_or_later_is_no_wait() {
        let until = |deadline| with_deadline(job(Ledger::default()), deadline);
        for outcome in [retry(), Outcome::Lost, Outcome::Snooze(secs(1))] {
            let in_time = settled(&until(NOW + Duration::from_millis(1_001)), outcome.clone());
            assert!(matches!(in_time.state, State::Waiting { .. }), "{outcome:?}");
            let late = settled(&until(NOW + secs(1)), outcome.clone());
            assert_eq!((late.state, late.delay), (dead(GiveUp::Expired), None), "{outcome:?}");
        }
        let done = settled(&until(NOW - secs(1)), Outcome::Done(None));
        assert_eq!(done.state, State::Succeeded { at: NOW }, "what is done is done");
    }

    #[test]
    fn time_in_line_moves_every_limit_where_it_does_not_count_and_none_where_it_does() {
        // Created a minute ago, it has ten seconds left; it stood in line for half of that minute.
        let policy = Policy::fixed(secs(20)).retries(9).within(secs(70)).deadline(secs(70));
        let settled_by = |policy: Policy| {
            let mut job = with_deadline(job(Ledger::default()), NOW + secs(10));
            (job.extras_mut().in_line, job.policy) = (secs(30), Arc::new(policy));
            (settled(&job, retry()).state, job.expires_at(), job.age(NOW))
        };
        let counted = settled_by(policy.clone());
        assert_eq!(counted, (dead(GiveUp::Expired), Some(NOW + secs(10)), mins(1)));
        let uncounted = settled_by(policy.except_while_held());
        assert_eq!(uncounted, (wait(secs(20), Reason::Backoff), Some(NOW + secs(40)), secs(30)));
    }

    #[test]
    fn an_output_over_the_limit_fails_for_good_and_one_within_is_kept() {
        let text = |bytes: usize| Outcome::Done(Json::of(&"x".repeat(bytes)).ok());
        let kept = settled(&job(Ledger::default()), text(OUTPUT_BYTES_MAX - 2));
        assert_eq!(kept.output.map(|output| output.as_str().len()), Some(OUTPUT_BYTES_MAX));
        let refused = settled(&job(Ledger::default()), text(OUTPUT_BYTES_MAX - 1));
        assert_eq!((refused.state, refused.output), (dead(GiveUp::Permanent), None));
    }

    #[test]
    fn commands_are_carried_out_or_refused_by_state() {
        let states = [
            wait(mins(1), Reason::Backoff),
            State::Running { since: NOW },
            State::Succeeded { at: NOW },
            dead(GiveUp::Exhausted),
            State::Cancelled { at: NOW },
        ];
        // For waiting, running, succeeded, dead, cancelled: whether it can be done.
        let table = [
            (Command::Cancel, [true, true, false, false, false]),
            (Command::RetryNow, [true, false, false, false, false]),
            (Command::Redrive, [false, false, false, true, true]),
            (Command::Delete, [false, false, true, true, true]),
        ];
        for (command, allowed) in table {
            for (state, allowed) in states.iter().zip(allowed) {
                let job = Job { state: state.clone(), ..job(Ledger::default()) };
                let answer = steer(&job, command, NOW);
                assert_eq!(!matches!(answer, Steer::Refuse(_)), allowed, "{command:?} while {state:?}");
            }
        }
    }

    #[test]
    fn cancelling_a_running_job_moves_the_fence_and_redriving_restarts_what_limits_it() {
        let Steer::To(cancelled) = steer(&job(Ledger::default()), Command::Cancel, NOW) else { panic!() };
        assert_eq!(cancelled.ledger.attempt, 1);
        let used = Ledger { attempt: 7, failures: 4, crashes: 2, snoozes: 1, holds: 3, ..Ledger::default() };
        let mut dead = with_deadline(job(used), NOW - secs(1));
        dead.state = State::Dead { at: NOW, why: GiveUp::Expired };
        let Steer::To(back) = steer(&dead, Command::Redrive, NOW) else { panic!() };
        assert_eq!(back.ledger, Ledger { attempt: 7, holds: 3, generation: 1, ..Ledger::default() });
        assert_eq!((back.expires_at(), back.age(NOW)), (None, Duration::ZERO));
    }

    fn any_ledger() -> impl Strategy<Value = Ledger> {
        (0..2_000u32, 0..6u32, 0..4u32, 0..=SNOOZES_MAX, 0..9u32, 0..9u32).prop_map(
            |(attempt, failures, crashes, snoozes, holds, interruptions)| Ledger {
                attempt,
                failures,
                crashes,
                snoozes,
                holds,
                interruptions,
                generation: 2,
            },
        )
    }

    fn any_outcome() -> impl Strategy<Value = Outcome> {
        let span = (0..200_000_000u64).prop_map(Duration::from_millis);
        prop_oneof![
            Just(Outcome::Done(None)),
            span.clone().prop_map(Outcome::Snooze),
            span.prop_map(|wait| Outcome::Failed(Failure::retry_after(wait, "429"))),
            Just(retry()),
            Just(Outcome::Failed(Failure::permanent("no"))),
            Just(Outcome::Lost),
            Just(Outcome::Interrupted),
            Just(Outcome::Unhandled),
            Just(Outcome::Expired),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_the_ledger_grows_by_its_own_and_the_job_goes_somewhere(
            before in any_ledger(),
            outcome in any_outcome(),
            deadline in prop::option::of(0..100_000_000i64),
            jitter in any::<bool>(),
        ) {
            let mut job = job(before);
            if jitter {
                job.policy = Arc::new(Policy::exponential(secs(1)..=days(1)).retries(5));
            }
            job.extras_mut().deadline = deadline.map(|ms| Timestamp::from_millis(NOW.as_millis() + ms));
            let transition = settled(&job, outcome.clone());
            let after = transition.ledger;
            prop_assert_eq!(&transition, &settled(&job, outcome.clone()), "the same attempt, the same answer");
            prop_assert_eq!(after.attempt, before.attempt + 1);
            prop_assert_eq!(after.generation, before.generation);
            prop_assert_eq!(after.failures - before.failures, u32::from(transition.ending == Ending::Failed));
            prop_assert_eq!(after.crashes - before.crashes, u32::from(transition.ending == Ending::Crashed));
            prop_assert_eq!(after.snoozes - before.snoozes, u32::from(transition.ending == Ending::Snoozed));
            prop_assert_eq!(after.holds - before.holds, u32::from(transition.ending == Ending::Unhandled));
            prop_assert_eq!(
                after.interruptions - before.interruptions,
                u32::from(transition.ending == Ending::Interrupted)
            );
            match transition.state {
                State::Running { .. } | State::Cancelled { .. } => prop_assert!(false, "nobody asked for that"),
                State::Waiting { due_at, reason } => {
                    prop_assert!(due_at >= NOW);
                    // A shutdown gives back at once, and what is out of time then is buried by the next claim.
                    let bounded = reason != Reason::Interrupted;
                    prop_assert!(!bounded || job.extras().deadline.is_none_or(|end| due_at <= end));
                }
                State::Dead { why: GiveUp::Expired, .. } => {
                    prop_assert!(outcome == Outcome::Expired || job.extras().deadline.is_some());
                }
                State::Dead { .. } | State::Succeeded { .. } => {}
            }
            prop_assert_eq!(transition.failure.is_some(), matches!(transition.ending, Ending::Failed | Ending::Crashed));
        }
    }

    #[test]
    fn nothing_waits_longer_than_it_may() {
        let id = JobId::new(NOW, 0, &mut Rng::seeded(1));
        let due =
            |new: NewJob| admit(new, &Queue::new("default"), id, NOW, &mut id.rng(0)).map(|a| a.job.due_at());
        let new = || NewJob::of_kind("task", Json::of("x").unwrap());
        assert_eq!(due(new().after(days(500))).unwrap(), NOW + days(500), "no shorter than was asked for");
        for late in
            [new().after(WAIT_MAX + secs(1)), new().run_at(Timestamp::MAX), new().after(Duration::MAX)]
        {
            assert!(due(late).unwrap_err().to_string().contains("too far away"));
        }
        let waits = Job { state: wait(secs(9), Reason::Scheduled), ..job(Ledger::default()) };
        let refused = |job: &Job, at| matches!(steer(job, Command::Reschedule(at), NOW), Steer::Refuse(_));
        assert!(!refused(&waits, NOW + WAIT_MAX) && refused(&waits, Timestamp::MAX));
        let ends = with_deadline(waits, NOW + mins(1));
        assert!(!refused(&ends, NOW + secs(59)) && refused(&ends, NOW + mins(1)));
    }
}
