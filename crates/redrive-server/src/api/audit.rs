//! Who did what: every change that is asked for is written down in the store before it is made, and what came of it
//! with it, in the very transaction that does it. An entry that stays `begun` is of a server that died in between.

use axum::extract::State;
use redrive::{Audit, AuditFilter, Engine, JobId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::answer::{Answer, Envelope, Query, Refused, ok};
use super::jobs::{cursor, page};
use super::views::PageView;
use crate::door::{Refusal, RequestId, Scope, Who};

/// What came of a change that was made.
const DONE: &str = "done";
/// The longest description of what a change was asked of.
const ON_MAX: usize = 1_000;

/// Who asks for a change, and with which request.
pub(super) struct By {
    pub(super) who: Who,
    pub(super) request: String,
}

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for By {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut http::request::Parts, state: &S) -> Result<By, Refusal> {
        let request = parts.extensions.get::<RequestId>().map(RequestId::to_string);
        // Without a door, as at a store of one's own, requests have no names yet.
        let request = request.unwrap_or_else(|| format!("{:016x}-0", redrive::Rng::from_os().next_u64()));
        Ok(By { who: Who::from_request_parts(parts, state).await?, request })
    }
}

/// What a change is asked of.
pub(super) struct On {
    text: String,
    job: Option<JobId>,
}

impl On {
    pub(super) fn job(id: JobId) -> On {
        On { text: id.to_string(), job: Some(id) }
    }

    pub(super) fn named(name: &str) -> On {
        On { text: name.chars().take(ON_MAX).collect(), job: None }
    }
}

impl By {
    /// Writes down what is no change of the store's, such as a session that was opened. If that cannot be written, it is
    /// refused.
    pub(super) async fn audited<T>(
        &self,
        api: &Api,
        what: &str,
        on: On,
        change: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        self.steered(api, what, on, |_| change).await
    }

    /// Makes a change with an engine that completes its entry of the audit log in the transaction of the change. If that
    /// cannot be written, nothing is changed.
    pub(super) async fn steered<T, F: Future<Output = Result<T, Refusal>>>(
        &self,
        api: &Api,
        what: &str,
        on: On,
        change: impl FnOnce(Engine) -> F,
    ) -> Result<T, Refusal> {
        let before = standing(api, on.job).await;
        let mut entry = Audit {
            id: self.request.clone(),
            at: api.engine().now(),
            who: self.who.name.clone(),
            token: self.who.key_id.clone(),
            what: what.to_owned(),
            on: on.text,
            job: on.job,
            result: "begun".into(),
            detail: String::new(),
        };
        api.engine().audit(&entry).await?;
        let done = Audit { result: DONE.into(), detail: before.clone(), ..entry.clone() };
        let answer = change(api.engine().asked_by(done)).await;
        entry.result = answer.as_ref().err().map_or(DONE, |refusal| refusal.code).to_owned();
        let after = standing(api, on.job).await;
        entry.detail = if before == after { after } else { format!("{before} → {after}") };
        if let Err(error) = api.engine().audit(&entry).await {
            tracing::error!(%error, entry = entry.id, "What came of a change could not be written down");
        }
        tracing::info!(
            who = entry.who,
            what = entry.what,
            on = entry.on,
            result = entry.result,
            request_id = entry.id,
            "Asked for by hand"
        );
        answer
    }
}

/// How a job stands, in words.
async fn standing(api: &Api, job: Option<JobId>) -> String {
    let Some(id) = job else { return String::new() };
    match api.engine().get(id).await {
        Ok(Some(detail)) => detail.job.state.name().to_string(),
        Ok(None) => "gone".into(),
        Err(_) => "unknown".into(),
    }
}

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditView {
    /// The request, as in its answer's `x-request-id`.
    id: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    who: String,
    /// The token's key id.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// What was asked, such as `jobs.cancel`.
    what: String,
    /// Of what.
    on: String,
    #[schema(value_type = Option<String>, format = "uuid")]
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    /// `done`, the code of the refusal, or `begun` if the server died in between.
    result: String,
    /// How it stood before and after, in words.
    detail: String,
}

impl From<Audit> for AuditView {
    fn from(entry: Audit) -> AuditView {
        let Audit { id, at, who, token, what, on, job, result, detail } = entry;
        AuditView { id, at, who, token, what, on, job_id: job, result, detail }
    }
}

/// Which entries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct AuditForm {
    /// About this job.
    #[param(value_type = Option<String>, format = "uuid")]
    job_id: Option<JobId>,
    /// At most this many: 1 to 1,000, 100 if not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The last answer's `nextCursor`.
    cursor: Option<String>,
}

/// Who asked for which change, newest first.
#[utoipa::path(get, path = "/api/v1/audit", operation_id = "listAudit", tag = "operations", params(AuditForm), responses(
    (status = 200, body = Envelope<PageView<AuditView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn list(
    state: State<Api>,
    who: Who,
    query: Query<AuditForm>,
) -> Answer<PageView<AuditView>> {
    who.need(Scope::Read)?;
    let page = page(query.0.limit, query.0.cursor.as_deref())?;
    let filter = AuditFilter { job: query.0.job_id, before: page.before, limit: page.limit };
    let entries = state.engine().audited(&filter).await?;
    let next = entries.last().filter(|_| entries.len() == page.limit).map(|(place, _)| cursor(*place));
    let items = entries.into_iter().map(|(_, entry)| entry.into()).collect();
    ok(PageView { items, next_cursor: next })
}
