//! Being woken. Notifications are a convenience: without them everything is found within a second.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Config, NoTls};

use super::Inner;

pub(super) const CHANNEL: &str = "redrive";
/// Nobody waits for the disk to hear that something is there, which is on it already.
const NOTIFY: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
/// How often to look without having been woken.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// At most one notification in this time, however much comes in: each takes a lock that all commits with one share.
const NOTIFY_EVERY: Duration = Duration::from_millis(5);
/// What a notification of gates ends with.
const GATES: &str = " gates";
/// How long to wait before listening again after the connection was lost.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// What other processes are to hear.
#[derive(Default)]
pub(super) struct News {
    /// Something came in that others may be waiting for.
    arrived: Notify,
    /// Gates are others than they were: whoever hears of it looks at them first.
    gates: AtomicBool,
    /// Nobody was told for a moment: whoever writes next may tell it with its own commit, which is the quickest way.
    free: AtomicBool,
    told: Notify,
}

impl News {
    pub(super) fn arrived(&self) {
        self.arrived.notify_one();
    }

    pub(super) fn gates_changed(&self) {
        self.gates.store(true, Ordering::Release);
        self.arrived();
    }

    /// Whether to tell others with one's own commit. Whoever does says afterwards that it has.
    pub(super) fn may_tell(&self) -> bool {
        self.free.swap(false, Ordering::AcqRel)
    }

    pub(super) fn told(&self) {
        self.told.notify_one();
    }
}

/// Looks once a second, for as long as the store is there.
pub(super) async fn look(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        inner.woke();
    }
}

/// Tells other processes that something came in: at once, and then not again for a moment.
pub(super) async fn notify(inner: Arc<Inner>) {
    let news = &inner.news;
    loop {
        news.free.store(true, Ordering::Release);
        tokio::select! { biased;
            () = news.told.notified() => {}
            () = news.arrived.notified() => {
                news.free.store(false, Ordering::Release);
                let mut note = inner.name.clone();
                if news.gates.swap(false, Ordering::AcqRel) {
                    note.push_str(GATES);
                }
                let told = inner.database.query(NOTIFY, &[(&CHANNEL, Type::TEXT), (&note, Type::TEXT)]).await;
                if let Err(fault) = told {
                    tracing::debug!(%fault, "Others could not be woken; they will look by themselves");
                }
            }
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
        inner.direct.forget();
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn listen_once(inner: &Inner, config: &Config) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(NoTls).await?;
    let news = Notify::new();
    let hear = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            let AsyncMessage::Notification(note) = message? else { continue };
            // Through a pooler that gives each transaction another connection, nobody is ever told anything.
            inner.direct.prove();
            match note.payload().strip_suffix(GATES) {
                Some(sender) if sender != inner.name => news.notify_one(),
                None if note.payload() != inner.name => inner.woke(),
                _ => {}
            }
        }
        Ok(())
    };
    // Beside it, because the connection is to be heard meanwhile.
    let look = async {
        loop {
            news.notified().await;
            inner.look_at_others().await;
        }
    };
    let ask = async {
        client.batch_execute("LISTEN redrive").await?;
        // What this one hears of it tells how the others are connected.
        inner.news.arrived();
        std::future::pending().await
    };
    tokio::select! {
        ended = hear => ended,
        failed = ask => failed,
        never = look => never,
    }
}
