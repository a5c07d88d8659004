//! Places: how many run at once, and that none stands empty while the store is being asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive::{Attempt, Engine, MemoryStore, Queue, millis, secs};
use tokio::sync::Semaphore;

use super::kit::{Moody, Task, is_success, paused_on, start, task, wait_for};

const PLACES: usize = 4;

#[tokio::test(start_paused = true)]
async fn a_place_that_becomes_free_during_a_claim_does_not_wait_for_the_next() {
    let store = Moody::new();
    store.claims_take(millis(5));
    let (builder, clock) = paused_on(store);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (runs, peak) = (running.clone(), most.clone());
    let takes_a_moment = move |_: Attempt<Task>| {
        let (runs, peak) = (runs.clone(), peak.clone());
        async move {
            peak.fetch_max(runs.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(millis(2)).await;
            runs.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let queue = Queue::new("default").concurrency(PLACES);
    let engine = builder.queue(queue).handle(takes_a_moment).build().unwrap();
    engine.enqueue_all((0..200).map(|n| task(format!("number {n}")))).await.unwrap();
    let began = clock.now();
    engine.drain_due().await.unwrap();
    let took = clock.now().since(began);
    assert_eq!(most.load(Ordering::SeqCst), PLACES, "never more than there are places");
    // Four at a time, each batch after a claim of its own, would take 50 times 5 ms and more.
    assert!(took < millis(200), "{took:?} for 200 jobs");
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_early_is_given_back_if_no_place_becomes_free() {
    let shared = Arc::new(MemoryStore::new());
    let store = Moody::over(shared.clone());
    store.claims_take(millis(5));
    let (builder, clock) = paused_on(store);
    let (gate, slow) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (opens, begun) = (gate.clone(), slow.clone());
    let handler = move |attempt: Attempt<Task>| {
        let (opens, begun) = (opens.clone(), begun.clone());
        async move {
            if attempt.payload.name == "slow" {
                begun.fetch_add(1, Ordering::SeqCst);
                opens.acquire().await.unwrap().forget();
            }
        }
    };
    let queue = |places| Queue::new("default").concurrency(places);
    let narrow = builder.queue(queue(PLACES)).handle(handler.clone()).build().unwrap();
    let wide = Engine::on(shared).clock(clock).queue(queue(100)).handle(handler).build().unwrap();
    let mut events = wide.events();
    narrow.enqueue_all((0..40).map(|n| task(format!("quick {n}")))).await.unwrap();
    narrow.enqueue_all((0..12).map(|_| task("slow"))).await.unwrap();
    let here = start(&narrow);
    tokio::time::sleep(millis(500)).await;
    assert_eq!(slow.load(Ordering::SeqCst), PLACES, "the others wait");

    let there = start(&wide);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(slow.load(Ordering::SeqCst), 12, "all of them run, as there are places for them elsewhere");
    gate.add_permits(12);
    wait_for(&mut events, is_success).await;
    tokio::time::sleep(secs(1)).await;
    here.stop().await.unwrap();
    there.stop().await.unwrap();
    let counts = wide.counts().await.unwrap();
    assert_eq!((counts[0].waiting, counts[0].running, counts[0].totals.succeeded), (0, 0, 52));
}
