//! The machine around the files: the directory, who has what open and locked, and when things go wrong.
//!
//! Every method is one system call as the operating system would see it. Not: C (vfs.rs), bytes (image.rs).

use std::collections::BTreeMap;
use std::ffi::c_int;

use rusqlite::ffi;

use crate::image::Image;
use crate::rng::Rng;
use crate::shm::{Ask, Region, Shm};

/// The answer to a system call; the error is SQLite's code.
pub(crate) type Answer<T = ()> = Result<T, c_int>;

pub(crate) struct State {
    pub(crate) rng: Rng,
    pub(crate) syncs: u64,
    pub(crate) writes: u64,
    /// Microseconds that connections have slept: the only thing that moves this machine's clock.
    pub(crate) slept_us: i64,
    running: bool,
    /// Counts deaths. A handle from an earlier life is dead.
    life: u64,
    ids: u64,
    files: BTreeMap<u64, File>,
    names: Directory,
    death: Option<(u64, Death)>,
    sync_to_fail: Option<u64>,
    capacity: Option<u64>,
}

#[derive(Default)]
struct File {
    image: Image,
    opens: u32,
    /// By handle: SQLITE_LOCK_SHARED and up.
    locks: BTreeMap<u64, c_int>,
    shm: Option<Shm>,
}

/// One directory holds all files. Its changes reach the platter in the order they were made, as a journalling file
/// system writes them; a cut keeps the first few of the unsynced ones and forgets the rest, so a created file may be
/// gone again and a deleted one may be back.
#[derive(Default)]
struct Directory {
    now: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    pending: Vec<(String, Option<u64>)>,
}

/// What a connection holds of an open file.
pub(crate) struct Handle {
    id: u64,
    file: u64,
    life: u64,
    /// The first sync also syncs the directory: what SQLite's unix VFS does for a new journal or WAL, and only there.
    syncs_directory: bool,
}

/// How the machine, or only the process, ends.
#[derive(Clone, Copy)]
pub(crate) enum Death {
    /// Unsynced data is at the mercy of chance.
    PowerCut,
    /// `kill -9`: the page cache lives on.
    Kill,
}

impl State {
    pub(crate) fn new(seed: u64) -> State {
        State {
            rng: Rng::new(seed),
            syncs: 0,
            writes: 0,
            slept_us: 0,
            running: true,
            life: 0,
            ids: 0,
            files: BTreeMap::new(),
            names: Directory::default(),
            death: None,
            sync_to_fail: None,
            capacity: None,
        }
    }

    // What a process asks.

    pub(crate) fn open(&mut self, name: Option<&str>, flags: c_int) -> Answer<Handle> {
        if !self.running {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        // A file to be deleted on close never gets a name: the unix VFS unlinks it as soon as it is open.
        let name = name.filter(|_| flags & ffi::SQLITE_OPEN_DELETEONCLOSE == 0);
        let found = name.and_then(|name| self.names.now.get(name).copied());
        let must_be_new = ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_EXCLUSIVE;
        if found.is_some() && flags & must_be_new == must_be_new {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        if found.is_none() && name.is_some() && flags & ffi::SQLITE_OPEN_CREATE == 0 {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        let file = found.unwrap_or_else(|| self.create(name));
        self.files.entry(file).or_default().opens += 1;
        let journal = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;
        let syncs_directory = found.is_none() && flags & journal != 0;
        Ok(Handle { id: self.next_id(), file, life: self.life, syncs_directory })
    }

    pub(crate) fn close(&mut self, handle: &Handle) {
        self.leave_shm(handle);
        if let Ok(file) = self.alive(handle) {
            file.locks.remove(&handle.id);
            file.opens -= 1;
            self.sweep();
        }
    }

    pub(crate) fn read(&mut self, handle: &Handle, offset: usize, out: &mut [u8]) -> Answer {
        let there = self.alive(handle)?.image.read(offset, out);
        if there == out.len() { Ok(()) } else { Err(ffi::SQLITE_IOERR_SHORT_READ) }
    }

    pub(crate) fn write(&mut self, handle: &Handle, offset: usize, data: &[u8]) -> Answer {
        let size = self.alive(handle)?.image.bytes().len();
        let growth = (offset + data.len()).saturating_sub(size) as u64;
        if self.capacity.is_some_and(|capacity| growth > 0 && self.used() + growth > capacity) {
            return Err(ffi::SQLITE_FULL);
        }
        self.writes += 1;
        // The write is under way when the end comes, so some of it may get through.
        self.alive(handle)?.image.write(offset, data);
        self.count_down()
    }

    pub(crate) fn truncate(&mut self, handle: &Handle, size: usize) -> Answer {
        self.alive(handle)?.image.truncate(size);
        self.count_down()
    }

    pub(crate) fn sync(&mut self, handle: &mut Handle) -> Answer {
        self.alive(handle)?;
        self.syncs += 1;
        // The end comes before the sync is through: everything is still pending.
        self.count_down()?;
        let fails = matches!(self.sync_to_fail, Some(1));
        self.sync_to_fail = self.sync_to_fail.map(|left| left - 1).filter(|left| *left > 0);
        let file = self.alive(handle)?;
        if fails {
            file.image.sync_fails();
            return Err(ffi::SQLITE_IOERR_FSYNC);
        }
        file.image.sync();
        if std::mem::take(&mut handle.syncs_directory) {
            self.sync_directory();
        }
        Ok(())
    }

    pub(crate) fn size(&mut self, handle: &Handle) -> Answer<usize> {
        Ok(self.alive(handle)?.image.bytes().len())
    }

    /// Zero bytes count as "not there", as in SQLite's unix VFS: an empty journal is no journal.
    pub(crate) fn exists(&self, name: &str) -> Answer<bool> {
        if !self.running {
            return Err(ffi::SQLITE_IOERR_ACCESS);
        }
        Ok(self.bytes(name).is_some_and(|bytes| !bytes.is_empty()))
    }

    pub(crate) fn delete(&mut self, name: &str, and_sync_directory: bool) -> Answer {
        if !self.running {
            return Err(ffi::SQLITE_IOERR_DELETE);
        }
        if self.names.now.remove(name).is_none() {
            return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
        }
        self.names.pending.push((name.to_owned(), None));
        if and_sync_directory {
            self.sync_directory();
        }
        Ok(())
    }

    /// The five lock levels of a database file, by SQLite's rules.
    pub(crate) fn lock(&mut self, handle: &Handle, wanted: c_int) -> Answer {
        let file = self.alive(handle)?;
        let held = file.locks.get(&handle.id).copied().unwrap_or(ffi::SQLITE_LOCK_NONE);
        if held >= wanted {
            return Ok(());
        }
        let others = file.locks.iter().filter(|(other, _)| **other != handle.id).map(|(_, level)| *level);
        let highest = others.max().unwrap_or(ffi::SQLITE_LOCK_NONE);
        let bar = if wanted == ffi::SQLITE_LOCK_SHARED {
            ffi::SQLITE_LOCK_PENDING
        } else {
            ffi::SQLITE_LOCK_RESERVED
        };
        if highest >= bar {
            return Err(ffi::SQLITE_BUSY);
        }
        if wanted == ffi::SQLITE_LOCK_EXCLUSIVE && highest >= ffi::SQLITE_LOCK_SHARED {
            // Readers are still in: wait at the door, and let no new ones past.
            file.locks.insert(handle.id, ffi::SQLITE_LOCK_PENDING);
            return Err(ffi::SQLITE_BUSY);
        }
        file.locks.insert(handle.id, wanted);
        Ok(())
    }

    pub(crate) fn unlock(&mut self, handle: &Handle, level: c_int) -> Answer {
        let locks = &mut self.alive(handle)?.locks;
        if level == ffi::SQLITE_LOCK_NONE {
            locks.remove(&handle.id);
        } else if let Some(held) = locks.get_mut(&handle.id) {
            *held = level.min(*held);
        }
        Ok(())
    }

    pub(crate) fn is_reserved(&mut self, handle: &Handle) -> Answer<bool> {
        Ok(self.alive(handle)?.locks.values().any(|level| *level >= ffi::SQLITE_LOCK_RESERVED))
    }

    pub(crate) fn map_shm(
        &mut self,
        handle: &Handle,
        index: usize,
        bytes: usize,
        extend: bool,
    ) -> Answer<Option<Region>> {
        let shm = self.alive(handle)?.shm.get_or_insert_default();
        Ok(shm.map(handle.id, index, bytes, extend))
    }

    pub(crate) fn lock_shm(&mut self, handle: &Handle, slots: u8, ask: Ask) -> Answer {
        self.alive(handle)?.shm.get_or_insert_default().lock(handle.id, slots, ask)
    }

    pub(crate) fn leave_shm(&mut self, handle: &Handle) {
        if let Ok(file) = self.alive(handle)
            && file.shm.as_mut().is_some_and(|shm| shm.leave(handle.id))
        {
            file.shm = None;
        }
    }

    // What the test does to the machine.

    pub(crate) fn die(&mut self, death: Death) {
        if !std::mem::replace(&mut self.running, false) {
            return;
        }
        self.life += 1;
        self.death = None;
        for file in self.files.values_mut() {
            file.opens = 0;
            file.locks.clear();
            file.shm = None;
        }
        if matches!(death, Death::PowerCut) {
            self.names.cut(&mut self.rng);
        }
        self.sweep();
        if matches!(death, Death::PowerCut) {
            for file in self.files.values_mut() {
                file.image.cut(&mut self.rng);
            }
        }
    }

    pub(crate) fn start(&mut self) {
        self.running = true;
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    pub(crate) fn arm(&mut self, operations: u64, death: Death) {
        self.death = Some((operations.max(1), death));
    }

    pub(crate) fn fail_sync(&mut self, nth: u64) {
        self.sync_to_fail = Some(nth.max(1));
    }

    pub(crate) fn full_after(&mut self, bytes: u64) {
        self.capacity = Some(self.used().saturating_add(bytes));
    }

    pub(crate) fn room(&mut self, bytes: u64) {
        self.capacity = self.capacity.map(|capacity| capacity.saturating_add(bytes));
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.names.now.keys().cloned().collect()
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let file = self.files.get(self.names.now.get(name)?)?;
        Some(file.image.bytes())
    }

    pub(crate) fn put(&mut self, name: &str, bytes: &[u8]) {
        let file = self.create(Some(name));
        self.files.entry(file).or_default().image = Image::durable(bytes);
        self.sync_directory();
    }

    pub(crate) fn flip(&mut self, name: &str, byte: usize, bit: u8) -> bool {
        let file = self.names.now.get(name).and_then(|file| self.files.get_mut(file));
        file.is_some_and(|file| file.image.flip(byte, bit))
    }

    // Inside.

    fn alive(&mut self, handle: &Handle) -> Answer<&mut File> {
        if handle.life != self.life {
            return Err(ffi::SQLITE_IOERR);
        }
        self.files.get_mut(&handle.file).ok_or(ffi::SQLITE_IOERR)
    }

    /// One write, sync or truncation nearer to an armed death.
    fn count_down(&mut self) -> Answer {
        match self.death {
            None => Ok(()),
            Some((1, death)) => {
                self.die(death);
                Err(ffi::SQLITE_IOERR)
            }
            Some((left, death)) => {
                self.death = Some((left - 1, death));
                Ok(())
            }
        }
    }

    fn create(&mut self, name: Option<&str>) -> u64 {
        let file = self.next_id();
        self.files.insert(file, File::default());
        if let Some(name) = name {
            self.names.now.insert(name.to_owned(), file);
            self.names.pending.push((name.to_owned(), Some(file)));
        }
        file
    }

    fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn sync_directory(&mut self) {
        self.names.sync();
        self.sweep();
    }

    /// Forgets files that have no name, now or after any cut, and that nobody has open.
    fn sweep(&mut self) {
        let names = &self.names;
        self.files.retain(|file, content| content.opens > 0 || names.mention(*file));
    }

    fn used(&self) -> u64 {
        let counted =
            |(id, file): &(&u64, &File)| file.opens > 0 || self.names.now.values().any(|named| named == *id);
        self.files.iter().filter(counted).map(|(_, file)| file.image.bytes().len() as u64).sum()
    }
}

impl Directory {
    fn sync(&mut self) {
        self.durable.clone_from(&self.now);
        self.pending.clear();
    }

    fn cut(&mut self, rng: &mut Rng) {
        let kept = rng.below(self.pending.len() + 1);
        for (name, file) in self.pending.drain(..).take(kept) {
            match file {
                Some(file) => self.durable.insert(name, file),
                None => self.durable.remove(&name),
            };
        }
        self.now.clone_from(&self.durable);
    }

    fn mention(&self, file: u64) -> bool {
        self.now.values().any(|named| *named == file)
            || self.durable.values().any(|named| *named == file)
            || self.pending.iter().any(|(_, named)| *named == Some(file))
    }
}
