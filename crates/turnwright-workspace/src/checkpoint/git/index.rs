//! Bytes → the entries of an index, in versions 2 to 4. Pure.

use ring::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};

use super::{Hash, Stat};

/// Bytes of a path; and of all of them.
const MOST_NAME: usize = 4096;
const MOST_NAMES: usize = 128 * 1024 * 1024;
/// The bits of a mode that say what sort of file it is.
const SORT: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// What is known of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Box<[u8]>,
    pub(super) hash: Hash,
    pub(super) mtime: (u32, u32),
    ctime: (u32, u32),
    ino: u32,
    mode: u32,
    size: u32,
}

impl Entry {
    /// Whether the file was this one when the entry was made. Numbers are cut to 32 bits as git
    /// does it. The bits of permission may differ: to change them is to change `ctime`.
    pub(super) fn is_of(&self, stat: &Stat) -> bool {
        let cut = |it: u64| u32::try_from(it & u64::from(u32::MAX)).unwrap_or_default();
        let moment = |it: (u64, u32)| (cut(it.0), it.1);
        self.mtime == moment(stat.mtime)
            && self.ctime == moment(stat.ctime)
            && self.ino == cut(stat.ino)
            && u64::from(self.size) == stat.size
            && self.mode & SORT == stat.mode & SORT
    }
}

/// The files and links of an index that are as in the last commit or as they were added; those in a
/// conflict, those that are only announced and those that are not checked out are left out.
pub(crate) fn parse(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (body, sum) = bytes.split_last_chunk::<20>()?;
    // All zeros if `index.skipHash` is set.
    if *sum != [0; 20] && digest::digest(&SHA1_FOR_LEGACY_USE_ONLY, body).as_ref() != sum {
        return None;
    }
    let mut rest = Rest(body);
    let magic = rest.take(4)?;
    let version = rest.number()?;
    if magic != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let count = rest.number()?;
    let (mut entries, mut name, mut names) = (Vec::new(), Vec::new(), 0);
    for _ in 0..count {
        let (entry, counts) = entry(&mut rest, version, &mut name)?;
        entries.extend(counts.then_some(entry));
        names += name.len();
        if name.len() > MOST_NAME || names > MOST_NAMES {
            return None;
        }
    }
    // A part that has to be understood, such as `link`: the entries are in another file.
    while !rest.0.is_empty() {
        let kind = rest.take(4)?;
        if kind != b"sdir" && !kind.first()?.is_ascii_uppercase() {
            return None;
        }
        let length = rest.number()?;
        rest.take(usize::try_from(length).ok()?)?;
    }
    Some(entries)
}

/// The next entry, and whether it counts; its name is made of the one before.
fn entry(rest: &mut Rest<'_>, version: u32, name: &mut Vec<u8>) -> Option<(Entry, bool)> {
    let before = rest.0.len();
    let ctime = (rest.number()?, rest.number()?);
    let mtime = (rest.number()?, rest.number()?);
    let [_device, ino, mode, _user, _group, size] = rest.numbers()?;
    let hash = *rest.take(20)?.first_chunk()?;
    let flags = rest.short()?;
    let is_extended = flags & 0x4000 != 0;
    let further = if is_extended && version > 2 { rest.short()? } else { 0 };
    if version == 4 {
        let kept = name.len().checked_sub(rest.varint()?)?;
        name.truncate(kept);
        name.extend_from_slice(rest.until_zero()?);
    } else {
        name.clear();
        name.extend_from_slice(rest.until_zero()?);
        // One zero is taken; there are as many as make the length a multiple of eight.
        let length = before - rest.0.len();
        rest.take(length.next_multiple_of(8) - length)?;
    }
    let stage = flags & 0x3000;
    // Not checked out; only announced.
    let is_there = further & 0x6000 == 0;
    let counts = stage == 0 && is_there && matches!(mode & SORT, FILE | LINK) && !name.is_empty();
    let name = name.as_slice().into();
    Some((Entry { name, hash, mtime, ctime, ino, mode, size }, counts))
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|it| u32::from_be_bytes(*it))
    }

    fn numbers<const COUNT: usize>(&mut self) -> Option<[u32; COUNT]> {
        let mut all = [0; COUNT];
        for it in &mut all {
            *it = self.number()?;
        }
        Some(all)
    }

    fn short(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|it| u16::from_be_bytes(*it))
    }

    /// Up to the next zero, which is taken too.
    fn until_zero(&mut self) -> Option<&'a [u8]> {
        let length = memchr::memchr(0, self.0)?;
        let taken = self.take(length)?;
        self.take(1)?;
        Some(taken)
    }

    fn varint(&mut self) -> Option<usize> {
        let (value, length) = super::pack::distance(self.0)?;
        self.take(length)?;
        usize::try_from(value).ok()
    }
}
