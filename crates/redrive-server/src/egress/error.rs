//! Why a request has no answer, and whether the far side may have seen it.

use std::error::Error;
use std::fmt;

/// How far a request came before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EgressErrorKind {
    /// The address is not one this server may reach.
    Refused,
    /// The URL or a header is not one that can be sent.
    Invalid,
    /// The name has no address, or the resolver did not answer.
    Resolve,
    /// No connection could be made.
    Connect,
    /// There was a connection and no trust: a wrong certificate, or no common version of TLS.
    Tls,
    /// Time was over before a byte of the request went out.
    TimedOutUnsent,
    /// The request went out and time was over before its answer was complete. Nobody knows whether it was acted upon.
    TimedOutSent,
    /// The request went out and the connection broke, or what came back was no HTTP.
    Reset,
    /// The head of the answer is larger than may be read, so that not even its status is known.
    TooLarge,
}

/// Why a request has no answer.
#[derive(Debug)]
pub struct EgressError {
    kind: EgressErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl EgressError {
    pub(super) fn new(kind: EgressErrorKind, message: impl Into<String>) -> EgressError {
        EgressError { kind, message: message.into(), source: None }
    }

    pub(super) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> EgressError {
        self.source = Some(source.into());
        self
    }

    /// How far it came.
    pub fn kind(&self) -> EgressErrorKind {
        self.kind
    }

    /// Whether the far side may have received the request, in whole or in part, and acted upon it.
    pub fn was_sent(&self) -> bool {
        match self.kind {
            EgressErrorKind::Refused
            | EgressErrorKind::Invalid
            | EgressErrorKind::Resolve
            | EgressErrorKind::Connect
            | EgressErrorKind::Tls
            | EgressErrorKind::TimedOutUnsent => false,
            EgressErrorKind::TimedOutSent | EgressErrorKind::Reset | EgressErrorKind::TooLarge => true,
        }
    }
}

impl fmt::Display for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for EgressError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
