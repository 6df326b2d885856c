//! The stored logins: keys, the servers that they are for, and the models that were chosen, in a file that
//! only its owner can read; and the logins beside flags, environment and settings file: which of them give the default
//! endpoint, the key and the model.

use std::path::PathBuf;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use crate::environment::{BASE_URL_VARIABLE, MODEL_VARIABLE};
use crate::file::ConfigFile;
use crate::provider::{PRESETS, ProviderPreset, is_openai_url, pasted_base_url, preset};
use crate::show::{BUILT_IN, first_match, key_origin};
use crate::{
    ClientProvider, Config, ConfigError, EndpointSettings, KeyOrigin, OPENAI_BASE_URL,
    OPENAI_DEFAULT_MODEL, OPENAI_KEY_VARIABLE, OPENAI_PROVIDER, Paths, Provider, ProviderKey,
    SettingsSnapshot,
};
use turnwright_types::error_text::{io_error_text, with_path};
use turnwright_types::{private_file, redact};

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A login to one server, as `turnwright login` stores it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredLogin {
    /// The well-known provider; `None` for a server of the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The base URL of a server of the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The key; local servers need none, and another one may be in the provider's variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The model as the server knows it, if one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl fmt::Debug for StoredLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StoredLogin")
            .field("provider", &self.provider)
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl StoredLogin {
    /// The base URL of the server; `None` if the provider is not known to this version.
    pub fn server(&self) -> Option<&str> {
        let url = self.base_url.as_deref().or_else(|| preset(self.provider.as_deref()?)?.base_url);
        url.map(|url| url.trim_end_matches('/'))
    }

    /// The name that users know the login by: the provider's, or the base URL, without what may be secret.
    pub fn name(&self) -> String {
        let name = self.provider.as_deref().or(self.base_url.as_deref());
        redact::url(name.unwrap_or(OPENAI_PROVIDER))
    }

    /// Returns true if the login defines the default endpoint, whose models have no prefix.
    fn is_default_endpoint(&self) -> bool {
        self.provider.as_deref().is_none_or(|provider| provider == OPENAI_PROVIDER)
    }

    /// The name of the chosen model in the settings.
    fn full_model_name(&self) -> Option<String> {
        let model = self.model.as_ref()?;
        match &self.provider {
            Some(provider) if !self.is_default_endpoint() => Some(format!("{provider}/{model}")),
            _ => Some(model.clone()),
        }
    }

    /// Names OpenAI as such: earlier versions stored no provider. A login with a base URL is for that server
    /// and not for a provider, so that its key is sent nowhere else.
    fn normalized(mut self) -> StoredLogin {
        if let Some(base_url) = &mut self.base_url {
            *base_url = pasted_base_url(base_url);
            self.provider = None;
        }
        let is_openai = self.base_url.as_deref().is_none_or(is_openai_url);
        if self.provider.is_none() && is_openai {
            self.base_url = None;
            self.provider = Some(OPENAI_PROVIDER.to_owned());
        }
        self
    }
}

/// All stored logins, one for each server. The last one was made last.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Logins {
    logins: Vec<StoredLogin>,
}

/// The content of the file, now or as earlier versions wrote it: a single login.
#[derive(Deserialize)]
struct LoginFile {
    logins: Option<Vec<StoredLogin>>,
    #[serde(flatten)]
    single: StoredLogin,
}

impl Logins {
    /// The path of the file.
    pub fn path(paths: &Paths) -> PathBuf {
        paths.config.join("login.json")
    }

    /// The stored logins.
    pub fn load(paths: &Paths) -> Result<Logins, ConfigError> {
        let path = Logins::path(paths);
        let unusable =
            |why: String| ConfigError::new(format!("The stored login {} {why}", path.display()));
        let text = match private_file::read(&path, MAX_FILE_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Logins::default()),
            text => text.map_err(|error| {
                let why = io_error_text(&error);
                unusable(format!("cannot be read ({why}). Correct that, or move the file away"))
            })?,
        };
        let damaged = "is damaged. Run `turnwright login` again, or delete the file";
        let file: LoginFile =
            serde_json::from_str(&text).map_err(|_| unusable(damaged.to_owned()))?;
        let single =
            Some(file.single).filter(|login| login.key.is_some() || login.base_url.is_some());
        let logins = file.logins.unwrap_or_else(|| single.into_iter().collect());
        Ok(Logins { logins: logins.into_iter().map(StoredLogin::normalized).collect() })
    }

    /// Returns true if the file can be read. If logins cannot be loaded then, it is damaged.
    pub fn can_be_read(paths: &Paths) -> bool {
        private_file::read(&Logins::path(paths), MAX_FILE_BYTES).is_ok()
    }

    /// Stores a login, which becomes the last one and replaces an earlier one for the same server.
    pub fn add(&mut self, login: StoredLogin, paths: &Paths) -> io::Result<()> {
        let _lock = paths.lock_settings()?;
        self.reload(paths);
        let login = login.normalized();
        self.logins.retain(|stored| stored.server() != login.server());
        self.logins.push(login);
        self.store(paths)
    }

    /// Stores the key of the service at this host that searches the web, in place of an earlier one.
    pub fn add_search(&mut self, host: &str, key: &str, paths: &Paths) -> io::Result<()> {
        let _lock = paths.lock_settings()?;
        self.reload(paths);
        let provider = Some(format!("search:{host}"));
        self.logins.retain(|stored| stored.provider != provider);
        let key = Some(key.to_owned());
        // The last login is that of a model.
        self.logins.insert(0, StoredLogin { provider, key, ..StoredLogin::default() });
        self.store(paths)
    }

    /// Removes the logins for which `is_removed` is true, and the file with the last one. Returns the
    /// removed ones.
    pub fn remove(
        &mut self,
        is_removed: impl Fn(&StoredLogin) -> bool,
        paths: &Paths,
    ) -> io::Result<Vec<StoredLogin>> {
        let _lock = paths.lock_settings()?;
        self.reload(paths);
        let (removed, kept) = std::mem::take(&mut self.logins).into_iter().partition(is_removed);
        self.logins = kept;
        if self.logins.is_empty() {
            private_file::remove(&Logins::path(paths))?;
        } else {
            self.store(paths)?;
        }
        Ok(removed)
    }

    /// Takes over what other processes have stored since the file was loaded.
    fn reload(&mut self, paths: &Paths) {
        if let Ok(stored) = Logins::load(paths) {
            *self = stored;
        }
    }

    /// Writes the file atomically, with mode 0600.
    fn store(&self, paths: &Paths) -> io::Result<()> {
        let path = Logins::path(paths);
        let written = private_file::write(&path, serde_json::to_string_pretty(self)?.as_bytes());
        written.map_err(|error| with_path(&path, &error))
    }

    /// Returns all logins, in the order in which they were made.
    pub fn all(&self) -> &[StoredLogin] {
        &self.logins
    }

    /// The login that was made last.
    pub fn last(&self) -> Option<&StoredLogin> {
        self.logins.last()
    }

    /// The login that defines the default endpoint. OpenAI is nothing without a key.
    pub(crate) fn default_endpoint(&self) -> Option<&StoredLogin> {
        let mut usable =
            self.logins.iter().filter(|login| login.key.is_some() || login.base_url.is_some());
        usable.rfind(|login| login.is_default_endpoint())
    }

    /// The login for the server with this base URL.
    pub fn for_server(&self, base_url: &str) -> Option<&StoredLogin> {
        let base_url = base_url.trim_end_matches('/');
        self.logins.iter().find(|login| login.server() == Some(base_url))
    }

    /// The key of a well-known provider.
    pub(crate) fn provider_key(&self, provider: &str) -> Option<&str> {
        let mut logins = self.logins.iter();
        logins.find(|login| login.provider.as_deref() == Some(provider))?.key.as_deref()
    }
}

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
    pub(crate) fn default_endpoint(&self) -> Option<EndpointSettings> {
        match &self.client_provider {
            ClientProvider::Unset => {}
            ClientProvider::Disabled => return None,
            ClientProvider::Set { base_url, headers } => {
                return Some(EndpointSettings {
                    base_url: base_url.clone(),
                    headers: headers.clone(),
                    ..EndpointSettings::default()
                });
            }
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
        Some(EndpointSettings { base_url, key, model, ..EndpointSettings::default() })
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
        let cause = first_match(&[
            (variables.get(MODEL_VARIABLE).is_some(), MODEL_VARIABLE),
            (self.values.model.is_some(), &format!("`model` in {}", self.config.file_path())),
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
#[expect(clippy::disallowed_methods, reason = "a test damages a file")]
mod tests {
    use std::fs;

    use turnwright_types::private_file;

    use super::*;
    use crate::{EnvironmentVariables, Flags, Paths, UserFile};

    fn login(provider: Option<&str>, base_url: Option<&str>, key: &str) -> StoredLogin {
        StoredLogin {
            provider: provider.map(str::to_owned),
            base_url: base_url.map(str::to_owned),
            key: Some(key.to_owned()),
            model: None,
        }
    }

    fn stored(paths: &Paths) -> Vec<(String, String)> {
        let logins = Logins::load(paths).unwrap();
        let shown = |login: &StoredLogin| (login.name(), login.key.clone().unwrap_or_default());
        logins.all().iter().map(shown).collect()
    }

    fn pair(name: &str, key: &str) -> (String, String) {
        (name.to_owned(), key.to_owned())
    }

    #[test]
    fn logins_are_kept_private_and_can_be_removed() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut logins = Logins::load(&paths).unwrap();
        logins.add(login(Some("deepseek"), None, "sk-secret"), &paths).unwrap();
        assert!(!format!("{logins:?}").contains("secret"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(Logins::path(&paths)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(stored(&paths), [pair("deepseek", "sk-secret")]);
        assert_eq!(logins.remove(|login| login.name() == "groq", &paths).unwrap(), []);
        assert_eq!(stored(&paths).len(), 1);
        assert_eq!(logins.remove(|_| true, &paths).unwrap()[0].name(), "deepseek");
        assert!(!Logins::path(&paths).exists());
        assert_eq!(logins.remove(|_| true, &paths).unwrap(), []);
    }

    #[test]
    fn a_login_replaces_the_one_for_its_server_and_becomes_the_last() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut logins = Logins::default();
        for (provider, base_url, key) in [
            (Some("deepseek"), None, "first"),
            (None, None, "openai"),
            (None, Some("http://mine/v1/"), "mine"),
            (Some("groq"), None, "groq"),
            (None, Some("https://api.deepseek.com/v1/"), "second"),
            (Some("openai"), None, "openai again"),
        ] {
            logins.add(login(provider, base_url, key), &paths).unwrap();
        }
        let expected = [
            pair("http://mine/v1/", "mine"),
            pair("groq", "groq"),
            pair("https://api.deepseek.com/v1/", "second"),
            pair("openai", "openai again"),
        ];
        assert_eq!(stored(&paths), expected);
        assert_eq!(logins.last().unwrap().name(), "openai");
        assert_eq!(logins.for_server("http://mine/v1").unwrap().key.as_deref(), Some("mine"));
        assert_eq!(logins.provider_key("groq"), Some("groq"));
        assert_eq!(logins.provider_key("deepseek"), None);
    }

    #[test]
    fn the_format_of_earlier_versions_is_read_and_replaced_by_the_next_login() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        fs::create_dir_all(&paths.config).unwrap();
        for (text, expected) in [
            (r#"{ "key": "k" }"#, vec![pair("openai", "k")]),
            (r#"{ "base_url": "http://h/v1", "model": "m" }"#, vec![pair("http://h/v1", "")]),
            (
                r#"{ "key": "k", "base_url": "https://api.openai.com/v1/" }"#,
                vec![pair("openai", "k")],
            ),
            ("{}", vec![]),
        ] {
            fs::write(Logins::path(&paths), text).unwrap();
            assert_eq!(stored(&paths), expected, "{text}");
        }
        fs::write(Logins::path(&paths), r#"{ "key": "k", "model": "m" }"#).unwrap();
        let mut logins = Logins::load(&paths).unwrap();
        logins.add(login(Some("groq"), None, "g"), &paths).unwrap();
        assert_eq!(stored(&paths), [pair("openai", "k"), pair("groq", "g")]);
        let file: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(Logins::path(&paths)).unwrap()).unwrap();
        let expected = serde_json::json!({ "logins": [
            { "provider": "openai", "key": "k", "model": "m" }, { "provider": "groq", "key": "g" },
        ] });
        assert_eq!(file, expected);
    }

    #[test]
    fn a_login_keeps_those_that_others_have_stored_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let [mut one, mut other] = [Logins::default(), Logins::default()];
        one.add(login(Some("groq"), None, "g"), &paths).unwrap();
        other.add(login(Some("mistral"), None, "m"), &paths).unwrap();
        assert_eq!(stored(&paths), [pair("groq", "g"), pair("mistral", "m")]);
        one.remove(|login| login.name() == "groq", &paths).unwrap();
        assert_eq!(stored(&paths), [pair("mistral", "m")]);
    }

    #[test]
    fn a_login_with_a_base_url_is_not_for_the_provider_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut logins = Logins::default();
        logins.add(login(Some("deepseek"), Some("http://mine/v1"), "mine"), &paths).unwrap();
        assert_eq!(logins.provider_key("deepseek"), None);
        assert_eq!(logins.for_server("http://mine/v1").unwrap().key.as_deref(), Some("mine"));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_small_file_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        fs::create_dir_all(&paths.config).unwrap();
        std::os::unix::fs::symlink("/dev/zero", Logins::path(&paths)).unwrap();
        let error = Logins::load(&paths).unwrap_err().to_string();
        assert!(error.contains("cannot be read (it is not a regular file)"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_an_error_that_says_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        fs::create_dir_all(&paths.config).unwrap();
        for text in ["{", "[]", r#"{ "logins": 5 }"#, r#"{ "logins": [5] }"#, r#"{ "key": 5 }"#] {
            fs::write(Logins::path(&paths), text).unwrap();
            let error = Logins::load(&paths).unwrap_err().to_string();
            assert!(
                error.contains("login.json is damaged. Run `turnwright login` again"),
                "{text}"
            );
        }
    }

    /// A login of this provider, or for this base URL, with the key `NAME's`.
    fn login_at(name: &str, model: Option<&str>) -> StoredLogin {
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
        let mine = || login_at("http://mine/v1", Some("m"));
        let deepseek = || login_at("deepseek", Some("chat"));
        let openai = || login_at("openai", None);
        let no_key = || StoredLogin { key: None, ..login_at("openai", Some("gpt-5")) };
        let none = EnvironmentVariables::default;
        let openai_key = || keys(&[(OPENAI_KEY_VARIABLE, "openai")]);
        let url = |url: &str| EnvironmentVariables::of(&[(BASE_URL_VARIABLE, url)]);
        let model = |name: &str| EnvironmentVariables::of(&[(MODEL_VARIABLE, name)]);
        let table = [
            (vec![deepseek()], none(), "deepseek/chat with deepseek's"),
            (vec![mine(), deepseek()], none(), "deepseek/chat with deepseek's"),
            (vec![deepseek(), mine()], none(), "m with http://mine/v1's"),
            (vec![deepseek(), openai()], none(), "gpt-5.4-mini with openai's"),
            (vec![mine(), login_at("deepseek", None)], none(), "m with http://mine/v1's"),
            (vec![mine(), deepseek()], model("x"), "x with http://mine/v1's"),
            (vec![mine(), deepseek()], model("deepseek/r1"), "deepseek/r1 with deepseek's"),
            (vec![deepseek(), mine()], model("deepseek/r1"), "deepseek/r1 with deepseek's"),
            (vec![login_at("ollama", Some("qwen3"))], none(), "ollama/qwen3 with ollama's"),
            // The environment defines the default endpoint.
            (vec![mine()], openai_key(), "gpt-5.4-mini with openai"),
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
            login_at("groq", Some("g")),
            login_at("http://mine/v1", Some("m")),
            login_at("mistral", None),
            login_at("deepseek", Some("chat")),
        ];
        let (_home, config) = with_logins(EnvironmentVariables::default(), &logins, "");
        assert_eq!(config.snapshot().offered_models(), ["deepseek/chat", "m", "groq/g"]);
    }

    #[test]
    fn a_login_says_what_is_in_force_and_what_takes_precedence() {
        let none = EnvironmentVariables::default;
        let model = |name: &str| EnvironmentVariables::of(&[(MODEL_VARIABLE, name)]);
        let url = |url: &str| EnvironmentVariables::of(&[(BASE_URL_VARIABLE, url)]);
        let deepseek = || login_at("deepseek", Some("chat"));
        let table = [
            (deepseek(), none(), "", "turnwright now starts with deepseek/chat."),
            (login_at("openai", None), none(), "", "turnwright now starts with gpt-5.4-mini."),
            (login_at("http://mine/v1", Some("m")), none(), "", "turnwright now starts with m."),
            (
                login_at("http://mine/v1", Some("m")),
                keys(&[(OPENAI_KEY_VARIABLE, "k")]),
                "",
                "turnwright starts with gpt-5.4-mini: OPENAI_API_KEY takes precedence over this login.",
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
                login_at("deepseek", None),
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
