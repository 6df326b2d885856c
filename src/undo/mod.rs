//! Undoes and redoes the file changes of earlier turns: planning (pure) and execution. Only paths
//! that a turn has changed are touched, and only if they are still as that turn left them.

mod apply;
mod diff;
mod plan;

pub(crate) use apply::{RestoreResult, apply, file_state};
pub(crate) use diff::{DiffLimits, DiffSide, unified_diff};
pub(crate) use plan::{
    MAX_KEPT_BYTES, UndoAction, UndoHistory, UndoStep, is_same_state, net_changes, plan_undo,
};

#[cfg(test)]
#[cfg(unix)]
mod tests;
