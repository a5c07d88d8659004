//! The memory that connections in WAL mode share (`-shm`): regions and their eight locks.
//!
//! It is a cache of the WAL's index and lives on no platter: gone at every death, rebuilt by the next opener.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rusqlite::ffi;

/// A piece of the index. Connections that map it keep it alive, so that a pointer SQLite still holds after a cut
/// stays good. Atomics, because SQLite writes here from many threads behind the borrow checker's back.
pub(crate) type Region = Arc<[AtomicU64]>;

#[derive(Default)]
pub(crate) struct Shm {
    regions: Vec<Region>,
    /// By handle: the slots it holds, one bit each. A handle that has mapped the index has an entry.
    holders: BTreeMap<u64, Held>,
}

#[derive(Default)]
struct Held {
    shared: u8,
    exclusive: u8,
}

/// What a connection asks of some slots.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    Shared,
    Exclusive,
    Release,
}

impl Shm {
    /// The region, made if `extend` allows it.
    pub(crate) fn map(&mut self, handle: u64, index: usize, bytes: usize, extend: bool) -> Option<Region> {
        self.holders.entry(handle).or_default();
        while extend && self.regions.len() <= index {
            self.regions.push((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect());
        }
        self.regions.get(index).cloned()
    }

    pub(crate) fn lock(&mut self, handle: u64, slots: u8, ask: Ask) -> Result<(), i32> {
        let others = || self.holders.iter().filter(|(other, _)| **other != handle).map(|(_, held)| held);
        let taken = match ask {
            Ask::Shared => others().any(|held| held.exclusive & slots != 0),
            Ask::Exclusive => others().any(|held| (held.shared | held.exclusive) & slots != 0),
            Ask::Release => false,
        };
        if taken {
            return Err(ffi::SQLITE_BUSY);
        }
        let held = self.holders.entry(handle).or_default();
        match ask {
            Ask::Shared => held.shared |= slots,
            Ask::Exclusive => held.exclusive |= slots,
            Ask::Release => {
                held.shared &= !slots;
                held.exclusive &= !slots;
            }
        }
        Ok(())
    }

    /// True when nobody is left: the index is then thrown away, as the first opener of a real one would do.
    pub(crate) fn leave(&mut self, handle: u64) -> bool {
        self.holders.remove(&handle);
        self.holders.is_empty()
    }
}
