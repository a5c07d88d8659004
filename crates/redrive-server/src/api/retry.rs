//! Retries of what failed elsewhere, in the words of those who asked for them: a task, its type, and the error.

use std::fmt;

use axum::extract::State;
use redrive::{
    Engine, Failure, How, Job, JobId, NewJob, Origin, Policy, State as Standing, Timestamp, Turn, span,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Path, Query, Refused, created, invalid, ok};
use super::audit::{By, On};
use super::forms::{Span, payload_of, policy_of};
use super::held::{HeldBack, Holders};
use super::jobs::{EnqueuedView, find, no_cursor, page, signed};
use super::stats::{Totals, totals};
use super::views::{last_error, said};
use super::workers::failure_of;
use crate::door::{Refusal, Scope, Who};

/// Counting further would be slow, and nobody reads the number.
const COUNT_MAX: usize = 10_000;
/// The policy of retries that bring none.
const PRESET: &str = "media";

/// Something that failed outside.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "taskId": "movie-17", "taskType": "metadata_fetch", "payload": { "title": "Up" }, "error": "TIMEOUT: no answer after 10 s" }))]
pub(super) struct RetryForm {
    /// The task: a second retry of the same one is not queued.
    #[schema(min_length = 1)]
    task_id: String,
    /// Its type, which says who runs it.
    task_type: String,
    /// Its data: any JSON.
    #[serde(default)]
    #[schema(value_type = Value)]
    payload: Option<Box<RawValue>>,
    /// What it failed of: a text, in which a leading `CODE:` is understood, or an object.
    error: ErrorForm,
    /// The name of a policy, or a policy; `media` if not given.
    #[schema(value_type = Option<super::schemas::PolicyForm>)]
    policy: Option<Value>,
}

/// What something failed of.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
enum ErrorForm {
    /// `TIMEOUT: no answer`.
    Text(String),
    /// What is known of it.
    Known(KnownError),
}

/// An error by its parts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct KnownError {
    #[schema(value_type = Option<super::schemas::Code>)]
    code: Option<String>,
    message: String,
    /// The status of an HTTP answer.
    #[schema(minimum = 0, maximum = 65535)]
    status: Option<u16>,
    /// The same, where it goes by this name.
    #[schema(minimum = 0, maximum = 65535)]
    status_code: Option<u16>,
    /// Whether it is worth a retry, where whoever met it knows: that goes before every rule.
    retryable: Option<bool>,
    /// How long whoever was called asked to be left alone.
    retry_after: Option<Span>,
}

/// Not untagged: that would say of nothing in an object what is wrong with it.
impl<'de> Deserialize<'de> for ErrorForm {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<ErrorForm, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ErrorForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, such as \"TIMEOUT: no answer\", or an object with a message")
            }

            fn visit_str<E>(self, text: &str) -> Result<ErrorForm, E> {
                Ok(ErrorForm::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<ErrorForm, A::Error> {
                KnownError::deserialize(MapAccessDeserializer::new(fields)).map(ErrorForm::Known)
            }
        }
        reader.deserialize_any(Either)
    }
}

impl ErrorForm {
    /// The failure, which is worth a retry under this policy.
    fn into_failure(self, policy: &Policy) -> Result<Failure, Refusal> {
        let known = match self {
            ErrorForm::Known(known) => known,
            ErrorForm::Text(message) => KnownError {
                code: leading_code(&message).map(str::to_owned),
                message,
                status: None,
                status_code: None,
                retryable: None,
                retry_after: None,
            },
        };
        let KnownError { code, message, status, status_code, retryable, retry_after } = known;
        if status.is_some() && status_code.is_some() {
            return Err(invalid("error.status and error.statusCode are the same", "send one of them"));
        }
        let judged = failure_of(message, code, status.or(status_code))?;
        let failure = Failure { retry_after: retry_after.map(|span| span.0), ..judged };
        match retryable {
            None => refuse_hopeless(policy, &failure).map(|()| failure),
            Some(false) => Err(not_retryable(&failure, "whoever met it says so")),
            Some(true) => {
                let Failure { code, status, retry_after, message, .. } = failure;
                Ok(Failure { code, status, retry_after, ..Failure::retry(message) })
            }
        }
    }
}

/// `TIMEOUT` of `TIMEOUT: no answer`.
fn leading_code(text: &str) -> Option<&str> {
    let (code, _) = text.split_once(':')?;
    let is_code = (2..=Failure::CODE_CHARS_MAX).contains(&code.len())
        && code.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        && code.starts_with(|c: char| c.is_ascii_uppercase());
    is_code.then_some(code)
}

/// Queues a retry of something that failed outside.
#[utoipa::path(post, path = "/api/v1/retry", operation_id = "queueRetry", tag = "retry", request_body = RetryForm, responses(
    (status = 201, body = Envelope<EnqueuedView>, description = "It is queued"),
    (status = 200, body = Envelope<EnqueuedView>, description = "It was queued already"),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn queue(state: State<Api>, who: Who, body: Body<RetryForm>) -> Answer<EnqueuedView> {
    who.need(Scope::Enqueue)?;
    let RetryForm { task_id, task_type, payload, error, policy } = body.value;
    if task_id.is_empty() {
        return Err(invalid("taskId is empty", "send the id of the task that failed"));
    }
    let policy = policy_of(&state, policy.unwrap_or_else(|| PRESET.into()))?;
    let failure = error.into_failure(&policy)?;
    let payload = payload.as_deref().unwrap_or(RawValue::NULL);
    let (payload, goes_to) = payload_of(&state, &task_type, payload)?;
    let job = NewJob::of_kind(&task_type, payload).key(task_id).policy(policy).failed_outside(failure);
    let job = goes_to.into_iter().fold(job, NewJob::destination);
    let enqueued = state.engine().enqueue(signed(job, &who)).await?;
    let view = EnqueuedView::of(&state, enqueued).await?;
    if enqueued.how == How::Created { created(view) } else { ok(view) }
}

fn refuse_hopeless(policy: &Policy, failure: &Failure) -> Result<(), Refusal> {
    let verdict = policy.classify(failure);
    if verdict.class.is_retryable() {
        return Ok(());
    }
    let why = format!("it is {} ({})", verdict.class.name(), verdict.rule);
    let what = "see why at POST /api/v1/classify, or bring a policy with a rule for it";
    Err(not_retryable(failure, &format!("{why}; {what}")))
}

fn not_retryable(failure: &Failure, hint: &str) -> Refusal {
    Refusal::new(422, "RETRY_NOT_RETRYABLE", format!("error is not retryable: {}", failure.message))
        .hint(hint)
}

/// A retry that waits or runs.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RetryView {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    task_id: String,
    task_type: String,
    /// Whether it failed outside and was queued here for its retries.
    queued: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
    /// Retries made.
    attempt_count: u32,
    /// Retries allowed; not given if they are only limited by time.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    next_attempt_at: Timestamp,
    /// For people: `3s`.
    time_until_retry: String,
    /// What keeps it back although it is due; missing if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldBack>,
}

impl RetryView {
    fn of(job: &Job, last_error: Option<String>, now: Timestamp) -> RetryView {
        // Whole seconds, rounded up, as a countdown shows them.
        let left = job.due_at().since(now);
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        RetryView {
            id: job.id,
            task_id: job.extras().key.as_deref().map_or_else(|| job.id.to_string(), ToOwned::to_owned),
            task_type: job.kind.to_string(),
            queued: job.origin == Origin::External,
            destination: job.extras().destination.as_deref().map(ToOwned::to_owned),
            // The first failure here was the first try's.
            attempt_count: job.ledger.failures.saturating_sub(u32::from(job.origin == Origin::Engine)),
            max_attempts: job.policy.retries_allowed(job.origin),
            last_error,
            next_attempt_at: job.due_at(),
            time_until_retry: span::format(redrive::secs(seconds)),
            held: None,
        }
    }
}

/// Which part.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PendingForm {
    /// At most this many: 1 to 1,000, 100 if not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The last answer's `nextCursor`.
    cursor: Option<String>,
}

/// Retries that wait.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingView {
    /// The next one first.
    items: Vec<RetryView>,
    /// Of which `totalPending` is how many retries are pending. Where they are too many for one page, what has been tried and
    /// waits for something else is among them, and they are counted up to 10,000.
    stats: Totals,
    /// Send it as `cursor` for what comes next; missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// What waits to be tried again, the next one first.
#[utoipa::path(get, path = "/api/v1/retry/pending", operation_id = "listPendingRetries", tag = "retry", params(PendingForm), responses(
    (status = 200, body = Envelope<PendingView>),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn pending(state: State<Api>, who: Who, query: Query<PendingForm>) -> Answer<PendingView> {
    who.need(Scope::Read)?;
    let limit = page(query.0.limit, None)?.limit;
    let after = query.0.cursor.as_deref().map(turn).transpose()?;
    let (jobs, next) = state.engine().retries(after, limit).await?;
    let now = state.engine().now();
    let mut items = Vec::with_capacity(jobs.len());
    let failed = state.engine().last_failed(&jobs).await?;
    let holders = Holders::now(&state, now).await?;
    for job in &jobs {
        let last = failed.get(&job.id).and_then(|attempt| attempt.failure.as_ref());
        let view = RetryView::of(job, last.map(|failure| said(failure, &who)), now);
        items.push(RetryView { held: holders.of(job, now), ..view });
    }
    let mut stats = totals(&state).await?;
    stats.total_pending = match (after, next) {
        (None, None) => items.len(),
        _ => state.engine().retries_count(COUNT_MAX).await?,
    } as u64;
    ok(PendingView { items, stats, next_cursor: next.map(cursor) })
}

/// Where a page ends, as text.
fn cursor(Turn { due_at, seq }: Turn) -> String {
    format!("r{:x}-{seq:x}", due_at.as_millis())
}

fn turn(cursor: &str) -> Result<Turn, Refusal> {
    let read = || {
        let (due_at, seq) = cursor.strip_prefix('r')?.split_once('-')?;
        let number = |text: &str| i64::from_str_radix(text, 16).ok();
        Some(Turn { due_at: Timestamp::from_millis(number(due_at)?), seq: number(seq)? })
    };
    read().ok_or_else(|| no_cursor(cursor))
}

/// Tries something again at once.
#[utoipa::path(post, path = "/api/v1/retry/{id}/trigger", operation_id = "triggerRetry", tag = "retry", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<RetryView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn trigger(state: State<Api>, by: By, id: Path<JobId>) -> Answer<RetryView> {
    by.who.need(Scope::Operate)?;
    let detail = found(&state, id.0).await?;
    if let Standing::Dead { why, .. } = detail.job.state {
        let message = format!("retry item {} is exhausted: it is dead ({})", id.0, why.as_str());
        return Err(Refusal::new(409, "RETRY_EXHAUSTED", message)
            .hint(format!("bring it back with POST /api/v1/jobs/{}/redrive", id.0)));
    }
    let change = |engine: Engine| async move { Ok(engine.retry_now(id.0).await?) };
    by.steered(&state, "retry.trigger", On::job(id.0), change).await?;
    let detail = found(&state, id.0).await?;
    ok(RetryView::of(&detail.job, last_error(&detail.attempts, &by.who), state.engine().now()))
}

async fn found(api: &Api, id: JobId) -> Result<redrive::JobDetail, Refusal> {
    find(api, id).await.map_err(|mut refusal| {
        refusal.message = format!("retry item not found: {id}");
        refusal
    })
}

/// Gives a retry up.
#[utoipa::path(delete, path = "/api/v1/retry/{id}", operation_id = "cancelRetry", tag = "retry", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<Cancelled>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn cancel(state: State<Api>, by: By, id: Path<JobId>) -> Answer<Cancelled> {
    by.who.need(Scope::Operate)?;
    found(&state, id.0).await?;
    let change = |engine: Engine| async move { Ok(engine.cancel(id.0).await?) };
    by.steered(&state, "retry.cancel", On::job(id.0), change).await?;
    ok(Cancelled { id: id.0 })
}

/// What was given up.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Cancelled {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_as_it_was_written_and_nothing_else_does() {
        let place = Turn { due_at: Timestamp::from_millis(1_767_225_600_000), seq: 77 };
        assert_eq!(turn(&cursor(place)).unwrap(), place);
        for wrong in ["", "r", "r-", "c4d", "r19b77-", "rx-1", "r1-1-1"] {
            assert!(turn(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_word_in_capitals_before_a_colon_is_a_code() {
        assert_eq!(leading_code("TIMEOUT: no answer"), Some("TIMEOUT"));
        assert_eq!(leading_code("RATE_LIMIT:"), Some("RATE_LIMIT"));
        assert_eq!(leading_code("dial tcp: timeout"), None);
        assert_eq!(leading_code("timeout"), None);
        assert_eq!(leading_code("503: unavailable"), None);
        assert_eq!(leading_code(&format!("{}: no answer", "T".repeat(65))), None);
    }
}
