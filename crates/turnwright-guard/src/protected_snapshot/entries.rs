//! The entries at the protected paths: scans them, with copies of short files, and restores them. The files that a
//! command has written move to quarantine, and the entries from before are put back. That works through pinned parent
//! folders, so that no link redirects it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::ProtectedSnapshot;
use crate::repository;
use crate::watch::server_watch::change_time;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_types::bounded_read::read_at_most;
use turnwright_types::git_layout::GitLayout;
use turnwright_types::{private_file, text};
use turnwright_workspace::git_repository::GitRepository;
use turnwright_workspace::{FolderNames, nofollow, real_path};

/// Limits on the copies: the number of files, the bytes of each, and the bytes of all.
pub(super) const MAX_COPIES: usize = 1_000;
pub(super) const MAX_COPY_BYTES: u64 = 256 * 1024;
const MAX_TOTAL_BYTES: u64 = 8 * 1024 * 1024;
/// At most this many entries below each protected path are visited.
pub(super) const MAX_ENTRIES: usize = 2_000;
/// At most this many repositories are visited.
const MAX_REPOSITORIES: usize = 2_000;
/// At most this many linked working trees and submodules of one repository are visited, besides known ones.
const MAX_SUBMODULES: usize = 2_000;

/// Metadata that shows that a file has changed, without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) length: u64,
    pub(super) mode: u32,
    inode: u64,
    changed: Option<SystemTime>,
}

/// The entry that was at a path.
#[derive(Clone, Debug)]
pub(super) enum SnapshotEntry {
    Folder,
    Link(PathBuf),
    /// With the content, if it was short enough to keep.
    File(FileStamp, Option<Arc<[u8]>>),
    /// A socket, a device, a FIFO.
    Other,
}

impl SnapshotEntry {
    /// Returns true if the entry cannot be restored.
    pub(super) fn has_no_copy(&self) -> bool {
        matches!(self, SnapshotEntry::File(_, None))
    }
}

/// One scan of all protected paths.
#[derive(Default)]
pub(super) struct ProtectedScan<'a> {
    pub(super) entries: BTreeMap<PathBuf, SnapshotEntry>,
    /// True if the contents of files are kept.
    pub(super) copies_contents: bool,
    /// An earlier snapshot, whose copies of unchanged files are reused.
    pub(super) previous: Option<&'a ProtectedSnapshot>,
    pub(super) copies: usize,
    pub(super) bytes: u64,
    pub(super) overfull: Vec<PathBuf>,
    pub(super) names: FolderNames,
    /// The places that the settings of repositories within the project name, found when the snapshot is taken: a
    /// setting that is new later must not make a trap of what was there.
    pub(super) named: BTreeSet<PathBuf>,
}

impl ProtectedScan<'_> {
    pub(super) fn scan_all(
        &mut self,
        protected: &ProtectedPaths,
        repositories: &BTreeSet<PathBuf>,
    ) {
        let mut workspaces = Vec::new();
        for root in protected.roots() {
            let paths = self.names.list(root).into_iter().map(|name| root.join(name));
            workspaces.extend(paths.filter(|path| ProtectedPaths::is_workspace_file(path)));
        }
        for place in protected.paths() {
            self.scan_path(place);
        }
        for path in workspaces {
            self.scan_existing(&path);
        }
        let roots = protected.roots().iter().flat_map(|root| {
            // The folder of a repository that lies elsewhere is a root itself.
            let is_git =
                self.names.may_exist(&root.join("HEAD")) && GitLayout::of(root).is_repository();
            is_git.then(|| root.clone()).into_iter().chain([root.join(".git")])
        });
        let all: BTreeSet<_> = repositories.iter().cloned().chain(roots).collect();
        let repositories = ProtectedPaths::git_first(all.into_iter().collect());
        let watched = repositories.iter().take(MAX_REPOSITORIES);
        for git in watched.clone().filter(|path| !is_in_environment(path)) {
            self.scan_repository(git);
            self.scan_target(git, protected);
            if self.copies_contents {
                self.note_named(git, protected);
            }
        }
        self.overfull.extend(repositories.get(MAX_REPOSITORIES).cloned());
        for place in protected.leaf_paths() {
            self.scan_below(place);
        }
        for place in &self.named.clone() {
            self.scan_path(place);
            self.scan_below(place);
        }
        for path in watched.filter(|path| is_in_environment(path)) {
            self.scan_environment(path);
        }
    }

    /// Records a file of a virtual environment of Python, and with the file that makes it one its programs.
    fn scan_environment(&mut self, path: &Path) {
        self.scan_path(path);
        if ProtectedPaths::is_environment_file(path)
            && let Some(environment) = path.parent()
        {
            for folder in ProtectedPaths::environment_programs(environment) {
                self.scan_below(&folder);
            }
        }
    }

    /// Records the settings that decide what git runs in a repository and its submodules.
    fn scan_repository(&mut self, git: &Path) {
        if !self.scan_path(git) && !git.ends_with(".git") {
            // A file in a subfolder that programs obey.
            return;
        }
        // A new one shares the folder of another repository, which is known or looked at on its own.
        let shared = repository::shared_folder(git)
            .filter(|folder| self.copies_contents || self.entries.contains_key(folder));
        for folder in [git.to_owned()].into_iter().chain(shared) {
            self.scan_path(&folder);
            self.scan_git_parts(&folder);
        }
        self.scan_submodules(git);
        let trees = git.join("worktrees");
        let mut folders = self.known_folders(&trees, "commondir");
        let mut entries = fs::read_dir(&trees).into_iter().flatten().flatten();
        folders.extend(entries.by_ref().take(MAX_SUBMODULES).map(|entry| entry.path()));
        if entries.next().is_some() {
            self.note_overfull(trees);
        }
        for folder in folders {
            for name in ["commondir", "config.worktree", "rebase-merge/git-rebase-todo"] {
                self.scan_path(&folder.join(name));
            }
            self.scan_submodules(&folder);
        }
    }

    /// Records the same for the submodules of a repository, or those that a linked working tree has for itself.
    fn scan_submodules(&mut self, git: &Path) {
        let modules = git.join("modules");
        if !self.names.may_exist(&modules) {
            return;
        }
        let (configs, are_all) = repository::submodule_configs(&modules, MAX_SUBMODULES);
        let mut folders = self.known_folders(&modules, "config");
        folders.extend(configs.iter().filter_map(|config| config.parent()).map(Path::to_owned));
        for folder in &folders {
            self.scan_path(folder);
            self.scan_git_parts(folder);
        }
        if !are_all {
            self.note_overfull(modules);
        }
    }

    /// Records the same at the target of a `.git` file, if commands may write there. It is not known who has made the
    /// target of a new one.
    fn scan_target(&mut self, git: &Path, protected: &ProtectedPaths) {
        if !git.ends_with(".git") || !matches!(self.entries.get(git), Some(SnapshotEntry::File(..)))
        {
            return;
        }
        let found = git.parent().and_then(|top| GitRepository::at(top).ok().flatten());
        for folder in found.map(GitRepository::settings_folders).unwrap_or_default() {
            let is_known = self.copies_contents
                || ["config", "commondir"]
                    .iter()
                    .any(|name| self.entries.contains_key(&folder.join(name)));
            if is_known && protected.roots().iter().any(|root| folder.starts_with(root)) {
                self.scan_git_parts(&folder);
            }
        }
    }

    /// Notes the places in the project that the settings of a repository within it name. Those that a session's folder
    /// itself obeys are among the protected paths.
    fn note_named(&mut self, git: &Path, protected: &ProtectedPaths) {
        let roots = protected.roots();
        let Some(top) = git.parent().filter(|_| git.ends_with(".git")) else { return };
        if roots.iter().any(|root| top == root) || !roots.iter().any(|root| top.starts_with(root)) {
            return;
        }
        let Ok(Some(found)) = GitRepository::at(top) else { return };
        let named = repository::named_paths(&found, &[], None).into_iter().filter(|(key, path)| {
            key != "core.attributesfile"
                && roots.iter().any(|root| path.starts_with(root))
                && !top.starts_with(path)
                && !ProtectedPaths::git_parts(git).any(|part| path.starts_with(part))
                && !protected.leaf_paths().iter().any(|leaf| path.starts_with(leaf))
        });
        self.named.extend(named.map(|(_, path)| path));
    }

    fn scan_git_parts(&mut self, folder: &Path) {
        for place in ProtectedPaths::git_parts(folder) {
            self.scan_path(&place);
            self.scan_below(&place);
        }
        self.scan_path(&folder.join("rebase-merge/git-rebase-todo"));
    }

    /// The folders below a place in which a file with this name was found before.
    fn known_folders(&self, place: &Path, name: &str) -> BTreeSet<PathBuf> {
        let previous = self.previous.map(|snapshot| &snapshot.entries);
        let all = [Some(&self.entries), previous].into_iter().flatten();
        let below = all.flat_map(|entries| {
            let from_place = entries.range(place.to_owned()..).map(|entry| entry.0);
            from_place.take_while(|path| path.starts_with(place))
        });
        let named = below.filter(|path| path.ends_with(name));
        named.filter_map(|path| path.parent()).map(Path::to_owned).collect()
    }

    fn note_overfull(&mut self, place: PathBuf) {
        tracing::warn!(?place, "too many protected files to watch all of them");
        self.overfull.push(place);
    }

    fn scan_below(&mut self, place: &Path) {
        let mut left = MAX_ENTRIES;
        self.below(place, &mut left);
        if left == 0 {
            self.note_overfull(place.to_owned());
        }
    }

    /// Records the entry at one path. Returns true if it is a folder.
    pub(super) fn scan_path(&mut self, path: &Path) -> bool {
        self.names.may_exist(path) && self.scan_existing(path)
    }

    fn scan_existing(&mut self, path: &Path) -> bool {
        if let Some(entry) = self.entries.get(path) {
            return matches!(entry, SnapshotEntry::Folder);
        }
        let Ok(metadata) = fs::symlink_metadata(path) else { return false };
        let kind = metadata.file_type();
        let entry = if kind.is_dir() {
            SnapshotEntry::Folder
        } else if kind.is_symlink() {
            SnapshotEntry::Link(fs::read_link(path).unwrap_or_default())
        } else if kind.is_file() {
            let stamp = stamp(&metadata);
            let content = self.content(path, &stamp);
            SnapshotEntry::File(stamp, content)
        } else {
            SnapshotEntry::Other
        };
        self.entries.insert(path.to_path_buf(), entry);
        kind.is_dir()
    }

    fn below(&mut self, folder: &Path, left: &mut usize) {
        if !self.names.may_exist(folder)
            || !fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir())
        {
            return;
        }
        let Ok(entries) = fs::read_dir(folder) else { return };
        // The folder is closed before the next one is opened, because folders may be nested very
        // deep.
        let paths: Vec<_> = entries.flatten().take(*left).map(|entry| entry.path()).collect();
        *left -= paths.len();
        for path in paths {
            if self.scan_existing(&path) {
                self.below(&path, left);
            }
        }
    }

    fn content(&mut self, path: &Path, stamp: &FileStamp) -> Option<Arc<[u8]>> {
        let has_room = self.copies < MAX_COPIES && self.bytes + stamp.length <= MAX_TOTAL_BYTES;
        if !self.copies_contents || !has_room || stamp.length > MAX_COPY_BYTES {
            return None;
        }
        self.copies += 1;
        self.bytes += stamp.length;
        match self.previous.and_then(|snapshot| snapshot.entries.get(path)) {
            Some(SnapshotEntry::File(known, Some(content))) if known == stamp => {
                Some(Arc::clone(content))
            }
            _ => read(path, stamp.length),
        }
    }
}

fn is_in_environment(path: &Path) -> bool {
    ProtectedPaths::environment_of(path).is_some()
}

/// The whole content of a file; `None` if its length is not `length` any more.
pub(super) fn read(path: &Path, length: u64) -> Option<Arc<[u8]>> {
    if length > MAX_COPY_BYTES {
        return None;
    }
    // A parent folder may be a link of the user's. Following it is harmless: the content is only
    // compared and put back.
    let file = nofollow::open_file(&real_path(path).ok()?).ok()?;
    let bytes = read_at_most(file, length).ok()??;
    (bytes.len() as u64 == length).then(|| bytes.into())
}

#[cfg(unix)]
fn stamp(metadata: &Metadata) -> FileStamp {
    use std::os::unix::fs::MetadataExt;
    FileStamp {
        length: metadata.len(),
        mode: metadata.mode(),
        inode: metadata.ino(),
        changed: change_time(metadata),
    }
}

#[cfg(not(unix))]
fn stamp(metadata: &Metadata) -> FileStamp {
    let mode = u32::from(metadata.permissions().readonly());
    FileStamp { length: metadata.len(), mode, inode: 0, changed: change_time(metadata) }
}

/// At most this many bytes of each quarantined file are kept.
const MAX_QUARANTINED_BYTES: u64 = 16 * 1024 * 1024;

/// Of a longer name, the end is a part of the name in the quarantine.
const MAX_NAME_CHARS: usize = 50;

/// The folder that keeps the files that a command has written.
pub(super) struct Quarantine {
    folder: PathBuf,
    count: usize,
}

impl Quarantine {
    pub(super) fn new(quarantine: &Path) -> Quarantine {
        Quarantine { folder: quarantine.to_path_buf(), count: 0 }
    }

    /// The folder, if anything was put into it.
    pub(super) fn into_folder(self) -> Option<PathBuf> {
        (self.count > 0).then_some(self.folder)
    }

    /// Removes the entry at a path, after copying a file into the quarantine. A folder is removed
    /// only if it is empty, so its entries must be handled first.
    pub(super) fn quarantine_path(&mut self, path: &Path) -> io::Result<()> {
        let (_held, path) = pin_parent(path)?;
        let kind = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if kind.is_dir() {
            // A folder with unprotected entries stays.
            return match fs::remove_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
                done => done,
            };
        }
        let kept = if kind.is_file() { self.keep(&path) } else { Ok(()) };
        fs::remove_file(&path)?;
        // Nothing that can be run is left in any case.
        kept.map_err(|error| io::Error::new(error.kind(), "it is gone, but no copy could be kept"))
    }

    fn keep(&mut self, path: &Path) -> io::Result<()> {
        let mut from = nofollow::open_pinned_file(path, false)?;
        private_file::create_folder(&self.folder)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let end = text::last_chars(&name, MAX_NAME_CHARS);
        loop {
            self.count += 1;
            let target = self.folder.join(format!("{}-{end}", self.count));
            match File::create_new(target) {
                Ok(mut to) => {
                    let mut part = Read::take(&mut from, MAX_QUARANTINED_BYTES);
                    return io::copy(&mut part, &mut to).map(drop);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Restores the entry that was at a path. Nothing else must be there, except for a folder that was there
/// before.
pub(super) fn put_back(path: &Path, before: &SnapshotEntry) -> io::Result<()> {
    let (_held, path) = pin_parent(path)?;
    let is_there = fs::symlink_metadata(&path).is_ok();
    match before {
        SnapshotEntry::Folder if is_there => Ok(()),
        SnapshotEntry::Folder => fs::create_dir(&path),
        _ if is_there => Err(io::ErrorKind::AlreadyExists.into()),
        SnapshotEntry::Link(target) => nofollow::create_link(target, &path),
        SnapshotEntry::File(stamp, Some(content)) => {
            let mut file = File::create_new(&path)?;
            file.write_all(content)?;
            nofollow::set_permission_bits(&file, stamp.mode)
        }
        SnapshotEntry::File(_, None) => Err(io::Error::other("it was too long to be copied")),
        SnapshotEntry::Other => Err(io::Error::other("it was no file")),
    }
}

/// The path through its pinned folder, and the handle that pins it.
fn pin_parent(path: &Path) -> io::Result<nofollow::HeldPath> {
    let (held, path) = nofollow::hold_entry(path, nofollow::open_folder)?;
    path.parent().into_iter().for_each(make_changeable);
    Ok((held, path))
}

/// Gives the owner of a folder the right to change it, which a command may have taken away.
#[cfg(unix)]
fn make_changeable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(metadata) = fs::metadata(folder) else { return };
    let mode = metadata.permissions().mode();
    if mode & 0o700 != 0o700 {
        let all = fs::Permissions::from_mode(mode | 0o700);
        fs::set_permissions(folder, all).ok();
    }
}

#[cfg(not(unix))]
fn make_changeable(_: &Path) {}
