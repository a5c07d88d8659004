//! Destinations as configured: what each may be asked to bear, and how the server finds out by itself whether one is
//! there.

use std::time::Duration;

use redrive::{Limits, Rate, pattern_problem};

use super::check::{self, Checker, path_of};
use super::keys::{self, Key};
use super::mistake::Place;
use super::node::Node;

/// A destination, or all that match a pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationConfig {
    /// A name, or one with a `*` in front or behind.
    pub pattern: String,
    /// What it may be asked to bear.
    pub limits: Limits,
    /// How to find out whether it is there.
    pub health: Option<HealthConfig>,
}

/// How to find out whether a destination is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// What is asked.
    pub at: HealthAt,
    /// How often.
    pub every: Duration,
}

/// Stands for the destination's name in what is asked.
const NAME: &str = "{destination}";

/// What is asked. `{destination}` stands for the name of the destination, as far as that is a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthAt {
    /// A URL, which is to answer with 2xx.
    Http(String),
    /// A host and a port, which are to take a connection.
    Tcp(String, u16),
}

impl HealthAt {
    /// What is asked of this one; nothing if its name is no host, and a host is wanted. A credential is no part of it.
    pub fn of(&self, destination: &str) -> Option<HealthAt> {
        let host = destination.split('#').next().unwrap_or_default();
        let fill = |text: &String| {
            let is_host = !host.is_empty() && host.bytes().all(is_of_a_host);
            (is_host || !text.contains(NAME)).then(|| text.replace(NAME, host))
        };
        match self {
            HealthAt::Http(url) => fill(url).map(HealthAt::Http),
            HealthAt::Tcp(host, port) => fill(host).map(|host| HealthAt::Tcp(host, *port)),
        }
    }
}

/// Whatever else is in a name would lead a question somewhere else.
fn is_of_a_host(letter: u8) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, b'.' | b'-' | b'_' | b':' | b'[' | b']')
}

impl Checker<'_> {
    /// The destinations, by pattern.
    pub(super) fn destinations(&mut self) -> Vec<DestinationConfig> {
        let names = self.names("destination");
        names.into_iter().map(|(pattern, place)| self.destination(pattern, &place)).collect()
    }

    fn destination(&mut self, pattern: String, place: &Place) -> DestinationConfig {
        let key = keys::dotted(&["destination".to_owned(), pattern.clone()]);
        if let Some(problem) = pattern_problem(&pattern) {
            self.mistake(place.clone(), &key, problem);
        }
        let before = self.mistakes.len();
        let limits = Limits {
            rate: self.take("destination.NAME.rate", &pattern, rate),
            burst: self.take("destination.NAME.burst", &pattern, number),
            min_gap: self.take("destination.NAME.min_gap", &pattern, check::span),
            concurrency: self.take("destination.NAME.concurrency", &pattern, number),
            breaker: self.must("destination.NAME.breaker", &pattern, number),
            retry_budget: self.must("destination.NAME.retry_budget", &pattern, number),
            retry_after_max: self.must("destination.NAME.retry_after_max", &pattern, check::span),
        };
        // What cannot be read is said already, and would be said again as what is missing.
        if self.mistakes.len() == before {
            for problem in limits.problems() {
                self.mistake(place.clone(), &key, problem);
            }
        }
        let health = self.health(&pattern);
        DestinationConfig { pattern, limits, health }
    }

    fn health(&mut self, pattern: &str) -> Option<HealthConfig> {
        let every = self.must("destination.NAME.health_every", pattern, check::span);
        let node = self.node("destination.NAME.health", pattern);
        if node.is_none() {
            if let Some(every) = self.node("destination.NAME.health_every", pattern) {
                let key = keys::dotted(&path_of("destination.NAME.health_every", pattern));
                let message = "says how often nothing is asked; write health as well, or leave it out";
                self.mistake(every.place.clone(), &key, message);
            }
            return None;
        }
        let at = self.take("destination.NAME.health", pattern, health_at)?;
        Some(HealthConfig { at, every })
    }
}

fn rate(node: &Node, key: &Key) -> Result<Rate, String> {
    check::text(node, key)?.parse()
}

fn number(node: &Node, key: &Key) -> Result<u32, String> {
    check::count(node, key).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn health_at(node: &Node, key: &Key) -> Result<HealthAt, String> {
    let text = check::text(node, key)?;
    let wrong = || format!("{text:?} cannot be asked; write \"https://host/health\" or \"tcp://host:port\"");
    // Any host will do to see what it would be.
    let url = url::Url::parse(&text.replace(NAME, "destination.invalid")).map_err(|_| wrong())?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    match (url.scheme(), url.port()) {
        ("http" | "https", _) if url.username().is_empty() && url.password().is_none() => {
            Ok(HealthAt::Http(text))
        }
        ("tcp", Some(port)) if matches!(url.path(), "" | "/") => {
            Ok(HealthAt::Tcp(host.replace("destination.invalid", NAME), port))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HealthAt, String> {
        let key = keys::at(&path_of("destination.NAME.health", "a")).unwrap();
        health_at(&Node::text(text, Place::Default), key)
    }

    #[test]
    fn health_is_asked_over_http_or_by_a_connection_and_nothing_else() {
        assert_eq!(read("https://a.org/health"), Ok(HealthAt::Http("https://a.org/health".into())));
        assert_eq!(read("tcp://a.org:5432"), Ok(HealthAt::Tcp("a.org".into(), 5432)));
        assert_eq!(read("tcp://{destination}:443"), Ok(HealthAt::Tcp(NAME.into(), 443)));
        assert_eq!(read("tcp://[::1]:5432"), Ok(HealthAt::Tcp("[::1]".into(), 5432)));
        for text in
            ["a.org", "tcp://a.org", "tcp://a.org:1/path", "ftp://a.org/", "https://u:p@a.org/", "tcp://:1"]
        {
            assert!(read(text).unwrap_err().contains("write \"https://host/health\""), "{text}");
        }
    }

    #[test]
    fn what_is_asked_of_a_destination_has_its_host_and_nothing_else_of_its_name() {
        let each = HealthAt::Http("https://{destination}/health".into());
        let url = |name: &str| each.of(name);
        let expected = |text: &str| Some(HealthAt::Http(text.into()));
        assert_eq!(url("api.tmdb.org"), expected("https://api.tmdb.org/health"));
        assert_eq!(url("api.tmdb.org#crm"), expected("https://api.tmdb.org/health"));
        assert_eq!(url("127.0.0.1:8080"), expected("https://127.0.0.1:8080/health"));
        for name in ["", "#crm", "evil.org/x?", "u:p@evil.org", "tenant 7"] {
            assert_eq!(url(name), None, "{name}");
        }
        let one = HealthAt::Tcp("gateway".into(), 443);
        assert_eq!(one.of("tenant 7"), Some(one.clone()), "the same for all");
    }
}
