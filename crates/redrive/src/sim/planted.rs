//! Bugs on purpose: each stands for a mistake that a store or an engine could make. The worlds must notice all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::job::{Ending, Job, JobId, Json, State};
use crate::machine::{Admission, Command};
use crate::queue::{OnRetry, Retention};
use crate::span::{hours, secs};
use crate::stats::Activity;
use crate::store::{
    Call, Claim, ClaimId, Claimed, Destinations, Enqueued, Expiry, Filter, Group, HolderId, How, JobDetail,
    Lease, Operations, Page, Paged, QueueCounts, Renewal, Settled, Settlement, Store,
};

/// Where a bug lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Behind the trait: the store does not do what it says.
    Store,
    /// Before the trait: the engine does not use it as it should.
    Engine,
}

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $bug:ident $name:literal $side:ident,)+) => {
        /// A mistake that somebody could make.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $($(#[doc = $doc])+ $bug,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$bug),+];

            /// What it is called.
            pub fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)+
                }
            }

            /// Where it lives.
            pub fn side(self) -> Side {
                match self {
                    $(Bug::$bug => Side::$side,)+
                }
            }
        }
    };
}

bugs! {
    /// A settlement is accepted whatever has become of its lease.
    NoFence "no fence" Store,
    /// Enqueueing is acknowledged, and some of it is never written.
    AckBeforeCommit "ack before commit" Store,
    /// Nobody is told that something has become due.
    LostWakeUp "lost wake-up" Store,
    /// The next due time is said to be an hour later than it is.
    NextDueLate "next due late" Store,
    /// Jobs are handed out before they are due.
    HandedOutEarly "handed out early" Store,
    /// A running job is handed out again.
    HandedOutTwice "handed out twice" Store,
    /// A cancelled job is handed out.
    CancelledHandedOut "cancelled handed out" Store,
    /// A holder that has expired is renewed.
    ExpiredRevived "expired holder revived" Store,
    /// A lost lease does not count as a crash.
    CrashNotCounted "crash not counted" Store,
    /// A job whose lease ran out is lost.
    ExpiryLosesJob "expiry loses job" Store,
    /// What a shutdown gives back has failed.
    ReleaseBurnsFailure "release burns failure" Store,
    /// A taken key is given out again.
    KeyTwice "key twice" Store,
    /// Capacity is not looked at.
    CapacityIgnored "capacity ignored" Store,
    /// A bulk enqueue that is refused leaves its first job behind.
    BulkTorn "bulk torn" Store,
    /// A waiting retry lets the others of its key pass.
    RetryLetsPass "retry lets pass" Store,
    /// Jobs of one ordering key run together.
    OrderIgnored "order ignored" Store,
    /// The answers to a batch of settlements are shifted by one.
    AnswersShifted "answers shifted" Store,
    /// What has begun in the place of another is not told.
    BegunNotTold "begun not told" Store,
    /// Redriving begins to count attempts from the start.
    RedriveResetsAttempt "redrive resets attempt" Store,
    /// A retry comes earlier than the policy says.
    RetryEarly "retry early" Store,
    /// Dead jobs are forgotten with the others.
    PruneTakesDead "prune takes dead" Store,
    /// A snooze counts as a failure.
    SnoozeIsFailure "snooze is failure" Store,
    /// A failure is counted twice.
    FailureTwice "failure counted twice" Store,
    /// What was settled is still listed as held.
    ClaimLeaks "claim leaks" Store,
    /// A queue that was paused goes on.
    PauseIgnored "pause ignored" Store,
    /// Counters drift away from what they count.
    CountersDrift "counters drift" Store,
    /// What a job leaves behind is not kept.
    OutputLost "output lost" Store,
    /// Jobs that crashed before are handed out together.
    SuspectsTogether "suspects together" Store,
    /// What a destination may be asked to bear is not looked at.
    LimitsIgnored "limits ignored" Store,
    /// A destination that asks for a pause is given none.
    PauseForgotten "pause forgotten" Store,
    /// What a destination's trouble ends is counted against its job.
    JobPays "job pays" Store,
    /// A destination that is said to be down is not held.
    DownNotHeard "down not heard" Store,
    /// A destination that is said to be up stays shut.
    UpNotHeard "up not heard" Store,
    /// Being held counts as a failure.
    HeldIsFailure "held is failure" Store,
    /// The deadline is not looked at before an attempt.
    DeadlineIgnored "deadline ignored" Engine,
    /// A claimed job is started twice.
    StartedTwice "started twice" Engine,
    /// A settlement is never sent.
    SettlementDropped "settlement dropped" Engine,
    /// A claim that was not answered is not asked for again: another one is made.
    ClaimNotRepeated "claim not repeated" Engine,
    /// The lease is never renewed.
    NeverRenewed "never renewed" Engine,
}

impl Bug {
    /// The one of that name.
    pub fn parse(name: &str) -> Option<Bug> {
        Bug::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// A store with a bug in it, or an engine's view of a store with a bug in the engine.
pub struct Planted<S: Store + ?Sized> {
    pub(super) inner: Arc<S>,
    bug: Bug,
    silent: watch::Sender<u64>,
    memory: Mutex<Memory>,
}

/// What a bug needs to remember.
#[derive(Default)]
struct Memory {
    calls: u64,
    /// The leases that are current, with the job as it was handed out.
    current: BTreeMap<JobId, (Lease, Job)>,
    cancelled: Vec<(Lease, Job)>,
    settled: Vec<(Lease, Job)>,
    keys: BTreeMap<JobId, Arc<str>>,
    redriven: BTreeSet<JobId>,
}

impl<S: Store + ?Sized> Planted<S> {
    /// Plants a bug.
    pub fn new(inner: Arc<S>, bug: Bug) -> Planted<S> {
        Planted { inner, bug, silent: watch::Sender::new(0), memory: Mutex::default() }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the bug shows this time, for those that show now and then.
    fn now_and_then(&self, every: u64) -> bool {
        let mut memory = self.memory();
        memory.calls += 1;
        memory.calls.is_multiple_of(every)
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    fn change(&self, settlement: &mut Settlement) {
        let Settlement { lease, transition, job, .. } = settlement;
        let ledger = &mut transition.ledger;
        match (self.bug, transition.ending) {
            (Bug::NoFence, _) => {
                if let Some((current, _)) = self.memory().current.get(&lease.job) {
                    *lease = *current;
                }
            }
            (Bug::CrashNotCounted, Ending::Crashed) => ledger.crashes = job.ledger.crashes,
            (Bug::ReleaseBurnsFailure, Ending::Interrupted) => ledger.failures += 1,
            (Bug::SnoozeIsFailure, Ending::Snoozed) => ledger.failures += 1,
            (Bug::HeldIsFailure, Ending::Held) => ledger.failures += 1,
            (Bug::FailureTwice, Ending::Failed) => ledger.failures += 1,
            (Bug::OutputLost, _) => transition.output = None,
            (Bug::RetryEarly, Ending::Failed) => {
                if let (State::Waiting { due_at, .. }, Some(delay)) =
                    (&mut transition.state, transition.delay)
                {
                    *due_at = *due_at - delay / 2;
                }
            }
            _ => {}
        }
    }

    /// Shows a job as the bug wants it seen.
    fn shown(&self, mut job: Job) -> Job {
        if let Some(key) = self.memory().keys.get(&job.id) {
            job.extras_mut().ordering_key = Some(key.clone());
        }
        job
    }

    fn hide_order(&self, admission: &mut Admission) {
        let Some(key) = admission.job.extras().ordering_key.clone() else { return };
        admission.job.extras_mut().ordering_key = None;
        self.memory().keys.insert(admission.job.id, key);
    }

    fn claimed(&self, mut claimed: Claimed, asked: &Claim) -> Claimed {
        let again = !claimed.jobs.is_empty() && self.now_and_then(5);
        let mut memory = self.memory();
        match self.bug {
            Bug::NextDueLate => claimed.next_due = claimed.next_due.map(|due| due + hours(1)),
            Bug::HandedOutTwice if again => {
                let running = memory.current.values().find(|(_, job)| wanted(asked, job)).cloned();
                claimed.jobs.extend(running);
            }
            Bug::CancelledHandedOut => {
                let at = memory.cancelled.iter().position(|(_, job)| wanted(asked, job));
                claimed.jobs.extend(at.map(|at| memory.cancelled.remove(at)));
            }
            Bug::RedriveResetsAttempt => {
                for (lease, job) in &mut claimed.jobs {
                    if memory.redriven.contains(&job.id) {
                        (lease.attempt, job.ledger.attempt) = (0, 0);
                    }
                }
            }
            Bug::DeadlineIgnored => {
                for (_, job) in &mut claimed.jobs {
                    job.extras_mut().deadline = None;
                    job.extras_mut().start_by = None;
                }
            }
            Bug::StartedTwice if again => claimed.jobs.extend(claimed.jobs.first().cloned()),
            _ => {}
        }
        for (lease, job) in &claimed.jobs {
            memory.current.insert(job.id, (*lease, job.clone()));
        }
        drop(memory);
        claimed.jobs = claimed.jobs.into_iter().map(|(lease, job)| (lease, self.shown(job))).collect();
        claimed
    }
}

fn wanted(claim: &Claim, job: &Job) -> bool {
    claim.wants.iter().any(|want| want.queue == job.queue)
}

#[async_trait]
impl<S: Store + ?Sized> Store for Planted<S> {
    async fn enqueue(&self, mut jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        match self.bug {
            Bug::AckBeforeCommit if self.now_and_then(7) => {
                return Ok(jobs.iter().map(|a| Enqueued { id: a.job.id, how: How::Created }).collect());
            }
            Bug::CapacityIgnored => jobs.iter_mut().for_each(|admission| admission.capacity = None),
            Bug::KeyTwice => {
                for admission in &mut jobs {
                    if admission.job.extras().key.is_some() && self.now_and_then(3) {
                        admission.job.extras_mut().key = None;
                    }
                }
            }
            Bug::OrderIgnored => jobs.iter_mut().for_each(|admission| self.hide_order(admission)),
            Bug::BulkTorn if jobs.len() > 1 => {
                let first = jobs[0].clone();
                let answer = self.inner.enqueue(jobs, now).await;
                if answer.is_err() {
                    drop(self.inner.enqueue(vec![first], now).await);
                }
                return answer;
            }
            _ => {}
        }
        self.inner.enqueue(jobs, now).await
    }

    async fn enqueue_once(&self, call: Call, jobs: Vec<Admission>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.inner.enqueue_once(call, jobs, now).await
    }

    fn operations(&self) -> &dyn Operations {
        self.inner.operations()
    }

    fn destinations(&self) -> &dyn Destinations {
        self
    }

    async fn records(&self, shelf: &str) -> Result<Vec<(String, Json)>> {
        self.inner.records(shelf).await
    }

    async fn keep(&self, shelf: &str, name: &str, value: Option<Json>) -> Result<()> {
        self.inner.keep(shelf, name, value).await
    }

    async fn register(&self, holder: HolderId, name: &str, until: Timestamp) -> Result<()> {
        self.inner.register(holder, name, until).await
    }

    async fn claim(&self, mut claim: Claim, now: Timestamp) -> Result<Claimed> {
        let mut at = now;
        match self.bug {
            Bug::HandedOutEarly => at = now + secs(2),
            Bug::SuspectsTogether => claim.suspect = true,
            Bug::ClaimNotRepeated => {
                self.memory().calls += 1;
                let calls = u128::from(self.memory().calls);
                claim.ids = claim.ids.map(|id| ClaimId(id.0 ^ calls));
            }
            Bug::RetryLetsPass => {
                claim.wants.iter_mut().for_each(|want| want.on_retry = OnRetry::LetPass);
            }
            _ => {}
        }
        let claimed = self.inner.claim(claim.clone(), at).await?;
        Ok(self.claimed(claimed, &claim))
    }

    async fn settle(&self, settlements: Arc<Vec<Settlement>>) -> Result<Vec<Settled>> {
        if self.has(Bug::SettlementDropped) && self.now_and_then(9) {
            return Ok(vec![Settled::Applied; settlements.len()]);
        }
        let mut changed = (*settlements).clone();
        changed.iter_mut().for_each(|settlement| self.change(settlement));
        let mut answers = self.inner.settle(Arc::new(changed)).await?;
        let mut memory = self.memory();
        for settlement in settlements.iter() {
            let id = settlement.lease.job;
            if memory.current.get(&id).is_some_and(|(lease, _)| *lease == settlement.lease)
                && let Some(settled) = memory.current.remove(&id)
            {
                memory.settled.push(settled);
            }
        }
        if self.has(Bug::AnswersShifted) {
            answers.rotate_left(1);
        }
        if self.has(Bug::BegunNotTold) {
            let is_next = |answer: &&mut Settled| matches!(answer, Settled::Next(_));
            answers.iter_mut().filter(is_next).for_each(|answer| *answer = Settled::Applied);
        }
        Ok(answers)
    }

    async fn renew(&self, holder: HolderId, until: Timestamp) -> Result<Renewal> {
        if self.has(Bug::NeverRenewed) {
            return Ok(Renewal::Kept { lost: Vec::new() });
        }
        let answer = self.inner.renew(holder, until).await?;
        if self.has(Bug::ExpiredRevived) && answer == Renewal::Gone {
            self.inner.register(holder, "revived", until).await?;
            return Ok(Renewal::Kept { lost: Vec::new() });
        }
        Ok(answer)
    }

    async fn expired(&self, now: Timestamp) -> Result<Expiry> {
        let mut answer = self.inner.expired(now).await?;
        if self.has(Bug::ClaimLeaks)
            && let Some(first) = answer.over.first_mut()
        {
            first.jobs.extend(self.memory().settled.pop());
        }
        Ok(answer)
    }

    async fn expire(
        &self,
        holder: HolderId,
        mut settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>> {
        settlements.iter_mut().for_each(|settlement| self.change(settlement));
        let answers = self.inner.expire(holder, settlements.clone(), now).await?;
        if self.has(Bug::ExpiryLosesJob) {
            for settlement in &settlements {
                let job = Filter::id(settlement.lease.job);
                self.inner.apply(Command::Cancel, &job, 1, now).await?;
                self.inner.apply(Command::Delete, &job, 1, now).await?;
            }
        }
        Ok(answers)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        if self.has(Bug::LostWakeUp) { self.silent.subscribe() } else { self.inner.changes() }
    }

    async fn prune(&self, retention: &Retention, now: Timestamp, limit: usize) -> Result<u64> {
        let mut retention = *retention;
        if self.has(Bug::PruneTakesDead) {
            retention.dead = Some(retention.succeeded);
        }
        self.inner.prune(&retention, now, limit).await
    }

    async fn get(&self, id: JobId) -> Result<Option<JobDetail>> {
        let found = self.inner.get(id).await?;
        Ok(found.map(|detail| JobDetail { job: self.shown(detail.job), ..detail }))
    }

    async fn list(&self, filter: &Filter, page: Page) -> Result<Paged> {
        let Paged { jobs, next } = self.inner.list(filter, page).await?;
        Ok(Paged { jobs: jobs.into_iter().map(|job| self.shown(job)).collect(), next })
    }

    async fn counts(&self) -> Result<Vec<QueueCounts>> {
        let mut counts = self.inner.counts().await?;
        if self.has(Bug::CountersDrift)
            && let Some(first) = counts.first_mut()
        {
            first.totals.failures += first.totals.failures / 8;
        }
        Ok(counts)
    }

    async fn groups(&self, limit: usize, now: Timestamp) -> Result<Vec<Group>> {
        self.inner.groups(limit, now).await
    }

    async fn activity(&self, limit: usize) -> Result<Vec<Activity>> {
        self.inner.activity(limit).await
    }

    async fn apply(&self, command: Command, to: &Filter, limit: usize, now: Timestamp) -> Result<Vec<JobId>> {
        let done = self.inner.apply(command, to, limit, now).await?;
        for id in &done {
            let mut memory = self.memory();
            if command == Command::Redrive {
                memory.redriven.insert(*id);
            }
            if command == Command::Cancel
                && let Some(running) = memory.current.remove(id)
            {
                memory.cancelled.push(running);
            }
        }
        Ok(done)
    }

    async fn pause(&self, queue: &str, paused: bool) -> Result<()> {
        if self.has(Bug::PauseIgnored) {
            return Ok(());
        }
        self.inner.pause(queue, paused).await
    }
}
