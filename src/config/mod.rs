//! What the user has set, from the environment, the flags, the user's file and the stored login.
//! The only reader of the environment; everybody else gets plain values.

mod bounds;
mod credentials;
mod environment;
mod file;
mod layers;
mod paths;
mod permissions;
mod presets;
mod profiles;
mod provider;
mod resolve;
mod secret;
mod servers;
mod show;
mod source;

use turnwright_workspace::private_file;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use turnwright_types::message::Effort;
pub use bounds::{NetworkSetting, SandboxSettings};
pub use credentials::Credentials;
pub use environment::take;
pub use file::Sessions;
pub use layers::{Managed, Project};
pub use paths::Paths;
pub use permissions::{PermissionTexts, RuleText};
pub use presets::is_well_known;
pub use profiles::Profiles;
pub use provider::{Api, EndpointSettings, Price, Provider};
pub use secret::Secret;
pub use servers::{McpReach, McpServer, McpSettings};
pub use show::Setting;
pub use source::UserFile;

use file::File;
use resolve::{DefaultEndpoint, Sources};

/// Where OpenAI itself answers.
const OPENAI: &str = "https://api.openai.com/v1";
/// The variable with its key, or with that of the endpoint in `OPENAI_BASE_URL`.
const OPENAI_KEY: &str = "OPENAI_API_KEY";
/// The model that is asked at OpenAI when none is named.
const OPENAI_MODEL: &str = "gpt-5-mini";
/// Requests to the model that one turn may make when nothing is set.
const MAX_TURN_REQUESTS: u32 = 100;
/// The most that is read of a file with a key.
const LARGEST_KEY: u64 = 64 * 1024;

/// Settings that cannot be used: what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    fn new(text: String) -> ConfigError {
        ConfigError(text)
    }
}

/// What the flags of the command line say.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--model`.
    pub model: Option<String>,
    /// `--base-url`.
    pub base_url: Option<String>,
}

/// The variables that mean something to us, and those that commands may inherit.
#[derive(Debug, Default)]
pub struct Variables {
    /// Those that hold keys: `OPENAI_API_KEY`, those of the well-known providers, and those that
    /// the user's file names.
    pub keys: BTreeMap<String, Secret>,
    /// `OPENAI_BASE_URL`.
    pub base_url: Option<String>,
    /// `TURNWRIGHT_MODEL`.
    pub model: Option<String>,
    /// `TURNWRIGHT_MODE`.
    pub mode: Option<String>,
    /// `TURNWRIGHT_MAX_TURN_REQUESTS`.
    pub max_turn_requests: Option<String>,
    /// `TURNWRIGHT_CONTEXT_WINDOW`.
    pub context_window: Option<String>,
    /// `TURNWRIGHT_LOG`, else `RUST_LOG`.
    pub log: Option<String>,
    /// All the others.
    pub rest: Vec<(OsString, OsString)>,
}

/// The settings of this process. What the environment and the flags say is fixed at the start;
/// the user's file and the login are read anew whenever something is asked, so that a change
/// helps a process that is already running.
#[derive(Debug)]
pub struct Config {
    /// Where things are kept.
    pub paths: Paths,
    /// Variables that commands may inherit: no key of a provider, but any other secret.
    pub inherited: Vec<(OsString, OsString)>,
    flags: Flags,
    variables: Variables,
    file: UserFile,
}

impl Config {
    /// Puts the sources together: flags over environment over the user's file.
    pub fn new(mut variables: Variables, flags: Flags, file: UserFile, paths: Paths) -> Config {
        let inherited = std::mem::take(&mut variables.rest);
        Config { paths, inherited, flags, variables, file }
    }

    /// Where the user's file is, or would be.
    pub fn file(&self) -> &Path {
        self.file.path()
    }

    /// A sentence about each thing in the user's file that has no effect.
    pub fn warnings(&self) -> Vec<String> {
        self.file.warnings()
    }

    /// The user's home, which `~` stands for.
    pub fn home(&self) -> Option<PathBuf> {
        self.paths.home.clone().or_else(environment::home)
    }

    /// The mode that sessions begin in, unparsed.
    pub fn mode(&self) -> Option<String> {
        self.variables.mode.clone().or_else(|| self.file.load().ok()?.mode.clone())
    }

    /// Whether that is said for this process, and not by the user's file.
    pub fn has_mode_of_the_process(&self) -> bool {
        self.variables.mode.is_some()
    }

    /// Requests to the model that one turn may make.
    pub fn max_turn_requests(&self) -> u32 {
        let own = || Some(self.file.load().ok()?.max_turn_requests?.get());
        self.max_turn_requests_of_the_process().or_else(own).unwrap_or(MAX_TURN_REQUESTS)
    }

    /// How much models are to think.
    pub fn effort(&self) -> Effort {
        let word = self.file.load().ok().and_then(|it| it.effort.clone());
        word.and_then(|it| Effort::parse(&it)).unwrap_or_default()
    }

    /// Whether endpoints may be asked which models they have.
    pub fn list_models(&self) -> bool {
        self.file.load().ok().and_then(|it| it.list_models).unwrap_or(true)
    }

    /// Hosts that pages may be fetched from wherever they are, as in `localhost:3000`.
    pub fn web_allow(&self) -> Vec<String> {
        self.file.load().map(|it| it.web.allow.clone()).unwrap_or_default()
    }

    /// How much is kept of sessions.
    pub fn sessions(&self) -> Sessions {
        self.file.load().map(|it| it.sessions).unwrap_or_default()
    }

    /// The MCP servers that every session is to have. None if the file cannot be read.
    pub fn mcp(&self) -> McpSettings {
        let file = self.file.load().unwrap_or_default();
        let ours = file.variables();
        let secrets = RefCell::new(Vec::new());
        let look_up = |name: &str| {
            let found = self.for_server(name, &ours)?;
            // Wherever it is put, and whatever that is called.
            if resolve::is_credential(name) || name.to_ascii_lowercase().contains("pass") {
                secrets.borrow_mut().extend(found.clone().map(Secret::from));
            }
            Ok(found)
        };
        let settings = file.mcp.settings(self.home().as_deref(), &look_up);
        McpSettings { secrets: secrets.into_inner(), ..settings }
    }

    /// A variable for a server that the user has configured. Keys of models are for their providers.
    fn for_server(&self, name: &str, ours: &[String]) -> Result<Option<String>, String> {
        if presets::is_key_variable(name) || ours.iter().any(|it| it == name) {
            return Err(format!(
                "{name} holds the key of a model: it is taken out of the environment when the agent \
                 starts, and no server gets it. Give the server a key of its own, in another variable"
            ));
        }
        if let Some(key) = self.variables.keys.get(name) {
            return Ok(Some(key.expose().to_owned()));
        }
        let found = self.inherited.iter().find(|it| it.0 == name);
        Ok(found.and_then(|it| Some(it.1.to_str()?.to_owned())))
    }

    /// The hosts of the proxies that the environment names.
    pub fn proxies(&self) -> Vec<String> {
        environment::proxies(&self.inherited)
    }

    /// The provider and model that sessions begin with.
    ///
    /// # Errors
    /// When the user's file cannot be read, or lacks something for this provider.
    pub fn provider(&self) -> Result<Provider, ConfigError> {
        // Who asks for the built-in model gets it, whatever the file looks like.
        if self.model_of_the_process() == Some("offline") {
            return Ok(Provider::Offline);
        }
        self.usual(&*self.file.load()?)
    }

    fn usual(&self, file: &File) -> Result<Provider, ConfigError> {
        let wanted = self.model_of_the_process().or(file.model.as_deref());
        let mut provider = self.sources(file).provider(wanted)?;
        if let Provider::Endpoint(endpoint) = &mut provider {
            // The variable is about the one model that the process is started for.
            endpoint.window = self.window().or(endpoint.window);
        }
        Ok(provider)
    }

    /// The provider of another model, by the name that the settings or [`Config::choices`] have
    /// for it.
    ///
    /// # Errors
    /// As for [`Config::provider`], and when no provider has this model.
    pub fn provider_for(&self, model: &str) -> Result<Provider, ConfigError> {
        let file = self.file.load()?;
        match self.sources(&file).provider(Some(model))? {
            Provider::None => Err(ConfigError::new(format!(
                "No provider is configured for `{model}`. Name it as PROVIDER/MODEL, with a \
                 well-known provider or one that has a section in {}",
                self.file().display()
            ))),
            // The same model is the same, whichever way it was chosen.
            provider => match self.usual(&file) {
                Ok(usual) if is_same_model(&usual, &provider) => Ok(usual),
                _ => Ok(provider),
            },
        }
    }

    /// The models that can be offered without asking anybody: the usual one first, then those
    /// that the file lists.
    pub fn choices(&self) -> Vec<String> {
        let mut names = Vec::new();
        let file = self.file.load();
        let usual = match &file {
            Ok(file) => self.usual(file),
            Err(_) => self.provider(),
        };
        match usual {
            Ok(Provider::Endpoint(endpoint)) => names.extend(endpoint.full_name()),
            Ok(Provider::Offline) => names.push("offline".to_owned()),
            Ok(Provider::None) | Err(_) => {}
        }
        for (name, section) in file.iter().flat_map(|it| &it.providers) {
            let listed = section.models.iter().map(|model| format!("{name}/{model}"));
            let new: Vec<_> = listed.filter(|it| !names.contains(it)).collect();
            names.extend(new);
        }
        names
    }

    /// What must not reach any command.
    pub fn secrets(&self) -> Vec<String> {
        let mut secrets: Vec<String> =
            self.variables.keys.values().map(|it| it.expose().to_owned()).collect();
        secrets.extend(Credentials::load(&self.paths).and_then(|it| it.key));
        let Ok(file) = self.file.load() else { return secrets };
        for section in file.providers.values() {
            let kept = section.key_file.as_ref().and_then(|it| self.key_file(it).ok());
            secrets.extend(kept.map(|it| it.expose().to_owned()));
            let headers = section.headers.iter().filter(|it| resolve::is_credential(it.0));
            // As in `Bearer KEY`.
            let literal = headers.map(|it| it.1).filter(|it| file::variable_of(it).is_none());
            let values = literal.filter_map(|it| it.split_whitespace().next_back());
            secrets.extend(values.map(str::to_owned));
        }
        secrets.extend(file.mcp.secrets(resolve::is_credential));
        secrets
    }

    /// The model that the flags or the environment name.
    fn model_of_the_process(&self) -> Option<&str> {
        self.flags.model.as_deref().or(self.variables.model.as_deref())
    }

    fn max_turn_requests_of_the_process(&self) -> Option<u32> {
        number(self.variables.max_turn_requests.as_ref()).filter(|it| *it > 0)
    }

    fn window(&self) -> Option<u64> {
        number(self.variables.context_window.as_ref())
    }

    fn sources<'a>(&'a self, file: &'a File) -> Sources<'a> {
        Sources {
            file,
            path: self.file.path(),
            default: self.default_endpoint(),
            keys: &self.variables.keys,
            key_file: Box::new(|name| self.key_file(name)),
        }
    }

    /// The endpoint that needs no name. The environment and the flags win over the stored login
    /// as a whole: a key goes to the server that it was given for and to no other.
    fn default_endpoint(&self) -> Option<DefaultEndpoint> {
        let key = self.variables.keys.get(OPENAI_KEY);
        let base_url = self.flags.base_url.as_ref().or(self.variables.base_url.as_ref());
        let is_set = key.is_some() || base_url.is_some();
        let stored = if is_set { None } else { Credentials::load(&self.paths) };
        let stored = stored.unwrap_or_default();
        let key = key.cloned().or(stored.key.map(Secret::from));
        let base_url = base_url.cloned().or(stored.base_url);
        if key.is_none() && base_url.is_none() {
            return None;
        }
        let base_url = base_url.unwrap_or_else(|| OPENAI.to_owned());
        let usual = (base_url.trim_end_matches('/') == OPENAI).then(|| OPENAI_MODEL.to_owned());
        Some(DefaultEndpoint { base_url, key, model: stored.model.or(usual) })
    }

    /// The key in a file: `~` is the home folder, and a path without a beginning starts where the
    /// user's file is.
    fn key_file(&self, name: &str) -> Result<Secret, ConfigError> {
        let beside = || self.file().parent().unwrap_or(Path::new("")).join(name);
        let path = match name.strip_prefix("~/") {
            Some(rest) => environment::home().map_or_else(beside, |home| home.join(rest)),
            None => beside(),
        };
        let wrong = |what: String| {
            ConfigError::new(format!(
                "{}: the `key_file` {} {what}",
                self.file().display(),
                path.display()
            ))
        };
        let text = private_file::read(&path, LARGEST_KEY)
            .map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let key = text.trim();
        if key.is_empty() {
            return Err(wrong("is empty".to_owned()));
        }
        Ok(key.into())
    }
}
fn number<T: FromStr>(text: Option<&String>) -> Option<T> {
    text.and_then(|it| it.trim().parse().ok())
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

    fn provider(variables: Variables, flags: Flags) -> String {
        let home = tempfile::tempdir().unwrap();
        match config(home.path(), variables, flags).provider().unwrap() {
            Provider::Offline => "offline".to_owned(),
            Provider::None => "none".to_owned(),
            Provider::Endpoint(it) => {
                format!("{:?} at {}, key: {}", it.model, it.base_url, it.key.is_some())
            }
        }
    }

    fn config(home: &Path, variables: Variables, flags: Flags) -> Config {
        let paths = Paths::below(home);
        Config::new(variables, flags, UserFile::usual(&paths), paths)
    }

    fn keys(pairs: &[(&str, &str)]) -> Variables {
        let keys = pairs.iter().map(|(name, key)| ((*name).to_owned(), (*key).into()));
        Variables { keys: keys.collect(), ..Variables::default() }
    }

    #[test]
    fn flags_win_over_the_environment_and_offline_over_all() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(provider(Variables::default(), Flags::default()), "none");
        assert_eq!(
            provider(keys(&[(OPENAI_KEY, "k")]), Flags::default()),
            "Some(\"gpt-5-mini\") at https://api.openai.com/v1, key: true"
        );
        let variables = || Variables {
            base_url: some("http://localhost:1/v1"),
            model: some("a"),
            ..Variables::default()
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
        let login = Credentials {
            key: Some("stored".to_owned()),
            base_url: Some("https://api.deepseek.com/v1".to_owned()),
            model: Some("deepseek-chat".to_owned()),
        };
        login.store(&paths).unwrap();
        let provider = |variables| match config(home.path(), variables, Flags::default()).provider()
        {
            Ok(Provider::Endpoint(it)) => {
                let key = it.key.as_ref().map_or("no key", Secret::expose);
                format!("{key} to {}", it.base_url)
            }
            other => format!("{other:?}"),
        };
        assert_eq!(provider(Variables::default()), "stored to https://api.deepseek.com/v1");
        assert_eq!(
            provider(keys(&[(OPENAI_KEY, "openai")])),
            "openai to https://api.openai.com/v1"
        );
        let url = Some("http://elsewhere/v1".to_owned());
        let variables = Variables { base_url: url, ..Variables::default() };
        assert_eq!(provider(variables), "no key to http://elsewhere/v1");
    }

    #[test]
    fn a_number_that_makes_no_sense_is_the_usual_one() {
        for (text, expected) in [("7", 7), ("0", 100), ("many", 100)] {
            let variables =
                Variables { max_turn_requests: Some(text.to_owned()), ..Variables::default() };
            let home = tempfile::tempdir().unwrap();
            let config = config(home.path(), variables, Flags::default());
            assert_eq!(config.max_turn_requests(), expected, "{text}");
        }
    }

    fn write(config: &Config, text: &str) {
        private_file::store(config.file(), text.as_bytes()).unwrap();
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
        let plain = config(home.path(), Variables::default(), Flags::default());
        assert_eq!(
            (plain.mode(), plain.max_turn_requests(), plain.list_models()),
            (None, 100, true)
        );
        write(
            &plain,
            "model = 'ollama/file'\nmode = 'plan'\nmax_turn_requests = 7\neffort = 'low'\n\
             list_models = false",
        );
        assert_eq!(model_of(plain.provider()), "ollama/file None");
        assert_eq!(plain.mode().as_deref(), Some("plan"));
        assert_eq!((plain.max_turn_requests(), plain.list_models()), (7, false));
        assert_eq!(plain.effort(), Effort::Low);
        let some = |text: &str| Some(text.to_owned());
        let variables = Variables {
            model: some("ollama/variable"),
            mode: some("ask"),
            max_turn_requests: some("9"),
            context_window: some("4096"),
            ..Variables::default()
        };
        let set = config(home.path(), variables, Flags::default());
        assert_eq!(model_of(set.provider()), "ollama/variable Some(4096)");
        assert_eq!((set.mode().as_deref(), set.max_turn_requests()), (Some("ask"), 9));
        let flags = Flags { model: some("ollama/flag"), ..Flags::default() };
        let flagged = config(home.path(), Variables::default(), flags);
        assert_eq!(model_of(flagged.provider()), "ollama/flag None");
    }

    #[test]
    fn models_are_offered_and_found_by_their_names() {
        let home = tempfile::tempdir().unwrap();
        let mut variables = keys(&[("DEEPSEEK_API_KEY", "k")]);
        variables.context_window = Some("4096".to_owned());
        let config = config(home.path(), variables, Flags::default());
        assert_eq!(config.choices(), Vec::<String>::new());
        assert!(config.provider_for("gpt-5").unwrap_err().to_string().contains("config.toml"));
        write(
            &config,
            "model = 'deepseek/b'\n[providers.deepseek]\nmodels = ['a', 'b']\n\
             model.a.window = 10\n[providers.ollama]\nmodels = ['c']",
        );
        assert_eq!(config.choices(), ["deepseek/b", "deepseek/a", "ollama/c"]);
        // The variable is about the model that the process was started for, not about others.
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
        let broken = config(home.path(), Variables::default(), Flags::default());
        write(&broken, "model = ");
        assert!(broken.provider().unwrap_err().to_string().contains("line 1"));
        assert!(broken.provider_for("ollama/x").is_err());
        assert_eq!((broken.mode(), broken.max_turn_requests()), (None, 100));
        let flags = Flags { model: Some("offline".to_owned()), ..Flags::default() };
        let offline = config(home.path(), Variables::default(), flags);
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
            let mut variables = keys(&[(OPENAI_KEY, "k")]);
            variables.base_url = base_url.map(str::to_owned);
            let config = config(home.path(), variables, Flags::default());
            write(&config, &format!("[providers.openai]\n{section}"));
            let key = match config.provider_for("openai/gpt-5") {
                Ok(Provider::Endpoint(it)) => it.key.map(|it| it.expose().to_owned()),
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
        private_file::store(&file, b"\n").unwrap();
        assert!(config.provider_for("x/m").unwrap_err().to_string().contains("is empty"));
        private_file::store(&file, b"in-file\n").unwrap();
        let Ok(Provider::Endpoint(endpoint)) = config.provider_for("x/m") else { panic!() };
        assert_eq!(endpoint.key, Some("in-file".into()));
        assert_eq!(config.secrets(), ["in-variable", "in-file", "in-header"]);
        assert!(!format!("{endpoint:?} {config:?}").contains("in-"), "{endpoint:?} {config:?}");
    }
}
