//! The table docs/requirements.md: every number of a document has a row, every row names a test or says what holds
//! instead, and every test that is named is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The documents whose part of the table is complete, and how many numbers each has.
const DOCUMENTS: [(&str, u32); 5] = [("S0", 59), ("S1", 40), ("S2", 49), ("S3", 20), ("S4", 34)];

/// Tests that were written for a number, and therefore say so in the comment above them.
const WRITTEN_FOR_NUMBERS: [&str; 2] = ["tests/products/", "tests/s1_download/"];

/// What a row without a test begins with.
const DIFFERENTLY: &str = "Differently: ";

/// What is known of a test: the numbers that its comment names, if it is one that has to name them.
type Tests = BTreeMap<String, Option<BTreeSet<String>>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files_under(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "node_modules" {
            files_under(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

/// Every test of the workspace and of the dashboard.
fn tests() -> Tests {
    let (mut rust, mut script) = (Vec::new(), Vec::new());
    for folder in ["crates", "examples"] {
        files_under(&root().join(folder), &[".rs"], &mut rust);
    }
    for folder in ["dashboard/src", "dashboard/e2e"] {
        files_under(&root().join(folder), &[".test.ts", ".test.tsx", ".test.mjs"], &mut script);
    }
    let mut tests = Tests::new();
    for path in rust {
        let text = std::fs::read_to_string(&path).unwrap();
        let is_strict = WRITTEN_FOR_NUMBERS.iter().any(|folder| path.to_string_lossy().contains(folder));
        for (name, numbers) in rust_tests(&text) {
            tests.insert(name, is_strict.then_some(numbers));
        }
    }
    for path in script {
        let text = std::fs::read_to_string(&path).unwrap();
        let names = text.split("test(\"").skip(1).filter_map(|rest| rest.split_once("\","));
        tests.extend(names.map(|(name, _)| (name.to_owned(), None)));
    }
    tests
}

/// The tests of a file, with the numbers in the comments above them.
fn rust_tests(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let (mut found, mut numbers, mut is_test) = (Vec::new(), BTreeSet::new(), false);
    for line in text.lines().map(str::trim_start) {
        if let Some(comment) = line.strip_prefix("/// ") {
            let words = comment.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            numbers.extend(words.filter(|word| is_number(word)).map(str::to_owned));
        } else if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else {
            let numbers = std::mem::take(&mut numbers);
            // Cases that a macro makes tests of are known by what they are given.
            let is_case = line.contains("(world: &World)") || line.contains("(store: Arc<dyn Store>)");
            if let (Some((_, rest)), true) = (line.split_once("fn "), is_test || is_case) {
                found.push((rest.split('(').next().unwrap().to_owned(), numbers));
            }
            is_test = false;
        }
    }
    found
}

/// `S0-17`.
fn is_number(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    word.strip_prefix('S').and_then(|rest| rest.split_once('-')).is_some_and(|(a, b)| digits(a) && digits(b))
}

/// What is wrong with the row of a number.
fn complaint(number: &str, table: &str, tests: &Tests) -> Option<String> {
    let mut rows = table.lines().filter(|line| line.starts_with(&format!("| {number} |")));
    let Some(row) = rows.next() else { return Some(format!("{number} has no row")) };
    if rows.next().is_some() {
        return Some(format!("{number} has two rows"));
    }
    let shown_by = row.split('|').nth(3).unwrap_or_default().trim();
    let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
    if names.is_empty() && !shown_by.starts_with(DIFFERENTLY) {
        return Some(format!("{number} names no test, and does not say what holds {DIFFERENTLY:?}"));
    }
    for name in names {
        match tests.get(name) {
            None => return Some(format!("{number}: there is no test {name:?}")),
            Some(Some(numbers)) if !numbers.contains(number) => {
                return Some(format!("{name} does not say that it shows {number}"));
            }
            Some(_) => {}
        }
    }
    None
}

#[test]
fn every_number_of_the_document_has_a_test_that_shows_it() {
    let table = std::fs::read_to_string(root().join("docs/requirements.md")).unwrap();
    let tests = tests();
    let numbers = DOCUMENTS
        .iter()
        .flat_map(|(document, count)| (1..=*count).map(move |number| format!("{document}-{number:02}")));
    let complaints: Vec<String> = numbers.filter_map(|number| complaint(&number, &table, &tests)).collect();
    assert!(complaints.is_empty(), "docs/requirements.md:\n{}", complaints.join("\n"));
}

#[test]
fn a_row_without_a_test_and_one_with_a_test_that_is_not_there_are_noticed() {
    let tests = Tests::from([
        ("it_works".to_owned(), Some(BTreeSet::from(["S9-01".to_owned()]))),
        ("elsewhere".to_owned(), None),
    ]);
    let table = "| S9-01 | x | `it_works`, `elsewhere` |\n| S9-02 | x | |\n| S9-03 | x | `gone` |\n\
                 | S9-04 | x | `it_works` |\n| S9-05 | x | Differently: it is not needed. |\n";
    let wrong = |number: &str| complaint(number, table, &tests);
    assert_eq!((wrong("S9-01"), wrong("S9-05")), (None, None));
    for number in ["S9-02", "S9-03", "S9-04", "S9-06"] {
        assert!(wrong(number).is_some(), "{number}");
    }
}
