//! Holds back what may be a leaked call until the answer has ended, so that nobody is shown the
//! inside of a call. Only for models that are known to leak.

use super::{Declared, LONGEST_CALLS, LeakedCall, OPENERS, find};

/// One answer on its way.
#[derive(Debug, Default)]
pub(in crate) struct Gate {
    /// The names of the tools.
    names: Vec<String>,
    /// All of it, because fences count from its beginning.
    text: String,
    /// As much of it has been let through.
    shown: usize,
    /// The white space that it begins with.
    blank: usize,
    /// As much of it has been looked at for opening marks. Nothing is looked at again and again,
    /// however long it is held back.
    searched: usize,
    /// From here to the end it may be a call.
    closed: bool,
    given_up: bool,
}

impl Gate {
    /// A gate for an answer that may call the tools of these names.
    pub(in crate) fn new(names: Vec<String>) -> Gate {
        Gate { names, ..Gate::default() }
    }

    /// Takes more of the answer; returns what can be shown now.
    pub(in crate) fn push(&mut self, text: &str) -> &str {
        self.text.push_str(text);
        if self.given_up || self.text.len() - self.shown > LONGEST_CALLS {
            self.given_up = true;
            return self.show(self.text.len());
        }
        if self.closed {
            return "";
        }
        if self.shown == 0 && self.may_be_bare() {
            return "";
        }
        // What stands before that and has not been shown is white space.
        let from = self.searched.saturating_sub(longest_opener()).max(self.shown);
        let from = boundary(&self.text, from);
        let rest = &self.text[from..];
        self.searched = self.text.len();
        let opener = OPENERS.iter().filter_map(|it| rest.find(it)).min();
        self.closed = opener.is_some();
        let end = opener.unwrap_or_else(|| rest.len() - begun(rest));
        match rest[..end].trim_end().len() {
            0 => "",
            end => self.show(from + end),
        }
    }

    /// Whether the answer begins, or may be going to begin, with a call that no mark precedes.
    fn may_be_bare(&mut self) -> bool {
        let rest = &self.text[self.blank..];
        let rest = rest.trim_start();
        self.blank = self.text.len() - rest.len();
        may_be_bare(rest, &self.names)
    }

    fn show(&mut self, end: usize) -> &str {
        let start = std::mem::replace(&mut self.shown, end);
        &self.text[start..end]
    }

    /// The answer has ended: what is left of its words, and the calls that followed them.
    pub(in crate) fn finish(&mut self, tools: &[Declared<'_>]) -> (&str, Vec<LeakedCall>) {
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

/// Whether a text without white space before it may be such a call.
fn may_be_bare(text: &str, names: &[String]) -> bool {
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
    let text = &text[boundary(text, text.len().saturating_sub(longest_opener()))..];
    let mut starts = text.char_indices().map(|(at, _)| &text[at..]);
    let found = starts.find(|it| OPENERS.iter().any(|o| o.starts_with(it)));
    found.map_or(0, str::len)
}

/// The next boundary between characters at or before this.
fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn longest_opener() -> usize {
    OPENERS.iter().map(|it| it.len()).max().unwrap_or(0)
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

    /// It is held back, because a call may follow: with each piece anew, that would take hours.
    #[test]
    fn a_flood_of_white_space_is_looked_at_once() {
        for begin in ["", "a"] {
            let pieces =
                [begin].into_iter().chain(std::iter::repeat_n("    ", LONGEST_CALLS / 4 + 1));
            let pieces: Vec<&str> = pieces.collect();
            assert_eq!(run(&pieces), (pieces.concat(), 0));
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
