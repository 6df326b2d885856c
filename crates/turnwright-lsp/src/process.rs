//! The process of a server: always in the sandbox, without network, and without write access to the project. The
//! process may write only to its own cache folder and to a temporary folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::catalogue::LanguageServer;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_types::error_text::io_error_text;
use turnwright_types::text;
use turnwright_workspace::exec::{
    Environment, PipedProgram, ProcessGroup, ProcessPipes, find_in_path,
};
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The time that a server has to exit after it was told to, and then again after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_millis(400);
/// Variables that name the cache folders of build tools, with the names of the folders.
const CACHES: [(&str, &str); 3] =
    [("CARGO_TARGET_DIR", "target"), ("GOCACHE", "go-build"), ("XDG_CACHE_HOME", "xdg")];

/// Finds the program of a server. Blocks.
pub fn find_program(spec: &LanguageServer, environment: &Environment) -> Option<PathBuf> {
    // An absolute path remains the same in every folder of `PATH`.
    find_in_path(Path::new(&spec.command), environment.get("PATH"))
}

/// Everything that is needed to start a server's process.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) spec: Arc<LanguageServer>,
    pub(crate) program: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) environment: Environment,
    /// The sandbox profile of the session's servers. Its writable paths are replaced before the start.
    pub(crate) profile: SandboxProfile,
    /// The server's own folder.
    pub(crate) cache: PathBuf,
    /// The most bytes of memory that the process may use, including those that it has started.
    pub(crate) memory: u64,
}

impl Launch {
    /// Makes the server's folders and the description of its process. Blocks.
    fn prepare(self) -> Result<(PipedProgram, PrivateTempFolder), String> {
        turnwright_sandbox::namespace_support();
        std::fs::create_dir_all(&self.cache)
            .map_err(|error| format!("its folder cannot be made: {}", io_error_text(&error)))?;
        let cache = real_path(&self.cache).map_err(|error| error.to_string())?;
        let temp = PrivateTempFolder::create()
            .map_err(|error| format!("its temporary folder cannot be made: {error}"))?;
        let temp_path = real_path(temp.path()).map_err(|error| error.to_string())?;
        let mut environment = self.environment.for_sandbox();
        for (name, folder) in CACHES {
            environment = environment.with(name, cache.join(folder));
        }
        for name in ["TMPDIR", "TMP", "TEMP"] {
            environment = environment.with(name, temp_path.clone());
        }
        for (name, value) in &self.spec.environment {
            environment = environment.with(name, value);
        }
        let profile = SandboxProfile {
            writable: vec![cache, temp_path],
            read_only: Vec::new(),
            caches: Vec::new(),
            layers: Vec::new(),
            network: Network::Off,
            ..self.profile
        };
        let words = self.spec.arguments.iter().map(OsString::from);
        let program = PipedProgram {
            command_line: std::iter::once(self.program.into_os_string()).chain(words).collect(),
            workdir: self.root,
            environment,
            sandbox: Some(profile),
        };
        Ok((program, temp))
    }
}

/// A running server process. On drop, it and all processes that it has started are killed.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    group: ProcessGroup,
    temp: PrivateTempFolder,
}

impl ServerProcess {
    /// Starts the process.
    ///
    /// # Errors
    /// Returns the reason, as part of a sentence, if the process cannot be started.
    pub(crate) async fn start(launch: Launch) -> Result<(ServerProcess, ProcessPipes), String> {
        let preparing = spawn_blocking(move || launch.prepare());
        let (program, temp) =
            preparing.await.map_err(|_| "it could not be prepared".to_owned())??;
        let (group, pipes) = ProcessGroup::start_piped(&program)
            .await
            .map_err(|error| format!("it could not be started: {}", io_error_text(&error)))?;
        Ok((ServerProcess { group, temp }, pipes))
    }

    /// Waits until the process has ended or uses too much memory. Returns the reason, as part of a sentence.
    pub(crate) async fn ended(&mut self, memory: u64) -> String {
        let too_much = self.group.memory_above(Some(memory));
        tokio::select! {
            bytes = too_much => {
                format!("it held {} of memory, more than it may", text::format_bytes(bytes))
            }
            exit = self.group.wait_for_end() => format!("it ended ({exit})"),
        }
    }

    /// Ends the process, which has already been told to exit.
    pub(crate) async fn stop(self) {
        self.group.stop_after(EXIT_TIMEOUT, EXIT_TIMEOUT).await;
        let temp = self.temp;
        spawn_blocking(move || drop(temp)).await.ok();
    }
}
