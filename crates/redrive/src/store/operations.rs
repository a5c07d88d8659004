//! What a store keeps for the people who operate it: figures by the minute, who did what, notices, corrections, and the
//! switch that holds everything. Beside the trait that engines live on, so that each stays on one screen.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Change;
use crate::job::{Job, JobId};
use crate::machine::Command;
use crate::operate::{Audit, AuditFilter, Edit, EditRecord, Notice, Point, Setting, Steps, Turn};
use crate::store::Filter;

/// The operators' side of a [`Store`](crate::Store). Every method is one transaction.
#[async_trait]
pub trait Operations: Send + Sync {
    /// What has happened in each of these steps, in order. Steps in which nothing happened are left out. Counted with
    /// what happened, in its transaction, in the minute in which it was written.
    async fn series(&self, steps: Steps) -> Result<Vec<Point>>;
    /// How many retries will be due in each of these steps, in order. Looks at no more than about `most` jobs of each
    /// queue and priority.
    async fn retries_due(&self, steps: Steps, most: usize) -> Result<Vec<(Timestamp, u64)>>;

    /// Jobs that may be waiting for another try, the next one first, at most `limit` behind this one.
    async fn retries(&self, after: Option<Turn>, limit: usize) -> Result<Vec<(Turn, JobId)>>;

    /// Writes an entry of the audit log, or what came of one that is there.
    async fn audit(&self, entry: &Audit) -> Result<()>;
    /// As [`Store::apply`](crate::Store::apply), for at most a page of jobs; and if it could be done to any of them, writes
    /// this entry as [`audit`](Operations::audit) does.
    async fn apply_audited(
        &self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
        entry: &Audit,
    ) -> Result<Vec<JobId>>;
    /// Sets something, and writes this entry as [`audit`](Operations::audit) does. Answers what became of a destination.
    async fn set_audited(&self, setting: &Setting, now: Timestamp, entry: &Audit) -> Result<Option<Change>>;
    /// Entries of the audit log with their places, newest first.
    async fn audited(&self, filter: &AuditFilter) -> Result<Vec<(i64, Audit)>>;

    /// Keeps a notice and gives its place; nothing if one with its key is there.
    async fn notice(&self, notice: &Notice) -> Result<Option<i64>>;
    /// The newest notices behind this place, at most `limit`, oldest first.
    async fn notices(&self, after: i64, limit: usize) -> Result<Vec<(i64, Notice)>>;

    /// Corrects a job as [`Edit::apply`] says, keeps what it was before, and writes this entry of the audit log if there is
    /// one.
    async fn edit(&self, id: JobId, edit: &Edit, now: Timestamp, entry: Option<&Audit>) -> Result<Job>;
    /// What a job was before it was corrected, oldest first.
    async fn edits(&self, id: JobId) -> Result<Vec<EditRecord>>;

    /// Hands out nothing from now on, whatever is due; or goes on. Other processes know within a second.
    async fn hold(&self, held: bool) -> Result<()>;
    /// Whether nothing is handed out.
    async fn is_held(&self) -> Result<bool>;

    /// Whether other processes may use this store at the same time: then they can tell each other what happens.
    fn is_shared(&self) -> bool {
        false
    }
    /// Tells all processes, this one included, and gives the place of what was told.
    async fn tell(&self, _news: &str) -> Result<i64> {
        Ok(0)
    }
    /// What was told behind this place, oldest first, at most `limit`.
    async fn told(&self, _after: i64, _limit: usize) -> Result<Vec<(i64, String)>> {
        Ok(Vec::new())
    }
    /// The places of the oldest and the newest that are remembered.
    async fn told_range(&self) -> Result<(i64, i64)> {
        Ok((0, 0))
    }
}

/// Which schema a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The one that was found; none if there is none yet.
    pub found: Option<usize>,
    /// The one that this version makes.
    pub known: usize,
}

pub(crate) fn not_there(id: JobId) -> Error {
    Error::new(ErrorKind::NotFound, format!("job {id} is not there"))
        .with_hint("it may have been finished and forgotten; look at its id again")
}
