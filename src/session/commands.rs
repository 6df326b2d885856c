//! The table of built-in slash commands. Most are answered without the model.

pub(super) mod checkpoint;
mod context;
pub(super) mod custom;
pub(super) mod permissions;
pub(super) mod record;
pub(super) mod resume;
mod settings;
pub(super) mod steer;
pub(super) mod trust;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::SessionHost;
use crate::error::{as_sentence, error_chain};
use crate::tools::{self, ToolEnv};
use crate::turn::{self, TurnServices};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::Mode;
use turnwright_store::Entry;
use turnwright_types::ids::MessageId;
use turnwright_types::learned_window::LearnedWindow;
use turnwright_types::message::{History, Message, PromptPart, StopReason};
use turnwright_types::update::{self, ConfigOptionId};

use checkpoint::CheckpointCommand;

/// A built-in slash command.
struct BuiltInCommand {
    name: &'static str,
    description: &'static str,
    /// Describes the argument; `None` if there is none.
    hint: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CommandAction {
    /// Acts on the session at once and returns the answer.
    Immediate(fn(&mut History, &TurnServices) -> String),
    /// Shows what the agent can do.
    Help,
    /// Starts a turn with this text for the model.
    Prompt(&'static str),
    /// Says that this command takes no argument.
    UnexpectedArgument(&'static str),
    /// Shows or changes a setting.
    Setting(ConfigOptionId),
    /// Lists the provider's models.
    Models,
    /// Reads files and returns the answer.
    ReadFiles(fn(&ToolEnv) -> String),
    /// Shows what the project's settings ask for, and trusts them.
    Trust,
    /// Shows or changes the permission rules.
    Permissions,
    /// Shows the MCP servers, or restarts one.
    Servers,
    /// Summarises the conversation.
    Compact,
    /// Starts or ends a recording.
    Record,
    /// Lists the sessions of this folder, or continues one here.
    Resume,
    /// Shows file changes, or goes back to an earlier state.
    Checkpoint(CheckpointCommand),
}

const fn command(
    name: &'static str,
    description: &'static str,
    hint: Option<&'static str>,
) -> BuiltInCommand {
    BuiltInCommand { name, description, hint }
}

const COMMANDS: &[(BuiltInCommand, CommandAction)] = &[
    (command("help", "Show what I can do and all commands", None), CommandAction::Help),
    (
        command("init", "Write an AGENTS.md for this project", Some("what matters to you")),
        CommandAction::Prompt(include_str!("commands/init_prompt.md")),
    ),
    (
        command(
            "review",
            "Review the changes of the working copy",
            Some("files, a branch or a commit"),
        ),
        CommandAction::Prompt(include_str!("commands/review_prompt.md")),
    ),
    (
        command("status", "Show model, mode, folders, tokens and cost of this session", None),
        CommandAction::Immediate(status),
    ),
    (
        command("cost", "Show the tokens and the cost of this session", None),
        CommandAction::Immediate(usage),
    ),
    (
        command("context", "Show what fills the model's window", None),
        CommandAction::Immediate(context::report),
    ),
    (
        command(
            "steer",
            "Tell the model something while it works",
            Some("what it should take into account"),
        ),
        CommandAction::Immediate(|_, _| steer::usage()),
    ),
    (
        command("mode", "Show or change the mode", Some("plan, ask, auto-edit, auto or full")),
        CommandAction::Setting(ConfigOptionId::Mode),
    ),
    (
        command("model", "Show or change the model", Some("name of a model")),
        CommandAction::Setting(ConfigOptionId::Model),
    ),
    (command("models", "List the available models", None), CommandAction::Models),
    (
        command("memory", "Show the notes for later sessions", None),
        CommandAction::ReadFiles(tools::describe_notes),
    ),
    (
        command("skills", "List the available skills", None),
        CommandAction::ReadFiles(tools::describe_skills),
    ),
    (
        command("trust", "Review and trust this project's settings", Some("the code shown")),
        CommandAction::Trust,
    ),
    (
        command(
            "permissions",
            "Show or change what is allowed here",
            Some("allow RULE, deny RULE, revoke ID or forget"),
        ),
        CommandAction::Permissions,
    ),
    (
        command(
            "mcp",
            "List MCP servers; `/mcp NAME` shows one, `/mcp restart NAME` restarts it",
            Some("NAME or restart NAME"),
        ),
        CommandAction::Servers,
    ),
    (
        command(
            "undo",
            "Undo the file changes of the last turn, or of the last N",
            Some("number of turns"),
        ),
        CommandAction::Checkpoint(CheckpointCommand::Undo),
    ),
    (
        command("redo", "Redo what the last /undo or /rewind reverted", None),
        CommandAction::Checkpoint(CheckpointCommand::Redo),
    ),
    (
        command(
            "diff",
            "Show the file changes of the last turn; `/diff all` of the session",
            Some("all"),
        ),
        CommandAction::Checkpoint(CheckpointCommand::Diff),
    ),
    (
        command(
            "rewind",
            "Go back N prompts; `/rewind N files` restores files, too",
            Some("N or N files"),
        ),
        CommandAction::Checkpoint(CheckpointCommand::Rewind),
    ),
    (
        command(
            "resume",
            "List the sessions of this folder; `/resume N` continues a copy here",
            Some("number or id of a session"),
        ),
        CommandAction::Resume,
    ),
    (
        command("compact", "Summarise the conversation to make room", Some("what to keep")),
        CommandAction::Compact,
    ),
    (
        command(
            "record",
            "Record this session for a bug report; `/record stop` ends it",
            Some("file, or stop"),
        ),
        CommandAction::Record,
    ),
    (command("clear", "Clear the conversation", None), CommandAction::Immediate(clear)),
];

/// All built-in commands, for the client's menu.
pub(super) fn all() -> Vec<update::SlashCommand> {
    COMMANDS
        .iter()
        .map(|(command, _)| update::SlashCommand {
            name: command.name.to_owned(),
            description: command.description.to_owned(),
            hint: command.hint.map(str::to_owned),
        })
        .collect()
}

/// Returns the word behind the slash that a prompt begins with, and what follows it. Where input methods for
/// Chinese and Japanese are on, the key of the slash gives another character.
pub(super) fn split(prompt: &str) -> Option<(&str, &str)> {
    let line = prompt.trim().strip_prefix(['/', '／', '、'])?;
    Some(line.split_once(char::is_whitespace).unwrap_or((line, "")))
}

/// Returns the command that a prompt starts with and the rest of its line. An unknown `/word` is
/// ordinary text. What follows `/help` is ignored, because the answer helps all the same.
pub(super) fn find(prompt: &str) -> Option<(CommandAction, &str)> {
    let (word, rest) = split(prompt)?;
    let (command, run) =
        COMMANDS.iter().find(|(command, _)| command.name.eq_ignore_ascii_case(word))?;
    let has_usage = matches!(run, CommandAction::Checkpoint(_)) || command.name == "help";
    if command.hint.is_none() && !rest.trim().is_empty() && !has_usage {
        return Some((CommandAction::UnexpectedArgument(command.name), ""));
    }
    Some((*run, rest.trim()))
}

/// Describes what the agent can do, with the commands of the menu.
pub(super) fn help(services: &TurnServices, menu: &[update::SlashCommand]) -> String {
    let mode = services.mode.get();
    let mut text = format!(
        "I read and change files in this project and run commands. Cancel stops everything at \
         once. Mode {}: {}.\n\n",
        mode.name(),
        mode.description(services.policy.get().can_confine)
    );
    for command in menu {
        text.push_str(&format!("* `/{}` – {}\n", command.name, command.description));
    }
    let (names, remote) = services.tools.overview(&services.offer());
    let tools: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    text.push_str(&format!("\nTools: {}.", tools.join(", ")));
    if remote > 0 {
        text.push_str(&format!(" And {remote} from MCP servers."));
    }
    text
}

fn status(history: &mut History, services: &TurnServices) -> String {
    let typed = history.messages.iter().filter(|message| match message.as_ref() {
        Message::User(user) => {
            user.parts.iter().any(|part| !matches!(part, PromptPart::Context(_)))
        }
        Message::Assistant(_) | Message::Tool(_) => false,
    });
    let prompts = typed.count();
    let mode = services.mode.get();
    let roots = services.env.files.roots();
    let others = roots
        .additional_folders()
        .map(|folder| format!("* Additional folder: `{}`\n", folder.display()));
    let can_confine = services.policy.get().can_confine;
    format!(
        "* Session: `{}`\n* Model: `{}`\n* Mode: {} – {}\n* Sandbox: {}\n* Folder: `{}`\n{}* Prompts \
         so far: {prompts}\n{}",
        services.env.session,
        services.selection.get().model.name(),
        mode.name(),
        mode.description(can_confine),
        sandbox_state(mode, can_confine),
        roots.cwd().display(),
        others.collect::<String>(),
        usage(history, services),
    )
}

/// The tokens in use and the cost.
fn usage(history: &mut History, services: &TurnServices) -> String {
    let model = services.selection.get().model;
    let window = turn::window(model.as_ref(), history);
    let is_assumed = turn::is_window_assumed(model.as_ref(), history);
    let size = if is_assumed { ", which is assumed" } else { "" };
    let context = match history.meter.last_count() {
        Some(used) => format!("{used} of {window} tokens{size}"),
        None => format!("a window of {window} tokens{size}; not counted yet"),
    };
    let cost = history.cost.map_or("not known".to_owned(), |cost| format!("${cost:.4}"));
    format!("* Context: {context}\n* Cost: {cost}")
}

/// Describes what the sandbox does in this mode.
pub(super) fn sandbox_state(mode: Mode, can_confine: bool) -> &'static str {
    match (mode, can_confine) {
        (Mode::Full, _) => "off in this mode",
        (_, true) => "commands run in it unless you allow one without",
        (_, false) => "not available, so no command is allowed because of it",
    }
}

/// Lists the models of the session's provider. A cancel ends it.
pub(super) async fn list_models(
    host: Arc<SessionHost>,
    services: TurnServices,
    message: MessageId,
    cancel: CancellationToken,
) -> StopReason {
    let model = services.selection.get().model;
    let may_list = host.may_list_models();
    let answering = async {
        let listed = if may_list { host.list_models(&model).await } else { Ok(Vec::new()) };
        let names = match listed {
            Ok(names) => names,
            Err(error) => {
                let why = error_chain(&error);
                return as_sentence(format!("The models could not be listed: {why}"));
            }
        };
        let mut names: Vec<String> = names
            .iter()
            .map(|name| {
                let mark = if name == model.name() { " (in use)" } else { "" };
                format!("* `{name}`{mark}\n")
            })
            .collect();
        let others = host.model_choices().into_iter().map(|name| format!("* `{name}`\n"));
        let current = format!("* `{}`\n", model.name());
        let in_use = format!("* `{}` (in use)\n", model.name());
        let others: Vec<_> =
            others.filter(|line| *line != current && !names.contains(line)).collect();
        names.extend(others);
        if !names.contains(&in_use) {
            names.insert(0, in_use);
        }
        if !may_list {
            names.push("\nThe provider was not asked, because `list_models` is off.".to_owned());
        }
        names.concat()
    };
    answer(&services, message, &cancel, answering).await
}

/// Answers from files. After a cancel the reading goes on in the background.
pub(super) async fn read_files(
    read: impl FnOnce() -> String + Send + 'static,
    services: TurnServices,
    message: MessageId,
    cancel: CancellationToken,
) -> StopReason {
    let reading = spawn_blocking(read);
    let answering = async {
        reading.await.unwrap_or_else(|error| format!("The files could not be read: {error}."))
    };
    answer(&services, message, &cancel, answering).await
}

/// Says the answer of a command. A cancel ends it.
async fn answer(
    services: &TurnServices,
    message: MessageId,
    cancel: &CancellationToken,
    answering: impl Future<Output = String>,
) -> StopReason {
    let Some(text) = cancel.run_until_cancelled(answering).await else {
        return StopReason::Cancelled;
    };
    services.say(message, text);
    StopReason::EndTurn
}

fn clear(history: &mut History, services: &TurnServices) -> String {
    history.messages.clear();
    history.meter.forget_count();
    history.learned_window = LearnedWindow::default();
    services.forget_told_context();
    services.log().add_entry(Entry::Cleared);
    "Conversation cleared. Files were not changed.".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_documented() {
        let documented = include_str!("../../docs/tools.md");
        for (command, _) in COMMANDS {
            assert!(documented.contains(&format!("`/{}`", command.name)), "{}", command.name);
        }
    }

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
        assert_eq!(find("／Undo　3").unwrap().1, "3");
        assert!(find("、help").is_some());
        assert!(find("、其他").is_none());
    }
}
