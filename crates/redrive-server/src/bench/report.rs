//! What was found, as one JSON object or as a table for people.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// All that was found.
#[derive(Serialize, Default)]
pub(crate) struct Report {
    pub(crate) results: Vec<Finding>,
}

/// One measure: its name, and what was found under which name.
pub(crate) struct Finding {
    pub(crate) name: String,
    pub(crate) values: Vec<(&'static str, Value)>,
}

/// In the order in which they were found, which a map would not keep.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.values.len() + 1))?;
        map.serialize_entry("name", &self.name)?;
        for (name, value) in &self.values {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Finding {
    fn number(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value.as_f64())
    }
}

/// To the next whole number.
pub(crate) fn whole(number: f64) -> Value {
    json!(number.round() as i64)
}

/// A number with as many decimals as it deserves.
pub(crate) fn rounded(number: f64, decimals: i32) -> Value {
    let scale = 10_f64.powi(decimals);
    json!((number * scale).round() / scale)
}

/// The middle one; between two, their mean.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => numbers[middle],
        _ => f64::midpoint(numbers[middle - 1], numbers[middle]),
    }
}

/// The number that this share of the sorted numbers does not exceed.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

impl Report {
    /// One line.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// One line for each measure.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("{:<13}{:>12}{:>15}{:>8}\n", "measure", "per second", "beside", "ratio");
        for finding in &self.results {
            let column = |name| finding.number(name).map_or_else(String::new, thousands);
            let ratio = finding.number("ratio").map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let rest: Vec<String> = finding
                .values
                .iter()
                .filter(|(name, _)| !["rate", "limit_rate", "ratio"].contains(name))
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            let line = format!(
                "{:<13}{:>12}{:>15}{:>8}   {}",
                finding.name,
                column("rate"),
                column("limit_rate"),
                ratio,
                rest.join(", ")
            );
            table.push_str(line.trim_end());
            table.push('\n');
        }
        table.push_str(
            "Ratios are medians of interleaved pairs. Beside stands the same durable work as a hand-written SQL loop, or\n\
             what `redrive bench --help` says of the measure.",
        );
        table
    }
}

/// Whole, with commas.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(vec![9.0, 1.0, 3.0]), 3.0);
    }

    #[test]
    fn no_percentile_is_outside_of_what_was_measured() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(percentile(&sorted, 0.0), 1.0);
        assert_eq!(percentile(&sorted, 0.5), 2.0);
        assert_eq!(percentile(&sorted, 0.99), 4.0);
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(thousands(999.4), "999");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
    }

    #[test]
    fn a_finding_keeps_the_order_of_its_values() {
        let finding = Finding { name: "drain".into(), values: vec![("rate", json!(2)), ("early", json!(0))] };
        let report = Report { results: vec![finding] };
        assert_eq!(report.json().unwrap(), r#"{"results":[{"name":"drain","rate":2,"early":0}]}"#);
    }
}
