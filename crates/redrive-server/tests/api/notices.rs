//! What people are told: the words, once each, to whom the rules name.

use serde_json::{Value, json};

use crate::events::Stream;
use crate::ground::Ground;
use crate::target::{Target, answer};

fn attempts(max: u32) -> Value {
    json!({ "backoff": { "kind": "immediate" }, "maxAttempts": max })
}

async fn fail(ground: &Ground, kind: &str) {
    let lease = ground.lease(kind).await;
    ground.report(&lease, "fail", json!({ "message": "timeout" })).await.data();
}

#[tokio::test]
async fn an_operation_that_failed_for_good_is_told_in_the_words_that_were_asked_for() {
    let ground = Ground::new().await;
    let mut stream = Stream::open(&ground, None).await;
    let id = ground.enqueue(json!({ "kind": "sync_contacts", "policy": attempts(4) })).await;
    for _ in 0..4 {
        fail(&ground, "sync_contacts").await;
    }
    let notice = stream.next_of("notice").await.data;
    let words = "Operation 'sync_contacts' failed after 3 retries. See logs.";
    assert_eq!((&notice["message"], &notice["job"]), (&json!(words), &json!(id)));
    let kept = ground.get("/notices").await;
    assert_eq!((kept.as_array().unwrap().len(), &kept[0]["what"]), (1, &json!("dead")));
}

#[tokio::test]
async fn an_operation_that_finished_after_all_is_told_and_one_that_never_failed_is_not() {
    let ground = Ground::new().await;
    let mut stream = Stream::open(&ground, None).await;
    for (kind, fails) in [("quiet", false), ("mail", true)] {
        ground.enqueue(json!({ "kind": kind, "policy": attempts(4) })).await;
        if fails {
            fail(&ground, kind).await;
        }
        let lease = ground.lease(kind).await;
        ground.report(&lease, "complete", json!({})).await.data();
    }
    let notice = stream.next_of("notice").await.data;
    assert_eq!(notice["message"], "Operation 'mail' completed after 1 retry.");
    assert_eq!(ground.get("/notices").await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_webhook_is_a_signed_job_of_its_own_and_its_own_failure_calls_nobody() {
    let target = Target::start(|n, _| answer(if n == 0 { 503 } else { 204 }, "", "")).await;
    let settings = format!(
        "[egress]\nallow = [\"127.0.0.0/8\"]\n[endpoints.ops]\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
         [queues.default]\npolicy = {{ backoff = {{ kind = \"immediate\" }}, max_attempts = 3 }}\n\
         [[notify]]\non = [\"dead\"]\nto = {{ webhook = \"{}\", endpoint = \"ops\" }}\ntext = \"{{kind}}: {{error}}\"\n",
        target.url("/hook")
    );
    let ground = Ground::with(&settings).await;
    let mut stream = Stream::open(&ground, None).await;
    let id = ground.dead("sms", "no such number").await;
    stream.next_of("notice").await;
    let hook = ground.get("/jobs?kind=http").await["items"][0]["id"].as_str().unwrap().to_owned();
    let done = ground.get(&format!("/jobs/{hook}?wait=30s")).await;
    assert_eq!((&done["state"], &done["failures"]), (&json!("succeeded"), &json!(1)), "{done}");
    let asked = target.asked();
    assert!(asked.iter().all(|asked| asked.headers.contains_key("webhook-signature")), "{asked:?}");
    let body: Value = serde_json::from_slice(&asked[0].body).unwrap();
    assert_eq!((&body["type"], &body["data"]["job"]), (&json!("redrive.dead"), &json!(id)));
    assert_eq!(body["data"]["message"], "sms: no such number");
    assert_eq!((&body["data"]["kind"], &body["data"]["queue"]), (&json!("sms"), &json!("default")));
    assert_eq!(body["data"]["log"], format!("/api/v1/jobs/{id}"));
    assert_eq!(ground.get("/jobs?kind=http").await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_failure_rate_is_told_when_it_is_too_high_and_when_it_is_right_again() {
    let ground =
        Ground::with("[[notify]]\non = [\"failure_rate\"]\nto = \"log\"\nrate = \"50%\"\nwindow = \"1d\"\n")
            .await;
    let mut stream = Stream::open(&ground, None).await;
    ground.enqueue(json!({ "kind": "mail", "policy": attempts(11) })).await;
    for _ in 0..10 {
        fail(&ground, "mail").await;
    }
    let high = stream.next_of("notice").await.data;
    assert_eq!((&high["what"], &high["job"]), (&json!("failure_rate"), &Value::Null));
    assert_eq!(high["message"], "100 % of attempts failed in the last 1d (10 of 10).");
    for _ in 0..16 {
        ground.enqueue(json!({ "kind": "sms" })).await;
    }
    let leased = ground.post("/workers/lease", json!({ "kinds": ["sms"], "limit": 100 })).await.data();
    for job in leased["jobs"].as_array().unwrap() {
        ground.report(job["lease"].as_str().unwrap(), "complete", json!({})).await.data();
    }
    let right = stream.next_of("notice").await.data;
    assert_eq!(right["what"], "failure_rate_recovered", "{right}");
    assert_eq!(right["message"], "Recovered: 38.5 % of attempts failed in the last 1d (10 of 26).");
}

#[tokio::test]
async fn a_failure_rate_is_not_made_smaller_by_the_calls_that_tell_of_failures() {
    let target = Target::start(|_, _| answer(204, "", "")).await;
    let settings = format!(
        "[egress]\nallow = [\"127.0.0.0/8\"]\n[[notify]]\non = [\"dead\"]\nto = {{ webhook = \"{}\" }}\n\
         [[notify]]\non = [\"failure_rate\"]\nto = \"log\"\nrate = \"60%\"\nwindow = \"1d\"\n",
        target.url("/hook")
    );
    let ground = Ground::with(&settings).await;
    let mut stream = Stream::open(&ground, None).await;
    for _ in 0..9 {
        ground.dead("sms", "no such number").await;
    }
    for _ in 0..9 {
        stream.next_of("notice").await;
    }
    let calls = ground.get("/jobs?kind=http").await;
    for call in calls["items"].as_array().unwrap() {
        let done = ground.get(&format!("/jobs/{}?wait=30s", call["id"].as_str().unwrap())).await;
        assert_eq!(done["state"], "succeeded");
    }
    ground.enqueue(json!({ "kind": "mail", "policy": attempts(4) })).await;
    fail(&ground, "mail").await;
    let high = stream.next_of("notice").await.data;
    assert_eq!(high["message"], "100 % of attempts failed in the last 1d (10 of 10).", "{high}");
}

/// Completes so many jobs of a kind.
async fn complete(ground: &Ground, kind: &str, queue: &str, count: usize) {
    for _ in 0..count {
        ground.enqueue(json!({ "kind": kind, "queue": queue })).await;
        let lease = ground.lease(kind).await;
        ground.report(&lease, "complete", json!({})).await.data();
    }
}

#[tokio::test]
async fn a_failure_rate_of_one_kind_in_one_queue_counts_nothing_else() {
    let rule = "[[notify]]\non = [\"failure_rate\"]\nto = \"log\"\nrate = \"50%\"\nwindow = \"1d\"\n";
    let settings = format!("[queues.slow]\n{rule}queue = \"slow\"\nkind = \"mail\"\n{rule}kind = \"sms\"\n");
    let ground = Ground::with(&settings).await;
    let mut stream = Stream::open(&ground, None).await;
    complete(&ground, "sms", "default", 15).await;
    complete(&ground, "mail", "default", 15).await;
    ground.enqueue(json!({ "kind": "mail", "queue": "slow", "policy": attempts(11) })).await;
    for _ in 0..10 {
        fail(&ground, "mail").await;
    }
    let high = stream.next_of("notice").await.data;
    assert_eq!(
        high["message"],
        "100 % of attempts of kind mail in queue slow failed in the last 1d (10 of 10)."
    );
    let lease = ground.lease("mail").await;
    ground.report(&lease, "complete", json!({})).await.data();
    complete(&ground, "mail", "slow", 15).await;
    let right = loop {
        // The job that had failed ten times has finished after all, which is told too.
        let notice = stream.next_of("notice").await.data;
        if notice["what"] != "recovered" {
            break notice;
        }
    };
    assert_eq!(
        right["message"],
        "Recovered: 38.5 % of attempts of kind mail in queue slow failed in the last 1d (10 of 26)."
    );
}
