//! The article feed's document (S4), on `examples/article_feed`: a small web that fails as it is told, and a thousand times
//! less patience.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use redrive::{Failure, GiveUp, Happening, JobDetail, JobId, Policy, State, StateName, millis, secs};
use redrive_examples::article_feed::{
    Article, Content, Feed, MIN_GAP, PLACES, Program, QUICK, Web, article_of,
};
use redrive_examples::{Pace, Stage};
use redrive_server::config::LogFormat;
use redrive_server::telemetry;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::client::{Client, within};
use crate::stream::Stream;

/// The program as it runs.
struct Ground {
    feed: Feed,
    web: Web,
    client: Client,
    _stop: oneshot::Sender<()>,
    _folder: tempfile::TempDir,
}

impl Ground {
    async fn new() -> Ground {
        Ground::with(QUICK, PLACES).await
    }

    async fn with(pace: Pace, places: usize) -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage { pace, ..Stage::quick(folder.path()) };
        let program = Program::open(&stage, places).await.unwrap();
        let (feed, client) = (program.feed.clone(), Client { address: program.dashboard, token: None });
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(program.run(async { drop(stopped.await) }));
        Ground { feed, web: Web::start().await.unwrap(), client, _stop: stop, _folder: folder }
    }

    /// Takes pages of the web, and gives each when it is over.
    async fn fetch(&self, pages: &[&str]) -> Vec<JobDetail> {
        let articles = (1..).zip(pages).map(|(id, page)| Article { id, url: self.web.url(page, id) });
        self.fetch_all(articles.collect()).await
    }

    async fn fetch_all(&self, articles: Vec<Article>) -> Vec<JobDetail> {
        let jobs = self.feed.add(articles, 0).await.unwrap();
        let mut ended = Vec::new();
        for job in jobs {
            ended.push(self.end_of(job.id).await);
        }
        ended
    }

    async fn end_of(&self, id: JobId) -> JobDetail {
        let state = self.get(&format!("/jobs/{id}?wait=30s")).await["state"].clone();
        assert!(state == "succeeded" || state == "dead", "{state}");
        self.feed.engine().get(id).await.unwrap().unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.client.get(&format!("/api/v1{path}")).await.data()
    }

    /// How often each page was asked for.
    fn asked(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        self.web.asked().into_iter().for_each(|(path, _)| *counts.entry(path).or_default() += 1);
        counts
    }
}

fn last(detail: &JobDetail) -> &Failure {
    detail.attempts.iter().rev().find_map(|attempt| attempt.failure.as_ref()).unwrap()
}

/// S4-03, S4-05, S4-11, S4-22, S4-23, S4-25, S4-27
#[tokio::test]
async fn what_is_permanent_is_tried_once_and_kept_with_its_reason() {
    let ground = Ground::new().await;
    let mut articles: Vec<Article> = (1..)
        .zip(["404", "403", "empty"])
        .map(|(id, page)| Article { id, url: ground.web.url(page, id) })
        .collect();
    articles.push(Article { id: 4, url: "not a url".into() });
    articles.push(Article { id: 5, url: "http://169.254.169.254/latest/meta-data/".into() });
    articles.push(Article { id: 6, url: "http://10.0.0.7/".into() });
    let expected = [
        (None, "answered 404"),
        (None, "answered 403"),
        (Some("NO_CONTENT"), "no parseable content"),
        (Some("INVALID_URL"), "URL"),
        (Some("SSRF_BLOCKED"), "169.254.169.254"),
        (Some("SSRF_BLOCKED"), "10.0.0.7"),
    ];
    for (ended, (code, said)) in ground.fetch_all(articles).await.iter().zip(expected) {
        assert!(matches!(ended.job.state, State::Dead { why: GiveUp::Permanent, .. }), "{said}: {ended:?}");
        assert_eq!((ended.job.ledger.attempt, ended.attempts.len()), (1, 1), "{said}");
        let failure = last(ended);
        assert_eq!(failure.code.as_deref().filter(|_| code.is_some()), code);
        assert!(failure.message.contains(said), "{said}: {}", failure.message);
    }
    assert!(ground.asked().values().all(|count| *count == 1), "{:?}", ground.asked());
    assert_eq!(ground.get("/stats").await["waiting"], 0);
}

/// S4-03, S4-04, S4-10, S4-27, S4-28
#[tokio::test]
async fn what_is_temporary_is_tried_again_and_finishes() {
    let ground = Ground::new().await;
    for ended in ground.fetch(&["once-429", "once-502", "once-503", "once-504"]).await {
        assert_eq!((ended.job.state.name(), ended.job.ledger.failures), (StateName::Succeeded, 1));
        let content: Content = ended.output.unwrap().decode().unwrap();
        assert!(content.text.starts_with("Article ") && content.text.ends_with("All of it."), "{content:?}");
    }
    assert!(ground.asked().values().all(|count| *count == 2), "counted once each: {:?}", ground.asked());
}

/// S4-04
#[tokio::test]
async fn a_page_that_does_not_answer_in_time_is_asked_again() {
    let ground = Ground::new().await;
    let mut events = ground.feed.engine().events();
    let articles = vec![Article { id: 1, url: ground.web.url("slow", 1) }];
    let job = ground.feed.add(articles, 0).await.unwrap()[0].id;
    let failure = loop {
        if let Happening::RetryScheduled { failure, .. } = within(events.recv()).await.unwrap().what {
            break failure.unwrap();
        }
    };
    assert_eq!(failure.code.as_deref(), Some("TIMEOUT"));
    ground.web.mend();
    assert_eq!(ground.end_of(job).await.job.state.name(), StateName::Succeeded);
}

/// S4-01, S4-02, S4-07, S4-12, S4-14, S4-15, S4-16, S4-27, S4-30
#[tokio::test]
async fn three_retries_after_one_two_and_four_minutes_and_a_little_and_then_it_is_over() {
    let ground = Ground::new().await;
    let ended = ground.fetch(&["503"]).await.remove(0);
    assert!(matches!(ended.job.state, State::Dead { why: GiveUp::Exhausted, .. }), "{ended:?}");
    assert_eq!((ended.job.ledger.failures, ground.asked()["/503/1"]), (4, 4), "once, and three retries");
    let waits = ended.attempts.iter().filter_map(|attempt| Some(attempt.next_at?.since(attempt.ended_at)));
    let waits: Vec<_> = waits.collect();
    assert_eq!(waits.len(), 3);
    // A thousand times less; a due time is rounded up to the millisecond.
    for (wait, written) in waits.into_iter().zip([60, 120, 240]) {
        assert!((millis(written)..=millis(written + 11)).contains(&wait), "{written}: {wait:?}");
    }
    // And as written.
    let feed = Policy::preset("feed").unwrap();
    assert_eq!(feed.preview(9), [60, 120, 240].map(secs));
}

/// S4-08, S4-09, S4-13, S4-22, S4-27
#[tokio::test]
async fn what_failed_elsewhere_is_taken_if_it_is_worth_it_and_refused_if_not() {
    let ground = Ground::with(Pace::REAL, PLACES).await;
    let article = |id| Article { id, url: ground.web.url("fine", id) };
    let worth =
        ["Network timeout", "Connection timeout", "HTTP 429: Rate Limited", "HTTP 503", "DNS failure"];
    for (id, error) in (1..).zip(worth) {
        assert!(ground.feed.retry(article(id), error).await.unwrap(), "{error}");
    }
    let hopeless = [
        "HTTP 404: Not Found",
        "HTTP 403: Forbidden",
        "Invalid URL format",
        "SSRF validation failed",
        "No parseable content",
    ];
    for (id, error) in (100..).zip(hopeless) {
        assert!(!ground.feed.retry(article(id), error).await.unwrap(), "{error}");
    }
    let pending = ground.get("/retry/pending").await;
    let items = pending["items"].as_array().unwrap();
    assert_eq!(items.len(), worth.len());
    for item in items {
        assert_eq!((&item["attemptCount"], &item["maxAttempts"]), (&json!(0), &json!(3)));
        let until = item["timeUntilRetry"].as_str().unwrap();
        assert!(until.starts_with("1m") || until == "59s", "a minute and up to ten seconds: {until}");
    }
}

/// S4-31
#[tokio::test]
async fn a_higher_priority_goes_first() {
    let ground = Ground::with(QUICK, 1).await;
    ground.feed.engine().pause("articles").await.unwrap();
    let article = |id| vec![Article { id, url: ground.web.url("fine", id) }];
    let mut jobs = Vec::new();
    for (id, priority) in [(1, 0), (2, -5), (3, 10), (4, 0)] {
        jobs.extend(ground.feed.add(article(id), priority).await.unwrap());
    }
    ground.feed.engine().resume("articles").await.unwrap();
    for job in jobs {
        ground.end_of(job.id).await;
    }
    let order: Vec<String> = ground.web.asked().into_iter().map(|(path, _)| path).collect();
    assert_eq!(order, ["/fine/3", "/fine/1", "/fine/4", "/fine/2"]);
}

/// S4-06, S4-27
#[tokio::test]
async fn two_articles_are_never_begun_closer_together_than_the_gap() {
    let pace = Pace(50);
    let ground = Ground::with(pace, PLACES).await;
    let before = ground.feed.engine().now();
    for ended in ground.fetch(&["fine"; 8]).await {
        // Waiting for one's turn is no failure.
        assert_eq!((ended.job.state.name(), ended.job.ledger.failures), (StateName::Succeeded, 0));
    }
    // However late each is, none is begun before its turn.
    let asked = ground.web.asked();
    assert_eq!(asked.len(), 8);
    for (turn, (path, at)) in (0..).zip(asked) {
        assert!(
            at.since(before) >= pace.of(MIN_GAP) * turn,
            "{path} was number {turn} after {:?}",
            at.since(before)
        );
    }
}

/// S4-20, S4-32
#[tokio::test]
async fn a_batch_is_taken_whole_and_fetched_side_by_side() {
    let ground = Ground::new().await;
    // None of the three is answered before all three have been asked for.
    for ended in ground.fetch(&["together", "together", "together"]).await {
        assert_eq!(ended.job.state.name(), StateName::Succeeded);
    }
}

/// S4-26, S4-29
#[tokio::test]
async fn dead_letters_are_counted_by_their_error_and_brought_back_when_it_is_mended() {
    let ground = Ground::new().await;
    ground.fetch(&["404", "404", "empty", "404"]).await;
    let groups = ground.get("/dead/groups").await;
    let counts: Vec<&Value> = groups.as_array().unwrap().iter().map(|group| &group["count"]).collect();
    assert_eq!(counts, [&json!(3), &json!(1)], "{groups}");
    ground.web.mend();
    let all = json!({ "command": "redrive", "dryRun": false, "filter": { "state": "dead" } });
    assert_eq!(ground.client.post("/api/v1/jobs/commands", &all).await.data()["done"], 4);
    let dead =
        ground.feed.engine().list(&redrive::Filter::default(), redrive::Page::default()).await.unwrap();
    for job in dead.jobs {
        assert_eq!(ground.end_of(job.id).await.job.state.name(), StateName::Succeeded);
    }
}

/// S4-34
#[tokio::test]
async fn somebody_is_told_when_too_much_fails() {
    let ground = Ground::new().await;
    let mut stream = Stream::listen(&ground.client, None).await;
    ground.fetch(&["404"; 12]).await;
    loop {
        let notice = within(stream.next_of("notice")).await.data;
        if notice["what"] == "failure_rate" {
            // It may have been looked at before all of them had failed.
            let message = notice["message"].as_str().unwrap();
            assert!(message.starts_with("100 % of attempts failed in the last 5m"), "{message}");
            return;
        }
    }
}

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn read(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// S4-21, S4-24
#[tokio::test]
async fn the_log_has_a_line_for_each_article_in_the_words_of_the_document() {
    let lines = Lines::default();
    let to = lines.clone();
    let subscriber =
        telemetry::subscriber("processing_queue=info", LogFormat::Json, move || to.clone()).unwrap();
    let _guard = tracing::subscriber::set_default(subscriber);
    let ground = Ground::new().await;
    ground.fetch(&["once-503"]).await;
    let gone = vec![Article { id: 7, url: ground.web.url("404", 7) }];
    ground.fetch_all(gone).await;
    // The line follows the event, on this thread: it is written when the others have had their turn.
    within(async {
        while lines.read().len() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let [retry, done, dead] = <[Value; 3]>::try_from(lines.read()).unwrap();
    let head = |line: &Value| (line["level"].clone(), line["target"].clone(), line["message"].clone());
    let category = json!("processing_queue");
    assert_eq!(head(&retry), (json!("WARN"), category.clone(), json!("Article queued for retry")));
    assert_eq!((&retry["article_id"], &retry["retry_count"]), (&json!(1), &json!(1)));
    assert!(retry["next_retry_at"].is_string() && retry["backoff_seconds"].is_number(), "{retry}");
    assert!(retry["error"].as_str().unwrap().contains("503"), "{retry}");
    assert_eq!(head(&done), (json!("INFO"), category.clone(), json!("Article successfully processed")));
    assert_eq!(done["article_id"], 1);
    assert_eq!(head(&dead), (json!("ERROR"), category, json!("Article permanently failed")));
    assert_eq!((&dead["article_id"], &dead["reason"]), (&json!(7), &json!("permanent error")));
}

/// S4-05
#[test]
fn an_article_is_what_stands_inside_its_tags_and_nothing_is_no_article() {
    let page = "<nav>Menu</nav><article><h1>Head</h1>\n<p>And <b>body</b>.</p></article><footer>x</footer>";
    assert_eq!(article_of(page).as_deref(), Some("Head And body ."));
    for page in ["", "<p>no article</p>", "<article></article>", "<article><img></article>", "<article>open"]
    {
        assert_eq!(article_of(page), None, "{page}");
    }
}
