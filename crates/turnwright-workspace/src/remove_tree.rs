//! Removes folders that commands have filled, however deep they are: without recursion, and with a few open descriptors.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

/// At most this many names of a folder are read at once.
const MAX_NAMES: usize = 10_000;
/// How folders are opened to be emptied.
const HOW: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder that is being emptied.
struct Level {
    /// Its name in the folder above it.
    name: CString,
    /// The device and inode, by which it is known again on the way up.
    id: (u64, u64),
    /// The folders in it that were found and not yet removed.
    folders: Vec<CString>,
}

/// Removes a folder and everything in it, and gives it up when `is_stopped` returns true: then the rest stays, perhaps
/// with other modes. Follows no link. Blocks.
///
/// # Errors
/// If the folder is a link, something in it cannot be removed, or a folder was moved meanwhile.
pub fn remove_tree(folder: &Path, is_stopped: &impl Fn() -> bool) -> io::Result<()> {
    let mut current = open_folder(CWD, folder)?;
    let root = Level { name: CString::default(), id: id_of(&current)?, folders: Vec::new() };
    let mut levels = vec![root];
    while let Some(level) = levels.last_mut() {
        if is_stopped() {
            return Ok(());
        }
        if level.folders.is_empty() {
            match remove_files(current.as_fd(), is_stopped)? {
                Some(folders) => level.folders = folders,
                None => return Ok(()),
            }
        }
        if let Some(name) = level.folders.pop() {
            current = open_folder(&current, &name)?;
            levels.push(Level { name, id: id_of(&current)?, folders: Vec::new() });
            continue;
        }
        let Some(done) = levels.pop() else { break };
        let Some(above) = levels.last() else { break };
        current = open_above(&current, above.id)?;
        rustix::fs::unlinkat(&current, &done.name, AtFlags::REMOVEDIR)?;
    }
    Ok(rustix::fs::rmdir(folder)?)
}

/// Removes what is no folder until a folder is found. Returns the folders among the names that were read last: an empty
/// list if nothing is left, and `None` if it was stopped.
fn remove_files(
    folder: BorrowedFd<'_>,
    is_stopped: &impl Fn() -> bool,
) -> io::Result<Option<Vec<CString>>> {
    let mut folders = Vec::new();
    while folders.is_empty() {
        let names = names_in(folder)?;
        if names.is_empty() {
            break;
        }
        for name in names {
            if is_stopped() {
                return Ok(None);
            }
            if !unlink(folder, &name)? {
                folders.push(name);
            }
        }
    }
    Ok(Some(folders))
}

/// Removes what is no folder. Returns false if it is one.
fn unlink(folder: BorrowedFd<'_>, name: &CString) -> io::Result<bool> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        // Some systems say that they do not permit it.
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn id_of(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let found = rustix::fs::fstat(folder)?;
    Ok((found.st_dev as u64, found.st_ino as u64))
}

/// Opens the folder above one. Fails, and changes nothing, if it is another one than before.
fn open_above(folder: &OwnedFd, id: (u64, u64)) -> io::Result<OwnedFd> {
    let opened = rustix::fs::openat(folder, c"..", HOW, Mode::empty())?;
    if id_of(&opened)? != id {
        return Err(io::Error::other("the folder was moved while it was removed"));
    }
    rustix::fs::fchmod(&opened, Mode::RWXU).ok();
    Ok(opened)
}

/// Opens a folder and makes sure that its entries can be removed.
fn open_folder(place: impl AsFd, name: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let opened = match rustix::fs::openat(&place, name, HOW, Mode::empty()) {
        Err(Errno::ACCESS) => {
            make_accessible(place.as_fd(), name)?;
            rustix::fs::openat(&place, name, HOW, Mode::empty())?
        }
        opened => opened?,
    };
    // Reading may be allowed, and writing not.
    rustix::fs::fchmod(&opened, Mode::RWXU).ok();
    Ok(opened)
}

/// Lets the owner of a folder do everything with it. Follows no link.
#[cfg(target_os = "linux")]
fn make_accessible(place: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(place, name, how, Mode::empty())?;
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU)
}

#[cfg(not(target_os = "linux"))]
fn make_accessible(place: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<()> {
    rustix::fs::chmodat(place, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

/// Some of the names in a folder.
fn names_in(folder: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
        if names.len() == MAX_NAMES {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_commands_leave_is_removed_whatever_it_is() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::write(root.join("a/b/c/file"), "x").unwrap();
        fs::create_dir_all(root.join("x/y")).unwrap();
        symlink(&outside, root.join("link")).unwrap();
        symlink(&outside, root.join("a/b/link")).unwrap();
        symlink("missing", root.join("dangling")).unwrap();
        for folder in ["closed/inner/deep", "read-only/inner"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("file"), "x").unwrap();
        }
        for (folder, mode) in [("closed/inner", 0), ("closed", 0), ("read-only", 0o500)] {
            fs::set_permissions(root.join(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
        remove_tree(&root, &|| false).unwrap();
        assert!(!root.exists());
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "x");
        symlink(&outside, &root).unwrap();
        assert!(remove_tree(&root, &|| false).is_err() && outside.join("kept").exists());
    }

    #[test]
    fn folders_may_be_as_deep_as_a_command_can_make_them() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut folder = open_folder(CWD, &root).unwrap();
        for _ in 0..8_000 {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = open_folder(&folder, "d").unwrap();
        }
        remove_tree(&root, &|| false).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn many_files_and_folders_are_removed_and_the_removal_can_be_stopped() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        for number in 0..300 {
            fs::create_dir_all(root.join(format!("{number}/read-only"))).unwrap();
        }
        for number in 0..MAX_NAMES + 100 {
            fs::write(root.join(format!("7/{number}")), "").unwrap();
        }
        remove_tree(&root, &|| true).unwrap();
        assert!(root.join("7/read-only").exists());
        for number in 0..300 {
            let inner = root.join(format!("{number}/read-only"));
            fs::set_permissions(inner, fs::Permissions::from_mode(0o500)).unwrap();
        }
        remove_tree(&root, &|| false).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn a_removal_can_be_stopped_at_any_moment() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        for allowed in 0.. {
            fs::create_dir_all(root.join("a/b")).unwrap();
            for name in ["a/b/x", "a/b/y", "a/x", "y"] {
                fs::write(root.join(name), "").unwrap();
            }
            let calls = Cell::new(0);
            let is_stopped = || calls.replace(calls.get() + 1) >= allowed;
            remove_tree(&root, &is_stopped).unwrap();
            if !root.exists() {
                assert!(allowed > 5);
                break;
            }
        }
    }

    #[test]
    fn the_folder_into_which_one_was_moved_meanwhile_stays_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let [root, other] = ["root", "other"].map(|name| place.path().join(name));
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
        let calls = Cell::new(0);
        // It looks at `a`, at `b` in it, and at `c` in that, twice each.
        let move_away = || {
            if calls.replace(calls.get() + 1) == 4 {
                fs::rename(root.join("a/b"), other.join("b")).unwrap();
            }
            false
        };
        assert!(remove_tree(&root, &move_away).is_err());
        assert!(calls.get() > 4 && other.join("b").exists());
        assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o755);
    }
}
