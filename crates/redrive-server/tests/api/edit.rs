//! Correcting jobs, and holding everything.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::ground::{Ground, api};

async fn patch(ground: &Ground, id: &str, body: Value) -> Answer {
    let headers = [("content-type", "application/json")];
    ground.client.ask("PATCH", &api(&format!("/jobs/{id}")), &headers, body.to_string().into()).await
}

#[tokio::test]
async fn a_waiting_job_is_corrected_and_its_old_content_stays_readable() {
    let ground = Ground::new().await;
    let id =
        ground.enqueue(json!({ "kind": "mail", "payload": { "to": "a" }, "labels": { "x": "1" } })).await;
    let body = json!({ "payload": { "to": "b" }, "policy": "media", "priority": 5, "labels": { "y": "2" } });
    let job = patch(&ground, &id, body).await.data();
    assert_eq!((&job["payload"], &job["priority"]), (&json!({ "to": "b" }), &json!(5)));
    assert_eq!((&job["labels"], &job["policy"]["name"]), (&json!({ "y": "2" }), &json!("media")));
    let before = &ground.job(&id).await["edits"][0];
    assert_eq!((&before["payload"], &before["labels"]), (&json!({ "to": "a" }), &json!({ "x": "1" })));
    assert_eq!((&before["priority"], &before["by"]), (&json!(0), &json!("local")));
    let leased = ground.post("/workers/lease", json!({ "kinds": ["mail"] })).await.data();
    assert_eq!(leased["jobs"][0]["payload"], json!({ "to": "b" }), "{leased}");
    let lines = ground.get(&format!("/audit?jobId={id}")).await["items"].take();
    assert_eq!((&lines[0]["what"], &lines[0]["result"]), (&json!("jobs.edit"), &json!("done")));
}

#[tokio::test]
async fn a_dead_job_is_corrected_and_redriven_and_a_running_one_refuses() {
    let ground = Ground::new().await;
    let id = ground.dead("mail", "no such address").await;
    assert_eq!(patch(&ground, &id, json!({ "payload": "right" })).await.data()["state"], "dead");
    ground.post(&format!("/jobs/{id}/redrive"), json!({})).await.data();
    let lease = ground.lease("mail").await;
    assert_eq!(
        patch(&ground, &id, json!({ "payload": "late" })).await.refused(),
        (409, "RETRY_CONFLICT".into())
    );
    ground.report(&lease, "complete", json!({})).await.data();
    let job = ground.job(&id).await;
    assert_eq!((&job["state"], &job["payload"]), (&json!("succeeded"), &json!("right")));
    assert_eq!(patch(&ground, &id, json!({ "priority": 1 })).await.refused().0, 409);
}

#[tokio::test]
async fn what_cannot_be_in_a_job_is_refused_and_the_job_stays_as_it_is() {
    let ground = Ground::new().await;
    let payload = json!({ "method": "GET", "url": "https://one.example/a" });
    let id = ground.enqueue(json!({ "kind": "http", "payload": payload, "delay": "1h" })).await;
    let wrong = [
        json!({}),
        json!({ "payload": { "url": "ftp://x" } }),
        json!({ "policy": "nonsense" }),
        json!({ "policy": { "maxAttempts": 0 } }),
        json!({ "priority": 99_999 }),
        json!({ "kind": "sms" }),
        json!({ "labels": { "a": "x".repeat(300) } }),
    ];
    for body in wrong {
        assert_eq!(
            patch(&ground, &id, body.clone()).await.refused(),
            (422, "RETRY_INVALID".into()),
            "{body}"
        );
    }
    let job = ground.job(&id).await;
    assert_eq!(
        (&job["payload"], &job["edits"], &job["destination"]),
        (&payload, &json!([]), &json!("one.example"))
    );
    let other = json!({ "payload": { "method": "GET", "url": "https://two.example/a" } });
    assert_eq!(patch(&ground, &id, other).await.data()["destination"], "two.example");
    let nobody = "01890000-0000-7000-8000-000000000000";
    assert_eq!(patch(&ground, nobody, json!({ "priority": 1 })).await.refused().0, 404);
}

#[tokio::test]
async fn a_held_store_hands_out_nothing_until_it_goes_on() {
    let ground = Ground::new().await;
    let id = ground.enqueue(json!({ "kind": "mail" })).await;
    assert_eq!(ground.post("/hold", json!({})).await.data(), json!({ "held": true }));
    assert_eq!((ground.due("mail").await, &ground.get("/stats").await["held"]), (0, &json!(true)));
    let why = ground.get(&format!("/jobs/{id}/explain")).await;
    assert_eq!(why["summary"], "waiting: everything is held; it goes on with `redrive resume`");
    ground.post("/resume", json!({})).await.data();
    assert_eq!((ground.due("mail").await, &ground.get("/stats").await["held"]), (1, &json!(false)));
}
