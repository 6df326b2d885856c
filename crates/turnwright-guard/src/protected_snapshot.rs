//! A snapshot of the protected paths before a command runs, and the repair afterwards: the command's
//! changes are undone, and the files that it wrote are kept in a quarantine folder where no program
//! picks them up.

mod environment;
mod entries;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::repository::{self, only_changes_tracking};
use crate::watch::CLOCK_LAG;
use crate::watch::server_watch::changed_at;
use turnwright_policy::permission::ProtectedPaths;

use entries::{FileStamp, ProtectedScan, SnapshotEntry, read};
use environment::{EnvironmentJudge, is_link_to_python};
use turnwright_types::error_text::io_error_text;
use turnwright_types::text::join_first;
use turnwright_workspace::fixed_places::FixedPlaces;
use turnwright_workspace::real_path;

/// A report names at most this many paths.
const MAX_NAMED: usize = 10;

/// The protected paths as they were at one moment.
#[derive(Debug, Default)]
pub(crate) struct ProtectedSnapshot {
    protected: ProtectedPaths,
    /// The git repositories below the protected roots: each `.git`, or the folder that is one.
    pub(crate) repositories: Arc<BTreeSet<PathBuf>>,
    /// The places in the project that the settings of these repositories name.
    named: BTreeSet<PathBuf>,
    entries: BTreeMap<PathBuf, SnapshotEntry>,
    /// Folders with more entries than the scan visits.
    overfull: Vec<PathBuf>,
    /// An earlier snapshot: what it knows may have been moved.
    reference: Option<Arc<ProtectedSnapshot>>,
    /// When this was taken, or the first of the snapshots of commands that were running then.
    since: Option<SystemTime>,
    judge: Arc<EnvironmentJudge>,
}

/// The ends of paths which show that a virtual environment of Python was made or changed.
const ENVIRONMENT_FILES: [&str; 2] = ["/pyvenv.cfg", "/bin/activate"];

/// The changes that were made to protected paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtectedChanges {
    /// `VERB PATH` of each change that was undone, or that was only reported.
    pub(crate) restored: Vec<String>,
    /// `VERB PATH (reason)` of each change that could not be undone.
    pub(crate) not_restored: Vec<String>,
    /// The folder with what was written, if anything was quarantined.
    pub(crate) quarantine: Option<PathBuf>,
    pub(crate) paths: Vec<PathBuf>,
    /// False if the changes were only reported.
    is_undone: bool,
}

impl ProtectedSnapshot {
    /// Scans the protected paths. Files that have not changed since `previous` are not read again.
    /// Blocks: not for the runtime's thread.
    pub(crate) fn take(
        protected: &ProtectedPaths,
        repositories: Arc<BTreeSet<PathBuf>>,
        previous: Option<&ProtectedSnapshot>,
    ) -> ProtectedSnapshot {
        let since = Some(SystemTime::now() - CLOCK_LAG);
        let mut scan =
            ProtectedScan { copies_contents: true, previous, ..ProtectedScan::default() };
        scan.scan_all(protected, &repositories);
        ProtectedSnapshot {
            protected: protected.clone(),
            repositories,
            named: scan.named,
            entries: scan.entries,
            overfull: scan.overfull,
            since,
            ..ProtectedSnapshot::default()
        }
        .with_places([], Vec::new())
    }

    /// Takes a snapshot of repositories that were judged later than `since`. For what has changed after that, too late
    /// for the judgement perhaps, it has what `earlier` has, so that the next comparison finds the change. Blocks.
    pub(crate) fn take_settled(
        repositories: BTreeSet<PathBuf>,
        earlier: Option<&ProtectedSnapshot>,
        since: SystemTime,
    ) -> ProtectedSnapshot {
        let mut taken = Self::take(&ProtectedPaths::default(), Arc::new(repositories), earlier);
        // A file may have come with a folder, and then only the folder has changed. If nothing is known from before,
        // that is no reason to take all that is in a folder for new.
        let levels = if earlier.is_some() { usize::MAX } else { 1 };
        taken.entries.retain(|path, _| !has_changed(path, levels, Some(since)));
        let known = earlier.into_iter().flat_map(|earlier| &earlier.entries);
        let kept = known.filter(|(path, _)| has_changed(path, levels, Some(since)));
        taken.entries.extend(kept.map(|(path, entry)| (path.clone(), entry.clone())));
        taken
    }

    /// The same snapshot for a command that starts while others run. What they have made, changed or removed since an
    /// earlier snapshot, and `is_undone` says is undone, it has as it was: the two checks would undo each other's work
    /// otherwise.
    pub(crate) fn beside_commands(
        mut self,
        earlier: &Self,
        is_undone: &dyn Fn(&Path) -> bool,
    ) -> Self {
        self.since = earlier.since;
        // A place that is only named since then may be the user's own, and would count as made by the commands.
        self.named.retain(|place| earlier.named.contains(place));
        let found = self.repositories.difference(&earlier.repositories);
        let new: BTreeSet<&Path> = found
            .map(|path| {
                let folder = path.parent().filter(|_| ProtectedPaths::is_environment_file(path));
                folder.unwrap_or(path)
            })
            .collect();
        self.entries.retain(|path, entry| {
            let before = earlier.entries.get(path);
            let is_kept = match (before, &*entry) {
                (Some(SnapshotEntry::File(old, _)), SnapshotEntry::File(now, _)) => old == now,
                // Only a file in a subfolder says the same after a move.
                (None, SnapshotEntry::File(now, _))
                    if self.repositories.contains(path) && !path.ends_with(".git") =>
                {
                    earlier.was_moved(path, now)
                }
                _ => earlier.is_unknown(path),
            };
            // A repository may have been there unfound: the folders above it tell nothing of it.
            let tops = path.ancestors().enumerate().filter(|(_, folder)| new.contains(folder));
            let levels = tops.last().map_or(usize::MAX, |(above, _)| above + 1);
            if is_kept || !has_changed(path, levels, earlier.since) || !is_undone(path) {
                return true;
            }
            if let Some(before) = before {
                entry.clone_from(before);
            }
            before.is_some()
        });
        for (path, before) in &earlier.entries {
            if !self.entries.contains_key(path)
                && is_gone(path)
                && earlier.is_changed(path, None)
                && has_changed(path, usize::MAX, earlier.since)
                && is_undone(path)
            {
                self.entries.insert(path.clone(), before.clone());
            }
        }
        self
    }

    /// The same snapshot, with the places where commands can write besides the protected folders, and the folders with
    /// the user's programs.
    pub(crate) fn with_places(
        mut self,
        writable: impl IntoIterator<Item = PathBuf>,
        folders: Vec<PathBuf>,
    ) -> Self {
        let writable = self.protected.roots().iter().cloned().chain(writable);
        let places = FixedPlaces::new(writable.collect());
        self.judge = Arc::new(EnvironmentJudge::new(places, folders));
        self
    }

    /// The paths in these environments that now hold what installers, and programs that make environments,
    /// write; `is_installing` says that installers have not finished.
    pub(crate) fn accepted_programs(
        &self,
        environments: impl IntoIterator<Item = PathBuf>,
        is_installing: bool,
    ) -> Vec<PathBuf> {
        environments
            .into_iter()
            .flat_map(|environment| self.judge.accepted(&environment, is_installing))
            .collect()
    }

    /// The snapshot from before these repositories appeared, or files in subfolders that programs obey.
    pub(crate) fn without_repositories(
        new: Vec<PathBuf>,
        reference: Option<Arc<ProtectedSnapshot>>,
    ) -> ProtectedSnapshot {
        let repositories = Arc::new(new.into_iter().collect());
        let judge = reference.as_ref().map(|before| Arc::clone(&before.judge)).unwrap_or_default();
        ProtectedSnapshot { repositories, reference, judge, ..ProtectedSnapshot::default() }
    }

    /// Returns true if this is a file in a subfolder that programs obey, or git in a repository there. Without it less
    /// is run, and after a move it says the same.
    fn is_in_subfolder(&self, path: &Path) -> bool {
        !path.ends_with(".git") && self.repositories.contains(path) || self.names(path)
    }

    /// Returns true if the settings of a repository within the project name this path, or a folder above it.
    pub(crate) fn names(&self, path: &Path) -> bool {
        self.named.iter().any(|place| path.starts_with(place))
    }

    /// Returns true if a path belongs to a virtual environment of Python.
    fn is_in_environment(&self, path: &Path) -> bool {
        ProtectedPaths::environment_of(path).is_some()
            || self.environments().any(|environment| path.starts_with(environment))
    }

    /// The virtual environments that are known by their file.
    fn environments(&self) -> impl Iterator<Item = &Path> {
        let files =
            self.repositories.iter().filter(|path| ProtectedPaths::is_environment_file(path));
        files.filter_map(|file| file.parent())
    }

    /// Returns true if a file with this name and content was at another place before and is gone from there. Files that
    /// are obeyed in a session's own folder never count as moved.
    fn was_moved(&self, path: &Path, stamp: &FileStamp) -> bool {
        let before = self.reference.as_deref().unwrap_or(self);
        let mut content = None;
        let mut is_same = |entry: &SnapshotEntry| {
            let SnapshotEntry::File(known, known_content) = entry else { return false };
            let Some(known_content) = known_content.as_ref().filter(|_| known != stamp) else {
                return known == stamp;
            };
            known_content.len() as u64 == stamp.length
                && content.get_or_insert_with(|| read(path, stamp.length)).as_ref()
                    == Some(known_content)
        };
        let mut named =
            before.entries.iter().filter(|(known, _)| known.file_name() == path.file_name());
        named.any(|(known, entry)| is_same(entry) && is_gone(known)) && !before.is_at_root(path)
    }

    /// Returns true if a path lies directly in a session's folder, or in a folder that is obeyed there.
    fn is_at_root(&self, path: &Path) -> bool {
        self.protected.roots().iter().any(|root| path.parent() == Some(root))
            || self.protected.leaf_paths().iter().any(|leaf| path.starts_with(leaf))
    }

    /// Finds the changes, except under `allowed`. With a quarantine, moves the new entries below it
    /// and puts back the old ones; otherwise only reports them. Returns `None` if nothing has
    /// changed. Blocks: not for the runtime's thread.
    pub(crate) fn check(
        &self,
        allowed: &[PathBuf],
        quarantine: Option<&Path>,
    ) -> Option<ProtectedChanges> {
        self.check_if(allowed, quarantine, &|_| true)
    }

    /// The same, but only for the changed paths for which `is_suspect` holds.
    pub(crate) fn check_if(
        &self,
        allowed: &[PathBuf],
        quarantine: Option<&Path>,
        is_suspect: &dyn Fn(&Path) -> bool,
    ) -> Option<ProtectedChanges> {
        let mut scan = ProtectedScan { named: self.named.clone(), ..ProtectedScan::default() };
        // These paths may not be among the protected ones any more, for example if a folder became
        // a link.
        for path in self.entries.keys() {
            scan.scan_path(path);
        }
        scan.scan_all(&self.protected, &self.repositories);
        let ProtectedScan { entries: now, overfull, .. } = scan;
        let is_allowed = |path: &Path| {
            let is_folder = matches!(now.get(path), Some(SnapshotEntry::Folder));
            // A folder above an allowed path may have been created on the way to it.
            allowed
                .iter()
                .any(|place| path.starts_with(place) || is_folder && place.starts_with(path))
        };
        let is_undone = quarantine.is_some();
        let mut changes = ProtectedChanges { is_undone, ..ProtectedChanges::default() };
        for place in overfull.iter().filter(|place| !is_allowed(place)) {
            // Folders of repositories are reported each time, because new repositories are not looked at.
            if !self.overfull.contains(place) || holds_git_folders(place) {
                let why = std::io::Error::other("too many entries to check");
                changes.record(place, "filled", Err(why));
            }
        }
        let mut all: BTreeSet<_> = self.entries.keys().chain(now.keys()).collect();
        all.retain(|path| {
            !is_allowed(path)
                && !self.is_unknown(path)
                && self.is_changed(path, now.get(*path))
                && !self.is_behind_link(path, &now)
                && is_suspect(path)
        });
        if all.is_empty() {
            return (!changes.not_restored.is_empty()).then_some(changes);
        }
        let mut quarantined = quarantine.map(entries::Quarantine::new);
        self.restore(&all, &now, quarantined.as_mut(), &mut changes);
        changes.quarantine = quarantined.and_then(entries::Quarantine::into_folder);
        changes.paths = all.into_iter().cloned().collect();
        Some(changes)
    }

    /// Moves the new entries at these paths into the quarantine, if there is one, and puts back
    /// the old ones. Records each change.
    fn restore(
        &self,
        paths: &BTreeSet<&PathBuf>,
        now: &BTreeMap<PathBuf, SnapshotEntry>,
        mut quarantine: Option<&mut entries::Quarantine>,
        changes: &mut ProtectedChanges,
    ) {
        // First everything new or changed is moved away, the deepest paths first, to make room for
        // what was there.
        for path in paths.iter().rev().filter(|path| now.contains_key(**path)) {
            let before = self.entries.get(*path);
            if matches!((before, &now[*path]), (Some(SnapshotEntry::Folder), SnapshotEntry::Folder))
            {
                continue;
            }
            let verb = if before.is_some() { "changed" } else { "created" };
            let done = match &mut quarantine {
                None => Ok(()),
                // git does not work without its config, so a config that cannot be restored stays.
                // A missing hook or program does no harm.
                Some(_)
                    if before
                        .is_some_and(|old| old.has_no_copy() && !self.may_be_missing(path)) =>
                {
                    Err(std::io::Error::other("there is no copy of what it was"))
                }
                Some(quarantine) => quarantine.quarantine_path(path),
            };
            changes.record(path, verb, done);
        }
        for &path in paths {
            let Some(before) = self.entries.get(path) else { continue };
            if now.contains_key(path) && before.has_no_copy() && !self.may_be_missing(path) {
                continue;
            }
            let done = if quarantine.is_some() { entries::put_back(path, before) } else { Ok(()) };
            if !now.contains_key(path) || done.is_err() {
                changes.record(path, "removed", done);
            }
        }
    }

    /// The paths of the snapshot that are no folders.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files =
            self.entries.iter().filter(|(_, entry)| !matches!(entry, SnapshotEntry::Folder));
        files.map(|(path, _)| path.clone())
    }

    /// Returns true if the path may have existed before, because the scan did not visit all of its folder.
    fn is_unknown(&self, path: &Path) -> bool {
        !self.entries.contains_key(path)
            && self.overfull.iter().any(|place| {
                path.starts_with(place)
                    && path != place
                    && !(holds_git_folders(place) && self.is_in_known_git_folder(path))
            })
    }

    /// Returns true if a link that was there led from a path to another one that is compared, too: only that can be
    /// restored.
    fn is_behind_link(&self, path: &Path, now: &BTreeMap<PathBuf, SnapshotEntry>) -> bool {
        let mut above = path.ancestors().skip(1);
        above.any(|folder| matches!(self.entries.get(folder), Some(SnapshotEntry::Link(_))))
            && path.parent().zip(path.file_name()).is_some_and(|(folder, name)| {
                let real = real_path(folder).unwrap_or_default().join(name);
                real != path && (now.contains_key(&real) || self.entries.contains_key(&real))
            })
    }

    /// Returns true if the path is in a submodule or linked working tree that was looked at.
    fn is_in_known_git_folder(&self, path: &Path) -> bool {
        let mut folders = path.ancestors().skip(1).take_while(|folder| !holds_git_folders(folder));
        folders.any(|folder| {
            ["config", "commondir"].iter().any(|name| self.entries.contains_key(&folder.join(name)))
        })
    }

    /// Returns true if the entry at a path has changed in a way that matters.
    fn is_changed(&self, path: &Path, now: Option<&SnapshotEntry>) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let before = self.entries.get(path);
        if self.is_judged_by_content(path) {
            let is_moved = before.is_none()
                && matches!(now, Some(SnapshotEntry::File(new, _)) if self.was_moved(path, new));
            return !is_moved && is_dangerous(path, (before, now));
        }
        if let Some(is_changed) = self.is_obeyed_file_changed(path, (before, now)) {
            return is_changed;
        }
        match (before, now) {
            (None, None) | (Some(SnapshotEntry::Folder), Some(SnapshotEntry::Folder)) => false,
            // git does not run `.sample` hooks, and a new repository contains them.
            (None, Some(SnapshotEntry::File(..)))
                if name.ends_with(".sample") && self.is_hook(path) =>
            {
                false
            }
            // A linked working tree or a submodule.
            (None, Some(SnapshotEntry::File(..) | SnapshotEntry::Link(_))) if name == ".git" => {
                path.parent().is_some_and(|top| repository::untrusted_config(top).is_some())
            }
            // An empty folder has no effect; its contents are compared on their own.
            (None, Some(SnapshotEntry::Folder)) => false,
            (None, Some(SnapshotEntry::File(..)))
                if name == "config" && self.is_new_repository(path) =>
            {
                path.parent().is_some_and(|git| repository::new_repository_risk(git).is_some())
            }
            (None, Some(SnapshotEntry::File(..))) if is_worktree_file(path, "config.worktree") => {
                repository::settings_file_risk(path, false).is_some()
            }
            (None, Some(SnapshotEntry::File(new, _))) if is_worktree_file(path, "commondir") => {
                read(path, new.length).is_none_or(|content| content.trim_ascii_end() != b"../..")
            }
            (_, Some(SnapshotEntry::File(new, _))) if name == "git-rebase-todo" => {
                read(path, new.length).is_none_or(|steps| runs_programs(&steps))
            }
            (Some(_), None) if name == "git-rebase-todo" => false,
            (Some(_), None) if self.has_gone_with_its_folder(path) => false,
            (Some(SnapshotEntry::File(old, _)), Some(SnapshotEntry::File(new, _)))
                if old == new =>
            {
                false
            }
            (Some(SnapshotEntry::File(old, Some(before))), Some(SnapshotEntry::File(new, _))) => {
                let Some(after) = read(path, new.length) else { return true };
                let only_tracks = || name == "config" && only_changes_tracking(before, &after);
                old.mode != new.mode || before[..] != after[..] && !only_tracks()
            }
            (Some(SnapshotEntry::Link(one)), Some(SnapshotEntry::Link(other))) => one != other,
            _ => true,
        }
    }

    fn is_judged_by_content(&self, path: &Path) -> bool {
        let all = self.reference.as_deref().map_or(&self.protected, |earlier| &earlier.protected);
        all.is_judged_by_content(path)
    }

    /// The same for files in subfolders and in environments; `None` if the usual comparison applies to them.
    fn is_obeyed_file_changed(
        &self,
        path: &Path,
        (before, now): (Option<&SnapshotEntry>, Option<&SnapshotEntry>),
    ) -> Option<bool> {
        // Nearly all are such, and looking for the environment of each among all repositories takes quadratic time.
        if before.is_some() && !matches!(now, None | Some(SnapshotEntry::Link(_))) {
            return None;
        }
        let is_in_environment = self.is_in_environment(path);
        if !is_in_environment && !self.is_in_subfolder(path) {
            return None;
        }
        match (before, now) {
            // Without its file an environment would not be known any more, while it still is one.
            (Some(_), None) => Some(environment::leaves_programs(path)),
            (None, Some(SnapshotEntry::File(new, _))) => {
                let may_move = !is_in_environment || ProtectedPaths::is_environment_file(path);
                Some(!(may_move && self.was_moved(path, new)))
            }
            (_, Some(SnapshotEntry::Link(_))) => {
                let is_python = is_in_environment && environment::is_python(path);
                (is_python && is_link_to_python(path, &self.judge.places)).then_some(false)
            }
            _ => None,
        }
    }

    /// Returns true if a working tree of the project, or a repository below it, was removed as a whole.
    fn has_gone_with_its_folder(&self, path: &Path) -> bool {
        let mut folders = path.ancestors().skip(1);
        if folders.any(|folder| is_in_worktrees(folder) && !folder.exists()) {
            return true;
        }
        let roots = self.protected.roots();
        let mut others = self
            .repositories
            .iter()
            .filter(|git| !roots.iter().any(|root| git.as_path() == root.join(".git")));
        others.any(|git| path.starts_with(git) && !git.exists())
    }

    fn is_new_repository(&self, config: &Path) -> bool {
        config
            .parent()
            .is_some_and(|git| self.is_repository(git) && !self.entries.contains_key(git))
    }

    /// Returns true if a folder is a git repository, or the repository of a submodule.
    fn is_repository(&self, folder: &Path) -> bool {
        let places = folder.ancestors().filter(|place| holds_git_folders(place));
        let mut around = places.filter_map(Path::parent);
        folder.iter().any(|part| part == ".git")
            || self.repositories.contains(folder)
            || around.any(|git| {
                self.repositories.contains(git)
                    || self.protected.roots().iter().any(|root| root == git)
            })
    }

    fn may_be_missing(&self, path: &Path) -> bool {
        self.is_hook(path) || self.is_in_environment(path)
    }

    fn is_hook(&self, path: &Path) -> bool {
        let hooks = path.parent().filter(|folder| folder.ends_with("hooks"));
        hooks.and_then(Path::parent).is_some_and(|git| self.is_repository(git))
    }
}

/// Returns true if a path, or a folder above it, has changed since a moment. Looks at so many `levels`, from the path
/// up, of those that are there.
fn has_changed(path: &Path, levels: usize, since: Option<SystemTime>) -> bool {
    path.ancestors().filter_map(changed_at).take(levels).any(|time| Some(time) >= since)
}

/// Returns true for the folders of a repository with its submodules and linked working trees.
fn holds_git_folders(place: &Path) -> bool {
    place.ends_with("modules") || place.ends_with("worktrees")
}

fn is_gone(path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path);
    found.is_err_and(|error| error.kind() != std::io::ErrorKind::PermissionDenied)
}

/// Returns true if this is a file of a linked working tree in a `.git` folder.
fn is_worktree_file(path: &Path, name: &str) -> bool {
    path.ends_with(name) && path.parent().is_some_and(is_in_worktrees)
}

fn is_in_worktrees(folder: &Path) -> bool {
    folder.parent().is_some_and(|above| above.ends_with("worktrees"))
}

/// Returns true if a file has got a content, or leads to one, with which programs run something.
fn is_dangerous(
    path: &Path,
    (before, now): (Option<&SnapshotEntry>, Option<&SnapshotEntry>),
) -> bool {
    match (before, now) {
        (_, None | Some(SnapshotEntry::Folder)) => false,
        (Some(SnapshotEntry::File(old, _)), Some(SnapshotEntry::File(new, _))) if old == new => {
            false
        }
        (Some(SnapshotEntry::Link(one)), Some(SnapshotEntry::Link(other))) if one == other => false,
        (_, Some(SnapshotEntry::File(new, _))) => read(path, new.length)
            .is_none_or(|content| ProtectedPaths::runs_something(path, &content) == Some(true)),
        _ => true,
    }
}

/// Returns true if the steps of a rebase run programs.
fn runs_programs(steps: &[u8]) -> bool {
    steps.split(|byte| *byte == b'\n').any(|line| {
        let command = line.trim_ascii_start().split(u8::is_ascii_whitespace).next();
        command.is_some_and(|command| command == b"exec" || command == b"x")
    })
}

impl ProtectedChanges {
    fn record(&mut self, path: &Path, verb: &str, done: std::io::Result<()>) {
        let path = turnwright_types::effect::escape_hidden_line(&path.to_string_lossy());
        match done {
            Ok(()) => self.restored.push(format!("{verb} {path}")),
            Err(error) => {
                self.not_restored.push(format!("{verb} {path} ({})", io_error_text(&error)));
            }
        }
    }

    /// The report for the model and for the user.
    pub(crate) fn message(&self) -> String {
        let mut files = ENVIRONMENT_FILES.iter();
        let is_of_environment =
            files.any(|file| self.restored.iter().any(|change| change.ends_with(file)));
        let hint = if is_of_environment {
            "A command line may make a virtual environment or install packages only if it does nothing else, such \
             as `python3 -m venv .venv`: run that with one call of exec, and what uses it with the next."
        } else {
            "Other programs run what is there. If the change is wanted, make it with the file tools, or call \
             again with the path as \"escalate\"; the user is asked."
        };
        self.message_about("the command, or another program while it ran,", hint)
    }

    /// The same report about something other than a command.
    pub(crate) fn message_about(&self, who: &str, hint: &str) -> String {
        let mut text = format!("[protected: {who} {}", join_first(&self.restored, MAX_NAMED));
        if !self.restored.is_empty() {
            text.push_str(if self.is_undone {
                ". This was undone"
            } else {
                ". It was not undone, because an allowed action may have caused it"
            });
        }
        if let Some(quarantine) = &self.quarantine {
            text.push_str(&format!("; what it wrote is kept in {}", quarantine.display()));
        }
        if !self.not_restored.is_empty() {
            let gap = if self.restored.is_empty() { "" } else { ". " };
            let changes = join_first(&self.not_restored, MAX_NAMED);
            text.push_str(&format!("{gap}{changes}: NOT undone"));
        }
        text.push_str(&format!(". {hint}]"));
        text
    }
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests;
