//! Jobs in a SQLite file: one thread that writes with group commit, a few connections that read.
//!
//! An acknowledged job is on stable storage (`synchronous=FULL`). One engine holds a file at a time; your own
//! connections may read it, and may enqueue in their own transactions (`tx/rusqlite.rs`).

mod backup;
mod claim;
mod codec;
mod core;
mod doctor;
mod edges;
mod enqueue;
mod gating;
mod open;
mod operations;
mod read;
mod settle;
mod steer;
mod writer;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use self::claim::{Read, Taken};
use self::codec::Names;
use self::core::{Core, Running, SharedRunning};
use self::gating::SharedGates;
use self::writer::Writer;
use super::{
    Call, Claim, Claimed, Destinations, Ended, Enqueued, Expiry, Filter, Finding, Group, HolderId, JobDetail,
    Operations, PAGE_MAX, Page, Paged, QueueCounts, Renewal, Schema, Settled, Settlement, Store, by_itself,
};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{AttemptRecord, Job, JobId, Json};
use crate::machine::{Admission, Command};
use crate::queue::Retention;
use crate::stats::Activity;

pub(crate) use self::enqueue::enqueue_outside;

/// A SQLite file.
pub struct SqliteStore {
    // Declared before the lock, so that the writer has stopped before another process may begin.
    writer: Writer,
    readers: Arc<Readers>,
    running: SharedRunning,
    gates: SharedGates,
    changes: watch::Sender<u64>,
    path: PathBuf,
    _lock: Option<File>,
}

/// How a file is opened.
#[derive(Clone, Debug, Default)]
pub struct SqliteOptions {
    relaxed: bool,
    vfs: Option<String>,
}

impl SqliteOptions {
    /// `synchronous=NORMAL`: faster, and a power loss may take back jobs that were acknowledged.
    #[must_use]
    pub fn relaxed_durability(mut self) -> SqliteOptions {
        self.relaxed = true;
        self
    }

    /// Through this virtual file system of SQLite's, which must be registered. No lock file is taken.
    #[must_use]
    pub fn vfs(mut self, name: &str) -> SqliteOptions {
        self.vfs = Some(name.into());
        self
    }

    /// Opens or makes the file.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore> {
        let path = path.as_ref().to_owned();
        blocking(move || SqliteStore::open_with(&path, &self)).await
    }
}

impl SqliteStore {
    /// Opens or makes the file. Another engine on it is refused.
    pub async fn open(path: impl AsRef<Path>) -> Result<SqliteStore> {
        SqliteOptions::default().open(path).await
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks for whatever keeps an engine from its promises on this file, and says what to do about it. Refuses nothing
    /// and changes nothing: a file that would be refused, or is not there, is a finding. Reads the whole file once.
    pub async fn examine_at(path: impl AsRef<Path>) -> Result<Vec<Finding>> {
        let path = path.as_ref().to_owned();
        blocking(move || Ok(doctor::examine(&path, &doctor::Opened::Not))).await
    }

    /// The same for a file that is open here.
    pub async fn examine(&self) -> Result<Vec<Finding>> {
        let (path, opened) = (self.path.clone(), doctor::Opened::With(self.readers.options.clone()));
        blocking(move || Ok(doctor::examine(&path, &opened))).await
    }

    /// Copies the store to a file that is not there yet, also while it is used: everything that was acknowledged before is
    /// in the copy.
    pub async fn backup_at(path: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (path, to) = (path.as_ref().to_owned(), to.as_ref().to_owned());
        blocking(move || backup::backup(&path, &to)).await
    }

    /// Makes a store of a copy, where none is yet. It starts held: nothing runs until [`Engine::unhold`](crate::Engine::unhold).
    pub async fn restore_at(copy: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (copy, to) = (copy.as_ref().to_owned(), to.as_ref().to_owned());
        blocking(move || backup::restore(&copy, &to)).await
    }

    /// Which schema the file has, without changing it.
    pub async fn schema_at(path: impl AsRef<Path>) -> Result<Schema> {
        let path = path.as_ref().to_owned();
        blocking(move || backup::schema(&path)).await
    }

    /// Who has the file, as they say it themselves: `process 4711`.
    pub async fn holder_at(path: impl AsRef<Path>) -> Result<Option<String>> {
        let path = path.as_ref().to_owned();
        let unseen = |error| Error::unavailable(format!("cannot see who has the file: {error}"));
        blocking(move || open::held_by(&path).map_err(unseen)).await
    }

    /// Writes what is under way, closes the file and gives it free. Dropping the store does the same, and holds up its
    /// thread meanwhile.
    pub async fn close(self) -> Result<()> {
        blocking(move || {
            drop(self);
            Ok(())
        })
        .await
    }

    fn open_with(path: &Path, options: &SqliteOptions) -> Result<SqliteStore> {
        let path = &open::resolve(path)?;
        let lock = match options.vfs {
            Some(_) => None,
            None => Some(open::lock(path)?),
        };
        let running = Arc::new(RwLock::new(Running::default()));
        let (file, settings) = (path.clone(), options.clone());
        let open = Box::new(move || open::writer(&file, &settings));
        let gates = SharedGates::default();
        let mut core = Core::open(open, running.clone(), gates.clone()).map_err(Fault::into_error)?;
        core.release_holders().map_err(Fault::into_error)?;
        let changes = watch::Sender::new(0);
        let writer = Writer::start(core, changes.clone())?;
        let readers = Arc::new(Readers {
            path: path.to_owned(),
            options: options.clone(),
            looking: Arc::new(Semaphore::new(READERS_MAX)),
            finding: Arc::new(Semaphore::new(READERS_MAX)),
            idle: Mutex::default(),
        });
        Ok(SqliteStore { writer, readers, running, gates, changes, path: path.to_owned(), _lock: lock })
    }

    /// For whoever looks through many. They wait for each other: a crowd takes neither memory nor processors from what runs.
    async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &mut Names, &SharedRunning) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        self.read_at(Some(place(&self.readers.looking).await), work).await
    }

    /// For what is found at once, such as a job by its id. What runs asks for it too, so it has places of its own.
    async fn find<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &mut Names, &SharedRunning) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        self.read_at(Some(place(&self.readers.finding).await), work).await
    }

    /// For what runs, which waits for nobody.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &mut Names, &SharedRunning) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        self.read_at(None, work).await
    }

    async fn read_at<T: Send + 'static>(
        &self,
        place: Option<OwnedSemaphorePermit>,
        work: impl FnOnce(&Connection, &mut Names, &SharedRunning) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let (readers, running) = (self.readers.clone(), self.running.clone());
        blocking(move || {
            let (conn, mut names) = readers.take()?;
            let answer = work(&conn, &mut names, &running).map_err(Fault::into_error);
            readers.give_back(conn, names);
            // Not before: the next would find no connection, and open one more. Nor sooner for somebody who no longer waits.
            drop(place);
            answer
        })
        .await
    }
}

async fn place(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    places.clone().acquire_owned().await.expect("it is never closed")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let stopped = |_| Error::unavailable("the runtime is shutting down");
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

#[async_trait]
impl Store for SqliteStore {
    async fn enqueue(&self, jobs: Vec<Admission>, _now: Timestamp) -> Result<Vec<Enqueued>> {
        self.writer.call(move |core| core.enqueue(&jobs)).await
    }

    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.writer.call(move |core| core.enqueue_once(&call, &jobs, now)).await
    }

    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        let shelf = shelf.to_owned();
        self.find(move |conn, _, _| read::records(conn, &shelf)).await
    }

    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        let (shelf, name) = (shelf.to_owned(), name.to_owned());
        self.writer.call(move |core| core.keep(&shelf, &name, value.as_ref())).await
    }

    async fn register(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        let name = name.to_owned();
        self.writer.call(move |core| core.register(holder, &name, false, until)).await
    }

    async fn register_worker(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        let name = name.to_owned();
        self.writer.call(move |core| core.register(holder, &name, true, until)).await
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Claimed> {
        let Taken { jobs: places, next_due } = self.writer.call(move |core| core.claim(&claim, now)).await?;
        let next_due = by_itself(next_due);
        if places.is_empty() {
            return Ok(Claimed { next_due, ..Claimed::default() });
        }
        let Read { jobs, corrupt } =
            self.read(move |conn, names, running| claim::read(conn, names, running, &places)).await?;
        if !corrupt.is_empty() {
            self.writer.call(move |core| core.set_aside(&corrupt, now)).await?;
        }
        Ok(Claimed { jobs, next_due, ..Claimed::default() })
    }

    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>> {
        self.writer.call(move |core| core.settle(&settlements)).await
    }

    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal> {
        self.writer.call(move |core| core.renew(holder, until)).await
    }

    async fn expired(&self, now: Timestamp) -> Result<Expiry> {
        self.writer.call(move |core| core.expired(now)).await
    }

    async fn expire(
        &self,
        holder: HolderId,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>> {
        self.writer.call(move |core| core.expire(holder, &settlements, now)).await
    }

    fn operations(&self) -> &dyn Operations {
        self
    }

    fn destinations(&self) -> &dyn Destinations {
        self
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64> {
        let retention = *retention;
        self.writer.call(move |core| core.prune(&retention, now, limit)).await
    }

    async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        self.find(move |conn, names, running| read::get(conn, names, running, id)).await
    }

    async fn ended(&self, ids: &[JobId]) -> Result<Vec<Ended>> {
        let ids = ids.to_vec();
        self.read(move |conn, _, _| read::ended(conn, &ids)).await
    }

    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        let filter = filter.clone();
        let page = Page { limit: page.limit.clamp(1, PAGE_MAX), ..page };
        let is_found_at_once = !filter.ids.is_empty() || filter.parent.is_some();
        let list = move |conn: &Connection, names: &mut Names, running: &SharedRunning| {
            read::list(conn, names, running, &filter, page)
        };
        if is_found_at_once { self.find(list).await } else { self.look(list).await }
    }

    async fn last_failed(&self, jobs: &[Job]) -> Result<BTreeMap<JobId, AttemptRecord>> {
        let jobs: Vec<_> = jobs.iter().map(|job| (job.seq, job.id)).collect();
        self.look(move |conn, _, _| read::last_failed(conn, &jobs)).await
    }

    async fn counts(&self) -> Result<Vec<QueueCounts>> {
        self.writer.call(|core| Ok(core.counts())).await
    }

    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>> {
        self.look(move |conn, _, _| read::groups(conn, limit, now)).await
    }

    async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        self.look(move |conn, _, _| read::activity(conn, limit)).await
    }

    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>> {
        let to = to.clone();
        self.writer.call(move |core| core.apply(command, &to, limit, now)).await
    }

    async fn pause(&self, queue: &str, paused: bool) -> Result<()> {
        let queue = queue.to_owned();
        self.writer.call(move |core| core.pause(&queue, paused)).await
    }
}

/// Connections that read, made when needed.
struct Readers {
    path: PathBuf,
    options: SqliteOptions,
    looking: Arc<Semaphore>,
    finding: Arc<Semaphore>,
    idle: Mutex<Vec<(Connection, Names)>>,
}

/// So many may look at once, and so many find: some read for long, and the others go on meanwhile.
const READERS_MAX: usize = 4;
/// With them, and one for what runs.
const READERS_IDLE_MAX: usize = 2 * READERS_MAX + 1;

impl Readers {
    fn take(&self) -> Result<(Connection, Names)> {
        if let Some(reader) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(reader);
        }
        Ok((open::reader(&self.path, &self.options)?, Names::default()))
    }

    fn give_back(&self, conn: Connection, names: Names) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < READERS_IDLE_MAX {
            idle.push((conn, names));
        }
    }
}

/// Why something did not happen in the database.
enum Fault {
    /// It was refused, with nothing written.
    Refused(Error),
    /// The database failed, and with it the whole transaction.
    Broken(rusqlite::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Broken(error)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Refused(error) => error.fmt(f),
            Fault::Broken(error) => error.fmt(f),
        }
    }
}

impl Fault {
    fn into_error(self) -> Error {
        match self {
            Fault::Refused(error) => error,
            Fault::Broken(error) => Fault::explain(&error),
        }
    }

    /// Names the situation instead of the library.
    fn explain(error: &rusqlite::Error) -> Error {
        use rusqlite::ErrorCode;
        let (kind, hint) = match error.sqlite_error_code() {
            _ if is_foreign(error) => (
                ErrorKind::Corrupt,
                "the tables are not what Redrive wrote; if this is the engine's own file, restore a backup",
            ),
            Some(ErrorCode::DiskFull) => (
                ErrorKind::DiskFull,
                "make room on the disk; what was acknowledged is safe, and work goes on by itself",
            ),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                (ErrorKind::ReadOnly, "let this user write the file and its folder")
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
                ErrorKind::Corrupt,
                "stop, copy the file away, and restore a backup or salvage it with sqlite3 .recover",
            ),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (ErrorKind::Unavailable, "another program holds a write transaction on the file; end it")
            }
            _ => {
                (ErrorKind::Unavailable, "look at the disk and the system log; the same call may work later")
            }
        };
        Error::new(kind, format!("the SQLite database did not do it: {error}")).with_hint(hint)
    }
}

/// Whether the database answered, but not with what was written: our statements are fixed, so it is the data or the
/// schema that changed.
fn is_foreign(error: &rusqlite::Error) -> bool {
    use rusqlite::{Error, ErrorCode};
    matches!(
        error,
        Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..)
            | Error::Utf8Error(..)
            | Error::QueryReturnedNoRows
            | Error::SqlInputError { .. }
    ) || matches!(error.sqlite_error_code(), Some(ErrorCode::Unknown | ErrorCode::ConstraintViolation))
}
