//! `cluster run <command…>`: runs the command beside a throw-away PostgreSQL, and exits as the command did.

use std::process::{Command, ExitCode};

use redrive_testbed::{Cluster, SERVER_VARIABLE};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [run, program, rest @ ..] = arguments.as_slice() else { return usage() };
    if run != "run" {
        return usage();
    }
    let cluster = Cluster::start();
    match Command::new(program).args(rest).env(SERVER_VARIABLE, cluster.url("postgres")).status() {
        // No code: a signal ended it.
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(why) => complain(&format!("error: {} cannot be started: {why}", program.display())),
    }
}

fn usage() -> ExitCode {
    complain("usage: cluster run <command> [argument…]")
}

#[expect(clippy::print_stderr, reason = "a program for the terminal")]
fn complain(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}
