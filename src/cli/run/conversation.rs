//! A conversation in the terminal, line by line.

use std::collections::VecDeque;

use serde_json::json;

use super::RunOptions;
use super::exit_status::TurnEnd;
use super::line_editor::{EditedLine, LineEditor};
use super::run_client::{RequestFailure, RunClient};
use tokio::task::spawn_blocking;
use turnwright_rpc::RpcMessage;

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
                EditedLine::Prompt(line)
            }
            None => match read_prompt_line(client, &mut editor).await {
                Ok(line) => line,
                Err(end) => return end,
            },
        };
        let text = match line {
            EditedLine::Ended => return TurnEnd::Done,
            EditedLine::Interrupted => {
                client.screen.note(HOW_TO_LEAVE);
                continue;
            }
            EditedLine::Prompt(text) => text,
        };
        let words = text.trim();
        if words.is_empty() {
            continue;
        }
        if words.strip_prefix(['/', '／', '、']).is_some_and(is_leave_command) {
            return TurnEnd::Done;
        }
        if let Some(meant) = mistyped_command(&text, client.commands()) {
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

/// Reads a prompt line. Messages that the agent sends in the meantime are shown afterwards.
async fn read_prompt_line(
    client: &mut RunClient,
    editor: &mut Option<LineEditor>,
) -> Result<EditedLine, TurnEnd> {
    let Some(mut used) = editor.take() else { return Err(TurnEnd::Failed) };
    let leave = LEAVE_COMMANDS.map(|(name, description)| (name.to_owned(), description.to_owned()));
    let commands = used.commands();
    commands.set(client.commands().iter().cloned().chain(leave.clone()).collect());
    let begun = client.take_typed_rest();
    let mut typing = spawn_blocking(move || {
        let line = used.read(&begun);
        (used, line)
    });
    let mut waiting: VecDeque<RpcMessage> = VecDeque::new();
    let line = loop {
        tokio::select! {
            typed = &mut typing => match typed {
                Ok((used, line)) => {
                    *editor = Some(used);
                    break line.map_err(|_| TurnEnd::Failed)?;
                }
                Err(_) => return Err(TurnEnd::Failed),
            },
            message = client.wait_while_editing(), if waiting.len() < MAX_WAITING_MESSAGES => {
                if let Some(message) = message?
                    && let Some(message) = client.take_commands(message)
                {
                    waiting.push_back(message);
                } else {
                    commands.set(client.commands().iter().cloned().chain(leave.clone()).collect());
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
    Ok(line)
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
}
