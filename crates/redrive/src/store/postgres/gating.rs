//! Destinations: what gates allow is decided here from what was last seen of them, and carried out by the claim only if
//! that is still so. What was learned is written in the same way.

mod offers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use self::offers::{OFFERS_MAX, Stands, stands};
pub(super) use self::offers::{Offers, Turns};
use super::codec::only;
use super::fault::Fault;
use super::{Inner, PostgresStore};
use crate::clock::Timestamp;
use crate::error::Result as Answer;
use crate::gate::{Blame, Change, Counts, Gate, Report, Rules, Seen, Word, observed};
use crate::job::JobId;
use crate::operate::Audit;
use crate::store::{Destination, Destinations, Observed};

/// How often to look what others have learned, without having been told.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// When to ask again for a gate that somebody else had.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// What is left of the longest time that a claim took, with every other.
const LEAD_KEPT: f64 = 0.95;
/// How often what was decided from a gate that has changed meanwhile is decided again.
const TRIES_MAX: usize = 50;

/// What this process knows of gates.
#[derive(Default)]
pub(super) struct Gating(Mutex<Seens>);

#[derive(Default)]
struct Seens {
    rules: Arc<Rules>,
    /// Limited destinations, as patterns of the database's.
    limited: Vec<String>,
    known: BTreeMap<Arc<str>, Known>,
    lines: BTreeMap<Arc<str>, Line>,
    /// The newest version that was seen, and the one before the last look: what commits late is seen the next time.
    newest: i64,
    looked_from: i64,
    /// Who had its turn last: the next claim's offers begin behind it.
    turn: Arc<str>,
    /// How long claims take: as long as the longest, which counts less and less.
    lead: Duration,
}

#[derive(Clone)]
struct Known {
    version: i64,
    active: bool,
    gate: Gate,
}

/// A line in which somebody may stand.
#[derive(Clone, Copy, Default)]
struct Line {
    /// Nobody but retries.
    is_retries: bool,
    /// What stands there waits for an ending, or for somebody else.
    is_stuck: bool,
    /// Somebody else had the gate.
    is_busy: bool,
}

impl Gating {
    fn lock(&self) -> MutexGuard<'_, Seens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how gates stand after a claim, and what it has put into lines. Names those of which nothing is known.
    pub(super) fn after_claim(&self, gates: Option<&str>, moved: &[&str]) -> Vec<String> {
        let mut seens = self.lock();
        let stands = stands(gates);
        seens.pass_turn(&stands);
        for stands in stands {
            let name: Arc<str> = stands.name.as_str().into();
            match stands.waits {
                Some(line) => {
                    let is_same = seens.known.get(&name).map(|known| known.version) == stands.version;
                    // It could have gone, and did not: it is not for whoever asked.
                    let is_stuck = stands.full
                        || stands.went == 0
                            && stands.left.is_some_and(|left| left[usize::from(line == 1)] > 0);
                    let is_busy = stands.went < 0 && is_same;
                    seens.lines.insert(name.clone(), Line { is_retries: line == 1, is_stuck, is_busy });
                }
                None => drop(seens.lines.remove(&name)),
            }
            let counts = (stands.next_us, stands.retry_us, stands.sent);
            if let (Some(version), Some(active), Some(state), (Some(next_us), Some(retry_us), Some(sent))) =
                (stands.version, stands.active, stands.state, counts)
            {
                seens.know(name, version, active, &state, Counts { next_us, retry_us, sent });
            } else {
                seens.known.remove(&name);
            }
        }
        let mut unknown = Vec::new();
        for name in moved {
            seens.lines.insert((*name).into(), Line::default());
            if !seens.known.contains_key(*name) {
                unknown.push((*name).to_owned());
            }
        }
        unknown
    }

    /// A claim has taken so long. What the next ones hand out cannot start any sooner, and has its turn accordingly.
    pub(super) fn took(&self, time: Duration) {
        let mut seens = self.lock();
        seens.lead = time.max(seens.lead.mul_f64(LEAD_KEPT));
    }

    /// When something that stands in a line may go, as far as it is known.
    pub(super) fn next_at(&self, now: Timestamp, ahead: Duration) -> Option<Timestamp> {
        let seens = self.lock();
        let lines = seens.lines.iter().filter(|(_, line)| !line.is_stuck);
        let next = lines.map(|(name, line)| {
            if line.is_busy {
                return now + BUSY_PAUSE;
            }
            let gate = seens.known.get(name).map(|known| known.gate.clone()).unwrap_or_default();
            gate.grant(&seens.rules.of(name), now)
                .ahead(ahead, seens.lead)
                .next_at(&gate.counts, line.is_retries)
        });
        next.min()
    }
}

impl Seens {
    /// The last that went had its turn. Where nobody went, though as many were asked as can be, others are asked next.
    fn pass_turn(&mut self, stands: &[Stands]) {
        let went = stands.iter().rfind(|stands| stands.went > 0);
        let last = went.or_else(|| stands.last().filter(|_| stands.len() == OFFERS_MAX));
        if let Some(last) = last {
            self.turn = last.name.as_str().into();
        }
    }

    fn know(&mut self, name: Arc<str>, version: i64, active: bool, state: &str, counts: Counts) {
        self.newest = self.newest.max(version);
        // One that cannot be read is as one that was never there: it learns anew.
        let mut gate: Gate = serde_json::from_str(state).unwrap_or_default();
        gate.counts = counts;
        self.known.insert(name, Known { version, active, gate });
    }
}

/// What is to be written of one gate.
struct Lesson {
    name: Arc<str>,
    known: Option<Known>,
    next: Gate,
    active: bool,
    change: Option<Change>,
    job: JobId,
}

impl Inner {
    /// Reads gates that are newer than what was seen, and these.
    pub(super) async fn look_at_gates(&self, newer_than: i64, names: &[String]) -> Result<bool, Fault> {
        let arguments = [(&newer_than as _, Type::INT8), (&names as _, Type::TEXT_ARRAY)];
        let rows = self.database.query(include_str!("gates.sql"), &arguments).await?;
        let mut seens = self.gating.lock();
        let mut news = false;
        for row in &rows {
            let name: &str = row.try_get(0)?;
            let version: i64 = row.try_get(1)?;
            news |= seens.known.get(name).is_none_or(|known| known.version != version);
            seens.read(row)?;
        }
        Ok(news)
    }

    pub(super) async fn look_at_others(&self) {
        if let Err(fault) = self.look_around().await {
            tracing::debug!(%fault, "Cannot see what others have learned of destinations");
        }
    }

    /// Looks what others have learned, and where lines are.
    async fn look_around(&self) -> Result<(), Fault> {
        let from = {
            let mut seens = self.gating.lock();
            let newest = seens.newest;
            std::mem::replace(&mut seens.looked_from, newest)
        };
        let mut news = self.look_at_gates(from, &[]).await?;
        let lines = self.database.query("SELECT * FROM redrive.lines()", &[]).await?;
        {
            let mut seens = self.gating.lock();
            let mut found = BTreeMap::new();
            for row in &lines {
                let name: Arc<str> = row.try_get::<_, &str>(0)?.into();
                news |= !seens.lines.contains_key(&name);
                let before = seens.lines.get(&name).copied().unwrap_or_default();
                found.insert(name, Line { is_stuck: false, ..before });
            }
            seens.lines = found;
        }
        if news {
            self.woke();
        }
        self.let_calm_go().await
    }

    /// Gates that have nothing to say any more do not stand in the way.
    async fn let_calm_go(&self) -> Result<(), Fault> {
        let now = self.clock.now();
        let lessons: Vec<Lesson> = {
            let seens = self.gating.lock();
            let is_calm = |name: &Arc<str>, gate: &Gate| !seens.is_active(name, gate, now);
            let calm = seens.known.iter().filter(|(name, known)| known.active && is_calm(name, &known.gate));
            calm.map(|(name, known)| Lesson {
                name: name.clone(),
                known: Some(known.clone()),
                next: known.gate.clone(),
                active: false,
                change: None,
                job: JobId::default(),
            })
            .collect()
        };
        self.write_lessons(&lessons, now, None).await.map(drop)
    }

    /// Writes what follows from gates as they were last seen; decided again for those that are others by now.
    async fn learn(
        &self,
        names: Vec<Arc<str>>,
        now: Timestamp,
        entry: Option<&Audit>,
        mut decide: impl FnMut(&Arc<str>, Option<&Gate>, &Rules) -> Option<(Gate, JobId)>,
    ) -> Result<Vec<Change>, Fault> {
        let mut open = names;
        let mut changes = Vec::new();
        for _ in 0..TRIES_MAX {
            let lessons: Vec<Lesson> = {
                let seens = self.gating.lock();
                open.iter().filter_map(|name| seens.lesson(name, now, &mut decide)).collect()
            };
            let written = self.write_lessons(&lessons, now, entry).await?;
            open.clear();
            for (lesson, written) in lessons.into_iter().zip(written) {
                if written {
                    changes.extend(lesson.change);
                } else {
                    open.push(lesson.name);
                }
            }
            if open.is_empty() {
                return Ok(changes);
            }
        }
        Err(Fault::Changed)
    }

    async fn write_lessons(
        &self,
        lessons: &[Lesson],
        now: Timestamp,
        entry: Option<&Audit>,
    ) -> Result<Vec<bool>, Fault> {
        if lessons.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = lessons.iter().map(|lesson| &*lesson.name).collect();
        let versions: Vec<i64> =
            lessons.iter().map(|lesson| lesson.known.as_ref().map_or(0, |known| known.version)).collect();
        let states: Vec<String> = lessons
            .iter()
            .map(|lesson| serde_json::to_string(&lesson.next).expect("a gate can be written"))
            .collect();
        let active: Vec<bool> = lessons.iter().map(|lesson| lesson.active).collect();
        let sent: Vec<i64> = lessons
            .iter()
            .map(|lesson| {
                lesson.known.as_ref().map_or(0, |known| known.gate.counts.sent - lesson.next.counts.sent)
            })
            .collect();
        let jobs: Vec<Uuid> = lessons.iter().map(|lesson| lesson.job.as_uuid()).collect();
        let news = |lesson: &Lesson| {
            lesson.change.as_ref().filter(|change| change.is_news()).map(ToString::to_string)
        };
        let notes: Vec<Option<String>> = lessons.iter().map(news).collect();
        let arguments = [
            (&names as _, Type::TEXT_ARRAY),
            (&versions as _, Type::INT8_ARRAY),
            (&states as _, Type::TEXT_ARRAY),
            (&active as _, Type::BOOL_ARRAY),
            (&sent as _, Type::INT8_ARRAY),
            (&now.as_millis() as _, Type::INT8),
            (&jobs as _, Type::UUID_ARRAY),
            (&notes as _, Type::TEXT_ARRAY),
        ];
        let any_written =
            |rows: &[Row]| rows.iter().try_fold(false, |any, row| Ok(any | row.try_get::<_, bool>(7)?));
        let rows = self.written_down(entry, include_str!("learn.sql"), &arguments, any_written).await?;
        let mut written: BTreeMap<&str, bool> = BTreeMap::new();
        let mut seens = self.gating.lock();
        for row in &rows {
            written.insert(row.try_get(0)?, row.try_get(7)?);
            seens.read(row)?;
        }
        Ok(names.iter().map(|name| written.get(name).copied().unwrap_or(false)).collect())
    }

    /// Does what somebody said of a destination, and writes down who it was.
    pub(super) async fn told_of(
        &self,
        destination: &Arc<str>,
        word: Word,
        now: Timestamp,
        entry: Option<&Audit>,
    ) -> Result<Option<Change>, Fault> {
        let decide = |_: &Arc<str>, known: Option<&Gate>, _: &Rules| {
            let mut gate = known.cloned().unwrap_or_default();
            gate.told(word, now);
            Some((gate, JobId::default()))
        };
        let changes = self.learn(vec![destination.clone()], now, entry, decide).await?;
        Ok(changes.into_iter().next())
    }

    async fn observe(&self, reports: &[Report], now: Timestamp) -> Result<Observed, Fault> {
        let mut names: Vec<Arc<str>> = {
            let seens = self.gating.lock();
            let news = |report: &&Report| {
                let learns = |known: &Known| known.active && !known.gate.is_well_known(now);
                report.seen != Seen::Well || seens.known.get(&report.destination).is_some_and(learns)
            };
            reports.iter().filter(news).map(|report| report.destination.clone()).collect()
        };
        names.sort();
        names.dedup();
        let mut blames = vec![Blame::Job; reports.len()];
        let changes = self
            .learn(names, now, None, |name, known, rules| {
                let limits = rules.of(name);
                let mut gate: Option<Gate> = known.cloned();
                let mut last = None;
                for (report, blame) in reports.iter().zip(&mut blames) {
                    if report.destination == *name
                        && let Some((next, found)) = observed(gate.as_ref(), report, &limits, now)
                    {
                        (gate, *blame, last) = (Some(next), found, Some(report.job));
                    }
                }
                gate.zip(last)
            })
            .await?;
        Ok(Observed { blames, changes })
    }
}

impl Seens {
    fn read(&mut self, row: &Row) -> Result<(), Fault> {
        let name: Arc<str> = row.try_get::<_, &str>(0)?.into();
        let Some(version) = row.try_get::<_, Option<i64>>(1)? else {
            self.known.remove(&name);
            return Ok(());
        };
        let counts = Counts { next_us: row.try_get(4)?, retry_us: row.try_get(5)?, sent: row.try_get(6)? };
        self.know(name, version, row.try_get(2)?, row.try_get(3)?, counts);
        Ok(())
    }

    /// Whether calls have to go through it. What stands in its line goes as it says, however long the trouble is over.
    fn is_active(&self, name: &Arc<str>, gate: &Gate, now: Timestamp) -> bool {
        gate.is_active(&self.rules.of(name), now) || self.lines.contains_key(name)
    }

    fn lesson(
        &self,
        name: &Arc<str>,
        now: Timestamp,
        decide: &mut impl FnMut(&Arc<str>, Option<&Gate>, &Rules) -> Option<(Gate, JobId)>,
    ) -> Option<Lesson> {
        let known = self.known.get(name).cloned();
        let (next, job) = decide(name, known.as_ref().map(|known| &known.gate), &self.rules)?;
        let before = known.as_ref().map(|known| known.gate.clone()).unwrap_or_default();
        let change = Change::between(name, &before, &next, now);
        let active = self.is_active(name, &next, now);
        Some(Lesson { name: name.clone(), known, next, active, change, job })
    }
}

/// Looks now and then what others have learned, for as long as the store is there.
pub(super) async fn look(inner: Arc<Inner>, every: Duration) {
    loop {
        inner.look_at_others().await;
        tokio::time::sleep(every).await;
    }
}

/// As LIKE has it.
fn like(pattern: &str) -> String {
    let mut text = String::new();
    for letter in pattern.chars() {
        match letter {
            '*' => text.push('%'),
            '%' | '_' | '\\' => text.extend(['\\', letter]),
            letter => text.push(letter),
        }
    }
    text
}

#[async_trait]
impl Destinations for PostgresStore {
    fn limit(&self, rules: Arc<Rules>) {
        let mut seens = self.inner.gating.lock();
        seens.limited = rules
            .iter()
            .filter(|(_, limits)| limits.count_calls())
            .map(|(pattern, _)| like(pattern))
            .collect();
        seens.rules = rules;
        drop(seens);
        self.inner.woke();
    }

    fn rules(&self) -> Arc<Rules> {
        self.inner.gating.lock().rules.clone()
    }

    async fn observe(&self, reports: &[Report], now: Timestamp) -> Answer<Observed> {
        let observed = self.inner.observe(reports, now).await.map_err(Fault::into_error)?;
        if !observed.changes.is_empty() {
            self.inner.tell_others_of_gates();
        }
        Ok(observed)
    }

    async fn tell(&self, destination: &str, word: Word, now: Timestamp) -> Answer<Option<Change>> {
        let told = self.inner.told_of(&destination.into(), word, now, None).await;
        self.inner.tell_others_of_gates();
        told.map_err(Fault::into_error)
    }

    async fn list(&self, now: Timestamp) -> Answer<Vec<Destination>> {
        let list = async {
            self.inner.look_at_gates(-1, &[]).await?;
            let (found, rules) = {
                let seens = self.inner.gating.lock();
                let known = seens
                    .known
                    .iter()
                    .filter(|(name, known)| known.active && seens.is_active(name, &known.gate, now));
                let found: Vec<_> = known.map(|(name, known)| (name.clone(), known.gate.clone())).collect();
                (found, seens.rules.clone())
            };
            let mut answer = Vec::with_capacity(found.len());
            for (name, gate) in found {
                let rows =
                    self.inner.database.query(include_str!("lined.sql"), &[(&&*name, Type::TEXT)]).await?;
                let held = u64::try_from(only(&rows)?.try_get::<_, i64>(0)?).unwrap_or(0);
                let limits = rules.of(&name);
                answer.push(Destination { name, gate, limits, held });
            }
            Ok(answer)
        };
        list.await.map_err(Fault::into_error)
    }
}
