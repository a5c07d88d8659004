//! The collection: which files there are and what is known about each. One JSON file, written whole at every change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::sources::Metadata;

/// What is known about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// A source could not be asked; it is asked again by itself.
    Retrying {
        /// What was wrong the last time.
        error: String,
    },
    /// Its metadata is there.
    Ready(Metadata),
    /// Only a person can help.
    NeedsPerson {
        /// Why.
        error: String,
    },
    /// A person has taken it back.
    Cancelled,
}

/// The files, and who waits for a change.
pub struct Shelf {
    path: PathBuf,
    files: watch::Sender<BTreeMap<String, Status>>,
}

impl Shelf {
    /// Reads what is there, or begins with nothing.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is no collection.
    pub fn open(path: &Path) -> Result<Shelf> {
        let files = match std::fs::read(path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", path.display()))?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(Shelf { path: path.to_owned(), files: watch::Sender::new(files) })
    }

    /// Writes down what is known of a file. What has its metadata keeps it: an older word does not undo it.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn put(&self, file: &str, status: Status) -> Result<()> {
        let mut written = Ok(());
        self.files.send_if_modified(|files| {
            if matches!(files.get(file), Some(Status::Ready(_))) {
                return false;
            }
            files.insert(file.to_owned(), status);
            written = self.write(files);
            true
        });
        written
    }

    /// Into a file beside it first: whoever is killed in the middle leaves the old one.
    fn write(&self, files: &BTreeMap<String, Status>) -> Result<()> {
        let new = self.path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec_pretty(files)?)?;
        std::fs::rename(&new, &self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// All files.
    pub fn files(&self) -> BTreeMap<String, Status> {
        self.files.borrow().clone()
    }

    /// What happens to the files from now on.
    pub fn changes(&self) -> watch::Receiver<BTreeMap<String, Status>> {
        self.files.subscribe()
    }
}
