//! Reads JSON that others wrote. What is wrong with it is said in their words: which field, what stands there, and what
//! to write instead.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// A longer text is not repeated to whoever wrote it.
const QUOTED_BYTES_MAX: usize = 100;

/// JSON that was not understood.
#[derive(Debug, PartialEq)]
pub(crate) enum Misread {
    /// It is none.
    NoJson(String),
    /// It says something else than is understood here.
    Wrong(String),
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Misread::NoJson(problem) | Misread::Wrong(problem)) = self;
        f.write_str(problem)
    }
}

/// Reads a whole text.
pub(crate) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Misread> {
    read_in("", text)
}

/// Reads what stands in a field of something larger, so that its own fields are named with it: `payload.headers`.
pub(crate) fn read_in<'de, T: Deserialize<'de>>(place: &str, text: &'de str) -> Result<T, Misread> {
    // To keep track of the place costs time. Only what was not understood is read in that way, a second time.
    serde_json::from_str(text).map_err(|error| match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => Misread::NoJson(error.to_string()),
        Ok(_) => Misread::Wrong(explain::<T>(place, text).unwrap_or_else(|| words_of(&error))),
    })
}

/// The same for a value that was read already.
pub(crate) fn take_in<'de, T: Deserialize<'de>>(place: &str, value: &'de Value) -> Result<T, Misread> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| Misread::Wrong(plain(&path_of(place, error.path()), &words_of(error.inner()))))
}

fn explain<'de, T: Deserialize<'de>>(place: &str, text: &'de str) -> Option<String> {
    let reader = &mut serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, T>(reader).err()?;
    let words = words_of(error.inner());
    let words = match words.as_str() {
        "expected value" => given_as_word::<T>(text, error.path()).unwrap_or(words),
        _ => words,
    };
    Some(plain(&path_of(place, error.path()), &words))
}

/// Who reads a word only says that another value was expected. Given the value as a word, it names those it knows.
fn given_as_word<'de, T: Deserialize<'de>>(text: &str, path: &Path) -> Option<String> {
    let mut whole: Value = serde_json::from_str(text).ok()?;
    let there = path.iter().try_fold(&mut whole, |value, segment| match segment {
        Segment::Map { key } => value.get_mut(key),
        Segment::Seq { index } => value.get_mut(index),
        Segment::Enum { .. } | Segment::Unknown => None,
    })?;
    *there = Value::String(there.to_string());
    let error = serde_path_to_error::deserialize::<_, T>(whole).err()?;
    let is_the_same = error.path().to_string() == path.to_string();
    is_the_same.then(|| words_of(error.inner()).replacen("unknown variant", "unknown value", 1))
}

/// What an error says, without the line and the column: a field is easier to find.
fn words_of(error: &serde_json::Error) -> String {
    let words = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    words.strip_suffix(&place).unwrap_or(&words).to_owned()
}

fn path_of(place: &str, path: &Path) -> String {
    match path.iter().next() {
        None => place.to_owned(),
        Some(_) => join(place, &path.to_string()),
    }
}

fn join(place: &str, field: &str) -> String {
    if place.is_empty() { field.to_owned() } else { format!("{place}.{field}") }
}

/// The words of a reader, which knows types and variants, in those of somebody who writes JSON.
fn plain(path: &str, words: &str) -> String {
    let it = if path.is_empty() { "it" } else { path };
    let field = |name: &str| join(path, name.trim_matches('`'));
    if let Some(name) = words.strip_prefix("missing field ") {
        return format!("{} is missing", field(name));
    }
    if let Some(name) = words.strip_prefix("duplicate field ") {
        return format!("{} is there twice; write it once", field(name));
    }
    if words.starts_with("data did not match any variant") {
        return format!("{it} is not understood");
    }
    let Some((found, expected)) = words.rsplit_once(", expected ") else {
        return if path.is_empty() { words.to_owned() } else { format!("{path}: {words}") };
    };
    if found.starts_with("unknown field ") {
        return format!("{it} is not known; write {}", choice(expected));
    }
    if let Some(value) = found.strip_prefix("unknown value ") {
        return format!("{it} is {}; write {}", short(value.trim_matches('`')), choice(expected));
    }
    if let Some(word) = found.strip_prefix("unknown variant ") {
        return format!(
            "{it} is {}; write {}",
            short(&format!("{:?}", word.trim_matches('`'))),
            choice(expected)
        );
    }
    if found.starts_with("invalid length ") {
        return format!("{it} is a list; write {}", kind_of(expected));
    }
    let found =
        found.strip_prefix("invalid type: ").or(found.strip_prefix("invalid value: ")).unwrap_or(found);
    format!("{it} is {}; write {}", what(found), kind_of(expected))
}

/// Of "one of `ignore`, `replace`": the words.
fn choice(words: &str) -> String {
    let words = words.strip_prefix("one of ").unwrap_or(words).replace('`', "");
    match words.rsplit_once(", ") {
        Some((first, last)) => format!("{first} or {last}"),
        None => words,
    }
}

fn short(text: &str) -> &str {
    if text.len() > QUOTED_BYTES_MAX { "a long text" } else { text }
}

/// What was found: a value as it was written, or its kind.
fn what(found: &str) -> &str {
    match found {
        "sequence" => "a list",
        "map" => "an object",
        text if text.starts_with("string ") => short(text.trim_start_matches("string ")),
        number => number.split('`').nth(1).unwrap_or(number),
    }
}

/// What a reader calls by the name of its type.
fn kind_of(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" | "a JSON number" => "a number",
        "a boolean" => "true or false",
        "a borrowed string" | "a character" => "a string",
        "a sequence" => "a list",
        "a map" | "string or map" => "an object",
        name if name.starts_with("struct ") => "an object",
        name if name.starts_with("tuple") => "a list",
        other => other,
    }
}

/// Reads an object whose names the caller chooses. PHP writes one without any as an empty list.
pub(crate) fn fields<'de, D, K, V>(reader: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    reader.deserialize_any(Fields(PhantomData))
}

/// The same where there may be none.
pub(crate) fn fields_if_any<'de, D, K, V>(reader: D) -> Result<Option<BTreeMap<K, V>>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    reader.deserialize_option(IfAny(Fields(PhantomData)))
}

struct Fields<K, V>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Fields<K, V> {
    type Value = BTreeMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object {"name": "value"}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<BTreeMap<K, V>, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry()? {
            fields.insert(name, value);
        }
        Ok(fields)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<BTreeMap<K, V>, A::Error> {
        match entries.next_element::<IgnoredAny>()? {
            None => Ok(BTreeMap::new()),
            Some(_) => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
        }
    }
}

struct IfAny<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for IfAny<V> {
    type Value = Option<V::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E>(self) -> Result<Option<V::Value>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<V::Value>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<Option<V::Value>, D::Error> {
        reader.deserialize_any(self.0).map(Some)
    }
}

/// Reads an object: a list of its fields in their order, which would do as well, is described nowhere.
pub(crate) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(reader: D) -> Result<T, D::Error> {
    reader.deserialize_map(Object(PhantomData))
}

/// The same where there may be none.
pub(crate) fn object_if_any<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    reader: D,
) -> Result<Option<T>, D::Error> {
    reader.deserialize_option(IfAny(Object(PhantomData)))
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
        T::deserialize(serde::de::value::MapAccessDeserializer::new(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase", default)]
    struct Form {
        name: String,
        on_conflict: Option<redrive::OnConflict>,
        count: u32,
        is_large: bool,
        #[serde(deserialize_with = "fields")]
        labels: BTreeMap<String, String>,
        #[serde(deserialize_with = "fields_if_any")]
        params: Option<BTreeMap<String, Value>>,
        #[serde(deserialize_with = "object")]
        inner: Inner,
        list: Vec<Inner>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        depth: i64,
    }

    fn problem(text: &str) -> String {
        read::<Form>(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_names_the_field_and_what_to_write() {
        for (text, said) in [
            (r#"{"name":17}"#, "name is 17; write a string"),
            (r#"{"name":null}"#, "name is null; write a string"),
            (r#"{"count":"many"}"#, r#"count is "many"; write a whole number from 0 to 4294967295"#),
            (r#"{"count":-1}"#, "count is -1; write a whole number from 0 to 4294967295"),
            (r#"{"count":1.5}"#, "count is 1.5; write a whole number from 0 to 4294967295"),
            (r#"{"isLarge":"yes"}"#, r#"isLarge is "yes"; write true or false"#),
            (r#"{"labels":{"a":1}}"#, "labels.a is 1; write a string"),
            (r#"{"labels":["a"]}"#, r#"labels is a list; write an object {"name": "value"}"#),
            (r#"{"params":["a"]}"#, r#"params is a list; write an object {"name": "value"}"#),
            (r#"{"params":"a"}"#, r#"params is "a"; write an object {"name": "value"}"#),
            (r#"{"inner":{"depth":"x"}}"#, r#"inner.depth is "x"; write a whole number"#),
            (r#"{"inner":{}}"#, "inner.depth is missing"),
            (r#"{"inner":[1]}"#, "inner is a list; write an object"),
            (r#"{"inner":{"deep":1}}"#, "inner.deep is not known; write depth"),
            (r#"{"list":[{"depth":1},{"depth":[]}]}"#, "list[1].depth is a list; write a whole number"),
            (r#"{"list":[[]]}"#, "list[0] is a list; write an object"),
            (r#"{"list":{}}"#, "list is an object; write a list"),
            (r#"{"name":"a","name":"b"}"#, "name is there twice; write it once"),
            (r#"{"onConflict":"keep"}"#, r#"onConflict is "keep"; write ignore, replace or reject"#),
            (r#"{"onConflict":1}"#, "onConflict is 1; write ignore, replace or reject"),
            (r#"{"onConflict":[]}"#, "onConflict is []; write ignore, replace or reject"),
            ("17", "it is 17; write an object"),
        ] {
            assert_eq!(read::<Form>(text), Err(Misread::Wrong(said.to_owned())), "{text}");
        }
    }

    #[test]
    fn what_stands_inside_of_something_is_named_with_it() {
        let said = |text: &str| read_in::<Form>("payload", text).unwrap_err().to_string();
        assert_eq!(said(r#"{"name":17}"#), "payload.name is 17; write a string");
        assert_eq!(said("17"), "payload is 17; write an object");
        let value = serde_json::json!({ "inner": 17 });
        let said = take_in::<Form>("payload", &value).unwrap_err().to_string();
        assert_eq!(said, "payload.inner is 17; write an object");
    }

    #[test]
    fn what_is_no_json_is_told_apart_and_says_where() {
        for (text, at) in [("{", "column 1"), (r#"{"name":}"#, "column 9"), ("{} {}", "column 4")] {
            let Err(Misread::NoJson(problem)) = read::<Form>(text) else { panic!("{text}") };
            assert!(problem.contains(at), "{problem}");
        }
    }

    #[test]
    fn an_empty_list_is_an_object_without_fields() {
        let form: Form = read(r#"{"labels":[],"params":[]}"#).unwrap();
        assert_eq!(form, Form { params: Some(BTreeMap::new()), ..Form::default() });
        assert_eq!(read::<Form>(r#"{"params":null}"#), Ok(Form::default()));
        let form: Form = read(r#"{"labels":{"a":"b"},"params":{"c":1}}"#).unwrap();
        assert_eq!((form.labels.len(), form.params.map(|params| params.len())), (1, Some(1)));
    }

    #[test]
    fn a_long_text_is_not_repeated() {
        let long = "x".repeat(10_000);
        let said = problem(&format!(r#"{{"count":"{long}"}}"#));
        assert_eq!(said, "count is a long text; write a whole number from 0 to 4294967295");
        let said = problem(&format!(r#"{{"onConflict":"{long}"}}"#));
        assert_eq!(said, "onConflict is a long text; write ignore, replace or reject");
    }
}
