//! Keeps a command from losing the history of the project's repositories, and from changing files that other places
//! share.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{ConfinementBuilder, cannot_be_written};
use crate::confinement::linked_files::{ChangedLayers, SharedPlaces, separate};
use crate::repository;
use crate::watch::kept_history::KeptHistory;
use crate::watch::unfinished_commands::{RunningMark, running_commands};
use turnwright_types::effect::{PathScope, ResolvedPath, ShellCommand};
use turnwright_types::file_id::file_id;
use turnwright_types::git_layout::GitLayout;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::secret::linked_secret_files;
use turnwright_types::shell_script::SimpleCommand;
use turnwright_types::update::Update;

/// At most this many repositories in a session's folders are kept, besides its own and their submodules.
const MAX_NESTED: usize = 32;
/// Subcommands of git that delete objects that no branch needs.
const PRUNING: [&str; 7] =
    ["gc", "prune", "prune-packed", "repack", "maintenance", "filter-branch", "filter-repo"];
/// With more files than this that have a name outside of the session's folders, no command runs in the sandbox.
const MAX_SHARED_FILES: usize = 1_000;
const SHARED_TOO_MUCH: &str = "Nothing was run: more than 1000 files of the project are also files of another folder \
                               (hard links, as `cp -l` makes them), which a command would change, too. Ask the user to make a copy \
                               of the project, or call again with \"escalate\": \"full\", so that the user is asked.";

impl ConfinementBuilder<'_> {
    /// Gives the targets of redirects in the session's folders a file of their own if other places have it, too.
    pub(super) fn separate_redirect_targets(
        &self,
        redirects: &[PathBuf],
    ) -> Result<(), ToolRefusal> {
        for path in redirects {
            if self.site.roots.folders().any(|root| path.starts_with(root)) {
                separate(path).map_err(|error| cannot_be_written(path, &error))?;
            }
        }
        Ok(())
    }

    /// The other names (hard links) in the session's folders of the files that the agent's own secrets are in.
    pub(super) fn other_names_of_secrets(&self) -> Vec<PathBuf> {
        let secrets = linked_secret_files();
        if secrets.is_empty() {
            return Vec::new();
        }
        // A search of another command may hold the lock for long, so it is only taken where the tracker has no list.
        let mut names = self
            .site
            .tracker
            .hard_linked()
            .unwrap_or_else(|| self.site.guard.linked_files.lock().unlisted_files().collect());
        names.retain(|path| file_id(path).is_some_and(|(id, _)| secrets.contains(&id)));
        names
    }

    /// Marks a command that may write as running, and keeps the history of the session's repositories before it. Tells
    /// the user once if that is not possible.
    pub(super) fn keep_history(&self) -> KeptHistory {
        if !self.may_write {
            return KeptHistory::default();
        }
        let mark = RunningMark::new(&running_commands(&self.site.settings))
            .inspect_err(|error| tracing::warn!(%error, "a running command cannot be marked"))
            .ok();
        let folders = self.site.roots.folders();
        let mut repositories: Vec<_> = folders.flat_map(repository::history_folders).collect();
        repositories.extend(self.nested_repositories());
        let mut seen = BTreeSet::new();
        repositories.retain(|git| seen.insert(git.clone()));
        let place = self.site.settings.private_caches.join("history");
        let may_prune = may_prune(&self.command.script.commands);
        let kept = self.site.guard.keep_history(repositories, &place, may_prune, mark);
        for git in &kept.incomplete {
            let notice = format!(
                "The history in {} cannot be kept as a whole, so a command could lose it: it is on another disk than the agent's \
                 own folder and too large for a copy, or cannot be read.",
                git.display()
            );
            self.site.client.update(Update::Notice(notice));
        }
        kept
    }

    /// The repositories in the session's folders.
    fn nested_repositories(&self) -> Vec<PathBuf> {
        let found = self.site.tracker.repositories();
        let repositories = found.iter().filter(|git| {
            fs::symlink_metadata(git).is_ok_and(|info| info.is_dir())
                && GitLayout::of(git).is_repository()
        });
        repositories.take(MAX_NESTED).cloned().collect()
    }

    /// Where the session's folders share files with places outside, unless the user has allowed to change them.
    pub(super) fn shared_places(&self) -> Result<SharedPlaces, ToolRefusal> {
        let site = self.site;
        let mut places = site.guard.linked_files.lock().find(&site.tracker, &site.roots);
        let is_allowed = |path: &PathBuf| self.write.iter().any(|to| path.starts_with(to));
        let deleted = deleted_first(self.command);
        places.folders.retain(|path| {
            !is_allowed(path) && !deleted.iter().any(|folder| path.starts_with(folder))
        });
        places.files.retain(|path| !is_allowed(path));
        if places.files.len() > MAX_SHARED_FILES {
            return Err(SHARED_TOO_MUCH.into());
        }
        Ok(places)
    }

    /// Describes for the model and the user what the sandbox lets the command do with files that other projects share.
    pub(super) fn shared_note(&self, shared: &SharedPlaces) -> String {
        let mut note = String::new();
        if !shared.folders.is_empty() {
            let all = self.display_first(&shared.folders);
            note = format!(
                "; {all} shares files with other projects (hard links), so it cannot be deleted or moved as a whole, but by a \
                 line that begins with `rm -rf {} &&`",
                self.display(&shared.folders[0])
            );
        }
        if !shared.files.is_empty() {
            let all = self.display_first(&shared.files);
            note += &format!("; no changes of {all}, which is also a file outside (a hard link)");
        }
        note
    }

    /// The first three of these paths.
    fn display_first(&self, paths: &[PathBuf]) -> String {
        let names: Vec<_> = paths.iter().take(3).map(|path| self.display(path)).collect();
        names.join(", ")
    }

    fn display(&self, path: &Path) -> String {
        let place = ResolvedPath { path: path.to_path_buf(), scope: PathScope::Workspace };
        self.site.roots.display_path(&place)
    }

    /// The layers over folders with shared files, and the paths that the command cannot change at all.
    pub(super) fn layers(&self, shared: SharedPlaces) -> (ChangedLayers, Vec<PathBuf>) {
        let SharedPlaces { folders, files: mut unchanged } = shared;
        let confinement = &self.site.settings;
        if folders.is_empty() || !confinement.can_layer_caches() {
            unchanged.extend(folders);
            return (ChangedLayers::default(), unchanged);
        }
        let place = confinement.private_caches.join("layers");
        let (layers, without_layer) = ChangedLayers::prepare(folders, &place);
        unchanged.extend(without_layer);
        (layers, unchanged)
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

/// The folders that a line deletes as a whole before it does anything else, and without which it does nothing else.
pub(super) fn deleted_first(command: &ShellCommand) -> Vec<PathBuf> {
    let is_chain = !command.line.replace("&&", "").contains(['&', '|', ';', '\n']);
    let first = command.script.commands.first().filter(|_| is_chain);
    let Some(first) = first.filter(|first| first.program() == "rm" && first.wrappers.is_empty())
    else {
        return Vec::new();
    };
    let Some(folder) = first.folder.as_ref().filter(|_| command.script.ambiguity.is_none()) else {
        return Vec::new();
    };
    let folder = command.workdir.join(folder);
    let (options, paths): (Vec<_>, Vec<_>) =
        first.argv().skip(1).partition(|word| word.starts_with('-'));
    let is_recursive = options.iter().any(|option| option.contains(['r', 'R']));
    let deletes = options.iter().all(|option| is_deleting_option(option));
    // Behind a link, `..` leads elsewhere than it seems to.
    let has_parent = paths.iter().any(|path| path.split('/').any(|part| part == ".."));
    if !is_recursive || !deletes || has_parent {
        return Vec::new();
    }
    paths.iter().map(|path| repository::normalize_lexically(&folder.join(path))).collect()
}

/// Returns true if `rm` certainly deletes with this option. With others, such as `--help` and `-i`, it may succeed and
/// delete nothing.
fn is_deleting_option(option: &str) -> bool {
    let letters = option.trim_start_matches('-');
    let are_short = option.len() == letters.len() + 1;
    ["--recursive", "--force"].contains(&option)
        || are_short && letters.chars().all(|letter| "rRfv".contains(letter))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
    fn only_what_is_gone_before_the_rest_of_a_line_runs_counts_as_deleted() {
        for (line, expected) in [
            ("rm -rf a && touch b", Some("/p/a")),
            ("rm -r --force a/ && touch b", Some("/p/a")),
            ("rm -rf --help a && touch b", None),
            ("rm -rf --version a && touch b", None),
            ("rm -ri a && touch b", None),
            ("rm -f a && touch b", None),
            ("rm -rf link/../a && touch b", None),
            ("rm -rf a; touch b", None),
            ("rm -rf a || touch b", None),
            ("touch b && rm -rf a", None),
        ] {
            let script = Arc::new(shell::parse(line, ShellDialect::Bash));
            let command = ShellCommand::new(line, Path::new("/p"), script);
            let expected: Vec<_> = expected.into_iter().map(PathBuf::from).collect();
            assert_eq!(deleted_first(&command), expected, "{line}");
        }
    }
}
