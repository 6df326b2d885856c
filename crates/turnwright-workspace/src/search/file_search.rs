//! Searches one file in the encoding in which it is read elsewhere. A file of ordinary size is searched as a
//! whole text, a larger one as a stream.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use grep_searcher::{Searcher, Sink};

use super::SearchDeadline;
use super::pattern::{MAX_HEAP_BYTES, SearchPattern};
use crate::files::{Charset, PROBE_BYTES, WHOLE_READ_LIMIT};
use crate::nofollow;

/// Searches files with one pattern. Each thread has its own.
pub(super) struct FileSearcher<'a> {
    pattern: SearchPattern,
    /// How many lines around a match are wanted; `None` if lines are only counted.
    context: Option<usize>,
    searcher: Searcher,
    stop: &'a SearchDeadline,
    /// The file that is being searched, or its beginning.
    bytes: Vec<u8>,
}

impl<'a> FileSearcher<'a> {
    pub(super) fn new(
        pattern: &SearchPattern,
        context: Option<usize>,
        stop: &'a SearchDeadline,
    ) -> FileSearcher<'a> {
        // The clone has caches of its own.
        let pattern = pattern.clone();
        let bytes = Vec::new();
        FileSearcher { searcher: pattern.searcher(context, None), pattern, context, stop, bytes }
    }

    /// Searches a file, and returns how it was read.
    pub(super) fn search<S>(&mut self, path: &Path, sink: &mut S) -> io::Result<Charset>
    where
        S: Sink<Error = io::Error>,
    {
        let FileSearcher { pattern, context, searcher, stop, bytes } = self;
        let mut reader = DeadlineReader { file: nofollow::open_file(path)?, stop };
        bytes.clear();
        reader.by_ref().take(PROBE_BYTES as u64).read_to_end(bytes)?;
        if Charset::of(bytes, true) == Charset::Binary {
            return Ok(Charset::Binary);
        }
        let limit = if pattern.multi_line { MAX_HEAP_BYTES as u64 } else { WHOLE_READ_LIMIT };
        reader.by_ref().take(limit).read_to_end(bytes)?;
        let is_cut = bytes.len() as u64 > limit;
        if is_cut && pattern.multi_line {
            return Err(io::Error::other("it is too large to be searched for several lines"));
        }
        let charset = Charset::of(bytes, is_cut);
        let encoding = if let Charset::Other(found) = charset { Some(found) } else { None };
        if is_cut {
            let mut searcher = pattern.searcher(*context, encoding);
            searcher.search_reader(&pattern.matcher, bytes.chain(reader), sink)?;
            return Ok(charset);
        }
        if let Some(encoding) = encoding {
            *bytes = encoding.decode(bytes).0.into_owned().into_bytes();
        } else if bytes.starts_with("\u{feff}".as_bytes()) {
            bytes.drain(..3);
        }
        // A log with a NUL byte somewhere is searched up to it.
        bytes.truncate(memchr::memchr(0, bytes).unwrap_or(bytes.len()));
        if pattern.multi_line && !pattern.names_carriage_return {
            remove_carriage_returns(bytes);
        }
        searcher.search_slice(&pattern.matcher, bytes, sink)?;
        Ok(charset)
    }
}

/// Removes each carriage return before a line feed.
fn remove_carriage_returns(bytes: &mut Vec<u8>) {
    let mut kept = 0;
    for at in 0..bytes.len() {
        if bytes[at] != b'\r' || bytes.get(at + 1) != Some(&b'\n') {
            bytes[kept] = bytes[at];
            kept += 1;
        }
    }
    bytes.truncate(kept);
}

/// A reader that reports the end of the file when the search has expired.
struct DeadlineReader<'a> {
    file: File,
    stop: &'a SearchDeadline,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_expired() { Ok(0) } else { self.file.read(buffer) }
    }
}
