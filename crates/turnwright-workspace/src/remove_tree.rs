//! Removes folders that commands have filled, however deep they are: without recursion, and with two open descriptors.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

/// How the names begin that inner folders get when they are moved to the outermost one.
const MOVED_PREFIX: &str = ".turnwright-removed-";

/// Removes a folder and everything in it, until `is_stopped` returns true. Follows no link. Blocks.
///
/// # Errors
/// If the folder is a link or something in it cannot be removed.
pub fn remove_tree(folder: &Path, is_stopped: &impl Fn() -> bool) -> io::Result<()> {
    let root = open_folder(CWD, folder)?;
    let mut moved = 0;
    loop {
        let names = names_in(root.as_fd())?;
        if names.is_empty() {
            break;
        }
        for name in names {
            if is_stopped() {
                return Ok(());
            }
            remove_entry(root.as_fd(), &name, &mut moved)?;
        }
    }
    Ok(rustix::fs::rmdir(folder)?)
}

/// Removes an entry of the outermost folder. The folders in it become entries of the outermost one.
fn remove_entry(root: BorrowedFd<'_>, name: &CString, moved: &mut u64) -> io::Result<()> {
    if unlink(root, name)? {
        return Ok(());
    }
    let inner = open_folder(root, name)?;
    for child in names_in(inner.as_fd())? {
        if !unlink(inner.as_fd(), &child)? {
            move_to(root, inner.as_fd(), &child, moved)?;
        }
    }
    Ok(rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR)?)
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

fn move_to(
    root: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    name: &CString,
    moved: &mut u64,
) -> io::Result<()> {
    loop {
        *moved += 1;
        match rustix::fs::renameat(folder, name, root, format!("{MOVED_PREFIX}{moved}")) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            // The entry `..` of a folder that nobody may write cannot be changed.
            Err(Errno::ACCESS) if open_folder(folder, name).is_ok() => {
                rustix::fs::renameat(folder, name, root, format!("{MOVED_PREFIX}{moved}"))?;
                return Ok(());
            }
            done => return Ok(done?),
        }
    }
}

/// Opens a folder and makes sure that its entries can be removed.
fn open_folder(place: impl AsFd, name: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(&place, name, how, Mode::empty()) {
        Err(Errno::ACCESS) => {
            make_accessible(place.as_fd(), name)?;
            rustix::fs::openat(&place, name, how, Mode::empty())?
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

fn names_in(folder: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
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
        // A name that a moved folder could get.
        fs::create_dir_all(root.join(format!("{MOVED_PREFIX}1/x/y"))).unwrap();
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
        for _ in 0..40_000 {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = open_folder(&folder, "d").unwrap();
        }
        remove_tree(&root, &|| false).unwrap();
        assert!(!root.exists());
    }
}
