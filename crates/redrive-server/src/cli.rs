//! The command line: what can be asked for, and how a mistake in it is answered.

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

pub(crate) use redrive_server::config::StoreUrl;

use crate::commands::config::ConfigCommand;
use crate::commands::dead::DeadCommand;
use crate::commands::destinations::{CredentialsCommand, DestinationsCommand};
use crate::commands::enqueue::Enqueue;
use crate::commands::executions::ExecutionsCommand;
use crate::commands::get::Get;
use crate::commands::import::ImportCommand;
use crate::commands::jobs::JobsCommand;
use crate::commands::pages::{Completions, ErrorPage, Manual};
use crate::commands::policy::{Classify, PolicyCommand};
use crate::commands::queues::QueuesCommand;
use crate::commands::run::Run;
use crate::commands::simulate::Simulate;
use crate::commands::stats::{Activity, Stats};
use crate::commands::store::{Copy, Migrate, Switch};
use crate::commands::tail::Tail;
use crate::commands::tokens::TokensCommand;

/// Work that fails comes back and finishes.
#[derive(Parser)]
#[command(name = "redrive", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve the API, run HTTP jobs and commands, and lease the rest to workers
    ///
    /// Everything that can be set stands in a config file, with every key in docs/reference/config.md. Stops at SIGTERM:
    /// nothing new is taken, and what runs may finish within the grace period.
    ///
    /// Exit code: 0 after a stop, 1 if something failed, 78 if the configuration does not allow a start.
    Serve(redrive_server::config::ServeOptions),
    /// Download files; interrupted in any way, the same command goes on where it was
    ///
    /// Each file is tried again as the preset `download` says, and gone on with where it
    /// broke off. A try that brought something before it was cut costs no retry. Only what
    /// is complete and verified gets its name; nothing is overwritten and nothing unpacked.
    /// See docs/guides/downloads.md.
    ///
    ///     redrive get https://example.com/large.iso --checksum sha256:9f86d0…
    ///
    ///     redrive get -i urls.txt -o pictures -j 8 --per-host 2
    ///
    /// Exit code: 0 if every file is there, 1 if one is not and will not be tried again,
    /// 2 for a URL or an option that cannot be used, 75 if another `redrive get` works in
    /// the folder, 130 if it was interrupted.
    #[command(verbatim_doc_comment)]
    Get(Box<Get>),
    /// Run a command until it succeeds, through restarts
    ///
    /// Interrupted in any way, the same command in the same folder goes on with the tries
    /// that are left. No shell is involved. See docs/guides/run.md.
    ///
    ///     redrive run --every 30s --until 2h -- rsync -a photos/ backup:photos/
    ///
    /// Exit code: that of the command's last try, 128 and the number of the signal that
    /// ended it, 126 if it cannot be started, 127 if there is none, 75 if it runs already;
    /// 130 or 143 if `redrive` itself was told to stop.
    #[command(verbatim_doc_comment)]
    Run(Box<Run>),
    /// Put a job in
    ///
    /// Prints the job's id. When it does, the job is durable.
    ///
    ///     redrive enqueue http --url https://api.example.com/orders --body '{"order":17}' --policy media
    ///
    ///     redrive enqueue send_mail --payload @mail.json --key order-17 --delay 10m
    #[command(verbatim_doc_comment)]
    Enqueue(Box<Enqueue>),
    /// List jobs, look at them, and do something about them
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Start workflows, look at their executions, and do something about them
    #[command(subcommand)]
    Executions(ExecutionsCommand),
    /// Look at the jobs that need a person, and bring them back
    #[command(subcommand)]
    Dead(DeadCommand),
    /// See how the queues stand, stop them and let them go on
    #[command(subcommand)]
    Queues(QueuesCommand),
    /// See how the destinations stand, say what you know of them, and limit them
    #[command(subcommand)]
    Destinations(DestinationsCommand),
    /// Let jobs go again that waited for a credential
    #[command(subcommand)]
    Credentials(CredentialsCommand),
    /// Show how everything stands
    Stats(Stats),
    /// Show what has happened, newest first
    Activity(Activity),
    /// Watch what happens, as it happens; needs a server
    Tail(Tail),
    /// Look at policies: when to try again and when to stop
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Say what a failure would be taken for, and which rule says so
    ExplainClassify(Classify),
    /// Read what another library was configured with, and print what it means here
    #[command(subcommand)]
    Import(ImportCommand),
    /// Make, list and revoke the tokens with which others come in
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say what an error code means and what to do about it
    Error(ErrorPage),
    /// Print the completions for a shell
    ///
    ///     redrive completions bash > /etc/bash_completion.d/redrive
    #[command(verbatim_doc_comment)]
    Completions(Completions),
    /// Print the manual of the program or of one command
    ///
    ///     redrive man jobs list | man -l -
    #[command(verbatim_doc_comment)]
    Man(Manual),
    /// Copy a store, also while it is used
    ///
    /// Everything that was acknowledged before is in the copy. For a SQLite file; PostgreSQL is copied with pg_dump.
    Backup(Copy),
    /// Make a store of a copy
    ///
    /// It starts held: nothing runs until `redrive resume`, because jobs in it may have been done since.
    Restore(Copy),
    /// Let nothing begin, on every server of a store, until `redrive resume`
    Hold(Switch),
    /// Go on after `redrive hold` or `redrive restore`
    Resume(Switch),
    /// Bring a store's schema up to date, which opening it does too
    Migrate(Migrate),
    /// Show what an outage costs, and how its destination is brought back, before it happens
    ///
    /// The real engine on a virtual clock against a modelled destination, beside four rules that others use. Above its
    /// capacity the destination turns away what is too much, above one and a half of it everything fails. See
    /// docs/guides/simulate.md.
    ///
    ///     redrive simulate --preset feed --arrivals 200/s --outage 10m --capacity 300/s
    #[command(verbatim_doc_comment)]
    Simulate(Box<Simulate>),
    /// Measure, beside the tightest hand-written SQL loop that does the same durable work
    Bench(BenchOptions),
    /// Look for whatever keeps a store from its promises, and say what to do about it
    ///
    /// Reads only, and also where an engine would refuse to open: a server that forgets, a standby, a newer schema, a
    /// database without jobs.
    ///
    /// Exit code: 0 if nothing is worse than a notice, 1 if there is a warning, 2 if there is a danger or the store
    /// could not be examined.
    Doctor(DoctorOptions),
    /// The page docs/reference/cli.md
    #[command(hide = true)]
    Reference,
    /// A part of the benchmark that needs a process of its own
    #[command(hide = true)]
    BenchChild(BenchChild),
    /// What the jobs of the benchmark call
    #[command(hide = true)]
    BenchTarget,
    /// What a comparison with other queues asks of each of them
    #[command(hide = true)]
    BenchPeer(BenchPeer),
}

/// What to measure, and where.
#[derive(Args)]
pub(crate) struct BenchOptions {
    /// Where: files are made beside PATH, databases on the server, and removed again [default: a temporary folder]
    #[arg(long, value_name = "sqlite:PATH|postgres://…")]
    pub(crate) store: Option<StoreUrl>,
    /// How many jobs the throughput measures take; the slow ones take a fixed share of it
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    pub(crate) jobs: u64,
    /// How many jobs wait for next month in idle_1m and drain_1m, and are there in list
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    pub(crate) waiting: u64,
    /// How many jobs have come and gone in drain_5m
    #[arg(long, value_name = "N", default_value_t = 5_000_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    pub(crate) history: u64,
    /// How many pairs (ours, hand-written) each ratio is the median of
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Measure the server instead: jobs that come in and go out over HTTP
    #[arg(long)]
    pub(crate) http: bool,
    /// Measure only this; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<Measure>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to examine.
#[derive(Args)]
pub(crate) struct DoctorOptions {
    /// The store [default: the configured one, else sqlite:redrive.db]
    #[arg(long, value_name = "sqlite:PATH|postgres://…")]
    pub(crate) store: Option<StoreUrl>,
    /// The config file, instead of ./redrive.toml
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<std::path::PathBuf>,
    /// Print a JSON array of findings instead of lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part of the benchmark that runs in a process of its own.
#[derive(Args)]
pub(crate) struct BenchChild {
    pub(crate) task: ChildTask,
    /// The file or the database
    pub(crate) store: StoreUrl,
    /// How many jobs, or how many places
    pub(crate) count: usize,
}

/// One part of a comparison with other queues: see bench/peers/postgres.
#[derive(Args)]
pub(crate) struct BenchPeer {
    #[arg(long)]
    pub(crate) store: StoreUrl,
    #[arg(long)]
    pub(crate) measure: String,
    #[arg(long)]
    pub(crate) jobs: u64,
    /// How many run at once
    #[arg(long, default_value_t = 4096)]
    pub(crate) places: usize,
}

/// What a child does.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ChildTask {
    /// Enqueue jobs that are due next month.
    Seed,
    /// Enqueue jobs that are due now.
    Fill,
    /// Run an engine that has nothing to do, and report what that costs.
    Idle,
    /// Run jobs that take an hour, and report what it costs to keep them.
    Keep,
    /// Run everything that is due, and report how much memory that took.
    Drain,
    /// Say that it is ready, wait for a line, and run everything that is due.
    DrainTogether,
    /// The same by hand.
    DrainByHand,
    /// Start executions of five nodes.
    FillExecutions,
    /// Say that it is ready, wait for a line, and run until nothing is left.
    RunOut,
}

/// What can be measured, in the order in which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// One caller enqueues one job at a time.
    EnqueueOne,
    /// 64 callers at once, each enqueues one job at a time.
    #[value(name = "enqueue_64")]
    Enqueue64,
    /// 1,000 jobs a call.
    EnqueueBulk,
    /// Jobs that do nothing, from the first claim until all have succeeded.
    Drain,
    /// The same with two processes (PostgreSQL).
    #[value(name = "drain_2")]
    Drain2,
    /// The same with four processes (PostgreSQL).
    #[value(name = "drain_4")]
    Drain4,
    /// From the call that enqueues to the start of the handler, on an idle engine.
    Latency,
    /// How long after its due time a job starts.
    Lateness,
    /// Each job fails twice and comes back at once; counted in attempts.
    RetryPath,
    /// Peak memory of a process that drains.
    Memory,
    /// What an engine costs that has nothing to do while a million jobs wait for next month.
    #[value(name = "idle_1m")]
    Idle1m,
    /// Draining while a million jobs wait for next month, beside draining without them.
    #[value(name = "drain_1m")]
    Drain1m,
    /// Draining after five million jobs have come and gone, beside draining without that history; only if it is named,
    /// because they have to come and go first.
    #[value(name = "drain_5m")]
    Drain5m,
    /// What it costs to keep 10,000 jobs that take an hour.
    #[value(name = "running_10k")]
    Running10k,
    /// Draining while 100,000 jobs are held for a destination that is down, beside draining without them.
    Held,
    /// Draining jobs for 10,000 destinations, beside draining as many for one.
    Destinations,
    /// Executions of five nodes, in nodes, beside as many plain jobs: two processes on PostgreSQL, one on SQLite.
    Executions,
    /// A page of the list of a million jobs, beside the same of a thousand: milliseconds of each filter, and the worst ratio.
    List,
    /// POST /jobs on 64 connections, beside 64 callers of the library.
    HttpEnqueue,
    /// HTTP jobs through the server, 64 at once, beside the same client in a bare loop.
    HttpExecute,
    /// The same, 256 at once.
    #[value(name = "http_execute_256")]
    HttpExecute256,
}

impl Measure {
    /// Whether it takes several processes on one store.
    pub(crate) fn needs_processes(self) -> bool {
        matches!(self, Measure::Drain2 | Measure::Drain4)
    }

    /// Whether it takes so long that it is measured only if it is named.
    pub(crate) fn takes_long(self) -> bool {
        self == Measure::Drain5m
    }

    /// Whether it is of the server.
    pub(crate) fn is_over_http(self) -> bool {
        matches!(self, Measure::HttpEnqueue | Measure::HttpExecute | Measure::HttpExecute256)
    }

    /// The name on the command line and in the report.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
