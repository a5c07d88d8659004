//! The way to the server: a few connections, no state in any of them, so that a pooler may sit in between. Every call is
//! one statement, sent whole, and may be sent again. It has no name either, unless it is known that no pooler gives each
//! transaction another connection: then the server keeps the statements that are sent often, and need not read and plan
//! them anew, which takes it as long as a third of a small call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::managed::QueueMode;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, NoTls, Row, Statement};

use super::fault::Fault;

/// An argument of a statement, and its type: named, so that the server need not be asked first.
pub(super) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// How long to wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long to wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Something that failed on the wire is tried this often, with these pauses in between.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(400)];

pub(super) struct Database {
    pool: Pool,
    direct: Arc<Direct>,
}

impl Database {
    pub(super) fn new(config: Config, connections: usize, direct: Arc<Direct>) -> Result<Database, Fault> {
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(config, NoTls, manager))
            .max_size(connections)
            // The one that was used last: it knows the functions already.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(ANSWER_MAX))
            .create_timeout(Some(CONNECT_MAX))
            .build()
            .map_err(|error| Fault::Broken(error.to_string()))?;
        Ok(Database { pool, direct })
    }

    /// Opens so many connections, so that nothing has to wait for them later.
    pub(super) async fn connect(&self, connections: usize) -> Result<(), Fault> {
        let mut open = Vec::new();
        for _ in 0..connections.min(self.pool.status().max_size) {
            open.push(self.connection().await?);
        }
        Ok(())
    }

    /// A connection for more than one statement.
    pub(super) async fn connection(&self) -> Result<Object, Fault> {
        Ok(self.pool.get().await?)
    }

    /// One statement, tried again on another connection if the wire failed.
    pub(super) async fn query(&self, sql: &str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Fault> {
        self.again(sql, arguments, Sent::Seldom).await.0
    }

    /// A statement that is sent often; with whether it was tried more than once. If it was, a refusal may be due to a
    /// first try that was carried out and whose answer was lost.
    pub(super) async fn call(
        &self,
        sql: &'static str,
        arguments: &[Argument<'_>],
    ) -> (Result<Vec<Row>, Fault>, bool) {
        self.again(sql, arguments, Sent::Often).await
    }

    async fn again(
        &self,
        sql: &str,
        arguments: &[Argument<'_>],
        sent: Sent,
    ) -> (Result<Vec<Row>, Fault>, bool) {
        let mut tries = Tries::default();
        loop {
            let answer = self.once(sql, arguments, sent).await;
            if !tries.once_more(answer.as_ref().err()).await {
                return (answer, tries.again);
            }
        }
    }

    async fn once(&self, sql: &str, arguments: &[Argument<'_>], sent: Sent) -> Result<Vec<Row>, Fault> {
        let client = self.connection().await?;
        let answer = in_time(async {
            let statement = self.prepare(&client, sql, arguments, sent).await?;
            statement.send(&client, arguments).await
        })
        .await;
        self.keep_or_drop(client, answer.as_ref().err());
        answer
    }

    /// Gives a statement that is sent often its name, where that is possible.
    async fn prepare<'s>(
        &self,
        client: &Object,
        sql: &'s str,
        arguments: &[Argument<'_>],
        sent: Sent,
    ) -> Result<Prepared<'s>, tokio_postgres::Error> {
        if sent == Sent::Seldom || !self.direct.is_certain() {
            return Ok(Prepared::Nameless(sql));
        }
        let types: Vec<Type> = arguments.iter().map(|(_, kind)| kind.clone()).collect();
        Ok(Prepared::Named(client.prepare_typed_cached(sql, &types).await?))
    }

    /// A connection on which something went wrong with the wire is not used again.
    fn keep_or_drop(&self, client: Object, fault: Option<&Fault>) {
        if matches!(fault, Some(Fault::Unnamed(_))) {
            self.direct.refute();
        }
        if fault.is_some_and(Fault::is_passing) {
            drop(Object::take(client));
        }
    }

    /// Two statements in one transaction, the second if the first came to something; if not, neither is kept. Whoever
    /// freezes in between loses his transaction, so that what it has locked is not locked for long.
    pub(super) async fn both(
        &self,
        (first, arguments): (&str, &[Argument<'_>]),
        came_to_something: impl Fn(&[Row]) -> Result<bool, Fault>,
        (second, then): (&str, &[Argument<'_>]),
    ) -> Result<Vec<Row>, Fault> {
        let mut tries = Tries::default();
        loop {
            let mut client = self.connection().await?;
            let answer = in_time(async {
                let transaction = client.transaction().await?;
                transaction.batch_execute("SET LOCAL idle_in_transaction_session_timeout = '1s'").await?;
                let rows = transaction.query_typed(first, arguments).await?;
                if came_to_something(&rows)? {
                    transaction.query_typed(second, then).await?;
                    transaction.commit().await?;
                }
                Ok::<_, Fault>(rows)
            })
            .await;
            self.keep_or_drop(client, answer.as_ref().err());
            if !tries.once_more(answer.as_ref().err()).await {
                return answer;
            }
        }
    }

    /// A statement that looks at many rows for a person. Without compiling it first: that takes longer than all that
    /// such a statement has to do, and is done again for each.
    pub(super) async fn read(&self, sql: &str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Fault> {
        let mut tries = Tries::default();
        loop {
            let client = self.connection().await?;
            let begin = client.batch_execute("BEGIN READ ONLY; SET LOCAL jit = off");
            let query = client.query_typed(sql, arguments);
            let commit = client.batch_execute("COMMIT");
            let answer = in_time(async { tokio::try_join!(begin, query, commit) }).await;
            self.keep_or_drop(client, answer.as_ref().err());
            if !tries.once_more(answer.as_ref().err()).await {
                return answer.map(|((), rows, ())| rows);
            }
        }
    }

    /// A statement and one more, sent behind it without waiting; both are sent often.
    pub(super) async fn two(
        &self,
        (first, arguments): (&'static str, &[Argument<'_>]),
        (second, then): (&'static str, &[Argument<'_>]),
    ) -> Result<(Vec<Row>, Vec<Row>), Fault> {
        let mut tries = Tries::default();
        loop {
            let client = self.connection().await?;
            let answer = in_time(async {
                // Both before either is sent: the second must not overtake the first.
                let first = self.prepare(&client, first, arguments, Sent::Often).await?;
                let second = self.prepare(&client, second, then, Sent::Often).await?;
                tokio::try_join!(biased; first.send(&client, arguments), second.send(&client, then))
            })
            .await;
            self.keep_or_drop(client, answer.as_ref().err());
            if !tries.once_more(answer.as_ref().err()).await {
                return answer;
            }
        }
    }
}

/// Whether a connection stays the same from one transaction to the next, so that what it was given a name for is there
/// the next time.
#[derive(Default)]
pub(super) struct Direct {
    is_proven: AtomicBool,
    is_refuted: AtomicBool,
}

impl Direct {
    fn is_certain(&self) -> bool {
        self.is_proven.load(Ordering::Acquire) && !self.is_refuted.load(Ordering::Acquire)
    }

    /// Something has happened that cannot happen through a pooler which gives each transaction another connection.
    pub(super) fn prove(&self) {
        self.is_proven.store(true, Ordering::Release);
    }

    /// The next connections may lead elsewhere.
    pub(super) fn forget(&self) {
        self.is_proven.store(false, Ordering::Release);
    }

    /// There is such a pooler, whatever else seems to show.
    pub(super) fn refute(&self) {
        self.is_refuted.store(true, Ordering::Release);
    }
}

/// How often a statement is sent: what is sent seldom is not worth a name.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    Often,
    Seldom,
}

/// A statement as it is sent.
enum Prepared<'s> {
    /// The server keeps it.
    Named(Statement),
    Nameless(&'s str),
}

impl Prepared<'_> {
    async fn send(
        &self,
        client: &Object,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match self {
            Prepared::Nameless(sql) => client.query_typed(sql, arguments).await,
            Prepared::Named(statement) => {
                let values: Vec<&(dyn ToSql + Sync)> = arguments.iter().map(|(value, _)| *value).collect();
                client.query(statement, &values).await
            }
        }
    }
}

/// How often something was tried.
struct Tries {
    pauses: std::slice::Iter<'static, Duration>,
    again: bool,
}

impl Default for Tries {
    fn default() -> Tries {
        Tries { pauses: PAUSES.iter(), again: false }
    }
}

impl Tries {
    /// Whether to try again, and after a pause: if the wire failed, and not for ever.
    async fn once_more(&mut self, fault: Option<&Fault>) -> bool {
        if !fault.is_some_and(Fault::is_passing) {
            return false;
        }
        let Some(pause) = self.pauses.next() else { return false };
        self.again = true;
        tokio::time::sleep(*pause).await;
        true
    }
}

async fn in_time<T, E>(answer: impl Future<Output = Result<T, E>>) -> Result<T, Fault>
where
    Fault: From<E>,
{
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Fault::Broken(format!("no answer within {ANSWER_MAX:?}"))),
    }
}
