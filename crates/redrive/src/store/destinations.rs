//! What a store keeps of destinations: one gate for each that has something to say. Beside the trait that engines live
//! on, so that each stays on one screen.

use std::sync::Arc;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::gate::{Blame, Change, Gate, Limits, Report, Rules, Word};

/// The side of a [`Store`](crate::Store) that knows destinations. Claims obey it.
#[async_trait]
pub trait Destinations: Send + Sync {
    /// What destinations may be asked to bear, from now on and in this process.
    fn limit(&self, rules: Arc<Rules>);
    /// What holds now.
    fn rules(&self) -> Arc<Rules>;
    /// Takes in what attempts showed of their destinations, before they are settled. Every claim that follows, on any
    /// instance, obeys what was learned.
    async fn observe(&self, reports: &[Report], now: Timestamp) -> Result<Observed>;
    /// Does what somebody said of a destination; answers what it was and is.
    async fn tell(&self, destination: &str, word: Word, now: Timestamp) -> Result<Option<Change>>;
    /// Those that have something to say, by name.
    async fn list(&self, now: Timestamp) -> Result<Vec<Destination>>;
}

/// What came of reports.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// For each of them, whose failure it was.
    pub blames: Vec<Blame>,
    /// Gates that were shut or opened by them.
    pub changes: Vec<Change>,
}

/// A destination that has something to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Destination {
    /// Its name.
    pub name: Arc<str>,
    /// How it stands.
    pub gate: Gate,
    /// What it may be asked to bear.
    pub limits: Limits,
    /// Due jobs that wait for it.
    pub held: u64,
}
