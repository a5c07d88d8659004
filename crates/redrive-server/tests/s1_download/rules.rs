//! The numbers and tables of the document, on the pure parts.

use std::time::Duration;

use redrive::{
    Ask, Class, Decision, Failure, GiveUp, Limit, NewJob, Outcome, Policy, Rng, State, Timestamp, admit,
    millis, secs, settle,
};
use redrive_server::download::{Download, DownloadError};

fn preset() -> Policy {
    Policy::preset("download").unwrap()
}

fn decide(failures: u32, rng: &mut Rng) -> Decision {
    preset().decide(&Ask { failures, ..Ask::default() }, rng)
}

/// S1-02, S1-08, S1-13, S1-22, S1-23, S1-36: what the document calls a `RetryPolicy` is the preset `download`.
#[test]
fn three_retries_after_one_two_and_four_seconds_up_to_thirty_two() {
    assert_eq!(preset().limit, Limit::Retries(redrive_server::DEFAULT_MAX_RETRIES));
    assert_eq!(redrive_server::DEFAULT_MAX_RETRIES, 3);
    assert_eq!(preset().preview(99), [1, 2, 4].map(secs));
    let delays: Vec<Duration> = (1..=8).map(|nth| preset().delay_before_jitter(nth).unwrap()).collect();
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 32, 32].map(secs));
    // A base and a cap of one's own are kept.
    let own = Policy::exponential(secs(3)..=secs(10));
    assert_eq!(
        (1..=4).map(|nth| own.delay_before_jitter(nth).unwrap()).collect::<Vec<_>>(),
        [3, 6, 10, 10].map(secs)
    );
}

/// S1-21, S1-24, S1-36.
#[test]
fn jitter_adds_up_to_half_a_second_and_a_quarter_on_average() {
    let mut rng = Rng::seeded(16);
    let patient = preset().retries(99);
    // The jitter comes on top of the cap too.
    for (failures, seconds) in [(1, 1), (3, 4), (9, 32)] {
        let mut sum = Duration::ZERO;
        for _ in 0..100 {
            let ask = Ask { failures, ..Ask::default() };
            let Decision::RetryIn(delay) = patient.decide(&ask, &mut rng) else { panic!("it is retried") };
            assert_eq!(delay.base, secs(seconds));
            let jitter = delay.wait - delay.base;
            assert!(jitter <= millis(500), "{jitter:?}");
            sum += jitter;
        }
        let mean = sum / 100;
        assert!((millis(200)..=millis(300)).contains(&mean), "{mean:?} after {failures} failures");
    }
}

/// S1-06, S1-09, S1-12, S1-36, S1-40: a decision is `RetryIn` or `GiveUp`, and there is always an end.
#[test]
fn what_can_be_retried_is_until_the_limit_and_the_rest_is_not() {
    let mut rng = Rng::seeded(1);
    for failures in 1..=3 {
        assert!(matches!(decide(failures, &mut rng), Decision::RetryIn(_)), "{failures}");
    }
    assert_eq!(decide(4, &mut rng), Decision::GiveUp(GiveUp::Exhausted));
    let queue = redrive::Queue::new("default").policy(preset());
    let id = redrive::JobId::new(Timestamp::EPOCH, 0, &mut rng);
    let new = NewJob::from(Download::new("https://a.example/x"));
    let job = admit(new, &queue, id, Timestamp::EPOCH, &mut rng).unwrap().job;
    for (failure, is_retried) in [
        (Failure::from_status(503, "x"), true),
        (Failure::from_status(429, "x"), true),
        (Failure::from_status(404, "x"), false),
        (Failure::from_status(401, "x"), false),
    ] {
        let status = failure.status;
        let state = settle(&job, Outcome::Failed(failure), Timestamp::EPOCH, &mut rng).state;
        match state {
            State::Waiting { .. } => assert!(is_retried, "{status:?}"),
            State::Dead { why, .. } => assert!(!is_retried && why == GiveUp::Permanent, "{status:?}"),
            other => panic!("{other:?}"),
        }
    }
}

/// S1-03, S1-04, S1-10, S1-11, S1-14, S1-15, S1-16, S1-17, S1-20, S1-36, S1-40.
#[test]
fn every_status_has_the_class_of_the_table() {
    let table = [
        (400, Class::Permanent),
        (401, Class::NeedsAuth),
        (403, Class::NeedsAuth),
        (404, Class::Permanent),
        (408, Class::Transient),
        (410, Class::Permanent),
        (429, Class::RateLimited),
        (451, Class::Permanent),
        (500, Class::Transient),
        (502, Class::Transient),
        (503, Class::Transient),
        (504, Class::Transient),
        (505, Class::Transient),
        (599, Class::Transient),
    ];
    for (status, class) in table {
        let failure = DownloadError::Refused(Failure::from_status(status, "no")).failure();
        assert_eq!(preset().classify(&failure).class, class, "{status}");
        assert_eq!(class.is_retryable(), !matches!(class, Class::Permanent | Class::NeedsAuth));
    }
}

/// S1-25, S1-39, S1-40: what must not be done cannot be committed.
#[test]
fn a_blocking_sleep_and_a_warning_do_not_pass_the_checks() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    assert!(read("clippy.toml").contains("std::thread::sleep"));
    let check = read("scripts/check.sh");
    assert!(check.contains("fmt") && check.contains("--check") && check.contains("-D warnings"), "{check}");
    assert!(read("scripts/test.sh").contains("scripts/check.sh"));
}
