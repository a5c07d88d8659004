//! Our own trouble: what was attempted, why it did not work, and what to do about it.
//!
//! A job's trouble is a [`Failure`](crate::Failure), which is deliberately another type.

use std::fmt;

/// Something Redrive could not do. Nothing was changed by it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of anything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The situation, to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such job, queue or policy.
    NotFound,
    /// It is there already, or is not in a state in which this can be done.
    Conflict,
    /// The attempt is no longer ours to settle.
    LeaseLost,
    /// The input cannot be accepted as it is.
    Invalid,
    /// The queue is at its capacity.
    Full,
    /// The disk has no room.
    DiskFull,
    /// The store may not be written to.
    ReadOnly,
    /// Another process holds the store.
    InUse,
    /// The store was written by a newer version.
    Newer,
    /// The store does not answer; trying again may help.
    Unavailable,
    /// What was read is not what was written.
    Corrupt,
}

impl ErrorKind {
    /// The code under which it is documented and reported.
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "RETRY_NOT_FOUND",
            ErrorKind::Conflict => "RETRY_CONFLICT",
            ErrorKind::LeaseLost => "LEASE_LOST",
            ErrorKind::Invalid => "RETRY_INVALID",
            ErrorKind::Full => "RETRY_QUEUE_FULL",
            ErrorKind::DiskFull => "RETRY_DISK_FULL",
            ErrorKind::ReadOnly => "RETRY_READ_ONLY",
            ErrorKind::InUse => "RETRY_STORE_IN_USE",
            ErrorKind::Newer => "RETRY_STORE_NEWER",
            ErrorKind::Unavailable => "RETRY_STORE_UNAVAILABLE",
            ErrorKind::Corrupt => "RETRY_CORRUPT",
        }
    }
}

impl Error {
    /// An error of this kind, saying what was attempted and why it failed.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: None, source: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message).with_hint(hint)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// The situation.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the same call may work later without anyone doing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::DiskFull | ErrorKind::Full)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
