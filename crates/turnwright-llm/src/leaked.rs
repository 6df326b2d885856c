//! Tool calls that stand in the answer as text, because a template or a server has not
//! understood them (quirks C.1, row 23 and C.2, row 21). Pure. Only a block at the very end
//! counts, only whole, only with declared tools and never in a code fence: anything else is
//! what the answer is about.

mod dialects;
mod gate;
#[cfg(test)]
mod tests;

use serde_json::Value;

use dialects::Reader;

pub(super) use gate::Gate;

/// A tool by the name that the model knows, with the schema of its parameters.
pub(super) type Declared<'a> = (&'a str, &'a Value);

/// A call that was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeakedCall {
    /// The declared name.
    pub(super) name: String,
    /// An object.
    pub(super) arguments: Value,
}

/// More than this, in bytes, is no block of calls.
const LONGEST_CALLS: usize = 1024 * 1024;
/// Blocks that begin like calls and are none; an answer with more of them is about calls.
const MOST_FAILURES: usize = 32;

/// What begins a call wherever it stands.
const OPENERS: [&str; 12] = [
    "<tool_call>",
    "<tool_calls>",
    "<function=",
    "<function_calls>",
    "<invoke name=",
    "<｜DSML｜",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "[TOOL_CALLS]",
];

/// What ends one, for [`looks_leaked`].
const CLOSERS: [&str; 9] = [
    "tool_call>",
    "tool_calls>",
    "function>",
    "function_calls>",
    "invoke>",
    "tool_call_end|>",
    "section_end|>",
    "tool▁call▁end｜>",
    "tool▁calls▁end｜>",
];

/// Marks of the end of an answer, which leak as well.
const ENDS: [&str; 7] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end|>",
    "</s>",
    "<｜end▁of▁sentence｜>",
];

/// The calls at the end of a whole answer, and where they begin.
pub(super) fn find(text: &str, tools: &[Declared<'_>]) -> Option<(usize, Vec<LeakedCall>)> {
    let text = without_end(text);
    let mut fences = Fences::default();
    let mut failures = 0;
    let mut from = text.len().saturating_sub(LONGEST_CALLS);
    while let Some(start) = candidate(text, from) {
        from = start + 1;
        if fences.cover(text, start) {
            continue;
        }
        let mut reader = Reader::new(&text[start..], tools);
        while !reader.is_at_end() && reader.group().is_some() {}
        if reader.is_at_end() {
            return Some((start, reader.calls));
        }
        if reader.calls.is_empty() || reader.done() == 0 {
            failures += 1;
            if failures > MOST_FAILURES {
                return None;
            }
        }
        from = from.max(start + reader.done());
    }
    None
}

/// Whether the end of an answer looks like a call that [`find`] could not read.
pub fn looks_leaked(text: &str) -> bool {
    let text = without_end(text);
    let mut fences = Fences::default();
    let mut last = None;
    let mut from = 0;
    while let Some(start) = candidate(text, from) {
        from = start + 1;
        if fences.cover(text, start) || text[..start].ends_with('`') {
            continue;
        }
        // JSON within JSON tells nothing new.
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
    let ends = CLOSERS.iter().filter_map(|it| Some(tail.rfind(it)? + it.len()));
    // The opening tag ends like the closing one.
    match ends.max().filter(|end| tail[..*end].rfind('<').is_some_and(|it| it > 0)) {
        Some(end) => tail[end..].trim().is_empty(),
        None => {
            let follows_mark = text[..start].trim_end().ends_with(['>', ']']);
            (follows_mark || is_line_start(text, start)) && has_begun(tail)
        }
    }
}

/// Whether what follows the opening mark is the beginning of a call and not of a sentence.
fn has_begun(tail: &str) -> bool {
    let Some(opener) = OPENERS.iter().find(|it| tail.starts_with(**it)) else { return true };
    let after = tail[opener.len()..].trim_start();
    let is_plain_word = ["<tool_call", "[TOOL_CALLS]"].iter().any(|it| opener.starts_with(it));
    !is_plain_word
        || after.is_empty()
        || after.chars().take(100).any(|it| matches!(it, '{' | '[' | '<'))
}

fn begins_with_name(text: &str) -> bool {
    let is_word = |it: u8| !it.is_ascii_whitespace() && !matches!(it, b'{' | b'[');
    let word = text.bytes().take(64).position(is_word).map_or("", |at| &text[at..]);
    ["\"name\"", "\"function\"", "\"type\""].iter().any(|it| word.starts_with(it))
}

/// The text without white space and marks of its end.
fn without_end(text: &str) -> &str {
    let mut text = text.trim_end();
    while let Some(rest) = ENDS.iter().find_map(|it| text.strip_suffix(it)) {
        text = rest.trim_end();
    }
    text
}

/// Where the next block may begin.
fn candidate(text: &str, from: usize) -> Option<usize> {
    let from = (from..=text.len()).find(|it| text.is_char_boundary(*it))?;
    let marks = text[from..].match_indices(['<', '[', '{']);
    marks.map(|(at, _)| from + at).find_map(|at| {
        let rest = &text[at..];
        if rest.starts_with("[ARGS]") {
            let start = text[..at].trim_end_matches(dialects::is_in_name).len();
            return (start >= from && start < at).then_some(start);
        }
        let is_opener = OPENERS.iter().any(|it| rest.starts_with(it)) || is_prefixed(rest);
        let is_json = || is_line_start(text, at) && may_be_json(rest);
        (is_opener || is_json()).then_some(at)
    })
}

/// Whether a tag of a call has a prefix as in XML.
fn is_prefixed(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix('<') else { return false };
    let name = &rest[dialects::prefix(rest).len()..];
    name.len() < rest.len()
        && ["tool_call>", "tool_calls>", "function_calls>", "invoke name="]
            .iter()
            .any(|it| name.starts_with(it))
}

fn may_be_json(rest: &str) -> bool {
    match rest.strip_prefix('{') {
        Some(inside) => inside.trim_start().starts_with('"'),
        None => rest.strip_prefix('[').is_some_and(|it| it.trim_start().starts_with('{')),
    }
}

fn is_line_start(text: &str, at: usize) -> bool {
    text[..at].trim_end_matches([' ', '\t']).bytes().next_back().is_none_or(|it| it == b'\n')
}

/// Which parts of a text are code. Asked from the start to the end.
#[derive(Debug, Default)]
struct Fences {
    /// Where the line begins that has not ended yet.
    line: usize,
    /// Up to where line breaks have been looked for.
    at: usize,
    /// The mark of the fence that is open, and how often it stands there.
    open: Option<(char, usize)>,
}

impl Fences {
    fn cover(&mut self, text: &str, position: usize) -> bool {
        while let Some(length) = text[self.at..position].find('\n') {
            self.end_line(text[self.line..self.at + length].trim());
            self.at += length + 1;
            self.line = self.at;
        }
        self.at = position;
        self.open.is_some()
    }

    fn end_line(&mut self, line: &str) {
        let Some(mark) = line.chars().next().filter(|it| matches!(it, '`' | '~')) else { return };
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
