//! Reads a source that may be longer than it should be.

use std::io::{self, Read};

/// Reads a source to its end; `None` if it has more than `most` bytes.
pub fn read_at_most(source: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    source.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}
