//! An application that goes offline: operations queue up, nothing is tried in vain, and all go out in order later.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use std::sync::{Arc, Mutex};

use redrive::{Attempt, Engine, Failure, Payload, Policy, Queue, SqliteStore, StateName};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Operation {
    what: String,
}

impl Payload for Operation {
    const KIND: &'static str = "operation";
    const QUEUE: &'static str = "outbox";
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let sent = Arc::new(Mutex::new(Vec::new()));
    let far_side = sent.clone();
    let engine = Engine::builder(SqliteStore::open(folder.path().join("outbox.db")).await?)
        .queue(Queue::new("outbox").fifo().policy(Policy::preset("offline")?))
        .handle(move |attempt: Attempt<Operation>| {
            let far_side = far_side.clone();
            async move {
                println!("  sent: {}", attempt.payload.what);
                far_side.lock().expect("nobody panics with it").push(attempt.payload.what);
                Ok::<(), Failure>(())
            }
        })
        .build()?;

    println!("the connection is lost");
    engine.pause("outbox").await?;

    let mut jobs = Vec::new();
    for what in ["open the draft", "change the title", "add a picture", "publish it"] {
        jobs.push(engine.enqueue(Operation { what: what.into() }).await?.id);
    }
    // Nothing is tried while the queue is paused, so nothing uses up its retries.
    engine.drain_due().await?;
    let counts = engine.counts().await?;
    let outbox = counts.iter().find(|counts| &*counts.queue == "outbox").ok_or("the queue is known")?;
    println!("{} operations wait", outbox.waiting);
    assert_eq!((outbox.waiting, outbox.paused, outbox.totals.failures), (4, true, 0));

    println!("the connection is back");
    engine.resume("outbox").await?;
    engine.drain().await?;

    let sent = sent.lock().expect("nobody panics with it").clone();
    assert_eq!(sent, ["open the draft", "change the title", "add a picture", "publish it"]);
    for id in jobs {
        let detail = engine.get(id).await?.ok_or("the job is kept")?;
        assert_eq!((detail.job.state.name(), detail.job.ledger.attempt), (StateName::Succeeded, 1));
    }
    Ok(())
}
