//! What may be sent again, and who may come back: idempotency keys and tokens, on a real store.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use redrive::{Engine, SqliteStore, StateName};
use redrive_server::api::{Api, Parts, router};
use redrive_server::door::Who;
use serde_json::{Value, json};
use tower::ServiceExt as _;

struct World {
    router: Router,
    engine: Engine,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        World::with(Parts::default()).await
    }

    async fn with(parts: Parts) -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("jobs.db")).await.unwrap();
        let engine = Engine::builder(store).produce_any().build().unwrap();
        let router = router(Api::new(engine.clone(), parts));
        World { router, engine, _folder: folder }
    }

    async fn send(
        &self,
        who: &Who,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path).extension(who.clone());
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    async fn post(&self, path: &str, key: Option<&str>, body: &Value) -> (u16, Value) {
        self.send(&Who::local(), Method::POST, path, key, body).await
    }

    async fn jobs(&self) -> usize {
        self.engine.count(&redrive::Filter::default(), 1_000).await.unwrap()
    }
}

fn job(number: u32) -> Value {
    json!({ "kind": "resize", "payload": { "image": number } })
}

#[tokio::test]
async fn the_same_request_under_the_same_key_is_answered_the_same_and_enqueues_nothing() {
    let world = World::new().await;
    let first = world.post("/api/v1/jobs", Some("k-1"), &job(1)).await;
    assert_eq!(first.0, 201, "{first:?}");
    assert_eq!(world.post("/api/v1/jobs", Some("k-1"), &job(1)).await, first);
    assert_eq!(world.jobs().await, 1);
    let (status, answer) = world.post("/api/v1/jobs", Some("k-2"), &job(1)).await;
    assert_eq!(status, 201);
    assert_ne!(answer["data"]["id"], first.1["data"]["id"]);
    assert_eq!(world.jobs().await, 2);
}

#[tokio::test]
async fn the_same_key_for_another_request_is_refused_and_changes_nothing() {
    let world = World::new().await;
    world.post("/api/v1/jobs", Some("k"), &job(1)).await;
    let (status, answer) = world.post("/api/v1/jobs", Some("k"), &job(2)).await;
    assert_eq!((status, &answer["error"]["code"]), (422, &json!("RETRY_INVALID")));
    assert!(
        answer["error"]["hint"].as_str().unwrap().contains("new key")
            && !answer.to_string().contains("local"),
        "{answer}"
    );
    assert_eq!(world.jobs().await, 1);
    let long = "k".repeat(256);
    assert_eq!(world.post("/api/v1/jobs", Some(&long), &job(3)).await.0, 422);
    assert_eq!(world.jobs().await, 1);
}

#[tokio::test]
async fn a_bulk_request_that_is_sent_again_is_answered_entry_by_entry_as_before() {
    let world = World::new().await;
    let body = json!([job(1), { "kind": "resize", "queue": "nowhere" }, job(2)]);
    let first = world.post("/api/v1/jobs/bulk", None, &body).await;
    assert_eq!(first.0, 200);
    assert_eq!(first.1["data"][1]["error"]["code"], "RETRY_INVALID");
    assert_eq!(world.jobs().await, 2, "one bad entry does not fail its neighbours");
    let body = json!([job(3), job(4)]);
    let once = world.post("/api/v1/jobs/bulk", Some("bulk"), &body).await;
    assert_eq!(world.post("/api/v1/jobs/bulk", Some("bulk"), &body).await, once);
    assert_eq!(world.jobs().await, 4);
}

#[tokio::test]
async fn nobody_is_given_the_answer_to_the_request_of_another() {
    let world = World::new().await;
    let token = |key_id: &str| Who { key_id: Some(key_id.into()), ..Who::local() };
    let path = "/api/v1/jobs";
    let (_, one) = world.send(&token("one"), Method::POST, path, Some("k"), &job(1)).await;
    let (_, two) = world.send(&token("two"), Method::POST, path, Some("k"), &job(1)).await;
    assert_ne!(one["data"]["id"], two["data"]["id"]);
}

#[tokio::test]
async fn a_token_is_shown_once_listed_without_its_secret_and_revoked() {
    let world = World::new().await;
    let body = json!({ "name": "shop", "scopes": ["enqueue", "read"], "expiresIn": "90d" });
    let (status, made) = world.post("/api/v1/tokens", None, &body).await;
    assert_eq!(status, 201, "{made}");
    let token = made["data"]["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("rdv_"));
    let nothing = Value::Null;
    let (_, list) = world.send(&Who::local(), Method::GET, "/api/v1/tokens", None, &nothing).await;
    assert_eq!(list["data"][0]["name"], "shop");
    assert!(!list.to_string().contains(&token), "{list}");
    let path = format!("/api/v1/tokens/{}", made["data"]["keyId"].as_str().unwrap());
    let (status, revoked) = world.send(&Who::local(), Method::DELETE, &path, None, &nothing).await;
    assert_eq!(status, 200);
    assert!(revoked["data"]["revokedAt"].is_string(), "{revoked}");
    assert_eq!(world.send(&Who::local(), Method::DELETE, "/api/v1/tokens/none", None, &nothing).await.0, 404);
    let reader =
        Who { scopes: vec![redrive_server::door::Scope::Operate], key_id: Some("x".into()), ..Who::local() };
    assert_eq!(world.send(&reader, Method::GET, "/api/v1/tokens", None, &nothing).await.0, 403);
}

#[tokio::test]
async fn a_command_for_more_jobs_than_one_transaction_takes_ends() {
    let world = World::new().await;
    let later: Vec<Value> =
        (0..1_200).map(|number| json!({ "kind": "resize", "payload": number, "delay": "1h" })).collect();
    for part in later.chunks(600) {
        assert_eq!(world.post("/api/v1/jobs/bulk", None, &json!(part)).await.0, 200);
    }
    let body = json!({ "command": "retry", "dryRun": false, "filter": { "kind": "resize" } });
    let (status, answer) = world.post("/api/v1/jobs/commands", None, &body).await;
    assert_eq!((status, &answer["data"]["done"]), (200, &json!(1_200)), "{answer}");
    let waiting = redrive::Filter::state(StateName::Waiting);
    assert_eq!(world.engine.count(&waiting, 10_000).await.unwrap(), 1_200, "and still they match");
}

#[tokio::test]
async fn one_of_many_that_cannot_be_taken_is_named_and_the_others_are_taken_once() {
    let world = World::new().await;
    let mut strange = job(2);
    strange["queue"] = json!("nope");
    let jobs = json!([job(1), strange, job(3)]);
    for _ in 0..2 {
        let (status, answer) = world.post("/api/v1/jobs/bulk", Some("all"), &jobs).await;
        assert_eq!(status, 200, "{answer}");
        let codes: Vec<&Value> = (0..3).map(|n| &answer["data"][n]["error"]["code"]).collect();
        assert_eq!(codes, [&Value::Null, &json!("RETRY_INVALID"), &Value::Null], "{answer}");
        assert_eq!(world.jobs().await, 2);
    }
}

#[tokio::test]
async fn nobody_is_kept_waiting_by_a_server_that_stops() {
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let world = World::with(Parts { stopping: Some(stopping), ..Parts::default() }).await;
    let (_, put) = world.post("/api/v1/jobs", None, &job(1)).await;
    stop.send(true).unwrap();
    let path = format!("/api/v1/jobs/{}?wait=5m", put["data"]["id"].as_str().unwrap());
    let lease = json!({ "kinds": ["mail"], "wait": "1m", "leaseFor": "1h" });
    let waits = async {
        let (_, found) = world.send(&Who::local(), Method::GET, &path, None, &Value::Null).await;
        assert_eq!(found["data"]["state"], "waiting");
        let (_, leased) = world.post("/api/v1/workers/lease", None, &lease).await;
        assert_eq!(leased["data"]["jobs"], json!([]));
    };
    tokio::time::timeout(redrive::secs(20), waits).await.expect("both are answered at once");
}
