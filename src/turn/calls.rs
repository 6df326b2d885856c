//! Runs the tool calls of an answer: what may run beside what, each call's permission, its card, and
//! the files that it changes.

pub(super) mod admission_queue;
pub(super) mod audit;
pub(super) mod batch;
pub(super) mod cancellable_calls;
pub(super) mod cards;
pub(super) mod conflicts;
pub(super) mod file_change_recorder;
mod hidden_secrets;
mod kept_call;
pub(super) mod results;
pub(super) mod runner;
pub(super) mod standalone;
