//! What the adapters for users' own transactions have in common: the statement, its argument, its answer and its
//! errors, whatever library sends it.

use serde_json::json;

use super::codec::{POLICY_VERSION, attempt_json, job_json};
use super::fault::Fault;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::Admission;
use crate::store::{Enqueued, How, key_taken, queue_full, refuse_tied};

/// Answers an id and a word, as text, so that no library has to know more types than that.
pub(crate) const ADMIT: &str = include_str!("admit_in_transaction.sql");

/// The argument of [`ADMIT`]: the job, with its queue by name and its policy by value.
pub(crate) fn job_text(admission: &Admission) -> Result<String> {
    let Admission { job, on_conflict, capacity, history, author, .. } = admission;
    refuse_tied(admission)?;
    let extras = job.extras();
    let names = [Some(&job.kind), Some(&job.queue), extras.key.as_ref(), extras.ordering_key.as_ref()];
    if names
        .into_iter()
        .chain([extras.destination.as_ref(), author.as_ref()])
        .flatten()
        .any(|name| name.contains('\0'))
    {
        return Err(Fault::unwritable().into_error());
    }
    let policy = serde_json::to_string(&*job.policy).expect("a validated policy can be written");
    let mut item = job_json(job, (&*job.queue).into(), policy.into());
    item["policy_version"] = json!(POLICY_VERSION);
    item["on_conflict"] = json!(on_conflict);
    item["author"] = json!(author.as_deref());
    item["capacity"] = json!(capacity);
    item["history"] = history.iter().map(attempt_json).collect();
    Ok(item.to_string())
}

/// What [`ADMIT`] answered.
pub(crate) fn answer(admission: &Admission, id: &str, how: &str) -> Result<Enqueued> {
    let job = &admission.job;
    let how = match how {
        "created" => How::Created,
        "existing" => How::Existing,
        "taken" => return Err(key_taken(job.extras().key.as_deref().unwrap_or_default())),
        "full" => return Err(queue_full(&job.queue, admission.capacity.unwrap_or_default())),
        other => return Err(Fault::Foreign(format!("an unknown answer, {other:?}")).into_error()),
    };
    let id = id.parse().map_err(|why| Fault::Foreign(why).into_error())?;
    Ok(Enqueued { id, how })
}

/// What an error of the server means, by its code.
pub(crate) fn refused(code: &str, message: &str) -> Error {
    match code {
        "25P02" => {
            Error::new(ErrorKind::Invalid, "this transaction has failed already, before the job was enqueued")
                .with_hint("roll it back, and see which of its statements failed first")
        }
        "3F000" | "42883" | "42P01" => Error::new(
            ErrorKind::Invalid,
            format!("this database has no schema `redrive` to enqueue in: {message}"),
        )
        .with_hint("connect to the engine's own database, and start an engine of this version there once"),
        _ => Fault::of_answer(code, message, "", "").into_error(),
    }
}

/// What an error means that the server did not send.
#[cfg(any(feature = "tx-sqlx", feature = "tx-diesel"))]
pub(crate) fn unanswered(error: impl std::error::Error) -> Error {
    Fault::Broken(error.to_string()).into_error()
}

/// What an error of our own library means.
#[cfg(feature = "tx-tokio-postgres")]
pub(crate) fn failed(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(answer) => refused(answer.code().code(), answer.message()),
        None => Fault::from(error).into_error(),
    }
}
