//! `redrive queues`: how they stand, and stopping them.

use clap::{Args, Subcommand};
use http::Method;
use serde::Deserialize;

use super::print_json;
use crate::client::{Need, Target, segment};
use crate::out::Colour;
use crate::table::{Table, number, text};
use crate::trouble::Done;

/// What to do with queues.
#[derive(Subcommand)]
pub(crate) enum QueuesCommand {
    /// List the queues, with how many jobs are where
    List(Queues),
    /// Stop handing out jobs of a queue; what runs may finish
    Pause(Queue),
    /// Go on handing out jobs of a queue
    Resume(Queue),
}

/// Nothing but where to ask.
#[derive(Args)]
pub(crate) struct Queues {
    #[command(flatten)]
    target: Target,
}

/// Which queue.
#[derive(Args)]
pub(crate) struct Queue {
    /// The queue
    name: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Deserialize)]
struct QueueLine {
    name: String,
    concurrency: Option<usize>,
    paused: bool,
    waiting: u64,
    running: u64,
    dead: u64,
    succeeded: u64,
    retries: u64,
}

pub(crate) async fn run(command: QueuesCommand) -> Done {
    let (queue, verb) = match command {
        QueuesCommand::List(Queues { target }) => {
            let data = target.reach(Need::Store).await?.get("/queues").await?;
            match target.json {
                true => print_json(&data),
                false => print(&data.read::<Vec<QueueLine>>()?),
            }
            return Ok(());
        }
        QueuesCommand::Pause(queue) => (queue, "pause"),
        QueuesCommand::Resume(queue) => (queue, "resume"),
    };
    let path = format!("/queues/{}/{verb}", segment(&queue.name));
    let client = queue.target.reach(Need::Store).await?;
    let data = client.ask(Method::POST, &path, None::<&()>).await?;
    match queue.target.json {
        true => print_json(&data),
        false => print(&[data.read()?]),
    }
    Ok(())
}

fn print(queues: &[QueueLine]) {
    let mut table =
        Table::new(&["queue", "places", "waiting", "running", "dead", "succeeded", "retries", "state"]);
    for queue in queues {
        let (state, colour) = if queue.paused { ("paused", Colour::Yellow) } else { ("open", Colour::Green) };
        table.row(vec![
            text(&queue.name),
            number(queue.concurrency.map_or_else(|| "–".to_owned(), |places| places.to_string())),
            number(queue.waiting),
            number(queue.running),
            number(queue.dead).coloured((queue.dead > 0).then_some(Colour::Red)),
            number(queue.succeeded),
            number(queue.retries),
            text(state).coloured(Some(colour)),
        ]);
    }
    table.print();
}
