//! The MCP servers of one session. Adds their tools to the session's [`RemoteTools`] as they become
//! available, and reports servers that fail. A turn sees these tools with the same checks, questions and audit
//! as built-in ones. `turnwright-mcp` holds the connections.
//!
//!   remote_tool      one tool of a server, and what the user is shown before a call
//!   tool_pins        what a tool looked like when the user allowed it
//!   tool_outcome     the result of a call, for the model and for its card

mod tool_pins;
mod tool_outcome;
mod remote_tool;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::tools::{AnyTool, RemoteTools, ServerStatus};
use remote_tool::RemoteTool;
use turnwright_mcp::{
    ListedTool, PromptRequest, Server, ServerEnv, ServerPhase, ServerPool, ServerSpec, ServerState,
    ServerTransport, ToolNames, described_server, prompts, server_json,
};
use turnwright_recording::outside::{Outside, in_session};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::ids::SessionId;
use turnwright_types::text::{self, escape_markdown};
use turnwright_types::update::SlashCommand;
use turnwright_workspace::exec::ProgramActivity;

/// The most characters about a skill that are listed for people.
const MAX_SKILL_CHARS: usize = 300;
/// The most characters of a failure's text.
const MAX_FAILURE_CHARS: usize = 1000;

/// The servers of a session. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct SessionServers {
    servers: Vec<Arc<Server>>,
    remote_tools: Arc<RemoteTools>,
    changed: Arc<Notify>,
    stop: DropGuard,
    tracker: TaskTracker,
}

impl SessionServers {
    /// Starts or joins the servers and begins to collect their tools. Never waits.
    pub(crate) fn launch(
        pool: &ServerPool,
        specs: &[ServerSpec],
        env: &ServerEnv,
        remote_tools: Arc<RemoteTools>,
        patience: Duration,
        outside: (&Arc<dyn Outside>, SessionId),
    ) -> SessionServers {
        let (facts, session) = outside;
        let stop = CancellationToken::new();
        let tracker = TaskTracker::new();
        // Nothing is started for those of another machine.
        let servers: Vec<_> = match facts.servers() {
            Some(descriptions) => {
                descriptions.iter().map(|server| described_server(server, env.clone())).collect()
            }
            None => specs.iter().map(|spec| pool.get(spec, env)).collect(),
        };
        remote_tools.expect_servers(
            servers.iter().map(|server| server.spec.name.clone()).collect(),
            patience,
        );
        let changed = Arc::new(Notify::new());
        let collector = ToolCollector {
            servers: servers.clone(),
            remote_tools: Arc::clone(&remote_tools),
            names: ToolNames::default(),
            changed: Arc::clone(&changed),
            facts: Arc::clone(facts),
        };
        let token = stop.clone();
        tracker.spawn(in_session(session, async move {
            token.run_until_cancelled(collector.run()).await;
        }));
        SessionServers { servers, remote_tools, changed, stop: stop.drop_guard(), tracker }
    }

    /// Returns each server with its current state.
    pub(crate) fn states(&self) -> Vec<(ServerSpec, Arc<ServerState>)> {
        self.servers.iter().map(|server| (server.spec.clone(), server.state())).collect()
    }

    /// The known facts about the servers, as [`Outside`] takes note of them.
    pub(crate) fn facts_json(&self) -> Value {
        servers_json(&self.servers)
    }

    /// The programs of the servers that run in the sandbox.
    pub(crate) fn confined_programs(&self) -> Vec<ProgramActivity> {
        let confined = self.servers.iter().filter(|server| server.is_confined());
        confined.map(|server| server.activity.clone()).collect()
    }

    /// Notified when the state of a server has changed.
    pub(crate) fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Waits until each server is ready or has failed. Returns how long each took.
    pub(crate) async fn wait_until_settled(&self) -> Vec<Duration> {
        let started = Instant::now();
        let waits = self.servers.iter().map(|server| async move {
            // An error means that the task has ended, which its last state says already.
            server.watch().wait_for(|state| state.phase != ServerPhase::Starting).await.ok();
            started.elapsed()
        });
        futures_util::future::join_all(waits).await
    }

    /// Restarts the server of that name. Returns false if there is none.
    pub(crate) fn restart(&self, name: &str) -> bool {
        let server = self.servers.iter().find(|server| server.spec.name == name);
        server.inspect(|server| server.restart()).is_some()
    }

    /// Reaches the servers within the client through another client, which has servers of the same names.
    /// Those that it does not have are gone.
    pub(crate) fn use_links_of(&self, others: &[ServerSpec]) {
        for server in &self.servers {
            let ServerTransport::Linked(own) = &server.spec.transport else { continue };
            let other = others.iter().find_map(|other| match &other.transport {
                ServerTransport::Linked(link) if other.name == server.spec.name => Some(link),
                _ => None,
            });
            if let Some(other) = other {
                own.use_link_of(other);
                server.restart();
            }
        }
    }

    /// Returns the current prompts of the servers as commands.
    pub(crate) fn commands(&self) -> Vec<SlashCommand> {
        prompts::commands(&self.servers)
    }

    /// Finds the prompt of a command `server:prompt`, if the command names one.
    pub(crate) fn find_prompt(&self, command: &str, arguments: &str) -> Option<PromptRequest> {
        PromptRequest::find(&self.servers, command, arguments)
    }

    /// Lists the skills of the servers, for people. Returns nothing if there are none.
    pub(crate) fn list_skills(&self) -> String {
        let mut lines = String::new();
        for (spec, state) in self.states() {
            let tools =
                used_tools(&spec, &state.tools).filter(|listed| listed.tool.skill.is_some());
            let texts = tools.map(|listed| text::one_line(&listed.description));
            let shown = texts.map(|text| escape_markdown(&text::clip(text, MAX_SKILL_CHARS)));
            lines.extend(shown.map(|text| format!("* {text}\n")));
        }
        if lines.is_empty() { lines } else { format!("\nOf MCP servers:\n\n{lines}") }
    }

    /// Releases the servers, and waits for the end of the ones that no other session uses.
    pub(crate) async fn close(self) {
        let SessionServers { servers, remote_tools, stop, tracker, .. } = self;
        drop(stop);
        tracker.close();
        tracker.wait().await;
        // The tools hold handles of their servers.
        remote_tools.set_tools(Vec::new());
        // Releases all before waiting for the first, so that they end concurrently.
        let released = servers.into_iter().filter_map(|server| {
            let ended = server.ended();
            Arc::into_inner(server).map(|_| ended)
        });
        let ends: Vec<_> = released.collect();
        for end in ends {
            end.cancelled().await;
        }
    }
}

/// The tools of a server that its settings do not exclude.
pub(crate) fn used_tools<'a>(
    spec: &'a ServerSpec,
    listed: &'a [Arc<ListedTool>],
) -> impl Iterator<Item = &'a Arc<ListedTool>> {
    listed.iter().filter(move |listed| spec.tool_filter.matches(&listed.tool.name))
}

fn servers_json(servers: &[Arc<Server>]) -> Value {
    servers.iter().map(|server| server_json(server)).collect()
}

/// Collects the tools of the servers.
struct ToolCollector {
    servers: Vec<Arc<Server>>,
    remote_tools: Arc<RemoteTools>,
    names: ToolNames,
    changed: Arc<Notify>,
    facts: Arc<dyn Outside>,
}

impl ToolCollector {
    async fn run(mut self) {
        let mut watches: Vec<_> = self.servers.iter().map(|server| server.watch()).collect();
        let mut lists: Vec<_> = self.servers.iter().map(|_| ServerTools::default()).collect();
        loop {
            self.collect(&mut watches, &mut lists);
            self.changed.notify_one();
            let mut changes: FuturesUnordered<_> =
                watches.iter_mut().map(watch::Receiver::changed).collect();
            // An error means that a task has ended, which its last state says already.
            let Some(Ok(())) = changes.next().await else { return };
        }
    }

    fn collect(
        &mut self,
        watches: &mut [watch::Receiver<Arc<ServerState>>],
        lists: &mut [ServerTools],
    ) {
        let mut tools: Vec<Arc<dyn AnyTool>> = Vec::new();
        let mut statuses = Vec::new();
        for ((server, watch), list) in self.servers.iter().zip(watches).zip(lists) {
            let state = Arc::clone(&watch.borrow_and_update());
            list.update(server, &state.tools, &mut self.names);
            tools.extend(list.tools.iter().map(|tool| Arc::clone(tool) as Arc<dyn AnyTool>));
            statuses
                .extend(server_status(server, &state).map(|status| (&server.spec.name, status)));
        }
        // Stopping at the end of the session is not an external event, so it is not recorded.
        if !self.servers.is_empty()
            && !self.servers.iter().any(|server| server.state().phase == ServerPhase::Stopped)
        {
            self.facts.record_servers(&|| servers_json(&self.servers));
        }
        // Set before the statuses, so that the tools of a ready server can be found.
        self.remote_tools.set_tools(tools);
        for (name, status) in statuses {
            self.remote_tools.set_server_status(name, &status);
        }
    }
}

fn server_status(server: &Server, state: &ServerState) -> Option<ServerStatus> {
    match &state.phase {
        ServerPhase::Starting => None,
        ServerPhase::Ready => {
            Some(ServerStatus::Ready(used_tools(&server.spec, &state.tools).count()))
        }
        ServerPhase::Failed(why) if !state.is_restarting => {
            Some(ServerStatus::Failed(failure_text(why)))
        }
        ServerPhase::Failed(why) => Some(ServerStatus::Down(failure_text(why))),
        ServerPhase::NeedsLogin => Some(ServerStatus::Failed(server.spec.login_instructions())),
        ServerPhase::Stopped => Some(ServerStatus::Down("it was stopped".to_owned())),
    }
}

/// Why a server has failed, as Markdown. Its own words may be among these, so that only code in backticks is left.
pub(crate) fn failure_text(why: &str) -> String {
    let line = text::one_line(text::first_chars(why, MAX_FAILURE_CHARS));
    escape_markdown(&escape_hidden_line(&line)).replace("\\`", "`")
}

/// The tools of one server. An unchanged tool stays the same object.
#[derive(Default)]
struct ServerTools {
    list: Arc<Vec<Arc<ListedTool>>>,
    tools: Vec<Arc<RemoteTool>>,
}

impl ServerTools {
    fn update(
        &mut self,
        server: &Arc<Server>,
        list: &Arc<Vec<Arc<ListedTool>>>,
        names: &mut ToolNames,
    ) {
        if Arc::ptr_eq(&self.list, list) {
            return;
        }
        let known: HashMap<_, _> =
            self.tools.drain(..).map(|tool| (tool.name.clone(), tool)).collect();
        let tools = used_tools(&server.spec, list).map(|listed| {
            let name = names.name_of(&server.spec.name, &listed.tool.name);
            match known.get(&name).filter(|tool| tool.listed.tool == listed.tool) {
                Some(known) => Arc::clone(known),
                None => Arc::new(RemoteTool::new(name, Arc::clone(server), Arc::clone(listed))),
            }
        });
        self.tools = tools.collect();
        self.list = Arc::clone(list);
    }
}
