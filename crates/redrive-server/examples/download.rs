//! Downloads as a library: a server that breaks off in the middle, and a file that is complete all the same.
//!
//! Run with `cargo run -p redrive-server --example download`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use axum::{Router, routing::get};
use redrive::{Policy, SqliteStore, millis};
use redrive_server::download::{Download, Downloads, Phase};
use redrive_server::egress::{Egress, EgressPolicy};

const FILE: &[u8] = &[7; 3 << 20];

/// Announces all of it, sends a half, and breaks off: the first time.
async fn file(headers: HeaderMap, asked: Arc<AtomicUsize>) -> Response<Body> {
    let from: usize = headers
        .get("range")
        .and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
        .unwrap_or(0);
    let answer = Response::builder()
        .status(if from > 0 { 206 } else { 200 })
        .header("etag", "\"sevens\"")
        .header("content-length", FILE.len() - from)
        .header("content-range", format!("bytes {from}-{}/{}", FILE.len() - 1, FILE.len()));
    let body = match asked.fetch_add(1, Ordering::Relaxed) {
        0 => {
            let pieces = [Ok(&FILE[..FILE.len() / 2]), Err(std::io::Error::other("the cable was pulled"))];
            Body::from_stream(futures_util::stream::iter(pieces))
        }
        _ => Body::from(&FILE[from..]),
    };
    answer.body(body).expect("the headers are plain")
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let router = Router::new().route("/sevens.bin", get(move |headers| file(headers, counted.clone())));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/sevens.bin", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, router).await });

    let place = tempfile::tempdir()?;
    let downloads = Downloads::into_folder(place.path())
        // This machine is not on the open internet.
        .egress(Egress::new(EgressPolicy { allow: vec!["127.0.0.1".parse().map_err(anyhow::Error::msg)?] }))
        .policy(Policy::fixed(millis(10)).retries(3))
        .open(SqliteStore::open(place.path().join("jobs.db")).await?)
        .await?;
    downloads.add(vec![Download::new(url)]).await?;
    let summary = downloads.run(std::future::pending()).await?;

    assert_eq!((summary.completed, summary.failed, summary.retried), (1, 0, 1));
    assert_eq!(downloads.files()[0].phase, Phase::Completed);
    assert_eq!(std::fs::read(place.path().join("sevens.bin"))?, FILE);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    Ok(())
}
