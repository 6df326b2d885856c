//! Runs shell commands, each in a process group of its own, without the agent's file descriptors
//! and secrets, with bounded memory for output, and ended as a group on every path. Each command is
//! a job whose task reads its output whether or not anybody waits for it.

mod terminal_text;
mod command_process;
mod default_caches;
mod environment;
#[cfg(unix)]
mod file_limit;
mod group;
mod job;
mod jobs;
#[cfg(unix)]
mod launch;
#[cfg(unix)]
mod launcher_link;
mod output;
mod piped;
mod program_search;
#[cfg(unix)]
mod signal_action;
#[cfg(target_os = "linux")]
mod descendants;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod watchdog;
#[cfg(windows)]
mod windows_group;

pub use default_caches::{DEFAULT_CACHES, DefaultCache, default_caches};
pub use descendants::{MemoryMeter, default_memory_limit};
pub use environment::{
    COMMON_GIT_SETTINGS, Environment, GIT_SETTING_COUNT, add_git_setting, is_secret_name,
};
#[cfg(unix)]
pub use file_limit::raise_file_limit;
pub use group::{CommandSpec, ProcessGroup, dialect};
pub use job::{CommandExit, EndReason, Job, JobEnd, OutputSink, RunningCommand, Signal};
pub use jobs::{JobSlot, Jobs, RunningJobs};
#[cfg(unix)]
pub use launch::{LaunchError, LaunchSource, launch};
#[cfg(unix)]
pub use launcher_link::{NONCE_VARIABLE, SOCKET_VARIABLE};
pub use output::{CommandOutput, OutputExcerpt, excerpt};
pub use piped::{ActivitySample, PipedProgram, ProcessPipes, ProgramActivity};
pub use program_search::{find_in_path, is_program, launcher_program, program_at};
#[cfg(unix)]
pub use signal_action::ignore_file_size_signal;
#[cfg(unix)]
pub use terminal::{TerminalRun, TerminalStartError, is_editor_remote};

/// Systems other than Linux: none says what the processes of a command hold.
#[cfg(not(target_os = "linux"))]
mod descendants {
    /// There are no values of this type.
    pub use std::convert::Infallible as MemoryMeter;

    /// Waits for ever.
    pub(super) async fn wait_until_above(_: Option<MemoryMeter>, _: Option<u64>) -> u64 {
        std::future::pending().await
    }

    /// There is none.
    pub fn default_memory_limit() -> Option<u64> {
        None
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
#[cfg(windows)]
#[cfg(test)]
mod windows_tests;
