//! `redrive import`: the retry configuration of another library, as policies of ours.

mod resilience4j;
mod settings;

use clap::{Args, Subcommand, ValueEnum};
use redrive::Policy;
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
    let tables: Vec<String> = policies.iter().map(|(name, policy)| table(name, policy)).collect();
    out::answer(&tables.join("\n\n"));
    notes.iter().for_each(|note| out::note(&printable(note)));
    Ok(())
}

/// A policy as it stands in redrive.toml.
fn table(name: &str, policy: &Policy) -> String {
    let value = serde_json::to_value(policy).unwrap_or_default();
    let mut lines = vec![format!("[policies.{}]", Value::from(name))];
    lines.extend(
        value.as_object().into_iter().flatten().map(|(key, value)| format!("{key} = {}", toml(value))),
    );
    lines.join("\n")
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

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_server::config::{self, Sources};

    #[test]
    fn what_the_guide_shows_is_what_is_printed_and_can_be_configured() {
        let guide = include_str!("../../../../docs/guides/from-resilience4j.md");
        let block = |language: &str| {
            let rest = guide.split(&format!("```{language}\n")).nth(1).unwrap();
            rest.split("```").next().unwrap().trim_end()
        };
        let imported = resilience4j::import(&Settings::from_yaml(block("yaml")).unwrap());
        let printed = table("orders", &imported.policies["orders"]);
        assert_eq!(printed, block("toml"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("redrive.toml");
        std::fs::write(&file, printed).unwrap();
        assert!(config::load(&Sources::none().file(&file)).is_ok());
    }
}
