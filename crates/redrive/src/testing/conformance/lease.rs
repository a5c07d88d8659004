//! Leases belong to holders: one renewal keeps everything, and an expiry takes everything, once.

use std::sync::Arc;

use super::kit::{BACKOFF, Kit, LEASE, QUEUE, failure, ids, mail, refused};
use crate::error::ErrorKind;
use crate::job::{Ending, Reason, State, StateName};
use crate::machine::Command;
use crate::outcome::Outcome;
use crate::policy::GiveUp;
use crate::span::secs;
use crate::store::{HolderId, Lease, Renewal, Settled, Store};

async fn renew(kit: &Kit, holder: HolderId) -> Renewal {
    kit.store.renew(holder, kit.now + LEASE).await.expect("a renewal is answered")
}

fn kept(lost: &[Lease]) -> Renewal {
    Renewal::Kept { lost: lost.to_vec() }
}

pub async fn a_renewal_keeps_everything_its_holder_claimed(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = [kit.claim_one().await, kit.claim_one().await];
    kit.advance(LEASE - secs(1));
    assert_eq!(renew(&kit, kit.holder).await, kept(&[]));
    kit.advance(LEASE - secs(1));
    let expiry = kit.store.expired(kit.now).await.expect("leases can be read");
    assert!(expiry.over.is_empty());
    assert_eq!(expiry.next, Some(kit.now + secs(1)));
    for held in &held {
        assert_eq!(kit.end(held, Outcome::Done(None)).await, Settled::Applied);
    }
}

pub async fn a_lease_that_is_over_is_named_with_all_that_it_holds(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..3 {
        kit.put(mail(number)).await;
    }
    let mut held = vec![kit.claim_one().await, kit.claim_one().await];
    let (first, until) = (kit.holder, kit.now + LEASE);
    kit.advance(secs(1));
    kit.holder = kit.register().await;
    kit.claim_one().await;
    kit.end(&held.remove(0), Outcome::Done(None)).await;
    kit.now = until;
    let expiry = kit.store.expired(kit.now).await.expect("leases can be read");
    let [expired] = &expiry.over[..] else { panic!("one lease is over: {expiry:?}") };
    assert_eq!((expired.holder, expired.until), (first, until));
    assert_eq!(ids(&expired.jobs), [held[0].0.job]);
    assert_eq!(expired.jobs[0].0, held[0].0);
    assert_eq!(expired.jobs[0].1.state.name(), StateName::Running);
    assert_eq!(expiry.next, Some(until + secs(1)));
}

pub async fn an_expiry_counts_a_crash_for_each_job_and_removes_the_holder(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let crashed = [kit.put(mail(1)).await, kit.put(mail(2)).await];
    kit.claim(2).await;
    let gone = kit.holder;
    kit.advance(secs(1));
    kit.holder = kit.register().await;
    let alive = kit.put(mail(3)).await;
    let held = kit.claim_one().await;
    kit.advance(LEASE - secs(1));
    assert_eq!(kit.crash(gone).await, [Settled::Applied, Settled::Applied]);
    for id in crashed {
        let detail = kit.detail(id).await;
        assert_eq!(detail.job.state, State::Waiting { due_at: kit.now + BACKOFF, reason: Reason::Crashed });
        assert_eq!((detail.job.ledger.attempt, detail.job.ledger.crashes), (1, 1));
        assert_eq!(detail.attempts.last().map(|record| record.ending), Some(Ending::Crashed));
    }
    assert!(kit.store.expired(kit.now).await.expect("leases can be read").over.is_empty());
    assert_eq!(kit.name(alive).await, StateName::Running);
    assert_eq!(kit.end(&held, Outcome::Done(None)).await, Settled::Applied);
    assert_eq!(kit.counts(QUEUE).await.totals.crashes, 2);
}

pub async fn once_an_expiry_is_recorded_its_holder_can_do_nothing_more(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim_one().await;
    kit.advance(LEASE);
    let gone = kit.holder;
    kit.crash(gone).await;
    assert_eq!(renew(&kit, gone).await, Renewal::Gone);
    assert_eq!(kit.end(&held, Outcome::Done(None)).await, Settled::Refused);
    let claim = kit.wants(&[(QUEUE, 9)]);
    assert_eq!(refused(kit.store.claim(claim, kit.now).await), ErrorKind::LeaseLost);
    assert_eq!(kit.job(held.0.job).await.ledger.crashes, 1);
}

pub async fn an_expiry_is_refused_when_the_lease_was_renewed_meanwhile(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim(2).await;
    kit.advance(LEASE);
    let settlements: Vec<_> = held.iter().map(|held| kit.settlement(held, Outcome::Lost)).collect();
    assert_eq!(renew(&kit, kit.holder).await, kept(&[]));
    let answer = kit.store.expire(kit.holder, settlements, kit.now).await.expect("an expiry is answered");
    assert_eq!(answer, [Settled::Refused, Settled::Refused]);
    for held in &held {
        assert_eq!(kit.end(held, Outcome::Done(None)).await, Settled::Applied);
    }
}

pub async fn an_expiry_is_refused_when_its_holder_has_claimed_meanwhile(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    let second = kit.put(mail(2)).await;
    let first = kit.claim_one().await;
    kit.advance(LEASE);
    let settlements = vec![kit.settlement(&first, Outcome::Lost)];
    let unknown = kit.claim_one().await;
    assert_eq!(unknown.0.job, second);
    let answer = kit.store.expire(kit.holder, settlements, kit.now).await.expect("an expiry is answered");
    assert_eq!(answer, [Settled::Refused], "it would leave a job that nobody holds and nobody may claim");
    let gone = kit.holder;
    assert_eq!(kit.crash(gone).await, [Settled::Applied, Settled::Applied]);
    kit.holder = kit.register().await;
    kit.advance(BACKOFF);
    assert_eq!(ids(&kit.claim(1).await), [first.0.job]);
    assert_eq!(ids(&kit.claim(1).await), [second]);
}

pub async fn an_expiry_is_refused_when_its_holder_has_settled_and_claimed_a_job_again(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    kit.put(mail(2).after(LEASE * 9)).await;
    let first = kit.claim_one().await;
    kit.advance(LEASE);
    let settlements = vec![kit.settlement(&first, Outcome::Lost)];
    kit.end(&first, failure()).await;
    kit.advance(BACKOFF);
    assert_eq!(kit.claim_one().await.0.job, id);
    let answer = kit.store.expire(kit.holder, settlements, kit.now).await.expect("an expiry is answered");
    assert_eq!(answer, [Settled::Refused], "the attempt that runs now is not the one that was named");
    let gone = kit.holder;
    assert_eq!(kit.crash(gone).await, [Settled::Applied]);
    let ledger = kit.job(id).await.ledger;
    assert_eq!((ledger.attempt, ledger.failures, ledger.crashes), (2, 1, 1), "its crash is counted");
}

pub async fn an_expiry_leaves_what_was_settled_before_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim(2).await;
    kit.advance(LEASE);
    let settlements: Vec<_> = held.iter().map(|held| kit.settlement(held, Outcome::Lost)).collect();
    kit.end(&held[0], Outcome::Done(None)).await;
    let answer = kit.store.expire(kit.holder, settlements, kit.now).await.expect("an expiry is answered");
    assert_eq!(answer, [Settled::Refused, Settled::Applied]);
    assert_eq!(kit.name(held[0].0.job).await, StateName::Succeeded);
}

pub async fn a_holder_that_holds_nothing_can_be_let_go(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim(2).await;
    for held in &held {
        kit.end(held, failure()).await;
    }
    kit.store.renew(kit.holder, kit.now).await.expect("a lease can be given up");
    let answer = kit.store.expire(kit.holder, Vec::new(), kit.now).await.expect("an expiry is answered");
    assert!(answer.is_empty());
    assert_eq!(renew(&kit, kit.holder).await, Renewal::Gone);
    assert_eq!(kit.counts(QUEUE).await.totals.crashes, 0);
}

pub async fn a_renewal_names_what_was_taken_away_until_its_holder_tries_to_settle_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim(2).await;
    let other = kit.register().await;
    kit.steer(Command::Cancel, id).await;
    for _ in 0..2 {
        assert_eq!(renew(&kit, kit.holder).await, kept(&[held[0].0]));
        assert_eq!(renew(&kit, other).await, kept(&[]));
    }
    assert_eq!(kit.end(&held[1], Outcome::Done(None)).await, Settled::Applied);
    assert_eq!(renew(&kit, kit.holder).await, kept(&[held[0].0]));
    assert_eq!(kit.end(&held[0], Outcome::Done(None)).await, Settled::Refused);
    assert_eq!(renew(&kit, kit.holder).await, kept(&[]));
}

pub async fn a_job_that_kills_its_process_again_and_again_is_dead_and_its_neighbour_is_not(
    store: Arc<dyn Store>,
) {
    let mut kit = Kit::new(store).await;
    let pill = kit.put(mail(1)).await;
    let innocent = kit.put(mail(2)).await;
    kit.crash_with(2).await;
    // Each time they are claimed alone, so the neighbour finishes when its turn comes and the pill has only itself.
    for _ in 0..3 {
        kit.advance(BACKOFF);
        let held = kit.claim(9).await;
        assert_eq!(held.len(), 1);
        if held[0].0.job == innocent {
            assert_eq!(kit.end(&held[0], Outcome::Done(None)).await, Settled::Applied);
        } else {
            kit.advance(LEASE);
            let gone = kit.holder;
            kit.crash(gone).await;
            kit.holder = kit.register().await;
        }
    }
    assert!(matches!(kit.state(pill).await, State::Dead { why: GiveUp::CrashLoop, .. }));
    assert_eq!(kit.name(innocent).await, StateName::Succeeded);
}
