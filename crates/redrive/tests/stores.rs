//! Every store does the same: the conformance suite on each of them, and what only a file can be asked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::{
    Again, Audit, Claim, ClaimId, Edit, Failure, Filter, HolderId, Job, JobId, Json, Lease, Limits,
    MemoryStore, NewJob, OnRetry, Outcome, Page, Policy, PostgresOptions, PostgresStore, Queue, Rate,
    Renewal, Rng, Rules, Setting, Settled, Settlement, SqliteStore, StateName, Store, Timestamp, Want, Word,
    admit, secs, settle,
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

async fn claim(store: &dyn Store, holder: HolderId, id: u128, now: Timestamp) -> Vec<(Lease, Job)> {
    claim_up_to(store, 9, holder, id, now).await
}

async fn claim_up_to(
    store: &dyn Store,
    limit: usize,
    holder: HolderId,
    id: u128,
    now: Timestamp,
) -> Vec<(Lease, Job)> {
    let wants = vec![Want { queue: "default".into(), limit, on_retry: OnRetry::Block }];
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
    store.settle(Arc::new(vec![ended(held, outcome)])).await.unwrap().remove(0)
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
    end(&store, &held[0], Outcome::Done(Json::of("fine").ok())).await;
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

/// Claims, ends and counts by destination, until nothing more comes or `is_enough`.
async fn serve(store: &dyn Store, ids: &mut u128, is_enough: impl Fn(&BTreeMap<Arc<str>, u32>) -> bool) {
    let mut served = BTreeMap::new();
    loop {
        *ids += 2;
        let held = claim_up_to(store, 64, HOLDER, *ids, NOW).await;
        for (_, job) in &held {
            *served.entry(job.extras().destination.clone().unwrap()).or_default() += 1;
        }
        if held.is_empty() || is_enough(&served) {
            return;
        }
        let settlements = held.iter().map(|held| ended(held, Outcome::Done(None))).collect();
        store.settle(Arc::new(settlements)).await.unwrap();
    }
}

/// All of them have four jobs: one goes at once, and the others stand in line until they may all go.
async fn each_has_its_turn(store: &dyn Store) {
    #[expect(clippy::disallowed_methods, reason = "how large it is is said by whoever starts it")]
    let count = std::env::var("REDRIVE_DESTINATIONS").map_or(600, |count| count.parse().unwrap());
    let limit = |rate: Rate, burst: u32| {
        let mut rules = Rules::default();
        rules.set("*", Some(Limits { rate: Some(rate), burst: Some(burst), ..Limits::default() }));
        store.destinations().limit(Arc::new(rules));
    };
    limit("1/h".parse().unwrap(), 1);
    store.register(HOLDER, "fair", NOW + secs(30)).await.unwrap();
    let (mut rng, queue) = (Rng::seeded(7), Queue::new("default"));
    let mut jobs = (0..count * 4).map(|n: u32| {
        let job = NewJob::of_kind("mail", Json::of(&n).unwrap()).destination(format!("{}.org", n / 4));
        let id = JobId::new(NOW, (n % 60_000) as u16, &mut rng);
        admit(job, &queue, id, NOW, &mut rng).unwrap()
    });
    let mut parts = std::iter::from_fn(|| Some(jobs.by_ref().take(500).collect::<Vec<_>>()));
    while let Some(part) = parts.next().filter(|part| !part.is_empty()) {
        store.enqueue(part, NOW).await.unwrap();
    }
    let mut ids = 10;
    // A claim that finds none that may go has put others into their lines meanwhile.
    for _ in 0..3 {
        serve(store, &mut ids, |served| {
            assert!(served.values().all(|count| *count == 1), "what is limited goes once");
            false
        })
        .await;
    }
    limit(Rate::per_second(1_000_000), 1_000);
    serve(store, &mut ids, |served| {
        let most = served.values().max().copied().unwrap_or(0);
        let least = served.values().min().copied().unwrap_or(0) * u32::from(served.len() == count as usize);
        assert!(most <= least + 1, "one was served {most} times while another was served {least} times");
        most == 3
    })
    .await;
}

#[tokio::test]
async fn none_of_many_destinations_is_served_again_on_sqlite_while_another_waits() {
    let (store, _dir) = file().await;
    each_has_its_turn(&store).await;
}

#[tokio::test]
async fn none_of_many_destinations_is_served_again_on_postgres_while_another_waits() {
    let (store, _database) = server().await;
    each_has_its_turn(&store).await;
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

/// An ending whose holder has kept its place.
fn gives_way(held: &(Lease, Job)) -> Settlement {
    let again = Some(Again { holder: HOLDER, claim: ClaimId(77), kinds: None });
    Settlement { again, ..ended(held, Outcome::Done(None)) }
}

#[tokio::test]
async fn an_ending_is_written_although_what_it_lets_go_is_damaged() {
    let (store, dir) = file().await;
    store.register(HOLDER, "test", NOW + secs(60)).await.unwrap();
    let queue = Queue::new("default").policy(Policy::fixed(secs(10)));
    let make = |number: u16, parent: Option<JobId>| {
        let mut rng = Rng::seeded(u64::from(number));
        let id = JobId::new(NOW, number, &mut rng);
        let job = NewJob::of_kind("mail", Json::of(&number).unwrap());
        let job = parent.into_iter().fold(job, NewJob::parent);
        admit(job, &queue, id, NOW, &mut rng).unwrap()
    };
    let parent = make(1, None);
    let id = parent.job.id;
    let (first, second) = (make(2, Some(id)), make(3, Some(id)));
    let (a, b) = (first.job.id, second.job.id);
    let jobs = vec![parent.held_behind(vec![b]).unwrap(), first, second.held_behind(vec![a]).unwrap()];
    store.enqueue(jobs, NOW).await.unwrap();
    let held = claim(&store, HOLDER, 1, NOW).await;
    let file = rusqlite::Connection::open(dir.path().join("jobs.db")).unwrap();
    file.execute("UPDATE redrive_jobs SET payload = '0' WHERE id = ?1", [b.to_string()]).unwrap();
    let answers = store.settle(Arc::new(vec![gives_way(&held[0])])).await.unwrap();
    assert_eq!(answers, [Settled::Applied]);
    assert!(claim(&store, HOLDER, 2, NOW).await.is_empty(), "it is set aside");
    let state = store.get(b).await.unwrap().map(|detail| detail.job.state.name());
    assert!(state.is_none_or(|state| state == StateName::Dead), "{state:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg(target_os = "linux")]
async fn a_crowd_that_looks_shares_a_handful_of_connections() {
    let (store, dir) = file().await;
    let id = put(&store, 1, |new| new).await;
    put(&store, 2, |new| new).await;
    let store = Arc::new(store);
    let path = dir.path().join("jobs.db");
    let crowd: Vec<_> = (0..400)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let all = store.list(&Filter::default(), Page::default()).await.unwrap();
                store.get(id).await.unwrap().is_some() && all.jobs.len() == 2
            })
        })
        .collect();
    let mut most = 0;
    while crowd.iter().any(|one| !one.is_finished()) {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == path)).count();
        most = most.max(open);
        tokio::task::yield_now().await;
    }
    for one in crowd {
        assert!(one.await.unwrap(), "each is answered");
    }
    // One that writes, four that look, four that find, one for what runs.
    assert!((1..=10).contains(&most), "{most} connections");
}
