//! The same story with each library that can hold the transaction.

use diesel::connection::{AnsiTransactionManager, TransactionManager as _};
use diesel::{Connection as _, RunQueryDsl as _};
use redrive::{
    Admission, Enqueued, ErrorKind, How, NewJob, OnConflict, Policy, Result, StateName, Timestamp, hours,
    mins, secs, tx,
};
use redrive_testbed::connect;

use super::kit::{Confirm, World, start, succeeds};

/// An open transaction of the user's.
trait Own: Sized {
    async fn begin(url: &str) -> Self;
    /// Writes a row of the user's own.
    async fn order(&mut self, order: i64);
    async fn enqueue(&mut self, admission: &Admission) -> Result<Enqueued>;
    /// Makes the server refuse a statement.
    async fn stumble(&mut self);
    async fn commit(self);
    async fn rollback(self);
}

struct TokioPostgres(tokio_postgres::Transaction<'static>);

impl Own for TokioPostgres {
    async fn begin(url: &str) -> Self {
        // It borrows its client, and a test may well keep one until it ends.
        let client = Box::leak(Box::new(connect(url).await.unwrap()));
        TokioPostgres(client.transaction().await.unwrap())
    }
    async fn order(&mut self, order: i64) {
        self.0.execute("INSERT INTO orders VALUES ($1)", &[&order]).await.unwrap();
    }
    async fn enqueue(&mut self, admission: &Admission) -> Result<Enqueued> {
        tx::tokio_postgres::enqueue(&self.0, admission).await
    }
    async fn stumble(&mut self) {
        self.0.execute("SELECT 1 / 0", &[]).await.unwrap_err();
    }
    async fn commit(self) {
        self.0.commit().await.unwrap();
    }
    async fn rollback(self) {
        self.0.rollback().await.unwrap();
    }
}

struct Sqlx(sqlx::Transaction<'static, sqlx::Postgres>);

impl Own for Sqlx {
    async fn begin(url: &str) -> Self {
        Sqlx(sqlx::PgPool::connect(url).await.unwrap().begin().await.unwrap())
    }
    async fn order(&mut self, order: i64) {
        let insert = sqlx::query("INSERT INTO orders VALUES ($1)").bind(order);
        insert.execute(&mut *self.0).await.unwrap();
    }
    async fn enqueue(&mut self, admission: &Admission) -> Result<Enqueued> {
        tx::sqlx::enqueue(&mut self.0, admission).await
    }
    async fn stumble(&mut self) {
        sqlx::query("SELECT 1 / 0").execute(&mut *self.0).await.unwrap_err();
    }
    async fn commit(self) {
        self.0.commit().await.unwrap();
    }
    async fn rollback(self) {
        self.0.rollback().await.unwrap();
    }
}

struct Diesel(diesel::PgConnection);

impl Own for Diesel {
    async fn begin(url: &str) -> Self {
        let mut connection = diesel::PgConnection::establish(url).unwrap();
        AnsiTransactionManager::begin_transaction(&mut connection).unwrap();
        Diesel(connection)
    }
    async fn order(&mut self, order: i64) {
        let insert = diesel::sql_query("INSERT INTO orders VALUES ($1)");
        insert.bind::<diesel::sql_types::BigInt, _>(order).execute(&mut self.0).unwrap();
    }
    async fn enqueue(&mut self, admission: &Admission) -> Result<Enqueued> {
        tx::diesel::enqueue(&mut self.0, admission)
    }
    async fn stumble(&mut self) {
        diesel::sql_query("SELECT 1 / 0").execute(&mut self.0).unwrap_err();
    }
    async fn commit(mut self) {
        AnsiTransactionManager::commit_transaction(&mut self.0).unwrap();
    }
    async fn rollback(mut self) {
        AnsiTransactionManager::rollback_transaction(&mut self.0).unwrap();
    }
}

async fn commit_and_rollback<T: Own>() {
    let world = World::new().await;
    let mut events = world.engine.events();

    let mut taken_back = T::begin(world.database.url()).await;
    taken_back.order(1).await;
    taken_back.enqueue(&world.engine.admit(Confirm { order: 1 }).unwrap()).await.unwrap();
    taken_back.rollback().await;
    assert_eq!(world.traces().await, (0, 0));

    let mut kept = T::begin(world.database.url()).await;
    kept.order(2).await;
    let admission = world.engine.admit(Confirm { order: 2 }).unwrap();
    let job = kept.enqueue(&admission).await.unwrap();
    assert_eq!(job, Enqueued { id: admission.job.id, how: How::Created });
    kept.commit().await;
    assert_eq!(world.traces().await, (1, 1));

    let running = start(&world.engine);
    succeeds(&mut events, job.id).await;
    running.stop().await;
    assert_eq!(world.engine.counts().await.unwrap()[0].totals.enqueued, 1);
}

async fn invisible_before_the_commit<T: Own>() {
    let world = World::new().await;
    let mut events = world.engine.events();
    let running = start(&world.engine);

    let mut open = T::begin(world.database.url()).await;
    let job = open.enqueue(&world.engine.admit(Confirm { order: 1 }).unwrap()).await.unwrap().id;
    // Jobs that came in later run, and this one does not.
    for order in 2..5 {
        let other = world.engine.enqueue(Confirm { order }).await.unwrap().id;
        succeeds(&mut events, other).await;
    }
    assert!(world.engine.get(job).await.unwrap().is_none());
    open.commit().await;
    succeeds(&mut events, job).await;
    running.stop().await;
}

async fn one_key_one_job<T: Own>() {
    let world = World::new().await;
    let admit = |order, on_conflict| {
        let job = NewJob::from(Confirm { order }).key("order-7").on_conflict(on_conflict);
        world.engine.admit(job).unwrap()
    };
    let mut own = T::begin(world.database.url()).await;
    let first = own.enqueue(&admit(1, OnConflict::Ignore)).await.unwrap();
    let second = own.enqueue(&admit(2, OnConflict::Ignore)).await.unwrap();
    assert_eq!((second.id, second.how), (first.id, How::Existing));
    for on_conflict in [OnConflict::Reject, OnConflict::Replace] {
        let refused = own.enqueue(&admit(3, on_conflict)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(refused.to_string().contains("order-7"), "{refused}");
    }
    // A refusal leaves the transaction as it was.
    own.order(1).await;
    own.commit().await;
    assert_eq!(world.traces().await, (1, 1));
}

async fn mishaps_have_names<T: Own>() {
    let world = World::new().await;
    let admit = |order| world.engine.admit(NewJob::from(Confirm { order }).queue("small")).unwrap();
    let mut own = T::begin(world.database.url()).await;
    own.enqueue(&admit(1)).await.unwrap();
    let full = own.enqueue(&admit(2)).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full);
    let unwritable = world.engine.admit(NewJob::from(Confirm { order: 3 }).key("a\0b")).unwrap();
    assert_eq!(own.enqueue(&unwritable).await.unwrap_err().kind(), ErrorKind::Invalid);
    own.commit().await;
    assert_eq!(world.traces().await, (0, 1));

    let mut failed = T::begin(world.database.url()).await;
    failed.stumble().await;
    failed.enqueue(&admit(4)).await.unwrap_err();
    failed.rollback().await;
    let elsewhere = redrive_testbed::database().await;
    let mut lost = T::begin(elsewhere.url()).await;
    lost.enqueue(&admit(5)).await.unwrap_err();
    lost.rollback().await;
}

async fn every_field_arrives<T: Own>() {
    let world = World::new().await;
    let now = Timestamp::from_millis(4_000_000_000_000);
    let job = |key: &str| {
        NewJob::from(Confirm { order: 9 })
            .key(key)
            .ordering_key("customer-3")
            .priority(-4)
            .policy(Policy::fixed(mins(5)).attempts(2))
            .run_at(now)
            .deadline(now + hours(9))
            .start_by(now + hours(3))
            .timeout(secs(7))
            .destination("bank")
            .label("tenant", "blue \"sky\" \\ 蓝")
            .label("plan", "free")
            .parent("019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e".parse().unwrap())
            .failed_outside(redrive::Failure::retry("it was down").code("DOWN"))
    };
    let there = world.engine.enqueue(job("there")).await.unwrap().id;
    let mut own = T::begin(world.database.url()).await;
    let here = own.enqueue(&world.engine.admit(job("here")).unwrap()).await.unwrap().id;
    own.commit().await;

    let there = world.engine.get(there).await.unwrap().unwrap();
    let here = world.engine.get(here).await.unwrap().unwrap();
    let mut expected = there.job.clone();
    (expected.id, expected.seq, expected.created_at) = (here.job.id, here.job.seq, here.job.created_at);
    expected.extras.as_mut().unwrap().key = Some("here".into());
    assert_eq!(here.job, expected);
    assert_eq!(here.job.state.name(), StateName::Waiting);
    assert_eq!(here.attempts.len(), 1);
    assert_eq!(here.attempts[0].failure, there.attempts[0].failure);
}

/// The tests of one library.
macro_rules! with {
    ($library:ident, $own:ty) => {
        mod $library {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_commit_makes_the_job_run_and_a_rollback_leaves_no_trace() {
                super::commit_and_rollback::<$own>().await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn nobody_sees_the_job_before_the_commit() {
                super::invisible_before_the_commit::<$own>().await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_same_key_twice_in_one_transaction_is_one_job() {
                super::one_key_one_job::<$own>().await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mishaps_are_told_by_the_names_the_store_has_for_them() {
                super::mishaps_have_names::<$own>().await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn every_field_arrives_as_the_engine_would_have_written_it() {
                super::every_field_arrives::<$own>().await;
            }
        }
    };
}

with!(on_tokio_postgres, super::TokioPostgres);
with!(on_sqlx, super::Sqlx);
with!(on_diesel, super::Diesel);
