//! Bugs on purpose in what a store keeps of destinations.

use std::sync::Arc;

use async_trait::async_trait;

use super::planted::{Bug, Planted};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::gate::{Blame, Change, Report, Rules, Seen, Word};
use crate::store::{Destination, Destinations, Observed, Store};

#[async_trait]
impl<S: Store + ?Sized> Destinations for Planted<S> {
    fn limit(&self, rules: Arc<Rules>) {
        if !self.has(Bug::LimitsIgnored) {
            self.inner.destinations().limit(rules);
        }
    }

    fn rules(&self) -> Arc<Rules> {
        self.inner.destinations().rules()
    }

    async fn observe(&self, reports: &[Report], now: Timestamp) -> Result<Observed> {
        let mut reports = reports.to_vec();
        if self.has(Bug::PauseForgotten) {
            let pauses = reports.iter_mut().filter(|report| matches!(report.seen, Seen::Pause(_)));
            pauses.for_each(|report| report.seen = Seen::Failure);
        }
        let mut observed = self.inner.destinations().observe(&reports, now).await?;
        if self.has(Bug::JobPays) {
            observed.blames.fill(Blame::Job);
        }
        Ok(observed)
    }

    async fn tell(&self, destination: &str, word: Word, now: Timestamp) -> Result<Option<Change>> {
        match word {
            Word::Down if self.has(Bug::DownNotHeard) => Ok(None),
            Word::Up if self.has(Bug::UpNotHeard) => Ok(None),
            _ => self.inner.destinations().tell(destination, word, now).await,
        }
    }

    async fn list(&self, now: Timestamp) -> Result<Vec<Destination>> {
        self.inner.destinations().list(now).await
    }
}
