//! The network of a command: its access, the addresses of this machine's proxies, which commands with network access
//! need, and the SSH agent of the user, which only a command of `git`, `ssh` and the like gets that was allowed the
//! network.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use url::{Host, Url};

use super::ConfinementBuilder;
use turnwright_policy::shell;
use turnwright_sandbox::Network;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::real_path;

impl ConfinementBuilder<'_> {
    /// Commands never reach the machine's servers, whatever the settings say about the network.
    pub(super) fn network(&self) -> Network {
        match self.site.settings.network {
            Network::On => Network::Internet,
            _ if self.network => Network::Internet,
            other => other,
        }
    }

    /// The addresses of this machine that the command may connect to: those that it asks for, and proxies.
    pub(super) fn machine_addresses(&self, environment: &Environment) -> Vec<SocketAddr> {
        let mut addresses = self.further.connects.clone();
        if self.network().reaches_other_machines() {
            addresses.extend(proxy_addresses(environment));
        }
        addresses
    }
}

/// The variables that name proxies, in capitals or not.
const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "ftp_proxy"];

/// The addresses of the proxies that programs are told to use, if the proxies may run on this machine.
fn proxy_addresses(environment: &Environment) -> Vec<SocketAddr> {
    let names = PROXY_VARIABLES.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]);
    let values = names.filter_map(|name| Some(environment.get(&name)?.to_str()?.to_owned()));
    values.flat_map(|value| addresses_of(&value)).collect()
}

/// The addresses of a proxy that is not named by a host of the network.
fn addresses_of(value: &str) -> Vec<SocketAddr> {
    let value = value.trim();
    let whole = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let Ok(url) = Url::parse(&whole) else { return Vec::new() };
    let default = if url.scheme().starts_with("socks") { 1080 } else { 80 };
    let port = url.port_or_known_default().unwrap_or(default);
    // The host of an unknown scheme is not parsed.
    match url.host().and_then(|host| Host::parse(&host.to_string()).ok()) {
        Some(Host::Ipv4(address)) => vec![(address, port).into()],
        Some(Host::Ipv6(address)) => vec![(address, port).into()],
        Some(Host::Domain(name)) if name == "localhost" => {
            vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
        }
        _ => Vec::new(),
    }
}

/// The variable with the socket of the SSH agent.
pub(super) const SSH_AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";
/// The sockets of agents that the settings of SSH may name instead, in the home folder and in the
/// user's runtime folder.
const HOME_AGENTS: &[&str] = &[".1password/agent.sock"];
const RUNTIME_AGENTS: &[&str] =
    &["gcr/ssh", "gnupg/S.gpg-agent.ssh", "keyring/ssh", "openssh_agent", "ssh-agent.socket"];
/// Programs that need the SSH agent and use it only to connect.
const SSH_PROGRAMS: &[&str] = &["git", "ssh", "scp", "sftp", "rsync"];

/// The sockets of the SSH agents that exist, as real paths.
pub(super) fn ssh_agents(environment: &Environment) -> Vec<PathBuf> {
    let named = environment.get(SSH_AGENT_VARIABLE).map(PathBuf::from);
    let in_home = paths_below(environment, "HOME", HOME_AGENTS);
    let in_runtime = paths_below(environment, "XDG_RUNTIME_DIR", RUNTIME_AGENTS);
    let sockets = named.into_iter().chain(in_home).chain(in_runtime);
    sockets.filter_map(|socket| real_path(socket).ok()).collect()
}

/// The paths with these names in the folder that a variable names.
fn paths_below(environment: &Environment, variable: &str, names: &[&str]) -> Vec<PathBuf> {
    let Some(folder) = environment.get(variable).map(Path::new) else { return Vec::new() };
    names.iter().map(|name| folder.join(name)).collect()
}

/// Returns true if a command line runs only programs that need the SSH agent.
pub(super) fn only_connects(script: &shell::Script) -> bool {
    script.ambiguity.is_none()
        && !script.commands.is_empty()
        && script.commands.iter().all(|command| {
            let program = command.program();
            SSH_PROGRAMS.contains(&program)
                && command.wrappers.is_empty()
                && (program != "git" || shell::classify(command).starts_no_other)
        })
}

#[cfg(test)]
mod tests {
    use turnwright_types::shell_script::ShellDialect;

    use super::*;

    #[test]
    fn a_proxy_of_the_machine_is_found_however_it_is_written() {
        for (value, expected) in [
            ("http://127.0.0.1:3128", vec!["127.0.0.1:3128"]),
            ("http://localhost:3128/", vec!["127.0.0.1:3128", "[::1]:3128"]),
            ("localhost:8118", vec!["127.0.0.1:8118", "[::1]:8118"]),
            ("socks5h://me:word@127.0.0.1", vec!["127.0.0.1:1080"]),
            ("socks5://localhost:9050", vec!["127.0.0.1:9050", "[::1]:9050"]),
            ("http://[::1]:3128", vec!["[::1]:3128"]),
            ("http://10.0.0.1", vec!["10.0.0.1:80"]),
            ("http://proxy.example:3128", vec![]),
            ("", vec![]),
        ] {
            let found: Vec<_> = addresses_of(value).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn git_gets_the_ssh_agent_only_if_its_words_start_no_other_program() {
        for (line, expected) in [
            ("git push", true),
            ("git add -A && git commit -m x && git push -u origin x", true),
            ("ssh host ls", true),
            ("git -c alias.x='!cat ~/.ssh/id' x", false),
            ("git -C sub fetch", false),
            ("git clone -c core.sshCommand=./x host:y", false),
            ("git push && sh x", false),
        ] {
            let script = shell::parse(line, ShellDialect::Bash);
            assert_eq!(only_connects(&script), expected, "{line}");
        }
    }
}
