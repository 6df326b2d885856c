//! The runtime of the programs that serve a client.

use std::io;
use std::time::Duration;

use tokio::runtime::Builder;

/// How long an idle thread for blocking work is kept: for good.
const KEEP_ALIVE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long blocking calls may take to end after everything else has ended.
const BLOCKING_TIMEOUT: Duration = Duration::from_millis(50);

/// Serves on a runtime of its own. One thread is enough for I/O; slow work goes to the blocking pool. A blocking call
/// that hangs, for example on a dead network disk, does not delay the exit.
///
/// The pool keeps its threads. If the system lets this user start no more of them, work waits for one of
/// those; without any it would fail.
pub(crate) fn run(serving: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime =
        Builder::new_current_thread().enable_all().thread_keep_alive(KEEP_ALIVE).build()?;
    runtime.spawn_blocking(|| ());
    let result = runtime.block_on(serving);
    runtime.shutdown_timeout(BLOCKING_TIMEOUT);
    result
}
