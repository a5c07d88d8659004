//! Where commands that have a store of their own keep it: one file for each thing that is under way.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use redrive::{ErrorKind, SqliteStore};
use redrive_server::config::{ServeOptions, Sources};
use sha2::{Digest as _, Sha256};

use crate::trouble::{Done, Exit, Trouble};

/// The store for what is told apart by `parts`: in `given`, in the user's state folder, or, where there is none, in
/// `beside`.
pub(crate) async fn store(
    given: Option<&Path>,
    kind: &str,
    parts: &[&[u8]],
    beside: &Path,
) -> Done<SqliteStore> {
    let path = place(given, kind, parts, beside)?;
    SqliteStore::open(&path).await.map_err(|error| match error.kind() {
        ErrorKind::InUse => {
            let error = error.to_string();
            let by = error.lines().next().unwrap_or_default();
            Trouble::new(Exit::Temporary, format!("another redrive {kind} is at work on this: {by}"))
                .hint("wait until it is done, or stop it")
        }
        _ => Trouble::store(&error),
    })
}

/// The file, in a folder that only its owner can look into: payloads may hold credentials.
pub(crate) fn place(given: Option<&Path>, kind: &str, parts: &[&[u8]], beside: &Path) -> Done<PathBuf> {
    let usual = || Sources::of_process(&ServeOptions::default()).state_folder();
    let folder = given.map(Path::to_owned).or_else(usual).unwrap_or_else(|| beside.join(".redrive"));
    let folder = folder.join(kind);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| {
        Trouble::new(Exit::Failed, format!("the folder {} cannot be made: {error}", folder.display()))
            .hint("name one that can be written with --state")
    })?;
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let name: String = digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(folder.join(format!("{name}.db")))
}
