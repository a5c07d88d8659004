//! Executions of workflows, as a caller meets them.

use serde_json::{Value, json};

use crate::ground::{Ground, api};

/// `b` and `c` come after `a`, and `d` after both; each is run by a worker that knows kinds of its name.
fn diamond(retry: Value) -> Value {
    let node = |id: &str, after: Value| {
        json!({ "nodeId": id, "type": "action", "subType": id, "after": after,
                "config": { "step": id, "retry": { "enabled": true, "strategy": "fixed_delay", "maxAttempts": 1, "delaySeconds": 300 } } })
    };
    let nodes = [
        node("a", json!([])),
        node("b", json!(["a"])),
        node("c", json!(["a"])),
        node("d", json!(["b", "c"])),
    ];
    json!({ "workflow": { "nodes": nodes, "retry": retry }, "input": { "order": 17 } })
}

async fn start(ground: &Ground, form: Value) -> String {
    let started = ground.post("/executions", form).await.data();
    assert_eq!(started["state"], "waiting");
    started["id"].as_str().unwrap().to_owned()
}

fn states(execution: &Value) -> Vec<&str> {
    execution["nodes"].as_array().unwrap().iter().map(|node| node["state"].as_str().unwrap()).collect()
}

/// Waits until the execution is in this state.
async fn until(ground: &Ground, id: &str, state: &str) -> Value {
    for _ in 0..400 {
        let execution = ground.get(&format!("/executions/{id}")).await;
        if execution["state"] == state {
            return execution;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("{id} is not {state}: {}", ground.get(&format!("/executions/{id}")).await);
}

async fn done(ground: &Ground, kind: &str, output: Value) -> Value {
    let asked = json!({ "kinds": [kind], "wait": "10s" });
    let leased = ground.post("/workers/lease", asked).await.data()["jobs"][0].take();
    let lease = leased["lease"].as_str().unwrap_or_else(|| panic!("no {kind} job: {leased}"));
    ground.report(lease, "complete", json!({ "output": output })).await.data();
    leased
}

#[tokio::test]
async fn workers_run_the_nodes_in_order_and_are_given_what_came_before() {
    let ground = Ground::new().await;
    let id = start(&ground, diamond(Value::Null)).await;
    assert_eq!((ground.due("b").await, ground.due("d").await), (0, 0));
    let first = done(&ground, "a", json!({ "paid": true })).await;
    assert_eq!(first["inputs"], json!({ "input": { "order": 17 }, "outputs": {} }));
    assert_eq!((&first["payload"], &first["labels"]["node_id"]), (&json!({ "step": "a" }), &json!("a")));
    let running = ground.get(&format!("/executions/{id}")).await;
    assert_eq!((running["state"].as_str(), &running["counts"]["succeeded"]), (Some("running"), &json!(1)));
    assert_eq!(states(&running), ["succeeded", "waiting", "waiting", "waiting"]);
    let last = &running["nodes"][3];
    assert_eq!((&last["reason"], &last["dueAt"]), (&json!("dependency"), &Value::Null));
    let said = ground.get(&format!("/jobs/{}/explain", last["jobId"].as_str().unwrap())).await;
    assert_eq!(said["summary"], "waiting: for nodes that come before it: b (waiting), c (waiting)");
    assert_eq!((&said["next"], said.get("until")), (&json!([]), None));
    done(&ground, "c", json!(2)).await;
    done(&ground, "b", json!(1)).await;
    let last = done(&ground, "d", Value::Null).await;
    assert_eq!(last["inputs"]["outputs"], json!({ "b": 1, "c": 2 }));
    let ended = until(&ground, &id, "succeeded").await;
    assert_eq!(ended["output"]["a"], json!({ "paid": true }));
    let listed = ground.get("/executions?state=succeeded").await;
    assert_eq!(listed["items"][0]["id"], json!(id));
}

#[tokio::test]
async fn a_dead_node_can_be_run_again_and_a_dead_execution_started_anew() {
    let ground = Ground::new().await;
    let id = start(&ground, diamond(Value::Null)).await;
    let other =
        start(&ground, json!({ "workflow": { "nodes": [{ "nodeId": "x", "subType": "other" }] } })).await;
    let lease = ground.lease("a").await;
    ground.report(&lease, "fail", json!({ "message": "no such account", "class": "permanent" })).await.data();
    let dead = until(&ground, &id, "dead").await;
    assert_eq!(dead["lastError"], "node \"a\" is dead: no such account");
    assert_eq!(dead["nodes"][0]["lastError"], "no such account");
    let again = ground.post(&format!("/executions/{id}/nodes/a/retry"), json!({})).await.data();
    assert_eq!(states(&again)[0], "waiting");
    let missing = ground.post(&format!("/executions/{id}/nodes/e/retry"), json!({})).await;
    assert_eq!(missing.refused(), (404, "RETRY_NOT_FOUND".into()));
    let lease = ground.lease("a").await;
    ground.report(&lease, "fail", json!({ "message": "still none", "class": "permanent" })).await.data();
    until(&ground, &id, "dead").await;
    let new = ground.post(&format!("/executions/{id}/retry"), json!({})).await.data();
    assert_eq!(
        (&new["retryOf"], &new["retry"], &new["input"]),
        (&json!(id), &json!(1), &json!({ "order": 17 }))
    );
    let same = ground.post(&format!("/executions/{id}/retry"), json!({})).await.data();
    assert_eq!(same["id"], new["id"]);
    assert_eq!(ground.get(&format!("/executions/{id}")).await["retriedBy"], new["id"]);
    let busy = ground.post(&format!("/executions/{other}/retry"), json!({})).await;
    assert_eq!(busy.refused().0, 409);
}

#[tokio::test]
async fn cancel_and_delete_go_down_to_the_nodes() {
    let ground = Ground::new().await;
    let id = start(&ground, diamond(Value::Null)).await;
    let early = ground.delete(&format!("/executions/{id}")).await;
    assert_eq!(early.refused().0, 409);
    let cancelled = ground.post(&format!("/executions/{id}/cancel"), json!({})).await.data();
    assert_eq!((&cancelled["state"], states(&cancelled)), (&json!("cancelled"), vec!["cancelled"; 4]));
    ground.delete(&format!("/executions/{id}")).await.data();
    assert_eq!(ground.get("/jobs").await["items"], json!([]));
    let gone = ground.post(&format!("/executions/{id}/cancel"), json!({})).await;
    assert_eq!(gone.refused(), (404, "RETRY_NOT_FOUND".into()));
}

#[tokio::test]
async fn a_start_sent_again_with_its_key_is_one_execution() {
    let (ground, path) = (Ground::new().await, api("/executions"));
    let headers = [("content-type", "application/json"), ("idempotency-key", "one")];
    let send = || ground.client.ask("POST", &path, &headers, diamond(Value::Null).to_string().into());
    let (first, second) = (send().await.data(), send().await.data());
    assert_eq!(first["id"], second["id"]);
    assert_eq!(ground.get("/executions").await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_graph_that_cannot_be_is_refused_with_the_place_and_what_to_write_and_nothing_is_created() {
    let ground = Ground::new().await;
    let http = |config: Value| json!({ "nodeId": "a", "subType": "api-call", "config": config });
    let retry = |retry: Value| http(json!({ "url": "https://a.example/", "retry": retry }));
    let step = |id: &str, after: Value| json!({ "nodeId": id, "subType": "mail", "after": after });
    let big = "x".repeat(300_000);
    let refused = [
        (json!([]), "nodes has 0 entries; write 1 to"),
        (
            json!([step("a", json!(["b"])), step("b", json!(["a"]))]),
            "nodes[0].after closes a circle: \"b\" → \"a\" → \"b\"",
        ),
        (json!([step("a", json!(["zz"]))]), "nodes[0].after[0] is \"zz\", and there is no such node"),
        (json!([step("a", json!([])), step("a", json!([]))]), "nodes[1].nodeId is \"a\""),
        (json!([{ "nodeId": "a" }]), "workflow.nodes[0].subType is missing; write \"api-call\""),
        (json!([http(json!({ "method": "POST" }))]), "workflow.nodes[0].config: there is no \"url\""),
        (
            json!([http(json!({ "url": "https://a.example/", "body": big }))]),
            "workflow.nodes[0].config has 300",
        ),
        (json!([retry(json!({ "strategy": "sometimes" }))]), "workflow.nodes[0].config.retry.strategy"),
        (json!([retry(json!({ "strategy": "fixed_delay" }))]), "workflow.nodes[0].config.retry.delaySeconds"),
        (json!([retry(json!({ "strategy": "custom" }))]), "workflow.nodes[0].config.retry.customSchedule"),
    ];
    for (nodes, says) in refused {
        let answer = ground.post("/executions", json!({ "workflow": { "nodes": nodes } })).await;
        assert_eq!(answer.refused(), (422, "RETRY_INVALID".into()), "{says}");
        let text = String::from_utf8_lossy(&answer.body).replace("\\\"", "\"");
        assert!(text.contains(says), "{says}\n{text}");
    }
    let wrong = diamond(json!({ "strategy": "sometimes" }));
    let text = String::from_utf8_lossy(&ground.post("/executions", wrong).await.body).into_owned();
    assert!(text.contains("workflow.retry.strategy"), "{text}");
    assert_eq!(ground.get("/jobs").await["items"], json!([]));
}
