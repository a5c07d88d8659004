//! Connections that are open and unused, each for a few seconds.
//!
//! A connection lies under its origin (scheme, host, port) *and* its address. Whoever wants one resolves the name
//! again and asks with the addresses that are permitted now; so a connection that was made when a name pointed to one
//! place is not used when it points to another, and no connection stands in for a question the guard was not asked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use redrive::{Clock, Timestamp};
use tokio::task::AbortHandle;

use super::request::Origin;

/// Shorter than the five seconds after which many servers close: a request that meets a closing connection has an
/// unknown outcome, and costs a job one of its tries.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// All of them: file descriptors are few.
const CONNECTIONS_MAX: usize = 256;

/// One HTTP/1.1 connection. Dropped, it is closed, whatever is under way on it.
pub(super) struct Link {
    pub(super) sender: SendRequest<Full<Bytes>>,
    pub(super) driver: AbortHandle,
    pub(super) address: SocketAddr,
    pub(super) age: Age,
}

/// Whether a connection has been used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    New,
    Used,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

pub(super) struct Pool {
    clock: Clock,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    links: BTreeMap<(Origin, SocketAddr), Vec<(Timestamp, Link)>>,
    count: usize,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool { clock: Clock::system(), idle: Mutex::default() }
    }

    /// An open connection of this origin to one of these addresses, the last used first.
    pub(super) fn take(&self, origin: &Origin, addresses: &[SocketAddr]) -> Option<Link> {
        let now = self.clock.now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let Idle { links, count } = &mut *idle;
        for address in addresses {
            let key = (origin.clone(), *address);
            let Some(waiting) = links.get_mut(&key) else { continue };
            while let Some((since, link)) = waiting.pop() {
                *count -= 1;
                if now.since(since) < IDLE_MAX && !link.sender.is_closed() {
                    return Some(link);
                }
            }
            links.remove(&key);
        }
        None
    }

    /// Keeps a connection whose last answer was read to its end.
    pub(super) fn put(&self, origin: Origin, mut link: Link) {
        link.age = Age::Used;
        let now = self.clock.now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.count >= CONNECTIONS_MAX {
            idle.sweep(now);
        }
        if idle.count < CONNECTIONS_MAX && !link.sender.is_closed() {
            idle.count += 1;
            idle.links.entry((origin, link.address)).or_default().push((now, link));
        }
    }
}

impl Idle {
    fn sweep(&mut self, now: Timestamp) {
        self.links.retain(|_, waiting| {
            waiting.retain(|(since, link)| now.since(*since) < IDLE_MAX && !link.sender.is_closed());
            !waiting.is_empty()
        });
        self.count = self.links.values().map(Vec::len).sum();
    }
}
