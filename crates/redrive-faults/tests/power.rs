//! The power fails at any write, sync or truncation of the real store: what was acknowledged is there afterwards, what
//! was settled stays settled, and nothing is half-done.
//!
//! `REDRIVE_CUTS` says how often (default 10,000, in total).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "the verdict is told")]
#![expect(clippy::disallowed_methods, reason = "the number of cuts comes from outside, and the rate is told")]

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use redrive::{Failure, HolderId, Job, JobId, Lease, Outcome, Result, Settled, SqliteStore, State, Store};
use redrive_faults::Disk;
use world::{Maker, Standing, disk, open, standings};

/// How many cuts one disk lives through, so that recovery starts from what an earlier cut left, and is itself cut.
const LIVES: u64 = 10;
/// Each of these tests makes its share of the cuts, on a disk of its own.
const PARTS: u64 = 4;

#[test]
fn a_cut_while_the_store_opens_loses_nothing() {
    cut(0, 30);
}

#[test]
fn a_cut_early_in_a_life_loses_nothing() {
    cut(1, 80);
}

#[test]
fn a_cut_after_some_work_loses_nothing() {
    cut(2, 140);
}

#[test]
fn a_cut_after_much_work_loses_nothing() {
    cut(3, 250);
}

/// What was acknowledged to the callers of one disk.
#[derive(Default)]
struct Acknowledged {
    /// At least this attempt, and this end if there is one.
    jobs: BTreeMap<JobId, Standing>,
    settled: u64,
}

#[derive(Debug, Default)]
struct Verdict {
    cuts: u64,
    acked: u64,
    settled: u64,
    lost: u64,
    undone: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn cut(part: u64, operations_max: u64) {
    let cuts: u64 = std::env::var("REDRIVE_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let (cuts, started) = (cuts.div_ceil(PARTS), Instant::now());
    let mut verdict = Verdict::default();
    for round in 0.. {
        let seed = round * PARTS + part;
        let (disk, mut maker) = (disk(seed), Maker::new(seed));
        let mut acknowledged = Acknowledged::default();
        for life in 0..LIVES.min(cuts - verdict.cuts) {
            disk.cut_after(1 + maker.below(operations_max));
            if let Ok(store) = open(&disk).await {
                work_until_it_fails(&store, &mut maker, &mut acknowledged).await;
                store.close().await.unwrap();
            }
            assert!(disk.is_cut(), "seed {seed}, life {life}: stopped before the cut");
            disk.power_on();
            verdict.cuts += 1;
            check(&disk, &acknowledged, &mut verdict, &format!("seed {seed}, life {life}"));
        }
        verdict.acked += acknowledged.jobs.len() as u64;
        verdict.settled += acknowledged.settled;
        goes_on(&disk, &mut maker, seed).await;
        if verdict.cuts >= cuts {
            break;
        }
    }
    let rate = verdict.cuts as f64 / started.elapsed().as_secs_f64();
    let Verdict { cuts, acked, settled, lost, undone } = verdict;
    println!(
        "power: cuts={cuts} acked={acked} settled={settled} lost={lost} undone={undone} half_done=0 corrupt=0 \
         ({rate:.0} cuts/s)"
    );
    assert_eq!((lost, undone), (0, 0));
    assert!(part == 0 || (acked > cuts && settled > cuts / 10), "the cuts left no time to work");
}

/// Enqueues, claims and settles, several calls at once, until the power is gone.
async fn work_until_it_fails(store: &SqliteStore, maker: &mut Maker, acknowledged: &mut Acknowledged) {
    let Ok(holder) = maker.begin(store).await else { return };
    let mut claimed = Vec::new();
    loop {
        let now = maker.tick();
        let single = vec![maker.job(None)];
        let key = format!("key {}", maker.below(12));
        let mut many: Vec<_> = (0..maker.below(4)).map(|_| maker.job(None)).collect();
        many.push(maker.job(Some(key)));
        let (settled, (one, more)) =
            tokio::join!(settle(store, maker, std::mem::take(&mut claimed)), async {
                tokio::join!(store.enqueue(single, now), store.enqueue(many, now))
            });
        let waits = Standing { done: None, attempt: 0 };
        for job in [&one, &more].into_iter().flatten().flatten() {
            acknowledged.jobs.entry(job.id).or_insert(waits.clone());
        }
        if let Ok(settled) = &settled {
            acknowledged.settled += settled.len() as u64;
            acknowledged.jobs.extend(settled.iter().cloned());
        }
        if one.is_err() || more.is_err() || settled.is_err() {
            return;
        }
        match claim(store, maker, holder).await {
            Ok(jobs) => claimed = jobs,
            Err(_) => return,
        }
    }
}

async fn claim(store: &SqliteStore, maker: &mut Maker, holder: HolderId) -> Result<Vec<(Lease, Job)>> {
    let limit = 1 + maker.below(6) as usize;
    Ok(store.claim(maker.claim(holder, limit), maker.now).await?.jobs)
}

/// Settles most of what was claimed; the rest is still running when the end comes.
async fn settle(
    store: &SqliteStore,
    maker: &mut Maker,
    claimed: Vec<(Lease, Job)>,
) -> Result<Vec<(JobId, Standing)>> {
    let mut settlements = Vec::new();
    for (lease, job) in claimed {
        if maker.below(5) > 0 {
            let outcome = match maker.below(4) {
                0 => Outcome::Failed(Failure::retry("not yet")),
                1 => Outcome::Failed(Failure::permanent("never")),
                _ => Outcome::Done(None),
            };
            settlements.push(maker.settlement(lease, job, outcome));
        }
    }
    let settlements = Arc::new(settlements);
    let answers = store.settle(settlements.clone()).await?;
    assert!(answers.iter().all(|answer| *answer == Settled::Applied), "nobody took the lease");
    let standing = |state: &State| state.is_final().then(|| state.name().as_str().to_owned());
    Ok(settlements
        .iter()
        .map(|settlement| {
            let transition = &settlement.transition;
            let now = Standing { done: standing(&transition.state), attempt: transition.ledger.attempt };
            (settlement.job.id, now)
        })
        .collect())
}

fn check(disk: &Disk, acknowledged: &Acknowledged, verdict: &mut Verdict, at: &str) {
    let found = disk.open(world::FILE).map_err(|error| error.to_string()).and_then(|db| standings(&db));
    let found = found.unwrap_or_else(|wrong| panic!("{at}: {wrong}"));
    for (id, expected) in &acknowledged.jobs {
        match found.get(id) {
            None => verdict.lost += 1,
            Some(now) => {
                let kept = match &expected.done {
                    Some(_) => now == expected,
                    None => now.attempt >= expected.attempt,
                };
                verdict.undone += u64::from(!kept);
            }
        }
    }
    assert_eq!((verdict.lost, verdict.undone), (0, 0), "{at}");
}

/// The store works on what is left: its counters in memory are those of the rows, and everything can be finished.
async fn goes_on(disk: &Disk, maker: &mut Maker, seed: u64) {
    let store = open(disk).await.unwrap();
    let holder = maker.begin(&store).await.unwrap();
    let mut unclaimed = 0;
    while unclaimed < 3 {
        maker.tick();
        let claimed = store.claim(maker.claim(holder, 100), maker.now).await.unwrap().jobs;
        unclaimed = if claimed.is_empty() { unclaimed + 1 } else { 0 };
        let ends = claimed.into_iter().map(|(lease, job)| maker.settlement(lease, job, Outcome::Done(None)));
        let ends = ends.collect::<Vec<_>>();
        store.settle(Arc::new(ends)).await.unwrap();
    }
    let counts = store.counts().await.unwrap();
    for queue in &counts {
        assert_eq!((queue.waiting, queue.running), (0, 0), "seed {seed}: {counts:?}");
    }
    store.close().await.unwrap();
    let found = standings(&disk.open(world::FILE).unwrap()).unwrap();
    assert!(found.values().all(|standing| standing.done.is_some()), "seed {seed}");
}
