//! What waited for nothing but a success: claimed with its settlement, so that it begins in the place that was kept.

use std::sync::Arc;

use super::kit::{Held, Kit, LEASE, QUEUE, failure, ids, mail};
use crate::job::{JobId, Ledger, NewJob, Reason, State, StateName};
use crate::machine::Command;
use crate::outcome::Outcome;
use crate::span::{mins, secs};
use crate::store::{Again, ClaimId, Filter, HolderId, Settled, Settlement, Store};

/// A parent, and a node that the others come after.
async fn put(kit: &mut Kit, after: Vec<NewJob>) -> (JobId, JobId, Vec<JobId>) {
    let parent = kit.admit(mail(0));
    let id = parent.job.id;
    let first = kit.admit(mail(1).parent(id));
    let node = first.job.id;
    let after: Vec<_> = after.into_iter().map(|job| kit.admit(job.parent(id))).collect();
    let behind: Vec<JobId> = after.iter().map(|new| new.job.id).collect();
    let ends = if behind.is_empty() { vec![node] } else { behind.clone() };
    let mut jobs = vec![parent.held_behind(ends).expect("it has no key"), first];
    jobs.extend(after.into_iter().map(|new| new.held_behind(vec![node]).expect("it has no key")));
    kit.enqueue(jobs).await.expect("jobs can be enqueued");
    (id, node, behind)
}

/// The success of a job whose place was kept.
fn done(kit: &Kit, held: &Held, claim: u128) -> Settlement {
    let again = Some(Again { holder: kit.holder, claim: ClaimId(claim), kinds: None });
    Settlement { again, ..kit.settlement(held, Outcome::Done(None)) }
}

/// What begins in the place of the one that was settled.
fn begun(answer: &Settled) -> Held {
    match answer {
        Settled::Next(next) => (**next).clone(),
        other => panic!("nothing has begun: {other:?}"),
    }
}

pub async fn what_waited_for_a_success_is_claimed_with_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, node, after) = put(&mut kit, vec![mail(2), mail(3)]).await;
    let held = kit.claim_one().await;
    assert_eq!(held.0.job, node);
    kit.advance(secs(1));
    let answers = kit.settle(vec![done(&kit, &held, 7)]).await;
    let next = begun(&answers[0]);
    assert!(after.contains(&next.1.id));
    assert_eq!(next.1.state, State::Waiting { due_at: kit.now, reason: Reason::Scheduled });
    assert_eq!((next.0.claim, next.0.attempt), (ClaimId(7), 0));
    assert_eq!(kit.state(next.1.id).await, State::Running { since: kit.now });
    let others = kit.claim(9).await;
    assert_eq!(others.len(), 1, "there was one place, and nobody else is given what has begun in it");
    assert!(after.contains(&others[0].1.id) && others[0].1.id != next.1.id);
    assert_eq!(kit.end(&next, Outcome::Done(None)).await, Settled::Applied);
    assert_eq!(kit.end(&next, Outcome::Done(None)).await, Settled::Refused);
    let last = kit.settle(vec![done(&kit, &others[0], 8)]).await;
    let last = begun(&last[0]);
    assert_eq!(last.1.id, parent);
    assert_eq!(kit.end(&last, Outcome::Done(None)).await, Settled::Applied);
    assert_eq!((kit.counts(QUEUE).await.running, kit.counts(QUEUE).await.waiting), (0, 0));
    let ledger = kit.job(parent).await.ledger;
    assert_eq!(ledger, Ledger { attempt: 1, ..Ledger::default() });
}

pub async fn a_call_that_is_sent_again_is_told_again_what_has_begun(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (_, _, after) = put(&mut kit, vec![mail(2)]).await;
    let held = kit.claim_one().await;
    let settlement = done(&kit, &held, 7);
    let first = begun(&kit.settle(vec![settlement.clone()]).await[0]);
    let again = begun(&kit.settle(vec![settlement.clone()]).await[0]);
    assert_eq!((first.0, again.1.id), (again.0, after[0]), "or nobody would go on with it");
    assert_eq!(kit.end(&first, Outcome::Done(None)).await, Settled::Applied);
    assert_eq!(kit.settle(vec![settlement]).await, [Settled::Refused], "it has ended since");
}

pub async fn what_begins_with_a_success_fails_and_crashes_as_any_other(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (_, _, after) = put(&mut kit, vec![mail(2), mail(3)]).await;
    put(&mut kit, vec![mail(4)]).await;
    let held = kit.claim(2).await;
    let ends = vec![done(&kit, &held[0], 7), done(&kit, &held[1], 7)];
    let next: Vec<Held> = kit.settle(ends).await.iter().map(begun).collect();
    assert_eq!(kit.end(&next[0], failure()).await, Settled::Applied);
    let job = kit.job(next[0].1.id).await;
    assert_eq!((job.state.name(), job.ledger.failures), (StateName::Waiting, 1));
    kit.advance(LEASE);
    kit.crash(kit.holder).await;
    let job = kit.job(next[1].1.id).await;
    assert_eq!((job.state.name(), job.ledger.crashes), (StateName::Waiting, 1));
    assert!(kit.name(after[0]).await == StateName::Waiting && kit.name(after[1]).await == StateName::Waiting);
}

pub async fn what_begins_with_a_success_can_be_cancelled(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, ..) = put(&mut kit, vec![mail(2)]).await;
    let held = kit.claim_one().await;
    let next = begun(&kit.settle(vec![done(&kit, &held, 7)]).await[0]);
    assert!(kit.apply(Command::RetryNow, &Filter::id(next.1.id), 9).await.is_empty(), "it runs");
    kit.steer(Command::Cancel, next.1.id).await;
    assert_eq!(kit.end(&next, Outcome::Done(None)).await, Settled::Refused);
    assert_eq!(ids(&kit.claim(9).await), [parent]);
}

pub async fn only_what_needs_no_more_than_a_place_begins_with_a_success(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let special: Vec<NewJob> = vec![
        mail(2).destination("api.example"),
        mail(3).priority(5),
        mail(4).queue("beside"),
        mail(5).start_by(kit.now + secs(30)),
    ];
    for job in special {
        let (_, node, after) = put(&mut kit, vec![job]).await;
        let held = kit.claim_one().await;
        assert_eq!(held.0.job, node);
        assert_eq!(kit.settle(vec![done(&kit, &held, 7)]).await, [Settled::Applied]);
        assert_eq!(kit.state(after[0]).await, State::Waiting { due_at: kit.now, reason: Reason::Scheduled });
        kit.steer(Command::Cancel, after[0]).await;
        kit.claim(9).await;
    }
    let later = kit.now + mins(30);
    let (_, _, after) = put(&mut kit, vec![mail(6).start_by(later)]).await;
    let held = kit.claim_one().await;
    let mut other = done(&kit, &held, 8);
    other.again = other.again.map(|again| Again { kinds: Some(Arc::new(["other".into()])), ..again });
    assert_eq!(kit.settle(vec![other]).await, [Settled::Applied], "it is of a kind that was not asked for");
    assert_eq!(ids(&kit.claim(9).await), after);
}

pub async fn nothing_begins_with_a_success_for_whom_it_may_not(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    put(&mut kit, vec![mail(2)]).await;
    put(&mut kit, vec![mail(3)]).await;
    let held = kit.claim(2).await;
    let mut gone = done(&kit, &held[0], 7);
    gone.again = gone.again.map(|again| Again { holder: HolderId(9), ..again });
    assert_eq!(kit.settle(vec![gone]).await, [Settled::Applied], "the holder is gone");
    kit.store.pause(QUEUE, true).await.expect("a queue can be paused");
    assert_eq!(kit.settle(vec![done(&kit, &held[1], 8)]).await, [Settled::Applied], "the queue is paused");
    kit.store.pause(QUEUE, false).await.expect("a queue can go on");
    assert_eq!(kit.claim(9).await.len(), 2);
}
