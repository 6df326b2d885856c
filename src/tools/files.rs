//! The tools that read, find and change files.

mod apply_patch;
mod delete_path;
mod edit_common;
mod edit_file;
mod find_files;
mod grep;
mod list_dir;
mod move_path;
mod read_file;
mod search_common;
mod write_file;

use turnwright_types::effect::{Location, ResolvedPath};
use turnwright_workspace::files::Roots;

pub(super) use apply_patch::ApplyPatch;
pub(super) use delete_path::DeletePath;
pub(crate) use edit_common::{current_place, edited_path};
pub(super) use edit_common::{refusal_of_home_path, refusal_of_other_machine};
pub(super) use edit_file::EditFile;
pub(super) use find_files::FindFiles;
pub(super) use grep::Grep;
pub(super) use list_dir::ListDir;
pub(super) use move_path::MovePath;
pub(super) use read_file::ReadFile;
pub(super) use write_file::WriteFile;

/// The places that a card links to.
fn locations(roots: &Roots, targets: &[ResolvedPath], line: Option<u32>) -> Vec<Location> {
    targets.iter().map(|target| Location { path: roots.client_path(target), line }).collect()
}
