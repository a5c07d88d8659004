//! The shape of the code, as a test: layers, file length, SQL files, changelog, guarantees.
//!
//! It reads files and nothing else. Every failure says what to do; where the rule itself is wrong for what you are
//! building, change it here, in the commit that needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Past this many lines, tests not counted, a file holds more than one concept.
const LINES_MAX: usize = 500;

/// The rooms of the library, in order: a room uses itself and the rooms before it.
///
/// A module is the first name under `src/`: `store` is `store.rs` and everything in `store/`.
const ROOMS: &[(&str, &[&str])] = &[
    (
        "model",
        &[
            "classify",
            "clock",
            "error",
            "fallback",
            "fingerprint",
            "forecast",
            "gate",
            "job",
            "machine",
            "operate",
            "outcome",
            "policy",
            "queue",
            "span",
            "stats",
            "workflow",
        ],
    ),
    ("store", &["store", "tx"]),
    ("engine", &["engine", "inline"]),
    ("testing", &["sim", "testing"]),
];

/// Who may say what: the words, the paths under `src/` that may say them, and the reason.
const ONLY_IN: &[(&[&str], &[&str], &str)] = &[
    (
        &["rusqlite"],
        &["store/sqlite", "tx.rs", "tx/rusqlite"],
        "only store/sqlite* knows the SQLite driver: give the store a method and call that",
    ),
    (
        &["tokio_postgres", "deadpool_postgres"],
        &["store/postgres", "tx.rs", "tx/tokio_postgres"],
        "only store/postgres* knows the PostgreSQL driver: give the store a method and call that",
    ),
    (
        &["sqlx", "diesel"],
        &["tx.rs", "tx/sqlx", "tx/diesel"],
        "other people's libraries are met in their own adapter alone: see tx.rs",
    ),
    (
        &["tokio::spawn", "task::spawn(", "spawn_local", "JoinSet"],
        &["engine", "sim", "testing", "store/postgres"],
        "only engine* spawns tasks, so that one loop knows everything that runs, and store/postgres* for its \
         connections: return a future instead",
    ),
    (
        &["spawn_blocking"],
        &["store/sqlite", "testing"],
        "only store/sqlite* reads files while others wait: give the store a method and call that",
    ),
    (
        &["thread::spawn", "thread::Builder"],
        &["store/sqlite", "testing"],
        "only store/sqlite* has a thread of its own (the writer): send it the work",
    ),
    (
        &["std::fs", "std::process", "TcpStream", "TcpListener", "UdpSocket", "tokio::fs", "tokio::net"],
        &["store", "engine", "sim", "testing"],
        "the model touches no file and no network: take the value as an argument",
    ),
];

#[test]
fn every_module_has_a_room() {
    let mut complaints = Vec::new();
    for file in library() {
        let module = file.module();
        if module != "lib" && room_of(module).is_none() {
            complaints.push(format!("{}: add `{module}` to its room in ROOMS", file.name));
        }
    }
    assert_none("modules without a room", &complaints);
}

#[test]
fn a_room_uses_only_the_rooms_before_it() {
    let files = library();
    let exports = exports_of(&files);
    let mut complaints = Vec::new();
    for file in &files {
        let Some(here) = room_of(file.module()) else { continue };
        for name in file.names_from_the_root() {
            let module = exports.get(&name).unwrap_or(&name);
            if let Some(there) = room_of(module).filter(|there| *there > here) {
                complaints.push(format!(
                    "{}: uses crate::{name}, but {} may not know {}: pass the value in, or move the code up",
                    file.name, ROOMS[here].0, ROOMS[there].0
                ));
            }
        }
    }
    assert_none("uses against the layers (model, store, engine: nothing points back)", &complaints);
}

#[test]
fn what_belongs_to_one_place_is_said_only_there() {
    let mut complaints = Vec::new();
    for file in library() {
        let code = file.code_without_tests();
        for (words, places, reason) in ONLY_IN {
            if places.iter().any(|place| file.name.starts_with(place)) {
                continue;
            }
            for word in words.iter().filter(|word| says(&code, word)) {
                complaints.push(format!("{}: says {word}. {reason}", file.name));
            }
        }
    }
    assert_none("words outside their place", &complaints);
}

#[test]
fn every_sql_file_is_used() {
    let mut included: BTreeSet<PathBuf> = BTreeSet::new();
    for file in library() {
        let folder = file.path.parent().expect("a source file lies in a folder");
        for path in included_paths(&blank(&file.text, Blank::Comments)) {
            included.insert(plain(&folder.join(path)));
        }
    }
    let mut complaints = Vec::new();
    for sql in files_under(&crate_root().join("src/store"), "sql") {
        let name = sql.strip_prefix(crate_root()).expect("found under the crate").display();
        if !included.contains(&sql) {
            complaints.push(format!("{name}: nobody includes it: delete it, or include_str! it"));
        }
    }
    assert_none("SQL files", &complaints);
}

#[test]
fn no_file_holds_more_than_one_concept() {
    let mut complaints = Vec::new();
    for file in sources() {
        let lines = without_tests(&file.text).lines().count();
        if lines > LINES_MAX {
            complaints.push(format!("{}: {lines} lines without its tests", file.name));
        }
    }
    assert_none(&format!("files over {LINES_MAX} lines (split each by concept, not by size)"), &complaints);
}

#[test]
fn every_file_says_what_lives_in_it() {
    let mut complaints = Vec::new();
    for file in sources() {
        let is_root = file.path.file_name().is_some_and(|name| name == "lib.rs");
        let is_stub = file.text.lines().count() <= 2;
        if !(file.text.starts_with("//!") || is_stub || is_root && file.text.starts_with("#![")) {
            complaints.push(format!("{}: begin it with a `//!` that says what lives here", file.name));
        }
    }
    assert_none("files without a heading", &complaints);
}

#[test]
fn nothing_half_done_lands() {
    let mut complaints = Vec::new();
    for file in rust_files(&["src", "tests", "examples", "benches"]) {
        let code = blank(&file.text, Blank::CommentsAndStrings);
        for word in ["todo!", "unimplemented!", "dbg!"] {
            if says(&code, word) {
                complaints.push(format!("{}: says {word}: finish it, or leave it out", file.name));
            }
        }
    }
    assert_none("unfinished code", &complaints);
}

#[test]
fn the_changelog_has_a_place_for_the_next_change() {
    const HEADINGS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    let text = read(&workspace_root().join("CHANGELOG.md"));
    let mut complaints = Vec::new();
    let first = text.lines().find_map(|line| line.strip_prefix("## "));
    if first != Some("[Unreleased]") {
        complaints.push("CHANGELOG.md: its first section must be `## [Unreleased]`".to_owned());
    }
    for heading in text.lines().filter_map(|line| line.strip_prefix("### ")) {
        if !HEADINGS.contains(&heading) {
            complaints.push(format!("CHANGELOG.md: `### {heading}` should be one of {HEADINGS:?}"));
        }
    }
    assert_none("the changelog", &complaints);
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    // Without an engine there is nothing to promise.
    if !crate_root().join("src/engine.rs").exists() {
        return;
    }
    let text = read(&workspace_root().join("docs/guarantees.md"));
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| **G")).collect();
    assert!(
        !rows.is_empty(),
        "docs/guarantees.md has no row that begins `| **G`: keep its table, this test reads it"
    );
    let mut complaints = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[0].trim_matches('*');
        let proofs: Vec<&str> = cells[cells.len() - 1].split('`').skip(1).step_by(2).collect();
        if proofs.is_empty() {
            complaints.push(format!("{name}: its last column names no test: `tests/crash.rs`, say"));
        }
        for proof in proofs {
            if let Err(why) = find_proof(proof) {
                complaints.push(format!("{name}: `{proof}` {why}: write that test, or withdraw the promise"));
            }
        }
    }
    assert_none("guarantees without proof (docs/guarantees.md)", &complaints);
}

#[test]
fn the_front_page_shows_only_code_that_compiles() {
    // The crate's README is compiled as a doctest; the front page quotes lines of it.
    let compiled = rust_lines(&read(&crate_root().join("README.md")));
    let complaints: Vec<String> = rust_lines(&read(&workspace_root().join("README.md")))
        .difference(&compiled)
        .map(|line| {
            format!("README.md: `{line}` is not in crates/redrive/README.md: show the same line in both")
        })
        .collect();
    assert_none("code on the front page that nobody compiles", &complaints);
}

// ---- files ----------------------------------------------------------------------------------------------------

/// A Rust file: `name` is what to call it in a message, relative to `src/` where it is the library's.
struct File {
    name: String,
    path: PathBuf,
    text: String,
}

impl File {
    /// `store` for `store.rs` and for `store/sqlite/read.rs`.
    fn module(&self) -> &str {
        let first = self.name.split('/').next().unwrap_or(&self.name);
        first.strip_suffix(".rs").unwrap_or(first)
    }

    fn code_without_tests(&self) -> String {
        blank(without_tests(&self.text), Blank::CommentsAndStrings)
    }

    /// The first names after `crate::`, and after as many `super::` as lead to the crate's root.
    fn names_from_the_root(&self) -> BTreeSet<String> {
        let code: String = self.code_without_tests().split_whitespace().collect::<Vec<_>>().join(" ");
        let depth = self.name.split('/').count();
        let mut names = names_after(&code, "crate::");
        names.extend(names_after(&code, &"super::".repeat(depth)));
        names
    }
}

fn crate_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn workspace_root() -> PathBuf {
    plain(&crate_root().join("../.."))
}

/// The files of the library's `src/`, named relative to it.
fn library() -> Vec<File> {
    let src = crate_root().join("src");
    files_under(&src, "rs").into_iter().map(|path| file(&src, path)).collect()
}

/// The `src/` of every crate of the workspace.
fn sources() -> Vec<File> {
    rust_files(&["src"])
}

fn rust_files(folders: &[&str]) -> Vec<File> {
    let root = workspace_root();
    let mut crates: Vec<PathBuf> = list(&root.join("crates"));
    crates.sort();
    let paths = crates
        .iter()
        .flat_map(|one| folders.iter().flat_map(move |folder| files_under(&one.join(folder), "rs")));
    paths.map(|path| file(&root, path)).collect()
}

fn file(base: &Path, path: PathBuf) -> File {
    let name = path.strip_prefix(base).expect("found under it").to_string_lossy().replace('\\', "/");
    File { name, text: read(&path), path }
}

/// Every file with this extension below `folder`, sorted; none where the folder does not exist.
fn files_under(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in list(folder) {
        if path.is_dir() {
            found.extend(files_under(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.expect("a folder that opens can be listed").path()).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{} cannot be read: {why}", path.display()))
}

/// The path without `.` and `..`, by its text alone.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            std::path::Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

// ---- rules ----------------------------------------------------------------------------------------------------

fn room_of(module: &str) -> Option<usize> {
    ROOMS.iter().position(|(_, modules)| modules.contains(&module))
}

/// What `lib.rs` re-exports, each name with the module it comes from: `crate::Job` is a use of `job`.
fn exports_of(files: &[File]) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    let Some(lib) = files.iter().find(|file| file.name == "lib.rs") else { return exports };
    let code = lib.code_without_tests();
    for statement in code.split(';') {
        let Some((_, path)) = statement.rsplit_once("use ") else { continue };
        let mut idents = identifiers(path).filter(|ident| *ident != "crate" && *ident != "self");
        if let Some(module) = idents.next() {
            exports.extend(idents.map(|name| (name.to_owned(), module.to_owned())));
        }
    }
    exports
}

/// A proof is a file or folder of the crate or of the workspace; `file.rs::name` also asks for that function.
fn find_proof(proof: &str) -> Result<(), &'static str> {
    let (path, function) = proof.split_once("::").map_or((proof, None), |(path, name)| (path, Some(name)));
    let found = [crate_root(), workspace_root()].map(|root| root.join(path)).into_iter().find(|p| p.exists());
    let Some(found) = found else { return Err("does not exist") };
    match function {
        Some(name) if !says(&read(&found), &format!("fn {name}")) => Err("has no such function"),
        _ => Ok(()),
    }
}

fn assert_none(what: &str, complaints: &[String]) {
    let mut message = String::new();
    for complaint in complaints {
        write!(message, "\n  {complaint}").expect("a string takes it");
    }
    assert!(complaints.is_empty(), "{what}:{message}\n");
}

// ---- text -----------------------------------------------------------------------------------------------------

/// The text up to its unit tests: a `#[cfg(test)]` at the margin that opens a module.
fn without_tests(text: &str) -> &str {
    let mut at = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let opens = lines.peek().is_some_and(|next| next.contains("mod ") && next.trim_end().ends_with('{'));
        if opens && (line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")) {
            return &text[..at];
        }
        at += line.len();
    }
    text
}

/// The trimmed, non-empty lines of all ```rust blocks.
fn rust_lines(markdown: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut inside = false;
    for line in markdown.lines() {
        match line.strip_prefix("```") {
            Some(fence) => inside = !inside && fence.starts_with("rust"),
            None if inside && !line.trim().is_empty() => {
                lines.insert(line.trim().to_owned());
            }
            None => {}
        }
    }
    lines
}

/// Whether `code` has `word` as a word of its own, not as the end or the beginning of another.
fn says(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back().is_some_and(is_ident);
        let after = code[at + word.len()..].chars().next().is_some_and(is_ident);
        !(before || after && word.ends_with(is_ident))
    })
}

fn is_ident(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_ident(c)).filter(|word| !word.is_empty())
}

/// The names directly behind `prefix`: one, or the outermost of a braced list.
fn names_after(code: &str, prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        let before = &code[..at];
        // `::crate::` or `super::super::` is a longer path than the one asked for; `$crate::` is the same root.
        if before.ends_with("::") || before.chars().next_back().is_some_and(is_ident) {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.extend(identifiers(rest).next().filter(|name| rest.starts_with(name)).map(str::to_owned));
            continue;
        };
        let mut depth = 0;
        let mut item = String::new();
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    names.extend(identifiers(&item).next().map(str::to_owned));
                    item.clear();
                    continue;
                }
                _ => {}
            }
            item.push(c);
        }
        names.extend(identifiers(&item).next().map(str::to_owned));
    }
    names
}

/// The literal paths of `include_str!("…")`.
fn included_paths(code: &str) -> Vec<&str> {
    code.match_indices("include_str!(")
        .filter_map(|(at, call)| code[at + call.len()..].trim_start().strip_prefix('"')?.split_once('"'))
        .map(|(path, _)| path)
        .collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Blank {
    Comments,
    CommentsAndStrings,
}

/// The code with its comments, and perhaps its strings, left out; line breaks stay.
fn blank(text: &str, what: Blank) -> String {
    let keep_strings = what == Blank::Comments;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (length, keep) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with("/*") {
            (block_comment(rest), false)
        } else if let Some(length) = raw_string(rest).filter(|_| !out.ends_with(is_ident)) {
            (length, keep_strings)
        } else if c == '"' {
            (1 + string_tail(&rest[1..]), keep_strings)
        } else if let Some(length) = char_literal(rest) {
            (length, keep_strings)
        } else {
            (c.len_utf8(), true)
        };
        let piece = &rest[..length];
        if keep {
            out.push_str(piece);
        } else {
            out.push(' ');
            out.extend(piece.chars().filter(|c| *c == '\n'));
        }
        rest = &rest[length..];
    }
    out
}

/// The length of a block comment; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The length of `r"…"`, `r#"…"#`, `br#"…"#`, if one begins here.
fn raw_string(text: &str) -> Option<usize> {
    let body = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let opened = body.trim_start_matches('#').strip_prefix('"')?;
    let hashes = body.len() - opened.len() - 1;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = opened.find(&close).map_or(opened.len(), |at| at + close.len());
    Some(text.len() - opened.len() + end)
}

/// The length of a string behind its opening quote, with its closing one.
fn string_tail(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a `'c'`; a lifetime is none.
fn char_literal(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let first = body.chars().next()?;
    let end = if first == '\\' { 2 + body.get(2..)?.find('\'')? } else { first.len_utf8() };
    body.get(end..)?.starts_with('\'').then_some(end + 2)
}

// ---- the reader itself ----------------------------------------------------------------------------------------

#[test]
fn comments_and_strings_are_not_code() {
    let code = blank(
        "a /* b /* c */ d */ 'e' r#\"f\"g\"# \"h\\\"i\" // j\n<'k> '\\'' '\\u{41}' l",
        Blank::CommentsAndStrings,
    );
    assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "<'k>", "l"]);
}

#[test]
fn a_use_is_found_however_it_is_written() {
    let names = names_after(
        "use crate::{store::{Claim, Page}, Job}; crate::machine::settle(); mycrate::x",
        "crate::",
    );
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["Job", "machine", "store"]);
}

#[test]
fn a_word_inside_another_is_not_said() {
    assert!(says("let x = dbg!(1)", "dbg!") && says("use rusqlite::Connection", "rusqlite"));
    assert!(!says("my_dbg!(1)", "dbg!") && !says("rusqlite3", "rusqlite"));
}

#[test]
fn unit_tests_do_not_count() {
    assert_eq!(
        without_tests("a\n#[cfg(test)]\nuse b;\nc\n#[cfg(test)]\nmod tests {\n}\n"),
        "a\n#[cfg(test)]\nuse b;\nc\n"
    );
}
