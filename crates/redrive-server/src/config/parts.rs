//! The parts of a configuration that have names or lists of their own: queues, policies, endpoints, commands, notices.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive::{NAME_BYTES_MAX, OnRetry, Order, Policy, Queue};

use super::check::{self, Checker, path_of};
use super::keys::{self, Kind};
use super::mistake::{Place, closest, unknown_word};
use super::node::{Entry, Node, Value};

/// Something that must not be shown. Printing it prints `(hidden)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text from being shown.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A queue as configured.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Its name.
    pub name: String,
    /// How many of its jobs this process runs at once.
    pub concurrency: usize,
    /// Which of the waiting jobs goes next.
    pub order: Order,
    /// What a waiting retry means for those behind it.
    pub on_retry: OnRetry,
    /// How many jobs may be waiting or running.
    pub capacity: Option<u64>,
    /// The policy of jobs that bring none.
    pub policy: Policy,
}

impl QueueConfig {
    /// The same for the engine's builder.
    pub fn queue(&self) -> Queue {
        let mut queue = Queue::new(&self.name)
            .concurrency(self.concurrency)
            .on_retry(self.on_retry)
            .policy(self.policy.clone());
        if self.order == Order::Fifo {
            queue = queue.fifo();
        }
        match self.capacity {
            Some(capacity) => queue.capacity(capacity),
            None => queue,
        }
    }
}

/// A program that jobs may have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandConfig {
    /// The program and its arguments; never empty.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// The folder it runs in.
    pub cwd: Option<PathBuf>,
    /// How long it may run.
    pub timeout: Duration,
    /// Exit codes after which trying again is no use.
    pub permanent_exit_codes: Vec<u8>,
}

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
    /// Policies under names of their own.
    pub(super) fn policies(&mut self) -> BTreeMap<String, Policy> {
        let mut policies = BTreeMap::new();
        for (name, place) in self.names("policies") {
            if Policy::PRESETS.contains(&name.as_str()) {
                let message = "is the name of a preset, which stays what it is; choose another name";
                self.mistake(place.clone(), &keys::dotted(&path_of("policies.NAME", &name)), message);
            }
            if let Some(node) = self.node("policies.NAME", &name) {
                let policy = self.policy(node, &path_of("policies.NAME", &name), &BTreeMap::new());
                policies.extend(policy.map(|policy| (name.clone(), Policy { name: Some(name), ..policy })));
            }
        }
        policies
    }

    /// The queues; `default` is there without being named.
    pub(super) fn queues(&mut self, policies: &BTreeMap<String, Policy>) -> Vec<QueueConfig> {
        let mut names: Vec<String> = self.names("queues").into_iter().map(|(name, _)| name).collect();
        if !names.iter().any(|name| name == redrive::DEFAULT_QUEUE) {
            names.push(redrive::DEFAULT_QUEUE.into());
        }
        names.into_iter().map(|name| self.queue(name, policies)).collect()
    }

    fn queue(&mut self, name: String, policies: &BTreeMap<String, Policy>) -> QueueConfig {
        let places = self.must("queues.NAME.concurrency", &name, check::count);
        let fifo = self.must("queues.NAME.order", &name, check::word) == "fifo";
        let let_pass = self.must("queues.NAME.on_retry", &name, check::word) == "let_pass";
        let capacity = self.take("queues.NAME.capacity", &name, check::count);
        let policy = self
            .node("queues.NAME.policy", &name)
            .and_then(|node| self.policy(node, &path_of("queues.NAME.policy", &name), policies));
        QueueConfig {
            name,
            concurrency: usize::try_from(places).unwrap_or(redrive::CONCURRENCY_MAX),
            order: if fifo { Order::Fifo } else { Order::Due },
            on_retry: if let_pass { OnRetry::LetPass } else { OnRetry::Block },
            capacity,
            policy: policy.unwrap_or_default(),
        }
    }

    /// A policy by name, or spelled out; each mistake in it with its own place.
    fn policy(&mut self, node: &Node, path: &[String], named: &BTreeMap<String, Policy>) -> Option<Policy> {
        let key = keys::dotted(path);
        if let Value::Text(name) = &node.value {
            if let Some(policy) = named.get(name).cloned().or_else(|| Policy::preset(name).ok()) {
                return Some(policy);
            }
            let known = named.keys().map(String::as_str).chain(Policy::PRESETS.iter().copied());
            self.mistake(node.place.clone(), &key, unknown_word(name, known));
            return None;
        }
        let messages = match Policy::from_json(node.json()) {
            Ok(policy) => return Some(policy),
            Err(messages) => messages,
        };
        for message in messages {
            // The library speaks of its JSON: the same words in the case of this file.
            let message = snake_case(&message);
            let field = message.split([' ', ':']).next().unwrap_or_default();
            let place = place_within(node, field).unwrap_or_else(|| node.place.clone());
            let message = match message.split_once("is not known here; write one of ") {
                Some((_, known)) => {
                    let last = field.rsplit('.').next().unwrap_or(field);
                    match closest(last, known.split(", ")) {
                        Some(meant) => format!("{field} is not known here; did you mean {meant}?"),
                        None => message.clone(),
                    }
                }
                None => message.clone(),
            };
            self.mistake(place, &key, message);
        }
        None
    }

    /// The secrets of each endpoint, the newest first.
    pub(super) fn endpoints(&mut self) -> BTreeMap<String, Vec<Secret>> {
        let mut endpoints = BTreeMap::new();
        for (name, place) in self.names("endpoints") {
            let mut secrets: Vec<String> =
                self.take("endpoints.NAME.secret", &name, check::text).into_iter().collect();
            secrets.extend(self.secret_in("endpoints.NAME.secret_file", &name));
            secrets.extend(self.take("endpoints.NAME.secrets", &name, check::texts).unwrap_or_default());
            if secrets.is_empty()
                && !self.mistakes.iter().any(|mistake| mistake.key.starts_with("endpoints."))
            {
                let key = keys::dotted(&["endpoints".to_owned(), name.clone()]);
                self.mistake(place, &key, "has no secret; write secret, secret_file or secrets");
            }
            endpoints.insert(name, secrets.into_iter().map(Secret::new).collect());
        }
        endpoints
    }

    /// What stands in the file that a key names.
    pub(super) fn secret_in(&mut self, pattern: &'static str, name: &str) -> Option<String> {
        let path = self.take(pattern, name, check::file)?;
        let place = self.node(pattern, name)?.place.clone();
        match read_secret(&path) {
            Ok(secret) => Some(secret),
            Err(why) => {
                self.mistake(
                    place,
                    &keys::dotted(&path_of(pattern, name)),
                    format!("{}: {why}", path.display()),
                );
                None
            }
        }
    }

    /// The programs that jobs may have run.
    pub(super) fn commands(&mut self) -> BTreeMap<String, CommandConfig> {
        let mut commands = BTreeMap::new();
        for (name, place) in self.names("commands") {
            let written = self.node("commands.NAME.argv", &name).is_some();
            let argv = self.take("commands.NAME.argv", &name, check::texts).unwrap_or_default();
            if argv.is_empty() {
                let place = self.node("commands.NAME.argv", &name).map_or(place, |node| node.place.clone());
                let said = self.mistakes.iter().any(|mistake| mistake.place == place);
                if !written || !said {
                    let message = "is needed; write the program and its arguments, such as [\"/usr/bin/backup\", \"--all\"]";
                    self.mistake(place, &keys::dotted(&path_of("commands.NAME.argv", &name)), message);
                }
            }
            let command = CommandConfig {
                argv,
                env: self.take("commands.NAME.env", &name, check::environment).unwrap_or_default(),
                cwd: self.take("commands.NAME.cwd", &name, check::file),
                timeout: self.must("commands.NAME.timeout", &name, check::span),
                permanent_exit_codes: self
                    .take("commands.NAME.permanent_exit_codes", &name, check::exit_codes)
                    .unwrap_or_default(),
            };
            commands.insert(name, command);
        }
        commands
    }

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

    /// Whatever else stands in a table is a mistake.
    fn known_only(&mut self, node: &Node, path: &str, known: &[&'static str]) {
        let Value::Table(entries) = &node.value else { return };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let message = match closest(&entry.key, known.iter().copied()) {
                Some(meant) => format!("is not known here; did you mean {meant}?"),
                None => format!("is not known here; write one of {}", known.join(", ")),
            };
            self.mistake(entry.place.clone(), &format!("{path}.{}", keys::quoted(&entry.key)), message);
        }
    }

    /// The names under a table; those that cannot be names are mistakes.
    pub(super) fn names(&mut self, table: &str) -> Vec<(String, Place)> {
        let (good, bad): (Vec<_>, Vec<_>) = self.raw.names(table).into_iter().partition(|(name, _)| {
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
        });
        for (name, place) in bad {
            let message = format!("is no name; write 1 to {NAME_BYTES_MAX} bytes without control characters");
            self.mistake(place, &keys::dotted(&[table.to_owned(), name]), message);
        }
        good
    }
}

fn bounded_window(node: &Node) -> Result<Duration, String> {
    let key = keys::Key { path: "", kind: Kind::Span("1m", "1d"), default: "", about: "" };
    check::span(node, &key)
}

/// A secret out of a file, without the line break that editors put at the end.
pub(super) fn read_secret(path: &Path) -> Result<String, String> {
    const SECRET_BYTES_MAX: u64 = 64 << 10;
    let length = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > SECRET_BYTES_MAX {
        return Err("is longer than 64 KiB; is it the right file?".into());
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.trim().is_empty() { Err("is empty".into()) } else { Ok(secret.to_owned()) }
}

/// Where `backoff.base` or `rules[1]` stands inside a policy, in whichever case it is written there.
fn place_within(node: &Node, field: &str) -> Option<Place> {
    let mut node = node;
    let mut place = None;
    for part in field.split('.') {
        let (name, index) =
            part.split_once('[').map_or((part, None), |(name, rest)| (name, rest.strip_suffix(']')));
        let Value::Table(entries) = &node.value else { return place };
        let Some(entry) = entries.iter().find(|entry| snake_case(&entry.key) == name) else { return place };
        (place, node) = (Some(entry.place.clone()), &entry.node);
        if let (Some(at), Value::List(nodes)) = (index.and_then(|at| at.parse::<usize>().ok()), &node.value) {
            node = nodes.get(at)?;
            place = Some(node.place.clone());
        }
    }
    place
}

/// `giveUpAfter` as `give_up_after`, in all words outside quotation marks.
fn snake_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '"';
        let inside_a_word = out.ends_with(|last: char| last.is_ascii_lowercase() || last.is_ascii_digit());
        if c.is_ascii_uppercase() && !quoted && inside_a_word {
            out.push('_');
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}
