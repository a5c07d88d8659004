//! One try of a download: one request, what comes is written, and what is complete gets its name.
//!
//! Whether and when there is another try is the engine's business. Not here: what an answer means (`answer.rs`), and
//! what may be continued (`part.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue, IF_RANGE, RANGE, USER_AGENT};
use http::{HeaderMap, Method};
use redrive::{Attempt, Clock, Failure, Handler, Outcome, Payload as _, secs};
use serde_json::json;

use super::answer::{Course, Have, judge};
use super::board::{Board, Meter};
use super::error::DownloadError;
use super::folder::Folder;
use super::hosts::{Flow, Hosts, Permit};
use super::part::{Opened, Part, Placed, forget_empty};
use super::places::Turn;
use super::{Download, Limits};
use crate::egress::{Egress, Redirects, Request, Streamed, Timeouts, user_header};

/// What tells that it is us.
const AGENT: &str = concat!("redrive/", env!("CARGO_PKG_VERSION"));
/// So much is collected before it is written: what a kill can cost, for each file that is under way …
const WRITE_BYTES: usize = 256 << 10;
/// … and less where very many are, so that all of them together do not have more than this in memory …
const WRITE_BYTES_ALL: usize = 8 << 20;
/// … but never so little that writing costs more than receiving.
const WRITE_BYTES_MIN: usize = 32 << 10;
/// Below this many bytes a second, over the time for a stall, a transfer is as good as stalled.
const LOW_SPEED: u64 = 64;
/// A try that broke off after it had brought this much costs no retry …
const PROGRESS_MIN: u64 = 1 << 20;
/// … nor one that brought this part of the file. Less than would use up the snoozes of a job.
const PROGRESS_SHARE: u64 = 500;
/// So often, in bytes, it is looked whether the disk is full.
const DISK_LOOK_EVERY: u64 = 64 << 20;

/// A try that broke off after it had brought enough goes on after this part of the first delay: the far side serves, and
/// no more is known to be wrong than that one connection ended.
const CUT_SHARE: u32 = 10;
/// A host that says "later" costs no retry, so often.
const LATER_MAX: u32 = 20;
/// However long a host wants to be left alone, it is asked again after this.
const HOST_SHUT_MAX: Duration = secs(24 * 3600);

/// Runs jobs of the kind `download`.
#[derive(Clone)]
pub(super) struct Fetcher {
    pub(super) egress: Egress,
    pub(super) folder: Arc<Folder>,
    pub(super) hosts: Arc<Hosts>,
    pub(super) board: Arc<Board>,
    pub(super) limits: Limits,
    /// See [`write_bytes`].
    pub(super) write_bytes: usize,
    pub(super) clock: Clock,
}

/// How much each of so many files collects before it is written.
pub(super) fn write_bytes(parallel: usize) -> usize {
    (WRITE_BYTES_ALL / parallel.max(1)).clamp(WRITE_BYTES_MIN, WRITE_BYTES)
}

impl Handler<Download> for Fetcher {
    async fn run(&self, attempt: Attempt<Download>) -> Outcome {
        let meter = self.board.meter(attempt.id);
        let under_way = UnderWay(meter.clone());
        let mut came = 0;
        let fetched = self.fetch(&attempt, &meter, &mut came).await;
        drop(under_way);
        match fetched {
            Ok(placed) => {
                meter.has_all(placed.bytes);
                self.board.named(attempt.id, &placed.name);
                Outcome::Done(Some(json!({ "file": placed.name, "bytes": placed.bytes }).into()))
            }
            // Whoever gets on is not failing.
            Err(error) if error.is_cut() && came >= progress_min(&meter) => {
                let wait = attempt.job().policy.first_delay(&mut attempt.id.rng(attempt.number));
                tracing::debug!(url = attempt.payload.url, came, %error, "Download was cut; going on");
                Outcome::Snooze(wait / CUT_SHARE)
            }
            // It is our being too many, or the host's trouble, and it is waited for with all others of the host.
            Err(error) if error.later().is_some() && attempt.job().ledger.holds < LATER_MAX => {
                Outcome::Held(error.failure())
            }
            Err(error) => Outcome::Failed(error.failure()),
        }
    }
}

/// A try. Dropped, whether it has ended or was ended, nothing is coming any more.
struct UnderWay(Arc<Meter>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// What a try must have brought beyond what was there to cost nothing.
fn progress_min(meter: &Meter) -> i64 {
    let share = meter.total().unwrap_or(0) / PROGRESS_SHARE;
    i64::try_from(share.max(PROGRESS_MIN)).unwrap_or(i64::MAX)
}

impl Fetcher {
    /// Fetches what is missing; counts how many bytes more there are than before.
    async fn fetch(
        &self,
        attempt: &Attempt<Download>,
        meter: &Meter,
        came: &mut i64,
    ) -> Result<Placed, DownloadError> {
        let what = &attempt.payload;
        let turn = if attempt.number > 1 { Turn::GoesOn } else { Turn::Begins };
        let host = what.destination().unwrap_or_default();
        // Before anything is opened: very many may wait here.
        let permit = self.hosts.enter(&host, turn, meter.not_before()).await;
        let (folder, name, url) = (self.folder.clone(), what.file_name()?, what.url.clone());
        let taken = self.limits.taken();
        let opened = blocking(move || Part::open(&folder, &name, &url, taken)).await?;
        let part = match opened {
            Opened::Part(part) => *part,
            Opened::Complete(placed) => return Ok(placed),
        };
        let fetched = self.complete(attempt, part, permit, meter, came).await;
        if fetched.is_err() {
            let (folder, name) = (self.folder.clone(), what.file_name()?);
            // What cannot be taken away does no harm.
            blocking(move || Ok(forget_empty(&folder, &name)?)).await.ok();
        }
        fetched
    }

    /// Brings what is missing of a file, verifies it, and gives it its name.
    async fn complete(
        &self,
        attempt: &Attempt<Download>,
        mut part: Part,
        permit: Permit,
        meter: &Meter,
        came: &mut i64,
    ) -> Result<Placed, DownloadError> {
        let what = &attempt.payload;
        let (host, taken) = (what.destination().unwrap_or_default(), self.limits.taken());
        let checksum = what.digest().map_err(DownloadError::Invalid)?;
        // Everything may have come before the last try could say so.
        if part.length() == 0 || part.identity().length != Some(part.length()) {
            part = match self.transfer(what, part, meter, came).await {
                Ok(part) => part,
                Err(error) => {
                    if let Some((wait, whom)) = error.later() {
                        // It may say "at once", and be asked for ever: so not sooner than after any other failure.
                        let least = attempt.job().policy.delay_before_jitter(1).unwrap_or_default();
                        let until = self.clock.now() + wait.max(least).min(HOST_SHUT_MAX);
                        meter.told_later(until);
                        self.hosts.said_later(&host, until, whom, permit);
                    }
                    return Err(error);
                }
            };
            self.hosts.bore(&host);
        }
        // While this one is verified and synced, the next may begin.
        drop(permit);
        blocking(move || part.finish(checksum.as_ref(), taken)).await
    }

    /// One request, and all that it brings.
    async fn transfer(
        &self,
        what: &Download,
        part: Part,
        meter: &Meter,
        came: &mut i64,
    ) -> Result<Part, DownloadError> {
        let (request, from) = self.request(what, &part)?;
        let host = request.destination();
        let answer = self.egress.open(request).await?;
        let have = Have { bytes: from, identity: part.identity() };
        let course = judge(answer.status, &answer.headers, &have)?;
        let had = part.length();
        let mut part = part;
        match course {
            Course::HaveAll => return Ok(part),
            Course::Refused => return Err(self.refused(&host, answer).await?),
            Course::StartOver => {
                blocking(move || Ok(part.restart(Default::default())?)).await?;
                return Err(DownloadError::WrongRange { said: "it has changed: starting over".to_owned() });
            }
            Course::FromStart(identity) => {
                part = blocking(move || {
                    part.restart(identity)?;
                    Ok(part)
                })
                .await?;
            }
            Course::GoOn(Some(total)) => {
                part = blocking(move || {
                    part.learn(total)?;
                    Ok(part)
                })
                .await?;
            }
            Course::GoOn(None) => {}
        }
        self.check_room(&part)?;
        *came -= i64::try_from(had - part.length()).unwrap_or(i64::MAX);
        meter.begins(part.length(), part.identity().length);
        let flow = self.hosts.flow(&host);
        self.receive(answer, part, &flow, meter, came).await
    }

    /// What is to be asked for, and from which byte.
    fn request(&self, what: &Download, part: &Part) -> Result<(Request, u64), DownloadError> {
        let mut request = Request::new(Method::GET, &what.url)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &what.headers {
            let (name, value) = user_header(name, value).map_err(DownloadError::Invalid)?;
            headers.append(name, value);
        }
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let validator = part.identity().validator().and_then(|text| HeaderValue::from_str(text).ok());
        // Without anything to know it by, what is put together can only be told from the right thing by its checksum.
        let can_go_on = validator.is_some() || what.checksum.is_some();
        let from = if can_go_on { part.length() } else { 0 };
        if from > 0 {
            let range = HeaderValue::try_from(format!("bytes={from}-")).expect("digits are plain ASCII");
            headers.insert(RANGE, range);
            if let Some(validator) = validator {
                headers.insert(IF_RANGE, validator);
            }
        }
        request.headers = headers;
        request.redirects = Redirects::Follow;
        request.timeouts = Timeouts { idle: self.limits.stall, ..Timeouts::default() };
        Ok((request, from))
    }

    /// The failure that a refusal is.
    async fn refused(&self, host: &str, answer: Streamed) -> Result<DownloadError, DownloadError> {
        let response = match answer.status.is_success() {
            true => {
                let status = answer.status.as_u16();
                let message = format!("{host} answered {status}, which is no file");
                return Ok(DownloadError::Refused(Failure::permanent(message).status(status)));
            }
            false => answer.refusal().await?,
        };
        Ok(DownloadError::refused(host, &response, self.clock.now()))
    }

    fn check_room(&self, part: &Part) -> Result<(), DownloadError> {
        let missing = part.identity().length.unwrap_or(0).saturating_sub(part.length());
        if let Some(limit) = self.limits.size_max.filter(|limit| part.length() + missing > *limit) {
            return Err(DownloadError::TooLarge { limit });
        }
        let free = self.folder.free_bytes()?.saturating_sub(self.limits.disk_floor);
        if missing > free || free == 0 {
            return Err(DownloadError::DiskFull { missing: (missing - free.min(missing)).max(1) });
        }
        Ok(())
    }

    /// Writes what comes. Whatever goes wrong, what has come is kept.
    async fn receive(
        &self,
        mut answer: Streamed,
        mut part: Part,
        flow: &Flow,
        meter: &Meter,
        came: &mut i64,
    ) -> Result<Part, DownloadError> {
        let mut patience = Patience::new(self.limits.stall);
        let mut held = Vec::with_capacity(self.write_bytes);
        let mut look_at = part.length() + DISK_LOOK_EVERY;
        loop {
            let asked_at = self.clock.now();
            let piece = answer.next().await.map_err(DownloadError::from);
            let piece = piece.and_then(|piece| {
                let count = piece.as_ref().map_or(0, |piece| piece.len() as u64);
                patience.waited(self.clock.now().since(asked_at), count)?;
                Ok(piece)
            });
            let is_over = !matches!(piece, Ok(Some(_)));
            if let Ok(Some(piece)) = &piece {
                flow.came();
                meter.came(piece.len());
                *came += i64::try_from(piece.len()).unwrap_or(i64::MAX);
                self.board.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
                let mut rest = &piece[..];
                while held.len() + rest.len() >= self.write_bytes {
                    let (fits, later) = rest.split_at(self.write_bytes - held.len());
                    held.extend_from_slice(fits);
                    (part, held) = self.keep(part, held).await?;
                    rest = later;
                }
                held.extend_from_slice(rest);
            }
            if is_over {
                (part, held) = self.keep(part, held).await?;
            }
            if piece?.is_none() {
                return Ok(part);
            }
            if part.length() >= look_at || self.limits.size_max.is_some_and(|limit| part.length() > limit) {
                self.check_room(&part)?;
                look_at = part.length() + DISK_LOOK_EVERY;
            }
        }
    }

    /// Writes what was collected, and waits if that was faster than it may be.
    async fn keep(&self, part: Part, held: Vec<u8>) -> Result<(Part, Vec<u8>), DownloadError> {
        let count = held.len();
        let written = write(part, held).await?;
        self.hosts.spend(count).await;
        Ok(written)
    }
}

/// Notices when next to nothing comes. What counts is the time that was waited for the far side, not our own.
struct Patience {
    limit: Duration,
    waited: Duration,
    came: u64,
}

impl Patience {
    fn new(limit: Duration) -> Patience {
        Patience { limit, waited: Duration::ZERO, came: 0 }
    }

    fn waited(&mut self, waited: Duration, came: u64) -> Result<(), DownloadError> {
        self.waited += waited;
        self.came += came;
        if self.waited >= self.limit {
            let least = LOW_SPEED.saturating_mul(self.limit.as_secs().max(1));
            if self.came < least {
                return Err(DownloadError::Stalled { waited: self.waited });
            }
            *self = Patience::new(self.limit);
        }
        Ok(())
    }
}

/// Writes on a thread that may wait; gives both back.
async fn write(mut part: Part, mut held: Vec<u8>) -> Result<(Part, Vec<u8>), DownloadError> {
    blocking(move || {
        part.write(&held)?;
        held.clear();
        Ok((part, held))
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DownloadError> + Send + 'static,
) -> Result<T, DownloadError> {
    let stopped = |_| DownloadError::Disk(std::io::Error::other("the process is shutting down"));
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive::millis;

    #[test]
    fn many_files_collect_less_each_and_none_next_to_nothing() {
        assert_eq!([1, 8, 32].map(write_bytes), [WRITE_BYTES; 3]);
        assert!(100 * write_bytes(100) <= WRITE_BYTES_ALL);
        assert_eq!(write_bytes(100_000), WRITE_BYTES_MIN);
    }

    #[test]
    fn a_trickle_is_a_stall_and_a_slow_line_is_none() {
        let mut trickle = Patience::new(secs(10));
        let ended = (0..20).find_map(|_| trickle.waited(millis(999), 1).err());
        assert!(matches!(ended, Some(DownloadError::Stalled { waited }) if waited >= secs(10)));
        let mut slow = Patience::new(secs(10));
        assert!((0..1_000).all(|_| slow.waited(millis(999), 100).is_ok()));
    }
}
