//! `redrive config`: what is configured, where that comes from, and what is wrong with it.

use clap::{Args, Subcommand};
use redrive_server::config;
use redrive_server::printable;
use serde_json::json;

use crate::client::Target;
use crate::out::{self, Colour};
use crate::table::{Table, text};
use crate::trouble::{Done, Trouble};

/// What to know about the configuration.
#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say everything that is wrong with the configuration, each with its place
    Check(Check),
    /// Show every value that holds; secrets are hidden
    Show(Show),
}

/// Of which files.
#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    given: Given,
}

/// Of which files, and how.
#[derive(Args)]
pub(crate) struct Show {
    /// Say where each value comes from
    #[arg(long)]
    origin: bool,
    #[command(flatten)]
    given: Given,
}

/// What a server would be started with.
#[derive(Args)]
pub(crate) struct Given {
    /// The config file, instead of ./redrive.toml
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// The store, instead of the configured one
    #[arg(long, value_name = "sqlite:PATH|postgres://…")]
    store: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Given {
    fn read(&self) -> config::Loaded {
        let target = Target { config: self.config.clone(), store: self.store.clone(), ..Target::default() };
        config::read(&target.sources())
    }
}

pub(crate) fn run(command: ConfigCommand) -> Done {
    match command {
        ConfigCommand::Check(Check { given }) => {
            let loaded = given.read();
            if given.json {
                let of = |mistake: &config::Mistake| json!({ "place": mistake.place.to_string(), "key": mistake.key, "message": mistake.message });
                let mistakes: Vec<_> = loaded.mistakes().iter().map(of).collect();
                out::answer(&redrive_server::printable_json(&json!(mistakes).to_string()));
            }
            judged(&loaded)?;
            if !given.json {
                out::answer("the configuration is right");
            }
            Ok(())
        }
        ConfigCommand::Show(Show { origin, given }) => {
            let loaded = given.read();
            let shown = config::show(&loaded);
            if given.json {
                let of = |line: &config::Shown| json!({ "key": line.path, "value": line.json, "origin": line.origin.to_string() });
                let lines: Vec<_> = shown.iter().map(of).collect();
                out::answer(&redrive_server::printable_json(&json!(lines).to_string()));
            } else if origin {
                let mut table = Table::new(&["key", "from", "value"]);
                for line in &shown {
                    table.row(vec![text(&line.path), text(line.origin.to_string()), text(&line.value)]);
                }
                table.print();
            } else {
                for line in &shown {
                    let path = out::coloured(&printable(&line.path), Colour::Dim);
                    out::answer(&format!("{path} = {}", printable(&line.value)));
                }
            }
            judged(&loaded)
        }
    }
}

fn judged(loaded: &config::Loaded) -> Done {
    if loaded.mistakes().is_empty() { Ok(()) } else { Err(Trouble::config(loaded.mistakes())) }
}
