//! Which jobs are meant, and which part of a list of them.

use std::collections::BTreeMap;

use crate::clock::Timestamp;
use crate::job::{Job, JobId, StateName};

/// Which jobs. Everything given must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// These ids.
    pub ids: Vec<JobId>,
    /// In one of these states.
    pub states: Vec<StateName>,
    /// Of this kind.
    pub kind: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// With this key.
    pub key: Option<String>,
    /// Belonging to this job.
    pub parent: Option<JobId>,
    /// With all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Whose last failure has this fingerprint.
    pub fingerprint: Option<String>,
    /// For this destination.
    pub destination: Option<String>,
    /// Enqueued at this time or later.
    pub created_from: Option<Timestamp>,
    /// Enqueued before this time.
    pub created_until: Option<Timestamp>,
}

impl Filter {
    /// Just this job.
    pub fn id(id: JobId) -> Filter {
        Filter { ids: vec![id], ..Filter::default() }
    }

    /// Jobs in this state.
    pub fn state(state: StateName) -> Filter {
        Filter { states: vec![state], ..Filter::default() }
    }

    /// Jobs in this queue.
    #[must_use]
    pub fn in_queue(mut self, queue: &str) -> Filter {
        self.queue = Some(queue.into());
        self
    }

    /// What the column of all labels contains where these labels are: names and values as JSON writes them. It may contain
    /// them elsewhere too, so this only spares the rows that cannot match.
    pub(crate) fn labels_written(&self) -> impl Iterator<Item = String> {
        let written = |text: &String| serde_json::Value::from(text.as_str()).to_string();
        self.labels.iter().flat_map(move |(name, value)| [written(name), written(value)])
    }

    /// Whether what can be seen on the job itself matches.
    pub(crate) fn matches(&self, job: &Job) -> bool {
        let extras = job.extras();
        (self.ids.is_empty() || self.ids.contains(&job.id))
            && (self.states.is_empty() || self.states.contains(&job.state.name()))
            && self.kind.as_deref().is_none_or(|kind| *job.kind == *kind)
            && self.queue.as_deref().is_none_or(|queue| *job.queue == *queue)
            && self.key.as_deref().is_none_or(|key| extras.key.as_deref() == Some(key))
            && self.parent.is_none_or(|parent| extras.parent == Some(parent))
            && self.destination.as_deref().is_none_or(|to| extras.destination.as_deref() == Some(to))
            && self.created_from.is_none_or(|from| job.created_at >= from)
            && self.created_until.is_none_or(|until| job.created_at < until)
            && self.labels.iter().all(|(name, value)| extras.labels.get(name) == Some(value))
    }
}

/// Which part of a list.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only jobs enqueued before this one's place.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

/// The longest page.
pub const PAGE_MAX: usize = 1_000;

impl Default for Page {
    fn default() -> Page {
        Page { before: None, limit: 100 }
    }
}

/// A part of a list.
#[derive(Clone, Debug, Default)]
pub struct Paged {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page begins, if there may be one.
    pub next: Option<i64>,
}
