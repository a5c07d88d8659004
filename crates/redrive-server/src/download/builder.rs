//! Making [`Downloads`]: where to, how many at once, within which limits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use redrive::{Clock, Engine, Limits as Rules, Policy, Queue, Retention, Store, days, secs};

use super::board::Board;
use super::fetch::{Fetcher, write_bytes};
use super::folder::{Folder, Taken};
use super::hosts::Hosts;
use super::{DEFAULT_MAX_RETRIES, Downloads, FileState, MAX_RETRIES_LIMIT, Observer};
use crate::egress::{Egress, EgressPolicy};

/// How many files at once unless told otherwise.
const PARALLEL_DEFAULT: usize = 4;
/// How many jobs are taken in hand, most of them to wait for their host: so that one slow host does not keep others
/// from being asked.
const IN_HAND: usize = 1_024;
/// However often a process is killed, it is not the download's fault.
const CRASHES_MAX: u32 = 1_000_000;
/// A disk is not filled to its last byte: others write there too.
const DISK_FLOOR: u64 = 16 << 20;

/// So long it is remembered that a file is there because it was downloaded.
const KEPT: Duration = days(365);

/// How much a download may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// It is dead if it is larger than this many bytes.
    pub size_max: Option<u64>,
    /// One try ends after so long.
    pub time_max: Option<Duration>,
    /// A try ends when next to nothing came for so long.
    pub stall: Duration,
    /// So many bytes stay free on the disk.
    pub disk_floor: u64,
    /// A file that has the name already is replaced.
    pub overwrite: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { size_max: None, time_max: None, stall: secs(30), disk_floor: DISK_FLOOR, overwrite: false }
    }
}

impl Limits {
    pub(super) fn taken(self) -> Taken {
        if self.overwrite { Taken::Replace } else { Taken::Keep }
    }
}

/// Makes [`Downloads`].
pub struct Builder {
    path: PathBuf,
    egress: Option<Egress>,
    policy: Policy,
    parallel: usize,
    per_host: usize,
    bytes_per_second: Option<u64>,
    queue: String,
    limits: Limits,
    observer: Option<Observer>,
}

impl Builder {
    pub(super) fn new(path: &Path) -> Builder {
        Builder {
            path: path.to_owned(),
            egress: None,
            policy: policy(DEFAULT_MAX_RETRIES),
            parallel: PARALLEL_DEFAULT,
            per_host: PARALLEL_DEFAULT,
            bytes_per_second: None,
            queue: "downloads".to_owned(),
            limits: Limits::default(),
            observer: None,
        }
    }

    /// Through this guard. Default: the open internet alone.
    #[must_use]
    pub fn egress(mut self, egress: Egress) -> Builder {
        self.egress = Some(egress);
        self
    }

    /// Tried again as often as this, from 0 to [`MAX_RETRIES_LIMIT`], by the preset `download`. A try that broke off
    /// after it had brought a good part does not count.
    #[must_use]
    pub fn max_retries(self, retries: u32) -> Builder {
        self.policy(policy(retries.min(MAX_RETRIES_LIMIT)))
    }

    /// Tried again by this policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = Policy { max_crashes: CRASHES_MAX, ..policy };
        self
    }

    /// So many files at once. Default 4.
    #[must_use]
    pub fn parallel(mut self, files: usize) -> Builder {
        self.parallel = files.max(1);
        self
    }

    /// So many of one host at once. Default 4.
    #[must_use]
    pub fn per_host(mut self, files: usize) -> Builder {
        self.per_host = files.max(1);
        self
    }

    /// All together not faster than this.
    #[must_use]
    pub fn bytes_per_second(mut self, limit: Option<u64>) -> Builder {
        self.bytes_per_second = limit;
        self
    }

    /// In this queue of the store. What is left in others is not touched.
    #[must_use]
    pub fn queue(mut self, name: &str) -> Builder {
        self.queue = name.to_owned();
        self
    }

    /// Within these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Tells whenever something happens to a download.
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(&FileState) + Send + Sync + 'static) -> Builder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// With the jobs in this store, which is this process's alone.
    ///
    /// # Errors
    ///
    /// What is wrong with the folder, the store or the policy.
    pub async fn open(self, store: impl Store) -> Result<Downloads> {
        let store: Arc<dyn Store> = Arc::new(store);
        let folder = Folder::open(&self.path)
            .with_context(|| format!("cannot use the folder {}", self.path.display()))?;
        // What a killed process had in hand waits again, before it is asked for anew.
        Engine::on(store.clone()).build()?.drain_due().await?;
        let (folder, board) = (Arc::new(folder), Arc::new(Board::default()));
        let fetcher = Fetcher {
            egress: self.egress.unwrap_or_else(|| Egress::new(EgressPolicy::default())),
            folder: folder.clone(),
            hosts: Arc::new(Hosts::new(self.parallel, self.per_host, self.bytes_per_second)),
            board: board.clone(),
            limits: self.limits,
            write_bytes: write_bytes(self.parallel),
            clock: Clock::system(),
        };
        let queue =
            Queue::new(&self.queue).concurrency(IN_HAND.max(self.parallel)).policy(self.policy.clone());
        let engine = Engine::on(store)
            .queue(queue)
            .handle(fetcher)
            .destination("*", rules())
            // What is under way is on the disk already: nothing is won by waiting for it.
            .grace(Duration::ZERO)
            .retention(Retention { succeeded: KEPT, ..Retention::default() })
            .build()?;
        let Builder { policy, queue, limits, observer, .. } = self;
        Ok(Downloads { engine, folder, board, queue: queue.into(), policy, limits, observer })
    }
}

/// The preset `download` with so many retries.
fn policy(retries: u32) -> Policy {
    let preset = Policy::preset("download").expect("a preset of ours").retries(retries);
    Policy { max_crashes: CRASHES_MAX, ..preset }
}

/// The gates of the store let everything go: every download fails by its own count, and `Hosts` knows what a host bears.
fn rules() -> Rules {
    Rules { breaker: 0, retry_budget: 0, retry_after_max: Duration::ZERO, ..Rules::default() }
}
