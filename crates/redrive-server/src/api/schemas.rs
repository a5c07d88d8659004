//! How things are described whose types say too little: words of which there are only a few, and policies, which are read
//! field by field.
//!
//! What is accepted is described, and not only what is best: null is as good as left out.

use redrive::{Class as FailureClass, Ending as AttemptEnding, Failure, StateName};
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::forms::Span;

/// Each under its name, with what it refers to.
macro_rules! described {
    ($($name:ident $(with $($part:ident),+)? = $schema:expr;)+) => {$(
        pub(super) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                serde_json::from_value($schema).expect("it is written as a schema")
            }
        }

        impl ToSchema for $name {
            fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
                all.extend([$($(($part::name().into(), $part::schema())),+)?]);
                $($($part::schemas(all);)+)?
            }
        }
    )+};
}

described! {
    State = words("Where a job stands.", StateName::ALL.map(StateName::as_str).to_vec());
    Class = words("What a failure is taken for.", FailureClass::ALL.map(FailureClass::name).to_vec());
    Ending = words("How an attempt ended.", AttemptEnding::ALL.map(AttemptEnding::as_str).to_vec());
    Code = json!({
        "type": "string",
        "description": "A short name that programs compare.",
        "examples": ["TIMEOUT"],
        "minLength": 1,
        "maxLength": Failure::CODE_CHARS_MAX,
        "pattern": "^[A-Za-z0-9_.:-]+$",
    });
    OnConflict = words("What to do when the key is taken: `ignore` if not given.", vec!["ignore", "replace", "reject"]);
    Origin = words("Where a job failed first: here, or before it came here.", vec!["engine", "external"]);
    Labels = json!({
        "description": "Texts by their names. PHP writes an object without any as an empty list: that is one, too.",
        "anyOf": [
            { "type": "object", "additionalProperties": { "type": "string" } },
            { "type": "array", "items": { "type": "object" }, "maxItems": 0 },
        ],
    });
    PolicyForm with Policy, RetryBlock = json!({
        "description": "The name of a preset or of a configured policy, a policy, or a workflow's `retry`.",
        "anyOf": [
            { "type": "string", "examples": ["media"] },
            refer("Policy"),
            { "type": "object", "required": ["retry"], "properties": { "retry": or_null(refer("RetryBlock")) } },
        ],
    });
    Policy with Backoff, Jitter, Rule, Class, Span = json!({
        "type": "object",
        "description": "When to try again and when to stop. What is left out is as in the preset, or else as usual.",
        "properties": {
            "preset": { "type": ["string", "null"], "description": "Where everything else starts from." },
            "name": { "type": ["string", "null"] },
            "backoff": or_null(refer("Backoff")),
            "jitter": or_null(refer("Jitter")),
            "maxAttempts": count("How often it may run; not together with `maxRetries`."),
            "maxRetries": count("How often it may run again."),
            "giveUpAfter": span("No retry after this much time."),
            "deadline": span("Dead if not finished within this time."),
            "startBy": span("Dead if not begun within this time."),
            "heldCounts": truth("Whether the time that its destination held it counts."),
            "timeout": span("How long one attempt may take."),
            "retryAfter": {
                "type": ["object", "null"],
                "description": "What becomes of a wait that the far side asks for.",
                "properties": { "honour": truth("Whether it is heeded."), "min": span("At least."), "max": span("At most.") },
            },
            "rules": { "type": ["array", "null"], "items": refer("Rule") },
            "unknown": or_null(refer("Class")),
            "maxCrashes": count("How many crashes a job may survive."),
            "notify": truth("Whether its end is told to whoever listens."),
        },
    });
    Backoff with Span = json!({
        "description": "How long to wait before each retry.",
        "anyOf": [
            by_kind("immediate", &[], json!({})),
            by_kind("fixed", &["delay"], json!({ "delay": refer("Span") })),
            by_kind("linear", &[], json!({ "base": span("The first delay."), "step": span("What each adds.") })),
            {
                "type": "object",
                "properties": {
                    "kind": { "type": ["string", "null"], "enum": ["exponential", null] },
                    "base": span("The first delay."),
                    "factor": { "type": ["number", "null"], "minimum": 1, "maximum": 1000 },
                    "exponentStart": { "type": ["integer", "null"], "minimum": 0, "maximum": 1 },
                    "cap": span("No delay is longer."),
                },
            },
            by_kind("fibonacci", &[], json!({ "base": span("The first delay.") })),
            by_kind("schedule", &["delays"], json!({
                "delays": { "type": "array", "items": refer("Span"), "minItems": 1, "maxItems": 1000 },
                "then": { "type": ["string", "null"], "enum": ["repeat_last", "stop", null] },
            })),
        ],
    });
    Jitter with Span = json!({
        "description": "How much chance is in a delay. A kind alone will do.",
        "anyOf": [
            { "type": "string", "enum": JITTERS },
            {
                "type": "object",
                "properties": {
                    "kind": { "type": ["string", "null"], "enum": with_null(&JITTERS) },
                    "ratio": { "type": ["number", "null"], "description": "For `ratio`: 0.1 is ten percent more or less." },
                    "max": span("For `additive`: what is added at most."),
                    "skipFirst": truth("Whether the first delay is exact."),
                    "overCap": { "type": ["string", "null"], "enum": ["within", "beyond", null] },
                },
            },
        ],
    });
    Rule with Class = json!({
        "type": "object",
        "description": "Which failures are taken for what.",
        "required": ["on", "class"],
        "properties": {
            "on": { "type": ["string", "number"], "examples": ["5xx", "code:TIMEOUT", "text:no parseable content"] },
            "class": refer("Class"),
        },
        "additionalProperties": false,
    });
    RetryBlock = json!({
        "type": "object",
        "description": "A policy as workflows write it, in seconds. `maxAttempts` counts retries here.",
        "properties": {
            "enabled": truth("Whether it is tried again at all."),
            "strategy": { "type": ["string", "null"], "enum": with_null(&STRATEGIES) },
            "maxAttempts": count("How many retries there are."),
            "initialDelaySeconds": seconds("The first delay."),
            "multiplier": { "type": ["number", "null"] },
            "maxDelaySeconds": seconds("No delay is longer."),
            "delaySeconds": seconds("Every delay, for `fixed_delay`."),
            "customSchedule": {
                "type": ["object", "null"],
                "properties": { "attempts": { "type": ["array", "null"], "items": {
                    "type": "object",
                    "properties": {
                        "attempt": count("Which one."),
                        "delayDays": seconds("Days."),
                        "delayHours": seconds("Hours."),
                        "delayMinutes": seconds("Minutes."),
                        "delaySeconds": seconds("Seconds."),
                    },
                } } },
            },
            "retryOn": { "type": ["array", "null"], "items": { "type": ["string", "number"] } },
            "ignoreExceptions": { "type": ["array", "null"], "items": { "type": ["string", "number"] } },
        },
    });
}

const JITTERS: [&str; 6] = ["none", "ratio", "additive", "full", "equal", "decorrelated"];
const STRATEGIES: [&str; 6] =
    ["immediate", "exponential_backoff", "fixed_delay", "custom", "exponential", "fixed"];

fn words(description: &str, words: Vec<&str>) -> Value {
    json!({ "type": "string", "description": description, "enum": words })
}

fn with_null(words: &[&str]) -> Value {
    words.iter().map(|word| json!(word)).chain([Value::Null]).collect()
}

fn refer(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn or_null(schema: Value) -> Value {
    json!({ "anyOf": [{ "type": "null" }, schema] })
}

fn span(description: &str) -> Value {
    let mut schema = or_null(refer("Span"));
    schema["description"] = description.into();
    schema
}

fn count(description: &str) -> Value {
    json!({ "type": ["integer", "null"], "description": description, "minimum": 0, "maximum": u32::MAX })
}

fn seconds(description: &str) -> Value {
    json!({ "type": ["number", "null"], "description": description })
}

fn truth(description: &str) -> Value {
    json!({ "type": ["boolean", "null"], "description": description })
}

/// A back-off of this kind.
fn by_kind(kind: &str, needed: &[&str], mut properties: Value) -> Value {
    properties["kind"] = json!({ "type": "string", "enum": [kind] });
    properties["cap"] = span("No delay is longer.");
    let required: Vec<&str> = ["kind"].iter().chain(needed).copied().collect();
    json!({ "type": "object", "required": required, "properties": properties })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema<T: PartialSchema>() -> Value {
        serde_json::to_value(T::schema()).unwrap()
    }

    #[test]
    fn the_words_that_are_described_are_those_that_are_read() {
        for word in schema::<OnConflict>()["enum"].as_array().unwrap() {
            serde_json::from_value::<redrive::OnConflict>(word.clone()).unwrap();
        }
        for word in schema::<Origin>()["enum"].as_array().unwrap() {
            serde_json::from_value::<redrive::Origin>(word.clone()).unwrap();
        }
        let policy = |part: Value| redrive::Policy::from_json(part);
        for jitter in JITTERS {
            policy(json!({ "jitter": { "kind": jitter, "max": "1s" } })).unwrap();
        }
        for strategy in STRATEGIES {
            let attempts = json!([{ "delayDays": 1 }]);
            policy(json!({ "retry": { "strategy": strategy, "initialDelaySeconds": 1, "delaySeconds": 1,
                "customSchedule": { "attempts": attempts } } }))
            .unwrap();
        }
    }

    #[test]
    fn every_field_of_a_policy_that_is_described_is_known() {
        let known = |described: &Value, at: &dyn Fn(&str) -> Value| {
            for field in described["properties"].as_object().unwrap().keys() {
                let mistakes = redrive::Policy::from_json(at(field)).err().unwrap_or_default().join("; ");
                assert!(!mistakes.contains("not known here"), "{field}: {mistakes}");
            }
        };
        known(&schema::<Policy>(), &|field| json!({ field: [] }));
        known(&schema::<RetryBlock>(), &|field| json!({ "retry": { field: "x" } }));
        known(&schema::<Jitter>()["anyOf"][1], &|field| json!({ "jitter": { field: [] } }));
        for backoff in schema::<Backoff>()["anyOf"].as_array().unwrap() {
            let kind = backoff["properties"]["kind"]["enum"][0].clone();
            known(backoff, &|field| {
                let mut written = json!({ "kind": kind });
                if field != "kind" {
                    written[field] = json!([]);
                }
                json!({ "backoff": written })
            });
        }
    }
}
