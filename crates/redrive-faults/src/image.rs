//! One file's bytes: what a process reads, what is on the platter, and what is on its way between the two.
//!
//! The model is the one SQLite states for itself, taken at its worst. Until a sync returns, every 512-byte sector
//! written since the last one may be on the platter or not, in any order, in any of the versions written, or cut
//! off in the middle. The size travels apart from the data, and a file that grew may show garbage where its data has
//! not arrived. Not: names, handles, when a cut happens (state.rs).

use std::collections::BTreeMap;

use crate::rng::Rng;

pub(crate) const SECTOR: usize = 512;

/// How many unsynced versions of one sector are remembered. A sector rewritten a thousand times between two syncs is
/// no better a test than one rewritten three times, and memory stays bounded under `synchronous=OFF`.
const VERSIONS_MAX: usize = 3;

/// A sector as some write left it; `None` is a sector cut off by a truncation, which reads as zeros if it comes back.
type Version = Option<Box<[u8; SECTOR]>>;

#[derive(Default)]
pub(crate) struct Image {
    /// The page cache: survives the process, not the power.
    cache: Vec<u8>,
    durable: Vec<u8>,
    pending: BTreeMap<usize, Vec<Version>>,
    /// The smallest and the largest size since the last sync, if it changed.
    sizes: Option<(usize, usize)>,
}

impl Image {
    /// A file that is on the platter already.
    pub(crate) fn durable(bytes: &[u8]) -> Image {
        Image { cache: bytes.to_vec(), durable: bytes.to_vec(), ..Image::default() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.cache
    }

    /// Fills `out` from `offset`, zeros past the end, and says how many bytes were really there.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> usize {
        let there = self.cache.get(offset..).unwrap_or_default();
        let n = there.len().min(out.len());
        out[..n].copy_from_slice(&there[..n]);
        out[n..].fill(0);
        n
    }

    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if end > self.cache.len() {
            self.resize(end);
        }
        self.cache[offset..end].copy_from_slice(data);
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            self.remember(sector);
        }
    }

    pub(crate) fn truncate(&mut self, size: usize) {
        let before = self.cache.len();
        self.resize(size);
        for sector in size.div_ceil(SECTOR)..before.div_ceil(SECTOR) {
            self.push(sector, None);
        }
        if size < before && !size.is_multiple_of(SECTOR) {
            self.remember(size / SECTOR);
        }
    }

    pub(crate) fn sync(&mut self) {
        self.durable.resize(self.cache.len(), 0);
        for (sector, versions) in std::mem::take(&mut self.pending) {
            if let Some(version) = versions.last() {
                overlay(&mut self.durable, sector, version, SECTOR);
            }
        }
        self.sizes = None;
    }

    /// What Linux does when writeback fails: the pages are marked clean although they never reached the platter. A
    /// process still reads them, no later sync writes them, and the next power cut loses them.
    pub(crate) fn sync_fails(&mut self) {
        self.pending.clear();
        self.sizes = None;
    }

    /// The power goes: what comes up again is one of the states the platter may have been in.
    pub(crate) fn cut(&mut self, rng: &mut Rng) {
        // One throw a file, not one a sector, decides how much got through. With a fair coin for each sector a frame
        // of nine would arrive whole once in 512 cuts, and "everything but one sector" would never be seen.
        let eighths = [0, 1, 4, 7, 8][rng.below(5)];
        let size = self.surviving_size(eighths, rng);
        let arrived = self.durable.len().min(size);
        let mut after = self.durable[..arrived].to_vec();
        after.resize(size, 0);
        if rng.below(4) == 0 {
            rng.fill(&mut after[arrived..]);
        }
        for (sector, versions) in std::mem::take(&mut self.pending) {
            if rng.below(8) < eighths {
                land(&mut after, sector, &versions, eighths, rng);
            }
        }
        self.sizes = None;
        self.cache.clone_from(&after);
        self.durable = after;
    }

    /// Rot: the bit is wrong for whoever reads it, now and after any cut.
    pub(crate) fn flip(&mut self, byte: usize, bit: u8) -> bool {
        for copy in [&mut self.durable, &mut self.cache] {
            if let Some(value) = copy.get_mut(byte) {
                *value ^= 1 << (bit % 8);
            }
        }
        byte < self.cache.len()
    }

    fn surviving_size(&self, eighths: usize, rng: &mut Rng) -> usize {
        match self.sizes {
            None => self.durable.len(),
            Some(_) if rng.below(8) < eighths => self.cache.len(),
            Some(_) if rng.below(2) == 0 => self.durable.len(),
            Some((low, high)) => (low + rng.below((high - low) / SECTOR + 1) * SECTOR).min(high),
        }
    }

    fn resize(&mut self, size: usize) {
        let before = self.cache.len();
        let (low, high) = self.sizes.unwrap_or((before, before));
        self.sizes = Some((low.min(size), high.max(size)));
        self.cache.resize(size, 0);
    }

    fn remember(&mut self, sector: usize) {
        let mut content = Box::new([0; SECTOR]);
        self.read(sector * SECTOR, &mut content[..]);
        self.push(sector, Some(content));
    }

    fn push(&mut self, sector: usize, version: Version) {
        let versions = self.pending.entry(sector).or_default();
        if versions.len() == VERSIONS_MAX {
            versions.remove(0);
        }
        versions.push(version);
    }
}

/// Puts one of a sector's unsynced versions on the platter: mostly the newest, sometimes an earlier one, sometimes
/// only its first bytes over the one before it.
///
/// A tear keeps the promise that is reported to SQLite as `POWERSAFE_OVERWRITE`: a byte no write touched is the same
/// in both versions, so it is never harmed.
fn land(after: &mut [u8], sector: usize, versions: &[Version], eighths: usize, rng: &mut Rng) {
    let everything = eighths == 8;
    let newest = versions.len() - 1;
    let chosen = if everything || rng.below(4) != 0 { newest } else { rng.below(versions.len()) };
    let torn = !everything && rng.below(8) == 0;
    if torn && chosen > 0 {
        overlay(after, sector, &versions[chosen - 1], SECTOR);
    }
    let bytes = if torn { 1 + rng.below(SECTOR - 1) } else { SECTOR };
    overlay(after, sector, &versions[chosen], bytes);
}

/// Writes the first `bytes` of a version where its sector lies, as far as the file reaches.
fn overlay(file: &mut [u8], sector: usize, version: &Version, bytes: usize) {
    let start = (sector * SECTOR).min(file.len());
    let end = (sector * SECTOR + bytes).min(file.len());
    let target = &mut file[start..end];
    match version {
        Some(content) => target.copy_from_slice(&content[..target.len()]),
        None => target.fill(0),
    }
}
