//! Servers in recordings: what a session knows of a server, and a server that only has that.

use std::sync::Arc;

use super::model::Tool;
use serde::Deserialize;
use serde_json::{Value, json};

use super::listed_tool::ListedTool;
use super::pool::ServerEnv;
use super::server::{Server, ServerPhase, ServerState};
use super::spec::{ServerSource, ServerSpec, ServerTransport};

/// What a recording keeps of a server: its state and its tools, and not how it is reached.
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
    let tool =
        |tool: &Arc<ListedTool>| json!({ "tool": tool.tool, "resources": tool.reads_resources });
    json!({
        "name": server.spec.name,
        "phase": phase,
        "why": why,
        "is_restarting": state.is_restarting,
        "tools": tools.map(tool).collect::<Value>(),
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
    let listed = |value: &Value| {
        let mut listed = ListedTool::new(Tool::deserialize(&value["tool"]).ok()?);
        listed.reads_resources = value["resources"] == true;
        Some(Arc::new(listed))
    };
    let tools = recorded["tools"].as_array().into_iter().flatten().filter_map(listed).collect();
    let state = ServerState {
        phase,
        is_restarting: recorded["is_restarting"] == true,
        tools: Arc::new(tools),
        ..ServerState::default()
    };
    let (arguments, environment) = (Vec::new(), Vec::new());
    let transport = ServerTransport::Stdio { command: "".into(), arguments, environment };
    let spec = ServerSpec::new(text("name"), ServerSource::Client, transport);
    Server::unchanging(spec, env, state)
}
