//! From what was written to what is meant: one reader for each kind of value, and the list of everything that cannot
//! be read.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use redrive::span;

use super::keys::{self, Key, Kind, NAME};
use super::mistake::{Mistake, Place, unknown_word};
use super::node::{Node, Value};
use super::{Raw, StoreUrl};

/// Reads values out of what was gathered, and keeps what is wrong with them.
pub(super) struct Checker<'r> {
    pub(super) raw: &'r Raw,
    pub(super) mistakes: Vec<Mistake>,
}

impl<'r> Checker<'r> {
    /// What stands at a key, or its default, as `read` understands it. A mistake is noted, and the default holds, so
    /// that the rest can be checked too.
    pub(super) fn take<T>(
        &mut self,
        pattern: &'static str,
        name: &str,
        read: impl Fn(&Node, &Key) -> Result<T, String>,
    ) -> Option<T> {
        let path = path_of(pattern, name);
        let key = keys::at(&path)?;
        if let Some(node) = self.raw.at(&path) {
            match read(node, key) {
                Ok(value) => return Some(value),
                Err(message) => self.mistake(node.place.clone(), &keys::dotted(&path), message),
            }
        }
        let default = Node::text(key.default, Place::Default);
        (!key.default.is_empty()).then(|| read(&default, key).ok()).flatten()
    }

    /// The same for a key that has a default.
    pub(super) fn must<T>(
        &mut self,
        pattern: &'static str,
        name: &str,
        read: impl Fn(&Node, &Key) -> Result<T, String>,
    ) -> T {
        self.take(pattern, name, read)
            .expect("the table gives it a default that can be read, as a test checks")
    }

    /// The node at a key.
    pub(super) fn node(&self, pattern: &'static str, name: &str) -> Option<&'r Node> {
        self.raw.at(&path_of(pattern, name))
    }

    /// Something is wrong.
    pub(super) fn mistake(&mut self, place: Place, key: &str, message: impl Into<String>) {
        self.mistakes.push(Mistake { place, key: key.to_owned(), message: message.into() });
    }
}

/// `queues.NAME.order` with the name in its place.
pub(super) fn path_of(pattern: &str, name: &str) -> Vec<String> {
    pattern.split('.').map(|part| if part == NAME { name } else { part }.to_owned()).collect()
}

pub(super) fn text(node: &Node, _: &Key) -> Result<String, String> {
    match &node.value {
        Value::Text(text) if text.trim().is_empty() => {
            Err("is empty; write something, or leave it out".into())
        }
        Value::Text(text) => Ok(text.clone()),
        _ => Err(format!("{} is not text; write it in quotation marks", node.shown())),
    }
}

pub(super) fn file(node: &Node, key: &Key) -> Result<PathBuf, String> {
    text(node, key).map(PathBuf::from)
}

pub(super) fn texts(node: &Node, key: &Key) -> Result<Vec<String>, String> {
    match &node.value {
        Value::List(nodes) => nodes.iter().map(|node| text(node, key)).collect(),
        _ => Err(format!("{0} is not a list; write [{0}]", node.shown())),
    }
}

pub(super) fn truth(node: &Node, _: &Key) -> Result<bool, String> {
    match &node.value {
        Value::Truth(truth) => Ok(*truth),
        Value::Text(text) if text == "true" => Ok(true),
        Value::Text(text) if text == "false" => Ok(false),
        _ => Err(format!("{} is neither; write true or false", node.shown())),
    }
}

pub(super) fn store(node: &Node, key: &Key) -> Result<StoreUrl, String> {
    text(node, key)?.parse()
}

pub(super) fn word(node: &Node, key: &Key) -> Result<String, String> {
    let Kind::Word(words) = key.kind else { return text(node, key) };
    let got = text(node, key)?;
    if words.contains(&got.as_str()) { Ok(got) } else { Err(unknown_word(&got, words.iter().copied())) }
}

pub(super) fn address(node: &Node, key: &Key) -> Result<SocketAddr, String> {
    let text = text(node, key)?;
    let read = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        None => text.parse().ok(),
    };
    read.ok_or_else(|| {
        format!("{text:?} is not an address with a port; write 127.0.0.1:7373, 0.0.0.0:7373 or [::1]:7373")
    })
}

pub(super) fn span(node: &Node, key: &Key) -> Result<Duration, String> {
    let duration = match &node.value {
        Value::Text(text) => span::parse(text)?,
        Value::Integer(number) => {
            return Err(format!(
                "{number} has no unit; write \"{number}s\" for seconds (units: ms, s, m, h, d, w)"
            ));
        }
        _ => {
            return Err(format!("{} is not a duration; write it with a unit, such as \"90s\"", node.shown()));
        }
    };
    let Kind::Span(min, max) = key.kind else { return Ok(duration) };
    let bound = |text| span::parse(text).unwrap_or_default();
    if duration < bound(min) || duration > bound(max) {
        return Err(format!("{} is out of bounds; write {min} to {max}", span::format(duration)));
    }
    Ok(duration)
}

pub(super) fn count(node: &Node, key: &Key) -> Result<u64, String> {
    let number = match &node.value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    let Kind::Count(min, max) = key.kind else { return number.ok_or_else(|| "is not a number".to_owned()) };
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("{} is not a number from {min} to {max}; write one", node.shown()))
}

pub(super) fn size(node: &Node, key: &Key) -> Result<u64, String> {
    let bytes = match &node.value {
        Value::Integer(bytes) => u64::try_from(*bytes)
            .map_err(|_| format!("{bytes} is negative; write a size such as \"1MiB\""))?,
        Value::Text(text) => bytes(text)?,
        _ => return Err(format!("{} is not a size; write one such as \"1MiB\"", node.shown())),
    };
    let Kind::Size(min, max) = key.kind else { return Ok(bytes) };
    if bytes < self::bytes(min)? || bytes > self::bytes(max)? {
        return Err(format!("{} is out of bounds; write {min} to {max}", node.shown()));
    }
    Ok(bytes)
}

/// `1MiB` and `64kB`, also `1024`.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 8] = [
        ("", 1),
        ("b", 1),
        ("kb", 1_000),
        ("kib", 1 << 10),
        ("mb", 1_000_000),
        ("mib", 1 << 20),
        ("gb", 1_000_000_000),
        ("gib", 1 << 30),
    ];
    let digits = text.trim().find(|c: char| !c.is_ascii_digit()).unwrap_or(text.trim().len());
    let (number, unit) = text.trim().split_at(digits);
    let scale = UNITS.iter().find(|(name, _)| *name == unit.trim().to_lowercase()).map(|(_, scale)| scale);
    let read = number.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(*scale));
    read.ok_or_else(|| {
        format!("{text:?} is not a size; write a number and one of B, kB, KiB, MB, MiB, GB, GiB")
    })
}

pub(super) fn exit_codes(node: &Node, _: &Key) -> Result<Vec<u8>, String> {
    let Value::List(nodes) = &node.value else {
        return Err(format!("{} is not a list; write [65, 78]", node.shown()));
    };
    let code = |node: &Node| match node.value {
        Value::Integer(number) => u8::try_from(number).ok(),
        _ => None,
    };
    let codes = nodes.iter().map(|node| {
        code(node).ok_or_else(|| format!("{} is not an exit code; write 0 to 255", node.shown()))
    });
    codes.collect()
}

pub(super) fn environment(node: &Node, _: &Key) -> Result<BTreeMap<String, String>, String> {
    let Value::Table(entries) = &node.value else {
        return Err(format!("{} is not a table; write {{ NAME = \"value\" }}", node.shown()));
    };
    let pair = |entry: &super::node::Entry| match &entry.node.value {
        Value::Text(text) => Ok((entry.key.clone(), text.clone())),
        _ => Err(format!("{} is {}; write it in quotation marks", entry.key, entry.node.shown())),
    };
    entries.iter().map(pair).collect()
}

/// `20%` is 0.2.
pub(super) fn share(node: &Node) -> Result<f64, String> {
    let percent = match &node.value {
        Value::Text(text) => {
            text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok())
        }
        _ => None,
    };
    percent.filter(|percent| *percent > 0.0 && *percent <= 100.0).map(|percent| percent / 100.0).ok_or_else(
        || format!("{} is not a share; write one such as \"20%\", over 0% and up to 100%", node.shown()),
    )
}

#[cfg(test)]
mod tests {
    use super::keys::KEYS;
    use super::*;

    #[test]
    fn every_default_can_be_read_by_its_own_rules() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            let node = Node::text(key.default, Place::Default);
            let read = match key.kind {
                Kind::Span(..) => span(&node, key).map(drop),
                Kind::Size(..) => size(&node, key).map(drop),
                Kind::Count(..) => count(&node, key).map(drop),
                Kind::Word(_) => word(&node, key).map(drop),
                Kind::Address => address(&node, key).map(drop),
                Kind::Store => store(&node, key).map(drop),
                Kind::Truth => truth(&node, key).map(drop),
                _ => text(&node, key).map(drop),
            };
            assert_eq!(read, Ok(()), "{}", key.path);
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in
            [("1MiB", 1 << 20), ("256 KiB", 256 << 10), ("64kB", 64_000), ("10", 10), ("1 gb", 1_000_000_000)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "big", "1.5MiB", "-1", "1TiB", "99999999999999999999"] {
            assert!(bytes(text).unwrap_err().contains("write a number and one of"), "{text}");
        }
    }
}
