//! A proxy before PostgreSQL that loses what a network loses: requests, replies, whole connections, time.
//!
//! Here are the rules: when to cut. `wire.rs` is one connection, and carries them out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::address::Address;
use crate::wire::{End, serve};

/// A TCP proxy for clients of PostgreSQL, without TLS. Dropping it cuts every connection.
///
/// A statement matches if its text contains the given one. Statements count when they are executed, however long ago
/// they were prepared. COPY, and clients that send `Flush` and wait for the answer, are beyond it.
pub struct Proxy {
    shared: Arc<Shared>,
    address: Address,
    accepting: JoinHandle<()>,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were ever accepted.
    pub accepted: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Connections that a rule has cut.
    pub cut: u64,
}

impl Proxy {
    /// Starts one before the server that `url` names; its database does not matter.
    ///
    /// # Panics
    ///
    /// If the machine has no port left.
    pub async fn start(url: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let port = listener.local_addr().expect("it listens").port();
        let upstream = Address::of(url);
        let address = upstream.behind(port);
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            rules: Mutex::default(),
            counts: watch::Sender::default(),
            frozen: watch::Sender::new(false),
            epoch: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Proxy { shared, address, accepting }
    }

    /// The URL of a database of the server behind it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.address.url(database)
    }

    /// Loses the reply to the next statement with this text: the server has committed, the client never hears of it.
    ///
    /// In a transaction of several statements it is the reply to the commit that is lost.
    pub fn cut_next_reply_to(&self, text: &str) {
        self.rule(text, Cut::Reply, 1, Repeat::Once);
    }

    /// Loses the reply to every `nth` statement with this text.
    pub fn cut_every_reply_to(&self, nth: u64, text: &str) {
        self.rule(text, Cut::Reply, nth, Repeat::Always);
    }

    /// Cuts the connection instead of forwarding the next statement with this text.
    pub fn cut_next_before(&self, text: &str) {
        self.rule(text, Cut::Request, 1, Repeat::Once);
    }

    /// Cuts the connection instead of forwarding every `nth` statement with this text.
    pub fn cut_every_before(&self, nth: u64, text: &str) {
        self.rule(text, Cut::Request, nth, Repeat::Always);
    }

    /// Forgets every rule.
    pub fn heal(&self) {
        self.shared.rules().clear();
    }

    /// Cuts every open connection, in whatever state it is.
    pub fn cut_all(&self) {
        self.shared.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Stops reading from the server, so that it must stop sending. Requests still reach it.
    pub fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    /// Reads on.
    pub fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }

    /// Sends new connections to another server, as an address that moves on failover does.
    pub fn redirect(&self, url: &str) {
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = Address::of(url);
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until what has happened is enough.
    pub async fn until(&self, mut enough: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.shared.counts.subscribe();
        *counts.wait_for(|counts| enough(counts)).await.expect("we hold the sender")
    }

    fn rule(&self, text: &str, cut: Cut, nth: u64, repeat: Repeat) {
        self.shared.rules().push(Rule { text: text.to_owned(), cut, nth: nth.max(1), repeat, seen: 0 });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut_all();
    }
}

pub(crate) struct Shared {
    upstream: Mutex<Address>,
    rules: Mutex<Vec<Rule>>,
    counts: watch::Sender<Counts>,
    pub(crate) frozen: watch::Sender<bool>,
    /// Connections live in the epoch in which they were opened.
    epoch: watch::Sender<u64>,
}

struct Rule {
    text: String,
    cut: Cut,
    nth: u64,
    repeat: Repeat,
    seen: u64,
}

/// What is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Request,
    Reply,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Once,
    Always,
}

impl Shared {
    pub(crate) fn upstream(&self) -> Address {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to happen to this statement. Every rule sees it; if several strike, a lost request is also a lost reply.
    pub(crate) fn judge(&self, statement: &str) -> Option<Cut> {
        let mut rules = self.rules();
        let mut struck = None;
        rules.retain_mut(|rule| {
            if !statement.contains(&rule.text) {
                return true;
            }
            rule.seen += 1;
            if rule.seen % rule.nth != 0 {
                return true;
            }
            struck = if struck == Some(Cut::Request) { struck } else { Some(rule.cut) };
            rule.repeat == Repeat::Always
        });
        struck
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        shared.counts.send_modify(|counts| {
            counts.accepted += 1;
            counts.open += 1;
        });
        let mut epoch = shared.epoch.subscribe();
        tokio::spawn(async move {
            let end = tokio::select! {
                biased;
                _ = epoch.changed() => End::Closed,
                end = serve(client, &shared) => end,
            };
            // Both sockets are closed by now: whoever waits for a count may rely on it.
            shared.counts.send_modify(|counts| {
                counts.open -= 1;
                counts.cut += u64::from(matches!(end, End::Cut));
            });
        });
    }
}
