//! Two servers on one PostgreSQL: it does not matter which of them is asked, or listened to.

use serde_json::{Value, json};

use crate::client::within;
use crate::events::Stream;
use crate::ground::Ground;
use crate::served::Served;

struct Pair {
    one: Ground,
    two: Ground,
    _database: redrive_testbed::Database,
}

async fn pair() -> Pair {
    let database = redrive_testbed::database().await;
    let ground = async || Ground::of(Served::on(Some(database.url()), "").await);
    Pair { one: ground().await, two: ground().await, _database: database }
}

#[tokio::test]
async fn what_one_server_does_is_told_by_the_other() {
    let Pair { one, two, .. } = &pair().await;
    let mut stream = Stream::open(two, None).await;
    let job = one.enqueue(json!({ "kind": "sms" })).await;
    stream.until(&job, "enqueued").await;
    let lease = one.lease("sms").await;
    one.report(&lease, "complete", json!({})).await.data();
    stream.until(&job, "succeeded").await;
}

#[tokio::test]
async fn what_one_server_has_leased_is_reported_to_the_other() {
    let Pair { one, two, .. } = &pair().await;
    // Both have leased, so that both have a key to seal with.
    for (by, to) in [(one, two), (two, one), (one, two)] {
        let job = by.enqueue(json!({ "kind": "sms" })).await;
        let lease = by.lease("sms").await;
        to.report(&lease, "complete", json!({})).await.data();
        assert_eq!(by.state(&job).await, "succeeded");
    }
}

#[tokio::test]
async fn whoever_comes_back_to_the_other_server_is_told_what_it_missed_and_nothing_twice() {
    let Pair { one, two, .. } = &pair().await;
    let mut stream = Stream::open(one, None).await;
    let first = one.enqueue(json!({ "kind": "mail" })).await;
    let last = stream.until(&first, "enqueued").await;
    let second = two.enqueue(json!({ "kind": "mail" })).await;
    stream.until(&second, "enqueued").await;
    drop(stream);
    let mut stream = Stream::open(two, Some(&last)).await;
    assert_eq!(stream.next().await.data["missed"], false);
    let told = stream.next_of("jobs").await;
    let jobs: Vec<&Value> = told.data["jobs"].as_array().unwrap().iter().map(|job| &job["job"]).collect();
    assert_eq!(jobs, [&json!(second)], "the first was told already");
    let third = one.enqueue(json!({ "kind": "mail" })).await;
    let told = stream.next_of("jobs").await;
    assert_eq!(told.data["jobs"][0]["job"], json!(third), "nothing twice: {told:?}");
}

#[tokio::test]
async fn a_notice_is_made_once_and_told_by_both() {
    let Pair { one, two, .. } = &pair().await;
    let (mut first, mut second) = (Stream::open(one, None).await, Stream::open(two, None).await);
    let job = one.dead("sms", "no such number").await;
    for stream in [&mut first, &mut second] {
        assert_eq!(stream.next_of("notice").await.data["job"], json!(job));
    }
    // Whoever looked a second time would have made it by now.
    let other = two.dead("mail", "no such address").await;
    assert_eq!(first.next_of("notice").await.data["job"], json!(other));
    let jobs: Vec<Value> =
        two.get("/notices").await.as_array().unwrap().iter().map(|notice| notice["job"].clone()).collect();
    assert_eq!(jobs, [json!(other), json!(job)]);
}

#[tokio::test]
async fn a_hold_at_one_server_is_obeyed_by_the_other() {
    let Pair { one, two, .. } = &pair().await;
    one.enqueue(json!({ "kind": "mail" })).await;
    one.post("/hold", json!({})).await.data();
    let held = async { while two.get("/stats").await["held"] != true {} };
    within(held).await;
    assert_eq!(two.due("mail").await, 0);
    two.post("/resume", json!({})).await.data();
    assert_eq!(two.due("mail").await, 1);
}

#[tokio::test]
async fn what_becomes_of_a_destination_at_one_server_is_told_and_obeyed_by_the_other() {
    let Pair { one, two, .. } = &pair().await;
    let mut stream = Stream::open(two, None).await;
    one.post("/destinations/api.x/down", json!({})).await.data();
    let [told, notice] = stream.next_of_each(["destination", "notice"]).await;
    assert_eq!((&told.data["destination"], &told.data["state"]), (&json!("api.x"), &json!("shut")));
    assert_eq!(notice.data["what"], "destination_down");
    one.enqueue(json!({ "kind": "mail", "destination": "api.x" })).await;
    assert_eq!(two.due("mail").await, 0);
    assert_eq!(two.get("/destinations/api.x").await["held"], 1);
    two.post("/destinations/api.x/up", json!({})).await.data();
    let [told, notice] = stream.next_of_each(["destination", "notice"]).await;
    assert_eq!(
        (&told.data["state"], &notice.data["what"]),
        (&json!("ramp"), &json!("destination_recovered"))
    );
    one.lease("mail").await;
    assert_eq!(one.get("/notices").await.as_array().unwrap().len(), 2, "one for each, not for each server");
}
