//! The runtime of the programs that serve a client.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// How long an idle thread for blocking work is kept: for good.
const KEEP_ALIVE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Builds the runtime. One thread is enough for I/O; slow work goes to the blocking pool.
///
/// The pool keeps its threads. If the system lets this user start no more of them, work waits for one of
/// those; without any it would fail.
pub(crate) fn build() -> io::Result<Runtime> {
    let runtime =
        Builder::new_current_thread().enable_all().thread_keep_alive(KEEP_ALIVE).build()?;
    runtime.spawn_blocking(|| ());
    Ok(runtime)
}
