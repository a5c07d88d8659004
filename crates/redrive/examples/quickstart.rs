//! Ten lines: a job that fails twice, comes back and finishes, with nothing but a file on disk.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use redrive::{Attempt, Engine, Failure, Payload, Policy, Queue, SqliteStore, millis};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Payload for Greet {
    const KIND: &'static str = "greet";
}

async fn greet(attempt: Attempt<Greet>) -> Result<(), Failure> {
    if attempt.number < 3 {
        println!("run {}: nobody answers", attempt.number);
        return Err(Failure::retry("nobody answers"));
    }
    println!("run {}: hello, {}!", attempt.number, attempt.payload.name);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let policy = Policy::exponential(millis(100)..=millis(800)).attempts(5);
    let engine = Engine::builder(SqliteStore::open(folder.path().join("jobs.db")).await?)
        .queue(Queue::new("default").policy(policy))
        .handle(greet)
        .build()?;

    let job = engine.enqueue(Greet { name: "world".into() }).await?;
    engine.drain().await?;

    let detail = engine.get(job.id).await?.ok_or("the job is kept")?;
    println!("{} after {} failures", detail.job.state.name(), detail.job.ledger.failures);
    assert_eq!(detail.job.ledger.failures, 2);
    Ok(())
}
