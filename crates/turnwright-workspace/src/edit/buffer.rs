//! A text while it is edited: stored with `\n` only, and beside it the original line endings, so
//! that untouched lines keep theirs.

use std::ops::Range;
use std::time::Instant;

use super::line_changes::LineChange;
use turnwright_types::line_diff::{DiffOp, align, common_ends};

/// Regions with more pairs of lines than this are not compared line by line.
const MAX_LINE_PAIRS: usize = 4_000_000;

/// A line ending. A lone carriage return is an ordinary character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eol {
    Lf,
    CrLf,
}

#[derive(Clone, Debug)]
enum EolMap {
    /// All lines have the same ending, or there is none yet.
    Same(Eol),
    /// One ending for each `\n` of the text.
    Each(Vec<Eol>),
}

#[derive(Clone, Debug)]
pub(super) struct EditBuffer {
    text: String,
    ends: EolMap,
}

/// The whole lines that neighbouring replacements touch.
struct EditRegion {
    bytes: Range<usize>,
    new: String,
    /// The position in the old text up to which `new` is complete.
    copied: usize,
    /// True if the ending of the last line lies behind everything that is replaced, so that it
    /// stays.
    keeps_last_eol: bool,
}

impl EditBuffer {
    pub(super) fn new(text: &str) -> EditBuffer {
        if memchr::memchr(b'\r', text.as_bytes()).is_none() {
            return EditBuffer { text: text.to_owned(), ends: EolMap::Same(Eol::Lf) };
        }
        let bytes = text.as_bytes();
        let all: Vec<_> = memchr::memchr_iter(b'\n', bytes)
            .map(|at| if bytes[..at].ends_with(b"\r") { Eol::CrLf } else { Eol::Lf })
            .collect();
        let ends = match all.first() {
            None => EolMap::Same(Eol::Lf),
            Some(first) if all.iter().all(|end| end == first) => EolMap::Same(*first),
            Some(_) => EolMap::Each(all),
        };
        EditBuffer { text: to_lf(text), ends }
    }

    /// The text with `\n` for each line ending.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// If the text has no line ending yet, new lines get the first one of `new`.
    pub(super) fn adopt_line_ending(&mut self, new: &str) {
        if memchr::memchr(b'\n', self.text.as_bytes()).is_none() {
            let first = new.find('\n').map(|at| new[..at].ends_with('\r'));
            let end = if first == Some(true) { Eol::CrLf } else { Eol::Lf };
            self.ends = EolMap::Same(end);
        }
    }

    /// Terminates the last line, so that all lines are alike. Returns whether it was unterminated.
    pub(super) fn terminate_last_line(&mut self) -> bool {
        let is_unterminated = !self.text.is_empty() && !self.text.ends_with('\n');
        if is_unterminated {
            self.text.push('\n');
            if let EolMap::Each(ends) = &mut self.ends {
                ends.extend(ends.last().copied());
            }
        }
        is_unterminated
    }

    /// Removes the ending of the last line.
    pub(super) fn unterminate_last_line(&mut self) {
        if self.text.pop().is_some()
            && let EolMap::Each(ends) = &mut self.ends
        {
            ends.pop();
        }
    }

    /// Replaces each of these ranges, which are in order and do not overlap. Returns which lines
    /// changed.
    pub(super) fn replace(&mut self, places: &[Range<usize>], new: &str) -> Vec<LineChange> {
        let regions = self.regions(places, new);
        let mut ends = Vec::new();
        let mut changes = Vec::new();
        let mut done = 0;
        let mut line = 0;
        let mut new_line = 0;
        for EditRegion { bytes, new, keeps_last_eol, .. } in &regions {
            let untouched = &self.text[done..bytes.start];
            let count = count_newlines(untouched);
            let old = &self.text[bytes.clone()];
            if let EolMap::Each(all) = &self.ends {
                ends.extend_from_slice(&all[line..line + count]);
                let before = &all[line + count..line + count + count_newlines(old)];
                merge_eols(old, before, new, all[0], &mut ends);
                if let (true, true, Some(last), Some(own)) =
                    (*keeps_last_eol, new.ends_with('\n'), ends.last_mut(), before.last())
                {
                    *last = *own;
                }
            }
            line += count;
            new_line += count;
            let change = LineChange {
                before: line..line + count_lines(old),
                after: new_line..new_line + count_lines(new),
            };
            line += count_newlines(old);
            new_line += count_newlines(new);
            done = bytes.end;
            changes.push(change.trimmed(old, new));
        }
        if let EolMap::Each(all) = &mut self.ends {
            ends.extend_from_slice(&all[line..]);
            *all = ends;
        }
        self.apply_regions(&regions);
        changes
    }

    fn apply_regions(&mut self, regions: &[EditRegion]) {
        // A single region is replaced in place, so that many edits of a large text copy as little
        // as possible.
        if let [EditRegion { bytes, new, .. }] = regions {
            return self.text.replace_range(bytes.clone(), new);
        }
        let mut text = String::with_capacity(self.text.len());
        let mut done = 0;
        for EditRegion { bytes, new, .. } in regions {
            text.push_str(&self.text[done..bytes.start]);
            text.push_str(new);
            done = bytes.end;
        }
        text.push_str(&self.text[done..]);
        self.text = text;
    }

    fn regions(&self, places: &[Range<usize>], new: &str) -> Vec<EditRegion> {
        let bytes = self.text.as_bytes();
        let mut regions: Vec<EditRegion> = Vec::new();
        for place in places {
            let end = regions.last().map_or(0, |region| region.bytes.end);
            if regions.is_empty() || place.start >= end {
                self.complete(regions.last_mut());
                let start =
                    memchr::memrchr(b'\n', &bytes[..place.start]).map_or(0, |newline| newline + 1);
                regions.push(EditRegion {
                    bytes: start..start,
                    new: String::new(),
                    copied: start,
                    keeps_last_eol: false,
                });
            }
            if let Some(region) = regions.last_mut() {
                region.new.push_str(&self.text[region.copied..place.start]);
                region.new.push_str(new);
                region.copied = place.end;
                if place.end >= region.bytes.end {
                    region.bytes.end = touched_line_end(bytes, place, new);
                    let joins = !region.new.is_empty() && !region.new.ends_with('\n');
                    if joins && region.bytes.end == place.end {
                        // The rest of the line before is joined with the next line.
                        region.bytes.end = line_end(bytes, place.end);
                    }
                }
            }
        }
        self.complete(regions.last_mut());
        regions
    }

    /// Completes a region with the rest of its last line.
    fn complete(&self, region: Option<&mut EditRegion>) {
        if let Some(region) = region {
            region.keeps_last_eol = region.copied < region.bytes.end;
            region.new.push_str(&self.text[region.copied..region.bytes.end]);
            region.copied = region.bytes.end;
        }
    }

    /// The text with the line endings restored.
    pub(super) fn into_text(self) -> String {
        match self.ends {
            EolMap::Same(Eol::Lf) => self.text,
            EolMap::Same(Eol::CrLf) => self.text.replace('\n', "\r\n"),
            EolMap::Each(ends) => {
                let mut text = String::with_capacity(self.text.len() + ends.len());
                let mut ends = ends.into_iter();
                for line in self.text.split_inclusive('\n') {
                    let body = line.strip_suffix('\n');
                    text.push_str(body.unwrap_or(line));
                    if body.is_some() {
                        text.push_str(if ends.next() == Some(Eol::CrLf) { "\r\n" } else { "\n" });
                    }
                }
                text
            }
        }
    }
}

/// Replaces CRLF with LF.
pub(super) fn to_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

pub(super) fn count_newlines(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

/// The number of lines, whether the last one is terminated or not.
fn count_lines(text: &str) -> usize {
    count_newlines(text) + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

/// The end of the last line that a replacement touches.
fn touched_line_end(bytes: &[u8], place: &Range<usize>, new: &str) -> usize {
    // If whole lines replace whole lines, the next line is not touched.
    let is_whole = new.ends_with('\n') || new.is_empty() && is_line_start(bytes, place.start);
    if is_line_start(bytes, place.end) && is_whole {
        return place.end;
    }
    line_end(bytes, place.end)
}

fn is_line_start(bytes: &[u8], at: usize) -> bool {
    at == 0 || bytes[at - 1] == b'\n'
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    memchr::memchr(b'\n', &bytes[from..]).map_or(bytes.len(), |newline| from + newline + 1)
}

/// Determines the endings of the new lines: an unchanged or changed line keeps its ending, and an
/// added one gets the ending of the line before.
fn merge_eols(old: &str, before: &[Eol], new: &str, first: Eol, ends: &mut Vec<Eol>) {
    let old: Vec<_> = old.split_inclusive('\n').collect();
    let new: Vec<_> = new.split_inclusive('\n').collect();
    for op in diff_lines(&old, &new) {
        let old_index = op.old_range().start;
        let old_count = op.old_range().len();
        for (number, line) in new[op.new_range()].iter().enumerate() {
            if line.ends_with('\n') {
                let own = before.get(old_index + number).filter(|_| number < old_count);
                ends.push(own.or(ends.last()).copied().unwrap_or(first));
            }
        }
    }
}

/// Diffs lines. Regions that are too large to compare count as rewritten, apart from their common
/// beginning and end.
pub(super) fn diff_lines(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    diff_lines_until(old, new, None)
}

/// Like [`diff_lines`], for regions of any size, as precisely as possible until the deadline.
pub(super) fn diff_lines_until(
    old: &[&str],
    new: &[&str],
    deadline: Option<Instant>,
) -> Vec<DiffOp> {
    let (head, tail) = common_ends(old, new);
    let old_len = old.len() - head - tail;
    let new_len = new.len() - head - tail;
    let mut ops = vec![DiffOp::Equal { old_index: 0, new_index: 0, len: head }];
    if deadline.is_some() || old_len.saturating_mul(new_len) <= MAX_LINE_PAIRS {
        let old = &old[head..head + old_len];
        let new = &new[head..head + new_len];
        let middle = align(old, new, deadline);
        ops.extend(middle.into_iter().map(|op| shift_op(op, head)));
    } else {
        ops.push(DiffOp::Replace { old_index: head, old_len, new_index: head, new_len });
    }
    let old_index = head + old_len;
    let new_index = head + new_len;
    ops.push(DiffOp::Equal { old_index, new_index, len: tail });
    ops
}

/// The same further on in both texts. What is not equal counts as replaced.
fn shift_op(op: DiffOp, by: usize) -> DiffOp {
    let old = op.old_range();
    let new = op.new_range();
    let old_index = old.start + by;
    let new_index = new.start + by;
    match op {
        DiffOp::Equal { len, .. } => DiffOp::Equal { old_index, new_index, len },
        _ => DiffOp::Replace { old_index, old_len: old.len(), new_index, new_len: new.len() },
    }
}
