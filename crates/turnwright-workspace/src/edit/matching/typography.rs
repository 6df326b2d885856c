//! The match that ignores typography: curly quotes, long dashes, special spaces.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use super::exact::TextPattern;
use super::lines::{carry_over_edit, lines_of};
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

fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for char in text.chars() {
        match ascii_form(char) {
            Some(ascii_form) => folded.push_str(ascii_form),
            None => folded.push(char),
        }
    }
    folded
}

pub(super) fn match_ignoring_typography<'a>(
    text: &str,
    query: &MatchQuery<'a>,
) -> MatchAttempt<'a> {
    if text.is_ascii() && query.old.is_ascii() {
        return None;
    }
    let old = fold(query.old);
    let folded = fold(text);
    let pattern = TextPattern::new(&old, query.whole_lines);
    let first = pattern.starts(&folded, 0..folded.len()).next()?;
    // A second match may overlap the first.
    let second = pattern.starts(&folded, first + 1..folded.len()).take(1);
    let others = pattern.starts(&folded, 0..folded.len()).skip(1);
    // Both texts are in order, so one pass through the text finds the original offsets.
    let mut cursor = FoldedCursor { text, at: 0, folded: 0 };
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
        let mut ahead = FoldedCursor { ..cursor };
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
            match_kind: MatchKind::Punctuation,
            starts,
            count,
        }));
    }
    let (file, quoted) = (lines_of(&text[place.clone()]), lines_of(query.old));
    let new = carry_over_edit(&file, &quoted, query.new, |line| Some(line.to_owned()))?;
    Some(Ok(TextMatch {
        ranges: vec![place],
        new: Cow::Owned(new),
        match_kind: MatchKind::Punctuation,
    }))
}

/// Maps offsets of the folded text to the original text.
struct FoldedCursor<'t> {
    text: &'t str,
    at: usize,
    folded: usize,
}

impl FoldedCursor<'_> {
    /// The offset in the original text; `None` if it is inside of a character.
    fn original_offset(&mut self, folded: usize) -> Option<usize> {
        for char in self.text[self.at..].chars() {
            if self.folded >= folded {
                break;
            }
            self.folded += ascii_form(char).map_or(char.len_utf8(), str::len);
            self.at += char.len_utf8();
        }
        (self.folded == folded).then_some(self.at)
    }
}
