//! The protocol of ../README.md, once for all the Rust peers: the command
//! line, the start signal, the measures, the JSON lines. A peer is what
//! implements [`Peer`], in `bin/`; what it must not do is measure anything.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock itself")]

use std::future::Future;
use std::io::{BufRead, Write};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// How many times a job of `retry_path` fails before it succeeds.
const FAILURES: i64 = 2;
/// Jobs in one call when the queue is filled beforehand, which is not timed.
const FILL: usize = 5_000;
/// Jobs in one call of `bulk_1000`.
const BULK: usize = 1_000;
/// How often a worker process says how far it is.
const REPORT_EVERY: Duration = Duration::from_millis(5);
/// Between the start signal and the first instant of `lateness`.
const LATENESS_LEAD_US: i64 = 2_000_000;
/// Over how long the instants of `lateness` are spread.
const LATENESS_SPREAD_US: i64 = 10_000_000;

/// What every job carries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Payload {
    pub n: usize,
    /// When the job was sent (`latency`) or is due (`lateness`), in
    /// microseconds since 1970; zero in the other measures.
    pub at: i64,
}

/// A queue to measure.
pub trait Peer: Clone + Send + Sync + 'static {
    const NAME: &'static str;
    /// The jobs that are not recorded as finished: `TABLE WHERE CONDITION`.
    const UNFINISHED: &'static str;
    /// A query for the attempts on record, where the peer keeps them.
    const ATTEMPTS: Option<&'static str>;
    /// How finely a job's due instant can be said.
    const DUE_STEP_US: i64;
    /// How many callers `enqueue_64` has: the better of 50 and 64.
    const CALLERS: usize;

    type Worker: Send + 'static;

    fn connect(call: &Call) -> impl Future<Output = Self>;
    /// Makes the peer's tables.
    fn set_up(&self) -> impl Future<Output = ()>;
    fn add(&self, payload: Payload) -> impl Future<Output = ()> + Send;
    fn add_all(&self, payloads: Vec<Payload>) -> impl Future<Output = ()> + Send;
    /// The same, each due at its `at`.
    fn add_due(&self, payloads: Vec<Payload>) -> impl Future<Output = ()> + Send;
    /// Whatever may be done before a job is taken.
    fn prepare(&self, call: &Call, tally: Tally) -> impl Future<Output = Self::Worker> + Send;
    /// Works until the process ends.
    fn work(worker: Self::Worker) -> impl Future<Output = ()> + Send;
}

/// The command line: `--store URL --measure NAME --jobs N [--set NAME=VALUE]...`
pub struct Call {
    pub store: String,
    pub measure: String,
    pub jobs: usize,
    settings: Vec<(String, String)>,
}

impl Call {
    fn parse() -> Self {
        let mut call = Self { store: String::new(), measure: String::new(), jobs: 0, settings: Vec::new() };
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().unwrap_or_else(|| usage(&format!("{flag} needs a value")));
            match flag.as_str() {
                "--store" => call.store = value,
                "--measure" => call.measure = value,
                "--jobs" => call.jobs = number(&flag, &value),
                "--set" => match value.split_once('=') {
                    Some((name, value)) => call.settings.push((name.into(), value.into())),
                    None => usage("--set takes NAME=VALUE"),
                },
                _ => usage(&format!("unknown flag {flag}")),
            }
        }
        if call.store.is_empty() || call.measure.is_empty() || call.jobs == 0 {
            usage("--store, --measure and --jobs are needed");
        }
        call
    }

    /// A tunable of the peer, for trying other values than the best one found.
    pub fn setting<T: FromStr>(&self, name: &str, default: T) -> T {
        match self.settings.iter().rev().find(|(known, _)| known == name) {
            Some((_, value)) => number(name, value),
            None => default,
        }
    }

    /// Whether jobs are many, so that throughput counts and latency does not.
    pub fn throughput(&self) -> bool {
        self.measure.starts_with("drain") || self.measure == "retry_path"
    }
}

fn number<T: FromStr>(what: &str, value: &str) -> T {
    value.parse().unwrap_or_else(|_| usage(&format!("{what}: {value:?} does not parse")))
}

fn usage(wrong: &str) -> ! {
    eprintln!("{wrong}");
    eprintln!("usage: --store URL --measure NAME --jobs N [--set NAME=VALUE]...");
    std::process::exit(2)
}

/// What the handlers of a process have seen.
#[derive(Clone, Debug)]
pub struct Tally(Arc<Seen>);

#[derive(Debug)]
struct Seen {
    failures: i64,
    timed: bool,
    attempts: AtomicUsize,
    handled: AtomicUsize,
    late_us: Mutex<Vec<i64>>,
}

impl Tally {
    fn new(call: &Call) -> Self {
        Self(Arc::new(Seen {
            failures: if call.measure == "retry_path" { FAILURES } else { 0 },
            timed: matches!(call.measure.as_str(), "latency" | "lateness"),
            attempts: AtomicUsize::new(0),
            handled: AtomicUsize::new(0),
            late_us: Mutex::new(Vec::new()),
        }))
    }

    /// The whole handler. `attempt` counts from 1 and is what the queue has on
    /// record: a queue that forgets a failure never gets to the end.
    pub fn run(&self, payload: &Payload, attempt: i64) -> Result<(), String> {
        let seen = &self.0;
        if seen.timed {
            let late = now_us() - payload.at;
            seen.late_us.lock().expect("no handler panics").push(late);
        }
        seen.attempts.fetch_add(1, Ordering::Relaxed);
        if attempt <= seen.failures {
            return Err("not yet".into());
        }
        seen.handled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Prints what is new, for as long as the process lives.
    async fn report(self) {
        let mut said = 0;
        loop {
            tokio::time::sleep(REPORT_EVERY).await;
            let attempts = self.0.attempts.load(Ordering::Relaxed);
            if attempts == said {
                continue;
            }
            said = attempts;
            let late: Vec<i64> = std::mem::take(&mut *self.0.late_us.lock().expect("no handler panics"));
            let late_ms: Vec<f64> = late.iter().map(|us| *us as f64 / 1_000.0).collect();
            say(&serde_json::json!({
                "handled": self.0.handled.load(Ordering::Relaxed),
                "attempts": attempts,
                "late_ms": late_ms,
            }));
        }
    }
}

pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    since.as_micros() as i64
}

fn say(line: &impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    // Nobody reads on: the runner has what it wanted, or is gone.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Says `ready` and waits for the first line; from then on every further line
/// goes to the receiver, and the end of the input ends the process.
async fn ready() -> tokio::sync::mpsc::UnboundedReceiver<()> {
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() || sender.send(()).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    say(&"ready");
    lines.recv().await;
    lines
}

/// The `main` of every peer.
pub fn main<P: Peer>() {
    let call = Call::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(call.setting("threads", 2))
        .enable_all()
        .build()
        .expect("start tokio");
    runtime.block_on(measure::<P>(call));
    std::process::exit(0);
}

async fn measure<P: Peer>(call: Call) {
    let peer = P::connect(&call).await;
    match call.measure.as_str() {
        "setup" => {
            peer.set_up().await;
            say(&serde_json::json!({
                "peer": P::NAME, "unfinished": P::UNFINISHED, "attempts": P::ATTEMPTS,
            }));
        }
        "fill" => add_in_batches(&peer, call.jobs, FILL).await,
        "enqueue_64" => timed(enqueue(&peer, &call)).await,
        "bulk_1000" => timed(add_in_batches(&peer, call.jobs, BULK)).await,
        "latency_producer" => produce(&peer).await,
        "drain_1" | "drain_2" | "retry_path" | "latency" | "lateness" => work(&peer, &call).await,
        other => usage(&format!("unknown measure {other}")),
    }
}

async fn timed(what: impl Future<Output = ()>) {
    let _lines = ready().await;
    let start = Instant::now();
    what.await;
    say(&serde_json::json!({ "seconds": start.elapsed().as_secs_f64() }));
}

async fn add_in_batches<P: Peer>(peer: &P, jobs: usize, batch: usize) {
    for first in (0..jobs).step_by(batch) {
        let last = jobs.min(first + batch);
        peer.add_all((first..last).map(|n| Payload { n, at: 0 }).collect()).await;
    }
}

async fn enqueue<P: Peer>(peer: &P, call: &Call) {
    let next = Arc::new(AtomicUsize::new(0));
    let jobs = call.jobs;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..call.setting("callers", P::CALLERS) {
        let (peer, next) = (peer.clone(), next.clone());
        callers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= jobs {
                    return;
                }
                peer.add(Payload { n, at: 0 }).await;
            }
        });
    }
    callers.join_all().await;
}

async fn produce<P: Peer>(peer: &P) {
    let mut lines = ready().await;
    for n in 0.. {
        peer.add(Payload { n, at: now_us() }).await;
        lines.recv().await;
    }
}

async fn work<P: Peer>(peer: &P, call: &Call) {
    let tally = Tally::new(call);
    let worker = peer.prepare(call, tally.clone()).await;
    let _lines = ready().await;
    tokio::spawn(tally.report());
    let working = tokio::spawn(P::work(worker));
    if call.measure == "lateness" {
        let first = now_us() + LATENESS_LEAD_US;
        let due = |n: usize| {
            let at = first + n as i64 * LATENESS_SPREAD_US / call.jobs as i64;
            Payload { n, at: at - at.rem_euclid(P::DUE_STEP_US) }
        };
        peer.add_due((0..call.jobs).map(due).collect()).await;
    }
    working.await.expect("the worker does not panic");
    eprintln!("{}: the worker stopped by itself", P::NAME);
    std::process::exit(1);
}
