//! What is to be sent and what came back, and what may not be sent: schemes, credentials in URLs, headers that would
//! change where or how a request goes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use redrive::secs;
use url::{Host, Position, Url};

use super::error::{EgressError, EgressErrorKind};
use crate::redact::redact;

/// As long as any server takes.
pub const URL_BYTES_MAX: usize = 8 * 1024;
/// Headers that a user may give one request.
pub const HEADERS_MAX: usize = 64;
/// The names and values of those headers together.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// How much of a successful answer is read. Of what is larger, this is the beginning.
pub const READ_BYTES_MAX: usize = 64 * 1024;
/// How much of an answer is kept with a job; and how much is read of one that says no.
pub const KEPT_BYTES_MAX: usize = 8 * 1024;

/// A request that may be sent by [`Egress::send`](super::Egress::send).
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub method: Method,
    /// Of whom. Made by [`Request::new`], so that it is one that can be sent.
    url: Url,
    /// Sent as they are. What a user wrote comes through [`user_header`] first.
    pub headers: HeaderMap,
    /// Empty for none.
    pub body: Bytes,
    /// How long each part may take.
    pub timeouts: Timeouts,
    /// What to do when the far side points elsewhere.
    pub redirects: Redirects,
}

/// How long each part of a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the name to a connection that is ready, with TLS.
    pub connect: Duration,
    /// From the request's first byte to the end of the answer's headers.
    pub first_byte: Duration,
    /// From one piece of the answer's body to the next.
    pub idle: Duration,
    /// All of it, with every redirect.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect: secs(10), first_byte: secs(30), idle: secs(10), total: secs(60) }
    }
}

/// What to do when the far side points elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// The redirect is the answer.
    #[default]
    Keep,
    /// Go there, at most three times, each as guarded as the first.
    Follow,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its status, whatever it is: a 500 is an answer too.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as it came: nothing is unpacked. At most [`READ_BYTES_MAX`] of it.
    pub body: Bytes,
    /// Whether there was more of the body. Its connection is closed then.
    pub truncated: bool,
}

impl Request {
    /// A request without headers and body.
    ///
    /// # Errors
    ///
    /// [`EgressErrorKind::Invalid`] and what to write instead.
    pub fn new(method: Method, url: &str) -> Result<Request, EgressError> {
        if method == Method::CONNECT || method == Method::TRACE {
            return Err(invalid(format!(
                "the method {method} is not one a job may use; write GET or POST, say"
            )));
        }
        let (timeouts, redirects) = (Timeouts::default(), Redirects::default());
        Ok(Request {
            method,
            url: checked_url(url)?,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeouts,
            redirects,
        })
    }

    /// Where it goes.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Whose it is to answer: the host, with the port if it is not the usual one.
    pub fn destination(&self) -> String {
        self.authority().to_owned()
    }

    /// The same as it stands in the URL, where a port is only left if it is not the usual one.
    pub(super) fn authority(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }

    /// What becomes of this request when the far side answers it with a redirect to `location`.
    pub(super) fn redirected(mut self, status: StatusCode, location: &str) -> Result<Request, EgressError> {
        let to = self.url.join(location).map_err(|_| invalid("the redirect goes to no URL".to_owned()))?;
        let to = checked_url(to.as_str())?;
        if self.url.scheme() == "https" && to.scheme() != "https" {
            let message = "the redirect leads from https to http, where everyone can read along";
            return Err(EgressError::new(EgressErrorKind::Refused, message));
        }
        if to.origin() != self.url.origin() {
            // Whoever is elsewhere was not meant to get credentials, signatures or anything else that was written
            // for this one.
            use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, IF_RANGE, RANGE, USER_AGENT};
            let kept = [CONTENT_TYPE, ACCEPT, ACCEPT_ENCODING, IF_RANGE, RANGE, USER_AGENT];
            let kept =
                kept.into_iter().filter_map(|name| Some((name.clone(), self.headers.get(name)?.clone())));
            self.headers = kept.collect();
        }
        let becomes_get = match status {
            StatusCode::SEE_OTHER => self.method != Method::HEAD,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = Bytes::new();
            self.headers.remove(http::header::CONTENT_TYPE);
        }
        self.url = to;
        Ok(self)
    }
}

/// Where a request goes: everything a connection depends on but the address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    pub(super) tls: bool,
    pub(super) host: Host<String>,
    pub(super) port: u16,
}

impl Origin {
    /// The origin of a URL that [`Request::new`] has let through.
    pub(super) fn of(url: &Url) -> Result<Origin, EgressError> {
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(invalid("the URL names no host".to_owned()));
        };
        Ok(Origin { tls: url.scheme() == "https", host: host.to_owned(), port })
    }
}

/// Reads a URL as a browser does, and refuses what a browser would quietly put right.
fn checked_url(text: &str) -> Result<Url, EgressError> {
    if text.len() > URL_BYTES_MAX {
        return Err(invalid(format!("the URL is longer than {URL_BYTES_MAX} bytes")));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid(
            "the URL holds white space or control characters; write %20 for a space".to_owned(),
        ));
    }
    if text.contains('\\') {
        return Err(invalid("the URL holds a backslash; write / or %5C".to_owned()));
    }
    // What is no URL may hold a password all the same.
    let shown = || redact(text);
    let mut url = Url::parse(text)
        .map_err(|error| invalid(format!("{:?} is no URL ({error}); write https://host/path", shown())))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(format!("the scheme {:?} is not served; write http or https", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() || has_user_info(text) {
        return Err(invalid(
            "the URL holds a user name or a password; write them into an Authorization header".to_owned(),
        ));
    }
    if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
        return Err(invalid(format!("{:?} names no host and port that can be reached", shown())));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Whether there is an `@` before the path: `http://@host/` has an empty user, which a parser forgets.
fn has_user_info(text: &str) -> bool {
    let after = text.split_once(':').map_or("", |(_, after)| after.trim_start_matches('/'));
    after.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

/// Reads a header that a user wrote, and refuses those that would change where or how the request goes, or that are
/// this server's to write.
///
/// # Errors
///
/// What is wrong with it, for people.
pub fn user_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    const OURS: &[&str] = &[
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    const OUR_FAMILIES: &[&str] = &["proxy-", "redrive-", "webhook-"];
    let shown = name.escape_debug();
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        format!("\"{shown}\" cannot be the name of a header; use letters, digits and hyphens")
    })?;
    let lower = parsed.as_str();
    if OURS.contains(&lower) || OUR_FAMILIES.iter().any(|family| lower.starts_with(family)) {
        return Err(format!("the header {lower} is written by Redrive itself; leave it out"));
    }
    if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(format!("the header {lower} holds a line break or NUL; leave it out"));
    }
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| format!("the header {lower} holds a control character; leave it out"))?;
    Ok((parsed, value))
}

fn invalid(message: String) -> EgressError {
    EgressError::new(EgressErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<Url, EgressError> {
        checked_url(text)
    }

    #[test]
    fn only_plain_http_urls_are_let_through() {
        let refused = [
            "",
            "/path",
            "example.com",
            "//example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "data:text/plain,x",
            "javascript:alert(1)",
            "unix:/run/x.sock",
            "http://",
            "http:///",
            "https://?x",
            "http://user@example.com/",
            "http://user:pw@example.com/",
            "http://@example.com/",
            "http://:@example.com/",
            "http://:pw@example.com/",
            "http://example.com:0/",
            "http://example.com:99999/",
            "http://exa mple.com/",
            "http://a.com/\r\nX: y",
            "http://a.com\\@b.com/",
            "http:\\\\a.com/",
            " http://a.com/",
            "http://a.com/\t",
            "http://[::1%25eth0]/",
            "http://[fe80::1%eth0]/",
            "http://1.2.3.256/",
            "http://%00/",
            "http://a%2fb/",
            "http://[::1/",
        ];
        for text in refused {
            let error = url(text).expect_err(text);
            assert_eq!(error.kind(), EgressErrorKind::Invalid, "{text}");
        }
        for text in [
            "http://example.com",
            "https://example.com:8443/a?b=c@d#e",
            "http://例え.テスト/",
            "http://a.com/@x",
        ] {
            assert!(url(text).is_ok(), "{text}");
        }
        assert_eq!(url("http://例え.テスト/x#y").unwrap().as_str(), "http://xn--r8jz45g.xn--zckzah/x");
        assert!(url(&format!("http://a.com/{}", "x".repeat(URL_BYTES_MAX))).is_err());
    }

    #[test]
    fn headers_that_steer_the_request_are_ours() {
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
            "Expect",
            "Proxy-Authorization",
            "proxy-connection",
            "Proxy-X",
            "webhook-id",
            "Webhook-Signature",
            "webhook-anything",
            "Redrive-Attempt",
            "HTTP2-Settings",
        ] {
            assert!(user_header(name, "x").unwrap_err().contains("leave it out"), "{name}");
        }
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a:b", "x"),
            ("a\r\nb", "x"),
            ("ä", "x"),
            ("x-a", "b\r\nHost: evil"),
            ("x-a", "b\nc"),
            ("x-a", "b\rc"),
            ("x-a", "b\0c"),
            ("x-a", "b\u{7f}"),
            ("x-a", "\u{1b}[31m"),
        ] {
            assert!(user_header(name, value).is_err(), "{name:?}: {value:?}");
        }
        for (name, value) in
            [("Authorization", "Bearer x"), ("X-Api-Key", "k"), ("Accept", "*/*"), ("x-a", "ä\tb")]
        {
            assert!(user_header(name, value).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_url_that_is_none_is_shown_without_its_password() {
        for text in ["http://u:hunter2@[::1/", "http://u:hunter2@h:99999/", "http://u:hunter2@1.2.3.256/"] {
            let error = url(text).unwrap_err().to_string();
            assert!(error.contains("://***@") && !error.contains("hunter2"), "{error}");
        }
    }

    fn post(to: &str) -> Request {
        let mut request = Request::new(Method::POST, to).unwrap();
        request.body = Bytes::from_static(b"{}");
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("x-own", "y"),
            ("content-type", "application/json"),
            ("accept", "*/*"),
        ] {
            request.headers.insert(name, HeaderValue::from_static(value));
        }
        request
    }

    #[test]
    fn a_redirect_to_another_origin_takes_no_credentials_along() {
        let there =
            post("https://a.example/1").redirected(StatusCode::TEMPORARY_REDIRECT, "https://b.example/2");
        let there = there.unwrap();
        let names: Vec<&str> = there.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "accept"]);
        assert_eq!((there.method, there.body.len()), (Method::POST, 2));
        let here = post("https://a.example/1").redirected(StatusCode::PERMANENT_REDIRECT, "/2").unwrap();
        assert_eq!((here.url.as_str(), here.headers.len()), ("https://a.example/2", 4));
        let port =
            post("https://a.example/1").redirected(StatusCode::TEMPORARY_REDIRECT, "https://a.example:444/");
        assert_eq!(port.unwrap().headers.get("authorization"), None);
    }

    #[test]
    fn a_redirect_never_leaves_https_nor_http_altogether() {
        let post = || post("https://a.example/1");
        let down = post().redirected(StatusCode::FOUND, "http://a.example/").unwrap_err();
        assert_eq!(down.kind(), EgressErrorKind::Refused);
        for location in ["file:///etc/passwd", "ftp://a/", "https://u:p@a.example/", "http://["] {
            assert!(post().redirected(StatusCode::FOUND, location).is_err(), "{location}");
        }
    }

    #[test]
    fn a_post_that_is_sent_elsewhere_becomes_a_get_where_the_status_says_so() {
        for (status, method) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
            let status = StatusCode::from_u16(status).unwrap();
            let there = post("https://a.example/1").redirected(status, "/2").unwrap();
            assert_eq!(there.method.as_str(), method, "{status}");
            assert_eq!(there.body.is_empty(), method == "GET", "{status}");
        }
    }
}
