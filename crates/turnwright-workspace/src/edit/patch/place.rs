//! Where the hunks of a patch belong: found as quoted pieces are, each in one place only. The lines
//! behind `@@` narrow the place.

use std::ops::Range;

use super::super::ladder::{self, Found, Miss, Query, Rung};
use super::super::lines::{Lines, normal};
use super::super::{Applied, Done, Reason, Voice, explain, omission, spots};
use super::Hunk;

/// The most places that lines behind `@@` may mean.
const MOST_SCOPES: usize = 50;

/// Why a hunk cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HunkRefusal {
    /// Where the hunk begins in the patch, counted from 1.
    pub line: usize,
    /// Why.
    pub reason: Reason,
}

impl HunkRefusal {
    /// What the model is told about it.
    pub fn explain(&self, name: &str) -> String {
        let quoted = format!("The hunk at line {} of the patch", self.line);
        let cure = "Add context lines, or an `@@` line that stands before it, to make it unique.";
        self.reason.explain(name, &Voice { quoted: &quoted, cure })
    }
}

/// Applies hunks one after the other: all or none.
///
/// # Errors
/// The first hunk that does not fit.
pub fn apply(text: &str, hunks: &[Hunk]) -> Result<Applied, HunkRefusal> {
    let mut lines = Lines::new(text);
    let is_open = lines.close_last();
    let mut done = Vec::new();
    let mut all = Vec::new();
    for hunk in hunks {
        let refuse = |reason| Err(HunkRefusal { line: hunk.line, reason });
        let hunk = &Hunk { old: normal(&hunk.old), new: normal(&hunk.new), ..hunk.clone() };
        if hunk.old == hunk.new {
            return refuse(Reason::Same);
        }
        if let Some(line) = omission::find(&hunk.new, text) {
            let line = hunk.new.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
            return refuse(Reason::Omission { line });
        }
        let found = match find(lines.text(), hunk) {
            Ok(found) => found,
            Err(miss) => return refuse(explain(miss, lines.text(), &hunk.old, false)),
        };
        let changed = lines.replace(&found.places, &found.new);
        all = spots::compose(&all, &changed);
        done.push(Done { rung: found.rung, places: 1 });
    }
    if is_open {
        lines.open_last();
    }
    let now = lines.into_text();
    let count = spots::count(text, &now, &all);
    Ok(Applied { text: now, done, spots: all, count })
}

fn find<'h>(text: &str, hunk: &'h Hunk) -> Result<Found<'h>, Miss> {
    let scopes = scopes(text, &hunk.scopes);
    if hunk.old.is_empty() {
        return insertion(text, hunk, &scopes);
    }
    let look = |within: Range<usize>| {
        let (old, new) = (hunk.old.as_str(), hunk.new.as_str());
        ladder::find(text, &Query { old, new, all: false, within, whole_lines: true })
    };
    if hunk.at_end {
        let count = hunk.old.lines().count();
        let start = text.rmatch_indices('\n').nth(count).map_or(0, |(at, _)| at + 1);
        let found = look(start..text.len());
        if found.is_ok() {
            return found;
        }
    }
    if scopes.is_empty() {
        return look(0..text.len());
    }
    let in_blocks = one(scopes.iter().map(|it| look(it.clone())));
    match (&in_blocks, scopes.first()) {
        (Err(Miss::Nowhere), Some(first)) => look(first.start..text.len()),
        _ => in_blocks,
    }
}

/// The one place that was found.
fn one<'h>(tries: impl Iterator<Item = Result<Found<'h>, Miss>>) -> Result<Found<'h>, Miss> {
    let mut result: Result<Found<'h>, Miss> = Err(Miss::Nowhere);
    for found in tries {
        match (&result, found) {
            (_, Err(Miss::Nowhere)) => {}
            (Ok(one), Ok(other)) if one.places != other.places => {
                let starts = [&one.places, &other.places].into_iter().flatten();
                let starts = starts.map(|it| it.start).collect();
                return Err(Miss::Several { rung: other.rung, starts, count: 2 });
            }
            (_, found) => result = found,
        }
        if matches!(result, Err(Miss::Several { .. })) {
            break;
        }
    }
    result
}

/// A hunk that only adds: after the line behind its `@@`, or at the end.
fn insertion<'h>(text: &str, hunk: &'h Hunk, scopes: &[Range<usize>]) -> Result<Found<'h>, Miss> {
    let at = match scopes {
        [] if hunk.scopes.is_empty() => text.len(),
        [] => return Err(Miss::Nowhere),
        [one] => text[one.start..].find('\n').map_or(text.len(), |it| one.start + it + 1),
        [..] => {
            let starts: Vec<_> = scopes.iter().map(|it| it.start).take(10).collect();
            return Err(Miss::Several { rung: Rung::Exact, starts, count: scopes.len() });
        }
    };
    let new = hunk.new.as_str().into();
    Ok(Found { places: std::iter::once(at..at).collect(), new, rung: Rung::Exact })
}

/// What the lines behind `@@` may mean: each such line and what is indented below it. Nothing, if
/// there are none or too many.
fn scopes(text: &str, names: &[String]) -> Vec<Range<usize>> {
    if names.is_empty() {
        return Vec::new();
    }
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let mut blocks = std::iter::once(0..rows.len()).collect::<Vec<_>>();
    for name in names {
        let rows_that = |fits: fn(&str, &str) -> bool| -> Vec<usize> {
            let inside = blocks.iter().flat_map(Range::clone);
            let mut hits: Vec<_> = inside.filter(|it| fits(rows[*it].trim(), name)).collect();
            hits.sort_unstable();
            hits.dedup();
            hits
        };
        let mut hits = rows_that(|row, name| row == name);
        if hits.is_empty() {
            hits = rows_that(|row, name| row.starts_with(name));
        }
        if hits.len() > MOST_SCOPES {
            return Vec::new();
        }
        blocks = hits.into_iter().map(|it| it..end_of_block(&rows, it)).collect();
    }
    let mut starts = Vec::with_capacity(rows.len() + 1);
    let mut at = 0;
    for row in &rows {
        starts.push(at);
        at += row.len();
    }
    starts.push(at);
    blocks.into_iter().map(|it| starts[it.start]..starts[it.end]).collect()
}

/// Where what is indented below a line ends, with the line that closes it; all that follows if
/// nothing is indented.
fn end_of_block(rows: &[&str], head: usize) -> usize {
    let depth = |row: &str| row.len() - row.trim_start().len();
    let own = depth(rows[head]);
    let inside = |row: &&&str| {
        let body = row.trim();
        body.is_empty() || body == "{" || depth(row) > own
    };
    let count = rows[head + 1..].iter().take_while(inside).count();
    let end = head + 1 + count;
    if count == 0 {
        return rows.len();
    }
    let closes = |row: &&str| {
        let body = row.trim_start();
        body.starts_with(['}', ')', ']']) || body.starts_with("end")
    };
    end + usize::from(rows.get(end).is_some_and(closes))
}
