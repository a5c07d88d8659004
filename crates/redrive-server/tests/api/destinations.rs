//! Destinations over the API: what is said of them is obeyed, what they say is learned, and both can be seen.

use serde_json::{Value, json};

use crate::client::within;
use crate::events::Stream;
use crate::ground::{Ground, api, millis};
use crate::target::{Target, answer};

const ALLOW: &str = "[egress]\nallow = [\"127.0.0.0/8\"]\n";

/// A job for a destination, whose failures would be tried again in an hour.
async fn job_for(ground: &Ground, destination: &str, more: Value) -> String {
    let policy = json!({ "backoff": { "kind": "fixed", "delay": "1h" }, "maxAttempts": 5 });
    let mut job = json!({ "kind": "mail", "destination": destination, "policy": policy });
    job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ground.enqueue(job).await
}

async fn say(ground: &Ground, destination: &str, word: &str) -> Value {
    ground.post(&format!("/destinations/{destination}/{word}"), json!({})).await.data()
}

async fn put(ground: &Ground, pattern: &str, limits: Value) -> crate::client::Answer {
    let headers = [("content-type", "application/json")];
    let path = api(&format!("/destinations/limits/{pattern}"));
    ground.client.ask("PUT", &path, &headers, limits.to_string().into()).await
}

/// Asks again until it is so.
async fn until(ground: &Ground, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    within(async {
        loop {
            let data = ground.get(path).await;
            if is_so(&data) {
                return data;
            }
        }
    })
    .await
}

#[tokio::test]
async fn what_is_said_to_be_down_holds_its_jobs_and_nobody_elses_until_it_is_up() {
    let ground = Ground::new().await;
    let down = say(&ground, "api.x", "down").await;
    assert_eq!((&down["state"], &down["reason"]), (&json!("shut"), &json!("said")));
    assert!(down.get("until").is_none() && down["since"].is_string(), "{down}");
    let held = job_for(&ground, "api.x", json!({})).await;
    job_for(&ground, "api.y", json!({})).await;
    assert_eq!(ground.due("mail").await, 1, "the other destination's");
    let seen = ground.get("/destinations/api.x").await;
    assert_eq!((&seen["held"], &seen["limits"]["breaker"]), (&json!(1), &json!(10)), "{seen}");
    let explained = ground.get(&format!("/jobs/{held}/explain")).await;
    let said = explained["summary"].as_str().unwrap();
    assert!(said.contains("api.x is said to be down, until it is said to be up"), "{said}");
    assert_eq!((&explained["destination"]["name"], &explained["ahead"]), (&json!("api.x"), &json!(0)));
    let up = say(&ground, "api.x", "up").await;
    assert_eq!((&up["state"], &up["levelPerSecond"]), (&json!("ramp"), &json!(1.0)), "{up}");
    let lease = ground.lease("mail").await;
    assert_eq!(ground.report(&lease, "complete", json!({})).await.data()["id"], json!(held));
}

#[tokio::test]
async fn a_held_job_says_how_many_go_before_it_also_of_those_it_was_put_in_with() {
    let ground = Ground::new().await;
    say(&ground, "api.x", "down").await;
    let first = job_for(&ground, "api.x", json!({})).await;
    let jobs = json!(vec![json!({ "kind": "mail", "destination": "api.x" }); 3]);
    let put = ground.post("/jobs/bulk", jobs).await.data();
    let last = put[2]["id"].as_str().unwrap();
    for (id, ahead, says) in [(first.as_str(), 0, "next in line"), (last, 3, "3 ahead")] {
        let explained = ground.get(&format!("/jobs/{id}/explain")).await;
        assert_eq!(explained["ahead"], ahead, "{explained}");
        assert!(explained["summary"].as_str().unwrap().contains(says), "{explained}");
        assert_eq!(explained["next"], json!([]), "nobody knows when it runs");
    }
}

#[tokio::test]
async fn a_paused_destination_waits_for_a_person_and_says_so() {
    let ground = Ground::new().await;
    let id = job_for(&ground, "api.x", json!({})).await;
    assert_eq!(say(&ground, "api.x", "pause").await["state"], "paused");
    assert_eq!(ground.due("mail").await, 0);
    let said = ground.get(&format!("/jobs/{id}/explain")).await["summary"].as_str().unwrap().to_owned();
    assert!(said.contains("api.x is paused until somebody resumes it"), "{said}");
    assert_eq!(ground.get("/destinations").await[0]["state"], "paused");
    say(&ground, "api.x", "resume").await;
    ground.lease("mail").await;
    let audit = ground.get("/audit").await;
    let asked: Vec<(&str, &str)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["what"].as_str().unwrap(), entry["on"].as_str().unwrap()))
        .collect();
    assert_eq!(asked, [("destinations.resume", "api.x"), ("destinations.pause", "api.x")]);
}

#[tokio::test]
async fn a_pause_that_was_asked_for_costs_no_failure_and_its_end_is_foretold() {
    let ground = Ground::new().await;
    put(&ground, "*.x", json!({ "rate": "5/s" })).await.data();
    let first = job_for(&ground, "api.x", json!({})).await;
    let lease = ground.lease("mail").await;
    let within = |span| (redrive::Clock::system().now() + span).to_string();
    let second = job_for(&ground, "api.x", json!({ "deadline": within(redrive::days(3)) })).await;
    let too_late = job_for(&ground, "api.x", json!({ "startBy": within(redrive::hours(1)) })).await;
    let busy = json!({ "message": "busy", "status": 429, "retryAfter": "2h" });
    ground.report(&lease, "fail", busy).await.data();
    let shut = ground.get("/destinations/api.x").await;
    assert_eq!((&shut["state"], &shut["reason"]), (&json!("shut"), &json!("retry_after")), "{shut}");
    let pause = millis(&shut["until"]) - millis(&shut["since"]);
    assert!((7_190_000..=7_200_000).contains(&pause), "{shut}");
    assert_eq!(ground.due("mail").await, 0);
    let job = ground.job(&first).await;
    assert_eq!((&job["failures"], &job["holds"]), (&json!(0), &json!(1)), "{job}");
    let explained = ground.get(&format!("/jobs/{second}/explain")).await;
    let said = explained["summary"].as_str().unwrap();
    assert!(said.contains("api.x shut by 429 until 2") && said.contains("1 ahead"), "{said}");
    assert!(said.ends_with("will make it"), "{said}");
    assert_eq!(explained["until"], shut["until"]);
    assert!(millis(&explained["startsAt"]) >= millis(&shut["until"]), "{explained}");
    let said = ground.get(&format!("/jobs/{too_late}/explain")).await["summary"].clone();
    assert!(said.as_str().unwrap().ends_with("will not make it"), "{said}");
}

#[tokio::test]
async fn ten_different_jobs_that_fail_shut_it_and_each_closing_is_told_once() {
    let ground =
        Ground::with("[[notify]]\non = [\"destination_down\", \"destination_recovered\"]\nto = \"log\"\n")
            .await;
    let mut stream = Stream::open(&ground, None).await;
    for _ in 0..10 {
        job_for(&ground, "api.x", json!({})).await;
        let lease = ground.lease("mail").await;
        ground.report(&lease, "fail", json!({ "message": "connection refused" })).await.data();
    }
    let [changed, down] = stream.next_of_each(["destination", "notice"]).await.map(|told| told.data);
    assert_eq!((&changed["destination"], &changed["state"]), (&json!("api.x"), &json!("shut")), "{changed}");
    let shut = ground.get("/destinations/api.x").await;
    assert_eq!(shut["reason"], "failing", "{shut}");
    assert_eq!(millis(&shut["probeAt"]) - millis(&shut["since"]), 1_000, "asked again after a second");
    assert_eq!((&down["what"], &down["rule"]), (&json!("destination_down"), &json!("destinations")));
    assert!(down["message"].as_str().unwrap().starts_with("'api.x' is down: its jobs are held"), "{down}");
    say(&ground, "api.x", "up").await;
    let back = stream.next_of("notice").await.data;
    assert_eq!(back["message"], "'api.x' is back: its jobs go again.", "{back}");
    say(&ground, "api.x", "down").await;
    assert_eq!(
        stream.next_of("notice").await.data["message"],
        "'api.x' was said to be down: its jobs are held."
    );
    assert_eq!(ground.get("/notices").await.as_array().unwrap().len(), 3);
    let line = &ground.get("/activity").await[0];
    assert_eq!(
        (&line["what"], &line["kind"], line.get("job")),
        (&json!("destination"), &json!(""), None),
        "{line}"
    );
}

#[tokio::test]
async fn limits_are_set_shown_and_taken_back_and_all_that_is_wrong_with_them_is_said() {
    let ground = Ground::with("[destination.\"*.b.org\"]\nrate = \"7/s\"\n").await;
    let set =
        put(&ground, "*.a.org", json!({ "rate": "10/s", "burst": 2, "retryAfterMax": "1h" })).await.data();
    assert_eq!((&set["from"], &set["limits"]["rate"]), (&json!("set"), &json!("10/s")));
    put(&ground, "*.b.org", json!({ "minGap": "5s" })).await.data();
    let rules = ground.get("/destinations/limits").await;
    let shown: Vec<(&Value, &Value)> =
        rules.as_array().unwrap().iter().map(|rule| (&rule["pattern"], &rule["from"])).collect();
    assert_eq!(shown, [(&json!("*.a.org"), &json!("set")), (&json!("*.b.org"), &json!("set"))]);
    job_for(&ground, "x.a.org", json!({})).await;
    assert_eq!(ground.get("/destinations/x.a.org").await["limits"]["retryAfterMax"], "1h");
    let wrong = json!({ "rate": "fast", "concurrency": 0, "minGap": "2d" });
    let refused = put(&ground, "a.*.org", wrong).await;
    assert_eq!(refused.refused(), (422, "RETRY_INVALID".into()));
    let said = String::from_utf8(refused.body.to_vec()).unwrap();
    for part in ["is not a pattern", "is not a rate", "concurrency = 0", "min_gap is to be"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let left = ground.delete("/destinations/limits/*.b.org").await.data();
    assert_eq!(left["limits"]["rate"], "7/s", "what the configuration says holds again");
    for pattern in ["*.b.org", "never"] {
        let refused = ground.delete(&format!("/destinations/limits/{pattern}")).await;
        assert_eq!(refused.refused(), (404, "RETRY_NOT_FOUND".into()), "{pattern}");
    }
}

#[tokio::test]
async fn a_destination_with_jobs_and_nothing_to_say_is_open_and_one_that_nobody_named_is_not_there() {
    let ground = Ground::new().await;
    job_for(&ground, "api.x", json!({})).await;
    let seen = ground.get("/destinations/api.x").await;
    assert_eq!((&seen["state"], &seen["held"]), (&json!("open"), &json!(0)));
    assert_eq!(ground.get("/destinations").await, json!([]));
    let missing = ground.client.get(&api("/destinations/api.y")).await;
    assert_eq!(missing.refused(), (404, "RETRY_NOT_FOUND".into()));
    assert_eq!(ground.client.get(&api("/destinations/a%00b")).await.refused().0, 422);
    assert_eq!(ground.post("/destinations/a%0Ab/down", json!({})).await.refused().0, 422);
}

#[tokio::test]
async fn a_credential_that_is_not_accepted_holds_its_jobs_alone_until_it_is_renewed() {
    let renewed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_good = renewed.clone();
    let target = Target::start(move |_, asked| {
        let is_old = asked.headers["x-credential"] == "crm";
        let refuse = is_old && !is_good.load(std::sync::atomic::Ordering::SeqCst);
        answer(if refuse { 401 } else { 204 }, "", "")
    })
    .await;
    let ground = Ground::with(ALLOW).await;
    let mut stream = Stream::open(&ground, None).await;
    let call = |credential: &str| {
        let payload = json!({
            "method": "POST", "url": target.url("/"), "credential": credential,
            "headers": { "x-credential": credential },
        });
        json!({ "kind": "http", "payload": payload })
    };
    let refused = ground.enqueue(call("crm")).await;
    let name = format!("{}%23crm", target.address);
    let shut = until(&ground, &format!("/destinations/{name}"), |seen| seen["state"] == "shut").await;
    assert_eq!(shut["reason"], "credential", "{shut}");
    let held = ground.enqueue(call("crm")).await;
    let other = ground.enqueue(call("shop")).await;
    ground.get(&format!("/jobs/{other}?wait=30s")).await;
    assert_eq!(ground.state(&other).await, "succeeded");
    let notice = stream.next_of("notice").await.data;
    assert_eq!(notice["what"], "needs_auth", "{notice}");
    assert!(notice["message"].as_str().unwrap().contains("until 'crm' is renewed"), "{notice}");
    assert_eq!(ground.job(&refused).await["failures"], 0);
    renewed.store(true, std::sync::atomic::Ordering::SeqCst);
    let released = ground.post("/credentials/crm/renewed", json!({})).await.data();
    assert_eq!(released, json!({ "released": 1 }));
    for job in [&refused, &held] {
        let done = ground.get(&format!("/jobs/{job}?wait=30s")).await;
        assert_eq!((&done["state"], &done["failures"]), (&json!("succeeded"), &json!(0)), "{done}");
    }
    assert_eq!(ground.post("/credentials/crm/renewed", json!({})).await.data(), json!({ "released": 0 }));
}

#[tokio::test]
async fn a_health_check_shuts_what_does_not_answer_and_opens_what_answers_again() {
    let target = Target::start(|n, _| answer(if n < 4 { 503 } else { 200 }, "", "")).await;
    let settings = format!(
        "{ALLOW}[destination.\"api.x\"]\nhealth = \"{}\"\nhealth_every = \"100ms\"\n",
        target.url("/health")
    );
    let ground = Ground::with(&settings).await;
    let mut stream = Stream::open(&ground, None).await;
    let states = [stream.next_of("destination").await, stream.next_of("destination").await];
    assert_eq!(states.map(|told| told.data["state"].clone()), [json!("shut"), json!("ramp")]);
    assert!(target.asked().len() >= 5, "three that shut it, one in vain, one that opened it");
    assert!(target.asked().iter().all(|asked| asked.line == "GET /health HTTP/1.1"));
}

#[tokio::test]
async fn a_health_check_below_a_pattern_asks_each_that_was_called() {
    let target = Target::start(|n, asked| {
        answer(if asked.line.contains("/health") && n < 5 { 503 } else { 200 }, "", "")
    });
    let target = target.await;
    let rule =
        "[destination.\"127.0.0.1*\"]\nhealth = \"http://{destination}/health\"\nhealth_every = \"100ms\"\n";
    let ground = Ground::with(&format!("{ALLOW}{rule}")).await;
    let mut stream = Stream::open(&ground, None).await;
    let job = json!({ "kind": "http", "payload": { "url": target.url("/work") } });
    let id = ground.enqueue(job).await;
    assert_eq!(ground.get(&format!("/jobs/{id}?wait=30s")).await["state"], "succeeded");
    let told = [stream.next_of("destination").await, stream.next_of("destination").await];
    assert_eq!(told.each_ref().map(|told| told.data["state"].clone()), [json!("shut"), json!("ramp")]);
    assert!(
        told.iter().all(|told| told.data["destination"] == json!(target.address.to_string())),
        "{:?}",
        told[0].data
    );
    assert_eq!(target.asked()[0].line, "GET /work HTTP/1.1", "nobody asks before somebody calls");
}

#[tokio::test]
async fn a_job_whose_time_stands_still_while_it_is_held_says_so() {
    let ground = Ground::new().await;
    say(&ground, "api.x", "down").await;
    let policy = json!({ "deadline": "3d", "heldCounts": false });
    let held = job_for(&ground, "api.x", json!({ "policy": policy })).await;
    let explained = ground.get(&format!("/jobs/{held}/explain")).await;
    let said = explained["summary"].as_str().unwrap();
    assert!(said.ends_with("deadline 3d after it is let go: this time does not count"), "{said}");
}

#[tokio::test]
async fn a_health_check_by_connection_goes_through_the_guard() {
    let target = Target::start(|_, _| answer(200, "", "")).await;
    let rule =
        format!("[destination.\"api.x\"]\nhealth = \"tcp://{}\"\nhealth_every = \"100ms\"\n", target.address);
    let ground = Ground::with(&rule).await;
    until(&ground, "/destinations", |seen| seen[0]["reason"] == "said").await;
    assert_eq!(target.connections(), 0, "loopback is not allowed here");
    let ground = Ground::with(&format!("{ALLOW}{rule}")).await;
    target.wait_for_connections(4).await;
    assert_eq!(ground.get("/destinations").await, json!([]));
    say(&ground, "api.x", "down").await;
    until(&ground, "/destinations/api.x", |seen| seen["state"] == "ramp").await;
}

#[tokio::test]
async fn a_retry_that_is_held_says_by_what_and_until_when() {
    let ground = Ground::new().await;
    let soon = json!({ "policy": { "backoff": { "kind": "fixed", "delay": "1ms" }, "maxAttempts": 5 } });
    let (one, two) = (job_for(&ground, "api.x", soon.clone()).await, job_for(&ground, "api.y", soon).await);
    for _ in 0..2 {
        let lease = ground.lease("mail").await;
        ground.report(&lease, "fail", json!({ "message": "not yet" })).await.data();
    }
    let blocker = job_for(&ground, "api.x", json!({ "kind": "blocker" })).await;
    let lease = ground.lease("blocker").await;
    let busy = json!({ "message": "busy", "status": 429, "retryAfter": "2h" });
    ground.report(&lease, "fail", busy).await.data();
    let shut = ground.get("/destinations/api.x").await;
    let due = |item: &Value| item["timeUntilRetry"] == "0ms" || item["timeUntilRetry"] == "0s";
    let pending = until(&ground, "/retry/pending", |pending| {
        pending["items"].as_array().unwrap().iter().filter(|item| due(item)).count() == 3
    })
    .await;
    let held = |pending: &Value, id: &str| {
        pending["items"].as_array().unwrap().iter().find(|item| item["id"] == id).unwrap()["held"].clone()
    };
    let by_gate = json!({
        "by": "destination", "name": "api.x", "state": "shut", "reason": "retry_after", "until": shut["until"],
    });
    assert_eq!((held(&pending, &one), held(&pending, &two)), (by_gate.clone(), Value::Null));
    assert_eq!(held(&pending, &blocker), by_gate, "what was asked to wait is a retry too");
    ground.post("/queues/default/pause", json!({})).await.data();
    let pending = ground.get("/retry/pending").await;
    assert_eq!(held(&pending, &two), json!({ "by": "queue", "name": "default", "state": "paused" }));
    ground.post("/queues/default/resume", json!({})).await.data();
    assert_eq!(held(&ground.get("/retry/pending").await, &one), by_gate);
}
