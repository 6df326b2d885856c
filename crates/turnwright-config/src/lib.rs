//! The settings of a coding agent, merged from flags, the environment, the user's file and the stored logins.
//! Nothing else reads the environment.
//!
//! A [`Config`] is made once, when the process starts. A [`SettingsSnapshot`] has the settings as they are now:
//! files are read again for each one.
//!
//!   table         the macro `settings!`: a setting is a row, and what follows from it
//!   file          the sections of a settings file; the rest is in `agent`, `sandbox`, `limits`, `goal`, `lsp`, `servers`
//!   environment   the variables; `layers`, the files, and `logins` are the other sources, `paths` their places
//!   resolve       the provider and the model that all of these mean together
//!   snapshot      one reading of all settings; `show` says where each value comes from
//!   search        the service that searches the web, and its key
//!   change        changes one setting in the user's file, in which `document` leaves everything else as it is
//!   schema        the settings as a JSON Schema, and a file with all of them
//!   jsonc         the JSON files of editors, and of projects that name MCP servers
//!   trust         the files of a project, which count only as the user trusted them
//!   effective_policy   the rules, the mode and the sandbox that all of these mean for a session
//!   project_facts      the settings of a project, for a session on another machine

mod agent;
mod change;
mod document;
pub mod effective_policy;
mod environment;
mod file;
pub mod jsonc;
mod layers;
mod limits;
mod logins;
mod lsp;
mod paths;
mod profiles;
pub mod project_facts;
mod provider;
mod reader;
mod recorded;
mod resolve;
mod sandbox;
mod schema;
mod search;
mod servers;
mod show;
mod snapshot;
mod table;
pub mod trust;
mod wrong_values;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use parking_lot::Mutex;
use turnwright_types::effect::{CONTAINER_SECRETS, MovedPlace, credential_paths, moved_places};
use turnwright_types::private_file;

pub use change::{SettingChange, looks_like_key};
pub use document::string_text;
#[cfg(unix)]
pub use environment::own_variable;
pub use environment::take_environment;
pub use file::{ConfigFile, PermissionSection, RuleEntry};
pub use layers::UserFile;
pub use limits::parse_limit;
pub use logins::{Logins, StoredLogin};
pub use paths::{Paths, with_home};
pub use profiles::ModelProfiles;
pub use provider::{
    AccountStatus, ClientProvider, EndpointSettings, KeyOrigin, PRESETS, Price, Provider,
    ProviderKey, ProviderPreset, SignIn, is_openai_url, pasted_base_url, preset,
};
pub use reader::read_toml;
pub use sandbox::{NetworkSetting, SandboxSettings};
pub use schema::{settings_schema, settings_template};
pub use servers::McpSettings;
pub use show::EffectiveSetting;
pub use snapshot::SettingsSnapshot;

use environment::{
    BASE_URL_VARIABLE, CONTEXT_WINDOW_VARIABLE, MAX_TURN_REQUESTS_VARIABLE, MODE_VARIABLE,
    MODEL_VARIABLE,
};
use turnwright_types::error_text::io_error_text;
use turnwright_types::secret::{Secret, register_secret_file};

/// The name of OpenAI among the well-known providers.
const OPENAI_PROVIDER: &str = "openai";
/// The base URL of OpenAI's own API.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
/// The variable that holds OpenAI's key, or the key of the endpoint in `OPENAI_BASE_URL`.
const OPENAI_KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// The model that is used at OpenAI if none is named.
pub const OPENAI_DEFAULT_MODEL: &str = "gpt-5.4-mini";
/// The most requests to the model in one turn, if not set.
const DEFAULT_MAX_TURN_REQUESTS: u32 = 100;
/// The most bytes that are read of a key file.
const MAX_KEY_SIZE: u64 = 64 * 1024;

/// Unusable settings. The text says what is wrong, where, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    fn new(text: impl Into<String>) -> ConfigError {
        ConfigError(text.into())
    }
}

/// Advice for a model that is named while no provider is configured.
const NO_PROVIDER_ADVICE: &str = "Set OPENAI_API_KEY, or OPENAI_BASE_URL for another server, run `turnwright \
                                  login`, or name the model as PROVIDER/MODEL";

/// The message if there is neither a key for a model nor a server.
pub const NO_MODEL: &str = "No model is configured. Set OPENAI_API_KEY (and OPENAI_BASE_URL and \
                        TURNWRIGHT_MODEL for another provider), run `turnwright login`, or choose the \
                        built-in offline model";

/// The command line's flags that override settings.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--model`.
    pub model: Option<String>,
    /// `--base-url`.
    pub base_url: Option<String>,
    /// `--budget`, each with the name of its setting.
    pub limits: Vec<(String, f64)>,
    /// `run` with `--no-input`, or without a terminal: nobody can answer a question.
    pub alone: bool,
    /// `run` with a prompt: the session ends with its only turn.
    pub one_turn: bool,
}

/// The environment at startup: the variables that this program reads, and the rest.
#[derive(Debug, Default)]
pub struct EnvironmentVariables {
    /// Keys by variable: `OPENAI_API_KEY`, those of well-known providers, and those that the user's file
    /// names.
    pub keys: BTreeMap<String, Secret>,
    /// Settings by variable.
    settings: BTreeMap<&'static str, String>,
    /// All other variables.
    pub inherited: Vec<(OsString, OsString)>,
}

/// The settings of this process. Environment and flags are fixed at startup. Those in files are read for each
/// [`SettingsSnapshot`], so that a change takes effect in a running process.
#[derive(Debug)]
pub struct Config {
    /// The folders of the agent's own files.
    pub paths: Paths,
    /// Variables that commands may inherit. Providers' keys are removed, other secrets are not.
    pub inherited: Vec<(OsString, OsString)>,
    /// The flags of the command line.
    pub flags: Flags,
    variables: EnvironmentVariables,
    file: UserFile,
    /// The default provider as the client has set it.
    client_provider: Mutex<ClientProvider>,
}

impl Config {
    /// Merges the sources. Flags take precedence over the environment, and that over the user's file.
    pub fn new(
        mut variables: EnvironmentVariables,
        mut flags: Flags,
        file: UserFile,
        paths: Paths,
    ) -> Config {
        // As with variables: a script may pass a setting that it was not given.
        for flag in [&mut flags.model, &mut flags.base_url] {
            flag.take_if(|text| text.trim().is_empty());
        }
        let of_variable = variables.settings.get_mut(BASE_URL_VARIABLE);
        for base_url in of_variable.into_iter().chain(&mut flags.base_url) {
            *base_url = pasted_base_url(base_url);
        }
        let mut inherited = std::mem::take(&mut variables.inherited);
        // Services are started without it.
        if cfg!(unix) && inherited.iter().all(|(name, _)| name != "HOME") {
            inherited.extend(paths.home.iter().map(|home| ("HOME".into(), home.into())));
        }
        Config { paths, inherited, flags, variables, file, client_provider: Mutex::default() }
    }

    /// The settings as they are now. Reads files.
    pub fn snapshot(&self) -> SettingsSnapshot<'_> {
        SettingsSnapshot::read(self)
    }

    /// The path of the user's file, which need not exist.
    pub fn user_file_path(&self) -> &Path {
        self.file.path()
    }

    /// The user's home folder, which `~` stands for.
    pub fn home(&self) -> Option<PathBuf> {
        self.paths.home.clone().or_else(environment::home)
    }

    /// The command line of the user's editor.
    pub fn editor(&self) -> String {
        let usual = if cfg!(windows) { "notepad" } else { "vi" };
        let mut named =
            ["VISUAL", "EDITOR"].into_iter().filter_map(|name| self.inherited_text(name));
        named.find(|editor| !editor.trim().is_empty()).unwrap_or(usual).to_owned()
    }

    /// True if the environment sets the mode, as opposed to the user's file.
    fn has_process_mode(&self) -> bool {
        self.variables.get(MODE_VARIABLE).is_some()
    }

    /// The value of a variable that the settings of an MCP server refer to. Models' keys are refused: they
    /// are only for their providers.
    fn server_variable(
        &self,
        name: &str,
        key_variables: &[String],
    ) -> Result<Option<String>, String> {
        let name = &*environment::variable_name(name);
        if provider::is_key_variable(name)
            || key_variables.iter().any(|key| environment::variable_name(key) == name)
        {
            return Err(format!(
                "{name} holds a model's key. Model keys aren't available here: put the server's key \
                 into another variable"
            ));
        }
        if let Some(key) = self.variables.keys.get(name) {
            return Ok(Some(key.expose().to_owned()));
        }
        Ok(self.inherited_text(name).map(str::to_owned))
    }

    /// The value of an inherited variable, if it is valid Unicode.
    fn inherited_text(&self, name: &str) -> Option<&str> {
        self.inherited.iter().find(|variable| variable.0 == name)?.1.to_str()
    }

    /// The parts of the home folder that variables have moved.
    pub(crate) fn moved_places(&self) -> Vec<MovedPlace> {
        moved_places(|name| self.inherited_text(name).map(OsStr::new))
    }

    /// The places that no program of the model may read: those of the user's credentials, and the agent's own folders
    /// with the login, the permission rules, the trusted files and other sessions, which the model can only read through
    /// its tool. Not all of them exist. Blocks.
    pub fn private_places(&self) -> Vec<PathBuf> {
        let homes = BTreeSet::from([
            self.home(),
            #[cfg(unix)]
            turnwright_workspace::listed_home::listed_home(),
        ]);
        let moved = self.moved_places();
        let personal = homes.iter().flatten().flat_map(|home| credential_paths(home, &moved));
        let own = [self.paths.config.clone(), self.paths.state.clone()];
        personal.chain(CONTAINER_SECRETS.map(PathBuf::from)).chain(own).collect()
    }

    /// The hosts of the proxies in the environment.
    pub fn proxy_hosts(&self) -> Vec<String> {
        environment::proxy_hosts(&self.inherited)
    }

    /// The model that a flag or the environment sets.
    fn process_model(&self) -> Option<&str> {
        self.flags.model.as_deref().or_else(|| self.variables.get(MODEL_VARIABLE))
    }

    fn process_max_turn_requests(&self) -> Option<u32> {
        let text = self.variables.get(MAX_TURN_REQUESTS_VARIABLE);
        parse_number(text).filter(|requests| *requests > 0)
    }

    /// The value of a variable that is `1` or `0`, if it is one of them.
    fn process_switch(&self, name: &str) -> Option<bool> {
        match self.variables.get(name)? {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => None,
        }
    }

    fn context_window(&self) -> Option<u64> {
        parse_number(self.variables.get(CONTEXT_WINDOW_VARIABLE))
    }

    /// A key file. `~` is the home folder; a relative path is relative to the user's file.
    fn key_file(&self, name: &str) -> PathBuf {
        let folder = self.user_file_path().parent().unwrap_or(Path::new(""));
        register_secret_file(&folder.join(with_home(name.into())))
    }

    fn read_key_file(&self, name: &str) -> Result<Secret, ConfigError> {
        let file = self.key_file(name);
        let error_with = |what: String| {
            ConfigError::new(format!(
                "{}: the `key_file` {} {what}",
                self.user_file_path().display(),
                file.display()
            ))
        };
        let text = private_file::read(&file, MAX_KEY_SIZE)
            .map_err(|error| error_with(format!("cannot be read: {}", io_error_text(&error))))?;
        Secret::from_copied(&text).ok_or_else(|| error_with("is empty".to_owned()))
    }
}

fn parse_number<T: FromStr>(text: Option<&str>) -> Option<T> {
    text.and_then(|number| number.trim().parse().ok())
}
