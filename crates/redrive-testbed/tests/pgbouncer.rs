//! PgBouncer before a shared server.

use redrive_testbed::{PgBouncer, connect, database};

#[tokio::test]
async fn pgbouncer_gives_a_connection_back_after_each_transaction() {
    let database = database().await;
    let bouncer = PgBouncer::start(database.url());
    let mut clients = Vec::new();
    for _ in 0..2 * PgBouncer::POOL {
        clients.push(connect(&bouncer.url(database.name())).await.unwrap());
    }

    let mut backends = std::collections::BTreeSet::new();
    for client in &clients {
        let answer =
            client.simple_query("SELECT pg_backend_pid()").await.expect("no client waits for another");
        let row = answer.iter().find_map(|message| match message {
            redrive_testbed::tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        backends.insert(row.expect("one row"));
    }

    assert!(backends.len() < clients.len(), "{} clients have a backend each", clients.len());
}

#[tokio::test]
async fn a_killed_pgbouncer_comes_back_on_the_same_port() {
    let database = database().await;
    let bouncer = PgBouncer::start(database.url());
    let before = connect(&bouncer.url(database.name())).await.unwrap();

    bouncer.kill();
    before.simple_query("SELECT 1").await.expect_err("its connection went with it");
    bouncer.restart();

    let after = connect(&bouncer.url(database.name())).await.unwrap();
    after.simple_query("SELECT 1").await.unwrap();
}
