//! An empty database for one test, made in a moment on a server that many tests share.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls};

use crate::SERVER_VARIABLE;
use crate::address::Address;
use crate::cluster::{Cluster, programs};

/// Somebody else may be busy with the template for a moment.
const TRIES_MAX: u32 = 50;
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// A database of its own. Dropping it drops the database, whoever is still connected to it.
pub struct Database {
    name: String,
    url: String,
    admin: String,
}

impl Database {
    /// Where to connect to, with a user who may do everything.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name, which no other database of the server has or had.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `pg_dump` says of a schema, without what differs from one dump, or one day's partitions, to the next.
    ///
    /// # Panics
    ///
    /// If `pg_dump` does not succeed.
    #[must_use]
    pub fn schema(&self, schema: &str) -> String {
        let days = format!("{schema}.*_{}", "[0-9]".repeat(8));
        let mut dump = Command::new(programs().join("pg_dump"));
        dump.args(["--schema-only", "--no-owner", "--no-privileges", "--schema", schema, "-T", &days]);
        let output = dump.args(["-d", &self.url]).output().expect("pg_dump is beside psql");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("a schema is text");
        let told = |line: &&str| {
            !["--", "SET ", "SELECT pg_catalog.", "\\"].iter().any(|sign| line.starts_with(sign))
        };
        let mut lines: Vec<&str> = text.lines().filter(told).collect();
        lines.dedup_by(|next, line| next.is_empty() && line.is_empty());
        format!("{}\n", lines.join("\n").trim())
    }
}

/// An empty database for one test.
///
/// It is on the server that `REDRIVE_TEST_POSTGRES` names, as in `scripts/nextest.sh`; without that on a cluster which
/// is started for this process.
///
/// # Panics
///
/// If there is no server and none can be started, or it makes no database.
pub async fn database() -> Database {
    let admin = server().await;
    let client = connect(&admin).await.unwrap_or_else(|why| panic!("{admin} does not answer: {why}"));
    let row = client.query_one("SELECT 'test_' || replace(gen_random_uuid()::text, '-', '')", &[]).await;
    let name: String = row.expect("every supported PostgreSQL has this function").get(0);
    // Nobody can connect to template0, so it is seldom in use.
    let create = format!("CREATE DATABASE {name} TEMPLATE template0");
    let mut tries = 0;
    while let Err(why) = client.batch_execute(&create).await {
        tries += 1;
        let is_busy = why.code() == Some(&SqlState::OBJECT_IN_USE);
        assert!(is_busy && tries < TRIES_MAX, "{admin} makes no database: {why}");
        tokio::time::sleep(TRY_AGAIN).await;
    }
    let url = Address::of(&admin).url(&name);
    Database { name, url, admin }
}

/// A connection whose other half runs as a task of this runtime.
///
/// # Errors
///
/// If the server does not answer, or refuses.
pub async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Its error is also the error of the statement that was under way.
    tokio::spawn(connection);
    Ok(client)
}

/// The URL for what needs no database of its own.
#[expect(clippy::disallowed_methods, reason = "the one setting of the testbed; the library reads none")]
async fn server() -> String {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    if let Ok(url) = std::env::var(SERVER_VARIABLE) {
        return url;
    }
    let start = || CLUSTER.get_or_init(Cluster::start).url("postgres");
    tokio::task::spawn_blocking(start).await.expect("the cluster starts, or has said why not")
}

impl Drop for Database {
    /// Leaves it to a process of its own: dropping a database waits for a checkpoint, and a test runner ends our
    /// process right after the test. If it cannot be done the server still goes, and the database with it.
    fn drop(&mut self) {
        let mut psql = Command::new(programs().join("psql"));
        let statement = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        psql.args(["-X", "-q", "-d", &self.admin, "-c", &statement]).process_group(0);
        psql.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(mut child) = psql.spawn() {
            std::thread::spawn(move || child.wait());
        }
    }
}
