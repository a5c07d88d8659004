//! How a request is refused: a status, a code for programs, a sentence for people, and what to do about it.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use redrive::ErrorKind;
use serde_json::json;

use crate::printable::printable_json;

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
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(hint) = &self.hint {
            error["hint"] = hint.as_str().into();
        }
        // It may quote what somebody sent, and be read in a terminal.
        let body = printable_json(&json!({ "success": false, "error": error }).to_string()).into_owned();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_says_what_it_quotes_without_acting_it_out() {
        let text = "no queue \"a\n\u{1b}[31m\u{202e}\"";
        let response = Refusal::new(404, "RETRY_NOT_FOUND", text).hint("look").into_response();
        assert_eq!(response.headers()["content-type"], "application/json");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body = std::str::from_utf8(&body).unwrap();
        assert_eq!(crate::printable(body), body);
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        let expected = json!({"code": "RETRY_NOT_FOUND", "message": text, "hint": "look"});
        assert_eq!(json, json!({"success": false, "error": expected}));
    }

    #[test]
    fn the_engines_errors_have_the_status_of_their_situation() {
        for (kind, status) in [
            (ErrorKind::NotFound, 404),
            (ErrorKind::Conflict, 409),
            (ErrorKind::LeaseLost, 409),
            (ErrorKind::Invalid, 422),
            (ErrorKind::Full, 503),
            (ErrorKind::Unavailable, 503),
            (ErrorKind::Corrupt, 500),
        ] {
            let refusal = Refusal::from(redrive::Error::new(kind, "it is so").with_hint("do this"));
            assert_eq!((refusal.status.as_u16(), refusal.code), (status, kind.code()));
            assert_eq!((refusal.message.as_str(), refusal.hint.as_deref()), ("it is so", Some("do this")));
        }
    }
}
