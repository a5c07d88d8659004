//! An article feed: fetches pages, takes the article out of each, and comes back to those that cannot be had today.
//! README.md beside this file says how to run it.

mod story;
mod web;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use http::Method;
use redrive::{
    Attempt, Clock, Engine, Enqueued, Failure, GiveUp, Happening, JobDetail, Limits, NewJob, Output, Payload,
    Policy, Queue, Timestamp, mins, secs,
};
use redrive_server::config::{Config, Notice, NoticeOn, NoticeTo};
use redrive_server::egress::{Egress, Redirects, Request, Timeouts};
use redrive_server::executor;
use redrive_server::serve::Server;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;

use crate::stage::egress;
use crate::{Pace, Stage};
pub use story::tell;
pub use web::Web;

/// A feed waits for minutes, so it has to hurry more than others.
pub const QUICK: Pace = Pace(1_000);
/// How many articles are fetched at once unless told otherwise.
pub const PLACES: usize = 4;
/// What all articles go to, as far as the gap between them is concerned.
const DESTINATION: &str = "articles";
/// How long at least between the beginnings of two articles.
pub const MIN_GAP: Duration = secs(5);
/// What the lines of the log are about.
const CATEGORY: &str = "processing_queue";

/// An article to be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Article {
    /// Its number in the feed.
    pub id: u64,
    /// Where it is.
    pub url: String,
}

impl Payload for Article {
    const KIND: &'static str = "article";
    const QUEUE: &'static str = "articles";

    fn destination(&self) -> Option<String> {
        Some(DESTINATION.to_owned())
    }
}

/// What an article says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Its text without the page around it.
    pub text: String,
}

/// The feed. Cheap to clone: all clones are the same.
#[derive(Clone)]
pub struct Feed {
    engine: Engine,
    policy: Policy,
}

/// The program: the feed with its dashboard, ready to run.
pub struct Program {
    /// The feed.
    pub feed: Feed,
    /// Where dashboard and API are.
    pub dashboard: SocketAddr,
    server: Server,
}

impl Program {
    /// Opens the feed of this folder, which fetches so many articles at once.
    ///
    /// # Errors
    ///
    /// What is wrong with the folder, or the address.
    pub async fn open(stage: &Stage, places: usize) -> Result<Program> {
        let policy = stage.pace.policy("feed")?;
        let (egress, clock) = (egress()?, Clock::system());
        // Even in a hurry, a busy machine is given a moment.
        let patience = stage.pace.of(secs(30)).max(Duration::from_millis(500));
        let process = move |attempt: Attempt<Article>| {
            let (egress, clock) = (egress.clone(), clock.clone());
            async move { fetch(&egress, &clock, &attempt.payload.url, patience).await.map(Output) }
        };
        // All articles together: one host that is down does not hold the others, and their retries are few.
        let gap = Limits {
            min_gap: Some(stage.pace.of(MIN_GAP)),
            breaker: 0,
            retry_budget: 0,
            ..Limits::default()
        };
        let queue = Queue::new(Article::QUEUE).concurrency(places).policy(policy.clone());
        // Somebody is told when half of what is tried fails.
        let alert = Notice {
            on: vec![NoticeOn::FailureRate],
            to: NoticeTo::Log,
            queue: None,
            kind: None,
            rate: 0.5,
            window: mins(5),
            text: None,
        };
        let config = Config { notify: vec![alert], ..stage.config()? };
        let server = Server::open_with(config, None, |engine| {
            engine.queue(queue).destination(DESTINATION, gap).handle(process)
        })
        .await?;
        let feed = Feed { engine: server.engine().clone(), policy };
        Ok(Program { feed, dashboard: server.address()?, server })
    }

    /// Runs it until `shutdown` resolves.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let Program { feed, server, .. } = self;
        tokio::select! {
            served = server.run(shutdown) => served,
            logged = feed.log() => logged,
        }
    }
}

/// Fetches a page and takes the article out of it.
async fn fetch(egress: &Egress, clock: &Clock, url: &str, patience: Duration) -> Result<Content, Failure> {
    let mut request =
        Request::new(Method::GET, url).map_err(|wrong| Failure::from_code("INVALID_URL", wrong))?;
    request.redirects = Redirects::Follow;
    request.timeouts = Timeouts { first_byte: patience, ..Timeouts::default() };
    let page = executor::ask(egress, request, clock).await?;
    let html = String::from_utf8_lossy(&page.body);
    let text = article_of(&html).ok_or_else(|| Failure::from_code("NO_CONTENT", "no parseable content"))?;
    Ok(Content { text })
}

/// What stands between `<article>` and its end, without tags; none if nothing does.
pub fn article_of(html: &str) -> Option<String> {
    let (_, rest) = html.split_once("<article>")?;
    let (inside, _) = rest.split_once("</article>")?;
    let mut text = String::new();
    for piece in inside.split('<') {
        // Before the first tag there is no tag to leave out.
        text.push_str(piece.split_once('>').map_or(piece, |(_, text)| text));
        text.push(' ');
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    Some(words.join(" ")).filter(|text| !text.is_empty())
}

impl Feed {
    /// Takes articles, all or none. A higher priority goes first.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn add(&self, articles: Vec<Article>, priority: i16) -> Result<Vec<Enqueued>> {
        let job = |article: Article| {
            let key = format!("article-{}", article.id);
            NewJob::from(article).key(key).priority(priority)
        };
        Ok(self.engine.enqueue_all(articles.into_iter().map(job)).await?)
    }

    /// Takes an article that failed elsewhere, with what was said then; whether it is worth a retry.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn retry(&self, article: Article, error: &str) -> Result<bool> {
        let failure = Failure::from_text(error);
        if !self.is_retryable(&failure) {
            return Ok(false);
        }
        let key = format!("article-{}", article.id);
        self.engine.enqueue(NewJob::from(article).key(key).failed_outside(failure)).await?;
        Ok(true)
    }

    /// Whether trying again may help.
    pub fn is_retryable(&self, failure: &Failure) -> bool {
        self.policy.classify(failure).class.is_retryable()
    }

    /// The engine that fetches.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Writes a line for each article that was fetched, will be tried again, or failed for good.
    async fn log(&self) -> Result<()> {
        let mut events = self.engine.events();
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return Ok(()),
            };
            let told = matches!(
                event.what,
                Happening::Succeeded { .. } | Happening::RetryScheduled { .. } | Happening::Dead { .. }
            );
            if !told || &*event.kind != Article::KIND {
                continue;
            }
            if let Some(detail) = self.engine.get(event.job).await? {
                line(&event.what, &detail, event.at)?;
            }
        }
    }
}

fn line(what: &Happening, detail: &JobDetail, at: Timestamp) -> Result<()> {
    let article_id = detail.job.payload.decode::<Article>()?.id;
    let said =
        |failure: &Option<Failure>| failure.as_ref().map(|it| it.in_full().into_owned()).unwrap_or_default();
    match what {
        Happening::RetryScheduled { due_at, failure, attempt, .. } => tracing::warn!(
            target: CATEGORY, article_id, retry_count = attempt, next_retry_at = %due_at,
            backoff_seconds = due_at.since(at).as_secs_f64(), error = said(failure),
            "Article queued for retry"
        ),
        Happening::Dead { why, failure, .. } => {
            let reason = match why {
                GiveUp::Exhausted => "maximum retries exceeded",
                _ => "permanent error",
            };
            tracing::error!(target: CATEGORY, article_id, error = said(failure), reason, "Article permanently failed");
        }
        _ => tracing::info!(target: CATEGORY, article_id, "Article successfully processed"),
    }
    Ok(())
}
