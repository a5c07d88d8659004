//! Jobs go out: when they are due, in their order, once.

use std::sync::Arc;

use super::kit::{Held, Kit, LEASE, QUEUE, failure, ids, mail, refused};
use crate::error::ErrorKind;
use crate::job::{Json, NewJob, State, StateName};
use crate::machine::Command;
use crate::outcome::Outcome;
use crate::span::{millis, secs};
use crate::store::{Claim, HolderId, Store};

pub async fn no_job_is_claimed_before_it_is_due(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let later = kit.put(mail(1).after(secs(10))).await;
    let now = kit.put(mail(2)).await;
    assert_eq!(ids(&kit.claim(9).await), [now]);
    kit.advance(millis(9_999));
    assert!(kit.claim(9).await.is_empty());
    kit.advance(millis(1));
    assert_eq!(ids(&kit.claim(9).await), [later]);
}

pub async fn a_higher_priority_goes_first(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let mut wanted = Vec::new();
    for priority in [-5, 0, 7, i16::MIN, i16::MAX] {
        wanted.push((priority, kit.put(mail(1).priority(priority)).await));
        kit.advance(secs(1));
    }
    wanted.sort_by_key(|(priority, _)| -i32::from(*priority));
    let wanted: Vec<_> = wanted.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids(&kit.claim(2).await), wanted[..2]);
    assert_eq!(ids(&kit.claim(9).await), wanted[2..]);
}

pub async fn within_a_priority_what_was_due_first_goes_first(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let third = kit.put(mail(1).after(secs(3))).await;
    let first = kit.put(mail(2).after(secs(1))).await;
    let fourth = kit.put(mail(3).after(secs(3))).await;
    let second = kit.put(mail(4).after(secs(2))).await;
    kit.advance(secs(9));
    assert_eq!(ids(&kit.claim(9).await), [first, second, third, fourth]);
}

pub async fn an_ordering_key_does_not_cost_a_job_its_place(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let first = kit.put(mail(1)).await;
    let keyed = kit.put(mail(2).ordering_key("k")).await;
    let third = kit.put(mail(3)).await;
    let fourth = kit.put(mail(4)).await;
    assert_eq!(ids(&kit.claim(2).await), [first, keyed]);
    assert_eq!(ids(&kit.claim(9).await), [third, fourth]);
}

pub async fn no_more_is_claimed_than_was_asked_for(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..5 {
        kit.put(mail(number)).await;
    }
    assert!(kit.claim(0).await.is_empty());
    assert_eq!(kit.claim(2).await.len(), 2);
    assert_eq!(kit.claim(9).await.len(), 3);
}

pub async fn one_claim_takes_from_several_queues_as_many_as_each_may(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..3 {
        kit.put(mail(number).queue("red")).await;
        kit.put(mail(number).queue("blue")).await;
        kit.put(mail(number).queue("green")).await;
    }
    let claim = kit.wants(&[("red", 1), ("blue", 2), ("nobody", 5)]);
    let jobs = kit.ask(claim).await.jobs;
    let queues: Vec<&str> = jobs.iter().map(|(_, job)| &*job.queue).collect();
    assert_eq!(queues, ["red", "blue", "blue"]);
    assert_eq!(kit.counts("green").await.running, 0);
}

pub async fn what_is_claimed_is_not_claimed_again(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    assert_eq!(kit.claim(9).await.len(), 2);
    assert!(kit.claim(9).await.is_empty());
    kit.holder = kit.register().await;
    kit.advance(LEASE * 2);
    assert!(kit.claim(9).await.is_empty(), "a lease that is over is no ending: somebody has to record it");
}

pub async fn a_claim_sent_again_is_told_the_same_and_given_nothing_more(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let ended = kit.put(mail(1)).await;
    let first = kit.put(mail(2)).await;
    let second = kit.put(mail(3)).await;
    let claim = kit.wants(&[(QUEUE, 3)]);
    let told = kit.ask(claim.clone()).await.jobs;
    assert_eq!(ids(&told), [ended, first, second]);
    let newcomer = kit.put(mail(4)).await;
    let again = kit.ask(claim.clone()).await.jobs;
    assert_eq!(
        again.iter().map(|(lease, _)| *lease).collect::<Vec<_>>(),
        told.iter().map(|(lease, _)| *lease).collect::<Vec<_>>()
    );
    kit.end(&again[0], failure()).await;
    assert_eq!(ids(&kit.ask(claim).await.jobs), [first, second]);
    assert_eq!(ids(&kit.claim(9).await), [newcomer]);
}

pub async fn a_claimed_job_runs_until_its_attempt_ends(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    let other = kit.put(mail(2).after(secs(60))).await;
    let held = kit.claim_one().await;
    assert_eq!(kit.state(id).await, State::Running { since: kit.now });
    assert_eq!(kit.name(other).await, StateName::Waiting);
    let counts = kit.counts(QUEUE).await;
    assert_eq!((counts.waiting, counts.running), (1, 1));
    kit.end(&held, Outcome::Interrupted).await;
    assert!(matches!(kit.state(id).await, State::Waiting { due_at, .. } if due_at == kit.now));
    let counts = kit.counts(QUEUE).await;
    assert_eq!((counts.waiting, counts.running), (2, 0));
    assert_eq!(ids(&kit.claim(9).await), [id]);
}

pub async fn a_claimed_job_comes_with_all_that_it_is(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1).key("k").label("a", "b").timeout(secs(3))).await;
    kit.put(mail(2).after(secs(60))).await;
    let waiting = kit.job(id).await;
    let (lease, job) = kit.claim_one().await;
    assert_eq!(job, waiting);
    assert_eq!((lease.job, lease.seq, lease.attempt), (id, job.seq, 0));
}

pub async fn a_holder_nobody_knows_claims_nothing(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let known = std::mem::replace(&mut kit.holder, HolderId(77));
    let claim = kit.wants(&[(QUEUE, 9)]);
    assert_eq!(refused(kit.store.claim(claim, kit.now).await), ErrorKind::LeaseLost);
    kit.holder = known;
    assert_eq!(kit.claim(9).await.len(), 2);
}

// what is due next

pub async fn a_claim_for_kinds_leaves_the_others_to_others(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let fax = |number: u32| NewJob::of_kind("fax", Json::of(&number).expect("a number is JSON"));
    let mails = [kit.put(mail(1)).await, kit.put(mail(3)).await];
    let faxes = [kit.put(fax(2)).await, kit.put(fax(4).ordering_key("line")).await];
    let letter = kit.put(NewJob::of_kind("letter", Json::of("x").expect("a text is JSON"))).await;
    let mut ask = async |kinds: &[&str]| {
        let kinds = Some(kinds.iter().map(|kind| Arc::from(*kind)).collect());
        let claim = Claim { kinds, ..kit.wants(&[(QUEUE, 9)]) };
        kit.ask(claim).await.jobs
    };
    // Each twice: what one has passed is still there for the other.
    assert_eq!(ids(&ask(&["fax"]).await), faxes);
    assert_eq!(ids(&ask(&["fax"]).await), []);
    assert_eq!(ids(&ask(&["letter", "mail"]).await), [mails[0], mails[1], letter]);
    assert_eq!(ids(&ask(&["telex"]).await), []);
    assert_eq!(ids(&kit.claim(9).await), []);
    let late = kit.put(fax(5)).await;
    assert_eq!(ids(&kit.claim(9).await), [late]);
}

pub async fn what_other_kinds_are_waiting_for_is_not_said_to_be_due(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1).after(secs(10))).await;
    kit.put(NewJob::of_kind("fax", Json::of("x").expect("a text is JSON")).after(secs(20))).await;
    let claim = Claim { kinds: Some([Arc::from("fax")].into()), ..kit.wants(&[(QUEUE, 9)]) };
    assert_eq!(kit.ask(claim).await.next_due, Some(kit.now + secs(20)));
    let claim = kit.wants(&[(QUEUE, 9)]);
    assert_eq!(kit.ask(claim).await.next_due, Some(kit.now + secs(10)));
}

pub async fn a_claim_says_when_the_next_job_will_be_due(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let claim = kit.wants(&[(QUEUE, 1)]);
    assert_eq!(kit.ask(claim).await.next_due, None);
    for (number, delay) in [(1, 0), (2, 0), (3, 30), (4, 20)] {
        kit.put(mail(number).after(secs(delay))).await;
    }
    kit.put(mail(5).queue("other").after(secs(1))).await;
    let claim = kit.wants(&[(QUEUE, 1)]);
    assert!(kit.ask(claim).await.next_due <= Some(kit.now), "more could be had now");
    let claim = kit.wants(&[(QUEUE, 1)]);
    assert_eq!(kit.ask(claim).await.next_due, Some(kit.now + secs(20)));
    let claim = kit.wants(&[(QUEUE, 1), ("other", 1)]);
    assert_eq!(kit.ask(claim).await.next_due, Some(kit.now + secs(1)));
}

pub async fn a_retry_and_an_expiry_are_due_next_too(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2).after(secs(60))).await;
    let held = kit.claim_one().await;
    kit.end(&held, failure()).await;
    let claim = kit.wants(&[(QUEUE, 1)]);
    assert_eq!(kit.ask(claim).await.next_due, Some(kit.now + super::kit::BACKOFF));
    kit.put(mail(3).ordering_key("k").deadline(kit.now + secs(5))).await;
    kit.put(mail(4).ordering_key("k").deadline(kit.now + secs(3))).await;
    let claim = kit.wants(&[(QUEUE, 9)]);
    assert_eq!(kit.ask(claim).await.next_due, Some(kit.now + secs(3)));
}

pub async fn a_paused_queue_has_nothing_due_but_what_runs_out_of_time(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2).after(secs(9))).await;
    kit.store.pause(QUEUE, true).await.expect("a queue can be paused");
    let claim = kit.wants(&[(QUEUE, 9)]);
    assert_eq!(kit.ask(claim).await.next_due, None);
    kit.put(mail(3).deadline(kit.now + secs(4))).await;
    let claim = kit.wants(&[(QUEUE, 9)]);
    assert_eq!(kit.ask(claim).await.next_due, Some(kit.now + secs(4)));
}

pub async fn nothing_that_cannot_be_had_is_said_to_be_due(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..3 {
        kit.put(mail(number).deadline(kit.now + secs(60))).await;
    }
    kit.crash_with(3).await;
    kit.advance(super::kit::BACKOFF);
    let suspect = kit.claim(1).await;
    assert_eq!(suspect.len(), 1);
    // Due and even out of time, but under suspicion: the ending of the one that runs wakes whoever waits.
    for _ in 0..2 {
        let mut claim = kit.wants(&[(QUEUE, 9)]);
        claim.suspect = false;
        let claimed = kit.ask(claim).await;
        assert!(claimed.jobs.is_empty());
        assert_eq!(claimed.next_due, None);
        kit.advance(secs(60));
    }
}

// suspects

pub async fn a_job_that_crashed_is_claimed_alone(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let crashed = kit.put(mail(1)).await;
    kit.crash_with(1).await;
    kit.advance(super::kit::BACKOFF);
    let innocent = kit.put(mail(2)).await;
    let jobs = kit.claim(9).await;
    assert_eq!(ids(&jobs), [crashed, innocent]);
    assert_ne!(jobs[0].0.claim, jobs[1].0.claim, "two claims, so that each can be told from the other");
}

pub async fn a_claim_takes_one_suspect_or_none(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..3 {
        kit.put(mail(number)).await;
    }
    kit.crash_with(3).await;
    kit.advance(super::kit::BACKOFF);
    let innocent = kit.put(mail(9)).await;
    let mut claim = kit.wants(&[(QUEUE, 9)]);
    claim.suspect = false;
    assert_eq!(ids(&kit.ask(claim).await.jobs), [innocent]);
    let suspects: Vec<Held> = kit.claim(9).await;
    assert_eq!(suspects.len(), 1);
    assert_eq!(kit.claim(9).await.len(), 1, "another claim may take another one");
}

pub async fn a_suspect_takes_one_place_over_all_queues(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1).queue("red")).await;
    kit.put(mail(2).queue("blue")).await;
    let claim = kit.wants(&[("red", 1), ("blue", 1)]);
    assert_eq!(kit.ask(claim).await.jobs.len(), 2);
    kit.crash_with(0).await;
    kit.advance(super::kit::BACKOFF);
    let claim = kit.wants(&[("red", 1), ("blue", 1)]);
    assert_eq!(kit.ask(claim).await.jobs.len(), 1);
}

// out of time

pub async fn what_has_run_out_of_time_is_handed_out_though_it_is_not_due(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let alive = kit.put(mail(1).after(secs(60))).await;
    let mut admission = kit.admit(mail(2).after(secs(60)));
    admission.job.extras_mut().start_by = Some(kit.now + secs(5));
    kit.enqueue(vec![admission.clone()]).await.expect("the job can be enqueued");
    assert!(kit.claim(9).await.is_empty());
    kit.advance(secs(5));
    let over = kit.claim(9).await;
    assert_eq!(ids(&over), [admission.job.id]);
    kit.end(&over[0], Outcome::Expired).await;
    assert_eq!(kit.name(admission.job.id).await, StateName::Dead);
    assert_eq!(kit.name(alive).await, StateName::Waiting);
}

pub async fn what_has_run_out_of_time_is_handed_out_though_its_queue_is_paused(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let over = kit.put(mail(1).deadline(kit.now + secs(5))).await;
    kit.put(mail(2)).await;
    kit.store.pause(QUEUE, true).await.expect("a queue can be paused");
    assert!(kit.claim(9).await.is_empty());
    kit.advance(secs(5));
    assert_eq!(ids(&kit.claim(9).await), [over]);
}

pub async fn what_has_run_out_of_time_is_handed_out_though_another_is_before_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let first = kit.put(mail(1).ordering_key("k")).await;
    let second = kit.put(mail(2).ordering_key("k").deadline(kit.now + secs(5))).await;
    let third = kit.put(mail(3).ordering_key("k")).await;
    let running = kit.claim(9).await;
    assert_eq!(ids(&running), [first]);
    kit.advance(secs(5));
    let over = kit.claim(9).await;
    assert_eq!(ids(&over), [second]);
    kit.end(&over[0], Outcome::Expired).await;
    assert!(kit.claim(9).await.is_empty(), "the first still runs");
    kit.end(&running[0], Outcome::Done(None)).await;
    assert_eq!(ids(&kit.claim(9).await), [third]);
}

pub async fn a_start_by_binds_only_before_the_first_attempt(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let begun = kit.put(mail(1).start_by(kit.now + secs(5))).await;
    kit.put(mail(2).after(secs(900))).await;
    let held = kit.claim_one().await;
    kit.end(&held, failure()).await;
    kit.advance(secs(6));
    assert!(kit.claim(9).await.is_empty(), "it has begun in time and waits for its retry");
    kit.advance(secs(4));
    assert_eq!(ids(&kit.claim(9).await), [begun]);
}

// pause

pub async fn a_paused_queue_hands_out_nothing_until_it_is_resumed(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    let other = kit.put(mail(2).queue("other")).await;
    kit.store.pause(QUEUE, true).await.expect("a queue can be paused");
    assert!(kit.counts(QUEUE).await.paused && !kit.counts("other").await.paused);
    let claim = kit.wants(&[(QUEUE, 9), ("other", 9)]);
    assert_eq!(ids(&kit.ask(claim).await.jobs), [other]);
    kit.steer(Command::RetryNow, id).await;
    assert!(kit.claim(9).await.is_empty());
    kit.store.pause(QUEUE, false).await.expect("a queue can be resumed");
    assert!(!kit.counts(QUEUE).await.paused);
    assert_eq!(ids(&kit.claim(9).await), [id]);
}
