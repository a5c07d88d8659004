//! Going on where it was: what is asked for again, what is refused, and what gets its name.

use std::time::Duration;

use redrive::State;
use redrive_server::download::{Download, Limits, Phase};
use sha2::{Digest as _, Sha256};

use crate::flaky::{Flaky, How, content, sent_again};
use crate::{Ground, limits, quick};

const MB: usize = 1 << 20;

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// A server with one file, which answers its n-th request as told, and well from then on.
async fn server(bytes: &[u8], told: Vec<How>) -> Flaky {
    let server = Flaky::start(move |n, _| told.get(n).cloned().unwrap_or(How::Well)).await;
    server.put("/file", bytes.to_vec(), "\"one\"");
    server
}

/// The ranges that were asked for, as the first byte of each answer.
fn starts(server: &Flaky) -> Vec<(u16, u64)> {
    server.sent().iter().map(|sent| (sent.status, sent.from)).collect()
}

#[tokio::test]
async fn a_transfer_that_is_cut_goes_on_where_it_was_and_costs_no_retry_if_it_had_brought_something() {
    let bytes = content(1, 5 * MB);
    let cuts = vec![How::Cut(2 * MB as u64), How::Cut(MB as u64 + 1), How::Cut(MB as u64 + 1)];
    let (ground, server) = (Ground::new(), server(&bytes, cuts).await);
    let builder = ground.builder().policy(quick(0));
    let (_, summary) = ground.fetch(builder, vec![Download::new(server.url("/file"))]).await;
    assert_eq!((summary.completed, summary.retried, summary.bytes), (1, 3, 5 * MB as u64));
    assert_eq!(std::fs::read(ground.path("file")).unwrap(), bytes);
    assert_eq!(sent_again(&server.sent()), [0, 0, 0]);
    assert_eq!(ground.names(), ["file"]);
}

#[tokio::test]
async fn a_transfer_that_is_cut_again_and_again_without_bringing_anything_is_given_up() {
    let bytes = content(1, 5 * MB);
    let (ground, server) = (Ground::new(), server(&bytes, vec![How::Cut(1_000); 9]).await);
    let (_, summary) = ground.fetch_one(&server.url("/file")).await;
    assert_eq!((summary.failed, server.sent().len()), (1, 4));
    // What came is kept for the next time.
    assert_eq!(ground.names(), ["file.part", "file.part.json"]);
    assert_eq!(std::fs::metadata(ground.path("file.part")).unwrap().len(), 4_000);
}

/// To bring the same again and again is no progress.
#[tokio::test]
async fn a_server_without_ranges_that_always_breaks_off_is_given_up() {
    let bytes = content(1, 3 * MB);
    let no_ranges = How::Lie(200, format!("content-length: {}\r\n", 4 * MB));
    let (ground, server) = (Ground::new(), server(&bytes, vec![no_ranges; 99]).await);
    let (_, summary) = ground.fetch_one(&server.url("/file")).await;
    // The first brought something; the next four did not.
    assert_eq!((summary.failed, server.sent().len()), (1, 5));
}

#[tokio::test]
async fn a_server_that_stops_sending_is_left_and_asked_for_the_rest() {
    let bytes = content(2, 3 * MB);
    let (ground, server) = (Ground::new(), server(&bytes, vec![How::Stall(MB as u64 / 2)]).await);
    let (_, summary) = ground.fetch_one(&server.url("/file")).await;
    assert_eq!((summary.completed, summary.retried), (1, 1));
    assert_eq!(starts(&server), [(200, 0), (206, MB as u64 / 2)]);
    assert_eq!(std::fs::read(ground.path("file")).unwrap(), bytes);
}

#[tokio::test]
async fn a_file_that_has_changed_meanwhile_starts_over() {
    let (old, new) = (content(3, 3 * MB), content(4, 2 * MB));
    let server = Flaky::start(|n, _| if n == 0 { How::Cut(MB as u64) } else { How::Well }).await;
    server.put("/file", old, "\"old\"");
    let ground = Ground::new();
    let downloads = ground.open(ground.builder().policy(quick(9))).await;
    downloads.add(vec![Download::new(server.url("/file"))]).await.unwrap();
    let change = async {
        server.wait_for_bytes(MB as u64).await;
        server.put("/file", new.clone(), "\"new\"");
    };
    let (run, ()) = tokio::join!(downloads.run(std::future::pending()), change);
    assert_eq!(run.unwrap().completed, 1);
    assert_eq!(std::fs::read(ground.path("file")).unwrap(), new);
    assert_eq!(starts(&server), [(200, 0), (200, 0)]);
}

/// A continuation of another place, another length, or another file would make a file of two.
#[tokio::test]
async fn a_continuation_that_is_none_is_refused() {
    let bytes = content(5, 2 * MB);
    let all = format!("content-length: {}\r\netag: \"one\"\r\n", bytes.len());
    for wrong in [
        format!("content-range: bytes 0-{}/{}\r\n{all}", bytes.len() - 1, bytes.len()),
        format!("content-range: bytes 7-{}/{}\r\n{all}", bytes.len() - 1, bytes.len()),
        format!("content-range: nonsense\r\n{all}"),
        all.clone(),
    ] {
        let told = vec![How::Cut(MB as u64), How::Lie(206, wrong)];
        let (ground, server) = (Ground::new(), server(&bytes, told).await);
        let (_, summary) = ground.fetch_one(&server.url("/file")).await;
        assert_eq!((summary.completed, summary.retried), (1, 2));
        assert_eq!(starts(&server)[2], (206, MB as u64));
        assert_eq!(std::fs::read(ground.path("file")).unwrap(), bytes);
    }
}

/// A body that is shorter than it was said to be is a cut; one without a length ends where it ends.
#[tokio::test]
async fn what_is_shorter_than_announced_does_not_get_its_name() {
    let bytes = content(6, 300_000);
    let longer = format!("content-length: {}\r\netag: \"one\"\r\n", bytes.len() + 5);
    let (ground, target) = (Ground::new(), server(&bytes, vec![How::Lie(200, longer); 9]).await);
    let (downloads, summary) = ground.fetch_one(&target.url("/file")).await;
    assert_eq!(summary.failed, 1, "{:?}", downloads.files());
    assert!(!ground.path("file").exists());
    let (ground, target) = (Ground::new(), server(&bytes, vec![How::Lie(200, String::new())]).await);
    let (_, summary) = ground.fetch_one(&target.url("/file")).await;
    assert_eq!(summary.completed, 1);
    assert_eq!(std::fs::read(ground.path("file")).unwrap(), bytes);
}

#[tokio::test]
async fn without_anything_to_know_it_by_only_a_checksum_allows_to_go_on() {
    let bytes = content(7, 3 * MB);
    let no_tag = || How::Lie(200, format!("content-length: {}\r\n", 4 * MB));
    for (checksum, starts_expected) in [(None, vec![0, 0]), (Some(sha256(&bytes)), vec![0, 3 * MB as u64])] {
        let (ground, server) = (Ground::new(), server(&bytes, vec![no_tag()]).await);
        let mut download = Download::new(server.url("/file"));
        if let Some(checksum) = &checksum {
            download = download.checksum(checksum);
        }
        let (_, summary) = ground.fetch(ground.builder().policy(quick(5)), vec![download]).await;
        let starts: Vec<u64> = server.sent().iter().map(|sent| sent.from).take(2).collect();
        assert_eq!(starts, starts_expected, "{checksum:?}");
        assert_eq!(summary.completed, 1, "{checksum:?}");
        assert_eq!(std::fs::read(ground.path("file")).unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_wrong_checksum_is_tried_again_from_the_start_and_never_gets_its_name() {
    let bytes = content(8, 200_000);
    let (ground, target) = (Ground::new(), server(&bytes, vec![]).await);
    let download = Download::new(target.url("/file")).checksum(&sha256(b"something else"));
    let (downloads, summary) = ground.fetch(ground.builder().policy(quick(2)), vec![download]).await;
    assert_eq!((summary.failed, target.sent().len()), (1, 3));
    assert!(target.sent().iter().all(|sent| sent.from == 0));
    assert!(!ground.path("file").exists());
    assert!(matches!(&downloads.files()[0].phase, Phase::Failed { why, .. } if why.contains("SHA-256")));
}

#[tokio::test]
async fn nobody_s_file_is_overwritten_unless_that_was_asked_for() {
    let bytes = content(9, 1_000);
    let (ground, server) = (Ground::new(), server(&bytes, vec![]).await);
    std::fs::create_dir_all(ground.folder()).unwrap();
    std::fs::write(ground.path("file"), b"mine").unwrap();
    let (downloads, summary) = ground.fetch_one(&server.url("/file")).await;
    assert_eq!((summary.failed, server.sent().len()), (1, 0), "it was not even asked for");
    assert!(
        matches!(&downloads.files()[0].phase, Phase::Failed { why, .. } if why.contains("there is a file"))
    );
    assert_eq!(std::fs::read(ground.path("file")).unwrap(), b"mine");
    drop(downloads);
    let builder = ground.builder().limits(Limits { overwrite: true, ..limits() });
    let (_, summary) = ground.fetch(builder, vec![Download::new(server.url("/file"))]).await;
    assert_eq!(summary.completed, 1);
    assert_eq!(std::fs::read(ground.path("file")).unwrap(), bytes);
    // Again means again, unless the last time did not come to its end.
    let again = || ground.builder().limits(Limits { overwrite: true, ..limits() });
    let (_, summary) = ground.fetch(again(), vec![Download::new(server.url("/file"))]).await;
    assert_eq!((summary.completed, summary.already_there), (1, 0));
}

#[tokio::test]
async fn what_is_there_is_not_downloaded_again_and_what_was_taken_away_is() {
    let bytes = content(10, 1_000);
    let (ground, server) = (Ground::new(), server(&bytes, vec![]).await);
    let url = server.url("/file");
    for (expected, asked) in [((1, 0), 1), ((0, 1), 1)] {
        let (_, summary) = ground.fetch_one(&url).await;
        assert_eq!(((summary.completed, summary.already_there), server.sent().len()), (expected, asked));
    }
    std::fs::remove_file(ground.path("file")).unwrap();
    let (_, summary) = ground.fetch_one(&url).await;
    assert_eq!((summary.completed, server.sent().len()), (1, 2));
}

/// Z-34: the name that the far side suggests is a suggestion.
#[tokio::test]
async fn a_suggested_name_stays_in_the_folder() {
    let bytes = content(11, 100);
    let suggest = |name: &str| {
        let disposition = format!("content-disposition: attachment; filename=\"{name}\"");
        How::Lie(200, format!("content-length: 100\r\n{disposition}\r\n"))
    };
    for (name, expected) in
        [("report.pdf", "report.pdf"), ("../../../escaped", "escaped"), ("..", "file"), (".hidden", "hidden")]
    {
        let (ground, server) = (Ground::new(), server(&bytes, vec![suggest(name)]).await);
        let (downloads, summary) = ground.fetch_one(&server.url("/file")).await;
        assert_eq!(summary.completed, 1, "{name}");
        assert_eq!(
            (ground.names(), downloads.files()[0].name.as_str()),
            (vec![expected.to_owned()], expected)
        );
    }
}

/// Z-35: what is too large ends while it comes, whatever was announced.
#[tokio::test]
async fn a_file_that_is_too_large_or_does_not_fit_is_not_taken() {
    let bytes = content(12, 4 * MB);
    let unannounced = How::Lie(200, "etag: \"one\"\r\n".to_owned());
    for told in [vec![], vec![unannounced; 5]] {
        let (ground, server) = (Ground::new(), server(&bytes, told).await);
        let builder = ground.builder().limits(Limits { size_max: Some(MB as u64), ..limits() });
        let (downloads, summary) = ground.fetch(builder, vec![Download::new(server.url("/file"))]).await;
        assert_eq!((summary.failed, server.sent().len()), (1, 1));
        assert!(
            matches!(&downloads.files()[0].phase, Phase::Failed { why, .. } if why.contains("larger than 1048576"))
        );
        assert!(!ground.path("file").exists());
    }
    let (ground, server) = (Ground::new(), server(&bytes, vec![]).await);
    let builder = ground.builder().policy(quick(0)).limits(Limits { disk_floor: u64::MAX, ..limits() });
    let (downloads, _) = ground.fetch(builder, vec![Download::new(server.url("/file"))]).await;
    assert!(matches!(&downloads.files()[0].phase, Phase::Failed { why, .. } if why.contains("does not fit")));
}

/// Z-36: nothing is unpacked, neither a body nor an archive.
#[tokio::test]
async fn what_comes_packed_is_refused_and_an_archive_stays_one() {
    let bytes = content(13, 1_000);
    let packed = How::Lie(200, "content-encoding: gzip\r\ncontent-length: 1000\r\n".to_owned());
    let (ground, target) = (Ground::new(), server(&bytes, vec![packed]).await);
    let (downloads, _) = ground.fetch_one(&target.url("/file")).await;
    assert!(matches!(&downloads.files()[0].phase, Phase::Failed { why, .. } if why.contains("packed")));
    let (ground, target) = (Ground::new(), Flaky::start(|_, _| How::Well).await);
    target.put("/a.tar.gz", bytes.clone(), "\"1\"");
    ground.fetch_one(&target.url("/a.tar.gz")).await;
    assert_eq!(std::fs::read(ground.path("a.tar.gz")).unwrap(), bytes);
}

#[tokio::test]
async fn a_rate_limit_holds_for_all_together() {
    let server = Flaky::start(|_, _| How::Well).await;
    let ground = Ground::new();
    let wanted = (0..4).map(|n| {
        server.put(&format!("/{n}"), content(n, MB / 2), "\"1\"");
        Download::new(server.url(&format!("/{n}")))
    });
    let clock = redrive::Clock::system();
    let began = clock.now();
    let builder = ground.builder().bytes_per_second(Some(4 * MB as u64));
    ground.fetch(builder, wanted.collect()).await;
    // Two megabytes at four a second, a quarter of a second of it at once: never faster, however slow this machine is.
    assert!(clock.now().since(began) >= Duration::from_millis(150));
}

#[tokio::test]
async fn a_redirect_is_followed_with_the_range_and_a_download_stopped_in_the_middle_goes_on() {
    let bytes = content(14, 4 * MB);
    let target = server(&bytes, vec![]).await;
    let there = format!("location: {}\r\n", target.url("/file"));
    let there: &'static str = there.leak();
    let redirecting = Flaky::start(move |_, _| How::Say(302, there)).await;
    let ground = Ground::new();
    let download = Download::new(redirecting.url("/named.iso"));
    let slow = ground.builder().bytes_per_second(Some(2 * MB as u64));
    let downloads = ground.open(slow).await;
    downloads.add(vec![download.clone()]).await.unwrap();
    let summary = downloads.run(target.wait_for_bytes(MB as u64)).await.unwrap();
    assert_eq!(summary.unfinished, 1);
    let job = downloads.engine().get(downloads.files()[0].id).await.unwrap().unwrap().job;
    assert!(matches!(job.state, State::Waiting { .. }) && job.ledger.failures == 0);
    drop(downloads);
    let (_, summary) = ground.fetch(ground.builder(), vec![download]).await;
    assert_eq!((summary.completed, summary.already_there), (1, 0));
    assert_eq!(std::fs::read(ground.path("named.iso")).unwrap(), bytes);
    assert_eq!(target.sent()[1].status, 206);
}
