//! The terminal: the only file that writes to it. Answers go to stdout; progress and errors to stderr.

#![expect(clippy::print_stderr, reason = "this is the one file that talks to the terminal")]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::{LazyLock, Mutex, PoisonError};

use redrive_server::config::{ServeOptions, Sources};

use crate::trouble::Trouble;

/// What was asked for.
pub(crate) fn answer(text: &str) {
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        // Whoever read has had enough: `redrive jobs list | head`.
        let had_enough = error.kind() == std::io::ErrorKind::BrokenPipe;
        if !had_enough {
            eprintln!("error: the answer cannot be written: {error}");
        }
        std::process::exit(i32::from(!had_enough));
    }
}

/// What stdout has room for; nothing where it is no terminal.
pub(crate) fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// A question that wants a clear yes. Nothing if there is nobody to ask.
pub(crate) fn ask(question: &str) -> Option<bool> {
    let is_somebody = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !is_somebody {
        return None;
    }
    eprint!("{question} [y/N] ");
    drop(std::io::stderr().flush());
    let mut said = String::new();
    std::io::stdin().read_line(&mut said).ok()?;
    Some(matches!(said.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// What a sign means at a glance.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Blue = 34,
    Dim = 2,
    Bold = 1,
}

static PLAIN: LazyLock<bool> = LazyLock::new(|| Sources::of_process(&ServeOptions::default()).is_plain());

/// The text in a colour, where there is a person to see it.
pub(crate) fn coloured(text: &str, colour: Colour) -> String {
    if std::io::stdout().is_terminal() && !*PLAIN {
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

/// Lines at the foot of a terminal that are written over again and again, with everything else above them. Where stderr
/// is no terminal there are none.
#[derive(Default)]
pub(crate) struct Foot(Mutex<usize>);

impl Foot {
    /// What stderr has room for; nothing where it is no terminal.
    pub(crate) fn width() -> Option<usize> {
        let stderr = std::io::stderr();
        let size = stderr.is_terminal().then(|| rustix::termios::tcgetwinsize(&stderr).ok()).flatten()?;
        Some(usize::from(size.ws_col)).filter(|width| *width > 0)
    }

    /// Writes these lines over the last ones. Each must fit.
    pub(crate) fn paint(&self, lines: &[String]) {
        let mut painted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = erased(*painted);
        lines.iter().for_each(|line| text += &format!("{line}\r\n"));
        *painted = lines.len();
        eprint!("{text}");
        drop(std::io::stderr().flush());
    }

    /// Takes the lines away, says something that stays, and leaves the rest to the next painting.
    pub(crate) fn above(&self, say: impl FnOnce()) {
        let mut painted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *painted > 0 {
            eprint!("{}", erased(*painted));
            *painted = 0;
        }
        say();
    }
}

fn erased(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r\x1b[J") }
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

/// What went wrong, what to do about it, and the exit code of it.
pub(crate) fn trouble(trouble: &Trouble) -> ExitCode {
    for line in format!("error: {}", trouble.message).lines() {
        eprintln!("{}", redrive_server::printable(line));
    }
    for line in trouble.hint.iter().flat_map(|hint| hint.lines()) {
        eprintln!("hint: {}", redrive_server::printable(line));
    }
    trouble.exit_code()
}

/// Something a person should know beside the answer.
pub(crate) fn note(text: &str) {
    eprintln!("{}", redrive_server::printable(text));
}
