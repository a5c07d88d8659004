//! Whom to tell about what, as it is written under `[[notify]]`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check::{self, Checker};
use super::keys::{self, Kind};
use super::mistake::{closest, unknown_word};
use super::node::{Entry, Node, Value};
use super::parts::Secret;

/// Whom to tell about what.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// What happens.
    pub on: Vec<NoticeOn>,
    /// Who is told.
    pub to: NoticeTo,
    /// Only of this queue.
    pub queue: Option<String>,
    /// Only of this kind of job.
    pub kind: Option<String>,
    /// How many of the attempts must fail: 0.2 is one in five.
    pub rate: f64,
    /// Over which time that is counted.
    pub window: Duration,
    /// What to say, instead of the usual.
    pub text: Option<String>,
}

/// What can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeOn {
    /// A job needs a person.
    Dead,
    /// A job succeeded after it had failed.
    Recovered,
    /// Too many attempts fail.
    FailureRate,
    /// A destination is down, or does not accept its credential.
    DestinationDown,
    /// A destination is back.
    DestinationRecovered,
}

impl NoticeOn {
    const ALL: [(&'static str, NoticeOn); 5] = [
        ("dead", NoticeOn::Dead),
        ("recovered", NoticeOn::Recovered),
        ("failure_rate", NoticeOn::FailureRate),
        ("destination_down", NoticeOn::DestinationDown),
        ("destination_recovered", NoticeOn::DestinationRecovered),
    ];
}

/// Who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeTo {
    /// The log.
    Log,
    /// A URL, by a signed call.
    Webhook {
        /// Where.
        url: String,
        /// The endpoint whose secret signs it.
        endpoint: Option<String>,
    },
}

impl Checker<'_> {
    /// The notices, in the order they were written.
    pub(super) fn notices(&mut self, endpoints: &BTreeMap<String, Vec<Secret>>) -> Vec<Notice> {
        let Some(node) = self.node("notify", "") else { return Vec::new() };
        let Value::List(nodes) = &node.value else {
            self.mistake(node.place.clone(), "notify", "is not a list; write [[notify]] and its keys below");
            return Vec::new();
        };
        nodes.iter().enumerate().filter_map(|(at, node)| self.notice(at, node, endpoints)).collect()
    }

    fn notice(
        &mut self,
        at: usize,
        node: &Node,
        endpoints: &BTreeMap<String, Vec<Secret>>,
    ) -> Option<Notice> {
        const KNOWN: [&str; 7] = ["on", "to", "queue", "kind", "rate", "window", "text"];
        let path = format!("notify[{at}]");
        self.known_only(node, &path, &KNOWN);
        let on = self.notice_on(node, &path);
        let to = self.notice_to(node, &path, endpoints);
        let mut text = |name: &str| {
            let entry = node.get(name)?;
            let Value::Text(text) = &entry.node.value else {
                let message = format!("{} is not text; write it in quotation marks", entry.node.shown());
                self.mistake(entry.node.place.clone(), &format!("{path}.{name}"), message);
                return None;
            };
            Some(text.clone())
        };
        let (queue, kind, said) = (text("queue"), text("kind"), text("text"));
        let rate = node.get("rate").map(|entry| (entry, check::share(&entry.node)));
        let window = node.get("window").map(|entry| (entry, bounded_window(&entry.node)));
        if !on.contains(&NoticeOn::FailureRate) {
            for entry in [rate.as_ref().map(|rate| rate.0), window.as_ref().map(|window| window.0)]
                .into_iter()
                .flatten()
            {
                let message = "is only asked for with \"failure_rate\"; add that to on, or leave it out";
                self.mistake(entry.place.clone(), &format!("{path}.{}", entry.key), message);
            }
        }
        let rate = self.noted(&path, rate).unwrap_or(0.2);
        let window = self.noted(&path, window).unwrap_or(redrive::mins(5));
        Some(Notice { on, to: to?, queue, kind, rate, window, text: said })
    }

    fn noted<T>(&mut self, path: &str, read: Option<(&Entry, Result<T, String>)>) -> Option<T> {
        let (entry, read) = read?;
        read.map_err(|why| self.mistake(entry.node.place.clone(), &format!("{path}.{}", entry.key), why)).ok()
    }

    fn notice_on(&mut self, node: &Node, path: &str) -> Vec<NoticeOn> {
        let key = format!("{path}.on");
        let words: Vec<&Node> = match node.get("on").map(|entry| &entry.node) {
            Some(Node { value: Value::List(nodes), .. }) if !nodes.is_empty() => nodes.iter().collect(),
            Some(node @ Node { value: Value::Text(_), .. }) => vec![node],
            _ => {
                let known = NoticeOn::ALL.map(|(word, _)| format!("{word:?}")).join(", ");
                self.mistake(node.place.clone(), &key, format!("is needed; write a list of {known}"));
                Vec::new()
            }
        };
        let mut on = Vec::new();
        for word in words {
            let got = if let Value::Text(text) = &word.value { text.clone() } else { word.shown() };
            match NoticeOn::ALL.iter().find(|(known, _)| *known == got) {
                Some((_, meant)) => on.push(*meant),
                None => {
                    let message = unknown_word(&got, NoticeOn::ALL.map(|(word, _)| word));
                    self.mistake(word.place.clone(), &key, message);
                }
            }
        }
        on
    }

    fn notice_to(
        &mut self,
        node: &Node,
        path: &str,
        endpoints: &BTreeMap<String, Vec<Secret>>,
    ) -> Option<NoticeTo> {
        let key = format!("{path}.to");
        let hint = "write \"log\", or { webhook = \"https://…\", endpoint = \"NAME\" }";
        let Some(Entry { node: to, .. }) = node.get("to") else {
            self.mistake(node.place.clone(), &key, format!("is needed; {hint}"));
            return None;
        };
        if matches!(&to.value, Value::Text(text) if text == "log") {
            return Some(NoticeTo::Log);
        }
        let Some(Entry { node: Node { value: Value::Text(url), place }, .. }) = to.get("webhook") else {
            self.mistake(to.place.clone(), &key, format!("{} names nobody; {hint}", to.shown()));
            return None;
        };
        self.known_only(to, &key, &["webhook", "endpoint"]);
        let is_web = url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !is_web {
            self.mistake(
                place.clone(),
                &format!("{key}.webhook"),
                format!("{url:?} is not a URL; write one such as \"https://…\""),
            );
        }
        let endpoint = match to.get("endpoint").map(|entry| &entry.node) {
            Some(Node { value: Value::Text(name), place }) => {
                if !endpoints.contains_key(name) {
                    let message = match closest(name, endpoints.keys().map(String::as_str)) {
                        Some(meant) => format!("there is no endpoint {name:?}; did you mean {meant:?}?"),
                        None => {
                            format!("there is no endpoint {name:?}; add [endpoints.{}]", keys::quoted(name))
                        }
                    };
                    self.mistake(place.clone(), &format!("{key}.endpoint"), message);
                }
                Some(name.clone())
            }
            _ => None,
        };
        Some(NoticeTo::Webhook { url: url.clone(), endpoint })
    }
}

fn bounded_window(node: &Node) -> Result<Duration, String> {
    let key = keys::Key { path: "", kind: Kind::Span("1m", "1d"), default: "", about: "" };
    check::span(node, &key)
}
