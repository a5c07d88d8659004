//! `redrive jobs`: lists, pages and what can be done to jobs.

use clap::{Args, Subcommand};
use redrive::{Clock, JobId, Timestamp, span};
use redrive_server::{printable, printable_json};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::edit::{self, Edit};
use super::listed::{JobLine, RawPage, Which, each_page, print_jobs, sentence};
use super::many::{Act, Chosen, States, act};
use super::{colour_of, print_all_json, print_json, up_to};
use crate::client::{Client, Data, Need, Target, query};
use crate::out::{self, Colour};
use crate::table::{Table, facts, number, text};
use crate::times::{self, When};
use crate::trouble::{Done, Trouble};

/// What to do with jobs.
#[derive(Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, newest first
    List(List),
    /// Show a job with its attempts
    Show(Named),
    /// Say why a job is where it is, until when, and what comes next
    Explain(Named),
    /// Let waiting jobs run now
    Retry(Steered),
    /// Take jobs back, waiting or running
    ///
    /// A cancelled job can be brought back with `redrive jobs redrive`.
    Cancel(Steered),
    /// Bring dead or cancelled jobs back: their counters restart, their history stays
    Redrive(Steered),
    /// Forget finished jobs for good
    Delete(Steered),
    /// Put a waiting job off for a while
    Snooze(Snooze),
    /// Let a waiting job run at another time
    Reschedule(Reschedule),
    /// Correct a job that waits, or is dead or cancelled and will be redriven
    ///
    /// Without saying what, opens it in your editor. What it was before stays in its history.
    Edit(Box<Edit>),
}

/// Which jobs to list.
#[derive(Args)]
pub(crate) struct List {
    /// In one of these states: waiting, running, succeeded, dead, cancelled
    #[arg(long, value_name = "STATE[,STATE]", help_heading = "Which jobs")]
    state: Option<String>,
    #[command(flatten)]
    page: Paged,
}

/// Which of them, and how many.
#[derive(Args)]
pub(crate) struct Paged {
    #[command(flatten)]
    pub(crate) which: Which,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = up_to::<1000>)]
    pub(crate) limit: u32,
    /// However many there are
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Go on after the last list: its nextCursor
    #[arg(long, conflicts_with = "all")]
    pub(crate) cursor: Option<String>,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Jobs by their ids.
#[derive(Args)]
pub(crate) struct Named {
    /// The jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<JobId>,
    #[command(flatten)]
    target: Target,
}

/// Jobs to which something is done.
#[derive(Args)]
pub(crate) struct Steered {
    /// In one of these states: waiting, running, succeeded, dead, cancelled
    #[arg(long, value_name = "STATE[,STATE]", help_heading = "Which jobs")]
    state: Option<String>,
    #[command(flatten)]
    chosen: Chosen,
}

impl Steered {
    async fn act(&self, what: Act, now: Timestamp) -> Done {
        act(what, &self.chosen, States::Given(self.state.as_deref()), now).await
    }
}

/// A job, and for how long.
#[derive(Args)]
pub(crate) struct Snooze {
    /// The job
    id: JobId,
    /// For how long from now, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    delay: std::time::Duration,
    #[command(flatten)]
    target: Target,
}

/// A job, and until when.
#[derive(Args)]
pub(crate) struct Reschedule {
    /// The job
    id: JobId,
    /// When: a time such as 2026-03-01T14:00:00Z, or how long from now
    #[arg(long, value_name = "TIME|DURATION")]
    run_at: When,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(command: JobsCommand) -> Done {
    let now = Clock::system().now();
    match command {
        JobsCommand::Edit(edit) => edit::run(&edit).await,
        JobsCommand::List(list) => {
            let states = list.state.map(|state| ("state", state));
            print_list("/jobs", states.into_iter().collect(), &list.page, now).await
        }
        JobsCommand::Show(named) => show(&named, now).await,
        JobsCommand::Explain(named) => explain(&named, now).await,
        JobsCommand::Retry(steered) => steered.act(Act::Retry, now).await,
        JobsCommand::Cancel(steered) => steered.act(Act::Cancel, now).await,
        JobsCommand::Redrive(steered) => steered.act(Act::Redrive, now).await,
        JobsCommand::Delete(steered) => steered.act(Act::Delete, now).await,
        JobsCommand::Snooze(Snooze { id, delay, target }) => {
            put_off(&target, id, "snooze", json!({ "delay": span::format(delay) })).await
        }
        JobsCommand::Reschedule(Reschedule { id, run_at, target }) => {
            put_off(&target, id, "reschedule", json!({ "runAt": run_at.ahead(now) })).await
        }
    }
}

async fn put_off(target: &Target, id: JobId, how: &str, body: serde_json::Value) -> Done {
    let data = target.reach(Need::Store).await?.post(&format!("/jobs/{id}/{how}"), &body).await?;
    match target.json {
        true => print_json(&data),
        false => out::answer(&sentence(&data.read()?)),
    }
    Ok(())
}

/// A list of jobs, of which there may be more than were asked for.
pub(crate) async fn print_list(
    path: &str,
    mut pairs: Vec<(&'static str, String)>,
    page: &Paged,
    now: Timestamp,
) -> Done {
    pairs.extend(page.which.pairs(now));
    let client = page.target.reach(Need::Store).await?;
    if page.all {
        let mut items: Vec<Box<RawValue>> = Vec::new();
        each_page(&client, path, &pairs, |found| items.extend(found)).await?;
        return print_page(&RawPage { items, next_cursor: None }, page, now);
    }
    pairs.push(("limit", page.limit.to_string()));
    pairs.extend(page.cursor.clone().map(|cursor| ("cursor", cursor)));
    let data = client.get(&format!("{path}{}", query(&pairs))).await?;
    if page.target.json {
        print_json(&data);
        return Ok(());
    }
    print_page(&data.read()?, page, now)
}

fn print_page(found: &RawPage, page: &Paged, now: Timestamp) -> Done {
    if page.target.json {
        let items: Vec<&str> = found.items.iter().map(|item| item.get()).collect();
        out::answer(&printable_json(&format!("{{\"items\":[{}]}}", items.join(","))));
        return Ok(());
    }
    let jobs: Result<Vec<JobLine>, _> =
        found.items.iter().map(|item| serde_json::from_str(item.get())).collect();
    let jobs = jobs.map_err(|error| Trouble::from(anyhow::Error::from(error)))?;
    if jobs.is_empty() {
        out::note("no jobs");
        return Ok(());
    }
    print_jobs(&jobs, now);
    if let Some(cursor) = &found.next_cursor {
        out::note(&format!("there are more: --cursor {cursor}, or --all"));
    }
    Ok(())
}

async fn of_each(client: &Client, ids: &[JobId], tail: &str) -> Done<Vec<Data>> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(client.get(&format!("/jobs/{id}{tail}")).await?);
    }
    Ok(answers)
}

async fn show(named: &Named, now: Timestamp) -> Done {
    let answers = of_each(&named.target.reach(Need::Store).await?, &named.ids, "").await?;
    if named.target.json {
        print_all_json(&answers);
        return Ok(());
    }
    for (at, data) in answers.iter().enumerate() {
        if at > 0 {
            out::answer("");
        }
        print_detail(&data.read()?, now);
    }
    Ok(())
}

/// A job's page.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    #[serde(flatten)]
    line: JobLine,
    #[serde(default)]
    payload: Option<serde_json::Value>,
    priority: i16,
    key: Option<String>,
    ordering_key: Option<String>,
    destination: Option<String>,
    parent: Option<String>,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
    deadline: Option<Timestamp>,
    start_by: Option<Timestamp>,
    timeout: Option<String>,
    created_by: Option<String>,
    last_error: Option<FailureLine>,
    #[serde(default)]
    attempts: Vec<AttemptLine>,
    output: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttemptLine {
    attempt: u32,
    started_at: Timestamp,
    ended_at: Timestamp,
    ending: String,
    failure: Option<FailureLine>,
    next_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct FailureLine {
    class: String,
    code: Option<String>,
    status: Option<u16>,
    message: String,
}

fn print_detail(detail: &Detail, now: Timestamp) {
    let line = &detail.line;
    let state = out::coloured(&line.state, colour_of(&line.state).unwrap_or(Colour::Dim));
    let reason =
        line.why.as_deref().or(line.reason.as_deref()).map(|why| format!(", {}", why.replace('_', " ")));
    let when = line.due_at.or(line.running_since).or(line.finished_at);
    let when = when.map(|at| format!(", {}", times::both(at, now))).unwrap_or_default();
    let mut about = vec![
        ("job", printable(&line.id).into_owned()),
        ("state", format!("{state}{}{when}", printable(&reason.unwrap_or_default()))),
        ("kind", printable(&line.kind).into_owned()),
        ("queue", format!("{}, priority {}", printable(&line.queue), detail.priority)),
        ("enqueued", times::both(line.created_at, now)),
        ("runs", format!("{}, retry {}", line.attempt, line.retries())),
    ];
    let labels: Vec<String> = detail.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let json = |value: &Option<serde_json::Value>| value.as_ref().map(ToString::to_string);
    let more = [
        ("by", detail.created_by.clone()),
        ("key", detail.key.clone()),
        ("ordering key", detail.ordering_key.clone()),
        ("destination", detail.destination.clone()),
        ("parent", detail.parent.clone()),
        ("labels", (!labels.is_empty()).then(|| labels.join(", "))),
        ("deadline", detail.deadline.map(|at| times::both(at, now))),
        ("start by", detail.start_by.map(|at| times::both(at, now))),
        ("timeout", detail.timeout.clone()),
        ("payload", json(&detail.payload)),
        ("output", json(&detail.output)),
        ("last error", detail.last_error.as_ref().map(|error| error.message.clone())),
    ];
    about.extend(more.into_iter().filter_map(|(name, value)| Some((name, printable(&value?).into_owned()))));
    facts(&about);
    if !detail.attempts.is_empty() {
        out::answer("");
        print_attempts(&detail.attempts);
    }
}

fn print_attempts(attempts: &[AttemptLine]) {
    let mut table = Table::new(&["run", "started", "took", "ended", "class", "next", "message"]);
    for attempt in attempts {
        let failure = attempt.failure.as_ref();
        let mark = failure.map(|failure| match (&failure.code, failure.status) {
            (Some(code), _) => format!("{code}: {}", failure.message),
            (None, Some(status)) => format!("{status}: {}", failure.message),
            (None, None) => failure.message.clone(),
        });
        let next = attempt.next_at.map(|at| format!("after {}", times::rough(at.since(attempt.ended_at))));
        table.row(vec![
            number(attempt.attempt),
            text(times::local(attempt.started_at)),
            text(times::rough(attempt.ended_at.since(attempt.started_at))),
            text(attempt.ending.replace('_', " ")),
            text(failure.map(|failure| failure.class.replace('_', " ")).unwrap_or_default()),
            text(next.unwrap_or_default()),
            text(mark.unwrap_or_default()),
        ]);
    }
    table.print();
}

/// Why a job is where it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    id: String,
    summary: String,
    retry: Option<String>,
    last_error: Option<String>,
    next: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    step: String,
    run: Option<u32>,
    at: Timestamp,
    why: Option<String>,
}

async fn explain(named: &Named, now: Timestamp) -> Done {
    let answers = of_each(&named.target.reach(Need::Store).await?, &named.ids, "/explain").await?;
    if named.target.json {
        print_all_json(&answers);
        return Ok(());
    }
    for (at, data) in answers.iter().enumerate() {
        if at > 0 {
            out::answer("");
        }
        let explained: Explained = data.read()?;
        let id = printable(&explained.id).into_owned();
        out::answer(&format!("{}  {}", out::coloured(&id, Colour::Bold), printable(&explained.summary)));
        let about = [("retry", explained.retry), ("last error", explained.last_error)];
        let about =
            about.into_iter().filter_map(|(name, value)| Some((name, printable(&value?).into_owned())));
        facts(&about.collect::<Vec<_>>());
        if !explained.next.is_empty() {
            out::answer("\nIf it goes on failing:");
        }
        let mut table = Table::new(&["when", "at", "what"]);
        for step in &explained.next {
            let what = match (step.run, &step.why) {
                (Some(run), _) => format!("run {run}"),
                (None, Some(why)) => format!("{}: {}", step.step, why.replace('_', " ")),
                (None, None) => step.step.clone(),
            };
            table.row(vec![text(times::relative(step.at, now)), text(times::local(step.at)), text(what)]);
        }
        if !explained.next.is_empty() {
            table.print();
        }
    }
    Ok(())
}
