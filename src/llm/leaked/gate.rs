//! Holds back what may be a leaked call until the answer has ended, so that nobody is shown the
//! inside of a call. Only for models that are known to leak.

use super::{Declared, LeakedCall, OPENERS, find};

/// More than this is no call, and is shown.
const MOST_HELD: usize = 1024 * 1024;

/// One answer on its way.
#[derive(Debug)]
pub(in crate::llm) struct Gate {
    /// The names of the tools.
    names: Vec<String>,
    /// All of it, because fences count from its beginning.
    text: String,
    /// As much of it has been let through.
    shown: usize,
    /// From here to the end it may be a call.
    closed: bool,
    given_up: bool,
}

impl Gate {
    /// A gate for an answer that may call the tools of these names.
    pub(in crate::llm) fn new(names: Vec<String>) -> Gate {
        Gate { names, text: String::new(), shown: 0, closed: false, given_up: false }
    }

    /// Takes more of the answer; returns what can be shown now.
    pub(in crate::llm) fn push(&mut self, text: &str) -> &str {
        self.text.push_str(text);
        if self.given_up || self.text.len() - self.shown > MOST_HELD {
            self.given_up = true;
            return self.show(self.text.len());
        }
        if self.closed {
            return "";
        }
        let rest = &self.text[self.shown..];
        if self.shown == 0 && may_be_bare(rest, &self.names) {
            return "";
        }
        let opener = OPENERS.iter().filter_map(|it| rest.find(it)).min();
        self.closed = opener.is_some();
        let end = opener.unwrap_or_else(|| rest.len() - begun(rest));
        let end = rest[..end].trim_end().len();
        self.show(self.shown + end)
    }

    fn show(&mut self, end: usize) -> &str {
        let start = std::mem::replace(&mut self.shown, end);
        &self.text[start..end]
    }

    /// The answer has ended: what is left of its words, and the calls that followed them.
    pub(in crate::llm) fn finish(&mut self, tools: &[Declared<'_>]) -> (&str, Vec<LeakedCall>) {
        let found = if self.given_up { None } else { find(&self.text, tools) };
        match found.filter(|(start, _)| *start >= self.shown) {
            Some((start, calls)) => {
                let start = self.text[..start].trim_end().len().max(self.shown);
                (self.show(start), calls)
            }
            None => (self.show(self.text.len()), Vec::new()),
        }
    }
}

/// Whether the answer begins, or may be going to begin, with a call that no mark precedes.
fn may_be_bare(text: &str, names: &[String]) -> bool {
    let text = text.trim_start();
    if text.is_empty() || begins_as_json(text) {
        return true;
    }
    names.iter().any(|name| {
        let rest = if text.len() < name.len() {
            name.strip_prefix(text).map(|_| "")
        } else {
            text.strip_prefix(name.as_str())
        };
        rest.is_some_and(|it| "[ARGS]".starts_with(it) || it.starts_with("[ARGS]"))
    })
}

/// Whether it is, or may become, JSON as a call begins: a link or a list of words is not held.
fn begins_as_json(text: &str) -> bool {
    let inside = match text.strip_prefix('[') {
        Some(inside) => inside.trim_start(),
        None => text,
    };
    match inside.strip_prefix('{') {
        Some(fields) => fields.trim_start().is_empty() || fields.trim_start().starts_with('"'),
        None => inside.is_empty() || "[TOOL_CALLS]".starts_with(text),
    }
}

/// How many bytes at the end may be the beginning of an opening mark.
fn begun(text: &str) -> usize {
    let longest = OPENERS.iter().map(|it| it.len()).max().unwrap_or(0);
    let from = text.len().saturating_sub(longest);
    let starts = text.char_indices().map(|(at, _)| at).filter(|at| *at >= from);
    let found = starts.map(|at| &text[at..]).find(|it| OPENERS.iter().any(|o| o.starts_with(it)));
    found.map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn run(pieces: &[&str]) -> (String, usize) {
        let schema = json!({});
        let tools: [(&str, &Value); 1] = [("f", &schema)];
        let mut gate = Gate::new(vec!["f".to_owned()]);
        let mut shown: String = pieces.iter().map(|it| gate.push(it).to_owned()).collect();
        let (rest, calls) = gate.finish(&tools);
        shown.push_str(rest);
        (shown, calls.len())
    }

    #[test]
    fn a_call_is_never_shown_and_everything_else_is() {
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
    fn an_answer_that_begins_with_a_link_is_shown_as_it_comes() {
        for text in ["[README](README.md) says what it is.", "[x] Done.", "{ braces }"] {
            let mut gate = Gate::new(vec!["f".to_owned()]);
            assert_eq!(gate.push(text), text);
        }
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(text in "([a-f <>\\[\\]{}\"\n]|<tool_call>|\\[ARGS\\]|é){0,40}", size in 1..9_usize) {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|it| it.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(run(&pieces), run(&[&text]));
        }
    }
}
