//! Keeps the history of the session's git repositories, so that no command loses it: a second name (hard link) of each
//! file with commits, contents and branches lies in the agent's own folder. What a command that does not name git has deleted is
//! put back at its end, before the changes of the command are determined.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, Read};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use turnwright_types::private_file;
use turnwright_workspace::nofollow;

/// The parts of a repository that are kept.
const OBJECTS: &str = "objects";
const BRANCHES: &str = "refs/heads";
const FOLDERS: [&str; 3] = ["logs", "refs", OBJECTS];
const FILES: [&str; 3] = ["HEAD", "packed-refs", "index"];
/// At most this many names are given for one command. What is missing follows before the next one.
const MAX_NAMES: usize = 50_000;
/// At most this many folders of a repository are looked at, and none that is deeper.
const MAX_FOLDERS: usize = 10_000;
const MAX_DEPTH: usize = 32;
/// Files of another file system are copied, up to so many bytes in a session.
const MAX_COPIED: u64 = 64 * 1024 * 1024;
/// A folder that changed less than this ago may change again without another time.
const TIMESTAMP_AGE: Duration = Duration::from_secs(3);

/// What is told when a repository had become useless.
const PUT_BACK: &str =
    "[history: the command had deleted what git needs of the repository. It is there again.]";
const NOT_PUT_BACK: &str =
    "[history: the command has deleted parts of the repository, which could not be put back: ";

/// What a session knows of the folders whose files it has kept.
#[derive(Debug, Default)]
pub(super) struct HistoryKeeper(Mutex<KeptFolders>);

#[derive(Debug, Default)]
struct KeptFolders {
    folders: HashMap<PathBuf, KeptFolder>,
    copied: u64,
}

/// A folder of a repository when its files were kept.
#[derive(Clone, Debug)]
struct KeptFolder {
    /// `None` if it has just changed.
    stamp: Option<FolderStamp>,
    subfolders: Vec<OsString>,
}

/// The inode of a folder, and when it was changed.
type FolderStamp = (u64, i64, i64);

/// The repositories whose history was kept before a command.
#[derive(Debug, Default)]
pub(super) struct KeptHistory {
    repositories: Vec<KeptRepository>,
    /// The command may delete old objects.
    names_git: bool,
}

#[derive(Debug)]
struct KeptRepository {
    git: PathBuf,
    kept: PathBuf,
    /// The folders with files, relative to it.
    folders: BTreeMap<PathBuf, Option<FolderStamp>>,
}

impl HistoryKeeper {
    /// Keeps the history of repositories before a command, in a folder of our own. With `is_alone` no other command is running that
    /// may have deleted some of it. Blocks.
    pub(super) fn keep(
        &self,
        repositories: Vec<PathBuf>,
        place: &Path,
        (names_git, is_alone): (bool, bool),
    ) -> KeptHistory {
        let mut known = self.0.lock();
        let mut names_left = MAX_NAMES;
        let mut keep = |git: PathBuf| {
            let name = git.to_string_lossy().replace('/', "%");
            let folders = BTreeMap::new();
            let mut repository = KeptRepository { kept: place.join(name), git, folders };
            repository.keep_all(&mut known, &mut names_left, is_alone);
            repository
        };
        KeptHistory { repositories: repositories.into_iter().map(&mut keep).collect(), names_git }
    }
}

impl KeptHistory {
    /// Puts back what the command has deleted. Returns what is told if that mattered. Blocks.
    pub(super) fn put_back(&self) -> Option<String> {
        let reports = self.repositories.iter().filter_map(|repository| {
            let is_useless = repository.is_useless();
            let result = match (is_useless, self.names_git) {
                (false, true) => return None,
                (false, false) => repository.put_back(&|folder| folder.starts_with(OBJECTS)),
                (true, _) => repository.put_back(&|_| true),
            };
            match result {
                Err(error) => Some(format!("{NOT_PUT_BACK}{error}]")),
                Ok(()) => is_useless.then(|| PUT_BACK.to_owned()),
            }
        });
        let reports: BTreeSet<_> = reports.collect();
        (!reports.is_empty()).then(|| reports.into_iter().collect::<Vec<_>>().join("\n"))
    }
}

impl KeptRepository {
    fn keep_all(&mut self, known: &mut KeptFolders, names_left: &mut usize, is_alone: bool) {
        let mut pending: Vec<_> = FOLDERS.iter().map(PathBuf::from).collect();
        pending.push(PathBuf::new());
        while let Some(folder) = pending.pop().filter(|_| self.folders.len() < MAX_FOLDERS) {
            let source = self.git.join(&folder);
            let stamp = stamp(&source);
            let same = known.folders.get(&source).filter(|it| stamp.is_some() && it.stamp == stamp);
            let subfolders = match same {
                Some(same) => same.subfolders.clone(),
                None => {
                    let found = self.keep_folder(&folder, known, names_left, is_alone);
                    if let Err(error) = &found {
                        tracing::warn!(%error, ?folder, "a part of the history cannot be kept");
                    }
                    // What is only in part kept is listed again.
                    let stamp = stamp.filter(|_| *names_left > 0 && found.is_ok());
                    let subfolders = found.unwrap_or_default();
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
    }

    /// Keeps the files of one folder, and returns the folders in it.
    fn keep_folder(
        &self,
        folder: &Path,
        known: &mut KeptFolders,
        names_left: &mut usize,
        is_alone: bool,
    ) -> io::Result<Vec<OsString>> {
        let kept = self.kept.join(folder);
        let is_top = folder == Path::new("");
        let (_held, source) = match nofollow::open_folder(&self.git.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if is_alone && kept.exists() {
                    fs::remove_dir_all(kept)?;
                }
                return Ok(Vec::new());
            }
            opened => opened?,
        };
        private_file::create_folder(&kept)?;
        let mut names = entries(&kept)?;
        let mut subfolders = Vec::new();
        for (name, metadata) in entries(&source)? {
            let is_wanted = if is_top {
                FILES.iter().any(|it| name == *it)
            } else {
                !name.as_encoded_bytes().starts_with(b"tmp_")
                    && !name.as_encoded_bytes().ends_with(b".lock")
            };
            if !is_wanted {
                continue;
            }
            let old = names.remove(&name);
            if metadata.is_dir() {
                subfolders.push(name);
                continue;
            }
            let is_kept = old.as_ref().is_some_and(|old| is_same_file(old, &metadata));
            if is_kept || !metadata.is_file() || *names_left == 0 {
                continue;
            }
            *names_left -= 1;
            let to = kept.join(&name);
            if old.is_some() {
                fs::remove_file(&to)?;
            }
            known.add_name(&source.join(&name), &to, &metadata)?;
        }
        for (name, metadata) in names.into_iter().filter(|_| is_alone) {
            let path = kept.join(name);
            match metadata.is_dir() {
                true if is_top => {}
                true => fs::remove_dir_all(path)?,
                false => fs::remove_file(path)?,
            }
        }
        Ok(subfolders)
    }

    /// Returns true if git would no longer take the folder for a repository, or find any commit.
    fn is_useless(&self) -> bool {
        let is_lost = |has: fn(&Path) -> bool| has(&self.kept) && !has(&self.git);
        is_lost(|git| git.join("HEAD").is_file())
            || is_lost(|git| git.join("refs").is_dir())
            || is_lost(|git| git.join("packed-refs").is_file() || has_file(&git.join(BRANCHES)))
            || is_lost(|git| has_file(&git.join(OBJECTS)))
    }

    /// Puts back what is missing in the folders that `is_wanted`.
    fn put_back(&self, is_wanted: &dyn Fn(&Path) -> bool) -> io::Result<()> {
        let mut result = Ok(());
        for (folder, before) in self.folders.iter().filter(|(folder, _)| is_wanted(folder)) {
            let is_same = before.is_some() && *before == stamp(&self.git.join(folder));
            if !is_same && let Err(error) = self.put_back_in(folder) {
                result = Err(error);
            }
        }
        result
    }

    fn put_back_in(&self, folder: &Path) -> io::Result<()> {
        let kept = self.kept.join(folder);
        if !kept.exists() {
            return Ok(());
        }
        let (_held, target) = nofollow::create_folder(&self.git.join(folder))?;
        let there = entries(&target)?;
        let missing = entries(&kept)?.into_iter().filter(|(name, _)| !there.contains_key(name));
        for (name, _) in missing.filter(|(_, metadata)| metadata.is_file()) {
            link_or_copy(&kept.join(&name), &target.join(&name))?;
        }
        Ok(())
    }
}

impl KeptFolders {
    fn add_name(&mut self, from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // It has gone meanwhile, as git's files do.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(_) if self.copied + metadata.len() <= MAX_COPIED => {
                self.copied += metadata.len();
                // A link that has taken its place meanwhile is not followed.
                let file = nofollow::open_pinned_file(from, false)?;
                let mut copy = fs::File::create_new(to)?;
                io::copy(&mut file.take(metadata.len()), &mut copy).map(drop)
            }
            result => result,
        }
    }
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
            metadata => drop(found.insert(entry.file_name(), metadata?)),
        }
    }
    Ok(found)
}

/// Returns true if there is a file in a folder or in the folders in it.
fn has_file(folder: &Path) -> bool {
    let mut pending = vec![folder.to_path_buf()];
    let mut left = MAX_FOLDERS;
    while let Some(folder) = pending.pop().filter(|_| left > 0) {
        left -= 1;
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_file() => return true,
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                _ => {}
            }
        }
    }
    false
}

/// Identifies the content of a folder that changed long enough ago.
#[cfg(unix)]
fn stamp(folder: &Path) -> Option<FolderStamp> {
    let found = fs::symlink_metadata(folder).ok()?;
    let seconds = u64::try_from(found.ctime()).ok()?;
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let is_past = changed.elapsed().is_ok_and(|age| age >= TIMESTAMP_AGE);
    is_past.then_some((found.ino(), found.ctime(), found.ctime_nsec()))
}

#[cfg(not(unix))]
fn stamp(_: &Path) -> Option<FolderStamp> {
    None
}
