//! The work of a coding agent on the user's machine: reading, searching and editing files, running
//! commands, fetching web pages, loading notes and skills, and tracking which files have changed.

pub mod fixed_places;
pub mod git_repository;
pub mod nofollow;
mod real_path;
#[cfg(unix)]
pub mod remove_tree;
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

pub use real_path::{FolderNames, RealPaths, real_path};
