//! A sync that fails, a disk that is full, bits that rot: the store says so, and what it acknowledged is safe.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::{
    Attempt, Engine, ErrorKind, Happening, HolderId, Job, JobId, Outcome, Payload, SqliteStore, StateName,
    Store,
};
use redrive_faults::Disk;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use world::{FILE, Maker, disk, open, standings};

#[tokio::test]
async fn after_a_failed_sync_only_what_survives_a_power_cut_is_acknowledged() {
    let (mut failed, mut acknowledged_after) = (0, 0);
    for seed in 0..1_000 {
        let (disk, mut maker) = (disk(seed), Maker::new(seed));
        let store = open(&disk).await.unwrap();
        let mut acknowledged = Vec::new();
        let mut refused = 0;
        for call in 0..12 {
            if call == 4 {
                disk.fail_sync(1 + seed % 3);
            }
            let jobs = (0..=maker.below(3)).map(|_| maker.job(None)).collect();
            match store.enqueue(jobs, maker.tick()).await {
                Ok(jobs) => {
                    acknowledged_after += u32::from(refused > 0);
                    acknowledged.extend(jobs.iter().map(|job| job.id));
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "seed {seed}: {error}");
                    refused += 1;
                }
            }
        }
        failed += refused;
        disk.power_cut();
        store.close().await.unwrap();
        disk.power_on();
        let found = standings(&disk.open(FILE).unwrap()).unwrap();
        let lost = acknowledged.iter().filter(|id| !found.contains_key(id)).count();
        assert_eq!(lost, 0, "seed {seed}: of {} acknowledged", acknowledged.len());
    }
    println!("failed syncs: seeds=1000 refused={failed} acknowledged_after={acknowledged_after} lost=0");
    assert!(failed >= 900, "the failing sync was hardly met: {failed}");
    assert!(acknowledged_after > 0, "the store never came back");
}

#[derive(Serialize, Deserialize)]
struct Task {
    text: String,
}

impl Payload for Task {
    const KIND: &'static str = "task";
}

/// Enqueues until the disk is full, and answers what was acknowledged.
async fn fill(engine: &Engine) -> Vec<JobId> {
    let mut acknowledged = Vec::new();
    loop {
        match engine.enqueue(Task { text: "x".repeat(500) }).await {
            Ok(job) => acknowledged.push(job.id),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
                assert!(error.is_transient() && error.hint().is_some());
                return acknowledged;
            }
        }
    }
}

#[tokio::test]
async fn a_full_disk_refuses_jobs_by_name_and_the_engine_finishes_when_there_is_room() {
    for seed in 0..20 {
        let disk = disk(seed);
        let (let_go, go) = watch::channel(false);
        let work = move |_: Attempt<Task>| {
            let mut go = go.clone();
            async move { drop(go.wait_for(|go| *go).await) }
        };
        let engine = Engine::builder(open(&disk).await.unwrap()).handle(work).build().unwrap();
        let running = tokio::spawn({
            let engine = engine.clone();
            async move { engine.run(std::future::pending()).await }
        });
        let mut events = engine.events();
        engine.enqueue(Task { text: "first".into() }).await.unwrap();
        while !matches!(events.recv().await.unwrap().what, Happening::Started { .. }) {}
        disk.full_after(500_000 + seed * 7_777);
        let acknowledged = fill(&engine).await;
        assert!(acknowledged.len() > 5, "seed {seed}: {}", acknowledged.len());
        for id in &acknowledged {
            assert!(engine.get(*id).await.unwrap().is_some(), "seed {seed}: what was acknowledged is there");
        }
        // What runs ends while nothing can be written, and is written when there is room.
        let_go.send_replace(true);
        tokio::task::yield_now().await;
        disk.room(10_000_000);
        let mut left = acknowledged.len();
        let finished = async {
            while left > 0 {
                let event = events.recv().await.unwrap();
                let ours = acknowledged.contains(&event.job);
                left -= usize::from(ours && matches!(event.what, Happening::Succeeded { .. }));
            }
        };
        tokio::time::timeout(Duration::from_secs(30), finished).await.expect("it goes on by itself");
        for id in &acknowledged {
            let job = engine.get(*id).await.unwrap().unwrap().job;
            assert_eq!((job.state.name(), job.ledger.attempt), (StateName::Succeeded, 1));
        }
        running.abort();
    }
}

#[tokio::test]
async fn what_finished_while_the_disk_was_full_is_settled_when_there_is_room() {
    let (disk, mut maker) = (disk(1), Maker::new(1));
    let store = open(&disk).await.unwrap();
    let holder = maker.begin(&store).await.unwrap();
    let jobs = (0..50).map(|_| maker.job(None)).collect();
    store.enqueue(jobs, maker.tick()).await.unwrap();
    maker.tick();
    let claimed = store.claim(maker.claim(holder, 50), maker.now).await.unwrap().jobs;
    disk.full_after(0);
    let ends: Vec<_> =
        claimed.into_iter().map(|(lease, job)| maker.settlement(lease, job, Outcome::Done(None))).collect();
    let ends = Arc::new(ends);
    let error = store.settle(ends.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    disk.room(1_000_000);
    let answers = store.settle(ends).await.unwrap();
    assert!(
        answers.iter().all(|answer| *answer == redrive::Settled::Applied),
        "nothing of the first try stayed"
    );
    assert_eq!(store.counts().await.unwrap()[0].totals.succeeded, 50);
    store.close().await.unwrap();
}

/// What became of the flips.
#[derive(Debug, Default)]
struct Flips {
    harmless: u32,
    buried: u32,
    refused: u32,
    answered_corrupt: u32,
    altered_executed: u32,
}

#[test]
fn a_job_altered_at_rest_is_never_run() {
    let (image, originals) = image();
    let mut flips = Flips::default();
    for seed in 0..1_200 {
        let disk = Disk::new(seed);
        disk.put(FILE, &image);
        let at = disk.flip_random_bit(FILE).unwrap();
        live_with_it(&disk, &originals, &mut flips, &format!("seed {seed}, {at:?}"));
    }
    println!("flips: {flips:?}");
    assert_eq!(flips.altered_executed, 0);
    assert!(flips.buried > 20 && flips.harmless > 20, "{flips:?}");
}

/// A database at rest: jobs that wait, jobs that failed before, finished ones, and some that a dead process held.
#[tokio::main(flavor = "current_thread")]
async fn image() -> (Vec<u8>, BTreeMap<JobId, Job>) {
    let (disk, mut maker) = (disk(7), Maker::new(7));
    let store = open(&disk).await.unwrap();
    let holder = maker.begin(&store).await.unwrap();
    let mut originals = BTreeMap::new();
    for n in 0..80 {
        let admission = maker.job((n % 5 == 0).then(|| format!("key {n}")));
        originals.insert(admission.job.id, admission.job.clone());
        store.enqueue(vec![admission], maker.now).await.unwrap();
    }
    for outcome in [Outcome::Done(None), Outcome::Failed(redrive::Failure::retry("not yet"))] {
        maker.tick();
        let claimed = store.claim(maker.claim(holder, 10), maker.now).await.unwrap().jobs;
        let ends =
            claimed.into_iter().map(|(lease, job)| maker.settlement(lease, job, outcome.clone())).collect();
        store.settle(Arc::new(ends)).await.unwrap();
    }
    maker.tick();
    store.claim(maker.claim(holder, 10), maker.now).await.unwrap();
    store.close().await.unwrap();
    (disk.image(FILE).unwrap(), originals)
}

/// A whole life with a flipped bit. Every trouble must be called by its name.
#[tokio::main(flavor = "current_thread")]
async fn live_with_it(disk: &Disk, originals: &BTreeMap<JobId, Job>, flips: &mut Flips, at: &str) {
    let store = match open(disk).await {
        Ok(store) => store,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Newer), "{at}: {error}");
            flips.refused += 1;
            return;
        }
    };
    match execute(&store, originals).await {
        Ok(Executed { altered, buried }) => {
            flips.altered_executed += altered;
            flips.buried += u32::from(buried > 0);
            flips.harmless += u32::from(altered + buried == 0);
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {error}");
            flips.answered_corrupt += 1;
        }
    }
    store.close().await.unwrap();
}

struct Executed {
    altered: u32,
    buried: u32,
}

async fn execute(store: &SqliteStore, originals: &BTreeMap<JobId, Job>) -> redrive::Result<Executed> {
    let mut maker = Maker::new(9);
    maker.now = world::BEGINNING + Duration::from_secs(3_600);
    let holder: HolderId = maker.begin(store).await?;
    let mut executed = Executed { altered: 0, buried: 0 };
    for _ in 0..40 {
        maker.tick();
        let claimed = store.claim(maker.claim(holder, 20), maker.now).await?.jobs;
        let mut ends = Vec::new();
        for (lease, job) in claimed {
            let original = originals.get(&job.id);
            let same = original.is_some_and(|known| known.payload == job.payload && known.kind == job.kind);
            executed.altered += u32::from(!same);
            ends.push(maker.settlement(lease, job, Outcome::Done(None)));
        }
        store.settle(Arc::new(ends)).await?;
    }
    for queue in store.counts().await? {
        executed.buried += u32::try_from(queue.dead).unwrap_or(u32::MAX);
    }
    Ok(executed)
}
