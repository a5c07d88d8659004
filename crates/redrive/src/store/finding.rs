//! What an examination of a store found, in words for a stranger, and what to do about it.

use std::time::Duration;

use serde::Serialize;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in one or two words that stay the same between versions.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in a sentence.
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// How bad a [`Finding`] is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Good,
    /// Worth knowing; nothing needs to be done now.
    Notice,
    /// Something is slow or stands still, or soon will.
    Warning,
    /// A promise is broken, or soon will be.
    Danger,
}

impl Finding {
    pub(super) fn good(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, severity: Severity::Good, found: found.into(), advice: None }
    }

    pub(super) fn new(
        check: &'static str,
        severity: Severity,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { check, severity, found: found.into(), advice: Some(advice.into()) }
    }

    /// What could not be looked at.
    pub(super) fn unseen(check: &'static str, why: impl std::fmt::Display) -> Finding {
        Finding::new(
            check,
            Severity::Notice,
            format!("This could not be looked at: {why}."),
            "examine the store as the user that the engine runs as",
        )
    }
}

/// Whether somebody has stopped everything, which a restored store begins with.
pub(super) fn hold(is_held: bool) -> Finding {
    match is_held {
        true => Finding::new(
            "hold",
            Severity::Warning,
            "The store is held: nothing runs.",
            "`redrive resume`, or Engine::unhold(), when it may go on; jobs of a restored store may have been done since \
             its copy was made",
        ),
        false => Finding::good("hold", "The store is not held."),
    }
}

/// How a paused queue goes on.
pub(super) fn resume(queue: &str) -> String {
    format!("`redrive queues resume {queue}`, or Engine::resume({queue:?}), when it may go on")
}

/// The first of these severities whose limit is reached; good if none is.
pub(super) fn by_limit<T: PartialOrd>(value: &T, limits: &[(T, Severity)]) -> Severity {
    limits.iter().find(|(limit, _)| value >= limit).map_or(Severity::Good, |(_, severity)| *severity)
}

/// `3 ms`, `12 s`, `5 min`, `7 h`, `9 days`: as exact as a person wants it.
pub(super) fn how_long(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// `800 bytes`, `64 KiB`, `12 MiB`, `3 GiB`.
pub(super) fn how_big(bytes: i64) -> String {
    match bytes {
        ..10_000 => format!("{bytes} bytes"),
        10_000..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_limit_that_is_reached_decides() {
        let limits = [(100, Severity::Danger), (10, Severity::Warning)];
        let judged = [9, 10, 99, 100].map(|value| by_limit(&value, &limits));
        assert_eq!(judged, [Severity::Good, Severity::Warning, Severity::Warning, Severity::Danger]);
    }

    #[test]
    fn amounts_are_said_as_a_person_says_them() {
        let times =
            [3, 12_000, 300_000, 25_200_000, 777_600_000].map(|ms| how_long(Duration::from_millis(ms)));
        assert_eq!(times, ["3 ms", "12 s", "5 min", "7 h", "9 days"]);
        let sizes = [800, 65_536, 12 << 20, 30 << 30].map(how_big);
        assert_eq!(sizes, ["800 bytes", "64 KiB", "12 MiB", "30 GiB"]);
    }
}
