//! Runs jobs of the kind `http`: sends what the payload says and makes an outcome of what comes back.
//!
//! The payload is read in `payload.rs`, an answer is judged in `answer.rs`, and the sending is the guard's
//! (`egress.rs`). Here is the order of things: is the outcome of the last try known, which source is asked, how long
//! may it take.

mod answer;
mod payload;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, USER_AGENT};
use redrive::{
    Attempt, AttemptRecord, By, Class, Clock, Ending, Failure, Fallback, Handler, JobDetail, Json, Limit,
    NODE_LABEL, Origin, Outcome, Payload, Store, Timestamp, millis,
};
use serde::{Deserialize, Serialize};

use super::signature::{Secret, Secrets};
use crate::egress::{Egress, Request, Response, Timeouts};
pub(crate) use answer::{refused, unanswered};
use payload::Plan;

/// What tells that it is us.
const AGENT: &str = concat!("redrive/", env!("CARGO_PKG_VERSION"));
/// The code of a failure to find out what the last try came to.
const VERIFY_FAILED: &str = "VERIFY_FAILED";
/// The code of a payload that cannot be read.
const INVALID_INPUT: &str = "INVALID_INPUT";
/// The code of a job for an endpoint that has no secret.
const ENDPOINT_UNKNOWN: &str = "ENDPOINT_UNKNOWN";
/// How long before the engine ends an attempt the executor does it itself, because it knows whether it was sent.
const MARGIN_MAX: Duration = millis(250);

/// The payload of a job of the kind `http`, as it was written: it is read when it is run, so that a mistake in it is a
/// failure with a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HttpJob(pub Json);

impl Payload for HttpJob {
    const KIND: &'static str = "http";

    fn destination(&self) -> Option<String> {
        Plan::read(self.0.as_str()).ok().map(|plan| plan.destination())
    }

    fn read(stored: &Json) -> Result<HttpJob, serde_json::Error> {
        Ok(HttpJob(stored.clone()))
    }
}

/// Sends HTTP requests. Register it with `Engine::builder(store).handle(executor)`.
#[derive(Clone)]
pub struct HttpExecutor {
    egress: Egress,
    secrets: Arc<Secrets>,
    clock: Clock,
    store: Option<Arc<dyn Store>>,
}

impl HttpExecutor {
    /// Sends through this guard, and signs with these secrets.
    pub fn new(egress: Egress, secrets: Secrets) -> HttpExecutor {
        HttpExecutor { egress, secrets: Arc::new(secrets), clock: Clock::system(), store: None }
    }

    /// Looks up here what the last try of a job came to. Without it, a job with a `verify` asks before every try but
    /// its first.
    #[must_use]
    pub fn history(mut self, store: Arc<dyn Store>) -> HttpExecutor {
        self.clock = store.clock();
        self.store = Some(store);
        self
    }

    /// Whether a payload can be run, as far as it can be known before: everything but where its names lead. Answers whose
    /// health matters to the job: the host of its first URL, with the port if it is not the usual one.
    ///
    /// It is read as it was written, as it will be when it is run: a name that is there twice is a mistake here too.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for whoever wrote it.
    pub fn check(payload: &str) -> Result<String, String> {
        Plan::read(payload).map(|plan| plan.destination())
    }

    /// The same where it is known which endpoints have a secret.
    ///
    /// # Errors
    ///
    /// Likewise; and that the payload names another endpoint.
    pub fn check_with(payload: &str, endpoints: &BTreeSet<String>) -> Result<String, String> {
        let plan = Plan::read(payload)?;
        match &plan.endpoint {
            Some(name) if !endpoints.contains(name) => {
                let known: Vec<&str> = endpoints.iter().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(format!(
                    "there is no endpoint {name:?}; known here: {known}; the operator adds one in the configuration, \
                     as [endpoints.NAME]"
                ))
            }
            _ => Ok(plan.destination()),
        }
    }

    async fn attempt(&self, attempt: &Attempt<HttpJob>) -> Result<Outcome, Failure> {
        let mut plan = Plan::read(attempt.payload.0.as_str())
            .map_err(|problem| Failure::permanent(problem).code(INVALID_INPUT))?;
        // What only some jobs need is boxed, here and below: all of them would carry the room for it.
        if attempt.job().extras().labels.contains_key(NODE_LABEL) && plan.wants_body() {
            plan.give_body(&Box::pin(attempt.inputs()).await?);
        }
        let errand = self.errand(attempt, &plan)?;
        if let Some(verify) = plan.verify.take()
            && Box::pin(self.is_in_doubt(attempt)).await?
            && let Some(done) = Box::pin(errand.verify(verify)).await?
        {
            return Ok(done);
        }
        errand.run(plan.sources).await
    }

    fn errand(&self, attempt: &Attempt<HttpJob>, plan: &Plan) -> Result<Errand, Failure> {
        let secrets = match &plan.endpoint {
            None => Vec::new(),
            Some(name) if self.secrets.knows(name) => self.secrets.of(name).to_vec(),
            // To send it unsigned would be worse than not to send it.
            Some(name) => {
                let message = format!(
                    "there is no secret for the endpoint {name:?}; add one to the configuration, then redrive the job"
                );
                return Err(Failure::permanent(message).code(ENDPOINT_UNKNOWN));
            }
        };
        let limit = attempt.job().timeout();
        let over_at = limit.map(|limit| self.clock.now() + limit.saturating_sub(MARGIN_MAX.min(limit / 10)));
        Ok(Errand {
            egress: self.egress.clone(),
            clock: self.clock.clone(),
            secrets,
            id: attempt.idempotency_key(),
            number: attempt.number,
            attempts_max: attempts_max(attempt),
            over_at,
        })
    }

    /// Whether nobody knows what the last try came to.
    async fn is_in_doubt(&self, attempt: &Attempt<HttpJob>) -> Result<bool, Failure> {
        if attempt.number == 1 {
            return Ok(false);
        }
        let Some(store) = &self.store else { return Ok(true) };
        let detail = store.get(attempt.id).await.map_err(|error| {
            Failure::retry(format!("what the last try came to could not be looked up: {error}"))
                .code(VERIFY_FAILED)
        })?;
        Ok(detail.is_none_or(|detail| ended_in_doubt(&detail)))
    }
}

impl Handler<HttpJob> for HttpExecutor {
    async fn run(&self, attempt: Attempt<HttpJob>) -> Outcome {
        HttpExecutor::attempt(self, &attempt).await.unwrap_or_else(Outcome::Failed)
    }
}

/// Sends a request for a handler of your own, and judges what comes back as that of an `http` job is judged: an answer
/// that is no success is a failure with its status and the wait it asks for, and no answer is one with a code. So is a
/// success of which only a part could be read: half an answer is not what was asked for.
///
/// # Errors
///
/// That failure.
pub async fn ask(egress: &Egress, request: Request, clock: &Clock) -> Result<Response, Failure> {
    let host = request.destination();
    let response = egress.send(request).await.map_err(answer::unanswered)?;
    match judged(&host, response, clock)? {
        cut if cut.truncated => Err(answer::cut_short(&host)),
        whole => Ok(whole),
    }
}

fn judged(host: &str, response: Response, clock: &Clock) -> Result<Response, Failure> {
    match response.status.is_success() {
        true => Ok(response),
        false => Err(answer::refused(host, &response, clock.now())),
    }
}

/// How many tries the policy allows, if it counts them.
fn attempts_max(attempt: &Attempt<HttpJob>) -> Option<u32> {
    let job = attempt.job();
    match (job.policy.limit, job.origin) {
        (Limit::None, _) => None,
        (Limit::Attempts(count), _) | (Limit::Retries(count), Origin::External) => Some(count),
        (Limit::Retries(count), Origin::Engine) => Some(count.saturating_add(1)),
    }
}

/// A try that was cut short leaves the same doubt as one without an answer. One that ended before it came to sending
/// leaves the doubt as it was.
fn ended_in_doubt(detail: &JobDetail) -> bool {
    let is_code = |record: &AttemptRecord, codes: &[&str]| {
        let code = record.failure.as_ref().and_then(|failure| failure.code.as_deref());
        code.is_some_and(|code| codes.contains(&code))
    };
    let said_nothing = |record: &&AttemptRecord| {
        matches!(record.ending, Ending::Unhandled | Ending::Expired | Ending::Snoozed)
            || is_code(record, &[VERIFY_FAILED, INVALID_INPUT, ENDPOINT_UNKNOWN])
    };
    let last = detail.attempts.iter().rev().find(|record| !said_nothing(record));
    last.is_some_and(|record| match (record.ending, &record.failure) {
        (Ending::Crashed | Ending::Interrupted | Ending::Cancelled, _) => true,
        (Ending::Failed, Some(failure)) => {
            // The engine's own time limit says nothing about what was sent, and says it in its own name.
            let cut_off = failure.by == By::Handler && is_code(record, &["TIMEOUT"]);
            failure.class == Class::UnknownOutcome || cut_off
        }
        _ => false,
    })
}

/// One attempt on its way: what all its requests have in common. They are boxed, since every future on their way would
/// have room for one, and that twice.
#[derive(Clone)]
struct Errand {
    egress: Egress,
    clock: Clock,
    secrets: Vec<Secret>,
    id: String,
    number: u32,
    attempts_max: Option<u32>,
    over_at: Option<Timestamp>,
}

impl Errand {
    /// Asks the one source, or one after the other.
    async fn run(&self, mut sources: Vec<Request>) -> Result<Outcome, Failure> {
        if sources.len() == 1
            && let Some(only) = sources.pop()
        {
            return Ok(answer::done(&self.ask(Box::new(only)).await?, None));
        }
        Box::pin(self.fall_back(sources)).await
    }

    async fn fall_back(&self, all: Vec<Request>) -> Result<Outcome, Failure> {
        let shared = Arc::new(self.clone());
        let mut sources: Fallback<(), Result<Response, Failure>> = Fallback::new();
        for source in all {
            let errand = shared.clone();
            sources = sources.source(source.destination(), move |()| {
                let (errand, source) = (errand.clone(), Box::new(source.clone()));
                async move { errand.ask_as_source(source).await }
            });
        }
        let found = sources.run(()).await?;
        Ok(answer::done(&found.value?, Some(&found.source)))
    }

    /// A source that may have acted ends the search, as one that has answered does: to ask the next could do it twice.
    async fn ask_as_source(&self, source: Box<Request>) -> Result<Result<Response, Failure>, Failure> {
        let is_safe = source.method.is_safe();
        match self.ask(source).await {
            Err(failure) if failure.class == Class::UnknownOutcome && !is_safe => Ok(Err(failure)),
            asked => asked.map(Ok),
        }
    }

    async fn ask(&self, source: Box<Request>) -> Result<Response, Failure> {
        let host = source.destination();
        let response = self.send(source).await?;
        judged(&host, response, &self.clock)
    }

    /// Asks what the last try came to: the outcome if it was done, none if it was not.
    async fn verify(&self, question: Box<Request>) -> Result<Option<Outcome>, Failure> {
        let unsure = |why: String| {
            Failure::retry(format!("whether it was done could not be found out: {why}")).code(VERIFY_FAILED)
        };
        match self.send(question).await {
            Ok(response) if response.status.is_success() => Ok(Some(answer::verified(&response))),
            Ok(response) if response.status == http::StatusCode::NOT_FOUND => Ok(None),
            Ok(response) => {
                let status = response.status.as_u16();
                let mut failure = unsure(format!("status {status}")).status(status);
                failure.retry_after = answer::retry_after(&response.headers, self.clock.now());
                Err(failure)
            }
            Err(failure) => Err(unsure(failure.message)),
        }
    }

    async fn send(&self, mut request: Box<Request>) -> Result<Response, Failure> {
        request.timeouts = self.timeouts();
        if request.timeouts.total.is_zero() {
            let message = format!("no time was left to ask {}", request.destination());
            return Err(Failure::from_code("TIMEOUT", message));
        }
        self.add_headers(&mut request);
        self.egress.send(*request).await.map_err(answer::unanswered)
    }

    /// A job's own limit replaces the usual ones; what is left of it is shared by all sources.
    fn timeouts(&self) -> Timeouts {
        let usual = Timeouts::default();
        match self.over_at {
            None => usual,
            Some(over_at) => {
                let left = over_at.since(self.clock.now());
                Timeouts { first_byte: left, total: left, ..usual }
            }
        }
    }

    /// What the far side needs to recognise a repetition, and to know that it is us.
    fn add_headers(&self, request: &mut Request) {
        const ATTEMPT: HeaderName = HeaderName::from_static("redrive-attempt");
        const ATTEMPTS_MAX: HeaderName = HeaderName::from_static("redrive-max-attempts");
        const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
        let headers = &mut request.headers;
        headers.insert(ATTEMPT, self.number.into());
        if let Some(max) = self.attempts_max {
            headers.insert(ATTEMPTS_MAX, max.into());
        }
        if !self.secrets.is_empty() {
            self.sign(headers, &request.body);
        }
        // A user may know better what names a repetition on the far side, and as whom to go there.
        headers.entry(IDEMPOTENCY_KEY).or_insert_with(|| plain(&self.id));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    }

    fn sign(&self, headers: &mut HeaderMap, body: &Bytes) {
        let unix_seconds = self.clock.now().as_millis().div_euclid(1_000);
        let signatures: Vec<String> =
            self.secrets.iter().map(|secret| secret.sign(&self.id, unix_seconds, body)).collect();
        headers.insert("webhook-id", plain(&self.id));
        headers.insert("webhook-timestamp", unix_seconds.into());
        headers.insert("webhook-signature", plain(&signatures.join(" ")));
    }
}

fn plain(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("ids and base64 are plain ASCII")
}
