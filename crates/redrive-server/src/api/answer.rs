//! What every route answers: the envelope; and how it reads what it was sent.

use axum::extract::path::ErrorKind as PathError;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
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
use crate::reading::{self, Misread};

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
        json(Sent::take(request).await?, Shape::Object)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Array<Body<T>> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Array<Body<T>>, Refusal> {
        json(Sent::take(request).await?, Shape::List).map(Array)
    }
}

/// `Option<Body<T>>` is for a body that may be left out, or be null.
impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Option<Body<T>>, Refusal> {
        let sent = Sent::take(request).await?;
        match sent.bytes.trim_ascii() {
            b"" | b"null" => Ok(None),
            _ => json(sent, Shape::Object).map(Some),
        }
    }
}

/// A request with its whole body.
struct Sent {
    head: Parts,
    bytes: Bytes,
}

impl Sent {
    async fn take(request: Request) -> Result<Sent, Refusal> {
        let (head, body) = request.into_parts();
        // The door has read it, within its limit.
        let bytes = axum::body::to_bytes(body, usize::MAX)
            .await
            .map_err(|error| invalid(error.to_string(), "send the body again"))?;
        Ok(Sent { head, bytes })
    }
}

/// What a body is.
#[derive(Clone, Copy)]
enum Shape {
    Object,
    List,
}

impl Shape {
    fn opening(self) -> char {
        match self {
            Shape::Object => '{',
            Shape::List => '[',
        }
    }

    fn least(self) -> &'static str {
        match self {
            Shape::Object => "a JSON object, {} at least",
            Shape::List => "a JSON list, [] at least",
        }
    }
}

/// A body that is JSON of this shape.
fn json<T: DeserializeOwned>(sent: Sent, shape: Shape) -> Result<Body<T>, Refusal> {
    let Sent { head, bytes } = sent;
    let call = call(&head, &bytes)?;
    let hint = "send JSON as /openapi.json describes it";
    let no_json = |message: String| Refusal::new(400, "RETRY_INVALID", message).hint(hint);
    let text = std::str::from_utf8(&bytes).map_err(|_| no_json("the body is not UTF-8".to_owned()))?;
    if text.trim_ascii().is_empty() {
        return Err(no_json(format!("the body is empty; send {}", shape.least())));
    }
    // The door has only looked at what says that it is JSON.
    if is_too_deep(&bytes) {
        return Err(invalid(format!("the body is nested more than {JSON_DEPTH_MAX} levels deep"), hint));
    }
    // An object may be read from an array too, field by field: that is described nowhere.
    let is_so_shaped = text.trim_ascii_start().starts_with(shape.opening());
    match reading::read(text) {
        Ok(value) if is_so_shaped => Ok(Body { value, call }),
        Err(Misread::NoJson(problem)) => Err(no_json(format!("the body is not JSON: {problem}"))),
        Err(Misread::Wrong(problem)) if is_so_shaped => {
            Err(invalid(format!("the body is not understood: {problem}"), hint))
        }
        Ok(_) | Err(Misread::Wrong(_)) => {
            let (opening, least) = (shape.opening(), shape.least());
            Err(invalid(format!("the body does not begin with {opening}; send {least}"), hint))
        }
    }
}

/// What stands behind the question mark. Unknown names are mistakes.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, Refusal> {
        axum::extract::Query::<T>::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(query)| Query(query))
            .map_err(|error| unreadable(&error.body_text(), parts.uri.query().unwrap_or_default()))
    }
}

/// What is wrong with what stands behind the question mark.
fn unreadable(problem: &str, query: &str) -> Refusal {
    let problem = problem.strip_prefix("Failed to deserialize query string: ").unwrap_or(problem);
    let hint = if problem.contains("is not a time") && query.contains('+') {
        "a + is read as a space here: write + as %2B, or use Z"
    } else {
        "the parameters of each path are in /openapi.json"
    };
    let (name, said) = problem.split_once(": ").unwrap_or(("", problem));
    let what = match said {
        "invalid digit found in string"
        | "cannot parse integer from empty string"
        | "number too large to fit in target type"
        | "number too small to fit in target type" => "a whole number from 0 on, and not too large",
        "provided string was not `true` or `false`" => "true or false",
        _ => return invalid(format!("the query is not understood: {problem}"), hint),
    };
    invalid(format!("the query is not understood: {name}: write {what}"), hint)
}

/// A part of the path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Refusal> {
        axum::extract::Path::<T>::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(path)| Path(path))
            .map_err(|error| nothing_there(&error))
    }
}

/// What is written where an id belongs names nothing, whatever it looks like.
fn nothing_there(error: &PathRejection) -> Refusal {
    if let PathRejection::FailedToDeserializePathParams(failed) = error
        && let PathError::DeserializeError { value, .. } = failed.kind()
    {
        let message = format!("there is nothing with the id {:?}", crate::printable(value));
        return Refusal::new(404, "RETRY_NOT_FOUND", message)
            .hint("an id is written as 01a1f067-1b3a-7000-9dee-12e8bbb1cc8d; ask GET /api/v1/jobs");
    }
    invalid(error.body_text(), "the paths are in /openapi.json")
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Who, Refusal> {
        // Without a door nobody is known, and nobody may do anything.
        Ok(parts.extensions.get::<Who>().cloned().unwrap_or_else(Who::nobody))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = std::collections::BTreeMap<String, String>;

    async fn optional(body: &'static str) -> Result<Option<Fields>, u16> {
        let request = Request::new(axum::body::Body::from(body));
        let read = <Body<Fields> as OptionalFromRequest<()>>::from_request(request, &()).await;
        read.map(|body| body.map(|body| body.value)).map_err(|refusal| refusal.status.as_u16())
    }

    #[tokio::test]
    async fn a_body_that_may_be_left_out_is_checked_if_it_is_there() {
        assert_eq!((optional("").await, optional(" null").await), (Ok(None), Ok(None)));
        assert_eq!(optional("{}").await, Ok(Some(Fields::new())));
        assert_eq!(optional("[]").await, Err(422));
        assert_eq!(optional("{").await, Err(400));
    }
}
