//! What others do, as plain models: no engine, the same destination, the same workers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use redrive::Rng;

use super::course::{Count, Course};
use super::scenario::Scenario;
use super::service::{Says, Service, Try};

/// Attempts that a job has.
const ATTEMPTS_MAX: u32 = 25;
/// The first pause of plain exponential back-off, and the longest.
const BASE_MS: u64 = 1_000;
const CAP_MS: u64 = 15 * 60 * 1_000;
/// Failures in a row that open the naive breaker, and for how long.
const BREAKER: u32 = 10;
const OPEN_FOR: Duration = Duration::from_secs(30);

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    FullJitter,
    Sidekiq,
    River,
    NaiveBreaker,
}

impl Rule {
    pub(super) const ALL: [Rule; 4] = [Rule::FullJitter, Rule::Sidekiq, Rule::River, Rule::NaiveBreaker];

    pub(super) fn name(self) -> &'static str {
        match self {
            Rule::FullJitter => "exponential, full jitter",
            Rule::Sidekiq => "Sidekiq's formula",
            Rule::River => "River's formula",
            Rule::NaiveBreaker => "breaker without ramp",
        }
    }

    /// The pause after so many failures; nothing if the job is given up.
    fn pause(self, failures: u32, rng: &mut Rng) -> Option<Duration> {
        let power = |base: u32| u64::from(base).pow(4);
        let ms = match self {
            // 25 retries, and not attempts.
            Rule::Sidekiq if failures > ATTEMPTS_MAX => return None,
            Rule::Sidekiq => {
                let count = failures - 1;
                (power(count) + 15 + rng.up_to(9) * u64::from(count + 1)) * 1_000
            }
            _ if failures >= ATTEMPTS_MAX => return None,
            Rule::River => {
                let about = power(failures) * 1_000;
                about * 9 / 10 + rng.up_to(about / 5)
            }
            Rule::FullJitter | Rule::NaiveBreaker => {
                rng.up_to(BASE_MS.saturating_mul(1 << (failures - 1).min(30)).min(CAP_MS))
            }
        };
        Some(Duration::from_millis(ms))
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// A job may be tried again.
    Ready(u32),
    Ended(u32, End),
    /// The breaker lets one through.
    HalfOpen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Well,
    Failed,
}

#[derive(Clone, Copy, PartialEq)]
enum Breaker {
    Closed { failing: u32 },
    Open,
    HalfOpen { asking: bool },
}

struct World<'s> {
    scenario: &'s Scenario,
    rule: Rule,
    rng: Rng,
    service: Service,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    order: u64,
    /// Of each job, its failures and when it came in.
    jobs: Vec<(u32, Duration)>,
    ready: VecDeque<u32>,
    free: usize,
    breaker: Breaker,
    count: Count,
}

pub(super) fn run(scenario: &Scenario, rule: Rule) -> Course {
    let mut world = World {
        scenario,
        rule,
        rng: Rng::seeded(scenario.seed ^ 0x07e5),
        service: Service::new(scenario.clone()),
        events: BinaryHeap::new(),
        order: 0,
        jobs: Vec::new(),
        ready: VecDeque::new(),
        free: scenario.concurrency,
        breaker: Breaker::Closed { failing: 0 },
        count: Count::default(),
    };
    for _ in 0..scenario.jobs {
        world.arrives(Duration::ZERO);
    }
    world.await_arrival();
    world.start(Duration::ZERO);
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        if world.count.is_over(scenario, now) {
            break;
        }
        world.happens(event, now);
        world.start(now);
        world.count.look(scenario, now);
    }
    Course::of(rule.name(), scenario, &world.service.seen, &world.count)
}

impl World<'_> {
    fn plan(&mut self, at: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn arrives(&mut self, now: Duration) {
        self.ready.push_back(u32::try_from(self.jobs.len()).unwrap_or(u32::MAX));
        self.jobs.push((0, now));
        self.count.arrived += 1;
    }

    fn await_arrival(&mut self) {
        let rate = self.scenario.arrivals.0;
        let arrived = self.count.arrived - self.scenario.jobs;
        let at = Duration::from_secs_f64((arrived + 1) as f64 / rate.max(1e-9));
        if rate > 0.0 && at <= self.scenario.arrivals_until() {
            self.plan(at, Event::Arrival);
        }
    }

    fn happens(&mut self, event: Event, now: Duration) {
        match event {
            Event::Arrival => {
                self.arrives(now);
                self.await_arrival();
            }
            Event::Ready(job) => self.ready.push_back(job),
            Event::HalfOpen => self.breaker = Breaker::HalfOpen { asking: false },
            Event::Ended(job, end) => {
                self.free += 1;
                self.learn(end, now);
                match end {
                    End::Well => self.count.done += 1,
                    End::Failed => self.failed(job, now),
                }
            }
        }
    }

    fn failed(&mut self, job: u32, now: Duration) {
        self.count.failures += 1;
        let (failures, _) = &mut self.jobs[job as usize];
        *failures += 1;
        match self.rule.pause(*failures, &mut self.rng) {
            Some(pause) => self.plan(now + pause, Event::Ready(job)),
            None => self.count.dead += 1,
        }
    }

    fn learn(&mut self, end: End, now: Duration) {
        if self.rule != Rule::NaiveBreaker {
            return;
        }
        self.breaker = match (self.breaker, end) {
            (Breaker::Open, _) => return,
            (_, End::Well) => Breaker::Closed { failing: 0 },
            (Breaker::Closed { failing }, End::Failed) if failing + 1 < BREAKER => {
                Breaker::Closed { failing: failing + 1 }
            }
            (_, End::Failed) => {
                self.plan(now + OPEN_FOR, Event::HalfOpen);
                Breaker::Open
            }
        };
    }

    /// Whether the breaker lets one through.
    fn may_go(&mut self) -> bool {
        match &mut self.breaker {
            Breaker::Closed { .. } => true,
            Breaker::Open => false,
            Breaker::HalfOpen { asking } => !std::mem::replace(asking, true),
        }
    }

    /// Workers take what is ready.
    fn start(&mut self, now: Duration) {
        while self.free > 0 && !self.ready.is_empty() && self.may_go() {
            let Some(job) = self.ready.pop_front() else { return };
            self.free -= 1;
            let which = match self.jobs[job as usize] {
                (0, from) => Try::First(from),
                _ => Try::Retry,
            };
            let answer = self.service.call(which, now);
            let end = if answer.says == Says::Done { End::Well } else { End::Failed };
            self.plan(now + answer.takes, Event::Ended(job, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_give_the_pauses_that_their_authors_document() {
        let mut rng = Rng::seeded(1);
        let mut seconds =
            |rule: Rule, failures| rule.pause(failures, &mut rng).map(|pause| pause.as_secs_f64());
        for failures in 1..=24 {
            let count = f64::from(failures - 1);
            let sidekiq = seconds(Rule::Sidekiq, failures).unwrap();
            assert!((count.powi(4) + 15.0..=count.powi(4) + 15.0 + 9.0 * (count + 1.0)).contains(&sidekiq));
            let about = f64::from(failures).powi(4);
            assert!((about * 0.9..=about * 1.1).contains(&seconds(Rule::River, failures).unwrap()));
            assert!(
                seconds(Rule::FullJitter, failures).unwrap()
                    <= 2f64.powi(i32::try_from(failures).unwrap() - 1).min(900.0)
            );
        }
        assert_eq!(seconds(Rule::River, 25), None);
        assert!(seconds(Rule::Sidekiq, 25).is_some() && seconds(Rule::Sidekiq, 26).is_none());
    }
}
