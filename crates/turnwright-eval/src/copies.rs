//! Lists and copies the files of a tree, without following a symbolic link in it: an agent may have put one there.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use turnwright_types::private_file;
use turnwright_workspace::nofollow;

/// The files and links below a folder, as sorted relative paths, without the repository at its top, nor a file or link
/// that leads to one elsewhere: git would obey its settings. It lists neither folders nor special files: reading a FIFO
/// could block for ever. `GIT~1` is the short name of `.git` on Windows, which also ignores dots and blanks at the end.
pub(crate) fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        for entry in fs::read_dir(folder.join(&relative))? {
            let entry = entry?;
            let path = relative.join(entry.file_name());
            let kind = entry.file_type()?;
            let name = path.to_string_lossy().trim_end_matches(['.', ' ']).to_ascii_lowercase();
            match ([".git", "git~1"].contains(&name.as_str()), kind.is_dir()) {
                (false, true) => open.push(path),
                (false, false) if kind.is_file() || kind.is_symlink() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Copies a file or a link into a tree under the same relative path, in place of whatever is there. No part of the path
/// is followed out of the tree.
pub(crate) fn copy_into(from: &Path, tree: &Path, relative: &Path) -> io::Result<()> {
    let source = from.join(relative);
    let target = make_way(tree, relative)?;
    if source.is_symlink() {
        return nofollow::create_link(&fs::read_link(source)?, &target);
    }
    fs::copy(&source, &target).map(drop)
}

/// Writes a file of a tree, in place of whatever is at its path.
pub(crate) fn write_into(tree: &Path, relative: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let target = make_way(tree, relative)?;
    private_file::write(&target, bytes)?;
    nofollow::set_permission_bits(&fs::File::open(&target)?, mode)
}

/// Copies all files of a folder into a tree.
pub(crate) fn copy_all(from: &Path, tree: &Path) -> io::Result<()> {
    files_below(from)?.iter().try_for_each(|relative| copy_into(from, tree, relative))
}

/// Makes the folders above a path of the tree, removes what is at the path itself, and returns it. A link or a file in
/// place of a folder is removed.
fn make_way(tree: &Path, relative: &Path) -> io::Result<PathBuf> {
    if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::Error::other(format!("{} leads elsewhere", relative.display())));
    }
    let mut place = tree.to_path_buf();
    for part in relative.parent().into_iter().flat_map(Path::components) {
        place.push(part);
        if place.is_symlink() || !place.is_dir() {
            remove(&place)?;
            fs::create_dir(&place)?;
        }
    }
    let target = tree.join(relative);
    remove(&target)?;
    Ok(target)
}

/// Removes a file, a link, or a folder with all that is in it. A missing one is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        _ => private_file::remove(path).map(drop),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_in_order_without_the_repository() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a/c", ".git/config", "a/.git/x"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let listed = files_below(folder.path()).unwrap();
        assert_eq!(listed, ["a/.git/x", "a/c", "b"].map(PathBuf::from));
    }

    #[test]
    fn git_is_led_to_no_repository_that_a_task_brings() {
        for name in [".git", ".Git/config", "GIT~1/config"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "gitdir: other").unwrap();
            assert!(files_below(folder.path()).unwrap().is_empty(), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_tree_is_replaced_and_not_followed() {
        let [from, tree, outside] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("tests")).unwrap();
        fs::write(from.path().join("tests/a"), "good").unwrap();
        std::os::unix::fs::symlink(outside.path(), tree.path().join("tests")).unwrap();
        copy_all(from.path(), tree.path()).unwrap();
        assert_eq!(fs::read_to_string(tree.path().join("tests/a")).unwrap(), "good");
        assert!(!tree.path().join("tests").is_symlink());
        assert!(fs::read_dir(outside.path()).unwrap().next().is_none());
    }

    #[test]
    fn no_path_leads_out_of_the_tree() {
        let folder = tempfile::tempdir().unwrap();
        assert!(make_way(folder.path(), Path::new("../x")).is_err());
        assert!(make_way(folder.path(), Path::new("/x")).is_err());
    }
}
