//! Making an [`Engine`]: everything is checked before it is there, and all mistakes are named at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::broadcast;

#[cfg(feature = "testing")]
use super::CrashPlan;
use super::destinations::Known;
use super::handler::{Handler, Registry};
use super::{EVENTS_MAX, Engine, Ids, Inner};
use crate::clock::{Clock, Rng, Timestamp};
use crate::error::{Error, Result};
use crate::gate::{Limits, Rules, pattern_problem};
use crate::job::{DEFAULT_QUEUE, Payload};
use crate::queue::{Queue, Retention};
use crate::store::Store;
use crate::workflow::EXECUTION;

/// Makes an [`Engine`].
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Clock,
    rng: Rng,
    queues: BTreeMap<Arc<str>, Queue>,
    handlers: Registry,
    lease: Duration,
    grace: Duration,
    retention: Retention,
    name: Option<String>,
    rules: Rules,
    problems: Vec<String>,
    #[cfg(feature = "testing")]
    crash: CrashPlan,
}

impl Builder {
    pub(super) fn new(store: Arc<dyn Store>) -> Builder {
        Builder {
            clock: store.clock(),
            store,
            rng: Rng::from_os(),
            queues: BTreeMap::from([(DEFAULT_QUEUE.into(), Queue::new(DEFAULT_QUEUE))]),
            handlers: Registry::new(),
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(30),
            retention: Retention::default(),
            name: None,
            rules: Rules::default(),
            problems: Vec::new(),
            #[cfg(feature = "testing")]
            crash: CrashPlan::default(),
        }
    }

    /// A queue to serve and to enqueue into. The queue `default` is there without being named.
    #[must_use]
    pub fn queue(mut self, queue: Queue) -> Builder {
        self.problems.extend(queue.problems());
        self.queues.insert(queue.name.clone(), queue);
        self
    }

    /// What the destinations that match may be asked to bear: a name, or a pattern such as `*.example.org`.
    #[must_use]
    pub fn destination(mut self, pattern: impl Into<String>, limits: Limits) -> Builder {
        let pattern = pattern.into();
        let problems = pattern_problem(&pattern).into_iter().chain(limits.problems());
        self.problems.extend(problems.map(|problem| format!("destination {pattern:?}: {problem}")));
        self.rules.set(pattern, Some(limits));
        self
    }

    /// What runs jobs of a kind, which comes from the argument's type: an async function of an [`Attempt`], a
    /// closure that captures what it needs, or a type that implements [`Handler`].
    #[must_use]
    pub fn handle<P: Payload>(mut self, handler: impl Handler<P>) -> Builder {
        if !self.handlers.add(handler) {
            self.problems
                .push(format!("kind {:?}: two handlers; give one of the payloads another KIND", P::KIND));
        }
        self
    }

    /// Jobs of this kind are enqueued here and run elsewhere.
    #[must_use]
    pub fn produce<P: Payload>(mut self) -> Builder {
        self.handlers.produce(P::KIND);
        self
    }

    /// Jobs of any kind may be enqueued here: other engines run them, or workers that lease them. This engine then
    /// claims only what it has handlers for.
    #[must_use]
    pub fn produce_any(mut self) -> Builder {
        self.handlers.produce_any();
        self
    }

    /// The clock. Default: the store's, which is the system's unless a database has its own.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// The seed of ids. Default: from the operating system.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Builder {
        self.rng = Rng::seeded(seed);
        self
    }

    /// How long after this process has died its jobs go to another; renewed at a third of it. Default 30 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Builder {
        self.lease = lease;
        self
    }

    /// How long a shutdown waits for what runs. Default 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Builder {
        self.grace = grace;
        self
    }

    /// How long finished jobs are kept.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Builder {
        self.retention = retention;
        self
    }

    /// What this instance is called where its leases are shown.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Dies at this point, as if the process had been killed.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn crash(mut self, crash: CrashPlan) -> Builder {
        self.crash = crash;
        self
    }

    /// Checks everything, and names all mistakes at once.
    pub fn build(mut self) -> Result<Engine> {
        let second = Duration::from_secs(1);
        if self.lease < second || self.lease > 24 * 3600 * second {
            self.problems.push(format!("lease is {:?}; write 1 s to 24 h", self.lease));
        }
        if !self.handlers.add_executions() {
            self.problems
                .push(format!("kind {EXECUTION:?} is that of executions; give the payload another KIND"));
        }
        if !self.problems.is_empty() {
            return Err(Error::invalid("the engine was not built", self.problems.join("; ")));
        }
        let ids = Ids { rng: self.rng, last: Timestamp::EPOCH, count: 0 };
        let inner = Inner {
            store: self.store,
            clock: self.clock,
            queues: self.queues,
            kinds: self.handlers.claimed_kinds(),
            handlers: self.handlers,
            known: Known::new(self.rules),
            events: broadcast::Sender::new(EVENTS_MAX),
            ids: Mutex::new(ids),
            desks: Mutex::default(),
            lease: self.lease,
            grace: self.grace,
            retention: self.retention,
            name: self.name.unwrap_or_else(|| format!("process {}", std::process::id())),
            #[cfg(feature = "testing")]
            crash: self.crash,
        };
        Ok(Engine { inner: Arc::new(inner), asked: None })
    }
}
