//! The media library's document (S0), on `examples/media_library`: three sources that fail as they are told, and a
//! hundred times less patience.

use redrive::{Engine, StateName};
use redrive_examples::Stage;
use redrive_examples::media_library::{Library, Mood, NAMES, Program, Sources, Status, file_name};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Client, within};
use crate::stream::Stream;

const MATRIX: &str = "The.Matrix.1999.1080p.BluRay.x264.mkv";
const METROPOLIS: &str = "Metropolis (1927).mp4";

/// The program as it runs.
struct Ground {
    library: Library,
    sources: Sources,
    client: Client,
    stop: oneshot::Sender<()>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Ground {
    async fn open(folder: &tempfile::TempDir, sources: Sources) -> Ground {
        let program = Program::open(&Stage::quick(folder.path()), &sources).await.unwrap();
        let (library, client) = (program.library.clone(), Client { address: program.dashboard, token: None });
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(program.run(async { drop(stopped.await) }));
        Ground { library, sources, client, stop, running }
    }

    /// With every source like this.
    async fn with(folder: &tempfile::TempDir, mood: Mood) -> Ground {
        let ground = Ground::open(folder, Sources::start().await.unwrap()).await;
        ground.all(mood);
        ground
    }

    fn all(&self, mood: Mood) {
        NAMES.iter().for_each(|name| self.sources.set(name, mood));
    }

    /// Waits until a file has come to this.
    async fn until(&self, file: &str, wanted: fn(&Status) -> bool) -> Status {
        let mut changes = self.library.changes();
        let files = within(changes.wait_for(|files| files.get(file).is_some_and(wanted))).await.unwrap();
        files[file].clone()
    }

    /// Adds a file whose sources ask for an hour, and gives its retry's id.
    async fn put_off(&self, file: &str) -> String {
        let added = self.library.add(file).await.unwrap();
        assert!(is_retrying(&added), "{added:?}");
        let pending = self.get("/retry/pending").await;
        let retry = pending["items"].as_array().unwrap().iter().find(|item| item["taskId"] == file);
        retry.unwrap()["id"].as_str().unwrap().to_owned()
    }

    async fn get(&self, path: &str) -> Value {
        self.client.get(&format!("/api/v1{path}")).await.data()
    }

    async fn end(self) -> Sources {
        drop(self.stop);
        within(self.running).await.unwrap().unwrap();
        self.sources
    }
}

fn is_retrying(status: &Status) -> bool {
    matches!(status, Status::Retrying { .. })
}

fn is_ready(status: &Status) -> bool {
    matches!(status, Status::Ready(_))
}

fn needs_person(status: &Status) -> bool {
    matches!(status, Status::NeedsPerson { .. })
}

async fn jobs(engine: &Engine) -> usize {
    engine.count(&redrive::Filter::default(), 100).await.unwrap()
}

/// S0-01, S0-02, S0-06, S0-07, S0-08, S0-12, S0-34, S0-41, S0-42
#[tokio::test]
async fn a_source_that_recovers_is_asked_again_by_itself_and_its_answer_is_applied() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with(&folder, Mood::Down).await;
    let mut stream = Stream::listen(&ground.client, None).await;
    assert!(is_retrying(&ground.library.add(MATRIX).await.unwrap()));
    ground.sources.set("tmdb", Mood::Up);
    let Status::Ready(found) = ground.until(MATRIX, is_ready).await else { panic!("it is ready") };
    assert_eq!((found.title.as_str(), found.year, found.source.as_str()), ("The Matrix", 1999, "tmdb"));
    let notice = within(stream.next_of("notice")).await.data;
    assert_eq!(notice["what"], "recovered", "{notice}");
    let pending = ground.get("/retry/pending").await;
    assert_eq!(
        pending,
        json!({
            "items": [], "stats": { "totalPending": 0, "totalSucceeded": 1, "totalFailed": 0 }
        })
    );
}

/// S0-01, S0-18
#[tokio::test]
async fn a_timeout_a_rate_limit_an_outage_and_a_broken_connection_are_temporary() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with(&folder, Mood::Up).await;
    let moods = [
        (Mood::Slow, "did not answer"),
        (Mood::Limited, "answered 429"),
        (Mood::Down, "answered 503"),
        (Mood::Broken, "broke the connection"),
    ];
    for (number, (mood, said)) in moods.into_iter().enumerate() {
        ground.sources.set("tmdb", mood);
        let file = format!("Film number {number}.mkv");
        let Status::Retrying { error } = ground.library.add(&file).await.unwrap() else {
            panic!("{mood:?} is temporary")
        };
        assert!(error.contains(said), "{mood:?}: {error}");
    }
    assert_eq!(jobs(ground.library.engine()).await, 4);
}

/// S0-19, S0-35, S0-41
#[tokio::test]
async fn what_no_source_has_and_what_is_no_video_is_not_queued() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with(&folder, Mood::Up).await;
    for (file, said) in [("Holiday in the Garden.mov", "no source has it"), ("notes.txt", "is no video")] {
        let Status::NeedsPerson { error } = ground.library.add(file).await.unwrap() else {
            panic!("{file} is hopeless")
        };
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(jobs(ground.library.engine()).await, 0);
}

/// S0-04, S0-05, S0-33
#[tokio::test]
async fn after_four_retries_a_person_is_told_and_can_bring_the_file_back() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with(&folder, Mood::Down).await;
    let mut stream = Stream::listen(&ground.client, None).await;
    ground.library.add(MATRIX).await.unwrap();
    let Status::NeedsPerson { error } = ground.until(MATRIX, needs_person).await else {
        panic!("it needs a person")
    };
    assert!(error.contains("closed for repairs"), "{error}");
    assert_eq!(ground.sources.asked("tmdb"), 5, "once when it was added, and four retries");
    let notice = within(stream.next_of("notice")).await.data;
    assert_eq!(notice["message"], "Operation 'metadata_fetch' failed after 4 retries. See logs.");
    let dead = ground.get("/dead").await;
    assert_eq!((&dead["items"][0]["key"], &dead["items"][1]), (&json!(MATRIX), &Value::Null));

    ground.all(Mood::Up);
    let redrive = format!("/api/v1/jobs/{}/redrive", dead["items"][0]["id"].as_str().unwrap());
    ground.client.post(&redrive, &json!({})).await.data();
    ground.until(MATRIX, is_ready).await;
}

/// S0-09, S0-10, S0-11, S0-36, S0-37, S0-38, S0-43, S0-44, S0-45, S0-46
#[tokio::test]
async fn the_user_sees_what_waits_and_can_retry_it_at_once_or_take_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with(&folder, Mood::Closed).await;
    let (matrix, metropolis) = (ground.put_off(MATRIX).await, ground.put_off(METROPOLIS).await);
    let pending = ground.get("/retry/pending").await;
    let items = pending["items"].as_array().unwrap();
    // Chance has a say in which is due first.
    for (id, file) in [(&matrix, MATRIX), (&metropolis, METROPOLIS)] {
        let item = items.iter().find(|item| item["id"] == **id).unwrap();
        assert_eq!((&item["taskId"], &item["taskType"]), (&json!(file), &json!("metadata_fetch")));
        assert_eq!((&item["attemptCount"], &item["maxAttempts"]), (&json!(0), &json!(4)));
        let until = item["timeUntilRetry"].as_str().unwrap();
        // An hour, as it asked, and up to a tenth more.
        let is_an_hour = until.starts_with("1h") || until.starts_with("59m");
        assert!(is_an_hour && item["nextAttemptAt"].is_string(), "{item}");
    }

    ground.all(Mood::Up);
    ground.client.post(&format!("/api/v1/retry/{matrix}/trigger"), &json!({})).await.data();
    ground.until(MATRIX, is_ready).await;
    let cancel = format!("/api/v1/retry/{metropolis}");
    ground.client.ask("DELETE", &cancel, &[], bytes::Bytes::new()).await.data();
    ground.until(METROPOLIS, |status| *status == Status::Cancelled).await;
    assert_eq!(ground.get("/retry/pending").await["items"], json!([]));
}

/// S0-32
#[tokio::test]
async fn a_run_that_takes_longer_than_the_wait_is_not_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with(&folder, Mood::Down).await;
    // Half a second, and ten to eighty milliseconds to the next run.
    ground.sources.set("tmdb", Mood::Slow);
    ground.library.add(MATRIX).await.unwrap();
    ground.until(MATRIX, needs_person).await;
    assert_eq!(ground.sources.asked("tmdb"), 5);
}

/// S0-22, S0-35
#[tokio::test]
async fn a_file_that_is_added_twice_has_one_retry() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with(&folder, Mood::Closed).await;
    ground.put_off(MATRIX).await;
    assert!(is_retrying(&ground.library.add(MATRIX).await.unwrap()));
    assert_eq!(jobs(ground.library.engine()).await, 1);
}

/// S0-30, S0-59
#[tokio::test]
async fn stopped_and_started_again_the_library_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::with(&folder, Mood::Closed).await;
    let id = ground.put_off(MATRIX).await;
    let sources = ground.end().await;

    let ground = Ground::open(&folder, sources).await;
    assert!(is_retrying(&ground.library.status(MATRIX).unwrap()));
    ground.all(Mood::Up);
    ground.client.post(&format!("/api/v1/retry/{id}/trigger"), &json!({})).await.data();
    ground.until(MATRIX, is_ready).await;
    let done = ground.get(&format!("/jobs/{id}?wait=30s")).await;
    assert_eq!(done["state"], StateName::Succeeded.to_string());
}

/// S0-15
#[test]
fn a_file_name_tells_title_year_and_episode_and_nonsense_is_refused_for_good() {
    let read = |file: &str| {
        let title = file_name::parse(file).unwrap();
        (title.name, title.year, title.episode)
    };
    assert_eq!(read(MATRIX), ("The Matrix".into(), Some(1999), None));
    assert_eq!(read(METROPOLIS), ("Metropolis".into(), Some(1927), None));
    assert_eq!(read("Breaking.Bad.S01E02.720p.mkv"), ("Breaking Bad".into(), None, Some((1, 2))));
    assert_eq!(read("[Group] Frieren - 1x03.mkv"), ("Frieren".into(), None, Some((1, 3))));
    assert_eq!(read("臥虎藏龍.2000.2160p.mkv"), ("臥虎藏龍".into(), Some(2000), None));
    assert_eq!(read("2012.2009.mkv"), ("2012".into(), Some(2009), None));
    for file in ["notes.txt", "no ending", "1080p.mkv", "..mkv"] {
        let failure = file_name::parse(file).unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("INVALID_INPUT"), "{file}");
    }
}
