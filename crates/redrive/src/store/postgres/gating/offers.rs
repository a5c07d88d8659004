//! What a claim is told of gates, and what it answers: how many may go, and when each has its turn.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Gating, Seens};
use crate::clock::Timestamp;
use crate::gate::Grant;
use crate::job::Job;

/// Gates that one claim is told of.
pub(super) const OFFERS_MAX: usize = 200;

/// What a claim is told.
pub(in super::super) struct Offers {
    /// Which destinations are limited.
    pub(in super::super) limited: Vec<String>,
    /// What their gates grant,
    pub(in super::super) text: Option<String>,
    /// and the same to reckon with.
    pub(in super::super) grants: BTreeMap<Arc<str>, Grant>,
}

/// How a gate stands, as the database says it.
#[derive(Deserialize)]
pub(super) struct Stands {
    pub(super) name: String,
    pub(super) version: Option<i64>,
    pub(super) active: Option<bool>,
    pub(super) state: Option<String>,
    pub(super) next_us: Option<i64>,
    pub(super) retry_us: Option<i64>,
    pub(super) sent: Option<i64>,
    pub(super) full: bool,
    pub(super) went: i64,
    /// How many more might have gone, and how many more retries.
    pub(super) left: Option<[i64; 2]>,
    pub(super) waits: Option<i16>,
}

pub(super) fn stands(gates: Option<&str>) -> Vec<Stands> {
    gates.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// By destination, when each of those that were let go has its turn.
#[derive(Default)]
pub(in super::super) struct Turns(BTreeMap<Arc<str>, VecDeque<Timestamp>>);

impl Turns {
    /// Of what a claim has let go, by what was granted and by how gates stand since.
    pub(in super::super) fn of(grants: &BTreeMap<Arc<str>, Grant>, gates: Option<&str>) -> Turns {
        let went = stands(gates).into_iter().filter_map(|stands| {
            let (name, grant) = grants.get_key_value(&*stands.name)?;
            let count = u32::try_from(stands.went).ok()?;
            Some((name.clone(), grant.turns(stands.next_us?, count).collect()))
        });
        Turns(went.collect())
    }

    /// The turn of the next job of a claim, if it is later than now. What is out of time calls nobody.
    pub(in super::super) fn next(&mut self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        let over = job.buried_at().is_some_and(|at| at <= now);
        let destination = job.extras().destination.as_ref().filter(|_| !over)?;
        self.0.get_mut(destination)?.pop_front().filter(|turn| *turn > now)
    }
}

impl Gating {
    /// What to tell a claim.
    pub(in super::super) fn offers(&self, now: Timestamp, ahead: Duration) -> Offers {
        let seens = self.lock();
        let (mut offers, mut grants) = (Vec::new(), BTreeMap::new());
        let mut names: Vec<Arc<str>> = seens.lines.keys().cloned().collect();
        // In turns: with whoever comes after the last that went.
        let behind = names.partition_point(|name| *name <= seens.turn);
        names.rotate_left(behind);
        let lines = names.len();
        if lines < OFFERS_MAX {
            let active =
                seens.known.iter().filter(|(name, known)| known.active && !seens.lines.contains_key(*name));
            let active: Vec<Arc<str>> = active.take(OFFERS_MAX).map(|(name, _)| name.clone()).collect();
            names.extend(active);
        }
        for (place, name) in names.into_iter().enumerate() {
            if offers.len() == OFFERS_MAX {
                break;
            }
            if let Some((mut offer, grant)) = seens.offer(&name, now, ahead) {
                (offer["turn"], offer["waits"]) = (offers.len().into(), (place < lines).into());
                offers.push(offer);
                grants.insert(name, grant);
            }
        }
        let text = (!offers.is_empty()).then(|| Value::Array(offers).to_string());
        Offers { limited: seens.limited.clone(), text, grants }
    }
}

impl Seens {
    fn offer(&self, name: &Arc<str>, now: Timestamp, ahead: Duration) -> Option<(Value, Grant)> {
        let limits = self.rules.of(name);
        let known = self.known.get(name);
        let gate = known.map(|known| known.gate.clone()).unwrap_or_default();
        let grant = gate.grant(&limits, now).ahead(ahead, self.lead);
        // What was seen of the counts is old, but they only ever grow.
        if grant.room(&gate.counts).0 == 0 {
            return None;
        }
        let version = known.map(|known| known.version).or_else(|| limits.count_calls().then_some(0));
        let offer = json!({
            "name": &**name,
            "version": version,
            "most": grant.most.min(i32::MAX.cast_unsigned()),
            "floor": grant.calls.floor_us,
            "until": grant.calls.until_us,
            "cost": grant.calls.cost_us,
            "retry_floor": grant.retries.floor_us,
            "retry_until": grant.retries.until_us,
            "retry_cost": grant.retries.cost_us,
            "credit": grant.credit_us,
            "places": limits.concurrency,
            "changes": grant.gate.phase != gate.phase,
            "state": serde_json::to_string(&grant.gate).expect("a gate can be written"),
        });
        Some((offer, grant))
    }
}
