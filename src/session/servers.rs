//! The MCP servers of a session: those of the client, of the settings and of the project; their environment and
//! their sandbox profile.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::SessionHost;
use crate::error::Error;
use crate::mcp::{SessionServers, used_tools};
use crate::tools::RemoteTools;
use turnwright_config::effective_policy::{command_confinement, resolve_policy};
use turnwright_config::{McpSettings, SettingsSnapshot};
use turnwright_guard::{ConfinementSettings, server_profile};
use turnwright_mcp::{LoginStore, ServerEnv, ServerPhase, ServerSource, ServerSpec, ServerState};
use turnwright_policy::permission::PolicyRules;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::client::ElicitationModes;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::ids::SessionId;
use turnwright_types::redact;
use turnwright_workspace::files::Roots;

/// The MCP servers that a session starts.
#[derive(Debug, Default)]
pub(super) struct ServerLaunch {
    pub(super) specs: Vec<ServerSpec>,
    /// How long the first turn waits for them.
    wait: Duration,
    /// Notices about invalid servers of the settings.
    pub(super) notices: Vec<String>,
}

/// The servers of the settings, and notices about invalid ones.
fn server_settings(settings: &SettingsSnapshot<'_>) -> (McpSettings, Vec<String>) {
    let mut settings = settings.mcp_settings();
    let secrets = settings.secrets.iter().map(|secret| secret.expose().to_owned());
    if let Err(error) = redact::register_keys(secrets) {
        let refused = settings.servers.drain(..).map(|server| (server.name, error.to_string()));
        settings.broken.extend(refused);
    }
    let notices = settings
        .broken
        .iter()
        .map(|(name, why)| {
            format!(
                "The MCP server {} of the settings is not used: {why}.",
                escape_hidden_line(name)
            )
        })
        .collect();
    (settings, notices)
}

/// Removes servers whose name is taken: the editor's have precedence, then the user's, then the
/// project's.
fn unique_by_name(mut servers: Vec<ServerSpec>) -> Vec<ServerSpec> {
    servers.sort_by_key(|server| match server.source {
        ServerSource::Client => 0,
        ServerSource::User => 1,
        ServerSource::Project => 2,
    });
    let mut names = HashSet::new();
    // The editor may give two servers the same name.
    servers.retain(|server| {
        names.insert(server.name.clone()) || server.source == ServerSource::Client
    });
    servers
}

/// The result of connecting to a server.
#[derive(Debug)]
pub(crate) struct ServerCheck {
    pub name: String,
    /// The facts about the server, or why it cannot be used.
    pub outcome: Result<ServerInfo, Error>,
    pub took: Duration,
}

/// The facts about a connected server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerInfo {
    /// Its title, as it states it.
    pub title: String,
    /// The protocol revision in use.
    pub revision: String,
    /// The number of its tools that are used.
    pub tools: usize,
    pub prompts: usize,
}

impl ServerLaunch {
    /// Adds the servers of the settings that have other names.
    pub(super) fn load(
        settings: &SettingsSnapshot<'_>,
        servers: Vec<ServerSpec>,
        folder: &Path,
    ) -> ServerLaunch {
        let (mut settings, notices) = server_settings(settings);
        for server in &mut settings.servers {
            for path in server.sandbox.write.iter_mut().chain(&mut server.sandbox.read) {
                *path = folder.join(&*path);
            }
        }
        let specs = unique_by_name(servers.into_iter().chain(settings.servers).collect());
        ServerLaunch { specs, wait: settings.wait, notices }
    }
}

impl SessionHost {
    /// Starts the MCP servers of a session.
    pub(super) fn launch_servers(
        &self,
        launch: &ServerLaunch,
        env: &ServerEnv,
        remote_tools: Arc<RemoteTools>,
        session: SessionId,
    ) -> SessionServers {
        let ServerLaunch { specs, wait, .. } = launch;
        let outside = (&self.process.outside, session);
        SessionServers::launch(&self.servers, specs, env, remote_tools, *wait, outside)
    }

    /// Connects to each server of the settings as a session in this folder would.
    pub(crate) async fn check_servers(&self, folder: &Path) -> Vec<ServerCheck> {
        let settings = self.config().snapshot();
        let broken = settings.mcp_settings().broken.into_iter();
        let mut checks: Vec<_> = broken.map(|(name, why)| unusable(name, why)).collect();
        let roots = match Roots::new(folder) {
            Ok(roots) => roots,
            Err(error) => {
                checks.push(unusable(folder.display().to_string(), error.to_string()));
                return checks;
            }
        };
        let policy = resolve_policy(&settings, &self.trust, &roots);
        let confinement = command_confinement(self.config(), &policy, roots.real_cwd());
        let launch = ServerLaunch::load(&settings, Vec::new(), roots.real_cwd());
        let env = self.server_env(&confinement, &roots, &policy.rules, true);
        // Without a session nothing is recorded.
        let no_session = SessionId::from("");
        let servers = self.launch_servers(&launch, &env, Arc::default(), no_session);
        let times = servers.wait_until_settled().await;
        checks.extend(servers.states().into_iter().zip(times).map(|((spec, state), took)| {
            ServerCheck { outcome: server_info(&spec, &state), name: spec.name, took }
        }));
        servers.close().await;
        checks
    }
}

fn unusable(name: String, why: String) -> ServerCheck {
    ServerCheck { name, outcome: Err(Error::InvalidState(why)), took: Duration::ZERO }
}

fn server_info(spec: &ServerSpec, state: &ServerState) -> Result<ServerInfo, Error> {
    match &state.phase {
        ServerPhase::Ready => Ok(ServerInfo {
            title: state.title.clone(),
            revision: state.revision.clone(),
            tools: used_tools(spec, &state.tools).count(),
            prompts: state.prompts.len(),
        }),
        ServerPhase::Failed(why) => Err(Error::InvalidState(why.clone())),
        ServerPhase::NeedsLogin => Err(Error::InvalidState(spec.login_instructions())),
        ServerPhase::Starting | ServerPhase::Stopped => {
            Err(Error::InvalidState("it has ended".to_owned()))
        }
    }
}

impl SessionHost {
    /// The environment of a session's servers. Looks up which files exist, also our own, so it comes after the
    /// session is stored. Without servers no file is looked up for the sandbox profile. Blocks.
    pub(super) fn server_env(
        &self,
        confinement: &ConfinementSettings,
        roots: &Roots,
        policy: &PolicyRules,
        has_servers: bool,
    ) -> ServerEnv {
        let paths = &self.config().paths;
        let profile = turnwright_sandbox::can_confine().then(|| {
            if has_servers {
                server_profile(confinement, roots, policy, paths.home.as_deref())
            } else {
                SandboxProfile::default()
            }
        });
        ServerEnv {
            cwd: roots.start_folder(roots.real_cwd()),
            roots: roots.folders().map(Path::to_path_buf).collect(),
            elicitation: ElicitationModes::default(),
            profile,
            logins: LoginStore::new(&paths.config),
            memory: confinement.memory,
            package_caches: confinement.download_caches.clone(),
            private_caches: confinement.private_caches.join("servers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_mcp::ServerTransport;

    #[test]
    fn of_a_name_the_editors_server_counts_then_the_users() {
        let spec = |source, command: &str| {
            let command = command.into();
            let reach =
                ServerTransport::Stdio { command, arguments: Vec::new(), environment: Vec::new() };
            ServerSpec::new("notes", source, reach)
        };
        let all = vec![
            spec(ServerSource::Project, "p"),
            spec(ServerSource::User, "u"),
            spec(ServerSource::Client, "c"),
            ServerSpec { name: "other".to_owned(), ..spec(ServerSource::Project, "p") },
        ];
        let servers = unique_by_name(all.clone());
        let left: Vec<_> =
            servers.iter().map(|server| (server.name.as_str(), server.source)).collect();
        assert_eq!(left, [("notes", ServerSource::Client), ("other", ServerSource::Project)]);
        assert_eq!(unique_by_name(all[..2].to_vec())[0].source, ServerSource::User);
    }
}
