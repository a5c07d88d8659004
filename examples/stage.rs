//! What the programs have in common: a folder, an address for the dashboard, and how fast time goes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use redrive::{Backoff, JitterKind, Policy};
use redrive_server::config::{self, Config, Sources, StoreUrl};
use redrive_server::egress::{Egress, EgressPolicy};

/// Where and how fast a program runs.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Where it keeps its files.
    pub folder: PathBuf,
    /// Where its dashboard is.
    pub listen: SocketAddr,
    /// How fast time goes.
    pub pace: Pace,
    /// What it does by itself.
    pub play: Play,
}

/// What a program does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// It introduces itself.
    Story,
    /// Nothing, until it is asked over HTTP.
    Idle,
}

impl Stage {
    /// In this folder, on a port that is free, a hundred times as fast: for tests.
    pub fn quick(folder: impl Into<PathBuf>) -> Stage {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Stage { folder: folder.into(), listen, pace: Pace::QUICK, play: Play::Idle }
    }

    /// What a server is told that keeps its jobs in the folder.
    ///
    /// # Errors
    ///
    /// If the defaults were wrong, which they are not.
    pub fn config(&self) -> Result<Config> {
        let config = config::load(&Sources::none()).map_err(|mistakes| anyhow!("{mistakes:?}"))?;
        let store = StoreUrl::Sqlite(self.folder.join("jobs.db"));
        Ok(Config { store, listen: self.listen, ..config })
    }
}

/// The guarded way out, with loopback opened: the far sides of these programs are on this machine.
///
/// # Errors
///
/// If loopback could not be written as a network, which it can.
pub(crate) fn egress() -> Result<Egress> {
    let allow = "127.0.0.1".parse().map_err(|wrong| anyhow!("{wrong}"))?;
    Ok(Egress::new(EgressPolicy { allow: vec![allow] }))
}

/// Resolves when somebody interrupts the program.
pub(crate) async fn interrupted() {
    // Where no signal can be waited for, it is ended from outside.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How fast time goes: 1 is as written, 100 a hundred times as fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(pub u32);

impl Pace {
    /// As written.
    pub const REAL: Pace = Pace(1);
    /// So that seconds pass in a blink, and a test need not wait.
    pub const QUICK: Pace = Pace(100);

    /// How long this takes.
    pub fn of(self, written: Duration) -> Duration {
        written / self.0.max(1)
    }

    /// A preset with its delays at this pace. Everything else about it is as it is.
    ///
    /// # Errors
    ///
    /// The names there are.
    pub fn policy(self, preset: &str) -> Result<Policy> {
        let mut policy = Policy::preset(preset).map_err(|wrong| anyhow!(wrong))?;
        if let Backoff::Exponential { base, .. } = &mut policy.backoff {
            *base = self.of(*base);
        }
        if let JitterKind::Additive { max } = &mut policy.jitter.kind {
            *max = self.of(*max);
        }
        policy.cap = policy.cap.map(|cap| self.of(cap));
        Ok(policy)
    }
}
