//! One policy, two tiers: tried on the spot while the waits are short, then handed over to the store with its history.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redrive::{
    Attempt, Attempted, Engine, Failure, INLINE_TRIES_MAX, Payload, Policy, Queue, SqliteStore, millis,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Charge {
    order: u32,
}

impl Payload for Charge {
    const KIND: &'static str = "charge";
}

/// A bank that answers at the nth call.
struct Bank {
    calls: AtomicU32,
    answers_at: u32,
}

impl Bank {
    async fn charge(&self, order: u32) -> Result<(), Failure> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call < self.answers_at {
            println!("  call {call} for order {order}: no answer");
            return Err(Failure::from_code("TIMEOUT", "no answer"));
        }
        println!("  call {call} for order {order}: paid");
        Ok(())
    }
}

async fn engine(bank: &Arc<Bank>, folder: &tempfile::TempDir) -> redrive::Result<Engine> {
    let bank = bank.clone();
    let store = SqliteStore::open(folder.path().join(format!("jobs-{}.db", bank.answers_at))).await?;
    Engine::builder(store)
        .queue(Queue::new("default").policy(Policy::fixed(millis(100)).attempts(6)))
        .handle(move |attempt: Attempt<Charge>| {
            let bank = bank.clone();
            async move { bank.charge(attempt.payload.order).await }
        })
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;

    println!("a bank that answers at the second call: nothing is stored");
    let bank = Arc::new(Bank { calls: AtomicU32::new(0), answers_at: 2 });
    let quick = engine(&bank, &folder).await?;
    let attempted = quick.attempt(Charge { order: 1 }, |charge| bank.charge(charge.order)).await?;
    assert!(matches!(attempted, Attempted::Done { attempt: 2, .. }));
    assert!(quick.counts().await?.iter().all(|counts| counts.totals.enqueued == 0));

    println!("a bank that answers at the fifth call: tried {INLINE_TRIES_MAX} times here, then durably");
    let bank = Arc::new(Bank { calls: AtomicU32::new(0), answers_at: 5 });
    let durable = engine(&bank, &folder).await?;
    let attempted = durable.attempt(Charge { order: 2 }, |charge| bank.charge(charge.order)).await?;
    let Attempted::HandedOver { job, due_at } = attempted else {
        return Err("it should have been handed over".into());
    };
    println!("  handed over as job {job}, due at {due_at}");
    durable.drain().await?;

    // The numbers go on where they were: three calls here, two by the engine, five in all.
    let detail = durable.get(job).await?.ok_or("the job is kept")?;
    let numbers: Vec<u32> = detail.attempts.iter().map(|record| record.attempt).collect();
    println!("  paid at run {} after {} failures", detail.job.ledger.attempt, detail.job.ledger.failures);
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!((detail.job.ledger.attempt, detail.job.ledger.failures), (5, 4));
    Ok(())
}
