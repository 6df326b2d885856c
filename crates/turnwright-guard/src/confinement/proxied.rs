//! The proxy of a command, through which it reaches hosts one by one. Only a command that may write gets one, and only
//! if it has a use for it: it downloads something, as far as its words say, it asks for hosts, or the settings list
//! hosts. The proxy listens in the private network of the session, where nobody but the session's commands connects, so
//! there is none where there are no such networks.

use turnwright_policy::shell;
use turnwright_proxy::CommandProxy;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_workspace::exec::{Environment, add_git_setting};

use super::ConfinementBuilder;
use crate::command_network;

/// Programs of Java, which cannot be given a token.
const JAVA_PROGRAMS: [&str; 10] =
    ["ant", "clj", "gradle", "gradlew", "java", "lein", "mvn", "mvnw", "sbt", "scala"];

/// The settings of git that name a proxy: for all hosts, and for GitHub, which many users set and git prefers there.
const GIT_PROXIES: [&str; 2] = ["http.proxy", "http.https://github.com.proxy"];

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
        set_git_proxy(variables);
        self.remove_program_layers(profile);
        Some(proxy)
    }
}

/// Makes git use the proxy in the variables even if the user's settings of git name another one, which a command does
/// not reach.
fn set_git_proxy(variables: &mut Vec<(&'static str, String)>) {
    let named = variables.iter().find(|(name, _)| *name == "HTTPS_PROXY");
    let Some(url) = named.map(|(_, url)| url.clone()) else { return };
    for setting in GIT_PROXIES {
        add_git_setting(variables, setting, url.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_uses_the_proxy_whatever_proxy_its_settings_name() {
        let proxy = ("HTTPS_PROXY", "http://tw:x@127.0.0.1:1".to_owned());
        for number in [4, 8] {
            let mut variables = vec![proxy.clone()];
            for _ in 4..number {
                add_git_setting(&mut variables, "gpg.program", "x".to_owned());
            }
            set_git_proxy(&mut variables);
            let value = |wanted: &str| {
                let mut found = variables.iter().filter(|(name, _)| *name == wanted);
                let first = found.next().map(|(_, value)| value.clone()).unwrap_or_default();
                assert!(found.next().is_none(), "{wanted}");
                first
            };
            assert_eq!(value("GIT_CONFIG_COUNT"), (number + 2).to_string());
            for (index, setting) in (number..).zip(GIT_PROXIES) {
                assert_eq!(value(&format!("GIT_CONFIG_KEY_{index}")), setting);
                assert_eq!(value(&format!("GIT_CONFIG_VALUE_{index}")), proxy.1);
            }
        }
        let mut none = Vec::new();
        set_git_proxy(&mut none);
        assert!(none.is_empty());
    }
}
