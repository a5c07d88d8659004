//! In a transaction of `sqlx`.

use ::sqlx::postgres::{PgConnection, PgDatabaseError};

use crate::error::{Error, Result};
use crate::machine::Admission;
use crate::store::{Enqueued, postgres_transaction as transaction};

/// Puts a job, made by [`Engine::admit`](crate::Engine::admit), into the transaction that is open on `connection`
/// (`&mut *transaction`): it is there if and only if that commits, and invisible before. Engines are woken by the
/// commit. The database must be the engine's own.
///
/// A key that is taken is refused unless the job says `ignore`, because only the engine can replace a job.
pub async fn enqueue(connection: &mut PgConnection, admission: &Admission) -> Result<Enqueued> {
    let job = transaction::job_text(admission)?;
    let query = ::sqlx::query_as::<_, (String, String)>(transaction::ADMIT).bind(job).persistent(false);
    let (id, how) = query.fetch_one(connection).await.map_err(failed)?;
    transaction::answer(admission, &id, &how)
}

fn failed(error: ::sqlx::Error) -> Error {
    match error.as_database_error().and_then(|answer| answer.try_downcast_ref::<PgDatabaseError>()) {
        Some(answer) => transaction::refused(answer.code(), answer.message()),
        None => transaction::unanswered(error),
    }
}
