//! A value as somebody wrote it, with the place where it stands: read from TOML, from an environment variable, or from
//! plain text.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Number};
use toml::de::{DeTable, DeValue};

use super::keys::Kind;
use super::mistake::{Mistake, Place};
use crate::printable_json;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// What was written.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Truth(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key in a table, and what it is given.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Node {
    /// A text from somewhere that knows only texts: a flag, a variable, a default.
    pub(super) fn text(text: impl Into<String>, place: Place) -> Node {
        Node { value: Value::Text(text.into()), place }
    }

    /// What stands under a key, if this is a table that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// As it would be written in a file, on one line.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            // What JSON escapes, it escapes as TOML does; Rust does not.
            Value::Text(text) => {
                printable_json(&serde_json::Value::from(text.as_str()).to_string()).into_owned()
            }
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Truth(truth) => truth.to_string(),
            Value::List(nodes) => {
                format!("[{}]", nodes.iter().map(Node::shown).collect::<Vec<_>>().join(", "))
            }
            Value::Table(entries) => {
                let shown =
                    |entry: &Entry| format!("{} = {}", super::keys::quoted(&entry.key), entry.node.shown());
                format!("{{ {} }}", entries.iter().map(shown).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Text(text) => Json::String(text.clone()),
            Value::Integer(number) => Json::Number((*number).into()),
            // Null would be as good as nothing written.
            Value::Float(number) => {
                Number::from_f64(*number).map_or_else(|| Json::String(number.to_string()), Json::Number)
            }
            Value::Truth(truth) => Json::Bool(*truth),
            Value::List(nodes) => Json::Array(nodes.iter().map(Node::json).collect()),
            Value::Table(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.node.json()));
                Json::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

/// What stands in a variable, which knows only texts, as a file would have it. What cannot be one of its kind stays a
/// text, for whoever reads that kind to refuse.
pub(super) fn from_variable(text: &str, kind: Kind, place: &Place) -> Result<Node, serde_json::Error> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    let read = match kind {
        Kind::Truth => text.parse().ok().map(Value::Truth),
        Kind::Count(..) => text.trim().parse().ok().map(Value::Integer),
        Kind::Texts | Kind::Secrets | Kind::ExitCodes | Kind::Environment | Kind::Policy | Kind::Notify
            if is_json =>
        {
            return Ok(from_json(serde_json::from_str(text)?, place));
        }
        Kind::Texts | Kind::Secrets => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Some(Value::List(parts.map(|part| Node::text(part, place.clone())).collect()))
        }
        _ => None,
    };
    Ok(Node { value: read.unwrap_or_else(|| Value::Text(text.to_owned())), place: place.clone() })
}

/// A JSON value out of a variable, all of it at that place.
fn from_json(json: serde_json::Value, place: &Place) -> Node {
    use serde_json::Value as Json;
    let value = match json {
        Json::Null => Value::Text(String::new()),
        Json::Bool(truth) => Value::Truth(truth),
        Json::Number(number) => {
            number.as_i64().map_or_else(|| Value::Float(number.as_f64().unwrap_or(f64::NAN)), Value::Integer)
        }
        Json::String(text) => Value::Text(text),
        Json::Array(list) => Value::List(list.into_iter().map(|json| from_json(json, place)).collect()),
        Json::Object(object) => {
            let entry = |(key, json)| Entry { key, place: place.clone(), node: from_json(json, place) };
            Value::Table(object.into_iter().map(entry).collect())
        }
    };
    Node { value, place: place.clone() }
}

/// The entries of a TOML file. Where a line cannot be read, the others still are, so that all mistakes show at once.
pub(super) fn from_toml(path: &Path, text: &str, mistakes: &mut Vec<Mistake>) -> Vec<Entry> {
    let source = Source { path: path.into(), text };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let place = source.place(error.span().map_or(0, |span| span.start));
        let message = format!("this is not TOML: {}", error.message().replace('\n', ", "));
        mistakes.push(Mistake { place, key: String::new(), message });
    }
    source.entries(table.get_ref())
}

struct Source<'t> {
    path: Arc<Path>,
    text: &'t str,
}

impl Source<'_> {
    fn place(&self, at: usize) -> Place {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place::File {
            path: self.path.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    fn entries(&self, table: &DeTable<'_>) -> Vec<Entry> {
        let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| Entry {
            key: AsRef::<str>::as_ref(key.get_ref()).to_owned(),
            place: self.place(key.span().start),
            node: self.node(value),
        };
        table.iter().map(entry).collect()
    }

    fn node(&self, spanned: &toml::Spanned<DeValue<'_>>) -> Node {
        let value = match spanned.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => {
                let read = i64::from_str_radix(number.as_str(), number.radix());
                // As a text, whoever wants a number refuses it.
                read.map_or_else(|_| Value::Text(number.to_string()), Value::Integer)
            }
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(truth) => Value::Truth(*truth),
            DeValue::Datetime(moment) => Value::Text(moment.to_string()),
            DeValue::Array(list) => Value::List(list.iter().map(|value| self.node(value)).collect()),
            DeValue::Table(table) => Value::Table(self.entries(table)),
        };
        Node { value, place: self.place(spanned.span().start) }
    }
}
