//! The proxy of a command, through which it reaches hosts one by one. Only a command that may write gets one, and only
//! if it has a use for it: it downloads something, as far as its words say, it asks for hosts, or the settings list
//! hosts. The proxy listens in the private network of the session, where nobody but the session's commands connects.
//! On macOS, which has no such networks, it listens on the machine's loopback interface, for a token, and the sandbox
//! opens its port.

use std::io;
use std::net::Ipv4Addr;

use tokio::net::TcpListener;
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
    /// The proxy of the command; `None` if it has no use for one, or there can be none. Adds its variables, and its
    /// address if the sandbox has to open it. To be called on a thread of the runtime.
    pub(super) fn proxy(
        &self,
        environment: &Environment,
        profile: &mut SandboxProfile,
        variables: &mut Vec<(&'static str, String)>,
    ) -> Option<CommandProxy> {
        let network = self.site.network.get(self.site.settings.memory);
        let is_macos = cfg!(target_os = "macos");
        let usual = if is_macos { Network::Off } else { Network::Loopback };
        let is_listed = !self.site.settings.hosts.is_empty();
        let is_useful = is_listed || self.asks_for_hosts || shell::uses_proxy(self.command);
        let can_be = profile.network == usual && (network.is_some() || is_macos && is_listed);
        if !self.may_write || !is_useful || !can_be {
            return None;
        }
        let mut commands = self.command.script.commands.iter();
        let runs_java = commands.any(|simple| {
            let name = simple.program().rsplit('/').next().unwrap_or_default();
            JAVA_PROGRAMS.contains(&name)
        });
        let needs_token = is_macos || !runs_java;
        let listening = network.as_ref().map_or_else(listen_on_machine, command_network::listen);
        let proxy = listening
            .and_then(|listener| CommandProxy::new(listener, needs_token))
            .inspect_err(|error| tracing::warn!(%error, "a command has no proxy"))
            .ok()?;
        if is_macos {
            profile.machine_addresses.push(proxy.address());
        }
        variables.extend(proxy.variables(|name| environment.get(name)?.to_str()));
        self.remove_program_layers(profile);
        Some(proxy)
    }
}

fn listen_on_machine() -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
