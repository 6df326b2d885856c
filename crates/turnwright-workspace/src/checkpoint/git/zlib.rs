//! Packed bytes → bytes, with a bound. Pure.

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::MOST;

/// Bytes of a loose object: what cannot be packed grows a little.
pub(super) const MOST_PACKED: u64 = (MOST + MOST / 64 + 1024) as u64;
/// Bytes before the content of a loose object.
const MOST_HEAD: usize = 32;

/// The content of a loose object that is one of a file.
pub(crate) fn loose(packed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = unpack(packed, MOST + MOST_HEAD)?;
    let end = memchr::memchr(0, bytes.get(..bytes.len().min(MOST_HEAD))?)?;
    let size = std::str::from_utf8(bytes.get(..end)?).ok()?.strip_prefix("blob ")?.parse();
    let content = bytes.split_off(end + 1);
    (size == Ok(content.len()) && content.len() <= MOST).then_some(content)
}

/// What was packed, if it is at most so long.
pub(super) fn unpack(packed: impl Read, most: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    ZlibDecoder::new(packed).take(most as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= most).then_some(bytes)
}
