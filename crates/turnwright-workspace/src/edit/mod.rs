//! Applies edits to texts as models describe them: quoted old and new text, and patches. Pure:
//! takes the text of a file and returns the new text or an error, and knows nothing of files.

mod closest;
mod matching;
mod buffer;
pub mod omission;
pub mod patch;
pub mod line_changes;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

pub use closest::SimilarLines;
use closest::closest_lines;
pub use matching::{MatchKind, unescaped_lines, unnumbered_lines};

use buffer::{EditBuffer, count_newlines, to_lf};
use line_changes::{LineChange, LineCounts};
use matching::{MatchError, MatchQuery};
use turnwright_types::text::last_chars;

const MAX_EDITS: usize = 200;
/// The argument of `edit_file` with the text that is replaced.
const OLD_NAME: &str = "old_string";
/// The longest old or new text of an edit, in bytes.
const MAX_EDIT_BYTES: usize = 8 * 1024 * 1024;
/// The largest text that an edit may produce, in bytes, unless it was larger before.
const MAX_RESULT_BYTES: usize = 32 * 1024 * 1024;

/// Replaces a piece of text with another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextEdit {
    pub old: String,
    pub new: String,
    /// True to replace all occurrences instead of exactly one.
    pub replace_all: bool,
}

/// The result of one edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedEdit {
    /// How the old text was matched.
    pub match_kind: MatchKind,
    /// How many occurrences were replaced.
    pub occurrences: usize,
}

/// The result of all edits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedEdits {
    pub text: String,
    pub edits: Vec<AppliedEdit>,
    pub changes: Vec<LineChange>,
    /// How many lines were added and removed.
    pub line_counts: LineCounts,
}

/// An edit that could not be applied, so that nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError {
    /// The index of the edit, from 0.
    pub index: usize,
    pub kind: EditErrorKind,
}

/// Why an edit cannot be applied. Lines count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditErrorKind {
    NoEdits,
    /// There are more than [`MAX_EDITS`] edits.
    TooManyEdits,
    /// The old or new text is too long.
    TooLong,
    EmptyOldText,
    /// The old and new text are equal.
    NoChange,
    /// The new text has a line that is a placeholder for omitted text, or the end of the call. The line ends like this.
    Placeholder {
        line: String,
    },
    /// The old text is not in the file. `matched_before` is true if it was there before the preceding edits were
    /// applied.
    NotFound {
        similar: Vec<SimilarLines>,
        matched_before: bool,
    },
    /// There are too many occurrences, or the result would be too large.
    TooLarge,
    /// The only occurrence is a part of the new text, which begins in this line.
    AlreadyMade {
        line: usize,
    },
    /// The old text occurs more than once. The first few occurrences begin in these lines.
    Ambiguous {
        match_kind: MatchKind,
        lines: Vec<usize>,
        count: usize,
    },
}

/// Applies edits one after the other, each to the result of the one before. If one fails, none is
/// applied.
///
/// # Errors
/// The first edit that cannot be applied.
pub fn apply(text: &str, edits: &[TextEdit]) -> Result<AppliedEdits, EditError> {
    if edits.is_empty() {
        return Err(EditError { index: 0, kind: EditErrorKind::NoEdits });
    } else if edits.len() > MAX_EDITS {
        return Err(EditError { index: MAX_EDITS, kind: EditErrorKind::TooManyEdits });
    }
    for (index, edit) in edits.iter().enumerate() {
        if let Some(kind) = validate(text, edit) {
            return Err(EditError { index, kind });
        }
    }
    let mut lines = EditBuffer::new(text);
    let mut applied = Vec::new();
    let mut changes = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        match apply_one(&mut lines, edit) {
            Ok((step, changed)) => {
                applied.push(step);
                changes = line_changes::compose(&changes, &changed);
            }
            Err(miss) => {
                let matched_before = index > 0 && to_lf(text).contains(&to_lf(&edit.old));
                let kind = explain(miss, lines.text(), &edit.old, matched_before);
                return Err(EditError { index, kind });
            }
        }
    }
    let now = lines.into_text();
    let line_counts = line_changes::count_changed_lines(text, &now, &changes);
    Ok(AppliedEdits { text: now, edits: applied, changes, line_counts })
}

/// Finds what is wrong with an edit, apart from whether the old text can be found.
fn validate(text: &str, edit: &TextEdit) -> Option<EditErrorKind> {
    if edit.old.len().max(edit.new.len()) > MAX_EDIT_BYTES {
        return Some(EditErrorKind::TooLong);
    }
    if edit.old.is_empty() {
        return Some(EditErrorKind::EmptyOldText);
    }
    if to_lf(&edit.old) == to_lf(&edit.new) {
        return Some(EditErrorKind::NoChange);
    }
    find_placeholder(&edit.new, text, "new_string")
}

fn find_placeholder(new: &str, old: &str, argument: &str) -> Option<EditErrorKind> {
    let number = omission::find_placeholder(new, old, argument)?;
    let line = last_chars(new.lines().nth(number - 1).unwrap_or_default().trim(), 120).to_owned();
    Some(EditErrorKind::Placeholder { line })
}

fn apply_one(
    lines: &mut EditBuffer,
    edit: &TextEdit,
) -> Result<(AppliedEdit, Vec<LineChange>), MatchError> {
    let old = normalized(&edit.old);
    let new = normalized(&edit.new);
    let within = 0..lines.text().len();
    let query =
        MatchQuery { old: &old, new: &new, all: edit.replace_all, within, whole_lines: false };
    let found = matching::find(lines.text(), &query)?;
    if !edit.replace_all
        && let [place] = &found.ranges[..]
        && let Some(start) = start_of_made_edit(lines.text(), place, &found.new)
    {
        return Err(MatchError::AlreadyMade { start });
    }
    let before = lines.text().len();
    let removed: usize = found.ranges.iter().map(Range::len).sum();
    let after =
        (before - removed).saturating_add(found.ranges.len().saturating_mul(found.new.len()));
    if after > MAX_RESULT_BYTES.max(before) {
        return Err(MatchError::TooLarge);
    }
    lines.adopt_line_ending(&edit.new);
    let changes = lines.replace(&found.ranges, &found.new);
    Ok((AppliedEdit { match_kind: found.match_kind, occurrences: found.ranges.len() }, changes))
}

/// Returns where the new text of an edit stands around the only occurrence of its old text. Models that see their edit
/// succeed make it again, and what it adds would be there twice.
fn start_of_made_edit(text: &str, place: &Range<usize>, new: &str) -> Option<usize> {
    let offsets = new.match_indices(&text[place.clone()]).map(|(offset, _)| offset);
    let mut starts = offsets.filter_map(|offset| place.start.checked_sub(offset));
    starts.find(|start| text.get(*start..).is_some_and(|rest| rest.starts_with(new)))
}

fn normalized(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { Cow::Owned(to_lf(text)) } else { Cow::Borrowed(text) }
}

fn explain(miss: MatchError, text: &str, old: &str, matched_before: bool) -> EditErrorKind {
    match miss {
        MatchError::NotFound => {
            EditErrorKind::NotFound { similar: closest_lines(text, old), matched_before }
        }
        MatchError::TooLarge => EditErrorKind::TooLarge,
        MatchError::AlreadyMade { start } => {
            EditErrorKind::AlreadyMade { line: count_newlines(&text[..start]) }
        }
        MatchError::Ambiguous { match_kind, starts, count } => {
            let lines = starts.iter().map(|start| count_newlines(&text[..*start])).collect();
            EditErrorKind::Ambiguous { match_kind, lines, count }
        }
    }
}

impl EditError {
    /// The error message for the model. `name` is the file, `of` the number of edits.
    pub fn explain(&self, name: &str, of: usize) -> String {
        let hint = "Add surrounding lines to make it unique or set replace_all.";
        let why = self.kind.explain(name, OLD_NAME, hint);
        if of > 1 { format!("Edit {} of {of}: {why}", self.index + 1) } else { why }
    }
}

impl EditErrorKind {
    /// The error message for the model. `old_name` is the argument or the hunk that has the old text, and `hint` is
    /// advice for when the text occurs more than once.
    fn explain(&self, name: &str, old_name: &str, hint: &str) -> String {
        let why = match self {
            EditErrorKind::NoEdits => {
                "Nothing to replace: give both old_string and new_string.".to_owned()
            }
            EditErrorKind::TooManyEdits => format!(
                "more than {MAX_EDITS} edits in one call: make several calls, or use write_file."
            ),
            EditErrorKind::TooLong => "old_string or new_string is longer than 8 MiB.".to_owned(),
            EditErrorKind::EmptyOldText => {
                "old_string is empty. To create, replace or append to a file use \
                              write_file; to insert, quote a line beside, repeated in new_string."
                    .to_owned()
            }
            EditErrorKind::NoChange if old_name == OLD_NAME => {
                "old_string and new_string are the same; nothing would change.".to_owned()
            }
            EditErrorKind::NoChange => format!("{old_name} would change nothing in {name}."),
            EditErrorKind::Placeholder { line } => format!("`{line}` {}", omission::REFUSAL),
            EditErrorKind::TooLarge => format!(
                "{old_name} is in more than a million places, or the text would become larger than \
                 32 MiB. Use exec for a change of that size."
            ),
            EditErrorKind::AlreadyMade { line } => format!(
                "new_string is in {name} already, from line {}: this edit was made before. To add it once \
                 more, quote more lines in {old_name}.",
                line + 1
            ),
            EditErrorKind::NotFound { similar, matched_before } => {
                not_found_message(name, old_name, similar, *matched_before)
            }
            EditErrorKind::Ambiguous { match_kind, lines, count } => {
                ambiguous_message(match_kind, lines, *count, old_name, hint)
            }
        };
        format!("{why}\nNothing was written.")
    }
}

fn not_found_message(
    name: &str,
    old_name: &str,
    similar: &[SimilarLines],
    matched_before: bool,
) -> String {
    let mut text = format!("{old_name} not found in {name}.");
    if matched_before {
        text.push_str(
            " It was there before the edits before this one: each edit works on what the ones \
             before have left.",
        );
    }
    let Some(best) = similar.first() else {
        text.push_str(" Nothing there is like it. Read the file and copy exactly.");
        return text;
    };
    text.push_str(&format!(" Closest: {} ({} %)", range(best), best.percent));
    for other in &similar[1..] {
        text.push_str(&format!(", {} ({} %)", range(other), other.percent));
    }
    text.push('.');
    if let Some(difference) = &best.difference {
        text.push_str(&format!(" {difference}"));
    }
    let from = best.lines.start.saturating_sub(5) + 1;
    let to = best.lines.end + 5;
    text.push_str(&format!(" Re-read lines {from}–{to} or copy exactly.\n"));
    for (number, lines) in similar.iter().enumerate() {
        if number > 0 {
            text.push_str("…\n");
        }
        text.push_str(&lines.excerpt);
    }
    text.truncate(text.trim_end().len());
    text
}

fn range(near: &SimilarLines) -> String {
    match near.lines.len() {
        1 => format!("line {}", near.lines.end),
        _ => format!("lines {}–{}", near.lines.start + 1, near.lines.end),
    }
}

fn ambiguous_message(
    match_kind: &MatchKind,
    lines: &[usize],
    count: usize,
    old_name: &str,
    hint: &str,
) -> String {
    let named: Vec<_> = lines.iter().map(|line| (line + 1).to_string()).collect();
    let more = if count > lines.len() { ", …" } else { "" };
    let named = format!("matches {count} places: lines {}{more}", named.join(", "));
    if *match_kind == MatchKind::Exact {
        return format!("{old_name} {named}. {hint}");
    }
    let but = match match_kind {
        MatchKind::Indentation(_) => "but for indentation".to_owned(),
        match_kind => match_kind.to_string(),
    };
    format!(
        "{old_name} is nowhere exactly; {but} it {named}. Copy exactly, with enough lines around it \
         to make it unique."
    )
}
