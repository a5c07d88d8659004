//! What a person asks for: cancel, retry now, redrive, delete.

use std::sync::Arc;

use super::kit::{BACKOFF, Kit, QUEUE, failure, fatal, ids, mail};
use crate::job::{Ending, Json, Ledger, OnConflict, Reason, State, StateName};
use crate::machine::Command;
use crate::outcome::Outcome;
use crate::span::secs;
use crate::store::{Filter, Store};

pub async fn a_waiting_job_can_be_cancelled(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    let other = kit.put(mail(2)).await;
    kit.steer(Command::Cancel, id).await;
    let detail = kit.detail(id).await;
    assert_eq!(detail.job.state, State::Cancelled { at: kit.now });
    assert_eq!((detail.job.ledger.attempt, detail.attempts.len()), (0, 0));
    assert_eq!(ids(&kit.claim(9).await), [other]);
    assert!(kit.apply(Command::Cancel, &Filter::id(id), 1).await.is_empty(), "it is finished");
}

pub async fn a_running_job_can_be_cancelled(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    let other = kit.put(mail(2)).await;
    kit.claim(2).await;
    let since = kit.now;
    kit.advance(secs(3));
    kit.steer(Command::Cancel, id).await;
    let detail = kit.detail(id).await;
    assert_eq!(detail.job.state, State::Cancelled { at: kit.now });
    assert_eq!(detail.job.ledger.attempt, 1);
    let [attempt] = &detail.attempts[..] else { panic!("its attempt has ended: {detail:?}") };
    assert_eq!((attempt.ending, attempt.started_at, attempt.ended_at), (Ending::Cancelled, since, kit.now));
    assert_eq!(kit.name(other).await, StateName::Running);
    let counts = kit.counts(QUEUE).await;
    assert_eq!((counts.running, counts.waiting, counts.totals.cancelled), (1, 0, 1));
}

pub async fn a_waiting_job_can_be_made_due_now(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let retried = kit.put(mail(1)).await;
    let delayed = kit.put(mail(2).after(secs(60))).await;
    let left = kit.put(mail(3).after(secs(60))).await;
    let held = kit.claim_one().await;
    kit.end(&held, failure()).await;
    kit.steer(Command::RetryNow, retried).await;
    kit.steer(Command::RetryNow, delayed).await;
    let job = kit.job(retried).await;
    assert_eq!(job.state, State::Waiting { due_at: kit.now, reason: Reason::ByHand });
    assert_eq!((job.ledger.attempt, job.ledger.failures), (1, 1), "it costs nothing and forgives nothing");
    assert_eq!(ids(&kit.claim(9).await), [retried, delayed]);
    assert!(kit.apply(Command::RetryNow, &Filter::id(retried), 1).await.is_empty(), "it is running");
    assert_eq!(kit.name(left).await, StateName::Waiting);
}

pub async fn a_waiting_job_can_be_put_off_and_brought_forward(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let put_off = kit.put(mail(1)).await;
    let forward = kit.put(mail(2).after(secs(60))).await;
    let running = kit.put(mail(3).priority(1)).await;
    assert_eq!(ids(&kit.claim(1).await), [running]);
    kit.steer(Command::Reschedule(kit.now + secs(30)), put_off).await;
    kit.steer(Command::Reschedule(kit.now + secs(5)), forward).await;
    assert!(
        kit.apply(Command::Reschedule(kit.now), &Filter::id(running), 1).await.is_empty(),
        "it is running"
    );
    let due_at = kit.now + secs(30);
    assert_eq!(kit.job(put_off).await.state, State::Waiting { due_at, reason: Reason::ByHand });
    assert!(kit.claim(9).await.is_empty());
    kit.advance(secs(5));
    assert_eq!(ids(&kit.claim(9).await), [forward]);
    kit.advance(secs(25));
    assert_eq!(ids(&kit.claim(9).await), [put_off]);
}

pub async fn a_dead_job_can_be_brought_back(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1).deadline(kit.now + secs(90)).start_by(kit.now + secs(90))).await;
    let other = kit.put(mail(2).after(secs(999))).await;
    for outcome in [failure(), Outcome::Snooze(BACKOFF), Outcome::Lost, fatal()] {
        let held = kit.claim_one().await;
        kit.end(&held, outcome).await;
        kit.advance(BACKOFF);
    }
    assert_eq!(kit.name(id).await, StateName::Dead);
    kit.advance(secs(100));
    kit.steer(Command::Redrive, id).await;
    let detail = kit.detail(id).await;
    assert_eq!(detail.job.state, State::Waiting { due_at: kit.now, reason: Reason::ByHand });
    assert_eq!(detail.job.ledger, Ledger { attempt: 4, generation: 1, ..Ledger::default() });
    assert_eq!(detail.attempts.len(), 4, "its history stays");
    assert_eq!((detail.job.extras().deadline, detail.job.extras().start_by), (None, None));
    assert_eq!(detail.job.extras().revived_at, Some(kit.now));
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [id]);
    kit.end(&held[0], Outcome::Done(Json::of("fine").ok())).await;
    assert_eq!(kit.name(id).await, StateName::Succeeded);
    assert_eq!(kit.job(other).await.ledger.generation, 0);
    let counts = kit.counts(QUEUE).await;
    assert_eq!((counts.dead, counts.totals.redriven, counts.totals.dead), (0, 1, 1));
}

pub async fn a_cancelled_job_can_be_brought_back_and_others_cannot(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let cancelled = kit.put(mail(1)).await;
    let done = kit.put(mail(2)).await;
    let waiting = kit.put(mail(3)).await;
    kit.steer(Command::Cancel, cancelled).await;
    let held = kit.claim_one().await;
    assert_eq!(held.0.job, done);
    kit.end(&held, Outcome::Done(None)).await;
    assert_eq!(kit.apply(Command::Redrive, &Filter::default(), 9).await, [cancelled]);
    assert_eq!(ids(&kit.claim(9).await), [cancelled, waiting]);
}

pub async fn a_dead_job_whose_key_another_has_stays_dead(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let first = kit.put(mail(1).key("k")).await;
    let held = kit.claim_one().await;
    kit.end(&held, fatal()).await;
    let second = kit.put(mail(2).key("k")).await;
    assert!(kit.apply(Command::Redrive, &Filter::id(first), 9).await.is_empty());
    assert_eq!(kit.name(first).await, StateName::Dead);
    assert_eq!(kit.counts(QUEUE).await.totals.redriven, 0);
    kit.steer(Command::Cancel, second).await;
    kit.steer(Command::Redrive, first).await;
    let reject = mail(3).key("k").on_conflict(OnConflict::Reject);
    assert!(kit.try_put(reject).await.is_err(), "it has its key again");
}

pub async fn only_a_finished_job_can_be_deleted(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let dead = kit.put(mail(1)).await;
    let running = kit.put(mail(2)).await;
    let waiting = kit.put(mail(3).after(secs(60))).await;
    let held = kit.claim(2).await;
    kit.end(&held[0], fatal()).await;
    assert_eq!(kit.apply(Command::Delete, &Filter::default(), 9).await, [dead]);
    assert!(kit.store.get(dead).await.expect("the store answers").is_none());
    assert_eq!(kit.list(&Filter::default()).await, [waiting, running]);
    assert_eq!(kit.counts(QUEUE).await.dead, 0);
}

pub async fn a_place_is_never_given_twice(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    let last = kit.put(mail(2)).await;
    let seq = kit.job(last).await.seq;
    kit.steer(Command::Cancel, last).await;
    kit.steer(Command::Delete, last).await;
    let next = kit.put(mail(3)).await;
    assert!(kit.job(next).await.seq > seq, "a claim that lists the old one would seem to list the new one");
}

pub async fn a_command_does_no_more_than_its_limit_and_only_to_what_matches(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let mut red = Vec::new();
    for number in 0..4 {
        red.push(kit.put(mail(number).queue("red").after(secs(60))).await);
        kit.put(mail(number).queue("blue").after(secs(60))).await;
    }
    let filter = Filter::default().in_queue("red");
    assert!(kit.apply(Command::Cancel, &filter, 0).await.is_empty());
    assert_eq!(kit.apply(Command::Cancel, &filter, 3).await, [red[3], red[2], red[1]]);
    assert_eq!(
        kit.apply(Command::Cancel, &filter, 3).await,
        [red[0]],
        "those it cannot be done to do not count"
    );
    assert!(kit.apply(Command::Cancel, &filter, 3).await.is_empty());
    assert_eq!(kit.counts("blue").await.waiting, 4);
}
