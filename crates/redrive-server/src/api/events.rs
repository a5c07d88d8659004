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
use tokio::sync::broadcast;

use super::Api;
use super::answer::Refused;
use super::destinations::Standing;
use super::stats::{Totals, totals};
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
    told: Mutex<Told>,
    news: broadcast::Sender<News>,
}

/// What was told, for those who come back.
#[derive(Default)]
struct Told {
    remembered: VecDeque<Arc<Batch>>,
    last: u64,
    /// What happens here, while anybody may want to know: to tell of every job costs more than many a job does.
    events: Option<broadcast::Receiver<Event>>,
    /// For how many batches nobody has listened.
    alone: usize,
}

impl Told {
    fn follow(&mut self, engine: &Engine) {
        self.alone = 0;
        self.events.get_or_insert_with(|| engine.events());
    }

    /// Nobody listens. When what was told to the last who did is not remembered any more, there is nothing to come back to.
    fn stay(&mut self) {
        self.alone += 1;
        if self.alone > REMEMBERED && self.events.take().is_some() {
            self.remembered.clear();
            self.last += 1;
        }
    }

    /// What has happened since the last time, and how many more.
    fn take(&mut self) -> (Vec<Event>, usize) {
        let (mut jobs, mut more) = (Vec::new(), 0);
        let Some(events) = &mut self.events else { return (jobs, more) };
        for _ in 0..events.len() {
            match events.try_recv() {
                Ok(event) if jobs.len() < BATCH_MAX => jobs.push(event),
                Ok(_) => more += 1,
                Err(broadcast::error::TryRecvError::Lagged(missed)) => {
                    more += usize::try_from(missed).unwrap_or(usize::MAX);
                }
                Err(_) => break,
            }
        }
        (jobs, more)
    }
}

impl Hub {
    /// Collects for as long as anybody holds it.
    pub(super) fn start(engine: &Engine) -> Arc<Hub> {
        let name = match engine.is_shared() {
            true => "s".to_owned(),
            false => format!("{:x}", Rng::from_os().next_u64()),
        };
        let news = broadcast::Sender::new(256);
        let hub = Arc::new(Hub { name, engine: engine.clone(), told: Mutex::default(), news });
        tokio::spawn(collect(Arc::downgrade(&hub)));
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
        let mut told = self.lock();
        told.last = number.unwrap_or(told.last + 1);
        let batch = Arc::new(Batch { number: told.last, body });
        told.remembered.push_back(batch.clone());
        if told.remembered.len() > REMEMBERED {
            told.remembered.pop_front();
        }
        drop(self.news.send(News::Batch(batch)));
    }

    /// What happens from now on; and what has happened since the event with this id, if all of it is remembered.
    async fn listen(&self, last: Option<&str>) -> (Option<Vec<Arc<Batch>>>, broadcast::Receiver<News>) {
        let news = self.news.subscribe();
        self.lock().follow(&self.engine);
        let last = last.and_then(|id| id.strip_prefix(&format!("{}-", self.name))?.parse::<u64>().ok());
        let Some(last) = last else { return (None, news) };
        if self.engine.is_shared() {
            return (self.missed(last).await.unwrap_or_default(), news);
        }
        let told = self.lock();
        let is_whole = told.remembered.front().map_or(told.last, |first| first.number - 1) <= last;
        let missed = told.remembered.iter().filter(|batch| batch.number > last).cloned().collect();
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

    /// What is to be told now; nothing if nobody listens, here or at another server.
    fn gather(&self) -> (Vec<Event>, usize) {
        let mut told = self.lock();
        match self.engine.is_shared() || self.news.receiver_count() > 0 {
            true => told.follow(&self.engine),
            false => told.stay(),
        }
        told.take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
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
async fn collect(hub: Weak<Hub>) {
    let mut tick = tokio::time::interval(BATCH_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(hub) = hub.upgrade() else { return };
        let (jobs, more) = hub.gather();
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
#[utoipa::path(get, path = "/api/v1/events", operation_id = "streamEvents", tag = "operations", responses(
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
    let totals = totals(&state).await?;
    let first = snapshot(totals, last.is_some() && missed.is_none());
    let mut look = tokio::time::interval(SNAPSHOT_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let told = snapshot(totals, false);
    let teller = Teller { api: state.0.clone(), who, hub, news, waiting, sent: 0, told, look };
    let first = sse::Event::default().event("snapshot").data(first);
    let rest = stream::unfold(teller, |mut teller| async move {
        let api = teller.api.clone();
        let event = tokio::select! { biased;
            () = api.stops() => return None,
            event = teller.next() => event?,
        };
        Some((Ok(event), teller))
    });
    let stream = stream::StreamExt::chain(stream::iter([Ok(first)]), rest);
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(HEARTBEAT_EVERY)))
}

/// Tells one listener.
struct Teller {
    api: Api,
    who: Who,
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
    /// The next event; none when whoever listens may listen no more. That is asked before each event and at every look, so
    /// with a token that was revoked nobody hears what they could not ask for.
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            let event = self.event_or_look().await;
            self.who.need_good_still(self.api.engine().now()).await.ok()?;
            if event.is_some() {
                return event;
            }
        }
    }

    /// The next event; none if it was time to look and nothing had changed.
    async fn event_or_look(&mut self) -> Option<sse::Event> {
        if let Some(batch) = self.waiting.pop_front() {
            self.sent = batch.number;
            return Some(self.hub.event(&batch));
        }
        loop {
            tokio::select! { biased;
                news = self.news.recv() => match news {
                    // What was missed may come a second time, now that it is heard here too.
                    Ok(News::Batch(batch)) if batch.number <= self.sent => {}
                    Ok(News::Batch(batch)) => return Some(self.hub.event(&batch)),
                    Ok(News::Notice(notice)) => {
                        return sse::Event::default().event("notice").json_data(&*notice).ok();
                    }
                    // The next snapshot makes up for it.
                    Err(broadcast::error::RecvError::Lagged(_)) => self.told.clear(),
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
                _ = self.look.tick() => {
                    let now = snapshot(totals(&self.api).await.ok()?, false);
                    if now == self.told {
                        return None;
                    }
                    self.told.clone_from(&now);
                    return Some(sse::Event::default().event("snapshot").data(now));
                }
            }
        }
    }
}

/// How everything stands, as text.
fn snapshot(totals: Totals, missed: bool) -> String {
    json!({ "stats": totals, "missed": missed }).to_string()
}

#[cfg(test)]
mod tests {
    use redrive::{Json, MemoryStore, NewJob};

    use super::*;

    async fn put(engine: &Engine) {
        engine.enqueue(NewJob::of_kind("mail", Json::parse("{}").unwrap())).await.unwrap();
    }

    /// After a time when nobody listens, nothing is collected; and whoever comes back later is not told that it has missed
    /// nothing.
    #[tokio::test(start_paused = true)]
    async fn who_comes_back_too_late_learns_that_something_was_missed() {
        let engine = Engine::on(Arc::new(MemoryStore::new())).produce_any().build().unwrap();
        let hub = Hub::start(&engine);
        put(&engine).await;
        let (_, mut news) = hub.listen(None).await;
        put(&engine).await;
        let Ok(News::Batch(first)) = news.recv().await else { panic!("a batch was to come") };
        assert_eq!((first.number, first.body.matches("\"job\"").count()), (1, 1), "{}", first.body);
        drop(news);
        let id = format!("{}-1", hub.name);
        tokio::time::sleep(Duration::from_secs(90)).await;
        put(&engine).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let missed = hub.listen(Some(&id)).await.0.map(|missed| missed.len());
        assert_eq!(missed, Some(1), "it came back in time");
        tokio::time::sleep(Duration::from_secs(110)).await;
        assert!(hub.lock().events.is_none(), "nobody listens");
        put(&engine).await;
        let id = format!("{}-2", hub.name);
        assert!(hub.listen(Some(&id)).await.0.is_none(), "something was missed");
        let (missed, mut news) = hub.listen(Some(&format!("{}-3", hub.name))).await;
        assert_eq!(missed.map(|missed| missed.len()), Some(0));
        put(&engine).await;
        let Ok(News::Batch(next)) = news.recv().await else { panic!("a batch was to come") };
        assert_eq!(next.number, 4);
    }
}
