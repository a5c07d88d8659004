//! A real server on a real socket, with routes that show what came through the door; and clients for it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use redrive_server::config::Limits;
use redrive_server::door::{self, DoorConfig, Entrance, Guarded, Refusal, RequestId, Scope, Tls, Who};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// How long anything may take before a test has failed: far longer than it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A route that waits: it says that it was entered, and answers when it is let go.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) entered: Arc<Semaphore>,
    pub(crate) leave: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Gate {
        Gate { entered: Arc::new(Semaphore::new(0)), leave: Arc::new(Semaphore::new(0)) }
    }

    /// Until so many more requests are inside.
    pub(crate) async fn until_entered(&self, count: u32) {
        within(self.entered.acquire_many(count)).await.unwrap().forget();
    }

    pub(crate) fn let_go(&self, count: usize) {
        self.leave.add_permits(count);
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) gate: Gate,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) ended: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::with(DoorConfig::local(), Limits::default(), PATIENCE).await
    }

    pub(crate) async fn with(config: DoorConfig, limits: Limits, grace: Duration) -> Server {
        Server::behind(Entrance::from, config, limits, grace).await
    }

    /// Where everybody has to speak TLS.
    pub(crate) async fn secured(tls: Arc<Tls>, limits: Limits) -> Server {
        let entrance = |listener| Entrance::secured(listener, tls);
        Server::behind(entrance, DoorConfig::local(), limits, PATIENCE).await
    }

    async fn behind(
        entrance: impl FnOnce(TcpListener) -> Entrance,
        config: DoorConfig,
        limits: Limits,
        grace: Duration,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Gate::new();
        let guarded = Guarded::new(routes(gate.clone()), config);
        let (stop, stopped) = oneshot::channel();
        let entrance = entrance(listener);
        let ended = tokio::spawn(async move {
            door::listen(entrance, guarded, &limits, grace, async { drop(stopped.await) }).await
        });
        Server { address, gate, stop: Some(stop), ended }
    }

    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn client(&self) -> Client {
        Client::on(TcpStream::connect(self.address).await.unwrap()).await
    }

    /// A socket from another address of this machine.
    pub(crate) async fn socket_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }
}

fn routes(gate: Gate) -> Router {
    let news = gate.clone();
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/asset", get(|| async { ([("cache-control", "immutable")], "body {}") }))
        .route("/api/v1/large", get(|| async { vec![b'x'; 64 << 20] }))
        .route("/api/v1/echo", any(|body: Bytes| async move { body.len().to_string() }))
        .route("/api/v1/panic", get(|| async { panic!("a secret") as &'static str }))
        .route("/api/v1/who", get(|Extension(who): Extension<Who>| async move { who.name }))
        .route("/api/v1/id", get(|Extension(id): Extension<RequestId>| async move { id.to_string() }))
        .route(
            "/api/v1/operate",
            post(|Extension(who): Extension<Who>| async move {
                who.need(Scope::Operate)?;
                Ok::<_, Refusal>("done")
            }),
        )
        // Says something, and then nothing more until it is let go.
        .route(
            "/api/v1/news",
            get(move || async move {
                let later = async move {
                    news.entered.add_permits(1);
                    news.leave.acquire().await.unwrap().forget();
                    "late"
                };
                let said = stream::iter(["early "]).chain(stream::once(later));
                Body::from_stream(said.map(Ok::<_, Infallible>))
            }),
        )
        .route(
            "/api/v1/wait",
            get(move || async move {
                gate.entered.add_permits(1);
                gate.leave.acquire().await.unwrap().forget();
                "waited"
            }),
        )
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The code of a refusal, after a look at its envelope.
    pub(crate) fn code(&self) -> String {
        let json: Value = serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"));
        assert_eq!(json["success"], false, "{json}");
        assert!(json["error"]["message"].is_string() && json["error"]["hint"].is_string(), "{json}");
        json["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// One connection.
pub(crate) enum Client {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub(crate) async fn on(socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Client {
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        Client::One(sender)
    }

    pub(crate) async fn two(server: &Server) -> Client {
        let socket = TcpStream::connect(server.address).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        Client::Two(sender)
    }

    pub(crate) async fn try_ask(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
        let response = match self {
            Client::One(sender) => {
                sender.ready().await?;
                within(sender.send_request(request)).await?
            }
            Client::Two(sender) => within(sender.send_request(request)).await?,
        };
        let (head, body) = response.into_parts();
        let body = within(body.collect()).await?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    pub(crate) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Answer {
        self.try_ask(request).await.unwrap()
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask(request("GET", path, &[])).await
    }
}

/// A request for this machine; another `host` replaces the usual one.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") && path.starts_with('/') {
        request = request.header("host", "127.0.0.1");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::default()).unwrap()
}

/// What must happen soon.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// The usual limits, but so many connections.
pub(crate) fn limits(connections: usize, per_address: usize) -> Limits {
    Limits { connections, connections_per_address: per_address, ..Limits::default() }
}

/// As many open files as the system allows.
pub(crate) fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}
