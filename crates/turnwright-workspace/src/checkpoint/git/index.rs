//! Reads the entries of a git index of version 2 to 4, as `gitformat-index(5)` describes them.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::{FileStat, ObjectId};
use turnwright_types::bounded_read::read_at_most;

/// The most bytes of an index, which has about a hundred for each file.
pub(super) const MAX_INDEX_BYTES: u64 = 64 * 1024 * 1024;
/// The most bytes of a path, and of all paths.
const MAX_PATH_BYTES: usize = 4096;
const MAX_PATH_BYTES_TOTAL: usize = 128 * 1024 * 1024;
/// The bits of a mode that are the file type.
const TYPE_MASK: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// The type of an entry that is a commit of another repository.
const SUBMODULE: u32 = 0o160_000;
/// The flag of a file that git assumes to be unchanged.
const ASSUME_UNCHANGED: u16 = 0x8000;
/// The flag for two more bytes of flags.
const EXTENDED: u16 = 0x4000;
/// The flags that say which side of a conflict an entry is.
const STAGE_MASK: u16 = 0x3000;
/// The further flag of a file that is not in the working tree.
const SKIP_WORKTREE: u16 = 0x4000;
/// The further flag of a file that is to be added later.
const INTENT_TO_ADD: u16 = 0x2000;

/// The entries of an index that count.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The names of all entries, one after the other.
    names: Vec<u8>,
    /// Sorted by name.
    pub(crate) entries: Vec<IndexEntry>,
}

impl Index {
    pub(crate) fn name(&self, entry: &IndexEntry) -> &[u8] {
        let start = entry.name.0 as usize;
        let length = entry.name.1 as usize;
        self.names.get(start..start + length).unwrap_or_default()
    }

    /// About how many bytes it takes.
    pub(crate) fn memory(&self) -> usize {
        self.names.len() + size_of_val(&*self.entries)
    }

    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|one, other| self.name(one).cmp(self.name(other)));
        self.entries = entries;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Where its name begins in [`Index::names`], and the length.
    name: (u32, u32),
    pub(super) hash: ObjectId,
    pub(super) mtime: (u32, u32),
    ctime: (u32, u32),
    ino: u32,
    mode: u32,
    size: u32,
}

impl IndexEntry {
    /// Returns true if the stat data of a file match the entry. Numbers are truncated to 32 bits, as git
    /// does it. Permission bits may differ: changing them changes `ctime`.
    pub(super) fn matches(&self, stat: &FileStat) -> bool {
        self.mtime == (low_bits(stat.mtime.0), stat.mtime.1)
            && self.ctime == (low_bits(stat.ctime.0), stat.ctime.1)
            // Git for Windows stores none.
            && (cfg!(windows) || self.ino == low_bits(stat.ino))
            && self.has_size(stat)
    }

    /// Returns true if a file has the size of the entry, and is of its type.
    pub(super) fn has_size(&self, stat: &FileStat) -> bool {
        u64::from(self.size) == stat.size && self.mode & TYPE_MASK == stat.mode & TYPE_MASK
    }
}

fn low_bits(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default()
}

/// An entry as it is stored: a file, a link, a submodule or, in a sparse index, a folder.
struct StoredEntry<'a> {
    /// The path below the top of the working tree.
    name: &'a [u8],
    ctime: (u32, u32),
    mtime: (u32, u32),
    ino: u32,
    mode: u32,
    size: u32,
    hash: &'a [u8],
    flags: u16,
    further_flags: u16,
}

/// The path that the name of an entry is.
#[cfg(unix)]
pub(super) fn path_of(name: &[u8]) -> Cow<'_, Path> {
    use std::os::unix::ffi::OsStrExt;
    Cow::Borrowed(Path::new(std::ffi::OsStr::from_bytes(name)))
}

/// The path that the name of an entry is. Git writes UTF-8 there.
#[cfg(not(unix))]
pub(super) fn path_of(name: &[u8]) -> Cow<'_, Path> {
    match String::from_utf8_lossy(name) {
        Cow::Borrowed(name) => Cow::Borrowed(Path::new(name)),
        Cow::Owned(name) => Cow::Owned(name.into()),
    }
}

impl StoredEntry<'_> {
    fn path(&self) -> Cow<'_, Path> {
        path_of(self.name)
    }

    /// Returns true if git takes the file in the working tree for unchanged, or does not look at it.
    fn is_assumed_unchanged(&self) -> bool {
        self.flags & ASSUME_UNCHANGED != 0 || self.further_flags & SKIP_WORKTREE != 0
    }

    /// Returns true for a file or link that is checked out, and committed or added without a conflict.
    fn counts(&self) -> bool {
        self.flags & STAGE_MASK == 0
            && self.further_flags & (SKIP_WORKTREE | INTENT_TO_ADD) == 0
            && matches!(self.mode & TYPE_MASK, FILE | LINK)
            && !self.name.is_empty()
    }
}

/// Reads the file of an index, which may be a link. Returns `None` if it is no regular file, or too long. Blocks.
pub fn read_index_file(path: &Path) -> Option<Vec<u8>> {
    // Opening a FIFO could block for ever.
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_INDEX_BYTES {
        return None;
    }
    read_at_most(File::open(path).ok()?, MAX_INDEX_BYTES).ok()?
}

/// Returns the paths of the submodules, relative to the top of the working tree. `None` and `hash_bytes` are as for
/// [`indexed_files`].
pub fn indexed_submodules(index: &[u8], hash_bytes: usize) -> Option<Vec<PathBuf>> {
    paths(index, hash_bytes, |entry| entry.mode & TYPE_MASK == SUBMODULE)
}

/// Returns the paths of the wanted files, or only the ones that git assumes to be unchanged. Returns `None` if the
/// bytes are no index, or one whose entries are elsewhere. `hash_bytes` is the length of an object's name: 20 for SHA-1,
/// 32 for SHA-256.
pub fn indexed_files(
    index: &[u8],
    hash_bytes: usize,
    only_unchanged: bool,
    is_wanted: impl Fn(&Path) -> bool,
) -> Option<Vec<PathBuf>> {
    paths(index, hash_bytes, |entry| {
        entry.mode & TYPE_MASK != SUBMODULE
            && (entry.is_assumed_unchanged() || !only_unchanged)
            && is_wanted(&entry.path())
    })
}

/// Returns the paths of the entries that are wanted.
fn paths(
    index: &[u8],
    hash_bytes: usize,
    is_wanted: impl Fn(&StoredEntry<'_>) -> bool,
) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    read_entries(index, hash_bytes, &mut |entry| {
        if is_wanted(entry) {
            found.push(entry.path().into_owned());
        }
        Some(())
    })?;
    Some(found)
}

/// Parses the files and links of an index that are committed or added. Entries in a conflict,
/// intent-to-add entries and entries that are not checked out are left out.
pub(crate) fn parse(bytes: &[u8]) -> Option<Index> {
    let mut index = Index::default();
    read_entries(bytes, size_of::<ObjectId>(), &mut |stored| {
        if stored.counts() {
            let start = u32::try_from(index.names.len()).ok()?;
            index.names.extend_from_slice(stored.name);
            index.entries.push(IndexEntry {
                name: (start, u32::try_from(stored.name.len()).ok()?),
                hash: *stored.hash.first_chunk()?,
                mtime: stored.mtime,
                ctime: stored.ctime,
                ino: stored.ino,
                mode: stored.mode,
                size: stored.size,
            });
        }
        Some(())
    })?;
    index.sort();
    Some(index)
}

/// Calls `visit` with each entry of an index until it returns `None`. Returns `None` then, and if the bytes are no
/// index or one whose entries are elsewhere.
fn read_entries(
    bytes: &[u8],
    hash_bytes: usize,
    visit: &mut dyn FnMut(&StoredEntry<'_>) -> Option<()>,
) -> Option<()> {
    // The checksum at the end is not verified, which takes as long as parsing: git replaces the whole file when it
    // writes one, and a content is used only if it has the hash that is in its entry.
    let mut rest = ByteReader(bytes.get(..bytes.len().checked_sub(hash_bytes)?)?);
    let magic = rest.take(4)?;
    let version = rest.read_u32()?;
    if magic != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let count = rest.read_u32()?;
    let mut name = Vec::new();
    let mut total = 0;
    for _ in 0..count {
        let stored = read_entry(&mut rest, version, hash_bytes, &mut name)?;
        total += stored.name.len();
        if stored.name.len() > MAX_PATH_BYTES || total > MAX_PATH_BYTES_TOTAL {
            return None;
        }
        visit(&stored)?;
    }
    // A required extension such as `link` means that the entries are in another file.
    while !rest.0.is_empty() {
        let kind = rest.take(4)?;
        if kind != b"sdir" && !kind.first()?.is_ascii_uppercase() {
            return None;
        }
        let length = rest.read_u32()?;
        rest.take(usize::try_from(length).ok()?)?;
    }
    Some(())
}

/// Reads the next entry. `name` is the name of the entry before, from which version 4 builds the next.
fn read_entry<'a, 'bytes: 'a>(
    rest: &mut ByteReader<'bytes>,
    version: u32,
    hash_bytes: usize,
    name: &'a mut Vec<u8>,
) -> Option<StoredEntry<'a>> {
    let before = rest.0.len();
    let ctime = (rest.read_u32()?, rest.read_u32()?);
    let mtime = (rest.read_u32()?, rest.read_u32()?);
    let [_device, ino, mode, _user, _group, size] = rest.read_u32s()?;
    let hash = rest.take(hash_bytes)?;
    let flags = rest.read_u16()?;
    let further_flags = if flags & EXTENDED == 0 { 0 } else { rest.read_u16()? };
    let kept = if version == 4 { name.len().checked_sub(rest.read_varint()?)? } else { 0 };
    name.truncate(kept);
    name.extend_from_slice(rest.take_until_nul()?);
    // git goes by the length in the flags, up to the longest that fits there.
    (usize::from(flags & 0x0fff) == name.len().min(0x0fff)).then_some(())?;
    if version < 4 {
        // One NUL was consumed; NULs pad the entry to a multiple of eight bytes.
        let length = before - rest.0.len();
        rest.take(length.next_multiple_of(8) - length)?;
    }
    Some(StoredEntry { name, ctime, mtime, ino, mode, size, hash, flags, further_flags })
}

/// A reader of the remaining bytes.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        self.0.split_off(..count)
    }

    fn read_u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    fn read_u32s<const COUNT: usize>(&mut self) -> Option<[u32; COUNT]> {
        let mut all = [0; COUNT];
        for value in &mut all {
            *value = self.read_u32()?;
        }
        Some(all)
    }

    fn read_u16(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// Takes the bytes up to the next NUL, and the NUL.
    fn take_until_nul(&mut self) -> Option<&'a [u8]> {
        let length = memchr::memchr(0, self.0)?;
        let taken = self.take(length)?;
        self.take(1)?;
        Some(taken)
    }

    fn read_varint(&mut self) -> Option<usize> {
        let (value, length) = super::pack::read_offset_varint(self.0)?;
        self.take(length)?;
        usize::try_from(value).ok()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests compare with git")]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;
    use turnwright_types::effect::is_secret_path;

    use super::*;

    fn git(folder: &Path, arguments: &[&str]) -> bool {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b.example"]).args(arguments);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").current_dir(folder);
        command.output().is_ok_and(|output| output.status.success())
    }

    #[test]
    fn the_submodules_and_secrets_of_every_version_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        if !git(top, &["init", "-q"]) {
            eprintln!("NOT TESTED: git is not installed");
            return;
        }
        let commit = "160000,1234567890123456789012345678901234567890,";
        for name in
            ["a", "app/.env", ".env.example", "deep/er/file", "deep/er/filed", "key.pem", "z"]
        {
            fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
            fs::write(top.join(name), name).unwrap();
        }
        assert!(git(top, &["add", "."]));
        for name in ["deep/er/sub", "zz"] {
            assert!(git(
                top,
                &["update-index", "--add", "--cacheinfo", &format!("{commit}{name}")]
            ));
        }
        // An entry with extended flags.
        assert!(git(top, &["update-index", "--skip-worktree", "a"]));
        let index = || read_index_file(&top.join(".git/index")).unwrap();
        let secrets = |only_unchanged| indexed_files(&index(), 20, only_unchanged, is_secret_path);
        for version in ["2", "3", "4"] {
            assert!(git(top, &["update-index", "--index-version", version]));
            let submodules = indexed_submodules(&index(), 20);
            assert_eq!(submodules, Some(vec!["deep/er/sub".into(), "zz".into()]), "{version}");
            let both = Some(vec!["app/.env".into(), "key.pem".into()]);
            assert_eq!(secrets(false), both, "{version}");
        }
        assert_eq!(secrets(true), Some(Vec::new()));
        assert!(git(top, &["update-index", "--assume-unchanged", "key.pem", "z"]));
        assert_eq!(secrets(true), Some(vec!["key.pem".into()]));
        assert!(git(top, &["update-index", "--skip-worktree", "app/.env"]));
        assert_eq!(secrets(true), Some(vec!["app/.env".into(), "key.pem".into()]));
        assert!(git(top, &["update-index", "--split-index"]));
        assert_eq!(indexed_submodules(&index(), 20), None);
    }

    #[test]
    fn only_regular_files_of_a_bounded_length_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("index"), "DIRC").unwrap();
        for (name, length) in [("longest", MAX_INDEX_BYTES), ("longer", MAX_INDEX_BYTES + 1)] {
            File::create(path(name)).unwrap().set_len(length).unwrap();
        }
        #[cfg(unix)]
        for (name, target) in [("link", "index"), ("device", "/dev/zero")] {
            std::os::unix::fs::symlink(target, path(name)).unwrap();
        }
        for (name, expected) in [
            ("index", Some(4)),
            ("longest", usize::try_from(MAX_INDEX_BYTES).ok()),
            ("longer", None),
            ("link", cfg!(unix).then_some(4)),
            ("device", None),
            ("missing", None),
            (".", None),
        ] {
            assert_eq!(read_index_file(&path(name)).map(|bytes| bytes.len()), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            version in 0_u8..6,
        ) {
            if let Some(header) = bytes.first_chunk_mut::<12>() {
                *header = [b'D', b'I', b'R', b'C', 0, 0, 0, version, 0, 0, 0, 9];
            }
            indexed_submodules(&bytes, 20);
        }
    }
}
