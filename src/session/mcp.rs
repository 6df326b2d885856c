//! The MCP servers of a session, for its user: those of the settings, `/mcp`, and the prompts that
//! can be typed as commands.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::actor::Actor;
use super::prompts::{ended, note_command, tell_omissions};
use super::servers::Site;
use super::{Host, commands, standing, title};
use crate::config::{Config, McpReach, McpServer, McpSettings, Secret};
use turnwright_types::effect::{visible, visible_line};
use turnwright_workspace::files::Roots;
use turnwright_types::ids::MessageId;
use crate::mcp::{
    Asked, Choice, Hidden, Limits, Listed, Phase, Reach, ServerSpec, Source, State, Walls,
};
use turnwright_types::message::{Part, Stop, UserMessage};
use turnwright_types::redact;
use turnwright_store::TurnKind;
use crate::tools::Lent;
use crate::turn::{Finished, Turn};
use turnwright_types::update::{Command, Update};

/// Tools, prompts and servers that are told of one by one.
const MOST_TOLD: usize = 200;
/// Characters of what a server says about one thing.
const LONGEST_LINE: usize = 160;
/// Characters of why a server cannot be used.
const LONGEST_WHY: usize = 1000;

/// What the settings say of servers, and what the user has to know of that.
pub(super) fn settings(config: &Config) -> (McpSettings, Vec<String>) {
    let settings = config.mcp();
    redact::learn(settings.secrets.iter().map(|it| it.expose().to_owned()));
    let notice = |(name, why): &(String, String)| {
        format!("The MCP server {} of the settings is not used: {why}.", visible_line(name))
    };
    let notices = settings.broken.iter().map(notice).collect();
    (settings, notices)
}

/// The client's servers, and those of the settings that have other names.
pub(super) fn with_configured(
    servers: &[ServerSpec],
    settings: &McpSettings,
    folder: &Path,
) -> Vec<ServerSpec> {
    let configured = settings.servers.iter().map(|it| configured(it, folder));
    servers.iter().cloned().chain(configured).collect()
}

fn configured(server: &McpServer, folder: &Path) -> ServerSpec {
    let hidden = |all: &[(String, Secret)]| {
        let all = all.iter().map(|(name, it)| (name.clone(), Hidden::from(it.expose().to_owned())));
        all.collect::<Vec<_>>()
    };
    let reach = match &server.reach {
        McpReach::Program { command, arguments, environment } => Reach::Stdio {
            command: command.clone(),
            arguments: arguments.clone(),
            environment: hidden(environment),
        },
        McpReach::Address { url, headers } => {
            Reach::Http { url: url.clone(), headers: hidden(headers) }
        }
    };
    let usual = Limits::default();
    let call = server.call.unwrap_or(usual.call);
    ServerSpec {
        limits: Limits {
            start: server.start.unwrap_or(usual.start),
            call,
            most: server.most.unwrap_or(usual.most).max(call),
        },
        walls: Walls {
            on: server.sandbox,
            network: server.network,
            write: server.write.iter().map(|it| folder.join(it)).collect(),
            read: server.read.iter().map(|it| folder.join(it)).collect(),
        },
        is_shared: server.is_shared,
        choice: Choice { only: server.tools.clone(), without: server.without_tools.clone() },
        ..ServerSpec::new(server.name.clone(), Source::User, reach)
    }
}

/// What the model was to be told with a prompt that nothing became of.
#[derive(Clone, Debug, Default)]
// A std mutex: held to move a short text.
pub(super) struct Untold(Arc<Mutex<String>>);

impl Untold {
    pub(super) fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, told: UserMessage) {
        let context = told.parts.into_iter().filter_map(|it| match it {
            Part::Context(text) => Some(text),
            _ => None,
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(context);
    }
}

impl Actor {
    /// Has the servers connected. What is returned is told when there is something new of them.
    pub(super) fn launch(&mut self, servers: &[ServerSpec]) -> Arc<Notify> {
        let (fleet, notices) = self.host.launch(servers, &self.equipment);
        let changes = fleet.changes();
        self.fleet = Some(fleet);
        self.told.notices.extend(notices);
        changes
    }

    /// Our commands, and those that servers offer now.
    pub(super) fn commands(&self) -> Vec<Command> {
        let theirs = self.fleet.iter().flat_map(crate::mcp::Fleet::commands);
        let command = |it: crate::mcp::PromptCommand| Command {
            name: it.name,
            description: it.description,
            hint: it.hint,
        };
        commands::all().into_iter().chain(theirs.map(command)).collect()
    }

    /// Tells the client the commands if they are others than it knows.
    pub(super) fn announce_again(&mut self) {
        let commands = self.commands();
        if self.announce_at.is_none() && commands != self.announced {
            self.announced.clone_from(&commands);
            self.equipment.client().update(Update::Commands(commands));
        }
    }

    /// The prompt of a server that the user's words mean, if they mean one.
    pub(super) fn asked_of_server(&self, typed: &str) -> Option<Asked> {
        let line = typed.trim().strip_prefix('/')?;
        let (word, words) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        self.fleet.as_ref()?.asked(word, words)
    }

    /// A turn with what a server makes of its prompt; or the answer why there is none.
    pub(super) fn server_prompt(
        &mut self,
        asked: Asked,
        mut prompt: UserMessage,
        typed: String,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Finished> {
        let mut told = UserMessage::default();
        self.add_context(&mut told);
        let titled = self.suggest_title(title::of_prompt(&prompt));
        let (equipment, untold) = (self.equipment.clone(), self.untold.clone());
        let (mut history, grants) = (self.history.clone(), self.grants.clone());
        Box::pin(async move {
            let log = equipment.log().clone();
            let mut parts = match cancel.run_until_cancelled(asked.get()).await {
                Some(Ok(parts)) => parts,
                refused => {
                    untold.keep(told);
                    note_command(&log, &mut history, TurnKind::Command, &typed, &prompt);
                    let stop = match refused {
                        Some(Err(why)) => {
                            let message = MessageId::from(format!("msg-{}", history.mint()));
                            equipment.say(message, why);
                            Stop::EndTurn
                        }
                        _ => Stop::Cancelled,
                    };
                    titled.await;
                    return ended(&log, history, grants, stop).await;
                }
            };
            // In the place of what was typed, before what was attached.
            parts.extend(prompt.parts.drain(..).skip(1));
            parts.extend(told.parts);
            let prompt = UserMessage { parts };
            tell_omissions(&equipment, &prompt);
            let turn = Turn::new(equipment, history, grants, prompt, cancel);
            join(turn.run(), titled).await.0
        })
    }

    /// `/mcp` with the words behind it.
    pub(super) fn tell_servers(
        &self,
        words: String,
        message: MessageId,
        cancel: CancellationToken,
    ) -> impl Future<Output = Stop> + Send + 'static {
        let restarted = words.strip_prefix("restart ").map(str::trim).map(|name| {
            let is_there = self.fleet.as_ref().is_some_and(|it| it.restart(name));
            (name.to_owned(), is_there)
        });
        let states = self.fleet.iter().flat_map(|it| it.states());
        let states: Vec<_> = states.map(|(spec, state)| (spec.clone(), state)).collect();
        let prompts = self.fleet.as_ref().map(crate::mcp::Fleet::commands).unwrap_or_default();
        let (host, equipment) = (Arc::clone(&self.host), self.equipment.clone());
        async move {
            let telling = tokio::task::spawn_blocking(move || match restarted {
                Some((name, true)) => format!("{} is started again.", visible_line(&name)),
                Some((name, false)) => no_such(&name),
                None if words.is_empty() => overview(&states, &host.config().mcp()),
                None => match states.iter().find(|it| it.0.name == words) {
                    Some((spec, state)) => {
                        let begin = format!("/{words}:");
                        let prompts = prompts.iter().map(|it| format!("/{}", it.name));
                        let ours: Vec<_> = prompts.filter(|it| it.starts_with(&begin)).collect();
                        details(spec, state, &ours)
                    }
                    None => no_such(&words),
                },
            });
            let Some(told) = cancel.run_until_cancelled(telling).await else {
                return Stop::Cancelled;
            };
            let text =
                told.unwrap_or_else(|error| format!("The settings could not be read: {error}."));
            equipment.say(message, text);
            Stop::EndTurn
        }
    }
}

fn no_such(name: &str) -> String {
    format!("This session has no MCP server `{}`. `/mcp` lists those that it has.", short(name))
}

/// All servers, a line each.
fn overview(states: &[(ServerSpec, Arc<State>)], settings: &McpSettings) -> String {
    let mut lines: Vec<_> = states.iter().map(|(spec, state)| summary(spec, state)).collect();
    let of_settings =
        |name: &String, what: &str| format!("* `{}` (settings) – {what}\n", visible_line(name));
    lines.extend(settings.off.iter().map(|it| of_settings(it, "turned off")));
    let broken = settings.broken.iter();
    lines.extend(broken.map(|(name, why)| of_settings(name, &format!("not used: {why}"))));
    // What was written into the settings since is there in the next session.
    let is_later = |it: &&McpServer| states.iter().all(|(spec, _)| spec.name != it.name);
    let later = settings.servers.iter().filter(is_later);
    lines.extend(later.map(|it| of_settings(&it.name, "from the next session on")));
    if lines.is_empty() {
        return "This session has no MCP servers: neither the editor nor the settings name any."
            .to_owned();
    }
    let more = lines.len().saturating_sub(MOST_TOLD);
    lines.truncate(MOST_TOLD);
    if more > 0 {
        lines.push(format!("* and {more} more\n"));
    }
    lines.concat()
}

fn summary(spec: &ServerSpec, state: &State) -> String {
    let from = match spec.source {
        Source::Client => "editor",
        Source::User => "settings",
        Source::Project => "project",
    };
    let phase = match &state.phase {
        Phase::Starting => "starting".to_owned(),
        Phase::Ready => ready(spec, state),
        Phase::Failed(why) => format!("failed: {}", reason(why)),
        Phase::NeedsLogin => "needs a login".to_owned(),
        Phase::Stopped => "ended".to_owned(),
    };
    let trouble = state.last_end.as_ref().filter(|_| state.phase == Phase::Ready);
    let trouble = trouble.map(|it| format!("; before that it failed: {}", reason(it)));
    format!("* `{}` ({from}) – {phase}{}\n", short(&spec.name), trouble.unwrap_or_default())
}

fn ready(spec: &ServerSpec, state: &State) -> String {
    let mut text = "ready".to_owned();
    if !state.title.is_empty() {
        text.push_str(&format!(": {}", short(&state.title)));
    }
    let count = |number: usize, one: &str| match number {
        1 => format!(", 1 {one}"),
        number => format!(", {number} {one}s"),
    };
    text.push_str(&format!(", revision {}", short(&state.revision)));
    let wanted = state.tools.iter().filter(|it| spec.choice.takes(&it.tool.name)).count();
    text.push_str(&count(wanted, "tool"));
    if wanted < state.tools.len() {
        text.push_str(&format!(" of {}", state.tools.len()));
    }
    if !state.prompts.is_empty() {
        text.push_str(&count(state.prompts.len(), "prompt"));
    }
    text
}

/// One server with its tools and prompts.
fn details(spec: &ServerSpec, state: &State, prompts: &[String]) -> String {
    let mut text = summary(spec, state);
    let tools: Vec<_> = state.tools.iter().filter(|it| spec.choice.takes(&it.tool.name)).collect();
    if !tools.is_empty() {
        text.push_str("\nIts tools, as rules name them, with what it says of them:\n\n");
    }
    for tool in tools.iter().take(MOST_TOLD) {
        text.push_str(&told(&spec.name, tool));
    }
    if let Some(more) = tools.len().checked_sub(MOST_TOLD).filter(|it| *it > 0) {
        text.push_str(&format!("* and {more} more\n"));
    }
    if !prompts.is_empty() {
        let shown: Vec<_> = prompts.iter().take(MOST_TOLD).map(|it| format!("`{it}`")).collect();
        text.push_str(&format!("\nIts prompts: {}.\n", shown.join(", ")));
    }
    text
}

fn told(server: &str, listed: &Listed) -> String {
    let (said, tool) = (&listed.description, &listed.tool);
    let said = short(said.trim().lines().next().unwrap_or_default());
    let claims = tool.annotations.as_ref();
    let claim = match claims.and_then(|it| it.read_only_hint) {
        Some(true) => " (says that it only reads)",
        _ if claims.and_then(|it| it.destructive_hint) == Some(true) => {
            " (says that it may destroy something)"
        }
        _ => "",
    };
    let dash = if said.is_empty() { "" } else { " – " };
    format!("* `mcp({}/{})`{dash}{said}{claim}\n", short(server), short(&tool.name))
}

/// A line that somebody else has written.
fn short(text: &str) -> String {
    let short: String = text.chars().take(LONGEST_LINE).collect();
    visible_line(&short) + if short.len() < text.len() { "…" } else { "" }
}

fn reason(why: &str) -> String {
    let short: String = why.chars().take(LONGEST_WHY).collect();
    visible(&short)
}

/// What came of trying a server.
#[derive(Clone, Debug)]
pub struct ServerCheck {
    /// Its name.
    pub name: String,
    /// What it is, for people; or why it cannot be used.
    pub outcome: Result<ServerFacts, String>,
    /// How long it took.
    pub took: Duration,
}

/// What a server that works is.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// Who it says it is.
    pub title: String,
    /// The revision of the protocol that is spoken.
    pub revision: String,
    /// How many tools it lends.
    pub tools: usize,
    /// How many prompts it has.
    pub prompts: usize,
}

impl Host {
    /// Tries each server of the settings as a session in that folder would have it.
    pub async fn try_servers(&self, folder: &Path) -> Vec<ServerCheck> {
        let broken = |(name, why): (String, String)| ServerCheck {
            name,
            outcome: Err(why),
            took: Duration::ZERO,
        };
        let mut checks: Vec<_> = self.config().mcp().broken.into_iter().map(broken).collect();
        let roots = match Roots::new(folder) {
            Ok(roots) => roots,
            Err(error) => {
                checks.push(broken((folder.display().to_string(), error.to_string())));
                return checks;
            }
        };
        let standing = standing::stand(self.config(), &self.trust, &roots);
        let walls = standing::walls(self.config(), standing.sandbox, &standing.law);
        let site = Site { walls: &walls, roots: &roots, law: &standing.law, forms: false };
        let (fleet, _) = self.launch_for(&[], &site, Lent::default());
        let times = fleet.settled().await;
        checks.extend(fleet.states().into_iter().zip(times).map(|((spec, state), took)| {
            ServerCheck { name: spec.name.clone(), outcome: facts(spec, &state), took }
        }));
        fleet.close().await;
        checks
    }
}

fn facts(spec: &ServerSpec, state: &State) -> Result<ServerFacts, String> {
    match &state.phase {
        Phase::Ready => Ok(ServerFacts {
            title: state.title.clone(),
            revision: state.revision.clone(),
            tools: state.tools.iter().filter(|it| spec.choice.takes(&it.tool.name)).count(),
            prompts: state.prompts.len(),
        }),
        Phase::Failed(why) => Err(why.clone()),
        Phase::NeedsLogin => Err(spec.how_to_log_in()),
        Phase::Starting | Phase::Stopped => Err("it has ended".to_owned()),
    }
}
