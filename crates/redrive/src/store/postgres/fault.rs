//! Why something did not happen in the database, and whether to ask again.

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::error::{Error, ErrorKind};
use crate::store::{call_differs, key_running, key_taken, queue_full};

/// Why something did not happen.
#[derive(Debug)]
pub(super) enum Fault {
    /// It was refused, with nothing written.
    Refused(Error),
    /// A lease of the call was lost: nothing of the call happened.
    LeaseLost,
    /// The holder that was to be ended lives, or holds more than was known.
    HolderLives,
    /// Whoever wants to claim has expired: nothing of the claim happened.
    HolderGone,
    /// What is in these queues, or everything if none is named, may not be claimed again: nothing of the call happened.
    NotAgain(Vec<i32>),
    /// It was decided from something that has changed meanwhile.
    Changed,
    /// An id is there already.
    Known,
    /// The connection or the server failed. It may have happened nevertheless.
    Broken(String),
    /// The server does not know a statement by its name, or knows another by it: nothing of the call happened.
    Unnamed(String),
    /// The server answered, but not with what was expected.
    Foreign(String),
}

impl Fault {
    /// Whether the same call may well work on another connection.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Fault::Broken(_) | Fault::Unnamed(_))
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            Fault::Refused(error) => error,
            Fault::LeaseLost | Fault::HolderLives | Fault::NotAgain(_) => {
                Error::new(ErrorKind::LeaseLost, "the lease was lost before it could be settled")
            }
            Fault::HolderGone => {
                Error::new(ErrorKind::LeaseLost, "this holder has expired and may claim nothing")
                    .with_hint("register again under a new id")
            }
            Fault::Changed => Error::unavailable("the job kept changing while this was being decided")
                .with_hint("try again"),
            Fault::Known => Error::new(ErrorKind::Conflict, "a job with this id is there already"),
            Fault::Broken(what) | Fault::Unnamed(what) => {
                Error::unavailable(format!("PostgreSQL did not answer: {what}"))
                    .with_hint("see whether the server runs and can be reached; the same call may work later")
            }
            Fault::Foreign(what) => {
                Error::new(ErrorKind::Corrupt, format!("PostgreSQL did not do it: {what}")).with_hint(
                    "the schema `redrive` is not what this version wrote; run `redrive doctor` on it",
                )
            }
        }
    }

    /// What an error that the server sent means, by its code.
    pub(super) fn of_answer(code: &str, message: &str, detail: &str, hint: &str) -> Fault {
        match code {
            "RD001" => Fault::Refused(key_taken(detail)),
            "RD002" => Fault::Refused(key_running(detail)),
            "RD004" => Fault::Refused(call_differs(detail)),
            "RD003" => Fault::Refused(queue_full(detail, hint.parse().unwrap_or(0))),
            "RD409" => Fault::LeaseLost,
            "RD410" => Fault::HolderLives,
            "RD411" => Fault::NotAgain(detail.split(' ').filter_map(|id| id.parse().ok()).collect()),
            "RD412" => Fault::HolderGone,
            "22021" | "22P05" => Fault::unwritable(),
            "40001" => Fault::Changed,
            "23505" => Fault::Known,
            "25006" => Fault::Broken("it is a standby and cannot be written to".into()),
            "53100" => Fault::Refused(
                Error::new(ErrorKind::DiskFull, "PostgreSQL has no room on its disk")
                    .with_hint("make room there; what was acknowledged is safe, and work goes on by itself"),
            ),
            "42501" => Fault::Refused(
                Error::new(ErrorKind::ReadOnly, format!("PostgreSQL does not allow it: {message}"))
                    .with_hint("connect as the role that owns the schema `redrive`"),
            ),
            "26000" | "42P05" => Fault::Unnamed(message.to_owned()),
            // It would have to plan anew, because the schema was changed. Another connection has not planned yet.
            "0A000" if message.contains("cached plan") => Fault::Broken(message.to_owned()),
            // Deadlock, lock timeout, cancelled, too many connections, shutting down, starting up.
            "40P01" | "55P03" | "57014" | "53300" | "53200" => Fault::Broken(message.to_owned()),
            code if code.starts_with("57") || code.starts_with("08") || code.starts_with("58") => {
                Fault::Broken(message.to_owned())
            }
            _ => Fault::Foreign(format!("{message} ({code})")),
        }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        if let Some(answer) = error.as_db_error() {
            return Fault::of_answer(
                answer.code().code(),
                answer.message(),
                answer.detail().unwrap_or_default(),
                answer.hint().unwrap_or_default(),
            );
        }
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let text = format!("{error}{source}");
        // Everything that has to do with the wire, but for values that could not be read or written.
        let foreign =
            text.contains("deserializ") || text.contains("serializ") || text.contains("number of columns");
        if foreign { Fault::Foreign(text) } else { Fault::Broken(text) }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Fault {
        match error {
            PoolError::Backend(error) => match error.code() {
                Some(code) if is_misconfigured(code) => {
                    // The driver's own text is only that there is an answer, not which.
                    let why = error
                        .as_db_error()
                        .map_or_else(|| error.to_string(), |answer| answer.message().into());
                    Fault::Refused(
                        Error::new(ErrorKind::Invalid, format!("PostgreSQL refused the connection: {why}"))
                            .with_hint("see whether user, password and database of the URL are right"),
                    )
                }
                _ => Fault::from(error),
            },
            other => Fault::Broken(other.to_string()),
        }
    }
}

/// What no waiting will help.
fn is_misconfigured(code: &SqlState) -> bool {
    [
        &SqlState::INVALID_PASSWORD,
        &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        &SqlState::INVALID_CATALOG_NAME,
    ]
    .contains(&code)
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Refused(error)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Refused(error) => error.fmt(f),
            Fault::LeaseLost => f.write_str("a lease was lost"),
            Fault::HolderLives => f.write_str("the holder lives"),
            Fault::HolderGone => f.write_str("the holder is gone"),
            Fault::NotAgain(_) => f.write_str("nothing may be claimed again"),
            Fault::Changed => f.write_str("it has changed meanwhile"),
            Fault::Known => f.write_str("the id is there already"),
            Fault::Broken(what) | Fault::Unnamed(what) | Fault::Foreign(what) => f.write_str(what),
        }
    }
}
