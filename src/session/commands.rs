//! The built-in slash commands. The table has a row for each: what the client's menu shows, and the function
//! that starts its work. Commands that tell one story share a file. Most are answered without the model.

mod checkpoint;
mod checks;
mod context;
pub(super) mod custom;
mod goal;
mod hooks;
mod mcp;
mod permissions;
pub(super) mod record;
mod remember;
mod resume;
mod settings;
mod status;
pub(super) mod steer;
pub(super) mod trust;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::SessionHost;
use super::actor::SessionActor;
use super::prompts::{PromptWork, finish_command, log_command};
use crate::turn::{Conversation, FinishedTurn};
use tokio::task::spawn_blocking;
use turnwright_store::TurnKind;
use turnwright_types::file_link::FileLink;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, PromptPart, StopReason, UserMessage};
use turnwright_types::update::SlashCommand;

use Argument::{Hint, Refused, Unlisted};

/// A built-in slash command.
pub(super) struct BuiltInCommand {
    name: &'static str,
    description: &'static str,
    argument: Argument,
    /// Starts the work that the command asks for.
    run: fn(&mut SessionActor, CommandCall) -> PromptWork,
}

/// The words that may follow the name of a command.
enum Argument {
    /// The command does nothing if there are any.
    Refused,
    /// The menu names none. If there are any, the command deals with them.
    Unlisted,
    /// The menu shows this in their place.
    Hint(&'static str),
}

/// A command that the user has typed.
pub(super) struct CommandCall {
    pub(super) prompt: UserMessage,
    /// The text of the prompt that begins with the command.
    pub(super) typed: String,
    /// The words behind the command's name.
    pub(super) arguments: String,
    pub(super) cancel: CancellationToken,
}

const fn command(
    name: &'static str,
    description: &'static str,
    argument: Argument,
    run: fn(&mut SessionActor, CommandCall) -> PromptWork,
) -> BuiltInCommand {
    BuiltInCommand { name, description, argument, run }
}

const COMMANDS: &[BuiltInCommand] = &[
    command("help", "Show what I can do and all commands", Unlisted, status::help),
    command(
        "init",
        "Write an AGENTS.md for this project",
        Hint("what matters to you"),
        custom::init,
    ),
    command(
        "review",
        "Review the changes of the working copy",
        Hint("files, a branch or a commit"),
        custom::review,
    ),
    command(
        "status",
        "Show model, mode, folders, tokens and cost of this session",
        Refused,
        status::status,
    ),
    command("cost", "Show the tokens and the cost of this session", Refused, status::cost),
    command("context", "Show what fills the model's window", Refused, context::context),
    command(
        "steer",
        "Tell the model something while it works",
        Hint("what it should take into account"),
        steer::run,
    ),
    command(
        "mode",
        "Show or change the mode",
        Hint("plan, ask, auto-edit, auto or full"),
        settings::mode,
    ),
    command("model", "Show or change the model", Hint("name of a model"), settings::model),
    command("models", "List the available models", Refused, settings::models),
    command("memory", "Show the notes for later sessions", Refused, status::memory),
    command("skills", "List the available skills", Refused, status::skills),
    command(
        "trust",
        "Review and trust this project's settings",
        Hint("the code shown"),
        trust::run,
    ),
    command(
        "permissions",
        "Show or change what is allowed here",
        Hint("keep, allow RULE, deny RULE, revoke ID or forget"),
        permissions::run,
    ),
    command(
        "checks",
        "Show the checks of this project; `/checks forget` asks again",
        Hint("forget"),
        checks::run,
    ),
    command(
        "hooks",
        "List the hooks of this session, and how each ended last",
        Refused,
        hooks::run,
    ),
    command(
        "mcp",
        "List MCP servers; `/mcp NAME` shows one, `/mcp restart NAME` restarts it",
        Hint("NAME or restart NAME"),
        mcp::run,
    ),
    command(
        "undo",
        "Undo the file changes of the last turn, or of the last N",
        Hint("number of turns"),
        checkpoint::undo,
    ),
    command("redo", "Redo what the last /undo or /rewind reverted", Unlisted, checkpoint::redo),
    command(
        "diff",
        "Show the file changes of the last turn; `/diff all` of the session",
        Hint("all"),
        checkpoint::diff,
    ),
    command(
        "rewind",
        "Go back N prompts; `/rewind N files` restores files, too",
        Hint("N or N files"),
        checkpoint::rewind,
    ),
    command(
        "resume",
        "List the sessions of this folder; `/resume N` continues a copy here",
        Hint("number or id of a session"),
        resume::run,
    ),
    command(
        "compact",
        "Summarise the conversation to make room",
        Hint("what to keep"),
        context::compact,
    ),
    command(
        "record",
        "Record this session for a bug report; `/record stop` ends it",
        Hint("file, or stop"),
        record::run,
    ),
    command("clear", "Clear the conversation", Refused, context::clear),
    command(
        "goal",
        "Work until something is proven; `/goal` shows it",
        Hint("WHAT [--check CMD] [--turns N] [--budget NAME=N], pause, resume, clear or edit"),
        goal::run,
    ),
    command(
        "remember",
        "Keep what was offered as a note, or your own words",
        Hint("text"),
        remember::run,
    ),
];

/// All built-in commands, for the client's menu.
pub(super) fn all() -> Vec<SlashCommand> {
    COMMANDS
        .iter()
        .map(|command| SlashCommand {
            name: command.name.to_owned(),
            description: command.description.to_owned(),
            hint: match command.argument {
                Hint(hint) => Some(hint.to_owned()),
                Refused | Unlisted => None,
            },
            skill: None,
        })
        .collect()
}

/// Returns true if a part of a prompt is text that may be a command.
pub(super) fn is_words(part: &PromptPart) -> bool {
    matches!(part, PromptPart::Text(text) if !text.trim().is_empty())
}

/// The text of a prompt that may be a command. Editors split the text at each file that it mentions. A file or picture
/// behind a blank counts as mentioned, and the text goes on behind it if that begins with a blank. Anything else is an
/// attachment.
pub(super) fn typed_text(prompt: &UserMessage) -> String {
    let mut typed = String::new();
    let mut goes_on = true;
    for part in prompt.parts.iter().skip_while(|part| !is_words(part)) {
        match part {
            PromptPart::Text(text)
                if goes_on && (typed.is_empty() || text.starts_with(char::is_whitespace)) =>
            {
                typed.push_str(text);
                goes_on = false;
            }
            PromptPart::Link { uri, .. } | PromptPart::Resource { uri, .. }
                if typed.ends_with(' ') && takes_words(&typed) =>
            {
                typed.push_str(&mentioned(uri));
                goes_on = true;
            }
            // The picture of a mentioned file follows it.
            PromptPart::Image(_) if goes_on || typed.ends_with(' ') => goes_on = true,
            _ => break,
        }
    }
    typed
}

/// Returns false for a built-in command that takes no words: a file behind it can only be an attachment.
fn takes_words(typed: &str) -> bool {
    find(typed).is_none_or(|(command, _)| !matches!(command.argument, Refused))
}

/// A mentioned file as one word: its path, or else its address.
fn mentioned(uri: &str) -> String {
    let path = FileLink::from_uri(uri).map(|link| link.path);
    let word = path.filter(|path| !path.contains(char::is_whitespace));
    word.unwrap_or_else(|| uri.split_whitespace().collect::<Vec<_>>().join("%20"))
}

/// Returns the word behind the slash that a prompt begins with, and what follows it. Where input methods for
/// Chinese and Japanese are on, the key of the slash gives another character.
pub(super) fn split(prompt: &str) -> Option<(&str, &str)> {
    let line = prompt.trim().strip_prefix(['/', '／', '、'])?;
    Some(line.split_once(char::is_whitespace).unwrap_or((line, "")))
}

/// Returns the command that a prompt starts with and the rest of its line. An unknown `/word` is
/// ordinary text.
pub(super) fn find(prompt: &str) -> Option<(&'static BuiltInCommand, &str)> {
    let (word, rest) = split(prompt)?;
    let command = COMMANDS.iter().find(|command| command.name.eq_ignore_ascii_case(word))?;
    Some((command, rest.trim()))
}

impl BuiltInCommand {
    /// Starts the work of a prompt that begins with this command.
    pub(super) fn start(&self, session: &mut SessionActor, call: CommandCall) -> PromptWork {
        if matches!(self.argument, Refused) && !call.arguments.is_empty() {
            let text = format!("Nothing was done: `/{}` takes no argument.", self.name);
            return call.answer(session, |_| text);
        }
        (self.run)(session, call)
    }
}

impl CommandCall {
    /// Begins the turn of the command. Returns the identifier of its answer.
    fn begin(&self, session: &mut SessionActor) -> MessageId {
        self.begin_turn(session, TurnKind::Command)
    }

    fn begin_turn(&self, session: &mut SessionActor, kind: TurnKind) -> MessageId {
        log_command(&session.conversation, &mut session.history, kind, &self.typed, &self.prompt);
        session.history.mint_message_id()
    }

    /// Returns what the work of the command needs, once its turn has begun.
    fn into_task(self, session: &SessionActor) -> CommandTask {
        CommandTask {
            host: Arc::clone(&session.host),
            conversation: session.conversation.clone(),
            history: session.history.clone(),
            arguments: self.arguments,
            cancel: self.cancel,
        }
    }

    /// Answers the command at once.
    fn answer(
        self,
        session: &mut SessionActor,
        compose: impl FnOnce(&mut SessionActor) -> String,
    ) -> PromptWork {
        let message = self.begin(session);
        let text = compose(session);
        session.conversation.say(message, text);
        let task = self.into_task(session);
        PromptWork::of_command(async move {
            finish_command(task.conversation.log(), task.history, StopReason::EndTurn).await
        })
    }
}

/// A command whose turn has begun, with what it works on.
struct CommandTask {
    host: Arc<SessionHost>,
    conversation: Conversation,
    history: History,
    /// The words behind the command's name.
    arguments: String,
    cancel: CancellationToken,
}

/// Says the answer and ends the turn. `None` means that the command was cancelled.
async fn say_and_finish(
    conversation: &Conversation,
    history: History,
    message: MessageId,
    answer: Option<String>,
) -> FinishedTurn {
    let stop = match answer {
        Some(text) => {
            conversation.say(message, text);
            StopReason::EndTurn
        }
        None => StopReason::Cancelled,
    };
    finish_command(conversation.log(), history, stop).await
}

/// Says the answer of a command once it is known, and ends the turn. `None` means that the command was cancelled.
fn answer_later(
    session: &SessionActor,
    message: MessageId,
    answering: impl Future<Output = Option<String>> + Send + 'static,
) -> PromptWork {
    let conversation = session.conversation.clone();
    let history = session.history.clone();
    PromptWork::of_command(async move {
        let answer = answering.await;
        say_and_finish(&conversation, history, message, answer).await
    })
}

/// Answers from files. After a cancel the reading goes on in the background.
fn answer_from_files(
    session: &mut SessionActor,
    call: CommandCall,
    read: impl FnOnce(&str) -> String + Send + 'static,
) -> PromptWork {
    let message = call.begin(session);
    let CommandCall { arguments, cancel, .. } = call;
    answer_later(session, message, async move {
        let reading = spawn_blocking(move || read(&arguments));
        let text = cancel.run_until_cancelled(reading).await?;
        Some(text.unwrap_or_else(|error| format!("The files could not be read: {error}.")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_documented() {
        let documented = include_str!("../../docs/tools.md");
        for command in COMMANDS {
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

    #[test]
    fn a_file_that_is_mentioned_in_a_command_is_a_word_of_it() {
        let text = |text: &str| PromptPart::Text(text.to_owned());
        let link = |uri: &str| PromptPart::Link { name: "n".to_owned(), uri: uri.to_owned() };
        let file = |uri: &str| PromptPart::Resource { uri: uri.to_owned(), text: "x".to_owned() };
        let table = [
            (
                vec![text("/goal fix "), link("file:///ws/a.rs"), text(" --check make")],
                "/goal fix /ws/a.rs --check make",
            ),
            (
                vec![text("/goal fix "), link("file:///ws/a.rs"), text("\n--check make")],
                "/goal fix /ws/a.rs\n--check make",
            ),
            (
                vec![text("/goal "), file("file:///ws/a%20--turns%202.md")],
                "/goal file:///ws/a%20--turns%202.md",
            ),
            (
                vec![link("file:///ws/a"), text(" "), text("/review "), link("https://h/x")],
                "/review https://h/x",
            ),
            // These are attached by the editor.
            (vec![text("/goal"), file("file:///ws/open.rs")], "/goal"),
            (vec![text("/clear "), file("file:///ws/open.rs")], "/clear "),
            (vec![text("/goal x"), text(" --check y")], "/goal x"),
            (vec![text("/goal x "), file("file:///ws/a"), text("--check y")], "/goal x /ws/a"),
        ];
        for (parts, expected) in table {
            assert_eq!(typed_text(&UserMessage::new(parts)), expected);
        }
    }
}
