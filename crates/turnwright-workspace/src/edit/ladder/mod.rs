//! Where a text is that a model has quoted, and how exactly it has quoted it. Six rungs, from the
//! exact bytes down; the first that finds anything decides, and it must find one place. What is
//! merely similar is never taken.

mod exact;
mod fold;
mod indent;
mod rows;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// What is looked for, and what is to stand in its place. All line ends are `\n`.
#[derive(Clone, Debug)]
pub(super) struct Query<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    /// Every place that is exact, and not only one.
    pub(super) all: bool,
    /// Where it must begin.
    pub(super) within: Range<usize>,
    /// Whether it must begin where a line does.
    pub(super) whole_lines: bool,
}

/// How a text was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Byte for byte, line ends aside.
    Exact,
    /// Without the line numbers that stood before each line.
    Numbers,
    /// Without the white space at the ends of lines.
    TrailingSpace,
    /// With another indentation, the same for all lines; how it differs.
    Indentation(String),
    /// With other quotation marks, dashes or spaces.
    Punctuation,
    /// With one level of backslashes less.
    Escapes,
}

impl fmt::Display for Rung {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rung::Exact => formatter.write_str("exact"),
            Rung::Numbers => formatter.write_str("after taking away line numbers"),
            Rung::TrailingSpace => formatter.write_str("but for white space at line ends"),
            Rung::Indentation(shift) => write!(formatter, "after indentation shift {shift}"),
            Rung::Punctuation => formatter.write_str("but for quotes, dashes or spaces"),
            Rung::Escapes => formatter.write_str("after taking away one level of backslashes"),
        }
    }
}

/// Where it is.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// In order, without overlap; one, if not all were asked for.
    pub(super) places: Vec<Range<usize>>,
    /// What is to stand there.
    pub(super) new: Cow<'a, str>,
    pub(super) rung: Rung,
}

/// Why no place can be said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// No rung finds it.
    Nowhere,
    /// There are more places than can be changed at once, or what would come of it is too large.
    TooMuch,
    /// This rung finds several.
    Several {
        rung: Rung,
        /// Where the first few begin.
        starts: Vec<usize>,
        /// How many there are at least.
        count: usize,
    },
}

/// The most places that are changed at once.
const MOST_PLACES: usize = 1_000_000;
/// The most places that are named.
const MOST_NAMED: usize = 10;

/// What a rung says: nothing found, or the answer.
type Answer<'a> = Option<Result<Found<'a>, Miss>>;

/// Looks for a text, rung by rung.
pub(super) fn find<'a>(text: &str, query: &Query<'a>) -> Result<Found<'a>, Miss> {
    if let Some(answer) = exact::exact(text, query).or_else(|| exact::numbers(text, query)) {
        return answer;
    }
    // Nothing but white space is everywhere.
    if !query.old.trim().is_empty() {
        let rows = rows::Rows::new(text);
        let answer = rows::trailing(&rows, query).or_else(|| indent::indented(&rows, query));
        drop(rows);
        if let Some(answer) = answer.or_else(|| fold::folded(text, query)) {
            return answer;
        }
    }
    exact::escapes(text, query).unwrap_or(Err(Miss::Nowhere))
}
