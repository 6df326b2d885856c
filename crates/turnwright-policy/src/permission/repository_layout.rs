//! Tells which paths make a folder a repository of git without `.git`, or are obeyed in one.

use std::path::Path;

use super::protected_paths::GIT_PARTS;
use turnwright_types::git_layout::GitLayout;

/// The entries by which git takes a folder for a repository: those that nothing else has, and the others.
const MAKES_REPOSITORIES: &[&str] = &["HEAD", "commondir", "config.worktree"];
const PARTS_OF_LAYOUT: &[&str] = &["objects", "refs"];

/// Returns true if git would obey what is at a path below a root, because a folder above is a repository without
/// `.git`, or becomes one by the path. Looks at the disk, only for the few names that can make one or say what it runs.
pub(super) fn is_in_repository(path: &Path, root: &Path) -> bool {
    path.ancestors().take_while(|above| *above != root).any(|part| {
        let Some((folder, name)) = part.parent().zip(part.file_name()) else { return false };
        let is_same = |known: &&str| {
            name == *known || !cfg!(target_os = "linux") && name.eq_ignore_ascii_case(known)
        };
        let is_obeyed = GIT_PARTS.iter().any(is_same) && GitLayout::of(folder).is_repository();
        let is_completed = PARTS_OF_LAYOUT.iter().any(is_same)
            && !GitLayout::of(folder).is_repository()
            && GitLayout::with_entry(folder, name).is_repository();
        part == path && MAKES_REPOSITORIES.iter().any(is_same) || is_obeyed || is_completed
    })
}

#[cfg(test)]
mod tests {
    use crate::permission::ProtectedPaths;

    #[test]
    fn what_makes_a_folder_a_repository_or_is_obeyed_in_one_is_protected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        let protected = ProtectedPaths::new(vec![root.clone()], Vec::new());
        for path in ["bare/objects", "bare/refs", "bare/HEAD", "half/HEAD", "half/refs", "src"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        for (path, expected) in [
            ("sub/HEAD", true),
            ("sub/commondir", true),
            ("sub/config.worktree", true),
            ("half/objects/info/x", true),
            ("bare/config", true),
            ("bare/hooks/post-receive", true),
            ("bare/description", false),
            ("bare/objects/x", false),
            ("half/config", false),
            ("src/HEAD/x", false),
            ("src/config", false),
            ("src/hooks/useTheme.ts", false),
            ("src/refs/a", false),
        ] {
            let reason = protected.reason(&root.join(path));
            assert_eq!(reason.is_some(), expected, "{path}");
        }
    }
}
