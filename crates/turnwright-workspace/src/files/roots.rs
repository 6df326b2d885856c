//! The folders of a session, and the resolution of paths against them.

use super::session_tmp::SessionTmp;
use crate::real_path;
#[cfg(windows)]
use crate::real_path::is_device_name;
use crate::real_path::parts_reversed;
use std::ffi::OsStr;
#[cfg(windows)]
use std::ffi::OsString;
use std::fs;
#[cfg(windows)]
use std::path::Component;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden_line};
use turnwright_types::plain_path::normalize_lexically;
use turnwright_types::secret::notice_other_name;

/// A path with more links than this counts as a loop.
const MAX_LINKS: usize = 40;
/// The most folders outside that may be read.
const MAX_READABLE: usize = 128;

/// The folders that belong to a session. The first is its working folder.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Each folder as the client named it, and with its links resolved.
    folders: Vec<(PathBuf, PathBuf)>,
    /// Folders that count as outside wherever they are: our own, with credentials and granted
    /// permissions.
    private: Vec<PathBuf>,
    /// Folders outside of the project that the session may read, from the first place on. None is ever taken away.
    readable: Arc<[OnceLock<PathBuf>]>,
    /// The `/tmp` of the session's commands, if they may have their own.
    tmp: Option<Arc<SessionTmp>>,
    /// True if the folders are known by their description only, so that the disk says nothing about them.
    pub(super) is_described: bool,
}

impl Roots {
    /// Roots with a working folder.
    pub fn new(cwd: &Path) -> std::io::Result<Roots> {
        let real = real_path(cwd)?;
        if !real.is_dir() {
            return Err(std::io::ErrorKind::NotADirectory.into());
        }
        let folders = vec![(cwd.to_path_buf(), real)];
        Ok(Roots::of(folders, false))
    }

    fn of(folders: Vec<(PathBuf, PathBuf)>, is_described: bool) -> Roots {
        let readable = std::iter::repeat_with(OnceLock::new).take(MAX_READABLE).collect();
        Roots { folders, private: Vec::new(), readable, tmp: None, is_described }
    }

    /// Roots of a stored session whose working folder does not exist any more.
    pub fn gone(cwd: &Path) -> Roots {
        let folders = vec![(cwd.to_path_buf(), resolve_missing(cwd))];
        Roots::of(folders, false)
    }

    /// Roots of a session that ran elsewhere: its working folder and others, each as the client named it and
    /// with its links resolved. The folders need not exist, and are not looked at.
    pub fn described(cwd: (PathBuf, PathBuf), others: Vec<(PathBuf, PathBuf)>) -> Roots {
        let folders = std::iter::once(cwd).chain(others).collect();
        Roots::of(folders, true)
    }

    /// Adds a folder to the session.
    pub fn with_folder(mut self, folder: &Path) -> std::io::Result<Roots> {
        let real = real_path(folder)?;
        // Fails if it is not a folder, or is not readable.
        drop(fs::read_dir(&real)?);
        if !self.folders.iter().any(|(_, known)| *known == real) {
            self.folders.push((folder.to_path_buf(), real));
        }
        Ok(self)
    }

    /// Makes a folder count as outside even if it lies below a root.
    #[must_use]
    pub fn with_private_folder(mut self, folder: &Path) -> Roots {
        // The folder may be created later, for example by a login.
        self.private.extend(std::path::absolute(folder).ok().map(|path| resolve_missing(&path)));
        self
    }

    /// Makes paths in `/tmp` lead where they lead for the session's commands, unless `/tmp` belongs to the
    /// session's folders.
    #[must_use]
    pub fn with_session_tmp(self, tmp: SessionTmp) -> Roots {
        let is_usual =
            !self.is_described && real_path("/tmp").is_ok_and(|real| real == Path::new("/tmp"));
        let is_own = self.folders().any(|folder| Path::new("/tmp").starts_with(folder));
        Roots { tmp: (is_usual && !is_own).then(|| Arc::new(tmp)), ..self }
    }

    /// The `/tmp` of the session's commands, if they may have their own.
    pub fn session_tmp(&self) -> Option<&SessionTmp> {
        self.tmp.as_deref()
    }

    /// Adds a folder of our own that may be read and not changed.
    #[must_use]
    pub fn with_readable_folder(self, folder: &Path) -> Roots {
        if let Ok(folder) = std::path::absolute(folder) {
            self.allow_read(resolve_missing(&folder));
        }
        self
    }

    /// Lets the session read a folder (a path without links) from now on; this applies to all
    /// clones of these roots. A folder that contains a folder of the session or a private one is
    /// not added.
    pub fn allow_read(&self, mut folder: PathBuf) {
        if self.folders().chain(self.private_folders()).any(|path| path.starts_with(&folder)) {
            return;
        }
        for place in self.readable.iter() {
            let Err(rest) = place.set(folder) else { return };
            if place.get() == Some(&rest) {
                return;
            }
            folder = rest;
        }
    }

    fn readable(&self) -> impl Iterator<Item = &PathBuf> {
        self.readable.iter().map_while(OnceLock::get)
    }

    /// The folders outside of the project that the session may read.
    pub fn readable_folders(&self) -> impl Iterator<Item = PathBuf> {
        self.readable().cloned()
    }

    /// The folders that count as outside, with links resolved.
    pub fn private_folders(&self) -> impl Iterator<Item = &Path> {
        self.private.iter().map(PathBuf::as_path)
    }

    /// The working folder as the client named it.
    pub fn cwd(&self) -> &Path {
        &self.folders[0].0
    }

    /// All folders of the session with links resolved, the working folder first.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|(_, real)| real.as_path())
    }

    /// The folders other than the working folder, as the client named them.
    pub fn additional_folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().skip(1).map(|(named, _)| named.as_path())
    }

    /// The working folder with links resolved.
    pub fn real_cwd(&self) -> &Path {
        &self.folders[0].1
    }

    /// Resolves a path. A relative one starts in the working folder only (R-SESS-4). `..` and
    /// symbolic links are followed as the kernel does, also in a path that does not exist yet.
    pub fn resolve(&self, path: impl AsRef<Path>) -> ResolvedPath {
        let absolute = unambiguous(self.folders[0].1.join(path));
        let described = self.described_place(&absolute);
        if described.is_none() && self.is_on_other_machine(&absolute) {
            return ResolvedPath { path: absolute, scope: PathScope::Outside };
        }
        let is_described = described.is_some();
        let path = described.unwrap_or_else(|| self.find(&absolute));
        if !is_described {
            notice_other_name(&path);
        }
        let is_private = self.private_folders().any(|folder| is_below(&path, folder));
        let tmp = self.tmp.as_ref().and_then(|tmp| tmp.known_folder());
        let place = if let Some(tmp) = tmp.filter(|tmp| path.starts_with(tmp)) {
            PathScope::PrivateTmp { depth: tmp.components().count() }
        } else if self.readable().any(|folder| path.starts_with(folder)) {
            PathScope::AgentData
        } else if !is_private && self.folders.iter().any(|(_, real)| path.starts_with(real)) {
            PathScope::Workspace
        } else {
            PathScope::Outside
        };
        ResolvedPath { path, scope: place }
    }

    /// Where a path leads. A path in `/tmp`, or a link to one, leads where it leads for commands.
    fn find(&self, absolute: &Path) -> PathBuf {
        let folder = self.tmp.as_ref().and_then(|tmp| tmp.known_folder());
        let tmp = Path::new("/tmp");
        if self.tmp.is_none() || folder.is_none() && !absolute.starts_with(tmp) {
            let real = real_path(absolute).unwrap_or_else(|_| resolve_missing(absolute));
            if self.tmp.is_none() || !real.starts_with(tmp) {
                return real;
            }
        }
        // For commands, the folder has other parents than for this process.
        let place = |path: &mut PathBuf| {
            let folder = self.tmp.as_ref().and_then(|tmp| tmp.known_folder());
            if folder.is_some_and(|folder| folder == path) {
                tmp.clone_into(path);
            }
            self.place_in_tmp(path).unwrap_or_else(|| path.clone())
        };
        let mut found = walk(absolute, place);
        place(&mut found)
    }

    fn place_in_tmp(&self, path: &Path) -> Option<PathBuf> {
        self.tmp.as_ref()?.place(path, |entry| {
            self.folders().chain(self.private_folders()).any(|folder| folder.starts_with(entry))
                || self.readable().any(|folder| folder.starts_with(entry))
        })
    }

    /// An entry of a folder. One of `/tmp` may be the session's or the machine's.
    pub(super) fn entry_in(&self, folder: &ResolvedPath, name: &OsStr) -> ResolvedPath {
        let tmp = Path::new("/tmp");
        let is_private = matches!(folder.scope, PathScope::PrivateTmp { .. });
        if !is_private || folder.name_for_commands() != tmp {
            return ResolvedPath { path: folder.path.join(name), scope: folder.scope };
        }
        match self.place_in_tmp(&tmp.join(name)) {
            Some(path) => ResolvedPath { path, scope: folder.scope },
            None => ResolvedPath { path: tmp.join(name), scope: PathScope::Outside },
        }
    }

    /// The place of a path below one of the folders if they were described. Links in the folders are not known.
    fn described_place(&self, absolute: &Path) -> Option<PathBuf> {
        if !self.is_described {
            return None;
        }
        let path = normalize_lexically(absolute);
        self.folders.iter().find_map(|(named, real)| {
            let rest = path.strip_prefix(named).or_else(|_| path.strip_prefix(real)).ok()?;
            Some(if rest.as_os_str().is_empty() { real.clone() } else { real.join(rest) })
        })
    }

    /// Returns true if a path may lead to another machine or to a device. Looking at it would already connect
    /// there, and Windows would log in with the user's name and password. True for everything but drives, and
    /// shares on which the session has a folder. Only Windows has such paths.
    pub fn leads_elsewhere(&self, path: &Path) -> bool {
        let absolute = unambiguous(self.folders[0].1.join(path));
        self.described_place(&absolute).is_none() && self.is_on_other_machine(&absolute)
    }

    #[cfg(windows)]
    fn is_on_other_machine(&self, absolute: &Path) -> bool {
        let Some(place) = place_off_drives(absolute) else {
            return absolute.components().any(is_device);
        };
        // Folders that were described may be on any machine.
        let folders = if self.is_described { &[] } else { self.folders.as_slice() };
        let named = folders.iter().flat_map(|(named, real)| [named, real]).cloned();
        let own = named.chain(self.private.iter().cloned()).chain(self.readable_folders());
        !own.into_iter().any(|path| place_off_drives(&path).as_ref() == Some(&place))
    }

    #[cfg(not(windows))]
    #[expect(clippy::unused_self, reason = "on Windows the folders of the session count")]
    fn is_on_other_machine(&self, _: &Path) -> bool {
        false
    }

    /// The folder of the session that holds one of these paths and is no longer there. Blocks.
    pub fn missing_folder(&self, targets: &[ResolvedPath]) -> Option<&Path> {
        let mut folders = self.folders().filter(|_| !self.is_described);
        folders.find(|folder| {
            targets.iter().any(|target| target.path.starts_with(folder)) && !folder.is_dir()
        })
    }

    /// The path as the client knows it: below the folder as the client named it, even if that is a
    /// link.
    pub fn client_path(&self, target: &ResolvedPath) -> PathBuf {
        self.folders
            .iter()
            .find_map(|(named, real)| {
                let rest = target.path.strip_prefix(real).ok()?;
                // Joining an empty path would append a slash.
                let is_root = rest.as_os_str().is_empty();
                Some(if is_root { named.clone() } else { native(named.join(rest)) })
            })
            .unwrap_or_else(|| target.path.clone())
    }

    /// The folder in which a program starts. For a folder on a share this is the path that the client has named, since
    /// `cmd` starts only on drives.
    pub fn start_folder(&self, folder: &Path) -> PathBuf {
        let path = folder.to_path_buf();
        if !path.as_os_str().as_encoded_bytes().starts_with(br"\\") {
            return path;
        }
        self.client_path(&ResolvedPath { path, scope: PathScope::Workspace })
    }

    /// The path for display: relative to the working folder if it lies below it, with hidden
    /// characters escaped.
    pub fn display_path(&self, target: &ResolvedPath) -> String {
        let (_, real) = &self.folders[0];
        match target.path.strip_prefix(real) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
            Ok(rest) => escape_hidden_line(&super::display(rest)),
            Err(_) => escape_hidden_line(&target.name_for_commands().to_string_lossy()),
        }
    }
}

#[cfg(windows)]
fn is_device(part: Component<'_>) -> bool {
    matches!(part, Component::Normal(name) if is_device_name(&name.to_string_lossy()))
}

fn lower(name: &OsStr) -> String {
    name.to_string_lossy().to_lowercase()
}

/// The share, device or volume at the beginning of a path, without case; `None` for a path on a drive.
#[cfg(windows)]
fn place_off_drives(path: &Path) -> Option<(String, String)> {
    use std::path::Prefix;
    let Some(Component::Prefix(prefix)) = path.components().next() else { return None };
    match prefix.kind() {
        Prefix::Disk(_) | Prefix::VerbatimDisk(_) => None,
        Prefix::UNC(server, share) | Prefix::VerbatimUNC(server, share) => {
            Some((lower(server), lower(share)))
        }
        Prefix::Verbatim(_) | Prefix::DeviceNS(_) => {
            Some((lower(prefix.as_os_str()), String::new()))
        }
    }
}

/// Returns true if a path is a folder or below it. On Windows, missing files may be named in any case.
fn is_below(path: &Path, folder: &Path) -> bool {
    if cfg!(not(windows)) {
        return path.starts_with(folder);
    }
    let mut parts = path.components().map(|part| lower(part.as_os_str()));
    folder.components().all(|part| parts.next() == Some(lower(part.as_os_str())))
}

/// The path that Windows opens for this one: it removes dots and blanks at the end of a name, and `C:a`
/// begins in the folder of the drive. The text after a `:` names another stream of the same file, and counts
/// as the file.
#[cfg(windows)]
fn unambiguous(path: PathBuf) -> PathBuf {
    let absolute = std::path::absolute(&path).unwrap_or(path);
    // A name that is not Unicode stays as it is unless it has a stream.
    if absolute.components().any(has_stream) {
        absolute.components().map(without_stream).collect()
    } else {
        absolute
    }
}

#[cfg(windows)]
fn has_stream(part: Component<'_>) -> bool {
    matches!(part, Component::Normal(name) if name.to_string_lossy().contains(':'))
}

#[cfg(windows)]
fn without_stream(part: Component<'_>) -> OsString {
    match part {
        Component::Normal(name) => OsString::from(file_of_stream(&name.to_string_lossy())),
        part => part.as_os_str().to_owned(),
    }
}

#[cfg(not(windows))]
fn unambiguous(path: PathBuf) -> PathBuf {
    path
}

/// The file that a name with a stream belongs to.
#[cfg(any(windows, test))]
fn file_of_stream(name: &str) -> &str {
    name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' '])
}

/// The path with one kind of separators.
fn native(path: PathBuf) -> PathBuf {
    if cfg!(windows) { path.components().collect() } else { path }
}

/// Resolves a path whose last components may not exist. A dangling link is followed, too, because
/// writing through it would create its target.
fn resolve_missing(path: &Path) -> PathBuf {
    with_real_folder(walk(path, |path| path.clone()))
}

/// Follows the links and dots of a path. `place` returns the place of a path on the disk, and may replace the path
/// with another name for the same file.
fn walk(path: &Path, place: impl Fn(&mut PathBuf) -> PathBuf) -> PathBuf {
    let mut real = PathBuf::new();
    let mut rest = parts_reversed(path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(&part);
        // The root is no link.
        if real.parent().is_none() {
            continue;
        }
        match fs::read_link(place(&mut real)) {
            Ok(link) if links < MAX_LINKS => {
                links += 1;
                real.pop();
                rest.extend(parts_reversed(&link));
            }
            _ => {}
        }
    }
    real
}

/// The path with the names that its folders have on the disk: on Windows and macOS each may be written in any
/// case, and on Windows it has a short name, too.
fn with_real_folder(path: PathBuf) -> PathBuf {
    if cfg!(not(any(windows, target_os = "macos"))) {
        return path;
    }
    let real = path
        .ancestors()
        .skip(1)
        .find_map(|folder| Some(real_path(folder).ok()?.join(path.strip_prefix(folder).ok()?)));
    real.unwrap_or(path)
}

#[cfg(test)]
#[cfg_attr(windows, expect(clippy::disallowed_methods, reason = "a test sets up its files"))]
mod tests {
    use super::*;

    #[test]
    fn links_and_dots_are_resolved_before_the_scope_is_decided() {
        let folder = tempfile::tempdir().unwrap();
        let base = real_path(folder.path()).unwrap();
        fs::create_dir_all(base.join("ws/src")).unwrap();
        fs::create_dir_all(base.join("other")).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(base.join("other"), base.join("ws/out")).unwrap();
            symlink(base.join("other/new.txt"), base.join("ws/dangling")).unwrap();
            symlink("src", base.join("ws/in")).unwrap();
            symlink("loop", base.join("ws/loop")).unwrap();
        }
        let roots = Roots::new(&base.join("ws")).unwrap();

        let table = [
            ("a.txt", "ws/a.txt", PathScope::Workspace),
            ("src/../b", "ws/b", PathScope::Workspace),
            ("new/dir/c", "ws/new/dir/c", PathScope::Workspace),
            ("in/d", "ws/src/d", PathScope::Workspace),
            ("../ws/e", "ws/e", PathScope::Workspace),
            ("../other/f", "other/f", PathScope::Outside),
            ("out/g", "other/g", PathScope::Outside),
            ("out/../h", "h", PathScope::Outside),
            ("new/../../i", "i", PathScope::Outside),
            ("dangling", "other/new.txt", PathScope::Outside),
            (".", "ws", PathScope::Workspace),
        ];
        // Windows lets only administrators make links.
        let is_linked =
            |path: &str| path.starts_with("in/") || path.starts_with("out/") || path == "dangling";
        for (path, real, place) in table.into_iter().filter(|row| cfg!(unix) || !is_linked(row.0)) {
            let expected = ResolvedPath { path: base.join(real), scope: place };
            assert_eq!(roots.resolve(path), expected, "{path}");
        }
        assert_eq!(roots.resolve("/etc/passwd").scope, PathScope::Outside);
        // Where a loop leads does not matter, but the resolution must terminate.
        roots.resolve("loop/x");
    }

    #[test]
    fn a_stream_belongs_to_its_file() {
        for (name, expected) in [
            (".env::$DATA", ".env"),
            (".env. ::$DATA", ".env"),
            ("a.txt:notes", "a.txt"),
            ("a.txt", "a.txt"),
        ] {
            assert_eq!(file_of_stream(name), expected, "{name}");
        }
    }

    #[cfg(windows)]
    #[test]
    fn another_spelling_of_a_file_is_the_same_file() {
        let base = tempfile::tempdir().unwrap();
        let roots = Roots::new(base.path()).unwrap();
        fs::write(base.path().join(".env"), "x").unwrap();
        let expected = roots.resolve(".env");
        assert_eq!(expected.scope, PathScope::Workspace);
        for spelling in [".env::$DATA", ".env.", ".env ", "a/../.env", r"a\..\.env", "./.env:x"] {
            assert_eq!(roots.resolve(spelling), expected, "{spelling}");
        }
        let missing = roots.resolve("new.");
        assert_eq!(missing, roots.resolve("new"));
    }

    #[test]
    fn the_folder_of_a_new_file_is_spelled_as_on_the_disk() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        fs::create_dir(base.join("src")).unwrap();
        let expected = if base.join("SRC").exists() { "src/new" } else { "SRC/new" };
        assert_eq!(Roots::new(&base).unwrap().resolve("SRC/new").path, base.join(expected));
    }

    #[cfg(windows)]
    #[test]
    fn a_file_that_does_not_exist_yet_is_in_the_folder_that_is_on_the_disk() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        for folder in ["ws/.git/hooks", "ws/.vscode-of-the-project", "ws/state"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        let private = base.join("ws/STATE/not-yet");
        let roots = Roots::new(&base.join("ws")).unwrap().with_private_folder(&private);
        let short = short_name(&base.join("ws/.vscode-of-the-project"));
        let upper = base.join("ws").to_str().unwrap().to_uppercase();
        for (spelling, expected, scope) in [
            (".GIT/Hooks/new", ".git/hooks/new", PathScope::Workspace),
            (".git./hooks./new", ".git/hooks/new", PathScope::Workspace),
            (".GIT/hooks/new::$DATA", ".git/hooks/new", PathScope::Workspace),
            (&format!("{short}/new"), ".vscode-of-the-project/new", PathScope::Workspace),
            (&format!("{upper}/.Git/hooks/new"), ".git/hooks/new", PathScope::Workspace),
            (&format!(r"\\?\{upper}\.git\hooks\new"), ".git/hooks/new", PathScope::Workspace),
            ("State/Not-Yet/new", "state/Not-Yet/new", PathScope::Outside),
            ("state/not-yet", "state/not-yet", PathScope::Outside),
            ("state/new", "state/new", PathScope::Workspace),
        ] {
            let path = base.join("ws").join(expected).components().collect();
            assert_eq!(roots.resolve(spelling), ResolvedPath { path, scope }, "{spelling}");
        }
        for entry in [r".GIT", ".git.", ".git::$INDEX_ALLOCATION", ".Git "] {
            let expected = roots.resolve(".git");
            assert_eq!(roots.resolve_entry(Path::new(entry)), expected, "{entry}");
        }
        let expected = roots.resolve(".vscode-of-the-project");
        assert_eq!(roots.resolve_entry(Path::new(&short)), expected, "{short}");
    }

    /// The name of a file with 8 characters and an extension, or its only name.
    #[cfg(windows)]
    #[expect(unsafe_code, reason = "a call of the system whose pointers live as long as the call")]
    fn short_name(path: &Path) -> String {
        use std::os::windows::ffi::OsStrExt;
        use windows_sys::Win32::Storage::FileSystem::GetShortPathNameW;
        let long: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
        let mut short = vec![0; 1_000];
        // SAFETY: the path ends with a zero, and the buffer is as long as it says.
        let length = unsafe { GetShortPathNameW(long.as_ptr(), short.as_mut_ptr(), 1_000) };
        let short = String::from_utf16(&short[..length as usize]).unwrap();
        Path::new(&short).file_name().unwrap().to_str().unwrap().to_owned()
    }

    #[cfg(windows)]
    #[test]
    fn no_other_machine_and_no_device_is_looked_at() {
        let base = tempfile::tempdir().unwrap();
        let roots = Roots::new(base.path()).unwrap();
        let mut on_share = roots.clone();
        let share = PathBuf::from(r"\\?\UNC\Server\Share\project");
        on_share.folders.push((share.clone(), share));
        let share = PathBuf::from(r"\\server\share\project");
        let described = Roots::described((share.clone(), share), Vec::new());
        assert!(!described.leads_elsewhere(Path::new(r"\\server\share\project\a")));
        assert!(described.leads_elsewhere(Path::new(r"\\server\share\a")));
        assert_eq!(described.resolve("a").scope, PathScope::Workspace);
        for (path, is_elsewhere, is_elsewhere_beside_share) in [
            (r"a", false, false),
            (r"C:\a", false, false),
            (r"\\?\C:\a", false, false),
            (r"/a", false, false),
            (r"\\server\share\a", true, false),
            (r"//SERVER/share/a", true, false),
            (r"\\?\UNC\server\share\a", true, false),
            (r"\\server\other\a", true, true),
            (r"\\server@SSL\DavWWWRoot\a", true, true),
            (r"\\?\UNC\other\share\a", true, true),
            (r"\\.\UNC\server\share\a", true, true),
            (r"\\?\GLOBALROOT\Device\Mup\server\share\a", true, true),
            (r"\\.\PhysicalDrive0", true, true),
            (r"\\.\pipe\a", true, true),
            (r"NUL", true, true),
            (r"a\con", true, true),
            (r"COM1", true, true),
        ] {
            assert_eq!(roots.leads_elsewhere(Path::new(path)), is_elsewhere, "{path}");
            let beside = on_share.leads_elsewhere(Path::new(path));
            assert_eq!(beside, is_elsewhere_beside_share, "{path}");
            if is_elsewhere {
                assert_eq!(roots.resolve(path).scope, PathScope::Outside, "{path}");
            }
        }
    }

    #[test]
    fn on_a_share_programs_start_on_the_drive_that_the_client_named() {
        let share = Path::new(r"\\?\UNC\server\share\p");
        let roots = Roots::described(("/z/p".into(), share.into()), Vec::new());
        for (folder, expected) in [
            (share.to_path_buf(), "/z/p"),
            (share.join("src"), "/z/p/src"),
            (r"\\server\other".into(), r"\\server\other"),
            ("/a".into(), "/a"),
        ] {
            assert_eq!(roots.start_folder(&folder), Path::new(expected));
        }
    }

    #[test]
    fn relative_paths_start_in_the_first_of_several_folders() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        for folder in ["ws", "more/sub", "secret"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(base.join("more"), base.join("link")).unwrap();
            symlink(base.join("secret"), base.join("more/out")).unwrap();
        }
        let link = base.join(if cfg!(unix) { "link" } else { "more" });
        let roots = Roots::new(&base.join("ws")).unwrap();
        assert!(roots.clone().with_folder(&base.join("missing")).is_err());
        let roots = roots.with_folder(&link).unwrap().with_folder(&base.join("more")).unwrap();
        assert_eq!(
            roots.folders().count(),
            2,
            "the same folder by another name is not added again"
        );
        let place = |path: &str| roots.resolve(path).scope;
        assert_eq!(roots.resolve("sub/a").path, base.join("ws/sub/a"));
        assert_eq!(place("../more/sub/a"), PathScope::Workspace);
        #[cfg(unix)]
        assert_eq!(place("../more/out/a"), PathScope::Outside);
        assert_eq!(place("../more/../secret/a"), PathScope::Outside);
        let target = roots.resolve(base.join("more/sub/a"));
        assert_eq!(roots.client_path(&target), link.join("sub/a"));
    }

    #[test]
    fn folders_that_were_described_are_not_looked_at() {
        let root = if cfg!(windows) { r"C:\" } else { "/" };
        let at = |path: &str| Path::new(root).join(path);
        let cwd = (at("named/ws"), at("real/ws"));
        let roots = Roots::described(cwd, vec![(at("named/more"), at("more"))]);
        for (path, real, scope) in [
            (at("named/ws/a"), "real/ws/a", PathScope::Workspace),
            (at("real/ws/a"), "real/ws/a", PathScope::Workspace),
            (at("named/ws"), "real/ws", PathScope::Workspace),
            (PathBuf::from("a/../b"), "real/ws/b", PathScope::Workspace),
            (at("named/ws/../more/./c"), "more/c", PathScope::Workspace),
            (at("named/ws/../../d"), "d", PathScope::Outside),
            (at("named/wsx"), "named/wsx", PathScope::Outside),
        ] {
            assert_eq!(roots.resolve(&path), ResolvedPath { path: at(real), scope }, "{path:?}");
        }
    }

    #[test]
    fn a_folder_can_be_made_readable_unless_it_contains_other_ones() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        fs::create_dir_all(base.join("home/ws")).unwrap();
        let roots =
            Roots::new(&base.join("home/ws")).unwrap().with_private_folder(&base.join("config"));
        let copy = roots.clone();
        let place = |path: &str| copy.resolve(base.join(path)).scope;
        for folder in ["skill", "config/skills/a", "config", "home", "home/ws", ""] {
            roots.allow_read(base.join(folder));
        }
        for (path, expected) in [
            ("skill/a", PathScope::AgentData),
            ("skill/../b", PathScope::Outside),
            ("skills/a", PathScope::Outside),
            ("config/skills/a/b", PathScope::AgentData),
            ("config/skills/b", PathScope::Outside),
            ("config/login", PathScope::Outside),
            ("home/a", PathScope::Outside),
            ("home/ws/a", PathScope::Workspace),
        ] {
            assert_eq!(place(path), expected, "{path}");
        }
    }

    #[test]
    fn a_folder_with_the_same_beginning_is_not_inside() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("ws")).unwrap();
        fs::create_dir_all(base.path().join("ws2")).unwrap();
        let roots = Roots::new(&base.path().join("ws")).unwrap();
        assert_eq!(roots.resolve("../ws2/a").scope, PathScope::Outside);
    }
}
