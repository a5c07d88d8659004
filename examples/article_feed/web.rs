//! A small web on loopback: pages that are fine, pages that are gone, and hosts that are not up to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use http::StatusCode;
use redrive::{Clock, Timestamp};
use tokio::net::TcpListener;
use tokio::sync::Barrier;

/// The web. Cheap to clone: all clones are the same.
#[derive(Clone)]
pub struct Web {
    /// Where it is.
    pub address: SocketAddr,
    state: Arc<Pages>,
}

struct Pages {
    clock: Clock,
    asked: Mutex<Asked>,
    /// Whoever asks for `/together` is answered when three do.
    together: Barrier,
}

#[derive(Default)]
struct Asked {
    /// The paths in the order in which they were asked for, and when.
    log: Vec<(String, Timestamp)>,
    /// How hosts that are told to fail answer from now on.
    mended: bool,
    counts: BTreeMap<String, usize>,
}

impl Web {
    /// A web on a port of its own; it ends with the runtime.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start() -> Result<Web> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state =
            Arc::new(Pages { clock: Clock::system(), asked: Mutex::default(), together: Barrier::new(3) });
        let routes = Router::new().route("/{page}/{number}", get(answer)).with_state(state.clone());
        tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
        Ok(Web { address, state })
    }

    /// The URL of a page: `fine`, `together`, `empty`, `slow`, a status such as `404`, or `once-503`, which is fine at
    /// the second look.
    pub fn url(&self, page: &str, number: u64) -> String {
        format!("http://{}/{page}/{number}", self.address)
    }

    /// What was asked for so far, and when.
    pub fn asked(&self) -> Vec<(String, Timestamp)> {
        self.state.asked().log.clone()
    }

    /// From now on every page is fine.
    pub fn mend(&self) {
        self.state.asked().mended = true;
    }
}

impl Pages {
    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that it was asked for, and says whether for the first time, and whether all is well by now.
    fn note(&self, path: &str) -> (bool, bool) {
        let mut asked = self.asked();
        asked.log.push((path.to_owned(), self.clock.now()));
        let count = asked.counts.entry(path.to_owned()).or_default();
        *count += 1;
        (*count == 1, asked.mended)
    }
}

async fn answer(state: State<Arc<Pages>>, path: Path<(String, u64)>) -> Response {
    let (page, number) = path.0;
    let (is_first, is_mended) = state.note(&format!("/{page}/{number}"));
    let fine = || {
        Html(format!("<html><nav>Menu</nav><article><h1>Article {number}</h1><p>All of it.</p></article>"))
            .into_response()
    };
    let refused = |status: &str| {
        let status = status.parse().ok().and_then(|status| StatusCode::from_u16(status).ok());
        (status.unwrap_or(StatusCode::NOT_FOUND), "not this time").into_response()
    };
    match page.as_str() {
        _ if is_mended => fine(),
        "fine" => fine(),
        "together" => {
            state.together.wait().await;
            fine()
        }
        "empty" => Html("<html><nav>Menu</nav></html>").into_response(),
        "slow" => std::future::pending().await,
        page => match page.strip_prefix("once-") {
            Some(status) if is_first => refused(status),
            Some(_) => fine(),
            None => refused(page),
        },
    }
}
