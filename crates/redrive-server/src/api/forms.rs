//! What callers send.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::{Filter, JobId, Json, NewJob, OnConflict, Policy, StateName, Timestamp, span};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, schema::SchemaType, schema::Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::Api;
use super::answer::invalid;
use super::schemas::{self, Labels, PolicyForm};
use crate::config::closest;
use crate::door::Refusal;
use crate::reading::fields;
pub(super) use crate::reading::object;

/// A duration as people write it: `"90s"`, `"1h30m"`, `"14d"`; or a number of seconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Span(#[serde(with = "span::text")] pub(super) Duration);

impl PartialSchema for Span {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Array(vec![Type::String, Type::Number]))
            .description(Some(
                "A duration as people write it, such as 90s, 1h30m or 14d; or a number of seconds.",
            ))
            .examples(["90s"])
            .minimum(Some(0))
            .into()
    }
}

impl ToSchema for Span {}

/// How much is said of a name that nobody knows.
const NAME_CHARS_SHOWN: usize = 100;

/// Reads a priority, and says what one is if it is none.
pub(super) fn priority<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<i16>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(reader)? else { return Ok(None) };
    let priority = number.as_i64().and_then(|number| i16::try_from(number).ok());
    let refuse =
        || D::Error::custom(format!("the priority is {number}; write a whole number from -32768 to 32767"));
    priority.map(Some).ok_or_else(refuse)
}

/// A job to be done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "kind": "http", "payload": { "method": "POST", "url": "https://api.example.com/orders", "body": { "order": 17 } }, "policy": "media" }))]
pub(super) struct JobForm {
    /// Which executor or worker runs it: `http`, `command`, or a name that your workers know.
    pub(super) kind: String,
    /// Its data: any JSON.
    #[serde(default)]
    #[schema(value_type = Value)]
    pub(super) payload: Option<Box<RawValue>>,
    /// Into this queue; `default` if not given.
    pub(super) queue: Option<String>,
    /// The name of a preset or of a configured policy, or a policy; its queue's if not given.
    #[schema(value_type = Option<PolicyForm>)]
    pub(super) policy: Option<Value>,
    /// At most one job with this key that is not final.
    pub(super) key: Option<String>,
    /// What to do when the key is taken: `ignore` (default), `replace` or `reject`.
    #[schema(value_type = Option<schemas::OnConflict>)]
    pub(super) on_conflict: Option<OnConflict>,
    /// Higher goes first.
    #[serde(default, deserialize_with = "priority")]
    #[schema(minimum = -32768, maximum = 32767)]
    pub(super) priority: Option<i16>,
    /// Not before this much time has passed.
    pub(super) delay: Option<Span>,
    /// Not before this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(super) run_at: Option<Timestamp>,
    /// Dead if not finished by then.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(super) deadline: Option<Timestamp>,
    /// Dead if not begun by then.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(super) start_by: Option<Timestamp>,
    /// How long one attempt may take.
    pub(super) timeout: Option<Span>,
    /// One at a time and in order with the others that have this key in the same queue.
    pub(super) ordering_key: Option<String>,
    /// Whose health decides whether it may start; the host of its URL if it is an `http` job.
    pub(super) destination: Option<String>,
    /// The job it belongs to.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub(super) parent: Option<JobId>,
    /// For people and filters.
    #[serde(default, deserialize_with = "fields")]
    #[schema(value_type = Labels)]
    pub(super) labels: BTreeMap<String, String>,
}

impl JobForm {
    /// The job, or what is wrong with it.
    pub(super) fn into_job(self, api: &Api) -> Result<NewJob, Refusal> {
        let payload = self.payload.as_deref().unwrap_or(RawValue::NULL);
        let (payload, goes_to) = payload_of(api, &self.kind, payload)?;
        let mut job = NewJob::of_kind(&self.kind, payload);
        let destination = self.destination.or(goes_to);
        if self.delay.is_some() && self.run_at.is_some() {
            return Err(invalid("delay and runAt are both given", "send one of them"));
        }
        if let Some(queue) = &self.queue {
            job = job.queue(queue);
        }
        if let Some(policy) = self.policy {
            job = job.policy(policy_of(api, policy)?);
        }
        if let Some(key) = self.key {
            job = job.key(key);
        }
        job =
            job.on_conflict(self.on_conflict.unwrap_or_default()).priority(self.priority.unwrap_or_default());
        if let Some(Span(delay)) = self.delay {
            job = job.after(delay);
        }
        if let Some(at) = self.run_at {
            job = job.run_at(at);
        }
        if let Some(at) = self.deadline {
            job = job.deadline(at);
        }
        if let Some(at) = self.start_by {
            job = job.start_by(at);
        }
        if let Some(Span(timeout)) = self.timeout {
            if timeout.is_zero() {
                return Err(invalid(
                    "no attempt can end within a timeout of nothing",
                    "leave timeout out, or give it some time",
                ));
            }
            job = job.timeout(timeout);
        }
        if let Some(key) = self.ordering_key {
            job = job.ordering_key(key);
        }
        if let Some(destination) = destination {
            job = job.destination(destination);
        }
        if let Some(parent) = self.parent {
            job = job.parent(parent);
        }
        Ok(self.labels.into_iter().fold(job, |job, (name, value)| job.label(name, value)))
    }
}

/// A payload that jobs of this kind can have, and whose health matters to them, where it says so.
pub(super) fn payload_of(
    api: &Api,
    kind: &str,
    payload: &RawValue,
) -> Result<(Json, Option<String>), Refusal> {
    let text = payload.get();
    if text.len() > api.inner.payload_bytes {
        let (is, may) = (text.len(), api.inner.payload_bytes);
        return Err(Refusal::new(
            413,
            "RETRY_TOO_LARGE",
            format!("the payload has {is} bytes; {may} are allowed"),
        )
        .hint("store the data elsewhere and put a reference into the payload"));
    }
    serde_json::from_str::<Sound>(text)
        .map_err(|error| invalid(format!("the payload is not JSON: {error}"), "send any JSON value"))?;
    let goes_to = api.check_payload(kind, text).map_err(|problem| {
        invalid(format!("the payload cannot be run: {problem}"), "correct it and send the job again")
    })?;
    Ok((payload.into(), goes_to))
}

/// JSON that is a value and not only written like one: 1e999 is none. It is looked at and not kept.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Sound, D::Error> {
        d.deserialize_any(Sound)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = Sound;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_str<E>(self, _: &str) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Sound, A::Error> {
        while entries.next_element::<Sound>()?.is_some() {}
        Ok(Sound)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Sound, A::Error> {
        while fields.next_entry::<Sound, Sound>()?.is_some() {}
        Ok(Sound)
    }
}

/// A policy by name or by value.
pub(super) fn policy_of(api: &Api, policy: Value) -> Result<Policy, Refusal> {
    match policy {
        Value::String(name) => match api.inner.policies.get(&name) {
            Some(policy) => Ok(policy.clone()),
            None => Policy::preset(&name).map_err(|_| {
                let own = api.inner.policies.keys().map(String::as_str);
                let known: Vec<&str> = Policy::PRESETS.iter().copied().chain(own).collect();
                let what = match closest(&name, known.iter().copied()) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => format!("write one of {}", known.join(", ")),
                };
                let name: String = name.chars().take(NAME_CHARS_SHOWN).collect();
                let message = format!("there is no preset {name:?}; {what}");
                invalid(message, "all presets are at GET /api/v1/policies/presets")
            }),
        },
        value => Policy::from_json(value).map_err(|problems| {
            invalid(
                format!("the policy is not understood: {}", problems.join("; ")),
                "try it at POST /api/v1/policies/preview",
            )
        }),
    }
}

/// Which jobs. Everything given must hold.
#[derive(Clone, Debug, Default, Deserialize, Serialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct FilterForm {
    /// In one of these states, separated by commas: waiting, running, succeeded, dead, cancelled.
    #[param(example = "waiting,running")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    /// Of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// In this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<String>,
    /// For this destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) destination: Option<String>,
    /// With this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// With these labels, as `name:value`, separated by commas.
    #[param(example = "customer:17")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
    /// Whose last failure is of this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<String>,
    /// Belonging to this job.
    #[param(value_type = Option<String>)]
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<JobId>,
    /// Enqueued at this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Timestamp>,
    /// Enqueued before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
}

impl FilterForm {
    /// The filter, or what is wrong with it.
    pub(super) fn into_filter(self) -> Result<Filter, Refusal> {
        let states = self.state.iter().flat_map(|states| states.split(',')).map(|word| {
            StateName::ALL.into_iter().find(|state| state.as_str() == word.trim()).ok_or_else(|| {
                invalid(
                    format!("there is no state {word:?}"),
                    "write waiting, running, succeeded, dead or cancelled",
                )
            })
        });
        let labels = self.label.iter().flat_map(|labels| labels.split(',')).map(|label| {
            label
                .split_once(':')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .ok_or_else(|| invalid(format!("{label:?} is no label"), "write it as name:value"))
        });
        Ok(Filter {
            ids: Vec::new(),
            states: states.collect::<Result<_, _>>()?,
            kind: self.kind,
            queue: self.queue,
            key: self.key,
            parent: self.parent,
            labels: labels.collect::<Result<_, _>>()?,
            fingerprint: self.group,
            destination: self.destination,
            created_from: self.from,
            created_until: self.until,
        })
    }

    /// Whether it names all jobs.
    pub(super) fn is_empty(&self) -> bool {
        let FilterForm { state, kind, queue, destination, key, label, group, parent, from, until } = self;
        let words = [state, kind, queue, destination, key, label, group];
        words.into_iter().all(Option::is_none) && parent.is_none() && from.is_none() && until.is_none()
    }
}

/// Reads a word that may be missing, as a query string has it.
pub(super) fn span_in_query<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    let text: Option<String> = Option::deserialize(d)?;
    text.map(|text| span::parse(&text).map_err(serde::de::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_like_a_value_and_is_none_is_refused() {
        for text in [
            "1e999",
            "[1, -1e400]",
            r#"{"a": {"b": 1e999}}"#,
            r#""\ud800""#,
            r#"{"\udc00": 1}"#,
            "[1,]",
            "nul",
        ] {
            assert!(serde_json::from_str::<Sound>(text).is_err(), "{text}");
            assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
        }
        let sound = [
            "null",
            "true",
            "-7",
            "18446744073709551616",
            "1.5e300",
            r#""\u00e9\n""#,
            r#"{"a":[{},"x",{"a":1,"a":2}]}"#,
        ];
        for text in sound {
            assert!(serde_json::from_str::<Sound>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn whoever_sends_no_priority_is_told_what_one_is() {
        for number in ["99999", "1.5", "-1e30"] {
            let sent = format!(r#"{{"kind":"mail","priority":{number}}}"#);
            let error = serde_json::from_str::<JobForm>(&sent).unwrap_err().to_string();
            assert!(error.contains("write a whole number from -32768 to 32767"), "{error}");
        }
        for (number, priority) in [("-32768", Some(i16::MIN)), ("7", Some(7)), ("null", None)] {
            let sent = format!(r#"{{"kind":"mail","priority":{number}}}"#);
            assert_eq!(serde_json::from_str::<JobForm>(&sent).unwrap().priority, priority);
        }
    }
}
