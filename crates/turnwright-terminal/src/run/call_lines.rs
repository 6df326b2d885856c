//! The lines that a tool call leaves on the terminal: its title, and what has changed or went wrong.

use std::path::Path;

use serde_json::Value;

use super::agent_link::{list, string};
use super::text_style::TextStyle;
use turnwright_types::effect::{escape_hidden, escape_hidden_line, fenced_command};
use turnwright_types::line_diff::unified_diff;
use turnwright_workspace::files::display;

/// Unchanged lines around a change.
const DIFF_CONTEXT: usize = 2;
/// The most lines of a diff in a card. A question shows all.
const MAX_DIFF_LINES: usize = 40;
/// The most lines of a command's output, the last ones.
const MAX_OUTPUT_LINES: usize = 8;
/// The most lines about a failure.
const MAX_FAILURE_LINES: usize = 6;

/// A line for the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StyledLine {
    pub(super) text: String,
    pub(super) style: TextStyle,
    /// How far the text is indented where it is broken, if it is code: that is broken anywhere, because its spaces
    /// matter. `None` for words.
    pub(super) code_indent: Option<usize>,
}

impl StyledLine {
    pub(super) fn words(text: String, style: TextStyle) -> StyledLine {
        StyledLine { text, style, code_indent: None }
    }

    /// Code, or the output of a command. Hidden characters are escaped.
    fn code(text: &str, style: TextStyle, indent: usize) -> StyledLine {
        StyledLine { text: format!("  {}", escape_hidden(text)), style, code_indent: Some(indent) }
    }
}

/// A tool call as the agent has described it so far.
#[derive(Clone, Debug, Default)]
pub(super) struct CallCard {
    fields: serde_json::Map<String, Value>,
    is_shown: bool,
    /// A question has shown the changes.
    was_asked: bool,
}

impl CallCard {
    /// Applies an update: fields that it omits or sets to null keep their value.
    pub(super) fn update(&mut self, update: &Value) {
        let fields = update.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        self.fields.extend(fields.map(|(name, value)| (name.clone(), value.clone())));
    }

    fn field(&self, name: &str) -> &Value {
        self.fields.get(name).unwrap_or(&Value::Null)
    }

    fn is_command(&self) -> bool {
        self.field("kind") == "execute"
    }

    /// The title in one line.
    pub(super) fn title(&self) -> String {
        let title = string(self.field("title"));
        let mut lines = title.lines();
        let first = escape_hidden_line(lines.next().unwrap_or_default());
        let more = if lines.next().is_some() { " …" } else { "" };
        let sign = if self.is_command() { "$ " } else { "" };
        format!("{sign}{first}{more}")
    }

    pub(super) fn is_running(&self) -> bool {
        self.field("status") == "in_progress"
    }

    /// The lines about a call that has just ended; none before that, and none a second time.
    pub(super) fn take_final_lines(&mut self, cwd: &Path) -> Vec<StyledLine> {
        let is_success = self.field("status") == "completed";
        if self.is_shown || !is_success && self.field("status") != "failed" {
            return Vec::new();
        }
        self.is_shown = true;
        let (sign, style) =
            if is_success { ("✓", TextStyle::GREEN) } else { ("✗", TextStyle::RED) };
        let mut lines = vec![StyledLine::words(format!("{sign} {}", self.title()), style)];
        for item in list(self.field("content")) {
            match item["type"].as_str() {
                Some("diff") if self.was_asked || !is_success => {}
                Some("diff") => lines.extend(diff_lines(item, cwd, MAX_DIFF_LINES)),
                _ if !is_success => lines.extend(first_lines(item)),
                _ if self.is_command() => lines.extend(last_lines(item)),
                _ => {}
            }
        }
        lines
    }

    /// The lines of a question about this call: all of the command and of the changes. What follows is
    /// Markdown, which explains.
    pub(super) fn question(&mut self, cwd: &Path) -> (Vec<StyledLine>, String) {
        self.was_asked = true;
        let whole_title = string(self.field("title"));
        let mut title = whole_title.lines();
        let first = format!("? {}", escape_hidden(title.next().unwrap_or_default()));
        let mut lines = vec![StyledLine::words(first, TextStyle::BOLD)];
        lines.extend(title.map(|line| StyledLine::code(line, TextStyle::BOLD, 2)));
        let mut text = String::new();
        for item in list(self.field("content")) {
            if item["type"] == "diff" {
                lines.extend(diff_lines(item, cwd, usize::MAX));
            } else if item["content"]["text"] != fenced_command(&whole_title) {
                text.push_str(&string(&item["content"]["text"]));
                text.push('\n');
            }
        }
        (lines, text)
    }
}

/// The changed lines of a file. Hidden characters are escaped.
fn diff_lines(item: &Value, cwd: &Path, most: usize) -> Vec<StyledLine> {
    let path = string(&item["path"]);
    let shown = Path::new(&path).strip_prefix(cwd).map_or(path.clone(), display);
    let old = string(&item["oldText"]);
    let new = string(&item["newText"]);
    let diff = unified_diff(&old, &new, DIFF_CONTEXT, None);
    let added = count_lines(&diff, '+');
    let removed = count_lines(&diff, '-');
    let head = format!("  {}  +{added} -{removed}", escape_hidden_line(&shown));
    let mut lines = vec![StyledLine::words(head, TextStyle::DIM)];
    let total = diff.lines().count();
    for line in diff.lines().take(most) {
        let style = match line.chars().next() {
            Some('+') => TextStyle::GREEN,
            Some('-') => TextStyle::RED,
            _ => TextStyle::DIM,
        };
        // Broken behind the sign of the line.
        lines.push(StyledLine::code(line, style, 3));
    }
    if total > most {
        let more = format!("  … {} more lines", total - most);
        lines.push(StyledLine::words(more, TextStyle::DIM));
    }
    lines
}

fn count_lines(diff: &str, sign: char) -> usize {
    diff.lines().filter(|line| line.starts_with(sign)).count()
}

fn output_line(line: &str) -> StyledLine {
    StyledLine::code(line, TextStyle::DIM, 2)
}

/// A line about a failure: words, or the output of a command.
fn failure_line(line: &str) -> StyledLine {
    StyledLine::words(format!("  {}", escape_hidden(line)), TextStyle::DIM)
}

/// The end of a command's output, without the fence around it.
fn last_lines(item: &Value) -> Vec<StyledLine> {
    let text = string(&item["content"]["text"]);
    let lines: Vec<_> = text.lines().filter(|line| !is_fence(line)).collect();
    let skipped = lines.len().saturating_sub(MAX_OUTPUT_LINES);
    let note = format!("  … {skipped} lines before");
    let more = (skipped > 0).then(|| StyledLine::words(note, TextStyle::DIM));
    more.into_iter().chain(lines[skipped..].iter().map(|line| output_line(line))).collect()
}

/// Returns true for the mark at either end of fenced code, with or without a language.
fn is_fence(line: &str) -> bool {
    line.len() >= 3 && line.trim_start_matches('`').len() < line.len() - 2
}

fn first_lines(item: &Value) -> Vec<StyledLine> {
    let text = string(&item["content"]["text"]);
    text.lines()
        .filter(|line| !line.starts_with("```"))
        .take(MAX_FAILURE_LINES)
        .map(failure_line)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(updates: &[Value]) -> Vec<String> {
        let mut card = CallCard::default();
        for update in updates {
            card.update(update);
        }
        let lines = card.take_final_lines(Path::new("/ws"));
        assert!(card.take_final_lines(Path::new("/ws")).is_empty(), "only once");
        lines.into_iter().map(|line| line.text).collect()
    }

    fn text(text: &str) -> Value {
        json!({ "type": "content", "content": { "type": "text", "text": text } })
    }

    #[test]
    fn a_call_leaves_its_title_and_what_matters() {
        let read = json!({ "title": "Read a.rs", "kind": "read", "status": "pending" });
        let done = json!({ "status": "completed", "content": [text("fn main() {}")] });
        assert_eq!(shown(&[read.clone(), done]), ["✓ Read a.rs"]);
        assert_eq!(shown(std::slice::from_ref(&read)), [""; 0]);
        let failed = json!({ "status": "failed", "content": [text("No such file\n```\nx\n```")] });
        assert_eq!(shown(&[read, failed]), ["✗ Read a.rs", "  No such file", "  x"]);

        let output = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";
        let run = json!({ "title": "seq 10\necho", "kind": "execute", "status": "completed",
            "content": [text(&format!("```\n{output}```"))] });
        let lines = shown(&[run]);
        assert_eq!(lines[..3], ["✓ $ seq 10 …", "  … 2 lines before", "  3"]);
        assert_eq!(lines.len(), 10);

        let diff = json!({ "type": "diff", "path": "/ws/src/a.rs", "oldText": "a\nb\n",
            "newText": "a\n\u{202e}c\u{1b}\n" });
        let edit = json!({ "title": "Edit src/a.rs", "kind": "edit", "status": "completed",
            "content": [diff] });
        assert_eq!(
            shown(&[edit]),
            [
                "✓ Edit src/a.rs",
                "  src/a.rs  +1 -1",
                "  @@ -1,2 +1,2 @@",
                "   a",
                "  -b",
                "  +\\u{202e}c\\u{1b}"
            ]
        );
    }
}
