//! Measures the agent on tasks of one's own, as `docs/eval.md` describes it for people. A trial is a child process of
//! the program, so the agent itself is not linked, and a crash or a kill of one trial is its own.
//!
//!   task         the folder that a task is, and the faults that one can have
//!   make         makes a task, and makes sure that its check proves something
//!   process      runs a program to its end, with bounds
//!   tree         the files that a trial starts from; `copies` moves files about without following links
//!   workplace    the program, settings and variables of all trials; `home` is the place of one
//!   trial        one trial, from the fresh tree to the verdict
//!   schedule     many trials: their order, the limits, the stop, going on
//!   results      the lines that are kept of trials; `summary` sums them up
//!   statistics   intervals, tests and medians
//!   table        the results for a terminal; `report` is the page, and `counts` the table of `turnwright stats`
//!   harbor       the tasks in the format of Harbor

mod copies;
pub mod counts;
pub mod harbor;
mod home;
pub mod make;
mod process;
pub mod report;
pub mod results;
pub mod schedule;
pub mod statistics;
pub mod summary;
pub mod table;
pub mod task;
mod tree;
mod trial;
pub mod workplace;

use std::io;

use turnwright_config::ConfigError;
use turnwright_store::StoreError;
use turnwright_types::error_text::io_error_text;

/// Why a command cannot go on. The text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Unusable(String),
    #[error("{}", io_error_text(.0))]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// The user has stopped it.
    #[error("stopped")]
    Stopped,
}

/// A result, or why the command cannot go on.
pub type EvalResult<T> = Result<T, EvalError>;
