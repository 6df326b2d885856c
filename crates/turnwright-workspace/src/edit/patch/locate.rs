//! Locates and applies the hunks of a patch. Their old lines are matched as the old text of an edit
//! is, and must match in one place only; `@@` lines narrow the search.

use std::ops::Range;

use super::super::buffer::{EditBuffer, to_lf};
use super::super::matching::{self, MatchError, MatchKind, MatchQuery, TextMatch};
use super::super::{
    AppliedEdit, AppliedEdits, EditErrorKind, explain, find_placeholder, line_changes,
};
use super::Hunk;

/// If an `@@` line occurs more often than this, it is ignored.
const MAX_ANCHOR_MATCHES: usize = 50;

/// A hunk that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HunkError {
    /// The line of the patch where the hunk begins, counted from 1.
    pub line: usize,
    pub kind: EditErrorKind,
}

impl HunkError {
    /// The error message for the model.
    pub fn explain(&self, name: &str) -> String {
        let old_name = format!("The hunk at line {} of the patch", self.line);
        let hint = "Add context lines, or an `@@` line that stands before it, to make it unique.";
        self.kind.explain(name, &old_name, hint)
    }
}

/// Applies hunks one after the other. If one fails, none is applied.
///
/// # Errors
/// The first hunk that cannot be applied.
pub fn apply(text: &str, hunks: &[Hunk]) -> Result<AppliedEdits, HunkError> {
    let mut lines = EditBuffer::new(text);
    let was_unterminated = lines.terminate_last_line();
    let mut done = Vec::new();
    let mut all = Vec::new();
    for hunk in hunks {
        let hunk = &Hunk { old: to_lf(&hunk.old), new: to_lf(&hunk.new), ..hunk.clone() };
        if hunk.old == hunk.new {
            return Err(HunkError { line: hunk.line, kind: EditErrorKind::NoChange });
        }
        if let Some(kind) = find_placeholder(&hunk.new, text) {
            return Err(HunkError { line: hunk.line, kind });
        }
        let found = locate(lines.text(), hunk).map_err(|miss| HunkError {
            line: hunk.line,
            kind: explain(miss, lines.text(), &hunk.old, false),
        })?;
        let changed = lines.replace(&found.ranges, &found.new);
        all = line_changes::compose(&all, &changed);
        done.push(AppliedEdit { match_kind: found.match_kind, occurrences: 1 });
    }
    if was_unterminated {
        lines.unterminate_last_line();
    }
    let now = lines.into_text();
    let line_counts = line_changes::count_changed_lines(text, &now, &all);
    Ok(AppliedEdits { text: now, edits: done, changes: all, line_counts })
}

fn locate<'h>(text: &str, hunk: &'h Hunk) -> Result<TextMatch<'h>, MatchError> {
    let blocks = anchored_blocks(text, &hunk.anchors);
    if hunk.old.is_empty() {
        return locate_insertion(text, hunk, &blocks);
    }
    if hunk.at_end {
        let count = hunk.old.lines().count();
        let start = text.rmatch_indices('\n').nth(count).map_or(0, |(at, _)| at + 1);
        let found = locate_within(text, hunk, start..text.len());
        if found.is_ok() {
            return found;
        }
    }
    if blocks.is_empty() {
        return locate_within(text, hunk, 0..text.len());
    }
    let in_blocks =
        single_match(blocks.iter().map(|block| locate_within(text, hunk, block.clone())));
    match (&in_blocks, blocks.first()) {
        (Err(MatchError::NotFound), Some(first)) => {
            locate_within(text, hunk, first.start..text.len())
        }
        _ => in_blocks,
    }
}

fn locate_within<'h>(
    text: &str,
    hunk: &'h Hunk,
    within: Range<usize>,
) -> Result<TextMatch<'h>, MatchError> {
    let old = hunk.old.as_str();
    let new = hunk.new.as_str();
    matching::find(text, &MatchQuery { old, new, all: false, within, whole_lines: true })
}

/// Returns the match in the blocks, unless they have different ones.
fn single_match<'h>(
    tries: impl Iterator<Item = Result<TextMatch<'h>, MatchError>>,
) -> Result<TextMatch<'h>, MatchError> {
    let mut result: Result<TextMatch<'h>, MatchError> = Err(MatchError::NotFound);
    for found in tries {
        match (&result, found) {
            (_, Err(MatchError::NotFound)) => {}
            (Ok(first), Ok(other)) if first.ranges != other.ranges => {
                let places = [&first.ranges, &other.ranges].into_iter().flatten();
                let starts = places.map(|place| place.start).collect();
                return Err(MatchError::Ambiguous {
                    match_kind: other.match_kind,
                    starts,
                    count: 2,
                });
            }
            (_, found) => result = found,
        }
        if matches!(result, Err(MatchError::Ambiguous { .. })) {
            break;
        }
    }
    result
}

/// Locates a hunk that only adds lines: after the line of its last `@@`, or at the end of the file.
fn locate_insertion<'h>(
    text: &str,
    hunk: &'h Hunk,
    blocks: &[Range<usize>],
) -> Result<TextMatch<'h>, MatchError> {
    let at = match blocks {
        [] if hunk.anchors.is_empty() => text.len(),
        [] => return Err(MatchError::NotFound),
        [block] => {
            text[block.start..].find('\n').map_or(text.len(), |newline| block.start + newline + 1)
        }
        [..] => {
            let starts: Vec<_> = blocks.iter().map(|block| block.start).take(10).collect();
            return Err(MatchError::Ambiguous {
                match_kind: MatchKind::Exact,
                starts,
                count: blocks.len(),
            });
        }
    };
    let new = hunk.new.as_str().into();
    Ok(TextMatch { ranges: std::iter::once(at..at).collect(), new, match_kind: MatchKind::Exact })
}

/// The blocks that the `@@` lines of a hunk may refer to: each such line with what is indented
/// below it. Empty if there is no `@@` line, or too many lines match.
fn anchored_blocks(text: &str, names: &[String]) -> Vec<Range<usize>> {
    if names.is_empty() {
        return Vec::new();
    }
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let mut blocks = std::iter::once(0..rows.len()).collect::<Vec<_>>();
    for name in names {
        let mut hits = rows_inside(&blocks, |row| rows[row].trim() == name.as_str());
        if hits.is_empty() {
            hits = rows_inside(&blocks, |row| rows[row].trim().starts_with(name.as_str()));
        }
        if hits.len() > MAX_ANCHOR_MATCHES {
            return Vec::new();
        }
        blocks = hits.into_iter().map(|row| row..block_end(&rows, row)).collect();
    }
    let mut starts = Vec::with_capacity(rows.len() + 1);
    let mut at = 0;
    for row in &rows {
        starts.push(at);
        at += row.len();
    }
    starts.push(at);
    blocks.into_iter().map(|block| starts[block.start]..starts[block.end]).collect()
}

/// The rows of the blocks that fit, in order and once each.
fn rows_inside(blocks: &[Range<usize>], fits: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut hits: Vec<_> = blocks.iter().flat_map(Range::clone).filter(|row| fits(*row)).collect();
    hits.sort_unstable();
    hits.dedup();
    hits
}

/// The end of the block that is indented below a line, including the line that closes it; the end
/// of the text if nothing is indented.
fn block_end(rows: &[&str], head: usize) -> usize {
    let own = depth(rows[head]);
    let inside = rows[head + 1..].iter().take_while(|row| {
        let body = row.trim();
        body.is_empty() || body == "{" || depth(row) > own
    });
    let count = inside.count();
    let end = head + 1 + count;
    if count == 0 {
        return rows.len();
    }
    let is_closed = rows.get(end).is_some_and(|row| {
        let body = row.trim_start();
        body.starts_with(['}', ')', ']']) || body.starts_with("end")
    });
    end + usize::from(is_closed)
}

/// The length of a line's indentation.
fn depth(row: &str) -> usize {
    row.len() - row.trim_start().len()
}
