//! The server: whether it can be written to, keeps what it acknowledges, and who stands between.

use std::time::Duration;

use deadpool_postgres::Object;
use tokio_postgres::Row;

use super::super::Listen;
use super::super::codec::only;
use super::super::fault::Fault;
use super::{Exam, Opened, how_long_ms, how_many, ms};
use crate::clock::{Asked, Clock};
use crate::store::finding::{Finding, Severity, by_limit, how_long};

/// The oldest version that the tests run on.
const TESTED_FROM: i32 = 15;
/// Of all connections that the server allows, in hundredths.
const CONNECTIONS_USED: [(i64, Severity); 2] = [(95, Severity::Danger), (80, Severity::Warning)];
/// Instances go by the database's clock, so a wrong one here does no harm to them; but times that a program computes by
/// its own clock and hands over (`NewJob::run_at`) are off by as much.
const CLOCK_OFFSET: [(Duration, Severity); 2] =
    [(Duration::from_secs(10), Severity::Warning), (Duration::from_secs(1), Severity::Notice)];
/// How long dead rows have been kept from being cleared away.
const PINNED_MS: [(i64, Severity); 2] =
    [(ms(Duration::from_secs(3_600)), Severity::Danger), (ms(Duration::from_secs(300)), Severity::Warning)];
/// The same in transactions that have begun since, each of which may have left dead rows behind.
const PINNED_TRANSACTIONS: [(i64, Severity); 2] =
    [(10_000_000, Severity::Danger), (100_000, Severity::Warning)];
/// How often the time is asked for; the quickest answer is believed.
const QUESTIONS: usize = 3;
/// More than a connection takes to be made.
const CONNECT_SLACK: Duration = Duration::from_secs(1);
/// How often it is tried whether connections are shared. Each time takes four round trips.
const PROBES: usize = 8;
/// A pooler without a free connection lets us wait.
const PROBE_MAX: Duration = Duration::from_secs(10);

/// What the server says of itself.
pub(super) struct Server {
    version: String,
    major: i32,
    is_standby: bool,
    is_read_only: bool,
    connections: i64,
    connections_max: i64,
    /// Whether other users' sessions can be seen.
    shows_sessions: bool,
}

impl Server {
    fn read(row: &Row) -> Result<Server, Fault> {
        Ok(Server {
            version: row.try_get(0)?,
            major: row.try_get(1)?,
            is_standby: row.try_get(2)?,
            is_read_only: row.try_get(3)?,
            connections: row.try_get(4)?,
            connections_max: row.try_get(5)?,
            shows_sessions: row.try_get(6)?,
        })
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let version = &self.version;
        let server = if self.is_standby {
            Finding::new(
                "server",
                Severity::Danger,
                format!("PostgreSQL {version} is a standby: nothing can be written here."),
                "connect to the primary; with several hosts in the URL, target_session_attrs=read-write finds it",
            )
        } else if self.is_read_only {
            Finding::new(
                "server",
                Severity::Danger,
                format!("PostgreSQL {version} makes every transaction of this role read-only."),
                "set default_transaction_read_only = off for the server, the database or the role",
            )
        } else if self.major < TESTED_FROM {
            Finding::new(
                "server",
                Severity::Notice,
                format!("PostgreSQL {version} answers, and can be written to."),
                format!("it may well work, but Redrive is tested on PostgreSQL {TESTED_FROM} and newer"),
            )
        } else {
            Finding::good("server", format!("PostgreSQL {version} answers, and can be written to."))
        };
        vec![server, self.connections()]
    }

    fn connections(&self) -> Finding {
        let (used, max) = (self.connections, self.connections_max.max(1));
        let found = format!("{used} of {max} connections are in use.");
        match by_limit(&(used * 100 / max), &CONNECTIONS_USED) {
            Severity::Good => Finding::good("connections", found),
            severity => Finding::new(
                "connections",
                severity,
                found,
                "an engine uses at most PostgresOptions::connections and one more: lower that, raise \
                 max_connections, or put PgBouncer in between",
            ),
        }
    }
}

impl Exam {
    pub(super) async fn server(&self) -> Result<Server, Fault> {
        Server::read(only(&self.rows(include_str!("server.sql"), &[]).await?)?)
    }

    pub(super) async fn durability(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("settings.sql"), &[]).await?;
        let off: Vec<&str> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let (cleaning, keeping): (Vec<&str>, Vec<&str>) =
            off.into_iter().partition(|name| matches!(*name, "autovacuum" | "track_counts"));
        let mut findings = Vec::new();
        if keeping.is_empty() {
            findings.push(Finding::good("durability", "What the server acknowledges is on its disk."));
        } else {
            let off = keeping.join(" and ");
            // Whoever relaxed it knows; whoever only looks should hear why engines are refused.
            let severity = if self.is_relaxed() { Severity::Warning } else { Severity::Danger };
            findings.push(Finding::new(
                "durability",
                severity,
                format!("The server has {off} switched off: a crash there loses jobs that were acknowledged."),
                format!(
                    "ALTER SYSTEM SET {} = on; SELECT pg_reload_conf(); engines refuse such a server unless they \
                     were opened with PostgresOptions::relaxed_durability()",
                    keeping.join(" = on; ALTER SYSTEM SET ")
                ),
            ));
        }
        if !cleaning.is_empty() {
            let off = cleaning.join(" and ");
            findings.push(Finding::new(
                "autovacuum",
                Severity::Warning,
                format!("The server has {off} switched off: dead rows are never cleared away."),
                format!(
                    "ALTER SYSTEM SET {} = on; SELECT pg_reload_conf()",
                    cleaning.join(" = on; ALTER SYSTEM SET ")
                ),
            ));
        }
        Ok(findings)
    }

    pub(super) async fn standbys(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("standbys.sql"), &[]).await?;
        let row = only(&rows)?;
        let names: String = row.try_get(0)?;
        let waits_for_none: bool = row.try_get(1)?;
        let [connected, seen, synchronous] = [row.try_get(2)?, row.try_get(3)?, row.try_get::<_, i64>(4)?];
        Ok(vec![if names.is_empty() {
            Finding::good("standbys", "No commit waits for a standby.")
        } else if synchronous > 0 {
            Finding::good(
                "standbys",
                format!("Commits wait for standbys ({names}), of which {synchronous} in step."),
            )
        } else if waits_for_none {
            Finding::good("standbys", "Commits of this role wait for no standby.")
        } else if connected > 0 && seen == 0i64 {
            Finding::new(
                "standbys",
                Severity::Notice,
                format!("Commits wait for standbys ({names}); whether those are in step cannot be seen."),
                "GRANT pg_monitor to this role to see it",
            )
        } else {
            Finding::new(
                "standbys",
                Severity::Danger,
                format!("Commits wait for standbys ({names}), and none is connected: every write hangs."),
                "bring a standby back, or take it out of synchronous_standby_names and SELECT pg_reload_conf()",
            )
        }])
    }

    pub(super) async fn clock(&self) -> Result<Vec<Finding>, Fault> {
        let mut quickest: Option<(Duration, i64)> = None;
        for _ in 0..QUESTIONS {
            let (before, asked) = (Clock::system().now(), Asked::now());
            let rows = self.rows(include_str!("../now.sql"), &[]).await?;
            let took = asked.elapsed();
            let there = only(&rows)?.try_get::<_, i64>(0)? / 1_000;
            // Read, most likely, half-way between the question and the answer.
            let offset = there - (before + took / 2).as_millis();
            if quickest.is_none_or(|(before, _)| took < before) {
                quickest = Some((took, offset));
            }
        }
        let Some((took, offset)) = quickest else { return Ok(Vec::new()) };
        let apart = Duration::from_millis(offset.unsigned_abs());
        let side = if offset > 0 { "behind" } else { "ahead of" };
        let found = format!("This host's clock is {} {side} the database's.", how_long(apart));
        // What the answer took to come is not known to be the clock's fault.
        Ok(vec![match by_limit(&apart.saturating_sub(took), &CLOCK_OFFSET) {
            Severity::Good => Finding::good("clock", found),
            severity => Finding::new(
                "clock",
                severity,
                found,
                "engines go by the database's clock and stay exact, but times that this host computes itself are \
                 off by as much: synchronise both with NTP",
            ),
        }])
    }

    pub(super) async fn pooler(&self) -> Result<Vec<Finding>, Fault> {
        let seen = tokio::time::timeout(PROBE_MAX, self.between())
            .await
            .map_err(|_| Fault::Broken(format!("no connection was free within {PROBE_MAX:?}")))??;
        let advice = "open this URL with PostgresOptions::pooled(), or with listen_on(a direct URL) to be woken at \
                      once; without either, listening does not work and takes up a connection of the pool";
        let transaction = "A pooler in transaction mode stands between: one connection is served by several \
                           processes of the server.";
        Ok(vec![match (seen, &self.opened) {
            (Between::Nothing, _) => {
                Finding::good("pooler", "No pooler is seen between this program and the server.")
            }
            (Between::Sessions, _) => Finding::good(
                "pooler",
                "A pooler in session mode stands between: this connection was made before this program asked for it.",
            ),
            (Between::Transactions, Opened::With { listen: Listen::On(_) | Listen::Nowhere, .. }) => {
                Finding::good("pooler", transaction)
            }
            (Between::Transactions, Opened::With { listen: Listen::Here, .. }) => {
                Finding::new("pooler", Severity::Warning, transaction, advice)
            }
            (Between::Transactions, Opened::Not) => {
                Finding::new("pooler", Severity::Notice, transaction, advice)
            }
        }])
    }

    /// Who is between. A connection of one's own is served by one process of the server, and that one by no other. While a
    /// transaction on a second connection takes up a process, a pooler has another one for the first, or both had the same;
    /// unless somebody else was quicker, so it is tried several times.
    async fn between(&self) -> Result<Between, Fault> {
        let first = self.database.connection().await?;
        let mut second = self.database.connection().await?;
        let (served_by, age) = backend(&first.query_typed(include_str!("backend.sql"), &[]).await?)?;
        let mut between = match age > ms(self.began.elapsed() + CONNECT_SLACK) {
            true => Between::Sessions,
            false => Between::Nothing,
        };
        for _ in 0..PROBES {
            let transaction = second.transaction().await?;
            let (taken, _) = backend(&transaction.query_typed(include_str!("backend.sql"), &[]).await?)?;
            let (now_served_by, _) = backend(&first.query_typed(include_str!("backend.sql"), &[]).await?)?;
            transaction.rollback().await?;
            if served_by == taken || served_by != now_served_by {
                between = Between::Transactions;
                break;
            }
        }
        // Nobody else should get connections of which it is unknown who else has them.
        drop((Object::take(first), Object::take(second)));
        Ok(between)
    }

    pub(super) async fn oldest_transaction(&self, server: &Server) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("oldest_xmin.sql"), &[]).await?;
        let mut findings = match rows.first() {
            Some(row) => vec![Pin::read(row)?.finding()],
            None => vec![Finding::good(
                "oldest transaction",
                "No transaction keeps dead rows from being cleared away.",
            )],
        };
        if !server.shows_sessions {
            findings.push(Finding::new(
                "oldest transaction",
                Severity::Notice,
                "This role sees its own sessions only: another one's open transaction would not be found.",
                "GRANT pg_monitor to this role to see all",
            ));
        }
        Ok(findings)
    }
}

fn backend(rows: &[Row]) -> Result<(i32, i64), Fault> {
    let row = only(rows)?;
    Ok((row.try_get(0)?, row.try_get::<_, Option<i64>>(1)?.unwrap_or(0)))
}

/// What stands between us and the server.
enum Between {
    Nothing,
    /// A pooler that gives each client a connection for as long as it stays.
    Sessions,
    /// A pooler that gives each transaction whatever connection is free.
    Transactions,
}

/// Whoever keeps dead rows from being cleared away.
struct Pin {
    kind: String,
    name: String,
    application: String,
    user: String,
    state: String,
    ms: Option<i64>,
    transactions: i64,
}

impl Pin {
    fn read(row: &Row) -> Result<Pin, Fault> {
        Ok(Pin {
            kind: row.try_get(0)?,
            name: row.try_get(1)?,
            application: row.try_get(2)?,
            user: row.try_get(3)?,
            state: row.try_get(4)?,
            ms: row.try_get(5)?,
            transactions: row.try_get(6)?,
        })
    }

    fn finding(&self) -> Finding {
        let Pin { name, application, user, state, .. } = self;
        let (who, advice) = match self.kind.as_str() {
            "session" => (
                format!("Process {name} ({application}, user {user}, {state})"),
                format!(
                    "end its transaction, or SELECT pg_terminate_backend({name}); idle_in_transaction_session_timeout \
                     ends forgotten ones by itself"
                ),
            ),
            "prepared" => (
                format!("The prepared transaction {name:?} of user {user}"),
                format!("COMMIT PREPARED '{0}' or ROLLBACK PREPARED '{0}'", name.replace('\'', "''")),
            ),
            _ => (
                format!("The replication slot {name:?} ({state})"),
                format!(
                    "let its replica catch up, or SELECT pg_drop_replication_slot('{name}') if it is gone"
                ),
            ),
        };
        let since = self.ms.map(|ms| format!(" for {}", how_long_ms(ms))).unwrap_or_default();
        let begun = how_many(self.transactions, "transaction");
        let found = format!("{who} keeps dead rows from being cleared away{since}; {begun} began meanwhile.");
        let by_time = by_limit(&self.ms.unwrap_or(0), &PINNED_MS);
        match by_time.max(by_limit(&self.transactions, &PINNED_TRANSACTIONS)) {
            Severity::Good => Finding::good("oldest transaction", found),
            severity => Finding::new("oldest transaction", severity, found, advice),
        }
    }
}
