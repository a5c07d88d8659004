//! Jobs come in. Those with nothing special collect while the last batch is on its way and go together in the next one,
//! without a timer; the others go by themselves, because they may have to wait for someone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::codec::{attempt_json, job_id, job_json, tally_json};
use super::database::Argument;
use super::fault::Fault;
use super::{Inner, listen};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::job::{Job, Ledger, OnConflict, Reason, State};
use crate::machine::Admission;
use crate::policy::Origin;
use crate::stats::Tally;
use crate::store::{Call, Enqueued, Filter, How, Page, coming, replaced};

/// Jobs of one transaction: enough to hide the disk, few enough to answer soon.
const BATCH_MAX: usize = 2_000;
/// How often what was decided from a job that has changed meanwhile is decided again.
const TRIES_MAX: usize = 10;

/// Calls that wait for the next batch.
#[derive(Default)]
pub(super) struct Gate {
    waiting: Mutex<Vec<Caller>>,
    arrived: Notify,
}

/// Whether jobs may be there already because they were sent before, and the answer was lost.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Before {
    Never,
    Perhaps,
}

struct Caller {
    jobs: Vec<Admission>,
    reply: oneshot::Sender<Result<Vec<Enqueued>, Error>>,
}

impl Gate {
    /// The calls of the next batch, when there are some.
    async fn next(&self) -> Vec<Caller> {
        loop {
            let calls = self.take();
            if !calls.is_empty() {
                return calls;
            }
            self.arrived.notified().await;
        }
    }

    fn take(&self) -> Vec<Caller> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut jobs = 0;
        let fits = |call: &&Caller| {
            jobs += call.jobs.len();
            jobs == call.jobs.len() || jobs <= BATCH_MAX
        };
        let take = waiting.iter().take_while(fits).count();
        let calls = waiting.drain(..take).collect();
        if !waiting.is_empty() {
            // For whoever else is free.
            self.arrived.notify_one();
        }
        calls
    }
}

/// Takes batches through the gate for as long as the store is there.
pub(super) async fn gather(inner: Arc<Inner>) {
    loop {
        let calls = inner.gate.next().await;
        let jobs: Vec<&Admission> = calls.iter().flat_map(|call| &call.jobs).collect();
        match inner.put(&jobs).await {
            Ok(()) => {
                for Caller { jobs, reply } in calls {
                    let created = jobs.iter().map(|new| Enqueued { id: new.job.id, how: How::Created });
                    // A caller that went away does not need its answer.
                    drop(reply.send(Ok(created.collect())));
                }
            }
            // Each by itself, so that one cannot fail its neighbours.
            Err(before) => {
                for Caller { jobs, reply } in calls {
                    drop(reply.send(inner.enqueue_alone(&jobs, before).await.map_err(Fault::into_error)));
                }
            }
        }
    }
}

impl Inner {
    pub(super) async fn enqueue(&self, jobs: Vec<Admission>) -> Result<Vec<Enqueued>, Error> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        if !jobs.iter().all(is_plain) {
            return self.enqueue_alone(&jobs, Before::Never).await.map_err(Fault::into_error);
        }
        let (reply, answer) = oneshot::channel();
        self.gate.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Caller { jobs, reply });
        self.gate.arrived.notify_one();
        answer.await.map_err(|_| Error::unavailable("the store is closed"))?
    }

    async fn columns<'a>(&self, jobs: &[&'a Admission]) -> Result<Columns<'a>, Fault> {
        let mut columns = Columns::default();
        for Admission { job, author, .. } in jobs {
            let queue = self.names.queue_id(&self.database, &job.queue).await?;
            self.names.band(&self.database, queue, job.priority).await?;
            let policy = self.names.policy_id(&self.database, &job.policy).await?;
            columns.push(job, author.as_deref(), queue, policy);
        }
        Ok(columns)
    }

    /// Jobs with nothing special, all or none.
    async fn put(&self, jobs: &[&Admission]) -> Result<(), Before> {
        let columns = self.columns(jobs).await.map_err(|_| Before::Never)?;
        let (tally_queue, tally): (Vec<i32>, Vec<String>) = columns
            .counts
            .iter()
            .map(|(queue, count)| (*queue, tally_json(Tally { enqueued: *count, ..Tally::default() })))
            .unzip();
        let destination = columns.destination.iter().any(Option::is_some).then_some(&columns.destination);
        let author = columns.author.iter().any(Option::is_some).then_some(&columns.author);
        let mut arguments: Vec<Argument<'_>> = vec![
            (&columns.id, Type::UUID_ARRAY),
            (&columns.queue, Type::INT4_ARRAY),
            (&columns.policy, Type::INT4_ARRAY),
            (&columns.created, Type::INT8_ARRAY),
            (&columns.run_at, Type::INT8_ARRAY),
            (&columns.checksum, Type::INT8_ARRAY),
            (&columns.priority, Type::INT2_ARRAY),
            (&columns.kind, Type::TEXT_ARRAY),
            (&columns.payload, Type::TEXT_ARRAY),
            (&tally_queue, Type::INT4_ARRAY),
            (&tally, Type::TEXT_ARRAY),
            (&destination, Type::TEXT_ARRAY),
            (&author, Type::TEXT_ARRAY),
        ];
        let mut sql = include_str!("put.sql");
        let tells = self.news.may_tell();
        if tells {
            sql = include_str!("put_and_tell.sql");
            arguments.extend([(&listen::CHANNEL as _, Type::TEXT), (&self.name as _, Type::TEXT)]);
        }
        let answer = self.database.call(sql, &arguments).await;
        if tells {
            self.woke();
            self.news.told();
        } else {
            self.tell_others();
        }
        match answer {
            (Ok(_), _) => Ok(()),
            (Err(fault), again) if again || fault.is_passing() => Err(Before::Perhaps),
            _ => Err(Before::Never),
        }
    }

    /// Jobs of any kind, all or none.
    pub(super) async fn enqueue_alone(
        &self,
        jobs: &[Admission],
        before: Before,
    ) -> Result<Vec<Enqueued>, Fault> {
        for _ in 0..TRIES_MAX {
            match self.admit(jobs, before).await {
                Err(Fault::Changed) => {}
                answer => return answer,
            }
        }
        Err(Fault::Changed)
    }

    async fn admit(&self, jobs: &[Admission], before: Before) -> Result<Vec<Enqueued>, Fault> {
        let items = self.items(jobs).await?;
        let (rows, again) = match edges(jobs) {
            None => self.database.call(include_str!("admit.sql"), &items.arguments()).await,
            Some(edges) => {
                let nobody: Option<&str> = None;
                let mut arguments = items.arguments().to_vec();
                arguments.extend([(&nobody as _, Type::TEXT), (&nobody as _, Type::TEXT)]);
                arguments.extend([(&0i64 as _, Type::INT8), (&edges as _, Type::TEXT)]);
                self.database.call(include_str!("admit_tied.sql"), &arguments).await
            }
        };
        self.tell_others();
        answers(&rows?, jobs, again || before == Before::Perhaps)
    }

    /// The second time under the same key, what was answered the first time.
    pub(super) async fn enqueue_once(
        &self,
        call: &Call,
        jobs: &[Admission],
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, Fault> {
        for _ in 0..TRIES_MAX {
            let items = self.items(jobs).await?;
            let now = now.as_millis();
            let mut arguments = items.arguments().to_vec();
            arguments.extend([
                (&call.key as _, Type::TEXT),
                (&call.digest as _, Type::TEXT),
                (&now as _, Type::INT8),
            ]);
            let edges = edges(jobs);
            let sql = match &edges {
                None => include_str!("admit_once.sql"),
                Some(edges) => {
                    arguments.push((edges as _, Type::TEXT));
                    include_str!("admit_tied.sql")
                }
            };
            match self.database.query(sql, &arguments).await {
                Err(Fault::Changed) => {}
                Err(fault) => return Err(fault),
                Ok(rows) => {
                    self.tell_others();
                    return answers(&rows, jobs, false);
                }
            }
        }
        Err(Fault::Changed)
    }

    async fn items(&self, jobs: &[Admission]) -> Result<Items, Fault> {
        let mut lanes = Vec::new();
        let mut items = Vec::with_capacity(jobs.len());
        // Who has a key after those before in this call: the one they replaced, else the first, unless someone had it.
        let (mut replacements, mut firsts): (HashMap<&str, Job>, HashMap<&str, &Job>) = Default::default();
        for Admission { job, on_conflict, history, after, author, .. } in jobs {
            let queue = self.names.queue_id(&self.database, &job.queue).await?;
            let policy = self.names.policy_id(&self.database, &job.policy).await?;
            let mut item = job_json(job, queue.into(), policy.into());
            item["on_conflict"] = json!(on_conflict);
            item["history"] = history.iter().map(attempt_json).collect();
            item["author"] = json!(author.as_deref());
            item["waits_for"] = json!((!after.is_empty()).then_some(after.len()));
            if let Some(key) = job.extras().key.as_deref() {
                if *on_conflict == OnConflict::Replace {
                    let there = match replacements.remove(key) {
                        Some(there) => Some(there),
                        None => {
                            self.holder_of(key).await?.or_else(|| firsts.get(key).map(|job| (*job).clone()))
                        }
                    };
                    if let Some(old) = there {
                        let old_queue = self.names.queue_id(&self.database, &old.queue).await?;
                        let next = replaced(&old, job.clone());
                        item["replacement"] = job_json(&next, queue.into(), policy.into());
                        item["replacement"]["old_queue"] = json!(old_queue);
                        item["replacement"]["author"] = item["author"].clone();
                        lanes.extend([queue, old_queue]);
                        replacements.insert(key, next);
                    }
                }
                firsts.entry(key).or_insert(job);
            }
            items.push(item);
        }
        let limits = self.limits(jobs).await?.to_string();
        Ok(Items { lanes, limits, jobs: Value::Array(items).to_string() })
    }

    /// The job that has this key.
    async fn holder_of(&self, key: &str) -> Result<Option<Job>, Fault> {
        let holder = "SELECT id FROM redrive.keys WHERE key = $1";
        let rows = self.database.query(holder, &[(&key, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let there = Filter::id(job_id(row.try_get(0)?));
        Ok(self.list(&there, Page { before: None, limit: 1 }).await?.jobs.pop())
    }

    async fn limits(&self, jobs: &[Admission]) -> Result<Value, Fault> {
        let mut limits = Vec::new();
        for (queue, (capacity, _)) in coming(jobs) {
            let id = self.names.queue_id(&self.database, queue).await?;
            let ids: Vec<_> =
                jobs.iter().filter(|new| new.job.queue == *queue).map(|new| new.job.id).collect();
            limits.push(json!({"queue": id, "name": &**queue, "capacity": capacity, "ids": ids}));
        }
        Ok(Value::Array(limits))
    }
}

/// What `redrive.admit` is told.
struct Items {
    lanes: Vec<i32>,
    limits: String,
    jobs: String,
}

impl Items {
    fn arguments(&self) -> [Argument<'_>; 3] {
        [(&self.lanes, Type::INT4_ARRAY), (&self.limits, Type::TEXT), (&self.jobs, Type::TEXT)]
    }
}

/// Who waits for whom, as `redrive.admit_tied` reads it; `None` if nobody does.
fn edges(jobs: &[Admission]) -> Option<String> {
    let tied = jobs.iter().flat_map(|new| new.after.iter().map(|before| (before, new.job.id)));
    let edges: Vec<Value> = tied.map(|(before, after)| json!({"before": before, "after": after})).collect();
    (!edges.is_empty()).then(|| Value::Array(edges).to_string())
}

/// What it answers. A job that was perhaps sent before is new if it is there under its own id.
fn answers(rows: &[Row], jobs: &[Admission], sent_before: bool) -> Result<Vec<Enqueued>, Fault> {
    let mut answers = Vec::with_capacity(rows.len());
    for (row, Admission { job, .. }) in rows.iter().zip(jobs) {
        let id = job_id(row.try_get(0)?);
        let how = match row.try_get(1)? {
            "created" => How::Created,
            "replaced" => How::Replaced,
            // The first try did it, and its answer was lost.
            _ if sent_before && id == job.id => How::Created,
            _ => How::Existing,
        };
        answers.push(Enqueued { id, how });
    }
    Ok(answers)
}

/// The columns of a batch.
#[derive(Default)]
struct Columns<'a> {
    id: Vec<Uuid>,
    queue: Vec<i32>,
    policy: Vec<i32>,
    created: Vec<i64>,
    run_at: Vec<i64>,
    checksum: Vec<i64>,
    priority: Vec<i16>,
    kind: Vec<&'a str>,
    payload: Vec<&'a str>,
    destination: Vec<Option<&'a str>>,
    author: Vec<Option<&'a str>>,
    counts: BTreeMap<i32, u64>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, job: &'a Job, author: Option<&'a str>, queue: i32, policy: i32) {
        self.id.push(job.id.as_uuid());
        self.queue.push(queue);
        self.policy.push(policy);
        self.created.push(job.created_at.as_millis());
        self.run_at.push(job.due_at().as_millis());
        self.checksum.push(i64::from(job.checksum()));
        self.priority.push(job.priority);
        self.kind.push(&job.kind);
        self.payload.push(job.payload.as_str());
        self.destination.push(job.extras().destination.as_deref());
        self.author.push(author);
        *self.counts.entry(queue).or_default() += 1;
    }
}

/// Nothing special about it but perhaps where it goes: its rows are the shortest ones, and nothing can refuse it.
fn is_plain(admission: &Admission) -> bool {
    let job = &admission.job;
    job.has_at_most_a_destination()
        && admission.history.is_empty()
        && admission.capacity.is_none()
        && job.origin == Origin::Engine
        && job.ledger == Ledger::default()
        && matches!(job.state, State::Waiting { reason: Reason::Scheduled, .. })
}

impl Fault {
    /// Text that PostgreSQL cannot hold.
    pub(super) fn unwritable() -> Fault {
        Error::new(ErrorKind::Invalid, "PostgreSQL cannot hold the character NUL (U+0000) in text")
            .with_hint("leave it out of kinds, queues, keys, labels and destinations; payloads may have it as \\u0000")
            .into()
    }
}
