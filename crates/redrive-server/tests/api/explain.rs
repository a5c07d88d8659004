//! What is foretold is what happens.

use serde_json::json;

use crate::ground::{Ground, millis};

#[tokio::test]
async fn the_forecast_of_a_failing_job_is_what_then_happens() {
    let ground = Ground::new().await;
    let policy = json!({
        "backoff": { "kind": "exponential", "base": "10s", "factor": 3, "cap": "1m" },
        "jitter": { "kind": "ratio", "ratio": 0.5 }, "maxAttempts": 4,
    });
    let job = ground.enqueue(json!({ "kind": "mail", "policy": policy })).await;
    let foretold = ground.get(&format!("/jobs/{job}/explain")).await;
    let steps = foretold["next"].as_array().unwrap();
    let words: Vec<&str> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(words, ["attempt", "attempt", "attempt", "attempt", "dead"]);
    assert_eq!(steps.iter().filter_map(|step| step["run"].as_u64()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let times: Vec<i64> = steps.iter().map(|step| millis(&step["at"])).collect();

    for run in 0..4 {
        let lease = ground.lease("mail").await;
        ground.report(&lease, "fail", json!({ "message": "timeout" })).await.data();
        let now = ground.job(&job).await;
        let Some(due) = now.get("dueAt") else { break };
        let ended = millis(&now["attempts"][run]["endedAt"]);
        // To the millisecond: from the end of a run to the next one.
        assert_eq!(millis(due) - ended, times[run + 1] - times[run], "after run {}", run + 1);
        ground.post(&format!("/jobs/{job}/retry"), json!({})).await.data();
    }
    let ended = ground.job(&job).await;
    assert_eq!((&ended["state"], &ended["why"]), (&json!("dead"), &steps[4]["why"]));
}

#[tokio::test]
async fn an_explanation_says_why_a_job_waits_and_until_when() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let path = format!("/jobs/{job}/explain");
    let said = ground.get(&path).await;
    let summary = said["summary"].as_str().unwrap();
    // In the same millisecond it is the whole hour.
    assert!(
        ["59m", "1h more"].iter().any(|left| summary.starts_with(&format!("waiting for {left}"))),
        "{said}"
    );
    assert_eq!(said["until"], ground.job(&job).await["dueAt"]);

    ground.post("/queues/default/pause", json!({})).await.data();
    let said = ground.get(&path).await;
    assert!(said["summary"].as_str().unwrap().contains("is paused"), "{said}");
    assert_eq!(said.get("until"), None);
    ground.post("/queues/default/resume", json!({})).await.data();

    ground.post(&format!("/jobs/{job}/retry"), json!({})).await.data();
    let lease = ground.lease("mail").await;
    assert!(ground.get(&path).await["summary"].as_str().unwrap().starts_with("running for"));
    ground.report(&lease, "fail", json!({ "message": "connection reset" })).await.data();
    let said = ground.get(&path).await;
    assert_eq!(said["lastError"], "connection reset");
    assert!(said["retry"].as_str().unwrap().starts_with("retry 1"), "{said}");
    ground.post(&format!("/jobs/{job}/cancel"), json!({})).await.data();
    assert!(ground.get(&path).await["summary"].as_str().unwrap().starts_with("cancelled"));
}

#[tokio::test]
async fn a_due_job_that_only_a_worker_runs_says_so_and_nothing_is_foretold_of_the_past() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "htpp", "runAt": "2020-01-01T00:00:00Z" })).await;
    let said = ground.get(&format!("/jobs/{job}/explain")).await;
    let summary = said["summary"].as_str().unwrap();
    assert!(summary.ends_with("it starts when a worker leases jobs of the kind \"htpp\""), "{said}");
    assert_eq!(said["next"][0]["in"], "0s", "{said}");

    let dead = ground.dead("mail", "no such address").await;
    let said = ground.get(&format!("/jobs/{dead}/explain")).await;
    assert_eq!(said["next"], json!([]), "{said}");
}

#[tokio::test]
async fn a_job_whose_last_retry_has_failed_has_made_no_more_than_it_may() {
    let ground = Ground::new().await;
    let policy = json!({ "backoff": { "kind": "immediate" }, "maxRetries": 1 });
    let job = ground.enqueue(json!({ "kind": "mail", "policy": policy })).await;
    for _ in 0..2 {
        let lease = ground.lease("mail").await;
        ground.report(&lease, "fail", json!({ "message": "timeout" })).await.data();
    }
    let said = ground.get(&format!("/jobs/{job}/explain")).await;
    assert_eq!((&said["state"], &said["retry"]), (&json!("dead"), &json!("retry 1 of 1")));
}
