//! Every store does the same: the conformance suite on each of them, and what only a file can be asked.

use redrive::{MemoryStore, SqliteStore};
use tempfile::TempDir;

redrive::conformance!(memory, async { (MemoryStore::new(), ()) });
redrive::conformance!(sqlite, async { file().await });

async fn file() -> (SqliteStore, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (open(&dir).await, dir)
}

async fn open(dir: &TempDir) -> SqliteStore {
    SqliteStore::open(dir.path().join("jobs.db")).await.unwrap()
}
