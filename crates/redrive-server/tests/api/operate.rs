//! What operators and the dashboard are given: figures over time, who did what, sessions.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::ground::{Ground, api};

#[tokio::test]
async fn figures_over_time_add_up_and_retries_are_foretold() {
    let ground = Ground::new().await;
    ground.dead("sms", "no such number").await;
    for kind in ["mail", "letter"] {
        let policy = json!({ "backoff": { "kind": "fixed", "delay": "5m" } });
        ground.enqueue(json!({ "kind": kind, "policy": policy })).await;
    }
    let lease = ground.lease("mail").await;
    ground.report(&lease, "fail", json!({ "message": "timeout" })).await.data();
    let lease = ground.lease("letter").await;
    ground.report(&lease, "complete", json!({})).await.data();
    let series = ground.get("/stats/series?window=1h&step=1m").await;
    let sum = |list: &str, name: &str| -> u64 {
        series[list].as_array().unwrap().iter().map(|point| point[name].as_u64().unwrap()).sum()
    };
    let happened = ["enqueued", "succeeded", "failed", "dead"].map(|name| sum("points", name));
    assert_eq!((happened, sum("forecast", "due")), ([3, 1, 2, 1], 1), "{series}");
    assert_eq!(series["points"].as_array().unwrap().len(), 60);
    assert_eq!(series["forecast"].as_array().unwrap().len(), 60);
    assert_eq!((&series["stepMs"], &series["points"][0]["at"]), (&json!(60_000), &series["from"]));
    let ahead = series["forecast"].as_array().unwrap().iter().position(|step| step["due"] == 1).unwrap();
    assert!((4..=6).contains(&ahead), "five minutes ahead, not {ahead}");
}

#[tokio::test]
async fn a_step_is_chosen_to_fit_and_what_would_not_fit_is_refused() {
    let ground = Ground::new().await;
    for (window, step_ms) in [("", 60_000), ("?window=1d", 900_000), ("?window=30d", 21_600_000)] {
        let series = ground.get(&format!("/stats/series{window}")).await;
        assert_eq!(series["stepMs"], step_ms, "{window}");
        assert!(series["points"].as_array().unwrap().len() <= 120, "{window}");
    }
    let at_the_limit = ground.get("/stats/series?window=240m&step=1m").await;
    assert_eq!(at_the_limit["points"].as_array().unwrap().len(), 240);
    for wrong in ["window=241m&step=1m", "window=31d", "step=30s", "step=2h", "window=0s", "window=x"] {
        let answer = ground.client.get(&api(&format!("/stats/series?{wrong}"))).await;
        assert_eq!(answer.refused(), (422, "RETRY_INVALID".into()), "{wrong}");
    }
}

#[tokio::test]
async fn every_change_leaves_one_line_that_says_who_did_what_to_what() {
    let ground = Ground::new().await;
    let id = ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let other = ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let cancelled = ground.post(&format!("/jobs/{id}/cancel"), json!({})).await;
    assert_eq!(ground.post(&format!("/jobs/{id}/retry"), json!({})).await.refused().0, 409);
    ground.post("/queues/default/pause", json!({})).await.data();
    let bulk = json!({ "command": "cancel", "filter": { "kind": "mail" }, "dryRun": false });
    ground.post("/jobs/commands", bulk).await.data();
    let dry = json!({ "command": "cancel", "all": true, "dryRun": true });
    ground.post("/jobs/commands", dry).await.data();
    let made = ground.post("/tokens", json!({ "name": "ci", "scopes": ["read"] })).await.data();
    let key = made["keyId"].as_str().unwrap();
    ground.delete(&format!("/retry/{other}")).await.refused();
    let lines = ground.get("/audit").await["items"].take();
    let said: Vec<[&str; 3]> = lines
        .as_array()
        .unwrap()
        .iter()
        .map(|line| ["what", "on", "result"].map(|name| line[name].as_str().unwrap()))
        .collect();
    let token = format!("{key} (ci)");
    let expected = [
        ["retry.cancel", &other, "RETRY_CONFLICT"],
        ["tokens.create", &token, "done"],
        ["jobs.cancel_all", r#"{"kind":"mail"}"#, "done"],
        ["queues.pause", "default", "done"],
        ["jobs.retry", &id, "RETRY_CONFLICT"],
        ["jobs.cancel", &id, "done"],
    ];
    assert_eq!(said, expected, "{lines}");
    let of_job = ground.get(&format!("/audit?jobId={id}")).await["items"].take();
    assert_eq!(of_job.as_array().unwrap().len(), 2);
    let first = &of_job[1];
    assert_eq!((&first["who"], &first["detail"]), (&json!("local"), &json!("waiting → cancelled")));
    assert_eq!(first["id"].as_str().unwrap(), cancelled.headers["x-request-id"].to_str().unwrap());
    let page = ground.get("/audit?limit=4").await;
    let rest = ground.get(&format!("/audit?limit=4&cursor={}", page["nextCursor"].as_str().unwrap())).await;
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["nextCursor"]), (2, &Value::Null));
}

/// A server that asks for tokens, and the admin's.
async fn guarded() -> (Ground, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admin.token");
    let ground = Ground::with(&format!("token_file = {file:?}")).await;
    (ground, std::fs::read_to_string(file).unwrap().trim().to_owned())
}

async fn with_cookie(
    client: &Client,
    method: &str,
    path: &str,
    cookie: &str,
    more: &[(&str, &str)],
) -> Answer {
    let headers: Vec<(&str, &str)> = [("cookie", cookie)].into_iter().chain(more.iter().copied()).collect();
    client.ask(method, &api(path), &headers, Bytes::new()).await
}

#[tokio::test]
async fn a_token_is_exchanged_for_a_cookie_that_works_until_it_is_ended() {
    let (ground, token) = guarded().await;
    assert_eq!(ground.client.get(&api("/session")).await.refused(), (401, "RETRY_AUTH_REQUIRED".into()));
    let wrong = ground.post("/session", json!({ "token": "rdv_wrong" })).await;
    assert_eq!(wrong.refused(), (401, "RETRY_AUTH_REQUIRED".into()));
    let opened = ground.post("/session", json!({ "token": token })).await;
    let set = opened.headers["set-cookie"].to_str().unwrap().to_owned();
    assert_eq!((&opened.data()["name"], &opened.data()["scopes"]), (&json!("admin"), &json!(["admin"])));
    assert!(opened.data()["expiresAt"].is_string());
    let (cookie, attributes) = set.split_once("; ").unwrap();
    assert!(cookie.starts_with("__Host-redrive=") && !set.contains(&token), "{set}");
    assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Strict");

    let who = with_cookie(&ground.client, "GET", "/session", cookie, &[]).await.data();
    assert_eq!(who["name"], "admin");
    let own = [("sec-fetch-site", "same-origin")];
    let paused = with_cookie(&ground.client, "POST", "/queues/default/pause", cookie, &own).await;
    assert_eq!(paused.data()["paused"], true);
    let foreign = [("sec-fetch-site", "cross-site")];
    let resumed = with_cookie(&ground.client, "POST", "/queues/default/resume", cookie, &foreign).await;
    assert_eq!(resumed.refused(), (403, "RETRY_CROSS_SITE".into()));

    let ended = with_cookie(&ground.client, "DELETE", "/session", cookie, &own).await;
    assert!(ended.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(with_cookie(&ground.client, "GET", "/session", cookie, &[]).await.status, 401);
    let client = Client { token: Some(token), ..ground.client.clone() };
    let tokens = client.get(&api("/tokens")).await.data();
    assert_eq!(tokens.as_array().unwrap().len(), 1, "a session is no token: {tokens}");
    let lines = client.get(&api("/audit")).await.data()["items"].take();
    for what in ["session.create", "session.delete"] {
        let count = lines.as_array().unwrap().iter().filter(|line| line["what"] == what).count();
        assert_eq!(count, 1, "{what}: {lines}");
    }
}

#[tokio::test]
async fn on_loopback_without_tokens_whoever_asks_is_local() {
    let ground = Ground::new().await;
    let who = ground.get("/session").await;
    assert_eq!(who, json!({ "name": "local", "scopes": ["admin"] }));
    let opened = ground.post("/session", json!({ "token": "anything" })).await;
    assert_eq!((opened.data(), opened.headers.get("set-cookie")), (who, None));
}
