//! Three sources for one answer: the first is down, the second has not got it, the third has. Then the first recovers.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive::{
    Attempt, Engine, Failure, Fallback, Found, Output, Payload, Policy, Queue, SqliteStore, millis,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Poster {
    title: String,
}

impl Payload for Poster {
    const KIND: &'static str = "poster";
}

/// What the three archives can do at the moment.
#[derive(Default)]
struct Archives {
    first_is_up: AtomicBool,
    third_is_up: AtomicBool,
}

fn sources(archives: &Arc<Archives>) -> Fallback<String, String> {
    let (first, third) = (archives.clone(), archives.clone());
    Fallback::new()
        .source("the studio", move |title: String| {
            let up = first.first_is_up.load(Ordering::Relaxed);
            async move { if up { Ok(format!("{title}, from the studio")) } else { Err(down()) } }
        })
        .source("the fan page", |title: String| async move {
            Err(Failure::from_status(404, format!("nobody has drawn {title}")))
        })
        .source("the archive", move |title: String| {
            let up = third.third_is_up.load(Ordering::Relaxed);
            async move { if up { Ok(format!("{title}, from the archive")) } else { Err(down()) } }
        })
}

fn down() -> Failure {
    Failure::from_status(503, "closed for repairs")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let archives = Arc::new(Archives::default());
    let fallback = sources(&archives);
    let doors = archives.clone();
    let fetch = move |attempt: Attempt<Poster>| {
        let (fallback, doors) = (fallback.clone(), doors.clone());
        async move {
            // After the first run the archive opens again, as such things do.
            let found: Result<Found<String>, Failure> = fallback.run(attempt.payload.title).await;
            doors.third_is_up.store(true, Ordering::Relaxed);
            match &found {
                Ok(found) => println!("run {}: {} has it", attempt.number, found.source),
                Err(failure) => println!("run {}: {failure}", attempt.number),
            }
            Ok::<_, Failure>(Output(found?.value))
        }
    };
    let folder = tempfile::tempdir()?;
    let engine = Engine::builder(SqliteStore::open(folder.path().join("jobs.db")).await?)
        .queue(Queue::new("default").policy(Policy::fixed(millis(100)).attempts(5)))
        .handle(fetch)
        .build()?;

    // Two are down for the moment, one has it not: not the end, so the job comes back, and the archive has it.
    let job = engine.enqueue(Poster { title: "Heat".into() }).await?;
    engine.drain().await?;
    let heat = engine.get(job.id).await?.ok_or("the job is kept")?;
    let output: String = heat.output.ok_or("it left the poster behind")?.decode()?;
    println!("got: {output}");
    assert_eq!((output.as_str(), heat.job.ledger.failures), ("Heat, from the archive", 1));

    // The studio recovers, and is asked first again.
    archives.first_is_up.store(true, Ordering::Relaxed);
    let job = engine.enqueue(Poster { title: "Ronin".into() }).await?;
    engine.drain().await?;
    let ronin = engine.get(job.id).await?.ok_or("the job is kept")?;
    let output: String = ronin.output.ok_or("it left the poster behind")?.decode()?;
    println!("got: {output}");
    assert_eq!((output.as_str(), ronin.job.ledger.failures), ("Ronin, from the studio", 0));
    Ok(())
}
