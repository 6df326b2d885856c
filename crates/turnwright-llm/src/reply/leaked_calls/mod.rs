//! Finds tool calls that a model wrote into its text because a chat template or a server failed to
//! parse them (quirks C.1 #23 and C.2 #21). Does no I/O. A block only counts at the very end of the
//! text, complete, with declared tools and outside of code fences: anything else is part of the
//! answer. [`LeakFilter`] holds back what may be a call until the reply has ended, so that the raw call is never shown.
//! It is only for models that are known to leak calls.

mod parser;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde_json::Value;

use parser::CallParser;
use turnwright_types::text;

/// A tool: its name as the model knows it and the schema of its parameters.
pub(crate) type DeclaredTool<'a> = (&'a str, &'a Value);

/// A call found in the text: the name of its tool and its arguments, always an object.
pub(crate) type LeakedCall = (String, Value);

/// A longer block is not treated as calls.
const MAX_CALL_BYTES: usize = 1024 * 1024;
/// The number of blocks that look like calls but cannot be parsed. A text with more of them is
/// about calls.
const MAX_FAILURES: usize = 32;

/// Marks that start a call wherever they occur.
const OPENERS: [&str; 24] = [
    "<tool_call>",
    "<tool_calls>",
    "<function=",
    "<function_calls>",
    "<invoke name=",
    // As DeepSeek V3.2 and V4 write it, and as gateways change it.
    "<｜DSML｜",
    "<｜｜DSML｜｜",
    "<|DSML|",
    "<‖DSML‖",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|python_tag|>",
    "<|open|>tools",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "[TOOL_CALLS]",
    // Gemma 4, LFM 2, Granite 3, Nemotron, MiniCPM 5 and gpt-oss.
    "<|tool_call>",
    "<|tool_call_start|>",
    "<|tool_call|>",
    "<TOOLCALL>",
    "<function name=",
    "<|channel|>commentary to=functions",
    "<|channel|>commentary<|message|>{",
    MINIMAX_MARK,
];

/// MiniMax M3 writes this before each tag of a call.
const MINIMAX_MARK: &str = "]<]minimax[>[";

/// Marks that end a call, for [`looks_like_leaked_call`].
const CLOSERS: [&str; 12] = [
    "tool_call>",
    "calls>",
    "function>",
    "invoke>",
    "tool_call_end|>",
    "tool_call|>",
    "TOOLCALL>",
    "<|call|>",
    "section_end|>",
    "<|sep|>",
    "tool▁call▁end｜>",
    "tool▁calls▁end｜>",
];

/// End-of-text tokens, which leak as well.
const END_TOKENS: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end|>",
    "<turn|>",
    "</s>",
    "<｜end▁of▁sentence｜>",
];

/// Finds the calls at the end of a complete text and their position.
pub fn find_leaked_calls(
    text: &str,
    tools: &[DeclaredTool<'_>],
) -> Option<(usize, Vec<LeakedCall>)> {
    let text = without_end(text);
    let mut fences = CodeFences::default();
    let mut failures = 0;
    let mut from = text.len().saturating_sub(MAX_CALL_BYTES);
    while let Some(start) = next_candidate(text, from) {
        from = start + 1;
        if fences.is_inside(text, start) {
            continue;
        }
        let before_mark = text[..start].strip_suffix(MINIMAX_MARK);
        let block = match before_mark {
            Some(_) => Cow::Owned(text[start..].replace(MINIMAX_MARK, "")),
            None => Cow::Borrowed(&text[start..]),
        };
        let mut parser = CallParser::new(&block, tools);
        while !parser.is_at_end() && parser.parse_group().is_some() {}
        if parser.is_at_end() {
            return Some((before_mark.map_or(start, str::len), parser.calls));
        }
        if before_mark.is_some() || parser.calls.is_empty() || parser.parsed_bytes == 0 {
            failures += 1;
            if failures > MAX_FAILURES {
                return None;
            }
        }
        from = from.max(start + parser.parsed_bytes);
    }
    None
}

/// True if the end of a text looks like a call that could not be parsed.
pub fn looks_like_leaked_call(text: &str) -> bool {
    let text = without_end(text);
    if ends_with_addressed_call(text) {
        return true;
    }
    let mut fences = CodeFences::default();
    let mut last = None;
    let mut from = 0;
    while let Some(start) = next_candidate(text, from) {
        from = start + 1;
        if fences.is_inside(text, start) || text[..start].ends_with('`') {
            continue;
        }
        // JSON nested in JSON adds no information.
        let is_json = text[start..].starts_with(['{', '[']) && !text[start..].starts_with("[TOOL");
        if !is_json || last.is_none() && begins_with_name(&text[start..]) {
            last = Some((start, is_json));
        }
    }
    let Some((start, is_json)) = last else { return false };
    let tail = &text[start..];
    if is_json {
        let has_arguments = tail.contains("\"arguments\"") || tail.contains("\"parameters\"");
        return has_arguments && tail.contains("\"name\"") && tail.ends_with(['}', ']']);
    }
    let ends = CLOSERS.iter().filter_map(|closer| Some(tail.rfind(closer)? + closer.len()));
    // An opening tag has the same suffix as a closing one, so it must not be the tag at the start.
    match ends.max().filter(|end| tail[..*end].rfind('<').is_some_and(|open| open > 0)) {
        Some(end) => tail[end..].trim().is_empty(),
        None => {
            let before = text[..start].trim_end().trim_end_matches("assistant");
            let follows_mark = before.ends_with(['>', ']']);
            (follows_mark || is_line_start(text, start)) && looks_begun(tail)
        }
    }
}

/// True if a text ends with a call as gpt-5 and gpt-oss write it: `to=functions.f`, perhaps some words, and JSON.
/// The marks around these are often lost.
fn ends_with_addressed_call(text: &str) -> bool {
    let Some(start) = text.rfind("to=functions.") else { return false };
    let is_quoted = text[..start].ends_with('`') || CodeFences::default().is_inside(text, start);
    text.ends_with('}') && !is_quoted
}

/// True if the text after the opening mark is the start of a call and not prose.
fn looks_begun(tail: &str) -> bool {
    let Some(opener) = OPENERS.iter().find(|opener| tail.starts_with(**opener)) else {
        return true;
    };
    let after = tail[opener.len()..].trim_start();
    let is_plain_word = ["<tool_call", "[TOOL_CALLS]"].iter().any(|mark| opener.starts_with(mark));
    !is_plain_word
        || after.is_empty()
        || after.chars().take(100).any(|c| matches!(c, '{' | '[' | '<'))
}

fn begins_with_name(text: &str) -> bool {
    let start = text
        .bytes()
        .take(64)
        .position(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b'{' | b'['));
    let first_key = start.map_or("", |start| &text[start..]);
    ["\"name\"", "\"function\"", "\"type\""].iter().any(|key| first_key.starts_with(key))
}

/// The text without trailing white space and end-of-text tokens.
fn without_end(text: &str) -> &str {
    let mut text = text.trim_end();
    while let Some(rest) = END_TOKENS.iter().find_map(|token| text.strip_suffix(token)) {
        text = rest.trim_end();
    }
    text
}

/// The next position at which a block of calls may start.
fn next_candidate(text: &str, from: usize) -> Option<usize> {
    let from = text::ceil(text, from);
    let marks = text[from..].match_indices(['<', '[', '{']);
    marks.map(|(at, _)| from + at).find_map(|at| {
        let rest = &text[at..];
        if rest.starts_with("[ARGS]") {
            let start = text[..at].trim_end_matches(parser::is_in_name).len();
            return (start >= from && start < at).then_some(start);
        }
        let is_opener = OPENERS.iter().any(|opener| rest.starts_with(opener));
        let is_start =
            is_opener || is_namespaced_tag(rest) || (is_line_start(text, at) && may_be_json(rest));
        is_start.then_some(at)
    })
}

/// True if a call's tag has a namespace prefix, as in XML.
fn is_namespaced_tag(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix('<') else { return false };
    let name = &rest[parser::namespace_prefix(rest).len()..];
    name.len() < rest.len()
        && ["tool_call>", "tool_calls>", "function_calls>", "invoke name="]
            .iter()
            .any(|tag| name.starts_with(tag))
}

fn may_be_json(rest: &str) -> bool {
    match rest.strip_prefix('{') {
        Some(inside) => inside.trim_start().starts_with('"'),
        None => rest.strip_prefix('[').is_some_and(|inside| inside.trim_start().starts_with('{')),
    }
}

fn is_line_start(text: &str, at: usize) -> bool {
    text[..at].trim_end_matches([' ', '\t']).bytes().next_back().is_none_or(|byte| byte == b'\n')
}

/// Tracks which parts of a text are in code fences. Positions must be queried in ascending order.
#[derive(Debug, Default)]
pub(super) struct CodeFences {
    /// The start of the current line.
    line: usize,
    /// The position up to which the text has been scanned.
    at: usize,
    /// The character of the open fence and its length.
    open: Option<(char, usize)>,
}

impl CodeFences {
    pub(super) fn is_inside(&mut self, text: &str, position: usize) -> bool {
        while let Some(length) = text[self.at..position].find('\n') {
            self.end_line(text[self.line..self.at + length].trim());
            self.at += length + 1;
            self.line = self.at;
        }
        self.at = position;
        self.open.is_some()
    }

    fn end_line(&mut self, line: &str) {
        let Some(mark) = line.chars().next().filter(|mark| matches!(mark, '`' | '~')) else {
            return;
        };
        let rest = line.trim_start_matches(mark);
        let count = line.len() - rest.len();
        match self.open {
            Some((open, least)) if open == mark && count >= least && rest.is_empty() => {
                self.open = None;
            }
            None if count >= 3 => self.open = Some((mark, count)),
            _ => {}
        }
    }
}

/// Filters the text of one reply.
#[derive(Debug, Default)]
pub(crate) struct LeakFilter {
    /// The names of the tools.
    names: Vec<String>,
    /// The whole text, because code fences count from its start.
    text: String,
    /// The number of bytes already shown.
    shown: usize,
    /// The number of leading white space bytes.
    leading_space: usize,
    /// The number of bytes already searched for opening marks, so that a long text is searched only
    /// once.
    searched: usize,
    /// Everything after `shown` may be a call.
    is_holding: bool,
    is_disabled: bool,
}

impl LeakFilter {
    pub(crate) fn new(names: Vec<String>) -> LeakFilter {
        LeakFilter { names, ..LeakFilter::default() }
    }

    /// Adds text and returns what can be shown now.
    pub(crate) fn push(&mut self, text: &str) -> &str {
        self.text.push_str(text);
        if self.is_disabled || self.text.len() - self.shown > MAX_CALL_BYTES {
            self.is_disabled = true;
            return self.show(self.text.len());
        }
        if self.is_holding {
            return "";
        }
        if self.shown == 0 && self.may_be_bare() {
            return "";
        }
        // Text before this position that has not been shown is white space.
        let longest = OPENERS.iter().map(|opener| opener.len()).max().unwrap_or(0);
        let unsearched = self.searched.saturating_sub(longest).max(self.shown);
        let from = text::floor(&self.text, unsearched);
        let rest = &self.text[from..];
        self.searched = self.text.len();
        let opener = OPENERS.iter().filter_map(|opener| rest.find(opener)).min();
        self.is_holding = opener.is_some();
        let end = opener.unwrap_or_else(|| rest.len() - text::begun_mark_len(rest, &OPENERS));
        match rest[..end].trim_end().len() {
            0 => "",
            end => self.show(from + end),
        }
    }

    /// True if the reply starts, or may be about to start, with a call that has no opening mark.
    fn may_be_bare(&mut self) -> bool {
        let rest = self.text[self.leading_space..].trim_start();
        self.leading_space = self.text.len() - rest.len();
        may_be_bare(rest, &self.names)
    }

    fn show(&mut self, end: usize) -> &str {
        let start = std::mem::replace(&mut self.shown, end);
        &self.text[start..end]
    }

    /// Ends the reply: returns the rest of its text and the calls that followed it.
    pub(crate) fn finish(&mut self, tools: &[DeclaredTool<'_>]) -> (&str, Vec<LeakedCall>) {
        let found = if self.is_disabled { None } else { find_leaked_calls(&self.text, tools) };
        match found.filter(|(start, _)| *start >= self.shown) {
            Some((start, calls)) => {
                let start = self.text[..start].trim_end().len().max(self.shown);
                (self.show(start), calls)
            }
            None => (self.show(self.text.len()), Vec::new()),
        }
    }
}

/// True if a text without leading white space may be such a call.
fn may_be_bare(text: &str, names: &[String]) -> bool {
    if text.is_empty() || starts_like_json_call(text) {
        return true;
    }
    names.iter().any(|name| {
        let rest = if text.len() < name.len() {
            name.strip_prefix(text).map(|_| "")
        } else {
            text.strip_prefix(name.as_str())
        };
        rest.is_some_and(|rest| "[ARGS]".starts_with(rest) || rest.starts_with("[ARGS]"))
    })
}

/// True if the text is, or may become, JSON that starts like a call. A link or a list of words is
/// not held back.
fn starts_like_json_call(text: &str) -> bool {
    let inside = match text.strip_prefix('[') {
        Some(inside) => inside.trim_start(),
        None => text,
    };
    match inside.strip_prefix('{') {
        Some(fields) => fields.trim_start().is_empty() || fields.trim_start().starts_with('"'),
        None => inside.is_empty() || "[TOOL_CALLS]".starts_with(text),
    }
}
