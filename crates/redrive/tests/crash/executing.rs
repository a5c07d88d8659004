//! Killed while it executes: every job ends, once, and what ran twice was killed in between.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use redrive::{Engine, JobDetail, JobId, NewJob, Policy, Rng, SqliteStore, State, StateName, millis};

use crate::child::{NEIGHBOURS, Pill, Work, database, ledger, queue};
use crate::{Victim, folder, kills, moment, sound};

/// Jobs of one file.
const JOBS: usize = 120;
/// Kills of one file; then it may finish.
const LIVES: usize = 15;
/// Failures that the policy of these jobs allows; one job in twenty has one more.
const FAILURES: u32 = 3;

#[derive(Default)]
struct Verdict {
    kills: usize,
    jobs: usize,
    executions: usize,
    lost: usize,
    double_completed: usize,
    early: usize,
    unexplained_duplicates: usize,
}

#[test]
fn jobs_of_killed_processes_all_end_and_none_is_completed_twice() {
    let (kills, started) = (kills(1), Instant::now());
    let mut rng = Rng::seeded(2);
    let mut verdict = Verdict::default();
    for round in 0.. {
        let folder = folder(round);
        let jobs = enqueue(folder.path(), &mut rng);
        let mut dead = Vec::new();
        loop {
            let victim = Victim::start("execute", folder.path());
            let id = victim.id();
            if verdict.kills >= kills || dead.len() >= LIVES {
                assert!(victim.wait(), "the last one was not killed and has to finish");
                break;
            }
            if !victim.kill_after(moment(&mut rng)).0 {
                break;
            }
            verdict.kills += 1;
            dead.push(id);
            drop(sound(folder.path()));
        }
        verdict.jobs += jobs.len();
        judge(folder.path(), &jobs, &dead, &mut verdict);
        if verdict.kills >= kills {
            break;
        }
    }
    let Verdict { kills, jobs, executions, lost, double_completed, early, unexplained_duplicates } = verdict;
    let rate = kills as f64 / started.elapsed().as_secs_f64();
    println!(
        "executing: kills={kills} acked={jobs} executions={executions} lost={lost} \
         double_completed={double_completed} early={early} unexplained_duplicates={unexplained_duplicates} \
         ({rate:.0} kills/s)"
    );
    assert_eq!((lost, double_completed, early, unexplained_duplicates), (0, 0, 0, 0));
}

#[tokio::main(flavor = "current_thread")]
async fn enqueue(folder: &Path, rng: &mut Rng) -> BTreeMap<JobId, u32> {
    let mut policy = Policy::fixed(millis(5)).no_jitter().attempts(FAILURES + 1);
    // The killing is done from outside here, so no job is to be blamed for it.
    policy.max_crashes = 10_000;
    let store = SqliteStore::open(database(folder)).await.unwrap();
    let engine = Engine::builder(store).queue(queue().policy(policy)).produce::<Work>().build().unwrap();
    let work: Vec<Work> = (0..JOBS)
        .map(|n| {
            let failures = if n % 20 == 7 { FAILURES + 1 } else { u32::try_from(rng.up_to(2)).unwrap() };
            Work { failures, millis: rng.up_to(15) }
        })
        .collect();
    let failures: Vec<u32> = work.iter().map(|work| work.failures).collect();
    let jobs = engine.enqueue_all(work.into_iter().map(NewJob::from)).await.unwrap();
    jobs.iter().map(|job| job.id).zip(failures).collect()
}

/// One line of the ledger.
struct Note {
    what: String,
    attempt: u32,
    process: u32,
    at: i64,
}

fn notes(folder: &Path) -> BTreeMap<JobId, Vec<Note>> {
    let mut notes: BTreeMap<JobId, Vec<Note>> = BTreeMap::new();
    for line in std::fs::read_to_string(ledger(folder)).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, job, attempt, process, at] = words[..] else { panic!("half a line: {line:?}") };
        notes.entry(job.parse().unwrap()).or_default().push(Note {
            what: what.into(),
            attempt: attempt.parse().unwrap(),
            process: process.parse().unwrap(),
            at: at.parse().unwrap(),
        });
    }
    notes
}

#[tokio::main(flavor = "current_thread")]
async fn judge(folder: &Path, jobs: &BTreeMap<JobId, u32>, dead: &[u32], verdict: &mut Verdict) {
    drop(sound(folder));
    let notes = notes(folder);
    let store = SqliteStore::open(database(folder)).await.unwrap();
    let engine = Engine::builder(store).queue(queue()).produce::<Work>().build().unwrap();
    for (id, planned) in jobs {
        let Some(detail) = engine.get(*id).await.unwrap() else {
            verdict.lost += 1;
            continue;
        };
        let notes = notes.get(id).map_or(&[][..], Vec::as_slice);
        verdict.lost += usize::from(!detail.job.state.is_final() || notes.is_empty());
        verdict.double_completed +=
            notes.iter().filter(|note| note.what == "accepted").count().saturating_sub(1);
        books_balance(&detail, *planned, notes);
        executions(&detail, notes, dead, verdict);
    }
    let counts = engine.counts().await.unwrap();
    assert_eq!(counts[0].totals.succeeded + counts[0].totals.dead, jobs.len() as u64);
    assert_eq!((counts[0].waiting, counts[0].running), (0, 0));
}

/// What the job's own ledger says is what happened to it.
fn books_balance(detail: &JobDetail, planned: u32, notes: &[Note]) {
    let (job, counted) = (&detail.job, detail.job.ledger);
    let expected = if planned > FAILURES { StateName::Dead } else { StateName::Succeeded };
    assert_eq!(job.state.name(), expected, "{}", job.id);
    assert_eq!(counted.failures, planned, "{}: failures are those of the handler", job.id);
    let finished = u32::from(expected == StateName::Succeeded);
    assert_eq!(counted.attempt, counted.failures + counted.crashes + finished, "{}", job.id);
    let crashed = detail.attempts.iter().filter(|record| record.ending == redrive::Ending::Crashed).count();
    if counted.attempt <= 100 {
        assert_eq!(counted.crashes as usize, crashed, "{}", job.id);
    }
    let said = notes.iter().filter(|note| note.what == "fail").count();
    assert!(counted.failures as usize <= said, "{}: a failure that nobody reported", job.id);
}

/// Every execution after another has a reason: that one failed, or its process was killed. None came early.
fn executions(detail: &JobDetail, notes: &[Note], dead: &[u32], verdict: &mut Verdict) {
    let starts: Vec<&Note> = notes.iter().filter(|note| note.what == "start").collect();
    verdict.executions += starts.len();
    for pair in starts.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        let failed = notes.iter().any(|note| note.what == "fail" && note.attempt == before.attempt);
        let killed = dead.contains(&before.process) && after.process != before.process;
        let explained = after.attempt > before.attempt && (failed || killed);
        verdict.unexplained_duplicates += usize::from(!explained);
    }
    for start in &starts {
        let planned = detail.attempts.iter().find(|record| record.attempt + 1 == start.attempt);
        let due_at = planned.and_then(|record| record.next_at).map_or(0, |due| due.as_millis());
        verdict.early += usize::from(start.at < due_at);
    }
}

#[test]
fn a_poison_pill_is_dead_after_three_crashes_and_its_fifty_neighbours_finish() {
    let folder = folder(0);
    let (pill, neighbours) = enqueue_pill(folder.path());
    let mut lives = 0;
    while !Victim::start("pill", folder.path()).wait() {
        lives += 1;
        assert!(lives < 20, "it goes on killing");
    }
    assert_eq!(lives, 3);
    let details = read(folder.path(), std::iter::once(pill).chain(neighbours));
    let State::Dead { why, .. } = details[0].job.state else { panic!("{:?}", details[0].job.state) };
    assert_eq!(why.as_str(), "crash_loop");
    assert_eq!(details[0].job.ledger.crashes, 3);
    for neighbour in &details[1..] {
        assert_eq!(neighbour.job.state.name(), StateName::Succeeded);
        assert_eq!(neighbour.job.ledger.failures, 0);
        assert!((1..3).contains(&neighbour.job.ledger.crashes), "{:?}", neighbour.job.ledger);
    }
    assert_eq!(details.len(), NEIGHBOURS + 1);
}

#[tokio::main(flavor = "current_thread")]
async fn enqueue_pill(folder: &Path) -> (JobId, Vec<JobId>) {
    let store = SqliteStore::open(database(folder)).await.unwrap();
    let policy = Policy::fixed(millis(5)).no_jitter();
    let engine = Engine::builder(store).queue(queue().policy(policy)).produce::<Pill>().build().unwrap();
    // In the middle, so that its neighbours are claimed before and after it.
    let jobs = (0..=NEIGHBOURS).map(|n| Pill { deadly: n == NEIGHBOURS / 2 });
    let mut ids: Vec<JobId> = engine.enqueue_all(jobs).await.unwrap().iter().map(|job| job.id).collect();
    (ids.remove(NEIGHBOURS / 2), ids)
}

#[tokio::main(flavor = "current_thread")]
async fn read(folder: &Path, ids: impl Iterator<Item = JobId>) -> Vec<JobDetail> {
    let store = SqliteStore::open(database(folder)).await.unwrap();
    let engine = Engine::builder(store).produce::<Pill>().build().unwrap();
    let mut details = Vec::new();
    for id in ids {
        details.push(engine.get(id).await.unwrap().expect("it is kept"));
    }
    details
}
