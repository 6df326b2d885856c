//! The tools that run commands.

mod exec;
mod exec_output;
mod live_output;
mod patch_command;

pub(super) use exec::Exec;
pub(super) use exec_output::ExecOutput;
pub(crate) use exec_output::is_waiting;
pub(super) use live_output::OpenTerminals;
pub(crate) use patch_command::patch_call;
