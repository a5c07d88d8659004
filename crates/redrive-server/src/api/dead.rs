//! Jobs that need a person: the list, and what they died of.

use axum::extract::State;
use redrive::{JobId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::answer::{Answer, Envelope, Query, Refused, invalid, ok};
use super::jobs::{ListForm, list_of};
use super::views::{JobView, PageView, last_error};
use crate::door::{Scope, Who};

/// Dead jobs, newest first.
#[utoipa::path(get, path = "/api/v1/dead", operation_id = "listDead", tag = "dead letters", params(ListForm), responses(
    (status = 200, body = Envelope<PageView<JobView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn list(state: State<Api>, who: Who, query: Query<ListForm>) -> Answer<PageView<JobView>> {
    who.need(Scope::Read)?;
    let (mut filter, page) = query.0.into_parts()?;
    if filter.state.is_some() {
        return Err(invalid("these are all dead", "leave state out, or ask GET /api/v1/jobs"));
    }
    filter.state = Some("dead".into());
    ok(list_of(&state, &who, filter, page).await?)
}

/// Dead jobs that died of the same.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupView {
    /// What they have in common; send it as `group` to list them.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    count: u64,
    /// What the newest one says.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    kind: String,
    /// The newest one.
    #[schema(value_type = String, format = "uuid")]
    newest: JobId,
    #[schema(value_type = String, format = DateTime)]
    first_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    last_at: Timestamp,
    /// How many died in each of 24 equal parts of the time from the first death of all listed groups until now.
    trend: Vec<u64>,
}

/// How many.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GroupsForm {
    /// At most this many: 1 to 1,000, 100 if not given.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
}

/// Dead jobs by what they died of, the most frequent first.
#[utoipa::path(get, path = "/api/v1/dead/groups", operation_id = "listDeadGroups", tag = "dead letters", params(GroupsForm), responses(
    (status = 200, body = Envelope<Vec<GroupView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn groups(state: State<Api>, who: Who, query: Query<GroupsForm>) -> Answer<Vec<GroupView>> {
    who.need(Scope::Read)?;
    let page = super::jobs::page(query.0.limit, None)?;
    let mut views = Vec::new();
    for group in state.engine().groups(page.limit).await? {
        let newest = state.engine().get(group.newest).await?;
        views.push(GroupView {
            group: group.fingerprint,
            count: group.count,
            message: newest.as_ref().and_then(|detail| last_error(&detail.attempts, &who)),
            kind: newest.map_or_else(String::new, |detail| detail.job.kind.to_string()),
            newest: group.newest,
            first_at: group.first_at,
            last_at: group.last_at,
            trend: group.trend.0.to_vec(),
        });
    }
    ok(views)
}
