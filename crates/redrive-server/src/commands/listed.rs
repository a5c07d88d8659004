//! Jobs as lists and pages show them, and which jobs are meant.

use clap::Args;
use redrive::{Clock, JobId, Timestamp};
use redrive_server::printable;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{colour_of, pair};
use crate::client::{Client, Data, query};
use crate::table::{Table, id, number, text};
use crate::times::{self, When};
use crate::trouble::Done;

/// Jobs that one request brings when all are wanted: large payloads still fit an answer.
const PAGE: u32 = 200;

/// Which jobs. Everything given must hold.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Which {
    /// Of this kind
    #[arg(long, help_heading = "Which jobs")]
    kind: Option<String>,
    /// In this queue
    #[arg(long, help_heading = "Which jobs")]
    queue: Option<String>,
    /// For this destination
    #[arg(long, value_name = "NAME", help_heading = "Which jobs")]
    destination: Option<String>,
    /// With this key
    #[arg(long, help_heading = "Which jobs")]
    key: Option<String>,
    /// With this label; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label, help_heading = "Which jobs")]
    labels: Vec<(String, String)>,
    /// Whose last failure is of this group: see `redrive dead groups`
    #[arg(long, help_heading = "Which jobs")]
    group: Option<String>,
    /// Belonging to this job
    #[arg(long, value_name = "ID", help_heading = "Which jobs")]
    parent: Option<JobId>,
    /// Enqueued since: a time, or how long ago, such as 2h
    #[arg(long, value_name = "TIME|AGO", help_heading = "Which jobs")]
    from: Option<When>,
    /// Enqueued before: a time, or how long ago
    #[arg(long, value_name = "TIME|AGO", help_heading = "Which jobs")]
    until: Option<When>,
}

impl Which {
    /// As the API's filter has it.
    pub(crate) fn pairs(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        let time = |when: Option<When>| when.map(|when| when.back(now).to_string());
        [
            ("kind", self.kind.clone()),
            ("queue", self.queue.clone()),
            ("destination", self.destination.clone()),
            ("key", self.key.clone()),
            ("label", (!labels.is_empty()).then(|| labels.join(","))),
            ("group", self.group.clone()),
            ("parent", self.parent.map(|id| id.to_string())),
            ("from", time(self.from)),
            ("until", time(self.until)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// A label to look for. Several are sent in one text, with commas between them.
fn label(text: &str) -> Result<(String, String), String> {
    match text.contains(',') {
        true => {
            Err("a label with a comma cannot be looked for; look for the job by its kind or key".to_owned())
        }
        false => pair(text),
    }
}

/// A filter as a body has it.
pub(crate) fn as_object(pairs: &[(&'static str, String)]) -> Value {
    let object: Map<String, Value> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str()))).collect();
    Value::Object(object)
}

/// A part of a list, each job as it came.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawPage {
    pub(crate) items: Vec<Box<RawValue>>,
    pub(crate) next_cursor: Option<String>,
}

/// Every page of a list, one after the other.
pub(crate) async fn each_page(
    client: &Client,
    path: &str,
    pairs: &[(&'static str, String)],
    mut found: impl FnMut(Vec<Box<RawValue>>),
) -> Done {
    let mut cursor = None;
    loop {
        let mut pairs = pairs.to_vec();
        pairs.push(("limit", PAGE.to_string()));
        pairs.extend(cursor.map(|cursor| ("cursor", cursor)));
        let data: Data = client.get(&format!("{path}{}", query(&pairs))).await?;
        let page: RawPage = data.read()?;
        found(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// A job, as far as lists show it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobLine {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) queue: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) running_since: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) why: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) failures: u32,
    pub(crate) retries_allowed: Option<u32>,
    pub(crate) created_at: Timestamp,
}

impl JobLine {
    /// Since when or until when it is where it is.
    pub(crate) fn when(&self, now: Timestamp) -> String {
        match (self.due_at, self.running_since, self.finished_at) {
            (Some(due), _, _) if due <= now => "due".to_owned(),
            (Some(due), _, _) => times::relative(due, now),
            (_, Some(since), _) => format!("for {}", times::rough(now.since(since))),
            (_, _, Some(at)) => times::relative(at, now),
            _ => String::new(),
        }
    }

    /// `2 of 4`. The last failure of a job that is given up is one more than it has retries.
    pub(crate) fn retries(&self) -> String {
        match self.retries_allowed {
            Some(allowed) => format!("{} of {allowed}", self.failures.min(allowed)),
            None => self.failures.to_string(),
        }
    }
}

/// Prints jobs, one on a line.
pub(crate) fn print_jobs(jobs: &[JobLine], now: Timestamp) {
    let mut table = Table::new(&["id", "state", "when", "runs", "retry", "queue", "kind", "enqueued", "why"])
        .spare(&["enqueued", "runs", "queue"]);
    for job in jobs {
        let why = job.why.as_deref().or(job.reason.as_deref()).unwrap_or_default().replace('_', " ");
        table.row(vec![
            id(&job.id),
            text(&job.state).coloured(colour_of(&job.state)),
            text(job.when(now)),
            number(job.attempt),
            text(job.retries()),
            text(&job.queue),
            text(&job.kind),
            text(times::relative(job.created_at, now)),
            text(why),
        ]);
    }
    table.print();
}

/// One line about one job, to which something was just done.
pub(crate) fn sentence(job: &JobLine) -> String {
    let now = Clock::system().now();
    let state = crate::out::coloured(&job.state, colour_of(&job.state).unwrap_or(crate::out::Colour::Dim));
    format!("{}  {state}  {}", printable(&job.id), job.when(now)).trim_end().to_owned()
}
