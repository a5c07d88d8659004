//! A disk that can be cut off, filled up, made to fail and made to rot: a SQLite VFS whose files live in memory.
//!
//! Start at [`Disk`]. `image.rs` is what a power cut does to one file, `state.rs` the machine around the files,
//! `shm.rs` the memory connections share in WAL mode, `vfs.rs` the C that SQLite calls. For our own tests; not
//! published.
//!
//! ```
//! use redrive_faults::Disk;
//!
//! let disk = Disk::new(7);
//! let db = disk.open("jobs.db")?;
//! db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (id INTEGER)")?;
//! disk.cut_after(3);
//! while db.execute("INSERT INTO t VALUES (1)", []).is_ok() {}
//! drop(db);
//! disk.power_on();
//! let db = disk.open("jobs.db")?;
//! # Ok::<(), rusqlite::Error>(())
//! ```

mod image;
mod rng;
mod shm;
mod state;
mod vfs;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags};

use state::{Death, State};

/// A simulated disk, and the machine it is in. Clones are the same disk.
///
/// Everything random comes from the seed: one thread that does the same operations gets the same bytes. SQLite's own
/// random numbers (the WAL's salts) come from one generator a process, which every [`Disk::new`] and
/// [`Disk::power_on`] seeds anew; so for repeatable bytes use one disk at a time in a process.
///
/// After a death, close the connections of the old life before [`Disk::power_on`]. Their open files are dead for
/// good, but SQLite deletes and opens files by name, where the disk cannot tell a ghost from the living.
#[derive(Clone)]
pub struct Disk {
    machine: Arc<Machine>,
    vfs: &'static str,
}

impl Disk {
    /// An empty disk, registered with SQLite under a name that no other living disk has.
    pub fn new(seed: u64) -> Disk {
        let machine = Arc::new(Machine { state: Mutex::new(State::new(seed)) });
        let disk = Disk { vfs: vfs::register(&machine), machine };
        disk.seed_sqlite();
        disk
    }

    /// The name to open a connection with.
    pub fn vfs(&self) -> &str {
        self.vfs
    }

    /// A connection to a file on this disk, created if it is not there.
    pub fn open(&self, file: &str) -> rusqlite::Result<Connection> {
        Connection::open_with_flags_and_vfs(file, OpenFlags::default(), self.vfs)
    }

    /// Cuts the power. Each unsynced sector is on the platter, or not, or in part; each unsynced change of the
    /// directory likewise. Every open file is dead: all it answers is `SQLITE_IOERR`.
    pub fn power_cut(&self) {
        self.machine.state().die(Death::PowerCut);
    }

    /// Arms a [`Disk::power_cut`] at the nth write, sync or truncation from now, which fails: so that cuts fall
    /// inside commits and checkpoints. 1 is the next one.
    pub fn cut_after(&self, operations: u64) {
        self.machine.state().arm(operations, Death::PowerCut);
    }

    /// Kills the process, as `kill -9` does: open files are dead, locks and shared memory are gone, everything
    /// written is still there, synced or not.
    pub fn kill9(&self) {
        self.machine.state().die(Death::Kill);
    }

    /// Arms a [`Disk::kill9`] at the nth write, sync or truncation from now. 1 is the next one.
    pub fn kill_after(&self, operations: u64) {
        self.machine.state().arm(operations, Death::Kill);
    }

    /// True from a power cut or a kill until [`Disk::power_on`].
    pub fn is_cut(&self) -> bool {
        !self.machine.state().is_running()
    }

    /// Starts the machine, or the process, again: files can be opened.
    pub fn power_on(&self) {
        self.machine.state().start();
        self.seed_sqlite();
    }

    /// Makes the nth sync from now fail with an I/O error; 1 is the next one. What it should have written counts as
    /// clean afterwards: processes still read it, no later sync writes it, the next power cut loses it.
    pub fn fail_sync(&self, nth: u64) {
        self.machine.state().fail_sync(nth);
    }

    /// Lets the files grow by this many bytes more, all together; then a write that needs room is answered with
    /// `SQLITE_FULL`. Deleting and truncating give room back.
    pub fn full_after(&self, bytes: u64) {
        self.machine.state().full_after(bytes);
    }

    /// Gives a disk that was limited by [`Disk::full_after`] this many bytes more.
    pub fn room(&self, bytes: u64) {
        self.machine.state().room(bytes);
    }

    /// Flips one bit where it lies. False if the file has no such byte.
    pub fn flip_bit(&self, file: &str, byte: usize, bit: u8) -> bool {
        self.machine.state().flip(file, byte, bit)
    }

    /// Flips a bit chosen by the seed and says which: byte and bit. `None` if there is no such file or it is empty.
    pub fn flip_random_bit(&self, file: &str) -> Option<(usize, u8)> {
        let mut state = self.machine.state();
        let size = state.bytes(file).map(<[u8]>::len).filter(|size| *size > 0)?;
        let (byte, bit) = (state.rng.below(size), state.rng.below(8) as u8);
        state.flip(file, byte, bit);
        Some((byte, bit))
    }

    /// The files, in order of name.
    pub fn files(&self) -> Vec<String> {
        self.machine.state().names()
    }

    /// A file as a process would read it now. After a power cut that is what survived.
    pub fn image(&self, file: &str) -> Option<Vec<u8>> {
        self.machine.state().bytes(file).map(<[u8]>::to_vec)
    }

    /// Puts a file on the platter, synced, in the place of one with that name: a test can start from a database made
    /// once.
    pub fn put(&self, file: &str, bytes: &[u8]) {
        self.machine.state().put(file, bytes);
    }

    /// How many syncs were asked for, failed ones included.
    pub fn syncs(&self) -> u64 {
        self.machine.state().syncs
    }

    /// How many writes were made.
    pub fn writes(&self) -> u64 {
        self.machine.state().writes
    }

    /// A fresh seed each life: with the same one, a new WAL could get the salts of an old one whose frames are still
    /// in the file, and SQLite would rightly take them for its own.
    fn seed_sqlite(&self) {
        let seed = self.machine.state().rng.next();
        vfs::seed_sqlite(seed);
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("vfs", &self.vfs).field("files", &self.files()).finish_non_exhaustive()
    }
}

/// What the clones of a disk and its open files share.
struct Machine {
    state: Mutex<State>,
}

impl Machine {
    /// A test that panicked elsewhere must still be able to close its connections.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
