//! `redrive.enqueue`, for whoever has no Rust: what it accepts, what it refuses and how it says so. It is held against the
//! library: what one reads, the other reads alike, and what one refuses, the other does.

use redrive::{Job, JobId, Json, NewJob, Policy, StateName, Timestamp, days, hours, span};
use redrive_testbed::tokio_postgres::{Client, Error};
use serde_json::{Value, json};

use super::kit::{Confirm, World, start, succeeds};

/// The id, and whether it was there already.
async fn enqueue(client: &Client, job: Value) -> Result<(JobId, bool), Error> {
    let call = "SELECT id::text, deduplicated FROM redrive.enqueue($1::text::jsonb)";
    let row = client.query_one(call, &[&job.to_string()]).await?;
    Ok((row.get::<_, &str>(0).parse().unwrap(), row.get(1)))
}

/// What the database says to a job that is wrong.
async fn refusal(client: &Client, job: Value) -> String {
    let Err(error) = enqueue(client, job.clone()).await else { panic!("it was accepted: {job}") };
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error} for {job}"));
    assert_eq!(error.code().code(), "RD400", "{error} for {job}");
    assert!(error.hint().is_some());
    error.message().to_owned()
}

async fn stored(world: &World, id: JobId) -> Job {
    world.engine.get(id).await.unwrap().expect("it is there").job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_makes_the_job_run_and_a_rollback_leaves_no_trace() {
    let world = World::new().await;
    let mut events = world.engine.events();
    let running = start(&world.engine);
    let client = world.client().await;
    let confirm = json!({"kind": "confirm", "payload": {"order": 1}});

    client.batch_execute("BEGIN; INSERT INTO orders VALUES (1)").await.unwrap();
    enqueue(&client, confirm.clone()).await.unwrap();
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(world.traces().await, (0, 0));

    client.batch_execute("BEGIN; INSERT INTO orders VALUES (1)").await.unwrap();
    let (job, _) = enqueue(&client, confirm).await.unwrap();
    let other = world.engine.enqueue(Confirm { order: 2 }).await.unwrap().id;
    succeeds(&mut events, other).await;
    client.batch_execute("COMMIT").await.unwrap();
    succeeds(&mut events, job).await;
    running.stop().await;
    assert_eq!(world.traces().await, (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_arrives_as_the_engine_would_have_written_it() {
    let world = World::new().await;
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let by_engine = NewJob::from(Confirm { order: 9 })
        .queue("small")
        .key("there")
        .ordering_key("customer-3")
        .priority(-4)
        .policy(Policy::preset("download").unwrap())
        .run_at(at("2096-11-15T21:18:51.250Z"))
        .deadline(at("2097-01-01T00:00:00Z"))
        .start_by(at("2096-12-01T00:00:00Z"))
        .timeout(hours(1))
        .destination("bank")
        .label("tenant", "blue \"sky\" \\ 蓝")
        .parent("019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e".parse().unwrap());
    let there = world.engine.enqueue(by_engine).await.unwrap().id;
    let by_sql = json!({
        "kind": "confirm", "payload": {"order": 9}, "queue": "small", "key": "here", "orderingKey": "customer-3",
        "priority": -4, "policy": "download", "runAt": "2096-11-15T23:18:51.25+02:00",
        "deadline": "2097-01-01T00:00:00Z", "startBy": "2096-12-01 00:00Z", "timeout": "1h", "destination": "bank",
        "labels": {"tenant": "blue \"sky\" \\ 蓝"}, "parent": "019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e",
        "onConflict": "reject", "delay": null,
    });
    let (here, _) = enqueue(&world.client().await, by_sql).await.unwrap();

    let (here, mut expected) = (stored(&world, here).await, stored(&world, there).await);
    (expected.id, expected.seq, expected.created_at) = (here.id, here.seq, here.created_at);
    expected.extras.as_mut().unwrap().key = Some("here".into());
    // The same value; the database writes it with more space.
    expected.payload = Json::of(&json!({"order": 9})).unwrap();
    let payload: Value = serde_json::from_str(here.payload.as_str()).unwrap();
    let here = Job { payload: Json::of(&payload).unwrap(), ..here };
    assert_eq!(here, expected);
}

#[tokio::test]
async fn a_job_that_says_nothing_more_is_as_the_engine_makes_it() {
    let world = World::new().await;
    let (id, _) = enqueue(&world.client().await, json!({"kind": "confirm"})).await.unwrap();
    let job = stored(&world, id).await;
    assert_eq!((&*job.queue, job.priority, job.payload.as_str()), ("default", 0, "null"));
    assert_eq!(*job.policy, Policy::default());
    assert_eq!((job.extras.is_none(), job.state.name()), (true, StateName::Waiting));
    assert_eq!(job.due_at(), job.created_at);
    let id = id.to_string();
    assert!(
        id.as_bytes()[14] == b'7' && id.starts_with(&format!("{:012x}", job.created_at.as_millis())[..8]),
        "{id}"
    );
}

#[tokio::test]
async fn labels_may_be_written_as_php_writes_none_and_a_delay_is_as_long_as_it_is_asked_for() {
    let world = World::new().await;
    let job = json!({"kind": "confirm", "payload": {"order": 1}, "labels": [], "delay": "500d"});
    let (id, _) = enqueue(&world.client().await, job).await.unwrap();
    let job = stored(&world, id).await;
    assert!(job.extras.is_none(), "{job:?}");
    assert_eq!(job.due_at(), job.created_at + days(500));
}

#[tokio::test]
async fn the_same_key_is_the_same_job_until_that_is_final() {
    let world = World::new().await;
    let client = world.client().await;
    let job = |on_conflict: &str| json!({"kind": "confirm", "payload": {"order": 1}, "key": "k", "onConflict": on_conflict});
    client.batch_execute("BEGIN").await.unwrap();
    let first = enqueue(&client, job("ignore")).await.unwrap();
    assert!(!first.1);
    assert_eq!(enqueue(&client, job("ignore")).await.unwrap(), (first.0, true));
    client.batch_execute("COMMIT").await.unwrap();
    for on_conflict in ["reject", "replace"] {
        let error = enqueue(&client, job(on_conflict)).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!((error.code().code(), error.detail()), ("RD001", Some("k")));
        assert!(error.hint().unwrap().contains("\"onConflict\": \"ignore\""));
    }
    world.engine.drain().await.unwrap();
    let second = enqueue(&client, job("reject")).await.unwrap();
    assert!(second.0 != first.0 && !second.1);
}

#[tokio::test]
async fn a_mistake_is_named_with_what_to_write_instead() {
    let world = World::new().await;
    let client = world.client().await;
    let long = "x".repeat(257);
    let with = |field: &str, value: Value| json!({"kind": "confirm", field: value});
    let labels: Value =
        (0..33).map(|n| (n.to_string(), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    let cases = [
        (json!([]), "write an object"),
        (json!({}), "kind is needed"),
        (json!({"kind": ""}), "its kind has 0 bytes: write 1 to 256"),
        (with("queue", json!("")), "its queue has 0 bytes"),
        (with("queue", json!(7)), "queue: 7 is not text; write it in quotation marks"),
        (with("key", json!(long)), "its key has 257 bytes: write 1 to 256"),
        (with("destination", json!(long)), "its destination has 257 bytes"),
        (with("orderingKey", json!(long)), "its orderingKey has 257 bytes: write 1 to 256"),
        (with("orderingKey", json!("")), "its orderingKey has 0 bytes: write 1 to 256"),
        (
            with("destination", json!("a\nb")),
            r#"its destination "a\nb" has control characters: leave them out"#,
        ),
        (with("destination", json!("a\u{9b}b")), "has control characters: leave them out"),
        (with("labels", json!({"": "x"})), "one of its labels has no name: give it one"),
        (with("delay", json!("36501d")), "let it run within a hundred years"),
        (with("runAt", json!("2199-01-01T00:00:00Z")), "let it run within a hundred years"),
        (with("payload", json!("x".repeat(256 * 1024))), "262144 are allowed: store the data elsewhere"),
        (with("labels", json!("x")), "write an object of texts"),
        (with("labels", json!({"a": 1})), "write them in quotation marks"),
        (with("labels", json!({"a": long})), "at most 32 of 256 bytes"),
        (with("labels", labels), "at most 32 of 256 bytes"),
        (with("priority", json!(40_000)), "write a whole number from -32768 to 32767"),
        (with("priority", json!("1")), "write a whole number"),
        (with("onConflict", json!("merge")), "write one of \"ignore\", \"reject\", \"replace\""),
        (with("delay", json!(5)), "delay: 5 has no unit; write \"5s\" for seconds or \"5ms\""),
        (with("delay", json!("90")), "delay: \"90\" has no unit; write \"90s\""),
        (with("timeout", json!("-1s")), "write a duration of 0s or more"),
        (with("runAt", json!("tomorrow")), "runAt: \"tomorrow\" is not a time; write it as"),
        (with("runAt", json!("2026-11-15T21:18:51")), "is not a time"),
        (with("deadline", json!("2026-13-45T00:00:00Z")), "deadline: \"2026-13-45T00:00:00Z\" is not a time"),
        (with("deadline", json!("2001-01-01T00:00:00Z")), "give it a later deadline and startBy"),
        (with("parent", json!("mother")), "is not a job id"),
        (with("dely", json!("5s")), "dely is not known here; write one of kind, payload"),
        (json!({"kind": "confirm", "delay": "1s", "runAt": "2096-11-15T21:18:51Z"}), "keep one of them"),
        (json!({"kind": "confirm", "delay": "2d", "policy": {"deadline": "1d"}}), "after its time is over"),
    ];
    for (job, expected) in cases {
        let message = refusal(&client, job).await;
        assert!(message.contains(expected), "{expected}\nin {message}");
    }
    let both = refusal(&client, json!({"kind": "", "colour": "red", "delay": "soon"})).await;
    assert!(["kind", "colour", "delay"].iter().all(|field| both.contains(field)), "all at once: {both}");
    assert_eq!(world.traces().await, (0, 0));
}

#[tokio::test]
async fn durations_are_read_as_the_library_reads_them() {
    let world = World::new().await;
    let client = world.client().await;
    let texts = [
        "90s",
        "500ms",
        "14d",
        "1h30m",
        "1h 30 m",
        "2w",
        "1.5s",
        "0.25h",
        " 0s ",
        "1.000s",
        "7d12h5m1s2ms",
        "999d",
        "90",
        "",
        "-5s",
        "5 parsecs",
        "5 30m",
        "soon",
        "1.s",
        ".5s",
        "1.2.3s",
        "0.3333s",
        "99999999999999999999d",
        "18446744073709551615ms1ms",
        "1S",
        "1 s s",
        "PT5S",
    ];
    for text in texts {
        let job = json!({"kind": "confirm", "delay": text});
        match span::parse(text) {
            Ok(delay) => {
                let job = stored(&world, enqueue(&client, job).await.unwrap().0).await;
                assert_eq!(job.due_at(), job.created_at + delay, "{text:?}");
            }
            Err(mistake) => {
                let message = refusal(&client, job).await;
                assert!(message.ends_with(&format!("delay: {mistake}")), "{mistake}\nin {message}");
            }
        }
    }
}

#[tokio::test]
async fn policies_are_read_and_refused_as_the_library_does() {
    let world = World::new().await;
    let client = world.client().await;
    let mut policies: Vec<Value> = Policy::PRESETS.iter().map(|name| json!(name)).collect();
    policies.extend(
        Policy::PRESETS.iter().map(|name| serde_json::to_value(Policy::preset(name).unwrap()).unwrap()),
    );
    let written = include_str!("policies.json");
    policies.extend(serde_json::from_str::<Vec<Value>>(written).unwrap());
    let (mut read, mut refused) = (0, 0);
    for policy in policies {
        let job = json!({"kind": "confirm", "payload": {"order": 1}, "policy": policy});
        match serde_json::from_value::<Policy>(policy.clone()) {
            Ok(expected) => {
                let id =
                    enqueue(&client, job).await.unwrap_or_else(|error| panic!("{error:?} for {policy}")).0;
                assert_eq!(*stored(&world, id).await.policy, expected, "{policy}");
                read += 1;
            }
            Err(mistake) => {
                let message = refusal(&client, job).await;
                assert!(
                    message.contains("policy"),
                    "{message} for {policy}, where the library says {mistake}"
                );
                refused += 1;
            }
        }
    }
    assert!(read > 30 && refused > 30, "{read} read, {refused} refused");
}

#[tokio::test]
async fn who_may_use_the_schema_may_enqueue_and_nothing_else() {
    let world = World::new().await;
    let client = world.client().await;
    let role = format!("app_{}", world.database.name());
    client
        .batch_execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE ON SCHEMA redrive TO {role}; SET ROLE {role}"
        ))
        .await
        .unwrap();
    let (id, _) = enqueue(&client, json!({"kind": "confirm", "payload": {"order": 1}})).await.unwrap();
    assert!(client.batch_execute("DELETE FROM redrive.jobs").await.is_err());
    client
        .batch_execute(&format!("RESET ROLE; REVOKE USAGE ON SCHEMA redrive FROM {role}; DROP ROLE {role}"))
        .await
        .unwrap();
    assert_eq!(stored(&world, id).await.id, id);
}

#[tokio::test]
async fn the_example_of_the_guide_does_what_the_guide_says() {
    let database = redrive_testbed::database().await;
    let engine = super::kit::engine_on(database.url()).await;
    let guide = include_str!("../../../../docs/guides/own-transaction.md");
    let example = guide.split_once("```sql\n").unwrap().1.split_once("```").unwrap().0;
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    client.batch_execute(example).await.unwrap();
    let row =
        client.query_one("SELECT id::text FROM redrive.keys WHERE key = 'confirm-7'", &[]).await.unwrap();
    let job = engine.get(row.get::<_, &str>(0).parse().unwrap()).await.unwrap().unwrap().job;
    assert_eq!(job.due_at(), job.created_at + redrive::secs(10));
    assert_eq!(job.policy.preview(3), [1, 2, 4].map(redrive::secs));
}
