//! Holds back what may be a leaked call until the reply has ended, so that the raw call is never
//! shown. Only used for models that are known to leak calls.

use super::{DeclaredTool, LeakedCall, MAX_CALL_BYTES, OPENERS, find_leaked_calls};
use turnwright_types::text;

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
        let unsearched = self.searched.saturating_sub(longest_opener()).max(self.shown);
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

fn longest_opener() -> usize {
    OPENERS.iter().map(|opener| opener.len()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn run(pieces: &[&str]) -> (String, usize) {
        let schema = json!({});
        let tools: [(&str, &Value); 1] = [("f", &schema)];
        let mut filter = LeakFilter::new(vec!["f".to_owned()]);
        let mut shown: String = pieces.iter().map(|piece| filter.push(piece).to_owned()).collect();
        let (rest, calls) = filter.finish(&tools);
        shown.push_str(rest);
        (shown, calls.len())
    }

    #[test]
    fn calls_are_hidden_and_everything_else_is_shown() {
        let call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
        let table = [
            (vec!["Let me look.\n", call], "Let me look.", 1),
            (vec!["a <tool", "_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"], "a", 1),
            (vec!["f[AR", "GS]{}"], "", 1),
            (vec!["{\"name\":\"f\",", "\"arguments\":{}}"], "", 1),
            (vec!["f is a", " function"], "f is a function", 0),
            (vec!["a <b", "> c"], "a <b> c", 0),
            (vec!["<tool_call> is a tag."], "<tool_call> is a tag.", 0),
            (vec!["{\"a\": 1}", "\n"], "{\"a\": 1}\n", 0),
        ];
        for (pieces, shown, calls) in table {
            assert_eq!(run(&pieces), (shown.to_owned(), calls), "{pieces:?}");
        }
    }

    #[test]
    fn a_reply_that_starts_with_a_link_is_shown_at_once() {
        for text in ["[README](README.md) says what it is.", "[x] Done.", "{ braces }"] {
            let mut filter = LeakFilter::new(vec!["f".to_owned()]);
            assert_eq!(filter.push(text), text);
        }
    }

    /// The white space is held back, because a call may follow. Searching it again for each piece
    /// would take hours.
    #[test]
    fn long_white_space_is_searched_once() {
        for begin in ["", "a"] {
            let pieces =
                [begin].into_iter().chain(std::iter::repeat_n("    ", MAX_CALL_BYTES / 4 + 1));
            let pieces: Vec<&str> = pieces.collect();
            assert_eq!(run(&pieces), (pieces.concat(), 0));
        }
    }

    proptest! {
        #[test]
        fn how_the_stream_is_cut_does_not_matter(text in "([a-f <>\\[\\]{}\"\n]|<tool_call>|\\[ARGS\\]|é){0,40}", size in 1..9_usize) {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|chunk| chunk.iter().collect()).collect();
            let borrowed: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(run(&borrowed), run(&[&text]));
        }
    }
}
