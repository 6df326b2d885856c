//! Private functions of this module for the fuzz targets. The program does not use them.

use std::path::Path;

use super::content_cache;
use super::git::{Repository, index, pack, zlib};

/// The paths in a git index.
pub fn index_paths(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let index = index::parse(bytes)?;
    Some(index.entries().iter().map(|entry| index.name(entry).to_vec()).collect())
}

pub fn loose_blob(bytes: &[u8]) -> Option<Vec<u8>> {
    zlib::parse_loose_blob(bytes)
}

/// The offset of an object according to a pack index.
pub fn pack_offset(index: &[u8], hash: &[u8; 20]) -> Option<u64> {
    pack::find_offset(&index, hash)
}

/// The data of a pack entry.
pub fn pack_entry(pack: &[u8], offset: u64) -> Option<Vec<u8>> {
    pack::read_entry(&pack, offset).map(|entry| entry.1)
}

pub fn apply_delta(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    pack::apply_delta(base, delta)
}

/// The committed content of an unmodified file.
pub fn clean_content(root: &Path, path: &Path) -> Option<Vec<u8>> {
    let repository = Repository::open(root)?;
    let stat = content_cache::lstat(path)?;
    repository.read(&repository.clean_blob(path, &stat)?)
}
