//! What is tried again, how often, and what is kept and said of it.

use redrive::{Class, GiveUp, State, secs};
use redrive_server::download::{Download, Phase};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::flaky::{Flaky, How, content};
use crate::target::{Reply, Target, answer};
use crate::{Ground, quick};

/// What became of one download: its state, its class, its retries, and how often the server was asked.
async fn outcome(
    script: impl Fn(usize) -> Reply + Send + Sync + 'static,
) -> (State, Option<Class>, u32, usize) {
    let (ground, target) = (Ground::new(), Target::start(move |n, _| script(n)).await);
    let (downloads, _) = ground.fetch_one(&target.url("/paper.pdf")).await;
    let file = &downloads.files()[0];
    let detail = downloads.engine().get(file.id).await.unwrap().unwrap();
    let class =
        detail.attempts.last().and_then(|attempt| attempt.failure.as_ref()).map(|failure| failure.class);
    // S1-31: the count and the error are in the store, each attempt with its own.
    let failures = detail.job.ledger.failures;
    assert!(
        detail.attempts.iter().filter_map(|attempt| attempt.failure.as_ref()).count() >= failures as usize
    );
    (detail.job.state, class, file.retries, target.asked().len())
}

fn refused(status: u16) -> Reply {
    answer(status, "", "no")
}

/// S1-01, S1-26, S1-37: one request for each try, and no more.
#[tokio::test]
async fn a_503_and_then_a_200_are_two_requests() {
    let (state, _, retries, asked) =
        outcome(|n| if n == 0 { refused(503) } else { answer(200, "", "PDF content") }).await;
    assert!(matches!(state, State::Succeeded { .. }));
    assert_eq!((retries, asked), (1, 2));
}

/// S1-01, S1-37.
#[tokio::test]
async fn what_is_transient_succeeds_in_the_end() {
    let (state, _, retries, asked) =
        outcome(|n| if n < 3 { refused(500 + 2 * n as u16) } else { answer(200, "", "at last") }).await;
    assert!(matches!(state, State::Succeeded { .. }));
    assert_eq!((retries, asked), (3, 4));
}

/// S1-03, S1-04, S1-37.
#[tokio::test]
async fn what_is_permanent_is_asked_for_once() {
    for (status, class) in [
        (400, Class::Permanent),
        (404, Class::Permanent),
        (410, Class::Permanent),
        (451, Class::Permanent),
        (401, Class::NeedsAuth),
        (403, Class::NeedsAuth),
    ] {
        let (state, found, retries, asked) = outcome(move |_| refused(status)).await;
        assert!(matches!(state, State::Dead { why: GiveUp::Permanent, .. }), "{status}");
        assert_eq!((found, retries, asked), (Some(class), 0, 1), "{status}");
    }
}

/// S1-07, S1-37.
#[tokio::test]
async fn a_429_is_tried_again_with_back_off() {
    let (state, class, retries, asked) =
        outcome(|n| if n < 2 { refused(429) } else { answer(200, "", "now") }).await;
    assert!(matches!(state, State::Succeeded { .. }));
    assert_eq!((class, retries, asked), (Some(Class::RateLimited), 2, 3));
}

/// S1-01, S1-06, S1-31, S1-37: `retry_count` is how many tries have failed, `last_error` what the last one said.
#[tokio::test]
async fn an_endless_503_is_given_up_after_three_retries_and_remembered() {
    let (ground, target) = (Ground::new(), Target::start(|_, _| answer(503, "", "still down")).await);
    let (downloads, summary) = ground.fetch_one(&target.url("/paper.pdf")).await;
    assert_eq!((summary.completed, summary.failed, summary.retried), (0, 1, 3));
    let file = &downloads.files()[0];
    assert!(matches!(&file.phase, Phase::Failed { why, .. } if why.contains("answered 503: still down")));
    let detail = downloads.engine().get(file.id).await.unwrap().unwrap();
    assert!(matches!(detail.job.state, State::Dead { why: GiveUp::Exhausted, .. }));
    assert_eq!((detail.job.ledger.failures, detail.attempts.len(), target.asked().len()), (4, 4, 4));
    let last = detail.attempts.last().unwrap().failure.as_ref().unwrap();
    assert_eq!((last.status, last.class), (Some(503), Class::Transient));
    drop(downloads);
    // What the store says to whoever asks it in SQL.
    let file = rusqlite::Connection::open(ground.root().join("jobs.db")).unwrap();
    let sql = "SELECT status, retry_count, last_error FROM redrive_dead_letters";
    let kept: (String, u32, String) =
        file.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert_eq!((kept.0.as_str(), kept.1), ("failed", 4));
    assert!(kept.2.contains("answered 503: still down"), "{}", kept.2);
}

/// S1-01, S1-18, S1-19.
#[tokio::test]
async fn the_network_may_recover_and_a_wrong_certificate_stays_wrong() {
    let ground = Ground::new();
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/x", listener.local_addr().unwrap())
    };
    let silent =
        Target::start(|_, _| Reply::SayAndHang("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".into())).await;
    for (n, (url, class, code)) in [
        (closed, Class::Transient, "NETWORK_ERROR"),
        ("http://nowhere.invalid/x".to_owned(), Class::Transient, "DNS_ERROR"),
        (silent.url("/x"), Class::Transient, "TIMEOUT"),
        (format!("https://{}/x", plain_speaking().await), Class::Permanent, "TLS_ERROR"),
        ("http://10.0.0.1/x".to_owned(), Class::Permanent, "SSRF_BLOCKED"),
    ]
    .into_iter()
    .enumerate()
    {
        let builder = ground.builder().policy(quick(0)).queue(&format!("q{n}"));
        let (downloads, summary) =
            ground.fetch(builder, vec![Download::new(&url).name(&format!("f{n}"))]).await;
        assert_eq!(summary.failed, 1, "{url}");
        let detail = downloads.engine().get(downloads.files()[0].id).await.unwrap().unwrap();
        let failure = detail.attempts[0].failure.as_ref().unwrap();
        assert_eq!(
            (failure.class, failure.code.as_deref()),
            (class, Some(code)),
            "{url}: {}",
            failure.message
        );
    }
    let downloads = ground.open(ground.builder()).await;
    assert!(downloads.add(vec![Download::new("not a url")]).await.is_err());
}

/// Where TLS is answered with plain text.
async fn plain_speaking() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 400 X\r\n\r\n").await.unwrap();
            // Read to its end, so that closing is no reset.
            drop(stream.read_to_end(&mut Vec::new()).await);
        }
    });
    address
}

/// S1-28, S1-29.
#[tokio::test]
async fn many_run_at_once_but_no_more_than_may_and_are_counted() {
    let server = Flaky::paced(std::time::Duration::from_millis(1), |n, _| match n {
        3 => How::Say(503, ""),
        7 => How::Say(404, ""),
        _ => How::Well,
    })
    .await;
    let ground = Ground::new();
    let paths: Vec<String> = (0..12).map(|n| format!("/{n}")).collect();
    paths.iter().for_each(|path| server.put(path, content(1, 300_000), "\"1\""));
    let wanted = paths.iter().map(|path| Download::new(server.url(path))).collect();
    let (_, summary) = ground.fetch(ground.builder().parallel(3), wanted).await;
    assert_eq!((summary.completed, summary.failed, summary.retried), (11, 1, 1));
    assert_eq!(summary.bytes, 11 * 300_000);
    assert_eq!(server.most_at_once(), 3);
}

/// S1-07 (what it defers): a host that says when to come back is left alone by everybody until then.
#[tokio::test]
async fn retry_after_holds_for_every_download_of_the_host() {
    let server =
        Flaky::start(|n, _| if n == 0 { How::Say(503, "retry-after: 1\r\n") } else { How::Well }).await;
    let other = Flaky::start(|_, _| How::Well).await;
    let ground = Ground::new();
    for n in 0..6 {
        server.put(&format!("/{n}"), content(n, 1_000), "\"1\"");
    }
    other.put("/other", content(9, 1_000), "\"1\"");
    let mut wanted: Vec<Download> = (0..6).map(|n| Download::new(server.url(&format!("/{n}")))).collect();
    wanted.push(Download::new(other.url("/other")));
    let began = redrive::Clock::system();
    let at = began.now();
    let (downloads, summary) = ground.fetch(ground.builder().parallel(4).per_host(1), wanted).await;
    assert_eq!((summary.completed, summary.retried), (7, 1));
    // One was told, and nobody asked again before the second was over.
    assert!(began.now().since(at) >= secs(1));
    let told = server.sent();
    assert_eq!(told.iter().filter(|sent| sent.status == 503).count(), 1);
    let detail = downloads.engine().get(downloads.files()[0].id).await.unwrap().unwrap();
    assert!(detail.attempts[0].failure.as_ref().unwrap().retry_after == Some(secs(1)));
}

/// S1-07: being told when to come back is no failure of the download, so it needs no retry for it.
#[tokio::test]
async fn a_download_that_is_told_later_spends_no_retry() {
    let ground = Ground::new();
    let target = Target::start(|n, _| match n {
        0 | 1 => answer(503, "retry-after: 1\r\n", "busy"),
        _ => answer(200, "", "now"),
    })
    .await;
    let wanted = vec![Download::new(target.url("/x"))];
    let (downloads, summary) = ground.fetch(ground.builder().policy(quick(0)), wanted).await;
    assert_eq!((summary.completed, target.asked().len()), (1, 3));
    let detail = downloads.engine().get(downloads.files()[0].id).await.unwrap().unwrap();
    assert_eq!((detail.job.ledger.failures, detail.job.ledger.holds), (0, 2));
}

/// What is left in the folder is worth going on with.
#[tokio::test]
async fn a_download_that_brought_nothing_leaves_nothing() {
    let (ground, target) = (Ground::new(), Target::start(|_, _| refused(404)).await);
    let (_, summary) = ground.fetch_one(&target.url("/paper.pdf")).await;
    assert_eq!((summary.failed, ground.names()), (1, vec![]));
}

/// S1-03 holds whatever is said beside it.
#[tokio::test]
async fn only_what_may_come_back_is_waited_for() {
    let (state, _, retries, asked) = outcome(|_| answer(404, "retry-after: 1\r\n", "no")).await;
    assert!(matches!(state, State::Dead { why: GiveUp::Permanent, .. }), "{state:?}");
    assert_eq!((retries, asked), (0, 1));
}

/// What `--per-host` promises.
#[tokio::test]
async fn one_host_is_not_asked_for_more_at_once_than_it_may_be() {
    let server = Flaky::paced(std::time::Duration::from_millis(1), |_, _| How::Well).await;
    let ground = Ground::new();
    (0..8).for_each(|n| server.put(&format!("/{n}"), content(n, 200_000), "\"1\""));
    let wanted = (0..8).map(|n| Download::new(server.url(&format!("/{n}")))).collect();
    ground.fetch(ground.builder().parallel(8).per_host(2), wanted).await;
    assert_eq!(server.most_at_once(), 2);
}
