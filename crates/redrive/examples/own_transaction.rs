//! Your data and the job about it in one transaction of yours: both are there, or neither.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use redrive::{Attempt, Engine, Failure, Payload, SqliteStore, tx};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i64,
}

impl Payload for Confirm {
    const KIND: &'static str = "confirm";
}

async fn confirm(attempt: Attempt<Confirm>) -> Result<(), Failure> {
    println!("  order {} is confirmed", attempt.payload.order);
    Ok(())
}

/// Writes an order and the job that confirms it.
fn order(engine: &Engine, app: &mut Connection, what: &str) -> Result<i64, Box<dyn std::error::Error>> {
    let transaction = app.transaction()?;
    transaction.execute("INSERT INTO orders (what) VALUES (?1)", [what])?;
    let order = transaction.last_insert_rowid();
    tx::rusqlite::enqueue(&transaction, &engine.admit(Confirm { order })?)?;
    if what.is_empty() {
        // Dropping the transaction takes back the order and the job.
        return Err("an order must say what".into());
    }
    transaction.commit()?;
    Ok(order)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let engine = Engine::builder(SqliteStore::open(&path).await?).handle(confirm).build()?;

    let mut app = Connection::open(&path)?;
    app.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT NOT NULL) STRICT")?;

    let bread = order(&engine, &mut app, "bread")?;
    println!("ordered bread: order {bread} and its job are committed together");
    let Err(refused) = order(&engine, &mut app, "") else { return Err("it should be refused".into()) };
    println!("refused: {refused}; neither an order nor a job is left of it");

    // The engine notices what another connection has committed within a second.
    let mut events = engine.events();
    let confirmed = async move {
        while let Ok(event) = events.recv().await {
            if matches!(event.what, redrive::Happening::Succeeded { .. }) {
                return;
            }
        }
    };
    engine.run(confirmed).await?;

    let orders: i64 = app.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?;
    let totals = engine.counts().await?[0].totals;
    assert_eq!((orders, totals.enqueued, totals.succeeded), (1, 1, 1));
    Ok(())
}
