//! Why a download did not work, and what class of failure that is.

use std::fmt;
use std::io;
use std::time::Duration;

use redrive::{Class, Failure, span};

use super::hosts::Later;
use crate::egress::{EgressError, EgressErrorKind, Response};
use crate::executor::{refused, unanswered};

/// Why a try of a download did not bring the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum DownloadError {
    /// There was no answer, or it broke off.
    Egress(EgressError),
    /// The far side said no.
    Refused(
        /// With its status, what it said, and perhaps when to come back.
        Failure,
    ),
    /// It stopped sending, or sends next to nothing.
    Stalled {
        /// For so long.
        waited: Duration,
    },
    /// A continuation that is none: of another place, or of another file.
    WrongRange {
        /// What it said to send.
        said: String,
    },
    /// It came packed although it was asked for as it is.
    Encoded {
        /// How.
        how: String,
    },
    /// Not as many bytes came as were announced.
    WrongLength {
        /// As many were announced.
        announced: u64,
        /// As many came.
        came: u64,
    },
    /// All of it came and is not what was expected. What came is thrown away.
    Checksum {
        /// The SHA-256 that came.
        found: String,
        /// The SHA-256 that was expected.
        expected: String,
    },
    /// It is larger than it may be.
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// It would not leave enough room on the disk.
    DiskFull {
        /// How much is missing.
        missing: u64,
    },
    /// There is a file of this name already.
    Exists {
        /// Its name.
        name: String,
    },
    /// Another process is downloading the same.
    Busy {
        /// Its name.
        name: String,
    },
    /// The URL, a header or the checksum cannot be used.
    Invalid(
        /// Why.
        String,
    ),
    /// The file cannot be written.
    Disk(io::Error),
}

impl DownloadError {
    /// The failure that it is: whether it is tried again, and with which code.
    pub fn failure(self) -> Failure {
        let message = self.to_string();
        match self {
            DownloadError::Egress(error) => {
                let failure = unanswered(error);
                // A download changes nothing on the far side, so whether it was sent does not matter.
                match failure.class {
                    Class::UnknownOutcome => Failure::from_code(
                        failure.code.unwrap_or_else(|| "NETWORK_ERROR".into()),
                        failure.message,
                    ),
                    _ => failure,
                }
            }
            DownloadError::Refused(failure) => failure,
            DownloadError::Stalled { .. } => Failure::from_code("TIMEOUT", message),
            DownloadError::WrongRange { .. } => Failure::retry(message).code("WRONG_RANGE"),
            DownloadError::WrongLength { .. } => Failure::retry(message).code("WRONG_LENGTH"),
            DownloadError::Checksum { .. } => Failure::retry(message).code("CHECKSUM_MISMATCH"),
            DownloadError::DiskFull { .. } => Failure::retry(message).code("DISK_FULL"),
            DownloadError::Busy { .. } => Failure::retry(message).code("IN_USE"),
            DownloadError::Encoded { .. } => Failure::permanent(message).code("ENCODED"),
            DownloadError::TooLarge { .. } => Failure::permanent(message).code("TOO_LARGE"),
            DownloadError::Exists { .. } => Failure::permanent(message).code("FILE_EXISTS"),
            DownloadError::Invalid(_) => Failure::permanent(message).code("INVALID_URL"),
            DownloadError::Disk(error) => Failure::from_error(&error),
        }
    }

    /// What kind of trouble it is.
    pub fn class(self) -> Class {
        self.failure().class
    }

    /// The far side said no, in this answer.
    pub(super) fn refused(host: &str, response: &Response, now: redrive::Timestamp) -> DownloadError {
        if response.status.is_redirection() {
            let status = response.status.as_u16();
            let message = format!("{host} answered {status} and points elsewhere too often");
            return DownloadError::Refused(Failure::permanent(message).status(status));
        }
        let failure = refused(host, response, now);
        // Whoever downloads may read what the far side wrote.
        let message = failure.in_full().into_owned();
        DownloadError::Refused(Failure { message, detail: None, ..failure })
    }

    /// When the far side wants to be asked again and by whom, if it said so and it makes sense to.
    pub(super) fn later(&self) -> Option<(Duration, Later)> {
        let DownloadError::Refused(failure) = self else { return None };
        let whom = match failure.class {
            Class::Transient => Later::Asker,
            Class::RateLimited => Later::Everybody,
            _ => return None,
        };
        failure.retry_after.map(|wait| (wait, whom))
    }

    /// Whether what is there may be continued when something new has come: the transfer broke, nothing else is wrong.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            DownloadError::Egress(error) => {
                matches!(error.kind(), EgressErrorKind::Reset | EgressErrorKind::TimedOutSent)
            }
            DownloadError::Stalled { .. } | DownloadError::WrongLength { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for DownloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DownloadError::Egress(error) => error.fmt(f),
            DownloadError::Refused(failure) => failure.fmt(f),
            DownloadError::Stalled { waited } => {
                write!(f, "next to nothing came for {}", span::format(*waited))
            }
            DownloadError::WrongRange { said } => {
                write!(f, "asked to go on where it was, the far side sent something else ({said})")
            }
            DownloadError::Encoded { how } => {
                write!(f, "it came packed ({how}) although it was asked for as it is")
            }
            DownloadError::WrongLength { announced, came } => {
                write!(f, "{announced} bytes were announced and {came} came")
            }
            DownloadError::Checksum { found, expected } => {
                write!(f, "its SHA-256 is {found}, not {expected}; what came was thrown away")
            }
            DownloadError::TooLarge { limit } => write!(f, "it is larger than {limit} bytes"),
            DownloadError::DiskFull { missing } => {
                write!(f, "it does not fit: {missing} bytes are missing on the disk; make room")
            }
            DownloadError::Exists { name } => {
                write!(f, "there is a file {name} already; move it away, or allow overwriting")
            }
            DownloadError::Busy { name } => write!(f, "another process is downloading {name}"),
            DownloadError::Invalid(why) => f.write_str(why),
            DownloadError::Disk(error) => write!(f, "the file cannot be written: {error}"),
        }
    }
}

impl std::error::Error for DownloadError {}

impl From<EgressError> for DownloadError {
    fn from(error: EgressError) -> DownloadError {
        DownloadError::Egress(error)
    }
}

impl From<io::Error> for DownloadError {
    fn from(error: io::Error) -> DownloadError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                DownloadError::DiskFull { missing: 1 }
            }
            _ => DownloadError::Disk(error),
        }
    }
}
