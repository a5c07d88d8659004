//! The proxy loses what it is told to lose, when it is told to, and nothing else.

use redrive_testbed::tokio_postgres::Client;
use redrive_testbed::{Database, Proxy, connect, database};

const INSERT: &str = "INSERT INTO t VALUES ($1)";

struct World {
    database: Database,
    proxy: Proxy,
    /// Past the proxy.
    direct: Client,
}

impl World {
    async fn new() -> World {
        let database = database().await;
        let proxy = Proxy::start(database.url()).await;
        let direct = connect(database.url()).await.expect("the server answers");
        direct.batch_execute("CREATE TABLE t (id int)").await.expect("the database is empty");
        World { database, proxy, direct }
    }

    async fn client(&self) -> Client {
        connect(&self.proxy.url(self.database.name())).await.expect("the proxy forwards a start-up")
    }

    async fn ids(&self) -> Vec<i32> {
        let rows = self.direct.query("SELECT id FROM t ORDER BY id", &[]).await.expect("the table is there");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

#[tokio::test]
async fn a_lost_reply_is_lost_after_the_commit() {
    let world = World::new().await;
    let client = world.client().await;
    world.proxy.cut_next_reply_to("INSERT INTO t");

    let answer = client.execute(INSERT, &[&1_i32]).await;

    assert!(answer.unwrap_err().is_closed());
    assert_eq!(world.ids().await, [1]);
    world.proxy.until(|counts| counts.cut == 1 && counts.open == 0).await;
    world.client().await.execute(INSERT, &[&2_i32]).await.expect("the rule struck once");
}

#[tokio::test]
async fn a_cut_before_leaves_no_row() {
    let world = World::new().await;
    let client = world.client().await;
    world.proxy.cut_next_before("INSERT INTO t");

    let answer = client.execute(INSERT, &[&1_i32]).await;

    assert!(answer.unwrap_err().is_closed());
    world.proxy.until(|counts| counts.cut == 1).await;
    assert!(world.ids().await.is_empty());
}

#[tokio::test]
async fn a_statement_counts_when_it_is_executed_however_it_was_prepared() {
    let world = World::new().await;
    let client = world.client().await;
    let insert = client.prepare(INSERT).await.unwrap();
    world.proxy.cut_every_reply_to(3, "INSERT INTO t");

    let mut answers = Vec::new();
    for id in 0..3_i32 {
        client.simple_query("SELECT 'something else'").await.unwrap();
        answers.push(client.execute(&insert, &[&id]).await.is_ok());
    }

    assert_eq!(answers, [true, true, false]);
    assert_eq!(world.ids().await, [0, 1, 2]);
}

#[tokio::test]
async fn replies_that_came_before_the_lost_one_are_given() {
    let world = World::new().await;
    let client = world.client().await;
    let insert = client.prepare(INSERT).await.unwrap();
    world.proxy.cut_every_reply_to(2, "INSERT INTO t");

    // Sent together, without waiting for an answer in between.
    let (first, second, third) = tokio::join!(
        client.execute(&insert, &[&1_i32]),
        client.execute(&insert, &[&2_i32]),
        client.execute(&insert, &[&3_i32]),
    );

    assert_eq!((first.is_ok(), second.is_ok(), third.is_ok()), (true, false, false));
    assert!(world.ids().await.starts_with(&[1, 2]));
}

#[tokio::test]
async fn in_a_transaction_the_reply_to_the_commit_is_lost() {
    let world = World::new().await;
    let mut client = world.client().await;
    world.proxy.cut_next_reply_to("INSERT INTO t");

    let transaction = client.transaction().await.unwrap();
    transaction.execute(INSERT, &[&1_i32]).await.expect("it is not committed yet");
    let answer = transaction.commit().await;

    assert!(answer.unwrap_err().is_closed());
    assert_eq!(world.ids().await, [1]);
}

#[tokio::test]
async fn a_frozen_server_commits_but_is_not_heard_until_the_thaw() {
    let world = World::new().await;
    let client = world.client().await;
    let insert = client.prepare(INSERT).await.unwrap();
    world.proxy.freeze();

    let mut answer = std::pin::pin!(client.execute(&insert, &[&1_i32]));
    while world.ids().await.is_empty() {
        let early = tokio::time::timeout(std::time::Duration::from_millis(1), &mut answer).await;
        assert!(early.is_err(), "an answer came through the ice: {early:?}");
    }
    world.proxy.thaw();

    answer.await.expect("the answer was only late");
}

#[tokio::test]
async fn all_connections_can_be_cut_and_counted() {
    let world = World::new().await;
    let clients = [world.client().await, world.client().await];
    assert_eq!(world.proxy.counts().open, 2);

    world.proxy.cut_all();

    let counts = world.proxy.until(|counts| counts.open == 0).await;
    assert_eq!((counts.accepted, counts.cut), (2, 0));
    for client in &clients {
        client.simple_query("SELECT 1").await.expect_err("it is cut");
    }
    world.client().await.simple_query("SELECT 1").await.expect("new connections are welcome");
}
