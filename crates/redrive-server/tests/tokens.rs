//! What becomes of tokens while a server runs: made, revoked, expired and exchanged for sessions, and what that means for
//! those who are still being answered. Time is tokio's, and stands still until everybody waits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use http_body_util::BodyExt as _;
use redrive::{Clock, Engine, MemoryStore, Timestamp, secs};
use redrive_server::api::{self, Api, Parts};
use redrive_server::door::{DoorConfig, Entry, Guarded, Scope, Token, TokenBook as _};
use redrive_server::tokens::StoreTokens;
use serde_json::{Value, json};

/// Far longer than anything here takes on the clock.
const PATIENCE: Duration = secs(600);

/// A server that asks for tokens, and an admin.
struct House {
    guarded: Guarded,
    engine: Engine,
    admin: String,
}

impl House {
    async fn new() -> House {
        let clock = Clock::starting_at(Timestamp::from_millis(1_800_000_000_000));
        let engine =
            Engine::on(Arc::new(MemoryStore::new())).produce_any().clock(clock.clone()).build().unwrap();
        let book = Arc::new(StoreTokens::new(engine.clone()));
        let (admin, record) = Token::mint(&[1; 39], "admin", vec![Scope::Admin], clock.now(), None);
        book.add(record).await.unwrap();
        let config = DoorConfig { entry: Entry::Tokens(book), clock, ..DoorConfig::local() };
        let guarded = Guarded::new(api::router(Api::new(engine.clone(), Parts::default())), config);
        House { guarded, engine, admin: format!("Bearer {}", admin.reveal()) }
    }

    /// As whoever shows this: `Bearer …`, or a cookie.
    async fn send(&self, shown: &str, method: &str, path: &str, body: Value) -> Response {
        let header = if shown.starts_with("Bearer ") { "authorization" } else { "cookie" };
        let request = Request::builder().method(method).uri(format!("/api/v1{path}"));
        let request = request.header("host", "localhost").header(header, shown);
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = request.header("content-type", "application/json").body(body).unwrap();
        self.guarded.answer(request, Ipv4Addr::LOCALHOST.into()).await
    }

    /// Status and answer.
    async fn ask(&self, shown: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let response = self.send(shown, method, path, body).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    /// A new token, as it is shown, and its key id.
    async fn token(&self, form: Value) -> (String, String) {
        let (status, made) = self.ask(&self.admin, "POST", "/tokens", form).await;
        assert_eq!(status, 201, "{made}");
        let text = |name: &str| made["data"][name].as_str().unwrap().to_owned();
        (format!("Bearer {}", text("token")), text("keyId"))
    }

    /// As another server on the same store does it.
    async fn revoke_elsewhere(&self, key_id: &str) {
        assert!(StoreTokens::new(self.engine.clone()).revoke(key_id, self.engine.now()).await.unwrap());
    }

    async fn enqueue(&self, job: Value) -> String {
        let (_, answer) = self.ask(&self.admin, "POST", "/jobs", job).await;
        answer["data"]["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_made_here_is_good_at_once_and_one_that_is_revoked_here_is_not() {
    let house = House::new().await;
    let (first, key_id) = house.token(json!({ "name": "first", "scopes": ["read"] })).await;
    assert_eq!(house.ask(&first, "GET", "/session", Value::Null).await.0, 200);
    let (second, _) = house.token(json!({ "name": "second", "scopes": ["read"] })).await;
    assert_eq!(house.ask(&second, "GET", "/session", Value::Null).await.0, 200);
    house.ask(&house.admin, "DELETE", &format!("/tokens/{key_id}"), Value::Null).await;
    assert_eq!(house.ask(&first, "GET", "/session", Value::Null).await.0, 401);
    assert_eq!(house.ask(&second, "GET", "/session", Value::Null).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_ends_with_what_was_shown_for_it_and_others_go_on() {
    for end in ["revoked", "expired", "signed out"] {
        let house = House::new().await;
        let mut form = json!({ "name": "reader", "scopes": ["read"] });
        if end == "expired" {
            form["expiresIn"] = "10s".into();
        }
        let (token, key_id) = house.token(form).await;
        let shown = if end == "signed out" {
            let form = json!({ "token": token.strip_prefix("Bearer ").unwrap() });
            let signed = house.send(&token, "POST", "/session", form).await;
            signed.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
        } else {
            token
        };
        let stream = house.send(&shown, "GET", "/events", Value::Null).await;
        let mut other = house.send(&house.admin, "GET", "/events", Value::Null).await.into_body();
        assert_eq!(stream.status(), 200, "{end}");
        let mut last = house.engine.now();
        match end {
            "revoked" => house.revoke_elsewhere(&key_id).await,
            "expired" => last = last + secs(10),
            _ => assert_eq!(house.ask(&shown, "DELETE", "/session", Value::Null).await.0, 200),
        }
        let rest = tokio::time::timeout(PATIENCE, stream.into_body().collect()).await;
        rest.unwrap_or_else(|_| panic!("{end}, and the stream goes on")).unwrap();
        let late = house.engine.now().since(last);
        assert!(late <= secs(2), "{end}, and the stream ended {late:?} later");

        let job = house.enqueue(json!({ "kind": "mail" })).await;
        let mut told = String::new();
        while !told.contains(&job) {
            let frame = tokio::time::timeout(PATIENCE, other.frame()).await.unwrap();
            let frame = frame.unwrap_or_else(|| panic!("{end}, and another's stream ended")).unwrap();
            told += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_jobs_gets_none_that_come_after_its_token_was_revoked() {
    let house = House::new().await;
    let (worker, key_id) = house.token(json!({ "name": "worker", "scopes": ["work"] })).await;
    let form = json!({ "kinds": ["mail"], "wait": "30s", "leaseFor": "1m" });
    let waits = house.ask(&worker, "POST", "/workers/lease", form.clone());
    let others = async {
        house.revoke_elsewhere(&key_id).await;
        tokio::time::sleep(secs(3)).await;
        house.enqueue(json!({ "kind": "mail" })).await;
    };
    let ((status, answer), ()) = tokio::join!(waits, others);
    assert_eq!((status, &answer["data"]["jobs"]), (200, &json!([])), "{answer}");
    let (_, answer) = house.ask(&house.admin, "POST", "/workers/lease", form).await;
    assert_eq!(answer["data"]["jobs"].as_array().unwrap().len(), 1, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_end_of_a_job_is_not_told_once_its_token_was_revoked() {
    let house = House::new().await;
    let job = house.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let (reader, key_id) = house.token(json!({ "name": "reader", "scopes": ["read"] })).await;
    let path = format!("/jobs/{job}?wait=30s");
    let waits = house.ask(&reader, "GET", &path, Value::Null);
    let ((status, answer), ()) = tokio::join!(waits, house.revoke_elsewhere(&key_id));
    assert_eq!((status, &answer["error"]["code"]), (401, &json!("RETRY_AUTH_REQUIRED")), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_would_be_good_for_nothing_or_for_no_time_is_not_made() {
    let house = House::new().await;
    let long = format!("work:{}", "q".repeat(redrive::NAME_BYTES_MAX + 1));
    let many = vec!["read"; 101];
    for (form, said) in [
        (json!({ "name": "a", "scopes": ["read"], "expiresIn": 0 }), "such as 90d"),
        (json!({ "name": "a", "scopes": ["read"], "expiresIn": "999ms" }), "such as 90d"),
        (json!({ "name": "a", "scopes": ["read", long] }), "write 1 to 256 bytes"),
        (json!({ "name": "a", "scopes": ["work:a\nb"] }), "without control characters"),
        (json!({ "name": "a", "scopes": many }), "make several tokens"),
        (json!({ "name": "a", "scopes": [] }), "at least one scope"),
    ] {
        let (status, answer) = house.ask(&house.admin, "POST", "/tokens", form.clone()).await;
        assert_eq!((status, &answer["error"]["code"]), (422, &json!("RETRY_INVALID")), "{form}");
        assert!(answer["error"]["hint"].as_str().unwrap().contains(said), "{answer}");
    }
    let longest = format!("work:{}", "q".repeat(redrive::NAME_BYTES_MAX));
    let form = json!({ "name": "a", "scopes": ["read", longest], "expiresIn": "1s" });
    assert_eq!(house.ask(&house.admin, "POST", "/tokens", form).await.0, 201);
    let (_, tokens) = house.ask(&house.admin, "GET", "/tokens", Value::Null).await;
    assert_eq!(tokens["data"].as_array().unwrap().len(), 2, "the admin's and the good one");
}

#[tokio::test(start_paused = true)]
async fn no_token_drives_what_people_did_out_of_the_audit_log_by_signing_in() {
    let house = House::new().await;
    house.ask(&house.admin, "POST", "/queues/default/pause", Value::Null).await;
    let (token, _) = house.token(json!({ "name": "reader", "scopes": ["read"] })).await;
    let form = json!({ "token": token.strip_prefix("Bearer ").unwrap() });
    let mut last = Value::Null;
    for _ in 0..100 {
        let response = house.send(&token, "POST", "/session", form.clone()).await;
        if response.status() == 429 {
            assert_eq!(response.headers()["retry-after"], "6");
            last = serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
        }
    }
    assert_eq!(last["error"]["code"], "RETRY_RATE_LIMITED", "{last}");
    let (_, log) = house.ask(&house.admin, "GET", "/audit?limit=1000", Value::Null).await;
    let lines = log["data"]["items"].as_array().unwrap();
    let count = |what: &str| lines.iter().filter(|line| line["what"] == what).count();
    assert_eq!((count("session.create"), count("queues.pause")), (10, 1), "{log}");
}
