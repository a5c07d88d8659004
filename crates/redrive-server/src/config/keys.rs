//! The one table of what can be configured. Reading, checking, showing and the reference page all go by it.

/// A key: where it stands, what may be written there, and what holds where nothing is written.
pub(super) struct Key {
    /// Dotted; `NAME` stands for a name that the writer chooses.
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    /// As text; empty where there is none.
    pub(super) default: &'static str,
    /// One sentence for the reference.
    pub(super) about: &'static str,
}

/// What may be written.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// `sqlite:PATH` or `postgres://…`; may hold a password.
    Store,
    /// An address and a port.
    Address,
    Truth,
    Text,
    Texts,
    /// The path of a file or folder.
    File,
    /// A secret.
    Secret,
    Secrets,
    Word(&'static [&'static str]),
    /// A duration, and its bounds.
    Span(&'static str, &'static str),
    /// A size, and its bounds.
    Size(&'static str, &'static str),
    Count(u64, u64),
    /// Numbers from 0 to 255.
    ExitCodes,
    /// A table of texts.
    Environment,
    /// The name of a policy, or a policy.
    Policy,
    /// A list of tables.
    Notify,
    /// Calls per time.
    Rate,
}

/// What the writer's own names stand for in [`Key::path`].
pub(super) const NAME: &str = "NAME";

const fn key(path: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { path, kind, default, about }
}

/// Everything that can be configured, in the order of the reference.
pub(super) const KEYS: &[Key] = &[
    key(
        "store",
        Kind::Store,
        "sqlite:redrive.db",
        "Where the jobs are. The variable `DATABASE_URL` is understood too.",
    ),
    key("store_file", Kind::File, "", "A file that holds the store's URL, where it has a password in it."),
    key(
        "durability",
        Kind::Word(&["full", "relaxed"]),
        "full",
        "Whether an acknowledged job survives a power cut. `relaxed` is faster and may lose the last moments before one.",
    ),
    key(
        "listen",
        Kind::Address,
        "127.0.0.1:7373",
        "Where the server listens. Anywhere but on loopback it needs a token, and `tls` or `insecure`.",
    ),
    key(
        "hosts",
        Kind::Texts,
        "",
        "Names under which the server is reached, besides loopback. Requests for any other name are refused.",
    ),
    key(
        "insecure",
        Kind::Truth,
        "false",
        "Whether plain HTTP may be spoken off loopback: write `true` where something before the server speaks TLS.",
    ),
    key(
        "token_file",
        Kind::File,
        "",
        "Where the first admin token is kept. Made at the first start, readable by its owner alone; with it, loopback needs a token too.",
    ),
    key(
        "lease",
        Kind::Span("1s", "24h"),
        "30s",
        "How long after this process has died its jobs go to another.",
    ),
    key("grace", Kind::Span("0s", "1h"), "25s", "How long a shutdown waits for what runs."),
    key(
        "instance",
        Kind::Text,
        "",
        "What this process is called where its leases are shown. Without it, the name of the host; the variable `INSTANCE_ID` is understood too.",
    ),
    key(
        "log",
        Kind::Text,
        "info",
        "What is logged: a level, or levels by target as in `info,redrive=debug`.",
    ),
    key(
        "log_format",
        Kind::Word(&["text", "json"]),
        "text",
        "How it is logged: one line per event in either form.",
    ),
    key(
        "queues.NAME.concurrency",
        Kind::Count(1, 100_000),
        "16",
        "How many of its jobs this process runs at once.",
    ),
    key(
        "queues.NAME.order",
        Kind::Word(&["due", "fifo"]),
        "due",
        "Which of the waiting jobs goes next: by priority and due time, or first in, first out for each ordering key.",
    ),
    key(
        "queues.NAME.on_retry",
        Kind::Word(&["block", "let_pass"]),
        "block",
        "What a job that waits for its retry means for those behind it with the same ordering key.",
    ),
    key(
        "queues.NAME.capacity",
        Kind::Count(1, 9_000_000_000_000_000_000),
        "",
        "How many jobs may be waiting or running; beyond that, enqueueing is refused.",
    ),
    key(
        "queues.NAME.policy",
        Kind::Policy,
        "",
        "The policy of jobs that bring none: the name of a preset or of one under `policies`, or a policy.",
    ),
    key("policies.NAME", Kind::Policy, "", "A policy under a name of your own."),
    key("retention.succeeded", Kind::Span("0s", "400d"), "1d", "How long succeeded jobs are kept."),
    key("retention.cancelled", Kind::Span("0s", "400d"), "1d", "How long cancelled jobs are kept."),
    key(
        "retention.dead",
        Kind::Span("0s", "400d"),
        "",
        "How long dead jobs are kept. Without it, until someone acts.",
    ),
    key(
        "tls.cert",
        Kind::File,
        "",
        "The server's certificate in PEM, with those between it and one that clients know. With it, TLS 1.2 and newer is spoken and nothing else. Read again on SIGHUP.",
    ),
    key("tls.key", Kind::File, "", "Its private key in PEM."),
    key(
        "tls.client_ca",
        Kind::File,
        "",
        "Certificates in PEM that vouch for clients: whoever has none from there cannot connect.",
    ),
    key("limits.body_bytes", Kind::Size("1KiB", "64MiB"), "1MiB", "How large a request's body may be."),
    key("limits.payload_bytes", Kind::Size("1KiB", "256KiB"), "256KiB", "How large a job's payload may be."),
    key("limits.batch", Kind::Count(1, 10_000), "1000", "How many jobs one call may bring."),
    key(
        "limits.connections",
        Kind::Count(1, 65_536),
        "1024",
        "How many connections may be open. Beyond that, one makes place: whose answer is not taken, who is not known yet, or the oldest that is idle.",
    ),
    key(
        "limits.connections_per_address",
        Kind::Count(1, 65_536),
        "",
        "How many of them from one address, which for IPv6 is a /64. Without it, 64; on loopback, 1024.",
    ),
    key(
        "limits.header_read_timeout",
        Kind::Span("1s", "60s"),
        "10s",
        "How long a client may take to send the head of a request.",
    ),
    key(
        "limits.idle_timeout",
        Kind::Span("1s", "1h"),
        "60s",
        "How long a connection may be quiet between requests.",
    ),
    key(
        "destination.NAME.rate",
        Kind::Rate,
        "",
        "How many calls may start in a time, all servers of the store together.",
    ),
    key(
        "destination.NAME.burst",
        Kind::Count(1, 1_000_000),
        "",
        "How many may start at once before the rate is kept. Without it, a tenth of a second's worth.",
    ),
    key(
        "destination.NAME.min_gap",
        Kind::Span("1ms", "1d"),
        "",
        "At least this long between the starts of two calls; instead of a rate.",
    ),
    key(
        "destination.NAME.concurrency",
        Kind::Count(1, 1_000_000),
        "",
        "How many calls may be under way at once, all servers together.",
    ),
    key(
        "destination.NAME.breaker",
        Kind::Count(0, 10_000),
        "10",
        "How many different jobs must fail in a row for it to be taken for down. 0 never does.",
    ),
    key(
        "destination.NAME.retry_budget",
        Kind::Count(0, 1_000),
        "20",
        "How many retries there may be for a hundred first attempts, beside ten a second. 0 leaves retries alone.",
    ),
    key(
        "destination.NAME.retry_after_max",
        Kind::Span("0s", "400d"),
        "1d",
        "The longest Retry-After that is obeyed.",
    ),
    key(
        "destination.NAME.health",
        Kind::Text,
        "",
        "What the server asks to find out whether it is there: `https://host/health` or `tcp://host:port`. `{destination}` stands for its name, where that is a host: below a pattern, each that is known is asked. Three failures in a row shut it; a success opens it again.",
    ),
    key("destination.NAME.health_every", Kind::Span("100ms", "1h"), "10s", "How often it is asked."),
    key(
        "egress.allow",
        Kind::Texts,
        "",
        "Networks that jobs and notifications may call although they are not public: `127.0.0.0/8`.",
    ),
    key("endpoints.NAME.secret", Kind::Secret, "", "What calls to this endpoint are signed with."),
    key("endpoints.NAME.secret_file", Kind::File, "", "A file that holds the secret."),
    key(
        "endpoints.NAME.secrets",
        Kind::Secrets,
        "",
        "Several at once, while one replaces the other; the first is the newest.",
    ),
    key(
        "commands.NAME.argv",
        Kind::Texts,
        "",
        "The program and its arguments. Jobs name the command; they cannot add to it.",
    ),
    key(
        "commands.NAME.env",
        Kind::Environment,
        "",
        "The whole environment of the program: nothing is inherited.",
    ),
    key("commands.NAME.cwd", Kind::File, "", "The folder it runs in."),
    key("commands.NAME.timeout", Kind::Span("1s", "24h"), "60s", "How long it may run."),
    key(
        "commands.NAME.permanent_exit_codes",
        Kind::ExitCodes,
        "",
        "Exit codes after which trying again is no use.",
    ),
    key("notify", Kind::Notify, "", "Whom to tell about what: see below."),
];

/// The key that stands at this path.
pub(super) fn at(path: &[String]) -> Option<&'static Key> {
    KEYS.iter().find(|key| {
        let parts: Vec<&str> = key.path.split('.').collect();
        parts.len() == path.len() && begins(&parts, path)
    })
}

/// Whether keys stand below this path.
pub(super) fn is_table(path: &[String]) -> bool {
    KEYS.iter().any(|key| {
        let parts: Vec<&str> = key.path.split('.').collect();
        parts.len() > path.len() && begins(&parts, path)
    })
}

/// Whether the last part of this path is a name of the writer's own: `queues.mail`.
pub(super) fn is_named(path: &[String]) -> bool {
    KEYS.iter().any(|key| {
        let parts: Vec<&str> = key.path.split('.').collect();
        parts.get(path.len().saturating_sub(1)) == Some(&NAME) && begins(&parts, path)
    })
}

/// What may be written directly below this path.
pub(super) fn below(path: &[String]) -> Vec<&'static str> {
    let mut words: Vec<&'static str> = Vec::new();
    for key in KEYS {
        let parts: Vec<&'static str> = key.path.split('.').collect();
        let word = parts.get(path.len()).filter(|word| begins(&parts, path) && !words.contains(word));
        words.extend(word);
    }
    words
}

fn begins(parts: &[&str], path: &[String]) -> bool {
    path.len() <= parts.len() && path.iter().zip(parts).all(|(got, part)| *part == NAME || got == part)
}

/// `queues.mail.order`; a name that TOML would quote is quoted.
pub(super) fn dotted(path: &[String]) -> String {
    path.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".")
}

/// A key as TOML writes it.
pub(super) fn quoted(part: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !part.is_empty() && part.chars().all(is_bare) { part.to_owned() } else { format!("{part:?}") }
}

/// `limits.body_bytes` is `REDRIVE_LIMITS__BODY_BYTES`.
pub(super) fn variable(path: &str) -> String {
    format!("REDRIVE_{}", path.replace('.', "__").to_uppercase())
}

impl Kind {
    /// Whether its value is not for showing.
    pub(super) fn is_secret(self) -> bool {
        matches!(self, Kind::Secret | Kind::Secrets)
    }

    fn written(self) -> String {
        match self {
            Kind::Store => "`sqlite:PATH` or `postgres://…`".into(),
            Kind::Address => "address and port".into(),
            Kind::Truth => "`true` or `false`".into(),
            Kind::Text => "text".into(),
            Kind::Texts => "list of texts".into(),
            Kind::File => "path".into(),
            Kind::Secret => "secret".into(),
            Kind::Secrets => "list of secrets".into(),
            Kind::Word(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
            }
            Kind::Span(min, max) => format!("duration, `{min}` to `{max}`"),
            Kind::Size(min, max) => format!("size, `{min}` to `{max}`"),
            Kind::Count(min, max) if max > 1_000_000_000 => format!("number, {min} or more"),
            Kind::Count(min, max) => format!("number, {min} to {max}"),
            Kind::ExitCodes => "list of numbers, 0 to 255".into(),
            Kind::Environment => "table of texts".into(),
            Kind::Policy => "policy, or the name of one".into(),
            Kind::Notify => "list of tables".into(),
            Kind::Rate => "rate: `10/s`, `600/m` or `5000/h`".into(),
        }
    }
}

/// The page `docs/reference/config.md`.
pub fn reference() -> String {
    let mut page = include_str!("reference/head.md").to_owned();
    let mut table = String::new();
    for key in KEYS {
        let (place, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        let heading = match (key.path, place) {
            ("notify", _) => "`[[notify]]`".to_owned(),
            (_, "") => "At the top".to_owned(),
            (path, _) if name == NAME => format!("`[{path}]`"),
            _ => format!("`[{place}]`"),
        };
        if heading != table {
            page += &format!("\n## {heading}\n\n| key | what | default | meaning |\n|---|---|---|---|\n");
            table = heading;
        }
        let default = if key.default.is_empty() { "–".to_owned() } else { format!("`{}`", key.default) };
        page += &format!("| `{name}` | {} | {default} | {} |\n", key.kind.written(), key.about);
    }
    page + include_str!("reference/foot.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(dotted: &str) -> Vec<String> {
        dotted.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn a_path_finds_its_key_whatever_the_name() {
        assert_eq!(at(&path("queues.mail.order")).unwrap().path, "queues.NAME.order");
        assert_eq!(at(&path("policies.mine")).unwrap().path, "policies.NAME");
        assert!(at(&path("queues.mail")).is_none() && is_table(&path("queues.mail")));
        assert!(
            is_named(&path("queues.mail")) && !is_named(&path("limits.batch")) && !is_named(&path("queues"))
        );
        assert!(at(&path("limits.body")).is_none() && !is_table(&path("limits.body")));
        assert!(below(&path("queues.mail")).contains(&"order"));
    }

    #[test]
    fn no_key_is_written_twice_and_each_says_what_it_means() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..at].iter().all(|other| other.path != key.path), "{}", key.path);
            assert!(key.about.ends_with(['.', ':', '`']) || key.about.ends_with("below."), "{}", key.path);
        }
    }
}
