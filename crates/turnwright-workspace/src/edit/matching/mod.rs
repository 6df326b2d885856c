//! Finds quoted text in a file. Eight kinds of match are tried, from exact to most lenient; the first
//! kind that finds anything decides, and it must find one place only. Text that is merely similar
//! is never matched.

mod lines;

use std::borrow::Cow;
use std::fmt;
use std::iter;
use std::ops::Range;

use memchr::memmem::Finder;

use turnwright_types::look_alike::{
    compatible, composed, first_cluster, is_invisible, is_mark, typed, without_entities,
};

use lines::{carry_over_edit, lines_of};

/// The text to find and its replacement. All line endings are `\n`.
#[derive(Clone, Debug)]
pub(super) struct MatchQuery<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    /// True to find all exact matches, and not only one.
    pub(super) all: bool,
    /// The range in which the match must begin.
    pub(super) within: Range<usize>,
    /// True if the match must begin at a line start.
    pub(super) whole_lines: bool,
}

/// How a text was matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// Byte for byte, apart from line endings.
    Exact,
    /// After removing line numbers that were quoted before each line.
    LineNumbers,
    /// Apart from white space at line ends.
    TrailingSpace,
    /// With another indentation, shifted in the same way for all lines; how it differs.
    Indentation(String),
    /// Apart from how characters are composed.
    Composition,
    /// Apart from typographic quotation marks, dashes or spaces.
    Punctuation,
    /// Apart from the form of characters, and from invisible ones.
    Form,
    /// After removing one level of backslash escapes or entities of HTML.
    Escapes,
}

impl fmt::Display for MatchKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: &str = match self {
            MatchKind::Exact => "exact",
            MatchKind::LineNumbers => "after taking away line numbers",
            MatchKind::TrailingSpace => "but for white space at line ends",
            MatchKind::Indentation(shift) => &format!("after indentation shift {shift}"),
            MatchKind::Composition => "but for how characters are composed",
            MatchKind::Form => "but for full-width forms, ligatures or invisible characters",
            MatchKind::Punctuation => "but for quotes, dashes or spaces",
            MatchKind::Escapes => "after taking away one level of escapes",
        };
        formatter.write_str(words)
    }
}

/// Where a text was found.
#[derive(Debug)]
pub(super) struct TextMatch<'a> {
    /// The matched ranges, in order and without overlap; one, unless all were requested.
    pub(super) ranges: Vec<Range<usize>>,
    /// The replacement, adapted to the way the text was matched.
    pub(super) new: Cow<'a, str>,
    pub(super) match_kind: MatchKind,
}

/// Why there is no unique match.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MatchError {
    /// No kind of match finds it.
    NotFound,
    /// There are too many places, or the result would be too large.
    TooLarge,
    /// The only place is a part of the new text, which begins at this offset.
    AlreadyMade { start: usize },
    /// There are several matches of this kind, at least `count`. The first few begin at these offsets.
    Ambiguous { match_kind: MatchKind, starts: Vec<usize>, count: usize },
}

/// The most places that are changed at once.
const MAX_PLACES: usize = 1_000_000;
/// The most places that an error names.
const MAX_NAMED: usize = 10;

/// The result of trying one kind of match: `None` if it finds nothing.
type MatchAttempt<'a> = Option<Result<TextMatch<'a>, MatchError>>;

/// Finds a text, trying one kind of match after the other.
pub(super) fn find<'a>(text: &str, query: &MatchQuery<'a>) -> Result<TextMatch<'a>, MatchError> {
    let answer = match_exact(text, query).or_else(|| match_without_line_numbers(text, query));
    if let Some(answer) = answer {
        return answer;
    }
    // Text of only white space would match everywhere.
    if !query.old.trim().is_empty() {
        let lines = lines::TextLines::new(text);
        let answer = lines::match_ignoring_trailing_space(&lines, query)
            .or_else(|| lines::match_ignoring_indentation(&lines, query));
        drop(lines);
        if let Some(answer) = answer.or_else(|| match_ignoring_typography(text, query)) {
            return answer;
        }
    }
    match_without_escapes(text, query).unwrap_or(Err(MatchError::NotFound))
}

fn match_exact<'a>(text: &str, query: &MatchQuery<'a>) -> MatchAttempt<'a> {
    search(text, query, query.old, Cow::Borrowed(query.new), MatchKind::Exact, query.all)
}

/// Matches after removing the numbers that a listing puts before each line.
fn match_without_line_numbers<'a>(text: &str, query: &MatchQuery<'a>) -> MatchAttempt<'a> {
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
fn match_without_escapes<'a>(text: &str, query: &MatchQuery<'a>) -> MatchAttempt<'a> {
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

/// Takes one level of escapes from the text of a file that was escaped twice. Such a text is a single line with `\n`
/// where lines should end, and the first `\n` is outside of quotes and patterns. `None` for any other text.
pub fn unescaped_lines(text: &str) -> Option<String> {
    let (first, _) = text.split_once("\\n")?;
    // An escaped `"` begins no quote.
    let bare = first.replace("\\\"", "");
    let is_inside = ['"', '\'', '`'].iter().any(|quote| bare.matches(*quote).count() % 2 == 1)
        || first.matches('[').count() > first.matches(']').count()
        || first.ends_with(['/', '(', '^', '|', '\\'])
        || text.contains("\\r");
    let has_ends =
        text.ends_with("\\n") || ["\\n\\n", "\\n\\t", "\\n  "].iter().any(|end| text.contains(end));
    // A single `\n` may be meant as it is, and those in a key on one line are.
    let is_literal = text.matches("\\n").count() < 2 || text.contains("-----BEGIN ");
    let was_escaped_twice = has_ends && !is_inside && !is_literal && !text.contains('\n');
    if was_escaped_twice { unescape(text) } else { None }
}

/// Takes the numbers from lines that were copied as `read_file` shows them. `None` for any other text.
pub fn unnumbered_lines(text: &str) -> Option<String> {
    let first: u32 = text.get(1..5)?.trim_start().parse().ok()?;
    let mut lines = (first..).zip(text.split_inclusive('\n'));
    let is_listing = lines.all(|(number, line)| line.starts_with(&format!("{number:>5}|")));
    (is_listing && text.contains('\n')).then(|| without_line_numbers(text))
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
    (plain != text).then(|| super::buffer::to_lf(&plain))
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
struct TextPattern<'n> {
    text: &'n str,
    finder: Finder<'n>,
    /// Finds the text preceded by a newline.
    after_break: Option<Finder<'static>>,
}

impl<'n> TextPattern<'n> {
    fn new(text: &'n str, begins_line: bool) -> TextPattern<'n> {
        let after_break = begins_line.then(|| Finder::new(&format!("\n{text}")).into_owned());
        TextPattern { text, finder: Finder::new(text), after_break }
    }

    /// The offsets of the text from left to right, without overlap.
    fn starts(&self, text: &str, within: Range<usize>) -> impl Iterator<Item = usize> {
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

/// The most candidate places that are examined.
const MAX_CANDIDATES: usize = 100;

/// Folds a text so that what counts as the same for a kind of match is the same.
fn fold(text: &str, kind: &MatchKind) -> String {
    let mut folded = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (cluster, after) = rest.split_at(first_cluster(rest).len());
        folded.push_str(&fold_cluster(cluster, kind));
        rest = after;
    }
    folded
}

/// Folds a character with the marks that belong to it.
fn fold_cluster<'c>(text: &'c str, kind: &MatchKind) -> Cow<'c, str> {
    match kind {
        _ if text.is_ascii() => Cow::Borrowed(text),
        MatchKind::Composition => composed(text),
        MatchKind::Form => compatible(text).replace(is_invisible, "").chars().map(typed).collect(),
        _ if text == "…" => Cow::Borrowed("..."),
        _ => text.chars().map(typed).collect(),
    }
}

fn match_ignoring_typography<'a>(text: &str, query: &MatchQuery<'a>) -> MatchAttempt<'a> {
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
        while self.folded < folded && self.at < self.text.len() {
            let cluster = first_cluster(&self.text[self.at..]);
            self.folded += fold_cluster(cluster, self.kind).len();
            self.at += cluster.len();
        }
        (self.folded == folded).then_some(self.at)
    }
}
