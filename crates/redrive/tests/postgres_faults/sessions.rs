//! Sessions end under an engine's hands: the server's, and a pooler's.

use std::collections::BTreeSet;

use redrive::{Attempt, Engine, JobId, PostgresOptions, PostgresStore, Rng, millis, secs};
use redrive_testbed::PgBouncer;

use crate::books::{balance, number, until_all_done};
use crate::child::{Work, queue};
use crate::times;

/// An engine that takes jobs and works on them in this process.
pub(crate) async fn engine(store: PostgresStore) -> Engine {
    let work = |attempt: Attempt<Work>| async move {
        tokio::time::sleep(millis(attempt.payload.millis)).await;
    };
    let engine = Engine::builder(store).queue(queue()).lease(secs(5)).handle(work).build().unwrap();
    let running = engine.clone();
    tokio::spawn(async move { running.run(std::future::pending()).await });
    engine
}

/// Enqueues for as long as it is polled, and says what was acknowledged. What was not may be there nevertheless.
pub(crate) async fn produce(engine: &Engine, acknowledged: &mut BTreeSet<JobId>, number: &mut u64) {
    let mut rng = Rng::seeded(*number);
    loop {
        *number += 1;
        if let Ok(job) = engine.enqueue(Work { number: *number, millis: rng.up_to(3) }).await {
            acknowledged.insert(job.id);
        }
        // As fast as one caller can, but not so fast that the work piles up.
        tokio::time::sleep(millis(1)).await;
    }
}

/// `REDRIVE_SESSIONS_ENDED` of them, one every 50 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_sessions_lose_nothing_and_the_pool_heals() {
    let database = redrive_testbed::database().await;
    let engine = engine(PostgresStore::connect(database.url()).await.unwrap()).await;
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let (mut acknowledged, mut n) = (BTreeSet::new(), 0);
    let one = "SELECT count(pg_terminate_backend(pid)) FROM (\
               SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'redrive' \
               ORDER BY random() LIMIT 1) AS one";
    let terminate = async {
        let mut ended = 0;
        while ended < times("REDRIVE_SESSIONS_ENDED", 100) {
            ended += u64::try_from(number(&client, one).await).unwrap();
            tokio::time::sleep(millis(50)).await;
        }
        ended
    };
    let ended = tokio::select! {
        ended = terminate => ended,
        () = produce(&engine, &mut acknowledged, &mut n) => unreachable!("it never ends"),
    };
    let healed = engine.enqueue(Work { number: n + 1, millis: 0 }).await.unwrap();
    acknowledged.insert(healed.id);
    until_all_done(database.url(), secs(30)).await;
    balance(database.url(), &acknowledged).await;
    println!("sessions: ended={ended} tried={n} acknowledged={} lost=0", acknowledged.len());
    assert!(acknowledged.len() as u64 > n * 9 / 10, "ended sessions are not the caller's trouble");
}

/// Statements have names only where a connection stays the same: a name means nothing, or something else, on the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_nobody_was_told_of_sees_no_names() {
    let database = redrive_testbed::database().await;
    let bouncer = PgBouncer::start(database.url());
    let url = bouncer.url(database.name());
    let engine = engine(PostgresStore::connect(&url).await.unwrap()).await;
    let direct = self::engine(PostgresStore::connect(database.url()).await.unwrap()).await;
    let mut acknowledged = BTreeSet::new();
    for n in 0..200 {
        let one = engine.enqueue(Work { number: 2 * n, millis: 1 });
        let other = direct.enqueue(Work { number: 2 * n + 1, millis: 1 });
        let (one, other) = tokio::try_join!(one, other).unwrap();
        acknowledged.extend([one.id, other.id]);
    }
    until_all_done(database.url(), secs(30)).await;
    balance(database.url(), &acknowledged).await;
    // Each of these has another of the pooler's connections, and together they have all that were used.
    let mut sessions = Vec::new();
    for _ in 0..PgBouncer::POOL / 2 {
        let session = redrive_testbed::connect(&url).await.unwrap();
        session.batch_execute("BEGIN").await.unwrap();
        let named = session.query_typed("SELECT name FROM pg_prepared_statements", &[]).await.unwrap();
        assert_eq!(named.len(), 0);
        sessions.push(session);
    }
}

/// `REDRIVE_POOLER_KILLS` times, with an engine that has no other way to the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_is_killed_loses_nothing() {
    let database = redrive_testbed::database().await;
    let bouncer = PgBouncer::start(database.url());
    let store = PostgresOptions::default().pooled().connect(&bouncer.url(database.name())).await.unwrap();
    let engine = engine(store).await;
    let (mut acknowledged, mut n) = (BTreeSet::new(), 0);
    let kills = times("REDRIVE_POOLER_KILLS", 5);
    let mut rng = Rng::seeded(3);
    let kill = async {
        for _ in 0..kills {
            tokio::time::sleep(millis(200 + rng.up_to(200))).await;
            tokio::task::block_in_place(|| bouncer.restart());
        }
    };
    tokio::select! {
        () = kill => {}
        () = produce(&engine, &mut acknowledged, &mut n) => unreachable!("it never ends"),
    }
    until_all_done(database.url(), secs(30)).await;
    balance(database.url(), &acknowledged).await;
    println!("pooler: kills={kills} tried={n} acknowledged={} lost=0", acknowledged.len());
    assert!(!acknowledged.is_empty());
}
