//! The connection is cut after a statement was executed and before its answer comes, and before it gets there at all.

use std::sync::Arc;

use redrive::{HolderId, How, Json, Outcome, PostgresStore, Settled, Store as _};
use redrive_testbed::{Database, Proxy};

use crate::kit::{claim, ended, job, register};
use crate::times;

const HOLDER: HolderId = HolderId(1);

/// A store behind a proxy that loses things.
struct Line {
    database: Database,
    proxy: Proxy,
    store: PostgresStore,
}

impl Line {
    async fn new() -> Line {
        let database = redrive_testbed::database().await;
        let proxy = Proxy::start(database.url()).await;
        let store = PostgresStore::connect(&proxy.url(database.name())).await.unwrap();
        register(&store, HOLDER).await;
        Line { database, proxy, store }
    }

    /// The answer is lost, or the question, in turn.
    fn cut(&self, round: u64, statement: &str) {
        if round.is_multiple_of(2) {
            self.proxy.cut_next_reply_to(statement);
        } else {
            self.proxy.cut_next_before(statement);
        }
    }

    async fn number(&self, sql: &str) -> u64 {
        let client = redrive_testbed::connect(self.database.url()).await.unwrap();
        u64::try_from(client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)).unwrap()
    }
}

/// A quarter of `REDRIVE_CONNECTIONS_CUT` each.
fn rounds() -> u64 {
    times("REDRIVE_CONNECTIONS_CUT", 200).div_ceil(4)
}

#[tokio::test]
async fn a_cut_enqueue_is_not_a_second_job_and_is_answered_as_if_nothing_had_been() {
    let line = Line::new().await;
    for round in 0..rounds() {
        let now = line.store.clock().now();
        let new = job(round as u16, "mail", now, |new| new);
        let id = new.job.id;
        line.cut(round, "redrive.put");
        let answer = line.store.enqueue(vec![new], now).await.unwrap();
        assert_eq!((answer[0].id, answer[0].how), (id, How::Created), "round {round}");
    }
    assert_eq!(line.proxy.counts().cut, rounds());
    assert_eq!(line.number("SELECT count(*) FROM redrive.jobs").await, rounds());
    assert_eq!(line.number("SELECT count(*) FROM redrive.live").await, rounds());
    let counted = line.store.counts().await.unwrap()[0].totals.enqueued;
    assert_eq!(counted, rounds(), "and is counted once");
}

#[tokio::test]
async fn a_cut_enqueue_with_a_key_is_not_taken_for_the_one_that_has_it() {
    let line = Line::new().await;
    for round in 0..rounds() {
        let now = line.store.clock().now();
        let key = format!("key {round}");
        let new = job(round as u16, "mail", now, |new| new.key(key.clone()));
        let id = new.job.id;
        line.cut(round, "redrive.admit");
        let answer = line.store.enqueue(vec![new], now).await.unwrap();
        assert_eq!((answer[0].id, answer[0].how), (id, How::Created), "round {round}");
        let second = job(10_000 + round as u16, "mail", now, |new| new.key(key.clone()));
        let answer = line.store.enqueue(vec![second], now).await.unwrap();
        assert_eq!((answer[0].id, answer[0].how), (id, How::Existing), "the key decides");
    }
    assert_eq!(line.proxy.counts().cut, rounds());
    assert_eq!(line.number("SELECT count(*) FROM redrive.jobs").await, rounds());
}

#[tokio::test]
async fn a_cut_claim_hands_out_what_it_took_and_no_more() {
    let line = Line::new().await;
    for round in 0..rounds() {
        let now = line.store.clock().now();
        let jobs = (0..3).map(|n| job(round as u16 * 3 + n, "mail", now, |new| new)).collect();
        line.store.enqueue(jobs, now).await.unwrap();
        line.cut(round, "redrive.claim(");
        let claimed = claim(&line.store, HOLDER, u128::from(round) + 1, &["mail"], 10).await.unwrap().jobs;
        assert_eq!(claimed.len(), 3, "round {round}");
        let done = claimed.iter().map(|held| ended(held, Outcome::Done(None), now)).collect();
        assert_eq!(line.store.settle(Arc::new(done)).await.unwrap(), vec![Settled::Applied; 3]);
    }
    assert_eq!(line.proxy.counts().cut, rounds());
    assert_eq!(
        line.number("SELECT count(*) FROM redrive.claims").await,
        0,
        "nothing is held that nobody knows of"
    );
    assert_eq!(line.number("SELECT count(*) FROM redrive.done").await, rounds() * 3);
}

#[tokio::test]
async fn a_cut_settlement_counts_once_and_is_answered_as_applied() {
    let line = Line::new().await;
    for round in 0..rounds() {
        let now = line.store.clock().now();
        let jobs = (0..3).map(|n| job(round as u16 * 3 + n, "mail", now, |new| new)).collect();
        line.store.enqueue(jobs, now).await.unwrap();
        let claimed = claim(&line.store, HOLDER, u128::from(round) + 1, &["mail"], 10).await.unwrap().jobs;
        let outcomes = [
            Outcome::Done(None),
            Outcome::Done(Json::of("fine").ok()),
            Outcome::Failed(redrive::Failure::retry("not yet")),
        ];
        let settlements =
            claimed.iter().zip(outcomes).map(|(held, outcome)| ended(held, outcome, now)).collect();
        line.cut(round, "redrive.settle");
        let answers = line.store.settle(Arc::new(settlements)).await.unwrap();
        assert_eq!(answers, vec![Settled::Applied; 3], "round {round}");
    }
    assert_eq!(line.proxy.counts().cut, rounds());
    assert_eq!(line.number("SELECT count(*) FROM redrive.done").await, rounds() * 2);
    assert_eq!(line.number("SELECT count(*) FROM redrive.attempts").await, rounds());
    let totals = line.store.counts().await.unwrap()[0].totals;
    assert_eq!((totals.succeeded, totals.failures), (rounds() * 2, rounds()), "and is counted once");
}
