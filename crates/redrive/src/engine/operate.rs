//! What people ask of an engine besides jobs: figures over time, who did what, notices, corrections, and a halt.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::gate::Change;
use crate::job::{AttemptRecord, Job, JobId, NewJob, StateName};
use crate::machine::{Command, WAIT_MAX};
use crate::operate::{Audit, AuditFilter, Edit, EditRecord, Notice, Point, Setting, Steps, Turn};
use crate::policy::Origin;
use crate::stats::Activity;
use crate::store::{Filter, Operations, PAGE_MAX, Page};

impl Engine {
    fn operations(&self) -> &dyn Operations {
        self.inner().store.operations()
    }

    /// The newest lines of the activity log.
    pub async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        self.inner().store.activity(limit).await
    }

    /// What has happened in each of these steps, on all engines of the store. Steps in which nothing happened are left
    /// out.
    pub async fn series(&self, steps: Steps) -> Result<Vec<Point>> {
        self.operations().series(steps).await
    }

    /// How many retries will be due in each of these steps. Looks at no more than about `most` jobs of each queue and
    /// priority.
    pub async fn retries_due(&self, steps: Steps, most: usize) -> Result<Vec<(Timestamp, u64)>> {
        self.operations().retries_due(steps, most).await
    }

    /// Jobs that wait for another try, here or after they failed elsewhere: at most a page of them behind this turn, the next
    /// one first, and the turn to go on behind, if there may be more.
    pub async fn retries(&self, after: Option<Turn>, limit: usize) -> Result<(Vec<Job>, Option<Turn>)> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut jobs, mut last) = (Vec::new(), after);
        loop {
            let wanted = limit - jobs.len();
            let found = self.operations().retries(last, wanted).await?;
            let Some((turn, _)) = found.last() else { break };
            last = Some(*turn);
            let ids: Vec<JobId> = found.iter().map(|(_, id)| *id).collect();
            let (is_end, page) = (ids.len() < wanted, Page { before: None, limit: ids.len() });
            let filter = Filter { ids, ..Filter::state(StateName::Waiting) };
            let waiting = self.inner().store.list(&filter, page).await?.jobs.into_iter();
            // What runs by now, or was only put off, is none.
            let mut turns: Vec<(Turn, Job)> =
                waiting.filter_map(|job| Some((Turn::of_retry(&job)?, job))).collect();
            turns.sort_unstable_by_key(|(turn, _)| *turn);
            jobs.extend(turns.into_iter().map(|(_, job)| job));
            if is_end || jobs.len() == limit {
                return Ok((jobs, last.filter(|_| !is_end)));
            }
        }
        Ok((jobs, None))
    }

    /// About how many wait or run because something failed before, counted up to `most`.
    pub async fn retries_count(&self, most: usize) -> Result<usize> {
        let (mut count, mut last) = (0, None);
        while count < most {
            let wanted = PAGE_MAX.min(most - count);
            let found = self.operations().retries(last, wanted).await?;
            count += found.len();
            last = found.last().map(|(turn, _)| *turn);
            if found.len() < wanted {
                break;
            }
        }
        Ok(count)
    }

    /// Corrects a job that waits, or is dead or cancelled and will be redriven. What it was before is kept.
    ///
    /// # Errors
    ///
    /// See [`Edit::apply`].
    pub async fn edit(&self, id: JobId, edit: Edit) -> Result<Job> {
        let now = self.now();
        let job = self.operations().edit(id, &edit, now, self.asked.as_deref()).await?;
        self.inner().edited(&job, &edit.by, now);
        Ok(job)
    }

    /// What a job was before it was corrected, oldest first.
    pub async fn edits(&self, id: JobId) -> Result<Vec<EditRecord>> {
        self.operations().edits(id).await
    }

    /// The last attempt of each of these jobs that ended in a failure, of those that have one: for a list of them.
    pub async fn last_failed(&self, jobs: &[Job]) -> Result<BTreeMap<JobId, AttemptRecord>> {
        let tried = jobs.iter().filter(|job| job.ledger.attempt > 0 || job.origin == Origin::External);
        self.inner().store.last_failed(&tried.cloned().collect::<Vec<_>>()).await
    }

    /// Whether this engine runs jobs of a kind itself. Others may be run by another process, or by a worker.
    pub fn runs(&self, kind: &str) -> bool {
        self.inner().handlers.get(kind).is_some()
    }

    /// Whether a job would be taken, as far as that is known before its key and the room in its queue are looked at.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self, job: &NewJob) -> Result<()> {
        self.inner().admit(job.clone()).map(drop)
    }

    /// Writes an entry of the audit log, or what came of one that is there.
    pub async fn audit(&self, entry: &Audit) -> Result<()> {
        self.operations().audit(entry).await
    }

    /// The same engine on somebody's behalf. What it is told to do to jobs, and what is set, is written down with this entry
    /// of the audit log, in the very transaction that does it; where nothing can be done, nothing is written.
    #[must_use]
    pub fn asked_by(&self, entry: Audit) -> Engine {
        Engine { asked: Some(Arc::new(entry)), ..self.clone() }
    }

    /// Does it to those jobs to which it can be done, and writes down who asked for it.
    pub(super) async fn change(
        &self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<JobId>> {
        refuse_what_none_could_do(command, now)?;
        match &self.asked {
            None => self.inner().store.apply(command, to, limit, now).await,
            Some(entry) => self.operations().apply_audited(command, to, limit, now, entry).await,
        }
    }

    /// Sets something, and writes down who asked for it.
    pub(super) async fn set(&self, setting: Setting) -> Result<Option<Change>> {
        let store = &self.inner().store;
        if let Some(entry) = &self.asked {
            return self.operations().set_audited(&setting, self.now(), entry).await;
        }
        match setting {
            Setting::Queue { name, paused } => store.pause(&name, paused).await?,
            Setting::Held(held) => self.operations().hold(held).await?,
            Setting::Record { shelf, name, value } => store.keep(&shelf, &name, value).await?,
            Setting::Destination { name, word } => {
                return store.destinations().tell(&name, word, self.now()).await;
            }
        }
        Ok(None)
    }

    /// Entries of the audit log with their places, newest first.
    pub async fn audited(&self, filter: &AuditFilter) -> Result<Vec<(i64, Audit)>> {
        self.operations().audited(filter).await
    }

    /// Keeps a notice and gives its place; nothing if one with its key is there.
    pub async fn notice(&self, notice: &Notice) -> Result<Option<i64>> {
        self.operations().notice(notice).await
    }

    /// The newest notices behind this place, at most `limit`, oldest first.
    pub async fn notices(&self, after: i64, limit: usize) -> Result<Vec<(i64, Notice)>> {
        self.operations().notices(after, limit).await
    }

    /// Hands out nothing from now on, on every engine of the store within a second: what runs may finish, nothing begins.
    pub async fn hold(&self) -> Result<()> {
        self.set(Setting::Held(true)).await.map(drop)
    }

    /// Goes on after [`Engine::hold`].
    pub async fn unhold(&self) -> Result<()> {
        self.set(Setting::Held(false)).await.map(drop)
    }

    /// Whether nothing is handed out.
    pub async fn is_held(&self) -> Result<bool> {
        self.operations().is_held().await
    }

    /// Whether other processes may use the store at the same time, so that [`Engine::tell`] reaches anybody.
    pub fn is_shared(&self) -> bool {
        self.operations().is_shared()
    }

    /// Tells all processes of the store, this one included, and gives the place of what was told.
    pub async fn tell(&self, news: &str) -> Result<i64> {
        self.operations().tell(news).await
    }

    /// What was told behind this place, oldest first, at most `limit`.
    pub async fn told(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        self.operations().told(after, limit).await
    }

    /// The places of the oldest and the newest that are remembered of what was told.
    pub async fn told_range(&self) -> Result<(i64, i64)> {
        self.operations().told_range().await
    }
}

fn refuse_what_none_could_do(command: Command, now: Timestamp) -> Result<()> {
    match command {
        Command::Reschedule(at) if at.since(now) > WAIT_MAX => Err(Error::invalid(
            format!("{at} is too far away for a job to wait"),
            "let it run within a hundred years",
        )),
        _ => Ok(()),
    }
}
