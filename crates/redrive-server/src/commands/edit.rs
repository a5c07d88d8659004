//! `redrive jobs edit`: corrects a job, from the command line or in an editor.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::Command;

use clap::Args;
use redrive::JobId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::listed::sentence;
use super::policy::policy_from;
use super::{json_from, pair, print_json};
use crate::client::{Client, Data, Need, Target};
use crate::out;
use crate::trouble::{Done, Exit, Trouble};

/// A job, and what is to be changed in it.
#[derive(Args)]
pub(crate) struct Edit {
    /// The job
    id: JobId,
    /// Another payload: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// Another policy: a name (see `redrive policy presets`), JSON, or @FILE
    #[arg(long, value_name = "NAME|JSON|@FILE")]
    policy: Option<String>,
    /// Higher goes first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// Labels, instead of all that it has; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    target: Target,
}

/// What can be changed in a job, as it is shown in an editor and sent to the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

/// A job, as far as it can be changed.
#[derive(Deserialize)]
struct Shown {
    payload: Option<Value>,
    policy: Option<Value>,
    priority: Option<i16>,
    labels: Option<BTreeMap<String, String>>,
}

pub(crate) async fn run(edit: &Edit) -> Done {
    let client = edit.target.reach(Need::Store).await?;
    let mut parts = given(edit)?;
    if parts == Parts::default() {
        parts = edited(&client, edit).await?;
    }
    if parts == Parts::default() {
        out::note("nothing was changed");
        return Ok(());
    }
    let data = client.ask(http::Method::PATCH, &format!("/jobs/{}", edit.id), Some(&parts)).await?;
    match edit.target.json {
        true => print_json(&data),
        false => out::answer(&sentence(&data.read()?)),
    }
    Ok(())
}

/// What the command line says.
fn given(edit: &Edit) -> Done<Parts> {
    let read = |raw: Box<serde_json::value::RawValue>| -> Done<Value> {
        serde_json::from_str(raw.get()).map_err(|error| Trouble::from(anyhow::Error::from(error)))
    };
    let payload =
        edit.payload.as_deref().map(|text| json_from(text, "--payload").and_then(read)).transpose()?;
    let policy = edit.policy.as_deref().map(|text| policy_from(text).and_then(read)).transpose()?;
    let labels = (!edit.labels.is_empty()).then(|| edit.labels.iter().cloned().collect());
    Ok(Parts { payload, policy, priority: edit.priority, labels })
}

/// What somebody changed in an editor.
async fn edited(client: &Client, edit: &Edit) -> Done<Parts> {
    let sources = edit.target.sources();
    let Some(editor) = sources.editor() else {
        let hint = "give --payload, --policy, --priority or --label, or set EDITOR";
        return Err(Trouble::usage("nothing is said to be changed, and there is no editor", hint));
    };
    let data: Data = client.get(&format!("/jobs/{}", edit.id)).await?;
    let Shown { payload, policy, priority, labels } = data.read()?;
    let before = Parts { payload, policy, priority, labels };
    let text =
        serde_json::to_string_pretty(&before).map_err(|error| Trouble::from(anyhow::Error::from(error)))?;
    let written = in_editor(editor, &text)
        .map_err(|error| Trouble::new(Exit::Failed, format!("the editor {editor:?}: {error}")))?;
    let after: Parts = serde_json::from_str(&written).map_err(|error| {
        Trouble::new(Exit::Failed, format!("what you wrote is not understood: {error}"))
            .hint("nothing was changed; begin again, and leave the names as they are")
    })?;
    Ok(Parts {
        payload: after.payload.filter(|new| Some(new) != before.payload.as_ref()),
        policy: after.policy.filter(|new| Some(new) != before.policy.as_ref()),
        priority: after.priority.filter(|new| Some(*new) != before.priority),
        labels: after.labels.filter(|new| Some(new) != before.labels.as_ref()),
    })
}

/// The text as it is when the editor has been closed. The file is its owner's alone.
fn in_editor(editor: &str, text: &str) -> std::io::Result<String> {
    let mut file = tempfile::Builder::new().prefix("redrive-").suffix(".json").tempfile()?;
    writeln!(file, "{text}")?;
    file.flush()?;
    // An editor may be given with its options, as in `code --wait`.
    let mut words = editor.split_whitespace();
    let status = Command::new(words.next().unwrap_or(editor)).args(words).arg(file.path()).status()?;
    if !status.success() {
        return Err(std::io::Error::other(format!("ended with {status}; nothing was changed")));
    }
    let path = file.path().to_owned();
    read_again(&path, file.as_file_mut())
}

/// Some editors write a new file in the place of the old one.
fn read_again(path: &Path, old: &mut std::fs::File) -> std::io::Result<String> {
    if let Ok(text) = std::fs::read_to_string(path) {
        return Ok(text);
    }
    let mut text = String::new();
    old.rewind()?;
    old.read_to_string(&mut text)?;
    Ok(text)
}
