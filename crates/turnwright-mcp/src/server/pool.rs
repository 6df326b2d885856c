//! All servers of the process. Sessions that use an equal server in an equal environment share it; it
//! ends with the last of them. A server that is only described never runs.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::spec::{ServerSource, ServerSpec, ServerTransport};
use super::{Server, ServerPhase, ServerState};
use crate::features::Tool;
use crate::features::tools::ListedTool;
use crate::transport::http::login::LoginStore;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::client::ElicitationModes;
use turnwright_workspace::exec::Environment;

/// The environment of a session's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEnv {
    /// The session's working folder, in which programs start.
    pub cwd: PathBuf,
    /// All folders of the session.
    pub roots: Vec<PathBuf>,
    /// The sandbox profile to which a server's own settings are added; `None` if processes cannot be
    /// confined.
    pub profile: Option<SandboxProfile>,
    /// The elicitations that the session's client can show.
    pub elicitation: ElicitationModes,
    pub logins: LoginStore,
    /// How many bytes of memory a server in the sandbox may hold, with all that it has started.
    pub memory: Option<u64>,
    /// The caches of package runners such as `npx`, created when one is used.
    pub package_caches: Vec<PathBuf>,
    /// The folder for the servers' writes to caches.
    pub private_caches: PathBuf,
}

impl ServerEnv {
    /// The roots to tell a server: the folders of the session, and the paths that its settings add. Some
    /// servers restrict themselves to these, even if their arguments allow more.
    pub(crate) fn roots_of(&self, spec: &ServerSpec) -> Vec<PathBuf> {
        let opened = spec.sandbox.write.iter().chain(&spec.sandbox.read);
        self.roots.iter().chain(opened).cloned().collect()
    }
}

/// The running servers.
#[derive(Debug)]
pub struct ServerPool {
    environment: Environment,
    stop: CancellationToken,
    tracker: TaskTracker,
    // Held only to look at a short list.
    running: Mutex<Vec<Weak<Server>>>,
}

impl ServerPool {
    /// Creates an empty pool. The tasks of servers run on `tracker` until no session uses them or
    /// `stop` is cancelled.
    pub fn new(environment: Environment, stop: CancellationToken, tracker: TaskTracker) -> Self {
        ServerPool { environment, stop, tracker, running: Mutex::default() }
    }

    /// Returns the server, and starts it if necessary. Never waits.
    pub fn get(&self, spec: &ServerSpec, env: &ServerEnv) -> Arc<Server> {
        let mut running = self.running.lock();
        running.retain(|server| server.strong_count() > 0);
        let existing = running
            .iter()
            .filter_map(Weak::upgrade)
            .find(|server| server.is_reusable_for(spec, env));
        if let Some(server) = existing.filter(|_| spec.is_shared) {
            return server;
        }
        let stop = self.stop.child_token();
        let environment = self.environment.clone();
        let server = Server::start(spec.clone(), env.clone(), environment, stop, &self.tracker);
        running.push(Arc::downgrade(&server));
        server
    }
}

/// Describes a server: its state and its tools, but not how it is reached.
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

/// The server of such a description. Nothing is started, and no call reaches it. Blocks.
pub fn described_server(description: &Value, env: ServerEnv) -> Arc<Server> {
    let text = |name: &str| description[name].as_str().unwrap_or_default().to_owned();
    let phase = match description["phase"].as_str() {
        Some("ready") => ServerPhase::Ready,
        Some("failed") => ServerPhase::Failed(text("why")),
        Some("needs_login") => ServerPhase::NeedsLogin,
        Some("stopped") => ServerPhase::Stopped,
        _ => ServerPhase::Starting,
    };
    let tools = description["tools"].as_array().into_iter().flatten();
    let state = ServerState {
        phase,
        is_restarting: description["is_restarting"] == true,
        tools: Arc::new(tools.filter_map(described_tool).collect()),
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

fn described_tool(description: &Value) -> Option<Arc<ListedTool>> {
    let mut listed = ListedTool::new(Tool::deserialize(&description["tool"]).ok()?);
    listed.reads_resources = description["resources"] == true;
    Some(Arc::new(listed))
}
