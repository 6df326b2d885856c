//! The settings, merged from flags, environment, the user's file and the stored login. No other module
//! reads the environment.

mod change;
mod check;
mod checks;
mod client_provider;
mod document;
mod environment;
mod file;
mod key;
mod layers;
mod limits;
mod login_precedence;
mod logins;
mod one_reading;
mod paths;
mod permissions;
mod presets;
mod profiles;
mod provider;
mod recorded;
mod request_fields;
mod resolve;
mod sandbox;
mod schema;
mod servers;
mod show;
mod table;
mod template;
mod user_file;
mod wrong_values;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use parking_lot::Mutex;
use turnwright_policy::permission::Mode;
use turnwright_types::private_file;

pub(crate) use change::{SettingChange, looks_like_key};
pub(crate) use checks::{CheckTable, MAX_CHECKS, usable as usable_checks};
pub(crate) use client_provider::{AccountStatus, ClientProvider, SignIn};
#[cfg(unix)]
pub(crate) use environment::has_variable;
pub(crate) use environment::take_environment;
pub(crate) use file::{AgentSection, SessionRetention};
pub(crate) use key::{KeyOrigin, ProviderKey};
pub(crate) use layers::{ManagedSettings, ProjectSettings};
pub(crate) use limits::parse_limit;
pub(crate) use logins::{Logins, StoredLogin};
pub(crate) use one_reading::with_one_reading;
pub(crate) use paths::Paths;
pub(crate) use permissions::{PermissionSection, RuleEntry};
pub(crate) use presets::{PRESETS, ProviderPreset, is_openai_url, preset};
pub(crate) use profiles::ModelProfiles;
pub(crate) use provider::{EndpointSettings, Price, Provider, pasted_base_url};
pub(crate) use sandbox::{NetworkSetting, SandboxSettings};
pub(crate) use schema::settings_schema;
pub(crate) use servers::{McpServerSettings, McpSettings, VariableLookup, expand_variables};
pub(crate) use show::EffectiveSetting;
pub(crate) use template::settings_template;
pub(crate) use turnwright_types::message::ReasoningEffort;
pub(crate) use user_file::UserFile;
pub(crate) use wrong_values::EXPOSED_KEY;

use environment::{
    BASE_URL_VARIABLE, CONTEXT_WINDOW_VARIABLE, MAX_TURN_REQUESTS_VARIABLE, MODE_VARIABLE,
    MODEL_VARIABLE,
};
use file::ConfigFile;
use resolve::ProviderSources;
use turnwright_types::io_error_text::io_error_text;
use turnwright_types::secret::Secret;
use turnwright_types::secret_file::SecretFile;

/// The name of OpenAI among the well-known providers.
const OPENAI_PROVIDER: &str = "openai";
/// The base URL of OpenAI's own API.
pub(crate) const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
/// The variable that holds OpenAI's key, or the key of the endpoint in `OPENAI_BASE_URL`.
const OPENAI_KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// The model that is used at OpenAI if none is named.
pub(crate) const OPENAI_DEFAULT_MODEL: &str = "gpt-5-mini";
/// The most requests to the model in one turn, if not set.
const DEFAULT_MAX_TURN_REQUESTS: u32 = 100;
/// The most bytes that are read of a key file.
const MAX_KEY_SIZE: u64 = 64 * 1024;

/// Unusable settings. The text says what is wrong, where, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);

impl ConfigError {
    fn new(text: String) -> ConfigError {
        ConfigError(text)
    }
}

/// Advice for a model that is named while no provider is configured.
const NO_PROVIDER_ADVICE: &str = "Set OPENAI_API_KEY, or OPENAI_BASE_URL for another server, run `turnwright \
                                  login`, or name the model as PROVIDER/MODEL";

/// The message if there is neither a key for a model nor a server.
pub(crate) const NO_MODEL: &str = "No model is configured. Set OPENAI_API_KEY (and OPENAI_BASE_URL and \
                        TURNWRIGHT_MODEL for another provider), run `turnwright login`, or choose the \
                        built-in offline model";

/// The command line's flags that override settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `--model`.
    pub model: Option<String>,
    /// `--base-url`.
    pub base_url: Option<String>,
    /// `--budget`, each with the name of its setting.
    pub limits: Vec<(String, f64)>,
}

/// The environment at startup: the variables that this program reads, and the rest.
#[derive(Debug, Default)]
pub(crate) struct EnvironmentVariables {
    /// Keys by variable: `OPENAI_API_KEY`, those of well-known providers, and those that the user's file
    /// names.
    pub keys: BTreeMap<String, Secret>,
    /// Settings by variable.
    settings: BTreeMap<&'static str, String>,
    /// All other variables.
    pub inherited: Vec<(OsString, OsString)>,
}

/// The settings of this process. Environment and flags are fixed at startup. The user's file and the
/// login are re-read on every query, so that a change takes effect in a running process.
#[derive(Debug)]
pub(crate) struct Config {
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
    pub(crate) fn new(
        mut variables: EnvironmentVariables,
        mut flags: Flags,
        file: UserFile,
        paths: Paths,
    ) -> Config {
        let of_variable = variables.settings.get_mut(BASE_URL_VARIABLE);
        for base_url in of_variable.into_iter().chain(&mut flags.base_url) {
            *base_url = pasted_base_url(base_url);
        }
        let inherited = std::mem::take(&mut variables.inherited);
        Config { paths, inherited, flags, variables, file, client_provider: Mutex::default() }
    }

    /// The path of the user's file, which need not exist.
    pub(crate) fn user_file_path(&self) -> &Path {
        self.file.path()
    }

    /// Warnings about entries of the user's file and about variables that have no effect, one sentence each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.paths.note.clone().into_iter().chain(self.file.warnings()).collect()
    }

    /// The user's home folder, which `~` stands for.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.paths.home.clone().or_else(environment::home)
    }

    /// The command line of the user's editor.
    pub(crate) fn editor(&self) -> String {
        let usual = if cfg!(windows) { "notepad" } else { "vi" };
        let mut named =
            ["VISUAL", "EDITOR"].into_iter().filter_map(|name| self.inherited_text(name));
        named.find(|editor| !editor.trim().is_empty()).unwrap_or(usual).to_owned()
    }

    /// The mode in which sessions start. A wrong value never gives more than `ask`.
    pub(crate) fn mode(&self) -> Mode {
        match self.variables.get(MODE_VARIABLE).map(Mode::parse_lenient) {
            Some(Some(mode)) => mode,
            Some(None) => Mode::default().min(self.mode_in_file()),
            None => self.mode_in_file(),
        }
    }

    fn mode_in_file(&self) -> Mode {
        let file = self.file.load().ok();
        file.and_then(|file| Mode::parse_lenient(file.mode.as_deref()?)).unwrap_or_default()
    }

    /// True if the environment sets the mode, as opposed to the user's file.
    pub(crate) fn has_process_mode(&self) -> bool {
        self.variables.get(MODE_VARIABLE).is_some()
    }

    /// The most requests to the model in one turn.
    pub(crate) fn max_turn_requests(&self) -> u32 {
        let of_process = self.requests_flag().or_else(|| self.process_max_turn_requests());
        of_process
            .or_else(|| Some(self.file.load().ok()?.max_turn_requests?.get()))
            .unwrap_or(DEFAULT_MAX_TURN_REQUESTS)
    }

    /// The default reasoning effort.
    pub(crate) fn effort(&self) -> ReasoningEffort {
        let word = self.file.load().ok().and_then(|file| file.effort.clone());
        word.and_then(|name| ReasoningEffort::parse(&name.trim().to_ascii_lowercase()))
            .unwrap_or_default()
    }

    /// Instructions to the model about itself, in addition to the built-in ones.
    pub(crate) fn agent(&self) -> AgentSection {
        self.file.load().map(|file| file.agent.clone()).unwrap_or_default()
    }

    /// The commands that check a project, of the user's file.
    pub(crate) fn checks(&self) -> CheckTable {
        self.file.load().map(|file| file.checks.clone()).unwrap_or_default()
    }

    /// Returns true if endpoints may be asked for their list of models.
    pub(crate) fn list_models(&self) -> bool {
        self.file.load().ok().and_then(|file| file.list_models).unwrap_or(true)
    }

    /// Returns true if clients may use version 2 of the protocol. Reads the settings file.
    pub(crate) fn allows_acp_v2(&self) -> bool {
        self.file.load().ok().and_then(|file| file.acp.v2).unwrap_or(true)
    }

    /// Hosts, such as `localhost:3000`, that `web_fetch` may reach although they are not public.
    pub(crate) fn web_allow(&self) -> Vec<String> {
        self.file.load().map(|file| file.web.allow.clone()).unwrap_or_default()
    }

    /// How long and how much session data is kept.
    pub(crate) fn session_retention(&self) -> SessionRetention {
        self.file.load().map(|file| file.sessions).unwrap_or_default()
    }

    /// The MCP servers of every session. Empty if the file cannot be read.
    pub(crate) fn mcp_settings(&self) -> McpSettings {
        let file = self.file.load().unwrap_or_default();
        let key_variables = file.variables();
        let secrets = RefCell::new(Vec::new());
        let look_up = |name: &str| {
            let found = self.server_variable(name, &key_variables)?;
            // By its name it is a secret, wherever the server's settings use it.
            if resolve::is_credential(name) || name.to_ascii_lowercase().contains("pass") {
                secrets.borrow_mut().extend(found.clone().map(Secret::from));
            }
            Ok(found)
        };
        let settings = file.mcp.settings(self.home().as_deref(), &look_up);
        McpSettings { secrets: secrets.into_inner(), ..settings }
    }

    /// The value of a variable that the settings of an MCP server refer to. Models' keys are refused: they
    /// are only for their providers.
    fn server_variable(
        &self,
        name: &str,
        key_variables: &[String],
    ) -> Result<Option<String>, String> {
        let name = &*environment::variable_name(name);
        if presets::is_key_variable(name)
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

    /// The hosts of the proxies in the environment.
    pub(crate) fn proxy_hosts(&self) -> Vec<String> {
        environment::proxy_hosts(&self.inherited)
    }

    /// The provider and model with which sessions start.
    ///
    /// # Errors
    /// If the user's file cannot be read, or lacks something that this provider needs.
    pub(crate) fn provider(&self) -> Result<Provider, ConfigError> {
        // The built-in model must work even if the file is broken.
        if self.process_model() == Some("offline") {
            return Ok(Provider::Offline);
        }
        self.default_provider(&*self.file.load()?)
    }

    fn default_provider(&self, file: &ConfigFile) -> Result<Provider, ConfigError> {
        if self.is_disabled_by_client() {
            return Ok(Provider::Unconfigured);
        }
        let sources = self.sources(file);
        let wanted = self
            .process_model()
            .or(file.model.as_deref())
            .map(str::to_owned)
            .or_else(|| self.login_model(&sources.logins));
        let mut provider = sources.provider(wanted.as_deref())?;
        if provider == Provider::Unconfigured {
            // The login may be what is missing.
            Logins::load(&self.paths)?;
        }
        if let Provider::Endpoint(endpoint) = &mut provider {
            // TURNWRIGHT_CONTEXT_WINDOW is about the model that the process was started with.
            endpoint.window = self.context_window().or(endpoint.window);
        }
        Ok(provider)
    }

    /// The model that a flag, the environment or the file names, if no provider is configured for it.
    pub(crate) fn model_without_provider(&self) -> Option<String> {
        let file = self.file.load().ok()?;
        let named = self.process_model().or(file.model.as_deref())?;
        (self.provider() == Ok(Provider::Unconfigured)).then(|| named.escape_debug().to_string())
    }

    /// Explains what is missing if no model is configured.
    pub(crate) fn missing_model(&self) -> String {
        if self.is_disabled_by_client() {
            return "The client has disabled the provider of the model. Enable it there".to_owned();
        }
        let unserved = self
            .model_without_provider()
            .map(|model| format!("No provider is configured for the model `{model}`"));
        let found = self.keys_of_well_known_providers(&self.logins());
        let Some((name, _)) = found.first() else {
            return unserved
                .map_or(NO_MODEL.to_owned(), |problem| format!("{problem}. {NO_PROVIDER_ADVICE}"));
        };
        let unserved = unserved.unwrap_or_else(|| "No model is chosen".to_owned());
        let places: Vec<_> = found.iter().map(|(name, key)| format!("{name} ({key})")).collect();
        format!(
            "{unserved}. There is a key for {}: run `turnwright login --provider {name}`, which \
             lists its models, or set TURNWRIGHT_MODEL, or `model` in {}, for example to {name}/MODEL",
            places.join(", "),
            self.user_file_path().display()
        )
    }

    /// The provider of a model, by the name that the settings or [`Config::offered_models`] use.
    pub(crate) fn provider_for(&self, model: &str) -> Result<Provider, ConfigError> {
        let file = self.file.load()?;
        match self.sources(&file).provider(Some(model))? {
            Provider::Unconfigured => Err(ConfigError::new(format!(
                "No provider is configured for `{model}`. Use PROVIDER/MODEL, with a well-known \
                 provider or one that has a section in {}",
                self.user_file_path().display()
            ))),
            // The default model keeps its settings, also when it is chosen by name.
            provider => match self.default_provider(&file) {
                Ok(default) if is_same_model(&default, &provider) => Ok(default),
                _ => Ok(provider),
            },
        }
    }

    /// The models that can be offered without asking an endpoint: the default first, then those of the
    /// logins and those that the file lists.
    pub(crate) fn offered_models(&self) -> Vec<String> {
        let mut names = Vec::new();
        let file = self.file.load();
        let default = match &file {
            Ok(file) => self.default_provider(file),
            Err(_) => self.provider(),
        };
        match default {
            Ok(Provider::Endpoint(endpoint)) => names.extend(endpoint.full_name()),
            Ok(Provider::Offline) => names.push("offline".to_owned()),
            Ok(Provider::Unconfigured) | Err(_) => {}
        }
        let new: Vec<_> =
            self.login_models().into_iter().filter(|name| !names.contains(name)).collect();
        names.extend(new);
        for (name, section) in file.iter().flat_map(|file| &file.providers) {
            let listed = section.models.iter().map(|model| format!("{name}/{model}"));
            let new: Vec<_> = listed.filter(|full_name| !names.contains(full_name)).collect();
            names.extend(new);
        }
        names
    }

    /// Secrets that must not reach any command.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut secrets: Vec<String> =
            self.variables.keys.values().map(|key| key.expose().to_owned()).collect();
        secrets.extend(self.logins().all().iter().filter_map(|login| login.key.clone()));
        secrets.extend(self.client_secrets());
        let Ok(file) = self.file.load() else { return secrets };
        for section in file.providers.values() {
            let kept = section.key_file.as_ref().and_then(|path| self.read_key_file(path).ok());
            secrets.extend(kept.map(|key| key.expose().to_owned()));
        }
        secrets.extend(file.literal_credentials());
        secrets
    }

    /// The model that a flag or the environment sets.
    fn process_model(&self) -> Option<&str> {
        self.flags.model.as_deref().or_else(|| self.variables.get(MODEL_VARIABLE))
    }

    fn process_max_turn_requests(&self) -> Option<u32> {
        let text = self.variables.get(MAX_TURN_REQUESTS_VARIABLE);
        parse_number(text).filter(|requests| *requests > 0)
    }

    fn context_window(&self) -> Option<u64> {
        parse_number(self.variables.get(CONTEXT_WINDOW_VARIABLE))
    }

    fn sources<'a>(&'a self, file: &'a ConfigFile) -> ProviderSources<'a> {
        let logins = self.logins();
        ProviderSources {
            file,
            path: self.file.path(),
            default: self.default_endpoint(&logins),
            keys: &self.variables.keys,
            logins,
            login_path: Logins::path(&self.paths),
            read_key_file: Box::new(|name| {
                let origin = KeyOrigin::File(self.key_file(name).path().to_path_buf());
                Ok(ProviderKey { secret: self.read_key_file(name)?, origin })
            }),
        }
    }

    /// The stored logins; none if they cannot be read, which [`Config::wrong_values`] reports.
    pub(crate) fn logins(&self) -> Logins {
        Logins::load(&self.paths).unwrap_or_default()
    }

    /// A key file. `~` is the home folder; a relative path is relative to the user's file.
    fn key_file(&self, name: &str) -> SecretFile {
        let folder = self.user_file_path().parent().unwrap_or(Path::new(""));
        SecretFile::new(&match name.strip_prefix("~/") {
            Some(rest) => {
                environment::home().map_or_else(|| folder.join(name), |home| home.join(rest))
            }
            None => folder.join(name),
        })
    }

    fn read_key_file(&self, name: &str) -> Result<Secret, ConfigError> {
        let file = self.key_file(name);
        let error_with = |what: String| {
            ConfigError::new(format!(
                "{}: the `key_file` {} {what}",
                self.user_file_path().display(),
                file.path().display()
            ))
        };
        let text = private_file::read(file.path(), MAX_KEY_SIZE)
            .map_err(|error| error_with(format!("cannot be read: {}", io_error_text(&error))))?;
        Secret::from_copied(&text).ok_or_else(|| error_with("is empty".to_owned()))
    }
}

fn parse_number<T: FromStr>(text: Option<&str>) -> Option<T> {
    text.and_then(|number| number.trim().parse().ok())
}

fn is_same_model(one: &Provider, other: &Provider) -> bool {
    match (one, other) {
        (Provider::Endpoint(one), Provider::Endpoint(other)) => {
            one.name == other.name && one.model == other.model && one.base_url == other.base_url
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(variables: EnvironmentVariables, flags: Flags) -> String {
        let home = tempfile::tempdir().unwrap();
        match config(home.path(), variables, flags).provider().unwrap() {
            Provider::Offline => "offline".to_owned(),
            Provider::Unconfigured => "none".to_owned(),
            Provider::Endpoint(it) => {
                format!("{:?} at {}, key: {}", it.model, it.base_url, it.key.is_some())
            }
        }
    }

    fn config(home: &Path, variables: EnvironmentVariables, flags: Flags) -> Config {
        let paths = Paths::below(home);
        Config::new(variables, flags, UserFile::at_default_path(&paths), paths)
    }

    fn keys(pairs: &[(&str, &str)]) -> EnvironmentVariables {
        let keys = pairs.iter().map(|(name, key)| ((*name).to_owned(), (*key).into()));
        EnvironmentVariables { keys: keys.collect(), ..EnvironmentVariables::default() }
    }

    #[test]
    fn flags_win_over_the_environment_and_offline_over_all() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(provider(EnvironmentVariables::default(), Flags::default()), "none");
        assert_eq!(
            provider(keys(&[(OPENAI_KEY_VARIABLE, "k")]), Flags::default()),
            "Some(\"gpt-5-mini\") at https://api.openai.com/v1, key: true"
        );
        let variables = || {
            EnvironmentVariables::of(&[
                (BASE_URL_VARIABLE, "http://localhost:1/v1"),
                (MODEL_VARIABLE, "a"),
            ])
        };
        assert_eq!(
            provider(variables(), Flags { model: some("b"), ..Flags::default() }),
            "Some(\"b\") at http://localhost:1/v1, key: false"
        );
        assert_eq!(
            provider(variables(), Flags { model: some("offline"), ..Flags::default() }),
            "offline"
        );
    }

    #[test]
    fn a_key_goes_only_to_the_server_that_it_was_given_for() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let login = StoredLogin {
            key: Some("stored".to_owned()),
            base_url: Some("https://api.deepseek.com/v1".to_owned()),
            model: Some("deepseek-chat".to_owned()),
            ..StoredLogin::default()
        };
        Logins::default().add(login, &paths).unwrap();
        let provider = |variables| match config(home.path(), variables, Flags::default()).provider()
        {
            Ok(Provider::Endpoint(it)) => {
                let key = it.key.as_ref().map_or("no key", |key| key.secret.expose());
                format!("{key} to {}", it.base_url)
            }
            other => format!("{other:?}"),
        };
        assert_eq!(
            provider(EnvironmentVariables::default()),
            "stored to https://api.deepseek.com/v1"
        );
        assert_eq!(
            provider(keys(&[(OPENAI_KEY_VARIABLE, "openai")])),
            "openai to https://api.openai.com/v1"
        );
        let variables = EnvironmentVariables::of(&[(BASE_URL_VARIABLE, "http://elsewhere/v1")]);
        assert_eq!(provider(variables), "no key to http://elsewhere/v1");
    }

    #[test]
    fn a_number_that_makes_no_sense_is_the_usual_one() {
        for (text, expected) in [("7", 7), ("0", 100), ("many", 100)] {
            let variables = EnvironmentVariables::of(&[(MAX_TURN_REQUESTS_VARIABLE, text)]);
            let home = tempfile::tempdir().unwrap();
            let config = config(home.path(), variables, Flags::default());
            assert_eq!(config.max_turn_requests(), expected, "{text}");
        }
    }

    fn write(config: &Config, text: &str) {
        private_file::write(config.user_file_path(), text.as_bytes()).unwrap();
    }

    fn model_of(provider: Result<Provider, ConfigError>) -> String {
        match provider {
            Ok(Provider::Endpoint(it)) => {
                format!("{} {:?}", it.full_name().unwrap_or_default(), it.window)
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_file_stands_below_the_environment_and_is_read_anew() {
        let home = tempfile::tempdir().unwrap();
        let plain = config(home.path(), EnvironmentVariables::default(), Flags::default());
        assert_eq!(
            (plain.mode(), plain.max_turn_requests(), plain.list_models()),
            (Mode::Ask, 100, true)
        );
        write(
            &plain,
            "model = 'ollama/file'\nmode = 'plan'\nmax_turn_requests = 7\neffort = 'low'\n\
             list_models = false",
        );
        assert_eq!(model_of(plain.provider()), "ollama/file None");
        assert_eq!(plain.mode(), Mode::Plan);
        assert_eq!((plain.max_turn_requests(), plain.list_models()), (7, false));
        assert_eq!(plain.effort(), ReasoningEffort::Low);
        let variables = EnvironmentVariables::of(&[
            (MODEL_VARIABLE, "ollama/variable"),
            (MODE_VARIABLE, "ask"),
            (MAX_TURN_REQUESTS_VARIABLE, "9"),
            (CONTEXT_WINDOW_VARIABLE, "4096"),
        ]);
        let set = config(home.path(), variables, Flags::default());
        assert_eq!(model_of(set.provider()), "ollama/variable Some(4096)");
        assert_eq!((set.mode(), set.max_turn_requests()), (Mode::Ask, 9));
        let flags = Flags { model: Some("ollama/flag".to_owned()), ..Flags::default() };
        let flagged = config(home.path(), EnvironmentVariables::default(), flags);
        assert_eq!(model_of(flagged.provider()), "ollama/flag None");
    }

    #[test]
    fn models_are_offered_and_found_by_their_names() {
        let home = tempfile::tempdir().unwrap();
        let mut variables = keys(&[("DEEPSEEK_API_KEY", "k")]);
        variables.settings.insert(CONTEXT_WINDOW_VARIABLE, "4096".to_owned());
        let config = config(home.path(), variables, Flags::default());
        assert_eq!(config.offered_models(), Vec::<String>::new());
        assert!(config.provider_for("gpt-5").unwrap_err().to_string().contains("config.toml"));
        write(
            &config,
            "model = 'deepseek/b'\n[providers.deepseek]\nmodels = ['a', 'b']\n\
             model.a.window = 10\n[providers.ollama]\nmodels = ['c']",
        );
        assert_eq!(config.offered_models(), ["deepseek/b", "deepseek/a", "ollama/c"]);
        // TURNWRIGHT_CONTEXT_WINDOW applies only to the model that the process was started with.
        for (name, expected) in [
            ("deepseek/b", "deepseek/b Some(4096)"),
            ("deepseek/a", "deepseek/a Some(10)"),
            ("ollama/any", "ollama/any None"),
            ("offline", "Ok(Offline)"),
        ] {
            assert_eq!(model_of(config.provider_for(name)), expected);
        }
    }

    #[test]
    fn a_broken_file_is_an_error_and_no_obstacle_for_the_built_in_model() {
        let home = tempfile::tempdir().unwrap();
        let broken = config(home.path(), EnvironmentVariables::default(), Flags::default());
        write(&broken, "model = ");
        assert!(broken.provider().unwrap_err().to_string().contains("line 1"));
        assert!(broken.provider_for("ollama/x").is_err());
        assert_eq!((broken.mode(), broken.max_turn_requests()), (Mode::Ask, 100));
        let flags = Flags { model: Some("offline".to_owned()), ..Flags::default() };
        let offline = config(home.path(), EnvironmentVariables::default(), flags);
        assert_eq!(offline.provider(), Ok(Provider::Offline));
    }

    #[test]
    fn openais_key_does_not_go_to_openai_when_it_was_given_for_another_server() {
        let home = tempfile::tempdir().unwrap();
        for (base_url, section, expected) in [
            (None, "", Some("k")),
            (Some("https://api.openai.com/v1/"), "", Some("k")),
            (Some("http://elsewhere/v1"), "", None),
            (Some("http://elsewhere/v1"), "key_env = 'OPENAI_API_KEY'", Some("k")),
        ] {
            let mut variables = keys(&[(OPENAI_KEY_VARIABLE, "k")]);
            variables.settings.extend(base_url.map(|url| (BASE_URL_VARIABLE, url.to_owned())));
            let config = config(home.path(), variables, Flags::default());
            write(&config, &format!("[providers.openai]\n{section}"));
            let key = match config.provider_for("openai/gpt-5") {
                Ok(Provider::Endpoint(it)) => it.key.map(|key| key.secret.expose().to_owned()),
                _ => None,
            };
            assert_eq!(key.as_deref(), expected, "{base_url:?} {section}");
        }
    }

    #[test]
    fn every_key_is_a_secret_and_a_key_file_stands_beside_the_settings() {
        let home = tempfile::tempdir().unwrap();
        let config = config(home.path(), keys(&[("A_API_KEY", "in-variable")]), Flags::default());
        write(
            &config,
            "[providers.x]\nbase_url = 'http://x/v1'\nkey_file = 'x.key'\n\
             headers = { Authorization = 'Bearer in-header', 'X-Title' = 'no secret' }",
        );
        let error = config.provider_for("x/m").unwrap_err().to_string();
        assert!(error.contains("x.key cannot be read"), "{error}");
        let file = config.paths.config.join("x.key");
        private_file::write(&file, b"\n").unwrap();
        assert!(config.provider_for("x/m").unwrap_err().to_string().contains("is empty"));
        private_file::write(&file, b"\xef\xbb\xbf\"in-file\"\r\n").unwrap();
        let Ok(Provider::Endpoint(endpoint)) = config.provider_for("x/m") else { panic!() };
        let origin = KeyOrigin::File(file);
        assert_eq!(endpoint.key, Some(ProviderKey { secret: "in-file".into(), origin }));
        assert_eq!(config.secrets(), ["in-variable", "in-file", "in-header"]);
        assert!(!format!("{endpoint:?} {config:?}").contains("in-"), "{endpoint:?} {config:?}");
    }
}
