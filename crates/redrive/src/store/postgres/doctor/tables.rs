//! The tables: whether this role may keep them, and whether they are being kept.

use tokio_postgres::types::Type;

use super::super::codec::only;
use super::super::fault::Fault;
use super::{Exam, how_long_ms, how_many};
use crate::store::finding::{Finding, Severity, how_big};

/// Fewer dead rows than this are in nobody's way.
const DEAD_ROWS: i64 = 100_000;
/// So many for each living one mean that clearing away does not keep up.
const DEAD_FOR_EACH: i64 = 2;
/// Smaller than this is in nobody's way.
const BYTES: i64 = 64 << 20;
/// A row of the largest of these tables, and its entries in all indexes, takes a few hundred bytes.
const BYTES_FOR_EACH: i64 = 4_096;
/// Indexes are about as large as their table; so many times that is air.
const INDEXES_FOR_TABLE: i64 = 4;
/// Rows beside the days are forgotten one by one, which takes time when there are more than this.
const OTHER_ROWS: i64 = 100_000;
/// Counters are added up by every instance each time it prunes, and read by whoever asks for counts.
const TALLIES: i64 = 50_000;

impl Exam {
    pub(super) async fn rights(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("rights.sql"), &[]).await?;
        let Some(row) = rows.first() else {
            return Ok(vec![Finding::new(
                "rights",
                Severity::Danger,
                "The schema `redrive` has no table `jobs`: it is not whole.",
                "restore a backup; if there never were jobs in it, DROP SCHEMA redrive CASCADE and connect again",
            )]);
        };
        let (role, owner): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        let [owns, creates, temporary] = [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?];
        Ok(vec![match (owns, creates, temporary) {
            (true, true, true) => {
                Finding::good("rights", format!("The role {role} may do everything in the schema `redrive`."))
            }
            (true, true, false) => Finding::new(
                "rights",
                Severity::Warning,
                format!("The role {role} may make no temporary tables: days of history are never dropped."),
                format!("GRANT TEMPORARY ON DATABASE to {role}"),
            ),
            _ => Finding::new(
                "rights",
                Severity::Warning,
                format!(
                    "The tables belong to {owner}, not to {role}: it can neither make nor drop a day's tables."
                ),
                format!("let engines connect as {owner}, or GRANT {owner} TO {role}"),
            ),
        }])
    }

    pub(super) async fn dead_rows(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("rows.sql"), &[]).await?;
        let mut findings = Vec::new();
        let mut total = 0;
        for row in &rows {
            let (table, live, dead): (&str, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            total += dead;
            if dead < DEAD_ROWS || dead < live * DEAD_FOR_EACH {
                continue;
            }
            let cleared = match row.try_get::<_, Option<i64>>(3)? {
                Some(ago) => format!("was last cleared {} ago", how_long_ms(ago)),
                None => "was never cleared".into(),
            };
            findings.push(Finding::new(
                "dead rows",
                Severity::Warning,
                format!("The table redrive.{table} has {dead} dead rows beside {live} living ones, and {cleared}."),
                format!(
                    "end whatever keeps them (see the oldest transaction), then VACUUM redrive.{table}; see that \
                     autovacuum is on and has enough workers"
                ),
            ));
        }
        if findings.is_empty() {
            let total = how_many(total, "dead row");
            findings
                .push(Finding::good("dead rows", format!("There are {total} in the tables that change.")));
        }
        Ok(findings)
    }

    pub(super) async fn sizes(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("rows.sql"), &[]).await?;
        let mut findings = Vec::new();
        let (mut tables, mut all_indexes) = (0, 0);
        for row in &rows {
            let (name, live): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
            let (table, indexes): (i64, i64) = (row.try_get(4)?, row.try_get(5)?);
            (tables, all_indexes) = (tables + table, all_indexes + indexes);
            let (found, how) = match () {
                () if indexes > BYTES && indexes > table.max(1) * INDEXES_FOR_TABLE => (
                    format!(
                        "The indexes of redrive.{name} take {}, the table {}.",
                        how_big(indexes),
                        how_big(table)
                    ),
                    format!("REINDEX TABLE CONCURRENTLY redrive.{name}"),
                ),
                () if table + indexes > BYTES && table + indexes > live.max(1) * BYTES_FOR_EACH => (
                    format!(
                        "The table redrive.{name} takes {} with its indexes, for {}.",
                        how_big(table + indexes),
                        how_many(live, "row")
                    ),
                    format!(
                        "while engines are stopped, VACUUM FULL redrive.{name}; claims stay quick without it"
                    ),
                ),
                () => continue,
            };
            findings.push(Finding::new("size", Severity::Notice, found, how));
        }
        if findings.is_empty() {
            let found = format!(
                "The tables that change take {}, their indexes {}.",
                how_big(tables),
                how_big(all_indexes)
            );
            findings.push(Finding::good("size", found));
        }
        Ok(findings)
    }

    pub(super) async fn invalid_indexes(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("invalid_indexes.sql"), &[]).await?;
        if rows.is_empty() {
            return Ok(vec![Finding::good("indexes", "All indexes of the schema `redrive` are valid.")]);
        }
        let mut findings = Vec::new();
        for row in &rows {
            let (index, table): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            findings.push(Finding::new(
                "indexes",
                Severity::Warning,
                format!("The index redrive.{index} on redrive.{table} is invalid: kept up by every write, used by none."),
                format!(
                    "REINDEX INDEX CONCURRENTLY redrive.\"{index}\" if Redrive's schema has it; DROP INDEX \
                     CONCURRENTLY redrive.\"{index}\" if it is your own or a left-over"
                ),
            ));
        }
        Ok(findings)
    }

    pub(super) async fn days(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("days.sql"), &[]).await?;
        let Some(first) = rows.first() else {
            return Ok(vec![Finding::good("days", "The tables for today and tomorrow are there.")]);
        };
        let names: Vec<&str> = rows.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
        let names = names.join(", ");
        Ok(vec![match first.try_get::<_, i32>(0)? {
            0 => Finding::new(
                "days",
                Severity::Warning,
                format!(
                    "Tables of today are missing ({names}): its jobs go to the tables for all other days."
                ),
                "nothing is lost, but they are forgotten one by one; see that an engine runs, owns the tables, and \
                 that nobody locks redrive.jobs for long",
            ),
            _ => Finding::new(
                "days",
                Severity::Notice,
                format!("Tables of tomorrow are not there yet ({names})."),
                "an engine that runs makes them; start one before midnight UTC",
            ),
        }])
    }

    pub(super) async fn leftovers(&self) -> Result<Vec<Finding>, Fault> {
        let limit = OTHER_ROWS.max(TALLIES) + 1;
        let rows = self.rows(include_str!("counted.sql"), &[(&limit, Type::INT8)]).await?;
        let row = only(&rows)?;
        let [jobs, done, attempts, tallies] =
            [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get::<_, i64>(3)?];
        let others = jobs.max(done).max(attempts);
        let mut findings = Vec::new();
        let found =
            format!("Beside the days' tables there are {jobs} jobs, {done} ends and {attempts} attempts.");
        findings.push(if others > OTHER_ROWS {
            Finding::new(
                "leftovers",
                Severity::Notice,
                format!("{found} There may be more: counting stopped at {limit}."),
                "jobs that outlive their day are kept there, and are forgotten one by one: cancel or redrive what \
                 nobody needs",
            )
        } else {
            Finding::good("leftovers", found)
        });
        let found = format!("There are {} of counters to be added up.", how_many(tallies, "row"));
        findings.push(if tallies > TALLIES {
            Finding::new(
                "counters",
                Severity::Warning,
                found,
                "engines add them up every few minutes: see that one runs, and whether its log says that it cannot \
                 forget finished jobs; or SELECT redrive.tidy(10000)",
            )
        } else {
            Finding::good("counters", found)
        });
        Ok(findings)
    }
}
