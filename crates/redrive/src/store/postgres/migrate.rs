//! The schema: numbered steps, forward only, all in one transaction, one process at a time.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::database::Database;
use super::fault::Fault;
use crate::error::{Error, ErrorKind};
use crate::policy::Policy;

const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/postgres/0001_jobs.sql"),
    include_str!("../../../migrations/postgres/0002_claim.sql"),
    include_str!("../../../migrations/postgres/0003_settle.sql"),
    include_str!("../../../migrations/postgres/0004_enqueue.sql"),
    include_str!("../../../migrations/postgres/0005_steer.sql"),
    include_str!("../../../migrations/postgres/0006_days.sql"),
    include_str!("../../../migrations/postgres/0007_views.sql"),
    include_str!("../../../migrations/postgres/0008_enqueue_function.sql"),
    include_str!("../../../migrations/postgres/0009_operations.sql"),
    include_str!("../../../migrations/postgres/0010_gates.sql"),
    include_str!("../../../migrations/postgres/0011_workflows.sql"),
    include_str!("../../../migrations/postgres/0012_retries.sql"),
    include_str!("../../../migrations/postgres/0013_enqueue_function.sql"),
    include_str!("../../../migrations/postgres/0014_author.sql"),
];

/// The schema that this program makes.
pub(super) const KNOWN: usize = MIGRATIONS.len();

/// Held by whoever changes the schema.
const LOCK: i64 = 0x7265_6472_6976_6500;

const BOOK: &str = "CREATE SCHEMA IF NOT EXISTS redrive; \
    CREATE TABLE IF NOT EXISTS redrive.meta (name text NOT NULL PRIMARY KEY, value text NOT NULL)";

/// The oldest version of the schema whose programs can still work on this one: steps add, so that an instance of the
/// last version goes on beside those of the next while they are being replaced.
const OLDEST: usize = 1;

/// For so long a table is waited for. Whoever waits for all of it holds up everybody who comes after, so it is not for long
/// that a fleet stands still because somebody's transaction stays open.
const WAIT: &str = "SET LOCAL lock_timeout = '200ms'";
/// How long the others then go on, and how often that is.
const PAUSE: Duration = Duration::from_secs(1);
const TRIES: u32 = 60;

/// Brings the schema up to date, and the presets that SQL knows.
pub(super) async fn migrate(database: &Database) -> Result<(), Fault> {
    for _ in 0..TRIES {
        if is_current(database).await? || step(database).await? {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    let message = "the schema cannot be brought up to date: a transaction that stays open uses its tables";
    Err(Error::unavailable(message)
        .with_hint("find it in pg_stat_activity by its xact_start, and end it")
        .into())
}

/// Whether it was done; it was not where a table was not to be had.
async fn step(database: &Database) -> Result<bool, Fault> {
    let mut client = database.connection().await?;
    let transaction = client.transaction().await?;
    transaction.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]).await?;
    transaction.batch_execute(WAIT).await?;
    transaction.batch_execute(BOOK).await?;
    let version = Version::read(&transaction.query_typed(READ, &[]).await?)?;
    version.refuse_newer()?;
    for migration in MIGRATIONS.iter().skip(version.schema) {
        match transaction.batch_execute(migration).await {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => return Ok(false),
            done => done?,
        }
    }
    if version.schema < MIGRATIONS.len() {
        let set = "INSERT INTO redrive.meta (name, value) VALUES ('schema', $1), ('oldest', $2) \
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        let (schema, oldest) = (MIGRATIONS.len().to_string(), OLDEST.to_string());
        transaction.query_typed(set, &[(&schema, Type::TEXT), (&oldest, Type::TEXT)]).await?;
    }
    if version.needs_presets() {
        let (names, bodies): (Vec<_>, Vec<_>) = presets().into_iter().unzip();
        let set = include_str!("set_presets.sql");
        transaction
            .query_typed(
                set,
                &[(&names, Type::TEXT_ARRAY), (&bodies, Type::TEXT_ARRAY), (&digest(), Type::TEXT)],
            )
            .await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// Whether there is nothing to do, so that nobody has to wait for the lock.
async fn is_current(database: &Database) -> Result<bool, Fault> {
    let Some(version) = find(database).await? else { return Ok(false) };
    version.refuse_newer()?;
    Ok(version.schema >= MIGRATIONS.len() && !version.needs_presets())
}

/// How the schema stands to this program. Changes nothing.
pub(super) async fn standing(database: &Database) -> Result<Standing, Fault> {
    let known = MIGRATIONS.len();
    Ok(match find(database).await? {
        None => Standing::Missing,
        Some(Version { schema, .. }) if schema < known => Standing::Older { schema, known },
        Some(Version { schema, .. }) if schema == known => Standing::Current { schema },
        Some(version) if version.is_refused() => Standing::TooNew { schema: version.schema, known },
        Some(Version { schema, .. }) => Standing::Newer { schema, known },
    })
}

/// See [`standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is none.
    Missing,
    /// It would be brought up to date.
    Older { schema: usize, known: usize },
    /// It is what this program makes.
    Current { schema: usize },
    /// It is newer, and says that this program can still work on it.
    Newer { schema: usize, known: usize },
    /// It is newer, and this program would be refused.
    TooNew { schema: usize, known: usize },
}

async fn find(database: &Database) -> Result<Option<Version>, Fault> {
    let rows = database.query("SELECT to_regclass('redrive.meta') IS NOT NULL", &[]).await?;
    if !rows.first().is_some_and(|row| row.get(0)) {
        return Ok(None);
    }
    Version::read(&database.query(READ, &[]).await?).map(Some)
}

const READ: &str = "SELECT name, value FROM redrive.meta WHERE name IN ('schema', 'oldest', 'presets')";

/// The policies that SQL must know by name, and under no name the one of a job that names none.
fn presets() -> Vec<(&'static str, String)> {
    let write = |policy: &Policy| serde_json::to_string(policy).expect("a policy of our own can be written");
    let named = Policy::PRESETS.iter().filter_map(|name| Some((*name, write(&Policy::preset(name).ok()?))));
    named.chain([("", write(&Policy::default()))]).collect()
}

/// By which presets that have changed are noticed.
fn digest() -> String {
    let mut hasher = crc32fast::Hasher::new();
    for (name, body) in presets() {
        hasher.update(name.as_bytes());
        hasher.update(body.as_bytes());
    }
    format!("{:08x}", hasher.finalize())
}

/// What the database says of its schema.
struct Version {
    schema: usize,
    oldest: usize,
    presets: String,
}

impl Version {
    fn read(rows: &[Row]) -> Result<Version, Fault> {
        let mut version = Version { schema: 0, oldest: 0, presets: String::new() };
        for row in rows {
            let (name, value): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            if name == "presets" {
                version.presets = value.to_owned();
                continue;
            }
            let number = value
                .parse()
                .map_err(|_| Fault::Foreign(format!("redrive.meta has no number for {name:?}")))?;
            if name == "schema" { version.schema = number } else { version.oldest = number }
        }
        Ok(version)
    }

    fn is_refused(&self) -> bool {
        self.schema > MIGRATIONS.len() && self.oldest > MIGRATIONS.len()
    }

    /// Whether ours are not there. Beside a newer version they are left alone: it will be here longer.
    fn needs_presets(&self) -> bool {
        self.schema <= MIGRATIONS.len() && self.presets != digest()
    }

    fn refuse_newer(&self) -> Result<(), Fault> {
        if !self.is_refused() {
            return Ok(());
        }
        let known = MIGRATIONS.len();
        let message = format!("the database has schema {}, and this version knows {known}", self.schema);
        Err(Error::new(ErrorKind::Newer, message).with_hint("use the newer version that wrote it").into())
    }
}
