//! The line in which the user types a prompt, with a history and with slash commands to choose from.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use rustyline::completion::{Completer, Pair};
use rustyline::config::{ColorMode, CompletionType};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{DefaultHistory, History};
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::prompt_history::{MAX_ENTRIES, PromptHistory};
use turnwright_types::redact;

/// How the editing of a line ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EditedLine {
    Prompt(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the terminal was closed.
    Ended,
}

/// The editor of a conversation.
pub(super) struct LineEditor {
    editor: Editor<SlashCommands, DefaultHistory>,
    history: PromptHistory,
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
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(SlashCommands::default()));
        let history = PromptHistory::new(state);
        for entry in history.read() {
            editor.history_mut().add_owned(entry)?;
        }
        Ok(LineEditor { editor, history })
    }

    /// The slash commands, which may change while the user types.
    pub(super) fn commands(&self) -> SlashCommands {
        self.editor.helper().cloned().unwrap_or_default()
    }

    /// Lets the user type a line that begins with a text. Blocks. Further lines that come at once, as when
    /// several are pasted, are kept for the next call.
    pub(super) fn read(&mut self, begun: &str) -> io::Result<EditedLine> {
        match self.editor.readline_with_initial("> ", (begun, "")) {
            Ok(line) => {
                self.remember(&line);
                Ok(EditedLine::Prompt(line))
            }
            Err(ReadlineError::Interrupted) => Ok(EditedLine::Interrupted),
            Err(ReadlineError::Eof) => Ok(EditedLine::Ended),
            Err(ReadlineError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    /// Adds a line to the history. A history that cannot be written is no reason to stop.
    pub(super) fn remember(&mut self, line: &str) {
        let mut line = line.trim_end().to_owned();
        redact::redact_in_place(&mut line);
        let is_new = matches!(self.editor.add_history_entry(&line), Ok(true));
        if is_new && let Err(error) = self.history.append(&line) {
            tracing::debug!(%error, "the history cannot be written");
        }
    }
}

/// Slash commands, each with a description. Completes them at the beginning of the line.
#[derive(Clone, Debug, Default)]
pub(super) struct SlashCommands(Arc<Mutex<Vec<(String, String)>>>);

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
    pub(super) fn set(&self, commands: Vec<(String, String)>) {
        *self.0.lock() = commands;
    }

    fn candidates(&self, typed: &str) -> Vec<Pair> {
        let Some(word) = typed.strip_prefix('/').filter(|word| !word.contains(' ')) else {
            return Vec::new();
        };
        let commands = self.0.lock();
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
        let commands = self.0.lock();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_completed_at_the_beginning_only() {
        let command = |name: &str| (name.to_owned(), String::new());
        let commands = SlashCommands::default();
        commands.set(vec![command("mode"), command("model"), command("undo")]);
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
}
