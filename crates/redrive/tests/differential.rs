//! The same operations in any order, on memory and on each database, have the same answers and leave the same jobs.
//!
//! Sequences are random and repeatable: as many as `REDRIVE_DIFF_CASES` says in a long run. A
//! sequence that fails is shortened to what is needed, and printed one operation a line.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestCaseResult, TestRng, TestRunner};
use redrive::{
    Admission, Again, Claim, ClaimId, Claimed, Command, Expiry, Failure, Filter, HolderId, Job, JobId, Json,
    Lease, MemoryStore, NewJob, OnConflict, OnRetry, Outcome, Page, Policy, PostgresStore, Queue,
    QueueCounts, Reason, Renewal, Retention, Rng, Settled, Settlement, SqliteOptions, SqliteStore, State,
    StateName, Store, Tally, Timestamp, Want, admit, secs, settle,
};
use tempfile::TempDir;
use tokio::sync::OnceCell;

const OPERATIONS_MAX: usize = 60;
/// Jobs of the first are strictly in order, those of the second let each other pass.
const QUEUES: [(&str, OnRetry); 2] = [("strict", OnRetry::Block), ("passing", OnRetry::LetPass)];
const CAPACITY: u64 = 8;

#[test]
fn memory_and_sqlite_do_the_same_whatever_is_done_to_them() {
    compare(cases(200), async || Other::Sqlite(Sqlite::new().await));
}

#[test]
fn memory_and_postgres_do_the_same_whatever_is_done_to_them() {
    let database = OnceCell::new();
    let database = &database;
    compare(cases(30), async || {
        let database = database.get_or_init(redrive_testbed::database).await;
        Other::Postgres(Box::new(Postgres::on(database.url()).await))
    });
}

fn compare(cases: u32, open: impl AsyncFn() -> Other) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sequences = vec(operation(), 1..OPERATIONS_MAX).prop_map(Sequence);
    let outcome = runner.run(&sequences, |Sequence(operations)| {
        runtime.block_on(async {
            let mut pair = Pair::new(open().await);
            for operation in operations {
                pair.step(&operation).await.map_err(|error| at(&operation, error))?;
                pair.same_jobs().await.map_err(|error| at(&operation, error))?;
            }
            pair.same_histories().await
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a test runs is for its caller to say")]
fn cases(usual: u32) -> u32 {
    std::env::var("REDRIVE_DIFF_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

fn at(operation: &Operation, error: TestCaseError) -> TestCaseError {
    TestCaseError::fail(format!("at {operation:?}: {error}"))
}

// ---- what is done ---------------------------------------------------------------------------------------------

#[derive(Clone)]
struct Sequence(Vec<Operation>);

impl Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .enumerate()
            .try_for_each(|(number, operation)| write!(f, "\n  {number:>2} {operation:?}"))
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Enqueue(Vec<Spec>),
    /// A parent with nodes, of which one comes after an earlier one if its bit is set.
    Graph {
        nodes: Vec<Spec>,
        edges: u8,
    },
    /// Sends a job again, counted from the newest.
    Again(usize),
    Claim {
        holder: usize,
        strict: usize,
        passing: usize,
        suspect: bool,
    },
    /// Settles something that was claimed at any time, counted from the newest: the same again, or late, as it comes.
    Settle {
        newest: usize,
        how: How,
    },
    /// Settles what one holder was given last, in one call.
    SettleAll {
        holder: usize,
        how: How,
    },
    Renew {
        holder: usize,
        seconds: u64,
    },
    /// Reads which leases are over, for a later `Expire`.
    Look,
    /// Ends a holder as the last look saw it, however long ago.
    Expire {
        holder: usize,
    },
    Apply {
        command: Command,
        to: Which,
        limit: usize,
    },
    List(Which),
    Pause {
        queue: usize,
        paused: bool,
    },
    Prune {
        succeeded: u64,
        cancelled: u64,
        dead: Option<u64>,
    },
    Advance(u64),
    /// Opens the file again, if nothing runs.
    Reopen,
}

#[derive(Clone, Debug)]
struct Spec {
    queue: usize,
    kind: bool,
    priority: i16,
    key: Option<(u8, OnConflict)>,
    order: Option<u8>,
    after: u64,
    deadline: Option<u64>,
    start_by: Option<u64>,
    policy: usize,
    capacity: bool,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Done,
    Output,
    Failed,
    Fatal,
    RetryAfter,
    Snooze(u64),
    Lost,
    Interrupted,
    Unhandled,
    Expired,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    All,
    Newest(usize),
    Queue(usize),
    State(StateName),
    States(StateName, StateName),
    Key(u8),
    Kind(bool),
    Label,
    Fingerprint(bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    let holder = 0..2usize;
    prop_oneof![
        8 => vec(spec(), 1..4).prop_map(Operation::Enqueue),
        3 => (vec(spec(), 2..5), any::<u8>()).prop_map(|(nodes, edges)| Operation::Graph { nodes, edges }),
        1 => (0..6usize).prop_map(Operation::Again),
        10 => (holder.clone(), 0..4usize, 0..4usize, any::<bool>())
            .prop_map(|(holder, strict, passing, suspect)| Operation::Claim { holder, strict, passing, suspect }),
        10 => (0..6usize, how()).prop_map(|(newest, how)| Operation::Settle { newest, how }),
        3 => (holder.clone(), how()).prop_map(|(holder, how)| Operation::SettleAll { holder, how }),
        2 => (holder.clone(), 0..40u64).prop_map(|(holder, seconds)| Operation::Renew { holder, seconds }),
        2 => Just(Operation::Look),
        3 => holder.prop_map(|holder| Operation::Expire { holder }),
        4 => (command(), which(), 0..4usize)
            .prop_map(|(command, to, limit)| Operation::Apply { command, to, limit }),
        2 => which().prop_map(Operation::List),
        2 => (0..2usize, any::<bool>()).prop_map(|(queue, paused)| Operation::Pause { queue, paused }),
        1 => (0..30u64, 0..30u64, weighted(0.3, 0..30u64))
            .prop_map(|(succeeded, cancelled, dead)| Operation::Prune { succeeded, cancelled, dead }),
        6 => prop_oneof![0..3u64, 0..30u64].prop_map(Operation::Advance),
        1 => Just(Operation::Reopen),
    ]
}

fn spec() -> impl Strategy<Value = Spec> {
    let conflict = prop_oneof![Just(OnConflict::Ignore), Just(OnConflict::Replace), Just(OnConflict::Reject)];
    (
        (0..2usize, any::<bool>(), -1..=1i16, weighted(0.3, (0..3u8, conflict)), weighted(0.5, 0..2u8)),
        prop_oneof![3 => Just(0), 1 => 0..20u64],
        (weighted(0.2, 1..40u64), weighted(0.1, 1..40u64), 0..3usize, weighted(0.2, Just(()))),
    )
        .prop_map(
            |((queue, kind, priority, key, order), after, (deadline, start_by, policy, capacity))| Spec {
                queue,
                kind,
                priority,
                key,
                order,
                after,
                deadline,
                start_by,
                policy,
                capacity: capacity.is_some(),
            },
        )
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => Just(How::Done),
        1 => Just(How::Output),
        4 => Just(How::Failed),
        1 => Just(How::Fatal),
        1 => Just(How::RetryAfter),
        1 => (0..12u64).prop_map(How::Snooze),
        1 => Just(How::Lost),
        1 => Just(How::Interrupted),
        1 => Just(How::Unhandled),
        1 => Just(How::Expired),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        3 => Just(Command::Cancel),
        2 => Just(Command::RetryNow),
        3 => Just(Command::Redrive),
        1 => Just(Command::Delete),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    let state = || {
        prop_oneof![
            Just(StateName::Waiting),
            Just(StateName::Running),
            Just(StateName::Succeeded),
            Just(StateName::Dead),
            Just(StateName::Cancelled),
        ]
    };
    prop_oneof![
        1 => Just(Which::All),
        4 => (0..8usize).prop_map(Which::Newest),
        1 => (0..2usize).prop_map(Which::Queue),
        3 => state().prop_map(Which::State),
        1 => (state(), state()).prop_map(|(a, b)| Which::States(a, b)),
        1 => (0..3u8).prop_map(Which::Key),
        1 => any::<bool>().prop_map(Which::Kind),
        1 => Just(Which::Label),
        1 => any::<bool>().prop_map(Which::Fingerprint),
    ]
}

// ---- the two stores, and what is known of them ----------------------------------------------------------------

/// A database that is compared with memory.
enum Other {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

struct Sqlite {
    /// Always there but while it is opened again.
    store: Option<SqliteStore>,
    dir: TempDir,
}

impl Sqlite {
    async fn new() -> Sqlite {
        let dir = tempfile::tempdir().unwrap();
        Sqlite { store: Some(open(&dir).await), dir }
    }
}

struct Postgres {
    store: PostgresStore,
    url: String,
}

impl Postgres {
    /// On an emptied database: quicker than a new one for each sequence.
    async fn on(url: &str) -> Postgres {
        drop(PostgresStore::connect(url).await.unwrap());
        let client = redrive_testbed::connect(url).await.unwrap();
        let empty = "TRUNCATE redrive.queues, redrive.bands, redrive.policies, redrive.jobs, redrive.live, redrive.keys, \
                     redrive.done, redrive.dead, redrive.attempts, redrive.holders, redrive.claims, redrive.tallies, \
                     redrive.activity, redrive.edges";
        client.batch_execute(empty).await.unwrap();
        Postgres { store: PostgresStore::connect(url).await.unwrap(), url: url.into() }
    }
}

impl Other {
    fn store(&self) -> &dyn Store {
        match self {
            Other::Sqlite(Sqlite { store, .. }) => store.as_ref().unwrap(),
            Other::Postgres(postgres) => &postgres.store,
        }
    }
}

struct Pair {
    memory: MemoryStore,
    other: Other,
    now: Timestamp,
    rng: Rng,
    policies: [Policy; 3],
    sent: Vec<Admission>,
    holders: [Option<HolderId>; 2],
    /// Everything that was ever claimed.
    claimed: Vec<Twin>,
    /// What each holder claimed last.
    last: [Vec<Twin>; 2],
    /// What the last look saw each holder hold.
    seen: [Vec<Twin>; 2],
}

/// The same claimed job in both stores.
#[derive(Clone)]
struct Twin {
    memory: (Lease, Job),
    other: (Lease, Job),
}

fn same<T: PartialEq + Debug>(what: &str, memory: T, other: T) -> TestCaseResult {
    if memory == other {
        return Ok(());
    }
    Err(TestCaseError::fail(format!("{what} differ\n  memory {memory:?}\n  other  {other:?}")))
}

/// A job but for its place, which may have gaps; for the last delay of what is final, which matters to nobody; and for
/// [`Reason::Order`], because databases notice only when a claim meets the job.
fn plain(job: &Job, other: &Job) -> Job {
    let mut job = job.clone();
    job.seq = 0;
    let mut extras = job.extras().clone();
    if job.state.is_final() {
        extras.last_delay = None;
    }
    job.extras = Some(Box::new(extras));
    if let (State::Waiting { reason, .. }, State::Waiting { reason: theirs, .. }) =
        (&mut job.state, &other.state)
        && (*reason == Reason::Order || *theirs == Reason::Order)
    {
        *reason = Reason::Order;
    }
    job
}

fn same_jobs(what: &str, memory: &[Job], other: &[Job]) -> TestCaseResult {
    let ids = |jobs: &[Job]| jobs.iter().map(|job| job.id).collect::<Vec<JobId>>();
    same(what, ids(memory), ids(other))?;
    for (mine, theirs) in memory.iter().zip(other) {
        same(what, plain(mine, theirs), plain(theirs, mine))?;
    }
    Ok(())
}

fn twins(memory: Vec<(Lease, Job)>, other: Vec<(Lease, Job)>) -> Vec<Twin> {
    memory.into_iter().zip(other).map(|(memory, other)| Twin { memory, other }).collect()
}

fn jobs(held: &[(Lease, Job)]) -> Vec<Job> {
    held.iter().map(|(_, job)| job.clone()).collect()
}

impl Pair {
    fn new(other: Other) -> Pair {
        let policies = [
            Policy::fixed(secs(5)).attempts(3),
            Policy::exponential(secs(1)..=secs(20)).retries(4),
            Policy { max_crashes: 2, ..Policy::immediate().attempts(4).within(secs(60)) },
        ];
        Pair {
            memory: MemoryStore::new(),
            other,
            now: Timestamp::from_millis(1_767_225_600_000),
            rng: Rng::seeded(7),
            policies,
            sent: Vec::new(),
            holders: [None, None],
            claimed: Vec::new(),
            last: [Vec::new(), Vec::new()],
            seen: [Vec::new(), Vec::new()],
        }
    }

    fn other(&self) -> &dyn Store {
        self.other.store()
    }

    async fn step(&mut self, operation: &Operation) -> TestCaseResult {
        match operation {
            Operation::Enqueue(specs) => {
                let jobs: Vec<Admission> = specs.iter().filter_map(|spec| self.admit(spec)).collect();
                self.sent.extend(jobs.clone());
                self.enqueue(jobs).await
            }
            Operation::Graph { nodes, edges } => {
                let jobs = self.graph(nodes, *edges);
                self.sent.extend(jobs.clone());
                self.enqueue(jobs).await
            }
            Operation::Again(newest) => {
                let again = self.sent.iter().rev().nth(*newest).cloned();
                self.enqueue(again.into_iter().collect()).await
            }
            Operation::Claim { holder, strict, passing, suspect } => {
                self.claim(*holder, [*strict, *passing], *suspect).await
            }
            Operation::Settle { newest, how } => {
                let twin = self.claimed.iter().rev().nth(*newest).cloned();
                self.settle(&twin.into_iter().collect::<Vec<_>>(), *how).await
            }
            Operation::SettleAll { holder, how } => self.settle_all(*holder, *how).await,
            Operation::Renew { holder, seconds } => self.renew(*holder, self.now + secs(*seconds)).await,
            Operation::Look => self.look().await,
            Operation::Expire { holder } => self.expire(*holder).await,
            Operation::Apply { command, to, limit } => {
                let to = self.filter(*to);
                let memory = self.memory.apply(*command, &to, *limit, self.now).await.unwrap();
                let other = self.other().apply(*command, &to, *limit, self.now).await.unwrap();
                same("jobs steered", memory, other)
            }
            Operation::List(which) => self.same_list(&self.filter(*which)).await,
            Operation::Pause { queue, paused } => {
                self.memory.pause(QUEUES[*queue].0, *paused).await.unwrap();
                self.other().pause(QUEUES[*queue].0, *paused).await.unwrap();
                Ok(())
            }
            Operation::Prune { succeeded, cancelled, dead } => {
                let (succeeded, cancelled, dead) = (secs(*succeeded), secs(*cancelled), dead.map(secs));
                let retention = Retention { succeeded, cancelled, dead };
                let memory = self.memory.prune(&retention, self.now, 1_000).await.unwrap();
                same("jobs pruned", memory, self.other().prune(&retention, self.now, 1_000).await.unwrap())
            }
            Operation::Advance(seconds) => {
                self.now = self.now + secs(*seconds);
                Ok(())
            }
            Operation::Reopen => self.reopen().await,
        }
    }

    fn admit(&mut self, spec: &Spec) -> Option<Admission> {
        let mut queue = Queue::new(QUEUES[spec.queue].0).policy(self.policies[spec.policy].clone());
        if spec.capacity {
            queue = queue.capacity(CAPACITY);
        }
        let number = self.sent.len();
        let payload = Json::of(&number).unwrap();
        let mut new = NewJob::of_kind(if spec.kind { "mail" } else { "call" }, payload)
            .queue(QUEUES[spec.queue].0)
            .priority(spec.priority)
            .after(secs(spec.after));
        if number.is_multiple_of(2) {
            new = new.label("even", "yes");
        }
        if let Some((key, on_conflict)) = spec.key {
            new = new.key(format!("key {key}")).on_conflict(on_conflict);
        }
        if let Some(order) = spec.order {
            new = new.ordering_key(format!("order {order}"));
        }
        if let Some(deadline) = spec.deadline {
            new = new.deadline(self.now + secs(deadline));
        }
        if let Some(start_by) = spec.start_by {
            new = new.start_by(self.now + secs(start_by));
        }
        let id = JobId::new(self.now, u16::try_from(number).unwrap(), &mut self.rng);
        admit(new, &queue, id, self.now, &mut self.rng).ok()
    }

    /// The first is the parent of the others, and comes after all that nobody else comes after.
    fn graph(&mut self, specs: &[Spec], edges: u8) -> Vec<Admission> {
        let plain = |spec: &Spec| Spec { key: None, order: None, after: 0, start_by: None, ..spec.clone() };
        let mut jobs: Vec<Admission> = specs.iter().filter_map(|spec| self.admit(&plain(spec))).collect();
        let ids: Vec<JobId> = jobs.iter().map(|new| new.job.id).collect();
        let mut bits = (0..).map(|bit| edges >> (bit % 8) & 1 == 1);
        let mut last: Vec<JobId> = ids[1..].to_vec();
        for (at, job) in jobs.iter_mut().enumerate().skip(1) {
            let before: Vec<JobId> = ids[1..at].iter().filter(|_| bits.next().unwrap()).copied().collect();
            last.retain(|id| !before.contains(id));
            let mut extras = job.job.extras().clone();
            extras.parent = Some(ids[0]);
            job.job.extras = Some(Box::new(extras));
            *job = job.clone().held_behind(before).unwrap();
        }
        jobs[0] = jobs[0].clone().held_behind(last).unwrap();
        jobs
    }

    fn filter(&self, which: Which) -> Filter {
        let failure = |fatal| if fatal { Failure::permanent("fatal") } else { Failure::retry("failed") };
        match which {
            Which::All => Filter::default(),
            Which::Newest(newest) => match self.sent.iter().rev().nth(newest) {
                Some(admission) => Filter::id(admission.job.id),
                None => Filter::default(),
            },
            Which::Queue(queue) => Filter::default().in_queue(QUEUES[queue].0),
            Which::State(state) => Filter::state(state),
            Which::States(one, other) => Filter { states: vec![one, other], ..Filter::default() },
            Which::Key(key) => Filter { key: Some(format!("key {key}")), ..Filter::default() },
            Which::Kind(mail) => {
                Filter { kind: Some(if mail { "mail" } else { "call" }.into()), ..Filter::default() }
            }
            Which::Label => Filter { labels: [("even".into(), "yes".into())].into(), ..Filter::default() },
            Which::Fingerprint(fatal) => {
                Filter { fingerprint: Some(failure(fatal).fingerprint("mail")), ..Filter::default() }
            }
        }
    }

    async fn enqueue(&self, jobs: Vec<Admission>) -> TestCaseResult {
        let memory = self.memory.enqueue(jobs.clone(), self.now).await.map_err(|error| error.kind());
        let other = self.other().enqueue(jobs, self.now).await.map_err(|error| error.kind());
        same("answers to enqueue", memory, other)
    }

    /// The holder of this name, known to both stores.
    async fn holder(&mut self, holder: usize) -> HolderId {
        if let Some(id) = self.holders[holder] {
            return id;
        }
        let id = HolderId(self.rng.next_u128());
        self.memory.register(id, "test", self.now + secs(30)).await.unwrap();
        self.other().register(id, "test", self.now + secs(30)).await.unwrap();
        self.holders[holder] = Some(id);
        id
    }

    async fn claim(&mut self, holder: usize, limits: [usize; 2], suspect: bool) -> TestCaseResult {
        let id = self.holder(holder).await;
        let wants = QUEUES.iter().zip(limits).map(|((queue, on_retry), limit)| Want {
            queue: (*queue).into(),
            limit,
            on_retry: *on_retry,
        });
        let ids = [ClaimId(self.rng.next_u128()), ClaimId(self.rng.next_u128())];
        let claim =
            Claim { holder: id, ids, wants: wants.collect(), suspect, kinds: None, ahead: Duration::ZERO };
        let memory = self.memory.claim(claim.clone(), self.now).await.unwrap();
        let other = self.other().claim(claim, self.now).await.unwrap();
        same_jobs("claimed jobs", &jobs(&memory.jobs), &jobs(&other.jobs))?;
        let leases = |claimed: &Claimed| {
            claimed.jobs.iter().map(|(lease, _)| (lease.claim, lease.job, lease.attempt)).collect::<Vec<_>>()
        };
        same("leases", leases(&memory), leases(&other))?;
        self.same_next(&memory, &other, limits.iter().all(|limit| *limit > 0))?;
        self.last[holder] = twins(memory.jobs, other.jobs);
        self.claimed.extend(self.last[holder].iter().cloned());
        Ok(())
    }

    /// A database may say that something is due which a claim will find to be waiting for its turn. It may not be late, and
    /// neither may call for a claim again that has just found nothing.
    fn same_next(&self, memory: &Claimed, other: &Claimed, room: bool) -> TestCaseResult {
        let is_past = |claimed: &Claimed| claimed.next_due.is_some_and(|due| due <= self.now);
        if !is_past(other) {
            same("times of the next", memory.next_due, other.next_due)?;
        }
        if room && memory.jobs.is_empty() {
            same("calls for a claim that finds nothing", [false, false], [is_past(memory), is_past(other)])?;
        }
        Ok(())
    }

    fn settlement(&self, (lease, job): &(Lease, Job), how: How) -> Settlement {
        let outcome = match how {
            How::Done => Outcome::Done(None),
            How::Output => Outcome::Done(Json::of("out").ok()),
            How::Failed => Outcome::Failed(Failure::retry("failed")),
            How::Fatal => Outcome::Failed(Failure::permanent("fatal")),
            How::RetryAfter => Outcome::Failed(Failure::retry_after(secs(4), "slow down")),
            How::Snooze(seconds) => Outcome::Snooze(secs(seconds)),
            How::Lost => Outcome::Lost,
            How::Interrupted => Outcome::Interrupted,
            How::Unhandled => Outcome::Unhandled,
            How::Expired => Outcome::Expired,
        };
        let transition = settle(job, outcome, self.now, &mut job.id.rng(job.attempt()));
        let started_at = self.now - Duration::from_secs(1);
        Settlement {
            lease: *lease,
            job: Arc::new(job.clone()),
            transition,
            started_at,
            ended_at: self.now,
            again: None,
        }
    }

    fn settlements(&self, twins: &[Twin], how: How) -> (Vec<Settlement>, Vec<Settlement>) {
        let both = |twin: &Twin| (self.settlement(&twin.memory, how), self.settlement(&twin.other, how));
        twins.iter().map(both).unzip()
    }

    async fn settle(&self, twins: &[Twin], how: How) -> TestCaseResult {
        let (memory, other) = self.settlements(twins, how);
        let memory = self.memory.settle(Arc::new(memory)).await.unwrap();
        same("settlements", told(&memory), told(&self.other().settle(Arc::new(other)).await.unwrap()))
    }

    /// The same for all that a holder was given last, which would go on with what is due again at once.
    async fn settle_all(&mut self, holder: usize, how: How) -> TestCaseResult {
        let claim = ClaimId(self.rng.next_u128());
        let again = self.holders[holder].map(|holder| Again { holder, claim, kinds: None });
        let (mut memory, mut other) = self.settlements(&self.last[holder], how);
        memory.iter_mut().chain(&mut other).for_each(|settlement| settlement.again = again.clone());
        let by_memory = self.memory.settle(Arc::new(memory.clone())).await.unwrap();
        let by_other = self.other().settle(Arc::new(other.clone())).await.unwrap();
        same("settlements", told(&by_memory), told(&by_other))?;
        let going = |settlements: Vec<Settlement>, answers: Vec<Settled>| {
            let going =
                settlements.into_iter().zip(answers).filter_map(|(settlement, answer)| match answer {
                    Settled::Again => {
                        Some((settlement.next_lease().expect("it was to go on"), settlement.next_job()))
                    }
                    Settled::Next(next) => Some(*next),
                    Settled::Applied | Settled::Refused => None,
                });
            going.collect()
        };
        self.last[holder] = twins(going(memory, by_memory), going(other, by_other));
        self.claimed.extend(self.last[holder].iter().cloned());
        Ok(())
    }

    async fn renew(&mut self, holder: usize, until: Timestamp) -> TestCaseResult {
        let Some(id) = self.holders[holder] else { return Ok(()) };
        let lost = |renewal: Renewal| match renewal {
            Renewal::Gone => None,
            Renewal::Kept { lost } => {
                let mut lost: Vec<_> =
                    lost.iter().map(|lease| (lease.claim, lease.job, lease.attempt)).collect();
                lost.sort();
                Some(lost)
            }
        };
        let memory = lost(self.memory.renew(id, until).await.unwrap());
        same("lost leases", memory, lost(self.other().renew(id, until).await.unwrap()))
    }

    async fn look(&mut self) -> TestCaseResult {
        let memory = self.memory.expired(self.now).await.unwrap();
        let other = self.other().expired(self.now).await.unwrap();
        let holders = |expiry: &Expiry| {
            (expiry.over.iter().map(|over| (over.holder, over.until)).collect::<Vec<_>>(), expiry.next)
        };
        same("leases that are over", holders(&memory), holders(&other))?;
        for (memory, other) in memory.over.into_iter().zip(other.over) {
            same_jobs("jobs of an expired holder", &jobs(&memory.jobs), &jobs(&other.jobs))?;
            if let Some(holder) = self.holders.iter().position(|holder| *holder == Some(memory.holder)) {
                self.seen[holder] = twins(memory.jobs, other.jobs);
            }
        }
        Ok(())
    }

    async fn expire(&mut self, holder: usize) -> TestCaseResult {
        let Some(id) = self.holders[holder] else { return Ok(()) };
        let (memory, other) = self.settlements(&self.seen[holder], How::Lost);
        let memory = self.memory.expire(id, memory, self.now).await.unwrap();
        let other = self.other().expire(id, other, self.now).await.unwrap();
        same("answers to an expiry", memory, other)?;
        let gone = self.memory.renew(id, self.now).await.unwrap() == Renewal::Gone;
        same("whether it is gone", gone, self.other().renew(id, self.now).await.unwrap() == Renewal::Gone)?;
        if gone {
            self.holders[holder] = None;
            self.seen[holder].clear();
        }
        Ok(())
    }

    /// A process ends while nothing runs, and the next one finds its holders and ends them.
    async fn reopen(&mut self) -> TestCaseResult {
        let counts = self.memory.counts().await.unwrap();
        if counts.iter().any(|queue| queue.running > 0) {
            return Ok(());
        }
        match &mut self.other {
            Other::Sqlite(Sqlite { store, dir }) => {
                drop(store.take());
                *store = Some(open(dir).await);
            }
            Other::Postgres(postgres) => {
                // Others may be at work on the same database: nobody is known to be gone.
                postgres.store = PostgresStore::connect(&postgres.url).await.unwrap();
                return Ok(());
            }
        }
        for holder in self.holders.into_iter().flatten() {
            self.memory.renew(holder, Timestamp::EPOCH).await.unwrap();
        }
        self.seen = [Vec::new(), Vec::new()];
        self.look().await?;
        self.expire(0).await?;
        self.expire(1).await?;
        same("holders left", [None, None], self.holders)
    }

    // ---- what is there ----------------------------------------------------------------------------------------

    async fn same_jobs(&self) -> TestCaseResult {
        self.same_list(&Filter::default()).await?;
        // A queue that was named and has never had a job may be known to one and not to the other.
        let in_use = |mut counts: Vec<QueueCounts>| {
            let unused = |queue: &QueueCounts| QueueCounts {
                queue: queue.queue.clone(),
                waiting: 0,
                running: 0,
                dead: 0,
                paused: false,
                totals: Tally::default(),
            };
            counts.retain(|queue| *queue != unused(queue));
            counts
        };
        same(
            "counts",
            in_use(self.memory.counts().await.unwrap()),
            in_use(self.other().counts().await.unwrap()),
        )
    }

    async fn same_list(&self, filter: &Filter) -> TestCaseResult {
        let page = Page { before: None, limit: 1_000 };
        let memory = self.memory.list(filter, page).await.unwrap();
        let other = self.other().list(filter, page).await.unwrap();
        same_jobs("lists", &memory.jobs, &other.jobs)
    }

    async fn same_histories(&self) -> TestCaseResult {
        let page = Page { before: None, limit: 1_000 };
        for job in self.memory.list(&Filter::default(), page).await.unwrap().jobs {
            let memory = self.memory.get(job.id).await.unwrap().unwrap();
            let other = self.other().get(job.id).await.unwrap().unwrap();
            same("histories", memory.attempts, other.attempts)?;
            same("outputs", memory.output, other.output)?;
        }
        same(
            "activity",
            self.memory.activity(1_000).await.unwrap(),
            self.other().activity(1_000).await.unwrap(),
        )
    }
}

async fn open(dir: &TempDir) -> SqliteStore {
    SqliteOptions::default().relaxed_durability().open(dir.path().join("jobs.db")).await.unwrap()
}

/// What settlements were answered, but for the places in which jobs stand: each store has its own.
fn told(answers: &[Settled]) -> Vec<String> {
    let told = answers.iter().map(|answer| match answer {
        Settled::Next(next) => format!("next {} at {:?}", next.1.id, next.1.state),
        other => format!("{other:?}"),
    });
    told.collect()
}
