//! A served process is killed again and again under load, while workers elsewhere hold leases. The ledger is kept here,
//! outside of it: nothing acknowledged is lost, what was held can be completed after the restart, and nothing is
//! completed twice.
//!
//! `REDRIVE_SERVER_KILLS` says how often (default 20).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use redrive::{PostgresStore, Rng, SqliteStore, Store};
use redrive_server::config::StoreUrl;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::client::{Answer, Client, within};
use crate::ground::id;
use crate::process::Process;
use crate::served::is_on_postgres;

const WORKERS: usize = 3;
const ENQUEUERS: usize = 2;
/// Jobs that wait or run, at most: the load goes on while the killing does.
const BACKLOG: usize = 200;

/// What was promised and what was seen.
#[derive(Default)]
struct Ledger {
    /// Jobs that were acknowledged.
    acknowledged: BTreeSet<String>,
    /// How often a completion of each job was accepted.
    accepted: BTreeMap<String, usize>,
    /// Jobs whose completion was sent to a process that died before it answered, and was refused by the next one: the
    /// first had accepted it.
    unheard: BTreeSet<String>,
    /// Completions that were accepted by another process than the one that gave the lease.
    across: usize,
}

impl Ledger {
    fn known_finished(&self) -> usize {
        self.accepted.len() + self.unheard.len()
    }
}

/// Where the server is, and everything that happens.
#[derive(Clone)]
struct World {
    address: watch::Receiver<SocketAddr>,
    stop: watch::Receiver<bool>,
    ledger: Arc<Mutex<Ledger>>,
    /// Grows with every answer.
    heard: Arc<watch::Sender<usize>>,
}

impl World {
    /// Asks the server of the moment; none if it died meanwhile, and then there is a new one already.
    async fn ask(&self, path: &str, body: &Value) -> Option<Answer> {
        let address = *self.address.borrow();
        let headers = [("content-type", "application/json")];
        let client = Client { address, token: None };
        let path = format!("/api/v1{path}");
        match client.try_ask("POST", &path, &headers, body.to_string().into()).await {
            Ok(answer) => {
                self.heard.send_modify(|count| *count += 1);
                Some(answer)
            }
            Err(_) => {
                let mut there = self.address.clone();
                within(there.wait_for(|now| *now != address)).await.unwrap();
                None
            }
        }
    }

    async fn enqueue(self) {
        let policy = json!({ "backoff": { "kind": "immediate" }, "maxCrashes": 1000 });
        let job = json!({ "kind": "work", "payload": { "n": 1 }, "policy": policy });
        let mut heard = self.heard.subscribe();
        while !*self.stop.borrow() {
            // What was not acknowledged may be there or not: nobody was promised anything.
            if let Some(answer) = self.ask("/jobs", &job).await {
                self.ledger.lock().unwrap().acknowledged.insert(id(&answer.data()));
            }
            let is_enough = || {
                let ledger = self.ledger.lock().unwrap();
                ledger.acknowledged.len() > ledger.known_finished() + BACKLOG
            };
            while is_enough() && !*self.stop.borrow() {
                heard.changed().await.unwrap();
            }
        }
    }

    /// Leases and completes until everything that was acknowledged is known to be finished.
    async fn work(self) {
        let mut worker: Option<Value> = None;
        while !(*self.stop.borrow() && self.is_finished()) {
            let mut asked = json!({ "kinds": ["work"], "limit": 5, "leaseFor": "20s", "wait": "500ms" });
            if let Some(worker) = &worker {
                asked["workerId"] = worker.clone();
            }
            let from = *self.address.borrow();
            let Some(answer) = self.ask("/workers/lease", &asked).await else {
                // The process may have leased jobs of which nobody heard: under this id they would be held for ever.
                worker = None;
                continue;
            };
            let leased = answer.data();
            worker = Some(leased["workerId"].clone());
            for job in leased["jobs"].as_array().unwrap() {
                self.complete(job, from).await;
            }
        }
    }

    async fn complete(&self, job: &Value, from: SocketAddr) {
        let path = format!("/leases/{}/complete", job["lease"].as_str().unwrap());
        let mut was_unheard = false;
        loop {
            let to = *self.address.borrow();
            let Some(answer) = self.ask(&path, &json!({})).await else {
                was_unheard = true;
                continue;
            };
            let mut ledger = self.ledger.lock().unwrap();
            if answer.status == 200 {
                *ledger.accepted.entry(id(job)).or_default() += 1;
                ledger.across += usize::from(to != from);
            } else {
                assert_eq!(answer.refused(), (409, "LEASE_LOST".into()));
                assert!(was_unheard, "a lease that was held was lost: {job}");
                ledger.unheard.insert(id(job));
            }
            return;
        }
    }

    fn is_finished(&self) -> bool {
        let ledger = self.ledger.lock().unwrap();
        let is_known = |id: &String| ledger.accepted.contains_key(id) || ledger.unheard.contains(id);
        ledger.acknowledged.iter().all(is_known)
    }
}

#[expect(clippy::disallowed_methods, reason = "a variable says how often to kill")]
fn kills() -> usize {
    std::env::var("REDRIVE_SERVER_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_and_completes_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let database = if is_on_postgres() { Some(redrive_testbed::database().await) } else { None };
    let file = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let store = database.as_ref().map_or(file.as_str(), |database| database.url());
    let mut process = Process::on(store, folder.path()).await;
    let (told, address) = watch::channel(process.address);
    let (stop, stopped) = watch::channel(false);
    let world =
        World { address, stop: stopped, ledger: Arc::default(), heard: Arc::new(watch::Sender::new(0)) };
    let enqueuers: Vec<_> = (0..ENQUEUERS).map(|_| tokio::spawn(world.clone().enqueue())).collect();
    let workers: Vec<_> = (0..WORKERS).map(|_| tokio::spawn(world.clone().work())).collect();

    let (mut heard, mut rng) = (world.heard.subscribe(), Rng::seeded(4));
    for _ in 0..kills() {
        // Somewhere within the load: after a few answers, or after many.
        let until = *heard.borrow_and_update() + 1 + usize::try_from(rng.up_to(59)).unwrap();
        within(heard.wait_for(|count| *count >= until)).await.unwrap();
        process.kill().await;
        process = Process::on(store, folder.path()).await;
        told.send_replace(process.address);
    }
    stop.send_replace(true);
    // So that whoever waits for an answer sees that it is over.
    world.heard.send_modify(|count| *count += 1);
    for task in enqueuers.into_iter().chain(workers) {
        within(task).await.unwrap();
    }

    process.kill().await;
    let finished = finished_in(store).await;
    let ledger = world.ledger.lock().unwrap();
    assert!(ledger.accepted.values().all(|count| *count == 1), "completed twice: {:?}", ledger.accepted);
    let twice: Vec<&String> = ledger.unheard.iter().filter(|id| ledger.accepted.contains_key(*id)).collect();
    assert_eq!(twice, Vec::<&String>::new(), "refused as finished, and completed all the same");
    assert!(ledger.across > 0 || kills() < 5, "no lease has outlived its server");
    let missing: Vec<&String> = ledger.acknowledged.iter().filter(|id| !finished.contains(*id)).collect();
    assert_eq!(missing, Vec::<&String>::new(), "acknowledged and lost");
    let counted = ledger.accepted.keys().chain(&ledger.unheard).all(|id| finished.contains(id));
    assert!(counted, "completed, and not in the store");
    println!(
        "{} kills: {} jobs acknowledged, {} completions accepted ({} by a later server than the lease), {} unheard",
        kills(),
        ledger.acknowledged.len(),
        ledger.accepted.len(),
        ledger.across,
        ledger.unheard.len()
    );
}

/// The jobs that have succeeded, read from the store itself.
async fn finished_in(store: &str) -> BTreeSet<String> {
    let store: Arc<dyn Store> = match store.parse().unwrap() {
        StoreUrl::Sqlite(file) => Arc::new(SqliteStore::open(file).await.unwrap()),
        StoreUrl::Postgres(url) => Arc::new(PostgresStore::connect(&url).await.unwrap()),
    };
    let engine = redrive::Engine::on(store).build().unwrap();
    let filter = redrive::Filter { states: vec![redrive::StateName::Succeeded], ..Default::default() };
    let (mut page, mut ids) = (redrive::Page { before: None, limit: redrive::PAGE_MAX }, BTreeSet::new());
    loop {
        let paged = engine.list(&filter, page).await.unwrap();
        ids.extend(paged.jobs.iter().map(|job| job.id.to_string()));
        match paged.next {
            Some(next) => page.before = Some(next),
            None => return ids,
        }
    }
}
