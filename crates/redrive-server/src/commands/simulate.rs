//! `redrive simulate`: what an outage would cost.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use redrive::span;
use redrive_server::simulate::{self, Course, PerSecond, RateLimit, Scenario, Spell};

use crate::out;
use crate::table::{Table, number, text};
use crate::trouble::{Done, Exit, Trouble};

/// What to simulate.
#[derive(Args)]
pub(crate) struct Simulate {
    /// A file with a scenario, in TOML; what is given beside it goes before
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// The policy of the jobs: see `redrive policy presets` [default: feed]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// How many jobs come in [default: 200/s]
    #[arg(long, value_name = "RATE")]
    arrivals: Option<PerSecond>,
    /// How many jobs wait at the beginning
    #[arg(long, value_name = "N")]
    jobs: Option<u64>,
    /// What the destination bears; the engine does not know [default: 300/s]
    #[arg(long, value_name = "RATE")]
    capacity: Option<PerSecond>,
    /// What it bears after the outage, if that is something else
    #[arg(long, value_name = "RATE")]
    capacity_after: Option<PerSecond>,
    /// How long a call takes [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    latency: Option<Duration>,
    /// How long it is down
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    outage: Option<Duration>,
    /// When that begins [default: 1m, or at once if no jobs come in]
    #[arg(long, value_name = "TIME", value_parser = span::parse, requires = "outage")]
    outage_at: Option<Duration>,
    /// What it allows: more is answered 429
    #[arg(long, value_name = "RATE")]
    rate_limit: Option<PerSecond>,
    /// The Retry-After of that
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span::parse, requires = "rate_limit")]
    retry_after: Duration,
    /// How many calls may be under way at once [default: 500]
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// When it ends at the latest [default: six hours after the last arrival]
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    duration: Option<Duration>,
    /// The same seed gives the same answer [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object instead of a table and charts
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(given: Simulate) -> Done {
    let scenario = given.scenario()?;
    if let [first, rest @ ..] = &scenario.problems()[..] {
        let hint = if rest.is_empty() { "see docs/guides/simulate.md".to_owned() } else { rest.join("; ") };
        return Err(Trouble::usage(first.clone(), hint));
    }
    let progress =
        |name: &str, done: f64| out::progress(&format!("{name}: {:.0} %", (done * 100.0).min(100.0)));
    let courses = simulate::simulate(&scenario, &progress)?;
    out::progress("");
    if let Some(path) = &given.html {
        std::fs::write(path, simulate::page(&scenario, &courses)).map_err(|error| {
            Trouble::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()))
        })?;
    }
    if given.json {
        out::answer(&simulate::json(&courses));
    } else {
        table(&courses).print();
        out::answer(&format!("\n{}", simulate::chart(&scenario, &courses).trim_end()));
    }
    Ok(())
}

fn table(courses: &[Course]) -> Table {
    let mut table = Table::new(&[
        "policy",
        "calls",
        "wasted",
        "failures",
        "while down",
        "dead",
        "peak/s",
        "drained",
        "ideal",
    ]);
    let seconds = |time: Option<f64>| time.map_or_else(|| "never".to_owned(), |time| format!("{time:.0}s"));
    for course in courses {
        table.row(vec![
            text(&course.name),
            number(course.attempts),
            number(course.wasted()),
            number(course.failures),
            number(course.calls_during_outage),
            number(course.dead),
            number(course.peak_per_s),
            number(seconds(course.drain_s)),
            number(seconds(course.ideal_drain_s)),
        ]);
    }
    table
}

impl Simulate {
    /// The scenario of the file, with what was given beside it.
    fn scenario(&self) -> Done<Scenario> {
        let mut scenario = match &self.scenario {
            None => Scenario::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Trouble::new(Exit::Failed, format!("{} cannot be read: {error}", path.display()))
                })?;
                Scenario::read(&text).map_err(|error| {
                    Trouble::usage(format!("{}: {error}", path.display()), "see docs/guides/simulate.md")
                })?
            }
        };
        set(&mut scenario.preset, self.preset.clone());
        set(&mut scenario.arrivals, self.arrivals);
        set(&mut scenario.jobs, self.jobs);
        set(&mut scenario.capacity, self.capacity);
        set(&mut scenario.latency, self.latency);
        set(&mut scenario.concurrency, self.concurrency);
        set(&mut scenario.seed, self.seed);
        scenario.capacity_after = self.capacity_after.or(scenario.capacity_after);
        scenario.duration = self.duration.or(scenario.duration);
        let retry_after = self.retry_after;
        let limit = self.rate_limit.map(|rate| RateLimit { rate, retry_after });
        scenario.rate_limit = limit.or(scenario.rate_limit);
        if let Some(length) = self.outage {
            scenario.outage = vec![Spell { begin: self.outage_at, length }];
        }
        Ok(scenario)
    }
}

fn set<T>(to: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *to = given;
    }
}
