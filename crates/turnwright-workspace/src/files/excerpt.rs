//! Excerpts of a text by line numbers.

use turnwright_types::text;

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
        let first = i64::try_from(start).unwrap_or(i64::MAX);
        Excerpt {
            first_line: first,
            has_more: lines.len() < wanted,
            lines,
            total,
            is_total_exact: true,
        }
    }
}
