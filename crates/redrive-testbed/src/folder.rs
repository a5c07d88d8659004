//! A folder with a server in it, and the watchdog that ends both. Not: which server.
//!
//! The watchdog is a shell that reads from a pipe whose other end only we hold. We drop it, exit, or are killed: the
//! pipe closes, and it cleans up. `PR_SET_PDEATHSIG` would do less: it follows the thread that started the server,
//! which in a test harness ends long before the process, and it removes no folder.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often a file or a port is looked at that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Ports below those the system gives to outgoing connections. A server that restarts would otherwise find its port
/// taken by somebody's connection, and a client that tries again and again would in the end connect to itself.
const PORTS: std::ops::Range<u32> = 15_000..32_000;

pub(crate) struct Folder {
    path: PathBuf,
    /// Whom programs run as, if not as ourselves: PostgreSQL and PgBouncer refuse to run as root.
    user: Option<User>,
    watchdog: Option<Child>,
}

#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl Folder {
    /// A new folder. At its end the shell runs `farewell`, with the folder's path as `$1`, and removes the folder.
    pub(crate) fn new(farewell: &str) -> Folder {
        let path = tempfile::Builder::new()
            .prefix("redrive-testbed-")
            .tempdir()
            .unwrap_or_else(|why| panic!("no folder for a server in the temporary directory: {why}"))
            .keep();
        let ours = fs::metadata(&path).expect("the folder was made a moment ago").uid();
        let user = (ours == 0).then(postgres_user);
        if let Some(user) = user {
            chown(&path, Some(user.uid), Some(user.gid)).expect("root may give a folder away");
        }
        let mut folder = Folder { path, user, watchdog: None };
        // A process whose server was just killed may still write here for a moment, hence the second removal.
        let script = format!("read -r _\n{farewell}\ncd /\nrm -rf \"$1\" || {{ sleep 1; rm -rf \"$1\"; }}");
        let mut shell = folder.command("sh");
        shell.arg("-c").arg(script).arg("watchdog").arg(&folder.path).stdin(Stdio::piped());
        folder.watchdog = Some(shell.spawn().expect("every unix has sh"));
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A program in this folder, silent, as the right user. It has a process group of its own: a signal to ours, as
    /// from a terminal or a test runner that lost patience, must reach neither the server nor its watchdog.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.path).env("HOME", &self.path).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    /// Says farewell and removes the folder, now.
    pub(crate) fn end(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take() {
            // Waiting closes the pipe first. There is nobody to tell if it fails.
            let _ = watchdog.wait();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs the command to its end and returns what it printed; panics with what it complained about.
pub(crate) fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap_or_else(|why| panic!("{command:?} cannot be started: {why}"));
    assert!(status.success(), "{command:?} failed ({status}): {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).trim().to_owned()
}

/// A loopback port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    // Test processes start together and have neighbouring ids: they should not all try the same ports.
    let first = id().wrapping_mul(7_919);
    (0..count)
        .map(|_| PORTS.start + first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % count)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("not all of seventeen thousand ports are taken")
}

/// Looks until there is something to return, or `limit` is over.
#[expect(clippy::disallowed_methods, reason = "waits for other programs, which live in real time")]
pub(crate) fn look_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let found = look();
        if found.is_some() || start.elapsed() > limit {
            return found;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn postgres_user() -> User {
    let ask = |flag: &str| {
        let answer = run(Command::new("id").args([flag, "postgres"]).stdin(Stdio::null()));
        answer.parse().unwrap_or_else(|_| panic!("`id {flag} postgres` answered {answer:?}"))
    };
    User { uid: ask("-u"), gid: ask("-g") }
}
