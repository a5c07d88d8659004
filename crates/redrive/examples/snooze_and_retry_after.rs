//! Two ways to wait that are not the policy's: a handler that is not ready yet, and a far side that says when.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use redrive::{
    Attempt, Ending, Engine, Failure, Outcome, Payload, Policy, Queue, RetryAfter, SqliteStore, millis, secs,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Export {
    report: String,
}

impl Payload for Export {
    const KIND: &'static str = "export";
}

/// First the report is not ready, then the far side is busy, then it works.
async fn export(attempt: Attempt<Export>) -> Result<Outcome, Failure> {
    let report = &attempt.payload.report;
    match attempt.number {
        1 => {
            println!("run 1: {report} is still being made, ask me again in 200 ms");
            Ok(Outcome::Snooze(millis(200)))
        }
        2 => {
            println!("run 2: the far side says 429, come back in 300 ms");
            Err(Failure::retry_after(millis(300), "429 Too Many Requests").status(429))
        }
        run => {
            println!("run {run}: {report} is delivered");
            Ok(Outcome::Done(None))
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    // Left to itself this policy would wait a minute. What the far side asks for goes before it, within these bounds.
    let policy = Policy {
        retry_after: RetryAfter { min: millis(100), max: secs(60), ..RetryAfter::default() },
        ..Policy::fixed(secs(60)).attempts(2)
    };
    let engine = Engine::builder(SqliteStore::open(folder.path().join("jobs.db")).await?)
        .queue(Queue::new("default").policy(policy))
        .handle(export)
        .build()?;

    let job = engine.enqueue(Export { report: "the report of November".into() }).await?;
    engine.drain().await?;

    let detail = engine.get(job.id).await?.ok_or("the job is kept")?;
    for record in &detail.attempts {
        let next_at = record.next_at.ok_or("each of these was followed by another")?;
        let waited = next_at.since(record.ended_at);
        println!("run {} ended as {:?} and waited {waited:?}", record.attempt, record.ending);
    }
    assert_eq!(detail.attempts[0].ending, Ending::Snoozed);
    assert_eq!(detail.attempts[0].next_at, Some(detail.attempts[0].ended_at + millis(200)));
    assert_eq!(detail.attempts[1].next_at, Some(detail.attempts[1].ended_at + millis(300)));
    // Two attempts were allowed and it ran three times: a snooze is no failure, so it counts toward nothing.
    assert_eq!((detail.job.ledger.snoozes, detail.job.ledger.failures), (1, 1));
    Ok(())
}
