//! Real engines that run real `http` jobs against a real server on loopback.

#![expect(clippy::disallowed_methods, reason = "tests measure real time")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[expect(dead_code, reason = "each test needs another part of it")]
#[path = "support/target.rs"]
mod target;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redrive::{
    Class, Clock, Ending, Engine, JobDetail, JobId, Json, MemoryStore, NewJob, Policy, Queue, Rule,
    SqliteStore, StateName, Store, millis, secs,
};
use redrive_server::egress::{Egress, EgressPolicy, KEPT_BYTES_MAX, READ_BYTES_MAX, Request};
use redrive_server::executor::{HttpExecutor, Secrets, ask};
use serde_json::{Value, json};
use target::{Reply, Target, answer};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_SECRET: &str = "whsec_plJ3nmyCDGBKInavdOK15jsl1EcTNoEnXw==";

/// An engine on a store, which may reach loopback and tries three times without much waiting.
struct World {
    engine: Engine,
}

impl World {
    fn new() -> World {
        World::on(Arc::new(MemoryStore::new()), &["127.0.0.1"], Policy::fixed(millis(20)).attempts(3))
    }

    fn on(store: Arc<dyn Store>, allow: &[&str], policy: Policy) -> World {
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        let secrets = Secrets::new()
            .with("billing", SECRET.parse().unwrap())
            .with("turning", SECRET.parse().unwrap())
            .with("turning", OLD_SECRET.parse().unwrap());
        let executor = HttpExecutor::new(Egress::new(EgressPolicy { allow }), secrets).history(store.clone());
        let queue = Queue::new("default").policy(policy);
        World { engine: Engine::on(store).queue(queue).handle(executor).build().unwrap() }
    }

    async fn enqueue(&self, payload: &Value) -> JobId {
        HttpExecutor::check(&payload.to_string()).unwrap();
        self.engine.enqueue(NewJob::of_kind("http", Json::of(payload).unwrap())).await.unwrap().id
    }

    /// Runs one job to its end.
    async fn run(&self, payload: Value) -> JobDetail {
        let id = self.enqueue(&payload).await;
        self.engine.drain().await.unwrap();
        self.engine.get(id).await.unwrap().unwrap()
    }
}

fn state(detail: &JobDetail) -> StateName {
    detail.job.state.name()
}

fn output(detail: &JobDetail) -> Value {
    detail.output.as_ref().expect("there is an output").decode().unwrap()
}

/// The class and the code of the last failure.
fn failure(detail: &JobDetail) -> (Class, Option<String>, String) {
    let failure = detail.attempts.last().unwrap().failure.clone().unwrap();
    (failure.class, failure.code, failure.message)
}

#[tokio::test]
async fn a_success_is_done_at_once_and_keeps_what_was_said() {
    let target = Target::start(|_, _| {
        answer(201, "content-type: application/json\r\nlocation: /orders/7\r\n", r#"{"id":7}"#)
    })
    .await;
    let done = World::new()
        .run(json!({"method": "POST", "url": target.url("/orders?x=1"), "headers": {"X-Own": "y"}, "body": {"a": 1}}))
        .await;
    assert_eq!(state(&done), StateName::Succeeded);
    let output = output(&done);
    assert_eq!((&output["status"], &output["body"]), (&json!(201), &json!({"id": 7})));
    assert_eq!(output["headers"]["location"], "/orders/7");
    let asked = &target.asked()[0];
    assert_eq!((asked.line.as_str(), &asked.body[..]), ("POST /orders?x=1 HTTP/1.1", &br#"{"a":1}"#[..]));
    let id = done.job.id.to_string();
    for (name, value) in [
        ("host", target.address.to_string().as_str()),
        ("x-own", "y"),
        ("content-type", "application/json"),
        ("content-length", "7"),
        ("idempotency-key", &id),
        ("redrive-attempt", "1"),
        ("redrive-max-attempts", "3"),
        ("user-agent", concat!("redrive/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(asked.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!asked.headers.keys().any(|name| name.starts_with("webhook-")), "no secret, no signature");
}

#[tokio::test]
async fn a_success_of_any_length_is_done_and_its_beginning_is_kept() {
    let endless = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
    let target = Target::start(move |n, _| match n {
        0 => answer(200, "", &"grüße ".repeat(100_000)),
        1 => Reply::SayAndFlood(endless.to_owned(), "[7,"),
        _ => answer(200, "", "short"),
    })
    .await;
    let world = World::new();
    for begins in ["grüße grüße", "[7,[7,"] {
        let done = world.run(json!({"url": target.url("/"), "body": 1})).await;
        assert_eq!((state(&done), done.job.ledger.attempt), (StateName::Succeeded, 1));
        let output = output(&done);
        assert_eq!((&output["status"], &output["truncated"]), (&json!(200), &json!(true)));
        let body = output["body"].as_str().unwrap();
        assert!(body.starts_with(begins) && body.len() <= KEPT_BYTES_MAX, "{}", body.len());
    }
    let done = world.run(json!({"url": target.url("/"), "body": 1})).await;
    assert_eq!((output(&done).get("truncated"), target.connections()), (None, 3));
}

#[tokio::test]
async fn a_check_that_says_at_length_that_it_was_done_is_believed() {
    let target = doubtful(|_| answer(200, "", &"paid ".repeat(100_000))).await;
    let done = World::new().run(verified(&target)).await;
    assert_eq!((state(&done), &output(&done)["verified"]), (StateName::Succeeded, &json!(true)));
}

#[tokio::test]
async fn whoever_asks_for_a_handler_of_its_own_is_never_given_half_an_answer() {
    let target = Target::start(|n, _| answer(200, "", &"x".repeat(READ_BYTES_MAX + 1 - n.min(1)))).await;
    let egress = Egress::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    let clock = Clock::system();
    let ask = || ask(&egress, Request::new(http::Method::GET, &target.url("/")).unwrap(), &clock);
    let cut = ask().await.unwrap_err();
    assert_eq!((cut.class, cut.code.as_deref()), (Class::Permanent, Some("RESPONSE_TOO_LARGE")));
    assert!(cut.message.contains("larger than 65536 bytes; ask for less"), "{}", cut.message);
    assert_eq!(ask().await.unwrap().body.len(), READ_BYTES_MAX);
}

#[tokio::test]
async fn what_the_far_side_wrote_is_apart_from_the_message_and_judged_with_it() {
    let target = Target::start(|_, _| answer(400, "", "try again: token=hunter2 is being renewed")).await;
    let rule = Rule::new("text:being renewed", Class::Transient).unwrap();
    let policy = Policy::fixed(millis(20)).attempts(2).rule(rule);
    let world = World::on(Arc::new(MemoryStore::new()), &["127.0.0.1"], policy);
    let dead = world.run(json!({"url": target.url("/")})).await;
    assert_eq!((state(&dead), target.asked().len()), (StateName::Dead, 2));
    let failure = dead.attempts.last().unwrap().failure.clone().unwrap();
    assert_eq!(failure.message, format!("{} answered 400", target.address));
    assert_eq!(failure.detail.as_deref(), Some("try again: token=*** is being renewed"));
}

#[tokio::test]
async fn a_503_and_then_a_200_is_exactly_two_requests() {
    let target =
        Target::start(|n, _| if n == 0 { answer(503, "", "busy") } else { answer(200, "", "ok") }).await;
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path().join("jobs.db")).await.unwrap());
    let world = World::on(store, &["127.0.0.1"], Policy::fixed(millis(20)).attempts(3));
    let done = world.run(json!({"url": target.url("/"), "body": "hello"})).await;
    assert_eq!(state(&done), StateName::Succeeded);
    let asked = target.asked();
    assert_eq!(asked.len(), 2);
    let of = |n: usize, name: &str| asked[n].headers[name].clone();
    assert_eq!((of(0, "redrive-attempt"), of(1, "redrive-attempt")), ("1".to_owned(), "2".to_owned()));
    assert_eq!(of(0, "idempotency-key"), of(1, "idempotency-key"), "a repetition can be recognised");
    assert_eq!(
        (of(0, "content-type").as_str(), &asked[1].body[..]),
        ("text/plain; charset=utf-8", &b"hello"[..])
    );
}

#[tokio::test]
async fn a_status_that_will_not_change_is_asked_once() {
    for (status, class) in [
        (404, Class::Permanent),
        (400, Class::Permanent),
        (401, Class::NeedsAuth),
        (403, Class::NeedsAuth),
        (302, Class::Permanent),
    ] {
        let target = Target::start(move |_, _| answer(status, "location: /there\r\n", "no")).await;
        let dead = World::new().run(json!({"url": target.url("/")})).await;
        assert_eq!((state(&dead), target.asked().len()), (StateName::Dead, 1), "{status}");
        assert_eq!(failure(&dead).0, class, "{status}");
    }
}

#[tokio::test]
async fn a_wait_that_is_asked_for_is_kept() {
    let target =
        Target::start(
            |n, _| if n == 0 { answer(429, "retry-after: 1\r\n", "") } else { answer(200, "", "") },
        )
        .await;
    let done = World::new().run(json!({"url": target.url("/")})).await;
    assert_eq!(state(&done), StateName::Succeeded);
    let asked = target.asked();
    assert!(asked[1].at - asked[0].at >= secs(1), "it came after {:?}", asked[1].at - asked[0].at);
    assert_eq!(failure(&done).0, Class::RateLimited);
}

#[tokio::test]
async fn a_wait_without_end_is_bounded_and_one_in_the_past_is_none() {
    for (wait, bounded) in [("999999999999", true), ("-5", false), ("Thu, 01 Jan 1970 00:00:00 GMT", false)] {
        let target = Target::start(move |_, _| answer(503, &format!("retry-after: {wait}\r\n"), "")).await;
        let world = World::new();
        let id = world.enqueue(&json!({"url": target.url("/")})).await;
        world.engine.drain_due().await.unwrap();
        let detail = world.engine.get(id).await.unwrap().unwrap();
        let record = &detail.attempts[0];
        let delay = record.next_at.unwrap().since(record.ended_at);
        if bounded {
            assert!((secs(24 * 3600)..=secs(27 * 3600)).contains(&delay), "{wait}: {delay:?}");
        } else {
            assert!(delay <= secs(1), "{wait}: {delay:?}");
        }
    }
}

#[tokio::test]
async fn the_signature_is_one_that_the_reference_library_accepts() {
    let target = Target::start(|_, _| answer(200, "", "")).await;
    let world = World::new();
    let body = json!({"type": "order.paid", "text": "grüße"});
    world.run(json!({"url": target.url("/one"), "body": body, "endpoint": "billing"})).await;
    world.run(json!({"url": target.url("/two"), "body": body, "endpoint": "turning"})).await;
    let asked = target.asked();
    let verify = |secret: &str, n: usize| {
        let mut headers = http::HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.insert(name, asked[n].headers[name].parse().unwrap());
        }
        standardwebhooks::Webhook::new(secret).unwrap().verify(&asked[n].body, &headers)
    };
    verify(SECRET, 0).unwrap();
    assert!(verify(OLD_SECRET, 0).is_err());
    verify(SECRET, 1).unwrap();
    verify(OLD_SECRET, 1).unwrap();
    assert_eq!(asked[1].headers["webhook-signature"].split(' ').count(), 2);
    assert_eq!(asked[0].headers["webhook-id"], asked[0].headers["idempotency-key"]);
}

#[tokio::test]
async fn a_job_for_an_endpoint_without_a_secret_is_not_sent_unsigned() {
    let target = Target::start(|_, _| answer(200, "", "")).await;
    let dead = World::new().run(json!({"url": target.url("/"), "endpoint": "nobody"})).await;
    assert_eq!((state(&dead), target.connections()), (StateName::Dead, 0));
    assert_eq!(failure(&dead).1.as_deref(), Some("ENDPOINT_UNKNOWN"));
}

#[tokio::test]
async fn what_is_inside_is_refused_for_good() {
    let canary = Target::start(|_, _| answer(200, "", "")).await;
    let world = World::on(Arc::new(MemoryStore::new()), &[], Policy::fixed(millis(20)).attempts(3));
    let dead = world.run(json!({"url": canary.url("/")})).await;
    assert_eq!((state(&dead), dead.attempts.len(), canary.connections()), (StateName::Dead, 1, 0));
    let (_, code, message) = failure(&dead);
    assert_eq!(code.as_deref(), Some("SSRF_BLOCKED"));
    assert!(message.contains("--allow-egress CIDR, or with egress.allow in the config"), "{message}");
}

#[tokio::test]
async fn sources_are_asked_in_order_until_one_has_it() {
    let target = Target::start(|_, asked| match asked.line.split(' ').nth(1).unwrap() {
        "/missing" => answer(404, "", ""),
        "/gone" => answer(410, "", ""),
        "/busy" => answer(503, "", ""),
        _ => answer(200, "", "found"),
    })
    .await;
    let sources = |paths: &[&str]| json!({"sources": paths.iter().map(|path| json!({"url": target.url(path)})).collect::<Vec<_>>()});
    let lines =
        |from: usize| target.asked()[from..].iter().map(|asked| asked.line.clone()).collect::<Vec<_>>();
    let world = World::new();
    let done = world.run(sources(&["/missing", "/gone", "/here", "/never"])).await;
    assert_eq!(lines(0), ["GET /missing HTTP/1.1", "GET /gone HTTP/1.1", "GET /here HTTP/1.1"]);
    assert_eq!((state(&done), output(&done)["body"].as_str()), (StateName::Succeeded, Some("found")));
    assert_eq!(output(&done)["source"], target.address.to_string());
    let missing = world.run(sources(&["/missing", "/gone"])).await;
    assert_eq!((state(&missing), lines(3).len()), (StateName::Dead, 2));
    assert_eq!(failure(&missing).1.as_deref(), Some("NOT_FOUND"));
    // One that may have it later makes the whole worth another try.
    let busy = world.run(sources(&["/missing", "/busy"])).await;
    assert_eq!((state(&busy), busy.attempts.len(), lines(5).len()), (StateName::Dead, 3, 6));
    assert_eq!(failure(&busy).0, Class::Transient);
}

#[tokio::test]
async fn a_source_that_may_have_acted_is_the_last_one_asked() {
    let first = Target::start(|_, _| Reply::SayAndReset(String::new())).await;
    let second = Target::start(|_, _| answer(200, "", "")).await;
    let world =
        World::on(Arc::new(MemoryStore::new()), &["127.0.0.1"], Policy::fixed(millis(20)).attempts(1));
    let sources = |method: &str| json!({"sources": [{"url": first.url("/"), "method": method}, {"url": second.url("/"), "method": method}]});
    let dead = world.run(sources("POST")).await;
    assert_eq!((failure(&dead).0, second.connections()), (Class::UnknownOutcome, 0));
    // To read twice does no harm.
    assert_eq!(state(&world.run(sources("GET")).await), StateName::Succeeded);
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_an_unknown_outcome() {
    let target = Target::start(|_, _| Reply::SayAndHang(String::new())).await;
    let policy = Policy { timeout: Some(millis(1_500)), ..Policy::fixed(millis(20)).attempts(1) };
    let world = World::on(Arc::new(MemoryStore::new()), &["127.0.0.1"], policy);
    let dead = world.run(json!({"url": target.url("/"), "body": 1})).await;
    let (class, code, message) = failure(&dead);
    assert_eq!((class, code.as_deref()), (Class::UnknownOutcome, Some("TIMEOUT")), "{message}");
    let record = &dead.attempts[0];
    assert!(record.ended_at.since(record.started_at) <= millis(1_500));
}

/// A target that leaves the first POST unanswered, and its verification to the script.
async fn doubtful(verify: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Target {
    let posts = std::sync::atomic::AtomicUsize::new(0);
    let asks = std::sync::atomic::AtomicUsize::new(0);
    let next =
        |count: &std::sync::atomic::AtomicUsize| count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    Target::start(move |_, asked| match asked.line.starts_with("POST") {
        true if next(&posts) == 0 => Reply::SayAndReset(String::new()),
        true => answer(200, "", "sent again"),
        false => verify(next(&asks)),
    })
    .await
}

fn verified(target: &Target) -> Value {
    json!({"url": target.url("/pay"), "body": {"amount": 5}, "verify": {"url": target.url("/paid")}})
}

#[tokio::test]
async fn after_an_unknown_outcome_it_is_asked_first_whether_it_was_done() {
    let target = doubtful(|_| answer(200, "", "paid")).await;
    let done = World::new().run(verified(&target)).await;
    assert_eq!(state(&done), StateName::Succeeded);
    let lines: Vec<String> = target.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines, ["POST /pay HTTP/1.1", "GET /paid HTTP/1.1"]);
    assert_eq!(output(&done)["verified"], true);
    assert_eq!(target.asked()[1].headers["idempotency-key"], done.job.id.to_string());
}

#[tokio::test]
async fn what_was_not_done_is_sent_again() {
    let target = doubtful(|_| answer(404, "", "")).await;
    let done = World::new().run(verified(&target)).await;
    assert_eq!((state(&done), output(&done)["body"].as_str()), (StateName::Succeeded, Some("sent again")));
    assert_eq!(target.asked().len(), 3);
}

#[tokio::test]
async fn a_check_that_fails_is_made_again_before_anything_is_sent() {
    let target = doubtful(|n| if n == 0 { answer(500, "", "") } else { answer(200, "", "") }).await;
    let done = World::new().run(verified(&target)).await;
    assert_eq!(state(&done), StateName::Succeeded);
    let lines: Vec<String> = target.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines, ["POST /pay HTTP/1.1", "GET /paid HTTP/1.1", "GET /paid HTTP/1.1"]);
    let failed: Vec<_> = done.attempts.iter().filter(|record| record.ending == Ending::Failed).collect();
    assert_eq!(failed[1].failure.as_ref().unwrap().class, Class::Transient);
}

#[tokio::test]
async fn after_a_known_outcome_nobody_is_asked() {
    let target = Target::start(|n, _| if n == 0 { answer(503, "", "") } else { answer(200, "", "") }).await;
    World::new().run(verified(&target)).await;
    assert!(target.asked().iter().all(|asked| asked.line.starts_with("POST")));
}

#[tokio::test]
async fn who_cannot_look_back_asks_before_every_try_but_the_first() {
    let target = Target::start(|n, asked| match asked.line.starts_with("GET") {
        true => answer(404, "", ""),
        false if n == 0 => answer(503, "", ""),
        false => answer(200, "", ""),
    })
    .await;
    let egress = Egress::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    let queue = Queue::new("default").policy(Policy::fixed(millis(20)).attempts(3));
    let builder = Engine::builder(MemoryStore::new()).queue(queue);
    let engine = builder.handle(HttpExecutor::new(egress, Secrets::new())).build().unwrap();
    World { engine }.run(verified(&target)).await;
    let lines: Vec<String> = target.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines, ["POST /pay HTTP/1.1", "GET /paid HTTP/1.1", "POST /pay HTTP/1.1"]);
}

#[tokio::test]
async fn after_a_shutdown_in_the_middle_it_is_asked_first_whether_it_was_done() {
    let target = Target::start(|_, asked| match asked.line.starts_with("GET") {
        true => answer(200, "", "paid"),
        false => Reply::SayAndHang(String::new()),
    })
    .await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let allow = vec!["127.0.0.1".parse().unwrap()];
    let egress = Egress::new(EgressPolicy { allow });
    let executor = HttpExecutor::new(egress, Secrets::new()).history(store.clone());
    let engine = Engine::on(store).grace(millis(0)).handle(executor).build().unwrap();
    let world = World { engine };
    let id = world.enqueue(&verified(&target)).await;
    world.engine.run(target.wait_for_connections(1)).await.unwrap();
    world.engine.drain().await.unwrap();
    let done = world.engine.get(id).await.unwrap().unwrap();
    assert_eq!((state(&done), &output(&done)["verified"]), (StateName::Succeeded, &json!(true)));
    assert_eq!(target.asked().last().unwrap().line, "GET /paid HTTP/1.1");
}

#[tokio::test]
async fn a_job_that_is_cancelled_closes_its_connection() {
    let target = Target::start(|_, _| Reply::SayAndHang(String::new())).await;
    let world = World::new();
    let id = world.enqueue(&json!({"url": target.url("/")})).await;
    let engine = world.engine.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(async move { engine.run(async move { drop(stopped.await) }).await });
    target.wait_for_connections(1).await;
    world.engine.cancel(id).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), target.wait_for_closed(1))
        .await
        .expect("the request went on");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_redirect_is_followed_where_that_was_asked_for() {
    let target =
        Target::start(
            |n, _| if n == 0 { answer(302, "location: /there\r\n", "") } else { answer(200, "", "") },
        )
        .await;
    let done = World::new().run(json!({"url": target.url("/"), "followRedirects": true})).await;
    assert_eq!(
        (state(&done), target.asked()[1].line.as_str()),
        (StateName::Succeeded, "GET /there HTTP/1.1")
    );
}

const MEASURED: usize = 20_000;

/// Requests a second by the client alone.
async fn bare_loops(egress: &Egress, url: &str, at_once: usize) -> f64 {
    let began = std::time::Instant::now();
    let loops = (0..at_once).map(|_| {
        let (egress, url) = (egress.clone(), url.to_owned());
        tokio::spawn(async move {
            for _ in 0..MEASURED / at_once {
                egress.send(Request::new(http::Method::POST, &url).unwrap()).await.unwrap();
            }
        })
    });
    for one in loops.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    MEASURED as f64 / began.elapsed().as_secs_f64()
}

/// Jobs a second, from a SQLite file.
async fn jobs(executor: HttpExecutor, url: &str, at_once: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("jobs.db")).await.unwrap();
    let queue = Queue::new("default").concurrency(at_once);
    let engine = Engine::builder(store).queue(queue).handle(executor).build().unwrap();
    let payload = Json::of(&json!({"method": "POST", "url": url, "body": {"order": 17}})).unwrap();
    for _ in 0..MEASURED / 1_000 {
        engine.enqueue_all((0..1_000).map(|_| NewJob::of_kind("http", payload.clone()))).await.unwrap();
    }
    let began = std::time::Instant::now();
    engine.drain().await.unwrap();
    MEASURED as f64 / began.elapsed().as_secs_f64()
}

/// `cargo test -p redrive-server --test http_executor -- --ignored --nocapture`, with `--release` for figures to keep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: how fast jobs go out, beside the same client in a bare loop"]
async fn how_fast_jobs_go_out() {
    let target = Target::start(|_, _| answer(200, "", "ok")).await;
    let egress = Egress::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    for at_once in [64, 256] {
        let bare = bare_loops(&egress, &target.url("/"), at_once).await;
        let jobs = jobs(HttpExecutor::new(egress.clone(), Secrets::new()), &target.url("/"), at_once).await;
        println!("{at_once} at once: bare loop {bare:.0}/s, jobs {jobs:.0}/s, ratio {:.2}", jobs / bare);
    }
}

#[test]
fn a_bad_job_is_refused_before_it_is_stored() {
    assert!(HttpExecutor::check(r#"{"url": "https://api.example/x", "body": {"a": 1}}"#).is_ok());
    let refused = HttpExecutor::check(r#"{"url": "gopher://api.example/"}"#).unwrap_err();
    assert_eq!(refused, "the scheme \"gopher\" is not served; write http or https");
    let destination = |url: &str| HttpExecutor::check(&json!({"url": url}).to_string()).ok();
    assert_eq!(destination("https://api.example/x").as_deref(), Some("api.example"));
    assert_eq!(destination("http://api.example:8080/x").as_deref(), Some("api.example:8080"));
    assert_eq!(destination("x"), None);
}

#[test]
fn an_endpoint_that_nobody_knows_is_refused_with_those_that_are_known() {
    let known = ["billing", "shop"].map(str::to_owned).into();
    let of = |endpoint: &str| json!({"url": "https://api.example/x", "endpoint": endpoint}).to_string();
    assert_eq!(HttpExecutor::check_with(&of("shop"), &known).as_deref(), Ok("api.example"));
    let refused = HttpExecutor::check_with(&of("shpo"), &known).unwrap_err();
    assert!(refused.starts_with("there is no endpoint \"shpo\"; known here: billing, shop; "), "{refused}");
    let refused = HttpExecutor::check_with(&of("shop"), &BTreeSet::new()).unwrap_err();
    assert!(refused.contains("known here: none") && refused.contains("[endpoints.NAME]"), "{refused}");
    assert!(HttpExecutor::check_with(r#"{"url": "https://api.example/x"}"#, &BTreeSet::new()).is_ok());
}

#[test]
fn what_would_fail_when_it_is_run_is_refused_when_it_is_checked() {
    // As a value it would have the second URL alone, and nobody would see the first.
    let twice = r#"{"url": "https://a.example/", "url": "https://b.example/"}"#;
    assert!(HttpExecutor::check(twice).unwrap_err().contains("payload.url is there twice"));
    for nothing in ["null", "[]", "7", r#"{"sources": [7]}"#, r#"{"url": "https://a.example/", "verify": 7}"#]
    {
        let problem = HttpExecutor::check(nothing).unwrap_err();
        assert!(!problem.contains("Written"), "{problem}");
    }
}

#[test]
fn the_examples_in_the_guide_can_be_run() {
    let guide = include_str!("../../../docs/guides/http-jobs.md");
    let payloads = guide.split("```json\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let payloads: Vec<&str> = payloads.map(|(payload, _)| payload).collect();
    assert_eq!(payloads.len(), 4);
    for payload in payloads {
        HttpExecutor::check(payload).unwrap();
    }
}
