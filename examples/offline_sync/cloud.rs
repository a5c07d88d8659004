//! The far side: a small service on loopback that keeps what it is sent, can be cut off the net, and can be made to refuse.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::post;
use http::header::CONNECTION;
use http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The service.
pub struct Cloud {
    /// Where it is, if it can be reached.
    pub address: SocketAddr,
    kept: Kept,
    listening: Mutex<Option<JoinHandle<()>>>,
}

type Kept = Arc<Mutex<Store>>;

struct Store {
    /// What was sent, in the order it came.
    operations: Vec<String>,
    /// The keys of what was sent: the same thing sent again is not done again.
    keys: BTreeSet<String>,
    /// Notes of which it wants nothing.
    refused: BTreeSet<String>,
    /// Whether it takes its time: nobody is answered before it is quick again.
    slow: watch::Sender<bool>,
}

impl Cloud {
    /// A service that can be reached.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start() -> Result<Cloud> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (operations, keys, refused) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let kept = Store { operations, keys, refused, slow: watch::channel(false).0 };
        let cloud = Cloud { address, kept: Arc::new(Mutex::new(kept)), listening: Mutex::default() };
        cloud.listen(listener);
        Ok(cloud)
    }

    fn listen(&self, listener: TcpListener) {
        let routes = Router::new().route("/{operation}/{note}", post(take)).with_state(self.kept.clone());
        let task = tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Cuts it off the net: whoever connects is refused.
    pub async fn go_away(&self) {
        let task = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // Its port is closed when it has ended, and how it ended is known.
            drop(task.await);
        }
    }

    /// Brings it back, at the same place.
    ///
    /// # Errors
    ///
    /// If somebody has taken its place meanwhile.
    pub async fn come_back(&self) -> Result<()> {
        self.listen(TcpListener::bind(self.address).await?);
        Ok(())
    }

    /// Refuses everything about this note from now on.
    pub fn refuse(&self, note: &str) {
        lock(&self.kept).refused.insert(note.to_owned());
    }

    /// Answers nobody for as long as it is slow.
    pub fn set_slow(&self, slow: bool) {
        lock(&self.kept).slow.send_replace(slow);
    }

    /// What was sent, in the order it came.
    pub fn operations(&self) -> Vec<String> {
        lock(&self.kept).operations.clone()
    }
}

fn lock(kept: &Kept) -> MutexGuard<'_, Store> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn take(kept: State<Kept>, path: Path<(String, String)>, headers: HeaderMap) -> impl IntoResponse {
    let (operation, note) = path.0;
    let mut slow = lock(&kept).slow.subscribe();
    // Whoever could change it is gone with the service itself.
    drop(slow.wait_for(|slow| !slow).await);
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let mut kept = lock(&kept);
    let answer = if kept.refused.contains(&note) {
        (StatusCode::INTERNAL_SERVER_ERROR, "the disk is full")
    } else {
        if kept.keys.insert(key.to_owned()) {
            kept.operations.push(format!("{operation} {note}"));
        }
        (StatusCode::OK, "kept")
    };
    // One connection a request: whoever is cut off has none left over.
    ([(CONNECTION, "close")], answer)
}
