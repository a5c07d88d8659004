//! PgBouncer in transaction mode, as half the world puts it in front of PostgreSQL.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::address::Address;
use crate::folder::{Folder, free_port, look_for};

const START_MAX: Duration = Duration::from_secs(20);

/// A PgBouncer that gives each transaction whatever connection is free. Dropping it kills it.
///
/// Debian's 1.18 knows nothing of prepared statements: one that a client prepared in one transaction is not there in
/// the next.
pub struct PgBouncer {
    address: Address,
    server: Mutex<Option<Child>>,
    folder: Folder,
}

impl PgBouncer {
    /// Connections to the server, for each database. Fewer than the clients of a test, so that they are shared.
    pub const POOL: u32 = 20;

    /// Starts one in front of the server that `url` names; its database does not matter.
    ///
    /// # Panics
    ///
    /// If there is no PgBouncer on this machine, or it does not start.
    #[must_use]
    pub fn start(url: &str) -> PgBouncer {
        let folder = Folder::new("kill -9 \"$(cat \"$1/pgbouncer.pid\")\"");
        let upstream = Address::of(url);
        let port = free_port();
        fs::write(folder.path().join("pgbouncer.ini"), configuration(&upstream, port, folder.path()))
            .expect("the folder is ours");
        let bouncer = PgBouncer { address: upstream.behind(port), server: Mutex::new(None), folder };
        bouncer.restart();
        bouncer
    }

    /// The URL of a database of the server behind it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.address.url(database)
    }

    /// SIGKILL: every connection is gone, on both sides.
    pub fn kill(&self) {
        if let Some(mut server) = self.server.lock().unwrap_or_else(PoisonError::into_inner).take() {
            server.kill().and_then(|()| server.wait()).expect("a child of ours can be killed");
            // It writes none where there is one.
            let _ = fs::remove_file(self.folder.path().join("pgbouncer.pid"));
        }
    }

    /// Starts it again on the same port, after killing it if it is running.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self) {
        self.kill();
        let mut server = self
            .folder
            .command(program())
            .args(["--quiet", "pgbouncer.ini"])
            .spawn()
            .unwrap_or_else(|why| panic!("pgbouncer cannot be started: {why}"));
        let answers = look_for(START_MAX, || match server.try_wait() {
            Ok(None) => TcpStream::connect(("127.0.0.1", self.address.port)).is_ok().then_some(true),
            _ => Some(false),
        });
        let log = || fs::read_to_string(self.folder.path().join("pgbouncer.log")).unwrap_or_default();
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        assert!(answers == Some(true), "pgbouncer does not start:\n{}", log());
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// With `auth_type = any` everybody becomes the user of the `[databases]` line.
fn configuration(upstream: &Address, port: u16, folder: &Path) -> String {
    let Address { host, port: upstream_port, .. } = upstream;
    let user = upstream.user().unwrap_or("postgres");
    let (pool, folder) = (PgBouncer::POOL, folder.display());
    format!(
        "[databases]
* = host={host} port={upstream_port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
"
    )
}

/// Debian puts it where the `PATH` of an ordinary user does not lead.
#[expect(clippy::disallowed_methods, reason = "looks for programs where a shell would")]
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join("pgbouncer"))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!(
                "pgbouncer is neither in the PATH nor in /usr/sbin\n\
                 hint: install it (Debian: apt-get install pgbouncer), or run scripts/setup.sh"
            )
        })
}
