//! Every store does the same: the conformance suite on each of them, and what only a file can be asked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use redrive::{
    Audit, Claim, ClaimId, Edit, Failure, Filter, HolderId, Job, JobId, Json, Lease, MemoryStore, NewJob,
    OnRetry, Outcome, Page, Policy, PostgresOptions, PostgresStore, Queue, Renewal, Rng, Setting, Settled,
    Settlement, SqliteStore, StateName, Store, Timestamp, Want, Word, admit, secs, settle,
};
use redrive_testbed::{Database, PgBouncer};
use tempfile::TempDir;

redrive::conformance!(memory, async { (MemoryStore::new(), ()) });
redrive::conformance!(sqlite, async { file().await });
redrive::conformance!(postgres, async { server().await });
// Nothing a connection knows may be needed by the next call.
redrive::conformance!(pgbouncer, async { pooled().await });

const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const HOLDER: HolderId = HolderId(1);

async fn file() -> (SqliteStore, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (open(&dir).await, dir)
}

async fn server() -> (PostgresStore, Database) {
    let database = redrive_testbed::database().await;
    (PostgresStore::connect(database.url()).await.unwrap(), database)
}

async fn pooled() -> (PostgresStore, (PgBouncer, Database)) {
    let database = redrive_testbed::database().await;
    let pooler = PgBouncer::start(database.url());
    let store = PostgresOptions::default().pooled().connect(&pooler.url(database.name())).await.unwrap();
    (store, (pooler, database))
}

async fn open(dir: &TempDir) -> SqliteStore {
    SqliteStore::open(dir.path().join("jobs.db")).await.unwrap()
}

async fn put(store: &SqliteStore, number: u16, new: impl FnOnce(NewJob) -> NewJob) -> JobId {
    let mut rng = Rng::seeded(u64::from(number));
    let id = JobId::new(NOW, number, &mut rng);
    let queue = Queue::new("default").policy(Policy::fixed(secs(10)));
    let job = new(NewJob::of_kind("mail", Json::of(&number).unwrap()));
    store.enqueue(vec![admit(job, &queue, id, NOW, &mut rng).unwrap()], NOW).await.unwrap();
    id
}

async fn claim(store: &SqliteStore, holder: HolderId, id: u128, now: Timestamp) -> Vec<(Lease, Job)> {
    let wants = vec![Want { queue: "default".into(), limit: 9, on_retry: OnRetry::Block }];
    let ids = [ClaimId(id), ClaimId(id + 1)];
    store
        .claim(Claim { holder, ids, wants, suspect: true, kinds: None, ahead: Duration::ZERO }, now)
        .await
        .unwrap()
        .jobs
}

fn ended((lease, job): &(Lease, Job), outcome: Outcome) -> Settlement {
    let transition = settle(job, outcome, NOW, &mut Rng::seeded(0));
    Settlement {
        lease: *lease,
        job: Arc::new(job.clone()),
        transition,
        started_at: NOW,
        ended_at: NOW,
        again: None,
    }
}

async fn end(store: &SqliteStore, held: &(Lease, Job), outcome: Outcome) -> Settled {
    store.settle(Arc::new(vec![ended(held, outcome)])).await.unwrap()[0]
}

/// Five jobs: succeeded, dead, waiting for a retry, held behind one that runs, and running.
async fn busy() -> (SqliteStore, TempDir, Vec<(Lease, Job)>) {
    let (store, dir) = file().await;
    store.register(HOLDER, "before", NOW + secs(30)).await.unwrap();
    for number in 1..=3 {
        put(&store, number, |new| new.key(format!("key {number}")).label("number", number.to_string())).await;
    }
    put(&store, 4, |new| new.ordering_key("k")).await;
    put(&store, 5, |new| new.ordering_key("k")).await;
    let held = claim(&store, HOLDER, 10, NOW).await;
    assert_eq!(held.len(), 4);
    end(&store, &held[0], Outcome::Done(Some("fine".into()))).await;
    end(&store, &held[1], Outcome::Failed(Failure::permanent("no"))).await;
    end(&store, &held[2], Outcome::Failed(Failure::retry("not yet"))).await;
    (store, dir, held)
}

#[tokio::test]
async fn jobs_histories_counts_and_totals_survive_reopening() {
    let (store, dir, held) = busy().await;
    store.pause("other", true).await.unwrap();
    let list = store.list(&Default::default(), Page::default()).await.unwrap().jobs;
    let mut details = Vec::new();
    for job in &list {
        details.push(store.get(job.id).await.unwrap());
    }
    let (counts, activity) = (store.counts().await.unwrap(), store.activity(100).await.unwrap());
    assert_eq!((counts[0].waiting, counts[0].running, counts[0].dead), (2, 1, 1));
    drop(store);
    let store = open(&dir).await;
    assert_eq!(store.list(&Default::default(), Page::default()).await.unwrap().jobs, list);
    for (job, detail) in list.iter().zip(details) {
        assert_eq!(store.get(job.id).await.unwrap(), detail);
    }
    assert_eq!(store.counts().await.unwrap(), counts);
    assert_eq!(store.activity(100).await.unwrap(), activity);
    assert_eq!(
        end(&store, &held[3], Outcome::Done(None)).await,
        Settled::Applied,
        "its claim is still there"
    );
}

#[tokio::test]
async fn a_reopened_store_hands_out_nothing_that_a_claim_still_lists() {
    let (store, dir, _) = busy().await;
    drop(store);
    let store = open(&dir).await;
    store.register(HolderId(2), "after", NOW + secs(30)).await.unwrap();
    assert!(claim(&store, HolderId(2), 20, NOW).await.is_empty(), "one runs, and one is behind it");
    assert_eq!(claim(&store, HolderId(2), 22, NOW + secs(10)).await.len(), 1, "the retry");
}

#[tokio::test]
async fn a_reopened_store_releases_old_holders_at_once() {
    let (store, dir, held) = busy().await;
    drop(store);
    let store = open(&dir).await;
    let expiry = store.expired(NOW).await.unwrap();
    assert_eq!(expiry.next, None);
    let [old] = &expiry.over[..] else { panic!("one holder was there: {expiry:?}") };
    assert_eq!((old.holder, old.until), (HOLDER, Timestamp::EPOCH));
    assert_eq!(old.jobs.iter().map(|(lease, _)| *lease).collect::<Vec<_>>(), [held[3].0]);
    let settlements = old.jobs.iter().map(|held| ended(held, Outcome::Lost)).collect();
    assert_eq!(store.expire(HOLDER, settlements, NOW).await.unwrap(), [Settled::Applied]);
    assert_eq!(store.renew(HOLDER, NOW + secs(30)).await.unwrap(), Renewal::Gone);
    assert_eq!(end(&store, &held[3], Outcome::Done(None)).await, Settled::Refused);
    let job = store.get(held[3].0.job).await.unwrap().unwrap().job;
    assert_eq!((job.state.name(), job.ledger.crashes), (StateName::Waiting, 1));
}

#[tokio::test]
async fn the_order_of_a_key_survives_reopening() {
    let (store, dir, held) = busy().await;
    assert!(claim(&store, HOLDER, 20, NOW).await.is_empty());
    drop(store);
    let store = open(&dir).await;
    assert_eq!(end(&store, &held[3], Outcome::Done(None)).await, Settled::Applied);
    let next = claim(&store, HOLDER, 22, NOW).await;
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].1.payload.as_str(), "5");
}

#[tokio::test]
async fn a_claim_that_lists_a_forgotten_job_does_not_list_the_next_one_after_reopening() {
    let (store, dir) = file().await;
    store.register(HOLDER, "before", NOW + secs(30)).await.unwrap();
    put(&store, 1, |new| new).await;
    let last = put(&store, 2, |new| new).await;
    let held = claim(&store, HOLDER, 10, NOW).await;
    end(&store, &held[1], Outcome::Done(None)).await;
    let to = redrive::Filter::id(last);
    assert_eq!(store.apply(redrive::Command::Delete, &to, 1, NOW).await.unwrap(), [last]);
    let new = put(&store, 3, |new| new).await;
    drop(store);
    let store = open(&dir).await;
    assert_eq!(store.get(new).await.unwrap().unwrap().job.state.name(), StateName::Waiting);
}

#[tokio::test]
async fn what_cannot_be_written_down_does_not_happen_on_a_file() {
    let (store, dir) = file().await;
    let spoil = rusqlite::Connection::open(dir.path().join("jobs.db")).unwrap();
    nothing_happens(&store, async || {
        spoil.execute_batch("ALTER TABLE redrive_audit RENAME TO audit_is_gone").unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_written_down_does_not_happen_on_a_server() {
    let (store, database) = server().await;
    let spoil = redrive_testbed::connect(database.url()).await.unwrap();
    nothing_happens(&store, async || {
        spoil.batch_execute("ALTER TABLE redrive.audit RENAME TO audit_is_gone").await.unwrap();
    })
    .await;
}

/// Changes everything that can be changed by hand, with an audit log that takes no entry.
async fn nothing_happens(store: &impl Store, spoil: impl AsyncFnOnce()) {
    let queue = Queue::new("default");
    let mut rng = Rng::seeded(1);
    let id = JobId::new(NOW, 1, &mut rng);
    let job = NewJob::of_kind("mail", Json::of(&1).unwrap());
    store.enqueue(vec![admit(job, &queue, id, NOW, &mut rng).unwrap()], NOW).await.unwrap();
    spoil().await;
    let entry = Audit {
        id: "r1".into(),
        at: NOW,
        who: "ops".into(),
        token: None,
        what: "anything".into(),
        on: "everything".into(),
        job: None,
        result: "done".into(),
        detail: String::new(),
    };
    let (operations, shelf, name) = (store.operations(), "s".to_owned(), "n".to_owned());
    for setting in [
        Setting::Queue { name: "default".into(), paused: true },
        Setting::Held(true),
        Setting::Destination { name: "api".into(), word: Word::Pause },
        Setting::Record { shelf, name, value: Some(Json::of(&7).unwrap()) },
    ] {
        assert!(operations.set_audited(&setting, NOW, &entry).await.is_err(), "{setting:?}");
    }
    let edit = Edit { priority: Some(8), by: "ops".into(), ..Edit::default() };
    assert!(operations.edit(id, &edit, NOW, Some(&entry)).await.is_err());
    let cancel = redrive::Command::Cancel;
    assert!(operations.apply_audited(cancel, &Filter::id(id), 1, NOW, &entry).await.is_err());
    assert!(store.counts().await.unwrap().iter().all(|queue| !queue.paused));
    assert!(!operations.is_held().await.unwrap());
    assert!(store.destinations().list(NOW).await.unwrap().iter().all(|one| !one.gate.paused));
    assert!(store.records("s").await.unwrap().is_empty());
    let job = store.get(id).await.unwrap().unwrap().job;
    assert_eq!((job.priority, job.state.name()), (0, StateName::Waiting));
}
