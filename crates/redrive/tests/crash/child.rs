//! The process that is killed. It says on standard output what was acknowledged, and in the ledger file what it did.

#![expect(clippy::disallowed_methods, reason = "a process of its own reads its task from the environment")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redrive::{Attempt, Clock, Engine, Failure, Happening, NewJob, Payload, Queue, SqliteStore};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// What the child is to do.
pub(crate) const TASK: &str = "REDRIVE_CRASH_TASK";
/// Where.
pub(crate) const FOLDER: &str = "REDRIVE_CRASH_FOLDER";
/// How many jobs a bulk call enqueues.
pub(crate) const BULK: usize = 20;
/// How many keys are fought over.
pub(crate) const KEYS: usize = 40;
/// How many healthy jobs are in flight with the poison pill.
pub(crate) const NEIGHBOURS: usize = 50;

/// A job that was enqueued to be counted.
#[derive(Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Unique to the call that enqueued it.
    pub(crate) call: String,
}

impl Payload for Counted {
    const KIND: &'static str = "counted";
}

/// A job that fails so often before it finishes.
#[derive(Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) failures: u32,
    pub(crate) millis: u64,
}

impl Payload for Work {
    const KIND: &'static str = "work";
}

/// A job that kills its process, or one beside it that does not.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pill {
    pub(crate) deadly: bool,
}

impl Payload for Pill {
    const KIND: &'static str = "pill";
}

pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("jobs.db")
}

pub(crate) fn ledger(folder: &Path) -> PathBuf {
    folder.join("ledger")
}

/// The queue of every engine here: many at once, so that a kill finds many in flight.
pub(crate) fn queue() -> Queue {
    Queue::new("default").concurrency(NEIGHBOURS + 14)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn main() {
    let folder = PathBuf::from(std::env::var(FOLDER).expect("the parent says where"));
    let store = SqliteStore::open(database(&folder)).await.unwrap();
    match std::env::var(TASK).expect("the parent says what").as_str() {
        "enqueue" => enqueue(store).await,
        "execute" => execute(store, &folder).await,
        "pill" => swallow(store, &folder).await,
        other => panic!("{other:?} is no task"),
    }
}

/// One write, so that lines of several tasks do not mix and a kill leaves no half.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

async fn enqueue(store: SqliteStore) {
    let engine = Engine::builder(store).queue(queue()).produce::<Counted>().build().unwrap();
    say("working");
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let engine = engine.clone();
        tasks.spawn(async move {
            for n in 0.. {
                let call = format!("single {} {task} {n}", std::process::id());
                let job = engine.enqueue(Counted { call }).await.unwrap();
                say(&format!("ok {}", job.id));
            }
        });
    }
    let bulk = engine.clone();
    tasks.spawn(async move {
        for n in 0.. {
            let call = format!("bulk {} {n}", std::process::id());
            let jobs = bulk.enqueue_all((0..BULK).map(|_| Counted { call: call.clone() })).await.unwrap();
            jobs.iter().for_each(|job| say(&format!("ok {}", job.id)));
        }
    });
    tasks.spawn(async move {
        for n in 0.. {
            let key = format!("key {}", n % KEYS);
            let call = format!("keyed {} {n}", std::process::id());
            let job = engine.enqueue(NewJob::from(Counted { call }).key(key)).await.unwrap();
            say(&format!("ok {}", job.id));
        }
    });
    while tasks.join_next().await.is_some() {}
}

/// The ledger outside the database: appended to, a line a write, so that it survives the kill.
#[derive(Clone)]
struct Ledger(Arc<File>, Clock);

impl Ledger {
    fn open(folder: &Path) -> Ledger {
        let file = OpenOptions::new().append(true).create(true).open(ledger(folder)).unwrap();
        Ledger(Arc::new(file), Clock::system())
    }

    fn note(&self, what: &str, job: redrive::JobId, attempt: u32) {
        let line = format!("{what} {job} {attempt} {} {}\n", std::process::id(), self.1.now().as_millis());
        (&*self.0).write_all(line.as_bytes()).unwrap();
    }
}

async fn execute(store: SqliteStore, folder: &Path) {
    let ledger = Ledger::open(folder);
    let notes = ledger.clone();
    let work = move |attempt: Attempt<Work>| {
        let notes = notes.clone();
        async move {
            notes.note("start", attempt.id, attempt.number);
            tokio::time::sleep(Duration::from_millis(attempt.payload.millis)).await;
            if attempt.job().ledger.failures < attempt.payload.failures {
                notes.note("fail", attempt.id, attempt.number);
                return Err(Failure::retry("not yet"));
            }
            notes.note("end", attempt.id, attempt.number);
            Ok(())
        }
    };
    let engine = Engine::builder(store).queue(queue()).handle(work).build().unwrap();
    let mut events = engine.events();
    let told = tokio::spawn(async move {
        while let Ok(event) = events.recv().await {
            if let Happening::Succeeded { attempt, .. } = event.what {
                ledger.note("accepted", event.job, attempt);
            }
        }
    });
    say("working");
    engine.drain().await.unwrap();
    drop(engine);
    told.await.unwrap();
    say("finished");
}

async fn swallow(store: SqliteStore, folder: &Path) {
    let ledger = Ledger::open(folder);
    let (started, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let work = move |attempt: Attempt<Pill>| {
        let (ledger, started, all) = (ledger.clone(), started.clone(), all.clone());
        async move {
            ledger.note("start", attempt.id, attempt.number);
            let first = attempt.number == 1;
            if first && started.fetch_add(1, Ordering::SeqCst) == NEIGHBOURS {
                all.notify_waiters();
                all.notify_one();
            }
            if attempt.payload.deadly {
                if first && started.load(Ordering::SeqCst) <= NEIGHBOURS {
                    all.notified().await;
                }
                std::process::abort();
            }
            if first {
                // In flight with the pill, until that ends everything.
                std::future::pending::<()>().await;
            }
        }
    };
    let engine = Engine::builder(store).queue(queue()).handle(work).build().unwrap();
    say("working");
    engine.drain().await.unwrap();
    say("finished");
}
