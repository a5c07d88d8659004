//! The sources of metadata. Three small services on loopback stand in for the real ones and fail as they are told; the
//! library asks them over HTTP, one after the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, put};
use http::header::RETRY_AFTER;
use http::{Method, StatusCode};
use redrive::{Clock, Failure, Fallback, secs};
use redrive_server::egress::{Request, Timeouts};
use redrive_server::executor;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use url::Url;

use super::file_name::Title;
use crate::Pace;
use crate::stage::egress;

/// The sources in the order in which they are asked.
pub const NAMES: [&str; 3] = ["tmdb", "douban", "wikipedia"];

/// What each source knows: the title, the year, and what it is about.
const KNOWN: [(&str, &str, u16, &str); 4] = [
    ("tmdb", "The Matrix", 1999, "A programmer learns what his world is made of."),
    ("tmdb", "Breaking Bad", 2008, "A chemistry teacher changes his trade."),
    ("douban", "臥虎藏龍", 2000, "A sword is stolen, and two pairs of lovers meet."),
    ("wikipedia", "Metropolis", 1927, "A city with two classes, and a robot between them."),
];

/// What is known about a title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The title as the source writes it.
    pub title: String,
    /// When it came out.
    pub year: u16,
    /// What it is about.
    pub overview: String,
    /// Who said so.
    #[serde(default)]
    pub source: String,
}

/// How a source is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mood {
    /// It answers.
    Up,
    /// 503.
    Down,
    /// 429.
    Limited,
    /// 503, and it says to come back in an hour.
    Closed,
    /// It takes the question and does not answer.
    Slow,
    /// It breaks off in the middle of its answer.
    Broken,
}

/// The three services. Cheap to clone: all clones are the same.
#[derive(Clone)]
pub struct Sources {
    /// Where they are.
    pub address: SocketAddr,
    state: Services,
}

type Services = Arc<Mutex<BTreeMap<&'static str, Service>>>;

struct Service {
    mood: Mood,
    asked: usize,
}

impl Sources {
    /// Three services on a port of their own, all of them up; they end with the runtime.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start() -> Result<Sources> {
        let up = |name| (name, Service { mood: Mood::Up, asked: 0 });
        let state: Services = Arc::new(Mutex::new(NAMES.map(up).into()));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Router::new()
            .route("/{source}/{title}", get(answer))
            .route("/{source}/is/{mood}", put(change))
            .with_state(state.clone());
        tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
        Ok(Sources { address, state })
    }

    /// Changes how a source is.
    pub fn set(&self, source: &str, mood: Mood) {
        if let Some(service) = lock(&self.state).get_mut(source) {
            service.mood = mood;
        }
    }

    /// How often a source was asked.
    pub fn asked(&self, source: &str) -> usize {
        lock(&self.state).get(source).map_or(0, |service| service.asked)
    }

    /// Asks them in order: the first that has the title answers. If none has it and one could not be asked, that may
    /// change.
    ///
    /// # Errors
    ///
    /// If there is no way out.
    pub fn fallback(&self, pace: Pace) -> Result<Fallback<Title, Metadata>> {
        let (egress, clock, address) = (egress()?, Clock::system(), self.address);
        // Even in a hurry, a busy machine is given a moment.
        let patience = pace.of(secs(10)).max(Duration::from_millis(500));
        let mut fallback = Fallback::new();
        for source in NAMES {
            let (egress, clock) = (egress.clone(), clock.clone());
            fallback = fallback.source(source, move |title: Title| {
                let (egress, clock) = (egress.clone(), clock.clone());
                async move {
                    let mut url = Url::parse(&format!("http://{address}/{source}"))?;
                    // A title may hold anything: as one segment it cannot lead elsewhere.
                    url.path_segments_mut().map_err(|()| Failure::permanent("no path"))?.push(&title.name);
                    let mut request = Request::new(Method::GET, url.as_str())?;
                    request.timeouts = Timeouts { first_byte: patience, ..Timeouts::default() };
                    let answer = executor::ask(&egress, request, &clock).await?;
                    let found: Metadata = serde_json::from_slice(&answer.body)?;
                    Ok::<_, Failure>(Metadata { source: source.to_owned(), ..found })
                }
            });
        }
        Ok(fallback)
    }
}

fn lock(state: &Services) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Service>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(state: State<Services>, path: Path<(String, String)>) -> Response {
    let (source, title) = path.0;
    let mood = match lock(&state).get_mut(source.as_str()) {
        Some(service) => {
            service.asked += 1;
            service.mood
        }
        None => return (StatusCode::NOT_FOUND, "there is no such source").into_response(),
    };
    match mood {
        Mood::Up => known(&source, &title),
        Mood::Down => (StatusCode::SERVICE_UNAVAILABLE, "closed for repairs").into_response(),
        Mood::Closed => {
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "3600")], "closed for an hour").into_response()
        }
        Mood::Limited => (StatusCode::TOO_MANY_REQUESTS, "rate limit reached").into_response(),
        Mood::Slow => std::future::pending().await,
        Mood::Broken => {
            let pieces = [Ok("{\"title\":"), Err(std::io::Error::other("cut off"))];
            Body::from_stream(futures_util::stream::iter(pieces)).into_response()
        }
    }
}

fn known(source: &str, title: &str) -> Response {
    let found = KNOWN.iter().find(|(by, name, ..)| *by == source && name.eq_ignore_ascii_case(title));
    match found {
        Some((_, name, year, overview)) => axum::Json(Metadata {
            title: (*name).to_owned(),
            year: *year,
            overview: (*overview).to_owned(),
            source: source.to_owned(),
        })
        .into_response(),
        None => (StatusCode::NOT_FOUND, "never heard of it").into_response(),
    }
}

async fn change(state: State<Services>, path: Path<(String, Mood)>) -> StatusCode {
    let (source, mood) = path.0;
    match lock(&state).get_mut(source.as_str()) {
        Some(service) => {
            service.mood = mood;
            StatusCode::NO_CONTENT
        }
        None => StatusCode::NOT_FOUND,
    }
}
