//! Parses the entries of a git index of version 2 to 4. Pure.

use super::{FileStat, ObjectId};

/// The most bytes of a path, and of all paths.
const MAX_PATH_BYTES: usize = 4096;
const MAX_PATH_BYTES_TOTAL: usize = 128 * 1024 * 1024;
/// The bits of a mode that are the file type.
const TYPE_MASK: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// The entries of an index that count.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The names of all entries, one after the other.
    names: Vec<u8>,
    /// Sorted by name.
    entries: Vec<IndexEntry>,
}

impl Index {
    pub(crate) fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    pub(crate) fn name(&self, entry: &IndexEntry) -> &[u8] {
        let (start, length) = (entry.name.0 as usize, entry.name.1 as usize);
        self.names.get(start..start + length).unwrap_or_default()
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
    /// Whether the stat data of a file match the entry. Numbers are truncated to 32 bits as git
    /// does it. Permission bits may differ: changing them changes `ctime`.
    pub(super) fn matches(&self, stat: &FileStat) -> bool {
        let cut = |it: u64| u32::try_from(it & u64::from(u32::MAX)).unwrap_or_default();
        let moment = |it: (u64, u32)| (cut(it.0), it.1);
        self.mtime == moment(stat.mtime)
            && self.ctime == moment(stat.ctime)
            // Git for Windows stores none.
            && (cfg!(windows) || self.ino == cut(stat.ino))
            && u64::from(self.size) == stat.size
            && self.mode & TYPE_MASK == stat.mode & TYPE_MASK
    }
}

/// Parses the files and links of an index that are committed or added. Entries in a conflict,
/// intent-to-add entries and entries that are not checked out are left out.
pub(crate) fn parse(bytes: &[u8]) -> Option<Index> {
    // The checksum at the end is not verified, which takes as long as parsing: git replaces the whole file when it
    // writes one, and a content is used only if it has the hash that is in its entry.
    let (body, _) = bytes.split_last_chunk::<20>()?;
    let mut rest = ByteReader(body);
    let magic = rest.take(4)?;
    let version = rest.read_u32()?;
    if magic != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let count = rest.read_u32()?;
    let (mut index, mut name, mut total) = (Index::default(), Vec::new(), 0);
    for _ in 0..count {
        let (mut entry, counts) = parse_entry(&mut rest, version, &mut name)?;
        total += name.len();
        if name.len() > MAX_PATH_BYTES || total > MAX_PATH_BYTES_TOTAL {
            return None;
        }
        if counts {
            entry.name = (u32::try_from(index.names.len()).ok()?, u32::try_from(name.len()).ok()?);
            index.names.extend_from_slice(&name);
            index.entries.push(entry);
        }
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
    index.sort();
    Some(index)
}

/// Parses the next entry, without the place of its name, and returns whether it counts. `name` is the name
/// of the entry before, from which version 4 builds the next.
fn parse_entry(
    rest: &mut ByteReader<'_>,
    version: u32,
    name: &mut Vec<u8>,
) -> Option<(IndexEntry, bool)> {
    let before = rest.0.len();
    let ctime = (rest.read_u32()?, rest.read_u32()?);
    let mtime = (rest.read_u32()?, rest.read_u32()?);
    let [_device, ino, mode, _user, _group, size] = rest.read_u32s()?;
    let hash = *rest.take(20)?.first_chunk()?;
    let flags = rest.read_u16()?;
    let is_extended = flags & 0x4000 != 0;
    let extended_flags = if is_extended && version > 2 { rest.read_u16()? } else { 0 };
    if version == 4 {
        let kept = name.len().checked_sub(rest.read_varint()?)?;
        name.truncate(kept);
        name.extend_from_slice(rest.take_until_nul()?);
    } else {
        name.clear();
        name.extend_from_slice(rest.take_until_nul()?);
        // One NUL was consumed; NULs pad the entry to a multiple of eight bytes.
        let length = before - rest.0.len();
        rest.take(length.next_multiple_of(8) - length)?;
    }
    let stage = flags & 0x3000;
    // Neither skip-worktree nor intent-to-add.
    let is_there = extended_flags & 0x6000 == 0;
    let counts =
        stage == 0 && is_there && matches!(mode & TYPE_MASK, FILE | LINK) && !name.is_empty();
    Some((IndexEntry { name: (0, 0), hash, mtime, ctime, ino, mode, size }, counts))
}

/// A reader of the remaining bytes.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn read_u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|it| u32::from_be_bytes(*it))
    }

    fn read_u32s<const COUNT: usize>(&mut self) -> Option<[u32; COUNT]> {
        let mut all = [0; COUNT];
        for it in &mut all {
            *it = self.read_u32()?;
        }
        Some(all)
    }

    fn read_u16(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|it| u16::from_be_bytes(*it))
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
