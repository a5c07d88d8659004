//! Bodies: of strangers, from whom few are taken, and of everybody at once.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Request;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use redrive_server::config::Limits;
use redrive_server::door::{DoorConfig, SESSION_PATH, Scope};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::door_with_tokens;
use crate::ground::{Client, PATIENCE, Server, limits, request, within};

/// A socket on which this has been said.
async fn saying(server: &Server, text: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(text.as_bytes()).await.unwrap();
    socket
}

fn post(path: &str, length: usize, begin: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{begin}")
}

/// A socket from which the server is reading a body of which nothing has come yet.
async fn being_read(server: &Server, path: &str, length: usize) -> TcpStream {
    const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let head = post(path, length, "").replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    let mut socket = saying(server, &head).await;
    let mut said = [0; GO_ON.len()];
    within(socket.read_exact(&mut said)).await.unwrap();
    assert_eq!(said, GO_ON);
    socket
}

/// What is answered, until the connection is closed.
async fn answer(mut socket: TcpStream) -> String {
    let mut said = Vec::new();
    // It may be closed rudely, since not all was read.
    drop(within(socket.read_to_end(&mut said)).await);
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn a_strangers_body_is_refused_unread() {
    let (config, tokens) = door_with_tokens(&[&[Scope::Admin]]).await;
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let mut heads =
        vec![post("/healthz", 1, ""), post("/healthz", 1_000_000, "x"), post(SESSION_PATH, 5_000, "x")];
    heads.push(
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n".into(),
    );
    if cfg!(feature = "dashboard") {
        heads.push(post("/sign-in", 1, "").replace("POST", "GET"));
    }
    for head in heads {
        let begun = Instant::now();
        let said = answer(saying(&server, &head).await).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "nothing is waited for: {head}");
        assert!(said.starts_with("HTTP/1.1 413 ") && said.contains("RETRY_TOO_LARGE"), "{head}: {said}");
        assert!(!said.contains("limits.body_bytes"), "more is never taken: {said}");
    }
    let body = Full::from(vec![b'x'; 100_000]);
    for path in ["/healthz", SESSION_PATH] {
        let mut client = Client::two(&server).await;
        let ask = request("POST", &format!("http://localhost{path}"), &[]).map(|_| body.clone());
        assert_eq!(client.ask(ask).await.code(), "RETRY_TOO_LARGE", "{path}");
        assert_eq!(client.ask(request("GET", "http://localhost/healthz", &[])).await.text(), "ok");
    }
    let token = ("authorization", tokens[0].as_str());
    let known = request("POST", "/api/v1/echo", &[token]).map(|_| body);
    assert_eq!(server.client().await.ask(known).await.text(), "100000");
}

#[tokio::test]
async fn who_says_that_no_body_comes_may_look() {
    let (config, _) = door_with_tokens(&[&[Scope::Admin]]).await;
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    for length in ["Content-Length: 0", "Transfer-Encoding: chunked"] {
        let text =
            format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{length}\r\n\r\n");
        let end = if length.contains("chunked") { "0\r\n\r\n" } else { "" };
        let said = answer(saying(&server, &(text + end)).await).await;
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    }
}

#[tokio::test]
async fn a_strangers_body_that_drips_loses_its_place_in_time() {
    let (config, _) = door_with_tokens(&[&[Scope::Admin]]).await;
    let config = DoorConfig { body_time: Duration::from_millis(200), ..config };
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    for head in [
        post(SESSION_PATH, 4_000, "{"),
        post("/healthz", 0, "").replace("Content-Length: 0", "Transfer-Encoding: chunked"),
    ] {
        let begun = Instant::now();
        let said = answer(saying(&server, &head).await).await;
        assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("RETRY_TOO_SLOW"), "{head}: {said}");
        assert!(begun.elapsed() >= Duration::from_millis(200), "{head}");
    }
}

#[tokio::test]
async fn a_crowd_of_strangers_that_drip_their_bodies_makes_place() {
    let (config, tokens) = door_with_tokens(&[&[Scope::Read]]).await;
    let server = Server::with(config, limits(3, 3), PATIENCE).await;
    let mut crowd = Vec::new();
    for _ in 0..3 {
        crowd.push(being_read(&server, SESSION_PATH, 4_000).await);
    }
    let token = ("authorization", tokens[0].as_str());
    let mut known = server.client().await;
    assert_eq!(known.ask(request("GET", "/api/v1/who", &[token])).await.text(), "t1");
    assert_eq!(server.client().await.get("/healthz").await.text(), "ok");
    assert_eq!(known.ask(request("GET", "/api/v1/who", &[token])).await.text(), "t1", "who is known stays");
}

#[tokio::test]
async fn one_connection_has_one_body_of_a_stranger_at_a_time() {
    let (config, _) = door_with_tokens(&[&[Scope::Read]]).await;
    let server =
        Server::with(DoorConfig { body_time: PATIENCE, ..config }, Limits::default(), PATIENCE).await;
    let socket = TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let mut ask = || {
        let begun = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
        let body = StreamBody::new(begun.chain(stream::pending()));
        let url = format!("http://localhost{SESSION_PATH}");
        sender.send_request(Request::post(url).body(Box::pin(body)).unwrap())
    };
    let first = tokio::spawn(ask());
    let refused = within(ask()).await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    let said = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&said).contains("RETRY_BUSY"));
    assert!(!first.is_finished());
}

#[tokio::test]
async fn whoever_finds_no_room_for_a_large_body_is_told_to_come_back_and_then_there_is() {
    const LENGTH: usize = 100_000;
    let config = DoorConfig { body_bytes: LENGTH, body_room: 0, ..DoorConfig::local() };
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let echo = |length: usize| request("POST", "/api/v1/echo", &[]).map(|_| Full::from(vec![b'x'; length]));
    let ask = async || server.client().await.ask(echo(LENGTH)).await;
    let mut large = Vec::new();
    for _ in 0..4 {
        large.push(being_read(&server, "/api/v1/echo", LENGTH).await);
    }
    assert_eq!(ask().await.text(), "100000", "nothing has come of the others yet");

    for socket in &mut large {
        socket.write_all(&vec![b'x'; LENGTH - 1]).await.unwrap();
    }
    let refused = within(async {
        loop {
            let answer = ask().await;
            if answer.status != 200 {
                return answer;
            }
        }
    });
    let refused = refused.await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (503, "RETRY_BUSY"));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(server.client().await.ask(echo(1_000)).await.text(), "1000", "a short one needs no room");

    for mut socket in large {
        socket.write_all(b"x").await.unwrap();
        let mut said = vec![0; 12];
        within(socket.read_exact(&mut said)).await.unwrap();
        assert_eq!(said, b"HTTP/1.1 200");
    }
    for _ in 0..3 {
        assert_eq!(ask().await.text(), "100000");
    }
}
