//! The C side: the function tables SQLite calls, turned into calls on [`State`](crate::state::State).
//!
//! Each function takes C arguments apart and puts an answer together; nothing is decided here but what the disk
//! says of itself (sector size, characteristics, clock).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rusqlite::ffi;

use crate::Machine;
use crate::image::SECTOR;
use crate::shm::{Ask, Region};
use crate::state::{Answer, Handle, State};

/// Longer than any name a test gives a file, with room for `-journal`.
const PATH_BYTES_MAX: c_int = 512;

/// 2026-01-01 as SQLite counts: milliseconds since noon on 24 November 4714 BC. It moves when connections sleep.
const CLOCK_START_MS: i64 = 210_866_760_000_000 + 1_767_225_600_000;

/// The places registered with SQLite. A place stays registered for ever and is used again when its machine is gone:
/// SQLite may hold the pointer for as long as it likes, and a run over a million disks leaks nothing.
static PLACES: Mutex<Vec<Place>> = Mutex::new(Vec::new());

struct Place {
    name: &'static str,
    machine: Weak<Machine>,
}

/// Gives the machine a place, and returns the name SQLite knows it by.
pub(crate) fn register(machine: &Arc<Machine>) -> &'static str {
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let free = places.iter().position(|place| place.machine.strong_count() == 0);
    let index = free.unwrap_or_else(|| {
        let name = new_place(places.len());
        places.push(Place { name, machine: Weak::new() });
        places.len() - 1
    });
    places[index].machine = Arc::downgrade(machine);
    places[index].name
}

/// Seeds the generator SQLite takes a WAL's salts from. It is one a process and asks only the default VFS for its
/// seed, so an `xRandomness` of ours would never be heard; this is the control SQLite's own fuzzers use.
pub(crate) fn seed_sqlite(seed: u64) {
    let seed = (seed as c_int) | 1; // zero would mean "not seeded"
    // SAFETY: the arguments are those the control takes, an int and a database that may be null.
    unsafe {
        ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_PRNG_SEED, seed, ptr::null_mut::<ffi::sqlite3>());
    }
}

fn new_place(index: usize) -> &'static str {
    let name: &'static CStr = Box::leak(
        CString::new(format!("redrive-faults-{index}"))
            .expect("a number has no zero byte")
            .into_boxed_c_str(),
    );
    let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
        iVersion: 2,
        szOsFile: size_of::<OpenFile>() as c_int,
        mxPathname: PATH_BYTES_MAX,
        pNext: ptr::null_mut(),
        zName: name.as_ptr(),
        pAppData: ptr::without_provenance_mut(index),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: None, // never called: dl_open finds nothing
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: Some(current_time_ms),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }));
    // SAFETY: the table and its name are leaked, so they outlive every use.
    let code = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
    assert_eq!(code, ffi::SQLITE_OK, "SQLite takes any VFS unless it is out of memory");
    name.to_str().expect("the name is ASCII")
}

/// Version 2: with shared memory, so WAL works with many connections; without memory-mapped files, which a cut could
/// not tell apart from synced data.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// SQLite allocates this, `open` fills it, `close` empties it.
#[repr(C)]
struct OpenFile {
    base: ffi::sqlite3_file,
    inner: *mut Inner,
}

struct Inner {
    machine: Arc<Machine>,
    handle: Handle,
    /// Kept so that SQLite's pointers into them stay good, whatever happens to the machine.
    mapped: Vec<Region>,
}

/// The machine of a VFS, unless the last disk and file of it are gone.
///
/// # Safety
/// `vfs` is a table made by `new_place`.
unsafe fn machine_of(vfs: *mut ffi::sqlite3_vfs) -> Option<Arc<Machine>> {
    // SAFETY: by the contract, and such tables are never freed.
    let index = unsafe { (*vfs).pAppData }.addr();
    let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    places.get(index)?.machine.upgrade()
}

/// What `open` put behind a file.
///
/// # Safety
/// `file` was opened by `open`, is not closed, and no other call on it is under way: SQLite's promise for each call.
unsafe fn inner<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Inner {
    // SAFETY: by the contract.
    unsafe { &mut *(*file.cast::<OpenFile>()).inner }
}

/// # Safety
/// As for [`inner`].
unsafe fn call(
    file: *mut ffi::sqlite3_file,
    system_call: impl FnOnce(&mut State, &mut Handle) -> Answer,
) -> c_int {
    // SAFETY: by the contract.
    let Inner { machine, handle, .. } = unsafe { inner(file) };
    code(system_call(&mut machine.state(), handle))
}

fn code(answer: Answer) -> c_int {
    answer.err().unwrap_or(ffi::SQLITE_OK)
}

/// # Safety
/// `name` is a C string that lives as long as the call.
unsafe fn text<'a>(name: *const c_char) -> Answer<&'a str> {
    // SAFETY: by the contract.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| ffi::SQLITE_CANTOPEN)
}

fn place(bytes: ffi::sqlite3_int64) -> Answer<usize> {
    usize::try_from(bytes).map_err(|_| ffi::SQLITE_IOERR)
}

// SAFETY, for all functions below: SQLite calls them, with pointers that are valid for the call and tables and files
// made here. The blocks inside say what they add to that.

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: `file` has room for szOsFile bytes. No methods means "do not call close" if we fail.
    unsafe { (*file).pMethods = ptr::null() };
    // SAFETY: `vfs` is ours.
    let Some(machine) = (unsafe { machine_of(vfs) }) else { return ffi::SQLITE_CANTOPEN };
    let named = if name.is_null() {
        Ok(None)
    } else {
        // SAFETY: not null, so a C string.
        unsafe { text(name) }.map(Some)
    };
    let opened = named.and_then(|name| machine.state().open(name, flags));
    let handle = match opened {
        Ok(handle) => handle,
        Err(code) => return code,
    };
    let inner = Box::into_raw(Box::new(Inner { machine, handle, mapped: Vec::new() }));
    // SAFETY: `file` has room for an OpenFile; `flags_out` may be null.
    unsafe {
        (*file.cast::<OpenFile>()).inner = inner;
        (*file).pMethods = &raw const METHODS;
        if !flags_out.is_null() {
            *flags_out = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made the box; SQLite closes a file once.
    let inner = unsafe { Box::from_raw((*file.cast::<OpenFile>()).inner) };
    inner.machine.state().close(&inner.handle);
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: `out` has room for `amount` bytes; SQLite's buffers are initialised or only written by us.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), amount as usize) };
    // SAFETY: an open file.
    unsafe { call(file, |state, handle| state.read(handle, place(offset)?, out)) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: `data` holds `amount` bytes.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), amount as usize) };
    // SAFETY: an open file.
    unsafe { call(file, |state, handle| state.write(handle, place(offset)?, data)) }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: an open file.
    unsafe { call(file, |state, handle| state.truncate(handle, place(size)?)) }
}

/// The flags are not looked at: `fdatasync` keeps a new size as `fsync` does, and there is no weaker sync here.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: an open file.
    unsafe { call(file, |state, handle| state.sync(handle)) }
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: an open file, and a place for the answer.
    unsafe {
        call(file, |state, handle| {
            *size = state.size(handle)? as ffi::sqlite3_int64;
            Ok(())
        })
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    unsafe { call(file, |state, handle| state.lock(handle, level)) }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    unsafe { call(file, |state, handle| state.unlock(handle, level)) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, reserved: *mut c_int) -> c_int {
    // SAFETY: an open file, and a place for the answer.
    unsafe {
        call(file, |state, handle| {
            *reserved = c_int::from(state.is_reserved(handle)?);
            Ok(())
        })
    }
}

unsafe extern "C" fn file_control(_file: *mut ffi::sqlite3_file, _op: c_int, _arg: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    SECTOR as c_int
}

/// `POWERSAFE_OVERWRITE` and nothing else. The model honours it: a torn sector mixes two versions that agree in every
/// byte no write touched (`image::land`). And SQLite's unix VFS reports it too, so the code under test is the code
/// that runs in production; without it SQLite pads each commit in the WAL to a whole sector, which would hide what
/// happens when a commit shares a sector with the one before it.
///
/// Not `ATOMIC` (sectors tear), not `SAFE_APPEND` (a file that grew may show garbage), not `SEQUENTIAL` (sectors
/// arrive in any order).
unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    index: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: a place for the answer.
    unsafe { *out = ptr::null_mut() };
    // SAFETY: an open file.
    let Inner { machine, handle, mapped } = unsafe { inner(file) };
    match machine.state().map_shm(handle, index as usize, bytes as usize, extend != 0) {
        Err(code) => return code,
        Ok(None) => {}
        Ok(Some(region)) => {
            // SAFETY: as above; the region lives in `mapped` until SQLite unmaps or closes.
            unsafe { *out = region.as_ptr().cast_mut().cast() };
            mapped.push(region);
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, offset: c_int, n: c_int, flags: c_int) -> c_int {
    let slots = (((1u32 << n) - 1) << offset) as u8; // at most SQLITE_SHM_NLOCK = 8 of them
    let ask = if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        Ask::Release
    } else if flags & ffi::SQLITE_SHM_EXCLUSIVE != 0 {
        Ask::Exclusive
    } else {
        Ask::Shared
    };
    // SAFETY: an open file.
    unsafe { call(file, |state, handle| state.lock_shm(handle, slots, ask)) }
}

unsafe extern "C" fn shm_barrier(_file: *mut ffi::sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    // SAFETY: an open file.
    let Inner { machine, handle, mapped } = unsafe { inner(file) };
    machine.state().leave_shm(handle);
    mapped.clear();
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: `vfs` is ours.
    let Some(machine) = (unsafe { machine_of(vfs) }) else { return ffi::SQLITE_IOERR_DELETE };
    // SAFETY: a C string.
    let name = unsafe { text(name) };
    code(name.and_then(|name| machine.state().delete(name, sync_directory != 0)))
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: `vfs` is ours.
    let Some(machine) = (unsafe { machine_of(vfs) }) else { return ffi::SQLITE_IOERR_ACCESS };
    // SAFETY: a C string.
    let name = unsafe { text(name) };
    match name.and_then(|name| machine.state().exists(name)) {
        Err(code) => code,
        Ok(exists) => {
            // SAFETY: a place for the answer.
            unsafe { *out = c_int::from(exists) };
            ffi::SQLITE_OK
        }
    }
}

/// A name is taken as it is: one directory, no links, nothing to resolve.
unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if name.len() > room as usize {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has `room` bytes, which is enough, and is not the name itself.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), name.len()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn dl_open(_vfs: *mut ffi::sqlite3_vfs, _name: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

unsafe extern "C" fn dl_error(_vfs: *mut ffi::sqlite3_vfs, room: c_int, out: *mut c_char) {
    if room > 0 {
        // SAFETY: `out` has `room` bytes.
        unsafe { *out = 0 };
    }
}

unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, amount: c_int, out: *mut c_char) -> c_int {
    // SAFETY: `vfs` is ours.
    let Some(machine) = (unsafe { machine_of(vfs) }) else { return 0 };
    // SAFETY: `out` has room for `amount` bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), amount as usize) };
    machine.state().rng.fill(out);
    amount
}

/// Really sleeps: a connection that waits for a lock waits for another thread, and a busy timeout that passed in no
/// time would give up before that thread had its turn. The machine's clock moves by as much.
#[expect(clippy::disallowed_methods, reason = "SQLite's thread, not a worker's, and it asked for this")]
unsafe extern "C" fn sleep(vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    // SAFETY: `vfs` is ours.
    if let Some(machine) = unsafe { machine_of(vfs) } {
        machine.state().slept_us += i64::from(microseconds);
    }
    std::thread::sleep(Duration::from_micros(u64::from(microseconds.unsigned_abs())));
    microseconds
}

unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, days: *mut f64) -> c_int {
    let mut ms = 0;
    // SAFETY: `vfs` is ours, and `ms` is here.
    let code = unsafe { current_time_ms(vfs, &raw mut ms) };
    // SAFETY: a place for the answer.
    unsafe { *days = ms as f64 / 86_400_000.0 };
    code
}

unsafe extern "C" fn current_time_ms(vfs: *mut ffi::sqlite3_vfs, out: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: `vfs` is ours.
    let slept_us = unsafe { machine_of(vfs) }.map_or(0, |machine| machine.state().slept_us);
    // SAFETY: a place for the answer.
    unsafe { *out = CLOCK_START_MS + slept_us / 1000 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_vfs: *mut ffi::sqlite3_vfs, _room: c_int, _out: *mut c_char) -> c_int {
    0
}
