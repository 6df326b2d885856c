//! The harm that commands can do: `destructive` ones destroy or publish something irrecoverably, or would stop or ruin
//! the whole system and are never run; `ruin` decides whether one could destroy more than the files of a project.
//! `targets` finds the paths that a command deletes, changes or overwrites, and knows those that no command of a project
//! has a reason to destroy.

pub(super) mod destructive;
pub(super) mod ruin;
pub(super) mod targets;

#[cfg(test)]
mod ruin_tests;
