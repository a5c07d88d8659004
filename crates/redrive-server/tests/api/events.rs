//! The stream of events: how everything stands, what happens, and what was missed.

use serde_json::{Value, json};

use crate::ground::Ground;
pub(crate) use crate::stream::{Stream, Told};

impl Stream {
    pub(crate) async fn open(ground: &Ground, last: Option<&str>) -> Stream {
        Stream::listen(&ground.client, last).await
    }

    /// Reads on until this job has come to this, and gives the last id it was told.
    pub(crate) async fn until(&mut self, job: &str, event: &str) -> String {
        loop {
            let told = self.next_of("jobs").await;
            if happened(&told).contains(&(job.to_owned(), event.to_owned())) {
                return told.id.unwrap();
            }
        }
    }
}

/// The jobs of a batch, with what happened to them.
fn happened(told: &Told) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let jobs = told.data["jobs"].as_array().unwrap();
    jobs.iter().map(|job| (text(&job["job"]), text(&job["event"]))).collect()
}

#[tokio::test]
async fn a_listener_is_told_how_everything_stands_and_then_what_happens() {
    let ground = Ground::new().await;
    ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let mut stream = Stream::open(&ground, None).await;
    let first = stream.next().await;
    let stats = json!({ "totalPending": 1, "totalSucceeded": 0, "totalFailed": 0 });
    assert_eq!((first.event.as_str(), &first.data["stats"]), ("snapshot", &stats));
    assert_eq!(first.data["missed"], false);

    let job = ground.enqueue(json!({ "kind": "sms" })).await;
    stream.until(&job, "enqueued").await;
    let lease = ground.lease("sms").await;
    ground.report(&lease, "complete", json!({})).await.data();
    stream.until(&job, "succeeded").await;
    loop {
        let snapshot = stream.next_of("snapshot").await;
        if snapshot.data["stats"]["totalSucceeded"] == 1 {
            break;
        }
    }
}

#[tokio::test]
async fn how_everything_stands_is_told_again_only_when_it_is_different() {
    let ground = Ground::new().await;
    let mut stream = Stream::open(&ground, None).await;
    let first = stream.next().await;
    ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    assert_ne!(stream.next().await.data, first.data);
}

#[tokio::test]
async fn whoever_comes_back_is_told_what_it_missed_and_nothing_twice() {
    let ground = Ground::new().await;
    let mut stream = Stream::open(&ground, None).await;
    let first = ground.enqueue(json!({ "kind": "mail" })).await;
    let last = stream.until(&first, "enqueued").await;
    drop(stream);
    let second = ground.enqueue(json!({ "kind": "mail" })).await;

    // So that it is remembered when the listener comes back.
    let mut other = Stream::open(&ground, Some(&last)).await;
    other.until(&second, "enqueued").await;

    let mut stream = Stream::open(&ground, Some(&last)).await;
    assert_eq!(stream.next().await.data["missed"], false);
    let missed = stream.next_of("jobs").await;
    assert_eq!(happened(&missed), [(second, "enqueued".to_owned())]);
}

#[tokio::test]
async fn whoever_comes_back_from_another_server_is_told_that_it_missed_something() {
    let ground = Ground::new().await;
    let mut stream = Stream::open(&ground, Some("deadbeef-17")).await;
    let first = stream.next().await;
    assert_eq!((first.event.as_str(), &first.data["missed"]), ("snapshot", &json!(true)));
}
