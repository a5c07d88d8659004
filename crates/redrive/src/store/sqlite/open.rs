//! Opening a file: the lock, the settings that the promises rest on, and the schema.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::core::Core;
use super::{Fault, SqliteOptions};
use crate::error::{Error, ErrorKind, Result};

/// Older versions can corrupt a database in WAL mode when a write meets a checkpoint.
pub(super) const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// How long a transaction of the user's own may hold the file before we say that it does.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
/// Pages in the write-ahead log before they are copied into the database: 16 MiB.
const CHECKPOINT_PAGES: u32 = 4_000;
/// Its owner's alone, as everything that holds payloads: there may be passwords in them.
const MODE: u32 = 0o600;

/// The migrations, in order. Numbers are positions: the first is 1.
pub(super) const MIGRATIONS: [&str; 8] = [
    include_str!("../../../migrations/sqlite/0001_jobs.sql"),
    include_str!("../../../migrations/sqlite/0002_views.sql"),
    include_str!("../../../migrations/sqlite/0003_operations.sql"),
    include_str!("../../../migrations/sqlite/0004_workflows.sql"),
    include_str!("../../../migrations/sqlite/0005_kind.sql"),
    include_str!("../../../migrations/sqlite/0006_retries.sql"),
    include_str!("../../../migrations/sqlite/0007_author.sql"),
    include_str!("../../../migrations/sqlite/0008_retries.sql"),
];

/// Under its own name: the lock goes by the name of the file, so whoever comes by a link must find the same one.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
    let Ok(about) = std::fs::symlink_metadata(path) else { return Ok(path.to_owned()) };
    if !about.is_symlink() {
        return Ok(path.to_owned());
    }
    std::fs::canonicalize(path).map_err(|error| {
        Error::new(ErrorKind::ReadOnly, format!("{} is a link that leads nowhere: {error}", path.display()))
            .with_hint("name the file itself")
    })
}

/// SQLite writes its log beside the name it was given, so under two names there would be two logs of one file.
fn refuse_two_names(path: &Path) -> Result<()> {
    let names = std::fs::metadata(path).map_or(1, |about| if about.is_file() { about.nlink() } else { 1 });
    if names > 1 {
        let message = format!("{} has {names} names: it is linked to from elsewhere", path.display());
        return Err(Error::new(ErrorKind::Invalid, message)
            .with_hint("remove the other links, or make a copy of its own and use that: redrive backup"));
    }
    Ok(())
}

/// Where the lock of a file is.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Who has the file, in the words that it left in the lock; `None` if nobody has it.
pub(super) fn held_by(path: &Path) -> std::io::Result<Option<String>> {
    let path = resolve(path).unwrap_or_else(|_| path.to_owned());
    let mut file = match File::open(lock_path(&path)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match file.try_lock_shared() {
        // Given up at once: an engine that starts in this very moment would be refused.
        Ok(()) => file.unlock().map(|()| None),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder)?;
            Ok(Some(holder.trim().to_owned()))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes the file for this process. The lock goes with the process, however it ends.
pub(super) fn lock(path: &Path) -> Result<File> {
    refuse_two_names(path)?;
    let name = lock_path(path);
    let cannot = |why: String, hint: &str| {
        let message = format!("cannot make the lock file {}: {why}", name.display());
        Error::new(ErrorKind::ReadOnly, message).with_hint(hint)
    };
    // What it leads to would be written over.
    if name.is_symlink() {
        return Err(cannot("it is a link".into(), "remove that link"));
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(&name)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => cannot(
                "its folder is not there".into(),
                "make the folder first, or see whether the path is right",
            ),
            _ => cannot(
                error.to_string(),
                "let this user write the folder of the database, or choose another place for it",
            ),
        })?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            drop(file.read_to_string(&mut holder));
            // Nothing, if it has only just been taken.
            let holder = if holder.is_empty() { String::new() } else { format!(" ({})", holder.trim()) };
            let message = format!("{} is in use by another engine{holder}", path.display());
            return Err(Error::new(ErrorKind::InUse, message).with_hint(
                "stop that process, or use one engine for both: an Engine can be cloned and shared",
            ));
        }
        Err(TryLockError::Error(error)) => {
            return Err(Error::unavailable(format!("cannot lock {}: {error}", name.display())));
        }
    }
    if file.metadata().is_ok_and(|about| about.nlink() > 1) {
        return Err(cannot("it has another name, under which it is something else".into(), "remove it"));
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "process {}", std::process::id()));
    drop(written); // only for people who look
    Ok(file)
}

/// The connection that writes, on a database with our schema.
pub(super) fn writer(path: &Path, options: &SqliteOptions) -> Result<Connection> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        let message = format!("SQLite {} can corrupt a database in WAL mode", rusqlite::version());
        return Err(Error::new(ErrorKind::Invalid, message)
            .with_hint("build with rusqlite's `bundled` feature, or link SQLite 3.51.3 or newer"));
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if options.vfs.is_none() {
        make(path);
    }
    let mut conn = connect(path, flags, options)?;
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(broken)?;
    if mode != "wal" {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{} cannot be put into WAL mode", path.display()),
        )
        .with_hint("use a file on a local disk: memory and network file systems do not keep the promises"));
    }
    let synchronous = if options.relaxed { "NORMAL" } else { "FULL" };
    conn.pragma_update(None, "synchronous", synchronous).map_err(broken)?;
    conn.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(broken)?;
    conn.pragma_update(None, "cache_size", -16_384).map_err(broken)?;
    // What the log holds may never have been synced by whoever wrote it; building on it would be acknowledging it.
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(broken)?;
    refuse_half_a_page(&conn, path, options)?;
    migrate(&mut conn)?;
    Ok(conn)
}

/// Makes the file if it is not there: SQLite would let everybody read it. It gives the log the rights that the file has.
fn make(path: &Path) {
    if path != Path::new(":memory:") {
        let made = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
        drop(made); // SQLite opens it next, and says what is wrong
    }
}

/// SQLite reads the missing end of a last page as zeros. The log is empty here, so nothing will bring the end back.
fn refuse_half_a_page(conn: &Connection, path: &Path, options: &SqliteOptions) -> Result<()> {
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    let page: u32 = conn.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(broken)?;
    if options.vfs.is_none() && !bytes.is_multiple_of(u64::from(page)) {
        let message = format!("{} ends in the middle of a page: it was cut off", path.display());
        return Err(Error::new(ErrorKind::Corrupt, message)
            .with_hint("copy the file away, and restore a backup or salvage it with sqlite3 .recover"));
    }
    Ok(())
}

/// A connection that only reads.
pub(super) fn reader(path: &Path, options: &SqliteOptions) -> Result<Connection> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX, options)?;
    conn.pragma_update(None, "query_only", true).map_err(broken)?;
    conn.pragma_update(None, "cache_size", -4_096).map_err(broken)?;
    Ok(conn)
}

/// A connection that copies the file, which must be there.
pub(super) fn copier(path: &Path) -> Result<Connection> {
    connect(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        &SqliteOptions::default(),
    )
}

/// A connection for looking at a file of which nothing is known yet: it makes no file and writes none.
pub(super) fn onlooker(path: &Path, options: &SqliteOptions) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite keeps its log beside the file itself, by whatever link somebody comes.
    let path = &resolve(path)?;
    let as_it_is = || connect(path, flags, options);
    let is_open_elsewhere = ["-wal", "-journal"].iter().any(|tail| {
        let mut log = path.as_os_str().to_owned();
        log.push(tail);
        Path::new(&log).exists()
    });
    match unchanging(path) {
        // SQLite would make a log, which it cannot take away again.
        Some(url) if options.vfs.is_none() && !is_open_elsewhere => {
            connect(Path::new(&url), flags | OpenFlags::SQLITE_OPEN_URI, options).or_else(|_| as_it_is())
        }
        _ => as_it_is(),
    }
}

/// The URL under which SQLite reads a file that does not change.
fn unchanging(path: &Path) -> Option<String> {
    let whole = std::fs::canonicalize(path).ok()?;
    let escaped = whole.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Some(format!("file:{escaped}?immutable=1"))
}

fn connect(path: &Path, flags: OpenFlags, options: &SqliteOptions) -> Result<Connection> {
    let opened = match &options.vfs {
        None => Connection::open_with_flags(path, flags),
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.as_str()),
    };
    let conn = opened.map_err(|error| {
        let found = Fault::explain(&error);
        Error::new(found.kind(), format!("cannot open {}: {error}", path.display()))
            .with_hint(found.hint().unwrap_or_default())
    })?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(broken)?;
    conn.set_prepared_statement_cache_capacity(128);
    // A plan does not hang on what is bound: otherwise a statement is planned anew whenever that is another.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(broken)?;
    Ok(conn)
}

/// Brings the schema up to date: numbered steps, forward only, all in one transaction.
fn migrate(conn: &mut Connection) -> Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(broken)?;
    let known: bool = tx
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'redrive_meta'", [], |row| row.get(0))
        .map_err(broken)?;
    let version: usize = if known {
        tx.query_row("SELECT value FROM redrive_meta WHERE name = 'schema'", [], |row| {
            row.get::<_, String>(0)
        })
        .map_err(broken)?
        .parse()
        .map_err(|_| Error::new(ErrorKind::Corrupt, "the schema's version in redrive_meta is not a number"))?
    } else {
        0
    };
    if version > MIGRATIONS.len() {
        let message =
            format!("the database has schema {version}, and this version knows {}", MIGRATIONS.len());
        return Err(Error::new(ErrorKind::Newer, message).with_hint("use the newer version that wrote it"));
    }
    for migration in &MIGRATIONS[version..] {
        tx.execute_batch(migration).map_err(broken)?;
    }
    if version < MIGRATIONS.len() {
        let set = "INSERT INTO redrive_meta (name, value) VALUES ('schema', ?1) \
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        tx.execute(set, params![MIGRATIONS.len().to_string()]).map_err(broken)?;
    }
    tx.commit().map_err(broken)
}

fn broken(error: rusqlite::Error) -> Error {
    Fault::explain(&error)
}

impl Core {
    /// Nobody else can have the file, so whoever held jobs before is gone: what they ran need not wait for a lease. But
    /// for workers elsewhere, who may not even know that the process has changed.
    pub(super) fn release_holders(&mut self) -> Result<(), Fault> {
        self.conn.execute("UPDATE redrive_holders SET until = 0 WHERE NOT outlives", [])?;
        self.load_holders()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path, tail: &str) -> u32 {
        let mut name = path.as_os_str().to_owned();
        name.push(tail);
        std::fs::metadata(name).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn every_file_of_a_new_store_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        let _lock = lock(&path).unwrap();
        let conn = writer(&path, &SqliteOptions::default()).unwrap();
        conn.execute("INSERT INTO redrive_meta (name, value) VALUES ('a', 'b')", []).unwrap();
        assert_eq!(["", "-wal", "-shm", ".lock"].map(|tail| mode(&path, tail)), [0o600; 4]);
        drop(conn);
        let copy = folder.path().join("copy.db");
        super::super::backup::backup(&path, &copy).unwrap();
        assert_eq!(mode(&copy, ""), 0o600);
    }

    #[test]
    fn a_file_that_is_there_keeps_the_rights_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        File::create(&path).unwrap().set_permissions(std::fs::Permissions::from_mode(0o640)).unwrap();
        let conn = writer(&path, &SqliteOptions::default()).unwrap();
        conn.execute("INSERT INTO redrive_meta (name, value) VALUES ('a', 'b')", []).unwrap();
        assert_eq!(["", "-wal", "-shm"].map(|tail| mode(&path, tail)), [0o640; 3]);
    }

    #[test]
    fn a_file_of_an_earlier_version_is_brought_up_to_date_with_what_waits_in_it() {
        let mut conn = Connection::open_in_memory().unwrap();
        for migration in &MIGRATIONS[..4] {
            conn.execute_batch(migration).unwrap();
        }
        conn.execute_batch(
            "PRAGMA foreign_keys = off;
             INSERT INTO redrive_meta (name, value) VALUES ('schema', '4')
             ON CONFLICT (name) DO UPDATE SET value = excluded.value;
             INSERT INTO redrive_jobs (seq, id, kind, queue, priority, policy, created_at, checksum, payload)
             VALUES (1, 'a', 'mail', 1, 0, 1, 0, 0, '{}'), (2, 'b', 'http', 1, 0, 1, 0, 0, '{}');
             INSERT INTO redrive_live (seq, queue, priority, due_at) VALUES (1, 1, 0, 0), (2, 1, 0, 0);",
        )
        .unwrap();
        migrate(&mut conn).unwrap();
        let mut statement = conn.prepare("SELECT kind FROM redrive_live ORDER BY seq").unwrap();
        let kinds: Vec<String> =
            statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(kinds, ["mail", "http"]);
    }
}
