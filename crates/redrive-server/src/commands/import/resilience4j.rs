//! What Resilience4j's retries mean here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redrive::{Backoff, Class, Jitter, Policy, Rule, millis, span};

use super::settings::Settings;

/// What it uses where nothing is said.
const ATTEMPTS: u32 = 3;
const WAIT: Duration = millis(500);
const MULTIPLIER: f64 = 1.5;
const SPREAD: f64 = 0.5;

/// Policies by the names of their instances, and what they cannot say.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) policies: BTreeMap<String, Policy>,
    pub(super) notes: Vec<String>,
}

/// Fields of one instance or configuration, by their names in small letters without dashes.
type Fields = BTreeMap<String, Vec<String>>;

/// Everything under `resilience4j.retry`.
pub(super) fn import(settings: &Settings) -> Imported {
    let mut imported = Imported::default();
    let (mut configs, mut instances, mut others) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for (path, values) in &settings.0 {
        let names: Vec<String> = path.iter().map(|name| folded(name)).collect();
        match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["resilience4j", "retry", group, _, field]
                if matches!(*group, "configs" | "instances" | "backends") =>
            {
                let all = if *group == "configs" { &mut configs } else { &mut instances };
                let fields: &mut Fields = all.entry(path[3].clone()).or_default();
                fields.insert((*field).to_owned(), values.clone());
            }
            ["resilience4j", "retry", ..] => {
                imported.notes.push(format!("{} has no equivalent", path.join(".")));
            }
            ["resilience4j", part, ..] => {
                others.insert(part.to_string());
            }
            _ => {}
        }
    }
    for (name, own) in &instances {
        let base = own.get("baseconfig").and_then(|names| names.first()).map_or("default", String::as_str);
        let mut fields = configs.get(base).cloned().unwrap_or_default();
        fields.extend(own.clone());
        let policy = policy(name, &fields, &mut imported.notes);
        imported.policies.insert(name.clone(), policy);
    }
    // Whoever names no instance means its default.
    if instances.is_empty()
        && let Some(fields) = configs.get("default")
    {
        let policy = policy("default", fields, &mut imported.notes);
        imported.policies.insert("default".into(), policy);
    }
    for other in others {
        let instead = match other.as_str() {
            "timelimiter" => "give the policy or the job a timeout",
            "ratelimiter" | "circuitbreaker" => "what protects the other side belongs to its destination",
            "bulkhead" | "threadpoolbulkhead" => "give the queue a concurrency",
            _ => "it has no equivalent",
        };
        imported.notes.push(format!("resilience4j.{other} is no retry: {instead}"));
    }
    imported
}

fn folded(name: &str) -> String {
    name.replace(['-', '_'], "").to_ascii_lowercase()
}

fn policy(name: &str, fields: &Fields, notes: &mut Vec<String>) -> Policy {
    let mut note = |what: String| notes.push(format!("{name}: {what}"));
    let first = |field: &str| fields.get(field).and_then(|values| values.first());
    let is_on = |field: &str| first(field).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let mut wait_of = |field: &str| {
        let written = first(field)?;
        let read = duration(written);
        if read.is_none() {
            note(format!("{field} is {written:?}, which is no duration; it was left out"));
        }
        read
    };
    let (wait, longest) = (wait_of("waitduration").unwrap_or(WAIT), wait_of("exponentialmaxwaitduration"));
    let number = |field: &str, usual: f64| first(field).and_then(|value| value.parse().ok()).unwrap_or(usual);
    let mut policy = if is_on("enableexponentialbackoff") {
        let factor = number("exponentialbackoffmultiplier", MULTIPLIER);
        let growing = Policy::of(Backoff::Exponential { base: wait, factor, exponent_start: 0 });
        Policy { cap: longest, ..growing }
    } else if wait.is_zero() {
        Policy::immediate()
    } else {
        Policy::fixed(wait)
    };
    policy = match is_on("enablerandomizedwait") {
        true => policy.jitter(Jitter::ratio(number("randomizedwaitfactor", SPREAD))),
        false => policy.no_jitter(),
    };
    let attempts = first("maxattempts").or_else(|| first("maxretryattempts"));
    policy = policy.attempts(attempts.and_then(|value| value.parse().ok()).unwrap_or(ATTEMPTS));
    for (field, class) in [("retryexceptions", Class::Transient), ("ignoreexceptions", Class::Permanent)] {
        for exception in fields.get(field).into_iter().flatten() {
            // The text of a failure has the name with or without its package.
            let name = exception.rsplit(['.', '$']).next().unwrap_or(exception);
            match Rule::new(&format!("text:{name}"), class) {
                Ok(rule) => policy.rules.push(rule),
                Err(problem) => note(format!("{exception} in {field}: {problem}")),
            }
        }
    }
    if fields.contains_key("retryexceptions") {
        note(
            "retryExceptions lets nothing else be retried; here what no rule names is classified by its own \
              status, code or text"
                .into(),
        );
    }
    const KNOWN: [&str; 11] = [
        "maxattempts",
        "maxretryattempts",
        "waitduration",
        "enableexponentialbackoff",
        "exponentialbackoffmultiplier",
        "exponentialmaxwaitduration",
        "enablerandomizedwait",
        "randomizedwaitfactor",
        "retryexceptions",
        "ignoreexceptions",
        "baseconfig",
    ];
    for field in fields.keys().filter(|field| !KNOWN.contains(&field.as_str())) {
        note(match field.as_str() {
            "resultpredicate" | "retryonresultpredicate" => {
                "a result predicate has no equivalent: let the handler return a failure instead".into()
            }
            "retryexceptionpredicate" => "an exception predicate has no equivalent: write rules".into(),
            "intervalfunction" | "intervalbifunction" => {
                "an interval function has no equivalent: write the delays as a schedule".into()
            }
            "failaftermaxattempts" => {
                "failAfterMaxAttempts is always so: a job that is given up is dead".into()
            }
            other => format!("{other} has no equivalent"),
        });
    }
    if let Err(problems) = policy.validate() {
        problems.into_iter().for_each(&mut note);
    }
    policy
}

/// `500ms`, `2s`, `PT1M30S`, or a number of milliseconds.
fn duration(text: &str) -> Option<Duration> {
    if let Ok(number) = text.parse() {
        return Some(Duration::from_millis(number));
    }
    let small = text.to_ascii_lowercase();
    span::parse(small.strip_prefix("pt").unwrap_or(&small)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive::{Limit, On, secs};

    fn imported(yaml: &str) -> Imported {
        import(&Settings::from_yaml(yaml).unwrap())
    }

    #[test]
    fn an_instance_takes_what_it_does_not_say_from_its_configuration() {
        let imported = imported(
            "
resilience4j.retry:
  configs:
    default: { }
    slow:
      maxAttempts: 4
      waitDuration: PT1M30S
  instances:
    orders: 
      baseConfig: slow
      maxAttempts: 6
    mail:
      wait-duration: 250
",
        );
        let [mail, orders] = [&imported.policies["mail"], &imported.policies["orders"]];
        assert_eq!((mail.limit, &mail.backoff), (Limit::Attempts(3), &Backoff::Fixed { delay: millis(250) }));
        assert_eq!(
            (orders.limit, &orders.backoff),
            (Limit::Attempts(6), &Backoff::Fixed { delay: secs(90) })
        );
    }

    #[test]
    fn delays_are_those_that_resilience4j_waits() {
        let imported = imported(
            "
resilience4j.retry.instances.api:
  max-attempts: 5
  wait-duration: 1s
  enable-exponential-backoff: true
  exponential-backoff-multiplier: 2
  exponential-max-wait-duration: 3s
  retryExceptions: [java.io.IOException]
  ignoreExceptions:
    - com.example.Orders$NotFoundException
  resultPredicate: com.example.Empty
resilience4j.circuitbreaker.instances.api.slidingWindowSize: 10
",
        );
        let policy = &imported.policies["api"];
        assert_eq!(policy.preview(4), [secs(1), secs(2), secs(3), secs(3)]);
        assert_eq!(policy.cap, Some(secs(3)));
        let rules: Vec<_> = policy.rules.iter().map(|rule| (rule.on.clone(), rule.class)).collect();
        let text = |name: &str| On::Text(name.into());
        assert_eq!(
            rules,
            [(text("IOException"), Class::Transient), (text("NotFoundException"), Class::Permanent)]
        );
        for says in ["retryExceptions lets nothing else", "result predicate", "circuitbreaker is no retry"] {
            assert!(imported.notes.iter().any(|note| note.contains(says)), "{says}: {:?}", imported.notes);
        }
    }
}
