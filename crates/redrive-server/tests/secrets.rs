//! What comes from outside and is not for everybody: what far sides answer, and secrets in what others report. On a real
//! store, past every route that shows a failure.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[expect(
    dead_code,
    clippy::disallowed_methods,
    reason = "http_executor.rs asks for its bad manners, and when it was asked"
)]
#[path = "support/target.rs"]
mod target;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use redrive::{Engine, Policy, Queue, SqliteStore, secs};
use redrive_server::api::{Api, Parts, router};
use redrive_server::door::{Scope, Who};
use redrive_server::egress::{Egress, EgressPolicy};
use redrive_server::executor::{CommandEntry, CommandExecutor, HttpExecutor, Secrets};
use serde_json::{Value, json};
use target::{Target, answer};
use tower::ServiceExt as _;

struct World {
    router: Router,
    engine: Engine,
    folder: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(folder.path().join("jobs.db")).await.unwrap());
        let allow = vec!["127.0.0.1".parse().unwrap()];
        let http = HttpExecutor::new(Egress::new(EgressPolicy { allow }), Secrets::new());
        let commands = CommandExecutor::new(indiscreet_commands()).unwrap();
        let queue = Queue::new("default").policy(Policy::fixed(secs(3600)).attempts(3));
        let engine = Engine::on(store)
            .produce_any()
            .queue(queue)
            .handle(http)
            .handle(commands.clone())
            .build()
            .unwrap();
        let endpoints = Some(["billing".to_owned()].into());
        let router = router(Api::new(
            engine.clone(),
            Parts { endpoints, commands: Some(commands), ..Parts::default() },
        ));
        World { router, engine, folder }
    }

    async fn ask(&self, who: &Who, method: &str, path: &str, body: Value) -> (u16, String) {
        let request = Request::builder().method(method).uri(format!("/api/v1{path}")).extension(who.clone());
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// What is shown to somebody with this scope.
    async fn shown(&self, scope: Scope, path: &str) -> String {
        let (status, shown) = self.ask(&with(scope), "GET", path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {shown}");
        shown
    }

    /// Does what only an operator may, and answers with its data.
    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, said) = self.ask(&Who::local(), "POST", path, body).await;
        assert!((200..300).contains(&status), "{path}: {said}");
        serde_json::from_str::<Value>(&said).unwrap()["data"].take()
    }

    async fn call(&self, url: &str) -> String {
        self.enqueue("http", json!({ "url": url })).await
    }

    async fn command(&self, name: &str) -> String {
        self.enqueue("command", json!({ "command": name })).await
    }

    async fn enqueue(&self, kind: &str, payload: Value) -> String {
        let enqueued = self.post("/jobs", json!({ "kind": kind, "payload": payload })).await;
        enqueued["id"].as_str().unwrap().to_owned()
    }

    /// What was written is only shown to whoever may read payloads, and the message to everybody.
    async fn check_shown(&self, path: &str, message: &str, written: &str) {
        let shown = self.shown(Scope::Read, path).await;
        assert!(shown.contains(message) && !shown.contains("Jane"), "{path}: {shown}");
        let whole = self.shown(Scope::ReadPayload, path).await;
        assert!(whole.contains(&format!("{message}: {written}")), "{path}: {whole}");
    }
}

/// Programs that name their customer when they fail, each in its way.
fn indiscreet_commands() -> Vec<CommandEntry> {
    let says = |name: &str, ends: &str| {
        let script = format!("echo 'no such file of Jane Roe' >&2; {ends}");
        let timeout = if name == "hangs" { "2s" } else { "30s" };
        json!({ "name": name, "argv": ["/bin/sh", "-c", script], "timeout": timeout, "permanent_exit_codes": [3] })
    };
    let commands = json!([
        says("gives-up", "exit 3"),
        says("fails", "exit 75"),
        says("dies", "kill -9 $$"),
        says("hangs", "sleep 60")
    ]);
    serde_json::from_value(commands).unwrap()
}

fn with(scope: Scope) -> Who {
    Who { name: "somebody".into(), scopes: vec![scope], key_id: Some("k".into()), ..Who::nobody() }
}

/// A far side that names its customer in whatever it says.
async fn indiscreet() -> Target {
    Target::start(|_, asked| match asked.line.split(' ').nth(1).unwrap() {
        "/busy" => answer(503, "", "busy with Jane Roe"),
        "/product" => answer(400, "", "no such product, Jane Roe"),
        _ => answer(400, "", "no such customer: Jane Roe"),
    })
    .await
}

#[tokio::test]
async fn what_a_far_side_wrote_is_shown_to_whoever_may_read_payloads_and_to_nobody_else() {
    let (world, target) = (World::new().await, indiscreet().await);
    let mut events = world.engine.events();
    let dead = world.call(&target.url("/customer")).await;
    world.call(&target.url("/product")).await;
    let waiting = world.call(&target.url("/busy")).await;
    let node = json!({ "nodeId": "a", "subType": "http", "config": { "url": target.url("/customer") } });
    let execution = world.post("/executions", json!({ "workflow": { "nodes": [node] } })).await;
    world.engine.drain_due().await.unwrap();
    let execution = execution["id"].as_str().unwrap();
    let refused = format!("{} answered 400", target.address);
    let busy = format!("{} answered 503", target.address);
    for (path, message, written) in [
        (format!("/jobs/{dead}"), &refused, "no such customer: Jane Roe"),
        (format!("/jobs/{dead}/explain"), &refused, "no such customer: Jane Roe"),
        (format!("/jobs/{waiting}/explain"), &busy, "busy with Jane Roe"),
        ("/jobs".to_owned(), &busy, "busy with Jane Roe"),
        ("/dead".to_owned(), &refused, "no such product, Jane Roe"),
        ("/dead/groups".to_owned(), &refused, "no such product, Jane Roe"),
        ("/retry/pending".to_owned(), &busy, "busy with Jane Roe"),
        ("/executions".to_owned(), &refused, "no such customer: Jane Roe"),
        (format!("/executions/{execution}"), &refused, "no such customer: Jane Roe"),
    ] {
        world.check_shown(&path, message, written).await;
    }
    let triggered =
        world.ask(&with(Scope::Operate), "POST", &format!("/retry/{waiting}/trigger"), json!({})).await;
    assert!(
        triggered.0 == 200 && triggered.1.contains(&busy) && !triggered.1.contains("Jane"),
        "{triggered:?}"
    );
    // The log of what happened is one text for all.
    let activity = world.shown(Scope::Admin, "/activity").await;
    assert!(activity.contains(&refused) && !activity.contains("Jane"), "{activity}");
    let mut told = String::new();
    while let Ok(event) = events.try_recv() {
        told += &serde_json::to_string(&event).unwrap();
    }
    assert!(told.contains(&refused) && told.contains(&busy) && !told.contains("Jane"), "{told}");
}

#[tokio::test]
async fn what_a_program_wrote_is_shown_to_whoever_may_read_payloads_and_to_nobody_else() {
    let world = World::new().await;
    let mut events = world.engine.events();
    let mut jobs = Vec::new();
    for (name, message) in [
        ("gives-up", "ended with 3"),
        ("fails", "ended with 75"),
        ("dies", "was killed by a signal (signal: 9 (SIGKILL))"),
        ("hangs", "took longer than 2s and was killed"),
    ] {
        // As it stands within JSON.
        jobs.push((world.command(name).await, format!(r#"\"{name}\" {message}"#)));
    }
    let node = json!({ "nodeId": "a", "subType": "command", "config": { "command": "gives-up" } });
    let execution = world.post("/executions", json!({ "workflow": { "nodes": [node] } })).await;
    world.engine.drain_due().await.unwrap();
    let written = "no such file of Jane Roe";
    for (job, message) in &jobs {
        world.check_shown(&format!("/jobs/{job}"), message, written).await;
        world.check_shown(&format!("/jobs/{job}/explain"), message, written).await;
        world.check_shown("/jobs", message, written).await;
    }
    let (dead, waiting) = (&jobs[0].1, &jobs[1].1);
    for (path, message) in [
        ("/dead".to_owned(), dead),
        ("/dead/groups".to_owned(), dead),
        ("/retry/pending".to_owned(), waiting),
        (format!("/executions/{}", execution["id"].as_str().unwrap()), dead),
    ] {
        world.check_shown(&path, message, written).await;
    }
    let activity = world.shown(Scope::Admin, "/activity").await;
    assert!(activity.contains(dead.as_str()) && !activity.contains("Jane"), "{activity}");
    while let Ok(event) = events.try_recv() {
        let told = serde_json::to_string(&event).unwrap();
        assert!(!told.contains("Jane"), "{told}");
    }
}

#[tokio::test]
async fn jobs_that_were_told_different_things_are_in_different_groups_for_everybody() {
    let (world, target) = (World::new().await, indiscreet().await);
    for path in ["/customer", "/customer", "/product"] {
        world.call(&target.url(path)).await;
    }
    world.engine.drain_due().await.unwrap();
    let groups: Value = serde_json::from_str(&world.shown(Scope::Read, "/dead/groups").await).unwrap();
    let counts: Vec<&Value> =
        groups["data"].as_array().unwrap().iter().map(|group| &group["count"]).collect();
    assert_eq!(counts, [2, 1]);
}

#[tokio::test]
async fn no_secret_in_what_others_report_is_shown_or_stored() {
    let (world, target) =
        (World::new().await, Target::start(|_, _| answer(400, "", "bad Bearer hunter2")).await);
    let error = "TIMEOUT: postgres://app:hunter2@db/x gave no answer";
    world.post("/retry", json!({ "taskId": "1", "taskType": "sync", "error": error })).await;
    let known = json!({ "message": "no answer with api_key=hunter2", "status": 503 });
    world.post("/retry", json!({ "taskId": "2", "taskType": "sync", "error": known })).await;
    for report in [
        json!({ "message": "password: hunter2 is wrong" }),
        json!({ "message": "{\"token\":\"hunter2\"}", "class": "permanent" }),
    ] {
        world.post("/jobs", json!({ "kind": "mail", "payload": 1 })).await;
        let leased = world.post("/workers/lease", json!({ "kinds": ["mail"] })).await;
        let lease = leased["jobs"][0]["lease"].as_str().unwrap();
        world.post(&format!("/leases/{lease}/fail"), report).await;
    }
    world.call(&target.url("/")).await;
    world.engine.drain_due().await.unwrap();
    let (_, hopeless) = world
        .ask(
            &Who::local(),
            "POST",
            "/retry",
            json!({ "taskId": "3", "taskType": "sync", "error": "NOT_FOUND: token=hunter2" }),
        )
        .await;
    assert!(hopeless.contains("not retryable: NOT_FOUND: token=***"), "{hopeless}");
    let jobs = world.shown(Scope::Admin, "/jobs").await;
    for shown in
        ["postgres://***@db/x", "api_key=***", "password: ***", r#"{\"token\":\"***\"}"#, "bad Bearer ***"]
    {
        assert!(jobs.contains(shown), "{shown}: {jobs}");
    }
    assert!(!jobs.contains("hunter2"), "{jobs}");
    assert!(!world.shown(Scope::Admin, "/activity").await.contains("hunter2"));
    for file in std::fs::read_dir(world.folder.path()).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"), "{}", path.display());
    }
}

#[tokio::test]
async fn a_job_for_an_endpoint_that_nobody_knows_is_refused_when_it_is_enqueued() {
    let world = World::new().await;
    let job = |endpoint: &str| {
        let payload = json!({ "url": "https://api.example/x", "endpoint": endpoint });
        json!({ "kind": "http", "payload": payload })
    };
    let (status, said) = world.ask(&Who::local(), "POST", "/jobs", job("biling")).await;
    assert_eq!(status, 422, "{said}");
    assert!(said.contains(r#"there is no endpoint \"biling\"; known here: billing"#), "{said}");
    world.post("/jobs", job("billing")).await;
}
