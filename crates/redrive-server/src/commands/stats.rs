//! `redrive stats` and `redrive activity`: how everything stands, and what has happened.

use std::time::Duration;

use clap::Args;
use redrive::{Clock, Timestamp};
use serde::Deserialize;

use super::print_json;
use crate::client::{Need, Target};
use crate::out::{self, Colour};
use crate::table::{Table, facts, text};
use crate::times;
use crate::trouble::Done;

/// Nothing but where to ask.
#[derive(Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    target: Target,
}

/// How much of it.
#[derive(Args)]
pub(crate) struct Activity {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    total_succeeded: u64,
    total_failed: u64,
    #[serde(default)]
    held: bool,
    waiting: u64,
    running: u64,
    dead: u64,
    enqueued: u64,
    recovered: u64,
    retries: u64,
    crashes: u64,
    cancelled: u64,
    redriven: u64,
    success_rate: Option<f64>,
    average_delay_ms: Option<u64>,
}

pub(crate) async fn stats(given: Stats) -> Done {
    let data = given.target.reach(Need::Store).await?.get("/stats").await?;
    if given.target.json {
        print_json(&data);
        return Ok(());
    }
    let figures: Figures = data.read()?;
    if figures.held {
        let line = "held: nothing begins until `redrive resume`";
        out::answer(&out::coloured(line, Colour::Yellow));
    }
    let dead = match figures.dead {
        0 => "0".to_owned(),
        count => out::coloured(&format!("{count}, which need a person: redrive dead groups"), Colour::Red),
    };
    let succeeded = match figures.recovered {
        0 => figures.total_succeeded.to_string(),
        recovered => format!("{}, of which {recovered} after a failure", figures.total_succeeded),
    };
    let mut shown = vec![
        ("waiting", figures.waiting.to_string()),
        ("running", figures.running.to_string()),
        ("dead", dead),
        ("enqueued", figures.enqueued.to_string()),
        ("succeeded", succeeded),
        ("given up", figures.total_failed.to_string()),
        ("cancelled", figures.cancelled.to_string()),
        ("redriven", figures.redriven.to_string()),
        ("retries", figures.retries.to_string()),
        ("crashes", figures.crashes.to_string()),
    ];
    if let Some(rate) = figures.success_rate {
        shown.push(("success rate", format!("{:.1} %", rate * 100.0)));
    }
    if let Some(delay) = figures.average_delay_ms {
        shown.push(("average delay", times::rough(Duration::from_millis(delay))));
    }
    facts(&shown);
    Ok(())
}

#[derive(Deserialize)]
struct ActivityLine {
    at: Timestamp,
    what: String,
    job: Option<String>,
    kind: String,
    queue: String,
    message: String,
}

pub(crate) async fn activity(given: Activity) -> Done {
    let path = format!("/activity?limit={}", given.limit);
    let data = given.target.reach(Need::Store).await?.get(&path).await?;
    if given.target.json {
        print_json(&data);
        return Ok(());
    }
    let now = Clock::system().now();
    let lines: Vec<ActivityLine> = data.read()?;
    if lines.is_empty() {
        out::note("nothing has happened yet");
        return Ok(());
    }
    let mut table = Table::new(&["when", "what", "job", "queue", "kind", "message"]);
    for line in &lines {
        let colour = match line.what.as_str() {
            "dead" => Some(Colour::Red),
            what if what.contains("succe") || what.contains("recover") => Some(Colour::Green),
            _ => None,
        };
        table.row(vec![
            text(times::relative(line.at, now)),
            text(line.what.replace('_', " ")).coloured(colour),
            text(line.job.as_deref().unwrap_or("–")),
            text(&line.queue),
            text(&line.kind),
            text(&line.message),
        ]);
    }
    table.print();
    Ok(())
}
