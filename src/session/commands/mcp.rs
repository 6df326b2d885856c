//! `/mcp` lists the MCP servers of the session, `/mcp NAME` shows one, and `/mcp restart NAME` restarts it.

use std::sync::Arc;

use super::{CommandCall, PromptWork, SessionActor, answer_from_files};
use crate::mcp::{SessionServers, failure_text, used_tools};
use turnwright_config::McpSettings;
use turnwright_mcp::{
    ListedTool, ServerPhase, ServerSource, ServerSpec, ServerState, ServerTransport,
};
use turnwright_policy::permission::markdown_code;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text::{self, counted, escape_markdown};

/// The most tools, prompts or servers that are listed.
const MAX_LISTED: usize = 200;
/// The most characters of a server's text about one thing.
const MAX_LINE_CHARS: usize = 160;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let servers = session.servers.as_ref();
    let restarted = call.arguments.strip_prefix("restart ").map(str::trim).map(|name| {
        let is_there = servers.is_some_and(|servers| servers.restart(name));
        (name.to_owned(), is_there)
    });
    let states = servers.map(SessionServers::states).unwrap_or_default();
    let prompts = servers.map(SessionServers::commands).unwrap_or_default();
    let host = Arc::clone(&session.host);
    answer_from_files(session, call, move |words| match restarted {
        Some((name, true)) => format!("Restarting {}.", short_line(&name)),
        Some((name, false)) => unknown_server(&name),
        None if words.is_empty() => overview(&states, &host.config().snapshot().mcp_settings()),
        None => match states.iter().find(|(spec, _)| spec.name == words) {
            Some((spec, state)) => {
                let begin = format!("/{words}:");
                let prompts = prompts.iter().map(|prompt| format!("/{}", prompt.name));
                let ours: Vec<_> = prompts.filter(|name| name.starts_with(&begin)).collect();
                details(spec, state, &ours)
            }
            None => unknown_server(words),
        },
    })
}

fn unknown_server(name: &str) -> String {
    format!("This session has no MCP server {}. Run `/mcp` to list them.", markdown_code(name))
}

fn overview(states: &[(ServerSpec, Arc<ServerState>)], settings: &McpSettings) -> String {
    let mut lines: Vec<_> = states.iter().map(|(spec, state)| summary(spec, state)).collect();
    lines.extend(settings.disabled.iter().map(|name| settings_line(name, "turned off")));
    let broken = settings.broken.iter();
    lines.extend(broken.map(|(name, why)| settings_line(name, &format!("not used: {why}"))));
    // Servers that were added to the settings since are available in the next session.
    let later = settings
        .servers
        .iter()
        .filter(|server| states.iter().all(|(spec, _)| spec.name != server.name));
    lines.extend(later.map(|server| settings_line(&server.name, "available in the next session")));
    if lines.is_empty() {
        return "This session has no MCP servers: neither the editor nor the settings name any."
            .to_owned();
    }
    first_lines(lines)
}

/// The first of these lines, and how many more there are.
fn first_lines(mut lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(MAX_LISTED);
    lines.truncate(MAX_LISTED);
    if more > 0 {
        lines.push(format!("* and {more} more\n"));
    }
    lines.concat()
}

fn settings_line(name: &str, what: &str) -> String {
    format!("* {} (settings) – {what}\n", markdown_code(name))
}

fn summary(spec: &ServerSpec, state: &ServerState) -> String {
    let from = match (spec.source, &spec.transport) {
        (ServerSource::Client, ServerTransport::Linked(_)) => "within the editor",
        (ServerSource::Client, _) => "editor",
        (ServerSource::User, _) => "settings",
        (ServerSource::Project, _) => "project",
    };
    let phase = match &state.phase {
        ServerPhase::Starting => "starting".to_owned(),
        ServerPhase::Ready => ready(spec, state),
        ServerPhase::Failed(why) => format!("failed: {}", failure_text(why)),
        ServerPhase::NeedsLogin => "needs a login".to_owned(),
        ServerPhase::Stopped => "ended".to_owned(),
    };
    let failure = state.last_end.as_ref().filter(|_| state.phase == ServerPhase::Ready);
    let trouble = failure.map(|why| format!("; before that it failed: {}", failure_text(why)));
    let name = markdown_code(&spec.name);
    format!("* {name} ({from}) – {phase}{}\n", trouble.unwrap_or_default())
}

fn ready(spec: &ServerSpec, state: &ServerState) -> String {
    let mut text = "ready".to_owned();
    if !state.title.is_empty() {
        text.push_str(&format!(": {}", short_line(&state.title)));
    }
    text.push_str(&format!(", revision {}", short_line(&state.revision)));
    let wanted = used_tools(spec, &state.tools).count();
    text.push_str(&format!(", {}", counted(wanted, "tool")));
    if wanted < state.tools.len() {
        text.push_str(&format!(" of {}", state.tools.len()));
    }
    if !state.prompts.is_empty() {
        text.push_str(&format!(", {}", counted(state.prompts.len(), "prompt")));
    }
    text
}

fn details(spec: &ServerSpec, state: &ServerState, prompts: &[String]) -> String {
    let mut text = summary(spec, state);
    if !state.late.is_empty() {
        text.push_str(&format!("\nNot listed in time: {}.\n", state.late.join(", ")));
    }
    let tools = used_tools(spec, &state.tools).map(|tool| client_state(&spec.name, tool));
    let lines: Vec<_> = tools.collect();
    if !lines.is_empty() {
        text.push_str("\nTools, as permission rules name them:\n\n");
    }
    text.push_str(&first_lines(lines));
    if !prompts.is_empty() {
        let shown: Vec<_> =
            prompts.iter().take(MAX_LISTED).map(|prompt| format!("`{prompt}`")).collect();
        text.push_str(&format!("\nPrompts: {}.\n", shown.join(", ")));
    }
    text
}

fn client_state(server: &str, listed: &ListedTool) -> String {
    let tool = &listed.tool;
    let said = short_line(text::first_line(&listed.description));
    let claims = tool.annotations.as_ref();
    let claim = match claims.and_then(|claims| claims.read_only_hint) {
        Some(true) => " (says that it only reads)",
        _ if claims.and_then(|claims| claims.destructive_hint) == Some(true) => {
            " (says that it may destroy something)"
        }
        _ => "",
    };
    let dash = if said.is_empty() { "" } else { " – " };
    let rule = markdown_code(&format!("mcp({server}/{})", tool.name));
    format!("* {rule}{dash}{said}{claim}\n")
}

/// A bounded, visible line of text from a server, as Markdown.
fn short_line(text: &str) -> String {
    escape_markdown(&escape_hidden_line(&text::clip(text, MAX_LINE_CHARS)))
}
