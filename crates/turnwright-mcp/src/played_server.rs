//! Servers in recordings: what a session knows of a server, and a server that only has that.

use std::sync::Arc;

use super::model::Tool;
use serde::Deserialize;
use serde_json::{Value, json};

use super::listed_tool::ListedTool;
use super::pool::ServerEnv;
use super::server::{Server, ServerPhase, ServerState};
use super::spec::{ServerSource, ServerSpec, ServerTransport};

/// A server for a recording: its state and its tools, but not how it is reached.
pub fn server_json(server: &Server) -> Value {
    let state = server.state();
    let (phase, why) = match &state.phase {
        ServerPhase::Starting => ("starting", ""),
        ServerPhase::Ready => ("ready", ""),
        ServerPhase::Failed(why) => ("failed", why.as_str()),
        ServerPhase::NeedsLogin => ("needs_login", ""),
        ServerPhase::Stopped => ("stopped", ""),
    };
    let tools = state.tools.iter().filter(|tool| server.spec.tool_filter.matches(&tool.tool.name));
    json!({
        "name": server.spec.name,
        "phase": phase,
        "why": why,
        "is_restarting": state.is_restarting,
        "tools": tools
            .map(|tool| json!({ "tool": tool.tool, "resources": tool.reads_resources }))
            .collect::<Value>(),
    })
}

/// A server of a recording. Nothing is started, and no call reaches it. Blocks.
pub fn played_server(recorded: &Value, env: ServerEnv) -> Arc<Server> {
    let text = |name: &str| recorded[name].as_str().unwrap_or_default().to_owned();
    let phase = match recorded["phase"].as_str() {
        Some("ready") => ServerPhase::Ready,
        Some("failed") => ServerPhase::Failed(text("why")),
        Some("needs_login") => ServerPhase::NeedsLogin,
        Some("stopped") => ServerPhase::Stopped,
        _ => ServerPhase::Starting,
    };
    let tools = recorded["tools"].as_array().into_iter().flatten();
    let state = ServerState {
        phase,
        is_restarting: recorded["is_restarting"] == true,
        tools: Arc::new(tools.filter_map(played_tool).collect()),
        ..ServerState::default()
    };
    let transport = ServerTransport::Stdio {
        command: "".into(),
        arguments: Vec::new(),
        environment: Vec::new(),
    };
    let spec = ServerSpec::new(text("name"), ServerSource::Client, transport);
    Server::unchanging(spec, env, state)
}

fn played_tool(recorded: &Value) -> Option<Arc<ListedTool>> {
    let mut listed = ListedTool::new(Tool::deserialize(&recorded["tool"]).ok()?);
    listed.reads_resources = recorded["resources"] == true;
    Some(Arc::new(listed))
}
