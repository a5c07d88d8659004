//! What is known about failures: kinds of error, codes, phrases. To teach the classifier something, add a line here and
//! an example to the tests of `classify.rs`.

use std::io::ErrorKind;

use crate::outcome::Class;

/// Words before a number that make it a status.
pub(super) const STATUS_BEFORE: &[&str] = &[
    "http",
    "https",
    "status",
    "error",
    "code",
    "statuscode",
    "status_code",
    "response",
    "returned",
    "answered",
    "got",
];

/// Words after a number that make it a status: how the reason phrases begin.
pub(super) const STATUS_AFTER: &[&str] = &[
    "bad",
    "unauthori",
    "forbidden",
    "not",
    "gone",
    "request",
    "too",
    "internal",
    "service",
    "gateway",
    "unavailable",
    "payload",
    "method",
    "client",
    "server",
    "conflict",
    "unprocessable",
];

/// Words after a number that it counts.
pub(super) const COUNTED_AFTER: &[&str] = &[
    "ms", "s", "sec", "secs", "seconds", "minutes", "bytes", "kb", "mb", "gb", "items", "rows", "jobs",
    "times", "attempts", "files", "records", "lines", "pages",
];

/// Words before a number that is somebody's.
pub(super) const NUMBERED_BEFORE: &[&str] = &[
    "job", "item", "task", "id", "order", "line", "row", "attempt", "port", "page", "record", "user",
    "article", "episode", "ticket", "issue", "number", "no", "nr", "#", "after", "invoice", "customer",
    "chunk", "part",
];

/// What certificate errors say, in any library.
pub(super) const CERTIFICATE_PHRASES: &[&str] =
    &["certificate", "x509", "unknownissuer", "unknown issuer", "self-signed"];

/// What kinds of i/o error mean, and the code they stand for.
pub(super) const IO_KINDS: &[(ErrorKind, Class, Option<&str>)] = &[
    (ErrorKind::TimedOut, Class::Transient, Some("TIMEOUT")),
    (ErrorKind::ConnectionRefused, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::ConnectionReset, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::ConnectionAborted, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::NotConnected, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::HostUnreachable, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::NetworkUnreachable, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::NetworkDown, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::BrokenPipe, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::UnexpectedEof, Class::Transient, Some("NETWORK_ERROR")),
    (ErrorKind::AddrInUse, Class::Transient, None),
    (ErrorKind::AddrNotAvailable, Class::Transient, None),
    (ErrorKind::Interrupted, Class::Transient, None),
    (ErrorKind::WouldBlock, Class::Transient, None),
    (ErrorKind::ResourceBusy, Class::Transient, None),
    (ErrorKind::ExecutableFileBusy, Class::Transient, None),
    (ErrorKind::StaleNetworkFileHandle, Class::Transient, None),
    // Somebody frees the disk, and it works.
    (ErrorKind::StorageFull, Class::Transient, None),
    (ErrorKind::QuotaExceeded, Class::Transient, None),
    (ErrorKind::OutOfMemory, Class::Transient, None),
    (ErrorKind::NotFound, Class::Permanent, Some("NOT_FOUND")),
    (ErrorKind::PermissionDenied, Class::Permanent, None),
    (ErrorKind::InvalidInput, Class::Permanent, Some("INVALID_INPUT")),
    (ErrorKind::InvalidData, Class::Permanent, Some("INVALID_INPUT")),
    (ErrorKind::InvalidFilename, Class::Permanent, Some("INVALID_INPUT")),
    (ErrorKind::AlreadyExists, Class::Permanent, None),
    (ErrorKind::NotADirectory, Class::Permanent, None),
    (ErrorKind::IsADirectory, Class::Permanent, None),
    (ErrorKind::ReadOnlyFilesystem, Class::Permanent, None),
    (ErrorKind::FileTooLarge, Class::Permanent, None),
    (ErrorKind::Unsupported, Class::Permanent, None),
];

/// What codes mean, in any case of letters.
pub(super) const CODES: &[(&str, Class)] = &[
    ("TIMEOUT", Class::Transient),
    ("NETWORK_ERROR", Class::Transient),
    ("SERVICE_DOWN", Class::Transient),
    ("DNS_ERROR", Class::Transient),
    ("RATE_LIMIT", Class::RateLimited),
    ("RATE_LIMITED", Class::RateLimited),
    ("NEEDS_AUTH", Class::NeedsAuth),
    ("UNAUTHORIZED", Class::NeedsAuth),
    ("UNKNOWN_OUTCOME", Class::UnknownOutcome),
    ("NOT_FOUND", Class::Permanent),
    ("INVALID_INPUT", Class::Permanent),
    ("INVALID_URL", Class::Permanent),
    ("SSRF_BLOCKED", Class::Permanent),
    ("NO_CONTENT", Class::Permanent),
    ("TLS_ERROR", Class::Permanent),
    // What workers in other languages get from their operating system.
    ("ETIMEDOUT", Class::Transient),
    ("ECONNREFUSED", Class::Transient),
    ("ECONNRESET", Class::Transient),
    ("ECONNABORTED", Class::Transient),
    ("EHOSTUNREACH", Class::Transient),
    ("ENETUNREACH", Class::Transient),
    ("EPIPE", Class::Transient),
    ("EAI_AGAIN", Class::Transient),
    ("ENOTFOUND", Class::Transient),
    ("ENOENT", Class::Permanent),
    ("EACCES", Class::Permanent),
];

/// Phrases that mean more than a number or a «connection» beside them. The first that matches speaks.
pub(super) const TEXTS_BEFORE_STATUS: &[(&str, Class)] = &[
    // Two that speak of TLS and mean the network.
    ("handshake timeout", Class::Transient),
    ("handshake timed out", Class::Transient),
    ("close_notify", Class::Transient),
    ("certificate", Class::Permanent),
    ("x509", Class::Permanent),
    ("unknownissuer", Class::Permanent),
    ("self-signed", Class::Permanent),
    ("tls", Class::Permanent),
    ("ssl", Class::Permanent),
    ("invalid url", Class::Permanent),
    ("malformed url", Class::Permanent),
    ("relative url without a base", Class::Permanent),
    ("unsupported protocol", Class::Permanent),
    ("unsupported scheme", Class::Permanent),
    ("connection string", Class::Permanent),
    ("ssrf", Class::Permanent),
    ("no parseable content", Class::Permanent),
    ("invalid input", Class::Permanent),
    ("rate limit", Class::RateLimited),
    ("rate-limit", Class::RateLimited),
    ("ratelimit", Class::RateLimited),
    ("too many requests", Class::RateLimited),
];

/// Phrases that mean something when nothing better is known. The first that matches speaks.
pub(super) const TEXTS: &[(&str, Class)] = &[
    ("timeout", Class::Transient),
    ("time-out", Class::Transient),
    ("timed out", Class::Transient),
    ("deadline exceeded", Class::Transient),
    ("dns", Class::Transient),
    ("lookup address", Class::Transient),
    ("name resolution", Class::Transient),
    ("getaddrinfo", Class::Transient),
    ("no such host", Class::Transient),
    ("host not found", Class::Transient),
    ("network", Class::Transient),
    ("connection", Class::Transient),
    ("reset by peer", Class::Transient),
    ("broken pipe", Class::Transient),
    ("unexpected eof", Class::Transient),
    ("temporary", Class::Transient),
    ("temporarily", Class::Transient),
    ("unavailable", Class::Transient),
    ("bad gateway", Class::Transient),
    ("unauthorized", Class::NeedsAuth),
    ("forbidden", Class::NeedsAuth),
    ("not found", Class::Permanent),
];
