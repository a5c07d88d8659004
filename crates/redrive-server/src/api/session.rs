//! Sessions: who am I, and a cookie for browsers.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use redrive::{Timestamp, secs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Refused, ok};
use super::audit::{By, On};
use crate::door::{Counter, Refusal, Scope, Who};

/// How often to ask whether whoever waits is still welcome: no less often than a token is believed.
const ASK_EVERY: Duration = secs(1);

impl Api {
    /// Resolves when whoever waits for something is to wait no longer: the server stops, or what they showed is good no
    /// more.
    pub(super) async fn dismisses(&self, who: &Who) {
        let gone = async {
            if who.shown.is_none() {
                std::future::pending::<()>().await;
            }
            while who.need_good_still(self.engine().now()).await.is_ok() {
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        tokio::select! { biased;
            () = self.stops() => {}
            () = gone => {}
        }
    }
}

/// Who asks.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionView {
    /// The token's name; `local` where no token is asked for.
    name: String,
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
    /// Until when that holds, if there is an end to it.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

impl From<Who> for SessionView {
    fn from(who: Who) -> SessionView {
        SessionView { name: who.name, scopes: who.scopes, expires_at: who.expires_at }
    }
}

/// What is exchanged.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionForm {
    /// A token: `rdv_…`.
    token: String,
}

/// Where sessions are opened; there is none without a door, where nobody needs one.
pub(super) struct AtCounter(Option<Counter>);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for AtCounter {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut http::request::Parts, _state: &S) -> Result<AtCounter, Refusal> {
        Ok(AtCounter(parts.extensions.get::<Counter>().cloned()))
    }
}

/// Who asks, and what they may do: with a token, with a session, or with nothing on loopback.
#[utoipa::path(get, path = "/api/v1/session", operation_id = "getSession", tag = "session", responses(
    (status = 200, body = Envelope<SessionView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn get(who: Who) -> Answer<SessionView> {
    ok(who.into())
}

/// Exchanges a token for a session, which comes as a cookie.
#[utoipa::path(post, path = "/api/v1/session", operation_id = "createSession", tag = "session", request_body = SessionForm, responses(
    (status = 200, body = Envelope<SessionView>, description = "With `Set-Cookie: __Host-redrive`"),
    (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn create(
    state: State<Api>,
    by: By,
    counter: AtCounter,
    body: Body<SessionForm>,
) -> Result<Response, Refusal> {
    let Some(counter) = counter.0 else { return Ok(with_cookie(ok(SessionView::from(by.who)), None)) };
    let (who, cookie) = counter.open(&body.value.token).await?;
    if cookie.is_some() {
        let by = By { who: who.clone(), ..by };
        by.audited(&state, "session.create", On::named(&who.name), async { Ok(()) }).await?;
    }
    Ok(with_cookie(ok(SessionView::from(who)), cookie))
}

/// Ends the session of the cookie.
#[utoipa::path(delete, path = "/api/v1/session", operation_id = "deleteSession", tag = "session", responses(
    (status = 200, body = Envelope<Ended>, description = "The cookie is forgotten"),
    (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn delete(
    state: State<Api>,
    by: By,
    counter: AtCounter,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let Some(counter) = counter.0 else { return Ok(with_cookie(ok(Ended { ended: false }), None)) };
    let (who, cookie) = counter.close(&headers).await?;
    let ended = who.is_some();
    if let Some(who) = who {
        let on = On::named(&who.name);
        By { who, ..by }.audited(&state, "session.delete", on, async { Ok(()) }).await?;
    }
    Ok(with_cookie(ok(Ended { ended }), cookie))
}

/// Whether there was a session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ended {
    ended: bool,
}

fn with_cookie<T: Serialize>(answer: Answer<T>, cookie: Option<String>) -> Response {
    let mut response = answer.into_response();
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
