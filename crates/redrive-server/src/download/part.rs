//! A file that is not complete: `NAME.part`, and beside it `NAME.part.json` with what must hold for it to be continued.
//!
//! **What is trusted after an end without a word.** After kill -9 the kernel still has every byte that was written, so
//! all of the file counts. After a power cut only what was synced does; the sidecar says how much that was and has its
//! checksum, and the id of the boot tells the two cases apart. The order when a file is complete: sync, verify, mark,
//! rename, sync the folder. So whatever has the final name is whole, at any moment.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::error::DownloadError;
use super::folder::{Folder, Taken};

/// What a power cut costs at most, for a file that is larger.
const SYNC_EVERY: u64 = 32 << 20;
/// How much is read at once when a file is looked through.
const READ_BYTES: usize = 256 << 10;
/// No sidecar is longer.
const SIDECAR_BYTES_MAX: u64 = 64 << 10;

/// What the far side said about what it sends: enough to know it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) length: Option<u64>,
    /// The name that the far side would give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suggestion: Option<String>,
}

impl Identity {
    /// What proves to the far side that we have the beginning of what it has now. A weak tag proves nothing about bytes.
    pub(super) fn validator(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        strong.or(self.last_modified.as_deref())
    }
}

/// The sidecar.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sidecar {
    url: String,
    #[serde(flatten)]
    identity: Identity,
    /// This many bytes are on stable storage, with this checksum.
    synced: u64,
    crc: u32,
    /// Since this start of the machine nothing that was written has been lost.
    boot: String,
    /// The name that the complete file was about to get.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<String>,
}

/// How a file stands when its download begins.
pub(super) enum Opened {
    /// There is a beginning, or nothing yet.
    Part(Box<Part>),
    /// It had been completed before, and has this name.
    Complete(Placed),
}

/// A file that is where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// A file that grows. Locked while it is open: two processes never write the same.
pub(super) struct Part {
    folder: Arc<Folder>,
    name: String,
    file: File,
    about: Sidecar,
    length: u64,
    crc: crc32fast::Hasher,
}

/// The name of a file that is not complete.
pub(super) fn part_name(name: &str) -> String {
    format!("{name}.part")
}

/// The name of what is known about it.
pub(super) fn sidecar_name(name: &str) -> String {
    format!("{name}.part.json")
}

/// Takes away what is left of a try that brought nothing: no byte, so nothing to go on with.
pub(super) fn forget_empty(folder: &Folder, name: &str) -> io::Result<()> {
    if folder.length(&part_name(name))? == Some(0) {
        // In this order: a part without its sidecar would be taken for somebody else's.
        folder.remove(&part_name(name))?;
        folder.remove(&sidecar_name(name))?;
    }
    Ok(())
}

impl Part {
    /// Opens what there is of a file, as far as it can be trusted.
    pub(super) fn open(
        folder: &Arc<Folder>,
        name: &str,
        url: &str,
        taken: Taken,
    ) -> Result<Opened, DownloadError> {
        let known = read_sidecar(folder, name)?.filter(|sidecar| sidecar.url == url);
        if let Some(done) = &known
            && let Some(placed) = completed_before(folder, name, done)?
        {
            return Ok(Opened::Complete(placed));
        }
        if taken == Taken::Keep && folder.length(name)?.is_some() {
            return Err(DownloadError::Exists { name: name.to_owned() });
        }
        let is_known = known.is_some();
        let about = known.unwrap_or_else(|| Sidecar::new(url));
        let file = open_file(folder, name, &about)?;
        let (folder, name) = (folder.clone(), name.to_owned());
        let mut part = Part { folder, name, file, about, length: 0, crc: crc32fast::Hasher::new() };
        match is_known {
            true => part.trust()?,
            // What is there belongs to another URL, or nobody knows to which.
            false => part.restart(Identity::default())?,
        }
        Ok(Opened::Part(Box::new(part)))
    }

    /// How many bytes there are.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.about.identity
    }

    /// Keeps what can be trusted of what is there, and cuts off the rest.
    fn trust(&mut self) -> io::Result<()> {
        let there = self.file.metadata()?.len();
        let synced = self.about.synced;
        self.file.rewind()?;
        let mut crc = crc32fast::Hasher::new();
        let is_whole = there >= synced && {
            let read = feed(&mut self.file, synced, |bytes| crc.update(bytes))?;
            read == synced && (synced == 0 || crc.clone().finalize() == self.about.crc)
        };
        if !is_whole {
            return self.restart(Identity::default());
        }
        self.length = synced;
        let boot = boot_id();
        if self.about.boot == boot {
            self.length += feed(&mut self.file, there - synced, |bytes| crc.update(bytes))?;
        } else {
            // From here on a kill costs nothing again.
            self.file.set_len(synced)?;
            self.about.boot = boot;
            write_sidecar(&self.folder, &self.name, &self.about)?;
        }
        self.crc = crc;
        self.file.seek(SeekFrom::Start(self.length)).map(drop)
    }

    /// From the first byte, for what the far side has now.
    pub(super) fn restart(&mut self, identity: Identity) -> io::Result<()> {
        // First the file, then the word: else a kill in between would leave old bytes under the new word.
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.about = Sidecar { identity, ..Sidecar::new(&self.about.url) };
        write_sidecar(&self.folder, &self.name, &self.about)?;
        (self.length, self.crc) = (0, crc32fast::Hasher::new());
        Ok(())
    }

    /// What the far side said with a continuation: it may know more than it did before.
    pub(super) fn learn(&mut self, length: u64) -> io::Result<()> {
        if self.about.identity.length == Some(length) {
            return Ok(());
        }
        self.about.identity.length = Some(length);
        write_sidecar(&self.folder, &self.name, &self.about)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.crc.update(bytes);
        self.length += bytes.len() as u64;
        if self.length - self.about.synced >= SYNC_EVERY {
            self.file.sync_data()?;
            self.about.synced = self.length;
            self.about.crc = self.crc.clone().finalize();
            self.about.boot = boot_id();
            write_sidecar(&self.folder, &self.name, &self.about)?;
        }
        Ok(())
    }

    /// Verifies all of it, and gives it its name.
    pub(super) fn finish(
        &mut self,
        checksum: Option<&[u8; 32]>,
        taken: Taken,
    ) -> Result<Placed, DownloadError> {
        if let Some(length) = self.about.identity.length.filter(|length| *length != self.length) {
            return Err(DownloadError::WrongLength { announced: length, came: self.length });
        }
        self.file.sync_data()?;
        if let Some(expected) = checksum {
            let found = self.sha256()?;
            if found != *expected {
                self.restart(Identity::default())?;
                return Err(DownloadError::Checksum { found: hex(&found), expected: hex(expected) });
            }
        }
        let bytes = self.length;
        // A name that the far side chose replaces nothing, whatever was allowed.
        let suggestion = self.about.identity.suggestion.clone();
        let suggestion = suggestion.filter(|name| *name != self.name && taken == Taken::Keep);
        for name in suggestion.into_iter().chain([self.name.clone()]) {
            let about = Sidecar {
                complete: Some(name.clone()),
                identity: Identity { length: Some(bytes), ..self.about.identity.clone() },
                ..self.about.clone()
            };
            write_sidecar(&self.folder, &self.name, &about)?;
            match self.folder.rename(&part_name(&self.name), &name, taken) {
                Ok(()) => {
                    self.folder.sync()?;
                    return Ok(Placed { name, bytes });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
        write_sidecar(&self.folder, &self.name, &self.about)?;
        Err(DownloadError::Exists { name: self.name.clone() })
    }

    fn sha256(&mut self) -> io::Result<[u8; 32]> {
        let mut digest = Sha256::new();
        self.file.rewind()?;
        feed(&mut self.file, self.length, |bytes| digest.update(bytes))?;
        Ok(digest.finalize().into())
    }
}

impl Sidecar {
    fn new(url: &str) -> Sidecar {
        let (identity, boot) = (Identity::default(), boot_id());
        Sidecar { url: url.to_owned(), identity, synced: 0, crc: 0, boot, complete: None }
    }
}

/// The file itself, locked: as it was left, or a new one.
fn open_file(folder: &Folder, name: &str, about: &Sidecar) -> Result<File, DownloadError> {
    let part = part_name(name);
    let file = match folder.length(&part)? {
        // One without a sidecar is somebody else's.
        Some(_) if folder.length(&sidecar_name(name))?.is_none() => {
            return Err(DownloadError::Exists { name: part });
        }
        Some(_) => folder.reopen(&part)?,
        None => {
            write_sidecar(folder, name, about)?;
            folder.create(&part)?
        }
    };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DownloadError::Busy { name: name.to_owned() }),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// A file that was given its name by an earlier try, which ended before anybody wrote that down.
fn completed_before(folder: &Folder, name: &str, known: &Sidecar) -> io::Result<Option<Placed>> {
    let Some(place) = &known.complete else { return Ok(None) };
    let is_named = folder.length(&part_name(name))?.is_none();
    let bytes = folder.length(place)?.filter(|bytes| is_named && known.identity.length == Some(*bytes));
    Ok(bytes.map(|bytes| Placed { name: place.clone(), bytes }))
}

/// What is known about a file; nothing if it cannot be read, and then the file is not trusted.
fn read_sidecar(folder: &Folder, name: &str) -> io::Result<Option<Sidecar>> {
    let sidecar = sidecar_name(name);
    if folder.length(&sidecar)?.is_none_or(|length| length > SIDECAR_BYTES_MAX) {
        return Ok(None);
    }
    let mut text = String::new();
    let read = folder.reopen(&sidecar)?.take(SIDECAR_BYTES_MAX).read_to_string(&mut text);
    Ok(read.ok().and_then(|_| serde_json::from_str(&text).ok()))
}

/// In one piece: whoever reads it finds the old one or the new one.
fn write_sidecar(folder: &Folder, name: &str, about: &Sidecar) -> io::Result<()> {
    let (place, draft) = (sidecar_name(name), format!("{name}.part.tmp"));
    folder.remove(&draft)?;
    folder.create(&draft)?.write_all(&serde_json::to_vec(about)?)?;
    folder.rename(&draft, &place, Taken::Replace)
}

/// Reads so many bytes from where the file stands; says how many there were.
fn feed(file: &mut File, count: u64, mut to: impl FnMut(&[u8])) -> io::Result<u64> {
    let mut buffer = vec![0; READ_BYTES];
    let mut left = count;
    while left > 0 {
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = file.read(&mut buffer[..wanted])?;
        if read == 0 {
            break;
        }
        to(&buffer[..read]);
        left -= read as u64;
    }
    Ok(count - left)
}

/// Which start of the machine this is; of no meaning where the system does not say, and then equal to no other.
fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map_or_else(|_| format!("process {}", std::process::id()), |id| id.trim().to_owned())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://a.example/file";

    struct Ground {
        place: tempfile::TempDir,
        folder: Arc<Folder>,
    }

    impl Ground {
        fn new() -> Ground {
            let place = tempfile::tempdir().unwrap();
            let folder = Arc::new(Folder::open(place.path()).unwrap());
            Ground { place, folder }
        }

        fn open(&self) -> Part {
            match Part::open(&self.folder, "file", URL, Taken::Keep) {
                Ok(Opened::Part(part)) => *part,
                Ok(Opened::Complete(placed)) => panic!("complete: {placed:?}"),
                Err(error) => panic!("{error}"),
            }
        }

        fn refused(&self) -> DownloadError {
            Part::open(&self.folder, "file", URL, Taken::Keep).err().expect("it is refused")
        }

        fn edit_sidecar(&self, edit: impl FnOnce(&mut Sidecar)) {
            let mut about = read_sidecar(&self.folder, "file").unwrap().unwrap();
            edit(&mut about);
            write_sidecar(&self.folder, "file", &about).unwrap();
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.place.path().join(name)
        }
    }

    #[test]
    fn after_a_kill_every_byte_that_was_written_counts() {
        let ground = Ground::new();
        ground.open().write(b"beginning").unwrap();
        assert_eq!(ground.open().length(), 9);
    }

    #[test]
    fn after_a_power_cut_only_what_was_synced_counts() {
        let ground = Ground::new();
        let mut part = ground.open();
        part.write(&vec![7; SYNC_EVERY as usize]).unwrap();
        part.write(b"not synced").unwrap();
        drop(part);
        ground.edit_sidecar(|about| about.boot = "another".to_owned());
        assert_eq!(ground.open().length(), SYNC_EVERY);
    }

    #[test]
    fn a_beginning_that_is_not_what_was_synced_is_not_built_upon() {
        let ground = Ground::new();
        let mut part = ground.open();
        part.write(&vec![7; SYNC_EVERY as usize]).unwrap();
        drop(part);
        let mut file = File::options().write(true).open(ground.path("file.part")).unwrap();
        file.write_all(b"8").unwrap();
        assert_eq!(ground.open().length(), 0);
    }

    #[test]
    fn a_shorter_file_than_was_synced_starts_over() {
        let ground = Ground::new();
        ground.open().write(b"x").unwrap();
        ground.edit_sidecar(|about| about.synced = 5);
        assert_eq!(ground.open().length(), 0);
    }

    #[test]
    fn a_file_that_had_its_name_before_anybody_knew_is_found_complete() {
        let ground = Ground::new();
        let mut part = ground.open();
        part.write(b"all of it").unwrap();
        let placed = part.finish(None, Taken::Keep).unwrap();
        assert_eq!(placed, Placed { name: "file".to_owned(), bytes: 9 });
        drop(part);
        let again = Part::open(&ground.folder, "file", URL, Taken::Keep).unwrap();
        assert!(matches!(again, Opened::Complete(again) if again == placed));
        // Somebody else's file of that name is not ours.
        std::fs::write(ground.path("file"), b"another").unwrap();
        assert!(matches!(ground.refused(), DownloadError::Exists { .. }));
    }

    #[test]
    fn nobody_s_file_is_overwritten_and_a_suggestion_gives_way() {
        let ground = Ground::new();
        let mut part = ground.open();
        part.write(b"ours").unwrap();
        std::fs::write(ground.path("suggested"), b"theirs").unwrap();
        std::fs::write(ground.path("file"), b"theirs too").unwrap();
        part.about.identity.suggestion = Some("suggested".to_owned());
        assert!(matches!(part.finish(None, Taken::Keep), Err(DownloadError::Exists { .. })));
        std::fs::remove_file(ground.path("file")).unwrap();
        assert_eq!(part.finish(None, Taken::Keep).unwrap().name, "file");
        assert_eq!(std::fs::read(ground.path("suggested")).unwrap(), b"theirs");
        assert_eq!(std::fs::read(ground.path("file")).unwrap(), b"ours");
    }

    #[test]
    fn a_part_of_somebody_else_is_left_alone() {
        let ground = Ground::new();
        std::fs::write(ground.path("file.part"), b"theirs").unwrap();
        assert!(matches!(ground.refused(), DownloadError::Exists { name } if name == "file.part"));
        assert_eq!(std::fs::read(ground.path("file.part")).unwrap(), b"theirs");
        assert!(!ground.path("file.part.json").exists());
    }

    #[test]
    fn a_symbolic_link_in_the_place_of_a_file_is_not_followed() {
        let ground = Ground::new();
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        for name in ["file", "file.part", "file.part.json"] {
            std::os::unix::fs::symlink(elsewhere.path(), ground.path(name)).unwrap();
            assert!(Part::open(&ground.folder, "file", URL, Taken::Keep).is_err(), "{name}");
            std::fs::remove_file(ground.path(name)).unwrap();
        }
        assert_eq!(elsewhere.as_file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn two_do_not_write_the_same_file() {
        let ground = Ground::new();
        let part = ground.open();
        assert!(matches!(ground.refused(), DownloadError::Busy { .. }));
        drop(part);
        ground.open();
    }

    #[test]
    fn a_wrong_checksum_and_a_wrong_length_keep_a_file_from_its_name() {
        let ground = Ground::new();
        let mut part = ground.open();
        part.write(b"abc").unwrap();
        part.learn(4).unwrap();
        assert!(matches!(part.finish(None, Taken::Keep), Err(DownloadError::WrongLength { .. })));
        part.learn(3).unwrap();
        let wrong = part.finish(Some(&[0; 32]), Taken::Keep);
        assert!(matches!(wrong, Err(DownloadError::Checksum { .. })) && part.length() == 0);
        part.write(b"abc").unwrap();
        let right: [u8; 32] = Sha256::digest(b"abc").into();
        assert_eq!(part.finish(Some(&right), Taken::Keep).unwrap().bytes, 3);
    }

    #[test]
    fn what_is_not_complete_is_its_owner_s_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let ground = Ground::new();
        ground.open();
        let mode = |name| ground.path(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("file.part"), mode("file.part.json")), (0o600, 0o600));
    }
}
