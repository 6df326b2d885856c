//! What one command is kept to while it runs: its permission and the session's walls → the profile
//! for the kernel, the variables, and the tripwire.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tripwire::Tripwire;
use super::{Bench, guard, repository, veil};
use turnwright_types::effect::{Command, Effect, Reach};
use turnwright_workspace::exec::{Environment, dialect};
use turnwright_policy::permission::{Closed, Confinement, Pass, Protected};
use turnwright_workspace::pinned;
use turnwright_sandbox::{Network, Profile};
use turnwright_policy::shell;

/// What the settings and the machine say about the sandbox of a session.
#[derive(Clone, Debug, Default)]
pub struct Walls {
    /// What commands have of the network when nobody has allowed more.
    pub network: Network,
    /// More folders that they may change.
    pub write: Vec<PathBuf>,
    /// Caches that they may change, where they exist.
    pub caches: Vec<PathBuf>,
    /// Where programs that fetch others keep these, made when one is to be fetched.
    pub fetched: Vec<PathBuf>,
    /// What they may not read.
    pub hide: Vec<PathBuf>,
    /// If there is a list, all that they may read.
    pub read: Option<Vec<PathBuf>>,
    /// What they may not change, wherever the session's folders are: what is ours.
    pub keep: Vec<PathBuf>,
    /// What they may not change although it lies in the session's folders.
    pub protected: Protected,
}

/// Where the keys for other machines are asked for.
const AGENT: &str = "SSH_AUTH_SOCK";
/// Programs that need them, and do nothing else with them.
const REMOTE: &[&str] = &["git", "ssh", "scp", "sftp", "rsync"];

/// What git is told where nobody was asked, whatever the repository says. Submodules are looked at
/// without starting git in each, which would not be told.
const CAREFUL_GIT: &[(&str, &str)] = &[
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    (
        "GIT_CONFIG_PARAMETERS",
        "'safe.bareRepository=explicit' 'core.fsmonitor=false' 'core.hooksPath=/dev/null' \
         'core.pager=cat' 'log.showSignature=false' 'diff.ignoreSubmodules=dirty'",
    ),
];

/// What one command is kept to.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) jail: Option<Profile>,
    pub(super) environment: Environment,
    pub(super) extra: Vec<(&'static str, String)>,
    /// For a command that may change things.
    pub(super) tripwire: Option<Arc<Tripwire>>,
    /// What it may change although it is protected.
    pub(super) allowed: Vec<PathBuf>,
    /// What the walls keep from it, each with what it is.
    pub(super) kept: Vec<(PathBuf, u64)>,
    /// What is said when it has met a wall.
    pub(super) hint: Option<String>,
}

/// The cell for a command.
///
/// # Errors
/// What the model has to ask for in another way.
pub(super) async fn build(pass: &Pass, bench: &Arc<Bench>) -> Result<Cell, String> {
    let Some(Effect::Exec(command)) = pass.effects().first() else {
        return Err("Nothing was run: there is no permission for it.".to_owned());
    };
    let mut extra: Vec<(&'static str, String)> = Vec::new();
    if pass.only_reads() && command.line.contains("git") {
        extra.extend(CAREFUL_GIT.iter().map(|(name, value)| (*name, (*value).to_owned())));
    }
    let Confinement::Shut { may_write, network, write } = pass.confinement().clone() else {
        let environment = bench.environment.clone();
        let (allowed, hint) = (Vec::new(), None);
        let kept = Vec::new();
        return Ok(Cell { jail: None, environment, extra, tripwire: None, allowed, kept, hint });
    };
    let redirects = pass.effects().iter().filter_map(|it| match it {
        Effect::Write(target) => Some(target.path.clone()),
        _ => None,
    });
    let redirects: Vec<_> = redirects.collect();
    let closed = pass.closed().clone();
    let (command, bench) = (command.clone(), Arc::clone(bench));
    let built = tokio::task::spawn_blocking(move || {
        // Nobody on the runtime's thread shall have to find that out.
        turnwright_sandbox::rooms();
        let plan = Plan { bench: &bench, command: &command, may_write, network, write, closed };
        plan.cell(extra, &redirects)
    });
    built.await.unwrap_or_else(|_| Err("The sandbox could not be set up.".to_owned()))
}

/// A command with what it was allowed.
struct Plan<'a> {
    bench: &'a Bench,
    command: &'a Command,
    may_write: bool,
    network: bool,
    write: Vec<PathBuf>,
    closed: Closed,
}

impl Plan<'_> {
    fn cell(
        self,
        mut extra: Vec<(&'static str, String)>,
        redirects: &[PathBuf],
    ) -> Result<Cell, String> {
        let walls = &self.bench.walls;
        if let Reach::Write(target) = &self.command.reach
            && fs::symlink_metadata(&target.path).is_err()
        {
            return Err(format!(
                "{} does not exist, so only its folder could be opened. Nothing was run. Name \
                 that folder in \"escalate\".",
                turnwright_types::effect::visible_line(&target.path.to_string_lossy())
            ));
        }
        let mut write = self.write.clone();
        if self.may_write {
            write.extend(self.folders());
            if let Some(temp) = self.bench.cells.temp() {
                let name = temp.to_string_lossy().into_owned();
                extra.extend(["TMPDIR", "TMP", "TEMP"].map(|it| (it, name.clone())));
                write.push(temp);
            }
        }
        for path in
            redirects.iter().filter(|it| !write.iter().any(|to| it.starts_with(to) && to != *it))
        {
            create(path).map_err(|error| {
                let path = turnwright_types::effect::visible_line(&path.to_string_lossy());
                format!("{path} cannot be written: {error}. Nothing was run.")
            })?;
        }
        // The user has said yes to git, not to what a repository would have it start.
        let is_plain = self.command.doubt.is_none();
        let speaks_ssh = self.network && is_plain && only_runs(&self.command.line, REMOTE);
        let jail = Profile {
            keep: self.kept(),
            hide: self.hidden(speaks_ssh),
            read: walls.read.clone(),
            network: if self.network { Network::On } else { walls.network },
            write,
        };
        let tripwire = self.may_write.then(|| self.bench.cells.set_tripwire(&walls.protected));
        let closed: &[&str] = if speaks_ssh { &[] } else { &[AGENT] };
        let (allowed, hint) = (self.allowed(), Some(self.hint(&jail)));
        // What has no tripwire needs no excuse.
        let kept = if tripwire.is_some() { guard::kept(&jail) } else { Vec::new() };
        Ok(Cell {
            jail: Some(jail),
            environment: self.bench.environment.without(closed),
            extra,
            tripwire,
            allowed,
            kept,
            hint,
        })
    }

    /// What every command of the session may change.
    fn folders(&self) -> Vec<PathBuf> {
        let walls = &self.bench.walls;
        let roots: Vec<_> = self.bench.files.roots().folders().map(Path::to_path_buf).collect();
        let of_git: Vec<_> = roots.iter().flat_map(|it| repository::git_folders(it)).collect();
        let existing = walls.write.iter().chain(&walls.caches);
        let existing = existing.filter_map(|it| fs::canonicalize(it).ok());
        roots.into_iter().chain(of_git).chain(existing).collect()
    }

    /// Protected places that exist, without those that it may change this time.
    fn kept(&self) -> Vec<PathBuf> {
        let exists =
            |it: &PathBuf| fs::symlink_metadata(it).is_ok_and(|it| it.is_file() || it.is_dir());
        let allowed = self.allowed();
        let is_open =
            |place: &Path| allowed.iter().any(|it| it.starts_with(place) || place.starts_with(it));
        let roots = self.bench.files.roots();
        let is_inside = |it: &Path| roots.folders().any(|root| it.starts_with(root));
        // Programs that do nothing but git write its settings as a part of their work, such as the
        // branch that another follows. What they have written is looked at when they have ended.
        let is_git = only_runs(&self.command.line, &["git"]);
        let is_left = |it: &Path| is_git && it.ends_with(".git/config");
        let walls = &self.bench.walls;
        let banned = self.closed.unchangeable();
        let ours = walls.keep.iter().chain(&banned).filter_map(|it| fs::canonicalize(it).ok());
        let ours = ours.filter(|it| is_inside(it));
        let ends = walls.protected.ends().into_iter();
        let ends = ends.filter(|it| exists(it) && !is_open(it) && !is_left(it));
        ours.chain(ends).collect()
    }

    /// Protected places that the user has named. All of the project names none of them.
    fn allowed(&self) -> Vec<PathBuf> {
        let protected = &self.bench.walls.protected;
        let is_all = |it: &Path| protected.roots.iter().any(|root| root.starts_with(it));
        let is_named = |it: &&PathBuf| protected.why(it).is_some() && !is_all(it);
        self.write.iter().filter(is_named).cloned().collect()
    }

    /// What it may not read. A folder that the user has opened is for reading.
    fn hidden(&self, speaks_ssh: bool) -> Vec<PathBuf> {
        let roots = self.bench.files.roots();
        let is_opened = |it: &Path| {
            roots.folders().any(|root| root.starts_with(it))
                && !roots.private().any(|own| own == it)
        };
        let is_ssh = |it: &Path| speaks_ssh && it.ends_with(".ssh");
        let hide = self.bench.walls.hide.iter().filter(|it| !is_ssh(it));
        let denied = self.closed.unreadable();
        let hide = hide.chain(&denied);
        let hide = hide.filter_map(|it| fs::canonicalize(it).ok());
        let mut hide: Vec<_> = hide.filter(|it| !is_opened(it)).collect();
        // Nobody was asked about what it may come across.
        if !self.may_write && veil::reads_widely(&self.command.line) {
            let named: Vec<_> = self.command.reads.iter().map(|it| it.path.clone()).collect();
            hide.extend(veil::below(roots.folders(), &self.closed, &named));
        }
        hide
    }

    fn hint(&self, jail: &Profile) -> String {
        let network = match jail.network {
            Network::Off => "no network",
            Network::Loopback => "no network but loopback",
            Network::On => "network",
        };
        let roots: Vec<_> =
            self.bench.files.roots().folders().map(|it| it.display().to_string()).collect();
        let writes = if self.may_write {
            format!("writes only in {} and $TMPDIR", roots.join(", "))
        } else {
            "no writes, because it was taken for one that only reads".to_owned()
        };
        format!(
            "[sandbox: {network}; {writes}. If it needs more call again with \"escalate\": \
             \"network\", a path, or \"full\"; the user is asked.]"
        )
    }
}

/// Creates a file that is to be written, so that it and nothing else can be opened for that. What
/// exists stays as it is.
fn create(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let (_held, folder) = pinned::folder(folder)?;
    match File::create_new(folder.join(path.file_name().unwrap_or_default())) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map(drop),
    }
}

/// Whether a line runs nothing but these programs.
fn only_runs(line: &str, programs: &[&str]) -> bool {
    let script = shell::read(line, dialect());
    script.doubt.is_none()
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
        create(&base.join("real/a")).unwrap();
        assert!(base.join("real/a").exists());
        assert!(create(&base.join("link/b")).is_err());
        create(&base.join("dangling")).unwrap();
        assert!(!base.join("nothing").exists() && !base.join("real/b").exists());
    }
}
