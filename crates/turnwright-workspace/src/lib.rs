//! The work of a coding agent on the user's machine: reading, searching and editing files, running
//! commands, fetching web pages, loading notes and skills, and tracking which files have changed.

pub mod fixed_places;
pub mod git_repository;
#[cfg(unix)]
pub mod listed_home;
pub mod nofollow;
mod real_path;
#[cfg(unix)]
pub mod remove_tree;
#[cfg(not(unix))]
pub mod remove_tree {
    /// Removes a folder and everything in it, and is not stopped on the way. Blocks.
    pub fn remove_tree(
        folder: &std::path::Path,
        _is_stopped: &impl Fn() -> bool,
    ) -> std::io::Result<()> {
        std::fs::remove_dir_all(folder)
    }
}
pub mod search;
pub mod files;
pub mod edit;
pub mod exec;
pub mod temp_folder;
pub mod markup;
pub mod web;
pub mod memory;
pub mod custom_commands;
pub mod skills;
pub mod helper_types;
pub mod markers;
pub mod surroundings;
pub mod tool_versions;
pub mod checkpoint;

pub use real_path::{FolderNames, RealPaths, has_other_letters, real_path};
