//! The server dies: it comes back, another takes its place, or the one it waits for is gone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redrive::{Engine, JobId, PostgresStore, millis, secs};
use redrive_testbed::Cluster;

use crate::books::{balance, number, until_all_done};
use crate::child::Work;
use crate::sessions::{engine, produce};
use crate::times;

/// The bar: serving again after a promotion.
const SERVING: Duration = secs(5);

/// `REDRIVE_POSTMASTER_KILLS` times on one server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postmaster_takes_no_acknowledged_job_with_it() {
    let cluster = Cluster::start();
    let url = cluster.url("postgres");
    let engine = engine(PostgresStore::connect(&url).await.unwrap()).await;
    let (mut acknowledged, mut n) = (BTreeSet::new(), 0);
    for _ in 0..times("REDRIVE_POSTMASTER_KILLS", 1) {
        work_for(millis(500), &engine, &mut acknowledged, &mut n).await;
        cluster.kill_postmaster();
        work_for(millis(200), &engine, &mut acknowledged, &mut n).await;
        tokio::task::block_in_place(|| cluster.restart());
        let took = until_served(&engine, &mut acknowledged, &mut n).await;
        println!("postmaster: served {took:?} after its restart");
    }
    work_for(millis(200), &engine, &mut acknowledged, &mut n).await;
    until_all_done(&url, secs(60)).await;
    balance(&url, &acknowledged).await;
    println!("postmaster: tried={n} acknowledged={} lost=0", acknowledged.len());
}

/// `REDRIVE_FAILOVERS` times, with new servers each time: an old primary never comes back as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_synchronous_standby_loses_no_acknowledged_job() {
    for _ in 0..times("REDRIVE_FAILOVERS", 1) {
        let primary = Cluster::start();
        let standby = primary.synchronous_standby();
        let url = format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
            primary.port(),
            standby.port()
        );
        let engine = engine(PostgresStore::connect(&url).await.unwrap()).await;
        let (mut acknowledged, mut n) = (BTreeSet::new(), 0);
        work_for(millis(500), &engine, &mut acknowledged, &mut n).await;
        let before = acknowledged.len();
        primary.kill_postmaster();
        work_for(millis(100), &engine, &mut acknowledged, &mut n).await;
        tokio::task::block_in_place(|| standby.promote());
        let took = until_served(&engine, &mut acknowledged, &mut n).await;
        work_for(millis(200), &engine, &mut acknowledged, &mut n).await;
        let url = standby.url("postgres");
        until_all_done(&url, secs(60)).await;
        balance(&url, &acknowledged).await;
        println!(
            "failover: acknowledged before={before} all={} lost=0, served {took:?} after the promotion",
            acknowledged.len()
        );
        assert!(before > 0, "nothing was acknowledged before");
        assert!(took <= SERVING * 2, "the bar is {SERVING:?}, and a busy machine may take twice that");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_while_the_only_synchronous_standby_is_gone() {
    let primary = Cluster::start();
    let standby = primary.synchronous_standby();
    let engine = Engine::builder(PostgresStore::connect(&primary.url("postgres")).await.unwrap())
        .produce::<Work>()
        .build()
        .unwrap();
    let there = engine.enqueue(Work { number: 0, millis: 0 }).await.unwrap();
    standby.kill_postmaster();
    let hanging = tokio::spawn({
        let engine = engine.clone();
        async move { engine.enqueue(Work { number: 1, millis: 0 }).await }
    });
    let client = redrive_testbed::connect(&primary.url("postgres")).await.unwrap();
    until_hanging(&client).await;
    assert!(!hanging.is_finished());
    // Whoever is thrown out has committed here, but nowhere else: that is not an answer either.
    let thrown_out = number(
        &client,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
    );
    assert_eq!(thrown_out.await, 1);
    until_hanging(&client).await;
    tokio::time::sleep(secs(1)).await;
    assert!(!hanging.is_finished(), "acknowledged without a standby");
    tokio::task::block_in_place(|| standby.restart());
    let answer =
        tokio::time::timeout(secs(40), hanging).await.expect("the standby is back").unwrap().unwrap();
    assert_ne!(answer.id, there.id);
    assert_eq!(answer.how, redrive::How::Created);
    assert_eq!(number(&client, "SELECT count(*) FROM redrive.jobs").await, 2);
    // What was acknowledged is with the standby when the primary goes.
    primary.kill_postmaster();
    tokio::task::block_in_place(|| standby.promote());
    let client = redrive_testbed::connect(&standby.url("postgres")).await.unwrap();
    assert_eq!(number(&client, "SELECT count(*) FROM redrive.jobs").await, 2);
}

async fn until_hanging(client: &redrive_testbed::tokio_postgres::Client) {
    let hangs = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    while number(client, hangs).await == 0 {
        tokio::time::sleep(millis(5)).await;
    }
}

async fn work_for(time: Duration, engine: &Engine, acknowledged: &mut BTreeSet<JobId>, n: &mut u64) {
    tokio::select! {
        () = produce(engine, acknowledged, n) => {}
        () = tokio::time::sleep(time) => {}
    }
}

/// How long it takes from now until a new job is taken and has run.
async fn until_served(engine: &Engine, acknowledged: &mut BTreeSet<JobId>, n: &mut u64) -> Duration {
    let since = Instant::now();
    loop {
        *n += 1;
        assert!(since.elapsed() < secs(60), "it does not serve again");
        let Ok(job) = engine.enqueue(Work { number: *n, millis: 0 }).await else { continue };
        acknowledged.insert(job.id);
        while let Ok(Some(detail)) = engine.get(job.id).await {
            if detail.job.state.is_final() {
                return since.elapsed();
            }
            tokio::time::sleep(millis(10)).await;
        }
    }
}
