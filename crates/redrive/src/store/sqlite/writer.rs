//! One thread writes. While one transaction is on its way to the disk, what comes in collects, and goes together in
//! the next one, with whatever comes before that is committed: a batch forms by itself, without a timer.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::Fault;
use super::core::Core;
use crate::error::{Error, Result};

/// How many calls one transaction takes: enough to hide the disk, few enough to answer soon.
const CALLS_MAX: usize = 512;
/// How often an idle store looks whether someone else has written to the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The way to the writer thread. Dropping it waits until the thread has written what it was given and has closed the
/// file, so that whoever opens the file next is alone with it.
pub(super) struct Writer {
    calls: Option<Sender<Box<dyn Call>>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, it said so itself.
            drop(thread.join());
        }
    }
}

impl Writer {
    pub(super) fn start(core: Core, changes: watch::Sender<u64>) -> Result<Writer> {
        let (calls, incoming) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("redrive-sqlite".into())
            .spawn(move || run(core, &incoming, &changes))
            .map_err(|error| Error::unavailable("cannot start the thread that writes").with_source(error))?;
        Ok(Writer { calls: Some(calls), thread: Some(thread) })
    }

    /// Does something in the next transaction, and answers when that is on stable storage.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Core) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let call = Work { work, answer: None, reply };
        let calls = self.calls.as_ref().ok_or_else(stopped)?;
        calls.send(Box::new(call)).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl Writer {
    /// Does something in the next transaction, and nobody waits for it.
    pub(super) fn send(&self, work: impl FnMut(&mut Core) -> Result<(), Fault> + Send + 'static) {
        let (reply, _) = oneshot::channel();
        if let Some(calls) = &self.calls {
            // A store that is closing has nothing to be told.
            drop(calls.send(Box::new(Work { work, answer: None, reply })));
        }
    }
}

fn stopped() -> Error {
    Error::unavailable("the thread that writes the database has stopped")
        .with_hint("its last message in the log says why; open the store again")
}

fn disk_failed() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
    rusqlite::Error::SqliteFailure(
        code,
        Some("the disk has failed and the file cannot be opened again yet".into()),
    )
}

type Incoming = Receiver<Box<dyn Call>>;

trait Call: Send {
    /// Does the work inside the open transaction. A refusal is an answer; only a broken database is an error.
    fn run(&mut self, core: &mut Core) -> Result<(), rusqlite::Error>;
    /// The transaction was committed, or failed with this.
    fn finish(self: Box<Self>, outcome: Result<()>);
}

struct Work<T, F> {
    work: F,
    answer: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Core) -> Result<T, Fault> + Send> Call for Work<T, F> {
    fn run(&mut self, core: &mut Core) -> Result<(), rusqlite::Error> {
        self.answer = Some(match (self.work)(core) {
            Ok(answer) => Ok(answer),
            Err(Fault::Refused(error)) => Err(error),
            Err(Fault::Broken(error)) => return Err(error),
        });
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<()>) {
        let Work { answer, reply, .. } = *self;
        let answer = outcome.and_then(|()| answer.unwrap_or_else(|| Err(stopped())));
        // A caller that went away does not need its answer.
        drop(reply.send(answer));
    }
}

fn run(mut core: Core, incoming: &Incoming, changes: &watch::Sender<u64>) {
    loop {
        let first = match incoming.recv_timeout(LOOK_EVERY) {
            Ok(call) => Some(call),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if core.data_version() != core.seen {
            // Someone else has written: jobs from a transaction of the user's own.
            if let Err(error) = core.reload() {
                tracing::error!(%error, "Cannot read the database again after an outside change");
            }
        }
        if let Some(first) = first {
            transact(&mut core, first, Some(incoming));
        }
        if std::mem::take(&mut core.woke) {
            changes.send_modify(|version| *version += 1);
        }
    }
    core.close();
}

/// All of them in one transaction, with what comes in meanwhile; if that fails, each in its own, so that one cannot fail
/// its neighbours.
fn transact(core: &mut Core, first: Box<dyn Call>, incoming: Option<&Incoming>) {
    let mut calls = vec![first];
    match core.transaction(&mut calls, incoming) {
        Ok(()) => calls.into_iter().for_each(|call| call.finish(Ok(()))),
        // When the disk has failed, it is not known what of it happened, so nothing is done twice.
        Err(error) if calls.len() == 1 || core.failed => {
            calls.into_iter().for_each(|call| call.finish(Err(Fault::explain(&error))));
        }
        Err(_) => calls.into_iter().for_each(|call| transact(core, call, None)),
    }
}

impl Core {
    fn transaction(
        &mut self,
        calls: &mut Vec<Box<dyn Call>>,
        incoming: Option<&Incoming>,
    ) -> Result<(), rusqlite::Error> {
        if self.failed && self.recover().is_err() {
            return Err(disk_failed());
        }
        let outcome = self.try_transaction(calls, incoming);
        if let Err(error) = &outcome {
            // After a failed write or sync the system may hold pages for clean that never reached the disk. Only
            // opening the file again, which copies the log into the database and syncs that, finds the truth.
            self.failed = error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure);
            // Nothing of it happened: neither on disk nor in memory.
            if !self.conn.is_autocommit()
                && let Err(error) = self.conn.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "Cannot roll back");
            }
            if let Err(error) = self.reload() {
                tracing::error!(%error, "Cannot read the database again after a failed transaction");
            }
        } else if std::mem::take(&mut self.damaged)
            && let Err(error) = self.reload()
        {
            tracing::error!(%error, "Cannot read the database again after setting a job aside");
        }
        outcome
    }

    fn recover(&mut self) -> Result<()> {
        self.conn = (self.open_again)()?;
        self.reload().map_err(Fault::into_error)?;
        self.failed = false;
        tracing::warn!("The database was opened again after the disk had failed");
        Ok(())
    }

    fn try_transaction(
        &mut self,
        calls: &mut Vec<Box<dyn Call>>,
        incoming: Option<&Incoming>,
    ) -> Result<(), rusqlite::Error> {
        // Taking the write lock at once: a read that is upgraded later can fail as busy without waiting.
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut done = 0;
        while let Some(call) = calls.get_mut(done) {
            call.run(self)?;
            done += 1;
            // What ends and what begins mostly come together, and need not wait for the disk one after the other.
            if done < CALLS_MAX {
                calls.extend(incoming.and_then(|incoming| incoming.try_recv().ok()));
            }
        }
        match self.before_commit() {
            Ok(()) => {}
            Err(Fault::Broken(error)) => return Err(error),
            Err(Fault::Refused(_)) => unreachable!("counters cannot be refused"),
        }
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Changes when another connection has committed.
    pub(super) fn data_version(&self) -> i64 {
        self.conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut s| s.query_row([], |row| row.get(0)))
            .unwrap_or(0)
    }

    fn close(self) {
        // Leaves one file behind instead of three; a failure costs nothing but that, so nobody is waited for.
        drop(self.conn.busy_timeout(Duration::ZERO));
        drop(self.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)"));
    }
}
