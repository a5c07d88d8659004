//! `redrive serve --demo`: flaky local destinations and a trickle of jobs, so that a newcomer sees it all at work.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use redrive::{Clock, Command, Engine, Filter, Json, Limits, NewJob, Policy, StateName, Timestamp};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::config::{Config, DestinationConfig};
use crate::serve::Server;

/// How often a job comes in.
const TRICKLE_EVERY: Duration = Duration::from_millis(700);
/// Whom they are for, one after the other.
const TARGETS: [&str; 10] =
    ["steady", DOWN, "flaky", DOWN, "limited", "steady", DOWN, "flaky", "steady", "missing"];
/// The destination that has outages.
const DOWN: &str = "down";
/// What says that a job is one of the demo's.
const LABEL: &str = "demo";
/// How long an outage is, and how long it is well after each. The first is there from the beginning: within the first
/// minute it is found out, asked about, over, and worked off.
const OUTAGE: Duration = redrive::secs(15);
const WELL: Duration = redrive::secs(30);
/// After this many jobs have failed it is taken to be down: few, because few jobs come in.
const BREAKER: u32 = 3;

/// What the destinations have seen.
struct Seen {
    requests: AtomicU64,
    clock: Clock,
    since: Timestamp,
}

impl Seen {
    fn is_down(&self) -> bool {
        let passed = self.clock.now().since(self.since).as_millis();
        passed % (OUTAGE + WELL).as_millis() < OUTAGE.as_millis()
    }
}

/// A demonstration that has its port and has not begun.
pub struct Demo {
    listener: TcpListener,
    address: SocketAddr,
}

impl Demo {
    /// Takes a port for its destinations.
    ///
    /// # Errors
    ///
    /// If none is free.
    pub async fn new() -> Result<Demo> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("the demo needs a port on loopback")?;
        let address = listener.local_addr()?;
        Ok(Demo { listener, address })
    }

    /// Configures a server for it: which may call the demo's own port and nothing else, and soon finds out who is down.
    pub fn prepare(&self, config: &mut Config) {
        config.egress_allow.push(format!("{}/32:{}", self.address.ip(), self.address.port()));
        let limits = Limits { breaker: BREAKER, ..Limits::default() };
        // Before what the user has written, which holds where it says something else.
        config.destinations.insert(0, DestinationConfig { pattern: DOWN.into(), limits, health: None });
    }

    /// Starts the destinations and the trickle. Both end when what it returns is dropped.
    pub async fn start(self, server: &Server) -> JoinSet<()> {
        let Demo { listener, address } = self;
        let clock = Clock::system();
        let seen = Seen { requests: AtomicU64::new(0), since: clock.now(), clock };
        let targets = Router::new().route("/{target}", post(answer)).with_state(Arc::new(seen));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // Ends with the process; a demonstration has nobody to complain to.
            drop(axum::serve(listener, targets).await);
        });
        let engine = server.engine().clone();
        forget_the_last(&engine).await;
        tasks.spawn(async move { trickle(&engine, &format!("http://{address}")).await });
        tracing::info!(%address, "Demo: flaky destinations are at work, and a job comes in every moment");
        tasks
    }
}

/// A steady one, one that often fails, one that says when to come back, one that has outages, and one that knows nothing.
async fn answer(seen: State<Arc<Seen>>, target: Path<String>) -> (StatusCode, HeaderMap, &'static str) {
    let count = seen.requests.fetch_add(1, Ordering::Relaxed);
    let mut headers = HeaderMap::new();
    let (status, text) = match target.as_str() {
        "steady" => (StatusCode::OK, "done"),
        "flaky" if count.is_multiple_of(3) => (StatusCode::OK, "done at last"),
        "flaky" => (StatusCode::SERVICE_UNAVAILABLE, "busy, try again"),
        "limited" if !count.is_multiple_of(3) => (StatusCode::OK, "your turn"),
        "limited" => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            (StatusCode::TOO_MANY_REQUESTS, "slow down")
        }
        DOWN if seen.is_down() => (StatusCode::BAD_GATEWAY, "nobody home"),
        DOWN => (StatusCode::OK, "back again"),
        _ => (StatusCode::NOT_FOUND, "no such thing"),
    };
    (status, headers, text)
}

/// Takes back what an earlier demo has left: it is for a port that is nobody's by now.
async fn forget_the_last(engine: &Engine) {
    for target in BTreeSet::from(TARGETS) {
        let labels = BTreeMap::from([(LABEL.to_owned(), target.to_owned())]);
        let left =
            Filter { states: vec![StateName::Waiting, StateName::Running], labels, ..Filter::default() };
        if let Err(error) = engine.apply(Command::Cancel, &left).await {
            tracing::warn!(%error, "Demo: the jobs of an earlier one stay");
        }
    }
}

async fn trickle(engine: &Engine, base: &str) {
    let mut tick = tokio::time::interval(TRICKLE_EVERY);
    for number in 0_u64.. {
        tick.tick().await;
        let target = TARGETS[usize::try_from(number).unwrap_or(0) % TARGETS.len()];
        let payload =
            json!({ "method": "POST", "url": format!("{base}/{target}"), "body": { "order": number } });
        let Ok(payload) = Json::of(&payload) else { continue };
        let policy = Policy::preset("media").unwrap_or_default();
        let job = NewJob::of_kind("http", payload).policy(policy).destination(target).label(LABEL, target);
        if let Err(error) = engine.enqueue(job).await {
            tracing::warn!(%error, "Demo: a job was not taken");
        }
    }
}
