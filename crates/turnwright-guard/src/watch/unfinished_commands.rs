//! Marks commands as running, and keeps the history of the session's repositories before each. Tells the user when the
//! agent was killed while a command ran: in that case the protected files were not compared, and things that the command
//! had set up for other programs were not removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::CLOCK_LAG;
use super::kept_history::KeptHistory;
use super::server_watch::changed_at;
use crate::confinement::{CommandSite, ConfinementSettings, OBEYED};
use crate::protected_snapshot::ProtectedSnapshot;
use crate::repository;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::git_layout::GitLayout;
use turnwright_types::private_file::{self, is_locked};
use turnwright_types::shell_script::SimpleCommand;
use turnwright_types::text;
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::{ChangeTracker, GitSettings};
use turnwright_workspace::files::Roots;

/// At most this many files are named.
const MAX_NAMED: usize = 10;
/// At most this many repositories in a session's folders are kept, besides its own and their submodules.
const MAX_NESTED: usize = 32;
/// Subcommands of git that delete objects that no branch needs.
const PRUNING: [&str; 7] =
    ["gc", "prune", "prune-packed", "repack", "maintenance", "filter-branch", "filter-repo"];

/// The folder with the marks of a project's commands.
fn running_commands(confinement: &ConfinementSettings) -> PathBuf {
    confinement.private_caches.join("running")
}

/// A file that is there and locked for as long as a command runs.
#[derive(Debug)]
pub(crate) struct RunningMark {
    path: PathBuf,
    _lock: File,
}

impl RunningMark {
    /// Makes a mark for a command that is about to begin. Blocks.
    pub(crate) fn new(folder: &Path) -> io::Result<RunningMark> {
        private_file::create_folder(folder)?;
        let path = folder.join(uuid::Uuid::new_v4().simple().to_string());
        // Locked before it gets its name: another agent takes an unlocked mark for abandoned.
        let file = tempfile::NamedTempFile::new_in(folder.parent().unwrap_or(folder))?;
        file.as_file().lock()?;
        let lock = file.persist(&path).map_err(|failed| failed.error)?;
        Ok(RunningMark { path, _lock: lock })
    }

    /// Returns true if no other command of the project runs, in this agent or another. Blocks.
    pub(crate) fn is_only(&self) -> bool {
        let entries = self.path.parent().and_then(|folder| fs::read_dir(folder).ok());
        let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        !paths.filter(|path| *path != self.path).any(|path| is_locked(&path))
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the mark of a command cannot be removed");
        }
    }
}

impl CommandSite {
    /// Marks a command that may write as running, and keeps the history of the session's repositories before it. Tells
    /// the user once if that is not possible. Blocks.
    pub(crate) fn keep_history(&self, commands: &[SimpleCommand]) -> KeptHistory {
        let mark = RunningMark::new(&running_commands(&self.settings))
            .inspect_err(|error| tracing::warn!(%error, "a running command cannot be marked"))
            .ok();
        let folders = self.roots.folders();
        let mut repositories: Vec<_> = folders.flat_map(repository::history_folders).collect();
        repositories.extend(self.nested_repositories());
        let mut seen = BTreeSet::new();
        repositories.retain(|git| seen.insert(git.clone()));
        let place = self.settings.private_caches.join("history");
        let is_alone = !self.guard.state.lock().watches.values().any(|watch| watch.is_checking());
        let kept = self.guard.history.lock().keep(
            repositories,
            &place,
            (may_prune(commands), is_alone),
            mark,
        );
        for git in &kept.incomplete {
            let notice = format!(
                "The history in {} cannot be kept as a whole, so a command could lose it: it is on another disk than the agent's \
                 own folder and too large for a copy, or cannot be read.",
                git.display()
            );
            self.client.update(Update::Notice(notice));
        }
        kept
    }

    /// The repositories in the session's folders.
    fn nested_repositories(&self) -> Vec<PathBuf> {
        let found = self.tracker.repositories();
        let repositories = found.iter().filter(|git| {
            fs::symlink_metadata(git).is_ok_and(|info| info.is_dir())
                && GitLayout::of(git).is_repository()
        });
        repositories.take(MAX_NESTED).cloned().collect()
    }
}

/// Returns true if a line tells git to delete old objects, or runs only git, which may do so now and then.
fn may_prune(commands: &[SimpleCommand]) -> bool {
    let prunes = commands.iter().any(|command| {
        command.program() == "git" && command.argv().any(|word| PRUNING.contains(&word))
    });
    let only_git = commands.iter().all(|command| {
        command.wrappers.is_empty() && ["git", "cd", "echo"].contains(&command.program())
    });
    prunes || only_git
}

/// Returns a report about commands that were running when the agent ended, once. Blocks; looks through the
/// session's folders only if there were such commands.
pub fn report_unfinished(confinement: &ConfinementSettings, roots: &Roots) -> Option<String> {
    let since = take_first_abandoned(&running_commands(confinement))?;
    let checkpoint = ChangeTracker::default();
    checkpoint.watch(roots, OBEYED, GitSettings::default(), Vec::new());
    let (repositories, _) = checkpoint.find_new_repositories(&BTreeSet::new());
    let repositories = Arc::new(repositories.into_iter().collect());
    let snapshot = ProtectedSnapshot::take(&confinement.protected, repositories, None);
    let changed: Vec<_> = snapshot
        .files()
        .filter(|path| changed_at(path).is_some_and(|at| at + CLOCK_LAG >= since))
        .collect();
    if changed.is_empty() {
        return None;
    }
    let inside = changed.iter().map(|path| path.strip_prefix(roots.real_cwd()).unwrap_or(path));
    let names: Vec<_> = inside.map(|path| escape_hidden_line(&path.to_string_lossy())).collect();
    Some(format!(
        "A command was running when the agent was killed. Since it began, files have changed that other programs run: {}. \
         Look at them before you open the project in an editor or use git there.",
        text::join_first(&names, MAX_NAMED)
    ))
}

/// Removes the marks of commands whose agent has ended. Returns the time at which the first of them began.
fn take_first_abandoned(folder: &Path) -> Option<SystemTime> {
    let mut first: Option<SystemTime> = None;
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let Ok(file) = File::open(entry.path()) else { continue };
        if file.try_lock().is_err() {
            continue;
        }
        let Ok(began) = file.metadata().and_then(|found| found.modified()) else { continue };
        first = Some(first.map_or(began, |other| other.min(began)));
        fs::remove_file(entry.path()).ok();
    }
    first
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use turnwright_policy::shell;
    use turnwright_types::shell_script::ShellDialect;

    use super::*;

    #[test]
    fn only_lines_that_tell_git_to_prune_or_run_nothing_else_may_prune() {
        for (line, expected) in [
            ("git commit -qm x", true),
            ("cd sub && git fetch", true),
            ("git gc --prune=now; ./test.sh", true),
            ("git -C sub repack -ad && ls", true),
            ("git status; npm test", false),
            ("git commit -qm x && python3 x.py", false),
            ("git status | env sh", false),
            ("./gc.sh", false),
        ] {
            let script = shell::parse(line, ShellDialect::Bash);
            assert_eq!(may_prune(&script.commands), expected, "{line}");
        }
    }

    #[test]
    fn only_a_mark_that_nobody_holds_is_of_an_unfinished_command() {
        let folder = tempfile::tempdir().unwrap();
        let running = RunningMark::new(folder.path()).unwrap();
        assert_eq!(take_first_abandoned(folder.path()), None);
        fs::write(folder.path().join("abandoned"), "").unwrap();
        assert!(take_first_abandoned(folder.path()).is_some());
        assert_eq!(take_first_abandoned(folder.path()), None);
        drop(running);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
