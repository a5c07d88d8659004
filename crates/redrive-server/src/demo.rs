//! `redrive serve --demo`: flaky local destinations and a trickle of jobs, so that a newcomer sees it all at work.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use redrive::{Engine, Json, NewJob, Policy};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::serve::Server;

/// How often a job comes in.
const TRICKLE_EVERY: Duration = Duration::from_millis(700);

/// What the destinations have seen.
#[derive(Default)]
struct Seen {
    requests: AtomicU64,
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

    /// What a server must be allowed to call for it, as `egress.allow` has it: its own port and nothing else.
    pub fn egress(&self) -> String {
        format!("{}/32:{}", self.address.ip(), self.address.port())
    }

    /// Starts the destinations and the trickle. Both end when what it returns is dropped.
    pub fn start(self, server: &Server) -> JoinSet<()> {
        let Demo { listener, address } = self;
        let targets = Router::new().route("/{target}", post(answer)).with_state(Arc::new(Seen::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // Ends with the process; a demonstration has nobody to complain to.
            drop(axum::serve(listener, targets).await);
        });
        let engine = server.engine().clone();
        tasks.spawn(async move { trickle(&engine, &format!("http://{address}")).await });
        tracing::info!(%address, "Demo: flaky destinations are at work, and a job comes in every moment");
        tasks
    }
}

/// A steady one, one that often fails, one that says when to come back, one that is down half of the time, and one that
/// knows nothing.
async fn answer(seen: State<Arc<Seen>>, target: Path<String>) -> (StatusCode, HeaderMap, &'static str) {
    let count = seen.requests.fetch_add(1, Ordering::Relaxed);
    let mut headers = HeaderMap::new();
    let (status, text) = match target.as_str() {
        "steady" => (StatusCode::OK, "done"),
        "flaky" if count.is_multiple_of(3) => (StatusCode::OK, "done at last"),
        "flaky" => (StatusCode::SERVICE_UNAVAILABLE, "busy, try again"),
        "limited" if count.is_multiple_of(4) => (StatusCode::OK, "your turn"),
        "limited" => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            (StatusCode::TOO_MANY_REQUESTS, "slow down")
        }
        "down" if (count / 40) % 2 == 1 => (StatusCode::OK, "back again"),
        "down" => (StatusCode::BAD_GATEWAY, "nobody home"),
        _ => (StatusCode::NOT_FOUND, "no such thing"),
    };
    (status, headers, text)
}

async fn trickle(engine: &Engine, base: &str) {
    let targets = ["steady", "flaky", "steady", "limited", "flaky", "down", "steady", "missing"];
    let mut tick = tokio::time::interval(TRICKLE_EVERY);
    for number in 0_u64.. {
        tick.tick().await;
        let target = targets[usize::try_from(number).unwrap_or(0) % targets.len()];
        let payload =
            json!({ "method": "POST", "url": format!("{base}/{target}"), "body": { "order": number } });
        let Ok(payload) = Json::of(&payload) else { continue };
        let policy = Policy::preset("media").unwrap_or_default();
        let job = NewJob::of_kind("http", payload).policy(policy).destination(target).label("demo", target);
        if let Err(error) = engine.enqueue(job).await {
            tracing::warn!(%error, "Demo: a job was not taken");
        }
    }
}
