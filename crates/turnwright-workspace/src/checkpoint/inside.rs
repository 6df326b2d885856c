//! What the fuzzers call of the things that are private otherwise. Nothing of the program uses it.

use std::path::Path;

use super::git::{Repository, Stat, index, pack, zlib};

/// The names in an index, as git writes one.
pub fn names(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    Some(index::parse(bytes)?.into_iter().map(|it| it.name.into()).collect())
}

/// What a loose object holds.
pub fn loose(bytes: &[u8]) -> Option<Vec<u8>> {
    zlib::loose(bytes)
}

/// Where the index of a pack says that an object lies.
pub fn offset(index: &[u8], hash: &[u8; 20]) -> Option<u64> {
    pack::offset(&index, hash)
}

/// What lies at a place of a pack, as far as it is there.
pub fn piece(pack: &[u8], offset: u64) -> Option<Vec<u8>> {
    pack::piece(&pack, offset).map(|it| it.1)
}

/// A file after a delta.
pub fn delta(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    pack::apply(base, delta)
}

/// What git has of a file that is as it was checked out.
#[cfg(unix)]
pub fn content(root: &Path, path: &Path) -> Option<Vec<u8>> {
    let repository = Repository::open(root)?;
    let stat = Stat::of(&std::fs::symlink_metadata(path).ok()?);
    repository.read(&repository.clean(path, &stat)?)
}
