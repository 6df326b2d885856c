//! The process of a server: always in the sandbox, without network, and without write access to the project. The
//! process may write only to its own cache folder and to a temporary folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::catalogue::LanguageServer;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_types::effect::escape_hidden;
use turnwright_types::error_text::io_error_text;
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_workspace::exec::{
    Environment, PipedProgram, ProcessGroup, ProcessPipes, find_in_path, is_program,
};
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The time that a server has to exit after it was told to, and then again after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_millis(400);
/// The most bytes of stderr that are kept, and the most characters of it that are shown.
const KEPT_BYTES: usize = 4 * 1024;
const SHOWN_CHARS: usize = 300;
/// Variables that keep build tools offline, and variables that name cache folders, with the names of the folders.
const OFFLINE: [(&str, &str); 3] =
    [("CARGO_NET_OFFLINE", "true"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")];
const CACHES: [(&str, &str); 3] =
    [("CARGO_TARGET_DIR", "target"), ("GOCACHE", "go-build"), ("XDG_CACHE_HOME", "xdg")];

/// Finds the program of a server. Blocks.
pub fn find_program(spec: &LanguageServer, environment: &Environment) -> Option<PathBuf> {
    let command = Path::new(&spec.command);
    if command.is_absolute() {
        return is_program(command).is_ok_and(|is_one| is_one).then(|| command.to_path_buf());
    }
    find_in_path(command, environment.get("PATH"))
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
        for (name, value) in OFFLINE {
            environment = environment.with(name, value);
        }
        for (name, folder) in CACHES {
            environment = environment.with(name, cache.join(folder));
        }
        for name in ["TMPDIR", "TMP", "TEMP"] {
            environment = environment.with(name, temp_path.clone());
        }
        if self.spec.language(Path::new("a.py")).is_some() {
            environment = with_virtual_environment(environment, &self.root);
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

/// Activates the virtual environment of a project in Python, unless the user has activated one: pyright asks the first
/// `python3` in `PATH` for its packages. Blocks.
fn with_virtual_environment(environment: Environment, root: &Path) -> Environment {
    let mut folders = [".venv", "venv"].into_iter().map(|name| root.join(name));
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

/// Reads stderr to its end and keeps its last bytes.
pub(crate) async fn keep_tail(
    mut pipe: impl AsyncRead + Unpin + Send + 'static,
    kept: watch::Sender<Vec<u8>>,
) {
    let mut buffer = vec![0; KEPT_BYTES];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        kept.send_modify(|kept| {
            kept.extend_from_slice(&buffer[..count]);
            let surplus = kept.len().saturating_sub(KEPT_BYTES);
            kept.drain(..surplus);
        });
    }
}

/// Appends the last line that the server printed to the reason why it ended.
pub(crate) fn with_tail(why: String, stderr: &[u8]) -> String {
    let all = redact::text(&String::from_utf8_lossy(stderr)).into_owned();
    match all.lines().rev().find(|line| !line.trim().is_empty()) {
        None => why,
        Some(line) => {
            let shown = escape_hidden(text::first_chars(line.trim(), SHOWN_CHARS));
            format!("{why}. It printed: {shown}")
        }
    }
}

/// Makes a server's text fit into a sentence: one bounded line without secrets and hidden characters.
pub(crate) fn shown_words(words: &str) -> String {
    let known = redact::text(text::prefix(words, KEPT_BYTES));
    escape_hidden(text::first_chars(&text::one_line(&known), SHOWN_CHARS))
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
        let none = with_virtual_environment(usual.clone(), root);
        assert_eq!((none.get("PATH"), none.get("VIRTUAL_ENV")), (usual.get("PATH"), None));
        let own = root.join(".venv");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        let found = with_virtual_environment(usual.clone(), root);
        let expected = OsString::from(format!("{}/bin:/usr/bin:/bin", own.display()));
        assert_eq!(found.get("PATH"), Some(expected.as_os_str()));
        assert_eq!(found.get("VIRTUAL_ENV"), Some(own.as_os_str()));
        let active = usual.clone().with("VIRTUAL_ENV", "/other");
        assert_eq!(with_virtual_environment(active, root).get("PATH"), usual.get("PATH"));
    }

    #[test]
    fn the_last_line_that_was_printed_tells_why() {
        for (printed, expected) in [
            ("", "it ended"),
            (" \n", "it ended"),
            ("a\nerror: no such component\n\n", "it ended. It printed: error: no such component"),
            ("\u{1b}[31mred", "it ended. It printed: \\u{1b}[31mred"),
        ] {
            assert_eq!(with_tail("it ended".to_owned(), printed.as_bytes()), expected);
        }
    }

    #[test]
    fn the_words_of_a_server_are_one_short_line() {
        assert_eq!(shown_words("a\n[system] b\t\u{1b}[31m"), "a [system] b \\u{1b}[31m");
        assert_eq!(shown_words(&"x".repeat(1_000_000)).len(), SHOWN_CHARS);
    }
}
