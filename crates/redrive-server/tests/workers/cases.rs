//! One worker or a few, one case each.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::ground::{Ground, id, millis};

fn lost() -> (u16, String) {
    (409, "LEASE_LOST".into())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[tokio::test]
async fn a_worker_gets_the_jobs_of_its_kinds_with_all_it_needs() {
    let ground = Ground::new().await;
    let job =
        ground.enqueue(json!({ "kind": "mail", "payload": { "to": "ada" }, "labels": { "a": "b" } })).await;
    ground.enqueue(json!({ "kind": "sms" })).await;
    let asked = json!({ "worker": "mailer-1", "kinds": ["mail", "fax"], "limit": 10, "leaseFor": "1m" });
    let leased = ground.post("/workers/lease", asked).await.data();
    assert_eq!(leased["jobs"].as_array().unwrap().len(), 1);
    let mine = &leased["jobs"][0];
    assert_eq!((&mine["id"], &mine["kind"], &mine["run"]), (&json!(job), &json!("mail"), &json!(1)));
    assert_eq!((&mine["payload"], &mine["state"]), (&json!({ "to": "ada" }), &json!("running")));
    let left = millis(&leased["leaseUntil"]) - millis(&mine["runningSince"]);
    assert!((60_000..90_000).contains(&left), "{left}");
    assert_eq!(ground.due("mail").await, 0, "a leased job is nobody else's");
}

#[tokio::test]
async fn a_worker_that_waits_is_woken_by_an_enqueue() {
    let ground = Ground::new().await;
    let client = ground.client.clone();
    let asked = json!({ "kinds": ["mail"], "wait": "1m", "leaseFor": "1h" });
    let waiting = tokio::spawn(async move { client.post("/api/v1/workers/lease", &asked).await.data() });
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let leased = waiting.await.unwrap();
    assert_eq!(leased["jobs"][0]["id"], json!(job));
}

#[tokio::test]
async fn a_worker_that_waits_for_nothing_is_told_so() {
    let ground = Ground::new().await;
    let leased = ground.post("/workers/lease", json!({ "kinds": ["mail"], "wait": "50ms" })).await.data();
    assert_eq!(leased["jobs"], json!([]));
    assert_eq!(text(&leased["workerId"]).len(), 64);
}

#[tokio::test]
async fn a_completed_job_leaves_its_output() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let lease = ground.lease("mail").await;
    let done = ground.report(&lease, "complete", json!({ "output": { "id": 17 } })).await.data();
    assert_eq!(done, json!({ "id": job, "state": "succeeded" }));
    assert_eq!(ground.job(&job).await["output"], json!({ "id": 17 }));
}

#[tokio::test]
async fn a_failed_job_is_tried_again_when_its_policy_or_the_far_side_says() {
    let ground = Ground::new().await;
    let policy = json!({ "backoff": { "kind": "fixed", "delay": "1h" }, "maxAttempts": 4 });
    let job = ground.enqueue(json!({ "kind": "mail", "policy": policy })).await;
    let reports = [
        (json!({ "message": "timeout" }), 3_600_000, "transient"),
        (json!({ "class": "transient", "code": "ODD", "message": "x" }), 3_600_000, "transient"),
        (json!({ "message": "busy", "status": 429, "retryAfter": "2h" }), 7_200_000, "rate_limited"),
    ];
    for (n, (report, delay, class)) in reports.into_iter().enumerate() {
        let lease = ground.lease("mail").await;
        let answer = ground.report(&lease, "fail", report.clone()).await.data();
        assert_eq!(answer["state"], "waiting");
        let seen = ground.job(&job).await;
        let attempt = &seen["attempts"][n];
        assert_eq!(millis(&answer["dueAt"]) - millis(&attempt["endedAt"]), delay, "{report}");
        assert_eq!(attempt["failure"]["class"], class);
        assert_eq!(attempt["failure"].get("code"), report.get("code"));
        assert_eq!(attempt["failure"]["message"], report["message"]);
        ground.post(&format!("/jobs/{job}/retry"), json!({})).await.data();
    }
    let lease = ground.lease("mail").await;
    let answer = ground.report(&lease, "fail", json!({ "message": "timeout" })).await.data();
    assert_eq!(answer, json!({ "id": job, "state": "dead" }));
    // A code that nobody knows does not hide what the status says.
    let gone = ground.enqueue(json!({ "kind": "mail" })).await;
    let hopeless = ground.lease("mail").await;
    let report = json!({ "message": "no such order", "code": "E_ORDER", "status": 404 });
    let answer = ground.report(&hopeless, "fail", report).await.data();
    assert_eq!(answer, json!({ "id": gone, "state": "dead" }));
    let wrong = json!({ "class": "unlucky", "message": "x" });
    assert_eq!(ground.report(&lease, "fail", wrong).await.refused(), (422, "RETRY_INVALID".into()));
}

#[tokio::test]
async fn a_snoozed_job_comes_later_and_a_released_one_at_once_and_neither_has_failed() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let lease = ground.lease("mail").await;
    let answer = ground.report(&lease, "release", json!({})).await.data();
    assert_eq!(answer["state"], "waiting");
    let lease = ground.lease("mail").await;
    ground.report(&lease, "snooze", json!({ "delay": "1h" })).await.data();
    let seen = ground.job(&job).await;
    assert_eq!(
        (&seen["failures"], &seen["snoozes"], &seen["interruptions"]),
        (&json!(0), &json!(1), &json!(1))
    );
    assert_eq!(ground.due("mail").await, 0);
}

#[tokio::test]
async fn a_repeated_report_changes_nothing() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    ground.enqueue(json!({ "kind": "mail", "delay": "1h" })).await;
    let lease = ground.lease("mail").await;
    ground.report(&lease, "complete", json!({ "output": 1 })).await.data();
    let before = ground.job(&job).await;
    for (what, body) in [
        ("complete", json!({ "output": 2 })),
        ("fail", json!({ "message": "x" })),
        ("snooze", json!({ "delay": "1s" })),
        ("release", json!({})),
    ] {
        assert_eq!(ground.report(&lease, what, body).await.refused(), lost(), "{what}");
    }
    assert_eq!(ground.job(&job).await, before);
    assert_eq!(ground.get("/stats").await["totalSucceeded"], 1);
}

#[tokio::test]
async fn a_report_about_an_earlier_attempt_changes_nothing() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let first = ground.lease("mail").await;
    ground.report(&first, "release", json!({})).await.data();
    let second = ground.lease("mail").await;
    assert_ne!(first, second);
    assert_eq!(ground.report(&first, "complete", json!({})).await.refused(), lost());
    assert_eq!(ground.state(&job).await, "running");
    ground.report(&second, "complete", json!({})).await.data();
}

#[tokio::test]
async fn parts_of_two_leases_make_no_third_and_a_guess_makes_none() {
    let ground = Ground::new().await;
    let one = ground.enqueue(json!({ "kind": "mail" })).await;
    let lease_of_one = ground.lease("mail").await;
    let two = ground.enqueue(json!({ "kind": "mail" })).await;
    let lease_of_two = ground.lease("mail").await;
    let mut wrong: BTreeSet<String> = BTreeSet::new();
    for at in [32, 64, 80] {
        wrong.insert(format!("{}{}", &lease_of_one[..at], &lease_of_two[at..]));
        wrong.insert(format!("{}{}", &lease_of_two[..at], &lease_of_one[at..]));
    }
    wrong.remove(&lease_of_one);
    wrong.remove(&lease_of_two);
    // One digit off, at every place.
    for at in 0..lease_of_one.len() {
        let other = if &lease_of_one[at..=at] == "0" { "1" } else { "0" };
        wrong.insert(format!("{}{other}{}", &lease_of_one[..at], &lease_of_one[at + 1..]));
    }
    wrong.extend(["x".to_owned(), "0".repeat(88), "f".repeat(88), "%00".to_owned()]);
    for lease in wrong {
        assert_eq!(ground.report(&lease, "complete", json!({})).await.refused(), lost(), "{lease}");
    }
    assert_eq!((ground.state(&one).await, ground.state(&two).await), ("running".into(), "running".into()));
    ground.report(&lease_of_one, "complete", json!({})).await.data();
    ground.report(&lease_of_two, "complete", json!({})).await.data();
}

#[tokio::test]
async fn a_silent_workers_jobs_go_to_others_and_its_late_report_is_refused() {
    // How soon a silence is noticed goes by the server's own lease, and how soon the job is due again by its policy.
    let ground = Ground::with("lease = \"1s\"").await;
    let policy = json!({ "backoff": { "kind": "immediate" } });
    let job = ground.enqueue(json!({ "kind": "mail", "policy": policy })).await;
    let leased = ground.post("/workers/lease", json!({ "kinds": ["mail"], "leaseFor": "1s" })).await.data();
    let (worker, lease) = (text(&leased["workerId"]), text(&leased["jobs"][0]["lease"]));
    // Waits for the job, which comes when the silence has lasted long enough.
    let asked = json!({ "kinds": ["mail"], "wait": "1m", "leaseFor": "1h" });
    let other = ground.post("/workers/lease", asked).await.data();
    assert_eq!(id(&other["jobs"][0]), job);
    assert_eq!((&other["jobs"][0]["run"], &other["jobs"][0]["crashes"]), (&json!(2), &json!(1)));
    assert!(millis(&other["jobs"][0]["runningSince"]) >= millis(&leased["leaseUntil"]), "never early");

    assert_eq!(ground.report(&lease, "complete", json!({})).await.refused(), lost());
    let beat = ground.post("/workers/heartbeat", json!({ "workerId": worker })).await;
    assert_eq!(beat.refused(), lost());
    let again = ground.post("/workers/lease", json!({ "kinds": ["mail"], "workerId": worker })).await;
    assert_eq!(again.refused(), lost());
    assert_eq!(ground.state(&job).await, "running");
    ground.report(&text(&other["jobs"][0]["lease"]), "complete", json!({})).await.data();
}

#[tokio::test]
async fn a_heartbeat_keeps_everything_and_says_what_was_taken_away() {
    let ground = Ground::new().await;
    let taken = ground.enqueue(json!({ "kind": "mail" })).await;
    ground.enqueue(json!({ "kind": "mail" })).await;
    let asked = json!({ "kinds": ["mail"], "limit": 2, "leaseFor": "2s" });
    let leased = ground.post("/workers/lease", asked).await.data();
    assert_eq!(leased["jobs"].as_array().unwrap().len(), 2);
    ground.post(&format!("/jobs/{taken}/cancel"), json!({})).await.data();
    let beat = json!({ "workerId": leased["workerId"], "leaseFor": "1h" });
    let kept = ground.post("/workers/heartbeat", beat).await.data();
    assert_eq!(kept["lost"], json!([taken]));
    assert!(millis(&kept["leaseUntil"]) > millis(&leased["leaseUntil"]) + 3_000_000);
    // Longer than the first lease would have lasted.
    let waited = ground.post("/workers/lease", json!({ "kinds": ["mail"], "wait": "4s" })).await.data();
    assert_eq!(waited["jobs"], json!([]));
    let left = leased["jobs"].as_array().unwrap().iter().find(|job| job["id"] != json!(taken)).unwrap();
    ground.report(&text(&left["lease"]), "complete", json!({})).await.data();
}

#[tokio::test]
async fn an_output_that_is_too_large_is_refused_and_the_lease_stays() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let lease = ground.lease("mail").await;
    let large = ground.report(&lease, "complete", json!({ "output": "x".repeat(70_000) })).await;
    assert_eq!(large.refused(), (413, "RETRY_TOO_LARGE".into()));
    assert_eq!(ground.state(&job).await, "running");
    ground.report(&lease, "complete", json!({ "output": "at /outputs/17" })).await.data();
    assert_eq!(ground.state(&job).await, "succeeded");
}

#[tokio::test]
async fn a_code_that_is_no_short_word_is_refused_and_the_lease_stays() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail", "policy": { "maxAttempts": 1 } })).await;
    let lease = ground.lease("mail").await;
    let long = "C".repeat(65);
    for code in ["", "two words", "red\u{1b}[31m", "line\n", "ÄRGER", "a/b", &long, &"C".repeat(900_000)] {
        for class in [Value::Null, json!("permanent")] {
            let answer =
                ground.report(&lease, "fail", json!({ "message": "x", "code": code, "class": class })).await;
            assert_eq!(answer.refused(), (422, "RETRY_INVALID".into()), "{:.80}", code);
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(
                said.len() < 400 && said.contains("write 1 to 64 letters, digits, _ - . and :"),
                "{said:.400}"
            );
        }
        let form = json!({ "message": "x", "code": code });
        assert_eq!(
            ground.post("/classify", form).await.refused(),
            (422, "RETRY_INVALID".into()),
            "{:.80}",
            code
        );
    }
    let code = "pg:SQLSTATE_23505.fk-1";
    ground.report(&lease, "fail", json!({ "message": "x", "code": code })).await.data();
    assert_eq!(ground.job(&job).await["lastError"]["code"], code);
}

#[tokio::test]
async fn a_key_that_was_sent_as_a_code_is_hidden() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let lease = ground.lease("mail").await;
    let failed = json!({ "message": "refused", "class": "permanent", "code": "AKIAIOSFODNN7EXAMPLE" });
    ground.report(&lease, "fail", failed).await.data();
    assert_eq!(ground.job(&job).await["lastError"]["code"], "***");
}

#[tokio::test]
async fn a_worker_has_a_name_of_one_short_line() {
    let ground = Ground::new().await;
    let asked = |name: &str| json!({ "worker": name, "kinds": ["mail"] });
    ground.post("/workers/lease", asked(&"ü".repeat(255))).await.data();
    let worker = ground.post("/workers/lease", asked("mailer 1")).await.data()["workerId"].take();
    for name in ["two\nlines", "red\u{1b}[31m", &"n".repeat(256), &"n".repeat(900_000)] {
        let known = json!({ "worker": name, "kinds": ["mail"], "workerId": worker });
        for form in [asked(name), known] {
            let answer = ground.post("/workers/lease", form).await;
            assert_eq!(answer.refused(), (422, "RETRY_INVALID".into()), "{name:.80}");
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(said.len() < 400 && said.contains("at most 255 characters"), "{said:.400}");
        }
    }
}
