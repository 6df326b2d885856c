//! Tells which folders git takes for repositories.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// The entries of a folder by which git takes it for a repository, also without `.git`: `HEAD`, and `objects` and
/// `refs` or a file that names their folder. Each may be a link, also a dangling one.
#[derive(Clone, Copy, Debug, Default)]
pub struct GitLayout {
    has_head: bool,
    has_objects: bool,
    has_refs: bool,
    has_common_folder: bool,
}

impl GitLayout {
    /// The layout of a folder. Blocks.
    pub fn of(folder: &Path) -> GitLayout {
        let has = |name: &str| fs::symlink_metadata(folder.join(name)).is_ok();
        GitLayout {
            has_head: has("HEAD"),
            has_objects: has("objects"),
            has_refs: has("refs"),
            has_common_folder: has("commondir"),
        }
    }

    /// Notes the name of an entry.
    pub fn note(&mut self, name: &OsStr) {
        // Some file systems do not tell small letters from capital ones.
        self.has_head |= name.eq_ignore_ascii_case("HEAD");
        self.has_objects |= name.eq_ignore_ascii_case("objects");
        self.has_refs |= name.eq_ignore_ascii_case("refs");
        self.has_common_folder |= name.eq_ignore_ascii_case("commondir");
    }

    /// The layout of a folder with an entry of this name in addition to the ones on the disk. Blocks.
    pub fn with_entry(folder: &Path, name: &OsStr) -> GitLayout {
        let mut layout = GitLayout::of(folder);
        layout.note(name);
        layout
    }

    /// Returns true if git takes a folder with these entries for a repository.
    pub fn is_repository(self) -> bool {
        self.has_head && (self.has_common_folder || self.has_objects && self.has_refs)
    }
}
