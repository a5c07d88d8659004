//! The terminal: the only file that writes to it. Answers go to stdout; progress and errors to stderr.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the one file that talks to the terminal"
)]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

/// What was asked for.
pub(crate) fn answer(text: &str) {
    println!("{text}");
}

/// What a sign means at a glance.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Blue = 34,
}

/// The text in a colour, where there is a person to see it.
pub(crate) fn coloured(text: &str, colour: Colour) -> String {
    if std::io::stdout().is_terminal() {
        format!("\x1b[{}m{text}\x1b[0m", colour as u8)
    } else {
        text.to_owned()
    }
}

/// What is being done, for a person who watches. Replaced by the next one.
pub(crate) fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        eprint!("\r\x1b[2K{text}");
        // Nothing depends on it being seen.
        drop(stderr.flush());
    }
}

/// 0 if it was done, 1 if it failed. A command line that cannot be read ends with 2, before this.
pub(crate) fn exit_code(done: anyhow::Result<()>) -> ExitCode {
    progress("");
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Why it could not be done.
pub(crate) fn complain(error: &anyhow::Error) {
    // Part of it may come from outside; the hint stands on a line of its own.
    for line in format!("error: {error:#}").lines() {
        eprintln!("{}", redrive_server::printable(line));
    }
}
