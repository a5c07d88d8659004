//! Destinations: what a gate does not grant is not handed out, and everything else is.

use std::sync::Arc;

use super::kit::{BACKOFF, Held, Kit, LEASE, QUEUE, failure, ids, mail, policy};
use crate::clock::Timestamp;
use crate::gate::{Blame, Limits, PROBE_PATIENCE, Phase, Rate, Report, Rules, Seen, Why, Word};
use crate::job::{JobId, NewJob, Reason, State, StateName};
use crate::machine::Command;
use crate::operate::Edit;
use crate::outcome::Outcome;
use crate::policy::GiveUp;
use crate::span::{millis, mins, secs};
use crate::store::{Claim, Destination, Observed, Store};

const DOOR: &str = "api.example.org";

fn call(number: u32) -> NewJob {
    mail(number).destination(DOOR)
}

/// Everything that can be had, however many claims it takes.
async fn claim_all(kit: &mut Kit) -> Vec<Held> {
    let mut all = Vec::new();
    loop {
        let held = kit.claim(50).await;
        if held.is_empty() {
            return all;
        }
        all.extend(held);
    }
}

async fn put_calls(kit: &mut Kit, count: u32) -> Vec<JobId> {
    let mut made = Vec::new();
    for number in 0..count {
        made.push(kit.put(call(number)).await);
    }
    made
}

fn limited(kit: &Kit, limits: Limits) {
    let mut rules = Rules::default();
    rules.set("*.example.org", Some(limits));
    kit.store.destinations().limit(Arc::new(rules));
}

fn report(kit: &Kit, job: JobId, seen: Seen) -> Report {
    let (began, ended) = (kit.now, kit.now);
    Report { destination: DOOR.into(), job, holds: 0, seen, began, ended, status: None, pace: 100.0 }
}

async fn observe(kit: &Kit, reports: &[Report]) -> Observed {
    kit.store.destinations().observe(reports, kit.now).await.expect("reports are taken")
}

async fn tell(kit: &Kit, word: Word) {
    kit.store.destinations().tell(DOOR, word, kit.now).await.expect("words are taken");
}

async fn door(kit: &Kit) -> Option<Destination> {
    let found = kit.store.destinations().list(kit.now).await.expect("destinations can be listed");
    found.into_iter().find(|one| &*one.name == DOOR)
}

/// Ten different jobs that failed.
async fn fail(kit: &Kit) -> Observed {
    let mut rng = crate::clock::Rng::seeded(7);
    let jobs = (0..10).map(|count| JobId::new(kit.now, count, &mut rng));
    let reports: Vec<Report> = jobs.map(|job| report(kit, job, Seen::Failure)).collect();
    observe(kit, &reports).await
}

pub async fn a_shut_gate_holds_its_own_jobs_and_no_others(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let held = put_calls(&mut kit, 3).await;
    let free = kit.put(mail(7)).await;
    let elsewhere = kit.put(mail(8).destination("other.example.org")).await;
    tell(&kit, Word::Down).await;
    assert_eq!(ids(&claim_all(&mut kit).await), [free, elsewhere]);
    for id in &held {
        assert!(matches!(kit.state(*id).await, State::Waiting { reason: Reason::Held, .. }));
        assert_eq!(kit.job(*id).await.ledger.attempt, 0);
    }
    let door = door(&kit).await.expect("it has something to say");
    assert!(matches!(door.gate.phase, Phase::Shut { why: Why::Said, .. }));
    assert_eq!(door.held, 3);
    assert_eq!(kit.counts(QUEUE).await.waiting, 3);
    tell(&kit, Word::Up).await;
    kit.advance(mins(1));
    let mut back = Vec::new();
    for _ in 0..3 {
        kit.advance(secs(1));
        back.extend(claim_all(&mut kit).await);
    }
    assert_eq!(ids(&back), held, "in the order they came");
}

pub async fn an_ungated_destination_costs_nothing_and_has_nothing_to_say(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = put_calls(&mut kit, 4).await;
    let held = claim_all(&mut kit).await;
    assert_eq!(ids(&held), jobs);
    let observed =
        observe(&kit, &[report(&kit, jobs[0], Seen::Well), report(&kit, jobs[1], Seen::Well)]).await;
    assert_eq!(observed.blames, [Blame::Job; 2]);
    assert!(observed.changes.is_empty() && door(&kit).await.is_none());
}

pub async fn jobs_that_fail_in_a_row_shut_it_and_one_at_a_time_asks(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    put_calls(&mut kit, 5).await;
    let elsewhere = kit.put(mail(9)).await;
    let observed = fail(&kit).await;
    assert_eq!(observed.changes.len(), 1);
    assert!(matches!(observed.changes[0].after, Phase::Shut { why: Why::Failing, .. }));
    assert_eq!(observed.blames[..9], [Blame::Job; 9], "until then it was theirs");
    assert_eq!(observed.blames[9], Blame::Destination);
    assert_eq!(ids(&claim_all(&mut kit).await), [elsewhere]);
    kit.advance(secs(1));
    let probe = claim_all(&mut kit).await;
    assert_eq!(probe.len(), 1, "one asks");
    kit.advance(secs(5));
    assert!(claim_all(&mut kit).await.is_empty(), "and is waited for");
    let observed = observe(&kit, &[report(&kit, probe[0].0.job, Seen::Failure)]).await;
    assert_eq!(observed.blames, [Blame::Destination]);
    let failed = crate::outcome::Failure::retry("still down");
    kit.end(&probe[0], Outcome::Held(failed)).await;
    assert_eq!(kit.job(probe[0].0.job).await.ledger.failures, 0);
    assert!(claim_all(&mut kit).await.is_empty());
    kit.advance(mins(1));
    let probe = claim_all(&mut kit).await;
    assert_eq!(probe.len(), 1);
    let observed = observe(&kit, &[report(&kit, probe[0].0.job, Seen::Well)]).await;
    assert!(matches!(observed.changes[0].after, Phase::Ramp { .. }));
    kit.end(&probe[0], Outcome::Done(None)).await;
    let mut rest = 0;
    for _ in 0..5 {
        rest += claim_all(&mut kit).await.len();
        kit.advance(secs(1));
    }
    assert_eq!(rest, 4);
}

pub async fn a_probe_whose_process_died_is_not_waited_for_for_ever(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    put_calls(&mut kit, 2).await;
    fail(&kit).await;
    kit.advance(secs(1));
    assert_eq!(kit.crash_with(9).await.len(), 1);
    let mut waited = secs(0);
    while claim_all(&mut kit).await.is_empty() {
        kit.advance(secs(5));
        waited += secs(5);
        assert!(waited <= PROBE_PATIENCE, "nobody asks any more");
    }
}

pub async fn a_retry_after_shuts_it_until_then_and_says_when(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let jobs = put_calls(&mut kit, 2).await;
    let observed = observe(&kit, &[report(&kit, jobs[0], Seen::Pause(secs(5)))]).await;
    assert_eq!(observed.blames, [Blame::Destination]);
    let until = kit.now + secs(5);
    kit.advance(millis(4_999));
    let claim = kit.wants(&[(QUEUE, 9)]);
    let claimed = kit.ask(claim).await;
    assert!(claimed.jobs.is_empty());
    assert_eq!(claimed.next_due, Some(until));
    kit.advance(millis(1));
    assert!(!claim_all(&mut kit).await.is_empty());
}

pub async fn a_rate_is_kept_over_all_who_claim(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    limited(&kit, Limits { rate: Some(Rate::per_second(10)), burst: Some(2), ..Limits::default() });
    let jobs = put_calls(&mut kit, 30).await;
    let free = kit.put(mail(99)).await;
    let begin = kit.now;
    let mut taken: Vec<(Timestamp, JobId)> = Vec::new();
    for round in 0..40 {
        if round % 3 == 0 {
            kit.holder = kit.register().await;
        }
        let now = kit.now;
        taken.extend(ids(&claim_all(&mut kit).await).into_iter().map(|id| (now, id)));
        kit.advance(millis(50));
    }
    let calls: Vec<_> = taken.iter().filter(|(_, id)| *id != free).collect();
    assert_eq!(taken[0].0, begin, "the others do not wait");
    assert!((20..=22).contains(&calls.len()), "{} in two seconds", calls.len());
    assert!(calls.iter().map(|(_, id)| *id).eq(jobs[..calls.len()].iter().copied()), "in order");
    let claim = kit.wants(&[(QUEUE, 9)]);
    let next = kit.ask(claim).await.next_due.expect("more are to come");
    assert!(next <= kit.now + millis(200), "and it is said when");
}

pub async fn what_is_handed_out_before_its_turn_says_when_that_is(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    limited(&kit, Limits { rate: Some(Rate::per_second(20)), burst: Some(2), ..Limits::default() });
    let jobs = put_calls(&mut kit, 40).await;
    let mut begun: Vec<(Timestamp, JobId)> = Vec::new();
    for _ in 0..40 {
        kit.holder = kit.register().await;
        let claim = Claim { ahead: millis(100), ..kit.wants(&[(QUEUE, 9)]) };
        let claimed = kit.ask(claim).await;
        for (lease, job) in &claimed.jobs {
            let turn = claimed.turns.get(&lease.seq).copied().unwrap_or(kit.now);
            assert!(turn >= kit.now && turn <= kit.now + millis(300), "{turn} is not soon");
            begun.push((turn, job.id));
        }
        kit.advance(millis(50));
    }
    assert!(begun.iter().map(|(_, id)| id).eq(&jobs[..begun.len()]), "in order");
    begun.sort();
    for (n, (first, _)) in begun.iter().enumerate() {
        let second = begun[n..].iter().take_while(|(turn, _)| turn.since(*first) < secs(1)).count();
        assert!(second <= 22, "{second} in a second, from {n} on");
    }
    assert!(begun.len() >= 38, "{} in two seconds", begun.len());
}

pub async fn places_are_counted_from_what_runs_and_free_again_when_it_ends_or_dies(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    limited(&kit, Limits { concurrency: Some(2), ..Limits::default() });
    put_calls(&mut kit, 6).await;
    kit.put(mail(7)).await;
    let first = claim_all(&mut kit).await;
    assert_eq!(first.len(), 3, "two, and the one that has no destination");
    let mine: Vec<&Held> = first.iter().filter(|(_, job)| job.extras().destination.is_some()).collect();
    kit.end(mine[0], Outcome::Done(None)).await;
    assert_eq!(claim_all(&mut kit).await.len(), 1);
    let gone = kit.holder;
    kit.advance(LEASE);
    kit.crash(gone).await;
    kit.holder = kit.register().await;
    assert_eq!(claim_all(&mut kit).await.len(), 2, "the dead hold no place");
}

pub async fn first_attempts_go_before_retries_of_the_same_destination(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let retry = kit.put(call(1)).await;
    let held = kit.claim_one().await;
    kit.end(&held, failure()).await;
    kit.advance(BACKOFF);
    let first = kit.put(call(2)).await;
    tell(&kit, Word::Down).await;
    assert!(claim_all(&mut kit).await.is_empty());
    tell(&kit, Word::Up).await;
    kit.advance(secs(1));
    let mut order = ids(&claim_all(&mut kit).await);
    kit.advance(secs(2));
    order.extend(ids(&claim_all(&mut kit).await));
    assert_eq!(order, [first, retry]);
}

pub async fn retries_keep_to_the_budget_until_none_waits_for_it(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    put_calls(&mut kit, 50).await;
    for held in claim_all(&mut kit).await {
        kit.end(&held, failure()).await;
    }
    kit.advance(BACKOFF);
    tell(&kit, Word::Pause).await;
    assert!(claim_all(&mut kit).await.is_empty());
    tell(&kit, Word::Resume).await;
    for _ in 0..5 {
        assert_eq!(
            claim_all(&mut kit).await.len(),
            10,
            "a second's budget, however long the trouble is over"
        );
        kit.advance(secs(30));
    }
}

pub async fn what_is_held_can_be_cancelled_hurried_and_run_out_of_time(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let [cancelled, kept] = [kit.put(call(1)).await, kit.put(call(2)).await];
    let late = kit.put(call(3).deadline(kit.now + secs(30))).await;
    tell(&kit, Word::Down).await;
    assert!(claim_all(&mut kit).await.is_empty());
    kit.steer(Command::Cancel, cancelled).await;
    assert_eq!(kit.name(cancelled).await, StateName::Cancelled);
    kit.steer(Command::RetryNow, kept).await;
    assert!(claim_all(&mut kit).await.is_empty(), "no command opens a gate");
    kit.advance(secs(29));
    let claim = kit.wants(&[(QUEUE, 9)]);
    assert_eq!(kit.ask(claim).await.next_due, Some(kit.now + secs(1)), "its time runs on");
    kit.advance(secs(1));
    assert_eq!(ids(&claim_all(&mut kit).await), [late], "to be buried");
    assert_eq!(door(&kit).await.map(|door| door.held), Some(1));
}

pub async fn held_time_that_does_not_count_moves_the_deadline(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let counted = policy().deadline(mins(1));
    let patient = kit.put(call(1).policy(counted.clone().except_while_held())).await;
    let strict = kit.put(call(2).policy(counted)).await;
    let begin = kit.now;
    tell(&kit, Word::Down).await;
    assert!(claim_all(&mut kit).await.is_empty());
    kit.advance(mins(10));
    let over = claim_all(&mut kit).await;
    assert_eq!(ids(&over), [strict], "to be buried");
    kit.end(&over[0], Outcome::Expired).await;
    assert_eq!(kit.job(patient).await.expires_at(), Some(begin + mins(1)), "as it was, until it is let go");
    tell(&kit, Word::Up).await;
    kit.advance(secs(1));
    let let_go = kit.now;
    let held = kit.claim_one().await;
    assert_eq!((held.0.job, held.1.expires_at()), (patient, Some(let_go + mins(1))));
    assert_eq!(kit.job(patient).await.expires_at(), Some(let_go + mins(1)), "for everybody");
    kit.end(&held, failure()).await;
    assert_eq!(kit.job(patient).await.expires_at(), Some(let_go + mins(1)), "and from now on");
    kit.advance(mins(1));
    let held = kit.claim_one().await;
    assert!(held.1.expires_at().is_some_and(|at| at <= kit.now), "its own waits count");
    kit.end(&held, failure()).await;
    assert!(matches!(kit.state(patient).await, State::Dead { why: GiveUp::Expired, .. }));
}

pub async fn a_policy_that_comes_later_decides_whether_held_time_counts(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let limited = policy().deadline(mins(1));
    let saved = kit.put(call(1).policy(limited.clone())).await;
    let lost = kit.put(call(2).policy(limited.clone().except_while_held())).await;
    tell(&kit, Word::Down).await;
    assert!(claim_all(&mut kit).await.is_empty());
    for (id, policy) in [(saved, limited.clone().except_while_held()), (lost, limited)] {
        let edit = Edit { policy: Some(Arc::new(policy)), by: "a test".into(), ..Default::default() };
        kit.store.operations().edit(id, &edit, kit.now, None).await.expect("it can be corrected");
    }
    assert!(claim_all(&mut kit).await.is_empty());
    kit.advance(mins(1));
    assert_eq!(ids(&claim_all(&mut kit).await), [lost]);
}

pub async fn what_waits_after_a_failure_is_due_when_it_is_hurried(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let [failed, scheduled] = [kit.put(call(1)).await, kit.put(call(2).after(mins(5))).await];
    let held = kit.claim_one().await;
    kit.end(&held, failure()).await;
    let of_door = crate::store::Filter { destination: Some(DOOR.into()), ..Default::default() };
    assert_eq!(kit.apply(Command::Hurry, &of_door, 10).await, [failed]);
    assert_eq!(ids(&claim_all(&mut kit).await), [failed]);
    assert_eq!(kit.name(scheduled).await, StateName::Waiting);
}

pub async fn an_ordering_key_is_kept_through_a_shut_gate(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let mut jobs = Vec::new();
    for number in 0..3 {
        jobs.push(kit.put(call(number).ordering_key("k")).await);
    }
    tell(&kit, Word::Pause).await;
    assert!(claim_all(&mut kit).await.is_empty());
    tell(&kit, Word::Resume).await;
    for id in jobs {
        let held = claim_all(&mut kit).await;
        assert_eq!(ids(&held), [id]);
        kit.end(&held[0], Outcome::Done(None)).await;
    }
}

pub async fn a_job_that_gets_another_destination_leaves_the_line(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    let [moved, stays] = [kit.put(call(1)).await, kit.put(call(2)).await];
    tell(&kit, Word::Down).await;
    assert!(claim_all(&mut kit).await.is_empty());
    let edit = Edit {
        destination: Some("other.example.org".into()),
        labels: Some([("fixed".to_owned(), "yes".to_owned())].into()),
        by: "a test".into(),
        ..Default::default()
    };
    kit.store.operations().edit(moved, &edit, kit.now, None).await.expect("it can be corrected");
    assert_eq!(ids(&claim_all(&mut kit).await), [moved]);
    assert_eq!(kit.name(stays).await, StateName::Waiting);
}

pub async fn what_becomes_of_a_gate_is_in_the_activity_log(store: Arc<dyn Store>) {
    let mut kit = Kit::new(store).await;
    put_calls(&mut kit, 2).await;
    fail(&kit).await;
    tell(&kit, Word::Up).await;
    let lines = kit.store.activity(10).await.expect("activity can be read");
    let texts: Vec<&str> = lines.iter().map(|line| line.message.as_str()).collect();
    assert!(texts[0].contains("is back") && texts[1].contains("is down"), "{texts:?}");
}
