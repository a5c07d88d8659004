//! What is simulated: who arrives, what the far side can bear, and what befalls it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redrive::{CONCURRENCY_MAX, Policy, span};
use serde::{Deserialize, Deserializer};

/// The most jobs that one simulation has room for.
const JOBS_MAX: f64 = 5e6;
/// Before an outage, so that it is known what was usual.
const LEAD: Duration = Duration::from_secs(60);
/// After everything, so that it is seen what is usual again.
const CALM: Duration = Duration::from_secs(30);
/// How long whoever is slow may take in the end.
const PATIENCE: Duration = Duration::from_secs(6 * 3_600);

/// A scenario, as a file has it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The policy of our jobs, by name.
    pub preset: String,
    /// The policy itself, if it has no name; goes before the name.
    #[serde(skip)]
    pub policy: Option<Policy>,
    /// Jobs that come in.
    pub arrivals: PerSecond,
    /// Jobs that wait at the beginning.
    pub jobs: u64,
    /// Calls that the destination bears.
    pub capacity: PerSecond,
    /// The same from the end of the first outage on, if it is not what it was.
    pub capacity_after: Option<PerSecond>,
    /// How long a call takes when all is well.
    #[serde(with = "span::text")]
    pub latency: Duration,
    /// When it answers nothing.
    pub outage: Vec<Spell>,
    /// When it fails a share of what it is asked, whatever the load.
    pub errors: Vec<Errors>,
    /// What it allows, beside what it bears.
    pub rate_limit: Option<RateLimit>,
    /// Calls under way at once, on our side.
    pub concurrency: usize,
    /// When the simulation ends at the latest.
    #[serde(with = "span::option")]
    pub duration: Option<Duration>,
    /// The same seed gives the same numbers.
    pub seed: u64,
}

/// From when on, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spell {
    /// After a minute if not given, or at once if nothing arrives.
    #[serde(default, with = "span::option")]
    pub begin: Option<Duration>,
    /// How long.
    #[serde(with = "span::text")]
    pub length: Duration,
}

/// Calls that fail, whatever the load.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// From when on.
    #[serde(with = "span::text")]
    pub begin: Duration,
    /// For how long.
    #[serde(with = "span::text")]
    pub length: Duration,
    /// How many of them, from 0 to 1.
    pub share: f64,
}

/// More calls than this in a second are answered 429.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// How many are allowed.
    pub rate: PerSecond,
    /// What its `Retry-After` says.
    #[serde(with = "span::text")]
    pub retry_after: Duration,
}

/// How often: `200/s`, `600/m`, `5000/h`, also `0/s`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct PerSecond(pub f64);

impl FromStr for PerSecond {
    type Err = String;
    fn from_str(text: &str) -> Result<PerSecond, String> {
        let wrong = || format!("{text:?} is not a rate; write \"200/s\", \"600/m\" or \"5000/h\"");
        let (count, per) = text.split_once('/').ok_or_else(wrong)?;
        let seconds = match per.trim() {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return Err(wrong()),
        };
        let count: u32 = count.trim().parse().map_err(|_| wrong())?;
        Ok(PerSecond(f64::from(count) / seconds))
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", (self.0 * 100.0).round() / 100.0)
    }
}

impl<'de> Deserialize<'de> for PerSecond {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PerSecond, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            preset: "feed".to_owned(),
            policy: None,
            arrivals: PerSecond(200.0),
            jobs: 0,
            capacity: PerSecond(300.0),
            capacity_after: None,
            latency: Duration::from_millis(50),
            outage: Vec::new(),
            errors: Vec::new(),
            rate_limit: None,
            concurrency: 500,
            duration: None,
            seed: 1,
        }
    }
}

impl Scenario {
    /// Reads one from TOML.
    ///
    /// # Errors
    ///
    /// What cannot be read, and where.
    pub fn read(text: &str) -> Result<Scenario, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// What is wrong with it, in words that say what to write.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.policy().err().into_iter().collect();
        let mut check = |wrong: bool, problem: &str| problems.extend(wrong.then(|| problem.to_owned()));
        check(self.capacity.0 < 1.0, "capacity is to be 1/s or more");
        check(self.capacity_after.is_some_and(|rate| rate.0 < 1.0), "capacity_after is to be 1/s or more");
        check(self.rate_limit.is_some_and(|limit| limit.rate.0 < 1.0), "rate_limit is to be 1/s or more");
        check(
            self.jobs == 0 && self.arrivals.0 == 0.0,
            "nothing arrives and nothing waits: write jobs = 1000",
        );
        check(
            self.concurrency == 0 || self.concurrency > CONCURRENCY_MAX,
            "concurrency is to be 1 or more, and no more than an engine takes",
        );
        let latency = self.latency;
        check(latency.is_zero() || latency > span::mins(1), "latency is to be between 1ms and 1m");
        check(
            self.errors.iter().any(|errors| !(0.0..=1.0).contains(&errors.share)),
            "share is to be between 0 and 1",
        );
        check(
            self.jobs_in_all() > JOBS_MAX,
            "more than 5000000 jobs: write fewer arrivals, or a shorter outage",
        );
        problems
    }

    /// The policy of our jobs.
    pub(super) fn policy(&self) -> Result<Policy, String> {
        self.policy.clone().map_or_else(|| Policy::preset(&self.preset), Ok)
    }

    /// How many jobs there are, with those that come in.
    pub(crate) fn jobs_in_all(&self) -> f64 {
        self.jobs as f64 + self.arrivals.0 * self.arrivals_until().as_secs_f64()
    }

    /// From when to when it is down.
    pub(crate) fn down(&self) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        self.outage.iter().map(|spell| {
            let begin = spell.begin.unwrap_or(if self.arrivals.0 > 0.0 { LEAD } else { Duration::ZERO });
            (begin, begin + spell.length)
        })
    }

    /// When the last outage is over.
    pub(super) fn recovery(&self) -> Duration {
        self.down().map(|(_, end)| end).max().unwrap_or_default()
    }

    /// What it bears at this time.
    pub(super) fn capacity_at(&self, at: Duration) -> f64 {
        let is_after = self.down().any(|(_, end)| at >= end);
        self.capacity_after.filter(|_| is_after).unwrap_or(self.capacity).0
    }

    /// How long the fastest would take for what waits at the end of the last outage; nothing if that cannot be.
    pub(super) fn ideal(&self) -> Option<Duration> {
        let spare = self.capacity_at(self.recovery()) - self.arrivals.0;
        let (begin, end) = self.down().max_by_key(|(_, end)| *end).unwrap_or_default();
        let done_before = (self.capacity.0 - self.arrivals.0).max(0.0) * begin.as_secs_f64();
        let backlog =
            (self.jobs as f64 - done_before).max(0.0) + self.arrivals.0 * (end - begin).as_secs_f64();
        (spare > 0.0).then(|| Duration::from_secs_f64(backlog / spare))
    }

    /// How long jobs come in: whoever is done within a quarter more than the ideal time is not helped by their end.
    pub(crate) fn arrivals_until(&self) -> Duration {
        let drain = self.ideal().map_or(span::hours(1), |ideal| ideal.mul_f64(1.25));
        let calm = self.errors.iter().map(|errors| errors.begin + errors.length).max().unwrap_or_default();
        let until = (self.recovery() + drain).max(calm) + CALM;
        until.min(self.duration.unwrap_or(until))
    }

    /// When it is over at the latest.
    pub(super) fn end(&self) -> Duration {
        self.duration.unwrap_or_else(|| self.arrivals_until() + PATIENCE)
    }

    /// How many jobs have come in until then, beside those that waited.
    pub(super) fn arrived(&self, until: Duration) -> u64 {
        (self.arrivals.0 * until.min(self.arrivals_until()).as_secs_f64()) as u64
    }
}
