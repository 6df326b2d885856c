//! The runtime of a command that makes requests.

use std::io;

use tokio::runtime::{Builder, Runtime};

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
