//! `redrive tail`: what happens, as it happens.

use std::time::Duration;

use axum::body::BodyDataStream;
use clap::Args;
use futures_util::StreamExt as _;
use redrive::Timestamp;
use redrive_server::{printable, printable_json};
use serde::Deserialize;

use crate::client::{Client, Need, Target};
use crate::out::{self, Colour};
use crate::times;
use crate::trouble::{Done, Exit};

/// Nothing but where to ask.
#[derive(Args)]
pub(crate) struct Tail {
    #[command(flatten)]
    target: Target,
}

/// How long to wait before the first try to come back, and at most.
const COME_BACK: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

pub(crate) async fn run(given: Tail) -> Done {
    let client = given.target.reach(Need::Server).await?;
    let mut pieces = client.stream("/events", None).await?;
    let (mut events, mut last) = (Events::default(), None);
    loop {
        match pieces.next().await {
            Some(Ok(piece)) => {
                for event in events.take(&piece) {
                    match given.target.json {
                        true => out::answer(&printable_json(&event.named())),
                        false => print(&event),
                    }
                    last = event.id.or(last);
                }
            }
            _ => {
                out::note("the stream has ended; coming back to it");
                events = Events::default();
                pieces = come_back(&client, last.as_deref()).await?;
            }
        }
    }
}

/// The stream from behind the last event on, as soon as the server is there again.
async fn come_back(client: &Client, last: Option<&str>) -> Done<BodyDataStream> {
    let [mut wait, most] = COME_BACK;
    loop {
        tokio::time::sleep(wait).await;
        match client.stream("/events", last).await {
            Err(trouble) if matches!(trouble.exit, Exit::Unreachable | Exit::Temporary) => {
                wait = (wait * 2).min(most);
            }
            answer => return answer,
        }
    }
}

/// Server-sent events out of whatever pieces they come in.
#[derive(Default)]
struct Events {
    rest: Vec<u8>,
    event: ServerEvent,
}

#[derive(Default)]
struct ServerEvent {
    name: String,
    id: Option<String>,
    data: String,
}

impl ServerEvent {
    /// Its data with its name in front.
    fn named(&self) -> String {
        let name = serde_json::Value::from(self.name.as_str());
        match self.data.trim_start().strip_prefix('{') {
            Some(rest) if rest.trim_start().starts_with('}') => format!("{{\"event\":{name}{rest}"),
            Some(rest) => format!("{{\"event\":{name},{rest}"),
            None => format!("{{\"event\":{name},\"data\":{}}}", self.data),
        }
    }
}

impl Events {
    /// The events that this piece completes.
    fn take(&mut self, piece: &[u8]) -> Vec<ServerEvent> {
        self.rest.extend_from_slice(piece);
        let mut whole = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                // A heartbeat has no data.
                whole.extend((!event.data.is_empty()).then_some(event));
            } else if let Some(name) = line.strip_prefix("event:") {
                self.event.name = name.trim_start().to_owned();
            } else if let Some(id) = line.strip_prefix("id:") {
                self.event.id = Some(id.trim_start().to_owned());
            } else if let Some(data) = line.strip_prefix("data:") {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data += data.strip_prefix(' ').unwrap_or(data);
            }
        }
        whole
    }
}

#[derive(Deserialize)]
struct Snapshot {
    stats: Totals,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    total_pending: u64,
    total_succeeded: u64,
    total_failed: u64,
}

#[derive(Deserialize)]
struct Noticed {
    at: Timestamp,
    message: String,
}

#[derive(Deserialize)]
struct Batch {
    jobs: Vec<Happened>,
    more: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Happened {
    at: Timestamp,
    job: String,
    kind: String,
    queue: String,
    event: String,
    attempt: Option<u32>,
    due_at: Option<Timestamp>,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

fn print(event: &ServerEvent) {
    match event.name.as_str() {
        "snapshot" => {
            if let Ok(Snapshot { stats }) = serde_json::from_str(&event.data) {
                let line = format!(
                    "{} pending, {} succeeded, {} given up",
                    stats.total_pending, stats.total_succeeded, stats.total_failed
                );
                out::answer(&out::coloured(&line, Colour::Dim));
            }
        }
        "jobs" => {
            if let Ok(Batch { jobs, more }) = serde_json::from_str(&event.data) {
                jobs.iter().for_each(|happened| out::answer(&line(happened)));
                if more > 0 {
                    out::answer(&out::coloured(&format!("… and {more} more"), Colour::Dim));
                }
            }
        }
        "notice" => {
            if let Ok(Noticed { at, message }) = serde_json::from_str(&event.data) {
                let line = format!("{}  {}", times::local(at), printable(&message));
                out::answer(&out::coloured(&line, Colour::Yellow));
            }
        }
        _ => {}
    }
}

fn line(happened: &Happened) -> String {
    let colour = match happened.event.as_str() {
        "succeeded" => Colour::Green,
        "dead" => Colour::Red,
        "retry_scheduled" => Colour::Yellow,
        _ => Colour::Blue,
    };
    let what = format!("{:<15}", printable(&happened.event).replace('_', " "));
    let mut line = format!(
        "{}  {}  {}  {}/{}",
        times::local(happened.at),
        out::coloured(&what, colour),
        printable(&happened.job),
        printable(&happened.queue),
        printable(&happened.kind),
    );
    if let Some(attempt) = happened.attempt {
        line += &format!("  run {attempt}");
    }
    if let Some(due) = happened.due_at {
        line += &format!("  again {}", times::relative(due, happened.at));
    }
    if let Some(failure) = &happened.failure {
        line += &format!("  {}", printable(&failure.message));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_printed_with_its_name() {
        for (data, expected) in [
            ("{\"a\":1}", "{\"event\":\"jobs\",\"a\":1}"),
            ("{}", "{\"event\":\"jobs\"}"),
            ("[1]", "{\"event\":\"jobs\",\"data\":[1]}"),
        ] {
            let event = ServerEvent { name: "jobs".into(), id: None, data: data.into() };
            assert_eq!(event.named(), expected);
        }
    }

    #[test]
    fn events_are_whole_however_they_were_cut() {
        let text =
            ":\n\nevent: snapshot\ndata: {\"a\":1}\n\nevent: jobs\nid: 1\ndata: é\ndata: 2\n\nevent: j";
        for size in [1, 2, 7, 1000] {
            let mut events = Events::default();
            let found: Vec<ServerEvent> =
                text.as_bytes().chunks(size).flat_map(|piece| events.take(piece)).collect();
            let found: Vec<(&str, &str)> =
                found.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
            assert_eq!(found, [("snapshot", "{\"a\":1}"), ("jobs", "é\n2")], "{size}");
        }
    }
}
