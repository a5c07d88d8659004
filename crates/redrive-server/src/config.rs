//! The configuration of `redrive serve`: gathered from files, environment and flags, checked as a whole, and either
//! meaningful in every field or refused with everything that is wrong with it.
//!
//! The table of keys is in `config/keys.rs`, where values come from in `config/source.rs`, how they are read in
//! `config/check.rs`, what has names of its own in `config/parts.rs`,
//! `config/destinations.rs` and `config/notify.rs`, the files of TLS in `config/tls.rs`. Not here: what is done with any of it.

mod check;
mod destinations;
mod flags;
mod keys;
mod mistake;
mod node;
mod notify;
mod parts;
mod source;
mod store_url;
mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive::{Policy, Retention};

use self::check::Checker;
use self::node::{Entry, Node, Value};
use self::source::Raw;

pub use self::destinations::{DestinationConfig, HealthAt, HealthConfig};
pub use self::flags::ServeOptions;
pub use self::keys::reference;
pub(crate) use self::mistake::unknown_word;
pub use self::mistake::{Mistake, Place, closest};
pub use self::notify::{Notice, NoticeOn, NoticeTo};
pub use self::parts::{CommandConfig, QueueConfig, Secret};
pub use self::source::Sources;
pub use self::store_url::StoreUrl;
pub use self::tls::TlsConfig;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the jobs are.
    pub store: StoreUrl,
    /// Whether an acknowledged job survives a power cut.
    pub durability: Durability,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Names under which the server is reached, besides loopback; in lower case.
    pub hosts: Vec<String>,
    /// Whether plain HTTP may be spoken off loopback.
    pub insecure: bool,
    /// With which files TLS is spoken, if it is.
    pub tls: Option<TlsConfig>,
    /// Where the first admin token is kept.
    pub token_file: Option<PathBuf>,
    /// How long after this process has died its jobs go to another.
    pub lease: Duration,
    /// How long a shutdown waits for what runs.
    pub grace: Duration,
    /// What this process is called.
    pub instance: String,
    /// What is logged.
    pub log: String,
    /// How it is logged.
    pub log_format: LogFormat,
    /// The queues, `default` among them.
    pub queues: Vec<QueueConfig>,
    /// Policies under names of their own.
    pub policies: BTreeMap<String, Policy>,
    /// How long finished jobs are kept.
    pub retention: Retention,
    /// Limits on what comes in.
    pub limits: Limits,
    /// Networks that may be called although they are not public, as written.
    pub egress_allow: Vec<String>,
    /// The secrets of each endpoint, the newest first.
    pub endpoints: BTreeMap<String, Vec<Secret>>,
    /// The programs that jobs may have run.
    pub commands: BTreeMap<String, CommandConfig>,
    /// Whom to tell about what.
    pub notify: Vec<Notice>,
    /// What destinations may be asked to bear, and how to find out whether they are there.
    pub destinations: Vec<DestinationConfig>,
}

/// Whether an acknowledged job survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It does.
    Full,
    /// It may not.
    Relaxed,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Limits on what comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How large a request's body may be.
    pub body_bytes: usize,
    /// How large a job's payload may be.
    pub payload_bytes: usize,
    /// How many jobs one call may bring.
    pub batch: usize,
    /// How many connections may be open.
    pub connections: usize,
    /// How many of them from one address.
    pub connections_per_address: usize,
    /// How long a client may take to send the head of a request.
    pub header_read_timeout: Duration,
    /// How long a connection may be quiet between requests.
    pub idle_timeout: Duration,
}

/// The defaults, as on loopback.
impl Default for Limits {
    fn default() -> Limits {
        let raw = Raw::default();
        limits(&mut Checker { raw: &raw, mistakes: Vec::new() }, true)
    }
}

/// Reads and checks everything.
///
/// # Errors
///
/// All mistakes at once, each with its place and with what to write instead.
pub fn load(sources: &Sources) -> Result<Config, Vec<Mistake>> {
    read(sources).into_config()
}

/// Reads everything, so that it can be shown whether or not it is right.
pub fn read(sources: &Sources) -> Loaded {
    let mut mistakes = Vec::new();
    let raw = sources.gather(&mut mistakes);
    let mut checker = Checker { raw: &raw, mistakes };
    let config = checked(&mut checker, &sources.host);
    let mut mistakes = checker.mistakes;
    mistakes.sort_by(|one, other| one.place.cmp(&other.place));
    Loaded { raw, config, mistakes, host: sources.host.clone() }
}

/// What was read, right or wrong.
#[derive(Debug)]
pub struct Loaded {
    raw: Raw,
    config: Config,
    mistakes: Vec<Mistake>,
    host: String,
}

impl Loaded {
    /// Everything that is wrong with it.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// The configuration, if nothing is wrong with it.
    ///
    /// # Errors
    ///
    /// All mistakes.
    pub fn into_config(self) -> Result<Config, Vec<Mistake>> {
        if self.mistakes.is_empty() { Ok(self.config) } else { Err(self.mistakes) }
    }
}

/// A policy that stands in a TOML file of its own, as JSON.
///
/// # Errors
///
/// All mistakes at once, each with its place, as where the same stands under `policies` in a config file.
pub fn policy_in(path: &Path, text: &str) -> Result<serde_json::Value, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let table = |entries| Node { value: Value::Table(entries), place: Place::top_of(path) };
    let under = |key: &str, node| Entry { key: key.to_owned(), place: Place::top_of(path), node };
    let policy = table(node::from_toml(path, text, &mut mistakes));
    let json = policy.json();
    let raw = Raw::of_entries(vec![under("policies", table(vec![under("file", policy)]))], &mut mistakes);
    let mut checker = Checker { raw: &raw, mistakes };
    checker.policies();
    let mut mistakes = checker.mistakes;
    mistakes.sort_by(|one, other| one.place.cmp(&other.place));
    // The file has no such key: it was lent one to be read by.
    mistakes.iter_mut().for_each(|mistake| mistake.key.clear());
    if mistakes.is_empty() { Ok(json) } else { Err(mistakes) }
}

/// One line of `config show --origin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The key: `queues.mail.order`.
    pub path: String,
    /// Its value as a file would have it; secrets are hidden.
    pub value: String,
    /// The same as JSON.
    pub json: serde_json::Value,
    /// Where it comes from.
    pub origin: Place,
}

/// Every value that holds, with where it comes from.
pub fn show(loaded: &Loaded) -> Vec<Shown> {
    let mut lines = Vec::new();
    let written = |node: &Node| (node.shown(), node.json());
    for key in keys::KEYS {
        let here =
            loaded.raw.settings().filter(|(path, _)| keys::at(path).is_some_and(|at| at.path == key.path));
        let before = lines.len();
        for (path, node) in here {
            let hidden = || ("(hidden)".to_owned(), "(hidden)".into());
            let (value, json) = match (&node.value, key.kind) {
                (_, kind) if kind.is_secret() => hidden(),
                (Value::Text(url), keys::Kind::Store) => url
                    .parse::<StoreUrl>()
                    .map_or_else(|_| hidden(), |url| written(&Node::text(url.shown(), Place::Default))),
                _ => written(node),
            };
            lines.push(Shown { path: keys::dotted(path), value, json, origin: node.place.clone() });
        }
        let default = if key.path == "instance" { loaded.host.as_str() } else { key.default };
        let is_there =
            lines.len() > before || key.path == "store" && loaded.raw.at(&["store_file".into()]).is_some();
        if !is_there && !default.is_empty() && !key.path.contains(keys::NAME) {
            let (value, json) = match key.kind {
                keys::Kind::Truth | keys::Kind::Count(..) => {
                    (default.to_owned(), serde_json::from_str(default).unwrap_or_else(|_| default.into()))
                }
                _ => written(&Node::text(default, Place::Default)),
            };
            lines.push(Shown { path: key.path.to_owned(), value, json, origin: Place::Default });
        }
    }
    lines
}

fn checked(checker: &mut Checker<'_>, host: &str) -> Config {
    let listen = checker.must("listen", "", check::address);
    let policies = checker.policies();
    let endpoints = checker.endpoints();
    let config = Config {
        store: store(checker),
        durability: match checker.must("durability", "", check::word).as_str() {
            "relaxed" => Durability::Relaxed,
            _ => Durability::Full,
        },
        listen,
        hosts: hosts(checker),
        insecure: checker.must("insecure", "", check::truth),
        tls: checker.tls(),
        token_file: checker.take("token_file", "", check::file),
        lease: checker.must("lease", "", check::span),
        grace: checker.must("grace", "", check::span),
        instance: checker.take("instance", "", check::text).unwrap_or_else(|| host.to_owned()),
        log: log(checker),
        log_format: match checker.must("log_format", "", check::word).as_str() {
            "json" => LogFormat::Json,
            _ => LogFormat::Text,
        },
        queues: checker.queues(&policies),
        retention: Retention {
            succeeded: checker.must("retention.succeeded", "", check::span),
            cancelled: checker.must("retention.cancelled", "", check::span),
            dead: checker.take("retention.dead", "", check::span),
        },
        limits: limits(checker, listen.ip().is_loopback()),
        egress_allow: checker.networks(),
        commands: checker.commands(),
        notify: checker.notices(&endpoints),
        destinations: checker.destinations(),
        policies,
        endpoints,
    };
    let is_plain =
        config.tls.is_none() && !checker.mistakes.iter().any(|wrong| wrong.key.starts_with("tls."));
    if !config.listen.ip().is_loopback() && is_plain && !config.insecure {
        let place = checker.node("listen", "").map_or(Place::Default, |node| node.place.clone());
        let message = format!(
            "{} is off loopback, and this server speaks plain HTTP; write [tls] with cert and key, or put something \
             before it that speaks TLS and write insecure = true, or listen on 127.0.0.1",
            config.listen
        );
        checker.mistake(place, "listen", message);
    }
    config
}

/// The store, or what stands in `store_file`.
fn store(checker: &mut Checker<'_>) -> StoreUrl {
    if let Some(text) = checker.secret_in("store_file", "") {
        match text.trim().parse() {
            Ok(store) => return store,
            Err(why) => {
                let place = checker.node("store_file", "").map_or(Place::Default, |node| node.place.clone());
                // Not what stands there: it may be a secret.
                checker.mistake(place, "store_file", format!("what stands in it is not a store; {why}"));
            }
        }
    }
    checker.must("store", "", |node, key| {
        check::store(node, key).map_err(|why| format!("what is written is not a store; {why}"))
    })
}

fn hosts(checker: &mut Checker<'_>) -> Vec<String> {
    let read = |node: &Node, key: &keys::Key| {
        let hosts = check::texts(node, key)?;
        let is_name = |host: &str| !host.contains(['/', '@', ' ', '*', '?', '#']) && !is_with_port(host);
        match hosts.iter().find(|host| !is_name(host)) {
            Some(host) => {
                Err(format!("{host:?} is not a host's name; write it alone, such as \"redrive.example\""))
            }
            None => Ok(hosts.iter().map(|host| host.trim_matches(['[', ']']).to_ascii_lowercase()).collect()),
        }
    };
    checker.take("hosts", "", read).unwrap_or_default()
}

/// `host:80`, but not `::1`.
fn is_with_port(host: &str) -> bool {
    host.matches(':').count() == 1
}

fn log(checker: &mut Checker<'_>) -> String {
    checker.must("log", "", |node, key| {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let text = check::text(node, key)?;
        // A word alone would be taken for a target, and a misspelt level would log everything of a target nobody has.
        let levels =
            text.split(',').map(|part| part.rsplit_once('=').map_or(part, |(_, level)| level).trim());
        match levels.into_iter().find(|level| !LEVELS.contains(&level.to_lowercase().as_str())) {
            Some(level) => Err(unknown_word(level, LEVELS)),
            None => Ok(text),
        }
    })
}

fn limits(checker: &mut Checker<'_>, on_loopback: bool) -> Limits {
    let per_address = checker.take("limits.connections_per_address", "", check::count);
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Limits {
        body_bytes: number(checker.must("limits.body_bytes", "", check::size)),
        payload_bytes: number(checker.must("limits.payload_bytes", "", check::size)),
        batch: number(checker.must("limits.batch", "", check::count)),
        connections: number(checker.must("limits.connections", "", check::count)),
        connections_per_address: number(per_address.unwrap_or(if on_loopback { 1024 } else { 64 })),
        header_read_timeout: checker.must("limits.header_read_timeout", "", check::span),
        idle_timeout: checker.must("limits.idle_timeout", "", check::span),
    }
}
