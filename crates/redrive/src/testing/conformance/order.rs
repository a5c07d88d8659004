//! Ordering keys: one at a time, in the order of enqueueing, and a blocked key blocks only itself.

use std::sync::Arc;

use super::kit::{BACKOFF, Held, Kit, LEASE, QUEUE, failure, fatal, ids, mail};
use crate::job::{JobId, OnConflict};
use crate::machine::Command;
use crate::outcome::Outcome;
use crate::queue::{OnRetry, Queue};
use crate::span::secs;
use crate::store::Store;

async fn put_with(kit: &mut Kit, key: &str, jobs: u32) -> Vec<JobId> {
    let mut made = Vec::new();
    for number in 0..jobs {
        made.push(kit.put(mail(number).ordering_key(key)).await);
    }
    made
}

async fn claim_passing(kit: &mut Kit) -> Vec<Held> {
    let mut claim = kit.wants(&[(QUEUE, 9)]);
    claim.wants[0].on_retry = OnRetry::LetPass;
    kit.ask(claim).await.jobs
}

pub async fn jobs_of_one_key_run_one_at_a_time_in_order(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = put_with(&mut kit, "k", 4).await;
    for id in jobs {
        let held = kit.claim(9).await;
        assert_eq!(ids(&held), [id]);
        assert!(kit.claim(9).await.is_empty());
        kit.end(&held[0], Outcome::Done(None)).await;
    }
}

pub async fn a_blocked_key_blocks_only_itself(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let a = put_with(&mut kit, "a", 3).await;
    let b = put_with(&mut kit, "b", 2).await;
    let free = kit.put(mail(9)).await;
    let elsewhere = kit.put(mail(9).queue("other").ordering_key("a")).await;
    let claim = kit.wants(&[(QUEUE, 9), ("other", 9)]);
    assert_eq!(ids(&kit.ask(claim).await.jobs), [a[0], b[0], free, elsewhere]);
}

pub async fn a_fifo_queue_is_one_key(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let fifo = Queue::new("fifo").fifo();
    let jobs: Vec<_> = (0..3).map(|number| kit.admit_to(&fifo, mail(number))).collect();
    kit.enqueue(jobs.clone()).await.expect("jobs can be enqueued");
    for admission in jobs {
        let claim = kit.wants(&[("fifo", 9)]);
        let held = kit.ask(claim).await.jobs;
        assert_eq!(ids(&held), [admission.job.id]);
        kit.end(&held[0], Outcome::Done(None)).await;
    }
}

pub async fn a_retry_blocks_those_behind_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = put_with(&mut kit, "k", 2).await;
    let held = kit.claim_one().await;
    kit.end(&held, failure()).await;
    assert!(kit.claim(9).await.is_empty());
    kit.advance(BACKOFF);
    let again = kit.claim(9).await;
    assert_eq!(ids(&again), [jobs[0]]);
    kit.end(&again[0], fatal()).await;
    assert_eq!(ids(&kit.claim(9).await), [jobs[1]]);
}

pub async fn a_retry_lets_those_behind_it_pass_where_the_queue_says_so(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = put_with(&mut kit, "k", 4).await;
    let first = claim_passing(&mut kit).await;
    kit.end(&first[0], failure()).await;
    let second = claim_passing(&mut kit).await;
    assert_eq!(ids(&second), [jobs[1]]);
    kit.advance(BACKOFF);
    assert!(claim_passing(&mut kit).await.is_empty(), "still one at a time");
    kit.end(&second[0], Outcome::Done(None)).await;
    let again = claim_passing(&mut kit).await;
    assert_eq!(ids(&again), [jobs[0]], "it is due, and joins in again in its place");
    kit.end(&again[0], Outcome::Done(None)).await;
    let third = claim_passing(&mut kit).await;
    assert_eq!(ids(&third), [jobs[2]]);
    kit.end(&third[0], Outcome::Snooze(secs(60))).await;
    assert_eq!(ids(&claim_passing(&mut kit).await), [jobs[3]]);
}

pub async fn a_delayed_first_job_holds_back_those_behind_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let first = kit.put(mail(1).ordering_key("k").after(secs(20))).await;
    let second = kit.put(mail(2).ordering_key("k")).await;
    assert!(kit.claim(9).await.is_empty());
    kit.advance(secs(20));
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [first]);
    kit.end(&held[0], Outcome::Done(None)).await;
    assert_eq!(ids(&kit.claim(9).await), [second]);
}

pub async fn a_higher_priority_does_not_overtake_its_own_key(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let first = kit.put(mail(1).ordering_key("k")).await;
    let urgent = kit.put(mail(2).ordering_key("k").priority(9)).await;
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [first]);
    kit.end(&held[0], Outcome::Done(None)).await;
    assert_eq!(ids(&kit.claim(9).await), [urgent]);
}

pub async fn cancelling_the_first_lets_the_next_go(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = put_with(&mut kit, "k", 3).await;
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [jobs[0]]);
    kit.steer(Command::Cancel, jobs[0]).await;
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [jobs[1]]);
    kit.end(&held[0], failure()).await;
    assert!(kit.claim(9).await.is_empty());
    kit.steer(Command::Cancel, jobs[1]).await;
    assert_eq!(ids(&kit.claim(9).await), [jobs[2]]);
}

pub async fn the_death_and_the_expiry_of_the_first_let_the_next_go(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(0).ordering_key("k").deadline(kit.now + secs(6)).after(secs(5))).await;
    let jobs = put_with(&mut kit, "k", 2).await;
    assert!(kit.claim(9).await.is_empty());
    kit.advance(secs(6));
    let over = kit.claim(9).await;
    kit.end(&over[0], Outcome::Expired).await;
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [jobs[0]]);
    kit.end(&held[0], fatal()).await;
    assert_eq!(ids(&kit.claim(9).await), [jobs[1]]);
}

pub async fn a_crash_of_the_first_blocks_those_behind_it_until_it_is_final(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = put_with(&mut kit, "k", 2).await;
    assert_eq!(ids(&kit.crash_with(9).await), [jobs[0]]);
    assert!(kit.claim(9).await.is_empty());
    kit.advance(LEASE);
    kit.store.renew(kit.holder, kit.now + LEASE).await.expect("a renewal is answered");
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [jobs[0]]);
    kit.end(&held[0], Outcome::Done(None)).await;
    assert_eq!(ids(&kit.claim(9).await), [jobs[1]]);
}

pub async fn a_redriven_earlier_job_takes_its_turn(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = put_with(&mut kit, "k", 3).await;
    let held = kit.claim_one().await;
    kit.end(&held, fatal()).await;
    let second = kit.claim(9).await;
    assert_eq!(ids(&second), [jobs[1]]);
    kit.steer(Command::Redrive, jobs[0]).await;
    assert!(kit.claim(9).await.is_empty(), "another of its key runs");
    kit.end(&second[0], Outcome::Done(None)).await;
    let first = kit.claim(9).await;
    assert_eq!(ids(&first), [jobs[0]]);
    kit.end(&first[0], Outcome::Done(None)).await;
    assert_eq!(ids(&kit.claim(9).await), [jobs[2]]);
}

pub async fn an_expired_job_of_a_key_does_not_make_room_for_another(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let dead = kit.put(mail(1).ordering_key("k")).await;
    let held = kit.claim_one().await;
    kit.end(&held, fatal()).await;
    kit.put(mail(2).ordering_key("k")).await;
    kit.put(mail(3).ordering_key("k").deadline(kit.now + secs(5))).await;
    let running = kit.claim(9).await;
    assert_eq!(running.len(), 1);
    kit.advance(secs(5));
    let over = kit.claim(9).await;
    assert_eq!(over.len(), 1);
    kit.end(&over[0], Outcome::Expired).await;
    kit.steer(Command::Redrive, dead).await;
    assert!(kit.claim(9).await.is_empty(), "one of its key still runs");
    kit.end(&running[0], Outcome::Done(None)).await;
    assert_eq!(ids(&kit.claim(9).await), [dead]);
}

pub async fn a_replaced_first_job_lets_the_next_go_when_it_leaves_its_key(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let first = kit.put(mail(1).key("u").ordering_key("k").after(secs(60))).await;
    let second = kit.put(mail(2).ordering_key("k")).await;
    assert!(kit.claim(9).await.is_empty());
    let moved = mail(3).key("u").ordering_key("other").on_conflict(OnConflict::Replace);
    assert_eq!(kit.try_put(moved).await.expect("a waiting job can be replaced").id, first);
    assert_eq!(ids(&kit.claim(9).await), [first, second]);
}
