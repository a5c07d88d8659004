//! Being woken. Notifications are a convenience: without them everything is found within a second.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Config, NoTls};

use super::Inner;
use crate::clock::Timestamp;

const CHANNEL: &str = "redrive";
/// How often to look without having been woken.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// At most one notification in this time, however much comes in: each takes a lock that all commits with one share.
const NOTIFY_EVERY: Duration = Duration::from_millis(5);
/// Claims look again at the last quarter of a second; half of it is left for the way from there to the next claim.
const LATE: Duration = Duration::from_millis(125);
/// Looking through everything that is due costs more than going on: at most this often. The rest is found within a second.
const FORGET_EVERY: Duration = Duration::from_millis(250);
/// How long to wait before listening again after the connection was lost.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Looks once a second, for as long as the store is there.
pub(super) async fn look(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        inner.woke();
    }
}

/// Tells other processes that something came in: at once, and then not again for a moment.
pub(super) async fn notify(inner: Arc<Inner>) {
    loop {
        inner.news.notified().await;
        let told = inner
            .database
            .query("SELECT pg_notify($1, $2)", &[(&CHANNEL, Type::TEXT), (&inner.name, Type::TEXT)])
            .await;
        if let Err(fault) = told {
            tracing::debug!(%fault, "Others could not be woken; they will look by themselves");
        }
        tokio::time::sleep(NOTIFY_EVERY).await;
    }
}

/// Listens on a connection of its own, and on a new one when that is lost.
pub(super) async fn listen(inner: Arc<Inner>, config: Config) {
    loop {
        if let Err(error) = listen_once(&inner, &config).await {
            tracing::debug!(%error, "Not being woken by other processes for the moment");
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

/// Whether a note of `redrive.enqueue` says that its transaction was open for so long that claims may have passed its
/// jobs. They look for those once a second anyway; being told, they need not wait for that.
fn opened_long_ago(note: &str, now: Timestamp) -> bool {
    let since = note.strip_prefix("since ").and_then(|ms| ms.parse().ok()).map(Timestamp::from_millis);
    since.is_some_and(|since| now.since(since) > LATE)
}

async fn listen_once(inner: &Inner, config: &Config) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(NoTls).await?;
    let mut forgot_at = Timestamp::EPOCH;
    let hear = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(note) = message?
                && note.payload() != inner.name
            {
                let now = inner.clock.now();
                if opened_long_ago(note.payload(), now) && now.since(forgot_at) > FORGET_EVERY {
                    inner.cursors.forget();
                    forgot_at = now;
                }
                inner.woke();
            }
        }
        Ok(())
    };
    let ask = async {
        client.batch_execute("LISTEN redrive").await?;
        std::future::pending().await
    };
    tokio::select! {
        ended = hear => ended,
        failed = ask => failed,
    }
}
