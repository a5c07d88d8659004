//! Asked to stop under load: what is cut short is given back at no cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redrive::{Attempt, Engine, NewJob, Payload, Rng, SqliteStore, StateName, millis, secs};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::child::{database, queue};
use crate::folder;

#[derive(Serialize, Deserialize)]
struct Task {
    /// It ends only in a later run of the engine.
    hangs: bool,
}

impl Payload for Task {
    const KIND: &'static str = "task";
}

const JOBS: usize = 200;
const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_under_load_costs_no_attempt_and_everything_finishes_later() {
    let mut rng = Rng::seeded(3);
    let mut interrupted = 0;
    for round in 0..ROUNDS {
        let folder = folder(round);
        let store = SqliteStore::open(database(folder.path())).await.unwrap();
        let store = Arc::new(store);
        let (enough, starts) = (1 + rng.up_to(JOBS as u64 - 1), watch::Sender::new(0));
        let first_run = Arc::new(AtomicU32::new(1));
        let work = {
            let (starts, first_run) = (starts.clone(), first_run.clone());
            move |attempt: Attempt<Task>| {
                let (starts, first_run) = (starts.clone(), first_run.clone());
                async move {
                    starts.send_modify(|starts| *starts += 1);
                    if attempt.payload.hangs && first_run.load(Ordering::SeqCst) == 1 {
                        std::future::pending::<()>().await;
                    }
                    tokio::task::yield_now().await;
                }
            }
        };
        let engine = Engine::on(store.clone()).queue(queue()).grace(millis(5)).handle(work).build().unwrap();
        let jobs = (0..JOBS).map(|n| NewJob::from(Task { hangs: n % 7 == 0 }));
        let ids: Vec<_> = engine.enqueue_all(jobs).await.unwrap().iter().map(|job| job.id).collect();
        let mut count = starts.subscribe();
        engine.run(async move { drop(count.wait_for(|starts| *starts >= enough).await) }).await.unwrap();

        let totals = engine.counts().await.unwrap()[0].totals;
        assert_eq!((totals.failures, totals.crashes, totals.dead), (0, 0, 0), "round {round}");
        first_run.store(0, Ordering::SeqCst);
        tokio::time::timeout(secs(30), engine.drain()).await.expect("nothing waits for a lease").unwrap();
        let totals = engine.counts().await.unwrap()[0].totals;
        let mut given_back = 0;
        for id in ids {
            let detail = engine.get(id).await.unwrap().unwrap();
            let counted = detail.job.ledger;
            assert_eq!(detail.job.state.name(), StateName::Succeeded);
            assert_eq!((counted.failures, counted.crashes), (0, 0));
            assert_eq!(counted.attempt, counted.interruptions + 1);
            given_back += u64::from(counted.interruptions);
        }
        assert_eq!((totals.interruptions, totals.succeeded), (given_back, JOBS as u64));
        interrupted += given_back;
    }
    println!("shutdown: runs={ROUNDS} interruptions={interrupted} failures=0 lost=0");
    assert!(interrupted > 0, "nothing was under way when the shutdown came");
}
