//! Far sides that do everything wrong: each request ends within its time, with the right name for what happened.

use std::time::{Duration, Instant};

use http::Method;
use redrive_server::egress::{
    Egress, EgressError, EgressErrorKind, READ_BYTES_MAX, Request, Response, Timeouts,
};

use crate::target::{Reply, Target, answer};
use crate::{get, opened};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n";

fn impatient() -> Timeouts {
    let ms = Duration::from_millis;
    Timeouts { connect: ms(500), first_byte: ms(400), idle: ms(300), total: ms(1_000) }
}

async fn ask(egress: &Egress, url: &str) -> Result<Response, EgressError> {
    let mut request = Request::new(Method::POST, url).unwrap();
    request.timeouts = impatient();
    egress.send(request).await
}

/// What becomes of a request to a far side that does this.
async fn against(reply: Reply) -> Result<Response, EgressError> {
    let target = Target::start(move |_, _| reply.clone()).await;
    let began = Instant::now();
    let answer = ask(&opened(&["127.0.0.1"]), &target.url("/")).await;
    // More than the total: the machine may be busy, but nobody waits for ever.
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    answer
}

#[tokio::test]
async fn every_hostile_answer_has_a_name_and_ends_in_time() {
    use EgressErrorKind::{Reset, TimedOutSent, TooLarge};
    let ms = Duration::from_millis;
    let many_headers: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let huge_header = format!("{OK}x-huge: {}\r\n\r\n", "x".repeat(100_000));
    let cases = [
        ("hangs before its headers", Reply::SayAndHang(String::new()), TimedOutSent),
        ("hangs within its headers", Reply::SayAndHang(OK.to_owned()), TimedOutSent),
        ("drips its headers", Reply::SayAndDrip(OK.to_owned(), "x", ms(50)), TimedOutSent),
        ("hangs in its body", Reply::SayAndHang(format!("{OK}content-length: 10\r\n\r\nab")), TimedOutSent),
        (
            "drips its body",
            Reply::SayAndDrip(format!("{OK}content-length: 60000\r\n\r\n"), "x", ms(50)),
            TimedOutSent,
        ),
        (
            "says 1xx for ever",
            Reply::SayAndDrip(String::new(), "HTTP/1.1 103 Wait\r\n\r\n", ms(1)),
            TimedOutSent,
        ),
        (
            "announces much and hangs",
            Reply::SayAndHang(format!("{OK}content-length: 10000000000\r\n\r\n")),
            TimedOutSent,
        ),
        ("has a huge header", Reply::SayAndHang(huge_header), TooLarge),
        ("has headers without end", Reply::SayAndFlood(OK.to_owned(), "x-flood: 1\r\n"), TooLarge),
        ("has too many headers", Reply::SayAndHang(format!("{OK}{many_headers}\r\n")), TooLarge),
        ("resets at once", Reply::SayAndReset(String::new()), Reset),
        ("closes at once", Reply::SayAndClose(String::new()), Reset),
        ("resets in its body", Reply::SayAndReset(format!("{OK}content-length: 10\r\n\r\nab")), Reset),
        ("closes in its body", Reply::SayAndClose(format!("{OK}content-length: 10\r\n\r\nab")), Reset),
        ("speaks no HTTP", Reply::SayAndClose("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned()), Reset),
        (
            "chunks badly",
            Reply::SayAndHang(format!("{OK}transfer-encoding: chunked\r\n\r\nzz\r\nab\r\n")),
            Reset,
        ),
        (
            "has two lengths",
            Reply::SayAndHang(format!("{OK}content-length: 1\r\ncontent-length: 2\r\n\r\nab")),
            Reset,
        ),
    ];
    for (what, reply, kind) in cases {
        let error = against(reply).await.expect_err(what);
        assert_eq!(error.kind(), kind, "one that {what}: {error}");
        assert!(error.was_sent(), "one that {what}");
    }
}

#[tokio::test]
async fn a_refusal_counts_whatever_is_wrong_with_its_body() {
    let head = "HTTP/1.1 503 Busy\r\nretry-after: 9\r\n";
    for reply in [
        Reply::SayAndFlood(format!("{head}\r\n"), "flood"),
        Reply::SayAndHang(format!("{head}content-length: 10\r\n\r\nab")),
        Reply::SayAndReset(format!("{head}content-length: 10\r\n\r\nab")),
        Reply::SayAndDrip(format!("{head}content-length: 8000\r\n\r\n"), "x", Duration::from_millis(50)),
        Reply::SayAndHang(format!("{head}content-length: 10000000000\r\n\r\n")),
    ] {
        let response = against(reply).await.unwrap();
        assert_eq!((response.status.as_u16(), response.truncated), (503, true));
        assert_eq!(response.headers["retry-after"], "9");
    }
}

#[tokio::test]
async fn what_was_never_sent_says_so() {
    let egress = opened(&["127.0.0.1"]);
    // A port that was just free has nobody behind it.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = ask(&egress, &format!("http://{free}/")).await.unwrap_err();
    assert_eq!((error.kind(), error.was_sent()), (EgressErrorKind::Connect, false), "{error}");
    let error = ask(&egress, "http://no-such-name.invalid/").await.unwrap_err();
    assert!(matches!(error.kind(), EgressErrorKind::Resolve | EgressErrorKind::TimedOutUnsent), "{error}");
    // TLS that never answers: connected, nothing of the request sent.
    let mute = Target::start(|_, _| Reply::SayAndHang(String::new())).await;
    let error = ask(&egress, &format!("https://{}/", mute.address)).await.unwrap_err();
    assert_eq!((error.kind(), error.was_sent()), (EgressErrorKind::TimedOutUnsent, false), "{error}");
    // TLS that is none.
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 no\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let error = ask(&egress, &format!("https://{address}/")).await.unwrap_err();
    assert_eq!((error.kind(), error.was_sent()), (EgressErrorKind::Tls, false), "{error}");
}

#[tokio::test]
async fn nothing_is_unpacked() {
    let packed = format!("{OK}content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc");
    let response = against(Reply::Say(packed)).await.unwrap();
    assert_eq!(&response.body[..], b"abc");
}

#[tokio::test]
async fn the_largest_answer_that_may_be_read_is_read() {
    let most = "x".repeat(READ_BYTES_MAX);
    let response = against(answer(200, "", &most)).await.unwrap();
    assert_eq!((response.body.len(), response.truncated), (READ_BYTES_MAX, false));
    let response = against(answer(200, "", &format!("{most}x"))).await.unwrap();
    assert_eq!((response.body.len(), response.truncated), (READ_BYTES_MAX, true));
}

#[tokio::test]
async fn of_a_success_without_end_the_beginning_is_read() {
    for reply in [
        Reply::SayAndFlood(format!("{OK}\r\n"), "flood"),
        Reply::SayAndFlood(format!("{OK}transfer-encoding: chunked\r\n\r\n"), "5\r\nflood\r\n"),
        Reply::SayAndFlood(format!("{OK}content-length: 10000000000\r\n\r\n"), "flood"),
    ] {
        let response = against(reply).await.unwrap();
        assert_eq!((response.status.as_u16(), response.truncated), (200, true));
        assert_eq!((response.body.len(), &response.body[..10]), (READ_BYTES_MAX, &b"floodflood"[..]));
    }
}

#[tokio::test]
async fn a_connection_on_which_something_was_left_is_not_used_again() {
    let target =
        Target::start(|n, _| answer(200, "", &"x".repeat(if n == 0 { READ_BYTES_MAX + 1 } else { 1 }))).await;
    let egress = opened(&["127.0.0.1"]);
    assert!(get(&egress, &target.url("/")).await.unwrap().truncated);
    assert!(!get(&egress, &target.url("/")).await.unwrap().truncated);
    assert_eq!((target.connections(), target.asked().len()), (2, 2));
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_closed_one_is_not() {
    let kept = Target::start(|_, _| answer(200, "", "x")).await;
    let egress = opened(&["127.0.0.1"]);
    for _ in 0..5 {
        get(&egress, &kept.url("/")).await.unwrap();
    }
    assert_eq!((kept.connections(), kept.asked().len()), (1, 5));
    // One that closes without a word while it lies idle: the next request goes out on a new one.
    let shy =
        Target::start(|_, _| Reply::SayAndClose("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx".to_owned()))
            .await;
    for n in 1..=3 {
        get(&egress, &shy.url("/")).await.unwrap();
        shy.wait_for_closed(n).await;
        // The news of it travels through the kernel; a request that overtakes it has an unknown outcome, and rightly.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(shy.connections(), 3);
    // Another name for the same address is another origin, and has its own connection.
    let localhost = format!("http://localhost:{}/", kept.address.port());
    get(&egress, &localhost).await.unwrap();
    assert_eq!(kept.connections(), 2);
}

#[tokio::test]
async fn a_request_that_is_dropped_closes_its_connection() {
    let target = Target::start(|_, _| Reply::SayAndHang(String::new())).await;
    let egress = opened(&["127.0.0.1"]);
    let url = target.url("/");
    let asking = tokio::spawn(async move { get(&egress, &url).await.map(drop) });
    target.wait_for_connections(1).await;
    asking.abort();
    tokio::time::timeout(Duration::from_secs(5), target.wait_for_closed(1)).await.expect("it was left open");
}

#[tokio::test]
async fn one_that_closes_every_connection_at_once_is_not_dialled_for_ever() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, counted) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_zero_linger().unwrap();
            count.send_modify(|count| *count += 1);
        }
    });
    let error = ask(&opened(&["127.0.0.1"]), &format!("http://{address}/")).await.unwrap_err();
    assert!(matches!(error.kind(), EgressErrorKind::Connect | EgressErrorKind::Reset), "{error}");
    assert_eq!(*counted.borrow(), 1);
}
