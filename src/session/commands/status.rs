//! `/status` and `/cost` show the state of the session and what it has used up, `/help` what the agent can do, and
//! `/memory` and `/skills` what the model can read in files.

use std::sync::Arc;

use super::{CommandCall, PromptWork, SessionActor, answer_from_files};
use crate::mcp::SessionServers;
use crate::tools::ToolEnv;
use crate::turn::{self, Conversation};
use turnwright_policy::permission::Mode;
use turnwright_types::message::History;
use turnwright_types::update::SlashCommand;

pub(super) fn status(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |session| state(&session.history, &session.conversation))
}

pub(super) fn cost(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |session| usage(&session.history, &session.conversation))
}

fn state(history: &History, conversation: &Conversation) -> String {
    let users = history.messages.iter().filter_map(|message| message.as_user());
    let prompts = users.filter(|user| user.own_parts().next().is_some()).count();
    let mode = conversation.mode().get();
    let roots = conversation.env.files.roots();
    let others = roots
        .additional_folders()
        .map(|folder| format!("* Additional folder: `{}`\n", folder.display()));
    let can_confine = conversation.rules().get().can_confine;
    format!(
        "* Session: `{}`\n* Model: `{}`\n* Mode: {} – {}\n* Sandbox: {}\n* Folder: `{}`\n{}* Prompts \
         so far: {prompts}\n{}",
        conversation.env.session,
        conversation.selection.get().model.name(),
        mode.name(),
        mode.description(can_confine),
        sandbox_state(mode, can_confine),
        roots.cwd().display(),
        others.collect::<String>(),
        usage(history, conversation),
    )
}

/// The tokens in use and the cost.
fn usage(history: &History, conversation: &Conversation) -> String {
    let model = conversation.selection.get().model;
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

/// An argument is ignored, because the answer helps all the same.
pub(super) fn help(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |session| abilities(&session.conversation, &session.menu()))
}

/// Describes what the agent can do, with the commands of the menu.
fn abilities(conversation: &Conversation, menu: &[SlashCommand]) -> String {
    let mode = conversation.mode().get();
    let mut text = format!(
        "I read and change files in this project and run commands. Cancel stops everything at \
         once. Mode {}: {}.\n\n",
        mode.name(),
        mode.description(conversation.rules().get().can_confine)
    );
    text.extend(menu.iter().map(|entry| format!("* `/{}` – {}\n", entry.name, entry.description)));
    let (names, remote) = conversation.tools.overview(&conversation.offer());
    let tools: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    text.push_str(&format!("\nTools: {}.", tools.join(", ")));
    if remote > 0 {
        text.push_str(&format!(" And {remote} from MCP servers."));
    }
    text
}

pub(super) fn memory(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    show_files(session, call, turn::describe_notes)
}

pub(super) fn skills(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let remote = session.servers.as_ref().map(SessionServers::list_skills).unwrap_or_default();
    show_files(session, call, move |env| turn::describe_skills(env) + &remote)
}

fn show_files(
    session: &mut SessionActor,
    call: CommandCall,
    describe: impl FnOnce(&ToolEnv) -> String + Send + 'static,
) -> PromptWork {
    let env = Arc::clone(&session.conversation.env);
    answer_from_files(session, call, move |_| describe(&env))
}
