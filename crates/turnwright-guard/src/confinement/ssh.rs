//! The SSH agent of the user, which only a command of `git`, `ssh` and the like gets that was allowed the network.

use std::path::{Path, PathBuf};

use turnwright_policy::shell;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::real_path;

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
    use super::*;
    use turnwright_types::shell_script::ShellDialect;

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
