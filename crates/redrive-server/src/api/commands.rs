//! What a person asks of jobs: of one by its id, or of all that match.

use axum::extract::State;
use redrive::{Applied, Command, Engine, Filter, JobId, StateName, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Path, Refused, invalid, ok};
use super::audit::{By, On};
use super::edit::{EditForm, detail, edit_part};
use super::forms::{FilterForm, Span, object};
use super::operations::{self, OperationView};
use super::views::DetailView;
use crate::door::{Refusal, Scope, Who};

/// Counting further would be slow, and nobody reads the number.
const COUNT_MAX: usize = 10_000;

async fn carry_out(api: &Api, by: &By, command: Command, id: JobId) -> Answer<DetailView> {
    by.who.need(Scope::Operate)?;
    let what = format!("jobs.{}", word(command));
    let change = |engine: Engine| async move {
        match command {
            Command::Cancel => engine.cancel(id).await?,
            Command::RetryNow => engine.retry_now(id).await?,
            Command::Reschedule(at) => engine.reschedule(id, at).await?,
            Command::Redrive => engine.redrive(id).await?,
            Command::Hurry => drop(engine.apply(command, &Filter::id(id)).await?),
            Command::Delete => engine.delete(id).await?,
        }
        Ok(())
    };
    by.steered(api, &what, On::job(id), change).await?;
    ok(detail(api, &by.who, id).await?)
}

/// A command as the audit log has it.
fn word(command: Command) -> &'static str {
    match command {
        Command::Cancel => "cancel",
        Command::RetryNow => "retry",
        Command::Reschedule(_) => "reschedule",
        Command::Redrive => "redrive",
        Command::Hurry => "hurry",
        Command::Delete => "delete",
    }
}

/// Lets a waiting job run now.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", operation_id = "retryJob", tag = "jobs", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<DetailView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn retry(state: State<Api>, by: By, id: Path<JobId>) -> Answer<DetailView> {
    carry_out(&state, &by, Command::RetryNow, id.0).await
}

/// Takes a job back, waiting or running.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", operation_id = "cancelJob", tag = "jobs", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<DetailView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn cancel(state: State<Api>, by: By, id: Path<JobId>) -> Answer<DetailView> {
    carry_out(&state, &by, Command::Cancel, id.0).await
}

/// Brings a dead or cancelled job back: its counters restart, its history stays.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/redrive", operation_id = "redriveJob", tag = "jobs", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Envelope<DetailView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn redrive(state: State<Api>, by: By, id: Path<JobId>) -> Answer<DetailView> {
    carry_out(&state, &by, Command::Redrive, id.0).await
}

/// For how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SnoozeForm {
    /// From now.
    delay: Span,
}

/// Puts a waiting job off.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/snooze", operation_id = "snoozeJob", tag = "jobs", params(("id" = String, Path, format = "uuid")), request_body = SnoozeForm, responses(
    (status = 200, body = Envelope<DetailView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn snooze(
    state: State<Api>,
    by: By,
    id: Path<JobId>,
    body: Body<SnoozeForm>,
) -> Answer<DetailView> {
    let at = state.engine().now() + body.value.delay.0;
    carry_out(&state, &by, Command::Reschedule(at), id.0).await
}

/// Until when.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RescheduleForm {
    /// When it is to run.
    #[schema(value_type = String, format = DateTime)]
    run_at: Timestamp,
}

/// Lets a waiting job run at another time.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/reschedule", operation_id = "rescheduleJob", tag = "jobs", params(("id" = String, Path, format = "uuid")), request_body = RescheduleForm, responses(
    (status = 200, body = Envelope<DetailView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn reschedule(
    state: State<Api>,
    by: By,
    id: Path<JobId>,
    body: Body<RescheduleForm>,
) -> Answer<DetailView> {
    carry_out(&state, &by, Command::Reschedule(body.value.run_at), id.0).await
}

/// Something to be done to all jobs that match.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "command": "redrive", "filter": { "state": "dead", "kind": "http" }, "dryRun": true }))]
pub(super) struct BulkForm {
    command: BulkCommand,
    /// Which jobs; those in states to which it can be done, if none is named. To mean all of them, leave it out and say
    /// `"all": true`.
    #[serde(default, deserialize_with = "object")]
    filter: FilterForm,
    /// All jobs are meant.
    #[serde(default)]
    all: bool,
    /// Whether those that match are only counted: send `true` first, and then `false`.
    dry_run: bool,
    /// Answers at once with an operation, which says how far it is and can be stopped.
    #[serde(default)]
    background: bool,
    /// For how long, from now: with `snooze`.
    delay: Option<Span>,
    /// When they are to run: with `reschedule`.
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<Timestamp>,
    /// What is to be changed: with `edit`. For another payload the filter has to name a kind.
    #[serde(default, deserialize_with = "crate::reading::object_if_any")]
    edit: Option<EditForm>,
}

/// What can be done to many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum BulkCommand {
    Cancel,
    Retry,
    Snooze,
    Reschedule,
    Edit,
    Redrive,
    Delete,
}

impl BulkCommand {
    /// As it is written.
    fn name(self) -> &'static str {
        match self {
            BulkCommand::Cancel => "cancel",
            BulkCommand::Retry => "retry",
            BulkCommand::Snooze => "snooze",
            BulkCommand::Reschedule => "reschedule",
            BulkCommand::Edit => "edit",
            BulkCommand::Redrive => "redrive",
            BulkCommand::Delete => "delete",
        }
    }

    /// The states in which it can be done.
    fn fits(self) -> &'static [StateName] {
        use StateName::{Cancelled, Dead, Running, Succeeded, Waiting};
        match self {
            BulkCommand::Cancel => &[Waiting, Running],
            BulkCommand::Retry | BulkCommand::Snooze | BulkCommand::Reschedule => &[Waiting],
            BulkCommand::Edit => &[Waiting, Dead, Cancelled],
            BulkCommand::Redrive => &[Dead, Cancelled],
            BulkCommand::Delete => &[Succeeded, Dead, Cancelled],
        }
    }
}

/// What is done to each of many.
pub(super) enum Deed {
    Steer(Command),
    Edit(Box<EditForm>),
}

impl Deed {
    /// Does it to the next part of those that match.
    pub(super) async fn part(
        &self,
        api: &Api,
        who: &Who,
        engine: &Engine,
        filter: &Filter,
        before: Option<i64>,
    ) -> Result<Applied, Refusal> {
        match self {
            Deed::Steer(command) => Ok(engine.apply_part(*command, filter, before).await?),
            Deed::Edit(form) => edit_part(api, who, engine, form, filter, before).await,
        }
    }
}

impl BulkForm {
    fn deed(&mut self, api: &Api) -> Result<Deed, Refusal> {
        let given = (self.delay.take(), self.run_at.take(), self.edit.take());
        let steer = match (self.command, given) {
            (BulkCommand::Cancel, (None, None, None)) => Command::Cancel,
            (BulkCommand::Retry, (None, None, None)) => Command::RetryNow,
            (BulkCommand::Redrive, (None, None, None)) => Command::Redrive,
            (BulkCommand::Delete, (None, None, None)) => Command::Delete,
            (BulkCommand::Snooze, (Some(delay), None, None)) => {
                Command::Reschedule(api.engine().now() + delay.0)
            }
            (BulkCommand::Reschedule, (None, Some(at), None)) => Command::Reschedule(at),
            (BulkCommand::Edit, (None, None, Some(edit))) => {
                edit.check_for_many(api, self.filter.kind.as_deref())?;
                return Ok(Deed::Edit(Box::new(edit)));
            }
            (command, _) => {
                let message =
                    format!("{} goes with something else than what is given beside it", command.name());
                let hint = "send delay with snooze, runAt with reschedule, edit with edit, and none of them with others";
                return Err(invalid(message, hint));
            }
        };
        Ok(Deed::Steer(steer))
    }
}

/// What was done to many, or would be.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BulkView {
    /// How many match. Counted up to 10,000.
    matching: usize,
    /// Whether there may be more than were counted.
    more: bool,
    /// To how many it was done; missing in a dry run, and in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<u64>,
    /// What does it in the background: ask for it at `/operations/{id}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<OperationView>,
}

/// Counts all jobs that match, or does something to those of them to which it can be done.
#[utoipa::path(post, path = "/api/v1/jobs/commands", operation_id = "commandJobs", tag = "jobs", request_body = BulkForm, responses(
    (status = 200, body = Envelope<BulkView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn by_filter(state: State<Api>, by: By, body: Body<BulkForm>) -> Answer<BulkView> {
    by.who.need(Scope::Operate)?;
    let mut form = body.value;
    let deed = form.deed(&state)?;
    let BulkForm { command, filter: asked, all, dry_run, background, .. } = form;
    if asked.is_empty() != all {
        let message = if all { "all jobs are meant, and a filter is given" } else { "no filter is given" };
        return Err(invalid(message, "send a filter, or \"all\": true, but not both"));
    }
    let on = if all { "all".to_owned() } else { serde_json::to_string(&asked).unwrap_or_default() };
    let mut filter = asked.clone().into_filter()?;
    if filter.states.is_empty() {
        filter.states = command.fits().to_vec();
    }
    let matching = state.engine().count(&filter, COUNT_MAX).await?;
    let more = matching >= COUNT_MAX;
    if dry_run {
        return ok(BulkView { matching, more, done: None, operation: None });
    }
    let what = format!("jobs.{}_all", command.name());
    if background {
        let begun = operations::Begun { command, deed, asked, filter, matching, more, what, on };
        return ok(BulkView { matching, more, done: None, operation: Some(begun.start(&state, by).await?) });
    }
    let (api, who) = (&state, &by.who);
    let change = |engine: Engine| async move {
        let (mut done, mut before) = (0, None);
        loop {
            let part = deed.part(api, who, &engine, &filter, before).await?;
            done += part.done;
            before = part.next;
            if before.is_none() {
                return Ok(done);
            }
        }
    };
    let done = by.steered(&state, &what, On::named(&on), change).await?;
    ok(BulkView { matching, more, done: Some(done), operation: None })
}
