//! The `redrive` binary: reads the command line, does what it says, and answers with an exit code.

mod bench;
mod cli;
mod client;
mod commands;
mod doctor;
mod out;
mod serving;
mod stopwatch;
mod table;
mod times;
mod trouble;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::commands::run;
use crate::commands::{
    config, dead, destinations, enqueue, executions, finish, get, import, jobs, pages, policy, queues,
    run as running, simulate, stats, store, tail, tokens,
};

/// Jobs are many small allocations, made on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(options) => serving::run(&options),
        Command::Get(given) => get::run(*given),
        Command::Run(given) => running::run(*given),
        Command::Enqueue(job) => run(enqueue::run(*job)),
        Command::Jobs(command) => run(jobs::run(command)),
        Command::Executions(command) => run(executions::run(command)),
        Command::Dead(command) => run(dead::run(command)),
        Command::Queues(command) => run(queues::run(command)),
        Command::Destinations(command) => run(destinations::run(command)),
        Command::Credentials(command) => run(destinations::credentials(command)),
        Command::Stats(given) => run(stats::stats(given)),
        Command::Activity(given) => run(stats::activity(given)),
        Command::Tail(given) => run(tail::run(given)),
        Command::Policy(command) => run(policy::run(command)),
        Command::ExplainClassify(given) => run(policy::classify(given)),
        Command::Import(command) => finish(import::run(command)),
        Command::Tokens(command) => run(tokens::run(command)),
        Command::Config(command) => finish(config::run(command)),
        Command::Error(given) => finish(pages::error(&given)),
        Command::Completions(given) => finish(pages::completions(&given)),
        Command::Man(given) => finish(pages::manual(&given)),
        Command::Reference => finish(pages::reference()),
        Command::Backup(given) => run(store::backup(given)),
        Command::Restore(given) => run(store::restore(given)),
        Command::Hold(given) => run(store::hold(given)),
        Command::Resume(given) => run(store::resume(given)),
        Command::Migrate(given) => run(store::migrate(given)),
        Command::Doctor(options) => doctor::run(&options),
        Command::Simulate(given) => finish(simulate::run(*given)),
        Command::Bench(options) => out::exit_code(bench::run(&options)),
        Command::BenchChild(child) => out::exit_code(bench::child(&child)),
        Command::BenchTarget => out::exit_code(bench::target()),
        Command::BenchPeer(part) => out::exit_code(bench::peer(&part)),
    }
}
