//! Looking: lists, counts, the activity log, and being told that something changed.

use std::sync::Arc;

use super::kit::{BACKOFF, Kit, QUEUE, failure, fatal, ids, mail};
use crate::job::{JobId, NewJob, StateName};
use crate::machine::Command;
use crate::outcome::{Failure, Outcome};
use crate::queue::Retention;
use crate::span::secs;
use crate::stats::{TREND_PARTS, Trend};
use crate::stats::{Tally, What};
use crate::store::{Filter, Group, Page, Store};

pub async fn a_list_is_newest_first_and_comes_in_pages(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let mut all = Vec::new();
    for number in 0..5 {
        all.insert(0, kit.put(mail(number)).await);
    }
    assert_eq!(kit.list(&Filter::default()).await, all);
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = Page { before, limit: 2 };
        let paged = kit.store.list(&Filter::default(), page).await.expect("jobs can be listed");
        assert!(paged.jobs.len() <= 2);
        found.extend(paged.jobs.iter().map(|job| job.id));
        before = paged.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(found, all);
}

pub async fn each_field_of_a_filter_is_respected(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let plain = kit.put(mail(1)).await;
    let special = NewJob::of_kind("call", crate::Json::of(&2).expect("a number is JSON"));
    let special = special.queue("other").key("k").parent(plain).label("a", "1").label("b", "2");
    let odd = ("über \"alles\"", "c:\\\n\u{1}/é");
    let special = special.label(odd.0, odd.1);
    kit.advance(secs(1));
    let (from, until) = (kit.now, kit.now + secs(1));
    let special = kit.put(special.destination("phone")).await;
    kit.advance(secs(1));
    let near = kit.put(mail(3).label("a", "1").label("b", "3")).await;
    let filters = [
        Filter { kind: Some("call".into()), ..Filter::default() },
        Filter { queue: Some("other".into()), ..Filter::default() },
        Filter { key: Some("k".into()), ..Filter::default() },
        Filter { parent: Some(plain), ..Filter::default() },
        Filter { labels: [("b".into(), "2".into())].into(), ..Filter::default() },
        Filter { labels: [("a".into(), "1".into()), ("b".into(), "2".into())].into(), ..Filter::default() },
        Filter { labels: [(odd.0.into(), odd.1.into())].into(), ..Filter::default() },
        Filter { destination: Some("phone".into()), ..Filter::default() },
        Filter { created_from: Some(from), created_until: Some(until), ..Filter::default() },
        Filter::id(special),
    ];
    for filter in filters {
        assert_eq!(kit.list(&filter).await, [special], "{filter:?}");
        let none = Filter { kind: Some("nothing".into()), ..filter };
        assert!(kit.list(&none).await.is_empty(), "everything given must hold: {none:?}");
    }
    let both = Filter { labels: [("a".into(), "1".into())].into(), ..Filter::default() };
    assert_eq!(kit.list(&both).await, [near, special]);
    let some = Filter { ids: vec![plain, near], ..Filter::default() };
    assert_eq!(kit.list(&some).await, [near, plain]);
    assert!(kit.list(&Filter { queue: Some("unknown".into()), ..Filter::default() }).await.is_empty());
}

/// One job in each state, in the order of [`StateName`].
async fn one_in_each_state(kit: &mut Kit) -> [JobId; 5] {
    let succeeded = kit.put(mail(1)).await;
    let dead = kit.put(mail(2)).await;
    let running = kit.put(mail(3)).await;
    let held = kit.claim(3).await;
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.end(&held[1], fatal()).await;
    let cancelled = kit.put(mail(4)).await;
    kit.steer(Command::Cancel, cancelled).await;
    let waiting = kit.put(mail(5)).await;
    [waiting, running, succeeded, dead, cancelled]
}

pub async fn jobs_can_be_listed_by_state(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = one_in_each_state(&mut kit).await;
    let names =
        [StateName::Waiting, StateName::Running, StateName::Succeeded, StateName::Dead, StateName::Cancelled];
    for (state, id) in names.into_iter().zip(jobs) {
        assert_eq!(kit.list(&Filter::state(state)).await, [id], "{state}");
        for (other, second) in names.into_iter().zip(jobs).filter(|(other, _)| *other > state) {
            let mut wanted = vec![id, second];
            wanted.sort_by(|a, b| b.cmp(a));
            let filter = Filter { states: vec![state, other], ..Filter::default() };
            assert_eq!(kit.list(&filter).await, wanted, "{state} or {other}");
        }
    }
}

pub async fn jobs_can_be_found_by_the_fingerprint_of_their_last_failure(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let changing = kit.put(mail(1)).await;
    let steady = kit.put(mail(2)).await;
    kit.put(mail(3).after(secs(999))).await;
    for held in kit.claim(2).await {
        kit.end(&held, failure()).await;
    }
    let of = |outcome| match outcome {
        Outcome::Failed(failure) => {
            Filter { fingerprint: Some(failure.fingerprint("mail")), ..Filter::default() }
        }
        _ => Filter::default(),
    };
    assert_eq!(kit.list(&of(failure())).await, [steady, changing]);
    kit.advance(BACKOFF);
    let held = kit.claim_one().await;
    assert_eq!(held.0.job, changing);
    kit.end(&held, fatal()).await;
    assert_eq!(kit.list(&of(failure())).await, [steady]);
    assert_eq!(kit.list(&of(fatal())).await, [changing]);
    let held = kit.claim_one().await;
    kit.end(&held, Outcome::Snooze(secs(1))).await;
    assert_eq!(kit.list(&of(failure())).await, [steady], "a snooze is no failure and hides none");
}

pub async fn the_last_failure_of_each_of_many_is_known(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (twice, fresh, well) = (kit.put(mail(1)).await, kit.put(mail(2)).await, kit.put(mail(3)).await);
    let fail = |message: &str| Outcome::Failed(Failure::retry(message));
    let held = kit.claim(3).await;
    kit.end(&held[0], fail("first")).await;
    kit.end(&held[1], Outcome::Snooze(BACKOFF)).await;
    kit.end(&held[2], Outcome::Done(None)).await;
    kit.advance(BACKOFF);
    let held = kit.claim(1).await;
    assert_eq!(held[0].0.job, twice);
    kit.end(&held[0], fail("second")).await;
    let jobs = [kit.job(twice).await, kit.job(fresh).await, kit.job(well).await];
    let failed = kit.store.last_failed(&jobs).await.expect("failures can be read");
    let messages: Vec<_> = failed
        .iter()
        .map(|(id, attempt)| (*id, attempt.failure.as_ref().map(|of| of.message.as_str())))
        .collect();
    assert_eq!(messages, [(twice, Some("second"))]);
    assert_eq!(
        failed[&twice],
        kit.store.get(twice).await.expect("it can be read").expect("it is there").attempts[1]
    );
}

pub async fn dead_jobs_are_grouped_by_what_they_died_of(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let began = kit.now;
    let other = || Outcome::Failed(Failure::permanent("the box is full"));
    let mut jobs = Vec::new();
    for (number, outcome) in [fatal(), other(), fatal(), failure()].into_iter().enumerate() {
        jobs.push(kit.put(mail(number as u32)).await);
        let held = kit.claim_one().await;
        kit.end(&held, outcome).await;
        kit.advance(secs(1));
    }
    // A second after the fourth death: of 24 parts, each is the 24th of four seconds and a bit.
    let now = began + secs(4);
    let group = |outcome: Outcome, count, newest, times: &[u64]| {
        let Outcome::Failed(failure) = outcome else { panic!("it is a failure") };
        let fingerprint = Some(failure.fingerprint("mail"));
        let mut trend = Trend::default();
        for time in times {
            trend.0[usize::try_from(time * 1_000 / (4_000 / 24 + 1)).expect("it is small")] += 1;
        }
        let at = |time: Option<&u64>| began + secs(*time.expect("somebody died"));
        Group { fingerprint, count, newest, first_at: at(times.first()), last_at: at(times.last()), trend }
    };
    let groups = [group(fatal(), 2, jobs[2], &[0, 2]), group(other(), 1, jobs[1], &[1])];
    assert_eq!(kit.store.groups(9, now).await.expect("they can be counted"), groups);
    assert_eq!(kit.store.groups(1, now).await.expect("they can be counted"), groups[..1]);
    kit.steer(Command::Redrive, jobs[1]).await;
    assert_eq!(kit.store.groups(9, now).await.expect("they can be counted"), groups[..1]);
    let ahead = kit.store.groups(1, began + secs(1)).await.expect("they can be counted");
    assert_eq!(
        ahead[0].trend.0[TREND_PARTS - 1],
        1,
        "what is dated after now is in the last part: {ahead:?}"
    );
}

pub async fn counts_say_how_many_jobs_are_where(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    one_in_each_state(&mut kit).await;
    kit.put(mail(9).queue("another")).await;
    let counts = kit.store.counts().await.expect("jobs can be counted");
    let names: Vec<&str> = counts.iter().map(|counts| &*counts.queue).collect();
    assert_eq!(names, ["another", QUEUE], "by name");
    assert_eq!((counts[1].waiting, counts[1].running, counts[1].dead), (1, 1, 1));
    assert_eq!((counts[0].waiting, counts[0].running, counts[0].dead), (1, 0, 0));
}

pub async fn totals_say_what_has_happened_ever(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    one_in_each_state(&mut kit).await;
    let mut expected =
        Tally { enqueued: 5, succeeded: 1, dead: 1, cancelled: 1, failures: 1, ..Tally::default() };
    assert_eq!(kit.counts(QUEUE).await.totals, expected);
    let held = kit.claim_one().await;
    kit.end(&held, failure()).await;
    kit.advance(BACKOFF);
    let held = kit.claim_one().await;
    kit.end(&held, Outcome::Lost).await;
    kit.advance(BACKOFF);
    for outcome in [Outcome::Snooze(secs(0)), Outcome::Interrupted, Outcome::Done(None)] {
        let held = kit.claim_one().await;
        kit.end(&held, outcome).await;
    }
    expected += Tally {
        succeeded: 1,
        recovered: 1,
        failures: 1,
        crashes: 1,
        snoozes: 1,
        interruptions: 1,
        retries: 2,
        delay_ms: 20_000,
        retries_by_backoff: [0, 2, 0, 0, 0, 0],
        ..Tally::default()
    };
    assert_eq!(kit.counts(QUEUE).await.totals, expected);
    kit.apply(Command::Delete, &Filter::default(), 9).await;
    assert_eq!(kit.counts(QUEUE).await.totals, expected, "forgetting a job does not undo what happened");
}

pub async fn the_activity_log_tells_what_a_person_would_want_to_know(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let recovered = kit.put(mail(1)).await;
    let quiet = kit.put(mail(2)).await;
    for (held, outcome) in kit.claim(2).await.iter().zip([Outcome::Lost, Outcome::Done(None)]) {
        kit.end(held, outcome).await;
    }
    kit.steer(Command::RetryNow, recovered).await;
    let held = kit.claim_one().await;
    kit.end(&held, Outcome::Done(None)).await;
    let dead = kit.put(mail(3)).await;
    let held = kit.claim_one().await;
    kit.end(&held, fatal()).await;
    kit.steer(Command::Redrive, dead).await;
    kit.steer(Command::Cancel, dead).await;
    let lines = kit.store.activity(100).await.expect("the log can be read");
    let told: Vec<_> = lines.iter().rev().map(|line| (line.what, line.job)).collect();
    let wanted = [
        (What::Crashed, recovered),
        (What::Retried, recovered),
        (What::Recovered, recovered),
        (What::Dead, dead),
        (What::Redriven, dead),
        (What::Cancelled, dead),
    ];
    assert_eq!(told, wanted);
    assert!(lines.iter().all(|line| line.job != quiet), "a first success is no news");
    assert!(lines[2].message.contains("there is no such address"), "{}", lines[2].message);
    assert_eq!((&*lines[0].queue, &*lines[0].kind, lines[0].at), (QUEUE, "mail", kit.now));
    let newest = kit.store.activity(2).await.expect("the log can be read");
    assert_eq!(newest, lines[..2]);
}

pub async fn what_many_have_to_tell_at_once_is_told_line_by_line(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let mut jobs = Vec::new();
    for number in 0..7 {
        jobs.push(kit.put(mail(number)).await);
    }
    for batch in [3, 4] {
        let held = kit.claim(batch).await;
        let dead = held.iter().map(|held| kit.settlement(held, fatal())).collect();
        kit.settle(dead).await;
    }
    let told = async |limit: usize| -> Vec<JobId> {
        let lines = kit.store.activity(limit).await.expect("the log can be read");
        lines.into_iter().map(|line| line.job).collect()
    };
    jobs.reverse();
    assert_eq!(told(100).await, jobs, "the newest first");
    assert_eq!((told(2).await, told(5).await), (jobs[..2].to_vec(), jobs[..5].to_vec()));
    kit.store.prune(&Retention::default(), kit.now, 9).await.expect("finished jobs can be forgotten");
    assert_eq!(told(100).await, jobs, "and none of these is too old to be kept");
}

// being told

pub async fn what_may_have_become_due_is_told(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1).ordering_key("k")).await;
    kit.put(mail(2).ordering_key("k")).await;
    let mut changes = kit.store.changes();
    kit.put(mail(3).after(secs(99))).await;
    changes.changed().await.expect("an enqueued job is told");
    let held = kit.claim(9).await;
    assert_eq!(held.len(), 1);
    changes.mark_unchanged();
    kit.end(&held[0], failure()).await;
    changes.changed().await.expect("a planned retry is told");
    kit.store.pause(QUEUE, true).await.expect("a queue can be paused");
    kit.store.pause(QUEUE, false).await.expect("a queue can be resumed");
    changes.changed().await.expect("a resumed queue is told");
    kit.advance(BACKOFF);
    let held = kit.claim(9).await;
    changes.mark_unchanged();
    kit.end(&held[0], Outcome::Done(None)).await;
    changes.changed().await.expect("one that waited for its turn is told");
    assert_eq!(ids(&kit.claim(9).await).len(), 1);
}
