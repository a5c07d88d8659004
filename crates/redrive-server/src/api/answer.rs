//! What every route answers: the envelope; and how it reads what it was sent.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use redrive::Call;
use sha2::{Digest as _, Sha256};

use crate::door::{JSON_DEPTH_MAX, Refusal, Who, is_too_deep};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A success.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Envelope<T> {
    /// Always true.
    pub success: bool,
    /// What was asked for.
    pub data: T,
}

/// A refusal.
#[derive(Serialize, ToSchema)]
pub(super) struct Refused {
    /// Always false.
    success: bool,
    error: RefusedError,
}

/// Why.
#[derive(Serialize, ToSchema)]
pub(super) struct RefusedError {
    /// For programs; each has a page in docs/errors.
    code: String,
    /// For people.
    message: String,
    /// What to do about it.
    hint: Option<String>,
}

/// What a route comes to.
pub(super) type Answer<T> = Result<Good<T>, Refusal>;

/// A success with its status.
pub(super) struct Good<T>(StatusCode, T);

/// 200.
pub(super) fn ok<T>(data: T) -> Answer<T> {
    Ok(Good(StatusCode::OK, data))
}

/// 201.
pub(super) fn created<T>(data: T) -> Answer<T> {
    Ok(Good(StatusCode::CREATED, data))
}

impl<T: Serialize> IntoResponse for Good<T> {
    fn into_response(self) -> Response {
        // Into a Vec, not with `axum::Json`: that writes each of the many small pieces at thrice the cost.
        match serde_json::to_vec(&Envelope { success: true, data: self.1 }) {
            Ok(body) => (self.0, [(CONTENT_TYPE, JSON)], body).into_response(),
            Err(error) => Refusal::new(500, "RETRY_INTERNAL", error.to_string()).into_response(),
        }
    }
}

/// What is not understood.
pub(super) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Refusal {
    Refusal::new(422, "RETRY_INVALID", message).hint(hint)
}

pub(super) async fn not_found(request: Request) -> Refusal {
    Refusal::new(404, "RETRY_NOT_FOUND", format!("there is nothing at {}", request.uri().path()))
        .hint("all paths are in /openapi.json")
}

pub(super) async fn method_not_allowed(request: Request) -> Refusal {
    let (method, path) = (request.method(), request.uri().path());
    Refusal::new(405, "RETRY_METHOD", format!("{method} is not understood at {path}"))
        .hint("the methods of each path are in /openapi.json")
}

/// A JSON object.
pub(super) struct Body<T> {
    /// What it says.
    pub(super) value: T,
    /// Under which key it may be sent again.
    call: Option<Call>,
}

impl<T> Body<T> {
    /// The call this is, if it may be sent again. Nobody can send another's again.
    pub(super) fn call(&self, who: &Who) -> Option<Call> {
        let Call { key, digest } = self.call.clone()?;
        Some(Call { key: format!("{}/{key}", who.key_id.as_deref().unwrap_or("local")), digest })
    }
}

/// The longest idempotency key.
const KEY_MAX: usize = 255;

/// The header `Idempotency-Key`, with what identifies the request beside it.
fn call(head: &Parts, body: &[u8]) -> Result<Option<Call>, Refusal> {
    const NAME: HeaderName = HeaderName::from_static("idempotency-key");
    let Some(key) = head.headers.get(NAME) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= KEY_MAX);
    let key = key.ok_or_else(|| {
        let hint = format!("send 1 to {KEY_MAX} printable ASCII characters, such as a UUID");
        invalid("the Idempotency-Key is not understood", hint)
    })?;
    let mut hash = Sha256::new();
    for part in [head.method.as_str().as_bytes(), head.uri.path().as_bytes(), body] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Call { key: key.to_owned(), digest }))
}

/// A JSON array, whose entries are read one by one.
pub(super) type Entries = Array<Body<Vec<Box<RawValue>>>>;

/// A body that is an array.
pub(super) struct Array<B>(pub(super) B);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Body<T>, Refusal> {
        json(request, '{').await
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Array<Body<T>> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Array<Body<T>>, Refusal> {
        json(request, '[').await.map(Array)
    }
}

/// A body that is JSON and opens with this.
async fn json<T: DeserializeOwned>(request: Request, opening: char) -> Result<Body<T>, Refusal> {
    let (head, body) = request.into_parts();
    // The door has read it, within its limit.
    let bytes = axum::body::to_bytes(body, usize::MAX)
        .await
        .map_err(|error| invalid(error.to_string(), "send the body again"))?;
    let call = call(&head, &bytes)?;
    let hint = "send JSON as /openapi.json describes it";
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Refusal::new(400, "RETRY_INVALID", "the body is not UTF-8").hint(hint))?;
    // The door has only looked at what says that it is JSON.
    if is_too_deep(&bytes) {
        return Err(invalid(format!("the body is nested more than {JSON_DEPTH_MAX} levels deep"), hint));
    }
    let reader = &mut serde_json::Deserializer::from_str(text);
    let value = T::deserialize(&mut *reader).and_then(|value| reader.end().map(|()| value));
    let value = value.map_err(|error| {
        let status = if error.is_data() { 422 } else { 400 };
        Refusal::new(status, "RETRY_INVALID", format!("the body is not understood: {error}")).hint(hint)
    })?;
    // An object may be read from an array too, field by field: that is described nowhere.
    if !text.trim_start().starts_with(opening) {
        return Err(invalid(format!("the body does not begin with {opening}"), hint));
    }
    Ok(Body { value, call })
}

/// What stands behind the question mark. Unknown names are mistakes.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, Refusal> {
        let hint = "the parameters of each path are in /openapi.json";
        axum::extract::Query::<T>::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(query)| Query(query))
            .map_err(|error| invalid(error.body_text(), hint))
    }
}

/// A part of the path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Refusal> {
        axum::extract::Path::<T>::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(path)| Path(path))
            .map_err(|error| invalid(error.body_text(), "the paths are in /openapi.json"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Who, Refusal> {
        // Without a door nobody is known, and nobody may do anything.
        Ok(parts.extensions.get::<Who>().cloned().unwrap_or_else(Who::nobody))
    }
}
