//! Correcting a job: another payload, policy, priority or labels. What it was before stays readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use redrive::{
    Applied, Edit, EditRecord, Engine, ErrorKind, Filter, JobId, Json, PAGE_MAX, Page, Paged, Policy,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Path, Refused, invalid, ok};
use super::audit::{By, On};
use super::forms::{payload_of, policy_of, priority};
use super::jobs::find;
use super::views::DetailView;
use crate::door::{Refusal, Scope, Who};

/// What is to be changed; the rest stays.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "payload": { "method": "POST", "url": "https://api.example.com/orders" }, "policy": "media" }))]
pub(super) struct EditForm {
    /// Another payload: any JSON.
    #[serde(default)]
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    /// Another policy: a name, or a policy.
    #[serde(default)]
    #[schema(value_type = Option<super::schemas::PolicyForm>)]
    policy: Option<Value>,
    /// Higher goes first.
    #[serde(default, deserialize_with = "priority")]
    #[schema(minimum = -32768, maximum = 32767)]
    priority: Option<i16>,
    /// Instead of all labels it has.
    #[serde(default, deserialize_with = "crate::reading::fields_if_any")]
    #[schema(value_type = Option<super::schemas::Labels>)]
    labels: Option<BTreeMap<String, String>>,
}

/// Corrects a job that waits, or is dead or cancelled and will be redriven.
#[utoipa::path(patch, path = "/api/v1/jobs/{id}", operation_id = "editJob", tag = "jobs", params(("id" = String, Path, format = "uuid")), request_body = EditForm, responses(
    (status = 200, body = Envelope<DetailView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn edit(
    state: State<Api>,
    by: By,
    id: Path<JobId>,
    body: Body<EditForm>,
) -> Answer<DetailView> {
    by.who.need(Scope::Operate)?;
    let edit = edit_of(&state, &by.who, id.0, body.value).await?;
    let change = |engine: Engine| async move { Ok(engine.edit(id.0, edit).await?) };
    by.steered(&state, "jobs.edit", On::job(id.0), change).await?;
    ok(detail(&state, &by.who, id.0).await?)
}

async fn edit_of(api: &Api, who: &Who, id: JobId, form: EditForm) -> Result<Edit, Refusal> {
    let mut edit =
        Edit { priority: form.priority, labels: form.labels, by: who.name.clone(), ..Edit::default() };
    if let Some(payload) = form.payload {
        let job = find(api, id).await?.job;
        let (payload, goes_to) = payload_of(api, &job.kind, &payload)?;
        // Where the job goes to was read off its URL, unless somebody said otherwise.
        let went_to = Api::destination_of(&job.kind, job.payload.as_str());
        if job.extras().destination.as_deref() == went_to.as_deref() {
            edit.destination = goes_to.map(Into::into);
        }
        edit.payload = Some(payload);
    }
    if let Some(policy) = form.policy {
        edit.policy = Some(Arc::new(policy_of(api, policy)?));
    }
    Ok(edit)
}

impl EditForm {
    /// Refuses what no job could be given, before any is. A payload is only known to be right for one kind.
    pub(super) fn check_for_many(&self, api: &Api, kind: Option<&str>) -> Result<(), Refusal> {
        if let Some(policy) = &self.policy {
            policy_of(api, policy.clone())?;
        }
        match (&self.payload, kind) {
            (None, _) => Ok(()),
            (Some(payload), Some(kind)) => payload_of(api, kind, payload).map(drop),
            (Some(_), None) => Err(invalid(
                "jobs of different kinds cannot be given the same payload",
                "name a kind in the filter",
            )),
        }
    }
}

/// Corrects the next part of those that match, and of these the ones that can be corrected.
pub(super) async fn edit_part(
    api: &Api,
    who: &Who,
    engine: &Engine,
    form: &EditForm,
    filter: &Filter,
    before: Option<i64>,
) -> Result<Applied, Refusal> {
    let Paged { jobs, next } = engine.list(filter, Page { before, limit: PAGE_MAX }).await?;
    let mut done = 0;
    for job in &jobs {
        let edit = match edit_of(api, who, job.id, form.clone()).await {
            // It was forgotten meanwhile.
            Err(refusal) if refusal.status == 404 => continue,
            edit => edit?,
        };
        match engine.edit(job.id, edit).await {
            Ok(_) => done += 1,
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Applied { seen: jobs.len() as u64, done, next })
}

/// A job with all of its history.
pub(super) async fn detail(api: &Api, who: &Who, id: JobId) -> Result<DetailView, Refusal> {
    let detail = find(api, id).await?;
    let edits = api.engine().edits(id).await?;
    let mut view = DetailView::of(detail, who);
    view.edits = edits.into_iter().map(|record| EditView::of(record, who)).collect();
    Ok(view)
}

/// What a job was before it was corrected: only what was changed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EditView {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who changed it.
    by: String,
    /// The payload before; left out for whoever may not read it.
    #[schema(value_type = Option<Value>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Json>,
    /// The policy before.
    #[schema(value_type = Option<Value>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Arc<Policy>>,
    /// The priority before.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i16>,
    /// The labels before.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

impl EditView {
    fn of(record: EditRecord, who: &Who) -> EditView {
        let EditRecord { at, by, payload, policy, priority, labels } = record;
        let payload = payload.filter(|_| who.may(&Scope::ReadPayload));
        EditView { at, by, payload, policy, priority, labels }
    }
}
