//! The configuration as a user writes it: every mistake with its exact text and place, who wins over whom, where each
//! value comes from, secrets in files, and whose files are trusted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use redrive::{OnRetry, Order, Policy, days, hours, mins, secs};
use redrive_server::config::{
    self, Config, Durability, HealthAt, LogFormat, NoticeOn, NoticeTo, Place, ServeOptions, Sources, StoreUrl,
};
use serde_json::json;

/// A folder with config files in it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// What is wrong with a file of this text, without the folder's name.
    fn mistakes(&self, text: &str) -> Vec<String> {
        let path = self.write("redrive.toml", text);
        self.mistakes_of(&Sources::none().file(path))
    }

    fn mistakes_of(&self, sources: &Sources) -> Vec<String> {
        let folder = format!("{}/", self.0.path().display());
        let said = |mistake: &config::Mistake| mistake.to_string().replace(&folder, "");
        config::read(sources).mistakes().iter().map(said).collect()
    }
}

fn load(text: &str) -> Config {
    let folder = Folder::new();
    let path = folder.write("redrive.toml", text);
    config::load(&Sources::none().file(path)).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

#[test]
fn nothing_written_is_a_server_on_loopback_with_a_file_here() {
    let config = config::load(&Sources::none()).unwrap();
    assert_eq!(config.store, StoreUrl::Sqlite("redrive.db".into()));
    assert_eq!(config.listen.to_string(), "127.0.0.1:7373");
    assert_eq!((config.durability, config.log_format), (Durability::Full, LogFormat::Text));
    assert_eq!((config.lease, config.grace), (secs(30), secs(25)));
    assert_eq!((config.log.as_str(), config.instance.as_str()), ("info", "localhost"));
    assert_eq!(config.queues.len(), 1);
    assert_eq!((config.queues[0].name.as_str(), config.queues[0].concurrency), ("default", 16));
    assert_eq!(config.queues[0].policy, Policy::default());
    assert_eq!(config.retention, redrive::Retention::default());
    assert_eq!((config.limits.body_bytes, config.limits.payload_bytes), (1 << 20, 256 << 10));
    assert_eq!((config.limits.batch, config.limits.connections), (1_000, 1_024));
    assert_eq!(config.limits.connections_per_address, 1_024, "on loopback");
    assert_eq!((config.limits.header_read_timeout, config.limits.idle_timeout), (secs(10), secs(60)));
    assert!(!config.insecure && config.hosts.is_empty() && config.notify.is_empty());
}

#[test]
fn everything_that_can_be_written_is_understood() {
    let config = load(
        r#"
        store = "postgres://me@db/jobs"
        durability = "relaxed"
        listen = "0.0.0.0:80"
        hosts = ["Redrive.example", "10.0.0.1"]
        insecure = true
        token_file = "admin.token"
        lease = "1m"
        grace = "5s"
        instance = "blue"
        log = "warn,redrive=debug"
        log_format = "json"

        [queues.mail]
        concurrency = 4
        order = "fifo"
        on_retry = "let_pass"
        capacity = 1_000
        policy = "patient"
        [queues.empty]

        [policies.patient]
        backoff = { kind = "fixed", delay = "5m" }
        give_up_after = "3d"
        max_crashes = 5

        [retention]
        succeeded = "1h"
        cancelled = "2h"
        dead = "30d"

        [limits]
        body_bytes = "2MiB"
        payload_bytes = 1024
        batch = 10
        connections = 2
        connections_per_address = 1
        header_read_timeout = "1s"
        idle_timeout = "5s"

        [egress]
        allow = ["127.0.0.0/8", "10.0.0.7:80"]

        [endpoints.shop]
        secrets = ["whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3", "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"]

        [commands.backup]
        argv = ["/usr/bin/backup", "--all"]
        env = { LANG = "C" }
        cwd = "/var/lib"
        timeout = "10m"
        permanent_exit_codes = [65, 78]

        [destination."*.tmdb.org"]
        rate = "10/s"
        burst = 3
        concurrency = 4
        breaker = 0
        retry_budget = 50
        retry_after_max = "1h"
        [destination."api.shop.org"]
        min_gap = "5s"
        health = "https://api.shop.org/health"
        health_every = "30s"
        [destination.db]
        health = "tcp://10.0.0.7:5432"

        [[notify]]
        on = ["dead", "recovered"]
        to = "log"
        [[notify]]
        on = ["failure_rate", "dead"]
        to = { webhook = "https://chat.example/hook", endpoint = "shop" }
        queue = "mail"
        kind = "http"
        rate = "50%"
        window = "1m"
        text = "look at it"
        "#,
    );
    assert_eq!(config.store, StoreUrl::Postgres("postgres://me@db/jobs".into()));
    assert_eq!((config.durability, config.log_format), (Durability::Relaxed, LogFormat::Json));
    assert_eq!(config.hosts, ["redrive.example", "10.0.0.1"]);
    assert_eq!(config.token_file.as_deref(), Some(Path::new("admin.token")));
    assert_eq!((config.lease, config.grace, config.instance.as_str()), (mins(1), secs(5), "blue"));
    let queue = |name: &str| config.queues.iter().find(|queue| queue.name == name).unwrap();
    assert_eq!(config.queues.len(), 3, "and the default one");
    let mail = queue("mail");
    assert_eq!((mail.concurrency, mail.capacity), (4, Some(1_000)));
    assert_eq!((mail.order, mail.on_retry), (Order::Fifo, OnRetry::LetPass));
    assert_eq!(mail.policy.preview(2), [mins(5), mins(5)]);
    assert_eq!((mail.policy.max_crashes, mail.policy.name.as_deref()), (5, Some("patient")));
    assert_eq!(queue("empty").policy, Policy::default());
    assert_eq!((config.retention.succeeded, config.retention.dead), (hours(1), Some(days(30))));
    assert_eq!((config.limits.body_bytes, config.limits.payload_bytes), (2 << 20, 1024));
    assert_eq!((config.limits.connections, config.limits.connections_per_address), (2, 1));
    assert_eq!(config.egress_allow, ["127.0.0.0/8", "10.0.0.7:80"]);
    let secrets: Vec<&str> = config.endpoints["shop"].iter().map(config::Secret::reveal).collect();
    assert_eq!(secrets, ["whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3", "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"]);
    let backup = &config.commands["backup"];
    assert_eq!(backup.argv, ["/usr/bin/backup", "--all"]);
    assert_eq!((backup.env["LANG"].as_str(), backup.timeout), ("C", mins(10)));
    assert_eq!(backup.permanent_exit_codes, [65, 78]);
    let of = |name: &str| config.destinations.iter().find(|of| of.pattern == name).unwrap();
    let limits = &of("*.tmdb.org").limits;
    assert_eq!((limits.rate, limits.burst), (Some(redrive::Rate::per_second(10)), Some(3)));
    assert_eq!((limits.concurrency, limits.breaker, limits.retry_budget), (Some(4), 0, 50));
    assert_eq!((limits.retry_after_max, of("api.shop.org").limits.min_gap), (hours(1), Some(secs(5))));
    let health = |name: &str| of(name).health.clone().map(|health| (health.at, health.every));
    let url = HealthAt::Http("https://api.shop.org/health".into());
    assert_eq!(health("api.shop.org"), Some((url, secs(30))));
    assert_eq!(health("db"), Some((HealthAt::Tcp("10.0.0.7".into(), 5432), secs(10))));
    assert_eq!((health("*.tmdb.org"), &of("db").limits), (None, &redrive::Limits::default()));
    assert_eq!(config.notify[0].on, [NoticeOn::Dead, NoticeOn::Recovered]);
    assert_eq!(config.notify[0].to, NoticeTo::Log);
    assert_eq!((config.notify[1].rate, config.notify[1].window), (0.5, mins(1)));
    assert!(!format!("{config:?}").contains("whsec_"), "secrets are not printed");
}

#[test]
fn every_mistake_says_where_it_stands_and_what_to_write() {
    let cases = [
        ("lisen = \"x\"", "redrive.toml:1:1: lisen: is not known here; did you mean listen?"),
        ("[limit]\nbatch = 1", "redrive.toml:1:2: limit: is not known here; did you mean limits?"),
        ("[limits]\nbatches = 1", "redrive.toml:2:1: limits.batches: is not known here; did you mean batch?"),
        (
            "[queues.mail]\ncolour = 1",
            "redrive.toml:2:1: queues.mail.colour: is not known here; write one of concurrency, order, on_retry, \
             capacity, policy",
        ),
        ("queues = 3", "redrive.toml:1:10: queues: 3 is not a table; write [queues] and its keys below"),
        (
            "durability = \"fulll\"",
            "redrive.toml:1:14: durability: \"fulll\" is not known; did you mean \"full\"?",
        ),
        (
            "log_format = \"xml\"",
            "redrive.toml:1:14: log_format: \"xml\" is not known; write one of \"text\", \"json\"",
        ),
        ("log = \"debgu\"", "redrive.toml:1:7: log: \"debgu\" is not known; did you mean \"debug\"?"),
        (
            "lease = \"90\"",
            "redrive.toml:1:9: lease: \"90\" has no unit; write \"90s\" for seconds (units: ms, s, m, h, d, w)",
        ),
        (
            "lease = 90",
            "redrive.toml:1:9: lease: 90 has no unit; write \"90s\" for seconds (units: ms, s, m, h, d, w)",
        ),
        ("lease = \"2d\"", "redrive.toml:1:9: lease: 2d is out of bounds; write 1s to 24h"),
        (
            "grace = true",
            "redrive.toml:1:9: grace: true is not a duration; write it with a unit, such as \"90s\"",
        ),
        (
            "listen = \"7373\"",
            "redrive.toml:1:10: listen: \"7373\" is not an address with a port; write 127.0.0.1:7373, 0.0.0.0:7373 \
             or [::1]:7373",
        ),
        (
            "listen = \"0.0.0.0:7373\"",
            "redrive.toml:1:10: listen: 0.0.0.0:7373 is off loopback, and this server speaks plain HTTP; write \
             [tls] with cert and key, or put something before it that speaks TLS and write insecure = true, or listen \
             on 127.0.0.1",
        ),
        (
            "[tls]\ncert = \"/nowhere/cert.pem\"",
            "redrive.toml:2:8: tls.key: is needed with tls.cert; write the path of a PEM file",
        ),
        (
            "listen = \"0.0.0.0:7373\"\n[tls]\ncert = \"/nowhere/cert.pem\"\nkey = \"/nowhere/key.pem\"",
            "redrive.toml:3:8: tls.cert: no certificate can be read from /nowhere/cert.pem (I/O error: No such file or \
             directory (os error 2)); write the path of a PEM file",
        ),
        (
            "store = \"mysql://db\"",
            "redrive.toml:1:9: store: what is written is not a store; write sqlite: and a path, for example \
             sqlite:/tmp/bench.db, or a URL like postgres://user@host/database",
        ),
        ("insecure = \"yes\"", "redrive.toml:1:12: insecure: \"yes\" is neither; write true or false"),
        ("hosts = \"a.test\"", "redrive.toml:1:9: hosts: \"a.test\" is not a list; write [\"a.test\"]"),
        (
            "hosts = [\"https://a.test\"]",
            "redrive.toml:1:9: hosts: \"https://a.test\" is not a host's name; write it alone, such as \
             \"redrive.example\"",
        ),
        ("instance = \"\"", "redrive.toml:1:12: instance: is empty; write something, or leave it out"),
        ("instance = 7", "redrive.toml:1:12: instance: 7 is not text; write it in quotation marks"),
        (
            "[limits]\nbody_bytes = \"1 big\"",
            "redrive.toml:2:14: limits.body_bytes: \"1 big\" is not a size; write a number and one of B, kB, KiB, \
             MB, MiB, GB, GiB",
        ),
        (
            "[limits]\npayload_bytes = \"1MiB\"",
            "redrive.toml:2:17: limits.payload_bytes: \"1MiB\" is out of bounds; write 1KiB to 256KiB",
        ),
        (
            "[limits]\nconnections = 0",
            "redrive.toml:2:15: limits.connections: 0 is not a number from 1 to 65536; write one",
        ),
        (
            "[queues.mail]\norder = \"fifi\"",
            "redrive.toml:2:9: queues.mail.order: \"fifi\" is not known; did you mean \"fifo\"?",
        ),
        (
            "[queues.mail]\npolicy = \"medai\"",
            "redrive.toml:2:10: queues.mail.policy: \"medai\" is not known; did you mean \"media\"?",
        ),
        (
            "[queues.mail.policy]\nmax_atempts = 3",
            "redrive.toml:2:1: queues.mail.policy: max_atempts is not known here; did you mean max_attempts?",
        ),
        (
            "[policies.mine]\ngive_up_after = \"90\"",
            "redrive.toml:2:1: policies.mine: give_up_after: \"90\" has no unit; write \"90s\" for seconds (units: \
             ms, s, m, h, d, w)",
        ),
        (
            "[policies.mine.backoff]\nkind = \"fixed\"\ndelay = 5\n[[policies.mine.rules]]\non = \"6xx\"\nclass = \"transient\"",
            "redrive.toml:4:1: policies.mine: rules[0]: \"6xx\" names no failures",
        ),
        (
            "[policies.mine.backoff]\nkind = \"fixd\"\ndelay = \"1s\"",
            "redrive.toml:2:1: policies.mine: backoff.kind: \"fixd\" is not known; did you mean \"fixed\"?",
        ),
        (
            "[policies.mine]\nmax_attempts = 99999999999999999999",
            "redrive.toml:2:1: policies.mine: max_attempts: \"99999999999999999999\" is not a count",
        ),
        (
            "[policies.mine]\nbackoff = { kind = \"exponential\", factor = nan }",
            "redrive.toml:2:35: policies.mine: backoff.factor: \"NaN\" is not a number",
        ),
        (
            "[policies.media]\nmax_attempts = 2",
            "redrive.toml:1:11: policies.media: is the name of a preset, which stays what it is; choose another name",
        ),
        (
            "[endpoints.shop]",
            "redrive.toml:1:12: endpoints.shop: has no secret; write secret, secret_file or secrets",
        ),
        (
            "[endpoints.shop]\nsecret = \"whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3\"\nsecret_file = \"b\"",
            "redrive.toml:2:10: endpoints.shop.secret: and endpoints.shop.secret_file are both written; keep one of \
             them",
        ),
        (
            "[endpoints.shop]\nsecret_file = \"/there/is/none\"",
            "redrive.toml:2:15: endpoints.shop.secret_file: /there/is/none: No such file or directory (os error 2)",
        ),
        (
            "[commands.backup]",
            "redrive.toml:1:11: commands.backup.argv: is needed; write the program and its arguments, such as \
             [\"/usr/bin/backup\", \"--all\"]",
        ),
        (
            "[commands.backup]\nargv = [\"/a\"]\npermanent_exit_codes = [300]",
            "redrive.toml:3:24: commands.backup.permanent_exit_codes: 300 is not an exit code; write 0 to 255",
        ),
        (
            "[commands.backup]\nargv = [\"/a\"]\nenv = { A = 1 }",
            "redrive.toml:3:7: commands.backup.env: A is 1; write it in quotation marks",
        ),
        (
            "[[notify]]\nto = \"log\"",
            "redrive.toml:1:1: notify[0].on: is needed; write a list of \"dead\", \"recovered\", \"failure_rate\", \
             \"destination_down\", \"destination_recovered\"",
        ),
        (
            "[[notify]]\non = [\"ded\"]\nto = \"log\"",
            "redrive.toml:2:7: notify[0].on: \"ded\" is not known; did you mean \"dead\"?",
        ),
        (
            "[[notify]]\non = [\"dead\"]",
            "redrive.toml:1:1: notify[0].to: is needed; write \"log\", or { webhook = \"https://…\", endpoint = \
             \"NAME\" }",
        ),
        (
            "[[notify]]\non = [\"dead\"]\nto = \"mail\"",
            "redrive.toml:3:6: notify[0].to: \"mail\" names nobody; write \"log\", or { webhook = \"https://…\", \
             endpoint = \"NAME\" }",
        ),
        (
            "[[notify]]\non = [\"dead\"]\nto = { webhook = \"chat.example\" }",
            "redrive.toml:3:18: notify[0].to.webhook: \"chat.example\" is not a URL; write one such as \"https://…\"",
        ),
        (
            "[[notify]]\non = [\"dead\"]\nto = { webhook = \"https://a.test\", endpoint = \"shop\" }",
            "redrive.toml:3:47: notify[0].to.endpoint: there is no endpoint \"shop\"; add [endpoints.shop]",
        ),
        (
            "[[notify]]\non = [\"dead\"]\nto = \"log\"\nrate = \"20%\"",
            "redrive.toml:4:1: notify[0].rate: is only asked for with \"failure_rate\"; add that to on, or leave it \
             out",
        ),
        (
            "[[notify]]\non = [\"failure_rate\"]\nto = \"log\"\nrate = \"0.2\"",
            "redrive.toml:4:8: notify[0].rate: \"0.2\" is not a share; write one such as \"20%\", over 0% and up to \
             100%",
        ),
        (
            "[[notify]]\non = [\"dead\"]\nto = \"log\"\nqeue = \"mail\"",
            "redrive.toml:4:1: notify[0].qeue: is not known here; did you mean queue?",
        ),
        (
            "[queues.\"a\\nb\"]",
            "redrive.toml:1:9: queues.\"a\\nb\": is no name; write 1 to 256 bytes without control characters",
        ),
    ];
    let folder = Folder::new();
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let mistakes = folder.mistakes(text);
        let same = mistakes.len() == 1 && mistakes[0].starts_with(expected);
        if !same {
            wrong.push(format!("{text}\n  expected {expected}\n  got      {mistakes:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_that_is_not_toml_is_shown_the_line_and_the_rest_is_still_checked() {
    let mistakes = Folder::new().mistakes("lease = \nlisen = 1\n");
    assert!(mistakes[0].starts_with("redrive.toml:1:9: this is not TOML: "), "{mistakes:#?}");
    assert!(mistakes.iter().any(|mistake| mistake.contains("did you mean listen?")), "{mistakes:#?}");
}

#[test]
fn all_mistakes_of_all_sources_are_named_at_once() {
    let folder = Folder::new();
    let path = folder.write("redrive.toml", "lease = 5\n[queues.mail]\norder = \"x\"\nconcurrency = -1\n");
    let options = ServeOptions { listen: Some("nowhere".into()), ..ServeOptions::default() };
    let sources = Sources::none()
        .file(path)
        .variable("REDRIVE_GRACE", "soon")
        .variable("REDRIVE_LISEN", "127.0.0.1:1")
        .variable("REDRIVE_QUEUES__MAIL__CAPACITY", "lots")
        .variable("REDRIVE_QUEUES__MAIL__CONCURENCY", "4")
        .variable("REDRIVE_NOTIFY", "[{")
        .options(options);
    let mistakes = folder.mistakes_of(&sources);
    let expected = [
        "redrive.toml:1:9: lease: 5 has no unit; write \"5s\" for seconds (units: ms, s, m, h, d, w)",
        "redrive.toml:3:9: queues.mail.order: \"x\" is not known; write one of \"due\", \"fifo\"",
        "redrive.toml:4:15: queues.mail.concurrency: -1 is not a number from 1 to 100000; write one",
        "REDRIVE_GRACE: grace: \"soon\" is not a duration; write a number and a unit, such as \"90s\" or \"1h30m\"",
        "REDRIVE_LISEN: is not known; did you mean REDRIVE_LISTEN?",
        "REDRIVE_NOTIFY: notify: is not JSON: EOF while parsing an object at line 1 column 2",
        "REDRIVE_QUEUES__MAIL__CAPACITY: queues.mail.capacity: \"lots\" is not a number from 1 to \
         9000000000000000000; write one",
        "REDRIVE_QUEUES__MAIL__CONCURENCY: is not known; did you mean REDRIVE_QUEUES__MAIL__CONCURRENCY?",
        "--listen: listen: \"nowhere\" is not an address with a port; write 127.0.0.1:7373, 0.0.0.0:7373 or [::1]:7373",
    ];
    assert_eq!(mistakes, expected, "{mistakes:#?}");
}

#[test]
fn what_a_server_would_refuse_is_a_mistake_with_its_place() {
    let mistakes = Folder::new().mistakes(
        r#"
[egress]
allow = [
  "127.0.0.0/33",
  "10.0.0.0/8",
  "10.0.0.5/8",
]
[commands.pack]
argv = ["tar", "{x}y"]
cwd = "here"
[commands.good]
argv = ["/usr/bin/jq", "{a: .b}", "{x}"]
[endpoints.shop]
secret = "hunter2"
"#,
    );
    assert!(mistakes[0].starts_with("redrive.toml:4:3: egress.allow: \"127.0.0.0/33\""), "{mistakes:#?}");
    let expected = [
        "redrive.toml:6:3: egress.allow: \"10.0.0.5/8\" has bits behind its prefix; write 10.0.0.0/8, or 10.0.0.5 alone",
        "redrive.toml:9:9: commands.pack.argv: \"tar\" is not a full path; write where the program is, as `which` prints \
         it",
        "redrive.toml:9:16: commands.pack.argv: \"{x}y\": a placeholder is a whole argument; write \"--name\", \"{x}\" as \
         two",
        "redrive.toml:10:7: commands.pack.cwd: is not a full path",
        "redrive.toml:14:10: endpoints.shop.secret: the secret has no whsec_ before it; write whsec_ and 24 to 64 random \
         bytes in base64, as `openssl rand -base64 32` makes them",
    ];
    assert_eq!(mistakes[1..], expected, "{mistakes:#?}");
    let options = ServeOptions { allow_egress: vec!["*.example".into()], ..ServeOptions::default() };
    let mistakes = Folder::new().mistakes_of(&Sources::none().options(options));
    assert!(
        mistakes.len() == 1 && mistakes[0].starts_with("--allow-egress: egress.allow: "),
        "{mistakes:#?}"
    );
}

#[test]
fn all_mistakes_about_destinations_are_named_at_once() {
    let mistakes = Folder::new().mistakes(
        r#"
[destination."a.*.org"]
[destination."*.b.org"]
rate = "fast"
burst = 0
health = "https://{destination}/"
[destination."c.org"]
burst = 2
min_gap = "0s"
rat = "1/s"
[destination."d.org"]
rate = "1/s"
min_gap = "1s"
burst = 1
health = "d.org"
[destination."e.org"]
burst = 2
health_every = "1s"
"#,
    );
    let expected = [
        "redrive.toml:2:14: destination.\"a.*.org\": \"a.*.org\" is not a pattern; write a destination such as \
         \"api.example.org\", \"*.example.org\" or \"*\"",
        "redrive.toml:4:8: destination.\"*.b.org\".rate: \"fast\" is not a rate; write \"10/s\", \"600/m\" or \
         \"5000/h\"",
        "redrive.toml:5:9: destination.\"*.b.org\".burst: 0 is not a number from 1 to 1000000; write one",
        "redrive.toml:9:11: destination.\"c.org\".min_gap: 0s is out of bounds; write 1ms to 1d",
        "redrive.toml:10:1: destination.\"c.org\".rat: is not known here; did you mean rate?",
        "redrive.toml:11:14: destination.\"d.org\": rate and min_gap both say how close calls may be: write one of them",
        "redrive.toml:15:10: destination.\"d.org\".health: \"d.org\" cannot be asked; write \"https://host/health\" or \
         \"tcp://host:port\"",
        "redrive.toml:16:14: destination.\"e.org\": burst says nothing without a rate: write rate = \"10/s\" as well",
        "redrive.toml:18:16: destination.\"e.org\".health_every: says how often nothing is asked; write health as well, \
         or leave it out",
    ];
    assert_eq!(mistakes, expected, "{mistakes:#?}");
}

/// Every source that is there, weakest first, says its own name; the strongest must win.
#[test]
fn the_stronger_source_wins_in_every_combination() {
    let folder = Folder::new();
    let file = |name: &str| folder.write(name, &format!("instance = \"{name}\"\n"));
    let files = [file("system.toml"), file("user.toml"), file("here.toml")];
    for given in 0..32_u32 {
        let is_given = |source: u32| given & 1 << source != 0;
        let mut sources = Sources::none();
        let mut expected = "localhost";
        for (at, name) in (0..).zip(["system.toml", "user.toml", "here.toml"]) {
            if is_given(at) {
                sources = sources.file(&files[at as usize]);
                expected = name;
            }
        }
        if is_given(3) {
            sources = sources.variable("INSTANCE_ID", "foreign");
            expected = "foreign";
        }
        if is_given(4) {
            sources = sources.variable("REDRIVE_INSTANCE", "ours");
            expected = "ours";
        }
        assert_eq!(config::load(&sources).unwrap().instance, expected, "{given:05b}");
    }
}

#[test]
fn flags_win_over_variables_and_variables_over_files() {
    let folder = Folder::new();
    let path = folder
        .write("redrive.toml", "store = \"sqlite:file.db\"\nlog = \"warn\"\nlisten = \"127.0.0.1:1\"\n");
    let options = ServeOptions {
        store: Some("sqlite:flag.db".into()),
        allow_egress: vec!["127.0.0.0/8".into(), "10.0.0.0/8".into()],
        ..ServeOptions::default()
    };
    let sources = Sources::none()
        .file(path)
        .variable("REDRIVE_STORE", "sqlite:variable.db")
        .variable("REDRIVE_LOG", "debug")
        .variable("REDRIVE_EGRESS__ALLOW", "192.168.0.0/16")
        .variable("REDRIVE_QUEUES__MAIL__POLICY", "{\"backoff\":{\"kind\":\"fixed\",\"delay\":\"1m\"}}")
        .options(options);
    let loaded = config::read(&sources);
    let shown = config::show(&loaded);
    let line = |path: &str| {
        let line =
            shown.iter().find(|line| line.path == path).unwrap_or_else(|| panic!("{path} in {shown:#?}"));
        format!("{} ({})", line.value, line.origin).replace(&format!("{}/", folder.0.path().display()), "")
    };
    assert_eq!(line("store"), "\"sqlite:flag.db\" (--store)");
    assert_eq!(line("log"), "\"debug\" (REDRIVE_LOG)");
    assert_eq!(line("listen"), "\"127.0.0.1:1\" (redrive.toml:3:10)");
    assert_eq!(line("lease"), "\"30s\" (default)");
    assert_eq!(line("limits.batch"), "1000 (default)");
    assert_eq!(line("egress.allow"), "[\"127.0.0.0/8\", \"10.0.0.0/8\"] (--allow-egress)");
    let config = loaded.into_config().unwrap();
    assert_eq!(config.store, StoreUrl::Sqlite("flag.db".into()));
    let mail = config.queues.iter().find(|queue| queue.name == "mail").unwrap();
    assert_eq!(mail.policy.preview(1), [mins(1)]);
}

#[test]
fn what_is_shown_can_be_loaded_and_says_the_same_wherever_it_came_from() {
    let sources = Sources::none()
        .variable("REDRIVE_STORE", "sqlite:odd \u{7f}\u{202e}\t\"name\".db")
        .variable("REDRIVE_LISTEN", "[::1]:7373")
        .variable("REDRIVE_HOSTS", "[\"a.example\"]")
        .variable("REDRIVE_INSECURE", "true")
        .variable("REDRIVE_INSTANCE", "blue\u{200b} {\\}")
        .variable("REDRIVE_LEASE", "1m")
        .variable("REDRIVE_QUEUES__MAIL__CAPACITY", "1000")
        .variable("REDRIVE_QUEUES__MAIL__POLICY", "mine")
        .variable(
            "REDRIVE_POLICIES__MINE",
            "{\"maxAttempts\":3,\"backoff\":{\"kind\":\"fixed\",\"delay\":1.5}}",
        )
        .variable("REDRIVE_LIMITS__BATCH", " 5")
        .variable("REDRIVE_LIMITS__PAYLOAD_BYTES", "2048")
        .variable("REDRIVE_DESTINATION__DB__RATE", "10/s")
        .variable("REDRIVE_EGRESS__ALLOW", "10.0.0.0/8, 127.0.0.0/8")
        .variable("REDRIVE_COMMANDS__PACK__ARGV", "/bin/tar,--all")
        .variable("REDRIVE_COMMANDS__PACK__ENV", "{\"LANG\":\"C\"}")
        .variable("REDRIVE_COMMANDS__PACK__PERMANENT_EXIT_CODES", "[65]")
        .variable("REDRIVE_NOTIFY", "[{\"on\":[\"dead\"],\"to\":\"log\"}]")
        .options(ServeOptions { log_format: Some("json".into()), ..ServeOptions::default() });
    let loaded = config::read(&sources);
    let shown = config::show(&loaded);
    let value = |path: &str| shown.iter().find(|line| line.path == path).unwrap().json.clone();
    assert_eq!(
        ["limits.batch", "insecure", "egress.allow", "queues.mail.capacity"].map(value),
        [json!(5), json!(true), json!(["10.0.0.0/8", "127.0.0.0/8"]), json!(1000)]
    );
    // As the command prints it.
    let line = |line: &config::Shown| format!("{} = {}\n", line.path, redrive_server::printable(&line.value));
    let file: String = shown.iter().map(line).collect();
    let again = load(&file);
    assert_eq!(format!("{again:#?}"), format!("{:#?}", loaded.into_config().unwrap()), "{file}");
}

#[test]
fn secrets_in_variables_are_as_hidden_as_those_in_files() {
    let secret = "whsec_hunter2hunter2hunter2hunter2abcd";
    let sources = Sources::none()
        .variable("REDRIVE_ENDPOINTS__SHOP__SECRETS", &format!("{secret},{secret}"))
        .variable("REDRIVE_ENDPOINTS__BANK__SECRET", secret);
    let loaded = config::read(&sources);
    let shown = format!("{:?}", config::show(&loaded));
    assert!(!shown.contains("hunter2") && shown.contains("(hidden)"), "{shown}");
    assert_eq!(loaded.into_config().unwrap().endpoints["shop"].len(), 2);
}

#[test]
fn database_url_is_understood_and_another_programs_is_left_alone() {
    let store = |sources: Sources| config::load(&sources).map(|config| config.store.to_string());
    let none = Sources::none;
    let url = "postgres://me@db/jobs";
    assert_eq!(store(none().variable("DATABASE_URL", url)).unwrap(), url);
    let both = none().variable("DATABASE_URL", url).variable("REDRIVE_STORE", "sqlite:a.db");
    assert_eq!(store(both).unwrap(), "sqlite:a.db");
    let folder = Folder::new();
    let path = folder.write("redrive.toml", "store = \"sqlite:b.db\"");
    assert_eq!(store(none().file(path).variable("DATABASE_URL", "mysql://db")).unwrap(), "sqlite:b.db");
    let mistakes = store(none().variable("DATABASE_URL", "mysql://me:pass@db")).unwrap_err();
    assert!(mistakes[0].to_string().starts_with("DATABASE_URL: store: what is written is not a store; "));
    assert!(!mistakes[0].to_string().contains("pass"), "{}", mistakes[0]);
}

#[test]
fn what_others_put_into_the_environment_is_no_mistake() {
    let sources = Sources::none()
        .variable("REDRIVE_SERVICE_HOST", "10.0.0.1")
        .variable("REDRIVE_PORT", "tcp://10.0.0.1:7373")
        .variable("REDRIVE_PORT_7373_TCP_ADDR", "10.0.0.1")
        .variable("REDRIVE_TEST_POSTGRES", "none")
        .variable("REDRIVE_TOKEN", "rdv_x")
        .variable("PATH", "/bin");
    assert_eq!(config::read(&sources).mistakes(), []);
}

#[test]
fn secrets_come_out_of_files_and_are_never_shown() {
    let folder = Folder::new();
    let url = folder.write("url", "postgres://me:hunter2@db/jobs\n");
    let signing = folder.write("signing", "whsec_hunter2hunter2hunter2hunter2abcd\n");
    let text = format!(
        "store = \"sqlite:weaker.db\"\n[endpoints.shop]\nsecret_file = {signing:?}\n[endpoints.bank]\nsecret = \"whsec_hunter2hunter2hunter2hunter2abcd\"\n\
         secrets = [\"whsec_hunter2hunter2hunter2hunter2abcd\"]\n"
    );
    let path = folder.write("redrive.toml", &text);
    let sources = Sources::none().file(path).variable("REDRIVE_STORE_FILE", url.to_str().unwrap());
    let loaded = config::read(&sources);
    let shown = format!("{:?}", config::show(&loaded));
    assert!(!shown.contains("hunter2") && shown.contains("(hidden)"), "{shown}");
    assert!(!shown.contains("weaker.db"), "the file's store has been replaced: {shown}");
    let config = loaded.into_config().unwrap();
    assert_eq!(config.store.to_string(), "postgres://me:hunter2@db/jobs");
    assert_eq!(config.endpoints["shop"][0].reveal(), "whsec_hunter2hunter2hunter2hunter2abcd");
    let shown = config::show(&config::read(
        &Sources::none().variable("DATABASE_URL", "postgres://me:hunter2@db/jobs"),
    ));
    assert_eq!(shown[0].value, "\"postgres://me:***@db/jobs\"");
    assert_eq!(shown[0].origin, Place::Variable("DATABASE_URL".into()));

    let nonsense = folder.write("nonsense", "hunter2");
    let mistakes =
        folder.mistakes_of(&Sources::none().variable("REDRIVE_STORE_FILE", nonsense.to_str().unwrap()));
    assert!(mistakes[0].contains("what stands in it is not a store") && !mistakes[0].contains("hunter2"));
    let empty = folder.write("empty", "\n");
    let mistakes =
        folder.mistakes_of(&Sources::none().variable("REDRIVE_STORE_FILE", empty.to_str().unwrap()));
    assert_eq!(mistakes, ["REDRIVE_STORE_FILE: store_file: empty: is empty"]);
}

#[test]
fn a_config_file_that_others_could_have_written_is_refused() {
    let folder = Folder::new();
    let path = folder.write("redrive.toml", "instance = \"x\"\n");
    let owner = fs::metadata(&path).unwrap().uid();
    let mistakes = |sources: Sources| folder.mistakes_of(&sources.file(&path));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    assert_eq!(mistakes(Sources::none()), [] as [String; 0], "the group may write it");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(
        mistakes(Sources::none()),
        ["redrive.toml:1:1: may be written by everyone; take that away: chmod o-w"]
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let stranger = if owner == 0 {
        // Root's files are everybody's to read; so it must be another's, which root can arrange.
        std::os::unix::fs::chown(&path, Some(4_242), None).unwrap();
        Sources::none().user(4_243)
    } else {
        Sources::none().user(owner + 1)
    };
    let said = mistakes(stranger);
    assert!(said[0].starts_with("redrive.toml:1:1: belongs to user "), "{said:?}");
    assert!(said[0].contains("who could change what runs here; make it yours: chown "), "{said:?}");
}

#[test]
fn a_file_that_was_asked_for_must_be_there_and_one_that_was_not_need_not() {
    let folder = Folder::new();
    let path = folder.0.path().join("none.toml");
    assert_eq!(config::read(&Sources::none().optional_file(&path)).mistakes(), []);
    assert_eq!(
        folder.mistakes_of(&Sources::none().file(&path)),
        ["none.toml:1:1: cannot be read: No such file or directory (os error 2)"]
    );
}

#[test]
fn a_process_is_asked_for_its_own_command_line() {
    let folder = Folder::new();
    let path = folder.write("mine.toml", "instance = \"mine\"\n");
    let options =
        ServeOptions { config: Some(path), store: Some("sqlite:x.db".into()), ..ServeOptions::default() };
    let shown = config::show(&config::read(&Sources::of_process(&options)));
    let value = |path: &str| shown.iter().find(|line| line.path == path).map(|line| line.value.as_str());
    assert_eq!((value("instance"), value("store")), (Some("\"mine\""), Some("\"sqlite:x.db\"")));
}

#[test]
fn the_reference_page_is_what_the_table_of_keys_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.md");
    if is_to_be_written() {
        fs::write(&path, config::reference()).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == config::reference(),
        "docs/reference/config.md is stale: run `make docs` and look at its diff"
    );
}

#[expect(clippy::disallowed_methods, reason = "the one setting of these tests")]
fn is_to_be_written() -> bool {
    std::env::var_os("REDRIVE_WRITE_DOCS").is_some()
}

#[test]
fn the_example_of_the_reference_page_can_be_loaded() {
    let page = config::reference();
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = Folder::new();
    let secret = folder.write("shop", "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3");
    let text = example.replace("/run/secrets/shop", secret.to_str().unwrap());
    assert_eq!(folder.mistakes(&text), [] as [String; 0]);
}
