//! Searches one file for a compiled pattern, a regular expression or plain text, in the encoding in which the file is
//! read elsewhere: as a whole text if it is of ordinary size, as a stream if it is larger. Collects the lines that
//! are shown: the matches of the page with the lines around them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Encoding, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind,
    SinkMatch,
};

use super::{GrepQuery, SearchDeadline};
use crate::files::{Charset, PROBE_BYTES, WHOLE_READ_LIMIT, is_utf8};
use crate::nofollow;

/// Searches files with one pattern. Each thread has its own.
pub(super) struct FileSearcher<'a> {
    pattern: SearchPattern,
    /// How many lines around a match are wanted; `None` if lines are only counted.
    context: Option<usize>,
    searcher: Searcher,
    stop: &'a SearchDeadline,
    /// The file that is being searched, or its beginning.
    bytes: Vec<u8>,
}

impl<'a> FileSearcher<'a> {
    pub(super) fn new(
        pattern: &SearchPattern,
        context: Option<usize>,
        stop: &'a SearchDeadline,
    ) -> FileSearcher<'a> {
        // The clone has caches of its own.
        let pattern = pattern.clone();
        let bytes = Vec::new();
        FileSearcher { searcher: pattern.searcher(context, None), pattern, context, stop, bytes }
    }

    /// Searches a file, and returns how it was read.
    pub(super) fn search<S>(&mut self, path: &Path, sink: &mut S) -> io::Result<Charset>
    where
        S: Sink<Error = io::Error>,
    {
        let FileSearcher { pattern, context, searcher, stop, bytes } = self;
        let mut reader = DeadlineReader { file: nofollow::open_file(path)?, stop };
        bytes.clear();
        reader.by_ref().take(PROBE_BYTES as u64).read_to_end(bytes)?;
        let has_nul = has_stray_nul(bytes);
        if !has_nul && Charset::of(bytes, true) == Charset::Binary {
            return Ok(Charset::Binary);
        }
        let limit = if pattern.multi_line { MAX_HEAP_BYTES as u64 } else { WHOLE_READ_LIMIT };
        reader.by_ref().take(limit).read_to_end(bytes)?;
        let is_cut = bytes.len() as u64 > limit;
        if is_cut && pattern.multi_line {
            return Err(io::Error::other("it is too large to be searched for several lines"));
        }
        let charset = if has_nul { Charset::BrokenUtf8 } else { Charset::of(bytes, is_cut) };
        let encoding = if let Charset::Other(found) = charset { Some(found) } else { None };
        // Text may be in front of something else, as in an archive that unpacks itself.
        let is_text = is_utf8(bytes, is_cut);
        if is_cut {
            let mut searcher = pattern.searcher(*context, encoding);
            if !is_text {
                searcher.set_binary_detection(BinaryDetection::quit(0));
            }
            searcher.search_reader(&pattern.matcher, bytes.chain(reader), sink)?;
            return Ok(charset);
        }
        if let Some(encoding) = encoding {
            *bytes = encoding.decode(bytes).0.into_owned().into_bytes();
        } else if bytes.starts_with("\u{feff}".as_bytes()) {
            bytes.drain(..3);
        }
        if !is_text {
            bytes.truncate(memchr::memchr(0, bytes).unwrap_or(bytes.len()));
        }
        if pattern.multi_line && !pattern.names_carriage_return {
            remove_carriage_returns(bytes);
        }
        searcher.search_slice(&pattern.matcher, bytes, sink)?;
        Ok(charset)
    }
}

/// Returns true for text with a few NUL bytes, such as code in which a separator was not escaped.
fn has_stray_nul(head: &[u8]) -> bool {
    let count = memchr::memchr_iter(0, head).count();
    (1..head.len().div_ceil(100)).contains(&count) && is_utf8(head, true)
}

/// Removes each carriage return before a line feed.
fn remove_carriage_returns(bytes: &mut Vec<u8>) {
    let mut kept = 0;
    for at in 0..bytes.len() {
        if bytes[at] != b'\r' || bytes.get(at + 1) != Some(&b'\n') {
            bytes[kept] = bytes[at];
            kept += 1;
        }
    }
    bytes.truncate(kept);
}

/// A reader that reports the end of the file when the search has expired.
struct DeadlineReader<'a> {
    file: File,
    stop: &'a SearchDeadline,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_expired() { Ok(0) } else { self.file.read(buffer) }
    }
}

/// The most bytes of a compiled expression.
const MAX_COMPILED_BYTES: usize = 8 * 1024 * 1024;
/// The most bytes of DFA states that each thread caches.
const MAX_DFA_BYTES: usize = 4 * 1024 * 1024;
/// How deep groups may be nested.
const MAX_NESTING: u32 = 100;
/// The longest line in bytes, or the largest file in a multi-line search.
const MAX_HEAP_BYTES: usize = 32 * 1024 * 1024;

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
        .nest_limit(MAX_NESTING)
        .crlf(!multi_line);
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
            .encoding(encoding.and_then(|known| Encoding::new(known.name()).ok()))
            .heap_limit(Some(MAX_HEAP_BYTES));
        if !self.multi_line {
            builder.line_terminator(LineTerminator::crlf());
        }
        builder.build()
    }
}

/// The most characters shown of a line.
const MAX_LINE_CHARS: usize = 300;
/// The most lines shown of a match that spans lines.
const MAX_MATCH_LINES: usize = 20;
/// This many bytes on each side of a match contain enough characters in any language.
const WINDOW_BYTES: usize = 4 * MAX_LINE_CHARS;

/// A line of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchLine {
    /// Counted from 1.
    pub number: u64,
    /// The line without its ending, clipped around the match if it is long.
    pub text: String,
    /// True for a line that matches, false for context.
    pub is_match: bool,
}

/// Collects the matches of one page.
#[derive(Debug, Default)]
pub(super) struct MatchCollector<'a> {
    pub(super) matcher: Option<&'a RegexMatcher>,
    /// How many matches earlier pages have shown.
    pub(super) skip: usize,
    /// How many matches fit on the page.
    pub(super) max_matches: usize,
    /// How many bytes fit on the page. The first match is shown however large it is.
    pub(super) room: usize,
    /// How many lines to show around a match.
    pub(super) context: usize,
    /// Bytes that are added to each line when it is printed.
    pub(super) overhead: usize,
    pub(super) lines: Vec<MatchLine>,
    pub(super) shown: usize,
    pub(super) used: usize,
    /// True if there are matches that did not fit.
    pub(super) is_full: bool,
    pub(super) seen: usize,
    pub(super) before: Vec<MatchLine>,
}

impl MatchCollector<'_> {
    fn push(&mut self, line: MatchLine) {
        self.used += line.text.len() + self.overhead;
        self.lines.push(line);
    }
}

impl Sink for MatchCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.seen += 1;
        if self.seen <= self.skip {
            self.before.clear();
            return Ok(true);
        }
        if self.shown == self.max_matches || self.used >= self.room {
            self.is_full = true;
            return Ok(false);
        }
        for line in std::mem::take(&mut self.before) {
            self.push(line);
        }
        let first = found.line_number().unwrap_or(1);
        for (number, line) in (first..).zip(found.lines()).take(MAX_MATCH_LINES) {
            let text = clip_around_match(line, self.matcher);
            self.push(MatchLine { number, text, is_match: true });
        }
        self.shown += 1;
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> io::Result<bool> {
        let number = found.line_number().unwrap_or(1);
        let line =
            MatchLine { number, text: clip_around_match(found.bytes(), None), is_match: false };
        // Context after a match that is not shown may be context before one that is.
        if self.shown == 0 || *found.kind() == SinkContextKind::Before {
            if self.before.len() >= self.context && !self.before.is_empty() {
                self.before.remove(0);
            }
            self.before.push(line);
        } else {
            self.push(line);
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.before.clear();
        Ok(true)
    }
}

fn count_chars(bytes: &[u8]) -> usize {
    String::from_utf8_lossy(bytes).chars().count()
}

/// Clips a line to the longest length, with the match in the middle.
fn clip_around_match(line: &[u8], matcher: Option<&RegexMatcher>) -> String {
    let end =
        line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let line = &line[..end];
    if line.len() <= MAX_LINE_CHARS {
        return String::from_utf8_lossy(line).replace('\0', "\u{fffd}");
    }
    let found = matcher.and_then(|matcher| matcher.find(line).ok().flatten());
    let (start, stop) = found.map_or((0, 0), |found| (found.start(), found.end()));
    let left = start.saturating_sub(WINDOW_BYTES);
    let right = (start + WINDOW_BYTES).min(line.len());
    let middle = count_chars(&line[left..start]) + count_chars(&line[start..stop.min(right)]) / 2;
    let window = String::from_utf8_lossy(&line[left..right]).replace('\0', "\u{fffd}");
    let total = window.chars().count();
    // Near the end of a line, more is shown before the match.
    let from = middle.saturating_sub(MAX_LINE_CHARS / 2).min(total.saturating_sub(MAX_LINE_CHARS));
    let text: String = window.chars().skip(from).take(MAX_LINE_CHARS).collect();
    let before = if from > 0 || left > 0 { "…" } else { "" };
    let after = if from + MAX_LINE_CHARS < total || right < line.len() { "…" } else { "" };
    format!("{before}{text}{after}")
}
