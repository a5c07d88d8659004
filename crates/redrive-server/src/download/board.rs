//! How every download stands, for whoever watches: written by those that run, read at any time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive::{JobId, Timestamp};
use serde::Serialize;

/// How one download stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileState {
    /// Its job.
    pub id: JobId,
    /// From where.
    pub url: String,
    /// Under which name.
    pub name: String,
    /// Bytes that are here.
    pub bytes: u64,
    /// Bytes in all, if the far side has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// How often it was tried again, in this run.
    pub retries: u32,
    /// Where it stands.
    #[serde(flatten)]
    pub phase: Phase,
}

/// Where a download stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// For a place, or for its host.
    Waiting,
    /// Bytes are coming.
    Receiving,
    /// It did not work and will be tried again.
    Retrying {
        /// When.
        at: Timestamp,
        /// What was wrong.
        why: String,
    },
    /// It is there.
    Completed,
    /// It was there before.
    AlreadyThere,
    /// It needs a person.
    Failed {
        /// What was wrong.
        why: String,
        /// The code of what was wrong, such as `FILE_EXISTS`, if it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
}

impl Phase {
    /// Whether nothing will happen to it by itself any more.
    pub fn is_final(&self) -> bool {
        matches!(self, Phase::Completed | Phase::AlreadyThere | Phase::Failed { .. })
    }
}

/// What a run has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Downloads that were completed.
    pub completed: u64,
    /// Downloads that were complete before.
    pub already_there: u64,
    /// Downloads that need a person.
    pub failed: u64,
    /// Tries after the first.
    pub retried: u64,
    /// Downloads that are neither: the run was stopped.
    pub unfinished: u64,
    /// Bytes that came in this run.
    pub bytes: u64,
}

/// What a running download writes into.
#[derive(Debug, Default)]
pub(super) struct Meter {
    bytes: AtomicU64,
    /// Zero if nobody knows.
    total: AtomicU64,
    receiving: AtomicBool,
    /// In milliseconds: it was told to come back then.
    not_before: AtomicI64,
}

impl Meter {
    pub(super) fn begins(&self, bytes: u64, total: Option<u64>) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.total.store(total.unwrap_or(0), Ordering::Relaxed);
        self.receiving.store(true, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|total| *total > 0)
    }

    pub(super) fn came(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn has_all(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.total.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn told_later(&self, until: Timestamp) {
        self.not_before.store(until.as_millis(), Ordering::Relaxed);
    }

    pub(super) fn not_before(&self) -> Timestamp {
        Timestamp::from_millis(self.not_before.load(Ordering::Relaxed))
    }

    pub(super) fn ended(&self) {
        self.receiving.store(false, Ordering::Relaxed);
    }
}

/// All downloads of a run.
#[derive(Debug, Default)]
pub(super) struct Board {
    files: Mutex<BTreeMap<JobId, Entry>>,
    completed: AtomicU64,
    already_there: AtomicU64,
    failed: AtomicU64,
    retried: AtomicU64,
    pub(super) received: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// The name it was to have, by which its part is known.
    planned: String,
    state: FileState,
    failures: u32,
    meter: Arc<Meter>,
}

impl Board {
    fn files(&self) -> MutexGuard<'_, BTreeMap<JobId, Entry>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: JobId, url: &str, name: &str, phase: Phase) {
        if phase == Phase::AlreadyThere {
            self.already_there.fetch_add(1, Ordering::Relaxed);
        }
        let (url, name) = (url.to_owned(), name.to_owned());
        let state = FileState { id, url, name, bytes: 0, total: None, retries: 0, phase };
        let planned = state.name.clone();
        self.files().insert(id, Entry { planned, state, failures: 0, meter: Arc::default() });
    }

    /// Where a running download writes how far it is.
    pub(super) fn meter(&self, id: JobId) -> Arc<Meter> {
        self.files().get(&id).map(|entry| entry.meter.clone()).unwrap_or_default()
    }

    /// Something has happened to a download; whether that is news.
    pub(super) fn moved(&self, id: JobId, phase: Phase) -> bool {
        let mut files = self.files();
        let Some(entry) = files.get_mut(&id).filter(|entry| !entry.state.phase.is_final()) else {
            return false;
        };
        match &phase {
            Phase::Completed => self.completed.fetch_add(1, Ordering::Relaxed),
            Phase::Failed { .. } => self.failed.fetch_add(1, Ordering::Relaxed),
            Phase::Retrying { .. } => {
                entry.state.retries += 1;
                self.retried.fetch_add(1, Ordering::Relaxed)
            }
            _ => 0,
        };
        entry.state.phase = phase;
        true
    }

    /// A try has failed; how many have, in this run.
    pub(super) fn failed(&self, id: JobId) -> u32 {
        self.files().get_mut(&id).map_or(0, |entry| {
            entry.failures += 1;
            entry.failures
        })
    }

    /// The name that a file got in the end.
    pub(super) fn named(&self, id: JobId, name: &str) {
        if let Some(entry) = self.files().get_mut(&id) {
            entry.state.name = name.to_owned();
        }
    }

    pub(super) fn planned_name(&self, id: JobId) -> Option<String> {
        self.files().get(&id).map(|entry| entry.planned.clone())
    }

    pub(super) fn state(&self, id: JobId) -> Option<FileState> {
        self.files().get(&id).map(Entry::now)
    }

    pub(super) fn states(&self) -> Vec<FileState> {
        self.files().values().map(Entry::now).collect()
    }

    pub(super) fn is_over(&self) -> bool {
        let finished = [&self.completed, &self.already_there, &self.failed];
        let finished: u64 = finished.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
        finished >= self.files().len() as u64
    }

    pub(super) fn unfinished(&self) -> Vec<JobId> {
        let files = self.files();
        files.values().filter(|entry| !entry.state.phase.is_final()).map(|entry| entry.state.id).collect()
    }

    pub(super) fn summary(&self) -> Summary {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            completed: count(&self.completed),
            already_there: count(&self.already_there),
            failed: count(&self.failed),
            retried: count(&self.retried),
            unfinished: self.unfinished().len() as u64,
            bytes: count(&self.received),
        }
    }
}

impl Entry {
    fn now(&self) -> FileState {
        let receives = self.meter.receiving.load(Ordering::Relaxed) && !self.state.phase.is_final();
        FileState {
            bytes: self.meter.bytes.load(Ordering::Relaxed),
            total: self.meter.total(),
            phase: if receives { Phase::Receiving } else { self.state.phase.clone() },
            ..self.state.clone()
        }
    }
}
