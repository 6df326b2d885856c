//! Compiles the pattern of a search: a regular expression, or plain text.

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Encoding, Searcher, SearcherBuilder};

use super::GrepQuery;

/// The most bytes of a compiled expression.
const MAX_COMPILED_BYTES: usize = 8 * 1024 * 1024;
/// The most bytes of DFA states that each thread caches.
const MAX_DFA_BYTES: usize = 4 * 1024 * 1024;
/// How deep groups may be nested.
const MAX_NESTING: u32 = 100;
/// The longest line in bytes, or the largest file in a multi-line search.
pub(super) const MAX_HEAP_BYTES: usize = 32 * 1024 * 1024;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct SearchPattern {
    pub(super) matcher: RegexMatcher,
    /// True if a match may span lines.
    pub(super) multi_line: bool,
    /// True if the pattern is about carriage returns. Else lines that end with CRLF match like others.
    pub(super) names_carriage_return: bool,
    /// The syntax error, if the pattern is searched for as plain text because of it.
    pub(super) regex_error: Option<String>,
}

/// Compiles a pattern. What is not a valid regular expression is searched for as plain text,
/// because that is what models mean by `foo(`.
pub(super) fn compile(query: &GrepQuery) -> Result<SearchPattern, String> {
    let text = &query.pattern;
    let names_carriage_return = text.contains('\r') || !query.literal && text.contains("\\r");
    let names_newline = text.contains('\n') || !query.literal && text.contains("\\n");
    let multi_line = query.multiline || names_newline || names_carriage_return;
    let (matcher, regex_error) = match build(query, multi_line, query.literal) {
        Ok(matcher) => (matcher, None),
        Err(reason) if query.literal || reason.contains("size limit") => return Err(reason),
        Err(reason) => (build(query, multi_line, true)?, Some(reason)),
    };
    Ok(SearchPattern { matcher, multi_line, names_carriage_return, regex_error })
}

fn build(query: &GrepQuery, multi_line: bool, is_literal: bool) -> Result<RegexMatcher, String> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(query.ignore_case)
        .fixed_strings(is_literal)
        .multi_line(true)
        .dot_matches_new_line(query.multiline)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_DFA_BYTES)
        .nest_limit(MAX_NESTING);
    if !multi_line {
        builder.crlf(true);
    }
    builder.build(&query.pattern).map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        last.trim_start_matches("error: ").to_owned()
    })
}

impl SearchPattern {
    /// Builds a searcher for files in an encoding, UTF-8 or UTF-16 with a byte order mark by default. It
    /// counts lines only if they are to be shown, with `context_lines` around each match.
    pub(super) fn searcher(
        &self,
        context_lines: Option<usize>,
        encoding: Option<&'static encoding_rs::Encoding>,
    ) -> Searcher {
        let context = context_lines.unwrap_or(0);
        let mut builder = SearcherBuilder::new();
        builder
            .multi_line(self.multi_line)
            .line_number(context_lines.is_some())
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .encoding(encoding.and_then(|known| Encoding::new(known.name()).ok()))
            .heap_limit(Some(MAX_HEAP_BYTES));
        if !self.multi_line {
            builder.line_terminator(LineTerminator::crlf());
        }
        builder.build()
    }
}
