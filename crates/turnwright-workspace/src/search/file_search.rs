//! Searches one file in the encoding in which it is read elsewhere: UTF-8 while nothing speaks against it,
//! else the one that its bytes show. A multi-line pattern is matched against the whole text.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use encoding_rs::Encoding;
use grep_searcher::{Searcher, Sink};

use super::SearchDeadline;
use super::pattern::{MAX_HEAP_BYTES, SearchPattern};
use crate::files::{BytesKind, MAX_GUESS_BYTES, PROBE_BYTES, bytes_kind, utf16_from_bom};
use crate::nofollow;

/// How many bytes before the first that is not ASCII are used to guess an encoding.
const GUESS_LEAD_BYTES: u64 = 1024;

/// How a file was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Legibility {
    Text,
    /// As UTF-8 with some wrong bytes.
    PartlyGarbled,
    /// Not at all.
    Binary,
}

/// Searches files with one pattern. Each thread has its own.
pub(super) struct FileSearcher<'a> {
    pattern: SearchPattern,
    /// How many lines around a match are wanted; `None` if lines are only counted.
    context: Option<usize>,
    searcher: Searcher,
    stop: &'a SearchDeadline,
}

impl<'a> FileSearcher<'a> {
    pub(super) fn new(
        pattern: &SearchPattern,
        context: Option<usize>,
        stop: &'a SearchDeadline,
    ) -> FileSearcher<'a> {
        // The clone has caches of its own.
        let pattern = pattern.clone();
        FileSearcher { searcher: pattern.searcher(context, None), pattern, context, stop }
    }

    /// Searches a file. The sink may get matches of a first attempt; they are gone when this returns.
    pub(super) fn search<S>(&mut self, path: &Path, sink: &mut S) -> io::Result<Legibility>
    where
        S: Sink<Error = io::Error> + Clone,
    {
        let file = nofollow::open_file(path)?;
        if self.pattern.multi_line {
            return self.search_whole(file, sink);
        }
        let fresh = sink.clone();
        let mut reader = ProbedReader::new(file, self.stop);
        self.searcher.search_reader(&self.pattern.matcher, &mut reader, &mut *sink)?;
        let Some(first) = reader.first_non_ascii.filter(|_| reader.is_foreign) else {
            return Ok(Legibility::Text);
        };
        let mut file = reader.file;
        let head = read_at(&mut file, 0, PROBE_BYTES)?;
        if utf16_from_bom(&head).is_some() {
            // The searcher has decoded it.
            return Ok(Legibility::Text);
        }
        let part = read_at(&mut file, first.saturating_sub(GUESS_LEAD_BYTES), MAX_GUESS_BYTES)?;
        match bytes_kind(&head, &part) {
            BytesKind::Binary => *sink = fresh,
            BytesKind::BrokenUtf8 => return Ok(Legibility::PartlyGarbled),
            BytesKind::Legacy(encoding) => {
                *sink = fresh;
                file.seek(SeekFrom::Start(0))?;
                let reader = DeadlineReader { file: &file, stop: self.stop };
                self.pattern.searcher(self.context, Some(encoding)).search_reader(
                    &self.pattern.matcher,
                    reader,
                    sink,
                )?;
                return Ok(Legibility::Text);
            }
        }
        Ok(Legibility::Binary)
    }

    fn search_whole<S>(&mut self, file: File, sink: &mut S) -> io::Result<Legibility>
    where
        S: Sink<Error = io::Error>,
    {
        let mut bytes = Vec::new();
        let reader = DeadlineReader { file: &file, stop: self.stop };
        reader.take(MAX_HEAP_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > MAX_HEAP_BYTES {
            return Err(io::Error::other("it is too large to be searched for a match of lines"));
        }
        let mut legibility = Legibility::Text;
        if let Some(encoding) = utf16_from_bom(&bytes) {
            bytes = decoded(encoding, bytes);
        } else if std::str::from_utf8(&bytes).is_err() {
            match bytes_kind(&bytes, &bytes) {
                BytesKind::Binary => return Ok(Legibility::Binary),
                BytesKind::BrokenUtf8 => legibility = Legibility::PartlyGarbled,
                BytesKind::Legacy(encoding) => bytes = decoded(encoding, bytes),
            }
        }
        if !self.pattern.names_carriage_return {
            remove_carriage_returns(&mut bytes);
        }
        self.searcher.search_slice(&self.pattern.matcher, &bytes, sink)?;
        Ok(legibility)
    }
}

fn decoded(encoding: &'static Encoding, bytes: Vec<u8>) -> Vec<u8> {
    encoding.decode(&bytes).0.into_owned().into_bytes()
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

/// Reads at most `limit` bytes from a place of a file.
fn read_at(file: &mut File, place: u64, limit: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(place))?;
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A reader that reports the end of the file when the search has expired.
struct DeadlineReader<'a> {
    file: &'a File,
    stop: &'a SearchDeadline,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_expired() { Ok(0) } else { self.file.read(buffer) }
    }
}

/// A reader that notes if the bytes that pass are not UTF-8.
struct ProbedReader<'a> {
    file: File,
    stop: &'a SearchDeadline,
    /// How many bytes have passed.
    passed: u64,
    first_non_ascii: Option<u64>,
    /// A character that the next bytes should complete.
    incomplete: Vec<u8>,
    /// True once there were bytes that are not UTF-8.
    is_foreign: bool,
}

impl<'a> ProbedReader<'a> {
    fn new(file: File, stop: &'a SearchDeadline) -> ProbedReader<'a> {
        ProbedReader {
            file,
            stop,
            passed: 0,
            first_non_ascii: None,
            incomplete: Vec::new(),
            is_foreign: false,
        }
    }

    fn look_at(&mut self, bytes: &[u8]) {
        if self.is_foreign || self.incomplete.is_empty() && bytes.is_ascii() {
            return;
        }
        if self.first_non_ascii.is_none() {
            let place = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(0);
            self.first_non_ascii = Some(self.passed + place as u64);
        }
        self.incomplete.extend_from_slice(bytes);
        match std::str::from_utf8(&self.incomplete) {
            Ok(_) => self.incomplete.clear(),
            Err(error) if error.error_len().is_none() => {
                drop(self.incomplete.drain(..error.valid_up_to()));
            }
            Err(_) => self.is_foreign = true,
        }
    }
}

impl Read for ProbedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = DeadlineReader { file: &self.file, stop: self.stop }.read(buffer)?;
        self.look_at(&buffer[..count]);
        // A file whose last character is cut off is none of UTF-8.
        self.is_foreign |= count == 0 && !self.incomplete.is_empty();
        self.passed += count as u64;
        Ok(count)
    }
}
