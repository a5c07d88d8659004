//! What cases are made of: a store, a holder, and a time that the case moves.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Rng, Timestamp};
use crate::error::{ErrorKind, Result};
use crate::job::{Job, JobId, Json, NewJob, State, StateName};
use crate::machine::{self, Admission, Command};
use crate::outcome::{Failure, Outcome};
use crate::policy::Policy;
use crate::queue::{OnRetry, Queue};
use crate::span::secs;
use crate::store::{
    Again, Claim, ClaimId, Claimed, Enqueued, Filter, HolderId, How, JobDetail, Lease, Page, QueueCounts,
    Settled, Settlement, Store, Want,
};

/// The queue of jobs that name none.
pub(super) const QUEUE: &str = crate::job::DEFAULT_QUEUE;
/// How long the kit's holders may hold.
pub(super) const LEASE: Duration = secs(30);
/// How long a failed job waits.
pub(super) const BACKOFF: Duration = secs(10);

/// A claimed job, and the right to settle it.
pub(super) type Held = (Lease, Job);

/// A store and the time in it.
pub(super) struct Kit {
    pub(super) store: Arc<dyn Store>,
    pub(super) now: Timestamp,
    pub(super) holder: HolderId,
    rng: Rng,
    made: u16,
}

/// Three attempts, ten seconds apart.
pub(super) fn policy() -> Policy {
    Policy::fixed(BACKOFF).attempts(3)
}

/// A job with a payload that tells it from the others.
pub(super) fn mail(number: u32) -> NewJob {
    NewJob::of_kind("mail", Json::of(&number).expect("a number is JSON"))
}

pub(super) fn failure() -> Outcome {
    Outcome::Failed(Failure::retry("it did not answer"))
}

pub(super) fn fatal() -> Outcome {
    Outcome::Failed(Failure::permanent("there is no such address"))
}

/// What became of attempts.
pub(super) fn ids(jobs: &[Held]) -> Vec<JobId> {
    jobs.iter().map(|(lease, _)| lease.job).collect()
}

/// The kind of the error, for what has to be refused.
pub(super) fn refused<T: std::fmt::Debug>(answer: Result<T>) -> ErrorKind {
    answer.expect_err("this has to be refused").kind()
}

impl Kit {
    pub(super) async fn new(store: Arc<dyn Store>) -> Kit {
        let now = Timestamp::from_millis(1_767_225_600_000);
        let mut kit = Kit { store, now, holder: HolderId(0), rng: Rng::seeded(1), made: 0 };
        kit.holder = kit.register().await;
        kit
    }

    /// Another holder with a fresh lease.
    pub(super) async fn register(&mut self) -> HolderId {
        let holder = HolderId(self.rng.next_u128());
        self.store.register(holder, "a test", self.now + LEASE).await.expect("a holder can register");
        holder
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    // jobs come in

    pub(super) fn admit(&mut self, new: NewJob) -> Admission {
        let queue = Queue::new(&new.queue).policy(policy());
        self.admit_to(&queue, new)
    }

    pub(super) fn admit_to(&mut self, queue: &Queue, new: NewJob) -> Admission {
        self.made += 1;
        let id = JobId::new(self.now, self.made, &mut self.rng);
        let new = new.queue(&queue.name);
        machine::admit(new, queue, id, self.now, &mut self.rng).expect("the job can be admitted")
    }

    pub(super) async fn enqueue(&self, jobs: Vec<Admission>) -> Result<Vec<Enqueued>> {
        self.store.enqueue(jobs, self.now).await
    }

    pub(super) async fn try_put(&mut self, new: NewJob) -> Result<Enqueued> {
        let admission = self.admit(new);
        Ok(self.enqueue(vec![admission]).await?[0])
    }

    /// Enqueues a job that has to be new.
    pub(super) async fn put(&mut self, new: NewJob) -> JobId {
        let enqueued = self.try_put(new).await.expect("the job can be enqueued");
        assert_eq!(enqueued.how, How::Created);
        enqueued.id
    }

    // jobs go out

    pub(super) fn wants(&mut self, wants: &[(&str, usize)]) -> Claim {
        let want = |(queue, limit): &(&str, usize)| Want {
            queue: (*queue).into(),
            limit: *limit,
            on_retry: OnRetry::Block,
        };
        Claim {
            holder: self.holder,
            ids: [ClaimId(self.rng.next_u128()), ClaimId(self.rng.next_u128())],
            wants: wants.iter().map(want).collect(),
            suspect: true,
            kinds: None,
            ahead: Duration::ZERO,
        }
    }

    pub(super) async fn ask(&self, claim: Claim) -> Claimed {
        self.store.claim(claim, self.now).await.expect("a known holder can claim")
    }

    /// Claims from the default queue.
    pub(super) async fn claim(&mut self, limit: usize) -> Vec<Held> {
        let claim = self.wants(&[(QUEUE, limit)]);
        self.ask(claim).await.jobs
    }

    /// Claims one job of the default queue, which has to be there.
    pub(super) async fn claim_one(&mut self) -> Held {
        self.claim(1).await.into_iter().next().expect("a job is due")
    }

    // attempts end

    /// What an attempt that began and ended now came to.
    pub(super) fn settlement(&self, (lease, job): &Held, outcome: Outcome) -> Settlement {
        let transition = machine::settle(job, outcome, self.now, &mut job.id.rng(job.attempt()));
        let (started_at, ended_at) = (self.now, self.now);
        Settlement {
            lease: *lease,
            job: Arc::new(job.clone()),
            transition,
            started_at,
            ended_at,
            again: None,
        }
    }

    /// What a failed attempt came to, with the wish to go on with the job at once.
    pub(super) fn again(&mut self, held: &Held) -> Settlement {
        let claim = ClaimId(self.rng.next_u128());
        let again = Some(Again { holder: self.holder, claim, kinds: None });
        Settlement { again, ..self.settlement(held, failure()) }
    }

    pub(super) async fn settle(&self, settlements: Vec<Settlement>) -> Vec<Settled> {
        self.store.settle(Arc::new(settlements)).await.expect("settlements are answered")
    }

    pub(super) async fn end(&self, held: &Held, outcome: Outcome) -> Settled {
        self.settle(vec![self.settlement(held, outcome)]).await.remove(0)
    }

    /// Ends the lease of a holder as upkeep does: a crash for everything it held.
    pub(super) async fn crash(&self, holder: HolderId) -> Vec<Settled> {
        let expiry = self.store.expired(self.now).await.expect("leases can be read");
        let expired = expiry.over.into_iter().find(|expired| expired.holder == holder);
        let jobs = expired.expect("its lease is over").jobs;
        let settlements = jobs.iter().map(|held| self.settlement(held, Outcome::Lost)).collect();
        self.store.expire(holder, settlements, self.now).await.expect("a lease that is over can be ended")
    }

    /// Lets a holder claim this many, lets its lease run out and its jobs crash, and goes on as another holder.
    pub(super) async fn crash_with(&mut self, limit: usize) -> Vec<Held> {
        let held = self.claim(limit).await;
        let gone = self.holder;
        self.advance(LEASE);
        self.crash(gone).await;
        self.holder = self.register().await;
        held
    }

    // looking and steering

    pub(super) async fn detail(&self, id: JobId) -> JobDetail {
        self.store.get(id).await.expect("a job can be read").expect("the job is there")
    }

    pub(super) async fn job(&self, id: JobId) -> Job {
        self.detail(id).await.job
    }

    pub(super) async fn state(&self, id: JobId) -> State {
        self.job(id).await.state
    }

    pub(super) async fn name(&self, id: JobId) -> StateName {
        self.state(id).await.name()
    }

    pub(super) async fn list(&self, filter: &Filter) -> Vec<JobId> {
        let paged = self.store.list(filter, Page::default()).await.expect("jobs can be listed");
        paged.jobs.into_iter().map(|job| job.id).collect()
    }

    pub(super) async fn all(&self) -> Vec<Job> {
        self.store.list(&Filter::default(), Page::default()).await.expect("jobs can be listed").jobs
    }

    pub(super) async fn counts(&self, queue: &str) -> QueueCounts {
        let counts = self.store.counts().await.expect("jobs can be counted");
        counts.into_iter().find(|counts| *counts.queue == *queue).expect("the queue is known")
    }

    pub(super) async fn apply(&self, command: Command, to: &Filter, limit: usize) -> Vec<JobId> {
        self.store.apply(command, to, limit, self.now).await.expect("a command is answered")
    }

    /// Does this to one job, to which it can be done.
    pub(super) async fn steer(&self, command: Command, id: JobId) {
        assert_eq!(self.apply(command, &Filter::id(id), 10).await, [id], "{command:?} can be done to it");
    }
}
