//! The races of handing out jobs, each provoked on a real PostgreSQL: a plain session holds a lock, so that a transaction
//! stands still at exactly the place where it could do harm, and `pg_stat_activity` says when it does.
//!
//! A queue is one lane: an advisory lock that `redrive.claim` takes before it reads. What is quoted above a test is the
//! race as it happens to other designs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "support/postgres.rs"]
mod kit;

use std::collections::BTreeSet;
use std::sync::Arc;

use kit::{Bench, at_once, begin, claim, end, ended, finish, ids, job, job_as, put, register, wanted};
use redrive::{
    Again, Attempt, ClaimId, Claimed, Command, EXECUTION, Engine, ErrorKind, Failure, Filter, Happening,
    HolderId, How, JobId, Json, Limits, NewJob, Outcome, Payload, PostgresStore, Rate, Renewal, Report,
    Rules, Seen, Settled, Settlement, State, StateName, Store as _, Word, days, millis, secs,
};
use redrive_testbed::{Cluster, Proxy};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

const ONE: HolderId = HolderId(1);
const TWO: HolderId = HolderId(2);

/// Lets a claim read what is due, and stops it before it writes.
const BEFORE_A_CLAIM_IS_WRITTEN: &str = "LOCK TABLE redrive.claims IN SHARE MODE";
/// Lets an enqueue write its jobs, or a settlement its endings, and stops it before it commits.
const BEFORE_AN_ENQUEUE_COMMITS: &str = "LOCK TABLE redrive.tallies IN SHARE MODE";

/// «Lock and select in one statement: it waits, then reads its old snapshot: the same jobs claimed twice.»
#[tokio::test]
async fn a_claim_that_waited_for_its_lane_does_not_hand_out_what_the_other_took() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    register(&two, TWO).await;
    let jobs = put(&one, "mail", 0..10).await;
    let hold = bench.holding(BEFORE_A_CLAIM_IS_WRITTEN).await;
    let first = begin({
        let one = one.clone();
        async move { claim(&one, ONE, 1, &["mail"], 6).await.unwrap() }
    });
    bench.until_waiting(1).await;
    // This one's statement begins before the first claim is committed, and its lock comes after.
    let second = begin(async move { claim(&two, TWO, 2, &["mail"], 6).await.unwrap() });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    let (first, second) = (ids(&end(first).await), ids(&end(second).await));
    assert_eq!((first.len(), second.len()), (6, 4));
    let all: BTreeSet<JobId> = first.into_iter().chain(second).collect();
    assert_eq!(all, jobs.into_iter().collect());
}

/// «A claimer that never touches the lock row in its claim transaction: the same jobs claimed twice.»
///
/// Here it would be one that reads a queue which was not there yet when it locked the lanes.
#[tokio::test]
async fn a_queue_whose_lane_was_not_locked_is_not_claimed_from() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    register(&two, TWO).await;
    put(&one, "old", [0]).await;
    let lane = bench.holding("SELECT redrive.lock_lanes(array_agg(id)) FROM redrive.queues").await;
    // For it, what comes in while it waits is due.
    let later = one.clock().now() + secs(60);
    let first = begin({
        let one = one.clone();
        async move { one.claim(wanted(ONE, 1, &["old", "new"], 10), later).await.unwrap() }
    });
    bench.until_waiting(1).await;
    put(&one, "new", 1..5).await;
    let hold = bench.holding(BEFORE_A_CLAIM_IS_WRITTEN).await;
    lane.batch_execute("COMMIT").await.unwrap();
    bench.until_waiting(1).await;
    let second = begin(async move { claim(&two, TWO, 2, &["new"], 10).await.unwrap() });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    let (first, second) = (ids(&end(first).await), ids(&end(second).await));
    let both: Vec<&JobId> = first.iter().filter(|id| second.contains(id)).collect();
    assert!(both.is_empty(), "handed out twice: {both:?}");
    assert_eq!(first.len() + second.len(), 5);
}

/// The same race from the other side: every way into a claim waits while somebody has the lane.
#[tokio::test]
async fn no_claim_is_made_beside_a_locked_lane() {
    let bench = Bench::new().await;
    let store = bench.store().await;
    register(&store, ONE).await;
    put(&store, "mail", [0]).await;
    let now = store.clock().now();
    let over = job(1, "mail", now, |new| new.start_by(now + millis(1)));
    store.enqueue(vec![over], now).await.unwrap();
    let lane = bench.holding("SELECT redrive.lock_lanes(array_agg(id)) FROM redrive.queues").await;
    let claiming = begin(async move { claim(&store, ONE, 1, &["mail", "unknown"], 10).await.unwrap() });
    bench.until_waiting(1).await;
    assert_eq!(bench.number("SELECT count(*) FROM redrive.claims").await, 0);
    lane.batch_execute("COMMIT").await.unwrap();
    assert_eq!(end(claiming).await.jobs.len(), 2, "the one that is due, and the one that is out of time");
}

/// «A claimer selects J, a cancel of J is acknowledged elsewhere, the claim lists J: a cancelled job runs.»
#[tokio::test]
async fn a_job_whose_cancel_was_acknowledged_is_not_handed_out_by_a_claim_under_way() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    let jobs = put(&one, "mail", 0..2).await;
    let hold = bench.holding(BEFORE_A_CLAIM_IS_WRITTEN).await;
    let claiming = begin({
        let one = one.clone();
        async move { claim(&one, ONE, 1, &["mail"], 10).await.unwrap() }
    });
    bench.until_waiting(1).await;
    let (filter, now) = (Filter::id(jobs[0]), two.clock().now());
    let cancelling = begin(async move { two.apply(Command::Cancel, &filter, 1, now).await.unwrap() });
    // It is not acknowledged while the claim that may list it is being made.
    bench.until_waiting(2).await;
    assert!(!cancelling.is_finished());
    hold.batch_execute("COMMIT").await.unwrap();
    let claimed = end(claiming).await;
    assert_eq!(end(cancelling).await, [jobs[0]]);
    assert_eq!(state(&one, jobs[0]).await, StateName::Cancelled);
    // It was handed out before, so it was cancelled as a running job: its holder has lost it, and is told.
    for held in claimed.jobs.iter().filter(|(lease, _)| lease.job == jobs[0]) {
        let Renewal::Kept { lost } = one.renew(ONE, now + secs(60)).await.unwrap() else {
            panic!("it lives")
        };
        assert_eq!(lost, [held.0]);
        assert_eq!(finish(&one, held, Outcome::Done(None)).await, Settled::Refused);
    }
    assert_eq!(state(&one, jobs[0]).await, StateName::Cancelled);
    assert!(ids(&claimed).contains(&jobs[1]), "the other one is as it was");
}

/// «The cursor passes a row whose transaction commits late: a job is stuck.»
#[tokio::test]
async fn a_job_that_is_committed_behind_the_cursor_is_not_stuck() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    let now = one.clock().now();
    put(&one, "mail", 0..5).await;
    let hold = bench.holding(BEFORE_AN_ENQUEUE_COMMITS).await;
    // Long due when it comes, so that reading the last second again is not enough.
    let late = job(9, "mail", now - secs(30), |new| new);
    let enqueueing = begin(async move { two.enqueue(vec![late], now).await.unwrap() });
    bench.until_waiting(1).await;
    assert_eq!(claim(&one, ONE, 1, &["mail"], 10).await.unwrap().jobs.len(), 5, "the cursor is past it now");
    hold.batch_execute("COMMIT").await.unwrap();
    let late = end(enqueueing).await[0].id;
    let since = one.clock().now();
    let mut number = 1;
    let found = async {
        loop {
            number += 1;
            let claimed = claim(&one, ONE, number, &["mail"], 10).await.unwrap();
            if !claimed.jobs.is_empty() {
                return claimed;
            }
            tokio::time::sleep(millis(20)).await;
        }
    };
    assert_eq!(ids(&at_once(found).await), [late]);
    println!("late commit: found after {:?}", one.clock().now().since(since));
}

/// «The second of two statements overtakes the first while both get their names: what a claim lists is read before the
/// claim is made, and is handed to nobody.»
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_claimed_while_statements_get_their_names_is_handed_out() {
    const CLAIMS: u16 = 40;
    let bench = Bench::new().await;
    for process in 0..8 {
        let (store, holder) = (bench.store().await, HolderId(10 + u128::from(process)));
        register(&store, holder).await;
        // The first of them have no name, the last have one.
        for number in process * CLAIMS..(process + 1) * CLAIMS {
            let jobs = put(&store, "mail", [number]).await;
            let claimed = claim(&store, holder, 1 + u128::from(number), &["mail"], 9).await.unwrap();
            assert_eq!(ids(&claimed), jobs, "claim {number}");
        }
    }
}

/// «A client freezes while results are being sent to it: a lane is stuck.»
#[tokio::test]
async fn a_client_that_freezes_while_its_answer_is_sent_does_not_keep_the_lane() {
    let bench = Bench::new().await;
    let proxy = Proxy::start(bench.database.url()).await;
    let url = proxy.url(bench.database.name());
    let frozen = Arc::new(PostgresStore::connect(&url).await.unwrap());
    let other = bench.store().await;
    register(&frozen, ONE).await;
    register(&other, TWO).await;
    // Much more than fits between a server and a client that does not read.
    let now = other.clock().now();
    let large = redrive::Json::of(&"x".repeat(200_000)).unwrap();
    let jobs: Vec<_> = (0..40)
        .map(|number| {
            let mut new = job(number, "mail", now, |new| new);
            new.job.payload = large.clone();
            new
        })
        .collect();
    other.enqueue(jobs, now).await.unwrap();
    // The first claim of a process makes its queues known, which is another statement.
    assert!(claim(&frozen, ONE, 9, &["mail"], 0).await.unwrap().jobs.is_empty());
    proxy.freeze();
    let stuck = begin({
        let frozen = frozen.clone();
        async move { claim(&frozen, ONE, 1, &["mail"], 30).await }
    });
    let sending = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event = 'ClientWrite'";
    let sends = async {
        while bench.number(sending).await == 0 {
            tokio::time::sleep(millis(2)).await;
        }
    };
    at_once(sends).await;
    let rest = at_once(claim(&other, TWO, 2, &["mail"], 30)).await.unwrap();
    assert_eq!(rest.jobs.len(), 10, "what the frozen one has not taken");
    proxy.thaw();
    assert_eq!(end(stuck).await.unwrap().jobs.len(), 30);
}

/// «A settlement waits on a job row, its claim is ended without moving the attempt, the job is claimed again: a stale
/// settlement is accepted.»
#[tokio::test]
async fn a_settlement_that_waited_is_not_accepted_after_its_claim_was_ended() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    let now = one.clock().now();
    one.register(ONE, "test", now + millis(1)).await.unwrap();
    let jobs = put(&one, "mail", 0..2).await;
    let held = claim(&one, ONE, 1, &["mail"], 10).await.unwrap().jobs;
    let row = bench.holding("SELECT 1 FROM redrive.live FOR UPDATE").await;
    let over = now + secs(1);
    let expiring = begin(async move {
        let expired = two.expired(over).await.unwrap().over.pop().unwrap();
        let lost = expired.jobs.iter().map(|held| ended(held, Outcome::Lost, over)).collect();
        two.expire(expired.holder, lost, over).await.unwrap()
    });
    bench.until_waiting(1).await;
    let settling = begin({
        let (one, held) = (one.clone(), held.clone());
        async move { finish(&one, &held[0], Outcome::Done(None)).await }
    });
    bench.until_waiting(2).await;
    row.batch_execute("COMMIT").await.unwrap();
    assert_eq!(end(expiring).await, [Settled::Applied, Settled::Applied]);
    assert_eq!(end(settling).await, Settled::Refused);
    let ledger = one.get(jobs[0]).await.unwrap().unwrap().job.ledger;
    assert_eq!((ledger.attempt, ledger.crashes), (1, 1), "every ending moves the attempt");
    assert_eq!(bench.number("SELECT count(*) FROM redrive.done").await, 0);
}

/// The same race the other way round: while a settlement waits, nothing can end its claim.
#[tokio::test]
async fn a_claim_is_not_ended_while_a_settlement_of_it_waits() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    let now = one.clock().now();
    one.register(ONE, "test", now + millis(1)).await.unwrap();
    let jobs = put(&one, "mail", 0..2).await;
    let held = claim(&one, ONE, 1, &["mail"], 10).await.unwrap().jobs;
    let expired = two.expired(now + secs(1)).await.unwrap().over.pop().unwrap();
    let row = bench.holding("SELECT 1 FROM redrive.live FOR UPDATE").await;
    let settling = begin({
        let (one, held) = (one.clone(), held.clone());
        async move { finish(&one, &held[0], Outcome::Done(None)).await }
    });
    bench.until_waiting(1).await;
    let lost = expired.jobs.iter().map(|held| ended(held, Outcome::Lost, now + secs(1))).collect();
    let expiring = begin(async move { two.expire(ONE, lost, now + secs(1)).await.unwrap() });
    bench.until_waiting(2).await;
    row.batch_execute("COMMIT").await.unwrap();
    assert_eq!(end(settling).await, Settled::Applied);
    assert_eq!(end(expiring).await, [Settled::Refused, Settled::Applied]);
    assert_eq!(state(&one, jobs[0]).await, StateName::Succeeded);
    assert_eq!(one.get(jobs[1]).await.unwrap().unwrap().job.ledger.crashes, 1);
    assert_eq!(bench.number("SELECT count(*) FROM redrive.done").await, 1);
}

#[derive(Serialize, Deserialize)]
struct Task;

impl Payload for Task {
    const KIND: &'static str = "task";
}

/// «The database is away for longer than a lease: finished work refused, crashes counted for the whole fleet.»
#[tokio::test]
async fn an_outage_longer_than_a_lease_costs_no_finished_work_and_no_crash() {
    let bench = Bench::new().await;
    let proxy = Proxy::start(bench.database.url()).await;
    let url = proxy.url(bench.database.name());
    let (started, mut starts) = mpsc::unbounded_channel();
    let release = watch::Sender::new(false);
    let (mut engines, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (started, released) = (started.clone(), release.subscribe());
        let work = move |attempt: Attempt<Task>| {
            let (started, mut released) = (started.clone(), released.clone());
            async move {
                started.send(attempt.number).unwrap();
                released.wait_for(|released| *released).await.unwrap();
            }
        };
        let store = PostgresStore::connect(&url).await.unwrap();
        let one_each = redrive::Queue::new("default").concurrency(4);
        let engine = Engine::builder(store).queue(one_each).lease(secs(1)).handle(work).build().unwrap();
        engines.push(engine.clone());
        runs.push(tokio::spawn(async move { engine.run(std::future::pending()).await }));
    }
    let mut told: Vec<_> = engines.iter().map(Engine::events).collect();
    let jobs = engines[0].enqueue_all((0..8).map(|_| Task)).await.unwrap();
    for _ in 0..8 {
        starts.recv().await.unwrap();
    }
    // Whoever connects is turned away, and the work ends meanwhile.
    proxy.redirect("postgres://postgres@127.0.0.1:1/nowhere");
    proxy.cut_all();
    release.send_replace(true);
    let gone = "SELECT count(*) FROM redrive.holders WHERE until > redrive.now_ms() - 500";
    let lapses = async {
        while bench.number(gone).await > 0 {
            tokio::time::sleep(millis(20)).await;
        }
    };
    at_once(lapses).await;
    proxy.redirect(bench.database.url());
    let mut succeeded = 0;
    while succeeded < 8 {
        let [one, two] = &mut told[..] else { panic!("two engines") };
        let event = at_once(async {
            tokio::select! { event = one.recv() => event, event = two.recv() => event }
        });
        match event.await.unwrap().what {
            Happening::Succeeded { .. } => succeeded += 1,
            Happening::LeaseLost { .. } => panic!("finished work was refused"),
            _ => {}
        }
    }
    for enqueued in jobs {
        let ledger = engines[0].get(enqueued.id).await.unwrap().unwrap().job.ledger;
        assert_eq!((ledger.attempt, ledger.crashes), (1, 0));
    }
    assert!(starts.try_recv().is_err(), "nothing ran twice");
    runs.iter().for_each(tokio::task::JoinHandle::abort);
}

/// «A claim reads what is due, and then which claims there are; in between a job is settled, and its claim is gone: it runs
/// again.» What a claim asks of a gate comes after it has met the job.
#[tokio::test]
async fn a_job_that_is_settled_in_the_middle_of_a_claim_is_not_handed_out_again() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    register(&two, TWO).await;
    let now = one.clock().now();
    one.enqueue(vec![job(0, "mail", now, |new| new.destination(DOOR))], now).await.unwrap();
    let held = claim(&one, ONE, 1, &["mail"], 10).await.unwrap().jobs.remove(0);
    let hold = bench.holding("LOCK TABLE redrive.gates IN ACCESS EXCLUSIVE MODE").await;
    let claiming = begin(async move { claim(&two, TWO, 2, &["mail"], 10).await.unwrap() });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event_type = 'Lock' AND query LIKE '%redrive.claim(%'";
    let met = async {
        while bench.number(waits).await == 0 {
            tokio::time::sleep(millis(2)).await;
        }
    };
    at_once(met).await;
    assert_eq!(finish(&one, &held, Outcome::Done(None)).await, Settled::Applied);
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!(ids(&end(claiming).await), []);
    assert_eq!(state(&one, held.0.job).await, StateName::Succeeded);
}

/// «Three crashes with a poison pill somewhere in a large claim: innocent jobs die.»
#[tokio::test]
async fn neighbours_of_a_poison_pill_do_not_die_with_it() {
    const NEIGHBOURS: u16 = 200;
    let bench = Bench::new().await;
    let store = bench.store().await;
    let jobs = put(&store, "mail", 0..=NEIGHBOURS).await;
    let pill = jobs[usize::from(NEIGHBOURS / 2)];
    let mut now = store.clock().now();
    let mut crashes = 0;
    for round in 1..1_000 {
        let holder = HolderId(round);
        store.register(holder, "test", now + millis(1)).await.unwrap();
        now = now + secs(60);
        let claimed = store.claim(wanted(holder, round, &["mail"], 1_000), now).await.unwrap();
        if claimed.jobs.is_empty() {
            break;
        }
        let suspects = claimed.jobs.iter().filter(|(_, job)| job.is_suspect()).count();
        assert!(suspects <= 1, "suspects are claimed one at a time, and not {suspects}");
        if ids(&claimed).contains(&pill) {
            crashes += 1;
            let lost = claimed.jobs.iter().map(|held| ended(held, Outcome::Lost, now)).collect();
            store.expire(holder, lost, now).await.unwrap();
        } else {
            let done = claimed.jobs.iter().map(|held| ended(held, Outcome::Done(None), now)).collect();
            store.settle(Arc::new(done)).await.unwrap();
        }
    }
    assert_eq!(crashes, 3);
    for id in jobs {
        let expected = if id == pill { StateName::Dead } else { StateName::Succeeded };
        assert_eq!(state(&store, id).await, expected);
    }
    let State::Dead { why, .. } = store.get(pill).await.unwrap().unwrap().job.state else {
        panic!("it is dead")
    };
    assert_eq!(why.as_str(), "crash_loop");
}

/// «An expirer ends a holder while that holder's next claim commits: an orphan claim, jobs stuck.»
#[tokio::test]
async fn a_claim_that_commits_while_its_holder_is_being_ended_is_not_orphaned() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    let now = one.clock().now();
    one.register(ONE, "test", now + millis(1)).await.unwrap();
    put(&one, "mail", 0..3).await;
    claim(&one, ONE, 1, &["mail"], 1).await.unwrap();
    let over = now + secs(1);
    let expired = two.expired(over).await.unwrap().over.pop().unwrap();
    let hold = bench.holding(BEFORE_A_CLAIM_IS_WRITTEN).await;
    let claiming = begin({
        let one = one.clone();
        async move { claim(&one, ONE, 2, &["mail"], 1).await.unwrap() }
    });
    bench.until_waiting(1).await;
    let lost: Vec<_> = expired.jobs.iter().map(|held| ended(held, Outcome::Lost, over)).collect();
    let expiring = begin({
        let two = two.clone();
        async move { two.expire(ONE, lost, over).await.unwrap() }
    });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!(end(claiming).await.jobs.len(), 1);
    assert_eq!(end(expiring).await, [Settled::Refused], "it holds more than was known");
    let orphans = "SELECT count(*) FROM redrive.claims WHERE holder NOT IN (SELECT id FROM redrive.holders)";
    assert_eq!(bench.number(orphans).await, 0);
    let expired = two.expired(over).await.unwrap().over.pop().unwrap();
    assert_eq!(expired.jobs.len(), 2, "next time both are known, and come back");
}

/// The same race the other way round: the holder is as good as ended when it asks.
#[tokio::test]
async fn a_holder_that_is_being_ended_does_not_get_a_claim() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    let now = one.clock().now();
    one.register(ONE, "test", now + millis(1)).await.unwrap();
    put(&one, "mail", 0..3).await;
    claim(&one, ONE, 1, &["mail"], 1).await.unwrap();
    let over = now + secs(1);
    let expired = two.expired(over).await.unwrap().over.pop().unwrap();
    let hold = bench.holding("LOCK TABLE redrive.tallies IN SHARE MODE").await;
    let lost: Vec<_> = expired.jobs.iter().map(|held| ended(held, Outcome::Lost, over)).collect();
    let expiring = begin(async move { two.expire(ONE, lost, over).await.unwrap() });
    bench.until_waiting(1).await;
    let claiming = begin(async move { claim(&one, ONE, 2, &["mail"], 1).await });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!(end(expiring).await, [Settled::Applied]);
    assert_eq!(end(claiming).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(bench.number("SELECT count(*) FROM redrive.claims").await, 0);
}

/// «Failover to an asynchronous standby that reissues serial ids: the fence fails.»
///
/// Places in the store are serial and are reissued here; claim ids are random, and a settlement needs its claim. With
/// serial claim ids, this fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_from_before_a_failover_does_not_end_another_job_in_the_same_place() {
    let primary = Cluster::start();
    let store = PostgresStore::connect(&primary.url("postgres")).await.unwrap();
    register(&store, ONE).await;
    put(&store, "mail", [0]).await;
    let standby = primary.standby();
    standby.stop();
    // None of this reaches the standby.
    put(&store, "mail", 1..150).await;
    let before = claim(&store, ONE, 1, &["mail"], 1_000).await.unwrap().jobs;
    assert_eq!(before.len(), 150);
    primary.kill_postmaster();
    standby.restart();
    standby.promote();
    let after = PostgresStore::connect(&standby.url("postgres")).await.unwrap();
    register(&after, TWO).await;
    put(&after, "mail", 200..350).await;
    let now = claim(&after, TWO, 2, &["mail"], 1_000).await.unwrap().jobs;
    let places: BTreeSet<i64> = now.iter().map(|(lease, _)| lease.seq).collect();
    let reissued: Vec<_> = before.iter().filter(|(lease, _)| places.contains(&lease.seq)).collect();
    assert!(reissued.len() > 10, "the failover was to reissue places");
    for held in &reissued {
        assert_eq!(finish(&after, held, Outcome::Done(None)).await, Settled::Refused);
    }
    for held in &now {
        assert_eq!(finish(&after, held, Outcome::Done(None)).await, Settled::Applied, "nothing touched it");
    }
}

/// «Two lanes each see nine of ten places used: a fleet-wide limit is exceeded.»
///
/// A queue is one lane, so nobody counts beside another. The limits that hold for the whole fleet today are a queue's
/// capacity and the order of a FIFO queue.
#[tokio::test]
async fn the_last_place_of_a_queue_is_not_given_twice() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    let now = one.clock().now();
    let small = |number| job_as(|queue| queue.capacity(10), number, "mail", now, |new| new);
    one.enqueue((0..9).map(small).collect(), now).await.unwrap();
    let hold = bench.holding(BEFORE_AN_ENQUEUE_COMMITS).await;
    let (tenth, eleventh) = (small(10), small(11));
    let first = begin(async move { one.enqueue(vec![tenth], now).await });
    bench.until_waiting(1).await;
    let second = begin(async move { two.enqueue(vec![eleventh], now).await });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!(end(first).await.unwrap()[0].how, How::Created);
    assert_eq!(end(second).await.unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(bench.number("SELECT count(*) FROM redrive.live").await, 10);
}

/// The same race between claims: in a FIFO queue one runs in the whole fleet.
#[tokio::test]
async fn two_claimers_of_a_fifo_queue_do_not_run_two_of_its_jobs() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    register(&two, TWO).await;
    let now = one.clock().now();
    let jobs = (0..3).map(|number| job_as(|queue| queue.fifo(), number, "mail", now, |new| new)).collect();
    one.enqueue(jobs, now).await.unwrap();
    let hold = bench.holding(BEFORE_A_CLAIM_IS_WRITTEN).await;
    let first = begin({
        let one = one.clone();
        async move { claim(&one, ONE, 1, &["mail"], 10).await.unwrap() }
    });
    bench.until_waiting(1).await;
    let second = begin(async move { claim(&two, TWO, 2, &["mail"], 10).await.unwrap() });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!((end(first).await.jobs.len(), end(second).await.jobs.len()), (1, 0));
}

const DOOR: &str = "api.example.org";

fn rules(limits: Limits) -> Arc<Rules> {
    let mut rules = Rules::default();
    rules.set(DOOR, Some(limits));
    Arc::new(rules)
}

/// «Two lanes each see nine of ten places used: a fleet-wide limit is exceeded.»
#[tokio::test]
async fn the_last_place_of_a_destination_is_not_given_to_two_lanes() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    register(&two, TWO).await;
    let now = one.clock().now();
    let to =
        |queue, from: u16| (from..from + 9).map(move |n| job(n, queue, now, |new| new.destination(DOOR)));
    one.enqueue(to("mail", 0).chain(to("post", 20)).collect(), now).await.unwrap();
    for store in [&one, &two] {
        store.destinations().limit(rules(Limits { concurrency: Some(10), ..Limits::default() }));
    }
    assert_eq!(claim(&one, ONE, 1, &["mail"], 9).await.unwrap().jobs.len(), 9);
    let hold = bench.holding(BEFORE_A_CLAIM_IS_WRITTEN).await;
    let more = to("mail", 40).collect();
    one.enqueue(more, now).await.unwrap();
    let first = begin(async move { claim(&one, ONE, 3, &["mail"], 9).await.unwrap() });
    bench.until_waiting(1).await;
    // The other has the gate now, and nobody waits for a gate.
    assert_eq!(claim(&two, TWO, 2, &["post"], 9).await.unwrap().jobs.len(), 0);
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!(end(first).await.jobs.len(), 1);
    assert_eq!(claim(&two, TWO, 4, &["post"], 9).await.unwrap().jobs.len(), 0, "all ten are taken");
}

/// «A word is found by those who poll for it.» Here they would look once an hour.
#[tokio::test]
async fn what_is_said_at_one_instance_the_other_is_told_before_it_looks() {
    let bench = Bench::new().await;
    let open = || redrive::PostgresOptions::default().look_every(secs(3_600));
    let [one, two] = [
        open().connect(bench.database.url()).await.unwrap(),
        open().connect(bench.database.url()).await.unwrap(),
    ];
    register(&two, TWO).await;
    one.destinations().tell(DOOR, Word::Down, one.clock().now()).await.unwrap();
    let now = one.clock().now();
    one.enqueue(vec![job(0, "mail", now, |new| new.destination(DOOR))], now).await.unwrap();
    assert!(claim(&two, TWO, 1, &["mail"], 9).await.unwrap().jobs.is_empty());
    let mut woken = two.changes();
    let said = one.clock().now();
    one.destinations().tell(DOOR, Word::Up, one.clock().now()).await.unwrap();
    let claimed = async {
        for number in 2.. {
            woken.changed().await.unwrap();
            if !claim(&two, TWO, number, &["mail"], 9).await.unwrap().jobs.is_empty() {
                return;
            }
        }
    };
    tokio::time::timeout(secs(30), claimed).await.expect("it has to be told");
    println!("claimed {:?} after it was said to be up at the other", two.clock().now().since(said));
}

/// «Every job of a destination that is gone is put off, one row after the other, and again when it is back.»
#[tokio::test]
async fn a_gate_that_shuts_and_opens_writes_none_of_the_jobs_behind_it() {
    let bench = Bench::new().await;
    let store = bench.store().await;
    let now = store.clock().now();
    let jobs = (0..500).map(|number| job(number, "mail", now, |new| new.destination(DOOR))).collect();
    store.enqueue(jobs, now).await.unwrap();
    let rows = "SELECT sum(hashtext(l.ctid::text || l.xmin::text)) FROM redrive.live AS l";
    let before = bench.number(rows).await;
    for word in [Word::Down, Word::Up, Word::Pause, Word::Resume] {
        store.destinations().tell(DOOR, word, store.clock().now()).await.unwrap();
    }
    assert_eq!(bench.number(rows).await, before);
    assert_eq!(bench.number("SELECT count(*) FROM redrive.gates").await, 1);
}

/// «A 429 or a remote report reaches an instance that did not claim the job: the gate learns too late.»
#[tokio::test]
async fn what_one_instance_has_learned_of_a_destination_the_next_claim_of_any_obeys() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    let now = one.clock().now();
    let jobs: Vec<_> = (0..6).map(|number| job(number, "mail", now, |new| new.destination(DOOR))).collect();
    one.enqueue(jobs, now).await.unwrap();
    let held = claim(&one, ONE, 1, &["mail"], 2).await.unwrap().jobs;
    assert_eq!(held.len(), 2);
    let asked = Report {
        destination: DOOR.into(),
        job: held[0].0.job,
        holds: 0,
        seen: Seen::Pause(secs(60)),
        began: now,
        ended: two.clock().now(),
        status: None,
        pace: 1.0,
    };
    two.destinations().observe(&[asked], two.clock().now()).await.unwrap();
    assert!(claim(&one, ONE, 2, &["mail"], 9).await.unwrap().jobs.is_empty());
    let later = now + secs(61);
    assert!(!one.claim(wanted(ONE, 3, &["mail"], 9), later).await.unwrap().jobs.is_empty());
}

/// The same for a rate: what one has let go is missing for the others, whatever they have seen of it.
#[tokio::test]
async fn instances_that_know_nothing_of_each_other_keep_one_rate() {
    let bench = Bench::new().await;
    let stores = [bench.store().await, bench.store().await, bench.store().await];
    let now = stores[0].clock().now();
    let jobs: Vec<_> = (0..60).map(|number| job(number, "mail", now, |new| new.destination(DOOR))).collect();
    stores[0].enqueue(jobs, now).await.unwrap();
    let limits = Limits { rate: Some(Rate::per_second(10)), burst: Some(3), ..Limits::default() };
    let mut handed_out = 0;
    for (index, store) in stores.iter().enumerate() {
        register(store, HolderId(10 + index as u128)).await;
        store.destinations().limit(rules(limits.clone()));
    }
    for round in 0..30u64 {
        let store = &stores[round as usize % 3];
        let wanted = wanted(HolderId(10 + u128::from(round % 3)), 100 + u128::from(round), &["mail"], 9);
        handed_out += store.claim(wanted, now + millis(100 * (round / 3))).await.unwrap().jobs.len();
    }
    // Three at once, and one for each tenth of a second after that.
    assert_eq!(handed_out, 3 + 9);
}

/// Any instance may settle what another claimed, and the one that claimed it cannot undo that.
#[tokio::test]
async fn a_report_to_an_instance_that_did_not_claim_the_job_is_not_lost() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    let jobs = put(&one, "mail", 0..2).await;
    let held = claim(&one, ONE, 1, &["mail"], 10).await.unwrap().jobs;
    let busy = redrive::Failure::retry("429 Too Many Requests").after(secs(90));
    assert_eq!(finish(&two, &held[0], Outcome::Failed(busy)).await, Settled::Applied);
    assert_eq!(finish(&one, &held[0], Outcome::Done(None)).await, Settled::Refused);
    let job = one.get(jobs[0]).await.unwrap().unwrap().job;
    assert_eq!((job.state.name(), job.ledger.failures), (StateName::Waiting, 1));
    assert!(job.due_at() >= one.clock().now() + secs(80), "the wait that was asked for is known to all");
    assert_eq!(finish(&one, &held[1], Outcome::Done(None)).await, Settled::Applied);
}

/// «A user's transaction locks a lane, gate or counter row: the fleet stalls.»
#[tokio::test]
async fn a_users_open_transaction_does_not_stall_the_fleet() {
    let bench = Bench::new().await;
    let store = bench.store().await;
    register(&store, ONE).await;
    let jobs = put(&store, "mail", 0..4).await;
    let held = claim(&store, ONE, 1, &["mail"], 2).await.unwrap().jobs;
    // Reads and locks what can be seen, enqueues, counts, and then thinks about it.
    let user = bench
        .holding(
            "SELECT 1 FROM redrive.queues FOR UPDATE; \
             SELECT 1 FROM redrive.policies FOR UPDATE; \
             SELECT 1 FROM redrive.bands FOR UPDATE; \
             SELECT 1 FROM redrive.tallies FOR UPDATE; \
             SELECT 1 FROM redrive.gates FOR UPDATE; \
             SELECT redrive.know_band(1, 3::smallint); \
             SELECT redrive.put(ARRAY[gen_random_uuid()], ARRAY[j.queue], ARRAY[j.policy], ARRAY[j.created_at], \
                                ARRAY[j.run_at], ARRAY[j.checksum], ARRAY[j.priority], ARRAY[j.kind], \
                                ARRAY[j.payload], ARRAY[j.queue], ARRAY['{\"enqueued\": 1}'::jsonb]) \
             FROM redrive.jobs AS j LIMIT 1",
        )
        .await;
    let all = async {
        // Past the next sweep of the queue, which wants to note when it was.
        let until = store.clock().now() + millis(1_500);
        let mut number = 2;
        let mut rest = Vec::new();
        while store.clock().now() < until || rest.len() < 2 {
            rest.extend(claim(&store, ONE, number, &["mail"], 2).await.unwrap().jobs);
            number += 1;
            tokio::time::sleep(millis(50)).await;
        }
        assert_eq!(finish(&store, &held[0], Outcome::Done(None)).await, Settled::Applied);
        let now = store.clock().now();
        assert_eq!(store.apply(Command::Cancel, &Filter::id(jobs[1]), 1, now).await.unwrap(), [jobs[1]]);
        let another = bench.store().await;
        put(&another, "mail", [7]).await;
        put(&another, "other", [8]).await;
        store.renew(ONE, now + secs(60)).await.unwrap();
    };
    tokio::time::timeout(secs(8), all).await.expect("somebody waits for a user");
    user.batch_execute("ROLLBACK").await.unwrap();
}

/// «A large backlog at the front of a lane: starvation of the rest.»
#[tokio::test]
async fn a_backlog_at_the_front_of_a_queue_does_not_starve_what_is_behind() {
    let bench = Bench::new().await;
    let store = bench.store().await;
    let now = store.clock().now();
    // 200 that crashed and may only run one at a time, 3,000 of which one runs at a time, and then five others.
    store.register(TWO, "test", now + millis(1)).await.unwrap();
    put(&store, "mail", 5_000..5_200).await;
    let crashed = claim(&store, TWO, 1, &["mail"], 200).await.unwrap().jobs;
    let lost = crashed.iter().map(|held| ended(held, Outcome::Lost, now + millis(2))).collect();
    store.expire(TWO, lost, now + millis(2)).await.unwrap();
    let now = now + secs(30);
    let jobs = (0..3_000).map(|number| job(number, "mail", now, |new| new.ordering_key("one"))).collect();
    store.enqueue(jobs, now).await.unwrap();
    let last = now + secs(1);
    let jobs = (4_000..4_005).map(|number| job(number, "mail", last, |new| new)).collect();
    let behind: BTreeSet<JobId> = store.enqueue(jobs, last).await.unwrap().iter().map(|job| job.id).collect();
    store.register(ONE, "test", last + secs(600)).await.unwrap();
    let mut claims = 0;
    let mut found = BTreeSet::new();
    while !behind.is_subset(&found) {
        claims += 1;
        assert!(claims <= 8, "behind {} others nothing is found", 3_200 - found.len());
        let want = wanted(ONE, claims + 10, &["mail"], 16);
        found.extend(ids(&store.claim(want, last + secs(1)).await.unwrap()));
    }
    println!("backlog: what is behind was found after {claims} claims");
}

/// «Two predecessors end at once, each sees the other's edge: nobody lets go the one that waits for both.»
#[tokio::test]
async fn what_waits_for_two_that_end_at_once_is_let_go() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    register(&two, TWO).await;
    let [parent, a, b, c] = tied(&one).await;
    let first = claim(&one, ONE, 1, &["mail"], 1).await.unwrap().jobs;
    let second = claim(&two, TWO, 2, &["mail"], 1).await.unwrap().jobs;
    assert_eq!([first[0].0.job, second[0].0.job], [a, b]);
    // Both stand before the row of the one that waits for them, with nothing of the other in sight.
    let hold = bench.holding("SELECT 1 FROM redrive.live WHERE reason = 'dependency' FOR UPDATE").await;
    let endings = [(one.clone(), first), (two, second)]
        .map(|(store, held)| begin(async move { finish(&store, &held[0], Outcome::Done(None)).await }));
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    for ending in endings {
        assert_eq!(end(ending).await, Settled::Applied);
    }
    let last = claim(&one, ONE, 3, &["mail"], 9).await.unwrap().jobs;
    assert_eq!(last[0].0.job, c);
    assert_eq!(finish(&one, &last[0], Outcome::Done(None)).await, Settled::Applied);
    assert_eq!(ids(&claim(&one, ONE, 4, &["mail"], 9).await.unwrap()), [parent]);
    assert_eq!(bench.number("SELECT count(*) FROM redrive.edges").await, 0);
}

/// «A cancelled job comes back while the last one before it ends: it waits for an edge that is gone.»
#[tokio::test]
async fn what_comes_back_while_the_last_before_it_ends_is_not_stuck() {
    let bench = Bench::new().await;
    let store = bench.store().await;
    register(&store, ONE).await;
    let [_, _, _, c] = tied(&store).await;
    let held = claim(&store, ONE, 1, &["mail"], 9).await.unwrap().jobs;
    assert_eq!(finish(&store, &held[0], Outcome::Done(None)).await, Settled::Applied);
    let now = store.clock().now();
    assert_eq!(store.apply(Command::Cancel, &Filter::id(c), 1, now).await.unwrap(), [c]);
    // The success has taken its edge away and is not committed; the redrive must not take it for one that is left.
    let hold = bench.holding(BEFORE_AN_ENQUEUE_COMMITS).await;
    let back = begin({
        let store = store.clone();
        async move { store.apply(Command::Redrive, &Filter::id(c), 1, now).await.unwrap() }
    });
    bench.until_waiting(1).await;
    let ending = begin({
        let store = store.clone();
        async move { finish(&store, &held[1], Outcome::Done(None)).await }
    });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!((end(back).await, end(ending).await), (vec![c], Settled::Applied));
    assert!(ids(&claim(&store, ONE, 2, &["mail"], 9).await.unwrap()).contains(&c));
}

/// «An ending is committed when claims have long passed its moment: what comes after it waits for the next sweep.»
#[tokio::test]
async fn what_is_let_go_behind_the_cursor_is_handed_out_by_the_next_claim() {
    let bench = Bench::new().await;
    let store = bench.store().await;
    register(&store, ONE).await;
    let [_, a, b, c] = tied(&store).await;
    let held = claim(&store, ONE, 1, &["mail"], 9).await.unwrap();
    assert_eq!(ids(&held), [a, b]);
    put(&store, "mail", 20..25).await;
    let later = store.clock().now() + secs(10);
    assert_eq!(store.claim(wanted(ONE, 2, &["mail"], 9), later).await.unwrap().jobs.len(), 5);
    let before = store.clock().now() - secs(30);
    let endings = held.jobs.iter().map(|held| ended(held, Outcome::Done(None), before)).collect();
    store.settle(Arc::new(endings)).await.unwrap();
    assert_eq!(ids(&claim(&store, ONE, 3, &["mail"], 9).await.unwrap()), [c]);
}

/// The success of these, whose places were kept for what they let go.
fn give_way(store: &PostgresStore, held: &Claimed) -> Arc<Vec<Settlement>> {
    let again = Some(Again { holder: ONE, claim: ClaimId(77), kinds: None });
    let ended = held.jobs.iter().map(|held| ended(held, Outcome::Done(None), store.clock().now()));
    Arc::new(ended.map(|ended| Settlement { again: again.clone(), ..ended }).collect())
}

/// «A command takes a job to be waiting, the job begins with the ending of another, the command is carried out: it runs on
/// as if nothing were, and its claim is never empty.»
#[tokio::test]
async fn a_job_that_begins_with_an_ending_while_it_is_cancelled_is_taken_from_its_holder() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    let [_, _, _, last] = tied(&one).await;
    let held = claim(&one, ONE, 1, &["mail"], 9).await.unwrap();
    let hold = bench.holding("LOCK TABLE redrive.freed IN SHARE MODE").await;
    let ends = give_way(&one, &held);
    let settling = begin({
        let one = one.clone();
        async move { one.settle(ends).await.unwrap() }
    });
    bench.until_waiting(1).await;
    let (filter, now) = (Filter::id(last), two.clock().now());
    let cancelling = begin(async move { two.apply(Command::Cancel, &filter, 1, now).await.unwrap() });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    let begun = end(settling).await.into_iter().find_map(|answer| match answer {
        Settled::Next(next) => Some(*next),
        _ => None,
    });
    assert_eq!(end(cancelling).await, [last]);
    assert_eq!(state(&one, last).await, StateName::Cancelled);
    let (lease, job) = begun.expect("it began before it was cancelled");
    let Renewal::Kept { lost } = one.renew(ONE, one.clock().now() + secs(30)).await.unwrap() else {
        panic!("its holder is there")
    };
    assert_eq!(lost, [lease]);
    assert_eq!(finish(&one, &(lease, job), Outcome::Done(None)).await, Settled::Refused);
    assert_eq!(bench.number("SELECT count(*) FROM redrive.claims").await, 0);
}

/// The same the other way round: the command comes first.
#[tokio::test]
async fn a_job_that_is_cancelled_while_the_last_before_it_ends_does_not_begin() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    let [_, _, _, last] = tied(&one).await;
    let held = claim(&one, ONE, 1, &["mail"], 9).await.unwrap();
    let hold = bench.holding("LOCK TABLE redrive.activity IN SHARE MODE").await;
    let (filter, now) = (Filter::id(last), two.clock().now());
    let cancelling = begin(async move { two.apply(Command::Cancel, &filter, 1, now).await.unwrap() });
    bench.until_waiting(1).await;
    let ends = give_way(&one, &held);
    let settling = begin({
        let one = one.clone();
        async move { one.settle(ends).await.unwrap() }
    });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!(end(cancelling).await, [last]);
    assert_eq!(end(settling).await, [Settled::Applied, Settled::Applied]);
    assert_eq!(state(&one, last).await, StateName::Cancelled);
}

/// «An instance remembers what it has settled itself; of what another has settled it knows nothing.» Nor is anything said by
/// the day on which it was: a clock may have been wrong.
#[tokio::test]
async fn how_a_job_ended_is_told_by_every_instance_whatever_the_clock_said() {
    let bench = Bench::new().await;
    let (one, two) = (bench.store().await, bench.store().await);
    register(&one, ONE).await;
    register(&two, TWO).await;
    let [_, a, b, c] = tied(&one).await;
    let first = claim(&one, ONE, 1, &["mail"], 1).await.unwrap().jobs;
    let second = claim(&two, TWO, 2, &["mail"], 1).await.unwrap().jobs;
    assert_eq!(finish(&one, &first[0], Outcome::Done(Json::of("one").ok())).await, Settled::Applied);
    let long_ago = two.clock().now() - days(3);
    let ending = Arc::new(vec![ended(&second[0], Outcome::Done(Json::of("two").ok()), long_ago)]);
    assert_eq!(two.settle(ending).await.unwrap(), [Settled::Applied]);
    for store in [one, two] {
        let mut told: Vec<_> = store.ended(&[a, b, c]).await.unwrap();
        told.sort_by_key(|ended| ended.id);
        let told: Vec<_> = told
            .iter()
            .map(|ended| (ended.id, ended.state, ended.output.as_ref().unwrap().as_str()))
            .collect();
        let expected = [(a, StateName::Succeeded, r#""one""#), (b, StateName::Succeeded, r#""two""#)];
        assert_eq!(told, expected);
    }
}

/// A parent, and three that belong to it: the last comes after the two before.
async fn tied(store: &PostgresStore) -> [JobId; 4] {
    let now = store.clock().now();
    let parent = job(0, "mail", now, |new| new);
    let id = parent.job.id;
    let nodes: Vec<_> = (1..4).map(|number| job(number, "mail", now, |new| new.parent(id))).collect();
    let [a, b, c] = [nodes[0].job.id, nodes[1].job.id, nodes[2].job.id];
    let mut jobs = vec![parent.held_behind(vec![c]).unwrap()];
    let after = [vec![], vec![], vec![a, b]];
    jobs.extend(nodes.into_iter().zip(after).map(|(node, after)| node.held_behind(after).unwrap()));
    store.enqueue(jobs, now).await.unwrap();
    [id, a, b, c]
}

async fn state(store: &PostgresStore, id: JobId) -> StateName {
    store.get(id).await.unwrap().unwrap().job.state.name()
}

/// «The node is brought back while its execution is giving up because of it: the execution is dead, and its node runs.»
#[tokio::test]
async fn an_execution_that_gives_up_while_it_is_brought_back_is_brought_back() {
    let bench = Bench::new().await;
    let store = bench.store().await;
    register(&store, ONE).await;
    put(&store, "default", [1]).await;
    let execution =
        job(2, "default", store.clock().now(), |_| NewJob::of_kind(EXECUTION, Json::of(&2).unwrap()));
    let id = execution.job.id;
    store.enqueue(vec![execution], store.clock().now()).await.unwrap();
    let held = claim(&store, ONE, 1, &["default"], 9).await.unwrap();
    let conclusion = held.jobs.into_iter().find(|(lease, _)| lease.job == id).unwrap();
    let gives_up = Outcome::Failed(Failure::permanent("a node is dead"));
    let hold = bench.holding(BEFORE_AN_ENQUEUE_COMMITS).await;
    let dies = begin({
        let store = store.clone();
        async move { finish(&store, &conclusion, gives_up).await }
    });
    bench.until_waiting(1).await;
    let comes_back = begin({
        let store = store.clone();
        async move { store.apply(Command::Redrive, &Filter::id(id), 1, store.clock().now()).await.unwrap() }
    });
    bench.until_waiting(2).await;
    hold.batch_execute("COMMIT").await.unwrap();
    assert_eq!((end(dies).await, end(comes_back).await), (Settled::Applied, vec![id]));
    let detail = store.get(id).await.unwrap().unwrap();
    assert_eq!((detail.job.state.name(), detail.job.ledger.generation), (StateName::Waiting, 1));
}
