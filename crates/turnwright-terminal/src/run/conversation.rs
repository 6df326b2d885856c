//! A conversation in the terminal, line by line: the line in which the user types a prompt, with slash commands to
//! choose from, and with the prompts of earlier conversations, which are in a file of the state folder that only the
//! user can read, an entry a line.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::RunOptions;
use super::exit_status::TurnEnd;
use super::run_client::{RequestFailure, RunClient};
use rustyline::completion::{Completer, Pair};
use rustyline::config::{ColorMode, CompletionType};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{DefaultHistory, History};
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use turnwright_rpc::RpcMessage;
use turnwright_types::{private_file, redact};

/// The maximum number of messages of the agent that are kept while the user types a prompt.
const MAX_WAITING_MESSAGES: usize = 256;

/// From this similarity a word is taken for a mistyped command; 1 is equality.
const MIN_SIMILARITY: f64 = 0.9;

const WELCOME: &str =
    "Type a prompt. Tab completes slash commands, Ctrl-C cancels a turn, Ctrl-D leaves.";
const HOW_TO_LEAVE: &str = "Ctrl-D leaves.";

/// The slash commands that end the program. The agent does not know them.
const LEAVE_COMMANDS: [(&str, &str); 2] = [("exit", "Leave"), ("quit", "Leave")];

/// Runs turns with the prompts that the user types. Returns how the program is to end.
pub(super) async fn converse(
    client: &mut RunClient,
    editor: LineEditor,
    options: &RunOptions,
) -> TurnEnd {
    client.screen.note(WELCOME);
    let mut editor = Some(editor);
    let mut shown_usage = None;
    loop {
        let line = match client.take_typed_line() {
            Some(line) => {
                client.screen.note(&format!("> {}", line.trim_end()));
                if let Some(editor) = &mut editor {
                    editor.remember(&line);
                }
                Some(line)
            }
            None => match read_prompt_line(client, &mut editor).await {
                Ok(line) => line,
                Err(end) => return end,
            },
        };
        let Some(text) = line else {
            client.screen.note(HOW_TO_LEAVE);
            continue;
        };
        let words = text.trim();
        if words.is_empty() {
            continue;
        }
        if words.strip_prefix(['/', '／', '、']).is_some_and(is_leave_command) {
            return TurnEnd::Done;
        }
        if let Some(meant) = mistyped_command(&text, &client.commands) {
            client.screen.note(&format!(
                "There is no such command. Did you mean /{meant}? Behind a space it is a prompt."
            ));
            continue;
        }
        let blocks = vec![json!({ "type": "text", "text": words })];
        let (end, answer) = client.prompt(blocks, options.max_time).await;
        match &answer {
            Some(Ok(_)) => {}
            // Only the turn has failed: the next prompt may succeed.
            Some(Err(error)) => client.report_error(error),
            None => return end,
        }
        if let Some(note) = end.note() {
            client.screen.note(note);
        }
        if end == TurnEnd::Cancelled {
            show_unsent(client);
        }
        show_new_usage(client, &mut shown_usage);
    }
}

/// Shows what was typed during a turn that was cancelled.
fn show_unsent(client: &mut RunClient) {
    for line in client.take_typed_rest().lines() {
        client.screen.note(&format!("Not sent: {line}"));
    }
}

/// Shows what was used, if that has changed: most slash commands do not use the model.
fn show_new_usage(client: &mut RunClient, shown: &mut Option<String>) {
    let usage = client.screen.usage();
    if let Some(text) = usage.as_ref().filter(|text| Some(*text) != shown.as_ref()) {
        client.screen.note(text);
    }
    *shown = usage;
}

fn is_leave_command(word: &str) -> bool {
    LEAVE_COMMANDS.iter().any(|(name, _)| name.eq_ignore_ascii_case(word))
}

/// The slash command that a line with an unknown one may mean; otherwise the model would be asked about it. A line
/// that begins with a space is a prompt, and so is one without a similar command: its file may be new.
fn mistyped_command<'c>(line: &str, commands: &'c [(String, String)]) -> Option<&'c str> {
    let word = line.strip_prefix('/')?.split(char::is_whitespace).next()?;
    let names = || commands.iter().map(|command| command.0.as_str());
    if word.is_empty() || names().any(|name| name.eq_ignore_ascii_case(word)) {
        return None;
    }
    let similarity = |name: &str| strsim::jaro_winkler(name, word);
    let closest = names().max_by(|left, right| similarity(left).total_cmp(&similarity(right)));
    closest.filter(|name| similarity(name) >= MIN_SIMILARITY)
}

/// Reads a prompt line; `None` after Ctrl-C. Messages that the agent sends in the meantime are shown afterwards.
async fn read_prompt_line(
    client: &mut RunClient,
    editor: &mut Option<LineEditor>,
) -> Result<Option<String>, TurnEnd> {
    let Some(mut used) = editor.take() else { return Err(TurnEnd::Failed) };
    let (commands, offered) = watch::channel(offered_commands(client));
    let begun = client.take_typed_rest();
    let mut typing = spawn_blocking(move || {
        let line = used.read(&begun, offered);
        (used, line)
    });
    let mut waiting: VecDeque<RpcMessage> = VecDeque::new();
    let line = loop {
        tokio::select! {
            typed = &mut typing => match typed {
                Ok((used, line)) => {
                    *editor = Some(used);
                    break line;
                }
                Err(_) => return Err(TurnEnd::Failed),
            },
            message = client.wait_while_editing(), if waiting.len() < MAX_WAITING_MESSAGES => {
                if let Some(message) = message?
                    && let Some(message) = client.take_commands(message)
                {
                    waiting.push_back(message);
                } else {
                    commands.send_replace(offered_commands(client));
                }
            }
        }
    };
    for message in waiting {
        match client.on_message(message).await {
            Ok(()) | Err(RequestFailure::Error(_)) => {}
            Err(RequestFailure::Ended(end)) => return Err(end),
        }
    }
    client.screen.end_turn();
    match line {
        Ok(line) => Ok(Some(line)),
        Err(ReadlineError::Interrupted) => Ok(None),
        // Ctrl-D, or the terminal was closed.
        Err(ReadlineError::Eof) => Err(TurnEnd::Done),
        Err(_) => Err(TurnEnd::Failed),
    }
}

fn offered_commands(client: &RunClient) -> Vec<(String, String)> {
    let leave = LEAVE_COMMANDS.map(|(name, description)| (name.to_owned(), description.to_owned()));
    client.commands.iter().cloned().chain(leave).collect()
}

/// The editor of a conversation.
pub(super) struct LineEditor {
    editor: Editor<SlashCommands, DefaultHistory>,
    /// The file of the history.
    history: PathBuf,
}

impl LineEditor {
    /// Opens the terminal. The history is in a file of the state folder that only the user can read.
    pub(super) fn open(state: &Path, is_styled: bool) -> Result<LineEditor, ReadlineError> {
        let color = if is_styled { ColorMode::Enabled } else { ColorMode::Disabled };
        let config = rustyline::Config::builder()
            .completion_type(CompletionType::List)
            .color_mode(color)
            .max_history_size(MAX_ENTRIES)?
            .history_ignore_space(true)
            .auto_add_history(false)
            .build();
        let mut editor: Editor<SlashCommands, DefaultHistory> = Editor::with_config(config)?;
        let history = state.join("run_history");
        for entry in read_history(&history) {
            editor.history_mut().add_owned(entry)?;
        }
        Ok(LineEditor { editor, history })
    }

    /// Lets the user type a line that begins with a text. The slash commands may change meanwhile. Blocks.
    /// Further lines that come at once, as when several are pasted, are kept for the next call.
    fn read(
        &mut self,
        begun: &str,
        commands: watch::Receiver<Vec<(String, String)>>,
    ) -> rustyline::Result<String> {
        self.editor.set_helper(Some(SlashCommands(commands)));
        let line = self.editor.readline_with_initial("> ", (begun, ""))?;
        self.remember(&line);
        Ok(line)
    }

    /// Adds a line to the history. A history that cannot be written is no reason to stop.
    fn remember(&mut self, line: &str) {
        let mut line = line.trim_end().to_owned();
        redact::redact_in_place(&mut line);
        let is_new = matches!(self.editor.add_history_entry(&line), Ok(true));
        if is_new && let Err(error) = append_to_history(&self.history, &line) {
            tracing::debug!(%error, "the history cannot be written");
        }
    }
}

/// Slash commands, each with a description. Completes them at the beginning of the line.
struct SlashCommands(watch::Receiver<Vec<(String, String)>>);

impl Completer for SlashCommands {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok((0, self.candidates(&line[..position])))
    }
}

impl SlashCommands {
    fn candidates(&self, typed: &str) -> Vec<Pair> {
        let Some(word) = typed.strip_prefix('/').filter(|word| !word.contains(' ')) else {
            return Vec::new();
        };
        let commands = self.0.borrow();
        let fitting = commands.iter().filter(|(name, _)| name.starts_with(word));
        let pairs = fitting.map(|(name, _)| Pair {
            display: format!("/{name}"),
            replacement: format!("/{name} "),
        });
        pairs.collect()
    }
}

impl Hinter for SlashCommands {
    type Hint = String;

    /// Shows the description of the command that is typed.
    fn hint(&self, line: &str, position: usize, _: &Context<'_>) -> Option<String> {
        let name = line.strip_prefix('/').filter(|_| position == line.len())?;
        let commands = self.0.borrow();
        let (_, description) = commands.iter().find(|command| command.0 == name)?;
        Some(format!("  {description}"))
    }
}

impl Highlighter for SlashCommands {
    fn highlight_hint<'h>(&self, hint: &'h str) -> std::borrow::Cow<'h, str> {
        format!("\x1b[2m{hint}\x1b[0m").into()
    }
}

impl Validator for SlashCommands {}

impl Helper for SlashCommands {}

/// The most entries that are kept.
const MAX_ENTRIES: usize = 1_000;

/// Reads the newest entries of the file of the history, and shortens a file that has grown too long.
fn read_history(path: &Path) -> Vec<String> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    let kept = &lines[lines.len().saturating_sub(MAX_ENTRIES)..];
    if lines.len() > 2 * MAX_ENTRIES
        && let Err(error) = private_file::write(path, (kept.join("\n") + "\n").as_bytes())
    {
        tracing::debug!(%error, "the history cannot be shortened");
    }
    kept.iter().map(|line| restored_entry(line)).collect()
}

fn append_to_history(path: &Path, entry: &str) -> io::Result<()> {
    let line = format!("{}\n", entry.replace('\\', "\\\\").replace('\n', "\\n"));
    private_file::append(path, line.as_bytes())
}

fn restored_entry(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => text.push(if chars.next() == Some('n') { '\n' } else { '\\' }),
            char => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_command_is_no_prompt() {
        let commands =
            ["mode", "model", "undo", "db:seed"].map(|name| (name.to_owned(), String::new()));
        for (line, expected) in [
            ("/modee plan", Some("mode")),
            ("/udno", Some("undo")),
            ("/mode plan", None),
            ("/db:seed", None),
            (" /modee plan", None),
            ("/unlike", None),
            ("/etc/hosts is odd", None),
            ("/ is full", None),
            ("what is /modee", None),
            ("", None),
        ] {
            assert_eq!(mistyped_command(line, &commands), expected, "{line:?}");
            assert_eq!(mistyped_command(line, &[]), None);
        }
    }

    #[test]
    fn commands_are_completed_at_the_beginning_only() {
        let command = |name: &str| (name.to_owned(), String::new());
        let all = vec![command("mode"), command("model"), command("undo")];
        let commands = SlashCommands(watch::channel(all).1);
        for (typed, expected) in [
            ("/mo", &["/mode ", "/model "][..]),
            ("/", &["/mode ", "/model ", "/undo "]),
            ("/undo x", &[]),
            ("say /mo", &[]),
            ("", &[]),
        ] {
            let found = commands.candidates(typed);
            let found: Vec<_> = found.iter().map(|pair| pair.replacement.as_str()).collect();
            assert_eq!(found, expected, "{typed:?}");
        }
    }

    #[test]
    fn the_history_keeps_prompts_of_several_lines_and_no_more_than_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("run_history");
        let entries = ["one", "two\nlines \\n", "\\"];
        for entry in entries {
            append_to_history(&history, entry).unwrap();
        }
        assert_eq!(read_history(&history), entries);
        for number in 0..2 * MAX_ENTRIES {
            append_to_history(&history, &number.to_string()).unwrap();
        }
        assert_eq!(read_history(&history).len(), MAX_ENTRIES);
        let text = std::fs::read_to_string(&history).unwrap();
        assert_eq!((text.lines().count(), text.lines().last()), (MAX_ENTRIES, Some("1999")));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&history).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
