//! Clusters and databases: what a test that uses them may rely on.

use std::time::Duration;

use redrive_testbed::{Cluster, connect, database};

#[tokio::test]
async fn a_cluster_answers_with_the_durability_that_postgresql_ships() {
    let cluster = Cluster::start_with(&[("work_mem", "5MB")]);
    let client = connect(&cluster.url("postgres")).await.unwrap();
    for (setting, expected) in [("fsync", "on"), ("synchronous_commit", "on"), ("work_mem", "5MB")] {
        let value: String = client.query_one("SELECT current_setting($1)", &[&setting]).await.unwrap().get(0);
        assert_eq!(value, expected, "{setting}");
    }
}

#[tokio::test]
async fn what_was_committed_survives_a_killed_postmaster() {
    let cluster = Cluster::start();
    let client = connect(&cluster.url("postgres")).await.unwrap();
    client.batch_execute("CREATE TABLE t (id int); INSERT INTO t VALUES (7)").await.unwrap();
    let killed = cluster.pid();

    cluster.kill_postmaster();
    cluster.restart();

    assert_ne!(cluster.pid(), killed);
    let client = connect(&cluster.url("postgres")).await.unwrap();
    let id: i32 = client.query_one("SELECT id FROM t", &[]).await.unwrap().get(0);
    assert_eq!(id, 7);
    assert!(cluster.log().contains("automatic recovery in progress"), "{}", cluster.log());
}

#[tokio::test]
async fn a_synchronous_standby_has_everything_that_was_acknowledged() {
    let primary = Cluster::start();
    let standby = primary.synchronous_standby();
    let client = connect(&primary.url("postgres")).await.unwrap();
    client.batch_execute("CREATE TABLE t (id int)").await.unwrap();
    for id in 0..100_i32 {
        client.execute("INSERT INTO t VALUES ($1)", &[&id]).await.unwrap();
    }

    primary.kill_postmaster();
    standby.promote();

    let client = connect(&standby.url("postgres")).await.unwrap();
    let count: i64 = client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0);
    assert_eq!(count, 100);
    client.batch_execute("INSERT INTO t VALUES (100)").await.expect("it takes writes and waits for nobody");
}

#[tokio::test]
async fn a_commit_waits_for_a_synchronous_standby() {
    let primary = Cluster::start();
    let standby = primary.synchronous_standby();
    let client = connect(&primary.url("postgres")).await.unwrap();
    client.batch_execute("CREATE TABLE t (id int)").await.unwrap();
    standby.stop();

    let observer = connect(&primary.url("postgres")).await.unwrap();
    let mut insert = std::pin::pin!(client.batch_execute("INSERT INTO t VALUES (1)"));
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let is_waiting = async { while observer.query_opt(waits, &[]).await.unwrap().is_none() {} };

    tokio::select! {
        biased;
        answer = &mut insert => panic!("the commit was acknowledged without the standby: {answer:?}"),
        () = is_waiting => {}
    }
    standby.restart();
    insert.await.expect("the standby is back");
}

#[tokio::test]
async fn two_databases_do_not_see_each_other() {
    let (one, other) = (database().await, database().await);
    let client = connect(one.url()).await.unwrap();
    client.batch_execute("CREATE TABLE t (id int)").await.unwrap();

    let client = connect(other.url()).await.unwrap();
    let tables: i64 =
        client.query_one("SELECT count(*) FROM pg_tables WHERE tablename = 't'", &[]).await.unwrap().get(0);

    assert_ne!(one.name(), other.name());
    assert_eq!(tables, 0);
}

#[tokio::test]
async fn a_dropped_database_goes_although_somebody_is_connected() {
    let (kept, dropped) = (database().await, database().await);
    let name = dropped.name().to_owned();
    let connected = connect(dropped.url()).await.unwrap();
    let observer = connect(kept.url()).await.unwrap();

    drop(dropped);

    // The server ends the session first, and the database is gone when it no longer has a name.
    let gone = async {
        while observer.query_one("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the database is dropped");
    assert!(connected.simple_query("SELECT 1").await.is_err());
}
