//! Entries of a folder. Their names are in one buffer, so that a folder of a thousand files takes two
//! pieces of memory instead of a thousand and one.

use std::ffi::OsStr;

use super::super::git::FileStat;

/// Entries with their stat data or another value, sorted by name unless some were
/// [`push`](ListedEntries::push)ed.
#[derive(Clone, Debug)]
pub(in crate::checkpoint) struct ListedEntries<T = FileStat> {
    names: NameBuffer,
    entries: Vec<(NamePlace, T)>,
}

impl<T> Default for ListedEntries<T> {
    fn default() -> ListedEntries<T> {
        ListedEntries { names: NameBuffer::default(), entries: Vec::new() }
    }
}

impl<T: Copy> ListedEntries<T> {
    /// Room for as many entries as others are, with their names.
    #[cfg(unix)]
    pub(super) fn with_room_for<U>(others: &ListedEntries<U>) -> ListedEntries<T> {
        let names = NameBuffer(Vec::with_capacity(others.names.0.len()));
        ListedEntries { names, entries: Vec::with_capacity(others.entries.len()) }
    }

    #[cfg(unix)]
    pub(super) fn shrink_to_fit(&mut self) {
        self.names.0.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    #[cfg(unix)]
    pub(in crate::checkpoint) fn clear(&mut self) {
        self.names.0.clear();
        self.entries.clear();
    }

    /// Adds an entry at the end.
    pub(in crate::checkpoint) fn push(&mut self, name: &OsStr, value: T) {
        self.entries.push((self.names.add(name), value));
    }

    pub(in crate::checkpoint) fn sort(&mut self) {
        let names = &self.names;
        self.entries.sort_unstable_by(|a, b| names.at(a.0).cmp(names.at(b.0)));
    }

    pub(in crate::checkpoint) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry at a place in the order.
    pub(in crate::checkpoint) fn at(&self, index: usize) -> Option<(&OsStr, &T)> {
        self.entries.get(index).map(|entry| (self.names.at(entry.0), &entry.1))
    }

    pub(in crate::checkpoint) fn iter(&self) -> impl Iterator<Item = (&OsStr, &T)> {
        self.entries.iter().map(|entry| (self.names.at(entry.0), &entry.1))
    }

    pub(in crate::checkpoint) fn get(&self, name: &OsStr) -> Option<T> {
        self.find(name).ok().and_then(|index| self.entries.get(index)).map(|entry| entry.1)
    }

    /// Sets or removes an entry.
    pub(in crate::checkpoint) fn set(&mut self, name: &OsStr, value: Option<T>) {
        match (self.find(name), value) {
            (Ok(index), Some(value)) => self.entries[index].1 = value,
            (Ok(index), None) => drop(self.entries.remove(index)),
            (Err(index), Some(value)) => self.entries.insert(index, (self.names.add(name), value)),
            (Err(_), None) => {}
        }
    }

    fn find(&self, name: &OsStr) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| self.names.at(entry.0).cmp(name))
    }
}

impl<T: Copy + PartialEq> PartialEq for ListedEntries<T> {
    fn eq(&self, other: &ListedEntries<T>) -> bool {
        self.iter().eq(other.iter())
    }
}

/// Names, one after the other.
#[derive(Clone, Debug, Default)]
struct NameBuffer(JoinedNames);

#[cfg(unix)]
type JoinedNames = Vec<u8>;

/// Where a name begins, and its length.
#[cfg(unix)]
type NamePlace = (u32, u32);

#[cfg(unix)]
impl NameBuffer {
    fn add(&mut self, name: &OsStr) -> NamePlace {
        use std::os::unix::ffi::OsStrExt;
        let start = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.0.extend_from_slice(name.as_bytes());
        (start, length)
    }

    fn at(&self, (start, length): NamePlace) -> &OsStr {
        use std::os::unix::ffi::OsStrExt;
        let start = start as usize;
        let length = length as usize;
        OsStr::from_bytes(self.0.get(start..start + length).unwrap_or_default())
    }
}

/// Elsewhere a part of a name cannot be taken as one.
#[cfg(not(unix))]
type JoinedNames = Vec<Box<OsStr>>;

#[cfg(not(unix))]
type NamePlace = usize;

#[cfg(not(unix))]
impl NameBuffer {
    fn add(&mut self, name: &OsStr) -> NamePlace {
        self.0.push(name.into());
        self.0.len() - 1
    }

    fn at(&self, place: NamePlace) -> &OsStr {
        self.0.get(place).map_or(OsStr::new(""), |name| name)
    }
}
