//! What is measured of the server: jobs that come in over HTTP, beside the library's own callers; and jobs that go out
//! over HTTP, beside the same client in a bare loop.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use redrive::{Engine, Json, NewJob, Payload as _};
use redrive_server::door;
use redrive_server::egress::{self, Allow, Egress, EgressPolicy};
use redrive_server::executor::HttpExecutor;
use redrive_server::remote::Remote;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::measures::{CALLERS, per_second};
use super::workload::{self, BULK, Parcel};
use crate::cli::StoreUrl;
use crate::{out, stopwatch};

/// `redrive serve` on a store, as a process of its own.
struct Serving {
    address: SocketAddr,
    child: Child,
    /// Its config file is in here.
    _folder: TempDir,
}

impl Serving {
    /// With so many places. Returns when it serves.
    async fn start(store: &StoreUrl, places: u64) -> Result<Serving> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("redrive.toml");
        std::fs::write(&config, format!("[queues.default]\nconcurrency = {places}\n"))?;
        let mut child = Command::new(std::env::current_exe().context("cannot find this program")?)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--allow-egress",
                "127.0.0.0/8",
                "--log-format",
                "json",
            ])
            .args(["--store", &store.to_string(), "--config"])
            .arg(config)
            // What is configured for a server of the user's is not meant for this one.
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start this program again")?;
        let mut said = BufReader::new(child.stderr.take().context("it is piped")?).lines();
        let address = loop {
            let line = said.next_line().await?.context("the server ended before it served")?;
            if let Some((_, rest)) = line.split_once("\"http://") {
                break rest.split('"').next().unwrap_or_default().parse()?;
            }
        };
        // A process to which nobody listens stops when the pipe is full.
        tokio::spawn(async move { tokio::io::copy_buf(said.get_mut(), &mut tokio::io::sink()).await });
        Ok(Serving { address, child, _folder: folder })
    }

    /// The number at a key of the API's statistics.
    async fn figure(&self, key: &str) -> Result<u64> {
        let stats = self.ask(Request::get("/api/v1/stats")).await?;
        stats["data"][key].as_u64().with_context(|| format!("there is no {key} in {stats}"))
    }

    async fn ask(&self, request: http::request::Builder) -> Result<Value> {
        let remote = Remote::new(&format!("http://{}", self.address), None)?;
        let answer = remote.send(request.body(Bytes::new())?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "the server answered {status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }

    async fn end(mut self) -> Result<()> {
        let id = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        kill_process(id.context("the server has ended")?, Signal::TERM)?;
        let ended = self.child.wait().await?;
        ensure!(ended.success(), "the server ended with {ended}");
        Ok(())
    }
}

/// Jobs per second that come in by `POST /jobs` on 64 connections that stay open.
pub(crate) async fn enqueue(store: &StoreUrl, jobs: u64) -> Result<f64> {
    let serving = Serving::start(store, CALLERS).await?;
    let began = stopwatch::now();
    let address = serving.address;
    tokio::task::spawn_blocking(move || call_in(address, jobs)).await??;
    let rate = per_second(jobs, began);
    ensure!(serving.figure("enqueued").await? == jobs, "not all jobs were enqueued");
    serving.end().await?;
    Ok(rate)
}

/// A job as it is sent.
#[derive(Serialize)]
struct Sent {
    kind: &'static str,
    payload: Parcel,
}

/// All connections on one thread, as load is made elsewhere: what the callers take of the machine, and what their threads
/// have to say to each other, is taken from what is measured.
fn call_in(address: SocketAddr, jobs: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let callers = (0..CALLERS).map(|caller| post(address, caller, jobs));
    runtime.block_on(futures_util::future::try_join_all(callers))?;
    Ok(())
}

/// One connection's share of the jobs. It speaks HTTP by hand.
async fn post(address: SocketAddr, caller: u64, jobs: u64) -> Result<()> {
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    for number in (caller..jobs).step_by(usize::try_from(CALLERS)?) {
        let body = serde_json::to_vec(&Sent { kind: Parcel::KIND, payload: Parcel::new(number) })?;
        request.clear();
        write!(
            request,
            "POST /api/v1/jobs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        )?;
        request.extend(body);
        socket.write_all(&request).await?;
        answer.clear();
        while length(&answer)?.is_none_or(|length| answer.len() < length) {
            ensure!(socket.read_buf(&mut answer).await? > 0, "the server hung up");
        }
        let is_created = answer.starts_with(b"HTTP/1.1 201 ");
        ensure!(is_created, "POST /jobs was answered {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// How long an answer is, with its body; nothing before its head is there.
fn length(answer: &[u8]) -> Result<Option<usize>> {
    let (mut end, mut body) = (0, None);
    for line in answer.split_inclusive(|byte| *byte == b'\n') {
        end += line.len();
        if let Some(length) = line.strip_prefix(b"content-length: ") {
            body = Some(std::str::from_utf8(length)?.trim_end().parse::<usize>()?);
        } else if line == b"\r\n" {
            return Ok(Some(end + body.context("an answer does not say how long it is")?));
        }
    }
    Ok(None)
}

/// A destination that takes everything, and counts: a process of its own, whoever calls it.
struct Target {
    address: SocketAddr,
    _child: Child,
}

impl Target {
    async fn start() -> Result<Target> {
        let mut child = Command::new(std::env::current_exe().context("cannot find this program")?)
            .arg("bench-target")
            // When this one ends, so does its input, and it with it.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start this program again")?;
        let mut said = BufReader::new(child.stdout.take().context("it is piped")?).lines();
        let address = said.next_line().await?.context("the target ended before it listened")?.parse()?;
        Ok(Target { address, _child: child })
    }

    fn url(&self) -> String {
        format!("http://{}/take", self.address)
    }

    /// How many it has taken.
    async fn taken(&self) -> Result<u64> {
        let remote = Remote::new(&format!("http://{}", self.address), None)?;
        let answer = remote.send(Request::get("/taken").body(Bytes::new())?).await?;
        let count = answer.into_body().collect().await?.to_bytes();
        Ok(std::str::from_utf8(&count)?.parse()?)
    }
}

/// In the process of its own: says where it listens, and takes until its input ends.
pub(crate) async fn target() -> Result<()> {
    let listener = door::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    out::answer(&listener.local_addr()?.to_string());
    let told_to_end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::select! {
        () = take_all(listener) => {}
        ended = tokio::task::spawn_blocking(told_to_end) => drop(ended?),
    }
    Ok(())
}

async fn take_all(listener: TcpListener) {
    let count = Arc::new(AtomicU64::new(0));
    while let Ok((socket, _)) = listener.accept().await {
        drop(socket.set_nodelay(true));
        let count = count.clone();
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let count = count.clone();
            async move {
                let body = match *request.method() {
                    Method::GET => Bytes::from(count.load(Ordering::Relaxed).to_string()),
                    _ => {
                        // To its end, so that the connection can be used again.
                        drop(request.into_body().collect().await);
                        count.fetch_add(1, Ordering::Relaxed);
                        Bytes::new()
                    }
                };
                Ok::<_, Infallible>(Response::new(Full::new(body)))
            }
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service),
        );
    }
}

/// HTTP jobs per second that the server carries out, so many at once.
pub(crate) async fn execute(store: &StoreUrl, jobs: u64, at_once: u64) -> Result<f64> {
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    let target = Target::start().await?;
    fill(store, &target.url(), jobs).await?;
    let serving = Serving::start(store, at_once).await?;
    let began = stopwatch::now();
    serving.ask(Request::post("/api/v1/resume")).await?;
    // The server is not asked before it may be so: an answer takes of what is measured.
    while target.taken().await? < jobs || serving.figure("totalSucceeded").await? < jobs {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let rate = per_second(jobs, began);
    ensure!(target.taken().await? == jobs, "not every job was one request");
    serving.end().await?;
    Ok(rate)
}

/// Jobs that are held until somebody lets them go.
async fn fill(store: &StoreUrl, url: &str, jobs: u64) -> Result<()> {
    let engine = Engine::on(workload::open(store).await?).produce_any().build()?;
    engine.hold().await?;
    let mut next = 0;
    while next < jobs {
        let end = (next + BULK).min(jobs);
        let all: Vec<NewJob> = (next..end).map(|number| job(url, number)).collect::<Result<_>>()?;
        engine.enqueue_all(all).await?;
        next = end;
    }
    workload::close(engine, store).await
}

fn job(url: &str, number: u64) -> Result<NewJob> {
    let payload = json!({ "method": "POST", "url": url, "body": Parcel::new(number) }).to_string();
    // As the API would make it: a job that goes somewhere has a destination.
    let destination = HttpExecutor::check(&payload).map_err(|problem| anyhow!("{problem}"))?;
    Ok(NewJob::of_kind("http", Json::parse(&payload)?).destination(destination))
}

/// Requests per second of the same client in a bare loop, so many at once.
pub(crate) async fn call(jobs: u64, at_once: u64) -> Result<f64> {
    let target = Target::start().await?;
    let allow: Allow = "127.0.0.0/8".parse().map_err(|error| anyhow!("{error}"))?;
    let egress = Egress::new(EgressPolicy { allow: vec![allow] });
    let began = stopwatch::now();
    let mut tasks = JoinSet::new();
    for caller in 0..at_once {
        let (egress, url) = (egress.clone(), target.url());
        tasks.spawn(async move {
            for number in (caller..jobs).step_by(usize::try_from(at_once)?) {
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
    ensure!(target.taken().await? == jobs, "not every request arrived");
    Ok(rate)
}
