//! `redrive dead`: jobs that need a person.

use clap::{Args, Subcommand};
use redrive::{Clock, Timestamp};
use redrive_server::printable_json;
use serde::Deserialize;

use super::jobs::{Paged, print_list};
use super::listed::{Which, each_page};
use super::many::{Act, Chosen, States, act};
use super::{print_json, up_to};
use crate::client::{Need, Target};
use crate::out;
use crate::table::{Table, number, text};
use crate::times;
use crate::trouble::Done;

/// What to do with dead jobs.
#[derive(Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead jobs, newest first
    List(Paged),
    /// Count dead jobs by what they died of, the most frequent first
    Groups(Groups),
    /// Bring dead jobs back: their counters restart, their history stays
    Redrive(Chosen),
    /// Print all dead jobs, one JSON object on a line
    Export(Export),
}

/// How many groups.
#[derive(Args)]
pub(crate) struct Groups {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = up_to::<1000>)]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

/// Which dead jobs to print.
#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(command: DeadCommand) -> Done {
    let now = Clock::system().now();
    match command {
        DeadCommand::List(page) => print_list("/dead", Vec::new(), &page, now).await,
        DeadCommand::Groups(groups) => print_groups(&groups, now).await,
        DeadCommand::Redrive(chosen) => act(Act::Redrive, &chosen, States::Always("dead"), now).await,
        DeadCommand::Export(Export { which, target }) => {
            let client = target.reach(Need::Store).await?;
            let print = |items: Vec<Box<serde_json::value::RawValue>>| {
                items.iter().for_each(|item| out::answer(&printable_json(item.get())));
            };
            each_page(&client, "/dead", &which.pairs(now), print).await
        }
    }
}

/// Dead jobs that died of the same.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    group: Option<String>,
    count: u64,
    message: Option<String>,
    kind: String,
    first_at: Timestamp,
    last_at: Timestamp,
}

async fn print_groups(groups: &Groups, now: Timestamp) -> Done {
    let path = format!("/dead/groups?limit={}", groups.limit);
    let data = groups.target.reach(Need::Store).await?.get(&path).await?;
    if groups.target.json {
        print_json(&data);
        return Ok(());
    }
    let found: Vec<Group> = data.read()?;
    if found.is_empty() {
        out::note("no job is dead");
        return Ok(());
    }
    let mut table = Table::new(&["group", "jobs", "kind", "first", "last", "message"]);
    for group in &found {
        table.row(vec![
            text(group.group.as_deref().unwrap_or("–")),
            number(group.count),
            text(&group.kind),
            text(times::relative(group.first_at, now)),
            text(times::relative(group.last_at, now)),
            text(group.message.as_deref().unwrap_or_default()),
        ]);
    }
    table.print();
    Ok(())
}
