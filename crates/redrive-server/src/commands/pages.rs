//! Pages that come with the binary: completions, the manual, what each error code means, and the reference.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::out;
use crate::trouble::{Done, EXITS, Exit, Trouble};

/// The width of the reference, whatever terminal it is made on.
const REFERENCE_WIDTH: usize = 110;

/// For which shell.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Of which command.
#[derive(Args)]
pub(crate) struct Manual {
    /// The command, such as `jobs list`; the whole program if none is named
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Which error.
#[derive(Args)]
pub(crate) struct ErrorPage {
    /// Its code, such as RETRY_QUEUE_FULL; all codes if none is named
    code: Option<String>,
}

macro_rules! error_pages {
    ($($code:literal)*) => {
        &[$(($code, include_str!(concat!("../../../../docs/errors/", $code, ".md")))),*]
    };
}

/// Every page of docs/errors.
const ERRORS: &[(&str, &str)] = error_pages! {
    "LEASE_LOST" "RETRY_AUTH_REQUIRED" "RETRY_BUSY" "RETRY_CONFLICT" "RETRY_CORRUPT" "RETRY_CROSS_SITE" "RETRY_DISK_FULL"
    "RETRY_EXHAUSTED" "RETRY_FORBIDDEN" "RETRY_HEADERS_TOO_LARGE" "RETRY_INTERNAL" "RETRY_INVALID"
    "RETRY_METHOD" "RETRY_MISDIRECTED" "RETRY_NOT_FOUND" "RETRY_NOT_RETRYABLE"
    "RETRY_QUEUE_FULL" "RETRY_RATE_LIMITED" "RETRY_READ_ONLY" "RETRY_STORE_IN_USE" "RETRY_STORE_NEWER"
    "RETRY_STORE_UNAVAILABLE" "RETRY_TOO_LARGE" "RETRY_TOO_SLOW" "RETRY_URL_TOO_LONG"
};

pub(crate) fn completions(given: &Completions) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(given.shell, &mut Cli::command(), "redrive", &mut script);
    out::answer(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}

pub(crate) fn manual(given: &Manual) -> Done {
    let mut command = Cli::command();
    command.build();
    for name in &given.command {
        let Some(found) = command.find_subcommand(name).cloned() else {
            return Err(Trouble::new(Exit::NotFound, format!("there is no command {name:?}"))
                .hint("see redrive --help"));
        };
        command = found;
    }
    let name = given.command.iter().fold("redrive".to_owned(), |name, part| name + "-" + part);
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .title(name)
        .source(concat!("redrive ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .map_err(|error| Trouble::from(anyhow::Error::from(error)))?;
    out::answer(String::from_utf8_lossy(&page).trim_end());
    Ok(())
}

pub(crate) fn error(given: &ErrorPage) -> Done {
    let Some(code) = &given.code else {
        ERRORS.iter().for_each(|(code, _)| out::answer(code));
        return Ok(());
    };
    let wanted = code.to_uppercase();
    match ERRORS.iter().find(|(code, _)| *code == wanted || code.strip_prefix("RETRY_") == Some(&wanted)) {
        Some((_, page)) => {
            out::answer(page.trim_end());
            Ok(())
        }
        None => Err(Trouble::new(Exit::NotFound, format!("there is no error {code:?}"))
            .hint("redrive error lists all codes")),
    }
}

/// The page docs/reference/cli.md.
pub(crate) fn reference() -> Done {
    let mut page = include_str!("pages/head.md").to_owned();
    page += "\n## Exit codes\n\n| code | meaning |\n|---|---|\n";
    for (code, meaning) in EXITS {
        page += &format!("| {code} | {meaning} |\n");
    }
    page += "\n`redrive doctor` has its own: 0 for nothing worse than a notice, 1 for a warning, 2 for a danger.\n";
    let mut root = Cli::command().term_width(REFERENCE_WIDTH);
    root.build();
    describe(&mut root, &mut page);
    out::answer(page.trim_end());
    Ok(())
}

fn describe(command: &mut clap::Command, page: &mut String) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    let name = command.get_bin_name().unwrap_or("redrive").to_owned();
    *page += &format!("\n## `{name}`\n\n");
    // What is more than a line is prose; the rest is short enough to be looked through.
    if let Some(about) = command.get_long_about().map(ToString::to_string) {
        *page += &format!("{}\n\n", about.trim_end());
    }
    let help = command.render_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    *page += &format!("```text\n{}\n```\n", lines.join("\n").trim_end());
    for below in command.get_subcommands_mut() {
        describe(below, page);
    }
}
