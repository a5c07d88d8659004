//! Stopped for longer than its lease: what it reports afterwards is refused, and its handlers are cancelled.

use std::sync::Arc;

use redrive::{
    Attempt, Engine, Happening, JobId, MemoryStore, Payload, Policy, SqliteStore, StateName, Store, millis,
    secs,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::gate::Gate;

#[derive(Serialize, Deserialize)]
struct Task {
    /// Whether the stopped process finishes its work before it hears that it lost it.
    finishes: bool,
}

impl Payload for Task {
    const KIND: &'static str = "task";
}

/// Says when it is dropped.
struct Dropped(JobId, mpsc::UnboundedSender<JobId>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

#[tokio::test]
async fn a_process_stopped_beyond_its_lease_is_refused_and_its_handlers_are_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("jobs.db")).await.unwrap();
    outlived(Arc::new(store)).await;
}

#[tokio::test]
async fn in_memory_a_stopped_engine_is_refused_too() {
    outlived(Arc::new(MemoryStore::new())).await;
}

async fn outlived<S: Store>(store: Arc<S>) {
    let gate = Gate::before(store.clone());
    let (started, mut starts) = mpsc::unbounded_channel();
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let (finish, finished) = watch::channel(false);
    let slow = move |attempt: Attempt<Task>| {
        let (started, guard) = (started.clone(), Dropped(attempt.id, dropped.clone()));
        let mut finished = finished.clone();
        async move {
            started.send(attempt.id).unwrap();
            if attempt.payload.finishes {
                finished.wait_for(|finish| *finish).await.unwrap();
            } else {
                std::future::pending::<()>().await;
            }
            drop(guard);
        }
    };
    let policy = Policy::fixed(millis(10)).no_jitter();
    let queue = redrive::Queue::new("default").policy(policy);
    let stopped = Engine::on(gate.clone()).queue(queue.clone()).lease(secs(1)).handle(slow).build().unwrap();
    let mut told = stopped.events();
    let running = tokio::spawn({
        let stopped = stopped.clone();
        async move { stopped.run(std::future::pending()).await }
    });
    let finishes = stopped.enqueue(Task { finishes: true }).await.unwrap().id;
    let hangs = stopped.enqueue(Task { finishes: false }).await.unwrap().id;
    starts.recv().await.unwrap();
    starts.recv().await.unwrap();
    gate.shut();

    let other =
        Engine::on(store).queue(queue).lease(secs(1)).handle(|_: Attempt<Task>| async {}).build().unwrap();
    let mut seen = other.events();
    let taking_over = tokio::spawn({
        let other = other.clone();
        async move { other.run(std::future::pending()).await }
    });
    let mut succeeded = 0;
    while succeeded < 2 {
        succeeded += usize::from(matches!(seen.recv().await.unwrap().what, Happening::Succeeded { .. }));
    }

    // Its work is done, and its report waits at the gate when the other has long finished.
    finish.send_replace(true);
    assert_eq!(drops.recv().await, Some(finishes));
    gate.open();
    assert_eq!(drops.recv().await, Some(hangs), "the handler is dropped when the lease is seen to be lost");
    let mut refused = 0;
    while refused < 2 {
        match told.recv().await.unwrap().what {
            Happening::LeaseLost { attempt } => refused += usize::from(attempt == 1),
            Happening::Succeeded { .. } | Happening::PutBack { .. } => panic!("a late report was accepted"),
            _ => {}
        }
    }
    for id in [finishes, hangs] {
        let detail = other.get(id).await.unwrap().unwrap();
        assert_eq!(detail.job.state.name(), StateName::Succeeded);
        let counted = detail.job.ledger;
        assert_eq!((counted.attempt, counted.crashes, counted.interruptions), (2, 1, 0));
    }
    let holders = gate.holders.lock().unwrap().clone();
    assert_eq!(holders.len(), 2, "it registered again");
    assert_ne!(holders[0], holders[1], "under a new id");
    running.abort();
    taking_over.abort();
}
