//! What stands between a file and the promises: found by reading only, and said with what to do about it.
//!
//! An examination refuses nothing and changes nothing, so that it can be had where an engine would not open.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::operations::is_held;
use super::{Fault, SqliteOptions, open};
use crate::clock::Clock;
use crate::store::finding::{Finding, Severity, by_limit, hold, how_big, how_long, resume};

/// Four times what is left after a checkpoint: somebody keeps it from being copied into the file.
const LOG_BYTES: i64 = 64 << 20;
/// Less free room than this is not worth giving back.
const FREE_BYTES: i64 = 64 << 20;
/// How long jobs may be late.
const LATE: [(Duration, Severity); 2] =
    [(Duration::from_secs(60), Severity::Warning), (Duration::from_secs(5), Severity::Notice)];

/// What others may do, in the mode of a file or a folder.
const OTHERS_ENTER: u32 = 0o001;
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_USE: u32 = 0o006;
/// In a folder with this, nobody can move the files of others.
const STICKY: u32 = 0o1000;

/// How the file that is examined was opened.
pub(super) enum Opened {
    /// By nobody here: it is not known how an engine would.
    Not,
    /// By an engine of this process.
    With(SqliteOptions),
}

/// Looks at everything.
pub(super) fn examine(path: &Path, opened: &Opened) -> Vec<Finding> {
    let mut findings = vec![version()];
    let options = match opened {
        Opened::Not => SqliteOptions::default(),
        Opened::With(options) => options.clone(),
    };
    // SQLite's own answer for both is that it cannot open the file.
    if !path.is_file() && options.vfs.is_none() {
        findings.push(Finding::new(
            "file",
            Severity::Danger,
            format!("There is no file {}.", path.display()),
            "see whether the path is right; the first engine that opens it makes it",
        ));
        return findings;
    }
    let conn = match open::onlooker(path, &options) {
        Ok(conn) => conn,
        Err(error) => {
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default();
            let advice = error.hint().unwrap_or("see whether this user may read the file");
            findings.push(Finding::new(
                "file",
                Severity::Danger,
                format!("The file cannot be read: {message}."),
                advice,
            ));
            return findings;
        }
    };
    let look = Look { conn, path, opened };
    let mut add = |check: &'static str, found: Result<Vec<Finding>, Fault>| match found {
        Ok(found) => findings.extend(found),
        Err(fault) => findings.push(Finding::unseen(check, fault)),
    };
    add("file", look.file());
    if options.vfs.is_none() {
        add("access", Ok(access(path)));
    }
    add("durability", look.durability());
    add("log", look.log());
    add("size", look.free_pages());
    add("engine", Ok(vec![look.holder()]));
    match look.schema() {
        Ok((schema, Present::Yes)) => {
            add("schema", Ok(vec![schema]));
            add("hold", look.hold());
            add("overdue jobs", look.overdue_jobs());
        }
        Ok((schema, Present::No)) => add("schema", Ok(vec![schema])),
        Err(fault) => add("schema", Err(fault)),
    }
    findings
}

fn version() -> Finding {
    let version = rusqlite::version();
    if rusqlite::version_number() < open::SQLITE_VERSION_MIN {
        return Finding::new(
            "sqlite",
            Severity::Danger,
            format!("SQLite {version} can corrupt a database in WAL mode."),
            "build with rusqlite's `bundled` feature, or link SQLite 3.51.3 or newer",
        );
    }
    Finding::good("sqlite", format!("SQLite {version} is built in."))
}

/// Who else on this machine can get at the file.
fn access(path: &Path) -> Vec<Finding> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = |path: &Path| std::fs::metadata(path).map(|file| file.permissions().mode());
    let (file, around) = match (mode(path), mode(folder)) {
        (Ok(file), Ok(around)) => (file, around),
        (Err(error), _) | (_, Err(error)) => return vec![Finding::unseen("access", error)],
    };
    let mut findings = Vec::new();
    if file & OTHERS_USE != 0 && around & OTHERS_ENTER != 0 {
        findings.push(Finding::new(
            "access",
            Severity::Warning,
            "Every user of this machine can read the file, and the payloads in it.",
            format!("chmod go-rwx {}*", path.display()),
        ));
    }
    if around & OTHERS_WRITE != 0 && around & STICKY == 0 {
        findings.push(Finding::new(
            "access",
            Severity::Warning,
            "Every user of this machine can put another file in its place.",
            format!("chmod go-w {}", folder.display()),
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::good(
            "access",
            "Other users of this machine can neither read nor replace the file.",
        ));
    }
    findings
}

struct Look<'a> {
    conn: Connection,
    path: &'a Path,
    opened: &'a Opened,
}

enum Present {
    Yes,
    No,
}

impl Look<'_> {
    fn number(&self, sql: &str) -> Result<i64, Fault> {
        Ok(self.conn.query_row(sql, [], |row| row.get(0))?)
    }

    fn file(&self) -> Result<Vec<Finding>, Fault> {
        let advice = "stop, copy the file away, and restore a backup or salvage it with sqlite3 .recover";
        let check = || -> rusqlite::Result<Vec<String>> {
            // Of a file that is damaged everywhere, five places are enough to know.
            let mut statement = self.conn.prepare("PRAGMA quick_check(5)")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        Ok(vec![match check() {
            Ok(problems) if problems == ["ok"] => Finding::good("file", "The file is whole."),
            Ok(problems) => Finding::new(
                "file",
                Severity::Danger,
                format!("The file is damaged: {}.", problems.join("; ").replace('\n', " ")),
                advice,
            ),
            Err(error) => {
                Finding::new("file", Severity::Danger, format!("The file cannot be read: {error}."), advice)
            }
        }])
    }

    fn durability(&self) -> Result<Vec<Finding>, Fault> {
        let mode: String = self.conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous = self.number("PRAGMA synchronous")?;
        Ok(vec![match self.opened {
            Opened::With(options) if options.relaxed => Finding::new(
                "durability",
                Severity::Warning,
                "The file is open with relaxed durability: a power loss may take back acknowledged jobs.",
                "open it without SqliteOptions::relaxed_durability() if that is not what you want",
            ),
            _ if mode != "wal" => Finding::new(
                "durability",
                Severity::Notice,
                format!("The file's journal mode is {mode:?}."),
                "nothing needs to be done: an engine that opens it sets WAL",
            ),
            // Of an engine in another process only its default is known: the setting belongs to the connection.
            _ if synchronous < 2 => Finding::new(
                "durability",
                Severity::Notice,
                "SQLite is built to acknowledge before it has written; engines set synchronous=FULL for themselves.",
                "set it on connections of your own that enqueue into the file",
            ),
            _ => Finding::good(
                "durability",
                "Engines acknowledge what is on the disk (WAL, synchronous=FULL), unless they were opened relaxed.",
            ),
        }])
    }

    fn log(&self) -> Result<Vec<Finding>, Fault> {
        let mut name = self.path.as_os_str().to_owned();
        name.push("-wal");
        let bytes = std::fs::metadata(name).map_or(0, |file| i64::try_from(file.len()).unwrap_or(i64::MAX));
        let found = format!("The write-ahead log takes {}.", how_big(bytes));
        Ok(vec![if bytes > LOG_BYTES {
            Finding::new(
                "log",
                Severity::Warning,
                found,
                "a connection of your own holds a read transaction open, so the log cannot be copied into the file: \
                 end it",
            )
        } else {
            Finding::good("log", found)
        }])
    }

    fn free_pages(&self) -> Result<Vec<Finding>, Fault> {
        let page = self.number("PRAGMA page_size")?;
        let (free, all) =
            (self.number("PRAGMA freelist_count")? * page, self.number("PRAGMA page_count")? * page);
        let found = format!("Of the file's {}, {} are free.", how_big(all), how_big(free));
        Ok(vec![if free > FREE_BYTES && free > all / 2 {
            Finding::new(
                "size",
                Severity::Notice,
                found,
                "the room is used again by itself; to give it back, stop the engine and VACUUM the file",
            )
        } else {
            Finding::good("size", found)
        }])
    }

    fn holder(&self) -> Finding {
        if let Opened::With(_) = self.opened {
            return Finding::good("engine", "This process has the file.");
        }
        match open::held_by(self.path) {
            Ok(Some(holder)) => Finding::good("engine", format!("The file is in use by {holder}.")),
            Ok(None) => Finding::new(
                "engine",
                Severity::Notice,
                "No engine has the file open: nothing in it runs.",
                "start one; what it left running is taken up again at once",
            ),
            Err(error) => Finding::unseen("engine", error),
        }
    }

    fn schema(&self) -> Result<(Finding, Present), Fault> {
        let known = open::MIGRATIONS.len();
        let is_there = self.number("SELECT count(*) FROM sqlite_schema WHERE name = 'redrive_meta'")? > 0;
        if !is_there {
            let finding = Finding::new(
                "schema",
                Severity::Warning,
                "The file has no tables of Redrive's, and so no jobs.",
                "see whether the path is right; the first engine that opens the file makes them",
            );
            return Ok((finding, Present::No));
        }
        let version: String =
            self.conn
                .query_row("SELECT value FROM redrive_meta WHERE name = 'schema'", [], |row| row.get(0))?;
        let number = version.parse::<usize>().unwrap_or(usize::MAX);
        let finding = if number > known {
            Finding::new(
                "schema",
                Severity::Danger,
                format!("The schema is at version {version}, and this program knows {known}: it is refused."),
                "use the newer version of Redrive that wrote it",
            )
        } else {
            Finding::good(
                "schema",
                format!("The schema is at version {version}, and this program knows {known}."),
            )
        };
        Ok((finding, Present::Yes))
    }

    fn hold(&self) -> Result<Vec<Finding>, Fault> {
        Ok(vec![is_held(&self.conn).map(hold)?])
    }

    fn overdue_jobs(&self) -> Result<Vec<Finding>, Fault> {
        let now = Clock::system().now();
        let mut statement = self.conn.prepare(include_str!("doctor_due.sql"))?;
        let mut rows = statement.query([now.as_millis()])?;
        let mut findings = Vec::new();
        while let Some(row) = rows.next()? {
            let (queue, is_paused, due): (String, bool, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let late = now.since(crate::clock::Timestamp::from_millis(due));
            let found = format!(
                "The oldest due job of the queue {queue:?} has been waiting for {} to be claimed.",
                how_long(late)
            );
            match by_limit(&late, &LATE) {
                Severity::Good => {}
                _ if is_paused => findings.push(Finding::new(
                    "overdue jobs",
                    Severity::Notice,
                    format!("{found} The queue is paused."),
                    resume(&queue),
                )),
                severity => findings.push(Finding::new(
                    "overdue jobs",
                    severity,
                    found,
                    format!(
                        "see that an engine runs that has the queue {queue:?}, or that a worker asks for its kind, and \
                         raise its concurrency if one does"
                    ),
                )),
            }
        }
        if findings.is_empty() {
            findings.push(Finding::good("overdue jobs", "No due job has been waiting for long."));
        }
        Ok(findings)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, set_permissions};

    use super::*;

    #[test]
    fn a_file_that_others_can_read_or_replace_is_found_with_what_to_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        File::create(&path).unwrap();
        let found = |around: u32, file: u32| -> Vec<String> {
            set_permissions(folder.path(), Permissions::from_mode(around)).unwrap();
            set_permissions(&path, Permissions::from_mode(file)).unwrap();
            access(&path).into_iter().filter_map(|finding| finding.advice).collect()
        };
        let hide = format!("chmod go-rwx {}*", path.display());
        let close = format!("chmod go-w {}", folder.path().display());
        assert_eq!(found(0o755, 0o644), std::slice::from_ref(&hide));
        assert_eq!(found(0o777, 0o646), [hide, close.clone()]);
        assert_eq!(found(0o777, 0o600), [close]);
        for (around, file) in [(0o755, 0o600), (0o755, 0o640), (0o700, 0o644), (0o1777, 0o600)] {
            assert_eq!(found(around, file), Vec::<String>::new(), "{around:o} {file:o}");
        }
        assert_eq!(access(&path)[0].severity, Severity::Good);
    }
}
