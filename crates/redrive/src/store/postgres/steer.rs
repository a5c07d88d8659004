//! What a person asked for, and what is forgotten.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::types::Type;

use super::Inner;
use super::codec::{job_json, note_json, only, tally_json};
use super::database::Argument;
use super::fault::Fault;
use super::operations::{always, uuid_of, written};
use crate::clock::Timestamp;
use crate::job::{Job, JobId, State, StateName};
use crate::machine::{self, Command, Steer};
use crate::operate::Audit;
use crate::queue::Retention;
use crate::stats::{ACTIVITY_MAX, Activity, Tally};
use crate::store::{Filter, Page};

/// How often what was decided from a job that has changed meanwhile is decided again.
const TRIES_MAX: usize = 10;
/// Days for which tables are made ahead.
const DAYS_AHEAD: i32 = 3;
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Inner {
    pub(super) async fn apply(
        &self,
        command: Command,
        to: &Filter,
        limit: usize,
        now: Timestamp,
        entry: Option<&Audit>,
    ) -> Result<Vec<JobId>, Fault> {
        if command == Command::Delete {
            self.endings.forget();
        }
        let mut done = Vec::new();
        let mut before = None;
        while done.len() < limit {
            let page = self.list(to, Page { before, limit: (limit - done.len()).min(500) }).await?;
            done.extend(self.steer(command, to, page.jobs, now, entry).await?);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        Ok(done)
    }

    /// Does it to those of these jobs to which it can be done. One that moves while it is being decided is read again.
    async fn steer(
        &self,
        command: Command,
        to: &Filter,
        mut jobs: Vec<Job>,
        now: Timestamp,
        entry: Option<&Audit>,
    ) -> Result<Vec<JobId>, Fault> {
        let order: Vec<(i64, JobId)> = jobs.iter().map(|job| (job.seq, job.id)).collect();
        let mut done: Vec<i64> = Vec::new();
        for _ in 0..TRIES_MAX {
            let mut items = Vec::new();
            let mut lanes = Vec::new();
            for job in &jobs {
                let queue = self.names.queue_id(&self.database, &job.queue).await?;
                if let Some(item) = self.item(job, queue, command, now).await? {
                    items.push(item);
                    lanes.push(queue);
                }
            }
            if items.is_empty() {
                break;
            }
            let mut tally = Tally::default();
            tally.steered(command);
            let tally = (tally != Tally::default()).then(|| tally_json(tally));
            let items = Value::Array(items).to_string();
            let steered: [Argument<'_>; 3] =
                [(&lanes, Type::INT4_ARRAY), (&items, Type::TEXT), (&tally, Type::TEXT)];
            let rows = match entry {
                None => self.database.query(include_str!("steer.sql"), &steered).await?,
                Some(entry) => {
                    let (at, job) = (entry.at.as_millis(), entry.job.map(uuid_of));
                    let arguments = [&steered[..], &written(entry, &at, &job)[..]].concat();
                    self.database.query(include_str!("steer_audited.sql"), &arguments).await?
                }
            };
            let answer = only(&rows)?;
            done.extend(answer.try_get::<_, Vec<i64>>(0)?);
            let changed: Vec<i64> = answer.try_get(1)?;
            if changed.is_empty() {
                break;
            }
            let ids = order.iter().filter(|(seq, _)| changed.contains(seq)).map(|(_, id)| *id).collect();
            let again = Filter { ids, ..to.clone() };
            jobs = self.list(&again, Page { before: None, limit: changed.len() }).await?.jobs;
        }
        Ok(order.into_iter().filter(|(seq, _)| done.contains(seq)).map(|(_, id)| id).collect())
    }

    /// What a command makes of a job, as `redrive.steer` reads it.
    async fn item(
        &self,
        job: &Job,
        queue: i32,
        command: Command,
        now: Timestamp,
    ) -> Result<Option<Value>, Fault> {
        let extras = job.extras();
        let mut item = json!({
            "seq": job.seq, "id": job.id, "queue": queue, "attempt": job.ledger.attempt,
            "state": StateName::as_str(job.state.name()), "key": extras.key.as_deref(),
            "ordering_key": extras.ordering_key.as_deref(),
            "note": Activity::steered(job, command, now).as_ref().map(note_json),
        });
        if let State::Running { since } = job.state {
            item["started_at"] = json!(since.as_millis());
        }
        match machine::steer(job, command, now) {
            Steer::Refuse(_) => return Ok(None),
            Steer::Forget => item["to_state"] = json!("forgotten"),
            Steer::To(next) => match &next.state {
                State::Cancelled { at } => {
                    item["to_state"] = json!("cancelled");
                    item["at"] = json!(at.as_millis());
                }
                State::Waiting { due_at, reason } if job.state.name() == StateName::Waiting => {
                    item["to_state"] = json!("waiting");
                    item["at"] = json!(due_at.as_millis());
                    item["reason"] = json!(reason.as_str());
                }
                State::Waiting { due_at, reason } if job.state.name() == StateName::Running => {
                    item["to_state"] = json!("again");
                    item["at"] = json!(due_at.as_millis());
                    item["reason"] = json!(reason.as_str());
                    item["deadline"] = json!(next.buried_with(&next.ledger).map(Timestamp::as_millis));
                }
                _ => {
                    let policy = self.names.policy_id(&self.database, &next.policy).await?;
                    let time = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
                    item["to_state"] = json!("back");
                    item["stand"] = job_json(&next, queue.into(), policy.into());
                    item["deadline"] = json!(time(next.extras().deadline));
                    item["start_by"] = json!(time(next.extras().start_by));
                    item["revived_at"] = json!(time(next.extras().revived_at));
                }
            },
        }
        Ok(Some(item))
    }

    /// Forgets what is over: whole days where that is possible, else one by one.
    pub(super) async fn prune(
        &self,
        retention: &Retention,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, Fault> {
        let before = |kept: Duration| (now - kept).as_millis();
        self.tend_days(before(retention.succeeded), before(retention.cancelled)).await?;
        // What is kept for days goes with its day; only what is left of much older ones is forgotten one by one.
        let slack = |kept: Duration| if kept >= DAY { kept + DAY } else { kept };
        let (succeeded, cancelled) = (before(slack(retention.succeeded)), before(slack(retention.cancelled)));
        let dead = retention.dead.map(before);
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let forgotten = self
            .number(
                "SELECT redrive.forget($1, $2, $3, $4)",
                &[
                    (&succeeded, Type::INT8),
                    (&cancelled, Type::INT8),
                    (&dead, Type::INT8),
                    (&limit, Type::INT4),
                ],
            )
            .await?;
        let calls = "DELETE FROM redrive.calls WHERE at < $1";
        self.database.query(calls, &[(&before(crate::store::CALLS_KEPT), Type::INT8)]).await?;
        self.database.query("SELECT redrive.tidy($1)", &[(&ACTIVITY_MAX, Type::INT8)]).await?;
        Ok(u64::try_from(forgotten).unwrap_or(0))
    }

    /// Makes the tables of the next days.
    pub(super) async fn make_days(&self) -> Result<(), Fault> {
        self.database.query(include_str!("make_days.sql"), &[(&DAYS_AHEAD, Type::INT4)]).await.map(drop)
    }

    /// Makes the tables of the next days, and drops those of which everything is over.
    async fn tend_days(&self, succeeded: i64, cancelled: i64) -> Result<(), Fault> {
        self.make_days().await?;
        let over = succeeded.min(cancelled);
        let days = self.database.query(include_str!("days_over.sql"), &[(&over, Type::INT8)]).await?;
        for day in days {
            let day: String = day.try_get(0)?;
            let dropped = self
                .database
                .query(
                    "SELECT redrive.drop_day($1::text::date, $2, $3)",
                    &[(&day, Type::TEXT), (&succeeded, Type::INT8), (&cancelled, Type::INT8)],
                )
                .await;
            match dropped {
                Ok(rows) => {
                    let jobs: i64 = only(&rows)?.try_get(0)?;
                    tracing::info!(day, jobs, "A day of finished jobs was forgotten");
                }
                // Someone reads it, or another instance is at it: the next time.
                Err(fault) => {
                    tracing::debug!(day, %fault, "A day of finished jobs could not be forgotten yet")
                }
            }
        }
        Ok(())
    }

    pub(super) async fn pause(&self, queue: &str, paused: bool, entry: Option<&Audit>) -> Result<(), Fault> {
        let arguments: [Argument<'_>; 2] = [(&queue, Type::TEXT), (&paused, Type::BOOL)];
        self.written_down(entry, include_str!("pause.sql"), &arguments, always).await.map(drop)
    }
}
