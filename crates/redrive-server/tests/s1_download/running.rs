//! `redrive run -- COMMAND` with real processes. Not of S1: it is here because a test program of its own would cost more
//! than it tells.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::Ground;

fn redrive(ground: &Ground, options: &[&str], command: &[&str]) -> Command {
    let mut process = Command::new(env!("CARGO_BIN_EXE_redrive"));
    process
        .arg("run")
        .args(options)
        .arg("--")
        .args(command)
        .current_dir(ground.root())
        .env_clear()
        .env("HOME", ground.root())
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    process
}

async fn said(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Fails until it was run so often, and writes each run down.
fn until_run(times: u32) -> String {
    format!("echo run $REDRIVE_ATTEMPT | tee -a runs; test $(wc -l < runs) -ge {times} || exit 7")
}

/// Returns what stands in a file as soon as it has so many lines.
async fn lines_of(path: &Path, count: usize) -> Vec<String> {
    let read = async {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.lines().count() >= count && text.ends_with('\n') {
                return text.lines().map(str::to_owned).collect();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("the lines come")
}

fn tell(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn a_command_is_run_until_it_succeeds_and_its_output_is_shown() {
    let ground = Ground::new();
    let (code, out, err) = said(redrive(&ground, &["--every", "20ms"], &["sh", "-c", &until_run(3)])).await;
    assert_eq!((code, out.as_str()), (Some(0), "run 1\nrun 2\nrun 3\n"), "{err}");
    assert_eq!(err.matches("it ended with 7; run ").count(), 2, "{err}");
}

#[tokio::test]
async fn the_exit_code_is_the_command_s() {
    let ground = Ground::new();
    for (command, expected) in [
        (vec!["sh", "-c", "exit 3"], 3),
        (vec!["sh", "-c", "kill -KILL $$"], 137),
        (vec!["true"], 0),
        (vec!["there-is-no-such-program"], 127),
        (vec!["/etc/passwd"], 126),
    ] {
        let (code, _, err) = said(redrive(&ground, &["--preset", "workflow-immediate"], &command)).await;
        assert_eq!(code, Some(expected), "{command:?}: {err}");
    }
    // The first try fails by itself, and those after it take too long.
    let slow = ["sh", "-c", "test -e ran && exec sleep 30; touch ran; exit 3"];
    let (code, _, err) =
        said(redrive(&ground, &["--timeout", "300ms", "--preset", "workflow-immediate"], &slow)).await;
    assert_eq!(code, Some(124), "{err}");
}

#[tokio::test]
async fn what_is_asked_for_wrongly_is_said_with_what_to_write() {
    let ground = Ground::new();
    for (options, expected) in [
        (["--preset", "nonsense"], "there is no preset"),
        (["--until", "2020-01-01T00:00:00Z"], "the time of --until is over"),
        (["--every", "0s"], "--every is to leave time between two tries"),
    ] {
        let (code, _, err) = said(redrive(&ground, &options, &["touch", "ran"])).await;
        assert!(code == Some(2) && err.contains(expected), "{options:?}: {err}");
    }
    assert!(!ground.root().join("ran").exists());
    let (_, _, err) = said(redrive(&ground, &[], &["there-is-no-such-program"])).await;
    assert!(err.contains("there-is-no-such-program cannot be started"), "{err}");
}

#[tokio::test]
async fn arguments_are_data_and_no_shell_reads_them() {
    let ground = Ground::new();
    let (code, out, _) = said(redrive(&ground, &[], &["echo", "$HOME; exit 9", "*", "--every"])).await;
    assert_eq!((code, out.as_str()), (Some(0), "$HOME; exit 9 * --every\n"));
}

#[tokio::test]
async fn it_is_given_up_when_its_time_is_over() {
    let ground = Ground::new();
    let (code, _, err) =
        said(redrive(&ground, &["--every", "1s", "--until", "2500ms"], &["sh", "-c", &until_run(99)])).await;
    assert_eq!(code, Some(7));
    assert!(err.contains("it ended with 7; given up: its time is over"), "{err}");
    let runs = lines_of(&ground.root().join("runs"), 1).await.len();
    assert!((1..=5).contains(&runs), "{runs}");
}

#[tokio::test]
async fn killed_or_stopped_it_goes_on_with_the_tries_that_are_left() {
    let ground = Ground::new();
    let script = until_run(4);
    let words = ["sh", "-c", script.as_str()];
    let options = ["--every", "300ms", "--until", "1h"];
    for (runs, signal) in [(1, Signal::KILL), (2, Signal::TERM)] {
        let mut child =
            redrive(&ground, &options, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        lines_of(&ground.root().join("runs"), runs).await;
        tell(&child, signal);
        let ended = child.wait().await.unwrap();
        assert!(!ended.success());
    }
    let (code, _, err) = said(redrive(&ground, &options, &words)).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("goes on with what was left"), "{err}");
    let runs = lines_of(&ground.root().join("runs"), 4).await;
    // The number of the attempt only ever grows: it is one job, whoever ran it.
    let mut numbers: Vec<u32> = runs.iter().map(|line| line[4..].parse().unwrap()).collect();
    let in_order = numbers.clone();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, in_order, "{runs:?}");
}

#[tokio::test]
async fn a_signal_reaches_the_command_and_the_job_is_kept() {
    let ground = Ground::new();
    let words = ["sh", "-c", "echo up >> log; trap 'echo told >> log; exit 5' TERM; sleep 30 & wait"];
    let mut child = redrive(&ground, &[], &words).stderr(Stdio::piped()).spawn().unwrap();
    lines_of(&ground.root().join("log"), 1).await;
    tell(&child, Signal::TERM);
    assert_eq!(child.wait().await.unwrap().code(), Some(143));
    assert_eq!(lines_of(&ground.root().join("log"), 2).await, ["up", "told"]);
    let mut again =
        redrive(&ground, &[], &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(lines_of(&ground.root().join("log"), 3).await[2], "up", "it is run again");
    tell(&again, Signal::INT);
    tell(&again, Signal::INT);
    assert_eq!(again.wait().await.unwrap().code(), Some(130));
}

#[tokio::test]
async fn the_same_command_does_not_run_twice_at_once() {
    let ground = Ground::new();
    let words = ["sh", "-c", "echo up >> log; until test -e go; do sleep 0.02; done; echo done >> log"];
    let start = || redrive(&ground, &[], &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = start();
    lines_of(&ground.root().join("log"), 1).await;
    let (code, _, err) = said(redrive(&ground, &[], &words)).await;
    assert_eq!(code, Some(75), "{err}");
    // Killed, it leaves its child behind; the next one waits for that before it runs another.
    first.kill().await.unwrap();
    let mut second = start();
    tokio::time::timeout(Duration::from_millis(300), second.wait()).await.expect_err("it waits");
    assert_eq!(lines_of(&ground.root().join("log"), 1).await, ["up"]);
    std::fs::write(ground.root().join("go"), "").unwrap();
    assert!(second.wait().await.unwrap().success());
    assert_eq!(lines_of(&ground.root().join("log"), 4).await, ["up", "done", "up", "done"]);
}
