//! The `/tmp` that the session's commands have in the sandbox instead of the machine's: a folder of the session. The
//! paths of file tools lead there, too, so that they find what commands have left.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::real_path;
use crate::temp_folder::PrivateTempFolder;

const TMP: &str = "/tmp";
/// At most this many places in the machine's `/tmp` are visible to all commands, and to one of them.
const MAX_SHOWN: usize = 48;

/// The folder's name in a parent that only its user may enter: a command may open its own `/tmp` to everybody.
const INNER: &str = "tmp";

/// The folder, made when it is needed first, and removed with the session.
pub struct SessionTmp {
    /// Returns true if commands have a `/tmp` of their own now.
    is_used: Box<dyn Fn() -> bool + Send + Sync>,
    folder: OnceLock<(PrivateTempFolder, PathBuf)>,
    shown: SharedPlaces,
}

/// The places, for the session and for each command that sees some of them.
// Held only to access short lists, and to remove empty files beside them.
type SharedPlaces = Arc<RwLock<ShownPlaces>>;

/// Real paths in the machine's `/tmp` that commands see.
#[derive(Debug, Default)]
struct ShownPlaces {
    /// Those that all later commands see that may read them.
    lasting: Vec<PathBuf>,
    /// Those that only one running command sees, as often as there are such commands.
    passing: Vec<PathBuf>,
}

impl ShownPlaces {
    /// Returns true if an entry of `/tmp` is one of them, or holds one.
    fn any_in(&self, entry: &Path) -> bool {
        self.lasting.iter().chain(&self.passing).any(|shown| shown.starts_with(entry))
    }

    /// Removes the empty file or folder in the session's folder at which a place was seen, unless another place is seen
    /// there.
    fn remove_mount_point_of(&self, place: &Path, folder: &Path) {
        if let Some(entry) = in_tmp(place).filter(|entry| !self.any_in(entry)) {
            remove_mount_point(&folder.join(entry.file_name().unwrap_or_default()));
        }
    }
}

/// Places in the machine's `/tmp` that one command sees, until this is dropped. Then the empty files at which they were
/// seen are removed, which blocks.
#[derive(Debug)]
pub struct ShownOnce {
    pub places: Vec<PathBuf>,
    shown: SharedPlaces,
    folder: Option<PathBuf>,
}

impl Drop for ShownOnce {
    fn drop(&mut self) {
        let mut shown = self.shown.write();
        for place in &self.places {
            if let Some(at) = shown.passing.iter().position(|passing| passing == place) {
                shown.passing.swap_remove(at);
            }
            if let Some(folder) = &self.folder {
                shown.remove_mount_point_of(place, folder);
            }
        }
    }
}

impl fmt::Debug for SessionTmp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SessionTmp").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl SessionTmp {
    pub fn new(is_used: impl Fn() -> bool + Send + Sync + 'static) -> SessionTmp {
        let is_used = Box::new(is_used);
        SessionTmp { is_used, folder: OnceLock::new(), shown: Arc::default() }
    }

    /// The folder, a real path; `None` if commands have no `/tmp` of their own. Blocks.
    pub fn folder(&self) -> Option<&Path> {
        let made = self.make_folder();
        made.inspect_err(|error| tracing::warn!(%error, "commands get no /tmp of their own"))
            .ok()
            .flatten()
    }

    /// The same, made again if it was removed meanwhile. After an error, the next call tries again. Blocks.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn make_folder(&self) -> io::Result<Option<&Path>> {
        if !(self.is_used)() {
            return Ok(None);
        }
        if self.folder.get().is_none() {
            let folder = PrivateTempFolder::create()?;
            let inner = real_path(folder.path())?.join(INNER);
            fs::create_dir(&inner)?;
            // If another thread was faster, this one is removed.
            self.folder.set((folder, inner)).ok();
        }
        let Some((outer, inner)) = self.folder.get() else { return Ok(None) };
        outer.make_again()?;
        match fs::create_dir(inner) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Some(inner.as_path())),
        }
    }

    /// The folder if it was made.
    pub fn known_folder(&self) -> Option<&Path> {
        let made = self.folder.get()?;
        (self.is_used)().then_some(made.1.as_path())
    }

    /// Returns true if a path of the machine leads to the folder, or to the one around it.
    fn holds(&self, path: &Path) -> bool {
        let outer = self.known_folder().and_then(Path::parent);
        outer.is_some_and(|outer| path.starts_with(outer))
    }

    /// Lets commands see these paths in the machine's `/tmp`, and returns all such paths. Those that no longer exist are
    /// forgotten. Blocks.
    pub fn show(&self, paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
        let mut shown = self.shown.write();
        let known = std::mem::take(&mut shown.lasting);
        let (there, gone): (Vec<_>, Vec<_>) = known.into_iter().partition(|place| place.exists());
        shown.lasting = there;
        if let Some(folder) = self.known_folder() {
            for place in &gone {
                shown.remove_mount_point_of(place, folder);
            }
        }
        self.add_shown(&mut shown.lasting, paths);
        shown.lasting.clone()
    }

    /// Lets one command see these paths in the machine's `/tmp`. Blocks.
    pub fn show_once(&self, paths: impl IntoIterator<Item = PathBuf>) -> ShownOnce {
        let mut places = Vec::new();
        self.add_shown(&mut places, paths);
        self.shown.write().passing.extend(places.iter().cloned());
        let folder = self.known_folder().map(Path::to_path_buf);
        ShownOnce { places, shown: Arc::clone(&self.shown), folder }
    }

    /// Adds the paths of the machine that commands can see, and that lie in none of the places so far.
    fn add_shown(&self, places: &mut Vec<PathBuf>, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            let is_new = places.len() < MAX_SHOWN && !places.iter().any(|at| path.starts_with(at));
            if is_new && in_tmp(&path).is_some() && !self.holds(&path) && path.exists() {
                places.push(path);
            }
        }
    }

    /// Where commands find an absolute path in `/tmp`; `None` if it is the same on the machine. `is_seen` returns
    /// true for a folder of the machine's that commands see nonetheless, or in which they see something. Blocks.
    pub(super) fn place(&self, path: &Path, is_seen: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        if path == Path::new(TMP) {
            return self.folder().map(Path::to_path_buf);
        }
        let entry = in_tmp(path)?;
        let known = self.known_folder();
        if self.holds(path) || is_seen(&entry) || self.shown.read().any_in(&entry) {
            return None;
        }
        let name = entry.file_name().unwrap_or_default();
        let is_own = known.is_some_and(|folder| fs::symlink_metadata(folder.join(name)).is_ok())
            || fs::symlink_metadata(Path::new(TMP).join(name)).is_err();
        let folder = if is_own { self.folder()? } else { return None };
        Some(folder.join(path.strip_prefix(TMP).ok()?))
    }
}

/// The entry of `/tmp` that a path leads through, if it names one.
fn in_tmp(path: &Path) -> Option<PathBuf> {
    let mut parts = path.strip_prefix(TMP).ok()?.components();
    match parts.next()? {
        Component::Normal(name) => Some(Path::new(TMP).join(name)),
        _ => None,
    }
}

/// Removes the empty file or folder that was made to mount something there. A command may have replaced it.
fn remove_mount_point(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    // A folder that is not empty cannot be removed.
    if found.is_dir() && is_closed(&found) {
        fs::remove_dir(path).ok();
    } else if found.is_file() && found.len() == 0 && is_closed(&found) {
        fs::remove_file(path).ok();
    }
}

/// Returns true for a file or folder that nobody may open.
#[cfg(unix)]
fn is_closed(found: &fs::Metadata) -> bool {
    const PERMISSION_BITS: u32 = 0o7777;
    std::os::unix::fs::MetadataExt::mode(found) & PERMISSION_BITS == 0
}

/// Other systems have no mounts there.
#[cfg(not(unix))]
fn is_closed(_: &fs::Metadata) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::Roots;
    use super::*;
    use turnwright_types::effect::PathScope;

    #[test]
    fn a_path_in_tmp_leads_to_what_commands_find_there() {
        let users = tempfile::Builder::new().prefix("users-").tempdir_in(TMP).unwrap();
        let project = tempfile::Builder::new().prefix("project-").tempdir_in(TMP).unwrap();
        let is_used = Arc::new(AtomicBool::new(true));
        let is_used_now = Arc::clone(&is_used);
        let tmp = SessionTmp::new(move || is_used_now.load(Ordering::Relaxed));
        let roots = Roots::new(project.path()).unwrap().with_session_tmp(tmp);
        let own = roots.session_tmp().unwrap().folder().unwrap().to_path_buf();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let [users_name, project_name] = [users.path(), project.path()].map(name);
        fs::create_dir_all(own.join("made/deep")).unwrap();
        // Where the project is mounted for commands.
        fs::create_dir(own.join(&project_name)).unwrap();
        symlink("/tmp/made", own.join("to-made")).unwrap();
        symlink("/etc/passwd", own.join("to-outside")).unwrap();
        symlink(users.path(), own.join("to-users")).unwrap();
        symlink("..", own.join("up")).unwrap();
        symlink("/tmp/made", project.path().join("link")).unwrap();
        // A command may put a link where its own path leads to it.
        let outer = own.parent().unwrap().file_name().unwrap();
        symlink("/etc", own.join(outer)).unwrap();
        let at_own = |below: &str| own.join(below);
        let inside = PathScope::Workspace;
        let private = PathScope::PrivateTmp { depth: own.components().count() };
        let outside = PathScope::Outside;
        for (path, expected, scope) in [
            ("/tmp", own.clone(), private),
            ("/tmp/", own.clone(), private),
            ("/tmp/.", own.clone(), private),
            ("/tmp/made/deep/x", at_own("made/deep/x"), private),
            ("/tmp/nowhere/x", at_own("nowhere/x"), private),
            ("/tmp/./made/../x-of-nobody", at_own("x-of-nobody"), private),
            ("/tmp/to-made/deep", at_own("made/deep"), private),
            ("/tmp/../tmp/made", at_own("made"), private),
            ("link/deep", at_own("made/deep"), private),
            ("/tmp/to-outside", "/etc/passwd".into(), outside),
            ("/tmp/to-users/x", users.path().join("x"), outside),
            ("/tmp/../etc/passwd", "/etc/passwd".into(), outside),
            ("/tmp/made/../../etc/passwd", "/etc/passwd".into(), outside),
            (&format!("/tmp/{users_name}/x"), users.path().join("x"), outside),
            (&format!("/tmp/{project_name}/x"), project.path().join("x"), inside),
            ("/tmp/up/etc/passwd", "/etc/passwd".into(), outside),
            ("/tmp/up/tmp/made", at_own("made"), private),
            (&format!("{}/../etc/passwd", own.display()), "/etc/passwd".into(), outside),
            (&format!("{}/made", own.display()), at_own("made"), private),
            ("/tmpx/a", "/tmpx/a".into(), outside),
            ("/var/tmp/a", "/var/tmp/a".into(), outside),
        ] {
            let found = roots.resolve(path);
            assert_eq!((&found.path, found.scope), (&expected, scope), "{path}");
            assert_eq!(roots.resolve(&found.path), found, "{path}");
        }
        assert_eq!(roots.resolve("/tmp/made/x").name_for_commands(), Path::new("/tmp/made/x"));
        let entry = |path: &str| roots.resolve_entry(Path::new(path)).path;
        assert_eq!(entry("/tmp/to-made"), own.join("to-made"));
        assert_eq!(entry(&format!("/tmp/{users_name}")), users.path());
        // A folder that commands are shown stays the machine's, although it is mounted in the session's folder.
        fs::create_dir(own.join(&users_name)).unwrap();
        assert_eq!(roots.resolve(users.path()).path, own.join(&users_name));
        roots.session_tmp().unwrap().show([users.path().to_owned()]);
        assert_eq!(roots.resolve(users.path()).path, users.path());
        is_used.store(false, Ordering::Relaxed);
        assert_eq!(roots.resolve("/tmp/made/x").path, Path::new("/tmp/made/x"));
        drop(roots);
        assert!(!own.exists());
    }

    #[test]
    fn a_folder_that_was_cleaned_up_is_made_again() {
        let tmp = SessionTmp::new(|| true);
        let own = tmp.folder().unwrap().to_path_buf();
        fs::remove_dir(&own).unwrap();
        assert_eq!(tmp.make_folder().unwrap(), Some(own.as_path()));
        fs::remove_dir_all(own.parent().unwrap()).unwrap();
        assert_eq!(tmp.make_folder().unwrap(), Some(own.as_path()));
        assert!(own.is_dir());
    }

    #[test]
    fn what_one_command_has_seen_is_forgotten_and_so_is_the_place_where_it_was() {
        let file = tempfile::Builder::new().prefix("users-").tempfile_in(TMP).unwrap();
        let outer = tempfile::Builder::new().prefix("users-").tempdir_in(TMP).unwrap();
        let gone = outer.path().to_owned();
        let inner = outer.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let tmp = SessionTmp::new(|| true);
        let own = tmp.folder().unwrap().to_path_buf();
        let at_own = |path: &Path| own.join(path.strip_prefix(TMP).unwrap());
        let place = |path: &Path| tmp.place(path, |_| false);
        let close = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        };
        let first = tmp.show_once([file.path().to_owned(), inner.clone(), "/etc".into()]);
        let second = tmp.show_once([inner.clone()]);
        assert_eq!(first.places, [file.path(), &inner]);
        assert!(tmp.show([]).is_empty());
        fs::File::create(at_own(file.path())).unwrap();
        fs::create_dir(at_own(outer.path())).unwrap();
        close(&at_own(file.path()));
        close(&at_own(outer.path()));
        assert_eq!([place(file.path()), place(&inner)], [None, None]);
        drop(first);
        assert!(!at_own(file.path()).exists() && at_own(outer.path()).exists());
        assert_eq!(place(&inner), None);
        drop(second);
        assert!(!at_own(outer.path()).exists());
        // Files that a command has made there stay, and belong to it.
        let third = tmp.show_once([file.path().to_owned()]);
        fs::File::create(at_own(file.path())).unwrap();
        drop(third);
        assert_eq!(place(file.path()), Some(at_own(file.path())));
        // Places that all commands may see stay.
        tmp.show([outer.path().to_owned()]);
        fs::create_dir(at_own(outer.path())).unwrap();
        close(&at_own(outer.path()));
        drop(tmp.show_once([inner.clone()]));
        assert_eq!((place(&inner), at_own(outer.path()).exists()), (None, true));
        // But not longer than the place is there.
        outer.close().unwrap();
        assert!(tmp.show([]).is_empty() && !at_own(&gone).exists());
    }
}
