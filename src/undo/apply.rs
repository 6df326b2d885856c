//! Makes of files what they were. Each is looked at once more at the last moment; what fails is
//! told, and the rest is done.

use std::fs;
use std::io;
use std::mem::discriminant;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::now::{found, open};
use super::plan::{Action, Step, same};
use turnwright_types::effect::Target;
use turnwright_workspace::files::{FileError, Files, Patience, There};
use turnwright_workspace::pinned;
use turnwright_store::{Store, read};
use turnwright_types::file_change::FileState;

/// What has become of a path that was to be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Absolute.
    pub path: PathBuf,
    /// What was there.
    pub was: FileState,
    /// What was to be there.
    pub to: FileState,
    /// Whether it is there, or why not.
    pub result: Result<(), String>,
}

/// Does all that is to be restored; the other steps are left out. What goes goes first, what is in
/// a folder before the folder; what comes comes after that, the folder first. A cancel ends it
/// between two paths.
pub async fn apply(
    files: &Files,
    store: &Store,
    steps: &[Step],
    cancel: &CancellationToken,
) -> Vec<Outcome> {
    let wanted = steps.iter().filter_map(|it| match &it.action {
        Action::Restore { to } => {
            let (path, was, to) = (it.path.clone(), it.now.clone(), to.clone());
            Some(Outcome { path, was, to, result: Ok(()) })
        }
        _ => None,
    });
    let mut all: Vec<Outcome> = wanted.collect();
    all.sort_by(|one, other| one.path.cmp(&other.path));
    let work = Work { files, store, cancel, patience: Patience::default() };
    for one in all.iter_mut().rev().filter(|it| has_to_go(it)) {
        one.result = work.remove(one).await;
    }
    for one in all.iter_mut().filter(|it| it.result.is_ok() && it.to != FileState::Absent) {
        one.result = work.make(one).await;
    }
    // A folder that nothing can be put into any more gets its mode when all is in it.
    for one in all.iter_mut().rev().filter(|it| it.result.is_ok()) {
        if let FileState::Folder { mode } = one.to {
            one.result = on_disk(&one.path, move |it| permit(it, mode, None)).await;
        }
    }
    all
}

/// Whether what is there makes room, for nothing or for something else.
fn has_to_go(one: &Outcome) -> bool {
    one.was != FileState::Absent
        && (discriminant(&one.was) != discriminant(&one.to)
            || matches!(one.to, FileState::Link { .. }))
}

struct Work<'a> {
    files: &'a Files,
    store: &'a Store,
    cancel: &'a CancellationToken,
    patience: Patience,
}

impl Work<'_> {
    fn check(&self) -> Result<(), String> {
        if self.cancel.is_cancelled() { Err("cancelled".to_owned()) } else { Ok(()) }
    }

    async fn remove(&self, one: &Outcome) -> Result<(), String> {
        self.check()?;
        if matches!(one.was, FileState::File { .. }) {
            let target = self.target(&one.path).await?;
            let saved = self.files.expect_no_unsaved(&target, &self.patience).await;
            saved.map_err(|it| explain(&it))?;
            self.files.forget(&target);
        }
        let was = one.was.clone();
        on_disk(&one.path, move |path| {
            let now = found(path)?;
            if !same(&now, &was) {
                return Err(io::Error::other("it was changed at the last moment"));
            }
            match now {
                FileState::Folder { .. } => fs::remove_dir(path).map_err(|it| match it.kind() {
                    io::ErrorKind::DirectoryNotEmpty => {
                        io::Error::other("something else lies in the folder")
                    }
                    _ => it,
                }),
                _ => fs::remove_file(path),
            }
        })
        .await
    }

    async fn make(&self, one: &Outcome) -> Result<(), String> {
        self.check()?;
        let is_same_kind = discriminant(&one.was) == discriminant(&one.to);
        match (&one.was, &one.to) {
            (FileState::File { hash, .. }, FileState::File { hash: wanted, mode, .. })
                if hash == wanted =>
            {
                let (mode, was) = (*mode, one.was.clone());
                on_disk(&one.path, move |it| permit(it, mode, Some(&was))).await
            }
            (was, FileState::File { hash, mode, .. }) => {
                let there = match was {
                    FileState::File { hash, .. } => There::File(digest(hash)?),
                    _ => There::Nothing,
                };
                let bytes = self.bytes(hash.clone()).await?;
                let what = (bytes, *mode);
                let path = &one.path;
                let done = self.files.restore(path, there, what, &self.patience, self.cancel).await;
                done.map_err(|it| explain(&it))
            }
            (_, FileState::Link { target }) => {
                let target = target.clone();
                on_made_disk(&one.path, move |path| link(&target, path)).await
            }
            // Its mode comes at the end.
            (_, FileState::Folder { .. }) if is_same_kind => Ok(()),
            (_, FileState::Folder { .. }) => on_made_disk(&one.path, |it| fs::create_dir(it)).await,
            (_, FileState::Absent | FileState::Unknown { .. }) => Ok(()),
        }
    }

    async fn bytes(&self, hash: String) -> Result<Vec<u8>, String> {
        let found = self.store.read(move |connection| read::bytes(connection, &hash)).await;
        match found {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err("its bytes were not kept".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn target(&self, path: &Path) -> Result<Target, String> {
        let target = self.files.resolve(path).await.map_err(|it| explain(&it))?;
        if target.path == path { Ok(target) } else { Err(explain(&FileError::Moved)) }
    }
}

/// The texts of [`FileError`] are for the model and speak of a permission.
fn explain(error: &FileError) -> String {
    match error {
        FileError::Stale => "it was changed at the last moment".to_owned(),
        FileError::Moved => "its folder is not where it was".to_owned(),
        FileError::Unsaved => "it has unsaved changes in the editor".to_owned(),
        FileError::Cancelled => "cancelled".to_owned(),
        error => error.to_string(),
    }
}

fn digest(hash: &str) -> Result<[u8; 32], String> {
    let mut digest = [0; 32];
    for (number, byte) in digest.iter_mut().enumerate() {
        let digits = hash.get(number * 2..number * 2 + 2);
        let value = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
        *byte = value.ok_or("its hash makes no sense")?;
    }
    Ok(digest)
}

/// Does something to a path through its folder, which is held.
async fn on_disk(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> Result<(), String> {
    blocking(path, pinned::folder, work).await
}

/// The same; missing folders are made.
async fn on_made_disk(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> Result<(), String> {
    blocking(path, pinned::made_folder, work).await
}

type Held = io::Result<(Option<fs::File>, PathBuf)>;

async fn blocking(
    path: &Path,
    hold: fn(&Path) -> Held,
    work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let path = path.to_path_buf();
    let done = tokio::task::spawn_blocking(move || {
        let Some((folder, name)) = path.parent().zip(path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (_held, folder) = hold(folder)?;
        work(&folder.join(name))
    });
    match done.await {
        Ok(done) => done.map_err(|it| match it.kind() {
            io::ErrorKind::AlreadyExists => "something else is there now".to_owned(),
            _ => it.to_string(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

/// Gives something its mode, if it is still what it was.
fn permit(path: &Path, mode: u32, was: Option<&FileState>) -> io::Result<()> {
    if let Some(was) = was
        && !same(&found(path)?, was)
    {
        return Err(io::Error::other("it was changed at the last moment"));
    }
    let file = open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
    }
    #[cfg(not(unix))]
    let _unused = (file, mode);
    Ok(())
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
