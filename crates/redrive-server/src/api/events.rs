//! What happens, as it happens: a stream of server-sent events.
//!
//! A `snapshot` says how everything stands: at once, and then whenever it has changed, at most once a second. Between
//! them come `jobs`: what happened, a batch at a time; `destination`: one was shut, or goes again; and `notice`: what
//! somebody is to be told. Where several servers share a store, each tells the others through it, so that it does not matter which of them is listened to, and whoever
//! comes back with `Last-Event-ID` to another of them is given what it has missed, as long as that is remembered.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use http::HeaderMap;
use redrive::{Change, Engine, Event, Notice, Rng, Timestamp};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{broadcast, watch};

use super::Api;
use super::answer::Refused;
use super::destinations::Standing;
use super::stats::totals;
use crate::door::{Refusal, Scope, Who};

/// Events of one batch are collected for this long.
const BATCH_EVERY: Duration = Duration::from_millis(100);
/// How often to hear what other servers tell.
const HEAR_EVERY: Duration = Duration::from_millis(250);
/// Events of one batch; what is more is only counted.
const BATCH_MAX: usize = 200;
/// Batches that are remembered for those who come back.
const REMEMBERED: usize = 1_000;
/// How often to look whether a snapshot has changed.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);
/// So that a connection without news is not taken for a broken one.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// What happened within a moment, as it is sent.
#[derive(Debug)]
struct Batch {
    number: u64,
    body: String,
}

impl Batch {
    /// What it tells of, which the beginning of its text says: it may come from another server.
    fn event(&self) -> &'static str {
        if self.body.starts_with("{\"destination\"") { "destination" } else { "jobs" }
    }
}

/// As it is written: what became of a destination. Its name stands first.
#[derive(Serialize)]
struct Changed<'a> {
    destination: &'a str,
    state: Standing,
    at: Timestamp,
    message: String,
}

/// As it is written.
#[derive(Serialize)]
struct Written<'a> {
    jobs: &'a [Event],
    /// How many more there were.
    more: usize,
}

/// What a listener is told.
#[derive(Clone, Debug)]
enum News {
    Batch(Arc<Batch>),
    Notice(Arc<Notice>),
}

/// Collects what happens, once for all who listen.
pub(super) struct Hub {
    /// Where numbers come from: this process, or the store that several share.
    name: String,
    engine: Engine,
    remembered: Mutex<VecDeque<Arc<Batch>>>,
    news: broadcast::Sender<News>,
}

impl Hub {
    /// Collects for as long as anybody holds it.
    pub(super) fn start(engine: &Engine) -> Arc<Hub> {
        let name = match engine.is_shared() {
            true => "s".to_owned(),
            false => format!("{:x}", Rng::from_os().next_u64()),
        };
        let news = broadcast::Sender::new(256);
        let hub = Arc::new(Hub { name, engine: engine.clone(), remembered: Mutex::default(), news });
        tokio::spawn(collect(Arc::downgrade(&hub), engine.events()));
        tokio::spawn(watch_gates(Arc::downgrade(&hub), engine.gate_changes()));
        if engine.is_shared() {
            tokio::spawn(hear(Arc::downgrade(&hub)));
        }
        hub
    }

    /// Something that somebody is to be told.
    pub(super) fn notice(&self, notice: Notice) {
        // Nobody listening is no error.
        drop(self.news.send(News::Notice(Arc::new(notice))));
    }

    /// What happened here, to all who listen anywhere.
    async fn tell(&self, news: &impl Serialize) {
        let body = serde_json::to_string(news).unwrap_or_default();
        if self.engine.is_shared() {
            if let Err(error) = self.engine.tell(&body).await {
                tracing::debug!(%error, "Those who listen were not told; the next snapshot makes up for it");
            }
            return;
        }
        self.pass_on(None, body);
    }

    /// Under the number it was told with, or the next.
    fn pass_on(&self, number: Option<u64>, body: String) {
        let mut remembered = self.lock();
        let number = number.unwrap_or_else(|| remembered.back().map_or(1, |last| last.number + 1));
        let batch = Arc::new(Batch { number, body });
        remembered.push_back(batch.clone());
        if remembered.len() > REMEMBERED {
            remembered.pop_front();
        }
        drop(self.news.send(News::Batch(batch)));
    }

    /// What happens from now on; and what has happened since the event with this id, if all of it is remembered.
    async fn listen(&self, last: Option<&str>) -> (Option<Vec<Arc<Batch>>>, broadcast::Receiver<News>) {
        let news = self.news.subscribe();
        let last = last.and_then(|id| id.strip_prefix(&format!("{}-", self.name))?.parse::<u64>().ok());
        let Some(last) = last else { return (None, news) };
        if self.engine.is_shared() {
            return (self.missed(last).await.unwrap_or_default(), news);
        }
        let remembered = self.lock();
        let is_whole = remembered.front().is_none_or(|first| first.number <= last + 1);
        let missed = remembered.iter().filter(|batch| batch.number > last).cloned().collect();
        (is_whole.then_some(missed), news)
    }

    /// The same where several servers share a store.
    async fn missed(&self, last: u64) -> redrive::Result<Option<Vec<Arc<Batch>>>> {
        let place = i64::try_from(last).unwrap_or(i64::MAX);
        let (oldest, newest) = self.engine.told_range().await?;
        if place > newest || oldest > place.saturating_add(1) {
            return Ok(None);
        }
        let told = self.engine.told(place, usize::MAX).await?;
        Ok(Some(
            told.into_iter().map(|(place, body)| Arc::new(Batch { number: number(place), body })).collect(),
        ))
    }

    fn event(&self, batch: &Batch) -> sse::Event {
        let id = format!("{}-{}", self.name, batch.number);
        sse::Event::default().event(batch.event()).id(id).data(&batch.body)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Batch>>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(place: i64) -> u64 {
    place.unsigned_abs()
}

/// Passes on what becomes of destinations, each change by itself: there are few.
async fn watch_gates(hub: Weak<Hub>, mut changes: broadcast::Receiver<Change>) {
    loop {
        let change = match changes.recv().await {
            Ok(change) => change,
            Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        let Some(hub) = hub.upgrade() else { return };
        let state = Standing::of(&change.after, change.paused, change.at);
        let message = change.to_string();
        hub.tell(&Changed { destination: &change.destination, state, at: change.at, message }).await;
    }
}

/// Looks at the end of each moment what has happened in it: to be woken by every event would cost a busy server more than
/// the events do.
async fn collect(hub: Weak<Hub>, mut events: broadcast::Receiver<Event>) {
    let mut tick = tokio::time::interval(BATCH_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(hub) = hub.upgrade() else { return };
        let (mut jobs, mut more) = (Vec::new(), 0);
        for _ in 0..events.len() {
            match events.try_recv() {
                Ok(event) if jobs.len() < BATCH_MAX => jobs.push(event),
                Ok(_) => more += 1,
                Err(broadcast::error::TryRecvError::Lagged(missed)) => {
                    more += usize::try_from(missed).unwrap_or(usize::MAX);
                }
                Err(broadcast::error::TryRecvError::Empty) => break,
                Err(broadcast::error::TryRecvError::Closed) => return,
            }
        }
        if !jobs.is_empty() || more > 0 {
            hub.tell(&Written { jobs: &jobs, more }).await;
        }
    }
}

/// Passes on what all servers of the store tell.
async fn hear(hub: Weak<Hub>) {
    let mut last = None;
    let mut tick = tokio::time::interval(HEAR_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(hub) = hub.upgrade() else { return };
        let heard = match last {
            None => hub.engine.told_range().await.map(|(_, newest)| (newest, Vec::new())),
            Some(place) => hub.engine.told(place, REMEMBERED).await.map(|told| (place, told)),
        };
        match heard {
            Ok((place, told)) => {
                last = Some(told.last().map_or(place, |(place, _)| *place));
                told.into_iter().for_each(|(place, body)| hub.pass_on(Some(number(place)), body));
            }
            Err(error) => tracing::debug!(%error, "Other servers are not heard for the moment"),
        }
    }
}

/// What happens, as it happens.
#[utoipa::path(get, path = "/events", operation_id = "streamEvents", tag = "operations", responses(
    (status = 200, body = str, content_type = "text/event-stream", description = "Events `snapshot`, `jobs`, `destination` and `notice`"),
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
    let (missed, news) = hub.listen(last).await;
    let waiting: VecDeque<Arc<Batch>> = missed.iter().flatten().cloned().collect();
    let told = snapshot(&state, last.is_some() && missed.is_none()).await?;
    let mut look = tokio::time::interval(SNAPSHOT_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let teller = Teller { api: state.0.clone(), hub, news, waiting, sent: 0, told: String::new(), look };
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
    news: broadcast::Receiver<News>,
    /// What was missed, oldest first.
    waiting: VecDeque<Arc<Batch>>,
    /// The last batch that was sent.
    sent: u64,
    /// The last snapshot.
    told: String,
    look: tokio::time::Interval,
}

impl Teller {
    async fn next(&mut self) -> sse::Event {
        if let Some(batch) = self.waiting.pop_front() {
            self.sent = batch.number;
            return self.hub.event(&batch);
        }
        loop {
            tokio::select! { biased;
                news = self.news.recv() => match news {
                    // What was missed may come a second time, now that it is heard here too.
                    Ok(News::Batch(batch)) if batch.number <= self.sent => {}
                    Ok(News::Batch(batch)) => return self.hub.event(&batch),
                    Ok(News::Notice(notice)) => {
                        return sse::Event::default().event("notice").json_data(&*notice).unwrap_or_default();
                    }
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
