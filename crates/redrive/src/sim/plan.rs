//! What a seed stands for: nodes, queues, policies, jobs, faults, and who does what when.
//!
//! Some kinds of fault are off entirely in some worlds: what hides behind a frequent fault is seen where that is off.

use std::sync::Arc;
use std::time::Duration;

use super::doors::{self, Door};
use crate::clock::{Rng, Timestamp};
use crate::gate::Word;
use crate::job::{Json, NewJob, OnConflict};
use crate::machine::Command;
use crate::outcome::Failure;
use crate::policy::{Jitter, Policy};
use crate::queue::{OnRetry, Queue};
use crate::span::{days, hours, millis, mins, secs};
use crate::testing::CrashPoint;

/// One world before it begins.
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) nodes: Vec<NodePlan>,
    pub(super) queues: Vec<Queue>,
    pub(super) doors: Vec<Door>,
    pub(super) rates: Rates,
    /// Who does what when, by the time since the beginning, in order.
    pub(super) script: Vec<(Duration, Step)>,
}

#[derive(Clone)]
pub(super) struct NodePlan {
    pub(super) lease: Duration,
    pub(super) grace: Duration,
    pub(super) concurrency: usize,
    /// Whether it knows every kind of job while there are faults.
    pub(super) knows_all: bool,
    pub(super) crash: Option<(CrashPoint, usize)>,
}

/// How many of a thousand calls go wrong, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) refused: u64,
    pub(super) unknown: u64,
    pub(super) lost: u64,
    pub(super) late: u64,
}

/// Something that somebody does.
pub(super) enum Step {
    Enqueue(Vec<JobPlan>),
    /// The first is the parent of the others, of which one comes after an earlier one if its bit is set.
    Graph(Vec<JobPlan>, u64),
    /// To the job at this place among those enqueued so far.
    Steer(Command, u64),
    SteerAll(Command, usize),
    Pause(usize),
    Resume(usize),
    /// Of the destination at this place.
    Say(usize, Word),
    Kill(usize),
    Stop(usize),
    Start(usize),
    Freeze(usize, Duration),
}

/// A job before it is enqueued; times count from then.
#[derive(Clone)]
pub(super) struct JobPlan {
    pub(super) number: u64,
    kind: &'static str,
    queue: usize,
    key: Option<u64>,
    on_conflict: OnConflict,
    ordering: Option<u64>,
    priority: i16,
    after: Option<Duration>,
    deadline: Option<Duration>,
    start_by: Option<Duration>,
    timeout: Option<Duration>,
    policy: Option<Policy>,
    outside: bool,
    pub(super) destination: Option<Arc<str>>,
}

/// A kind that every node knows.
pub(super) const COMMON: &str = "common";
/// A kind that some nodes do not know while there are faults.
pub(super) const RARE: &str = "rare";
/// The numbers of jobs that come after each other.
const GRAPHS_FROM: u64 = 10_000;
/// How long faults go on at most.
const FAULTS_MAX: Duration = mins(20);

impl Plan {
    pub(super) fn draw(seed: u64) -> Plan {
        let mut rng = Rng::seeded(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5eed);
        let scale = rng.up_to(3);
        let nodes = (0..=rng.up_to(2)).map(|at| node(at, &mut rng)).collect::<Vec<_>>();
        let queues = (0..=rng.up_to(3)).map(|at| queue(at, scale, &mut rng)).collect::<Vec<_>>();
        let rates = rates(&mut rng);
        let mut script = script(&mut rng, scale, nodes.len(), queues.len());
        graphs(&mut script, scale, queues.len(), &mut rng);
        let lasts = script.last().map_or(Duration::ZERO, |(at, _)| *at);
        let doors = doors::draw(seed, lasts, &mut script);
        Plan { seed, nodes, queues, doors, rates, script }
    }

    /// One more job, for when all is quiet.
    pub(super) fn late_job(&self, number: u64) -> JobPlan {
        let mut rng = Rng::seeded(self.seed ^ number.wrapping_mul(0xa076_1d64_78bd_642f));
        let mut job = job(number, 0, self.queues.len(), &mut rng);
        (job.deadline, job.start_by, job.key) = (None, None, None);
        job.after = one_in(2, &mut rng).then(|| millis(rng.up_to(20_000)));
        job.policy = Some(Policy::fixed(secs(1)).retries(2));
        job.outside = false;
        job
    }
}

impl JobPlan {
    pub(super) fn to_job(&self, queues: &[Queue], now: Timestamp) -> NewJob {
        let payload = Json::parse(&self.number.to_string()).expect("a number is JSON");
        let mut new = NewJob::of_kind(self.kind, payload).queue(&queues[self.queue].name);
        new = new.priority(self.priority).on_conflict(self.on_conflict);
        if let Some(key) = self.key {
            new = new.key(format!("k{key}"));
        }
        if let Some(key) = self.ordering {
            new = new.ordering_key(format!("o{key}"));
        }
        if let Some(after) = self.after {
            new = new.after(after);
        }
        if let Some(deadline) = self.deadline {
            new = new.deadline(now + deadline);
        }
        if let Some(start_by) = self.start_by {
            new = new.start_by(now + start_by);
        }
        if let Some(timeout) = self.timeout {
            new = new.timeout(timeout);
        }
        if let Some(policy) = &self.policy {
            new = new.policy(policy.clone());
        }
        if let Some(destination) = &self.destination {
            new = new.destination(destination.clone());
        }
        if self.outside {
            new = new.failed_outside(Failure::retry("it failed where it came from"));
        }
        new
    }
}

fn one_in(n: u64, rng: &mut Rng) -> bool {
    rng.up_to(n - 1) == 0
}

fn node(at: u64, rng: &mut Rng) -> NodePlan {
    let crash = match rng.up_to(9) {
        0 => Some(CrashPoint::AfterClaim),
        1 => Some(CrashPoint::AfterHandler),
        2 => Some(CrashPoint::AfterSettle),
        _ => None,
    };
    let nth = 1 + rng.up_to(8) as usize;
    let longest = if one_in(2, rng) { 58_000 } else { 8_000 };
    NodePlan {
        lease: millis(2_000 + rng.up_to(longest)),
        grace: millis(rng.up_to(5_000)),
        concurrency: 1 + rng.up_to(7) as usize,
        knows_all: at == 0 || !one_in(3, rng),
        crash: crash.map(|point| (point, nth)),
    }
}

fn queue(at: u64, scale: u64, rng: &mut Rng) -> Queue {
    let mut queue = Queue::new(&format!("q{at}")).policy(policy(scale, rng));
    if one_in(3, rng) {
        queue = queue.fifo();
    }
    if one_in(2, rng) {
        queue = queue.on_retry(OnRetry::LetPass);
    }
    if one_in(3, rng) {
        queue = queue.capacity(3 + rng.up_to(12));
    }
    queue
}

/// A delay that fits the world: milliseconds to seconds, to minutes, to hours, to thirty days.
fn delay(scale: u64, rng: &mut Rng) -> Duration {
    let longest = [secs(10), mins(5), hours(6), days(30)][scale.min(3) as usize];
    let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let longest = longest >> rng.up_to(10);
    millis(1 + rng.up_to(longest))
}

fn policy(scale: u64, rng: &mut Rng) -> Policy {
    let (short, long) = (delay(scale, rng), delay(scale, rng));
    let count = 1 + u32::try_from(rng.up_to(5)).unwrap_or(0);
    let policy = match rng.up_to(5) {
        0 => Policy::immediate(),
        1 => Policy::fixed(short),
        2 => Policy::linear(short, long),
        3 => Policy::fibonacci(short),
        4 => Policy::schedule([short, long]),
        _ => Policy::exponential(short.min(long)..=short.max(long)),
    };
    let policy = if one_in(2, rng) { policy.attempts(count) } else { policy.retries(count) };
    let policy = if one_in(4, rng) { policy.jitter(Jitter::full()) } else { policy };
    let policy = if one_in(6, rng) { policy.within(delay(scale, rng) * 4 + secs(60)) } else { policy };
    let policy = if one_in(5, rng) { policy.timeout(millis(20 + rng.up_to(20_000))) } else { policy };
    Policy { max_crashes: 1 + u32::try_from(rng.up_to(3)).unwrap_or(0), ..policy }
}

fn rates(rng: &mut Rng) -> Rates {
    let mut rate = |most: u64| if one_in(3, rng) { 0 } else { rng.up_to(most) };
    Rates { refused: rate(60), unknown: rate(60), lost: rate(15), late: rate(150) }
}

fn job(number: u64, scale: u64, queues: usize, rng: &mut Rng) -> JobPlan {
    let rare = |n: u64, rng: &mut Rng| one_in(n, rng);
    JobPlan {
        number,
        kind: if rare(6, rng) { RARE } else { COMMON },
        queue: rng.up_to(queues as u64 - 1) as usize,
        key: rare(4, rng).then(|| rng.up_to(3)),
        on_conflict: [OnConflict::Ignore, OnConflict::Replace, OnConflict::Reject][rng.up_to(2) as usize],
        ordering: rare(4, rng).then(|| rng.up_to(2)),
        priority: if rare(4, rng) { i16::try_from(rng.up_to(4)).unwrap_or(0) - 2 } else { 0 },
        after: rare(3, rng).then(|| delay(scale, rng)),
        deadline: rare(7, rng).then(|| delay(scale, rng) * 2 + secs(5)),
        start_by: rare(9, rng).then(|| delay(scale, rng) + secs(5)),
        timeout: rare(8, rng).then(|| millis(10 + rng.up_to(10_000))),
        policy: rare(3, rng).then(|| policy(scale, rng)),
        outside: rare(12, rng),
        destination: None,
    }
}

fn script(rng: &mut Rng, scale: u64, nodes: usize, queues: usize) -> Vec<(Duration, Step)> {
    let lasts = 60_000 + rng.up_to(FAULTS_MAX.as_millis() as u64 - 60_000) / (1 + rng.up_to(4));
    let at = |rng: &mut Rng| millis(rng.up_to(lasts));
    let mut script = Vec::new();
    let jobs = 10 + rng.up_to(50);
    let mut number = 0;
    while number < jobs {
        let batch = if one_in(4, rng) { 2 + rng.up_to(5) } else { 1 };
        let batch: Vec<JobPlan> =
            (number..number + batch).map(|number| job(number, scale, queues, rng)).collect();
        number += batch.len() as u64;
        script.push((at(rng), Step::Enqueue(batch)));
    }
    for _ in 0..rng.up_to(25) {
        let command =
            [Command::Cancel, Command::RetryNow, Command::Redrive, Command::Delete][rng.up_to(3) as usize];
        let step = match one_in(6, rng) {
            true => Step::SteerAll(command, rng.up_to(queues as u64 - 1) as usize),
            false => Step::Steer(command, rng.next_u64()),
        };
        script.push((at(rng), step));
    }
    for _ in 0..rng.up_to(2) {
        let (queue, begin) = (rng.up_to(queues as u64 - 1) as usize, at(rng));
        script.push((begin, Step::Pause(queue)));
        script.push((begin + millis(rng.up_to(120_000)), Step::Resume(queue)));
    }
    if !one_in(5, rng) {
        for _ in 0..rng.up_to(6) {
            trouble(&mut script, at(rng), rng.up_to(nodes as u64 - 1) as usize, rng);
        }
    }
    script.push((millis(lasts), Step::Resume(0)));
    script.sort_by_key(|(at, _)| *at);
    script
}

/// Jobs that come after each other, among the others.
fn graphs(script: &mut Vec<(Duration, Step)>, scale: u64, queues: usize, rng: &mut Rng) {
    let lasts = script.last().map_or(0, |(at, _)| u64::try_from(at.as_millis()).unwrap_or(0));
    for graph in 0..rng.up_to(3) {
        let first = GRAPHS_FROM + graph * 100;
        let jobs = (first..=first + 1 + rng.up_to(5)).map(|number| {
            let job = job(number, scale, queues, rng);
            JobPlan { key: None, ordering: None, after: None, start_by: None, outside: false, ..job }
        });
        let jobs = jobs.collect();
        let ties = rng.next_u64();
        script.push((millis(rng.up_to(lasts)), Step::Graph(jobs, ties)));
    }
    script.sort_by_key(|(at, _)| *at);
}

/// A node dies, is stopped, or hangs, and comes back.
fn trouble(script: &mut Vec<(Duration, Step)>, begin: Duration, node: usize, rng: &mut Rng) {
    match rng.up_to(2) {
        0 => script.push((begin, Step::Freeze(node, millis(1_000 + rng.up_to(180_000))))),
        what => {
            script.push((begin, if what == 1 { Step::Kill(node) } else { Step::Stop(node) }));
            script.push((begin + millis(rng.up_to(90_000)), Step::Start(node)));
        }
    }
}

/// The names of the queues, in the order in which the plan counts them.
pub(super) fn names(queues: &[Queue]) -> Vec<Arc<str>> {
    queues.iter().map(|queue| queue.name.clone()).collect()
}
