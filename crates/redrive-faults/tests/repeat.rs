//! The same seed and the same operations leave the same bytes.
//!
//! Alone in its file, because SQLite draws the WAL's salts from one generator a process: a test beside it would draw
//! from it too.

use redrive_faults::Disk;

#[test]
fn the_same_seed_and_the_same_operations_leave_the_same_bytes() {
    for seed in 0..50 {
        assert!(life_of(seed) == life_of(seed), "seed {seed} gave two worlds");
    }
    assert!(life_of(1) != life_of(2), "the seed decides nothing");
}

/// Three cuts and what each left on the platter.
fn life_of(seed: u64) -> Vec<(String, Vec<u8>)> {
    let disk = Disk::new(seed);
    let mut platter = Vec::new();
    for life in 0..3 {
        disk.cut_after(20 + 13 * life);
        if let Ok(db) = disk.open("jobs.db") {
            let _ = db.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8;
                 CREATE TABLE IF NOT EXISTS row (payload BLOB, at TEXT)",
            );
            while db.execute("INSERT INTO row VALUES (randomblob(700), datetime('now'))", []).is_ok() {}
        }
        assert!(disk.is_cut());
        platter.extend(
            disk.files().into_iter().map(|file| (file.clone(), disk.image(&file).expect("it is listed"))),
        );
        disk.power_on();
    }
    platter
}
