//! `redrive executions`: workflows under way, and what can be done about them.

use clap::{Args, Subcommand};
use http::Method;
use redrive::{Clock, JobId, Timestamp};
use redrive_server::{printable, printable_json};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::listed::RawPage;
use super::many::confirm;
use super::{colour_of, json_from, print_json, up_to};
use crate::client::{Client, Data, Need, Target, query, segment};
use crate::out::{self, Colour};
use crate::table::{self, Table, facts, number, text};
use crate::times;
use crate::trouble::Done;

/// What to do with executions.
#[derive(Subcommand)]
pub(crate) enum ExecutionsCommand {
    /// List executions, newest first
    List(List),
    /// Show an execution with its nodes
    Show(Named),
    /// Start a failed execution anew, or run one of its nodes again
    ///
    /// A failed execution is started anew with what it was started with; its id is printed. With --node, that node runs
    /// again, and the execution goes on where it stopped.
    Retry(Retry),
    /// Take an execution back, with all of its nodes
    Cancel(Named),
    /// Forget a finished execution, with all of its nodes
    Delete(Delete),
    /// Start an execution
    ///
    /// FILE has the workflow as JSON: {"workflow":{"nodes":[…]},"input":…}. Prints the id of the execution. When it does,
    /// all of its nodes are durable. See docs/guides/workflows.md.
    Start(Start),
}

/// Which executions to list.
#[derive(Args)]
pub(crate) struct List {
    /// In one of these states: waiting, running, succeeded, dead, cancelled
    #[arg(long, value_name = "STATE[,STATE]")]
    state: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = up_to::<100>)]
    limit: u32,
    /// Go on after the last list: its nextCursor
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// One execution.
#[derive(Args)]
pub(crate) struct Named {
    /// The execution
    id: JobId,
    #[command(flatten)]
    target: Target,
}

/// One execution, and whether to ask.
#[derive(Args)]
pub(crate) struct Delete {
    /// The execution
    id: JobId,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

/// One execution, or one of its nodes.
#[derive(Args)]
pub(crate) struct Retry {
    /// The execution
    id: JobId,
    /// Only this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// A workflow.
#[derive(Args)]
pub(crate) struct Start {
    /// The file, or - for stdin
    file: String,
    /// What it is started with, instead of the file's `input`: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// An execution, as far as lists show it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    id: String,
    state: String,
    counts: Counts,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
    retry_at: Option<Timestamp>,
    retry: u32,
    retry_of: Option<String>,
    retried_by: Option<String>,
    last_error: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    total: u64,
    running: u64,
    succeeded: u64,
    dead: u64,
}

/// An execution with its nodes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    #[serde(flatten)]
    line: Line,
    nodes: Vec<NodeLine>,
    output: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeLine {
    node_id: String,
    job_id: String,
    kind: String,
    after: Vec<String>,
    state: String,
    reason: Option<String>,
    due_at: Option<Timestamp>,
    running_since: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    attempt: u32,
    failures: u32,
    last_error: Option<String>,
}

pub(crate) async fn run(command: ExecutionsCommand) -> Done {
    match command {
        ExecutionsCommand::List(given) => list(&given).await,
        ExecutionsCommand::Show(Named { id, target }) => {
            let data = target.reach(Need::Store).await?.get(&path(id, "")).await?;
            show(&target, &data)
        }
        ExecutionsCommand::Retry(Retry { id, node: None, target }) => {
            let data = ask(&target, Method::POST, &path(id, "/retry")).await?;
            if !target.json {
                out::answer(&printable(&data.read::<Whole>()?.line.id));
                return Ok(());
            }
            print_json(&data);
            Ok(())
        }
        ExecutionsCommand::Retry(Retry { id, node: Some(node), target }) => {
            let path = path(id, &format!("/nodes/{}/retry", segment(&node)));
            show(&target, &ask(&target, Method::POST, &path).await?)
        }
        ExecutionsCommand::Cancel(Named { id, target }) => {
            show(&target, &ask(&target, Method::POST, &path(id, "/cancel")).await?)
        }
        ExecutionsCommand::Delete(Delete { id, yes, target }) => {
            if !yes {
                confirm(&format!("Forget the execution {id} for good, with all of its nodes?")).await?;
            }
            let data = ask(&target, Method::DELETE, &path(id, "")).await?;
            match target.json {
                true => print_json(&data),
                false => out::note(&format!("{id} is forgotten, with all of its nodes")),
            }
            Ok(())
        }
        ExecutionsCommand::Start(given) => start(&given).await,
    }
}

fn path(id: JobId, rest: &str) -> String {
    format!("/executions/{id}{rest}")
}

async fn ask(target: &Target, method: Method, path: &str) -> Done<Data> {
    let client: Client = target.reach(Need::Store).await?;
    client.ask(method, path, None::<&()>).await
}

async fn start(given: &Start) -> Done {
    let at = if given.file == "-" { "-".to_owned() } else { format!("@{}", given.file) };
    let mut form: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(json_from(&at, "FILE")?.get()).map_err(|error| {
            let hint = "write {\"workflow\":{\"nodes\":[…]},\"input\":…}; see docs/guides/workflows.md";
            crate::trouble::Trouble::usage(format!("FILE is no workflow: {error}"), hint)
        })?;
    if let Some(input) = &given.input {
        let input = json_from(input, "--input")?;
        form.insert("input".into(), serde_json::from_str(input.get()).unwrap_or_default());
    }
    let data = given.target.reach(Need::AnyStore).await?.post("/executions", &form).await?;
    if given.target.json {
        print_json(&data);
        return Ok(());
    }
    #[derive(Deserialize)]
    struct Started {
        id: String,
    }
    // The id alone, so that a script can take it.
    out::answer(&printable(&data.read::<Started>()?.id));
    Ok(())
}

async fn list(given: &List) -> Done {
    let pairs: Vec<(&str, String)> = [
        ("state", given.state.clone()),
        ("limit", Some(given.limit.to_string())),
        ("cursor", given.cursor.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect();
    let data = given.target.reach(Need::Store).await?.get(&format!("/executions{}", query(&pairs))).await?;
    if given.target.json {
        print_json(&data);
        return Ok(());
    }
    let now = Clock::system().now();
    let page: RawPage = data.read()?;
    if page.items.is_empty() {
        out::note("no executions");
        return Ok(());
    }
    let mut table = Table::new(&["id", "state", "nodes", "dead", "retry", "started", "ended", "why"])
        .spare(&["retry", "started"]);
    for item in &page.items {
        let Ok(line) = serde_json::from_str::<Line>(item.get()) else { continue };
        table.row(vec![
            table::id(&line.id),
            text(&line.state).coloured(colour(&line.state)),
            text(format!("{} of {}", line.counts.succeeded, line.counts.total)),
            number(line.counts.dead).coloured((line.counts.dead > 0).then_some(Colour::Red)),
            number(line.retry),
            text(times::relative(line.created_at, now)),
            text(line.finished_at.or(line.retry_at).map(|at| times::relative(at, now)).unwrap_or_default()),
            text(line.last_error.unwrap_or_default()),
        ]);
    }
    table.print();
    if let Some(cursor) = page.next_cursor {
        out::note(&format!("there are more: --cursor {cursor}"));
    }
    Ok(())
}

fn show(target: &Target, data: &Data) -> Done {
    if target.json {
        print_json(data);
        return Ok(());
    }
    let now = Clock::system().now();
    let Whole { line, nodes, output } = data.read()?;
    let time = |at: Option<Timestamp>| at.map(|at| times::both(at, now));
    let about = [
        ("execution", Some(line.id)),
        ("state", Some(out::coloured(&line.state, colour(&line.state).unwrap_or(Colour::Dim)))),
        (
            "nodes",
            Some(format!(
                "{} of {} done, {} running",
                line.counts.succeeded, line.counts.total, line.counts.running
            )),
        ),
        ("started", time(Some(line.created_at))),
        ("ended", time(line.finished_at)),
        ("started anew", time(line.retry_at)),
        ("retry of", line.retry_of),
        ("retried by", line.retried_by),
        ("last error", line.last_error.map(|error| printable(&error).into_owned())),
        ("output", output.map(|output| printable_json(output.get()).into_owned())),
    ];
    let about: Vec<(&str, String)> =
        about.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    facts(&about);
    out::answer("");
    let mut table = Table::new(&["node", "state", "when", "runs", "failed", "kind", "after", "job", "why"])
        .spare(&["job", "after"]);
    for node in nodes {
        let when = match (node.due_at, node.running_since, node.finished_at) {
            (Some(due), _, _) if due <= now => "due".to_owned(),
            (Some(due), _, _) => times::relative(due, now),
            (_, Some(since), _) => format!("for {}", times::rough(now.since(since))),
            (_, _, Some(at)) => times::relative(at, now),
            _ => String::new(),
        };
        let why = node.last_error.or(node.reason.map(|reason| reason.replace('_', " "))).unwrap_or_default();
        table.row(vec![
            text(&node.node_id),
            text(&node.state).coloured(colour_of(&node.state)),
            text(when),
            number(node.attempt),
            number(node.failures),
            text(&node.kind),
            text(node.after.join(", ")),
            table::id(&node.job_id),
            text(why),
        ]);
    }
    table.print();
    Ok(())
}

fn colour(state: &str) -> Option<Colour> {
    match state {
        "retrying" => Some(Colour::Yellow),
        other => colour_of(other),
    }
}
