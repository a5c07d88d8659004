//! What happens, as it happens: a stream of server-sent events.
//!
//! A `snapshot` says how everything stands: at once, and then whenever it has changed, at most once a second. It is read
//! from the store, so it is right with any number of servers. Between them come `jobs`: what happened on this server, a
//! batch at a time. Whoever comes back with `Last-Event-ID` is given what it has missed, as long as that is remembered.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use http::HeaderMap;
use redrive::{Engine, Event, Rng};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{broadcast, watch};

use super::Api;
use super::answer::Refused;
use super::stats::totals;
use crate::door::{Refusal, Scope, Who};

/// Events of one batch are collected for this long.
const BATCH_EVERY: Duration = Duration::from_millis(100);
/// Events of one batch; what is more is only counted.
const BATCH_MAX: usize = 200;
/// Batches that are remembered for those who come back.
const REMEMBERED: usize = 1_000;
/// How often to look whether a snapshot has changed.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);
/// So that a connection without news is not taken for a broken one.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// What happened within a moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Batch {
    #[serde(skip)]
    number: u64,
    jobs: Vec<Event>,
    /// How many more there were.
    more: usize,
}

/// Collects what happens, once for all who listen.
pub(super) struct Hub {
    /// Unlike any other process's.
    name: u64,
    remembered: Mutex<VecDeque<Arc<Batch>>>,
    batches: broadcast::Sender<Arc<Batch>>,
}

impl Hub {
    /// Collects for as long as anybody holds it.
    pub(super) fn start(engine: &Engine) -> Arc<Hub> {
        let name = Rng::from_os().next_u64();
        let hub = Arc::new(Hub { name, remembered: Mutex::default(), batches: broadcast::Sender::new(256) });
        tokio::spawn(collect(Arc::downgrade(&hub), engine.events()));
        hub
    }

    fn tell(&self, jobs: Vec<Event>, more: usize) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let number = remembered.back().map_or(1, |last| last.number + 1);
        let batch = Arc::new(Batch { number, jobs, more });
        remembered.push_back(batch.clone());
        if remembered.len() > REMEMBERED {
            remembered.pop_front();
        }
        // Nobody listening is no error.
        drop(self.batches.send(batch));
    }

    /// What has happened since, if all of it is remembered; and what happens from now on.
    fn listen(&self, last: Option<&str>) -> (Option<Vec<Arc<Batch>>>, broadcast::Receiver<Arc<Batch>>) {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = self.batches.subscribe();
        let last = last.and_then(|id| id.strip_prefix(&format!("{:x}-", self.name))?.parse::<u64>().ok());
        let missed = last.filter(|last| remembered.front().is_none_or(|first| first.number <= last + 1));
        let missed = missed
            .map(|last| remembered.iter().filter(|batch| batch.number > last).cloned().collect::<Vec<_>>());
        (missed, receiver)
    }

    fn event(&self, batch: &Batch) -> sse::Event {
        let event = sse::Event::default().event("jobs").id(format!("{:x}-{}", self.name, batch.number));
        event.json_data(batch).unwrap_or_default()
    }
}

async fn collect(hub: Weak<Hub>, mut events: broadcast::Receiver<Event>) {
    let (mut jobs, mut more) = (Vec::new(), 0);
    let mut tick = tokio::time::interval(BATCH_EVERY);
    loop {
        tokio::select! { biased;
            _ = tick.tick() => {
                let Some(hub) = hub.upgrade() else { return };
                if !jobs.is_empty() || more > 0 {
                    hub.tell(std::mem::take(&mut jobs), std::mem::take(&mut more));
                }
            }
            event = events.recv() => match event {
                Ok(event) if jobs.len() < BATCH_MAX => jobs.push(event),
                Ok(_) => more += 1,
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    more += usize::try_from(missed).unwrap_or(usize::MAX);
                }
                Err(broadcast::error::RecvError::Closed) => return,
            },
        }
    }
}

/// What happens, as it happens.
#[utoipa::path(get, path = "/events", operation_id = "streamEvents", tag = "operations", responses(
    (status = 200, body = str, content_type = "text/event-stream", description = "Events `snapshot` and `jobs`"),
    (status = "4XX", body = Refused),
    (status = 503, body = Refused),
))]
pub(super) async fn events(
    state: State<Api>,
    who: Who,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refusal> {
    who.need(Scope::Read)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let hub = state.inner.hub.clone();
    let (missed, batches) = hub.listen(last);
    let waiting: VecDeque<sse::Event> = missed.iter().flatten().map(|batch| hub.event(batch)).collect();
    let told = snapshot(&state, last.is_some() && missed.is_none()).await?;
    let mut look = tokio::time::interval(SNAPSHOT_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let teller = Teller { api: state.0.clone(), hub, batches, waiting, told: String::new(), look };
    let first = sse::Event::default().event("snapshot").data(told);
    let rest = stream::unfold(teller, |mut teller| async move {
        let event = tokio::select! { biased;
            () = stopping(teller.api.inner.stopping.clone()) => return None,
            event = teller.next() => event,
        };
        Some((Ok(event), teller))
    });
    let stream = stream::StreamExt::chain(stream::iter([Ok(first)]), rest);
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(HEARTBEAT_EVERY)))
}

/// Resolves when the server stops.
async fn stopping(stopping: Option<watch::Receiver<bool>>) {
    match stopping {
        Some(mut stopping) => stopping.wait_for(|stops| *stops).await.map(|_| ()).unwrap_or(()),
        None => std::future::pending().await,
    }
}

/// Tells one listener.
struct Teller {
    api: Api,
    hub: Arc<Hub>,
    batches: broadcast::Receiver<Arc<Batch>>,
    waiting: VecDeque<sse::Event>,
    /// The last snapshot.
    told: String,
    look: tokio::time::Interval,
}

impl Teller {
    async fn next(&mut self) -> sse::Event {
        if let Some(event) = self.waiting.pop_front() {
            return event;
        }
        loop {
            tokio::select! { biased;
                batch = self.batches.recv() => match batch {
                    Ok(batch) => return self.hub.event(&batch),
                    // The next snapshot makes up for it.
                    Err(broadcast::error::RecvError::Lagged(_)) => self.told.clear(),
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
                _ = self.look.tick() => {
                    if let Ok(now) = snapshot(&self.api, false).await && now != self.told {
                        self.told.clone_from(&now);
                        return sse::Event::default().event("snapshot").data(now);
                    }
                }
            }
        }
    }
}

/// How everything stands, as text.
async fn snapshot(api: &Api, missed: bool) -> Result<String, Refusal> {
    let totals = totals(api).await?;
    Ok(json!({ "stats": totals, "missed": missed }).to_string())
}
