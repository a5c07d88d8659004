//! A transaction that stays open for long keeps every dead row from being cleaned up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redrive::{Attempt, Engine, PostgresStore, Queue, secs};

use crate::child::Work;
use crate::times;

/// Jobs of one call.
const BULK: u64 = 2_000;
/// How many may wait, so that there is always work and never a mountain of it.
const WAITING_MAX: u64 = 10_000;

/// `REDRIVE_PINNED_SECS` with a snapshot held, after a tenth of it without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_snapshot_leaves_most_of_the_throughput() {
    let pinned = times("REDRIVE_PINNED_SECS", 0);
    if pinned == 0 {
        println!("pressure: not now; REDRIVE_PINNED_SECS says for how long");
        return;
    }
    let database = redrive_testbed::database().await;
    let done = Arc::new(AtomicU64::new(0));
    let count = done.clone();
    let work = move |_: Attempt<Work>| {
        let count = count.clone();
        async move {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let queue = Queue::new("default").concurrency(2_000);
    let engine = Engine::builder(store).queue(queue).handle(work).build().unwrap();
    let running = engine.clone();
    tokio::spawn(async move { running.run(std::future::pending()).await });
    tokio::spawn(feed(engine, done.clone()));
    tokio::time::sleep(secs(5)).await;
    let before = rate(&done, secs((pinned / 10).max(5))).await;
    let holder = redrive_testbed::connect(database.url()).await.unwrap();
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM redrive.live")
        .await
        .unwrap();
    let (mut slowest, began) = (f64::MAX, Instant::now());
    let mut all = Vec::new();
    while began.elapsed() < secs(pinned) {
        let now = rate(&done, secs((pinned / 10).clamp(5, 30))).await;
        slowest = slowest.min(now);
        all.push(now.round());
    }
    println!(
        "pressure: {before:.0} jobs/s before; with a pinned snapshot {all:?}; slowest {:.2}",
        slowest / before
    );
    // The last quarter: what collapses has collapsed by then, and one slow moment of the machine does not count.
    let end = &all[all.len() * 3 / 4..];
    let last = end.iter().sum::<f64>() / end.len() as f64;
    assert!(last >= before * 0.7, "{last:.0} jobs/s at the end, {before:.0} before");
    holder.batch_execute("COMMIT").await.unwrap();
}

async fn feed(engine: Engine, done: Arc<AtomicU64>) {
    let mut number = 0;
    loop {
        if number > done.load(Ordering::Relaxed) + WAITING_MAX {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let jobs: Vec<Work> = (number..number + BULK).map(|number| Work { number, millis: 0 }).collect();
        engine.enqueue_all(jobs).await.unwrap();
        number += BULK;
    }
}

async fn rate(done: &AtomicU64, time: Duration) -> f64 {
    let (before, since) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(time).await;
    (done.load(Ordering::Relaxed) - before) as f64 / since.elapsed().as_secs_f64()
}
