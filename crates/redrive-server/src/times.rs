//! Times as people read and write them: here, and from now.

use std::time::Duration;

use redrive::{Timestamp, span};

/// `in 3s`, `2m ago`, `now`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", rough(at.since(now)))
    } else {
        let gone = now.since(at);
        if gone < Duration::from_secs(1) { "now".to_owned() } else { format!("{} ago", rough(gone)) }
    }
}

/// To the two largest units, which is what people take in.
pub(crate) fn rough(wait: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = wait.as_secs();
    if seconds == 0 {
        return format!("{}ms", wait.as_millis());
    }
    let first = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let (unit, name) = UNITS[first];
    let rest = seconds % unit;
    match UNITS.get(first + 1) {
        Some((next, next_name)) if rest >= *next => {
            format!("{}{name}{}{next_name}", seconds / unit, rest / next)
        }
        _ => format!("{}{name}", seconds / unit),
    }
}

/// `2026-03-01 14:02:11`, where this terminal stands.
pub(crate) fn local(at: Timestamp) -> String {
    let utc = at.to_string();
    match utc.parse::<jiff::Timestamp>() {
        Ok(time) => time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => utc,
    }
}

/// Both.
pub(crate) fn both(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", local(at), relative(at, now))
}

/// A time that may be written as a time or as how long from now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    At(Timestamp),
    Within(Duration),
}

impl std::str::FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<When, String> {
        if let Ok(at) = text.parse() {
            return Ok(When::At(at));
        }
        span::parse(text).map(When::Within).map_err(|_| {
            format!(
                "{text:?} is neither a time such as 2026-03-01T14:00:00Z nor a duration such as 90s or 2h"
            )
        })
    }
}

impl When {
    /// A duration counts from now on.
    pub(crate) fn ahead(self, now: Timestamp) -> Timestamp {
        match self {
            When::At(at) => at,
            When::Within(wait) => now + wait,
        }
    }

    /// A duration counts back from now.
    pub(crate) fn back(self, now: Timestamp) -> Timestamp {
        match self {
            When::At(at) => at,
            When::Within(wait) => now - wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive::{days, hours, mins, secs};

    #[test]
    fn what_is_far_is_told_roughly_and_what_is_near_exactly() {
        let now = Timestamp::from_millis(1_000_000_000);
        for (at, expected) in [
            (now + secs(3), "in 3s"),
            (now + secs(125), "in 2m5s"),
            (now + hours(26) + mins(5), "in 1d2h"),
            (now + Duration::from_millis(250), "in 250ms"),
            (now, "now"),
            (now - mins(2), "2m ago"),
            (now - days(9), "9d ago"),
        ] {
            assert_eq!(relative(at, now), expected);
        }
    }

    #[test]
    fn a_duration_counts_in_the_direction_that_is_meant() {
        let now = Timestamp::from_millis(1_000_000);
        let when: When = "10s".parse().unwrap();
        assert_eq!((when.ahead(now), when.back(now)), (now + secs(10), now - secs(10)));
        let when: When = "1970-01-01T00:00:07Z".parse().unwrap();
        assert_eq!(when.ahead(now), Timestamp::from_millis(7_000));
        assert!("tomorrow".parse::<When>().unwrap_err().contains("neither a time"));
    }
}
