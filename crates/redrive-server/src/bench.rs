//! `redrive bench`: what the engine does in a second, beside the tightest hand-written SQL loop that does the same
//! durable work on the same disk in the same run.
//!
//! Absolute numbers depend on the machine; a ratio is the median of interleaved pairs, so that whatever else the
//! machine does meanwhile is shared by both.

mod by_hand;
mod child;
mod database;
mod ground;
mod limit;
mod lists;
mod measures;
mod over_http;
mod peer;
mod report;
mod usage;
mod workload;

use std::cell::OnceCell;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::ground::Ground;
use self::measures::{Callers, Drain};
use self::report::{Finding, Report, median, percentile, rounded, whole};
use self::workload::fails;
use crate::cli::{BenchChild, BenchOptions, BenchPeer, ChildTask, Measure, StoreUrl};
use crate::out;

/// Places of an engine that are tried before the best of them is measured.
const PLACES: [usize; 4] = [1_024, 2_048, 4_096, 8_192];
/// Sizes of a hand-written batch that are tried before the best of them is measured.
const BATCHES: [usize; 6] = [256, 512, 1_024, 2_048, 4_096, 8_192];
/// Of jobs that are measured one by one, more tell nothing more.
const SINGLES_MAX: u64 = 500;
/// With fewer jobs than this, no size is better than another.
const TELLING: u64 = 5_000;
/// One job at a time is slow: one in so many of the jobs is enough.
const ONE_IN: u64 = 50;

/// Measures, and reports.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    let bench = Bench::new(options)?;
    let mut report = Report::default();
    for measure in Measure::value_variants() {
        let usual = options.only.is_empty()
            && options.http == measure.is_over_http()
            && !measure.takes_long()
            && (bench.is_shared() || !measure.needs_processes());
        if usual || options.only.contains(measure) {
            let values =
                bench.measure(*measure).with_context(|| format!("cannot measure {}", measure.name()))?;
            report.results.push(Finding { name: measure.name(), values });
        }
    }
    out::progress("");
    out::answer(&if options.json { report.json()? } else { report.table() });
    Ok(())
}

/// A part that was started in a process of its own.
pub(crate) fn child(child: &BenchChild) -> Result<()> {
    runtime()?.block_on(child::run(child))
}

/// What the jobs of the benchmark call, in a process of its own.
pub(crate) fn target() -> Result<()> {
    runtime()?.block_on(over_http::target())
}

/// One part of a comparison with other queues.
pub(crate) fn peer(part: &BenchPeer) -> Result<()> {
    runtime()?.block_on(peer::run(part))
}

fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}

/// What was found under which name.
type Values = Vec<(&'static str, Value)>;

struct Bench<'o> {
    options: &'o BenchOptions,
    runtime: Runtime,
    ground: Ground,
    /// What was found best by trying, when first asked.
    places: OnceCell<usize>,
    batch: OnceCell<usize>,
    crowded: OnceCell<StoreUrl>,
}

impl<'o> Bench<'o> {
    fn new(options: &'o BenchOptions) -> Result<Bench<'o>> {
        let runtime = runtime()?;
        let ground = Ground::new(options.store.as_ref(), &runtime)?;
        let (places, batch, crowded) = Default::default();
        Ok(Bench { options, runtime, ground, places, batch, crowded })
    }

    /// Whether several processes can work on the store.
    fn is_shared(&self) -> bool {
        matches!(self.options.store, Some(StoreUrl::Postgres(_)))
    }

    fn measure(&self, measure: Measure) -> Result<Values> {
        ensure!(
            self.is_shared() || !measure.needs_processes(),
            "only PostgreSQL is shared by processes; write --store postgres://…"
        );
        let name = measure.name();
        let jobs = self.options.jobs;
        let few = jobs.div_ceil(ONE_IN).max(SINGLES_MAX.min(jobs));
        out::progress(&name);
        match measure {
            Measure::EnqueueOne => self.enqueue(&name, Callers::One, few),
            Measure::Enqueue64 => self.enqueue(&name, Callers::Many, jobs),
            Measure::EnqueueBulk => self.enqueue(&name, Callers::Bulk, jobs),
            Measure::Drain => self.drain(&name, jobs, 0),
            Measure::Drain2 => self.drain_together(&name, 2),
            Measure::Drain4 => self.drain_together(&name, 4),
            Measure::RetryPath => self.drain(&name, jobs.div_ceil(2), 2),
            Measure::Latency => self.latency(),
            Measure::Lateness => self.lateness(),
            Measure::Memory => self.memory(),
            Measure::Idle1m => {
                let path = self.crowded()?;
                Ok(values_of(child::ask(ChildTask::Idle, path, measures::PLACES as u64)?))
            }
            Measure::Drain1m => self.drain_crowded(&name),
            Measure::Drain5m => self.drain_after(&name),
            Measure::Running10k => self.keep_running(),
            Measure::Held => self.drain_beside_held(&name),
            Measure::Destinations => self.pairs(
                &name,
                |store| self.runtime.block_on(measures::drain_to(store, jobs, measures::DESTINATIONS)),
                |store| self.runtime.block_on(measures::drain_to(store, jobs, 1)),
            ),
            Measure::Executions => self.executions(&name),
            Measure::List => self.lists(),
            Measure::HttpEnqueue => self.pairs(
                &name,
                |store| self.runtime.block_on(over_http::enqueue(store, jobs)),
                |store| self.runtime.block_on(measures::enqueue(store, Callers::Many, jobs)),
            ),
            Measure::HttpExecute => self.execute(&name, 64),
            Measure::HttpExecute256 => self.execute(&name, 256),
        }
    }

    fn execute(&self, name: &str, at_once: u64) -> Result<Values> {
        let jobs = self.options.jobs;
        self.pairs(
            name,
            |store| self.runtime.block_on(over_http::execute(store, jobs, at_once)),
            |_| self.runtime.block_on(over_http::call(jobs, at_once)),
        )
    }

    fn enqueue(&self, name: &str, callers: Callers, jobs: u64) -> Result<Values> {
        self.pairs(
            name,
            |path| self.runtime.block_on(measures::enqueue(path, callers, jobs)),
            |path| self.runtime.block_on(measures::enqueue_by_hand(path, callers, jobs)),
        )
    }

    fn drain(&self, name: &str, jobs: u64, failures: u32) -> Result<Values> {
        let (places, batch) = (self.places()?, self.batch()?);
        let ours = Drain { jobs, failures, places };
        let by_hand = Drain { jobs, failures, places: batch };
        let mut values = self.pairs(
            name,
            |path| self.runtime.block_on(measures::drain(path, ours)),
            |path| self.runtime.block_on(measures::drain_by_hand(path, by_hand)),
        )?;
        values.extend([("concurrency", json!(places)), ("limit_batch", json!(batch))]);
        Ok(values)
    }

    /// Several processes on one queue, each kind after the other on a database of its own.
    fn drain_together(&self, name: &str, processes: usize) -> Result<Values> {
        let (jobs, places, batch) = (self.options.jobs, self.places()?, self.batch()?);
        let race = |store: &StoreUrl, task, count: usize| {
            child::ask(ChildTask::Fill, store, jobs)?;
            Ok(jobs as f64 / child::race(task, processes, store, count as u64)?)
        };
        let mut values = self.pairs(
            name,
            |store| race(store, ChildTask::DrainTogether, places),
            |store| race(store, ChildTask::DrainByHand, batch),
        )?;
        values.extend([("concurrency", json!(places)), ("limit_batch", json!(batch))]);
        Ok(values)
    }

    /// Nodes of executions, and as many plain jobs, each on a store of its own and run until nothing is left.
    fn executions(&self, name: &str) -> Result<Values> {
        let executions = self.options.jobs.div_ceil(workload::NODES);
        let nodes = executions * workload::NODES;
        let processes = if self.is_shared() { 2 } else { 1 };
        let race = |store: &StoreUrl, fill, count, places| {
            child::ask(fill, store, count)?;
            Ok(nodes as f64 / child::race(ChildTask::RunOut, processes, store, places as u64)?)
        };
        // Each with the places with which it is fastest.
        let rate =
            |store: &StoreUrl, drain: Drain| race(store, ChildTask::FillExecutions, executions, drain.places);
        let of_nodes = self.best(&OnceCell::new(), &PLACES, "places for nodes", rate)?;
        let places = self.places()?;
        let mut values = self.pairs(
            name,
            |store| race(store, ChildTask::FillExecutions, executions, of_nodes),
            |store| race(store, ChildTask::Fill, nodes, places),
        )?;
        values.extend([("concurrency", json!([of_nodes, places])), ("processes", json!(processes))]);
        Ok(values)
    }

    /// Pages of a store with very many jobs and of one with few. The ratio is of the page that suffers most; the one that
    /// looks for hardly anything is told beside it.
    fn lists(&self) -> Result<Values> {
        let jobs = self.options.waiting;
        out::progress(&format!("filling a store with {jobs} jobs"));
        let found = self.on_fresh_ground(|few| {
            self.on_fresh_ground(|many| self.runtime.block_on(lists::compare(few, many, jobs)))
        })?;
        let pages = found.iter().filter(|(name, ..)| *name != lists::RARE_PAGE);
        let worst = pages.map(|(_, few, many)| many / few).fold(0.0, f64::max);
        let told = |(name, few, many): &(&'static str, f64, f64)| {
            (*name, json!([rounded(*few, 2), rounded(*many, 2)]))
        };
        let mut values = vec![("ratio", rounded(worst, 2))];
        values.extend(found.iter().map(told));
        Ok(values)
    }

    fn latency(&self) -> Result<Values> {
        let jobs = self.options.jobs.min(SINGLES_MAX);
        let mut measured =
            self.on_fresh_ground(|path| self.runtime.block_on(measures::latency(path, jobs)))?;
        measured.sort_by(f64::total_cmp);
        Ok(vec![
            ("p50_ms", rounded(percentile(&measured, 0.5), 3)),
            ("p99_ms", rounded(percentile(&measured, 0.99), 3)),
        ])
    }

    fn lateness(&self) -> Result<Values> {
        let jobs = self.options.jobs.min(SINGLES_MAX);
        let mut measured =
            self.on_fresh_ground(|path| self.runtime.block_on(measures::lateness(path, jobs)))?;
        measured.sort_by(f64::total_cmp);
        Ok(vec![
            ("p50_ms", rounded(percentile(&measured, 0.5), 3)),
            ("p99_ms", rounded(percentile(&measured, 0.99), 3)),
            ("max_ms", rounded(percentile(&measured, 1.0), 3)),
            ("early", json!(measured.iter().filter(|late| **late < 0.0).count())),
        ])
    }

    /// Of a process that only drains: this one has done more.
    fn memory(&self) -> Result<Values> {
        let (jobs, places) = (self.options.jobs, self.places()?);
        self.on_fresh_ground(|path| {
            self.runtime.block_on(async {
                let engine = workload::engine(path, places, fails(0)).await?;
                workload::enqueue_bulk(&engine, jobs).await?;
                workload::close(engine, path).await
            })?;
            Ok(values_of(child::ask(ChildTask::Drain, path, places as u64)?))
        })
    }

    /// One file with the jobs of next month and one without, each drained of as many jobs in each round.
    fn drain_crowded(&self, name: &str) -> Result<Values> {
        let crowded = self.crowded()?;
        self.on_fresh_ground(|lonely| self.drain_in_turn(name, crowded, lonely))
    }

    /// One store with a long history and one without.
    fn drain_after(&self, name: &str) -> Result<Values> {
        self.on_fresh_ground(|old| {
            let history = self.options.history;
            out::progress(&format!("{name}: {history} jobs come and go"));
            self.runtime.block_on(measures::come_and_go(old, history, self.places()?))?;
            self.on_fresh_ground(|young| self.drain_in_turn(name, old, young))
        })
    }

    /// What many running jobs cost, and what one costs.
    fn keep_running(&self) -> Result<Values> {
        let keep = |jobs| self.on_fresh_ground(|store| child::ask(ChildTask::Keep, store, jobs));
        let (many, one) = (keep(measures::RUNNING)?, keep(1)?);
        let mut values = values_of(many);
        values.extend(one.get("wal_bytes").map(|bytes| ("wal_bytes_of_one", bytes.clone())));
        Ok(values)
    }

    /// One store with jobs for a destination that is down and one without.
    fn drain_beside_held(&self, name: &str) -> Result<Values> {
        self.on_fresh_ground(|holding| {
            self.runtime.block_on(measures::hold(holding))?;
            self.on_fresh_ground(|free| self.drain_in_turn(name, holding, free))
        })
    }

    fn drain_in_turn(&self, name: &str, with: &StoreUrl, without: &StoreUrl) -> Result<Values> {
        let (jobs, places) = (self.options.jobs, self.places()?);
        let open = |path| self.runtime.block_on(workload::engine(path, places, fails(0)));
        let (burdened, free) = (open(with)?, open(without)?);
        let mut pairs = Vec::new();
        for round in 1..=self.options.rounds {
            out::progress(&format!("{name}: round {round} of {}", self.options.rounds));
            let drain = |engine| self.runtime.block_on(measures::drain_due(engine, jobs));
            pairs.push((drain(&burdened)?, drain(&free)?));
        }
        self.runtime.block_on(workload::close(burdened, with))?;
        self.runtime.block_on(workload::close(free, without))?;
        Ok(rates(&pairs))
    }

    /// The places with which the engine is fastest, of those that are tried.
    fn places(&self) -> Result<usize> {
        let rate = |path: &StoreUrl, drain| self.runtime.block_on(measures::drain(path, drain));
        self.best(&self.places, &PLACES, "places", rate)
    }

    /// The batch with which the hand-written loop is fastest, of those that are tried.
    fn batch(&self) -> Result<usize> {
        let rate = |store: &StoreUrl, drain| self.runtime.block_on(measures::drain_by_hand(store, drain));
        self.best(&self.batch, &BATCHES, "jobs in a hand-written batch", rate)
    }

    fn best(
        &self,
        known: &OnceCell<usize>,
        sizes: &[usize],
        what: &str,
        rate: impl Fn(&StoreUrl, Drain) -> Result<f64>,
    ) -> Result<usize> {
        if let Some(best) = known.get() {
            return Ok(*best);
        }
        if self.options.jobs < TELLING {
            return Ok(*known.get_or_init(|| sizes[0]));
        }
        let mut best = (0.0, 1);
        // Three times each, because one try on a noisy machine says little.
        for &places in sizes.iter().cycle().take(sizes.len() * 3) {
            out::progress(&format!("trying {places} {what}"));
            let drain = Drain { jobs: self.options.jobs, failures: 0, places };
            let rate = self.on_fresh_ground(|path| rate(path, drain))?;
            if rate > best.0 {
                best = (rate, places);
            }
        }
        Ok(*known.get_or_init(|| best.1))
    }

    /// The file with the jobs of next month, made when first asked for.
    fn crowded(&self) -> Result<&StoreUrl> {
        if self.crowded.get().is_none() {
            out::progress(&format!("enqueueing {} jobs for next month", self.options.waiting));
            let store = self.ground.fresh(&self.runtime)?;
            child::ask(ChildTask::Seed, &store, self.options.waiting)?;
            self.crowded.get_or_init(|| store);
        }
        self.crowded.get().context("it was made above")
    }

    /// Ours, by hand, ours, by hand, …: each on a fresh file.
    fn pairs(
        &self,
        name: &str,
        ours: impl Fn(&StoreUrl) -> Result<f64>,
        by_hand: impl Fn(&StoreUrl) -> Result<f64>,
    ) -> Result<Values> {
        let mut pairs = Vec::new();
        for round in 1..=self.options.rounds {
            out::progress(&format!("{name}: round {round} of {}", self.options.rounds));
            pairs.push((self.on_fresh_ground(&ours)?, self.on_fresh_ground(&by_hand)?));
        }
        Ok(rates(&pairs))
    }

    /// On a file or a database of its own, which is gone afterwards.
    fn on_fresh_ground<T>(&self, work: impl FnOnce(&StoreUrl) -> Result<T>) -> Result<T> {
        let store = self.ground.fresh(&self.runtime)?;
        let done = work(&store);
        self.ground.clear(&self.runtime, &store)?;
        done
    }
}

fn rates(pairs: &[(f64, f64)]) -> Values {
    let (ours, by_hand) = pairs.iter().copied().unzip();
    vec![
        ("rate", whole(median(ours))),
        ("limit_rate", whole(median(by_hand))),
        ("ratio", rounded(median(pairs.iter().map(|(ours, by_hand)| ours / by_hand).collect()), 3)),
    ]
}

/// A child's answer, in the order in which it is reported.
fn values_of(answer: Value) -> Values {
    ["cpu_percent", "database_cpu_percent", "wal_bytes", "rss_mb", "rss_peak_mb"]
        .into_iter()
        .filter_map(|name| Some((name, answer.get(name)?.clone())))
        .collect()
}
