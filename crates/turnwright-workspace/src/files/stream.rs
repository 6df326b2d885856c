//! Some lines of a file of any size, in bounded memory and time: nothing is kept but the lines
//! that are asked for.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::FileError;
use super::disk::{explain, moved, regular};
use super::excerpt::{Excerpt, Line, Window};
use super::form::{PROBE, decode_lines, is_binary, wide};
use crate::pinned;

/// Bytes in which lines are counted, and of which one line may consist.
const COUNTED: u64 = 64 * 1024 * 1024;
/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;
/// How long a line far from the beginning is looked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lines that the window shows. Blocks.
pub(super) fn excerpt(
    path: &Path,
    window: &Window,
    cancel: &CancellationToken,
) -> Result<Excerpt, FileError> {
    let file = pinned::file(path).map_err(|it| moved(&it))?;
    let metadata = file.metadata().map_err(|it| explain(&it))?;
    regular(&metadata)?;
    let size = metadata.len();
    let mut reader = Reader { file, cancel, until: Instant::now() + PATIENCE };
    let mut buffer = vec![0; CHUNK];
    let count = reader.fill(&mut buffer[..PROBE])?;
    if wide(&buffer[..count]).is_some() {
        return Err(FileError::TooLarge(size));
    }
    if is_binary(&buffer[..count]) {
        return Err(FileError::Binary(size));
    }
    let (total, is_exact) = reader.count(&mut buffer, size)?;
    if !is_exact && let Some(back) = window.start.filter(|it| *it < 0) {
        return reader.tail(&mut buffer, size, back, window);
    }
    let (start, end) = window.range(total);
    // Where the end is not known, the lines that may be shown are the end.
    let end = match window.end {
        _ if is_exact => end,
        Some(end) if end > 0 => usize::try_from(end).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    reader.seek(SeekFrom::Start(0))?;
    let wanted = end.saturating_add(1).saturating_sub(start);
    let Run { lines, more, total: counted } =
        reader.lines(&mut buffer, start - 1, wanted, window)?;
    if lines.is_empty() && more {
        return Err(FileError::TooFar(start));
    }
    let least = total.max(start - 1 + lines.len());
    let (total, is_exact) = match counted {
        _ if is_exact => (total, true),
        Some(counted) => (counted, true),
        None => (least, false),
    };
    let first = i64::try_from(start).unwrap_or(i64::MAX);
    Ok(Excerpt { first, lines, total, is_exact, more })
}

/// Lines that follow each other.
struct Run {
    lines: Vec<Line>,
    /// Whether there may be more of those that were wanted.
    more: bool,
    /// How many lines there are up to the end of the file, if that was reached.
    total: Option<usize>,
}

struct Reader<'a> {
    file: File,
    cancel: &'a CancellationToken,
    until: Instant,
}

impl Reader<'_> {
    /// Reads what there is, at most as much as fits. 0 is the end.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        if self.cancel.is_cancelled() {
            return Err(FileError::System("was not read: cancelled by the user".to_owned()));
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(explain(&error)),
            }
        }
        Ok(filled)
    }

    fn seek(&mut self, to: SeekFrom) -> Result<(), FileError> {
        self.file.seek(to).map(drop).map_err(|it| explain(&it))
    }

    /// How many lines there are, or at least are.
    fn count(&mut self, buffer: &mut [u8], size: u64) -> Result<(usize, bool), FileError> {
        self.seek(SeekFrom::Start(0))?;
        let (mut breaks, mut read, mut last) = (0, 0, b'\n');
        while read < COUNTED {
            let count = self.fill(buffer)?;
            let Some(end) = buffer[..count].last() else { break };
            breaks += memchr::memchr_iter(b'\n', &buffer[..count]).count();
            read += count as u64;
            last = *end;
        }
        let is_exact = read < COUNTED || read >= size;
        Ok((breaks + usize::from(is_exact && last != b'\n'), is_exact))
    }

    /// Lines from here on: so many are skipped, so many wanted.
    fn lines(
        &mut self,
        buffer: &mut [u8],
        skip: usize,
        wanted: usize,
        window: &Window,
    ) -> Result<Run, FileError> {
        let most = wanted.min(window.lines);
        let mut collected = Collected::new(window);
        let (mut skipped, mut read, mut last) = (0, 0, b'\n');
        while collected.done.len() < most && !collected.is_full() && read < COUNTED {
            let count = self.fill(buffer)?;
            let Some(end) = buffer[..count].last() else {
                collected.end();
                let half = usize::from(skipped < skip && last != b'\n');
                let total = Some(skipped + half + collected.done.len());
                return Ok(Run { lines: collected.decode(), more: false, total });
            };
            last = *end;
            let mut rest = &buffer[..count];
            while skipped < skip {
                let Some(at) = memchr::memchr(b'\n', rest) else { break };
                rest = &rest[at + 1..];
                skipped += 1;
            }
            if skipped < skip {
                if Instant::now() > self.until {
                    return Ok(Run { lines: Vec::new(), more: true, total: None });
                }
                continue;
            }
            read += count as u64;
            while !rest.is_empty() && collected.done.len() < most && !collected.is_full() {
                let at = memchr::memchr(b'\n', rest);
                collected.push(&rest[..at.unwrap_or(rest.len())]);
                rest = at.map_or(&[], |it| &rest[it + 1..]);
                if at.is_some() {
                    collected.next();
                }
            }
        }
        collected.end();
        let more = collected.done.len() < wanted;
        Ok(Run { lines: collected.decode(), more, total: None })
    }

    /// Lines counted from the end, without knowing how many there are.
    fn tail(
        &mut self,
        buffer: &mut [u8],
        size: u64,
        back: i64,
        window: &Window,
    ) -> Result<Excerpt, FileError> {
        let asked = usize::try_from(back.unsigned_abs()).unwrap_or(usize::MAX);
        let (offset, found) = self.line_from_end(buffer, size, asked)?;
        let last = window.end.filter(|it| *it < 0).map_or(1, i64::unsigned_abs);
        let last = usize::try_from(last).unwrap_or(usize::MAX);
        let wanted = (found + 1).saturating_sub(last);
        self.seek(SeekFrom::Start(offset))?;
        let lines = self.lines(buffer, 0, wanted, window)?.lines;
        let first = -i64::try_from(found).unwrap_or(i64::MAX);
        Ok(Excerpt { first, more: lines.len() < wanted, lines, total: found, is_exact: false })
    }

    /// Where the line begins that is so many from the end, and how many it really is: of a line
    /// that is too far away the nearest is taken.
    fn line_from_end(
        &mut self,
        buffer: &mut [u8],
        size: u64,
        asked: usize,
    ) -> Result<(u64, usize), FileError> {
        let mut at = size;
        let mut found = 0;
        let mut nearest = size;
        while at > 0 && size - at < COUNTED {
            let length = at.min(buffer.len() as u64);
            at -= length;
            self.seek(SeekFrom::Start(at))?;
            let count = self.fill(&mut buffer[..usize::try_from(length).unwrap_or(0)])?;
            for end in memchr::memrchr_iter(b'\n', &buffer[..count]) {
                let begin = at + end as u64 + 1;
                // The end of the last line begins no line.
                if begin >= size {
                    continue;
                }
                found += 1;
                nearest = begin;
                if found == asked {
                    return Ok((nearest, found));
                }
            }
        }
        // One line is longer than all that is looked at.
        Ok(if found == 0 { (at, 1) } else { (nearest, found) })
    }
}

/// Lines as bytes, each cut when it is too long.
struct Collected<'a> {
    window: &'a Window,
    done: Vec<Vec<u8>>,
    missing: Vec<usize>,
    line: Vec<u8>,
    cut: usize,
    used: usize,
}

impl<'a> Collected<'a> {
    fn new(window: &'a Window) -> Collected<'a> {
        let (done, missing, line) = (Vec::new(), Vec::new(), Vec::new());
        Collected { window, done, missing, line, cut: 0, used: 0 }
    }

    fn is_full(&self) -> bool {
        self.used > self.window.bytes
    }

    fn push(&mut self, piece: &[u8]) {
        // No character has more than four bytes.
        let room = (self.window.width * 4).saturating_sub(self.line.len());
        let (kept, cut) = piece.split_at(piece.len().min(room));
        self.line.extend_from_slice(kept);
        // Bytes that go on with a character are no new one.
        self.cut += cut.iter().filter(|it| **it & 0xc0 != 0x80).count();
    }

    fn next(&mut self) {
        if self.cut == 0 && self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.used += self.line.len();
        self.done.push(std::mem::take(&mut self.line));
        self.missing.push(std::mem::take(&mut self.cut));
    }

    fn end(&mut self) {
        if !self.line.is_empty() {
            self.next();
        }
    }

    fn decode(&self) -> Vec<Line> {
        let texts = decode_lines(&self.done);
        let lines = texts.iter().zip(&self.missing);
        lines.map(|(text, missing)| Line::new(text, self.window.width, *missing)).collect()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    fn window(start: Option<i64>, end: Option<i64>) -> Window {
        Window { start, end, lines: 5, width: 10, bytes: 1_000 }
    }

    fn streamed(path: &Path, window: &Window) -> Result<Excerpt, FileError> {
        excerpt(path, window, &CancellationToken::new())
    }

    #[test]
    fn a_stream_gives_the_lines_that_the_whole_text_gives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let numbers: Vec<_> = (1..=12).map(|it| format!("line {it}\r\n")).collect();
        let numbers = numbers.concat();
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
        let path = folder.path().join("f");
        std::fs::write(&path, b"a\0b").unwrap();
        assert_eq!(streamed(&path, &window(None, None)), Err(FileError::Binary(3)));
        std::fs::write(&path, b"\xff\xfea\0").unwrap();
        assert_eq!(streamed(&path, &window(None, None)), Err(FileError::TooLarge(4)));
        std::fs::write(&path, b"text").unwrap();
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert!(excerpt(&path, &window(None, None), &cancel).is_err());
    }

    #[test]
    fn the_two_ends_of_a_file_of_gigabytes_are_read_and_the_rest_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "first\n".repeat(2_000)).unwrap();
        // A hole: it costs no disk, and is one long line.
        let mut file = File::options().append(true).open(&path).unwrap();
        file.set_len(4 << 30).unwrap();
        std::io::Write::write_all(&mut file, b"\nlast 3\nlast 2\nlast 1\n").unwrap();
        let texts = |start, end| {
            let excerpt = streamed(&path, &window(start, end)).unwrap();
            let texts: Vec<_> = excerpt.lines.iter().map(|it| it.text.clone()).collect();
            (excerpt.first, texts.join(" "), excerpt.is_exact, excerpt.more)
        };
        assert_eq!(texts(Some(1), Some(2)), (1, "first first".to_owned(), false, false));
        assert_eq!(texts(Some(-2), None), (-2, "last 2 last 1".to_owned(), false, false));
        assert_eq!(texts(Some(-3), Some(-2)), (-3, "last 3 last 2".to_owned(), false, false));
        let head = streamed(&path, &window(None, None)).unwrap();
        assert!(head.more && head.lines.len() == 5 && head.total >= 2_000, "{head:?}");
    }
}
