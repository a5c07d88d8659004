//! `redrive get` killed in the middle, again and again, on a server that cuts, refuses and stalls.

use std::process::Stdio;
use std::time::Duration;

use crate::Ground;
use crate::command_line::get;
use crate::flaky::{Flaky, How, content, sent_again};

/// What may be sent a second time after a break: what was in our hands and in the kernel's.
const AGAIN_MAX: u64 = 1 << 20;
/// What a process may use, whatever it downloads.
const MEMORY_KB_MAX: u64 = 64 << 10;

/// A number from the environment, for the long form of this test: see scripts/soak.sh.
#[expect(clippy::disallowed_methods, reason = "how long a test runs is said from outside")]
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The most memory that a process has had, in kilobytes; nothing if it is gone.
fn peak_kb(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// S1-01, S1-32, and what the document defers: nothing is lost or fetched again, whenever the process dies.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_point_the_same_command_goes_on_where_it_was() {
    let files = number("REDRIVE_TEST_GET_FILES", 8);
    let kills = number("REDRIVE_TEST_GET_KILLS", 4);
    let largest = number("REDRIVE_TEST_GET_MB", 3);
    let server = Flaky::paced(Duration::from_millis(2), |n, _| match n % 9 {
        2 | 8 => How::Cut(1_200_000),
        5 => How::Cut(300_000),
        6 if n % 18 == 6 => How::Say(503, "retry-after: 1\r\n"),
        7 if n % 27 == 7 => How::Stall(700_000),
        _ => How::Well,
    })
    .await;
    let ground = Ground::new();
    let length = |n: u64| ((1 + n % largest) << 20) as usize + 4_321;
    let paths: Vec<String> = (0..files).map(|n| format!("/{n}.bin")).collect();
    for (path, n) in paths.iter().zip(0..) {
        server.put(path, content(n, length(n)), "\"1\"");
    }
    let urls: Vec<String> = paths.iter().map(|path| server.url(path)).collect();
    std::fs::write(ground.root().join("list"), urls.join("\n")).unwrap();
    let words = ["-i", "list", "-j", "4", "-r", "10", "--stall", "1s"];
    let all: u64 = (0..files).map(|n| length(n) as u64).sum();
    for kill in 1..=kills {
        let mut child = get(&ground, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let part = all / (kills + 1);
        let reached = server.wait_for_bytes((kill * part).max(server.total() + part / 4));
        tokio::select! {
            () = reached => {}
            ended = child.wait() => assert!(ended.unwrap().success()),
        }
        if let Some(id) = child.id() {
            let peak = peak_kb(id).unwrap_or_default();
            assert!(peak <= MEMORY_KB_MAX, "{peak} kB");
        }
        child.kill().await.unwrap();
    }
    let output = get(&ground, &words).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for (path, n) in paths.iter().zip(0..) {
        assert_eq!(std::fs::read(ground.path(&path[1..])).unwrap(), content(n, length(n)), "{path}");
        let again = sent_again(&server.sent_of(path));
        assert!(again.iter().all(|bytes| *bytes <= AGAIN_MAX), "{path} was sent again: {again:?}");
    }
    assert_eq!(ground.names().len() as u64, files, "{:?}", ground.names());
}
