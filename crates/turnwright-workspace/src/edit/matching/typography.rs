//! The matches that ignore how characters are written: composed or not, with other quotes, dashes and spaces, or
//! in another form, such as full width. Each folds both texts in the same way.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use turnwright_types::line_diff::DiffOp;
use turnwright_types::look_alike::{compatible, decomposed, first_cluster, is_invisible, is_mark};

use super::super::buffer::diff_lines;
use super::exact::TextPattern;
use super::lines::lines_of;
use super::{MAX_NAMED, MatchAttempt, MatchError, MatchKind, MatchQuery, TextMatch};

/// The most candidate places that are examined.
const MAX_CANDIDATES: usize = 100;

/// The ASCII form of a typographic character.
fn ascii_form(char: char) -> Option<&'static str> {
    Some(match char {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => "'",
        '\u{201c}'..='\u{201f}' | '\u{2033}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "-",
        '\u{2026}' => "...",
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => " ",
        _ => return None,
    })
}

/// What is taken for the same, from the closest to the most different.
#[derive(Clone, Copy, Debug)]
enum Folding {
    Composition,
    Typography,
    Form,
}

impl Folding {
    fn match_kind(self) -> MatchKind {
        match self {
            Folding::Composition => MatchKind::Composition,
            Folding::Typography => MatchKind::Punctuation,
            Folding::Form => MatchKind::Form,
        }
    }

    fn fold(self, text: &str) -> String {
        let mut folded = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let cluster = first_cluster(rest);
            self.fold_cluster(cluster, &mut folded);
            rest = &rest[cluster.len()..];
        }
        folded
    }

    /// Folds a character with the marks that belong to it.
    fn fold_cluster(self, cluster: &str, folded: &mut String) {
        let chars = match self {
            _ if cluster.is_ascii() => return folded.push_str(cluster),
            Folding::Composition => return folded.push_str(&decomposed(cluster)),
            Folding::Typography => Cow::Borrowed(cluster),
            Folding::Form => compatible(cluster),
        };
        for char in chars.chars() {
            match ascii_form(char) {
                Some(ascii_form) => folded.push_str(ascii_form),
                None if matches!(self, Folding::Form) && is_invisible(char) => {}
                None => folded.push(char),
            }
        }
    }
}

pub(super) fn match_ignoring_typography<'a>(
    text: &str,
    query: &MatchQuery<'a>,
) -> MatchAttempt<'a> {
    if text.is_ascii() && query.old.is_ascii() {
        return None;
    }
    let kinds = [Folding::Composition, Folding::Typography, Folding::Form];
    kinds.into_iter().find_map(|folding| match_folded(text, query, folding))
}

fn match_folded<'a>(text: &str, query: &MatchQuery<'a>, folding: Folding) -> MatchAttempt<'a> {
    let old = folding.fold(query.old);
    if old.trim().is_empty() {
        return None;
    }
    let folded = folding.fold(text);
    let pattern = TextPattern::new(&old, query.whole_lines);
    let first = pattern.starts(&folded, 0..folded.len()).next()?;
    // A second match may overlap the first.
    let second = pattern.starts(&folded, first + 1..folded.len()).take(1);
    let others = pattern.starts(&folded, 0..folded.len()).skip(1);
    // Both texts are in order, so one pass through the text finds the original offsets.
    let mut cursor = FoldedCursor::new(text, folding);
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut hits: Vec<_> =
        iter::once(first).chain(second).chain(others.take(MAX_CANDIDATES)).collect();
    // Not all candidates can be examined, so a match may not be the only one.
    if hits.len() > MAX_CANDIDATES {
        return None;
    }
    hits.sort_unstable();
    hits.dedup();
    for hit in hits {
        let start = cursor.original_offset(hit).filter(|it| query.within.contains(it));
        let mut ahead = cursor.clone();
        let end = start.and_then(|_| ahead.original_offset(hit + old.len()));
        places.extend(start.zip(end).map(|(start, end)| start..end));
        if places.len() == MAX_NAMED {
            break;
        }
    }
    let place = places.first()?.clone();
    if places.len() > 1 {
        let starts: Vec<_> = places.iter().map(|it| it.start).collect();
        let count = starts.len();
        return Some(Err(MatchError::Ambiguous {
            match_kind: folding.match_kind(),
            starts,
            count,
        }));
    }
    let new = carry_over(&text[place.clone()], query, folding);
    let (ranges, match_kind) = (vec![place], folding.match_kind());
    Some(Ok(TextMatch { ranges, new: Cow::Owned(new), match_kind }))
}

/// The replacement for a passage of the file that was quoted in another way: what the edit does not change stays
/// as it is in the file.
fn carry_over(file: &str, query: &MatchQuery<'_>, folding: Folding) -> String {
    let (file, old, new) = (lines_of(file), lines_of(query.old), lines_of(query.new));
    let mut lines = Vec::with_capacity(new.len());
    for op in diff_lines(&old, &new) {
        let (old_range, new_range) = (op.old_range(), op.new_range());
        if let DiffOp::Equal { .. } = op {
            lines.extend(file[old_range].iter().map(|line| Cow::Borrowed(*line)));
        } else if old_range.len() == new_range.len() {
            for (row, new_row) in old_range.zip(new_range) {
                let line = carry_over_line(file[row], old[row], new[new_row], folding);
                lines.push(line.map_or(Cow::Borrowed(new[new_row]), Cow::Owned));
            }
        } else {
            lines.extend(new[new_range].iter().map(|line| Cow::Borrowed(*line)));
        }
    }
    let mut text = lines.join("\n");
    if query.new.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The changed line with the beginning and the end of the file's own that the edit leaves alone.
fn carry_over_line(file: &str, old: &str, new: &str, folding: Folding) -> Option<String> {
    let mut head = 0;
    while head < old.len() && first_cluster(&old[head..]) == first_cluster(&new[head..]) {
        head += first_cluster(&old[head..]).len();
    }
    let (mut old_end, mut new_end) = (old.len(), new.len());
    let ends = old[head..].char_indices().rev().zip(new[head..].char_indices().rev());
    for ((old_at, old_char), (new_at, new_char)) in ends {
        if old_char != new_char {
            break;
        }
        // Marks stay with the character that they belong to.
        if !is_mark(old_char) {
            (old_end, new_end) = (head + old_at, head + new_at);
        }
    }
    let mut cursor = FoldedCursor::new(file, folding);
    let start = cursor.original_offset(folding.fold(&old[..head]).len())?;
    let end = cursor.original_offset(folding.fold(&old[..old_end]).len())?;
    Some([&file[..start], &new[head..new_end], &file[end..]].concat())
}

/// Maps offsets of the folded text to the original text.
#[derive(Clone)]
struct FoldedCursor<'t> {
    text: &'t str,
    folding: Folding,
    at: usize,
    folded: usize,
}

impl<'t> FoldedCursor<'t> {
    fn new(text: &'t str, folding: Folding) -> FoldedCursor<'t> {
        FoldedCursor { text, folding, at: 0, folded: 0 }
    }

    /// The offset in the original text; `None` if it is inside of a character.
    fn original_offset(&mut self, folded: usize) -> Option<usize> {
        let mut buffer = String::new();
        while self.folded < folded && self.at < self.text.len() {
            let cluster = first_cluster(&self.text[self.at..]);
            buffer.clear();
            self.folding.fold_cluster(cluster, &mut buffer);
            self.folded += buffer.len();
            self.at += cluster.len();
        }
        (self.folded == folded).then_some(self.at)
    }
}
