//! What is kept, and for how long.

use std::sync::Arc;
use std::time::Duration;

use super::kit::{Kit, QUEUE, failure, fatal, mail};
use crate::job::{Json, StateName};
use crate::machine::Command;
use crate::outcome::Outcome;
use crate::queue::Retention;
use crate::span::{millis, secs};
use crate::stats::ACTIVITY_MAX;
use crate::store::{Filter, Store};

async fn prune(kit: &Kit, retention: Retention, limit: usize) -> u64 {
    kit.store.prune(&retention, kit.now, limit).await.expect("finished jobs can be forgotten")
}

/// A job of each final state, one that waits and one that runs.
async fn finished(kit: &mut Kit) {
    for number in 0..4 {
        kit.put(mail(number)).await;
    }
    let held = kit.claim(3).await;
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.end(&held[1], fatal()).await;
    let cancelled = kit.put(mail(5)).await;
    kit.steer(Command::Cancel, cancelled).await;
}

async fn left(kit: &Kit) -> Vec<StateName> {
    kit.all().await.iter().rev().map(|job| job.state.name()).collect()
}

pub async fn finished_jobs_are_kept_as_long_as_their_outcome_says(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    finished(&mut kit).await;
    let retention = Retention { succeeded: secs(10), cancelled: secs(20), dead: Some(secs(30)) };
    let before = kit.now;
    let all =
        [StateName::Succeeded, StateName::Dead, StateName::Running, StateName::Waiting, StateName::Cancelled];
    kit.advance(millis(9_999));
    assert_eq!(prune(&kit, retention, 100).await, 0);
    assert_eq!(left(&kit).await, all);
    for (after, wanted) in [(10, &all[1..]), (20, &all[1..4]), (30, &all[2..4]), (9_999, &all[2..4])] {
        kit.now = before + secs(after);
        prune(&kit, retention, 100).await;
        assert_eq!(left(&kit).await, wanted, "after {after} s");
    }
    let counts = kit.counts(QUEUE).await;
    assert_eq!((counts.dead, counts.totals.dead), (0, 1));
}

pub async fn dead_jobs_are_kept_until_someone_acts_unless_told_otherwise(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    finished(&mut kit).await;
    kit.advance(Duration::from_secs(400 * 24 * 3600));
    assert_eq!(prune(&kit, Retention::default(), 100).await, 2);
    assert_eq!(left(&kit).await, [StateName::Dead, StateName::Running, StateName::Waiting]);
}

pub async fn forgetting_stops_at_its_limit_and_goes_on_the_next_time(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..5 {
        kit.put(mail(number)).await;
    }
    kit.apply(Command::Cancel, &Filter::default(), 9).await;
    let kept = kit.put(mail(9)).await;
    kit.advance(Duration::from_secs(48 * 3600));
    let mut steps = Vec::new();
    for _ in 0..4 {
        steps.push(prune(&kit, Retention::default(), 2).await);
    }
    assert_eq!(steps, [2, 2, 1, 0]);
    assert_eq!(kit.list(&Filter::default()).await, [kept]);
}

pub async fn of_a_long_history_the_first_ten_and_the_last_ninety_are_kept(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    let other = kit.put(mail(2).queue("other")).await;
    let claim = kit.wants(&[("other", 1)]);
    let held = kit.ask(claim).await.jobs;
    kit.end(&held[0], failure()).await;
    for number in 1..=130 {
        let held = kit.claim_one().await;
        kit.end(&held, Outcome::Interrupted).await;
        if number == 100 {
            assert_eq!(kit.detail(id).await.attempts.len(), 100);
        }
    }
    let kept: Vec<u32> = kit.detail(id).await.attempts.iter().map(|record| record.attempt).collect();
    assert_eq!(kept, (1..=10).chain(41..=130).collect::<Vec<u32>>());
    assert_eq!(kit.detail(other).await.attempts.len(), 1);
}

pub async fn the_activity_log_has_an_end(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs: Vec<_> = (0..500).map(|number| kit.admit(mail(number).after(secs(999)))).collect();
    kit.enqueue(jobs).await.expect("jobs can be enqueued");
    let newest = usize::try_from(ACTIVITY_MAX).unwrap_or(0) / 500 + 1;
    for _ in 0..newest {
        kit.apply(Command::RetryNow, &Filter::default(), 500).await;
    }
    let first = kit.put(mail(500)).await;
    kit.steer(Command::Cancel, first).await;
    let lines = kit.store.activity(usize::MAX).await.expect("the log can be read");
    assert_eq!(lines.len(), usize::try_from(ACTIVITY_MAX).unwrap_or(0));
    assert_eq!(lines[0].job, first, "what is dropped is the oldest");
    prune(&kit, Retention::default(), 1).await;
    assert_eq!(kit.store.activity(usize::MAX).await.expect("the log can be read"), lines);
}

pub async fn records_are_kept_by_shelf_and_name(store: Arc<dyn Store>) {
    let value = |number: i32| Json::of(&number).expect("a number is JSON");
    let put = async |shelf, name, number| {
        store.keep(shelf, name, Some(value(number))).await.expect("it can be kept");
    };
    put("a", "y", 1).await;
    put("a", "x", 2).await;
    put("b", "x", 3).await;
    put("a", "y", 4).await;
    let on = async |shelf| store.records(shelf).await.expect("they can be read");
    assert_eq!(on("a").await, [("x".into(), value(2)), ("y".into(), value(4))]);
    store.keep("a", "x", None).await.expect("it can be removed");
    store.keep("a", "nothing", None).await.expect("what is not there is gone");
    assert_eq!(on("a").await, [("y".into(), value(4))]);
    assert_eq!(on("b").await, [("x".into(), value(3))]);
}
