//! Slash commands: a table. They are answered here, without the model.

use crate::message::{History, Message};
use crate::turn::Equipment;
use crate::update::Command;

/// What a command does with the session, and what it says.
type Run = fn(&mut History, &Equipment) -> String;

const TABLE: &[(Command, Run)] = &[
    (Command { name: "help", description: "What I can do, and the other commands" }, help),
    (
        Command { name: "status", description: "Model, mode, folder and length of this session" },
        status,
    ),
    (Command { name: "clear", description: "Forget the conversation so far" }, clear),
];

/// All commands, for the client's menu.
pub(super) fn all() -> Vec<Command> {
    TABLE.iter().map(|(command, _)| *command).collect()
}

/// The command that a prompt names, if it does. An unknown `/word` is ordinary text.
pub(super) fn find(prompt: &str) -> Option<Run> {
    let word = prompt.trim().strip_prefix('/')?.split_whitespace().next()?;
    TABLE.iter().find(|(command, _)| command.name == word).map(|(_, run)| *run)
}

fn help(_: &mut History, equipment: &Equipment) -> String {
    let mut text = "I read and change files in this project and run commands; I ask before each \
                    change and each command. Cancel stops everything at once.\n\n"
        .to_owned();
    for (command, _) in TABLE {
        text.push_str(&format!("* `/{}` – {}\n", command.name, command.description));
    }
    let specs = equipment.tools.specs();
    let tools: Vec<_> = specs.iter().map(|it| format!("`{}`", it.name)).collect();
    text.push_str(&format!("\nTools: {}.", tools.join(", ")));
    text
}

fn status(history: &mut History, equipment: &Equipment) -> String {
    let prompts = history.messages.iter().filter(|it| matches!(***it, Message::User(_))).count();
    let mode = equipment.mode.get();
    format!(
        "* Model: `{}`\n* Mode: {} – {}\n* Folder: `{}`\n* Prompts so far: {prompts}",
        equipment.model.name(),
        mode.name(),
        mode.description(),
        equipment.files.roots().cwd().display(),
    )
}

fn clear(history: &mut History, _: &Equipment) -> String {
    history.messages.clear();
    "The conversation so far is forgotten. Files are as they are.".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_words_are_commands() {
        assert!(find("/status").is_some());
        assert!(find("  /help me").is_some());
        assert!(find("/unknown").is_none());
        assert!(find("/usr/bin/env is a path").is_none());
        assert!(find("status").is_none());
        assert!(find("/").is_none());
    }
}
