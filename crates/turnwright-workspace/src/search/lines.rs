//! The lines of one file that are shown: matches from one to another, with those around them.

use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};

/// Characters of a line.
const LONGEST: usize = 300;
/// Lines of a match that goes over many.
const TALLEST: usize = 20;
/// Bytes beside a match that hold enough characters, of whatever language.
const AROUND: usize = 4 * LONGEST;

/// A line as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1.
    pub number: u64,
    /// Without its end; cut around the match if it is long.
    pub text: String,
    /// Whether it matches, or only stands near.
    pub is_match: bool,
}

/// Takes the matches of one page.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    pub(super) matcher: &'a RegexMatcher,
    /// Matches that an earlier page has shown.
    pub(super) skip: usize,
    /// Matches that there is room for.
    pub(super) most: usize,
    /// Bytes that there is room for. The first match of a page is shown whatever it takes.
    pub(super) room: usize,
    /// Lines around a match.
    pub(super) context: usize,
    /// What is added for each line.
    pub(super) overhead: usize,
    pub(super) lines: Vec<Line>,
    pub(super) shown: usize,
    pub(super) used: usize,
    /// Whether there are matches that there was no room for.
    pub(super) is_full: bool,
    passed: usize,
    before: Vec<Line>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(matcher: &'a RegexMatcher) -> Collector<'a> {
        Collector {
            matcher,
            skip: 0,
            most: 0,
            room: 0,
            context: 0,
            overhead: 0,
            lines: Vec::new(),
            shown: 0,
            used: 0,
            is_full: false,
            passed: 0,
            before: Vec::new(),
        }
    }

    fn push(&mut self, line: Line) {
        self.used += line.text.len() + self.overhead;
        self.lines.push(line);
    }
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.passed += 1;
        if self.passed <= self.skip {
            self.before.clear();
            return Ok(true);
        }
        if self.shown == self.most || self.used >= self.room {
            self.is_full = true;
            return Ok(false);
        }
        for line in std::mem::take(&mut self.before) {
            self.push(line);
        }
        let first = found.line_number().unwrap_or(1);
        for (number, line) in (first..).zip(found.lines()).take(TALLEST) {
            let text = cut(line, Some(self.matcher));
            self.push(Line { number, text, is_match: true });
        }
        self.shown += 1;
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> io::Result<bool> {
        let number = found.line_number().unwrap_or(1);
        let line = Line { number, text: cut(found.bytes(), None), is_match: false };
        // What comes after a match that is not shown may come before one that is.
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

/// At most so many characters, with the match in their middle.
fn cut(line: &[u8], matcher: Option<&RegexMatcher>) -> String {
    let end = line.iter().rposition(|it| !matches!(it, b'\n' | b'\r')).map_or(0, |it| it + 1);
    let line = &line[..end];
    if line.len() <= LONGEST {
        return String::from_utf8_lossy(line).into_owned();
    }
    let found = matcher.and_then(|it| it.find(line).ok().flatten());
    let (start, stop) = found.map_or((0, 0), |it| (it.start(), it.end()));
    let (left, right) = (start.saturating_sub(AROUND), (start + AROUND).min(line.len()));
    let count = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().count();
    let middle = count(&line[left..start]) + count(&line[start..stop.min(right)]) / 2;
    let window = String::from_utf8_lossy(&line[left..right]);
    let total = window.chars().count();
    // At the end of a line there is more room before the match.
    let from = middle.saturating_sub(LONGEST / 2).min(total.saturating_sub(LONGEST));
    let text: String = window.chars().skip(from).take(LONGEST).collect();
    let before = if from > 0 || left > 0 { "…" } else { "" };
    let after = if from + LONGEST < total || right < line.len() { "…" } else { "" };
    format!("{before}{text}{after}")
}
