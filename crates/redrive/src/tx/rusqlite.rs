//! In a transaction of `rusqlite`.

use ::rusqlite::Connection;

use crate::error::Result;
use crate::machine::Admission;
use crate::store::{Enqueued, sqlite_enqueue_outside};

/// Puts a job, made by [`Engine::admit`](crate::Engine::admit), into the transaction that is open on `connection`: it
/// is there if and only if that commits, and invisible before. The connection must be to the engine's own file.
///
/// The engine notices within a second. A key that is taken is refused unless the job says `ignore`, because only
/// the engine knows whether the other one runs.
pub fn enqueue(connection: &Connection, admission: &Admission) -> Result<Enqueued> {
    sqlite_enqueue_outside(connection, admission)
}
