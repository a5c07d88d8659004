//! What the writer thread owns: the connection, and in memory what would be slow to ask the database for.
//!
//! Everything in memory is derived from the database and can be rebuilt from it, which is what happens when a
//! transaction fails and when someone else has written.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use rusqlite::{Connection, params};

use super::Fault;
use super::codec::{Names, hex, unhex};
use super::gating::{Lines, SharedGates};
use super::operations::{count_minute, is_held};
use crate::clock::Timestamp;
use crate::job::Json;
use crate::stats::{ACTIVITY_MAX, Activity, Tally};
use crate::store::{ClaimId, HolderId, Kinds, Lease, QueueCounts};

pub(super) struct Core {
    pub(super) conn: Connection,
    pub(super) open_again: Reopen,
    /// The disk has failed us: nothing is acknowledged until the file was opened again.
    pub(super) failed: bool,
    pub(super) names: Names,
    pub(super) queues: BTreeMap<i64, QueueState>,
    pub(super) queue_ids: HashMap<Arc<str>, i64>,
    pub(super) holders: BTreeMap<HolderId, Timestamp>,
    pub(super) claims: QuickMap<ClaimId, ClaimState>,
    pub(super) running: SharedRunning,
    /// Ordering keys of jobs that run, with how many: what is out of time is handed out beside the one whose turn it is.
    pub(super) keys_running: HashMap<(i64, Arc<str>), u32>,
    pub(super) gates: SharedGates,
    pub(super) lines: Lines,
    /// By queue: whose line had its turn last.
    pub(super) line_turns: BTreeMap<i64, Arc<str>>,
    /// What the database had seen of others' commits when it was last read.
    pub(super) seen: i64,
    /// Where the sweep of finished jobs goes on.
    pub(super) swept: i64,
    /// Whether something may have become claimable earlier than was last said.
    pub(super) woke: bool,
    /// Which kinds have been asked for.
    asked: BTreeSet<Option<Kinds>>,
    /// Whether a row was set aside, so that what is kept in memory must be counted again.
    pub(super) damaged: bool,
    noted: bool,
    /// Whether nothing is handed out.
    pub(super) held: bool,
    /// When the last thing of this transaction happened.
    pub(super) at: Timestamp,
}

/// Maps by numbers that are ours: nobody chooses them to collide, so they need no defence, and several are asked for
/// every job.
pub(super) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
pub(super) type QuickSet<K> = HashSet<K, BuildHasherDefault<Quick>>;

#[derive(Default)]
pub(super) struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    fn write_u128(&mut self, number: u128) {
        // Random already: half of it is enough.
        self.write_u64((number >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Opens the file anew, recovering and checking it as at the start.
pub(super) type Reopen = Box<dyn Fn() -> crate::error::Result<Connection> + Send>;

/// What runs, as readers see it.
#[derive(Default)]
pub(super) struct Running(pub(super) QuickMap<i64, Run>);

/// Shared with readers, who look for a moment at a time: the writer must not wait for a long list.
pub(super) type SharedRunning = Arc<RwLock<Running>>;

#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) claim: ClaimId,
    pub(super) attempt: u32,
    pub(super) since: Timestamp,
}

impl Run {
    /// Whether this is what the lease speaks of.
    pub(super) fn is(&self, claim: ClaimId, attempt: u32) -> bool {
        self.claim == claim && self.attempt == attempt
    }
}

pub(super) struct ClaimState {
    pub(super) holder: HolderId,
    pub(super) held: QuickSet<i64>,
    pub(super) lost: Vec<Lease>,
}

#[derive(Default)]
pub(super) struct QueueState {
    pub(super) name: Arc<str>,
    pub(super) paused: bool,
    /// By priority: how many jobs are live, and up to where everything runs or is held.
    pub(super) bands: BTreeMap<i16, Band>,
    pub(super) running: u64,
    pub(super) dead: u64,
    pub(super) totals: Tally,
    /// Counted in this transaction.
    pub(super) news: Tally,
}

#[derive(Clone, Default)]
pub(super) struct Band {
    pub(super) live: u64,
    /// By the kinds that are asked for: what others ask for is not passed for them.
    cursors: BTreeMap<Option<Kinds>, (i64, i64)>,
}

/// Whoever asks for ever other kinds has the scan begin at the front.
const CURSORS_MAX: usize = 64;
/// And is woken by every job.
const ASKED_MAX: usize = 64;

impl Band {
    /// The cursor must not be beyond a job that may be taken.
    fn in_scan(&mut self, due_at: i64, seq: i64) {
        for cursor in self.cursors.values_mut().filter(|cursor| (due_at, seq) <= **cursor) {
            *cursor = (due_at, seq - 1);
        }
    }

    /// Behind which due time and place everything of these kinds is to be found that may be taken.
    pub(super) fn cursor(&self, kinds: &Option<Kinds>) -> (i64, i64) {
        self.cursors.get(kinds).copied().unwrap_or((i64::MIN, 0))
    }

    pub(super) fn set_cursor(&mut self, kinds: &Option<Kinds>, to: (i64, i64)) {
        if self.cursors.len() >= CURSORS_MAX && !self.cursors.contains_key(kinds) {
            self.cursors.clear();
        }
        self.cursors.insert(kinds.clone(), to);
    }
}

impl QueueState {
    pub(super) fn live(&self) -> u64 {
        self.bands.values().map(|band| band.live).sum()
    }

    /// A job has come among the live ones.
    pub(super) fn admit(&mut self, priority: i16, due_at: i64, seq: i64) {
        let band = self.bands.entry(priority).or_default();
        band.live += 1;
        band.in_scan(due_at, seq);
    }
}

impl Core {
    pub(super) fn open(
        open_again: Reopen,
        running: SharedRunning,
        gates: SharedGates,
    ) -> Result<Core, Fault> {
        let mut core = Core {
            conn: open_again()?,
            open_again,
            failed: false,
            names: Names::default(),
            queues: BTreeMap::new(),
            queue_ids: HashMap::new(),
            holders: BTreeMap::new(),
            claims: QuickMap::default(),
            running,
            keys_running: HashMap::new(),
            gates,
            lines: Lines::new(),
            line_turns: BTreeMap::new(),
            seen: 0,
            swept: 0,
            woke: false,
            asked: BTreeSet::new(),
            damaged: false,
            noted: false,
            held: false,
            at: Timestamp::EPOCH,
        };
        core.reload()?;
        Ok(core)
    }

    /// Rebuilds everything in memory from the database.
    pub(super) fn reload(&mut self) -> Result<(), Fault> {
        // Before anything is read: what others commit from here on is noticed as new.
        self.seen = self.data_version();
        // What is cached by id may be of a transaction that was rolled back.
        self.names = Names::default();
        self.load_queues()?;
        self.load_holders()?;
        self.load_claims()?;
        self.load_gates()?;
        self.held = is_held(&self.conn)?;
        (self.woke, self.damaged, self.noted) = (true, false, false);
        Ok(())
    }

    fn load_queues(&mut self) -> Result<(), Fault> {
        let mut queues: BTreeMap<i64, QueueState> = BTreeMap::new();
        let mut statement = self.conn.prepare_cached(include_str!("load_queues.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let name: Arc<str> = row.get::<_, String>(1)?.into();
            queues.insert(row.get(0)?, QueueState { name, paused: row.get(2)?, ..QueueState::default() });
        }
        let mut statement = self.conn.prepare_cached(include_str!("load_live.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(queue) = queues.get_mut(&row.get(0)?) {
                let live = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
                queue.bands.insert(row.get(1)?, Band { live, ..Band::default() });
            }
        }
        let mut statement = self.conn.prepare_cached(include_str!("load_dead.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(queue) = queues.get_mut(&row.get(0)?) {
                queue.dead = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
            }
        }
        let mut statement = self.conn.prepare_cached(include_str!("load_stats.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let Some(queue) = queues.get_mut(&row.get(0)?) else { continue };
            let name: String = row.get(1)?;
            if let Some((_, field)) = queue.totals.fields().into_iter().find(|(known, _)| *known == name) {
                *field = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
            }
        }
        self.queue_ids = queues.iter().map(|(id, queue)| (queue.name.clone(), *id)).collect();
        self.queues = queues;
        Ok(())
    }

    pub(super) fn load_holders(&mut self) -> Result<(), Fault> {
        let mut statement = self.conn.prepare_cached(include_str!("load_holders.sql"))?;
        let rows = statement.query_map([], |row| {
            let id: String = row.get(0)?;
            Ok((HolderId(unhex(&id)), Timestamp::from_millis(row.get(1)?)))
        })?;
        self.holders = rows.collect::<Result<_, _>>()?;
        Ok(())
    }

    fn load_claims(&mut self) -> Result<(), Fault> {
        let lost: HashMap<ClaimId, Vec<Lease>> = self
            .claims
            .drain()
            .filter(|(_, claim)| !claim.lost.is_empty())
            .map(|(id, claim)| (id, claim.lost))
            .collect();
        let mut statement = self.conn.prepare_cached(include_str!("load_claim_ids.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, holder): (String, String) = (row.get(0)?, row.get(1)?);
            let id = ClaimId(unhex(&id));
            let lost = lost.get(&id).cloned().unwrap_or_default();
            let state = ClaimState { holder: HolderId(unhex(&holder)), held: QuickSet::default(), lost };
            self.claims.insert(id, state);
        }
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        running.0.clear();
        self.keys_running.clear();
        let mut statement = self.conn.prepare_cached(include_str!("load_claims.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let claim = ClaimId(unhex(&row.get::<_, String>(0)?));
            let since = Timestamp::from_millis(row.get(2)?);
            let (seq, attempt) = (row.get(3)?, row.get(4)?);
            let queue: i64 = row.get(5)?;
            if let Some(key) = row.get::<_, Option<String>>(6)? {
                *self.keys_running.entry((queue, key.into())).or_default() += 1;
            }
            if let Some(state) = self.claims.get_mut(&claim) {
                state.held.insert(seq);
            }
            if let Some(queue) = self.queues.get_mut(&queue) {
                queue.running += 1;
            }
            running.0.insert(seq, Run { claim, attempt, since });
        }
        Ok(())
    }

    /// The queue's id, which is given on first sight.
    pub(super) fn queue_id(&mut self, name: &Arc<str>) -> Result<i64, Fault> {
        if let Some(id) = self.queue_ids.get(name) {
            return Ok(*id);
        }
        self.conn.prepare_cached(include_str!("queue_insert.sql"))?.execute([&**name])?;
        let id =
            self.conn.prepare_cached(include_str!("queue_id.sql"))?.query_row([&**name], |row| row.get(0))?;
        self.queue_ids.insert(name.clone(), id);
        self.queues.entry(id).or_insert_with(|| QueueState { name: name.clone(), ..QueueState::default() });
        Ok(id)
    }

    pub(super) fn queue(&mut self, id: i64) -> &mut QueueState {
        self.queues.entry(id).or_default()
    }

    /// Somebody asks for these kinds, and may wait for more of them.
    pub(super) fn asks_for(&mut self, kinds: &Option<Kinds>) {
        if !self.asked.contains(kinds) {
            let is_too_many = self.asked.len() >= ASKED_MAX;
            self.asked.insert(if is_too_many { None } else { kinds.clone() });
        }
    }

    /// A job of this kind has come that has no other time than its due time: whoever asks for other kinds alone has nothing
    /// to do with it, and to be woken would cost them more than it costs to take the job.
    pub(super) fn wake_for(&mut self, kind: &str) {
        let includes = |kinds: &Kinds| kinds.iter().any(|known| **known == *kind);
        self.woke |=
            self.asked.is_empty() || self.asked.iter().any(|kinds| kinds.as_ref().is_none_or(includes));
    }

    /// A job is in the due scan at this place from now on.
    pub(super) fn in_scan(&mut self, queue: i64, priority: i16, due_at: i64, seq: i64) {
        self.queue(queue).bands.entry(priority).or_default().in_scan(due_at, seq);
        self.woke = true;
    }

    pub(super) fn note(&mut self, activity: Option<Activity>) -> Result<(), Fault> {
        let Some(Activity { at, what, job, kind, queue, message }) = activity else { return Ok(()) };
        self.noted = true;
        self.conn.prepare_cached(include_str!("activity_insert.sql"))?.execute(params![
            at.as_millis(),
            what.as_str(),
            job.to_string(),
            &*kind,
            &*queue,
            message
        ])?;
        Ok(())
    }

    /// What is written once for a whole transaction.
    pub(super) fn before_commit(&mut self) -> Result<(), Fault> {
        let mut counted = [0; 4];
        for (id, queue) in &mut self.queues {
            let mut news = std::mem::take(&mut queue.news);
            queue.totals += news;
            let Tally { enqueued, succeeded, failures, dead, .. } = news;
            for (sum, count) in counted.iter_mut().zip([enqueued, succeeded, failures, dead]) {
                *sum += count;
            }
            for (name, value) in news.fields() {
                if *value > 0 {
                    let value = i64::try_from(*value).unwrap_or(i64::MAX);
                    self.conn
                        .prepare_cached(include_str!("stats_add.sql"))?
                        .execute(params![id, name, value])?;
                }
            }
        }
        if counted != [0; 4] {
            count_minute(&self.conn, self.at, counted)?;
        }
        self.at = Timestamp::EPOCH;
        self.write_gates()?;
        if std::mem::take(&mut self.noted) {
            self.conn.prepare_cached(include_str!("activity_trim.sql"))?.execute([ACTIVITY_MAX])?;
        }
        Ok(())
    }

    pub(super) fn counts(&self) -> Vec<QueueCounts> {
        let mut counts: Vec<QueueCounts> = self
            .queues
            .values()
            .map(|queue| {
                let mut totals = queue.totals;
                totals += queue.news;
                QueueCounts {
                    queue: queue.name.clone(),
                    waiting: queue.live().saturating_sub(queue.running),
                    running: queue.running,
                    dead: queue.dead,
                    paused: queue.paused,
                    totals,
                }
            })
            .collect();
        counts.sort_by(|a, b| a.queue.cmp(&b.queue));
        counts
    }

    pub(super) fn pause(&mut self, queue: &str, paused: bool) -> Result<(), Fault> {
        let id = self.queue_id(&queue.into())?;
        self.conn.prepare_cached(include_str!("queue_pause.sql"))?.execute(params![id, paused])?;
        self.queue(id).paused = paused;
        self.woke = true;
        Ok(())
    }

    pub(super) fn keep(&mut self, shelf: &str, name: &str, value: Option<&Json>) -> Result<(), Fault> {
        match value {
            Some(value) => {
                let mut put = self.conn.prepare_cached(include_str!("record_put.sql"))?;
                put.execute(params![shelf, name, value.as_str()])?;
            }
            None => {
                self.conn.prepare_cached(include_str!("record_delete.sql"))?.execute(params![shelf, name])?;
            }
        }
        Ok(())
    }

    pub(super) fn register(
        &mut self,
        holder: HolderId,
        name: &str,
        outlives: bool,
        until: Timestamp,
    ) -> Result<(), Fault> {
        let mut statement = self.conn.prepare_cached(include_str!("holder_register.sql"))?;
        statement.execute(params![hex(holder.0), name, outlives, until.as_millis()])?;
        self.holders.insert(holder, until);
        Ok(())
    }
}
