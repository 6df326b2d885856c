//! A snapshot of the protected paths before a command runs, and the repair afterwards: what the
//! command changed is restored, and what it wrote is kept in a quarantine folder where no program
//! picks it up.

mod environment;
mod folder_names;
mod scan;
mod restore;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::repository::{self, only_changes_tracking};
use turnwright_policy::permission::ProtectedPaths;

pub(super) use environment::installed_programs;
use scan::{FileStamp, ProtectedScan, SnapshotEntry, read};
use turnwright_types::io_error_text::io_error_text;

/// A report names at most this many paths.
const MAX_NAMED: usize = 10;

/// The protected paths as they were at one moment.
#[derive(Debug)]
pub(super) struct ProtectedSnapshot {
    protected: ProtectedPaths,
    /// The git repositories below the protected roots: each `.git`, or the folder that is one.
    repositories: Arc<BTreeSet<PathBuf>>,
    entries: BTreeMap<PathBuf, SnapshotEntry>,
    /// Folders with more entries than the scan visits.
    overfull: Vec<PathBuf>,
    /// An earlier snapshot: what it knows may have been moved.
    reference: Option<Arc<ProtectedSnapshot>>,
    /// The places where commands can write.
    writable: Vec<PathBuf>,
}

/// The changes that were made to protected paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProtectedChanges {
    /// `VERB PATH` of each change that was undone, or that was only reported.
    pub(super) restored: Vec<String>,
    /// `VERB PATH (reason)` of each change that could not be undone.
    pub(super) not_restored: Vec<String>,
    /// The folder with what was written, if anything was quarantined.
    pub(super) quarantine: Option<PathBuf>,
    pub(super) paths: Vec<PathBuf>,
}

impl ProtectedSnapshot {
    /// Scans the protected paths. Files that have not changed since `previous` are not read again.
    /// Blocks: not for the runtime's thread.
    pub(super) fn take(
        protected: &ProtectedPaths,
        repositories: Arc<BTreeSet<PathBuf>>,
        previous: Option<&ProtectedSnapshot>,
    ) -> ProtectedSnapshot {
        let mut scan =
            ProtectedScan { copies_contents: true, previous, ..ProtectedScan::default() };
        scan.scan_all(protected, &repositories);
        ProtectedSnapshot {
            protected: protected.clone(),
            repositories,
            entries: scan.entries,
            overfull: scan.overfull,
            reference: None,
            writable: protected.roots.clone(),
        }
    }

    /// The same snapshot, with the places where commands can write besides the protected folders.
    pub(super) fn with_writable(mut self, places: impl IntoIterator<Item = PathBuf>) -> Self {
        self.writable.extend(places);
        self
    }

    /// The snapshot from before these repositories appeared, or files in subfolders that programs obey.
    pub(super) fn without_repositories(
        new: Vec<PathBuf>,
        reference: Option<Arc<ProtectedSnapshot>>,
    ) -> ProtectedSnapshot {
        ProtectedSnapshot {
            protected: ProtectedPaths::default(),
            repositories: Arc::new(new.into_iter().collect()),
            entries: BTreeMap::new(),
            overfull: Vec::new(),
            writable: reference.as_ref().map(|it| it.writable.clone()).unwrap_or_default(),
            reference,
        }
    }

    /// Whether this is a file in a subfolder that programs obey. Without it less is run, and where it is
    /// moved to it says the same.
    fn is_in_subfolder(&self, path: &Path) -> bool {
        !path.ends_with(".git") && self.repositories.contains(path)
    }

    /// Whether a path belongs to a virtual environment of Python.
    fn is_in_environment(&self, path: &Path) -> bool {
        ProtectedPaths::environment_of(path).is_some()
            || self.environments().any(|it| path.starts_with(it))
    }

    /// The virtual environments of which this is known by their file.
    fn environments(&self) -> impl Iterator<Item = &Path> {
        let files = self.repositories.iter().filter(|it| ProtectedPaths::is_environment_file(it));
        files.filter_map(|it| it.parent())
    }

    /// Whether a file with this name and content was there before.
    fn was_moved(&self, path: &Path, stamp: &FileStamp) -> bool {
        let known = || self.reference.as_deref().unwrap_or(self).entries.iter();
        let length = stamp.length;
        let is_it = |it: (&PathBuf, &SnapshotEntry)| {
            it.0.file_name() == path.file_name()
                && matches!(it.1, SnapshotEntry::File(known, _) if known == stamp)
        };
        if known().any(is_it) {
            return true;
        }
        let same = known().filter_map(|(known, entry)| match entry {
            SnapshotEntry::File(_, content) => {
                content.as_ref().filter(|_| known.file_name() == path.file_name())
            }
            _ => None,
        });
        let same: Vec<_> = same.filter(|it| it.len() as u64 == length).collect();
        !same.is_empty() && read(path, length).is_some_and(|it| same.contains(&&it))
    }

    /// Finds what has changed, except under `allowed`. If `restores` is set, moves what was written
    /// below `quarantine` and puts back what was there; otherwise only reports it. Returns `None`
    /// if nothing has changed. Blocks: not for the runtime's thread.
    pub(super) fn check(
        &self,
        allowed: &[PathBuf],
        quarantine: &Path,
        restores: bool,
    ) -> Option<ProtectedChanges> {
        self.check_if(allowed, quarantine, restores, &|_| true)
    }

    /// The same, but only for the changed paths for which `is_suspect` holds.
    pub(super) fn check_if(
        &self,
        allowed: &[PathBuf],
        quarantine: &Path,
        restores: bool,
        is_suspect: &dyn Fn(&Path) -> bool,
    ) -> Option<ProtectedChanges> {
        let mut scan = ProtectedScan::default();
        // These paths may not be among the protected ones any more, for example if a folder became
        // a link.
        for path in self.entries.keys() {
            scan.scan_path(path);
        }
        scan.scan_all(&self.protected, &self.repositories);
        let ProtectedScan { entries: now, overfull, .. } = scan;
        let is_allowed = |path: &Path| {
            allowed
                .iter()
                .any(|it| path.starts_with(it) || it.starts_with(path) && is_folder(&now, path))
        };
        let mut changes = ProtectedChanges::default();
        // Where repositories are it is told each time, because new ones are not looked at.
        let is_told = |place: &PathBuf| self.overfull.contains(place) && !holds_git_folders(place);
        for place in overfull.iter().filter(|place| !is_allowed(place) && !is_told(place)) {
            let why = std::io::Error::other("too many entries to check");
            changes.record(place, "filled", Err(why));
        }
        // A folder above an allowed path may have been created on the way to it.
        let changed = |path: &&PathBuf| {
            !is_allowed(path)
                && !self.is_unknown(path)
                && self.is_changed(path, now.get(*path))
                && is_suspect(path)
        };
        let mut paths: Vec<_> = self.entries.keys().chain(now.keys()).collect();
        paths.sort();
        paths.dedup();
        let paths: Vec<_> = paths.into_iter().filter(changed).collect();
        if paths.is_empty() {
            return (!changes.not_restored.is_empty()).then_some(changes);
        }
        let mut quarantined = restore::Quarantine::new(quarantine);
        self.restore(&paths, &now, restores.then_some(&mut quarantined), &mut changes);
        changes.quarantine = quarantined.into_folder();
        changes.paths = paths.into_iter().cloned().collect();
        Some(changes)
    }

    /// Moves what was written at these paths into the quarantine, if there is one, and puts back
    /// what was there. Records each change.
    fn restore(
        &self,
        paths: &[&PathBuf],
        now: &BTreeMap<PathBuf, SnapshotEntry>,
        mut quarantine: Option<&mut restore::Quarantine>,
        changes: &mut ProtectedChanges,
    ) {
        // First everything new or changed is moved away, the deepest paths first, to make room for
        // what was there.
        for path in paths.iter().rev().filter(|it| now.contains_key(**it)) {
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
                    if before.is_some_and(|it| it.has_no_copy() && !self.may_be_missing(path)) =>
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
            let restores = quarantine.is_some();
            let done = if restores { restore::put_back(path, before) } else { Ok(()) };
            if !now.contains_key(path) || done.is_err() {
                changes.record(path, "removed", done);
            }
        }
    }

    /// The git folders of the session's own folders.
    pub(super) fn own_repositories(&self) -> Vec<PathBuf> {
        self.protected.roots.iter().map(|root| root.join(".git")).collect()
    }

    /// The repositories that are known to it.
    pub(super) fn repositories(&self) -> &BTreeSet<PathBuf> {
        &self.repositories
    }

    /// The paths of the snapshot that are no folders.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files = self.entries.iter().filter(|it| !matches!(it.1, SnapshotEntry::Folder));
        files.map(|it| it.0.clone())
    }

    /// Whether the path may have existed before, because the scan did not visit all of its folder.
    fn is_unknown(&self, path: &Path) -> bool {
        let may_be_in = |place: &PathBuf| {
            path.starts_with(place)
                && path != place
                && !(holds_git_folders(place) && self.is_in_known_git_folder(path))
        };
        !self.entries.contains_key(path) && self.overfull.iter().any(may_be_in)
    }

    /// Returns true if the path is in a submodule or linked working tree that was looked at.
    fn is_in_known_git_folder(&self, path: &Path) -> bool {
        let is_known = |folder: &Path| {
            ["config", "commondir"].iter().any(|name| self.entries.contains_key(&folder.join(name)))
        };
        path.ancestors().skip(1).take_while(|folder| !holds_git_folders(folder)).any(is_known)
    }

    /// Whether the entry at a path has changed in a way that matters.
    fn is_changed(&self, path: &Path, now: Option<&SnapshotEntry>) -> bool {
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let before = self.entries.get(path);
        if self.is_judged_by_content(path) {
            let was_moved = |new: &FileStamp| before.is_none() && self.was_moved(path, new);
            let is_moved = matches!(now, Some(SnapshotEntry::File(new, _)) if was_moved(new));
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
                path.parent().is_some_and(|it| repository::untrusted_config(it).is_some())
            }
            // An empty folder has no effect; its contents are compared on their own.
            (None, Some(SnapshotEntry::Folder)) => false,
            (None, Some(SnapshotEntry::File(..)))
                if name == "config" && self.is_new_repository(path) =>
            {
                path.parent().is_some_and(|it| repository::new_repository_risk(it).is_some())
            }
            (None, Some(SnapshotEntry::File(..))) if is_worktree_file(path, "config.worktree") => {
                repository::settings_file_risk(path, false).is_some()
            }
            (None, Some(SnapshotEntry::File(new, _))) if is_worktree_file(path, "commondir") => {
                read(path, new.length).is_none_or(|it| it.trim_ascii_end() != b"../..")
            }
            (_, Some(SnapshotEntry::File(new, _))) if name == "git-rebase-todo" => {
                read(path, new.length).is_none_or(|it| runs_programs(&it))
            }
            (Some(_), None) if name == "git-rebase-todo" => false,
            (Some(SnapshotEntry::File(old, _)), Some(SnapshotEntry::File(new, _)))
                if old == new =>
            {
                false
            }
            (Some(SnapshotEntry::File(old, Some(before))), Some(SnapshotEntry::File(new, _))) => {
                let Some(after) = read(path, new.length) else { return true };
                let tracks = || {
                    let (before, after) = (str::from_utf8(before), str::from_utf8(&after));
                    name == "config"
                        && matches!((before, after), (Ok(one), Ok(other)) if only_changes_tracking(one, other))
                };
                old.mode != new.mode || before[..] != after[..] && !tracks()
            }
            (Some(SnapshotEntry::Link(one)), Some(SnapshotEntry::Link(other))) => one != other,
            _ => true,
        }
    }

    fn is_judged_by_content(&self, path: &Path) -> bool {
        let all = self.reference.as_deref().map_or(&self.protected, |earlier| &earlier.protected);
        all.is_judged_by_content(path)
    }

    /// The same for files in subfolders and in environments, if the usual comparison is not for them.
    fn is_obeyed_file_changed(
        &self,
        path: &Path,
        (before, now): (Option<&SnapshotEntry>, Option<&SnapshotEntry>),
    ) -> Option<bool> {
        let is_in_environment = self.is_in_environment(path);
        if !is_in_environment && !self.is_in_subfolder(path) {
            return None;
        }
        match (before, now) {
            // Without its file an environment would not be known any more, while it still is one.
            (Some(_), None) => Some(environment::is_without_file(path)),
            (None, Some(SnapshotEntry::File(new, _))) => Some(!self.was_moved(path, new)),
            (_, Some(SnapshotEntry::Link(target))) => {
                let is_python = is_in_environment && environment::is_python(path);
                (is_python && environment::leads_to_python(target, &self.writable)).then_some(false)
            }
            _ => None,
        }
    }

    fn is_new_repository(&self, config: &Path) -> bool {
        config.parent().is_some_and(|it| self.is_repository(it) && !self.entries.contains_key(it))
    }

    /// Whether a folder is a git repository, or that of a submodule.
    fn is_repository(&self, folder: &Path) -> bool {
        folder.iter().any(|it| it == ".git") || self.repositories.contains(folder)
    }

    fn may_be_missing(&self, path: &Path) -> bool {
        self.is_hook(path) || self.is_in_environment(path)
    }

    fn is_hook(&self, path: &Path) -> bool {
        let hooks = path.parent().filter(|it| it.ends_with("hooks"));
        hooks.and_then(Path::parent).is_some_and(|it| self.is_repository(it))
    }
}

/// Returns true for the folders of a repository with its submodules and linked working trees.
fn holds_git_folders(place: &Path) -> bool {
    place.ends_with("modules") || place.ends_with("worktrees")
}

/// Whether this is a file of a linked working tree in a `.git` folder.
fn is_worktree_file(path: &Path, name: &str) -> bool {
    let folder = path.parent().and_then(Path::parent);
    path.ends_with(name) && folder.is_some_and(|it| it.ends_with("worktrees"))
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
        (_, Some(SnapshotEntry::File(new, _))) => {
            let runs = |content: &[u8]| ProtectedPaths::runs_something(path, content);
            read(path, new.length).is_none_or(|content| runs(&content) == Some(true))
        }
        _ => true,
    }
}

/// Whether a list of what a rebase has to do names programs.
fn runs_programs(steps: &[u8]) -> bool {
    let command = |line: &[u8]| {
        line.trim_ascii_start().split(u8::is_ascii_whitespace).next().map(<[u8]>::to_vec)
    };
    steps.split(|it| *it == b'\n').filter_map(command).any(|it| it == b"exec" || it == b"x")
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
    pub(super) fn message(&self, restores: bool) -> String {
        let hint = "Other programs run what is there. If the change is wanted, make it with the file tools, \
                    or call again with the path as \"escalate\"; the user is asked.";
        self.message_about("the command", hint, restores)
    }

    /// The same report about something other than a command.
    pub(super) fn message_about(&self, who: &str, hint: &str, restores: bool) -> String {
        let list = |all: &[String]| {
            let more = all.len().saturating_sub(MAX_NAMED);
            let named: Vec<_> = all.iter().take(MAX_NAMED).map(String::as_str).collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", named.join(", "))
        };
        let mut text = format!("[protected: {who} {}", list(&self.restored));
        if !self.restored.is_empty() {
            text.push_str(if restores {
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
            text.push_str(&format!("{gap}{}: NOT undone", list(&self.not_restored)));
        }
        text.push_str(&format!(". {hint}]"));
        text
    }
}

fn is_folder(entries: &BTreeMap<PathBuf, SnapshotEntry>, path: &Path) -> bool {
    matches!(entries.get(path), Some(SnapshotEntry::Folder))
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use std::fs;

    use super::scan::{MAX_COPIES, MAX_COPY_BYTES, MAX_ENTRIES};
    use super::*;

    struct TestProject {
        _folder: tempfile::TempDir,
        ws: PathBuf,
        quarantine: PathBuf,
    }

    impl TestProject {
        fn new() -> TestProject {
            let folder = tempfile::tempdir().unwrap();
            let base = turnwright_workspace::real_path(folder.path()).unwrap();
            let disk = TestProject {
                _folder: folder,
                ws: base.join("ws"),
                quarantine: base.join("quarantine"),
            };
            fs::create_dir(&disk.ws).unwrap();
            disk
        }

        fn protected(&self) -> ProtectedPaths {
            ProtectedPaths { roots: vec![self.ws.clone()], extra: Vec::new() }
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.ws.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        fn repository(&self) {
            self.file(".git/HEAD", "ref: refs/heads/main\n");
            self.file(".git/config", "[core]\n\tbare = false\n");
            self.file(".git/hooks/pre-commit.sample", "#!/bin/sh\n");
            fs::create_dir_all(self.ws.join(".git/objects")).unwrap();
            fs::create_dir_all(self.ws.join(".git/refs")).unwrap();
        }

        /// All paths with their contents.
        fn all(&self) -> Vec<(PathBuf, Vec<u8>)> {
            let mut all = Vec::new();
            let mut folders = vec![self.ws.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    let path = entry.path();
                    let kind = entry.file_type().unwrap();
                    if kind.is_dir() {
                        all.push((path.clone(), Vec::new()));
                        folders.push(path);
                    } else if kind.is_symlink() {
                        let link = fs::read_link(&path).unwrap();
                        all.push((path, link.into_os_string().into_encoded_bytes()));
                    } else {
                        let bytes = fs::read(&path).unwrap_or_default();
                        all.push((path, bytes));
                    }
                }
            }
            all.sort();
            all
        }
    }

    #[test]
    fn changes_to_protected_paths_are_undone_and_quarantined() {
        type Attack = fn(&TestProject);
        let attacks: &[(&str, Attack)] = &[
            ("created .git/hooks/pre-commit", |it| drop(it.file(".git/hooks/pre-commit", "x"))),
            ("changed .git/config", |it| drop(it.file(".git/config", "[core]\npager = x\n"))),
            ("removed .git/config", |it| fs::remove_file(it.ws.join(".git/config")).unwrap()),
            ("removed .git/config", |it| {
                fs::rename(it.ws.join(".git"), it.ws.join("away")).unwrap();
                fs::create_dir(it.ws.join(".git")).unwrap();
            }),
            ("created .vscode/tasks.json", |it| drop(it.file(".vscode/tasks.json", "{}"))),
            ("created x.code-workspace", |it| drop(it.file("x.code-workspace", "{}"))),
            ("created .git/worktrees/x/commondir", |it| {
                drop(it.file(".git/worktrees/x/commondir", "../../../away\n"));
            }),
            ("created .git/worktrees/x/config.worktree", |it| {
                drop(it.file(".git/worktrees/x/config.worktree", "[core]\nfsmonitor = x\n"));
            }),
            ("created .git/rebase-merge/git-rebase-todo", |it| {
                drop(it.file(".git/rebase-merge/git-rebase-todo", "pick 1234 a\nexec ./x\n"));
            }),
            ("created .husky/a/b", |it| drop(it.file(".husky/a/b", "x"))),
            ("changed .envrc", |it| drop(it.file(".envrc", "echo new"))),
            ("changed .envrc", |it| {
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(it.ws.join(".envrc"), mode).unwrap();
            }),
            ("changed .envrc", |it| {
                fs::remove_file(it.ws.join(".envrc")).unwrap();
                symlink("/etc/passwd", it.ws.join(".envrc")).unwrap();
            }),
            ("changed .envrc", |it| {
                fs::remove_file(it.ws.join(".envrc")).unwrap();
                it.file(".envrc/deep", "x");
            }),
            ("changed .github", |it| {
                fs::remove_dir_all(it.ws.join(".github")).unwrap();
                symlink("/tmp", it.ws.join(".github")).unwrap();
            }),
            ("removed .github/workflows/ci.yml", |it| {
                fs::remove_dir_all(it.ws.join(".github")).unwrap();
            }),
        ];
        for (expected, attack) in attacks {
            let disk = TestProject::new();
            disk.repository();
            disk.file(".envrc", "echo old");
            disk.file(".github/workflows/ci.yml", "on: push");
            let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
            let before = disk.all();
            let mode = || fs::metadata(disk.ws.join(".envrc")).unwrap().permissions().mode();
            let mode_before = mode();
            attack(&disk);
            let changes = snapshot.check(&[], &disk.quarantine, true).expect(expected);
            let text = changes.message(true);
            let (verb, path) = expected.split_once(' ').unwrap();
            let expected = format!("{verb} {}", disk.ws.join(path).display());
            assert!(text.contains(&expected), "{expected}: {text}");
            assert!(changes.not_restored.is_empty(), "{text}");
            let known = |it: &(PathBuf, Vec<u8>)| {
                // What lies in `away` was moved there by the command; and an empty folder has no
                // effect.
                !(it.0.starts_with(disk.ws.join("away")) || it.1.is_empty() && it.0.is_dir())
            };
            let after: Vec<_> = disk.all().into_iter().filter(known).collect();
            for entry in &after {
                assert!(before.contains(entry), "{expected}: {}", entry.0.display());
            }
            for entry in before.iter().filter(|it| !it.1.is_empty() && !it.0.ends_with("HEAD")) {
                assert!(after.contains(entry), "{expected}: {} is gone", entry.0.display());
            }
            assert_eq!(mode(), mode_before);
            assert_eq!(
                snapshot.check(&[], &disk.quarantine, true),
                None,
                "{expected}: not all was undone"
            );
        }
    }

    #[test]
    fn usual_work_is_not_reported() {
        let disk = TestProject::new();
        disk.repository();
        disk.file(".envrc", "echo old");
        let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
        disk.file(".envrc", "echo old");
        disk.file("src/a.rs", "x");
        disk.file(".git/index", "x");
        disk.file(".git/hooks/update.sample", "x");
        disk.file(".vscode/extensions.json", "x");
        disk.file(".git/worktrees/x/commondir", "../..\n");
        disk.file(".git/worktrees/x/config.worktree", "[core]\nsparseCheckout = true\n");
        disk.file(".git/rebase-merge/git-rebase-todo", "pick 1234 exec\n");
        let config =
            "[core]\n\tbare = false\n[branch \"x\"]\n\tremote = .\n\tmerge = refs/heads/y\n";
        disk.file(".git/config", config);
        assert_eq!(snapshot.check(&[], &disk.quarantine, true), None);

        let empty = TestProject::new();
        let snapshot = ProtectedSnapshot::take(&empty.protected(), Arc::default(), None);
        empty.repository();
        assert_eq!(snapshot.check(&[], &empty.quarantine, true), None, "a new repository");
        empty.file(".git/config", "[core]\nfsmonitor = x\n");
        assert!(snapshot.check(&[], &empty.quarantine, true).is_some(), "a new trap");
    }

    #[test]
    fn what_git_would_run_in_another_repository_is_taken_away() {
        let disk = TestProject::new();
        disk.repository();
        let plain = "[core]\n\tbare = false\n";
        let trap = "[core]\n\tfsmonitor = ./x\n";
        let known = disk.file("old/.git/config", plain);
        disk.file(".git/modules/a/config", "[core]\n\tworktree = ../../../a\n");
        let repositories = Arc::new([disk.ws.join("old/.git")].into());
        let snapshot = ProtectedSnapshot::take(&disk.protected(), repositories, None);
        fs::write(&known, trap).unwrap();
        let traps = [
            disk.file(".git/modules/a/hooks/post-checkout", "x"),
            disk.file(".git/modules/b/config", trap),
            disk.file("old/.git/hooks/pre-commit", "x"),
        ];
        let good = disk.file(".git/modules/c/config", "[core]\n\tworktree = ../../../c\n");
        assert!(snapshot.check(&[], &disk.quarantine, true).is_some());
        assert!(traps.iter().all(|it| !it.exists()) && good.exists());
        assert_eq!(fs::read_to_string(known).unwrap(), plain);

        let good = [
            disk.file("new/.git/config", plain),
            disk.file("new/.git/hooks/update.sample", "x"),
            disk.file("bare/config", "[core]\n\tbare = true\n"),
        ];
        let traps = [
            disk.file("trap/.git/config", trap),
            disk.file("link/.git", "gitdir: ../trap/.git\n"),
            disk.file("bare/hooks/post-receive", "x"),
            disk.file("bad/config", trap),
            disk.file("hooked/.git/config", "[core]\n\thooksPath = .githooks\n"),
        ];
        let new = ["new/.git", "trap/.git", "link/.git", "bare", "bad", "hooked/.git"];
        let new = new.map(|it| disk.ws.join(it));
        let snapshot = ProtectedSnapshot::without_repositories(new.into(), None);
        let changes = snapshot.check(&[], &disk.quarantine, true).unwrap();
        assert_eq!(changes.restored.len(), traps.len(), "{changes:?}");
        assert!(traps.iter().all(|it| !it.exists()) && good.iter().all(|it| it.exists()));
    }

    #[test]
    fn many_new_submodules_and_working_trees_do_not_hide_what_happens_in_the_known_ones() {
        let disk = TestProject::new();
        disk.repository();
        disk.file(".git/modules/sub/config", "[core]\n\tworktree = ../../../sub\n");
        disk.file(".git/worktrees/b/commondir", "../..\n");
        let first = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
        for number in 0..3_000 {
            fs::create_dir_all(disk.ws.join(format!(".git/worktrees/{number}"))).unwrap();
            fs::create_dir_all(disk.ws.join(format!(".git/modules/{number}"))).unwrap();
            fs::write(disk.ws.join(format!(".git/modules/{number}/config")), "").unwrap();
        }
        let second = ProtectedSnapshot::take(&disk.protected(), Arc::default(), Some(&first));
        for snapshot in [first, second] {
            let hook = disk.file(".git/modules/sub/hooks/post-checkout", "x");
            let config = disk.file(".git/worktrees/b/config.worktree", "[core]\n\tfsmonitor = x\n");
            let changes = snapshot.check(&[], &disk.quarantine, true).unwrap();
            assert!(!hook.exists() && !config.exists(), "{changes:?}");
            let mut places = vec!["modules", "worktrees"].into_iter();
            assert!(
                places.all(|place| changes
                    .message(true)
                    .contains(&format!(".git/{place} (too many"))),
                "{changes:?}"
            );
        }
    }

    #[test]
    fn the_settings_are_compared_that_a_repository_takes_from_another_folder() {
        let disk = TestProject::new();
        for (path, text) in [("sub/HEAD", "ref: refs/heads/main\n"), ("sub/commondir", "../lib\n")]
        {
            disk.file(path, text);
        }
        let config = disk.file("lib/config", "[core]\n\tbare = false\n");
        let repositories = Arc::new([disk.ws.join("sub")].into());
        let snapshot = ProtectedSnapshot::take(&disk.protected(), repositories, None);
        disk.file("lib/config", "[core]\n\tfsmonitor = x\n");
        let hook = disk.file("lib/hooks/post-checkout", "x");
        assert!(snapshot.check(&[], &disk.quarantine, true).is_some());
        assert!(!hook.exists() && !fs::read_to_string(config).unwrap().contains("fsmonitor"));
    }

    #[test]
    fn more_repositories_than_can_be_checked_are_told() {
        let disk = TestProject::new();
        let new = (0..3_000).map(|it| disk.ws.join(format!("{it}/.git"))).collect();
        let changes = ProtectedSnapshot::without_repositories(new, None);
        let text = changes.check(&[], &disk.quarantine, true).unwrap().message(true);
        assert!(text.contains("too many entries to check"), "{text}");
    }

    #[test]
    fn allowed_changes_stay_and_others_are_undone() {
        let disk = TestProject::new();
        disk.repository();
        let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
        let allowed = disk.file(".git/hooks/pre-commit", "x");
        let other = disk.file(".git/hooks/pre-push", "x");
        let changes =
            snapshot.check(std::slice::from_ref(&allowed), &disk.quarantine, true).unwrap();
        assert_eq!(changes.restored, [format!("created {}", other.display())]);
        assert!(allowed.exists() && !other.exists());
        let kept = fs::read_dir(changes.quarantine.unwrap()).unwrap().count();
        assert_eq!(kept, 1);
    }

    #[test]
    fn changes_beyond_the_copy_limits_are_still_reported() {
        let disk = TestProject::new();
        for number in 0..MAX_COPIES + 10 {
            disk.file(&format!(".claude/{number:03}"), "x");
        }
        let long = "x".repeat(usize::try_from(MAX_COPY_BYTES).unwrap() + 1);
        disk.file(".envrc", &long);
        let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
        assert_eq!(snapshot.check(&[], &disk.quarantine, true), None);
        disk.file(".envrc", "short");
        let changes = snapshot.check(&[], &disk.quarantine, true).unwrap();
        assert_eq!(changes.not_restored.len(), 1, "{changes:?}");
        assert!(disk.ws.join(".envrc").exists(), "what cannot be put back stays");
    }

    /// Where there are no mount namespaces, the comparison is all that holds.
    #[test]
    fn programs_of_environments_are_compared_and_links_to_an_interpreter_may_change() {
        let disk = TestProject::new();
        let file = disk.file("env/pyvenv.cfg", "home = /usr/bin");
        let changed = disk.file("env/bin/activate", "mine");
        let large =
            disk.file("env/bin/ruff", &"x".repeat(usize::try_from(MAX_COPY_BYTES).unwrap() + 1));
        symlink("/bin/sh", disk.ws.join("env/bin/python3")).unwrap();
        let repositories = Arc::new([file].into());
        let snapshot = ProtectedSnapshot::take(&disk.protected(), repositories, None);
        assert_eq!(snapshot.check(&[], &disk.quarantine, true), None);
        fs::write(&changed, "evil").unwrap();
        fs::write(&large, "evil").unwrap();
        let new = disk.file("env/bin/git", "evil");
        symlink("python3", disk.ws.join("env/bin/python")).unwrap();
        symlink("../../src/evil", disk.ws.join("env/bin/python3.9")).unwrap();
        let changes = snapshot.check(&[], &disk.quarantine, true).unwrap();
        assert_eq!(fs::read_to_string(&changed).unwrap(), "mine", "{changes:?}");
        assert!(!new.exists() && !large.exists(), "{changes:?}");
        assert!(fs::symlink_metadata(disk.ws.join("env/bin/python3.9")).is_err());
        assert!(fs::symlink_metadata(disk.ws.join("env/bin/python")).is_ok());
        let allowed = [disk.ws.join("env")];
        disk.file("env/bin/black", "of an installer");
        assert!(snapshot.check(&allowed, &disk.quarantine, true).is_none());
        // A moved environment is no new one, whatever its name.
        fs::remove_file(disk.ws.join("env/bin/black")).unwrap();
        fs::rename(disk.ws.join("env"), disk.ws.join("other")).unwrap();
        let moved = vec![disk.ws.join("other/pyvenv.cfg")];
        let moved = ProtectedSnapshot::without_repositories(moved, Some(Arc::new(snapshot)));
        let changes = moved.check(&[], &disk.quarantine, true);
        let config = disk.ws.join("other/pyvenv.cfg");
        assert!(config.exists(), "{changes:?}");
    }

    #[test]
    fn git_is_restored_even_if_other_folders_exhaust_the_limits() {
        let disk = TestProject::new();
        disk.repository();
        for number in 0..MAX_COPIES + 10 {
            disk.file(&format!(".claude/{number:03}"), "x");
        }
        let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
        let before = disk.all();
        disk.file(".git/config", "[core]\npager = x\n");
        let changes = snapshot.check(&[], &disk.quarantine, true).unwrap();
        assert_eq!((changes.not_restored.as_slice(), disk.all()), ([].as_slice(), before));
        // Too many files in one folder do not hide changes elsewhere.
        for number in 0..MAX_ENTRIES + 10 {
            disk.file(&format!(".agents/{number}"), "");
        }
        let hook = disk.file(".git/hooks/pre-commit", "x");
        let start = disk.file(".zshrc", "x");
        let changes = snapshot.check(&[], &disk.quarantine, true).unwrap();
        assert!(!hook.exists() && !start.exists());
        let left =
            [format!("filled {} (too many entries to check)", disk.ws.join(".agents").display())];
        assert_eq!(changes.not_restored, left);
        // A file that the scan visits only because others were removed is not reported as created.
        for number in 0..500 {
            disk.file(&format!(".agents/more-{number}"), "");
        }
        let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
        for entry in
            snapshot.entries.keys().filter(|it| it.parent().unwrap().ends_with(".agents")).take(5)
        {
            fs::remove_file(entry).unwrap();
        }
        let changes = snapshot.check(&[], &disk.quarantine, true).unwrap();
        assert!(!changes.message(true).contains("created"), "{changes:?}");
    }
}
