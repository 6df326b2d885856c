//! `/help` shows what the agent can do. It ignores an argument, because the answer helps all the same.

use super::{CommandCall, PromptWork, SessionActor};
use crate::turn::TurnServices;
use turnwright_types::update::SlashCommand;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |session| help(&session.services, &session.menu()))
}

/// Describes what the agent can do, with the commands of the menu.
fn help(services: &TurnServices, menu: &[SlashCommand]) -> String {
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
