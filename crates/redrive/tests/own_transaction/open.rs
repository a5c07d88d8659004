//! While a user's transaction is open, nobody waits for it; when it commits late, its jobs are found at once.

use redrive::{Engine, NewJob, OnConflict, Policy, Reason, State, secs, tx};
use redrive_testbed::tokio_postgres::{AsyncMessage, NoTls};

use super::kit::{Confirm, PATIENCE, World, engine_on, start, succeeds};

/// Jobs of every kind that could be in someone's way.
fn jobs(name: &str) -> [NewJob; 4] {
    let own_policy = Policy::fixed(secs(41)).attempts(3);
    [
        NewJob::from(Confirm { order: 1 }),
        NewJob::from(Confirm { order: 2 }).policy(own_policy).key(format!("{name}-1")),
        NewJob::from(Confirm { order: 3 }).ordering_key("customer-3").priority(7),
        NewJob::from(Confirm { order: 4 }).key(format!("{name}-2")).on_conflict(OnConflict::Replace),
    ]
}

async fn all_run(engine: &Engine) {
    let mut events = engine.events();
    let running = start(engine);
    for job in jobs("fleet") {
        let id = engine.enqueue(job).await.unwrap().id;
        succeeds(&mut events, id).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_keeps_nobody_from_enqueueing_claiming_or_settling() {
    let world = World::new().await;
    let engine = &world.engine;
    // An engine that looks for jobs makes its queues known before anyone needs them.
    let mut client = world.client().await;
    let running = start(engine);
    let known = "SELECT count(*) FROM redrive.queues WHERE name IN ('default', 'small')";
    while client.query_one(known, &[]).await.unwrap().get::<_, i64>(0) < 2 {
        tokio::task::yield_now().await;
    }
    running.stop().await;

    let open = client.transaction().await.unwrap();
    for job in jobs("mine").into_iter().chain([NewJob::from(Confirm { order: 5 }).queue("small")]) {
        tx::tokio_postgres::enqueue(&open, &engine.admit(job).unwrap()).await.unwrap();
    }
    let sql =
        r#"SELECT * FROM redrive.enqueue('{"kind": "confirm", "payload": {"order": 6}, "policy": "media"}')"#;
    open.query_one(sql, &[]).await.unwrap();

    let fleet = async {
        all_run(engine).await;
        let preset = Policy::preset("media").unwrap();
        let waits = NewJob::from(Confirm { order: 8 }).policy(preset).after(secs(3600));
        let waits = engine.enqueue(waits).await.unwrap().id;
        engine.cancel(waits).await.unwrap();
        engine.pause("default").await.unwrap();
        engine.resume("default").await.unwrap();
        // Others join, with all their migrations and days.
        all_run(&engine_on(world.database.url()).await).await;
        // The place in the small queue is not taken before the commit.
        engine.enqueue(NewJob::from(Confirm { order: 7 }).queue("small")).await.unwrap();
    };
    tokio::time::timeout(PATIENCE, fleet).await.expect("nobody waits for the open transaction");
    open.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_that_is_the_first_to_name_a_queue_keeps_no_engine_from_serving_others() {
    let world = World::new().await;
    let mut client = world.client().await;
    let open = client.transaction().await.unwrap();
    let first = world.engine.admit(NewJob::from(Confirm { order: 1 }).queue("small")).unwrap();
    let first = tx::tokio_postgres::enqueue(&open, &first).await.unwrap().id;

    let mut events = world.engine.events();
    let running = start(&world.engine);
    let other = world.engine.enqueue(Confirm { order: 2 }).await.unwrap().id;
    succeeds(&mut events, other).await;
    open.commit().await.unwrap();
    succeeds(&mut events, first).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_becomes_visible_late_is_found_although_claims_have_passed_it() {
    let world = World::new().await;
    let mut events = world.engine.events();
    let running = start(&world.engine);
    let before = world.engine.enqueue(Confirm { order: 1 }).await.unwrap().id;
    succeeds(&mut events, before).await;

    let mut client = world.client().await;
    let open = client.transaction().await.unwrap();
    let mut late = world.engine.admit(Confirm { order: 2 }).unwrap();
    let due_at = late.job.created_at - secs(30);
    late.job.state = State::Waiting { due_at, reason: Reason::Scheduled };
    let late = tx::tokio_postgres::enqueue(&open, &late).await.unwrap().id;
    // What claims have passed is behind it.
    let passed = world.engine.enqueue(Confirm { order: 3 }).await.unwrap().id;
    succeeds(&mut events, passed).await;
    open.commit().await.unwrap();
    succeeds(&mut events, late).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_says_once_that_it_has_committed() {
    let world = World::new().await;
    let (listener, mut connection) =
        redrive_testbed::tokio_postgres::connect(world.database.url(), NoTls).await.unwrap();
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let listening = tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            let Ok(AsyncMessage::Notification(note)) = message else { continue };
            // The engine beside it tells others of itself by its name; a transaction has none.
            if ["", "the end"].contains(&note.payload()) {
                heard.send(note.payload().to_owned()).unwrap();
            }
        }
    });
    listener.batch_execute("LISTEN redrive").await.unwrap();

    let client = world.client().await;
    let enqueue = r#"SELECT redrive.enqueue('{"kind": "confirm", "payload": {"order": 1}}')"#;
    client.batch_execute(&format!("BEGIN; {enqueue}; ROLLBACK; BEGIN; {enqueue}; {enqueue}")).await.unwrap();
    assert!(hears.try_recv().is_err(), "nobody is woken for what nobody can see");
    client.batch_execute("COMMIT; NOTIFY redrive, 'the end'").await.unwrap();
    let note = tokio::time::timeout(PATIENCE, hears.recv()).await.unwrap().unwrap();
    assert_eq!(note, "");
    assert_eq!(hears.recv().await.unwrap(), "the end");
    listening.abort();
}
