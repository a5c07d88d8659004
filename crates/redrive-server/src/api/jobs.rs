//! Jobs: put in, one or many; looked at, one or many.

use std::time::Duration;

use axum::extract::State;
use redrive::{
    Engine, Enqueued, Error, ErrorKind, How, JobDetail, JobId, NewJob, PAGE_MAX, Page, StateName, mins,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::answer::{Answer, Body, Entries, Envelope, Path, Query, Refused, created, invalid, ok};
use super::audit::{By, On};
use super::edit::detail;
use super::forms::{FilterForm, JobForm, span_in_query};
use super::views::{DetailView, JobView, PageView};
use crate::door::{Refusal, Scope, Who};

/// How long a caller may wait for a job's end.
const WAIT_MAX: Duration = mins(5);

/// A header.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes a header that every body is read with")]
pub(super) struct IdempotencyForm {
    /// Whoever sends the same request with the same key again gets the same answer, for thirty days.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

/// What became of a job that was put in.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnqueuedView {
    /// The job: the new one, or the one that was there already.
    #[schema(value_type = String, format = "uuid")]
    pub(super) id: JobId,
    #[schema(value_type = super::schemas::State)]
    pub(super) state: StateName,
    /// Whether one with its key was there already.
    pub(super) deduplicated: bool,
    /// Whether that one has the new content now.
    pub(super) replaced: bool,
}

impl EnqueuedView {
    /// What was enqueued, with where it stands.
    pub(super) async fn of(api: &Api, enqueued: Enqueued) -> Result<EnqueuedView, Refusal> {
        let state = match enqueued.how {
            How::Existing => api.engine().get(enqueued.id).await?.map(|detail| detail.job.state.name()),
            How::Created | How::Replaced => None,
        };
        Ok(EnqueuedView {
            id: enqueued.id,
            state: state.unwrap_or(StateName::Waiting),
            deduplicated: enqueued.how == How::Existing,
            replaced: enqueued.how == How::Replaced,
        })
    }
}

/// Puts a job in. When this answers, it is durable.
#[utoipa::path(post, path = "/api/v1/jobs", operation_id = "createJob", tag = "jobs", params(IdempotencyForm), request_body = JobForm, responses(
    (status = 201, body = Envelope<EnqueuedView>, description = "It is new"),
    (status = 200, body = Envelope<EnqueuedView>, description = "One with its key was there already"),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused, description = "The queue is full, or the store does not answer"),
))]
pub(super) async fn create(state: State<Api>, who: Who, body: Body<JobForm>) -> Answer<EnqueuedView> {
    who.need(Scope::Enqueue)?;
    let call = body.call(&who);
    let job = signed(body.value.into_job(&state)?, &who);
    let enqueued = match call {
        None => state.engine().enqueue(job).await,
        // Boxed, since every request without a key would carry the room for it.
        Some(call) => Box::pin(state.engine().enqueue_once(call, [job])).await.map(|answers| answers[0]),
    };
    let enqueued = enqueued.map_err(|error| not_enqueued(&state, error))?;
    let view = EnqueuedView::of(&state, enqueued).await?;
    if enqueued.how == How::Created { created(view) } else { ok(view) }
}

/// An unknown queue is a mistake of the caller, who knows nothing of engines.
pub(super) fn not_enqueued(api: &Api, error: Error) -> Refusal {
    let names: Vec<&str> = api.engine().queues().map(|queue| queue.name()).collect();
    match error.kind() {
        ErrorKind::Invalid if error.to_string().starts_with("there is no queue") => {
            let message = error.to_string().lines().next().unwrap_or_default().to_owned();
            let hint =
                format!("the queues are {}; add one to the configuration as [queues.NAME]", names.join(", "));
            invalid(message, hint)
        }
        // Its key has its caller's name before it, which is nobody's business.
        ErrorKind::Conflict if error.to_string().starts_with("the idempotency key") => {
            let hint = error.hint().unwrap_or_default().to_owned();
            invalid("this Idempotency-Key was used for another request", hint)
        }
        _ => error.into(),
    }
}

/// The job with the name of who asks for it.
pub(super) fn signed(job: NewJob, who: &Who) -> NewJob {
    who.signature().into_iter().fold(job, NewJob::author)
}

/// What became of one of many.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum EntryView {
    /// It was put in.
    Good(EnqueuedView),
    /// It was not.
    Bad {
        /// Why.
        error: EntryError,
    },
}

/// Why one of many was not put in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EntryError {
    code: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl From<Refusal> for EntryView {
    fn from(refusal: Refusal) -> EntryView {
        let Refusal { code, message, hint, .. } = refusal;
        EntryView::Bad { error: EntryError { code, message, hint } }
    }
}

/// Puts many jobs in, at most 1,000. Each is answered by itself, in the order they were sent.
#[utoipa::path(post, path = "/api/v1/jobs/bulk", operation_id = "createJobs", tag = "jobs", params(IdempotencyForm), request_body = Vec<JobForm>, responses(
    (status = 200, body = Envelope<Vec<EntryView>>),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn create_many(state: State<Api>, who: Who, body: Entries) -> Answer<Vec<EntryView>> {
    who.need(Scope::Enqueue)?;
    let call = body.0.call(&who);
    let (count, most) = (body.0.value.len(), state.inner.batch);
    if count > most {
        return Err(Refusal::new(
            413,
            "RETRY_TOO_LARGE",
            format!("{count} jobs in one call; {most} are allowed"),
        )
        .hint("send them in several calls"));
    }
    // Each is read by itself: one that is not understood does not fail its neighbours.
    let read = |entry| {
        let job = read(&state, entry)?;
        // Together with others it is taken or not taken as a whole: what is wrong with it is said of it alone.
        match call.as_ref().map(|_| state.engine().check(&job)) {
            Some(Err(error)) => Err(not_enqueued(&state, error)),
            None | Some(Ok(())) => Ok(signed(job, &who)),
        }
    };
    let jobs: Vec<Result<NewJob, Refusal>> = body.0.value.iter().map(|entry| read(entry)).collect();
    let good: Vec<NewJob> = jobs.iter().filter_map(|job| job.as_ref().ok().cloned()).collect();
    let enqueued = match call {
        None => enqueue_each(&state, good).await,
        Some(call) => {
            let enqueued = state.engine().enqueue_once(call, good).await;
            enqueued.map_err(|error| not_enqueued(&state, error))?.into_iter().map(Ok).collect()
        }
    };
    let mut enqueued = enqueued.into_iter();
    let mut entries = Vec::with_capacity(count);
    for job in jobs {
        entries.push(match job {
            Err(refusal) => refusal.into(),
            Ok(_) => match enqueued.next() {
                Some(Ok(enqueued)) => EntryView::Good(EnqueuedView::of(&state, enqueued).await?),
                Some(Err(refusal)) => refusal.into(),
                None => Refusal::new(500, "RETRY_INTERNAL", "a job was left without an answer").into(),
            },
        });
    }
    ok(entries)
}

fn read(api: &Api, entry: &RawValue) -> Result<NewJob, Refusal> {
    let hint = "send a JSON object as /openapi.json describes it";
    if !entry.get().starts_with('{') {
        return Err(invalid("the entry is no object", hint));
    }
    let form: Result<JobForm, _> = crate::reading::read(entry.get());
    form.map_err(|error| invalid(format!("the entry is not understood: {error}"), hint))?.into_job(api)
}

/// All in one transaction if that is possible, else each by itself, so that one cannot fail its neighbours.
async fn enqueue_each(api: &Api, jobs: Vec<NewJob>) -> Vec<Result<Enqueued, Refusal>> {
    if let Ok(enqueued) = api.engine().enqueue_all(jobs.clone()).await {
        return enqueued.into_iter().map(Ok).collect();
    }
    let mut answers = Vec::with_capacity(jobs.len());
    for job in jobs {
        answers.push(api.engine().enqueue(job).await.map_err(|error| not_enqueued(api, error)));
    }
    answers
}

/// Whether to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitForm {
    /// Answers when the job is final, or after this long: `30s`. After five minutes it does in any case.
    #[serde(default, deserialize_with = "span_in_query")]
    #[param(value_type = Option<String>, example = "30s")]
    wait: Option<Duration>,
}

/// One job with its history.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", operation_id = "getJob", tag = "jobs", params(("id" = String, Path, format = "uuid"), WaitForm), responses(
    (status = 200, body = Envelope<DetailView>),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn get(
    state: State<Api>,
    who: Who,
    id: Path<JobId>,
    query: Query<WaitForm>,
) -> Answer<DetailView> {
    who.need(Scope::Read)?;
    let wait = query.0.wait.unwrap_or_default().min(WAIT_MAX);
    ended(&state, &who, id.0, wait).await?;
    ok(detail(&state, &who, id.0).await?)
}

/// The job when it is final, or as it is when the time is over. Whoever may not wait any longer is not told.
async fn ended(api: &Api, who: &Who, id: JobId, wait: Duration) -> Result<JobDetail, Refusal> {
    // Listening before looking: an end in between is not missed.
    let mut events = api.engine().events();
    let over = async {
        tokio::select! { biased;
            () = api.dismisses(who) => {}
            () = tokio::time::sleep(wait) => {}
        }
    };
    tokio::pin!(over);
    // Others may end it, of whom nothing is heard here.
    let mut look = tokio::time::interval(Duration::from_millis(500));
    loop {
        let detail = find(api, id).await?;
        if wait.is_zero() || detail.job.state.name().is_final() {
            return Ok(detail);
        }
        loop {
            tokio::select! { biased;
                () = &mut over => {
                    who.need_good_still(api.engine().now()).await?;
                    return find(api, id).await;
                }
                event = events.recv() => match event {
                    Ok(event) if event.job != id => {}
                    _ => break,
                },
                _ = look.tick() => break,
            }
        }
    }
}

pub(super) async fn find(api: &Api, id: JobId) -> Result<JobDetail, Refusal> {
    api.engine().get(id).await?.ok_or_else(|| missing(id))
}

pub(super) fn missing(id: JobId) -> Refusal {
    Refusal::new(404, "RETRY_NOT_FOUND", format!("there is no job {id}"))
        .hint("it may have been finished and forgotten; look at its id again")
}

/// Which part of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListForm {
    state: Option<String>,
    kind: Option<String>,
    queue: Option<String>,
    destination: Option<String>,
    key: Option<String>,
    /// As `name:value`, separated by commas.
    label: Option<String>,
    /// Whose last failure is of this group.
    group: Option<String>,
    #[param(value_type = Option<String>)]
    parent: Option<JobId>,
    /// Enqueued at this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<redrive::Timestamp>,
    /// Enqueued before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<redrive::Timestamp>,
    /// At most this many: 1 to 1,000, 100 if not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The last answer's `nextCursor`.
    cursor: Option<String>,
}

impl ListForm {
    pub(super) fn into_parts(self) -> Result<(FilterForm, Page), Refusal> {
        let page = page(self.limit, self.cursor.as_deref())?;
        let ListForm { state, kind, queue, destination, key, label, group, parent, from, until, .. } = self;
        Ok((FilterForm { state, kind, queue, destination, key, label, group, parent, from, until }, page))
    }
}

/// A part of a list, within its limits.
pub(super) fn page(limit: Option<usize>, cursor: Option<&str>) -> Result<Page, Refusal> {
    let limit = limit.unwrap_or(100);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(invalid(format!("limit is {limit}"), format!("write a number from 1 to {PAGE_MAX}")));
    }
    let before = cursor
        .map(|cursor| {
            let place = cursor.strip_prefix('c').and_then(|place| i64::from_str_radix(place, 16).ok());
            place.ok_or_else(|| no_cursor(cursor))
        })
        .transpose()?;
    Ok(Page { before, limit })
}

pub(super) fn no_cursor(cursor: &str) -> Refusal {
    invalid(format!("{cursor:?} is no cursor"), "send the nextCursor of the last answer")
}

pub(super) fn cursor(place: i64) -> String {
    format!("c{place:x}")
}

/// Jobs that match, newest first.
#[utoipa::path(get, path = "/api/v1/jobs", operation_id = "listJobs", tag = "jobs", params(ListForm), responses(
    (status = 200, body = Envelope<PageView<JobView>>),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn list(state: State<Api>, who: Who, query: Query<ListForm>) -> Answer<PageView<JobView>> {
    who.need(Scope::Read)?;
    let (filter, page) = query.0.into_parts()?;
    ok(list_of(&state, &who, filter, page).await?)
}

pub(super) async fn list_of(
    api: &Api,
    who: &Who,
    filter: FilterForm,
    page: Page,
) -> Result<PageView<JobView>, Refusal> {
    let paged = api.engine().list(&filter.into_filter()?, page).await?;
    let failed = api.engine().last_failed(&paged.jobs).await?;
    let view = |job: redrive::Job| {
        let last = failed.get(&job.id);
        JobView::of(job, who).failed(last, who)
    };
    let items = paged.jobs.into_iter().map(view).collect();
    Ok(PageView { items, next_cursor: paged.next.map(cursor) })
}

/// Forgets a finished job.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", operation_id = "deleteJob", tag = "jobs", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<Deleted>),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn delete(state: State<Api>, by: By, id: Path<JobId>) -> Answer<Deleted> {
    by.who.need(Scope::Operate)?;
    let change = |engine: Engine| async move { Ok(engine.delete(id.0).await?) };
    by.steered(&state, "jobs.delete", On::job(id.0), change).await?;
    ok(Deleted { id: id.0 })
}

/// What was forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Deleted {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
}
