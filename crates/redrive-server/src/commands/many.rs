//! Something done to jobs: to those that are named, or to all that match. Whoever means many is told how many first.

use clap::Args;
use http::Method;
use redrive::{JobId, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::listed::{JobLine, Which, as_object, sentence};
use super::{jobs_of, print_all_json, print_json};
use crate::client::{Client, Data, Need, Target};
use crate::out;
use crate::trouble::{Done, Exit, Trouble};

/// To which jobs.
#[derive(Args, Clone, Debug)]
pub(crate) struct Chosen {
    /// The jobs, by their ids; else all that match what is given below
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<JobId>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// All jobs are meant
    #[arg(long)]
    pub(crate) all: bool,
    /// Only say how many match
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Retry,
    Cancel,
    Redrive,
    Delete,
}

impl Act {
    fn name(self) -> &'static str {
        match self {
            Act::Retry => "retry",
            Act::Cancel => "cancel",
            Act::Redrive => "redrive",
            Act::Delete => "delete",
        }
    }

    /// To what it can be done.
    fn states(self) -> &'static str {
        match self {
            Act::Retry => "waiting",
            Act::Cancel => "waiting,running",
            Act::Redrive => "dead,cancelled",
            Act::Delete => "succeeded,dead,cancelled",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Act::Retry => "due now",
            Act::Cancel => "cancelled",
            Act::Redrive => "brought back",
            Act::Delete => "forgotten",
        }
    }
}

/// In which states.
#[derive(Clone, Copy)]
pub(crate) enum States<'a> {
    /// Those that were asked for, if any.
    Given(Option<&'a str>),
    /// The one that the command is about.
    Always(&'a str),
}

/// What was done to many, or would be.
#[derive(Deserialize)]
struct Counted {
    matching: u64,
    more: bool,
    done: Option<u64>,
}

impl Counted {
    fn shown(&self) -> String {
        let verb = if self.matching == 1 { "matches" } else { "match" };
        format!("{}{} {verb}", if self.more { "at least " } else { "" }, jobs_of(self.matching))
    }
}

/// Does it: to jobs in the states that were given, or in the one state that the command is about.
pub(crate) async fn act(act: Act, chosen: &Chosen, states: States<'_>, now: Timestamp) -> Done {
    let mut pairs = chosen.which.pairs(now);
    if let States::Given(Some(states)) = states {
        pairs.push(("state", states.to_owned()));
    }
    match (chosen.ids.is_empty(), pairs.is_empty(), chosen.all) {
        (true, false, false) | (true, true, true) | (false, true, false) => {}
        (true, true, false) => {
            let hint = "name jobs by id, give a filter such as --kind or --queue, or --all";
            return Err(Trouble::usage("no job is named", hint));
        }
        _ => {
            let hint = "give ids, or a filter, or --all, and one of them alone";
            return Err(Trouble::usage("it is not clear which jobs are meant", hint));
        }
    }
    let client = chosen.target.reach(Need::Store).await?;
    if !chosen.ids.is_empty() {
        return to_each(&client, act, chosen).await;
    }
    match states {
        States::Given(Some(_)) => {}
        States::Given(None) => pairs.push(("state", act.states().to_owned())),
        States::Always(state) => pairs.push(("state", state.to_owned())),
    }
    to_all(&client, act, chosen, &pairs).await
}

async fn to_each(client: &Client, act: Act, chosen: &Chosen) -> Done {
    if chosen.dry_run {
        return Err(Trouble::usage(
            "--dry-run counts what a filter matches",
            "leave it out where jobs are named",
        ));
    }
    if act == Act::Delete && !chosen.yes {
        confirm(&format!("Forget {} for good?", jobs_of(chosen.ids.len() as u64))).await?;
    }
    let mut answers: Vec<Data> = Vec::new();
    let mut first = None;
    for id in &chosen.ids {
        let answer = match act {
            Act::Delete => client.ask(Method::DELETE, &format!("/jobs/{id}"), None::<&()>).await,
            _ => client.ask(Method::POST, &format!("/jobs/{id}/{}", act.name()), None::<&()>).await,
        };
        match answer {
            Ok(data) => answers.push(data),
            // The others are done all the same; the first trouble decides the exit code.
            Err(trouble) if first.is_none() => first = Some(trouble),
            Err(trouble) => out::note(&format!("error: {}", trouble.message)),
        }
    }
    if answers.is_empty() {
        // The trouble is all there is to say.
    } else if chosen.target.json {
        print_all_json(&answers);
    } else if act == Act::Delete {
        out::answer(&format!("{} {}", jobs_of(answers.len() as u64), act.done()));
    } else {
        for data in &answers {
            out::answer(&sentence(&data.read::<JobLine>()?));
        }
    }
    first.map_or(Ok(()), Err)
}

async fn to_all(client: &Client, act: Act, chosen: &Chosen, pairs: &[(&'static str, String)]) -> Done {
    let body =
        |dry_run: bool| json!({ "command": act.name(), "dryRun": dry_run, "filter": as_object(pairs) });
    let data = client.post("/jobs/commands", &body(true)).await?;
    let counted: Counted = data.read()?;
    if chosen.dry_run {
        match chosen.target.json {
            true => print_json(&data),
            false => out::answer(&format!("{}; nothing was done", counted.shown())),
        }
        return Ok(());
    }
    if counted.matching > 0 && !chosen.yes {
        let question = format!("{}: {}?", counted.shown(), act.name());
        answered(&question, "give --yes to do it, or --dry-run to only count").await?;
    }
    let data = client.post("/jobs/commands", &body(false)).await?;
    if chosen.target.json {
        print_json(&data);
        return Ok(());
    }
    let counted: Counted = data.read()?;
    let done = counted.done.unwrap_or_default();
    let left = counted.matching.saturating_sub(done);
    let rest =
        if left > 0 { format!("; {left} matched and were not in a state for it") } else { String::new() };
    out::answer(&format!("{} {}{rest}", jobs_of(done), act.done()));
    Ok(())
}

/// Goes on after a yes.
pub(crate) async fn confirm(question: &str) -> Done {
    answered(question, "give --yes to do it").await
}

async fn answered(question: &str, instead: &str) -> Done {
    let asked = question.to_owned();
    let said = tokio::task::spawn_blocking(move || out::ask(&asked)).await;
    match said.unwrap_or(None) {
        Some(true) => Ok(()),
        Some(false) => Err(Trouble::new(Exit::Failed, "nothing was done")),
        None => Err(Trouble::usage(
            format!("this needs a yes: {question}"),
            format!("there is no terminal to ask at; {instead}"),
        )),
    }
}
