//! What can be wrong with a policy, and what to write instead. Fields are named as the JSON has them.

use std::time::Duration;

use super::{Backoff, JitterKind, Limit, Policy};
use crate::classify::{On, Rule};
use crate::span;

/// More rules than this are a program, and each failure would be held against all of them.
const RULES_MAX: usize = 100;
/// A schedule is stored with every job.
const SCHEDULE_DELAYS_MAX: usize = 1000;

/// All of them; none if the policy is sound.
pub(super) fn mistakes(policy: &Policy) -> Vec<String> {
    let mut found = Vec::new();
    check_backoff(policy, &mut found);
    check_jitter(policy, &mut found);
    check_limits(policy, &mut found);
    check_rules(&policy.rules, &mut found);
    found
}

fn check_backoff(policy: &Policy, found: &mut Vec<String>) {
    let mut positive = |name: &str, value: Duration| {
        if value.is_zero() {
            found.push(format!(
                "backoff.{name} is 0s: every retry would run at once; write a {name} of at least 1ms, or kind \
                 \"immediate\""
            ));
        }
    };
    match &policy.backoff {
        Backoff::Immediate => {}
        Backoff::Fixed { delay } => positive("delay", *delay),
        Backoff::Linear { base, .. } | Backoff::Exponential { base, .. } | Backoff::Fibonacci { base } => {
            positive("base", *base);
        }
        Backoff::Schedule { delays, .. } => check_schedule(delays, found),
    }
    if let Backoff::Exponential { factor, exponent_start, .. } = &policy.backoff {
        if !(1.0..=1000.0).contains(factor) {
            found.push(format!("backoff.factor is {factor}: write a number from 1 to 1000, such as 2"));
        }
        if *exponent_start > 1 {
            found.push(format!(
                "backoff.exponentStart is {exponent_start}: write 0 (the first delay is the base) or 1 (base × factor)"
            ));
        }
    }
    for (name, delay) in delays_of(&policy.backoff) {
        not_too_long(&format!("backoff.{name}"), Some(delay), found);
    }
    let first = policy.backoff.nth(1).filter(|_| policy.backoff.grows());
    if let (Some(cap), Some(first)) = (policy.cap, first)
        && cap < first
    {
        found.push(format!(
            "backoff.cap is {}, below the first delay {}; write a cap of at least that, or kind \"fixed\"",
            span::format(cap),
            span::format(first)
        ));
    }
    not_too_long("backoff.cap", policy.cap, found);
}

fn check_schedule(delays: &[Duration], found: &mut Vec<String>) {
    if delays.is_empty() {
        found.push("backoff.delays is empty; write at least one delay, such as [\"7d\", \"14d\"]".to_owned());
    } else if delays.iter().all(Duration::is_zero) {
        found.push(
            "backoff.delays are all 0s: every retry would run at once; write kind \"immediate\"".to_owned(),
        );
    }
    if delays.len() > SCHEDULE_DELAYS_MAX {
        found.push(format!(
            "backoff.delays has {} entries; write at most {SCHEDULE_DELAYS_MAX}",
            delays.len()
        ));
    }
}

fn delays_of(backoff: &Backoff) -> Vec<(&'static str, Duration)> {
    match backoff {
        Backoff::Immediate => vec![],
        Backoff::Fixed { delay } => vec![("delay", *delay)],
        Backoff::Linear { base, step } => vec![("base", *base), ("step", *step)],
        Backoff::Exponential { base, .. } | Backoff::Fibonacci { base } => vec![("base", *base)],
        Backoff::Schedule { delays, .. } => {
            delays.iter().max().map(|longest| ("delays", *longest)).into_iter().collect()
        }
    }
}

fn not_too_long(name: &str, duration: Option<Duration>, found: &mut Vec<String>) {
    if let Some(duration) = duration.filter(|duration| *duration > span::MAX) {
        let longest = span::format(span::MAX);
        found.push(format!(
            "{name} is {}, longer than {longest}; write at most {longest}",
            span::format(duration)
        ));
    }
}

fn check_jitter(policy: &Policy, found: &mut Vec<String>) {
    match policy.jitter.kind {
        JitterKind::Ratio { ratio } if !(ratio > 0.0 && ratio <= 1.0) => {
            found.push(format!(
                "jitter.ratio is {ratio}: write a number above 0 and up to 1, such as 0.1 for ± 10 %"
            ));
        }
        JitterKind::Additive { max } if max.is_zero() => {
            found.push(
                "jitter.max is 0s: write how much is added at most, such as \"500ms\", or kind \"none\""
                    .to_owned(),
            );
        }
        JitterKind::Additive { max } => not_too_long("jitter.max", Some(max), found),
        _ => {}
    }
}

fn check_limits(policy: &Policy, found: &mut Vec<String>) {
    if policy.limit == Limit::Attempts(0) {
        found.push(
            "maxAttempts is 0: it would never run; write at least 1, or \"maxRetries\": 0 for no retry"
                .to_owned(),
        );
    }
    if policy.max_crashes == 0 {
        found.push("maxCrashes is 0: a job must be allowed to run; write at least 1".to_owned());
    }
    let spans = [
        ("giveUpAfter", policy.give_up_after),
        ("deadline", policy.deadline),
        ("startBy", policy.start_by),
        ("timeout", policy.timeout),
    ];
    for (name, value) in spans {
        if value.is_some_and(|value| value.is_zero()) {
            found.push(format!(
                "{name} is 0s: no time is left for anything; write at least 1ms, or leave it out"
            ));
        }
        not_too_long(name, value, found);
    }
    let asked = policy.retry_after;
    if asked.min > asked.max {
        found.push(format!(
            "retryAfter.min is {}, above retryAfter.max, which is {}; write a min of at most the max",
            span::format(asked.min),
            span::format(asked.max)
        ));
    }
    not_too_long("retryAfter.max", Some(asked.max), found);
}

fn check_rules(rules: &[Rule], found: &mut Vec<String>) {
    if rules.len() > RULES_MAX {
        found.push(format!("rules has {} entries; write at most {RULES_MAX}", rules.len()));
        return;
    }
    for (at, rule) in rules.iter().enumerate() {
        if let On::Text(phrase) | On::Code(phrase) = &rule.on
            && phrase.trim().is_empty()
        {
            found.push(format!(
                "rules[{at}].on has nothing to look for; write \"text:a phrase\" or \"code:TIMEOUT\""
            ));
        }
        if let Some(other) = rules[..at].iter().find(|other| other.on == rule.on && other.class != rule.class)
        {
            found.push(format!(
                "rules[{at}].on is \"{}\" again, as {} and as {}; keep one of them",
                rule.on, other.class, rule.class
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Class;
    use crate::policy::Jitter;
    use crate::span::{days, hours, mins, secs};

    fn only_mistake(policy: &Policy) -> String {
        let found = mistakes(policy);
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].clone()
    }

    #[test]
    fn a_delay_of_nothing_is_a_mistake_unless_it_is_meant() {
        // P5.
        let zero = secs(0);
        for policy in [
            Policy::fixed(zero),
            Policy::linear(zero, secs(1)),
            Policy::exponential(zero..=secs(9)),
            Policy::fibonacci(zero),
            Policy::schedule([zero, zero]),
        ] {
            assert!(only_mistake(&policy).contains("kind \"immediate\""));
        }
        assert_eq!(mistakes(&Policy::immediate().retries(3)), [""; 0]);
        assert_eq!(mistakes(&Policy::schedule([zero, secs(1)])), [""; 0]);
    }

    #[test]
    fn each_mistake_says_what_to_write() {
        let sound = || Policy::exponential(secs(1)..=mins(1)).retries(3);
        let exponential = |factor, exponent_start| {
            Policy::of(Backoff::Exponential { base: secs(1), factor, exponent_start })
        };
        let rule = |on: &str, class| Rule::new(on, class).unwrap();
        let cases = [
            (exponential(0.5, 0), "write a number from 1 to 1000"),
            (exponential(f64::NAN, 0), "write a number from 1 to 1000"),
            (exponential(2.0, 2), "write 0 (the first delay is the base) or 1"),
            (sound().cap(Duration::from_millis(1)), "below the first delay 1s; write a cap of at least that"),
            (sound().cap(days(401)), "backoff.cap is 401d, longer than 400d; write at most 400d"),
            (sound().within(days(500)), "giveUpAfter is 500d, longer than 400d"),
            (Policy::fixed(days(500)), "backoff.delay is 500d"),
            (Policy::schedule([]), "write at least one delay"),
            (Policy::schedule(vec![secs(1); 1001]), "write at most 1000"),
            (sound().jitter(Jitter::ratio(1.5)), "such as 0.1"),
            (sound().jitter(Jitter::ratio(f64::NAN)), "such as 0.1"),
            (sound().jitter(Jitter::additive(secs(0))), "or kind \"none\""),
            (sound().attempts(0), "write at least 1, or \"maxRetries\": 0"),
            (sound().timeout(secs(0)), "timeout is 0s"),
            (Policy { max_crashes: 0, ..sound() }, "maxCrashes is 0"),
            (
                sound().rule(rule("5xx", Class::Permanent)).rule(rule("5xx", Class::Transient)),
                "keep one of them",
            ),
            (
                sound().rule(Rule { on: On::Text(" ".to_owned()), class: Class::Permanent }),
                "write \"text:a phrase\"",
            ),
        ];
        for (policy, hint) in cases {
            let mistake = only_mistake(&policy);
            assert!(mistake.contains(hint), "{hint}: {mistake}");
        }
        let mut asked = sound();
        asked.retry_after.min = hours(25);
        assert!(only_mistake(&asked).contains("retryAfter.min is 1d1h, above retryAfter.max, which is 1d"));
    }
}
