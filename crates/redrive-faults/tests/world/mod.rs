//! The store on the simulated disk, driven call by call, and what must hold of its file.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redrive::{
    Admission, Claim, ClaimId, HolderId, Job, JobId, Json, Lease, NewJob, OnRetry, Outcome, Policy, Queue,
    Result, Rng, Settlement, SqliteOptions, SqliteStore, Store, Timestamp, Want,
};
use redrive_faults::Disk;
use rusqlite::Connection;

pub(crate) const FILE: &str = "jobs.db";
pub(crate) const QUEUE: &str = "default";
/// When these worlds begin.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_millis(1_767_225_600_000);

pub(crate) async fn open(disk: &Disk) -> Result<SqliteStore> {
    SqliteOptions::default().vfs(disk.vfs()).open(FILE).await
}

/// A disk with a database that has the schema and nothing else, made once.
pub(crate) fn disk(seed: u64) -> Disk {
    static EMPTY: OnceLock<Vec<u8>> = OnceLock::new();
    let disk = Disk::new(seed);
    let empty = EMPTY.get_or_init(|| {
        let new = Disk::new(u64::MAX);
        std::thread::scope(|scope| scope.spawn(|| make(&new)).join().expect("the schema is made"));
        new.image(FILE).expect("the file is there")
    });
    disk.put(FILE, empty);
    disk
}

#[tokio::main(flavor = "current_thread")]
async fn make(disk: &Disk) {
    open(disk).await.unwrap().close().await.unwrap();
}

/// Makes jobs and ids, from one seed, at a time that goes on.
pub(crate) struct Maker {
    pub(crate) rng: Rng,
    pub(crate) now: Timestamp,
    queue: Queue,
    count: u16,
}

impl Maker {
    pub(crate) fn new(seed: u64) -> Maker {
        let policy = Policy::fixed(Duration::from_millis(1)).no_jitter().attempts(3);
        Maker { rng: Rng::seeded(seed), now: BEGINNING, queue: Queue::new(QUEUE).policy(policy), count: 0 }
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.rng.up_to(end - 1)
    }

    /// Time passes.
    pub(crate) fn tick(&mut self) -> Timestamp {
        self.now = self.now + Duration::from_millis(1 + self.below(20));
        self.now
    }

    pub(crate) fn job(&mut self, key: Option<String>) -> Admission {
        let length = self.below(600) as usize;
        let payload = Json::of(&"x".repeat(length)).expect("text is JSON");
        let mut new = NewJob::of_kind("work", payload);
        if let Some(key) = key {
            new = new.key(key);
        }
        self.count = (self.count + 1) & 0x0fff;
        let id = JobId::new(self.now, self.count, &mut self.rng);
        redrive::admit(new, &self.queue, id, self.now, &mut self.rng).expect("it is valid")
    }

    pub(crate) fn holder(&mut self) -> HolderId {
        HolderId(self.rng.next_u128())
    }

    pub(crate) fn claim(&mut self, holder: HolderId, limit: usize) -> Claim {
        let wants = vec![Want { queue: QUEUE.into(), limit, on_retry: OnRetry::Block }];
        let ids = [ClaimId(self.rng.next_u128()), ClaimId(self.rng.next_u128())];
        Claim { holder, ids, wants, suspect: true, kinds: None, ahead: Duration::ZERO }
    }

    pub(crate) fn settlement(&mut self, lease: Lease, job: Job, outcome: Outcome) -> Settlement {
        let transition = redrive::settle(&job, outcome, self.now, &mut self.rng);
        Settlement {
            lease,
            job: Arc::new(job),
            transition,
            started_at: self.now,
            ended_at: self.now,
            again: None,
        }
    }

    /// A new process begins: it registers, and counts a crash for what the one before it still held.
    pub(crate) async fn begin(&mut self, store: &SqliteStore) -> Result<HolderId> {
        let now = self.tick();
        let holder = self.holder();
        store.register(holder, "test", now + Duration::from_secs(30)).await?;
        for expired in store.expired(now).await?.over {
            let jobs: Vec<_> = expired.jobs;
            let ends =
                jobs.into_iter().map(|(lease, job)| self.settlement(lease, job, Outcome::Lost)).collect();
            store.expire(expired.holder, ends, now).await?;
        }
        Ok(holder)
    }
}

/// Where a job stands in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing {
    /// The final state, if it has one.
    pub(crate) done: Option<String>,
    pub(crate) attempt: u32,
}

/// Every job in the file; an error says what does not hold.
pub(crate) fn standings(db: &Connection) -> std::result::Result<BTreeMap<JobId, Standing>, String> {
    let text = |error: rusqlite::Error| error.to_string();
    let verdict: String = db.query_row("PRAGMA quick_check", [], |row| row.get(0)).map_err(text)?;
    if verdict != "ok" {
        return Err(verdict);
    }
    let checks = [
        (
            "jobs not in exactly one of live and done",
            include_str!("../../../redrive/tests/support/astray.sql"),
        ),
        ("keys not of live jobs", include_str!("../../../redrive/tests/support/keys_astray.sql")),
        ("counters that differ from a recount", include_str!("miscounted.sql")),
    ];
    for (what, sql) in checks {
        let count: i64 = db.query_row(sql, [], |row| row.get(0)).map_err(text)?;
        if count != 0 {
            return Err(format!("{count} {what}"));
        }
    }
    let mut statement = db
        .prepare(
            "SELECT jobs.id, done.state, coalesce(done.attempt, live.attempt) FROM redrive_jobs AS jobs \
             LEFT JOIN redrive_live AS live ON live.seq = jobs.seq \
             LEFT JOIN redrive_done AS done ON done.seq = jobs.seq",
        )
        .map_err(text)?;
    let mut rows = statement.query([]).map_err(text)?;
    let mut standings = BTreeMap::new();
    while let Some(row) = rows.next().map_err(text)? {
        let id: String = row.get(0).map_err(text)?;
        let standing = Standing { done: row.get(1).map_err(text)?, attempt: row.get(2).map_err(text)? };
        standings.insert(id.parse()?, standing);
    }
    Ok(standings)
}
