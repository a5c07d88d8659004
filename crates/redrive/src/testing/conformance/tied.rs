//! Jobs that come after others: a success lets go what waits for nothing else, and a bad ending the parent alone.

use std::sync::Arc;

use super::kit::{BACKOFF, Kit, failure, fatal, ids, mail};
use crate::clock::Timestamp;
use crate::job::{Ending, JobId, Json, NewJob, Reason, State, StateName};
use crate::machine::{Admission, Command};
use crate::outcome::Outcome;
use crate::queue::Retention;
use crate::span::{days, secs};
use crate::store::{Call, Filter, How, JobDetail, Settled, Store};
use crate::workflow::EXECUTION;

/// A parent, and nodes `a` to `d`: `b` and `c` come after `a`, and `d` after both.
struct Diamond {
    jobs: Vec<Admission>,
    parent: JobId,
    nodes: [JobId; 4],
}

fn diamond(kit: &mut Kit) -> Diamond {
    let parent = kit.admit(mail(0));
    let id = parent.job.id;
    let nodes: Vec<Admission> = (1..=4).map(|number| kit.admit(mail(number).parent(id))).collect();
    let [a, b, c, d]: [JobId; 4] = std::array::from_fn(|at| nodes[at].job.id);
    let after = [vec![], vec![a], vec![a], vec![b, c]];
    let mut jobs = vec![parent.held_behind(vec![d]).expect("it has no key")];
    let tied = nodes.into_iter().zip(after).map(|(node, after)| node.held_behind(after));
    jobs.extend(tied.map(|node| node.expect("it has no key")));
    Diamond { jobs, parent: id, nodes: [a, b, c, d] }
}

/// A diamond in the store, and another one beside it of which nothing is taken.
async fn put(kit: &mut Kit) -> (JobId, [JobId; 4]) {
    let Diamond { jobs, parent, nodes } = diamond(kit);
    kit.enqueue(jobs).await.expect("jobs can be enqueued");
    let mut beside = diamond(kit).jobs;
    beside.iter_mut().for_each(|new| new.job.queue = "beside".into());
    kit.enqueue(beside).await.expect("jobs can be enqueued");
    (parent, nodes)
}

/// Claims the one job that is due, which has to be this one, and ends it.
async fn run(kit: &mut Kit, id: JobId, outcome: Outcome) {
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [id]);
    kit.end(&held[0], outcome).await;
}

pub async fn what_comes_after_others_begins_when_all_of_them_have_succeeded(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, b, c, d]) = put(&mut kit).await;
    run(&mut kit, a, Outcome::Done(None)).await;
    kit.advance(secs(1));
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [b, c]);
    kit.end(&held[1], Outcome::Done(Json::of("out").ok())).await;
    assert!(kit.claim(9).await.is_empty(), "one of the two is still at it");
    kit.advance(secs(1));
    kit.end(&held[0], Outcome::Done(None)).await;
    assert_eq!(kit.state(d).await, State::Waiting { due_at: kit.now, reason: Reason::Scheduled });
    run(&mut kit, d, Outcome::Done(None)).await;
    run(&mut kit, parent, Outcome::Done(None)).await;
    assert!(kit.claim(9).await.is_empty());
}

pub async fn what_waits_for_others_is_not_said_to_be_due_and_cannot_be_hastened(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, b, ..]) = put(&mut kit).await;
    let held = kit.claim_one().await;
    assert_eq!(held.0.job, a);
    let claim = kit.wants(&[("default", 9)]);
    assert_eq!(kit.ask(claim).await.next_due, None);
    for id in [parent, b] {
        assert_eq!(
            kit.state(id).await,
            State::Waiting { due_at: Timestamp::MAX, reason: Reason::Dependency }
        );
        let later = Command::Reschedule(kit.now + secs(9));
        for command in [Command::RetryNow, later] {
            assert!(kit.apply(command, &Filter::id(id), 9).await.is_empty(), "{command:?}");
        }
    }
    assert_eq!(kit.counts("default").await.waiting, 4);
}

pub async fn a_retry_lets_nobody_go(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (_, [a, b, c, _]) = put(&mut kit).await;
    run(&mut kit, a, failure()).await;
    assert!(kit.claim(9).await.is_empty());
    kit.advance(BACKOFF);
    run(&mut kit, a, Outcome::Done(None)).await;
    assert_eq!(ids(&kit.claim(9).await), [b, c]);
}

pub async fn a_death_lets_the_parent_go_and_nobody_else(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, b, c, d]) = put(&mut kit).await;
    run(&mut kit, a, Outcome::Done(None)).await;
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [b, c]);
    kit.end(&held[0], fatal()).await;
    run(&mut kit, parent, failure()).await;
    kit.end(&held[1], Outcome::Done(None)).await;
    assert_eq!(kit.name(d).await, StateName::Waiting);
    assert!(kit.claim(9).await.is_empty(), "the parent waits as its policy says, the last one for the dead");
}

pub async fn a_cancelled_one_lets_the_parent_go_and_nobody_else(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, ..]) = put(&mut kit).await;
    let running = kit.claim_one().await;
    kit.steer(Command::Cancel, a).await;
    kit.end(&running, Outcome::Done(None)).await;
    run(&mut kit, parent, Outcome::Snooze(secs(60))).await;
    kit.steer(Command::Redrive, a).await;
    kit.steer(Command::Cancel, a).await;
    run(&mut kit, parent, fatal()).await;
}

pub async fn a_second_death_does_not_shorten_a_delay_of_the_parent(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, ..]) = put(&mut kit).await;
    run(&mut kit, a, Outcome::Done(None)).await;
    let held = kit.claim(9).await;
    kit.end(&held[0], fatal()).await;
    run(&mut kit, parent, failure()).await;
    kit.end(&held[1], fatal()).await;
    assert!(kit.claim(9).await.is_empty());
    kit.advance(BACKOFF);
    assert_eq!(ids(&kit.claim(9).await), [parent]);
}

pub async fn a_dead_one_that_comes_back_lets_go_those_behind_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, b, c, d]) = put(&mut kit).await;
    run(&mut kit, a, fatal()).await;
    run(&mut kit, parent, Outcome::Snooze(days(1))).await;
    kit.steer(Command::Redrive, a).await;
    run(&mut kit, a, Outcome::Done(None)).await;
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [b, c]);
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.end(&held[1], Outcome::Done(None)).await;
    run(&mut kit, d, Outcome::Done(None)).await;
    run(&mut kit, parent, Outcome::Done(None)).await;
}

pub async fn a_cancelled_one_that_comes_back_waits_for_those_before_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, b, c, _]) = put(&mut kit).await;
    let held = kit.claim_one().await;
    kit.steer(Command::Cancel, b).await;
    kit.steer(Command::Cancel, parent).await;
    kit.steer(Command::Redrive, b).await;
    assert_eq!(kit.state(b).await, State::Waiting { due_at: Timestamp::MAX, reason: Reason::Dependency });
    kit.steer(Command::Redrive, parent).await;
    assert_eq!(kit.state(parent).await, State::Waiting { due_at: kit.now, reason: Reason::ByHand });
    run(&mut kit, parent, Outcome::Snooze(days(1))).await;
    assert_eq!(held.0.job, a);
    kit.end(&held, Outcome::Done(None)).await;
    assert_eq!(ids(&kit.claim(9).await), [b, c]);
}

pub async fn an_execution_that_runs_can_be_told_to_look_again(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let mut news = vec![kit.admit(mail(0))];
    news.extend(
        (1..3).map(|n| kit.admit(NewJob::of_kind(EXECUTION, Json::of(&n).expect("a number is JSON")))),
    );
    let [other, this, beside]: [JobId; 3] = std::array::from_fn(|at| news[at].job.id);
    kit.enqueue(news).await.expect("jobs can be enqueued");
    let held = kit.claim(9).await;
    kit.advance(secs(1));
    assert_eq!(kit.apply(Command::Redrive, &Filter::id(other), 9).await, [], "what runs is not redriven");
    kit.steer(Command::Redrive, this).await;
    assert_eq!(kit.state(this).await, State::Waiting { due_at: kit.now, reason: Reason::ByHand });
    assert_eq!(kit.name(beside).await, StateName::Running);
    let of = |id: JobId| held.iter().find(|held| held.0.job == id).expect("all were claimed");
    assert_eq!(kit.end(of(this), fatal()).await, Settled::Refused, "it had seen what no longer holds");
    let again = kit.claim(9).await;
    assert_eq!(ids(&again), [this]);
    let JobDetail { job, attempts, .. } = kit.detail(this).await;
    assert_eq!((job.ledger.attempt, job.ledger.interruptions, job.ledger.generation), (1, 1, 0));
    assert_eq!(attempts.iter().map(|attempt| attempt.ending).collect::<Vec<_>>(), [Ending::Interrupted]);
    kit.end(&again[0], Outcome::Done(None)).await;
    for id in [other, beside] {
        assert_eq!(kit.end(of(id), Outcome::Done(None)).await, Settled::Applied);
    }
    assert_eq!(kit.counts("default").await.running, 0);
    assert!(kit.claim(9).await.is_empty());
}

pub async fn what_is_forgotten_is_waited_for_no_longer(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, b, c, d]) = put(&mut kit).await;
    run(&mut kit, a, Outcome::Done(None)).await;
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [b, c]);
    kit.end(&held[0], fatal()).await;
    run(&mut kit, parent, Outcome::Snooze(days(1))).await;
    kit.steer(Command::Delete, b).await;
    assert!(kit.claim(9).await.is_empty(), "one of the two is still at it");
    kit.end(&held[1], Outcome::Done(None)).await;
    run(&mut kit, d, Outcome::Done(None)).await;
    run(&mut kit, parent, Outcome::Done(None)).await;
}

pub async fn what_waits_for_others_can_run_out_of_time(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let parent = kit.admit(mail(0));
    let id = parent.job.id;
    let first = kit.admit(mail(1).parent(id));
    let second = kit.admit(mail(2).parent(id).deadline(kit.now + secs(5)));
    let (a, b) = (first.job.id, second.job.id);
    let second = second.held_behind(vec![a]).expect("it has no key");
    let parent = parent.held_behind(vec![b]).expect("it has no key");
    kit.enqueue(vec![parent, first, second]).await.expect("jobs can be enqueued");
    let running = kit.claim_one().await;
    kit.advance(secs(5));
    run(&mut kit, b, Outcome::Expired).await;
    assert_eq!(ids(&kit.claim(9).await), [id]);
    kit.end(&running, Outcome::Done(None)).await;
    assert_eq!(kit.name(b).await, StateName::Dead);
}

pub async fn what_is_sent_again_is_not_tied_again(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let Diamond { jobs, nodes: [a, b, c, _], .. } = diamond(&mut kit);
    kit.enqueue(jobs.clone()).await.expect("jobs can be enqueued");
    run(&mut kit, a, Outcome::Done(None)).await;
    let again = kit.enqueue(jobs).await.expect("jobs can be sent again");
    assert_eq!(again.len(), 5);
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [b, c]);
}

pub async fn the_same_call_sent_again_is_not_tied_again(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let call = Call { key: "a call".into(), digest: "a graph".into() };
    let Diamond { jobs, parent, nodes: [a, b, c, d] } = diamond(&mut kit);
    let first = kit.store.enqueue_once(call.clone(), jobs, kit.now).await.expect("it can be enqueued");
    assert!(first.iter().all(|answer| answer.how == How::Created));
    run(&mut kit, a, Outcome::Done(None)).await;
    let other = diamond(&mut kit).jobs;
    let again = kit.store.enqueue_once(call, other, kit.now).await.expect("it can be sent again");
    assert_eq!(again, first);
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [b, c]);
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.end(&held[1], Outcome::Done(None)).await;
    run(&mut kit, d, Outcome::Done(None)).await;
    run(&mut kit, parent, Outcome::Done(None)).await;
}

pub async fn what_an_unfinished_parent_may_ask_for_is_not_forgotten(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, b, c, d]) = put(&mut kit).await;
    let retention = Retention { succeeded: secs(5), cancelled: secs(5), dead: Some(secs(5)) };
    run(&mut kit, a, Outcome::Done(None)).await;
    kit.advance(secs(10));
    kit.store.renew(kit.holder, kit.now + secs(60)).await.expect("a renewal is answered");
    assert_eq!(kit.store.prune(&retention, kit.now, 100).await.expect("it can forget"), 0);
    let held = kit.claim(9).await;
    assert_eq!(ids(&held), [b, c]);
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.end(&held[1], Outcome::Done(None)).await;
    run(&mut kit, d, Outcome::Done(None)).await;
    run(&mut kit, parent, Outcome::Done(None)).await;
    kit.advance(secs(10));
    assert_eq!(kit.store.prune(&retention, kit.now, 100).await.expect("it can forget"), 5);
}

pub async fn how_jobs_ended_is_told_of_those_that_are_final(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (parent, [a, b, c, d]) = put(&mut kit).await;
    run(&mut kit, a, Outcome::Done(Json::of("out").ok())).await;
    let held = kit.claim(9).await;
    kit.end(&held[0], fatal()).await;
    kit.steer(Command::Cancel, d).await;
    let ended = kit.store.ended(&[parent, a, b, c, d]).await.expect("endings can be read");
    let mut told: Vec<_> = ended.iter().map(|it| (it.id, it.state)).collect();
    told.sort();
    let expected = [(a, StateName::Succeeded), (b, StateName::Dead), (d, StateName::Cancelled)];
    assert_eq!(told, expected);
    let outputs: Vec<_> =
        ended.iter().filter_map(|it| it.output.as_ref()).map(|json| json.as_str()).collect();
    assert_eq!(outputs, [r#""out""#]);
}

pub async fn an_ending_that_was_deleted_is_not_told(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (_, [a, b, ..]) = put(&mut kit).await;
    run(&mut kit, a, Outcome::Done(Json::of("out").ok())).await;
    let held = kit.claim(9).await;
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.steer(Command::Delete, a).await;
    let ended = kit.store.ended(&[a, b]).await.expect("endings can be read");
    assert_eq!(ended.iter().map(|it| it.id).collect::<Vec<_>>(), [b]);
}
