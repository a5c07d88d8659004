//! What the document of the download tool asks for (requirements S1-01 to S1-40), shown on real servers and files. Each
//! test names the numbers it shows.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had is the failure")]

#[path = "s1_download/command_line.rs"]
mod command_line;
#[path = "s1_download/flaky.rs"]
mod flaky;
#[path = "s1_download/kills.rs"]
mod kills;
#[path = "s1_download/resume.rs"]
mod resume;
#[path = "s1_download/retries.rs"]
mod retries;
#[path = "s1_download/rules.rs"]
mod rules;
#[path = "s1_download/running.rs"]
mod running;
#[expect(dead_code, clippy::disallowed_methods, reason = "http_executor.rs uses the rest of it")]
#[path = "support/target.rs"]
mod target;

use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive::{Jitter, Policy, SqliteStore, millis};
use redrive_server::download::{Builder, Download, Downloads, Limits, Summary};
use redrive_server::egress::{Egress, EgressPolicy};

/// A folder for files, and a store beside it.
pub(crate) struct Ground {
    place: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Ground {
        Ground { place: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.place.path().join("files")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.place.path()
    }

    /// The names in the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// With the delays of the preset, a hundred times shorter, and the stall of a test.
    pub(crate) fn builder(&self) -> Builder {
        let allow = vec!["127.0.0.0/8".parse().unwrap()];
        Downloads::into_folder(self.folder())
            .egress(Egress::new(EgressPolicy { allow }))
            .policy(quick(3))
            .limits(limits())
    }

    pub(crate) async fn open(&self, builder: Builder) -> Downloads {
        builder.open(SqliteStore::open(self.root().join("jobs.db")).await.unwrap()).await.unwrap()
    }

    /// Downloads these to their end.
    pub(crate) async fn fetch(&self, builder: Builder, wanted: Vec<Download>) -> (Downloads, Summary) {
        let downloads = self.open(builder).await;
        downloads.add(wanted).await.unwrap();
        let run = downloads.run(std::future::pending());
        let summary = tokio::time::timeout(Duration::from_secs(60), run).await.expect("it ends").unwrap();
        (downloads, summary)
    }

    /// Downloads one.
    pub(crate) async fn fetch_one(&self, url: &str) -> (Downloads, Summary) {
        self.fetch(self.builder(), vec![Download::new(url)]).await
    }
}

/// The preset `download`, a hundred times as fast.
pub(crate) fn quick(retries: u32) -> Policy {
    let policy = Policy::exponential(millis(10)..=millis(320)).retries(retries);
    policy.jitter(Jitter::additive(millis(5)).beyond_cap())
}

pub(crate) fn limits() -> Limits {
    Limits { stall: millis(300), ..Limits::default() }
}
