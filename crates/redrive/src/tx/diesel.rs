//! In a transaction of `diesel`.

use ::diesel::result::DatabaseErrorKind;
use ::diesel::sql_types::Text;
use ::diesel::{PgConnection, QueryableByName, RunQueryDsl};

use crate::error::{Error, Result};
use crate::machine::Admission;
use crate::store::{Enqueued, postgres_transaction as transaction};

#[derive(QueryableByName)]
struct Answer {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = Text)]
    how: String,
}

/// Puts a job, made by [`Engine::admit`](crate::Engine::admit), into the transaction that is open on `connection`: it
/// is there if and only if that commits, and invisible before. Engines are woken by the commit. The database must be the
/// engine's own.
///
/// A key that is taken is refused unless the job says `ignore`, because only the engine can replace a job.
pub fn enqueue(connection: &mut PgConnection, admission: &Admission) -> Result<Enqueued> {
    let job = transaction::job_text(admission)?;
    let query = ::diesel::sql_query(transaction::ADMIT).bind::<Text, _>(job);
    let answer: Answer = query.get_result(connection).map_err(failed)?;
    transaction::answer(admission, &answer.id, &answer.how)
}

/// The library keeps the code of an error to itself but for some, by other names.
fn failed(error: ::diesel::result::Error) -> Error {
    let ::diesel::result::Error::DatabaseError(kind, answer) = &error else {
        return transaction::unanswered(error);
    };
    let code = match kind {
        DatabaseErrorKind::UniqueViolation => "23505",
        DatabaseErrorKind::SerializationFailure => "40001",
        DatabaseErrorKind::ReadOnlyTransaction => "25006",
        DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand => "08006",
        _ => "",
    };
    transaction::refused(code, answer.message())
}
