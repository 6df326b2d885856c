//! The rungs that compare bytes: the text as it was quoted, without line numbers, without one
//! level of backslashes.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::Finder;

use super::{Answer, Found, MOST_NAMED, MOST_PLACES, Miss, Query, Rung};

/// The text as it was quoted.
pub(super) fn exact<'a>(text: &str, query: &Query<'a>) -> Answer<'a> {
    search(text, query, query.old, Cow::Borrowed(query.new), Rung::Exact, query.all)
}

/// Without the numbers that a listing puts before each line.
pub(super) fn numbers<'a>(text: &str, query: &Query<'a>) -> Answer<'a> {
    let is_listing = query.old.split_inclusive('\n').all(|it| after_number(it).is_some());
    if !is_listing || query.old.is_empty() {
        return None;
    }
    let bare = |it: &str| -> String {
        it.split_inclusive('\n').map(|line| after_number(line).unwrap_or(line)).collect()
    };
    let (old, new) = (bare(query.old), bare(query.new));
    search(text, query, &old, Cow::Owned(new), Rung::Numbers, query.all)
}

/// What stands after `  12| `, `12→` or `12` and a tab.
fn after_number(line: &str) -> Option<&str> {
    let digits = line.trim_start_matches(' ');
    let mark = digits.trim_start_matches(|it: char| it.is_ascii_digit());
    if mark.len() == digits.len() {
        return None;
    }
    match mark.strip_prefix('|') {
        Some(rest) => Some(rest.strip_prefix(' ').unwrap_or(rest)),
        None => mark.strip_prefix(['→', '\t']),
    }
}

/// Without one level of backslashes, as when a model has escaped its text twice.
pub(super) fn escapes<'a>(text: &str, query: &Query<'a>) -> Answer<'a> {
    let old = unescaped(query.old)?;
    let new = unescaped(query.new).map_or(Cow::Borrowed(query.new), Cow::Owned);
    search(text, query, &old, new, Rung::Escapes, false)
}

/// `None` if there is nothing to take away.
fn unescaped(text: &str) -> Option<String> {
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
    (plain != text).then(|| super::super::lines::normal(&plain))
}

fn search<'a>(
    text: &str,
    query: &Query<'a>,
    old: &str,
    new: Cow<'a, str>,
    rung: Rung,
    all: bool,
) -> Answer<'a> {
    if old.is_empty() {
        return None;
    }
    let pattern = Pattern::new(old, query.whole_lines);
    let places = |within: &Range<usize>| {
        let length = old.len();
        pattern.starts(text, within.clone()).map(move |at| at..at + length)
    };
    if all {
        let places = places(&query.within).take(MOST_PLACES + 1).collect::<Vec<_>>();
        if places.len() > MOST_PLACES {
            return Some(Err(Miss::TooMuch));
        }
        return (!places.is_empty()).then_some(Ok(Found { places, new, rung }));
    }
    let first = places(&query.within).next()?;
    // A second place may overlap the first.
    let Some(second) = places(&(first.start + 1..query.within.end)).next() else {
        return Some(Ok(Found { places: vec![first], new, rung }));
    };
    let mut starts: Vec<_> = places(&query.within).map(|it| it.start).take(MOST_NAMED).collect();
    if starts.len() == 1 {
        starts.push(second.start);
    }
    let count = places(&query.within).count().max(starts.len());
    Some(Err(Miss::Several { rung, starts, count }))
}

/// A text that is looked for, perhaps only where a line begins.
pub(super) struct Pattern<'n> {
    text: &'n str,
    finder: Finder<'n>,
    /// With the end of the line before.
    after_break: Option<Finder<'static>>,
}

impl<'n> Pattern<'n> {
    pub(super) fn new(text: &'n str, begins_line: bool) -> Pattern<'n> {
        let after_break = || Finder::new(&format!("\n{text}")).into_owned();
        let finder = Finder::new(text);
        Pattern { text, finder, after_break: begins_line.then(after_break) }
    }

    /// Where it begins, from left to right, without overlap.
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
