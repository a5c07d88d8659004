//! The door on real sockets: crowds, slow clients, strange hosts, other people's pages, wrong tokens, limits, panics
//! and the way out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "how long an answer takes is measured by the clock on the wall"
)]

#[path = "support/authority.rs"]
mod authority;
#[path = "door/ground.rs"]
mod ground;
#[path = "door/strangers.rs"]
mod strangers;
#[path = "door/tls.rs"]
mod tls;
#[path = "door/windows.rs"]
mod windows;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use redrive::{Clock, Timestamp};
use redrive_server::config::{self, Limits, ServeOptions, Sources};
use redrive_server::door::{
    self, DoorConfig, EXIT_CONFIG, Entry, HEADER_BYTES_MAX, HEADERS_MAX, Hosts, MemoryTokenBook, Scope,
    Token, TokenBook, URL_BYTES_MAX,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use ground::{Answer, Client, PATIENCE, Server, limits, raise_open_files, request, within};

const UNSAFE: [&str; 5] = ["POST", "PUT", "PATCH", "DELETE", "PURGE"];
const SAFE: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

// ---- crowds and slow clients -----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_half_open_sockets_do_not_keep_a_normal_request_from_its_answer() {
    assert!(raise_open_files() >= 4_096, "the system allows too few open files for this test");
    let server = Server::start().await;
    let mut crowd = Vec::new();
    for number in 0..2_000_u32 {
        // From forty addresses, so that it is the limit on all of them that counts.
        let mut socket = server.socket_from(2 + u8::try_from(number % 40).unwrap()).await;
        socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ").await.unwrap();
        crowd.push(socket);
    }
    let mut times = Vec::new();
    for _ in 0..21 {
        let begun = Instant::now();
        assert_eq!(server.client().await.get("/healthz").await.text(), "ok");
        times.push(begun.elapsed());
    }
    times.sort();
    println!("2,000 half-open sockets: a request takes {:?} (median), {:?} (longest)", times[10], times[20]);
    assert!(times[10] < Duration::from_millis(250), "{times:?}");
    assert!(open_of(&mut crowd).await <= 1_024, "more connections are open than the limit allows");
}

/// How many of these sockets the server has not closed.
async fn open_of(sockets: &mut [TcpStream]) -> usize {
    let mut open = 0;
    for socket in sockets {
        let mut byte = [0];
        match socket.try_read(&mut byte) {
            Ok(0) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                // Whether it is readable at all is known only once it was asked for.
                let closed = tokio::time::timeout(Duration::from_millis(1), socket.readable()).await.is_ok()
                    && !matches!(socket.try_read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
                open += usize::from(!closed);
            }
            Ok(_) => open += 1,
            Err(_) => {}
        }
    }
    open
}

/// Not a test of its own: the server that the next one attacks, in a process that may open few files.
#[tokio::test]
#[ignore = "a part of another test"]
async fn a_server_until_its_input_ends() {
    let server = Server::start().await;
    println!("address {}", server.address);
    drop(tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await);
}

#[tokio::test]
async fn a_process_that_may_open_no_more_files_still_answers() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    let own = std::env::current_exe().unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$0\" --exact --ignored --nocapture a_server_until_its_input_ends"])
        .arg(own)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| line.split("address ").nth(1).map(str::to_owned)).unwrap();
    let mut crowd = Vec::new();
    for _ in 0..200 {
        let mut socket = within(TcpStream::connect(&address)).await.unwrap();
        socket.write_all(b"GET /healthz HT").await.unwrap();
        crowd.push(socket);
    }
    let mut client = Client::on(within(TcpStream::connect(&address)).await.unwrap()).await;
    let begun = Instant::now();
    assert_eq!(client.get("/healthz").await.text(), "ok");
    // Without making place it would have to wait until the heads of the others have had their ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    drop(child.stdin.take());
    assert_eq!(lines.filter(|line| line.contains("test result: ok")).count(), 1);
    child.wait().unwrap();
}

#[tokio::test]
async fn when_every_connection_is_at_work_the_next_is_told_to_come_back() {
    let server = Server::with(DoorConfig::local(), limits(3, 3), PATIENCE).await;
    let mut working = Vec::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        working.push(tokio::spawn(async move { client.get("/api/v1/wait").await }));
    }
    server.gate.until_entered(3).await;
    let mut refused = TcpStream::connect(server.address).await.unwrap();
    let mut said = String::new();
    within(refused.read_to_string(&mut said)).await.unwrap();
    assert!(
        said.starts_with("HTTP/1.1 503 ") && said.contains("RETRY_BUSY") && said.contains("retry-after: 1")
    );

    server.gate.let_go(3);
    for answer in working {
        assert_eq!(answer.await.unwrap().text(), "waited");
    }
    assert_eq!(server.client().await.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn one_address_cannot_take_the_places_of_another() {
    let server = Server::with(DoorConfig::local(), limits(100, 2), PATIENCE).await;
    let mut other = Client::on(server.socket_from(9).await).await;
    assert_eq!(other.get("/healthz").await.status, 200);
    let mut crowd = Vec::new();
    for _ in 0..10 {
        crowd.push(server.socket_from(8).await);
    }
    let mut newest = Client::on(server.socket_from(8).await).await;
    assert_eq!(newest.get("/healthz").await.status, 200);
    for socket in &mut crowd[..9] {
        assert_eq!(within(socket.read(&mut [0])).await.unwrap_or(0), 0, "the older ones made place");
    }
    assert_eq!(other.get("/healthz").await.status, 200, "and the other address is still connected");
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_is_cut_off_however_it_drips() {
    let patience = Duration::from_millis(300);
    let quick = Limits { header_read_timeout: patience, ..Limits::default() };
    let server = Server::with(DoorConfig::local(), quick, PATIENCE).await;
    for opening in ["", "G", "PRI * HT", "GET / HTTP/1.1\r\nA: b\r\n"] {
        let begun = Instant::now();
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(opening.as_bytes()).await.unwrap();
        assert_eq!(within(socket.read(&mut [0])).await.unwrap_or(0), 0, "{opening:?}");
        assert!(begun.elapsed() >= patience, "{opening:?} was cut off early");
    }
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await.unwrap();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let cut_off = async {
        while socket.write_all(b"x").await.is_ok() {
            ticks.tick().await;
        }
    };
    within(cut_off).await;
}

#[tokio::test]
async fn a_second_head_has_as_little_time_as_the_first() {
    let quick = Limits { header_read_timeout: Duration::from_millis(200), ..Limits::default() };
    let server = Server::with(DoorConfig::local(), quick, PATIENCE).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4_096];
    assert!(within(socket.read(&mut answer)).await.unwrap() > 0);
    let begun = Instant::now();
    socket.write_all(b"GET /healthz HT").await.unwrap();
    // The time between requests would be a minute.
    assert_eq!(within(socket.read(&mut answer)).await.unwrap_or(0), 0);
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_quiet_connection_is_closed_and_one_that_waits_for_its_answer_is_not() {
    let quick = Limits {
        header_read_timeout: Duration::from_millis(100),
        idle_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Server::with(DoorConfig::local(), quick, PATIENCE).await;
    let mut waiting = server.client().await;
    let waiting = tokio::spawn(async move { waiting.get("/api/v1/wait").await });
    server.gate.until_entered(1).await;

    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4_096];
    let begun = Instant::now();
    assert!(within(socket.read(&mut answer)).await.unwrap() > 0);
    assert_eq!(within(socket.read(&mut answer)).await.unwrap_or(0), 0);
    assert!(
        begun.elapsed() >= Duration::from_millis(300),
        "longer than a head may take, since none had begun"
    );
    // By now the other has been waiting for longer than a connection may be idle.
    server.gate.let_go(1);
    assert_eq!(waiting.await.unwrap().text(), "waited");
}

#[tokio::test]
async fn a_body_that_only_trickles_is_refused_and_so_is_one_that_takes_too_long() {
    let config = DoorConfig { body_pace: Duration::from_millis(200), ..DoorConfig::local() };
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket
        .write_all(b"POST /api/v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\nabc")
        .await
        .unwrap();
    let mut said = vec![0; 4_096];
    let length = within(socket.read(&mut said)).await.unwrap();
    let said = String::from_utf8_lossy(&said[..length]);
    assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("RETRY_TOO_SLOW"), "{said}");

    let config = DoorConfig { body_time: Duration::from_millis(200), ..DoorConfig::local() };
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let (mut read, mut write) = TcpStream::connect(server.address).await.unwrap().into_split();
    let head = b"POST /api/v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    write.write_all(head).await.unwrap();
    // Each thousand bytes come in time.
    let drip = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while write.write_all(&[b'x'; 1_000]).await.is_ok() {
            ticks.tick().await;
        }
    });
    let mut said = vec![0; 4_096];
    let length = within(read.read(&mut said)).await.unwrap();
    let said = String::from_utf8_lossy(&said[..length]);
    assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("takes too long"), "{said}");
    within(drip).await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answer_loses_its_place() {
    let quick = Limits { idle_timeout: Duration::from_millis(300), ..limits(1, 1) };
    let server = Server::with(DoorConfig::local(), quick, PATIENCE).await;
    let mut greedy = TcpStream::connect(server.address).await.unwrap();
    greedy.write_all(b"GET /api/v1/large HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    // It is being served, so it keeps its place for now.
    let mut status = [0; 12];
    within(greedy.read_exact(&mut status)).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    let is_served = async || {
        let mut client = server.client().await;
        client.try_ask(request("GET", "/healthz", &[])).await.is_ok_and(|answer| answer.status == 200)
    };
    assert!(!is_served().await);
    within(async { while !is_served().await {} }).await;
}

#[tokio::test]
async fn requests_that_are_taken_back_at_once_leave_nothing_behind() {
    let server = Server::with(DoorConfig::local(), limits(4, 4), PATIENCE).await;
    for _ in 0..20 {
        let mut client = Client::two(&server).await;
        let waits = (0..100).map(|_| request("GET", "http://localhost/api/v1/wait", &[]));
        for wait in waits {
            let taken_back = client.try_ask(wait);
            drop(tokio::time::timeout(Duration::ZERO, taken_back).await);
        }
    }
    // Were any of them still counted as at work, there would be no place for this one.
    within(async { while server.client().await.try_ask(request("GET", "/healthz", &[])).await.is_err() {} })
        .await;
}

// ---- hosts and other people's pages ----------------------------------------------------------------------------

#[tokio::test]
async fn only_requests_for_this_server_are_answered_in_every_version_and_method() {
    let config = DoorConfig {
        hosts: Hosts::new(["redrive.example".to_owned()], [127, 0, 0, 1].into()),
        ..DoorConfig::local()
    };
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let (mut one, mut two) = (server.client().await, Client::two(&server).await);
    let own = ["127.0.0.1", "localhost:7373", "[::1]", "redrive.example", "REDRIVE.EXAMPLE:443"];
    let foreign =
        ["evil.test", "localhost.evil.test", "127.0.0.1.nip.io", "10.0.0.1", "redrive.example.evil.test"];
    for method in SAFE.iter().chain(&UNSAFE) {
        for (host, status) in own.iter().map(|host| (host, 200)).chain(foreign.iter().map(|host| (host, 421)))
        {
            let answer = one.ask(request(method, "/api/v1/echo", &[("host", host)])).await;
            assert_eq!(answer.status, status, "HTTP/1.1 {method} {host}");
            let url = format!("http://{host}/api/v1/echo");
            let answer = two.ask(request(method, &url, &[])).await;
            assert_eq!(answer.status, status, "HTTP/2 {method} {host}");
            if status == 421 && *method != "HEAD" {
                assert_eq!(answer.code(), "RETRY_MISDIRECTED");
            }
        }
    }
    let answer = two.ask(request("GET", "http://localhost/healthz", &[("host", "evil.test")])).await;
    assert_eq!(answer.status, 400, "two different names");
}

#[tokio::test]
async fn a_request_without_a_host_or_with_two_is_refused() {
    let server = Server::start().await;
    for head in [
        "GET /healthz HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.0\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n",
        "GET http://evil.test/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut said = vec![0; 64];
        within(socket.read_exact(&mut said[..12])).await.unwrap();
        assert_eq!(&said[8..12], b" 400", "{head:?} {}", String::from_utf8_lossy(&said));
    }
}

/// What a browser on another site may do is nothing; what has no mark of a browser may pass.
#[tokio::test]
async fn no_page_of_another_site_changes_anything() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let sites =
        [None, Some("same-origin"), Some("none"), Some("same-site"), Some("cross-site"), Some("nonsense")];
    let origins = [
        None,
        Some("http://127.0.0.1:7373"),
        Some("https://127.0.0.1:7373"),
        Some("http://127.0.0.1"),
        Some("http://127.0.0.1:7373.evil.test"),
        Some("http://evil.test"),
        Some("null"),
        Some("http://"),
    ];
    let mut refused = 0;
    for method in SAFE.iter().chain(&UNSAFE) {
        for site in sites {
            for origin in origins {
                let mut headers = vec![("host", "127.0.0.1:7373")];
                headers.extend(site.map(|site| ("sec-fetch-site", site)));
                headers.extend(origin.map(|origin| ("origin", origin)));
                let answer = client.ask(request(method, "/api/v1/echo", &headers)).await;
                let is_own = match (site, origin) {
                    (Some("same-origin" | "none"), _) | (None, None) => true,
                    (None, Some(origin)) => origin.ends_with("://127.0.0.1:7373"),
                    _ => false,
                };
                let may = SAFE.contains(method) || is_own;
                assert_eq!(answer.status, if may { 200 } else { 403 }, "{method} {site:?} {origin:?}");
                if !may {
                    assert_eq!(answer.code(), "RETRY_CROSS_SITE");
                    refused += 1;
                }
                assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control-")));
            }
        }
    }
    assert_eq!(refused, 5 * (3 * 8 + 5), "so many combinations are another site's");
}

#[tokio::test]
async fn a_preflight_is_not_granted() {
    let server = Server::start().await;
    let headers = [("origin", "http://evil.test"), ("access-control-request-method", "POST")];
    let answer = server.client().await.ask(request("OPTIONS", "/api/v1/operate", &headers)).await;
    assert!(answer.headers.get("access-control-allow-origin").is_none(), "{answer:?}");
}

// ---- limits ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_url_may_be_as_long_as_the_limit_and_no_longer() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let path = |length: usize| format!("/healthz?{}", "x".repeat(length - "/healthz?".len()));
    assert_eq!(client.get(&path(URL_BYTES_MAX)).await.status, 200);
    let answer = client.get(&path(URL_BYTES_MAX + 1)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (414, "RETRY_URL_TOO_LONG"));
}

#[tokio::test]
async fn headers_may_be_as_many_and_as_long_as_the_limits_and_no_more() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let many = |count: usize| {
        let mut request = request("GET", "/healthz", &[]);
        for number in 1..count {
            request
                .headers_mut()
                .insert(http::HeaderName::from_bytes(format!("x-{number}").as_bytes()).unwrap(), 1.into());
        }
        request
    };
    assert_eq!(client.ask(many(HEADERS_MAX)).await.status, 200);
    let answer = client.ask(many(HEADERS_MAX + 1)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (431, "RETRY_HEADERS_TOO_LARGE"));

    let host = "host".len() + "127.0.0.1".len();
    let long = |bytes: usize| request("GET", "/healthz", &[("x", &"y".repeat(bytes - host - 1))]);
    assert_eq!(client.ask(long(HEADER_BYTES_MAX)).await.status, 200);
    let answer = client.ask(long(HEADER_BYTES_MAX + 1)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (431, "RETRY_HEADERS_TOO_LARGE"));
}

#[tokio::test]
async fn a_body_may_be_as_long_as_the_limit_and_no_longer_announced_or_not() {
    let limit = 300_000;
    let server =
        Server::with(DoorConfig { body_bytes: limit, ..DoorConfig::local() }, Limits::default(), PATIENCE)
            .await;
    for length in [0, 1, limit, limit + 1, 20 * limit] {
        let post = request("POST", "/api/v1/echo", &[]).map(|_| Full::from(Bytes::from(vec![b'x'; length])));
        let answer = server.client().await.ask(post).await;
        assert_body(&answer, length, limit);
        let answer = chunked(&server, length).await;
        assert!(
            answer.starts_with(if length > limit { "HTTP/1.1 413" } else { "HTTP/1.1 200" }),
            "{length}: {answer}"
        );
        let mut two = Client::two(&server).await;
        let url = "http://localhost/api/v1/echo";
        let post = request("POST", url, &[]).map(|_| Full::from(Bytes::from(vec![b'x'; length])));
        assert_body(&two.ask(post).await, length, limit);
    }
}

fn assert_body(answer: &Answer, length: usize, limit: usize) {
    if length <= limit {
        assert_eq!((answer.status.as_u16(), answer.text()), (200, length.to_string().as_str()));
    } else {
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (413, "RETRY_TOO_LARGE"), "{length}");
    }
}

/// The status line of the answer to a body whose length nobody announced.
async fn chunked(server: &Server, length: usize) -> String {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = b"POST /api/v1/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    socket.write_all(head).await.unwrap();
    for chunk in vec![b'x'; length].chunks(50_000) {
        socket.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.unwrap();
        socket.write_all(chunk).await.unwrap();
        socket.write_all(b"\r\n").await.unwrap();
    }
    socket.write_all(b"0\r\n\r\n").await.unwrap();
    let mut said = vec![0; 12];
    within(socket.read_exact(&mut said)).await.unwrap();
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn json_may_be_nested_as_deep_as_the_limit_and_no_deeper() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let nested = |depth: usize| {
        let json = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        request("POST", "/api/v1/echo", &[("content-type", "application/json")]).map(|_| Full::from(json))
    };
    assert_eq!(client.ask(nested(64)).await.status, 200);
    let answer = client.ask(nested(65)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (422, "RETRY_INVALID"));
}

#[tokio::test]
async fn a_body_that_is_announced_too_long_is_refused_before_it_is_sent() {
    let server = Server::start().await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = b"POST /api/v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n";
    socket.write_all(head).await.unwrap();
    let mut said = vec![0; 12];
    within(socket.read_exact(&mut said)).await.unwrap();
    assert_eq!(said, b"HTTP/1.1 413");
}

#[tokio::test]
async fn an_http2_head_over_its_limit_is_refused_and_the_server_lives_on() {
    let server = Server::start().await;
    let mut client = Client::two(&server).await;
    let long = request("GET", "http://localhost/healthz", &[("x", &"y".repeat(20_000))]);
    match client.try_ask(long).await {
        Ok(answer) => assert_eq!(answer.status, 431),
        Err(error) => println!("refused below HTTP: {error}"),
    }
    assert_eq!(
        Client::two(&server).await.ask(request("GET", "http://localhost/healthz", &[])).await.status,
        200
    );
}

// ---- panics ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_panic_is_an_answer_with_an_id_and_no_text_and_the_connection_goes_on() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for _ in 0..3 {
        let answer = client.get("/api/v1/panic").await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "RETRY_INTERNAL"));
        let id = answer.headers["x-request-id"].to_str().unwrap();
        assert!(answer.text().contains(id) && !answer.text().contains("a secret"), "{answer:?}");
    }
    assert_eq!(client.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn every_request_has_an_id_of_its_own_that_the_route_sees() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let first = client.ask(request("GET", "/api/v1/id", &[("x-request-id", "mine")])).await;
    let second = client.get("/api/v1/id").await;
    assert_eq!(first.headers["x-request-id"], first.text());
    assert_ne!(first.text(), second.text());
    assert!(!first.text().contains("mine"));
}

// ---- tokens ----------------------------------------------------------------------------------------------------

async fn door_with_tokens(scopes: &[&[Scope]]) -> (DoorConfig, Vec<String>) {
    let book = Arc::new(MemoryTokenBook::default());
    let mut tokens = Vec::new();
    for (number, scopes) in (1_u8..).zip(scopes) {
        let (token, record) =
            Token::mint(&[number; 39], &format!("t{number}"), scopes.to_vec(), Timestamp::EPOCH, None);
        book.add(record).await.unwrap();
        tokens.push(format!("Bearer {}", token.reveal()));
    }
    (DoorConfig { entry: Entry::Tokens(book), ..DoorConfig::local() }, tokens)
}

#[tokio::test]
async fn without_a_token_only_the_health_page_and_empty_pages_to_sign_in_on_are_shown() {
    let (config, tokens) = door_with_tokens(&[&[Scope::Read]]).await;
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let mut client = server.client().await;
    for path in
        ["/api/v1/echo", "/api/v1/who", "/asset", "/metrics", "/openapi.json", "/nothing", "/healthz/x"]
    {
        for method in SAFE.iter().chain(&UNSAFE).filter(|method| **method != "HEAD") {
            let answer = client.ask(request(method, path, &[])).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (401, "RETRY_AUTH_REQUIRED"),
                "{method} {path}"
            );
            assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"redrive\"");
        }
    }
    // The dashboard's pages have nothing of anybody's in them, and are only ever read.
    let sign_in = client.get("/").await.status.as_u16();
    assert_eq!(sign_in != 401, cfg!(feature = "dashboard"), "{sign_in}");
    for method in UNSAFE {
        assert_eq!(client.ask(request(method, "/", &[])).await.status.as_u16(), 401, "{method} /");
    }
    assert_eq!(client.get("/healthz").await.text(), "ok");
    let answer = client.ask(request("GET", "/api/v1/who", &[("authorization", &tokens[0])])).await;
    assert_eq!(answer.text(), "t1");
}

#[tokio::test]
async fn a_token_that_lacks_a_scope_is_told_which() {
    let (config, tokens) = door_with_tokens(&[&[Scope::Read], &[Scope::Operate], &[Scope::Admin]]).await;
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let mut client = server.client().await;
    let answer = client.ask(request("POST", "/api/v1/operate", &[("authorization", &tokens[0])])).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (403, "RETRY_FORBIDDEN"));
    assert!(answer.text().contains("needs the scope operate"), "{answer:?}");
    for token in &tokens[1..] {
        let answer = client.ask(request("POST", "/api/v1/operate", &[("authorization", token)])).await;
        assert_eq!(answer.text(), "done");
    }
}

#[tokio::test]
async fn on_loopback_without_tokens_everybody_may_do_everything() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.get("/api/v1/who").await.text(), "local");
    assert_eq!(client.ask(request("POST", "/api/v1/operate", &[])).await.text(), "done");
}

#[tokio::test]
async fn ten_thousand_wrong_tokens_are_throttled_while_a_good_one_works() {
    let (config, tokens) = door_with_tokens(&[&[Scope::Read]]).await;
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let (mut wrong, mut good) = (server.client().await, Client::on(server.socket_from(7).await).await);
    let mut counts = BTreeMap::<u16, u32>::new();
    for number in 0..10_000_u32 {
        let mut entropy = [9; 39];
        entropy[..4].copy_from_slice(&number.to_be_bytes());
        let token = Token::mint(&entropy, "", Vec::new(), Timestamp::EPOCH, None).0;
        let header = format!("Bearer {}", token.reveal());
        let answer = wrong.ask(request("GET", "/api/v1/who", &[("authorization", &header)])).await;
        *counts.entry(answer.status.as_u16()).or_default() += 1;
        if answer.status == 429 {
            assert!(answer.headers.contains_key("retry-after"));
        }
        if number % 1_000 == 500 {
            let answer = good.ask(request("GET", "/api/v1/who", &[("authorization", &tokens[0])])).await;
            assert_eq!(answer.status, 200, "from another address");
            let answer = wrong.ask(request("GET", "/api/v1/who", &[("authorization", &tokens[0])])).await;
            assert_eq!(answer.status, 200, "and from the very address that is throttled");
        }
    }
    println!("10,000 wrong tokens: {counts:?}");
    assert!(counts[&429] > 9_900 && counts[&401] + counts[&429] == 10_000, "{counts:?}");
}

// ---- what browsers are told ------------------------------------------------------------------------------------

#[tokio::test]
async fn every_answer_carries_the_same_security_headers() {
    let (config, tokens) = door_with_tokens(&[&[Scope::Read]]).await;
    let server = Server::with(DoorConfig { body_bytes: 10, ..config }, Limits::default(), PATIENCE).await;
    let mut client = server.client().await;
    let token = ("authorization", tokens[0].as_str());
    let long = request("POST", "/api/v1/echo", &[token]).map(|_| Full::from(vec![b'x'; 11]));
    let cases = [
        (200, request("GET", "/healthz", &[])),
        (200, request("GET", "/api/v1/who", &[token])),
        (401, request("GET", "/api/v1/who", &[])),
        (403, request("POST", "/api/v1/operate", &[token])),
        (403, request("POST", "/api/v1/echo", &[token, ("sec-fetch-site", "cross-site")])),
        (404, request("GET", "/api/v1/nothing", &[token])),
        (405, request("PUT", "/api/v1/who", &[token])),
        (413, long),
        (421, request("GET", "/healthz", &[("host", "evil.test")])),
        (500, request("GET", "/api/v1/panic", &[token])),
    ];
    const EXPECTED: &str = "\
cache-control: no-store
content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'
cross-origin-opener-policy: same-origin
cross-origin-resource-policy: same-origin
redrive-time: (a time)
referrer-policy: no-referrer
x-content-type-options: nosniff
x-request-id: (an id)";
    const OTHERS: [&str; 6] =
        ["content-type", "content-length", "date", "www-authenticate", "allow", "connection"];
    for (status, request) in cases {
        let what = format!("{} {}", request.method(), request.uri());
        let answer = client.ask(request).await;
        assert_eq!(answer.status, status, "{what}");
        let mut lines: Vec<String> = answer
            .headers
            .iter()
            .filter(|(name, _)| !OTHERS.contains(&name.as_str()))
            .map(|(name, value)| match name.as_str() {
                "x-request-id" => "x-request-id: (an id)".to_owned(),
                "redrive-time" => "redrive-time: (a time)".to_owned(),
                name => format!("{name}: {}", value.to_str().unwrap()),
            })
            .collect();
        lines.sort();
        assert_eq!(lines.join("\n"), EXPECTED, "{what}");
    }
    let asset = client.ask(request("GET", "/asset", &[token])).await;
    assert_eq!(asset.headers["cache-control"], "immutable", "what is not the API may say otherwise");
}

// ---- the way out -----------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_shutdown_takes_nobody_new_and_lets_a_running_request_finish() {
    let mut server = Server::start().await;
    let (mut idle, mut busy) = (server.client().await, server.client().await);
    let mut half_open = TcpStream::connect(server.address).await.unwrap();
    half_open.write_all(b"GET /").await.unwrap();
    assert_eq!(idle.get("/healthz").await.status, 200);
    let mut two = Client::two(&server).await;
    let busy = tokio::spawn(async move { busy.get("/api/v1/wait").await });
    let two = tokio::spawn(async move { two.ask(request("GET", "http://localhost/api/v1/wait", &[])).await });
    server.gate.until_entered(2).await;

    server.stop();
    assert_eq!(
        within(half_open.read(&mut [0])).await.unwrap_or(0),
        0,
        "who has asked for nothing gets nothing"
    );
    assert!(idle.try_ask(request("GET", "/healthz", &[])).await.is_err(), "an idle connection is closed");
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody new is taken");
    assert!(!server.ended.is_finished());
    server.gate.let_go(2);
    assert_eq!(busy.await.unwrap().text(), "waited");
    assert_eq!(two.await.unwrap().text(), "waited");
    within(&mut server.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_shutdown_does_not_wait_longer_than_its_grace() {
    let mut server = Server::with(DoorConfig::local(), Limits::default(), Duration::from_millis(50)).await;
    let mut client = server.client().await;
    let stuck = tokio::spawn(async move { client.try_ask(request("GET", "/api/v1/wait", &[])).await });
    server.gate.until_entered(1).await;
    server.stop();
    within(&mut server.ended).await.unwrap().unwrap();
    assert!(stuck.await.unwrap().is_err());
}

// ---- opening ---------------------------------------------------------------------------------------------------

/// Where it listens × what tokens there are: twelve ways to start.
#[tokio::test]
async fn off_loopback_a_server_without_a_token_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    for (number, listen) in (1_u8..).zip(["127.0.0.1:1", "[::1]:1", "0.0.0.0:1", "192.0.2.1:1"]) {
        for tokens in ["none", "book", "file"] {
            let path = folder.path().join(format!("{number}.token"));
            let options = ServeOptions {
                listen: Some(listen.into()),
                insecure: true,
                token_file: (tokens == "file").then(|| path.clone()),
                ..ServeOptions::default()
            };
            let config = config::load(&Sources::none().options(options)).unwrap();
            let book = Arc::new(MemoryTokenBook::default());
            if tokens == "book" {
                let scopes = vec![Scope::Admin];
                book.add(Token::mint(&[1; 39], "a", scopes, Timestamp::EPOCH, None).1).await.unwrap();
            }
            let opened = door::open(&config, book.clone(), &[number; 39], Timestamp::from_millis(5)).await;
            match (opened, tokens) {
                (Ok(opening), "none") => {
                    assert!(config.listen.ip().is_loopback(), "{listen}");
                    assert!(matches!(opening.entry, Entry::Local));
                }
                (Err(refused), "none") => {
                    assert!(!config.listen.ip().is_loopback(), "{listen}");
                    assert_eq!((refused.code, EXIT_CONFIG), ("RETRY_AUTH_REQUIRED", 78));
                    assert!(refused.to_string().contains("redrive tokens create --scope admin"), "{refused}");
                }
                (Ok(opening), _) => {
                    assert!(matches!(opening.entry, Entry::Tokens(_)), "{listen} {tokens}");
                    assert_eq!(opening.written.is_some(), tokens == "file");
                }
                (Err(refused), _) => panic!("{listen} {tokens}: {refused}"),
            }
            if tokens == "file" {
                assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
                let token: Token = std::fs::read_to_string(&path).unwrap().trim().parse().unwrap();
                let record = book.find(token.key_id()).await.unwrap().unwrap();
                assert_eq!(record.scopes, [Scope::Admin]);
            }
        }
    }
}

#[tokio::test]
async fn a_server_on_loopback_that_has_a_name_does_not_start_without_a_token() {
    let options = ServeOptions { hosts: vec!["redrive.example".into()], ..ServeOptions::default() };
    let config = config::load(&Sources::none().options(options)).unwrap();
    let book = Arc::new(MemoryTokenBook::default());
    let refused = door::open(&config, book, &[1; 39], Timestamp::from_millis(5)).await.err().unwrap();
    assert_eq!(refused.message, "others reach this server as redrive.example, and there is no token");
}

#[tokio::test]
async fn what_a_proxy_passed_on_is_not_local() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for mark in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"] {
        let answer = client.ask(request("GET", "/api/v1/who", &[(mark, "203.0.113.9")])).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (401, "RETRY_AUTH_REQUIRED"), "{mark}");
    }
    let (config, tokens) = door_with_tokens(&[&[Scope::Read]]).await;
    let server = Server::with(config, Limits::default(), PATIENCE).await;
    let headers = [("authorization", tokens[0].as_str()), ("x-forwarded-for", "203.0.113.9")];
    assert_eq!(server.client().await.ask(request("GET", "/api/v1/who", &headers)).await.text(), "t1");
}

#[tokio::test]
async fn a_token_file_is_made_once_and_taken_over_by_the_next_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.token");
    let options = ServeOptions { token_file: Some(path.clone()), ..ServeOptions::default() };
    let config = config::load(&Sources::none().options(options)).unwrap();
    let now = Timestamp::from_millis(5);
    door::open(&config, Arc::new(MemoryTokenBook::default()), &door::entropy().unwrap(), now).await.unwrap();
    let written = std::fs::read_to_string(&path).unwrap();

    let next = Arc::new(MemoryTokenBook::default());
    let opening = door::open(&config, next.clone(), &door::entropy().unwrap(), now).await.unwrap();
    assert!(opening.written.is_none());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
    let server =
        Server::with(DoorConfig { entry: opening.entry, ..DoorConfig::local() }, Limits::default(), PATIENCE)
            .await;
    let header = format!("Bearer {}", written.trim());
    let answer =
        server.client().await.ask(request("GET", "/api/v1/who", &[("authorization", &header)])).await;
    assert_eq!(answer.text(), "admin");

    std::fs::write(&path, "rdv_nonsense").unwrap();
    let refused = door::open(&config, next, &door::entropy().unwrap(), now).await.err().unwrap();
    assert!(refused.message.contains("is not a whole token"), "{refused}");
}

#[test]
fn the_door_of_a_configuration_is_the_one_that_was_configured() {
    let sources = Sources::none().variable("REDRIVE_LIMITS__BODY_BYTES", "2KiB");
    let config = config::load(&sources).unwrap();
    let door = DoorConfig::new(&config, Entry::Local, Clock::system());
    assert_eq!((door.body_bytes, door.public), (2_048, vec!["/healthz".to_owned()]));
}

#[test]
fn every_code_of_the_door_has_a_page() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut codes = std::collections::BTreeSet::new();
    for file in std::fs::read_dir(root.join("src/door")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let is_code = |word: &&str| word.starts_with("RETRY_") && *word != "RETRY_AFTER";
        codes.extend(
            text.split(|c: char| !c.is_ascii_uppercase() && c != '_').filter(is_code).map(str::to_owned),
        );
    }
    assert!(codes.len() > 8, "{codes:?}");
    for code in codes {
        assert!(
            root.join(format!("../../docs/errors/{code}.md")).exists(),
            "docs/errors/{code}.md is missing"
        );
    }
}
