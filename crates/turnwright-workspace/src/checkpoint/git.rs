//! What git has of the files that nobody has touched since they were checked out. Its files are read
//! here, and no git is run: the settings of a repository could start programs. What is not
//! understood is not there.
//!
//! A content is the file's own if the stat data in the index are those of the file. A filter of the
//! repository's (`filter`, `eol`, LFS) may have made something else of it; then the lengths
//! differ, and nothing is said. A filter that keeps the length is not noticed.

pub(super) mod index;
pub(super) mod pack;
#[cfg(test)]
mod tests;
pub(super) mod zlib;

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use ring::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};

use turnwright_types::ids::hex;
use crate::pinned;
use pack::Base;

/// Bytes of a content; and of what it is put together from.
pub(super) const MOST: usize = 10 * 1024 * 1024;
/// Bytes of an index.
const MOST_INDEX: u64 = 64 * 1024 * 1024;
/// Bytes of the small files that say where others are.
const MOST_POINTER: u64 = 256 * 1024;
/// Folders with objects.
const MOST_FOLDERS: usize = 16;
/// Packs of one folder.
const MOST_PACKS: usize = 1024;
/// Deltas that lie one over the other, and the bytes of all that comes of them.
const MOST_DELTAS: usize = 512;
const MOST_WORK: usize = 256 * 1024 * 1024;

/// The name of an object.
pub(super) type Hash = [u8; 20];

/// What `lstat` says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) size: u64,
    /// Seconds and nanoseconds.
    pub(super) mtime: (u64, u32),
    pub(super) ctime: (u64, u32),
    pub(super) ino: u64,
    /// With the bits that say what sort of file it is.
    pub(super) mode: u32,
}

/// A content that git has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oid {
    hash: Hash,
    /// Bytes of the file that it is the content of.
    size: usize,
}

/// A repository, with its index as it was when it was opened.
#[derive(Debug)]
pub(super) struct Repository {
    /// The folder that its paths begin in.
    top: PathBuf,
    /// By name.
    entries: Vec<index::Entry>,
    /// When the index was written.
    written: (u64, u32),
    /// The folders with its objects.
    objects: Vec<PathBuf>,
}

impl Repository {
    /// The repository that a real folder lies in. Reads the disk.
    pub(super) fn open(root: &Path) -> Option<Repository> {
        let top = root.ancestors().find(|it| fs::symlink_metadata(it.join(".git")).is_ok())?;
        let git = git_folder(top)?;
        let common = match small(&git.join("commondir")) {
            Some(path) => fs::canonicalize(git.join(path.trim_end())).ok()?,
            None => git.clone(),
        };
        // Who else made a repository around our folder may have put anything into it.
        if ![&git, &common].iter().all(|it| is_by_the_owner_of(root, it)) {
            return None;
        }
        let config = small(&common.join("config"))?.to_ascii_lowercase();
        if config.lines().any(|it| it.contains("objectformat") && it.contains("sha256")) {
            return None;
        }
        let index = regular(&git.join("index"))?;
        let written = modified(&index.metadata().ok()?)?;
        let mut entries = index::parse(&all(index, MOST_INDEX)?)?;
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let objects = with_alternates(&common.join("objects"));
        Some(Repository { top: top.to_path_buf(), entries, written, objects })
    }

    /// The content of a file, if that is what git would call unchanged. `path` is real.
    pub(super) fn clean(&self, path: &Path, stat: &Stat) -> Option<Oid> {
        let name = name(path.strip_prefix(&self.top).ok()?)?;
        let found = self.entries.binary_search_by(|it| (*it.name).cmp(&name)).ok()?;
        let entry = self.entries.get(found)?;
        let size = usize::try_from(stat.size).ok().filter(|it| *it <= MOST)?;
        // What was changed in the moment that the index was written looks unchanged.
        let is_racy = (u64::from(entry.mtime.0), entry.mtime.1) >= self.written;
        let is_clean = entry.is_of(stat) && !is_racy && (size > 0 || entry.hash == EMPTY);
        is_clean.then_some(Oid { hash: entry.hash, size })
    }

    /// Those bytes, if they are there and are what they are called. Reads the disk.
    pub(super) fn read(&self, oid: &Oid) -> Option<Vec<u8>> {
        let bytes = self.whole(oid.hash)?;
        if bytes.len() != oid.size {
            return None;
        }
        let mut hash = digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        hash.update(format!("blob {}\0", bytes.len()).as_bytes());
        hash.update(&bytes);
        (hash.finish().as_ref() == oid.hash).then_some(bytes)
    }

    /// An object with its deltas applied.
    fn whole(&self, hash: Hash) -> Option<Vec<u8>> {
        let (mut place, mut work) = (self.find(hash)?, 0);
        let mut deltas = Vec::new();
        let mut bytes = loop {
            let (file, offset) = match place {
                Place::Loose(bytes) => break bytes,
                Place::Packed(file, offset) => (file, offset),
            };
            let (base, bytes) = pack::piece(&file, offset)?;
            work += bytes.len();
            place = match base {
                Base::None => break bytes,
                Base::At(offset) => Place::Packed(file, offset),
                Base::Named(hash) => self.find(hash)?,
            };
            deltas.push(bytes);
            if deltas.len() > MOST_DELTAS || work > MOST_WORK {
                return None;
            }
        };
        while let Some(delta) = deltas.pop() {
            bytes = pack::apply(&bytes, &delta)?;
            work += bytes.len();
            if work > MOST_WORK {
                return None;
            }
        }
        Some(bytes)
    }

    fn find(&self, hash: Hash) -> Option<Place> {
        self.objects.iter().find_map(|folder| loose(folder, hash).or_else(|| packed(folder, hash)))
    }
}

/// Where an object is.
enum Place {
    /// In a file of its own, which held this.
    Loose(Vec<u8>),
    /// In a pack, from this byte on.
    Packed(File, u64),
}

/// The name of no bytes.
const EMPTY: Hash = [
    0xe6, 0x9d, 0xe2, 0x9b, 0xb2, 0xd1, 0xd6, 0x43, 0x4b, 0x8b, 0x29, 0xae, 0x77, 0x5a, 0xd8, 0xc2,
    0xe4, 0x8c, 0x53, 0x91,
];

fn loose(folder: &Path, hash: Hash) -> Option<Place> {
    let name = hex(&hash);
    let (first, rest) = name.split_at(2);
    let file = regular(&folder.join(first).join(rest))?;
    Some(Place::Loose(zlib::loose(&all(file, zlib::MOST_PACKED)?)?))
}

fn packed(folder: &Path, hash: Hash) -> Option<Place> {
    let folder = fs::canonicalize(folder.join("pack")).ok()?;
    let files = fs::read_dir(folder).ok()?.flatten().map(|it| it.path());
    let indexes = files.filter(|it| it.extension().is_some_and(|it| it == "idx"));
    let found = indexes.take(MOST_PACKS).find_map(|it| {
        let offset = pack::offset(&regular(&it)?, &hash)?;
        Some((regular(&it.with_extension("pack"))?, offset))
    });
    found.map(|(file, offset)| Place::Packed(file, offset))
}

/// The real folder of the repository whose files lie in this one.
fn git_folder(top: &Path) -> Option<PathBuf> {
    let git = fs::canonicalize(top.join(".git")).ok()?;
    if git.is_dir() {
        return Some(git);
    }
    let text = small(&git)?;
    let elsewhere = text.strip_prefix("gitdir:")?.trim();
    fs::canonicalize(top.join(elsewhere)).ok().filter(|it| it.is_dir())
}

/// A folder of objects, and those that it names besides.
fn with_alternates(first: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::canonicalize(first).into_iter().collect();
    let mut next = 0;
    while let Some(folder) = folders.get(next) {
        let text = small(&folder.join("info/alternates")).unwrap_or_default();
        let lines = text.lines().filter(|it| !it.is_empty() && !it.starts_with('#'));
        let more: Vec<_> = lines
            .take(MOST_FOLDERS)
            .filter_map(|it| fs::canonicalize(folder.join(it)).ok())
            .filter(|it| !folders.contains(it))
            .collect();
        folders.extend(more);
        folders.truncate(MOST_FOLDERS);
        next += 1;
    }
    folders
}

/// A path as the index has it.
fn name(path: &Path) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    for part in path.components() {
        let Component::Normal(part) = part else { return None };
        if !name.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(part.as_encoded_bytes());
    }
    Some(name)
}

/// A regular file that is behind no link.
fn regular(path: &Path) -> Option<File> {
    let file = pinned::file(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

fn all(file: File, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

fn small(path: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&all(regular(path)?, MOST_POINTER)?).into_owned())
}

#[cfg(unix)]
fn is_by_the_owner_of(root: &Path, folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = |it: &Path| fs::metadata(it).map(|it| it.uid());
    let Ok(by) = owner(folder) else { return false };
    by == rustix::process::geteuid().as_raw() || owner(root).is_ok_and(|it| it == by)
}

#[cfg(not(unix))]
fn is_by_the_owner_of(_: &Path, _: &Path) -> bool {
    true
}

fn modified(about: &Metadata) -> Option<(u64, u32)> {
    let since = about.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some((since.as_secs(), since.subsec_nanos()))
}

#[cfg(unix)]
impl Stat {
    /// What is known of a file.
    pub(super) fn of(about: &Metadata) -> Stat {
        use std::os::unix::fs::MetadataExt;
        // What lies before 1970 is equal to nothing.
        let moment = |seconds: i64, nanos: i64| {
            (u64::try_from(seconds).unwrap_or(u64::MAX), u32::try_from(nanos).unwrap_or(u32::MAX))
        };
        Stat {
            size: about.size(),
            mtime: moment(about.mtime(), about.mtime_nsec()),
            ctime: moment(about.ctime(), about.ctime_nsec()),
            ino: about.ino(),
            mode: about.mode(),
        }
    }
}
