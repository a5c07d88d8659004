//! Reads the payload of an `http` job: all of it, before anything is sent, so that a mistake is found when the job is
//! enqueued.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::egress::{HEADER_BYTES_MAX, HEADERS_MAX, Redirects, Request, user_header};

/// More sources than anyone has; a longer list is a mistake.
const SOURCES_MAX: usize = 16;

/// The longest name of a credential.
const CREDENTIAL_BYTES_MAX: usize = 64;

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    /// At least one, in the order they are asked.
    pub(super) sources: Vec<Request>,
    pub(super) verify: Option<Box<Request>>,
    pub(super) endpoint: Option<String>,
    /// The name of what it is let in with, where a host knows several.
    pub(super) credential: Option<String>,
}

/// As it is written. Nothing is copied that can be read where it stands.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct Written<'a> {
    #[serde(borrow)]
    method: Option<Text<'a>>,
    #[serde(borrow)]
    url: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "crate::reading::fields_if_any")]
    headers: Option<BTreeMap<Text<'a>, Text<'a>>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    #[serde(borrow)]
    sources: Option<Vec<WrittenSource<'a>>>,
    #[serde(borrow)]
    verify: Option<WrittenVerify<'a>>,
    endpoint: Option<String>,
    credential: Option<String>,
    #[serde(default)]
    follow_redirects: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with a \"url\"")]
struct WrittenSource<'a> {
    #[serde(borrow)]
    method: Option<Text<'a>>,
    #[serde(borrow)]
    url: Text<'a>,
    #[serde(borrow, default, deserialize_with = "crate::reading::fields")]
    headers: BTreeMap<Text<'a>, Text<'a>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with a \"url\"")]
struct WrittenVerify<'a> {
    #[serde(borrow)]
    url: Text<'a>,
    #[serde(borrow, default, deserialize_with = "crate::reading::fields")]
    headers: BTreeMap<Text<'a>, Text<'a>>,
}

/// A text, which has to be copied only if there are escapes in it.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Plan {
    /// What a payload asks for.
    pub(super) fn read(text: &str) -> Result<Plan, String> {
        let written: Written<'_> = crate::reading::read_in("payload", text).map_err(|error| {
            format!("the payload of an http job is not readable: {error}; write {{\"method\":\"POST\",\"url\":\"https://…\"}}")
        })?;
        let Written { method, url, headers, body, sources, verify, endpoint, credential, follow_redirects } =
            written;
        let mut sources = match (url, sources) {
            (Some(url), None) => {
                let source = WrittenSource { method, url, headers: headers.unwrap_or_default(), body };
                vec![source.read()?]
            }
            (None, Some(sources)) => {
                if method.is_some() || headers.is_some() || body.is_some() {
                    return Err(
                        "with \"sources\", method, headers and body belong into each source".to_owned()
                    );
                }
                read_sources(sources)?
            }
            (Some(_), Some(_)) => {
                return Err("there are both \"url\" and \"sources\"; write one of them".to_owned());
            }
            (None, None) => return Err("there is no \"url\"; write \"url\" or \"sources\"".to_owned()),
        };
        let verify = verify.map(WrittenVerify::read).transpose();
        let verify = verify.map_err(|problem| format!("verify: {problem}"))?.map(Box::new);
        if follow_redirects {
            sources.iter_mut().for_each(|source| source.redirects = Redirects::Follow);
        }
        if let Some(name) = &credential {
            check_credential(name)?;
        }
        Ok(Plan { sources, verify, endpoint, credential })
    }

    /// Whether a source can carry a body and was given none of its own.
    pub(super) fn wants_body(&self) -> bool {
        self.sources.iter().any(wants_body)
    }

    /// A node of a workflow that says nothing else is sent what it is given.
    pub(super) fn give_body(&mut self, inputs: &redrive::Inputs) {
        let body = Bytes::from(serde_json::to_vec(inputs).unwrap_or_default());
        for source in self.sources.iter_mut().filter(|source| wants_body(source)) {
            source.body = body.clone();
            source.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        }
    }

    /// Whose health matters: a host, and a credential of it where one is named, so that one that is not accepted holds
    /// nobody else's jobs.
    pub(super) fn destination(&self) -> String {
        let host = self.sources.first().map(Request::destination).unwrap_or_default();
        match &self.credential {
            Some(credential) => format!("{host}#{credential}"),
            None => host,
        }
    }
}

fn check_credential(name: &str) -> Result<(), String> {
    let is_name = (1..=CREDENTIAL_BYTES_MAX).contains(&name.len())
        && !name.contains(|c: char| c == '#' || c == '/' || c.is_control() || c.is_whitespace());
    match is_name {
        true => Ok(()),
        false => Err(format!(
            "the credential is called {name:?}; write its name in 1 to {CREDENTIAL_BYTES_MAX} bytes without # and \
             spaces, and never the credential itself"
        )),
    }
}

fn wants_body(source: &Request) -> bool {
    source.body.is_empty() && matches!(source.method, Method::POST | Method::PUT | Method::PATCH)
}

fn read_sources(sources: Vec<WrittenSource<'_>>) -> Result<Vec<Request>, String> {
    if !(1..=SOURCES_MAX).contains(&sources.len()) {
        return Err(format!("there are {} sources; write 1 to {SOURCES_MAX}", sources.len()));
    }
    let place = |(n, source): (usize, WrittenSource<'_>)| {
        source.read().map_err(|problem| format!("sources[{n}]: {problem}"))
    };
    sources.into_iter().enumerate().map(place).collect()
}

impl WrittenSource<'_> {
    fn read(self) -> Result<Request, String> {
        let method = match &self.method {
            None if self.body.is_some() => Method::POST,
            None => Method::GET,
            Some(Text(name)) => read_method(name)?,
        };
        if self.body.is_some() && matches!(method, Method::GET | Method::HEAD) {
            return Err(format!("a {method} has no body; leave \"body\" out, or write \"method\":\"POST\""));
        }
        let mut request = request(method, &self.url.0)?;
        request.headers = read_headers(&self.headers)?;
        if let Some(json) = self.body {
            request.body = read_body(json, &mut request.headers)?;
        }
        Ok(request)
    }
}

impl WrittenVerify<'_> {
    fn read(self) -> Result<Request, String> {
        WrittenSource { method: None, url: self.url, headers: self.headers, body: None }.read()
    }
}

thread_local! {
    /// The URL that was read last: to read one takes longer than all else, and often many jobs in a row go to one.
    static LAST: RefCell<Option<(String, Request)>> = const { RefCell::new(None) };
}

/// The guard reads the URL, so that what is let through here can be sent.
fn request(method: Method, url: &str) -> Result<Request, String> {
    LAST.with_borrow_mut(|last| {
        if let Some((_, request)) = last.as_ref().filter(|(known, _)| known == url) {
            let mut request = request.clone();
            request.method = method;
            return Ok(request);
        }
        let request = Request::new(method, url).map_err(|error| error.to_string())?;
        *last = Some((url.to_owned(), request.clone()));
        Ok(request)
    })
}

fn read_method(name: &str) -> Result<Method, String> {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    known
        .into_iter()
        .find(|method| method.as_str().eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("{name:?} is no method; write GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS"))
}

/// A body as it is sent, and what it is: text as the text it is, everything else as the JSON it was written as.
fn read_body(json: &RawValue, headers: &mut HeaderMap) -> Result<Bytes, String> {
    let (bytes, kind) = if json.get().starts_with('"') {
        let text: String = serde_json::from_str(json.get()).map_err(|error| error.to_string())?;
        (Bytes::from(text), "text/plain; charset=utf-8")
    } else {
        (Bytes::copy_from_slice(json.get().as_bytes()), "application/json")
    };
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
    Ok(bytes)
}

fn read_headers(written: &BTreeMap<Text<'_>, Text<'_>>) -> Result<HeaderMap, String> {
    let bytes: usize = written.iter().map(|(Text(name), Text(value))| name.len() + value.len()).sum();
    if written.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
        let count = written.len();
        return Err(format!(
            "there are {count} headers of {bytes} bytes; write at most {HEADERS_MAX} of {HEADER_BYTES_MAX} bytes"
        ));
    }
    let mut headers = HeaderMap::new();
    for (Text(name), Text(value)) in written {
        let (name, value) = user_header(name, value)?;
        if headers.insert(&name, value).is_some() {
            return Err(format!("the header {name} is there twice"));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(payload: serde_json::Value) -> Result<Plan, String> {
        Plan::read(&payload.to_string())
    }

    fn body_and_type(payload: &str) -> (String, String) {
        let source = Plan::read(payload).unwrap().sources.remove(0);
        let body = String::from_utf8(source.body.to_vec()).unwrap();
        (body, source.headers["content-type"].to_str().unwrap().to_owned())
    }

    #[test]
    fn a_body_is_sent_as_it_was_written() {
        let (body, kind) =
            body_and_type(r#"{"url":"http://a.example/","body":{"z":1.0,"a":12345678901234567890123}}"#);
        assert_eq!(
            (body.as_str(), kind.as_str()),
            (r#"{"z":1.0,"a":12345678901234567890123}"#, "application/json")
        );
        let (body, kind) = body_and_type(r#"{"url":"http://a.example/","body":"grüße\n"}"#);
        assert_eq!((body.as_str(), kind.as_str()), ("grüße\n", "text/plain; charset=utf-8"));
        let (_, kind) = body_and_type(
            r#"{"url":"http://a.example/","body":"<a/>","headers":{"Content-Type":"text/xml"}}"#,
        );
        assert_eq!(kind, "text/xml");
    }

    #[test]
    fn what_was_read_before_does_not_change_what_is_read_now() {
        let first = json!({"url": "http://a.example/x", "headers": {"x-a": "1"}, "body": 1});
        let again = json!({"url": "http://a.example/x"});
        let elsewhere = json!({"url": "http://b.example/x"});
        for (payload, method, host) in [
            (&first, Method::POST, "a.example"),
            (&again, Method::GET, "a.example"),
            (&elsewhere, Method::GET, "b.example"),
            (&first, Method::POST, "a.example"),
        ] {
            let source = read(payload.clone()).unwrap().sources.remove(0);
            assert_eq!((&source.method, source.destination().as_str()), (&method, host));
            assert_eq!(source.headers.contains_key("x-a"), method == Method::POST);
            assert_eq!(source.body.is_empty(), method == Method::GET);
        }
        assert!(read(json!({"url": "http://a.example /"})).is_err());
        assert!(read(again).is_ok(), "a mistake is not remembered");
    }

    #[test]
    fn the_method_is_post_with_a_body_and_get_without() {
        assert_eq!(read(json!({"url": "http://a.example/"})).unwrap().sources[0].method, Method::GET);
        assert_eq!(
            read(json!({"url": "http://a.example/", "body": 1})).unwrap().sources[0].method,
            Method::POST
        );
        assert_eq!(
            read(json!({"url": "http://a.example/", "method": "put"})).unwrap().sources[0].method,
            Method::PUT
        );
    }

    #[test]
    fn the_destination_is_the_first_host() {
        assert_eq!(read(json!({"url": "https://API.Example/x"})).unwrap().destination(), "api.example");
        assert_eq!(
            read(json!({"url": "https://api.example:8443/x"})).unwrap().destination(),
            "api.example:8443"
        );
        let sources = json!({"sources": [{"url": "http://[2001:db8::1]:81/"}, {"url": "http://b.example/"}]});
        assert_eq!(read(sources).unwrap().destination(), "[2001:db8::1]:81");
        let named = json!({"url": "https://a.example/x", "credential": "crm"});
        assert_eq!(read(named).unwrap().destination(), "a.example#crm");
    }

    #[test]
    fn a_mistake_says_what_to_write() {
        let url = "http://a.example/";
        for (payload, says) in [
            (json!([]), "not readable"),
            (json!({}), "write \"url\" or \"sources\""),
            (json!({"url": url, "sources": []}), "both"),
            (json!({"sources": []}), "1 to 16"),
            (json!({"sources": [{"url": url}], "body": 1}), "belong into each source"),
            (json!({"url": url, "boddy": 1}), "payload.boddy is not known; write method"),
            (json!({"url": "ftp://a.example/"}), "write http or https"),
            (json!({"url": "http://u:p@a.example/"}), "Authorization header"),
            (json!({"url": url, "method": "TRACE"}), "is no method"),
            (json!({"url": url, "method": "GET", "body": 1}), "has no body"),
            (json!({"url": url, "headers": {"Host": "b"}}), "leave it out"),
            (json!({"url": url, "headers": {"x-a": "1", "X-A": "2"}}), "there twice"),
            (json!({"sources": [{"url": url}, {"url": "x"}]}), "sources[1]:"),
            (json!({"url": url, "verify": {"url": "file:///etc/passwd"}}), "verify: the scheme"),
            (json!({"url": url, "credential": "a#b"}), "write its name"),
            (json!({"url": url, "credential": ""}), "write its name"),
        ] {
            let error = read(payload.clone()).unwrap_err();
            assert!(error.contains(says), "{payload}: {error}");
        }
        let many: BTreeMap<String, String> = (0..65).map(|n| (format!("x-{n}"), "1".to_owned())).collect();
        assert!(read(json!({"url": url, "headers": many})).unwrap_err().contains("65 headers"));
    }
}
