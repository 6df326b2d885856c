//! Keeps the history of the session's git repositories, so that no command loses it: a second name (hard link) of each
//! file with commits, contents and branches lies in the agent's own folder. What a command has deleted is put back at
//! its end, before the changes of the command are determined, or, if the agent was killed, before the next one. Losses
//! are found by comparison with the kept files: folders, packs, branches, or the commits that the branches name.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::restricted_files::{FolderStamp, TIMESTAMP_AGE, folder_stamp};
use crate::watch::RunningMark;
use turnwright_types::hash::parse_hex;
use turnwright_types::private_file::{self, FileLock};
use turnwright_workspace::checkpoint::pack_index_lists;
use turnwright_workspace::files::read_head;
use turnwright_workspace::nofollow;

/// The parts of a repository that are kept, the smallest last: these are kept first.
const OBJECTS: &str = "objects";
const BRANCHES: &str = "refs/heads";
const LOGS: &str = "logs";
const FOLDERS: [&str; 5] = [OBJECTS, LOGS, "reftable", "refs", ""];
const FILES: [&str; 3] = ["HEAD", "packed-refs", "index"];
/// At most this many names are given for one command. The rest follows before the next one.
const MAX_NAMES: usize = 50_000;
/// At most this many folders of a repository are looked at, and none that is deeper.
const MAX_FOLDERS: usize = 10_000;
const MAX_DEPTH: usize = 32;
/// Files of another file system are copied, up to this many bytes in a session.
const MAX_COPIED: u64 = 64 * 1024 * 1024;

/// Who has deleted the files that are put back, in reports.
const BY_COMMAND: &str = "the command had deleted";
const BEFORE_COMMAND: &str = "before this command began, another program had deleted";
/// The end of the name of a file that marks a command whose deletions may not have been undone.
const UNFINISHED: &str = ".unfinished";
/// A path is not longer.
const MAX_PATH_BYTES: u64 = 16 * 1024;

/// The folders whose files a session has kept.
#[derive(Debug, Default)]
pub(crate) struct HistoryKeeper {
    folders: HashMap<PathBuf, KeptFolder>,
    copied: u64,
    /// How many more files may be kept before this command.
    names_left: usize,
    /// The repositories that cannot be kept, as the user was told.
    told: HashSet<PathBuf>,
}

/// A folder of a repository when its files were kept.
#[derive(Clone, Debug)]
struct KeptFolder {
    /// `None` if it has just changed.
    stamp: Option<FolderStamp>,
    subfolders: Vec<OsString>,
}

/// The number of a folder, and when it was made: a new folder may get the number of a deleted one.
type FolderIdentity = (u64, Option<SystemTime>);

/// The repositories whose history was kept before a command, which counts as running until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct KeptHistory {
    repositories: Vec<KeptRepository>,
    /// The command may delete old objects.
    may_prune: bool,
    /// The mark of the command, if one could be made. It prevents other agents from forgetting this history.
    mark: Option<RunningMark>,
    /// Reports about what was missing before the command.
    found_before: Vec<String>,
    /// The repositories that can only be kept in part, once in a session.
    pub(crate) incomplete: Vec<PathBuf>,
}

#[derive(Debug)]
struct KeptRepository {
    git: PathBuf,
    kept: PathBuf,
    /// The folder that it is in, if known.
    folder: Option<FolderIdentity>,
    /// The folders with files, relative to it.
    folders: BTreeMap<PathBuf, Option<FolderStamp>>,
}

impl HistoryKeeper {
    /// Keeps the history of repositories before a command, in a folder of our own. Files that are gone since the last
    /// command are forgotten only if no other command is running that may have deleted them. Blocks.
    pub(crate) fn keep(
        &mut self,
        repositories: Vec<PathBuf>,
        place: &Path,
        (may_prune, is_alone): (bool, bool),
        mark: Option<RunningMark>,
    ) -> KeptHistory {
        let mut history = KeptHistory { may_prune, mark, ..KeptHistory::default() };
        // Two agents must not keep at the same time: one may need what the other deletes here.
        let lock = FileLock::acquire(&place.join("lock"));
        let is_locked = lock.as_ref().is_ok_and(FileLock::is_held);
        let is_alone = is_alone && is_locked && history.is_of_only_command();
        if is_alone {
            history.found_before = unfinished(place)
                .iter()
                .filter_map(|repository| repository.repair(false, BEFORE_COMMAND))
                .collect();
        }
        self.names_left = MAX_NAMES;
        for git in repositories {
            let mut repository = KeptRepository::new(git, place);
            repository.folder = repository.git.parent().and_then(identity);
            if is_alone && !repository.is_made_anew() {
                history.found_before.extend(repository.repair(true, BEFORE_COMMAND));
            }
            let is_whole = repository.keep_all(self, is_alone);
            if !is_whole && self.told.insert(repository.git.clone()) {
                history.incomplete.push(repository.git.clone());
            }
            let path = repository.git.as_os_str().as_encoded_bytes();
            if let Err(error) = private_file::write(&repository.unfinished_mark(), path) {
                tracing::debug!(%error, "the beginning of a command cannot be noted");
            }
            history.repositories.push(repository);
        }
        history
    }

    fn add_name(&mut self, from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // It has gone meanwhile, as git's files do.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(_) if self.copied + metadata.len() <= MAX_COPIED => {
                self.copied += metadata.len();
                // A link that has taken its place meanwhile is not followed.
                let file = nofollow::open_pinned_file(from, false)?;
                let mut copy = File::create_new(to)?;
                io::copy(&mut file.take(metadata.len()), &mut copy).map(drop)
            }
            result => result,
        }
    }
}

impl KeptHistory {
    /// Puts back what the command has deleted. Returns a report if that mattered. Blocks.
    pub(crate) fn put_back(&self) -> Option<String> {
        let mut reports: BTreeSet<String> = self.found_before.iter().cloned().collect();
        let is_only = self.is_of_only_command();
        for repository in &self.repositories {
            reports.extend(repository.repair(self.may_prune, BY_COMMAND));
            if is_only {
                fs::remove_file(repository.unfinished_mark()).ok();
            }
        }
        (!reports.is_empty()).then(|| reports.into_iter().collect::<Vec<_>>().join("\n"))
    }

    /// Returns true if no other command runs that may have deleted something.
    fn is_of_only_command(&self) -> bool {
        self.mark.as_ref().is_some_and(RunningMark::is_only)
    }
}

impl KeptRepository {
    fn new(git: PathBuf, place: &Path) -> KeptRepository {
        let kept = turnwright_sandbox::place_for(&git, place);
        KeptRepository { kept, git, folder: None, folders: BTreeMap::new() }
    }

    fn unfinished_mark(&self) -> PathBuf {
        let mut name = self.kept.clone().into_os_string();
        name.push(UNFINISHED);
        PathBuf::from(name)
    }

    /// Returns true if the user seems to have begun another repository in the same place.
    fn is_made_anew(&self) -> bool {
        self.has_same("HEAD") == Some(false) && self.has_same("logs/HEAD") != Some(true)
    }

    /// Returns true if the kept file is the one in the repository; `None` if one of them is missing.
    fn has_same(&self, file: &str) -> Option<bool> {
        let kept = fs::symlink_metadata(self.kept.join(file)).ok()?;
        let now = fs::symlink_metadata(self.git.join(file)).ok()?;
        Some(is_same_file(&kept, &now))
    }

    /// Returns true if the folder that it is in was deleted, moved or made anew, as for another clone.
    fn is_gone_with_folder(&self) -> bool {
        let now = self.git.parent().and_then(identity);
        let is_other = self.folder.is_some() && now != self.folder;
        self.git.ends_with(".git") && (now.is_none() || is_other)
    }

    /// Puts back what is missing. Objects may have been deleted for a reason with `may_prune`, as long as the history is
    /// there. Returns a report if that mattered.
    fn repair(&self, may_prune: bool, who: &str) -> Option<String> {
        if self.is_gone_with_folder() {
            return None;
        }
        let is_lost = lost_part(&self.kept, &self.git).is_some();
        let branches = if is_lost { Vec::new() } else { self.lost_branches() };
        let result = self.put_back(&|folder| {
            is_lost
                || folder.starts_with(OBJECTS) && !may_prune
                || folder.starts_with(LOGS) && !branches.is_empty()
        });
        let branches_result = branches.iter().try_for_each(|file| self.put_back_file(file));
        let lost = if is_lost { lost_part(&self.kept, &self.git) } else { None };
        let error = result.and(branches_result).err().map(|error| error.to_string());
        if let Some(failure) = lost.map(str::to_owned).or(error) {
            return Some(format!(
                "[history: {who} parts of the repository, which could not be put back: {failure}]"
            ));
        }
        if is_lost {
            return Some(format!(
                "[history: {who} what git needs of the repository. It is there again.]"
            ));
        }
        let names: Vec<_> = branches.iter().map(|file| file.to_string_lossy()).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("[history: {who} branches without git. They are there again: {names}.]")
        })
    }

    /// The files of branches, stashes and the like that something other than git has deleted: git deletes the log of
    /// each with it, but never the log of `HEAD`.
    fn lost_branches(&self) -> Vec<PathBuf> {
        let mut lost = Vec::new();
        if self.git.join("reftable").is_dir() {
            return lost;
        }
        let has_lost_log = has_log(&self.kept) && !has_log(&self.git);
        let packed = PathBuf::from("packed-refs");
        if self.kept.join(&packed).is_file() && !self.git.join(&packed).exists() {
            lost.push(packed);
        }
        let mut gone = Vec::new();
        each_file(&self.kept.join("refs"), &mut |path| {
            let name = path.strip_prefix(&self.kept).unwrap_or(path);
            if !self.git.join(name).exists()
                && (has_lost_log || self.git.join(LOGS).join(name).is_file())
            {
                gone.push(name.to_owned());
            }
            true
        });
        if gone.is_empty() {
            return lost;
        }
        let list = packed_branches(&self.git);
        let is_old_list = list == packed_branches(&self.kept);
        lost.extend(gone.into_iter().filter(|name| {
            let suffix = format!(" {}", name.to_string_lossy());
            // Git has moved it there, unless the list is as old as the file.
            let now = list.lines().find_map(|line| line.strip_suffix(&suffix));
            let kept = commit_in(&self.kept.join(name));
            now.is_none_or(|now| is_old_list && kept.is_some_and(|kept| kept != now))
        }));
        lost
    }

    /// Keeps all that can be kept. Returns false if something cannot.
    fn keep_all(&mut self, known: &mut HistoryKeeper, is_alone: bool) -> bool {
        let mut is_whole = true;
        let mut pending: Vec<_> = FOLDERS.iter().map(PathBuf::from).collect();
        while let Some(folder) = pending.pop().filter(|_| self.folders.len() < MAX_FOLDERS) {
            let source = self.git.join(&folder);
            let stamp = folder_stamp(&source, TIMESTAMP_AGE);
            let same =
                known.folders.get(&source).filter(|kept| stamp.is_some() && kept.stamp == stamp);
            let subfolders = match same {
                Some(same) => same.subfolders.clone(),
                None => {
                    let mut subfolders = Vec::new();
                    let kept = self.keep_folder(&folder, &mut subfolders, known, is_alone);
                    if let Err(error) = &kept {
                        tracing::warn!(%error, ?folder, "a part of the history cannot be kept");
                        is_whole = false;
                    }
                    // A folder that is kept only in part is listed again.
                    let stamp = stamp.filter(|_| known.names_left > 0 && kept.is_ok());
                    let found = KeptFolder { stamp, subfolders: subfolders.clone() };
                    known.folders.insert(source, found);
                    subfolders
                }
            };
            if folder.iter().count() < MAX_DEPTH {
                pending.extend(subfolders.iter().map(|name| folder.join(name)));
            }
            self.folders.insert(folder, stamp);
        }
        is_whole
    }

    /// Keeps the files of one folder, and notes the folders in it. Returns the last error: the files after it are kept,
    /// too.
    fn keep_folder(
        &self,
        folder: &Path,
        subfolders: &mut Vec<OsString>,
        known: &mut HistoryKeeper,
        is_alone: bool,
    ) -> io::Result<()> {
        let kept = self.kept.join(folder);
        let is_top = folder == Path::new("");
        let (_held, source) = match nofollow::open_folder(&self.git.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if is_alone && kept.exists() {
                    fs::remove_dir_all(kept)?;
                }
                return Ok(());
            }
            opened => opened?,
        };
        private_file::create_folder(&kept)?;
        let mut names = entries(&kept)?;
        let mut result = Ok(());
        let mut found: Vec<_> = entries(&source)?.into_iter().collect();
        // A large file must not take the place of many small ones.
        found.sort_by_key(|(_, metadata)| metadata.len());
        for (name, metadata) in found {
            let is_unwanted =
                if is_top { FILES.iter().all(|file| name != *file) } else { is_temporary(&name) };
            if is_unwanted {
                continue;
            }
            let mut old = names.remove(&name);
            if let Some(other) = old.take_if(|old| old.is_dir() != metadata.is_dir()) {
                // A branch `a` has made place for `a/b`, or the other way round.
                if !is_alone {
                    continue;
                }
                remove(&kept.join(&name), &other)?;
            }
            if metadata.is_dir() {
                subfolders.push(name);
                continue;
            }
            let is_kept = old.as_ref().is_some_and(|old| is_same_file(old, &metadata));
            if is_kept || !metadata.is_file() || known.names_left == 0 {
                continue;
            }
            known.names_left -= 1;
            let to = kept.join(&name);
            let cleared = if old.is_some() { fs::remove_file(&to) } else { Ok(()) };
            let added = cleared.and_then(|()| known.add_name(&source.join(&name), &to, &metadata));
            result = added.and(result);
        }
        if is_alone {
            self.forget(folder, names)?;
        }
        result
    }

    /// Deletes what is gone from a folder of the repository.
    fn forget(&self, folder: &Path, gone: HashMap<OsString, Metadata>) -> io::Result<()> {
        for (name, metadata) in gone {
            // In the top folder, the folders in `FOLDERS` are judged on their own.
            if folder != Path::new("") || !metadata.is_dir() {
                remove(&self.kept.join(folder).join(name), &metadata)?;
            }
        }
        Ok(())
    }

    /// Puts back what is missing in the folders that `is_wanted`. Returns the last error.
    fn put_back(&self, is_wanted: &dyn Fn(&Path) -> bool) -> io::Result<()> {
        let mut result = Ok(());
        for folder in self.kept_folders().iter().filter(|folder| is_wanted(folder)) {
            let before = self.folders.get(folder).copied().flatten();
            let now = folder_stamp(&self.git.join(folder), TIMESTAMP_AGE);
            if before.is_none() || before != now {
                result = self.put_back_in(folder).and(result);
            }
        }
        result
    }

    /// The folders that were kept just now, or else by an earlier session.
    fn kept_folders(&self) -> Vec<PathBuf> {
        if !self.folders.is_empty() {
            return self.folders.keys().cloned().collect();
        }
        let mut found: Vec<_> = FOLDERS.iter().map(PathBuf::from).collect();
        let mut next = 0;
        while next < found.len().min(MAX_FOLDERS) {
            let folder = found[next].clone();
            next += 1;
            // In the top folder, `FOLDERS` has all of them.
            if folder != Path::new("") {
                let kept = entries(&self.kept.join(&folder)).unwrap_or_default();
                let folders = kept.into_iter().filter(|(_, metadata)| metadata.is_dir());
                found.extend(folders.map(|(name, _)| folder.join(name)));
            }
        }
        found
    }

    fn put_back_file(&self, file: &Path) -> io::Result<()> {
        let (_held, target) = nofollow::hold_entry(&self.git.join(file), nofollow::create_folder)?;
        link_or_copy(&self.kept.join(file), &target)
    }

    fn put_back_in(&self, folder: &Path) -> io::Result<()> {
        let kept = self.kept.join(folder);
        if !kept.exists() {
            return Ok(());
        }
        let (_held, target) = nofollow::create_folder(&self.git.join(folder))?;
        let there = entries(&target)?;
        let missing = entries(&kept)?.into_iter().filter(|(name, _)| !there.contains_key(name));
        let mut result = Ok(());
        for (name, _) in missing.filter(|(_, metadata)| metadata.is_file()) {
            result = link_or_copy(&kept.join(&name), &target.join(&name)).and(result);
        }
        result
    }
}

fn identity(folder: &Path) -> Option<FolderIdentity> {
    let found = fs::symlink_metadata(folder).ok()?;
    #[cfg(unix)]
    let number = found.ino();
    #[cfg(not(unix))]
    let number = 0;
    Some((number, found.created().ok()))
}

/// Returns true if git has not finished the file, or uses it as a lock.
fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"tmp_") || name.ends_with(b".lock")
}

fn remove(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// The repositories in which a command began whose end nobody has seen.
fn unfinished(place: &Path) -> Vec<KeptRepository> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let marks = entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(UNFINISHED));
    let paths = marks.filter_map(|mark| private_file::read(&mark, MAX_PATH_BYTES).ok());
    paths.map(|git| KeptRepository::new(PathBuf::from(git), place)).collect()
}

fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
}

/// Returns true if both are the same file, or one is a copy of the other.
#[cfg(unix)]
fn is_same_file(kept: &Metadata, now: &Metadata) -> bool {
    let is_copy = kept.dev() != now.dev() && kept.len() == now.len() && kept.mtime() >= now.mtime();
    (kept.dev(), kept.ino()) == (now.dev(), now.ino()) || is_copy
}

#[cfg(not(unix))]
fn is_same_file(kept: &Metadata, now: &Metadata) -> bool {
    kept.len() == now.len() && kept.modified().ok() >= now.modified().ok()
}

/// The entries of a folder, without following links.
fn entries(folder: &Path) -> io::Result<HashMap<OsString, Metadata>> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            metadata => {
                found.insert(entry.file_name(), metadata?);
            }
        }
    }
    Ok(found)
}

/// At most this many branches are looked at.
const MAX_TIPS: usize = 32;
/// Lists of branches are read up to here.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
const MAX_NAME_BYTES: usize = 256;

/// Returns a part that `kept` has and `git` no longer has, and without which git would not take the folder for a
/// repository or not find its commits.
fn lost_part(kept: &Path, git: &Path) -> Option<&'static str> {
    let is_lost = |has: fn(&Path) -> bool| has(kept) && !has(git);
    // Git itself removes the last branch with its log, but never the log of `HEAD`.
    let has_lost_branches = is_lost(has_branch) && is_lost(has_log);
    let parts = [
        ("HEAD", is_lost(|git| git.join("HEAD").is_file())),
        ("refs", is_lost(|git| git.join("refs").is_dir())),
        ("branches", has_lost_branches),
        ("objects", is_lost(|git| has_file(&git.join(OBJECTS), ""))),
        ("packs", is_lost(|git| has_file(&git.join("objects/pack"), ".pack"))),
        ("the list of branches", is_lost(|git| git.join("reftable/tables.list").is_file())),
        ("lists of branches", lacks_table(kept, git)),
        ("commits", lacks_commit(kept, git)),
    ];
    parts.into_iter().find_map(|(part, is_lost)| is_lost.then_some(part))
}

/// Returns true if the log of `HEAD` is there, which git never deletes.
fn has_log(git: &Path) -> bool {
    git.join("logs/HEAD").is_file()
}

/// The names and commits in `packed-refs`.
fn packed_branches(git: &Path) -> String {
    read_head(&git.join("packed-refs"), None, MAX_LIST_BYTES)
        .map_or_else(String::new, |head| head.text)
}

/// The commit that the file of a branch names.
fn commit_in(branch: &Path) -> Option<String> {
    read_head(branch, None, MAX_NAME_BYTES).map(|head| head.text.trim().to_owned())
}

fn has_branch(git: &Path) -> bool {
    let is_packed = packed_branches(git).lines().any(|line| line.contains(" refs/heads/"));
    is_packed || has_file(&git.join(BRANCHES), "")
}

/// Returns true if there is a file with this ending in a folder or in the folders in it.
fn has_file(folder: &Path, ending: &str) -> bool {
    let mut has_found = false;
    each_file(folder, &mut |path| {
        has_found = path.to_string_lossy().ends_with(ending);
        !has_found
    });
    has_found
}

/// Goes through the files in a folder and the folders in it, until `goes_on` returns false.
fn each_file(folder: &Path, goes_on: &mut dyn FnMut(&Path) -> bool) {
    let mut pending = vec![folder.to_path_buf()];
    let mut left = MAX_FOLDERS;
    while let Some(folder) = pending.pop().filter(|_| left > 0) {
        left -= 1;
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                Ok(kind) if kind.is_file() && !goes_on(&entry.path()) => return,
                _ => {}
            }
        }
    }
}

/// Returns true if a table that the list of them names is gone.
fn lacks_table(kept: &Path, git: &Path) -> bool {
    let path = git.join("reftable/tables.list");
    let list = read_head(&path, None, MAX_LIST_BYTES).map_or_else(String::new, |head| head.text);
    let mut tables = list.lines().map(|name| Path::new("reftable").join(name.trim()));
    tables.any(|table| kept.join(&table).is_file() && !git.join(&table).is_file())
}

/// Returns true if a branch of `git`, or its `HEAD`, names a commit that only `kept` has.
fn lacks_commit(kept: &Path, git: &Path) -> bool {
    let mut names: Vec<String> = Vec::new();
    names.extend(commit_in(&git.join("HEAD")));
    each_file(&git.join(BRANCHES), &mut |path| {
        names.extend(commit_in(path));
        names.len() < MAX_TIPS
    });
    let list = packed_branches(git);
    let packed = list.lines().filter_map(|line| line.split_once(" refs/heads/"));
    names.extend(packed.take(MAX_TIPS).map(|(name, _)| name.to_owned()));
    names.iter().any(|name| !has_object(git, name) && has_object(kept, name))
}

/// Returns true if a repository has the object of this name itself.
fn has_object(git: &Path, name: &str) -> bool {
    if !matches!(name.len(), 40 | 64) || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return false;
    }
    let objects = git.join(OBJECTS);
    if objects.join(&name[..2]).join(&name[2..]).is_file() {
        return true;
    }
    let Some(id) = parse_hex(name) else { return false };
    let packs = fs::read_dir(objects.join("pack")).into_iter().flatten().flatten();
    packs.map(|entry| entry.path()).any(|path| {
        path.extension().is_some_and(|extension| extension == "idx")
            && path.with_extension("pack").is_file()
            && File::open(&path).is_ok_and(|index| pack_index_lists(&index, &id))
    })
}

#[cfg(test)]
mod tests;
