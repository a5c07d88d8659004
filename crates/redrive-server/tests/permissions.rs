//! Who may do what: every route with every scope, beside the committed table in `permissions.txt`.

#![expect(clippy::disallowed_methods, reason = "a variable says that files are to be written")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use redrive::{Engine, SqliteOptions, Store, Timestamp};
use redrive_server::api::{self, Api, Parts};
use redrive_server::door::{DoorConfig, Entry, Guarded, MemoryTokenBook, Scope, Token, TokenBook as _};
use serde_json::{Value, json};

/// Scopes that a token can have, and two that are none: no token, and the token of another server.
const ROLES: [&str; 10] = [
    "none",
    "foreign",
    "read",
    "read:payload",
    "enqueue",
    "work",
    "work:default",
    "work:other",
    "operate",
    "admin",
];

/// Routes behind a door with one token for each scope.
struct House {
    routes: Router,
    book: Arc<MemoryTokenBook>,
    tokens: Vec<(&'static str, Option<Token>)>,
    _folder: tempfile::TempDir,
}

impl House {
    async fn new() -> House {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::default().relaxed_durability();
        let store = options.open(folder.path().join("jobs.db")).await.unwrap();
        let engine = Engine::on(Arc::new(store) as Arc<dyn Store>).produce_any().build().unwrap();
        let book = Arc::new(MemoryTokenBook::default());
        let mut tokens = Vec::new();
        for (n, role) in ROLES.into_iter().enumerate() {
            let entropy = [u8::try_from(n).unwrap() + 1; 39];
            let scopes = role.parse::<Scope>().into_iter().collect();
            let (token, record) = Token::mint(&entropy, role, scopes, Timestamp::EPOCH, None);
            if !matches!(role, "none" | "foreign") {
                book.add(record).await.unwrap();
            }
            tokens.push((role, (role != "none").then_some(token)));
        }
        let routes = api::router(Api::new(engine, Parts::default()));
        House { routes, book, tokens, _folder: folder }
    }

    /// Asks in this role. The door is a new one each time: it remembers nobody's wrong tokens.
    async fn ask(&self, role: &str, method: &str, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let config = DoorConfig { entry: Entry::Tokens(self.book.clone()), ..DoorConfig::local() };
        let guarded = Guarded::new(self.routes.clone(), config);
        let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        let (_, token) = self.tokens.iter().find(|(name, _)| *name == role).unwrap();
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {}", token.reveal()));
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let response = guarded.answer(request.body(body).unwrap(), Ipv4Addr::LOCALHOST.into()).await;
        let status = response.status();
        if path.ends_with("/events") && status.is_success() {
            // It has no end.
            return (status, Value::Null);
        }
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// A job that waits.
    async fn job(&self) -> String {
        let body = json!({ "kind": "mail", "payload": "secret" });
        let (_, answer) = self.ask("admin", "POST", "/api/v1/jobs", Some(&body)).await;
        answer["data"]["id"].as_str().unwrap().to_owned()
    }

    /// Who leases for this role: itself where it may, for a lease is worth nothing to others.
    fn worker_for(role: &'static str) -> &'static str {
        if matches!(role, "work" | "work:default") { role } else { "admin" }
    }

    /// The lease of a job in the queue `default`.
    async fn lease(&self, role: &'static str) -> String {
        self.job().await;
        let body = json!({ "kinds": ["mail"], "queues": ["default"] });
        let asked = self.ask(House::worker_for(role), "POST", "/api/v1/workers/lease", Some(&body));
        let (_, answer) = asked.await;
        answer["data"]["jobs"][0]["lease"].as_str().unwrap().to_owned()
    }

    /// An operation that has ended: only so many run at once.
    async fn operation(&self) -> String {
        let body = json!({ "command": "cancel", "dryRun": false, "filter": { "kind": "nothing" }, "background": true });
        let (_, begun) = self.ask("admin", "POST", "/api/v1/jobs/commands", Some(&body)).await;
        let id = begun["data"]["operation"]["id"].as_str().unwrap();
        let path = format!("/api/v1/operations/{id}");
        while self.ask("admin", "GET", &path, None).await.1["data"]["state"] == "running" {
            tokio::task::yield_now().await;
        }
        id.to_owned()
    }

    /// The id of a worker that is known.
    async fn worker(&self, role: &'static str) -> Value {
        let body = json!({ "kinds": ["nothing"], "queues": ["default"] });
        let asked = self.ask(House::worker_for(role), "POST", "/api/v1/workers/lease", Some(&body));
        let (_, answer) = asked.await;
        answer["data"]["workerId"].clone()
    }
}

fn execution() -> Value {
    json!({ "workflow": { "nodes": [{ "nodeId": "a", "type": "action", "subType": "sms" }] } })
}

/// What a route is sent: understood, so that only who asks decides.
async fn body_for(house: &House, role: &'static str, operation: &str) -> Option<Value> {
    Some(match operation {
        "createJob" => json!({ "kind": "sms" }),
        "createJobs" => json!([{ "kind": "sms" }]),
        "startExecution" => execution(),
        "snoozeJob" | "snoozeLease" => json!({ "delay": "1s" }),
        "rescheduleJob" => json!({ "runAt": "2031-05-01T12:00:00Z" }),
        "commandJobs" => json!({ "command": "cancel", "dryRun": false, "filter": { "kind": "nothing" } }),
        "queueRetry" => json!({ "taskId": "t", "taskType": "parse", "error": "timeout" }),
        "previewPolicy" => json!({ "policy": "media" }),
        "simulateOutage" => {
            json!({ "policy": "media", "arrivalsPerSecond": 1, "capacityPerSecond": 10, "outage": "1s" })
        }
        "classifyFailure" | "failLease" => json!({ "message": "timeout" }),
        "leaseJobs" => json!({ "kinds": ["nothing"] }),
        "sendHeartbeat" => json!({ "workerId": house.worker(role).await }),
        "completeLease" => json!({}),
        "createSession" => {
            let (_, token) = house.tokens.iter().find(|(name, _)| *name == "admin").unwrap();
            json!({ "token": token.as_ref().unwrap().reveal() })
        }
        "setLimits" => json!({ "rate": "1/s" }),
        "editJob" => json!({ "priority": 3 }),
        "createToken" => json!({ "name": "ci", "scopes": ["read"] }),
        _ => return None,
    })
}

async fn cell(house: &House, role: &'static str, method: &str, path: &str, operation: &str) -> &'static str {
    let mut path = path.replace("{name}", "default");
    if path.contains("/executions/{id}") {
        let (_, started) = house.ask("admin", "POST", "/api/v1/executions", Some(&execution())).await;
        path = path.replace("{id}", started["data"]["id"].as_str().unwrap()).replace("{node}", "a");
    }
    if path.contains("/operations/{id}") {
        path = path.replace("{id}", &house.operation().await);
    }
    if path.contains("{id}") {
        path = path.replace("{id}", &house.job().await);
    }
    if path.contains("{lease}") {
        path = path.replace("{lease}", &house.lease(role).await);
    }
    if path.contains("{keyId}") {
        let body = json!({ "name": "old", "scopes": ["read"] });
        let (_, answer) = house.ask("admin", "POST", "/api/v1/tokens", Some(&body)).await;
        path = path.replace("{keyId}", answer["data"]["keyId"].as_str().unwrap());
    }
    if operation == "getDestination" {
        house.ask("admin", "POST", &format!("{path}/down"), None).await;
    }
    if path.contains("{pattern}") {
        path = path.replace("{pattern}", "api.x");
        house.ask("admin", "PUT", &path, Some(&json!({ "rate": "1/s" }))).await;
    }
    let body = body_for(house, role, operation).await;
    let (status, answer) = house.ask(role, method, &path, body.as_ref()).await;
    if operation == "holdAll" {
        // The other routes are asked on a store that hands out jobs.
        house.ask("admin", "POST", "/api/v1/resume", None).await;
    }
    match status.as_u16() {
        401 => "401",
        403 => "403",
        // Allowed, and impossible for this job: that is not the question here.
        200..=299 | 409 => "yes",
        other => panic!("{role} {method} {path}: {other} {answer}"),
    }
}

async fn table() -> String {
    let house = House::new().await;
    let mut text =
        String::from("# Who may do what. Written by `make docs`; tests/permissions.rs compares.\n");
    writeln!(text, "{:<45}{}", "", ROLES.map(|role| format!("{role:<14}")).concat().trim_end()).unwrap();
    let description = serde_json::to_value(api::openapi()).unwrap();
    let mut routes = vec![("GET".to_owned(), "/openapi.json".to_owned(), String::new())];
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            routes.push((method.to_uppercase(), path.clone(), name));
        }
    }
    routes.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    for (method, path, operation) in routes {
        let mut line = format!("{method:<7}{path:<38}");
        for role in ROLES {
            write!(line, "{:<14}", cell(&house, role, &method, &path, &operation).await).unwrap();
        }
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    text
}

#[tokio::test]
async fn every_route_lets_in_whom_the_committed_table_names_and_nobody_else() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/permissions.txt");
    let text = table().await;
    if std::env::var_os("REDRIVE_WRITE_PERMISSIONS").is_some() {
        std::fs::write(&file, text).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == text,
        "permissions.txt is not what the routes do. If that is meant, write it with: make docs\n{text}"
    );
}

#[tokio::test]
async fn a_payload_is_shown_to_whoever_may_read_it_and_left_out_for_others() {
    let house = House::new().await;
    let path = format!("/api/v1/jobs/{}", house.job().await);
    for (role, shown) in
        [("read", None), ("operate", None), ("read:payload", Some("secret")), ("admin", Some("secret"))]
    {
        let (status, answer) = house.ask(role, "GET", &path, None).await;
        if status == StatusCode::OK {
            assert_eq!(answer["data"]["payload"].as_str(), shown, "{role}");
        } else {
            assert_eq!((status.as_u16(), role), (403, "operate"));
        }
    }
}

#[tokio::test]
async fn a_job_says_with_which_token_it_was_put_in() {
    let house = House::new().await;
    let key_id =
        house.tokens.iter().find(|(role, _)| *role == "enqueue").unwrap().1.as_ref().unwrap().key_id();
    let job = json!({ "kind": "mail" });
    let retry = json!({ "taskId": "7", "taskType": "mail", "error": "ETIMEDOUT: too slow" });
    let asked = [
        ("/api/v1/jobs", job.clone()),
        ("/api/v1/jobs/bulk", json!([job])),
        ("/api/v1/retry", retry),
        ("/api/v1/executions", execution()),
    ];
    for (path, body) in asked {
        let (status, answer) = house.ask("enqueue", "POST", path, Some(&body)).await;
        assert!(status.is_success(), "{path}: {answer}");
        let made = answer["data"].get(0).unwrap_or(&answer["data"])["id"].as_str().unwrap().to_owned();
        let (_, found) = house.ask("admin", "GET", &format!("/api/v1/jobs/{made}"), None).await;
        assert_eq!(found["data"]["createdBy"], json!(format!("enqueue ({key_id})")), "{path}");
    }
}

#[tokio::test]
async fn a_refused_caller_changes_nothing() {
    let house = House::new().await;
    let id = house.job().await;
    for role in ["none", "foreign", "read", "read:payload", "enqueue", "work"] {
        for command in ["cancel", "retry", "redrive"] {
            let (status, _) = house.ask(role, "POST", &format!("/api/v1/jobs/{id}/{command}"), None).await;
            assert!(matches!(status.as_u16(), 401 | 403), "{role} {command}: {status}");
        }
        let (status, _) = house.ask(role, "DELETE", &format!("/api/v1/retry/{id}"), None).await;
        assert!(matches!(status.as_u16(), 401 | 403), "{role}: {status}");
    }
    let (_, answer) = house.ask("admin", "GET", &format!("/api/v1/jobs/{id}"), None).await;
    assert_eq!(
        (&answer["data"]["state"], &answer["data"]["reason"]),
        (&json!("waiting"), &json!("scheduled"))
    );
}

#[tokio::test]
async fn a_lease_and_a_worker_are_worth_nothing_to_another_token() {
    let house = House::new().await;
    let id = house.job().await;
    let body = json!({ "kinds": ["mail"] });
    let (_, leased) = house.ask("work", "POST", "/api/v1/workers/lease", Some(&body)).await;
    let lease = leased["data"]["jobs"][0]["lease"].as_str().unwrap();
    let worker = &leased["data"]["workerId"];
    let lost = async |role: &str, path: &str, body: &Value| {
        let (status, answer) = house.ask(role, "POST", path, Some(body)).await;
        assert_eq!((status.as_u16(), &answer["error"]["code"]), (409, &json!("LEASE_LOST")), "{role} {path}");
    };
    let reports = [
        ("complete", json!({})),
        ("fail", json!({ "message": "no", "class": "permanent" })),
        ("snooze", json!({ "delay": "1s" })),
        ("release", json!({})),
    ];
    for role in ["admin", "work:default"] {
        for (what, body) in &reports {
            lost(role, &format!("/api/v1/leases/{lease}/{what}"), body).await;
        }
        lost(role, "/api/v1/workers/heartbeat", &json!({ "workerId": worker })).await;
        let more = json!({ "kinds": ["mail"], "queues": ["default"], "workerId": worker });
        lost(role, "/api/v1/workers/lease", &more).await;
    }
    // Nor is one that was made up: each part of it counts, and the seal too.
    for place in [0, 40, 79, 87, 88, 119] {
        let other = if lease.as_bytes()[place] == b'0' { "1" } else { "0" };
        let mut altered = lease.to_owned();
        altered.replace_range(place..=place, other);
        lost("work", &format!("/api/v1/leases/{altered}/complete"), &json!({})).await;
    }
    let path = format!("/api/v1/jobs/{id}");
    assert_eq!(house.ask("admin", "GET", &path, None).await.1["data"]["state"], "running");
    let beat = json!({ "workerId": worker });
    assert_eq!(house.ask("work", "POST", "/api/v1/workers/heartbeat", Some(&beat)).await.0, StatusCode::OK);
    let path = format!("/api/v1/leases/{lease}/complete");
    let (_, done) = house.ask("work", "POST", &path, Some(&json!({}))).await;
    assert_eq!(done["data"]["state"], "succeeded", "{done}");
}
