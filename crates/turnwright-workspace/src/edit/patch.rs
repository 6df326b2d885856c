//! Parses patches in the format that some models are trained on: `*** Begin Patch`, files, hunks.
//! Hunks are located and applied: their old lines are matched as the old text of an edit is, and must match in one
//! place only; `@@` lines narrow the search.

use std::ops::Range;

use super::buffer::{EditBuffer, to_lf};
use super::matching::{self, MatchError, MatchKind, MatchQuery, TextMatch};
use super::{AppliedEdit, AppliedEdits, EditErrorKind, explain, find_placeholder, line_changes};
use turnwright_types::text;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// The error for a line of a hunk without its mark.
const UNMARKED: &str =
    "each line of a hunk begins with a space, `-` or `+`; unchanged lines with a space";

const MAX_PATCH_BYTES: usize = 8 * 1024 * 1024;
/// The most files, and the most hunks of all files together.
const MAX_FILES: usize = 100;
const MAX_HUNKS: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// The path as written in the patch.
    pub path: String,
    pub change: PatchOp,
}

impl FilePatch {
    /// The path, and the new path of a file that is moved.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let to = match &mut self.change {
            PatchOp::Update { to, .. } => to.as_mut(),
            PatchOp::Add { .. } | PatchOp::Delete => None,
        };
        std::iter::once(&mut self.path).chain(to)
    }
}

/// The effect of a patch on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchOp {
    /// The file is created.
    Add {
        text: String,
    },
    Delete,
    /// The file is changed, moved to a new path, or both.
    Update {
        to: Option<String>,
        hunks: Vec<Hunk>,
    },
}

/// A change of consecutive lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// The line of the patch where the hunk begins, counted from 1.
    pub line: usize,
    /// The `@@` lines: lines of the file that come before the hunk, the outermost first.
    pub anchors: Vec<String>,
    /// The old lines, each terminated.
    pub old: String,
    /// The new lines, each terminated.
    pub new: String,
    /// True if the hunk is at the end of the file.
    pub at_end: bool,
    /// True if the new lines replace all others: the file is deleted and added again.
    pub is_whole: bool,
}

/// Parses a patch.
///
/// # Errors
/// Says what is wrong with it, and in which line.
pub fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    if text.len() > MAX_PATCH_BYTES {
        return Err("the patch is longer than 8 MiB".to_owned());
    }
    let mut parser = PatchParser { lines: text.lines().collect(), at: 0 };
    if !parser.enter_patch() {
        return Err(format!("line 1: a patch begins with `{BEGIN}`"));
    }
    let mut files: Vec<FilePatch> = Vec::new();
    loop {
        let line = parser.next().ok_or_else(|| {
            parser.error(&format!("the patch does not end with `{END}`: was it cut off?"))
        })?;
        // Some models send several patches in one call.
        if line.trim() == END && !parser.enter_patch() {
            break;
        }
        if ["", END].contains(&line.trim()) {
            continue;
        }
        let file = parser.parse_file(line)?;
        let Some(twin) = files.iter_mut().find(|other| other.path == file.path) else {
            files.push(file);
            continue;
        };
        match (&mut twin.change, file.change) {
            (PatchOp::Update { hunks, .. }, PatchOp::Update { to: None, hunks: more }) => {
                hunks.extend(more);
            }
            (before, PatchOp::Add { text: new }) if *before == PatchOp::Delete => {
                let hunk = Hunk { line: parser.at, new, is_whole: true, ..Hunk::default() };
                *before = PatchOp::Update { to: None, hunks: vec![hunk] };
            }
            _ => return Err(parser.error(&format!("{} comes twice: make two patches", file.path))),
        }
    }
    let hunks = files.iter().map(|file| match &file.change {
        PatchOp::Update { hunks, .. } => hunks.len(),
        PatchOp::Add { .. } | PatchOp::Delete => 0,
    });
    match (files.len(), hunks.sum::<usize>()) {
        (0, _) => Err(parser.error("the patch names no file")),
        (MAX_FILES.., _) => Err(format!("more than {MAX_FILES} files: make several patches")),
        (_, MAX_HUNKS..) => Err(format!("more than {MAX_HUNKS} hunks: make several patches")),
        _ => Ok(files),
    }
}

/// A parser over the lines of a patch.
struct PatchParser<'t> {
    lines: Vec<&'t str>,
    at: usize,
}

impl<'t> PatchParser<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.lines.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'t str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// Goes behind the next line that begins a patch; returns false if none follows.
    fn enter_patch(&mut self) -> bool {
        let begin = self.lines[self.at..].iter().position(|line| line.trim() == BEGIN);
        self.at += begin.map_or(0, |lines| lines + 1);
        begin.is_some()
    }

    /// Formats an error about the line that was read last.
    fn error(&self, what: &str) -> String {
        format!("line {}: {what}", self.at)
    }

    /// The next line, unless another file begins.
    fn next_file_line(&mut self) -> Option<&'t str> {
        self.peek().filter(|line| !line.starts_with("*** ") || line.trim() == END_OF_FILE)?;
        self.next()
    }

    fn parse_file(&mut self, header: &str) -> Result<FilePatch, String> {
        if let Some(rest) = header.strip_prefix(ADD) {
            let path = self.parse_path(rest)?;
            return Ok(FilePatch { path, change: self.parse_added_file()? });
        }
        if let Some(rest) = header.strip_prefix(DELETE) {
            return Ok(FilePatch { path: self.parse_path(rest)?, change: PatchOp::Delete });
        }
        if let Some(rest) = header.strip_prefix(UPDATE) {
            let path = self.parse_path(rest)?;
            return Ok(FilePatch { path, change: self.parse_updated_file()? });
        }
        let shown = text::first_chars(header, 80);
        Err(self.error(&format!("`{shown}` is none of `{ADD}`, `{UPDATE}`, `{DELETE}`, `{END}`")))
    }

    fn parse_path(&self, rest: &str) -> Result<String, String> {
        let path = rest.strip_prefix(' ').unwrap_or(rest).to_owned();
        if path.trim().is_empty() { Err(self.error("a path is missing")) } else { Ok(path) }
    }

    fn parse_added_file(&mut self) -> Result<PatchOp, String> {
        let mut text = String::new();
        while let Some(line) = self.next_file_line() {
            match line.strip_prefix('+') {
                Some(line) => {
                    text.push_str(line);
                    text.push('\n');
                }
                None if line.is_empty() && self.is_before(&["*** "]) => {}
                None => return Err(self.error("each line of a new file begins with `+`")),
            }
        }
        Ok(PatchOp::Add { text })
    }

    /// Returns true if only empty lines follow before one that begins with one of these.
    fn is_before(&self, marks: &[&str]) -> bool {
        let next = self.lines[self.at..].iter().find(|line| !line.is_empty());
        next.is_none_or(|line| marks.iter().any(|mark| line.starts_with(*mark)))
    }

    fn parse_updated_file(&mut self) -> Result<PatchOp, String> {
        let mut to = None;
        if let Some(rest) = self.peek().and_then(|line| line.strip_prefix(MOVE)) {
            self.at += 1;
            to = Some(self.parse_path(rest)?);
        }
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut hunk = Hunk { line: self.at + 1, ..Hunk::default() };
        while let Some(line) = self.next_file_line() {
            if let Some(anchor) = line.strip_prefix("@@") {
                if !hunk.is_empty() {
                    hunks.push(std::mem::take(&mut hunk));
                }
                hunk.line = self.at;
                hunk.anchors.extend(parse_anchor(anchor));
            } else if line.trim() == END_OF_FILE {
                hunk.at_end = true;
            } else if line.is_empty() && self.is_before(&["*** ", "@@"]) {
                // An empty line between hunks is not a line of the file.
            } else {
                self.parse_hunk_line(&mut hunk, line)?;
            }
        }
        if !hunk.is_empty() {
            hunks.push(hunk);
        } else if !hunk.anchors.is_empty() {
            return Err(self.error("after `@@` no lines to change follow"));
        }
        if hunks.is_empty() && to.is_none() {
            return Err(self.error("nothing is to be changed in this file"));
        }
        Ok(PatchOp::Update { to, hunks })
    }

    fn parse_hunk_line(&self, hunk: &mut Hunk, line: &str) -> Result<(), String> {
        let mut chars = line.chars();
        let sign = chars.next();
        let body = chars.as_str();
        let (is_old, is_new) = match sign {
            Some(' ') | None => (true, true),
            Some('-') => (true, false),
            Some('+') => (false, true),
            // `\ No newline at end of file`: the end of the file is left as it is.
            Some('\\') => return Ok(()),
            Some(_) => return Err(self.error(UNMARKED)),
        };
        for (text, is_there) in [(&mut hunk.old, is_old), (&mut hunk.new, is_new)] {
            if is_there {
                text.push_str(body);
                text.push('\n');
            }
        }
        Ok(())
    }
}

impl Hunk {
    fn is_empty(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }
}

/// The anchor after `@@`. Line numbers, as in a unified diff, are an anchor only where no text follows them.
fn parse_anchor(rest: &str) -> Option<String> {
    let rest = rest.trim();
    let text = match rest.split_once("@@") {
        Some((_, anchor)) if are_numbers(rest) && !anchor.is_empty() => anchor,
        _ => rest.strip_suffix("@@").unwrap_or(rest),
    };
    let anchor = text.trim();
    (!anchor.is_empty()).then(|| anchor.to_owned())
}

fn are_numbers(anchor: &str) -> bool {
    anchor.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// If an `@@` line occurs more often than this, it is ignored.
const MAX_ANCHOR_MATCHES: usize = 50;

/// The advice for when the old lines of a hunk occur more than once.
const HINT: &str = "Add context lines, or an `@@` line that stands before it, to make it unique.";

/// Applies hunks one after the other to the text of the file `name`. If one fails, none is applied.
///
/// # Errors
/// A message for the model about the first hunk that cannot be applied.
pub fn apply(text: &str, hunks: &[Hunk], name: &str) -> Result<AppliedEdits, String> {
    let mut lines = EditBuffer::new(text);
    let was_unterminated = lines.terminate_last_line();
    let mut done = Vec::new();
    let mut all = Vec::new();
    for hunk in hunks {
        let hunk = &Hunk { old: to_lf(&hunk.old), new: to_lf(&hunk.new), ..hunk.clone() };
        let found = find_old_lines(text, lines.text(), hunk).map_err(|kind| {
            kind.explain(name, &format!("The hunk at line {} of the patch", hunk.line), HINT)
        })?;
        let changed = lines.replace(&found.ranges, &found.new);
        all = line_changes::compose(&all, &changed);
        done.push(AppliedEdit { match_kind: found.match_kind, occurrences: 1 });
    }
    if was_unterminated && !hunks.iter().any(|hunk| hunk.is_whole) {
        lines.unterminate_last_line();
    }
    let now = lines.into_text();
    let line_counts = line_changes::count_changed_lines(text, &now, &all);
    Ok(AppliedEdits { text: now, edits: done, changes: all, line_counts })
}

/// Finds the old lines of a hunk in a text that was `before` until the hunks before this one changed it.
fn find_old_lines<'h>(
    before: &str,
    text: &str,
    hunk: &'h Hunk,
) -> Result<TextMatch<'h>, EditErrorKind> {
    if hunk.old == hunk.new && !hunk.is_whole {
        return Err(EditErrorKind::NoChange);
    }
    let argument = if hunk.is_whole { "content" } else { "new_string" };
    if let Some(kind) = find_placeholder(&hunk.new, before, argument) {
        return Err(kind);
    }
    locate(text, hunk).map_err(|miss| explain(miss, text, &hunk.old, false))
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
    let Hunk { old, new, .. } = hunk;
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
                let match_kind = other.match_kind;
                return Err(MatchError::Ambiguous { match_kind, starts, count: 2 });
            }
            (_, found) => result = found,
        }
        if matches!(result, Err(MatchError::Ambiguous { .. })) {
            break;
        }
    }
    result
}

/// Locates a hunk that only adds lines: after the line of its last `@@`, or at the end of the file if it says so or
/// says nothing. If it has only line numbers, it is nowhere: models never get them right.
fn locate_insertion<'h>(
    text: &str,
    hunk: &'h Hunk,
    blocks: &[Range<usize>],
) -> Result<TextMatch<'h>, MatchError> {
    let match_kind = MatchKind::Exact;
    let at = match blocks {
        _ if hunk.at_end || hunk.is_whole => text.len(),
        [] if hunk.anchors.is_empty() || text.is_empty() => text.len(),
        [] => return Err(MatchError::NotFound),
        [block] => {
            text[block.start..].find('\n').map_or(text.len(), |newline| block.start + newline + 1)
        }
        [..] => {
            let starts: Vec<_> = blocks.iter().map(|block| block.start).take(10).collect();
            return Err(MatchError::Ambiguous { match_kind, starts, count: blocks.len() });
        }
    };
    let new = hunk.new.as_str().into();
    let place = if hunk.is_whole { 0..at } else { at..at };
    Ok(TextMatch { ranges: std::iter::once(place).collect(), new, match_kind })
}

/// The blocks that the `@@` lines of a hunk may refer to: each such line with what is indented
/// below it. Empty if there is no `@@` line with more than numbers, or too many lines match.
fn anchored_blocks(text: &str, names: &[String]) -> Vec<Range<usize>> {
    let mut texts = names.iter().filter(|name| !are_numbers(name)).peekable();
    if texts.peek().is_none() {
        return Vec::new();
    }
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let mut blocks = std::iter::once(0..rows.len()).collect::<Vec<_>>();
    for name in texts {
        let mut hits = rows_inside(&blocks, |row| rows[row].trim() == name.as_str());
        if hits.is_empty() {
            hits = rows_inside(&blocks, |row| rows[row].trim().starts_with(name.as_str()));
        }
        if hits.len() > MAX_ANCHOR_MATCHES {
            return Vec::new();
        }
        blocks = hits.into_iter().map(|row| row..block_end(&rows, row)).collect();
    }
    let offset = |row: usize| rows[..row].iter().copied().map(str::len).sum::<usize>();
    blocks.into_iter().map(|block| offset(block.start)..offset(block.end)).collect()
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
