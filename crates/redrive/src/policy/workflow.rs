//! A policy as workflow definitions write it, in seconds and with a strategy:
//!
//! ```json
//! {"retry": {"enabled": true, "strategy": "exponential_backoff", "maxAttempts": 5, "initialDelaySeconds": 60}}
//! ```
//!
//! Read and never written: what is stored is our own form. Here `maxAttempts` counts retries, since the step has failed
//! once before any of this matters. Failures that neither list names are classified as everywhere.

use std::time::Duration;

use serde_json::Value;

use super::reader::{Reader, camel_case, listed};
use super::{Backoff, Policy, Then};
use crate::classify::{On, Rule};
use crate::outcome::Class;
use crate::span;

/// Keys that only this form has.
const OWN_KEYS: [&str; 11] = [
    "retry",
    "enabled",
    "strategy",
    "retryStrategy",
    "initialDelaySeconds",
    "multiplier",
    "maxDelaySeconds",
    "delaySeconds",
    "retryOn",
    "ignoreExceptions",
    "customSchedule",
];

/// Whether an object is in this form.
pub(super) fn is_workflow(value: &Value) -> bool {
    let keys = value.as_object().into_iter().flat_map(|object| object.keys());
    keys.into_iter().any(|key| OWN_KEYS.contains(&camel_case(key).as_str()))
}

/// The policy, and what is wrong with it.
pub(super) fn read(value: Value, mistakes: &mut Vec<String>) -> Option<Policy> {
    let mut outer = Reader::new("", value, mistakes)?;
    let Some(retry) = outer.take("retry") else {
        return Some(read_block(outer));
    };
    let policy = outer.object_of("retry", retry).map(read_block);
    outer.finish();
    policy
}

#[derive(Clone, Copy)]
enum Strategy {
    Immediate,
    Exponential,
    Fixed,
    Custom,
}

const STRATEGIES: [(&str, Strategy); 6] = [
    ("immediate", Strategy::Immediate),
    ("exponential_backoff", Strategy::Exponential),
    ("fixed_delay", Strategy::Fixed),
    ("custom", Strategy::Custom),
    ("exponential", Strategy::Exponential),
    ("fixed", Strategy::Fixed),
];

fn read_block(mut reader: Reader<'_>) -> Policy {
    let enabled = reader.truth("enabled").unwrap_or(true);
    let named = reader.word("strategy", &STRATEGIES);
    let named = named.or(reader.word("retryStrategy", &STRATEGIES));
    let initial = seconds(&mut reader, "initialDelaySeconds");
    let factor = reader.number("multiplier").unwrap_or(2.0);
    let longest = seconds(&mut reader, "maxDelaySeconds");
    let delay = seconds(&mut reader, "delaySeconds");
    let listed_delays = read_schedule(&mut reader);
    let strategy = named.unwrap_or(match (&listed_delays, delay, initial) {
        (Some(_), _, _) => Strategy::Custom,
        (_, Some(_), _) => Strategy::Fixed,
        (_, _, Some(initial)) if !initial.is_zero() => Strategy::Exponential,
        _ => Strategy::Immediate,
    });
    let mut policy = match strategy {
        Strategy::Immediate => Policy::immediate(),
        Strategy::Exponential => {
            let base = needed(&mut reader, "initialDelaySeconds", initial);
            let growing = Policy::of(Backoff::Exponential { base, factor, exponent_start: 0 });
            Policy { cap: longest, ..growing.no_jitter() }
        }
        Strategy::Fixed => Policy::fixed(needed(&mut reader, "delaySeconds", delay.or(initial))),
        Strategy::Custom => {
            if listed_delays.is_none() {
                let example = "is needed; write {\"attempts\": [{\"attempt\": 1, \"delayDays\": 7}]}";
                reader.mistake("customSchedule", example);
            }
            let delays = listed_delays.unwrap_or_else(|| vec![span::secs(1)]);
            Policy::of(Backoff::Schedule { delays, then: Then::RepeatLast })
        }
    };
    policy.rules = read_rules(&mut reader);
    let listed = match &policy.backoff {
        Backoff::Schedule { delays, .. } => u32::try_from(delays.len()).unwrap_or(u32::MAX),
        _ => 3,
    };
    let retries = reader.count("maxAttempts").unwrap_or(listed);
    reader.finish();
    policy.retries(if enabled { retries } else { 0 })
}

fn seconds(reader: &mut Reader<'_>, name: &'static str) -> Option<Duration> {
    let number = reader.number(name)?;
    reader.note(name, span::from_seconds(number))
}

/// A delay that this strategy cannot do without: none at all would spend every retry within milliseconds.
fn needed(reader: &mut Reader<'_>, name: &str, delay: Option<Duration>) -> Duration {
    match delay {
        Some(delay) if !delay.is_zero() => delay,
        _ => {
            let what = "is 0: every retry would run at once; write at least 1, or strategy \"immediate\"";
            reader.mistake(name, what);
            span::secs(1)
        }
    }
}

/// The delays of `customSchedule.attempts`, by the number of the attempt.
fn read_schedule(reader: &mut Reader<'_>) -> Option<Vec<Duration>> {
    let mut schedule = reader.object("customSchedule")?;
    let entries = schedule.list("attempts").unwrap_or_default();
    let mut delays = Vec::new();
    for (at, entry) in entries.into_iter().enumerate() {
        let Some(mut entry) = schedule.object_of(&format!("attempts[{at}]"), entry) else { continue };
        let position = u32::try_from(at + 1).unwrap_or(u32::MAX);
        let attempt = entry.count("attempt").unwrap_or(position);
        delays.extend(read_entry(&mut entry).map(|delay| (attempt, delay)));
        entry.finish();
    }
    schedule.finish();
    delays.sort_by_key(|(attempt, _)| *attempt);
    Some(delays.into_iter().map(|(_, delay)| delay).collect())
}

/// One entry's delay: the sum of its units, of which there must be one.
fn read_entry(entry: &mut Reader<'_>) -> Option<Duration> {
    let units =
        [("delayDays", 86_400.0), ("delayHours", 3600.0), ("delayMinutes", 60.0), ("delaySeconds", 1.0)];
    let mut total: Option<f64> = None;
    for (name, scale) in units {
        if let Some(number) = entry.number(name) {
            total = Some(total.unwrap_or(0.0) + number * scale);
        }
    }
    if total.is_none() {
        entry.mistake("delayDays", &format!("is missing; write one of {}", listed(&units)));
    }
    entry.note("delayDays", span::from_seconds(total?))
}

/// `retryOn` and `ignoreExceptions`: statuses, classes of them, codes, or names of exceptions.
fn read_rules(reader: &mut Reader<'_>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (name, class) in [("retryOn", Class::Transient), ("ignoreExceptions", Class::Permanent)] {
        for (at, value) in reader.list(name).unwrap_or_default().into_iter().enumerate() {
            let text = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned());
            if text.is_empty() || !(value.is_string() || value.is_number()) {
                reader.mistake(
                    &format!("{name}[{at}]"),
                    "is not a failure; write \"5xx\", \"429\" or an exception's name",
                );
                continue;
            }
            let on = text.parse().unwrap_or_else(|_| named_failure(text));
            let class =
                if on == On::Status(429) && class == Class::Transient { Class::RateLimited } else { class };
            rules.push(Rule { on, class });
        }
    }
    rules
}

/// `TIMEOUT` is a code; `TimeoutException` stands in the text.
fn named_failure(name: String) -> On {
    let is_code = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    if is_code { On::Code(name) } else { On::Text(name) }
}

#[cfg(test)]
mod tests {
    use super::super::Limit;
    use super::*;
    use crate::outcome::Failure;
    use crate::span::{days, hours, mins, secs};
    use serde_json::json;

    fn policy(value: Value) -> Policy {
        Policy::from_json(value).unwrap()
    }

    #[test]
    fn a_step_of_a_workflow_is_read() {
        let policy = policy(json!({"retry": {
            "enabled": true, "strategy": "exponential_backoff", "maxAttempts": 5, "initialDelaySeconds": 60,
            "multiplier": 2.0, "maxDelaySeconds": 3600, "retryOn": ["5xx", "408", "429"], "ignoreExceptions": ["4xx"],
        }}));
        assert_eq!(policy.preview(9), [60, 120, 240, 480, 960].map(secs));
        assert_eq!(policy.cap, Some(hours(1)));
        assert_eq!(policy.jitter, super::super::Jitter::none());
        // S2-36: the specific rule wins.
        for (status, class) in [
            (408, Class::Transient),
            (429, Class::RateLimited),
            (500, Class::Transient),
            (404, Class::Permanent),
            (401, Class::Permanent),
        ] {
            assert_eq!(policy.classify(&Failure::from_status(status, "x")).class, class, "{status}");
        }
    }

    #[test]
    fn the_columns_of_the_table_are_read_too() {
        let exponential = policy(json!({
            "retry_strategy": "exponential_backoff", "max_attempts": 5, "initial_delay_seconds": 60,
            "multiplier": 2.0, "max_delay_seconds": 100, "custom_schedule": null, "delay_seconds": null,
        }));
        assert_eq!(exponential.preview(3), [60, 100, 100].map(secs));
        let immediate =
            policy(json!({"retry_strategy": "immediate", "max_attempts": 3, "initial_delay_seconds": 0}));
        assert_eq!(immediate.preview(9), [secs(0); 3]);
        let fixed = policy(json!({"retry_strategy": "fixed_delay", "max_attempts": 3, "delay_seconds": 300}));
        assert_eq!(fixed.preview(9), [mins(5); 3]);
    }

    #[test]
    fn a_custom_schedule_may_use_any_unit_and_repeats_its_last() {
        let long =
            policy(json!({"retry": {"strategy": "custom", "maxAttempts": 2, "customSchedule": {"attempts": [
                {"attempt": 2, "delayDays": 14}, {"attempt": 1, "delay_days": 7},
            ]}}}));
        assert_eq!(long.preview(9), [days(7), days(14)]);
        let units = policy(json!({"strategy": "custom", "maxAttempts": 5, "customSchedule": {"attempts": [
            {"delaySeconds": 5}, {"delayMinutes": 2}, {"delayHours": 1, "delayMinutes": 30},
        ]}}));
        assert_eq!(units.preview(9), [secs(5), mins(2), mins(90), mins(90), mins(90)]);
    }

    #[test]
    fn disabled_is_no_retry_at_all() {
        let off = policy(
            json!({"retry": {"enabled": false, "strategy": "fixed", "delaySeconds": 5, "maxAttempts": 3}}),
        );
        assert_eq!(off.limit, Limit::Retries(0));
        assert_eq!(policy(json!({"enabled": false})).limit, Limit::Retries(0));
    }

    #[test]
    fn nothing_but_enabled_is_the_preset_of_defaults() {
        let read = policy(json!({"enabled": true}));
        assert_eq!(read.preview(9), Policy::preset("workflow-default").unwrap().preview(9));
    }

    #[test]
    fn names_of_exceptions_are_codes_or_texts() {
        let read = policy(
            json!({"enabled": true, "retryOn": ["TIMEOUT", 503], "ignoreExceptions": ["ParseException"]}),
        );
        let on: Vec<String> = read.rules.iter().map(|rule| rule.on.to_string()).collect();
        assert_eq!(on, ["code:TIMEOUT", "503", "text:ParseException"]);
    }

    #[test]
    fn mistakes_are_reported_together() {
        let mistakes = Policy::from_json(json!({"retry": {
            "strategy": "hopeful", "maxAttempts": "five", "initialDelay": 60, "retryOn": [{}],
            "customSchedule": {"attempts": [{"attempt": 1}]},
        }, "node": 1}))
        .unwrap_err();
        let expected = [
            "retry.strategy: \"hopeful\" is not known; write one of \"immediate\", \"exponential_backoff\", \
             \"fixed_delay\", \"custom\"",
            "retry.maxAttempts: \"five\" is not a count",
            "retry.initialDelay is not known here; did you mean initialDelaySeconds?",
            "retry.retryOn[0] is not a failure",
            "retry.customSchedule.attempts[0].delayDays is missing; write one of \"delayDays\", \"delayHours\"",
            "node is not known here; write one of retry",
        ];
        for text in expected {
            assert!(mistakes.iter().any(|mistake| mistake.starts_with(text)), "{text}\nin {mistakes:#?}");
        }
        let zero =
            Policy::from_json(json!({"strategy": "exponential_backoff", "maxAttempts": 5})).unwrap_err();
        assert!(zero[0].contains("write at least 1, or strategy \"immediate\""), "{zero:?}");
    }

    #[test]
    fn it_is_stored_in_our_own_form() {
        let read = policy(json!({"strategy": "fixed", "delaySeconds": 300}));
        let stored = serde_json::to_value(&read).unwrap();
        assert_eq!(stored["backoff"], json!({"kind": "fixed", "delay": "5m"}));
        assert_eq!(policy(stored), read);
    }
}
