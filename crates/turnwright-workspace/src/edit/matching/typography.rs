//! The matches that ignore how characters are written: composed or not, with other quotes, dashes and spaces, or
//! in another form, such as full width. Each folds both texts in the same way.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use turnwright_types::look_alike::{compatible, composed, first_cluster, is_invisible, is_mark};

use super::lines::{carry_over_edit, lines_of};
use super::{MAX_NAMED, MatchAttempt, MatchError, MatchKind, MatchQuery, TextMatch, TextPattern};

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

/// Folds a text so that what counts as the same for a kind of match is the same.
fn fold(text: &str, kind: &MatchKind) -> String {
    let mut folded = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (cluster, after) = rest.split_at(first_cluster(rest).len());
        fold_cluster(cluster, kind, &mut folded);
        rest = after;
    }
    folded
}

/// Folds a character with the marks that belong to it.
fn fold_cluster(cluster: &str, kind: &MatchKind, folded: &mut String) {
    let chars = match kind {
        _ if cluster.is_ascii() => return folded.push_str(cluster),
        MatchKind::Composition => return folded.push_str(&composed(cluster)),
        MatchKind::Form => compatible(cluster),
        _ => Cow::Borrowed(cluster),
    };
    for char in chars.chars().filter(|char| *kind != MatchKind::Form || !is_invisible(*char)) {
        match ascii_form(char) {
            Some(ascii_form) => folded.push_str(ascii_form),
            None => folded.push(char),
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
    let kinds = [MatchKind::Composition, MatchKind::Punctuation, MatchKind::Form];
    kinds.into_iter().find_map(|kind| match_folded(text, query, kind))
}

fn match_folded<'a>(text: &str, query: &MatchQuery<'a>, match_kind: MatchKind) -> MatchAttempt<'a> {
    let old = fold(query.old, &match_kind);
    if old.trim().is_empty() {
        return None;
    }
    let folded = fold(text, &match_kind);
    let pattern = TextPattern::new(&old, query.whole_lines);
    let first = pattern.starts(&folded, 0..folded.len()).next()?;
    // A second match may overlap the first.
    let second = pattern.starts(&folded, first + 1..folded.len()).take(1);
    let others = pattern.starts(&folded, 0..folded.len()).skip(1);
    // Both texts are in order, so one pass through the text finds the original offsets.
    let mut cursor = FoldedCursor::new(text, &match_kind);
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
        let start = cursor.original_offset(hit).filter(|start| query.within.contains(start));
        let mut ahead = cursor.clone();
        let end = start.and_then(|_| ahead.original_offset(hit + old.len()));
        places.extend(start.zip(end).map(|(start, end)| start..end));
        if places.len() == MAX_NAMED {
            break;
        }
    }
    let place = places.first()?.clone();
    if places.len() > 1 {
        let starts: Vec<_> = places.iter().map(|place| place.start).collect();
        let count = starts.len();
        return Some(Err(MatchError::Ambiguous { match_kind, starts, count }));
    }
    let file = lines_of(&text[place.clone()]);
    let quoted = lines_of(query.old);
    let new = carry_over_edit(&file, &quoted, query.new, |replaced, line| {
        let kept = replaced.and_then(|(file, old)| carry_over_line(file, old, line, &match_kind));
        Some(kept.unwrap_or_else(|| line.to_owned()))
    })?;
    Some(Ok(TextMatch { ranges: vec![place], new: Cow::Owned(new), match_kind }))
}

/// The changed line with the beginning and the end of the file's own that the edit leaves alone.
fn carry_over_line(file: &str, old: &str, new: &str, kind: &MatchKind) -> Option<String> {
    let mut head = 0;
    let mut tail = 0;
    while head < old.len() && first_cluster(&old[head..]) == first_cluster(&new[head..]) {
        head += first_cluster(&old[head..]).len();
    }
    let ends = old[head..].char_indices().rev().zip(new[head..].chars().rev());
    for ((at, char), _) in ends.take_while(|((_, old), new)| old == new) {
        // A mark stays with the character that it belongs to.
        if !is_mark(char) {
            tail = old.len() - head - at;
        }
    }
    let mut cursor = FoldedCursor::new(file, kind);
    let start = cursor.original_offset(fold(&old[..head], kind).len())?;
    let end = cursor.original_offset(fold(&old[..old.len() - tail], kind).len())?;
    Some([&file[..start], &new[head..new.len() - tail], &file[end..]].concat())
}

/// Maps offsets of the folded text to the original text.
#[derive(Clone)]
struct FoldedCursor<'t> {
    text: &'t str,
    kind: &'t MatchKind,
    at: usize,
    folded: usize,
}

impl<'t> FoldedCursor<'t> {
    fn new(text: &'t str, kind: &'t MatchKind) -> FoldedCursor<'t> {
        FoldedCursor { text, kind, at: 0, folded: 0 }
    }

    /// The offset in the original text; `None` if it is inside of a character.
    fn original_offset(&mut self, folded: usize) -> Option<usize> {
        let mut buffer = String::new();
        while self.folded < folded && self.at < self.text.len() {
            let cluster = first_cluster(&self.text[self.at..]);
            buffer.clear();
            fold_cluster(cluster, self.kind, &mut buffer);
            self.folded += buffer.len();
            self.at += cluster.len();
        }
        (self.folded == folded).then_some(self.at)
    }
}
