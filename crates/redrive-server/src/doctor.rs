//! `redrive doctor`: what the examination of a store found, for a person or a program.

use std::process::ExitCode;

use anyhow::Context as _;
use redrive::{Finding, PostgresStore, Severity, SqliteStore};
use redrive_server::config;

use crate::cli::{DoctorOptions, StoreUrl};
use crate::client::Target;
use crate::out::{self, Colour};
use crate::trouble::{Done, Trouble};

/// Examines the store and says what was found. The exit code is the worst of it.
pub(crate) fn run(options: &DoctorOptions) -> ExitCode {
    let store = match store(options) {
        Ok(store) => store,
        Err(trouble) => return out::trouble(&trouble),
    };
    match examine(&store).and_then(|findings| say(&findings, options.json)) {
        Ok(worst) => ExitCode::from(code(worst)),
        Err(error) => {
            out::complain(&error);
            ExitCode::from(code(Severity::Danger))
        }
    }
}

/// The one that is named, or else the configured one.
fn store(options: &DoctorOptions) -> Done<StoreUrl> {
    if let Some(store) = &options.store {
        return Ok(store.clone());
    }
    let target = Target { config: options.config.clone(), ..Target::default() };
    let config = config::load(&target.sources()).map_err(|mistakes| Trouble::config(&mistakes))?;
    Ok(config.store)
}

/// What `--help` promises to scripts.
fn code(worst: Severity) -> u8 {
    match worst {
        Severity::Good | Severity::Notice => 0,
        Severity::Warning => 1,
        Severity::Danger => 2,
    }
}

fn examine(store: &StoreUrl) -> anyhow::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let findings = runtime.block_on(async {
        match store {
            StoreUrl::Postgres(url) => PostgresStore::examine_at(url).await,
            StoreUrl::Sqlite(path) => SqliteStore::examine_at(path).await,
        }
    })?;
    Ok(findings)
}

fn say(findings: &[Finding], json: bool) -> anyhow::Result<Severity> {
    if json {
        out::answer(&serde_json::to_string_pretty(findings)?);
    } else {
        for finding in findings {
            let (sign, colour) = sign(finding.severity);
            out::answer(&format!("{} {}: {}", out::coloured(sign, colour), finding.check, finding.found));
            if let Some(advice) = &finding.advice {
                out::answer(&format!("    {advice}"));
            }
        }
    }
    Ok(findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Good))
}

fn sign(severity: Severity) -> (&'static str, Colour) {
    match severity {
        Severity::Good => ("ok ", Colour::Green),
        Severity::Notice => ("-- ", Colour::Blue),
        Severity::Warning => ("!  ", Colour::Yellow),
        Severity::Danger => ("!! ", Colour::Red),
    }
}
