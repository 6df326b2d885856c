//! The proxy of a command, through which it reaches hosts one by one. Only a command that may write gets one, and only
//! if it has a use for it: it downloads something, as far as its words say, it asks for hosts, or the settings list
//! hosts. The proxy listens in the private network of the session, where nobody but the session's commands connects, so
//! there is none where there are no such networks.

use turnwright_policy::shell;
use turnwright_proxy::CommandProxy;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_workspace::exec::Environment;

use super::ConfinementBuilder;
use crate::command_network;

/// Programs of Java, which cannot be given a token.
const JAVA_PROGRAMS: [&str; 10] =
    ["ant", "clj", "gradle", "gradlew", "java", "lein", "mvn", "mvnw", "sbt", "scala"];

impl ConfinementBuilder<'_> {
    /// The proxy of the command; `None` if it has no use for one, or there can be none. Adds its variables. To be
    /// called on a thread of the runtime.
    pub(super) fn proxy(
        &self,
        environment: &Environment,
        profile: &mut SandboxProfile,
        variables: &mut Vec<(&'static str, String)>,
    ) -> Option<CommandProxy> {
        let is_listed = !self.site.settings.hosts.is_empty();
        let is_useful = is_listed || self.asks_for_hosts || shell::uses_proxy(self.command);
        if !self.may_write || !is_useful || profile.network != Network::Loopback {
            return None;
        }
        let mut commands = self.command.script.commands.iter();
        let runs_java = commands.any(|simple| {
            let name = simple.program().rsplit('/').next().unwrap_or_default();
            JAVA_PROGRAMS.contains(&name)
        });
        let network = self.site.network.get(self.site.settings.memory)?;
        let proxy = command_network::listen(&network)
            .and_then(|listener| CommandProxy::new(listener, !runs_java))
            .inspect_err(|error| tracing::warn!(%error, "a command has no proxy"))
            .ok()?;
        variables.extend(proxy.variables(|name| environment.get(name)?.to_str()));
        self.remove_program_layers(profile);
        Some(proxy)
    }
}
