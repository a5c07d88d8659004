//! `redrive import`: the retry configuration of another library, as policies of ours.

mod resilience4j;
mod settings;

use clap::{Args, Subcommand, ValueEnum};
use redrive_server::printable;
use serde_json::{Value, json};

use self::resilience4j::Imported;
use self::settings::Settings;
use crate::out;
use crate::trouble::{Done, Exit, Trouble};

/// What to import.
#[derive(Subcommand)]
pub(crate) enum ImportCommand {
    /// Read the retries of a Resilience4j configuration, and print the equivalent policies
    ///
    /// FILE is an application.yml or application.properties. What is printed goes into redrive.toml; what has no
    /// equivalent is named on stderr. Nothing is changed. See docs/guides/from-resilience4j.md.
    Resilience4j(Source),
}

/// Where it stands.
#[derive(Args)]
pub(crate) struct Source {
    /// The file, or - for stdin
    file: String,
    /// What it is written in [default: by its name, else YAML]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Print one JSON object with the policies and what has no equivalent
    #[arg(long)]
    json: bool,
}

/// What a configuration is written in.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    Yaml,
    Properties,
}

pub(crate) fn run(command: ImportCommand) -> Done {
    let ImportCommand::Resilience4j(Source { file, format, json }) = command;
    let at = if file == "-" { "-".to_owned() } else { format!("@{file}") };
    let text = super::read_from(&at, "FILE")?;
    let by_name = if file.ends_with(".properties") { Format::Properties } else { Format::Yaml };
    let settings = match format.unwrap_or(by_name) {
        Format::Yaml => Settings::from_yaml(&text),
        Format::Properties => Ok(Settings::from_properties(&text)),
    };
    let settings = settings.map_err(|problem| {
        Trouble::usage(format!("{file} is not understood: {problem}"), "write the file as Spring reads it")
    })?;
    let Imported { policies, notes } = resilience4j::import(&settings);
    if policies.is_empty() {
        return Err(Trouble::new(Exit::Failed, format!("{file} has no retries of Resilience4j"))
            .hint("they stand under resilience4j.retry.instances"));
    }
    if json {
        out::answer(&json!({ "policies": policies, "notes": notes }).to_string());
        return Ok(());
    }
    for (name, policy) in &policies {
        let value = serde_json::to_value(policy).unwrap_or_default();
        out::answer(&format!("[policies.{}]", Value::from(name.as_str())));
        for (key, value) in value.as_object().into_iter().flatten() {
            out::answer(&format!("{key} = {}", toml(value)));
        }
        out::answer("");
    }
    notes.iter().for_each(|note| out::note(&printable(note)));
    Ok(())
}

/// A value on one line, as TOML writes it.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name} = {}", toml(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        plain => plain.to_string(),
    }
}
