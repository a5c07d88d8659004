//! The policies that have names, each exact to the millisecond before jitter.

use super::meant::closest;
use super::{Backoff, Jitter, Policy};
use crate::classify::{On, Rule};
use crate::outcome::Class;
use crate::span::{days, millis, mins, secs};

impl Policy {
    /// The names of the presets.
    pub const PRESETS: &'static [&'static str] = &[
        "media",
        "download",
        "download-3",
        "workflow-immediate",
        "workflow-exponential",
        "workflow-fixed",
        "workflow-long",
        "workflow-default",
        "offline",
        "feed",
    ];

    /// A policy by its name.
    ///
    /// # Errors
    ///
    /// The name that was probably meant, or all there are.
    pub fn preset(name: &str) -> Result<Policy, String> {
        let policy = match name {
            "media" => media(),
            "download" => download().retries(3),
            "download-3" => download().attempts(3),
            "workflow-immediate" | "workflow-default" => workflow(Policy::immediate()).retries(3),
            "workflow-exponential" => {
                workflow(Policy::exponential(mins(1)..=mins(60)).no_jitter()).retries(5)
            }
            "workflow-fixed" => workflow(Policy::fixed(mins(5))).retries(3),
            "workflow-long" => workflow(Policy::schedule([days(7), days(14)])).retries(2),
            "offline" => offline(),
            "feed" => feed(),
            _ => {
                return Err(match closest(name, Policy::PRESETS.iter().copied()) {
                    Some(meant) => format!("there is no preset {name:?}; did you mean {meant:?}?"),
                    None => {
                        format!("there is no preset {name:?}; write one of {}", Policy::PRESETS.join(", "))
                    }
                });
            }
        };
        Ok(Policy { name: Some(name.to_owned()), ..policy })
    }
}

/// A media library's metadata: quick, few, and sure that what it does not know will not get better.
fn media() -> Policy {
    let policy = Policy::exponential(secs(1)..=secs(8))
        .jitter(Jitter::ratio(0.1).skip_first().beyond_cap())
        .retries(4)
        .rule(code("TIMEOUT", Class::Transient))
        .rule(code("RATE_LIMIT", Class::RateLimited))
        .rule(code("NETWORK_ERROR", Class::Transient))
        .rule(code("SERVICE_DOWN", Class::Transient))
        .rule(code("NOT_FOUND", Class::Permanent))
        .rule(code("INVALID_INPUT", Class::Permanent));
    Policy { unknown: Class::Permanent, ..gateway_errors_only(policy) }
}

/// Downloads: the built-in table of statuses is theirs.
fn download() -> Policy {
    Policy::exponential(secs(1)..=secs(32)).jitter(Jitter::additive(millis(500)).beyond_cap())
}

/// Steps of workflows: servers are given time, clients' mistakes are not.
fn workflow(policy: Policy) -> Policy {
    policy
        .rule(hundreds(5, Class::Transient))
        .rule(status(408, Class::Transient))
        .rule(status(429, Class::RateLimited))
        .rule(hundreds(4, Class::Permanent))
}

/// Operations queued while offline: whatever happened, it may work when the connection is back.
fn offline() -> Policy {
    Policy::of(Backoff::Exponential { base: secs(1), factor: 2.0, exponent_start: 1 })
        .cap(secs(30))
        .no_jitter()
        .attempts(3)
        .rule(Rule { on: On::Any, class: Class::Transient })
}

/// An article feed: patient, and it does not come back to what was refused.
fn feed() -> Policy {
    let policy = Policy::of(Backoff::Exponential { base: mins(1), factor: 2.0, exponent_start: 0 })
        .jitter(Jitter::additive(secs(10)))
        .retries(3)
        .rule(status(403, Class::Permanent))
        .rule(status(404, Class::Permanent));
    gateway_errors_only(policy)
}

/// Of the server's errors only those that mean «not now»; 500 and its like are mistakes that stay.
fn gateway_errors_only(policy: Policy) -> Policy {
    policy
        .rule(status(429, Class::RateLimited))
        .rule(status(502, Class::Transient))
        .rule(status(503, Class::Transient))
        .rule(status(504, Class::Transient))
        .rule(hundreds(5, Class::Permanent))
}

fn code(code: &str, class: Class) -> Rule {
    Rule { on: On::Code(code.to_owned()), class }
}

const fn status(status: u16, class: Class) -> Rule {
    Rule { on: On::Status(status), class }
}

const fn hundreds(hundreds: u16, class: Class) -> Rule {
    Rule { on: On::StatusClass(hundreds), class }
}

#[cfg(test)]
mod tests {
    use super::super::{Limit, Origin};
    use super::*;
    use crate::clock::Rng;
    use crate::outcome::Failure;
    use std::time::Duration;

    fn preset(name: &str) -> Policy {
        Policy::preset(name).unwrap()
    }

    #[test]
    fn every_preset_has_its_delays_to_the_millisecond() {
        let table: [(&str, &[u64], Limit); 10] = [
            ("media", &[1, 2, 4, 8], Limit::Retries(4)),
            ("download", &[1, 2, 4], Limit::Retries(3)),
            ("download-3", &[1, 2], Limit::Attempts(3)),
            ("workflow-immediate", &[0, 0, 0], Limit::Retries(3)),
            ("workflow-exponential", &[60, 120, 240, 480, 960], Limit::Retries(5)),
            ("workflow-fixed", &[300, 300, 300], Limit::Retries(3)),
            ("workflow-long", &[7 * 86_400, 14 * 86_400], Limit::Retries(2)),
            ("workflow-default", &[0, 0, 0], Limit::Retries(3)),
            ("offline", &[2, 4], Limit::Attempts(3)),
            ("feed", &[60, 120, 240], Limit::Retries(3)),
        ];
        assert_eq!(table.map(|(name, _, _)| name), Policy::PRESETS);
        for (name, seconds, limit) in table {
            let policy = preset(name);
            let expected: Vec<Duration> = seconds.iter().map(|n| secs(*n)).collect();
            assert_eq!(policy.preview(99), expected, "{name}");
            assert_eq!(policy.limit, limit, "{name}");
            assert_eq!(policy.name.as_deref(), Some(name));
            assert_eq!(policy.validate(), Ok(()), "{name}");
            assert_eq!(policy.retries_allowed(Origin::Engine), Some(u32::try_from(seconds.len()).unwrap()));
        }
        assert!(Policy::preset("none-of-them").unwrap_err().contains("write one of media, download"));
        assert_eq!(
            Policy::preset("Medai").unwrap_err(),
            "there is no preset \"Medai\"; did you mean \"media\"?"
        );
    }

    #[test]
    fn caps_hold_beyond_the_preset_limits() {
        let nth = |name: &str, n| preset(name).delay_before_jitter(n).unwrap();
        assert_eq!([nth("media", 5), nth("media", u32::MAX)], [secs(8); 2]);
        assert_eq!([nth("download", 6), nth("download", 7)], [secs(32); 2]);
        assert_eq!([nth("offline", 3), nth("offline", 4), nth("offline", 5)], [8, 16, 30].map(secs));
        assert_eq!(nth("workflow-exponential", 7), mins(60));
        assert_eq!(nth("feed", 11), secs(60 * 1024));
    }

    /// The shortest and the longest of many draws of the nth delay.
    fn range(policy: &Policy, nth: u32) -> (Duration, Duration) {
        let mut rng = Rng::seeded(3);
        let mut draws: Vec<Duration> = (0..5000).map(|_| policy.jittered(nth, None, &mut rng).wait).collect();
        draws.sort();
        (draws[0], draws[4999])
    }

    #[test]
    fn jitter_stays_within_the_bounds_of_each_preset() {
        // S0-27, S0-28, S1-21, S4-01.
        let table = [
            ("media", 1, 1000, 1000),
            ("media", 2, 1800, 2200),
            ("media", 3, 3600, 4400),
            ("media", 4, 7200, 8800),
            ("media", 9, 7200, 8800),
            ("download", 1, 1000, 1500),
            ("download", 9, 32_000, 32_500),
            ("workflow-fixed", 2, 300_000, 300_000),
            ("workflow-exponential", 9, 3_600_000, 3_600_000),
            ("offline", 2, 4000, 4000),
            ("feed", 1, 60_000, 70_000),
            ("feed", 3, 240_000, 250_000),
        ];
        for (name, nth, least, most) in table {
            let (low, high) = range(&preset(name), nth);
            assert!(low >= millis(least) && high <= millis(most), "{name} {nth}: {low:?} to {high:?}");
            let slack = millis((most - least) / 50);
            assert!(
                low <= millis(least) + slack && high + slack >= millis(most),
                "{name} {nth}: {low:?} to {high:?}"
            );
        }
    }

    #[test]
    fn each_preset_has_its_own_idea_of_failures() {
        let class = |name: &str, failure: Failure| preset(name).classify(&failure).class;
        let status = |name: &str, status| class(name, Failure::from_status(status, "x"));
        assert_eq!(status("media", 500), Class::Permanent);
        assert_eq!(status("media", 503), Class::Transient);
        assert_eq!(class("media", Failure::from_status(500, "x").code("SERVICE_DOWN")), Class::Transient);
        assert_eq!(class("media", Failure::from_text("what is this")), Class::Permanent);
        assert_eq!(class("media", Failure::from_text("Network unreachable")), Class::Transient);
        assert_eq!(class("media", Failure::from_text("HTTP 500")), Class::Permanent);
        assert_eq!(status("download", 500), Class::Transient);
        assert_eq!(status("download", 429), Class::RateLimited);
        assert_eq!(status("download", 403), Class::NeedsAuth);
        assert_eq!(class("download", Failure::from_text("what is this")), Class::Transient);
        assert_eq!(status("workflow-fixed", 401), Class::Permanent);
        assert_eq!(status("workflow-fixed", 408), Class::Transient);
        assert_eq!(status("offline", 404), Class::Transient);
        assert_eq!(class("offline", Failure::from_code("INVALID_INPUT", "x")), Class::Transient);
        assert_eq!(status("feed", 500), Class::Permanent);
        assert_eq!(status("feed", 502), Class::Transient);
        assert_eq!(status("feed", 403), Class::Permanent);
        assert_eq!(status("feed", 429), Class::RateLimited);
        assert_eq!(class("feed", Failure::from_text("SSRF validation failed")), Class::Permanent);
        assert_eq!(class("feed", Failure::from_text("No parseable content")), Class::Permanent);
        assert_eq!(class("feed", Failure::from_text("DNS failure")), Class::Transient);
    }
}
