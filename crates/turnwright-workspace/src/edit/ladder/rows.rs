//! The rungs that compare line by line: what they have in common, and the one that overlooks white
//! space at line ends.

use std::borrow::Cow;
use std::ops::Range;

use similar::DiffOp;

use super::super::lines::compare;
use super::{Answer, Found, MOST_NAMED, Miss, Query, Rung};

/// The lines of a text without their ends.
pub(super) struct Rows<'t> {
    pub(super) text: &'t str,
    pub(super) rows: Vec<&'t str>,
    starts: Vec<usize>,
}

impl<'t> Rows<'t> {
    pub(super) fn new(text: &'t str) -> Rows<'t> {
        let rows = lines_of(text);
        let mut at = 0;
        let start = |row: &&str| {
            let start = at;
            at += row.len() + 1;
            start
        };
        let starts = rows.iter().map(start).collect();
        Rows { text, rows, starts }
    }

    /// Where a line begins.
    pub(super) fn start(&self, row: usize) -> usize {
        self.starts.get(row).copied().unwrap_or(self.text.len())
    }

    /// The lines that a text may begin with which must begin within these bytes.
    pub(super) fn within(&self, bytes: &Range<usize>) -> Range<usize> {
        let first = |at: usize| self.starts.partition_point(|it| *it < at);
        first(bytes.start)..first(bytes.end)
    }

    /// The place that lines take up which were quoted with or without their last line end.
    fn place(&self, rows: Range<usize>, with_end: bool) -> Range<usize> {
        let start = self.start(rows.start);
        let last = rows.end - 1;
        let end = self.start(last) + self.rows[last].len();
        let has_end = with_end && end < self.text.len();
        start..end + usize::from(has_end)
    }

    /// The answer of a rung that has found quoted lines in these.
    pub(super) fn found<'q>(
        &self,
        row: usize,
        query: &Query<'q>,
        rung: Rung,
        change: impl FnMut(&str) -> Option<String>,
    ) -> Option<Found<'q>> {
        let old = lines_of(query.old);
        let rows = row..row + old.len();
        let with_end = query.old.ends_with('\n');
        let mut place = self.place(rows.clone(), with_end);
        let mut new = carry(&self.rows[rows], &old, query.new, change)?;
        if with_end && !self.text[place.clone()].ends_with('\n') {
            // There was no end to quote, and there will be none.
            if new.pop().is_none() && place.start > 0 {
                place.start -= 1;
            }
        }
        Some(Found { places: vec![place], new: Cow::Owned(new), rung })
    }
}

/// The lines of a text without their ends.
pub(super) fn lines_of(text: &str) -> Vec<&str> {
    let mut rows: Vec<_> = text.split('\n').collect();
    if text.is_empty() || text.ends_with('\n') {
        rows.pop();
    }
    rows
}

/// What is to stand for lines of a file that were quoted as `old`: a quoted line that stays is as it
/// is in the file, and another is as `change` makes it.
pub(super) fn carry(
    file: &[&str],
    old: &[&str],
    new: &str,
    mut change: impl FnMut(&str) -> Option<String>,
) -> Option<String> {
    let lines = lines_of(new);
    let mut text = String::with_capacity(new.len());
    for op in compare(old, &lines) {
        if let DiffOp::Equal { old_index, len, .. } = op {
            for line in &file[old_index..old_index + len] {
                text.push_str(line);
                text.push('\n');
            }
            continue;
        }
        for line in &lines[op.new_range()] {
            text.push_str(&change(line)?);
            text.push('\n');
        }
    }
    if !new.ends_with('\n') {
        text.pop();
    }
    Some(text)
}

/// Overlooks white space at line ends.
pub(super) fn trailing<'a>(rows: &Rows<'_>, query: &Query<'a>) -> Answer<'a> {
    let wanted: Vec<_> = lines_of(query.old).into_iter().map(str::trim_end).collect();
    let within = rows.within(&query.within);
    let area = rows.rows.get(within.start..).unwrap_or_default();
    let (mut hits, mut count) = (Vec::new(), 0);
    windows(
        area,
        &wanted,
        |line| line.trim_end(),
        |at| {
            let row = within.start + at;
            if row < within.end {
                count += 1;
                if hits.len() < MOST_NAMED {
                    hits.push(row);
                }
            }
            row < within.end
        },
    );
    answer(rows, hits, count, Rung::TrailingSpace, |row, rung| {
        rows.found(row, query, rung, |line| Some(line.to_owned()))
    })
}

/// The answer of a rung that has found its lines at these.
pub(super) fn answer<'a>(
    rows: &Rows<'_>,
    hits: Vec<usize>,
    count: usize,
    rung: Rung,
    found: impl FnOnce(usize, Rung) -> Option<Found<'a>>,
) -> Answer<'a> {
    let first = *hits.first()?;
    if count == 1 {
        return found(first, rung).map(Ok);
    }
    let starts = hits.into_iter().map(|it| rows.start(it)).collect();
    Some(Err(Miss::Several { rung, starts, count }))
}

/// Calls `hit` with each place where these lines stand, as long as it says `true`. Takes time in
/// proportion to the text, whatever is looked for (Knuth, Morris and Pratt).
pub(super) fn windows<'t>(
    text: &[&'t str],
    wanted: &[&'t str],
    view: impl Fn(&'t str) -> &'t str,
    mut hit: impl FnMut(usize) -> bool,
) {
    if wanted.is_empty() || wanted.len() > text.len() {
        return;
    }
    let mut back = vec![0; wanted.len()];
    let mut same = 0;
    for at in 1..wanted.len() {
        while same > 0 && wanted[at] != wanted[same] {
            same = back[same - 1];
        }
        same += usize::from(wanted[at] == wanted[same]);
        back[at] = same;
    }
    same = 0;
    for (at, line) in text.iter().enumerate() {
        let line = view(line);
        while same > 0 && line != wanted[same] {
            same = back[same - 1];
        }
        same += usize::from(line == wanted[same]);
        if same == wanted.len() {
            if !hit(at + 1 - same) {
                return;
            }
            same = back[same - 1];
        }
    }
}
