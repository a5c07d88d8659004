//! What stands between this database and the promises: found by reading only, and said with what to do about it.
//!
//! An examination refuses nothing and changes nothing, so that it can be had where an engine would not open.

mod server;
mod tables;
mod work;

use std::time::Duration;

use tokio_postgres::{Config, Row};

use super::Listen;
use super::database::{Argument, Database};
use super::fault::Fault;
use super::migrate::{self, Standing};
use crate::clock::Asked;
use crate::error::Result;
use crate::store::finding::{Finding, Severity, how_long};

/// One for the questions, and one to see whether it is served by the same process.
const CONNECTIONS: usize = 2;

/// How the store that is examined was opened.
pub(super) enum Opened {
    /// By nobody: it is not known how an engine would.
    Not,
    /// By an engine, with these settings.
    With { listen: Listen, relaxed: bool },
}

struct Exam {
    database: Database,
    /// Before the first connection was made.
    began: Asked,
    opened: Opened,
}

/// Looks at everything, over connections of its own: what the engine does meanwhile need not wait for it.
pub(super) async fn examine(config: Config, opened: Opened) -> Result<Vec<Finding>> {
    let began = Asked::now();
    let database =
        Database::new(config, CONNECTIONS, std::sync::Arc::default()).map_err(Fault::into_error)?;
    let exam = Exam { database, began, opened };
    let server = match exam.server().await {
        Ok(server) => server,
        Err(fault) => return Ok(vec![unreachable(fault)]),
    };
    let mut findings = Findings::default();
    findings.0.extend(server.findings());
    findings.add("durability", exam.durability().await);
    findings.add("standbys", exam.standbys().await);
    findings.add("clock", exam.clock().await);
    findings.add("pooler", exam.pooler().await);
    findings.add("oldest transaction", exam.oldest_transaction(&server).await);
    let standing = migrate::standing(&exam.database).await;
    let is_there = matches!(&standing, Ok(standing) if *standing != Standing::Missing);
    findings.add("schema", standing.map(|standing| vec![schema(standing)]));
    if is_there {
        findings.add("rights", exam.rights().await);
        findings.add("dead rows", exam.dead_rows().await);
        findings.add("size", exam.sizes().await);
        findings.add("indexes", exam.invalid_indexes().await);
        findings.add("days", exam.days().await);
        findings.add("leftovers", exam.leftovers().await);
        findings.add("leases", exam.stuck_leases().await);
        findings.add("workers", exam.workers().await);
        findings.add("hold", exam.hold().await);
        findings.add("overdue jobs", exam.overdue_jobs().await);
    }
    Ok(findings.0)
}

/// What was found so far. What could not be looked at is a finding as well.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: &'static str, found: std::result::Result<Vec<Finding>, Fault>) {
        match found {
            Ok(found) => self.0.extend(found),
            Err(fault) => self.0.push(Finding::unseen(check, fault)),
        }
    }
}

impl Exam {
    async fn rows(&self, sql: &str, arguments: &[Argument<'_>]) -> std::result::Result<Vec<Row>, Fault> {
        self.database.query(sql, arguments).await
    }

    /// Whether an engine said that it accepts losses.
    fn is_relaxed(&self) -> bool {
        matches!(self.opened, Opened::With { relaxed: true, .. })
    }
}

fn unreachable(fault: Fault) -> Finding {
    let error = fault.into_error();
    let message = error.to_string();
    let message = message.lines().next().unwrap_or_default();
    let advice = error.hint().unwrap_or("see whether the server runs and can be reached from here");
    Finding::new("server", Severity::Danger, format!("No engine can work here: {message}."), advice)
}

fn schema(standing: Standing) -> Finding {
    match standing {
        Standing::Missing => Finding::new(
            "schema",
            Severity::Warning,
            "This database has no schema `redrive`, and so no jobs.",
            "see whether the URL names the right database; the first engine that connects makes the schema",
        ),
        Standing::Older { schema, known } => Finding::new(
            "schema",
            Severity::Notice,
            format!("The schema is at version {schema}, and this program knows {known}."),
            "nothing needs to be done: the first engine of this version that connects updates it",
        ),
        Standing::Current { schema } => {
            Finding::good("schema", format!("The schema is at version {schema}, the one this program knows."))
        }
        Standing::Newer { schema, known } => Finding::new(
            "schema",
            Severity::Notice,
            format!(
                "The schema is at version {schema}; this program knows {known} and can still work on it."
            ),
            "replace the programs of the older version soon: the next update of the schema may refuse them",
        ),
        Standing::TooNew { schema, known } => Finding::new(
            "schema",
            Severity::Danger,
            format!("The schema is at version {schema}, and this program knows {known}: it is refused."),
            "use the newer version of Redrive that wrote it",
        ),
    }
}

/// A number of milliseconds.
const fn ms(time: Duration) -> i64 {
    // Every limit here is a matter of days at most.
    time.as_millis() as i64
}

/// How long that is; no time below zero.
fn how_long_ms(ms: i64) -> String {
    how_long(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// `1 job`, `2 jobs`.
fn how_many(count: i64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
