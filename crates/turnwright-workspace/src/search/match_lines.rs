//! Collects the lines of one file that are shown: the matches of the page with the lines around
//! them.

use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};

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
#[derive(Debug)]
pub(super) struct MatchCollector<'a> {
    pub(super) matcher: &'a RegexMatcher,
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
    seen: usize,
    before: Vec<MatchLine>,
}

impl<'a> MatchCollector<'a> {
    pub(super) fn new(matcher: &'a RegexMatcher) -> MatchCollector<'a> {
        MatchCollector {
            matcher,
            skip: 0,
            max_matches: 0,
            room: 0,
            context: 0,
            overhead: 0,
            lines: Vec::new(),
            shown: 0,
            used: 0,
            is_full: false,
            seen: 0,
            before: Vec::new(),
        }
    }

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
            let text = clip_around_match(line, Some(self.matcher));
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
        return String::from_utf8_lossy(line).into_owned();
    }
    let found = matcher.and_then(|matcher| matcher.find(line).ok().flatten());
    let (start, stop) = found.map_or((0, 0), |found| (found.start(), found.end()));
    let left = start.saturating_sub(WINDOW_BYTES);
    let right = (start + WINDOW_BYTES).min(line.len());
    let middle = count_chars(&line[left..start]) + count_chars(&line[start..stop.min(right)]) / 2;
    let window = String::from_utf8_lossy(&line[left..right]);
    let total = window.chars().count();
    // Near the end of a line, more is shown before the match.
    let from = middle.saturating_sub(MAX_LINE_CHARS / 2).min(total.saturating_sub(MAX_LINE_CHARS));
    let text: String = window.chars().skip(from).take(MAX_LINE_CHARS).collect();
    let before = if from > 0 || left > 0 { "…" } else { "" };
    let after = if from + MAX_LINE_CHARS < total || right < line.len() { "…" } else { "" };
    format!("{before}{text}{after}")
}
