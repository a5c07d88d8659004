//! What somebody was to be told, newest first.

use axum::extract::State;
use redrive::{JobId, Notice, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Envelope, Query, Refused, ok};
use super::dead::GroupsForm;
use super::jobs::page;
use crate::door::{Scope, Who};

/// Something that somebody was to be told.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NoticeView {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `dead`, `recovered`, `failure_rate`, `failure_rate_recovered`, `destination_down`, `needs_auth` or
    /// `destination_recovered`.
    #[schema(example = "dead")]
    what: String,
    /// By which rule: `jobs`, `destinations`, or a rate and its window.
    rule: String,
    #[schema(value_type = Option<String>, format = "uuid")]
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
    message: String,
}

impl From<Notice> for NoticeView {
    fn from(notice: Notice) -> NoticeView {
        let Notice { at, what, rule, job, message, .. } = notice;
        NoticeView { at, what, rule, job, message }
    }
}

/// What somebody was to be told, newest first. As it happens, it is the event `notice` of the stream.
#[utoipa::path(get, path = "/api/v1/notices", operation_id = "listNotices", tag = "operations", params(GroupsForm), responses(
    (status = 200, body = Envelope<Vec<NoticeView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn list(state: State<Api>, who: Who, query: Query<GroupsForm>) -> Answer<Vec<NoticeView>> {
    who.need(Scope::Read)?;
    let page = page(query.0.limit, None)?;
    let notices = state.engine().notices(0, page.limit).await?;
    ok(notices.into_iter().rev().map(|(_, notice)| notice.into()).collect())
}
