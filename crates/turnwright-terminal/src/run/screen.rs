//! Shows a session on the terminal: the model's text on stdout, everything else on stderr. All text passes
//! [`paint`], so that none of it can control the terminal. A tool call leaves lines: its title, and what has changed or
//! went wrong.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use super::agent_link::{list, pairs, string};
use super::exit_status::TurnEnd;
use super::markdown::MarkdownStream;
use super::text_style::{TerminalTraits, TextStyle, WordWrap, paint, shortened};
use turnwright_types::effect::{escape_hidden, escape_hidden_line, fenced_command, terminal_safe};
use turnwright_types::error_text::io_error_text;
use turnwright_types::line_diff::unified_diff;
use turnwright_workspace::files::display;

/// Moves to the beginning of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

/// The terminal, or the files that stand for it.
pub(super) struct Screen {
    pub(super) traits: TerminalTraits,
    cwd: PathBuf,
    /// The columns; asked for before each output.
    width: fn() -> usize,
    output: Box<dyn Write>,
    notes: Box<dyn Write>,
    /// The message that is being shown, and its id.
    message: Option<(String, MessageText)>,
    /// True if an empty line has to stand before the next message.
    needs_space: bool,
    calls: HashMap<String, CallCard>,
    plan: Vec<(String, String)>,
    /// The tokens in the context window, its size, and the cost of the session in US dollars.
    usage: Option<(u64, u64, Option<f64>)>,
    /// The activity of the agent, and its beginning.
    activity: Option<(String, Instant)>,
    has_status_line: bool,
    /// Why nothing can be written any more.
    failure: Option<io::Error>,
}

/// A message on its way to stdout.
enum MessageText {
    /// On a terminal.
    Markdown(MarkdownStream),
    /// In a file or a pipe. True if its last line has ended.
    Plain(bool),
}

impl Screen {
    pub(super) fn new(
        traits: TerminalTraits,
        cwd: PathBuf,
        width: fn() -> usize,
        (output, notes): (Box<dyn Write>, Box<dyn Write>),
    ) -> Screen {
        Screen {
            traits,
            cwd,
            width,
            output,
            notes,
            message: None,
            needs_space: false,
            calls: HashMap::new(),
            plan: Vec::new(),
            usage: None,
            activity: None,
            has_status_line: false,
            failure: None,
        }
    }

    /// How the program ends because its output cannot be written, if it cannot.
    pub(super) fn output_end(&mut self) -> Option<TurnEnd> {
        let failure = self.failure.take()?;
        if failure.kind() == io::ErrorKind::BrokenPipe {
            // Nobody reads it any more.
            return Some(TurnEnd::Cancelled);
        }
        self.error(&format!("the answer cannot be written: {}", io_error_text(&failure)));
        // The end of the message has failed as well.
        self.failure = None;
        Some(TurnEnd::Failed)
    }

    /// Shows the `update` of a notification, as far as a terminal can.
    pub(super) fn show(&mut self, update: &Value) {
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => {
                self.text(string(&update["messageId"]), &string(&update["content"]["text"]));
            }
            "agent_thought_chunk" => self.begin("thinking"),
            "notice" => self.note(&string(&update["title"])),
            "tool_call" | "tool_call_update" => self.call(update),
            "plan" => self.show_plan(pairs(&update["entries"], "content", "status")),
            "usage_update" => {
                let [used, size] =
                    ["used", "size"].map(|name| update[name].as_u64().unwrap_or_default());
                self.usage = Some((used, size, update["cost"]["amount"].as_f64()));
            }
            _ => {}
        }
    }

    /// Writes bytes to stdout as they are.
    pub(super) fn write_output(&mut self, text: &str) {
        self.clear_status();
        let written = self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush());
        self.failure = written.err().or(self.failure.take());
    }

    /// Says something about the turn, in a paragraph.
    pub(super) fn note(&mut self, text: &str) {
        self.lines(&[StyledLine::words(text.to_owned(), TextStyle::DIM)]);
    }

    /// Says why something has failed.
    pub(super) fn error(&mut self, text: &str) {
        self.lines(&[StyledLine::words(format!("error: {text}"), TextStyle::RED)]);
    }

    /// Writes lines to stderr, each broken where it is too long.
    fn lines(&mut self, lines: &[StyledLine]) {
        self.end_message();
        self.clear_status();
        let width = self.note_width();
        let mut wrap = WordWrap::new(self.traits.is_stderr_terminal && self.traits.is_styled);
        for line in lines {
            wrap.set_indent(line.code_indent.unwrap_or_else(|| hanging_indent(&line.text)));
            if line.code_indent.is_some() {
                wrap.code(&line.text, line.style, width);
            } else {
                wrap.words(&line.text, line.style, width);
            }
            wrap.end_line(width);
        }
        self.write_notes(&wrap.take());
    }

    /// Writes Markdown to stderr.
    pub(super) fn markdown_note(&mut self, text: &str) {
        self.end_message();
        self.clear_status();
        let width = self.note_width();
        let mut stream =
            MarkdownStream::new(self.traits.is_stderr_terminal && self.traits.is_styled);
        let shown = stream.push(text.trim_end(), width) + &stream.finish(width);
        self.write_notes(&shown);
    }

    /// Shows a question about a call.
    pub(super) fn question(&mut self, call: &Value) {
        let card = self.calls.entry(string(&call["toolCallId"])).or_default();
        card.update(call);
        let (lines, text) = card.question(&self.cwd);
        self.lines(&lines);
        if !text.trim().is_empty() {
            self.markdown_note(&text);
        }
    }

    /// Remembers a call that is not shown, because a question may be about it.
    pub(super) fn note_card(&mut self, update: &Value) {
        self.calls.entry(string(&update["toolCallId"])).or_default().update(update);
    }

    /// Shows the options of a question, and asks for one.
    pub(super) fn options(&mut self, options: &[Value]) {
        let lines = (1..).zip(options).map(|(number, option): (usize, &Value)| {
            let name = escape_hidden_line(&string(&option["name"]));
            StyledLine::words(format!("  {number}  {name}"), TextStyle::PLAIN)
        });
        self.lines(&lines.collect::<Vec<_>>());
        self.prompt(&format!(
            "1-{}, y or n; anything else rejects, and the model reads it: ",
            options.len()
        ));
    }

    /// Writes a text to stderr behind which the user types.
    pub(super) fn prompt(&mut self, text: &str) {
        self.end_message();
        self.clear_status();
        let mut shown = String::new();
        let is_styled = self.traits.is_stderr_terminal && self.traits.is_styled;
        paint(&mut shown, text, TextStyle::BOLD, is_styled);
        self.write_notes(&shown);
    }

    pub(super) fn begin_turn(&mut self) {
        self.begin("waiting for the model");
    }

    /// A turn has ended: everything is shown, and nothing goes on.
    pub(super) fn end_turn(&mut self) {
        self.end_message();
        self.clear_status();
        self.activity = None;
        self.calls.clear();
        self.needs_space = false;
    }

    /// How full the window is and what the session has cost, if that is known.
    pub(super) fn usage(&self) -> Option<String> {
        let (used, size, cost) = self.usage?;
        let share = (used * 100).checked_div(size)?;
        let cost = cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
        Some(format!("{used} of {size} tokens ({share} %){cost}"))
    }

    /// Shows on stderr what the agent is doing, if it is a terminal and nothing else is in the line.
    pub(super) fn tick(&mut self) {
        let is_possible = self.traits.is_stderr_terminal && self.traits.moves_cursor;
        let is_in_line = self.message.as_ref().is_some_and(|(_, it)| !it.is_at_line_start());
        let Some((activity, since)) = self.activity.as_ref().filter(|_| is_possible) else {
            return;
        };
        if is_in_line && self.traits.is_stdout_terminal {
            return;
        }
        let seconds = since.elapsed().as_secs();
        if seconds == 0 && !self.has_status_line {
            return;
        }
        let time = format!("  {seconds} s");
        // The last column stays empty: behind it, some terminals begin another line.
        let space = self.note_width().saturating_sub(time.len() + 3);
        let text = shortened(activity, space);
        let mut shown = CLEAR_LINE.to_owned();
        paint(&mut shown, &format!("· {text}{time}"), TextStyle::DIM, self.traits.is_styled);
        self.write_notes(&shown);
        self.has_status_line = true;
    }

    fn begin(&mut self, activity: &str) {
        if self.activity.as_ref().is_none_or(|current| current.0 != activity) {
            self.activity = Some((activity.to_owned(), Instant::now()));
        }
    }

    fn text(&mut self, id: String, text: &str) {
        if self.message.as_ref().is_none_or(|message| message.0 != id) {
            self.end_message();
            if self.needs_space {
                self.write_output("\n");
            }
            let is_styled = self.traits.is_styled;
            let message = if self.traits.is_stdout_terminal {
                MessageText::Markdown(MarkdownStream::new(is_styled))
            } else {
                MessageText::Plain(true)
            };
            self.message = Some((id, message));
        }
        self.begin("waiting for the model");
        let width = (self.width)();
        let Some((_, message)) = self.message.as_mut() else { return };
        let shown = match message {
            MessageText::Markdown(stream) => stream.push(text, width),
            MessageText::Plain(has_ended) => {
                *has_ended = if text.is_empty() { *has_ended } else { text.ends_with('\n') };
                terminal_safe(text.to_owned())
            }
        };
        if !shown.is_empty() {
            self.write_output(&shown);
        }
    }

    fn end_message(&mut self) {
        let width = (self.width)();
        let rest = match self.message.take() {
            Some((_, MessageText::Markdown(mut stream))) => stream.finish(width),
            Some((_, MessageText::Plain(false))) => "\n".to_owned(),
            Some((_, MessageText::Plain(true))) => String::new(),
            None => return,
        };
        self.needs_space = true;
        if !rest.is_empty() {
            self.write_output(&rest);
        }
    }

    fn call(&mut self, update: &Value) {
        // The model continues in another message.
        self.end_message();
        let id = string(&update["toolCallId"]);
        let card = self.calls.entry(id).or_default();
        card.update(update);
        let lines = card.take_final_lines(&self.cwd);
        let title = card.title();
        if card.is_running() {
            self.begin(&title);
        } else if !lines.is_empty() {
            self.lines(&lines);
            self.begin("waiting for the model");
        }
    }

    fn show_plan(&mut self, entries: Vec<(String, String)>) {
        if entries == self.plan {
            return;
        }
        let lines: Vec<_> = entries
            .iter()
            .map(|(text, status)| {
                let (mark, style) = match status.as_str() {
                    "completed" => ("[x]", TextStyle::DIM),
                    "in_progress" => ("[>]", TextStyle::BOLD),
                    _ => ("[ ]", TextStyle::PLAIN),
                };
                StyledLine::words(format!("  {mark} {text}"), style)
            })
            .collect();
        self.plan = entries;
        self.lines(&lines);
    }

    fn clear_status(&mut self) {
        if std::mem::take(&mut self.has_status_line) {
            self.write_notes(CLEAR_LINE);
        }
    }

    /// The columns of stderr; without a terminal, lines are not broken.
    fn note_width(&self) -> usize {
        if self.traits.is_stderr_terminal { (self.width)() } else { usize::MAX }
    }

    fn write_notes(&mut self, text: &str) {
        let written = self.notes.write_all(text.as_bytes()).and_then(|()| self.notes.flush());
        let failure = written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        self.failure = failure.or(self.failure.take());
    }
}

impl MessageText {
    fn is_at_line_start(&self) -> bool {
        match self {
            MessageText::Markdown(stream) => stream.is_at_line_start(),
            MessageText::Plain(has_ended) => *has_ended,
        }
    }
}

/// Where the text of a line begins, behind its sign or its number.
fn hanging_indent(line: &str) -> usize {
    let before = line
        .chars()
        .take_while(|letter| *letter == ' ' || letter.is_ascii_digit() || "✓✗?→".contains(*letter))
        .count();
    if before > 6 { 2 } else { before }
}

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
struct StyledLine {
    text: String,
    style: TextStyle,
    /// How far the text is indented where it is broken, if it is code: that is broken anywhere, because its spaces
    /// matter. `None` for words.
    code_indent: Option<usize>,
}

impl StyledLine {
    fn words(text: String, style: TextStyle) -> StyledLine {
        StyledLine { text, style, code_indent: None }
    }

    /// Code, or the output of a command. Hidden characters are escaped.
    fn code(text: &str, style: TextStyle, indent: usize) -> StyledLine {
        StyledLine { text: format!("  {}", escape_hidden(text)), style, code_indent: Some(indent) }
    }
}

/// A tool call as the agent has described it so far.
#[derive(Clone, Debug, Default)]
struct CallCard {
    fields: serde_json::Map<String, Value>,
    is_shown: bool,
    /// A question has shown the changes.
    was_asked: bool,
}

impl CallCard {
    /// Applies an update: fields that it omits or sets to null keep their value.
    fn update(&mut self, update: &Value) {
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
    fn title(&self) -> String {
        let title = string(self.field("title"));
        let mut lines = title.lines();
        let first = escape_hidden_line(lines.next().unwrap_or_default());
        let more = if lines.next().is_some() { " …" } else { "" };
        let sign = if self.is_command() { "$ " } else { "" };
        format!("{sign}{first}{more}")
    }

    fn is_running(&self) -> bool {
        self.field("status") == "in_progress"
    }

    /// The lines about a call that has just ended; none before that, and none a second time.
    fn take_final_lines(&mut self, cwd: &Path) -> Vec<StyledLine> {
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
    fn question(&mut self, cwd: &Path) -> (Vec<StyledLine>, String) {
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

/// The end of a command's output, without the fence around it.
fn last_lines(item: &Value) -> Vec<StyledLine> {
    let text = string(&item["content"]["text"]);
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("```")).collect();
    let skipped = lines.len().saturating_sub(MAX_OUTPUT_LINES);
    let note = format!("  … {skipped} lines before");
    let more = (skipped > 0).then(|| StyledLine::words(note, TextStyle::DIM));
    let shown = lines[skipped..].iter().map(|line| StyledLine::code(line, TextStyle::DIM, 2));
    more.into_iter().chain(shown).collect()
}

/// The first lines about a failure: words, or the output of a command.
fn first_lines(item: &Value) -> Vec<StyledLine> {
    let text = string(&item["content"]["text"]);
    text.lines()
        .filter(|line| !line.starts_with("```"))
        .take(MAX_FAILURE_LINES)
        .map(|line| StyledLine::words(format!("  {}", escape_hidden(line)), TextStyle::DIM))
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
