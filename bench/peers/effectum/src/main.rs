//! Measures effectum; see ../README.md.
//!
//! Tried on two cores, draining 50,000 jobs (jobs a second; the machine was
//! shared, so compare within a line only; the best is the default here):
//!   journal  delete (as shipped) 20,200; wal 43,800
//!   max      50: 30,400; 256: 41,100; 1024: 43,800; 8192: 36,100
//!   min      of 1024: 1: 36,800; 64: 41,600; 512: 45,700; once more, 512:
//!            41,500 and 1024: 49,700; later pairs were level
//!   workers  2 of 512: 41,100, no better than one of 1024
//!   threads  of tokio: 0 against 2 won four of seven pairs when draining,
//!            and 2 had the best single figures; 0 faster when enqueueing
//!            (70,100 against 58,900)
//!   retries  in retry_path, of 300 jobs: with 5, all failed for good; with a
//!            million, none had succeeded after 12 seconds

#[path = "../../common.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Args, CALLERS, FAILURES, Outcome};
use effectum::{Job, JobRunner, Queue, Retries, RunningJob, Worker};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const JOB: &str = "noop";
/// Times each job was started, shared with the handlers.
#[derive(Clone, Debug)]
struct Attempts(Arc<Vec<AtomicU8>>);

fn main() {
    let args = Args::parse();
    common::runtime(&args, 0).block_on(measure(args));
}

async fn measure(args: Args) {
    let path = common::fresh(&args.dir, "effectum.db");
    let journal_mode = prepare(&path, &args.setting("journal", "wal".to_owned()));
    let queue = Arc::new(Queue::new(&path).await.expect("open the queue"));

    let (completed, elapsed) = match args.measure.as_str() {
        "enqueue_one" => enqueue(&queue, &args, 1).await,
        "enqueue_64" => enqueue(&queue, &args, CALLERS).await,
        "drain" => drain(&queue, &args).await,
        "retry_path" => retry_path(&queue, &args, &path).await,
        other => panic!("unknown measure {other}"),
    };

    // Recorded, not merely believed: the counts come from the file.
    let completed = match args.measure.as_str() {
        "drain" | "retry_path" => recorded(&path, "succeeded"),
        _ => recorded(&path, "pending").min(completed),
    };
    common::report(
        "effectum",
        &args,
        &Outcome {
            completed,
            elapsed,
            journal_mode,
            // Set by Queue::with_options on the only connection that writes;
            // that connection is private, so this is from its source.
            synchronous: "NORMAL".to_owned(),
        },
    );
    // Whatever is still being retried need not be waited for.
    std::process::exit(0);
}

/// Creates the file in the journal mode asked for. The mode stays with the
/// file, and effectum does not change it: it sets a pragma named `journal`,
/// which SQLite does not know and ignores. So as shipped it runs on a rollback
/// journal, and here by default on the WAL its authors meant.
fn prepare(path: &Path, journal: &str) -> String {
    let db = rusqlite::Connection::open(path).expect("create the database");
    db.pragma_update_and_check(None, "journal_mode", journal, |row| row.get(0)).expect("set the journal mode")
}

fn recorded(path: &Path, status: &str) -> usize {
    let db = rusqlite::Connection::open(path).expect("open the database");
    db.busy_timeout(Duration::from_secs(30)).expect("set the timeout");
    db.query_row("SELECT count(*) FROM jobs WHERE status = ?1", [status], |row| row.get::<_, i64>(0))
        .expect("count the jobs") as usize
}

fn job(n: usize, max_retries: u32) -> Job {
    Job::builder(JOB)
        .json_payload(&n)
        .expect("a number is JSON")
        .retries(Retries {
            max_retries,
            backoff_initial_interval: Duration::ZERO,
            backoff_multiplier: 1.0,
            backoff_randomization: 0.0,
        })
        .build()
}

async fn add(queue: &Queue, args: &Args) {
    let retries = args.setting("retries", 5);
    let all: Vec<usize> = (0..args.jobs).collect();
    for chunk in all.chunks(10_000) {
        let jobs = chunk.iter().map(|n| job(*n, retries)).collect();
        queue.add_jobs(jobs).await.expect("add jobs");
    }
}

async fn enqueue(queue: &Arc<Queue>, args: &Args, callers: usize) -> (usize, Duration) {
    let next = Arc::new(AtomicUsize::new(0));
    let (jobs, limit, start) = (args.jobs, args.limit, Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (queue, next) = (queue.clone(), next.clone());
        tasks.spawn(async move {
            let mut added = 0;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= jobs || start.elapsed() >= limit {
                    return added;
                }
                queue.add_job(job(n, 5)).await.expect("add a job");
                added += 1;
            }
        });
    }
    let added = tasks.join_all().await.into_iter().sum();
    (added, start.elapsed())
}

async fn workers(queue: &Queue, args: &Args, attempts: &Attempts, failures: u8) -> Vec<Worker> {
    let max = args.setting("max", 1024u16);
    let min = args.setting("min", max);
    let mut workers = Vec::new();
    for _ in 0..args.setting("workers", 1) {
        let runner = JobRunner::builder(JOB, move |job: RunningJob, attempts: Attempts| async move {
            let n: usize = job.json_payload().map_err(|e| e.to_string())?;
            if attempts.0[n].fetch_add(1, Ordering::Relaxed) < failures {
                return Err("not yet".to_owned());
            }
            Ok(())
        })
        .build();
        let worker = Worker::builder(queue, attempts.clone())
            .min_concurrency(min)
            .max_concurrency(max)
            .jobs([runner])
            .build()
            .await
            .expect("start a worker");
        workers.push(worker);
    }
    workers
}

fn attempts(jobs: usize) -> Attempts {
    Attempts(Arc::new((0..jobs).map(|_| AtomicU8::new(0)).collect()))
}

async fn drain(queue: &Queue, args: &Args) -> (usize, Duration) {
    add(queue, args).await;
    let attempts = attempts(args.jobs);
    let start = Instant::now();
    let workers = workers(queue, args, &attempts, 0).await;
    // A job counts as finished once its completion is committed.
    let finished = || workers.iter().map(|w| w.counts().finished).sum::<u64>() as usize;
    common::wait_until(start, args.limit, || finished() >= args.jobs).await;
    let elapsed = start.elapsed();
    let completed = finished();
    for worker in workers {
        let _ = worker.unregister(Some(Duration::from_secs(5))).await;
    }
    (completed, elapsed)
}

/// effectum counts a retry against every job in the table (its UPDATE of
/// current_try and run_info has no WHERE), so jobs run out of retries they
/// never had, each failure costs a rewrite of the whole table, and the
/// measurement needs its limit. What counts is what the file says succeeded.
async fn retry_path(queue: &Queue, args: &Args, path: &Path) -> (usize, Duration) {
    add(queue, args).await;
    let attempts = attempts(args.jobs);
    let start = Instant::now();
    let workers = workers(queue, args, &attempts, FAILURES).await;
    let finished = || workers.iter().map(|w| w.counts().finished).sum::<u64>();
    let (mut seen, mut last, mut asked) = (0, start, start);
    // Over when the file says that every job is settled, or at the limit.
    common::wait_until(start, args.limit, || {
        let now = finished();
        if now != seen {
            (seen, last) = (now, Instant::now());
        }
        if now < args.jobs as u64 || asked.elapsed() < Duration::from_millis(200) {
            return false;
        }
        asked = Instant::now();
        recorded(path, "succeeded") + recorded(path, "failed") >= args.jobs
    })
    .await;
    let elapsed = last - start;
    eprintln!(
        "effectum retry_path: {} succeeded and {} failed for good, of {}",
        recorded(path, "succeeded"),
        recorded(path, "failed"),
        args.jobs
    );
    (seen as usize, elapsed)
}
