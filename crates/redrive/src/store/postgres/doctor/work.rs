//! The work: whether anybody does it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::super::codec::only;
use super::super::fault::Fault;
use super::{Exam, how_long_ms, how_many, ms};
use crate::store::finding::{Finding, Severity, by_limit, hold, resume};

/// An engine ends a holder within a second of its lease; whatever is over by another lease, nobody ends. Leases are
/// 30 s unless a builder says otherwise.
const OVER_MS: i64 = ms(Duration::from_secs(30));
/// How long jobs may be late.
const LATE_MS: [(i64, Severity); 2] =
    [(ms(Duration::from_secs(60)), Severity::Warning), (ms(Duration::from_secs(5)), Severity::Notice)];
/// An engine looks at each of its queues once a second.
const UNSEEN_MS: i64 = ms(Duration::from_secs(60));

impl Exam {
    pub(super) async fn stuck_leases(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("stuck.sql"), &[(&OVER_MS, Type::INT8)]).await?;
        let mut findings = Vec::new();
        for row in &rows {
            let (holder, over, jobs): (&str, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            findings.push(Finding::new(
                "leases",
                Severity::Warning,
                format!(
                    "The lease of {holder:?} has been over for {}, and nobody has taken back the {} it held.",
                    how_long_ms(over),
                    how_many(jobs, "job")
                ),
                "any engine on this database takes them back within a second: start one, or see what its log says \
                 about leases",
            ));
        }
        if findings.is_empty() {
            findings.push(Finding::good("leases", "Nobody holds jobs beyond its lease."));
        }
        Ok(findings)
    }

    pub(super) async fn workers(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("holders.sql"), &[]).await?;
        let row = only(&rows)?;
        let (alive, queues, anything): (i64, i64, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let queues = how_many(queues, "queue");
        Ok(vec![match (alive, anything) {
            (0, false) => Finding::new(
                "workers",
                Severity::Notice,
                format!("No engine holds a lease, and nothing waits in {queues}."),
                "if none runs, start one before there is work: Engine::run",
            ),
            // An engine with nothing to do may let its lease go; a job that is late is a finding of its own.
            (0, true) => Finding::new(
                "workers",
                Severity::Notice,
                format!("No engine holds a lease, and jobs wait in {queues}."),
                "if none runs, start one with handlers for them: Engine::run",
            ),
            (alive, _) => {
                Finding::good("workers", format!("{} alive, on {queues}.", how_many(alive, "engine")))
            }
        }])
    }

    pub(super) async fn hold(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("../is_held.sql"), &[]).await?;
        Ok(vec![hold(only(&rows)?.try_get(0)?)])
    }

    pub(super) async fn overdue_jobs(&self) -> Result<Vec<Finding>, Fault> {
        let rows = self.rows(include_str!("overdue.sql"), &[]).await?;
        // Where that cannot be known, nobody is said to have looked.
        let looked = self.rows(include_str!("looked.sql"), &[]).await.unwrap_or_default();
        let looked: BTreeMap<i32, i64> = looked.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut findings = Vec::new();
        for row in &rows {
            let (queue, is_paused): (&str, bool) = (row.try_get(0)?, row.try_get(1)?);
            let late: i64 = row.try_get(2)?;
            let unseen = looked.get(&row.try_get(3)?).copied().unwrap_or(i64::MAX);
            let severity = by_limit(&late, &LATE_MS);
            let found = format!(
                "The oldest due job of the queue {queue:?} has been waiting for {} to be claimed.",
                how_long_ms(late)
            );
            match severity {
                Severity::Good => {}
                _ if is_paused => findings.push(Finding::new(
                    "overdue jobs",
                    Severity::Notice,
                    format!("{found} The queue is paused."),
                    resume(queue),
                )),
                severity if unseen > UNSEEN_MS => findings.push(Finding::new(
                    "overdue jobs",
                    severity,
                    format!("{found} No engine has looked there for a minute or more."),
                    format!(
                        "start an engine that has the queue {queue:?}, or add it to one that runs, or see that a worker \
                         asks for its kind"
                    ),
                )),
                severity => findings.push(Finding::new(
                    "overdue jobs",
                    severity,
                    found,
                    "engines look there but have no free place, or no worker asks for its kind: raise the queue's \
                     concurrency, start more of them, or see what makes handlers slow",
                )),
            }
        }
        if findings.is_empty() {
            findings.push(Finding::good("overdue jobs", "No due job has been waiting for long."));
        }
        Ok(findings)
    }
}
