//! Queues, dead letters, figures, the activity log, policies, and what machines watch.

use serde_json::{Value, json};

use crate::client::Client;
use crate::ground::{Ground, api};
use crate::process::Process;

#[tokio::test]
async fn a_paused_queue_hands_out_nothing_until_it_is_resumed() {
    let ground = Ground::with("[queues.default]\n[queues.letters]").await;
    ground.enqueue(json!({ "kind": "mail", "queue": "letters" })).await;
    ground.enqueue(json!({ "kind": "sms" })).await;
    let paused = ground.post("/queues/letters/pause", json!({})).await.data();
    assert_eq!((&paused["paused"], &paused["waiting"]), (&json!(true), &json!(1)));
    assert_eq!((ground.due("mail").await, ground.due("sms").await), (0, 1));
    let queues = ground.get("/queues").await;
    let seen: Vec<(&str, bool)> = queues
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| (queue["name"].as_str().unwrap(), queue["paused"].as_bool().unwrap()))
        .collect();
    assert_eq!(seen, [("default", false), ("letters", true)]);
    ground.post("/queues/letters/resume", json!({})).await.data();
    assert_eq!(ground.due("mail").await, 1);
    let unknown = ground.post("/queues/nowhere/pause", json!({})).await;
    assert_eq!(unknown.refused(), (404, "RETRY_NOT_FOUND".into()));
}

#[tokio::test]
async fn dead_jobs_are_counted_by_what_they_died_of() {
    let ground = Ground::new().await;
    ground.dead("sms", "no such number").await;
    ground.dead("mail", "no such address 17").await;
    let newest = ground.dead("mail", "no such address 18").await;
    let groups = ground.get("/dead/groups").await;
    let counts: Vec<&Value> = groups.as_array().unwrap().iter().map(|group| &group["count"]).collect();
    assert_eq!(counts, [2, 1], "{groups}");
    assert_eq!((&groups[0]["newest"], &groups[0]["kind"]), (&json!(newest), &json!("mail")));
    assert_eq!(groups[0]["message"], "no such address 18");
    let trend = groups[0]["trend"].as_array().unwrap();
    assert_eq!((trend.len(), trend.iter().filter_map(Value::as_u64).sum::<u64>()), (24, 2), "{groups}");
    let group = groups[0]["group"].as_str().unwrap();
    let listed = ground.get(&format!("/dead?group={group}")).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(ground.get("/dead/groups?limit=1").await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_figures_add_up() {
    let ground = Ground::new().await;
    ground.dead("sms", "no such number").await;
    ground.enqueue(json!({ "kind": "mail", "policy": { "backoff": { "kind": "immediate" } } })).await;
    let lease = ground.lease("mail").await;
    ground.report(&lease, "fail", json!({ "message": "timeout" })).await.data();
    let lease = ground.lease("mail").await;
    ground.report(&lease, "complete", json!({})).await.data();
    ground.enqueue(json!({ "kind": "letter", "delay": "1h" })).await;
    ground.enqueue(json!({ "kind": "fax" })).await;
    ground.lease("fax").await;
    let stats = ground.get("/stats").await;
    let expected = [
        ("totalPending", 2),
        ("totalSucceeded", 1),
        ("totalFailed", 1),
        ("waiting", 1),
        ("running", 1),
        ("dead", 1),
        ("enqueued", 4),
        ("recovered", 1),
        ("retries", 1),
        ("failures", 2),
    ];
    for (name, count) in expected {
        assert_eq!(stats[name], count, "{name}: {stats}");
    }
    assert_eq!(stats["successRate"], 0.5);
}

#[tokio::test]
async fn the_activity_log_tells_the_newest_first() {
    let ground = Ground::new().await;
    let first = ground.dead("sms", "no such number").await;
    let second = ground.dead("mail", "no such address").await;
    let lines = ground.get("/activity").await;
    let of = |n: usize| (lines[n]["what"].as_str().unwrap(), lines[n]["job"].as_str().unwrap());
    assert_eq!((of(0), of(1)), (("dead", second.as_str()), ("dead", first.as_str())), "{lines}");
    assert_eq!(ground.get("/activity?limit=1").await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn policies_have_names_and_can_be_tried() {
    let settings = "[policies.patient]\nbackoff = { kind = \"fixed\", delay = \"5m\" }\nmax_attempts = 3";
    let ground = Ground::with(settings).await;
    let presets = ground.get("/policies/presets").await;
    let names: Vec<&str> =
        presets.as_array().unwrap().iter().map(|preset| preset["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"media") && names.contains(&"patient"), "{names:?}");

    let delays = |preview: &Value| -> Vec<u64> {
        preview["delays"].as_array().unwrap().iter().map(|delay| delay["delayMs"].as_u64().unwrap()).collect()
    };
    let media = ground.post("/policies/preview", json!({ "policy": "media" })).await.data();
    assert_eq!(delays(&media)[..3], [1_000, 2_000, 4_000]);
    let patient = ground.post("/policies/preview", json!({ "policy": "patient" })).await.data();
    assert_eq!((delays(&patient), &patient["retries"]), (vec![300_000, 300_000], &json!(2)));
    let by_value = json!({ "backoff": { "kind": "schedule", "delays": ["1s", "1m"], "then": "stop" } });
    let answer = ground.post("/policies/preview", json!({ "policy": by_value })).await;
    assert_eq!(delays(&answer.data()), [1_000, 60_000]);
    let wrong = ground.post("/policies/preview", json!({ "policy": { "backof": {} } })).await;
    assert_eq!(wrong.refused(), (422, "RETRY_INVALID".into()));
}

#[tokio::test]
async fn an_outage_is_tried_under_a_policy_beside_what_others_do() {
    let ground = Ground::new().await;
    let own = json!({ "name": "own", "backoff": { "kind": "fixed", "delay": "2s" }, "maxRetries": 5 });
    let asked = json!({ "policy": own, "arrivalsPerSecond": 5, "capacityPerSecond": 20, "outage": "10s" });
    let tried = ground.post("/policies/simulate", asked.clone()).await.data();
    assert_eq!((&tried["downFrom"], &tried["downUntil"]), (&json!(60.0), &json!(70.0)));
    let courses = tried["courses"].as_array().unwrap();
    let names: Vec<&str> = courses.iter().map(|course| course["name"].as_str().unwrap()).collect();
    assert_eq!((names[0], names.len()), ("redrive", 5), "{names:?}");
    let calls = |course: &Value| course["callsWhileDown"].as_u64().unwrap();
    assert!(calls(&courses[0]) < calls(&courses[1]), "{tried}");
    let points = tried["seconds"].as_u64().unwrap().min(240);
    for course in courses {
        assert_eq!(course["callsPerSecond"].as_array().unwrap().len() as u64, points, "{course}");
    }
    let again = ground.post("/policies/simulate", asked).await.data();
    assert_eq!(again, tried, "the same seed gives the same numbers");
    let other =
        json!({ "policy": "media", "arrivalsPerSecond": 5, "capacityPerSecond": 20, "outage": "10s" });
    let other = ground.post("/policies/simulate", other).await.data();
    assert_ne!(other["courses"][0], tried["courses"][0], "it is the policy that was asked for");
    assert_eq!(other["courses"][1], tried["courses"][1]);
    assert_eq!(ground.get("/stats").await["enqueued"], 0, "it leaves nothing behind");
}

#[tokio::test]
async fn every_answer_says_what_time_it_is_to_the_millisecond() {
    let ground = Ground::new().await;
    for path in ["/stats", "/jobs/nonsense"] {
        let before = redrive::Clock::system().now().as_millis();
        let answer = ground.client.get(&api(path)).await;
        let after = redrive::Clock::system().now().as_millis();
        let said: i64 = answer.headers["redrive-time"].to_str().unwrap().parse().unwrap();
        assert!((before..=after).contains(&said), "{said} is not between {before} and {after}");
    }
}

#[tokio::test]
async fn a_failure_is_classified_with_the_rule_that_says_so() {
    let ground = Ground::new().await;
    for (failure, class, retryable) in [
        (json!({ "message": "x", "status": 503 }), "transient", true),
        (json!({ "message": "x", "status": 429 }), "rate_limited", true),
        (json!({ "message": "x", "status": 404 }), "permanent", false),
        (json!({ "message": "x", "status": 401 }), "needs_auth", false),
        (json!({ "message": "x", "code": "TIMEOUT" }), "transient", true),
    ] {
        let verdict = ground.post("/classify", failure.clone()).await.data();
        assert_eq!(
            (&verdict["class"], &verdict["retryable"]),
            (&json!(class), &json!(retryable)),
            "{failure}"
        );
        assert!(verdict["rule"].as_str().is_some_and(|rule| !rule.is_empty()), "{verdict}");
    }
}

#[tokio::test]
async fn a_served_process_is_healthy_ready_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path()).await;
    let client = Client { address: process.address, token: None };
    for path in ["/healthz", "/readyz"] {
        let answer = client.get(path).await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok\n"[..]), "{path}");
    }
    client.post(&api("/jobs"), &json!({ "kind": "mail" })).await.data();
    let answer = client.get("/metrics").await;
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(text.contains(r#"redrive_jobs{queue="default",state="waiting"} 1"#), "{text}");
    process.kill().await;
}

#[tokio::test]
async fn the_description_that_is_served_is_the_committed_one() {
    let ground = Ground::new().await;
    let answer = ground.client.get("/openapi.json").await;
    let served: Value = serde_json::from_slice(&answer.body).unwrap();
    let committed: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
    assert_eq!(served, committed);
}
