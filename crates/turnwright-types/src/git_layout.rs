//! Tells which folders git takes for repositories.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const ENTRIES: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// The entries of a folder by which git takes it for a repository, also without `.git`: `HEAD`, and `objects` and
/// `refs` or a file that names their folder. Each may be a link, also a dangling one.
#[derive(Clone, Copy, Debug, Default)]
pub struct GitLayout {
    /// True for each of [`ENTRIES`] that is there.
    has: [bool; 4],
}

impl GitLayout {
    /// The layout of a folder. Blocks.
    pub fn of(folder: &Path) -> GitLayout {
        GitLayout { has: ENTRIES.map(|name| fs::symlink_metadata(folder.join(name)).is_ok()) }
    }

    /// Notes the name of an entry.
    pub fn note(&mut self, name: &OsStr) {
        for (has, entry) in self.has.iter_mut().zip(ENTRIES) {
            // Some file systems do not tell small letters from capital ones.
            *has |= name.eq_ignore_ascii_case(entry);
        }
    }

    /// The layout of a folder with an entry of this name in addition to the ones on the disk. Blocks.
    pub fn with_entry(folder: &Path, name: &OsStr) -> GitLayout {
        let mut layout = GitLayout::of(folder);
        layout.note(name);
        layout
    }

    /// Returns true if git takes a folder with these entries for a repository.
    pub fn is_repository(self) -> bool {
        let [has_head, has_objects, has_refs, has_common_folder] = self.has;
        has_head && (has_common_folder || has_objects && has_refs)
    }
}
