//! Tracks which lines a series of edits has changed, counts them and renders them.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::buffer::{diff_lines, diff_lines_until};
use turnwright_types::line_diff::DiffOp;
use turnwright_types::text;

/// How many unchanged lines are shown around a change.
const CONTEXT_LINES: usize = 3;
/// The most lines of an edit result that are shown.
pub const MAX_SHOWN_LINES: usize = 60;
/// The most lines and bytes of the diff of a large file that people are shown.
const MAX_DIFF_LINES: usize = 400;
const MAX_DIFF_BYTES: usize = 32 * 1024;
/// How long large texts are compared. What is left after that counts as rewritten.
const DIFF_TIME: Duration = Duration::from_millis(500);
/// The most characters of a line that are shown.
const MAX_LINE_CHARS: usize = 300;

/// A range of changed lines before and after, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// The lines in the old text.
    pub before: Range<usize>,
    /// The lines in the new text.
    pub after: Range<usize>,
}

/// The number of added and removed lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    pub added: usize,
    pub removed: usize,
}

impl LineChange {
    /// Removes equal lines at the beginning and the end.
    pub(super) fn trimmed(mut self, old: &str, new: &str) -> LineChange {
        let pairs = old.split_inclusive('\n').zip(new.split_inclusive('\n'));
        let head = pairs.take_while(|(a, b)| a == b).count();
        let most = self.before.len().min(self.after.len()) - head;
        let last_pairs = reversed(old).zip(reversed(new)).take(most);
        let tail = last_pairs.take_while(|(a, b)| a == b).count();
        self.before = self.before.start + head..self.before.end - tail;
        self.after = self.after.start + head..self.after.end - tail;
        self
    }
}

fn reversed(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').rev()
}

/// Composes two series of changes, each in order, into one from the first to the last text.
pub(super) fn compose(first: &[LineChange], second: &[LineChange]) -> Vec<LineChange> {
    let mut all = Vec::with_capacity(first.len() + second.len());
    let mut first = first.iter().peekable();
    let mut second = second.iter().peekable();
    // The offsets of the following lines: from the first text to the middle one, and from there to
    // the last.
    let mut moved = 0_isize;
    let mut moved_on = 0_isize;
    loop {
        let starts = [
            first.peek().map(|change| change.after.start),
            second.peek().map(|change| change.before.start),
        ];
        let Some(start) = starts.into_iter().flatten().min() else { break };
        let was_moved = moved;
        let was_moved_on = moved_on;
        let mut end = start;
        loop {
            if let Some(change) = first.next_if(|change| change.after.start <= end) {
                end = end.max(change.after.end);
                moved += growth(change);
            } else if let Some(change) = second.next_if(|change| change.before.start <= end) {
                end = end.max(change.before.end);
                moved_on += growth(change);
            } else {
                break;
            }
        }
        let before = start.saturating_add_signed(-was_moved)..end.saturating_add_signed(-moved);
        let after = start.saturating_add_signed(was_moved_on)..end.saturating_add_signed(moved_on);
        all.push(LineChange { before, after });
    }
    all
}

fn growth(change: &LineChange) -> isize {
    change.after.len().cast_signed() - change.before.len().cast_signed()
}

/// Determines the changes between two texts by comparing them.
pub fn diff_texts(before: &str, after: &str) -> Vec<LineChange> {
    let (old, new): (Vec<_>, Vec<_>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let ops = diff_lines_until(&old, &new, Some(Instant::now() + DIFF_TIME)).into_iter();
    let changed = ops.filter(|op| !matches!(op, DiffOp::Equal { .. }));
    changed.map(|op| LineChange { before: op.old_range(), after: op.new_range() }).collect()
}

/// Counts the added and removed lines.
pub fn count_changed_lines(before: &str, after: &str, changes: &[LineChange]) -> LineCounts {
    let mut count = LineCounts::default();
    let mut old = LineCursor::new(before);
    let mut new = LineCursor::new(after);
    for change in changes {
        let old = old.take(&change.before);
        let new = new.take(&change.after);
        for op in diff_lines(&old, &new).iter().filter(|op| !matches!(op, DiffOp::Equal { .. })) {
            count.removed += op.old_range().len();
            count.added += op.new_range().len();
        }
    }
    count
}

/// Renders the changed lines of the new text with their numbers and a few lines around them.
/// Subtracts the number of rendered lines from `room`.
pub fn render_changed_lines(after: &str, changes: &[LineChange], room: &mut usize) -> String {
    let mut text = String::new();
    let mut cursor = LineCursor::new(after);
    let mut next = 0;
    for change in changes {
        let start = change.after.start.saturating_sub(CONTEXT_LINES).max(next);
        let end = change.after.end + CONTEXT_LINES;
        if *room == 0 {
            text.push_str("[more changes are not shown]\n");
            break;
        }
        if start > next && !text.is_empty() {
            text.push_str("…\n");
        }
        let end = end.min(start + *room);
        let lines = cursor.take(&(start..end));
        *room -= lines.len();
        next = next.max(start + lines.len());
        for (number, line) in (start + 1..).zip(lines) {
            text.push_str(&format!("{number:>5}| {}\n", clipped(line)));
        }
    }
    text
}

/// Renders the changes as a diff for people, of limited length.
pub fn render_diff(before: &str, after: &str, changes: &[LineChange]) -> String {
    let mut text = String::new();
    let mut old = LineCursor::new(before);
    let mut new = LineCursor::new(after);
    let mut room = MAX_DIFF_LINES;
    for change in changes {
        let start = change.after.start + 1;
        let old = old.take(&change.before);
        let new = new.take(&change.after);
        text.push_str(&format!("@@ line {start} @@\n"));
        let old = old.into_iter().map(|line| ('-', line));
        let lines = old.chain(new.into_iter().map(|line| ('+', line)));
        for (sign, line) in lines {
            room -= 1;
            if room == 0 || text.len() > MAX_DIFF_BYTES {
                text.push_str("[more changes are not shown]\n");
                return text;
            }
            text.push_str(&format!("{sign}{}\n", clipped(line)));
        }
    }
    text
}

/// The line without its ending, clipped to the longest length.
pub(super) fn clipped(line: &str) -> String {
    let line = line.trim_end_matches(['\r', '\n']);
    let start = text::first_chars(line, MAX_LINE_CHARS);
    match line[start.len()..].chars().count() {
        0 => line.to_owned(),
        left => format!("{start}…[+{left} characters]"),
    }
}

/// A forward cursor over the lines of a text.
struct LineCursor<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> LineCursor<'a> {
    fn new(text: &'a str) -> LineCursor<'a> {
        LineCursor { rest: text, line: 0 }
    }

    /// Takes these lines, except for those that were passed already.
    fn take(&mut self, lines: &Range<usize>) -> Vec<&'a str> {
        if let Some(skip) = lines.start.checked_sub(self.line).filter(|skip| *skip > 0) {
            let end = memchr::memchr_iter(b'\n', self.rest.as_bytes()).nth(skip - 1);
            self.rest = end.map_or("", |end| &self.rest[end + 1..]);
            self.line = lines.start;
        }
        let mut taken = Vec::new();
        while self.line < lines.end && !self.rest.is_empty() {
            let end = memchr::memchr(b'\n', self.rest.as_bytes())
                .map_or(self.rest.len(), |newline| newline + 1);
            let (line, rest) = self.rest.split_at(end);
            taken.push(line);
            self.rest = rest;
            self.line += 1;
        }
        taken
    }
}
