//! What the Rust peers share: the command line, the clock, the JSON line.
//!
//! Included by `#[path]` in each peer's `main.rs`, because the peers are
//! separate packages (see README.md) and this is too little for a crate.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many callers `enqueue_64` has.
pub const CALLERS: usize = 64;
/// How many times a job of `retry_path` fails before it succeeds.
pub const FAILURES: u8 = 2;

/// One measurement to take.
pub struct Args {
    pub measure: String,
    pub jobs: usize,
    pub dir: PathBuf,
    /// A measurement that is not over by then is cut, and says so.
    pub limit: Duration,
    settings: Vec<(String, String)>,
}

impl Args {
    /// `MEASURE --jobs N --dir DIR [--limit SECONDS] [--set NAME=VALUE]...`
    pub fn parse() -> Self {
        let mut words = std::env::args().skip(1);
        let mut args = Self {
            measure: words.next().unwrap_or_else(|| usage("a measure is needed")),
            jobs: 0,
            dir: PathBuf::new(),
            limit: Duration::from_secs(60),
            settings: Vec::new(),
        };
        while let Some(flag) = words.next() {
            let value = words.next().unwrap_or_else(|| usage(&format!("{flag} needs a value")));
            match flag.as_str() {
                "--jobs" => args.jobs = number(&flag, &value),
                "--dir" => args.dir = PathBuf::from(value),
                "--limit" => args.limit = Duration::from_secs(number(&flag, &value)),
                "--set" => match value.split_once('=') {
                    Some((name, value)) => args.settings.push((name.into(), value.into())),
                    None => usage("--set takes NAME=VALUE"),
                },
                _ => usage(&format!("unknown flag {flag}")),
            }
        }
        if args.jobs == 0 || args.dir.as_os_str().is_empty() {
            usage("--jobs and --dir are needed");
        }
        args
    }

    /// A tunable of the peer, for trying other values than the best one found.
    pub fn setting<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        match self.settings.iter().rev().find(|(n, _)| n == name) {
            Some((_, value)) => number(name, value),
            None => default,
        }
    }
}

fn number<T: std::str::FromStr>(what: &str, value: &str) -> T {
    value.parse().unwrap_or_else(|_| usage(&format!("{what}: {value:?} does not parse")))
}

fn usage(wrong: &str) -> ! {
    eprintln!("{wrong}");
    eprintln!(
        "usage: drain|enqueue_one|enqueue_64|retry_path --jobs N --dir DIR \
         [--limit SECONDS] [--set NAME=VALUE]..."
    );
    std::process::exit(2)
}

/// The database file of a run; a leftover of an earlier one is an error, not
/// something to measure on top of.
pub fn fresh(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    assert!(!path.exists(), "{} already exists", path.display());
    path
}

/// What one measurement found.
pub struct Outcome {
    pub completed: usize,
    pub elapsed: Duration,
    pub journal_mode: String,
    pub synchronous: String,
}

pub fn report(peer: &str, args: &Args, outcome: &Outcome) {
    let seconds = outcome.elapsed.as_secs_f64();
    println!(
        "{{\"peer\":\"{peer}\",\"name\":\"{}\",\"jobs\":{},\"completed\":{},\
         \"seconds\":{seconds:.6},\"rate\":{:.1},\"journal_mode\":\"{}\",\
         \"synchronous\":\"{}\"}}",
        args.measure,
        args.jobs,
        outcome.completed,
        outcome.completed as f64 / seconds,
        outcome.journal_mode,
        outcome.synchronous,
    );
}

/// Tokio with `--set threads=N` workers; 0 is its one-thread flavour. Callers
/// that mostly wait for the peer's own thread do better on few.
pub fn runtime(args: &Args, for_callers: usize) -> tokio::runtime::Runtime {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let enqueues = args.measure.starts_with("enqueue");
    let mut builder = match args.setting("threads", if enqueues { for_callers } else { cores }) {
        0 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    builder.enable_all().build().expect("start tokio")
}

/// Waits until `done` says so, looking every millisecond; false at the limit.
pub async fn wait_until(start: Instant, limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    while !done() {
        if start.elapsed() >= limit {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
}
