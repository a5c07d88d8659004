//! What an answer, or the lack of one, means for a job.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName};
use redrive::{Failure, IntoOutcome as _, Outcome, Output, Timestamp, secs, span};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::egress::{EgressError, EgressErrorKind, KEPT_BYTES_MAX, READ_BYTES_MAX, Response};
use crate::redact::redact;

/// The headers of an answer that are kept: what it is, where the thing now lives, and how to ask about it.
static KEPT_HEADERS: [HeaderName; 8] = [
    CONTENT_LENGTH,
    CONTENT_TYPE,
    DATE,
    ETAG,
    LAST_MODIFIED,
    LOCATION,
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-request-id"),
];
/// How much of each.
const KEPT_HEADER_BYTES_MAX: usize = 512;
/// How much of a refusal's text is quoted in a failure.
const QUOTED_CHARS_MAX: usize = 300;

/// The code of an answer that is larger than may be read.
const RESPONSE_TOO_LARGE: &str = "RESPONSE_TOO_LARGE";

/// Done, with what is kept of the answer.
pub(super) fn done(response: &Response, source: Option<&str>) -> Outcome {
    Output(Kept { source, ..Kept::of(response) }).into_outcome()
}

/// Done by an earlier try, as the far side says now.
pub(super) fn verified(response: &Response) -> Outcome {
    Output(Kept { verified: Some(true), ..Kept::of(response) }).into_outcome()
}

/// What is kept of an answer.
#[derive(Serialize)]
struct Kept<'a> {
    body: Value,
    headers: KeptHeaders<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
}

impl Kept<'_> {
    fn of(response: &Response) -> Kept<'_> {
        let (body, truncated) = kept_body(response);
        let (headers, status) = (KeptHeaders(&response.headers), response.status.as_u16());
        Kept { body, headers, source: None, status, truncated: truncated.then_some(true), verified: None }
    }
}

struct KeptHeaders<'a>(&'a HeaderMap);

impl Serialize for KeptHeaders<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = |name: &'static HeaderName| {
            let value = self.0.get(name)?.as_bytes();
            let value = &value[..value.len().min(KEPT_HEADER_BYTES_MAX)];
            Some((name.as_str(), String::from_utf8_lossy(value)))
        };
        serializer.collect_map(KEPT_HEADERS.iter().filter_map(named))
    }
}

/// JSON as JSON if it is small enough to be kept whole, else the beginning as text. Nothing is kept as null.
fn kept_body(response: &Response) -> (Value, bool) {
    let body = &response.body;
    if body.is_empty() {
        return (Value::Null, false);
    }
    let says_json =
        response.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            kind == "application/json" || kind.ends_with("+json")
        });
    if says_json
        && body.len() <= KEPT_BYTES_MAX
        && let Ok(value) = serde_json::from_slice(body)
    {
        return (value, false);
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(KEPT_BYTES_MAX)]);
    // A character cut in half at the end is left out; whatever else is no text shows as what it is not.
    let text = if body.len() > KEPT_BYTES_MAX { text.trim_end_matches('\u{fffd}') } else { &text };
    (text.into(), body.len() > KEPT_BYTES_MAX)
}

/// The failure that a status is. What the far side wrote is its detail: not everybody who may see a job may read answers.
pub(crate) fn refused(host: &str, response: &Response, now: Timestamp) -> Failure {
    let status = response.status.as_u16();
    // Other answers of that hundred, such as «not modified», say nothing of where to go.
    let points_elsewhere = response.status.is_redirection() && response.headers.contains_key(LOCATION);
    let mut failure = match points_elsewhere {
        true => {
            let hint = "write the URL where that ends, or \"followRedirects\": true for up to three of them";
            Failure::from_status(status, format!("{host} answered {status} and points elsewhere; {hint}"))
        }
        false => Failure::from_status(status, format!("{host} answered {status}")).detail(quoted(response)),
    };
    // Gone is not found either: a list of sources goes on to the next, and a policy may know both by one name.
    if matches!(status, 404 | 410) {
        failure = failure.code("NOT_FOUND");
    }
    failure.retry_after = retry_after(&response.headers, now).filter(|_| failure.class.is_retryable());
    failure
}

/// The beginning of what the far side wrote, on one line and without secrets.
fn quoted(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.body);
    // Before anything is cut off: a secret is known by what stands around it.
    let text = redact(&text);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control() && *c != '\u{fffd}').take(QUOTED_CHARS_MAX).collect()
}

/// How long the far side asks to wait: seconds, or an HTTP date. Nothing if it asks for nothing that lies ahead; the
/// policy bounds what is too much.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        secs(text.parse().unwrap_or(u64::MAX)).min(span::MAX)
    } else {
        let date: SystemTime = httpdate::parse_http_date(text).ok()?;
        let since_1970 = date.duration_since(UNIX_EPOCH).ok()?;
        (Timestamp::EPOCH + since_1970).since(now).min(span::MAX)
    };
    Some(wait).filter(|wait| !wait.is_zero())
}

/// The failure that no answer is. What was sent may have been acted upon, and then nobody knows the outcome.
pub(crate) fn unanswered(error: EgressError) -> Failure {
    use EgressErrorKind as Kind;
    let message = Failure::from_error(&error).message;
    match error.kind() {
        Kind::Refused => Failure::from_code("SSRF_BLOCKED", message),
        Kind::Invalid => Failure::from_code("INVALID_URL", message),
        Kind::Resolve => Failure::from_code("DNS_ERROR", message),
        Kind::Connect => Failure::from_code("NETWORK_ERROR", message),
        Kind::Tls => Failure::from_code("TLS_ERROR", message),
        Kind::TimedOutUnsent => Failure::from_code("TIMEOUT", message),
        Kind::TimedOutSent => Failure::unknown_outcome(message).code("TIMEOUT"),
        Kind::Reset => Failure::unknown_outcome(message).code("NETWORK_ERROR"),
        // It was acted upon and said so at length; to do it again would only bring the same length.
        Kind::TooLarge => Failure::permanent(message).code(RESPONSE_TOO_LARGE),
    }
}

/// The failure that a success is for whoever needs all of its body, and cannot have it.
pub(super) fn cut_short(host: &str) -> Failure {
    let message = format!(
        "the answer of {host} is larger than {READ_BYTES_MAX} bytes; ask for less, or download it as a file"
    );
    Failure::permanent(message).code(RESPONSE_TOO_LARGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderValue, StatusCode};
    use redrive::Class;
    use serde_json::json;

    fn response(status: u16, headers: &[(&'static str, &str)], body: &str) -> Response {
        let headers = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            truncated: false,
        }
    }

    fn asked(text: &str) -> Option<Duration> {
        let now: Timestamp = "2026-11-16T04:00:00Z".parse().unwrap();
        retry_after(&response(503, &[("retry-after", text)], "").headers, now)
    }

    fn kept(response: &Response) -> Value {
        serde_json::to_value(Kept::of(response)).unwrap()
    }

    #[test]
    fn a_wait_is_read_in_seconds_and_as_a_date() {
        assert_eq!(asked("120"), Some(secs(120)));
        assert_eq!(asked("Mon, 16 Nov 2026 04:02:00 GMT"), Some(secs(120)));
        assert_eq!(asked("Monday, 16-Nov-26 04:02:00 GMT"), Some(secs(120)));
        assert_eq!(asked("Mon Nov 16 04:02:00 2026"), Some(secs(120)));
    }

    #[test]
    fn a_wait_that_makes_no_sense_is_none_and_one_without_end_has_one() {
        for text in
            ["", "0", "-5", "1.5", "soon", "Thu, 01 Jan 1970 00:00:00 GMT", "Mon, 16 Nov 2026 03:59:00 GMT"]
        {
            assert_eq!(asked(text), None, "{text}");
        }
        assert_eq!(asked("999999999999"), Some(span::MAX));
        assert_eq!(asked("99999999999999999999999999"), Some(span::MAX));
        assert_eq!(asked("Fri, 31 Dec 9999 23:59:59 GMT"), Some(span::MAX));
    }

    #[test]
    fn a_status_gives_the_class() {
        let judged =
            |status| refused("a.example", &response(status, &[("retry-after", "7")], "x"), Timestamp::EPOCH);
        for (status, class, wait) in [
            (302, Class::Permanent, None),
            (400, Class::Permanent, None),
            (401, Class::NeedsAuth, None),
            (403, Class::NeedsAuth, None),
            (404, Class::Permanent, None),
            (408, Class::Transient, Some(secs(7))),
            (429, Class::RateLimited, Some(secs(7))),
            (500, Class::Transient, Some(secs(7))),
            (503, Class::Transient, Some(secs(7))),
        ] {
            let failure = judged(status);
            assert_eq!(
                (failure.class, failure.retry_after, failure.status),
                (class, wait, Some(status)),
                "{status}"
            );
        }
        assert!(judged(404).is_not_found() && judged(410).is_not_found() && !judged(400).is_not_found());
        assert_eq!([404, 410, 400].map(|status| judged(status).code.is_some()), [true, true, false]);
    }

    #[test]
    fn only_an_answer_that_names_a_place_points_elsewhere() {
        let told = |status, headers: &[_]| {
            refused("a.example", &response(status, headers, ""), Timestamp::EPOCH).message
        };
        assert!(told(302, &[("location", "/there")]).contains("302 and points elsewhere; write the URL"));
        assert_eq!(told(304, &[]), "a.example answered 304");
    }

    #[test]
    fn what_is_kept_of_an_answer_is_bounded() {
        let json =
            response(200, &[("content-type", "application/json"), ("set-cookie", "secret")], r#"{"a":[1]}"#);
        let output = kept(&json);
        assert_eq!(
            output,
            json!({"status": 200, "headers": {"content-type": "application/json"}, "body": {"a": [1]}})
        );
        let long = "ü".repeat(KEPT_BYTES_MAX);
        let output = kept(&response(200, &[("etag", &"x".repeat(4_000))], &format!("x{long}")));
        assert_eq!(output["headers"]["etag"].as_str().unwrap().len(), KEPT_HEADER_BYTES_MAX);
        let body = output["body"].as_str().unwrap();
        assert!(body.len() >= KEPT_BYTES_MAX - 1 && body.ends_with('ü') && output["truncated"] == true);
        assert_eq!(kept(&response(204, &[], ""))["body"], Value::Null);
    }

    #[test]
    fn a_refusal_quotes_what_was_said_without_its_lines() {
        let failure =
            refused("a.example", &response(500, &[], "<h1>\n  Oh\u{1b}[31m no</h1>"), Timestamp::EPOCH);
        assert_eq!(failure.message, "a.example answered 500");
        assert_eq!(failure.in_full(), "a.example answered 500: <h1> Oh[31m no</h1>");
        let silent = refused("a.example", &response(500, &[], " \n"), Timestamp::EPOCH);
        assert_eq!(silent.in_full(), "a.example answered 500");
    }

    #[test]
    fn a_refusal_is_quoted_without_secrets_wherever_the_quotation_ends() {
        let said = |body: &str| {
            refused("a.example", &response(401, &[], body), Timestamp::EPOCH).in_full().into_owned()
        };
        let echoed = said("GET /x\nAuthorization: Bearer s3cr3t-0\nX-Own: y\n");
        assert_eq!(echoed, "a.example answered 401: GET /x Authorization: *** X-Own: y");
        // Of the URL's password, the cut would leave the beginning, and nothing that tells what it is.
        let far = "x".repeat(QUOTED_CHARS_MAX - 20);
        let cut = said(&format!("{far} https://user:{}@host/", "s3cr3t".repeat(20)));
        assert!(!cut.contains("s3cr3t") && cut.contains("https://***@"), "{cut}");
    }
}
