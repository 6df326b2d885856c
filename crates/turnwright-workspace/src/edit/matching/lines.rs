//! The matches that compare line by line: their common parts, and the one that ignores white space
//! at line ends.

use std::borrow::Cow;
use std::ops::Range;

use super::super::buffer::diff_lines;
use super::{MAX_NAMED, MatchAttempt, MatchError, MatchKind, MatchQuery, TextMatch};
use turnwright_types::line_diff::DiffOp;

/// A text split into lines without their endings.
pub(super) struct TextLines<'t> {
    pub(super) text: &'t str,
    pub(super) lines: Vec<&'t str>,
    starts: Vec<usize>,
}

impl<'t> TextLines<'t> {
    pub(super) fn new(text: &'t str) -> TextLines<'t> {
        let lines = lines_of(text);
        let mut starts = Vec::with_capacity(lines.len());
        let mut at = 0;
        for line in &lines {
            starts.push(at);
            at += line.len() + 1;
        }
        TextLines { text, lines, starts }
    }

    /// The offset of a line.
    pub(super) fn start(&self, row: usize) -> usize {
        self.starts.get(row).copied().unwrap_or(self.text.len())
    }

    /// The lines that begin in a range of bytes.
    pub(super) fn within(&self, bytes: &Range<usize>) -> Range<usize> {
        let [first, end] =
            [bytes.start, bytes.end].map(|at| self.starts.partition_point(|start| *start < at));
        first..end
    }

    /// The byte range of some lines, with or without the ending of the last one.
    fn place(&self, rows: Range<usize>, with_end: bool) -> Range<usize> {
        let start = self.start(rows.start);
        let last = rows.end - 1;
        let end = self.start(last) + self.lines[last].len();
        let has_end = with_end && end < self.text.len();
        start..end + usize::from(has_end)
    }

    /// The match of the quoted lines at a line.
    pub(super) fn match_at<'q>(
        &self,
        row: usize,
        query: &MatchQuery<'q>,
        match_kind: MatchKind,
        mut change: impl FnMut(&str) -> Option<String>,
    ) -> Option<TextMatch<'q>> {
        let old = lines_of(query.old);
        let rows = row..row + old.len();
        let with_end = query.old.ends_with('\n');
        let mut place = self.place(rows.clone(), with_end);
        let mut new = carry_over_edit(&self.lines[rows], &old, query.new, |_, line| change(line))?;
        if with_end && !self.text[place.clone()].ends_with('\n') {
            // The last line of the file has no ending, and shall not get one.
            if new.pop().is_none() && place.start > 0 {
                place.start -= 1;
            }
        }
        Some(TextMatch { ranges: vec![place], new: Cow::Owned(new), match_kind })
    }
}

/// The lines of a text without their endings.
pub(super) fn lines_of(text: &str) -> Vec<&str> {
    let mut rows: Vec<_> = text.split('\n').collect();
    if text.is_empty() || text.ends_with('\n') {
        rows.pop();
    }
    rows
}

/// The replacement for lines of the file that were quoted as `old`: an unchanged line is taken from
/// the file, and another one as `change` makes it, which also gets the line that it replaces, in the file and as
/// it was quoted, if there is one for each.
pub(super) fn carry_over_edit(
    file: &[&str],
    old: &[&str],
    new: &str,
    mut change: impl FnMut(Option<(&str, &str)>, &str) -> Option<String>,
) -> Option<String> {
    let lines = lines_of(new);
    let mut text = String::with_capacity(new.len());
    for op in diff_lines(old, &lines) {
        if let DiffOp::Equal { old_index, len, .. } = op {
            for line in &file[old_index..old_index + len] {
                text.push_str(line);
                text.push('\n');
            }
            continue;
        }
        let places = op.old_range();
        let new_places = op.new_range();
        let is_paired = places.len() == new_places.len();
        for (row, line) in (places.start..).zip(&lines[new_places]) {
            let replaced = is_paired.then(|| (file[row], old[row]));
            text.push_str(&change(replaced, line)?);
            text.push('\n');
        }
    }
    if !new.ends_with('\n') {
        text.pop();
    }
    Some(text)
}

pub(super) fn match_ignoring_trailing_space<'a>(
    rows: &TextLines<'_>,
    query: &MatchQuery<'a>,
) -> MatchAttempt<'a> {
    let wanted: Vec<_> = lines_of(query.old).into_iter().map(str::trim_end).collect();
    let within = rows.within(&query.within);
    let area = rows.lines.get(within.start..).unwrap_or_default();
    let mut hits = Vec::new();
    let mut count = 0;
    for_each_window(
        area,
        &wanted,
        |line| line.trim_end(),
        |at| {
            let row = within.start + at;
            if row < within.end {
                count += 1;
                if hits.len() < MAX_NAMED {
                    hits.push(row);
                }
            }
            row < within.end
        },
    );
    unique_match(rows, hits, count, MatchKind::TrailingSpace, |row, match_kind| {
        rows.match_at(row, query, match_kind, |line| Some(line.to_owned()))
    })
}

/// The unique match, or an error if there are several.
pub(super) fn unique_match<'a>(
    rows: &TextLines<'_>,
    hits: Vec<usize>,
    count: usize,
    match_kind: MatchKind,
    found: impl FnOnce(usize, MatchKind) -> Option<TextMatch<'a>>,
) -> MatchAttempt<'a> {
    let first = *hits.first()?;
    if count == 1 {
        return found(first, match_kind).map(Ok);
    }
    let starts = hits.into_iter().map(|row| rows.start(row)).collect();
    Some(Err(MatchError::Ambiguous { match_kind, starts, count }))
}

/// Calls `hit` with each line where the wanted lines begin, until it returns `false`. Takes linear
/// time whatever is searched for (Knuth-Morris-Pratt).
pub(super) fn for_each_window<'t>(
    text: &[&'t str],
    wanted: &[&'t str],
    view: impl Fn(&'t str) -> &'t str,
    mut hit: impl FnMut(usize) -> bool,
) {
    if wanted.is_empty() || wanted.len() > text.len() {
        return;
    }
    let mut failure = vec![0; wanted.len()];
    let mut same = 0;
    for at in 1..wanted.len() {
        while same > 0 && wanted[at] != wanted[same] {
            same = failure[same - 1];
        }
        same += usize::from(wanted[at] == wanted[same]);
        failure[at] = same;
    }
    same = 0;
    for (at, line) in text.iter().enumerate() {
        let line = view(line);
        while same > 0 && line != wanted[same] {
            same = failure[same - 1];
        }
        same += usize::from(line == wanted[same]);
        if same == wanted.len() {
            if !hit(at + 1 - same) {
                return;
            }
            same = failure[same - 1];
        }
    }
}
