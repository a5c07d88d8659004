//! Durations as people write them: `90s`, `500ms`, `14d`, `1h30m`, `1.5s`.
//!
//! Reading, writing, and the serde helpers for both. Not here: instants, which are `clock.rs`'s.

use std::time::Duration;

/// The longest wait there is. A delay beyond it is a mistake in somebody's arithmetic, not a plan.
pub const MAX: Duration = Duration::from_secs(400 * 24 * 3600);

/// So many milliseconds.
pub const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// So many seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// So many minutes.
pub const fn mins(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(60))
}

/// So many hours.
pub const fn hours(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(3600))
}

/// So many days of 24 hours.
pub const fn days(n: u64) -> Duration {
    Duration::from_secs(n.saturating_mul(24 * 3600))
}

/// What a unit is called, and its milliseconds. The largest first, as [`format`] needs it.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads `"90s"`, `"500ms"`, `"14d"`, `"1h30m"`, `"2w"` or `"1.5s"`, in whole milliseconds.
///
/// # Errors
///
/// What is wrong with the text, and what to write instead.
pub fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("a duration is missing; write it with a unit, such as \"90s\" or \"14d\"".to_owned());
    }
    if rest.starts_with('-') {
        return Err(format!("{text:?} is negative; write a duration of 0s or more, such as \"90s\""));
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (part, after) = leading_part(rest, text)?;
        total = total
            .checked_add(part)
            .ok_or_else(|| format!("{text:?} is too long to count; the longest wait is {}", format(MAX)))?;
        rest = after.trim_start();
    }
    Ok(Duration::from_millis(total))
}

/// One number with its unit from the front of `rest`: its milliseconds, and what follows.
fn leading_part<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), String> {
    let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, after) = rest.split_at(number_len);
    let after = after.trim_start();
    let unit_len = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
    let (unit, after) = after.split_at(unit_len);
    if number.is_empty() {
        return Err(format!(
            "{text:?} is not a duration; write a number and a unit, such as \"90s\" or \"1h30m\""
        ));
    }
    if unit.is_empty() {
        return Err(format!(
            "{text:?} has no unit; write \"{number}s\" for seconds (units: ms, s, m, h, d, w)"
        ));
    }
    let scale =
        UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(|| {
            format!("{text:?} has the unknown unit {unit:?}; write one of ms, s, m, h, d, w")
        })?;
    Ok((scaled(number, scale, text)?, after))
}

/// `number × scale`, exactly: no float comes near a delay that people will compare with what they wrote.
fn scaled(number: &str, scale: u64, text: &str) -> Result<u64, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| part.parse::<u64>().ok();
    let unreadable = || format!("{text:?} is not a duration; write a number and a unit, such as \"1.5s\"");
    let too_long = || format!("{text:?} is too long to count; the longest wait is {}", format(MAX));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') || fraction.len() > 9 {
        return Err(unreadable());
    }
    let part = digits(fraction).ok_or_else(unreadable)? * scale;
    let divisor = 10_u64.pow(u32::try_from(fraction.len()).unwrap_or(9));
    if !part.is_multiple_of(divisor) {
        return Err(format!(
            "{text:?} is finer than a millisecond; write whole milliseconds, such as \"15ms\""
        ));
    }
    let whole = digits(whole).and_then(|n| n.checked_mul(scale)).ok_or_else(too_long)?;
    whole.checked_add(part / divisor).ok_or_else(too_long)
}

/// Writes a duration so that [`parse`] reads the same one: `1s`, `1h30m`, `500ms`, `8.8s`, `14d`, `0s`.
///
/// A fraction of a millisecond is rounded up, as due times are.
pub fn format(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    // Weeks are read but not written: people compare schedules in days.
    for (unit, scale) in &UNITS[1..] {
        let count = rest / scale;
        if *unit == "s" && count > 0 && !rest.is_multiple_of(1000) {
            let fraction = format!("{:03}", rest % 1000);
            out += &format!("{count}.{}s", fraction.trim_end_matches('0'));
            return out;
        }
        if count > 0 {
            out += &format!("{count}{unit}");
            rest %= scale;
        }
    }
    out
}

/// Seconds as JSON numbers say them, to the nearest millisecond.
pub(crate) fn from_seconds(seconds: f64) -> Result<Duration, String> {
    let ms = (seconds * 1000.0).round();
    // Asked of what was written: what is hardly below nothing would be rounded to it.
    if seconds < 0.0 || !(0.0..=9e15).contains(&ms) {
        return Err(format!(
            "{seconds} is not a number of seconds; write 0 or more, or text such as \"90s\""
        ));
    }
    // In range and whole: checked above.
    Ok(Duration::from_millis(ms as u64))
}

/// `#[serde(with = "span::text")]`: written as text; read from text, or from a number, which means seconds.
pub mod text {
    use super::{Duration, Spoken};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes `"1h30m"`.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&super::format(*duration))
    }

    /// Reads `"1h30m"`, or 5400.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        Spoken::deserialize(d).map(|spoken| spoken.0)
    }
}

/// `#[serde(with = "span::option", default)]`: as [`text`], where there may be none.
pub mod option {
    use super::{Duration, Spoken};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes `"1h30m"`, or null.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => s.serialize_some(&super::format(*duration)),
            None => s.serialize_none(),
        }
    }

    /// Reads `"1h30m"`, 5400, or null.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Spoken>::deserialize(d)?.map(|spoken| spoken.0))
    }
}

/// A duration on its way in.
struct Spoken(Duration);

impl<'de> serde::Deserialize<'de> for Spoken {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Spoken, D::Error> {
        d.deserialize_any(SpokenVisitor)
    }
}

struct SpokenVisitor;

impl serde::de::Visitor<'_> for SpokenVisitor {
    type Value = Spoken;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a duration such as \"90s\", or a number of seconds")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Spoken, E> {
        parse(text).map(Spoken).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<Spoken, E> {
        self.visit_f64(seconds as f64)
    }

    fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Spoken, E> {
        self.visit_f64(seconds as f64)
    }

    fn visit_f64<E: serde::de::Error>(self, seconds: f64) -> Result<Spoken, E> {
        from_seconds(seconds).map(Spoken).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [
            ("90s", secs(90)),
            ("500ms", millis(500)),
            ("14d", days(14)),
            ("1h30m", mins(90)),
            ("1h 30 m", mins(90)),
            ("2w", days(14)),
            ("1.5s", millis(1500)),
            ("0.25h", mins(15)),
            (" 0s ", secs(0)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_mistake_says_what_to_write() {
        assert_eq!(
            parse("90").unwrap_err(),
            "\"90\" has no unit; write \"90s\" for seconds (units: ms, s, m, h, d, w)"
        );
        let mistakes = [
            ("", "write it with a unit"),
            ("-5s", "write a duration of 0s or more"),
            ("5 parsecs", "write one of ms, s, m, h, d, w"),
            ("5 30m", "has no unit"),
            ("soon", "write a number and a unit"),
            ("1.s", "such as \"1.5s\""),
            ("1.2.3s", "such as \"1.5s\""),
            ("0.3333s", "finer than a millisecond"),
            ("99999999999999999999d", "the longest wait is 400d"),
            ("18446744073709551615ms1ms", "the longest wait is 400d"),
        ];
        for (text, hint) in mistakes {
            let message = parse(text).unwrap_err();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }

    #[test]
    fn durations_are_written_as_short_as_they_are_exact() {
        let cases = [
            (secs(1), "1s"),
            (mins(90), "1h30m"),
            (millis(500), "500ms"),
            (Duration::ZERO, "0s"),
            (millis(8800), "8.8s"),
            (days(14), "14d"),
            (millis(61_005), "1m1.005s"),
            (Duration::from_nanos(1), "1ms"),
            (MAX, "400d"),
        ];
        for (duration, expected) in cases {
            assert_eq!(format(duration), expected);
        }
    }

    #[test]
    fn serde_writes_text_and_reads_text_or_seconds() {
        #[derive(Serialize, Deserialize, Debug, PartialEq)]
        struct Both {
            #[serde(with = "text")]
            must: Duration,
            #[serde(with = "option", default)]
            may: Option<Duration>,
        }
        let both: Both = serde_json::from_str(r#"{"must":1.5,"may":"1h30m"}"#).unwrap();
        assert_eq!(both, Both { must: millis(1500), may: Some(mins(90)) });
        assert_eq!(serde_json::to_string(&both).unwrap(), r#"{"must":"1.5s","may":"1h30m"}"#);
        let none: Both = serde_json::from_str(r#"{"must":60}"#).unwrap();
        assert_eq!(none, Both { must: mins(1), may: None });
        for negative in ["-1", "-0.0001", "-1e-195"] {
            let read = serde_json::from_str::<Both>(&format!(r#"{{"must":{negative}}}"#));
            assert!(read.is_err(), "{negative}");
        }
        assert_eq!(serde_json::from_str::<Both>(r#"{"must":0.0001}"#).unwrap().must, Duration::ZERO);
        assert!(
            serde_json::from_str::<Both>(r#"{"must":"90"}"#).unwrap_err().to_string().contains("no unit")
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in 0..=u64::MAX) {
            let duration = millis(ms);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,24}") {
            let _ = parse(&text);
        }
    }
}
