//! Workers elsewhere, in any language: they lease jobs, say that they are still there, and report what came of it.
//!
//! A worker is known by an id that it is given with its first lease. A lease is the right to settle one attempt, and
//! nothing else. Both are sealed for the token they were given to, and are worth nothing to others. Nothing of either is
//! kept in the process, so a server may be replaced in between.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use redrive::{
    ClaimId, Failure, HolderId, JobId, Json, LEASE_MAX, Lease, Lending, OUTPUT_BYTES_MAX, Outcome, Renewal,
    Settled, Timestamp, mins, secs,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Path, Refused, invalid, ok};
use super::forms::Span;
use super::seal::{DIGITS, Sealed};
use super::views::JobView;
use crate::door::{Refusal, Scope, Who};
use crate::redact::redact;

/// How long a worker may be silent unless it says otherwise.
const LEASE_FOR: Duration = secs(30);
/// The longest silence.
const LEASE_FOR_MAX: Duration = mins(60);
/// The longest wait for a job.
const WAIT_MAX: Duration = secs(60);

/// How long a worker's name may be: as long as that of a machine.
const WORKER_CHARS_MAX: usize = 255;
/// What a code may have beside letters and digits.
const CODE_SIGNS: &[u8] = b"_-.:";

/// A lease as text, without its seal.
const LEASE_DIGITS: usize = 88;

/// What a worker asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "worker": "resizer-1", "kinds": ["resize"], "limit": 5, "wait": "1s" }))]
pub(super) struct LeaseForm {
    /// The id that the first answer gave; a worker without one gets one.
    worker_id: Option<String>,
    /// What it is called where people look.
    #[schema(max_length = 255, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")]
    worker: Option<String>,
    /// Jobs of these kinds.
    #[schema(min_items = 1, max_items = 100)]
    kinds: Vec<String>,
    /// From these queues; from all if none is named.
    #[serde(default)]
    queues: Vec<String>,
    /// At most this many: 1 to 1,000, 1 if not given.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// How long to wait for the first one, at most a minute and half of `leaseFor`; not at all if not given.
    wait: Option<Span>,
    /// How long the worker may be silent before its jobs go to others: 1 s to 1 h, 30 s if not given.
    lease_for: Option<Span>,
}

/// What a worker gets.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeasesView {
    /// Send it with the next request.
    worker_id: String,
    /// Until when the jobs are its own, unless it is heard of before.
    #[schema(value_type = String, format = DateTime)]
    lease_until: Timestamp,
    jobs: Vec<LeasedView>,
}

/// A leased job.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeasedView {
    /// The right to settle this attempt.
    lease: String,
    /// Which run this is.
    run: u32,
    /// Of a node of a workflow: the execution's input, and the outputs of the nodes that it comes after.
    #[schema(value_type = Option<serde_json::Value>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    inputs: Option<redrive::Inputs>,
    #[serde(flatten)]
    job: JobView,
}

/// Leases jobs, as soon as there are some.
#[utoipa::path(post, path = "/api/v1/workers/lease", operation_id = "leaseJobs", tag = "workers", request_body = LeaseForm, responses(
    (status = 200, body = Envelope<LeasesView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn lease(state: State<Api>, who: Who, body: Body<LeaseForm>) -> Answer<LeasesView> {
    let LeaseForm { worker_id, worker, mut kinds, queues, limit, wait, lease_for } = body.value;
    let queues = queues_for(&state, &who, queues)?;
    if worker.as_deref().is_some_and(|name| !is_name(name)) {
        let hint = format!("write at most {WORKER_CHARS_MAX} characters on one line");
        return Err(invalid("the name of the worker is too long, or has control characters", hint));
    }
    let lease_for = lease_span(lease_for)?;
    let limit = limit.unwrap_or(1);
    if !(1..=LEASE_MAX).contains(&limit) {
        return Err(invalid(format!("limit is {limit}"), format!("write a number from 1 to {LEASE_MAX}")));
    }
    if kinds.is_empty() || kinds.len() > 100 {
        return Err(invalid("kinds must name 1 to 100 kinds", "send the kinds that the worker can run"));
    }
    kinds.sort();
    kinds.dedup();
    let worker = match worker_id {
        Some(id) => {
            let id = holder(&state, &who, &id).await?;
            kept(&state, id, lease_for).await?;
            id
        }
        None => state.engine().join(worker.as_deref().unwrap_or("worker"), lease_for).await?,
    };
    // First of all: what was leased and cannot be handed out is nobody's until the lease is over.
    let worker_id = worker_text(&state, &who, worker).await?;
    let wait = wait.map_or(Duration::ZERO, |wait| wait.0).min(WAIT_MAX).min(lease_for / 2);
    let kinds = kinds.into_iter().map(Arc::from).collect();
    let asked = Lending { worker, kinds, queues, limit, wait };
    let leased = state.engine().lease_unless(&asked, state.dismisses(&who)).await?;
    // What was waited for has used up some of it. The time is taken first: a worker must not be promised more than the
    // store was told.
    let lease_until = state.engine().now() + lease_for;
    kept(&state, worker, lease_for).await?;
    let insider = Who { scopes: vec![Scope::ReadPayload], ..who };
    let mut jobs = Vec::with_capacity(leased.len());
    for (lease, job) in leased {
        // A worker that cannot be given them has the job nevertheless, and reports what it makes of that.
        let inputs = state.engine().inputs(&job).await.unwrap_or_default();
        let (lease, run) = (lease_text(&state, &insider, &lease).await?, job.attempt());
        jobs.push(LeasedView { lease, run, inputs, job: JobView::of(job, &insider) });
    }
    ok(LeasesView { worker_id, lease_until, jobs })
}

/// Whether a worker may be called so: lists and logs show its name.
fn is_name(name: &str) -> bool {
    name.chars().count() <= WORKER_CHARS_MAX && !name.contains(char::is_control)
}

/// The queues a worker may work on.
fn queues_for(api: &Api, who: &Who, named: Vec<String>) -> Result<Vec<Arc<str>>, Refusal> {
    if who.may(&Scope::Work) {
        return Ok(named.into_iter().map(Arc::from).collect());
    }
    let mine = |name: &str| who.may(&Scope::WorkOn(name.to_owned()));
    match named.iter().find(|name| !mine(name)) {
        Some(foreign) => return Err(who.need(Scope::WorkOn(foreign.clone())).err().unwrap_or_else(lost)),
        None if !named.is_empty() => return Ok(named.into_iter().map(Arc::from).collect()),
        None => {}
    }
    let all: Vec<Arc<str>> =
        api.engine().queues().map(|queue| queue.name()).filter(|name| mine(name)).map(Arc::from).collect();
    if all.is_empty() { Err(who.need(Scope::Work).err().unwrap_or_else(lost)) } else { Ok(all) }
}

fn lease_span(asked: Option<Span>) -> Result<Duration, Refusal> {
    let lease = asked.map_or(LEASE_FOR, |asked| asked.0);
    if lease < secs(1) || lease > LEASE_FOR_MAX {
        return Err(invalid("leaseFor is out of range", "write a duration from 1s to 1h"));
    }
    Ok(lease)
}

/// A worker's id as text, for whoever it was given to.
async fn worker_text(api: &Api, who: &Who, worker: HolderId) -> Result<String, Refusal> {
    let text = format!("{:032x}", worker.0);
    let seal = api.seals().make(api.engine(), Sealed::Worker(&text), who).await?;
    Ok(text + &seal)
}

/// Reads what [`worker_text`] wrote.
async fn holder(api: &Api, who: &Who, text: &str) -> Result<HolderId, Refusal> {
    let read = || {
        let (id, seal) = text.split_at_checked(32).filter(|(_, seal)| seal.len() == DIGITS)?;
        Some((id, seal, u128::from_str_radix(id, 16).ok()?))
    };
    let Some((id, seal, worker)) = read() else {
        return Err(invalid(format!("{text:?} is no workerId"), "send the one you were given"));
    };
    if api.seals().is_of(api.engine(), seal, Sealed::Worker(id), who).await? {
        Ok(HolderId(worker))
    } else {
        Err(forgotten())
    }
}

/// The lease is lost: somebody else has the job by now, or it was taken back.
fn lost() -> Refusal {
    Refusal::new(409, "LEASE_LOST", "this lease is lost: nothing was changed")
        .hint("drop the job: it is tried again elsewhere, was cancelled, or was reported before")
}

async fn kept(api: &Api, worker: HolderId, lease: Duration) -> Result<Vec<Lease>, Refusal> {
    match api.engine().keep(worker, lease).await? {
        Renewal::Kept { lost } => Ok(lost),
        Renewal::Gone => Err(forgotten()),
    }
}

fn forgotten() -> Refusal {
    Refusal::new(409, "LEASE_LOST", "this worker was silent for too long and is forgotten")
        .hint("drop what it holds, and lease again without a workerId")
}

/// A worker is still there.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct HeartbeatForm {
    worker_id: String,
    /// How long it may be silent from now on.
    lease_for: Option<Span>,
}

/// How its leases stand.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeartbeatView {
    #[schema(value_type = String, format = DateTime)]
    lease_until: Timestamp,
    /// Jobs that were taken away: stop working on them.
    #[schema(value_type = Vec<String>)]
    lost: Vec<JobId>,
}

/// Says that a worker is still there: it keeps everything it has leased, however much that is.
#[utoipa::path(post, path = "/api/v1/workers/heartbeat", operation_id = "sendHeartbeat", tag = "workers", request_body = HeartbeatForm, responses(
    (status = 200, body = Envelope<HeartbeatView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn heartbeat(
    state: State<Api>,
    who: Who,
    body: Body<HeartbeatForm>,
) -> Answer<HeartbeatView> {
    works(&who)?;
    let lease_for = lease_span(body.value.lease_for)?;
    let lease_until = state.engine().now() + lease_for;
    let lost = kept(&state, holder(&state, &who, &body.value.worker_id).await?, lease_for).await?;
    ok(HeartbeatView { lease_until, lost: lost.into_iter().map(|lease| lease.job).collect() })
}

/// Whoever may work somewhere; on what, the lease itself says.
fn works(who: &Who) -> Result<(), Refusal> {
    let somewhere = who.scopes.iter().any(|scope| matches!(scope, Scope::WorkOn(_)));
    if somewhere { Ok(()) } else { who.need(Scope::Work) }
}

/// A lease as text, for whoever it was given to.
async fn lease_text(api: &Api, who: &Who, lease: &Lease) -> Result<String, Refusal> {
    let text = write(lease);
    let seal = api.seals().make(api.engine(), Sealed::Lease(&text), who).await?;
    Ok(text + &seal)
}

/// The claim, the job, its place and the attempt.
fn write(lease: &Lease) -> String {
    format!("{:032x}{:032x}{:016x}{:08x}", lease.claim.0, lease.job.as_u128(), lease.seq, lease.attempt)
}

/// Reads what [`write`] wrote. Whatever else it is, is a lease that nobody has.
fn read(text: &str) -> Result<Lease, Refusal> {
    let part = |from: usize, to: usize| u128::from_str_radix(text.get(from..to)?, 16).ok();
    let lease = || {
        let job = part(32, 64)?;
        let id = format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            job >> 96,
            (job >> 80) & 0xffff,
            (job >> 64) & 0xffff,
            (job >> 48) & 0xffff,
            job & 0xffff_ffff_ffff
        );
        Some(Lease {
            claim: ClaimId(part(0, 32)?),
            job: id.parse().ok()?,
            seq: i64::try_from(part(64, 80)?).ok()?,
            attempt: u32::try_from(part(80, 88)?).ok()?,
        })
    };
    if text.len() == LEASE_DIGITS && text.is_ascii() { lease().ok_or_else(lost) } else { Err(lost()) }
}

async fn report(api: &Api, who: &Who, token: &str, outcome: Outcome) -> Answer<ReportView> {
    works(who)?;
    let (text, seal) = token.split_at_checked(LEASE_DIGITS).ok_or_else(lost)?;
    let lease = read(text)?;
    if !who.may(&Scope::Work) {
        let queue = api.engine().get(lease.job).await?.map(|detail| detail.job.queue.to_string());
        who.need(Scope::WorkOn(queue.unwrap_or_default()))?;
    }
    if !api.seals().is_of(api.engine(), seal, Sealed::Lease(text), who).await? {
        return Err(lost());
    }
    match api.engine().report(lease, outcome).await? {
        Settled::Refused => Err(lost()),
        Settled::Applied | Settled::Again | Settled::Next(_) => {
            let state = api.engine().get(lease.job).await?.map(|detail| detail.job.state);
            let due_at = match state {
                Some(redrive::State::Waiting { due_at, .. }) => Some(due_at),
                _ => None,
            };
            ok(ReportView { id: lease.job, state: state.map(|state| state.name()), due_at })
        }
    }
}

/// Where the job stands after a report.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReportView {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    #[schema(value_type = Option<super::schemas::State>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<redrive::StateName>,
    /// When it will be tried again.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
}

/// What a finished job leaves behind.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteForm {
    /// Any JSON.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Box<RawValue>>,
}

/// A leased job is done.
#[utoipa::path(post, path = "/api/v1/leases/{lease}/complete", operation_id = "completeLease", tag = "workers", params(("lease" = String, Path)), request_body = Option<CompleteForm>, responses(
    (status = 200, body = Envelope<ReportView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn complete(
    state: State<Api>,
    who: Who,
    lease: Path<String>,
    body: Option<Body<CompleteForm>>,
) -> Answer<ReportView> {
    let output = match body.and_then(|body| body.value.output) {
        None => None,
        Some(raw) => {
            let value: serde_json::Value = serde_json::from_str(raw.get()).map_err(|error| {
                invalid(format!("the output is not JSON: {error}"), "send any JSON value")
            })?;
            let output = Json::from(value);
            if output.as_str().len() > OUTPUT_BYTES_MAX {
                let message =
                    format!("the output is longer than {OUTPUT_BYTES_MAX} bytes: nothing was changed");
                return Err(Refusal::new(413, "RETRY_TOO_LARGE", message)
                    .hint("store it elsewhere, and complete the job with a reference to it"));
            }
            Some(output)
        }
    };
    report(&state, &who, &lease.0, Outcome::Done(output)).await
}

/// Why a leased job failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "message": "the server is busy", "status": 503, "retryAfter": "30s" }))]
pub(super) struct FailForm {
    /// What happened, for people.
    message: String,
    /// `transient`, `rate_limited`, `permanent`, `needs_auth` or `unknown_outcome`; found out from the rest if not given.
    #[schema(value_type = Option<super::schemas::Class>)]
    class: Option<String>,
    /// A short name that programs compare: `TIMEOUT`.
    #[schema(value_type = Option<super::schemas::Code>)]
    code: Option<String>,
    /// The HTTP status, if there was one.
    #[schema(maximum = 65535)]
    status: Option<u16>,
    /// How long the far side asked us to wait.
    retry_after: Option<Span>,
}

/// A code as somebody elsewhere gave it, without a secret if that has the letters of a code.
pub(super) fn code_of(given: Option<String>) -> Result<Option<String>, Refusal> {
    let is_code = |code: &str| {
        (1..=Failure::CODE_CHARS_MAX).contains(&code.len())
            && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || CODE_SIGNS.contains(&byte))
    };
    match given {
        Some(code) if !is_code(&code) => Err(invalid(
            "the code of the failure is empty, too long, or more than one word",
            format!(
                "write 1 to {} letters, digits, _ - . and :, such as TIMEOUT; all else belongs into the message",
                Failure::CODE_CHARS_MAX
            ),
        )),
        given => Ok(given.map(|code| redact(&code).into_owned())),
    }
}

/// A failure from what is known of it: judged by all that was said, and kept without the secrets in it.
pub(super) fn failure_of(
    message: String,
    code: Option<String>,
    status: Option<u16>,
) -> Result<Failure, Refusal> {
    code_of(code.clone())?;
    let judged = Failure::judged(code, status, &message);
    // A key may have the letters of a code, or stand where one does.
    let code = judged.code.clone().filter(|code| redact(code) == *code);
    Ok(Failure { code, message: Failure::retry(redact(&message)).message, ..judged })
}

impl FailForm {
    fn into_failure(self) -> Result<Failure, Refusal> {
        let FailForm { message, class, code, status, retry_after } = self;
        let failure = match class.as_deref() {
            None => failure_of(message, code, status)?,
            Some(class) => {
                let (message, code) = (redact(&message), code_of(code)?);
                let failure = match class {
                    "transient" => Failure::retry(message),
                    "rate_limited" => Failure::rate_limited(message),
                    "permanent" => Failure::permanent(message),
                    "needs_auth" => Failure::needs_auth(message),
                    "unknown_outcome" => Failure::unknown_outcome(message),
                    other => {
                        let words = "write transient, rate_limited, permanent, needs_auth or unknown_outcome";
                        return Err(invalid(format!("there is no class {other:?}"), words));
                    }
                };
                let failure = code.into_iter().fold(failure, |failure, code| failure.code(code));
                status.into_iter().fold(failure, |failure, status| failure.status(status))
            }
        };
        Ok(retry_after.into_iter().fold(failure, |failure, wait| failure.after(wait.0)))
    }
}

/// A leased job failed. Its policy says whether and when it is tried again.
#[utoipa::path(post, path = "/api/v1/leases/{lease}/fail", operation_id = "failLease", tag = "workers", params(("lease" = String, Path)), request_body = FailForm, responses(
    (status = 200, body = Envelope<ReportView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn fail(
    state: State<Api>,
    who: Who,
    lease: Path<String>,
    body: Body<FailForm>,
) -> Answer<ReportView> {
    let failure = body.value.into_failure()?;
    report(&state, &who, &lease.0, Outcome::Failed(failure)).await
}

/// For how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LaterForm {
    delay: Span,
}

/// A leased job is to be called again later; that is no failure.
#[utoipa::path(post, path = "/api/v1/leases/{lease}/snooze", operation_id = "snoozeLease", tag = "workers", params(("lease" = String, Path)), request_body = LaterForm, responses(
    (status = 200, body = Envelope<ReportView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn snooze(
    state: State<Api>,
    who: Who,
    lease: Path<String>,
    body: Body<LaterForm>,
) -> Answer<ReportView> {
    report(&state, &who, &lease.0, Outcome::Snooze(body.value.delay.0)).await
}

/// A leased job is given back at no cost: the worker shuts down.
#[utoipa::path(post, path = "/api/v1/leases/{lease}/release", operation_id = "releaseLease", tag = "workers", params(("lease" = String, Path)), responses(
    (status = 200, body = Envelope<ReportView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn release(state: State<Api>, who: Who, lease: Path<String>) -> Answer<ReportView> {
    report(&state, &who, &lease.0, Outcome::Interrupted).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_reads_as_it_was_written_and_nothing_else_does() {
        let job: JobId = "019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e".parse().unwrap();
        let lease = Lease { claim: ClaimId(u128::MAX / 3), job, seq: 77, attempt: 4 };
        assert_eq!(read(&write(&lease)), Ok(lease));
        for wrong in ["", "x", &"g".repeat(88), &"é".repeat(44), &"f".repeat(87)] {
            assert_eq!(read(wrong), Err(lost()), "{wrong}");
        }
    }
}
