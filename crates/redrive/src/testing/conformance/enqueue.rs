//! Jobs come in: all or none, once each, unique by key, and no more than the queue may hold.

use std::sync::Arc;

use super::kit::{Kit, QUEUE, fatal, mail, refused};
use crate::error::ErrorKind;
use crate::job::{OnConflict, State, StateName};
use crate::machine::Command;
use crate::outcome::Outcome;
use crate::queue::{Queue, Retention};
use crate::span::{days, secs};
use crate::store::{Call, Enqueued, Filter, How, Store};

pub async fn what_is_enqueued_is_there_as_it_was_admitted(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let parent = kit.put(mail(1)).await;
    let new = mail(2).key("k").parent(parent).label("tenant", "7").priority(3).destination("host");
    let deadline = kit.now + secs(60);
    let new = new.ordering_key("o").deadline(deadline).start_by(deadline).timeout(secs(5)).after(secs(2));
    let admission = kit.admit(new);
    let answer = kit.enqueue(vec![admission.clone()]).await.unwrap_or_default();
    assert_eq!(answer.len(), 1);
    let mut found = kit.job(admission.job.id).await;
    assert!(found.seq > kit.job(parent).await.seq, "later jobs have later places");
    found.seq = 0;
    assert_eq!(found, admission.job);
}

pub async fn the_history_of_a_job_comes_with_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let other = kit.put(mail(1)).await;
    let id = kit.put(mail(2).failed_outside(crate::Failure::retry("the first call failed"))).await;
    let attempts = kit.detail(id).await.attempts;
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].attempt, 0);
    assert_eq!(kit.job(id).await.ledger.attempt, 0);
    assert!(kit.detail(other).await.attempts.is_empty());
}

pub async fn a_job_says_who_asked_for_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let author = async |kit: &Kit, id| kit.detail(id).await.author;
    // As most come in, with where it goes, and with something that needs another look; and one of nobody among them.
    let news = [
        mail(1).author("ada"),
        mail(2),
        mail(3).author("bob").destination("host"),
        mail(4).author("cleo").key("k").label("a", "b"),
        mail(5).author("dan").failed_outside(crate::Failure::retry("the first call failed")),
    ];
    let admissions: Vec<_> = news.into_iter().map(|new| kit.admit(new)).collect();
    let ids: Vec<_> = admissions.iter().map(|admission| admission.job.id).collect();
    let (plain, rest) = admissions.split_at(3);
    kit.enqueue(plain.to_vec()).await.expect("they are taken");
    kit.enqueue(rest.to_vec()).await.expect("they are taken");
    for (id, name) in ids.iter().zip([Some("ada"), None, Some("bob"), Some("cleo"), Some("dan")]) {
        assert_eq!(author(&kit, *id).await.as_deref(), name);
    }
    // It is who asked for what is there: whoever comes too late is not, whoever replaces it is.
    kit.try_put(mail(6).key("k").author("eve")).await.expect("it is there already");
    assert_eq!(author(&kit, ids[3]).await.as_deref(), Some("cleo"));
    let new = mail(7).key("k").author("flo").on_conflict(OnConflict::Replace);
    kit.try_put(new).await.expect("it is replaced");
    assert_eq!(author(&kit, ids[3]).await.as_deref(), Some("flo"));
    // And so it stays.
    let held = kit.claim_one().await;
    kit.end(&held, Outcome::Done(None)).await;
    assert_eq!((held.1.id, author(&kit, held.1.id).await.as_deref()), (ids[0], Some("ada")));
}

pub async fn a_call_takes_all_of_its_jobs_or_none(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1).key("taken")).await;
    let fine = kit.admit(mail(2));
    let refused_one = kit.admit(mail(3).key("taken").on_conflict(OnConflict::Reject));
    let kind = refused(kit.enqueue(vec![fine.clone(), refused_one]).await);
    assert_eq!(kind, ErrorKind::Conflict);
    assert_eq!(kit.all().await.len(), 1);
    assert!(kit.store.get(fine.job.id).await.expect("the store answers").is_none());
    assert_eq!(kit.counts(QUEUE).await.totals.enqueued, 1);
}

pub async fn the_same_id_twice_is_one_job(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    let again = kit.admit(mail(2));
    for how in [How::Created, How::Existing] {
        let answer = kit.enqueue(vec![again.clone()]).await.expect("the same job can be sent again");
        assert_eq!((answer[0].id, answer[0].how), (again.job.id, how));
    }
    assert_eq!(kit.all().await.len(), 2);
    assert_eq!(kit.counts(QUEUE).await.totals.enqueued, 2);
}

pub async fn a_job_sent_again_is_not_refused_because_it_is_there(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let small = Queue::new("small").capacity(2);
    let jobs = [
        kit.admit_to(&small, mail(1).key("a").on_conflict(OnConflict::Reject)),
        kit.admit_to(&small, mail(2).key("b").on_conflict(OnConflict::Replace)),
    ];
    kit.enqueue(jobs.to_vec()).await.expect("two have room");
    let claim = kit.wants(&[("small", 9)]);
    assert_eq!(kit.ask(claim).await.jobs.len(), 2);
    for job in &jobs {
        let answer = kit.enqueue(vec![job.clone()]).await.expect("the same job can be sent again");
        assert_eq!((answer[0].id, answer[0].how), (job.job.id, How::Existing));
    }
}

pub async fn a_finished_job_sent_again_touches_nobody_who_has_its_key_now(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let first = kit.admit(mail(1).key("k").on_conflict(OnConflict::Replace));
    kit.enqueue(vec![first.clone()]).await.expect("the job can be enqueued");
    let held = kit.claim_one().await;
    kit.end(&held, Outcome::Done(None)).await;
    let second = kit.put(mail(2).key("k")).await;
    let answer = kit.enqueue(vec![first.clone()]).await.expect("the same job can be sent again");
    assert_eq!((answer[0].id, answer[0].how), (first.job.id, How::Existing));
    assert_eq!(kit.job(second).await.payload.as_str(), "2");
}

pub async fn a_taken_key_with_ignore_answers_with_the_job_that_has_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1).key("other")).await;
    let first = kit.put(mail(2).key("k")).await;
    let second = kit.try_put(mail(3).key("k")).await.expect("a taken key is no error");
    assert_eq!((second.id, second.how), (first, How::Existing));
    assert_eq!(kit.job(first).await.payload.as_str(), "2");
    assert_eq!(kit.all().await.len(), 2);
}

pub async fn a_taken_key_with_reject_is_refused(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1).key("k")).await;
    let reject = |number| mail(number).on_conflict(OnConflict::Reject);
    assert_eq!(refused(kit.try_put(reject(2).key("k")).await), ErrorKind::Conflict);
    kit.put(reject(3).key("free")).await;
    assert_eq!(kit.all().await.len(), 2);
}

pub async fn a_taken_key_with_replace_puts_the_new_content_into_the_waiting_job(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let other = kit.put(mail(1).key("other")).await;
    let first = kit.put(mail(2).key("k")).await;
    let claimed = kit.claim(2).await;
    for held in &claimed {
        kit.end(held, super::kit::failure()).await;
    }
    let seq = kit.job(first).await.seq;
    let again = mail(3).key("k").priority(5).after(secs(60)).on_conflict(OnConflict::Replace);
    let answer = kit.try_put(again).await.expect("a waiting job can be replaced");
    assert_eq!((answer.id, answer.how), (first, How::Replaced));
    let job = kit.job(first).await;
    assert_eq!((job.payload.as_str(), job.priority, job.seq), ("3", 5, seq));
    assert!(matches!(job.state, State::Waiting { due_at, .. } if due_at == kit.now + secs(60)));
    assert_eq!((job.ledger.attempt, job.ledger.failures), (1, 0), "the fence goes on, the counters restart");
    assert_eq!(kit.job(other).await.payload.as_str(), "1");
    assert_eq!(kit.counts(QUEUE).await.waiting, 2);
}

pub async fn a_running_job_is_not_replaced(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let first = kit.put(mail(1).key("k")).await;
    kit.put(mail(2).after(secs(60))).await;
    let held = kit.claim_one().await;
    let replace = || mail(3).key("k").on_conflict(OnConflict::Replace);
    assert_eq!(refused(kit.try_put(replace()).await), ErrorKind::Conflict);
    assert_eq!(kit.job(first).await.payload.as_str(), "1");
    kit.end(&held, super::kit::failure()).await;
    assert_eq!(kit.try_put(replace()).await.expect("it waits again").how, How::Replaced);
}

pub async fn a_job_replaced_into_another_queue_is_counted_and_claimed_there(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1).key("k")).await;
    kit.put(mail(2)).await;
    let moved = mail(3).key("k").queue("elsewhere").on_conflict(OnConflict::Replace);
    kit.try_put(moved).await.expect("a waiting job can be replaced");
    assert_eq!((kit.counts(QUEUE).await.waiting, kit.counts("elsewhere").await.waiting), (1, 1));
    let claim = kit.wants(&[("elsewhere", 9)]);
    assert_eq!(super::kit::ids(&kit.ask(claim).await.jobs), [id]);
}

pub async fn a_key_twice_in_one_call_is_treated_as_if_it_came_in_two(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let cases = [(OnConflict::Ignore, How::Existing, "1"), (OnConflict::Replace, How::Replaced, "2")];
    for (on_conflict, how, payload) in cases {
        let key = format!("{on_conflict:?}");
        let both: Vec<_> =
            [1, 2].map(|n| kit.admit(mail(n).key(&*key).on_conflict(on_conflict))).into_iter().collect();
        let answer = kit.enqueue(both).await.expect("one job for both");
        assert_eq!((answer[0].how, answer[1].how), (How::Created, how));
        assert_eq!(answer[0].id, answer[1].id);
        assert_eq!(kit.job(answer[0].id).await.payload.as_str(), payload);
    }
    let both: Vec<_> =
        [1, 2].map(|n| kit.admit(mail(n).key("r").on_conflict(OnConflict::Reject))).into_iter().collect();
    assert_eq!(refused(kit.enqueue(both).await), ErrorKind::Conflict);
    assert_eq!(kit.all().await.len(), 2);
}

pub async fn a_key_is_free_again_after_each_final_state(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(0).key("other").after(secs(3600))).await;
    let reject = |number| mail(number).key("k").on_conflict(OnConflict::Reject);
    let mut finals = Vec::new();
    for (number, outcome) in [(1, Some(Outcome::Done(None))), (2, Some(fatal())), (3, None)] {
        let id = kit.put(reject(number)).await;
        assert_eq!(refused(kit.try_put(reject(9)).await), ErrorKind::Conflict);
        match outcome {
            Some(outcome) => {
                let held = kit.claim_one().await;
                assert_eq!(refused(kit.try_put(reject(9)).await), ErrorKind::Conflict);
                kit.end(&held, outcome).await;
            }
            None => kit.steer(Command::Cancel, id).await,
        }
        finals.push(kit.name(id).await);
    }
    assert_eq!(finals, [StateName::Succeeded, StateName::Dead, StateName::Cancelled]);
    kit.put(reject(4)).await;
}

pub async fn a_full_queue_refuses_before_anything_is_written(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let small = Queue::new("small").capacity(2);
    let three: Vec<_> = (1..=3).map(|n| kit.admit_to(&small, mail(n))).collect();
    assert_eq!(refused(kit.enqueue(three.clone()).await), ErrorKind::Full);
    assert!(kit.all().await.is_empty());
    kit.enqueue(three[..2].to_vec()).await.expect("two have room");
    assert_eq!(refused(kit.enqueue(three[2..].to_vec()).await), ErrorKind::Full);
    assert_eq!(kit.list(&Filter::default().in_queue("small")).await.len(), 2);
    kit.put(mail(4)).await;
}

pub async fn a_queue_is_full_of_what_waits_and_what_runs(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let small = Queue::new("small").capacity(2);
    let jobs: Vec<_> = (1..=4).map(|n| kit.admit_to(&small, mail(n))).collect();
    kit.enqueue(jobs[..2].to_vec()).await.expect("two have room");
    let claim = kit.wants(&[("small", 1)]);
    let held = kit.ask(claim).await.jobs;
    assert_eq!(refused(kit.enqueue(jobs[2..3].to_vec()).await), ErrorKind::Full);
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.enqueue(jobs[2..3].to_vec()).await.expect("one has finished");
    kit.steer(Command::Cancel, jobs[1].job.id).await;
    kit.enqueue(jobs[3..].to_vec()).await.expect("one was cancelled");
}

fn call(key: &str, digest: &str) -> Call {
    Call { key: key.into(), digest: digest.into() }
}

pub async fn a_call_sent_again_is_given_the_same_answer(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let there = kit.put(mail(1).key("k")).await;
    let jobs = |kit: &mut Kit| vec![kit.admit(mail(2)), kit.admit(mail(3).key("k"))];
    let sent = jobs(&mut kit);
    let first = kit.store.enqueue_once(call("c", "x"), sent, kit.now).await.expect("it is new");
    assert_eq!(first[1], Enqueued { id: there, how: How::Existing });
    // Even when what was there has gone, and under other ids.
    let held = kit.claim(9).await;
    for held in &held {
        kit.end(held, Outcome::Done(None)).await;
    }
    let sent = jobs(&mut kit);
    let again = kit.store.enqueue_once(call("c", "x"), sent, kit.now).await.expect("it is the same");
    assert_eq!(again, first);
    let sent = jobs(&mut kit);
    let other = kit.store.enqueue_once(call("c", "y"), sent, kit.now).await;
    assert_eq!(refused(other), ErrorKind::Conflict);
    assert_eq!(kit.all().await.len(), 2, "nothing more came in");
    let sent = jobs(&mut kit);
    let new = kit.store.enqueue_once(call("d", "x"), sent, kit.now).await.expect("it is another call");
    assert!(new.iter().all(|answer| answer.how == How::Created), "{new:?}");
}

pub async fn a_call_is_remembered_for_thirty_days(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let sent = vec![kit.admit(mail(1))];
    let first = kit.store.enqueue_once(call("c", "x"), sent, kit.now).await.expect("it is new");
    let retention = Retention::default();
    kit.advance(days(29));
    kit.store.prune(&retention, kit.now, 100).await.expect("it can be pruned");
    let sent = vec![kit.admit(mail(1))];
    assert_eq!(kit.store.enqueue_once(call("c", "x"), sent, kit.now).await.expect("it is the same"), first);
    kit.advance(days(2));
    kit.store.prune(&retention, kit.now, 100).await.expect("it can be pruned");
    let sent = vec![kit.admit(mail(1))];
    let later = kit.store.enqueue_once(call("c", "x"), sent, kit.now).await.expect("it is forgotten");
    assert_ne!(later, first);
}
