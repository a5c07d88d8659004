//! Jobs put in, one and many, and looked at.

use serde_json::{Value, json};

use crate::ground::{Ground, api, id, millis};
use crate::target::{Target, answer};

#[tokio::test]
async fn a_job_keeps_everything_it_was_sent_with() {
    let ground = Ground::with("[queues.default]\n[queues.letters]").await;
    let parent = ground.enqueue(json!({ "kind": "batch" })).await;
    let sent = json!({
        "kind": "mail", "payload": { "to": "ada" }, "queue": "letters", "key": "mail-17", "priority": 5,
        "runAt": "2031-05-01T12:00:00Z", "deadline": "2031-05-02T12:00:00Z",
        "startBy": "2031-05-01T18:00:00Z", "timeout": "90s", "orderingKey": "ada", "destination": "smtp",
        "parent": parent, "labels": { "customer": "17" },
        "policy": { "backoff": { "kind": "fixed", "delay": "5s" }, "maxAttempts": 3 },
    });
    let answer = ground.post("/jobs", sent.clone()).await;
    assert_eq!(answer.status, 201);
    let data = answer.data();
    assert_eq!(data["state"], "waiting");
    assert_eq!((&data["deduplicated"], &data["replaced"]), (&json!(false), &json!(false)));
    let job = ground.job(&id(&data)).await;
    let same =
        ["kind", "payload", "queue", "key", "priority", "orderingKey", "destination", "parent", "labels"];
    for name in same {
        assert_eq!(job[name], sent[name], "{name}");
    }
    for (name, expected) in [("dueAt", "runAt"), ("deadline", "deadline"), ("startBy", "startBy")] {
        assert_eq!(millis(&job[name]), millis(&sent[expected]), "{name}");
    }
    assert_eq!((&job["timeout"], &job["retriesAllowed"]), (&json!("1m30s"), &json!(2)));
    assert_eq!(job["attempts"], json!([]));
}

#[tokio::test]
async fn a_key_is_taken_until_its_job_is_final() {
    let ground = Ground::new().await;
    let job =
        |conflict: &str| json!({ "kind": "mail", "key": "k", "payload": conflict, "onConflict": conflict });
    let first = id(&ground.post("/jobs", job("ignore")).await.data());
    let second = ground.post("/jobs", job("ignore")).await;
    assert_eq!((second.status, &second.data()["deduplicated"]), (200, &json!(true)));
    assert_eq!(id(&second.data()), first);
    assert_eq!(ground.post("/jobs", job("reject")).await.refused(), (409, "RETRY_CONFLICT".into()));
    assert_eq!(ground.job(&first).await["payload"], "ignore");
    let replaced = ground.post("/jobs", job("replace")).await;
    assert_eq!((replaced.status, &replaced.data()["replaced"]), (200, &json!(true)));
    assert_eq!(ground.job(&id(&replaced.data())).await["payload"], "replace");
    ground.post(&format!("/jobs/{}/cancel", id(&replaced.data())), json!({})).await.data();
    assert_eq!(ground.post("/jobs", job("reject")).await.status, 201);
}

#[tokio::test]
async fn a_failure_is_of_the_class_that_decided_what_became_of_the_job() {
    let ground = Ground::new().await;
    let rules = json!([{ "on": "code:BROKEN", "class": "permanent" }]);
    let policy = json!({ "backoff": { "kind": "fixed", "delay": "1h" }, "maxAttempts": 5, "rules": rules });
    let job = ground.enqueue(json!({ "kind": "mail", "policy": policy })).await;
    let lease = ground.lease("mail").await;
    let failure = json!({ "class": "transient", "code": "BROKEN", "message": "no such customer" });
    ground.report(&lease, "fail", failure).await.data();
    let job = ground.job(&job).await;
    assert_eq!(
        (&job["state"], &job["attempts"][0]["rule"]),
        (&json!("dead"), &json!("policy rule code:BROKEN"))
    );
    for failure in [&job["lastError"], &job["attempts"][0]["failure"]] {
        assert_eq!(failure["class"], "permanent", "{failure}");
    }
}

#[tokio::test]
async fn whatever_stands_where_an_id_belongs_names_nothing() {
    let ground = Ground::new().await;
    for path in ["/jobs/nope", "/jobs/7", "/executions/nope"] {
        let (status, code) = ground.client.get(&api(path)).await.refused();
        assert_eq!((status, code.as_str()), (404, "RETRY_NOT_FOUND"), "{path}");
    }
    let trigger = ground.post("/retry/nope/trigger", json!({})).await;
    assert_eq!(trigger.refused(), (404, "RETRY_NOT_FOUND".into()));
}

#[tokio::test]
async fn many_jobs_are_answered_each_by_itself_in_their_order() {
    let ground = Ground::new().await;
    let sent = json!([
        { "kind": "mail", "key": "a" },
        { "kind": "" },
        { "kind": "mail", "queue": "nowhere" },
        17,
        { "kind": "mail", "unknown": true },
        { "kind": "http", "payload": { "url": "no url" } },
        { "kind": "mail", "key": "a" },
        { "kind": "sms" },
    ]);
    let answered = ground.post("/jobs/bulk", sent).await.data();
    let entries = answered.as_array().unwrap();
    let codes: Vec<Option<&str>> = entries.iter().map(|entry| entry["error"]["code"].as_str()).collect();
    let bad = Some("RETRY_INVALID");
    assert_eq!(codes, [None, bad, bad, bad, bad, bad, None, None]);
    assert!(entries[1]["error"]["hint"].is_string() && entries[1]["error"]["message"].is_string());
    assert_eq!((&entries[6]["id"], &entries[6]["deduplicated"]), (&entries[0]["id"], &json!(true)));
    assert_eq!(ground.get("/stats").await["waiting"], 2);
}

#[tokio::test]
async fn as_many_jobs_as_allowed_are_taken_and_one_more_is_refused_whole() {
    let ground = Ground::with("[limits]\nbatch = 3").await;
    let jobs = |count: usize| Value::from(vec![json!({ "kind": "mail" }); count]);
    assert_eq!(ground.post("/jobs/bulk", jobs(4)).await.refused(), (413, "RETRY_TOO_LARGE".into()));
    assert_eq!(ground.get("/stats").await["waiting"], 0);
    assert_eq!(ground.post("/jobs/bulk", jobs(3)).await.data().as_array().unwrap().len(), 3);
    assert_eq!(ground.post("/jobs/bulk", json!([])).await.data(), json!([]));
}

#[tokio::test]
async fn whoever_waits_for_a_job_is_answered_when_it_is_final() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let client = ground.client.clone();
    let path = api(&format!("/jobs/{job}?wait=1m"));
    let waiting = tokio::spawn(async move { client.get(&path).await.data() });
    let lease = ground.lease("mail").await;
    ground.report(&lease, "complete", json!({ "output": { "sent": true } })).await.data();
    let seen = waiting.await.unwrap();
    assert_eq!((&seen["state"], &seen["output"]), (&json!("succeeded"), &json!({ "sent": true })));
}

#[tokio::test]
async fn a_wait_that_is_over_answers_with_the_job_as_it_is() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    assert_eq!(ground.get(&format!("/jobs/{job}?wait=50ms")).await["state"], "waiting");
}

#[tokio::test]
async fn an_http_job_calls_its_url_until_that_says_yes() {
    let ground = Ground::with("[egress]\nallow = [\"127.0.0.0/8\"]").await;
    let target = Target::start(|n, _| answer(if n < 2 { 503 } else { 200 }, "", "well")).await;
    let job = json!({
        "kind": "http", "payload": { "method": "POST", "url": target.url("/orders"), "body": { "order": 17 } },
        "policy": { "backoff": { "kind": "fixed", "delay": "10ms" }, "maxAttempts": 4 },
    });
    let job = ground.enqueue(job).await;
    let ended = ground.get(&format!("/jobs/{job}?wait=30s")).await;
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("succeeded"), &json!(3)), "{ended}");
    let attempts = ended["attempts"].as_array().unwrap();
    assert_eq!(attempts.iter().map(|attempt| &attempt["failure"]["status"]).collect::<Vec<_>>(), [503, 503]);
    let asked = target.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[2].headers["redrive-attempt"], "3");
    assert_eq!(asked[0].headers["idempotency-key"], asked[2].headers["idempotency-key"]);
    assert_eq!(asked[2].body, br#"{"order":17}"#);
}

#[tokio::test]
async fn a_call_to_this_machine_is_refused_unless_the_operator_allows_it() {
    let ground = Ground::new().await;
    let target = Target::start(|_, _| answer(200, "", "")).await;
    let payload = json!({ "url": target.url("/") });
    let job = ground.enqueue(json!({ "kind": "http", "payload": payload })).await;
    let ended = ground.get(&format!("/jobs/{job}?wait=30s")).await;
    assert_eq!(ended["state"], "dead", "{ended}");
    assert_eq!(target.connections(), 0);
}
