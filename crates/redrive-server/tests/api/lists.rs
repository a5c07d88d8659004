//! Lists: each filter, and pages.

use serde_json::{Value, json};

use crate::ground::{Ground, id, ids};

/// One job that differs from the rest in everything that can be asked for, between two others.
#[tokio::test]
async fn each_filter_finds_what_it_names_and_nothing_else() {
    let ground = Ground::with("[queues.default]\n[queues.letters]").await;
    let parent = ground.enqueue(json!({ "kind": "batch", "delay": "1h" })).await;
    ground.enqueue(json!({ "kind": "sms", "labels": { "customer": "18" }, "delay": "1h" })).await;
    let wanted = ground
        .enqueue(json!({
            "kind": "mail", "queue": "letters", "destination": "smtp", "key": "k", "parent": parent,
            "labels": { "customer": "17", "lane": "fast" },
        }))
        .await;
    let lease = ground.lease("mail").await;
    let failed = json!({ "class": "permanent", "message": "no such address" });
    ground.report(&lease, "fail", failed).await.data();
    let group = ground.get("/dead/groups").await[0]["group"].as_str().unwrap().to_owned();
    for filter in [
        "state=dead",
        "state=dead,succeeded",
        "kind=mail",
        "queue=letters",
        "destination=smtp",
        "key=k",
        "label=customer:17",
        "label=customer:17,lane:fast",
        &format!("group={group}"),
        &format!("parent={parent}"),
        "kind=mail&queue=letters&state=dead",
    ] {
        assert_eq!(ids(&ground.get(&format!("/jobs?{filter}")).await), [wanted.as_str()], "{filter}");
    }
    for filter in ["state=cancelled", "kind=mai", "label=customer:17,lane:slow", "kind=mail&state=waiting"] {
        assert_eq!(ground.get(&format!("/jobs?{filter}")).await, json!({ "items": [] }), "{filter}");
    }
    assert_eq!(ids(&ground.get("/dead").await), [wanted.as_str()]);
    assert_eq!(ids(&ground.get("/dead?kind=sms").await), Vec::<String>::new());
}

#[tokio::test]
async fn a_filter_by_time_takes_its_first_moment_and_not_its_last() {
    let ground = Ground::new().await;
    let job = ground.enqueue(json!({ "kind": "mail" })).await;
    let created = ground.job(&job).await["createdAt"].as_str().unwrap().to_owned();
    assert_eq!(ids(&ground.get(&format!("/jobs?from={created}")).await), [job.as_str()]);
    assert_eq!(ids(&ground.get(&format!("/jobs?until={created}")).await), Vec::<String>::new());
    assert_eq!(ids(&ground.get("/jobs?from=2020-01-01T00:00:00Z&until=2120-01-01T00:00:00Z").await), [job]);
}

#[tokio::test]
async fn pages_together_are_the_whole_list_newest_first() {
    let ground = Ground::new().await;
    let sent = Value::from(vec![json!({ "kind": "mail" }); 7]);
    let answered = ground.post("/jobs/bulk", sent).await.data();
    let mut expected: Vec<String> = answered.as_array().unwrap().iter().map(id).collect();
    expected.reverse();
    let (mut seen, mut path) = (Vec::new(), "/jobs?limit=3".to_owned());
    loop {
        let page = ground.get(&path).await;
        seen.push(ids(&page));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/jobs?limit=3&cursor={cursor}");
        // What comes in meanwhile is newer than what was read.
        ground.enqueue(json!({ "kind": "late" })).await;
    }
    assert_eq!(seen.concat(), expected);
    assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
}

#[tokio::test]
async fn a_list_says_what_each_job_failed_of_last_and_where_it_came_from() {
    let ground = Ground::new().await;
    let policy = json!({ "backoff": { "kind": "fixed", "delay": "1h" }, "maxAttempts": 5 });
    ground.enqueue(json!({ "kind": "mail", "policy": policy })).await;
    let lease = ground.lease("mail").await;
    let failure = json!({ "message": "no such host", "code": "DNS" });
    ground.report(&lease, "fail", failure).await.data();
    ground.enqueue(json!({ "kind": "fresh" })).await;
    let outside = json!({ "taskId": "t", "taskType": "parse", "error": "TIMEOUT: no answer" });
    ground.post("/retry", outside).await.data();
    let list = ground.get("/jobs").await;
    let items = list["items"].as_array().unwrap();
    let told: Vec<_> = items
        .iter()
        .map(|job| (job["origin"].as_str().unwrap(), job["lastError"]["message"].as_str()))
        .collect();
    assert_eq!(
        told,
        [("external", Some("TIMEOUT: no answer")), ("engine", None), ("engine", Some("no such host"))]
    );
    let detail = ground.job(items[2]["id"].as_str().unwrap()).await;
    let last = &items[2]["lastError"];
    assert_eq!((&last["class"], &last["code"]), (&json!("transient"), &json!("DNS")), "{last}");
    assert_eq!(last["at"], detail["attempts"][0]["endedAt"]);
    assert_eq!(&detail["lastError"], last, "its own page says the same");
}
