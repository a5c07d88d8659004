//! What a person asks of jobs, one by one and by filter.

use serde_json::{Value, json};

use crate::client::within;
use crate::ground::{Ground, id, millis};

#[tokio::test]
async fn a_waiting_job_that_is_retried_is_due_now_and_its_neighbour_is_not() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let answer = ground.post(&format!("/jobs/{job}/retry"), json!({})).await.data();
    assert_eq!((&answer["state"], &answer["reason"]), (&json!("waiting"), &json!("by_hand")));
    let leased = ground.post("/workers/lease", json!({ "kinds": ["mail"], "limit": 10 })).await.data();
    assert_eq!(leased["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(leased["jobs"][0]["id"], json!(job));
}

#[tokio::test]
async fn a_cancelled_job_stays_cancelled() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let answer = ground.post(&format!("/jobs/{job}/cancel"), json!({})).await.data();
    assert_eq!(answer["state"], "cancelled");
    let again = ground.post(&format!("/jobs/{job}/cancel"), json!({})).await;
    assert_eq!(again.refused(), (409, "RETRY_CONFLICT".into()));
    assert_eq!(ground.due("mail").await, 0);
}

#[tokio::test]
async fn a_running_job_that_is_cancelled_takes_the_lease_with_it() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let lease = ground.lease("mail").await;
    ground.post(&format!("/jobs/{job}/cancel"), json!({})).await.data();
    let late = ground.report(&lease, "complete", json!({})).await;
    assert_eq!(late.refused(), (409, "LEASE_LOST".into()));
    assert_eq!(ground.state(&job).await, "cancelled");
}

#[tokio::test]
async fn a_job_can_be_put_off_by_a_time_or_to_a_time() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let put_off = ground.post(&format!("/jobs/{job}/snooze"), json!({ "delay": "1h" })).await.data();
    let hour = millis(&put_off["dueAt"]) - millis(&put_off["createdAt"]);
    assert!((3_600_000..3_660_000).contains(&hour), "{hour}");
    assert_eq!(ground.due("mail").await, 0);

    let at = json!({ "runAt": "2031-05-01T12:00:00Z" });
    let moved = ground.post(&format!("/jobs/{job}/reschedule"), at).await.data();
    assert_eq!(millis(&moved["dueAt"]), millis(&json!("2031-05-01T12:00:00Z")));
}

#[tokio::test]
async fn a_time_that_no_job_could_wait_for_is_a_mistake_whether_for_one_or_for_many() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let too_far = [
        (format!("/jobs/{job}/snooze"), json!({ "delay": "999999d" })),
        (format!("/jobs/{job}/reschedule"), json!({ "runAt": "2200-01-01T00:00:00Z" })),
        (
            "/jobs/commands".to_owned(),
            json!({ "command": "snooze", "all": true, "delay": "999999d", "dryRun": false }),
        ),
    ];
    for (path, body) in too_far {
        assert_eq!(ground.post(&path, body).await.refused(), (422, "RETRY_INVALID".into()), "{path}");
    }
    assert_eq!(ground.due("mail").await, 1, "it is where it was");
}

#[tokio::test]
async fn a_dead_job_comes_back_with_its_history_and_fresh_counters() {
    let ground = Ground::new().await;
    let job = ground.dead("mail", "no such address").await;
    let back = ground.post(&format!("/jobs/{job}/redrive"), json!({})).await.data();
    assert_eq!((&back["state"], &back["failures"]), (&json!("waiting"), &json!(0)));
    assert_eq!((&back["generation"], back["attempts"].as_array().unwrap().len()), (&json!(1), 1));
    let lease = ground.lease("mail").await;
    ground.report(&lease, "complete", json!({})).await.data();
    assert_eq!(ground.state(&job).await, "succeeded");
    let again = ground.post(&format!("/jobs/{job}/redrive"), json!({})).await;
    assert_eq!(again.refused(), (409, "RETRY_CONFLICT".into()));
}

#[tokio::test]
async fn only_a_finished_job_can_be_forgotten() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let path = format!("/jobs/{job}");
    assert_eq!(ground.delete(&path).await.refused(), (409, "RETRY_CONFLICT".into()));
    ground.post(&format!("/jobs/{job}/cancel"), json!({})).await.data();
    assert_eq!(id(&ground.delete(&path).await.data()), job);
    assert_eq!(ground.delete(&path).await.refused(), (404, "RETRY_NOT_FOUND".into()));
}

#[tokio::test]
async fn a_command_to_many_counts_first_and_touches_only_those_that_match() {
    let ground = Ground::new().await;
    for _ in 0..3 {
        ground.dead("mail", "no such address").await;
    }
    let other = ground.dead("sms", "no such number").await;
    let waiting = ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let filter = json!({ "state": "dead", "kind": "mail" });

    let asked = json!({ "command": "redrive", "filter": filter, "dryRun": true });
    assert_eq!(ground.post("/jobs/commands", asked).await.data(), json!({ "matching": 3, "more": false }));
    assert_eq!(ground.get("/stats").await["dead"], 4, "a dry run changes nothing");

    let done = ground
        .post("/jobs/commands", json!({ "command": "redrive", "filter": filter, "dryRun": false }))
        .await
        .data();
    assert_eq!(done, json!({ "matching": 3, "more": false, "done": 3 }));
    assert_eq!((ground.state(&other).await, ground.state(&waiting).await), ("dead".into(), "waiting".into()));
}

#[tokio::test]
async fn all_jobs_are_meant_only_if_that_is_said() {
    let ground = Ground::new().await;
    ground.enqueue(json!({ "kind": "mail" })).await;
    ground.enqueue(json!({ "kind": "sms" })).await;
    for unclear in [
        json!({ "command": "cancel", "dryRun": true }),
        json!({ "command": "cancel", "filter": {}, "dryRun": true }),
        json!({ "command": "cancel", "all": true, "filter": { "kind": "mail" }, "dryRun": true }),
    ] {
        let answer = ground.post("/jobs/commands", unclear).await;
        assert_eq!(answer.refused(), (422, "RETRY_INVALID".into()));
    }
    assert_eq!(ground.get("/stats").await["waiting"], 2);
    let done = ground
        .post("/jobs/commands", json!({ "command": "cancel", "all": true, "dryRun": false }))
        .await
        .data();
    assert_eq!(done["done"], 2);
    let done = ground
        .post("/jobs/commands", json!({ "command": "delete", "all": true, "dryRun": false }))
        .await
        .data();
    assert_eq!(done["done"], 2);
    assert_eq!(ground.get("/jobs").await, json!({ "items": [] }));
}

/// So many jobs that wait for a day.
async fn waiting(ground: &Ground, count: usize) {
    for part in 0..count / 1_000 {
        let jobs: Vec<Value> = (0..1_000)
            .map(|n| json!({ "kind": "later", "key": format!("{part}-{n}"), "delay": "1d" }))
            .collect();
        ground.post("/jobs/bulk", json!(jobs)).await.data();
    }
}

/// The operation when it has ended.
async fn ended(ground: &Ground, operation: &str) -> Value {
    within(async {
        loop {
            let view = ground.get(&format!("/operations/{operation}")).await;
            if view["state"] != "running" {
                return view;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_command_in_the_background_answers_at_once_and_tells_how_far_it_is() {
    let ground = Ground::new().await;
    waiting(&ground, 2_000).await;
    let other = ground.enqueue(json!({ "kind": "other", "delay": "1d" })).await;
    let asked =
        json!({ "command": "cancel", "dryRun": false, "filter": { "kind": "later" }, "background": true });
    let begun = ground.post("/jobs/commands", asked).await.data();
    assert_eq!((&begun["matching"], begun.get("done")), (&json!(2_000), None));
    assert_eq!((&begun["operation"]["state"], &begun["operation"]["seen"]), (&json!("running"), &json!(0)));
    let operation = id(&begun["operation"]);
    let end = ended(&ground, &operation).await;
    assert_eq!((&end["state"], &end["seen"], &end["done"]), (&json!("done"), &json!(2_000), &json!(2_000)));
    assert_eq!(end["filter"], json!({ "kind": "later" }));
    assert_eq!(ground.get("/stats").await["waiting"], 1);
    assert_eq!(ground.state(&other).await, "waiting");
    assert_eq!(id(&ground.get("/operations").await[0]), operation);
    let audit = ground.get("/audit").await;
    assert_eq!(
        (&audit["items"][0]["what"], &audit["items"][0]["result"]),
        (&json!("jobs.cancel_all"), &json!("done"))
    );
    let late = ground.post(&format!("/operations/{operation}/cancel"), json!({})).await;
    assert_eq!(late.refused(), (409, "RETRY_CONFLICT".into()));
}

#[tokio::test]
async fn an_operation_that_is_stopped_leaves_the_rest_as_it_was() {
    let ground = Ground::new().await;
    waiting(&ground, 6_000).await;
    let asked =
        json!({ "command": "cancel", "dryRun": false, "filter": { "kind": "later" }, "background": true });
    let operation = id(&ground.post("/jobs/commands", asked).await.data()["operation"]);
    ground.post(&format!("/operations/{operation}/cancel"), json!({})).await.data();
    let end = ended(&ground, &operation).await;
    assert_eq!(end["state"], "stopped", "{end}");
    let done = end["done"].as_u64().unwrap();
    assert!(done < 6_000, "{end}");
    assert_eq!(ground.get("/stats").await["waiting"], 6_000 - done);
    let unknown = ground.post("/operations/019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e/cancel", json!({})).await;
    assert_eq!(unknown.refused(), (404, "RETRY_NOT_FOUND".into()));
}

#[tokio::test]
async fn a_command_to_an_unknown_job_is_not_found() {
    let ground = Ground::new().await;
    let unknown = "019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e";
    for (command, body) in [
        ("retry", json!({})),
        ("cancel", json!({})),
        ("redrive", json!({})),
        ("snooze", json!({ "delay": "1s" })),
        ("reschedule", json!({ "runAt": "2031-05-01T12:00:00Z" })),
    ] {
        let answer = ground.post(&format!("/jobs/{unknown}/{command}"), body).await;
        assert_eq!(answer.refused(), (404, "RETRY_NOT_FOUND".into()), "{command}");
    }
}

#[tokio::test]
async fn many_are_snoozed_rescheduled_and_corrected_by_one_call() {
    let ground = Ground::new().await;
    let mine = ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let other = ground.enqueue(json!({ "kind": "sms", "delay": "1h" })).await;
    ground.dead("mail", "no such address").await;
    let due = |job: Value| millis(&job["dueAt"]);
    let before = due(ground.job(&mine).await);
    let command = |command: &str, name: &str, value: Value| json!({ "command": command, "filter": { "kind": "mail" }, "dryRun": false, name: value });

    let done = ground.post("/jobs/commands", command("snooze", "delay", json!("2h"))).await.data();
    assert_eq!(done, json!({ "matching": 1, "more": false, "done": 1 }), "the dead one is not counted");
    assert!(due(ground.job(&mine).await) >= before + 3_600_000);
    let at = "2027-03-01T12:00:00Z";
    ground.post("/jobs/commands", command("reschedule", "runAt", json!(at))).await.data();
    assert_eq!(due(ground.job(&mine).await), millis(&json!(at)));
    let edit = json!({ "policy": "media", "payload": { "to": "ada" } });
    let done = ground.post("/jobs/commands", command("edit", "edit", edit.clone())).await.data();
    assert_eq!(done["done"], 2, "a dead one can be corrected too");
    let found = ground.job(&mine).await;
    assert_eq!((&found["payload"], found["edits"].as_array().unwrap().len()), (&json!({ "to": "ada" }), 1));
    assert_eq!(ground.job(&other).await["edits"], json!([]));

    for unclear in [
        command("snooze", "runAt", json!(at)),
        command("cancel", "delay", json!("1h")),
        command("reschedule", "edit", edit.clone()),
        json!({ "command": "edit", "all": true, "dryRun": false, "edit": edit }),
        json!({ "command": "cancel", "filter": { "kind": "mail" } }),
    ] {
        let answer = ground.post("/jobs/commands", unclear).await;
        assert_eq!(answer.refused(), (422, "RETRY_INVALID".into()));
    }
    assert_eq!(ground.state(&mine).await, "waiting");
}
