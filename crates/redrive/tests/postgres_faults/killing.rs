//! Instances are killed, and stopped beyond their lease.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redrive::{Engine, JobId, Policy, PostgresStore, Rng, millis, secs};
use redrive_testbed::tokio_postgres::Client;

use crate::books::{balance, nothing, number, until_all_done};
use crate::child::{LEASE, Work, queue};
use crate::fleet::{INSTANCES, Instance, victim};
use crate::times;

/// Jobs that come in for each kill: fewer where there are thousands of kills.
fn jobs_each(kills: u64) -> u64 {
    (400_000 / kills.max(1)).clamp(40, 400)
}

/// How far beyond «lease + 1 s» a busy machine may be.
const MARGIN: Duration = secs(5);

const TABLES: &str = "\
    CREATE TABLE ledger (what text, job text, attempt integer, who text, at bigint DEFAULT redrive.now_ms()); \
    CREATE TABLE victims (who text, at bigint DEFAULT redrive.now_ms())";

/// `REDRIVE_KILLS` processes, a third of them stopped and not killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_killed_and_stopped_instances_all_end_and_none_is_completed_twice() {
    let (kills, began) = (times("REDRIVE_KILLS", 50), Instant::now());
    let each = jobs_each(kills);
    let database = redrive_testbed::database().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    client.batch_execute(TABLES).await.unwrap();
    let mut policy = Policy::fixed(millis(5)).no_jitter();
    // The killing is done from outside here, so no job is to be blamed for it.
    policy.max_crashes = 100_000;
    let producer = Engine::builder(store).queue(queue().policy(policy)).produce::<Work>().build().unwrap();
    let mut rng = Rng::seeded(7);
    let mut acknowledged = BTreeSet::new();
    let start = |n: u64| Instance::start(database.url(), format!("i{n}"));
    let mut fleet: Vec<Instance> = (0..INSTANCES as u64).map(start).collect();
    let mut stopped: Option<(Instance, Instant)> = None;
    for kill in 0..kills {
        let jobs: Vec<Work> =
            (0..each).map(|n| Work { number: kill * each + n, millis: rng.up_to(12) }).collect();
        let enqueued = producer.enqueue_all(jobs).await.unwrap();
        acknowledged.extend(enqueued.iter().map(|job| job.id));
        tokio::time::sleep(millis(100 + rng.up_to(200))).await;
        let mut hit = fleet.remove(victim(&fleet, &mut rng));
        client.execute("INSERT INTO victims (who) VALUES ($1)", &[&hit.name]).await.unwrap();
        if stopped.as_ref().is_some_and(|(_, until)| Instant::now() > *until) {
            let (mut back, _) = stopped.take().expect("there is one");
            back.go_on();
            fleet.push(back);
        }
        if kill % 3 == 1 && stopped.is_none() {
            hit.stop();
            stopped = Some((hit, Instant::now() + LEASE * 2));
        } else {
            hit.kill();
        }
        while fleet.len() + usize::from(stopped.is_some()) < INSTANCES {
            fleet.push(start(INSTANCES as u64 + kill));
        }
    }
    if let Some((mut back, until)) = stopped {
        tokio::time::sleep(until.saturating_duration_since(Instant::now())).await;
        back.go_on();
        fleet.push(back);
    }
    until_all_done(database.url(), secs(60)).await;
    client.batch_execute("CREATE INDEX ON ledger (job); ANALYZE").await.unwrap();
    balance(database.url(), &acknowledged).await;
    explained(&client, &acknowledged).await;
    println!(
        "killing: kills={kills} acknowledged={} lost=0 double=0 in {:?}",
        acknowledged.len(),
        began.elapsed()
    );
    came_back_soon(&client).await;
}

/// Every execution has its reason, and its own number.
async fn explained(client: &Client, acknowledged: &BTreeSet<JobId>) {
    let ran = number(client, "SELECT count(DISTINCT job) FROM ledger WHERE what = 'end'").await;
    assert_eq!(ran, i64::try_from(acknowledged.len()).unwrap(), "succeeded without having been run");
    let twice = |what| {
        format!(
            "SELECT count(*) FROM (SELECT 1 FROM ledger WHERE what = '{what}' GROUP BY job, attempt HAVING count(*) > 1) AS t"
        )
    };
    nothing(client, "an attempt that was started twice", &twice("start")).await;
    let accepted = "SELECT count(*) FROM (SELECT 1 FROM ledger WHERE what = 'accepted' GROUP BY job HAVING count(*) > 1) AS t";
    nothing(client, "accepted twice", accepted).await;
    let unexplained = "\
        SELECT count(*) FROM ledger AS s \
        WHERE s.what = 'start' \
          AND EXISTS (SELECT 1 FROM ledger AS n WHERE n.job = s.job AND n.what = 'start' AND n.attempt > s.attempt) \
          AND s.who NOT IN (SELECT who FROM victims) \
          AND NOT EXISTS (SELECT 1 FROM ledger AS l WHERE l.job = s.job AND l.attempt = s.attempt AND l.what = 'lost')";
    nothing(client, "run again without a reason", unexplained).await;
    // A busy machine may keep an instance from renewing in time. That is no fault of ours, and seldom.
    let late =
        "SELECT count(DISTINCT who) FROM ledger WHERE what = 'lost' AND who NOT IN (SELECT who FROM victims)";
    println!("killing: instances that lost their lease unharmed: {}", number(client, late).await);
}

/// How long it took until what a victim held was given back.
async fn came_back_soon(client: &Client) {
    let sql = "\
        WITH back AS ( \
            SELECT a.ended_at - v.at AS ms \
            FROM ledger AS s \
            JOIN victims AS v ON v.who = s.who \
            JOIN redrive.jobs AS j ON j.id = s.job::uuid \
            JOIN redrive.attempts AS a ON a.seq = j.seq AND a.attempt = s.attempt AND a.ending = 'crashed' \
            WHERE s.what = 'start' AND s.at <= v.at AND a.ended_at >= v.at \
        ) \
        SELECT count(*), percentile_disc(ARRAY[0.1, 0.5, 0.9, 0.99, 1.0]) WITHIN GROUP (ORDER BY ms) FROM back";
    let row = client.query_one(sql, &[]).await.unwrap();
    let (count, percentiles): (i64, Option<Vec<i64>>) = (row.get(0), row.get(1));
    println!("killing: {count} attempts came back; ms after the kill, p10 p50 p90 p99 max: {percentiles:?}");
    let slowest = percentiles.and_then(|all| all.last().copied()).expect("something was under way");
    let bar = LEASE + secs(1) + MARGIN;
    assert!(slowest <= i64::try_from(bar.as_millis()).unwrap(), "{slowest} ms after the kill");
}
