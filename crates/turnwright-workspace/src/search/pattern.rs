//! What is looked for: a regular expression, or the words as they stand.

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};

use super::Query;

/// Bytes that an expression may take once it is compiled.
const LARGEST: usize = 8 * 1024 * 1024;
/// Bytes of states that each thread may keep of it.
const MOST_STATES: usize = 4 * 1024 * 1024;
/// Brackets in brackets.
const DEEPEST: u32 = 100;
/// Bytes of a line, or of a file that is searched across its lines.
const MOST_HEAP: usize = 32 * 1024 * 1024;

/// A pattern that was understood.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) matcher: RegexMatcher,
    /// Whether a match may be longer than a line.
    spans: bool,
    /// Why it was not taken for a regular expression.
    pub(super) as_literal: Option<String>,
}

/// Understands a pattern. What is no regular expression is looked for as it stands, because that
/// is what models mean by `foo(`.
pub(super) fn compile(query: &Query) -> Result<Pattern, String> {
    let text = &query.pattern;
    let names = |it: &str| !query.literal && text.contains(it);
    let names_a_line_end = text.contains(['\n', '\r']) || names("\\n") || names("\\r");
    let spans = query.multiline || names_a_line_end;
    let pattern = |matcher, as_literal| Pattern { matcher, spans, as_literal };
    match build(query, spans, query.literal) {
        Ok(matcher) => Ok(pattern(matcher, None)),
        Err(reason) if query.literal || reason.contains("size limit") => Err(reason),
        Err(reason) => Ok(pattern(build(query, spans, true)?, Some(reason))),
    }
}

fn build(query: &Query, spans: bool, is_literal: bool) -> Result<RegexMatcher, String> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(query.ignore_case)
        .fixed_strings(is_literal)
        .multi_line(true)
        .dot_matches_new_line(query.multiline)
        .size_limit(LARGEST)
        .dfa_size_limit(MOST_STATES)
        .nest_limit(DEEPEST);
    if !spans {
        builder.crlf(true);
    }
    builder.build(&query.pattern).map_err(|it| {
        let text = it.to_string();
        let last = text.lines().last().unwrap_or_default();
        last.trim_start_matches("error: ").to_owned()
    })
}

impl Pattern {
    /// What goes through the text; it knows lines if they are to be shown.
    pub(super) fn searcher(&self, shown: Option<usize>) -> Searcher {
        let context = shown.unwrap_or(0);
        let mut builder = SearcherBuilder::new();
        builder
            .multi_line(self.spans)
            .line_number(shown.is_some())
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MOST_HEAP));
        if !self.spans {
            builder.line_terminator(LineTerminator::crlf());
        }
        builder.build()
    }
}
