//! The disk has teeth: what SQLite promises holds on it, and what SQLite does not promise is seen to break.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use redrive_faults::Disk;
use rusqlite::{Connection, ErrorCode};

const FILE: &str = "jobs.db";

#[test]
fn full_loses_no_acknowledged_row_in_two_thousand_cuts() {
    let tally = cut_many("FULL", 2_000);
    assert_eq!((tally.cuts_with_loss, tally.corrupt), (0, 0), "{tally:?}");
    assert!(tally.unacknowledged_kept > 0, "no commit survived a cut in its middle: the cuts are too kind");
}

#[test]
fn normal_loses_acknowledged_rows_but_corrupts_nothing() {
    let tally = cut_many("NORMAL", 2_000);
    assert!(tally.cuts_with_loss > 0, "{tally:?}");
    assert_eq!(tally.corrupt, 0, "{tally:?}");
}

#[test]
fn off_corrupts() {
    let tally = cut_many("OFF", 2_000);
    assert!(tally.cuts_with_loss > 0, "{tally:?}");
    assert!(tally.corrupt > 0, "{tally:?}");
}

#[test]
fn a_kill_loses_nothing_even_without_syncs() {
    for seed in 0..100 {
        let disk = Disk::new(seed);
        let db = connect(&disk, "OFF").unwrap();
        disk.kill_after(2 + seed % 50);
        let acknowledged = insert_until_it_fails(&db, 0);
        drop(db);
        disk.power_on();
        let rows = survivors(&connect(&disk, "OFF").unwrap()).unwrap();
        assert!(rows >= acknowledged, "seed {seed}: {acknowledged} acknowledged, {rows} there");
    }
}

#[test]
fn a_failed_sync_fails_the_commit_and_the_row_is_gone_after_a_cut() {
    // Many seeds: were the row merely unsynced, chance would bring it back in some.
    for seed in 0..50 {
        let disk = Disk::new(seed);
        let db = connect(&disk, "FULL").unwrap();
        insert(&db, 1).unwrap();
        disk.fail_sync(1);
        let error = insert(&db, 2).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
        disk.power_cut();
        drop(db);
        disk.power_on();
        assert_eq!(survivors(&connect(&disk, "FULL").unwrap()), Ok(1), "seed {seed}");
    }
}

/// After a failed sync and a restart SQLite finds the frames in the page cache and builds on them, though no sync
/// will ever write them. A store that goes on from there loses what it acknowledges.
#[test]
fn after_a_failed_sync_and_a_restart_acknowledged_rows_are_lost_unless_a_checkpoint_comes_first() {
    let restart = |heal: &str| {
        let disk = Disk::new(1);
        let db = connect(&disk, "FULL").unwrap();
        insert(&db, 1).unwrap();
        disk.fail_sync(1);
        insert(&db, 2).unwrap_err();
        disk.kill9();
        drop(db);
        disk.power_on();
        let db = connect(&disk, "FULL").unwrap();
        assert_eq!(survivors(&db), Ok(2), "the page cache still has it");
        db.execute_batch(heal).unwrap();
        insert(&db, 3).unwrap();
        disk.power_cut();
        drop(db);
        disk.power_on();
        survivors(&connect(&disk, "FULL").unwrap()).unwrap()
    };
    assert_eq!(restart(""), 1, "row 3 was acknowledged, and lies behind a hole in the WAL");
    assert_eq!(restart("PRAGMA wal_checkpoint(TRUNCATE)"), 3);
}

#[test]
fn a_full_disk_refuses_writes_and_takes_them_again_when_there_is_room() {
    let disk = Disk::new(1);
    let db = connect(&disk, "FULL").unwrap();
    disk.full_after(40_000);
    let acknowledged = insert_until_it_fails(&db, 0);
    let error = insert(&db, acknowledged + 1).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull));
    assert!(acknowledged > 0);
    disk.room(40_000);
    insert(&db, acknowledged + 1).unwrap();
    assert_eq!(survivors(&db), Ok(acknowledged + 1));
}

#[test]
fn a_reader_sees_commits_and_another_connection_checkpoints() {
    let disk = Disk::new(1);
    let writer = connect(&disk, "FULL").unwrap();
    let reader = disk.open(FILE).unwrap();
    let checkpointer = disk.open(FILE).unwrap();
    insert(&writer, 1).unwrap();
    assert_eq!(survivors(&reader), Ok(1));

    reader.execute_batch("BEGIN; SELECT count(*) FROM row").unwrap();
    insert(&writer, 2).unwrap();
    assert_eq!(survivors(&reader), Ok(1), "a snapshot does not move");
    assert_eq!(checkpoint(&checkpointer, "TRUNCATE"), Ok(true), "the reader is in the way");
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(survivors(&reader), Ok(2));

    assert_eq!(checkpoint(&checkpointer, "TRUNCATE"), Ok(false));
    assert_eq!(disk.image("jobs.db-wal"), Some(Vec::new()));
    insert(&writer, 3).unwrap();
    assert_eq!(survivors(&reader), Ok(3));
}

#[test]
fn one_writer_at_a_time() {
    for mode in ["WAL", "DELETE"] {
        let disk = Disk::new(1);
        let first = disk.open(FILE).unwrap();
        first.execute_batch(&format!("PRAGMA journal_mode = {mode}; {SCHEMA}")).unwrap();
        let second = disk.open(FILE).unwrap();
        second.busy_timeout(Duration::ZERO).unwrap();
        first.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(is_busy(second.execute_batch("BEGIN IMMEDIATE")), "{mode}");
        first.execute_batch("COMMIT").unwrap();
        second.execute_batch("BEGIN IMMEDIATE").unwrap();
    }
}

#[test]
fn without_a_wal_a_reader_holds_up_a_commit_and_a_waiting_commit_holds_up_new_readers() {
    let disk = Disk::new(1);
    let connect = || {
        let db = disk.open(FILE).unwrap();
        db.busy_timeout(Duration::ZERO).unwrap();
        db
    };
    let (writer, reader, late_reader) = (connect(), connect(), connect());
    writer.execute_batch(SCHEMA).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM row").unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    insert(&writer, 1).unwrap();
    assert!(is_busy(writer.execute_batch("COMMIT")));
    assert!(is_busy(survivors_or_error(&late_reader)));
    reader.execute_batch("COMMIT").unwrap();
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!(survivors(&late_reader), Ok(1));
}

#[test]
fn a_rollback_journal_works_too() {
    for seed in 0..200 {
        let disk = Disk::new(seed);
        let db = disk.open(FILE).unwrap();
        // EXTRA syncs the directory after it deletes the journal; with FULL a cut may bring the journal back.
        db.execute_batch(&format!("PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA; {SCHEMA}"))
            .unwrap();
        disk.cut_after(1 + seed % 40);
        let acknowledged = insert_until_it_fails(&db, 0);
        drop(db);
        disk.power_on();
        let rows = survivors(&disk.open(FILE).unwrap()).unwrap();
        assert!(rows >= acknowledged, "seed {seed}: {acknowledged} acknowledged, {rows} there");
    }
}

#[test]
fn threads_that_write_read_and_checkpoint_lose_nothing() {
    for seed in 0..40 {
        let disk = Disk::new(seed);
        let db = connect(&disk, "FULL").unwrap();
        let acknowledged = AtomicI64::new(0);
        let over = AtomicBool::new(false);
        disk.cut_after(50 + seed * 10);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| read_until(&disk, &over, &acknowledged));
            }
            scope.spawn(|| {
                let db = disk.open(FILE).ok();
                while !over.load(Ordering::SeqCst) {
                    let _ = db.as_ref().map(|db| checkpoint(db, "PASSIVE"));
                }
            });
            while insert(&db, acknowledged.load(Ordering::SeqCst) + 1).is_ok() {
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            over.store(true, Ordering::SeqCst);
        });
        assert!(disk.is_cut(), "seed {seed}: the writer stopped before the cut");
        drop(db);
        disk.power_on();
        let rows = survivors(&connect(&disk, "FULL").unwrap()).unwrap();
        assert!(rows >= acknowledged.into_inner(), "seed {seed}");
    }
}

#[test]
fn a_dead_handle_answers_with_errors_only() {
    let disk = Disk::new(1);
    let db = connect(&disk, "FULL").unwrap();
    insert(&db, 1).unwrap();
    disk.power_cut();
    assert!(disk.is_cut());
    assert!(disk.open(FILE).and_then(|db| survivors_or_error(&db)).is_err(), "nothing opens without power");
    disk.power_on();
    assert!(insert(&db, 2).is_err(), "a new life does not revive old handles");
    drop(db);
    assert_eq!(survivors(&disk.open(FILE).unwrap()), Ok(1));
}

#[test]
fn a_flipped_bit_is_one_bit_and_survives_a_cut() {
    let disk = Disk::new(1);
    let bytes = vec![0u8; 5_000];
    disk.put("rot", &bytes);
    let (byte, bit) = disk.flip_random_bit("rot").unwrap();
    disk.power_cut();
    disk.power_on();
    let mut expected = bytes;
    expected[byte] = 1 << bit;
    assert_eq!(disk.image("rot"), Some(expected));
    assert!(!disk.flip_bit("rot", 5_000, 0), "there is no such byte");
    assert_eq!(disk.files(), ["rot"]);
}

#[test]
fn a_million_disks_would_not_fill_the_list_of_vfs() {
    let first = Disk::new(1).vfs().to_owned();
    let names: Vec<String> = (0..100).map(|seed| Disk::new(seed).vfs().to_owned()).collect();
    // Tests that run beside this one hold places of their own.
    let number = |name: &str| name.rsplit('-').next().unwrap().parse::<usize>().unwrap();
    assert!(names.iter().chain([&first]).all(|name| number(name) < 50), "{names:?}");
}

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS row (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)";

/// What a run of cuts did.
#[derive(Debug, Default)]
struct Tally {
    cuts: u32,
    cuts_with_loss: u32,
    rows_lost: i64,
    corrupt: u32,
    unacknowledged_kept: u32,
}

/// Cuts the power at random moments of writing and checkpointing. A disk lives through many cuts, so that recovery
/// starts from what an earlier cut left behind and is itself cut short.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "says how fast the disk is, not what it does"
)]
fn cut_many(synchronous: &str, cuts: u32) -> Tally {
    const CUTS_PER_DISK: u32 = 10;
    let started = Instant::now();
    let mut tally = Tally::default();
    for seed in 0.. {
        let disk = Disk::new(seed);
        let mut acknowledged = 0;
        for life in 0..CUTS_PER_DISK {
            if tally.cuts == cuts {
                let seconds = started.elapsed().as_secs_f64();
                println!("{synchronous}: {:.0} cuts/s, {tally:?}", f64::from(cuts) / seconds);
                return tally;
            }
            disk.cut_after(1 + mix(seed * 100 + u64::from(life)) % 60);
            if let Ok(db) = connect(&disk, synchronous) {
                acknowledged = insert_until_it_fails(&db, acknowledged).max(acknowledged);
            }
            assert!(disk.is_cut(), "seed {seed}, life {life}: stopped before the cut");
            disk.power_on();
            tally.cuts += 1;
            match disk.open(FILE).and_then(|db| survivors_or_error(&db)) {
                Ok(rows) => {
                    tally.cuts_with_loss += u32::from(rows < acknowledged);
                    tally.rows_lost += (acknowledged - rows).max(0);
                    tally.unacknowledged_kept += u32::from(rows > acknowledged);
                    acknowledged = rows;
                }
                Err(_) => {
                    tally.corrupt += 1;
                    break;
                }
            }
        }
    }
    unreachable!("seeds do not run out")
}

/// Connects, and checkpoints often enough that cuts fall into checkpoints and into a WAL that starts over.
fn connect(disk: &Disk, synchronous: &str) -> rusqlite::Result<Connection> {
    let db = disk.open(FILE)?;
    db.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 8; {SCHEMA}"
    ))?;
    Ok(db)
}

/// Inserts the rows after `last` until one fails, and returns the last that was acknowledged.
fn insert_until_it_fails(db: &Connection, last: i64) -> i64 {
    (last + 1..).find(|id| insert(db, *id).is_err()).expect("the armed fault comes") - 1
}

fn insert(db: &Connection, id: i64) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO row VALUES (?1, ?2)")?.execute((id, payload(id))).map(drop)
}

fn payload(id: i64) -> Vec<u8> {
    vec![id as u8; 20 + (mix(id as u64) % 1_500) as usize]
}

/// How many rows there are, if the file is sound: rows 1 to n, each with its own payload.
fn survivors(db: &Connection) -> Result<i64, String> {
    survivors_or_error(db).map_err(|error| error.to_string())
}

fn survivors_or_error(db: &Connection) -> rusqlite::Result<i64> {
    let unsound = |what: String| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(11), Some(what));
    let verdict: String = db.query_row("PRAGMA quick_check", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Err(unsound(verdict));
    }
    let tables: i64 =
        db.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'row'", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(0);
    }
    let mut statement = db.prepare("SELECT id, payload FROM row ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        if row.get::<_, i64>(0)? != count || row.get::<_, Vec<u8>>(1)? != payload(count) {
            return Err(unsound(format!("row {count} is missing or altered")));
        }
    }
    Ok(count)
}

/// Reads while others write: what was acknowledged before a read began is in it, as long as there is power.
fn read_until(disk: &Disk, over: &AtomicBool, acknowledged: &AtomicI64) {
    let Ok(db) = disk.open(FILE) else { return };
    while !over.load(Ordering::SeqCst) {
        let before = acknowledged.load(Ordering::SeqCst);
        if let Ok(rows) = survivors_or_error(&db) {
            assert!(rows >= before, "{before} acknowledged, a reader sees {rows}");
        } else {
            assert!(disk.is_cut(), "a read failed with the power on");
        }
    }
}

fn is_busy<T>(answer: rusqlite::Result<T>) -> bool {
    answer.is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
}

/// Runs a checkpoint; true if someone was in its way.
fn checkpoint(db: &Connection, mode: &str) -> rusqlite::Result<bool> {
    db.busy_timeout(Duration::ZERO)?;
    db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get(0))
}

fn mix(seed: u64) -> u64 {
    let z = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (z ^ (z >> 29)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32
}
