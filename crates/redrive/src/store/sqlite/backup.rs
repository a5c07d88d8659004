//! Copies of a file that is in use, and putting one back. A copy is whole: it holds everything that was acknowledged
//! before it was begun. One that was put back starts held, because what it holds may have been done since.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::open::{self, MIGRATIONS};
use super::{Fault, SqliteOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Schema;

/// Copies the store to a file that is not there yet. Others may use it meanwhile.
pub(super) fn backup(from: &Path, to: &Path) -> Result<()> {
    copy(from, to, |_| Ok(()))
}

/// Makes a store of a copy: it hands out nothing until somebody lets it go on.
pub(super) fn restore(from: &Path, to: &Path) -> Result<()> {
    let schema = schema(from)?;
    match schema.found {
        None => {
            let message = format!("{} is no copy of a store", from.display());
            return Err(
                Error::new(ErrorKind::Invalid, message).with_hint("make one with: redrive backup FILE")
            );
        }
        Some(found) if found > schema.known => {
            let message =
                format!("{} has schema {found}, and this version knows {}", from.display(), schema.known);
            return Err(
                Error::new(ErrorKind::Newer, message).with_hint("use the newer version that wrote it")
            );
        }
        Some(_) => {}
    }
    for name in [to.to_owned(), beside(to, "-wal"), beside(to, "-shm")] {
        refuse_what_is_there(&name)?;
    }
    copy(from, to, |conn| conn.execute_batch(include_str!("hold_all.sql")))
}

/// The schema of a file, without changing it.
pub(super) fn schema(path: &Path) -> Result<Schema> {
    let conn = open::onlooker(path, &SqliteOptions::default())?;
    let read = || -> rusqlite::Result<Option<String>> {
        let known = "SELECT count(*) FROM sqlite_schema WHERE name = 'redrive_meta'";
        if conn.query_row(known, [], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(None);
        }
        conn.query_row("SELECT value FROM redrive_meta WHERE name = 'schema'", [], |row| row.get(0)).map(Some)
    };
    let found = read().map_err(broken)?;
    let found = found.map(|text| text.parse()).transpose().map_err(|_| {
        Error::new(ErrorKind::Corrupt, "the schema's version in redrive_meta is not a number")
    })?;
    Ok(Schema { found, known: MIGRATIONS.len() })
}

/// Under another name until it is whole and on stable storage, so that nobody takes half of one for a copy.
fn copy(from: &Path, to: &Path, finish: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Result<()> {
    refuse_what_is_there(to)?;
    let part = beside(to, ".part");
    let cannot = |error: std::io::Error| {
        Error::new(ErrorKind::ReadOnly, format!("cannot write {}: {error}", part.display()))
            .with_hint("choose another place, or let this user write the folder")
    };
    // Its owner's alone, as everything that holds payloads: what somebody has put there goes first.
    drop(std::fs::remove_file(&part));
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    drop(made.map_err(cannot)?);
    let written = write_copy(from, &part, finish);
    if let Err(error) = written.and_then(|()| std::fs::rename(&part, to).map_err(cannot)) {
        drop(std::fs::remove_file(&part));
        return Err(error);
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(cannot)
}

fn write_copy(
    from: &Path,
    part: &Path,
    finish: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<()> {
    let source = open::copier(from)?;
    let name = part.to_str().ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("{} is not UTF-8", part.display()))
            .with_hint("choose another name")
    })?;
    source.execute("VACUUM INTO ?1", [name]).map_err(broken)?;
    let copy = open::copier(part)?;
    let check: String = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(broken)?;
    if check != "ok" {
        return Err(Error::new(ErrorKind::Corrupt, format!("the copy is damaged: {check}"))
            .with_hint("look at the store: redrive doctor; and at the disk"));
    }
    finish(&copy).map_err(broken)?;
    drop(copy);
    let synced = File::open(part).and_then(|file| file.sync_all());
    synced.map_err(|error| Error::unavailable(format!("the copy cannot be written: {error}")))
}

fn refuse_what_is_there(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Conflict, format!("{} is there already", path.display()))
        .with_hint("nothing is overwritten: choose another name, or move it away first"))
}

fn beside(path: &Path, tail: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(tail);
    name.into()
}

fn broken(error: rusqlite::Error) -> Error {
    Fault::explain(&error)
}
