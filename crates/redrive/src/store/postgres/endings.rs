//! How jobs have ended, for the many executions that conclude at the same time: while one question is on its way, the
//! next ones collect, and go together when it is back.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Inner;
use super::codec::job_id;
use super::fault::Fault;
use crate::job::{JobId, Json, StateName};
use crate::store::Ended;

/// Jobs of one question, if nobody alone asks for more.
const BATCH_MAX: usize = 5_000;

/// Who asks, and whose turn it is to carry the question.
#[derive(Default)]
pub(super) struct Endings {
    asking: Mutex<Vec<Caller>>,
    turn: tokio::sync::Mutex<()>,
}

struct Caller {
    ids: Vec<JobId>,
    reply: oneshot::Sender<Vec<Ended>>,
}

impl Endings {
    fn asking(&self) -> std::sync::MutexGuard<'_, Vec<Caller>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
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
        let listed: Vec<Uuid> = asked.into_iter().map(JobId::as_uuid).collect();
        let rows = self.database.query(include_str!("ended.sql"), &[(&listed, Type::UUID_ARRAY)]).await?;
        let mut known = HashMap::with_capacity(rows.len());
        for row in &rows {
            let state = match row.try_get(1)? {
                "succeeded" => StateName::Succeeded,
                "cancelled" => StateName::Cancelled,
                _ => StateName::Dead,
            };
            let (id, output) = (job_id(row.try_get(0)?), row.try_get::<_, Option<&str>>(2)?);
            known.insert(id, Ended { id, state, output: output.map(Json::trusted) });
        }
        for Caller { ids, reply } in callers {
            // Whoever went away does not need it.
            drop(reply.send(ids.iter().filter_map(|id| known.get(id).cloned()).collect()));
        }
        Ok(())
    }
}
