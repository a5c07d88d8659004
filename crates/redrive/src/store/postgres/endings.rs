//! How jobs have ended, for the many executions that conclude at the same time. What this process has settled itself it
//! remembers for a while. As to the others: while one question is on its way, the next ones collect, and go together when
//! it is back.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Inner;
use super::codec::job_id;
use super::database::Argument;
use super::fault::Fault;
use crate::clock::Timestamp;
use crate::job::{JobId, Json, State, StateName};
use crate::span::hours;
use crate::store::{Ended, Settled, Settlement};

/// Jobs of one question, if nobody alone asks for more.
const BATCH_MAX: usize = 5_000;
/// How many endings are remembered, and how many bytes of output with them.
const REMEMBERED_MAX: usize = 50_000;
const REMEMBERED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// By how much a job may have ended before it was made, or later than now, and be found at the first look.
const MARGIN: Duration = hours(1);

/// Who asks, whose turn it is to carry the question, and what need not be asked.
#[derive(Default)]
pub(super) struct Endings {
    asking: Mutex<Vec<Caller>>,
    turn: tokio::sync::Mutex<()>,
    remembered: Mutex<Remembered>,
}

/// What members of others left behind that have succeeded here, which is final; the oldest first.
#[derive(Default)]
struct Remembered {
    outputs: HashMap<JobId, Option<Json>>,
    order: VecDeque<JobId>,
    bytes: usize,
}

impl Remembered {
    fn add(&mut self, id: JobId, output: Option<Json>) {
        let length = |output: &Option<Json>| output.as_ref().map_or(0, |output| output.as_str().len());
        self.bytes += length(&output);
        match self.outputs.insert(id, output) {
            Some(before) => self.bytes -= length(&before),
            None => self.order.push_back(id),
        }
        while self.order.len() > REMEMBERED_MAX || self.bytes > REMEMBERED_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.outputs.remove(&oldest).as_ref().map_or(0, length);
        }
    }
}

struct Caller {
    ids: Vec<JobId>,
    reply: oneshot::Sender<Vec<Ended>>,
}

impl Endings {
    fn asking(&self) -> MutexGuard<'_, Vec<Caller>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has just been written.
    pub(super) fn remember(&self, settlements: &[Settlement], answers: &[Settled]) {
        let is_member = |settlement: &Settlement| {
            matches!(settlement.transition.state, State::Succeeded { .. })
                && settlement.job.extras().parent.is_some()
        };
        let written = settlements.iter().zip(answers).filter(|(_, answer)| **answer != Settled::Refused);
        let mut members = written.filter(|(settlement, _)| is_member(settlement)).peekable();
        if members.peek().is_some() {
            let mut remembered = self.remembered();
            for (Settlement { job, transition, .. }, _) in members {
                remembered.add(job.id, transition.output.clone());
            }
        }
    }

    /// Jobs were deleted: what has been is no longer certain to be.
    pub(super) fn forget(&self) {
        *self.remembered() = Remembered::default();
    }

    /// Those of these that are remembered, and the others.
    fn recall(&self, ids: &[JobId]) -> (Vec<Ended>, Vec<JobId>) {
        let remembered = self.remembered();
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for id in ids {
            match remembered.outputs.get(id) {
                Some(output) => {
                    known.push(Ended { id: *id, state: StateName::Succeeded, output: output.clone() });
                }
                None => unknown.push(*id),
            }
        }
        (known, unknown)
    }

    /// The callers of the next question: the first, and those after it who fit.
    fn take(&self) -> Vec<Caller> {
        let mut asking = self.asking();
        let mut count = 0;
        let fits = |caller: &&Caller| {
            count += caller.ids.len();
            count == caller.ids.len() || count <= BATCH_MAX
        };
        let take = asking.iter().take_while(fits).count();
        asking.drain(..take).collect()
    }
}

impl Inner {
    /// How those of these jobs ended that are final.
    pub(super) async fn ended(&self, ids: &[JobId]) -> Result<Vec<Ended>, Fault> {
        let (mut ended, unknown) = self.endings.recall(ids);
        if !unknown.is_empty() {
            ended.extend(self.ask_for_endings(&unknown).await?);
        }
        Ok(ended)
    }

    async fn ask_for_endings(&self, ids: &[JobId]) -> Result<Vec<Ended>, Fault> {
        let ask = || {
            let (reply, answer) = oneshot::channel();
            self.endings.asking().push(Caller { ids: ids.to_vec(), reply });
            answer
        };
        let mut answer = ask();
        loop {
            let turn = self.endings.turn.lock().await;
            match answer.try_recv() {
                Ok(ended) => return Ok(ended),
                // Whoever carried it went away, or failed.
                Err(oneshot::error::TryRecvError::Closed) => answer = ask(),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            self.carry(self.endings.take()).await?;
            drop(turn);
        }
    }

    /// Asks for all of them at once, and gives each its part of the answer.
    async fn carry(&self, callers: Vec<Caller>) -> Result<(), Fault> {
        let asked: BTreeSet<JobId> = callers.iter().flat_map(|caller| caller.ids.iter().copied()).collect();
        let from = asked.first().map_or(Timestamp::EPOCH, |oldest| oldest.made_at()) - MARGIN;
        let mut known = HashMap::with_capacity(asked.len());
        self.look_up(&asked, from, self.clock.now() + MARGIN, &mut known).await?;
        let missing: BTreeSet<JobId> = asked.into_iter().filter(|id| !known.contains_key(id)).collect();
        if !missing.is_empty() {
            // Whatever the clocks said then.
            self.look_up(&missing, Timestamp::EPOCH, Timestamp::MAX, &mut known).await?;
        }
        for Caller { ids, reply } in callers {
            // Whoever went away does not need it.
            drop(reply.send(ids.iter().filter_map(|id| known.get(id).cloned()).collect()));
        }
        Ok(())
    }

    async fn look_up(
        &self,
        ids: &BTreeSet<JobId>,
        from: Timestamp,
        until: Timestamp,
        known: &mut HashMap<JobId, Ended>,
    ) -> Result<(), Fault> {
        let listed: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        let arguments: [Argument<'_>; 3] =
            [(&listed, Type::UUID_ARRAY), (&from.as_millis(), Type::INT8), (&until.as_millis(), Type::INT8)];
        let rows = self.database.query(include_str!("ended.sql"), &arguments).await?;
        for row in &rows {
            let state = match row.try_get(1)? {
                "succeeded" => StateName::Succeeded,
                "cancelled" => StateName::Cancelled,
                _ => StateName::Dead,
            };
            let (id, output) = (job_id(row.try_get(0)?), row.try_get::<_, Option<&str>>(2)?);
            known.insert(id, Ended { id, state, output: output.map(Json::trusted) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_has_an_end() {
        let mut remembered = Remembered::default();
        let id = |n: usize| JobId::within(JobId::default(), u32::try_from(n).unwrap());
        for n in 0..REMEMBERED_MAX + 10 {
            remembered.add(id(n), None);
        }
        assert_eq!((remembered.outputs.len(), remembered.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert!(!remembered.outputs.contains_key(&id(9)) && remembered.outputs.contains_key(&id(10)));
        let long = Json::of(&"x".repeat(REMEMBERED_BYTES_MAX / 2)).unwrap();
        (0..3).for_each(|n| remembered.add(id(n), Some(long.clone())));
        assert_eq!(remembered.outputs.len(), 1, "the last alone has room");
        assert!(remembered.bytes <= REMEMBERED_BYTES_MAX && remembered.order.len() == 1);
    }
}
