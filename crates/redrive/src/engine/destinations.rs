//! Destinations, as an engine knows them: what attempts showed is handed to the store before they are settled, and what
//! people say of a destination is passed on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;

use super::shift::Desk;
use super::{Engine, Inner};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::gate::{
    Blame, Change, Limits, Phase, Report, Rules, Seen, Word, pattern_matches, pattern_problem,
};
use crate::job::{Ending, Job, Json, StateName};
use crate::machine::{self, Command};
use crate::operate::Setting;
use crate::outcome::{Class, Failure, Outcome};
use crate::store::{Destination, Filter, Settlement};

/// Where limits are kept that were set while the engine ran.
const SHELF: &str = "destinations";
/// How often instances look for limits that others have set.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Destinations whose pace is remembered.
const PACES_MAX: usize = 10_000;
/// What was called within this time was called lately.
const LATELY: Duration = Duration::from_secs(600);

/// What an engine remembers of destinations by itself.
pub(super) struct Known {
    /// Limits it was built with.
    rules: Rules,
    paces: Mutex<HashMap<Arc<str>, Pace>>,
    /// What this machine cannot reach, as patterns.
    cut_off: Mutex<Vec<String>>,
    changes: broadcast::Sender<Change>,
}

/// How many calls a second end.
#[derive(Default)]
struct Pace {
    count: u32,
    from: Timestamp,
    lately: f64,
}

impl Pace {
    fn count(&mut self, now: Timestamp) -> f64 {
        let passed = now.since(self.from).as_secs_f64();
        if passed >= 1.0 {
            self.lately = if passed < 10.0 { f64::from(self.count) / passed } else { 0.0 };
            (self.count, self.from) = (0, now);
        }
        self.count += 1;
        self.lately
    }
}

impl Known {
    pub(super) fn new(rules: Rules) -> Known {
        let (paces, cut_off) = (Mutex::default(), Mutex::default());
        Known { rules, paces, cut_off, changes: broadcast::Sender::new(1_000) }
    }

    /// Nothing that matches these patterns can be reached from here, until they are others.
    pub(super) fn cut_off(&self, patterns: &[String]) {
        *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner) = patterns.to_vec();
    }

    fn is_cut_off(&self, destination: &str) -> bool {
        let patterns = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner);
        patterns.iter().any(|pattern| pattern_matches(pattern, destination))
    }

    fn pace(&self, of: &Arc<str>, now: Timestamp) -> f64 {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        if paces.len() >= PACES_MAX {
            paces.clear();
        }
        paces.entry(of.clone()).or_default().count(now)
    }
}

impl Engine {
    /// Passes on what is said of a destination. When it is up, what waits for it goes at once, in order and along the
    /// ramp: pauses after failures are over.
    pub async fn say(&self, destination: &str, word: Word) -> Result<()> {
        let change = self.set(Setting::Destination { name: destination.into(), word }).await?;
        self.inner.changed(change);
        if word == Word::Up {
            let waiting = Filter {
                destination: Some(destination.to_owned()),
                states: vec![StateName::Waiting],
                ..Filter::default()
            };
            self.apply(Command::Hurry, &waiting).await?;
        }
        Ok(())
    }

    /// A credential was renewed: destinations that did not accept it take jobs again.
    pub async fn renewed(&self, credential: &str) -> Result<usize> {
        let suffix = format!("#{credential}");
        let held = self.destinations().await?.into_iter().filter(|one| {
            one.name.ends_with(&suffix)
                && matches!(one.gate.phase, Phase::Shut { why: crate::gate::Why::Credential, .. })
        });
        let mut count = 0;
        for destination in held {
            self.say(&destination.name, Word::Up).await?;
            count += 1;
        }
        Ok(count)
    }

    /// The destinations that have something to say, by name.
    pub async fn destinations(&self) -> Result<Vec<Destination>> {
        self.inner.store.destinations().list(self.now()).await
    }

    /// The destinations that this engine has called within the last ten minutes, by name.
    pub fn called_lately(&self) -> Vec<Arc<str>> {
        let now = self.now();
        let paces = self.inner.known.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = paces.iter().filter(|(_, pace)| now.since(pace.from) < LATELY);
        let mut names: Vec<Arc<str>> = lately.map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Limits the destinations that match a pattern, or no longer; on every engine of the store, within a second.
    ///
    /// # Errors
    ///
    /// What is wrong with the pattern or the limits, and what to write instead.
    pub async fn limit(&self, pattern: &str, limits: Option<Limits>) -> Result<()> {
        let problems: Vec<String> =
            pattern_problem(pattern).into_iter().chain(limits.iter().flat_map(Limits::problems)).collect();
        if !problems.is_empty() {
            return Err(Error::invalid("the limits were not set", problems.join("; ")));
        }
        let value = limits
            .map(|limits| Json::of(&limits))
            .transpose()
            .map_err(|error| Error::invalid("the limits cannot be written", error.to_string()))?;
        self.keep_record(SHELF, pattern, value).await?;
        self.inner.look_up_limits().await
    }

    /// Which limits hold, by pattern: those the engine was built with, and over them those that were set since.
    pub fn limits(&self) -> Arc<Rules> {
        self.inner.store.destinations().rules()
    }

    /// What gates do from now on, as far as this engine sees it first.
    pub fn gate_changes(&self) -> broadcast::Receiver<Change> {
        self.inner.known.changes.subscribe()
    }
}

impl Inner {
    /// Holds a job whose destination this machine cannot reach, and says so of the destination: nobody knew of it before,
    /// and the others that are for it need not be taken to find out.
    pub(super) async fn held_back(&self, job: &Job) -> Option<Outcome> {
        let destination = job.extras().destination.as_deref().filter(|to| self.known.is_cut_off(to))?;
        let mut word = Word::Down;
        loop {
            match self.store.destinations().tell(destination, word, self.clock.now()).await {
                Ok(change) => self.changed(change),
                Err(error) => tracing::warn!(%error, destination, "Cannot say that it is out of reach"),
            }
            // It may have come back meanwhile, and whoever said so has not seen this one.
            if word == Word::Up || self.known.is_cut_off(destination) {
                return Some(Outcome::Held(Failure::retry("this machine has no network").code("OFFLINE")));
            }
            word = Word::Up;
        }
    }

    /// Tells the store what attempts showed of their destinations. What is a destination's fault costs its job nothing.
    pub(super) async fn learn(&self, settlements: &mut [Settlement]) -> Result<()> {
        // Nothing is learned of an attempt before it has ended, and that is rounded up.
        let ended_at = settlements.iter().map(|settlement| settlement.ended_at);
        let now = ended_at.fold(self.clock.now(), Timestamp::max);
        let mut seen: Vec<usize> = Vec::new();
        let mut reports: Vec<Report> = Vec::new();
        for (index, settlement) in settlements.iter().enumerate() {
            if let Some(report) = self.report(settlement, now) {
                seen.push(index);
                reports.push(report);
            }
        }
        if reports.is_empty() {
            return Ok(());
        }
        let observed = self.store.destinations().observe(&reports, now).await?;
        for (index, blame) in seen.into_iter().zip(observed.blames) {
            let settlement = &mut settlements[index];
            if blame == Blame::Destination
                && let Some(failure) = settlement.transition.failure.take()
            {
                let job = &settlement.job;
                let mut rng = job.id.rng(job.attempt());
                settlement.transition =
                    machine::settle(job, Outcome::Held(failure), settlement.ended_at, &mut rng);
            }
        }
        for change in observed.changes {
            self.changed(Some(change));
        }
        Ok(())
    }

    fn report(&self, settlement: &Settlement, now: Timestamp) -> Option<Report> {
        let Settlement { job, transition, started_at, ended_at, .. } = settlement;
        let destination = job.extras().destination.clone()?;
        let seen = match (transition.ending, &transition.failure) {
            (Ending::Succeeded, _) => Seen::Well,
            (Ending::Failed, Some(failure)) if failure.code.as_deref() == Some("PANIC") => return None,
            (Ending::Failed, Some(failure)) => {
                let asked = failure.retry_after.and_then(|wait| job.policy.heeded(wait));
                match (job.policy.classify(failure).class, asked) {
                    (Class::Permanent, _) => Seen::Well,
                    // Without a credential of its own it is this job that was refused, and not the destination's key.
                    (Class::NeedsAuth, _) if destination.contains('#') => Seen::Refusal,
                    (Class::NeedsAuth, _) => Seen::Well,
                    (_, Some(wait)) => Seen::Pause(wait),
                    (_, None) => Seen::Failure,
                }
            }
            _ => return None,
        };
        let pace = self.known.pace(&destination, now);
        let (job, holds) = (job.id, job.ledger.holds);
        let status = transition.failure.as_ref().and_then(|failure| failure.status);
        Some(Report { destination, job, holds, seen, began: *started_at, ended: *ended_at, status, pace })
    }

    fn changed(&self, change: Option<Change>) {
        let Some(change) = change else { return };
        let destination = change.destination.to_string();
        match change.after {
            _ if !change.is_news() => tracing::debug!(destination, "Destination: {change}"),
            Phase::Shut { .. } => tracing::warn!(destination, "Destination shut: {change}"),
            _ => tracing::info!(destination, "Destination: {change}"),
        }
        let to = match change.after {
            Phase::Open => "open",
            Phase::Shut { .. } => "shut",
            Phase::Probing { .. } => "probing",
            Phase::Ramp { .. } => "ramp",
        };
        metrics::counter!("redrive_gate_changes_total", "to" => to).increment(1);
        // Nobody listening is no error.
        drop(self.known.changes.send(change));
    }

    /// Puts together what it was built with and what was set since.
    pub(super) async fn look_up_limits(&self) -> Result<()> {
        let mut rules = self.known.rules.clone();
        for (pattern, value) in self.store.records(SHELF).await? {
            match value.decode::<Limits>() {
                Ok(limits) => rules.set(pattern, Some(limits)),
                Err(error) => tracing::error!(%error, pattern, "Limits of a destination cannot be read"),
            }
        }
        let destinations = self.store.destinations();
        if *destinations.rules() != rules {
            destinations.limit(Arc::new(rules));
        }
        Ok(())
    }
}

/// Looks for limits that other instances have set.
pub(super) async fn follow_limits(desk: Arc<Desk>) {
    let inner = &desk.inner;
    if !inner.store.operations().is_shared() {
        return;
    }
    loop {
        inner.clock.sleep_until(inner.clock.now() + LOOK_EVERY).await;
        if let Err(error) = inner.look_up_limits().await {
            tracing::debug!(%error, "Cannot look for limits of destinations; trying again");
        }
    }
}
