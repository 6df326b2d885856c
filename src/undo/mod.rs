//! Undoes and redoes the file changes of earlier turns: planning (pure) and execution. Only paths
//! that a turn has changed are touched, and only if they are still as that turn left them.

mod apply;
mod diff;
mod undo_history;
mod file_state;
mod plan;

pub(crate) use apply::{RestoreResult, apply};
pub(crate) use diff::{DiffLimits, DiffSide, unified_diff};
pub(crate) use file_state::file_state;
pub(crate) use plan::{
    MAX_KEPT_BYTES, UndoAction, UndoStep, is_same_state, net_changes, plan_undo,
};
pub(crate) use undo_history::UndoHistory;

#[cfg(test)]
#[cfg(unix)]
mod tests;
