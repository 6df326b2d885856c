//! Places as such, whatever lies there: moving and removing files, folders and links.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::disk::{blocking, explain, moved};
use super::{FileError, Files, Roots, save};
use turnwright_types::effect::Target;
use crate::pinned;

/// Entries that are counted below a folder.
const MOST_COUNTED: usize = 100_000;
/// Folders in folders that are emptied: each is held open meanwhile.
const DEEPEST: usize = 200;
/// Entries that are named.
const MOST_NAMED: usize = 20;

/// What lies at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Whether it is a symbolic link. It is not followed.
    pub is_link: bool,
    /// Everything below a folder that is no folder itself, as far as it was counted.
    pub files: usize,
    /// The folders below it.
    pub folders: usize,
    /// How deep they are nested.
    pub depth: usize,
    /// The first few of them, from the place on.
    pub names: Vec<PathBuf>,
}

impl Survey {
    /// How many entries lie below it.
    pub fn entries(&self) -> usize {
        self.files + self.folders
    }

    /// Whether its folders are nested deeper than any that are removed.
    pub fn is_too_deep(&self) -> bool {
        self.depth > DEEPEST
    }

    /// Whether there may be more than was counted.
    pub fn is_cut(&self) -> bool {
        self.entries() >= MOST_COUNTED
    }
}

impl Roots {
    /// What a path names itself: as [`Roots::resolve`], but a link at its end is not followed.
    pub fn entry(&self, path: &Path) -> Target {
        let all = self.resolve(path);
        let Some(name) = path.file_name() else { return all };
        let folder = self.resolve(path.parent().unwrap_or(Path::new("")));
        let own = folder.path.join(name);
        if own == all.path { all } else { Target { path: own, place: folder.place } }
    }
}

impl Files {
    /// What lies at a place.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be looked at.
    pub async fn survey(&self, target: &Target) -> Result<Survey, FileError> {
        self.still(target).await?;
        let path = target.path.clone();
        blocking(move || survey(&path).map_err(|it| moved(&it))).await
    }

    /// Gives what lies at one place another, where nothing may lie yet. Missing folders are made.
    ///
    /// # Errors
    /// When nothing was moved.
    pub async fn rename(&self, from: &Target, to: &Target) -> Result<(), FileError> {
        self.still(from).await?;
        self.still(to).await?;
        let (old, new) = (from.path.clone(), to.path.clone());
        blocking(move || rename(&old, &new)).await?;
        self.forget(from);
        self.forget(to);
        Ok(())
    }

    /// Gives a file another name in its folder, from where it can be brought back as it was.
    ///
    /// # Errors
    /// When it stays where it is.
    pub async fn set_aside(&self, target: &Target) -> Result<Target, FileError> {
        self.still(target).await?;
        let path = target.path.clone();
        let path = blocking(move || set_aside(&path).map_err(|it| moved(&it))).await?;
        self.forget(target);
        Ok(Target { path, place: target.place })
    }

    /// Removes what lies at a place; below a folder only if that is said. Returns how many files
    /// went.
    ///
    /// # Errors
    /// When not all was removed.
    pub async fn remove(
        &self,
        target: &Target,
        recursive: bool,
        cancel: &CancellationToken,
    ) -> Result<usize, FileError> {
        self.still(target).await?;
        let (path, cancel) = (target.path.clone(), cancel.clone());
        let removed = blocking(move || remove(&path, recursive, &cancel)).await;
        self.forget(target);
        removed
    }

    /// Whether a folder of the session lies there, or below.
    ///
    /// # Errors
    /// When the process is ending.
    pub async fn holds_root(&self, target: &Target) -> Result<bool, FileError> {
        Ok(self.resolve(".").await?.path.starts_with(&target.path))
    }

    /// The same words must still mean the same place.
    async fn still(&self, target: &Target) -> Result<(), FileError> {
        let (roots, path) = (self.roots.clone(), target.path.clone());
        let now = blocking(move || Ok(roots.entry(&path))).await?;
        if now == *target { Ok(()) } else { Err(FileError::Moved) }
    }
}

/// A place as seen from its folder, which stays the same one as long as the first part lives.
fn pinned(path: &Path) -> io::Result<(Option<fs::File>, PathBuf)> {
    let (folder, name) = parts(path)?;
    let (held, folder) = pinned::folder(folder)?;
    Ok((held, folder.join(name)))
}

/// The same; missing folders are made.
fn pinned_and_made(path: &Path) -> io::Result<(Option<fs::File>, PathBuf)> {
    let (folder, name) = parts(path)?;
    let (held, folder) = pinned::made_folder(folder)?;
    Ok((held, folder.join(name)))
}

fn parts(path: &Path) -> io::Result<(&Path, &OsStr)> {
    path.parent().zip(path.file_name()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn survey(path: &Path) -> io::Result<Survey> {
    let (_held, path) = pinned(path)?;
    let metadata = fs::symlink_metadata(&path)?;
    let (is_folder, is_link) = (metadata.is_dir(), metadata.is_symlink());
    let mut survey = Survey { is_folder, is_link, ..Survey::default() };
    let mut open = if is_folder { vec![PathBuf::new()] } else { Vec::new() };
    let (_held, path) = if is_folder { pinned::folder_in(&path)? } else { (None, path) };
    while let Some(below) = open.pop() {
        let Some((_held, folder)) = folder_below(&path, &below)? else { continue };
        let mut entries: Vec<_> =
            fs::read_dir(folder)?.take(MOST_COUNTED).filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if survey.is_cut() {
                return Ok(survey);
            }
            let name = below.join(entry.file_name());
            if survey.names.len() < MOST_NAMED {
                survey.names.push(name.clone());
            }
            if entry.file_type()?.is_dir() {
                survey.folders += 1;
                survey.depth = survey.depth.max(name.components().count());
                open.push(name);
            } else {
                survey.files += 1;
            }
        }
    }
    Ok(survey)
}

/// A folder some way below one that is held. One that has become something else meanwhile is
/// nothing to look into.
fn folder_below(path: &Path, below: &Path) -> io::Result<Option<(Option<fs::File>, PathBuf)>> {
    let mut at = (None, path.to_path_buf());
    for name in below {
        at = match pinned::folder_in(&at.1.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
            result => result?,
        };
    }
    Ok(Some(at))
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    let (_source, source) = pinned(from).map_err(|it| moved(&it))?;
    let metadata = fs::symlink_metadata(&source).map_err(|it| explain(&it))?;
    if metadata.is_dir() && to.starts_with(from) {
        return Err(FileError::System("cannot be moved into itself".to_owned()));
    }
    let (_goal, goal) = pinned_and_made(to).map_err(|it| moved(&it))?;
    match without_replacing(&source, &goal) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            across(&source, &goal, &metadata)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(FileError::Exists),
        result => result.map_err(|it| explain(&it)),
    }
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let (_held, source) = pinned(path)?;
    let folder = source.parent().unwrap_or(Path::new("/"));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".turnwright-").suffix(".tmp");
    let ((), aside) = builder.make_in(folder, |it| without_replacing(&source, it))?.keep()?;
    Ok(path.with_file_name(aside.file_name().unwrap_or_default()))
}

/// Renames in one step that fails if something lies there.
pub(super) fn without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // File systems and kernels that do not know the flag.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            result => return result.map_err(Into::into),
        }
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

/// Moves a file to another disk: a copy beside its place that takes it when it is whole.
fn across(from: &Path, to: &Path, metadata: &fs::Metadata) -> Result<(), FileError> {
    if !metadata.is_file() {
        return Err(FileError::System(
            "lies on another disk than its new place; use exec with mv".to_owned(),
        ));
    }
    let copy = || -> io::Result<()> {
        let folder = to.parent().unwrap_or(Path::new("/"));
        let mut file =
            tempfile::Builder::new().prefix(".turnwright-").suffix(".tmp").tempfile_in(folder)?;
        io::copy(&mut save::open(from, false)?, &mut file)?;
        file.as_file().set_permissions(metadata.permissions())?;
        file.as_file().sync_data()?;
        without_replacing(file.path(), to)?;
        drop(file.keep()?);
        // It must not be in both places.
        fs::remove_file(from).inspect_err(|_| drop(fs::remove_file(to)))
    };
    copy().map_err(|it| match it.kind() {
        io::ErrorKind::AlreadyExists => FileError::Exists,
        _ => explain(&it),
    })
}

fn remove(path: &Path, recursive: bool, cancel: &CancellationToken) -> Result<usize, FileError> {
    let (_held, path) = pinned(path).map_err(|it| moved(&it))?;
    let metadata = fs::symlink_metadata(&path).map_err(|it| explain(&it))?;
    if !metadata.is_dir() {
        fs::remove_file(&path).map_err(|it| explain(&it))?;
        return Ok(1);
    }
    if !recursive {
        fs::remove_dir(&path).map_err(|it| explain(&it))?;
        return Ok(0);
    }
    let mut gone = 0;
    let result = clear(&path, cancel, &mut gone);
    match result {
        Ok(()) => Ok(gone),
        Err(error) if gone == 0 => Err(explain(&error)),
        Err(error) => Err(FileError::System(format!(
            "was only removed in part: {gone} files are gone, then: {error}"
        ))),
    }
}

/// Removes a folder with what is in it. Each folder is held while it is emptied, so that none can
/// be swapped for a link that leads elsewhere.
fn clear(path: &Path, cancel: &CancellationToken, gone: &mut usize) -> io::Result<()> {
    let (held, inside) = pinned::folder_in(path)?;
    for entry in fs::read_dir(&inside)? {
        if cancel.is_cancelled() {
            return Err(io::Error::other("cancelled by the user"));
        }
        let entry = entry?;
        let below = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            clear(&below, cancel, gone)?;
        } else {
            fs::remove_file(&below)?;
            *gone += 1;
        }
    }
    drop(held);
    fs::remove_dir(path)
}
