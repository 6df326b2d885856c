//! Gathers the parts of this machine that a trial is given: the program, the settings, the login, and an environment in
//! which toolchains are found, and the user's own files are not.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::process::{Finished, ProgramEnd, run};
use crate::{EvalError, EvalResult};
use turnwright_config::{
    Config, EnvironmentVariables, Flags, Logins, NetworkSetting, Paths, UserFile,
};
use turnwright_types::error_text::io_error_text;
use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file;
use turnwright_workspace::exec::{Environment, PipedProgram};
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// Where toolchains are kept, as far as they are not told by the variable: the variable, and the folder in the home.
const TOOLCHAINS: [(&str, &str); 5] = [
    ("CARGO_HOME", ".cargo"),
    ("RUSTUP_HOME", ".rustup"),
    ("GOPATH", "go"),
    ("NVM_DIR", ".nvm"),
    ("PYENV_ROOT", ".pyenv"),
];
/// The variables that lead to files of the user.
const PLACES_OF_USER: [&str; 5] =
    ["TURNWRIGHT_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"];
const MAX_SETTINGS_BYTES: u64 = 1024 * 1024;
const GIT_TIME: Duration = Duration::from_secs(10 * 60);
/// The waits before a trial is made again after a fault of the model's server.
const WAITS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];

/// The program, settings and variables that trials are given. It holds keys, so it has no text form.
pub struct Workplace {
    /// The folder that holds the tasks' commits.
    pub(crate) project: PathBuf,
    /// This program, which plays the agent, and runs the checks in the sandbox.
    pub(crate) program: PathBuf,
    /// Its version, with a part of the hash of its file.
    pub(crate) version: String,
    /// The text of a trial's settings file.
    pub(crate) settings: String,
    /// The places that no command of a trial may read: the user's secrets and the project.
    pub(crate) hidden: Vec<PathBuf>,
    /// True if the settings give commands the network. A task cannot ask for it: it may be a stranger's.
    pub(crate) has_network: bool,
    /// The settings that were changed for this run, as they were given.
    pub(crate) changed: Vec<String>,
    /// The file with the user's logins, which may be missing.
    pub(crate) login: PathBuf,
    /// For all programs but the agent: without secrets.
    pub(crate) environment: Environment,
    /// For the agent. It holds keys.
    pub(crate) agent_environment: Environment,
    /// The waits before a trial is made again.
    pub(crate) waits: [Duration; 2],
    pub(crate) stop: CancellationToken,
}

impl Workplace {
    /// Reads what a trial is given. `changed` are settings as `KEY=VALUE`; the limits of the flags are further ones.
    pub fn new(
        config: &Config,
        project: PathBuf,
        mut changed: Vec<String>,
        stop: CancellationToken,
    ) -> EvalResult<Workplace> {
        changed.extend(config.flags.limits.iter().map(limit_setting));
        let program = std::env::current_exe()?;
        let hash = sha256_hex(&fs::read(&program)?);
        let (settings, has_network) = trial_settings(config, &changed)?;
        Ok(Workplace {
            hidden: hidden_places(config, &project),
            project,
            program,
            version: format!("{}+{}", env!("CARGO_PKG_VERSION"), &hash[..8]),
            settings,
            has_network,
            changed,
            login: Logins::path(&config.paths),
            environment: for_trial(&config.snapshot().command_environment(), config),
            agent_environment: for_trial(&agent_environment(config), config),
            waits: WAITS,
            stop,
        })
    }

    /// Runs git in a folder, elsewhere than in the project with nobody's settings. Paths are the last words. Returns
    /// what it has printed.
    pub(crate) async fn git(
        &self,
        folder: &Path,
        words: &[&str],
        paths: &[&Path],
    ) -> EvalResult<String> {
        let mut all = vec![OsString::from("git")];
        all.extend(words.iter().map(OsString::from));
        all.extend(paths.iter().map(OsString::from));
        let program = PipedProgram {
            command_line: all,
            workdir: folder.to_path_buf(),
            environment: self.git_environment(folder),
            sandbox: None,
        };
        let finished = self.run(&program, &[], GIT_TIME).await?;
        match finished.end {
            ProgramEnd::Exited(Some(0)) => Ok(finished.stdout),
            _ => Err(EvalError::Unusable(format!("git {}: {}", words[0], finished.last_words()))),
        }
    }

    /// Runs a program with this input for at most this time.
    pub(crate) async fn run(
        &self,
        program: &PipedProgram,
        input: &[u8],
        time: Duration,
    ) -> EvalResult<Finished> {
        let running = Box::pin(run(program, input, time, &self.stop));
        let finished = running.await.map_err(|error| {
            let why = io_error_text(&error);
            let name = program.command_line[0].to_string_lossy();
            EvalError::Unusable(format!("{name} cannot be started: {why}. Is it installed?"))
        })?;
        if self.stop.is_cancelled() { Err(EvalError::Stopped) } else { Ok(finished) }
    }

    fn git_environment(&self, folder: &Path) -> Environment {
        let mut environment = self.environment.clone();
        // The user may have had to say that the project is safe.
        if folder != self.project {
            let null = if cfg!(windows) { "NUL" } else { "/dev/null" };
            environment =
                environment.with("GIT_CONFIG_GLOBAL", null).with("GIT_CONFIG_NOSYSTEM", "1");
        }
        for name in ["AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"] {
            environment = environment.with(&format!("GIT_{name}"), "turnwright");
        }
        environment
    }
}

/// All variables of this process, with the settings and keys that it has taken out of its environment.
fn agent_environment(config: &Config) -> Environment {
    let variables = config.inherited.iter();
    let inherited = variables.filter_map(|(name, value)| Some((name.to_str()?, value.as_os_str())));
    let settings = config.shared_settings().map(|(name, value)| (name, OsStr::new(value)));
    let keys = config.shared_keys().map(|(name, key)| (name, OsStr::new(key.expose())));
    let url = config.flags.base_url.iter().map(|url| ("OPENAI_BASE_URL", OsStr::new(url)));
    let all = inherited.chain(settings).chain(keys).chain(url);
    all.fold(Environment::default(), |known, (name, value)| known.with(name, value))
}

/// Takes the user's places out of an environment, and names those of the toolchains in it.
fn for_trial(environment: &Environment, config: &Config) -> Environment {
    let mut found = environment.without(&PLACES_OF_USER);
    for (variable, folder) in TOOLCHAINS {
        let usual = config.home().map(|home| home.join(folder)).filter(|path| path.is_dir());
        if let Some(path) = usual.filter(|_| environment.get(variable).is_none()) {
            found = found.with(variable, path);
        }
    }
    found
}

/// The text of the user's settings file with the changes of this run, and true if it gives commands the network. The
/// file of a trial is elsewhere, so the paths of key files are made absolute.
fn trial_settings(config: &Config, changes: &[String]) -> EvalResult<(String, bool)> {
    let folder = PrivateTempFolder::create()?;
    let paths = Paths::below(folder.path());
    let file = UserFile::at_default_path(&paths);
    let text = match private_file::read(config.user_file_path(), MAX_SETTINGS_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read?,
    };
    private_file::write(file.path(), text.as_bytes())?;
    let copy = Config::new(EnvironmentVariables::default(), Flags::default(), file, paths);
    for (key, path) in config.snapshot().key_files() {
        copy.change_setting(&key, Some(&[path.to_string_lossy().into_owned()]))?.save()?;
    }
    for change in changes {
        let Some((key, value)) = change.split_once('=') else {
            return Err(EvalError::Unusable(format!("--set {change}: expected KEY=VALUE.")));
        };
        copy.change_setting(key.trim(), Some(&[value.to_owned()]))?.save()?;
    }
    let has_network = copy.snapshot().sandbox_settings().network == NetworkSetting::On;
    Ok((private_file::read(copy.user_file_path(), MAX_SETTINGS_BYTES)?, has_network))
}

/// The setting that does the same as a limit of the flags.
fn limit_setting((name, most): &(String, f64)) -> String {
    let section = if name == "max_turn_requests" { "" } else { "limits." };
    format!("{section}{name}={most}")
}

/// The places with secrets that a command finds by the user's home, which is not that of a trial, and the project: the
/// tree of a trial is all that the agent may see of it.
fn hidden_places(config: &Config, project: &Path) -> Vec<PathBuf> {
    let home = config.home();
    let mut places = config.private_places();
    let top = repository_top(project).unwrap_or_else(|| project.to_path_buf());
    let real = top.canonicalize().unwrap_or(top);
    // Toolchains are in the home.
    if !home.is_some_and(|home| home.starts_with(&real)) {
        places.push(real);
    }
    places
}

/// The top folder of the repository that a folder is in.
pub(crate) fn repository_top(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().find(|above| above.join(".git").exists()).map(Path::to_path_buf)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// The settings of a user whose file has this text, and who has no variables.
    fn config(home: &Path, text: &str) -> std::io::Result<Config> {
        let paths = Paths::below(home);
        let file = UserFile::at_default_path(&paths);
        private_file::write(file.path(), text.as_bytes())?;
        Ok(Config::new(EnvironmentVariables::default(), Flags::default(), file, paths))
    }

    #[test]
    fn the_paths_of_key_files_are_made_absolute_and_nothing_else_changes() {
        let home = tempfile::tempdir().unwrap();
        let text = "# mine\nmodel = \"m\"\n[providers.a]\nbase_url = \"http://localhost:1/v1\"\nkey_file = \"a.key\"\n";
        let (changed, has_network) =
            trial_settings(&config(home.path(), text).unwrap(), &[]).unwrap();
        let key = home.path().join("config/a.key");
        assert_eq!(changed, text.replace("a.key", &key.display().to_string()));
        assert!(!has_network);
    }

    #[test]
    fn settings_are_changed_for_the_trials_only() {
        let home = tempfile::tempdir().unwrap();
        let config = config(home.path(), "").unwrap();
        let changes = ["sandbox.network=on".to_owned()];
        let (changed, has_network) = trial_settings(&config, &changes).unwrap();
        assert!(changed.contains("network = \"on\"") && has_network, "{changed}");
        assert_eq!(fs::read_to_string(config.user_file_path()).unwrap(), "");
        assert!(trial_settings(&config, &["verify".to_owned()]).is_err());
    }

    #[test]
    fn limits_of_the_flags_are_settings_of_the_trials() {
        let home = tempfile::tempdir().unwrap();
        let limits = [("max_turn_requests", 7.0), ("turn_tokens", 500_000.0), ("turn_cost", 0.5)];
        let changes = limits.map(|(name, most)| limit_setting(&(name.to_owned(), most)));
        let (changed, _) = trial_settings(&config(home.path(), "").unwrap(), &changes).unwrap();
        for line in ["max_turn_requests = 7", "turn_tokens = 500000", "turn_cost = 0.5"] {
            assert!(changed.contains(line), "{changed}");
        }
    }

    #[test]
    fn the_project_is_hidden_with_the_whole_repository() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir(top.join(".git")).unwrap();
        let places = hidden_places(&config(&top.join("home"), "").unwrap(), &top.join("a/b"));
        assert_eq!(places.last(), Some(&top));
    }
}
