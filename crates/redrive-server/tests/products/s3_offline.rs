//! The document of the application that goes offline (S3), on `examples/offline_sync`: a far side that is really cut off,
//! and a hundred times less patience.

use redrive::{Happening, JobId, OnRetry, Policy, StateName, millis, secs};
use redrive_examples::Stage;
use redrive_examples::offline_sync::{
    Cloud, Connection, CreateNote, DeleteNote, Program, Queued, Sync, Told, UpdateNote,
};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Client, within};
use crate::stream::Stream;

/// The program as it runs.
struct Ground {
    sync: Sync,
    cloud: Cloud,
    client: Client,
    stop: oneshot::Sender<()>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Ground {
    async fn open(folder: &tempfile::TempDir, cloud: Cloud, on_retry: OnRetry) -> Ground {
        let program = Program::open(&Stage::quick(folder.path()), cloud.address, on_retry).await.unwrap();
        let (sync, client) = (program.sync.clone(), Client { address: program.dashboard, token: None });
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(program.run(async { drop(stopped.await) }));
        Ground { sync, cloud, client, stop, running }
    }

    async fn new(folder: &tempfile::TempDir) -> Ground {
        Ground::open(folder, Cloud::start().await.unwrap(), OnRetry::Block).await
    }

    /// Waits until it has noticed how the connection is.
    async fn notices(&self, wanted: Connection) {
        let mut connection = self.sync.connection();
        within(connection.wait_for(|connection| *connection == wanted)).await.unwrap();
    }

    /// Waits until the user has been told so many things.
    async fn told(&self, count: usize) -> Vec<Told> {
        let mut told = self.sync.told();
        within(told.wait_for(|told| told.len() >= count)).await.unwrap().clone()
    }

    async fn operation(&self, id: JobId) -> Queued {
        self.sync.operations().await.unwrap().into_iter().find(|operation| operation.id == id).unwrap()
    }

    async fn end(self) -> Cloud {
        drop(self.stop);
        within(self.running).await.unwrap().unwrap();
        self.cloud
    }
}

/// S3-01, S3-11, S3-18, S3-20
#[tokio::test]
async fn without_a_connection_nothing_is_tried_and_when_it_is_back_all_goes_out_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::new(&folder).await;
    ground.cloud.go_away().await;
    ground.notices(Connection::Down).await;
    let mut expected = Vec::new();
    for number in 0..20 {
        let note = format!("note-{number}");
        ground.sync.add(CreateNote::of(&note)).await.unwrap();
        ground.sync.add(UpdateNote::of(&note)).await.unwrap();
        expected.extend([format!("create_note {note}"), format!("update_note {note}")]);
    }
    let waiting = ground.sync.operations().await.unwrap();
    assert!(waiting.iter().all(|it| (it.status, it.retry_count) == ("pending", 0)), "{waiting:?}");
    assert_eq!(waiting.len(), 40);

    ground.cloud.come_back().await.unwrap();
    ground.told(40).await;
    assert_eq!(ground.cloud.operations(), expected);
    let done = ground.sync.operations().await.unwrap();
    assert!(done.iter().all(|it| (it.status, it.retry_count) == ("completed", 0)), "{done:?}");
}

/// S3-02, S3-03, S3-04, S3-05, S3-06, S3-11, S3-12, S3-15, S3-20
#[tokio::test]
async fn the_third_failure_is_the_last_and_the_user_is_told_with_a_link_to_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::new(&folder).await;
    let mut stream = Stream::listen(&ground.client, None).await;
    ground.cloud.refuse("cursed");
    let id = ground.sync.add(CreateNote::of("cursed")).await.unwrap();
    let words = "Operation 'create_note' failed after 3 retries. See logs.";
    let told = ground.told(1).await.remove(0);
    assert_eq!((told.message.as_str(), told.log), (words, format!("/jobs/{id}")));
    let failed = ground.operation(id).await;
    assert_eq!((failed.status, failed.retry_count, failed.max_retries), ("failed", 3, 3));
    assert!(failed.last_error.unwrap().contains("the disk is full"));
    assert_eq!(failed.processed_at, None);
    // 2 s and 4 s, a hundred times less.
    let detail = ground.sync.engine().get(id).await.unwrap().unwrap();
    let waits = detail.attempts.iter().filter_map(|attempt| Some(attempt.next_at?.since(attempt.ended_at)));
    assert_eq!(waits.collect::<Vec<_>>(), [millis(20), millis(40)]);
    assert_eq!(Policy::preset("offline").unwrap().preview(9), [secs(2), secs(4)]);
    // Whoever looks at the dashboard is told in the same words.
    let notice = within(stream.next_of("notice")).await.data;
    assert_eq!((&notice["message"], &notice["job"]), (&json!(words), &json!(id)));
}

/// S3-07, S3-08, S3-09, S3-10, S3-20
#[tokio::test]
async fn a_completed_operation_says_when_and_its_user_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::new(&folder).await;
    let before = ground.sync.engine().now();
    let id = ground.sync.add(DeleteNote::of("old")).await.unwrap();
    let told = ground.told(1).await;
    assert_eq!(told[0].message, "Operation 'delete_note' completed.");
    let done = ground.operation(id).await;
    assert_eq!((done.status, done.operation_type.as_str()), ("completed", "delete_note"));
    assert!(done.processed_at.is_some_and(|at| at >= before && at >= done.created_at), "{done:?}");
    assert_eq!(done.last_error, None);
}

/// S3-14
#[tokio::test]
async fn a_failing_operation_holds_back_those_behind_it_or_lets_them_pass_as_was_chosen() {
    for (on_retry, first) in [(OnRetry::Block, "failed"), (OnRetry::LetPass, "completed")] {
        let folder = tempfile::tempdir().unwrap();
        let ground = Ground::open(&folder, Cloud::start().await.unwrap(), on_retry).await;
        ground.cloud.refuse("cursed");
        ground.sync.engine().pause("operations").await.unwrap();
        ground.sync.add(CreateNote::of("cursed")).await.unwrap();
        ground.sync.add(CreateNote::of("other")).await.unwrap();
        ground.sync.engine().resume("operations").await.unwrap();
        // In either case it comes back by itself, and both are told of.
        let told = ground.told(2).await;
        assert!(told[0].message.contains(first), "{on_retry:?}: {told:?}");
        assert_eq!(ground.cloud.operations(), ["create_note other"]);
    }
}

/// S3-10, S3-13
#[tokio::test]
async fn an_operation_is_marked_before_it_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::new(&folder).await;
    ground.cloud.set_slow(true);
    let mut events = ground.sync.engine().events();
    let id = ground.sync.add(CreateNote::of("slow")).await.unwrap();
    while !matches!(within(events.recv()).await.unwrap().what, Happening::Started { .. }) {}
    assert_eq!(ground.operation(id).await.status, "processing");
    assert_eq!(ground.cloud.operations(), [""; 0], "nothing has been done yet");
    ground.cloud.set_slow(false);
    ground.told(1).await;
    assert_eq!(ground.operation(id).await.status, "completed");
}

/// S3-18
#[tokio::test]
async fn a_connection_that_is_lost_under_way_costs_the_operation_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::new(&folder).await;
    ground.cloud.go_away().await;
    // It may be tried before anybody has noticed.
    let mut events = ground.sync.engine().events();
    let id = ground.sync.add(CreateNote::of("late")).await.unwrap();
    ground.notices(Connection::Down).await;
    ground.cloud.come_back().await.unwrap();
    loop {
        let event = within(events.recv()).await.unwrap();
        if let Happening::Succeeded { failures, .. } = event.what {
            assert_eq!((event.job, failures), (id, 0));
            break;
        }
    }
    assert_eq!(ground.cloud.operations(), ["create_note late"]);
}

/// S3-01, S3-19
#[tokio::test]
async fn what_waits_outlives_the_program_and_goes_out_when_both_are_back() {
    let folder = tempfile::tempdir().unwrap();
    let ground = Ground::new(&folder).await;
    ground.cloud.go_away().await;
    ground.notices(Connection::Down).await;
    for note in ["a", "b", "c"] {
        ground.sync.add(CreateNote::of(note)).await.unwrap();
    }
    let cloud = ground.end().await;
    cloud.come_back().await.unwrap();

    let ground = Ground::open(&folder, cloud, OnRetry::Block).await;
    ground.told(3).await;
    assert_eq!(ground.cloud.operations(), ["create_note a", "create_note b", "create_note c"]);
    let states = ground.sync.engine().list(&redrive::Filter::default(), redrive::Page::default()).await;
    assert!(states.unwrap().jobs.iter().all(|job| job.state.name() == StateName::Succeeded));
}
