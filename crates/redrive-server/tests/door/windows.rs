//! HTTP/2 clients that read their socket and allow nothing of their answers.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use redrive_server::config::Limits;
use redrive_server::door::{DoorConfig, Scope};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::ground::{Client, PATIENCE, Server, limits, request, within};

const IDLE: Duration = Duration::from_secs(1);

/// A connection on which so many bytes of each answer are allowed.
struct Miser {
    sender: http2::SendRequest<Full<Bytes>>,
    /// Ends with the connection.
    connection: JoinHandle<()>,
}

impl Miser {
    async fn allowing(server: &Server, bytes: u32) -> Miser {
        let socket = TcpStream::connect(server.address).await.unwrap();
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.initial_stream_window_size(bytes);
        let (sender, connection) = http.handshake(TokioIo::new(socket)).await.unwrap();
        Miser { sender, connection: tokio::spawn(async { drop(connection.await) }) }
    }

    async fn ask(&mut self, path: &str) -> http::Response<Incoming> {
        within(self.sender.send_request(get(path))).await.unwrap()
    }
}

fn get(path: &str) -> Request<Full<Bytes>> {
    request("GET", &format!("http://localhost{path}"), &[])
}

async fn server(limits: Limits) -> Server {
    Server::with(DoorConfig::local(), Limits { idle_timeout: IDLE, ..limits }, PATIENCE).await
}

async fn is_served(server: &Server) -> bool {
    let answer = server.client().await.try_ask(request("GET", "/healthz", &[])).await;
    answer.is_ok_and(|answer| answer.status == 200)
}

/// Until a connection that is idle has been closed so many times: longer than any may be.
async fn idle_times(server: &Server, count: usize) {
    for _ in 0..count {
        let mut miser = Miser::allowing(server, 1 << 20).await;
        within(miser.ask("/healthz").await.into_body().collect()).await.unwrap();
        within(miser.connection).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_allows_nothing_of_its_answer_over_http2_loses_its_place() {
    let paths = ["/healthz", "/asset", "/api/v1/panic", "/api/v1/large", "/api/v1/news"];
    let misers = paths.into_iter().flat_map(|path| [0, 1].map(|bytes| loses_its_place(path, bytes)));
    futures_util::future::join_all(misers).await;
}

async fn loses_its_place(path: &str, bytes: u32) {
    let server = server(limits(1, 1)).await;
    let mut miser = Miser::allowing(&server, bytes).await;
    // The head is not held back. Whoever holds it does not read what follows.
    let answer = miser.ask(path).await;
    // Of news, the first fit into a buffer of ours with one byte allowed; with the next, it shows.
    server.gate.let_go(1);
    within(&mut miser.connection).await.unwrap();
    assert!(is_served(&server).await, "{path} {bytes}");
    assert!(answer.into_body().collect().await.is_err(), "{path} {bytes}");
}

#[tokio::test]
async fn a_client_that_allows_only_the_beginning_of_its_answer_over_http2_loses_its_place() {
    let server = server(limits(1, 1)).await;
    let mut miser = Miser::allowing(&server, 100_000).await;
    let mut answer = miser.ask("/api/v1/large").await.into_body();
    assert!(within(answer.frame()).await.unwrap().is_ok());
    within(miser.connection).await.unwrap();
    assert!(is_served(&server).await);
}

#[tokio::test]
async fn others_are_served_while_clients_take_nothing_over_http2() {
    let server = server(limits(4, 4)).await;
    let mut misers = Vec::new();
    for _ in 0..3 {
        let mut miser = Miser::allowing(&server, 0).await;
        let asking = ["/healthz", "/asset"].map(|path| miser.sender.send_request(get(path)));
        let answers = within(futures_util::future::try_join_all(asking)).await.unwrap();
        misers.push((miser, answers));
    }
    assert!(is_served(&server).await);
    for (miser, _) in misers {
        within(miser.connection).await.unwrap();
    }
}

/// Their places are wanted long before their time is up.
#[tokio::test]
async fn strangers_who_take_nothing_make_place_at_once_and_whoever_is_known_after_a_moment() {
    let (config, tokens) = crate::door_with_tokens(&[&[Scope::Read]]).await;
    let server = Server::with(config, limits(2, 2), PATIENCE).await;
    let mut strangers = Vec::new();
    for path in ["/healthz", "/api/v1/who"] {
        let mut miser = Miser::allowing(&server, 0).await;
        let answer = miser.ask(path).await;
        strangers.push((miser, answer));
    }
    let token = ("authorization", tokens[0].as_str());
    for _ in &strangers {
        let answer = server.client().await.ask(request("GET", "/api/v1/who", &[token])).await;
        assert_eq!(answer.text(), "t1");
    }

    let server = Server::with(DoorConfig::local(), limits(1, 1), PATIENCE).await;
    let mut miser = Miser::allowing(&server, 0).await;
    let _answer = miser.ask("/healthz").await;
    assert!(!is_served(&server).await, "most clients only need a moment");
    within(async {
        while !is_served(&server).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_over_http2_that_has_nothing_to_say_for_long_is_waited_for() {
    let server = server(limits(9, 9)).await;
    let mut client = Client::two(&server).await;
    let news = tokio::spawn(async move { client.ask(get("/api/v1/news")).await });
    server.gate.until_entered(1).await;
    // One that could not take its answer either, if there were one.
    let mut miser = Miser::allowing(&server, 0).await;
    let asking = tokio::spawn(async move { miser.ask("/api/v1/wait").await.status() });
    server.gate.until_entered(1).await;
    idle_times(&server, 3).await;
    server.gate.let_go(2);
    assert_eq!(news.await.unwrap().text(), "early late");
    assert_eq!(asking.await.unwrap(), 200);
}

#[tokio::test]
async fn a_long_answer_over_http2_that_is_taken_slowly_comes_whole() {
    let server = server(limits(9, 9)).await;
    let mut client = Miser::allowing(&server, 1 << 20).await;
    let mut answer = client.ask("/api/v1/large").await.into_body();
    // All of it takes four times as long as a client may take nothing.
    const STEP: usize = 4 << 20;
    let (mut length, mut pause) = (0, STEP);
    let mut ticks = tokio::time::interval(IDLE / 4);
    while let Some(frame) = within(answer.frame()).await {
        length += frame.unwrap().into_data().unwrap().len();
        if length > pause {
            pause += STEP;
            ticks.tick().await;
        }
    }
    assert_eq!(length, 64 << 20);
}
