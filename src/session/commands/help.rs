//! `/help` shows what the agent can do. It ignores an argument, because the answer helps all the same.

use super::{CommandCall, PromptWork, SessionActor};
use crate::turn::Conversation;
use turnwright_types::update::SlashCommand;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |session| help(&session.conversation, &session.menu()))
}

/// Describes what the agent can do, with the commands of the menu.
fn help(conversation: &Conversation, menu: &[SlashCommand]) -> String {
    let mode = conversation.mode().get();
    let mut text = format!(
        "I read and change files in this project and run commands. Cancel stops everything at \
         once. Mode {}: {}.\n\n",
        mode.name(),
        mode.description(conversation.rules().get().can_confine)
    );
    for command in menu {
        text.push_str(&format!("* `/{}` – {}\n", command.name, command.description));
    }
    let (names, remote) = conversation.tools.overview(&conversation.offer());
    let tools: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    text.push_str(&format!("\nTools: {}.", tools.join(", ")));
    if remote > 0 {
        text.push_str(&format!(" And {remote} from MCP servers."));
    }
    text
}
