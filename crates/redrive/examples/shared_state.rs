//! What handlers share: a closure that captures a client, and a type of its own that implements `Handler`.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redrive::{
    Attempt, Engine, Failure, Handler, IntoOutcome, Outcome, Payload, Policy, Queue, SqliteStore, millis,
};
use serde::{Deserialize, Serialize};

/// Stands for a connection pool or an HTTP client: made once, used by everything.
#[derive(Default)]
struct Client {
    requests: AtomicU32,
}

impl Client {
    async fn send(&self, to: &str, text: &str) -> Result<(), Failure> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if request == 1 {
            return Err(Failure::from_status(503, "the line is busy"));
        }
        println!("request {request}: to {to}: {text}");
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
}

impl Payload for Mail {
    const KIND: &'static str = "mail";
}

#[derive(Serialize, Deserialize)]
struct Letter {
    to: String,
}

impl Payload for Letter {
    const KIND: &'static str = "letter";
}

/// Needs more than a closure would like to capture.
struct PostOffice {
    client: Arc<Client>,
    stamp: &'static str,
}

impl Handler<Letter> for PostOffice {
    async fn run(&self, attempt: Attempt<Letter>) -> Outcome {
        let text = format!("a letter with {}", self.stamp);
        self.client.send(&attempt.payload.to, &text).await.into_outcome()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let client = Arc::new(Client::default());
    let mailer = client.clone();
    let engine = Engine::builder(SqliteStore::open(folder.path().join("jobs.db")).await?)
        .queue(Queue::new("default").policy(Policy::fixed(millis(50)).attempts(3)))
        .handle(move |attempt: Attempt<Mail>| {
            let client = mailer.clone();
            async move { client.send(&attempt.payload.to, "an electronic one").await }
        })
        .handle(PostOffice { client: client.clone(), stamp: "a blue stamp" })
        .build()?;

    engine.enqueue(Mail { to: "Ada".into() }).await?;
    engine.enqueue(Letter { to: "Grace".into() }).await?;
    engine.drain().await?;

    // Two jobs, one client, and one request more than jobs: the first was busy.
    assert_eq!(client.requests.load(Ordering::Relaxed), 3);
    let totals = engine.counts().await?[0].totals;
    println!("{} done, {} of them at the second try", totals.succeeded, totals.recovered);
    assert_eq!((totals.succeeded, totals.recovered), (2, 1));
    Ok(())
}
