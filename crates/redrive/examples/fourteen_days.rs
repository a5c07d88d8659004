//! Three weeks in a moment: on a paused clock a schedule of 7 and 14 days runs at once, and exactly on time.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use std::sync::{Arc, Mutex};

use redrive::{Attempt, Engine, Failure, MemoryStore, Payload, Policy, Queue, days, testing};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Remind {
    whom: String,
}

impl Payload for Remind {
    const KIND: &'static str = "remind";
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = testing::clock();
    let begin = clock.now();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (notes, watch) = (calls.clone(), clock.clone());
    let engine = Engine::builder(MemoryStore::new())
        .clock(clock.clone())
        .queue(Queue::new("default").policy(Policy::preset("workflow-long")?))
        .handle(move |attempt: Attempt<Remind>| {
            println!("{}  call {} to {}", watch.now(), attempt.number, attempt.payload.whom);
            notes.lock().expect("nobody panics with it").push(watch.now());
            async move { if attempt.number < 3 { Err(Failure::retry("nobody answers")) } else { Ok(()) } }
        })
        .build()?;

    engine.enqueue(Remind { whom: "the landlord".into() }).await?;
    engine.drain().await?;

    // To the millisecond: at once, a week later, and two weeks after that.
    let expected = [begin, begin + days(7), begin + days(7) + days(14)];
    assert_eq!(*calls.lock().expect("nobody panics with it"), expected);
    println!("{} days have passed here", clock.now().since(begin).as_secs() / 86_400);
    Ok(())
}
