//! Where a configuration comes from, weakest first: the system's file, the user's file, the file here, the environment,
//! the command line. The only place that reads the environment.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::flags::ServeOptions;
use super::keys;
use super::mistake::{Mistake, Place, closest};
use super::node::{self, Entry, Node, Value};
use crate::remote::Trust;

/// No config file is longer; what is longer was meant as something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Variables that begin as ours do and are not the server's: those of the command line as a client, of tests and
/// benchmarks, and what Kubernetes sets for a service that is called `redrive`.
const NOT_OURS: [&str; 11] = [
    "REDRIVE_CONFIG",
    "REDRIVE_SERVER",
    "REDRIVE_TOKEN",
    "REDRIVE_CA_FILE",
    "REDRIVE_CERT_FILE",
    "REDRIVE_TEST_",
    "REDRIVE_SIM_",
    "REDRIVE_WRITE_",
    "REDRIVE_BENCH_",
    "REDRIVE_SERVICE_",
    "REDRIVE_PORT",
];

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Each with whether it must be there.
    files: Vec<(PathBuf, Need)>,
    variables: BTreeMap<String, String>,
    options: ServeOptions,
    user: u32,
    pub(super) host: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Need {
    May,
    Must,
}

impl Sources {
    /// Nothing but the defaults.
    pub fn none() -> Sources {
        Sources { user: rustix::process::geteuid().as_raw(), host: "localhost".into(), ..Sources::default() }
    }

    /// What this process has been given: the usual files, its environment and its command line.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub fn of_process(options: &ServeOptions) -> Sources {
        let lossy = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        };
        let variables: BTreeMap<String, String> = std::env::vars_os().map(lossy).collect();
        let home = variables.get("HOME").map(|home| Path::new(home).join(".config"));
        let folder =
            variables.get("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from).or(home);
        let mut sources = Sources::none().optional_file("/etc/redrive/config.toml");
        if let Some(folder) = folder {
            sources = sources.optional_file(folder.join("redrive/config.toml"));
        }
        let named = options.config.clone().or_else(|| variables.get("REDRIVE_CONFIG").map(PathBuf::from));
        sources = match named {
            Some(path) => sources.file(path),
            None => sources.optional_file("redrive.toml"),
        };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Sources { variables, options: options.clone(), host, ..sources }
    }

    /// Which server the command line asks, if the environment says so.
    pub fn server(&self) -> Option<&str> {
        self.filled("REDRIVE_SERVER")
    }

    /// Where the environment says that the token for it stands.
    pub fn token_file(&self) -> Option<PathBuf> {
        self.filled("REDRIVE_TOKEN_FILE").map(PathBuf::from)
    }

    /// Whom the command line is to trust, and who it is, according to the environment.
    pub fn trust(&self) -> Trust {
        let file = |name| self.filled(name).map(PathBuf::from);
        Trust { ca: file("REDRIVE_CA_FILE"), cert: file("REDRIVE_CERT_FILE") }
    }

    /// The editor of whoever sits at the terminal.
    pub fn editor(&self) -> Option<&str> {
        self.filled("VISUAL").or_else(|| self.filled("EDITOR"))
    }

    /// Where this user's programs keep what they have not finished: see the XDG base directory specification.
    pub fn state_folder(&self) -> Option<PathBuf> {
        let named = self.filled("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = named.or_else(|| Some(Path::new(self.filled("HOME")?).join(".local/state")))?;
        Some(folder.join("redrive"))
    }

    /// Whether the environment asks for a terminal without colours: see no-color.org.
    pub fn is_plain(&self) -> bool {
        self.filled("NO_COLOR").is_some() || self.filled("TERM") == Some("dumb")
    }

    fn filled(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// With a file that must be there, stronger than those before it.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Sources {
        self.files.push((path.into(), Need::Must));
        self
    }

    /// With a file that may be there.
    #[must_use]
    pub fn optional_file(mut self, path: impl Into<PathBuf>) -> Sources {
        self.files.push((path.into(), Need::May));
        self
    }

    /// With an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Sources {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// With a command line.
    #[must_use]
    pub fn options(mut self, options: ServeOptions) -> Sources {
        self.options = options;
        self
    }

    /// As this user, who besides root is the only one whose config files are trusted.
    #[must_use]
    pub fn user(mut self, id: u32) -> Sources {
        self.user = id;
        self
    }

    /// Everything that was written anywhere, the stronger over the weaker.
    pub(super) fn gather(&self, mistakes: &mut Vec<Mistake>) -> Raw {
        let mut raw = Raw::default();
        for (path, need) in &self.files {
            if let Some(text) = self.read_config(path, *need, mistakes) {
                let entries = node::from_toml(path, &text, mistakes);
                raw.overlay(Raw::of_entries(entries, mistakes), mistakes);
            }
        }
        let variables = self.of_variables(&raw, mistakes);
        raw.overlay(variables, mistakes);
        let mut flags = Raw::default();
        for (path, node) in self.options.given() {
            flags.settings.insert(path.split('.').map(str::to_owned).collect(), node);
        }
        raw.overlay(flags, mistakes);
        raw
    }

    /// A config file's text, if it is there and only those who may run us could have written it.
    fn read_config(&self, path: &Path, need: Need, mistakes: &mut Vec<Mistake>) -> Option<String> {
        let read = File::open(path).and_then(|mut file| {
            // Judged by the open file, so that it cannot be another one by the time it is read.
            let judged = self.judge(&file.metadata()?);
            let mut text = String::new();
            if judged.is_ok() {
                file.by_ref().take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
            }
            Ok(judged.map(|()| text))
        });
        let message = match read {
            Ok(Ok(text)) if text.len() as u64 > FILE_BYTES_MAX => {
                "is longer than 1 MiB; is it the right file?".into()
            }
            Ok(Ok(text)) => return Some(text),
            Ok(Err(message)) => message,
            Err(error) if error.kind() == ErrorKind::NotFound && need == Need::May => return None,
            Err(error) => format!("cannot be read: {error}"),
        };
        mistakes.push(Mistake { place: Place::top_of(path), key: String::new(), message });
        None
    }

    /// Whoever can write the config can have commands run: it must be ours or root's.
    fn judge(&self, file: &Metadata) -> Result<(), String> {
        if file.uid() != self.user && file.uid() != 0 {
            return Err(format!(
                "belongs to user {}, who could change what runs here; make it yours: chown {}",
                file.uid(),
                self.user
            ));
        }
        if file.mode() & 0o002 != 0 {
            return Err("may be written by everyone; take that away: chmod o-w".into());
        }
        Ok(())
    }

    /// Whoever can write a file with a secret in it decides what the secret is: that must be this user or root, and not a
    /// whole group.
    pub(crate) fn judge_secret(file: &Metadata) -> Result<(), String> {
        let user = rustix::process::geteuid().as_raw();
        if file.uid() != user && file.uid() != 0 {
            return Err(format!(
                "belongs to user {}, who could put another secret there; make it yours: chown {user}",
                file.uid()
            ));
        }
        if file.mode() & 0o022 != 0 {
            return Err("may be written by its group or by everyone; take that away: chmod go-w".into());
        }
        Ok(())
    }

    fn of_variables(&self, below: &Raw, mistakes: &mut Vec<Mistake>) -> Raw {
        let mut raw = Raw::default();
        for (foreign, key) in [("DATABASE_URL", "store"), ("INSTANCE_ID", "instance")] {
            let Some(value) = self.variables.get(foreign).filter(|value| !value.is_empty()) else { continue };
            let path = vec![key.to_owned()];
            // It may be another program's: what is no store of ours counts only where nobody names another.
            let is_ours = key != "store" || value.parse::<super::StoreUrl>().is_ok();
            let names_another =
                ["REDRIVE_STORE", "REDRIVE_STORE_FILE"].iter().any(|name| self.variables.contains_key(*name));
            if key != "store" || !names_another && (is_ours || !below.names_a_store()) {
                raw.settings.insert(path, Node::text(value, Place::Variable(foreign.into())));
            }
        }
        for (name, value) in &self.variables {
            let Some(rest) = name.strip_prefix("REDRIVE_") else { continue };
            let is_ours = !NOT_OURS.iter().any(|other| match other.ends_with('_') {
                true => name.starts_with(other),
                false => name == other || *other == "REDRIVE_PORT" && name.starts_with("REDRIVE_PORT_"),
            });
            if is_ours {
                let path: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
                raw.put_variable(name, path, value, mistakes);
            }
        }
        raw
    }
}

/// What was written, by path, before anybody asked whether it makes sense.
#[derive(Debug, Default)]
pub(super) struct Raw {
    settings: BTreeMap<Vec<String>, Node>,
    /// Tables with a name of the writer's own, so that an empty one is there too.
    named: BTreeMap<Vec<String>, Place>,
}

impl Raw {
    pub(super) fn at(&self, path: &[String]) -> Option<&Node> {
        self.settings.get(path)
    }

    /// All settings, in order.
    pub(super) fn settings(&self) -> impl Iterator<Item = (&Vec<String>, &Node)> {
        self.settings.iter()
    }

    /// The names that were chosen under a table, each with where.
    pub(super) fn names(&self, table: &str) -> Vec<(String, Place)> {
        let is_in = |path: &&Vec<String>| path.len() == 2 && path[0] == table;
        let tables = self.named.iter().filter(|(path, _)| is_in(path));
        let mut names: BTreeMap<String, Place> =
            tables.map(|(path, place)| (path[1].clone(), place.clone())).collect();
        for (path, node) in self.settings.iter().filter(|(path, _)| path.len() >= 2 && path[0] == table) {
            names.entry(path[1].clone()).or_insert_with(|| node.place.clone());
        }
        names.into_iter().collect()
    }

    fn names_a_store(&self) -> bool {
        ["store", "store_file"].iter().any(|key| self.settings.contains_key([(*key).to_owned()].as_slice()))
    }

    pub(super) fn of_entries(entries: Vec<Entry>, mistakes: &mut Vec<Mistake>) -> Raw {
        let mut raw = Raw::default();
        raw.put_entries(&[], entries, mistakes);
        raw
    }

    fn put_entries(&mut self, table: &[String], entries: Vec<Entry>, mistakes: &mut Vec<Mistake>) {
        for Entry { key, place, node } in entries {
            let path: Vec<String> = table.iter().cloned().chain([key]).collect();
            if keys::is_named(&path) {
                self.named.insert(path.clone(), place.clone());
            }
            if keys::at(&path).is_some() {
                self.settings.insert(path, node);
            } else if keys::is_table(&path) {
                self.put_table(&path, node, mistakes);
            } else {
                let message = unknown_key(&path);
                mistakes.push(Mistake { place, key: keys::dotted(&path), message });
            }
        }
    }

    fn put_table(&mut self, path: &[String], node: Node, mistakes: &mut Vec<Mistake>) {
        match node.value {
            Value::Table(entries) => {
                self.put_entries(path, entries, mistakes);
            }
            _ => {
                let key = keys::dotted(path);
                let message = format!("{} is not a table; write [{key}] and its keys below", node.shown());
                mistakes.push(Mistake { place: node.place, key, message });
            }
        }
    }

    fn put_variable(&mut self, name: &str, path: Vec<String>, value: &str, mistakes: &mut Vec<Mistake>) {
        let place = Place::Variable(name.to_owned());
        let Some(key) = keys::at(&path) else {
            let known: Vec<String> =
                keys::KEYS.iter().map(|key| keys::variable(&named_as(key.path, &path))).collect();
            let message = match closest(name, known.iter().map(String::as_str)) {
                Some(meant) => format!("is not known; did you mean {meant}?"),
                None => "is not known; the variables are in docs/reference/config.md".to_owned(),
            };
            mistakes.push(Mistake { place, key: String::new(), message });
            return;
        };
        match node::from_variable(value, key.kind, &place) {
            Ok(node) => drop(self.settings.insert(path, node)),
            Err(error) => mistakes.push(Mistake {
                place,
                key: keys::dotted(&path),
                message: format!("is not JSON: {error}"),
            }),
        }
    }

    /// The other over this one, key by key. A secret and the file it may stand in are one thing.
    fn overlay(&mut self, mut other: Raw, mistakes: &mut Vec<Mistake>) {
        let paths: Vec<Vec<String>> = other.settings.keys().cloned().collect();
        for path in paths {
            let Some(twin) = twin(&path) else { continue };
            self.settings.remove(&twin);
            let Some(place) = other.settings.get(&path).map(|node| node.place.clone()) else { continue };
            if path < twin && other.settings.remove(&twin).is_some() {
                let message = format!("and {} are both written; keep one of them", keys::dotted(&twin));
                mistakes.push(Mistake { place, key: keys::dotted(&path), message });
            }
        }
        self.settings.extend(other.settings);
        self.named.extend(other.named);
    }
}

/// `queues.NAME.order` with the name that stands in its place in this path.
fn named_as(pattern: &str, path: &[String]) -> String {
    let part = |(at, part)| if part == keys::NAME { path.get(at).map_or(part, String::as_str) } else { part };
    pattern.split('.').enumerate().map(part).collect::<Vec<_>>().join(".")
}

/// `store` of `store_file`, and the other way round.
fn twin(path: &[String]) -> Option<Vec<String>> {
    let (last, table) = path.split_last()?;
    let other = last.strip_suffix("_file").map_or_else(|| format!("{last}_file"), str::to_owned);
    let twin: Vec<String> = table.iter().cloned().chain([other]).collect();
    keys::at(&twin).map(|_| twin)
}

fn unknown_key(path: &[String]) -> String {
    let (last, table) = path.split_last().map_or(("", path), |(last, table)| (last.as_str(), table));
    let known = keys::below(table);
    match closest(last, known.iter().copied()) {
        Some(meant) => format!("is not known here; did you mean {meant}?"),
        None => format!("is not known here; write one of {}", known.join(", ")),
    }
}
