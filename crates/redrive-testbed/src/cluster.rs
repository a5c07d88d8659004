//! A throw-away PostgreSQL server: started, killed, restarted, copied, promoted. Not: what is in its databases.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::folder::{Folder, free_port, look_for, run};

/// What every cluster is set to. Durability stays as PostgreSQL ships it: `fsync` and `synchronous_commit` on.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("shared_buffers", "128MB"),
    ("max_connections", "200"),
    ("wal_level", "replica"),
    ("max_wal_senders", "4"),
    ("log_line_prefix", "%m [%p] %a "),
];

/// Recovery after a kill is part of a start, and the machine may be busy.
const START_MAX: Duration = Duration::from_secs(60);

/// Between our look at a port and the server's, another process may have taken it.
const PORTS_TRIED_MAX: usize = 5;

/// A PostgreSQL server of its own, in a temporary folder. Dropping it stops the server at once and removes the folder.
pub struct Cluster {
    programs: PathBuf,
    port: u16,
    server: Mutex<Option<Child>>,
    folder: Folder,
}

impl Cluster {
    /// A new, empty cluster that answers on a loopback port; the superuser `postgres` needs no password.
    ///
    /// # Panics
    ///
    /// If there is no PostgreSQL on this machine, or it does not start.
    #[must_use]
    pub fn start() -> Cluster {
        Cluster::start_with(&[])
    }

    /// The same with settings of `postgresql.conf`.
    ///
    /// # Panics
    ///
    /// As [`Cluster::start`].
    #[must_use]
    pub fn start_with(settings: &[(&str, &str)]) -> Cluster {
        Cluster::with_data(|programs, folder| {
            let mut initdb = folder.command(programs.join("initdb"));
            initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]);
            run(initdb.args(["--no-sync", "--no-instructions", "--pgdata=data"]));
            let mut file = OpenOptions::new()
                .append(true)
                .open(folder.path().join("data/postgresql.conf"))
                .expect("initdb writes a configuration");
            for (name, value) in SETTINGS.iter().chain(settings) {
                writeln!(file, "{name} = '{}'", value.replace('\'', "''")).expect("the disk has room");
            }
        })
    }

    /// A streaming replica of this cluster, which does not wait for it.
    ///
    /// # Panics
    ///
    /// If this cluster is not running.
    #[must_use]
    pub fn standby(&self) -> Cluster {
        Cluster::with_data(|programs, folder| {
            let mut backup = folder.command(programs.join("pg_basebackup"));
            backup.args(["--pgdata=data", "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
            run(backup.arg(format!("--dbname={}", self.url("postgres"))));
        })
    }

    /// A streaming replica that every commit of this cluster waits for, from now on.
    ///
    /// # Panics
    ///
    /// If this cluster is not running.
    #[must_use]
    pub fn synchronous_standby(&self) -> Cluster {
        let standby = self.standby();
        // After the copy was taken, or the standby would wait for one of its own once it is promoted.
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("SELECT pg_reload_conf()");
        let is_synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'";
        look_for(START_MAX, || (self.sql(is_synchronous) == "1").then_some(()))
            .unwrap_or_else(|| panic!("the standby did not become synchronous:\n{}", standby.log()));
        // Backends learn from the checkpointer that there is somebody to wait for; this is its sign of life.
        self.sql("CHECKPOINT");
        standby
    }

    /// Makes a standby a primary. Returns when it takes writes.
    ///
    /// # Panics
    ///
    /// If this is not a running standby.
    pub fn promote(&self) {
        run(self.control().args(["promote", "--wait"]));
    }

    /// The URL of a database of this cluster, for its superuser.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The loopback port; it stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the postmaster.
    ///
    /// # Panics
    ///
    /// If it is not running.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server().as_ref().expect("the cluster is stopped").id()
    }

    /// SIGKILL to the postmaster. Its other processes notice by themselves and end a little later.
    pub fn kill_postmaster(&self) {
        if let Some(mut server) = self.server().take() {
            server.kill().and_then(|()| server.wait()).expect("a child of ours can be killed");
        }
    }

    /// Stops the server as an administrator would: sessions are ended, everything is flushed.
    ///
    /// # Panics
    ///
    /// If it does not stop.
    pub fn stop(&self) {
        if let Some(mut server) = self.server().take() {
            run(self.control().args(["stop", "--mode=fast"]));
            server.wait().expect("a child of ours can be waited for");
        }
    }

    /// Starts the server again on the same data and port, whether it was stopped, killed, or is running.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self) {
        self.stop();
        // It refuses for as long as a process of a killed predecessor is alive, which is not for long.
        let mut complaint = String::new();
        let server = look_for(START_MAX, || {
            launch(&self.programs, &self.folder, self.port).map_err(|log| complaint = log).ok()
        });
        *self.server() =
            Some(server.unwrap_or_else(|| panic!("PostgreSQL does not start again:\n{complaint}")));
    }

    /// What the server has logged, from its first start on.
    #[must_use]
    pub fn log(&self) -> String {
        log(&self.folder)
    }

    /// A running cluster on the data that `fill` puts into `data/`.
    fn with_data(fill: impl FnOnce(&Path, &Folder)) -> Cluster {
        let programs = programs();
        let folder =
            Folder::new(&format!("'{}/pg_ctl' stop -s -m immediate -D \"$1/data\"", programs.display()));
        fill(&programs, &folder);
        let mut complaint = String::new();
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            match launch(&programs, &folder, port) {
                Ok(server) => return Cluster { programs, port, server: Mutex::new(Some(server)), folder },
                Err(log) => complaint = log,
            }
        }
        panic!("PostgreSQL does not start:\n{complaint}");
    }

    /// Without a client library, so that the binary of this crate needs none.
    fn sql(&self, statement: &str) -> String {
        let mut psql = self.folder.command(self.programs.join("psql"));
        run(psql.args(["-X", "-A", "-t", "-q", "-d", &self.url("postgres"), "-c", statement]))
    }

    fn control(&self) -> Command {
        let mut command = self.folder.command(self.programs.join("pg_ctl"));
        command.args(["--silent", "--pgdata=data"]);
        command
    }

    fn server(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Here, and not when the fields are dropped, so that the stopped server can be reaped.
        self.folder.end();
        if let Some(mut server) = self.server().take() {
            // It is stopped; if it could not be, it must not keep us here.
            let _ = server.kill().and_then(|()| server.wait());
        }
    }
}

/// Where PostgreSQL's programs are.
///
/// # Panics
///
/// If they are nowhere.
#[expect(clippy::disallowed_methods, reason = "looks for programs where a shell would")]
pub(crate) fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps one folder a version, and none of them in the PATH.
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort_by_key(|path| {
        path.parent().and_then(|version| version.file_name()?.to_str()?.parse::<u32>().ok())
    });
    std::env::split_paths(&path)
        .chain(versions.into_iter().rev())
        .find(|folder| {
            ["initdb", "postgres", "pg_ctl", "psql"].iter().all(|name| folder.join(name).is_file())
        })
        .unwrap_or_else(|| {
            panic!(
                "PostgreSQL is neither in the PATH nor in /usr/lib/postgresql/*/bin\n\
                 hint: install it (Debian: apt-get install postgresql-15), or run scripts/setup.sh"
            )
        })
}

/// Starts the server and waits until it answers; if it ends instead, returns its log.
fn launch(programs: &Path, folder: &Folder, port: u16) -> Result<Child, String> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.path().join("server.log"))
        .expect("the folder is there until we drop it");
    let mut server = folder
        .command(programs.join("postgres"))
        .args(["-D", "data", "-p", &port.to_string(), "-k"])
        .arg(folder.path())
        .stdout(Stdio::from(file.try_clone().expect("there are file descriptors left")))
        .stderr(Stdio::from(file))
        .spawn()
        .expect("the program is there");
    let answers = look_for(START_MAX, || match server.try_wait() {
        Ok(None) => is_up(folder, server.id()).then_some(true),
        _ => Some(false),
    });
    match answers {
        Some(true) => Ok(server),
        Some(false) => Err(log(folder)),
        None => {
            let _ = server.kill().and_then(|()| server.wait());
            Err(log(folder))
        }
    }
}

/// What the server itself says in its lock file: the first line is its process id, the eighth its state. A killed
/// predecessor leaves such a file behind.
fn is_up(folder: &Folder, pid: u32) -> bool {
    let text = fs::read_to_string(folder.path().join("data/postmaster.pid")).unwrap_or_default();
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(pid.to_string().as_str()) && matches!(lines.nth(6), Some("ready" | "standby"))
}

fn log(folder: &Folder) -> String {
    fs::read_to_string(folder.path().join("server.log")).unwrap_or_default()
}
