//! What is sent by mistake or in malice: refused with a code and a hint, never an error of ours, and nothing is made.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::ground::{Ground, api, ids};

const UNKNOWN: &str = "019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e";

/// Sends a body as it is.
async fn refused(ground: &Ground, path: &str, body: impl Into<bytes::Bytes>) -> (u16, String) {
    let headers = [("content-type", "application/json")];
    ground.client.ask("POST", &api(path), &headers, body.into()).await.refused()
}

/// What is said about a body, with what to do.
async fn said(ground: &Ground, path: &str, body: impl Into<bytes::Bytes>) -> String {
    let headers = [("content-type", "application/json")];
    words(&ground.client.ask("POST", &api(path), &headers, body.into()).await)
}

fn words(answer: &Answer) -> String {
    answer.refused();
    let refused: Value = serde_json::from_slice(&answer.body).unwrap();
    format!(
        "{} / {}",
        refused["error"]["message"].as_str().unwrap(),
        refused["error"]["hint"].as_str().unwrap()
    )
}

fn invalid() -> (u16, String) {
    (422, "RETRY_INVALID".into())
}

async fn assert_empty(ground: &Ground) {
    assert_eq!(ids(&ground.get("/jobs").await), Vec::<String>::new());
    assert_eq!(ground.get("/stats").await["enqueued"], 0);
}

#[tokio::test]
async fn a_job_that_is_not_understood_is_refused_and_not_made() {
    let ground = Ground::new().await;
    let long = "x".repeat(257);
    let labels: serde_json::Map<String, Value> = (0..33).map(|n| (format!("l{n}"), json!("v"))).collect();
    for job in [
        json!({}),
        json!([]),
        json!("mail"),
        json!(null),
        json!({ "kind": 17 }),
        json!({ "kind": "" }),
        json!({ "kind": long }),
        json!({ "kind": "mail", "unknown": 1 }),
        json!({ "kind": "mail", "queue": "nowhere" }),
        json!({ "kind": "mail", "queue": long }),
        json!({ "kind": "mail", "key": "" }),
        json!({ "kind": "mail", "key": long }),
        json!({ "kind": "mail", "onConflict": "overwrite" }),
        json!({ "kind": "mail", "onConflict": 1 }),
        json!({ "kind": "mail", "orderingKey": "" }),
        json!({ "kind": "mail", "destination": "" }),
        json!({ "kind": "mail", "destination": "a\nb" }),
        json!({ "kind": "mail", "labels": { "": "x" } }),
        json!({ "kind": "mail", "labels": ["x"] }),
        json!({ "kind": "http", "payload": { "url": "https://example.com/", "headers": ["x"] } }),
        json!({ "kind": "mail", "priority": 40_000 }),
        json!({ "kind": "mail", "priority": "high" }),
        json!({ "kind": "mail", "delay": "soon" }),
        json!({ "kind": "mail", "delay": -5 }),
        json!({ "kind": "mail", "delay": "-5s" }),
        json!({ "kind": "mail", "delay": "1s", "runAt": "2031-05-01T12:00:00Z" }),
        json!({ "kind": "mail", "runAt": "tomorrow" }),
        json!({ "kind": "mail", "deadline": "2001-01-01T00:00:00Z" }),
        json!({ "kind": "mail", "startBy": "2001-01-01T00:00:00Z" }),
        json!({ "kind": "mail", "timeout": "0s" }),
        json!({ "kind": "mail", "parent": "17" }),
        json!({ "kind": "mail", "labels": { "a": 1 } }),
        json!({ "kind": "mail", "labels": labels }),
        json!({ "kind": "mail", "labels": { "a": long } }),
        json!({ "kind": "mail", "policy": "no such policy" }),
        json!({ "kind": "mail", "policy": 17 }),
        json!({ "kind": "mail", "policy": { "backoff": { "kind": "wild" } } }),
        json!({ "kind": "mail", "policy": { "backoff": { "kind": "fixed" } } }),
        json!({ "kind": "mail", "policy": { "maxAttempts": 0 } }),
        json!({ "kind": "mail", "policy": { "maxAttempts": -1 } }),
        json!({ "kind": "mail", "policy": { "maxAttempt": 3 } }),
        json!({ "kind": "mail", "policy": { "backoff": { "kind": "exponential", "base": "1s", "factor": -2 } } }),
        json!({ "kind": "mail", "policy": { "jitter": { "kind": "ratio", "ratio": 7 } } }),
        json!({ "kind": "http" }),
        json!({ "kind": "http", "payload": { "url": "ftp://example.com/" } }),
        json!({ "kind": "http", "payload": { "url": "http://user:secret@example.com/" } }),
        json!({ "kind": "http", "payload": { "url": "https://example.com/", "method": "BREW IT" } }),
        json!({ "kind": "command", "payload": { "command": "rm", "dryRun": false } }),
    ] {
        assert_eq!(refused(&ground, "/jobs", job.to_string()).await, invalid(), "{job}");
    }
    assert_empty(&ground).await;
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused_and_nothing_is_made() {
    let ground = Ground::new().await;
    let bad = (400, "RETRY_INVALID".to_owned());
    for body in
        ["", "{", "{\"kind\":\"mail\"", "{'kind':'mail'}", "{\"kind\":\"mail\"} {}", "\u{feff}{}", "NaN"]
    {
        assert_eq!(refused(&ground, "/jobs", body).await, bad, "{body}");
    }
    let not_utf8 = b"{\"kind\":\"ma\xff\xfe\"}".to_vec();
    assert_eq!(refused(&ground, "/jobs", not_utf8).await, bad);
    let half_a_pair = r#"{"kind":"\ud800"}"#;
    assert!(matches!(refused(&ground, "/jobs", half_a_pair).await, (400 | 422, _)));
    let twice = r#"{"kind":"mail","kind":"sms"}"#;
    assert_eq!(refused(&ground, "/jobs", twice).await, invalid());
    let huge = r#"{"kind":"mail","payload":1e999}"#;
    assert_eq!(refused(&ground, "/jobs", huge).await, invalid());
    assert_empty(&ground).await;
}

#[tokio::test]
async fn what_is_wrong_is_named_with_its_place_and_what_to_write() {
    let ground = Ground::new().await;
    for (path, body, problem) in [
        ("/jobs", json!({ "kind": "x", "key": 17 }), "key is 17; write a string"),
        ("/jobs", json!({ "kind": "x", "labels": { "a": 1 } }), "labels.a is 1; write a string"),
        (
            "/jobs",
            json!({ "kind": "x", "labels": ["a"] }),
            r#"labels is a list; write an object {"name": "value"}"#,
        ),
        (
            "/jobs",
            json!({ "kind": "x", "onConflict": 1 }),
            "onConflict is 1; write ignore, replace or reject",
        ),
        ("/jobs", json!({ "kind": "x", "unknown": 1 }), "unknown is not known; write kind, payload, queue"),
        ("/jobs", json!({}), "kind is missing"),
        ("/jobs", json!([]), "the body does not begin with {; send a JSON object"),
        ("/jobs", json!("mail"), "the body does not begin with {; send a JSON object"),
        (
            "/jobs",
            json!({ "kind": "http", "payload": { "url": "http://a/", "headers": [1] } }),
            r#"payload.headers is a list; write an object {"name": "value"}"#,
        ),
        (
            "/jobs",
            json!({ "kind": "http", "payload": { "url": "http://a/", "headers": { "a": 1 } } }),
            "payload.headers.a is 1; write a string",
        ),
        (
            "/jobs/commands",
            json!({ "command": "cancel", "dryRun": false, "filter": { "state": 1 } }),
            "filter.state is 1; write a string",
        ),
        ("/jobs/commands", json!({ "command": 1, "all": true }), "command is 1; write cancel, retry,"),
        (
            "/jobs/commands",
            json!({ "command": "cancel", "dryRun": false, "filter": [] }),
            "filter is a list; write an object",
        ),
        (
            "/jobs/commands",
            json!({ "command": "edit", "dryRun": false, "all": true, "edit": [] }),
            "edit is a list; write an object",
        ),
        (
            "/workers/lease",
            json!({ "kinds": ["mail"], "limit": "all" }),
            r#"limit is "all"; write a whole number from 0 on"#,
        ),
        ("/workers/lease", json!({ "kinds": "mail" }), r#"kinds is "mail"; write a list"#),
        (
            "/retry",
            json!({ "taskId": "t", "taskType": "p", "error": 17 }),
            "error is 17; write a text, such as",
        ),
    ] {
        let said = said(&ground, path, body.to_string()).await;
        assert!(said.contains(problem), "{body}: {said}");
        assert!(!said.contains("at line"), "{said}");
    }
    let entries = ground.post("/jobs/bulk", json!([{ "kind": "x", "key": 17 }])).await.data();
    let said = entries[0]["error"]["message"].as_str().unwrap();
    assert_eq!(said, "the entry is not understood: key is 17; write a string");
    assert_empty(&ground).await;
}

#[tokio::test]
async fn a_hint_has_no_names_of_another_language() {
    let ground = Ground::new().await;
    ground.enqueue(json!({ "kind": "mail", "key": "k", "delay": "1h" })).await;
    let taken = json!({ "kind": "mail", "key": "k", "onConflict": "reject" });
    let late = json!({ "kind": "mail", "startBy": "2001-01-01T00:00:00Z" });
    for (body, hint) in [(taken, "say ignore or replace"), (late, "a later time to start by")] {
        let said = said(&ground, "/jobs", body.to_string()).await;
        assert!(said.contains(hint) && !said.contains('_'), "{said}");
    }
}

#[tokio::test]
async fn who_sends_nothing_is_told_what_to_send() {
    let ground = Ground::new().await;
    for (path, least) in [("/jobs", "a JSON object, {} at least"), ("/jobs/bulk", "a JSON list, [] at least")]
    {
        for body in ["", " \n"] {
            let said = said(&ground, path, body).await;
            assert!(said.starts_with(&format!("the body is empty; send {least}")), "{said}");
        }
    }
}

#[tokio::test]
async fn an_object_without_fields_may_be_sent_as_php_writes_it() {
    let ground = Ground::new().await;
    let payload = json!({ "url": "https://example.com/", "headers": [] });
    let job = json!({ "kind": "http", "payload": payload, "labels": [], "delay": "1h" });
    let job = ground.enqueue(job).await;
    assert_eq!(ground.job(&job).await["labels"], json!({}));
}

#[tokio::test]
async fn a_time_whose_plus_is_read_as_a_space_is_refused_with_the_reason() {
    let ground = Ground::new().await;
    let answer = ground.client.get(&api("/jobs?from=2026-11-18T10:00:00+02:00")).await;
    assert!(words(&answer).contains("write + as %2B, or use Z"), "{answer:?}");
    for good in ["2026-11-18T10:00:00%2B02:00", "2026-11-18T08:00:00Z"] {
        assert_eq!(ground.client.get(&api(&format!("/jobs?from={good}"))).await.status, 200, "{good}");
    }
    let answer = ground.client.get(&api("/jobs?from=yesterday&kind=a+b")).await;
    assert!(words(&answer).contains("from: \"yesterday\" is not a time"), "{answer:?}");
    let answer = ground.client.get(&api("/jobs?limit=many")).await;
    assert!(words(&answer).contains("limit: write a whole number"), "{answer:?}");
    let far = json!({ "kind": "mail", "runAt": "9999-12-31T23:59:59Z" });
    assert!(said(&ground, "/jobs", far.to_string()).await.contains("is too far away"));
}

#[tokio::test]
async fn json_may_be_sixty_four_levels_deep_and_no_deeper() {
    let ground = Ground::new().await;
    let nested = |levels: usize| {
        let levels = levels - 1;
        format!("{{\"kind\":\"mail\",\"payload\":{}{}}}", "[".repeat(levels), "]".repeat(levels))
    };
    for levels in [65, 1_000, 100_000] {
        assert_eq!(refused(&ground, "/jobs", nested(levels)).await, invalid(), "{levels}");
    }
    assert_empty(&ground).await;
    let headers = [("content-type", "application/json")];
    let answer = ground.client.ask("POST", &api("/jobs"), &headers, nested(64).into()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

#[tokio::test]
async fn a_payload_at_its_limit_is_taken_and_one_byte_more_is_not() {
    let ground = Ground::with("[limits]\npayload_bytes = 1024\nbody_bytes = 2048").await;
    let job = |bytes: usize| json!({ "kind": "mail", "payload": "x".repeat(bytes - 2) }).to_string();
    let too_large = (413, "RETRY_TOO_LARGE".to_owned());
    assert_eq!(refused(&ground, "/jobs", job(1_025)).await, too_large);
    assert_empty(&ground).await;
    let headers = [("content-type", "application/json")];
    assert_eq!(ground.client.ask("POST", &api("/jobs"), &headers, job(1_024).into()).await.status, 201);
}

#[tokio::test]
async fn a_body_at_its_limit_is_taken_and_one_byte_more_is_not() {
    let ground = Ground::with("[limits]\npayload_bytes = 1024\nbody_bytes = 2048").await;
    let job = |bytes: usize| format!("{:<bytes$}", r#"{"kind":"mail"}"#);
    assert_eq!(refused(&ground, "/jobs", job(2_049)).await, (413, "RETRY_TOO_LARGE".to_owned()));
    assert_empty(&ground).await;
    let headers = [("content-type", "application/json")];
    assert_eq!(ground.client.ask("POST", &api("/jobs"), &headers, job(2_048).into()).await.status, 201);
}

#[tokio::test]
async fn the_usual_payload_limit_is_256_kibibytes() {
    let ground = Ground::new().await;
    let most = 256 << 10;
    let job = |bytes: usize| json!({ "kind": "mail", "payload": "x".repeat(bytes - 2) }).to_string();
    assert_eq!(refused(&ground, "/jobs", job(most + 1)).await, (413, "RETRY_TOO_LARGE".to_owned()));
    let headers = [("content-type", "application/json")];
    assert_eq!(ground.client.ask("POST", &api("/jobs"), &headers, job(most).into()).await.status, 201);
}

#[tokio::test]
async fn what_stands_behind_the_question_mark_is_checked() {
    let ground = Ground::new().await;
    for path in [
        "/jobs?limit=0",
        "/jobs?limit=1001",
        "/jobs?limit=-1",
        "/jobs?limit=many",
        "/jobs?limit=99999999999999999999999",
        "/jobs?cursor=17",
        "/jobs?cursor=cxyz",
        "/jobs?state=asleep",
        "/jobs?state=waiting,",
        "/jobs?label=customer",
        "/jobs?parent=17",
        "/jobs?from=yesterday",
        "/jobs?unknown=1",
        "/jobs?kind=a&kind=b",
        "/dead?state=dead",
        "/dead/groups?limit=0",
        "/activity?limit=0",
        "/activity?limit=10001",
        "/retry/pending?limit=0",
        "/retry/pending?cursor=x",
        &format!("/jobs/{UNKNOWN}?wait=long"),
        &format!("/jobs/{UNKNOWN}?patience=1s"),
        "/jobs/%ff%fe",
    ] {
        let answer = ground.client.get(&api(path)).await;
        assert!(
            matches!(answer.refused(), (400 | 422, code) if code == "RETRY_INVALID"),
            "{path}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn other_bodies_are_checked_as_well() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let before = ground.job(&job).await;
    let worker = "0".repeat(32);
    for (path, body) in [
        (format!("/jobs/{job}/snooze"), json!({})),
        (format!("/jobs/{job}/snooze"), json!({ "delay": "later" })),
        (format!("/jobs/{job}/snooze"), json!(["2h"])),
        (format!("/jobs/{job}/snooze"), json!({ "delay": "1s", "why": "x" })),
        (format!("/jobs/{job}/reschedule"), json!({ "runAt": "noon" })),
        (format!("/jobs/{job}/reschedule"), json!({ "runAt": 17 })),
        ("/jobs/commands".into(), json!({ "command": "explode", "dryRun": false, "all": true })),
        (
            "/jobs/commands".into(),
            json!({ "command": "cancel", "dryRun": false, "filter": { "sate": "waiting" } }),
        ),
        (
            "/jobs/commands".into(),
            json!({ "command": "cancel", "dryRun": false, "filter": { "state": "asleep" } }),
        ),
        ("/jobs/commands".into(), json!({ "command": "cancel", "dryRun": false, "all": "yes" })),
        ("/jobs/commands".into(), json!(["cancel", {}, true, false])),
        (
            "/jobs/commands".into(),
            json!({ "command": "cancel", "dryRun": false, "filter": ["waiting", null, null, null, null, null, null, null, null, null] }),
        ),
        ("/jobs/bulk".into(), json!({ "kind": "mail" })),
        ("/retry".into(), json!({ "taskId": "", "taskType": "parse", "error": "timeout" })),
        ("/retry".into(), json!({ "taskId": "t", "taskType": "", "error": "timeout" })),
        ("/retry".into(), json!({ "taskId": "t", "taskType": "parse", "error": 17 })),
        ("/retry".into(), json!({ "taskId": "t", "taskType": "parse", "error": { "code": "TIMEOUT" } })),
        ("/retry".into(), json!({ "taskId": "t", "taskType": "parse" })),
        ("/policies/preview".into(), json!({ "policy": "media", "count": 0 })),
        ("/policies/preview".into(), json!({ "policy": "media", "count": 1001 })),
        ("/policies/simulate".into(), json!({ "policy": "no such one" })),
        ("/policies/simulate".into(), json!({ "policy": "media", "arrivalsPerSecond": 0 })),
        ("/policies/simulate".into(), json!({ "policy": "media", "arrivalsPerSecond": 41 })),
        ("/policies/simulate".into(), json!({ "policy": "media", "capacityPerSecond": 1001 })),
        ("/policies/simulate".into(), json!({ "policy": "media", "outage": "5m1s" })),
        ("/policies/simulate".into(), json!({ "policy": "media", "arrivalsPerSecond": 39, "outage": "5m" })),
        ("/classify".into(), json!({ "message": "x", "status": 70_000 })),
        ("/classify".into(), json!({ "status": 503 })),
        ("/workers/lease".into(), json!({})),
        ("/workers/lease".into(), json!({ "kinds": [] })),
        ("/workers/lease".into(), json!({ "kinds": ["mail"], "limit": 0 })),
        ("/workers/lease".into(), json!({ "kinds": ["mail"], "limit": 1001 })),
        ("/workers/lease".into(), json!({ "kinds": ["mail"], "leaseFor": "10ms" })),
        ("/workers/lease".into(), json!({ "kinds": ["mail"], "leaseFor": "2h" })),
        ("/workers/lease".into(), json!({ "kinds": ["mail"], "wait": "a while" })),
        ("/workers/lease".into(), json!({ "kinds": ["mail"], "workerId": "me" })),
        ("/workers/heartbeat".into(), json!({ "workerId": "me" })),
        ("/workers/heartbeat".into(), json!({ "workerId": worker, "leaseFor": "0s" })),
    ] {
        assert_eq!(ground.post(&path, body.clone()).await.refused(), invalid(), "{path} {body}");
    }
    assert_eq!(ground.job(&job).await, before, "nothing has changed");
    assert_eq!(ground.get("/stats").await["enqueued"], 1);
}

#[tokio::test]
async fn what_is_not_there_and_what_cannot_be_done_there_are_told_apart() {
    let ground = Ground::new().await;
    let answer = ground.client.get("/api/v1/nowhere").await;
    assert_eq!(answer.refused(), (404, "RETRY_NOT_FOUND".into()));
    assert_eq!(ground.client.get("/nowhere").await.refused(), (404, "RETRY_NOT_FOUND".into()));
    for (method, path) in [("PUT", "/jobs"), ("GET", "/jobs/bulk"), ("DELETE", "/stats"), ("PATCH", "/retry")]
    {
        let answer = ground.client.ask(method, &api(path), &[], bytes::Bytes::new()).await;
        assert_eq!(answer.refused(), (405, "RETRY_METHOD".into()), "{method} {path}");
        assert!(answer.headers.contains_key("allow"), "{method} {path}: {answer:?}");
    }
}
