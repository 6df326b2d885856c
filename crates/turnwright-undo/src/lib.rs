//! Undoes and redoes the file changes of earlier turns: planning (pure) and execution, and what people are told about
//! them. Only paths that a turn has changed are touched, and only if they are still as that turn left them.
//!
//! An [`UndoContext`] plans and executes; its [`UndoReport`] says what became of each file. [`turn_changes`] are the
//! changes of turns as diffs.

mod apply;
mod context;
mod diff;
mod plan;
mod report;

use tokio_util::sync::CancellationToken;

use turnwright_store::{SessionLog, Store};
use turnwright_types::ids::SessionId;
use turnwright_workspace::files::Files;

pub use context::{UndoRequest, undo_news};
pub use diff::{DiffLimits, DiffSide, unified_diff};
pub use plan::{UndoAction, UndoHistory, UndoPlan, UndoStep, UndoneTurns, is_same_file};
pub use report::{
    ChangeScope, ChangedFile, TurnChanges, UndoReport, one_line_excerpt, turn_changes, turn_list,
};

/// Everything that an undo works with.
#[derive(Clone)]
pub struct UndoContext {
    pub store: Store,
    /// The session's log, in which the turn has begun.
    pub log: SessionLog,
    pub files: Files,
    pub session: SessionId,
    /// Stops the undo between two files.
    pub cancel: CancellationToken,
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
