//! Puts the dashboard into the binary: finds it built, or builds it with npm, and writes the table of its files that
//! `assets.rs` includes. Without the feature `dashboard` there is nothing to do.
//!
//! Looked for in this order: the folder that `REDRIVE_DASHBOARD_DIST` names; `dashboard-dist` beside this file, which a
//! published crate brings; the sources in `dashboard/`, built into cargo's own output folder.

#![expect(clippy::disallowed_methods, reason = "a build script is told everything through the environment")]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    if env::var_os("CARGO_FEATURE_DASHBOARD").is_none() {
        return ExitCode::SUCCESS;
    }
    match found_or_built().and_then(|dist| write_table(&dist)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&format!("cargo::error=the dashboard cannot be built: {problem}"));
            say(
                "cargo::error=install Node.js 20.19 or later with npm and build again, or leave it out: --no-default-features",
            );
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    println!("{line}");
}

fn folder(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).expect("cargo sets it for every build script"))
}

/// The folder with the built files.
fn found_or_built() -> Result<Option<PathBuf>, String> {
    say("cargo::rerun-if-env-changed=REDRIVE_DASHBOARD_DIST");
    let packaged = folder("CARGO_MANIFEST_DIR").join("dashboard-dist");
    let sources = folder("CARGO_MANIFEST_DIR").join("../../dashboard");
    if let Some(given) = env::var_os("REDRIVE_DASHBOARD_DIST") {
        let given = PathBuf::from(given);
        say(&format!("cargo::rerun-if-changed={}", given.display()));
        return Ok(Some(given));
    }
    if packaged.join("index.html").exists() {
        say(&format!("cargo::rerun-if-changed={}", packaged.display()));
        return Ok(Some(packaged));
    }
    // There is no network where documentation is built, and nobody to look at pages.
    if env::var_os("DOCS_RS").is_some() {
        return Ok(None);
    }
    if !sources.join("package.json").exists() {
        return Err(format!("there is neither {} nor {}", packaged.display(), sources.display()));
    }
    build(&sources).map(Some)
}

/// Builds the sources. What npm installs stays beside them, and is installed again when the lock file has changed.
fn build(sources: &Path) -> Result<PathBuf, String> {
    for part in [
        "src",
        "public",
        "index.html",
        "vite.config.ts",
        "tsconfig.json",
        "package.json",
        "package-lock.json",
    ] {
        say(&format!("cargo::rerun-if-changed={}", sources.join(part).display()));
    }
    let modified = |path: PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    let installed = modified(sources.join("node_modules/.package-lock.json"));
    if installed.is_none() || installed < modified(sources.join("package-lock.json")) {
        // Not `ci`: it refuses a lock file that does not name the binaries of every other platform, and a mirror of the
        // registry need not have those.
        npm(sources, &["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"])?;
    }
    let dist = folder("OUT_DIR").join("dashboard");
    let target = dist.to_str().ok_or("the output folder has a name that is not UTF-8")?;
    npm(sources, &["run", "--silent", "build", "--", "--outDir", target, "--emptyOutDir"])?;
    Ok(dist)
}

fn npm(sources: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("npm").args(arguments).current_dir(sources).output();
    let output = output.map_err(|error| format!("npm does not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).lines().take(20).collect::<Vec<_>>().join(" | ");
    Err(format!("npm {} ended with {}: {said}", arguments.join(" "), output.status))
}

/// A line for each file: its path, its bytes, and the same compressed where that was worth it.
fn write_table(dist: &Option<PathBuf>) -> Result<(), String> {
    let mut names = Vec::new();
    if let Some(dist) = dist {
        list(dist, dist, &mut names)
            .map_err(|error| format!("{} cannot be read: {error}", dist.display()))?;
        names.sort();
        if !names.iter().any(|name| name == "index.html") {
            return Err(format!("there is no index.html in {}", dist.display()));
        }
    }
    let mut table = String::from("&[\n");
    for name in names.iter().filter(|name| !name.ends_with(".gz")) {
        let path = |name: &str| dist.as_ref().map(|dist| dist.join(name)).unwrap_or_default();
        let bytes = |name: &str| format!("include_bytes!({:?})", path(name));
        let small = format!("{name}.gz");
        let small = if names.contains(&small) { format!("Some({})", bytes(&small)) } else { "None".into() };
        // Writing to a string cannot fail.
        let _ = writeln!(table, "    File {{ path: {name:?}, bytes: {}, gzip: {small} }},", bytes(name));
    }
    table.push_str("]\n");
    fs::write(folder("OUT_DIR").join("dashboard.rs"), table).map_err(|error| error.to_string())
}

fn list(top: &Path, folder: &Path, names: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(top, &path, names)?;
        } else if let Some(name) = path.strip_prefix(top).ok().and_then(Path::to_str) {
            names.push(name.replace('\\', "/"));
        }
    }
    Ok(())
}
