//! A retry that is due at once: settled and claimed in one, so that whoever has the job goes on with it.

use std::sync::Arc;

use super::kit::{Held, Kit, LEASE, QUEUE, failure, ids, mail};
use crate::job::{Ending, Ledger, NewJob, State, StateName};
use crate::machine::Command;
use crate::outcome::{Failure, Outcome};
use crate::policy::Policy;
use crate::span::secs;
use crate::store::{Again, HolderId, Renewal, Settled, Settlement, Store};

/// A job that is due again as soon as it has failed.
fn eager(number: u32) -> NewJob {
    mail(number).policy(Policy::immediate().attempts(4))
}

/// The right to its next attempt, and the job as that finds it.
fn next(settlement: &Settlement) -> Held {
    (settlement.next_lease().expect("it was to go on"), settlement.next_job())
}

pub async fn a_retry_that_is_due_at_once_is_claimed_with_its_settlement(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(eager(1)).await;
    let other = kit.put(eager(2)).await;
    let held = kit.claim_one().await;
    kit.advance(secs(1));
    let settlement = kit.again(&held);
    assert_eq!(kit.settle(vec![settlement.clone()]).await, [Settled::Again]);
    let job = kit.job(id).await;
    assert_eq!(job.state, State::Running { since: kit.now });
    assert_eq!(job.ledger, Ledger { attempt: 1, failures: 1, ..Ledger::default() });
    assert_eq!((kit.counts(QUEUE).await.running, kit.counts(QUEUE).await.waiting), (1, 1));
    assert_eq!(ids(&kit.claim(9).await), [other], "nobody else is given it");
    let going = next(&settlement);
    assert_eq!(kit.end(&going, Outcome::Done(None)).await, Settled::Applied);
    let detail = kit.detail(id).await;
    assert_eq!(detail.job.state, State::Succeeded { at: kit.now });
    assert_eq!(detail.job.ledger, Ledger { attempt: 2, failures: 1, ..Ledger::default() });
    let [attempt] = &detail.attempts[..] else { panic!("one attempt failed: {:?}", detail.attempts) };
    assert_eq!((attempt.attempt, attempt.ending, attempt.next_at), (1, Ending::Failed, Some(kit.now)));
    assert_eq!(kit.end(&going, Outcome::Done(None)).await, Settled::Refused);
    assert_eq!(kit.counts(QUEUE).await.running, 1, "only the other runs");
}

pub async fn only_what_is_due_at_once_is_claimed_with_its_settlement(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (later, last) =
        (kit.put(mail(1)).await, kit.put(mail(2).policy(Policy::immediate().attempts(1))).await);
    let held = kit.claim(2).await;
    let settlements = vec![kit.again(&held[0]), kit.again(&held[1])];
    assert_eq!(kit.settle(settlements).await, [Settled::Applied, Settled::Applied]);
    assert_eq!((kit.name(later).await, kit.name(last).await), (StateName::Waiting, StateName::Dead));
    let (lease, job) = (kit.put(eager(3)).await, kit.claim_one().await);
    assert_eq!(job.0.job, lease);
    assert_eq!(kit.end(&job, failure()).await, Settled::Applied, "and only if that was wanted");
    assert_eq!(kit.name(lease).await, StateName::Waiting);
}

pub async fn what_a_paused_queue_or_an_order_holds_back_is_not_claimed_with_its_settlement(
    store: Arc<dyn Store>,
) {
    let mut kit = Kit::new(store).await;
    let paused = kit.put(eager(1).queue("paused")).await;
    let ordered = kit.put(eager(2).ordering_key("one by one")).await;
    let free = kit.put(eager(3)).await;
    let claim = kit.wants(&[("paused", 9), (QUEUE, 9)]);
    let held = kit.ask(claim).await.jobs;
    assert_eq!(ids(&held), [paused, ordered, free]);
    kit.store.pause("paused", true).await.expect("a queue can be paused");
    let first = kit.again(&held[0]);
    let again = first.again.clone();
    let rest =
        held[1..].iter().map(|held| Settlement { again: again.clone(), ..kit.settlement(held, failure()) });
    let settlements = [first].into_iter().chain(rest).collect();
    assert_eq!(kit.settle(settlements).await, [Settled::Applied, Settled::Applied, Settled::Again]);
    assert_eq!((kit.name(paused).await, kit.name(ordered).await), (StateName::Waiting, StateName::Waiting));
    assert_eq!(kit.name(free).await, StateName::Running);
    assert_eq!(ids(&kit.claim(9).await), [ordered]);
}

/// What these attempts came to, all of which are to go on under one claim.
fn together<const N: usize>(kit: &mut Kit, held: [&Held; N], messages: [&str; N]) -> Vec<Settlement> {
    let again = kit.again(held[0]).again;
    let said = held.into_iter().zip(messages);
    said.map(|(held, message)| {
        let outcome = Outcome::Failed(Failure::retry(message));
        Settlement { again: again.clone(), ..kit.settlement(held, outcome) }
    })
    .collect()
}

pub async fn those_that_go_on_together_keep_what_is_their_own(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let deadline = kit.now + secs(60);
    let jobs = [
        kit.put(eager(1)).await,
        kit.put(eager(2).deadline(deadline)).await,
        kit.put(eager(3)).await,
        kit.put(eager(4)).await,
    ];
    let held = kit.claim(4).await;
    let first = kit.again(&held[0]);
    assert_eq!(kit.settle(vec![first.clone()]).await, [Settled::Again]);
    let all = [&next(&first), &held[1], &held[2], &held[3]];
    let settlements = together(&mut kit, all, ["busy", "busy", "busy", "gone"]);
    assert_eq!(kit.settle(settlements.clone()).await, [const { Settled::Again }; 4]);
    for (id, (failures, message)) in
        jobs.into_iter().zip([(2, "busy"), (1, "busy"), (1, "busy"), (1, "gone")])
    {
        let detail = kit.detail(id).await;
        assert_eq!(detail.job.ledger, Ledger { attempt: failures, failures, ..Ledger::default() });
        let last = detail.attempts.last().and_then(|attempt| attempt.failure.as_ref());
        assert_eq!(last.map(|failure| failure.message.as_str()), Some(message));
    }
    let gone = kit.holder;
    kit.advance(secs(61));
    kit.crash(gone).await;
    assert_eq!(kit.name(jobs[1]).await, StateName::Dead, "this one had to be done by then");
    assert_eq!(kit.counts(QUEUE).await.waiting, 3);
    for settlement in &settlements {
        assert_eq!(kit.end(&next(settlement), Outcome::Done(None)).await, Settled::Refused);
    }
}

pub async fn one_that_cannot_go_on_does_not_keep_the_others(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (taken, kept) = (kit.put(eager(1)).await, kit.put(eager(2)).await);
    let held = kit.claim(2).await;
    kit.steer(Command::Cancel, taken).await;
    let settlements = together(&mut kit, [&held[0], &held[1]], ["busy", "busy"]);
    assert_eq!(kit.settle(settlements.clone()).await, [Settled::Refused, Settled::Again]);
    assert_eq!((kit.name(taken).await, kit.name(kept).await), (StateName::Cancelled, StateName::Running));
    assert_eq!(kit.end(&next(&settlements[1]), Outcome::Done(None)).await, Settled::Applied);
}

pub async fn nothing_goes_on_in_a_store_that_is_held(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(eager(1)).await;
    kit.put(eager(2)).await;
    let held = kit.claim_one().await;
    kit.store.operations().hold(true).await.expect("a store can be held");
    let settlement = kit.again(&held);
    assert_eq!(kit.settle(vec![settlement]).await, [Settled::Applied]);
    assert_eq!(kit.name(id).await, StateName::Waiting);
}

pub async fn a_settlement_sent_again_is_told_again_that_the_job_goes_on(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(eager(1)).await;
    kit.put(eager(2)).await;
    let held = kit.claim_one().await;
    let settlement = kit.again(&held);
    assert_eq!(kit.settle(vec![settlement.clone()]).await, [Settled::Again]);
    assert_eq!(kit.settle(vec![settlement.clone()]).await, [Settled::Again], "or nobody would go on with it");
    let detail = kit.detail(id).await;
    assert_eq!((detail.job.ledger.failures, detail.attempts.len()), (1, 1), "and it counted once");
    assert_eq!(kit.counts(QUEUE).await.totals.failures, 1);
    assert_eq!(kit.end(&next(&settlement), Outcome::Done(None)).await, Settled::Applied);
    assert_eq!(kit.settle(vec![settlement]).await, [Settled::Refused], "it does not go on any more");
}

pub async fn what_was_claimed_with_a_settlement_is_lost_with_its_holder(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(eager(1)).await;
    let other = kit.put(eager(2)).await;
    let held = kit.claim_one().await;
    let settlement = kit.again(&held);
    kit.settle(vec![settlement.clone()]).await;
    let gone = kit.holder;
    kit.advance(LEASE);
    assert_eq!(kit.crash(gone).await, [Settled::Applied]);
    let job = kit.job(id).await;
    assert_eq!((job.ledger.attempt, job.ledger.failures, job.ledger.crashes), (2, 1, 1));
    assert_eq!(kit.end(&next(&settlement), Outcome::Done(None)).await, Settled::Refused);
    kit.holder = kit.register().await;
    let mut back = ids(&kit.claim(9).await);
    back.sort();
    let mut both = vec![id, other];
    both.sort();
    assert_eq!(back, both, "it comes back, and its neighbour was never touched");
}

pub async fn what_was_claimed_with_a_settlement_can_be_taken_away(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(eager(1)).await;
    kit.put(eager(2)).await;
    let held = kit.claim_one().await;
    let settlement = kit.again(&held);
    kit.settle(vec![settlement.clone()]).await;
    kit.steer(Command::Cancel, id).await;
    let lost = kit.store.renew(kit.holder, kit.now + LEASE).await.expect("a holder can renew");
    let lease = next(&settlement).0;
    assert_eq!(lost, Renewal::Kept { lost: vec![lease] });
    assert_eq!(kit.end(&next(&settlement), Outcome::Done(None)).await, Settled::Refused);
    assert_eq!(kit.name(id).await, StateName::Cancelled);
}

pub async fn nothing_is_claimed_with_a_settlement_for_a_holder_that_is_gone(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(eager(1)).await;
    kit.put(eager(2)).await;
    let held = kit.claim_one().await;
    let mut settlement = kit.again(&held);
    settlement.again = settlement.again.map(|again| Again { holder: HolderId(7), ..again });
    assert_eq!(kit.settle(vec![settlement]).await, [Settled::Applied]);
    assert_eq!(kit.name(id).await, StateName::Waiting);
}
