//! The stored logins beside flags, environment and settings file: which of them give the default endpoint,
//! the default model and the keys, and what takes precedence over a login.

use crate::environment::{BASE_URL_VARIABLE, MODEL_VARIABLE};
use crate::file::ConfigFile;
use crate::provider::{PRESETS, ProviderPreset, is_openai_url};
use crate::resolve::DefaultEndpoint;
use crate::show::{BUILT_IN, first_match, key_origin};
use crate::{
    Config, KeyOrigin, Logins, OPENAI_BASE_URL, OPENAI_DEFAULT_MODEL, OPENAI_KEY_VARIABLE,
    Provider, ProviderKey, SettingsSnapshot, StoredLogin,
};

impl Config {
    /// The base URL that a flag or the environment sets.
    fn process_base_url(&self) -> Option<&str> {
        self.flags.base_url.as_deref().or_else(|| self.variables.get(BASE_URL_VARIABLE))
    }
}

impl SettingsSnapshot<'_> {
    /// The name of the model that was chosen with the last login, unless it is the default endpoint's own or
    /// another server is named.
    pub(crate) fn login_model(&self) -> Option<String> {
        let is_other = self.config.process_base_url().is_some() || self.is_set_by_client();
        let last = self.logins.last().filter(|_| !is_other)?;
        if last.is_default_endpoint() { None } else { last.full_model_name() }
    }

    /// The models that were chosen with logins, as far as they can be used, the last one first.
    pub(crate) fn login_models(&self) -> Vec<String> {
        let default = self.endpoint_login();
        let reachable = self
            .logins
            .all()
            .iter()
            .rev()
            .filter(|login| !login.is_default_endpoint() || Some(*login) == default);
        reachable.filter_map(StoredLogin::full_model_name).collect()
    }

    /// The login for the endpoint without a name. If the environment or a flag defines the endpoint, that is
    /// a login for the very same server, because a key is sent only to the server that it was given for.
    pub(crate) fn endpoint_login(&self) -> Option<&StoredLogin> {
        if self.is_set_by_client() {
            return None;
        }
        let has_key = self.config.variables.keys.contains_key(OPENAI_KEY_VARIABLE);
        match self.config.process_base_url().or_else(|| has_key.then_some(OPENAI_BASE_URL)) {
            Some(base_url) => self.logins.for_server(base_url),
            None => self.logins.default_endpoint(),
        }
    }

    /// The endpoint without a name.
    pub(crate) fn default_endpoint(&self) -> Option<DefaultEndpoint> {
        if self.is_set_by_client() {
            return self.client_endpoint();
        }
        let login = self.endpoint_login();
        let in_variable = self.config.variables.keys.get(OPENAI_KEY_VARIABLE);
        let variable = in_variable.map(|secret| ProviderKey {
            secret: secret.clone(),
            origin: KeyOrigin::Variable(OPENAI_KEY_VARIABLE.to_owned()),
        });
        let stored = login.and_then(|login| login.key.as_deref()).map(|key| ProviderKey {
            secret: key.into(),
            origin: KeyOrigin::Login(Logins::path(&self.config.paths)),
        });
        let key = variable.or(stored);
        if key.is_none() && login.is_none() && self.config.process_base_url().is_none() {
            return None;
        }
        let base_url = self
            .config
            .process_base_url()
            .or(login.and_then(StoredLogin::server))
            .unwrap_or(OPENAI_BASE_URL)
            .to_owned();
        let is_openai = is_openai_url(&base_url);
        let model = login
            .and_then(|login| login.model.clone())
            .or_else(|| is_openai.then(|| OPENAI_DEFAULT_MODEL.to_owned()));
        Some(DefaultEndpoint { base_url, key, headers: Vec::new(), model })
    }

    /// The key for the usual base URL of a well-known provider.
    pub fn key_of_provider(&self, known: &ProviderPreset) -> Option<ProviderKey> {
        self.sources(&ConfigFile::default()).usual_key(known)
    }

    /// The well-known providers for which there is a key, with its place.
    pub fn keys_of_well_known_providers(&self) -> Vec<(&'static str, String)> {
        let keys = &self.config.variables.keys;
        let found = PRESETS.iter().filter_map(|known| {
            let variable = known.key_env.filter(|name| keys.contains_key(*name));
            let place = variable
                .or_else(|| self.logins.provider_key(known.name).map(|_| "stored login"))?;
            Some((known.name, place.to_owned()))
        });
        found.collect()
    }

    /// Describes what turnwright starts with after this login, and what takes precedence over the login.
    pub fn effect_of(&self, login: &StoredLogin) -> String {
        let endpoint = match self.provider() {
            Ok(Provider::Endpoint(endpoint)) => endpoint,
            Ok(Provider::Offline) => {
                return self.preceding("turnwright starts with the built-in offline model");
            }
            Ok(Provider::Unconfigured) => return format!("{}.", self.missing_model()),
            Err(error) => return format!("{error}."),
        };
        let name = endpoint.full_name();
        let starts =
            format!("turnwright now starts with {}", name.as_deref().unwrap_or("no model"));
        let is_same_server = login.server() == Some(endpoint.base_url.trim_end_matches('/'));
        let is_same_model = login.model.is_none() || login.model == endpoint.model;
        if !is_same_server && endpoint.name.is_some() && endpoint.name == login.provider {
            let url = endpoint.redacted_url();
            let file = self.config.file_path();
            return format!("{starts}, but at {url}, which {file} names, and without this key.");
        }
        if !is_same_server || !is_same_model {
            return self.preceding(&starts.replace(" now ", " "));
        }
        match endpoint.key.as_ref().map(|key| &key.secret) {
            Some(key) if login.key.as_deref().is_some_and(|stored| stored != key.expose()) => {
                format!(
                    "{starts}, but with the key in {}, which takes precedence.",
                    key_origin(&endpoint)
                )
            }
            _ => format!("{starts}."),
        }
    }

    /// The sentence with what takes precedence over a login.
    fn preceding(&self, sentence: &str) -> String {
        let variables = &self.config.variables;
        let in_file = self.file().is_ok_and(|file| file.model.is_some());
        let cause = first_match(&[
            (variables.get(MODEL_VARIABLE).is_some(), MODEL_VARIABLE),
            (in_file, &format!("`model` in {}", self.config.file_path())),
            (variables.get(BASE_URL_VARIABLE).is_some(), BASE_URL_VARIABLE),
            (variables.keys.contains_key(OPENAI_KEY_VARIABLE), OPENAI_KEY_VARIABLE),
        ]);
        if cause == BUILT_IN {
            format!("{sentence}.")
        } else {
            format!("{sentence}: {cause} takes precedence over this login.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EnvironmentVariables, Flags, Paths, UserFile};
    use turnwright_types::private_file;

    /// A login of this provider, or for this base URL, with the key `NAME's`.
    fn login(name: &str, model: Option<&str>) -> StoredLogin {
        let is_url = name.contains("://");
        StoredLogin {
            provider: Some(name.to_owned()).filter(|_| !is_url),
            base_url: Some(name.to_owned()).filter(|_| is_url),
            key: Some(format!("{name}'s")),
            model: model.map(str::to_owned),
        }
    }

    fn keys(pairs: &[(&str, &str)]) -> EnvironmentVariables {
        let keys = pairs.iter().map(|(name, key)| ((*name).to_owned(), (*key).into()));
        EnvironmentVariables { keys: keys.collect(), ..EnvironmentVariables::default() }
    }

    /// The settings of these variables, logins and file, and the folder that they are in.
    fn with_logins(
        variables: EnvironmentVariables,
        logins: &[StoredLogin],
        file: &str,
    ) -> (tempfile::TempDir, Config) {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut stored = Logins::default();
        for login in logins {
            stored.add(login.clone(), &paths).unwrap();
        }
        let user_file = UserFile::at_default_path(&paths);
        private_file::write(user_file.path(), file.as_bytes()).unwrap();
        (home, Config::new(variables, Flags::default(), user_file, paths))
    }

    #[test]
    fn the_last_login_gives_the_model_unless_something_else_names_one() {
        let mine = || login("http://mine/v1", Some("m"));
        let deepseek = || login("deepseek", Some("chat"));
        let openai = || login("openai", None);
        let no_key = || StoredLogin { key: None, ..login("openai", Some("gpt-5")) };
        let none = EnvironmentVariables::default;
        let openai_key = || keys(&[(OPENAI_KEY_VARIABLE, "openai")]);
        let url = |url: &str| EnvironmentVariables::of(&[(BASE_URL_VARIABLE, url)]);
        let model = |name: &str| EnvironmentVariables::of(&[(MODEL_VARIABLE, name)]);
        let table = [
            (vec![deepseek()], none(), "deepseek/chat with deepseek's"),
            (vec![mine(), deepseek()], none(), "deepseek/chat with deepseek's"),
            (vec![deepseek(), mine()], none(), "m with http://mine/v1's"),
            (vec![deepseek(), openai()], none(), "gpt-5-mini with openai's"),
            (vec![mine(), login("deepseek", None)], none(), "m with http://mine/v1's"),
            (vec![mine(), deepseek()], model("x"), "x with http://mine/v1's"),
            (vec![mine(), deepseek()], model("deepseek/r1"), "deepseek/r1 with deepseek's"),
            (vec![deepseek(), mine()], model("deepseek/r1"), "deepseek/r1 with deepseek's"),
            (vec![login("ollama", Some("qwen3"))], none(), "ollama/qwen3 with ollama's"),
            // The environment defines the default endpoint.
            (vec![mine()], openai_key(), "gpt-5-mini with openai"),
            (vec![deepseek()], openai_key(), "deepseek/chat with deepseek's"),
            (vec![no_key()], openai_key(), "gpt-5 with openai"),
            (vec![no_key()], none(), "none"),
            (vec![deepseek()], url("http://other/v1"), "none with no key"),
            (vec![mine(), deepseek()], url("http://mine/v1/"), "m with http://mine/v1's"),
        ];
        for (logins, variables, expected) in table {
            let (_home, config) = with_logins(variables, &logins, "");
            let found = match config.snapshot().provider().unwrap() {
                Provider::Endpoint(it) => {
                    let key = it.key.as_ref().map_or("no key", |key| key.secret.expose());
                    format!("{} with {key}", it.full_name().unwrap_or("none".to_owned()))
                }
                _ => "none".to_owned(),
            };
            assert_eq!(found, expected, "{logins:?}");
        }
    }

    #[test]
    fn the_models_of_all_logins_are_offered() {
        let logins = [
            login("groq", Some("g")),
            login("http://mine/v1", Some("m")),
            login("mistral", None),
            login("deepseek", Some("chat")),
        ];
        let (_home, config) = with_logins(EnvironmentVariables::default(), &logins, "");
        assert_eq!(config.snapshot().offered_models(), ["deepseek/chat", "m", "groq/g"]);
    }

    #[test]
    fn a_login_says_what_is_in_force_and_what_takes_precedence() {
        let none = EnvironmentVariables::default;
        let model = |name: &str| EnvironmentVariables::of(&[(MODEL_VARIABLE, name)]);
        let url = |url: &str| EnvironmentVariables::of(&[(BASE_URL_VARIABLE, url)]);
        let deepseek = || login("deepseek", Some("chat"));
        let table = [
            (deepseek(), none(), "", "turnwright now starts with deepseek/chat."),
            (login("openai", None), none(), "", "turnwright now starts with gpt-5-mini."),
            (login("http://mine/v1", Some("m")), none(), "", "turnwright now starts with m."),
            (
                login("http://mine/v1", Some("m")),
                keys(&[(OPENAI_KEY_VARIABLE, "k")]),
                "",
                "turnwright starts with gpt-5-mini: OPENAI_API_KEY takes precedence over this login.",
            ),
            (
                deepseek(),
                model("offline"),
                "",
                "turnwright starts with the built-in offline model: TURNWRIGHT_MODEL takes precedence \
                 over this login.",
            ),
            (
                deepseek(),
                none(),
                "model = 'ollama/qwen3'",
                "turnwright starts with ollama/qwen3: `model` in CONFIG takes precedence over this login.",
            ),
            (
                deepseek(),
                url("http://other/v1"),
                "",
                "turnwright starts with no model: OPENAI_BASE_URL takes precedence over this login.",
            ),
            (
                deepseek(),
                keys(&[("DEEPSEEK_API_KEY", "other")]),
                "",
                "turnwright now starts with deepseek/chat, but with the key in DEEPSEEK_API_KEY, which \
                 takes precedence.",
            ),
            (
                deepseek(),
                none(),
                "[providers.deepseek]\nbase_url = 'http://elsewhere/v1'",
                "turnwright now starts with deepseek/chat, but at http://elsewhere/v1, which CONFIG \
                 names, and without this key.",
            ),
            (
                login("deepseek", None),
                none(),
                "",
                "No model is chosen. There is a key for deepseek (stored login): run `turnwright login \
                 --provider deepseek`, which lists its models, or set TURNWRIGHT_MODEL, or `model` in \
                 CONFIG, for example to deepseek/MODEL.",
            ),
        ];
        for (login, variables, file, expected) in table {
            let (_home, config) = with_logins(variables, std::slice::from_ref(&login), file);
            let effect = config.snapshot().effect_of(&login).replace(&config.file_path(), "CONFIG");
            assert_eq!(effect, expected, "{login:?} {file}");
        }
    }
}
