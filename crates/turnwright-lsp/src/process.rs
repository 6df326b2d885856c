//! The process of a server, and the session that it runs in: always in the sandbox, without network, and without write
//! access to the project. The process may write only to its own cache folder and to a temporary folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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

/// Decides which servers may run in a session, and in which sandbox.
pub trait LanguageGate: std::fmt::Debug + Send + Sync {
    /// Returns the sandbox profile for this server; `None` if there is no sandbox, or if the server may not be started
    /// for the project in this folder of the session. Blocks.
    fn profile(&self, server: &LanguageServer, folder: &Path) -> Option<SandboxProfile>;
}

/// The environment that a session provides for its servers.
#[derive(Debug)]
pub struct LanguageSite {
    /// The folders of the session, as real paths.
    pub folders: Vec<PathBuf>,
    pub environment: Environment,
    /// The folder below which servers may write.
    pub cache: PathBuf,
    /// The most bytes of memory that one server may use, including the processes that it has started.
    pub memory: u64,
    /// The user's servers, which take precedence over the built-in ones.
    pub configured: Vec<LanguageServer>,
    pub gate: Arc<dyn LanguageGate>,
    pub stop: CancellationToken,
    pub tracker: TaskTracker,
}

/// A server's process, ready to be started.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) spec: Arc<LanguageServer>,
    pub(crate) program: PipedProgram,
    pub(crate) temp: PrivateTempFolder,
    /// The most bytes of memory that the process may use, including those that it has started.
    pub(crate) memory: u64,
}

impl LanguageSite {
    /// Prepares the process of a server for a file; `None` if it may not or cannot be started. Blocks.
    pub(crate) fn prepare(&self, spec: &LanguageServer, file: &Path) -> Option<Launch> {
        let folder = self.folders.iter().find(|folder| file.starts_with(folder))?;
        let program = find_program(spec, &self.environment)?;
        // A program inside the project may not stand in for a built-in server that the user has installed.
        let real = real_path(&program).ok()?;
        if !spec.is_configured && self.folders.iter().any(|folder| real.starts_with(folder)) {
            return None;
        }
        let workdir = spec.root(file, folder)?;
        let profile = self.gate.profile(spec, folder)?;
        turnwright_sandbox::namespace_support();
        let own = self.cache.join(folder_name(&spec.name));
        std::fs::create_dir_all(&own).ok()?;
        let cache = real_path(&own).ok()?;
        let temp = PrivateTempFolder::create().ok()?;
        let temp_path = real_path(temp.path()).ok()?;
        let mut environment = self.environment.for_sandbox().with_temp_folder(&temp_path);
        for (name, folder) in CACHES {
            environment = environment.with(name, cache.join(folder));
        }
        if spec.language(Path::new("a.py")).is_some() {
            environment = with_virtual_environment(environment, file, &workdir);
        }
        for (name, value) in &spec.environment {
            environment = environment.with(name, value);
        }
        let sandbox = Some(SandboxProfile {
            writable: vec![cache, temp_path],
            read_only: Vec::new(),
            caches: Vec::new(),
            layers: Vec::new(),
            network: Network::Off,
            ..profile
        });
        let words = spec.arguments.iter().map(OsString::from);
        let command_line = std::iter::once(program.into_os_string()).chain(words).collect();
        Some(Launch {
            spec: Arc::new(spec.clone()),
            program: PipedProgram { command_line, workdir, environment, sandbox },
            temp,
            memory: self.memory,
        })
    }
}

/// Returns the name of a server's folder, without characters that have a meaning in paths.
fn folder_name(server: &str) -> String {
    let chars = server.chars().take(64);
    chars.map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect()
}

/// Activates the virtual environment of a file in Python that is nearest to it in its project, unless the user has
/// activated one: pyright asks the first `python3` in `PATH` for its packages. Blocks.
fn with_virtual_environment(environment: Environment, file: &Path, root: &Path) -> Environment {
    let places = file.ancestors().skip(1).take_while(|place| place.starts_with(root));
    let mut folders = places.flat_map(|place| [".venv", "venv"].map(|name| place.join(name)));
    let found = folders.find(|folder| folder.join("pyvenv.cfg").is_file());
    let Some(folder) = found.filter(|_| environment.get("VIRTUAL_ENV").is_none()) else {
        return environment;
    };
    let usual = environment.get("PATH").map(std::env::split_paths).into_iter().flatten();
    let joined = std::env::join_paths(std::iter::once(folder.join("bin")).chain(usual));
    match joined {
        Ok(path) => environment.with("PATH", path).with("VIRTUAL_ENV", folder),
        Err(_) => environment,
    }
}

impl Launch {
    /// Starts the process. On drop of the group, it and all processes that it has started are killed.
    ///
    /// # Errors
    /// Returns the reason, as part of a sentence, if the process cannot be started.
    pub(crate) async fn start(&self) -> Result<(ProcessGroup, ProcessPipes), String> {
        let started = ProcessGroup::start_piped(&self.program).await;
        started.map_err(|error| format!("it could not be started: {}", io_error_text(&error)))
    }

    /// Waits until the process has ended or uses too much memory. Returns the reason, as part of a sentence.
    pub(crate) async fn ended(&self, group: &mut ProcessGroup) -> String {
        let too_much = group.memory_above(Some(self.memory));
        tokio::select! {
            bytes = too_much => {
                format!("it held {} of memory, more than it may", text::format_bytes(bytes))
            }
            exit = group.wait_for_end() => format!("it ended ({exit})"),
        }
    }

    /// Ends the process, which has already been told to exit.
    pub(crate) async fn stop(self, group: ProcessGroup) {
        group.stop_after(EXIT_TIMEOUT, EXIT_TIMEOUT).await;
        let temp = self.temp;
        spawn_blocking(move || drop(temp)).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    #[test]
    fn servers_for_python_find_the_packages_of_the_project() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let usual = Environment::default().with("PATH", "/usr/bin:/bin");
        let file = root.join("svc/app/main.py");
        let none = with_virtual_environment(usual.clone(), &file, root);
        assert_eq!((none.get("PATH"), none.get("VIRTUAL_ENV")), (usual.get("PATH"), None));
        let own = root.join(".venv");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        let found = with_virtual_environment(usual.clone(), &file, root);
        let expected = OsString::from(format!("{}/bin:/usr/bin:/bin", own.display()));
        assert_eq!(found.get("PATH"), Some(expected.as_os_str()));
        assert_eq!(found.get("VIRTUAL_ENV"), Some(own.as_os_str()));
        let active = usual.clone().with("VIRTUAL_ENV", "/other");
        let kept = with_virtual_environment(active, &file, root);
        assert_eq!(kept.get("PATH"), usual.get("PATH"));
        // A part of the project may have packages of its own.
        let nearest = root.join("svc/venv");
        std::fs::create_dir_all(&nearest).unwrap();
        std::fs::write(nearest.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        let found = with_virtual_environment(usual, &file, root);
        assert_eq!(found.get("VIRTUAL_ENV"), Some(nearest.as_os_str()));
    }

    #[test]
    fn the_folder_of_a_server_has_no_path_in_its_name() {
        assert_eq!(folder_name("../a b/c"), "---a-b-c");
        assert_eq!(folder_name(&"x".repeat(999)).len(), 64);
    }
}
