//! Inflates compressed objects, with a size limit. Pure.

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::MAX_OBJECT_BYTES;

/// The most bytes of a loose object: incompressible data grows a little.
pub(super) const MAX_LOOSE_BYTES: u64 = (MAX_OBJECT_BYTES + MAX_OBJECT_BYTES / 64 + 1024) as u64;
/// The most bytes of the header of a loose object.
const MAX_HEADER_BYTES: usize = 32;

/// Parses a loose object that is a blob.
pub(crate) fn parse_loose_blob(compressed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = inflate(compressed, MAX_OBJECT_BYTES + MAX_HEADER_BYTES)?;
    let end = memchr::memchr(0, bytes.get(..bytes.len().min(MAX_HEADER_BYTES))?)?;
    let size = std::str::from_utf8(bytes.get(..end)?).ok()?.strip_prefix("blob ")?.parse();
    let content = bytes.split_off(end + 1);
    (size == Ok(content.len()) && content.len() <= MAX_OBJECT_BYTES).then_some(content)
}

/// Inflates data of at most `most` bytes.
pub(super) fn inflate(compressed: impl Read, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    ZlibDecoder::new(compressed).take(limit as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= limit).then_some(bytes)
}
