//! Real engines that run real programs, which behave as badly as programs do.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::time::Duration;

use redrive::{
    Class, Engine, JobDetail, JobId, Json, MemoryStore, NewJob, Policy, Queue, StateName, millis, secs,
};
use redrive_server::config::{self, Sources};
use redrive_server::executor::{CommandEntry, CommandExecutor};
use serde_json::{Value, json};

fn executor(entries: Value) -> CommandExecutor {
    let entries: Vec<CommandEntry> = serde_json::from_value(entries).unwrap();
    CommandExecutor::new(entries).unwrap()
}

fn engine(executor: CommandExecutor) -> Engine {
    let queue = Queue::new("default").policy(Policy::fixed(millis(10)).attempts(2));
    Engine::builder(MemoryStore::new()).queue(queue).handle(executor).build().unwrap()
}

async fn enqueue(engine: &Engine, payload: Value) -> JobId {
    engine.enqueue(NewJob::of_kind("command", Json::of(&payload).unwrap())).await.unwrap().id
}

/// Runs one job of a program that a shell is given as text by the operator.
async fn run(script: &str, entry: Value, params: Value) -> JobDetail {
    let mut whole = json!({"name": "test", "argv": ["/bin/sh", "-c", script, "sh", "--"]});
    if let (Value::Object(whole), Value::Object(entry)) = (&mut whole, entry) {
        whole.extend(entry);
    }
    let engine = engine(executor(json!([whole])));
    let id = enqueue(&engine, json!({"command": "test", "params": params})).await;
    engine.drain().await.unwrap();
    engine.get(id).await.unwrap().unwrap()
}

fn output(detail: &JobDetail) -> Value {
    detail.output.as_ref().expect("there is an output").decode().unwrap()
}

fn failure(detail: &JobDetail) -> (Class, String, String) {
    let failure = detail.attempts.last().unwrap().failure.clone().unwrap();
    (failure.class, failure.code.unwrap_or_default(), failure.message)
}

/// Whether a process with this number lives. One that waits to be collected does not.
fn lives(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

/// Returns what stands in a file as soon as there is a line in it.
async fn line_of(path: &Path) -> String {
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn until_dead(process: &str) {
    let dead = async {
        while lives(process) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), dead).await.expect("it is still alive");
}

#[tokio::test]
async fn a_program_that_ends_with_0_is_done_and_what_it_said_is_kept() {
    let done = run("echo out; echo err >&2", json!({}), json!({})).await;
    assert_eq!(output(&done), json!({"exitCode": 0, "stdout": "out\n", "stderr": "err\n"}));
}

#[tokio::test]
async fn what_a_job_says_arrives_as_data() {
    let argv = json!({"argv": ["/usr/bin/printf", "%s|", "--", "{a}", "{b}"]});
    for evil in ["$(reboot)", "`id`", "; echo owned", "a\nb", "-rf", "--", "{b}", "*", "%s", "\\n"] {
        let done = run("", argv.clone(), json!({"a": evil, "b": 7})).await;
        let said = output(&done)["stdout"].as_str().unwrap().to_owned();
        assert!(said.ends_with(&format!("{evil}|7|")), "{evil:?}: {said:?}");
    }
}

#[tokio::test]
async fn the_environment_is_the_listed_one() {
    let done = run("/usr/bin/env | /usr/bin/sort", json!({"env": {"A": "1"}}), json!({})).await;
    let said = output(&done)["stdout"].as_str().unwrap().to_owned();
    let names: Vec<&str> = said.lines().map(|line| line.split('=').next().unwrap()).collect();
    // The shell adds PWD and its like by itself.
    let given: Vec<&str> =
        names.into_iter().filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name)).collect();
    assert_eq!(given, ["A", "REDRIVE_ATTEMPT", "REDRIVE_JOB_ID"]);
    assert!(said.contains(&format!("REDRIVE_JOB_ID={}", done.job.id)));
}

#[tokio::test]
async fn an_exit_code_decides_whether_it_is_tried_again() {
    let tried = run("echo no >&2; exit 75", json!({}), json!({})).await;
    assert_eq!((tried.job.state.name(), tried.attempts.len()), (StateName::Dead, 2));
    assert_eq!(
        failure(&tried),
        (Class::Transient, "EXIT_75".to_owned(), "\"test\" ended with 75".to_owned())
    );
    let other = run("exit 3", json!({}), json!({})).await;
    assert_eq!((failure(&other).0, other.attempts.len()), (Class::Transient, 2));
    let listed = run("exit 3", json!({"permanent_exit_codes": [3]}), json!({})).await;
    assert_eq!((failure(&listed).0, listed.attempts.len()), (Class::Permanent, 1));
    let killed = run("kill -9 $$", json!({}), json!({})).await;
    assert_eq!(failure(&killed).1, "KILLED");
    let missing = run("", json!({"argv": ["/there/is/no/such/program"]}), json!({})).await;
    assert_eq!((failure(&missing).0, missing.attempts.len()), (Class::Permanent, 1));
}

#[tokio::test]
async fn a_program_that_takes_too_long_dies_with_all_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    let script = format!("sleep 600 & echo $! > {}; wait", file.display());
    let dead = run(&script, json!({"timeout": "300ms"}), json!({})).await;
    assert_eq!((failure(&dead).0, failure(&dead).1.as_str()), (Class::Transient, "TIMEOUT"));
    let first = &dead.attempts[0];
    assert!(first.ended_at.since(first.started_at) < secs(5));
    until_dead(&line_of(&file).await).await;
}

#[tokio::test]
async fn what_a_program_leaves_running_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    let script = format!("sleep 600 & echo $! > {}; echo done", file.display());
    let done = run(&script, json!({}), json!({})).await;
    assert_eq!(output(&done)["stdout"], "done\n");
    until_dead(&line_of(&file).await).await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_takes_its_program_along() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    let script = format!("sleep 600 & echo $! > {}; wait", file.display());
    let engine = engine(executor(json!([{"name": "long", "argv": ["/bin/sh", "-c", script]}])));
    let id = enqueue(&engine, json!({"command": "long"})).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(async move { drop(stopped.await) }).await }
    });
    let child = line_of(&file).await;
    assert!(lives(&child));
    engine.cancel(id).await.unwrap();
    until_dead(&child).await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_said_without_end_is_taken_and_its_end_kept() {
    let done =
        run("/usr/bin/yes 0123456789abcde | /usr/bin/head -c 50000000; echo end", json!({}), json!({})).await;
    let stdout = &output(&done)["stdout"];
    assert_eq!(stdout["truncated"], true);
    let kept = stdout["end"].as_str().unwrap();
    assert!(kept.ends_with("end\n") && kept.len() <= 64 * 1024);
}

#[tokio::test]
async fn what_is_not_on_the_list_is_not_run() {
    let executor = executor(json!([{"name": "greet", "argv": ["/bin/echo", "{name}"]}]));
    for (payload, says) in [
        (json!({"command": "/bin/sh"}), "there is no command \"/bin/sh\"; allowed here: greet"),
        (json!({"command": "greet"}), "param \"name\" is missing"),
        (json!({"command": "greet", "params": {"name": "-n"}}), "begins with a hyphen"),
        (json!({"command": "greet", "params": {"name": "a\u{0}b"}}), "without NUL"),
        (json!({"command": "greet", "params": {"name": ["a"]}}), "or a number"),
        (json!({"command": "greet", "params": {"name": "a", "x": "b"}}), "no place for it"),
        (json!({"command": "greet", "argv": ["/bin/sh"]}), "payload.argv is not known"),
        (json!({"command": "greet", "params": []}), "param \"name\" is missing"),
        (json!({"command": "greet", "params": ["a"]}), "payload.params is a list; write an object"),
        (json!("greet"), "payload is \"greet\"; write an object"),
    ] {
        let error = executor.check(&payload.to_string()).unwrap_err();
        assert!(error.contains(says), "{payload}: {error}");
    }
    let engine = engine(executor);
    let id = enqueue(&engine, json!({"command": "other"})).await;
    engine.drain().await.unwrap();
    let dead = engine.get(id).await.unwrap().unwrap();
    assert_eq!((dead.job.state.name(), dead.attempts.len()), (StateName::Dead, 1));
    // Without a list there is no executor, and the engine does not know the kind.
    let bare = Engine::builder(MemoryStore::new()).build().unwrap();
    assert!(
        bare.enqueue(NewJob::of_kind("command", Json::of(&json!({"command": "x"})).unwrap())).await.is_err()
    );
}

#[test]
fn the_guide_tells_the_default_that_the_config_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("redrive.toml");
    std::fs::write(&file, "[commands.pack]\nargv = [\"/usr/bin/tar\"]").unwrap();
    let config = config::load(&Sources::none().file(file)).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    let alone: CommandEntry = serde_json::from_value(json!({"name": "a", "argv": ["/bin/true"]})).unwrap();
    assert_eq!((config.commands["pack"].timeout, alone.timeout), (secs(60), secs(60)));
    assert!(include_str!("../../../docs/guides/commands.md").contains("60 seconds if you say nothing"));
}

#[tokio::test]
async fn the_last_words_of_a_program_are_kept_beside_the_message_and_without_its_secrets() {
    let last = "cannot open postgres://***@db/x with token=***";
    let says = "echo 'cannot open postgres://app:hunter2@db/x with token=hunter2' >&2";
    for (ends, entry, code, message) in [
        ("exit 3", json!({}), "EXIT_3", r#""test" ended with 3"#),
        ("exit 3", json!({"permanent_exit_codes": [3]}), "EXIT_3", r#""test" ended with 3"#),
        ("kill -9 $$", json!({}), "KILLED", r#""test" was killed by a signal (signal: 9 (SIGKILL))"#),
        ("sleep 60", json!({"timeout": "2s"}), "TIMEOUT", r#""test" took longer than 2s and was killed"#),
    ] {
        let dead = run(&format!("{says}; {ends}"), entry, json!({})).await;
        let failure = dead.attempts.last().unwrap().failure.clone().unwrap();
        assert_eq!((failure.code.as_deref(), failure.message.as_str()), (Some(code), message));
        assert_eq!(failure.detail.as_deref(), Some(last), "{ends}");
    }
}

#[tokio::test]
async fn a_child_that_makes_a_session_of_its_own_outlives_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    // Not for ever: this child is killed by nobody.
    let child = format!("echo $$ > {}; exec sleep 20", file.display());
    let script = format!(
        "/usr/bin/setsid /bin/sh -c '{child}' >/dev/null 2>&1 & while [ ! -s {} ]; do :; done",
        file.display()
    );
    run(&script, json!({}), json!({})).await;
    assert!(lives(&line_of(&file).await));
}

/// The blocks of one language in a guide.
fn blocks<'a>(guide: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    guide
        .split(fence.as_str())
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(block, _)| block)
        .collect()
}

#[test]
fn the_example_in_the_guide_can_be_run() {
    let guide = include_str!("../../../docs/guides/commands.md");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("redrive.toml");
    std::fs::write(&file, blocks(guide, "toml")[0]).unwrap();
    let config = config::load(&Sources::none().file(file)).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    let entries = config.commands.iter().map(|(name, command)| command.entry(name));
    let executor = CommandExecutor::new(entries.collect()).unwrap();
    let payloads = blocks(guide, "json");
    assert_eq!(payloads.len(), 1);
    executor.check(payloads[0]).unwrap();
}
