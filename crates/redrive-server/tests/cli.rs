//! The command line as a user runs it: the real binary, on a SQLite file and against a running server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/authority.rs"]
mod authority;
#[path = "cli/ground.rs"]
mod ground;
#[path = "cli/keeping.rs"]
mod keeping;
#[path = "cli/policy.rs"]
mod policy;
#[path = "cli/secure.rs"]
mod secure;
#[path = "cli/simulate.rs"]
mod simulate;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ground::{Ground, Said};
use redrive::SqliteStore;
use serde_json::{Value, json};

const NO_SUCH_JOB: &str = "019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e";

/// Every command once, and what it says with `--json`, apart from ids and times.
fn tour(ground: &Ground, place: &[&str]) -> Vec<(String, Value)> {
    let mut answers = Vec::new();
    let mut ask = |line: &str, more: &[&str]| {
        let words: Vec<&str> =
            line.split(' ').chain(more.iter().copied()).chain(place.iter().copied()).collect();
        let said = ground.run(&words).good();
        let plain = ground.run(&[&words[..], &["--json"]].concat());
        // Some things can be done once only, and have been.
        if plain.code == Some(0) {
            answers.push((line.to_owned(), ground::without_ids_and_times(&plain.json())));
        }
        said
    };
    let job = ask(
        "enqueue",
        &["http", "--url", "https://a.example/x", "--body", "{\"n\":1}", "--delay", "1h", "--key", "k"],
    );
    let job = job.trim();
    ask(
        "enqueue mail --payload {\"to\":\"you\"} --delay 2h --label a=b --priority -3 --deadline 3h --timeout 5s",
        &[],
    );
    ask("jobs list", &[]);
    ask("jobs list --state waiting --kind mail --label a=b --limit 10 --from 1h", &[]);
    ask("jobs list --all", &[]);
    ask("jobs show", &[job]);
    ask("jobs explain", &[job]);
    ask("jobs snooze --delay 30m", &[job]);
    ask("jobs reschedule --run-at 2h", &[job]);
    ask("jobs cancel --state waiting --kind mail --dry-run", &[]);
    ask("jobs cancel --state waiting --kind mail --yes", &[]);
    ask("jobs retry --state waiting --kind nothing --yes", &[]);
    ask("dead list", &[]);
    ask("dead groups", &[]);
    ask("dead redrive --kind nothing --yes", &[]);
    ask("queues list", &[]);
    ask("queues pause default", &[]);
    ask("queues resume default", &[]);
    ask("stats", &[]);
    ask("activity --limit 20", &[]);
    ask("policy presets", &[]);
    ask("policy preview media", &[]);
    ask("explain-classify --status 503 unavailable", &[]);
    let policy = ground.path("policy.json");
    fs::write(&policy, r#"{"backoff":{"kind":"fixed","delay":"3s"},"maxAttempts":3}"#).unwrap();
    ask("policy check", &[policy.to_str().unwrap()]);
    ask("jobs cancel", &[job]);
    ask("jobs redrive", &[job]);
    ask("jobs delete --state succeeded --yes", &[]);
    answers
}

#[test]
fn a_demo_may_call_its_own_destinations_without_being_allowed_to() {
    let ground = Ground::new();
    let server = ground.serve("sqlite:demo.db", &["--demo"]);
    let mut looks =
        std::iter::repeat_with(|| ground.run(&["stats", "--json", "--server", server.url()]).json());
    // The first job is for a destination that takes everything.
    let stats = looks.find(|stats| stats["totalSucceeded"] != 0 || stats["totalFailed"] != 0).unwrap();
    assert_ne!(stats["totalSucceeded"], 0, "{stats}");
    server.stop();
}

#[test]
fn a_demo_shows_a_breaker_at_work() {
    let ground = Ground::new();
    let server = ground.serve("sqlite:demo.db", &["--demo"]);
    let ask = |words: &[&str]| ground.run(&[words, &["--json", "--server", server.url()]].concat()).json();
    let is_down = |one: &Value| one["name"] == "down" && one["reason"] == "failing";
    let mut looks = std::iter::repeat_with(|| {
        let list = ask(&["destinations", "list"]);
        let dead = ask(&["dead", "list", "--destination", "down"]);
        (list.as_array().unwrap().iter().any(is_down), dead["items"] != json!([]))
    });
    // It is found out before a single job has used up its retries for it.
    let (is_down, is_dead) = looks.find(|(is_down, is_dead)| *is_down || *is_dead).unwrap();
    assert!(is_down && !is_dead);
    server.stop();
}

#[test]
fn every_command_answers_the_same_on_a_store_and_on_a_server() {
    let ground = Ground::new();
    let (local, served) =
        (ground.store_with_a_dead_job("local.db"), ground.store_with_a_dead_job("served.db"));
    let server = ground.serve(&served, &[]);
    let here = tour(&ground, &["--store", &local]);
    let there = tour(&ground, &["--server", server.url()]);
    assert!(here.len() >= 24, "{}", here.len());
    assert_eq!(here.len(), there.len());
    for (here, there) in here.iter().zip(&there) {
        assert_eq!(here, there);
    }
}

#[test]
fn a_store_that_a_server_has_is_asked_through_the_server() {
    let ground = Ground::new();
    let store = ground.store_with_a_dead_job("redrive.db");
    let beside = ground.path("redrive.db.serving");
    // Left by somebody who has crashed: nobody looks at it.
    fs::write(&beside, "http://127.0.0.1:1\n").unwrap();
    assert_eq!(ground.run(&["stats", "--json"]).json()["dead"], 1);

    let server = ground.serve(&store, &[]);
    assert_eq!(fs::read_to_string(&beside).unwrap().trim(), server.url());
    assert_eq!(fs::metadata(&beside).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(ground.run(&["stats", "--json"]).json()["dead"], 1);
    ground.run(&["enqueue", "mail", "--delay", "1h"]).good();
    server.stop();
    assert!(!beside.exists(), "taken away at the end");
    assert_eq!(ground.run(&["stats", "--json"]).json()["waiting"], 1);
}

#[test]
fn a_server_that_wants_a_token_gets_the_one_in_the_file() {
    let ground = Ground::new();
    let token = ground.path("token");
    let token = token.to_str().unwrap();
    let server = ground.serve("sqlite:redrive.db", &["--token-file", token]);
    let said = ground.run(&["stats", "--server", server.url()]);
    assert_eq!((said.code, said.err.contains("this needs a token")), (Some(1), true), "{}", said.err);
    ground.run(&["stats", "--server", server.url(), "--token-file", token]).good();
    ground.run_with(&[("REDRIVE_SERVER", server.url()), ("REDRIVE_TOKEN_FILE", token)], &["stats"]).good();
    // On the same file, with the same configuration, nothing needs to be said.
    fs::write(ground.path("redrive.toml"), format!("token_file = {token:?}\n")).unwrap();
    ground.run(&["stats"]).good();
    let said = ground.run(&["stats", "--server", server.url()]);
    assert_eq!(said.code, Some(1), "the token of our own server goes to nobody else");
}

#[test]
fn a_token_is_shown_once_and_worthless_when_it_is_revoked() {
    let ground = Ground::new();
    let made = ground.run(&["tokens", "create", "ci", "--scope", "read", "--expires-in", "90d"]).good();
    fs::write(ground.path("ci.token"), &made).unwrap();
    let admin = ground.run(&["tokens", "create", "me", "--scope", "admin"]).good();
    fs::write(ground.path("me.token"), &admin).unwrap();
    let listed = ground.run(&["tokens", "list"]).good();
    assert!(listed.contains("expires in 89d23h") && !listed.contains(made.trim()), "{listed}");
    let key_id = ground.run(&["tokens", "list", "--json"]).json();
    let is_ci = |token: &&Value| token["name"] == "ci";
    let key_id = key_id.as_array().unwrap().iter().find(is_ci).unwrap()["keyId"].as_str().unwrap().to_owned();

    let server = ground.serve("sqlite:redrive.db", &[]);
    let ask = |words: &[&str]| ground.run(&[words, &["--server", server.url()]].concat());
    assert_eq!(ask(&["stats"]).code, Some(1), "without a token");
    ask(&["stats", "--token-file", "ci.token"]).good();
    let refused = ask(&["queues", "pause", "default", "--token-file", "ci.token"]);
    assert!(refused.err.contains("this needs the scope operate"), "{}", refused.err);
    let revoke = ["tokens", "revoke", &key_id, "--token-file", "me.token"];
    assert_eq!(ask(&revoke).code, Some(2), "it needs a yes");
    assert!(ask(&[&revoke[..], &["--yes"]].concat()).good().contains("revoked now"));
    assert_eq!(ask(&["tokens", "revoke", "nope", "--yes", "--token-file", "me.token"]).code, Some(3));
}

#[test]
fn a_url_that_others_could_have_written_is_not_asked() {
    let ground = Ground::new();
    ground.run(&["enqueue", "mail"]).good();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _held = runtime.block_on(SqliteStore::open(ground.path("redrive.db"))).unwrap();
    let said = ground.run(&["stats"]);
    assert_eq!(said.code, Some(69));
    assert!(said.err.contains("is in use by another engine"), "{}", said.err);

    let beside = ground.path("redrive.db.serving");
    fs::write(&beside, "http://127.0.0.1:1\n").unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!ground.run(&["stats"]).err.contains("127.0.0.1:1"));
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(ground.run(&["stats"]).err.contains("the server at http://127.0.0.1:1 cannot be reached"));
}

#[test]
fn exit_codes_say_what_happened() {
    let ground = Ground::new();
    let missing = ground.run(&["stats"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(69), ""));
    assert!(!ground.path("redrive.db").exists(), "looking makes no store");
    fs::write(ground.path("redrive.toml"), "[queues.small]\ncapacity = 1\n").unwrap();
    let job = ground.run(&["enqueue", "mail", "--queue", "small"]).good();
    let job = job.trim();
    for (code, words) in [
        (0, vec!["jobs", "show", job]),
        (1, vec!["enqueue", "http", "--payload", "5"]),
        (1, vec!["enqueue", "mail", "--queue", "nope"]),
        (2, vec!["enqueue", "mail", "--payload", "{"]),
        (2, vec!["enqueue", "mail", "--url", "http://a.example"]),
        (2, vec!["enqueue"]),
        (2, vec!["jobs", "show", "17"]),
        (2, vec!["jobs", "list", "--limit", "0"]),
        (2, vec!["jobs", "cancel"]),
        (2, vec!["jobs", "cancel", job, "--all"]),
        (2, vec!["jobs", "cancel", job, "--kind", "mail"]),
        (2, vec!["stats", "--server", "nonsense"]),
        (2, vec!["stats", "--server", "http://a", "--store", "sqlite:x"]),
        (3, vec!["jobs", "show", NO_SUCH_JOB]),
        (3, vec!["queues", "pause", "nope"]),
        (3, vec!["error", "NOPE"]),
        (4, vec!["jobs", "redrive", job]),
        (4, vec!["jobs", "delete", job, "--yes"]),
        (69, vec!["stats", "--server", "http://127.0.0.1:1"]),
        (69, vec!["stats", "--store", "postgres://nobody@127.0.0.1:1/jobs"]),
        (69, vec!["tail"]),
        (75, vec!["enqueue", "mail", "--queue", "small"]),
    ] {
        let said = ground.run(&words);
        assert_eq!(said.code, Some(code), "{words:?}: {}{}", said.out, said.err);
        assert!(code == 0 || said.out.is_empty(), "{words:?}: stdout is clean: {}", said.out);
        assert!(code == 0 || said.err.starts_with("error: "), "{words:?}: {}", said.err);
    }
    fs::write(ground.path("redrive.toml"), "lisen = 1\n").unwrap();
    for words in [vec!["stats"], vec!["config", "check"], vec!["policy", "presets"]] {
        let said = ground.run(&words);
        assert_eq!(said.code, Some(78), "{words:?}");
        assert!(
            said.err.contains("redrive.toml:1:1: lisen: is not known here; did you mean listen?"),
            "{}",
            said.err
        );
    }
}

#[test]
fn what_cannot_be_undone_needs_a_yes() {
    let ground = Ground::new();
    let job = ground.run(&["enqueue", "mail", "--delay", "1h"]).good();
    let waiting = || ground.run(&["stats", "--json"]).json()["waiting"].clone();
    for words in [
        vec!["jobs", "cancel", "--kind", "mail"],
        vec!["jobs", "cancel", "--all"],
        vec!["jobs", "delete", "--state", "waiting"],
        vec!["jobs", "delete", job.trim()],
        vec!["jobs", "retry", "--all"],
        vec!["tokens", "revoke", "somebody"],
        vec!["executions", "delete", job.trim()],
    ] {
        let said = ground.run(&words);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{words:?}");
        assert!(said.err.contains("hint: there is no terminal to ask at; give --yes"), "{}", said.err);
        let can_only_count = words[0] == "jobs" && words[2].starts_with('-');
        assert_eq!(said.err.contains("--dry-run"), can_only_count, "{}", said.err);
    }
    let said = ground.run(&["jobs", "delete", "--kind", "mail", "--dry-run"]).good();
    assert_eq!(said.trim(), "0 jobs match; nothing was done", "what waits cannot be forgotten");
    let said = ground.run(&["jobs", "cancel", "--kind", "mail", "--dry-run"]).good();
    assert_eq!((said.trim(), waiting()), ("1 job matches; nothing was done", 1.into()));
    let said = ground.run(&["jobs", "cancel", "--all", "--yes", "--json"]).json();
    assert_eq!(said, serde_json::json!({ "matching": 1, "more": false, "done": 1 }));
    ground.run(&["jobs", "delete", job.trim(), "--yes"]).good();
    assert_eq!(ground.run(&["jobs", "show", job.trim()]).code, Some(3));
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_a_command_line() {
    let ground = Ground::new();
    ground.run(&["enqueue", "mail", "--delay", "1h"]).good();
    fs::write(ground.path("junk"), "dear reader").unwrap();
    for (code, words, says) in [
        (2, "tokens create ci --scope enque", "\"enque\" is no scope; did you mean \"enqueue\"?"),
        (2, "tokens create ci --scope everything", "operate, admin"),
        (1, "enqueue mail --policy medai", "did you mean \"media\"?"),
        (1, "policy preview nothing-like-it", "hint: see all of them with: redrive policy presets"),
        (2, "enqueue http", "an http job needs --url or --payload"),
        (69, "restore nosuch.db --store sqlite:new.db", "there is no copy at nosuch.db"),
        (1, "restore junk --store sqlite:new.db", "junk is no copy of a store"),
        (2, "jobs list --limit 0", "write a number from 1 to 1000"),
        (2, "jobs list --label a=b,c", "a label with a comma cannot be looked for"),
        (0, "executions list", "no executions"),
    ] {
        let said = ground.run(&words.split(' ').collect::<Vec<_>>());
        assert!(said.code == Some(code) && said.err.contains(says), "{words}: {:?} {}", said.code, said.err);
        assert!(!said.err.contains("/api/v1"), "{words}: {}", said.err);
    }
    let server = ground.serve("sqlite:redrive.db", &["--token-file", "admin.token"]);
    let said = ground.run(&["stats", "--server", server.url()]);
    assert!(said.err.contains("hint: give --token-file FILE (or REDRIVE_TOKEN_FILE)"), "{}", said.err);
    let said = ground.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(
        said.code == Some(1) && said.err.contains("hint: stop that process, or ask it: "),
        "{}",
        said.err
    );
    assert!(!said.err.contains("Engine"), "{}", said.err);
}

#[test]
fn a_job_that_is_given_up_has_made_as_many_retries_as_it_had() {
    let ground = Ground::new();
    fs::write(ground.path("redrive.toml"), "[egress]\nallow = [\"127.0.0.1\"]\n").unwrap();
    let server = ground.serve("sqlite:redrive.db", &[]);
    let policy = r#"{"backoff":{"kind":"immediate"},"maxAttempts":2}"#;
    // Nobody listens there.
    let words =
        ["enqueue", "http", "--url", "http://127.0.0.1:9/", "--policy", policy, "--server", server.url()];
    let job = ground.run(&words).good();
    let show = |words: &[&str]| ground.run(&[words, &[job.trim(), "--server", server.url()]].concat());
    let mut looks = std::iter::repeat_with(|| show(&["jobs", "show"]).good());
    let shown = looks.find(|shown| shown.contains("dead")).unwrap();
    assert!(shown.contains("2, retry 1 of 1"), "{shown}");
    let listed = ground.run(&["jobs", "list", "--server", server.url()]).good();
    assert!(listed.contains("1 of 1") && !listed.contains("2 of 1"), "{listed}");
}

#[test]
fn a_second_demo_takes_back_what_the_first_has_left() {
    let ground = Ground::new();
    let server = ground.serve("sqlite:demo.db", &["--demo"]);
    let ask = |words: &[&str], url: &str| ground.run(&[words, &["--json", "--server", url]].concat()).json();
    // One that waits for its retry, for the port of this demo.
    let waits = ["jobs", "list", "--state", "waiting", "--label", "demo=down"];
    let mut looks = std::iter::repeat_with(|| ask(&waits, server.url())["items"][0]["id"].clone());
    let job = looks.find(|id| !id.is_null()).unwrap();
    server.stop();
    let server = ground.serve("sqlite:demo.db", &["--demo"]);
    let state = ask(&["jobs", "show", job.as_str().unwrap()], server.url())["state"].clone();
    assert_eq!(state, "cancelled");
}

#[test]
fn nothing_from_outside_steers_the_terminal() {
    let ground = Ground::new();
    let evil = "\u{1b}[2J\u{9b}31m\u{202e}\n";
    let payload = serde_json::json!({ "a": evil }).to_string();
    let job = ground
        .run(&["enqueue", evil.trim(), "--payload", &payload, "--label", &format!("x={evil}"), "--key", evil])
        .good();
    for words in [
        vec!["jobs", "list"],
        vec!["jobs", "show", job.trim()],
        vec!["jobs", "show", job.trim(), "--json"],
        vec!["jobs", "list", "--json"],
        vec!["queues", "pause", evil],
        vec!["error", evil],
        vec!["explain-classify", evil, "--json"],
        vec!["policy", "preview", evil],
    ] {
        let said = ground.run(&words);
        let text = format!("{}{}", said.out, said.err);
        let treacherous = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(treacherous), "{words:?}: {text:?}");
    }
    let shown = ground.run(&["jobs", "show", job.trim(), "--json"]).json();
    assert_eq!(shown["payload"]["a"], evil, "a program gets what was put in");
}

#[test]
fn dead_jobs_are_exported_one_on_a_line() {
    let ground = Ground::new();
    let store = ground.store_with_a_dead_job("redrive.db");
    let lines = ground.run(&["dead", "export", "--store", &store]).good();
    let jobs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((jobs.len(), &jobs[0]["state"]), (1, &Value::from("dead")));
    let group = ground.run(&["dead", "groups", "--json"]).json()[0]["group"].as_str().unwrap().to_owned();
    ground.run(&["dead", "redrive", "--group", &group, "--yes"]).good();
    assert_eq!(ground.run(&["dead", "export"]).good(), "");
    assert_eq!(ground.run(&["stats", "--json"]).json()["redriven"], 1);
}

#[test]
fn a_tail_tells_what_happens_until_it_is_interrupted() {
    let ground = Ground::new();
    let server = ground.serve("sqlite:redrive.db", &[]);
    let mut tail = ground.command(&["tail", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&first["event"], &first["stats"]["totalPending"]), (&json!("snapshot"), &json!(0)));
    let job = ground.run(&["enqueue", "mail", "--delay", "1h", "--server", server.url()]).good();
    let told = lines.map_while(Result::ok).map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let happened =
        told.flat_map(|event| event["jobs"].as_array().cloned().unwrap_or_default()).next().unwrap();
    assert_eq!((&happened["event"], &happened["job"]), (&"enqueued".into(), &job.trim().into()));
    let id = rustix::process::Pid::from_child(&tail);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(tail.wait().unwrap().code(), Some(130));
}

#[test]
fn a_tail_comes_back_when_the_server_does() {
    let ground = Ground::new();
    let server = ground.serve("sqlite:redrive.db", &[]);
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let words = ["tail", "--json", "--server", server.url()];
    let mut tail = ground.command(&words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    server.stop();
    let server = ground.serve_at(&address, "sqlite:redrive.db", &[]);
    let (seen, sees) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let told = lines.map_while(Result::ok).map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let mut missed = false;
        for event in told {
            missed |= event["missed"] == true;
            if event["jobs"][0]["event"] == "enqueued" {
                return seen.send(missed).unwrap();
            }
        }
    });
    // It comes back after a second or more; of what is enqueued before that, nobody tells it.
    let came_back = (0..60).find_map(|_| {
        ground.run(&["enqueue", "mail", "--delay", "1h", "--server", server.url()]).good();
        sees.recv_timeout(Duration::from_secs(1)).ok()
    });
    assert_eq!(came_back, Some(false), "it is told of what happens, and nothing had been told to miss");
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn whoever_stops_reading_hears_no_complaint() {
    let ground = Ground::new();
    let mut child = ground
        .command(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}

#[test]
fn a_policy_is_drawn_to_scale() {
    let ground = Ground::new();
    let said = ground.run(&["policy", "preview", "media"]).good();
    let bars: Vec<usize> =
        said.lines().map(|line| line.matches('█').count()).filter(|bar| *bar > 0).collect();
    assert_eq!(bars, [5, 10, 20, 40], "{said}");
    assert!(said.contains("    4     8s    15s  "), "{said}");
    assert!(said.ends_with("\n4 retries within 15s, before chance (jitter) is added\n"), "{said}");
    fs::write(ground.path("p.toml"), "max_attempts = 3\n[backoff]\nkind = \"fixed\"\ndelay = \"3s\"\n")
        .unwrap();
    assert_eq!(ground.run(&["policy", "check", "p.toml"]).good(), "good: 2 retries within 6s\n");
}

#[test]
fn every_error_has_its_page() {
    let ground = Ground::new();
    let listed = ground.run(&["error"]).good();
    let mut codes = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")).unwrap() {
        let path = entry.unwrap().path();
        let code = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if code != "README" {
            assert_eq!(ground.run(&["error", &code]).good(), fs::read_to_string(&path).unwrap());
            codes.push(code);
        }
    }
    codes.sort();
    assert_eq!(listed.lines().collect::<Vec<_>>(), codes);
}

#[test]
fn the_configuration_is_shown_with_its_origins() {
    let ground = Ground::new();
    fs::write(ground.path("redrive.toml"), "lease = \"10s\"\n").unwrap();
    assert_eq!(ground.run(&["config", "check"]).good(), "the configuration is right\n");
    assert_eq!(ground.run(&["config", "check", "--json"]).json(), serde_json::json!([]));
    let shown = ground.run(&["config", "show", "--origin"]).good();
    let lease = shown.lines().find(|line| line.starts_with("lease ")).unwrap();
    assert!(lease.contains("redrive.toml:1:9") && lease.ends_with("\"10s\""), "{lease}");
    let shown = ground.run(&["config", "show", "--json"]).json();
    let value = |key: &str| {
        shown.as_array().unwrap().iter().find(|line| line["key"] == key).unwrap()["value"].clone()
    };
    assert_eq!(
        (value("lease"), value("insecure"), value("limits.batch")),
        (json!("10s"), json!(false), json!(1000))
    );
}

#[test]
fn the_manual_and_the_completions_know_every_command() {
    let ground = Ground::new();
    let manual = ground.run(&["man"]).good();
    let bash = ground.run(&["completions", "bash"]).good();
    for command in ["enqueue", "jobs", "dead", "queues", "stats", "tail", "policy", "doctor"] {
        assert!(manual.contains(&format!("redrive\\-{command}")) && bash.contains(command), "{command}");
    }
    assert!(ground.run(&["man", "jobs", "list"]).good().contains("newest first"));
    assert_eq!(ground.run(&["man", "jobs", "lisst"]).code, Some(3));
}

#[test]
fn the_reference_page_is_what_the_definition_makes() {
    let page = Ground::new().run(&["reference"]).good();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    if is_to_be_written() {
        fs::write(&path, &page).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(known == page, "docs/reference/cli.md is stale: run `make docs` and look at its diff");
}

#[expect(clippy::disallowed_methods, reason = "the one setting of these tests")]
fn is_to_be_written() -> bool {
    std::env::var_os("REDRIVE_WRITE_DOCS").is_some()
}

#[test]
fn destinations_are_seen_spoken_of_and_limited_from_the_command_line() {
    let ground = Ground::new();
    let redrive = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--store", "sqlite:jobs.db"]).collect();
        ground.run(&words)
    };
    let id = redrive("enqueue mail --destination api.x").good().trim().to_owned();
    assert!(redrive("destinations list").err.contains("all are open"));
    let missing = redrive("destinations show api.y");
    assert!(missing.code != Some(0) && missing.err.contains("there is no destination"), "{}", missing.err);
    let down = redrive("destinations down api.x --json").json();
    assert_eq!((&down["state"], &down["reason"]), (&json!("shut"), &json!("said")), "{down}");
    let list = redrive("destinations list").good();
    let line = list.lines().nth(1).unwrap();
    assert!(line.starts_with("api.x") && line.ends_with("until it is said to be up"), "{list}");
    let explained = redrive(&format!("jobs explain {id}")).good();
    assert!(explained.contains("api.x is said to be down"), "{explained}");
    let up = redrive("destinations up api.x").good();
    assert!(up.contains("ramp") && up.contains("1/s, rising"), "{up}");
    assert_eq!(redrive("destinations pause api.x --json").json()["state"], "paused");
    assert_eq!(redrive("destinations resume api.x --json").json()["state"], "ramp");
    let set = redrive("destinations limit *.x --rate 10/s --burst 3 --breaker 0").good();
    assert!(set.contains("rate 10/s") && set.contains("burst 3") && set.contains("breaker 0"), "{set}");
    assert!(redrive("destinations list").good().contains("*.x"), "limits are listed too");
    assert!(redrive("destinations limit api.x").err.contains("no limit is given"));
    assert!(redrive("destinations limit api.x --rate fast").err.contains("is not a rate"));
    assert!(redrive("destinations unlimit *.x").good().contains("no longer limited"));
    assert!(redrive("destinations unlimit *.x").err.contains("no limits were set"));
    assert_eq!(redrive("credentials renewed crm --json").json(), json!({ "released": 0 }));
}
