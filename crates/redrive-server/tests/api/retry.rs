//! Retries of what failed elsewhere: queued, listed, triggered, given up, in the words that were asked for.

use serde_json::{Value, json};

use crate::ground::{Ground, api, id, millis};

fn failed(task: &str, error: Value) -> Value {
    json!({ "taskId": task, "taskType": "metadata_fetch", "payload": { "title": "Up" }, "error": error })
}

/// The same, to be tried again after this long.
fn failed_for(task: &str, delay: &str) -> Value {
    let mut form = failed(task, json!("TIMEOUT: no answer"));
    form["policy"] = json!({ "backoff": { "kind": "fixed", "delay": delay }, "maxAttempts": 4 });
    form
}

fn tasks(pending: &Value) -> Vec<&str> {
    pending["items"].as_array().unwrap().iter().map(|item| item["taskId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_queued_retry_is_listed_under_the_names_that_were_asked_for() {
    let ground = Ground::new().await;
    let queued = ground.post("/retry", failed_for("movie-17", "1h")).await;
    assert_eq!(queued.status, 201);
    let queued = queued.data();
    assert_eq!((&queued["state"], &queued["deduplicated"]), (&json!("waiting"), &json!(false)));

    let mut pending = ground.get("/retry/pending").await;
    assert_eq!(pending["stats"], json!({ "totalPending": 1, "totalSucceeded": 0, "totalFailed": 0 }));
    assert_eq!(pending["items"].as_array().unwrap().len(), 1);
    let mut item = pending["items"][0].take();
    let until = item["timeUntilRetry"].take();
    assert!(until == "1h" || until.as_str().unwrap().starts_with("59m"), "{until}");
    let job = ground.job(&id(&queued)).await;
    let expected = json!({
        "id": queued["id"], "taskId": "movie-17", "taskType": "metadata_fetch", "attemptCount": 0,
        "maxAttempts": 4, "lastError": "TIMEOUT: no answer", "nextAttemptAt": job["dueAt"],
        "queued": true,
        "timeUntilRetry": null,
    });
    assert_eq!(item, expected);
    assert_eq!(millis(&job["dueAt"]) - millis(&job["createdAt"]), 3_600_000);
}

#[tokio::test]
async fn a_retry_without_a_policy_has_four_retries_after_one_two_four_and_eight_seconds() {
    let ground = Ground::new().await;
    let queued = ground.post("/retry", failed("movie-17", json!("TIMEOUT"))).await.data();
    let id = id(&queued);
    for (n, seconds) in [1, 2, 4, 8].into_iter().enumerate() {
        let job = ground.job(&id).await;
        let from = match job["attempts"].as_array().unwrap().last() {
            Some(attempt) => millis(&attempt["endedAt"]),
            None => millis(&job["createdAt"]),
        };
        let delay = millis(&job["dueAt"]) - from;
        // Chance may change it by a tenth.
        assert!((seconds * 900..=seconds * 1_100).contains(&delay), "retry {n}: {delay} ms");
        ground.post(&format!("/retry/{id}/trigger"), json!({})).await.data();
        let lease = ground.lease("metadata_fetch").await;
        ground.report(&lease, "fail", json!({ "message": "still a timeout" })).await.data();
    }
    let job = ground.job(&id).await;
    assert_eq!((&job["state"], &job["failures"]), (&json!("dead"), &json!(4)));
    let stats = &ground.get("/retry/pending").await["stats"];
    assert_eq!(stats, &json!({ "totalPending": 0, "totalSucceeded": 0, "totalFailed": 1 }));
}

#[tokio::test]
async fn a_queued_retry_waits_as_long_as_whoever_was_called_has_asked_for() {
    let ground = Ground::new().await;
    let error = json!({ "status": 429, "message": "slow down", "retryAfter": "2h" });
    let queued = ground.post("/retry", failed("movie-17", error)).await.data();
    let job = ground.job(&id(&queued)).await;
    let delay = millis(&job["dueAt"]) - millis(&job["createdAt"]);
    // Never earlier; chance may add a tenth.
    assert!((7_200_000..=7_920_000).contains(&delay), "{delay} ms");
    assert_eq!(job["reason"], "retry_after");
}

#[tokio::test]
async fn pending_retries_are_listed_in_the_order_in_which_they_are_due_and_by_pages() {
    let ground = Ground::new().await;
    for (task, delay) in [("third", "3h"), ("first", "1h"), ("second", "2h")] {
        ground.post("/retry", failed_for(task, delay)).await.data();
    }
    // A job that has not failed is no retry.
    ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let all = ground.get("/retry/pending").await;
    assert_eq!(tasks(&all), ["first", "second", "third"]);
    assert_eq!(all["stats"]["totalPending"], 3);
    assert_eq!(ground.get("/retry/pending?limit=1").await["stats"]["totalPending"], 3, "whatever the page");

    let (mut seen, mut path) = (Vec::new(), "/retry/pending?limit=1".to_owned());
    loop {
        let page = ground.get(&path).await;
        assert!(tasks(&page).len() <= 1, "{page}");
        seen.extend(tasks(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/retry/pending?limit=1&cursor={cursor}");
    }
    assert_eq!(seen, ["first", "second", "third"]);
}

#[tokio::test]
async fn what_is_worth_a_retry_is_queued_and_what_is_not_is_refused_without_a_trace() {
    let ground = Ground::new().await;
    let worth = [
        json!("TIMEOUT: no answer"),
        json!("RATE_LIMIT: slow down"),
        json!("NETWORK_ERROR: gone"),
        json!("SERVICE_DOWN: gone"),
        json!("the request ran into a Timeout"),
        json!("Rate Limit reached"),
        json!("NETWORK is down"),
        json!("connection reset"),
        json!("a temporary problem"),
        json!("cannot refresh token: hunter2 (timeout)"),
        json!("cannot refresh the token: connection reset"),
        json!("service unavailable"),
        json!("answered 503"),
        json!("answered 502"),
        json!("answered 504"),
        json!({ "code": "TIMEOUT", "message": "nothing known" }),
        json!({ "status": 503, "message": "nothing known" }),
    ];
    for (n, error) in worth.iter().enumerate() {
        let answer = ground.post("/retry", failed(&format!("task-{n}"), error.clone())).await;
        assert_eq!(answer.status, 201, "{error}: {answer:?}");
    }
    let hopeless = [
        json!("NOT_FOUND: timeout"),
        json!("INVALID_INPUT: connection"),
        json!("the title is empty"),
        json!({ "code": "NOT_FOUND", "message": "timeout" }),
        json!({ "status": 404, "message": "no such film" }),
    ];
    for (n, error) in hopeless.iter().enumerate() {
        let answer = ground.post("/retry", failed(&format!("hopeless-{n}"), error.clone())).await;
        assert_eq!(answer.refused(), (422, "RETRY_NOT_RETRYABLE".into()), "{error}");
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(body.contains("error is not retryable: "), "{body}");
    }
    let pending = ground.get("/retry/pending").await;
    assert_eq!(tasks(&pending).len(), worth.len());
}

#[tokio::test]
async fn of_an_error_every_field_is_read_or_named() {
    let ground = Ground::new().await;
    let queued = |task: &str, error: Value| {
        let (ground, form) = (&ground, failed(task, error));
        async move { ground.post("/retry", form).await }
    };
    let status = queued("a", json!({ "message": "upstream said no", "statusCode": 503 })).await;
    assert_eq!(status.status, 201);
    let worth = queued("b", json!({ "message": "whatever it was", "retryable": true })).await;
    assert_eq!(worth.status, 201);
    let worth = json!({ "message": "x", "code": "NOT_FOUND", "statusCode": 500, "retryable": true });
    assert_eq!(queued("e", worth).await.status, 201, "whatever a rule says");
    let by_status = json!({ "code": "E_UP", "status": 408, "message": "slow" });
    assert_eq!(queued("f", by_status).await.status, 201, "a code that nobody knows does not hide it");
    let hopeless =
        queued("c", json!({ "code": "TIMEOUT", "message": "never again", "retryable": false })).await;
    assert_eq!(hopeless.refused(), (422, "RETRY_NOT_RETRYABLE".into()));
    for (error, named) in [
        (json!({ "message": "x", "stauts": 404 }), "stauts"),
        (json!({ "message": "x", "status": "503" }), "status"),
        (json!({ "status": 503 }), "message"),
        (json!({ "message": "x", "status": 503, "statusCode": 503 }), "send one of them"),
        (json!(7), "a text, such as"),
    ] {
        let refused = queued("d", error.clone()).await;
        let said = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(refused.status == 422 && said.contains(named), "{error}: {said}");
    }
}

#[tokio::test]
async fn retries_are_counted_from_the_first_one_on() {
    let ground = Ground::new().await;
    let policy = json!({ "backoff": { "kind": "fixed", "delay": "1h" }, "maxRetries": 4 });
    let job = ground.enqueue(json!({ "kind": "mail", "policy": policy })).await;
    for made in 0..3 {
        let lease = ground.lease("mail").await;
        ground.report(&lease, "fail", json!({ "message": "busy", "class": "transient" })).await.data();
        let item = &ground.get("/retry/pending").await["items"][0];
        assert_eq!((&item["attemptCount"], &item["maxAttempts"]), (&json!(made), &json!(4)));
        ground.post(&format!("/retry/{job}/trigger"), json!({})).await.data();
    }
}

#[tokio::test]
async fn a_task_that_is_queued_already_is_not_queued_twice() {
    let ground = Ground::new().await;
    let first = ground.post("/retry", failed_for("movie-17", "1h")).await.data();
    let second = ground.post("/retry", failed_for("movie-17", "2h")).await;
    assert_eq!(second.status, 200);
    let second = second.data();
    assert_eq!((&second["id"], &second["deduplicated"]), (&first["id"], &json!(true)));
    assert_eq!(tasks(&ground.get("/retry/pending").await), ["movie-17"]);
}

#[tokio::test]
async fn a_triggered_retry_is_due_now() {
    let ground = Ground::new().await;
    let id = id(&ground.post("/retry", failed_for("movie-17", "1h")).await.data());
    let other = ground.post("/retry", failed_for("movie-18", "1h")).await.data();
    let triggered = ground.post(&format!("/retry/{id}/trigger"), json!({})).await.data();
    assert_eq!((&triggered["timeUntilRetry"], &triggered["id"]), (&json!("0s"), &json!(id)));
    let pending = ground.get("/retry/pending").await;
    assert_eq!(tasks(&pending), ["movie-17", "movie-18"]);
    assert_eq!(pending["items"][1]["id"], other["id"]);
    assert_eq!(ground.due("metadata_fetch").await, 1);
}

#[tokio::test]
async fn a_trigger_of_a_dead_one_says_how_to_bring_it_back() {
    let ground = Ground::new().await;
    let id = ground.dead("mail", "no such address").await;
    let answer = ground.post(&format!("/retry/{id}/trigger"), json!({})).await;
    assert_eq!(answer.refused(), (409, "RETRY_EXHAUSTED".into()));
    let hint = String::from_utf8_lossy(&answer.body).into_owned();
    let way = format!("/api/v1/jobs/{id}/redrive");
    assert!(hint.contains(&format!("POST {way}")), "{hint}");
    assert_eq!(ground.client.post(&way, &json!({})).await.data()["state"], "waiting");
}

#[tokio::test]
async fn a_retry_that_is_given_up_is_gone_and_its_task_may_be_queued_again() {
    let ground = Ground::new().await;
    let queued = ground.post("/retry", failed_for("movie-17", "1h")).await.data();
    ground.post("/retry", failed_for("movie-18", "1h")).await.data();
    let path = format!("/retry/{}", id(&queued));
    assert_eq!(ground.delete(&path).await.data(), json!({ "id": queued["id"] }));
    assert_eq!(tasks(&ground.get("/retry/pending").await), ["movie-18"]);
    assert_eq!(ground.delete(&path).await.refused(), (409, "RETRY_CONFLICT".into()));
    assert_eq!(ground.post("/retry", failed_for("movie-17", "1h")).await.status, 201);
}

#[tokio::test]
async fn an_unknown_retry_is_not_found() {
    let ground = Ground::new().await;
    let unknown = "019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e";
    let triggered = ground.post(&format!("/retry/{unknown}/trigger"), json!({})).await;
    let deleted = ground.delete(&format!("/retry/{unknown}")).await;
    for answer in [triggered, deleted] {
        assert_eq!(answer.refused(), (404, "RETRY_NOT_FOUND".into()));
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(body.contains(&format!("retry item not found: {unknown}")), "{body}");
    }
}

#[tokio::test]
async fn a_payload_comes_back_with_every_digit() {
    let ground = Ground::new().await;
    let text = r#"{"taskId":"t","taskType":"parse","error":"timeout","payload":{"n":12345678901234567890123,"x":0.10,"é":[null,"\u0041"]}}"#;
    let headers = [("content-type", "application/json")];
    let answer = ground.client.ask("POST", &api("/retry"), &headers, text.into()).await;
    let job = ground.client.get(&api(&format!("/jobs/{}", id(&answer.data())))).await;
    let body = String::from_utf8_lossy(&job.body).into_owned();
    assert!(body.contains("12345678901234567890123") && body.contains("0.10"), "{body}");
}

#[tokio::test]
async fn a_full_queue_takes_nothing_more() {
    let ground = Ground::with("[queues.default]\ncapacity = 2").await;
    for task in ["a", "b"] {
        ground.post("/retry", failed_for(task, "1h")).await.data();
    }
    let answer = ground.post("/retry", failed_for("c", "1h")).await;
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &body["error"]["code"]), (503, &json!("RETRY_QUEUE_FULL")));
    assert_eq!(tasks(&ground.get("/retry/pending").await).len(), 2);
}

#[tokio::test]
async fn a_retry_is_looked_at_as_closely_as_a_job() {
    let ground = Ground::new().await;
    let retry = |kind: &str, payload: Value| json!({ "taskId": "a", "taskType": kind, "payload": payload, "error": "TIMEOUT: no answer" });
    for (kind, payload) in [("http", json!({ "nonsense": 1 })), ("command", json!({ "name": "pack" }))] {
        let answer = ground.post("/retry", retry(kind, payload)).await;
        assert_eq!(answer.refused(), (422, "RETRY_INVALID".into()), "{kind}");
    }
    let large = ground.post("/retry", retry("mail", json!("x".repeat(300_000)))).await;
    assert_eq!(large.refused(), (413, "RETRY_TOO_LARGE".into()));
    let call = json!({ "url": "https://api.example.org/a" });
    let queued = ground.post("/retry", retry("http", call)).await.data();
    assert_eq!(ground.job(&id(&queued)).await["destination"], "api.example.org");
}

#[tokio::test]
async fn what_its_destination_asked_to_wait_is_pending_too() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail", "destination": "api.x" })).await;
    let lease = ground.lease("mail").await;
    let failed = json!({ "message": "slow down", "status": 429, "retryAfter": "10m" });
    ground.report(&lease, "fail", failed).await.data();
    let found = ground.job(&job).await;
    assert_eq!((&found["failures"], &found["reason"]), (&json!(0), &json!("held")), "{found}");
    let pending = ground.get("/retry/pending").await;
    assert_eq!(pending["items"][0]["id"], json!(job), "{pending}");
}

#[tokio::test]
async fn a_code_that_is_no_short_word_is_refused_and_before_a_colon_it_is_text() {
    let ground = Ground::new().await;
    for code in ["", "two words", "TIMEOUT\u{1b}", "a/b", &"C".repeat(65), &"C".repeat(900_000)] {
        let error = json!({ "code": code, "message": "timeout" });
        let answer = ground.post("/retry", failed("known", error)).await;
        assert_eq!(answer.refused(), (422, "RETRY_INVALID".into()), "{code:.80}");
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(said.contains("write 1 to 64 letters, digits, _ - . and :"), "{said:.400}");
    }
    let known = |text: String| failed(&format!("{:.20}", text), json!(text));
    for (text, code) in [
        (format!("{}: timeout", "T".repeat(64)), json!("T".repeat(64))),
        (format!("{}: timeout", "L".repeat(65)), Value::Null),
        (format!("A_{}: timeout", "L".repeat(900_000)), Value::Null),
        ("AKIAIOSFODNN7EXAMPLE: timeout".to_owned(), Value::Null),
    ] {
        let queued = ground.post("/retry", known(text)).await.data();
        assert_eq!(ground.job(&id(&queued)).await["lastError"]["code"], code);
    }
}
