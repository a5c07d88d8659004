//! `redrive enqueue`: a job from the command line.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use redrive::{Clock, JobId, Timestamp, span};
use redrive_server::printable;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::policy::policy_from;
use super::{json_from, pair, print_json, read_from};
use crate::client::{Need, Target};
use crate::out;
use crate::times::When;
use crate::trouble::{Done, Trouble};

/// A job to be done.
#[derive(Args)]
pub(crate) struct Enqueue {
    /// Which executor or worker runs it: http, command, or a name that your workers know
    kind: String,
    /// Its data: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", conflicts_with_all = ["url", "method", "body", "headers"])]
    payload: Option<String>,
    /// For an http job: the URL to call
    #[arg(long, help_heading = "HTTP jobs")]
    url: Option<String>,
    /// For an http job: the method [default: POST]
    #[arg(long, requires = "url", help_heading = "HTTP jobs")]
    method: Option<String>,
    /// For an http job: the body; JSON is sent as JSON, anything else as text
    #[arg(long, value_name = "TEXT|@FILE|-", requires = "url", help_heading = "HTTP jobs")]
    body: Option<String>,
    /// For an http job: a header; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = pair, requires = "url", help_heading = "HTTP jobs")]
    headers: Vec<(String, String)>,
    /// Into this queue [default: default]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// When to try again and when to stop: a name (see `redrive policy presets`), JSON, or @FILE
    #[arg(long, value_name = "NAME|JSON|@FILE")]
    policy: Option<String>,
    /// At most one job with this key that is not final
    #[arg(long)]
    key: Option<String>,
    /// What to do when the key is taken
    #[arg(long, value_name = "HOW", value_parser = ["ignore", "replace", "reject"], requires = "key")]
    on_conflict: Option<String>,
    /// Not before this much time has passed, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = span::parse, conflicts_with = "run_at")]
    delay: Option<Duration>,
    /// Not before this time, such as 2026-03-01T14:00:00Z
    #[arg(long, value_name = "TIME")]
    run_at: Option<Timestamp>,
    /// Higher goes first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// For people and filters; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Whose health decides whether it may start [default for http jobs: the host of the URL]
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// One at a time and in order with the others that have this key in the same queue
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Dead if not finished by then: a time, or how long from now
    #[arg(long, value_name = "TIME|DURATION")]
    deadline: Option<When>,
    /// Dead if not begun by then: a time, or how long from now
    #[arg(long, value_name = "TIME|DURATION")]
    start_by: Option<When>,
    /// How long one attempt may take
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    timeout: Option<Duration>,
    /// The job it belongs to
    #[arg(long, value_name = "ID")]
    parent: Option<JobId>,
    #[command(flatten)]
    target: Target,
}

/// As the API takes it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Form<'a> {
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_conflict: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i16>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_by: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<JobId>,
}

/// What became of it.
#[derive(Deserialize)]
struct Enqueued {
    id: String,
    deduplicated: bool,
    replaced: bool,
}

pub(crate) async fn run(job: Enqueue) -> Done {
    let form = job.form(Clock::system().now())?;
    let data = job.target.reach(Need::AnyStore).await?.post("/jobs", &form).await?;
    if job.target.json {
        print_json(&data);
        return Ok(());
    }
    let enqueued: Enqueued = data.read()?;
    // The id alone, so that a script can take it.
    out::answer(&printable(&enqueued.id));
    if enqueued.deduplicated {
        out::note("a job with this key was there already; nothing was changed");
    } else if enqueued.replaced {
        out::note("the job with this key has the new content now");
    }
    Ok(())
}

impl Enqueue {
    fn form(&self, now: Timestamp) -> Done<Form<'_>> {
        Ok(Form {
            kind: &self.kind,
            payload: self.payload()?,
            queue: self.queue.as_deref(),
            policy: self.policy.as_deref().map(policy_from).transpose()?,
            key: self.key.as_deref(),
            on_conflict: self.on_conflict.as_deref(),
            delay: self.delay.map(span::format),
            run_at: self.run_at,
            priority: self.priority,
            labels: self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            destination: self.destination.as_deref(),
            ordering_key: self.ordering_key.as_deref(),
            deadline: self.deadline.map(|when| when.ahead(now)),
            start_by: self.start_by.map(|when| when.ahead(now)),
            timeout: self.timeout.map(span::format),
            parent: self.parent,
        })
    }

    fn payload(&self) -> Done<Option<Box<RawValue>>> {
        let Some(url) = &self.url else {
            if self.kind == "http" && self.payload.is_none() {
                let hint = "write `redrive enqueue http --url https://…`, or give all of it with --payload";
                return Err(Trouble::usage("an http job needs --url or --payload", hint));
            }
            return self.payload.as_deref().map(|text| json_from(text, "--payload")).transpose();
        };
        if self.kind != "http" {
            let hint = format!(
                "write `redrive enqueue http --url …`, or give the data of {:?} with --payload",
                self.kind
            );
            return Err(Trouble::usage("--url is for http jobs", hint));
        }
        let mut payload = json!({ "method": self.method.as_deref().unwrap_or("POST"), "url": url });
        if let Some(body) = &self.body {
            let text = read_from(body, "--body")?;
            payload["body"] = serde_json::from_str(&text).unwrap_or(Value::String(text));
        }
        if !self.headers.is_empty() {
            let headers =
                self.headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
            payload["headers"] = Value::Object(headers.collect());
        }
        to_raw_value(&payload).map(Some).map_err(|error| Trouble::from(anyhow::Error::from(error)))
    }
}
