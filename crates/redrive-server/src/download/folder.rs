//! The folder that downloads go to: opened once, and everything in it reached through that, by names of one component.
//! A name cannot lead elsewhere, and a symbolic link that somebody puts in its place is not followed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// The folder. Its files are blocking: ask from a thread that may wait.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
}

/// What to do when the place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Keep,
    Replace,
}

impl Folder {
    /// Opens it; it is made if it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        std::fs::create_dir_all(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder { fd: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// How long a file is; none if there is none. Whatever is no plain file is an error.
    pub(super) fn length(&self, name: &str) -> io::Result<Option<u64>> {
        let found = match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            found => found?,
        };
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} is no plain file")));
        }
        Ok(Some(u64::try_from(found.st_size).unwrap_or(0)))
    }

    /// A new file, which nobody else may read before it is complete.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// A file that is there.
    pub(super) fn reopen(&self, name: &str) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR)
    }

    fn open_with(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Gives a file another name. Of two that want the same name, one gets it.
    pub(super) fn rename(&self, from: &str, to: &str, taken: Taken) -> io::Result<()> {
        if taken == Taken::Replace {
            return Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?);
        }
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            // Not every file system can; every one that has links can refuse a second one of a name.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                rustix::fs::linkat(&self.fd, from, &self.fd, to, AtFlags::empty())?;
                Ok(rustix::fs::unlinkat(&self.fd, from, AtFlags::empty())?)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Removes a file; one that is not there is as good as removed.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Makes names durable: a file that was renamed keeps its name when the power fails.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// How many bytes fit in.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.fd)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}
