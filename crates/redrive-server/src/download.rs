//! Downloads that survive anything: a job for each file, with a policy, in a store; bytes in `.part` files that are gone
//! on with after a cut, a kill or a power failure; and a name only for what is complete and verified.
//!
//! The request goes through the guard (`egress.rs`), so private addresses are refused unless they are allowed. Nothing
//! is ever unpacked.
//!
//! ```no_run
//! use redrive_server::download::{Download, Downloads};
//! use redrive_server::egress::{Egress, EgressPolicy};
//!
//! # async fn example() -> anyhow::Result<()> {
//! let store = redrive::SqliteStore::open("downloads.db").await?;
//! let downloads = Downloads::into_folder("images")
//!     .egress(Egress::new(EgressPolicy::default()))
//!     .parallel(4)
//!     .open(store)
//!     .await?;
//! downloads.add(vec![Download::new("https://example.com/large.iso")]).await?;
//! let summary = downloads.run(std::future::pending()).await?;
//! assert_eq!(summary.failed, 0);
//! # Ok(())
//! # }
//! ```

mod answer;
mod board;
mod builder;
mod error;
mod fetch;
mod folder;
mod hosts;
mod name;
mod part;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use redrive::{
    Ending, Engine, Event, Failure, Filter, Happening, JobDetail, JobId, NewJob, OnConflict, Origin, Page,
    Payload, Policy, State, StateName,
};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;

use crate::egress::{Request, user_header};
use board::Board;
use folder::Folder;

pub use board::{FileState, Phase, Summary};
pub use builder::{Builder, Limits};
pub use error::DownloadError;
pub use name::{NAME_BYTES_MAX, sane as sane_name};

/// How often a download is tried again unless told otherwise.
pub const DEFAULT_MAX_RETRIES: u32 = 3;
/// How often at most it may be asked to be.
pub const MAX_RETRIES_LIMIT: u32 = 10;
/// Headers that decide what of a file comes, and how: those are ours.
const OUR_HEADERS: [&str; 5] = ["range", "if-range", "accept-encoding", "if-match", "if-none-match"];
/// How many jobs are taken into the store at once.
const ENQUEUE_CHUNK: usize = 1_000;

/// A file to be downloaded: the payload of a job of the kind `download`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Download {
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

impl Payload for Download {
    const KIND: &'static str = "download";

    fn destination(&self) -> Option<String> {
        Request::new(http::Method::GET, &self.url).ok().map(|request| request.destination())
    }
}

impl Download {
    /// The file at this URL, under the name that the URL suggests.
    pub fn new(url: impl Into<String>) -> Download {
        Download { url: url.into(), name: None, checksum: None, headers: Vec::new() }
    }

    /// Under this name, made harmless: see [`sane_name`].
    #[must_use]
    pub fn name(mut self, name: &str) -> Download {
        self.name = Some(name.to_owned());
        self
    }

    /// What it must be: `sha256:` and 64 hexadecimal digits.
    #[must_use]
    pub fn checksum(mut self, checksum: &str) -> Download {
        self.checksum = Some(checksum.to_owned());
        self
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Download {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Whether it can be asked for, as far as it can be known before.
    ///
    /// # Errors
    ///
    /// [`DownloadError::Invalid`] or [`DownloadError::Egress`] and what to write instead.
    pub fn check(&self) -> Result<(), DownloadError> {
        self.file_name()?;
        self.digest().map_err(DownloadError::Invalid)?;
        for (name, value) in &self.headers {
            let (name, _) = user_header(name, value).map_err(DownloadError::Invalid)?;
            if OUR_HEADERS.contains(&name.as_str()) {
                let message = format!("the header {name} is written by Redrive itself; leave it out");
                return Err(DownloadError::Invalid(message));
            }
        }
        Ok(())
    }

    /// The name that was chosen, or the one that the URL suggests.
    fn file_name(&self) -> Result<String, DownloadError> {
        let request = Request::new(http::Method::GET, &self.url)?;
        match &self.name {
            None => Ok(name::of_url(request.url())),
            Some(name) => {
                let why = || DownloadError::Invalid(format!("{name:?} cannot be the name of a file"));
                name::sane(name).ok_or_else(why)
            }
        }
    }

    /// The checksum as bytes.
    fn digest(&self) -> Result<Option<[u8; 32]>, String> {
        let Some(text) = &self.checksum else { return Ok(None) };
        let wrong = || format!("{text:?} is no checksum; write sha256: and 64 hexadecimal digits");
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        if digits.len() != 64 || !digits.is_ascii() {
            return Err(wrong());
        }
        let mut digest = [0; 32];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Some(digest))
    }
}

/// Something happened to a download; how it stands now.
pub type Observer = Arc<dyn Fn(&FileState) + Send + Sync>;

/// Downloads into one folder: those that were added, and those of the same queue that an earlier process has left.
#[derive(Clone)]
pub struct Downloads {
    engine: Engine,
    folder: Arc<Folder>,
    board: Arc<Board>,
    queue: Arc<str>,
    policy: Policy,
    limits: Limits,
    observer: Option<Observer>,
}

impl Downloads {
    /// Downloads into this folder, which is made if it is not there.
    pub fn into_folder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref())
    }

    /// Takes downloads. When this returns, they are durable: whoever opens the same store and adds the same goes on
    /// where this one was. What is there already, as an earlier run has left it, is not downloaded again. Of several
    /// that would have the same name, the later ones get a number.
    ///
    /// # Errors
    ///
    /// What is wrong with one of them, or with the store; then none is taken.
    #[tracing::instrument(skip_all, fields(count = downloads.len()))]
    pub async fn add(&self, downloads: Vec<Download>) -> Result<()> {
        let mut names = BTreeSet::new();
        let mut wanted = Vec::new();
        // What was to be overwritten has been, if the run that was to do it did not come to its end.
        let believes = !self.limits.overwrite || self.goes_on().await?;
        for mut download in downloads {
            download.check().with_context(|| format!("cannot download {}", download.url))?;
            let name = free_name(&download.file_name()?, &mut names);
            download.name = Some(name.clone());
            match self.there_already(&download, &name).await?.filter(|_| believes) {
                Some(id) => {
                    self.forget_sidecar(&name);
                    self.board.add(id, &download.url, &name, Phase::AlreadyThere);
                    self.observe(id);
                }
                None => wanted.push((name, download)),
            }
        }
        for chunk in wanted.chunks(ENQUEUE_CHUNK) {
            let jobs: Vec<NewJob> = chunk.iter().map(|(name, download)| self.job(name, download)).collect();
            let answers = self.engine.enqueue_all(jobs).await?;
            for ((name, download), answer) in chunk.iter().zip(answers) {
                self.board.add(answer.id, &download.url, name, Phase::Waiting);
            }
        }
        Ok(())
    }

    /// Downloads everything that was added. Returns when nothing is left to be tried, or soon after `shutdown`
    /// resolves; what is not complete then stays in the store, and costs nothing.
    ///
    /// # Errors
    ///
    /// Those of the store.
    #[tracing::instrument(skip_all)]
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<Summary> {
        let mut events = self.engine.events();
        if !self.board.is_over() {
            let over = async {
                while !self.board.is_over() {
                    match events.recv().await {
                        Ok(event) => self.heard(event),
                        Err(RecvError::Lagged(_)) => self.catch_up().await,
                        Err(RecvError::Closed) => return,
                    }
                }
            };
            let until = async {
                tokio::select! { biased;
                    () = shutdown => {}
                    () = over => {}
                }
            };
            self.engine.run(until).await?;
        }
        Ok(self.summary())
    }

    /// How every download stands, in the order they were added.
    pub fn files(&self) -> Vec<FileState> {
        self.board.states()
    }

    /// What it has come to so far.
    pub fn summary(&self) -> Summary {
        self.board.summary()
    }

    /// The engine that runs them.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A job that an earlier process has left is taken over, from where it was and with all its tries: that its process
    /// died, or that somebody asks again, is no fault of the download.
    fn job(&self, name: &str, download: &Download) -> NewJob {
        let job = NewJob::from(download.clone()).queue(&self.queue).policy(self.policy.clone());
        let job = job.key(name).on_conflict(OnConflict::Replace);
        match self.limits.time_max {
            Some(limit) => job.timeout(limit),
            None => job,
        }
    }

    /// Whether an earlier run of the same queue has left something.
    async fn goes_on(&self) -> Result<bool> {
        let left = Filter::state(StateName::Waiting).in_queue(&self.queue);
        Ok(self.engine.count(&left, 1).await? > 0)
    }

    /// The job that has brought this file, if the file is still as it left it.
    async fn there_already(&self, download: &Download, name: &str) -> Result<Option<JobId>> {
        #[derive(Deserialize)]
        struct Left {
            file: String,
            bytes: u64,
        }
        let filter = Filter { key: Some(name.to_owned()), ..Filter::default() };
        let found = self.engine.list(&filter, Page { before: None, limit: 1 }).await?;
        let Some(job) = found.jobs.first() else { return Ok(None) };
        let is_same = matches!(job.state, State::Succeeded { .. })
            && job.payload.decode::<Download>().is_ok_and(|before| before == *download);
        let Some(JobDetail { output: Some(output), .. }) = self.engine.get(job.id).await? else {
            return Ok(None);
        };
        let left: Option<Left> = output.decode().ok().filter(|_| is_same);
        let is_there = left.is_some_and(|left| self.folder.length(&left.file).ok() == Some(Some(left.bytes)));
        Ok(is_there.then_some(job.id))
    }

    fn heard(&self, event: Event) {
        let retry = |due_at, failure: Option<&Failure>| Phase::Retrying {
            at: due_at,
            why: failure.map_or_else(|| "it was cut".to_owned(), |failure| failure.message.clone()),
        };
        // What its host put off is in hand at once, and waits here: its countdown goes on.
        let is_put_off = || {
            let phase = self.board.state(event.job).map(|state| state.phase);
            matches!(phase, Some(Phase::Retrying { at, .. }) if at > event.at)
        };
        let phase = match &event.what {
            Happening::Started { .. } if is_put_off() => return,
            Happening::Started { .. } => Phase::Waiting,
            Happening::Succeeded { .. } => Phase::Completed,
            Happening::RetryScheduled { due_at, failure, .. } => retry(*due_at, failure.as_ref()),
            Happening::PutBack { due_at, ending: Ending::Snoozed, .. } => retry(*due_at, None),
            Happening::Dead { failure, why, .. } => {
                let code = failure.as_ref().and_then(|failure| failure.code.clone());
                let why = failure.as_ref().map_or_else(|| why.as_str().to_owned(), |f| f.message.clone());
                Phase::Failed { why, code }
            }
            Happening::Cancelled | Happening::Deleted => {
                Phase::Failed { why: "it was taken back".to_owned(), code: None }
            }
            _ => return,
        };
        self.tell(&event);
        self.moved(event.job, phase);
    }

    fn moved(&self, id: JobId, phase: Phase) {
        let is_complete = phase == Phase::Completed;
        if !self.board.moved(id, phase) {
            return;
        }
        if is_complete && let Some(name) = self.board.planned_name(id) {
            // Only now: until the store knew, the sidecar was what proved that the file is ours.
            self.forget_sidecar(&name);
        }
        self.observe(id);
    }

    /// Events were missed: the store knows.
    async fn catch_up(&self) {
        for id in self.board.unfinished() {
            let Ok(Some(JobDetail { job, attempts, .. })) = self.engine.get(id).await else { continue };
            let last = attempts.last().and_then(|attempt| attempt.failure.as_ref());
            match job.state {
                State::Succeeded { .. } => self.moved(id, Phase::Completed),
                State::Dead { .. } | State::Cancelled { .. } => {
                    let why = last.map_or_else(String::new, |failure| failure.message.clone());
                    let code = last.and_then(|failure| failure.code.clone());
                    self.moved(id, Phase::Failed { why, code });
                }
                State::Waiting { .. } | State::Running { .. } => {}
            }
        }
    }

    fn observe(&self, id: JobId) {
        if let Some(observer) = &self.observer
            && let Some(state) = self.board.state(id)
        {
            observer(&state);
        }
    }

    /// A sidecar that stays does no harm.
    fn forget_sidecar(&self, name: &str) {
        drop(self.folder.remove(&part::sidecar_name(name)));
    }

    /// One wording for every try that failed.
    fn tell(&self, event: &Event) {
        let Some(FileState { url, .. }) = self.board.state(event.job) else { return };
        match &event.what {
            Happening::RetryScheduled { due_at, failure, .. } => {
                let (attempt, delay) = (self.board.failed(event.job), due_at.since(event.at));
                let of = self.policy.retries_allowed(Origin::Engine).unwrap_or(u32::MAX);
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let error = failure.as_ref().map_or("", |failure| failure.message.as_str());
                tracing::info!(%url, attempt, delay_ms, error, "Retrying download (attempt {attempt}/{of}): {url}");
                tracing::debug!(%url, "Waiting {}s before retry", delay.as_secs_f64());
            }
            Happening::Dead { why, failure, .. } => {
                let error = failure.as_ref().map_or("", |failure| failure.message.as_str());
                tracing::debug!(%url, reason = why.as_str(), error, "Not retrying download");
            }
            _ => {}
        }
    }
}

/// The name, or the name with the first number that is free.
fn free_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let (stem, extension) = match name.find('.') {
        Some(dot) if dot > 0 => name.split_at(dot),
        _ => (name, ""),
    };
    let numbered = (2..).map(|n| format!("{stem}-{n}{extension}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_else(|| name.to_owned());
    taken.insert(free.clone());
    free
}

/// What was asked for, in short and in any order: the same downloads have the same, so that they meet in one queue.
pub fn fingerprint(downloads: &[Download]) -> String {
    use sha2::Digest as _;
    let parts: BTreeMap<String, ()> = downloads.iter().map(|one| (format!("{one:?}"), ())).collect();
    let mut digest = sha2::Sha256::new();
    parts.keys().for_each(|part| digest.update(part.as_bytes()));
    part::hex(&digest.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_of_one_name_get_numbers_in_their_order() {
        let mut taken = BTreeSet::new();
        let names = ["a.tar.gz", "a.tar.gz", "b", "a.tar.gz", "b"].map(|name| free_name(name, &mut taken));
        assert_eq!(names, ["a.tar.gz", "a-2.tar.gz", "b", "a-3.tar.gz", "b-2"]);
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused_before_anything_happens() {
        let good = Download::new("https://a.example/x");
        assert!(good.check().is_ok());
        for bad in [
            Download::new("ftp://a.example/x"),
            Download::new("a.example/x"),
            Download::new("https://u:p@a.example/x"),
            good.clone().name(".."),
            good.clone().checksum("md5:0"),
            good.clone().checksum("sha256:zz"),
            good.clone().checksum(&format!("sha256:{}", "ü".repeat(32))),
            good.clone().header("Range", "bytes=0-1"),
            good.clone().header("Host", "b.example"),
            good.clone().header("x", "a\nb"),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(good.checksum(&format!("sha256:{}", "aB".repeat(32))).check().is_ok());
    }

    #[test]
    fn the_same_downloads_have_the_same_fingerprint_in_any_order() {
        let (a, b) = (Download::new("https://a.example/a"), Download::new("https://a.example/b"));
        assert_eq!(fingerprint(&[a.clone(), b.clone()]), fingerprint(&[b.clone(), a.clone()]));
        assert_ne!(fingerprint(&[a.clone(), b]), fingerprint(&[a]));
    }
}
