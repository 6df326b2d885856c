//! Some lines of a text, by numbers.

/// Which lines are wanted, and how much of them at most. Lines are counted from 1; negative
/// numbers count from the end, the last line being -1.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The first line.
    pub start: Option<i64>,
    /// The last line.
    pub end: Option<i64>,
    /// The most lines.
    pub lines: usize,
    /// The most characters of one line.
    pub width: usize,
    /// Bytes after which no further line begins.
    pub bytes: usize,
}

/// Some lines of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The number of its first line. Negative, counted from the end, where nobody knows how many
    /// lines there are.
    pub first: i64,
    /// The lines.
    pub lines: Vec<Line>,
    /// How many there are in the file, or at least are.
    pub total: usize,
    /// Whether that is all.
    pub is_exact: bool,
    /// Whether more lines were wanted than are here.
    pub more: bool,
}

/// A line, or its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Without its end.
    pub text: String,
    /// Characters that were cut off.
    pub cut: usize,
}

impl Window {
    /// The first and the last line, counted from 1, of a text of that many lines. The first may
    /// lie after the end.
    pub(super) fn range(&self, total: usize) -> (usize, usize) {
        let count = i64::try_from(total).unwrap_or(i64::MAX);
        let from_one = |it: i64| {
            let number = if it < 0 { count.saturating_add(it).saturating_add(1) } else { it };
            usize::try_from(number.max(1)).unwrap_or(usize::MAX)
        };
        let end = self.end.map_or(total, from_one).min(total);
        (self.start.map_or(1, from_one), end)
    }
}

impl Line {
    /// A line of which some characters are missing already.
    pub(super) fn new(text: &str, width: usize, missing: usize) -> Line {
        let end = text.char_indices().nth(width).map_or(text.len(), |it| it.0);
        Line { text: text[..end].to_owned(), cut: text[end..].chars().count() + missing }
    }
}

impl Excerpt {
    /// The lines of a text that the window shows.
    pub fn of(text: &str, window: &Window) -> Excerpt {
        let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).count();
        let total = breaks + usize::from(!text.is_empty() && !text.ends_with('\n'));
        let (start, end) = window.range(total);
        let wanted = (end + 1).saturating_sub(start);
        let mut lines = Vec::new();
        let mut used = 0;
        for line in text.lines().skip(start - 1).take(wanted.min(window.lines)) {
            if used > window.bytes {
                break;
            }
            let line = Line::new(line, window.width, 0);
            used += line.text.len();
            lines.push(line);
        }
        let first = i64::try_from(start).unwrap_or(i64::MAX);
        Excerpt { first, more: lines.len() < wanted, lines, total, is_exact: true }
    }
}
