//! Gathers the parts of this machine that a trial is given: the programs, the settings, the login, and an environment in
//! which toolchains are found, and the user's own files are not.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toml_edit::{Array, DocumentMut, Item, TableLike, value};

use crate::EvalError;
use crate::process::{Finished, Program, run};
use turnwright_config::{Config, EnvironmentVariables, Flags, Logins, Paths, UserFile};
use turnwright_types::effect::credential_paths;
use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file;
use turnwright_workspace::exec::Environment;
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
const HASH_DIGITS: usize = 12;
/// The waits before a trial is made again after a fault of the model's server.
const WAITS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];

/// The programs, settings and variables that trials are given. It holds keys, so it has no text form.
pub struct Workplace {
    /// The folder that holds the tasks' commits.
    pub(crate) project: PathBuf,
    /// The program that plays the agent.
    pub(crate) agent: PathBuf,
    /// This program, which runs the checks in the sandbox.
    pub(crate) own_program: PathBuf,
    /// The version of the agent, or the name of its file, with a part of the file's hash.
    pub(crate) version: String,
    /// The settings file of a trial, without what is hidden for its task.
    settings: String,
    /// The settings that were changed for this run, as they were given.
    pub(crate) changed: Vec<String>,
    /// The user's stored logins.
    pub(crate) login: Option<Vec<u8>>,
    /// Flags for the agent.
    pub(crate) flags: Vec<String>,
    /// For all programs but the agent: without secrets.
    environment: Environment,
    /// For the agent.
    agent_environment: Environment,
    /// The waits before a trial is made again.
    pub(crate) waits: [Duration; 2],
    pub(crate) stop: CancellationToken,
}

impl Workplace {
    /// Reads what a trial is given. `agent` is another build of the program, and `changes` are settings as `KEY=VALUE`.
    pub fn new(
        config: &Config,
        project: PathBuf,
        agent: Option<PathBuf>,
        changes: Vec<String>,
        stop: CancellationToken,
    ) -> Result<Workplace, EvalError> {
        let own_program = std::env::current_exe()?;
        let version = version_of(agent.as_ref().unwrap_or(&own_program), agent.is_none())?;
        let settings = with_hidden(&trial_settings(config, &changes)?, &users_secrets(config));
        let secrets = config.snapshot().secrets();
        let known: Vec<_> = secrets.iter().map(String::as_str).collect();
        let scrubbed = Environment::scrubbed(config.inherited.iter().cloned(), &known);
        let home = config.home();
        Ok(Workplace {
            project,
            agent: agent.unwrap_or_else(|| own_program.clone()),
            own_program,
            version,
            settings,
            changed: changes,
            login: read_login(&config.paths)?,
            flags: flags(config),
            environment: for_trial(&scrubbed, config, home.as_deref()),
            agent_environment: for_trial(&agent_environment(config), config, home.as_deref()),
            waits: WAITS,
            stop,
        })
    }

    /// The environment of a program other than the agent, with this home.
    pub(crate) fn environment(&self, home: &Path) -> Environment {
        with_home(&self.environment, home)
    }

    /// The environment of the agent. It holds keys.
    pub(crate) fn agent_environment(&self, home: &Path) -> Environment {
        with_home(&self.agent_environment, home)
    }

    /// The settings file of a trial of the task in this folder. No command reads the solution and the check there.
    pub(crate) fn settings_for(&self, task: &Path) -> String {
        with_hidden(&self.settings, &[task.to_path_buf()])
    }

    /// The hash of the settings that trials have.
    pub(crate) fn settings_hash(&self) -> String {
        let parts = [&self.changed[..], &self.flags].concat();
        let all = format!("{}\n{}", self.settings, parts.join("\n"));
        sha256_hex(all.as_bytes())[..HASH_DIGITS].to_owned()
    }

    /// Runs git in a folder, elsewhere than in the project with nobody's settings. Paths are the last words. Returns what
    /// it has printed.
    pub(crate) async fn git(
        &self,
        folder: &Path,
        words: &[&str],
        paths: &[&Path],
    ) -> Result<String, EvalError> {
        let mut all = vec![OsString::from("git")];
        all.extend(words.iter().map(OsString::from));
        all.extend(paths.iter().map(OsString::from));
        let program = Program {
            words: all,
            folder: folder.to_path_buf(),
            environment: self.git_environment(folder),
            input: Vec::new(),
            time: GIT_TIME,
        };
        let finished = self.run(program).await?;
        if finished.is_success() {
            return Ok(finished.stdout);
        }
        Err(EvalError::unusable(format!("git {}: {}", words[0], finished.last_words())))
    }

    /// Runs a program.
    pub(crate) async fn run(&self, program: Program) -> Result<Finished, EvalError> {
        let name = program.words.first().cloned().unwrap_or_default();
        let finished = Box::pin(run(program, &self.stop)).await.map_err(|error| {
            let name = name.to_string_lossy();
            match error.kind() {
                ErrorKind::NotFound => EvalError::unusable(format!(
                    "{name} was not found. Install it, or correct its path."
                )),
                _ => EvalError::Io(error),
            }
        })?;
        if self.stop.is_cancelled() { Err(EvalError::Stopped) } else { Ok(finished) }
    }

    fn git_environment(&self, folder: &Path) -> Environment {
        // A full disk is known by the English text.
        let mut environment = self.environment.clone().with("LC_ALL", "C");
        // The user may have had to say that the project is safe.
        if folder != self.project {
            let null = if cfg!(windows) { "NUL" } else { "/dev/null" };
            environment =
                environment.with("GIT_CONFIG_GLOBAL", null).with("GIT_CONFIG_NOSYSTEM", "1");
        }
        // The same files are the same commit.
        for person in ["AUTHOR", "COMMITTER"] {
            for (field, text) in [
                ("NAME", "turnwright"),
                ("EMAIL", "eval@localhost"),
                ("DATE", "2026-01-01T00:00:00Z"),
            ] {
                environment = environment.with(&format!("GIT_{person}_{field}"), text);
            }
        }
        environment
    }
}

/// Tells two builds of the program apart. Nothing is run for that.
fn version_of(agent: &Path, is_own: bool) -> Result<String, EvalError> {
    let bytes = fs::read(agent).map_err(|error| {
        EvalError::unusable(format!("{} cannot be read: {error}", agent.display()))
    })?;
    let name = agent.file_stem().unwrap_or_default().to_string_lossy();
    let version = if is_own { env!("CARGO_PKG_VERSION") } else { &name };
    Ok(format!("{version}+{}", &sha256_hex(&bytes)[..8]))
}

/// The flags of this process that the agent gets, too.
fn flags(config: &Config) -> Vec<String> {
    let Flags { base_url, limits, .. } = &config.flags;
    let url = base_url.iter().map(|url| ["--base-url".to_owned(), url.clone()]);
    let budgets = limits.iter().map(|(name, most)| budget(&format!("{name}={most}")));
    url.chain(budgets).flatten().collect()
}

/// The flag of a limit.
pub(crate) fn budget(limit: &str) -> [String; 2] {
    ["--budget".to_owned(), limit.to_owned()]
}

/// All variables of this process, with the settings and keys that it has taken out of its environment.
fn agent_environment(config: &Config) -> Environment {
    let mut environment = Environment::default();
    for (name, value) in &config.inherited {
        if let Some(name) = name.to_str() {
            environment = environment.with(name, value);
        }
    }
    for (name, value) in config.shared_settings() {
        environment = environment.with(name, value);
    }
    for (name, key) in config.shared_keys() {
        environment = environment.with(name, key.expose());
    }
    environment
}

/// Takes the user's places out of an environment, and names those of the toolchains in it.
fn for_trial(environment: &Environment, config: &Config, home: Option<&Path>) -> Environment {
    let mut environment = environment.without(&PLACES_OF_USER);
    for (variable, folder) in TOOLCHAINS {
        let is_set = config.inherited.iter().any(|(name, _)| name == variable);
        let usual = home.map(|home| home.join(folder)).filter(|path| path.is_dir());
        if let Some(path) = usual.filter(|_| !is_set) {
            environment = environment.with(variable, path);
        }
    }
    environment
}

fn with_home(environment: &Environment, home: &Path) -> Environment {
    let of_system = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    environment.clone().with("TURNWRIGHT_HOME", home).with(of_system, home)
}

fn read_login(paths: &Paths) -> Result<Option<Vec<u8>>, EvalError> {
    match private_file::read(&Logins::path(paths), MAX_SETTINGS_BYTES) {
        Ok(text) => Ok(Some(text.into_bytes())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(EvalError::Io(error)),
    }
}

/// The user's settings with the changes of this run.
fn trial_settings(config: &Config, changes: &[String]) -> Result<String, EvalError> {
    let path = config.user_file_path();
    let of_user = match private_file::read(path, MAX_SETTINGS_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let text = with_absolute_key_files(&of_user, path.parent(), config.home().as_deref());
    let folder = PrivateTempFolder::create()?;
    let paths = Paths::below(folder.path());
    let file = UserFile::at_default_path(&paths);
    private_file::write(file.path(), text.as_bytes())?;
    let copy = Config::new(EnvironmentVariables::default(), Flags::default(), file, paths);
    for change in changes {
        let Some((key, value)) = change.split_once('=') else {
            return Err(EvalError::unusable(format!("--set {change}: expected KEY=VALUE.")));
        };
        copy.change_setting(key.trim(), Some(&[value.to_owned()]))?.save()?;
    }
    Ok(private_file::read(copy.user_file_path(), MAX_SETTINGS_BYTES)?)
}

/// The places with secrets that a command finds by the user's home, which is not that of a trial.
fn users_secrets(config: &Config) -> Vec<PathBuf> {
    let home = config.home();
    let mut places = home.as_deref().map(credential_paths).unwrap_or_default();
    places.extend([config.paths.config.clone(), config.paths.state.clone()]);
    places
}

/// Adds places that commands cannot read to settings.
fn with_hidden(text: &str, places: &[PathBuf]) -> String {
    let Ok(mut document) = text.parse::<DocumentMut>() else { return text.to_owned() };
    let section = document.entry("sandbox").or_insert_with(toml_edit::table).as_table_like_mut();
    let entry = section.map(|table| table.entry("hide").or_insert_with(|| value(Array::new())));
    if let Some(hide) = entry.and_then(Item::as_array_mut) {
        hide.extend(places.iter().filter_map(|place| place.to_str()));
    }
    document.to_string()
}

/// Makes the paths of key files absolute: a copy of the file is elsewhere, and another home is the home there.
fn with_absolute_key_files(text: &str, folder: Option<&Path>, home: Option<&Path>) -> String {
    let Ok(mut document) = text.parse::<DocumentMut>() else { return text.to_owned() };
    make_key_files_absolute(document.as_table_mut(), folder, home);
    document.to_string()
}

fn make_key_files_absolute(table: &mut dyn TableLike, folder: Option<&Path>, home: Option<&Path>) {
    for (key, item) in table.iter_mut() {
        let path = item.as_str().filter(|_| key.get() == "key_file").map(str::to_owned);
        if let Some(path) = path {
            let absolute = match (path.strip_prefix("~/"), home, folder) {
                (Some(rest), Some(home), _) => home.join(rest),
                (None, _, Some(folder)) => folder.join(&path),
                _ => continue,
            };
            *item = value(absolute.to_string_lossy().into_owned());
        } else if let Some(inner) = item.as_table_like_mut() {
            make_key_files_absolute(inner, folder, home);
        } else if let Some(tables) = item.as_array_of_tables_mut() {
            for inner in tables.iter_mut() {
                make_key_files_absolute(inner, folder, home);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_key_files_are_made_absolute_and_nothing_else_changes() {
        let text = "# mine\nmodel = \"m\"\n[providers.a]\nkey_file = \"~/a.key\"\n[providers.b]\nkey_file = \"b.key\"\n";
        let changed =
            with_absolute_key_files(text, Some("/etc/x".as_ref()), Some("/home/u".as_ref()));
        let expected = text.replace("~/a.key", "/home/u/a.key").replace("b.key", "/etc/x/b.key");
        assert_eq!(changed.replace('\\', "/"), expected);
        assert_eq!(with_absolute_key_files("= broken", None, None), "= broken");
    }

    #[test]
    fn hidden_places_are_added_to_those_of_the_user() {
        let places = ["/home/u/.ssh", "/home/u/it's"].map(PathBuf::from);
        for (text, expected) in [
            ("", vec!["/home/u/.ssh", "/home/u/it's"]),
            ("model = 'm'\n[web]\n", vec!["/home/u/.ssh", "/home/u/it's"]),
            ("sandbox = { hide = ['/a'] }", vec!["/a", "/home/u/.ssh", "/home/u/it's"]),
            ("sandbox.network = 'off'", vec!["/home/u/.ssh", "/home/u/it's"]),
        ] {
            let changed: DocumentMut = with_hidden(text, &places).parse().unwrap();
            let hidden = changed["sandbox"]["hide"].as_array().unwrap();
            let shown: Vec<_> = hidden.iter().filter_map(toml_edit::Value::as_str).collect();
            assert_eq!(shown, expected, "{text}");
        }
        assert_eq!(with_hidden("sandbox = 1", &places).trim(), "sandbox = 1");
    }
}
