//! Killed while it enqueues: what was acknowledged is there, once.

use std::collections::BTreeSet;
use std::time::Instant;

use redrive::{Rng, SqliteStore, Store as _};
use rusqlite::Connection;

use crate::child::{BULK, database};
use crate::{Victim, folder, kills, moment, sound};

/// How many lives one file goes through, so that recovery starts from what an earlier kill left.
const LIVES: usize = 10;

#[test]
fn what_a_killed_process_had_acknowledged_is_there_and_there_once() {
    let (kills, started) = (kills(1), Instant::now());
    let mut rng = Rng::seeded(1);
    let (mut killed, mut acknowledged, mut lost) = (0, 0, 0);
    for round in 0.. {
        let folder = folder(round);
        let mut said = BTreeSet::new();
        for _ in 0..LIVES.min(kills - killed) {
            let (dead, lines) = Victim::start("enqueue", folder.path()).kill_after(moment(&mut rng));
            assert!(dead, "it ended by itself: {lines:?}");
            killed += 1;
            said.extend(lines.iter().filter_map(|line| line.strip_prefix("ok ")).map(str::to_owned));
            let db = sound(folder.path());
            let there = ids(&db);
            lost += said.difference(&there).count();
            acknowledged_once(&db);
        }
        acknowledged += said.len();
        counted_right(&folder);
        if killed >= kills {
            break;
        }
    }
    let rate = killed as f64 / started.elapsed().as_secs_f64();
    println!(
        "enqueueing: kills={killed} acked={acknowledged} lost={lost} double_enqueued=0 ({rate:.0} kills/s)"
    );
    assert_eq!(lost, 0);
    assert!(acknowledged > killed * 10, "the children hardly got to work: {acknowledged}");
}

fn ids(db: &Connection) -> BTreeSet<String> {
    let mut statement = db.prepare("SELECT id FROM redrive_jobs").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// No call's job is there twice, and of a bulk call all are there or none.
fn acknowledged_once(db: &Connection) {
    let sql = "SELECT json_extract(payload, '$.call') AS call, count(*) FROM redrive_jobs GROUP BY call";
    let mut statement = db.prepare(sql).unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let (call, count): (String, u32) = (row.get(0).unwrap(), row.get(1).unwrap());
        assert_eq!(count as usize, if call.starts_with("bulk") { BULK } else { 1 }, "{call}");
    }
}

/// The counters that never count rows agree with the rows.
#[tokio::main(flavor = "current_thread")]
async fn counted_right(folder: &tempfile::TempDir) {
    let there = ids(&sound(folder.path())).len() as u64;
    let store = SqliteStore::open(database(folder.path())).await.unwrap();
    let counts = store.counts().await.unwrap();
    let [queue] = counts.as_slice() else { panic!("one queue: {counts:?}") };
    assert_eq!((queue.waiting, queue.running, queue.totals.enqueued), (there, 0, there));
    store.close().await.unwrap();
}
