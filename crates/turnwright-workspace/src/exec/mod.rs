//! Runs shell commands, each in a process group of its own, without the agent's file descriptors
//! and secrets, with bounded memory for output, and ended as a group on every path. Each command is
//! a job whose task reads its output whether or not anybody waits for it.

mod terminal_text;
mod command_process;
mod default_caches;
mod environment;
mod group;
mod job;
mod jobs;
#[cfg(unix)]
mod launch;
#[cfg(unix)]
mod launcher_link;
#[cfg(target_os = "linux")]
mod memory_limit;
mod output;
mod piped;
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

use std::path::PathBuf;
use std::sync::Arc;

use turnwright_sandbox::{SandboxProfile, SessionNetwork};
use turnwright_types::shell_script::ShellDialect;

pub use default_caches::{DEFAULT_CACHES, DefaultCache, default_cache};
pub use environment::{Environment, is_secret_name};
pub use group::ProcessGroup;
pub use job::{CommandExit, EndReason, Job, JobEnd, OutputSink, RunningCommand, Signal};
pub use jobs::{JobSlot, Jobs, RunningJobs};
#[cfg(unix)]
pub use launch::{LaunchError, LaunchSource, launch};
#[cfg(unix)]
pub use launcher_link::{NONCE_VARIABLE, SOCKET_VARIABLE};
pub use memory_limit::{MemoryMeter, default_memory_limit};
pub use output::{CommandOutput, OutputExcerpt, excerpt};
pub use piped::{ActivitySample, PipedProgram, ProcessPipes, ProgramActivity};
#[cfg(unix)]
pub use signal_action::ignore_file_size_signal;
#[cfg(unix)]
pub use terminal::{TerminalRun, TerminalStartError, is_editor_remote, launcher_program};

/// Systems other than Linux: none says what the processes of a command hold.
#[cfg(not(target_os = "linux"))]
mod memory_limit {
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

/// A command to run.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The command line, for the shell.
    pub command: String,
    /// The absolute path of its working folder.
    pub workdir: PathBuf,
    pub environment: Environment,
    /// True if it can be given input; otherwise its stdin is empty.
    pub accepts_input: bool,
    /// Additional variables for this command.
    pub extra_variables: Vec<(&'static str, String)>,
    /// Its confinement; `None` to run it unconfined.
    pub sandbox: Option<SandboxProfile>,
    /// The private network that it shares with other commands.
    pub network: Option<Arc<SessionNetwork>>,
}

impl CommandSpec {
    /// The temporary folders that the command has for itself and others of its session.
    pub fn temp_folder(&self) -> Vec<PathBuf> {
        let variable = self.extra_variables.iter().find(|(name, _)| *name == "TMPDIR");
        let named = variable.map(|(_, path)| PathBuf::from(path));
        let tmp = self.sandbox.as_ref().and_then(|profile| profile.private_tmp.as_ref());
        named.into_iter().chain(tmp.map(|tmp| tmp.folder.clone())).collect()
    }
}

/// The dialect of the shell that runs commands.
pub fn dialect() -> ShellDialect {
    if cfg!(windows) {
        ShellDialect::Cmd
    } else if group::has_bash() {
        ShellDialect::Bash
    } else {
        ShellDialect::Posix
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
#[cfg(windows)]
#[cfg(test)]
mod windows_tests;
