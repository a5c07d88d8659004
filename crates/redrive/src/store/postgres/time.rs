//! All instances go by the database's clock: a host whose own is wrong is early or late for nobody.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::codec::only;
use super::fault::Fault;
use crate::clock::Asked;

/// How often the database is asked for the time.
const EVERY: Duration = Duration::from_secs(5);
/// The quickest answer of this many is believed.
const QUESTIONS: usize = 3;
/// An answer this quick is believed at once.
const QUICK: Duration = Duration::from_millis(1);

/// Asks for the time for as long as the store is there.
pub(super) async fn follow(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(fault) = set(&inner).await {
            tracing::debug!(%fault, "The database did not tell the time; the last reading holds");
        }
    }
}

/// Asks for the time, and sets the clock by the quickest answer.
pub(super) async fn set(inner: &Inner) -> Result<(), Fault> {
    let mut quickest: Option<Duration> = None;
    for _ in 0..QUESTIONS {
        let asked = Asked::now();
        let rows = inner.database.query(include_str!("now.sql"), &[]).await?;
        let took = asked.elapsed();
        if quickest.is_none_or(|before| took < before) {
            // Set at once: it is taken as if it were from this very moment, and so is a little behind, never ahead.
            inner.followed.set(only(&rows)?.try_get(0)?);
            quickest = Some(took);
        }
        if took < QUICK {
            break;
        }
    }
    Ok(())
}
