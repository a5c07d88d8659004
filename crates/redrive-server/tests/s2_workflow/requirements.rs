//! The table docs/requirements.md: every number of S2 has a row, and every test that a row names is there.

use std::collections::BTreeSet;
use std::path::Path;

/// The numbers of the document.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=49;
/// Where they are shown.
const FOLDERS: [&str; 9] = [
    "crates/redrive-server/tests/s2_workflow",
    "crates/redrive-server/tests/api",
    "crates/redrive-server/src/commands/import",
    "crates/redrive/tests",
    "crates/redrive/tests/engine",
    "crates/redrive/tests/postgres_faults",
    "crates/redrive/src/policy",
    "crates/redrive/src/testing/conformance",
    "crates/redrive-server/tests",
];

/// The names of all functions in these folders.
fn names() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for folder in FOLDERS {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let Ok(text) = std::fs::read_to_string(entry.unwrap().path()) else { continue };
            let functions = text.lines().filter_map(|line| line.split_once("fn ")).map(|(_, rest)| rest);
            names.extend(functions.map(|rest| rest.split(['(', '<']).next().unwrap().to_owned()));
        }
    }
    names
}

#[test]
fn every_number_of_the_document_has_a_test_that_is_there() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/requirements.md");
    let table = std::fs::read_to_string(table).unwrap();
    let names = names();
    for number in NUMBERS.map(|number| format!("S2-{number:02}")) {
        let row = table.lines().find(|line| line.starts_with(&format!("| {number} |")));
        let row = row.unwrap_or_else(|| panic!("{number} has no row in docs/requirements.md"));
        let tests: Vec<&str> = row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{number} names no test");
        for test in tests {
            assert!(names.contains(test), "{number}: there is no test {test}");
        }
    }
}
