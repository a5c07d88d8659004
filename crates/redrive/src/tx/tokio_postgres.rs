//! In a transaction of `tokio-postgres`.

use ::tokio_postgres::GenericClient;
use ::tokio_postgres::types::Type;

use crate::error::Result;
use crate::machine::Admission;
use crate::store::{Enqueued, postgres_transaction as transaction};

/// Puts a job, made by [`Engine::admit`](crate::Engine::admit), into `transaction`: it is there if and only if that
/// commits, and invisible before. Engines are woken by the commit. The database must be the engine's own.
///
/// A key that is taken is refused unless the job says `ignore`, because only the engine can replace a job.
pub async fn enqueue(transaction: &impl GenericClient, admission: &Admission) -> Result<Enqueued> {
    let job = transaction::job_text(admission)?;
    let rows = transaction.query_typed(transaction::ADMIT, &[(&job, Type::TEXT)]).await;
    let rows = rows.map_err(transaction::failed)?;
    let (id, how) = rows.first().map(|row| (row.get(0), row.get(1))).unwrap_or_default();
    transaction::answer(admission, id, how)
}
