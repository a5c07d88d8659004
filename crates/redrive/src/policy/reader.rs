//! Reads a JSON object field by field and collects every mistake, so that a person mends a file in one go.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::meant::closest;
use crate::span;

/// What has more mistakes than this is no policy that somebody misspelt, and guessing at all of them takes long.
const GUESSES_MAX: usize = 32;

/// An object being read. Keys may be camelCase or snake_case; null is as good as absent.
pub(super) struct Reader<'m> {
    path: String,
    /// By their names in camelCase, each as it is written and what stands there.
    fields: BTreeMap<String, (String, Value)>,
    known: Vec<&'static str>,
    mistakes: &'m mut Vec<String>,
}

impl<'m> Reader<'m> {
    /// `path` is what stands before the names of its fields: empty, or such as `backoff.`.
    pub(super) fn new(path: &str, value: Value, mistakes: &'m mut Vec<String>) -> Option<Reader<'m>> {
        let Value::Object(object) = value else {
            mistakes.push(match path {
                "" => format!("a policy is {value}; write an object, {{…}}, or the name of a preset"),
                _ => format!("{} is {value}; write an object, {{…}}", path.trim_end_matches('.')),
            });
            return None;
        };
        let mut fields = BTreeMap::new();
        for (key, value) in object {
            let name = camel_case(&key);
            if let Some((other, _)) = fields.insert(name.clone(), (key.clone(), value)) {
                mistakes.push(format!(
                    "{path}{name} is written twice, as {other} and as {key}; keep one of them"
                ));
            }
        }
        Some(Reader { path: path.to_owned(), fields, known: Vec::new(), mistakes })
    }

    /// Whether something stands under `name` that has not been read yet, right or wrong.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|(_, value)| !value.is_null())
    }

    /// The value under `name`.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.fields.remove(name).map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// What is wrong with a field.
    pub(super) fn mistake(&mut self, name: &str, what: &str) {
        self.mistakes.push(format!("{}{name} {what}", self.path));
    }

    /// A duration: text such as `90s`, or a number of seconds.
    pub(super) fn span(&mut self, name: &'static str) -> Option<Duration> {
        let value = self.take(name)?;
        self.span_of(name, &value)
    }

    pub(super) fn span_of(&mut self, name: &str, value: &Value) -> Option<Duration> {
        let read = match value {
            Value::String(text) => span::parse(text),
            Value::Number(number) => span::from_seconds(number.as_f64().unwrap_or(f64::NAN)),
            other => Err(format!("{other} is not a duration; write it with a unit, such as \"90s\"")),
        };
        self.note(name, read)
    }

    /// A list of durations, if all of them can be read.
    pub(super) fn spans(&mut self, name: &'static str) -> Option<Vec<Duration>> {
        let list = self.list(name)?;
        let indexed = list.iter().enumerate();
        // All of them before the first that is wrong ends it: each mistake is to be named.
        let read: Vec<Option<Duration>> =
            indexed.map(|(at, value)| self.span_of(&format!("{name}[{at}]"), value)).collect();
        read.into_iter().collect()
    }

    /// A whole number.
    pub(super) fn count(&mut self, name: &'static str) -> Option<u32> {
        let value = self.take(name)?;
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        let range = u32::MAX;
        self.note(
            name,
            count.ok_or_else(|| format!("{value} is not a count; write a whole number from 0 to {range}")),
        )
    }

    /// A number.
    pub(super) fn number(&mut self, name: &'static str) -> Option<f64> {
        let value = self.take(name)?;
        self.note(
            name,
            value.as_f64().ok_or_else(|| format!("{value} is not a number; write one, such as 2")),
        )
    }

    /// True or false.
    pub(super) fn truth(&mut self, name: &'static str) -> Option<bool> {
        let value = self.take(name)?;
        self.note(name, value.as_bool().ok_or_else(|| format!("{value} is neither; write true or false")))
    }

    /// Text.
    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        let value = self.take(name)?;
        let text = value.as_str().map(str::to_owned);
        self.note(name, text.ok_or_else(|| format!("{value} is not text; write it in quotation marks")))
    }

    /// One of some words, each with what it means.
    pub(super) fn word<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        let value = self.take(name)?;
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word)).map(|(_, meaning)| *meaning);
        let known = || words.iter().map(|(word, _)| *word);
        let read = found.ok_or_else(|| match value.as_str().and_then(|got| self.guess(got, known())) {
            Some(meant) => format!("{value} is not known; did you mean {meant:?}?"),
            None => format!("{value} is not known; write one of {}", listed(words)),
        });
        self.note(name, read)
    }

    /// A list.
    pub(super) fn list(&mut self, name: &'static str) -> Option<Vec<Value>> {
        match self.take(name)? {
            Value::Array(list) => Some(list),
            other => self.note(name, Err(format!("{other} is not a list; write […]"))),
        }
    }

    /// An object inside, to be read and finished in turn.
    pub(super) fn object(&mut self, name: &'static str) -> Option<Reader<'_>> {
        let written = self.fields.get(name).map_or_else(|| name.to_owned(), |(written, _)| written.clone());
        let value = self.take(name)?;
        self.object_of(&written, value)
    }

    pub(super) fn object_of(&mut self, name: &str, value: Value) -> Option<Reader<'_>> {
        Reader::new(&format!("{}{name}.", self.path), value, self.mistakes)
    }

    /// Whatever has not been read is a mistake: a misspelt limit must not be no limit.
    pub(super) fn finish(mut self) {
        for (written, _) in std::mem::take(&mut self.fields).into_values() {
            // In the spelling of whoever wrote it.
            let is_snake = written.contains('_');
            let spelt = |name: &&str| if is_snake { snake_case(name) } else { (*name).to_owned() };
            let known: Vec<String> = self.known.iter().map(spelt).collect();
            let what = match self.guess(&written, known.iter().map(String::as_str)) {
                Some(meant) => format!("is not known here; did you mean {meant}?"),
                None => format!("is not known here; write one of {}", known.join(", ")),
            };
            self.mistake(&written, &what);
        }
    }

    /// What was probably meant.
    fn guess<'w>(&self, got: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
        if self.mistakes.len() < GUESSES_MAX { closest(got, known) } else { None }
    }

    /// The value, or its mistake for the list.
    pub(super) fn note<T>(&mut self, name: &str, read: Result<T, String>) -> Option<T> {
        read.map_err(|what| self.mistakes.push(format!("{}{name}: {what}", self.path))).ok()
    }
}

/// `"a", "b", "c"`.
pub(super) fn listed<T>(words: &[(&str, T)]) -> String {
    words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ")
}

/// `max_attempts` is `maxAttempts`.
pub(super) fn camel_case(key: &str) -> String {
    let mut parts = key.split('_');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut chars = part.chars();
        out.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        out += chars.as_str();
    }
    out
}

/// `maxAttempts` is `max_attempts`.
fn snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
