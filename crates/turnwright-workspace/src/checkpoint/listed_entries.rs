//! The entries of a folder. Their names are in one buffer, so that a folder of a thousand files takes two
//! pieces of memory instead of a thousand and one.

use std::ffi::OsStr;

use super::git::FileStat;

/// Entries with their stat data, sorted by name unless some were [`push`](ListedEntries::push)ed.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedEntries {
    names: NameBuffer,
    entries: Vec<(NamePlace, FileStat)>,
}

impl ListedEntries {
    pub(super) fn clear(&mut self) {
        self.names.0.clear();
        self.entries.clear();
    }

    /// Adds an entry at the end.
    pub(super) fn push(&mut self, name: &OsStr, stat: FileStat) {
        self.entries.push((self.names.add(name), stat));
    }

    pub(super) fn sort(&mut self) {
        let names = &self.names;
        self.entries.sort_unstable_by(|a, b| names.at(a.0).cmp(names.at(b.0)));
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry at a place in the order.
    pub(super) fn at(&self, index: usize) -> Option<(&OsStr, &FileStat)> {
        self.entries.get(index).map(|it| (self.names.at(it.0), &it.1))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&OsStr, &FileStat)> {
        self.entries.iter().map(|it| (self.names.at(it.0), &it.1))
    }

    pub(super) fn get(&self, name: &OsStr) -> Option<FileStat> {
        self.find(name).ok().and_then(|it| self.entries.get(it)).map(|it| it.1)
    }

    /// Sets or removes an entry.
    pub(super) fn set(&mut self, name: &OsStr, stat: Option<FileStat>) {
        match (self.find(name), stat) {
            (Ok(index), Some(stat)) => self.entries[index].1 = stat,
            (Ok(index), None) => drop(self.entries.remove(index)),
            (Err(index), Some(stat)) => self.entries.insert(index, (self.names.add(name), stat)),
            (Err(_), None) => {}
        }
    }

    fn find(&self, name: &OsStr) -> Result<usize, usize> {
        self.entries.binary_search_by(|it| self.names.at(it.0).cmp(name))
    }
}

impl PartialEq for ListedEntries {
    fn eq(&self, other: &ListedEntries) -> bool {
        self.iter().eq(other.iter())
    }
}

/// Names, one after the other.
#[cfg(unix)]
#[derive(Clone, Debug, Default)]
struct NameBuffer(Vec<u8>);

/// Where a name begins, and its length.
#[cfg(unix)]
type NamePlace = (u32, u32);

#[cfg(unix)]
impl NameBuffer {
    fn add(&mut self, name: &OsStr) -> NamePlace {
        use std::os::unix::ffi::OsStrExt;
        let number = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        let place = (number(self.0.len()), number(name.len()));
        self.0.extend_from_slice(name.as_bytes());
        place
    }

    fn at(&self, (start, length): NamePlace) -> &OsStr {
        use std::os::unix::ffi::OsStrExt;
        let (start, length) = (start as usize, length as usize);
        OsStr::from_bytes(self.0.get(start..start + length).unwrap_or_default())
    }
}

/// Elsewhere a part of a name cannot be taken as one.
#[cfg(not(unix))]
#[derive(Clone, Debug, Default)]
struct NameBuffer(Vec<Box<OsStr>>);

#[cfg(not(unix))]
type NamePlace = usize;

#[cfg(not(unix))]
impl NameBuffer {
    fn add(&mut self, name: &OsStr) -> NamePlace {
        self.0.push(name.into());
        self.0.len() - 1
    }

    fn at(&self, place: NamePlace) -> &OsStr {
        self.0.get(place).map_or(OsStr::new(""), |it| it)
    }
}
