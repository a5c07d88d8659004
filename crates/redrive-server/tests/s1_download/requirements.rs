//! The table docs/requirements.md: every number of S1 has a row, and every test that a row names shows that number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The numbers of the document.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=40;

/// The tests here, each with the numbers that its comment names.
fn shown() -> BTreeMap<String, BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/s1_download");
    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let mut numbers = BTreeSet::new();
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("/// ") {
                let words = comment.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                numbers.extend(words.filter(|word| word.starts_with("S1-")).map(str::to_owned));
            } else if let Some((_, rest)) = line.split_once("fn ") {
                let name = rest.split('(').next().unwrap().to_owned();
                shown.insert(name, std::mem::take(&mut numbers));
            } else if !line.starts_with("#[") {
                numbers.clear();
            }
        }
    }
    shown
}

#[test]
fn every_number_of_the_document_has_a_test_that_shows_it() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/requirements.md");
    let table = std::fs::read_to_string(table).unwrap();
    let shown = shown();
    for number in NUMBERS.map(|number| format!("S1-{number:02}")) {
        let row = table.lines().find(|line| line.starts_with(&format!("| {number} |")));
        let row = row.unwrap_or_else(|| panic!("{number} has no row in docs/requirements.md"));
        let tests: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{number} names no test");
        for test in tests {
            let numbers = shown.get(test).unwrap_or_else(|| panic!("{number}: there is no test {test}"));
            assert!(numbers.contains(&number), "{test} does not say that it shows {number}");
        }
    }
}
