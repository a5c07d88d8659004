//! How a request is refused: a status, a code for programs, a sentence for people, and what to do about it.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use redrive::ErrorKind;
use serde_json::json;

use crate::printable;

/// A refusal in the API's envelope: `{"success":false,"error":{"code","message","hint"}}`.
///
/// ```
/// use redrive_server::door::Refusal;
///
/// let refusal = Refusal::new(404, "RETRY_NOT_FOUND", "there is no queue \"mial\"").hint("did you mean \"mail\"?");
/// assert_eq!(refusal.status, 404);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// The code, which has a page in docs/errors.
    pub code: &'static str,
    /// What was attempted and why it was refused.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal with this status, code and message. A number that is no status is taken for 500.
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Refusal {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Refusal { status, code, message: message.into(), hint: None, retry_after: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }

    /// With when to come back.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Refusal {
        self.retry_after = Some(wait);
        self
    }
}

/// The engine's own errors, with the status that fits the situation.
impl From<redrive::Error> for Refusal {
    fn from(error: redrive::Error) -> Refusal {
        let status = match error.kind() {
            ErrorKind::NotFound => 404,
            ErrorKind::Conflict | ErrorKind::LeaseLost => 409,
            ErrorKind::Invalid => 422,
            ErrorKind::Corrupt => 500,
            // Full, no room, not writable, away: it may work later, and nothing was changed.
            _ => 503,
        };
        let text = error.to_string();
        let message = text.split("\nhint: ").next().unwrap_or_default();
        let mut refusal = Refusal::new(status, error.kind().code(), message);
        refusal.hint = error.hint().map(str::to_owned);
        refusal.retry_after = error.is_transient().then_some(Duration::from_secs(1));
        refusal
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": printable(&self.message) });
        if let Some(hint) = &self.hint {
            error["hint"] = printable(hint).into();
        }
        let body = axum::Json(json!({ "success": false, "error": error }));
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"redrive\""));
        }
        if let Some(wait) = self.retry_after {
            // Whole seconds, rounded up: whoever comes back then is not too early.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
