//! What operators are given: figures over time, the audit log, notices, corrections, and a halt.

use std::sync::Arc;
use std::time::Duration;

use super::kit::{BACKOFF, Kit, failure, fatal, mail, refused};
use crate::clock::Timestamp;
use crate::error::ErrorKind;
use crate::gate::Word;
use crate::job::{JobId, Json, StateName};
use crate::machine::Command;
use crate::operate::{Audit, AuditFilter, Edit, MINUTE, Notice, Point, Setting, Steps, Turn};
use crate::outcome::{Failure, Outcome};
use crate::policy::Policy;
use crate::queue::Retention;
use crate::span::{days, mins, secs};
use crate::stats::What;
use crate::store::{Filter, Store};

/// All of time in one step.
fn ever() -> Steps {
    Steps { from: Timestamp::EPOCH, until: Timestamp::MAX, step: days(10_000_000) }
}

async fn sum(kit: &Kit, steps: Steps) -> [u64; 4] {
    let points = kit.store.operations().series(steps).await.expect("figures can be read");
    points.iter().fold([0; 4], |[a, b, c, d], point: &Point| {
        [a + point.enqueued, b + point.succeeded, c + point.failed, d + point.dead]
    })
}

pub async fn what_happens_is_counted_in_its_minute(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..4 {
        kit.put(mail(number)).await;
    }
    let held = kit.claim(3).await;
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.end(&held[1], failure()).await;
    kit.end(&held[2], fatal()).await;
    assert_eq!(sum(&kit, ever()).await, [4, 1, 2, 1]);
    // Adding up, forgetting and bringing back take nothing away from what has happened.
    kit.steer(Command::Redrive, held[2].0.job).await;
    let gone = Retention { succeeded: Duration::ZERO, ..Retention::default() };
    kit.store.prune(&gone, kit.now + secs(1), 100).await.expect("what is over can be forgotten");
    assert_eq!(sum(&kit, ever()).await, [4, 1, 2, 1]);
    let minutes = Steps { step: MINUTE, ..ever() };
    let first = kit.store.operations().series(minutes).await.expect("figures can be read")[0].at;
    assert_eq!(first.as_millis() % 60_000, 0, "a step begins at a whole minute");
    assert_eq!(sum(&kit, Steps { until: first, ..ever() }).await, [0; 4]);
    let later = Steps { from: first + mins(100), ..ever() };
    assert_eq!(sum(&kit, later).await, [0; 4]);
}

pub async fn retries_are_foretold_by_the_time_they_will_be_due(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    for number in 0..3 {
        kit.put(mail(number)).await;
    }
    kit.put(mail(9).after(mins(5))).await;
    kit.put(mail(10).priority(3).ordering_key("k")).await;
    for held in kit.claim(4).await {
        kit.end(&held, failure()).await;
    }
    let start = kit.now;
    let steps = Steps::after(start, mins(10), MINUTE);
    let due = kit.store.operations().retries_due(steps, 1_000).await.expect("retries can be foretold");
    let first = steps.start_of(start + BACKOFF).expect("the next minutes are asked for");
    assert_eq!(due, [(first, 4)], "what has not been tried yet is no retry");
    kit.advance(BACKOFF);
    kit.claim(1).await;
    let due = kit.store.operations().retries_due(steps, 1_000).await.expect("retries can be foretold");
    assert_eq!(due, [(first, 3)], "what runs is not waited for");
}

pub async fn retries_are_found_in_the_order_in_which_they_are_due(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (late, soon) = (kit.put(mail(1)).await, kit.put(mail(2)).await);
    let twin = kit.put(mail(3)).await;
    kit.put(mail(4).after(mins(5))).await;
    let outside = kit.put(mail(5).failed_outside(Failure::retry("no answer"))).await;
    let asked = kit.put(mail(6).after(mins(7))).await;
    kit.steer(Command::RetryNow, asked).await;
    for held in kit.claim(4).await {
        kit.end(&held, failure()).await;
    }
    for (id, wait) in
        [(late, mins(9)), (soon, mins(1)), (twin, mins(1)), (outside, mins(3)), (asked, mins(2))]
    {
        kit.steer(Command::Reschedule(kit.now + wait), id).await;
    }
    let found = async |after, limit| {
        kit.store.operations().retries(after, limit).await.expect("retries can be looked at")
    };
    let all = found(None, 10).await;
    let ids = |turns: &[(Turn, JobId)]| turns.iter().map(|(_, id)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&all), [soon, twin, asked, outside, late], "a job that was not tried is no retry");
    assert_eq!(all[0].0.due_at, kit.now + mins(1));
    assert_eq!(all[0].0.due_at, all[1].0.due_at);
    // Page by page, also between two that are due together.
    assert_eq!(found(None, 1).await, all[..1]);
    assert_eq!(found(Some(all[0].0), 2).await, all[1..3]);
    assert_eq!(found(Some(all[4].0), 2).await, []);
}

fn entry(id: &str, job: Option<JobId>, now: Timestamp) -> Audit {
    Audit {
        id: id.into(),
        at: now,
        who: "ops".into(),
        token: Some("k".into()),
        what: "jobs.cancel".into(),
        on: "a job".into(),
        job,
        result: "begun".into(),
        detail: String::new(),
    }
}

pub async fn who_did_what_is_kept_and_found_by_job(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (one, two) = (kit.put(mail(1)).await, kit.put(mail(2)).await);
    let operations = kit.store.operations();
    let mut first = entry("r1", Some(one), kit.now);
    let second = entry("r2", Some(two), kit.now);
    let third = entry("r3", None, kit.now);
    for entry in [&first, &second, &third] {
        operations.audit(entry).await.expect("an entry can be written");
    }
    (first.result, first.detail) = ("done".into(), "waiting → cancelled".into());
    operations.audit(&first).await.expect("what came of it can be written");
    let read = async |filter: AuditFilter| {
        let found = operations.audited(&filter).await.expect("entries can be read");
        found.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>()
    };
    let all = AuditFilter { limit: 10, ..AuditFilter::default() };
    assert_eq!(read(all.clone()).await, [third.clone(), second.clone(), first.clone()]);
    assert_eq!(read(AuditFilter { job: Some(one), ..all.clone() }).await, [first.clone()]);
    let newest =
        operations.audited(&AuditFilter { limit: 1, ..all.clone() }).await.expect("entries can be read");
    assert_eq!(newest[0].1, third);
    assert_eq!(read(AuditFilter { before: Some(newest[0].0), ..all }).await, [second, first]);
}

pub async fn a_change_is_written_down_with_what_it_does_and_not_where_nothing_can_be_done(
    store: Arc<dyn Store>,
) {
    let mut kit = Kit::new(store).await;
    let (one, two) = (kit.put(mail(1)).await, kit.put(mail(2)).await);
    let operations = kit.store.operations();
    let begun = entry("r1", Some(one), kit.now);
    operations.audit(&begun).await.expect("an entry can be written");
    let done = Audit { result: "done".into(), detail: "waiting".into(), ..begun };
    let other = entry("r2", Some(one), kit.now);
    let cancel = async |entry: &Audit| {
        let filter = Filter::id(one);
        operations.apply_audited(Command::Cancel, &filter, 1, kit.now, entry).await.expect("it is answered")
    };
    assert_eq!(cancel(&done).await, [one]);
    assert!(cancel(&other).await.is_empty(), "it is cancelled already");
    let all = AuditFilter { limit: 10, ..AuditFilter::default() };
    let found = operations.audited(&all).await.expect("entries can be read");
    assert_eq!(found.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(), [done]);
    let names = [kit.state(one).await, kit.state(two).await].map(|state| state.name());
    assert_eq!(names, [StateName::Cancelled, StateName::Waiting]);
}

pub async fn what_is_set_is_written_down_with_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (job, _) = (kit.put(mail(1)).await, kit.put(mail(2)).await);
    let operations = kit.store.operations();
    let value = Json::of(&7).expect("a number is JSON");
    let settings = [
        Setting::Queue { name: "default".into(), paused: true },
        Setting::Held(true),
        Setting::Destination { name: "api".into(), word: Word::Pause },
        Setting::Record { shelf: "s".into(), name: "n".into(), value: Some(value.clone()) },
        Setting::Record { shelf: "s".into(), name: "gone".into(), value: None },
    ];
    let mut entries = Vec::new();
    for (number, setting) in settings.iter().enumerate() {
        let entry = entry(&format!("r{number}"), None, kit.now);
        operations.set_audited(setting, kit.now, &entry).await.expect("it can be set");
        entries.insert(0, entry);
    }
    let edited = entry("edit", Some(job), kit.now);
    operations.edit(job, &another(5), kit.now, Some(&edited)).await.expect("it can be corrected");
    let refused_edit = entry("refused", Some(job), kit.now);
    let nothing = Edit { by: "ops".into(), ..Edit::default() };
    refused(operations.edit(job, &nothing, kit.now, Some(&refused_edit)).await);
    entries.insert(0, edited);
    let all = AuditFilter { limit: 10, ..AuditFilter::default() };
    let found = operations.audited(&all).await.expect("entries can be read");
    assert_eq!(found.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(), entries);
    assert!(operations.is_held().await.expect("it can be asked"));
    operations.hold(false).await.expect("it can go on");
    assert!(kit.claim(2).await.is_empty(), "the queue is stopped");
    let destinations = kit.store.destinations().list(kit.now).await.expect("they can be listed");
    assert!(destinations.iter().any(|one| &*one.name == "api" && one.gate.paused));
    let records = kit.store.records("s").await.expect("records can be read");
    assert_eq!(records, [("n".to_owned(), value)]);
}

pub async fn a_notice_is_kept_once_however_many_notice_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let job = kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let operations = kit.store.operations();
    let notice = |key: &str, message: &str| Notice {
        key: key.into(),
        at: kit.now,
        rule: "r".into(),
        what: "dead".into(),
        job: Some(job),
        message: message.into(),
    };
    let first = operations.notice(&notice("a", "one")).await.expect("a notice can be kept");
    let again = operations.notice(&notice("a", "two")).await.expect("a notice can be kept");
    let other = operations.notice(&notice("b", "three")).await.expect("a notice can be kept");
    assert!(first.is_some() && again.is_none() && other > first);
    let messages = async |after: i64, limit: usize| {
        let found = operations.notices(after, limit).await.expect("notices can be read");
        found.into_iter().map(|(_, notice)| notice.message).collect::<Vec<_>>()
    };
    assert_eq!(messages(0, 10).await, ["one", "three"]);
    assert_eq!(messages(first.unwrap_or_default(), 10).await, ["three"]);
    assert_eq!(messages(0, 1).await, ["three"], "the newest are given if there are too many");
}

fn another(payload: u32) -> Edit {
    Edit {
        payload: Some(Json::of(&payload).expect("a number is JSON")),
        policy: Some(Arc::new(Policy::fixed(secs(3)).attempts(9))),
        priority: Some(7),
        labels: Some([("fixed".into(), "yes".into())].into()),
        by: "ops".into(),
        ..Edit::default()
    }
}

pub async fn a_waiting_job_can_be_corrected_and_remembers_what_it_was(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let other = kit.put(mail(1)).await;
    let id = kit.put(mail(2).label("a", "1")).await;
    let before = kit.job(id).await;
    let now = kit.now;
    kit.store.operations().edit(id, &another(5), now, None).await.expect("a waiting job can be corrected");
    let priority = Edit { priority: Some(8), by: "ops".into(), ..Edit::default() };
    kit.store.operations().edit(id, &priority, now, None).await.expect("it can be corrected again");
    let job = kit.job(id).await;
    assert_eq!(
        (job.payload.as_str(), job.priority, &*job.policy),
        ("5", 8, &Policy::fixed(secs(3)).attempts(9))
    );
    assert_eq!(job.extras().labels, [("fixed".to_owned(), "yes".to_owned())].into());
    assert_eq!((job.state, job.ledger, job.created_at), (before.state, before.ledger, before.created_at));
    let edits = kit.store.operations().edits(id).await.expect("corrections can be read");
    assert_eq!(edits.len(), 2);
    assert_eq!(edits[0].payload.as_ref().map(Json::as_str), Some("2"));
    assert_eq!((edits[0].policy.as_ref(), edits[0].priority), (Some(&before.policy), Some(0)));
    assert_eq!((edits[1].payload.as_ref(), edits[1].priority), (None, Some(7)));
    assert!(kit.store.operations().edits(other).await.expect("corrections can be read").is_empty());
    // It is claimed where it belongs now, and is what was written: its checksum matches.
    let held = kit.claim(2).await;
    assert_eq!((held[0].0.job, held[0].1.payload.as_str(), held[1].0.job), (id, "5", other));
    let lines = kit.store.activity(1).await.expect("the log can be read");
    assert_eq!((lines[0].what, lines[0].job), (What::Edited, id));
}

pub async fn a_dead_job_can_be_corrected_and_brought_back(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let id = kit.put(mail(1)).await;
    kit.put(mail(2)).await;
    let held = kit.claim(1).await;
    kit.end(&held[0], fatal()).await;
    let now = kit.now;
    kit.store.operations().edit(id, &another(5), now, None).await.expect("a dead job can be corrected");
    assert_eq!(kit.job(id).await.state.name(), crate::StateName::Dead);
    kit.steer(Command::Redrive, id).await;
    let held = kit.claim(1).await;
    assert_eq!((held[0].0.job, held[0].1.payload.as_str(), held[0].1.priority), (id, "5", 7));
    kit.end(&held[0], Outcome::Done(None)).await;
    kit.steer(Command::Delete, id).await;
    assert!(kit.store.operations().edits(id).await.expect("corrections can be read").len() <= 1);
}

pub async fn what_runs_or_has_succeeded_is_not_corrected(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let (one, two) = (kit.put(mail(1)).await, kit.put(mail(2)).await);
    let held = kit.claim(2).await;
    kit.end(&held[1], Outcome::Done(None)).await;
    let now = kit.now;
    for id in [one, two] {
        let answer = kit.store.operations().edit(id, &another(5), now, None).await;
        assert_eq!(refused(answer), ErrorKind::Conflict);
        assert_ne!(kit.job(id).await.payload.as_str(), "5");
    }
    let nothing = Edit { by: "ops".into(), ..Edit::default() };
    let waiting = kit.put(mail(3)).await;
    assert_eq!(refused(kit.store.operations().edit(waiting, &nothing, now, None).await), ErrorKind::Invalid);
    let nobody = JobId::new(now, 999, &mut crate::clock::Rng::seeded(9));
    assert_eq!(
        refused(kit.store.operations().edit(nobody, &another(5), now, None).await),
        ErrorKind::NotFound
    );
}

pub async fn a_held_store_hands_out_nothing_until_it_goes_on(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    kit.put(mail(1)).await;
    kit.put(mail(2).deadline(kit.now + secs(1))).await;
    kit.store.operations().hold(true).await.expect("everything can be held");
    kit.advance(secs(2));
    assert!(kit.claim(2).await.is_empty(), "not even what is out of time");
    assert!(kit.store.operations().is_held().await.expect("it can be asked"));
    kit.store.operations().hold(false).await.expect("it can go on");
    assert_eq!(kit.claim(2).await.len(), 2);
    assert!(!kit.store.operations().is_held().await.expect("it can be asked"));
}
