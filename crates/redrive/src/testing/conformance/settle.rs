//! Attempts end: every ending moves the attempt, and only the one who holds the lease may say what it came to.

use std::sync::Arc;

use super::kit::{BACKOFF, Held, Kit, LEASE, QUEUE, failure, fatal, ids, mail};
use crate::job::{Ending, Ledger, Reason, State, StateName};
use crate::machine::{Command, UNHANDLED_DELAY};
use crate::outcome::{Failure, Outcome};
use crate::policy::GiveUp;
use crate::span::secs;
use crate::store::{ClaimId, Settled, Store};

pub async fn a_success_leaves_its_output_and_no_attempt_record(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    let other = kit.put(mail(2)).await;
    let held = kit.claim_one().await;
    kit.advance(secs(1));
    let output = serde_json::json!({"sent": true});
    assert_eq!(kit.end(&held, Outcome::Done(Some(output.into()))).await, Settled::Applied);
    let detail = kit.detail(id).await;
    assert_eq!(detail.job.state, State::Succeeded { at: kit.now });
    assert_eq!(detail.job.ledger, Ledger { attempt: 1, ..Ledger::default() });
    assert_eq!(detail.output.as_ref().map(|json| json.as_str()), Some(r#"{"sent":true}"#));
    assert!(detail.attempts.is_empty(), "its final row tells all of it");
    let other = kit.detail(other).await;
    assert_eq!((other.job.state.name(), other.output), (StateName::Waiting, None));
}

pub async fn a_retry_goes_back_with_its_due_time_and_its_ledger(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    let other = kit.put(mail(2)).await;
    let held = kit.claim_one().await;
    let failed = Failure::retry("it did not answer").detail("come back later");
    assert_eq!(kit.end(&held, Outcome::Failed(failed.clone())).await, Settled::Applied);
    let detail = kit.detail(id).await;
    let due_at = kit.now + BACKOFF;
    assert_eq!(detail.job.state, State::Waiting { due_at, reason: Reason::Backoff });
    assert_eq!(detail.job.ledger, Ledger { attempt: 1, failures: 1, ..Ledger::default() });
    assert_eq!(detail.job.extras().last_delay, Some(BACKOFF));
    let [attempt] = &detail.attempts[..] else { panic!("one attempt has ended: {:?}", detail.attempts) };
    assert_eq!((attempt.attempt, attempt.ending, attempt.next_at), (1, Ending::Failed, Some(due_at)));
    assert_eq!(attempt.failure, Some(failed));
    assert!(attempt.rule.is_some());
    assert_eq!(kit.job(other).await.ledger, Ledger::default());
    assert_eq!(ids(&kit.claim(9).await), [other]);
    kit.advance(BACKOFF);
    assert_eq!(ids(&kit.claim(9).await), [id]);
}

pub async fn a_job_that_gives_up_is_dead_with_its_failure_and_its_reason(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (tired, fatally) = (kit.put(mail(1)).await, kit.put(mail(2).queue("other")).await);
    for _ in 0..3 {
        let held = kit.claim_one().await;
        kit.end(&held, failure()).await;
        kit.advance(BACKOFF);
    }
    let claim = kit.wants(&[("other", 1)]);
    let held = kit.ask(claim).await.jobs;
    kit.end(&held[0], fatal()).await;
    let detail = kit.detail(tired).await;
    assert!(matches!(detail.job.state, State::Dead { why: GiveUp::Exhausted, .. }), "{:?}", detail.job.state);
    assert_eq!(detail.attempts.iter().map(|record| record.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(detail.attempts[2].next_at, None);
    let detail = kit.detail(fatally).await;
    assert_eq!(detail.job.state, State::Dead { at: kit.now, why: GiveUp::Permanent });
    let message = detail.attempts[0].failure.as_ref().map(|failure| &*failure.message);
    assert_eq!(message, Some("there is no such address"));
    kit.advance(secs(3600));
    assert!(kit.claim(9).await.is_empty(), "the dead stay dead");
}

pub async fn every_ending_moves_the_attempt(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(0).after(secs(900))).await;
    let asked = Outcome::Failed(Failure::retry_after(secs(7), "slow down"));
    let endings = [
        (Outcome::Snooze(secs(5)), Reason::Snoozed, secs(5), Ending::Snoozed),
        (failure(), Reason::Backoff, BACKOFF, Ending::Failed),
        (asked, Reason::RetryAfter, secs(7), Ending::Failed),
        (Outcome::Interrupted, Reason::Interrupted, secs(0), Ending::Interrupted),
        (Outcome::Unhandled, Reason::Unhandled, UNHANDLED_DELAY, Ending::Unhandled),
        (Outcome::Lost, Reason::Crashed, BACKOFF, Ending::Crashed),
    ];
    let id = kit.put(mail(1)).await;
    for (number, (outcome, reason, delay, ending)) in (1..).zip(endings) {
        let held = kit.claim_one().await;
        assert_eq!(held.0.attempt, number - 1);
        assert_eq!(kit.end(&held, outcome).await, Settled::Applied);
        let detail = kit.detail(id).await;
        assert_eq!(detail.job.state, State::Waiting { due_at: kit.now + delay, reason });
        assert_eq!(detail.job.ledger.attempt, number);
        assert_eq!(
            detail.attempts.last().map(|record| (record.attempt, record.ending)),
            Some((number, ending))
        );
        kit.advance(delay);
    }
    let ledger = kit.job(id).await.ledger;
    let wanted =
        Ledger { attempt: 6, failures: 2, crashes: 1, snoozes: 1, holds: 1, interruptions: 1, generation: 0 };
    assert_eq!(ledger, wanted);
    let held = kit.claim_one().await;
    kit.end(&held, Outcome::Expired).await;
    let detail = kit.detail(id).await;
    assert_eq!(detail.job.state, State::Dead { at: kit.now, why: GiveUp::Expired });
    assert_eq!((detail.job.ledger.attempt, detail.attempts.len()), (7, 7));
}

pub async fn settlements_of_one_call_are_answered_one_by_one(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..3 {
        kit.put(mail(number)).await;
    }
    let held = kit.claim(3).await;
    let mut settlements: Vec<_> = held.iter().map(|held| kit.settlement(held, Outcome::Done(None))).collect();
    settlements[1].lease.claim = ClaimId(7);
    let answers = kit.settle(settlements).await;
    assert_eq!(answers, [Settled::Applied, Settled::Refused, Settled::Applied]);
    let counts = kit.counts(QUEUE).await;
    assert_eq!((counts.running, counts.totals.succeeded), (1, 2));
}

/// Settles with a wrong right, which has to change nothing at all.
async fn has_no_effect(kit: &Kit, held: &Held) {
    let before = (kit.all().await, kit.store.counts().await.expect("jobs can be counted"));
    for outcome in [Outcome::Done(None), failure(), fatal(), Outcome::Interrupted] {
        assert_eq!(kit.end(held, outcome).await, Settled::Refused);
    }
    let after = (kit.all().await, kit.store.counts().await.expect("jobs can be counted"));
    assert_eq!(before, after);
}

pub async fn a_settlement_with_the_wrong_claim_or_attempt_changes_nothing(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim(2).await;
    let wrong_claim = (crate::Lease { claim: ClaimId(7), ..held[0].0 }, held[0].1.clone());
    has_no_effect(&kit, &wrong_claim).await;
    let wrong_attempt = (crate::Lease { attempt: 1, ..held[0].0 }, held[0].1.clone());
    has_no_effect(&kit, &wrong_attempt).await;
    let wrong_job = (crate::Lease { job: held[1].0.job, ..held[0].0 }, held[0].1.clone());
    has_no_effect(&kit, &wrong_job).await;
    for held in &held {
        assert_eq!(kit.end(held, Outcome::Done(None)).await, Settled::Applied);
    }
}

pub async fn a_settlement_sent_twice_counts_once(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim(2).await;
    kit.end(&held[0], failure()).await;
    kit.end(&held[1], Outcome::Done(None)).await;
    has_no_effect(&kit, &held[0]).await;
    has_no_effect(&kit, &held[1]).await;
    kit.advance(BACKOFF);
    assert_eq!(kit.claim(9).await.len(), 1);
    has_no_effect(&kit, &held[0]).await;
}

pub async fn the_same_settlement_twice_in_one_call_counts_once(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim_one().await;
    let both = vec![kit.settlement(&held, failure()), kit.settlement(&held, Outcome::Done(None))];
    assert_eq!(kit.settle(both).await, [Settled::Applied, Settled::Refused]);
    assert_eq!(kit.job(id).await.ledger.failures, 1);
    assert_eq!(kit.name(id).await, StateName::Waiting);
}

pub async fn a_settlement_for_a_lost_lease_changes_nothing(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let lost = kit.crash_with(2).await;
    has_no_effect(&kit, &lost[0]).await;
    kit.advance(BACKOFF);
    let again = kit.claim_one().await;
    assert_eq!(again.0.job, lost[0].0.job);
    has_no_effect(&kit, &lost[0]).await;
    assert_eq!(kit.end(&again, Outcome::Done(None)).await, Settled::Applied);
    has_no_effect(&kit, &lost[0]).await;
}

pub async fn a_settlement_after_a_cancel_changes_nothing(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim(2).await;
    kit.steer(Command::Cancel, id).await;
    has_no_effect(&kit, &held[0]).await;
    assert_eq!(kit.name(id).await, StateName::Cancelled);
    kit.steer(Command::Redrive, id).await;
    let again = kit.claim_one().await;
    assert_eq!(again.0.job, id);
    has_no_effect(&kit, &held[0]).await;
}

pub async fn a_settlement_for_a_job_that_is_forgotten_changes_nothing(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    let id = kit.put(mail(2)).await;
    let held = kit.claim(2).await;
    kit.steer(Command::Cancel, id).await;
    kit.steer(Command::Delete, id).await;
    let newest = kit.put(mail(3)).await;
    has_no_effect(&kit, &held[1]).await;
    assert_eq!(kit.name(newest).await, StateName::Waiting);
}

pub async fn work_finished_after_its_lease_still_counts_while_nobody_ended_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim_one().await;
    kit.advance(LEASE * 100);
    assert_eq!(kit.end(&held, Outcome::Done(None)).await, Settled::Applied);
    assert_eq!(kit.name(id).await, StateName::Succeeded);
    let gone = kit.holder;
    assert!(kit.crash(gone).await.is_empty(), "nothing is left to crash");
}
