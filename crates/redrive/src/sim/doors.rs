//! Destinations of a simulated world: what they bear, when they are out, and what claims owe them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::act::Act;
use super::book::{Book, Entry, Verdict, demand};
use super::faulty::Faulty;
use super::plan::Step;
use crate::clock::{Rng, Timestamp};
use crate::error::Result;
use crate::gate::{Blame, Change, HOLDS_MAX, Limits, Phase, Rate, Report, Rules, Seen, Why, Word};
use crate::job::{Job, Reason, State};
use crate::span::{millis, secs};
use crate::store::{Destination, Destinations, Observed, Store};

/// One of them before the world begins.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) name: Arc<str>,
    pub(super) limits: Limits,
    /// From when to when nobody answers, since the beginning.
    outages: Vec<(Duration, Duration)>,
    /// What it asks for while it is out, if it can still say so.
    pause: Option<Duration>,
}

/// What the book knows of one.
#[derive(Default)]
pub(super) struct Owed {
    limits: Limits,
    /// When jobs were handed out for it, in order.
    went: Vec<Timestamp>,
    /// It has asked for a pause until then.
    pause_until: Timestamp,
    is_down: bool,
    is_paused: bool,
}

/// The destinations of a world, and who says what of them when. Drawn apart: the rest of the world is the same without.
pub(super) fn draw(seed: u64, lasts: Duration, script: &mut Vec<(Duration, Step)>) -> Vec<Door> {
    let mut rng = Rng::seeded(seed.wrapping_mul(0x9fb2_1c65_1e98_df25) ^ 0xd007);
    let lasts = u64::try_from(lasts.as_millis()).unwrap_or(0);
    let count = rng.up_to(2);
    let doors: Vec<Door> = (0..count).map(|at| door(at, lasts, &mut rng)).collect();
    if doors.is_empty() {
        return doors;
    }
    let jobs = script.iter_mut().filter_map(|(_, step)| match step {
        Step::Enqueue(jobs) | Step::Graph(jobs, _) => Some(jobs),
        _ => None,
    });
    for job in jobs.flatten() {
        job.destination = (rng.up_to(2) > 0).then(|| doors[rng.up_to(count - 1) as usize].name.clone());
    }
    for _ in 0..rng.up_to(3) {
        let (begin, at) = (millis(rng.up_to(lasts)), rng.up_to(count - 1) as usize);
        let [stop, go] = [[Word::Down, Word::Up], [Word::Pause, Word::Resume]][rng.up_to(1) as usize];
        script.push((begin, Step::Say(at, stop)));
        script.push((begin + millis(rng.up_to(120_000)), Step::Say(at, go)));
    }
    script.sort_by_key(|(at, _)| *at);
    doors
}

fn door(at: u64, lasts: u64, rng: &mut Rng) -> Door {
    let count = |most: u64, rng: &mut Rng| 1 + u32::try_from(rng.up_to(most - 1)).unwrap_or(0);
    let mut limits = Limits { breaker: count(4, rng), ..Limits::default() };
    match rng.up_to(4) {
        0 => limits.min_gap = Some(millis(100 + rng.up_to(5_000))),
        1 => limits.concurrency = Some(count(2, rng)),
        2 => (limits.rate, limits.burst) = (Some(Rate::per_second(count(3, rng))), Some(count(3, rng))),
        _ => {}
    }
    let outages = (0..rng.up_to(2)).map(|_| {
        let begin = millis(rng.up_to(lasts));
        (begin, begin + millis(rng.up_to(lasts / 2)))
    });
    let outages = outages.collect();
    let pause = (rng.up_to(2) == 0).then(|| millis(1 + rng.up_to(30_000)));
    Door { name: format!("door{at}").into(), limits, outages, pause }
}

impl Door {
    /// What becomes of a call, if it is out.
    pub(super) fn fails(&self, elapsed: Duration) -> Option<Act> {
        let is_out = self.outages.iter().any(|(begin, end)| (*begin..*end).contains(&elapsed));
        is_out.then(|| self.pause.map_or(Act::Transient, Act::RetryAfter))
    }
}

impl Owed {
    /// A time and how many may begin within ten such times.
    fn spacing(&self) -> Option<(Duration, u32)> {
        let Limits { min_gap, rate, burst, .. } = &self.limits;
        let by_rate = rate.map(|rate| (secs(1).div_f64(rate.as_per_second()), burst.unwrap_or(1)));
        min_gap.map(|gap| (gap, 1)).or(by_rate)
    }

    fn went(&mut self, now: Timestamp) -> Verdict {
        let at = self.went.partition_point(|before| *before <= now);
        self.went.insert(at, now);
        let Some((gap, burst)) = self.spacing() else { return Ok(()) };
        let window = gap * 10;
        for (n, from) in self.went.iter().enumerate().filter(|(_, from)| **from + window >= now) {
            let count = self.went[n..].iter().take_while(|at| at.since(*from) <= window).count();
            let most = 10 + burst as usize;
            demand!(count <= most, "{count} jobs went within {window:?} of {from}, and {most} may");
        }
        Ok(())
    }
}

impl Book {
    pub(super) fn owes(&mut self, doors: &[Door]) {
        let owed = |door: &Door| Owed { limits: door.limits.clone(), ..Owed::default() };
        self.doors = doors.iter().map(|door| (door.name.clone(), owed(door))).collect();
    }

    /// A job is handed out that will call its destination.
    pub(super) fn goes_to(&mut self, job: &Job, now: Timestamp) -> Verdict {
        let Some(to) = &job.extras().destination else { return Ok(()) };
        let there =
            |entry: &&Entry| entry.running.is_some() && entry.job.extras().destination == Some(to.clone());
        let calls = self.live().filter(there).count();
        let Some(door) = self.doors.get_mut(to) else { return Ok(()) };
        let id = job.id;
        demand!(!door.is_down, "job {id} went to {to}, which is said to be down");
        demand!(!door.is_paused, "job {id} went to {to}, which is paused");
        let until = door.pause_until;
        demand!(now >= until, "job {id} went to {to} at {now}, which asked for a pause until {until}");
        let places = door.limits.concurrency.map_or(usize::MAX, |places| places as usize);
        demand!(calls < places, "job {id} went to {to}, where all of {places} places are taken");
        door.went(now)
    }

    /// While a gate is shut nothing goes; when it is time to ask, one does.
    pub(super) fn obeyed(&self, before: &[Destination], jobs: &[&Job], now: Timestamp) -> Verdict {
        for Destination { name, gate, .. } in before {
            let most = match gate.phase {
                _ if gate.is_shut(now) => 0,
                Phase::Shut { why: Why::RetryAfter, .. } => continue,
                Phase::Shut { .. } | Phase::Probing { .. } => 1,
                _ => continue,
            };
            let over = |job: &Job| job.expires_at().is_some_and(|at| at <= now);
            let went =
                jobs.iter().filter(|job| job.extras().destination.as_ref() == Some(name) && !over(job));
            let went = went.count();
            demand!(went <= most, "{went} jobs went to {name}, and {most} may: {:?}", gate.phase);
        }
        Ok(())
    }

    fn observed(&mut self, reports: &[Report], answer: &Observed, after: &[Destination]) -> Verdict {
        demand!(answer.blames.len() == reports.len(), "{} reports, other answers", reports.len());
        let mut last: BTreeMap<&str, (&Report, Blame)> = BTreeMap::new();
        for (report, blame) in reports.iter().zip(&answer.blames) {
            last.insert(&report.destination, (report, *blame));
            let Some(door) = self.doors.get_mut(&report.destination) else { continue };
            if let Seen::Pause(wait) = report.seen {
                let until = report.ended + wait.min(door.limits.retry_after_max);
                door.pause_until = door.pause_until.max(until);
                self.seen.insert("asked for a pause");
            }
        }
        for (name, (report, blame)) in last {
            // One that only a person has stopped has not failed.
            let is_down =
                |door: &Destination| matches!(door.gate.phase, Phase::Shut { .. } | Phase::Probing { .. });
            let is_shut = after.iter().any(|door| *door.name == *name && is_down(door));
            let is_its = report.seen != Seen::Well && is_shut && report.holds < HOLDS_MAX;
            demand!(
                !is_its || blame == Blame::Destination,
                "job {} pays for {name}, which is shut",
                report.job
            );
        }
        Ok(())
    }

    fn told(&mut self, name: &str, word: Word) -> Verdict {
        let Some(door) = self.doors.get_mut(name) else { return Ok(()) };
        match word {
            Word::Up => (door.is_down, door.pause_until) = (false, Timestamp::EPOCH),
            Word::Down => door.is_down = true,
            Word::Pause => door.is_paused = true,
            Word::Resume => door.is_paused = false,
        }
        self.seen.insert(if door.is_down { "said to be down" } else { "said of a destination" });
        Ok(())
    }
}

impl Entry {
    /// That a due job stands in its destination's line is the store's to say.
    pub(super) fn stands_in_line(&mut self, stored: &Job) {
        let is_for_one = self.job.extras().destination.is_some();
        if let State::Waiting { due_at, reason } = &mut self.job.state
            && let State::Waiting { due_at: stored, reason: Reason::Held } = &stored.state
            && is_for_one
            && due_at == stored
            && *reason != Reason::Dependency
        {
            *reason = Reason::Held;
        }
    }

    /// Whether it was in that line until it was handed out now is too, and then for how long is known.
    pub(super) fn leaves_line(&mut self, stored: &Job, now: Timestamp) {
        let mut left = self.job.clone();
        left.leave_line(now);
        if left.extras().in_line == stored.extras().in_line {
            self.job = left;
        }
    }
}

#[async_trait]
impl<S: Store + ?Sized> Destinations for Faulty<S> {
    fn limit(&self, rules: Arc<Rules>) {
        self.inner.destinations().limit(rules);
    }

    fn rules(&self) -> Arc<Rules> {
        self.inner.destinations().rules()
    }

    async fn observe(&self, reports: &[Report], now: Timestamp) -> Result<Observed> {
        let fate = self.enter().await?;
        let answer = self.inner.destinations().observe(reports, now).await?;
        let after = self.inner.destinations().list(now).await?;
        let parts = reports.iter().zip(&answer.blames);
        let parts =
            parts.map(|(report, blame)| format!(" {} {:?} {blame:?}", report.destination, report.seen));
        let line = format!("observe{}", parts.collect::<String>());
        self.note(line, false, |book| book.observed(reports, &answer, &after)).await;
        self.leave(fate, Ok(answer)).await
    }

    async fn tell(&self, destination: &str, word: Word, now: Timestamp) -> Result<Option<Change>> {
        let fate = self.enter().await?;
        let answer = self.inner.destinations().tell(destination, word, now).await?;
        self.note(format!("{destination} is {word:?}"), false, |book| book.told(destination, word)).await;
        self.leave(fate, Ok(answer)).await
    }

    async fn list(&self, now: Timestamp) -> Result<Vec<Destination>> {
        self.inner.destinations().list(now).await
    }
}
