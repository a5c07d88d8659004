//! A policy as JSON, in our own form: what the API, config files and the store read and write.
//!
//! ```json
//! {"backoff": {"kind": "exponential", "base": "1s", "factor": 2, "cap": "8s"}, "maxRetries": 4}
//! ```
//!
//! What is left out is as in [`Policy::of`]; without `backoff` it is as in the default policy. With `"preset"` it is as
//! in that preset. A text alone is the name of a preset.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value, json};

use super::reader::Reader;
use super::{Backoff, Jitter, JitterKind, Limit, OverCap, Policy, Then, workflow};
use crate::classify::Rule;
use crate::outcome::Class;
use crate::span::{self, hours, secs};

/// Reads either form, or says everything that is wrong with it.
pub(super) fn read(value: Value) -> Result<Policy, Vec<String>> {
    if let Value::String(name) = &value {
        return Policy::preset(name).map_err(|mistake| vec![mistake]);
    }
    let mut mistakes = Vec::new();
    let policy = if workflow::is_workflow(&value) {
        workflow::read(value, &mut mistakes)
    } else {
        read_own(value, &mut mistakes)
    };
    if let Some(policy) = &policy {
        mistakes.extend(policy.validate().err().unwrap_or_default());
    }
    policy.filter(|_| mistakes.is_empty()).ok_or(mistakes)
}

fn read_own(value: Value, mistakes: &mut Vec<String>) -> Option<Policy> {
    let mut reader = Reader::new("", value, mistakes)?;
    let mut policy = read_base(&mut reader);
    if let Some(jitter) = reader.take("jitter") {
        policy.jitter = read_jitter(&mut reader, jitter).unwrap_or(policy.jitter);
    }
    match (reader.count("maxAttempts"), reader.count("maxRetries")) {
        (Some(_), Some(_)) => {
            reader.mistake("maxAttempts", "and maxRetries are both written; keep one of them")
        }
        (Some(n), None) => policy.limit = Limit::Attempts(n),
        (None, Some(n)) => policy.limit = Limit::Retries(n),
        (None, None) => {}
    }
    policy.give_up_after = reader.span("giveUpAfter").or(policy.give_up_after);
    policy.deadline = reader.span("deadline").or(policy.deadline);
    policy.start_by = reader.span("startBy").or(policy.start_by);
    policy.held_counts = reader.truth("heldCounts").unwrap_or(policy.held_counts);
    policy.timeout = reader.span("timeout").or(policy.timeout);
    if let Some(mut asked) = reader.object("retryAfter") {
        policy.retry_after.honour = asked.truth("honour").unwrap_or(policy.retry_after.honour);
        policy.retry_after.min = asked.span("min").unwrap_or(policy.retry_after.min);
        policy.retry_after.max = asked.span("max").unwrap_or(policy.retry_after.max);
        asked.finish();
    }
    if let Some(rules) = reader.list("rules") {
        policy.rules = read_rules(&mut reader, rules);
    }
    let classes = Class::ALL.map(|class| (class.name(), class));
    policy.unknown = reader.word("unknown", &classes).unwrap_or(policy.unknown);
    policy.max_crashes = reader.count("maxCrashes").unwrap_or(policy.max_crashes);
    policy.notify = reader.truth("notify").unwrap_or(policy.notify);
    policy.name = reader.text("name").or(policy.name);
    reader.finish();
    Some(policy)
}

/// Where everything else starts from: the preset, and the back-off if one is written.
fn read_base(reader: &mut Reader<'_>) -> Policy {
    let preset = reader.text("preset").map(|name| Policy::preset(&name));
    let preset = preset.and_then(|preset| reader.note("preset", preset));
    let written = reader.object("backoff").and_then(read_backoff);
    match (preset, written) {
        (Some(preset), Some((backoff, cap))) => Policy { backoff, cap, ..preset },
        (Some(preset), None) => preset,
        (None, Some((backoff, cap))) => Policy { cap, ..Policy::of(backoff) },
        (None, None) => Policy::exponential(secs(1)..=hours(1)),
    }
}

fn read_backoff(mut reader: Reader<'_>) -> Option<(Backoff, Option<Duration>)> {
    #[derive(Clone, Copy)]
    enum Kind {
        Immediate,
        Fixed,
        Linear,
        Exponential,
        Fibonacci,
        Schedule,
    }
    let kinds = [
        ("immediate", Kind::Immediate),
        ("fixed", Kind::Fixed),
        ("linear", Kind::Linear),
        ("exponential", Kind::Exponential),
        ("fibonacci", Kind::Fibonacci),
        ("schedule", Kind::Schedule),
    ];
    let kind = match (reader.has("kind"), reader.word("kind", &kinds)) {
        // What else belongs here is not known either.
        (true, None) => return None,
        (_, kind) => kind.unwrap_or(Kind::Exponential),
    };
    let second = secs(1);
    let backoff = match kind {
        Kind::Immediate => Backoff::Immediate,
        Kind::Fixed => {
            if !reader.has("delay") {
                reader.mistake("delay", "is needed for kind \"fixed\"; write how long, such as \"5m\"");
            }
            Backoff::Fixed { delay: reader.span("delay").unwrap_or(second) }
        }
        Kind::Linear => {
            let base = reader.span("base").unwrap_or(second);
            Backoff::Linear { base, step: reader.span("step").unwrap_or(base) }
        }
        Kind::Exponential => Backoff::Exponential {
            base: reader.span("base").unwrap_or(second),
            factor: reader.number("factor").unwrap_or(2.0),
            exponent_start: reader.count("exponentStart").unwrap_or(0),
        },
        Kind::Fibonacci => Backoff::Fibonacci { base: reader.span("base").unwrap_or(second) },
        Kind::Schedule => {
            // Where one cannot be read, none would be another mistake.
            let stand_in = if reader.has("delays") { vec![second] } else { Vec::new() };
            Backoff::Schedule {
                delays: reader.spans("delays").unwrap_or(stand_in),
                then: reader.word("then", &THEN).unwrap_or_default(),
            }
        }
    };
    let cap = reader.span("cap");
    reader.finish();
    Some((backoff, cap))
}

const THEN: [(&str, Then); 2] = [("repeat_last", Then::RepeatLast), ("stop", Then::Stop)];
const OVER_CAP: [(&str, OverCap); 2] = [("within", OverCap::Within), ("beyond", OverCap::Beyond)];

/// An object, or the name of a kind that needs nothing else: `"full"`.
fn read_jitter(reader: &mut Reader<'_>, value: Value) -> Option<Jitter> {
    let value = if value.is_string() { json!({ "kind": value }) } else { value };
    let mut reader = reader.object_of("jitter", value)?;
    // Where it cannot be read, none would be another mistake.
    let max_or = if reader.has("max") { secs(1) } else { Duration::ZERO };
    let kinds = [
        ("none", JitterKind::None),
        ("ratio", JitterKind::Ratio { ratio: 0.1 }),
        ("additive", JitterKind::Additive { max: max_or }),
        ("full", JitterKind::Full),
        ("equal", JitterKind::Equal),
        ("decorrelated", JitterKind::Decorrelated),
    ];
    let mut kind = match (reader.has("kind"), reader.word("kind", &kinds)) {
        // What else belongs here is not known either.
        (true, None) => return None,
        (_, kind) => kind.unwrap_or(JitterKind::Full),
    };
    match (&mut kind, reader.number("ratio"), reader.span("max")) {
        (JitterKind::Ratio { ratio }, Some(written), _) => *ratio = written,
        (JitterKind::Additive { max }, _, Some(written)) => *max = written,
        _ => {}
    }
    let jitter = Jitter {
        kind,
        skip_first: reader.truth("skipFirst").unwrap_or(false),
        over_cap: reader.word("overCap", &OVER_CAP).unwrap_or_default(),
    };
    reader.finish();
    Some(jitter)
}

fn read_rules(reader: &mut Reader<'_>, rules: Vec<Value>) -> Vec<Rule> {
    let mut read = Vec::new();
    for (at, mut rule) in rules.into_iter().enumerate() {
        // `{"on": 429}` is as clear as `{"on": "429"}`.
        if let Some(on) = rule.get_mut("on").filter(|on| on.is_number()) {
            *on = Value::String(on.to_string());
        }
        let rule = match rule.is_object() {
            true => serde_json::from_value::<Rule>(rule).map_err(|error| error.to_string()),
            false => Err(format!(r#"it is {rule}; write {{"on": "5xx", "class": "transient"}}"#)),
        };
        read.extend(reader.note(&format!("rules[{at}]"), rule));
    }
    read
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Policy, D::Error> {
        read(Value::deserialize(d)?).map_err(|mistakes| serde::de::Error::custom(mistakes.join("\n")))
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        write(self).serialize(s)
    }
}

/// Our own form, with nothing left to defaults that may change, except what is absent.
fn write(policy: &Policy) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(name.to_owned(), value);
        }
    };
    let text = |duration| Value::String(span::format(duration));
    put("name", policy.name.clone().map(Value::String));
    put("backoff", Some(write_backoff(policy)));
    put("jitter", Some(write_jitter(&policy.jitter)));
    match policy.limit {
        Limit::Attempts(n) => put("maxAttempts", Some(n.into())),
        Limit::Retries(n) => put("maxRetries", Some(n.into())),
        Limit::None => {}
    }
    put("giveUpAfter", policy.give_up_after.map(text));
    put("deadline", policy.deadline.map(text));
    put("startBy", policy.start_by.map(text));
    put("heldCounts", (!policy.held_counts).then_some(Value::Bool(false)));
    put("timeout", policy.timeout.map(text));
    let asked = policy.retry_after;
    put("retryAfter", Some(json!({"honour": asked.honour, "min": text(asked.min), "max": text(asked.max)})));
    let rules =
        policy.rules.iter().map(|rule| json!({"on": rule.on.to_string(), "class": rule.class.name()}));
    put("rules", Some(rules.collect::<Vec<_>>()).filter(|rules| !rules.is_empty()).map(Value::Array));
    put("unknown", Some(policy.unknown.name().into()));
    put("maxCrashes", Some(policy.max_crashes.into()));
    put("notify", Some(policy.notify.into()));
    Value::Object(out)
}

fn write_backoff(policy: &Policy) -> Value {
    let text = span::format;
    let mut value = match &policy.backoff {
        Backoff::Immediate => json!({"kind": "immediate"}),
        Backoff::Fixed { delay } => json!({"kind": "fixed", "delay": text(*delay)}),
        Backoff::Linear { base, step } => json!({"kind": "linear", "base": text(*base), "step": text(*step)}),
        Backoff::Exponential { base, factor, exponent_start } => json!({
            "kind": "exponential", "base": text(*base), "factor": number(*factor), "exponentStart": exponent_start,
        }),
        Backoff::Fibonacci { base } => json!({"kind": "fibonacci", "base": text(*base)}),
        Backoff::Schedule { delays, then } => {
            let delays: Vec<String> = delays.iter().map(|delay| text(*delay)).collect();
            json!({"kind": "schedule", "delays": delays, "then": word(&THEN, *then)})
        }
    };
    if let Some(cap) = policy.cap {
        value["cap"] = text(cap).into();
    }
    value
}

fn write_jitter(jitter: &Jitter) -> Value {
    let mut value = match jitter.kind {
        JitterKind::None => json!({"kind": "none"}),
        JitterKind::Ratio { ratio } => json!({"kind": "ratio", "ratio": number(ratio)}),
        JitterKind::Additive { max } => json!({"kind": "additive", "max": span::format(max)}),
        JitterKind::Full => json!({"kind": "full"}),
        JitterKind::Equal => json!({"kind": "equal"}),
        JitterKind::Decorrelated => json!({"kind": "decorrelated"}),
    };
    if jitter.skip_first {
        value["skipFirst"] = true.into();
    }
    if jitter.over_cap != OverCap::default() {
        value["overCap"] = word(&OVER_CAP, jitter.over_cap).into();
    }
    value
}

fn word<T: PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|(_, known)| *known == meaning).map_or("", |(word, _)| word)
}

/// 2 rather than 2.0, as people write it.
fn number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e9 {
        return Value::Number((number as i64).into());
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::On;
    use crate::span::{days, millis, mins};
    use proptest::prelude::*;

    fn read_text(json: &str) -> Policy {
        serde_json::from_str(json).unwrap()
    }

    fn mistakes_in(json: Value) -> Vec<String> {
        read(json).unwrap_err()
    }

    #[test]
    fn the_form_of_the_api_is_read() {
        let policy = read_text(
            r#"{"backoff":{"kind":"exponential","base":"1s","factor":2,"exponentStart":0,"cap":"8s"},
                "jitter":{"kind":"ratio","ratio":0.1,"max":"500ms","skipFirst":true,"overCap":"beyond"},
                "maxAttempts":4,"giveUpAfter":"3d","deadline":"14d","startBy":"1h","heldCounts":false,"timeout":"30s",
                "retryAfter":{"honour":true,"min":"0s","max":"1d"},
                "rules":[{"on":"5xx","class":"transient"},{"on":429,"class":"rate_limited"},
                         {"on":"code:TIMEOUT","class":"transient"},
                         {"on":"text:no parseable content","class":"permanent"}],
                "maxCrashes":3}"#,
        );
        assert_eq!(policy.preview(9), [secs(1), secs(2), secs(4)]);
        assert_eq!(policy.cap, Some(secs(8)));
        assert_eq!(policy.jitter, Jitter::ratio(0.1).skip_first().beyond_cap());
        assert_eq!(policy.limit, Limit::Attempts(4));
        assert_eq!((policy.give_up_after, policy.deadline), (Some(days(3)), Some(days(14))));
        assert_eq!((policy.start_by, policy.timeout), (Some(hours(1)), Some(secs(30))));
        assert!(!policy.held_counts && Policy::default().held_counts);
        assert_eq!(policy.rules[1].on, On::Status(429));
        assert_eq!(policy.rules.len(), 4);
    }

    #[test]
    fn snake_case_numbers_of_seconds_and_short_forms_are_read() {
        let snake = read_text(
            r#"{"backoff":{"kind":"schedule","delays":["7d",60],"then":"stop"},"jitter":"full","max_crashes":5,
                "give_up_after":90,"retry_after":{"honour":false}}"#,
        );
        assert_eq!(snake.preview(9), []);
        assert_eq!(snake.give_up_after, Some(secs(90)));
        assert_eq!(Policy { give_up_after: None, ..snake.clone() }.preview(9), [days(7), mins(1)]);
        assert_eq!((snake.jitter, snake.max_crashes), (Jitter::full(), 5));
        assert!(!snake.retry_after.honour);
    }

    #[test]
    fn a_text_is_a_preset_and_a_preset_can_be_changed() {
        assert_eq!(read_text(r#""media""#), Policy::preset("media").unwrap());
        let changed = read_text(r#"{"preset":"media","maxRetries":6}"#);
        assert_eq!(changed, Policy::preset("media").unwrap().retries(6));
        assert!(mistakes_in(json!("medai"))[0].contains("did you mean \"media\"?"));
    }

    #[test]
    fn nothing_written_is_the_default() {
        let policy = read_text("{}");
        let default = Policy::default();
        assert_eq!(
            (&policy.backoff, policy.cap, &policy.jitter),
            (&default.backoff, default.cap, &default.jitter)
        );
        assert_eq!(policy.lifetime(), default.lifetime());
    }

    #[test]
    fn all_mistakes_are_reported_together_with_what_to_write() {
        let mistakes = mistakes_in(json!({
            "backoff": {"kind": "exponential", "base": "0s", "facto": 2, "factor": "two"},
            "jitter": {"kind": "wild"},
            "maxAttempts": 3, "maxRetries": 3,
            "giveUpAfter": "90",
            "rules": [{"on": "6xx", "class": "transient"}, {"on": "5xx", "class": "sad"}],
            "maxCrashes": -1,
            "notify": "yes",
            "timout": "1s",
            "colour": "red",
        }));
        let expected = [
            "backoff.base is 0s: every retry would run at once; write a base of at least 1ms, or kind \"immediate\"",
            "backoff.facto is not known here; did you mean factor?",
            "backoff.factor: \"two\" is not a number; write one, such as 2",
            "jitter.kind: \"wild\" is not known; write one of \"none\", \"ratio\", \"additive\", \"full\", \"equal\", \
             \"decorrelated\"",
            "maxAttempts and maxRetries are both written; keep one of them",
            "giveUpAfter: \"90\" has no unit; write \"90s\" for seconds (units: ms, s, m, h, d, w)",
            "rules[0]: \"6xx\" names no failures",
            "rules[1]: unknown variant `sad`, expected one of `transient`",
            "maxCrashes: -1 is not a count; write a whole number from 0 to",
            "notify: \"yes\" is neither; write true or false",
            "timout is not known here; did you mean timeout?",
            "colour is not known here; write one of preset, backoff",
        ];
        for text in expected {
            assert!(mistakes.iter().any(|mistake| mistake.starts_with(text)), "{text}\nin {mistakes:#?}");
        }
        assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
        assert!(mistakes_in(json!(7))[0].contains("write an object"));
        assert!(mistakes_in(json!({"max_crashes": 1, "maxCrashes": 1}))[0].contains("written twice"));
        assert!(mistakes_in(json!({"backoff": {"kind": "fixed"}}))[0].contains("backoff.delay is needed"));
        assert!(
            mistakes_in(json!({"backoff": {"kind": "schedule"}}))[0].contains("write at least one delay")
        );
    }

    #[test]
    fn the_policy_on_the_page_about_policies_is_read_as_it_stands() {
        let page = include_str!("../../../../docs/concepts/policies.md");
        let json = page.split("```json\n").nth(1).and_then(|rest| rest.split_once("```")).unwrap().0;
        let policy = Policy::from_json(serde_json::from_str(json).unwrap()).unwrap();
        assert_eq!(policy.limit, Limit::Attempts(4));
        assert_eq!(policy.preview(3), [secs(1), secs(2), secs(4)]);
    }

    #[test]
    fn what_is_unknown_is_named_as_it_is_written_with_what_was_probably_meant() {
        for (written, mistake) in [
            (json!({"max_atempts": 4}), "max_atempts is not known here; did you mean max_attempts?"),
            (json!({"maxAtempts": 4}), "maxAtempts is not known here; did you mean maxAttempts?"),
            (json!({"retry_after": {"minn": "1s"}}), "retry_after.minn is not known here; did you mean min?"),
            (
                json!({"backoff": {"kind": "fixd"}}),
                "backoff.kind: \"fixd\" is not known; did you mean \"fixed\"?",
            ),
            (json!({"jitter": "ful"}), "jitter.kind: \"ful\" is not known; did you mean \"full\"?"),
        ] {
            assert_eq!(mistakes_in(written), [mistake]);
        }
        let snake = &mistakes_in(json!({"the_colour": "red"}))[0];
        assert!(snake.contains("write one of preset, backoff, jitter, max_attempts, "), "{snake}");
    }

    #[test]
    fn nothing_is_said_of_what_a_mistake_has_made_unknown() {
        for written in [
            json!({"backoff": {"kind": "fixd", "delay": "1s", "cap": "1ms"}}),
            json!({"backoff": {"kind": 5, "delay": "soon"}}),
            json!({"backoff": {"kind": "fixed", "delay": "-1s"}}),
            json!({"backoff": {"kind": "schedule", "delays": ["soon"]}}),
            json!({"backoff": {"kind": "schedule", "delays": "7d"}}),
            json!({"jitter": {"kind": "wild", "ratio": "x", "maxx": 1}}),
            json!({"jitter": {"kind": "additive", "max": "soon"}}),
        ] {
            let mistakes = mistakes_in(written.clone());
            assert_eq!(mistakes.len(), 1, "{written}: {mistakes:#?}");
        }
        let both = mistakes_in(json!({"backoff": {"kind": "schedule", "delays": ["soon", "1d", "late"]}}));
        assert_eq!(both.len(), 2, "{both:#?}");
    }

    #[test]
    fn a_great_many_mistakes_are_not_guessed_at_and_a_long_word_is_not_measured() {
        let many: Map<String, Value> = (0..1000).map(|n| (format!("timeout{n}"), json!(1))).collect();
        let mistakes = mistakes_in(Value::Object(many));
        let guessed = mistakes.iter().filter(|mistake| mistake.contains("did you mean timeout?")).count();
        assert_eq!((mistakes.len(), guessed), (1000, 32));
        // Measured, it would take tables of a hundred million numbers.
        assert_eq!(mistakes_in(json!({"x".repeat(10_000_000): 1})).len(), 1);
    }

    #[test]
    fn every_preset_survives_json() {
        for name in Policy::PRESETS {
            let preset = Policy::preset(name).unwrap();
            assert_eq!(read(serde_json::to_value(&preset).unwrap()).unwrap(), preset, "{name}");
        }
    }

    #[test]
    fn what_is_written_leaves_nothing_to_guess() {
        let expected = json!({
            "backoff": {"kind": "exponential", "base": "1s", "factor": 2, "exponentStart": 0, "cap": "1h"},
            "jitter": {"kind": "full", "skipFirst": true},
            "giveUpAfter": "3d",
            "retryAfter": {"honour": true, "min": "0s", "max": "1d"},
            "unknown": "transient", "maxCrashes": 3, "notify": true,
        });
        assert_eq!(serde_json::to_value(Policy::default()).unwrap(), expected);
        assert_eq!(read(expected).unwrap(), Policy::default());
    }

    fn any_span() -> impl Strategy<Value = std::time::Duration> {
        (1..=400 * 86_400_000_u64).prop_map(millis)
    }

    fn any_backoff() -> impl Strategy<Value = Backoff> {
        prop_oneof![
            Just(Backoff::Immediate),
            any_span().prop_map(|delay| Backoff::Fixed { delay }),
            (any_span(), any_span()).prop_map(|(base, step)| Backoff::Linear { base, step }),
            (any_span(), 100..=9999_u32, 0..=1_u32).prop_map(|(base, percent, exponent_start)| {
                Backoff::Exponential { base, factor: f64::from(percent) / 100.0, exponent_start }
            }),
            any_span().prop_map(|base| Backoff::Fibonacci { base }),
            (prop::collection::vec(any_span(), 1..5), prop_oneof![Just(Then::RepeatLast), Just(Then::Stop)])
                .prop_map(|(delays, then)| Backoff::Schedule { delays, then }),
        ]
    }

    fn any_jitter() -> impl Strategy<Value = Jitter> {
        let kind = prop_oneof![
            Just(JitterKind::None),
            (1..=1000_u32).prop_map(|n| JitterKind::Ratio { ratio: f64::from(n) / 1000.0 }),
            any_span().prop_map(|max| JitterKind::Additive { max }),
            Just(JitterKind::Full),
            Just(JitterKind::Equal),
            Just(JitterKind::Decorrelated),
        ];
        let over_cap = prop_oneof![Just(OverCap::Within), Just(OverCap::Beyond)];
        (kind, any::<bool>(), over_cap).prop_map(|(kind, skip_first, over_cap)| Jitter {
            kind,
            skip_first,
            over_cap,
        })
    }

    proptest! {
        #[test]
        fn any_policy_survives_json(
            backoff in any_backoff(),
            jitter in any_jitter(),
            limit in prop_oneof![
                Just(Limit::None),
                (1..9_u32).prop_map(Limit::Attempts),
                (0..9_u32).prop_map(Limit::Retries),
            ],
            spans in prop::collection::vec(prop::option::of(any_span()), 4),
            (notify, held_counts) in any::<(bool, bool)>(),
        ) {
            let policy = Policy {
                jitter, limit, notify, held_counts,
                cap: spans[0].map(|_| span::MAX),
                give_up_after: spans[1],
                deadline: spans[2],
                timeout: spans[3],
                ..Policy::of(backoff)
            };
            let json = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        }
    }
}
