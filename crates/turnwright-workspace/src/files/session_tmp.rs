//! The `/tmp` that the session's commands have in the sandbox instead of the machine's: a folder of the session. The
//! paths of file tools lead there, too, so that they find what commands have left.

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::RwLock;

use crate::real_path;
use crate::temp_folder::PrivateTempFolder;

const TMP: &str = "/tmp";
/// At most this many places in the machine's `/tmp` are visible to commands.
const MAX_SHOWN: usize = 48;

/// The folder's name in a parent that only its user may enter: a command may open its own `/tmp` to everybody.
const INNER: &str = "tmp";

/// The folder, made when it is needed first, and removed with the session.
pub struct SessionTmp {
    /// Returns true if commands have a `/tmp` of their own now.
    is_used: Box<dyn Fn() -> bool + Send + Sync>,
    folder: OnceLock<Option<(PrivateTempFolder, PathBuf)>>,
    /// Real paths in the machine's `/tmp` that commands see.
    // Held only to access a short list.
    shown: RwLock<Vec<PathBuf>>,
}

impl fmt::Debug for SessionTmp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SessionTmp").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl SessionTmp {
    pub fn new(is_used: impl Fn() -> bool + Send + Sync + 'static) -> SessionTmp {
        let is_used = Box::new(is_used);
        SessionTmp { is_used, folder: OnceLock::new(), shown: RwLock::default() }
    }

    /// The folder, a real path; `None` if commands have no `/tmp` of their own. Blocks.
    pub fn folder(&self) -> Option<&Path> {
        if !(self.is_used)() {
            return None;
        }
        let made = self.folder.get_or_init(|| {
            let folder = PrivateTempFolder::create().and_then(|folder| {
                let inner = real_path(folder.path())?.join(INNER);
                fs::create_dir(&inner)?;
                Ok((folder, inner))
            });
            folder
                .inspect_err(|error| tracing::warn!(%error, "commands get no /tmp of their own"))
                .ok()
        });
        made.as_ref().map(|made| made.1.as_path())
    }

    /// The folder if it was made.
    pub fn known_folder(&self) -> Option<&Path> {
        let made = self.folder.get()?.as_ref()?;
        (self.is_used)().then_some(made.1.as_path())
    }

    /// Returns true if a path of the machine leads to the folder, or to the one around it.
    fn holds(&self, path: &Path) -> bool {
        let outer = self.known_folder().and_then(Path::parent);
        outer.is_some_and(|outer| path.starts_with(outer))
    }

    /// Lets commands see these paths in the machine's `/tmp`, and returns all such paths. Blocks.
    pub fn show(&self, paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
        let mut shown = self.shown.write();
        for path in paths {
            let is_new = in_tmp(&path).is_some()
                && !shown.iter().any(|outer| path.starts_with(outer))
                && !self.holds(&path);
            if is_new && shown.len() < MAX_SHOWN && path.exists() {
                shown.push(path);
            }
        }
        shown.clone()
    }

    /// Where commands find an absolute path in `/tmp`; `None` if it is the same on the machine. `is_seen` returns
    /// true for a folder of the machine's that commands see nonetheless, or in which they see something. Blocks.
    pub(super) fn place(&self, path: &Path, is_seen: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        if path == Path::new(TMP) {
            return self.folder().map(Path::to_path_buf);
        }
        let entry = in_tmp(path)?;
        let known = self.known_folder();
        if self.holds(path)
            || is_seen(&entry)
            || self.shown.read().iter().any(|shown| shown.starts_with(&entry))
        {
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;
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
}
