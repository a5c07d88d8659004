//! The commands: what each takes, what it asks or does, and how it shows the answer. Most ask the API; `get` and `run`
//! have a store of their own.

pub(crate) mod config;
pub(crate) mod dead;
pub(crate) mod destinations;
pub(crate) mod edit;
pub(crate) mod enqueue;
pub(crate) mod executions;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod jobs;
pub(crate) mod listed;
pub(crate) mod many;
pub(crate) mod pages;
pub(crate) mod policy;
pub(crate) mod queues;
pub(crate) mod run;
pub(crate) mod simulate;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod tail;
pub(crate) mod tokens;

use std::future::Future;
use std::io::Read as _;
use std::process::ExitCode;

use redrive_server::printable_json;
use serde_json::value::RawValue;

use crate::client::Data;
use crate::out::{self, Colour};
use crate::trouble::{Done, Exit, Trouble};

/// Does it, unless somebody interrupts.
pub(crate) fn run(command: impl Future<Output = Done>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return out::trouble(&Trouble::new(Exit::Failed, format!("cannot start: {error}"))),
    };
    let done = runtime.block_on(async {
        tokio::select! { biased;
            _ = tokio::signal::ctrl_c() => Err(Trouble::new(Exit::Interrupted, "interrupted")),
            done = command => done,
        }
    });
    // A question nobody has answered must not hold up the end.
    runtime.shutdown_background();
    finish(done)
}

/// The exit code of what was done, or why it was not.
pub(crate) fn finish(done: Done) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => out::trouble(&trouble),
    }
}

/// An answer as a program reads it.
fn print_json(data: &Data) {
    out::answer(&printable_json(data.raw()));
}

/// Several answers: alone if there is one, else as an array.
fn print_all_json(answers: &[Data]) {
    match answers {
        [one] => print_json(one),
        several => {
            let all: Vec<&str> = several.iter().map(Data::raw).collect();
            out::answer(&printable_json(&format!("[{}]", all.join(","))));
        }
    }
}

/// JSON from the command line: as it is, `@file`, or `-` for stdin.
fn json_from(text: &str, what: &str) -> Done<Box<RawValue>> {
    let read = read_from(text, what)?;
    serde_json::from_str(&read).map_err(|error| {
        let hint = format!("give {what} as JSON, as @FILE, or as - to read it from stdin");
        Trouble::usage(format!("{what} is not JSON: {error}"), hint)
    })
}

/// The text itself, what stands in `@file`, or what comes from stdin for `-`.
fn read_from(text: &str, what: &str) -> Done<String> {
    let read = match (text, text.strip_prefix('@')) {
        ("-", _) => {
            let mut read = String::new();
            std::io::stdin().read_to_string(&mut read).map(|_| read)
        }
        (_, Some(path)) => std::fs::read_to_string(path),
        _ => Ok(text.to_owned()),
    };
    let place = text.strip_prefix('@').unwrap_or(text);
    read.map_err(|error| Trouble::new(Exit::Failed, format!("{what} cannot be read from {place}: {error}")))
}

/// `NAME=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

/// How many, at least one.
fn up_to<const MAX: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {MAX}"))
}

/// The colour of a state.
fn colour_of(state: &str) -> Option<Colour> {
    match state {
        "running" => Some(Colour::Yellow),
        "succeeded" => Some(Colour::Green),
        "dead" => Some(Colour::Red),
        "waiting" => Some(Colour::Blue),
        _ => Some(Colour::Dim),
    }
}

/// `1 job`, `2 jobs`.
fn jobs_of(count: u64) -> String {
    format!("{count} {}", if count == 1 { "job" } else { "jobs" })
}
