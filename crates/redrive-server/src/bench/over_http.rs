//! What is measured of the server: jobs that come in over HTTP, beside the library's own callers; and jobs that go out
//! over HTTP, beside the same client in a bare loop.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use redrive::{Engine, Json, NewJob};
use redrive_server::config::{self, Config, Sources};
use redrive_server::egress::{self, Allow, Egress, EgressPolicy};
use redrive_server::serve::Server;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::measures::{CALLERS, per_second};
use super::workload::{self, BULK, Parcel};
use crate::cli::StoreUrl;
use crate::stopwatch;

/// A server on a store, in this process.
struct Serving {
    address: SocketAddr,
    engine: Engine,
    stop: oneshot::Sender<()>,
    run: JoinHandle<Result<()>>,
}

impl Serving {
    async fn start(store: &StoreUrl) -> Result<Serving> {
        let server = Server::open(config(store)?, None).await?;
        let (address, engine) = (server.address()?, server.engine().clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let run = tokio::spawn(server.run(async move { drop(stopped.await) }));
        Ok(Serving { address, engine, stop, run })
    }

    async fn end(self, store: &StoreUrl) -> Result<()> {
        drop(self.stop);
        self.run.await??;
        workload::close(self.engine, store).await
    }
}

fn config(store: &StoreUrl) -> Result<Config> {
    let mut config = config::load(&Sources::none()).map_err(|mistakes| anyhow!("{mistakes:?}"))?;
    config.store = store.clone();
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.egress_allow = vec!["127.0.0.0/8".into()];
    for queue in &mut config.queues {
        queue.concurrency = usize::try_from(CALLERS)?;
    }
    Ok(config)
}

/// Jobs per second that come in by `POST /jobs` on 64 connections that stay open.
pub(crate) async fn enqueue(store: &StoreUrl, jobs: u64) -> Result<f64> {
    let serving = Serving::start(store).await?;
    let began = stopwatch::now();
    let mut tasks = JoinSet::new();
    for caller in 0..CALLERS {
        tasks.spawn(post(serving.address, caller, jobs));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let rate = per_second(jobs, began);
    ensure!(workload::totals(&serving.engine).await?.enqueued == jobs, "not all jobs were enqueued");
    serving.end(store).await?;
    Ok(rate)
}

/// One connection's share of the jobs.
async fn post(address: SocketAddr, caller: u64, jobs: u64) -> Result<()> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    for number in (caller..jobs).step_by(usize::try_from(CALLERS)?) {
        let body = json!({ "kind": "parcel", "payload": Parcel::new(number) }).to_string();
        let request = Request::post("/api/v1/jobs")
            .header("host", address.to_string())
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        ensure!(answer.status() == 201, "POST /jobs answered {}", answer.status());
        answer.into_body().collect().await?;
    }
    Ok(())
}

/// A destination that takes everything, and counts.
struct Taker {
    url: String,
    taken: Arc<AtomicU64>,
}

impl Taker {
    async fn start() -> Result<Taker> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/take", listener.local_addr()?);
        let taken = Arc::new(AtomicU64::new(0));
        let count = taken.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                drop(socket.set_nodelay(true));
                let count = count.clone();
                let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                    let count = count.clone();
                    async move {
                        // To its end, so that the connection can be used again.
                        drop(request.into_body().collect().await);
                        count.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service),
                );
            }
        });
        Ok(Taker { url, taken })
    }
}

/// HTTP jobs per second that the server carries out, 64 at once.
pub(crate) async fn execute(store: &StoreUrl, jobs: u64) -> Result<f64> {
    const LOOK_EVERY: Duration = Duration::from_millis(5);
    let taker = Taker::start().await?;
    let serving = Serving::start(store).await?;
    serving.engine.hold().await?;
    let mut next = 0;
    while next < jobs {
        let end = (next + BULK).min(jobs);
        let all: Vec<NewJob> = (next..end).map(|number| job(&taker.url, number)).collect::<Result<_>>()?;
        serving.engine.enqueue_all(all).await?;
        next = end;
    }
    let began = stopwatch::now();
    serving.engine.unhold().await?;
    while workload::totals(&serving.engine).await?.succeeded < jobs {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let rate = per_second(jobs, began);
    ensure!(taker.taken.load(Ordering::Relaxed) == jobs, "not every job was one request");
    serving.end(store).await?;
    Ok(rate)
}

fn job(url: &str, number: u64) -> Result<NewJob> {
    let payload = json!({ "method": "POST", "url": url, "body": Parcel::new(number) });
    let payload = Json::of(&payload).map_err(|error| anyhow!("a payload cannot be written: {error}"))?;
    Ok(NewJob::of_kind("http", payload))
}

/// Requests per second of the same client in a bare loop, 64 at once.
pub(crate) async fn call(jobs: u64) -> Result<f64> {
    let taker = Taker::start().await?;
    let allow: Allow = "127.0.0.0/8".parse().map_err(|error| anyhow!("{error}"))?;
    let egress = Egress::new(EgressPolicy { allow: vec![allow] });
    let began = stopwatch::now();
    let mut tasks = JoinSet::new();
    for caller in 0..CALLERS {
        let (egress, url) = (egress.clone(), taker.url.clone());
        tasks.spawn(async move {
            for number in (caller..jobs).step_by(usize::try_from(CALLERS)?) {
                let mut request =
                    egress::Request::new(Method::POST, &url).map_err(|error| anyhow!("{error}"))?;
                request.body = Bytes::from(serde_json::to_vec(&Parcel::new(number))?);
                let answer = egress.send(request).await.map_err(|error| anyhow!("{error}"))?;
                ensure!(answer.status.is_success(), "the destination answered {}", answer.status);
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done?.context("the bare loop")?;
    }
    let rate = per_second(jobs, began);
    ensure!(taker.taken.load(Ordering::Relaxed) == jobs, "not every request arrived");
    Ok(rate)
}
