//! The nodes and retries of the document, as it writes them, on a server that calls a flaky one.

use std::time::Duration;

use redrive::{
    Attempt, Clock, Engine, Failure, Output, Payload, Policy, SqliteStore, StateName, Timestamp, Workflow,
    days,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ground::{Ground, millis};
use crate::target::{Target, answer};

/// Loopback is not called unless it is allowed.
const LOOPBACK: &str = "[egress]\nallow = [\"127.0.0.0/8\"]";

async fn until(ground: &Ground, id: &str, state: &str) -> Value {
    for _ in 0..400 {
        let execution = ground.get(&format!("/executions/{id}")).await;
        if execution["state"] == state {
            return execution;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{id} is not {state}: {}", ground.get(&format!("/executions/{id}")).await);
}

/// S2-17, S2-22, S2-29, S2-30, S2-35: the node of the document, retried until the far side is well; its answer is what
/// the next node is given.
#[tokio::test]
async fn a_node_as_the_document_writes_it_is_retried_and_its_output_goes_on() {
    let target = Target::start(|n, asked| match asked.line.as_str() {
        line if line.contains("/users") && n < 2 => answer(503, "", "busy"),
        line if line.contains("/users") => answer(201, "content-type: application/json\r\n", "{\"user\":7}"),
        _ => answer(200, "", "thanks"),
    })
    .await;
    let ground = Ground::with(LOOPBACK).await;
    let url = |path: &str| format!("http://{}{path}", target.address);
    let retry = json!({ "enabled": true, "strategy": "immediate", "maxAttempts": 3, "retryOn": ["5xx", "408", "429"],
                        "ignoreExceptions": ["4xx"] });
    let form = json!({ "workflow": { "nodes": [
        { "nodeId": "api-call-1", "type": "action", "subType": "api-call",
          "config": { "url": url("/users"), "method": "POST", "retry": retry } },
        { "nodeId": "thank", "type": "action", "subType": "api-call", "after": ["api-call-1"],
          "config": { "url": url("/thank"), "method": "POST" } },
    ] }, "input": { "name": "Ada" } });
    let id = ground.post("/executions", form).await.data()["id"].as_str().unwrap().to_owned();
    let ended = until(&ground, &id, "succeeded").await;
    assert_eq!((&ended["nodes"][0]["attempt"], &ended["nodes"][0]["failures"]), (&json!(3), &json!(2)));
    assert_eq!(ended["output"]["api-call-1"]["body"], json!({ "user": 7 }));
    let asked = target.asked();
    let first: Value = serde_json::from_slice(&asked[0].body).unwrap();
    assert_eq!(first, json!({ "input": { "name": "Ada" }, "outputs": {} }));
    let last: Value = serde_json::from_slice(&asked.last().unwrap().body).unwrap();
    assert_eq!(last["outputs"]["api-call-1"]["body"], json!({ "user": 7 }));
    let job = ended["nodes"][0]["jobId"].as_str().unwrap();
    let history = ground.job(job).await;
    let errors: Vec<&str> = history["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["failure"]["message"].as_str().unwrap())
        .collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
}

/// S2-31, S2-36: what is given up keeps its last error; of 4xx, only 408 and 429 are tried again.
#[tokio::test]
async fn a_node_whose_retries_are_used_up_is_dead_with_its_last_error() {
    let target = Target::start(|n, asked| match asked.line.as_str() {
        line if line.contains("/gone") => answer(404, "", "nobody"),
        _ => answer(if n == 0 { 408 } else { 503 }, "", &format!("no {n}")),
    })
    .await;
    let ground = Ground::with(LOOPBACK).await;
    let start = async |path: &str| {
        let retry = json!({ "enabled": true, "strategy": "immediate", "maxAttempts": 2, "retryOn": ["5xx", "408", "429"],
                            "ignoreExceptions": ["4xx"] });
        let url = format!("http://{}{path}", target.address);
        let node = json!({ "nodeId": "a", "subType": "api-call", "config": { "url": url, "method": "GET", "retry": retry } });
        let started = ground.post("/executions", json!({ "workflow": { "nodes": [node] } })).await.data();
        started["id"].as_str().unwrap().to_owned()
    };
    let dead = until(&ground, &start("/busy").await, "dead").await;
    assert_eq!(dead["nodes"][0]["failures"], 3);
    assert!(dead["lastError"].as_str().unwrap().contains("no 2"), "{dead}");
    let refused = until(&ground, &start("/gone").await, "dead").await;
    assert_eq!(refused["nodes"][0]["failures"], 1);
}

/// S2-23, S2-37: an execution with a `retry` of its own is started anew by itself.
#[tokio::test]
async fn a_failed_execution_is_started_anew_with_its_saved_input() {
    let target =
        Target::start(|n, _| if n == 0 { answer(500, "", "down") } else { answer(200, "", "up") }).await;
    let ground = Ground::with(LOOPBACK).await;
    let node = json!({ "nodeId": "a", "subType": "api-call",
                       "config": { "url": format!("http://{}/", target.address), "method": "POST" } });
    let retry = json!({ "enabled": true, "strategy": "immediate", "maxAttempts": 3 });
    let form = json!({ "workflow": { "nodes": [node], "retry": retry }, "input": { "order": 17 } });
    let id = ground.post("/executions", form).await.data()["id"].as_str().unwrap().to_owned();
    let old = until(&ground, &id, "retried").await;
    let new = until(&ground, old["retriedBy"].as_str().unwrap(), "succeeded").await;
    assert_eq!(
        (&new["retryOf"], &new["retry"], &new["input"]),
        (&json!(id), &json!(1), &json!({ "order": 17 }))
    );
    let listed = ground.get("/executions").await;
    let states: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|item| item["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["succeeded", "retried"]);
}

#[derive(Serialize, Deserialize)]
struct Step;

impl Payload for Step {
    const KIND: &'static str = "step";
}

/// S2-02, S2-20: 7 and 14 days, with the process gone and the file opened again in between. Each retry is due to the
/// millisecond, does not run before, and runs when it is due.
#[tokio::test]
async fn retries_after_seven_and_fourteen_days_survive_that_the_store_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    // An engine that begins its life at this time, on the same file.
    let life = async |at: Timestamp| {
        let step = |attempt: Attempt<Step>| async move {
            if attempt.number < 3 { Err(Failure::retry("away")) } else { Ok(Output("back")) }
        };
        let store = SqliteStore::open(&file).await.unwrap();
        Engine::builder(store).clock(Clock::starting_at(at)).handle(step).build().unwrap()
    };
    let schedule = json!({ "retry": { "enabled": true, "strategy": "custom", "maxAttempts": 2, "customSchedule": { "attempts": [
        { "attempt": 1, "delayDays": 7 }, { "attempt": 2, "delayDays": 14 } ] } } });
    let policy = Policy::from_json(schedule).unwrap();
    let mut now = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
    let engine = life(now).await;
    let id =
        engine.start(Workflow::new().node("a", redrive::NewJob::from(Step).policy(policy))).await.unwrap();
    let node = redrive::Execution::node_job(id, 0);
    engine.drain_due().await.unwrap();
    drop(engine);
    let mut due = now;
    for (n, wait) in [days(7), days(14)].into_iter().enumerate() {
        let detail = engine_of(&file, now).await.get(node).await.unwrap().unwrap();
        let ended = detail.attempts[n].ended_at;
        assert_eq!(detail.job.due_at(), ended + wait, "to the millisecond");
        due = detail.job.due_at();
        let early = life(due - Duration::from_secs(10)).await;
        early.drain_due().await.unwrap();
        assert_eq!(early.get(node).await.unwrap().unwrap().job.ledger.attempt, n as u32 + 1, "not before");
        drop(early);
        now = due;
        life(now).await.drain_due().await.unwrap();
    }
    let ended = engine_of(&file, due).await.execution(id).await.unwrap().unwrap();
    assert_eq!(ended.detail.job.state.name(), StateName::Succeeded);
    assert_eq!(ended.detail.output.unwrap().as_str(), r#"{"a":"back"}"#);
}

/// An engine that only looks.
async fn engine_of(file: &std::path::Path, at: Timestamp) -> Engine {
    let store = SqliteStore::open(file).await.unwrap();
    Engine::builder(store).clock(Clock::starting_at(at)).produce::<Step>().build().unwrap()
}

/// S2-24, S2-38, S2-39: what waits, when, and how it went, over the API.
#[tokio::test]
async fn what_is_scheduled_and_how_it_went_can_be_asked() {
    let ground = Ground::new().await;
    let retry = json!({ "enabled": true, "strategy": "fixed_delay", "maxAttempts": 3, "delaySeconds": 300 });
    let node = json!({ "nodeId": "a", "subType": "worker", "config": { "retry": retry } });
    let form = json!({ "workflow": { "nodes": [node] } });
    let id = ground.post("/executions", form).await.data()["id"].as_str().unwrap().to_owned();
    let lease = ground.lease("worker").await;
    ground.report(&lease, "fail", json!({ "message": "timeout" })).await.data();
    let execution = ground.get(&format!("/executions/{id}")).await;
    let node = &execution["nodes"][0];
    assert_eq!((&node["state"], &node["reason"]), (&json!("waiting"), &json!("backoff")));
    let job = ground.job(node["jobId"].as_str().unwrap()).await;
    assert_eq!(millis(&job["dueAt"]) - millis(&job["attempts"][0]["endedAt"]), 300_000);
    let queues = ground.get("/queues").await;
    let counts = [&queues[0]["waiting"], &queues[0]["dead"], &queues[0]["retries"]];
    assert_eq!(counts, [&json!(2), &json!(0), &json!(1)], "the node and its execution: {queues}");
}

/// S2-03, S2-17, S2-18, S2-19, S2-20: the four strategies of the document, with its examples.
#[test]
fn the_documents_strategies_give_the_documents_delays() {
    let delays = |form: Value, n: usize| -> Vec<u64> {
        Policy::from_json(form).unwrap().preview(n).iter().map(Duration::as_secs).collect()
    };
    let immediate = json!({ "retry_strategy": "immediate", "max_attempts": 3, "initial_delay_seconds": 0 });
    assert_eq!(delays(immediate, 9), [0, 0, 0]);
    let exponential = json!({ "retry_strategy": "exponential_backoff", "max_attempts": 5, "initial_delay_seconds": 60,
                              "multiplier": 2.0, "max_delay_seconds": 3600 });
    assert_eq!(delays(exponential, 9), [60, 120, 240, 480, 960]);
    let fixed = json!({ "retry_strategy": "fixed_delay", "max_attempts": 3, "delay_seconds": 300 });
    assert_eq!(delays(fixed, 9), [300, 300, 300]);
    let day = 86_400;
    let schedule =
        json!({ "attempts": [{ "attempt": 1, "delay_days": 7 }, { "attempt": 2, "delay_days": 14 }] });
    let custom =
        |most: u32| json!({ "retry_strategy": "custom", "max_attempts": most, "custom_schedule": schedule });
    assert_eq!(delays(custom(2), 9), [7 * day, 14 * day]);
    assert_eq!(delays(custom(4), 9), [7 * day, 14 * day, 14 * day, 14 * day], "the last one again");
}
