//! The confinement of one command: its permission and the session's sandbox settings → a sandbox
//! profile, environment variables, and a snapshot of the protected paths.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::protected_snapshot::ProtectedSnapshot;
use super::{ToolEnv, confinement_guard, hidden_paths, repository};
use turnwright_policy::permission::{Confinement, DeniedPaths, Pass, ProtectedPaths};
use turnwright_policy::shell;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_types::effect::{Effect, ExtraAccess, ShellCommand};
use turnwright_workspace::exec::Environment;
use turnwright_workspace::nofollow;

/// The sandbox settings of a session, from its configuration and the machine.
#[derive(Clone, Debug, Default)]
pub struct ConfinementSettings {
    /// The network access of commands, unless more was allowed.
    pub network: Network,
    /// Folders that commands may write besides those of the session.
    pub writable: Vec<PathBuf>,
    /// Caches that commands may write, if they exist.
    pub caches: Vec<PathBuf>,
    /// Where package runners keep the programs that they download. Created when one is about to
    /// download.
    pub download_caches: Vec<PathBuf>,
    /// Paths that commands may not read.
    pub hidden: Vec<PathBuf>,
    /// If set, the only paths that commands may read.
    pub readable: Option<Vec<PathBuf>>,
    /// Our own files, which commands may never write, wherever the session's folders are.
    pub read_only: Vec<PathBuf>,
    /// Paths in the session's folders that commands may not write.
    pub protected: ProtectedPaths,
}

/// The variable with the socket of the SSH agent.
const SSH_AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";
/// Programs that need the SSH agent and use it for nothing but connecting.
const SSH_PROGRAMS: &[&str] = &["git", "ssh", "scp", "sftp", "rsync"];

/// Makes git start no program of the repository's choice when it runs without a question.
/// Submodules are compared without starting git in each, because that git would not see these
/// settings.
const SAFE_GIT_VARIABLES: &[(&str, &str)] = &[
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    (
        "GIT_CONFIG_PARAMETERS",
        "'safe.bareRepository=explicit' 'core.fsmonitor=false' 'core.hooksPath=/dev/null' \
         'core.pager=cat' 'log.showSignature=false' 'diff.ignoreSubmodules=dirty'",
    ),
];

/// The confinement of one command.
#[derive(Debug)]
pub(super) struct CommandConfinement {
    pub(super) profile: Option<SandboxProfile>,
    pub(super) environment: Environment,
    pub(super) extra_variables: Vec<(&'static str, String)>,
    /// Taken only if the command may write.
    pub(super) snapshot: Option<Arc<ProtectedSnapshot>>,
    /// Protected paths that this command may write.
    pub(super) allowed: Vec<PathBuf>,
    /// Paths that the sandbox keeps read-only, each with its inode.
    pub(super) read_only_inodes: Vec<(PathBuf, u64)>,
    /// The hint for the model if the command fails because of the sandbox.
    pub(super) hint: Option<String>,
}

/// Builds the confinement of the command that `pass` permits.
///
/// # Errors
/// Why the command cannot run, for the model.
pub(super) async fn confine(pass: &Pass, env: &Arc<ToolEnv>) -> Result<CommandConfinement, String> {
    let Some(Effect::Exec(command)) = pass.effects().first() else {
        return Err("Nothing was run: there is no permission for it.".to_owned());
    };
    let mut extra_variables: Vec<(&'static str, String)> = Vec::new();
    if pass.is_read_only() && command.line.contains("git") {
        extra_variables
            .extend(SAFE_GIT_VARIABLES.iter().map(|(name, value)| (*name, (*value).to_owned())));
    }
    let Confinement::Sandboxed { workspace_writable: may_write, network, extra_writable: write } =
        pass.confinement().clone()
    else {
        let environment = env.command_environment.clone();
        let (allowed, hint) = (Vec::new(), None);
        let read_only_inodes = Vec::new();
        return Ok(CommandConfinement {
            profile: None,
            environment,
            extra_variables,
            snapshot: None,
            allowed,
            read_only_inodes,
            hint,
        });
    };
    let redirects = pass.effects().iter().filter_map(|it| match it {
        Effect::Write(target) => Some(target.path.clone()),
        _ => None,
    });
    let redirects: Vec<_> = redirects.collect();
    let denied_paths = pass.denied_paths().clone();
    let (command, env) = (command.clone(), Arc::clone(env));
    let built = tokio::task::spawn_blocking(move || {
        // The probe blocks when it runs for the first time, so it runs here and not on the
        // runtime's thread.
        turnwright_sandbox::namespace_support();
        let builder = ConfinementBuilder {
            env: &env,
            command: &command,
            may_write,
            network,
            write,
            denied_paths,
        };
        builder.build(extra_variables, &redirects)
    });
    built.await.unwrap_or_else(|_| Err("The sandbox could not be set up.".to_owned()))
}

/// A command and what it was allowed.
struct ConfinementBuilder<'a> {
    env: &'a ToolEnv,
    command: &'a ShellCommand,
    may_write: bool,
    network: bool,
    write: Vec<PathBuf>,
    denied_paths: DeniedPaths,
}

impl ConfinementBuilder<'_> {
    fn build(
        self,
        mut extra_variables: Vec<(&'static str, String)>,
        redirects: &[PathBuf],
    ) -> Result<CommandConfinement, String> {
        let confinement = &self.env.confinement;
        if let ExtraAccess::Write(target) = &self.command.extra_access
            && fs::symlink_metadata(&target.path).is_err()
        {
            return Err(format!(
                "{} does not exist, so only its folder could be opened. Nothing was run. Name \
                 that folder in \"escalate\".",
                turnwright_types::effect::escape_hidden_line(&target.path.to_string_lossy())
            ));
        }
        let mut write = self.write.clone();
        if self.may_write {
            write.extend(self.writable_folders());
            if let Some(temp) = self.env.guard.temp_folder() {
                let name = temp.to_string_lossy().into_owned();
                extra_variables.extend(["TMPDIR", "TMP", "TEMP"].map(|it| (it, name.clone())));
                write.push(temp);
            }
        }
        for path in
            redirects.iter().filter(|it| !write.iter().any(|to| it.starts_with(to) && to != *it))
        {
            create_redirect_target(path).map_err(|error| {
                let path = turnwright_types::effect::escape_hidden_line(&path.to_string_lossy());
                format!("{path} cannot be written: {error}. Nothing was run.")
            })?;
        }
        // The user has approved git, not the programs that a repository's settings make it start.
        let is_certain = self.command.uncertainty.is_none();
        let uses_ssh = self.network && is_certain && only_runs(&self.command.script, SSH_PROGRAMS);
        let profile = SandboxProfile {
            read_only: self.read_only_paths(),
            hidden: self.hidden_paths(uses_ssh),
            readable: confinement.readable.clone(),
            network: if self.network { Network::On } else { confinement.network },
            writable: write,
        };
        let snapshot = self.may_write.then(|| self.env.guard.take_snapshot(&confinement.protected));
        let removed_variables: &[&str] = if uses_ssh { &[] } else { &[SSH_AGENT_VARIABLE] };
        let (allowed, hint) = (self.allowed_protected_paths(), Some(self.hint(&profile)));
        // Only the check of a snapshot uses them.
        let read_only_inodes = if snapshot.is_some() {
            confinement_guard::read_only_inodes(&profile)
        } else {
            Vec::new()
        };
        Ok(CommandConfinement {
            profile: Some(profile),
            environment: self.env.command_environment.without(removed_variables),
            extra_variables,
            snapshot,
            allowed,
            read_only_inodes,
            hint,
        })
    }

    /// The folders that every command of the session may write.
    fn writable_folders(&self) -> Vec<PathBuf> {
        let confinement = &self.env.confinement;
        let roots: Vec<_> = self.env.files.roots().folders().map(Path::to_path_buf).collect();
        let of_git: Vec<_> = roots.iter().flat_map(|it| repository::git_folders(it)).collect();
        let existing = confinement.writable.iter().chain(&confinement.caches);
        let existing = existing.filter_map(|it| fs::canonicalize(it).ok());
        roots.into_iter().chain(of_git).chain(existing).collect()
    }

    /// The protected paths that exist, except those that this command may write.
    fn read_only_paths(&self) -> Vec<PathBuf> {
        let exists =
            |it: &PathBuf| fs::symlink_metadata(it).is_ok_and(|it| it.is_file() || it.is_dir());
        let allowed = self.allowed_protected_paths();
        let is_open =
            |place: &Path| allowed.iter().any(|it| it.starts_with(place) || place.starts_with(it));
        let roots = self.env.files.roots();
        let is_inside = |it: &Path| roots.folders().any(|root| it.starts_with(root));
        // git itself legitimately writes its config, for example to set a branch's upstream. The
        // snapshot is checked after the command has ended.
        let is_git = only_runs(&self.command.script, &["git"]);
        let is_left_writable = |it: &Path| is_git && it.ends_with(".git/config");
        let confinement = &self.env.confinement;
        let unwritable = self.denied_paths.unwritable_paths();
        let ours = confinement
            .read_only
            .iter()
            .chain(&unwritable)
            .filter_map(|it| fs::canonicalize(it).ok());
        let ours = ours.filter(|it| is_inside(it));
        let leaf_paths = confinement.protected.leaf_paths().into_iter();
        let leaf_paths =
            leaf_paths.filter(|it| exists(it) && !is_open(it) && !is_left_writable(it));
        ours.chain(leaf_paths).collect()
    }

    /// The protected paths that the user has explicitly allowed. A folder that contains the whole
    /// project does not count as naming them.
    fn allowed_protected_paths(&self) -> Vec<PathBuf> {
        let protected = &self.env.confinement.protected;
        let is_all = |it: &Path| protected.roots.iter().any(|root| root.starts_with(it));
        let is_named = |it: &&PathBuf| protected.reason(it).is_some() && !is_all(it);
        self.write.iter().filter(is_named).cloned().collect()
    }

    /// The paths that the command may not read. A folder that the user has opened as a session
    /// folder stays readable.
    fn hidden_paths(&self, uses_ssh: bool) -> Vec<PathBuf> {
        let roots = self.env.files.roots();
        let is_opened = |it: &Path| {
            roots.folders().any(|root| root.starts_with(it))
                && !roots.private_folders().any(|own| own == it)
        };
        let is_ssh = |it: &Path| uses_ssh && it.ends_with(".ssh");
        let hide = self.env.confinement.hidden.iter().filter(|it| !is_ssh(it));
        let denied = self.denied_paths.unreadable_paths();
        let hide = hide.chain(&denied);
        let hide = hide.filter_map(|it| fs::canonicalize(it).ok());
        let mut hide: Vec<_> = hide.filter(|it| !is_opened(it)).collect();
        // The user was not asked about files that the command does not name, so secrets among them
        // are hidden.
        if !self.may_write && hidden_paths::reads_unnamed_files(&self.command.script) {
            let named: Vec<_> = self.command.reads.iter().map(|it| it.path.clone()).collect();
            hide.extend(hidden_paths::hidden_below(roots.folders(), &self.denied_paths, &named));
        }
        hide
    }

    fn hint(&self, profile: &SandboxProfile) -> String {
        let network = match profile.network {
            Network::Off => "no network",
            Network::Loopback => "no network but loopback",
            Network::On => "network",
        };
        let roots: Vec<_> =
            self.env.files.roots().folders().map(|it| it.display().to_string()).collect();
        let writes = if self.may_write {
            format!("writes only in {} and $TMPDIR", roots.join(", "))
        } else {
            "no writes, because it was judged read-only".to_owned()
        };
        format!(
            "[sandbox: {network}; {writes}. If it needs more call again with \"escalate\": \
             \"network\", a path, or \"full\"; the user is asked.]"
        )
    }
}

/// Creates the target of a redirect, so that the sandbox can allow writing this one file and not
/// its folder. An existing file is left as it is.
fn create_redirect_target(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let (_held, folder) = nofollow::open_folder(folder)?;
    match File::create_new(folder.join(path.file_name().unwrap_or_default())) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map(drop),
    }
}

/// Whether a command line runs only these programs.
fn only_runs(script: &shell::Script, programs: &[&str]) -> bool {
    script.ambiguity.is_none()
        && !script.commands.is_empty()
        && script
            .commands
            .iter()
            .all(|it| programs.contains(&it.program()) && it.wrappers.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_file_to_be_written_is_made_without_following_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        std::os::unix::fs::symlink("nothing", base.join("dangling")).unwrap();
        create_redirect_target(&base.join("real/a")).unwrap();
        assert!(base.join("real/a").exists());
        assert!(create_redirect_target(&base.join("link/b")).is_err());
        create_redirect_target(&base.join("dangling")).unwrap();
        assert!(!base.join("nothing").exists() && !base.join("real/b").exists());
    }
}
