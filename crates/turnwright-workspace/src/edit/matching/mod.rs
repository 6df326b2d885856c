//! Finds quoted text in a file. Eight kinds of match are tried, from exact to most lenient; the first
//! kind that finds anything decides, and it must find one place only. Text that is merely similar
//! is never matched.

mod exact;
mod typography;
mod indent;
mod lines;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

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
        match self {
            MatchKind::Exact => formatter.write_str("exact"),
            MatchKind::LineNumbers => formatter.write_str("after taking away line numbers"),
            MatchKind::TrailingSpace => formatter.write_str("but for white space at line ends"),
            MatchKind::Indentation(shift) => write!(formatter, "after indentation shift {shift}"),
            MatchKind::Composition => formatter.write_str("but for how characters are composed"),
            MatchKind::Form => {
                formatter.write_str("but for full-width forms, ligatures or invisible characters")
            }
            MatchKind::Punctuation => formatter.write_str("but for quotes, dashes or spaces"),
            MatchKind::Escapes => formatter.write_str("after taking away one level of escapes"),
        }
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
    /// There are several matches of this kind.
    Ambiguous {
        match_kind: MatchKind,
        /// The offsets of the first few matches.
        starts: Vec<usize>,
        /// The number of matches, at least.
        count: usize,
    },
}

/// The most places that are changed at once.
const MAX_PLACES: usize = 1_000_000;
/// The most places that an error names.
const MAX_NAMED: usize = 10;

/// The result of trying one kind of match: `None` if it finds nothing.
type MatchAttempt<'a> = Option<Result<TextMatch<'a>, MatchError>>;

/// Finds a text, trying one kind of match after the other.
pub(super) fn find<'a>(text: &str, query: &MatchQuery<'a>) -> Result<TextMatch<'a>, MatchError> {
    if let Some(answer) =
        exact::match_exact(text, query).or_else(|| exact::match_without_line_numbers(text, query))
    {
        return answer;
    }
    // Text of only white space would match everywhere.
    if !query.old.trim().is_empty() {
        let lines = lines::TextLines::new(text);
        let answer = lines::match_ignoring_trailing_space(&lines, query)
            .or_else(|| indent::match_ignoring_indentation(&lines, query));
        drop(lines);
        if let Some(answer) = answer.or_else(|| typography::match_ignoring_typography(text, query))
        {
            return answer;
        }
    }
    exact::match_without_escapes(text, query).unwrap_or(Err(MatchError::NotFound))
}
