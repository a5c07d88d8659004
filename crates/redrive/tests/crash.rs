//! Processes that are killed at any moment, and ledgers kept outside of them: nothing acknowledged is lost, nothing is
//! completed twice, and every repeated execution has a dead process to explain it.
//!
//! `REDRIVE_KILLS` says how often (default 300, in total). The child is this same program; see `crash/child.rs`.

#![expect(clippy::disallowed_methods, reason = "real processes are killed at real times")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "crash/child.rs"]
mod child;
#[path = "crash/enqueueing.rs"]
mod enqueueing;
#[path = "crash/executing.rs"]
mod executing;
#[expect(dead_code, reason = "lost wake-ups are in never_again.rs")]
#[path = "support/gate.rs"]
mod gate;
#[path = "crash/leases.rs"]
mod leases;
#[path = "crash/shutdown.rs"]
mod shutdown;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use redrive::Rng;
use rusqlite::Connection;

#[test]
#[ignore = "the process that the others start and kill"]
fn the_child() {
    if std::env::var(child::TASK).is_ok() {
        child::main();
    }
}

/// How many kills a part of the tests has to make.
fn kills(share_of_two: usize) -> usize {
    let all = std::env::var("REDRIVE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    (all * share_of_two).div_ceil(2)
}

/// Half of the databases are in memory, where there are more kills in a second, and half on a disk.
fn folder(round: usize) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if round.is_multiple_of(2) && memory.is_dir() {
        return tempfile::tempdir_in(memory).unwrap();
    }
    tempfile::tempdir().unwrap()
}

/// A child at work.
struct Victim {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Victim {
    /// Starts a child, and returns when it has begun to work.
    fn start(task: &str, folder: &Path) -> Victim {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["the_child", "--exact", "--ignored", "--nocapture"])
            .env(child::TASK, task)
            .env(child::FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Without a line's end it was not said.
            let mut output = output;
            let mut line = String::new();
            while output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
                if send.send(line.trim_end().to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let victim = Victim { process, lines };
        // Whatever the test harness of the child prints comes before it.
        while let Ok(line) = victim.lines.recv() {
            if line.ends_with("working") {
                break;
            }
        }
        victim
    }

    /// Lets it work for so long, kills it, and answers what it had said. False if it was finished before.
    fn kill_after(mut self, work: Duration) -> (bool, Vec<String>) {
        std::thread::sleep(work);
        self.process.kill().unwrap();
        let killed = !self.process.wait().unwrap().success();
        (killed, self.lines.iter().collect())
    }

    /// Lets it work until it ends by itself; whether it ended well.
    fn wait(mut self) -> bool {
        self.process.wait().unwrap().success()
    }

    fn id(&self) -> u32 {
        self.process.id()
    }
}

/// 1 to 40 ms.
fn moment(rng: &mut Rng) -> Duration {
    Duration::from_micros(1_000 + rng.up_to(39_000))
}

/// What must hold of every file after every kill.
fn sound(folder: &Path) -> Connection {
    let db = Connection::open(child::database(folder)).unwrap();
    let verdict: String = db.query_row("PRAGMA quick_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let nothing = |what: &str, sql: &str| {
        let count: i64 = db.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{what}");
    };
    nothing("jobs that are not in exactly one of live and done", include_str!("support/astray.sql"));
    nothing("keys that are not those of live jobs", include_str!("support/keys_astray.sql"));
    db
}
