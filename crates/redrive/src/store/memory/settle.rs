//! Attempts end, and what follows at once goes on in their places.

use std::collections::BTreeMap;

use super::world::World;
use crate::clock::Timestamp;
use crate::job::{Ending, Job};
use crate::stats::{Activity, Tally};
use crate::store::settlement::{Kept, hand_on};
use crate::store::{Again, Lease, Settled, Settlement};

impl World {
    pub(super) fn settle_all(&mut self, settlements: &[Settlement]) -> Vec<Settled> {
        let next = settlements.iter().find_map(Settlement::wanted_next);
        let told = next.and_then(|again| self.claims.get(&again.claim)).map(|claim| {
            let held = claim.held.values().map(|lease| (*lease, self.rows[&lease.seq].job.clone()));
            held.collect::<Vec<_>>()
        });
        let mut gone = BTreeMap::new();
        let mut answers: Vec<Settled> =
            settlements.iter().map(|settlement| self.settle(settlement, &mut gone)).collect();
        if let Some(again) = next {
            let begun = told.unwrap_or_else(|| self.begin(again, Kept::of(settlements, &answers), &gone));
            hand_on(settlements, &mut answers, begun);
        }
        answers
    }

    /// Claims those that were let go, in their order, as far as places were kept for them.
    fn begin(
        &mut self,
        again: &Again,
        kept: Option<Kept<'_>>,
        gone: &BTreeMap<i64, Timestamp>,
    ) -> Vec<(Lease, Job)> {
        let is_there = !self.books.held && self.holders.contains_key(&again.holder);
        let Some(mut kept) = kept.filter(|_| is_there) else { return Vec::new() };
        let begins = |(seq, at): &(&i64, &Timestamp)| {
            let job = &self.rows[*seq].job;
            !self.paused.contains(&job.queue) && kept.take(job, **at)
        };
        let begun: Vec<(&i64, &Timestamp)> = gone.iter().filter(begins).collect();
        let Some(since) = begun.iter().map(|(_, at)| **at).max() else { return Vec::new() };
        begun.into_iter().map(|(seq, _)| self.take(*seq, again.claim, again.holder, since)).collect()
    }

    /// Writes one; what it lets go is noted, with when.
    fn settle(&mut self, settlement: &Settlement, gone: &mut BTreeMap<i64, Timestamp>) -> Settled {
        let Settlement { lease, transition, ended_at, .. } = settlement;
        if self.goes_on(settlement) {
            return Settled::Again;
        }
        let Some(claim) = self.claims.get_mut(&lease.claim) else { return Settled::Refused };
        claim.lost.remove(&lease.seq);
        let listed = claim.held.get(&lease.seq) == Some(lease);
        if listed {
            claim.held.remove(&lease.seq);
        }
        if claim.held.is_empty() && claim.lost.is_empty() {
            self.claims.remove(&lease.claim);
        }
        let row = self.rows.get_mut(&lease.seq).filter(|row| {
            listed
                && row.claim == Some(lease.claim)
                && row.job.id == lease.job
                && row.job.ledger.attempt == lease.attempt
        });
        let Some(row) = row else { return Settled::Refused };
        row.claim = None;
        if transition.ending != Ending::Succeeded {
            row.remember(settlement.record());
        }
        let mut news = Tally::default();
        news.count(&row.job, transition);
        *self.totals.entry(row.job.queue.clone()).or_default() += news;
        self.books.count(*ended_at, &news);
        let note = Activity::of(&row.job, transition, *ended_at);
        row.apply(transition);
        self.activity.extend(note);
        self.bound_activity();
        for seq in self.let_go(lease.seq, *ended_at) {
            let at = gone.entry(seq).or_insert(*ended_at);
            *at = (*at).max(*ended_at);
        }
        match settlement.wanted_again() {
            Some(again)
                if !self.books.held
                    && !self.paused.contains(&settlement.job.queue)
                    && self.holders.contains_key(&again.holder) =>
            {
                self.take(lease.seq, again.claim, again.holder, *ended_at);
                Settled::Again
            }
            _ => Settled::Applied,
        }
    }

    /// Whether the same settlement came before, and the job was claimed again with it.
    fn goes_on(&self, settlement: &Settlement) -> bool {
        let next = settlement.next_lease();
        let claim = next.and_then(|lease| self.claims.get(&lease.claim));
        claim.is_some_and(|claim| claim.held.get(&settlement.lease.seq) == next.as_ref())
    }
}
