//! Measures apalis-sqlite; see ../README.md.
//!
//! Tried on two cores (jobs a second; the machine was shared, so compare
//! within a line only; the best is the default here):
//!   workers  20,000 jobs: 1 or 2: 230 to 330, cut at the limit; 16: 1,600;
//!            64: 4,300; 256: 6,600. 50,000 jobs: 256: 5,200; 512 (batch 20):
//!            6,200; 1000: 8,800
//!   batch    of 64 workers 50: 4,300; 200: 3,500; of one worker, 3,000 jobs,
//!            10: 490; 30: 770; 100: 810; 1000: 550
//!   pool     1 connection: 4,300; 4: 3,200, and enqueue_64 4,700 against
//!            1,600, as only one of the four runs without synchronising
//!   lock     false 8,800; true 3,900
//!   threads  of tokio: no difference when draining; when enqueueing, three
//!            times: 0: 4,300, 5,700, 4,500; 1: 5,500, 6,600, 4,900; 2: 3,000,
//!            5,200, 4,600
//!   ANALYZE  before draining: no difference
//! So many workers because apalis finds the rows to acknowledge by the name
//! of the worker, walking all that worker ever took once for every job of the
//! batch: a worker's time grows with the square of the jobs it has done. With
//! 1000 workers and batches of 50 each takes one batch, and never gets there.
//! retry_path, 2,000 jobs: 1 worker: 350; 64: 2,200; 1000: 820.

#[path = "../../common.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteStorage};
use common::{Args, CALLERS, FAILURES, Outcome};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const QUEUE: &str = "bench";
/// Jobs a worker fetches, and acknowledges, at once.
const BATCH: usize = 50;

/// Times each job was started, and how many of them ran to success.
#[derive(Clone)]
struct Tally {
    attempts: Arc<Vec<AtomicU8>>,
    succeeded: Arc<AtomicUsize>,
    failures: u8,
}

fn main() {
    let args = Args::parse();
    common::runtime(&args, 1).block_on(measure(args));
}

async fn measure(args: Args) {
    let path = common::fresh(&args.dir, "apalis.db");
    let connections = args.setting("pool", 1u32);
    let pool = SqlitePoolOptions::new()
        .min_connections(connections)
        .max_connections(connections)
        .acquire_timeout(args.limit + Duration::from_secs(30))
        .connect_with(
            SqliteConnectOptions::new().filename(&path).create_if_missing(true).busy_timeout(args.limit),
        )
        .await
        .expect("open the database");
    SqliteStorage::setup(&pool).await.expect("set up the tables");
    let storage: SqliteStorage<usize> = SqliteStorage::new(&pool).with_config(
        Config::default()
            .queue(QUEUE)
            .batch_size(args.setting("batch", BATCH))
            .lock_tasks(args.setting("lock", false)),
    );

    let elapsed = match args.measure.as_str() {
        "enqueue_one" => enqueue(&storage, &args, 1).await,
        "enqueue_64" => enqueue(&storage, &args, CALLERS).await,
        "drain" => drain(&storage, &pool, &args, 0).await,
        "retry_path" => drain(&storage, &pool, &args, FAILURES).await,
        other => panic!("unknown measure {other}"),
    };

    let completed = match args.measure.as_str() {
        "drain" | "retry_path" => recorded(&pool, "Done").await,
        _ => recorded(&pool, "Pending").await,
    };
    let (journal_mode, synchronous) = modes(&pool, connections).await;
    common::report("apalis", &args, &Outcome { completed, elapsed, journal_mode, synchronous });
    std::process::exit(0);
}

async fn recorded(pool: &SqlitePool, status: &str) -> usize {
    sqlx::query_scalar::<_, i64>("SELECT count(*) FROM Jobs WHERE status = ?1")
        .bind(status)
        .fetch_one(pool)
        .await
        .expect("count the jobs") as usize
}

/// Reads the modes of every connection of the pool: apalis' setup sets
/// `synchronous` on whichever one connection it is handed.
async fn modes(pool: &SqlitePool, connections: u32) -> (String, String) {
    let mut held = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    let mut journal = String::new();
    for _ in 0..connections {
        let mut connection = pool.acquire().await.expect("take a connection");
        let mode: i64 = sqlx::query_scalar("PRAGMA synchronous")
            .fetch_one(&mut *connection)
            .await
            .expect("read synchronous");
        journal = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&mut *connection)
            .await
            .expect("read journal_mode");
        let name = synchronous_name(mode);
        if !seen.contains(&name) {
            seen.push(name);
        }
        held.push(connection);
    }
    (journal, seen.join("+"))
}

/// SQLite answers `PRAGMA synchronous` with a number.
fn synchronous_name(mode: i64) -> &'static str {
    match mode {
        0 => "OFF",
        1 => "NORMAL",
        2 => "FULL",
        3 => "EXTRA",
        _ => "?",
    }
}

async fn enqueue(storage: &SqliteStorage<usize>, args: &Args, callers: usize) -> Duration {
    let next = Arc::new(AtomicUsize::new(0));
    let (jobs, limit, start) = (args.jobs, args.limit, Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (mut storage, next) = (storage.clone(), next.clone());
        tasks.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= jobs || start.elapsed() >= limit {
                    return;
                }
                storage.push(n).await.expect("push a job");
            }
        });
    }
    tasks.join_all().await;
    start.elapsed()
}

async fn run(n: usize, tally: Data<Tally>) -> Result<(), BoxDynError> {
    if tally.attempts[n].fetch_add(1, Ordering::Relaxed) < tally.failures {
        return Err("not yet".into());
    }
    tally.succeeded.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// `drain`, and with failures `retry_path`. The retries are those of the
/// storage (a failed job is recorded and fetched again, up to its 25
/// attempts); the retry layer of apalis calls the handler again in memory and
/// records nothing in between, which is not the thing measured.
async fn drain(storage: &SqliteStorage<usize>, pool: &SqlitePool, args: &Args, failures: u8) -> Duration {
    let mut sink = storage.clone();
    let all: Vec<usize> = (0..args.jobs).collect();
    for chunk in all.chunks(10_000) {
        sink.push_bulk(chunk.to_vec()).await.expect("push jobs");
    }

    let tally = Tally {
        attempts: Arc::new((0..args.jobs).map(|_| AtomicU8::new(0)).collect()),
        succeeded: Arc::new(AtomicUsize::new(0)),
        failures,
    };
    let interval = Duration::from_millis(args.setting("interval", 10));
    let start = Instant::now();
    let workers = if failures == 0 { (args.jobs / BATCH).max(1) } else { 64 };
    for n in 0..args.setting("workers", workers) {
        let worker = WorkerBuilder::new(format!("worker-{n}"))
            .backend(storage.clone().poll_with_interval(interval))
            .data(tally.clone())
            .build(run);
        tokio::spawn(async move {
            if let Err(error) = worker.run().await {
                eprintln!("apalis worker stopped: {error}");
            }
        });
    }
    // The handlers count for free; only once the last has run is the file
    // asked, until it has them all.
    common::wait_until(start, args.limit, || tally.succeeded.load(Ordering::Relaxed) >= args.jobs).await;
    while recorded(pool, "Done").await < args.jobs && start.elapsed() < args.limit {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}
