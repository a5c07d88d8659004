#![doc = include_str!("../README.md")]

// The model: values and pure functions. No clock, no I/O, no chance of their own.
pub mod classify;
mod clock;
mod error;
mod fingerprint;
mod forecast;
mod gate;
mod job;
mod machine;
mod operate;
mod outcome;
mod policy;
mod queue;
pub mod span;
mod stats;
mod workflow;

// Where jobs live.
mod store;
pub mod tx;

// What runs them.
mod engine;
mod fallback;
mod inline;
#[cfg(feature = "testing")]
pub mod sim;
#[cfg(feature = "testing")]
pub mod testing;

pub use classify::{By, On, Rule, Verdict, explain};
pub use clock::{Clock, Rng, Timestamp};
pub use engine::{
    Applied, Attempt, Builder, Connectivity, Engine, Event, ExecutionDetail, Handler, Happening, LEASE_MAX,
    Lending,
};
pub use error::{Error, ErrorKind, Result};
pub use fallback::{Fallback, Found};
pub use forecast::{Forecast, forecast};
pub use gate::{
    Blame, Change, Gate, HOLDS_MAX, Learned, Limits, PROBE_PATIENCE, Phase, Rate, Report, Rules, Seen, Why,
    Word, pattern_matches, pattern_problem,
};
pub use inline::{Attempted, INLINE_TRIES_MAX, INLINE_WAIT_MAX};
pub use job::{
    AttemptRecord, DEFAULT_QUEUE, Ending, Extras, Job, JobId, Json, Ledger, NewJob, OnConflict, Payload,
    Reason, State, StateName,
};
pub use machine::{
    Admission, Command, LABELS_MAX, NAME_BYTES_MAX, OUTPUT_BYTES_MAX, PAYLOAD_BYTES_MAX, SNOOZES_MAX, Steer,
    Transition, UNHANDLED_DELAY, admit, settle, steer,
};
pub use operate::{
    AUDIT_MAX, Audit, AuditFilter, Edit, EditRecord, MINUTE, NOTICES_MAX, Notice, Point, SERIES_KEPT,
    Setting, Steps, Turn,
};
pub use outcome::{Class, Failure, IntoOutcome, Outcome, Output};
pub use policy::{
    Ask, Backoff, Decision, Delay, GiveUp, Jitter, JitterKind, Limit, Origin, OverCap, Policy, RetryAfter,
    Then,
};
// For the server, which guesses at its own words.
#[doc(hidden)]
pub use policy::closest;
pub use queue::{CONCURRENCY_DEFAULT, CONCURRENCY_MAX, OnRetry, Order, Queue, Retention};
pub use span::{days, hours, millis, mins, secs};
pub use stats::{ACTIVITY_MAX, Activity, TREND_PARTS, Tally, Trend, What};
pub use store::{
    Again, CALLS_KEPT, Call, Claim, ClaimId, Claimed, Destination, Destinations, Ended, Enqueued, Expired,
    Expiry, Filter, Group, HolderId, How, JobDetail, Kinds, Lease, MemoryStore, Observed, Operations,
    PAGE_MAX, Page, Paged, QueueCounts, Renewal, Schema, Settled, Settlement, Store, Want,
};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use store::{Finding, Severity};
#[cfg(feature = "postgres")]
pub use store::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use store::{SqliteOptions, SqliteStore};

pub use workflow::{EXECUTION, Execution, Inputs, NODE_LABEL, NODES_MAX, Node, RETRIED_LABEL, Workflow};

/// The code in the guides and the concepts is compiled and run as the README's is.
#[cfg(all(doctest, feature = "sqlite", feature = "testing"))]
mod pages {
    #[doc = include_str!("../../../docs/concepts/policies.md")]
    mod policies {}
    #[doc = include_str!("../../../docs/concepts/destinations.md")]
    mod destinations {}
    #[doc = include_str!("../../../docs/concepts/queues-and-order.md")]
    mod queues {}
    #[doc = include_str!("../../../docs/guides/in-process.md")]
    mod in_process {}
    #[doc = include_str!("../../../docs/guides/operating.md")]
    mod operating {}
    #[cfg(all(feature = "tx-tokio-postgres", feature = "tx-sqlx", feature = "tx-diesel"))]
    #[doc = include_str!("../../../docs/guides/own-transaction.md")]
    mod own_transaction {}
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../../docs/guides/postgres.md")]
    mod postgres {}
    #[doc = include_str!("../../../docs/guides/testing.md")]
    mod testing {}
    #[doc = include_str!("../../../docs/guides/workflows.md")]
    mod workflows {}
}
