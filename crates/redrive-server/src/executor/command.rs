//! Runs jobs of the kind `command`: a program that an operator has allowed by name, with arguments that are data.
//!
//! There is none unless the configuration lists it. A job names an entry and fills its placeholders, each of which is
//! one whole argument; no shell sees any of it. The program runs in a process group of its own, which is killed as a
//! whole when its time is over or the attempt is lost. This is no sandbox: what a program may do, its user may do.
//! Limits on memory, files and system calls are for whatever starts the server.

mod entry;
mod output;

use std::collections::BTreeMap;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use redrive::{Attempt, Failure, Handler, Outcome, Payload, millis, span};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

pub use entry::CommandEntry;
use entry::{PARAM_BYTES_MAX, argument};
use output::Capture;

/// How long what a program wrote is waited for when the program itself is gone: one that has left the group may hold
/// the pipe for ever.
const PIPES_WAIT: std::time::Duration = millis(500);
/// How much of what a program wrote last is quoted in its failure.
const QUOTED_CHARS_MAX: usize = 1_000;

/// The payload of a job of the kind `command`: `{"command": "name", "params": {"file": "a.mp4"}}`. It is read when it
/// is run, so that a mistake in it is a failure with a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandJob(pub Value);

impl Payload for CommandJob {
    const KIND: &'static str = "command";
}

/// What a job asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    command: String,
    #[serde(default, deserialize_with = "crate::reading::fields")]
    params: BTreeMap<String, Value>,
}

/// Runs the commands of a list. Register it with `Engine::builder(store).handle(executor)`, if there is a list.
#[derive(Clone, Debug)]
pub struct CommandExecutor {
    entries: Arc<BTreeMap<String, CommandEntry>>,
}

impl CommandExecutor {
    /// Runs these, and nothing else.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them, each with its name and what to write instead.
    pub fn new(entries: Vec<CommandEntry>) -> Result<CommandExecutor, Vec<String>> {
        let mut problems: Vec<String> = entries.iter().flat_map(CommandEntry::problems).collect();
        let mut by_name = BTreeMap::new();
        for entry in entries {
            if let Some(twin) = by_name.insert(entry.name.clone(), entry) {
                problems.push(format!("command {:?}: there are two of this name", twin.name));
            }
        }
        if problems.is_empty() { Ok(CommandExecutor { entries: Arc::new(by_name) }) } else { Err(problems) }
    }

    /// Whether a payload can be run.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for whoever wrote it.
    pub fn check(&self, payload: &str) -> Result<(), String> {
        let payload: Value = serde_json::from_str(payload).map_err(|error| error.to_string())?;
        self.resolve(&payload).map(drop)
    }

    /// The entry a payload names, and its arguments filled in.
    fn resolve(&self, payload: &Value) -> Result<(&CommandEntry, Vec<String>), String> {
        let asked: Asked = crate::reading::take_in("payload", payload).map_err(|error| {
            format!("the payload of a command job is not readable: {error}; write {{\"command\":\"name\",\"params\":{{}}}}")
        })?;
        let entry = self.entries.get(&asked.command).ok_or_else(|| {
            let known: Vec<&str> = self.entries.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("there is no command {:?}; allowed here: {known}", asked.command)
        })?;
        let mut params = BTreeMap::new();
        for (name, value) in &asked.params {
            let text = argument(value).ok_or_else(|| {
                format!(
                    "param {name:?}: write text without NUL of at most {PARAM_BYTES_MAX} bytes, or a number"
                )
            })?;
            params.insert(name.as_str(), text);
        }
        Ok((entry, entry.fill(&params)?))
    }

    async fn attempt(&self, attempt: &Attempt<CommandJob>) -> Result<Outcome, Failure> {
        let (entry, argv) = self
            .resolve(&attempt.payload.0)
            .map_err(|problem| Failure::permanent(problem).code("INVALID_INPUT"))?;
        let mut group = Group::start(entry, &argv, attempt).map_err(|error| {
            let failure = Failure::from_error(&error);
            Failure { message: format!("{:?} could not be started: {error}", entry.name), ..failure }
        })?;
        let stdout = Capture::of(group.child.stdout.take());
        let stderr = Capture::of(group.child.stderr.take());
        let ended = tokio::time::timeout(entry.timeout, group.child.wait()).await;
        // Whatever it left running in its group ends with it.
        drop(group);
        let stdout = stdout.finish(PIPES_WAIT).await;
        let stderr = stderr.finish(PIPES_WAIT).await;
        match ended {
            Ok(Ok(status)) if status.success() => Ok(Outcome::Done(Some(
                json!({
                    "exitCode": 0, "stdout": stdout.kept(), "stderr": stderr.kept(),
                })
                .into(),
            ))),
            Ok(Ok(status)) => Err(failed(entry, status).detail(stderr.last(QUOTED_CHARS_MAX))),
            Ok(Err(error)) => Err(Failure::from_error(&error)),
            Err(_) => {
                let limit = span::format(entry.timeout);
                let message = format!("{:?} took longer than {limit} and was killed", entry.name);
                Err(Failure::from_code("TIMEOUT", message).detail(stderr.last(QUOTED_CHARS_MAX)))
            }
        }
    }
}

impl Handler<CommandJob> for CommandExecutor {
    async fn run(&self, attempt: Attempt<CommandJob>) -> Outcome {
        CommandExecutor::attempt(self, &attempt).await.unwrap_or_else(Outcome::Failed)
    }
}

/// The failure that an exit is. What the program wrote is its detail: not everybody who may see a job may read outputs.
fn failed(entry: &CommandEntry, status: ExitStatus) -> Failure {
    let Some(code) = status.code() else {
        let message = format!("{:?} was killed by a signal ({status})", entry.name);
        return Failure::retry(message).code("KILLED");
    };
    let message = format!("{:?} ended with {code}", entry.name);
    let failure = match entry.permanent_exit_codes.contains(&code) {
        true => Failure::permanent(message),
        false => Failure::retry(message),
    };
    failure.code(format!("EXIT_{code}"))
}

/// A program and its process group. Dropped, the group is killed as a whole; what has left it, as `setsid` does, goes on.
struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Group {
    fn start(entry: &CommandEntry, argv: &[String], attempt: &Attempt<CommandJob>) -> std::io::Result<Group> {
        let Some((program, arguments)) = argv.split_first() else {
            return Err(std::io::ErrorKind::InvalidInput.into());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(&entry.env)
            .env("REDRIVE_JOB_ID", attempt.idempotency_key())
            .env("REDRIVE_ATTEMPT", attempt.number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(folder) = &entry.cwd {
            command.current_dir(folder);
        }
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Group { child, id })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its number is the leader's. It is not given to another while anything of the group lives; if nothing does,
        // the kill finds nobody.
        if let Some(id) = self.id {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}
