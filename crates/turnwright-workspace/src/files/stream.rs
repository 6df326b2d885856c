//! Reads some lines of a file of any size in bounded memory and time: only the requested lines are kept, as an
//! excerpt by line numbers.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::FileError;
use super::disk::{ensure_regular, read_bytes};
use super::text::{PROBE_BYTES, decode_head, decode_lines, is_binary, utf16_from_bom};
use crate::nofollow;
use turnwright_types::text;

/// Maximum number of bytes that one step of a read looks at: counting the lines, reading them, or
/// searching from the end.
const MAX_SCANNED_BYTES: u64 = 64 * 1024 * 1024;
const CHUNK_BYTES: usize = 256 * 1024;
/// How long a line far from the beginning is searched for.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Reads the lines in the window. Blocks.
pub(super) fn read_excerpt(
    path: &Path,
    window: &LineWindow,
    cancel: &CancellationToken,
) -> Result<Excerpt, FileError> {
    let file = nofollow::open_file(path)?;
    let metadata = file.metadata()?;
    ensure_regular(&metadata)?;
    let size = metadata.len();
    let mut reader = LineReader { file, cancel, deadline: Instant::now() + TIME_LIMIT };
    let mut buffer = vec![0; CHUNK_BYTES];
    let count = reader.fill(&mut buffer[..PROBE_BYTES])?;
    if utf16_from_bom(&buffer[..count]).is_some() {
        // Lines in UTF-16 cannot be found in a stream of bytes. The end of one may be missing, as of a log.
        let text = decode_head(&read_bytes(path)?, false).ok_or(FileError::Binary(size))?;
        return Ok(Excerpt::of(&text, window));
    }
    // A PDF may begin with text.
    if is_binary(&buffer[..count]) || buffer.starts_with(b"%PDF-") {
        return Err(FileError::Binary(size));
    }
    let (total, is_exact) = reader.count_lines(&mut buffer, size)?;
    if !is_exact && let Some(start) = window.start.filter(|start| *start < 0) {
        return reader.read_tail(&mut buffer, size, start, window);
    }
    let (start, end) = window.range(total);
    // Without an exact total, only a positive end limits the range.
    let end = match window.end {
        _ if is_exact => end,
        Some(end) if end > 0 => usize::try_from(end).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    reader.file.rewind()?;
    let line_count = end.saturating_add(1).saturating_sub(start);
    let (lines, more, counted) = reader.read_lines(&mut buffer, start - 1, line_count, window)?;
    if lines.is_empty() && more {
        return Err(FileError::LineTooFar(start));
    }
    let lower_bound = total.max(start - 1 + lines.len());
    let (total, is_exact) = match counted {
        _ if is_exact => (total, true),
        Some(counted) => (counted, true),
        None => (lower_bound, false),
    };
    let first = i64::try_from(start).unwrap_or(i64::MAX);
    Ok(Excerpt { first_line: first, lines, total, is_total_exact: is_exact, has_more: more })
}

struct LineReader<'a> {
    file: File,
    cancel: &'a CancellationToken,
    deadline: Instant,
}

impl LineReader<'_> {
    /// Reads until the buffer is full or the file ends. Returns 0 at the end of the file.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        if self.cancel.is_cancelled() {
            return Err(FileError::ReadCancelled);
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    /// Counts the lines. The flag is false if the number is only a lower bound.
    fn count_lines(&mut self, buffer: &mut [u8], size: u64) -> Result<(usize, bool), FileError> {
        self.file.rewind()?;
        let mut breaks = 0;
        let mut read = 0;
        let mut last = b'\n';
        while read < MAX_SCANNED_BYTES {
            let count = self.fill(buffer)?;
            let Some(end) = buffer[..count].last() else { break };
            breaks += memchr::memchr_iter(b'\n', &buffer[..count]).count();
            read += count as u64;
            last = *end;
        }
        let is_exact = read < MAX_SCANNED_BYTES || read >= size;
        Ok((breaks + usize::from(is_exact && last != b'\n'), is_exact))
    }

    /// Skips `skip` lines from the current position and reads at most `line_count` lines. The flag is true if there may
    /// be more of the requested ones, and the number is that of all lines of the file, if its end was reached.
    fn read_lines(
        &mut self,
        buffer: &mut [u8],
        skip: usize,
        line_count: usize,
        window: &LineWindow,
    ) -> Result<(Vec<ExcerptLine>, bool, Option<usize>), FileError> {
        let max_lines = line_count.min(window.max_lines);
        let mut collected = LineCollector::new(window);
        let mut skipped = 0;
        let mut read = 0;
        let mut last = b'\n';
        while collected.lines.len() < max_lines && !collected.is_full() && read < MAX_SCANNED_BYTES
        {
            let count = self.fill(buffer)?;
            let Some(end) = buffer[..count].last() else {
                collected.finish();
                let partial_line = usize::from(skipped < skip && last != b'\n');
                let total = Some(skipped + partial_line + collected.lines.len());
                return Ok((collected.decode(), false, total));
            };
            last = *end;
            let mut rest = &buffer[..count];
            while skipped < skip {
                let Some(at) = memchr::memchr(b'\n', rest) else { break };
                rest = &rest[at + 1..];
                skipped += 1;
            }
            if skipped < skip {
                if Instant::now() > self.deadline {
                    return Ok((Vec::new(), true, None));
                }
                continue;
            }
            read += count as u64;
            while !rest.is_empty() && collected.lines.len() < max_lines && !collected.is_full() {
                let at = memchr::memchr(b'\n', rest);
                collected.push(&rest[..at.unwrap_or(rest.len())]);
                rest = at.map_or(&[], |at| &rest[at + 1..]);
                if at.is_some() {
                    collected.finish_line();
                }
            }
        }
        collected.finish();
        let more = collected.lines.len() < line_count;
        Ok((collected.decode(), more, None))
    }

    /// Reads lines counted from the end, without knowing how many lines the file has.
    fn read_tail(
        &mut self,
        buffer: &mut [u8],
        size: u64,
        start: i64,
        window: &LineWindow,
    ) -> Result<Excerpt, FileError> {
        let from_end = usize::try_from(start.unsigned_abs()).unwrap_or(usize::MAX);
        let (offset, from_end) = self.find_line_from_end(buffer, size, from_end)?;
        let end = window.end.filter(|end| *end < 0).map_or(1, i64::unsigned_abs);
        let last = usize::try_from(end).unwrap_or(usize::MAX);
        let line_count = (from_end + 1).saturating_sub(last);
        self.file.seek(SeekFrom::Start(offset))?;
        let lines = self.read_lines(buffer, 0, line_count, window)?.0;
        let first = -i64::try_from(from_end).unwrap_or(i64::MAX);
        Ok(Excerpt {
            first_line: first,
            has_more: lines.len() < line_count,
            lines,
            total: from_end,
            is_total_exact: false,
        })
    }

    /// Returns the offset of the line with this number, counted from the end, and the number: if the line is too
    /// far away, those of the farthest line that was reached.
    fn find_line_from_end(
        &mut self,
        buffer: &mut [u8],
        size: u64,
        from_end: usize,
    ) -> Result<(u64, usize), FileError> {
        let mut at = size;
        let mut found = 0;
        let mut line_start = size;
        while at > 0 && size - at < MAX_SCANNED_BYTES {
            let length = at.min(buffer.len() as u64);
            at -= length;
            self.file.seek(SeekFrom::Start(at))?;
            let count = self.fill(&mut buffer[..usize::try_from(length).unwrap_or(0)])?;
            for end in memchr::memrchr_iter(b'\n', &buffer[..count]) {
                let begin = at + end as u64 + 1;
                // No line begins after the final line ending.
                if begin >= size {
                    continue;
                }
                found += 1;
                line_start = begin;
                if found == from_end {
                    return Ok((line_start, from_end));
                }
            }
        }
        // The last line is longer than what was examined.
        Ok(if found == 0 { (at, 1) } else { (line_start, found) })
    }
}

/// Collects lines as bytes, each cut to the width of the window.
struct LineCollector<'a> {
    window: &'a LineWindow,
    lines: Vec<Vec<u8>>,
    /// How many characters were cut off each of the lines.
    cut_chars: Vec<usize>,
    line: Vec<u8>,
    /// How many characters were cut off `line`.
    current_cut: usize,
    /// The length of the lines.
    bytes: usize,
}

impl<'a> LineCollector<'a> {
    fn new(window: &'a LineWindow) -> LineCollector<'a> {
        let lines = Vec::new();
        let cut_chars = Vec::new();
        let line = Vec::new();
        LineCollector { window, lines, cut_chars, line, current_cut: 0, bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.bytes > self.window.max_bytes
    }

    fn push(&mut self, piece: &[u8]) {
        // A character has at most four bytes.
        let room = (self.window.max_width * 4).saturating_sub(self.line.len());
        let (kept, cut) = piece.split_at(piece.len().min(room));
        self.line.extend_from_slice(kept);
        // Continuation bytes are not counted as characters.
        self.current_cut += cut.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
    }

    fn finish_line(&mut self) {
        if self.current_cut == 0 && self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.bytes += self.line.len();
        self.lines.push(std::mem::take(&mut self.line));
        self.cut_chars.push(std::mem::take(&mut self.current_cut));
    }

    fn finish(&mut self) {
        if !self.line.is_empty() {
            self.finish_line();
        }
    }

    fn decode(&self) -> Vec<ExcerptLine> {
        let texts = decode_lines(&self.lines);
        let lines = texts.iter().zip(&self.cut_chars);
        lines.map(|(text, cut)| ExcerptLine::new(text, self.window.max_width, *cut)).collect()
    }
}

/// A range of lines and the limits for showing them. Lines are counted from 1; negative numbers
/// count from the end, -1 being the last line.
#[derive(Clone, Copy, Debug)]
pub struct LineWindow {
    /// The first line; the beginning of the text if `None`.
    pub start: Option<i64>,
    /// The last line, inclusive; the end of the text if `None`.
    pub end: Option<i64>,
    pub max_lines: usize,
    /// The most characters per line.
    pub max_width: usize,
    /// No further line is added after this many bytes.
    pub max_bytes: usize,
}

/// Consecutive lines of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The number of the first line. It is negative, counted from the end, if the total number of
    /// lines is not known.
    pub first_line: i64,
    pub lines: Vec<ExcerptLine>,
    /// The number of lines in the file, or a lower bound of it.
    pub total: usize,
    /// True if `total` is exact and not just a lower bound.
    pub is_total_exact: bool,
    /// True if more lines were requested than are here.
    pub has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExcerptLine {
    /// The line without its ending.
    pub text: String,
    /// How many characters were cut off at the end.
    pub omitted_chars: usize,
}

impl LineWindow {
    /// The first and the last line, counted from 1, in a text of `total` lines. The first may lie
    /// behind the end.
    pub(super) fn range(&self, total: usize) -> (usize, usize) {
        let count = i64::try_from(total).unwrap_or(i64::MAX);
        let start = self.start.map_or(1, |line| from_start(line, count));
        let end = self.end.map_or(total, |line| from_start(line, count)).min(total);
        (start, end)
    }
}

/// The number of a line counted from 1, in a text of `count` lines.
fn from_start(line: i64, count: i64) -> usize {
    let number = if line < 0 { count.saturating_add(line).saturating_add(1) } else { line };
    usize::try_from(number.max(1)).unwrap_or(usize::MAX)
}

impl ExcerptLine {
    /// Cuts a line to `width` characters. `missing` characters have been cut off before.
    pub(super) fn new(text: &str, width: usize, missing: usize) -> ExcerptLine {
        let start = text::first_chars(text, width);
        let omitted_chars = text[start.len()..].chars().count() + missing;
        ExcerptLine { text: start.to_owned(), omitted_chars }
    }
}

impl Excerpt {
    /// The lines of a text that are in the window.
    pub fn of(text: &str, window: &LineWindow) -> Excerpt {
        let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).count();
        let total = breaks + usize::from(!text.is_empty() && !text.ends_with('\n'));
        let (start, end) = window.range(total);
        let wanted = (end + 1).saturating_sub(start);
        let mut lines = Vec::new();
        let mut used = 0;
        for line in super::text::lines(text).skip(start - 1).take(wanted.min(window.max_lines)) {
            if used > window.max_bytes {
                break;
            }
            let line = ExcerptLine::new(line, window.max_width, 0);
            used += line.text.len();
            lines.push(line);
        }
        let first_line = i64::try_from(start).unwrap_or(i64::MAX);
        Excerpt { first_line, has_more: lines.len() < wanted, lines, total, is_total_exact: true }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    fn window(start: Option<i64>, end: Option<i64>) -> LineWindow {
        LineWindow { start, end, max_lines: 5, max_width: 10, max_bytes: 1_000 }
    }

    fn streamed(path: &Path, window: &LineWindow) -> Result<Excerpt, FileError> {
        read_excerpt(path, window, &CancellationToken::new())
    }

    #[test]
    fn a_stream_gives_the_lines_that_the_whole_text_gives() {
        let folder = tempfile::tempdir().unwrap();
        let path = crate::real_path(folder.path()).unwrap().join("f");
        let lines: Vec<_> = (1..=12).map(|number| format!("line {number}\r\n")).collect();
        let numbers = lines.concat();
        let wide = format!("{}\nshort\n{}", "ä".repeat(30), "b".repeat(15));
        for text in ["", "a", "a\n", "\n\n", &numbers, &wide] {
            std::fs::write(&path, text).unwrap();
            for start in [None, Some(0), Some(1), Some(3), Some(99), Some(-1), Some(-3), Some(-99)]
            {
                for end in [None, Some(1), Some(4), Some(99), Some(-1), Some(-2)] {
                    let window = window(start, end);
                    let whole = Excerpt::of(text, &window);
                    assert_eq!(streamed(&path, &window), Ok(whole), "{text:?} {start:?} {end:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_text_or_is_cancelled_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = crate::real_path(folder.path()).unwrap().join("f");
        std::fs::write(&path, b"a\0b").unwrap();
        assert_eq!(streamed(&path, &window(None, None)), Err(FileError::Binary(3)));
        std::fs::write(&path, b"%PDF-1.4\n").unwrap();
        assert_eq!(streamed(&path, &window(None, None)), Err(FileError::Binary(9)));
        std::fs::write(&path, b"\xff\xfe\0\0a\0\0\0").unwrap();
        assert_eq!(streamed(&path, &window(None, None)), Err(FileError::Binary(8)), "UTF-32");
        std::fs::write(&path, b"text").unwrap();
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert_eq!(
            read_excerpt(&path, &window(None, None), &cancel),
            Err(FileError::ReadCancelled)
        );
    }

    #[test]
    fn the_two_ends_of_a_file_of_gigabytes_are_read_and_the_rest_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = crate::real_path(folder.path()).unwrap().join("f");
        std::fs::write(&path, "first\n".repeat(2_000)).unwrap();
        // A sparse region: it takes no disk space and is one long line.
        let mut file = File::options().append(true).open(&path).unwrap();
        file.set_len(4 << 30).unwrap();
        std::io::Write::write_all(&mut file, b"\nlast 3\nlast 2\nlast 1\n").unwrap();
        let texts = |start, end| {
            let excerpt = streamed(&path, &window(start, end)).unwrap();
            let texts: Vec<_> = excerpt.lines.iter().map(|line| line.text.clone()).collect();
            (excerpt.first_line, texts.join(" "), excerpt.is_total_exact, excerpt.has_more)
        };
        assert_eq!(texts(Some(1), Some(2)), (1, "first first".to_owned(), false, false));
        assert_eq!(texts(Some(-2), None), (-2, "last 2 last 1".to_owned(), false, false));
        assert_eq!(texts(Some(-3), Some(-2)), (-3, "last 3 last 2".to_owned(), false, false));
        let head = streamed(&path, &window(None, None)).unwrap();
        assert!(head.has_more && head.lines.len() == 5 && head.total >= 2_000, "{head:?}");
    }
}
