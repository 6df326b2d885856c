//! The commands that a person uses in a terminal, without the command line that names them, and without the agent: that
//! is started by whoever runs [`TerminalRun`].
//!
//! A run is a client of the agent, and shows its answers and questions. [`login()`] and [`logout`] ask for what is
//! stored, `run_in_sandbox` runs a command as the agent does, [`doctor`] checks the sandbox and the model, and
//! [`check_agent`] plays an editor. [`sessions`], [`history`] and [`undo`] work
//! on what is stored, [`policy`] and [`trust`] on what is allowed, and [`settings`] on the user's file. [`prompt`] asks
//! questions.

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
use std::pin::pin;

use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

pub use agent_check::check_agent;
pub use login::{login, login_search, logout};
pub use outcome::{CliError, CliResult, exit_code, print, report, write_stdout};
pub use run::{RunOptions, SessionPlan, TerminalRun, UNUSABLE};
#[cfg(unix)]
use sandbox::check_sandbox;
#[cfg(unix)]
pub use sandbox::{run_for_agent, run_in_sandbox};
use scrub::write_without_keys;

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

/// Waits for work as [`block_on`] does. A signal that ends programs, such as that of Ctrl-C, only cancels `stop`, which
/// asks the work to end.
pub fn block_on_with_stop<T>(
    stop: &CancellationToken,
    work: impl Future<Output = T>,
) -> io::Result<T> {
    block_on(async {
        let mut work = pin!(work);
        tokio::select! {
            ended = &mut work => return ended,
            () = turnwright_rpc::stop_signal() => stop.cancel(),
        }
        work.await
    })
}
