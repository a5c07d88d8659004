//! The `redrive` binary: reads the command line, does what it says, and answers with an exit code.

mod bench;
mod cli;
mod doctor;
mod out;
mod serving;
mod stopwatch;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// Jobs are many small allocations, made on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(options) => bench::run(&options),
        Command::BenchChild(child) => bench::child(&child),
        Command::BenchPeer(part) => bench::peer(&part),
        Command::Serve(options) => return serving::run(&options),
        Command::Doctor(options) => return doctor::run(&options),
    };
    out::exit_code(done)
}
