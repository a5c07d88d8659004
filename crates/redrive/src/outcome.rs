//! What a handler may say: that it is done, that it wants to wait, or why it failed.
//!
//! Not here: what follows from it (`machine.rs`), and how a status or a text becomes a class (`classify.rs`).

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Display};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::classify::{self, By, Verdict};
use crate::job::Json;
use crate::{fingerprint, span};

/// What an attempt came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It worked; perhaps with an output to keep.
    Done(Option<Json>),
    /// Not yet: run it again after this long. Neither a failure nor a success.
    Snooze(Duration),
    /// It did not work, and this is why.
    Failed(Failure),
    /// The lease ran out: whoever ran it crashed, hung or lost the store.
    Lost,
    /// A shutdown interrupted it, or it was given back before it began. Costs the job nothing.
    Interrupted,
    /// Nobody here knows this kind of job.
    Unhandled,
    /// Its time was over before it could start.
    Expired,
    /// It did not work, and that is its destination's doing: it is held, at no cost.
    Held(Failure),
}

/// What a handler may return: `()`, an [`Outcome`], an [`Output`], or a `Result` of one of them with a [`Failure`] or
/// any error.
pub trait IntoOutcome {
    /// The outcome it stands for.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done(None)
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for Failure {
    fn into_outcome(self) -> Outcome {
        Outcome::Failed(self)
    }
}

impl<T: IntoOutcome, E: Into<Failure>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => Outcome::Failed(error.into()),
        }
    }
}

/// Done, with an output that is kept with the job: `Ok(Output(report))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<T>(
    /// What to keep.
    pub T,
);

impl<T: Serialize> IntoOutcome for Output<T> {
    fn into_outcome(self) -> Outcome {
        match Json::of(&self.0) {
            Ok(json) => Outcome::Done(Some(json)),
            // The work is done; to run it again would not make its output any more writable.
            Err(error) => {
                Failure::permanent(format!("the output cannot be written as JSON: {error}")).into_outcome()
            }
        }
    }
}

/// What kind of trouble it is, and so what may be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It may well work later.
    Transient,
    /// The far side asked for less.
    RateLimited,
    /// It will never work as it stands.
    Permanent,
    /// It will work when somebody renews a credential.
    NeedsAuth,
    /// Nobody knows whether it happened: the request was sent and no answer came.
    UnknownOutcome,
}

impl Class {
    /// Every class, in the order they are explained.
    pub const ALL: [Class; 5] =
        [Class::Transient, Class::RateLimited, Class::Permanent, Class::NeedsAuth, Class::UnknownOutcome];

    /// As JSON says it: `rate_limited`.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Transient => "transient",
            Class::RateLimited => "rate_limited",
            Class::Permanent => "permanent",
            Class::NeedsAuth => "needs_auth",
            Class::UnknownOutcome => "unknown_outcome",
        }
    }

    /// Whether waiting may help. The alternatives need a person, or a changed credential.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Class::Transient | Class::RateLimited | Class::UnknownOutcome)
    }
}

impl Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an attempt failed.
///
/// Deliberately no [`std::error::Error`]: so any error becomes one by `?`, with the class that its type, its text and
/// its sources suggest.
///
/// ```
/// use redrive::{Class, Failure};
///
/// fn load() -> Result<String, Failure> {
///     Ok(std::fs::read_to_string("/there/is/no/such/file")?)
/// }
/// assert_eq!(load().unwrap_err().class, Class::Permanent);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "Reported")]
pub struct Failure {
    /// What kind of trouble. A policy's rules may see it otherwise: [`Policy::classify`](crate::Policy::classify).
    pub class: Class,
    /// A short name that programs compare: `TIMEOUT`. Without spaces, and at most [`Failure::CODE_CHARS_MAX`] long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The HTTP status, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What happened, for people. Without control characters, and at most [`Failure::MESSAGE_CHARS_MAX`] long.
    pub message: String,
    /// What the far side wrote of it, which not everybody may read who may read the message; as clean and as bounded.
    /// [`Failure::in_full`] has both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<str>>,
    /// How long the far side asked us to wait.
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// Who gave the class.
    pub by: By,
    /// Which rule gave the class, for people: `status 503`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rule: String,
}

/// A failure as a worker in any language reports it: a message, and whatever else it knows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reported {
    message: String,
    detail: Option<Box<str>>,
    class: Option<Class>,
    code: Option<String>,
    status: Option<u16>,
    #[serde(with = "span::option", default, alias = "retry_after")]
    retry_after: Option<Duration>,
    by: Option<By>,
    #[serde(default)]
    rule: String,
}

impl From<Reported> for Failure {
    fn from(reported: Reported) -> Failure {
        let Reported { message, detail, class, code, status, retry_after, by, rule } = reported;
        let mut failure = match class {
            Some(class) => Failure { by: by.unwrap_or(By::Handler), rule, ..Failure::said(class, message) },
            None => Failure::judged(code.clone(), status, message),
        };
        failure.code = code.and_then(|code| code_of(&code)).or(failure.code);
        failure.status = status.or(failure.status);
        failure.retry_after = retry_after;
        detail.into_iter().fold(failure, Failure::detail)
    }
}

impl Failure {
    /// How much of a message is kept: its head and its tail, since the cause stands in either.
    pub const MESSAGE_CHARS_MAX: usize = 10_000;
    /// How much of a code is kept: its beginning. It is a name, and stands in lists of a thousand failures.
    pub const CODE_CHARS_MAX: usize = 64;

    /// Try again when the policy says.
    pub fn retry(message: impl Display) -> Failure {
        Failure::said(Class::Transient, message)
    }

    /// No point in trying again.
    pub fn permanent(message: impl Display) -> Failure {
        Failure::said(Class::Permanent, message)
    }

    /// The far side asked us to come back after so long. For a wait of your own choice return [`Outcome::Snooze`].
    pub fn retry_after(wait: Duration, message: impl Display) -> Failure {
        Failure::said(Class::RateLimited, message).after(wait)
    }

    /// The far side asked for less, and did not say when to come back.
    pub fn rate_limited(message: impl Display) -> Failure {
        Failure::said(Class::RateLimited, message)
    }

    /// It will work when somebody renews a credential.
    pub fn needs_auth(message: impl Display) -> Failure {
        Failure::said(Class::NeedsAuth, message)
    }

    /// Nobody knows whether it happened: the request was sent and no answer came.
    pub fn unknown_outcome(message: impl Display) -> Failure {
        Failure::said(Class::UnknownOutcome, message)
    }

    /// Classified by its HTTP status.
    pub fn from_status(status: u16, message: impl Display) -> Failure {
        Failure::judged(None, Some(status), message)
    }

    /// Classified by its code: `TIMEOUT`, `NOT_FOUND`. A code nobody knows leaves it to the text.
    pub fn from_code(code: impl Into<String>, message: impl Display) -> Failure {
        Failure::judged(Some(code.into()), None, message)
    }

    /// Classified by its text alone: a leading `CODE:`, a status in it, or a known phrase.
    pub fn from_text(message: impl Display) -> Failure {
        Failure::judged(None, None, message)
    }

    /// Classified by the types in an error and its sources, else by their text: what `?` does, for boxed errors,
    /// which `?` cannot take: `.map_err(|error| Failure::from_error(&*error))`.
    pub fn from_error(error: &(dyn Error + 'static)) -> Failure {
        let message = chain_text(error);
        match classify::judge_error(error, &message) {
            Some((verdict, code)) => Failure {
                code: code.map(str::to_owned),
                by: verdict.source,
                rule: verdict.rule,
                ..Failure::said(verdict.class, message)
            },
            None => Failure::judged(None, None, message),
        }
    }

    /// With a code for programs to compare. The class stays. What cannot be seen in it becomes `_`, and what is over
    /// [`Failure::CODE_CHARS_MAX`] is cut off.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Failure {
        self.code = code_of(&code.into());
        self
    }

    /// With an HTTP status. The class stays.
    #[must_use]
    pub fn status(mut self, status: u16) -> Failure {
        self.status = Some(status);
        self
    }

    /// With the wait the far side asked for. The class stays.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Failure {
        self.retry_after = Some(wait);
        self
    }

    /// With what the far side wrote of it. The class stays; a policy's rules by text see it too.
    #[must_use]
    pub fn detail(mut self, written: impl Display) -> Failure {
        let written = bounded(&written.to_string());
        self.detail = (!written.is_empty()).then(|| written.into());
        self
    }

    /// The message and what the far side wrote, as one text: `api.example answered 400: no such order`.
    pub fn in_full(&self) -> Cow<'_, str> {
        match &self.detail {
            None => Cow::Borrowed(&self.message),
            Some(detail) => Cow::Owned(format!("{}: {detail}", self.message)),
        }
    }

    /// Whether the thing asked for was not there: what sends a [`Fallback`](crate::Fallback) to its next source.
    pub fn is_not_found(&self) -> bool {
        self.status == Some(404)
            || self.code.as_deref().is_some_and(|code| code.eq_ignore_ascii_case("NOT_FOUND"))
    }

    /// Sixteen hexadecimal digits that failures of one cause share: of the kind of job, the code, the status, and
    /// the message and the detail without their ids, numbers, addresses, paths, times and quotations.
    pub fn fingerprint(&self, kind: &str) -> String {
        fingerprint::fingerprint(kind, self.code.as_deref(), self.status, &self.in_full())
    }

    /// The handler's own word.
    fn said(class: Class, message: impl Display) -> Failure {
        let message = bounded(&message.to_string());
        Failure {
            class,
            code: None,
            status: None,
            message,
            detail: None,
            retry_after: None,
            by: By::Handler,
            rule: String::new(),
        }
    }

    /// What the code, the status and the text suggest.
    /// Classified by what is known of it: its code, else its HTTP status, else its text.
    pub fn judged(code: Option<String>, status: Option<u16>, message: impl Display) -> Failure {
        let message = bounded(&message.to_string());
        let code = code.and_then(|code| code_of(&code));
        let verdict = classify::judge(code.as_deref(), status, &message);
        // A long word in capitals is no name that anybody compares.
        let leading = || classify::code_in(&message).filter(|code| code.len() <= Failure::CODE_CHARS_MAX);
        let code = code.or_else(|| leading().map(str::to_owned));
        let status = status.or_else(|| classify::status_in(&message));
        let Verdict { class, rule, source } = verdict;
        Failure { class, code, status, message, detail: None, retry_after: None, by: source, rule }
    }
}

/// What `?` does: the message is the error's with its sources, the class what their types or texts suggest.
impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::from_error(&error)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error and its sources, joined by colons; a source that its parent has already quoted is not said twice.
fn chain_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = error.source();
    }
    text
}

/// The message without control characters, which could forge log lines or steer a terminal, and not too long.
fn bounded(message: &str) -> String {
    let clean: Vec<char> = message
        .trim()
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !c.is_control())
        .collect();
    let excess = clean.len().saturating_sub(Failure::MESSAGE_CHARS_MAX);
    if excess == 0 {
        return clean.into_iter().collect();
    }
    let note = " […] ";
    let kept = Failure::MESSAGE_CHARS_MAX - note.chars().count();
    let head = kept / 2;
    let tail = clean.len() - (kept - head);
    clean[..head].iter().copied().chain(note.chars()).chain(clean[tail..].iter().copied()).collect()
}

/// A code that is one word, of what can be seen, and not too long: it is printed and compared, and may come from
/// anybody. Nothing is no code.
pub(crate) fn code_of(text: &str) -> Option<String> {
    let seen = |c: char| if c.is_alphanumeric() || c.is_ascii_graphic() { c } else { '_' };
    let code: String = text.trim().chars().take(Failure::CODE_CHARS_MAX).map(seen).collect();
    (!code.is_empty()).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::secs;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::io;

    #[derive(Debug)]
    struct Wrapped(&'static str, Option<Box<dyn Error + Send + Sync>>);
    impl Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }
    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|e| e as &(dyn Error + 'static))
        }
    }

    #[test]
    fn a_question_mark_makes_a_failure_with_its_sources() {
        fn handler() -> Result<(), Failure> {
            let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
            Err(Wrapped("cannot reach tmdb", Some(Box::new(refused))))?;
            Ok(())
        }
        let failure = handler().unwrap_err();
        assert_eq!(failure.class, Class::Transient);
        assert_eq!(failure.message, "cannot reach tmdb: connection refused");
        assert_eq!(failure.code.as_deref(), Some("NETWORK_ERROR"));
        assert_eq!((failure.by, failure.rule.as_str()), (By::Type, "io ConnectionRefused"));
    }

    #[test]
    fn a_source_already_quoted_is_not_said_twice() {
        let inner = Wrapped("the disk is full", None);
        assert_eq!(
            chain_text(&Wrapped("the disk is full, sorry", Some(Box::new(inner)))),
            "the disk is full, sorry"
        );
    }

    #[test]
    fn an_error_of_no_known_type_is_judged_by_its_text() {
        let failure = Failure::from(Wrapped("the service is temporarily unavailable", None));
        assert_eq!((failure.class, failure.by), (Class::Transient, By::Text));
        let failure = Failure::from(Wrapped("no idea", None));
        assert_eq!((failure.class, failure.by), (Class::Transient, By::Default));
    }

    #[test]
    fn constructors_say_what_they_are_called() {
        let cases = [
            (Failure::retry("x"), Class::Transient),
            (Failure::permanent("x"), Class::Permanent),
            (Failure::retry_after(secs(5), "x"), Class::RateLimited),
            (Failure::rate_limited("x"), Class::RateLimited),
            (Failure::needs_auth("x"), Class::NeedsAuth),
            (Failure::unknown_outcome("x"), Class::UnknownOutcome),
            (Failure::from_status(503, "x"), Class::Transient),
            (Failure::from_code("NOT_FOUND", "x"), Class::Permanent),
            (Failure::from_text("TIMEOUT: x"), Class::Transient),
        ];
        for (failure, class) in cases {
            assert_eq!(failure.class, class, "{failure:?}");
        }
        assert_eq!(Failure::retry_after(secs(5), "x").retry_after, Some(secs(5)));
        let built = Failure::retry("x").code("TIMEOUT").status(504);
        assert_eq!((built.code.as_deref(), built.status), (Some("TIMEOUT"), Some(504)));
    }

    #[test]
    fn handlers_may_return_nothing_an_outcome_an_output_or_a_failure() {
        assert_eq!(().into_outcome(), Outcome::Done(None));
        assert_eq!(Ok::<_, Failure>(Outcome::Snooze(secs(1))).into_outcome(), Outcome::Snooze(secs(1)));
        assert_eq!(Ok::<_, Failure>(Output(7)).into_outcome(), Outcome::Done(Some(Json::of(&7).unwrap())));
        let failed: Result<(), Failure> = Err(Failure::retry("x"));
        assert_eq!(failed.into_outcome(), Outcome::Failed(Failure::retry("x")));
        let refused: Result<(), io::Error> = Err(io::ErrorKind::ConnectionRefused.into());
        assert!(
            matches!(refused.into_outcome(), Outcome::Failed(failure) if failure.class == Class::Transient)
        );
    }

    #[test]
    fn a_boxed_error_is_judged_by_what_is_in_the_box() {
        let boxed: Box<dyn Error + Send + Sync> = Box::new(io::Error::from(io::ErrorKind::TimedOut));
        assert_eq!(Failure::from_error(&*boxed).code.as_deref(), Some("TIMEOUT"));
    }

    #[test]
    fn a_reported_failure_without_a_class_gets_one() {
        let read = |json: &str| serde_json::from_str::<Failure>(json).unwrap();
        assert_eq!(read(r#"{"message":"x","status":429}"#).class, Class::RateLimited);
        assert_eq!(read(r#"{"message":"x","code":"NOT_FOUND"}"#).class, Class::Permanent);
        assert_eq!(read(r#"{"message":"connection reset"}"#).class, Class::Transient);
        let said = read(r#"{"message":"x","class":"needs_auth","status":500,"retryAfter":"5s"}"#);
        assert_eq!((said.class, said.by, said.retry_after), (Class::NeedsAuth, By::Handler, Some(secs(5))));
    }

    #[test]
    fn a_failure_survives_json() {
        let refused = Failure::from(io::Error::from(io::ErrorKind::ConnectionRefused)).after(secs(90));
        let quoted = Failure::from_status(400, "a answered 400").detail("no such order");
        for failure in [
            refused,
            quoted,
            Failure::permanent("x"),
            Failure::from_status(503, "busy"),
            Failure::from_text("?"),
        ] {
            let json = serde_json::to_string(&failure).unwrap();
            assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure, "{json}");
        }
    }

    #[test]
    fn a_long_message_keeps_its_head_and_its_tail() {
        let failure = Failure::retry(format!("begin {} end", "x".repeat(20_000)));
        assert_eq!(failure.message.chars().count(), Failure::MESSAGE_CHARS_MAX);
        assert!(failure.message.starts_with("begin x") && failure.message.ends_with("x end"));
        assert!(failure.message.contains("[…]"));
    }

    #[test]
    fn whichever_way_a_code_comes_it_is_one_short_word() {
        let long = "C".repeat(900_000);
        let read = |class: Value| {
            let json = json!({ "message": "x", "code": long, "class": class }).to_string();
            serde_json::from_str::<Failure>(&json).unwrap()
        };
        for failure in [
            Failure::retry("x").code(long.as_str()),
            Failure::from_code(long.as_str(), "x"),
            read(Value::Null),
            read("permanent".into()),
        ] {
            assert_eq!(failure.code, Some("C".repeat(Failure::CODE_CHARS_MAX)));
        }
        let coded = |code: &str| Failure::retry("x").code(code).code;
        for (code, kept) in [
            ("SQLSTATE.23505:fk-1", "SQLSTATE.23505:fk-1"),
            (" TIMEOUT\n", "TIMEOUT"),
            ("a b\u{1b}[31m\u{202e}c", "a_b_[31m_c"),
            ("FÄLLT_AUS", "FÄLLT_AUS"),
        ] {
            assert_eq!(coded(code).as_deref(), Some(kept));
        }
        assert_eq!((coded(""), coded(" \n")), (None, None));
        assert_eq!(
            Failure::from_code(" timeout\n", "x").class,
            Class::Transient,
            "it is judged as it is kept"
        );
    }

    #[test]
    fn a_long_word_before_a_colon_is_no_code() {
        let word = |chars: usize| format!("A_{}", "B".repeat(chars - 2));
        let code_of = |word: String| Failure::from_text(format!("{word}: x")).code;
        let fits = word(Failure::CODE_CHARS_MAX);
        assert_eq!(code_of(fits.clone()), Some(fits));
        assert_eq!(code_of(word(Failure::CODE_CHARS_MAX + 1)), None);
    }

    #[test]
    fn what_the_far_side_wrote_is_apart_from_the_message_and_counts_with_it() {
        let of = |message: &str, detail: &str| Failure::from_status(400, message).detail(detail);
        let failure = of("a answered 400", "no such\n order\u{1b}");
        assert_eq!(
            (failure.to_string().as_str(), &*failure.in_full()),
            ("a answered 400", "a answered 400: no such  order")
        );
        let (apart, together) =
            (of("a answered 400", "no such order"), of("a answered 400: no such order", ""));
        assert_eq!(apart.fingerprint("http"), together.fingerprint("http"), "a group is as fine as it was");
        assert_ne!(apart.fingerprint("http"), of("a answered 400", "no money").fingerprint("http"));
        assert_eq!((together.detail.as_deref(), &*together.in_full()), (None, together.message.as_str()));
        let json = serde_json::to_string(&together).unwrap();
        assert!(!json.contains("detail"), "{json}");
    }

    #[test]
    fn not_found_is_known_by_status_and_by_code() {
        assert!(Failure::from_status(404, "x").is_not_found());
        assert!(Failure::from_code("NOT_FOUND", "x").is_not_found());
        assert!(!Failure::from_status(410, "x").is_not_found());
    }

    proptest! {
        #[test]
        fn no_message_keeps_a_control_character_or_grows(message in "(?s).{0,200}") {
            let failure = Failure::retry(&message);
            prop_assert!(!failure.message.contains(char::is_control));
            prop_assert!(failure.message.chars().count() <= message.chars().count());
        }

        #[test]
        fn a_code_that_was_kept_is_kept_as_it_is(code in "(?s).{0,200}") {
            let kept = Failure::retry("x").code(code).code;
            let again = kept.clone().and_then(|kept| Failure::retry("x").code(kept).code);
            prop_assert_eq!(again, kept);
        }
    }
}
