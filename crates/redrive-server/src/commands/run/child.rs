//! The command as a process: in a group of its own, with our output and without input, and told what we are told.
//!
//! A lock that the child inherits tells whether it lives: when `redrive` is killed and starts again while its last child
//! still runs, it waits for that one instead of running a second beside it.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::out;

/// How long a child may take to end when it was told to.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether a child of an earlier process has ended: nobody tells us.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How a try ended.
pub(super) enum Ended {
    Code(u8),
    Signal(i32),
    NotStarted(std::io::Error),
}

impl Ended {
    /// As a shell would say it.
    pub(super) fn code(&self) -> Option<u8> {
        match self {
            Ended::Code(code) => Some(*code),
            Ended::Signal(number) => u8::try_from(128 + number).ok(),
            Ended::NotStarted(error) if error.kind() == std::io::ErrorKind::NotFound => Some(127),
            Ended::NotStarted(_) => Some(126),
        }
    }

    fn of(status: ExitStatus) -> Ended {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code(u8::try_from(code).unwrap_or(1)),
            (None, number) => Ended::Signal(number.unwrap_or_default()),
        }
    }
}

/// Whether a child of an earlier process is still there.
pub(super) struct Leftover {
    path: PathBuf,
    looked: AtomicBool,
}

impl Leftover {
    pub(super) fn beside(store: &Path) -> Leftover {
        Leftover { path: store.with_extension("child"), looked: AtomicBool::new(false) }
    }

    /// Returns when it has ended; at once after the first time.
    async fn wait(&self) -> std::io::Result<()> {
        if self.looked.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            if !said {
                out::note("redrive: waits for the try that an earlier run has left running");
                said = true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// A lock for the next child, on a file of its own: what the last one has left in the background must not stop it.
    fn lock(&self) -> std::io::Result<File> {
        drop(std::fs::remove_file(&self.path));
        let file = File::create_new(&self.path)?;
        file.lock()?;
        Ok(file)
    }
}

/// Starts the command and waits for its end. What comes through `stopping` is passed on.
pub(super) async fn run(
    command: &[OsString],
    variables: &[(&str, String)],
    leftover: &Leftover,
    mut stopping: watch::Receiver<Option<Signal>>,
) -> Ended {
    let waited = tokio::select! { biased;
        waited = leftover.wait() => waited,
        _ = stopping.wait_for(Option::is_some) => Err(std::io::ErrorKind::Interrupted.into()),
    };
    let started = waited.and_then(|()| start(command, variables, leftover));
    let mut group = match started {
        Ok(group) => group,
        Err(error) => return Ended::NotStarted(error),
    };
    let mut limit = Duration::MAX;
    loop {
        tokio::select! { biased;
            status = group.child.wait() => {
                group.has_ended = true;
                return status.map_or_else(Ended::NotStarted, Ended::of);
            }
            Ok(()) = stopping.changed() => {
                let signal = *stopping.borrow_and_update();
                // The second time it is not asked any more.
                group.tell(signal.filter(|_| limit == Duration::MAX).unwrap_or(Signal::KILL));
                limit = GRACE;
            }
            () = tokio::time::sleep(limit) => {
                group.tell(Signal::KILL);
            }
        }
    }
}

/// A program and all it starts. Dropped before its end, all of it is killed; what it leaves behind by itself is its own.
struct Group {
    child: Child,
    id: Option<Pid>,
    has_ended: bool,
}

impl Group {
    fn tell(&self, signal: Signal) {
        // Whoever is gone need not be told.
        if let Some(id) = self.id {
            let _ = kill_process_group(id, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.has_ended {
            self.tell(Signal::KILL);
        }
    }
}

/// No input: a try that comes again cannot read what the first has read. A group of its own, so that what is sent to it
/// reaches all that it has started.
fn start(command: &[OsString], variables: &[(&str, String)], leftover: &Leftover) -> std::io::Result<Group> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let lock = leftover.lock()?;
    rustix::io::fcntl_setfd(&lock, FdFlags::empty())?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    variables.iter().for_each(|(name, value)| {
        command.env(name, value);
    });
    let child = command.spawn()?;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    Ok(Group { child, id, has_ended: false })
}
