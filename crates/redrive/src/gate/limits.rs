//! What a destination may be asked to bear, and for which destinations that is said.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::span;

/// What one destination may be asked to bear. The default limits nothing, but holds jobs while it is down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Calls per time: `"10/s"`, `"600/m"`, `"5000/h"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How many calls may start at once before the rate is kept; a tenth of a second's worth if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// At least this long between the starts of two calls.
    #[serde(skip_serializing_if = "Option::is_none", with = "span::option")]
    pub min_gap: Option<Duration>,
    /// Calls under way at the same time, all instances together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// After this many different jobs failed in a row it is taken to be down. 0 never does.
    pub breaker: u32,
    /// How many retries there may be for a hundred first attempts, beside ten a second. 0 leaves retries alone.
    pub retry_budget: u32,
    /// The longest Retry-After that is obeyed.
    #[serde(with = "span::text")]
    pub retry_after_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            rate: None,
            burst: None,
            min_gap: None,
            concurrency: None,
            breaker: 10,
            retry_budget: 20,
            retry_after_max: span::days(1),
        }
    }
}

/// Nobody means more than this.
const COUNT_MAX: u32 = 1_000_000;

impl Limits {
    /// What is wrong with them, in words that say what to write.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.burst == Some(0) {
            problems.push("burst = 0 lets nothing go: write 1 or more".into());
        }
        if self.burst.is_some() && self.rate.is_none() {
            problems.push("burst says nothing without a rate: write rate = \"10/s\" as well".into());
        }
        if self.concurrency == Some(0) {
            problems
                .push("concurrency = 0 lets nothing go: write 1 or more, or pause the destination".into());
        }
        if self.min_gap.is_some() && self.rate.is_some() {
            problems.push("rate and min_gap both say how close calls may be: write one of them".into());
        }
        if self.min_gap.is_some_and(|gap| gap < span::millis(1) || gap > span::days(1)) {
            problems.push("min_gap is to be between 1ms and 1d".into());
        }
        let counts =
            [("burst", self.burst), ("concurrency", self.concurrency), ("breaker", Some(self.breaker))];
        for (name, count) in counts {
            if count.is_some_and(|count| count > COUNT_MAX) {
                problems.push(format!("{name} is to be at most {COUNT_MAX}"));
            }
        }
        if self.retry_budget > 1_000 {
            problems.push("retry_budget is a percentage: write 0 to 1000".into());
        }
        problems
    }

    /// Whether every call has to be counted, however well the destination is.
    pub(crate) fn count_calls(&self) -> bool {
        self.rate.is_some() || self.min_gap.is_some() || self.concurrency.is_some()
    }

    /// The time between two calls in microseconds and how many may start at once, if it is limited at all.
    pub(super) fn spacing(&self) -> Option<(i64, u32)> {
        let gap = self.min_gap.map(|gap| (i64::try_from(gap.as_micros()).unwrap_or(i64::MAX), 1));
        gap.or_else(|| self.rate.map(|rate| (rate.spacing(), self.burst.unwrap_or_else(|| rate.burst()))))
    }
}

/// Calls per time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: Per,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Per {
    Second,
    Minute,
    Hour,
}

impl Rate {
    /// So many in a second.
    pub fn per_second(count: u32) -> Rate {
        Rate { count: count.max(1), per: Per::Second }
    }

    /// How many in a second, on average.
    pub fn as_per_second(self) -> f64 {
        1e6 / self.spacing() as f64
    }

    fn spacing(self) -> i64 {
        let micros = match self.per {
            Per::Second => 1_000_000,
            Per::Minute => 60_000_000,
            Per::Hour => 3_600_000_000,
        };
        (micros / i64::from(self.count)).max(1)
    }

    fn burst(self) -> u32 {
        (self.as_per_second() / 10.0).ceil().clamp(1.0, 1e6) as u32
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Per::Second => "s",
            Per::Minute => "m",
            Per::Hour => "h",
        };
        write!(f, "{}/{per}", self.count)
    }
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || format!("{text:?} is not a rate; write \"10/s\", \"600/m\" or \"5000/h\"");
        let (count, per) = text.split_once('/').ok_or_else(wrong)?;
        let per = match per.trim() {
            "s" => Per::Second,
            "m" => Per::Minute,
            "h" => Per::Hour,
            _ => return Err(wrong()),
        };
        let count = count.trim().parse().map_err(|_| wrong())?;
        if !(1..=1_000_000).contains(&count) {
            return Err(format!("{text:?} is not a rate between 1 and 1000000"));
        }
        Ok(Rate { count, per })
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Limits by pattern: a name, or one with a `*` in front or behind, such as `*.example.org`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(BTreeMap<String, Limits>);

impl Rules {
    /// Says what holds for the destinations that match, or nothing any more.
    pub fn set(&mut self, pattern: impl Into<String>, limits: Option<Limits>) {
        match limits {
            Some(limits) => drop(self.0.insert(pattern.into(), limits)),
            None => drop(self.0.remove(&pattern.into())),
        }
    }

    /// All of them, by pattern.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Limits)> {
        self.0.iter().map(|(pattern, limits)| (pattern.as_str(), limits))
    }

    /// What holds for a destination: the longest pattern that matches decides, by itself.
    pub fn of(&self, destination: &str) -> Limits {
        let matching = self.0.iter().filter(|(pattern, _)| pattern_matches(pattern, destination));
        matching
            .max_by_key(|(pattern, _)| pattern.len())
            .map(|(_, limits)| limits.clone())
            .unwrap_or_default()
    }

    /// Whether there are destinations whose every call has to be counted.
    pub(crate) fn count_calls(&self) -> bool {
        self.0.values().any(Limits::count_calls)
    }

    /// Whether every call to this destination has to be counted.
    pub(crate) fn count_calls_of(&self, destination: &str) -> bool {
        !self.0.is_empty() && self.of(destination).count_calls()
    }
}

/// What is wrong with a pattern, if anything is.
pub fn pattern_problem(pattern: &str) -> Option<String> {
    let inner = pattern.strip_prefix('*').unwrap_or(pattern);
    let inner = if inner.len() < pattern.len() { inner } else { inner.strip_suffix('*').unwrap_or(inner) };
    let wrong = pattern.is_empty() || pattern.len() > crate::machine::NAME_BYTES_MAX || inner.contains('*');
    wrong.then(|| {
        format!(
            "{pattern:?} is not a pattern; write a destination such as \"api.example.org\", \"*.example.org\" or \"*\""
        )
    })
}

/// Whether a destination is one of those that a pattern means.
pub fn pattern_matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (None, Some(begin)) => name.starts_with(begin),
        (None, None) => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pattern_that_matches_decides() {
        let mut rules = Rules::default();
        let rate = |count| Limits { rate: Some(Rate::per_second(count)), ..Limits::default() };
        rules.set("*", Some(rate(1)));
        rules.set("*.tmdb.org", Some(rate(10)));
        rules.set("api.tmdb.org", Some(rate(40)));
        let of = |name| rules.of(name).rate.map(|rate| rate.to_string());
        assert_eq!(of("example.com").as_deref(), Some("1/s"));
        assert_eq!(of("images.tmdb.org").as_deref(), Some("10/s"));
        assert_eq!(of("api.tmdb.org").as_deref(), Some("40/s"));
        rules.set("*", None);
        assert_eq!(rules.of("example.com"), Limits::default());
    }

    #[test]
    fn a_rate_is_read_as_it_is_written_and_nothing_else_is() {
        for text in ["10/s", "600/m", "5000/h"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["", "10", "0/s", "-1/s", "10/d", "1.5/s", "9999999/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert_eq!("600/m".parse::<Rate>().unwrap().as_per_second(), 10.0);
    }

    #[test]
    fn limits_that_let_nothing_go_or_contradict_each_other_are_refused() {
        let good = Limits { min_gap: Some(span::secs(5)), ..Limits::default() };
        assert_eq!(good.problems(), Vec::<String>::new());
        for bad in [
            Limits { burst: Some(0), rate: Some(Rate::per_second(1)), ..Limits::default() },
            Limits { burst: Some(3), ..Limits::default() },
            Limits { concurrency: Some(0), ..Limits::default() },
            Limits { rate: Some(Rate::per_second(1)), ..good.clone() },
            Limits { min_gap: Some(Duration::ZERO), ..Limits::default() },
            Limits { min_gap: Some(Duration::from_micros(999)), ..Limits::default() },
            Limits { retry_budget: 2_000, ..Limits::default() },
            Limits { concurrency: Some(1_000_001), ..Limits::default() },
            Limits { breaker: 1_000_001, ..Limits::default() },
        ] {
            assert_eq!(bad.problems().len(), 1, "{bad:?}");
        }
        for (pattern, good) in
            [("*.a", true), ("a*", true), ("*", true), ("a.*.b", false), ("", false), ("*a*", false)]
        {
            assert_eq!(pattern_problem(pattern).is_none(), good, "{pattern}");
        }
    }
}
