//! The commands that a person uses in a terminal, without the command line that names them, and without the agent: that
//! is started by whoever runs [`TerminalRun`].
//!
//! A run is a client of the agent, and shows its answers and questions. [`login()`] and [`logout`] ask for what is
//! stored, `SandboxedCommand` runs a command as the agent does, `check_sandbox` tries to break out of the sandbox, and
//! [`check_agent`] plays an editor, and [`doctor`] has what else is checked. [`sessions`], [`history`] and [`undo`] work
//! on what is stored, [`policy`] and [`trust`] on what is allowed, and [`settings`] on the user's file. [`prompt`] asks
//! questions, and [`scrub()`] removes keys from what is given away.

mod agent_check;
pub mod doctor;
pub mod history;
mod login;
mod outcome;
pub mod policy;
pub mod prompt;
mod run;
#[cfg(unix)]
mod sandbox;
mod scrub;
pub mod sessions;
pub mod settings;
pub mod trust;
pub mod undo;

use std::io;

use tokio::runtime::{Builder, Runtime};

pub use agent_check::check_agent;
pub use login::{login, logout};
pub use outcome::{CliError, exit_code, print, report, write_stdout};
pub use run::{RunOptions, SessionPlan, TerminalRun};
#[cfg(unix)]
pub use sandbox::{SandboxReport, SandboxedCommand, TestedAttempt, check_sandbox, run_for_agent};
pub use scrub::{scrub, write_without_keys};

/// Builds the runtime.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Waits for requests on a runtime of their own. What still blocks a thread afterwards, such as looking up
/// a name, is not waited for.
pub fn block_on<T>(requests: impl Future<Output = T>) -> io::Result<T> {
    let runtime = runtime()?;
    let result = runtime.block_on(requests);
    runtime.shutdown_background();
    Ok(result)
}
