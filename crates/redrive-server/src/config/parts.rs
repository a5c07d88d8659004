//! The parts of a configuration that have names or lists of their own: queues, policies, endpoints, commands, networks.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive::{NAME_BYTES_MAX, OnRetry, Order, Policy, Queue};

use super::check::{self, Checker, path_of};
use super::keys;
use super::mistake::{Place, closest, unknown_word};
use super::node::{Node, Value};
use super::source::Sources;
use crate::egress::Allow;
use crate::executor::{self, CommandEntry, CommandExecutor};

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

impl CommandConfig {
    /// The same for the executor.
    pub fn entry(&self, name: &str) -> CommandEntry {
        CommandEntry {
            name: name.to_owned(),
            argv: self.argv.clone(),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            timeout: self.timeout,
            permanent_exit_codes: self.permanent_exit_codes.iter().copied().map(i32::from).collect(),
        }
    }
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
            let [one, file, several] =
                ["endpoints.NAME.secret", "endpoints.NAME.secret_file", "endpoints.NAME.secrets"];
            let mut secrets: Vec<(&'static str, String)> = Vec::new();
            secrets.extend(self.take(one, &name, check::text).map(|secret| (one, secret)));
            secrets.extend(self.secret_in(file, &name).map(|secret| (file, secret)));
            let listed = self.take(several, &name, check::texts).unwrap_or_default();
            secrets.extend(listed.into_iter().map(|secret| (several, secret)));
            for (pattern, secret) in &secrets {
                if let Err(why) = secret.parse::<executor::Secret>() {
                    let place = self.node(pattern, &name).map_or(&place, |node| &node.place).clone();
                    self.mistake(place, &keys::dotted(&path_of(pattern, &name)), why);
                }
            }
            if secrets.is_empty()
                && !self.mistakes.iter().any(|mistake| mistake.key.starts_with("endpoints."))
            {
                let key = keys::dotted(&["endpoints".to_owned(), name.clone()]);
                self.mistake(place, &key, "has no secret; write secret, secret_file or secrets");
            }
            endpoints.insert(name, secrets.into_iter().map(|(_, secret)| Secret::new(secret)).collect());
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
                let place =
                    self.node("commands.NAME.argv", &name).map_or(place.clone(), |node| node.place.clone());
                let said = self.mistakes.iter().any(|mistake| mistake.place == place);
                if !written || !said {
                    let message = "is needed; write the program and its arguments, such as [\"/usr/bin/backup\", \"--all\"]";
                    self.mistake(
                        place.clone(),
                        &keys::dotted(&path_of("commands.NAME.argv", &name)),
                        message,
                    );
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
            if !command.argv.is_empty() {
                self.command(&name, &place, &command);
            }
            commands.insert(name, command);
        }
        commands
    }

    /// What keeps a command from being run, each with its own place.
    fn command(&mut self, name: &str, place: &Place, command: &CommandConfig) {
        let problems = CommandExecutor::new(vec![command.entry(name)]).err().unwrap_or_default();
        for problem in problems {
            let (_, message) = problem.split_once(": ").unwrap_or(("", &problem));
            let (field, message) = match message.split_once(' ') {
                Some((field @ ("cwd" | "env" | "timeout"), rest)) => (field, rest),
                _ => ("argv", message),
            };
            let path = ["commands", name, field].map(str::to_owned);
            let node = self.raw.at(&path);
            let place = node.map_or(place, |node| argument_within(node, message));
            self.mistake(place.clone(), &keys::dotted(&path), message);
        }
    }

    /// The networks that may be called, as written; each that is none is a mistake of its own.
    pub(super) fn networks(&mut self) -> Vec<String> {
        let written = self.take("egress.allow", "", check::texts).unwrap_or_default();
        for text in &written {
            if let (Err(why), Some(node)) = (text.parse::<Allow>(), self.node("egress.allow", "")) {
                self.mistake(argument_within(node, &format!("{text:?}")).clone(), "egress.allow", why);
            }
        }
        written
    }

    /// Whatever else stands in a table is a mistake.
    pub(super) fn known_only(&mut self, node: &Node, path: &str, known: &[&'static str]) {
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

/// Where in a list the text stands with which a message begins; else where the list stands.
fn argument_within<'n>(node: &'n Node, message: &str) -> &'n Place {
    let found = match &node.value {
        Value::List(nodes) => nodes.iter().find(|node| message.starts_with(&node.shown())),
        _ => None,
    };
    found.map_or(&node.place, |node| &node.place)
}

/// A secret out of a file, without the line break that editors put at the end.
pub(super) fn read_secret(path: &Path) -> Result<String, String> {
    const SECRET_BYTES_MAX: u64 = 64 << 10;
    // Judged by the open file, so that it cannot be another one by the time it is read.
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    Sources::judge_secret(&about)?;
    if about.len() > SECRET_BYTES_MAX {
        return Err("is longer than 64 KiB; is it the right file?".into());
    }
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_in_a_file_that_others_could_have_written_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "hunter2\n").unwrap();
        for mode in [0o600, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_secret(&path), Ok("hunter2".into()), "{mode:o}");
        }
        for mode in [0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let why = "may be written by its group or by everyone; take that away: chmod go-w";
            assert_eq!(read_secret(&path), Err(why.into()), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        // Only root can give a file away.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(4_242), None).unwrap();
            assert!(read_secret(&path).unwrap_err().starts_with("belongs to user 4242"));
        }
    }
}
