//! Moves and removes entries of folders: files, folders and links, whatever they contain.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::disk::{map_io_error, run_at};
use super::{FileError, Files, Roots, save};
use crate::nofollow;
use turnwright_types::effect::ResolvedPath;
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;

/// The most entries that are counted below a folder.
const MAX_COUNTED: usize = 100_000;
/// The deepest nesting of folders that is removed: each level is held open meanwhile.
const MAX_DEPTH: usize = 200;
/// The most entries that are listed.
const MAX_LISTED: usize = 20;

/// The file, folder or link at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryInfo {
    pub is_folder: bool,
    /// True for a symbolic link, which is not followed.
    pub is_link: bool,
    /// The number of entries below the folder that are not folders, as far as they were counted.
    pub files: usize,
    /// The number of folders below it.
    pub folders: usize,
    /// The greatest nesting depth of the folders examined so far.
    pub depth: usize,
    /// The first few entries, relative to the folder.
    pub names: Vec<PathBuf>,
}

impl EntryInfo {
    /// The number of entries below it.
    pub fn entries(&self) -> usize {
        self.files + self.folders
    }

    /// Returns true if its folders are nested too deep to be removed.
    pub fn is_too_deep(&self) -> bool {
        self.depth > MAX_DEPTH
    }

    /// Returns true if there may be more entries than were counted.
    pub fn is_truncated(&self) -> bool {
        self.entries() >= MAX_COUNTED || self.is_too_deep()
    }
}

impl Roots {
    /// Like [`Roots::resolve`], but a link at the end of the path is not followed.
    pub fn resolve_entry(&self, path: &Path) -> ResolvedPath {
        let all = self.resolve(path);
        let Some(name) = path.file_name() else { return all };
        // Windows has many spellings of a name. Only the spelling of a link has to be kept.
        if cfg!(windows) && !self.is_link(path) {
            return all;
        }
        let folder = self.resolve(path.parent().unwrap_or(Path::new("")));
        let own = self.entry_in(&folder, name);
        if own.path == all.path { all } else { own }
    }

    fn is_link(&self, path: &Path) -> bool {
        let path = self.real_cwd().join(path);
        !self.leads_elsewhere(&path) && fs::read_link(path).is_ok()
    }
}

impl Files {
    pub async fn inspect_entry(&self, target: &ResolvedPath) -> Result<EntryInfo, FileError> {
        self.ensure_entry_not_moved(target).await?;
        run_at(&target.path, |path| Ok(inspect(path)?)).await
    }

    /// Moves an entry to a path where nothing exists yet. Missing folders are created.
    pub async fn rename(&self, from: &ResolvedPath, to: &ResolvedPath) -> Result<(), FileError> {
        self.ensure_entry_not_moved(from).await?;
        self.ensure_entry_not_moved(to).await?;
        let new = to.path.clone();
        run_at(&from.path, move |old| rename(old, &new)).await?;
        self.seen.rename(&from.path, &to.path);
        Ok(())
    }

    /// Renames a file to a temporary name in its folder, from where it can be restored.
    pub async fn set_aside(&self, target: &ResolvedPath) -> Result<ResolvedPath, FileError> {
        self.ensure_entry_not_moved(target).await?;
        let path = run_at(&target.path, |old| Ok(set_aside(old)?)).await?;
        self.seen.rename(&target.path, &path);
        Ok(ResolvedPath { path, scope: target.scope })
    }

    /// Removes an entry, with everything below it if `recursive` is set. Returns the number of
    /// removed files.
    pub async fn remove(
        &self,
        target: &ResolvedPath,
        recursive: bool,
        cancel: &CancellationToken,
    ) -> Result<usize, FileError> {
        self.ensure_entry_not_moved(target).await?;
        let cancel = cancel.clone();
        let removed = run_at(&target.path, move |path| remove(path, recursive, &cancel)).await;
        self.forget_seen(target);
        removed
    }

    /// Returns true if the working folder of the session is at this path or below it.
    ///
    /// # Errors
    /// If the process is ending.
    pub async fn contains_cwd(&self, target: &ResolvedPath) -> Result<bool, FileError> {
        Ok(self.resolve(".").await?.path.starts_with(&target.path))
    }

    /// Fails if the path now resolves to something else.
    async fn ensure_entry_not_moved(&self, target: &ResolvedPath) -> Result<(), FileError> {
        let roots = self.roots.clone();
        let now = run_at(&target.path, move |path| Ok(roots.resolve_entry(path))).await?;
        if now == *target { Ok(()) } else { Err(FileError::Moved) }
    }
}

fn inspect(path: &Path) -> io::Result<EntryInfo> {
    let (_held, path) = nofollow::hold_entry(path, nofollow::open_folder)?;
    let metadata = fs::symlink_metadata(&path)?;
    let is_folder = metadata.is_dir();
    let is_link = metadata.is_symlink();
    let mut info = EntryInfo { is_folder, is_link, ..EntryInfo::default() };
    let mut open = if is_folder { vec![PathBuf::new()] } else { Vec::new() };
    let (_held, path) = if is_folder { nofollow::open_child_folder(&path)? } else { (None, path) };
    while let Some(below) = open.pop() {
        let Some((_held, folder)) = folder_below(&path, &below)? else { continue };
        let mut entries: Vec<_> =
            fs::read_dir(folder)?.take(MAX_COUNTED).filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if info.is_truncated() {
                return Ok(info);
            }
            let name = below.join(entry.file_name());
            if info.names.len() < MAX_LISTED {
                info.names.push(name.clone());
            }
            if entry.file_type()?.is_dir() {
                info.folders += 1;
                // Each level takes longer to reach, and deeper ones are never removed.
                info.depth = info.depth.max(name.components().count());
                open.push(name);
            } else {
                info.files += 1;
            }
        }
    }
    Ok(info)
}

/// Opens a folder some levels below a held one; `None` if it is not a folder any more.
fn folder_below(path: &Path, below: &Path) -> io::Result<Option<nofollow::HeldPath>> {
    let mut at = (None, path.to_path_buf());
    // Windows holds no folder open, and the folders above were opened before.
    let mut steps: Vec<_> =
        if cfg!(windows) { vec![below.as_os_str()] } else { below.iter().collect() };
    steps.retain(|step| !step.is_empty());
    for name in steps {
        at = match nofollow::open_child_folder(&at.1.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
            result => result?,
        };
    }
    Ok(Some(at))
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    let (_source_folder, source) = nofollow::hold_entry(from, nofollow::open_folder)?;
    let metadata = fs::symlink_metadata(&source)?;
    if metadata.is_dir() && to.starts_with(from) {
        return Err(FileError::System("cannot be moved into itself".to_owned()));
    }
    let (_target_folder, target) = nofollow::hold_entry(to, nofollow::create_folder)?;
    match rename_no_replace(&source, &target) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            move_across_devices(&source, &target, &metadata)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(FileError::Exists),
        result => Ok(result?),
    }
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let (_held, source) = nofollow::hold_entry(path, nofollow::open_folder)?;
    let folder = source.parent().unwrap_or(Path::new("/"));
    let mut builder = tempfile::Builder::new();
    // After a crash this is the only copy, so the name is not one that is cleaned up.
    builder.prefix(".turnwright-").suffix(".aside");
    let ((), aside) = builder.make_in(folder, |path| rename_no_replace(&source, path))?.keep()?;
    Ok(path.with_file_name(aside.file_name().unwrap_or_default()))
}

/// Renames atomically; fails if the target exists.
pub(super) fn rename_no_replace(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Not supported by this file system or kernel.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            result => return result.map_err(Into::into),
        }
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

/// Moves a file to another file system: writes a copy next to the target path and renames it when
/// it is complete.
fn move_across_devices(from: &Path, to: &Path, metadata: &fs::Metadata) -> Result<(), FileError> {
    if !metadata.is_file() {
        let why = "cannot be renamed across disks or layers of an overlay; use exec with mv";
        return Err(FileError::System(why.to_owned()));
    }
    copy_and_remove(from, to, metadata).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => FileError::Exists,
        _ => map_io_error(&error),
    })
}

fn copy_and_remove(from: &Path, to: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    let mut file = save::create_beside(to, 0o600)?;
    io::copy(&mut nofollow::open_pinned_file(from, false)?, &mut file)?;
    // As with `mv`, a disk that refuses the mode gets the file all the same.
    nofollow::set_permissions(file.as_file(), metadata.permissions()).ok();
    private_file::sync(file.as_file())?;
    save::place_new(file, to)?;
    // The file must not stay in both places.
    fs::remove_file(from).inspect_err(|_| drop(fs::remove_file(to)))
}

fn remove(path: &Path, recursive: bool, cancel: &CancellationToken) -> Result<usize, FileError> {
    let (_held, path) = nofollow::hold_entry(path, nofollow::open_folder)?;
    let metadata = fs::symlink_metadata(&path)?;
    if !metadata.is_dir() {
        fs::remove_file(&path)?;
        return Ok(1);
    }
    if !recursive {
        fs::remove_dir(&path)?;
        return Ok(0);
    }
    let mut removed = 0;
    match remove_tree(&path, cancel, &mut removed) {
        Ok(()) => Ok(removed),
        Err(error) if removed == 0 => Err(map_io_error(&error)),
        Err(error) => Err(FileError::System(format!(
            "was only removed in part: {removed} files are gone, then: {}",
            io_error_text(&error)
        ))),
    }
}

/// Removes a folder with its content. Each folder is held open while it is emptied, so that none
/// can be swapped for a link that leads elsewhere.
fn remove_tree(path: &Path, cancel: &CancellationToken, removed: &mut usize) -> io::Result<()> {
    let (held, inside) = nofollow::open_child_folder(path)?;
    for entry in fs::read_dir(&inside)? {
        if cancel.is_cancelled() {
            return Err(io::Error::other("cancelled by the user"));
        }
        let entry = entry?;
        let below = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_tree(&below, cancel, removed)?;
        } else {
            fs::remove_file(&below)?;
            *removed += 1;
        }
    }
    drop(held);
    fs::remove_dir(path)
}
