//! From a status, a code, an error or a text to a class: will it help to wait?
//!
//! The rules are data: `classify/tables.rs`, read from top to bottom. Types speak first, codes second, statuses
//! third, and text last, because text misleads: «connection» stands in TLS errors, and «503» in the names of jobs.
//! A policy's own rules stand above all of them. Not here: what follows from a class.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::outcome::{Class, Failure, code_of};
use crate::policy::Policy;

mod tables;

use tables::{
    CERTIFICATE_PHRASES, CODES, COUNTED_AFTER, IO_KINDS, NUMBERED_BEFORE, STATUS_AFTER, STATUS_BEFORE, TEXTS,
    TEXTS_BEFORE_STATUS,
};

/// A class, and who gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What kind of trouble it is.
    pub class: Class,
    /// Which rule spoke, for people: `status 503`, `code TIMEOUT`, `text "rate limit"`, `policy rule 5xx`.
    pub rule: String,
    /// What kind of rule that is.
    pub source: By,
}

/// Who gave a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A rule of the policy.
    Rule,
    /// The handler said so itself.
    Handler,
    /// The type of the error.
    Type,
    /// Its code.
    Code,
    /// Its HTTP status.
    Status,
    /// A phrase in its text.
    Text,
    /// Nobody: nothing about it is known.
    Default,
}

/// One rule of a policy: what it is about, and the class it gives. In JSON `{"on": "5xx", "class": "transient"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which failures it is about.
    pub on: On,
    /// Their class.
    pub class: Class,
}

/// Which failures a rule is about; the more specific, the stronger: a code, a status, a class of statuses, a phrase,
/// anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum On {
    /// `code:TIMEOUT`
    Code(String),
    /// `429`
    Status(u16),
    /// `5xx` is 5.
    StatusClass(u16),
    /// `text:no parseable content`: a phrase, in any case of letters.
    Text(String),
    /// `any`: whatever no other rule is about, except what the handler itself has classified.
    Any,
}

impl Rule {
    /// A rule from its text: `Rule::new("5xx", Class::Transient)`.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn new(on: &str, class: Class) -> Result<Rule, String> {
        Ok(Rule { on: on.parse()?, class })
    }
}

impl On {
    fn matches(&self, failure: &Failure) -> bool {
        match self {
            On::Code(code) => {
                // As a failure's own is kept.
                let code = code_of(code).unwrap_or_default();
                let same = |other: &str| other.eq_ignore_ascii_case(&code);
                failure.code.as_deref().or_else(|| leading_code(&failure.message)).is_some_and(same)
            }
            On::Status(status) => failure.status == Some(*status),
            On::StatusClass(hundreds) => failure.status.is_some_and(|status| status / 100 == *hundreds),
            On::Text(phrase) => failure.in_full().to_lowercase().contains(&phrase.to_lowercase()),
            On::Any => failure.by != By::Handler,
        }
    }

    /// The larger, the more specific.
    const fn weight(&self) -> u8 {
        match self {
            On::Code(_) => 4,
            On::Status(_) => 3,
            On::StatusClass(_) => 2,
            On::Text(_) => 1,
            On::Any => 0,
        }
    }
}

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<On, String> {
        let named = |name: &str| text.strip_prefix(name).map(str::trim).filter(|rest| !rest.is_empty());
        if let Some(code) = named("code:") {
            return Ok(On::Code(code.to_owned()));
        }
        if let Some(phrase) = named("text:") {
            return Ok(On::Text(phrase.to_owned()));
        }
        if text == "any" {
            return Ok(On::Any);
        }
        let hundreds =
            text.strip_suffix("xx").and_then(|first| first.parse().ok()).filter(|n| (1..=5).contains(n));
        let status = || text.parse().ok().filter(|n| (100..=599).contains(n)).map(On::Status);
        hundreds.map(On::StatusClass).or_else(status).ok_or_else(|| {
            format!(
                "{text:?} names no failures; write a status (\"429\"), a class of them (\"5xx\"), \"code:TIMEOUT\", \
                 \"text:a phrase\" or \"any\""
            )
        })
    }
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            On::Code(code) => write!(f, "code:{code}"),
            On::Status(status) => write!(f, "{status}"),
            On::StatusClass(hundreds) => write!(f, "{hundreds}xx"),
            On::Text(phrase) => write!(f, "text:{phrase}"),
            On::Any => f.write_str("any"),
        }
    }
}

impl TryFrom<String> for On {
    type Error = String;
    fn try_from(text: String) -> Result<On, String> {
        text.parse()
    }
}

impl From<On> for String {
    fn from(on: On) -> String {
        on.to_string()
    }
}

/// Which class a failure has under a policy, and why: the policy's most specific rule (the first written, among
/// equals), then the failure's own class, then what the policy says of failures nobody knows.
pub fn explain(failure: &Failure, policy: &Policy) -> Verdict {
    let matching = policy.rules.iter().filter(|rule| rule.on.matches(failure));
    // `max_by_key` would give the last among equals.
    if let Some(rule) = matching.rev().max_by_key(|rule| rule.on.weight()) {
        return verdict(By::Rule, rule.class, format!("policy rule {}", rule.on));
    }
    match failure.by {
        By::Default => verdict(By::Default, policy.unknown, "unknown to every rule".to_owned()),
        By::Handler => verdict(By::Handler, failure.class, "the handler's word".to_owned()),
        source => verdict(source, failure.class, failure.rule.clone()),
    }
}

fn verdict(source: By, class: Class, rule: String) -> Verdict {
    Verdict { class, rule, source }
}

/// What code, status and text suggest, in this order.
pub(crate) fn judge(code: Option<&str>, status: Option<u16>, text: &str) -> Verdict {
    by_code(code)
        .or_else(|| by_status(status))
        .or_else(|| by_code(leading_code(text)))
        .or_else(|| by_text(text))
        .unwrap_or_else(|| verdict(By::Default, Class::Transient, "unknown to every rule".to_owned()))
}

/// What the types in an error and its sources suggest, with the code they stand for. `text` is their message.
pub(crate) fn judge_error(
    error: &(dyn Error + 'static),
    text: &str,
) -> Option<(Verdict, Option<&'static str>)> {
    // A certificate is as wrong tomorrow, whatever kind of i/o error carries the news.
    let text = prose(text);
    if let Some(phrase) = CERTIFICATE_PHRASES.iter().find(|phrase| text.contains(**phrase)) {
        return Some((verdict(By::Type, Class::Permanent, format!("tls {phrase:?}")), Some("TLS_ERROR")));
    }
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = by_type(error) {
            return Some(found);
        }
        // An i/o error's `source` skips the error inside it.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}

fn by_type(error: &(dyn Error + 'static)) -> Option<(Verdict, Option<&'static str>)> {
    if error.is::<tokio::time::error::Elapsed>() {
        return Some((verdict(By::Type, Class::Transient, "time-out".to_owned()), Some("TIMEOUT")));
    }
    if let Some(json) = error.downcast_ref::<serde_json::Error>() {
        return match json.io_error_kind() {
            Some(kind) => by_io_kind(kind),
            None => Some((verdict(By::Type, Class::Permanent, "json".to_owned()), Some("INVALID_INPUT"))),
        };
    }
    by_io_kind(error.downcast_ref::<io::Error>()?.kind())
}

fn by_io_kind(kind: ErrorKind) -> Option<(Verdict, Option<&'static str>)> {
    let (_, class, code) = IO_KINDS.iter().find(|(known, _, _)| *known == kind)?;
    Some((verdict(By::Type, *class, format!("io {kind:?}")), *code))
}

fn by_code(code: Option<&str>) -> Option<Verdict> {
    let code = code?;
    let (known, class) = CODES.iter().find(|(known, _)| known.eq_ignore_ascii_case(code))?;
    Some(verdict(By::Code, *class, format!("code {known}")))
}

fn by_status(status: Option<u16>) -> Option<Verdict> {
    let status = status?;
    Some(verdict(By::Status, class_of_status(status)?, format!("status {status}")))
}

/// A success is no failure, so its status says nothing about one.
fn class_of_status(status: u16) -> Option<Class> {
    match status {
        408 | 500..=599 => Some(Class::Transient),
        429 => Some(Class::RateLimited),
        401 | 403 => Some(Class::NeedsAuth),
        300..=499 => Some(Class::Permanent),
        _ => None,
    }
}

fn by_text(text: &str) -> Option<Verdict> {
    let text = prose(text);
    let in_table = |table: &[(&str, Class)]| {
        let (phrase, class) = table.iter().find(|(phrase, _)| has_phrase(&text, phrase))?;
        Some(verdict(By::Text, *class, format!("text {phrase:?}")))
    };
    let by_number = || {
        let status = status_in(&text)?;
        Some(verdict(By::Text, class_of_status(status)?, format!("text \"{status}\"")))
    };
    in_table(TEXTS_BEFORE_STATUS).or_else(by_number).or_else(|| in_table(TEXTS))
}

/// A text in lower case and without its URLs, whose paths and hosts say nothing about what went wrong.
fn prose(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !word.contains("://"));
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Short phrases match as whole words («ssl» is neither in «hassle» nor in «ssl.example.org»), long ones anywhere.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let mut words = text.split(|c: char| c.is_whitespace() || "()[]{}\"':,;=_".contains(c));
    phrase.len() > 3 && text.contains(phrase)
        || words.any(|word| word.trim_end_matches(['.', '!', '?']) == phrase)
}

/// The code that a text begins with, if it is one: known, or in the form `LIKE_THIS:`.
pub(crate) fn code_in(text: &str) -> Option<&str> {
    leading_code(text).filter(|code| code.contains('_') || by_code(Some(code)).is_some())
}

/// `TIMEOUT` of `TIMEOUT: no answer`.
fn leading_code(text: &str) -> Option<&str> {
    let (code, _) = text.split_once(':')?;
    let letters = code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    (letters && code.len() >= 3).then_some(code)
}

/// The HTTP status that a text speaks of: a number that stands alone, and beside words that make it a status. Those
/// that mean an outage may stand without such words, unless they count something or are somebody's number.
pub(crate) fn status_in(text: &str) -> Option<u16> {
    let text = prose(text);
    let words = text.split(|c: char| c.is_whitespace() || "()[]{}\"'=,;<>".contains(c));
    let words: Vec<&str> =
        [""].into_iter().chain(words.filter(|word| !word.is_empty())).chain([""]).collect();
    words.windows(3).find_map(|near| status_at(near[0], near[1], near[2]))
}

/// The status that `word` is, given its neighbours.
fn status_at(before: &str, word: &str, after: &str) -> Option<u16> {
    let word = word.trim_end_matches(['.', ':', '!', '?']);
    let (label, number) =
        word.rsplit_once([':', '/']).map_or((None, word), |(label, number)| (Some(label), number));
    let status: u16 = number.parse().ok().filter(|n| number.len() == 3 && (400..=599).contains(n))?;
    let before = label.unwrap_or(before).trim_end_matches([':', '/']);
    if COUNTED_AFTER.contains(&after) || NUMBERED_BEFORE.contains(&before) {
        return None;
    }
    let named = STATUS_BEFORE.contains(&before) || before.starts_with("http/");
    let described = STATUS_AFTER.iter().any(|phrase| after.starts_with(phrase));
    let outage = [429, 502, 503, 504].contains(&status);
    // `host:503` and `/items/503` are addresses, whatever follows.
    (named || (label.is_none() && (described || outage))).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_text(text: &str) -> (Class, By) {
        let failure = Failure::from_text(text);
        (failure.class, failure.by)
    }

    #[test]
    fn every_status_has_its_class() {
        // S1-14 to S1-20.
        let table = [
            (Class::Permanent, &[400, 404, 405, 409, 410, 418, 422, 451, 301][..]),
            (Class::NeedsAuth, &[401, 403]),
            (Class::Transient, &[408, 500, 501, 502, 503, 504, 505, 520, 599]),
            (Class::RateLimited, &[429]),
        ];
        for (class, statuses) in table {
            for status in statuses {
                let failure = Failure::from_status(*status, "x");
                assert_eq!((failure.class, failure.by), (class, By::Status), "{status}");
                assert_eq!(failure.rule, format!("status {status}"));
            }
        }
        assert_eq!(Failure::from_status(200, "x").by, By::Default);
    }

    #[test]
    fn every_code_has_its_class() {
        // S0-18, S0-19.
        for code in ["TIMEOUT", "NETWORK_ERROR", "SERVICE_DOWN", "timeout", "ECONNRESET"] {
            assert_eq!(Failure::from_code(code, "x").class, Class::Transient, "{code}");
        }
        assert_eq!(Failure::from_code("RATE_LIMIT", "x").class, Class::RateLimited);
        for code in ["NOT_FOUND", "INVALID_INPUT", "SSRF_BLOCKED", "NO_CONTENT"] {
            let failure = Failure::from_code(code, "connection timeout 503");
            assert_eq!((failure.class, failure.by), (Class::Permanent, By::Code), "{code}");
        }
        assert_eq!(Failure::from_code("WHATEVER", "connection reset").by, By::Text);
    }

    #[test]
    fn a_leading_code_in_a_text_is_a_code() {
        let failure = Failure::from_text("NOT_FOUND: no connection to that title");
        assert_eq!((failure.class, failure.by), (Class::Permanent, By::Code));
        assert_eq!(failure.code.as_deref(), Some("NOT_FOUND"));
        let unknown = Failure::from_text("QUOTA_SPENT: network");
        assert_eq!((unknown.by, unknown.code.as_deref()), (By::Text, Some("QUOTA_SPENT")));
        assert_eq!(Failure::from_text("ERROR: network").code, None);
    }

    #[test]
    fn the_phrases_of_s0_and_s4_are_known() {
        let transient = [
            "Timeout waiting for TMDb",
            "network unreachable",
            "Connection refused",
            "temporary failure",
            "service unavailable",
            "got 503",
            "502",
            "error 504.",
            "network timeout",
            "connection timeout",
            "HTTP 502",
            "DNS resolution failed",
            "failed to lookup address information: Name or service not known",
            "503 Service Unavailable",
            "status:503",
            "HTTP/1.1 503",
            "HTTP 500",
            "status code 500",
        ];
        for text in transient {
            assert_eq!(of_text(text), (Class::Transient, By::Text), "{text}");
        }
        for text in ["rate limit reached", "HTTP 429", "429", "Too Many Requests", "Rate-Limit exceeded"] {
            assert_eq!(of_text(text), (Class::RateLimited, By::Text), "{text}");
        }
        let permanent = [
            "HTTP 404",
            "404 Not Found",
            "Invalid URL format",
            "SSRF validation failed",
            "no parseable content",
            "movie not found",
            "error 404",
            "404 Client Error: no page for url",
        ];
        for text in permanent {
            assert_eq!(of_text(text), (Class::Permanent, By::Text), "{text}");
        }
        assert_eq!(of_text("HTTP 403 Forbidden"), (Class::NeedsAuth, By::Text));
        assert_eq!(Failure::from_text("HTTP 503 from upstream").rule, "text \"503\"");
    }

    #[test]
    fn text_does_not_mislead() {
        // P35: TLS errors speak of connections and are as wrong tomorrow.
        let tls = [
            "connection error: invalid peer certificate: UnknownIssuer",
            "TLS connection failed: handshake failure",
            "SSL: unable to establish connection",
            "network error: x509: certificate signed by unknown authority",
        ];
        for text in tls {
            assert_eq!(of_text(text).0, Class::Permanent, "{text}");
        }
        for text in
            ["net/http: TLS handshake timeout", "peer closed connection without sending TLS close_notify"]
        {
            assert_eq!(of_text(text).0, Class::Transient, "{text}");
        }
        for text in
            ["connection to ssl.example.org refused", "https://x.org/certificates/7: connection refused"]
        {
            assert_eq!(of_text(text).0, Class::Transient, "{text}");
        }
        // P35: numbers inside ids and addresses, and numbers of things.
        let numbers = [
            "job-15032 broke",
            "job 503 broke",
            "job-503 broke",
            "item #503 is odd",
            "wrote 503 bytes",
            "took 503 ms",
            "10.0.0.1:503 said no",
            "see /items/503",
            "v5.0.3",
            "1503",
            "x503",
            "503x",
            "line 502: bad token",
            "what a hassle",
            "returned 503 rows",
            "cannot parse https://x.org/timeout/503",
        ];
        for text in numbers {
            assert_eq!(of_text(text).1, By::Default, "{text}: {:?}", Failure::from_text(text));
        }
    }

    #[test]
    fn typed_errors_speak_before_their_text() {
        let refused = io::Error::new(ErrorKind::ConnectionRefused, "not found");
        assert_eq!(Failure::from(refused).class, Class::Transient);
        let missing = Failure::from(io::Error::new(ErrorKind::NotFound, "connection 503"));
        assert_eq!((missing.class, missing.is_not_found()), (Class::Permanent, true));
        let tls = io::Error::new(ErrorKind::ConnectionAborted, "invalid peer certificate: Expired");
        assert_eq!(Failure::from(tls).class, Class::Permanent);
        // An error inside an i/o error that has no kind of its own.
        let nested = io::Error::other(io::Error::from(ErrorKind::TimedOut));
        let nested = Failure::from(nested);
        assert_eq!((nested.class, nested.code.as_deref()), (Class::Transient, Some("TIMEOUT")));
        let json = serde_json::from_str::<u8>("connection").unwrap_err();
        assert_eq!(Failure::from(json).class, Class::Permanent);
    }

    #[test]
    fn the_most_specific_rule_of_a_policy_wins() {
        let rule = |on: &str, class| Rule::new(on, class).unwrap();
        // S2-36, in the order that would be wrong if order decided.
        let policy = Policy::immediate()
            .rule(rule("any", Class::Transient))
            .rule(rule("text:busy", Class::Permanent))
            .rule(rule("4xx", Class::Permanent))
            .rule(rule("408", Class::Transient))
            .rule(rule("code:GO_AWAY", Class::NeedsAuth))
            .rule(rule("code:GO_AWAY", Class::Transient));
        let said = |failure: Failure| {
            let Verdict { class, rule, source } = explain(&failure, &policy);
            assert_eq!(source, By::Rule);
            (class, rule)
        };
        let busy = || Failure::from_status(408, "busy").code("GO_AWAY");
        assert_eq!(said(busy()), (Class::NeedsAuth, "policy rule code:GO_AWAY".to_owned()));
        assert_eq!(said(Failure::from_status(408, "busy")), (Class::Transient, "policy rule 408".to_owned()));
        assert_eq!(said(Failure::from_status(404, "busy")), (Class::Permanent, "policy rule 4xx".to_owned()));
        assert_eq!(said(Failure::from_text("BUSY")), (Class::Permanent, "policy rule text:busy".to_owned()));
        let wrote = Failure::from_status(503, "a answered 503").detail("Busy, sorry");
        assert_eq!(said(wrote), (Class::Permanent, "policy rule text:busy".to_owned()));
        assert_eq!(said(Failure::from_text("?")), (Class::Transient, "policy rule any".to_owned()));
        assert_eq!(explain(&Failure::permanent("?"), &policy).class, Class::Permanent);
    }

    #[test]
    fn what_nobody_knows_is_for_the_policy_to_say() {
        let mut policy = Policy::immediate();
        assert_eq!(explain(&Failure::from_text("?"), &policy).class, Class::Transient);
        policy.unknown = Class::Permanent;
        let verdict = explain(&Failure::from_text("?"), &policy);
        assert_eq!((verdict.class, verdict.source), (Class::Permanent, By::Default));
        assert_eq!(explain(&Failure::from_text("timeout"), &policy).class, Class::Transient);
        assert_eq!(explain(&Failure::retry("?"), &policy).class, Class::Transient);
    }

    #[test]
    fn a_rule_that_names_nothing_says_what_to_write() {
        for text in ["", "6xx", "99", "600", "code:", "text: ", "TIMEOUT", "xx"] {
            let message = text.parse::<On>().unwrap_err();
            assert!(message.contains("write a status (\"429\")"), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn rules_survive_being_written(
            on in prop_oneof!["[1-5]xx", "[1-5][0-9][0-9]", "code:[A-Z_]{1,9}", "text:[a-z]{1,9}", "any"],
        ) {
            prop_assert_eq!(on.parse::<On>().unwrap().to_string(), on);
        }

        #[test]
        fn any_text_has_a_class(text in "\\PC{0,40}") {
            let _ = Failure::from_text(text);
        }
    }
}
