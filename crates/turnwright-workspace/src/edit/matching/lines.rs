//! The matches that compare line by line: the one that ignores white space at line ends, and the one that ignores a
//! shift of the indentation, if all lines are shifted in the same way. The shift that is measured on the quoted
//! lines is applied to the new ones.

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

    /// The lines that begin in a byte range.
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
    fn match_at<'q>(
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
    let mut found = matching_rows(rows, query, &wanted, str::trim_end);
    let hits: Vec<_> = found.by_ref().take(MAX_NAMED).collect();
    let count = hits.len() + found.count();
    unique_match(rows, hits, count, MatchKind::TrailingSpace, |row, match_kind| {
        rows.match_at(row, query, match_kind, |line| Some(line.to_owned()))
    })
}

/// The unique match, or an error if there are several.
fn unique_match<'a>(
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

/// The rows in the query's part of the text at which the wanted lines begin. Only what `view` returns of a line is
/// compared. Takes linear time whatever is searched for (Knuth-Morris-Pratt).
fn matching_rows(
    text: &TextLines<'_>,
    query: &MatchQuery<'_>,
    wanted: &[&str],
    view: fn(&str) -> &str,
) -> impl Iterator<Item = usize> {
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
    let within = text.within(&query.within);
    let area = text.lines.get(within.start..).filter(|_| !wanted.is_empty());
    let rows = (within.start..).zip(area.unwrap_or_default()).filter_map(move |(row, line)| {
        let line = view(line);
        while same > 0 && line != wanted[same] {
            same = failure[same - 1];
        }
        same += usize::from(line == wanted[same]);
        if same < wanted.len() {
            return None;
        }
        same = failure[same - 1];
        Some(row + 1 - wanted.len())
    });
    rows.take_while(move |row| *row < within.end)
}

/// The most line comparisons for one match.
const MAX_COMPARISONS: usize = 4_000_000;
/// The widest tab stop.
const MAX_TAB_WIDTH: usize = 16;

/// How the indentation of the file differs from the quoted one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IndentShift {
    /// A prefix of each line is removed, or added.
    Prefix { take: String, put: String },
    /// This many spaces, minus an offset, are a tab.
    ToTabs { width: usize, offset: isize },
    /// A tab is this many spaces, plus an offset.
    ToSpaces { width: usize, offset: isize },
}

pub(super) fn match_ignoring_indentation<'a>(
    text: &TextLines<'_>,
    query: &MatchQuery<'a>,
) -> MatchAttempt<'a> {
    let old = lines_of(query.old);
    let wanted: Vec<_> = old.iter().map(|line| line.trim()).collect();
    let mut hits = Vec::new();
    let mut shifts = Vec::new();
    let mut count = 0;
    let mut comparisons = 0;
    for row in matching_rows(text, query, &wanted, str::trim) {
        let file = &text.lines[row..row + old.len()];
        if let Some(shift) = IndentShift::measure(file, &old, &mut comparisons) {
            count += 1;
            if hits.len() < MAX_NAMED {
                hits.push(row);
                shifts.push(shift);
            }
        }
        // The rest of the text is not examined, so a match may not be the only one.
        if comparisons > MAX_COMPARISONS {
            return None;
        }
    }
    let shift = shifts.into_iter().next()?;
    let match_kind = MatchKind::Indentation(shift.to_string());
    unique_match(text, hits, count, match_kind, |row, match_kind| {
        text.match_at(row, query, match_kind, |line| shift.apply(line))
    })
}

impl IndentShift {
    /// The shift that explains all lines, if there is one.
    fn measure(file: &[&str], old: &[&str], comparisons: &mut usize) -> Option<IndentShift> {
        let mut pairs = Vec::with_capacity(old.len().min(64));
        let mut prefix: Option<Option<(&str, &str)>> = None;
        let mut in_file = IndentChars::None;
        let mut quoted = IndentChars::None;
        for (file, old) in file.iter().zip(old) {
            *comparisons += 1;
            if old.trim().is_empty() {
                continue;
            }
            let file = indentation(file);
            let old = indentation(old);
            in_file = in_file.with(file);
            quoted = quoted.with(old);
            let this = difference(file, old);
            let so_far = *prefix.get_or_insert(this);
            if so_far != this {
                prefix = Some(None);
            }
            let pair = (file.len(), old.len());
            if pairs.last() != Some(&pair) {
                pairs.push(pair);
            }
            let may_differ = matches!(
                (in_file, quoted),
                (IndentChars::Tabs, IndentChars::Spaces)
                    | (IndentChars::Spaces, IndentChars::Tabs)
                    | (IndentChars::None, _)
                    | (_, IndentChars::None)
            );
            if prefix == Some(None) && !may_differ {
                return None;
            }
        }
        match (in_file, quoted) {
            (IndentChars::Tabs, IndentChars::Spaces) => {
                let swapped = pairs.iter().map(|(file, old)| (*old, *file));
                fit_line(swapped).map(|(width, offset)| IndentShift::ToTabs { width, offset })
            }
            (IndentChars::Spaces, IndentChars::Tabs) => fit_line(pairs.into_iter())
                .map(|(width, offset)| IndentShift::ToSpaces { width, offset }),
            _ => {
                let (take, put) = prefix.flatten()?;
                Some(IndentShift::Prefix { take: take.to_owned(), put: put.to_owned() })
            }
        }
    }

    /// Shifts a new line; `None` if it cannot be shifted.
    fn apply(&self, line: &str) -> Option<String> {
        let body = line.trim_start();
        if body.is_empty() {
            return Some(String::new());
        }
        let own = indentation(line);
        let (tabs, spaces) = match self {
            IndentShift::Prefix { take, put } => {
                let rest = own.strip_prefix(take.as_str())?;
                let mixes = (put.contains('\t') && rest.contains(' '))
                    || (put.contains(' ') && rest.contains('\t'));
                return (!mixes).then(|| format!("{put}{rest}{body}"));
            }
            IndentShift::ToTabs { .. } if own.contains('\t') => return None,
            IndentShift::ToSpaces { .. } if own.contains(' ') => return None,
            IndentShift::ToTabs { width, offset } => {
                let rest = own.len().checked_add_signed(-offset)?;
                (rest / width, rest % width)
            }
            IndentShift::ToSpaces { width, offset } => {
                (0, (own.len() * width).checked_add_signed(*offset)?)
            }
        };
        Some(format!("{}{}{body}", "\t".repeat(tabs), " ".repeat(spaces)))
    }
}

/// The prefixes that are removed from and added to a line.
fn difference<'l>(file: &'l str, old: &'l str) -> Option<(&'l str, &'l str)> {
    match file.strip_suffix(old) {
        Some(put) => Some(("", put)),
        None => old.strip_suffix(file).map(|take| (take, "")),
    }
}

/// Fits a linear function to pairs of a wide and a narrow indentation: the width of one step, and
/// the offset.
fn fit_line(mut pairs: impl Iterator<Item = (usize, usize)>) -> Option<(usize, isize)> {
    let first = pairs.next()?;
    let rest: Vec<_> = pairs.filter(|pair| *pair != first).collect();
    let (width, offset) = match rest.first() {
        None => {
            let is_whole = first.1 > 0 && first.0.is_multiple_of(first.1);
            (first.0.checked_div(first.1).filter(|_| is_whole)?, 0)
        }
        Some(other) => {
            let (low, high) = if other.1 > first.1 { (first, *other) } else { (*other, first) };
            let wide = high.0.checked_sub(low.0)?;
            let narrow = high.1 - low.1;
            let is_whole = narrow > 0 && wide.is_multiple_of(narrow);
            let width = wide.checked_div(narrow).filter(|_| is_whole)?;
            (width, low.0.cast_signed() - (low.1 * width).cast_signed())
        }
    };
    let fits = (2..=MAX_TAB_WIDTH).contains(&width)
        && rest
            .iter()
            .all(|(wide, narrow)| wide.cast_signed() == (narrow * width).cast_signed() + offset);
    fits.then_some((width, offset))
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// The characters that some indentations consist of.
#[derive(Clone, Copy, Debug)]
enum IndentChars {
    None,
    Tabs,
    Spaces,
    Others,
}

impl IndentChars {
    /// Takes one more indentation into account.
    fn with(self, indentation: &str) -> IndentChars {
        indentation.chars().fold(self, |all, char| match (all, char) {
            (IndentChars::None | IndentChars::Tabs, '\t') => IndentChars::Tabs,
            (IndentChars::None | IndentChars::Spaces, ' ') => IndentChars::Spaces,
            _ => IndentChars::Others,
        })
    }
}

fn width_in_words(indentation: &str) -> String {
    match (indentation.len(), indentation.contains('\t')) {
        (1, true) => "1 tab".to_owned(),
        (count, true) => format!("{count} tabs"),
        (count, false) => count.to_string(),
    }
}

impl std::fmt::Display for IndentShift {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IndentShift::Prefix { take, put } if take.is_empty() => {
                write!(formatter, "+{}", width_in_words(put))
            }
            IndentShift::Prefix { take, .. } => write!(formatter, "−{}", width_in_words(take)),
            IndentShift::ToTabs { width, .. } => write!(formatter, "from {width} spaces to tabs"),
            IndentShift::ToSpaces { width, .. } => write!(formatter, "from tabs to {width} spaces"),
        }
    }
}
