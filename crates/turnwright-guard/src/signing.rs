//! Signatures of git for commands in the sandbox. A command's git runs this program in place of the signing program;
//! it passes the payload to the agent, which runs the user's own program outside the sandbox. So the command reaches
//! neither a key nor a key agent.
//!
//! Each command that may sign has a folder with a socket and a link to this program for each format.

#[cfg(unix)]
mod service;
#[cfg(unix)]
mod signer;
#[cfg(unix)]
mod user_programs;
#[cfg(unix)]
pub mod wire;

#[cfg(unix)]
pub use service::SigningService;
#[cfg(not(unix))]
pub use unsupported::NoSigning as SigningService;

/// Systems without a sandbox run git as it is.
#[cfg(not(unix))]
mod unsupported {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use turnwright_workspace::exec::Environment;
    use turnwright_workspace::fixed_places::OpenedPlaces;

    #[derive(Debug)]
    pub enum NoSigning {}

    impl NoSigning {
        pub fn create(
            _: &Environment,
            _: &Path,
            _: Vec<PathBuf>,
            _: Arc<OpenedPlaces>,
        ) -> io::Result<NoSigning> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn places(&self) -> [PathBuf; 3] {
            match *self {}
        }

        pub fn variables(&self) -> Vec<(&'static str, String)> {
            match *self {}
        }

        #[expect(clippy::unused_async, reason = "it waits on other systems")]
        pub async fn serve(self) {
            match self {}
        }
    }
}
