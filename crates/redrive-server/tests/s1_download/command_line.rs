//! `redrive get` as a person or a script has it: options, output, exit codes.

use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::process::Command;

use crate::Ground;
use crate::flaky::{Flaky, How, content};
use crate::target::{Target, answer};

/// The binary, with nothing of the caller's environment and with loopback allowed.
pub(crate) fn get(ground: &Ground, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command
        .args(["get", "--allow-egress", "127.0.0.0/8", "-o"])
        .arg(ground.folder())
        .args(words)
        .current_dir(ground.root())
        .env_clear()
        .env("HOME", ground.root())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn said(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

async fn server() -> Flaky {
    let server = Flaky::start(|_, _| How::Well).await;
    server.put("/a.bin", content(1, 70_000), "\"1\"");
    server.put("/b.bin", content(2, 10), "\"1\"");
    server
}

/// S1-27, S1-30.
#[tokio::test]
async fn max_retries_is_from_nothing_to_ten_and_three_unless_told() {
    let ground = Ground::new();
    for wrong in ["11", "-1", "many"] {
        let (code, _, err) = said(get(&ground, &["http://127.0.0.1:9/x", "-r", wrong])).await;
        assert_eq!(code, Some(2), "{wrong}: {err}");
    }
    let (_, help, _) = said(get(&ground, &["--help"])).await;
    assert!(help.contains("-r, --max-retries <N>") && help.contains("[default: 3]"), "{help}");
    let server = Flaky::start(|_, _| How::Say(503, "")).await;
    let (code, out, _) = said(get(&ground, &[&server.url("/x"), "--max-retries", "0"])).await;
    assert_eq!((code, server.sent().len()), (Some(1), 1));
    assert_eq!(out, "0 completed, 1 failed, 0 retried (0 B received)\n");
    let (code, out, err) = said(get(&ground, &[&server.url("/x"), "-r1"])).await;
    assert_eq!((code, server.sent().len()), (Some(1), 3), "{out}{err}");
    assert!(err.contains("answered 503; retry 1 in 1"), "{err}");
}

/// S1-29: completed, failed and retried at the end.
#[tokio::test]
async fn files_are_fetched_from_arguments_and_from_a_list_with_checksums() {
    let (ground, server) = (Ground::new(), server().await);
    let sum = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let list = format!("# two files\n{}\n\n{} {sum}\n", server.url("/a.bin"), server.url("/b.bin"));
    std::fs::write(ground.root().join("list"), list).unwrap();
    let (code, out, err) = said(get(&ground, &["-i", "list", "-j", "2", "-r", "0"])).await;
    assert_eq!(code, Some(1), "{err}");
    assert!(out.contains("done a.bin  68.4 kB") && out.contains("1 completed, 1 failed"), "{out}");
    assert!(err.contains("failed b.bin: its SHA-256 is"), "{err}");
    assert_eq!(std::fs::read(ground.path("a.bin")).unwrap(), content(1, 70_000));
    let (code, out, _) = said(get(&ground, &[&server.url("/b.bin"), &server.url("/a.bin")])).await;
    assert_eq!(code, Some(0));
    assert!(out.contains("a.bin is there already") && out.contains("1 completed, 0 failed"), "{out}");
}

#[tokio::test]
async fn a_program_reads_one_object_a_line_and_a_summary() {
    let (ground, server) = (Ground::new(), server().await);
    let (code, out, _) = said(get(&ground, &["--json", &server.url("/a.bin"), &server.url("/gone")])).await;
    assert_eq!(code, Some(1));
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let phases = |name: &str| -> Vec<&str> {
        let of_file = lines.iter().filter(|line| line["name"] == name);
        of_file.map(|line| line["phase"].as_str().unwrap()).collect()
    };
    assert_eq!(phases("a.bin").last(), Some(&"completed"));
    assert_eq!(phases("gone").last(), Some(&"failed"));
    let summary = &lines.last().unwrap()["summary"];
    assert_eq!((&summary["completed"], &summary["failed"]), (&1.into(), &1.into()));
}

#[tokio::test]
async fn what_was_mistyped_is_told_with_what_to_write() {
    let ground = Ground::new();
    std::fs::write(ground.root().join("list"), "https://a.example/1\n\na.example/2\n").unwrap();
    let plain = |words: &[&str]| {
        let mut command = get(&ground, &[]);
        command.args(words);
        command
    };
    for (words, said_so) in [
        (vec!["a.example/x.iso"], "did you mean https://a.example/x.iso?"),
        (vec!["-i", "list"], "line 3 of the list: "),
        (vec!["htp://a.example/x"], "write http or https"),
        (vec!["https://a.example/x", "--header", "nonsense"], "write NAME: VALUE"),
        (vec!["https://a.example/x", "--checksum", "md5:1"], "write sha256: and 64 hexadecimal digits"),
    ] {
        let (code, _, err) = said(plain(&words)).await;
        assert!(code == Some(2) && err.contains(said_so), "{words:?}: {err}");
    }
    let (code, _, err) = said(plain(&["http://10.0.0.1/x"])).await;
    assert!(code == Some(1) && err.contains("--allow-egress"), "{err}");
    let server = server().await;
    std::fs::write(ground.path("b.bin"), "mine").unwrap();
    let (code, out, err) = said(plain(&[&server.url("/b.bin"), "--json"])).await;
    assert!(code == Some(1) && err.contains("--overwrite"), "{err}");
    assert!(out.contains(r#""code":"FILE_EXISTS""#), "{out}");
}

#[tokio::test]
async fn headers_are_sent_as_they_are_written_for_curl() {
    let (ground, target) = (Ground::new(), Target::start(|_, _| answer(200, "", "x")).await);
    let words = ["--header", "Authorization: Bearer a=b", "--header", "x-one=1", &target.url("/a")];
    assert_eq!(said(get(&ground, &words)).await.0, Some(0));
    let asked = target.asked().remove(0);
    assert_eq!(
        (asked.headers["authorization"].as_str(), asked.headers["x-one"].as_str()),
        ("Bearer a=b", "1")
    );
}

/// S1-05, S1-33, S1-34, S1-35, S1-38: every retry is told with its reason, its number and its delay.
#[tokio::test]
async fn the_log_tells_each_retry_and_why_there_is_no_other() {
    let (ground, server) =
        (Ground::new(), Flaky::start(|n, _| How::Say(if n == 0 { 503 } else { 404 }, "")).await);
    let url = server.url("/paper.pdf");
    let (_, _, err) = said(get(&ground, &[&url, "--log", "debug"])).await;
    let line =
        |says: &str| err.lines().find(|line| line.contains(says)).unwrap_or_else(|| panic!("{says}: {err}"));
    let retry = line(&format!("Retrying download (attempt 1/3): {url}"));
    assert!(retry.contains(" INFO ") && retry.contains(&format!("url={url}")), "{retry}");
    assert!(retry.contains(" attempt=1 ") && retry.contains("answered 503"), "{retry}");
    let delay: u64 = retry.split("delay_ms=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((1_000..=1_501).contains(&delay), "{delay}");
    let waiting = line(" before retry url=");
    assert!(waiting.contains("DEBUG") && waiting.contains("Waiting 1."), "{waiting}");
    let ended = line("Not retrying download");
    assert!(
        ended.contains("DEBUG") && ended.contains("reason=\"permanent\"") && ended.contains("404"),
        "{ended}"
    );
}

#[tokio::test]
async fn private_addresses_and_nonsense_are_refused() {
    let (ground, server) = (Ground::new(), server().await);
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command
        .args(["get", &server.url("/a.bin")])
        .current_dir(ground.root())
        .env_clear()
        .env("HOME", ground.root());
    let (code, _, err) = said(command).await;
    assert_eq!((code, server.sent().len()), (Some(1), 0));
    assert!(err.contains("not on the open internet (loopback)"), "{err}");
    for words in [
        vec!["ftp://a.example/x"],
        vec!["http://a.example/x", "http://a.example/y", "--name", "z"],
        vec!["http://a.example/x", "--checksum", "md5:1"],
        vec!["http://a.example/x", "--header", "Host=b"],
        vec!["http://a.example/x", "--limit-rate", "fast"],
        vec![],
    ] {
        assert_eq!(said(get(&ground, &words)).await.0, Some(2), "{words:?}");
    }
}

#[tokio::test]
async fn headers_are_sent_and_a_name_is_kept() {
    let server = Flaky::start(|_, asked| match asked.headers.get("x-key").map(String::as_str) {
        Some("secret") if asked.headers["accept-encoding"] == "identity" => How::Well,
        _ => How::Say(403, ""),
    })
    .await;
    server.put("/x", content(1, 10), "\"1\"");
    let ground = Ground::new();
    let url = server.url("/x");
    assert_eq!(said(get(&ground, &[&url])).await.0, Some(1));
    let (code, out, err) = said(get(&ground, &[&url, "--header", "x-key=secret", "--name", "../mine"])).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(ground.names().first().map(String::as_str), Some("mine"));
}

/// An interruption costs nothing, and two do not work in one folder.
#[tokio::test]
async fn an_interrupted_get_says_so_and_another_in_its_folder_is_told_to_wait() {
    let server = Flaky::paced(std::time::Duration::from_millis(5), |_, _| How::Well).await;
    server.put("/a.bin", content(1, 20 << 20), "\"1\"");
    server.put("/b.bin", content(2, 1_000), "\"1\"");
    let ground = Ground::new();
    let url = server.url("/a.bin");
    let child = get(&ground, &[&url]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = i32::try_from(child.id().unwrap()).unwrap();
    server.wait_for_bytes(1 << 20).await;
    let (code, _, err) = said(get(&ground, &[&server.url("/b.bin")])).await;
    assert_eq!(code, Some(75), "{err}");
    // Another folder is another matter.
    let elsewhere = Ground::new();
    assert_eq!(said(get(&elsewhere, &[&server.url("/b.bin")])).await.0, Some(0));
    let pid = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(130));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("the same command goes on where this one was"), "{err}");
    let (code, _, err) = said(get(&ground, &[&url])).await;
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(std::fs::read(ground.path("a.bin")).unwrap(), content(1, 20 << 20));
}
