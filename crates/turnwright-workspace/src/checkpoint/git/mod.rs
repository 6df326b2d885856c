//! Reads the committed contents of files that have not been modified since their checkout from a git repository. The
//! repository is read directly instead of by running git, because its configuration could start programs. Anything
//! that is not understood is treated as missing.
//!
//! A file has the content in the index if its stat data match, unless git has converted it ([`attributes`]). Line
//! endings are converted here as git does it, whichever attribute or setting asks for that.

pub(super) mod attributes;
pub(super) mod index;
pub(super) mod pack;
pub(super) mod state;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ring::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};

use crate::git_repository::GitRepository;
use crate::nofollow;
use pack::DeltaBase;
use turnwright_types::bounded_read::read_at_most;
use turnwright_types::hash::hex;

/// The most bytes of an object, and of each base object that deltas are applied to.
pub(super) const MAX_OBJECT_BYTES: usize = 10 * 1024 * 1024;
/// The most bytes of a small text file, such as `config`, or one that points to another folder.
const MAX_POINTER_BYTES: u64 = 256 * 1024;
/// The most object folders, alternates included.
const MAX_OBJECT_FOLDERS: usize = 16;
/// The most packs of one folder.
const MAX_PACKS: usize = 1024;
/// The longest chain of deltas, and the most bytes that are unpacked for one object.
const MAX_DELTAS: usize = 512;
const MAX_UNPACKED_BYTES: usize = 256 * 1024 * 1024;

pub(super) type ObjectId = [u8; 20];

/// The result of `lstat` for a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) size: u64,
    /// Seconds and nanoseconds since the epoch.
    pub(super) mtime: (u64, u32),
    pub(super) ctime: (u64, u32),
    pub(super) ino: u64,
    /// The mode with the bits of the file type.
    pub(super) mode: u32,
}

/// The name that git gives to the content of a file.
fn blob_id(bytes: &[u8]) -> Option<ObjectId> {
    let mut hash = digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(format!("blob {}\0", bytes.len()).as_bytes());
    hash.update(bytes);
    hash.finish().as_ref().first_chunk().copied()
}

/// A repository with its index as it was when it was opened.
#[derive(Debug)]
pub(super) struct Repository {
    /// The folder for which it was opened.
    root: PathBuf,
    /// The root of the working tree.
    pub(super) top: PathBuf,
    pub(super) index: index::Index,
    index_file: PathBuf,
    /// The modification time of the index when it was read.
    index_mtime: (u64, u32),
    /// The size of the index when it was read.
    index_size: u64,
    /// The object folders, alternates included.
    objects: Vec<PathBuf>,
}

impl Repository {
    /// Opens the repository that contains a folder, unless it is among those that were opened before
    /// and its index is still the same. Blocks.
    pub(super) fn open_or_reuse(root: &Path, known: &[Arc<Repository>]) -> Option<Arc<Repository>> {
        let known =
            known.iter().find(|repository| repository.root == root && repository.is_current());
        known.cloned().or_else(|| Repository::open(root).map(Arc::new))
    }

    /// Returns true if the index is still the one that was read.
    fn is_current(&self) -> bool {
        fs::metadata(&self.index_file)
            .is_ok_and(|now| mtime(&now) == Some(self.index_mtime) && now.len() == self.index_size)
    }

    /// Opens the repository that contains a folder, whose path has no links. Blocks.
    pub(super) fn open(root: &Path) -> Option<Repository> {
        let found = root.ancestors().find_map(|folder| GitRepository::at(folder).transpose())?;
        let GitRepository { top, git, .. } = found.ok()?;
        let common = match read_small(&git.join("commondir")) {
            Some(path) => crate::real_path(git.join(path.trim_end())).ok()?,
            None => git.clone(),
        };
        // Another user's repository around the folder may contain anything.
        if ![&git, &common].iter().all(|folder| has_trusted_owner(root, folder)) {
            return None;
        }
        let config = read_small(&common.join("config"))?.to_ascii_lowercase();
        if config.lines().any(|line| line.contains("objectformat") && line.contains("sha256")) {
            return None;
        }
        let index_file = git.join("index");
        let opened = open_regular(&index_file)?;
        let metadata = opened.metadata().ok()?;
        Some(Repository {
            root: root.to_path_buf(),
            top,
            index: index::parse(&read_at_most(opened, index::MAX_INDEX_BYTES).ok()??)?,
            index_file,
            index_mtime: mtime(&metadata)?,
            index_size: metadata.len(),
            objects: with_alternates(&common.join("objects")),
        })
    }

    /// The entries for everything below a folder, whose path must not contain links.
    pub(super) fn folder(&self, folder: &Path) -> Option<IndexedFolder<'_>> {
        let mut prefix = index_name(folder.strip_prefix(&self.top).ok()?)?;
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let index = &self.index;
        let entries = &self.index.entries;
        let start = entries.partition_point(|entry| *index.name(entry) < *prefix);
        let below = entries.get(start..)?;
        let end = below.partition_point(|entry| index.name(entry).starts_with(&prefix));
        let entries = below.get(..end)?;
        let prefix = prefix.len();
        Some(IndexedFolder { index, entries, prefix, index_mtime: self.index_mtime })
    }

    /// Reads the content of a file if git would consider the file unmodified, and verifies the blob's hash. `path` must
    /// not contain links. Blocks.
    pub(super) fn read(&self, path: &Path, stat: &FileStat) -> Option<Vec<u8>> {
        let blob = self.folder(path.parent()?)?.next_clean_blob(path.file_name()?, stat)?;
        let bytes = self.read_object(blob)?;
        let is_intact = blob_id(&bytes) == Some(blob);
        with_line_endings(bytes, usize::try_from(stat.size).ok()?).filter(|_| is_intact)
    }

    /// Reads an object and applies its deltas.
    fn read_object(&self, hash: ObjectId) -> Option<Vec<u8>> {
        let mut location = self.locate(hash)?;
        let mut unpacked = 0;
        let mut deltas = Vec::new();
        let mut bytes = loop {
            let (mut file, offset) = match location {
                ObjectLocation::Loose(bytes) => break bytes,
                ObjectLocation::Packed(file, offset) => (file, offset),
            };
            let (base, bytes) = pack::read_entry(&mut file, offset)?;
            unpacked += bytes.len();
            location = match base {
                DeltaBase::None => break bytes,
                DeltaBase::Offset(offset) => ObjectLocation::Packed(file, offset),
                DeltaBase::Id(hash) => self.locate(hash)?,
            };
            deltas.push(bytes);
            if deltas.len() > MAX_DELTAS || unpacked > MAX_UNPACKED_BYTES {
                return None;
            }
        };
        while let Some(delta) = deltas.pop() {
            bytes = pack::apply_delta(&bytes, &delta)?;
            unpacked += bytes.len();
            if unpacked > MAX_UNPACKED_BYTES {
                return None;
            }
        }
        Some(bytes)
    }

    fn locate(&self, hash: ObjectId) -> Option<ObjectLocation> {
        self.objects
            .iter()
            .find_map(|folder| locate_loose(folder, hash).or_else(|| locate_packed(folder, hash)))
    }
}

/// Converts the line endings of a blob so that it has the size of the checked-out file. Git may have inserted a CR
/// before each line feed at checkout. Returns `None` if the size fits neither the blob nor the blob with all these CRs.
fn with_line_endings(blob: Vec<u8>, size: usize) -> Option<Vec<u8>> {
    let added = size.checked_sub(blob.len())?;
    if added == 0 {
        return Some(blob);
    }
    if memchr::memchr_iter(b'\n', &blob).count() != added {
        return None;
    }
    let lines: Vec<_> = blob.split(|byte| *byte == b'\n').collect();
    Some(lines.join(b"\r\n".as_slice()))
}

/// The entries of an index for what is below one folder.
pub(super) struct IndexedFolder<'r> {
    index: &'r index::Index,
    /// Sorted by name.
    entries: &'r [index::IndexEntry],
    /// The length of the folder's part of their names.
    prefix: usize,
    index_mtime: (u64, u32),
}

impl IndexedFolder<'_> {
    /// The blob of a file in the folder, if git would consider the file unmodified. Must be called for files in the
    /// order of their names, because entries before the one that is looked up are dropped.
    pub(super) fn next_clean_blob(&mut self, name: &OsStr, stat: &FileStat) -> Option<ObjectId> {
        let name = name.as_encoded_bytes();
        let index = self.index;
        let prefix = self.prefix;
        let is_before = |entry: &index::IndexEntry| index.name(entry)[prefix..] < *name;
        // A galloping search, because the next file is near unless there are folders in between.
        let mut near = 1;
        while self.entries.get(near).is_some_and(is_before) {
            near *= 2;
        }
        let far = self.entries.len().min(near + 1);
        let skipped = near / 2 + self.entries.get(near / 2..far)?.partition_point(is_before);
        self.entries = self.entries.get(skipped..)?;
        let entry = self.entries.first().filter(|entry| index.name(entry)[prefix..] == *name)?;
        let size = usize::try_from(stat.size).ok().filter(|size| *size <= MAX_OBJECT_BYTES)?;
        // A file that was modified at the moment when the index was written looks unmodified, which git calls racy.
        let is_racy = (u64::from(entry.mtime.0), entry.mtime.1) >= self.index_mtime;
        let is_clean = entry.matches(stat) && !is_racy && (size > 0 || entry.hash == EMPTY_BLOB);
        is_clean.then_some(entry.hash)
    }
}

enum ObjectLocation {
    /// A loose object, with its content.
    Loose(Vec<u8>),
    /// In a pack, at this offset.
    Packed(File, u64),
}

const EMPTY_BLOB: ObjectId = [
    0xe6, 0x9d, 0xe2, 0x9b, 0xb2, 0xd1, 0xd6, 0x43, 0x4b, 0x8b, 0x29, 0xae, 0x77, 0x5a, 0xd8, 0xc2,
    0xe4, 0x8c, 0x53, 0x91,
];

fn locate_loose(folder: &Path, hash: ObjectId) -> Option<ObjectLocation> {
    let hex_hash = hex(&hash);
    let (first, rest) = hex_hash.split_at(2);
    let file = open_regular(&folder.join(first).join(rest))?;
    let bytes = read_at_most(file, pack::MAX_LOOSE_BYTES).ok()??;
    Some(ObjectLocation::Loose(pack::parse_loose_blob(&bytes)?))
}

fn locate_packed(folder: &Path, hash: ObjectId) -> Option<ObjectLocation> {
    let folder = crate::real_path(folder.join("pack")).ok()?;
    let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let indexes = files.filter(|path| path.extension().is_some_and(|extension| extension == "idx"));
    let found = indexes.take(MAX_PACKS).find_map(|path| {
        let offset = pack::find_offset(&mut open_regular(&path)?, &hash)?;
        Some((open_regular(&path.with_extension("pack"))?, offset))
    });
    found.map(|(file, offset)| ObjectLocation::Packed(file, offset))
}

/// An object folder and its alternates.
fn with_alternates(first: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = crate::real_path(first).into_iter().collect();
    let mut next = 0;
    while let Some(folder) = folders.get(next) {
        let text = read_small(&folder.join("info/alternates")).unwrap_or_default();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let more: Vec<_> = lines
            .take(MAX_OBJECT_FOLDERS)
            .filter_map(|line| crate::real_path(folder.join(line)).ok())
            .filter(|path| !folders.contains(path))
            .collect();
        folders.extend(more);
        folders.truncate(MAX_OBJECT_FOLDERS);
        next += 1;
    }
    folders
}

/// A path in the form in which the index has it.
fn index_name(path: &Path) -> Option<Vec<u8>> {
    let parts = path.components().map(|part| match part {
        Component::Normal(part) => Some(part.as_encoded_bytes()),
        _ => None,
    });
    Some(parts.collect::<Option<Vec<_>>>()?.join(&b'/'))
}

/// Opens a file without following links. Returns `None` if it is not a regular file.
fn open_regular(path: &Path) -> Option<File> {
    let file = nofollow::open_file(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

fn read_small(path: &Path) -> Option<String> {
    let bytes = read_at_most(open_regular(path)?, MAX_POINTER_BYTES).ok()??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(unix)]
fn has_trusted_owner(root: &Path, folder: &Path) -> bool {
    let Some(user) = owner(folder) else { return false };
    user == rustix::process::geteuid().as_raw() || owner(root) == Some(user)
}

#[cfg(unix)]
fn owner(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(fs::metadata(path).ok()?.uid())
}

#[cfg(not(unix))]
fn has_trusted_owner(_: &Path, _: &Path) -> bool {
    true
}

/// The modification time, in seconds and nanoseconds since the epoch.
fn mtime(metadata: &Metadata) -> Option<(u64, u32)> {
    let since = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some((since.as_secs(), since.subsec_nanos()))
}

/// Converts a time of Windows, which is in units of 100 ns since 1601, to seconds and nanoseconds.
#[cfg(not(unix))]
fn since_1970(ticks: u64) -> (u64, u32) {
    let ticks = ticks.saturating_sub(116_444_736_000_000_000);
    let nanos = u32::try_from(ticks % 10_000_000 * 100).unwrap_or(u32::MAX);
    (ticks / 10_000_000, nanos)
}

#[cfg(not(unix))]
impl FileStat {
    /// Makes stat data from Windows metadata. The creation time also stands for the inode number: it stays when a file
    /// is moved, and hardly any other file has the same one.
    pub(super) fn new(metadata: &Metadata) -> FileStat {
        use std::os::windows::fs::MetadataExt;
        // The bits of files and folders are those of `permission_bits`.
        let mode = match metadata.file_type() {
            kind if kind.is_symlink() => 0o120_777,
            kind if kind.is_dir() => 0o040_644,
            _ => 0o100_644,
        };
        let mtime = since_1970(metadata.last_write_time());
        let ctime = since_1970(metadata.creation_time());
        let ino = metadata.creation_time();
        FileStat { size: metadata.len(), mtime, ctime, ino, mode }
    }

    /// The stat data of a file, a link or a folder, as far as its changes are tracked.
    pub(super) fn tracked(metadata: &Metadata) -> FileStat {
        let stat_data = FileStat::new(metadata);
        // The other data of a folder change whenever an entry is added or removed.
        let is_folder = metadata.is_dir() && !metadata.is_symlink();
        if is_folder { FileStat { mode: stat_data.mode, ..FileStat::default() } } else { stat_data }
    }
}

#[cfg(unix)]
impl FileStat {
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::useless_conversion, reason = "a mode has 16 bits on other systems")
    )]
    pub(super) fn new(stat: &rustix::fs::Stat) -> FileStat {
        // A time before 1970 must not equal any other.
        let mtime_seconds = u64::try_from(stat.st_mtime).unwrap_or(u64::MAX);
        let ctime_seconds = u64::try_from(stat.st_ctime).unwrap_or(u64::MAX);
        let mtime_nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(u32::MAX);
        let ctime_nanos = u32::try_from(stat.st_ctime_nsec).unwrap_or(u32::MAX);
        FileStat {
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mtime: (mtime_seconds, mtime_nanos),
            ctime: (ctime_seconds, ctime_nanos),
            ino: stat.st_ino,
            mode: u32::from(stat.st_mode),
        }
    }

    /// The stat data of a file, a link or a folder, as far as its changes are tracked.
    pub(super) fn tracked(stat: &rustix::fs::Stat) -> Option<FileStat> {
        use rustix::fs::FileType;
        let stat_data = FileStat::new(stat);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => Some(stat_data),
            // The other data of a folder change whenever an entry is added or removed.
            FileType::Directory => Some(FileStat { mode: stat_data.mode, ..FileStat::default() }),
            _ => None,
        }
    }
}
