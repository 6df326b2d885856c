//! The settings at one moment. Each file is read once, so that all questions get their answers from the same state
//! of the files.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use crate::document::key_text;
use crate::environment::{
    ALONE_VARIABLE, FIND_CHECKS_VARIABLE, MODE_VARIABLE, SURROUNDINGS_VARIABLE,
};
use crate::file::ConfigFile;
use crate::provider::{KeyOrigin, ProviderKey};
use crate::resolve::{ProviderSources, is_credential};
use crate::{
    ClientProvider, Config, ConfigError, DEFAULT_MAX_TURN_REQUESTS, Logins, McpSettings, NO_MODEL,
    NO_PROVIDER_ADVICE, Provider,
};
use turnwright_policy::permission::Mode;
use turnwright_types::message::ReasoningEffort;
use turnwright_types::secret::Secret;
use turnwright_types::work_settings::{DEFAULT_GOAL_TURNS, ToolChoice, Verify, WorkSettings};
use turnwright_workspace::exec::Environment;

/// The settings at one moment.
pub struct SettingsSnapshot<'a> {
    /// The settings that hold as long as the process runs.
    pub config: &'a Config,
    /// The user's file; the defaults if it cannot be read.
    pub values: Arc<ConfigFile>,
    /// Warnings about entries of the user's file that have no effect, one sentence each.
    pub(crate) file_warnings: Vec<String>,
    /// Why the user's file cannot be read.
    file_error: Option<ConfigError>,
    /// The stored logins; none if they cannot be read.
    pub(crate) logins: Logins,
    /// Why the logins cannot be read.
    pub(crate) logins_error: Option<ConfigError>,
    /// The default provider as the client has set it.
    pub(crate) client_provider: ClientProvider,
}

impl<'a> SettingsSnapshot<'a> {
    pub(crate) fn read(config: &'a Config) -> SettingsSnapshot<'a> {
        let (logins, logins_error) = match Logins::load(&config.paths) {
            Ok(logins) => (logins, None),
            Err(error) => (Logins::default(), Some(error)),
        };
        let ((values, file_warnings), file_error) = match config.file.load() {
            Ok(read) => (read, None),
            Err(error) => (Default::default(), Some(error)),
        };
        SettingsSnapshot {
            config,
            values: Arc::new(values),
            file_warnings,
            file_error,
            logins,
            logins_error,
            client_provider: config.client_provider.lock().clone(),
        }
    }

    /// The user's file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn file(&self) -> Result<&ConfigFile, ConfigError> {
        self.file_error.clone().map_or(Ok(&*self.values), Err)
    }

    /// Warnings about entries of the user's file and about variables that have no effect, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.config.paths.note.iter().chain(&self.file_warnings).cloned().collect()
    }

    /// The warnings about settings of the user's file that are not known, one sentence each: what was meant to
    /// protect something may be missing.
    pub fn unknown_settings(&self) -> impl Iterator<Item = &str> {
        let warnings = self.file_warnings.iter().map(String::as_str);
        warnings.filter(|warning| warning.contains(": Unknown setting `"))
    }

    /// The mode in which sessions start. A wrong value never gives more than `ask`.
    pub fn mode(&self) -> Mode {
        match self.config.variables.get(MODE_VARIABLE).map(Mode::parse_lenient) {
            Some(Some(mode)) => mode,
            Some(None) => Mode::default().min(self.mode_in_file()),
            None => self.mode_in_file(),
        }
    }

    fn mode_in_file(&self) -> Mode {
        self.values.mode.as_deref().and_then(Mode::parse_lenient).unwrap_or_default()
    }

    /// The most requests to the model in one turn.
    pub fn max_turn_requests(&self) -> u32 {
        let of_flag = self.config.requests_flag();
        let of_process = of_flag.or_else(|| self.config.process_max_turn_requests());
        let of_file = self.values.max_turn_requests.map(u32::from);
        of_process.or(of_file).unwrap_or(DEFAULT_MAX_TURN_REQUESTS)
    }

    /// The default reasoning effort.
    pub fn effort(&self) -> ReasoningEffort {
        let word = self.values.effort.as_deref();
        word.and_then(|name| ReasoningEffort::parse(&name.trim().to_ascii_lowercase()))
            .unwrap_or_default()
    }

    /// Returns the settings for how a session works. Alone, it has to prove its work unless the file says otherwise.
    pub fn work(&self) -> WorkSettings {
        let ConfigFile { verify, find_checks, alone, agent, goal, .. } = &*self.values;
        let switch = |name, in_file: bool| self.config.process_switch(name).unwrap_or(in_file);
        let is_alone = self.config.flags.alone || switch(ALONE_VARIABLE, *alone);
        let unset = if is_alone { Verify::Always } else { Verify::Auto };
        let goal_turns = goal.turns.map_or(DEFAULT_GOAL_TURNS, NonZeroU32::get);
        WorkSettings {
            verify: verify.as_deref().and_then(Verify::parse).unwrap_or(unset),
            find_checks: switch(FIND_CHECKS_VARIABLE, *find_checks),
            alone: is_alone,
            one_turn: self.config.flags.one_turn,
            surroundings: switch(SURROUNDINGS_VARIABLE, agent.surroundings),
            tools: agent.tools.as_deref().and_then(ToolChoice::parse).unwrap_or_default(),
            hints: agent.hints,
            offer_notes: agent.offer_notes,
            goal_turns,
            goal_model: goal.model.clone(),
        }
    }

    /// Returns true if endpoints may be asked for their list of models.
    pub fn list_models(&self) -> bool {
        self.values.list_models.unwrap_or(true)
    }

    /// The MCP servers of every session. Empty if the file cannot be read.
    pub fn mcp_settings(&self) -> McpSettings {
        let key_variables = self.values.variables();
        let secrets = RefCell::new(Vec::new());
        let look_up = |name: &str| {
            let found = self.config.server_variable(name, &key_variables)?;
            // By its name it is a secret, wherever the server's settings use it.
            if is_credential(name) || name.to_ascii_lowercase().contains("pass") {
                secrets.borrow_mut().extend(found.clone().map(Secret::from));
            }
            Ok(found)
        };
        let settings = self.values.mcp.settings(self.config.home().as_deref(), &look_up);
        McpSettings { secrets: secrets.into_inner(), ..settings }
    }

    /// The provider and model with which sessions start.
    ///
    /// # Errors
    /// If the user's file cannot be read, or lacks something that this provider needs.
    pub fn provider(&self) -> Result<Provider, ConfigError> {
        // The built-in model must work even if the file is broken.
        if self.config.process_model() == Some("offline") {
            return Ok(Provider::Offline);
        }
        self.default_provider(self.file()?)
    }

    fn default_provider(&self, file: &ConfigFile) -> Result<Provider, ConfigError> {
        if self.is_disabled_by_client() {
            return Ok(Provider::Unconfigured);
        }
        let wanted = self
            .config
            .process_model()
            .or(file.model.as_deref())
            .map(str::to_owned)
            .or_else(|| self.login_model());
        let mut provider = self.sources(file).provider(wanted.as_deref())?;
        if provider == Provider::Unconfigured
            && let Some(error) = &self.logins_error
        {
            // The login may be what is missing.
            return Err(error.clone());
        }
        if let Provider::Endpoint(endpoint) = &mut provider {
            // TURNWRIGHT_CONTEXT_WINDOW is about the model that the process was started with.
            endpoint.window = self.config.context_window().or(endpoint.window);
        }
        Ok(provider)
    }

    /// The model that a flag, the environment or the file names, if no provider is configured for it.
    pub fn model_without_provider(&self) -> Option<String> {
        let named = self.config.process_model().or(self.values.model.as_deref())?;
        (self.provider() == Ok(Provider::Unconfigured)).then(|| named.escape_debug().to_string())
    }

    /// Says what to set if no model is configured, so that no session can be opened.
    pub fn unconfigured_model(&self) -> Option<String> {
        // Invalid settings are reported by `session/new`, where the user sees them.
        let is_missing = self.provider() == Ok(Provider::Unconfigured);
        is_missing.then(|| self.missing_model())
    }

    /// Explains what is missing if no model is configured.
    pub fn missing_model(&self) -> String {
        if self.is_disabled_by_client() {
            return "The client has disabled the provider of the model. Enable it there".to_owned();
        }
        let unserved = self
            .model_without_provider()
            .map(|model| format!("No provider is configured for the model `{model}`"));
        let found = self.keys_of_well_known_providers();
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
            self.config.user_file_path().display()
        )
    }

    /// The provider of a model, by the name that the settings or [`SettingsSnapshot::offered_models`] use.
    pub fn provider_for(&self, model: &str) -> Result<Provider, ConfigError> {
        let file = self.file()?;
        match self.sources(file).provider(Some(model))? {
            Provider::Unconfigured => Err(ConfigError::new(format!(
                "No provider is configured for `{model}`. Use PROVIDER/MODEL, with a well-known \
                 provider or one that has a section in {}",
                self.config.user_file_path().display()
            ))),
            // The default model keeps its settings, also when it is chosen by name.
            provider => match self.default_provider(file) {
                Ok(default) if is_same_model(&default, &provider) => Ok(default),
                _ => Ok(provider),
            },
        }
    }

    /// The models that can be offered without asking an endpoint: the default first, then those of the
    /// logins and those that the file lists.
    pub fn offered_models(&self) -> Vec<String> {
        let mut names = Vec::new();
        let default = match self.file() {
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
        for (name, section) in &self.values.providers {
            let listed = section.models.iter().map(|model| format!("{name}/{model}"));
            let new: Vec<_> = listed.filter(|full_name| !names.contains(full_name)).collect();
            names.extend(new);
        }
        names
    }

    /// Secrets that must not reach any command.
    pub fn secrets(&self) -> Vec<String> {
        let keys = self.config.variables.keys.values();
        let mut secrets: Vec<String> = keys.map(|key| key.expose().to_owned()).collect();
        secrets.extend(self.logins.all().iter().filter_map(|login| login.key.clone()));
        secrets.extend(self.client_secrets());
        for section in self.values.providers.values() {
            let path = section.key_file.as_ref();
            let kept = path.and_then(|path| self.config.read_key_file(path).ok());
            secrets.extend(kept.map(|key| key.expose().to_owned()));
        }
        secrets.extend(self.values.literal_credentials());
        secrets
    }

    /// The environment of commands: without what may be a secret.
    pub fn command_environment(&self) -> Environment {
        let keys = self.secrets();
        let secrets: Vec<_> = keys.iter().map(String::as_str).collect();
        Environment::scrubbed(self.config.inherited.iter().cloned(), &secrets)
    }

    /// The keys of the settings that name key files, and the absolute paths of these.
    pub fn key_files(&self) -> Vec<(String, PathBuf)> {
        let providers = self.values.providers.iter();
        let named = providers.filter_map(|(name, section)| {
            let path = self.config.key_file(section.key_file.as_ref()?);
            Some((key_text(&["providers", name.as_str(), "key_file"]), path))
        });
        named.collect()
    }

    pub(crate) fn sources<'b>(&'b self, file: &'b ConfigFile) -> ProviderSources<'b> {
        let config = self.config;
        ProviderSources {
            file,
            path: config.user_file_path(),
            default: self.default_endpoint(),
            keys: &config.variables.keys,
            logins: &self.logins,
            login_path: Logins::path(&config.paths),
            read_key_file: Box::new(move |name| {
                let origin = KeyOrigin::File(config.key_file(name));
                Ok(ProviderKey { secret: config.read_key_file(name)?, origin })
            }),
        }
    }
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
    use std::path::Path;

    use super::*;
    use crate::environment::{
        BASE_URL_VARIABLE, CONTEXT_WINDOW_VARIABLE, MAX_TURN_REQUESTS_VARIABLE, MODEL_VARIABLE,
    };
    use crate::{EnvironmentVariables, Flags, OPENAI_KEY_VARIABLE, Paths, StoredLogin, UserFile};
    use turnwright_types::private_file;

    fn provider(variables: EnvironmentVariables, flags: Flags) -> String {
        let home = tempfile::tempdir().unwrap();
        match config(home.path(), variables, flags).snapshot().provider().unwrap() {
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

    #[cfg(unix)]
    #[test]
    fn commands_get_the_home_folder_that_a_service_is_not_told() {
        let place = tempfile::tempdir().unwrap();
        for (given, listed, expected) in [
            (None, Some("/home/a"), Some("/home/a")),
            (Some("/home/b"), Some("/home/a"), Some("/home/b")),
            (None, None, None),
        ] {
            let paths = Paths { home: listed.map(Into::into), ..Paths::below(place.path()) };
            let file = UserFile::at_default_path(&paths);
            let inherited = given.into_iter().map(|home| ("HOME".into(), home.into())).collect();
            let variables = EnvironmentVariables { inherited, ..EnvironmentVariables::default() };
            let config = Config::new(variables, Flags::default(), file, paths);
            let environment = config.snapshot().command_environment();
            assert_eq!(environment.get("HOME"), expected.map(std::ffi::OsStr::new));
        }
    }

    #[test]
    fn alone_the_work_has_to_be_proven_unless_the_file_says_otherwise() {
        let home = tempfile::tempdir().unwrap();
        let work = |variable: &str, alone, text: &str| {
            let variables = EnvironmentVariables::of(&[(ALONE_VARIABLE, variable)]);
            let config = config(home.path(), variables, Flags { alone, ..Flags::default() });
            private_file::write(config.user_file_path(), text.as_bytes()).unwrap();
            config.snapshot().work()
        };
        assert_eq!(work("maybe", false, ""), WorkSettings::default());
        for (variable, alone, text, expected) in [
            ("0", true, "", (true, Verify::Always)),
            ("1", false, "", (true, Verify::Always)),
            ("1", false, "verify = \"off\"", (true, Verify::Off)),
            ("maybe", false, "alone = true", (true, Verify::Always)),
            ("0", false, "alone = true", (false, Verify::Auto)),
        ] {
            let found = work(variable, alone, text);
            assert_eq!((found.alone, found.verify), expected, "{variable}, {alone}, {text}");
        }
        let text = "find_checks = false\n\
                    goal = { model = \"m\", turns = 3 }\n[agent]\nsurroundings = false\n\
                    tools = \"few\"\nhints = false\noffer_notes = false";
        let expected = WorkSettings {
            verify: Verify::Auto,
            find_checks: false,
            alone: false,
            one_turn: false,
            surroundings: false,
            tools: ToolChoice::Few,
            hints: false,
            offer_notes: false,
            goal_turns: 3,
            goal_model: Some("m".to_owned()),
        };
        assert_eq!(work("0", false, text), expected);
    }

    #[test]
    fn a_variable_turns_surroundings_and_found_checks_off() {
        let home = tempfile::tempdir().unwrap();
        let names = [SURROUNDINGS_VARIABLE, FIND_CHECKS_VARIABLE];
        for (variable, text, expected) in [
            ("0", "", false),
            ("maybe", "", true),
            ("1", "find_checks = false\nagent.surroundings = false", true),
        ] {
            let variables = EnvironmentVariables::of(&names.map(|name| (name, variable)));
            let config = config(home.path(), variables, Flags::default());
            private_file::write(config.user_file_path(), text.as_bytes()).unwrap();
            let work = config.snapshot().work();
            assert_eq!((work.surroundings, work.find_checks), (expected, expected), "{variable}");
        }
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
            "Some(\"gpt-5.4-mini\") at https://api.openai.com/v1, key: true"
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
        // A script may pass variables that are not set.
        assert_eq!(
            provider(
                variables(),
                Flags { model: some(""), base_url: some(" "), ..Flags::default() }
            ),
            "Some(\"a\") at http://localhost:1/v1, key: false"
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
        let provider = |variables| match config(home.path(), variables, Flags::default())
            .snapshot()
            .provider()
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
            assert_eq!(config.snapshot().max_turn_requests(), expected, "{text}");
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
    fn the_file_stands_below_the_environment_and_is_read_for_each_snapshot() {
        let home = tempfile::tempdir().unwrap();
        let plain = config(home.path(), EnvironmentVariables::default(), Flags::default());
        let before = plain.snapshot();
        assert_eq!(
            (before.mode(), before.max_turn_requests(), before.list_models()),
            (Mode::Ask, 100, true)
        );
        write(
            &plain,
            "model = 'ollama/file'\nmode = 'plan'\nmax_turn_requests = 7\neffort = 'low'\n\
             list_models = false",
        );
        let after = plain.snapshot();
        assert_eq!(model_of(after.provider()), "ollama/file None");
        assert_eq!(after.mode(), Mode::Plan);
        assert_eq!((after.max_turn_requests(), after.list_models()), (7, false));
        assert_eq!(after.effort(), ReasoningEffort::Low);
        assert_eq!((before.mode(), before.list_models()), (Mode::Ask, true), "it stays as it was");
        let variables = EnvironmentVariables::of(&[
            (MODEL_VARIABLE, "ollama/variable"),
            (MODE_VARIABLE, "ask"),
            (MAX_TURN_REQUESTS_VARIABLE, "9"),
            (CONTEXT_WINDOW_VARIABLE, "4096"),
        ]);
        let set = config(home.path(), variables, Flags::default());
        let set = set.snapshot();
        assert_eq!(model_of(set.provider()), "ollama/variable Some(4096)");
        assert_eq!((set.mode(), set.max_turn_requests()), (Mode::Ask, 9));
        let flags = Flags { model: Some("ollama/flag".to_owned()), ..Flags::default() };
        let flagged = config(home.path(), EnvironmentVariables::default(), flags);
        assert_eq!(model_of(flagged.snapshot().provider()), "ollama/flag None");
    }

    #[test]
    fn models_are_offered_and_found_by_their_names() {
        let home = tempfile::tempdir().unwrap();
        let mut variables = keys(&[("DEEPSEEK_API_KEY", "k")]);
        variables.settings.insert(CONTEXT_WINDOW_VARIABLE, "4096".to_owned());
        let config = config(home.path(), variables, Flags::default());
        let empty = config.snapshot();
        assert_eq!(empty.offered_models(), Vec::<String>::new());
        assert!(empty.provider_for("gpt-5").unwrap_err().to_string().contains("config.toml"));
        write(
            &config,
            "model = 'deepseek/b'\n[providers.deepseek]\nmodels = ['a', 'b']\n\
             model.a.window = 10\n[providers.ollama]\nmodels = ['c']",
        );
        let settings = config.snapshot();
        assert_eq!(settings.offered_models(), ["deepseek/b", "deepseek/a", "ollama/c"]);
        // TURNWRIGHT_CONTEXT_WINDOW applies only to the model that the process was started with.
        for (name, expected) in [
            ("deepseek/b", "deepseek/b Some(4096)"),
            ("deepseek/a", "deepseek/a Some(10)"),
            ("ollama/any", "ollama/any None"),
            ("offline", "Ok(Offline)"),
        ] {
            assert_eq!(model_of(settings.provider_for(name)), expected);
        }
    }

    #[test]
    fn a_broken_file_is_an_error_and_no_obstacle_for_the_built_in_model() {
        let home = tempfile::tempdir().unwrap();
        let broken = config(home.path(), EnvironmentVariables::default(), Flags::default());
        write(&broken, "model = ");
        let broken = broken.snapshot();
        assert!(broken.provider().unwrap_err().to_string().contains("line 1"));
        assert!(broken.provider_for("ollama/x").is_err());
        assert_eq!((broken.mode(), broken.max_turn_requests()), (Mode::Ask, 100));
        let flags = Flags { model: Some("offline".to_owned()), ..Flags::default() };
        let offline = config(home.path(), EnvironmentVariables::default(), flags);
        assert_eq!(offline.snapshot().provider(), Ok(Provider::Offline));
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
            let key = match config.snapshot().provider_for("openai/gpt-5") {
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
        let settings = config.snapshot();
        let error = settings.provider_for("x/m").unwrap_err().to_string();
        assert!(error.contains("x.key cannot be read"), "{error}");
        let file = config.paths.config.join("x.key");
        private_file::write(&file, b"\n").unwrap();
        assert!(settings.provider_for("x/m").unwrap_err().to_string().contains("is empty"));
        private_file::write(&file, b"\xef\xbb\xbf\"in-file\"\r\n").unwrap();
        let Ok(Provider::Endpoint(endpoint)) = settings.provider_for("x/m") else { panic!() };
        let origin = KeyOrigin::File(file);
        assert_eq!(endpoint.key, Some(ProviderKey { secret: "in-file".into(), origin }));
        assert_eq!(settings.secrets(), ["in-variable", "in-file", "in-header"]);
        assert!(!format!("{endpoint:?} {config:?}").contains("in-"), "{endpoint:?} {config:?}");
    }
}
