//! The matches that compare bytes: the text as quoted, without line numbers, without one level of
//! escapes.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::Finder;

use super::{MAX_NAMED, MAX_PLACES, MatchAttempt, MatchError, MatchKind, MatchQuery, TextMatch};
use turnwright_types::entities::without_entities;

pub(super) fn match_exact<'a>(text: &str, query: &MatchQuery<'a>) -> MatchAttempt<'a> {
    search(text, query, query.old, Cow::Borrowed(query.new), MatchKind::Exact, query.all)
}

/// Matches after removing the numbers that a listing puts before each line.
pub(super) fn match_without_line_numbers<'a>(
    text: &str,
    query: &MatchQuery<'a>,
) -> MatchAttempt<'a> {
    let is_listing = query.old.split_inclusive('\n').all(|line| strip_line_number(line).is_some());
    if !is_listing || query.old.is_empty() {
        return None;
    }
    let old = without_line_numbers(query.old);
    let new = without_line_numbers(query.new);
    search(text, query, &old, Cow::Owned(new), MatchKind::LineNumbers, query.all)
}

fn without_line_numbers(text: &str) -> String {
    text.split_inclusive('\n').map(|line| strip_line_number(line).unwrap_or(line)).collect()
}

/// The rest of a line after `  12| `, `12→` or `12` and a tab.
fn strip_line_number(line: &str) -> Option<&str> {
    let digits = line.trim_start_matches(' ');
    let mark = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    if mark.len() == digits.len() {
        return None;
    }
    match mark.strip_prefix('|') {
        Some(rest) => Some(rest.strip_prefix(' ').unwrap_or(rest)),
        None => mark.strip_prefix(['→', '\t']),
    }
}

/// Matches after removing one level of backslash escapes, for models that escaped their text twice, or of the
/// entities of HTML.
pub(super) fn match_without_escapes<'a>(text: &str, query: &MatchQuery<'a>) -> MatchAttempt<'a> {
    let matched = match_decoded(text, query, unescape);
    matched.or_else(|| match_decoded(text, query, without_entities))
}

fn match_decoded<'a>(
    text: &str,
    query: &MatchQuery<'a>,
    decode: fn(&str) -> Option<String>,
) -> MatchAttempt<'a> {
    let old = decode(query.old)?;
    let new = decode(query.new).map_or(Cow::Borrowed(query.new), Cow::Owned);
    search(text, query, &old, new, MatchKind::Escapes, false)
}

/// Removes one level of backslash escapes; `None` if there is none.
fn unescape(text: &str) -> Option<String> {
    memchr::memchr(b'\\', text.as_bytes())?;
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let meant = match (char, chars.peek()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some(same @ ('"' | '\'' | '\\'))) => Some(*same),
            _ => None,
        };
        if meant.is_some() {
            chars.next();
        }
        plain.push(meant.unwrap_or(char));
    }
    (plain != text).then(|| super::super::buffer::to_lf(&plain))
}

fn search<'a>(
    text: &str,
    query: &MatchQuery<'a>,
    old: &str,
    new: Cow<'a, str>,
    match_kind: MatchKind,
    all: bool,
) -> MatchAttempt<'a> {
    if old.is_empty() {
        return None;
    }
    let pattern = TextPattern::new(old, query.whole_lines);
    let places = |within: &Range<usize>| {
        let length = old.len();
        pattern.starts(text, within.clone()).map(move |at| at..at + length)
    };
    if all {
        let places = places(&query.within).take(MAX_PLACES + 1).collect::<Vec<_>>();
        if places.len() > MAX_PLACES {
            return Some(Err(MatchError::TooLarge));
        }
        return (!places.is_empty()).then_some(Ok(TextMatch { ranges: places, new, match_kind }));
    }
    let first = places(&query.within).next()?;
    // A second match may overlap the first.
    let Some(second) = places(&(first.start + 1..query.within.end)).next() else {
        return Some(Ok(TextMatch { ranges: vec![first], new, match_kind }));
    };
    let mut starts: Vec<_> =
        places(&query.within).map(|place| place.start).take(MAX_NAMED).collect();
    if starts.len() == 1 {
        starts.push(second.start);
    }
    let count = places(&query.within).count().max(starts.len());
    Some(Err(MatchError::Ambiguous { match_kind, starts, count }))
}

/// A text to search for, optionally only at line starts.
pub(super) struct TextPattern<'n> {
    text: &'n str,
    finder: Finder<'n>,
    /// Finds the text preceded by a newline.
    after_break: Option<Finder<'static>>,
}

impl<'n> TextPattern<'n> {
    pub(super) fn new(text: &'n str, begins_line: bool) -> TextPattern<'n> {
        let after_break = begins_line.then(|| Finder::new(&format!("\n{text}")).into_owned());
        TextPattern { text, finder: Finder::new(text), after_break }
    }

    /// The offsets of the text from left to right, without overlap.
    pub(super) fn starts(&self, text: &str, within: Range<usize>) -> impl Iterator<Item = usize> {
        let Range { start, end } = within;
        let last = end.saturating_add(self.text.len()).min(text.len());
        let lead = usize::from(self.after_break.is_some() && start > 0);
        let area = text.as_bytes().get(start - lead..last).unwrap_or_default();
        let is_first = self.after_break.is_some() && start == 0 && text.starts_with(self.text);
        let finder = self.after_break.as_ref().unwrap_or(&self.finder);
        let skip = usize::from(self.after_break.is_some());
        let hits = finder.find_iter(area).map(move |at| start - lead + at + skip);
        is_first.then_some(0).into_iter().chain(hits).filter(move |at| *at < end)
    }
}
