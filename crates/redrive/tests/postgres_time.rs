//! Processes whose clock is wrong share a queue: ten minutes ahead, ten behind, right, and set forward while it runs. All
//! go by the database's clock, so nothing starts early, nothing runs twice, and no lease is lost.
//!
//! The wrong clocks are libfaketime's. The child is this same program.

#![expect(clippy::disallowed_methods, reason = "wall clocks are what this is about")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "times are reported and not asserted")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive::{Attempt, Engine, NewJob, Payload, PostgresStore, Queue, Rng, Store as _, millis, secs};
use redrive_testbed::tokio_postgres::Client;
use serde::{Deserialize, Serialize};

const URL: &str = "REDRIVE_TIME_URL";
const NAME: &str = "REDRIVE_TIME_NAME";

/// How many jobs are due at known instants.
const JOBS: u64 = 300;
/// All of them are due within this time.
const SPREAD_MS: u64 = 6_000;

/// Started by a process whose clock is not to be trusted, and stamped by the database.
#[derive(Serialize, Deserialize)]
struct Due {
    number: i32,
    millis: u64,
}

impl Payload for Due {
    const KIND: &'static str = "due";
}

#[test]
#[ignore = "the process whose clock is wrong"]
fn the_child() {
    if std::env::var(URL).is_ok() {
        child();
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    // The parent holds the other end: without it there is nothing left to do.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let url = std::env::var(URL).unwrap();
    let client = Arc::new(redrive_testbed::connect(&url).await.unwrap());
    let name: Arc<str> = std::env::var(NAME).unwrap().into();
    let (notes, who) = (client.clone(), name.clone());
    let work = move |attempt: Attempt<Due>| {
        let (notes, who) = (notes.clone(), who.clone());
        async move {
            let Due { number, millis: time } = attempt.payload;
            let line = "INSERT INTO starts (number, who, attempt) VALUES ($1, $2, $3)";
            let attempt = i32::try_from(attempt.number).unwrap();
            notes.execute(line, &[&number, &&*who, &attempt]).await.unwrap();
            tokio::time::sleep(millis(time)).await;
        }
    };
    let store = PostgresStore::connect(&url).await.unwrap();
    let queue = Queue::new("default").concurrency(8);
    let engine = Engine::builder(store).queue(queue).lease(secs(3)).handle(work).build().unwrap();
    let wall =
        i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap();
    client.execute("INSERT INTO clocks (who, wall) VALUES ($1, $2)", &[&&*name, &wall]).await.unwrap();
    std::io::stdout().write_all(b"working\n").unwrap();
    engine.run(std::future::pending()).await.unwrap();
}

/// A child that is killed with the test.
struct Instance(Child);

impl Instance {
    /// Starts one whose wall clock reads the offset in this file, again and again.
    fn start(url: &str, name: &str, offset: &Path) -> Instance {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["the_child", "--exact", "--ignored", "--nocapture"])
            .envs([(URL, url), (NAME, name)])
            .env("LD_PRELOAD", library())
            .env("FAKETIME_TIMESTAMP_FILE", offset)
            .env("FAKETIME_NO_CACHE", "1")
            // A wrong wall clock leaves the time since the start alone.
            .envs([("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("DONT_FAKE_MONOTONIC", "1")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        while !line.trim_end().ends_with("working") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "{name} did not get to work");
        }
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Instance(process)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where Debian and others put it.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    folders
        .chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from))
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!(
                "libfaketime is not in /usr/lib/*/faketime\n\
                 hint: install it (Debian: apt-get install faketime), or run scripts/setup.sh"
            )
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_clocks_start_nothing_early_run_nothing_twice_and_lose_no_lease() {
    let database = redrive_testbed::database().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let tables = "CREATE TABLE starts (number integer, who text, attempt integer, at bigint DEFAULT redrive.now_ms()); \
                  CREATE TABLE clocks (who text, wall bigint, at bigint DEFAULT redrive.now_ms()); \
                  CREATE TABLE due (number integer PRIMARY KEY, at bigint)";
    client.batch_execute(tables).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut instances = Vec::new();
    for (name, offset) in [("ahead", "+10m"), ("behind", "-10m"), ("right", "+0"), ("jumps", "+0")] {
        let file = folder.path().join(name);
        std::fs::write(&file, offset).unwrap();
        instances.push(Instance::start(database.url(), name, &file));
    }
    clocks_are_wrong(&client).await;

    let base = store.clock().now() + millis(500);
    let producer = Engine::builder(store).produce::<Due>().build().unwrap();
    let mut rng = Rng::seeded(5);
    let mut jobs = Vec::new();
    for number in 0..i32::try_from(JOBS).unwrap() {
        let due = base + millis(rng.up_to(SPREAD_MS));
        client.execute("INSERT INTO due VALUES ($1, $2)", &[&number, &due.as_millis()]).await.unwrap();
        // Some take longer than a lease.
        let time = if number % 60 == 0 { 4_500 } else { rng.up_to(50) };
        jobs.push(NewJob::from(Due { number, millis: time }).run_at(due));
    }
    producer.enqueue_all(jobs).await.unwrap();
    // In the middle of it one of them is set forward by ten minutes, and then back by an hour.
    tokio::time::sleep(millis(SPREAD_MS / 3)).await;
    std::fs::write(folder.path().join("jumps"), "+10m").unwrap();
    tokio::time::sleep(millis(SPREAD_MS / 3)).await;
    std::fs::write(folder.path().join("jumps"), "-1h").unwrap();
    until_done(&client).await;
    judge(&client).await;
    drop(instances);
}

/// The test itself is right only if the clocks are wrong.
async fn clocks_are_wrong(client: &Client) {
    let sql = "SELECT who, round((wall - at / 1000) / 60.0)::bigint FROM clocks ORDER BY who";
    let minutes: Vec<(String, i64)> =
        client.query(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [("ahead", 10), ("behind", -10), ("jumps", 0), ("right", 0)];
    assert_eq!(minutes, expected.map(|(who, minutes)| (who.to_owned(), minutes)));
}

async fn until_done(client: &Client) {
    let all = async {
        while number(client, "SELECT count(*) FROM redrive.done").await < i64::try_from(JOBS).unwrap() {
            tokio::time::sleep(millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("some never ran");
}

async fn judge(client: &Client) {
    let early = "SELECT count(*) FROM starts JOIN due USING (number) WHERE starts.at < due.at";
    assert_eq!(number(client, early).await, 0, "started early");
    let twice = "SELECT count(*) FROM (SELECT 1 FROM starts GROUP BY number HAVING count(*) > 1) AS twice";
    assert_eq!(number(client, twice).await, 0, "ran twice");
    assert_eq!(number(client, "SELECT count(*) FROM redrive.attempts").await, 0, "a lease was lost");
    assert_eq!(number(client, "SELECT count(DISTINCT who) FROM starts").await, 4, "all of them took part");
    let late = "SELECT percentile_disc(ARRAY[0.5, 0.9, 0.99, 1.0]) WITHIN GROUP (ORDER BY starts.at - due.at) \
                FROM starts JOIN due USING (number)";
    let late: Vec<i64> = client.query_one(late, &[]).await.unwrap().get(0);
    println!("time: jobs={JOBS} early=0 twice=0; ms after they were due, p50 p90 p99 max: {late:?}");
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}
