//! Which lines a series of edits has changed: counted, and shown as they are now.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::DiffOp;

use super::lines::{compare, compare_until};

/// Unchanged lines that are shown around a change.
const AROUND: usize = 3;
/// The most lines that are shown.
pub const MOST_LINES: usize = 60;
/// The most lines and bytes that people are shown of a change to a large file.
const MOST_CHANGES: usize = 400;
const MOST_BYTES: usize = 32 * 1024;
/// How long large texts are compared. After that what is left counts as rewritten.
const PATIENCE: Duration = Duration::from_millis(500);
/// The most characters of a line that are shown.
const LONGEST_LINE: usize = 300;

/// Lines, counted from 0, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Where they were.
    pub before: Range<usize>,
    /// Where they are.
    pub after: Range<usize>,
}

/// Lines that went and came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Lines that came.
    pub added: usize,
    /// Lines that went.
    pub removed: usize,
}

impl Spot {
    /// Without what is equal at the beginning and the end.
    pub(super) fn trimmed(mut self, old: &str, new: &str) -> Spot {
        let equal = |(a, b): &(&str, &str)| a == b;
        let head = old.split_inclusive('\n').zip(new.split_inclusive('\n')).take_while(equal);
        let head = head.count();
        let most = self.before.len().min(self.after.len()) - head;
        let tail = reversed(old).zip(reversed(new)).take(most).take_while(equal).count();
        self.before = self.before.start + head..self.before.end - tail;
        self.after = self.after.start + head..self.after.end - tail;
        self
    }
}

fn reversed(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').rev()
}

/// One series of edits after another, as one. Both in order.
pub(super) fn compose(first: &[Spot], second: &[Spot]) -> Vec<Spot> {
    let mut all = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.iter().peekable(), second.iter().peekable());
    // How far what comes next is moved: from the first text to the middle one, and on to the last.
    let (mut moved, mut moved_on) = (0_isize, 0_isize);
    loop {
        let starts =
            [first.peek().map(|it| it.after.start), second.peek().map(|it| it.before.start)];
        let Some(start) = starts.into_iter().flatten().min() else { break };
        let (was_moved, was_moved_on) = (moved, moved_on);
        let mut end = start;
        loop {
            if let Some(spot) = first.next_if(|it| it.after.start <= end) {
                end = end.max(spot.after.end);
                moved += growth(spot);
            } else if let Some(spot) = second.next_if(|it| it.before.start <= end) {
                end = end.max(spot.before.end);
                moved_on += growth(spot);
            } else {
                break;
            }
        }
        let before = start.saturating_add_signed(-was_moved)..end.saturating_add_signed(-moved);
        let after = start.saturating_add_signed(was_moved_on)..end.saturating_add_signed(moved_on);
        all.push(Spot { before, after });
    }
    all
}

fn growth(spot: &Spot) -> isize {
    spot.after.len().cast_signed() - spot.before.len().cast_signed()
}

/// What has changed between two texts, found out by comparing them.
pub fn between(before: &str, after: &str) -> Vec<Spot> {
    let (old, new): (Vec<_>, Vec<_>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let ops = compare_until(&old, &new, Some(Instant::now() + PATIENCE)).into_iter();
    let changed = ops.filter(|it| !matches!(it, DiffOp::Equal { .. }));
    changed.map(|it| Spot { before: it.old_range(), after: it.new_range() }).collect()
}

/// How many lines the spots have changed.
pub fn count(before: &str, after: &str, spots: &[Spot]) -> Count {
    let mut count = Count::default();
    let (mut old, mut new) = (Cursor::new(before), Cursor::new(after));
    for spot in spots {
        let (old, new) = (old.take(&spot.before), new.take(&spot.after));
        for op in compare(&old, &new).iter().filter(|it| !matches!(it, DiffOp::Equal { .. })) {
            count.removed += op.old_range().len();
            count.added += op.new_range().len();
        }
    }
    count
}

/// The changed lines as they are now, each with its number, and a few around them. Takes the lines
/// that it shows from `room`.
pub fn show(after: &str, spots: &[Spot], room: &mut usize) -> String {
    let mut text = String::new();
    let mut cursor = Cursor::new(after);
    let mut next = 0;
    for spot in spots {
        let (start, end) =
            (spot.after.start.saturating_sub(AROUND).max(next), spot.after.end + AROUND);
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

/// The changed lines as they were and as they are, for people; not too many.
pub fn changes(before: &str, after: &str, spots: &[Spot]) -> String {
    let mut text = String::new();
    let (mut old, mut new) = (Cursor::new(before), Cursor::new(after));
    let mut room = MOST_CHANGES;
    for spot in spots {
        let (start, old, new) =
            (spot.after.start + 1, old.take(&spot.before), new.take(&spot.after));
        text.push_str(&format!("@@ line {start} @@\n"));
        let old = old.into_iter().map(|it| ('-', it));
        let lines = old.chain(new.into_iter().map(|it| ('+', it)));
        for (sign, line) in lines {
            room -= 1;
            if room == 0 || text.len() > MOST_BYTES {
                text.push_str("[more changes are not shown]\n");
                return text;
            }
            text.push_str(&format!("{sign}{}\n", clipped(line)));
        }
    }
    text
}

/// The line without its end, and not too much of it.
pub(super) fn clipped(line: &str) -> String {
    let line = line.trim_end_matches(['\r', '\n']);
    match line.char_indices().nth(LONGEST_LINE) {
        Some((cut, _)) => format!("{}…[+{} characters]", &line[..cut], line[cut..].chars().count()),
        None => line.to_owned(),
    }
}

/// Goes once through the lines of a text.
struct Cursor<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Cursor<'a> {
        Cursor { rest: text, line: 0 }
    }

    /// These lines, as far as they have not been passed yet.
    fn take(&mut self, lines: &Range<usize>) -> Vec<&'a str> {
        if let Some(skip) = lines.start.checked_sub(self.line).filter(|it| *it > 0) {
            let end = memchr::memchr_iter(b'\n', self.rest.as_bytes()).nth(skip - 1);
            self.rest = end.map_or("", |it| &self.rest[it + 1..]);
            self.line = lines.start;
        }
        let mut taken = Vec::new();
        while self.line < lines.end && !self.rest.is_empty() {
            let end =
                memchr::memchr(b'\n', self.rest.as_bytes()).map_or(self.rest.len(), |it| it + 1);
            let (line, rest) = self.rest.split_at(end);
            taken.push(line);
            self.rest = rest;
            self.line += 1;
        }
        taken
    }
}
