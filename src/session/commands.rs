//! Slash commands: a table. They are answered here, without the model.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Host;
use super::rewind::Back;
use crate::error::chain;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Message, Part, Stop};
use turnwright_store::Entry;
use crate::tools::{self, Bench};
use crate::turn::Equipment;
use turnwright_types::update;

/// A command of ours.
struct Command {
    name: &'static str,
    description: &'static str,
}

/// What a command does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run {
    /// Something with the session, at once; it says what.
    Now(fn(&mut History, &Equipment) -> String),
    /// Asks the provider for its models.
    Models,
    /// Looks at files, and tells what is there.
    Look(fn(&Bench) -> String),
    /// Shows what the project wants, and puts it in force.
    Trust,
    /// Tells or changes what is allowed.
    Permissions,
    /// Tells of the MCP servers, or has one started again.
    Servers,
    /// Tells what was, or goes back to it.
    Back(Back),
}

const TABLE: &[(Command, Run)] = &[
    (
        Command { name: "help", description: "What I can do, and the other commands" },
        Run::Now(help),
    ),
    (
        Command { name: "status", description: "Model, mode, folder and length of this session" },
        Run::Now(status),
    ),
    (Command { name: "models", description: "The models that the provider serves" }, Run::Models),
    (
        Command { name: "memory", description: "The notes that are kept for later sessions" },
        Run::Look(tools::notes),
    ),
    (
        Command { name: "skills", description: "The skills that there are" },
        Run::Look(tools::skills),
    ),
    (
        Command {
            name: "trust",
            description: "What this project's settings ask for, and how to put it in force",
        },
        Run::Trust,
    ),
    (
        Command { name: "permissions", description: "What is allowed here, and how to change it" },
        Run::Permissions,
    ),
    (
        Command {
            name: "mcp",
            description: "The MCP servers; `/mcp NAME` tells of one, `/mcp restart NAME` starts it anew",
        },
        Run::Servers,
    ),
    (
        Command {
            name: "undo",
            description: "Put files back as they were before the last turn, or the last N",
        },
        Run::Back(Back::Undo),
    ),
    (
        Command { name: "redo", description: "Do again what the last /undo took back" },
        Run::Back(Back::Redo),
    ),
    (
        Command {
            name: "diff",
            description: "The files that the last turn has changed; `/diff all` for the session",
        },
        Run::Back(Back::Diff),
    ),
    (
        Command {
            name: "rewind",
            description: "Take the conversation back N prompts; `/rewind N files` files, too",
        },
        Run::Back(Back::Rewind),
    ),
    (Command { name: "clear", description: "Forget the conversation so far" }, Run::Now(clear)),
];

/// All commands, for the client's menu.
pub(super) fn all() -> Vec<update::Command> {
    let told = |command: &Command| update::Command {
        name: command.name.to_owned(),
        description: command.description.to_owned(),
        hint: None,
    };
    TABLE.iter().map(|(command, _)| told(command)).collect()
}

/// The command that a prompt names, if it does, and the words behind it. An unknown `/word` is
/// ordinary text.
pub(super) fn find(prompt: &str) -> Option<(Run, &str)> {
    let line = prompt.trim().strip_prefix('/')?;
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (_, run) = TABLE.iter().find(|(command, _)| command.name == word)?;
    Some((*run, rest.trim()))
}

fn help(_: &mut History, equipment: &Equipment) -> String {
    let mode = equipment.mode.get();
    let mut text = format!(
        "I read and change files in this project and run commands. Cancel stops everything at \
         once. Mode {}: {}.\n\n",
        mode.name(),
        mode.description(equipment.law.get().can_confine)
    );
    for (command, _) in TABLE {
        text.push_str(&format!("* `/{}` – {}\n", command.name, command.description));
    }
    let (names, lent) = equipment.tools.overview(&equipment.offer());
    let tools: Vec<_> = names.iter().map(|it| format!("`{it}`")).collect();
    text.push_str(&format!("\nTools: {}.", tools.join(", ")));
    if lent > 0 {
        text.push_str(&format!(" And {lent} of MCP servers."));
    }
    text
}

fn status(history: &mut History, equipment: &Equipment) -> String {
    let is_prompt = |it: &&Arc<Message>| match it.as_ref() {
        Message::User(user) => user.parts.iter().any(|it| !matches!(it, Part::Context(_))),
        Message::Assistant(_) | Message::Tool(_) => false,
    };
    let prompts = history.messages.iter().filter(is_prompt).count();
    let mode = equipment.mode.get();
    let roots = equipment.bench.files.roots();
    let others = roots.others().map(|it| format!("* Folder besides: `{}`\n", it.display()));
    format!(
        "* Model: `{}`\n* Mode: {} – {}\n* Folder: `{}`\n{}* Prompts so far: {prompts}",
        equipment.thinker.get().model.name(),
        mode.name(),
        mode.description(equipment.law.get().can_confine),
        roots.cwd().display(),
        others.collect::<String>(),
    )
}

/// Tells the models of the session's provider. A cancel ends it.
pub(super) async fn models(
    host: Arc<Host>,
    equipment: Equipment,
    message: MessageId,
    cancel: CancellationToken,
) -> Stop {
    let model = equipment.thinker.get().model;
    let may_list = host.may_list();
    let listing = async { if may_list { host.list(&model).await } else { Ok(Vec::new()) } };
    let Some(listed) = cancel.run_until_cancelled(listing).await else {
        return Stop::Cancelled;
    };
    let text = match listed {
        Ok(names) => {
            let mark = |name: &String| if name == model.name() { " (in use)" } else { "" };
            let mut names: Vec<String> =
                names.iter().map(|it| format!("* `{it}`{}\n", mark(it))).collect();
            let others = host.choices().into_iter().map(|it| format!("* `{it}`\n"));
            let in_use = format!("* `{}` (in use)\n", model.name());
            let known = |it: &String| *it != format!("* `{}`\n", model.name());
            let others: Vec<_> = others.filter(|it| known(it) && !names.contains(it)).collect();
            names.extend(others);
            if !names.contains(&in_use) {
                names.insert(0, in_use);
            }
            if !may_list {
                names.push("\nNobody was asked: `list_models` is off.".to_owned());
            }
            names.concat()
        }
        Err(error) => format!("The models could not be listed: {}.", chain(&error)),
    };
    equipment.say(message, text);
    Stop::EndTurn
}

/// Tells what is found in files. A cancel ends it.
pub(super) async fn look(
    look: fn(&Bench) -> String,
    equipment: Equipment,
    message: MessageId,
    cancel: CancellationToken,
) -> Stop {
    let bench = Arc::clone(&equipment.bench);
    let looking = tokio::task::spawn_blocking(move || look(&bench));
    let Some(looked) = cancel.run_until_cancelled(looking).await else { return Stop::Cancelled };
    let text = looked.unwrap_or_else(|error| format!("The files could not be read: {error}."));
    equipment.say(message, text);
    Stop::EndTurn
}

fn clear(history: &mut History, equipment: &Equipment) -> String {
    history.messages.clear();
    equipment.log().add(Entry::Cleared);
    "The conversation so far is forgotten. Files are as they are.".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_words_are_commands() {
        assert!(find("/status").is_some());
        assert_eq!(find("  /help me \n").unwrap().1, "me");
        assert_eq!(find("/permissions revoke  a1 \n").unwrap().1, "revoke  a1");
        assert!(find("/unknown").is_none());
        assert!(find("/ status").is_none());
        assert!(find("/usr/bin/env is a path").is_none());
        assert!(find("status").is_none());
        assert!(find("/").is_none());
    }
}
